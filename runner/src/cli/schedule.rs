//! `leasehold schedule`.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;

use super::{Common, parse, print};
use crate::schedule::{Cron, Missed, Second};
use crate::store::{Database, NewSchedule, ScheduleRow, Store};

/// Jobs that are enqueued by the clock: cron expressions with a time zone.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Set(Box<Set>),
    /// List schedules
    List {
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Show a schedule with everything about it
    Show(One),
    Next(Next),
    /// Fire it no more until it is resumed
    Pause(One),
    /// Fire it again; --missed says what becomes of what was due meanwhile
    Resume(One),
    /// Remove it; the jobs it enqueued stay
    Remove(One),
    /// Enqueue its job now, whatever its time, even while it is paused; prints the job's id
    Fire(One),
}

/// Which schedule.
#[derive(Debug, clap::Args)]
struct One {
    name: String,
    #[arg(long, default_value = "default")]
    tenant: String,
    #[command(flatten)]
    common: Common,
}

/// Create a schedule, or replace the one of that name.
///
/// The same as SQL: select leasehold.schedule('NAME', 'CRON', 'MODULE', ...). Setting it anew with the same cron and time zone
/// loses no fire, so it may be done at each deploy.
#[derive(Debug, clap::Args)]
struct Set {
    name: String,
    /// minute, hour, day of the month, month, day of the week; 6 fields have seconds first; or @hourly, @daily...
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// The module to run
    #[arg(long)]
    module: String,
    /// JSON, or @FILE or - (standard input) for bytes as they are; at most 1 MiB
    #[arg(long, value_name = "JSON|@FILE|-", default_value = "{}")]
    payload: String,
    #[command(flatten)]
    common: Common,
    #[arg(long, default_value = "default")]
    tenant: String,
    /// An IANA name, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
    #[arg(long, default_value = "default")]
    queue: String,
    /// -100 to 100; higher comes first
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// How many runs of a job may fail before it is dead
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
    /// What becomes of fires that were missed (by a minute or more): lost, one job for all, or a job for each
    #[arg(long, value_name = "skip|once|all", default_value = "once")]
    missed: Missed,
    /// With --missed all: at most so many, the last ones
    #[arg(long, value_name = "N", default_value_t = 100)]
    missed_limit: i32,
    /// Fire by a fixed offset within this window later, so that not all schedules of a full hour fire in one second
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, default_value = "0s")]
    spread: Duration,
    /// Put the nominal time into the payload, a JSON object, under this key, as in "2026-12-01T13:00:00Z"
    #[arg(long, value_name = "KEY")]
    time_key: Option<String>,
    /// Create it paused, or pause it
    #[arg(long)]
    paused: bool,
}

/// Print the next fires, in the schedule's time zone and in UTC.
///
/// Of a schedule, or of any expression with --cron, for which no database is needed.
#[derive(Debug, clap::Args)]
struct Next {
    #[arg(required_unless_present = "cron", conflicts_with_all = ["cron", "time_zone"])]
    name: Option<String>,
    #[arg(long, default_value = "default")]
    tenant: String,
    #[arg(long, value_name = "EXPRESSION")]
    cron: Option<String>,
    /// An IANA name, such as Europe/Berlin
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    time_zone: String,
    /// After this instant, as in 2026-12-01T13:00:00Z, instead of now
    #[arg(long, value_name = "INSTANT")]
    after: Option<Timestamp>,
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// postgres://user:password@host:5432/name; sslmode=require asks for TLS
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Set(set) => self::set(*set).await?,
        Command::List { tenant, common } => {
            let schedules = common.store()?.schedules(tenant.as_deref()).await?;
            if common.json {
                return print::json(&schedules);
            }
            list(schedules);
        }
        Command::Show(One { name, tenant, common }) => {
            let schedule = find(&common.store()?, &tenant, &name).await?;
            if common.json {
                return print::json(&schedule);
            }
            show(&schedule);
        }
        Command::Next(args) => next(args).await?,
        Command::Pause(One { name, tenant, common }) => {
            let paused = common.store()?.pause_schedule(&tenant, &name).await?;
            if common.json {
                return print::json(&serde_json::json!({ "schedule": name, "paused": true, "changed": paused }));
            }
            println!("schedule {name} {}", if paused { "is paused" } else { "was paused already" });
        }
        Command::Resume(One { name, tenant, common }) => {
            let resumed = common.store()?.resume_schedule(&tenant, &name).await?;
            if common.json {
                return print::json(&serde_json::json!({ "schedule": name, "paused": false, "changed": resumed }));
            }
            println!("schedule {name} {}", if resumed { "goes on" } else { "was not paused" });
        }
        Command::Remove(One { name, tenant, common }) => {
            let removed = common.store()?.unschedule(&tenant, &name).await?;
            if common.json {
                return print::json(&serde_json::json!({ "schedule": name, "removed": removed }));
            }
            anyhow::ensure!(removed, "tenant {tenant} has no schedule named {name}");
            println!("schedule {name} is removed");
        }
        Command::Fire(One { name, tenant, common }) => {
            let id = common.store()?.fire_schedule(&tenant, &name).await?;
            if common.json {
                return print::json(&serde_json::json!({ "id": id }));
            }
            println!("{id}");
        }
    }
    Ok(())
}

