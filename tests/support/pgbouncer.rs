//! A PgBouncer between the tests and their server.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::TestDb;
use crate::cluster::ServerUser;

/// How long it may take to be there. Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reached by a socket in a directory of its own, so it takes nobody's port. Killed when it is dropped.
pub struct PgBouncer {
    dir: PathBuf,
    user: ServerUser,
    process: Child,
}

impl PgBouncer {
    /// In front of the tests' server, with so many connections to each database. None, and a word of why, where there is no
    /// PgBouncer; not where CI is set, which must have one.
    pub async fn start(db: &TestDb, mode: &str, connections: usize) -> Option<Self> {
        if Command::new("pgbouncer").arg("--version").output().is_err() {
            let said = "there is no pgbouncer in PATH (Debian: apt-get install pgbouncer)";
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{said}");
            eprintln!("skipped: {said}");
            return None;
        }
        let dir = std::env::temp_dir().join(format!("leasehold-pgbouncer-{:016x}", rand::random::<u64>()));
        let user = ServerUser::find();
        user.make_dir(&dir);
        let (server, socket_dir) = (server(db.url()), dir.display());
        let settings = format!(
            "[databases]\n* = {server}\n[pgbouncer]\nlisten_addr =\nlisten_port = 6432\nunix_socket_dir = {socket_dir}\n\
             auth_type = any\npool_mode = {mode}\ndefault_pool_size = {connections}\nmax_client_conn = 200\n\
             logfile = {socket_dir}/log\n"
        );
        fs::write(dir.join("pgbouncer.ini"), settings).expect("it is our directory");
        let process = spawn(&dir, &user);
        let pooler = Self { dir, user, process };
        pooler.until_there(db).await;
        Some(pooler)
    }

    /// The URL of a test's database through it.
    pub fn url(&self, db: &TestDb) -> String {
        let host = self.dir.display().to_string().replace('/', "%2F");
        format!("postgres://leasehold@{host}:6432/{}", db.name())
    }

    /// Breaks every connection through it.
    pub async fn restart(&mut self, db: &TestDb) {
        self.kill();
        self.process = spawn(&self.dir, &self.user);
        self.until_there(db).await;
    }

    async fn until_there(&self, db: &TestDb) {
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = tokio_postgres::connect(&self.url(db), tokio_postgres::NoTls).await {
            let log = || fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "pgbouncer does not answer: {error}\n{}", log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(self.dir.join(".s.PGSQL.6432"));
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("pgbouncer said:\n{}", fs::read_to_string(self.dir.join("log")).unwrap_or_default());
        }
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn spawn(dir: &PathBuf, user: &ServerUser) -> Child {
    let mut command = Command::new("pgbouncer");
    command.arg("--quiet").arg("pgbouncer.ini").current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    user.become_in(&mut command);
    command.spawn().expect("pgbouncer starts")
}

/// How PgBouncer reaches the server and as whom; it fills in the database's name.
fn server(url: &str) -> String {
    let config: Config = url.parse().expect("a URL of ours");
    let host = match config.get_hosts().first().expect("it names one") {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().expect("it names one");
    let password = config.get_password().map(String::from_utf8_lossy);
    let password = password.map(|password| format!(" password={password}")).unwrap_or_default();
    format!("host={host} port={port} user={user}{password}")
}
