//! The clocks that guests wait on, with the sandbox's own timer behind them instead of tokio's: all of `wasi:clocks` of
//! WASI 0.2, and the plain sleep of WASI 0.1, a poll of one clock and nothing else. What else a program may poll is left
//! to wasmtime's own and may come up to a millisecond later.

use std::future::pending;
use std::time::{Duration, Instant};

use wasmtime::component::{self, HasData, Resource, ResourceTable};
use wasmtime::{AsContextMut, Caller, Extern, Linker, bail};
use wasmtime_wasi::clocks::{WasiClocksCtxView, WasiClocksView};
use wasmtime_wasi::p1::WasiP1Ctx;
use wasmtime_wasi::p1::types::{
    Clockid, Errno, Event, EventFdReadwrite, Eventrwflags, Eventtype, Subclockflags, Subscription, SubscriptionU,
};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self, WasiSnapshotPreview1};
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock;
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wiggle::{GuestMemory, GuestPtr};

use super::state::State;
use super::timer::Alarm;

/// Replaces WASI 0.2's monotonic clock.
pub(super) fn add_to_component_linker(linker: &mut component::Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    monotonic_clock::add_to_linker::<State, Clock>(linker, |state| {
        let (wasi, alarm) = state.wasi_and_alarm();
        ClockView { wasi: wasi.clocks(), alarm }
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Replaces WASI 0.1's `poll_oneoff`.
pub(super) fn add_to_program_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.func_wrap_async(
        "wasi_snapshot_preview1",
        "poll_oneoff",
        |mut caller: Caller<'_, State>, (subscriptions, events, count, answered): (i32, i32, i32, i32)| {
            Box::new(async move {
                let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
                    bail!("missing required memory export");
                };
                let fuel = caller.as_context_mut().hostcall_fuel();
                let (bytes, state) = memory.data_and_store_mut(&mut caller);
                let mut memory = GuestMemory::Unshared(bytes);
                let (wasi, alarm) = state.wasi_and_alarm();
                if count == 1
                    && let Some(end) = begin_sleep(wasi, &mut memory, subscriptions, events, answered)
                {
                    alarm.sleep_until(end).await;
                    return Ok(Errno::Success as i32);
                }
                wasi.set_hostcall_fuel(fuel);
                wasi_snapshot_preview1::poll_oneoff(wasi, &mut memory, subscriptions, events, count, answered).await
            })
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// When the sleep ends, if it is one that we can do and the guest's pointers are in order. The answer is written at once,
/// which a guest that sleeps until it is true cannot tell.
fn begin_sleep(
    wasi: &mut WasiP1Ctx,
    memory: &mut GuestMemory<'_>,
    subscription: i32,
    event: i32,
    answered: i32,
) -> Option<Instant> {
    let Subscription { userdata, u: SubscriptionU::Clock(clock) } = memory.read(pointer(subscription)).ok()? else {
        return None;
    };
    let is_absolute = clock.flags.contains(Subclockflags::SUBSCRIPTION_CLOCK_ABSTIME);
    let nanos = match (clock.id, is_absolute) {
        (Clockid::Monotonic | Clockid::Realtime, false) => clock.timeout,
        (Clockid::Monotonic, true) => {
            let now = monotonic_clock::Host::now(&mut wasi.clocks()).ok()?;
            clock.timeout.saturating_sub(now)
        }
        (Clockid::Realtime, true) | (Clockid::ProcessCputimeId | Clockid::ThreadCputimeId, _) => return None,
    };
    let end = Instant::now().checked_add(Duration::from_nanos(nanos)).filter(|_| nanos > 0)?;
    let fd_readwrite = EventFdReadwrite { nbytes: 0, flags: Eventrwflags::empty() };
    let happened = Event { userdata, error: Errno::Success, type_: Eventtype::Clock, fd_readwrite };
    memory.write(pointer(event), happened).ok()?;
    memory.write(pointer(answered), 1_u32).ok()?;
    Some(end)
}

fn pointer<T>(at: i32) -> GuestPtr<T> {
    GuestPtr::new(at.cast_unsigned())
}

struct Clock;

struct ClockView<'a> {
    wasi: WasiClocksCtxView<'a>,
    alarm: &'a Alarm,
}

impl HasData for Clock {
    type Data<'a> = ClockView<'a>;
}

impl monotonic_clock::Host for ClockView<'_> {
    fn now(&mut self) -> wasmtime::Result<monotonic_clock::Instant> {
        self.wasi.now()
    }

    fn resolution(&mut self) -> wasmtime::Result<monotonic_clock::Duration> {
        self.wasi.resolution()
    }

    fn subscribe_instant(&mut self, when: monotonic_clock::Instant) -> wasmtime::Result<Resource<DynPollable>> {
        let now = self.wasi.now()?;
        self.subscribe_duration(when.saturating_sub(now))
    }

    fn subscribe_duration(&mut self, nanos: monotonic_clock::Duration) -> wasmtime::Result<Resource<DynPollable>> {
        let wait = match Instant::now().checked_add(Duration::from_nanos(nanos)) {
            _ if nanos == 0 => Wait::Over { has_yielded: false },
            Some(end) => Wait::Until { end, alarm: self.alarm.clone() },
            None => Wait::Forever,
        };
        let table: &mut ResourceTable = self.wasi.table;
        let wait = table.push(wait)?;
        subscribe(table, wait)
    }
}

/// What a pollable of a clock waits for.
enum Wait {
    /// A guest that polls such a one in a loop must still let others have their turn.
    Over {
        has_yielded: bool,
    },
    Until {
        end: Instant,
        alarm: Alarm,
    },
    /// Beyond what the host's clock can count.
    Forever,
}

#[wasmtime_wasi::async_trait]
impl Pollable for Wait {
    async fn ready(&mut self) {
        match self {
            Self::Over { has_yielded: true } => {}
            Self::Over { has_yielded } => {
                *has_yielded = true;
                tokio::task::yield_now().await;
            }
            Self::Until { end, alarm } => alarm.sleep_until(*end).await,
            Self::Forever => pending().await,
        }
    }
}
