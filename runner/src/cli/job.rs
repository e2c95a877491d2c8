//! `leasehold job`.

mod logs;

use std::time::Duration;

use anyhow::Context as _;

use super::{Common, parse, print};
use crate::job::JobId;
use crate::outcome::FailureKind;
use crate::store::{JobDetails, JobFilter, Redrive};

/// Look at jobs, cancel them, run dead ones again.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List jobs, newest first
    List {
        #[arg(long)]
        tenant: Option<String>,
        #[arg(long)]
        module: Option<String>,
        #[arg(long)]
        queue: Option<String>,
        #[arg(long, value_parser = ["queued", "running", "done", "dead", "cancelled"])]
        state: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=100_000))]
        limit: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Show a job with its payload, result and attempts
    Show {
        id: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Show what a job's runs wrote, line by line: of a run that goes on, too, within a second or two
    Logs {
        id: i64,
        /// Wait for more until the job has ended
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Cancel a queued job at once; ask a running one to stop, then interrupt it
    Cancel {
        id: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Queue a dead or cancelled job again, with all its attempts; or all that a filter finds
    Redrive {
        /// One job
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<i64>,
        /// All of a tenant's that the other flags do not rule out, the oldest first
        #[arg(long)]
        all: bool,
        #[arg(long, default_value = "default", requires = "all")]
        tenant: String,
        #[arg(long, requires = "all")]
        module: Option<String>,
        #[arg(long, requires = "all")]
        queue: Option<String>,
        /// Only those with this kind of failure: timeout, trap, fuel, ...
        #[arg(long, value_name = "KIND", requires = "all")]
        failure: Option<FailureKind>,
        #[arg(long, value_parser = ["dead", "cancelled"], default_value = "dead", requires = "all")]
        state: String,
        /// Only those that ended no longer ago
        #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "all")]
        within: Option<Duration>,
        #[command(flatten)]
        common: Common,
    },
    /// Say why a job is not running
    Explain {
        id: i64,
        #[command(flatten)]
        common: Common,
    },
    /// Wait until a job has ended; exits with 0 when it is done, 1 when it is not
    Wait {
        id: i64,
        #[arg(long, value_parser = parse::duration, default_value = "30s")]
        timeout: Duration,
        #[command(flatten)]
        common: Common,
    },
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::List { tenant, module, queue, state, limit, common } => {
            let jobs = common.store()?.jobs(&JobFilter { tenant, module, queue, state, limit }).await?;
            if common.json {
                return print::json(&jobs);
            }
            print::table(
                &["id", "tenant", "module", "queue", "state", "attempt", "run at", "finished at", "result or error"],
                jobs.into_iter().map(|job| {
                    let end = job.error.or_else(|| job.result.map(|result| result.to_string())).unwrap_or_default();
                    vec![
                        job.id.to_string(),
                        job.tenant,
                        job.module,
                        job.queue,
                        job.state,
                        format!("{}/{}", job.attempt, job.max_attempts),
                        print::time(&job.run_at),
                        print::or_dash(job.finished_at.as_deref().map(print::time)),
                        print::short(&end),
                    ]
                }),
            );
        }
        Command::Show { id, common } => {
            let job = common.store()?.job(JobId(id)).await?.with_context(|| format!("there is no job {id}"))?;
            if common.json {
                return print::json(&job);
            }
            show(&job);
        }
        Command::Logs { id, follow, common } => logs::run(&common.store()?, JobId(id), follow, common.json).await?,
        Command::Cancel { id, common } => {
            let state = common.store()?.cancel(JobId(id)).await?;
            if common.json {
                return print::json(&serde_json::json!({ "id": id, "state": state }));
            }
            match state.as_str() {
                "running" => println!("job {id} is running and was asked to stop"),
                "cancelled" => println!("job {id} is cancelled"),
                ended => println!("job {id} was {ended} already"),
            }
        }
        Command::Redrive { id: Some(id), common, .. } => {
            let moved = common.store()?.redrive(JobId(id)).await?;
            if common.json {
                return print::json(&serde_json::json!({ "id": id, "redriven": moved }));
            }
            anyhow::ensure!(moved, "job {id} is neither dead nor cancelled; only those can be redriven");
            println!("job {id} is queued again");
        }
        Command::Redrive { id: None, all: _, tenant, module, queue, failure, state, within, common } => {
            let filter = Redrive {
                tenant: &tenant,
                module: module.as_deref(),
                queue: queue.as_deref(),
                failure_kind: failure.map(FailureKind::as_str),
                state: &state,
                within,
            };
            let moved = common.store()?.redrive_many(&filter).await?;
            if common.json {
                return print::json(&serde_json::json!({ "redriven": moved }));
            }
            println!("{moved} jobs are queued again");
        }
        Command::Explain { id, common } => {
            let reasons = common.store()?.explain(JobId(id)).await?;
            if common.json {
                return print::json(&reasons);
            }
            for reason in reasons {
                print::line(&format!("{:<14} {}", reason.code, reason.message));
            }
        }
        Command::Wait { id, timeout, common } => {
            let store = common.store()?;
            let state = store.wait(JobId(id), timeout).await?;
            if common.json {
                print::json(&store.job(JobId(id)).await?)?;
            }
            anyhow::ensure!(state == "done", "job {id} is {state}");
            if !common.json {
                println!("job {id} is done");
            }
        }
    }
    Ok(())
}

fn show(details: &JobDetails) {
    let job = &details.job;
    let version = job.version.map(|version| format!(" version {version}")).unwrap_or_default();
    let mut lines = vec![
        ("job", format!("{} of tenant {}", job.id, job.tenant)),
        ("module", format!("{}{version}", job.module)),
        ("queue", format!("{}, priority {}", job.queue, job.priority)),
        ("state", job.state.clone()),
        (
            "attempt",
            format!(
                "{} of {}, claimed {} times, crashed {} times",
                job.attempt, job.max_attempts, details.lease_no, details.crash_count
            ),
        ),
        ("enqueued", job.enqueued_at.clone()),
        ("run at", job.run_at.clone()),
    ];
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("expires", job.expires_at.clone());
    add("options", job.options.as_ref().map(ToString::to_string));
    add("waiting", job.waiting.then(|| format!("leasehold job explain {}", job.id)));
    add("started", job.started_at.clone());
    add("finished", job.finished_at.clone());
    let message = job.progress_message.as_deref().unwrap_or_default();
    add("progress", job.progress.map(|fraction| format!("{:.0} % {message}", fraction * 100.0)));
    add("worker", details.worker_id.map(|id| id.to_string()));
    add("leased until", details.locked_until.clone());
    add("cancel", details.cancel_requested.then(|| "asked for".into()));
    add("payload", details.payload.as_ref().map(ToString::to_string));
    add("result", job.result.as_ref().map(ToString::to_string));
    add("failure", job.failure_kind.clone());
    add("error", job.error.clone());
    add("usage", job.usage.as_ref().map(ToString::to_string));
    for (name, value) in lines {
        print::line(&format!("{name:<13} {value}"));
    }
    for attempt in &details.attempts {
        let failure = attempt.failure_kind.as_deref().map(|kind| format!(" ({kind})")).unwrap_or_default();
        println!(
            "\nattempt {}, lease {}: {}{failure}, ended {}",
            attempt.attempt, attempt.lease_no, attempt.outcome, attempt.finished_at
        );
        for text in [&attempt.message, &attempt.backtrace, &attempt.log].into_iter().flatten() {
            for line in text.lines() {
                print::line(&format!("  {line}"));
            }
        }
        if attempt.log_dropped_bytes > 0 {
            println!("  ({} bytes of the log were dropped)", attempt.log_dropped_bytes);
        }
    }
}
