//! `leasehold migrate`.

use super::{DatabaseArgs, print};

/// Create or upgrade the schema "leasehold" in the database.
///
/// Safe to run at any time and from several places at once. Refuses a schema that is newer than this leasehold.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    let done = args.database.store()?.migrate(args.dry_run).await?;
    if args.json {
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
