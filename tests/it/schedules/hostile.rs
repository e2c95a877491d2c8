//! What a hostile, or careless, producer can do to the others with a schedule: nothing.

use leasehold::maintenance::schedules;
use leasehold_tests::db::refusal;

use super::{due, error, fire, jobs, look, overdue, set, with_echo};

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
    // A worker that knows it finds what was due in the meantime.
    db.sql("update leasehold.timetable set time_zone = 'UTC', look_at = now()").await;
    overdue(&db, "s", 2).await;
    look(&db).await;
    assert_eq!((jobs(&db).await, error(&db, "s").await), (1, None));
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
async fn an_enqueue_that_waits_for_somebody_keeps_nobody_waiting() {
    let db = with_echo().await;
    db.sql(
        "create table public.quota as select 1 as used;
         create function count_it() returns trigger language plpgsql as $$ begin update public.quota set used = used + 1; return new; end $$;
         create trigger count_it before insert on leasehold.live_jobs for each row when (new.payload = '1') execute function count_it()",
    )
    .await;
    for (name, payload) in [("waits", 1), ("free", 2)] {
        set(&db, &format!("'{name}', '@hourly', 'echo', payload => '{payload}'::jsonb")).await;
    }
    overdue(&db, "waits", 1).await;
    overdue(&db, "free", 1).await;
    let mut other = db.connect().await;
    let open = other.transaction().await.expect("a transaction");
    open.batch_execute("update public.quota set used = 0").await.expect("it may");
    look(&db).await;
    assert_eq!(db.column::<Vec<u8>>("select payload from leasehold.jobs").await, [b"2"]);
    let said = error(&db, "waits").await.expect("an error");
    assert!(said.contains("lock timeout"), "{said}");
    open.commit().await.expect("it ends");
    db.sql("update leasehold.timetable set look_at = now() where name = 'waits'").await;
    look(&db).await;
    assert_eq!((jobs(&db).await, error(&db, "waits").await), (2, None));
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
