//! Why a job is not running: each reason by its code.

use leasehold::job::JobId;
use leasehold_tests::TestDb;

async fn codes(db: &TestDb, id: JobId) -> Vec<String> {
    db.column(&format!("select code from leasehold.explain({id})")).await
}

/// What is counted for a queue in which nothing runs, a job whose time has not come, and one that waits for another, left out.
async fn counted(db: &TestDb) -> Vec<String> {
    db.column("select code from leasehold.count_waiting() where code not in ('running', 'not_due', 'waits_for_job')")
        .await
}

async fn message(db: &TestDb, id: JobId, code: &str) -> String {
    db.value(&format!("select message from leasehold.explain({id}) where code = '{code}'")).await
}

#[tokio::test]
async fn each_reason_has_its_code() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let id = db.enqueue("'echo', concurrency_key => 'k'").await;
    assert_eq!(codes(&db, id).await, ["no_worker"]);
    let claimer = db.claimer().await;
    assert_eq!(codes(&db, id).await, ["ready"]);
    assert_eq!(message(&db, id, "ready").await, "0 jobs of queue default come before it");

    let running = claimer.claim(1).await.remove(0);
    assert_eq!(codes(&db, id).await, ["running"]);
    let second = db.enqueue("'echo', concurrency_key => 'k'").await;
    assert_eq!(codes(&db, second).await, ["key_held"], "told before a claim has met it");
    assert!(claimer.claim(1).await.is_empty());
    assert_eq!(codes(&db, second).await, ["key_held"], "and after");
    assert_eq!(
        message(&db, second, "key_held").await,
        format!("1 of 1 jobs of concurrency key 'k' that may run do: job {id}")
    );

    let later = db.enqueue("'echo', run_at => now() + interval '1 hour'").await;
    assert_eq!(codes(&db, later).await, ["not_due"]);
    assert!(
        db.value::<bool>(&format!("select until > now() + interval '59 minutes' from leasehold.explain({later})"))
            .await
    );
    let after = db.enqueue(&format!("'echo', after => array[{id}]")).await;
    assert_eq!(codes(&db, after).await, ["waits_for_job"]);
    assert_eq!(message(&db, after, "waits_for_job").await, format!("waits for 1 jobs, the first of them is job {id}"));

    let plain = db.enqueue("'echo'").await;
    for (make, code, unmake) in [
        (
            "leasehold.pause(queue => 'default', reason => 'stocktaking')",
            "queue_paused",
            "leasehold.resume(queue => 'default')",
        ),
        ("leasehold.pause(tenant => 'default')", "tenant_paused", "leasehold.resume(tenant => 'default')"),
        (
            "leasehold.pause(tenant => 'default', module => 'echo')",
            "module_paused",
            "leasehold.resume(tenant => 'default', module => 'echo')",
        ),
        (
            "leasehold.activate_module('default', 'echo', null)",
            "module_off",
            "leasehold.activate_module('default', 'echo', 1)",
        ),
    ] {
        db.sql(&format!("select {make}")).await;
        assert_eq!(codes(&db, plain).await, [code]);
        assert!(claimer.claim(5).await.is_empty());
        assert_eq!(codes(&db, plain).await, [code], "also where it waits at the gate");
        assert!(counted(&db).await.contains(&code.to_owned()), "{code} is counted: {:?}", counted(&db).await);
        db.sql(&format!("select {unmake}")).await;
        assert_eq!(codes(&db, plain).await, ["ready"]);
    }
    db.sql("select leasehold.set_rate(1, per => '1 hour')").await;
    let taken = claimer.claim(1).await.remove(0);
    assert_eq!(taken.id, plain);
    let another = db.enqueue("'echo'").await;
    assert_eq!(codes(&db, another).await, ["rate"]);
    db.sql("select leasehold.set_rate(null); select leasehold.set_cap(3)").await;
    let capped = claimer.claim(1).await;
    assert_eq!(capped[0].id, another);
    let last = db.enqueue("'echo'").await;
    assert_eq!(codes(&db, last).await, ["at_cap"]);
    assert_eq!(message(&db, last, "at_cap").await, "3 of 3 jobs of tenant default that may run do");

    db.complete(running).await;
    assert_eq!(codes(&db, id).await, ["done"]);
    assert_eq!(db.refusal("select * from leasehold.explain(999)").await.code, "LH004");
}
