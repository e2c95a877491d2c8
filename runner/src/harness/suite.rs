//! All cases of a module, several at once. A case that met a limit which it was not expected to meet is run once more with
//! more of it, so that its author learns the number that would have been enough.

use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::case::{Case, Expected, load};
use super::check::{Problem, check, update};
use super::{Advice, Harness, Job, Tried, advice};
use crate::job::Limits;
use crate::outcome::FailureKind;
use crate::sandbox::RunControl;

/// How many times the limit that a case met it gets in its second run.
const MORE: u64 = 100;
/// How long a second run may take.
const MORE_TIME: Duration = Duration::from_secs(20);

/// How cases are run.
#[derive(Debug, Clone, Default)]
pub struct TestOptions {
    /// Only cases with this in their name.
    pub filter: Option<String>,
    /// How many at once; None: one a core. At most as many as the harness has slots.
    pub jobs: Option<u32>,
    /// Writes results that differ into the files that they were compared with.
    pub update: bool,
}

/// What became of a case.
#[derive(Debug, Clone)]
pub struct CaseReport {
    pub case: Case,
    pub tried: Tried,
    /// What is not as expected; empty when it has passed.
    pub problems: Vec<Problem>,
    /// The result's file was written.
    pub updated: bool,
    /// The same run with more of the limit that it met.
    pub with_more: Option<Tried>,
}

impl CaseReport {
    pub fn passed(&self) -> bool {
        self.problems.is_empty()
    }

    /// The run that says what the case uses.
    pub fn fullest(&self) -> &Tried {
        self.with_more.as_ref().unwrap_or(&self.tried)
    }

    /// What a second run with more of the limit showed.
    pub fn would_suffice(&self) -> Option<String> {
        let more = self.with_more.as_ref()?;
        let kind = self.tried.failure()?.kind;
        if more.failure().is_some_and(|failure| failure.kind == kind) {
            return Some(format!("with much more of it, it ends no better: {}", more.in_short()));
        }
        let usage = &more.run.usage;
        let needed = match kind {
            FailureKind::Fuel => format!("{} fuel", usage.fuel),
            FailureKind::Memory => format!("{} bytes of memory", usage.memory_peak_bytes),
            FailureKind::Timeout => humantime::format_duration(whole_millis(usage.wall)).to_string(),
            _ => format!("a result of {} bytes", usage.result_bytes),
        };
        Some(format!("it would have been enough: {needed} (then {})", more.in_short()))
    }
}

fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).saturating_add(1))
}

/// What became of all cases, in the order of their names.
#[derive(Debug, Clone)]
pub struct Report {
    pub module: String,
    pub cases: Vec<CaseReport>,
    pub took: Duration,
}

impl Report {
    pub fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.passed()).count()
    }

    /// Limits that would do for all of them.
    pub fn advice(&self) -> Advice {
        advice(self.cases.iter().map(|case| &case.fullest().run.usage))
    }

    /// For a test in Rust.
    ///
    /// # Panics
    /// When a case has not passed, with all that was not as expected.
    #[track_caller]
    pub fn assert_passed(&self) {
        let failed: Vec<_> = self.cases.iter().filter(|case| !case.passed()).collect();
        let told = failed.iter().map(|report| {
            let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
            format!("{}:\n{}", report.case.name, problems.join("\n"))
        });
        let told = told.collect::<Vec<_>>().join("\n\n");
        assert!(failed.is_empty(), "{} of {} cases have not passed\n\n{told}", failed.len(), self.cases.len());
    }
}

impl Harness {
    /// Runs all cases of a folder. Not to be called by a task of tokio, which may call `run_cases`.
    ///
    /// # Errors
    /// All that is wrong with the case files.
    pub fn test(&self, cases: impl AsRef<Path>) -> anyhow::Result<Report> {
        let cases = load(cases.as_ref(), &Limits::default()).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            anyhow::anyhow!("{}", lines.join("\n"))
        })?;
        self.test_cases(cases, &TestOptions::default())
    }

    /// The same of cases that were read before.
    pub fn test_cases(&self, cases: Vec<Case>, options: &TestOptions) -> anyhow::Result<Report> {
        let jobs = self.jobs(options);
        let threads = usize::try_from(jobs)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("case")
            .enable_all()
            .build()
            .context("starting threads for the cases")?;
        runtime.block_on(self.run_cases(cases, options))
    }

    /// Runs cases as tasks of the tokio runtime that this is called on.
    pub async fn run_cases(&self, cases: Vec<Case>, options: &TestOptions) -> anyhow::Result<Report> {
        let started = Instant::now();
        let slots = Arc::new(Semaphore::new(usize::try_from(self.jobs(options))?));
        let mut running = JoinSet::new();
        let wanted = |case: &Case| options.filter.as_ref().is_none_or(|part| case.name.contains(part.as_str()));
        for case in cases.into_iter().filter(wanted) {
            let (harness, slots, update) = (self.clone(), Arc::clone(&slots), options.update);
            running.spawn(async move {
                let _slot = slots.acquire_owned().await.expect("the semaphore is never closed");
                harness.run_case(case, update).await
            });
        }
        let mut cases = Vec::new();
        while let Some(report) = running.join_next().await {
            cases.push(report.context("running a case")??);
        }
        cases.sort_by(|a: &CaseReport, b| a.case.name.cmp(&b.case.name));
        Ok(Report { module: self.name().to_owned(), cases, took: started.elapsed() })
    }

    fn jobs(&self, options: &TestOptions) -> u32 {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let wanted = options.jobs.unwrap_or_else(|| u32::try_from(cores).unwrap_or(u32::MAX));
        wanted.clamp(1, self.sandbox.config().slots)
    }

    async fn run_case(&self, case: Case, may_update: bool) -> anyhow::Result<CaseReport> {
        let tried = self.run(&case.job, &RunControl::new()).await;
        let mut updated = false;
        if let (true, Some(Expected::Golden(path)), Some(result)) = (may_update, &case.expect.result, tried.result()) {
            updated = update(path, result).with_context(|| format!("updating the result of case {}", case.name))?;
        }
        let problems = check(&case.expect, &tried);
        let with_more = match self.more(&case.job, &tried) {
            Some(job) if !problems.is_empty() => Some(self.run(&job, &RunControl::new()).await),
            Some(_) | None => None,
        };
        Ok(CaseReport { case, tried, problems, updated, with_more })
    }

    /// The same job with more of the limit that it met, if it met one.
    fn more(&self, job: &Job, tried: &Tried) -> Option<Job> {
        let mut limits = job.limits;
        match tried.failure()?.kind {
            FailureKind::Fuel => limits.fuel = limits.fuel.saturating_mul(MORE).min(Limits::MAX_FUEL),
            FailureKind::Memory => {
                limits.memory_bytes = limits.memory_bytes.saturating_mul(MORE).min(self.sandbox.config().memory_bytes);
            }
            FailureKind::Output => {
                limits.result_bytes = limits
                    .result_bytes
                    .saturating_mul(MORE)
                    .clamp(Limits::DEFAULT_RESULT_BYTES, Limits::MAX_RESULT_BYTES);
            }
            FailureKind::Timeout => {}
            _ => return None,
        }
        limits.timeout = limits.timeout.max(MORE_TIME);
        (limits != job.limits).then(|| Job { limits, ..job.clone() })
    }
}
