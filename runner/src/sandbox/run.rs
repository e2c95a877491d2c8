//! One run of a module: a store of its own, instantiated, called once and dropped. Two things end a guest that does not
//! end by itself. One that computes meets the epoch's callback at the next tick. One that waits in a host call is not
//! computing, so it is dropped from outside, by a stop or by a timer a little behind the deadline.

use std::borrow::Cow;
use std::future::{pending, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Store, UpdateDeadline};
use wasmtime_wasi::I32Exit;

use super::control::RunControl;
use super::failure::{self, Facts, Interrupt};
use super::fixed::VirtualClock;
use super::host::bindings::leasehold::job::types;
use super::module::{Entry, Prepared};
use super::profiler::{self, Profile, Profiler};
use super::state::{HANDLES, Setting, State, Time, to_usize};
use super::{Sandbox, engine};
use crate::grants::Grants;
use crate::job::{Deterministic, JobId, Limits, ModuleKind};
use crate::outcome::{Failure, Outcome, Run, Stop, Usage};
use crate::secrets::Secrets;

/// How far behind the deadline the timer waits, so that a computing guest meets the epoch first and gets a backtrace.
const DEADLINE_GRACE: Duration = Duration::from_millis(5);
/// What a guest may pass to the host in one call, in bytes, since the host copies it. A result may always be as large as
/// its limit.
const HOSTCALL_BYTES: usize = 16 << 20;
/// Room beside the result for the rest of what a handler returns, in bytes.
const RETURN_BYTES: usize = 64 << 10;
/// Stands in for a deadline beyond what the clock can count.
const FAR_AWAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What a run is told about its job.
#[derive(Debug, Clone, Copy)]
pub struct JobInput<'a> {
    pub id: JobId,
    pub tenant: &'a str,
    pub module: &'a str,
    pub queue: &'a str,
    /// Counted from 1, this run included.
    pub attempt: u32,
    pub max_attempts: u32,
    pub payload: &'a [u8],
    /// None: the clock and the random numbers of the machine.
    pub deterministic: Option<Deterministic>,
    /// What its module was granted.
    pub grants: &'a Arc<Grants>,
    /// The values of the secrets that it was granted.
    pub secrets: &'a Arc<Secrets>,
}

/// What a run has that no worker's has.
#[derive(Default)]
pub(super) struct Extras<'a> {
    /// A program's arguments; its streams are then those of this process.
    pub args: Option<&'a [String]>,
    pub profiler: Option<Profiler>,
}

/// How the guest's part of a run came to its end.
enum End {
    Returned(wasmtime::Result<Returned>),
    Panicked(Outcome),
    Stopped(Stop),
    TimedOut,
}

enum Returned {
    Result(Vec<u8>),
    Failure(types::Failure),
    Exit(i32),
}

impl Sandbox {
    /// Runs a job once. What the guest does wrong is in the answer; there is no error. `usage.cpu` is what the thread
    /// clock counted while this future was polled: making the store, the guest, its host calls and the clean-up.
    ///
    /// Must be polled by a tokio runtime with timers. Dropping the future ends the run; the guest is gone with it.
    pub async fn run(&self, module: &Prepared, job: JobInput<'_>, limits: &Limits, control: &RunControl) -> Run {
        self.run_with(module, job, limits, control, &Extras::default()).await.0
    }

    /// The same, and what its fuel went into. For a sandbox that was made for it (`SandboxConfig::profiling`).
    pub async fn run_profiled(
        &self,
        module: &Prepared,
        job: JobInput<'_>,
        limits: &Limits,
        control: &RunControl,
    ) -> (Run, Profile) {
        let profiler = Profiler::new(limits.fuel);
        let extras = Extras { profiler: Some(profiler.clone()), ..Extras::default() };
        let (run, _) = self.run_with(module, job, limits, control, &extras).await;
        (run, profiler.finish())
    }

