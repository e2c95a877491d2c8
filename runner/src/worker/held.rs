//! What this worker holds: the jobs from their claim until their settlement is answered, and the claims they came with.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::job::JobId;
use crate::outcome::Stop;
use crate::sandbox::RunControl;

#[derive(Default)]
pub struct Held(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    jobs: HashMap<JobId, HeldJob>,
    claims: HashMap<i64, OpenClaim>,
    /// Claims whose jobs are all settled: the next heartbeat deletes them.
    closed: Vec<i64>,
    /// Jobs whose runs have ended and left something in the database that goes with them.
    ended: Vec<JobId>,
}

#[derive(Default)]
struct OpenClaim {
    /// How many of its jobs are not settled yet.
    jobs: usize,
    /// Whether one of its jobs could not be settled. Such a claim is left to run out: deleted, nobody would reap that job.
    forsaken: bool,
}

struct HeldJob {
    claim_id: i64,
    lease_no: i32,
    control: RunControl,
}

/// What a heartbeat sends.
pub struct Snapshot {
    pub claims: Vec<i64>,
    pub closed: Vec<i64>,
    pub jobs: Vec<(JobId, i32)>,
}

impl Held {
    pub fn add(&self, claim_id: i64, jobs: impl Iterator<Item = (JobId, i32, RunControl)>) {
        let mut inner = self.inner();
        for (id, lease_no, control) in jobs {
            inner.claims.entry(claim_id).or_default().jobs += 1;
            // It came back to this very worker before the old run was over, so that run is a lost one.
            if let Some(old) = inner.jobs.insert(id, HeldJob { claim_id, lease_no, control }) {
                old.control.stop(Stop::LeaseLost);
                inner.note_end(id, &old.control);
                inner.close_one(old.claim_id);
            }
        }
    }

    /// Forgets jobs that were settled, or lost, each with the lease number it was held under.
    pub fn remove(&self, jobs: impl Iterator<Item = (JobId, i32)>) {
        let mut inner = self.inner();
        for (id, lease_no) in jobs {
            // A job that came back to this very worker is held under a newer number, and stays.
            if inner.jobs.get(&id).is_none_or(|held| held.lease_no != lease_no) {
                continue;
            }
            let held = inner.jobs.remove(&id).expect("just seen");
            inner.note_end(id, &held.control);
            inner.close_one(held.claim_id);
        }
    }

    /// Forgets a job that is not settled and cannot be: its lease runs out, and it is reaped.
    pub fn forsake(&self, id: JobId, lease_no: i32) {
        {
            let mut inner = self.inner();
            let Some(claim_id) = inner.jobs.get(&id).map(|held| held.claim_id) else { return };
            inner.claims.get_mut(&claim_id).expect("a held job's claim is open").forsaken = true;
        }
        self.remove([(id, lease_no)].into_iter());
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut inner = self.inner();
        Snapshot {
            claims: inner.claims.keys().copied().collect(),
            closed: std::mem::take(&mut inner.closed),
            jobs: inner.jobs.iter().map(|(id, held)| (*id, held.lease_no)).collect(),
        }
    }

    /// Puts back closed claims that a failed heartbeat could not delete.
    pub fn still_closed(&self, closed: Vec<i64>) {
        self.inner().closed.extend(closed);
    }

    /// All claims of this worker that the database may still have.
    pub fn known_claims(&self) -> Vec<i64> {
        let inner = self.inner();
        inner.claims.keys().chain(&inner.closed).copied().collect()
    }

    /// All runs of now.
    pub fn runs(&self) -> Vec<(JobId, i32, RunControl)> {
        self.inner().jobs.iter().map(|(id, held)| (*id, held.lease_no, held.control.clone())).collect()
    }

    pub fn take_ended(&self) -> Vec<JobId> {
        std::mem::take(&mut self.inner().ended)
    }

    /// Puts back what could not be dropped.
    pub fn still_ended(&self, ended: Vec<JobId>) {
        self.inner().ended.extend(ended);
    }

    pub fn take_closed(&self) -> Vec<i64> {
        std::mem::take(&mut self.inner().closed)
    }

    /// Moves the end of the runs that a heartbeat has extended.
    pub fn extend(&self, jobs: &[(JobId, i32)], stop_at: Instant) {
        let inner = self.inner();
        for (id, lease_no) in jobs {
            if let Some(held) = inner.jobs.get(id).filter(|held| held.lease_no == *lease_no) {
                held.control.stop_at(stop_at);
            }
        }
    }

    /// The handle of a job that was asked to cancel, the first time it is asked for.
    pub fn cancel(&self, (id, lease_no): (JobId, i32)) -> Option<RunControl> {
        let control = self.inner().jobs.get(&id).filter(|held| held.lease_no == lease_no)?.control.clone();
        if control.cancel_requested() {
            return None;
        }
        control.request_cancel();
        Some(control)
    }

    pub fn stop(&self, (id, lease_no): (JobId, i32), stop: Stop) {
        if let Some(held) = self.inner().jobs.get(&id).filter(|held| held.lease_no == lease_no) {
            held.control.stop(stop);
        }
    }

    pub fn stop_all(&self, stop: Stop) {
        self.inner().jobs.values().for_each(|held| held.control.stop(stop));
    }

    pub fn holds(&self, id: JobId) -> bool {
        self.inner().jobs.contains_key(&id)
    }

    pub fn running(&self) -> usize {
        self.inner().jobs.len()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nobody panics while holding it")
    }
}

impl Inner {
    fn note_end(&mut self, id: JobId, control: &RunControl) {
        if control.notes().left_something() {
            self.ended.push(id);
        }
    }

    fn close_one(&mut self, claim_id: i64) {
        let open = self.claims.get_mut(&claim_id).expect("a held job's claim is open");
        open.jobs -= 1;
        if open.jobs == 0 {
            let forsaken = open.forsaken;
            self.claims.remove(&claim_id);
            if !forsaken {
                self.closed.push(claim_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_closes_with_its_last_job_and_a_newer_lease_stays() {
        let held = Held::default();
        let job = |id, lease_no| (JobId(id), lease_no, RunControl::new());
        held.add(7, [job(1, 1), job(2, 1)].into_iter());
        held.remove([(JobId(1), 1)].into_iter());
        assert!(held.take_closed().is_empty());
        held.add(8, [job(2, 2)].into_iter());
        held.remove([(JobId(2), 1)].into_iter());
        assert!(held.holds(JobId(2)), "held under lease number 2 by now");
        held.remove([(JobId(2), 2)].into_iter());
        assert_eq!(held.take_closed(), [7, 8]);
    }

    #[test]
    fn a_claim_with_a_forsaken_job_is_never_closed() {
        let held = Held::default();
        let job = |id, lease_no| (JobId(id), lease_no, RunControl::new());
        held.add(7, [job(1, 1), job(2, 1)].into_iter());
        held.forsake(JobId(1), 1);
        assert_eq!(held.snapshot().claims, [7], "the other one still needs it");
        held.remove([(JobId(2), 1)].into_iter());
        assert!(held.snapshot().claims.is_empty() && held.take_closed().is_empty());
    }
}
