//! A database of its own for each test: a copy of a template that is migrated once for each text of the migrations.
//!
//! The server is the one of DATABASE_URL, which then names a database to connect to for creating others, or a private
//! cluster. Test databases carry the id of their run, and a run holds a session of that name for as long as it lives: so
//! what a killed run left behind is told from what is in use, and the next run drops it.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use leasehold::store::{Database, Store};
use sha2::Digest as _;
use tokio::sync::OnceCell;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{Client, Config, NoTls, Row};

use crate::cluster::Cluster;
use crate::scenario::Claimer;

/// Connections of a test's store: its own, and those of a worker that shares it.
const CONNECTIONS: usize = 10;

/// A migrated database and a session in it.
pub struct TestDb {
    name: String,
    url: String,
    client: Client,
    store: Store,
    /// What the short verbs (`db.claim_one()`) claim as.
    pub(crate) claimer: OnceCell<Claimer>,
    /// On a server of its own, which takes its databases with it.
    own_cluster: Option<Arc<Cluster>>,
}

impl TestDb {
    pub async fn new() -> Self {
        let admin = Admin::get();
        Self::create(&format!("template {}", admin.template)).await
    }

    /// Without the schema.
    pub async fn empty() -> Self {
        Self::create("template template0").await
    }

    /// On a server that this test alone uses, and may restart.
    pub async fn on_own_cluster() -> Self {
        let cluster = tokio::task::spawn_blocking(Cluster::own).await.expect("the cluster starts");
        let name = "leasehold";
        connect(&cluster.url("postgres"))
            .await
            .batch_execute(&format!("create database {name}"))
            .await
            .expect("a new server");
        let url = cluster.url(name);
        store(&url).migrate(false).await.expect("migrating");
        Self::at(name.into(), url, Some(Arc::new(cluster))).await
    }

    async fn create(options: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let admin = Admin::get();
        let name = format!("leasehold_test_{}_{}", admin.run_id, COUNT.fetch_add(1, Relaxed));
        admin
            .client
            .batch_execute(&format!("create database {name} {options}"))
            .await
            .expect("creating a test database");
        let url = with_database(&admin.url, &name);
        Self::at(name, url, None).await
    }

    async fn at(name: String, url: String, own_cluster: Option<Arc<Cluster>>) -> Self {
        let (client, store) = (connect(&url).await, store(&url));
        Self { name, url, client, store, claimer: OnceCell::new(), own_cluster }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Kills the server, as a machine that loses power, and starts it again. Sessions are new afterwards.
    pub async fn crash_server(&mut self) {
        let cluster = self.cluster();
        tokio::task::spawn_blocking(move || cluster.crash_and_start()).await.expect("the server starts again");
        self.reconnect().await;
    }

    /// New sessions, after the server was away.
    pub async fn reconnect(&mut self) {
        self.client = connect(&self.url).await;
        self.store = store(&self.url);
    }

    /// The server of `on_own_cluster`.
    pub fn cluster(&self) -> Arc<Cluster> {
        self.own_cluster.clone().expect("only a server of the test's own may be stopped")
    }

    /// One more session.
    pub async fn connect(&self) -> Client {
        connect(&self.url).await
    }

    /// A session of a new login role that is a member of `group`, and the URL that it has.
    pub async fn connect_as(&self, group: &str) -> (Client, String) {
        // Roles belong to the whole server, so this one is named after the database.
        let role = format!("{}_{group}", self.name);
        self.sql(&format!("create role {role} login password 'secret' in role {group}")).await;
        let url = as_user(&self.url, &role);
        (connect(&url).await, url)
    }

    /// Any number of statements.
    pub async fn sql(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{}\n{sql}", Refusal::of(&error)));
    }

    pub async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Vec<Row> {
        self.client.query(sql, params).await.unwrap_or_else(|error| panic!("{}\n{sql}", Refusal::of(&error)))
    }

    /// The only column of the only row.
    pub async fn value<T: FromSqlOwned>(&self, sql: &str) -> T {
        let rows = self.rows(sql, &[]).await;
        assert_eq!((rows.len(), rows.first().map(Row::len)), (1, Some(1)), "not one value: {sql}");
        rows[0].get(0)
    }

    /// The only column.
    pub async fn column<T: FromSqlOwned>(&self, sql: &str) -> Vec<T> {
        self.rows(sql, &[]).await.iter().map(|row| row.get(0)).collect()
    }

    /// Why the database refuses a statement that it must refuse.
    pub async fn refusal(&self, sql: &str) -> Refusal {
        refusal(&self.client, sql).await
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        if self.own_cluster.is_some() || std::env::var_os("LEASEHOLD_KEEP_TEST_DATABASES").is_some() {
            return;
        }
        let admin = Admin::get();
        let statements = [
            format!("drop database {} with (force)", self.name),
            format!(
                "do $$ declare r text; begin
                     for r in select rolname from pg_roles where starts_with(rolname, '{}_') loop execute format('drop role %I', r); end loop;
                 end $$",
                self.name
            ),
        ];
        // The admin's runtime drives its client, so this thread may block meanwhile. What fails is dropped by the next run.
        let (done, dropped) = std::sync::mpsc::channel();
        admin.runtime.spawn(async move {
            for statement in &statements {
                let _ = admin.client.batch_execute(statement).await;
            }
            let _ = done.send(());
        });
        let _ = dropped.recv_timeout(std::time::Duration::from_secs(10));
    }
}

/// What the database said no with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: String,
    pub message: String,
    pub hint: Option<String>,
    pub constraint: Option<String>,
}

