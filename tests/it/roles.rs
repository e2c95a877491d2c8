//! What each role may do, as a login role that has it meets it.

use leasehold_tests::db::{connect, refusal, store};
use leasehold_tests::workers::{TestWorker, quick};
use leasehold_tests::{TestDb, binary};
use tokio_postgres::Client;

async fn allowed(client: &Client, sql: &str) {
    client.query(sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

async fn denied(client: &Client, sql: &str) {
    let refused = refusal(client, sql).await;
    assert_eq!(refused.code, "42501", "{sql}: {refused}");
}

/// Every function of the schema, each with a call that gets as far as the permission check: by its name and signature.
async fn functions_granted_to(db: &TestDb, role: &str) -> Vec<String> {
    db.column(&format!(
        "select distinct p.proname::text from pg_proc p
          where p.pronamespace = 'leasehold'::regnamespace and has_function_privilege('{role}', p.oid, 'execute') order by 1"
    ))
    .await
}

#[tokio::test]
async fn a_producer_enqueues_cancels_redrives_and_looks_and_does_nothing_else() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let (producer, _) = db.connect_as("leasehold_producer").await;
    for sql in [
        "select leasehold.enqueue('echo')",
        "select leasehold.enqueue('echo', '1'::text)",
        "select leasehold.enqueue('echo', '\\x00'::bytea, queue => 'new', priority => 3)",
        "select leasehold.enqueue_many('echo', array['1']::jsonb[])",
        "select leasehold.cancel(1)",
        "select leasehold.redrive(1)",
        "select leasehold.schedule('s', '@hourly', 'echo')",
        "select leasehold.schedule('s', '@hourly', 'echo', '{}'::jsonb, missed => 'all')",
        "select leasehold.schedule('s', '@hourly', 'echo', '\\x00'::bytea)",
        "select leasehold.pause_schedule('s')",
        "select leasehold.resume_schedule('s')",
        "select leasehold.fire_schedule('s')",
        "select * from leasehold.schedules",
        "select leasehold.unschedule('s')",
        "select * from leasehold.jobs",
        "select * from leasehold.job_attempts",
        "select * from leasehold.job_logs",
        "select * from leasehold.queue_stats",
    ] {
        allowed(&producer, sql).await;
    }
    let tables: Vec<String> = db
        .column(
            "select c.relname::text from pg_class c where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'p') order by 1",
        )
        .await;
    assert!(tables.len() >= 10, "{tables:?}");
    for table in tables {
        denied(&producer, &format!("select * from leasehold.{table}")).await;
        denied(&producer, &format!("delete from leasehold.{table}")).await;
        denied(&producer, &format!("insert into leasehold.{table} default values")).await;
        denied(&producer, &format!("truncate leasehold.{table}")).await;
    }
    denied(&producer, "update leasehold.live_jobs set payload = ''").await;
    denied(&producer, "create table leasehold.mine ()").await;
    assert_eq!(
        functions_granted_to(&db, "leasehold_producer").await,
        [
            "as_json",
            "cancel",
            "enqueue",
            "enqueue_bytes",
            "enqueue_many",
            "explain",
            "fire_schedule",
            "log_rows",
            "log_text",
            "new_group",
            "pause_schedule",
            "redrive",
            "redrive_many",
            "result",
            "resume_schedule",
            "schedule",
            "schedule_bytes",
            "schedule_is_held",
            "unschedule",
            "wait",
        ]
    );
    denied(&producer, "select leasehold.reap(1, 1)").await;
    denied(&producer, "select * from leasehold.due_schedules(1)").await;
    denied(&producer, "select leasehold.fire_schedules('{}', '{}', '{}', '{}', '{}', '{}', 1)").await;
    denied(&producer, "select leasehold.find_schedule('s', 'default')").await;
    denied(&producer, "select leasehold.move_to_cancelled(1, null, null, null, null, null)").await;
    denied(&producer, "select leasehold.claim(1, '{default}', 1, 1, 1, '{}', '{}', '{}', '{}')").await;
    denied(&producer, "select leasehold.remove_module('default', 'echo', true)").await;
}

#[tokio::test]
async fn a_worker_role_can_run_a_worker_and_does_not_reach_into_rows() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    db.push_wat("unreachable").await;
    db.push_wat("wait_for_cancel").await;
    let (worker_session, url) = db.connect_as("leasehold_worker").await;
    let worker = TestWorker::start(&url, quick());
    let [echo, trap] = [db.enqueue("'echo'").await, db.enqueue("'unreachable', max_attempts => 1").await];
    let cancelled = db.enqueue("'wait_for_cancel', timeout => '1 hour'").await;
    db.wait_for(echo, "done").await;
    db.wait_for(trap, "dead").await;
    worker.guests_run(1).await;
    db.cancel(cancelled).await;
    db.wait_for(cancelled, "cancelled").await;
    let lost = db.claimer().await;
    db.sql("select leasehold.enqueue('echo', queue => 'elsewhere')").await;
    let elsewhere = leasehold_tests::Claimer::new(db.store().clone(), &["elsewhere"]).await.claim(1).await;
    db.expire_lease(elsewhere[0].id).await;
    db.wait_for(elsewhere[0].id, "queued").await; // reaped by the worker
    db.sql("select leasehold.schedule('s', '* * * * * *', 'echo')").await;
    db.wait_until("it fires", "exists (select from leasehold.schedules where last_job_id is not null)").await;
    db.sql("select leasehold.unschedule('s')").await;
    db.wait_until(
        "partitions are made",
        "(select count(*) from pg_inherits where inhparent = 'leasehold.history'::regclass) > 7",
    )
    .await;
    worker.drain().await;
    drop(lost);
    for table in ["live_jobs", "history", "attempts", "claims", "lanes", "sleepers", "timetable"] {
        denied(&worker_session, &format!("select * from leasehold.{table}")).await;
        denied(&worker_session, &format!("delete from leasehold.{table}")).await;
    }
    for sql in [
        "update leasehold.live_jobs set payload = ''",
        "insert into leasehold.tenants (name) values ('mine')",
        "update leasehold.module_bytes set bytes = ''",
        "delete from leasehold.workers",
        "select leasehold.move_to_cancelled(1, null, null, null, null, null)",
        "select leasehold.give_back(1, 'x', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
        "create table leasehold.mine ()",
    ] {
        denied(&worker_session, sql).await;
    }
}

