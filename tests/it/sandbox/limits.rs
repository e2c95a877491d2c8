//! Bounds on what a guest can use: memory, result, log, payload.

use std::time::Duration;

use leasehold::job::Limits;
use leasehold::outcome::{FailureKind, Outcome};
use leasehold::sandbox::{RunControl, Sandbox, SandboxConfig};
use leasehold_tests::guests::{LIMITS, SANDBOX, core, failure, job, prepare, result, run};

#[tokio::test]
async fn memory_that_grows_for_ever_ends_at_the_limit() {
    let grown = run(&core("grow_forever"), b"", &LIMITS).await;
    assert_eq!(failure(&grown).kind, FailureKind::Memory);
    // The component's own table has one element of 8 bytes, so the last page does not fit.
    assert_eq!(
        failure(&grown).message,
        format!("memory limit of {0} bytes exceeded: wanted {1} bytes; raise --memory", 4 << 20, (4 << 20) + 8)
    );
    assert_eq!(grown.usage.memory_peak_bytes, (4 << 20) - (64 << 10) + 8);
}

#[tokio::test]
async fn more_than_a_memory_can_have_is_a_memory_failure_too() {
    let grown = run(&core("grow_past_4_gib"), b"", &LIMITS).await;
    assert_eq!(failure(&grown).kind, FailureKind::Memory, "{:?}", grown.outcome);
    assert!(failure(&grown).message.contains("wanted 4295098376 bytes"), "{}", failure(&grown).message);
}

#[tokio::test]
async fn memories_count_together() {
    let module = core("two_memories");
    let alone = run(&module, b"", &Limits { memory_bytes: 8 << 20, ..LIMITS }).await;
    assert_eq!(result(&alone), b"");
    let together = run(&module, b"", &LIMITS).await;
    assert_eq!(failure(&together).kind, FailureKind::Memory, "{:?}", together.outcome);
}

#[tokio::test]
async fn tables_count_as_memory() {
    let module = core("grow_table");
    assert_eq!(result(&run(&module, b"", &LIMITS).await), b"");
    let tight = run(&module, b"", &Limits { memory_bytes: 128 << 10, ..LIMITS }).await;
    assert_eq!(failure(&tight).kind, FailureKind::Memory, "{:?}", tight.outcome);
}

#[tokio::test]
async fn a_module_that_starts_above_the_limit_is_a_memory_failure() {
    let tight = run(&core("echo"), b"", &Limits { memory_bytes: 64 << 10, ..LIMITS }).await;
    assert_eq!(failure(&tight).kind, FailureKind::Memory, "{:?}", tight.outcome);
}

#[tokio::test]
async fn a_payload_that_cannot_fit_is_refused_before_the_run() {
    let payload = vec![0; 5 << 20];
    let refused = run(&core("echo"), &payload, &LIMITS).await;
    assert_eq!(failure(&refused).kind, FailureKind::Memory);
    assert!(failure(&refused).message.contains("payload of 5242880 bytes"), "{}", failure(&refused).message);
    assert_eq!(refused.usage.fuel, 0);
}

#[tokio::test]
async fn a_payload_that_does_not_quite_fit_is_a_memory_failure_too() {
    let payload = vec![0; 4 << 20];
    let refused = run(&core("echo"), &payload, &LIMITS).await;
    assert_eq!(failure(&refused).kind, FailureKind::Memory, "{:?}", refused.outcome);
}

#[tokio::test]
async fn a_result_may_be_as_large_as_its_limit_and_no_larger() {
    let module = prepare(&core("result_of"));
    let of = async |bytes: u32| {
        let limits = Limits { memory_bytes: 64 << 20, ..LIMITS };
        SANDBOX.run(&module, job(&bytes.to_le_bytes()), &limits, &RunControl::new()).await
    };
    assert_eq!(result(&of(64 << 10).await).len(), 64 << 10);
    let larger = of((64 << 10) + 1).await;
    assert_eq!(failure(&larger).kind, FailureKind::Output);
    assert_eq!(
        failure(&larger).message,
        "result of 65537 bytes exceeds the limit of 65536 bytes; return less or raise --result-limit"
    );
    // So large that the host does not even look at all of it.
    let giant = of(20 << 20).await;
    assert_eq!(failure(&giant).kind, FailureKind::Output, "{:?}", giant.outcome);
    assert!(failure(&giant).message.contains("at least 16777217 bytes"), "{}", failure(&giant).message);
}

