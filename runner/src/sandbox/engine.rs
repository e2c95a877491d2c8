//! The engine: one a process, shared by all tenants. It is set up for many short runs of hostile code. What a guest does
//! not need is off, so that a flaw in it is out of reach; what bounds a guest (fuel, epochs, a pool with fixed slots) is on.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Strategy, WasmBacktraceDetails,
};

use super::SandboxConfig;

/// The epoch's tick: how soon a spinning guest notices a deadline or a stop, and how long it keeps a thread from others.
/// With 5 ms a neighbour's timer of 5 ms came after 17 ms, with 1 ms after 10.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// After so many ticks without a run the ticker sleeps until the next one, so that an idle worker costs nothing.
const IDLE_TICKS: u32 = 100;

/// Stack for wasm frames, in bytes: wasmtime's default. Runaway recursion in plain wasm ends here.
pub(super) const WASM_STACK_BYTES: usize = 512 << 10;
/// The whole stack of a run. What wasm does not get is left for host functions; overflowing that part would end the
/// process, so it is three times what they were seen to need at most.
const ASYNC_STACK_BYTES: usize = 2 << 20;
/// Frames in a backtrace: enough to see a recursion's cycle and where it was entered from.
pub(super) const BACKTRACE_FRAMES: usize = 32;

/// The same where stacks are profiled: deep enough for the outermost calls to be in it, mostly.
const PROFILED_FRAMES: usize = 512;

/// Linear memories of one run. A component of one module has 1; those made with QuickJS have up to 3.
pub(super) const MEMORIES_PER_RUN: u32 = 4;
/// Tables of one run: a module with its adapter has 2, a linked set of libraries more.
pub(super) const TABLES_PER_RUN: u32 = 16;
/// Core instances of one run: a module with its adapter and their shims make 4, a Python with its libraries dozens.
pub(super) const CORE_INSTANCES_PER_RUN: u32 = 64;
/// Elements a table may grow to. Unoptimised Swift and C# guests need close to 100 thousand.
pub(super) const TABLE_ELEMENTS: usize = 100_000;
/// wasmtime's own bookkeeping for an instance, in bytes; it grows with a module's functions and globals.
const CORE_INSTANCE_BYTES: usize = 4 << 20;
const COMPONENT_INSTANCE_BYTES: usize = 8 << 20;
/// How much memory an idle slot keeps for the next run, in bytes, where the kernel can tell which pages were touched
/// (PAGEMAP_SCAN, Linux 6.7): this saves the page faults and made runs two to five times as fast.
const KEEP_RESIDENT_WITH_PAGEMAP: usize = 2 << 20;
/// Without it, all that is kept has to be cleared by hand after each run, so little is kept.
const KEEP_RESIDENT_WITHOUT_PAGEMAP: usize = 128 << 10;
const TABLE_KEEP_RESIDENT: usize = 64 << 10;
const STACK_KEEP_RESIDENT: usize = 32 << 10;

/// Where runs get their memory from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Allocation {
    /// A pool of slots, reserved once: the fast way.
    Pool { slots: u32, pagemap_scan: bool },
    /// Memory is mapped for each run and unmapped after it, because the pool could not be had.
    OnDemand { reason: String },
}

/// Builds the engine, with a pool if the address space has room for one.
pub(super) fn build(config: &SandboxConfig) -> anyhow::Result<(Engine, Allocation)> {
    let pagemap_scan = PoolingAllocationConfig::is_pagemap_scan_available();
    let mut pooled = common_of(config);
    pooled.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(config, pagemap_scan)));
    match Engine::new(&pooled) {
        Ok(engine) => Ok((engine, Allocation::Pool { slots: config.slots, pagemap_scan })),
        Err(error) => {
            let reason = format!("{error:#}");
            tracing::warn!(
                slots = config.slots,
                %reason,
                "no room for a pool of instances; each run maps its own memory, which is several times slower. \
                 Lift the limit on address space (ulimit -v), or ask for fewer slots"
            );
            let engine = Engine::new(&on_demand(common_of(config), config.memory_bytes))
                .map_err(anyhow::Error::from)
                .context("building the wasm engine")?;
            Ok((engine, Allocation::OnDemand { reason }))
        }
    }
}

/// An engine that compiles for those of `build` and runs nothing: without a pool, which has no part in the code.
pub(super) fn for_compiling(memory_bytes: u64, is_on_demand: bool) -> anyhow::Result<Engine> {
    let config = if is_on_demand { on_demand(common(), memory_bytes) } else { common() };
    Engine::new(&config).map_err(anyhow::Error::from).context("building the compiler's engine")
}

