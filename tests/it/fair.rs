//! Tenants that want more together than there is room for take turns, and nobody's job is passed over for it.

use std::collections::HashSet;
use std::time::Duration;

use leasehold::job::{JobId, TenantId};
use leasehold::settlement::Settled;
use leasehold::store::{Bounds, Claimed, TenantLane, Turn};
use leasehold_tests::workers::quick;
use leasehold_tests::{Claimer, TestDb, Upload, guests};

const LEASE: Duration = Duration::from_secs(600);

/// With tenants "a" and "b", besides "default".
async fn with_tenants() -> TestDb {
    let db = TestDb::new().await;
    for tenant in ["a", "b"] {
        db.store().create_tenant(tenant).await.expect("a name");
        db.push(Upload { tenant, ..Upload::command("echo", b"\0asm\x01\0\0\0") }).await;
    }
    db
}

async fn tenant(db: &TestDb, name: &str) -> TenantId {
    TenantId(db.value(&format!("select tenant_id from leasehold.tenants where name = '{name}'")).await)
}

async fn enqueue(db: &TestDb, tenant: &str, count: usize) -> Vec<JobId> {
    let sql = format!(
        "select leasehold.enqueue_many('echo', array(select to_jsonb(n) from generate_series(1, {count}) n), tenant => '{tenant}')"
    );
    db.column(&sql).await.into_iter().map(JobId).collect()
}

async fn turn(db: &TestDb, name: &str, priority: i32, count: i32) -> Turn {
    Turn { lane: TenantLane { tenant: tenant(db, name).await, queue: "default".into(), priority }, count }
}

async fn claim(db: &TestDb, claimer: &Claimer, limit: usize, turns: Vec<Turn>) -> Claimed {
    let queues = ["default".to_owned()];
    let claimed = db.store().claim(claimer.id, (&queues, false), limit, LEASE, &claimer.bounds, Some(turns)).await;
    claimed.unwrap_or_else(|error| panic!("{error:#}"))
}

async fn ids(db: &TestDb, claimer: &Claimer, limit: usize, turns: Vec<Turn>) -> Vec<JobId> {
    claim(db, claimer, limit, turns).await.jobs.iter().map(|job| job.id).collect()
}

/// The lanes that wait for their turn, as (tenant, priority).
fn ready(bounds: &Bounds) -> Vec<(i32, i32)> {
    let mut ready: Vec<_> = bounds.ready().iter().map(|ready| (ready.lane.tenant.0, ready.lane.priority)).collect();
    ready.sort_unstable();
    ready
}

/// A turn of a job or two for each lane that waits.
async fn claim_in_turns(db: &TestDb, claimer: &Claimer, limit: usize) -> Vec<JobId> {
    loop {
        let turns = claimer.bounds.ready().into_iter().map(|ready| Turn { lane: ready.lane, count: 2 }).collect();
        let jobs = ids(db, claimer, limit, turns).await;
        if !jobs.is_empty() || !claimer.bounds.is_ready() {
            return jobs;
        }
    }
}

#[tokio::test]
async fn what_fits_is_taken_and_of_more_it_is_answered_whose_it_is() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    let [a, b] = [enqueue(&db, "a", 3).await, enqueue(&db, "b", 3).await];
    assert_eq!(ids(&db, &claimer, 5, vec![]).await, []);
    assert_eq!(ready(&claimer.bounds), [(tenant(&db, "a").await.0, 0), (tenant(&db, "b").await.0, 0)]);
    let looking = db.claimer().await;
    assert_eq!(ids(&db, &looking, 0, vec![]).await, []);
    assert_eq!(ready(&looking.bounds), ready(&claimer.bounds), "one may look without wanting any");
    let other = db.claimer().await;
    assert_eq!(ids(&db, &other, 6, vec![]).await, [a, b].concat());
    assert!(!other.bounds.is_ready());
}

#[tokio::test]
async fn turns_in_a_paused_queue_bring_nothing_and_lose_nothing() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    let mut all = enqueue(&db, "a", 3).await;
    all.extend(enqueue(&db, "b", 3).await);
    let turns = vec![turn(&db, "a", 0, 3).await, turn(&db, "b", 0, 3).await];
    db.sql("select leasehold.pause(queue => 'default')").await;
    assert_eq!(ids(&db, &claimer, 4, turns).await, []);
    db.sql("select leasehold.resume(queue => 'default')").await;
    let mut begun = Vec::new();
    for _ in 0..50 {
        begun.extend(claim_in_turns(&db, &claimer, 4).await);
    }
    begun.sort_unstable();
    assert_eq!(begun, all);
}

