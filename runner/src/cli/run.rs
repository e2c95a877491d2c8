//! `leasehold run`: the worker's own sandbox, without a database. What it says of a module is what a worker would do.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine as _;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::grants::GrantArgs;
use super::{BAD_USE, parse};
use crate::job::{Deterministic, JobId, Limits, ModuleKind};
use crate::outcome::{Failure, FailureKind, OnFailure, Outcome, Run, Stop, Usage, clean_text};
use crate::retry::RetryPolicy;
use crate::sandbox::{Compiler, JobInput, PrepareError, RunControl, Sandbox, SandboxConfig};
use crate::secrets::Secrets;

/// Exit codes, besides 0 for done and `BAD_USE`.
const FAILED: u8 = 10;
const DEAD: u8 = 11;
const SNOOZED: u8 = 12;
/// As a shell says of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Run a module once, in the worker's sandbox, without a database.
///
/// Exits with 0 when the job is done, 10 when it failed and would be tried again, 11 when it is dead, 12 when it asked
/// to be run later, and 2 when the command itself was wrong.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The module: a component, a core module built for one, or a WASI program
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// JSON, or @FILE or - (standard input) for bytes as they are. Default: {}, and nothing for a WASI program
    #[arg(long, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// Instructions it may execute
    #[arg(long, default_value_t = Limits::DEFAULT_FUEL)]
    fuel: u64,
    /// Wall-clock time it may take
    #[arg(long, value_parser = parse::duration, default_value = "30s")]
    timeout: Duration,
    /// Memory it may hold
    #[arg(long, value_parser = parse::bytes, default_value = "64MiB")]
    memory: u64,
    /// How large its result may be
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "1MiB")]
    result_limit: u64,
    /// How much of its log is kept
    #[arg(long, value_name = "SIZE", value_parser = parse::bytes, default_value = "16KiB")]
    log_limit: u64,
    /// Which attempt to pretend this is
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    attempt: u32,
    /// At which attempt a failure is final
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
    /// How many follow-up jobs it may ask for; they are shown, not enqueued
    #[arg(long, value_name = "N", default_value_t = 0)]
    follow_ups: u32,
    #[command(flatten)]
    grants: GrantArgs,
    /// A secret that it may ask for; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::secret)]
    secret: Vec<(String, String)>,
    /// Random numbers from this seed, and a clock that nobody waits for: the same run each time
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// When that clock begins [default: 2026-01-01T00:00:00Z]
    #[arg(long, value_name = "TIME", value_parser = parse::moment, requires = "seed")]
    starts_at: Option<Duration>,
    /// Another end for a kind of failure than usual; may be given several times
    #[arg(long, value_name = "KIND=fail|dead", value_parser = parse::on_failure)]
    on: Vec<(FailureKind, OnFailure)>,
    /// Print one JSON object with everything instead of text
    #[arg(long)]
    json: bool,
}

/// Where the clock of a deterministic run begins, in seconds since 1970, unless told otherwise: 2026-01-01T00:00:00Z.
const STARTS_AT: Duration = Duration::from_secs(1_767_225_600);

impl Args {
    fn deterministic(&self) -> Option<Deterministic> {
        self.seed.map(|seed| Deterministic { starts_at: self.starts_at.unwrap_or(STARTS_AT), seed })
    }
}

