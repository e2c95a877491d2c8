//! Schedules: each fire is a job once, whoever looks, whatever was down, and nothing that one tenant writes holds up another's.

use std::time::Duration;

use leasehold::maintenance::{self, MaintenanceConfig, schedules};
use leasehold::store::{DueSchedule, Fire, Fired, Then};
use leasehold_tests::db::{refusal, store};
use leasehold_tests::{TestDb, binary};
use serde_json::{Value, json};
use tokio::sync::watch;

async fn with_echo() -> TestDb {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db
}

/// As a worker does, until nothing more is due.
async fn look(db: &TestDb) {
    for _ in 0..100 {
        let looked = schedules::look(db.store()).await.unwrap_or_else(|error| panic!("{error:#}"));
        assert!(looked.went_on, "what is due does not go on");
        if !looked.wait.is_zero() {
            return;
        }
    }
    panic!("there is always something to do");
}

/// `set(&db, "'hourly', '@hourly', 'echo'")`, and a worker has looked at it.
async fn set(db: &TestDb, arguments: &str) {
    db.sql(&format!("select leasehold.schedule({arguments})")).await;
    look(db).await;
}

/// Makes a schedule one whose next fire was due so long ago, on the full hour.
async fn overdue(db: &TestDb, name: &str, hours: i32) {
    db.sql(&format!(
        "update leasehold.timetable set next_fire = date_trunc('hour', now()) - interval '{hours} hours',
                look_at = date_trunc('hour', now()) - interval '{hours} hours' where name = '{name}'"
    ))
    .await;
}

async fn jobs(db: &TestDb) -> i64 {
    db.value("select count(*) from leasehold.jobs").await
}

/// The nominal times of the jobs, in hours before this one.
async fn fired_hours_ago(db: &TestDb) -> Vec<i32> {
    db.column(
        "select (extract(epoch from date_trunc('hour', now()) - (convert_from(payload, 'UTF8')::jsonb->>'at')::timestamptz) / 3600)::int
           from leasehold.jobs order by id",
    )
    .await
}

async fn error(db: &TestDb, name: &str) -> Option<String> {
    db.value(&format!("select error from leasehold.schedules where name = '{name}'")).await
}

async fn due(db: &TestDb) -> Vec<DueSchedule> {
    db.store().due_schedules(100).await.unwrap_or_else(|error| panic!("{error:#}")).schedules
}

/// What a worker would do that saw this.
fn fire_of(schedule: &DueSchedule) -> Fire {
    let cron = leasehold::schedule::Cron::parse(&schedule.cron, &schedule.time_zone).expect("a good one");
    let plan = cron.plan(&schedule.due).expect("it goes on");
    let then = Then::GoOn { fires: plan.fires, next_fire: plan.next_fire };
    Fire { id: schedule.id, expected: schedule.due.next_fire, then }
}

async fn fire(db: &TestDb, seen: &[DueSchedule]) -> Vec<Fired> {
    let fires: Vec<_> = seen.iter().map(fire_of).collect();
    db.store().fire_schedules(&fires).await.unwrap_or_else(|error| panic!("{error:#}"))
}

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
    assert!(late_ms[0] >= 0, "too early: {late_ms:?}");
    assert!(late_ms[late_ms.len() / 2] < 100, "half of them later than 100 ms: {late_ms:?}");
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
async fn after_a_long_pause_the_policy_says_what_becomes_of_missed_fires() {
    let db = with_echo().await;
    for (policy, hours_ago) in [
        ("missed => 'once'", vec![0]),
        ("missed => 'all'", (0..=30).rev().collect()),
        ("missed => 'all', missed_limit => 5", vec![4, 3, 2, 1, 0]),
    ] {
        db.sql("truncate leasehold.timetable, leasehold.live_jobs").await;
        set(&db, &format!("'s', '@hourly', 'echo', time_key => 'at', paused => true, {policy}")).await;
        overdue(&db, "s", 30).await;
        look(&db).await;
        assert_eq!(jobs(&db).await, 0, "it is paused");
        assert!(db.value::<bool>("select leasehold.resume_schedule('s')").await);
        look(&db).await;
        assert_eq!(fired_hours_ago(&db).await, hours_ago, "{policy}");
        assert!(
            db.value::<bool>(
                "select next_fire > now() and last_fire <= now() and last_job_id is not null from leasehold.schedules"
            )
            .await
        );
    }
    // What is not a minute late yet is not missed, so this one needs a time that is.
    db.sql("truncate leasehold.timetable, leasehold.live_jobs").await;
    let two_minutes_ago: String = db.value("select to_char(now() - interval '2 minutes', 'MI HH24 DD MM *')").await;
    db.sql("set time zone 'UTC'").await;
    set(&db, &format!("'s', '{two_minutes_ago}', 'echo', missed => 'skip'")).await;
    db.sql("update leasehold.timetable set next_fire = date_trunc('minute', now() - interval '2 minutes'), look_at = now()").await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 0);
    assert!(db.value::<bool>("select next_fire > now() and last_fire is null from leasehold.schedules").await);
}

