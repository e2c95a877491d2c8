//! `leasehold enqueue`.

use std::time::Duration;

use super::{Common, parse, print};
use crate::store::NewJob;

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
    /// How many runs may fail before the job is dead
    #[arg(long, default_value_t = 5)]
    max_attempts: i32,
    /// Wall-clock time a run may take, instead of the module's
    #[arg(long, value_parser = parse::duration)]
    timeout: Option<Duration>,
    /// How long to wait after the first failure; doubles with each, at most an hour. Default: 5s
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    backoff: Option<Duration>,
    /// Pin a version of the module instead of running whichever is active
    #[arg(long)]
    version: Option<i32>,
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
        max_attempts: args.max_attempts,
        timeout: args.timeout,
        backoff: args.backoff,
        version: args.version,
    };
    let id = args.common.store()?.enqueue(&job).await?;
    if args.common.json {
        return print::json(&serde_json::json!({ "id": id }));
    }
    println!("{id}");
    Ok(())
}
