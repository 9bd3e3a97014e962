//! Asking again: jittered exponential delays, with or without an end. The only place that knows how delays are drawn.

use std::{future::Future, time::Duration};

use backoff::{ExponentialBackoff, ExponentialBackoffBuilder, backoff::Backoff};
use tokio::time::Instant;

use crate::{error::Cause, ids::random_u32};

/// Longest delay that an answer's `Retry-After` can impose.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// How long to wait before asking again. Delays double from the first to the longest, each drawn at random from half to
/// one and a half times its length, so that callers that failed together do not return together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryDelays {
    /// The first delay, before jitter.
    pub first: Duration,
    /// The longest delay, before jitter.
    pub longest: Duration,
}

impl Default for RetryDelays {
    fn default() -> Self {
        Self { first: Duration::from_millis(50), longest: Duration::from_secs(5) }
    }
}

impl RetryDelays {
    fn start(self) -> ExponentialBackoff {
        ExponentialBackoffBuilder::new()
            .with_initial_interval(self.first)
            .with_max_interval(self.longest)
            // The jitter is ours: see `jittered`.
            .with_randomization_factor(0.0)
            .with_multiplier(2.0)
            .with_max_elapsed_time(None)
            .build()
    }
}

/// From half to one and a half times the delay. Drawn as ids are, so that a simulation can set the seed; `backoff` brings a
/// generator that asks the kernel itself.
fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(0.5 + f64::from(random_u32()) / f64::from(u32::MAX))
}

/// When to stop asking.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// Never: what was decided must be carried out.
    Never,
    /// At this instant.
    Until(Instant),
}

impl Limit {
    /// The limit that ends first.
    pub(crate) fn earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::Never, limit) | (limit, Self::Never) => limit,
            (Self::Until(a), Self::Until(b)) => Self::Until(a.min(b)),
        }
    }

    /// How long one attempt may take under this limit, if `longest` is its own bound.
    pub(crate) fn attempt_timeout(self, longest: Duration) -> Duration {
        match self {
            Self::Never => longest,
            Self::Until(end) => longest.min(end.saturating_duration_since(Instant::now())),
        }
    }
}

/// What one attempt came to.
pub(crate) enum Attempt<T, E> {
    /// It is settled, for better or worse.
    Settled(Result<T, E>),
    /// It must be asked again, not before `after` if given.
    Again {
        /// The least delay, if the other side named one.
        after: Option<Duration>,
        /// Why.
        cause: Cause,
    },
}

/// Why a repeated call ended without success.
pub(crate) enum Ended<E> {
    /// With a definite error.
    Failed(E),
    /// The limit was reached.
    GaveUp {
        /// How often it was tried.
        attempts: u64,
        /// What went wrong last.
        cause: Cause,
    },
}

/// Repeats `attempt` until it settles or the limit is reached.
pub(crate) async fn until_settled<T, E, F, Fut>(
    call: &'static str,
    delays: RetryDelays,
    limit: Limit,
    mut attempt: F,
) -> Result<T, Ended<E>>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Attempt<T, E>>,
{
    let mut retrier = Retrier::new(call, delays, limit);
    loop {
        match attempt().await {
            Attempt::Settled(result) => return result.map_err(Ended::Failed),
            Attempt::Again { after, cause } => retrier.pause(after, cause).await?,
        }
    }
}

/// The pauses between the attempts of one call.
pub(crate) struct Retrier {
    call: &'static str,
    backoff: ExponentialBackoff,
    longest: Duration,
    limit: Limit,
    attempts: u64,
}

impl Retrier {
    pub(crate) fn new(call: &'static str, delays: RetryDelays, limit: Limit) -> Self {
        Self { call, backoff: delays.start(), longest: delays.longest, limit, attempts: 0 }
    }

    /// Waits before the next attempt, or gives up if that would be past the limit.
    pub(crate) async fn pause<E>(&mut self, after: Option<Duration>, cause: Cause) -> Result<(), Ended<E>> {
        self.attempts = self.attempts.saturating_add(1);
        let drawn = jittered(self.backoff.next_backoff().unwrap_or(self.longest));
        let wake = Instant::now() + drawn.max(after.unwrap_or_default().min(MAX_RETRY_AFTER));
        if let Limit::Until(end) = self.limit
            && wake >= end
        {
            return Err(Ended::GaveUp { attempts: self.attempts, cause });
        }
        note_retry(self.call, self.limit, self.attempts, &cause);
        tokio::time::sleep_until(wake).await;
        Ok(())
    }
}

fn note_retry(call: &'static str, limit: Limit, attempts: u64, cause: &Cause) {
    metrics::counter!("ratified_sdk_retries_total", "call" => call).increment(1);
    // Powers of two: an outage of hours must not fill the log.
    if matches!(limit, Limit::Never) && attempts.is_power_of_two() {
        tracing::warn!(call, attempts, %cause, "asking again, without an end");
    } else {
        tracing::debug!(call, attempts, %cause, "asking again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: RetryDelays = RetryDelays { first: Duration::from_millis(10), longest: Duration::from_millis(80) };

    fn again<T>(after: Option<Duration>) -> Attempt<T, ()> {
        Attempt::Again { after, cause: Cause::new("not yet") }
    }

    #[test]
    fn delays_grow_to_the_longest_and_stay_within_their_jitter() {
        let mut backoff = DELAYS.start();
        for expected_ms in [10.0, 20.0, 40.0, 80.0, 80.0, 80.0] {
            let drawn_ms = jittered(backoff.next_backoff().unwrap()).as_secs_f64() * 1000.0;
            assert!((expected_ms * 0.5 - 1.0..=expected_ms * 1.5 + 1.0).contains(&drawn_ms), "{drawn_ms}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_limit_it_goes_on_until_it_settles() {
        let mut left = 1000;
        let result = until_settled("test", DELAYS, Limit::Never, || {
            left -= 1;
            let settled = left == 0;
            async move { if settled { Attempt::Settled(Ok::<_, ()>(7)) } else { again(None) } }
        });
        assert!(matches!(result.await, Ok(7)));
        assert_eq!(left, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_limit_it_gives_up_and_says_how_often_it_asked() {
        let limit = Limit::Until(Instant::now() + Duration::from_secs(1));
        let mut sent = 0;
        let result = until_settled("test", DELAYS, limit, || {
            sent += 1;
            async { again::<()>(None) }
        });
        let Err(Ended::GaveUp { attempts, cause }) = result.await else { panic!("must give up") };
        assert_eq!(attempts, sent);
        assert!(attempts > 5, "{attempts}");
        assert_eq!(cause.to_string(), "not yet");
    }

    #[tokio::test(start_paused = true)]
    async fn a_named_delay_is_kept_and_bounded() {
        for (named, least, most) in [(30, 30, 31), (100_000, 300, 301)] {
            let start = Instant::now();
            let mut first = true;
            let result = until_settled("test", DELAYS, Limit::Never, || {
                let asked_before = !std::mem::take(&mut first);
                async move {
                    if asked_before {
                        Attempt::Settled(Ok::<_, ()>(()))
                    } else {
                        again(Some(Duration::from_secs(named)))
                    }
                }
            });
            assert!(result.await.is_ok());
            let waited = start.elapsed().as_secs();
            assert!((least..=most).contains(&waited), "{named}: {waited}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_definite_error_ends_it_at_once() {
        let result = until_settled("test", DELAYS, Limit::Never, || async { Attempt::Settled(Err::<(), _>(5)) });
        assert!(matches!(result.await, Err(Ended::Failed(5))));
    }
}
