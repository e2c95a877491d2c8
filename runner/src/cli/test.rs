//! `leasehold test`: a folder of cases against a module, in the worker's own sandbox, without a database.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::run::{as_json, bad_use};
use super::{FAILURE, LimitArgs, print};
use crate::harness::{CaseReport, Harness, OpenError, Report, TestOptions, junit, load_cases};
use crate::outcome::clean_text;
use crate::sandbox::{Compiler, SandboxConfig};

/// The most cases at once, and the slots of the sandbox.
const MAX_JOBS: u32 = 64;
/// What a second run of a case that met its memory limit may have, in bytes.
const ROOM_BYTES: u64 = 1 << 30;

/// Run a module's cases in the worker's sandbox, without a database.
///
/// A case is a file NAME.toml; all keys may be left out:
///
///   payload = { name = "world" }     # sent as JSON; or payload_json = '{"name": null}', payload_text = "as it is",
///                                    # payload_file = "photo.jpg" (beside the case)
///   [job]                            # attempt, max_attempts, id, tenant, module, queue, cancel_requested
///   attempt = 2
///   [limits]                         # fuel, memory, timeout, result, log, follow_ups; default: the flags below
///   memory = "16MiB"
///   [sandbox]                        # seed: random numbers and a clock that are the same each time; starts_at
///   seed = 7
///   [on]                             # other ends for kinds of failures, as in module push --on
///   fuel = "fail"
///   [expect]
///   outcome = "done"                 # done, fail, dead or snooze
///   result = { greeting = "hi" }     # equal as JSON; or result_json, result_text, or result_file: a golden file
///   kind = "guest_dead"              # of a failure
///   message = "nobody"               # a part of a failure's message, or a list of parts
///   delay = "10s"                    # of a snooze or of the next attempt
///   log = ["first", "then"]          # parts of the log, in this order
///   follow_ups = [{ module = "mail", payload = { to = "ann" } }]
///
/// Exits with 0 when all cases pass, 1 when some do not, and 2 when a case file or the command itself is wrong.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The module: a component, a core module built for one, or a WASI program
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,
    /// A folder of cases, or one case
    #[arg(value_name = "CASES/", default_value = "cases")]
    cases: PathBuf,
    /// Only cases with this in their name, which is the file's path in the folder
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// How many at once [default: one a core]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_JOBS)))]
    jobs: Option<u32>,
    /// Write results that differ into their golden files (expect.result_file)
    #[arg(long)]
    update: bool,
    /// Write a report in JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    #[command(flatten)]
    limits: LimitArgs,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Runs the command. An error is one of this process; what cases do is in the exit code.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let limits = match args.limits.limits() {
        Ok(limits) => limits,
        Err(error) => return Ok(bad_use(&error.to_string())),
    };
    let cases = match load_cases(&args.cases, &limits) {
        Ok(cases) => cases,
        Err(errors) => {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            return Ok(bad_use(&lines.join("\nerror: ")));
        }
    };
    let most_memory = cases.iter().map(|case| case.job.limits.memory_bytes).max().unwrap_or(0);
    let slots = args.jobs.unwrap_or(MAX_JOBS);
    let config = SandboxConfig {
        slots,
        memory_bytes: most_memory.max(ROOM_BYTES),
        compiler: Compiler::InProcess,
        profiling: false,
    };
    let options = TestOptions { filter: args.filter, jobs: args.jobs, update: args.update };
    let file = args.file;
    // With threads of its own, so that there are as many as cases run at once.
    let tested = tokio::task::spawn_blocking(move || {
        let harness = match Harness::open_with(&file, &config) {
            Ok(harness) => harness,
            Err(OpenError::Host(error)) => return Err(error),
            Err(error) => return Ok(Err(error)),
        };
        harness.test_cases(cases, &options).map(Ok)
    });
    let report = match tested.await.context("running the cases")?? {
        Ok(report) => report,
        Err(error) => return Ok(bad_use(&error.to_string())),
    };
    if report.cases.is_empty() {
        return Ok(bad_use(&format!("no case in {} has that in its name", args.cases.display())));
    }
    if let Some(path) = &args.junit {
        let document = junit(std::slice::from_ref(&report))?;
        std::fs::write(path, document).with_context(|| format!("writing {}", path.display()))?;
    }
    if args.json {
        print::json(&report_as_json(&report))?;
    } else {
        print_report(&report);
    }
    Ok(if report.failed() > 0 { ExitCode::from(FAILURE) } else { ExitCode::SUCCESS })
}

fn report_as_json(report: &Report) -> Value {
    let cases = report.cases.iter().map(|case| {
        let problems: Vec<_> =
            case.problems.iter().map(|problem| json!({ "what": problem.what, "detail": problem.detail })).collect();
        json!({
            "name": case.case.name, "passed": case.passed(), "updated": case.updated, "problems": problems,
            "would_suffice": case.would_suffice(), "run": as_json(&case.tried, &case.case.job.limits),
        })
    });
    let cases: Vec<_> = cases.collect();
    json!({ "module": report.module, "cases": cases, "failed": report.failed(), "limits_that_suffice": report.advice() })
}

fn print_report(report: &Report) {
    for case in &report.cases {
        print_case(case);
    }
    println!("\n{}", usage_table(report));
    if report.cases.iter().any(|case| case.with_more.is_some()) {
        println!("* of a second run, with more of the limit that it met");
    }
    println!("limits that would suffice for all of these, with room to spare:\n  {}", report.advice().flags());
    let failed = report.failed();
    let ran = report.cases.len();
    println!("\n{} passed, {failed} failed, in {:.2} s", ran - failed, report.took.as_secs_f64());
}

fn print_case(report: &CaseReport) {
    let state = match (report.passed(), report.updated) {
        (true, false) => "ok  ",
        (true, true) => "ok, updated",
        (false, _) => "FAIL",
    };
    print::line(&format!("{state}  {}", report.case.name));
    if report.passed() {
        return;
    }
    let indented = |text: &str| {
        for line in text.lines() {
            print::line(&format!("      {line}"));
        }
    };
    for problem in &report.problems {
        indented(&problem.to_string());
    }
    if let Some(suffices) = report.would_suffice() {
        indented(&suffices);
    }
    if let Some(backtrace) = report.tried.failure().and_then(|failure| failure.backtrace.as_ref()) {
        indented(backtrace);
    }
    let log = report.tried.run.log.to_text();
    if !log.is_empty() {
        indented("log:");
        indented(&log);
    }
}

fn usage_table(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["", "FUEL", "OF", "MEMORY", "OF", "TIME", "OF", "RESULT", "OF"]);
    for report in &report.cases {
        let (usage, limits) = (&report.fullest().run.usage, &report.case.job.limits);
        let share =
            |used: f64, limit: f64| if limit > 0.0 { format!("{:.1} %", 100.0 * used / limit) } else { "-".into() };
        let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let star = if report.with_more.is_some() { "*" } else { "" };
        table.add_row([
            format!("{}{star}", clean_text(report.case.name.as_bytes())),
            usage.fuel.to_string(),
            share(usage.fuel as f64, limits.fuel as f64),
            usage.memory_peak_bytes.to_string(),
            share(usage.memory_peak_bytes as f64, limits.memory_bytes as f64),
            millis(usage.wall),
            share(usage.wall.as_secs_f64(), limits.timeout.as_secs_f64()),
            usage.result_bytes.to_string(),
            share(usage.result_bytes as f64, limits.result_bytes as f64),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
