//! Jobs that a job puts in: there if and only if its run ended well, under the lease that it had.

use leasehold::job::{JobId, Limits};
use leasehold::outcome::FollowUp;
use leasehold::settlement::{Settled, Settlement};
use leasehold::store::{Report, is_refused_follow_up};
use leasehold_tests::{TestDb, Upload, guests, report};

fn follow_up(module: &str) -> FollowUp {
    FollowUp {
        module: module.into(),
        payload: b"{\"part\": 1}".to_vec(),
        queue: None,
        priority: 7,
        delay_ms: None,
        unique_key: None,
        concurrency_key: None,
    }
}

fn asking(job: &leasehold::store::ClaimedJob, follow_ups: Vec<FollowUp>) -> Report {
    Report { follow_ups, ..report(job, Settlement::Complete { result: b"1".to_vec() }) }
}

#[tokio::test]
async fn they_come_in_with_the_completion_of_the_same_tenant_and_queue() {
    let db = TestDb::new().await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    for module in ["echo", "part"] {
        db.push(Upload { tenant: "acme", ..Upload::command(module, b"\0asm\x01\0\0\0") }).await;
    }
    let id = db.enqueue("'echo', tenant => 'acme'").await;
    let job = db.claim_one().await;
    let delayed = FollowUp { delay_ms: Some(u64::MAX), queue: Some("later".into()), ..follow_up("part") };
    let unique = FollowUp { unique_key: Some("u".into()), concurrency_key: Some("k".into()), ..follow_up("part") };
    let asked = vec![follow_up("part"), delayed, unique.clone(), unique];
    assert_eq!(db.settle_all(vec![asking(&job, asked)]).await, [Settled::Yes]);
    assert_eq!(db.state(id).await, "done");
    let jobs: Vec<String> = db
        .column(
            "select concat_ws(' ', tenant, module, queue, priority, convert_from(payload, 'UTF8'), run_at > now() + interval '365 days', options)
               from leasehold.jobs where module = 'part' order by id",
        )
        .await;
    assert_eq!(
        jobs,
        [
            "acme part default 7 {\"part\": 1} f",
            "acme part later 7 {\"part\": 1} t",
            "acme part default 7 {\"part\": 1} f {\"unique_key\": \"u\", \"concurrency_key\": \"k\"}"
        ]
    );
}

#[tokio::test]
async fn a_lost_lease_puts_in_nothing() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let id = db.enqueue("'echo'").await;
    let job = db.claim_one().await;
    db.expire_lease(id).await;
    db.store().reap().await.expect("reaping");
    assert_eq!(db.settle_all(vec![asking(&job, vec![follow_up("echo")])]).await, [Settled::LeaseLost]);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.live_jobs").await, 1, "the job itself");
}

#[tokio::test]
async fn one_that_is_refused_refuses_them_all_and_says_which() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.enqueue("'echo'").await;
    let job = db.claim_one().await;
    let report = asking(&job, vec![follow_up("echo"), follow_up("nobody")]);
    let batch = leasehold::store::Batch::sort(vec![report]).remove(0);
    let error = db.store().settle(db.worker_id().await, &batch).await.expect_err("there is no such module");
    assert!(is_refused_follow_up(&error));
    let error = format!("{error:#}");
    assert!(error.contains("follow-up job 2 was refused: tenant 'default' has no module named 'nobody'"), "{error}");
    assert_eq!(
        db.value::<i64>("select count(*) from leasehold.live_jobs where running").await,
        1,
        "nothing was written"
    );
    assert_eq!(db.value::<i64>("select count(*) from leasehold.live_jobs").await, 1);
}

/// The job jobs/fan-out under a grant, with a worker.
async fn fan_out(db: &TestDb, follow_ups: u32, payload: &str) -> leasehold_tests::scenario::Job {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../jobs/target/modules/fan-out.wasm");
    let bytes =
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run scripts/build-jobs", path.display()));
    let limits = Limits { follow_ups, ..Limits::default() };
    db.push(Upload { limits, ..Upload::component("fan-out", &bytes) }).await;
    db.push(Upload { limits: guests::LIMITS, ..Upload::component("echo", &guests::core("echo")) }).await;
    let worker = db.worker();
    let id = db.enqueue(&format!("'fan-out', '{payload}', max_attempts => 1")).await;
    let job = db.wait_for_end(id).await;
    worker.drain().await;
    job
}

#[tokio::test]
async fn a_guest_puts_in_as_many_as_it_was_granted() {
    let db = TestDb::new().await;
    let job = fan_out(&db, 3, r#"{"module": "echo", "payloads": ["1", "[2]", "{}"]}"#).await;
    assert_eq!((job.state.as_str(), job.failure_kind.as_deref()), ("done", None), "{:?}", job.error);
    let payloads: Vec<String> =
        db.column("select convert_from(payload, 'UTF8') from leasehold.jobs where module = 'echo' order by id").await;
    assert_eq!(payloads, ["1", "[2]", "{}"]);
}

#[tokio::test]
async fn a_guest_that_was_granted_none_is_told_so() {
    let db = TestDb::new().await;
    let job = fan_out(&db, 0, r#"{"module": "echo", "payloads": ["1"]}"#).await;
    assert_eq!((job.state.as_str(), job.failure_kind.as_deref()), ("dead", Some("guest_dead")));
    let error = job.error.expect("it says why");
    assert_eq!(error, "this module may put in no jobs; it is granted at upload: module push --follow-ups N");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs where module = 'echo'").await, 0);
}

#[tokio::test]
async fn a_run_that_fails_puts_in_nothing() {
    let db = TestDb::new().await;
    let job = fan_out(&db, 9, r#"{"module": "echo", "payloads": ["1"], "then_fail": true}"#).await;
    assert_eq!(job.state, "dead");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs where module = 'echo'").await, 0);
}

#[tokio::test]
async fn a_run_whose_jobs_cannot_be_put_in_is_dead_and_says_why() {
    let db = TestDb::new().await;
    let job = fan_out(&db, 9, r#"{"module": "nobody", "payloads": ["1"]}"#).await;
    assert_eq!((job.state.as_str(), job.failure_kind.as_deref()), ("dead", Some("follow_up")));
    let error = job.error.expect("it says why");
    assert!(error.contains("follow-up job 1 was refused: tenant 'default' has no module named 'nobody'"), "{error}");
    let _: JobId = job.id;
}
