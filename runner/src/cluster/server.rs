//! The server's process: making its data, starting it, knowing when it is ready, stopping it.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tracing::{info, warn};

use super::binaries::Binaries;
use super::folder::{Folder, Secret, random_hex};
use super::owner::Owner;
use super::{Options, USER};

/// How long a start may take. Recovery after a crash reads all that was written since the last checkpoint.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long a server may take to write what has to be written, and then to give up.
const STOP_LIMIT: Duration = Duration::from_secs(60);
const QUIT_LIMIT: Duration = Duration::from_secs(10);
/// How often a file of the server's is looked at while waiting for it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How much of the end of a log is shown in an error, in bytes.
const LOG_TAIL_BYTES: u64 = 2_000;
/// The longest path that the address of a unix socket has room for, in bytes.
const SOCKET_PATH_BYTES: usize = 107;
/// What the server appends to its folder.
const SOCKET_NAME: &str = "/.s.PGSQL.65535";
/// Modest: the cluster shares the machine with a compiler and a browser.
const SETTINGS: [(&str, &str); 4] =
    [("shared_buffers", "128MB"), ("max_connections", "100"), ("max_wal_size", "512MB"), ("logging_collector", "off")];
/// On top where nobody will miss the data.
const VOLATILE: [(&str, &str); 3] = [("fsync", "off"), ("synchronous_commit", "off"), ("full_page_writes", "off")];

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the port was taken by somebody else in the meantime; start again")]
    PortTaken,
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

/// Makes a cluster's data, all of it or nothing.
pub async fn init(
    binaries: &Binaries,
    owner: &Owner,
    data: &Path,
    password: &str,
    durable: bool,
) -> anyhow::Result<()> {
    let new = data.with_added_extension("new");
    if new.exists() {
        // Left behind by a process that was killed in the middle of this.
        std::fs::remove_dir_all(&new).with_context(|| format!("removing {}", new.display()))?;
    }
    std::fs::create_dir(&new).with_context(|| format!("making {}", new.display()))?;
    owner.own(&new)?;
    // Beside the data, which is where its user can get to.
    let password = Secret::new(data.with_added_extension(random_hex(4)), owner, password)?;
    let mut initdb = Command::new(binaries.folder.join("initdb"));
    owner.run(&mut initdb);
    initdb.arg("--pgdata").arg(&new).arg("--pwfile").arg(&password.0);
    initdb.args(["--username", USER, "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C"]);
    if !durable {
        initdb.arg("--no-sync");
    }
    let done = initdb.env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true).output().await;
    let done = done.with_context(|| format!("running {}", binaries.folder.join("initdb").display()))?;
    if !done.status.success() {
        anyhow::bail!("initdb failed ({}): {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    std::fs::rename(&new, data).with_context(|| format!("renaming {}", new.display()))
}

/// A postmaster that this process started.
pub struct Server {
    child: Child,
}

impl Server {
    pub async fn start(
        binaries: &Binaries,
        owner: &Owner,
        folder: &Folder,
        data: &Path,
        port: u16,
        options: &Options,
    ) -> Result<Self, StartError> {
        let mut log = folder.open_log()?;
        let log_start = log.seek(SeekFrom::End(0)).context("reading the server's log")?;
        let mut command = Command::new(binaries.folder.join("postgres"));
        owner.run(&mut command);
        command.arg("-D").arg(data).args(["-p", &port.to_string()]);
        let mut set = |name: &str, value: &str| {
            command.args(["-c", &format!("{name}={value}")]);
        };
        set("listen_addresses", "127.0.0.1");
        set("unix_socket_directories", &socket_folder(data));
        SETTINGS.iter().for_each(|(name, value)| set(name, value));
        if !options.durable {
            VOLATILE.iter().for_each(|(name, value)| set(name, value));
        }
        options.settings.iter().for_each(|(name, value)| set(name, value));
        // A group of its own: Ctrl-C in a terminal is for us, who still need the database to stop in order.
        command.process_group(0);
        if options.ends_with_thread {
            end_with_this_thread(&mut command);
        }
        let stdout = log.try_clone().context("opening the server's log twice")?;
        command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(stdout).stderr(log);
        let child = command.spawn();
        let child = child.with_context(|| format!("running {}", binaries.folder.join("postgres").display()))?;
        let mut server = Self { child };
        server.until_ready(data, &folder.log(), log_start).await?;
        Ok(server)
    }

    /// The server says so in a file of its own, which nobody else can write; an answer on the port could be anybody's.
    async fn until_ready(&mut self, data: &Path, log: &Path, log_start: u64) -> Result<(), StartError> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().context("waiting for the server")? {
                let said = tail(log, log_start);
                if said.contains("could not bind IPv4 address \"127.0.0.1\"") {
                    return Err(StartError::PortTaken);
                }
                let error = anyhow::anyhow!("PostgreSQL did not start ({status}); it said:\n{said}");
                return Err(error.into());
            }
            let lines = PidFile::read(data);
            if lines.is_some_and(|file| file.ready && Some(file.pid.as_raw_pid().unsigned_abs()) == self.child.id()) {
                return Ok(());
            }
            if started.elapsed() > START_LIMIT {
                let limit = START_LIMIT.as_secs();
                let said = tail(log, log_start);
                return Err(anyhow::anyhow!("PostgreSQL was not ready within {limit} s; it said:\n{said}").into());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Answers when the server has ended by itself.
    pub async fn ended(&mut self, log: &Path) -> anyhow::Error {
        let status = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let start = log.metadata().map_or(0, |meta| meta.len().saturating_sub(LOG_TAIL_BYTES));
        anyhow::anyhow!("the PostgreSQL server ended by itself ({status}); it said last:\n{}", tail(log, start))
    }

    /// A fast shutdown; harder ones follow where that takes too long.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        for (signal, limit) in [(Signal::INT, STOP_LIMIT), (Signal::QUIT, QUIT_LIMIT), (Signal::KILL, QUIT_LIMIT)] {
            self.send(signal);
            match tokio::time::timeout(limit, self.child.wait()).await {
                Ok(status) => return check(status.context("waiting for the server")?),
                Err(_) => warn!("the server did not stop within {} s", limit.as_secs()),
            }
        }
        anyhow::bail!("the server could not be stopped")
    }

    /// Leaves the server running, as a crash of this process would. Answers its number.
    #[cfg(test)]
    pub fn leak(self) -> u32 {
        let pid = self.child.id().expect("it runs");
        std::mem::forget(self);
        pid
    }

    pub fn send(&self, signal: Signal) {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        // It is our child and not waited for yet, so the number is its own; it may have ended meanwhile.
        pid.map(|pid| rustix::process::kill_process(pid, signal));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.send(Signal::INT);
    }
}

