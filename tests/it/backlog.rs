//! A claim costs the same however much the queue has churned. Counted in buffers, not in time: somebody's open snapshot keeps
//! dead rows and their index entries by the hundred thousand, which a claim that starts at the beginning of its queue walks
//! over, and one that starts from its bounds does not.

use leasehold::store::Bounds;
use leasehold_tests::db::store;
use leasehold_tests::{Claimer, TestDb};

const BACKLOG: usize = 100_000;
const CLAIMS: i64 = 10;

/// Sessions of a worker's kind in this database.
const SESSIONS: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'leasehold'";

/// How many buffers of the queue's table and index all sessions have touched so far.
async fn touched(db: &TestDb) -> i64 {
    db.value(
        "select (select heap_blks_hit + heap_blks_read from pg_statio_user_tables where relname = 'live_jobs')
              + (select idx_blks_hit + idx_blks_read from pg_statio_user_indexes where indexrelname = 'live_jobs_claim')",
    )
    .await
}

/// Lets a new session claim single jobs, each put in just before, and answers how many buffers a claim took on average: those
/// of putting in and taking out included.
async fn buffers_a_claim(db: &TestDb, bounds: &Bounds, keep_bounds: bool) -> i64 {
    let sessions: i64 = db.value(SESSIONS).await;
    let before = touched(db).await;
    let claimer = Claimer::new(store(db.url()), &["default"]).await;
    for _ in 0..CLAIMS {
        let id = db.enqueue("'echo'").await;
        let (fresh, lease) = (Bounds::default(), std::time::Duration::from_secs(600));
        let claimed = claimer.claim_within(1, lease, if keep_bounds { bounds } else { &fresh }).await;
        assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
        db.sql(&format!("delete from leasehold.live_jobs where id = {id}")).await;
    }
    // A session's counts reach the statistics when it ends, or when it is asked.
    drop(claimer);
    db.wait_until("the session has ended", &format!("({SESSIONS}) <= {sessions}")).await;
    db.sql("select pg_stat_force_next_flush()").await;
    (touched(db).await - before) / CLAIMS
}

#[tokio::test]
async fn a_claim_does_not_walk_over_what_an_open_snapshot_keeps() {
    // Alone on its server: bounds wait for every open transaction of the server, also those of other tests.
    let db = TestDb::on_own_cluster().await;
    // So is an ANALYZE in the background.
    db.sql("alter system set autovacuum = off").await;
    db.sql("select pg_reload_conf()").await;
    db.push_nothing("echo").await;
    let mut report = db.connect().await;
    let snapshot =
        report.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead).start().await;
    let snapshot = snapshot.expect("a transaction");
    snapshot.query("select count(*) from leasehold.live_jobs", &[]).await.expect("its snapshot");
    db.enqueue_many("echo", BACKLOG).await;
    db.sql("delete from leasehold.live_jobs").await;
    db.sql("vacuum leasehold.live_jobs").await;
    let rows: i64 = db.value("select pg_relation_size('leasehold.live_jobs_claim') / 8192").await;
    assert!(rows > 300, "the vacuum has taken the entries away: the index has {rows} pages left");

    let bounds = Bounds::default();
    // Its first claims have no bounds yet.
    buffers_a_claim(&db, &bounds, true).await;
    let with_bounds = buffers_a_claim(&db, &bounds, true).await;
    let without = buffers_a_claim(&db, &bounds, false).await;
    assert!(with_bounds < 200, "{with_bounds} buffers a claim with bounds, {without} without");
    assert!(without > 3_000, "{without} buffers a claim without bounds: then this test shows nothing");
    drop(snapshot);
}

#[tokio::test]
async fn a_claim_from_a_backlog_touches_no_more_than_it_takes() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    // A vacuum or ANALYZE in the background would count too.
    db.sql("alter table leasehold.live_jobs set (autovacuum_enabled = off)").await;
    db.enqueue_many("echo", BACKLOG).await;
    db.sql("select leasehold.enqueue_many('echo', array(select to_jsonb(n) from generate_series(1, 50000) n), run_at => now() + interval '1 day')").await;
    // Without statistics, as a queue that has just filled up.
    let sessions: i64 = db.value(SESSIONS).await;
    let before = touched(&db).await;
    let claimer = Claimer::new(store(db.url()), &["default"]).await;
    for _ in 0..CLAIMS {
        assert_eq!(claimer.claim(10).await.len(), 10);
    }
    drop(claimer);
    db.wait_until("the session has ended", &format!("({SESSIONS}) <= {sessions}")).await;
    let a_job = (touched(&db).await - before) / (10 * CLAIMS);
    assert!(a_job < 30, "{a_job} buffers for each claimed job");
}

#[tokio::test]
async fn a_million_jobs_of_the_future_and_of_another_queue_cost_a_claim_nothing() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.sql("alter table leasehold.live_jobs set (autovacuum_enabled = off)").await;
    // Statistics of an empty table, which is as wrong as they can be.
    db.sql("analyze leasehold.live_jobs").await;
    db.enqueue("'echo', run_at => now() + interval '1 hour'").await;
    db.enqueue("'echo', queue => 'other'").await;
    db.sql(
        "insert into leasehold.live_jobs (tenant_id, module_id, queue, priority, run_at, enqueued_at, max_attempts, payload)
         select 1, 1, case n % 2 when 0 then 'default' else 'other' end, 0, now() + (n % 2 = 0)::int * interval '1 hour' + n * interval '1 ms', now(), 5, ''
           from generate_series(1, 1000000) n",
    )
    .await;
    let bounds = Bounds::default();
    buffers_a_claim(&db, &bounds, true).await;
    let a_claim = buffers_a_claim(&db, &bounds, true).await;
    assert!(a_claim < 100, "{a_claim} buffers for a claim, putting in and taking out included");
    // A claimer that begins has no bounds, and looks no further either.
    let fresh = buffers_a_claim(&db, &bounds, false).await;
    assert!(fresh < 100, "{fresh} buffers for a claim without bounds");
}
