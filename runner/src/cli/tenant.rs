//! `leasehold tenant`.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::{Common, parse, print};
use crate::store::{NewGrant, Scope, Store};

/// Tenants: whose modules and jobs they are, what they may have, and which database roles may act for them.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Create a tenant; one that exists is left as it is
    Create {
        name: String,
        /// Let this database role act for it; a login role without a password is created where there is none
        #[arg(long)]
        role: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Set a tenant's weight: its share of the workers while others want them too. 100 unless set
    Weight {
        name: String,
        #[arg(value_parser = clap::value_parser!(i32).range(1..=1000))]
        weight: i32,
        #[command(flatten)]
        common: Common,
    },
    /// List tenants
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Show a tenant's quotas with what is in use, and the roles that may act for it
    Show {
        name: String,
        #[command(flatten)]
        common: Common,
    },
    Set(Box<Set>),
    /// Let a database role act for a tenant
    Grant {
        name: String,
        role: String,
        /// tenant: its jobs, schedules and modules; producer: enqueue
        #[arg(long, value_parser = ["tenant", "producer"], default_value = "tenant")]
        level: String,
        /// Only by way of SECURITY DEFINER functions of roles that may enqueue
        #[arg(long)]
        through_functions: bool,
        #[command(flatten)]
        common: Common,
    },
    /// A role may act for a tenant no more
    Revoke {
        name: String,
        role: String,
        #[command(flatten)]
        common: Common,
    },
    /// Begin none of its jobs until it is resumed
    Pause {
        name: String,
        /// For whoever wonders later
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Begin its jobs again
    Resume {
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a tenant with its jobs, history, schedules and modules; refused while jobs of it run
    Remove {
        name: String,
        /// Cancel the running ones first
        #[arg(long)]
        force: bool,
        /// How long to wait for running jobs and open transactions to end
        #[arg(long, value_parser = parse::duration, default_value = "1m")]
        wait: Duration,
        #[command(flatten)]
        common: Common,
    },
}

/// Set what a tenant may have; each limit may be "none".
///
/// What is in use already is never taken away: there is no room until it has fallen.
#[derive(Debug, clap::Args)]
struct Set {
    name: String,
    /// Jobs that have not ended
    #[arg(long, value_name = "N|none", value_parser = count)]
    queued_jobs: Option<Limit>,
    /// Bytes of their payloads
    #[arg(long, value_name = "SIZE|none", value_parser = size)]
    queued_bytes: Option<Limit>,
    /// Bytes of all its uploads
    #[arg(long, value_name = "SIZE|none", value_parser = size)]
    module_bytes: Option<Limit>,
    /// Versions of all its modules
    #[arg(long, value_name = "N|none", value_parser = count)]
    module_versions: Option<Limit>,
    /// Jobs that run at once, as `leasehold limit cap`
    #[arg(long, value_name = "N|none", value_parser = count)]
    running: Option<Limit>,
    /// Jobs that begin each second, as `leasehold limit rate`
    #[arg(long, value_name = "R|none", value_parser = rate)]
    rate: Option<Rate>,
    /// The most fuel a role of the tenant may give a module that it uploads [none: 20000000000]
    #[arg(long, value_name = "N|none", value_parser = count)]
    max_fuel: Option<Limit>,
    /// Likewise memory [none: 64MiB]
    #[arg(long, value_name = "SIZE|none", value_parser = size)]
    max_memory: Option<Limit>,
    /// Likewise time, of a job too [none: 30s]
    #[arg(long, value_name = "DURATION|none", value_parser = millis)]
    max_timeout: Option<Limit>,
    /// Likewise the size of a result [none: 1MiB]
    #[arg(long, value_name = "SIZE|none", value_parser = size)]
    max_result: Option<Limit>,
    /// Likewise the size of a log [none: 16KiB]
    #[arg(long, value_name = "SIZE|none", value_parser = size)]
    max_log: Option<Limit>,
    /// Likewise the number of follow-up jobs [none: 0]
    #[arg(long, value_name = "N|none", value_parser = count)]
    max_follow_ups: Option<Limit>,
    /// The largest module that it may upload [none: 64MiB]
    #[arg(long, value_name = "SIZE|none", value_parser = size)]
    max_module: Option<Limit>,
    #[command(flatten)]
    common: Common,
}

/// A limit, or none.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<u64>);

/// A rate, or none.
#[derive(Debug, Clone, Copy)]
struct Rate(Option<f64>);

fn limit(text: &str, parse: impl Fn(&str) -> Result<u64, String>) -> Result<Limit, String> {
    if text == "none" { Ok(Limit(None)) } else { parse(text).map(|limit| Limit(Some(limit))) }
}

fn count(text: &str) -> Result<Limit, String> {
    limit(text, |text| text.parse().map_err(|_| format!("{text:?} is neither a whole number nor none")))
}

fn size(text: &str) -> Result<Limit, String> {
    limit(text, parse::bytes)
}

fn millis(text: &str) -> Result<Limit, String> {
    limit(text, |text| parse::duration(text).map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

fn rate(text: &str) -> Result<Rate, String> {
    if text == "none" {
        return Ok(Rate(None));
    }
    text.parse().map(|rate| Rate(Some(rate))).map_err(|_| format!("{text:?} is neither a number nor none"))
}

impl Set {
    fn quotas(&self) -> Map<String, Value> {
        let named = [
            ("queued_jobs", self.queued_jobs),
            ("queued_bytes", self.queued_bytes),
            ("module_bytes", self.module_bytes),
            ("module_versions", self.module_versions),
            ("max_fuel", self.max_fuel),
            ("max_memory_bytes", self.max_memory),
            ("max_timeout_ms", self.max_timeout),
            ("max_result_bytes", self.max_result),
            ("max_log_bytes", self.max_log),
            ("max_follow_ups", self.max_follow_ups),
            ("max_module_bytes", self.max_module),
        ];
        named.into_iter().filter_map(|(name, limit)| limit.map(|limit| (name.to_owned(), limit.0.into()))).collect()
    }
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Create { name, role, common } => create(&name, role.as_deref(), &common).await?,
        Command::Weight { name, weight, common } => {
            let before = common.store()?.set_weight(&name, weight).await?;
            if common.json {
                return print::json(&serde_json::json!({ "tenant": name, "weight": weight, "before": before }));
            }
            println!("tenant {name} has weight {weight} (before: {before})");
        }
        Command::List { common } => {
            let tenants = common.store()?.tenants().await?;
            if common.json {
                return print::json(&tenants);
            }
            tenants.iter().for_each(|name| println!("{name}"));
        }
        Command::Show { name, common } => show(&name, &common).await?,
        Command::Set(set) => {
            let (store, quotas) = (set.common.store()?, set.quotas());
            let scope = Scope { tenant: &set.name, module: None };
            anyhow::ensure!(
                !quotas.is_empty() || set.running.is_some() || set.rate.is_some(),
                "nothing to set; name a quota, for instance --queued-jobs 1000"
            );
            let running = set.running.map(|limit| limit.0.map(i32::try_from).transpose()).transpose()?;
            let counts = quotas.contains_key("queued_jobs") || quotas.contains_key("queued_bytes");
            store.set_quotas(&set.name, &Value::Object(quotas)).await?;
            // Jobs of before the first such quota, range by range; with a later one there are none.
            let mut from_id = counts.then_some(0);
            while let Some(id) = from_id {
                from_id = store.count_jobs(&set.name, id).await?;
            }
            if let Some(running) = running {
                store.set_cap(scope, running).await?;
            }
            if let Some(rate) = set.rate {
                store.set_rate(scope, None, rate.0, Duration::from_secs(1), None).await?;
            }
            show(&set.name, &set.common).await?;
        }
        Command::Grant { name, role, level, through_functions, common } => {
            let grant = NewGrant { tenant: &name, role: &role, level: &level, through_functions, create_role: false };
            let changed = common.store()?.grant_tenant(&grant).await?;
            if common.json {
                return print::json(&json!({ "tenant": name, "role": role, "level": level, "changed": changed }));
            }
            println!("role {role} may act for tenant {name} as {level}{}", if changed { "" } else { ", as before" });
        }
        Command::Revoke { name, role, common } => {
            let changed = common.store()?.revoke_tenant(&name, &role).await?;
            if common.json {
                return print::json(&json!({ "tenant": name, "role": role, "revoked": changed }));
            }
            println!("role {role} {} tenant {name}", if changed { "acts no more for" } else { "did not act for" });
        }
        Command::Pause { name, reason, common } => {
            let changed = common.store()?.pause(Scope { tenant: &name, module: None }, reason.as_deref()).await?;
            if common.json {
                return print::json(&json!({ "paused": true, "changed": changed }));
            }
            println!("tenant {name} {}", if changed { "is paused" } else { "was paused already" });
        }
        Command::Resume { name, common } => {
            let changed = common.store()?.resume(Scope { tenant: &name, module: None }).await?;
            if common.json {
                return print::json(&json!({ "paused": false, "changed": changed }));
            }
            println!("tenant {name} {}", if changed { "goes on" } else { "was not paused" });
        }
        Command::Remove { name, force, wait, common } => {
            let removed = remove(&common.store()?, &name, force, wait).await?;
            if common.json {
                return print::json(&json!({ "tenant": name, "removed_rows": removed }));
            }
            println!("tenant {name} is removed, with {removed} rows of its data");
        }
    }
    Ok(())
}

async fn create(name: &str, role: Option<&str>, common: &Common) -> anyhow::Result<()> {
    let store = common.store()?;
    let created = store.create_tenant(name).await?;
    if let Some(role) = role {
        let grant = NewGrant { tenant: name, role, level: "tenant", through_functions: false, create_role: true };
        store.grant_tenant(&grant).await?;
    }
    if common.json {
        let mut answer = json!({ "tenant": name, "created": created });
        if let Some(role) = role {
            answer["role"] = role.into();
        }
        return print::json(&answer);
    }
    println!("tenant {name} {}", if created { "created" } else { "exists already" });
    if let Some(role) = role {
        println!("role {role} may act for it; a role without a password gets one in psql with: \\password {role}");
    }
    Ok(())
}

async fn show(name: &str, common: &Common) -> anyhow::Result<()> {
    let store = common.store()?;
    let (quotas, grants, limits) = (store.quotas(name).await?, store.grants(name).await?, store.limits().await?);
    anyhow::ensure!(!quotas.is_empty(), "no tenant is named {name}; create it with: leasehold tenant create {name}");
    let limits: Vec<_> = limits.into_iter().filter(|limit| limit.tenant.as_deref() == Some(name)).collect();
    if common.json {
        return print::json(&json!({ "tenant": name, "quotas": quotas, "roles": grants, "limits": limits }));
    }
    print::table(
        &["quota", "limit", "used"],
        quotas.into_iter().map(|quota| {
            vec![quota.quota, quota.allowed.map_or("none".into(), |n| n.to_string()), print::or_dash(quota.used)]
        }),
    );
    for limit in limits.into_iter().filter(|limit| limit.module.is_none() && limit.key.is_none()) {
        match (limit.max_running, limit.per_second) {
            (Some(max), _) => println!("at most {max} jobs run at once; {} do", limit.running.unwrap_or_default()),
            (_, Some(rate)) => println!("at most {rate} jobs begin each second"),
            _ => println!("paused: {}", print::short(&limit.reason.unwrap_or_default())),
        }
    }
    for grant in grants {
        let valid = if grant.valid { "" } else { " (that role was dropped: grant it anew, or revoke it)" };
        println!("role {} may act for it as {}{valid}", grant.role, grant.level);
    }
    Ok(())
}

/// How often running jobs and open transactions are looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Step by step, each a short transaction, until a whole pass finds nothing. Answers how many rows went.
async fn remove(store: &Store, name: &str, force: bool, wait: Duration) -> anyhow::Result<i64> {
    let mut total = 0;
    let (mut from_id, mut clean) = (None, false);
    let mut until = Instant::now() + wait;
    loop {
        let step = store.remove_tenant(name, force, from_id, clean).await?;
        total += step.removed;
        if step.done {
            return Ok(total);
        }
        if step.removed > 0 {
            until = Instant::now() + wait;
        }
        clean = (clean || from_id == Some(0)) && step.removed == 0;
        from_id = step.next_id;
        if from_id.is_some() {
            continue;
        }
        // Another pass; for what is still open or running, soon.
        from_id = Some(0);
        anyhow::ensure!(
            Instant::now() < until,
            "tenant {name} is shut and {total} rows are removed, but {} of its jobs still run, or a transaction that began \
             before is still open; run it again when they have ended{}",
            step.running,
            if force { "" } else { ", or with --force to cancel the jobs" }
        );
        tokio::time::sleep(LOOK).await;
    }
}
