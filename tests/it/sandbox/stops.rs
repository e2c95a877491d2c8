//! What ends a guest that does not end by itself: its deadline, and its worker.

use std::time::{Duration, Instant};

use leasehold::job::Limits;
use leasehold::outcome::{FailureKind, Outcome, Run, Stop};
use leasehold::sandbox::{Prepared, RunControl};
use leasehold_tests::guests::{LIMITS, SANDBOX, core, failure, job, prepare};

/// Guests that compute for ever, that wait for ever, that do either by way of the host, and that never get to start.
const ENDLESS: [&str; 7] =
    ["spin", "spin_in_host_calls", "log_forever", "fill_forever", "sleep", "poll_forever", "spin_at_start"];
/// How late an end may come on a busy machine. The sandbox aims at a tick of 1 ms.
const LATE: Duration = Duration::from_secs(2);

/// Runs a module on a runtime of its own, as a worker does, so that the test's own task is not held up by the guest.
fn start(module: Prepared, limits: Limits, control: RunControl) -> std::thread::JoinHandle<(Run, Duration)> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let started = Instant::now();
        let run = runtime.block_on(SANDBOX.run(&module, job(b""), &limits, &control));
        (run, started.elapsed())
    })
}

fn join(run: std::thread::JoinHandle<(Run, Duration)>) -> (Run, Duration) {
    run.join().expect("the run does not panic")
}

#[test]
fn the_deadline_ends_every_guest() {
    for guest in ENDLESS {
        let limits = Limits { timeout: Duration::from_millis(50), ..LIMITS };
        let (run, took) = join(start(prepare(&core(guest)), limits, RunControl::new()));
        assert_eq!(failure(&run).kind, FailureKind::Timeout, "{guest}: {:?}", run.outcome);
        assert!(failure(&run).message.ends_with("the limit is 50 ms; raise --timeout"), "{}", failure(&run).message);
        assert!(took >= limits.timeout && took < limits.timeout + LATE, "{guest} took {took:?}");
    }
}

#[test]
fn a_deadline_met_while_computing_has_a_backtrace() {
    let limits = Limits { timeout: Duration::from_millis(20), ..LIMITS };
    let (run, _) = join(start(prepare(&core("spin")), limits, RunControl::new()));
    assert!(failure(&run).backtrace.is_some());
}

#[test]
fn each_stop_ends_every_guest_under_its_own_name() {
    for guest in ENDLESS {
        let module = prepare(&core(guest));
        for stop in [Stop::Cancelled, Stop::LeaseLost, Stop::Shutdown] {
            let control = RunControl::new();
            let run = start(module.clone(), LIMITS, control.clone());
            std::thread::sleep(Duration::from_millis(10));
            let asked = Instant::now();
            control.stop(stop);
            let (run, _) = join(run);
            assert_eq!(run.outcome, Outcome::Stopped(stop), "{guest}");
            assert!(asked.elapsed() < LATE, "{guest} took {:?} to stop", asked.elapsed());
        }
    }
}

#[test]
fn a_stop_from_before_the_run_ends_it_too() {
    for guest in ENDLESS {
        let control = RunControl::new();
        control.stop(Stop::Shutdown);
        let (run, _) = join(start(prepare(&core(guest)), LIMITS, control));
        assert_eq!(run.outcome, Outcome::Stopped(Stop::Shutdown), "{guest}");
    }
}

#[test]
fn the_end_of_the_lease_ends_every_guest() {
    for guest in ENDLESS {
        let control = RunControl::new();
        control.stop_at(Instant::now() + Duration::from_millis(30));
        let (run, took) = join(start(prepare(&core(guest)), LIMITS, control));
        assert_eq!(run.outcome, Outcome::Stopped(Stop::LeaseLost), "{guest}");
        assert!(took < LATE, "{guest} took {took:?}");
    }
}

#[test]
fn a_heartbeat_moves_the_end_of_the_lease_while_the_guest_runs() {
    for guest in ["spin", "sleep"] {
        let control = RunControl::new();
        control.stop_at(Instant::now() + Duration::from_millis(40));
        let limits = Limits { timeout: Duration::from_millis(150), ..LIMITS };
        let module = prepare(&core(guest));
        control.stop_at(Instant::now() + Duration::from_millis(40));
        let run = start(module, limits, control.clone());
        control.stop_at(Instant::now() + Duration::from_secs(60));
        let (run, took) = join(run);
        assert_eq!(failure(&run).kind, FailureKind::Timeout, "{guest}: {:?}", run.outcome);
        assert!(took >= limits.timeout, "{guest} took {took:?}");
    }
}

#[test]
fn a_guest_that_looks_can_cancel_in_its_own_way() {
    let control = RunControl::new();
    let run = start(prepare(&core("wait_for_cancel")), LIMITS, control.clone());
    std::thread::sleep(Duration::from_millis(5));
    control.request_cancel();
    let (run, _) = join(run);
    assert_eq!(failure(&run).kind, FailureKind::GuestDead);
    assert_eq!(failure(&run).message, "cancelled politely");
}

#[test]
fn spinning_guests_leave_timers_their_turn() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let module = prepare(&core("spin"));
    let control = RunControl::new();
    let limits = Limits { timeout: Duration::from_secs(60), fuel: Limits::MAX_FUEL, ..LIMITS };
    runtime.block_on(async {
        let mut spinning = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let (module, control) = (module.clone(), control.clone());
            spinning.spawn(async move { SANDBOX.run(&module, job(b""), &limits, &control).await });
        }
        // On the guests' own runtime, whose two threads they occupy: without yielding this would never end.
        let mut timers = tokio::task::JoinSet::new();
        timers.spawn(async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let started = Instant::now();
        timers.join_next().await.expect("one timer").expect("no panic");
        let took = started.elapsed();
        assert!(took < Duration::from_secs(10), "20 sleeps of 5 ms took {took:?}");
        control.stop(Stop::Shutdown);
        while let Some(run) = spinning.join_next().await {
            assert_eq!(run.expect("no panic").outcome, Outcome::Stopped(Stop::Shutdown));
        }
    });
}

#[test]
fn cpu_time_leaves_out_what_a_guest_slept() {
    let limits = Limits { timeout: Duration::from_millis(100), ..LIMITS };
    let (slept, _) = join(start(prepare(&core("sleep")), limits, RunControl::new()));
    assert!(slept.usage.wall >= limits.timeout, "{:?}", slept.usage);
    assert!(slept.usage.cpu < limits.timeout / 2, "{:?}", slept.usage);
    let (spun, _) = join(start(prepare(&core("spin")), limits, RunControl::new()));
    assert!(spun.usage.cpu > Duration::from_millis(5), "{:?}", spun.usage);
}