async fn set(args: Set) -> anyhow::Result<()> {
    let payload = parse::payload(&args.payload)?;
    // Refused here rather than seconds later by a worker.
    let cron = Cron::parse(&args.cron, &args.time_zone)?;
    let store = args.common.store()?;
    store
        .set_schedule(&NewSchedule {
            tenant: &args.tenant,
            name: &args.name,
            cron: &args.cron,
            time_zone: &args.time_zone,
            module: &args.module,
            payload: &payload,
            queue: &args.queue,
            priority: args.priority,
            max_attempts: args.max_attempts,
            timeout: args.timeout,
            backoff: args.backoff,
            version: args.version,
            missed: args.missed,
            missed_limit: args.missed_limit,
            spread: args.spread,
            time_key: args.time_key.as_deref(),
            paused: args.paused.then_some(true),
        })
        .await?;
    let schedule = find(&store, &args.tenant, &args.name).await?;
    if args.common.json {
        return print::json(&schedule);
    }
    let next = cron.next(store.clock().await?).map(|next| in_zone(&cron, next)).transpose()?;
    match next {
        _ if schedule.paused => println!("schedule {} is set, and paused", args.name),
        Some(next) => println!("schedule {} is set; it fires next for {next}", args.name),
        None => println!("schedule {} is set", args.name),
    }
    Ok(())
}

async fn next(args: Next) -> anyhow::Result<()> {
    let (cron, now, offset) = match (&args.cron, &args.name) {
        (Some(cron), _) => (Cron::parse(cron, &args.time_zone)?, Timestamp::now().as_second(), Duration::ZERO),
        (None, name) => {
            let name = name.as_ref().context("name a schedule, or an expression with --cron")?;
            let url = args.database_url.as_ref().context("--database-url is missing; or set DATABASE_URL")?;
            let store = Store::new(Database::parse(url)?, 2)?;
            let schedule = find(&store, &args.tenant, name).await?;
            let offset = Duration::from_millis(u64::try_from(schedule.spread_offset_ms).unwrap_or(0));
            (Cron::parse(&schedule.cron, &schedule.time_zone)?, store.clock().await?, offset)
        }
    };
    let after = args.after.map_or(now, |after| after.as_second());
    let fires: Vec<_> =
        std::iter::successors(cron.next(after), |fire| cron.next(*fire)).take(args.count.into()).collect();
    if args.json {
        let fires =
            fires.iter().map(|fire| Ok(serde_json::json!({ "zone": in_zone(&cron, *fire)?, "utc": in_utc(*fire)? })));
        let spread_offset_ms = u64::try_from(offset.as_millis())?;
        let fires = fires.collect::<anyhow::Result<Vec<_>>>()?;
        return print::json(&serde_json::json!({ "next": fires, "spread_offset_ms": spread_offset_ms }));
    }
    anyhow::ensure!(!fires.is_empty(), "no fire follows {} before the year 5000", in_utc(after)?);
    let rows = fires.iter().map(|fire| Ok(vec![in_zone(&cron, *fire)?, in_utc(*fire)?]));
    print::table(&["in its time zone", "utc"], rows.collect::<anyhow::Result<Vec<_>>>()?);
    if !offset.is_zero() {
        println!("\neach {} later, its place in the spread", humantime::format_duration(offset));
    }
    Ok(())
}

