//! Prepared modules by the digest of their bytes. Compiling takes from milliseconds to seconds, a run microseconds, so a
//! module is compiled once and kept while there is room. Callers that want the same module at the same time wait for
//! one compilation. A module that cannot be prepared is remembered as well: the answer will not change, and finding it
//! again may be dear.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OnceCell, Semaphore};

use super::{PrepareError, Prepared, Sandbox};
use crate::job::{Digest, TenantId};

/// How many modules are kept. Each holds one or two file descriptors, for the images of its memories.
pub const CACHED_MODULES: usize = 256;
/// How much compiled code is kept, in bytes: a dozen of modules with a whole CPython in them, or thousands in Rust.
pub const CACHED_BYTES: u64 = 512 << 20;
/// Compilations at once, each of another tenant. Each uses several cores already and up to some hundred MB of memory; a
/// second one keeps a large module from holding up all small ones.
const COMPILATIONS: usize = 2;
/// What a remembered refusal is charged, in bytes.
const REFUSAL_BYTES: u64 = 4 << 10;

/// Why there is no module to run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes could not be had: the caller's own error, and worth another try.
    #[error("fetching the module's bytes: {0:#}")]
    Fetch(anyhow::Error),
    /// The bytes are not those that were asked for.
    #[error("the module's bytes have the digest {found}, not {wanted}; upload it again")]
    Digest { wanted: Digest, found: Digest },
    /// The bytes cannot be run, now or later; except for `PrepareError::Host`, which may pass.
    #[error(transparent)]
    Prepare(PrepareError),
    /// The thread that compiled them is gone, which only happens while the process ends.
    #[error("compiling was abandoned")]
    Abandoned,
}

/// Bounded by number and by bytes; the least recently used goes first.
pub struct ModuleCache {
    sandbox: Sandbox,
    max_modules: usize,
    max_bytes: u64,
    compilations: Arc<Semaphore>,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_digest: HashMap<Digest, Entry>,
    /// Counts uses; an entry's last use orders it among the others.
    clock: u64,
    /// Who has something compiled, or waits for it.
    tenants: HashMap<TenantId, Arc<Semaphore>>,
}

struct Entry {
    cell: Arc<Cell>,
    used: u64,
}

type Cell = OnceCell<Result<Prepared, PrepareError>>;

impl ModuleCache {
    pub fn new(sandbox: Sandbox) -> Self {
        Self::with_bounds(sandbox, CACHED_MODULES, CACHED_BYTES)
    }

    pub fn with_bounds(sandbox: Sandbox, max_modules: usize, max_bytes: u64) -> Self {
        Self {
            sandbox,
            max_modules,
            max_bytes,
            compilations: Arc::new(Semaphore::new(COMPILATIONS)),
            entries: Mutex::default(),
        }
    }

    /// The module with this digest, compiled now if it is not at hand, after all else that this tenant has compiled. `fetch`
    /// gets its bytes and is called only then. The compiling is done, or waited for, by a blocking thread of the tokio
    /// runtime that this is called on. Dropping the future does not end it.
    pub async fn get_or_prepare<F>(&self, tenant: TenantId, digest: Digest, fetch: F) -> Result<Prepared, LoadError>
    where
        F: AsyncFnOnce() -> anyhow::Result<Vec<u8>>,
    {
        let cell = self.lock().cell(digest);
        if let Some(loaded) = cell.get() {
            return answer(loaded);
        }
        let loaded = cell.get_or_try_init(async || self.load(tenant, digest, fetch).await).await;
        // What was just made counts from now on, and what failed does not stay.
        let evicted = self.lock().evict(self.max_modules, self.max_bytes);
        // Unmapping code takes time, so not under the lock.
        drop(evicted);
        answer(loaded?)
    }

