//! The verbs of the tests' stories: push, enqueue, claim, settle, let a lease run out, look.

use std::time::Duration;
use std::time::Instant;

use leasehold::grants::Grants;
use leasehold::job::{Digest, JobId, Limits, ModuleKind};
use leasehold::outcome::{Failure, FailureKind, OnFailure};
use leasehold::settlement::{Settled, Settlement};
use leasehold::store::{Batch, Bounds, Claimed, ClaimedJob, NewVersion, Reaped, Report, Store, WorkerId};
use serde_json::Value;

use crate::db::TestDb;
use crate::guests;

/// How long a test waits for what must come. Only a test that fails waits so long, so it suits a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A lease that does not run out in a test by itself.
const LONG_LEASE: Duration = Duration::from_secs(600);

/// A module to upload, of the tenant "default" unless told otherwise.
pub struct Upload<'a> {
    pub name: &'a str,
    pub tenant: &'a str,
    pub kind: ModuleKind,
    pub bytes: &'a [u8],
    pub limits: Limits,
    pub grants: &'a Grants,
    pub on_failure: &'a [(FailureKind, OnFailure)],
    pub activate: bool,
}

impl<'a> Upload<'a> {
    /// With limits that an edge guest meets quickly.
    pub fn component(name: &'a str, bytes: &'a [u8]) -> Self {
        let (kind, limits) = (ModuleKind::Component, guests::LIMITS);
        Self { name, tenant: "default", kind, bytes, limits, grants: Grants::usual(), on_failure: &[], activate: true }
    }

    /// With room for the tests' command, whose memory is larger than most edge guests may have.
    pub fn command(name: &'a str, bytes: &'a [u8]) -> Self {
        let limits = Limits { memory_bytes: 64 << 20, ..guests::LIMITS };
        Self { kind: ModuleKind::Command, limits, ..Self::component(name, bytes) }
    }
}

/// A job as the view `leasehold.jobs` shows it.
#[derive(Debug, Clone)]
pub struct Job {
    pub id: JobId,
    pub state: String,
    pub attempt: i32,
    pub max_attempts: i32,
    pub lease_no: i32,
    pub crash_count: i32,
    pub version: Option<i32>,
    pub cancel_requested: bool,
    pub failure_kind: Option<String>,
    pub error: Option<String>,
    pub result: Option<Value>,
    pub result_bytes: Option<Vec<u8>>,
    pub usage: Option<Value>,
    pub worker_id: Option<i64>,
    /// Milliseconds from now until it is due, by the database's clock; negative when it was due before.
    pub due_in_ms: f64,
}

/// A run as the view `leasehold.job_attempts` shows it.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub attempt: i32,
    pub lease_no: i32,
    pub outcome: String,
    pub failure_kind: Option<String>,
    pub message: Option<String>,
    pub backtrace: Option<String>,
    pub log: Option<String>,
    pub log_dropped_bytes: i64,
    pub usage: Option<Value>,
}

impl TestDb {
    /// Uploads the edge guest tests/wat/NAME.wat under its own name.
    pub async fn push_wat(&self, guest: &str) {
        self.push(Upload::component(guest, &guests::core(guest))).await;
    }

    /// A module that no test runs: what the queue does does not depend on its code.
    pub async fn push_nothing(&self, name: &str) {
        self.push(Upload::command(name, b"\0asm\x01\0\0\0")).await;
    }

    /// Answers the version.
    pub async fn push(&self, upload: Upload<'_>) -> i32 {
        let Upload { name, tenant, kind, bytes, limits, grants, on_failure, activate } = upload;
        let new = NewVersion {
            tenant,
            name,
            kind,
            bytes,
            limits,
            grants,
            on_failure,
            imports: &[],
            activate,
            retry: Default::default(),
        };
        self.store().push_module(&new).await.unwrap_or_else(|error| panic!("{error:#}")).version
    }

    /// `db.enqueue("'echo', '{}', priority => 5")`
    pub async fn enqueue(&self, arguments: &str) -> JobId {
        JobId(self.value(&format!("select leasehold.enqueue({arguments})")).await)
    }

    /// So many jobs of a module with the payloads 1, 2, 3...
    pub async fn enqueue_many(&self, module: &str, count: usize) -> Vec<JobId> {
        let sql = format!(
            "select leasehold.enqueue_many('{module}', array(select to_jsonb(n) from generate_series(1, {count}) n order by n))"
        );
        self.column(&sql).await.into_iter().map(JobId).collect()
    }

    /// Another worker that claims, with a memory of its own.
    pub async fn claimer(&self) -> Claimer {
        Claimer::new(self.store().clone(), &["default"]).await
    }

    async fn own_claimer(&self) -> &Claimer {
        self.claimer.get_or_init(|| self.claimer()).await
    }

    /// The worker that the short verbs claim and settle as.
    pub async fn worker_id(&self) -> WorkerId {
        self.own_claimer().await.id
    }