fn common() -> Config {
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        .epoch_interruption(true)
        .consume_fuel(true)
        // Guests in Rust, C, Python and JavaScript need none of these.
        .wasm_gc(false)
        .wasm_function_references(false)
        .wasm_exceptions(false)
        .gc_support(false)
        .wasm_threads(false)
        .shared_memory(false)
        .wasm_memory64(false)
        // Also switches off the component model's async features; with it on, a run costs 5 us more.
        .concurrency_support(false)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(ASYNC_STACK_BYTES)
        .wasm_backtrace_details(WasmBacktraceDetails::Enable)
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES))
        // Only native debuggers would use it, and some platforms load and unload modules in quadratic time with it.
        .native_unwind_info(false);
    config
}

fn common_of(sandbox: &SandboxConfig) -> Config {
    let mut config = common();
    if sandbox.profiling {
        // Looking up places in the source takes a thousand times longer than a look at the stack.
        config.wasm_backtrace_details(WasmBacktraceDetails::Disable);
        config.wasm_backtrace_max_frames(NonZeroUsize::new(PROFILED_FRAMES));
    }
    config
}

fn pool(config: &SandboxConfig, pagemap_scan: bool) -> PoolingAllocationConfig {
    let slots = config.slots;
    let keep_resident = if pagemap_scan { KEEP_RESIDENT_WITH_PAGEMAP } else { KEEP_RESIDENT_WITHOUT_PAGEMAP };
    let mut pool = PoolingAllocationConfig::new();
    // Every total is slots times what one run may have, so that no run can fail for what another took.
    pool.total_component_instances(slots)
        .total_stacks(slots)
        .total_core_instances(slots * CORE_INSTANCES_PER_RUN)
        .total_memories(slots * MEMORIES_PER_RUN)
        .total_tables(slots * TABLES_PER_RUN)
        .max_core_instances_per_component(CORE_INSTANCES_PER_RUN)
        .max_memories_per_component(MEMORIES_PER_RUN)
        .max_memories_per_module(MEMORIES_PER_RUN)
        .max_tables_per_component(TABLES_PER_RUN)
        .max_tables_per_module(TABLES_PER_RUN)
        .max_memory_size(usize::try_from(config.memory_bytes).unwrap_or(usize::MAX))
        .table_elements(TABLE_ELEMENTS)
        .max_core_instance_size(CORE_INSTANCE_BYTES)
        .max_component_instance_size(COMPONENT_INSTANCE_BYTES)
        .linear_memory_keep_resident(keep_resident)
        .table_keep_resident(TABLE_KEEP_RESIDENT)
        .async_stack_keep_resident(STACK_KEEP_RESIDENT)
        .pagemap_scan(if pagemap_scan { Enabled::Auto } else { Enabled::No });
    pool
}

/// Where a pool has no room, 4 GiB for each memory have none either: reserve what a run may use, and check bounds in code.
fn on_demand(mut on_demand: Config, memory_bytes: u64) -> Config {
    on_demand
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_reservation(memory_bytes)
        .memory_guard_size(64 << 10);
    on_demand
}

/// Advances the engine's epoch while guests run. It is a thread of its own: a task of the executor that the guests
/// occupy would stand still with it. It holds the engine weakly and ends with it, or when dropped, which joins it.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    running: AtomicUsize,
    asleep: AtomicBool,
    ended: AtomicBool,
}

/// Keeps the ticker awake for as long as a run lasts.
pub(super) struct Awake<'a>(&'a Shared);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, SeqCst);
    }
}

impl Ticker {
    pub fn start(engine: &Engine) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            running: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let engine = engine.weak();
        let ticks = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("epoch-ticker".into())
            .spawn(move || {
                let mut idle = 0;
                while !ticks.ended.load(SeqCst) {
                    let Some(engine) = engine.upgrade() else { return };
                    engine.increment_epoch();
                    drop(engine);
                    idle = if ticks.running.load(SeqCst) == 0 { idle + 1 } else { 0 };
                    if idle < IDLE_TICKS {
                        thread::park_timeout(TICK);
                        continue;
                    }
                    // `awake` counts a run before it looks whether we sleep, and we say that we sleep before we look
                    // for runs once more: one of the two sees the other.
                    ticks.asleep.store(true, SeqCst);
                    while ticks.running.load(SeqCst) == 0 && !ticks.ended.load(SeqCst) {
                        thread::park();
                    }
                    ticks.asleep.store(false, SeqCst);
                    idle = 0;
                }
            })
            .context("starting the epoch ticker's thread")?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// To be held by each run.
    pub fn awake(&self) -> Awake<'_> {
        self.shared.running.fetch_add(1, SeqCst);
        if self.shared.asleep.load(SeqCst) {
            self.unpark();
        }
        Awake(&self.shared)
    }

    fn unpark(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.ended.store(true, SeqCst);
        self.unpark();
        if let Some(thread) = self.thread.take() {
            // The ticker's loop cannot panic, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}
