//! What runs used is counted once for each run, however it ends, and with its settlement or not at all.

use std::time::Duration;

use leasehold::outcome::Usage;
use leasehold::settlement::{HOST_FAULT_DELAY, Settled, Settlement};
use leasehold::store::ClaimedJob;
use leasehold_tests::scenario::report;
use leasehold_tests::{TestDb, trap};

/// runs, failed, crashed, cpu_ms, fuel, bytes in, bytes out
async fn counted(db: &TestDb) -> Vec<i64> {
    db.column(
        "select unnest(array[sum(runs), sum(failed), sum(crashed), sum(cpu_ms), sum(fuel), sum(bytes_in), sum(bytes_out)])::bigint from leasehold.usage",
    )
    .await
}

/// Settles a run that took 3 ms of processor time and 1,000 of fuel.
async fn settle(db: &TestDb, job: &ClaimedJob, settlement: Settlement) -> Settled {
    let mut report = report(job, settlement);
    report.usage = Usage {
        fuel: 1_000,
        wall: Duration::from_millis(4),
        cpu: Duration::from_millis(3),
        memory_peak_bytes: 1 << 20,
        result_bytes: 0,
    };
    db.settle_all(vec![report]).await.remove(0)
}

#[tokio::test]
async fn each_run_counts_once_however_it_ends() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let mut expected = [0; 7];
    let ends = [
        (Settlement::Complete { result: b"12345".to_vec() }, [1, 0, 0, 3, 1_000, 2, 5]),
        (Settlement::Fail { failure: trap("unreachable"), delay: Duration::from_secs(60) }, [1, 1, 0, 3, 1_000, 2, 0]),
        (Settlement::Bury { failure: trap("unreachable") }, [1, 1, 0, 3, 1_000, 2, 0]),
        (Settlement::Snooze { delay: Duration::from_secs(60) }, [1, 0, 0, 3, 1_000, 2, 0]),
        (Settlement::Release { fault: None, delay: HOST_FAULT_DELAY * 60 }, [1, 0, 0, 3, 1_000, 2, 0]),
    ];
    for (settlement, used) in ends {
        let job = db.enqueue_and_claim("echo").await;
        let again = settlement.clone();
        assert_eq!(settle(&db, &job, settlement).await, Settled::Yes);
        assert_eq!(settle(&db, &job, again).await, Settled::LeaseLost, "and not twice");
        expected = std::array::from_fn(|n| expected[n] + used[n]);
        assert_eq!(counted(&db).await, expected);
    }
    // Cancelled while it ran.
    let job = db.enqueue_and_claim("echo").await;
    db.cancel(job.id).await;
    assert_eq!(settle(&db, &job, Settlement::FinishCancel).await, Settled::Yes);
    expected = std::array::from_fn(|n| expected[n] + [1, 0, 0, 3, 1_000, 2, 0][n]);
    assert_eq!(counted(&db).await, expected);
    // Given back before it ran: no run.
    let job = db.enqueue_and_claim("echo").await;
    assert_eq!(db.release(job).await, Settled::Yes);
    assert_eq!(counted(&db).await, expected);
    // Adding up changes nothing.
    let mut sweeps = 0;
    while db.value::<bool>("select exists (select from leasehold.usage_log)").await {
        sweeps += 1;
        assert!(sweeps < 1_000, "each fifth sweep adds up, by chance");
        db.store().sweep().await.expect("sweeping");
    }
    assert_eq!(counted(&db).await, expected);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.usage_days").await, 1);
}

#[tokio::test]
async fn a_lost_run_counts_as_crashed_and_what_it_tells_later_not_at_all() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let stale = db.enqueue_and_claim("echo").await;
    db.expire_lease(stale.id).await;
    db.reap().await;
    assert_eq!(counted(&db).await, [1, 1, 1, 0, 0, 2, 0]);
    assert_eq!(settle(&db, &stale, Settlement::Complete { result: b"1".to_vec() }).await, Settled::LeaseLost);
    assert_eq!(counted(&db).await, [1, 1, 1, 0, 0, 2, 0]);
    let fresh = db.claim_one().await;
    assert_eq!(settle(&db, &fresh, Settlement::Complete { result: b"1".to_vec() }).await, Settled::Yes);
    assert_eq!(counted(&db).await, [2, 1, 1, 3, 1_000, 4, 1]);
}

#[tokio::test]
async fn a_settlement_that_is_rolled_back_is_not_on_the_bill() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let job = db.enqueue_and_claim("echo").await;
    db.sql(&format!(
        "begin;
         select leasehold.complete(1, array[{}], array[{}], array['1']::bytea[], array[1], array[1], array[1], array[1], array[null]::text[], array[0]);
         rollback",
        job.id, job.lease_no
    ))
    .await;
    assert_eq!(db.value::<i64>("select count(*) from leasehold.usage").await, 0);
}
