//! The clocks that guests wait on, with the sandbox's own timer behind them instead of tokio's: all of `wasi:clocks` of
//! WASI 0.2, and the plain sleep of WASI 0.1, a poll of one clock and nothing else. What else a program may poll is left
//! to wasmtime's own and may come up to a millisecond later. A run with a virtual clock waits for nothing (`fixed`).

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

use super::fixed::VirtualClock;
use super::state::{State, Time};
use super::timer::Alarm;

/// Replaces WASI 0.2's monotonic clock.
pub(super) fn add_to_component_linker(linker: &mut component::Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    monotonic_clock::add_to_linker::<State, Clock>(linker, |state| {
        let (wasi, time) = state.wasi_and_time();
        ClockView { wasi: wasi.clocks(), time }
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
                let (wasi, time) = state.wasi_and_time();
                match time {
                    Time::Real(alarm) if count == 1 => {
                        if let Some(end) = begin_sleep(wasi, &mut memory, subscriptions, events, answered) {
                            alarm.sleep_until(end).await;
                            return Ok(Errno::Success as i32);
                        }
                    }
                    Time::Real(_) => {}
                    Time::Virtual(clock) => {
                        if let Some(end) = begin_virtual(clock, &mut memory, subscriptions, events, count, answered) {
                            clock.sleep_until(end).await;
                            return Ok(Errno::Success as i32);
                        }
                    }
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
    memory.write(pointer(event), elapsed(userdata)).ok()?;
    memory.write(pointer(answered), 1_u32).ok()?;
    Some(end)
}

/// How many clocks a program may wait for at once by a virtual clock. More of them wait by the real one.
const VIRTUAL_SUBSCRIPTIONS: i32 = 64;

/// The same by a virtual clock, for any clocks and nothing else: a program's other subscriptions are always ready.
fn begin_virtual(
    clock: &VirtualClock,
    memory: &mut GuestMemory<'_>,
    subscriptions: i32,
    events: i32,
    count: i32,
    answered: i32,
) -> Option<u64> {
    if !(1..=VIRTUAL_SUBSCRIPTIONS).contains(&count) {
        return None;
    }
    let mut ends = Vec::new();
    for subscription in pointer::<Subscription>(subscriptions).as_array(count.cast_unsigned()).iter() {
        let Subscription { userdata, u } = memory.read(subscription.ok()?).ok()?;
        let SubscriptionU::Clock(wait) = u else { return None };
        let is_absolute = wait.flags.contains(Subclockflags::SUBSCRIPTION_CLOCK_ABSTIME);
        let end = match (wait.id, is_absolute) {
            (Clockid::Monotonic | Clockid::Realtime, false) => clock.end_of(wait.timeout),
            (Clockid::Monotonic, true) => wait.timeout,
            (Clockid::Realtime, true) => clock.end_at(wait.timeout),
            (Clockid::ProcessCputimeId | Clockid::ThreadCputimeId, _) => return None,
        };
        ends.push((end, userdata));
    }
    let end = ends.iter().map(|(end, _)| *end).min()?.max(clock.end_of(0));
    let due = ends.iter().filter(|(ends, _)| *ends <= end);
    let mut happened = 0_u32;
    for ((_, userdata), event) in due.zip(pointer::<Event>(events).as_array(count.cast_unsigned()).iter()) {
        memory.write(event.ok()?, elapsed(*userdata)).ok()?;
        happened += 1;
    }
    memory.write(pointer(answered), happened).ok()?;
    Some(end)
}

fn elapsed(userdata: u64) -> Event {
    let fd_readwrite = EventFdReadwrite { nbytes: 0, flags: Eventrwflags::empty() };
    Event { userdata, error: Errno::Success, type_: Eventtype::Clock, fd_readwrite }
}

fn pointer<T>(at: i32) -> GuestPtr<T> {
    GuestPtr::new(at.cast_unsigned())
}

struct Clock;

struct ClockView<'a> {
    wasi: WasiClocksCtxView<'a>,
    time: &'a Time,
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
        let wait = match self.time {
            _ if nanos == 0 => Wait::Over { has_yielded: false },
            Time::Virtual(clock) => Wait::Virtual { end: clock.end_of(nanos), clock: clock.clone() },
            Time::Real(alarm) => match Instant::now().checked_add(Duration::from_nanos(nanos)) {
                Some(end) => Wait::Until { end, alarm: alarm.clone() },
                None => Wait::Forever,
            },
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
    Virtual {
        end: u64,
        clock: VirtualClock,
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
            Self::Virtual { end, clock } => clock.sleep_until(*end).await,
            Self::Forever => pending().await,
        }
    }
}
