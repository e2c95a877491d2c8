//! `leasehold tenant`.

use super::{DatabaseArgs, print};

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
        database: DatabaseArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List tenants
    List {
        #[command(flatten)]
        database: DatabaseArgs,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Create { name, database, json } => {
            let created = database.store()?.create_tenant(&name).await?;
            if json {
                return print::json(&serde_json::json!({ "tenant": name, "created": created }));
            }
            println!("tenant {name} {}", if created { "created" } else { "exists already" });
        }
        Command::List { database, json } => {
            let tenants = database.store()?.tenants().await?;
            if json {
                return print::json(&tenants);
            }
            tenants.iter().for_each(|name| println!("{name}"));
        }
    }
    Ok(())
}