#[tokio::test]
async fn a_module_that_is_switched_off_holds_its_schedules() {
    let db = with_echo().await;
    db.push_nothing("other").await;
    set(&db, "'held', '@hourly', 'echo', missed => 'all', time_key => 'at'").await;
    set(&db, "'goes-on', '@hourly', 'other', payload => '{\"at\": \"2000-01-01T00:00:00Z\"}'").await;
    db.sql("select leasehold.activate_module('default', 'echo', null)").await;
    assert_eq!(db.column::<String>("select name from leasehold.schedules where held").await, ["held"]);
    overdue(&db, "held", 2).await;
    overdue(&db, "goes-on", 0).await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 1, "of the other module");
    db.sql("truncate leasehold.live_jobs; select leasehold.activate_module('default', 'echo', 1)").await;
    look(&db).await;
    assert_eq!(fired_hours_ago(&db).await, [2, 1, 0]);
}

#[tokio::test]
async fn an_expression_that_only_the_calendar_can_refuse_is_the_schedules_error_and_nothing_else() {
    let db = with_echo().await;
    set(&db, "'good', '@hourly', 'echo'").await;
    for (name, cron, why) in [
        ("hour", "0 24 * * *", "24"),
        ("weekday", "0 0 * * 9", "9"),
        ("word", "0 0 * janfeb *", "janfeb"),
        ("step", "*/0 * * * *", "tep"),
        ("never", "0 0 31-31 2 *", "never fires"),
    ] {
        set(&db, &format!("'{name}', '{cron}', 'echo'")).await;
        let said = error(&db, name).await.unwrap_or_else(|| panic!("{cron} has no error"));
        assert!(said.contains(why), "{cron}: {said}");
    }
    assert_eq!(
        db.value::<i64>("select count(*) from leasehold.schedules where next_fire is null and error_at is not null")
            .await,
        5
    );
    // Looked at once, not again and again.
    assert!(due(&db).await.is_empty());
    overdue(&db, "good", 0).await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 1);
    set(&db, "'never', '@daily', 'echo'").await;
    assert_eq!(error(&db, "never").await, None);
    assert!(db.value::<bool>("select next_fire > now() from leasehold.schedules where name = 'never'").await);
}

#[tokio::test]
async fn a_refused_fire_is_told_tried_again_and_holds_up_nobody() {
    let db = with_echo().await;
    db.push_nothing("gone").await;
    set(&db, "'bad', '@hourly', 'gone', time_key => 'at'").await;
    set(&db, "'good', '@hourly', 'echo'").await;
    db.sql("select leasehold.remove_module('default', 'gone', false)").await;
    overdue(&db, "bad", 2).await;
    overdue(&db, "good", 1).await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 1);
    assert_eq!(error(&db, "bad").await.as_deref(), Some("tenant 'default' has no module named 'gone'"));
    let waits = "select (extract(epoch from look_at - error_at))::int from leasehold.timetable where name = 'bad'";
    for seconds in [5, 10, 20, 40, 80, 160, 300, 300] {
        assert_eq!(db.value::<i32>(waits).await, seconds);
        db.sql("update leasehold.timetable set look_at = now() where name = 'bad'").await;
        look(&db).await;
    }
    // Under its name again, the module gets what is still due.
    db.push_nothing("gone").await;
    db.sql("truncate leasehold.live_jobs; update leasehold.timetable set look_at = now() where name = 'bad'").await;
    look(&db).await;
    assert_eq!(fired_hours_ago(&db).await, [0]);
    assert_eq!(error(&db, "bad").await, None);
}

