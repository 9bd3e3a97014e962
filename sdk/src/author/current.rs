//! The transaction that a writer works on.

use std::mem;

use ratified_protocol::TxnId;

use crate::{error::SinkError, sink::TxnContext};

/// The one transaction that a writer works on at a time. `O` is what it holds while it takes records, `P` what it tells of
/// itself once it is flushed.
///
/// A call takes it out and puts back what has become of it. A failure is kept: every later call for that transaction tells
/// it again. So it is with a call whose future was dropped on its way, since nothing was put back.
#[derive(Debug)]
pub struct Current<O, P> {
    txn: Option<(TxnId, Kept<O, P>)>,
}

#[derive(Debug)]
enum Kept<O, P> {
    Whole(Stage<O, P>),
    Failed(SinkError),
}

/// How far a transaction is.
#[derive(Debug)]
pub enum Stage<O, P> {
    /// It takes records.
    Open(O),
    /// It is flushed.
    Prepared(P),
}

impl<O, P> Default for Current<O, P> {
    fn default() -> Self {
        Self { txn: None }
    }
}

impl<O, P> Current<O, P> {
    /// Goes over to a new transaction; what was left of the last one is dropped.
    pub fn begin(&mut self, txn: &TxnContext, open: O) {
        self.txn = Some((txn.txn_id, Kept::Whole(Stage::Open(open))));
    }

    /// Drops what is left of the last transaction.
    pub fn clear(&mut self) {
        self.txn = None;
    }

    /// Takes the transaction out. Until it is [put](Self::put) back it counts as failed.
    ///
    /// # Errors
    /// It failed before, which is told again, or another one was begun: the caller must pass this on.
    pub fn take(&mut self, txn: &TxnContext) -> Result<Stage<O, P>, SinkError> {
        let Some((txn_id, kept)) = self.txn.as_mut().filter(|(txn_id, _)| *txn_id == txn.txn_id) else {
            return Err(SinkError::rejected(format!("{} was not begun by this writer", txn.txn_id)));
        };
        let dropped = SinkError::indeterminate(format!("an earlier call for {txn_id} was given up half-way"));
        match mem::replace(kept, Kept::Failed(dropped)) {
            Kept::Whole(stage) => Ok(stage),
            Kept::Failed(error) => {
                *kept = Kept::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Takes the transaction out for records; as [`take`](Self::take).
    ///
    /// # Errors
    /// As `take`, and it is flushed, which it stays: it takes no more records.
    pub fn take_open(&mut self, txn: &TxnContext) -> Result<O, SinkError> {
        match self.take(txn)? {
            Stage::Open(open) => Ok(open),
            prepared @ Stage::Prepared(_) => {
                self.put(Ok(prepared))?;
                Err(SinkError::rejected(format!("{} is prepared: it takes no records", txn.txn_id)))
            }
        }
    }

    /// Puts back what has become of the transaction that was taken out.
    ///
    /// # Errors
    /// The failure, if it is one: the caller must pass it on.
    pub fn put(&mut self, stage: Result<Stage<O, P>, SinkError>) -> Result<(), SinkError> {
        let error = stage.as_ref().err().cloned();
        if let Some((_, kept)) = &mut self.txn {
            *kept = stage.map_or_else(Kept::Failed, Kept::Whole);
        }
        error.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use ratified_protocol::Epoch;

    use super::*;
    use crate::error::Certainty;

    fn txn(number: u8) -> TxnContext {
        let id = format!("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e{number:02x}");
        TxnContext::new("c".parse().unwrap(), id.parse().unwrap(), Epoch::FIRST)
    }

    fn begun() -> Current<u8, u8> {
        let mut current = Current::default();
        current.begin(&txn(1), 7);
        current
    }

    #[test]
    fn what_is_put_back_is_taken_again() {
        let mut current = begun();
        assert_eq!(current.take_open(&txn(1)).unwrap(), 7);
        current.put(Ok(Stage::Open(8))).unwrap();
        assert!(matches!(current.take(&txn(1)).unwrap(), Stage::Open(8)));
        current.put(Ok(Stage::Prepared(9))).unwrap();
        let error = current.take_open(&txn(1)).unwrap_err().to_string();
        assert_eq!(error, format!("the sink refused: {} is prepared: it takes no records", txn(1).txn_id));
        assert!(matches!(current.take(&txn(1)).unwrap(), Stage::Prepared(9)));
    }

    #[test]
    fn a_failure_is_told_again_and_again() {
        let mut current = begun();
        current.take(&txn(1)).unwrap();
        assert_eq!(current.put(Err(SinkError::rejected("full"))).unwrap_err().to_string(), "the sink refused: full");
        for _ in 0..2 {
            assert_eq!(current.take(&txn(1)).unwrap_err().to_string(), "the sink refused: full");
        }
    }

    #[test]
    fn a_call_that_puts_nothing_back_counts_as_failed() {
        let mut current = begun();
        current.take(&txn(1)).unwrap();
        for _ in 0..2 {
            let error = current.take(&txn(1)).unwrap_err();
            assert!(matches!(error, SinkError::Retry { certainty: Certainty::Indeterminate, .. }), "{error}");
            assert!(error.to_string().ends_with("was given up half-way"), "{error}");
        }
    }

    #[test]
    fn another_transaction_is_refused() {
        let mut current = begun();
        let told = format!("the sink refused: {} was not begun by this writer", txn(2).txn_id);
        assert_eq!(current.take(&txn(2)).unwrap_err().to_string(), told);
        current.clear();
        assert!(current.take(&txn(1)).is_err());
    }
}
