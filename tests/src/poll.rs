//! Waiting for something that can be observed. Nothing in these tests sleeps and hopes.

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// How long anything may take before the test gives up. Generous: it is never waited out on the good path.
pub const PATIENCE: Duration = Duration::from_secs(60);

const STEP: Duration = Duration::from_millis(2);

/// Asks again and again until there is an answer.
///
/// # Panics
/// When [`PATIENCE`] is over; `what` says what was waited for.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(Instant::now() < end, "waited {PATIENCE:?} in vain: {what}");
        tokio::time::sleep(STEP).await;
    }
}

/// As [`until`], for something that is looked at without waiting.
///
/// # Panics
/// When [`PATIENCE`] is over.
pub async fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    until(what, || std::future::ready(look())).await
}
