//! `leasehold enqueue`.

use std::time::Duration;

use super::{Common, RetryArgs, parse, print};
use crate::store::{Conflict, NewJob};

/// Put a job into a queue.
///
/// The same as SQL: select leasehold.enqueue('MODULE', '{"some": "payload"}'), which an application calls in its own
/// transaction. Prints the job's id.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The module to run
    module: String,
    /// JSON, or @FILE or - (standard input) for bytes as they are
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    payload: String,
    #[arg(long, default_value = "default")]
    tenant: String,
    #[arg(long, default_value = "default")]
    queue: String,
    /// -100 to 100; higher comes first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Not before so long from now
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    delay: Option<Duration>,
    /// Wall-clock time a run may take, instead of the module's
    #[arg(long, value_parser = parse::duration)]
    timeout: Option<Duration>,
    #[command(flatten)]
    retry: RetryArgs,
    /// Pin a version of the module instead of running whichever is active
    #[arg(long)]
    version: Option<i32>,
    /// At most --concurrency-limit jobs with this key run at once
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    #[arg(long, value_name = "N", requires = "concurrency_key")]
    concurrency_limit: Option<i32>,
    /// Held to the rate of that name (leasehold limit rate --key)
    #[arg(long, value_name = "KEY")]
    rate_key: Option<String>,
    /// One job with this key: prints the other's id where there is one
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// For so long, even when it has ended before
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "unique_key")]
    unique_for: Option<Duration>,
    /// Give the other one this payload, priority and time while it is queued
    #[arg(long, requires = "unique_key")]
    replace: bool,
    /// Dead when it is not done so long from now
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    expires: Option<Duration>,
    /// Not before that job has ended; may be given several times
    #[arg(long, value_name = "JOB_ID")]
    after: Vec<i64>,
    /// What becomes of it where a job that it waits for does not end done
    #[arg(long, value_parser = ["cancel", "run", "wait"], requires = "after")]
    on_dead: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let payload = parse::payload(&args.payload)?;
    let job = NewJob {
        tenant: &args.tenant,
        module: &args.module,
        payload: &payload,
        queue: &args.queue,
        priority: args.priority,
        delay: args.delay,
        timeout: args.timeout,
        version: args.version,
        retry: args.retry.settings(),
        concurrency_key: args.concurrency_key.as_deref(),
        concurrency_limit: args.concurrency_limit,
        rate_key: args.rate_key.as_deref(),
        unique_key: args.unique_key.as_deref(),
        unique_for: args.unique_for,
        on_conflict: if args.replace { Conflict::Replace } else { Conflict::Keep },
        expires: args.expires,
        after: &args.after,
        on_dead: args.on_dead.as_deref(),
        notify: false,
    };
    let id = args.common.store()?.enqueue(&job).await?;
    if args.common.json {
        return print::json(&serde_json::json!({ "id": id }));
    }
    println!("{id}");
    Ok(())
}
