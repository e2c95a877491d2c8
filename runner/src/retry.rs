//! How long a failed job waits before its next attempt: exponential backoff with jitter and a cap. And how far the worker's
//! own timers are spread.

use std::time::Duration;

/// `base * factor^(attempt - 1)`, at most `cap`, then spread by `JITTER` so that jobs which failed together do not come
/// back together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    pub base: Duration,
    pub factor: f64,
    pub cap: Duration,
}

impl RetryPolicy {
    /// The share of the delay that jitter may add or take away.
    pub const JITTER: f64 = 0.2;

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
        let jitter = 1.0 + Self::JITTER * (2.0 * random - 1.0);
        Duration::from_secs_f64(seconds * jitter)
    }
}

impl Default for RetryPolicy {
    /// 5 s, 10 s, 20 s and so on, at most an hour.
    fn default() -> Self {
        Self { base: Duration::from_secs(5), factor: 2.0, cap: Duration::from_secs(3600) }
    }
}

/// Spread by a quarter, so that workers started together do not stay together.
pub fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.75..1.25))
}