async fn find(store: &Store, tenant: &str, name: &str) -> anyhow::Result<ScheduleRow> {
    store.schedule(tenant, name).await?.with_context(|| format!("tenant {tenant} has no schedule named {name}"))
}

/// `2026-12-01T14:00:00+01:00`
fn in_zone(cron: &Cron, fire: Second) -> anyhow::Result<String> {
    let fire = Timestamp::from_second(fire)?;
    Ok(fire.display_with_offset(cron.zone().to_offset(fire)).to_string())
}

fn in_utc(fire: Second) -> anyhow::Result<String> {
    Ok(Timestamp::from_second(fire)?.to_string())
}

fn state(schedule: &ScheduleRow) -> &'static str {
    match schedule {
        ScheduleRow { paused: true, .. } => "paused",
        ScheduleRow { error: Some(_), .. } => "error",
        ScheduleRow { held: true, .. } => "held",
        _ => "on",
    }
}

fn list(schedules: Vec<ScheduleRow>) {
    print::table(
        &["tenant", "name", "cron", "time zone", "module", "state", "next fire", "last fire", "last job", "error"],
        schedules.into_iter().map(|schedule| {
            vec![
                schedule.tenant.clone(),
                schedule.name.clone(),
                schedule.cron.clone(),
                schedule.time_zone.clone(),
                schedule.module.clone(),
                state(&schedule).into(),
                print::or_dash(schedule.next_fire.as_deref().map(print::time)),
                print::or_dash(schedule.last_fire.as_deref().map(print::time)),
                print::or_dash(schedule.last_job_id),
                print::short(&schedule.error.unwrap_or_default()),
            ]
        }),
    );
}

fn show(schedule: &ScheduleRow) {
    let ms = |ms: i64| humantime::format_duration(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).to_string();
    let version = schedule.version.map(|version| format!(" version {version}")).unwrap_or_default();
    let missed = match schedule.missed.as_str() {
        "all" => format!("all, up to {}", schedule.missed_limit),
        other => other.to_owned(),
    };
    let mut lines = vec![
        ("schedule", format!("{} of tenant {}", schedule.name, schedule.tenant)),
        ("cron", format!("{} in {}", schedule.cron, schedule.time_zone)),
        ("module", format!("{}{version}", schedule.module)),
        ("queue", format!("{}, priority {}", schedule.queue, schedule.priority)),
        ("attempts", schedule.max_attempts.to_string()),
        ("state", state(schedule).to_owned()),
        ("missed", missed),
    ];
    let mut add = |name, value: Option<String>| lines.extend(value.map(|value| (name, value)));
    add("timeout", schedule.timeout_ms.map(ms));
    add("backoff", schedule.backoff_ms.map(ms));
    let spread = format!("{}, of which {} is its own", ms(schedule.spread_ms), ms(schedule.spread_offset_ms));
    add("spread", (schedule.spread_ms > 0).then_some(spread));
    add("time key", schedule.time_key.clone());
    add("next fire", schedule.next_fire.clone());
    add("last fire", schedule.last_fire.clone());
    add("fired at", schedule.last_fired_at.clone());
    add("last job", schedule.last_job_id.map(|id| id.to_string()));
    add("error", schedule.error.clone());
    add("error at", schedule.error_at.clone());
    add("payload", schedule.payload.as_ref().map(ToString::to_string));
    for (name, value) in lines {
        print::line(&format!("{name:<10} {value}"));
    }
}
