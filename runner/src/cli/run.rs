//! `leasehold run`: the worker's own sandbox, without a database. What it says of a module is what a worker would do.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use base64::Engine as _;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::{BAD_USE, LimitArgs, parse};
use crate::harness::{Ending, Harness, Job, OpenError, Tried, flame_graph};
use crate::job::{Deterministic, Limits};
use crate::outcome::{FailureKind, OnFailure, Outcome, Stop, Usage, clean_text};
use crate::sandbox::{Compiler, PrepareError, Profile, RunControl, Sandbox, SandboxConfig};

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
///
/// With -- before it, FILE.wasm is a program in the place of a native one: it gets the arguments that follow, its output goes
/// where this command's goes, and its exit code is this command's. So `runner = "leasehold run --"` in .cargo/config.toml makes
/// `cargo test --target wasm32-wasip1` run tests in the worker's sandbox.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The module: a component, a core module built for one, or a WASI program
    #[arg(value_name = "FILE.wasm", required_unless_present = "program")]
    file: Option<PathBuf>,
    /// A WASI program and its arguments, in the place of a native one
    #[arg(last = true, value_names = ["FILE.wasm", "ARGS"], num_args = 1.., conflicts_with_all = ["file", "json", "profile"])]
    program: Vec<String>,
    /// JSON, or @FILE or - (standard input) for bytes as they are. Default: {}, and nothing for a WASI program
    #[arg(long, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    #[command(flatten)]
    limits: LimitArgs,
    /// Which attempt to pretend this is
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    attempt: u32,
    /// At which attempt a failure is final
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    max_attempts: u32,
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
    /// Write what the run's fuel went into, by function: a flame graph to FILE with the ending .svg, and the stacks that it is
    /// made of, for other tools, to FILE with the ending .folded. Takes several times as long
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
}

/// Runs the command. An error is one of this process; whatever the module does is in the exit code.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let limits = match args.limits.limits() {
        Ok(limits) => limits,
        Err(error) => return Ok(bad_use(&error.to_string())),
    };
    if args.attempt > args.max_attempts {
        return Ok(bad_use(&format!("attempt {} comes after the last of {}", args.attempt, args.max_attempts)));
    }
    let payload = match args.payload.as_deref().map(parse::payload).transpose() {
        Ok(payload) => payload,
        Err(error) => return Ok(bad_use(&format!("{error:#}"))),
    };
    if !args.program.is_empty() {
        return run_program(&args.program, payload.unwrap_or_default(), limits).await;
    }
    let job = Job {
        attempt: args.attempt,
        max_attempts: args.max_attempts,
        payload,
        limits,
        on_failure: args.on,
        deterministic: args.seed.map(|seed| Deterministic::new(seed, args.starts_at)),
        ..Job::default()
    };
    // Somebody's own file, on their own machine.
    let config = SandboxConfig {
        slots: 1,
        memory_bytes: limits.memory_bytes,
        compiler: Compiler::InProcess,
        profiling: args.profile.is_some(),
    };
    let file = args.file.context("clap wants a file")?;
    let opened = tokio::task::spawn_blocking(move || Harness::open_with(&file, &config)).await.context("compiling")?;
    let harness = match opened {
        Ok(harness) => harness,
        Err(OpenError::Host(error)) => return Err(error),
        Err(error @ (OpenError::Unreadable { .. } | OpenError::NotAModule { .. })) => {
            return Ok(bad_use(&error.to_string()));
        }
    };
    let control = RunControl::new();
    let stopper = tokio::spawn(stop_on_ctrl_c(control.clone()));
    let tried = match &args.profile {
        None => harness.run(&job, &control).await,
        Some(path) => {
            let (tried, profile) = harness.run_profiled(&job, &control).await;
            write_profile(path, harness.name(), &profile)?;
            tried
        }
    };
    stopper.abort();
    if args.json {
        let mut stdout = std::io::stdout().lock();
        serde_json::to_writer(&mut stdout, &as_json(&tried, &limits))?;
        writeln!(stdout)?;
    } else {
        print_text(&tried, &limits)?;
    }
    Ok(ExitCode::from(exit_code(tried.ending)))
}