#[tokio::test]
async fn what_was_enqueued_before_a_refusal_stays_and_the_rest_follows() {
    let db = with_echo().await;
    db.sql(
        "create function quota() returns trigger language plpgsql as $$ begin
             if (select count(*) from leasehold.live_jobs) >= 3 then raise 'the quota is full'; end if; return new; end $$;
         create trigger quota before insert on leasehold.live_jobs for each row execute function quota()",
    )
    .await;
    set(&db, "'s', '@hourly', 'echo', missed => 'all', time_key => 'at'").await;
    overdue(&db, "s", 7).await;
    look(&db).await;
    assert_eq!(fired_hours_ago(&db).await, [7, 6, 5]);
    assert_eq!(error(&db, "s").await.as_deref(), Some("the quota is full"));
    db.sql("truncate leasehold.live_jobs; update leasehold.timetable set look_at = now()").await;
    look(&db).await;
    assert_eq!(fired_hours_ago(&db).await, [4, 3, 2]);
    db.sql("truncate leasehold.live_jobs; update leasehold.timetable set look_at = now()").await;
    look(&db).await;
    assert_eq!(fired_hours_ago(&db).await, [1, 0]);
    assert_eq!(error(&db, "s").await, None);
}

#[tokio::test]
async fn a_schedule_in_an_open_transaction_holds_up_nobody() {
    let db = with_echo().await;
    for n in 0..120 {
        db.sql(&format!("select leasehold.schedule('locked-{n}', '@hourly', 'echo')")).await;
    }
    db.sql("select leasehold.schedule('free', '@hourly', 'echo')").await;
    look(&db).await;
    for name in ["locked-0", "free"] {
        overdue(&db, name, 1).await;
    }
    db.sql("update leasehold.timetable set (next_fire, look_at) = (select next_fire, look_at - interval '1 minute' from leasehold.timetable where name = 'locked-0') where name ~ 'locked'").await;
    let mut other = db.connect().await;
    let producer = other.transaction().await.expect("a transaction");
    producer
        .batch_execute("select leasehold.pause_schedule(name) from leasehold.schedules where name ~ 'locked'")
        .await
        .expect("it may");
    look(&db).await;
    assert_eq!(jobs(&db).await, 1, "the free one");
    producer.rollback().await.expect("it ends");
    look(&db).await;
    assert_eq!(jobs(&db).await, 121);
}

#[tokio::test]
async fn a_schedule_exists_if_its_transaction_commits() {
    let db = with_echo().await;
    db.sql("begin; select leasehold.schedule('s', '@hourly', 'echo'); rollback").await;
    assert_eq!(db.value::<i64>("select count(*) from leasehold.schedules").await, 0);
    db.sql("begin; select leasehold.schedule('s', '@hourly', 'echo'); commit").await;
    assert_eq!(db.value::<Option<bool>>("select next_fire > now() from leasehold.schedules").await, None);
    look(&db).await;
    assert_eq!(db.value::<Option<bool>>("select next_fire > now() from leasehold.schedules").await, Some(true));
    db.sql("begin; select leasehold.unschedule('s'); rollback").await;
    overdue(&db, "s", 0).await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 1);
}

#[tokio::test]
async fn tenants_have_names_of_their_own() {
    let db = with_echo().await;
    db.sql("insert into leasehold.tenants (name) values ('acme')").await;
    set(&db, "'report', '@hourly', 'echo', payload => '1'::jsonb").await;
    let refused = db.refusal("select leasehold.schedule('report', '@daily', 'echo', tenant => 'acme')").await;
    assert_eq!(
        (refused.code.as_str(), refused.message.as_str()),
        ("LH002", "tenant 'acme' has no module named 'echo'")
    );
    let bytes = b"\0asm\x01\0\0\0";
    db.push(leasehold_tests::Upload { tenant: "acme", ..leasehold_tests::Upload::command("echo", bytes) }).await;
    set(&db, "'report', '@daily', 'echo', tenant => 'acme', payload => '2'::jsonb").await;
    assert!(db.value::<bool>("select leasehold.pause_schedule('report', 'acme')").await);
    assert_eq!(
        db.column::<String>("select tenant || ' ' || cron || ' ' || paused from leasehold.schedules order by tenant")
            .await,
        ["acme @daily true", "default @hourly false"]
    );
    let id: i64 = db.value("select leasehold.fire_schedule('report', 'acme')").await;
    assert_eq!(db.value::<String>(&format!("select tenant from leasehold.jobs where id = {id}")).await, "acme");
    assert!(db.value::<bool>("select leasehold.unschedule('report', 'acme')").await);
    assert!(!db.value::<bool>("select leasehold.unschedule('report', 'acme')").await);
    assert_eq!(db.column::<String>("select tenant from leasehold.schedules").await, ["default"]);
}

