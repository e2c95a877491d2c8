//! What the owners of schedules see: transactions, tenants, the command line.

use leasehold_tests::binary;
use serde_json::json;

use super::{jobs, look, overdue, set, with_echo};

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
