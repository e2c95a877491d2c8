//! Runs tenants' code. Nothing above this module knows wasmtime, and nothing in it knows SQL: bytes and limits go in,
//! a `Run` comes out. Whatever a guest does, it comes out as an `Outcome`, within the limits, and leaves nothing behind.

mod backtrace;
mod cache;
mod child;
mod clocks;
mod code_cache;
mod compile;
mod control;
mod engine;
mod exit;
mod failure;
mod fixed;
mod host;
mod imports;
mod limiter;
mod module;
mod profiler;
mod program;
mod run;
mod signature;
mod state;
mod stdio;
mod survey;
mod timer;

use std::sync::Arc;

use anyhow::ensure;
use wasmtime::error::Context;
use wasmtime::{Engine, component, component::HasSelf};

pub use cache::{LoadError, ModuleCache};
pub use child::{CompileTask, run_child};
pub use code_cache::CodeCacheConfig;
pub use compile::{CompileLimits, Compiler, CompilerProcess};
pub use control::RunControl;
pub use engine::Allocation;
pub use imports::{MissingImport, Need};
pub use module::{Inspection, PrepareError, Prepared};
pub use profiler::Profile;
pub use run::JobInput;

use code_cache::CodeCache;
use engine::Ticker;
use imports::Offer;
use state::State;
use timer::Timer;

/// How a sandbox is dimensioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxConfig {
    /// How many runs there may be at once. One more fails with a `host` failure, so take a permit first.
    pub slots: u32,
    /// The most memory that the limits of any module may give, in bytes. Each slot reserves addresses for it, not memory.
    pub memory_bytes: u64,
    /// Who compiles modules: this process, or one of their own for those of strangers.
    pub compiler: Compiler,
    /// Made for `run_profiled`: failures then have no places in the source in their backtraces.
    pub profiling: bool,
}

impl SandboxConfig {
    /// Each slot takes 16 GiB of address space, of which the kernel gives a process 128 TiB.
    pub const MAX_SLOTS: u32 = 4_096;
    /// What a 32-bit memory can have.
    pub const MAX_MEMORY_BYTES: u64 = 4 << 30;
    /// One page of wasm.
    pub const MIN_MEMORY_BYTES: u64 = 64 << 10;
}

impl Default for SandboxConfig {
    fn default() -> Self {
        Self { slots: 64, memory_bytes: 1 << 30, compiler: Compiler::InProcess, profiling: false }
    }
}

/// The one engine of a process and what is linked to it. Cheap to clone.
#[derive(Clone)]
pub struct Sandbox(Arc<Inner>);

struct Inner {
    config: SandboxConfig,
    engine: Engine,
    allocation: Allocation,
    component_linker: component::Linker<State>,
    program_linker: wasmtime::Linker<State>,
    offer: Offer,
    ticker: Ticker,
    timer: Timer,
    code_cache: Option<CodeCache>,
}

/// How much of the pool is in use by runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    pub memories: usize,
    pub tables: usize,
    pub stacks: usize,
    pub core_instances: u64,
    pub component_instances: u64,
}

impl Sandbox {
    pub fn new(config: &SandboxConfig) -> anyhow::Result<Self> {
        let SandboxConfig { slots, memory_bytes, ref compiler, profiling: _ } = *config;
        ensure!(
            (1..=SandboxConfig::MAX_SLOTS).contains(&slots),
            "{slots} slots: a sandbox has 1 to {}",
            SandboxConfig::MAX_SLOTS
        );
        ensure!(
            (SandboxConfig::MIN_MEMORY_BYTES..=SandboxConfig::MAX_MEMORY_BYTES).contains(&memory_bytes),
            "memory of {memory_bytes} bytes: a sandbox gives a run {} to {} bytes",
            SandboxConfig::MIN_MEMORY_BYTES,
            SandboxConfig::MAX_MEMORY_BYTES
        );
        let code_cache = match compiler {
            Compiler::InProcess => None,
            Compiler::Process(process) => {
                ensure!(
                    process.limits.memory_bytes >= CompileLimits::MIN_MEMORY_BYTES,
                    "compile memory of {} bytes: a compiler needs {} bytes at least",
                    process.limits.memory_bytes,
                    CompileLimits::MIN_MEMORY_BYTES
                );
                ensure!(process.limits.cpu_seconds > 0, "compile time of 0 s: a compiler needs 1 s at least");
                process.cache.as_ref().and_then(CodeCache::open_or_warn)
            }
        };
        let (engine, allocation) = engine::build(config)?;
        let mut component_linker = component::Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut component_linker).context("linking WASI 0.2")?;
        clocks::add_to_component_linker(&mut component_linker).context("linking WASI 0.2's clock")?;
        host::bindings::Job::add_to_linker::<_, HasSelf<State>>(&mut component_linker, |state| state)
            .context("linking leasehold:job/host")?;
        let mut program_linker = wasmtime::Linker::new(&engine);
        wasmtime_wasi::p1::add_to_linker_async(&mut program_linker, State::wasi_p1).context("linking WASI 0.1")?;
        clocks::add_to_program_linker(&mut program_linker).context("linking WASI 0.1's poll")?;
        exit::add_to_program_linker(&mut program_linker).context("linking WASI 0.1's exit")?;
        let offer = Offer::of(&component_linker);
        let ticker = Ticker::start(&engine)?;
        let timer = Timer::start()?;
        Ok(Self(Arc::new(Inner {
            config: config.clone(),
            engine,
            allocation,
            component_linker,
            program_linker,
            offer,
            ticker,
            timer,
            code_cache,
        })))
    }

    pub fn config(&self) -> &SandboxConfig {
        &self.0.config
    }

    /// Whether runs have a pool, and why not if they have not.
    pub fn allocation(&self) -> &Allocation {
        &self.0.allocation
    }

    /// What the runs of this moment hold; None without a pool.
    pub fn pool_use(&self) -> Option<PoolUse> {
        let metrics = self.0.engine.pooling_allocator_metrics()?;
        Some(PoolUse {
            memories: metrics.memories(),
            tables: metrics.tables(),
            stacks: metrics.stacks(),
            core_instances: metrics.core_instances(),
            component_instances: metrics.component_instances(),
        })
    }

    fn engine(&self) -> &Engine {
        &self.0.engine
    }

    fn component_linker(&self) -> &component::Linker<State> {
        &self.0.component_linker
    }

    fn program_linker(&self) -> &wasmtime::Linker<State> {
        &self.0.program_linker
    }

    fn offer(&self) -> &Offer {
        &self.0.offer
    }

    fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }

    fn code_cache(&self) -> Option<&CodeCache> {
        self.0.code_cache.as_ref()
    }

    fn timer(&self) -> &Timer {
        &self.0.timer
    }
}
