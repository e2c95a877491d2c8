//! `leasehold tenant`.

use super::{Common, print};

/// Tenants: whose modules and jobs they are.
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
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Create { name, common } => {
            let created = common.store()?.create_tenant(&name).await?;
            if common.json {
                return print::json(&serde_json::json!({ "tenant": name, "created": created }));
            }
            println!("tenant {name} {}", if created { "created" } else { "exists already" });
        }
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
    }
    Ok(())
}
