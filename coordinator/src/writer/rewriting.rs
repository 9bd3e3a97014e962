//! How much is written again in which batch, so that a log stays short: below four times what is there, and its slack.
//!
//! A round begins when the log is three times as long as what is there and half the slack beyond, and frees something. From then on each batch
//! carries a share of what is there, in proportion to its own length, so that the round is done before the bound is met.
//! Over time at most a third of what is written is written again; and who writes nothing rewrites nothing.

use std::sync::Arc;

use crate::store::{StoreStatus, codec::Meta};

/// What is known of a round that has begun.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// The batch that it began with.
    began: u64,
    /// Bytes of keys and values put again so far.
    bytes: u64,
}

/// The share of each batch.
#[derive(Debug, Default)]
pub(super) struct Rewriting {
    status: Arc<StoreStatus>,
    /// Bytes of keys and values that are there, as far as is known: at the load, or in the last round.
    live_bytes: u64,
    /// Records that no batch writes but the first one of a load.
    lasting: Vec<Meta>,
    round: Option<Round>,
}

impl Rewriting {
    /// For a store that tells this of itself and held so many bytes when it was loaded.
    pub(super) fn new(status: Arc<StoreStatus>, live_bytes: u64) -> Self {
        Self { status, live_bytes, ..Self::default() }
    }

    /// Whether the store has no room for anything new.
    pub(super) fn is_short(&self) -> bool {
        self.status.is_short()
    }

    /// Remembers what was written and must be written again by somebody who knows it.
    pub(super) fn remember(&mut self, meta: &[Meta]) {
        for meta in meta.iter().filter(|meta| !matches!(meta, Meta::Batch(_) | Meta::Uptime(_))) {
            self.lasting.retain(|known| std::mem::discriminant(known) != std::mem::discriminant(meta));
            self.lasting.push(meta.clone());
        }
    }

    /// How many bytes a batch of this length is to write again; `None`: nothing.
    pub(super) fn share(&self, batch_bytes: u64) -> Option<u64> {
        let (log, slack) = (self.status.log_bytes(), self.status.slack_bytes());
        let most = self.live_bytes.saturating_mul(4).saturating_add(slack);
        let Some(round) = self.round else {
            let begins_at = self.live_bytes.saturating_mul(3).saturating_add(slack / 2);
            let old = self.status.old_bytes();
            return (slack > 0 && log > begins_at && old > self.live_bytes).then_some(0);
        };
        let left = self.live_bytes.saturating_sub(round.bytes);
        let room = most.saturating_sub(log).saturating_sub(left).max(1);
        Some(u64::try_from(u128::from(batch_bytes) * u128::from(left) / u128::from(room)).unwrap_or(u64::MAX))
    }

    /// The records to be put when a round begins with this batch; nothing in the midst of one.
    pub(super) fn begin(&mut self, batch: u64) -> &[Meta] {
        if self.round.is_some() {
            return &[];
        }
        self.round = Some(Round { began: batch, bytes: 0 });
        &self.lasting
    }

    /// So much was put again.
    pub(super) fn put(&mut self, bytes: u64) {
        if let Some(round) = &mut self.round {
            round.bytes = round.bytes.saturating_add(bytes);
        }
    }

    /// The round is done; gives the batch that it began with.
    pub(super) fn end(&mut self) -> Option<u64> {
        let round = self.round.take()?;
        self.live_bytes = round.bytes;
        Some(round.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriting(log_bytes: u64, live_bytes: u64) -> Rewriting {
        let status = Arc::new(StoreStatus::default());
        status.set_log_bytes(log_bytes, log_bytes - 100);
        status.set_slack_bytes(1000);
        Rewriting::new(status, live_bytes)
    }

    #[test]
    fn a_round_begins_when_the_log_is_long_and_each_batch_takes_its_share() {
        assert_eq!(rewriting(3_500, 1000).share(10), None, "three times what is there, and half the slack");
        let mut rewriting = rewriting(3_501, 1000);
        assert_eq!(rewriting.share(10), Some(0));
        rewriting.remember(&[Meta::Loads(1), Meta::Batch(3)]);
        rewriting.remember(&[Meta::Loads(2)]);
        assert_eq!(rewriting.begin(7), [Meta::Loads(2)]);
        assert_eq!(rewriting.begin(8), []);
        assert_eq!(rewriting.share(10), Some(20), "1000 are left and 499 may come");
        rewriting.put(900);
        assert_eq!(rewriting.share(10), Some(0));
        rewriting.status.set_log_bytes(4_899, 0);
        assert_eq!(rewriting.share(10), Some(1000));
        rewriting.put(300);
        assert_eq!(rewriting.end(), Some(7));
        assert_eq!(rewriting.live_bytes, 1200, "as much as the round has put");
    }

    #[test]
    fn no_round_begins_that_would_free_less_than_it_writes() {
        let rewriting = rewriting(9_000, 1000);
        assert_eq!(rewriting.share(10), Some(0));
        rewriting.status.set_log_bytes(9_000, 1000);
        assert_eq!(rewriting.share(10), None);
    }

    #[test]
    fn a_store_that_is_no_log_rewrites_nothing() {
        let rewriting = Rewriting::new(Arc::default(), 0);
        assert_eq!(rewriting.share(1 << 30), None);
    }
}
