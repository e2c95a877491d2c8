//! Promise 1: a job enqueued in a transaction exists if and only if that transaction commits. And the rest of what a
//! producer's SQL can say.

use leasehold::job::JobId;
use leasehold_tests::TestDb;
use leasehold_tests::db::refusal;

async fn with_module() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

#[tokio::test]
async fn a_job_exists_once_its_transaction_commits() {
    let db = with_module().await;
    let mut producer = db.connect().await;
    let transaction = producer.transaction().await.expect("a transaction");
    transaction.query_one("select leasehold.enqueue('echo')", &[]).await.expect("it is taken");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs").await, 0);
    assert!(db.claim(10).await.is_empty());
    transaction.commit().await.expect("it commits");
    assert_eq!(db.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_job_of_a_transaction_that_rolls_back_never_was() {
    let db = with_module().await;
    let mut producer = db.connect().await;
    let transaction = producer.transaction().await.expect("a transaction");
    transaction.query_one("select leasehold.enqueue('echo')", &[]).await.expect("it is taken");
    transaction
        .query("select * from leasehold.enqueue_many('echo', array['1', '2']::jsonb[])", &[])
        .await
        .expect("too");
    transaction.rollback().await.expect("it rolls back");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs").await, 0);
    assert!(db.claim(10).await.is_empty());
}

#[tokio::test]
async fn a_savepoint_takes_with_it_only_what_came_after_it() {
    let db = with_module().await;
    db.sql(
        "begin;
         select leasehold.enqueue('echo', '\"before\"');
         savepoint here;
         select leasehold.enqueue('echo', '\"in between\"', queue => 'fresh', priority => 7);
         rollback to here;
         select leasehold.enqueue('echo', '\"after\"', queue => 'fresh', priority => 7);
         commit",
    )
    .await;
    let kept: Vec<String> = db.column("select convert_from(payload, 'UTF8') from leasehold.jobs order by id").await;
    assert_eq!(kept, ["\"before\"", "\"after\""]);
    // The first job of a queue makes the queue known; that must not hang on the job that was rolled back.
    let claimer = leasehold_tests::Claimer::new(db.store().clone(), &["fresh"]).await;
    assert_eq!(claimer.claim(10).await.len(), 1);
}

#[tokio::test]
async fn a_failed_statement_takes_its_job_with_it() {
    let db = with_module().await;
    let refused = db.refusal("select leasehold.enqueue('echo'), 1 / (select 0)").await;
    assert_eq!(refused.code, "22012");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs").await, 0);
}

#[tokio::test]
async fn a_payload_may_be_jsonb_text_bytes_or_left_out() {
    let db = with_module().await;
    for (arguments, stored) in [
        ("'echo'", "{}"),
        ("'echo', '{\"b\": 1, \"a\": [1, 2]}'", "{\"a\": [1, 2], \"b\": 1}"),
        ("'echo', '{\"a\": 1}'::jsonb", "{\"a\": 1}"),
        ("'echo', jsonb_build_object('n', 1.50)", "{\"n\": 1.50}"),
        ("'echo', '7'::text", "7"),
        ("'echo', 'not json'::bytea", "not json"),
        ("'echo', payload => 'null'", "null"),
        ("module => 'echo', payload => '[]'", "[]"),
    ] {
        let id = db.enqueue(arguments).await;
        let payload: Vec<u8> = db.value(&format!("select payload from leasehold.jobs where id = {id}")).await;
        assert_eq!(String::from_utf8_lossy(&payload), stored, "enqueue({arguments})");
    }
    let bytes = db.enqueue("'echo', '\\x00ff00'::bytea").await;
    assert_eq!(
        db.value::<Vec<u8>>(&format!("select payload from leasehold.jobs where id = {bytes}")).await,
        [0, 255, 0]
    );
    // As drivers bind parameters.
    let producer = db.connect().await;
    let json = serde_json::json!({ "from": "a driver" });
    for (sql, parameter) in [
        ("select leasehold.enqueue('echo', $1::jsonb)", &json as &(dyn tokio_postgres::types::ToSql + Sync)),
        ("select leasehold.enqueue('echo', $1::text)", &"[1]"),
        ("select leasehold.enqueue('echo', $1::bytea)", &b"\xff".as_slice()),
    ] {
        producer.query_one(sql, &[parameter]).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[tokio::test]
async fn a_text_that_is_no_json_is_refused() {
    let db = with_module().await;
    assert_eq!(db.refusal("select leasehold.enqueue('echo', 'not json')").await.code, "22P02");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs").await, 0);
}

#[tokio::test]
async fn every_argument_can_be_named_and_lands_in_its_column() {
    let db = with_module().await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    db.push(leasehold_tests::Upload { tenant: "acme", ..leasehold_tests::Upload::command("mail", b"\0asm\x01\0\0\0") })
        .await;
    let id = db
        .enqueue(
            "version => 1, backoff => '90 seconds', timeout => '2.5 seconds', max_attempts => 7, run_at => '2099-01-02 03:04:05+00',
             priority => -3, queue => 'mail.slow', tenant => 'acme', payload => '{\"to\": \"you\"}', module => 'mail'",
        )
        .await;
    let shown: serde_json::Value = db
        .value(&format!(
            "select to_jsonb(j) - array['id', 'enqueued_at'] from
               (select id, tenant, module, version, queue, state, priority, attempt, max_attempts, enqueued_at,
                       run_at at time zone 'UTC' as run_at, lease_no, crash_count, cancel_requested, started_at, worker_id
                  from leasehold.jobs where id = {id}) j"
        ))
        .await;
    let wanted = serde_json::json!({
        "tenant": "acme", "module": "mail", "version": 1, "queue": "mail.slow", "state": "queued", "priority": -3,
        "attempt": 0, "max_attempts": 7, "run_at": "2099-01-02T03:04:05", "lease_no": 0, "crash_count": 0,
        "cancel_requested": false, "started_at": null, "worker_id": null,
    });
    assert_eq!(shown, wanted);
    let times = db.rows("select timeout_ms, backoff_ms from leasehold.live_jobs where id = $1", &[&id.0]).await;
    assert_eq!((times[0].get::<_, i32>(0), times[0].get::<_, i32>(1)), (2500, 90_000));
}

#[tokio::test]
async fn each_refusal_has_a_code_and_names_the_thing() {
    let db = with_module().await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    let long = "q".repeat(64);
    let long_queue = format!("'echo', queue => '{long}'");
    for (arguments, code, message) in [
        ("'echo', tenant => 'nobody'", "LH001", "no tenant is named 'nobody'"),
        ("'echo', tenant => null", "LH001", "no tenant is named null"),
        ("'nothing'", "LH002", "tenant 'default' has no module named 'nothing'"),
        ("null", "LH002", "tenant 'default' has no module named null"),
        ("'echo', tenant => 'acme'", "LH002", "tenant 'acme' has no module named 'echo'"),
        ("'echo', version => 2", "LH002", "module 'echo' of tenant 'default' has no version 2"),
        (
            "'echo', queue => 'No Such'",
            "LH003",
            "queue name 'No Such' is not 1 to 63 characters of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        ("'echo', queue => ''", "LH003", "queue name '' is not 1 to 63 characters of a-z, 0-9, \"_\", \".\" and \"-\""),
        (
            "'echo', queue => null",
            "LH003",
            "queue name null is not 1 to 63 characters of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        (
            &long_queue,
            "LH003",
            &format!("queue name '{long}' is not 1 to 63 characters of a-z, 0-9, \"_\", \".\" and \"-\""),
        ),
        (
            "'echo', queue => E'a\\nb'",
            "LH003",
            "queue name 'a\nb' is not 1 to 63 characters of a-z, 0-9, \"_\", \".\" and \"-\"",
        ),
        ("'echo', priority => 101", "LH003", "priority 101 is outside -100 to 100"),
        ("'echo', priority => -101", "LH003", "priority -101 is outside -100 to 100"),
        ("'echo', priority => 70000", "LH003", "priority 70000 is outside -100 to 100"),
        ("'echo', max_attempts => 0", "LH003", "max_attempts 0 is outside 1 to 1000"),
        ("'echo', max_attempts => 1001", "LH003", "max_attempts 1001 is outside 1 to 1000"),
        ("'echo', timeout => '0 s'", "LH003", "timeout of 00:00:00 is outside 1 ms to 24 hours"),
        ("'echo', timeout => '25 hours'", "LH003", "timeout of 25:00:00 is outside 1 ms to 24 hours"),
        ("'echo', backoff => '-1 s'", "LH003", "backoff of -00:00:01 is outside 0 ms to 24 hours"),
        ("'echo', payload => null::jsonb", "LH003", "payload is null"),
        ("'echo', payload => null::text", "LH003", "payload is null"),
        ("'echo', payload => null::bytea", "LH003", "payload is null"),
    ] {
        let refused = db.refusal(&format!("select leasehold.enqueue({arguments})")).await;
        assert_eq!((refused.code.as_str(), refused.message.as_str()), (code, message), "enqueue({arguments})");
        if matches!(code, "LH001" | "LH002") {
            assert!(refused.hint.is_some_and(|hint| hint.contains("leasehold ")), "what to type: enqueue({arguments})");
        }
    }
    for sql in ["select leasehold.cancel(7)", "select leasehold.redrive(7)"] {
        let refused = db.refusal(sql).await;
        assert_eq!((refused.code.as_str(), refused.message.as_str()), ("LH004", "there is no job 7"), "{sql}");
    }
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs").await, 0);
    // The edges themselves are fine.
    db.enqueue("'echo', priority => 100, max_attempts => 1000, timeout => '24 hours', backoff => '0 s'").await;
    db.enqueue("'echo', priority => -100, max_attempts => 1, timeout => '1 ms', backoff => '24 hours'").await;
    db.enqueue(&format!("'echo', queue => '{}'", &long[1..])).await;
}

#[tokio::test]
async fn no_search_path_changes_what_enqueue_calls() {
    let db = with_module().await;
    db.sql(
        "create schema evil;
         create function evil.enqueue_bytes(text, bytea, text, text, int, timestamptz, int, interval, interval, int) returns bigint
             language sql as 'select -1::bigint';
         create function evil.convert_to(text, name) returns bytea language sql as $$ select '\\x00'::bytea $$;
         create function evil.convert_to(text, text) returns bytea language sql as $$ select '\\x00'::bytea $$;
         create function evil.greatest_of_all() returns int language sql as 'select 1';
         create function evil.clock_timestamp() returns timestamptz language sql as $$ select '1999-01-01'::timestamptz $$;
         set search_path = evil, leasehold, pg_catalog",
    )
    .await;
    let id = db.enqueue("'echo', '\"mine\"'").await;
    let many: Vec<i64> = db.column("select leasehold.enqueue_many('echo', array['\"mine\"']::jsonb[])").await;
    db.sql("reset search_path").await;
    for id in [id, JobId(many[0])] {
        let payload: Vec<u8> = db.value(&format!("select payload from leasehold.jobs where id = {id}")).await;
        assert_eq!(payload, b"\"mine\"");
        assert!(db.job(id).await.due_in_ms > -60_000.0, "by the real clock");
    }
}

#[tokio::test]
async fn many_jobs_are_due_in_the_order_of_their_payloads() {
    let db = with_module().await;
    let ids = db.enqueue_many("echo", 500).await;
    assert!(ids.is_sorted(), "answered in order");
    let claimed = db.claim(1000).await;
    assert_eq!(claimed.iter().map(|job| job.id).collect::<Vec<_>>(), ids);
    let payloads: Vec<String> = claimed.into_iter().map(|job| String::from_utf8(job.payload).expect("text")).collect();
    assert_eq!(payloads, (1..=500).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn many_jobs_are_refused_as_one_is() {
    let db = with_module().await;
    for (arguments, code, message) in [
        ("'nothing', array['1']::jsonb[]", "LH002", "tenant 'default' has no module named 'nothing'"),
        ("'echo', array['1', null, '3']::jsonb[]", "LH003", "payload number 2 is null"),
        ("'echo', array['1']::jsonb[], priority => 101", "LH003", "priority 101 is outside -100 to 100"),
        ("'echo', array['1']::jsonb[], tenant => 'nobody'", "LH001", "no tenant is named 'nobody'"),
        ("'echo', array['1']::jsonb[], version => 9", "LH002", "module 'echo' of tenant 'default' has no version 9"),
    ] {
        let refused = db.refusal(&format!("select leasehold.enqueue_many({arguments})")).await;
        assert_eq!((refused.code.as_str(), refused.message.as_str()), (code, message), "enqueue_many({arguments})");
    }
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs").await, 0);
    assert!(db.column::<i64>("select leasehold.enqueue_many('echo', '{}'::jsonb[])").await.is_empty());
    let options = "priority => 5, run_at => now() + interval '1 hour', max_attempts => 2, timeout => '1 s', backoff => '3 s', version => 1";
    let ids: Vec<i64> =
        db.column(&format!("select leasehold.enqueue_many('echo', array['1', '2']::jsonb[], {options})")).await;
    for id in ids {
        let row = db
            .rows("select priority, max_attempts, timeout_ms, backoff_ms, version, version_pinned from leasehold.live_jobs where id = $1", &[&id])
            .await;
        let row = &row[0];
        assert_eq!((row.get::<_, i16>(0), row.get::<_, i32>(1)), (5, 2));
        assert_eq!((row.get::<_, i32>(2), row.get::<_, i32>(3), row.get::<_, i32>(4)), (1000, 3000, 1));
        assert!(row.get::<_, bool>(5) && db.job(JobId(id)).await.due_in_ms > 3_500_000.0);
    }
}

#[tokio::test]
async fn a_time_in_the_past_is_now_and_infinity_is_never() {
    let db = with_module().await;
    let past = db.enqueue("'echo', run_at => '1999-01-01'").await;
    let never = db.enqueue("'echo', run_at => 'infinity'").await;
    assert!(db.job(past).await.due_in_ms > -60_000.0, "nobody jumps the queue by dating back");
    assert_eq!(db.claim(10).await.iter().map(|job| job.id).collect::<Vec<_>>(), [past]);
    assert_eq!(db.state(never).await, "queued");
    assert_eq!(db.cancel(never).await, "cancelled");
}

#[tokio::test]
async fn ids_go_beyond_what_an_int_or_a_float_can_hold() {
    let db = with_module().await;
    for start in [i64::from(i32::MAX), 1 << 53, i64::MAX - 1] {
        db.sql(&format!("alter table leasehold.live_jobs alter column id restart with {start}")).await;
        let job = db.enqueue_and_claim("echo").await;
        assert_eq!(job.id, JobId(start));
        assert_eq!(db.complete(job).await, leasehold::settlement::Settled::Yes);
        assert_eq!(db.state(JobId(start)).await, "done");
        let shown = leasehold_tests::binary::run(db.url(), &["job", "show", &start.to_string(), "--json"]).await.json();
        assert_eq!(shown["id"].as_i64(), Some(start));
    }
}

#[tokio::test]
async fn the_views_have_the_columns_that_applications_read() {
    let db = with_module().await;
    let columns = async |view: &str| -> String {
        db.value(&format!(
            "select string_agg(column_name || ' ' || udt_name, ', ' order by ordinal_position)
               from information_schema.columns where table_schema = 'leasehold' and table_name = '{view}'"
        ))
        .await
    };
    assert_eq!(
        columns("jobs").await,
        "id int8, tenant text, module text, version int4, queue text, state job_state, priority int2, attempt int4, \
         max_attempts int4, run_at timestamptz, enqueued_at timestamptz, started_at timestamptz, finished_at timestamptz, \
         result jsonb, error text, usage jsonb, failure_kind text, result_bytes bytea, payload bytea, lease_no int4, \
         crash_count int4, cancel_requested bool, worker_id int8, locked_until timestamptz, expires_at timestamptz, options jsonb, \
         waiting bool, progress float4, progress_message text, progress_at timestamptz"
    );
    assert_eq!(
        columns("job_attempts").await,
        "job_id int8, tenant text, attempt int4, lease_no int4, outcome text, version int4, worker_id int8, \
         started_at timestamptz, finished_at timestamptz, failure_kind text, message text, backtrace text, log text, \
         log_dropped_bytes int8, usage jsonb"
    );
    assert_eq!(
        columns("queue_stats").await,
        "tenant text, queue text, state job_state, count int8, oldest_due_age interval"
    );
}

#[tokio::test]
async fn the_statistics_count_by_tenant_queue_and_state() {
    let db = with_module().await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    db.push(leasehold_tests::Upload { tenant: "acme", ..leasehold_tests::Upload::command("echo", b"\0asm\x01\0\0\0") })
        .await;
    db.enqueue_many("echo", 3).await;
    let done = db.claim_one().await;
    db.complete(done).await;
    let dead = db.claim_one().await;
    db.bury(dead).await;
    let cancelled = db.enqueue("'echo', tenant => 'acme', queue => 'slow'").await;
    db.cancel(cancelled).await;
    db.enqueue("'echo', tenant => 'acme', queue => 'slow', run_at => now() + interval '1 day'").await;
    let stats: Vec<String> = db
        .column(
            "select concat_ws(' ', tenant, queue, state, count, oldest_due_age is not null)
               from leasehold.queue_stats order by tenant, queue, state",
        )
        .await;
    assert_eq!(
        stats,
        [
            "acme slow queued 1 f",
            "acme slow cancelled 1 f",
            "default default queued 1 t",
            "default default done 1 f",
            "default default dead 1 f"
        ]
    );
}

#[tokio::test]
async fn a_producer_that_is_blocked_blocks_no_other() {
    let db = with_module().await;
    let mut first = db.connect().await;
    // Its transaction stays open: it is the first that ever used this queue and priority.
    let open = first.transaction().await.expect("a transaction");
    open.query_one("select leasehold.enqueue('echo', queue => 'new', priority => 9)", &[]).await.expect("it is taken");
    let second = db.connect().await;
    second.batch_execute("set lock_timeout = '10s'").await.expect("a setting");
    second
        .query_one("select leasehold.enqueue('echo', queue => 'new', priority => 9)", &[])
        .await
        .expect("nobody waits");
    let claimer = leasehold_tests::Claimer::new(db.store().clone(), &["new"]).await;
    assert_eq!(claimer.claim(10).await.len(), 1);
    open.commit().await.expect("it commits");
    assert_eq!(claimer.claim(10).await.len(), 1, "and the later lane is the same lane");
}

#[tokio::test]
async fn a_prepared_statement_outlives_an_upgrade_of_the_functions() {
    let db = with_module().await;
    let producer = db.connect().await;
    let statement = producer.prepare("select leasehold.enqueue('echo', $1::jsonb)").await.expect("it prepares");
    let payload = serde_json::json!(1);
    producer.query_one(&statement, &[&payload]).await.expect("before");
    db.sql("update leasehold.schema_version set checksum = 'other' where version = 0").await;
    assert_eq!(db.store().migrate(false).await.expect("an upgrade").len(), 1);
    producer.query_one(&statement, &[&payload]).await.expect("after");
    assert_eq!(refusal(&producer, "select leasehold.enqueue('nothing')").await.code, "LH002");
}

#[tokio::test]
async fn jobs_come_in_by_copy_and_by_insert() {
    use futures_util::SinkExt as _;
    let db = with_module().await;
    let (producer, _url) = db.connect_as("leasehold_producer").await;
    let sink =
        producer.copy_in("copy leasehold.new_jobs (module, payload, queue, priority, unique_key) from stdin").await;
    let mut sink = std::pin::pin!(sink.expect("copying"));
    for n in 0..100 {
        let line = format!("echo\t{{\"n\": {n}}}\tmail\t{}\tu{}\n", n % 3, n % 50);
        sink.send(bytes::Bytes::from(line)).await.expect("sending");
    }
    sink.finish().await.expect("copying");
    assert_eq!(
        db.value::<i64>("select count(*) from leasehold.jobs where queue = 'mail' and tenant = 'default'").await,
        50
    );
    let row = producer
        .query_one("insert into leasehold.new_jobs (module, payload_bytes) values ('echo', '\\xff') returning id", &[])
        .await
        .expect("inserting");
    let job = db.claim_one().await;
    assert_eq!((job.id.0, job.payload.as_slice()), (row.get::<_, i64>(0), b"\xff".as_slice()));
    let refusal =
        leasehold_tests::db::refusal(&producer, "insert into leasehold.new_jobs (module) values ('nobody')").await;
    assert_eq!(refusal.code, "LH002");
}
