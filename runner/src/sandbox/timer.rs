//! Wakes guests that sleep. tokio's timers count whole milliseconds and round up, so that a guest's sleep of 2 ms took
//! 3.2 ms; a job that waits for 2 ms then holds its slot for half as long again. A thread of the sandbox's own keeps the
//! sleepers in the order of their ends. It waits for the first of them and, while nobody sleeps, for nothing at all.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;

/// Sleeps that end within one grain of each other are woken together, the earlier ones late. It bounds what guests that
/// sleep for a nanosecond, again and again, can make this thread do, and which nobody is charged for.
const GRAIN: Duration = Duration::from_micros(100);

/// The thread that wakes sleepers. Dropping it ends the thread; who still sleeps then is never woken.
pub(super) struct Timer {
    alarm: Alarm,
    thread: Option<JoinHandle<()>>,
}

/// By which sleepers reach the thread. Cheap to clone.
#[derive(Clone)]
pub(super) struct Alarm(Arc<Shared>);

struct Shared {
    /// Grains are counted from here.
    started: Instant,
    queue: Mutex<Queue>,
    /// Rung when the thread would wait for too long: somebody sleeps for less than the others, or it shall end.
    changed: Condvar,
}

/// A run has no more sleepers than a guest may hold handles, since a handle can be waited for once at a time.
#[derive(Default)]
struct Queue {
    sleepers: BTreeMap<Key, Waker>,
    last_id: u64,
    ended: bool,
}

/// When to wake, and a number of its own for each sleeper.
type Key = (Instant, u64);

impl Timer {
    pub fn start() -> anyhow::Result<Self> {
        let shared = Shared { started: Instant::now(), queue: Mutex::default(), changed: Condvar::new() };
        let alarm = Alarm(Arc::new(shared));
        let shared = Arc::clone(&alarm.0);
        let thread = thread::Builder::new()
            .name("guest-timer".into())
            .spawn(move || shared.wake_sleepers())
            .context("starting the thread that wakes sleeping guests")?;
        Ok(Self { alarm, thread: Some(thread) })
    }

    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.alarm.0.lock().ended = true;
        self.alarm.0.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // Its loop cannot panic, and there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl Alarm {
    /// Resolves at `end` or a little later, never earlier. Dropping it leaves nothing behind.
    pub fn sleep_until(&self, end: Instant) -> Sleep {
        Sleep { alarm: self.clone(), end, key: None }
    }
}