#[tokio::test]
async fn setting_it_anew_loses_no_fire_and_changing_its_time_starts_anew() {
    let db = with_echo().await;
    set(&db, "'s', '@hourly', 'echo', paused => true").await;
    overdue(&db, "s", 5).await;
    let next =
        "select (extract(epoch from next_fire - date_trunc('hour', now())) / 3600)::int from leasehold.timetable";
    set(&db, "'s', '@hourly', 'echo', payload => '[1]', missed => 'skip'").await;
    assert_eq!(db.value::<i32>(next).await, -5);
    assert!(db.value::<bool>("select paused and missed = 'skip' and payload = '[1]' from leasehold.schedules").await);
    set(&db, "'s', '0 * * * *', 'echo', paused => false").await;
    assert_eq!(db.value::<i32>(next).await, 1);
    assert_eq!(jobs(&db).await, 0);
    overdue(&db, "s", 5).await;
    set(&db, "'s', '0 * * * *', 'echo', time_zone => 'Asia/Tokyo'").await;
    assert_eq!((db.value::<i32>(next).await, jobs(&db).await), (1, 0));
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
async fn a_hostile_schedule_is_refused_with_what_is_wrong() {
    let db = with_echo().await;
    let (producer, _) = db.connect_as("leasehold_producer").await;
    let good = "'s', '@hourly', 'echo'";
    for (arguments, code, message) in [
        ("null, '@hourly', 'echo'", "LH003", "schedule name null is not"),
        ("'', '@hourly', 'echo'", "LH003", "schedule name '' is not"),
        ("'a''; drop table x; --', '@hourly', 'echo'", "LH003", "schedule name 'a''; drop"),
        ("'\"a\"', '@hourly', 'echo'", "LH003", "is not 1 to 63"),
        ("'ä', '@hourly', 'echo'", "LH003", "is not 1 to 63"),
        ("repeat('a', 64), '@hourly', 'echo'", "LH003", "is not 1 to 63"),
        ("repeat('a', 10000000), '@hourly', 'echo'", "LH003", "is not 1 to 63"),
        ("E's\\n', '@hourly', 'echo'", "LH003", "is not 1 to 63"),
        ("E'a\\000b', '@hourly', 'echo'", "22021", "invalid byte sequence"),
        ("'s', null, 'echo'", "LH003", "cron is null"),
        ("'s', '', 'echo'", "LH003", "cron '' has 0 fields"),
        ("'s', '   ', 'echo'", "LH003", "cron '' has 0 fields"),
        ("'s', '* * * *', 'echo'", "LH003", "has 4 fields, not 5 or 6"),
        ("'s', '* * * * * * *', 'echo'", "LH003", "has 7 fields, not 5 or 6"),
        ("'s', '* * * * * 9999', 'echo', time_zone => 'Nowhere'", "LH003", "no time zone is named 'Nowhere'"),
        ("'s', repeat('* ', 500000), 'echo'", "LH003", "cron of 1000000 bytes exceeds the limit of 255 bytes"),
        ("'s', '@reboot', 'echo'", "LH003", "cron '@reboot' is no known name"),
        ("'s', E'* *\\n* * *', 'echo'", "LH003", "has a character other than"),
        ("'s', '* * * * $(id)', 'echo'", "LH003", "has a character other than"),
        ("'s', '* * * * ''', 'echo'", "LH003", "has a character other than"),
        ("'s', '0 0 31 2 *', 'echo'", "LH003", "never fires: it names day 31, and its months have 29 days"),
        ("'s', '0 0 30,31 feb *', 'echo'", "LH003", "never fires: it names day 30, and its months have 29 days"),
        (
            "'s', '0 0 0 31 apr,Jun,9,11 *', 'echo'",
            "LH003",
            "never fires: it names day 31, and its months have 30 days",
        ),
        ("'s', '@hourly', 'nothing'", "LH002", "no module named 'nothing'"),
        ("'s', '@hourly', null", "LH002", "no module named null"),
        ("'s', '@hourly', 'echo', version => 2", "LH002", "no version 2"),
        ("'s', '@hourly', 'echo', tenant => 'nobody'", "LH001", "no tenant is named 'nobody'"),
        ("'s', '@hourly', 'echo', tenant => null", "LH001", "no tenant is named null"),
        ("'s', '@hourly', 'echo', time_zone => null", "LH003", "no time zone is named null"),
        ("'s', '@hourly', 'echo', time_zone => 'europe/berlin'", "LH003", "no time zone is named 'europe/berlin'"),
        ("'s', '@hourly', 'echo', time_zone => 'FOO+5'", "LH003", "no time zone is named 'FOO+5'"),
        ("'s', '@hourly', 'echo', time_zone => '../../etc/passwd'", "LH003", "no time zone is named"),
        ("'s', '@hourly', 'echo', time_zone => 'UTC''; select 1'", "LH003", "no time zone is named"),
        ("'s', '@hourly', 'echo', time_zone => repeat('x', 1000000)", "LH003", "no time zone is named 'xxx"),
        ("'s', '@hourly', 'echo', queue => 'No Queue'", "LH003", "queue name 'No Queue'"),
        ("'s', '@hourly', 'echo', priority => 101", "LH003", "priority 101 is outside -100 to 100"),
        ("'s', '@hourly', 'echo', max_attempts => 0", "LH003", "max_attempts 0 is outside 1 to 1000"),
        ("'s', '@hourly', 'echo', timeout => '-1 s'", "LH003", "timeout of"),
        ("'s', '@hourly', 'echo', backoff => '2 days'", "LH003", "backoff of"),
        ("'s', '@hourly', 'echo', missed => 'some'", "LH003", "missed 'some' is not one of skip, once and all"),
        ("'s', '@hourly', 'echo', missed => null", "LH003", "missed null is not"),
        (
            "'s', '* * * * * *', 'echo', missed => 'all', missed_limit => 2147483647",
            "LH003",
            "missed_limit 2147483647 is outside 1 to 1000",
        ),
        ("'s', '@hourly', 'echo', missed_limit => 0", "LH003", "missed_limit 0 is outside 1 to 1000"),
        ("'s', '@hourly', 'echo', spread => '25 hours'", "LH003", "spread of"),
        ("'s', '@hourly', 'echo', spread => '-1 s'", "LH003", "spread of"),
        ("'s', '@hourly', 'echo', payload => null::jsonb", "LH003", "payload is null"),
        (
            "'s', '@hourly', 'echo', payload => convert_to(repeat('x', 1048577), 'UTF8')",
            "LH003",
            "1048577 bytes exceeds the limit of 1048576 bytes",
        ),
        ("'s', '@hourly', 'echo', payload => '[]', time_key => 'at'", "LH003", "payload is not a JSON object"),
        (
            "'s', '@hourly', 'echo', payload => '\\x00'::bytea, time_key => 'at'",
            "LH003",
            "payload is not a JSON object",
        ),
        ("'s', '@hourly', 'echo', time_key => ''", "LH003", "time_key of 0 characters"),
        ("'s', '@hourly', 'echo', time_key => repeat('k', 64)", "LH003", "time_key of 64 characters"),
    ] {
        let refused = refusal(&producer, &format!("select leasehold.schedule({arguments})")).await;
        assert_eq!(refused.code, code, "{arguments}: {refused}");
        assert!(refused.message.contains(message) && refused.message.len() < 400, "{arguments}: {refused}");
    }
    for call in ["pause_schedule('s')", "resume_schedule('s')", "fire_schedule('s')", "fire_schedule(null)"] {
        let refused = refusal(&producer, &format!("select leasehold.{call}")).await;
        assert_eq!(refused.code, "LH020", "{call}: {refused}");
    }
    assert_eq!(db.value::<i64>("select count(*) from leasehold.schedules").await, 0);
    producer.batch_execute(&format!("select leasehold.schedule({good})")).await.expect("it is good");
    look(&db).await;
    assert!(db.value::<bool>("select next_fire > now() from leasehold.schedules").await);
}

#[tokio::test]
async fn a_zone_that_only_the_server_knows_is_the_schedules_error() {
    let db = with_echo().await;
    let odd: Vec<String> = db.column("select name from pg_timezone_names where name in ('posixrules', 'localtime', 'posix/Europe/Berlin') limit 1").await;
    // As a server with newer rules would have it, where this one has no odd names.
    set(&db, "'s', '@hourly', 'echo'").await;
    let zone = odd.first().map_or("Mars/Olympus", |zone| zone.as_str());
    db.sql(&format!("update leasehold.timetable set time_zone = '{zone}', next_fire = null, look_at = now()")).await;
    look(&db).await;
    let said = error(&db, "s").await.expect("an error");
    assert!(said.contains("no time zone is named"), "{said}");
    assert_eq!(jobs(&db).await, 0);
}

#[tokio::test]
async fn a_year_of_missed_seconds_is_a_thousand_jobs() {
    let db = with_echo().await;
    set(&db, "'s', '* * * * * *', 'echo', missed => 'all', missed_limit => 1000, time_key => 'at', paused => true")
        .await;
    db.sql("update leasehold.timetable set next_fire = date_trunc('second', now()) - interval '1 year', paused = false, look_at = now()").await;
    let seen = due(&db).await;
    let started = std::time::Instant::now();
    let fired = fire(&db, &seen).await;
    assert_eq!(fired[0].jobs, 1000);
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let span = "select count(distinct convert_from(payload, 'UTF8')) = 1000 and max(convert_from(payload, 'UTF8')::jsonb->>'at')::timestamptz > now() - interval '1 minute' from leasehold.jobs";
    assert!(db.value::<bool>(span).await);
}

#[tokio::test]
async fn large_payloads_fire_in_bounded_pieces_and_let_others_through() {
    let db = with_echo().await;
    let large = "convert_to(repeat('x', 1048576), 'UTF8')";
    set(&db, &format!("'large', '@hourly', 'echo', missed => 'all', payload => {large}")).await;
    set(&db, "'small', '@hourly', 'echo'").await;
    overdue(&db, "large", 39).await;
    overdue(&db, "small", 38).await;
    let fired = fire(&db, &due(&db).await).await;
    assert_eq!(fired.iter().map(|fired| fired.jobs).collect::<Vec<_>>(), [16], "16 MiB of the first");
    // Those that wait come before the rest of it.
    let fired = fire(&db, &due(&db).await).await;
    assert_eq!(fired.iter().map(|fired| fired.jobs).collect::<Vec<_>>(), [1, 16]);
    look(&db).await;
    assert_eq!(
        db.column::<i64>("select count(*) from leasehold.jobs group by octet_length(payload) order by 1").await,
        [1, 40]
    );
    assert_eq!(
        db.value::<i64>("select count(*) from leasehold.schedules where next_fire > now() and error is null").await,
        2
    );
}

#[tokio::test]
async fn a_fire_that_fails_as_a_whole_keeps_no_other_from_firing() {
    let db = with_echo().await;
    db.sql(
        "create function no() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
         create trigger no before update on leasehold.timetable for each row when (new.name = 's7' and new.last_job_id is not null) execute function no()",
    )
    .await;
    for n in 0..20 {
        db.sql(&format!("select leasehold.schedule('s{n}', '@hourly', 'echo')")).await;
    }
    look(&db).await;
    db.sql("update leasehold.timetable set next_fire = date_trunc('hour', now()), look_at = date_trunc('hour', now())")
        .await;
    schedules::look(db.store()).await.unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(jobs(&db).await, 19);
    assert_eq!(db.column::<String>("select name from leasehold.timetable where look_at < now()").await, ["s7"]);
    db.sql("drop trigger no on leasehold.timetable").await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 20);
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
    // Besides the eight of its start and its end.
    assert!(total - 8 < 2 * i64::try_from(seconds).expect("few"), "{total} in {seconds} s: {calls:?}");
    let looks: i64 = db.value("select calls from pg_stat_user_functions where funcname = 'due_schedules'").await;
    assert!((2..=6).contains(&looks), "{calls:?}");
}