#[tokio::test]
async fn turns_bring_what_they_name_and_the_rest_of_the_room_is_the_first_ones() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    let [a, b] = [enqueue(&db, "a", 9).await, enqueue(&db, "b", 9).await];
    assert_eq!(ids(&db, &claimer, 2, vec![]).await, []);
    let turns = vec![turn(&db, "b", 0, 1).await, turn(&db, "a", 0, 2).await];
    assert_eq!(ids(&db, &claimer, 3, turns.clone()).await, [a[0], a[1], b[0]], "in the order in which they came in");
    assert_eq!(ids(&db, &claimer, 4, turns).await, [a[2], a[3], b[1], b[2]]);
    // From the end of b's jobs on there is only a.
    let turns = vec![turn(&db, "b", 0, 8).await, turn(&db, "a", 0, 1).await];
    assert_eq!(ids(&db, &claimer, 9, turns).await, [&a[4..7], &b[3..]].concat());
    assert_eq!(ready(&claimer.bounds), [(tenant(&db, "a").await.0, 0)]);
}

#[tokio::test]
async fn a_lane_without_a_turn_fills_what_the_others_leave() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    let [a, b] = [enqueue(&db, "a", 1).await, enqueue(&db, "b", 9).await];
    assert_eq!(ids(&db, &claimer, 4, vec![]).await, []);
    let turns = vec![turn(&db, "a", 0, 4).await, turn(&db, "b", 0, 0).await];
    assert_eq!(ids(&db, &claimer, 4, turns).await, [&a[..], &b[..3]].concat());
}

#[tokio::test]
async fn a_priority_of_a_hundred_is_no_way_past_other_tenants() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    let plain = enqueue(&db, "b", 1).await[0];
    for _ in 0..5 {
        db.enqueue("'echo', tenant => 'a', priority => 100").await;
    }
    assert_eq!(ids(&db, &claimer, 2, vec![]).await, []);
    let [a, b] = [tenant(&db, "a").await.0, tenant(&db, "b").await.0];
    assert_eq!(ready(&claimer.bounds), [(a, 100), (b, 0)]);
    let turns = vec![turn(&db, "b", 0, 1).await, turn(&db, "a", 100, 1).await];
    assert!(ids(&db, &claimer, 2, turns).await.contains(&plain));
}

#[tokio::test]
async fn a_tenant_is_found_behind_a_neighbours_backlog() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    // More than a claim looks through.
    enqueue(&db, "a", 3_000).await;
    let behind = enqueue(&db, "b", 1).await;
    assert_eq!(ids(&db, &claimer, 4, vec![]).await, []);
    assert_eq!(ids(&db, &claimer, 1, vec![turn(&db, "b", 0, 1).await]).await, behind);
    // And when it comes back while the other one's backlog lasts.
    let again = enqueue(&db, "b", 1).await;
    assert_eq!(ids(&db, &claimer, 1, vec![turn(&db, "a", 0, 1).await]).await.len(), 1);
    assert_eq!(ready(&claimer.bounds).len(), 2);
    assert_eq!(ids(&db, &claimer, 1, vec![turn(&db, "b", 0, 1).await]).await, again);
}

