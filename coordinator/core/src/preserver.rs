//! The preserver: per client, the newest N outcomes of each kind (PIP-255), so that a repeated commit is told the true
//! outcome instead of "not found".
//!
//! `append` and `flush` are apart so that one write serves all that ended meanwhile. PIP-255 keeps one N for both
//! outcomes; here N counts per outcome, since a crash-looping job's aborts would otherwise evict the very commit that
//! its checkpoint still lists.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Bound,
};

use ratified_protocol::{CheckpointId, ClientName, EndReason, Outcome, TxnId};

use crate::{
    effect::Revision,
    limits::Limits,
    record::OutcomeRecord,
    time::{Now, Uptime},
};

/// An outcome in memory.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) outcome: Outcome,
    pub(crate) end_reason: EndReason,
    pub(crate) checkpoint_id: Option<CheckpointId>,
    /// `None` while the header is live: exempt from eviction and expiry.
    pub(crate) terminal: Option<OutcomeRecord>,
    /// Whether the store holds it, or will with the batch at hand.
    pub(crate) flushed: bool,
    /// The newest step that changed it.
    pub(crate) changed: Revision,
}

#[derive(Debug, Clone, Default)]
struct Kept {
    entries: BTreeMap<TxnId, Entry>,
    /// Terminal entries in order of termination, per outcome.
    queues: PerOutcome<VecDeque<TxnId>>,
}

/// An outcome that was dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) client: ClientName,
    pub(crate) txn_id: TxnId,
    pub(crate) flushed: bool,
}

type Due = BTreeSet<(Uptime, ClientName, Outcome)>;

/// The outcomes of every client.
#[derive(Debug, Clone)]
pub(crate) struct TransactionMetadataPreserver {
    limits: Limits,
    clients: BTreeMap<ClientName, Kept>,
    /// The oldest entry of each queue, by its end, unless it is among the newest that never expire: what expires next.
    oldest: Due,
    /// The oldest entry of each queue longer than N: what may be evicted next.
    surplus: Due,
    /// Terminal and not yet written.
    unflushed: BTreeMap<ClientName, BTreeSet<TxnId>>,
    next_termination: u64,
    totals: PerOutcome<u64>,
}

/// One of a kind for each outcome.
#[derive(Debug, Clone, Default)]
struct PerOutcome<T> {
    committed: T,
    aborted: T,
}

impl<T> PerOutcome<T> {
    const fn of(&self, outcome: Outcome) -> &T {
        match outcome {
            Outcome::Committed => &self.committed,
            Outcome::Aborted => &self.aborted,
        }
    }

    const fn of_mut(&mut self, outcome: Outcome) -> &mut T {
        match outcome {
            Outcome::Committed => &mut self.committed,
            Outcome::Aborted => &mut self.aborted,
        }
    }
}

