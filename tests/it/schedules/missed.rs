//! What becomes of fires that could not be: paused, held, refused, forgotten by nobody.

use std::time::Duration;

use super::{due, error, fire, fired_hours_ago, jobs, look, overdue, set, with_echo};

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
    db.sql("set time zone 'UTC'").await;
    let two_minutes_ago: String = db.value("select to_char(now() - interval '2 minutes', 'MI HH24 DD MM *')").await;
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
async fn what_was_due_while_its_error_stood_is_missed_and_not_forgotten() {
    let db = with_echo().await;
    set(&db, "'s', '@hourly', 'echo', missed => 'all', time_key => 'at'").await;
    overdue(&db, "s", 2).await;
    db.sql("update leasehold.timetable set time_zone = 'Mars/Olympus'").await;
    look(&db).await;
    assert!(error(&db, "s").await.is_some());
    db.sql("update leasehold.timetable set time_zone = 'UTC', look_at = now()").await;
    look(&db).await;
    assert_eq!(fired_hours_ago(&db).await, [2, 1, 0]);
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