/// As a shell says of a program that aborted.
const ABORTED: u8 = 134;

async fn run_program(args: &[String], stdin: Vec<u8>, limits: Limits) -> anyhow::Result<ExitCode> {
    let file = &args[0];
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => return Ok(bad_use(&format!("reading {file}: {error}"))),
    };
    let config = SandboxConfig { slots: 1, memory_bytes: limits.memory_bytes, ..SandboxConfig::default() };
    let sandbox = Sandbox::new(&config)?;
    let compiling = sandbox.clone();
    let prepared = tokio::task::spawn_blocking(move || compiling.prepare_program(&bytes)).await.context("compiling")?;
    let program = match prepared {
        Ok(program) => program,
        Err(error @ PrepareError::Host(_)) => return Err(error.into()),
        Err(error) => return Ok(bad_use(&format!("{file} cannot run as a program: {error}"))),
    };
    let (run, exit_code) = sandbox.run_program(&program, args, &stdin, &limits, &RunControl::new()).await;
    if let Some(code) = exit_code {
        // Of the numbers that a process may have, the system passes on the last eight bits.
        return Ok(ExitCode::from(code.to_le_bytes()[0]));
    }
    match run.outcome {
        Outcome::Failed(failure) => {
            eprintln!("error: {file} was ended: {}: {}", failure.kind, failure.message);
            if let Some(backtrace) = failure.backtrace {
                eprintln!("{backtrace}");
            }
            if matches!(failure.kind, FailureKind::Fuel | FailureKind::Memory | FailureKind::Timeout) {
                eprintln!("limits of a program stand before the --, as in: leasehold run --timeout 5m -- {file}");
            }
            if failure.kind == FailureKind::Trap && run.log.is_empty() {
                // What a test says is held back until it has ended, and a panic ends all of them here.
                eprintln!("if these are tests, see what failed with: cargo test --target wasm32-wasip1 -- --nocapture");
            }
        }
        Outcome::Done { .. } | Outcome::Snoozed { .. } | Outcome::Stopped(_) => {
            eprintln!("error: {file} ended without an exit code");
        }
    }
    Ok(ExitCode::from(ABORTED))
}

fn write_profile(path: &Path, name: &str, profile: &Profile) -> anyhow::Result<()> {
    let (svg, folded) = (path.with_extension("svg"), path.with_extension("folded"));
    std::fs::write(&folded, profile.folded()).with_context(|| format!("writing {}", folded.display()))?;
    if profile.stacks.is_empty() {
        eprintln!("the run ended before the first sample; {} is empty", folded.display());
        return Ok(());
    }
    std::fs::write(&svg, flame_graph(name, profile)?).with_context(|| format!("writing {}", svg.display()))?;
    eprintln!("{} samples: {} and {}", profile.samples, svg.display(), folded.display());
    Ok(())
}

pub(super) fn bad_use(message: &str) -> ExitCode {
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

fn exit_code(ending: Ending) -> u8 {
    match ending {
        Ending::Done => 0,
        Ending::Fail => FAILED,
        Ending::Dead => DEAD,
        Ending::Snooze => SNOOZED,
        Ending::Stopped => INTERRUPTED,
    }
}

pub(super) fn as_json(tried: &Tried, limits: &Limits) -> Value {
    let run = &tried.run;
    // To the microsecond: runs are short.
    let millis = |duration: Duration| duration.as_micros() as f64 / 1e3;
    let mut object = json!({
        "outcome": tried.ending.as_str(),
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
    if let Some(delay) = tried.delay {
        object["delay_ms"] = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).into();
    }
    object
}

/// The result goes to stdout as it is, everything else to stderr.
pub(super) fn print_text(tried: &Tried, limits: &Limits) -> anyhow::Result<()> {
    let run = &tried.run;
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
    let ending = tried.ending.as_str();
    match tried.delay {
        Some(delay) => eprintln!("outcome: {ending}, next run in {}", humantime::format_duration(delay)),
        None => eprintln!("outcome: {ending}"),
    }
    eprintln!("{}", usage_table(&run.usage, limits));
    Ok(())
}

pub(super) fn usage_table(usage: &Usage, limits: &Limits) -> Table {
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
