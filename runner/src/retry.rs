//! How long a failed job waits before its next attempt: exponential backoff with jitter and a cap. And how far the worker's
//! own timers are spread.

use std::time::Duration;

/// `base * factor^(attempt - 1)`, at most `cap`, then spread by `jitter` so that jobs which failed together do not come
/// back together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    pub base: Duration,
    pub factor: f64,
    pub cap: Duration,
    /// The share of the delay that chance may add or take away.
    pub jitter: f64,
}

impl RetryPolicy {
    /// The delay after attempt number `attempt` failed (counted from 1). `random` lies in 0.0..1.0: 0.5 means no jitter.
    ///
    /// ```
    /// use leasehold::retry::RetryPolicy;
    /// use std::time::Duration;
    /// let policy = RetryPolicy::default();
    /// assert_eq!(policy.delay(1, 0.5), Duration::from_secs(5));
    /// assert_eq!(policy.delay(2, 0.5), Duration::from_secs(10));
    /// assert_eq!(policy.delay(10, 0.5), Duration::from_secs(2560));
    /// assert_eq!(policy.delay(11, 0.5), Duration::from_secs(3600));
    /// assert_eq!(policy.delay(u32::MAX, 0.5), Duration::from_secs(3600));
    /// assert_eq!(policy.delay(1, 0.0), Duration::from_secs(4));
    /// ```
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        // f64 saturates at infinity, which the cap then catches.
        let seconds = (self.base.as_secs_f64() * self.factor.powi(exponent)).min(self.cap.as_secs_f64());
        let jitter = 1.0 + self.jitter * (2.0 * random - 1.0);
        Duration::from_secs_f64(seconds * jitter)
    }
}

impl Default for RetryPolicy {
    /// 5 s, 10 s, 20 s and so on, at most an hour, spread by a fifth.
    fn default() -> Self {
        Self { base: Duration::from_secs(5), factor: 2.0, cap: Duration::from_secs(3600), jitter: 0.2 }
    }
}

/// What a module, or a job, says of its retries; None leaves it to the other, or to the default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RetrySettings {
    pub base: Option<Duration>,
    pub factor: Option<f64>,
    pub cap: Option<Duration>,
    pub jitter: Option<f64>,
    pub max_attempts: Option<i32>,
}

impl RetrySettings {
    /// These settings where they say something, else those of `other`, else the default.
    pub fn policy_or(&self, other: &Self) -> RetryPolicy {
        let default = RetryPolicy::default();
        RetryPolicy {
            base: self.base.or(other.base).unwrap_or(default.base),
            factor: self.factor.or(other.factor).unwrap_or(default.factor),
            cap: self.cap.or(other.cap).unwrap_or(default.cap),
            jitter: self.jitter.or(other.jitter).unwrap_or(default.jitter),
        }
    }

    /// The ranges that `leasehold.enqueue` holds a job to.
    pub fn validate(&self) -> anyhow::Result<()> {
        const YEAR: Duration = Duration::from_secs(366 * 86_400);
        const DAY: Duration = Duration::from_secs(86_400);
        anyhow::ensure!(self.base.is_none_or(|base| base <= DAY), "backoff is over a day");
        anyhow::ensure!(self.cap.is_none_or(|cap| cap <= YEAR), "backoff cap is over 366 days");
        let factor = self.factor.unwrap_or(1.0);
        anyhow::ensure!((1.0..=100.0).contains(&factor), "backoff factor {factor} is outside 1 to 100");
        let jitter = self.jitter.unwrap_or(0.0);
        anyhow::ensure!((0.0..=1.0).contains(&jitter), "backoff jitter {jitter} is outside 0 to 1");
        let attempts = self.max_attempts.unwrap_or(1);
        anyhow::ensure!((1..=1000).contains(&attempts), "max attempts {attempts} is outside 1 to 1000");
        Ok(())
    }
}

/// Spread by a quarter, so that workers started together do not stay together.
pub fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.75..1.25))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jobs_own_word_wins_over_its_modules() {
        let module = RetrySettings { factor: Some(3.0), jitter: Some(0.0), ..Default::default() };
        let job = RetrySettings { base: Some(Duration::from_secs(1)), factor: Some(1.0), ..Default::default() };
        let policy = job.policy_or(&module);
        assert_eq!((policy.base, policy.factor, policy.jitter), (Duration::from_secs(1), 1.0, 0.0));
        assert_eq!(policy.cap, RetryPolicy::default().cap);
        assert_eq!(
            policy.delay(9, 0.9),
            Duration::from_secs(1),
            "a factor of 1 never grows, jitter of 0 never spreads"
        );
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let refused = RetrySettings { factor: Some(0.5), ..Default::default() }.validate().expect_err("below 1");
        assert_eq!(refused.to_string(), "backoff factor 0.5 is outside 1 to 100");
        assert!(RetrySettings { jitter: Some(f64::NAN), ..Default::default() }.validate().is_err());
    }
}
