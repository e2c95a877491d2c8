//! What a run's store holds: the guest's view of WASI (clocks, random numbers, its three streams and nothing else), the
//! limiter, the log and the handle that stops it. Made anew for each run and dropped with it.

use bytes::Bytes;
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::control::RunControl;
use super::fixed::{Seeded, VirtualClock};
use super::host::FollowUps;
use super::limiter::Limiter;
use super::program::Terminal;
use super::stdio::{LogBuffer, ResultBuffer, Stream};
use super::timer::Alarm;
use crate::job::{Deterministic, Limits, ModuleKind};

/// Handles (streams, pollables, errors) that a guest may hold at once. A busy one holds a few dozen; each costs the host
/// some hundred bytes.
pub(super) const HANDLES: usize = 4_096;
/// Random bytes that a guest may ask for in one call.
const RANDOM_BYTES: u64 = 1 << 20;

pub(super) struct State {
    wasi: WasiP1Ctx,
    pub limiter: Limiter,
    pub log: LogBuffer,
    pub control: RunControl,
    time: Time,
    /// stdout, where it is the result.
    pub stdout: Option<ResultBuffer>,
    pub follow_ups: FollowUps,
}

/// What guests wait with.
#[derive(Clone)]
pub(super) enum Time {
    Real(Alarm),
    Virtual(VirtualClock),
}

/// What a run's state is made of.
pub(super) struct Setting<'a> {
    pub kind: ModuleKind,
    pub stdin: &'a [u8],
    pub limits: &'a Limits,
    pub control: RunControl,
    pub time: Time,
    pub deterministic: Option<Deterministic>,
    /// A program's arguments, where its streams shall be those of this process.
    pub args: Option<&'a [String]>,
}

impl State {
    pub fn new(setting: Setting<'_>) -> Self {
        let Setting { kind, stdin, limits, control, time, deterministic, args } = setting;
        let log = LogBuffer::new(to_usize(limits.log_bytes));
        let mut wasi = WasiCtx::builder();
        wasi.stderr(Stream(log.clone())).allow_tcp(false).allow_udp(false).max_random_size(RANDOM_BYTES);
        if let Time::Virtual(clock) = &time {
            wasi.wall_clock(clock.clone()).monotonic_clock(clock.clone());
        }
        if let Some(Deterministic { seed, .. }) = deterministic {
            let mut seeds = Seeded::new(seed);
            let seed_of_maps = u128::from(seeds.next()) << 64 | u128::from(seeds.next());
            wasi.insecure_random_seed(seed_of_maps).insecure_random(Seeded::new(seeds.next())).secure_random(seeds);
        }
        let stdout = match (kind, args) {
            (ModuleKind::Component, _) => {
                wasi.stdout(Stream(log.clone()));
                None
            }
            (ModuleKind::Command, None) => {
                let stdout = ResultBuffer::new(to_usize(limits.result_bytes));
                wasi.stdin(MemoryInputPipe::new(Bytes::copy_from_slice(stdin))).stdout(Stream(stdout.clone()));
                Some(stdout)
            }
            (ModuleKind::Command, Some(args)) => {
                wasi.stdin(MemoryInputPipe::new(Bytes::copy_from_slice(stdin))).args(args);
                wasi.stdout(Stream(Terminal::Out)).stderr(Stream(Terminal::Err(log.clone())));
                None
            }
        };
        let mut wasi = wasi.build_p1();
        wasi.ctx().table.set_max_capacity(HANDLES);
        let (limiter, follow_ups) = (Limiter::new(limits.memory_bytes), FollowUps::new(limits.follow_ups));
        Self { wasi, limiter, log, control, time, stdout, follow_ups }
    }

    pub fn wasi_p1(&mut self) -> &mut WasiP1Ctx {
        &mut self.wasi
    }

    pub fn wasi_and_time(&mut self) -> (&mut WasiP1Ctx, &Time) {
        (&mut self.wasi, &self.time)
    }

    /// How long the run has taken by a clock of its own, if it has one.
    pub fn virtual_clock(&self) -> Option<&VirtualClock> {
        match &self.time {
            Time::Real(_) => None,
            Time::Virtual(clock) => Some(clock),
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

/// A limit in bytes as a size in memory; what does not fit there is no limit.
pub(super) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
