//! What the tests share.

pub mod binary;
pub mod cluster;
pub mod db;
pub mod guests;
pub mod pgbouncer;
pub mod proxy;
pub mod scenario;
pub mod workers;

pub use db::TestDb;
pub use scenario::{Claimer, Upload};
