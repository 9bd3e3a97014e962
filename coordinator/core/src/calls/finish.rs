//! The end of a transaction: the header goes, the outcome stays; and what is left when outcomes go too.

use ratified_protocol::{ClientName, EndReason, Outcome, TxnId, TxnState};

use crate::{
    effect::{Answer, Effect, Revision, Success, Ticket, Transition},
    preserver::Dropped,
    record::Key,
    step::{Step, Told},
    time::Now,
    waiting::WaitFor,
};

impl Step<'_> {
    /// Every participant has acknowledged: the outcome takes the header's place, in one batch.
    pub(crate) fn finish(&mut self, name: &ClientName, id: TxnId) {
        let keeps_payload = self.client(name).is_some_and(|client| client.is_last_committed(id));
        let Some(mut txn) = self.engine.remove_header(name, id) else { return };
        assert!(txn.missing_acks().next().is_none(), "terminal only when every participant acked");
        let ending = txn.record.state;
        let Some(outcome) = ending.outcome() else {
            assert!(ending.outcome().is_some(), "terminal only after a decision, not from {ending}");
            return;
        };
        self.touch(Key::Transaction(name.clone(), id), true);
        for participant in &txn.acks {
            self.touch(Key::Ack(name.clone(), id, participant.clone()), true);
        }
        if txn.payload.is_some() && !keeps_payload {
            self.touch(Key::Payload(name.clone(), id), true);
        }
        let now = Now { uptime: self.engine.uptime, wall: self.now.wall };
        if keeps_payload {
            self.end_last_committed(name);
        }
        let dropped = self.engine.preserver.terminate(name, id, now, self.engine.revision);
        self.engine.stats.evicted_by_limit += dropped.len() as u64;
        for one in dropped {
            self.outcome_dropped(&one);
        }
        self.note_activity(name);
        txn.record.state = outcome.terminal();
        let transition = Transition {
            client: name.clone(),
            txn_id: id,
            from: Some(ending),
            to: outcome.terminal(),
            reason: txn.record.decision.map(|d| d.reason),
        };
        self.out.push(Effect::Transition(transition));
        self.answer_waiters(name, id);
    }

    fn end_last_committed(&mut self, name: &ClientName) {
        let wall = self.now.wall;
        if let Some(last) = self.client_mut(name).and_then(|c| c.record.last_committed.as_mut()) {
            last.end_time = wall;
        }
        self.touch_client(name);
    }

    /// The preserver has dropped an outcome.
    pub(crate) fn outcome_dropped(&mut self, one: &Dropped) {
        self.touch(Key::Outcome(one.client.clone(), one.txn_id), one.flushed);
        self.trace_removed(&one.client, one.txn_id);
        self.note_activity(&one.client);
    }

    /// Raises `evictedThrough` if nothing is left of an id: in the same batch as the removal, so that an absent id is
    /// never mistaken for one that never began.
    pub(crate) fn trace_removed(&mut self, name: &ClientName, id: TxnId) {
        let preserved = self.engine.preserver.lookup(name, id).is_some();
        let Some(client) = self.client_mut(name) else { return };
        if preserved || client.txns.contains_key(&id) || client.is_last_committed(id) {
            return;
        }
        if !client.has_evicted(id) {
            client.record.evicted_through = Some(id);
            self.touch_client(name);
        }
    }

    /// Aborts a transaction that is over: its deadline has passed, or a newer epoch than its own was opened and it is
    /// OPEN. The first step that meets it does, a GET included.
    pub(crate) fn settle(&mut self, name: &ClientName, id: TxnId) -> bool {
        let Some(reason) = self.over(name, id) else { return false };
        self.decide(name, id, Outcome::Aborted, reason);
        true
    }

    fn over(&self, name: &ClientName, id: TxnId) -> Option<EndReason> {
        let client = self.client(name)?;
        let txn = client.txns.get(&id)?;
        let is_open = txn.record.state == TxnState::Open;
        if txn.is_due(self.now.uptime) {
            return Some(if is_open { EndReason::Timeout } else { EndReason::PreparedTimeout });
        }
        client.has_overtaken(txn).then_some(EndReason::Fenced)
    }

    /// Aborts transactions of a client that are over, a page of them at most.
    pub(crate) fn settle_some(&mut self, name: &ClientName) {
        let Some(client) = self.client(name) else { return };
        let over = client.txns.keys().copied().filter(|id| self.over(name, *id).is_some());
        let page: Vec<_> = over.take(self.page_len()).collect();
        for id in page {
            self.settle(name, id);
        }
    }

    /// Whether one more request may be parked; beyond the bound the current state is answered at once.
    pub(crate) fn may_park(&self) -> bool {
        self.engine.waiting.len() + self.engine.pages.attended() < self.engine.limits.max_waiting
    }

    pub(crate) fn park(&mut self, ticket: Ticket, wait_ms: u64, what: WaitFor) {
        let until = self.now.uptime.plus_millis(wait_ms.min(ratified_protocol::MAX_WAIT_MS));
        self.engine.waiting.park(ticket, until, what);
    }

    fn answer_waiters(&mut self, name: &ClientName, id: TxnId) {
        for (ticket, what) in self.engine.waiting.take_for_txn(name, id) {
            self.answer_parked(ticket, &what);
        }
    }

    /// Answers a parked request with how things stand now.
    pub(crate) fn answer_parked(&mut self, ticket: Ticket, what: &WaitFor) {
        match what {
            WaitFor::Terminal { client, txn_id, replayed, decides } => {
                let result = self.told(client, *txn_id, Success::Ok, *replayed).map(|told| {
                    let success =
                        if *decides && !told.txn.state.is_terminal() { Success::Accepted } else { Success::Ok };
                    Told { success, ..told }
                });
                self.reply_txn(ticket, result);
            }
            WaitFor::Decision { participant, after } => {
                let answer = self.pending_decisions(participant, *after);
                self.reply_now(ticket, Answer::Decisions(answer));
            }
        }
    }

    /// The newest step of a client.
    pub(crate) fn client_revision(&self, name: &ClientName) -> Revision {
        self.client(name).map_or(Revision::default(), |c| c.changed)
    }
}
