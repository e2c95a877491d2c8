//! `leasehold secret`.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::{Common, print};
use crate::grants::check_secret_name;
use crate::secrets::{Keyring, MAX_VALUE_BYTES};

/// Secrets of tenants, for modules that were granted them (module push --secret NAME).
///
/// They are kept sealed with the key in LEASEHOLD_SECRET_KEY (32 bytes in base64: openssl rand -base64 32), which
/// workers need too. Several keys with commas between: the first seals, all of them open.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Keep a secret, a new one or in the place of the one with its name. The value comes from standard input, without
    /// the line break at its end
    Set {
        name: String,
        #[arg(long, default_value = "default")]
        tenant: String,
        /// Take the value from a file instead
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        #[command(flatten)]
        common: Common,
    },
    /// List secrets, without what they say
    List {
        /// Only this tenant's
        #[arg(long)]
        tenant: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a secret; modules that were granted it go on without
    Remove {
        name: String,
        #[arg(long, default_value = "default")]
        tenant: String,
        #[command(flatten)]
        common: Common,
    },
    /// Seal all tenants' secrets anew with the first key; then the other keys are no longer needed
    Rotate {
        #[command(flatten)]
        common: Common,
    },
}

/// `keyring` is None where there is no key.
pub async fn run(args: Args, keyring: Option<Keyring>) -> anyhow::Result<()> {
    let keyring =
        || keyring.as_ref().context("LEASEHOLD_SECRET_KEY is not set; make a key with: openssl rand -base64 32");
    match args.command {
        Command::Set { name, tenant, file, common } => {
            check_secret_name(&name)?;
            let sealed = keyring()?.seal(&tenant, &name, &value(file)?)?;
            common.store()?.set_secret(&tenant, &sealed, None).await?;
            if common.json {
                return print::json(&serde_json::json!({ "tenant": tenant, "name": name, "key_id": sealed.key_id }));
            }
            println!("secret {name} of tenant {tenant} is kept, sealed with key {}", sealed.key_id);
        }
        Command::List { tenant, common } => {
            let secrets = common.store()?.secrets(tenant.as_deref()).await?;
            if common.json {
                return print::json(&secrets);
            }
            print::table(
                &["tenant", "name", "key", "updated at"],
                secrets
                    .into_iter()
                    .map(|secret| vec![secret.tenant, secret.name, secret.key_id, print::time(&secret.updated_at)]),
            );
        }
        Command::Remove { name, tenant, common } => {
            let removed = common.store()?.remove_secret(&tenant, &name).await?;
            if common.json {
                return print::json(&serde_json::json!({ "tenant": tenant, "name": name, "removed": removed }));
            }
            anyhow::ensure!(removed, "tenant {tenant} has no secret named {name}");
            println!("secret {name} of tenant {tenant} is removed");
        }
        Command::Rotate { common } => {
            let (keyring, store) = (keyring()?, common.store()?);
            let mut rotated = 0;
            for (tenant, old) in store.sealed_secrets(None).await? {
                if old.key_id == keyring.key_id() {
                    continue;
                }
                let new = keyring.seal(&tenant, &old.name, &keyring.open(&tenant, &old)?)?;
                rotated += u64::from(store.set_secret(&tenant, &new, Some(&old.nonce)).await?);
            }
            if common.json {
                return print::json(&serde_json::json!({ "rotated": rotated, "key_id": keyring.key_id() }));
            }
            println!("{rotated} secrets are sealed anew with key {}", keyring.key_id());
        }
    }
    Ok(())
}

fn value(file: Option<PathBuf>) -> anyhow::Result<String> {
    let mut value = String::new();
    // One byte more than may be, so that one too many is told.
    let limit = MAX_VALUE_BYTES as u64 + 2;
    match file {
        Some(path) => std::fs::File::open(&path)
            .and_then(|file| file.take(limit).read_to_string(&mut value))
            .with_context(|| format!("reading the secret from {}", path.display()))?,
        None => {
            std::io::stdin().take(limit).read_to_string(&mut value).context("reading the secret from standard input")?
        }
    };
    let value = value.strip_suffix('\n').unwrap_or(&value);
    Ok(value.strip_suffix('\r').unwrap_or(value).to_owned())
}
