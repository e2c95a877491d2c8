//! Which role may act for which tenant, and who that is.

use leasehold_tests::db::{as_user, connect, refusal};
use leasehold_tests::{TestDb, binary};
use tokio_postgres::Client;

use super::{login, new_role, tenant};

async fn may_enqueue(client: &Client, tenant: &str) -> bool {
    match client.query_one(&format!("select leasehold.enqueue('echo', tenant => '{tenant}')"), &[]).await {
        Ok(_) => true,
        Err(error) => {
            let code = error.as_db_error().expect("an answer").code().code().to_owned();
            assert!(code == "LH001" || code == "42501", "{error:?}");
            false
        }
    }
}

async fn acme_and_beta() -> TestDb {
    let db = TestDb::new().await;
    tenant(&db, "acme", "echo").await;
    tenant(&db, "beta", "echo").await;
    db
}

#[tokio::test]
async fn a_role_acts_for_the_tenants_it_was_granted_and_a_pooled_session_for_the_role_it_has_set() {
    let db = acme_and_beta().await;
    let (both, role) = login(&db, "acme", "tenant").await;
    assert!(may_enqueue(&both, "acme").await && !may_enqueue(&both, "beta").await);
    db.sql(&format!("select leasehold.grant_tenant('beta', '{role}', 'producer')")).await;
    assert!(may_enqueue(&both, "acme").await && may_enqueue(&both, "beta").await);
    let seen: Vec<String> = both
        .query("select distinct tenant from leasehold.my_jobs", &[])
        .await
        .expect("its own")
        .iter()
        .map(|r| r.get(0))
        .collect();
    assert_eq!(seen, ["acme"], "it may only enqueue for the other");

    // A pool's login that has nothing of its own.
    let (_, beta_role) = login(&db, "beta", "tenant").await;
    let pool_role = new_role(&db, "pool").await;
    db.sql(&format!("alter role {pool_role} noinherit; grant {role}, {beta_role} to {pool_role}")).await;
    let pool = connect(&as_user(db.url(), &pool_role)).await;
    assert!(!may_enqueue(&pool, "acme").await && !may_enqueue(&pool, "beta").await);
    pool.batch_execute(&format!("begin; set local role {beta_role}")).await.expect("a member");
    let refused = refusal(&pool, "select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_eq!(refused.message, format!("no tenant named 'acme' was granted to role {beta_role}"));
    pool.batch_execute(&format!("rollback; begin; set local role {beta_role}")).await.expect("a member");
    assert!(may_enqueue(&pool, "beta").await);
    pool.batch_execute("commit").await.expect("it ends");
    assert!(!may_enqueue(&pool, "beta").await);

    // Those that may act for all go on doing so.
    let (producer, _) = db.connect_as("leasehold_producer").await;
    assert!(may_enqueue(&producer, "acme").await && may_enqueue(&producer, "beta").await);
}

#[tokio::test]
async fn a_role_that_was_dropped_and_made_anew_has_nothing() {
    let db = acme_and_beta().await;
    let (acme, role) = login(&db, "acme", "tenant").await;
    assert!(may_enqueue(&acme, "acme").await);
    db.sql(&format!("drop role {role}; create role {role} login password 'secret'; grant leasehold_tenant to {role}"))
        .await;
    let impostor = connect(&as_user(db.url(), &role)).await;
    assert!(!may_enqueue(&impostor, "acme").await);
    let shown = binary::run(db.url(), &["tenant", "show", "acme"]).await.ok();
    assert!(shown.stdout.contains("that role was dropped"), "{shown:?}");
    db.sql(&format!("select leasehold.grant_tenant('acme', '{role}')")).await;
    assert!(may_enqueue(&impostor, "acme").await);
}

#[tokio::test]
async fn a_revoked_role_loses_its_tenant_at_once() {
    let db = acme_and_beta().await;
    let (acme, role) = login(&db, "acme", "tenant").await;
    assert!(may_enqueue(&acme, "acme").await);
    let args = ["tenant", "revoke", "acme", &role];
    assert_eq!(binary::run(db.url(), &args).await.ok().stdout, format!("role {role} acts no more for tenant acme\n"));
    let refused = refusal(&acme, "select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_eq!(refused.code, "42501", "{refused}");
}

#[tokio::test]
async fn functions_of_an_application_may_vouch_where_the_operator_says_so() {
    let db = acme_and_beta().await;
    let (_, app_role) = db.connect_as("leasehold_producer").await;
    let _ = app_role;
    let owner = format!("{}_leasehold_producer", db.name());
    let visitor_role = new_role(&db, "visitor").await;
    db.sql(&format!(
        "create schema app authorization {owner}; grant usage on schema app to public; set role {owner};
         create function app.submit(tenant text) returns bigint security definer language plpgsql as
           $$ begin return leasehold.enqueue('echo', tenant => tenant); end $$;
         reset role;"
    ))
    .await;
    let visitor = connect(&as_user(db.url(), &visitor_role)).await;
    let refused = refusal(&visitor, "select app.submit('acme')").await;
    assert_eq!(refused.code, "LH001", "{refused}");
    assert!(refused.hint.as_deref().is_some_and(|hint| hint.contains("leasehold tenant grant")), "{refused:?}");
    binary::run(db.url(), &["tenant", "grant", "acme", &visitor_role, "--level", "producer", "--through-functions"])
        .await
        .ok();
    visitor.query_one("select app.submit('acme')", &[]).await.expect("it was granted");
    let refused = refusal(&visitor, "select app.submit('beta')").await;
    assert_eq!(refused.code, "LH001", "{refused}");
    let refused = refusal(&visitor, "select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_eq!(refused.code, "42501", "{refused}");
}

#[tokio::test]
async fn a_grant_that_would_mean_nothing_is_refused() {
    let db = acme_and_beta().await;
    let (_, _) = db.connect_as("leasehold_producer").await;
    let producer = format!("{}_leasehold_producer", db.name());
    for (sql, code, part) in [
        (
            format!("select leasehold.grant_tenant('acme', '{producer}')"),
            "LH003",
            "may act for all tenants, as leasehold_producer may",
        ),
        ("select leasehold.grant_tenant('acme', 'nobody_at_all')".into(), "LH003", "no role is named 'nobody_at_all'"),
        (format!("select leasehold.grant_tenant('nobody', '{producer}')"), "LH001", "no tenant is named 'nobody'"),
        (format!("select leasehold.grant_tenant('acme', '{producer}', 'owner')"), "LH003", "level 'owner' is neither"),
    ] {
        let refused = db.refusal(&sql).await;
        assert_eq!(refused.code, code, "{sql}: {refused}");
        assert!(refused.message.contains(part), "{sql}: {refused}");
    }
}

#[tokio::test]
async fn the_command_creates_a_tenant_with_a_role_of_its_own() {
    let db = TestDb::new().await;
    let role = format!("{}_own", db.name());
    let made = binary::run(db.url(), &["tenant", "create", "acme", "--role", &role]).await.ok();
    assert!(
        made.stdout.starts_with("tenant acme created\n") && made.stdout.contains(&format!("\\password {role}")),
        "{made:?}"
    );
    db.sql(&format!("alter role {role} password 'secret'")).await;
    let acme = connect(&as_user(db.url(), &role)).await;
    let refused = refusal(&acme, "select leasehold.enqueue('echo', tenant => 'acme')").await;
    assert_eq!(refused.code, "LH002", "{refused}");
    // The same command uploads in its name, and no further than its tenant.
    let url = as_user(db.url(), &role);
    let files = binary::Files::new();
    let wasm = files.write("echo.wasm", &leasehold_tests::guests::core("echo"));
    let push = async |tenant: &str, flags: &[&str]| {
        binary::run(&url, &[&["module", "push", "echo", &wasm, "--tenant", tenant], flags].concat()).await
    };
    push("acme", &[]).await.ok();
    for (tenant, flags, part) in [
        ("default", &[][..], "no tenant named 'default' was granted"),
        ("acme", &["--follow-ups", "1"], "exceeds max_follow_ups of tenant 'acme', which is 0"),
    ] {
        let refused = push(tenant, flags).await;
        assert!(refused.code == 1 && refused.stderr.contains(part), "{refused:?}");
    }
    acme.query_one("select leasehold.enqueue('echo', tenant => 'acme')", &[]).await.expect("it is there");
    let shown = binary::run(db.url(), &["tenant", "show", "acme", "--json"]).await.json();
    assert_eq!(shown["roles"], serde_json::json!([{ "role": role, "level": "tenant", "valid": true }]));
}
