//! The state machine against live workers: some seconds of random enqueuing, cancelling, redriving, killing and draining, and
//! then the whole history of every job, each change of each row in order, is walked through a model that knows which moves
//! there are. A move that the model does not know, a job that is lost, a lease that ended twice: each fails the test.
//!
//! LEASEHOLD_TEST_SEED repeats what was asked for; when the workers get to it is up to the machine.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use leasehold::job::{JobId, Limits};
use leasehold::worker::{Stage, WorkerConfig};
use leasehold_tests::guests::{LIMITS, core, core_from, nap, nap_of};
use leasehold_tests::workers::{TestWorker, WorkerProcess, quick};
use leasehold_tests::{TestDb, Upload};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// How long things are done at random.
const STORM: Duration = Duration::from_secs(6);
/// The most jobs that a storm puts in: what the machine can end within a test's patience.
const JOBS: usize = 600;

/// Records each change of a job's row, in order. A trigger sees the rows as they are written, whoever writes them.
const RECORDER: &str = "
    create table public.moves (seq bigint generated always as identity, id bigint not null, kind text not null, was jsonb, now jsonb);
    create function public.record() returns trigger language plpgsql security definer as $$
    begin
        insert into public.moves (id, kind, was, now)
        values (coalesce(new.id, old.id), (case when tg_table_name like 'history%' then 'history' else 'live' end) || ' ' || lower(tg_op),
                to_jsonb(old) - 'payload' - 'result', to_jsonb(new) - 'payload' - 'result');
        return null;
    end $$;
    create trigger record after insert or update or delete on leasehold.live_jobs for each row execute function public.record();
    create trigger record after insert or update or delete on leasehold.history for each row execute function public.record()";

#[tokio::test]
async fn every_move_of_every_job_is_one_of_the_state_machines() {
    let seed = match std::env::var("LEASEHOLD_TEST_SEED") {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => rand::random::<u64>(),
    };
    eprintln!("LEASEHOLD_TEST_SEED={seed}");
    let db = TestDb::new().await;
    db.sql(RECORDER).await;
    push_modules(&db).await;
    let mut storm = Storm::new(&db, seed).await;
    let end = Instant::now() + STORM;
    while Instant::now() < end {
        storm.one_thing().await;
    }
    let enqueued = storm.calm().await;
    check(&db, &enqueued).await;
}

/// What jobs can do, quickly and with few attempts.
async fn push_modules(db: &TestDb) {
    let limits = Limits { timeout: Duration::from_millis(300), fuel: Limits::MAX_FUEL, ..LIMITS };
    // Whether it snoozes is up to the nanosecond.
    let snooze_or_not = core_from(
        "(import \"wasi_snapshot_preview1\" \"clock_time_get\" (func $clock (param i32 i64 i32) (result i32)))
         (func $run (param $at i32) (param $len i32) (result i32)
           (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 2048)))
           (if (i32.and (i32.shr_u (i32.load (i32.const 2048)) (i32.const 6)) (i32.const 1)) (then (return (call $snooze (i64.const 30)))))
           (call $ok (local.get $at) (local.get $len)))",
    );
    for (name, bytes) in [
        ("echo", core("echo")),
        ("dead", core("dead")),
        ("unreachable", core("unreachable")),
        ("sleep", core("sleep")),
        ("spin", core("spin")),
        ("wait_for_cancel", core("wait_for_cancel")),
        ("nap", nap()),
        ("snooze_or_not", snooze_or_not),
    ] {
        db.push(Upload { limits, ..Upload::component(name, &bytes) }).await;
    }
}

struct Storm<'a> {
    db: &'a TestDb,
    random: StdRng,
    enqueued: Vec<JobId>,
    /// Drained and started anew.
    worker: Option<TestWorker>,
    /// Never touched, so that something always works.
    steady: TestWorker,
    /// Killed and started anew.
    process: WorkerProcess,
}

fn config() -> WorkerConfig {
    // Short, and long enough for a loaded machine not to lose every one.
    WorkerConfig {
        lease: Duration::from_secs(2),
        drain: Duration::from_millis(100),
        cancel_grace: Duration::from_millis(50),
        ..quick()
    }
}

impl<'a> Storm<'a> {
    async fn new(db: &'a TestDb, seed: u64) -> Self {
        let (worker, steady) = (Some(db.worker_with(config())), db.worker_with(config()));
        let process = db.worker_process(&["--lease", "2s"]).await;
        Self { db, random: StdRng::seed_from_u64(seed), enqueued: Vec::new(), worker, steady, process }
    }

