//! Counts linear memory and tables against one limit. All memories and tables of a run count together, since a guest may
//! have several and each would otherwise get the whole limit. A refusal is an error of a type of its own rather than
//! wasm's -1: a guest that gets -1 mostly aborts with `unreachable`, and nobody learns why.

use wasmtime::ResourceLimiter;

use super::engine::{CORE_INSTANCES_PER_RUN, MEMORIES_PER_RUN, TABLE_ELEMENTS, TABLES_PER_RUN};

/// What a table's element is charged, in bytes: a pointer.
const TABLE_ELEMENT_BYTES: u64 = 8;
/// wasmtime's maximum for a memory whose module sets none: what 32 bits can address.
const ADDRESS_SPACE_BYTES: usize = 1 << 32;

/// The guest wanted more memory than its limit.
#[derive(Debug, thiserror::Error)]
#[error("memory limit of {limit} bytes exceeded: wanted {wanted} bytes")]
pub(super) struct MemoryLimit {
    pub limit: u64,
    pub wanted: u64,
}

/// One table got too long. There is no flag for it: real programs come nowhere near.
#[derive(Debug, thiserror::Error)]
#[error("table limit of {TABLE_ELEMENTS} elements exceeded: wanted {wanted} elements")]
pub(super) struct TableLimit {
    wanted: usize,
}

/// The limit allowed it, the host could not give it. Not the guest's fault.
#[derive(Debug, thiserror::Error)]
#[error("the worker could not give {wanted} bytes of memory that the limit of {limit} bytes allows: {cause}")]
pub(super) struct MemoryRefused {
    limit: u64,
    wanted: u64,
    cause: String,
}

/// The limiter of one run.
#[derive(Debug)]
pub(super) struct Limiter {
    limit: u64,
    held: u64,
    peak: u64,
    /// The last growth that we allowed, in case that the host then fails to make it.
    granted: u64,
}

impl Limiter {
    pub fn new(limit_bytes: u64) -> Self {
        Self { limit: limit_bytes, held: 0, peak: 0, granted: 0 }
    }

    pub fn peak_bytes(&self) -> u64 {
        self.peak
    }

    fn grow(&mut self, by: u64) -> Result<(), MemoryLimit> {
        let wanted = self.held.saturating_add(by);
        if wanted > self.limit {
            return Err(MemoryLimit { limit: self.limit, wanted });
        }
        self.held = wanted;
        self.peak = self.peak.max(wanted);
        self.granted = by;
        Ok(())
    }

    fn refused(&mut self, error: &wasmtime::Error) -> MemoryRefused {
        let wanted = self.held;
        self.held -= std::mem::take(&mut self.granted);
        MemoryRefused { limit: self.limit, wanted, cause: format!("{error:#}") }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.granted = 0;
        if maximum.is_some_and(|maximum| desired > maximum && maximum < ADDRESS_SPACE_BYTES) {
            // Beyond what the module set for itself: it expects the -1.
            return Ok(false);
        }
        self.grow((desired - current) as u64)?;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(self.refused(&error).into())
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.granted = 0;
        // Before the maximum, since the pool makes this bound of ours the maximum of every table.
        if desired > TABLE_ELEMENTS {
            return Err(TableLimit { wanted: desired }.into());
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.grow(((desired - current) as u64).saturating_mul(TABLE_ELEMENT_BYTES))?;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(self.refused(&error).into())
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_PER_RUN as usize
    }

    fn tables(&self) -> usize {
        TABLES_PER_RUN as usize
    }

    fn memories(&self) -> usize {
        MEMORIES_PER_RUN as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_tables_count_together() {
        let mut limiter = Limiter::new(100_000);
        assert!(limiter.memory_growing(0, 60_000, None).expect("within the limit"));
        assert!(limiter.table_growing(0, 1_000, None).expect("within the limit"));
        let error = limiter.memory_growing(0, 60_000, None).expect_err("over the limit");
        assert_eq!(error.to_string(), "memory limit of 100000 bytes exceeded: wanted 128000 bytes");
        assert_eq!(limiter.peak_bytes(), 68_000);
    }

    #[test]
    fn a_modules_own_maximum_is_no_offence() {
        let mut limiter = Limiter::new(1 << 20);
        assert!(!limiter.memory_growing(0, 200_000, Some(131_072)).expect("the guest gets its -1"));
        assert_eq!(limiter.peak_bytes(), 0);
    }

    #[test]
    fn a_memory_without_a_maximum_meets_the_limit_at_4_gib_too() {
        let mut limiter = Limiter::new(1 << 20);
        let error = limiter.memory_growing(0, (1 << 32) + 65_536, Some(1 << 32)).expect_err("over the limit");
        assert!(error.is::<MemoryLimit>());
    }

    #[test]
    fn a_table_may_only_have_so_many_elements() {
        let mut limiter = Limiter::new(1 << 30);
        let error = limiter.table_growing(0, TABLE_ELEMENTS + 1, Some(TABLE_ELEMENTS)).expect_err("over the limit");
        assert_eq!(error.to_string(), "table limit of 100000 elements exceeded: wanted 100001 elements");
    }

    #[test]
    fn what_the_host_refuses_is_not_held() {
        let mut limiter = Limiter::new(1 << 20);
        assert!(limiter.memory_growing(0, 65_536, None).expect("within the limit"));
        assert_eq!(limiter.peak_bytes(), 65_536);
        let error = limiter.memory_grow_failed(wasmtime::format_err!("no room")).expect_err("always an error");
        assert!(error.is::<MemoryRefused>());
        assert!(limiter.memory_growing(0, 1 << 20, None).expect("the whole limit is free again"));
    }
}
