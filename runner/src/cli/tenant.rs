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
