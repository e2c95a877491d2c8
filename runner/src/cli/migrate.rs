//! `leasehold migrate`.

use super::{Common, print};

/// Create or upgrade the schema "leasehold" in the database.
///
/// Safe to run at any time and from several places at once. Refuses a schema that is newer than this leasehold.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    common: Common,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let done = args.common.store()?.migrate(args.dry_run).await?;
    if args.common.json {
        return print::json(&serde_json::json!({ "applied": done, "dry_run": args.dry_run }));
    }
    for migration in &done {
        println!("{} {}", if args.dry_run { "would apply" } else { "applied" }, migration.name);
    }
    if done.is_empty() {
        println!("nothing to do: the schema is current");
    }
    Ok(())
}
