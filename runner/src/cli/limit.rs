//! `leasehold limit`, `leasehold pause` and `leasehold resume`.

use std::time::Duration;

use super::{Common, parse, print};
use crate::store::Scope;

/// Limit how many jobs run at once (cap) or how often they begin (rate); show what is limited or paused.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List pauses, caps and rates
    List {
        #[command(flatten)]
        common: Common,
    },
    /// At most so many jobs of a tenant, or of one of its modules, run at once, over all workers
    Cap {
        /// How many
        #[arg(required_unless_present = "none")]
        max_running: Option<i32>,
        /// Take the cap away
        #[arg(long, conflicts_with = "max_running")]
        none: bool,
        #[command(flatten)]
        scope: ScopeArgs,
        #[command(flatten)]
        common: Common,
    },
    /// So many jobs of a tenant, a module or a rate key begin in a time, over all workers
    Rate {
        /// How many
        #[arg(required_unless_present = "none")]
        rate: Option<f64>,
        /// In what time
        #[arg(long, value_parser = parse::duration, default_value = "1s")]
        per: Duration,
        /// How many may begin at once after a quiet time [default: the rate]
        #[arg(long)]
        burst: Option<i32>,
        /// Only jobs that were enqueued with this rate_key
        #[arg(long, conflicts_with = "module")]
        key: Option<String>,
        /// Take the limit away
        #[arg(long, conflicts_with_all = ["rate", "burst"])]
        none: bool,
        #[command(flatten)]
        scope: ScopeArgs,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Debug, clap::Args)]
struct ScopeArgs {
    #[arg(long, default_value = "default")]
    tenant: String,
    /// Only jobs of this module
    #[arg(long)]
    module: Option<String>,
}

impl ScopeArgs {
    fn scope(&self) -> Scope<'_> {
        Scope { tenant: &self.tenant, module: self.module.as_deref() }
    }
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::List { common } => {
            let limits = common.store()?.limits().await?;
            if common.json {
                return print::json(&limits);
            }
            print::table(
                &["kind", "tenant", "module", "queue", "key", "running", "limit", "since", "reason"],
                limits.into_iter().map(|limit| {
                    let rate = limit.per_second.map(|rate| format!("{rate}/s, burst {}", limit.burst.unwrap_or(rate)));
                    vec![
                        limit.kind,
                        print::or_dash(limit.tenant),
                        print::or_dash(limit.module),
                        print::or_dash(limit.queue),
                        print::or_dash(limit.key),
                        print::or_dash(limit.running),
                        print::or_dash(rate.or_else(|| limit.max_running.map(|max| max.to_string()))),
                        print::or_dash(limit.paused_at.as_deref().map(print::time)),
                        print::short(&limit.reason.unwrap_or_default()),
                    ]
                }),
            );
        }
        Command::Cap { max_running, none: _, scope, common } => {
            let before = common.store()?.set_cap(scope.scope(), max_running).await?;
            if common.json {
                return print::json(&serde_json::json!({ "max_running": max_running, "before": before }));
            }
            println!("at most {} jobs run at once (before: {})", or_any(max_running), or_any(before));
        }
        Command::Rate { rate, per, burst, key, none: _, scope, common } => {
            let before = common.store()?.set_rate(scope.scope(), key.as_deref(), rate, per, burst).await?;
            if common.json {
                return print::json(&serde_json::json!({ "rate": rate, "limited_before": before }));
            }
            match rate {
                Some(rate) => println!("at most {rate} jobs begin each {}", humantime::format_duration(per)),
                None if before => println!("the limit is gone"),
                None => println!("there was no limit"),
            }
        }
    }
    Ok(())
}

fn or_any(count: Option<i32>) -> String {
    count.map_or_else(|| "any number of".into(), |count| count.to_string())
}

/// Begin no job of a queue, a tenant or a module until it is resumed; running ones go on.
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    #[command(flatten)]
    what: Pausable,
    /// For whoever wonders later
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Begin jobs again that were paused.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    what: Pausable,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Pausable {
    /// A queue, of all tenants
    #[arg(long, required_unless_present = "tenant", conflicts_with_all = ["tenant", "module"])]
    queue: Option<String>,
    /// All of a tenant's modules, or one
    #[arg(long)]
    tenant: Option<String>,
    #[arg(long, requires = "tenant")]
    module: Option<String>,
}

impl Pausable {
    fn scope(&self) -> Scope<'_> {
        Scope { tenant: self.tenant.as_deref().unwrap_or_default(), module: self.module.as_deref() }
    }

    fn name(&self) -> String {
        match (&self.queue, &self.module, &self.tenant) {
            (Some(queue), ..) => format!("queue {queue}"),
            (None, Some(module), _) => format!("module {module}"),
            (None, None, tenant) => format!("tenant {}", tenant.as_deref().unwrap_or_default()),
        }
    }
}

pub async fn pause(args: PauseArgs) -> anyhow::Result<()> {
    let (store, what, reason) = (args.common.store()?, &args.what, args.reason.as_deref());
    let changed = match &what.queue {
        Some(queue) => store.pause_queue(queue, reason).await?,
        None => store.pause(what.scope(), reason).await?,
    };
    if args.common.json {
        return print::json(&serde_json::json!({ "paused": true, "changed": changed }));
    }
    println!("{} {}", what.name(), if changed { "is paused" } else { "was paused already" });
    Ok(())
}

pub async fn resume(args: ResumeArgs) -> anyhow::Result<()> {
    let (store, what) = (args.common.store()?, &args.what);
    let changed = match &what.queue {
        Some(queue) => store.resume_queue(queue).await?,
        None => store.resume(what.scope()).await?,
    };
    if args.common.json {
        return print::json(&serde_json::json!({ "paused": false, "changed": changed }));
    }
    println!("{} {}", what.name(), if changed { "goes on" } else { "was not paused" });
    Ok(())
}
