//! The hostile corpus: each module's job through the real queue and worker, all at once and beside good jobs, and what became
//! of it read back from the database. Whatever a module does, its own job alone bears it, within its limits.

mod bombs;
mod corpus;

use leasehold::job::JobId;
use leasehold::sandbox::PrepareError;
use leasehold_tests::guests::{SANDBOX, core};
use leasehold_tests::{TestDb, Upload};

use corpus::Case;

/// Good jobs beside each hostile one.
const GOOD: usize = 2;
/// What is worth a word to whoever wonders why the test takes long.
const DEAR_CPU_MS: u64 = 200;
/// A message that is kept, and a backtrace, in bytes; the database clips them besides.
const KEPT_BYTES: usize = 64 << 10;

#[tokio::test]
async fn every_hostile_module_ends_as_it_must_and_alone() {
    let cases: Vec<Case> = corpus::written().into_iter().chain(bombs::made()).collect();
    assert!(cases.len() >= 60, "{} modules", cases.len());
    let db = TestDb::new().await;
    db.sql("insert into leasehold.tenants (name) values ('neighbour')").await;
    let echo = core("echo");
    for name in ["echo", "put_in"] {
        db.push(Upload::component(name, &echo)).await;
    }
    db.push(Upload { tenant: "neighbour", ..Upload::component("theirs", &echo) }).await;
    for Case { name, kind, bytes, limits, .. } in &cases {
        db.push(Upload { kind: *kind, limits: *limits, ..Upload::component(name, bytes) }).await;
    }
    let (mut hostile, mut good) = (Vec::new(), Vec::new());
    for case in &cases {
        hostile.push(db.enqueue(&format!("'{}', backoff => '1 hour'", case.name)).await);
        good.extend(db.enqueue_many("echo", GOOD).await);
    }
    let worker = db.worker();
    // A slow machine may take its time for all of them, as long as there is progress.
    for left in (0..=hostile.len() + good.len()).rev().step_by(50).chain([0]) {
        let waiting = "(select count(*) from leasehold.live_jobs where running or lease_no = 0)";
        db.wait_until(&format!("all but {left} have run"), &format!("{waiting} <= {left}")).await;
    }
    worker.drain().await;

    for id in &good {
        assert_eq!(db.state(*id).await, "done", "a good job beside the hostile ones");
    }
    let mut wrong = Vec::new();
    for (case, id) in cases.iter().zip(hostile) {
        wrong.extend(check(&db, case, id).await);
    }
    assert!(wrong.is_empty(), "{} of {} did not end as they must:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    // What they asked the host for: three jobs of one, and as many megabytes of another as there is room for.
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs where module = 'put_in'").await, 3 + 3);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs where module = 'theirs'").await, 0);
}

/// Says what is wrong with a job's end.
async fn check(db: &TestDb, case: &Case, id: JobId) -> Vec<String> {
    let (job, attempts) = (db.job(id).await, db.attempts(id).await);
    let cpu_ms = job.usage.as_ref().map_or(0, |usage| usage["cpu_ms"].as_f64().unwrap_or_default() as u64);
    if cpu_ms > DEAR_CPU_MS {
        println!("{} took {cpu_ms} ms of CPU time", case.name);
    }
    let mut wrong = Vec::new();
    let mut say = |what: String| wrong.push(format!("{}: {what}", case.name));
    let (message, kind) = (job.error.clone().unwrap_or_default(), job.failure_kind.clone());
    if (&job.state, &kind) != (&case.state, &case.failure_kind) {
        say(format!("{} {kind:?} {message:.300?}, not {} {:?}", job.state, case.state, case.failure_kind));
    }
    if (job.lease_no, job.crash_count) != (1, 0) {
        say(format!("leased {} times, {} crashes", job.lease_no, job.crash_count));
    }
    for text in &case.says {
        if !message.to_lowercase().contains(&text.to_lowercase()) {
            say(format!("{message:.300?} does not say {text:?}"));
        }
    }
    let log_bytes = usize::try_from(case.limits.log_bytes).expect("few");
    for attempt in &attempts {
        let texts = [(&attempt.message, KEPT_BYTES), (&attempt.backtrace, KEPT_BYTES), (&attempt.log, 4 * log_bytes)];
        for (text, limit) in texts {
            let text = text.as_deref().unwrap_or_default();
            if text.len() > limit || text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
                say(format!("kept {} bytes as they are: {text:.100?}", text.len()));
            }
        }
    }
    wrong
}

#[test]
fn what_no_worker_would_run_is_refused_at_upload() {
    let cases = corpus::written().into_iter().chain(bombs::made());
    for case in cases.filter(|case| case.failure_kind.as_deref() == Some("link")) {
        let problem = SANDBOX.inspect(&case.bytes).problem;
        assert!(problem.is_some(), "{} would be uploaded", case.name);
        assert!(
            !matches!(problem, Some(PrepareError::Compiler(_) | PrepareError::Host(_))),
            "{}: {problem:?}",
            case.name
        );
    }
}