impl TransactionMetadataPreserver {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            clients: BTreeMap::new(),
            oldest: Due::new(),
            surplus: Due::new(),
            unflushed: BTreeMap::new(),
            next_termination: 1,
            totals: PerOutcome::default(),
        }
    }

    /// Remembers a decision, in memory only; from here a lookup answers it. A second append is a no-op.
    pub(crate) fn append(&mut self, client: &ClientName, id: TxnId, entry: Entry) -> bool {
        assert!(entry.terminal.is_none(), "a decision is appended before its header is terminal");
        let entries = &mut self.clients.entry(client.clone()).or_default().entries;
        if entries.contains_key(&id) {
            return false;
        }
        entries.insert(id, entry);
        true
    }

    /// The header is terminal: the outcome gets its place in the order of eviction and waits for the flush. Returns
    /// what `max_outcomes_per_client` drops for it.
    pub(crate) fn terminate(&mut self, client: &ClientName, id: TxnId, now: Now, at: Revision) -> Vec<Dropped> {
        let termination = self.next_termination;
        let Some(entry) = self.clients.get_mut(client).and_then(|kept| kept.entries.get_mut(&id)) else {
            debug_assert!(false, "terminal without append");
            return Vec::new();
        };
        assert!(entry.terminal.is_none(), "a transaction is terminal once");
        self.next_termination += 1;
        let record = OutcomeRecord {
            outcome: entry.outcome,
            end_reason: entry.end_reason,
            checkpoint_id: entry.checkpoint_id,
            end_time: now.wall,
            ended: now.uptime,
            termination,
        };
        entry.terminal = Some(record);
        entry.changed = at;
        self.unflushed.entry(client.clone()).or_default().insert(id);
        self.enqueue(client, id, record.outcome);
        self.trim(client, record.outcome)
    }

    /// Drops what is beyond `max_outcomes_per_client`, whatever its age.
    pub(crate) fn trim(&mut self, client: &ClientName, outcome: Outcome) -> Vec<Dropped> {
        let most = self.limits.max_outcomes_per_client.max(self.limits.persist_count);
        let mut dropped = Vec::new();
        while self.queue_len(client, outcome) > most {
            dropped.extend(self.drop_oldest(client, outcome));
        }
        dropped
    }

    /// Takes an outcome that the store holds; the caller must give them in order of termination.
    pub(crate) fn restore(&mut self, client: &ClientName, id: TxnId, record: OutcomeRecord) {
        debug_assert!(record.termination >= self.next_termination);
        self.next_termination = record.termination + 1;
        let entry = Entry {
            outcome: record.outcome,
            end_reason: record.end_reason,
            checkpoint_id: record.checkpoint_id,
            terminal: Some(record),
            flushed: true,
            changed: Revision::default(),
        };
        self.clients.entry(client.clone()).or_default().entries.insert(id, entry);
        self.enqueue(client, id, record.outcome);
    }

    /// Clients with outcomes to write.
    pub(crate) fn dirty(&self) -> Vec<ClientName> {
        self.unflushed.keys().cloned().collect()
    }

    /// Everything of this client that is terminal and not yet written; nothing when it is clean.
    pub(crate) fn flush(&mut self, client: &ClientName) -> Vec<(TxnId, OutcomeRecord)> {
        let ids = self.unflushed.remove(client).unwrap_or_default();
        let Some(kept) = self.clients.get_mut(client) else { return Vec::new() };
        let mut records = Vec::with_capacity(ids.len());
        for id in ids {
            if let Some(entry) = kept.entries.get_mut(&id) {
                entry.flushed = true;
                records.extend(entry.terminal.map(|record| (id, record)));
            }
        }
        records
    }

    pub(crate) fn lookup(&self, client: &ClientName, id: TxnId) -> Option<&Entry> {
        self.clients.get(client)?.entries.get(&id)
    }

    /// What is told about an outcome changes with this step.
    pub(crate) fn note_change(&mut self, client: &ClientName, id: TxnId, at: Revision) {
        if let Some(entry) = self.clients.get_mut(client).and_then(|kept| kept.entries.get_mut(&id)) {
            entry.changed = at;
        }
    }

    /// All entries of a client by id; a live header's are among them.
    pub(crate) fn entries(&self, client: &ClientName) -> impl Iterator<Item = (TxnId, &Entry)> {
        self.clients.get(client).into_iter().flat_map(|kept| kept.entries.iter().map(|(id, e)| (*id, e)))
    }

    /// The same from an id on.
    pub(crate) fn entries_from(
        &self,
        client: &ClientName,
        from: Bound<TxnId>,
    ) -> impl Iterator<Item = (TxnId, &Entry)> {
        let ids = (from, Bound::Unbounded);
        self.clients.get(client).into_iter().flat_map(move |kept| kept.entries.range(ids).map(|(id, e)| (*id, e)))
    }

    /// The first entry of a client in a range of ids.
    pub(crate) fn first_entry(&self, client: &ClientName, ids: (Bound<TxnId>, Bound<TxnId>)) -> Option<TxnId> {
        self.clients.get(client)?.entries.range(ids).next().map(|(id, _)| *id)
    }

    /// The first client in a range of names that has entries.
    pub(crate) fn first_client(&self, names: (Bound<&str>, Bound<&str>)) -> Option<&ClientName> {
        self.clients.range::<str, _>(names).next().map(|(name, _)| name)
    }

    pub(crate) fn queue_len(&self, client: &ClientName, outcome: Outcome) -> usize {
        self.clients.get(client).map_or(0, |kept| kept.queues.of(outcome).len())
    }

    /// Drops one outcome beyond N that is older than the retention, if there is one.
    pub(crate) fn evict_next(&mut self, now: Uptime) -> Option<Dropped> {
        let (ended, client, outcome) = self.surplus.first()?.clone();
        if now.millis_since(ended) < self.limits.gc_retention_ms {
            return None;
        }
        self.drop_oldest(&client, outcome)
    }

    /// Drops one outcome that is older than the persist time, if there is one.
    pub(crate) fn expire_next(&mut self, now: Uptime) -> Option<Dropped> {
        let (ended, client, outcome) = self.oldest.first()?.clone();
        if now.millis_since(ended) < self.limits.persist_time_ms {
            return None;
        }
        self.drop_oldest(&client, outcome)
    }

    /// How much longer an outcome is kept, whatever comes: eviction by count may take it once its retention is over,
    /// since N newer ones may come meanwhile.
    pub(crate) fn kept_for_ms(&self, entry: &Entry, now: Uptime) -> u64 {
        let age = entry.terminal.map_or(0, |t| now.millis_since(t.ended));
        self.limits.persist_time_ms.min(self.limits.gc_retention_ms).saturating_sub(age)
    }

    /// How many of the newest outcomes of a client expiry leaves, however old they are.
    const fn never_expiring(&self, outcome: Outcome) -> usize {
        match outcome {
            Outcome::Committed => self.limits.min_committed_per_client,
            Outcome::Aborted => 0,
        }
    }

    /// Drops everything of a client; the caller must know that it has no live header.
    pub(crate) fn forget(&mut self, client: &ClientName) -> Vec<Dropped> {
        let mut dropped = Vec::new();
        for outcome in Outcome::ALL {
            while let Some(one) = self.drop_oldest(client, outcome) {
                dropped.push(one);
            }
        }
        dropped
    }

    /// Outcomes kept: COMMITTED, ABORTED.
    pub(crate) const fn totals(&self) -> [u64; 2] {
        [self.totals.committed, self.totals.aborted]
    }

    fn drop_oldest(&mut self, client: &ClientName, outcome: Outcome) -> Option<Dropped> {
        self.unindex(client, outcome);
        let kept = self.clients.get_mut(client)?;
        let id = kept.queues.of_mut(outcome).pop_front()?;
        let entry = kept.entries.remove(&id);
        if kept.entries.is_empty() {
            self.clients.remove(client);
        }
        *self.totals.of_mut(outcome) -= 1;
        self.reindex(client, outcome);
        if let Some(ids) = self.unflushed.get_mut(client) {
            ids.remove(&id);
            if ids.is_empty() {
                self.unflushed.remove(client);
            }
        }
        Some(Dropped { client: client.clone(), txn_id: id, flushed: entry.is_some_and(|e| e.flushed) })
    }

    fn enqueue(&mut self, client: &ClientName, id: TxnId, outcome: Outcome) {
        self.unindex(client, outcome);
        self.clients.entry(client.clone()).or_default().queues.of_mut(outcome).push_back(id);
        *self.totals.of_mut(outcome) += 1;
        self.reindex(client, outcome);
    }

    fn front_end(&self, client: &ClientName, outcome: Outcome) -> Option<Uptime> {
        let kept = self.clients.get(client)?;
        let id = kept.queues.of(outcome).front()?;
        kept.entries.get(id)?.terminal.map(|t| t.ended)
    }

    fn unindex(&mut self, client: &ClientName, outcome: Outcome) {
        if let Some(ended) = self.front_end(client, outcome) {
            let key = (ended, client.clone(), outcome);
            self.oldest.remove(&key);
            self.surplus.remove(&key);
        }
    }

    fn reindex(&mut self, client: &ClientName, outcome: Outcome) {
        if let Some(ended) = self.front_end(client, outcome) {
            let key = (ended, client.clone(), outcome);
            if self.queue_len(client, outcome) > self.limits.persist_count {
                self.surplus.insert(key.clone());
            }
            if self.queue_len(client, outcome) > self.never_expiring(outcome) {
                self.oldest.insert(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            persist_count: 2,
            persist_time_ms: 1000,
            gc_retention_ms: 100,
            max_outcomes_per_client: 4,
            min_committed_per_client: 0,
            ..Limits::default()
        }
    }

    fn name() -> ClientName {
        "c".parse().unwrap()
    }

    fn id(n: u8) -> TxnId {
        let mut bytes = [0; 16];
        bytes[6] = 0x70;
        bytes[8] = 0x80;
        bytes[15] = n;
        TxnId::from_bytes(bytes).unwrap()
    }

    fn entry(outcome: Outcome) -> Entry {
        Entry {
            outcome,
            end_reason: EndReason::Client,
            checkpoint_id: None,
            terminal: None,
            flushed: false,
            changed: Revision(0),
        }
    }

    fn at(ms: u64) -> Now {
        Now { uptime: Uptime::from_millis(ms), ..Now::default() }
    }

    fn end(p: &mut TransactionMetadataPreserver, n: u8, outcome: Outcome, ms: u64) -> Vec<TxnId> {
        p.append(&name(), id(n), entry(outcome));
        p.terminate(&name(), id(n), at(ms), Revision(1)).into_iter().map(|d| d.txn_id).collect()
    }

    #[test]
    fn a_flush_writes_every_earlier_append_and_the_next_one_nothing() {
        let mut p = TransactionMetadataPreserver::new(limits());
        end(&mut p, 1, Outcome::Committed, 1);
        end(&mut p, 2, Outcome::Committed, 1);
        let written: Vec<_> = p.flush(&name()).into_iter().map(|(id, r)| (id, r.termination)).collect();
        assert_eq!(written, [(id(1), 1), (id(2), 2)]);
        assert_eq!(p.flush(&name()), []);
    }

    #[test]
    fn an_appended_outcome_answers_but_is_neither_flushed_nor_dropped_before_it_is_terminal() {
        let mut p = TransactionMetadataPreserver::new(limits());
        assert!(p.append(&name(), id(1), entry(Outcome::Aborted)));
        assert!(!p.append(&name(), id(1), entry(Outcome::Aborted)));
        assert_eq!(p.lookup(&name(), id(1)).map(|e| e.outcome), Some(Outcome::Aborted));
        assert_eq!(p.flush(&name()), []);
        assert_eq!(p.expire_next(Uptime::from_millis(u64::MAX)), None);
        assert_eq!(p.evict_next(Uptime::from_millis(u64::MAX)), None);
    }

    #[test]
    fn aborts_never_push_out_a_commit() {
        let mut p = TransactionMetadataPreserver::new(limits());
        end(&mut p, 1, Outcome::Committed, 0);
        for n in 2..=5 {
            end(&mut p, n, Outcome::Aborted, 0);
        }
        let gone: Vec<_> = std::iter::from_fn(|| p.evict_next(Uptime::from_millis(100))).map(|d| d.txn_id).collect();
        assert_eq!(gone, [id(2), id(3)]);
        assert!(p.lookup(&name(), id(1)).is_some());
    }

    #[test]
    fn count_evicts_only_what_is_older_than_the_retention() {
        let mut p = TransactionMetadataPreserver::new(limits());
        for n in 1..=3 {
            end(&mut p, n, Outcome::Committed, 10);
        }
        assert_eq!(p.evict_next(Uptime::from_millis(109)), None);
        assert_eq!(p.evict_next(Uptime::from_millis(110)).map(|d| d.txn_id), Some(id(1)));
        assert_eq!(p.evict_next(Uptime::from_millis(110)), None);
    }

    #[test]
    fn the_limit_drops_the_oldest_termination_at_once() {
        let mut p = TransactionMetadataPreserver::new(limits());
        assert_eq!(end(&mut p, 9, Outcome::Committed, 0), []);
        for n in 1..=3 {
            assert_eq!(end(&mut p, n, Outcome::Committed, 0), []);
        }
        assert_eq!(end(&mut p, 4, Outcome::Committed, 0), [id(9)]);
        assert_eq!(p.totals(), [4, 0]);
    }

    #[test]
    fn expiry_takes_what_is_old_enough_in_order_of_termination() {
        let mut p = TransactionMetadataPreserver::new(limits());
        end(&mut p, 2, Outcome::Committed, 0);
        end(&mut p, 1, Outcome::Committed, 5);
        assert_eq!(p.expire_next(Uptime::from_millis(999)), None);
        assert_eq!(p.expire_next(Uptime::from_millis(1000)).map(|d| d.txn_id), Some(id(2)));
        assert_eq!(p.expire_next(Uptime::from_millis(1004)), None);
        assert_eq!(p.expire_next(Uptime::from_millis(1005)).map(|d| d.txn_id), Some(id(1)));
        assert_eq!(p.totals(), [0, 0]);
    }

    #[test]
    fn a_count_of_zero_keeps_nothing_past_the_retention() {
        let mut p = TransactionMetadataPreserver::new(Limits { persist_count: 0, ..limits() });
        end(&mut p, 1, Outcome::Committed, 0);
        assert!(p.lookup(&name(), id(1)).is_some());
        assert_eq!(p.evict_next(Uptime::from_millis(100)).map(|d| d.txn_id), Some(id(1)));
        assert!(p.lookup(&name(), id(1)).is_none());
    }
}
