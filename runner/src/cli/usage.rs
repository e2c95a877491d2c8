//! `leasehold usage`.

use std::io::Write as _;

use anyhow::Context as _;

use super::{Common, print};
use crate::store::UsageFilter;

/// Show what runs used, by tenant, module and day.
///
/// Days are of UTC, by when a run was settled. Each run counts once; of one that ended with its worker it is not known what it used.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only modules of this name
    #[arg(long)]
    module: Option<String>,
    /// Not before this day, like 2026-11-01
    #[arg(long, value_name = "DAY")]
    since: Option<String>,
    /// Not after this day
    #[arg(long, value_name = "DAY")]
    until: Option<String>,
    /// Print CSV with a line of headings
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    common: Common,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let filter = UsageFilter {
        tenant: args.tenant.as_deref(),
        module: args.module.as_deref(),
        since: args.since.as_deref(),
        until: args.until.as_deref(),
    };
    let rows = args.common.store()?.usage(&filter).await?;
    if args.common.json {
        return print::json(&rows);
    }
    if args.csv {
        let mut csv = csv::Writer::from_writer(std::io::stdout().lock());
        for row in &rows {
            csv.serialize(row).context("writing CSV")?;
        }
        let mut out = csv.into_inner().map_err(|error| anyhow::anyhow!("writing CSV: {error}"))?;
        return out.flush().context("writing CSV");
    }
    let gib_hours = |byte_seconds: f64| format!("{:.3}", byte_seconds / 3600.0 / f64::from(1 << 30));
    print::table(
        &[
            "tenant",
            "module",
            "day",
            "runs",
            "failed",
            "crashed",
            "cpu s",
            "fuel",
            "memory GiB h",
            "bytes in",
            "bytes out",
        ],
        rows.into_iter().map(|u| {
            let cpu = format!("{:.3}", u.cpu_ms / 1000.0);
            let memory = gib_hours(u.memory_byte_seconds);
            let [runs, failed, crashed] = [u.runs, u.failed, u.crashed].map(|n| n.to_string());
            let [bytes_in, bytes_out] = [u.bytes_in, u.bytes_out].map(|n| n.to_string());
            vec![u.tenant, u.module, u.day, runs, failed, crashed, cpu, u.fuel, memory, bytes_in, bytes_out]
        }),
    );
    Ok(())
}
