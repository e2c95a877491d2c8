//! Jobs that wait for others, groups, and clients that wait for a job.

use std::time::Duration;

use leasehold::job::JobId;
use leasehold_tests::TestDb;

async fn with_module() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

async fn end_next(db: &TestDb, id: JobId, well: bool) {
    let job = db.claim_one().await;
    assert_eq!(job.id, id, "another job came first");
    if well {
        db.complete(job).await
    } else {
        db.bury(job).await
    };
}

#[tokio::test]
async fn a_job_waits_until_all_the_others_are_done() {
    let db = with_module().await;
    let [a, b] = [db.enqueue("'echo'").await, db.enqueue("'echo'").await];
    let last = db.enqueue(&format!("'echo', after => array[{a}, {b}]")).await;
    end_next(&db, a, true).await;
    assert!(db.value::<bool>(&format!("select waiting from leasehold.jobs where id = {last}")).await);
    end_next(&db, b, true).await;
    end_next(&db, last, true).await;
    assert_eq!(db.value::<i64>("select count(*) from leasehold.dependencies").await, 0);
    // What has ended is not waited for.
    let late = db.enqueue(&format!("'echo', after => array[{a}, {last}]")).await;
    end_next(&db, late, true).await;
}

#[tokio::test]
async fn what_becomes_of_a_job_whose_other_dies_is_its_own_choice() {
    let db = with_module().await;
    let a = db.enqueue("'echo', priority => 1").await;
    let cancelled = db.enqueue(&format!("'echo', after => array[{a}]")).await;
    let with_it = db.enqueue(&format!("'echo', after => array[{cancelled}]")).await;
    let run = db.enqueue(&format!("'echo', after => array[{a}], on_dead => 'run'")).await;
    let wait = db.enqueue(&format!("'echo', after => array[{a}], on_dead => 'wait'")).await;
    end_next(&db, a, false).await;
    assert_eq!(db.state(cancelled).await, "cancelled");
    assert_eq!(db.state(with_it).await, "cancelled", "and so on down the chain");
    end_next(&db, run, true).await;
    assert!(db.claim(5).await.is_empty());
    // The same for those that come when it is dead already.
    let too_late = db.enqueue(&format!("'echo', after => array[{a}]")).await;
    assert_eq!(db.state(too_late).await, "cancelled");
    let wait_too = db.enqueue(&format!("'echo', after => array[{a}], on_dead => 'wait'")).await;
    assert!(db.redrive(a).await);
    assert_eq!(db.claim(5).await.iter().map(|job| job.id).collect::<Vec<_>>(), [a]);
    db.sql("update leasehold.live_jobs set lease_no = lease_no").await;
    let attempt = db.value::<i32>(&format!("select lease_no from leasehold.jobs where id = {a}")).await;
    db.sql(&format!("select leasehold.complete(1, array[{a}]::bigint[], array[{attempt}], array[null::bytea], '{{1}}', '{{1}}', '{{1}}', '{{1}}', array[null::text], '{{0}}')"))
        .await;
    end_next(&db, wait, true).await;
    end_next(&db, wait_too, true).await;
}

#[tokio::test]
async fn a_callback_runs_when_a_group_has_ended_however() {
    let db = with_module().await;
    let group: i64 = db.value("select leasehold.new_group()").await;
    let members: Vec<i64> = db
        .column(&format!("select leasehold.enqueue_many('echo', array['1', '2']::jsonb[], group_id => {group})"))
        .await;
    let third = db.enqueue(&format!("'echo', group_id => {group}")).await;
    let callback = db.enqueue(&format!("'echo', after_group => {group}, on_dead => 'run'")).await;
    end_next(&db, JobId(members[0]), true).await;
    end_next(&db, JobId(members[1]), false).await;
    assert_eq!(db.cancel(third).await, "cancelled");
    end_next(&db, callback, true).await;
}

#[tokio::test]
async fn a_job_enqueued_while_its_other_ends_is_found_by_the_sweep() {
    let db = with_module().await;
    let a = db.enqueue("'echo'").await;
    let mut other = db.connect().await;
    let tx = other.transaction().await.expect("beginning");
    let waiting: i64 = tx
        .query_one(&format!("select leasehold.enqueue('echo', after => array[{a}])"), &[])
        .await
        .expect("enqueuing")
        .get(0);
    // It ends without seeing who is about to wait for it, and without waiting for that transaction.
    end_next(&db, a, true).await;
    tx.commit().await.expect("committing");
    assert!(db.claim(5).await.is_empty());
    db.store().sweep().await.expect("sweeping");
    end_next(&db, JobId(waiting), true).await;
}

