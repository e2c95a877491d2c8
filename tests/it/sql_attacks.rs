//! What a hostile, or careless, producer can do to the others with SQL alone: nothing.

use std::time::Duration;

use leasehold::job::JobId;
use leasehold_tests::db::refusal;
use leasehold_tests::scenario::eventually;
use leasehold_tests::workers::{TestWorker, quick};
use leasehold_tests::{TestDb, Upload, guests};
use tokio_postgres::Client;

/// A producer that has cancelled a job in a transaction which it leaves open.
async fn cancelling(db: &TestDb, id: JobId) -> Client {
    let (producer, _) = db.connect_as("leasehold_producer").await;
    producer.batch_execute("begin").await.expect("a transaction");
    let state = producer.query_one(&format!("select leasehold.cancel({id})::text"), &[]).await.expect("it is there");
    assert_eq!(state.get::<_, String>(0), "running");
    producer
}

async fn with_a_job_that_ends_while_it_is_being_cancelled(max_attempts: i32) -> (TestDb, TestWorker, JobId, Client) {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    db.push(Upload::component("sleep", &guests::core("sleep"))).await;
    let worker = db.worker_with(quick());
    let id = db.enqueue(&format!("'sleep', timeout => '3 s', max_attempts => {max_attempts}")).await;
    worker.guests_run(1).await;
    let producer = cancelling(&db, id).await;
    eventually("the run has ended", || worker.finished() > 0).await;
    (db, worker, id, producer)
}

#[tokio::test]
async fn a_cancel_in_an_open_transaction_keeps_no_other_job_from_its_end() {
    let (db, worker, held, producer) = with_a_job_that_ends_while_it_is_being_cancelled(1).await;
    for _ in 0..3 {
        let others = db.enqueue_many("echo", 10).await;
        for id in others {
            db.wait_for(id, "done").await;
        }
    }
    assert_eq!(db.state(held).await, "running");
    producer.batch_execute("rollback").await.expect("it ends");
    assert_eq!(db.wait_for(held, "dead").await.failure_kind.as_deref(), Some("timeout"));
    worker.drain().await;
}

#[tokio::test]
async fn a_cancel_that_commits_when_the_run_has_ended_still_keeps_it_from_another() {
    let (db, worker, held, producer) = with_a_job_that_ends_while_it_is_being_cancelled(2).await;
    producer.batch_execute("commit").await.expect("it ends");
    assert_eq!(db.wait_for(held, "cancelled").await.attempt, 1);
    worker.drain().await;
}

#[tokio::test]
async fn a_drain_leaves_a_job_that_an_open_transaction_holds_to_be_reaped() {
    let db = TestDb::new().await;
    db.push(Upload::component("sleep", &guests::core("sleep"))).await;
    let lease = Duration::from_secs(2);
    let worker = db.worker_with(leasehold::worker::WorkerConfig { lease, ..quick() });
    let id = db.enqueue("'sleep'").await;
    worker.guests_run(1).await;
    let producer = cancelling(&db, id).await;
    worker.stop().await;
    assert_eq!(db.state(id).await, "running");
    producer.batch_execute("rollback").await.expect("it ends");
    let next = db.worker();
    db.wait_until("it runs again", &format!("(select lease_no = 2 from leasehold.jobs where id = {id})")).await;
    next.stop().await;
}

#[tokio::test]
async fn a_cancel_in_an_open_transaction_keeps_no_other_job_from_being_reaped() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let [held, other] = db.enqueue_many("echo", 2).await[..] else { panic!("two were asked for") };
    assert_eq!(db.claim(2).await.len(), 2);
    let producer = cancelling(&db, held).await;
    db.expire_lease(other).await;
    let reaped: Vec<_> = db.reap().await.into_iter().map(|reaped| reaped.job_id).collect();
    assert_eq!(reaped, [other]);
    assert_eq!(db.state(held).await, "running");
    producer.batch_execute("rollback").await.expect("it ends");
    db.wait_until("its turn comes", "(select bool_and(locked_until < clock_timestamp()) from leasehold.claims)").await;
    let reaped: Vec<_> = db.reap().await.into_iter().map(|reaped| reaped.job_id).collect();
    assert_eq!(reaped, [held]);
}

