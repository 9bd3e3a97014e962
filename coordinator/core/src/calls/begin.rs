//! begin, prepare, keep-alive: what happens before a decision.

use ratified_protocol::{BeginRequest, ClientName, Code, EpochRequest, Outcome, PrepareRequest, TxnId, TxnState};

use crate::{
    effect::Success,
    record::Key,
    step::{Refusal, Step, Told, TxnResult},
    transaction::Transaction,
};

impl Step<'_> {
    /// `begin`: idempotent by the id, which names one transaction for ever.
    pub(super) fn begin(&mut self, name: &ClientName, id: TxnId, request: &BeginRequest) -> TxnResult {
        let client = self.require_client(name)?;
        if client.record.forgotten {
            let detail = format!("client {name} was forgotten; open it with create:true to use it again");
            return Err(self.refuse(name, Code::ClientNotFound, detail));
        }
        let live = self.txn(name, id).map(|txn| txn.record.state);
        let Some(state) = live else {
            if let Some((mut txn, after)) = self.tell(name, id) {
                self.engine.stats.lookup_hits += 1;
                txn.replayed = true;
                return Ok(Told { success: Success::Ok, txn, after });
            }
            return self.begin_new(name, id, request);
        };
        if state.outcome().is_none() {
            self.check_epoch(name, request.epoch)?;
            if !self.txn(name, id).is_some_and(|txn| txn.was_begun_with(request)) {
                let detail = "this id was begun with other parameters; draw a new id for another transaction";
                return Err(self.refuse_with_txn(name, id, Code::TxnIdReused, detail));
            }
        }
        self.told(name, id, Success::Ok, true)
    }

    fn begin_new(&mut self, name: &ClientName, id: TxnId, request: &BeginRequest) -> TxnResult {
        if self.client(name).is_some_and(|c| c.has_evicted(id)) {
            self.engine.stats.lookup_expired += 1;
            let detail = format!("{id} is not above evictedThrough: it may have ended long ago; draw a newer id");
            return Err(self.refuse(name, Code::TxnIdTooOld, detail));
        }
        self.check_epoch(name, request.epoch)?;
        if let Some(gone) = request.participants.as_set().iter().find(|p| self.engine.participants.is_retired(p)) {
            let detail = format!("participants: {gone} is retired; reinstate it or leave it out");
            return Err(self.refuse(name, Code::ParticipantRetired, detail));
        }
        self.check_unfinished(name)?;
        self.check_store(name)?;
        let now = self.now;
        let Some(client) = self.client_mut(name) else { return Err(self.absent(name, id)) };
        let epoch = client.record.epoch;
        client.record.newest_txn_id = client.record.newest_txn_id.max(Some(id));
        self.engine.insert_header(name, id, Transaction::begin(request, epoch, now));
        self.touch(Key::Transaction(name.clone(), id), false);
        self.touch_txn(name, id);
        self.engine.stats.begun += 1;
        self.log_transition(name, id, None, TxnState::Open);
        self.told(name, id, Success::Created, false)
    }

    /// Headers are held in memory until they are terminal, so their number is bounded, whatever they wait for: a decision,
    /// or a participant that does not come back.
    fn check_unfinished(&mut self, name: &ClientName) -> Result<(), Refusal> {
        let limits = self.engine.limits;
        let (most_open, most) = (limits.max_open_per_client, limits.max_unfinished_per_client);
        let most = most.max(most_open);
        let is_full =
            |step: &Self| step.client(name).is_some_and(|c| c.open_count() >= most_open as u64 || c.txns.len() >= most);
        if is_full(self) {
            self.settle_some(name);
        }
        if !is_full(self) {
            return Ok(());
        }
        let detail = if self.client(name).is_some_and(|c| c.txns.len() >= most) {
            format!(
                "{name} has {most} transactions that are not finished (max_unfinished_per_client); decide some, or let \
                 their participants acknowledge, and ask again"
            )
        } else {
            format!("{name} has {most_open} OPEN transactions (max_open_per_client); end some and ask again")
        };
        Err(self.refuse(name, Code::TooManyOpen, detail))
    }

    /// `prepare`: from here the transaction is held until somebody decides (PIP-31).
    pub(super) fn prepare(&mut self, name: &ClientName, id: TxnId, request: &PrepareRequest) -> TxnResult {
        if let Some(told) = self.tell_decided(name, id, Outcome::Committed)? {
            return Ok(Told { success: Success::Ok, ..told });
        }
        self.check_epoch(name, request.epoch)?;
        if self.txn(name, id).is_some_and(|txn| txn.record.state == TxnState::Prepared) {
            if !self.txn(name, id).is_some_and(|txn| txn.was_prepared_with(request)) {
                let detail = "this transaction was prepared with another checkpointId, payload or preparedTimeoutMs";
                return Err(self.refuse_with_txn(name, id, Code::TxnIdReused, detail));
            }
            return self.told(name, id, Success::Ok, true);
        }
        let now = self.now;
        self.engine.change(name, id, |txn| {
            assert!(txn.record.state.may_become(TxnState::Prepared), "prepare of {}", txn.record.state);
            txn.record.state = TxnState::Prepared;
            txn.record.checkpoint_id = request.checkpoint_id;
            txn.record.prepared_timeout_ms = request.prepared_timeout_ms;
            txn.record.prepare_time = Some(now.wall);
            txn.record.prepared = Some(now.uptime);
            txn.deadline = txn.period_from(now.uptime);
        });
        self.set_payload(name, id, request.payload.as_ref());
        self.touch_txn(name, id);
        self.log_transition(name, id, Some(TxnState::Open), TxnState::Prepared);
        self.told(name, id, Success::Ok, false)
    }

    /// `keep-alive`: renews begin's timeout, in memory only.
    pub(super) fn keep_alive(&mut self, name: &ClientName, id: TxnId, request: EpochRequest) -> TxnResult {
        if let Some(told) = self.tell_decided(name, id, Outcome::Committed)? {
            return Ok(Told { success: Success::Ok, ..told });
        }
        self.check_epoch(name, request.epoch)?;
        let now = self.now.uptime;
        if self.txn(name, id).is_some_and(|txn| txn.record.state == TxnState::Open) {
            self.engine.change(name, id, |txn| {
                // A request that waited in the queue must not shorten what a later one has already renewed.
                txn.deadline = txn.deadline.max(txn.period_from(now));
            });
        }
        self.told(name, id, Success::Ok, false)
    }
}
