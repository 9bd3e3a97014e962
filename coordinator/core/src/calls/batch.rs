//! batch: many calls of one client, or of many, in one step, so in one durable write.

use ratified_protocol::{BatchAnswer, BatchItem, BatchOp, BatchResult, ClientName, ManyAnswer, ManyItem, Problem};

use crate::{
    calls::open::PayloadBudget,
    effect::{Revision, TxnCall},
    step::{Refusal, Step},
};

impl Step<'_> {
    /// Each item succeeds or fails alone and sees the items before it.
    pub(crate) fn batch(
        &mut self,
        name: &ClientName,
        items: Vec<Result<BatchItem, Problem>>,
        ordered: bool,
    ) -> Result<(BatchAnswer, Revision), Refusal> {
        self.require_client(name)?;
        let mut results = Vec::with_capacity(items.len());
        let mut stopped_at = None;
        let mut after = Revision::default();
        let mut budget = PayloadBudget::new();
        for (index, item) in items.into_iter().enumerate() {
            let (result, depends_on) = match item {
                Ok(item) => self.batch_item(name, item, &mut budget),
                Err(problem) => (BatchResult::refused(problem), Revision::default()),
            };
            after = after.max(depends_on);
            let failed = result.problem.is_some();
            results.push(result);
            if failed && ordered {
                stopped_at = Some(index as u64);
                break;
            }
        }
        Ok((BatchAnswer::new(results, stopped_at), after))
    }

    /// As [`Self::batch`] over many clients: whatever ails an operation, its client included, it fails alone.
    pub(crate) fn many(&mut self, items: Vec<Result<ManyItem, Problem>>) -> (ManyAnswer, Revision) {
        let mut after = Revision::default();
        let mut budget = PayloadBudget::new();
        let mut one = |item: Result<ManyItem, Problem>| {
            let (result, depends_on) = match item {
                Ok(ManyItem { client_name, item }) => self.batch_item(&client_name, item, &mut budget),
                Err(problem) => (BatchResult::refused(problem), Revision::default()),
            };
            after = after.max(depends_on);
            result
        };
        let results = items.into_iter().map(&mut one).collect();
        (ManyAnswer::new(results), after)
    }

    fn batch_item(
        &mut self,
        name: &ClientName,
        item: BatchItem,
        budget: &mut PayloadBudget,
    ) -> (BatchResult, Revision) {
        let call = match item.op {
            BatchOp::Begin(request) => TxnCall::Begin(request),
            BatchOp::Prepare(request) => TxnCall::Prepare(request),
            BatchOp::Commit(request) => TxnCall::Commit(request),
            BatchOp::Abort(request) => TxnCall::Abort(request),
            BatchOp::Ack(participant, request) => TxnCall::Ack(participant, request),
            BatchOp::Get => TxnCall::Get,
        };
        match self.txn_call(name, item.txn_id, &call) {
            Ok(mut told) => {
                budget.fit(&mut told.txn);
                let status = told.success.status();
                (BatchResult::done(status, told.txn), told.after)
            }
            Err(mut refusal) => {
                if let Some(txn) = refusal.problem.txn.as_deref_mut() {
                    budget.fit(txn);
                }
                (BatchResult::refused(refusal.problem), refusal.after)
            }
        }
    }
}
