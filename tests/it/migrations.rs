//! `migrate`: again, at once, dry, and against schemas that it must not touch.

use std::collections::BTreeSet;

use leasehold::store::Retention;
use leasehold_tests::db::store;
use leasehold_tests::{TestDb, binary};

use serde_json::json;

async fn objects(db: &TestDb) -> BTreeSet<String> {
    db.column::<String>(
        "select format('%s %s', c.relkind, c.oid::regclass) from pg_class c join pg_namespace n on n.oid = c.relnamespace
          where n.nspname = 'leasehold' and c.relispartition is false
         union all
         select format('function %s %s', p.oid::regprocedure, md5(pg_get_functiondef(p.oid))) from pg_proc p
          where p.pronamespace = (select oid from pg_namespace where nspname = 'leasehold')",
    )
    .await
    .into_iter()
    .collect()
}

/// What `migrate` applies to an empty database.
fn all_names() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations");
    let files = std::fs::read_dir(folder).expect("the repository is there").flatten().map(|entry| entry.path());
    let stems = files.filter(|path| path.extension().is_some_and(|end| end == "sql"));
    let stems = stems.map(|path| path.file_stem().expect("a file").to_string_lossy().into_owned());
    let mut names: Vec<_> = stems.filter(|stem| stem.starts_with(|c: char| c.is_ascii_digit())).collect();
    names.sort();
    assert_eq!(names[0], "0001_tables");
    names.push("functions, views and roles".into());
    names
}

#[tokio::test]
async fn a_second_migration_finds_nothing_to_do() {
    let db = TestDb::empty().await;
    let first = db.store().migrate(false).await.expect("it migrates");
    let names: Vec<_> = first.iter().map(|migration| migration.name.as_str()).collect();
    assert_eq!(names, all_names());
    let made = objects(&db).await;
    assert!(made.len() > 50, "{made:?}");
    assert_eq!(db.store().migrate(false).await.expect("again"), []);
    assert_eq!(objects(&db).await, made);
    db.store().check_schema().await.expect("a worker is content");
}

#[tokio::test]
async fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let db = TestDb::empty().await;
    let would = db.store().migrate(true).await.expect("it runs dry");
    assert_eq!(would.len(), all_names().len());
    assert!(!db.value::<bool>("select exists (select from pg_namespace where nspname = 'leasehold')").await);
    assert_eq!(db.store().migrate(false).await.expect("it migrates"), would);
    // On a schema that is there already, too.
    db.sql(
        "update leasehold.schema_version set checksum = 'older' where version = 0; drop function leasehold.wake(text)",
    )
    .await;
    assert_eq!(db.store().migrate(true).await.expect("it runs dry").len(), 1);
    assert!(db.value::<bool>("select to_regprocedure('leasehold.wake(text)') is null").await);
    assert_eq!(db.store().migrate(false).await.expect("it migrates").len(), 1);
    assert!(db.value::<bool>("select to_regprocedure('leasehold.wake(text)') is not null").await);
}

#[tokio::test]
async fn migrators_take_turns() {
    let db = TestDb::empty().await;
    let stores: Vec<_> = (0..6).map(|_| store(db.url())).collect();
    let done = futures_util::future::join_all(stores.iter().map(|store| store.migrate(false))).await;
    let done: Vec<_> = done.into_iter().flat_map(|done| done.unwrap_or_else(|error| panic!("{error:#}"))).collect();
    // The tables and what works on them come in two transactions, so two migrators may share the work.
    let names: BTreeSet<_> = done.iter().map(|migration| migration.name.as_str()).collect();
    assert_eq!((done.len(), names.len()), (all_names().len(), all_names().len()), "each was applied once: {done:?}");
}

#[tokio::test]
async fn a_migration_waits_for_no_lock_for_long_and_leaves_nothing_half_done() {
    let db = TestDb::new().await;
    db.sql("update leasehold.schema_version set checksum = 'older' where version = 0").await;
    let mut other = db.connect().await;
    let busy = other.transaction().await.expect("a transaction");
    busy.batch_execute("lock table leasehold.schema_version in access exclusive mode").await.expect("a lock");
    let error = db.store().migrate(false).await.expect_err("it is locked out");
    assert!(format!("{error:#}").contains("lock timeout"), "{error:#}");
    busy.rollback().await.expect("it ends");
    assert_eq!(db.store().migrate(false).await.expect("now it can").len(), 1);
}