impl Shared {
    fn wake_sleepers(&self) {
        let mut due = Vec::new();
        let mut queue = self.lock();
        while !queue.ended {
            let now = Instant::now();
            while let Some(first) = queue.sleepers.first_entry().filter(|first| first.key().0 <= now) {
                due.push(first.remove());
            }
            let wait = queue.sleepers.first_key_value().map(|((at, _), _)| at.saturating_duration_since(now));
            queue = match wait {
                _ if !due.is_empty() => {
                    // Whoever is woken may want the lock at once.
                    drop(queue);
                    due.drain(..).for_each(Waker::wake);
                    self.lock()
                }
                Some(wait) => self.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The end of the grain that an instant lies in; an instant beyond what the clock can count is its own.
    fn end_of_grain(&self, instant: Instant) -> Instant {
        let nanos = instant.saturating_duration_since(self.started).as_nanos();
        let grains = nanos.div_ceil(GRAIN.as_nanos());
        let end = u64::try_from(grains * GRAIN.as_nanos()).ok().map(Duration::from_nanos);
        end.and_then(|end| self.started.checked_add(end)).unwrap_or(instant)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under the lock in a half-changed state.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sleep; it begins when it is first polled.
pub(super) struct Sleep {
    alarm: Alarm,
    end: Instant,
    /// Under which it waits in the queue, once it does.
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.end {
            return Poll::Ready(());
        }
        let shared = Arc::clone(&self.alarm.0);
        let at = self.key.map_or_else(|| shared.end_of_grain(self.end), |(at, _)| at);
        let mut queue = shared.lock();
        let key = *self.key.get_or_insert_with(|| {
            queue.last_id += 1;
            (at, queue.last_id)
        });
        queue.sleepers.insert(key, context.waker().clone());
        if queue.sleepers.first_key_value().is_some_and(|(first, _)| *first == key) {
            drop(queue);
            shared.changed.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.alarm.0.lock().sleepers.remove(&key);
            // A waker's own drop is not ours to run under the lock.
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    use futures_util::future::{join_all, poll_immediate};

    use super::*;

    fn sleepers(timer: &Timer) -> usize {
        timer.alarm().0.lock().sleepers.len()
    }

    #[tokio::test]
    async fn a_sleep_never_ends_early_and_leaves_nothing() {
        let timer = Timer::start().expect("the timer starts");
        for micros in [0, 1, 99, 100, 101, 950, 2_000, 7_777] {
            let end = Instant::now() + Duration::from_micros(micros);
            timer.alarm().sleep_until(end).await;
            assert!(Instant::now() >= end, "a sleep of {micros} us ended early");
            assert_eq!(sleepers(&timer), 0);
        }
    }

    #[tokio::test]
    async fn many_sleepers_wake_each_at_its_own_time() {
        let timer = Timer::start().expect("the timer starts");
        let start = Instant::now();
        let alarm = timer.alarm();
        // In no order, some at the same moment, and each with many behind and before it.
        let sleeps = (0..5_000_u64).map(|n| async move {
            let end = start + Duration::from_micros(n * 7_919 % 40_000);
            alarm.sleep_until(end).await;
            Instant::now().checked_duration_since(end)
        });
        assert!(join_all(sleeps).await.iter().all(Option::is_some), "one ended early");
        assert!(start.elapsed() >= Duration::from_micros(39_000));
        assert_eq!(sleepers(&timer), 0);
    }

    #[tokio::test]
    async fn a_short_sleep_does_not_wait_for_a_long_one() {
        let timer = Timer::start().expect("the timer starts");
        let mut hour = pin!(timer.alarm().sleep_until(Instant::now() + Duration::from_secs(3_600)));
        assert_eq!(poll_immediate(hour.as_mut()).await, None);
        let end = Instant::now() + Duration::from_millis(1);
        // Without a wake-up of the thread this would last for an hour.
        timer.alarm().sleep_until(end).await;
        assert!(Instant::now() >= end);
        assert_eq!(sleepers(&timer), 1, "the long one still sleeps");
    }

    #[tokio::test]
    async fn a_dropped_sleep_leaves_nothing_behind() {
        let timer = Timer::start().expect("the timer starts");
        let far = Instant::now() + Duration::from_secs(3_600);
        let mut sleeps: Vec<_> = (0..100).map(|_| Box::pin(timer.alarm().sleep_until(far))).collect();
        for sleep in &mut sleeps {
            // Twice, since a second poll must not make a second entry.
            assert_eq!(poll_immediate(sleep.as_mut()).await, None);
            assert_eq!(poll_immediate(sleep.as_mut()).await, None);
        }
        assert_eq!(sleepers(&timer), 100);
        sleeps.truncate(40);
        assert_eq!(sleepers(&timer), 40);
        drop(sleeps);
        assert_eq!(sleepers(&timer), 0);
    }

    #[test]
    fn the_last_waker_is_the_one_that_is_woken() {
        #[derive(Default)]
        struct Counted(AtomicUsize);
        impl Wake for Counted {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let timer = Timer::start().expect("the timer starts");
        let (first, second) = (Arc::new(Counted::default()), Arc::new(Counted::default()));
        let mut sleep = pin!(timer.alarm().sleep_until(Instant::now() + Duration::from_millis(20)));
        for counted in [&first, &second] {
            let waker = Waker::from(Arc::clone(counted));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        while second.0.load(SeqCst) == 0 {
            thread::yield_now();
        }
        assert_eq!(first.0.load(SeqCst), 0);
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }

    #[test]
    fn an_idle_timer_waits_for_nothing_and_ends_when_dropped() {
        let timer = Timer::start().expect("the timer starts");
        let mut long = pin!(timer.alarm().sleep_until(Instant::now() + Duration::from_secs(3_600)));
        assert!(long.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        // Joins the thread, which waits for the hour to end.
        drop(timer);
        assert!(long.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn grains_round_up() {
        let timer = Timer::start().expect("the timer starts");
        let shared = &timer.alarm().0;
        let at = |micros| shared.started + Duration::from_micros(micros);
        assert_eq!(shared.end_of_grain(at(0)), at(0));
        assert_eq!(shared.end_of_grain(at(1)), at(100));
        assert_eq!(shared.end_of_grain(at(100)), at(100));
        assert_eq!(shared.end_of_grain(at(2_001)), at(2_100));
        let before = shared.started - Duration::from_secs(1);
        assert!(shared.end_of_grain(before) >= before);
    }
}
