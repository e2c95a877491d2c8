//! A worker process as the database knows it: registered, beating, sleeping, gone.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Store, get};
use crate::job::JobId;

/// Fresh at each start of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerId(pub i64);

/// What a heartbeat answered.
pub struct Beat {
    /// Jobs that somebody else owns by now.
    pub lost: Vec<JobId>,
    /// Jobs that somebody asked to cancel.
    pub cancel: Vec<JobId>,
}

impl Store {
    pub async fn register_worker(&self, queues: &[String], slots: usize) -> anyhow::Result<WorkerId> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let pid = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
        let slots = i32::try_from(slots).unwrap_or(i32::MAX);
        let row = self
            .row(
                "registering the worker",
                "-- register_worker\nselect leasehold.register_worker($1, $2, $3, $4, $5)",
                &[
                    (&host, Type::TEXT),
                    (&pid, Type::INT4),
                    (&env!("CARGO_PKG_VERSION"), Type::TEXT),
                    (&queues, Type::TEXT_ARRAY),
                    (&slots, Type::INT4),
                ],
            )
            .await?;
        Ok(WorkerId(get(&row, 0)?))
    }

    /// Extends the worker's claims by a lease from now and forgets the closed ones.
    pub async fn heartbeat(
        &self,
        worker: WorkerId,
        claims: &[i64],
        closed_claims: &[i64],
        lease: Duration,
        jobs: &[(JobId, i32)],
    ) -> anyhow::Result<Beat> {
        let lease_ms = i32::try_from(lease.as_millis()).unwrap_or(i32::MAX);
        let (ids, lease_nos): (Vec<i64>, Vec<i32>) = jobs.iter().map(|(id, number)| (id.0, *number)).unzip();
        let row = self
            .row(
                "sending a heartbeat",
                "-- heartbeat\nselect * from leasehold.heartbeat($1, $2, $3, $4, $5, $6)",
                &[
                    (/* worker */ &worker.0, Type::INT8),
                    (/* claims */ &claims, Type::INT8_ARRAY),
                    (/* closed */ &closed_claims, Type::INT8_ARRAY),
                    (/* lease_ms */ &lease_ms, Type::INT4),
                    (/* job ids */ &ids, Type::INT8_ARRAY),
                    (/* lease numbers */ &lease_nos, Type::INT4_ARRAY),
                ],
            )
            .await?;
        let jobs = |column| anyhow::Ok(get::<Vec<i64>>(&row, column)?.into_iter().map(JobId).collect());
        Ok(Beat { lost: jobs("lost")?, cancel: jobs("cancel")? })
    }

    /// Asks for a NOTIFY on the queues for so long, or for none with zero.
    pub async fn sleep(&self, worker: WorkerId, queues: &[String], ttl: Duration) -> anyhow::Result<()> {
        let ttl_ms = i32::try_from(ttl.as_millis()).unwrap_or(i32::MAX);
        let sql = "-- sleep\nselect leasehold.sleep($1, $2, $3)";
        self.row(
            "saying that the worker sleeps",
            sql,
            &[(&worker.0, Type::INT8), (&queues, Type::TEXT_ARRAY), (&ttl_ms, Type::INT4)],
        )
        .await?;
        Ok(())
    }

    pub async fn retire_worker(&self, worker: WorkerId, closed_claims: &[i64]) -> anyhow::Result<()> {
        let sql = "-- retire_worker\nselect leasehold.retire_worker($1, $2)";
        self.row("signing the worker off", sql, &[(&worker.0, Type::INT8), (&closed_claims, Type::INT8_ARRAY)]).await?;
        Ok(())
    }
}
