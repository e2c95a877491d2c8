//! From a claim's (module, version) to code that can run: what the version says, and its bytes made ready, each looked up
//! once. Versions never change, so nothing here goes stale.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use tokio::sync::OnceCell;

use crate::job::{ModuleVersion, TenantId};
use crate::sandbox::{LoadError, ModuleCache, Prepared, Sandbox};
use crate::store::Store;

/// How many versions' settings are remembered, some hundred bytes each. Past it all are forgotten and looked up again.
const VERSIONS: usize = 10_000;

pub struct Modules {
    store: Store,
    cache: ModuleCache,
    versions: Mutex<Versions>,
}

/// By module and version; None for one that was removed.
type Versions = HashMap<(i32, i32), Arc<OnceCell<Option<Arc<Known>>>>>;

/// A version and who it belongs to.
pub struct Known {
    pub version: Arc<ModuleVersion>,
    pub tenant_name: String,
}

impl Modules {
    pub fn new(store: Store, sandbox: Sandbox) -> Self {
        Self { store, cache: ModuleCache::new(sandbox), versions: Mutex::default() }
    }

    /// None when the version was removed meanwhile.
    pub async fn version(&self, tenant: TenantId, module_id: i32, version: i32) -> anyhow::Result<Option<Arc<Known>>> {
        let cell = {
            let mut versions = self.versions.lock().expect("nobody panics while holding it");
            if versions.len() >= VERSIONS && !versions.contains_key(&(module_id, version)) {
                versions.clear();
            }
            versions.entry((module_id, version)).or_default().clone()
        };
        let known = cell
            .get_or_try_init(|| async {
                let found = self.store.module_version(tenant, module_id, version).await?;
                let known =
                    found.map(|(version, tenant_name)| Arc::new(Known { version: Arc::new(version), tenant_name }));
                anyhow::Ok(known)
            })
            .await?;
        Ok(known.clone())
    }

    pub async fn prepared(&self, tenant: TenantId, version: &ModuleVersion) -> Result<Prepared, LoadError> {
        let digest = version.digest;
        let fetch = async || {
            let bytes = self.store.module_bytes(tenant, digest).await?;
            bytes.with_context(|| format!("the bytes of module {} (digest {digest}) are gone", version.name))
        };
        self.cache.get_or_prepare(tenant, digest, fetch).await
    }
}