#[tokio::test]
async fn a_newer_schema_is_left_alone_by_migrate_and_served_by_a_worker() {
    let db = TestDb::new().await;
    db.sql("insert into leasehold.schema_version (version, name, checksum) values (1000, '1000_future', 'x')").await;
    let error = format!("{:#}", db.store().migrate(false).await.expect_err("it is newer"));
    assert!(
        error.contains("schema version 1000 (1000_future)")
            && error.contains(&format!("knows versions up to {}", all_names().len() - 1)),
        "{error}"
    );
    assert!(error.contains("use a newer leasehold"), "{error}");
    db.push_wat("echo").await;
    let worker = db.worker();
    let id = db.enqueue("'echo'").await;
    db.wait_for(id, "done").await;
    worker.drain().await;
}

#[tokio::test]
async fn a_migration_that_was_edited_is_refused() {
    let db = TestDb::new().await;
    db.sql("update leasehold.schema_version set checksum = '0123456789abcdef' where version = 1").await;
    let before = objects(&db).await;
    let error = format!("{:#}", db.store().migrate(false).await.expect_err("it differs"));
    assert!(error.contains("0001_tables") && error.contains("0123456789abcdef"), "{error}");
    assert_eq!(objects(&db).await, before);
}

#[tokio::test]
async fn a_worker_refuses_a_schema_that_is_missing_or_old_and_says_what_to_type() {
    let db = TestDb::empty().await;
    let bare = binary::run(db.url(), &["worker"]).await;
    assert_eq!(bare.code, 1, "{bare:?}");
    assert!(bare.stderr.contains("run: leasehold migrate"), "{bare:?}");
    db.store().migrate(false).await.expect("it migrates");
    db.sql("delete from leasehold.schema_version where version > 0").await;
    let old = binary::run(db.url(), &["worker"]).await;
    assert_eq!(old.code, 1, "{old:?}");
    let needs = format!("has schema version 0, this leasehold needs {}; run: leasehold migrate", all_names().len() - 1);
    assert!(old.stderr.contains(&needs), "{old:?}");
    for args in [&["stats"][..], &["enqueue", "echo"], &["job", "list"]] {
        let empty = TestDb::empty().await;
        let answer = binary::run(empty.url(), args).await;
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.stderr.contains("run: leasehold migrate"), "{args:?}: {answer:?}");
    }
}

#[tokio::test]
async fn the_command_says_what_it_did() {
    let db = TestDb::empty().await;
    let would = binary::run(db.url(), &["migrate", "--dry-run"]).await.ok();
    let lines: String = all_names().iter().map(|name| format!("would apply {name}\n")).collect();
    assert_eq!(would.stdout, lines);
    let all: Vec<_> = all_names().iter().map(|name| json!({ "name": name })).collect();
    let applied = binary::run(db.url(), &["migrate", "--json"]).await.json();
    assert_eq!(applied, json!({ "applied": all, "dry_run": false }));
    assert_eq!(binary::run(db.url(), &["migrate"]).await.ok().stdout, "nothing to do: the schema is current\n");
}

#[tokio::test]
async fn jobs_outlive_an_upgrade_under_a_running_worker() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    let worker = db.worker();
    let ids = db.enqueue_many("echo", 300).await;
    for _ in 0..3 {
        db.sql("update leasehold.schema_version set checksum = 'older' where version = 0").await;
        assert_eq!(db.store().migrate(false).await.unwrap_or_else(|error| panic!("{error:#}")).len(), 1);
    }
    for id in ids {
        db.wait_for(id, "done").await;
    }
    worker.drain().await;
}

#[tokio::test]
async fn partitions_are_made_ahead_and_dropped_when_they_are_old() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    let partitions = async || -> Vec<String> {
        db.column("select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid where inhparent = 'leasehold.history'::regclass order by 1").await
    };
    let made = partitions().await;
    assert_eq!(made.len(), 9, "today, a week ahead, and the default: {made:?}");
    assert!(db.store().maintain_partitions(Retention::default()).await.expect("it runs").is_empty(), "all is there");
    // A job of long ago, in a partition of its day, and one in the default partition.
    db.sql(
        "create table leasehold.history_20200101 (like leasehold.history including defaults including constraints);
         alter table leasehold.history attach partition leasehold.history_20200101 for values from ('2020-01-01 00:00+00') to ('2020-01-02 00:00+00')",
    )
    .await;
    for day in ["2020-01-01 12:00+00", "2020-03-01 12:00+00", "now"] {
        let job = db.enqueue_and_claim("echo").await;
        let id = job.id;
        db.complete(job).await;
        if day != "now" {
            db.sql(&format!("update leasehold.history set finished_at = '{day}' where id = {id}")).await;
        }
    }
    assert_eq!(db.value::<i64>("select count(*) from leasehold.history").await, 3);
    assert_eq!(
        db.store().maintain_partitions(Retention::default()).await.expect("it runs"),
        ["dropped history_20200101"]
    );
    assert_eq!(db.column::<i64>("select id from leasehold.history").await, [3], "the young one stays");
    assert_eq!(partitions().await, made);
}

