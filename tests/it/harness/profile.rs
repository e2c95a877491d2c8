//! `leasehold run --profile`: where a run's fuel goes.

use leasehold::harness::{Harness, Job, flame_graph};
use leasehold::outcome::Outcome;
use leasehold::sandbox::{Profile, RunControl, SandboxConfig};
use leasehold_tests::binary::Files;
use leasehold_tests::guests::{core, core_from, leasehold};

/// Works in one function ten times as long as in the other, and waits in between.
const WORKS: &str = r#"(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (func $work (param $rounds i32)
      (loop $again
        (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1)))
        (br_if $again (local.get $rounds))))
    (func $hot (call $work (i32.const 100000)))
    (func $cold (call $work (i32.const 10000)))
    (func $nap
      (i32.store (i32.const 2064) (i32.const 1))
      (i64.store (i32.const 2072) (i64.const 3000000))
      (drop (call $poll (i32.const 2048) (i32.const 2112) (i32.const 1) (i32.const 2176))))
    (func $run (param $at i32) (param $len i32) (result i32)
      (call $hot) (call $nap) (call $cold) (call $nap) (call $hot)
      (call $ok (local.get $at) (local.get $len)))"#;

async fn profile(module: &[u8], job: &Job) -> (leasehold::harness::Tried, Profile) {
    let config = SandboxConfig { slots: 1, memory_bytes: 64 << 20, profiling: true, ..SandboxConfig::default() };
    let harness = Harness::from_bytes("guest", module, &config).expect("it is a module");
    harness.run_profiled(job, &RunControl::new()).await
}

fn fuel_of(profile: &Profile, function: &str) -> u64 {
    profile.stacks.iter().filter(|(stack, _)| stack.split(';').any(|name| name == function)).map(|(_, fuel)| fuel).sum()
}

#[tokio::test]
async fn fuel_is_charged_to_the_functions_that_burn_it_and_the_same_each_time() {
    let guest = core_from(WORKS);
    let (tried, first) = profile(&guest, &Job::default()).await;
    assert!(matches!(tried.run.outcome, Outcome::Done { .. }), "{}", tried.in_short());
    let (hot, cold, all) = (fuel_of(&first, "hot"), fuel_of(&first, "cold"), tried.run.usage.fuel);
    assert!(hot > cold * 15 && hot < cold * 25, "hot {hot}, cold {cold}");
    assert!(hot + cold <= all && hot + cold > all * 9 / 10, "of {all} fuel {hot} and {cold} are accounted for");
    assert!(first.stacks.iter().any(|(stack, _)| stack.ends_with("run;hot;work")), "{:?}", first.stacks);
    let (_, second) = profile(&guest, &Job::default()).await;
    assert_eq!(first, second, "no clock decides where samples are taken");
    let svg = flame_graph("guest", &first).expect("it is drawn");
    assert!(svg.contains("<svg") && svg.contains("hot") && svg.contains("Fuel of guest"), "{svg}");
}

#[tokio::test]
async fn a_long_run_has_no_more_samples_than_can_be_drawn_and_its_limits_hold() {
    let job = Job { limits: leasehold::job::Limits { fuel: 30_000_000, ..Default::default() }, ..Job::default() };
    let (tried, profile) = profile(&core("spin"), &job).await;
    assert_eq!(tried.failure().map(|failure| failure.kind.as_str()), Some("fuel"));
    assert!((4_096..=20_000).contains(&profile.samples), "{}", profile.samples);
    assert!(fuel_of(&profile, "run") > 25_000_000, "{:?}", profile.stacks);
}

#[test]
fn the_command_writes_a_picture_and_the_stacks() {
    let files = Files::new();
    let module = files.write("works.wasm", &core_from(WORKS));
    let output =
        leasehold().args(["run", &module, "--profile", &files.path("p.svg")]).output().expect("leasehold starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"{}"[..]), "{stderr}");
    assert!(stderr.contains(" samples: "), "{stderr}");
    let folded = std::fs::read_to_string(files.path("p.folded")).expect("it was written");
    assert!(folded.lines().any(|line| line.contains(";hot;work ")), "{folded}");
    assert!(std::fs::read_to_string(files.path("p.svg")).expect("it was written").contains("<svg"));
}
