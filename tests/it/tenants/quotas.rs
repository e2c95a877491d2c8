//! What a tenant may have: never more, and no less.

use leasehold::outcome::FollowUp;
use leasehold::settlement::Settlement;
use leasehold::store::{Batch, Report, is_refused_follow_up};
use leasehold_tests::db::refusal;
use leasehold_tests::{TestDb, Upload, binary, report};
use serde_json::json;

use super::{NOTHING, tenant};

async fn acme(quotas: &str) -> TestDb {
    let db = TestDb::new().await;
    tenant(&db, "acme", "echo").await;
    set(&db, quotas).await;
    db
}

async fn set(db: &TestDb, quotas: &str) {
    db.sql(&format!("select leasehold.set_quotas('acme', '{quotas}')")).await;
}

async fn used(db: &TestDb, quota: &str) -> i64 {
    db.value(&format!("select used from leasehold.tenant_quotas where tenant = 'acme' and quota = '{quota}'")).await
}

/// What the view says is in use, beside what is there.
async fn assert_counts_are_right(db: &TestDb) {
    let there =
        "select array[count(*), coalesce(sum(octet_length(payload)), 0)] from leasehold.live_jobs where counted";
    let there: Vec<i64> = db.value(there).await;
    assert_eq!([used(db, "queued_jobs").await, used(db, "queued_bytes").await], there[..]);
}

#[tokio::test]
async fn a_full_queue_refuses_every_way_in_and_says_the_numbers() {
    let db = acme(r#"{"queued_jobs": 3}"#).await;
    db.sql(
        "select leasehold.enqueue('echo', tenant => 'acme') from generate_series(1, 2); select leasehold.cancel(1);
         select leasehold.schedule('s', '@hourly', 'echo', tenant => 'acme'); select leasehold.new_group();
         select leasehold.enqueue_many('echo', array['1', '2']::jsonb[], 'acme')",
    )
    .await;
    for sql in [
        "select leasehold.enqueue('echo', tenant => 'acme')",
        "select leasehold.enqueue('echo', '\\x00'::bytea, 'acme', run_at => now() + interval '1 day')",
        "select leasehold.enqueue('echo', tenant => 'acme', unique_key => 'k', group_id => 1)",
        "select leasehold.enqueue_many('echo', array['1']::jsonb[], 'acme')",
        "select leasehold.enqueue_many('echo', array['1']::jsonb[], 'acme', unique_keys => '{k}')",
        "insert into leasehold.new_jobs (module, tenant) values ('echo', 'acme')",
        "select leasehold.redrive(1)",
        "select leasehold.redrive_many('acme', state => 'cancelled')",
        "select leasehold.fire_schedule('s', 'acme')",
    ] {
        let refused = db.refusal(sql).await;
        assert_eq!(refused.code, "LH030", "{sql}: {refused}");
        assert_eq!(
            refused.message,
            "tenant 'acme' has 3 of its quota of 3 queued_jobs in use; there is no room for 1 more"
        );
        let hint = refused.hint.expect("what to do");
        assert!(hint.starts_with("wait until jobs have ended") && hint.contains("--queued-jobs N"), "{hint}");
    }
    let sink = db.client().copy_in("copy leasehold.new_jobs (module, tenant) from stdin").await.expect("it begins");
    let mut sink = std::pin::pin!(sink);
    futures_util::SinkExt::send(&mut sink, bytes::Bytes::from_static(b"echo\tacme\n")).await.expect("sent");
    let refused = sink.finish().await.expect_err("there is no room");
    assert_eq!(refused.as_db_error().expect("an answer").code().code(), "LH030");

    // A worker's fire is like one of a paused schedule, and other tenants are as before.
    db.sql(
        "update leasehold.timetable set next_fire = date_trunc('hour', now()), look_at = now() - interval '1 minute'",
    )
    .await;
    let fired: Option<String> = db
        .value(
            "select refusal from leasehold.fire_schedules(array(select schedule_id from leasehold.timetable),
                array(select next_fire from leasehold.timetable), array(select next_fire + interval '1 hour' from leasehold.timetable),
                '{1}', array(select next_fire from leasehold.timetable), array[null], 1000000)",
        )
        .await;
    assert!(fired.is_some_and(|why| why.contains("quota of 3 queued_jobs")));
    db.push_nothing("echo").await;
    db.enqueue("'echo'").await;
    assert_counts_are_right(&db).await;
}