    async fn one_thing(&mut self) {
        match self.random.random_range(0..100) {
            0..60 => self.enqueue().await,
            60..75 => self.with_some_job("cancel").await,
            75..85 => self.with_some_job("redrive").await,
            85..88 => {
                // Told to drain or to stop at once, and started again.
                let worker = self.worker.take().expect("there is always one");
                worker.ask(if self.random.random() { Stage::Drain } else { Stage::Interrupt });
                // Its first or its last word to the database may have met a killed session.
                let _ = worker.join().await;
                self.worker = Some(self.db.worker_with(config()));
            }
            88..90 => {
                self.process.kill_9().await;
                self.process = self.db.worker_process(&["--lease", "2s"]).await;
            }
            90..94 => {
                self.db
                    .sql(
                        "select pg_terminate_backend(pid) from pg_stat_activity
                           where application_name = 'leasehold' and datname = current_database() and random() < 0.3",
                    )
                    .await;
            }
            94..97 => {
                let lost = "update leasehold.claims set locked_until = clock_timestamp() where random() < 0.2";
                self.db.sql(lost).await;
            }
            _ => {
                let version = if self.random.random() { "null" } else { "1" };
                self.db.sql(&format!("select leasehold.activate_module('default', 'echo', {version})")).await;
            }
        }
    }

    async fn enqueue(&mut self) {
        if self.enqueued.len() >= JOBS {
            return tokio::time::sleep(Duration::from_millis(5)).await; // nothing more to put in; time for the others
        }
        let modules =
            ["echo", "echo", "echo", "dead", "unreachable", "sleep", "spin", "wait_for_cancel", "nap", "snooze_or_not"];
        let module = modules[self.random.random_range(0..modules.len())];
        let options = format!(
            "priority => {}, max_attempts => {}, backoff => '20 ms', run_at => now() + {} * interval '1 ms'",
            self.random.random_range(-2..3),
            self.random.random_range(1..4),
            self.random.random_range(0..200),
        );
        let payload = self.random.random_range(0..1000);
        let arguments = if module == "nap" {
            format!("{}, {options}", nap_of(Duration::from_millis(self.random.random_range(0..200))))
        } else {
            format!("'{module}', '{payload}', {options}")
        };
        match self.random.random_range(0..10) {
            // A transaction that rolls back leaves nothing.
            0 => self.db.sql(&format!("begin; select leasehold.enqueue({arguments}); rollback")).await,
            1 => self.enqueued.extend(self.db.enqueue_many("echo", 5).await),
            _ => self.enqueued.push(self.db.enqueue(&arguments).await),
        }
    }

    async fn with_some_job(&mut self, function: &str) {
        if !self.enqueued.is_empty() {
            // Mostly one that is still on its way.
            let recent = if self.random.random_bool(0.8) { self.enqueued.len().min(30) } else { self.enqueued.len() };
            let id = self.enqueued[self.enqueued.len() - 1 - self.random.random_range(0..recent)];
            self.db.rows(&format!("select leasehold.{function}($1)"), &[&id.0]).await;
        }
    }

    /// Lets everything come to its end.
    async fn calm(self) -> BTreeSet<JobId> {
        self.db.sql("select leasehold.activate_module('default', 'echo', 1)").await;
        self.db.wait_until("every job has ended", "not exists (select from leasehold.live_jobs)").await;
        let worker = self.worker.expect("there is always one");
        worker.ask(Stage::Drain);
        let _ = worker.join().await;
        self.steady.drain().await;
        drop(self.process);
        let count = self.enqueued.len();
        let enqueued: BTreeSet<JobId> = self.enqueued.into_iter().collect();
        assert_eq!(enqueued.len(), count, "an id was given out twice");
        enqueued
    }
}

/// What the model knows of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Nowhere,
    Queued,
    Running,
    /// Taken out of the live table, not yet in history.
    Leaving {
        was_running: bool,
    },
    Done,
    Dead,
    Cancelled,
    /// Taken out of history, not yet in the live table.
    Returning,
}

#[derive(Debug, Clone, Copy)]
struct Model {
    state: State,
    attempt: i64,
    lease_no: i64,
    crash_count: i64,
    cancel_requested: bool,
    redrives: u32,
}

struct Move {
    kind: String,
    was: serde_json::Value,
    now: serde_json::Value,
}

impl Model {
    const NEW: Self =
        Self { state: State::Nowhere, attempt: 0, lease_no: 0, crash_count: 0, cancel_requested: false, redrives: 0 };