/// What a producer tries, and the SQLSTATE that it is told. 42501 is a missing privilege, LH003 a bad argument.
const REFUSED: &[(&str, &str)] = &[
    // Rows that are not its own to touch.
    ("select * from leasehold.live_jobs", "42501"),
    ("select payload from leasehold.history_default", "42501"),
    ("select bytes from leasehold.module_bytes", "42501"),
    ("insert into leasehold.lanes values ('default', 100)", "42501"),
    ("insert into leasehold.sleepers values ('default', 1, 'infinity')", "42501"),
    ("update leasehold.claims set locked_until = 'infinity'", "42501"),
    ("delete from leasehold.workers", "42501"),
    ("delete from leasehold.jobs", "55000"),
    ("update leasehold.jobs set priority = 100", "55000"),
    ("truncate leasehold.attempts", "42501"),
    ("copy leasehold.modules to stdout", "42501"),
    ("select * from leasehold.live_jobs_id_seq", "42501"),
    ("select setval('leasehold.live_jobs_id_seq', 1)", "42501"),
    ("select nextval('leasehold.claims_claim_id_seq')", "42501"),
    ("select lastval()", "55000"),
    // What only workers and the owner do.
    ("select leasehold.register_worker('h', 1, 'v', '{default}', 1)", "42501"),
    ("select leasehold.heartbeat(1, '{}', '{}', 1, '{}', '{}')", "42501"),
    ("select leasehold.complete(1, '{1}', '{1}', '{x}', '{1}', '{1}', '{1}', '{1}', '{null}', '{0}')", "42501"),
    ("select leasehold.free_of_locks('{1}')", "42501"),
    ("select leasehold.retire_worker(1, '{}')", "42501"),
    ("select leasehold.recover_claims(1, '{}')", "42501"),
    ("select leasehold.sleep(1, '{default}', 0)", "42501"),
    ("select leasehold.wake('default')", "42501"),
    ("select leasehold.maintain_partitions(1, 0)", "42501"),
    ("select leasehold.check_enqueue('echo', 'default', 'q', 0, 1, null, null, null)", "42501"),
    ("select leasehold.activate_module('default', 'echo', null)", "42501"),
    ("select leasehold.push_module('default', 'm', 'command', 'x', 1, 1, 1, 1, 1, '{}', '{}', true)", "42501"),
    ("set role leasehold_worker", "42501"),
    ("set session_replication_role = replica", "42501"),
    ("drop view leasehold.jobs", "42501"),
    ("create or replace view leasehold.jobs as select 1", "42501"),
    ("create function leasehold.cancel(text) returns int language sql as 'select 1'", "42501"),
    ("alter function leasehold.cancel(bigint) reset all", "42501"),
    (
        "create trigger t after insert on leasehold.live_jobs execute function suppress_redundant_updates_trigger()",
        "42501",
    ),
    ("create rule r as on insert to leasehold.live_jobs do instead nothing", "42501"),
    ("create policy p on leasehold.live_jobs", "42501"),
    // Absurd arguments.
    ("select leasehold.enqueue(null)", "LH002"),
    ("select leasehold.enqueue(repeat('m', 1000000))", "LH002"),
    ("select leasehold.enqueue('echo', tenant => null)", "LH001"),
    ("select leasehold.enqueue('echo', tenant => repeat('t', 1000000))", "LH001"),
    ("select leasehold.enqueue('echo', null::jsonb)", "LH003"),
    ("select leasehold.enqueue('echo', null::bytea)", "LH003"),
    ("select leasehold.enqueue('echo', 'not json')", "22P02"),
    ("select leasehold.enqueue('echo', repeat('[', 100000))", "54001"),
    ("select leasehold.enqueue('echo', convert_to(repeat('x', 16777217), 'UTF8'))", "LH003"),
    ("select leasehold.enqueue('echo', '[' || repeat('1e131071,', 128) || '1]')", "LH003"),
    ("select leasehold.enqueue('echo', queue => null)", "LH003"),
    ("select leasehold.enqueue('echo', queue => E'mail\n')", "LH003"),
    ("select leasehold.enqueue('echo', queue => repeat('q', 1000000))", "LH003"),
    ("select leasehold.enqueue('echo', priority => null)", "LH003"),
    ("select leasehold.enqueue('echo', priority => 65536)", "LH003"),
    ("select leasehold.enqueue('echo', priority => -2147483648)", "LH003"),
    ("select leasehold.enqueue('echo', concurrency_limit => 0, concurrency_key => 'k')", "LH003"),
    ("select leasehold.enqueue('echo', concurrency_limit => 2)", "LH003"),
    ("select leasehold.enqueue('echo', concurrency_key => repeat('k', 256))", "LH003"),
    ("select leasehold.enqueue('echo', concurrency_key => '')", "LH003"),
    ("select leasehold.enqueue('echo', unique_key => repeat('k', 256))", "LH003"),
    ("select leasehold.enqueue('echo', unique_for => '1 hour')", "LH003"),
    ("select leasehold.enqueue('echo', unique_key => 'k', unique_for => '-1 hour')", "LH003"),
    ("select leasehold.enqueue('echo', on_conflict => 'replace')", "LH003"),
    ("select leasehold.enqueue('echo', expires_at => 'infinity')", "LH003"),
    ("select leasehold.enqueue('echo', expires_at => '-infinity')", "LH003"),
    ("select leasehold.enqueue('echo', backoff_factor => 'NaN')", "LH003"),
    ("select leasehold.enqueue('echo', backoff_factor => 1e300)", "LH003"),
    ("select leasehold.enqueue('echo', backoff_jitter => 2)", "LH003"),
    ("select leasehold.enqueue('echo', backoff_cap => '-1 second')", "LH003"),
    ("select leasehold.enqueue('echo', on_dead => 'explode')", "LH003"),
    ("select leasehold.enqueue('echo', after => array[-1])", "LH004"),
    ("select leasehold.enqueue('echo', after => array_fill(1, array[10001]))", "LH003"),
    ("select leasehold.wait(1, '2 hours')", "LH003"),
    ("select leasehold.wait(-1)", "LH004"),
    ("select leasehold.result(-1)", "LH004"),
    ("select leasehold.explain(-1)", "LH004"),
    ("select leasehold.redrive_many(max_jobs => 0)", "LH003"),
    ("select leasehold.redrive_many(state => 'running')", "LH003"),
    ("select leasehold.pause(tenant => 'default')", "42501"),
    ("select leasehold.set_rate(1)", "42501"),
    ("select leasehold.set_cap(1)", "42501"),
    ("select leasehold.job_options(null, null, null, null, null, null, null, null, null, null, null)", "42501"),
    ("select leasehold.enqueue('echo', max_attempts => 2147483647)", "LH003"),
    ("select leasehold.enqueue('echo', timeout => '-1 s')", "LH003"),
    ("select leasehold.enqueue('echo', timeout => '178000000 years')", "LH003"),
    ("select leasehold.enqueue('echo', backoff => '-178000000 years')", "LH003"),
    ("select leasehold.enqueue('echo', version => -2147483648)", "LH002"),
    ("select leasehold.enqueue_many('echo', null)", "LH003"),
    ("select leasehold.enqueue_many('echo', array[null]::jsonb[])", "LH003"),
    ("select leasehold.enqueue_many('echo', '[-2147483648:-2147483647]={1,null}'::jsonb[])", "LH003"),
    ("select leasehold.enqueue_many('echo', array[array['1'], array['2']]::jsonb[])", "LH003"),
    ("select leasehold.enqueue_many('echo', array['1', '[' || repeat('1e131071,', 128) || '1]']::jsonb[])", "LH003"),
    (
        "select leasehold.enqueue_bytes(null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)",
        "LH001",
    ),
    ("select leasehold.cancel(null)", "LH004"),
    ("select leasehold.cancel(-9223372036854775808)", "LH004"),
    ("select leasehold.redrive(9223372036854775807)", "LH004"),
];

