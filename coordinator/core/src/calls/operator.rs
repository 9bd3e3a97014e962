//! What operators do: retire and reinstate participants, forget clients. And what idle clients come to.

use ratified_protocol::{ClientItem, ClientName, Code, ParticipantAnswer, ParticipantName, ShortText};

use crate::{
    effect::{Audit, Effect},
    record::{Key, ParticipantRecord},
    step::{Refusal, Step},
};

impl Step<'_> {
    /// Declares a vanished participant gone: nothing waits for it any more, and nothing new may name it.
    ///
    /// What it takes part in it has still to leave, page by page.
    pub(crate) fn retire(&mut self, name: &ParticipantName, reason: ShortText) {
        if self.engine.participants.is_retired(name) {
            return;
        }
        let existed = self.engine.participants.record(name).is_some();
        let record = ParticipantRecord { retired: true, reason: Some(reason.clone()) };
        self.engine.participants.set_record(name.clone(), record);
        self.touch(Key::Participant(name.clone()), existed);
        let transactions = self.engine.participants.membership_count(name) as u64;
        self.out.push(Effect::Audit(Audit::Retired { participant: name.clone(), reason, transactions }));
    }

    /// A retired participant leaves some of the transactions it takes part in; whether there are more. One that was
    /// reinstated meanwhile stays in those that are left.
    pub(crate) fn leave_page(&mut self, name: &ParticipantName) -> bool {
        for _ in 0..self.page_len() {
            if !self.engine.participants.is_retired(name) {
                return false;
            }
            let Some((client, id)) = self.engine.participants.first_membership(name) else { return false };
            self.drop_participant(name, &client, id);
        }
        self.engine.participants.is_retired(name) && self.engine.participants.first_membership(name).is_some()
    }

    fn drop_participant(&mut self, name: &ParticipantName, client: &ClientName, id: ratified_protocol::TxnId) {
        let dropped = self.engine.change(client, id, |txn| {
            let entries = txn.record.participants.iter_mut();
            entries.filter(|p| p.name == *name).for_each(|entry| entry.retired = true);
        });
        if dropped.is_none() {
            // One bad entry must never stop the rest.
            self.engine.stats.stray_index_entries += 1;
            self.engine.participants.leave(name, client, id);
            return;
        }
        self.touch_txn(client, id);
        self.finish_if_acked(client, id);
    }

    /// Takes a retired participant back; transactions it was dropped from stay as they are.
    pub(crate) fn reinstate(&mut self, name: &ParticipantName, reason: Option<ShortText>) -> ParticipantAnswer {
        if self.engine.participants.is_retired(name) {
            let record = ParticipantRecord { retired: false, reason: reason.clone() };
            self.engine.participants.set_record(name.clone(), record);
            self.touch(Key::Participant(name.clone()), true);
            self.out.push(Effect::Audit(Audit::Reinstated { participant: name.clone(), reason }));
        }
        self.participant_answer(name)
    }

    pub(crate) fn participant_answer(&self, name: &ParticipantName) -> ParticipantAnswer {
        let record = self.engine.participants.record(name);
        let reason = record.and_then(|r| r.reason.clone()).map(String::from);
        ParticipantAnswer::new(name.clone(), record.is_some_and(|r| r.retired), reason)
    }

    /// Drops what is kept about a client without unfinished transactions; the tombstone stays for ever, so that no
    /// epoch is reused and no old id begins again.
    pub(crate) fn forget(&mut self, name: &ClientName, reason: &ShortText) -> Result<ClientItem, Refusal> {
        self.require_client(name)?;
        self.settle_some(name);
        let unfinished = self.client(name).map_or(0, |c| c.txns.len());
        if unfinished > 0 {
            let detail = format!("{name} has {unfinished} unfinished transactions; end them first");
            return Err(self.refuse(name, Code::ClientBusy, detail));
        }
        if self.client(name).is_some_and(|c| !c.record.forgotten) {
            let outcomes = self.shrink(name);
            let audit = Audit::Forgotten { client: name.clone(), reason: reason.clone(), outcomes };
            self.out.push(Effect::Audit(audit));
        }
        Ok(self.client_item(name))
    }

    /// Makes a tombstone of a client that has no live transaction. Returns how many outcomes it had.
    pub(crate) fn shrink(&mut self, name: &ClientName) -> u64 {
        let Some(client) = self.client_mut(name) else { return 0 };
        assert!(client.txns.is_empty() && !client.record.forgotten, "only an idle client shrinks");
        client.record.forgotten = true;
        client.record.owner = None;
        client.record.previous_owner = None;
        client.record.evicted_through = client.record.evicted_through.max(client.record.newest_txn_id);
        let last = client.record.last_committed.take();
        let payload = client.last_payload.take();
        self.engine.tombstones += 1;
        if let (Some(last), Some(bytes)) = (last, payload) {
            self.engine.payload_bytes -= bytes.len() as u64;
            self.touch(Key::Payload(name.clone(), last.txn_id), true);
        }
        let dropped = self.engine.preserver.forget(name);
        for one in &dropped {
            self.touch(Key::Outcome(name.clone(), one.txn_id), one.flushed);
        }
        self.touch_client(name);
        dropped.len() as u64
    }
}