    /// The job after a move, or None when there is no such move.
    fn after(self, step: &Move) -> Option<Self> {
        let row = if step.now.is_null() { &step.was } else { &step.now };
        let number = |name: &str| row[name].as_i64();
        let (attempt, lease_no, crash_count) = (number("attempt")?, number("lease_no")?, number("crash_count")?);
        let next = Self { attempt, lease_no, crash_count, cancel_requested: row["cancel_requested"] == true, ..self };
        let same_lease = lease_no == self.lease_no;
        let same_counts = same_lease && attempt == self.attempt && crash_count == self.crash_count;
        let crashed_or_not = crash_count == self.crash_count || crash_count == self.crash_count + 1;
        match (step.kind.as_str(), self.state) {
            ("live insert", State::Nowhere) => {
                (lease_no == 0 && attempt == 0 && crash_count == 0).then_some(Self { state: State::Queued, ..next })
            }
            // Redriven: attempts and crashes anew, the lease number goes on.
            ("live insert", State::Returning) => (same_lease && attempt == 0 && crash_count == 0).then_some(Self {
                state: State::Queued,
                redrives: self.redrives + 1,
                ..next
            }),
            ("live update", State::Queued) => {
                // Claimed.
                let claimed = row["running"] == true
                    && lease_no == self.lease_no + 1
                    && attempt == self.attempt + 1
                    && crash_count == self.crash_count;
                // Put into a gate's line, or out of it.
                let waits = row["running"] == false && same_counts && step.was["waits_at"] != step.now["waits_at"];
                if waits { Some(next) } else { claimed.then_some(Self { state: State::Running, ..next }) }
            }
            ("live update", State::Running) if row["running"] == true => {
                // Asked to cancel, or a crash counted on the way to its end.
                let asked = same_counts && next.cancel_requested;
                let counted = same_lease && attempt == self.attempt && crash_count == self.crash_count + 1;
                (asked || counted).then_some(next)
            }
            ("live update", State::Running) => {
                // Failed or reaped, the attempt counted; snoozed or released, the attempt given back. Never once it was asked to cancel.
                let back = same_lease
                    && (attempt == self.attempt || attempt == self.attempt - 1)
                    && crashed_or_not
                    && !self.cancel_requested;
                back.then_some(Self { state: State::Queued, ..next })
            }
            ("live delete", State::Queued | State::Running) => same_counts
                .then_some(Self { state: State::Leaving { was_running: self.state == State::Running }, ..next }),
            ("history insert", State::Leaving { was_running }) => {
                let state = match row["state"].as_str()? {
                    "done" if was_running => State::Done,
                    "dead" if was_running => State::Dead,
                    "cancelled" => State::Cancelled,
                    _no_such_end => return None,
                };
                (same_lease && attempt == self.attempt && crash_count == self.crash_count)
                    .then_some(Self { state, ..next })
            }
            ("history delete", State::Dead | State::Cancelled) => {
                same_counts.then_some(Self { state: State::Returning, ..next })
            }
            _no_such_move => None,
        }
    }
}

async fn check(db: &TestDb, enqueued: &BTreeSet<JobId>) {
    let mut histories: BTreeMap<JobId, Vec<Move>> = BTreeMap::new();
    for row in db.rows("select id, kind, was, now from public.moves order by seq", &[]).await {
        let step = Move {
            kind: row.get("kind"),
            was: row.get::<_, Option<serde_json::Value>>("was").unwrap_or_default(),
            now: row.get::<_, Option<serde_json::Value>>("now").unwrap_or_default(),
        };
        histories.entry(JobId(row.get("id"))).or_default().push(step);
    }
    assert_eq!(
        histories.keys().copied().collect::<BTreeSet<_>>(),
        *enqueued,
        "what was committed is there, what was rolled back is not"
    );
    let (mut ends, mut leases, mut redrives) = (BTreeMap::<String, u32>::new(), 0, 0);
    for (id, steps) in &histories {
        let mut job = Model::NEW;
        for (n, step) in steps.iter().enumerate() {
            let told =
                || steps[..=n].iter().map(|s| format!("{}: {} -> {}\n", s.kind, s.was, s.now)).collect::<String>();
            job = job.after(step).unwrap_or_else(|| panic!("job {id}: no such move from {job:?}:\n{}", told()));
        }
        let shown = db.job(*id).await;
        let state = match job.state {
            State::Done => "done",
            State::Dead => "dead",
            State::Cancelled => "cancelled",
            other => panic!("job {id} ended as {other:?}"),
        };
        assert_eq!((shown.state.as_str(), i64::from(shown.lease_no)), (state, job.lease_no), "job {id}");
        // One record at most for each lease, and one for the end that was a failure.
        let attempts = db.attempts(*id).await;
        let mut numbers: Vec<_> = attempts.iter().map(|attempt| i64::from(attempt.lease_no)).collect();
        let count = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "job {id}: a lease with two records: {attempts:#?}");
        assert!(numbers.iter().all(|number| (1..=job.lease_no).contains(number)), "job {id}: {attempts:#?}");
        if state == "dead" {
            let last = attempts.last().unwrap_or_else(|| panic!("job {id} died and nobody knows of what"));
            assert_eq!((last.outcome.as_str(), &last.message), ("dead", &shown.error), "job {id}");
        }
        *ends.entry(state.to_owned()).or_default() += 1;
        leases += job.lease_no;
        redrives += job.redrives;
    }
    // Of modules that return their payload, no job has another's.
    let mixed: Vec<i64> =
        db.column("select id from leasehold.history where result is not null and result <> payload").await;
    assert_eq!(mixed, [0; 0]);
    assert_eq!(
        db.value::<i64>("select count(*) from leasehold.history").await,
        i64::try_from(enqueued.len()).expect("a count")
    );
    eprintln!("{} jobs under {leases} leases, {redrives} redriven: {ends:?}", enqueued.len());
}