#[tokio::test]
async fn the_end_of_the_calendar_is_far_away_and_no_trouble() {
    let db = with_echo().await;
    set(&db, "'far', '@hourly', 'echo'").await;
    set(&db, "'near', '@hourly', 'echo'").await;
    for year in ["4999", "9999", "290000"] {
        db.sql(&format!("update leasehold.timetable set next_fire = '{year}-12-31 23:00+00', look_at = '{year}-12-31 23:00+00' where name = 'far'")).await;
        overdue(&db, "near", 0).await;
        look(&db).await;
        assert_eq!(error(&db, "far").await, None);
    }
    assert_eq!(jobs(&db).await, 3);
    db.sql("update leasehold.timetable set look_at = now() where name = 'far'").await;
    look(&db).await;
    assert_eq!(jobs(&db).await, 3, "it is not due");
}

#[tokio::test]
async fn the_command_line_does_it_all() {
    let db = with_echo().await;
    let leasehold = async |args: &[&str]| binary::run(db.url(), &[&["schedule"], args].concat()).await;
    let set = leasehold(&[
        "set",
        "report",
        "--cron",
        "30 2 * * *",
        "--time-zone",
        "Europe/Berlin",
        "--module",
        "echo",
        "--payload",
        r#"{"a": 1}"#,
        "--missed",
        "all",
        "--missed-limit",
        "7",
        "--spread",
        "5m",
        "--time-key",
        "at",
        "--json",
    ])
    .await
    .json();
    assert_eq!(set["cron"], "30 2 * * *");
    assert_eq!((&set["missed"], &set["missed_limit"], &set["spread_ms"]), (&json!("all"), &json!(7), &json!(300_000)));
    look(&db).await;
    let shown = leasehold(&["show", "report", "--json"]).await.json();
    assert!(shown["next_fire"].is_string() && shown["error"].is_null(), "{shown}");
    assert_eq!(leasehold(&["list", "--json"]).await.json()[0]["name"], "report");
    let listed = leasehold(&["list"]).await.ok().stdout;
    assert!(listed.contains("report") && listed.contains("Europe/Berlin") && listed.contains("on"), "{listed}");
    assert!(leasehold(&["show", "report"]).await.ok().stdout.contains("all, up to 7"));
    assert_eq!(leasehold(&["pause", "report", "--json"]).await.json()["changed"], true);
    assert!(leasehold(&["list"]).await.ok().stdout.contains("paused"));
    assert_eq!(leasehold(&["pause", "report"]).await.ok().stdout, "schedule report was paused already\n");
    assert_eq!(leasehold(&["fire", "report"]).await.ok().stdout, "1\n");
    assert_eq!(leasehold(&["resume", "report"]).await.ok().stdout, "schedule report goes on\n");
    let after = ["--after", "2026-03-28T12:00:00Z", "-n", "2"];
    let next = leasehold(&[&["next", "report", "--json"], &after[..]].concat()).await.json();
    assert_eq!(next["next"][0], json!({ "zone": "2026-03-29T03:00:00+02:00", "utc": "2026-03-29T01:00:00Z" }));
    let any = leasehold(&[&["next", "--cron", "0 12 * * mon", "--time-zone", "Asia/Tokyo"], &after[..]].concat())
        .await
        .ok()
        .stdout;
    assert!(any.contains("2026-03-30T12:00:00+09:00") && any.contains("2026-03-30T03:00:00Z"), "{any}");
    for (args, why) in [
        (&["set", "s", "--cron", "0 0 31 2 *", "--module", "echo"][..], "never fires"),
        (&["set", "s", "--cron", "@reboot", "--module", "echo"], "names are @hourly"),
        (
            &["set", "s", "--cron", "@hourly", "--module", "echo", "--time-zone", "Mars/Olympus"],
            "no time zone is named \"Mars/Olympus\"",
        ),
        (&["set", "s", "--cron", "@hourly", "--module", "nothing"], "no module named 'nothing'"),
        (&["show", "s"], "tenant default has no schedule named s"),
        (&["remove", "s"], "tenant default has no schedule named s"),
        (&["pause", "s"], "tenant 'default' has no schedule named 's'"),
        (
            &["next", "--cron", "* * * * *", "--after", "9999-01-01T00:00:00Z", "-n", "1"],
            "no fire follows 9999-01-01T00:00:00Z",
        ),
    ] {
        let answer = leasehold(args).await;
        assert!(answer.stderr.contains(why) && answer.code == 1, "{args:?}: {answer:?}");
    }
    db.sql("select leasehold.schedule('broken', '0 25 * * *', 'echo')").await;
    look(&db).await;
    let listed = leasehold(&["list"]).await.ok().stdout;
    assert!(listed.contains("error") && listed.contains("25"), "{listed}");
    assert_eq!(leasehold(&["remove", "report"]).await.ok().stdout, "schedule report is removed\n");
    assert_eq!(
        leasehold(&["remove", "report", "--json"]).await.json(),
        json!({ "schedule": "report", "removed": false })
    );
}