#[tokio::test]
async fn a_tenant_at_its_cap_or_paused_is_left_out_and_its_jobs_stay_where_they_are() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    db.sql("select leasehold.set_cap(1, tenant => 'a')").await;
    enqueue(&db, "a", 50).await;
    let b = enqueue(&db, "b", 50).await;
    assert_eq!(ids(&db, &claimer, 2, vec![]).await, []);
    let turns = vec![turn(&db, "a", 0, 2).await, turn(&db, "b", 0, 2).await];
    let mut first = claim(&db, &claimer, 4, turns.clone()).await.jobs;
    assert_eq!(first.iter().filter(|job| job.tenant == turns[0].lane.tenant).count(), 1);
    assert_eq!(first.len(), 4, "what its cap leaves is the other one's");
    assert_eq!(ids(&db, &claimer, 4, turns.clone()).await, b[3..7]);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.waiting_jobs").await, 0);
    assert!(claimer.bounds.aside().is_some(), "it is put aside");

    // The end of its run makes it known again, and wakes whoever sleeps.
    let running = first.remove(first.iter().position(|job| job.tenant == turns[0].lane.tenant).expect("it runs"));
    assert_eq!(db.complete(running).await, Settled::Yes);
    assert_eq!(ids(&db, &claimer, 1, vec![turns[1].clone()]).await.len(), 1);
    assert_eq!(ready(&claimer.bounds).len(), 2, "told by its gate");
    assert_eq!(claim(&db, &claimer, 1, vec![turns[0].clone()]).await.jobs[0].tenant, turns[0].lane.tenant);

    db.sql("select leasehold.pause(tenant => 'b')").await;
    assert!(ids(&db, &claimer, 4, turns.clone()).await.is_empty());
    db.sql("select leasehold.resume(tenant => 'b')").await;
    assert!(claim(&db, &claimer, 4, vec![]).await.jobs.is_empty());
    assert!(ready(&claimer.bounds).contains(&(turns[1].lane.tenant.0, 0)));
}

#[tokio::test]
async fn jobs_that_waited_at_a_gate_have_no_more_than_their_tenants_turn() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    // Ten keys, two jobs each: the second of each waits at its gate.
    for n in 0..20 {
        db.enqueue(&format!("'echo', tenant => 'a', concurrency_key => 'k{}'", n % 10)).await;
    }
    let mut running = Vec::new();
    while running.len() < 10 {
        running.extend(claimer.claim(100).await);
    }
    assert!(claimer.claim(100).await.is_empty());
    for job in running {
        assert_eq!(db.complete(job).await, Settled::Yes);
    }
    let b = enqueue(&db, "b", 10).await;
    assert_eq!(ids(&db, &claimer, 4, vec![]).await, [], "ten gates are open and ten jobs are due");
    assert_eq!(ready(&claimer.bounds).len(), 2);
    let turns = vec![turn(&db, "a", 0, 1).await, turn(&db, "b", 0, 3).await];
    let claimed = ids(&db, &claimer, 4, turns).await;
    assert_eq!(claimed.len(), 4);
    assert!(b[..3].iter().all(|job| claimed.contains(job)), "{claimed:?}");
}

#[tokio::test]
async fn a_transaction_that_commits_late_is_found_while_others_take_turns() {
    let db = with_tenants().await;
    let claimer = db.claimer().await;
    enqueue(&db, "b", 1).await;
    assert_eq!(claimer.claim(1).await.len(), 1);
    let mut slow = db.connect().await;
    let open = slow.transaction().await.expect("a transaction");
    let sql = "select leasehold.enqueue('echo', tenant => 'b')";
    let late: i64 = open.query_one(sql, &[]).await.expect("it is taken").get(0);
    enqueue(&db, "a", 20).await;
    assert_eq!(ids(&db, &claimer, 4, vec![]).await, []);
    for _ in 0..3 {
        assert_eq!(ids(&db, &claimer, 4, vec![turn(&db, "a", 0, 4).await]).await.len(), 4);
    }
    open.commit().await.expect("it commits");
    assert_eq!(ids(&db, &claimer, 1, vec![turn(&db, "a", 0, 1).await]).await.len(), 1);
    assert_eq!(ids(&db, &claimer, 1, vec![turn(&db, "b", 0, 1).await]).await, [JobId(late)]);
}

