//! Leasehold: background jobs in PostgreSQL whose code you do not have to trust. ARCHITECTURE.md is the map.

pub mod cli;
pub mod job;
pub mod outcome;
pub mod retry;
pub mod sandbox;