    /// As a worker that looks at the whole queue.
    pub async fn claim(&self, limit: usize) -> Vec<ClaimedJob> {
        let claimer = self.own_claimer().await;
        claimer.claim_within(limit, LONG_LEASE, &Bounds::default()).await.jobs
    }

    pub async fn claim_one(&self) -> ClaimedJob {
        self.claim(1).await.pop().expect("there is a job to claim")
    }

    /// What a worker does with a job of this module up to where it would run.
    pub async fn enqueue_and_claim(&self, module: &str) -> ClaimedJob {
        let id = self.enqueue(&format!("'{module}'")).await;
        let job = self.claim_one().await;
        assert_eq!(job.id, id, "another job was waiting");
        job
    }

    pub async fn complete(&self, job: ClaimedJob) -> Settled {
        self.settle(&job, Settlement::Complete { result: b"null".to_vec() }).await
    }

    /// Asks for another attempt at once.
    pub async fn fail(&self, job: ClaimedJob) -> Settled {
        self.settle(&job, Settlement::Fail { failure: trap("it failed"), delay: Duration::ZERO }).await
    }

    pub async fn bury(&self, job: ClaimedJob) -> Settled {
        self.settle(&job, Settlement::Bury { failure: trap("it is hopeless") }).await
    }

    pub async fn snooze(&self, job: ClaimedJob) -> Settled {
        self.settle(&job, Settlement::Snooze { delay: Duration::ZERO }).await
    }

    /// As a drain does.
    pub async fn release(&self, job: ClaimedJob) -> Settled {
        self.settle(&job, Settlement::Release { fault: None, delay: Duration::ZERO }).await
    }

    /// As after a fault of the worker's own.
    pub async fn release_after_a_fault(&self, job: ClaimedJob) -> Settled {
        let fault = Failure { kind: FailureKind::Host, ..trap("the worker's disk is full") };
        self.settle(&job, Settlement::Release { fault: Some(fault), delay: Duration::ZERO }).await
    }

    pub async fn finish_cancel(&self, job: ClaimedJob) -> Settled {
        self.settle(&job, Settlement::FinishCancel).await
    }

    pub async fn settle(&self, job: &ClaimedJob, settlement: Settlement) -> Settled {
        let answers = self.settle_all(vec![report(job, settlement)]).await;
        answers[0]
    }

    /// As the settler does, in one batch a kind. Answers in the order of the batches.
    pub async fn settle_all(&self, reports: Vec<Report>) -> Vec<Settled> {
        let mut answers = Vec::new();
        for batch in Batch::sort(reports) {
            let answered = self.store().settle(self.worker_id().await, &batch).await;
            answers.extend(answered.unwrap_or_else(|error| panic!("{error:#}")));
        }
        answers
    }

    /// Answers the state after it: cancelled, running (asked to stop), or the end it had reached.
    pub async fn cancel(&self, id: JobId) -> String {
        self.value(&format!("select leasehold.cancel({id})::text")).await
    }

    pub async fn redrive(&self, id: JobId) -> bool {
        self.value(&format!("select leasehold.redrive({id})")).await
    }

    /// Makes the lease of a claimed job one that ran out a second ago.
    pub async fn expire_lease(&self, id: JobId) {
        let expire = "update leasehold.claims set locked_until = clock_timestamp() - interval '1 second'
                       where claim_id = (select claim_id from leasehold.live_jobs where id = $1)";
        let expired = self.client().execute(expire, &[&id.0]).await.expect("a claimed job has a lease");
        assert_eq!(expired, 1, "job {id} has no lease");
    }

    pub async fn reap(&self) -> Vec<Reaped> {
        self.store().reap().await.unwrap_or_else(|error| panic!("{error:#}"))
    }

    pub async fn job(&self, id: JobId) -> Job {
        self.find_job(id).await.unwrap_or_else(|| panic!("there is no job {id}"))
    }

    pub async fn find_job(&self, id: JobId) -> Option<Job> {
        let sql = "select *, state::text as state_name, case when isfinite(run_at) then extract(epoch from run_at - clock_timestamp())::float8 * 1000
                                                        else 'infinity' end as due_in_ms
                     from leasehold.jobs where id = $1";
        let rows = self.rows(sql, &[&id.0]).await;
        assert!(rows.len() <= 1, "job {id} is there {} times", rows.len());
        rows.first().map(|row| Job {
            id,
            state: row.get("state_name"),
            attempt: row.get("attempt"),
            max_attempts: row.get("max_attempts"),
            lease_no: row.get("lease_no"),
            crash_count: row.get("crash_count"),
            version: row.get("version"),
            cancel_requested: row.get("cancel_requested"),
            failure_kind: row.get("failure_kind"),
            error: row.get("error"),
            result: row.get("result"),
            result_bytes: row.get("result_bytes"),
            usage: row.get("usage"),
            worker_id: row.get("worker_id"),
            due_in_ms: row.get("due_in_ms"),
        })
    }

