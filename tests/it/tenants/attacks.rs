//! What a tenant's own role, and an application's, try with SQL. Each is refused, or answers what harms nobody.

use leasehold_tests::TestDb;
use leasehold_tests::db::{Refusal, as_user, connect, refusal};
use leasehold_tests::workers::quick;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::{login, new_role, tenant};

enum Answer {
    /// The SQLSTATE, and a part of the message.
    Refused(&'static str, &'static str),
    /// What the last statement answers, in its first column and row; "" for no row.
    Harmless(&'static str),
}
use Answer::{Harmless, Refused};

/// Of the tenant acme. {job}, {done} and {group} are beta's; {mine} is a queued job of acme's.
const BY_A_TENANT: &[(&str, Answer)] = &[
    // Another tenant by name: the same answer as for one that is not there.
    ("select leasehold.enqueue('secret', tenant => 'beta')", Refused("LH001", "no tenant named 'beta' was granted")),
    (
        "select leasehold.enqueue('secret', tenant => 'nobody')",
        Refused("LH001", "no tenant named 'nobody' was granted"),
    ),
    ("select leasehold.enqueue('secret', '1'::jsonb, 'beta')", Refused("LH001", "'beta'")),
    ("select leasehold.enqueue('secret', '\\x00'::bytea, 'beta')", Refused("LH001", "'beta'")),
    ("select leasehold.enqueue('echo')", Refused("LH001", "'default'")),
    ("select leasehold.enqueue_many('secret', array['1']::jsonb[], 'beta')", Refused("LH001", "'beta'")),
    (
        "select leasehold.enqueue_many('secret', array['1']::jsonb[], 'beta', unique_keys => '{k}')",
        Refused("LH001", "'beta'"),
    ),
    ("insert into leasehold.new_jobs (module, tenant) values ('secret', 'beta')", Refused("LH001", "'beta'")),
    (
        "select leasehold.enqueue_bytes('secret', '', 'beta', 'q', 0, null, null, null, null, null, null, 1, null, null, null, 'keep', null, null, null, 'cancel', null, null, null, null, false)",
        Refused("LH001", "'beta'"),
    ),
    ("select leasehold.enqueue('echo', tenant => null)", Refused("LH001", "null")),
    ("select leasehold.redrive_many('beta')", Refused("LH001", "'beta'")),
    ("select leasehold.schedule('s', '@hourly', 'secret', tenant => 'beta')", Refused("LH001", "'beta'")),
    ("select leasehold.unschedule('nightly', 'beta')", Refused("LH001", "'beta'")),
    ("select leasehold.pause_schedule('nightly', 'beta')", Refused("LH001", "'beta'")),
    ("select leasehold.resume_schedule('nightly', 'beta')", Refused("LH001", "'beta'")),
    ("select leasehold.fire_schedule('nightly', 'beta')", Refused("LH001", "'beta'")),
    (
        "select leasehold.push_module('beta', 'secret', 'command', 'x', 1, 65536, 1, 1, 1, '{}', '{}', true)",
        Refused("LH001", "'beta'"),
    ),
    ("select leasehold.activate_module('beta', 'secret', null)", Refused("LH001", "'beta'")),
    ("select leasehold.remove_module('beta', 'secret', true)", Refused("LH001", "'beta'")),
    ("select leasehold.activate_module('acme', 'secret', null)", Refused("LH002", "no module named 'secret'")),
    ("select leasehold.enqueue('secret', tenant => 'acme')", Refused("LH002", "no module named 'secret'")),
    ("select leasehold.enqueue('echo', tenant => repeat('t', 1000000))", Refused("LH001", "'tttt")),
    // Another tenant's job by its id: as if it were not there.
    ("select leasehold.cancel({job})", Refused("LH004", "there is no job {job}")),
    ("select leasehold.cancel(2000000000)", Refused("LH004", "there is no job 2000000000")),
    ("select leasehold.redrive({done})", Refused("LH004", "there is no job {done}")),
    ("select leasehold.wait({job}, '1 ms')", Refused("LH004", "there is no job {job}")),
    ("select leasehold.wait({done})", Refused("LH004", "there is no job {done}")),
    ("select leasehold.result({done})", Refused("LH004", "there is no job {done}")),
    ("select leasehold.explain({job})", Refused("LH004", "there is no job {job}")),
    ("select leasehold.explain({done})", Refused("LH004", "there is no job {done}")),
    ("select leasehold.cancel(null)", Refused("LH004", "there is no job null")),
    ("select leasehold.cancel(i) from generate_series(1, 100) i", Refused("LH004", "there is no job 1")),
    (
        "select leasehold.enqueue('echo', tenant => 'acme', after => array[{job}])",
        Refused("LH004", "there is no job {job}"),
    ),
    (
        "select leasehold.enqueue('echo', tenant => 'acme', after => array[{done}])",
        Refused("LH004", "there is no job {done}"),
    ),
    (
        "create temp table t as select leasehold.enqueue('echo', tenant => 'acme', after_group => {group}) as id; \
         select waiting from leasehold.my_jobs where id = (select id from t)",
        Harmless("f"),
    ),
    ("select leasehold.enqueue('echo', tenant => 'acme', group_id => {group}) > 0", Harmless("t")),
    (
        "select leasehold.enqueue('echo', tenant => 'acme', unique_key => 'k', on_conflict => 'replace') <> {job}",
        Harmless("t"),
    ),
    // The views show what is its own.
    ("select string_agg(distinct tenant, ',') from leasehold.my_jobs", Harmless("acme")),
    ("select count(*) from leasehold.my_jobs where id in ({job}, {done})", Harmless("0")),
    ("select count(*) from leasehold.my_job_attempts", Harmless("0")),
    ("select count(*) from leasehold.my_schedules", Harmless("0")),
    ("select string_agg(distinct tenant, ',') from leasehold.my_quotas", Harmless("acme")),
    ("select string_agg(distinct tenant, ',') from leasehold.my_queue_stats", Harmless("acme")),
    ("select string_agg(distinct name, ',') from leasehold.my_modules", Harmless("echo")),
    ("select count(*) from leasehold.my_limits", Harmless("0")),
    ("set row_security = off; select string_agg(distinct tenant, ',') from leasehold.my_jobs", Harmless("acme")),
    ("select * from leasehold.jobs", Refused("42501", "view jobs")),
    ("select * from leasehold.job_attempts", Refused("42501", "view job_attempts")),
    ("select * from leasehold.queue_stats", Refused("42501", "view queue_stats")),
    ("select * from leasehold.limits", Refused("42501", "view limits")),
    ("select * from leasehold.usage", Refused("42501", "view usage")),
    ("select count(*) from leasehold.my_usage", Harmless("0")),
    ("select * from leasehold.schedules", Refused("42501", "view schedules")),
    ("select * from leasehold.tenant_quotas", Refused("42501", "view tenant_quotas")),
    ("delete from leasehold.my_jobs", Refused("55000", "cannot delete from view")),
    ("update leasehold.my_jobs set tenant = 'beta'", Refused("55000", "cannot update view")),
    (
        "insert into leasehold.my_quotas values ('acme', 'queued_jobs', 1, 1)",
        Refused("0A000", "cannot insert into column"),
    ),
    (
        "select leasehold.schedule_is_held(tenant_id, 1) is null from generate_series(1, 3) tenant_id where not tenant_id = any(leasehold.my_tenants())",
        Harmless("t"),
    ),
    (
        "select cardinality(leasehold.my_tenants('tenant')) + cardinality(leasehold.my_tenants('producer')) + cardinality(leasehold.my_tenant_names())",
        Harmless("3"),
    ),
    // A condition that is cheap and tells of every row that it is tried on, and one that the planner tries on the statistics.
    (
        "create function pg_temp.tells(text) returns boolean immutable cost 0.0000001 language plpgsql as \
           $$ begin if $1 like '%hush%' then raise exception 'seen: %', $1; end if; return true; end $$; \
         select count(*) > 0 from leasehold.my_jobs where pg_temp.tells(queue) and pg_temp.tells(encode(payload, 'escape')) and pg_temp.tells(error) is not false",
        Harmless("t"),
    ),
    (
        "create function pg_temp.tells(text, text) returns boolean immutable cost 0.0000001 language plpgsql as \
           $$ begin if $1 like '%hush%' then raise exception 'seen: %', $1; end if; return true; end $$; \
         create operator pg_temp.=== (leftarg = text, rightarg = text, function = pg_temp.tells, restrict = eqsel); \
         select count(*) > 0 from leasehold.my_jobs where queue operator(pg_temp.===) 'x'",
        Harmless("t"),
    ),
    ("select 1 / (case when queue = 'hush' then 0 else 1 end) from leasehold.my_jobs", Harmless("1")),
    ("select count(*) from pg_stats where schemaname = 'leasehold'", Harmless("0")),
    ("select * from pg_statistic", Refused("42501", "pg_statistic")),
    ("select count(*) from pg_stat_activity where usename <> session_user and query like '%leasehold%'", Harmless("0")),
    // Other identities.
    ("set role leasehold_producer", Refused("42501", "leasehold_producer")),
    ("set role leasehold_worker", Refused("42501", "leasehold_worker")),
    ("set role {beta}", Refused("42501", "permission denied to set role")),
    ("select set_config('role', 'leasehold_producer', false)", Refused("42501", "leasehold_producer")),
    ("set session authorization {beta}", Refused("42501", "permission denied to set session authorization")),
    ("set role leasehold_tenant; select leasehold.enqueue('secret', tenant => 'beta')", Refused("LH001", "'beta'")),
    (
        "set role leasehold_tenant; select leasehold.enqueue('echo', tenant => 'acme')",
        Refused("LH001", "'acme' was granted to role leasehold_tenant"),
    ),
    ("grant leasehold_producer to {acme}", Refused("42501", "")),
    ("grant {beta} to {acme}", Refused("42501", "")),
    ("create role mine", Refused("42501", "permission denied to create role")),
    ("alter role {acme} superuser", Refused("42501", "")),
    (
        "create function pg_temp.nested() returns bigint security definer language sql as $$ select leasehold.enqueue('secret', tenant => 'beta') $$; \
         select pg_temp.nested()",
        Refused("LH001", "'beta'"),
    ),
    (
        "create function pg_temp.nested() returns bigint language plpgsql set role = 'leasehold_producer' as $$ begin return leasehold.enqueue('secret', tenant => 'beta'); end $$; \
         select pg_temp.nested()",
        Refused("42501", "leasehold_producer"),
    ),
    // Names of its own in the place of ours.
    (
        "create function pg_temp.pg_has_role(name, name, text) returns boolean language sql as $$ select true $$; \
         create function pg_temp.pg_has_role(name, oid, text) returns boolean language sql as $$ select true $$; \
         create function pg_temp.current_setting(text) returns text language sql as $$ select 'postgres' $$; \
         create function pg_temp.nothing(int, int[]) returns boolean language sql as $$ select true $$; \
         create temp table tenants as select 1 as tenant_id, 'beta'::text as name; \
         create temp table tenant_roles as select 1 as tenant_id, 10::oid as role_oid, 'x'::name as role_name, 'tenant'::text as level; \
         set search_path = pg_temp, leasehold, pg_catalog; \
         select leasehold.enqueue('secret', tenant => 'beta')",
        Refused("LH001", "'beta'"),
    ),
    (
        "create function pg_temp.any_of(name, name) returns boolean language sql as $$ select true $$; \
         create operator pg_temp.= (leftarg = name, rightarg = name, function = pg_temp.any_of); \
         create function pg_temp.any_of(int, int) returns boolean language sql as $$ select true $$; \
         create operator pg_temp.= (leftarg = int, rightarg = int, function = pg_temp.any_of); \
         set search_path = pg_temp, pg_catalog; \
         select string_agg(distinct tenant, ',') from leasehold.my_jobs",
        Harmless("acme"),
    ),
    ("create cast (text as bigint) with inout", Refused("42501", "must be owner")),
    (
        "create function leasehold.cancel(text) returns int language sql as 'select 1'",
        Refused("42501", "schema leasehold"),
    ),
    ("create table leasehold.mine ()", Refused("42501", "schema leasehold")),
    ("alter function leasehold.my_tenants(text) security invoker", Refused("42501", "must be owner")),
    ("alter table leasehold.live_jobs disable row level security", Refused("42501", "must be owner")),
    ("create policy mine on leasehold.live_jobs", Refused("42501", "must be owner")),
    (
        "create trigger t instead of insert on leasehold.new_jobs for each row execute function suppress_redundant_updates_trigger()",
        Refused("42501", "new_jobs"),
    ),
    ("create rule r as on insert to leasehold.new_jobs do instead nothing", Refused("42501", "must be owner")),
    (
        "create view pg_temp.all_jobs as select * from leasehold.jobs; select * from pg_temp.all_jobs",
        Refused("42501", "view jobs"),
    ),
    ("set session_replication_role = replica", Refused("42501", "session_replication_role")),
    // What only the operator and workers do.
    ("select leasehold.create_tenant('mine')", Refused("42501", "function create_tenant")),
    ("select leasehold.set_quotas('acme', '{\"max_fuel\": 999999999999}')", Refused("42501", "function set_quotas")),
    ("select leasehold.grant_tenant('beta', '{acme}')", Refused("42501", "function grant_tenant")),
    ("select leasehold.revoke_tenant('beta', '{beta}')", Refused("42501", "function revoke_tenant")),
    ("select leasehold.remove_tenant('beta', true)", Refused("42501", "function remove_tenant")),
    ("select leasehold.set_cap(null, 'acme')", Refused("42501", "function set_cap")),
    ("select leasehold.set_rate(null, tenant => 'acme')", Refused("42501", "function set_rate")),
    ("select leasehold.pause('hush')", Refused("42501", "function pause")),
    ("select leasehold.resume(tenant => 'acme')", Refused("42501", "function resume")),
    ("select leasehold.take_quota(1, -1000000, 0)", Refused("42501", "function take_quota")),
    ("select leasehold.collect_returns(1)", Refused("42501", "function collect_returns")),
    ("select leasehold.claim(1, '{hush}', 1, 1, 1, '{}', '{}', '{}', '{}')", Refused("42501", "function claim")),
    (
        "select leasehold.complete(1, '{{job}}', '{1}', '{x}', '{1}', '{1}', '{1}', '{1}', '{null}', '{0}')",
        Refused("42501", "function complete"),
    ),
    ("select leasehold.heartbeat(1, '{}', '{}', 1, '{}', '{}')", Refused("42501", "function heartbeat")),
    ("select leasehold.reap(1, 1)", Refused("42501", "function reap")),
    ("select leasehold.register_worker('h', 1, 'v', '{hush}', 1)", Refused("42501", "function register_worker")),
    ("select leasehold.due_schedules(10)", Refused("42501", "function due_schedules")),
    ("select leasehold.insert_new_job()", Refused("42501", "function insert_new_job")),
    // Locks, sequences, files, channels.
    ("begin; lock table leasehold.live_jobs", Refused("42501", "table live_jobs")),
    ("begin; lock table leasehold.my_jobs in access exclusive mode", Refused("42501", "view my_jobs")),
    ("begin; lock table leasehold.my_jobs in access share mode; select 'held'", Harmless("held")),
    ("select nextval('leasehold.live_jobs_id_seq')", Refused("42501", "sequence live_jobs_id_seq")),
    ("select setval('leasehold.live_jobs_id_seq', 1)", Refused("42501", "sequence live_jobs_id_seq")),
    (
        "select leasehold.new_group() is not null; select currval('leasehold.groups_group_id_seq')",
        Refused("42501", "sequence groups_group_id_seq"),
    ),
    ("select lo_import('/etc/passwd')", Refused("42501", "lo_import")),
    ("select pg_read_file('/etc/passwd')", Refused("42501", "pg_read_file")),
    ("copy (select 1) to program 'true'", Refused("42501", "COPY")),
    ("create temp table t (x text); copy t from '/etc/passwd'", Refused("42501", "COPY")),
    ("select lo_from_bytea(0, '\\x00') > 0", Harmless("t")),
    ("select pg_terminate_backend(pid) from pg_stat_activity where usename <> session_user", Refused("42501", "")),
    (
        "select pg_notify('leasehold_wake', 'hush'), pg_notify('leasehold_cancel', '{job}') from generate_series(1, 1000)",
        Harmless(""),
    ),
    ("select pg_advisory_lock(7236213), pg_advisory_lock(hashtext('leasehold.maintain_partitions'))", Harmless("")),
    // Odd arguments, and an end in the middle.
    ("select leasehold.enqueue(E'ec\\x00ho', tenant => 'acme')", Refused("22021", "0x00")),
    (
        "select leasehold.enqueue('echo', convert_from('\\xff', 'UTF8'), 'acme')",
        Refused("22021", "invalid byte sequence"),
    ),
    ("select leasehold.enqueue('echo', chr(0), 'acme')", Refused("54000", "")),
    ("select leasehold.cancel(99999999999999999999)", Refused("42883", "cancel(numeric)")),
    (
        "select leasehold.enqueue('echo', tenant => 'acme', timeout => '31 s')",
        Refused("LH034", "31000 ms exceeds max_timeout_ms of tenant 'acme', which is 30000"),
    ),
    ("begin read only; select leasehold.enqueue('echo', tenant => 'acme')", Refused("25006", "read-only")),
    (
        "set statement_timeout = '20ms'; select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[200000]), 'acme', queue => 'timed')",
        Refused("57014", "statement timeout"),
    ),
    ("select count(*) from leasehold.my_jobs where queue = 'timed'", Harmless("0")),
    // Its own.
    ("select leasehold.enqueue('echo', tenant => 'acme') > 0", Harmless("t")),
    ("select code from leasehold.explain({mine})", Harmless("no_worker")),
    ("select leasehold.wait({mine}, '0 s')", Harmless("queued")),
    ("select leasehold.result({mine})", Refused("LH007", "has not ended")),
    ("select leasehold.cancel({mine})", Harmless("cancelled")),
    ("select leasehold.redrive({mine})", Harmless("t")),
    ("select leasehold.redrive_many('acme')", Harmless("")),
    (
        "select leasehold.schedule('s', '@hourly', 'echo', tenant => 'acme'); select held from leasehold.my_schedules",
        Harmless("f"),
    ),
    ("select leasehold.unschedule('s', 'acme')", Harmless("t")),
    ("select leasehold.activate_module('acme', 'echo', 1)", Harmless("1")),
];

/// Of an application that may enqueue for acme.
const BY_A_PRODUCER: &[(&str, Answer)] = &[
    ("select leasehold.enqueue('echo', tenant => 'acme') > 0", Harmless("t")),
    ("select count(*) from leasehold.enqueue_many('echo', array['1', '2']::jsonb[], 'acme')", Harmless("2")),
    ("insert into leasehold.new_jobs (module, tenant) values ('echo', 'acme'); select 'in'", Harmless("in")),
    ("select leasehold.enqueue('secret', tenant => 'beta')", Refused("LH001", "'beta'")),
    ("select leasehold.enqueue('secret', tenant => 'nobody')", Refused("LH001", "'nobody'")),
    ("insert into leasehold.new_jobs (module, tenant) values ('secret', 'beta')", Refused("LH001", "'beta'")),
    ("select count(*) from leasehold.my_jobs", Harmless("0")),
    ("select count(*) from leasehold.my_modules", Harmless("0")),
    ("select * from leasehold.jobs", Refused("42501", "view jobs")),
    ("select leasehold.cancel({mine})", Refused("LH004", "there is no job {mine}")),
    ("select leasehold.cancel({job})", Refused("LH004", "there is no job {job}")),
    ("select leasehold.result({done})", Refused("LH004", "there is no job {done}")),
    ("select leasehold.explain({mine})", Refused("LH004", "there is no job {mine}")),
    ("select leasehold.wait({mine}, '0 s')", Refused("LH004", "there is no job {mine}")),
    ("select leasehold.redrive({mine})", Refused("LH004", "there is no job {mine}")),
    ("select leasehold.redrive_many('acme')", Refused("42501", "may only enqueue for tenant 'acme'")),
    ("select leasehold.redrive_many('beta')", Refused("LH001", "'beta'")),
    (
        "select leasehold.schedule('s', '@hourly', 'echo', tenant => 'acme')",
        Refused("42501", "may only enqueue for tenant 'acme'"),
    ),
    ("select leasehold.unschedule('s', 'acme')", Refused("42501", "may only enqueue for tenant 'acme'")),
    ("select leasehold.activate_module('acme', 'echo', null)", Refused("42501", "may only enqueue for tenant 'acme'")),
    ("select leasehold.remove_module('acme', 'echo', true)", Refused("42501", "may only enqueue for tenant 'acme'")),
    (
        "select leasehold.push_module('acme', 'mine', 'command', 'x', 1, 65536, 1, 1, 1, '{}', '{}', true)",
        Refused("42501", "may only enqueue for tenant 'acme'"),
    ),
    ("select leasehold.pause(tenant => 'acme')", Refused("42501", "function pause")),
    ("set role leasehold_producer", Refused("42501", "leasehold_producer")),
    ("set role {acme}", Refused("42501", "")),
    ("select leasehold.my_tenants('tenant')", Harmless("{}")),
];

/// acme and beta, each with a module; beta with a queued job of the unique key k, one that is done, a schedule and a group, and many jobs
/// in a queue whose name is in the statistics.
async fn acme_and_beta() -> (TestDb, Scene) {
    let db = TestDb::new().await;
    tenant(&db, "acme", "echo").await;
    tenant(&db, "beta", "secret").await;
    let done = db.enqueue("'secret', '\"hush\"', tenant => 'beta'").await;
    let claimed = db.claim_one().await;
    db.complete(claimed).await;
    let group: i64 = db.value("select leasehold.new_group()").await;
    let beta = "'secret', '\"hush\"', tenant => 'beta', queue => 'hush'";
    let job = db.enqueue(&format!("{beta}, unique_key => 'k', group_id => {group}")).await;
    let mine = db.enqueue("'echo', tenant => 'acme', queue => 'own'").await;
    db.sql(&format!(
        "select leasehold.schedule('nightly', '@daily', 'secret', tenant => 'beta');
         select leasehold.enqueue({beta}) from generate_series(1, 50);
         select leasehold.set_cap(5, 'beta');
         analyze leasehold.live_jobs, leasehold.history"
    ))
    .await;
    let (_, acme_role) = login(&db, "acme", "tenant").await;
    let (_, beta_role) = login(&db, "beta", "tenant").await;
    let scene = Scene {
        places: [
            ("{job}", job.0.to_string()),
            ("{done}", done.0.to_string()),
            ("{mine}", mine.0.to_string()),
            ("{group}", group.to_string()),
            ("{acme}", acme_role),
            ("{beta}", beta_role),
        ],
    };
    (db, scene)
}

struct Scene {
    places: [(&'static str, String); 6],
}

impl Scene {
    fn fill(&self, text: &str) -> String {
        self.places.iter().fold(text.to_owned(), |text, (place, value)| text.replace(place, value))
    }

    fn role(&self, place: &str) -> &str {
        &self.places.iter().find(|(name, _)| *name == place).expect("it is there").1
    }
}

/// The first column of the last statement's first row, and everything that was answered.
async fn ask(client: &Client, sql: &str) -> Result<(String, String), Refusal> {
    let messages = client.simple_query(sql).await.map_err(|error| Refusal::of(&error))?;
    let (mut first, mut all) = (None, String::new());
    for message in &messages {
        match message {
            SimpleQueryMessage::Row(row) => {
                let value = row.get(0).unwrap_or_default().to_owned();
                all += &format!("{value}\n");
                first.get_or_insert(value);
            }
            // The next statement's answer counts.
            SimpleQueryMessage::CommandComplete(_) if !std::ptr::eq(message, &messages[messages.len() - 1]) => {
                first = None
            }
            _ => {}
        }
    }
    Ok((first.unwrap_or_default(), all))
}

async fn attack(client: &Client, scene: &Scene, attacks: &[(&str, Answer)]) {
    let mut wrong = Vec::new();
    for (sql, expected) in attacks {
        let sql = scene.fill(sql);
        let answered = ask(client, &sql).await;
        let right = match (expected, &answered) {
            (Refused(code, part), Err(refused)) => {
                refused.code == *code && refused.message.contains(&scene.fill(part)) && refused.message.len() < 300
            }
            (Harmless(value), Ok((first, _))) => first == value,
            _ => false,
        };
        if !right {
            wrong.push(format!("{sql}\n    {answered:?}"));
        }
        client.batch_execute("rollback").await.expect("out of any transaction");
        client.batch_execute("discard all").await.expect("a session as new");
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), attacks.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_tenants_role_reaches_nothing_that_is_not_its_own() {
    let (db, scene) = acme_and_beta().await;
    let acme = connect(&as_user(db.url(), scene.role("{acme}"))).await;
    let before = of_beta(&db).await;
    attack(&acme, &scene, BY_A_TENANT).await;
    assert!(BY_A_TENANT.len() >= 100, "{}", BY_A_TENANT.len());
    assert_eq!(of_beta(&db).await, before, "beta's rows are as they were");
}

#[tokio::test]
async fn a_producer_of_one_tenant_enqueues_for_it_and_nothing_else() {
    let (db, scene) = acme_and_beta().await;
    let (app, _) = login(&db, "acme", "producer").await;
    let before = of_beta(&db).await;
    attack(&app, &scene, BY_A_PRODUCER).await;
    assert_eq!(of_beta(&db).await, before, "beta's rows are as they were");
}

/// Everything that beta has.
async fn of_beta(db: &TestDb) -> Vec<String> {
    db.column(
        "select j::text from leasehold.jobs j where tenant = 'beta'
         union all select s::text from leasehold.schedules s where tenant = 'beta'
         union all select l::text from leasehold.limits l where tenant = 'beta'
         union all select v::text from leasehold.module_versions v join leasehold.tenants t using (tenant_id) where t.name = 'beta'
         union all select r::text from leasehold.tenant_roles r join leasehold.tenants t using (tenant_id) where t.name = 'beta' order by 1",
    )
    .await
}

#[tokio::test]
async fn no_table_is_a_tenants_to_touch_and_no_function_that_was_not_granted() {
    let (db, scene) = acme_and_beta().await;
    let acme = connect(&as_user(db.url(), scene.role("{acme}"))).await;
    let tables = db
        .rows(
            "select c.relname::text, quote_ident(a.attname) from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum = 1
              where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'p') order by 1",
            &[],
        )
        .await;
    assert!(tables.len() >= 25, "{}", tables.len());
    for row in tables {
        let (table, column): (String, String) = (row.get(0), row.get(1));
        for sql in [
            format!("select * from leasehold.{table}"),
            format!("select {column} from leasehold.{table} for update"),
            format!("insert into leasehold.{table} default values"),
            format!("update leasehold.{table} set {column} = default"),
            format!("delete from leasehold.{table}"),
            format!("truncate leasehold.{table} cascade"),
            format!("copy leasehold.{table} to stdout"),
            format!("copy leasehold.{table} from stdin"),
            format!("begin; lock table leasehold.{table} in access share mode"),
            format!("create index on leasehold.{table} ({column})"),
        ] {
            let refused = acme.batch_execute(&sql).await.expect_err("it is refused");
            assert_eq!(Refusal::of(&refused).code, "42501", "{sql}: {refused}");
            acme.batch_execute("rollback").await.expect("out of any transaction");
        }
        // The second fence: a table that is granted by mistake shows nobody else's rows.
        if table == "schema_version" {
            continue;
        }
        db.sql(&format!("grant select on leasehold.{table} to {}", scene.role("{acme}"))).await;
        let row = format!(
            "select count(*) filter (where replace(row_to_json(r)::text, '\"secrets\"', '') ~ 'hush|beta|secret') from leasehold.{table} r"
        );
        let seen: i64 = acme.query_one(&row, &[]).await.expect("it was granted").get(0);
        assert_eq!(seen, 0, "{table}");
    }
    let own: i64 =
        acme.query_one("select count(*) from leasehold.live_jobs", &[]).await.expect("it was granted").get(0);
    assert_eq!(own, 1, "its own job, and none of beta's 51");
    let granted: Vec<String> = db
        .column(&format!(
            "select distinct p.proname::text from pg_proc p
              where p.pronamespace = 'leasehold'::regnamespace and has_function_privilege('{}', p.oid, 'execute') order by 1",
            scene.role("{acme}")
        ))
        .await;
    assert_eq!(
        granted.join(" "),
        "activate_module as_json cancel enqueue enqueue_bytes enqueue_many explain fire_schedule log_rows log_text my_tenant_names my_tenants new_group \
         pause_schedule push_module quota redrive redrive_many remove_module result resume_schedule schedule schedule_bytes \
         schedule_is_held sealed unschedule wait"
    );
    let unpinned: Vec<String> = db
        .column(
            "select p.oid::regprocedure::text from pg_proc p
              where p.pronamespace = 'leasehold'::regnamespace and p.prosecdef and not 'search_path=pg_catalog, pg_temp' = any(p.proconfig)",
        )
        .await;
    assert_eq!(unpinned, [""; 0], "each of them pins its search_path");
}

/// That the barrier matters: without one, the planner itself tries the reader's operator on the values it has collected.
#[tokio::test]
async fn a_view_that_is_no_barrier_would_tell_of_others() {
    let (db, _) = acme_and_beta().await;
    let (producer, _) = db.connect_as("leasehold_producer").await;
    producer
        .batch_execute(
            "create function pg_temp.tells(text, text) returns boolean immutable language plpgsql as
               $$ begin if $1 like '%hush%' then raise exception 'seen: %', $1; end if; return true; end $$;
             create operator pg_temp.=== (leftarg = text, rightarg = text, function = pg_temp.tells, restrict = eqsel)",
        )
        .await
        .expect("it may have temporary things");
    let seen = refusal(&producer, "explain select * from leasehold.jobs where queue operator(pg_temp.===) 'x'").await;
    assert_eq!(seen.message, "seen: hush");
}

/// A guess at what others have must not be told right or wrong by the counts of a plan.
#[tokio::test]
async fn a_plan_tells_the_same_of_a_right_guess_and_a_wrong_one() {
    let (db, scene) = acme_and_beta().await;
    let acme = connect(&as_user(db.url(), scene.role("{acme}"))).await;
    let plan = async |condition: &str| {
        let sql = format!(
            "set enable_seqscan = {}; explain (analyze, verbose, buffers off, costs off, timing off, summary off) select * from leasehold.{condition}",
            if condition.contains("my_jobs") { "off" } else { "on" }
        );
        let (_, all) = ask(&acme, &sql).await.expect("it may ask");
        let plan: Vec<_> = all.lines().filter(|line| !line.contains("Filter: (my_")).map(str::to_owned).collect();
        assert!(plan.iter().any(|line| line.contains("rows=")) && plan.len() < all.lines().count(), "{all}");
        plan
    };
    for (right, wrong) in [
        ("my_jobs where queue = 'hush'", "my_jobs where queue = 'husk'"),
        ("my_jobs where payload >= '\"hush\"'::bytea", "my_jobs where payload >= '\"husk\"'::bytea"),
        ("my_jobs where module = 'secret'", "my_jobs where module = 'secreu'"),
        ("my_modules where name = 'secret'", "my_modules where name = 'secreu'"),
        ("my_schedules where name >= 'nightly'", "my_schedules where name >= 'nightlz'"),
        ("my_limits where max_running = 5", "my_limits where max_running = 6"),
        ("my_queue_stats where queue = 'hush'", "my_queue_stats where queue = 'husk'"),
    ] {
        assert_eq!(plan(right).await, plan(wrong).await, "{right}");
    }
}

/// What a session without rights could be used for, if it were the functions in between that counted.
#[tokio::test]
async fn a_tenants_function_gets_no_more_from_whoever_calls_it() {
    let (db, scene) = acme_and_beta().await;
    let (acme_role, nobody_role) = (scene.role("{acme}"), new_role(&db, "nobody").await);
    db.sql(&format!("create schema acme authorization {acme_role}; grant usage on schema acme to public")).await;
    let acme = connect(&as_user(db.url(), acme_role)).await;
    acme.batch_execute(
        "create function acme.nested(tenant text) returns bigint security definer language plpgsql as
           $$ begin return leasehold.enqueue('secret', tenant => tenant); end $$",
    )
    .await
    .expect("in its own schema");
    let nobody = connect(&as_user(db.url(), &nobody_role)).await;
    let (beta_app, _) = login(&db, "beta", "producer").await;
    for caller in [&acme, &nobody] {
        let refused = refusal(caller, "select acme.nested('beta')").await;
        assert_eq!(refused.code, "LH001", "{refused}");
    }
    // Whoever runs a stranger's code lends it what the session may: no more, no less.
    beta_app.query_one("select acme.nested('beta')", &[]).await.expect("beta's own");
    let refused = refusal(&beta_app, "select acme.nested('acme')").await;
    assert_eq!(refused.code, "LH001", "{refused}");
}

#[tokio::test]
async fn open_transactions_locks_and_floods_of_a_tenant_hold_up_nobody() {
    let db = TestDb::new().await;
    db.push_wat("echo").await;
    tenant(&db, "acme", "echo").await;
    db.sql("select leasehold.set_quotas('acme', '{\"queued_jobs\": 1000}')").await;
    let (acme, _) = login(&db, "acme", "tenant").await;
    let worker = db.worker_with(quick());
    acme.batch_execute(
        "select leasehold.enqueue('echo', tenant => 'acme', queue => 'default', run_at => now() + interval '1 hour')",
    )
    .await
    .expect("its own");
    acme.batch_execute("begin isolation level repeatable read").await.expect("a transaction");
    acme.batch_execute(
        "lock table leasehold.my_jobs in access share mode;
         select leasehold.cancel(id) from leasehold.my_jobs;
         select leasehold.enqueue_many('echo', array_fill('1'::jsonb, array[900]), 'acme', queue => 'nobody');
         select pg_advisory_lock(7236213), pg_advisory_lock(hashtext('leasehold.maintain_partitions'));
         select pg_notify('leasehold_wake', 'default' || n), pg_notify('leasehold_cancel', n::text) from generate_series(1, 5000) n",
    )
    .await
    .expect("all of it is its own");
    for _ in 0..3 {
        let id = db.enqueue("'echo'").await;
        db.wait_for(id, "done").await;
    }
    acme.batch_execute("commit").await.expect("it ends");
    let id = db.enqueue("'echo'").await;
    db.wait_for(id, "done").await;
    worker.drain().await;
}
