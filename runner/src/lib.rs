//! Leasehold: background jobs in PostgreSQL whose code you do not have to trust. ARCHITECTURE.md is the map.

// The words, pure: no I/O, no tokio, no wasmtime.
pub mod job;
pub mod outcome;
pub mod retry;
pub mod schedule;
pub mod settlement;
pub mod written;

// The two sides, which do not know each other: the only SQL, the only wasmtime.
pub mod sandbox;
pub mod store;

// The sandbox without a queue, for those who write modules.
pub mod harness;

// The loops that know both, and the faces.
pub mod cli;
pub mod cluster;
pub mod http;
pub mod maintenance;
pub mod worker;
