//! `leasehold stats`.

use super::{Common, print};

/// Count jobs by tenant, queue and state.
///
/// Finished states count the last 24 hours. A growing age of the oldest due job means that workers are down or too few.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// What the live jobs of each queue wait for instead, in the words of `leasehold job explain`
    #[arg(long, conflicts_with = "tenant")]
    waiting: bool,
    #[command(flatten)]
    common: Common,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let age = |seconds: Option<f64>| print::or_dash(seconds.map(|s| format!("{s:.1} s")));
    if args.waiting {
        let waiting = args.common.store()?.count_waiting().await?;
        if args.common.json {
            return print::json(&waiting);
        }
        print::table(
            &["queue", "waits for", "jobs", "oldest"],
            waiting.into_iter().map(|w| vec![w.queue, w.code, w.jobs.to_string(), age(w.oldest_seconds)]),
        );
        return Ok(());
    }
    let stats = args.common.store()?.queue_stats(args.tenant.as_deref()).await?;
    if args.common.json {
        return print::json(&stats);
    }
    print::table(
        &["tenant", "queue", "state", "count", "oldest due"],
        stats.into_iter().map(|s| vec![s.tenant, s.queue, s.state, s.count.to_string(), age(s.oldest_due_age_seconds)]),
    );
    Ok(())
}