    /// Answers a program's exit code too, where it came to that.
    pub(super) async fn run_with(
        &self,
        module: &Prepared,
        job: JobInput<'_>,
        limits: &Limits,
        control: &RunControl,
        extras: &Extras<'_>,
    ) -> (Run, Option<i32>) {
        let mut cpu = Duration::ZERO;
        let mut unmetered = pin!(self.run_unmetered(module, job, limits, control, extras));
        let (mut run, exit_code) = poll_fn(|context| {
            let start = thread_cpu();
            let polled = unmetered.as_mut().poll(context);
            cpu += thread_cpu().saturating_sub(start);
            if let (Some(profiler), true) = (&extras.profiler, polled.is_pending()) {
                profiler.look();
                self.engine().increment_epoch();
            }
            polled
        })
        .await;
        run.usage.cpu = cpu;
        (run, exit_code)
    }

    async fn run_unmetered(
        &self,
        module: &Prepared,
        job: JobInput<'_>,
        limits: &Limits,
        control: &RunControl,
        extras: &Extras<'_>,
    ) -> (Run, Option<i32>) {
        let started = Instant::now();
        if let Some(stop) = control.stopped() {
            return (Run::unrun(Outcome::Stopped(stop)), None);
        }
        if module.kind() == ModuleKind::Component && job.payload.len() as u64 > limits.memory_bytes {
            return (Run::unrun(failure::payload_too_large(job.payload.len(), limits)), None);
        }
        let deadline = started.checked_add(limits.timeout).unwrap_or(started + FAR_AWAY);
        let hostcall_bytes = hostcall_bytes(module.kind(), limits);
        let _awake = self.ticker().awake();
        let mut store = self.store(module.kind(), job, limits, control, deadline, extras);
        let clock = store.data().virtual_clock().cloned();
        let mut instantiated = false;
        let end = {
            // A panic in a host function unwinds through the guest's fiber to here. The store that it passed through is
            // only read for its counters and then dropped.
            let guest = AssertUnwindSafe(call(&mut store, module, job, limits, &mut instantiated)).catch_unwind();
            tokio::select! {
                // In this order, and the guest first: most runs end in the first poll and never set a timer.
                biased;
                ended = guest => match ended {
                    Ok(returned) => End::Returned(returned),
                    Err(panic) => End::Panicked(failure::panicked(&*panic)),
                },
                stop = control.wait_for_stop() => End::Stopped(stop),
                () = over(clock.as_ref()) => End::TimedOut,
                () = tokio::time::sleep_until((deadline + DEADLINE_GRACE).into()) => End::TimedOut,
            }
        };
        let elapsed = started.elapsed().max(clock.map_or(Duration::ZERO, |clock| clock.elapsed()));
        let log = store.data().log.take();
        let stdout = store.data().stdout.as_ref();
        let facts = Facts { kind: module.kind(), limits, elapsed, instantiated, hostcall_bytes, log: &log, stdout };
        let exit_code = match &end {
            End::Returned(Ok(Returned::Exit(code))) => Some(*code),
            End::Returned(Err(error)) => error.downcast_ref::<I32Exit>().map(|exit| exit.0),
            End::Returned(Ok(_)) | End::Panicked(_) | End::Stopped(_) | End::TimedOut => None,
        };
        let outcome = match end {
            End::Returned(Ok(Returned::Result(result))) if result.len() as u64 > limits.result_bytes => {
                failure::result_too_large(result.len() as u64, &facts)
            }
            End::Returned(Ok(Returned::Result(result))) => Outcome::Done { result },
            End::Returned(Ok(Returned::Failure(answer))) => failure::returned(answer, job.secrets),
            End::Returned(Ok(Returned::Exit(code))) => failure::exited(code, &facts),
            End::Returned(Err(error)) => failure::outcome_of(&error, &facts),
            End::Panicked(outcome) => outcome,
            End::Stopped(stop) => Outcome::Stopped(stop),
            End::TimedOut => failure::timed_out(&facts),
        };
        let outcome = redacted(outcome, job.secrets);
        let usage = Usage {
            fuel: limits.fuel.saturating_sub(store.get_fuel().unwrap_or(0)),
            wall: elapsed,
            cpu: Duration::ZERO,
            memory_peak_bytes: store.data().limiter.peak_bytes(),
            result_bytes: match &outcome {
                Outcome::Done { result } => result.len() as u64,
                Outcome::Failed(_) | Outcome::Snoozed { .. } | Outcome::Stopped(_) => 0,
            },
        };
        (Run { outcome, usage, log, follow_ups: store.into_data().follow_ups.take() }, exit_code)
    }