/// What it may do, however odd, without harm to anybody.
const HARMLESS: &[&str] = &[
    "select leasehold.enqueue('echo', run_at => 'infinity')",
    "select leasehold.enqueue('echo', run_at => '-infinity')",
    "select leasehold.enqueue('echo', run_at => '294276-12-31 23:59:59.999999+00')",
    "select leasehold.enqueue('echo', run_at => '4714-11-24 00:00:00+00 BC')",
    "select leasehold.enqueue('echo', timeout => '1 month -29 days', backoff => '0 s')",
    "select leasehold.enqueue('echo', convert_to(repeat('x', 16777216), 'UTF8'))",
    "select leasehold.enqueue('echo', repeat('[', 5000) || repeat(']', 5000))",
    "select leasehold.enqueue_many('echo', '{}')",
    "select leasehold.enqueue_many('echo', '[5:6]={1,2}'::jsonb[])",
    "select leasehold.enqueue('echo', queue => 'q' || n, priority => n) from generate_series(-100, 100) n",
    "select leasehold.enqueue('echo', priority => n) from generate_series(-100, 100) n",
    "select leasehold.as_json(convert_to(repeat('[', 1000000), 'UTF8')) is null",
    "select pg_notify('leasehold_wake', repeat('x', 7999)), pg_notify('leasehold_cancel', 'x' || n) from generate_series(1, 1000) n",
    "select pg_notify('leasehold_cancel', '99999999999999999999')",
    // Held until the session ends: the migrator's lock, that of the partitions, and whatever else.
    "select pg_advisory_lock(7236213), pg_advisory_lock(hashtext('leasehold.maintain_partitions'))",
];

