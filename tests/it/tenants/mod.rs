//! Tenants as customers: what their roles may do and what not, what quotas hold, and what is left of one that was removed.

mod attacks;
mod grants;
mod quotas;
mod removal;
mod uploads;

use leasehold_tests::db::{as_user, connect};
use leasehold_tests::{TestDb, Upload};
use tokio_postgres::Client;

/// The smallest module there is. No test runs it.
const NOTHING: &[u8] = b"\0asm\x01\0\0\0";

/// Makes a tenant with a module that nobody runs.
async fn tenant(db: &TestDb, name: &str, module: &str) {
    db.sql(&format!("select leasehold.create_tenant('{name}')")).await;
    db.push(Upload { tenant: name, ..Upload::command(module, NOTHING) }).await;
}

/// A session of a new login role that may act for a tenant, and the role's name.
async fn login(db: &TestDb, tenant: &str, level: &str) -> (Client, String) {
    let role = new_role(db, &format!("{tenant}_{level}")).await;
    db.sql(&format!("select leasehold.grant_tenant('{tenant}', '{role}', '{level}')")).await;
    (connect(&as_user(db.url(), &role)).await, role)
}

/// Roles belong to the whole server, so this one is named after the database.
async fn new_role(db: &TestDb, name: &str) -> String {
    let role = format!("{}_{name}", db.name());
    db.sql(&format!("create role {role} login password 'secret'")).await;
    role
}