fn check(status: ExitStatus) -> anyhow::Result<()> {
    anyhow::ensure!(status.success(), "the server ended with {status}; the next start recovers it");
    Ok(())
}

#[cfg(target_os = "linux")]
fn end_with_this_thread(command: &mut Command) {
    // SAFETY: between fork and exec only calls are allowed that are safe in a signal handler; this is one prctl.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::INT))?));
    }
}

/// Elsewhere the server outlives a crash, and the next start stops it.
#[cfg(not(target_os = "linux"))]
fn end_with_this_thread(_command: &mut Command) {}

/// As a list with one name in it; empty, for no socket, where the name is too long for one.
fn socket_folder(data: &Path) -> String {
    let folder = data.to_string_lossy();
    if folder.len() + SOCKET_NAME.len() > SOCKET_PATH_BYTES {
        return String::new();
    }
    format!("\"{}\"", folder.replace('"', "\"\""))
}

/// Stops a server that outlived whoever started it, and takes its lock away from a process that is no server. The folder
/// is locked, so nobody else uses the data; and a process with the data as its working folder is its server.
pub async fn stop_leftover(data: &Path) -> anyhow::Result<()> {
    let Some(PidFile { pid, .. }) = PidFile::read(data) else { return Ok(()) };
    let process = PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
    let data = data.canonicalize().with_context(|| format!("finding {}", data.display()))?;
    let serves = || std::fs::read_link(process.join("cwd")).is_ok_and(|folder| folder == data);
    if !process.exists() {
        return Ok(()); // The server that starts next sees that by itself; and where there is no /proc, it asks the kernel.
    }
    if !serves() {
        // Numbers are given again, in a container soon. PostgreSQL would take any process of the same user for a server.
        let file = data.join(PidFile::NAME);
        return std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()));
    }
    info!(pid = pid.as_raw_pid(), "stopping a server that was left behind");
    for (signal, limit) in [(Signal::INT, STOP_LIMIT), (Signal::QUIT, QUIT_LIMIT)] {
        let sent = Instant::now();
        let _ = rustix::process::kill_process(pid, signal); // It may end any moment.
        while sent.elapsed() < limit {
            if !serves() {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    anyhow::bail!("process {} serves {} and does not stop", pid.as_raw_pid(), data.display())
}

/// What a server says of itself in its data.
struct PidFile {
    pid: Pid,
    ready: bool,
}

impl PidFile {
    const NAME: &str = "postmaster.pid";
    /// Lines of the file: the first has the process, the eighth its state.
    const STATE_LINE: usize = 7;

    /// None where there is no file, or one just being written.
    fn read(data: &Path) -> Option<Self> {
        let text = std::fs::read_to_string(data.join(Self::NAME)).ok()?;
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        let pid = Pid::from_raw(lines.first()?.parse().ok()?)?;
        Some(Self { pid, ready: lines.get(Self::STATE_LINE) == Some(&"ready") })
    }
}

/// The end of what a log has from `start` on.
fn tail(log: &Path, start: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let end = file.metadata()?.len();
        file.seek(SeekFrom::Start(start.max(end.saturating_sub(LOG_TAIL_BYTES))))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_else(|error| format!("(its log {} cannot be read: {error})", log.display()))
}
