//! A database of the first version, upgraded under a worker of the first version: nothing is rewritten, nobody waits for long, and
//! the statements that the previous binary sends go on working.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use leasehold_tests::TestDb;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

const JOBS: i64 = 200_000;

/// As the first version's migrator left it, with jobs of every state.
async fn first_version() -> TestDb {
    let db = TestDb::empty().await;
    db.sql(include_str!("../upgrade/first_version.sql")).await;
    let current = TestDb::new().await;
    let checksum: String = current.value("select checksum from leasehold.schema_version where version = 1").await;
    db.sql(&format!(
        "insert into leasehold.schema_version (version, name, checksum) values (0, 'functions, views and roles', 'of the first version'), (1, '0001_tables', '{checksum}');
         select leasehold.push_module('default', 'echo', 'command', '\\x00', 1, 1, 1000, 1, 1, '{{}}', '{{}}', true);
         select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[{JOBS}]));"
    ))
    .await;
    db
}

/// The statements of the first version's binary, word for word.
const ENQUEUE: &str = "
    select leasehold.enqueue($1, $2::bytea, tenant => $3, queue => $4, priority => $5,
        run_at => now() + $6 * interval '1 millisecond', max_attempts => $7,
        timeout => $8 * interval '1 millisecond', backoff => $9 * interval '1 millisecond', version => $10)";
const CLAIM: &str = "select * from leasehold.claim($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const COMPLETE: &str = "select leasehold.complete($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

struct Previous {
    client: tokio_postgres::Client,
    queues: Vec<String>,
}

impl Previous {
    async fn of(db: &TestDb) -> Self {
        Self { client: db.connect().await, queues: vec!["default".into()] }
    }

    /// A call that is under way in the very moment when its function is replaced fails as a whole, and is made again; anything else
    /// that fails is a failure.
    async fn enqueue(&self) -> i64 {
        let none: Option<f64> = None;
        let params: [&(dyn ToSql + Sync); 10] =
            [&"echo", &b"1".as_slice(), &"default", &"default", &0_i32, &0_f64, &5_i32, &none, &none, &None::<i32>];
        loop {
            match self.client.query_one(ENQUEUE, &params).await {
                Ok(row) => return row.get(0),
                Err(error) if error.as_db_error().is_some_and(|db| db.message().starts_with("cache lookup failed")) => {
                }
                Err(error) => panic!("enqueuing: {error:?}"),
            }
        }
    }

    /// Answers how many jobs it ran.
    async fn claim_and_complete(&self, limit: i32) -> usize {
        let lanes: (Vec<String>, Vec<i32>, Vec<std::time::SystemTime>, Vec<i64>) = Default::default();
        let params: [(&(dyn ToSql + Sync), Type); 9] = [
            (&1_i64, Type::INT8),
            (&self.queues, Type::TEXT_ARRAY),
            (&limit, Type::INT4),
            (&1_000_000_i64, Type::INT8),
            (&60_000_i32, Type::INT4),
            (&lanes.0, Type::TEXT_ARRAY),
            (&lanes.1, Type::INT4_ARRAY),
            (&lanes.2, Type::TIMESTAMPTZ_ARRAY),
            (&lanes.3, Type::INT8_ARRAY),
        ];
        let rows = loop {
            match self.client.query_typed(CLAIM, &params).await {
                Ok(rows) => break rows,
                // The function was replaced between its parsing and its execution. A claim that fails is sent again.
                Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => continue,
                Err(error) => panic!("claiming: {error:?}"),
            }
        };
        let head = &rows[0];
        let _: (Vec<String>, Vec<i64>, i64, i64) =
            (head.get("lane_queues"), head.get("lane_ids"), head.get("oldest_xid"), head.get("next_xid"));
        let ids: Vec<i64> = rows[1..].iter().map(|row| row.get("id")).collect();
        let lease_nos: Vec<i32> = rows[1..].iter().map(|row| row.get("lease_no")).collect();
        let count = ids.len();
        let (numbers, results) = (vec![1_i64; count], vec![Some(b"1".to_vec()); count]);
        let logs = vec![None::<String>; count];
        loop {
            let params: [&(dyn ToSql + Sync); 10] =
                [&1_i64, &ids, &lease_nos, &results, &numbers, &numbers, &numbers, &numbers, &logs, &numbers];
            match self.client.query(COMPLETE, &params).await {
                Ok(settled) => {
                    assert_eq!(settled.len(), count);
                    return count;
                }
                // As the previous binary does: it never waits long for a lock, and tries again.
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => panic!("completing: {error:?}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_upgraded_under_a_running_worker_of_the_previous_version() {
    let db = Arc::new(first_version().await);
    let files = "select string_agg(c.relname || ' ' || pg_relation_filenode(c.oid), ', ' order by c.relname) from pg_class c
                  where c.relnamespace = 'leasehold'::regnamespace and c.relname in ('live_jobs', 'live_jobs_claim', 'live_jobs_pkey', 'module_versions')";
    let before: String = db.value(files).await;
    let (stop, longest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut at_work = tokio::task::JoinSet::new();
    for producer in [false, true] {
        let (previous, stop, longest) = (Previous::of(&db).await, stop.clone(), longest.clone());
        at_work.spawn(async move {
            let mut calls = 0;
            while !stop.load(Relaxed) {
                let begun = Instant::now();
                if producer {
                    previous.enqueue().await;
                } else {
                    assert_eq!(previous.claim_and_complete(20).await, 20);
                }
                longest.fetch_max(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX), Relaxed);
                calls += 1;
            }
            calls
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let applied = db.store().migrate(false).await.expect("upgrading");
    assert!(applied.len() >= 2, "{applied:?}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.store(true, Relaxed);
    while let Some(calls) = at_work.join_next().await {
        assert!(calls.expect("a caller of the previous version failed") > 10);
    }
    assert_eq!(db.value::<String>(files).await, before, "no table or index was written anew");
    assert!(applied.iter().any(|step| step.name == "live_jobs_by_tenant"), "{applied:?}");
    assert!(db.store().shares().await.expect("shares").ready, "tenants share from now on");
    let lanes = "select count(*) from leasehold.tenant_lanes where (tenant_id, queue, priority) = (1, 'default', 0)";
    assert!(db.value::<i64>(lanes).await > 0);
    eprintln!("the longest call of the previous version took {} ms", longest.load(Relaxed));

    // What it had queued is run by a worker of this version too, and nothing is lost.
    let claimer = db.claimer().await;
    let claimed = claimer.claim(100).await;
    assert_eq!(claimed.len(), 100);
    let (live, ended): (i64, i64) = (
        db.value("select count(*) from leasehold.live_jobs").await,
        db.value("select count(*) from leasehold.history").await,
    );
    assert_eq!(live + ended, db.value::<i64>("select last_value from leasehold.live_jobs_id_seq").await);
}