    async fn load<F>(
        &self,
        tenant: TenantId,
        digest: Digest,
        fetch: F,
    ) -> Result<Result<Prepared, PrepareError>, LoadError>
    where
        F: AsyncFnOnce() -> anyhow::Result<Vec<u8>>,
    {
        // One at a time a tenant, so that its modules never hold up those of all others.
        let turn = self.lock().turn_of(tenant);
        let turn = turn.acquire_owned().await.expect("the semaphore is never closed");
        let bytes = fetch().await.map_err(LoadError::Fetch)?;
        let permit = Arc::clone(&self.compilations).acquire_owned().await.expect("the semaphore is never closed");
        let sandbox = self.sandbox.clone();
        let prepare = move || {
            // Kept until the compiling ends, which it does whether anybody still waits for it or not.
            let _permits = (turn, permit);
            let found = Digest::of(&bytes);
            if found != digest {
                return Err(LoadError::Digest { wanted: digest, found });
            }
            match sandbox.prepare(&bytes) {
                Err(error @ PrepareError::Host(_)) => Err(LoadError::Prepare(error)),
                prepared => Ok(prepared),
            }
        };
        tokio::task::spawn_blocking(prepare).await.map_err(|_| LoadError::Abandoned)?
    }

    /// How many modules are at hand, and the bytes of their code.
    pub fn size(&self) -> (usize, u64) {
        let entries = self.lock();
        let loaded = entries.by_digest.values().filter_map(|entry| entry.cell.get());
        loaded.fold((0, 0), |(modules, bytes), module| (modules + 1, bytes + weight(module)))
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        // Nothing that can panic runs under the lock in a half-changed state.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    fn turn_of(&mut self, tenant: TenantId) -> Arc<Semaphore> {
        // What nobody holds or waits for is a tenant that has nothing compiled.
        self.tenants.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(self.tenants.entry(tenant).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    fn cell(&mut self, digest: Digest) -> Arc<Cell> {
        self.clock += 1;
        let used = self.clock;
        let entry = self.by_digest.entry(digest).or_insert_with(|| Entry { cell: Arc::default(), used });
        entry.used = used;
        Arc::clone(&entry.cell)
    }

    /// Takes out what is too much. A scan for each victim is fine for some hundred entries.
    fn evict(&mut self, max_modules: usize, max_bytes: u64) -> Vec<Entry> {
        // An empty cell that nobody holds is what a failed or dropped loading left.
        self.by_digest.retain(|_, entry| entry.cell.initialized() || Arc::strong_count(&entry.cell) > 1);
        let mut evicted = Vec::new();
        loop {
            let loaded: Vec<_> = self
                .by_digest
                .iter()
                .filter_map(|(digest, entry)| Some((*digest, entry.used, entry.cell.get()?)))
                .collect();
            let bytes: u64 = loaded.iter().map(|(_, _, module)| weight(module)).sum();
            // One module may be larger than all the room there is, and still it has to be run.
            if loaded.len() <= 1 || (loaded.len() <= max_modules && bytes <= max_bytes) {
                return evicted;
            }
            let oldest = loaded.iter().min_by_key(|(_, used, _)| *used).map(|(digest, _, _)| *digest);
            evicted.extend(oldest.and_then(|digest| self.by_digest.remove(&digest)));
        }
    }
}

fn answer(loaded: &Result<Prepared, PrepareError>) -> Result<Prepared, LoadError> {
    loaded.clone().map_err(LoadError::Prepare)
}

fn weight(module: &Result<Prepared, PrepareError>) -> u64 {
    module.as_ref().map_or(REFUSAL_BYTES, Prepared::compiled_bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use anyhow::bail;
    use tokio::sync::Notify;

    use super::*;
    use crate::sandbox::SandboxConfig;

    const ACME: TenantId = TenantId(1);

    fn sandbox() -> Sandbox {
        Sandbox::new(&SandboxConfig { slots: 1, memory_bytes: 1 << 20, ..SandboxConfig::default() })
            .expect("the sandbox starts")
    }

    /// Programs that differ in nothing but a number.
    fn program(number: u32) -> (Digest, Vec<u8>) {
        let text = format!("(module (func (export \"_start\") (drop (i32.const {number}))))");
        let bytes = wat::parse_str(text).expect("it parses");
        (Digest::of(&bytes), bytes)
    }

    #[tokio::test]
    async fn callers_at_once_share_one_compilation() {
        let cache = ModuleCache::new(sandbox());
        let fetched = AtomicUsize::new(0);
        let (digest, bytes) = program(1);
        let load = || {
            cache.get_or_prepare(ACME, digest, async || {
                fetched.fetch_add(1, SeqCst);
                tokio::task::yield_now().await;
                Ok(bytes.clone())
            })
        };
        let (a, b, c) = tokio::join!(load(), load(), load());
        assert!(a.is_ok() && b.is_ok() && c.is_ok());
        assert!(load().await.is_ok());
        assert_eq!(fetched.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn a_tenant_has_one_module_made_ready_at_a_time() {
        const GLOBEX: TenantId = TenantId(2);
        let cache = ModuleCache::new(sandbox());
        let (release, released) = (Notify::new(), AtomicBool::new(false));
        let [(one, one_bytes), (two, two_bytes), (other, other_bytes)] = [program(1), program(2), program(3)];
        let first = cache.get_or_prepare(ACME, one, async || {
            release.notified().await;
            released.store(true, SeqCst);
            Ok(one_bytes)
        });
        let second = cache.get_or_prepare(ACME, two, async || {
            assert!(released.load(SeqCst), "it began before the first had ended");
            Ok(two_bytes)
        });
        let others = async {
            let loaded = cache.get_or_prepare(GLOBEX, other, async || Ok(other_bytes)).await;
            assert!(loaded.is_ok() && !released.load(SeqCst), "another tenant does not wait");
            release.notify_one();
        };
        let (first, second, ()) = tokio::join!(first, second, others);
        assert!(first.is_ok() && second.is_ok());
        // Nobody's turn is kept when it is over.
        let _turn = cache.lock().turn_of(ACME);
        assert_eq!(cache.lock().tenants.len(), 1);
    }

    #[tokio::test]
    async fn a_failed_fetch_is_tried_again_and_a_refusal_is_not() {
        let cache = ModuleCache::new(sandbox());
        let (digest, bytes) = program(1);
        let failed = cache.get_or_prepare(ACME, digest, async || bail!("no database")).await;
        assert!(matches!(failed, Err(LoadError::Fetch(_))));
        assert_eq!(cache.size().0, 0);
        assert!(cache.get_or_prepare(ACME, digest, async || Ok(bytes)).await.is_ok());

        let garbage = b"garbage".to_vec();
        let digest = Digest::of(&garbage);
        let refused = cache.get_or_prepare(ACME, digest, async || Ok(garbage)).await;
        assert!(matches!(refused, Err(LoadError::Prepare(PrepareError::NotWasm(_)))));
        let again = cache.get_or_prepare(ACME, digest, async || unreachable!("it is remembered")).await;
        assert!(matches!(again, Err(LoadError::Prepare(PrepareError::NotWasm(_)))));
    }

    #[tokio::test]
    async fn other_bytes_than_asked_for_are_refused() {
        let cache = ModuleCache::new(sandbox());
        let (digest, _) = program(1);
        let (_, other) = program(2);
        assert!(matches!(cache.get_or_prepare(ACME, digest, async || Ok(other)).await, Err(LoadError::Digest { .. })));
    }

    #[tokio::test]
    async fn the_least_recently_used_goes_first() {
        let cache = ModuleCache::with_bounds(sandbox(), 2, u64::MAX);
        let load = async |number| {
            let (digest, bytes) = program(number);
            let mut fetched = false;
            let loaded = cache
                .get_or_prepare(ACME, digest, async || {
                    fetched = true;
                    Ok(bytes)
                })
                .await;
            assert!(loaded.is_ok());
            fetched
        };
        assert!(load(1).await);
        assert!(load(2).await);
        assert!(!load(1).await);
        assert!(load(3).await, "which puts out 2");
        assert!(!load(1).await);
        assert!(load(2).await);
        assert_eq!(cache.size().0, 2);
    }

    #[tokio::test]
    async fn bytes_bound_it_too_but_one_module_always_stays() {
        let cache = ModuleCache::with_bounds(sandbox(), 100, 1);
        for number in 1..=3 {
            let (digest, bytes) = program(number);
            assert!(cache.get_or_prepare(ACME, digest, async || Ok(bytes)).await.is_ok());
            assert_eq!(cache.size().0, 1);
        }
    }
}