#[tokio::test]
async fn a_follow_up_that_finds_no_room_is_refused_without_waiting() {
    let db = acme(r#"{"queued_jobs": 2}"#).await;
    db.enqueue("'echo', tenant => 'acme'").await;
    let job = db.claim_one().await;
    let other = db.connect().await;
    other.batch_execute("begin; select leasehold.enqueue('echo', tenant => 'acme')").await.expect("there is room");
    let follow_up = FollowUp {
        module: "echo".into(),
        payload: b"1".to_vec(),
        queue: None,
        priority: 0,
        delay_ms: None,
        unique_key: None,
        concurrency_key: None,
    };
    let ended = report(&job, Settlement::Complete { result: b"1".to_vec() });
    let asking = Report { follow_ups: vec![follow_up.clone(), follow_up], ..ended };
    let batch = Batch::sort(vec![asking]).remove(0);
    let error = db.store().settle(db.worker_id().await, &batch).await.expect_err("one place came free, not two");
    assert!(is_refused_follow_up(&error), "{error:#}");
    assert!(
        format!("{error:#}").contains("follow-up job 2 was refused: tenant 'acme' has 2 of its quota of 2 queued_jobs")
    );
    other.batch_execute("rollback").await.expect("it ends");
    assert_counts_are_right(&db).await;
}

#[tokio::test]
async fn many_producers_at_once_fill_it_exactly() {
    let db = acme(r#"{"queued_jobs": 50}"#).await;
    let producers = (0..8).map(async |_| {
        let client = db.connect().await;
        let mut taken = 0;
        for _ in 0..10 {
            taken += match client.query("select leasehold.enqueue('echo', tenant => 'acme')", &[]).await {
                Ok(_) => 1,
                Err(error) => {
                    assert_eq!(error.as_db_error().expect("an answer").code().code(), "LH030");
                    0
                }
            };
        }
        taken
    });
    let taken: i32 = futures_util::future::join_all(producers).await.into_iter().sum();
    assert_eq!(taken, 50);
    assert_counts_are_right(&db).await;
}

#[tokio::test]
async fn producers_with_open_transactions_do_not_wait_for_each_other_and_give_back_what_they_roll_back() {
    let db = acme(r#"{"queued_jobs": 100}"#).await;
    let mut open = Vec::new();
    for n in 0..12 {
        let client = db.connect().await;
        client.batch_execute("set lock_timeout = '1ms'; set leasehold.waits = 'no'; begin").await.expect("a session");
        for _ in 0..2 {
            client
                .query("select leasehold.enqueue('echo', tenant => 'acme')", &[])
                .await
                .expect("nobody is in the way");
        }
        client
            .batch_execute("savepoint s; select leasehold.enqueue('echo', tenant => 'acme'); rollback to s")
            .await
            .expect("taken back");
        open.push((n, client));
    }
    for (n, client) in &open {
        client.batch_execute(if n % 2 == 0 { "commit" } else { "rollback" }).await.expect("it ends");
    }
    assert_eq!(used(&db, "queued_jobs").await, 12);
    assert_counts_are_right(&db).await;
    let rest = "select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[88]), 'acme')";
    db.rows(rest, &[]).await;
    assert_eq!(db.refusal("select leasehold.enqueue('echo', tenant => 'acme')").await.code, "LH030");
}

#[tokio::test]
async fn what_an_open_transaction_holds_counts_and_is_there_again_after_it() {
    let db = acme(r#"{"queued_jobs": 1}"#).await;
    let holder = db.connect().await;
    holder.batch_execute("begin; select leasehold.enqueue('echo', tenant => 'acme')").await.expect("there is room");
    let refused = db.refusal("select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_eq!(refused.code, "LH030", "{refused}");
    assert!(
        refused.hint.is_some_and(|hint| hint.starts_with("some of it is held by transactions that are still open"))
    );
    // Who waits gets it, once the transaction has been rolled back.
    let waiter = db.connect().await;
    let enqueue = waiter.query("select leasehold.enqueue('echo', tenant => 'acme')", &[]);
    let (got, ended) = tokio::join!(enqueue, holder.batch_execute("rollback"));
    ended.expect("it ends");
    got.expect("there is room again");
}

#[tokio::test]
async fn every_end_of_a_job_gives_back_its_place() {
    let db = acme(r#"{"queued_jobs": 9, "queued_bytes": 1000}"#).await;
    db.sql("select leasehold.enqueue_many('echo', array_fill('\"some payload\"'::jsonb, array[5]), 'acme')").await;
    assert_eq!((used(&db, "queued_jobs").await, used(&db, "queued_bytes").await), (5, 5 * 14));
    db.complete(db.claim_one().await).await;
    db.bury(db.claim_one().await).await;
    db.fail(db.claim_one().await).await; // is queued again
    let cancelled = db.claim_one().await;
    db.cancel(cancelled.id).await;
    db.finish_cancel(cancelled).await;
    db.sql("select leasehold.enqueue('echo', tenant => 'acme', expires_at => clock_timestamp() + interval '100 ms')")
        .await;
    db.wait_until("it expires", "leasehold.sweep(10) > 0").await;
    assert_eq!(used(&db, "queued_jobs").await, 2);
    assert_counts_are_right(&db).await;
    db.sql("select leasehold.cancel(id) from leasehold.jobs where state = 'queued'").await;
    assert_eq!((used(&db, "queued_jobs").await, used(&db, "queued_bytes").await), (0, 0));
    assert_eq!(db.value::<i64>("select count(*) from leasehold.quota_returns").await, 0, "all is in the slots again");
    let all = "select count(*) from leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[9]), 'acme')";
    assert_eq!(db.value::<i64>(all).await, 9);
}

#[tokio::test]
async fn a_unique_job_cannot_grow_past_the_quota_of_bytes() {
    let db = acme(r#"{"queued_bytes": 1000}"#).await;
    let enqueue = |bytes: usize| {
        format!(
            "select leasehold.enqueue('echo', convert_to(repeat('x', {bytes}), 'UTF8'), 'acme', unique_key => 'k', on_conflict => 'replace')"
        )
    };
    db.sql(&enqueue(10)).await;
    db.sql(&enqueue(900)).await;
    let refused = db.refusal(&enqueue(1100)).await;
    assert_eq!(refused.code, "LH031", "{refused}");
    assert_eq!(
        refused.message,
        "tenant 'acme' has 900 of its quota of 1000 queued_bytes in use; there is no room for 200 more"
    );
    db.sql(&enqueue(100)).await;
    assert_counts_are_right(&db).await;
}

#[tokio::test]
async fn a_lowered_limit_takes_nothing_away_and_lets_nothing_in_until_use_has_fallen() {
    let db = acme(r#"{"queued_jobs": 10}"#).await;
    db.sql("select leasehold.enqueue('echo', tenant => 'acme') from generate_series(1, 8)").await;
    set(&db, r#"{"queued_jobs": 3}"#).await;
    let refused = db.refusal("select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_eq!(
        refused.message,
        "tenant 'acme' has 8 of its quota of 3 queued_jobs in use; there is no room for 1 more"
    );
    db.sql("select leasehold.cancel(n) from generate_series(1, 5) n").await;
    assert_eq!(db.refusal("select leasehold.enqueue('echo', tenant => 'acme')").await.code, "LH030");
    db.sql("select leasehold.cancel(6); select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_counts_are_right(&db).await;
    set(&db, r#"{"queued_jobs": null}"#).await;
    db.sql("select leasehold.enqueue('echo', tenant => 'acme') from generate_series(1, 20)").await;
    assert_counts_are_right(&db).await;
}

#[tokio::test]
async fn uploads_are_counted_by_versions_and_by_bytes() {
    let db = acme(r#"{"module_versions": 2, "module_bytes": 20}"#).await;
    let push = |name: &str, size: usize| {
        format!(
            "select leasehold.push_module('acme', '{name}', 'command', convert_to(repeat('x', {size}), 'UTF8'), 1, 65536, 1, 1, 1, '{{}}', '{{}}', true)"
        )
    };
    let refused = db.refusal(&push("more", 13)).await;
    assert_eq!(refused.code, "LH032", "{refused}");
    assert_eq!(
        refused.message,
        "tenant 'acme' has 8 of its quota of 20 module_bytes in use; there is no room for 13 more"
    );
    db.sql(&push("more", 12)).await;
    let refused = db.refusal(&push("yet-more", 1)).await;
    assert_eq!(refused.code, "LH033", "{refused}");
    assert_eq!(
        refused.message,
        "tenant 'acme' has 2 of its quota of 2 module_versions in use; there is no room for 1 more"
    );
    db.push(Upload { tenant: "acme", ..Upload::command("echo", NOTHING) }).await; // the same again
    db.sql("select leasehold.remove_module('acme', 'more', false)").await;
    db.sql(&push("yet-more", 1)).await;
    assert_eq!((used(&db, "module_versions").await, used(&db, "module_bytes").await), (2, 9));
}

#[tokio::test]
async fn a_quota_that_is_none_is_refused() {
    let db = acme("{}").await;
    for (quotas, part) in [
        (r#"{"jobs": 1}"#, "no quota is named 'jobs'"),
        (r#"{"queued_jobs": -1}"#, "quota queued_jobs of -1 is not a whole number"),
        (r#"{"queued_jobs": 1.5}"#, "quota queued_jobs of 1.5"),
        (r#"{"queued_jobs": "9"}"#, "quota queued_jobs of \"9\""),
        ("[]", "quotas is not a JSON object"),
    ] {
        let refused = db.refusal(&format!("select leasehold.set_quotas('acme', '{quotas}')")).await;
        assert_eq!(refused.code, "LH003", "{refused}");
        assert!(refused.message.contains(part), "{refused}");
    }
    assert_eq!(db.refusal("select leasehold.set_quotas('nobody', '{}')").await.code, "LH001");
    // A worker's credentials change nobody's quota.
    let (worker, _) = db.connect_as("leasehold_worker").await;
    assert_eq!(refusal(&worker, "select leasehold.set_quotas('acme', '{}')").await.code, "42501");
}

#[tokio::test]
async fn jobs_of_before_the_quota_count_too() {
    let db = acme("{}").await;
    db.sql("select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[30]), 'acme')").await;
    let running = db.claim_one().await;
    let set = binary::run(db.url(), &["tenant", "set", "acme", "--queued-jobs", "10"]).await.ok();
    assert!(set.stdout.lines().any(|line| line.split_whitespace().eq(["queued_jobs", "10", "30"])), "{set:?}");
    assert_counts_are_right(&db).await;
    assert_eq!(db.refusal("select leasehold.enqueue('echo', tenant => 'acme')").await.code, "LH030");
    db.complete(running).await;
    db.sql("select leasehold.cancel(id) from leasehold.jobs where state = 'queued' order by id limit 19").await;
    assert_eq!(db.refusal("select leasehold.enqueue('echo', tenant => 'acme')").await.code, "LH030");
    db.sql("select leasehold.cancel(30); select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_counts_are_right(&db).await;
}

#[tokio::test]
async fn the_command_sets_and_shows_them() {
    let db = acme("{}").await;
    let args = [
        "tenant",
        "set",
        "acme",
        "--queued-jobs",
        "1000",
        "--queued-bytes",
        "1MiB",
        "--max-timeout",
        "2m",
        "--running",
        "4",
        "--rate",
        "5",
    ];
    let set = binary::run(db.url(), &args).await.ok();
    assert!(
        set.stdout.contains("at most 4 jobs run at once; 0 do")
            && set.stdout.contains("at most 5 jobs begin each second"),
        "{set:?}"
    );
    db.enqueue("'echo', tenant => 'acme'").await;
    let shown = binary::run(db.url(), &["tenant", "show", "acme", "--json"]).await.json();
    let quota =
        |name: &str| shown["quotas"].as_array().expect("a list").iter().find(|quota| quota["quota"] == name).cloned();
    assert_eq!(quota("queued_jobs"), Some(json!({ "quota": "queued_jobs", "allowed": 1000, "used": 1 })));
    assert_eq!(quota("queued_bytes"), Some(json!({ "quota": "queued_bytes", "allowed": 1_048_576, "used": 2 })));
    assert_eq!(quota("max_timeout_ms"), Some(json!({ "quota": "max_timeout_ms", "allowed": 120_000, "used": null })));
    binary::run(db.url(), &["tenant", "set", "acme", "--queued-jobs", "none", "--rate", "none"]).await.ok();
    let nothing = binary::run(db.url(), &["tenant", "set", "acme"]).await;
    assert!(nothing.code == 1 && nothing.stderr.contains("nothing to set"), "{nothing:?}");
    assert_eq!(binary::run(db.url(), &["tenant", "pause", "acme"]).await.ok().stdout, "tenant acme is paused\n");
    assert_eq!(binary::run(db.url(), &["tenant", "resume", "acme"]).await.ok().stdout, "tenant acme goes on\n");
}