/// Runs the command. An error is one of this process; whatever the module does is in the exit code.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let limits = Limits {
        fuel: args.fuel,
        memory_bytes: args.memory,
        timeout: args.timeout,
        result_bytes: args.result_limit,
        log_bytes: args.log_limit,
        follow_ups: args.follow_ups,
    };
    if let Err(error) = limits.validate() {
        return Ok(bad_use(&error.to_string()));
    }
    let grants = match args.grants.grants(args.secret.iter().map(|(name, _)| name.clone())) {
        Ok(grants) => Arc::new(grants),
        Err(error) => return Ok(bad_use(&error.to_string())),
    };
    let secrets: Arc<Secrets> =
        Arc::new(args.secret.iter().map(|(name, value)| (name.clone(), Ok(value.clone()))).collect());
    if args.attempt > args.max_attempts {
        return Ok(bad_use(&format!("attempt {} comes after the last of {}", args.attempt, args.max_attempts)));
    }
    let payload = match args.payload.as_deref().map(parse::payload).transpose() {
        Ok(payload) => payload,
        Err(error) => return Ok(bad_use(&format!("{error:#}"))),
    };
    let bytes = match std::fs::read(&args.file) {
        Ok(bytes) => bytes,
        Err(error) => return Ok(bad_use(&format!("reading {}: {error}", args.file.display()))),
    };
    let sandbox = Sandbox::new(&SandboxConfig {
        slots: 1,
        memory_bytes: limits.memory_bytes,
        // Somebody's own file, on their own machine.
        compiler: Compiler::InProcess,
    })?;
    let compiling = sandbox.clone();
    let prepared = tokio::task::spawn_blocking(move || compiling.prepare(&bytes)).await.context("compiling")?;
    let done = match prepared {
        Ok(module) => {
            let default: &[u8] = match module.kind() {
                ModuleKind::Component => b"{}",
                ModuleKind::Command => b"",
            };
            let name = args.file.file_stem().unwrap_or_default().to_string_lossy();
            let job = JobInput {
                id: JobId(1),
                tenant: "local",
                module: &name,
                queue: "default",
                attempt: args.attempt,
                max_attempts: args.max_attempts,
                payload: payload.as_deref().unwrap_or(default),
                deterministic: args.deterministic(),
                grants: &grants,
                secrets: &secrets,
            };
            let control = RunControl::new();
            let stopper = tokio::spawn(stop_on_ctrl_c(control.clone()));
            let done = sandbox.run(&module, job, &limits, &control).await;
            stopper.abort();
            done
        }
        Err(error @ PrepareError::Host(_)) => return Err(error.into()),
        // No module at all, so there is nothing that a worker would bury.
        Err(
            error @ (PrepareError::Empty | PrepareError::Text | PrepareError::Precompiled | PrepareError::NotWasm(_)),
        ) => return Ok(bad_use(&format!("{}: {error}", args.file.display()))),
        // A worker buries the job of such a module.
        Err(error) => Run::unrun(Outcome::Failed(Failure {
            kind: FailureKind::Link,
            message: error.to_string(),
            backtrace: None,
            delay: None,
        })),
    };
    let end = End::of(&done.outcome, &args);
    if args.json {
        let mut stdout = std::io::stdout().lock();
        serde_json::to_writer(&mut stdout, &as_json(&done, &end, &limits))?;
        writeln!(stdout)?;
    } else {
        print_text(&done, &end, &limits)?;
    }
    Ok(ExitCode::from(end.code))
}

fn bad_use(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::from(BAD_USE)
}

/// The first Ctrl-C asks the guest to cancel, as a worker would; the second ends it.
async fn stop_on_ctrl_c(control: RunControl) {
    if tokio::signal::ctrl_c().await.is_ok() {
        control.request_cancel();
        eprintln!("asked the job to cancel; press Ctrl-C again to stop it");
    }
    if tokio::signal::ctrl_c().await.is_ok() {
        control.stop(Stop::Cancelled);
    }
}

/// What a worker would do with the outcome.
struct End {
    name: &'static str,
    code: u8,
    /// How long the job would wait before its next run, without jitter.
    delay: Option<Duration>,
}

impl End {
    fn of(outcome: &Outcome, args: &Args) -> Self {
        match outcome {
            Outcome::Done { .. } => Self { name: "done", code: 0, delay: None },
            Outcome::Snoozed { delay } => Self { name: "snooze", code: SNOOZED, delay: Some(*delay) },
            Outcome::Stopped(_) => Self { name: "stopped", code: INTERRUPTED, delay: None },
            Outcome::Failed(failure) => {
                let chosen = args.on.iter().rev().find(|(kind, _)| *kind == failure.kind).map(|(_, end)| *end);
                match chosen.unwrap_or(failure.kind.default_on_failure()) {
                    OnFailure::Fail if args.attempt < args.max_attempts => {
                        let backoff = RetryPolicy::default().delay(args.attempt, 0.5);
                        Self { name: "fail", code: FAILED, delay: Some(failure.delay.unwrap_or(backoff)) }
                    }
                    OnFailure::Fail | OnFailure::Dead => Self { name: "dead", code: DEAD, delay: None },
                }
            }
        }
    }
}