    fn store(
        &self,
        kind: ModuleKind,
        job: JobInput<'_>,
        limits: &Limits,
        control: &RunControl,
        deadline: Instant,
        extras: &Extras<'_>,
    ) -> Store<State> {
        let profiler = extras.profiler.clone();
        let deterministic = job.deterministic;
        let time = match deterministic {
            None => Time::Real(self.timer().alarm().clone()),
            Some(Deterministic { starts_at, .. }) => Time::Virtual(VirtualClock::new(starts_at, limits.timeout)),
        };
        let (control, grants, secrets) = (control.clone(), Arc::clone(job.grants), Arc::clone(job.secrets));
        let state = State::new(Setting {
            kind,
            stdin: job.payload,
            limits,
            control,
            time,
            deterministic,
            args: extras.args,
            grants,
            secrets,
            deadline,
        });
        let mut store = Store::new(self.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(hostcall_bytes(kind, limits));
        store.set_max_component_handles(HANDLES);
        store.set_fuel(limits.fuel).expect("the engine counts fuel");
        if profiler.is_some() {
            store.fuel_async_yield_interval(Some(profiler::EVERY_FUEL)).expect("the engine counts fuel");
        }
        // Two ticks at first, so that a run of less than one never yields: coming back costs it the length of the queue,
        // which with 16 runs of 20 us each on two threads was 1.4 ms for every hundredth.
        // A profiled run must meet the callback each time that it is asked to, and from the first on.
        store.set_epoch_deadline(if extras.profiler.is_some() { 1 } else { 2 });
        store.epoch_deadline_callback(move |store| {
            if let Some(stop) = store.data().control.stopped() {
                return Err(Interrupt::Stopped(stop).into());
            }
            if Instant::now() >= deadline {
                return Err(Interrupt::Deadline.into());
            }
            if let Some(profiler) = &profiler {
                profiler.meet(&store);
                // It yields by fuel already, and a yield by time would be taken for one.
                return Ok(UpdateDeadline::Continue(1));
            }
            // wasmtime's own Yield wakes the task at once, into tokio's fast lane: with four spinning guests on two
            // threads a timer of 5 ms then took 53 ms. tokio's yield lets timers and sockets go first: 7 ms.
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        store
    }
}

/// The outcome without the values of secrets.
fn redacted(outcome: Outcome, secrets: &Secrets) -> Outcome {
    match outcome {
        Outcome::Done { result } => match secrets.redact(&result) {
            Cow::Borrowed(_) => Outcome::Done { result },
            Cow::Owned(result) => Outcome::Done { result },
        },
        Outcome::Failed(failure) => {
            Outcome::Failed(Failure { message: secrets.redact_text(failure.message), ..failure })
        }
        Outcome::Snoozed { .. } | Outcome::Stopped(_) => outcome,
    }
}

/// Resolves when the run's time is over by a clock of its own.
async fn over(clock: Option<&VirtualClock>) {
    match clock {
        Some(clock) => clock.over().await,
        None => pending().await,
    }
}

async fn call(
    store: &mut Store<State>,
    module: &Prepared,
    job: JobInput<'_>,
    limits: &Limits,
    instantiated: &mut bool,
) -> wasmtime::Result<Returned> {
    match module.entry() {
        Entry::Handler(pre) => {
            let handler = pre.instantiate_async(&mut *store).await?;
            *instantiated = true;
            let about = types::Job {
                id: job.id.0.cast_unsigned(),
                tenant: job.tenant.to_owned(),
                module: job.module.to_owned(),
                queue: job.queue.to_owned(),
                attempt: job.attempt,
                max_attempts: job.max_attempts,
                timeout_ms: u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX),
            };
            match handler.leasehold_job_handler().call_run(&mut *store, &about, job.payload).await? {
                Ok(result) => Ok(Returned::Result(result)),
                Err(failure) => Ok(Returned::Failure(failure)),
            }
        }
        Entry::Program(pre) => {
            let program = pre.instantiate_async(&mut *store).await?;
            *instantiated = true;
            let start = program.get_typed_func::<(), ()>(&mut *store, "_start")?;
            start.call_async(&mut *store, ()).await?;
            Ok(Returned::Exit(0))
        }
        Entry::Command(pre) => {
            let command = pre.instantiate_async(&mut *store).await?;
            *instantiated = true;
            let ended = command.wasi_cli_run().call_run(&mut *store).await?;
            Ok(Returned::Exit(if ended.is_ok() { 0 } else { 1 }))
        }
    }
}

fn hostcall_bytes(kind: ModuleKind, limits: &Limits) -> usize {
    let result = to_usize(limits.result_bytes).saturating_add(RETURN_BYTES);
    match kind {
        ModuleKind::Component => HOSTCALL_BYTES.max(result),
        // A program's writes are copied in pieces of 4 KiB, whatever it asks for; a bound here would only turn a result
        // that is too large into an error of its write.
        ModuleKind::Command => to_usize(limits.memory_bytes).max(HOSTCALL_BYTES).max(result),
    }
}

/// The CPU time of this thread. Unlike the wall clock it leaves out what the thread waited for a core: on a machine with
/// ten times more threads than cores, a run took 209 ms and 45 ms of CPU time, and tenants are charged by it. Reading it
/// takes 0.5 us, so 1 us of the 7.5 us that a run of nothing takes; the wall clock would take 0.02 us.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

// Else the timer would win against the epoch.
const _: () = assert!(DEADLINE_GRACE.as_millis() > engine::TICK.as_millis());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::FailureKind;
    use crate::sandbox::{PoolUse, SandboxConfig};

    fn job() -> JobInput<'static> {
        JobInput {
            id: JobId(1),
            tenant: "acme",
            module: "guest",
            queue: "default",
            attempt: 1,
            max_attempts: 1,
            payload: b"",
            deterministic: None,
            grants: Grants::usual(),
            secrets: Secrets::none(),
        }
    }

