//! Worker processes: this very program as `leasehold worker`, as many times as the demo wants.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};

use super::session::Session;
use super::{LOOK_EVERY, PATIENCE};

/// How long a worker may take to end. It has nothing left to do.
const STOP_LIMIT: Duration = Duration::from_secs(20);

pub struct Worker {
    child: Child,
    number: usize,
    pub pid: u32,
}

impl Worker {
    pub fn start(number: usize, url: &str, output: &Path, options: &[String]) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let path = output.join(format!("worker-{number}.log"));
        let log = File::create(&path).with_context(|| format!("making {}", path.display()))?;
        let mut command = Command::new(program);
        // The URL has a password in it, and arguments are there for everybody to read.
        command.arg("worker").args(options).env("DATABASE_URL", url).env_remove("LEASEHOLD_LOG");
        // Ctrl-C in a terminal is for the demo, which then ends its workers.
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(log.try_clone().context("opening the worker's log twice")?).stderr(log);
        end_with_this_thread(&mut command);
        let child = command.spawn().context("starting a worker")?;
        let pid = child.id().context("a worker that was just started has a number")?;
        Ok(Self { child, number, pid })
    }

    /// Until the worker has told the database that it is there.
    pub async fn until_registered(&mut self, session: &Session) -> anyhow::Result<()> {
        let started = Instant::now();
        let sql = format!("select 1 from leasehold.workers where pid = {}", self.pid);
        while session.rows(&sql).await?.is_empty() {
            if let Some(status) = self.child.try_wait().context("looking at a worker")? {
                anyhow::bail!("worker {} ended at once ({status}); see worker-{}.log", self.number, self.number);
            }
            anyhow::ensure!(started.elapsed() < PATIENCE, "worker {} did not start", self.number);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("killing a worker")
    }

    /// Asks it to drain, as a service manager would.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pid = pid.with_context(|| format!("worker {} has ended before it was asked to", self.number))?;
        rustix::process::kill_process(pid, Signal::TERM).context("sending SIGTERM to a worker")?;
        let status = tokio::time::timeout(STOP_LIMIT, self.child.wait()).await;
        let status = status
            .with_context(|| format!("worker {} did not drain within {} s", self.number, STOP_LIMIT.as_secs()))?;
        let status = status.context("waiting for a worker")?;
        anyhow::ensure!(status.success(), "worker {} drained and ended with {status}", self.number);
        Ok(())
    }
}

/// However the demo ends, no worker stays behind. It is started from the main thread, which ends last.
#[cfg(target_os = "linux")]
fn end_with_this_thread(command: &mut Command) {
    // SAFETY: between fork and exec only calls are allowed that are safe in a signal handler; this is one prctl.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

#[cfg(not(target_os = "linux"))]
fn end_with_this_thread(_command: &mut Command) {}