impl Refusal {
    #[track_caller]
    pub fn of(error: &tokio_postgres::Error) -> Self {
        let db = error.as_db_error().unwrap_or_else(|| panic!("not refused by the database: {error:?}"));
        Self {
            code: db.code().code().into(),
            message: db.message().into(),
            hint: db.hint().map(Into::into),
            constraint: db.constraint().map(Into::into),
        }
    }

    pub fn is(&self, state: &SqlState) -> bool {
        self.code == state.code()
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// Why the database refuses a statement that it must refuse.
pub async fn refusal(client: &Client, sql: &str) -> Refusal {
    match client.query(sql, &[]).await {
        Ok(rows) => panic!("not refused, answered {} rows: {sql}", rows.len()),
        Err(error) => Refusal::of(&error),
    }
}

pub async fn connect(url: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    tokio::spawn(connection);
    client
}

pub fn store(url: &str) -> Store {
    Store::new(Database::parse(url).expect("a URL of ours"), CONNECTIONS).expect("a pool needs no server yet")
}

/// The one session that creates and drops databases, on a runtime of its own: it outlives the tests' runtimes.
struct Admin {
    url: String,
    run_id: String,
    template: String,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Admin {
    fn get() -> &'static Self {
        static ADMIN: OnceLock<Admin> = OnceLock::new();
        // A thread of its own, since a runtime can't be waited for on another one's thread.
        ADMIN.get_or_init(|| {
            std::thread::spawn(Self::start).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn start() -> Self {
        let url = std::env::var("DATABASE_URL").unwrap_or_else(|_| Cluster::shared().url("postgres"));
        let run_id = format!("{:08x}", rand::random::<u32>());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let (client, template) = runtime.block_on(async {
            let mut config: Config = url.parse().unwrap_or_else(|error| panic!("DATABASE_URL: {error}"));
            let (client, connection) = config
                .application_name(format!("leasehold tests {run_id}"))
                .connect(NoTls)
                .await
                .unwrap_or_else(|error| panic!("connecting to the tests' server at {url}: {error}"));
            tokio::spawn(connection);
            drop_left_overs(&client).await;
            let template = template(&client, &url).await;
            (client, template)
        });
        Self { url, run_id, template, client, runtime }
    }
}

/// Databases of runs that are over, whatever ended them.
async fn drop_left_overs(admin: &Client) {
    let left_over = "select d.datname from pg_database d
        where d.datname ~ '^leasehold_test_[0-9a-f]{8}_'
          and not exists (select from pg_stat_activity a where a.application_name = 'leasehold tests ' || split_part(d.datname, '_', 3))";
    for row in admin.query(left_over, &[]).await.expect("databases can be listed") {
        // Two runs may be at it at once, and one comes first.
        let _ = admin.batch_execute(&format!("drop database if exists {} with (force)", row.get::<_, &str>(0))).await;
    }
}

/// The name of the migrated database that tests copy, which is made when there is none. The name carries a hash of what made
/// it, so a stale one is never used; it gets its name only when it is complete.
async fn template(admin: &Client, url: &str) -> String {
    let name = format!("leasehold_template_{}", migrations_hash());
    admin.batch_execute("select pg_advisory_lock(7236214)").await.expect("a lock");
    let exists = admin.query_opt("select from pg_database where datname = $1", &[&name]).await.expect("a query");
    if exists.is_none() {
        let raw = format!("{name}_raw");
        admin
            .batch_execute(&format!("drop database if exists {raw} with (force)"))
            .await
            .expect("a half-made template can be dropped");
        admin
            .batch_execute(&format!("create database {raw} template template0 encoding 'UTF8'"))
            .await
            .expect("may create databases");
        let store = store(&with_database(url, &raw));
        store.migrate(false).await.unwrap_or_else(|error| panic!("migrating the template: {error:#}"));
        drop(store);
        let rules = connect(&with_database(url, &raw)).await;
        rules.batch_execute(include_str!("rules.sql")).await.expect("the rules hold of an empty database");
        drop(rules);
        // The pool's sessions end a moment after it; nobody may be connected to a database that is renamed or copied.
        admin.batch_execute(&format!("alter database {raw} with allow_connections false")).await.expect("ours");
        let others = "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = $1";
        admin.query(others, &[&raw]).await.expect("ours");
        admin.batch_execute(&format!("alter database {raw} rename to {name}")).await.expect("nobody is connected");
    }
    admin.batch_execute("select pg_advisory_unlock(7236214)").await.expect("held");
    name
}

/// Of all files that say what `migrate` makes.
fn migrations_hash() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = vec![root.join("runner/src/store/migrate.rs"), root.join("tests/support/rules.sql")];
    for folder in ["migrations", "migrations/functions", "migrations/views"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("the repository is there");
        files.extend(entries.flatten().map(|entry| entry.path()).filter(|path| is_sql(path)));
    }
    files.sort();
    let mut hash = sha2::Sha256::new();
    for file in files {
        let text = std::fs::read(&file).expect("a readable file");
        hash.update(file.file_name().expect("a file").as_encoded_bytes());
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    hex::encode(&hash.finalize()[..6])
}

fn is_sql(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "sql")
}

/// The same server, another database.
fn with_database(url: &str, name: &str) -> String {
    let (address, options) = url.split_once('?').map_or((url, None), |(address, options)| (address, Some(options)));
    let (scheme, rest) = address.split_once("://").expect("a URL");
    let host = rest.split('/').next().expect("split gives one at least");
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{scheme}://{host}/{name}{options}")
}

/// The same database, another user with the password "secret".
pub fn as_user(url: &str, user: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let host_at = rest.split('/').next().and_then(|host| host.rfind('@')).map_or(0, |at| at + 1);
    format!("{scheme}://{user}:secret@{}", &rest[host_at..])
}
