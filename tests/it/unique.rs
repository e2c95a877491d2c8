//! Unique keys: one job of a key, also under contention, within a batch, and for a time after its end.

use leasehold::settlement::Settled;
use leasehold_tests::TestDb;

async fn with_module() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

#[tokio::test]
async fn the_second_job_of_a_key_is_the_first() {
    let db = with_module().await;
    let first = db.enqueue("'echo', '{\"n\": 1}', unique_key => 'u'").await;
    assert_eq!(db.enqueue("'echo', '{\"n\": 2}', unique_key => 'u'").await, first);
    assert_ne!(db.enqueue("'echo', unique_key => 'v'").await, first);
    assert_eq!(
        db.value::<String>("select convert_from(payload, 'UTF8') from leasehold.jobs where id = 1").await,
        "{\"n\": 1}"
    );
    let job = db.claim_one().await;
    assert_eq!(db.enqueue("'echo', unique_key => 'u'").await, first, "while it runs too");
    assert_eq!(db.complete(job).await, Settled::Yes);
    assert_ne!(db.enqueue("'echo', unique_key => 'u'").await, first, "it has ended");
}

#[tokio::test]
async fn replace_changes_a_queued_job_and_leaves_a_running_one() {
    let db = with_module().await;
    let first = db.enqueue("'echo', '1', unique_key => 'u', run_at => now() + interval '1 hour'").await;
    let replaced = db.enqueue("'echo', '2', unique_key => 'u', on_conflict => 'replace', priority => 7").await;
    assert_eq!(replaced, first);
    let job = db.claim_one().await;
    assert_eq!((job.id, job.payload.as_slice()), (first, b"2".as_slice()));
    assert_eq!(db.value::<i16>("select priority from leasehold.jobs where id = 1").await, 7);
    assert_eq!(db.enqueue("'echo', '3', unique_key => 'u', on_conflict => 'replace'").await, first);
    assert_eq!(db.value::<String>("select convert_from(payload, 'UTF8') from leasehold.jobs where id = 1").await, "2");
    // One that waits at a gate.
    let other = db.enqueue("'echo', '1', unique_key => 'w', concurrency_key => 'k'").await;
    db.sql("select leasehold.pause(tenant => 'default')").await;
    assert!(db.claim(5).await.is_empty());
    assert_eq!(db.enqueue("'echo', '9', unique_key => 'w', on_conflict => 'replace'").await, other);
    db.sql("select leasehold.resume(tenant => 'default')").await;
    let job = db.claim_one().await;
    assert_eq!((job.id, job.payload.as_slice()), (other, b"9".as_slice()));
}

#[tokio::test]
async fn a_period_holds_over_the_jobs_end_and_ends() {
    let db = with_module().await;
    let first = db.enqueue("'echo', unique_key => 'u', unique_for => '1 hour'").await;
    let job = db.claim_one().await;
    db.complete(job).await;
    assert_eq!(db.enqueue("'echo', unique_key => 'u', unique_for => '1 hour'").await, first);
    db.sql("update leasehold.unique_keys set until = now() - interval '1 second'").await;
    let second = db.enqueue("'echo', unique_key => 'u'").await;
    assert_ne!(second, first);
    db.store().drop_unused().await.expect("dropping");
    assert_eq!(db.enqueue("'echo', unique_key => 'u'").await, second, "what is live is never dropped");
    db.cancel(second).await;
    db.store().drop_unused().await.expect("dropping");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.unique_keys").await, 0);
}

#[tokio::test]
async fn tenants_do_not_meet_in_a_key() {
    let db = with_module().await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    db.push(leasehold_tests::Upload { tenant: "acme", ..leasehold_tests::Upload::command("echo", b"\0asm\x01\0\0\0") })
        .await;
    let own = db.enqueue("'echo', unique_key => 'u'").await;
    assert_ne!(db.enqueue("'echo', unique_key => 'u', tenant => 'acme'").await, own);
}

#[tokio::test]
async fn a_conflict_in_a_batch_blocks_nothing_else() {
    let db = with_module().await;
    let there = db.enqueue("'echo', unique_key => 'b'").await;
    let ids: Vec<i64> = db
        .column("select leasehold.enqueue_many('echo', array['1', '2', '3', '4']::jsonb[], unique_keys => array['a', 'b', 'a', null])")
        .await;
    assert_eq!((ids[0], ids[1]), (ids[2], there.0));
    assert_eq!(db.value::<i64>("select count(*) from leasehold.live_jobs").await, 3);
    let refusal =
        db.refusal("select leasehold.enqueue_many('echo', array['1']::jsonb[], unique_keys => array['a', 'b'])").await;
    assert_eq!(refusal.message, "there are 2 unique keys for 1 payloads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_one_comes_in() {
    let db = with_module().await;
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = db.connect().await;
        clients.spawn(async move {
            let mut ids = Vec::new();
            for n in 0..20 {
                let row =
                    client.query_one(&format!("select leasehold.enqueue('echo', unique_key => 'u{n}')"), &[]).await;
                ids.push(row.expect("enqueuing").get::<_, i64>(0));
            }
            ids
        });
    }
    let mut all = Vec::new();
    while let Some(ids) = clients.join_next().await {
        all.push(ids.expect("a client panicked"));
    }
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.live_jobs").await, 20);
}

#[tokio::test]
async fn a_transaction_that_rolls_back_leaves_the_key_free() {
    let db = with_module().await;
    let mut other = db.connect().await;
    let tx = other.transaction().await.expect("beginning");
    tx.execute("select leasehold.enqueue('echo', unique_key => 'u')", &[]).await.expect("enqueuing");
    tx.rollback().await.expect("rolling back");
    let id = db.enqueue("'echo', unique_key => 'u'").await;
    assert_eq!(db.state(id).await, "queued");
}

#[tokio::test]
async fn a_dead_job_whose_key_is_anothers_stays_dead() {
    let db = with_module().await;
    let dead = db.enqueue("'echo', unique_key => 'u'").await;
    let job = db.claim_one().await;
    db.bury(job).await;
    let other = db.enqueue("'echo', unique_key => 'u'").await;
    let refusal = db.refusal(&format!("select leasehold.redrive({dead})")).await;
    assert_eq!(
        (refusal.code.as_str(), refusal.message),
        ("LH006", format!("job {other} has the unique key of job {dead}"))
    );
    assert_eq!(db.state(dead).await, "dead");
    assert!(db.column::<i64>("select leasehold.redrive_many()").await.is_empty(), "and many pass it over");
    db.cancel(other).await;
    assert!(db.redrive(dead).await);
    assert_eq!(db.enqueue("'echo', unique_key => 'u'").await, dead);
}