/// Names that a security definer function without a search_path of its own would pick up.
const SHADOWS: &str = "
    create temp table live_jobs (id bigint);
    create temp table tenants as select 1 as tenant_id, 'default'::text as name;
    create function pg_temp.clock_timestamp() returns timestamptz language sql as $$ select 'infinity'::timestamptz $$;
    create function pg_temp.sha256(bytea) returns bytea language sql as $$ select ''::bytea $$;
    create function pg_temp.octet_length(bytea) returns int language sql as $$ select 0 $$;
    create function pg_temp.mine(int, int) returns boolean language sql as $$ select true $$;
    create operator pg_temp.= (leftarg = int, rightarg = int, function = pg_temp.mine);
    create operator pg_temp.> (leftarg = int, rightarg = int, function = pg_temp.mine);
    set search_path = pg_temp, pg_catalog, public;
";

#[tokio::test]
async fn whatever_a_producer_says_the_others_jobs_run_on() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let worker = db.worker();
    let (producer, _) = db.connect_as("leasehold_producer").await;
    for (sql, code) in REFUSED {
        let refused = refusal(&producer, sql).await;
        assert_eq!(refused.code, *code, "{sql}: {refused}");
        assert!(refused.message.len() < 300, "{sql}: {refused}");
    }
    for sql in HARMLESS {
        producer.query(*sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    let ordinary = db.enqueue("'echo', '1'").await;
    db.wait_for(ordinary, "done").await;
    let due = "select count(*) from leasehold.queue_stats where queue = 'default' and (oldest_due_age is not null or state = 'running')";
    db.wait_until("all that was due ran", &format!("({due}) = 0")).await;
    let states: Vec<String> =
        db.column("select distinct state::text from leasehold.jobs where queue = 'default' order by 1").await;
    assert_eq!(states, ["dead", "done", "queued"], "the largest payload does not fit into the guest");
    worker.drain().await;
}

#[tokio::test]
async fn no_name_of_a_producers_own_gets_into_the_functions() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let (producer, _) = db.connect_as("leasehold_producer").await;
    producer.batch_execute(SHADOWS).await.expect("it may have temporary things");
    let id: i64 = producer.query_one("select leasehold.enqueue('echo')", &[]).await.expect("it is taken").get(0);
    let [many]: [i64; 1] = producer
        .query("select leasehold.enqueue_many('echo', array['1']::jsonb[])", &[])
        .await
        .expect("it is taken")
        .iter()
        .map(|row| row.get(0))
        .collect::<Vec<_>>()
        .try_into()
        .expect("one was asked for");
    assert_eq!(db.claim(10).await.iter().map(|job| job.id.0).collect::<Vec<_>>(), [id, many], "due at the real time");
    let refused =
        refusal(&producer, "select leasehold.enqueue('echo', convert_to(repeat('x', 16777217), 'UTF8'))").await;
    assert_eq!(refused.message, "payload of 16777217 bytes exceeds the limit of 16777216 bytes");
    let refused = refusal(&producer, "select leasehold.enqueue('echo', priority => 101)").await;
    assert_eq!(refused.message, "priority 101 is outside -100 to 100");
    assert_eq!(producer.query("select * from live_jobs", &[]).await.expect("its own").len(), 0);
}

#[tokio::test]
async fn an_open_transaction_of_one_producer_holds_up_no_other() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let worker = db.worker();
    let (holder, _) = db.connect_as("leasehold_producer").await;
    holder
        .batch_execute(
            "begin isolation level serializable; lock table leasehold.jobs in access share mode;
             select leasehold.enqueue('echo', queue => 'default', priority => 7); select count(*) from leasehold.jobs;
             declare c cursor for select * from leasehold.jobs; fetch 1 from c",
        )
        .await
        .expect("it may");
    for priority in [0, 7] {
        let id = db.enqueue(&format!("'echo', priority => {priority}")).await;
        db.wait_for(id, "done").await;
    }
    holder.batch_execute("rollback").await.expect("it ends");
    worker.drain().await;
}
