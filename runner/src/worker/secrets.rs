//! The values of the secrets that a module was granted, looked up and opened before it runs. They are remembered for a
//! moment, so that a queue full of short jobs does not ask for each of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::job::TenantId;
use crate::secrets::{Keyring, Sealed, Secrets};
use crate::store::Store;

/// How long after a change a run may still begin with the old value.
const FRESH: Duration = Duration::from_secs(5);
/// How many modules' secrets are remembered. Past it all are forgotten.
const REMEMBERED: usize = 1_000;

/// By whose they are and their names: since when they are known, and what they are.
type Known = HashMap<(TenantId, Vec<String>), (Instant, Arc<Secrets>)>;

pub struct SecretValues {
    store: Store,
    keyring: Option<Keyring>,
    known: Mutex<Known>,
}

impl SecretValues {
    pub fn new(store: Store, keyring: Option<Keyring>) -> Self {
        Self { store, keyring, known: Mutex::default() }
    }

    /// By the names that a module was granted. What cannot be opened here says so to the guest that asks for it.
    pub async fn get(&self, tenant: TenantId, names: &[String]) -> anyhow::Result<Arc<Secrets>> {
        if names.is_empty() {
            return Ok(Arc::clone(Secrets::none()));
        }
        let key = (tenant, names.to_vec());
        if let Some((_, secrets)) = self.known().get(&key).filter(|(since, _)| since.elapsed() < FRESH) {
            return Ok(Arc::clone(secrets));
        }
        let since = Instant::now();
        let sealed = self.store.sealed_secrets(Some((tenant, names))).await?;
        let secrets: Arc<Secrets> = Arc::new(
            sealed.into_iter().map(|(tenant, sealed)| (sealed.name.clone(), self.open(&tenant, &sealed))).collect(),
        );
        let mut known = self.known();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(key, (since, Arc::clone(&secrets)));
        Ok(secrets)
    }

    fn open(&self, tenant: &str, sealed: &Sealed) -> Result<String, String> {
        let Some(keyring) = &self.keyring else {
            return Err(format!("secret {} cannot be opened: this worker has no LEASEHOLD_SECRET_KEY", sealed.name));
        };
        keyring.open(tenant, sealed).map_err(|error| error.to_string())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics while holding it")
    }
}
