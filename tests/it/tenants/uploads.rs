//! What a tenant's own role uploads: within the operator's ceilings, and at nobody's risk but its own.

use leasehold_tests::TestDb;
use leasehold_tests::db::refusal;
use leasehold_tests::workers::quick;

use super::{login, tenant};

/// A call of push_module with one thing changed: by its place among the arguments from "kind" on.
fn push(place: usize, value: &str) -> String {
    let mut arguments = [
        "'command'",
        "'\\x0061736d01000000'",
        "20000000000",
        "67108864",
        "30000",
        "1048576",
        "16384",
        "'{}'",
        "'{}'",
        "true",
        "'{}'",
        "0",
    ];
    arguments[place] = value;
    format!("select * from leasehold.push_module('acme', 'mine', {})", arguments.join(", "))
}

#[tokio::test]
async fn a_tenants_role_grants_itself_no_more_than_the_operators_ceiling() {
    let db = TestDb::new().await;
    tenant(&db, "acme", "echo").await;
    db.sql("select leasehold.set_quotas('acme', '{\"max_module_bytes\": 1000}')").await;
    let (acme, _) = login(&db, "acme", "tenant").await;
    for (place, value, code, part) in [
        (
            1,
            "convert_to(repeat('x', 1001), 'UTF8')",
            "LH034",
            "module_bytes of 1001 exceeds max_module_bytes of tenant 'acme', which is 1000",
        ),
        (2, "20000000001", "LH034", "fuel of 20000000001 exceeds max_fuel of tenant 'acme', which is 20000000000"),
        (2, "null", "LH034", "fuel of null exceeds"),
        (2, "0", "LH003", "no run can begin with fuel 0"),
        (3, "67108865", "LH034", "memory_bytes of 67108865"),
        (3, "9223372036854775807", "LH034", "memory_bytes of 9223372036854775807"),
        (3, "1", "LH003", "1 bytes of memory"),
        (4, "30001", "LH034", "timeout_ms of 30001 exceeds max_timeout_ms of tenant 'acme', which is 30000"),
        (4, "-1", "LH003", "-1 ms"),
        (5, "1048577", "LH034", "result_bytes of 1048577"),
        (6, "16385", "LH034", "log_bytes of 16385"),
        (11, "1", "LH034", "follow_ups of 1 exceeds max_follow_ups of tenant 'acme', which is 0"),
        (11, "null", "LH034", "follow_ups of null"),
        (0, "'plugin'", "LH003", "kind 'plugin' is neither"),
        (0, "null", "LH003", "kind null"),
        (7, "'[]'", "LH003", "are JSON objects"),
        (7, "'{\"fuel\": \"explode\"}'", "LH003", "on_failure of 'fuel'"),
        (7, "'{\"host\": \"dead\"}'", "LH003", "on_failure of 'host'"),
        (8, "array_fill('x'::text, array[1001])", "LH003", "1001 imports"),
        (10, "'{\"factor\": 1e300}'", "LH003", "retry of 'factor'"),
        (10, "'{\"base_ms\": \"soon\"}'", "LH003", "retry of 'base_ms'"),
        (10, "'{\"base_ms\": -1}'", "LH003", "retry of 'base_ms'"),
        (10, "'{\"more\": 1}'", "LH003", "retry of 'more'"),
    ] {
        let refused = refusal(&acme, &push(place, value)).await;
        assert_eq!(refused.code, code, "{place} {value}: {refused}");
        assert!(refused.message.contains(part), "{place} {value}: {refused}");
    }
    assert_eq!(
        db.value::<i64>("select count(*) from leasehold.modules where name = 'mine'").await,
        0,
        "nothing is left of them"
    );
    acme.query_one(&push(0, "'command'"), &[]).await.expect("all of it is allowed");

    // What the operator raises is there to be had, and what the operator uploads is the operator's word.
    db.sql("select leasehold.set_quotas('acme', '{\"max_follow_ups\": 5, \"max_timeout_ms\": 60000}')").await;
    acme.query_one(&push(11, "5"), &[]).await.expect("it was raised");
    acme.query_one(&push(4, "60000"), &[]).await.expect("it was raised");
    acme.query_one("select leasehold.enqueue('mine', tenant => 'acme', timeout => '1 min')", &[])
        .await
        .expect("it was raised");
    assert_eq!(refusal(&acme, &push(11, "6")).await.code, "LH034");
    db.sql(&push(11, "100")).await;
    let settings: Vec<i32> = db.column("select follow_ups from leasehold.module_versions v join leasehold.modules m using (module_id) where m.name = 'mine' order by version").await;
    assert_eq!(settings, [0, 5, 0, 100]);
}

/// SQL checks what SQL can. The rest is the worker's, in a process that compiles under limits.
#[tokio::test]
async fn an_upload_that_is_no_module_ends_its_own_jobs_and_harms_nobody() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    tenant(&db, "acme", "echo").await;
    let (acme, _) = login(&db, "acme", "tenant").await;
    let worker = db.worker_with(quick());
    for (n, (kind, bytes)) in [
        ("command", "convert_to(repeat('x', 100000), 'UTF8')"),
        ("component", "''::bytea"),
        ("component", "'\\x0061736d01000000'::bytea"),
        ("command", "'\\x0061736d0d000100'::bytea"),
    ]
    .into_iter()
    .enumerate()
    {
        let sql = format!(
            "select leasehold.push_module('acme', 'bad{n}', '{kind}', {bytes}, 1000, 65536, 1000, 1000, 1000, '{{}}', '{{}}', true);
             select leasehold.enqueue_many('bad{n}', array_fill('1'::jsonb, array[5]), 'acme')"
        );
        acme.batch_execute(&sql).await.expect("it is its own");
    }
    let good = db.enqueue("'echo', '7'").await;
    db.wait_for(good, "done").await;
    db.wait_until("all of them are dead", "not exists (select from leasehold.live_jobs)").await;
    let ends: Vec<String> =
        db.column("select distinct state || ' ' || failure_kind from leasehold.jobs where tenant = 'acme'").await;
    assert_eq!(ends, ["dead link"]);
    let why: Vec<Option<String>> = acme
        .query("select distinct error from leasehold.my_jobs where module = 'bad0'", &[])
        .await
        .expect("its own")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(why.len() == 1 && why[0].is_some(), "{why:?}");
    worker.drain().await;
}
