//! Workers: in this process, where a test sees their counters, and as processes of the real binary, which can be killed.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use leasehold::maintenance::MaintenanceConfig;
use leasehold::sandbox::{Sandbox, SandboxConfig};
use leasehold::store::{Database, Store};
use leasehold::worker::{self, Counters, Stage, WorkerConfig};
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::binary;
use crate::db::TestDb;
use crate::scenario::eventually;

/// As `leasehold worker` has.
const CONNECTIONS: usize = 8;
/// The most that any module of the tests may hold.
const GUEST_MEMORY_BYTES: u64 = 128 << 20;

/// Quick to notice things, and with a lease that a loaded machine keeps.
pub fn quick() -> WorkerConfig {
    WorkerConfig {
        slots: 4,
        lease: Duration::from_secs(15),
        drain: Duration::from_secs(60),
        cancel_grace: Duration::from_millis(200),
        poll: Duration::from_millis(200),
        maintenance: MaintenanceConfig { reap_every: Duration::from_millis(100), ..MaintenanceConfig::default() },
        ..WorkerConfig::default()
    }
}

/// A worker in this process. Drain or interrupt it at the end, which joins all that it started.
pub struct TestWorker {
    stage: watch::Sender<Stage>,
    running: Option<JoinHandle<anyhow::Result<()>>>,
    guests: Option<Runtime>,
    sandbox: Sandbox,
    pub counters: Arc<Counters>,
}

impl TestDb {
    pub fn worker(&self) -> TestWorker {
        self.worker_with(quick())
    }

    pub fn worker_with(&self, config: WorkerConfig) -> TestWorker {
        TestWorker::start(self.url(), config)
    }

    /// A process of the real binary, with a few slots and these flags besides.
    pub async fn worker_process(&self, flags: &[&str]) -> WorkerProcess {
        WorkerProcess::start(self.url(), flags).await
    }
}

impl TestWorker {
    /// A worker that reaches the database by this URL.
    pub fn start(url: &str, config: WorkerConfig) -> Self {
        let store = Store::new(Database::parse(url).expect("a URL of ours"), CONNECTIONS).expect("a pool");
        let slots = u32::try_from(config.slots).expect("few");
        let sandbox =
            Sandbox::new(&SandboxConfig { slots, memory_bytes: GUEST_MEMORY_BYTES, ..SandboxConfig::default() })
                .expect("a sandbox");
        let guests = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let guests = guests.expect("a runtime");
        let (stage, stages) = watch::channel(Stage::Run);
        let counters = Arc::<Counters>::default();
        let run = worker::run(config, store, sandbox.clone(), guests.handle().clone(), stages, counters.clone());
        Self { stage, running: Some(tokio::spawn(run)), guests: Some(guests), sandbox, counters }
    }

    /// Asks it to stop, without waiting for it.
    pub fn ask(&self, stage: Stage) {
        let _ = self.stage.send(stage);
    }

    /// Lets running jobs end.
    pub async fn drain(self) {
        self.ask(Stage::Drain);
        self.join().await.unwrap_or_else(|error| panic!("the worker failed: {error:#}"));
    }

    /// Interrupts running jobs.
    pub async fn stop(self) {
        self.ask(Stage::Interrupt);
        self.join().await.unwrap_or_else(|error| panic!("the worker failed: {error:#}"));
    }

    /// Waits for its end.
    pub async fn join(mut self) -> anyhow::Result<()> {
        let running = self.running.take().expect("joined once");
        running.await.expect("the worker does not panic")
    }

    /// Waits until so many components run in its sandbox. A job is `running` from its claim on, its guest a moment later.
    pub async fn guests_run(&self, count: u64) {
        let inside = || self.sandbox.pool_use().map_or(count, |pool| pool.component_instances);
        eventually("the guests run", || inside() >= count).await;
    }

    /// How many runs have ended on it.
    pub fn finished(&self) -> u64 {
        self.counters.finished.load(Relaxed)
    }

    /// How many settlements were refused because their lease was lost.
    pub fn leases_lost(&self) -> u64 {
        self.counters.leases_lost.load(Relaxed)
    }
}

impl Drop for TestWorker {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.abort();
        }
        if let Some(guests) = self.guests.take() {
            guests.shutdown_background();
        }
    }
}

/// A worker of the real binary. Killed when it is dropped.
pub struct WorkerProcess {
    child: Child,
    log: PathBuf,
}

impl WorkerProcess {
    pub async fn start(url: &str, flags: &[&str]) -> Self {
        let log = std::env::temp_dir().join(format!("leasehold-worker-{:016x}.log", rand::random::<u64>()));
        let file = std::fs::File::create(&log).expect("a temporary file");
        let mut command = Command::new(binary::leasehold().await);
        command.args(["worker", "--slots", "4", "--reap-every", "100ms", "--max-memory", "128MiB"]).args(flags);
        command.env("XDG_CACHE_HOME", binary::cache_home());
        command.env("DATABASE_URL", url).env_remove("LEASEHOLD_LOG_JSON").env("LEASEHOLD_LOG", "info");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
        Self { child: command.spawn().expect("the binary starts"), log }
    }

    /// As the kernel does when memory runs out.
    pub async fn kill_9(&mut self) {
        // One that has ended by itself is as dead.
        let _ = self.child.kill().await;
    }

    /// As a deploy does.
    pub fn terminate(&self) {
        let pid = self.child.id().expect("it runs");
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    }

    pub async fn wait(&mut self) -> ExitStatus {
        self.child.wait().await.expect("it was started")
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the worker process said:\n{}", self.log());
        }
        let _ = std::fs::remove_file(&self.log);
    }
}
