//! PostgreSQL servers of the tests' own, for when DATABASE_URL names none, and for tests that restart one.
//!
//! A server must not outlive the tests, however they end, and must not die between two test processes of one run (nextest
//! runs each test in its own). So whoever uses a cluster holds a shared lock on `users.lock`, which the kernel gives back
//! when the process ends, and a watchdog stops the server once it gets the exclusive lock twice, a grace period apart.
//! The shared cluster's data stays in the temporary directory: the next run starts it again in a moment.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use sha2::Digest as _;

/// Nothing here needs to survive the machine; everything else is as a server has it.
const SETTINGS: &str = "
listen_addresses = ''
fsync = off
full_page_writes = off
wal_level = minimal
max_wal_senders = 0
max_connections = 400
shared_buffers = 128MB
max_wal_size = 2GB
# Checkpoints that nobody asked for would make two equal runs read different numbers of buffers.
checkpoint_timeout = 1h
# As long as it goes: what is not flushed at commit is lost in a crash for certain, not by chance.
wal_writer_delay = 10s
autovacuum_naptime = 1s
log_min_messages = warning
";

/// Stops the server when nobody uses it any more. Arguments: the cluster's directory, PostgreSQL's bin directory, the grace
/// period in seconds, and `remove` for a cluster that nobody will start again.
const WATCHDOG: &str = r#"
cd "$1" || exit 0
exec 9>watchdog.lock; flock -n 9 || exit 0
while [ -e users.lock ]; do
  flock -x users.lock true
  sleep "$3"
  exec 8<users.lock || exit 0
  if flock -n -x 8; then
    "$2/pg_ctl" -D data -m immediate stop
    [ "$4" = remove ] && rm -rf "$1"
    exit 0
  fi
  exec 8<&-
done
"#;
/// Longer than the pause between two processes of one run.
const GRACE_SECONDS: &str = "5";

/// A running server. Dropping an own one stops and removes it.
pub struct Cluster {
    dir: PathBuf,
    bin: PathBuf,
    user: ServerUser,
    own: bool,
    /// Held for as long as the server is needed.
    _in_use: File,
}

