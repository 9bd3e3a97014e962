//! What the preserver tells when it is asked itself.

use ratified_protocol::{ClientName, Code, Outcome, PreservedOutcome, PreserverAnswer, TxnId};

use crate::{
    effect::Revision,
    paged::{Collected, Listed},
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
        self.settle(name, id);
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

    /// All outcomes of a client that were collected, newest first.
    pub(crate) fn preserver_answer(&self, name: &ClientName, mut collected: Collected) -> Listed<PreserverAnswer> {
        self.require_client(name)?;
        collected.sort_by_key(|(order, outcome)| std::cmp::Reverse((*order, outcome.txn_id)));
        let outcomes = collected.into_iter().map(|(_, outcome)| outcome).collect();
        let client = self.client(name);
        let mut answer = PreserverAnswer::new(name.clone(), self.engine.limits.persist_count as u64, outcomes);
        answer.evicted_through = client.and_then(|c| c.record.evicted_through);
        answer.last_committed = client.and_then(crate::client::Client::last_committed);
        Ok((answer, self.client_revision(name)))
    }

    pub(crate) fn preserved_outcome(&self, id: TxnId, entry: &Entry) -> PreservedOutcome {
        let mut outcome = PreservedOutcome::new(id, entry.outcome, entry.end_reason);
        outcome.checkpoint_id = entry.checkpoint_id;
        outcome.end_time = entry.terminal.map(|t| t.end_time);
        outcome.kept_for_ms = Some(self.engine.preserver.kept_for_ms(entry, self.now.uptime));
        outcome
    }
}