    /// A program whose host function panics: at once, or after it has waited.
    fn panicking(sandbox: &Sandbox, after_waiting: bool) -> Prepared {
        let text = r#"(module (import "host" "panic" (func $panic)) (func (export "_start") (call $panic)))"#;
        let module =
            wasmtime::Module::new(sandbox.engine(), wat::parse_str(text).expect("it parses")).expect("it compiles");
        let mut linker = wasmtime::Linker::<State>::new(sandbox.engine());
        linker
            .func_wrap_async("host", "panic", move |_, (): ()| {
                Box::new(async move {
                    if after_waiting {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    if std::hint::black_box(true) {
                        panic!("a bug of ours");
                    }
                })
            })
            .expect("it links");
        let linked = linker.instantiate_pre(&module).expect("it links");
        Prepared::new(ModuleKind::Command, Entry::Program(linked), 0)
    }

    #[tokio::test]
    async fn a_panic_of_the_host_ends_its_run_and_nothing_else() {
        let sandbox = Sandbox::new(&SandboxConfig { slots: 1, memory_bytes: 1 << 20, ..SandboxConfig::default() })
            .expect("the sandbox starts");
        for after_waiting in [false, true] {
            let module = panicking(&sandbox, after_waiting);
            let run = sandbox.run(&module, job(), &Limits::default(), &RunControl::new()).await;
            let Outcome::Failed(failure) = run.outcome else { panic!("{:?}", run.outcome) };
            assert_eq!(failure.kind, FailureKind::Host);
            assert_eq!(failure.message, "the worker panicked during the run: a bug of ours");
            // The only slot is free again.
            let empty = PoolUse { memories: 0, tables: 0, stacks: 0, core_instances: 0, component_instances: 0 };
            assert!(sandbox.pool_use().is_none_or(|pool| pool == empty), "{:?}", sandbox.pool_use());
        }
    }
}