impl Cluster {
    /// The server that all tests of all processes share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            let exe = std::env::current_exe().expect("the test has a path");
            let target = exe.ancestors().nth(3).expect("target/PROFILE/deps/TEST");
            let hash = sha2::Sha256::digest(format!("{} {} {SETTINGS}", target.display(), bin().display()));
            Self::start_in(&format!("leasehold-tests-{}", hex::encode(&hash[..6])), false)
        })
    }

    /// A server that one test may restart.
    pub fn own() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::start_in(&format!("leasehold-own-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)), true)
    }

    pub fn url(&self, database: &str) -> String {
        let host = self.socket_dir().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{host}/{database}")
    }

    /// As when the machine loses power: what was not flushed is gone, and connections break.
    pub fn crash_and_start(&self) {
        self.crash();
        self.start();
    }

    pub fn crash(&self) {
        self.pg_ctl(&["stop", "-m", "immediate"]);
    }

    /// Starts a server that is down.
    pub fn start(&self) {
        self.pg_ctl(&["start", "-w", "-t", "60", "-l", &self.path("server.log")]);
    }

    fn start_in(name: &str, own: bool) -> Self {
        let dir = std::env::temp_dir().join(name);
        let user = ServerUser::find();
        user.make_dir(&dir);
        let in_use =
            File::options().append(true).create(true).open(dir.join("users.lock")).expect("it is our directory");
        in_use.lock_shared().expect("the file can be locked");
        let cluster = Self { dir, bin: bin(), user, own, _in_use: in_use };
        let starting = File::options().append(true).create(true).open(cluster.dir.join("start.lock"));
        let starting = starting.expect("it is our directory");
        starting.lock().expect("the file can be locked");
        if !cluster.is_up() {
            if !cluster.dir.join("data/PG_VERSION").exists() {
                cluster.init();
            }
            if !cluster.try_pg_ctl(&["start", "-w", "-t", "60", "-l", &cluster.path("server.log")]) {
                // The machine may have gone down in the middle of a run, and nothing was flushed.
                cluster.init();
                cluster.start();
            }
        }
        cluster.watch();
        cluster
    }

    fn init(&self) {
        let data = self.dir.join("data");
        let _ = fs::remove_dir_all(&data);
        let made = self
            .command("initdb")
            .args(["-D", &self.path("data"), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"])
            .output()
            .expect("initdb starts");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let config = data.join("postgresql.conf");
        let mut text = fs::read_to_string(&config).expect("initdb wrote it");
        text += SETTINGS;
        text += &format!("unix_socket_directories = '{}'\n", self.socket_dir().display());
        fs::write(&config, text).expect("it is our directory");
    }

    fn socket_dir(&self) -> &Path {
        &self.dir
    }

    fn is_up(&self) -> bool {
        let status = self.command("pg_ctl").args(["-D", &self.path("data"), "status"]).output();
        status.expect("pg_ctl starts").status.success()
    }

    fn pg_ctl(&self, args: &[&str]) {
        let log = || fs::read_to_string(self.dir.join("server.log")).unwrap_or_default();
        assert!(self.try_pg_ctl(args), "pg_ctl {args:?} failed; the server's log:\n{}", log());
    }

    fn try_pg_ctl(&self, args: &[&str]) -> bool {
        // Not captured: a server that starts would inherit the pipe and keep it open.
        let mut command = self.command("pg_ctl");
        command.args(["-D", &self.path("data")]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("pg_ctl starts").success()
    }

    /// One more watchdog does no harm: it sees the other's lock and ends.
    fn watch(&self) {
        let (grace, remove) = if self.own { ("0", "remove") } else { (GRACE_SECONDS, "keep") };
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", WATCHDOG, "watchdog"]).arg(&self.dir).arg(&self.bin).args([grace, remove]);
        // A group of its own, so that neither Ctrl-C nor a test runner that kills groups ends it; no pipe of the test's.
        watchdog.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.user.become_in(&mut watchdog);
        // Outlives this process by design, so nobody here can wait for it.
        drop(watchdog.spawn().expect("sh starts"));
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.current_dir(&self.dir);
        self.user.become_in(&mut command);
        command
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.own {
            self.try_pg_ctl(&["stop", "-m", "immediate"]);
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Who the server runs as: PostgreSQL refuses to run as root, and so does PgBouncer.
pub(crate) struct ServerUser {
    /// None: as ourselves.
    ids: Option<(u32, u32)>,
}

impl ServerUser {
    pub(crate) fn find() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self { ids: None };
        }
        let users = fs::read_to_string("/etc/passwd").expect("there is a list of users");
        let of = |name: &str| {
            let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut numbers = line.split(':').skip(2).map(str::parse);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        };
        let ids = of("postgres").or_else(|| of("nobody")).expect("root can run the server as postgres or nobody");
        Self { ids: Some(ids) }
    }

    /// For this user alone. The temporary directory belongs to everybody, so an existing one is looked at twice.
    pub(crate) fn make_dir(&self, dir: &Path) {
        match DirBuilder::new().mode(0o700).create(dir) {
            Ok(()) => {
                if let Some((uid, gid)) = self.ids {
                    chown(dir, Some(uid), Some(gid)).expect("root may");
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let found = fs::symlink_metadata(dir).expect("it exists");
                let wanted = self.ids.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid);
                // Another process of ours may be between creating it and giving it away.
                let ours = found.uid() == wanted || (self.ids.is_some() && found.uid() == 0);
                assert!(found.is_dir() && ours, "{} belongs to somebody else; remove it", dir.display());
            }
            Err(error) => panic!("creating {}: {error}", dir.display()),
        }
    }

    pub(crate) fn become_in(&self, command: &mut Command) {
        if let Some((uid, gid)) = self.ids {
            command.uid(uid).gid(gid);
        }
    }
}

/// PostgreSQL's server programs: PG_BIN, or where pg_config or Debian's packages say, the newest version first.
fn bin() -> PathBuf {
    let mut places: Vec<PathBuf> = std::env::var_os("PG_BIN").map(PathBuf::from).into_iter().collect();
    if let Ok(said) = Command::new("pg_config").arg("--bindir").output() {
        places.push(String::from_utf8_lossy(&said.stdout).trim().into());
    }
    let mut versions: Vec<u32> = fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
        .unwrap_or_default();
    versions.sort_unstable_by(|a, b| b.cmp(a));
    places.extend(versions.iter().map(|version| format!("/usr/lib/postgresql/{version}/bin").into()));
    let found = places.iter().find(|place| place.join("initdb").exists()).cloned();
    found.unwrap_or_else(|| {
        panic!(
            "no PostgreSQL server programs in {places:?}; install them (Debian: apt-get install postgresql), \
             set PG_BIN to where initdb is, or set DATABASE_URL to a server that the tests may use"
        )
    })
}
