//! Each fire is a job once and on time, whoever looks.

use std::time::Duration;

use leasehold::maintenance::{self, MaintenanceConfig};
use leasehold_tests::TestDb;
use leasehold_tests::db::store;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{due, fire, jobs, look, overdue, set, with_echo};

#[tokio::test]
async fn a_worker_fires_each_second_once_and_on_time() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let workers = [db.worker(), db.worker()];
    db.sql("select leasehold.schedule('second', '* * * * * *', 'echo', time_key => 'at')").await;
    db.wait_until("it fires", "(select count(*) from leasehold.history) >= 6").await;
    for worker in workers {
        worker.drain().await;
    }
    let fires =
        "(select (convert_from(payload, 'UTF8')::jsonb->>'at')::timestamptz as at, enqueued_at from leasehold.jobs)";
    let [count, distinct, span]: [i64; 3] = [
        db.value(&format!("select count(*) from {fires} f")).await,
        db.value(&format!("select count(distinct at) from {fires} f")).await,
        db.value(&format!("select extract(epoch from max(at) - min(at))::int8 + 1 from {fires} f")).await,
    ];
    assert!(count == distinct && count == span, "{count} jobs for {distinct} of {span} seconds");
    let late_ms: Vec<i64> = db
        .column(&format!("select (extract(epoch from enqueued_at - at) * 1000)::int8 from {fires} f order by 1"))
        .await;
    println!("late by so many ms: {late_ms:?}");
    assert!(late_ms[0] >= 0, "too early: {late_ms:?}");
    assert!(late_ms[late_ms.len() / 2] < 100, "half of them later than 100 ms: {late_ms:?}");
}

#[tokio::test]
async fn no_second_is_lost_or_doubled_while_workers_are_killed_and_deployed() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let set = "select leasehold.schedule('second', '* * * * * *', 'echo', missed => 'all', missed_limit => 1000, time_key => 'at')";
    for round in 1..=4 {
        db.sql(set).await; // as a deploy does
        let mut workers = [db.worker_process(&[]).await, db.worker_process(&[]).await];
        let fired = format!("(select count(*) from leasehold.jobs) >= {}", round * 3);
        db.wait_until("it fires", &fired).await;
        for worker in &mut workers {
            worker.kill_9().await;
        }
    }
    look(&db).await;
    let times = "(select (convert_from(payload, 'UTF8')::jsonb->>'at')::timestamptz as at from leasehold.jobs) j";
    let sound = format!(
        "select count(*) = count(distinct at) and count(*) = extract(epoch from max(at) - min(at)) + 1 from {times}"
    );
    assert!(
        db.value::<bool>(&sound).await,
        "{:?}",
        db.column::<String>(&format!("select at::text from {times} order by 1")).await
    );
}

#[tokio::test]
async fn many_workers_fire_one_schedule_once() {
    let db = with_echo().await;
    for n in 0..30 {
        set(&db, &format!("'s{n}', '@hourly', 'echo', missed => 'all', payload => '{n}'::jsonb")).await;
    }
    db.sql("update leasehold.timetable set next_fire = date_trunc('hour', now()), look_at = date_trunc('hour', now())")
        .await;
    let (stop, running) = watch::channel(true);
    let loops: Vec<_> = (0..4)
        .map(|_| tokio::spawn(maintenance::run(store(db.url()), MaintenanceConfig::default(), running.clone())))
        .collect();
    db.wait_until("all went on", "not exists (select from leasehold.timetable where next_fire <= now())").await;
    let _ = stop.send(false);
    for looping in loops {
        looping.await.expect("it ends");
    }
    let counts: Vec<i64> = db.column("select count(*) from leasehold.jobs group by payload").await;
    assert_eq!(counts, [1; 30]);
}

#[tokio::test]
async fn who_saw_a_schedule_before_it_changed_fires_nothing() {
    let db = with_echo().await;
    for change in [
        "select 1", // somebody else fires it
        "select leasehold.schedule('s', '30 * * * *', 'echo')",
        "select leasehold.schedule('s', '@hourly', 'echo', time_zone => 'Asia/Kolkata')",
        "select leasehold.pause_schedule('s')",
        "select leasehold.unschedule('s')",
        "select leasehold.activate_module('default', 'echo', null)",
    ] {
        db.sql(
            "truncate leasehold.timetable, leasehold.live_jobs; select leasehold.activate_module('default', 'echo', 1)",
        )
        .await;
        set(&db, "'s', '@hourly', 'echo'").await;
        overdue(&db, "s", 3).await;
        let seen = due(&db).await;
        assert_eq!(seen.len(), 1, "{change}");
        db.sql(change).await;
        let mut others = 0;
        if change == "select 1" {
            assert_eq!(fire(&db, &seen).await[0].jobs, 1);
            others = 1;
        }
        assert_eq!(fire(&db, &seen).await, [], "{change}");
        assert_eq!(jobs(&db).await, others, "{change}");
    }
}

#[tokio::test]
async fn nobody_can_fire_what_is_not_due() {
    let db = with_echo().await;
    set(&db, "'s', '@hourly', 'echo'").await;
    overdue(&db, "s", 3).await;
    let seen = due(&db).await;
    db.sql("update leasehold.timetable set look_at = now() + interval '1 hour'").await;
    assert_eq!(fire(&db, &seen).await, []);
    assert_eq!(jobs(&db).await, 0);
}