#[tokio::test]
async fn jobs_settle_when_nobody_has_made_partitions() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.sql(
        "do $$ declare t text; begin
             for t in select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid where c.relname ~ '_[0-9]{8}$' and c.relnamespace = 'leasehold'::regnamespace
             loop execute format('drop table leasehold.%I', t); end loop;
         end $$",
    )
    .await;
    for _ in 0..2 {
        let job = db.enqueue_and_claim("echo").await;
        let id = job.id;
        db.bury(job).await;
        assert_eq!(db.state(id).await, "dead");
    }
    // Today's rows lie in the default partition by now, which must not stop the making of the others.
    let made = db.store().maintain_partitions(Retention::default()).await.expect("it runs");
    assert_eq!(made.iter().filter(|what| what.starts_with("created history_")).count(), 7, "{made:?}");
    let job = db.enqueue_and_claim("echo").await;
    let id = job.id;
    db.complete(job).await;
    assert_eq!(db.state(id).await, "done");
    assert_eq!(db.value::<i64>("select count(*) from leasehold.attempts").await, 2);
}

#[tokio::test]
async fn a_function_that_answers_otherwise_than_this_binary_reads_is_an_error_and_no_panic() {
    let db = TestDb::new().await;
    db.sql(
        "drop function leasehold.reap(int, int);
         create function leasehold.reap(int, int) returns table (id text, state text) language sql as $$ select 'one', 'queued' $$;
         drop function leasehold.find_stragglers(text[], int[], timestamptz[], bigint[]);
         create function leasehold.find_stragglers(text[], int[], timestamptz[], bigint[]) returns table (lane text)
         language sql as $$ select 'default' $$",
    )
    .await;
    let bounds = leasehold::store::Bounds::default();
    let errors = [
        db.store().reap().await.expect_err("the id is no number"),
        db.store().find_stragglers(&bounds).await.expect_err("there is no queue"),
    ];
    for error in errors {
        assert!(format!("{error:#}").contains("is its schema of another version?"), "{error:#}");
        assert!(!leasehold::store::is_transient(&error), "asking again does not help");
    }
}

#[tokio::test]
async fn jobs_that_are_done_may_go_sooner_than_the_others() {
    let db = TestDb::new().await;
    db.push_nothing("echo").await;
    db.sql(
        "create table leasehold.history_20200101 partition of leasehold.history for values from ('2020-01-01 00:00+00') to ('2020-01-02 00:00+00');
         create table leasehold.history_20200102 partition of leasehold.history for values from ('2020-01-02 00:00+00') to ('2020-01-03 00:00+00')",
    )
    .await;
    for _ in 0..4 {
        let job = db.enqueue_and_claim("echo").await;
        if job.id.0 % 2 == 0 {
            db.bury(job).await
        } else {
            db.complete(job).await
        };
    }
    db.sql("update leasehold.history set finished_at = '2020-01-01 12:00+00'::timestamptz + (id > 2)::int * interval '1 day'").await;
    let days: i32 = db.value("select (now()::date - '2020-01-03'::date)").await;
    let done =
        db.store().maintain_partitions(Retention { days: days + 100, done_days: Some(days) }).await.expect("it runs");
    assert_eq!(done, ["dropped the done jobs of history_20200101", "dropped the done jobs of history_20200102"]);
    let left: Vec<String> = db.column("select id || ' ' || state from leasehold.jobs order by id").await;
    assert_eq!(left, ["2 dead", "4 dead"]);
    assert!(db.redrive(leasehold::job::JobId(2)).await, "they can be redriven from there");
    db.store().maintain_partitions(Retention { days: days - 100, done_days: Some(1) }).await.expect("it runs");
    assert_eq!(db.column::<i64>("select id from leasehold.jobs").await, [2], "the other's time was up too");
}
