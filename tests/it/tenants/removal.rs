//! Removing a tenant: all of it goes, and nothing else.

use leasehold_tests::workers::quick;
use leasehold_tests::{TestDb, Upload, binary, guests};

use super::{new_role, tenant};

/// Jobs of each kind, for a tenant with the module "echo".
async fn live_a_little(db: &TestDb, tenant: &str) {
    db.sql(&format!(
        "select leasehold.enqueue('echo', tenant => '{tenant}') from generate_series(1, 3);
         select leasehold.set_quotas('{tenant}', '{{\"queued_jobs\": 100}}')"
    ))
    .await;
    for _ in 0..2 {
        db.complete(db.claim_one().await).await;
    }
    db.bury(db.claim_one().await).await;
    let group: i64 = db.value("select leasehold.new_group()").await;
    db.sql(&format!(
        "select leasehold.enqueue('echo', tenant => '{tenant}', unique_key => 'k', unique_for => '1 day', queue => 'later', group_id => {group}, expires_at => now() + interval '1 day');
         select leasehold.enqueue('echo', tenant => '{tenant}', after_group => {group}, queue => 'later');
         select leasehold.enqueue('echo', tenant => '{tenant}', concurrency_key => 'one', queue => 'of-{tenant}') from generate_series(1, 3);
         select leasehold.schedule('s', '@hourly', 'echo', tenant => '{tenant}');
         select leasehold.set_rate(5, tenant => '{tenant}', key => 'r'); select leasehold.set_cap(5, '{tenant}')"
    ))
    .await;
}

/// The rows of each table that has the tenant's number, by table.
async fn rows_of(db: &TestDb, tenant_id: i32) -> Vec<String> {
    let tables: Vec<String> = db
        .column(
            "select c.relname::text from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
              where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1",
        )
        .await;
    let mut rows = Vec::new();
    for table in tables {
        let sql = format!(
            "select '{table} ' || md5(string_agg(r::text, '' order by r::text)) from leasehold.{table} r where tenant_id = {tenant_id} having count(*) > 0"
        );
        rows.extend(db.column::<String>(&sql).await);
    }
    rows
}

async fn id_of(db: &TestDb, tenant: &str) -> i32 {
    db.value(&format!("select tenant_id from leasehold.tenants where name = '{tenant}'")).await
}

#[tokio::test]
async fn a_removed_tenant_leaves_nothing_behind_and_its_neighbour_as_it_was() {
    let db = TestDb::new().await;
    for name in ["acme", "beta"] {
        tenant(&db, name, "echo").await;
        live_a_little(&db, name).await;
    }
    let role = new_role(&db, "own").await;
    db.sql(&format!("select leasehold.grant_tenant('acme', '{role}'); select leasehold.pause(tenant => 'beta')")).await;
    let (acme, beta) = (id_of(&db, "acme").await, id_of(&db, "beta").await);
    let before = rows_of(&db, beta).await;
    assert!(before.len() >= 11, "{before:?}");
    assert!(rows_of(&db, acme).await.len() > before.len(), "the role too");
    let strays = "select count(*) from (select job_id from leasehold.dependencies union all select job_id from leasehold.group_members
                    union all select job_id from leasehold.expiries union all select job_id from leasehold.waiting_jobs) s";
    let stray = db.value::<i64>(strays).await;
    assert!(stray > 0 && stray % 2 == 0, "{stray}");

    let removed = binary::run(db.url(), &["tenant", "remove", "acme"]).await.ok();
    assert!(removed.stdout.starts_with("tenant acme is removed, with "), "{removed:?}");
    assert_eq!(rows_of(&db, acme).await, [""; 0]);
    assert_eq!(rows_of(&db, beta).await, before);
    assert_eq!(db.value::<i64>(strays).await, stray / 2);
    assert!(!db.value::<bool>(&format!("select pg_has_role('{role}', 'leasehold_tenant', 'member')")).await);
    let again = binary::run(db.url(), &["tenant", "remove", "acme"]).await;
    assert!(again.code == 1 && again.stderr.contains("no tenant is named 'acme'"), "{again:?}");
    // The name is free for somebody who has nothing of the former one.
    tenant(&db, "acme", "echo").await;
    assert_ne!(id_of(&db, "acme").await, acme);
}

#[tokio::test]
async fn running_jobs_refuse_it_unless_they_may_be_cancelled() {
    let db = TestDb::new().await;
    db.sql("select leasehold.create_tenant('acme')").await;
    db.push(Upload { tenant: "acme", ..Upload::component("wait", &guests::core("wait_for_cancel")) }).await;
    let worker = db.worker_with(quick());
    db.enqueue("'wait', tenant => 'acme', timeout => '1 hour'").await;
    worker.guests_run(1).await;
    let refused = binary::run(db.url(), &["tenant", "remove", "acme"]).await;
    assert!(refused.code == 1 && refused.stderr.contains("1 jobs of tenant 'acme' are running"), "{refused:?}");
    assert!(refused.stderr.contains("--force"), "{refused:?}");
    db.sql("select leasehold.enqueue('wait', tenant => 'acme', run_at => now() + interval '1 day')").await;
    binary::run(db.url(), &["tenant", "remove", "acme", "--force"]).await.ok();
    assert_eq!(db.value::<i64>("select count(*) from leasehold.jobs").await, 0);
    worker.drain().await;
}

#[tokio::test]
async fn a_transaction_that_was_open_before_is_waited_for() {
    let db = TestDb::new().await;
    tenant(&db, "acme", "echo").await;
    let acme = id_of(&db, "acme").await;
    let open = db.connect().await;
    open.batch_execute("begin; select leasehold.enqueue('echo', tenant => 'acme')").await.expect("it is there");
    let waiting = binary::run(db.url(), &["tenant", "remove", "acme", "--wait", "300ms"]).await;
    assert!(
        waiting.code == 1 && waiting.stderr.contains("a transaction that began before is still open"),
        "{waiting:?}"
    );
    let refused = db.refusal("select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_eq!(refused.code, "LH001", "it is shut meanwhile: {refused}");
    open.batch_execute("commit").await.expect("it ends");
    binary::run(db.url(), &["tenant", "remove", "acme"]).await.ok();
    assert_eq!(rows_of(&db, acme).await, [""; 0]);
    assert_eq!(db.value::<i64>("select count(*) from leasehold.live_jobs").await, 0);
}
