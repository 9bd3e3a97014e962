//! commit, abort, resolve, get: the outcome table.

use ratified_protocol::{
    AbortRequest, ClientName, Code, CommitRequest, EndReason, Outcome, Payload, ResolveRequest, TxnId, TxnState,
};

use crate::{
    client::live_index,
    effect::{Audit, Effect, Success, Ticket, TxnCall},
    preserver::Entry,
    record::{DecisionRecord, Key, LastCommittedRecord},
    step::{Refusal, Step, Told, TxnResult},
    waiting::WaitFor,
};

impl Step<'_> {
    /// Any call about one transaction.
    pub(crate) fn txn_call(&mut self, name: &ClientName, id: TxnId, call: &TxnCall) -> TxnResult {
        self.require_client(name)?;
        self.settle(name, id);
        let result = match call {
            TxnCall::Begin(request) => self.begin(name, id, request),
            TxnCall::Prepare(request) => self.prepare(name, id, request),
            TxnCall::Commit(request) => self.commit(name, id, request),
            TxnCall::Abort(request) => self.abort(name, id, *request),
            TxnCall::KeepAlive(request) => self.keep_alive(name, id, *request),
            TxnCall::Get => self.get(name, id),
            TxnCall::Register(participant, request) => self.register(name, id, participant, *request),
            TxnCall::Ack(participant, request) => self.ack(name, id, participant, request.outcome),
            TxnCall::Resolve(request) => self.resolve(name, id, request),
        };
        self.engine.stats.replays += u64::from(result.as_ref().is_ok_and(|told| told.txn.replayed));
        result.map_err(|refusal| self.with_live_txn(name, id, refusal))
    }

    /// Every refusal about a transaction that is there tells it, one for the epoch too.
    fn with_live_txn(&self, name: &ClientName, id: TxnId, mut refusal: Refusal) -> Refusal {
        if let Some(txn) = self.txn(name, id).filter(|_| refusal.problem.txn.is_none()) {
            refusal.problem = refusal.problem.with_txn(txn.view(name, id, self.now.uptime));
            refusal.after = refusal.after.max(txn.changed);
        }
        refusal
    }

    /// Answers a call about one transaction, or parks it until the transaction is terminal.
    pub(crate) fn reply_or_park(
        &mut self,
        ticket: Ticket,
        name: &ClientName,
        id: TxnId,
        (call, wait_ms): (&TxnCall, u64),
        result: TxnResult,
    ) {
        let decides = matches!(call, TxnCall::Commit(_) | TxnCall::Abort(_));
        let waits = wait_ms > 0 && (decides || matches!(call, TxnCall::Get));
        match result {
            Ok(told) if waits && !told.txn.state.is_terminal() && self.may_park() => {
                let replayed = told.txn.replayed;
                let what = WaitFor::Terminal { client: name.clone(), txn_id: id, replayed, decides };
                self.park(ticket, wait_ms, what);
            }
            result => self.reply_txn(ticket, result),
        }
    }

    fn commit(&mut self, name: &ClientName, id: TxnId, request: &CommitRequest) -> TxnResult {
        if let Some(told) = self.tell_decided(name, id, Outcome::Committed)? {
            return Ok(told);
        }
        let Some(txn) = self.txn(name, id) else { return Err(self.absent(name, id)) };
        if txn.record.state == TxnState::Open {
            let requires_prepare = txn.record.require_prepare;
            self.check_epoch(name, request.epoch)?;
            if requires_prepare {
                let detail = "the transaction was begun with requirePrepare; prepare it first";
                return Err(self.refuse_with_txn(name, id, Code::TxnNotPrepared, detail));
            }
            self.engine.change(name, id, |txn| txn.record.checkpoint_id = request.checkpoint_id);
            self.set_payload(name, id, request.payload.as_ref());
        } else {
            // A committer that holds a handle of a completed checkpoint may be anybody, so no epoch is needed.
            if request.epoch.is_some() {
                self.check_epoch(name, request.epoch)?;
            }
            self.check_prepared_with(name, id, request)?;
        }
        self.decide(name, id, Outcome::Committed, EndReason::Client);
        self.told_ending(name, id)
    }

    fn check_prepared_with(&self, name: &ClientName, id: TxnId, request: &CommitRequest) -> Result<(), Refusal> {
        let Some(txn) = self.txn(name, id) else { return Ok(()) };
        let same_checkpoint = request.checkpoint_id.is_none() || request.checkpoint_id == txn.record.checkpoint_id;
        let given = request.payload.as_ref().map(Payload::as_bytes);
        if same_checkpoint && (given.is_none() || given == txn.payload.as_deref()) {
            return Ok(());
        }
        let detail = "checkpointId and payload of a prepared transaction must be absent or as prepare gave them";
        Err(self.refuse_with_txn(name, id, Code::TxnIdReused, detail))
    }

    fn abort(&mut self, name: &ClientName, id: TxnId, request: AbortRequest) -> TxnResult {
        if let Some(told) = self.tell_decided(name, id, Outcome::Aborted)? {
            return Ok(told);
        }
        self.check_epoch(name, request.epoch)?;
        self.decide(name, id, Outcome::Aborted, EndReason::Client);
        self.told_ending(name, id)
    }

    fn resolve(&mut self, name: &ClientName, id: TxnId, request: &ResolveRequest) -> TxnResult {
        let outcome = request.outcome.outcome();
        if let Some(told) = self.tell_decided(name, id, outcome)? {
            return Ok(told);
        }
        let is_open = self.txn(name, id).is_some_and(|txn| txn.record.state == TxnState::Open);
        if is_open && outcome == Outcome::Committed {
            let detail = "an OPEN transaction's data was never flushed: it can only be aborted";
            return Err(self.refuse_with_txn(name, id, Code::TxnNotPrepared, detail));
        }
        let audit = Audit::Resolved { client: name.clone(), txn_id: id, request: request.clone() };
        self.out.push(Effect::Audit(audit));
        self.decide(name, id, outcome, EndReason::Operator);
        self.told_ending(name, id)
    }

    fn get(&mut self, name: &ClientName, id: TxnId) -> TxnResult {
        let Some((txn, after)) = self.tell(name, id) else { return Err(self.absent(name, id)) };
        self.engine.stats.lookup_hits += u64::from(txn.state.is_terminal());
        Ok(Told { success: Success::Ok, txn, after })
    }

    /// The decided outcome, told to every epoch whichever outcome was asked for; `None` when there is no decision
    /// yet, and a refusal when the id is absent.
    pub(crate) fn tell_decided(
        &mut self,
        name: &ClientName,
        id: TxnId,
        asked: Outcome,
    ) -> Result<Option<Told>, Refusal> {
        let Some((mut txn, after)) = self.tell(name, id) else { return Err(self.absent(name, id)) };
        let Some(outcome) = txn.state.outcome() else { return Ok(None) };
        self.engine.stats.lookup_hits += 1;
        if outcome == asked {
            txn.replayed = true;
            let success = if txn.state.is_terminal() { Success::Ok } else { Success::Accepted };
            return Ok(Some(Told { success, txn, after }));
        }
        let code = match outcome {
            Outcome::Committed => Code::OutcomeCommitted,
            Outcome::Aborted => Code::OutcomeAborted,
        };
        let reason = txn.end_reason.as_ref().map_or_else(String::new, |r| format!(", reason {r}"));
        let mut refusal = self.refuse(name, code, format!("{id} was {outcome}{reason}"));
        refusal.after = after;
        // Whoever finds its work aborted by a newer owner learns who that is, as a fenced call does.
        if let Some(client) = self.client(name).filter(|_| txn.end_reason == Some(EndReason::Fenced.into())) {
            refusal.after = after.max(client.changed);
            refusal.problem = refusal.problem.with_owner(client.record.epoch, client.owner());
        }
        refusal.problem = refusal.problem.with_txn(txn);
        Err(refusal)
    }

    /// The transaction as it stands, in the answer to a call that succeeded.
    pub(crate) fn told(&mut self, name: &ClientName, id: TxnId, success: Success, replayed: bool) -> TxnResult {
        let Some((mut txn, after)) = self.tell(name, id) else { return Err(self.absent(name, id)) };
        txn.replayed = replayed;
        Ok(Told { success, txn, after })
    }

    fn told_ending(&mut self, name: &ClientName, id: TxnId) -> TxnResult {
        let mut told = self.told(name, id, Success::Ok, false)?;
        if !told.txn.state.is_terminal() {
            told.success = Success::Accepted;
        }
        Ok(told)
    }

    /// A payload is written once, with the step that sets it.
    pub(super) fn set_payload(&mut self, name: &ClientName, id: TxnId, payload: Option<&Payload>) {
        let Some(payload) = payload else { return };
        let bytes = payload.to_bytes();
        self.engine.change(name, id, |txn| {
            assert!(txn.payload.is_none(), "a payload is never rewritten");
            txn.payload = Some(bytes);
        });
        self.touch(Key::Payload(name.clone(), id), false);
    }

    /// The decision: made once, for an OPEN or PREPARED transaction, and never reverted.
    pub(crate) fn decide(&mut self, name: &ClientName, id: TxnId, outcome: Outcome, reason: EndReason) {
        let number = self.engine.next_decision;
        let now = self.now.uptime;
        let decided = self.engine.change(name, id, |txn| {
            let from = txn.record.state;
            assert!(from.may_become(outcome.ending()), "{from} decided for {outcome}");
            txn.record.state = outcome.ending();
            txn.record.decision = Some(DecisionRecord { reason, number });
            txn.deadline = None;
            txn.ending_since = Some(now);
            (from, txn.record.checkpoint_id, txn.missing_acks().cloned().collect::<Vec<_>>())
        });
        let Some((from, checkpoint_id, missing)) = decided else { return };
        self.engine.next_decision += 1;
        let index = usize::from(live_index(outcome.ending()) == live_index(TxnState::Aborting));
        let by_reason = EndReason::ALL.iter().position(|r| *r == reason);
        if let Some(count) = by_reason.and_then(|r| self.engine.stats.decided.get_mut(index)?.get_mut(r)) {
            *count += 1;
        }
        self.touch_txn(name, id);
        if outcome == Outcome::Committed {
            self.move_last_committed(name, id, checkpoint_id, reason);
        }
        self.append_outcome(name, id, (outcome, reason), checkpoint_id);
        self.log_transition(name, id, Some(from), outcome.ending());
        if missing.is_empty() {
            self.finish(name, id);
            return;
        }
        for participant in &missing {
            self.wake_participant(participant);
        }
    }

    /// PIP-255 `append`: in memory only; from here a lookup answers the outcome.
    fn append_outcome(
        &mut self,
        name: &ClientName,
        id: TxnId,
        (outcome, end_reason): (Outcome, EndReason),
        checkpoint_id: Option<ratified_protocol::CheckpointId>,
    ) {
        let changed = self.engine.revision;
        let entry = Entry { outcome, end_reason, checkpoint_id, terminal: None, flushed: false, changed };
        let appended = self.engine.preserver.append(name, id, entry);
        self.engine.stats.preserver_appends += u64::from(appended);
    }

    /// `lastCommitted` is the committed transaction with the greatest id, whatever the order of arrival; the one
    /// before loses its payload, and its last trace, if nothing else keeps them.
    fn move_last_committed(
        &mut self,
        name: &ClientName,
        id: TxnId,
        checkpoint_id: Option<ratified_protocol::CheckpointId>,
        end_reason: EndReason,
    ) {
        let end_time = self.now.wall;
        let payload = self.txn(name, id).and_then(|txn| txn.payload.clone());
        let Some(client) = self.client_mut(name) else { return };
        let before = client.record.last_committed;
        if before.is_some_and(|last| last.txn_id > id) {
            return;
        }
        client.record.last_committed = Some(LastCommittedRecord { txn_id: id, checkpoint_id, end_time, end_reason });
        let old_payload = std::mem::replace(&mut client.last_payload, payload);
        let old = before.filter(|last| !client.txns.contains_key(&last.txn_id));
        self.touch_client(name);
        if let Some(old) = old {
            if let Some(bytes) = old_payload {
                self.engine.payload_bytes -= bytes.len() as u64;
                self.touch(Key::Payload(name.clone(), old.txn_id), true);
                // From here the old one is told without payload: that must not leave before this step is synced.
                self.engine.preserver.note_change(name, old.txn_id, self.engine.revision);
            }
            self.trace_removed(name, old.txn_id);
        }
    }
}