#[tokio::test]
async fn noon_is_noon_in_its_zone() {
    let db = with_echo().await;
    for zone in ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Chatham", "Etc/GMT+12"] {
        set(&db, &format!("'s', '0 12 * * *', 'echo', time_zone => '{zone}'")).await;
        let noon = "select (next_fire at time zone time_zone)::time = '12:00' and next_fire between now() and now() + interval '25 hours' from leasehold.schedules";
        assert!(db.value::<bool>(noon).await, "{zone}");
    }
}

#[tokio::test]
async fn spread_schedules_of_one_hour_fire_at_different_times_each_always_at_its_own() {
    let db = with_echo().await;
    let all = || async {
        for n in 0..60 {
            db.sql(&format!(
                "select leasehold.schedule('s{n}', '@hourly', 'echo', spread => '10 minutes', missed => 'skip')"
            ))
            .await;
        }
        look(&db).await;
        db.column::<String>(
            "select name || ' ' || (next_fire - date_trunc('hour', next_fire)) from leasehold.schedules order by name",
        )
        .await
    };
    let offsets = all().await;
    assert_eq!(all().await, offsets);
    db.sql("select leasehold.unschedule(name) from leasehold.schedules").await;
    assert_eq!(all().await, offsets);
    let spread = "select count(distinct spread_offset)::int from leasehold.schedules where spread_offset >= '0' and spread_offset < '10 minutes'";
    assert!(db.value::<i32>(spread).await > 50);
    let busiest = "select max(n)::int from (select count(*) n from leasehold.schedules group by date_trunc('minute', next_fire)) m";
    assert!(db.value::<i32>(busiest).await < 20, "of 60 in ten minutes");
    // Not before its place, though its hour has come.
    db.sql(
        "update leasehold.timetable set spread_ms = 3600000, spread_offset_ms = 3599999, next_fire = date_trunc('hour', now()), look_at = now();
         update leasehold.timetable set look_at = now() + interval '1 hour' where name <> 's1'",
    )
    .await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 0);
    assert!(db.value::<bool>("select look_at > now() from leasehold.timetable where name = 's1'").await);
}

#[tokio::test]
async fn the_job_is_as_the_schedule_says() {
    let db = with_echo().await;
    set(
        &db,
        "'s', '@hourly', 'echo', payload => '{\"report\": \"sales\"}', queue => 'reports', priority => 7, max_attempts => 3,
         timeout => '90 s', backoff => '2 minutes', version => 1, time_key => 'at'",
    )
    .await;
    let id: i64 = db.value("select leasehold.fire_schedule('s')").await;
    let job: Value = db
        .value(&format!(
            "select to_jsonb(j) - 'payload' || jsonb_build_object('payload', convert_from(j.payload, 'UTF8')::jsonb) from leasehold.live_jobs j where id = {id}"
        ))
        .await;
    for (key, value) in [
        ("queue", json!("reports")),
        ("priority", json!(7)),
        ("max_attempts", json!(3)),
        ("timeout_ms", json!(90_000)),
        ("backoff_ms", json!(120_000)),
        ("version", json!(1)),
    ] {
        assert_eq!(job[key], value, "{key}");
    }
    assert_eq!(job["payload"]["report"], "sales");
    let at = job["payload"]["at"].as_str().expect("its time");
    assert!(at.len() == 20 && at.ends_with('Z'), "{at}");
    assert!(
        db.value::<bool>(
            "select last_job_id = 1 and last_fire is not null and next_fire > now() from leasehold.schedules"
        )
        .await
    );
    // Without a key the bytes are as they were.
    set(&db, "'raw', '@hourly', 'echo', payload => '\\xff00'::bytea").await;
    let id: i64 = db.value("select leasehold.fire_schedule('raw')").await;
    assert_eq!(db.value::<Vec<u8>>(&format!("select payload from leasehold.jobs where id = {id}")).await, [0xff, 0]);
}

#[tokio::test]
async fn an_idle_worker_asks_little() {
    let db = with_echo().await;
    set(&db, "'s', '@yearly', 'echo'").await;
    set(&db, "'held', '* * * * * *', 'echo', paused => true").await;
    // From now on sessions count the functions that they call, which is all that a worker's statements do.
    db.sql(&format!("alter database {} set track_functions = 'all'", db.name())).await;
    let worker = db.worker_with(leasehold::worker::WorkerConfig::default());
    db.wait_until("the worker sleeps", "exists (select from leasehold.sleepers)").await;
    let seconds = 10;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    worker.drain().await;
    // A session hands in its counts when it ends, at the latest.
    db.wait_until(
        "it has been counted",
        "exists (select from pg_stat_user_functions where funcname = 'retire_worker')",
    )
    .await;
    let calls: Vec<String> = db.column("select funcname || ' ' || calls from pg_stat_user_functions order by 1").await;
    let total: i64 =
        calls.iter().map(|call| call.rsplit(' ').next().expect("a count").parse::<i64>().expect("a number")).sum();
    // Besides the nine of its start and its end.
    assert!(total - 9 < 2 * i64::try_from(seconds).expect("few"), "{total} in {seconds} s: {calls:?}");
    let looks: i64 = db.value("select calls from pg_stat_user_functions where funcname = 'due_schedules'").await;
    assert!((2..=6).contains(&looks), "{calls:?}");
}
