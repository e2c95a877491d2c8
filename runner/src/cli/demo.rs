//! `leasehold demo`: what Leasehold does, shown with real jobs, real worker processes and a real kill, and checked as it
//! goes. Jobs are put into the queue as an application would do it: with plain SQL, which is shown as it is sent.

mod article;
mod cases;
mod check;
mod session;
mod workers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use base64::Engine as _;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::FAILURE;
use super::dev::ClusterArgs;
use super::module::Upload;
use crate::cluster::Cluster;
use crate::job::Limits;
use crate::sandbox::{Compiler, Sandbox, SandboxConfig};
use crate::store::{Database, Store};
use cases::{Job, Line};
use check::Row;
use session::Session;
use workers::Worker;

/// The database of the demo, made anew each time.
const DATABASE: &str = "demo";
/// The modules that are shown, as scripts/build-jobs leaves them.
const MODULES: [&str; 7] = ["thumbnail", "csv-report", "markdown", "wordcount", "flaky", "faults", "pause"];
/// Eight slots in all, which is what the article's experiment has.
const WORKERS: usize = 2;
const SLOTS: usize = 4;
/// How long a step may take before what is still missing is called a failure: many times what a slow machine needs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the database is asked how far things are.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// As a shell says of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Show what Leasehold does, in under a minute.
///
/// Runs from a checkout (scripts/demo builds what it needs): a private PostgreSQL, two worker processes, jobs that end well
/// and jobs that end badly, a worker that is killed, a thousand jobs. Exits with 0 if everything ended as it should.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    /// The folder with the jobs that come with Leasehold
    #[arg(long, value_name = "DIR", default_value = "jobs")]
    jobs: PathBuf,
}

pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    // What was started ends with the futures and children that are dropped here.
    tokio::select! {
        done = play(&args) => Ok(ExitCode::from(if done? { 0 } else { FAILURE })),
        _interrupted = tokio::signal::ctrl_c() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// What all steps need.
struct Stage {
    /// The application's own connection.
    session: Session,
    url: String,
    /// Where results and logs go.
    output: PathBuf,
    rows: Vec<Row>,
}

async fn play(args: &Args) -> anyhow::Result<bool> {
    let started = Instant::now();
    for module in MODULES {
        let file = module_file(&args.jobs, module);
        anyhow::ensure!(file.is_file(), "{} is not built; run scripts/demo, or scripts/build-jobs", file.display());
    }

    let step = Step::start("A private PostgreSQL");
    let cluster = args.cluster.start().await.with_context(|| {
        format!("the demo wants {} to itself (or another folder: --dir)", args.cluster.dir.display())
    })?;
    cluster.drop_database(DATABASE).await?;
    cluster.create_database(DATABASE).await?;
    let url = cluster.url(DATABASE);
    let store = Store::new(Database::parse(&url)?, 2)?;
    store.migrate(false).await?;
    let output = args.cluster.dir.join("demo");
    std::fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    step.end(&format!("in {}, with the schema of Leasehold in database {DATABASE}", args.cluster.dir.display()));

    upload(&store, &args.jobs).await?;
    let mut stage = Stage { session: Session::connect(&url, DATABASE).await?, url, output, rows: Vec::new() };
    let mut workers = start_workers(&stage).await?;
    let shown = async {
        jobs(&mut stage, &args.jobs).await?;
        killed_worker(&mut stage).await?;
        article::run(&mut stage, WORKERS).await
    };
    tokio::select! {
        shown = shown => shown?,
        error = workers::any_ended(&mut workers) => return Err(error),
    }

    let step = Step::start("Stop");
    for worker in workers {
        worker.stop().await?;
    }
    let files = save_results(&stage)?;
    drop(store);
    stop(stage, cluster, files, started, step).await
}

fn module_file(jobs: &Path, module: &str) -> PathBuf {
    jobs.join("target/modules").join(module).with_extension("wasm")
}

async fn upload(store: &Store, jobs: &Path) -> anyhow::Result<()> {
    let step = Step::start("Upload modules");
    let bar = step.bar(MODULES.len());
    let sandbox = Sandbox::new(&SandboxConfig {
        slots: 1,
        memory_bytes: Limits::DEFAULT_MEMORY_BYTES,
        // Our own jobs, in a process that holds no lease.
        compiler: Compiler::InProcess,
        profiling: false,
    })?;
    for module in MODULES {
        bar.set_message(module);
        let file = module_file(jobs, module);
        Upload {
            tenant: "default",
            name: module,
            file: &file,
            limits: Limits::default(),
            on_failure: &[],
            activate: true,
            retry: Default::default(),
        }
        .send(store, &sandbox)
        .await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    step.end(&format!("{}, each compiled once to see that it can run", MODULES.join(", ")));
    Ok(())
}

async fn start_workers(stage: &Stage) -> anyhow::Result<Vec<Worker>> {
    let step = Step::start("Start workers");
    let mut workers = Vec::new();
    for number in 1..=WORKERS {
        let options = ["--slots".to_owned(), SLOTS.to_string()];
        workers.push(Worker::start(number, &stage.url, &stage.output, &options)?);
    }
    for worker in &mut workers {
        worker.until_registered(&stage.session).await?;
    }
    let pids: Vec<_> = workers.iter().map(|worker| worker.pid.to_string()).collect();
    step.end(&format!("{WORKERS} processes (pid {}) of {SLOTS} slots each", pids.join(" and ")));
    Ok(workers)
}

/// Jobs of all kinds at once.
async fn jobs(stage: &mut Stage, jobs: &Path) -> anyhow::Result<()> {
    let step = Step::start("Jobs, put into the queue with SQL");
    let mut enqueued = Vec::new();
    for line in cases::script(jobs) {
        match line {
            Line::Set { variable, command, file } => stage.session.set(variable, command, &file)?,
            Line::Sql(sql) => stage.session.show_and_run(sql).await?,
            Line::Job(case) => {
                let id = stage.session.enqueue(&case.sql).await?;
                enqueued.push(Job { case, id });
            }
        }
    }
    let cancelled = enqueued.iter().find(|job| job.case.cancel).context("one of the jobs is to be cancelled")?.id;
    stage.session.until_running(cancelled).await?;
    stage.session.show_and_run(&format!("select leasehold.cancel({cancelled});")).await?;

    let expected: Vec<_> = enqueued.iter().filter(|job| job.case.expected.is_some()).collect();
    let bar = step.bar(expected.len());
    stage.session.until_ended(&expected, &bar).await?;
    bar.finish_and_clear();
    step.end(&format!("{} jobs have ended, each in its own way; the table below has them all", expected.len()));
    for job in &enqueued {
        stage.rows.push(check::job(&stage.session, job).await?);
    }
    Ok(())
}

/// A worker that dies in the middle of a job. A queue and workers of its own, since their leases are short.
async fn killed_worker(stage: &mut Stage) -> anyhow::Result<()> {
    let step = Step::start("Kill a worker in the middle of a job");
    let options = ["--slots", "1", "--queue", "short", "--lease", "2s", "--reap-every", "500ms"].map(String::from);
    let mut workers = Vec::new();
    for number in 1..=2 {
        let mut worker = Worker::start(WORKERS + number, &stage.url, &stage.output, &options)?;
        worker.until_registered(&stage.session).await?;
        workers.push(worker);
    }
    let case = cases::killed();
    let id = stage.session.enqueue(&case.sql).await?;
    let job = Job { case, id };
    let pid = stage.session.until_running(id).await?;
    let victim = workers.iter().position(|worker| worker.pid == pid);
    let victim =
        workers.remove(victim.with_context(|| format!("job {id} runs in process {pid}, which is no worker of ours"))?);
    // Well into the second and a half that the job takes.
    tokio::time::sleep(Duration::from_millis(300)).await;
    println!("  $ kill -9 {pid}");
    let killed = Instant::now();
    victim.kill().await?;
    let bar = step.bar(1);
    stage.session.until_ended(&[&job], &bar).await?;
    bar.finish_and_clear();
    let took = killed.elapsed();
    let mut row = check::job(&stage.session, &job).await?;
    row.require(check::other_worker_finished(&stage.session, id, pid).await?);
    step.end(&format!(
        "the lease of 2 s ran out, job {id} was given back, and the other worker finished it {:.1} s after the kill",
        took.as_secs_f64()
    ));
    stage.rows.push(row);
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}

/// Results as files, where somebody may want to look at them.
fn save_results(stage: &Stage) -> anyhow::Result<Vec<PathBuf>> {
    let result = |name: &str| stage.rows.iter().find(|row| row.name == name).and_then(|row| row.result.as_ref());
    let mut files = Vec::new();
    let mut save = |name: &str, bytes: &[u8]| {
        let path = stage.output.join(name);
        std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        files.push(path);
        anyhow::Ok(())
    };
    if let Some(image) = result("thumbnail").and_then(|result| result["image"].as_str()) {
        let png = base64::engine::general_purpose::STANDARD.decode(image).context("reading the thumbnail")?;
        save("rocket.png", &png)?;
    }
    if let Some(html) = result("markdown").and_then(|result| result["html"].as_str()) {
        save("page.html", html.as_bytes())?;
    }
    if let Some(report) = result("csv-report") {
        save("weather.json", serde_json::to_string_pretty(report)?.as_bytes())?;
    }
    Ok(files)
}

/// The account of it all. Answers whether everything was as it should be.
async fn stop(
    stage: Stage,
    cluster: Cluster,
    files: Vec<PathBuf>,
    started: Instant,
    step: Step,
) -> anyhow::Result<bool> {
    let left = stage.session.one("select count(*) from leasehold.jobs where state in ('queued', 'running')").await?;
    let Stage { session, rows, output, .. } = stage;
    drop(session);
    cluster.stop().await?;
    step.end("both workers drained and ended with exit code 0, then the server");

    println!("\n{}", check::table(&rows));
    let mut problems: Vec<_> = rows
        .iter()
        .flat_map(|row| row.problems.iter().map(move |problem| format!("{}: {problem}", row.name)))
        .collect();
    if left != "0" {
        problems.push(format!("{left} jobs are neither done, dead nor cancelled"));
    }
    println!("\nResults:");
    files.iter().for_each(|file| println!("  {}", file.display()));
    println!("  {}/worker-*.log", output.display());
    let program = std::env::current_exe().context("finding this program")?;
    let here = std::env::current_dir().context("finding the current folder")?;
    let program = program.strip_prefix(&here).unwrap_or(&program).display();
    println!("\nThe database is kept. To look around in it:");
    println!("  {program} dev --database {DATABASE}      # starts it again, with a worker; then, in another terminal:");
    println!("  . {}/env", output.parent().unwrap_or(&output).display());
    println!("  {program} job list                    # or show ID, or redrive ID; or psql and: table leasehold.jobs;");
    println!();
    for problem in &problems {
        println!("NOT AS EXPECTED: {problem}");
    }
    let seconds = started.elapsed().as_secs_f64();
    match problems.len() {
        0 => println!("All {} ended as expected, in {seconds:.1} s.", rows.len()),
        count => println!("{count} of {} did not end as expected, in {seconds:.1} s.", rows.len()),
    }
    Ok(problems.is_empty())
}

/// A part of the demo, with its time.
struct Step {
    started: Instant,
}

impl Step {
    fn start(title: &str) -> Self {
        println!("\n== {title}");
        Self { started: Instant::now() }
    }

    fn bar(&self, length: usize) -> ProgressBar {
        let style = ProgressStyle::with_template("  {bar:30} {pos}/{len} {msg}").expect("a valid template");
        ProgressBar::new(length as u64).with_style(style)
    }

    fn end(self, what: &str) {
        println!("  {what} ({:.1} s)", self.started.elapsed().as_secs_f64());
    }
}

/// A value of the database's text for JSON; null where it is none.
fn json(text: Option<&str>) -> Option<Value> {
    serde_json::from_str(text?).ok()
}
