//! Sweeps: they walk an index, so that their cost follows what is due, and act through the same step as a client.

use std::collections::BTreeSet;

use ratified_protocol::{ClientName, TxnId, TxnState};

use crate::{
    effect::{Effect, Sweep},
    engine::Engine,
    step::Step,
    time::Uptime,
    transaction::Transaction,
};

/// Most entries that one step of a sweep acts on.
const SWEEP_PAGE: usize = 256;

type ByTime = BTreeSet<(Uptime, ClientName, TxnId)>;

/// What is due when. The truth is in the headers; this follows them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers {
    deadlines: ByTime,
    open_since: ByTime,
    prepared_since: ByTime,
    ending_since: ByTime,
    idle_since: BTreeSet<(Uptime, ClientName)>,
}

impl Timers {
    pub(crate) fn add(&mut self, name: &ClientName, id: TxnId, txn: &Transaction) {
        self.change(name, id, txn, |set, key| {
            set.insert(key);
        });
    }

    pub(crate) fn remove(&mut self, name: &ClientName, id: TxnId, txn: &Transaction) {
        self.change(name, id, txn, |set, key| {
            set.remove(&key);
        });
    }

    fn change(
        &mut self,
        name: &ClientName,
        id: TxnId,
        txn: &Transaction,
        apply: impl Fn(&mut ByTime, (Uptime, ClientName, TxnId)),
    ) {
        if let Some(deadline) = txn.deadline {
            apply(&mut self.deadlines, (deadline, name.clone(), id));
        }
        if let Some(since) = txn.ending_since {
            apply(&mut self.ending_since, (since, name.clone(), id));
        }
        match txn.record.state {
            TxnState::Open => apply(&mut self.open_since, (txn.record.begun, name.clone(), id)),
            TxnState::Prepared => {
                let since = txn.record.prepared.unwrap_or(txn.record.begun);
                apply(&mut self.prepared_since, (since, name.clone(), id));
            }
            _ => {}
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Uptime> {
        self.deadlines.first().map(|(deadline, _, _)| *deadline)
    }

    pub(crate) fn oldest_open(&self) -> Option<Uptime> {
        self.open_since.first().map(|(since, _, _)| *since)
    }

    pub(crate) fn oldest_prepared(&self) -> Option<Uptime> {
        self.prepared_since.first().map(|(since, _, _)| *since)
    }

    pub(crate) fn oldest_ending(&self) -> Option<Uptime> {
        self.ending_since.first().map(|(since, _, _)| *since)
    }

    fn first_due(&self, now: Uptime) -> Option<(Uptime, ClientName, TxnId)> {
        self.deadlines.first().filter(|(deadline, _, _)| *deadline <= now).cloned()
    }

    fn first_idle(&self) -> Option<(Uptime, ClientName)> {
        self.idle_since.first().cloned()
    }

    pub(crate) fn set_idle(&mut self, before: Option<Uptime>, since: Option<Uptime>, name: &ClientName) {
        if let Some(before) = before {
            self.idle_since.remove(&(before, name.clone()));
        }
        if let Some(since) = since {
            self.idle_since.insert((since, name.clone()));
        }
    }

    /// For the invariants: how many entries each index of transactions has.
    pub(crate) fn sizes(&self) -> [usize; 4] {
        [self.deadlines.len(), self.open_since.len(), self.prepared_since.len(), self.ending_since.len()]
    }

    /// For the invariants: whether every index names this transaction as it should.
    pub(crate) fn names(&self, name: &ClientName, id: TxnId, txn: &Transaction) -> bool {
        let has = |set: &ByTime, at: Uptime| set.contains(&(at, name.clone(), id));
        let deadline = txn.deadline.is_none_or(|d| has(&self.deadlines, d));
        let since = match txn.record.state {
            TxnState::Open => has(&self.open_since, txn.record.begun),
            TxnState::Prepared => has(&self.prepared_since, txn.record.prepared.unwrap_or(txn.record.begun)),
            _ => true,
        };
        let ending = match (txn.record.decision, txn.ending_since) {
            (Some(_), Some(at)) => has(&self.ending_since, at),
            (decision, since) => decision.is_none() && since.is_none(),
        };
        deadline && since && ending
    }

    pub(crate) fn idle_names(&self) -> impl Iterator<Item = &(Uptime, ClientName)> {
        self.idle_since.iter()
    }
}

impl Engine {
    /// Whether a client has nothing left but its epoch and watermark, so that it may shrink to a tombstone.
    pub(crate) fn is_idle(&self, name: &ClientName) -> bool {
        self.clients.get(name).is_some_and(|client| {
            !client.record.forgotten
                && client.txns.is_empty()
                && client.record.last_committed.is_none()
                && self.preserver.entries(name).next().is_none()
        })
    }

    /// Brings the index of idle clients up to date after a change.
    pub(crate) fn reindex_idle(&mut self, name: &ClientName) {
        if self.limits.client_retention_ms.is_none() {
            return;
        }
        let is_idle = self.is_idle(name);
        let Some(client) = self.clients.get_mut(name) else { return };
        let since = is_idle.then_some(client.active);
        let before = std::mem::replace(&mut client.idle_since, since);
        if before != since {
            self.timers.set_idle(before, since, name);
        }
    }
}

impl Step<'_> {
    /// One bounded step of a sweep.
    pub(crate) fn sweep(&mut self, sweep: Sweep) {
        let mut more = false;
        let page = match sweep {
            Sweep::Rewrite => self.page_len(),
            _ => SWEEP_PAGE,
        };
        // What is left follows in later steps, between requests.
        for left in (0..page).rev() {
            let acted = match sweep {
                Sweep::Timeouts => self.sweep_timeout(),
                Sweep::Expiry => self.sweep_expiry(),
                Sweep::Gc => self.sweep_surplus(),
                Sweep::IdleClients => self.sweep_idle(),
                Sweep::Rewrite => self.rewrite_next(),
                Sweep::Calls => return self.sweep_calls(),
            };
            if !acted {
                break;
            }
            more = left == 0;
        }
        if more {
            self.out.push(Effect::SweepAgain(sweep));
        }
    }

    fn sweep_timeout(&mut self) -> bool {
        let now = self.now.uptime;
        if let Some((deadline, name, id)) = self.engine.timers.first_due(now) {
            if !self.settle(&name, id) {
                // One bad entry must never stop the rest.
                self.engine.stats.stray_index_entries += 1;
                self.engine.timers.deadlines.remove(&(deadline, name, id));
            }
            return true;
        }
        if let Some((ticket, what)) = self.engine.waiting.take_due(now) {
            self.answer_parked(ticket, &what);
            return true;
        }
        false
    }

    fn sweep_expiry(&mut self) -> bool {
        let Some(one) = self.engine.preserver.expire_next(self.now.uptime) else { return false };
        self.engine.stats.expired += 1;
        self.outcome_dropped(&one);
        true
    }

    fn sweep_surplus(&mut self) -> bool {
        let Some(one) = self.engine.preserver.evict_next(self.now.uptime) else { return false };
        self.engine.stats.evicted_by_count += 1;
        self.outcome_dropped(&one);
        true
    }

    fn sweep_idle(&mut self) -> bool {
        let Some(retention_ms) = self.engine.limits.client_retention_ms else { return false };
        let Some((since, name)) = self.engine.timers.first_idle() else { return false };
        if self.now.uptime.millis_since(since) < retention_ms {
            return false;
        }
        if self.engine.is_idle(&name) {
            self.shrink(&name);
        } else {
            self.engine.stats.stray_index_entries += 1;
            self.engine.timers.set_idle(Some(since), None, &name);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use ratified_protocol::{BeginRequest, Epoch, EpochRequest, Incarnation, OpenRequest, ParticipantName};
    use uuid::Uuid;

    use super::*;
    use crate::{
        effect::{Input, Request, Ticket, TxnCall},
        limits::Limits,
        recovery::Recovery,
        time::Now,
    };

    fn at(ms: u64) -> Now {
        Now { uptime: Uptime::from_millis(ms), ..Now::default() }
    }

    fn step(engine: &mut Engine, ms: u64, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        engine.step(at(ms), input, &mut effects);
        effects
    }

    /// Client `c` with one OPEN transaction that is due at 60000.
    fn engine() -> (Engine, ClientName, TxnId) {
        let limits = Limits { client_retention_ms: Some(1000), ..Limits::default() };
        let (mut engine, _) = Recovery::new(limits, 1).finish(at(0)).unwrap();
        let client: ClientName = "c".parse().unwrap();
        let txn_id: TxnId = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
        let body = OpenRequest {
            incarnation: Incarnation::new(Uuid::from_u128(1)),
            owner: None,
            create: true,
            generation: None,
        };
        let open = Request::Open { client: client.clone(), body };
        step(&mut engine, 0, Input::Request { ticket: Ticket(1), request: open });
        let call = TxnCall::Begin(BeginRequest { epoch: Some(Epoch::FIRST), ..BeginRequest::default() });
        let begin = Request::Txn { client: client.clone(), txn_id, call, wait_ms: 0 };
        step(&mut engine, 0, Input::Request { ticket: Ticket(2), request: begin });
        (engine, client, txn_id)
    }

    #[test]
    fn one_bad_deadline_is_dropped_and_counted_and_the_rest_goes_on() {
        let (mut engine, client, txn_id) = engine();
        let stranger = "stranger".parse().unwrap();
        engine.timers.deadlines.insert((Uptime::from_millis(1), stranger, txn_id));
        engine.timers.deadlines.insert((Uptime::from_millis(2), client.clone(), txn_id));
        step(&mut engine, 60_000, Input::Sweep(Sweep::Timeouts));
        assert_eq!(engine.stats.stray_index_entries, 2);
        assert!(engine.clients.get(&client).unwrap().txns.is_empty());
        assert_eq!(step(&mut engine, 60_000, Input::Sweep(Sweep::Timeouts)), []);
    }

    #[test]
    fn one_bad_membership_is_counted_and_the_retirement_goes_on() {
        let (mut engine, client, txn_id) = engine();
        let participant: ParticipantName = "p".parse().unwrap();
        engine.participants.join(&participant, &"a-stranger".parse().unwrap(), txn_id);
        let call = TxnCall::Register(participant.clone(), EpochRequest { epoch: Some(Epoch::FIRST) });
        let register = Request::Txn { client: client.clone(), txn_id, call, wait_ms: 0 };
        step(&mut engine, 0, Input::Request { ticket: Ticket(3), request: register });
        let retire = Request::Retire { participant, reason: "gone".to_owned().try_into().unwrap() };
        step(&mut engine, 0, Input::Request { ticket: Ticket(4), request: retire });
        assert_eq!(engine.stats.stray_index_entries, 1);
        assert_eq!(engine.clients.get(&client).unwrap().txns.get(&txn_id).unwrap().members().count(), 0);
    }

    #[test]
    fn one_bad_idle_client_is_dropped_and_counted_and_the_rest_goes_on() {
        let (mut engine, client, _) = engine();
        engine.timers.idle_since.insert((Uptime::from_millis(0), client.clone()));
        engine.timers.idle_since.insert((Uptime::from_millis(0), "stranger".parse().unwrap()));
        step(&mut engine, 1000, Input::Sweep(Sweep::IdleClients));
        assert_eq!(engine.stats.stray_index_entries, 2);
        assert!(!engine.clients.get(&client).unwrap().record.forgotten, "it has an unfinished transaction");
        assert_eq!(engine.timers.idle_names().count(), 0);
    }
}