#[tokio::test]
async fn a_flood_of_output_neither_fails_the_run_nor_fills_the_host() {
    for (guest, written) in [("log_flood", 20_000 * 101), ("stdout_flood", 20_000 * 100)] {
        let flooded = run(&core(guest), b"ok", &LIMITS).await;
        assert_eq!(result(&flooded), b"ok", "{guest}");
        let weight = flooded.log.weight();
        assert!((3 << 10..=4 << 10).contains(&weight), "{guest}: {weight} bytes are kept");
        let kept: usize = flooded.log.lines.iter().map(|line| line.text.len() + usize::from(line.ends)).sum();
        assert_eq!(flooded.log.dropped_bytes, written - kept as u64, "{guest}");
    }
}

#[tokio::test]
async fn stdout_stderr_and_the_log_are_one_in_order() {
    let said = run(&core("says"), b"", &LIMITS).await;
    assert_eq!(said.log.to_text(), "to stdout\n[warn] to the log\nto stderr\n");
}

#[tokio::test]
async fn a_full_pool_is_the_hosts_fault() {
    let small = Sandbox::new(&SandboxConfig { slots: 1, memory_bytes: 16 << 20, ..SandboxConfig::default() })
        .expect("the sandbox starts");
    let sleeper = small.prepare(&core("sleep")).expect("it prepares");
    let control = RunControl::new();
    let limits = Limits { timeout: Duration::from_secs(60), ..LIMITS };
    let parked = tokio::spawn({
        let (small, sleeper, control) = (small.clone(), sleeper.clone(), control.clone());
        async move { small.run(&sleeper, job(b""), &limits, &control).await }
    });
    while small.pool_use().is_some_and(|pool| pool.component_instances == 0) {
        tokio::task::yield_now().await;
    }
    let refused = small.run(&sleeper, job(b""), &LIMITS, &RunControl::new()).await;
    assert_eq!(failure(&refused).kind, FailureKind::Host, "{:?}", refused.outcome);
    control.stop(leasehold::outcome::Stop::Shutdown);
    let ended = parked.await.expect("the run does not panic");
    assert_eq!(ended.outcome, Outcome::Stopped(leasehold::outcome::Stop::Shutdown));
}

#[tokio::test]
async fn more_memory_than_the_worker_has_is_the_hosts_fault() {
    let small = Sandbox::new(&SandboxConfig { slots: 2, memory_bytes: 2 << 20, ..SandboxConfig::default() })
        .expect("the sandbox starts");
    let module = small.prepare(&core("grow_forever")).expect("it prepares");
    let grown = small.run(&module, job(b""), &LIMITS, &RunControl::new()).await;
    assert_eq!(failure(&grown).kind, FailureKind::Host, "{:?}", grown.outcome);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_hostile_runs_leave_the_pool_empty() {
    let sandbox = Sandbox::new(&SandboxConfig { slots: 16, memory_bytes: 16 << 20, ..SandboxConfig::default() })
        .expect("the sandbox starts");
    let guests = [
        "spin",
        "spin_at_start",
        "sleep",
        "grow_forever",
        "recursion",
        "shadow_stack",
        "unreachable",
        "bad_pointer",
        "stdout_flood",
        "exits",
    ];
    let modules: Vec<_> = guests.iter().map(|guest| sandbox.prepare(&core(guest)).expect("it prepares")).collect();
    let limits = Limits { timeout: Duration::from_millis(3), fuel: 100_000_000, ..LIMITS };
    for _ in 0..100 {
        let mut round = tokio::task::JoinSet::new();
        for module in &modules {
            let (sandbox, module) = (sandbox.clone(), module.clone());
            round.spawn(async move { sandbox.run(&module, job(b""), &limits, &RunControl::new()).await });
        }
        while let Some(ended) = round.join_next().await {
            let run = ended.expect("the run does not panic");
            assert_ne!(failure_kind(&run.outcome), Some(FailureKind::Host), "{:?}", run.outcome);
        }
    }
    if let Some(pool) = sandbox.pool_use() {
        assert_eq!(
            (pool.memories, pool.tables, pool.stacks, pool.core_instances, pool.component_instances),
            (0, 0, 0, 0, 0)
        );
    }
}

fn failure_kind(outcome: &Outcome) -> Option<FailureKind> {
    match outcome {
        Outcome::Failed(failure) => Some(failure.kind),
        Outcome::Done { .. } | Outcome::Snoozed { .. } | Outcome::Stopped(_) => None,
    }
}
