//! What the preserver tells when it is asked itself.

use ratified_protocol::{ClientName, Code, Outcome, PreservedOutcome, PreserverAnswer, TxnId};

use crate::{
    effect::Revision,
    preserver::Entry,
    step::{Refusal, Step},
};

impl Step<'_> {
    /// One outcome. COMMITTING counts as COMMITTED, ABORTING as ABORTED (PIP-255).
    pub(crate) fn preserver_lookup(
        &mut self,
        name: &ClientName,
        id: TxnId,
    ) -> Result<(PreservedOutcome, Revision), Refusal> {
        self.require_client(name)?;
        self.expire_if_due(name, id);
        if let Some(entry) = self.engine.preserver.lookup(name, id) {
            let found = (self.preserved_outcome(id, entry), entry.changed);
            self.engine.stats.lookup_hits += 1;
            return Ok(found);
        }
        if self.txn(name, id).is_some() {
            let detail = "there is no decision yet";
            return Err(self.refuse_with_txn(name, id, Code::InvalidTxnState, detail));
        }
        let last = self.client(name).and_then(|c| c.record.last_committed).filter(|last| last.txn_id == id);
        let Some(last) = last else { return Err(self.absent(name, id)) };
        self.engine.stats.lookup_hits += 1;
        let mut outcome = PreservedOutcome::new(id, Outcome::Committed, last.end_reason);
        outcome.checkpoint_id = last.checkpoint_id;
        outcome.end_time = Some(last.end_time);
        Ok((outcome, self.client_revision(name)))
    }

    /// All outcomes of a client, newest first.
    pub(crate) fn preserver_list(&mut self, name: &ClientName) -> Result<(PreserverAnswer, Revision), Refusal> {
        self.require_client(name)?;
        self.expire_all_due(name);
        let mut entries: Vec<_> = self.engine.preserver.entries(name).collect();
        // What is not terminal yet is newer than anything that is.
        entries.sort_by_key(|(id, e)| std::cmp::Reverse((e.terminal.map_or(u64::MAX, |t| t.termination), *id)));
        let outcomes = entries.into_iter().map(|(id, entry)| self.preserved_outcome(id, entry)).collect();
        let client = self.client(name);
        let mut answer = PreserverAnswer::new(name.clone(), self.engine.limits.persist_count as u64, outcomes);
        answer.evicted_through = client.and_then(|c| c.record.evicted_through);
        answer.last_committed = client.and_then(crate::client::Client::last_committed);
        Ok((answer, self.client_revision(name)))
    }

    fn preserved_outcome(&self, id: TxnId, entry: &Entry) -> PreservedOutcome {
        let mut outcome = PreservedOutcome::new(id, entry.outcome, entry.end_reason);
        outcome.checkpoint_id = entry.checkpoint_id;
        outcome.end_time = entry.terminal.map(|t| t.end_time);
        outcome.kept_for_ms = Some(self.engine.preserver.kept_for_ms(entry, self.now.uptime));
        outcome
    }
}
