//! Participants of one transaction: joining it and acknowledging its outcome.

use ratified_protocol::{ClientName, Code, EpochRequest, MAX_PARTICIPANTS, Outcome, ParticipantName, TxnId, TxnState};

use crate::{
    effect::Success,
    record::{Key, ParticipantEntry},
    step::{Refusal, Step, TxnResult},
};

impl Step<'_> {
    /// A new participant joins only while the transaction is OPEN: one that joined an ending transaction would never
    /// be told (Seata #1812).
    pub(super) fn register(
        &mut self,
        name: &ClientName,
        id: TxnId,
        participant: &ParticipantName,
        request: EpochRequest,
    ) -> TxnResult {
        let Some(txn) = self.txn(name, id) else {
            return Err(self.refuse_ended(name, id, "the transaction has ended; nobody can join it"));
        };
        let state = txn.record.state;
        let known = txn.members().any(|p| p == participant);
        let count = txn.members().count();
        if state.outcome().is_none() {
            self.check_epoch(name, request.epoch)?;
        }
        if known {
            return self.told(name, id, Success::Ok, true);
        }
        if state != TxnState::Open {
            let detail = "a participant can only join while the transaction is OPEN";
            return Err(self.refuse_with_txn(name, id, Code::InvalidTxnState, detail));
        }
        if self.engine.participants.is_retired(participant) {
            let detail = format!("{participant} is retired; reinstate it first");
            return Err(self.refuse(name, Code::ParticipantRetired, detail));
        }
        if count >= MAX_PARTICIPANTS {
            let detail = format!("participant: the transaction has {MAX_PARTICIPANTS} participants, the most it takes");
            return Err(self.refuse(name, Code::InvalidArgument, detail));
        }
        self.add_participant(name, id, participant);
        self.told(name, id, Success::Created, false)
    }

    fn add_participant(&mut self, name: &ClientName, id: TxnId, participant: &ParticipantName) {
        self.engine.change(name, id, |txn| {
            let entries = &mut txn.record.participants;
            match entries.binary_search_by(|p| p.name.cmp(participant)) {
                Ok(at) => entries.get_mut(at).into_iter().for_each(|entry| entry.retired = false),
                Err(at) => {
                    entries.insert(at, ParticipantEntry { name: participant.clone(), at_begin: false, retired: false });
                }
            }
        });
        self.touch_txn(name, id);
    }

    /// A participant has applied the outcome. Needs no epoch: whoever applied it may say so.
    pub(super) fn ack(
        &mut self,
        name: &ClientName,
        id: TxnId,
        participant: &ParticipantName,
        outcome: Outcome,
    ) -> TxnResult {
        let Some((txn, _)) = self.tell(name, id) else { return Err(self.absent(name, id)) };
        let Some(decided) = txn.state.outcome() else {
            let detail = "there is no decision to acknowledge yet";
            return Err(self.refuse_with_txn(name, id, Code::InvalidTxnState, detail));
        };
        if decided != outcome {
            let detail = format!("the outcome is {decided}, not {outcome}: what was applied must be undone by hand");
            return Err(self.refuse_ended_or_live(name, id, &detail));
        }
        if !txn.state.is_terminal() {
            return self.ack_live(name, id, participant);
        }
        self.told(name, id, Success::Ok, true)
    }

    fn ack_live(&mut self, name: &ClientName, id: TxnId, participant: &ParticipantName) -> TxnResult {
        let Some(txn) = self.txn(name, id) else { return Err(self.absent(name, id)) };
        let is_retired = self.engine.participants.is_retired(participant);
        let missing = txn.missing_acks().any(|p| p == participant);
        if !missing {
            if txn.participant(participant).is_some() || is_retired {
                return self.told(name, id, Success::Ok, true);
            }
            let detail = format!("{participant} is not a participant of this transaction");
            return Err(self.refuse_with_txn(name, id, Code::InvalidTxnState, &detail));
        }
        self.engine.change(name, id, |txn| txn.acks.insert(participant.clone()));
        self.touch(Key::Ack(name.clone(), id, participant.clone()), false);
        self.note_txn_change(name, id);
        self.finish_if_acked(name, id);
        self.told(name, id, Success::Ok, false)
    }

    /// Ends a decided transaction that waits for nobody.
    pub(crate) fn finish_if_acked(&mut self, name: &ClientName, id: TxnId) {
        let Some(txn) = self.txn(name, id) else { return };
        if txn.record.state.outcome().is_some() && txn.missing_acks().next().is_none() {
            self.finish(name, id);
        }
    }

    fn refuse_ended(&mut self, name: &ClientName, id: TxnId, detail: &str) -> Refusal {
        if self.tell(name, id).is_none() {
            return self.absent(name, id);
        }
        self.refuse_ended_or_live(name, id, detail)
    }

    fn refuse_ended_or_live(&self, name: &ClientName, id: TxnId, detail: &str) -> Refusal {
        let mut refusal = self.refuse(name, Code::InvalidTxnState, detail);
        if let Some((txn, after)) = self.tell(name, id) {
            refusal.after = refusal.after.max(after);
            refusal.problem = refusal.problem.with_txn(txn);
        }
        refusal
    }
}