#[tokio::test]
async fn somebody_without_a_role_reaches_nothing() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let role = format!("{}_nobody", db.name());
    db.sql(&format!("create role {role} login password 'secret'")).await;
    let url = leasehold_tests::db::as_user(db.url(), &role);
    let nobody = connect(&url).await;
    denied(&nobody, "select leasehold.enqueue('echo')").await;
    denied(&nobody, "select * from leasehold.jobs").await;
    assert_eq!(functions_granted_to(&db, &role).await, [""; 0]);
}

#[tokio::test]
async fn an_owner_that_may_not_create_roles_grants_to_those_that_exist() {
    let db = TestDb::empty().await;
    // The groups belong to the whole server, so other databases have made them by now.
    db.sql("do $$ begin create role leasehold_worker; exception when duplicate_object then null; end $$").await;
    db.sql("do $$ begin create role leasehold_producer; exception when duplicate_object then null; end $$").await;
    let owner = format!("{}_owner", db.name());
    db.sql(&format!("create role {owner} login password 'secret'; alter database {} owner to {owner}", db.name()))
        .await;
    let url = leasehold_tests::db::as_user(db.url(), &owner);
    store(&url).migrate(false).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert!(store(&url).migrate(false).await.unwrap_or_else(|error| panic!("{error:#}")).is_empty());
    let (producer, _) = db.connect_as("leasehold_producer").await;
    let refused = refusal(&producer, "select leasehold.enqueue('echo')").await;
    assert_eq!(refused.code, "LH002", "{refused}");
    // Everything else works as this owner too.
    binary::run(&url, &["tenant", "create", "acme"]).await.ok();
    let (_, worker_url) = db.connect_as("leasehold_worker").await;
    let worker = TestWorker::start(&worker_url, quick());
    worker.drain().await;
    // Dropping the database has to be possible for whoever made it.
    db.sql(&format!("alter database {} owner to current_user; reassign owned by {owner} to current_user", db.name()))
        .await;
}