    pub async fn state(&self, id: JobId) -> String {
        self.job(id).await.state
    }

    /// The runs of a job that left something to tell, in order.
    pub async fn attempts(&self, id: JobId) -> Vec<Attempt> {
        let sql = "select * from leasehold.job_attempts where job_id = $1 order by lease_no, finished_at";
        let rows = self.rows(sql, &[&id.0]).await;
        rows.iter()
            .map(|row| Attempt {
                attempt: row.get("attempt"),
                lease_no: row.get("lease_no"),
                outcome: row.get("outcome"),
                failure_kind: row.get("failure_kind"),
                message: row.get("message"),
                backtrace: row.get("backtrace"),
                log: row.get("log"),
                log_dropped_bytes: row.get("log_dropped_bytes"),
                usage: row.get("usage"),
            })
            .collect()
    }

    /// Waits until a job is in a state; says all about the job when that does not come.
    pub async fn wait_for(&self, id: JobId, state: &str) -> Job {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let job = self.job(id).await;
            if job.state == state {
                return job;
            }
            if Instant::now() > deadline {
                panic!("job {id} is not {state} after {PATIENCE:?}: {job:#?}\n{:#?}", self.attempts(id).await);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until a job has ended, however.
    pub async fn wait_for_end(&self, id: JobId) -> Job {
        self.wait_until(
            &format!("job {id} has ended"),
            &format!("exists (select from leasehold.history where id = {id})"),
        )
        .await;
        self.job(id).await
    }

    /// Waits until a query's only value is true.
    pub async fn wait_until(&self, what: &str, condition: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !self.value::<bool>(&format!("select {condition}")).await {
            assert!(Instant::now() < deadline, "not after {PATIENCE:?}: {what}");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until every transaction that is open now, on the whole server, has ended: what a claimer's bounds wait for.
    pub async fn wait_for_open_transactions(&self) {
        let now: i64 = self.value("select pg_current_xact_id()::text::bigint").await;
        let ended = format!("pg_snapshot_xmin(pg_current_snapshot())::text::bigint > {now}");
        self.wait_until("older transactions have ended", &ended).await;
    }

    /// Waits until so many sessions of this database wait for a lock.
    pub async fn wait_for_blocked(&self, sessions: i64) {
        let condition = format!(
            "(select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock') >= {sessions}"
        );
        self.wait_until(&format!("{sessions} sessions wait for a lock"), &condition).await;
    }
}

/// How often a wait looks. Waiting ends by what it sees, never by how long it took.
pub const POLL: Duration = Duration::from_millis(5);

/// Waits until something that is not in the database becomes true.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not after {PATIENCE:?}: {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Somebody who claims as a worker does: with bounds that it keeps between claims.
pub struct Claimer {
    pub id: WorkerId,
    pub bounds: Bounds,
    store: Store,
    queues: Vec<String>,
}

impl Claimer {
    pub async fn new(store: Store, queues: &[&str]) -> Self {
        let queues: Vec<String> = queues.iter().map(ToString::to_string).collect();
        let id = store.register_worker(&queues, 8).await.unwrap_or_else(|error| panic!("{error:#}"));
        Self { id, bounds: Bounds::default(), store, queues }
    }

    /// Claims from where it left off.
    pub async fn claim(&self, limit: usize) -> Vec<ClaimedJob> {
        loop {
            let claimed = self.claim_within(limit, LONG_LEASE, &self.bounds).await;
            // Where the answer is to look again at once, a worker does.
            if !claimed.jobs.is_empty() || claimed.next_due != Some(Duration::ZERO) {
                return claimed.jobs;
            }
        }
    }

    /// Everything that a claim answers.
    pub async fn claim_within(&self, limit: usize, lease: Duration, bounds: &Bounds) -> Claimed {
        let claimed = self.store.claim(self.id, (&self.queues, false), limit, lease, bounds, None).await;
        claimed.unwrap_or_else(|error| panic!("{error:#}"))
    }

    pub async fn claim_ids(&self, limit: usize) -> Vec<JobId> {
        self.claim(limit).await.iter().map(|job| job.id).collect()
    }

    /// Claims until its bounds are beyond everything that is in the queue by now.
    pub async fn move_on(&self, db: &TestDb) {
        for _ in 0..2 {
            assert!(self.claim(1).await.is_empty(), "there is still something to claim");
            db.wait_for_open_transactions().await;
        }
    }

    pub async fn find_stragglers(&self) -> bool {
        self.store.find_stragglers(&self.bounds).await.unwrap_or_else(|error| panic!("{error:#}"))
    }
}

/// What a slot would report of a run.
pub fn report(job: &ClaimedJob, settlement: Settlement) -> Report {
    Report::unrun(job.id, job.lease_no, settlement)
}

pub fn trap(message: &str) -> Failure {
    Failure { kind: FailureKind::Trap, message: message.into(), backtrace: None, delay: None }
}

/// The sha256 of a module, as lists show it.
pub fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}
