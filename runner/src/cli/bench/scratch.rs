//! A database that lasts as long as a bench.

use tracing::warn;

use super::CONNECTIONS;
use crate::store::{Database, Store};

/// Migrates a new database on the server, runs the bench in it and drops it, however the bench ends. One whose bench is killed
/// is dropped by the next.
pub async fn within<T>(database: Database, bench: impl AsyncFnOnce(&Store) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let scratch = Store::new(database.clone(), 2)?.create_scratch().await?;
    let store = Store::new(database.with_name(scratch.name()), CONNECTIONS)?;
    let done = async {
        store.migrate(false).await?;
        bench(&store).await
    };
    let done = done.await;
    drop(store);
    if let Err(cause) = scratch.drop().await {
        warn!("{cause:#}");
    }
    done
}