#[tokio::test]
async fn a_job_of_a_claim_that_rolled_back_is_found_while_others_take_turns() {
    let db = with_tenants().await;
    let [claimer, other] = [db.claimer().await, db.claimer().await];
    let hidden = enqueue(&db, "b", 1).await;
    enqueue(&db, "a", 20).await;
    // The bounds are beyond all of these.
    for _ in 0..2 {
        db.wait_for_open_transactions().await;
        assert_eq!(ids(&db, &claimer, 0, vec![]).await, []);
    }
    let mut dying = db.connect().await;
    let rolled_back = dying.transaction().await.expect("a transaction");
    let sql = "select * from leasehold.claim($1, '{default}', 1, 1000000, 60000, '{}', '{}', '{}', '{}')";
    assert_eq!(rolled_back.query(sql, &[&other.id.0]).await.expect("a claim").len(), 2, "its head and the job");
    let turns = [turn(&db, "b", 0, 1).await, turn(&db, "a", 0, 2).await];
    assert_eq!(ids(&db, &claimer, 3, turns.to_vec()).await.len(), 3, "b's is somebody else's");
    rolled_back.rollback().await.expect("it rolls back");
    db.wait_for_open_transactions().await;
    for _ in 0..2 {
        assert_eq!(ids(&db, &claimer, 1, turns[1..].to_vec()).await.len(), 1);
    }
    assert_eq!(ready(&claimer.bounds).len(), 1, "its place is below the bounds");
    assert!(claimer.find_stragglers().await);
    assert_eq!(ids(&db, &claimer, 1, turns[..1].to_vec()).await, hidden);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimers_that_give_turns_bring_each_job_once_and_leave_none() {
    let db = with_tenants().await;
    db.push_nothing("echo").await;
    for (tenant, priority, count) in [("a", 0, 700), ("default", 0, 300), ("b", 5, 90), ("b", -5, 150), ("a", 9, 40)] {
        db.sql(&format!(
            "select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[{count}]), tenant => '{tenant}', priority => {priority})"
        ))
        .await;
    }
    let db = std::sync::Arc::new(db);
    let mut hammering = tokio::task::JoinSet::new();
    for limit in 3..9 {
        let db = db.clone();
        hammering.spawn(async move {
            let claimer = db.claimer().await;
            let mut claimed = Vec::new();
            loop {
                let batch = claim_in_turns(&db, &claimer, limit).await;
                assert!(batch.len() <= limit);
                if batch.is_empty() {
                    return claimed;
                }
                claimed.extend(batch);
            }
        });
    }
    let claimed = hammering.join_all().await.concat();
    assert_eq!(claimed.len(), 1_280, "each job once");
    assert_eq!(claimed.iter().collect::<HashSet<_>>().len(), claimed.len());
}

#[tokio::test]
async fn a_worker_begins_a_neighbours_job_in_the_middle_of_a_backlog() {
    let db = TestDb::new().await;
    db.store().create_tenant("b").await.expect("a name");
    let echo = guests::core("echo");
    db.push(Upload::component("echo", &echo)).await;
    db.push(Upload { tenant: "b", ..Upload::component("echo", &echo) }).await;
    db.enqueue_many("echo", 3_000).await;
    // As urgent as can be, and all before the other one's.
    db.sql("select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[500]), priority => 100)").await;
    let job = db.enqueue("'echo', tenant => 'b'").await;
    let worker = db.worker_with(leasehold::worker::WorkerConfig { slots: 2, ..quick() });
    db.wait_for(job, "done").await;
    db.wait_until("all are done", "(select count(*) from leasehold.history where state = 'done') = 3501").await;
    worker.drain().await;
    let sql =
        "select count(*) from leasehold.history h, leasehold.history b where b.id = $1 and h.started_at < b.started_at";
    let before: i64 = db.rows(sql, &[&job.0]).await[0].get(0);
    assert!(before < 500, "{before} of 3500 jobs of another tenant began before it");
}

#[tokio::test]
async fn a_weight_is_1_to_1000_and_of_a_tenant_that_is_there() {
    let db = with_tenants().await;
    assert_eq!(db.store().set_weight("a", 300).await.expect("a weight"), 100);
    assert_eq!(db.store().set_weight("a", 1).await.expect("a weight"), 300);
    assert_eq!(db.store().shares().await.expect("shares").weights, [(tenant(&db, "a").await, 1)]);
    for (arguments, code) in
        [("'a', 0", "LH003"), ("'a', 1001", "LH003"), ("'a', null", "LH003"), ("'nobody', 5", "LH001")]
    {
        let refusal = db.refusal(&format!("select leasehold.set_weight({arguments})")).await;
        assert_eq!(refusal.code, code, "{refusal}");
    }
}

#[tokio::test]
async fn explain_counts_a_tenants_own_jobs_and_names_the_others() {
    let db = with_tenants().await;
    let _claimer = db.claimer().await;
    let of = async |id: JobId| -> String { db.value(&format!("select message from leasehold.explain({id})")).await };
    enqueue(&db, "a", 7).await;
    let own = enqueue(&db, "b", 2).await;
    assert_eq!(
        of(own[1]).await,
        "1 jobs of its tenant in queue default come before it; 1 other tenants have jobs there, and each has its share"
    );
}
