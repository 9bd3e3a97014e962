//! What one step may do, whatever it was: judged by the records before and after it, and by its effects.

use std::collections::BTreeMap;

use ratified_core::{Effect, Limits, Transition};
use ratified_protocol::{ClientName, EndReason, Outcome, TxnId, TxnState};

use super::{
    commands::Op,
    snapshot::{Snapshot, TxnKey},
};

/// What a step was asked.
#[derive(Debug, Clone)]
pub(super) enum Cause {
    Txn { key: TxnKey, op: Op, epoch: Option<u64> },
    Batch { client: ClientName, items: Vec<(TxnId, Op)>, epoch: Option<u64> },
    Open(ClientName),
    Forget(ClientName),
    Other,
}

impl Cause {
    fn items(&self) -> Vec<(TxnKey, &Op, Option<u64>)> {
        match self {
            Self::Txn { key, op, epoch } => vec![(key.clone(), op, *epoch)],
            Self::Batch { client, items, epoch } => {
                items.iter().map(|(id, op)| ((client.clone(), *id), op, *epoch)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether this step asked for such a thing, with an epoch that allows it.
    fn asks(&self, key: &TxnKey, current: u64, allows: impl Fn(&Op, bool, bool) -> bool) -> bool {
        let fits = |(asked, op, epoch): (TxnKey, &Op, Option<u64>)| {
            asked == *key && allows(op, epoch == Some(current), epoch.is_none())
        };
        self.items().into_iter().any(fits)
    }
}

/// A step, seen from outside.
pub(super) struct Seen<'a> {
    pub(super) cause: &'a Cause,
    pub(super) before: &'a Snapshot,
    pub(super) after: &'a Snapshot,
    pub(super) effects: &'a [Effect],
    pub(super) now_ms: u64,
    pub(super) uptime_ms: u64,
    pub(super) limits: Limits,
    /// When each live transaction that has one is due.
    pub(super) deadlines: &'a BTreeMap<TxnKey, u64>,
}

impl Seen<'_> {
    pub(super) fn check(&self) {
        self.only_begin_creates();
        for effect in self.effects {
            if let Effect::Transition(transition) = effect {
                self.transition_is_allowed(transition);
            }
        }
        self.evictions_are_legal();
        self.watermarks_are_exact();
        self.last_commits_follow_ids();
        self.nothing_falls_back();
        self.deadlines_are_met();
    }

    fn epoch(&self, key: &TxnKey) -> u64 {
        self.before.epoch(&key.0)
    }

    fn only_begin_creates(&self) {
        for key in self.after.headers.keys().filter(|key| !self.before.headers.contains_key(key)) {
            let begun =
                self.cause.asks(key, self.epoch(key), |op, current, _| matches!(op, Op::Begin { .. }) && current);
            assert!(begun, "{key:?} was created by {:?}", self.cause);
            assert!(!self.before.traces().contains(key), "{key:?} began again");
            let watermark = self.before.watermark(&key.0);
            assert!(watermark < Some(key.1), "{key:?} began at or below {watermark:?}");
        }
    }

    fn transition_is_allowed(&self, t: &Transition) {
        let key = (t.client.clone(), t.txn_id);
        let place = || format!("{t:?} by {:?} at {}", self.cause, self.now_ms);
        if let Some(from) = t.from {
            assert!(from.may_become(t.to), "{}", place());
        }
        let epoch = self.epoch(&key);
        let header = self.before.headers.get(&key);
        let due = self.deadlines.get(&key).is_some_and(|deadline| *deadline <= self.now_ms);
        let decides = t.from.is_some_and(|from| from.outcome().is_none()) && t.to.outcome().is_some();
        let allowed = match (t.to, t.reason) {
            (TxnState::Open, None) => t.from.is_none(),
            (TxnState::Prepared, None) => {
                self.cause.asks(&key, epoch, |op, current, _| matches!(op, Op::Prepare { .. }) && current)
            }
            (_, Some(_)) if !decides => true,
            (to, Some(EndReason::Client)) => self.cause.asks(&key, epoch, |op, current, missing| match op {
                Op::Commit { .. } => {
                    to == TxnState::Committing && (current || (missing && t.from == Some(TxnState::Prepared)))
                }
                Op::Abort => to == TxnState::Aborting && current,
                _ => false,
            }),
            (TxnState::Aborting, Some(EndReason::Timeout)) => due && t.from == Some(TxnState::Open),
            (TxnState::Aborting, Some(EndReason::PreparedTimeout)) => due && t.from == Some(TxnState::Prepared),
            (TxnState::Aborting, Some(EndReason::Fenced)) => {
                let older = header.is_some_and(|header| header.epoch.as_u64() < self.after.epoch(&key.0));
                older && !due && t.from == Some(TxnState::Open)
            }
            (to, Some(EndReason::Operator)) => self.cause.asks(&key, epoch, |op, _, _| match op {
                Op::Resolve("COMMIT") => to == TxnState::Committing && t.from == Some(TxnState::Prepared),
                Op::Resolve(_) => to == TxnState::Aborting,
                _ => false,
            }),
            _ => false,
        };
        assert!(allowed, "{}", place());
    }

    /// An outcome goes by age, by count, by the limit, or with its client; never otherwise, and the oldest first.
    fn evictions_are_legal(&self) {
        for (key, gone) in self.before.outcomes.iter().filter(|(key, _)| !self.after.outcomes.contains_key(key)) {
            let age = self.uptime_ms.saturating_sub(gone.ended.as_millis());
            let of_a_kind = |other: &TxnKey, outcome: Outcome| other.0 == key.0 && outcome == gone.outcome;
            let newer =
                self.after.outcomes.iter().filter(|(other, record)| {
                    of_a_kind(other, record.outcome) && record.termination > gone.termination
                });
            let newer = newer.count();
            let by_count = newer >= self.limits.persist_count && age >= self.limits.gc_retention_ms;
            let by_limit = newer >= self.limits.max_outcomes_per_client.max(self.limits.persist_count);
            let listed = gone.outcome == Outcome::Committed && newer < self.limits.min_committed_per_client;
            let by_age = age >= self.limits.persist_time_ms && !listed;
            let forgotten = self.after.clients[&key.0].forgotten;
            assert!(by_count || by_limit || by_age || forgotten, "{key:?} aged {age}, {newer} newer, is gone");
            let older = self
                .after
                .outcomes
                .iter()
                .find(|(other, record)| of_a_kind(other, record.outcome) && record.termination < gone.termination);
            assert_eq!(older, None, "{key:?} went before an older one");
        }
    }

    /// `evictedThrough` is the greatest id whose last trace is gone: neither less nor more.
    fn watermarks_are_exact(&self) {
        let (before, after) = (self.before.traces(), self.after.traces());
        for (client, record) in &self.after.clients {
            let was_forgotten = self.before.clients.get(client).is_some_and(|record| record.forgotten);
            if record.forgotten && !was_forgotten {
                assert_eq!(record.evicted_through, record.newest_txn_id, "{client} was forgotten");
                continue;
            }
            let removed = before.difference(&after).filter(|key| key.0 == *client).map(|key| key.1).max();
            let expected = self.before.watermark(client).max(removed);
            // What begins and goes in one step leaves no trace between two looks.
            if matches!(self.cause, Cause::Batch { .. }) {
                assert!(record.evicted_through >= expected, "{client}: {expected:?}");
            } else {
                assert_eq!(record.evicted_through, expected, "{client}");
            }
        }
    }

    fn last_commits_follow_ids(&self) {
        for (client, record) in self.after.clients.iter().filter(|(_, record)| !record.forgotten) {
            let committed = self.effects.iter().filter_map(|effect| match effect {
                Effect::Transition(t) if t.client == *client && t.to == TxnState::Committing => Some(t.txn_id),
                _ => None,
            });
            let expected = self.before.last_committed(client).max(committed.max());
            assert_eq!(record.last_committed.map(|last| last.txn_id), expected, "{client}");
        }
    }

    fn nothing_falls_back(&self) {
        for (client, before) in &self.before.clients {
            let after = &self.after.clients[client];
            assert!(after.epoch >= before.epoch, "epoch of {client}");
            assert!(after.epoch == before.epoch || matches!(&self.cause, Cause::Open(opened) if opened == client));
            assert!(after.evicted_through >= before.evicted_through, "watermark of {client}");
            assert!(after.newest_txn_id >= before.newest_txn_id, "newest id of {client}");
            assert!(after.written >= before.written, "stamp of {client}");
            let forgets = matches!(&self.cause, Cause::Forget(forgotten) if forgotten == client);
            if after.forgotten && !before.forgotten && !forgets {
                assert_eq!(before.last_committed, None, "{client} shrank although it has a last commit");
            }
        }
    }

    /// A request about a transaction never meets it past its deadline.
    fn deadlines_are_met(&self) {
        if let Cause::Txn { key, .. } = self.cause {
            let due = self.deadlines.get(key).is_some_and(|deadline| *deadline <= self.now_ms);
            let open = self.after.headers.get(key).is_some_and(|header| header.state.outcome().is_none());
            let asked_of_known = self.before.headers.contains_key(key);
            assert!(!(due && open && asked_of_known), "{key:?} is past its deadline at {}", self.now_ms);
        }
    }
}