#[tokio::test]
async fn a_long_chain_of_dead_jobs_is_cancelled_bit_by_bit() {
    let db = with_module().await;
    let first = db.enqueue("'echo'").await;
    db.sql(
        "do $$ declare id bigint := 1; begin for n in 1..2500 loop id := leasehold.enqueue('echo', after => array[id]); end loop; end $$",
    )
    .await;
    end_next(&db, first, false).await;
    let left = || db.value::<i64>("select count(*) from leasehold.live_jobs");
    assert_eq!(left().await, 1500, "a settlement does a bounded share of it");
    for _ in 0..10 {
        db.store().sweep().await.expect("sweeping");
    }
    assert_eq!(left().await, 0);
}

#[tokio::test]
async fn only_jobs_of_the_same_tenant_can_be_waited_for() {
    let db = with_module().await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    db.push(leasehold_tests::Upload { tenant: "acme", ..leasehold_tests::Upload::command("echo", b"\0asm\x01\0\0\0") })
        .await;
    let theirs = db.enqueue("'echo', tenant => 'acme'").await;
    for (after, named) in [
        (format!("array[{theirs}]"), theirs.to_string()),
        ("array[999]".into(), "999".into()),
        ("array[null::bigint]".into(), "null".into()),
    ] {
        let refusal = db.refusal(&format!("select leasehold.enqueue('echo', after => {after})")).await;
        assert_eq!((refusal.code.as_str(), refusal.message), ("LH004", format!("there is no job {named} to wait for")));
    }
}

#[tokio::test]
async fn a_client_waits_for_a_job_and_reads_its_result() {
    let db = with_module().await;
    let id = db.enqueue("'echo'").await;
    assert_eq!(db.value::<String>(&format!("select leasehold.wait({id}, '50 milliseconds')::text")).await, "queued");
    let client = db.connect().await;
    let waiting = tokio::spawn(async move {
        client
            .query_one(&format!("select leasehold.wait({id}, '30 seconds')::text"), &[])
            .await
            .map(|row| row.get::<_, String>(0))
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    let refusal = db.refusal(&format!("select leasehold.result({id})")).await;
    assert_eq!((refusal.code.as_str(), refusal.message), ("LH007", format!("job {id} has not ended")));
    end_next(&db, id, true).await;
    assert_eq!(waiting.await.expect("no panic").expect("waiting"), "done");
    assert_eq!(db.value::<String>(&format!("select leasehold.result({id})::text")).await, "null");
    let dead = db.enqueue("'echo'").await;
    end_next(&db, dead, false).await;
    let refusal = db.refusal(&format!("select leasehold.result({dead})")).await;
    assert_eq!(refusal.message, format!("job {dead} is dead: it is hopeless"));
    let refusal = db
        .refusal("with j as materialized (select leasehold.enqueue('echo') as id) select leasehold.wait(id) from j")
        .await;
    assert!(
        refusal.message.ends_with("was enqueued by this transaction; nobody can run it before the commit"),
        "{refusal:?}"
    );
}

#[tokio::test]
async fn who_asked_hears_of_the_end() {
    let db = with_module().await;
    let (client, mut connection) = tokio_postgres::connect(db.url(), tokio_postgres::NoTls).await.expect("connecting");
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let driver = tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let tokio_postgres::AsyncMessage::Notification(note) = message {
                let _ = said.send(note.payload().to_owned());
            }
        }
    });
    client.batch_execute("listen leasehold_ended").await.expect("listening");
    let quiet = db.enqueue("'echo'").await;
    let [a, b, c] = [
        db.enqueue("'echo', notify => true").await,
        db.enqueue("'echo', notify => true").await,
        db.enqueue("'echo', notify => true").await,
    ];
    let late = db
        .enqueue(
            "'echo', notify => true, run_at => now() + interval '1 hour', expires_at => now() + interval '2 hours'",
        )
        .await;
    end_next(&db, quiet, true).await;
    end_next(&db, a, true).await;
    end_next(&db, b, false).await;
    db.cancel(c).await;
    db.sql(&format!(
        "update leasehold.live_jobs set expires_at = now() where id = {late}; update leasehold.expiries set expires_at = now() where job_id = {late}"
    ))
    .await;
    db.store().sweep().await.expect("sweeping");
    for expected in [format!("{a} done"), format!("{b} dead"), format!("{c} cancelled"), format!("{late} dead")] {
        assert_eq!(
            tokio::time::timeout(leasehold_tests::PATIENCE, heard.recv()).await.expect("in time"),
            Some(expected)
        );
    }
    driver.abort();
    let _ = driver.await;
}