fn as_json(run: &Run, end: &End, limits: &Limits) -> Value {
    // To the microsecond: runs are short.
    let millis = |duration: Duration| duration.as_micros() as f64 / 1e3;
    let mut object = json!({
        "outcome": end.name,
        "failure": null,
        "result": null,
        "log": run.log.to_text(),
        "log_dropped_bytes": run.log.dropped_bytes,
        "usage": {
            "fuel": run.usage.fuel,
            "wall_ms": millis(run.usage.wall),
            "cpu_ms": millis(run.usage.cpu),
            "memory_peak_bytes": run.usage.memory_peak_bytes,
            "result_bytes": run.usage.result_bytes,
        },
        "limits": limits,
    });
    if !run.follow_ups.is_empty() && matches!(run.outcome, Outcome::Done { .. }) {
        object["follow_ups"] = json!(run.follow_ups);
    }
    match &run.outcome {
        Outcome::Done { result } => match std::str::from_utf8(result) {
            Ok(text) => object["result"] = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
            Err(_) => object["result_base64"] = base64::engine::general_purpose::STANDARD.encode(result).into(),
        },
        Outcome::Failed(failure) => {
            object["failure"] =
                json!({ "kind": failure.kind, "message": failure.message, "backtrace": failure.backtrace });
        }
        Outcome::Stopped(stop) => object["stopped"] = stop.to_string().into(),
        Outcome::Snoozed { .. } => {}
    }
    if let Some(delay) = end.delay {
        object["delay_ms"] = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).into();
    }
    object
}

/// The result goes to stdout as it is, everything else to stderr.
fn print_text(run: &Run, end: &End, limits: &Limits) -> anyhow::Result<()> {
    let log = run.log.to_text();
    eprint!("{log}");
    if !log.is_empty() && !log.ends_with('\n') {
        eprintln!();
    }
    match &run.outcome {
        Outcome::Done { result } => {
            for job in &run.follow_ups {
                eprintln!("would enqueue: {} {}", clean_text(job.module.as_bytes()), clean_text(&job.payload));
            }
            let mut stdout = std::io::stdout().lock();
            if stdout.is_terminal() {
                writeln!(stdout, "{}", clean_text(result).trim_end())?;
            } else {
                stdout.write_all(result)?;
            }
        }
        Outcome::Failed(failure) => {
            eprintln!("{}: {}", failure.kind, failure.message);
            if let Some(backtrace) = &failure.backtrace {
                eprintln!("{backtrace}");
            }
        }
        Outcome::Stopped(stop) => eprintln!("{stop}"),
        Outcome::Snoozed { .. } => {}
    }
    match end.delay {
        Some(delay) => eprintln!("outcome: {}, next run in {}", end.name, humantime::format_duration(delay)),
        None => eprintln!("outcome: {}", end.name),
    }
    eprintln!("{}", usage_table(&run.usage, limits));
    Ok(())
}

fn usage_table(usage: &Usage, limits: &Limits) -> Table {
    let millis = |duration: Duration| format!("{:.3} ms", duration.as_secs_f64() * 1e3);
    let share = |used: f64, limit: f64| if limit > 0.0 { format!("{:.1} %", 100.0 * used / limit) } else { "-".into() };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["", "used", "limit", ""]);
    let counts = [
        ("fuel", usage.fuel, limits.fuel, "instructions"),
        ("memory", usage.memory_peak_bytes, limits.memory_bytes, "bytes"),
        ("result", usage.result_bytes, limits.result_bytes, "bytes"),
    ];
    for (what, used, limit, unit) in counts {
        table.add_row([what.into(), format!("{used} {unit}"), limit.to_string(), share(used as f64, limit as f64)]);
    }
    let wall_share = share(usage.wall.as_secs_f64(), limits.timeout.as_secs_f64());
    table.add_row(["time".into(), millis(usage.wall), millis(limits.timeout), wall_share]);
    table.add_row(["cpu".into(), millis(usage.cpu), "-".into(), String::new()]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
