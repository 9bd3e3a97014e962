//! Barriers and notifications: what is prepared, and which completed checkpoint covers it.

use std::collections::BTreeMap;

use ratified_protocol::{CheckpointId, TxnId};

use crate::runtime::{
    error::RuntimeError,
    policy::{Barrier, BarrierKind},
};

/// The barriers of one opened sink, and what was prepared at them.
#[derive(Debug, Clone)]
pub struct Barriers {
    newest: Option<CheckpointId>,
    is_final: bool,
    max_prepared: usize,
    prepared: BTreeMap<TxnId, CheckpointId>,
}

impl Barriers {
    /// Nothing was drawn since this checkpoint was restored.
    pub fn restored(checkpoint: Option<CheckpointId>, max_prepared: usize) -> Self {
        Self { newest: checkpoint, is_final: false, max_prepared, prepared: BTreeMap::new() }
    }

    /// Whether a record may be written.
    ///
    /// # Errors
    /// [`RuntimeError::AfterFinal`] and [`RuntimeError::TooManyPrepared`].
    pub fn may_write(&self) -> Result<(), RuntimeError> {
        match self.prepared.len() {
            _ if self.is_final => Err(RuntimeError::AfterFinal),
            prepared if prepared >= self.max_prepared => Err(RuntimeError::TooManyPrepared { prepared }),
            _ => Ok(()),
        }
    }

    /// Whether this barrier may be drawn.
    ///
    /// # Errors
    /// [`RuntimeError::BarrierOutOfOrder`] and [`RuntimeError::AfterFinal`].
    pub fn may_draw(&self, barrier: Barrier) -> Result<(), RuntimeError> {
        match self.newest {
            Some(last) if barrier.checkpoint <= last => {
                Err(RuntimeError::BarrierOutOfOrder { last, given: barrier.checkpoint })
            }
            _ if self.is_final => Err(RuntimeError::AfterFinal),
            _ => Ok(()),
        }
    }

    /// Notes a transaction as prepared for a checkpoint.
    pub fn prepared(&mut self, id: TxnId, checkpoint: CheckpointId) {
        self.prepared.insert(id, checkpoint);
    }

    /// Notes a barrier as drawn.
    pub fn drawn(&mut self, barrier: Barrier) {
        self.newest = Some(barrier.checkpoint);
        self.is_final = barrier.kind == BarrierKind::Final;
    }

    /// What a completed checkpoint covers, oldest first: it is to be committed. Late and repeated notifications cover
    /// nothing; one that was skipped is made up for by the next.
    pub fn completed(&mut self, checkpoint: CheckpointId) -> Vec<TxnId> {
        let covered = self.prepared.iter().filter(|(_, own)| **own <= checkpoint);
        let covered: Vec<_> = covered.map(|(id, _)| *id).collect();
        self.prepared.retain(|_, own| *own > checkpoint);
        covered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(last: u8) -> TxnId {
        TxnId::from_bytes([0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, last]).unwrap()
    }

    fn three_prepared() -> Barriers {
        let mut barriers = Barriers::restored(None, 3);
        for number in 1..=3 {
            barriers.prepared(id(number), CheckpointId::new(u64::from(number)));
            barriers.drawn(Barrier::checkpoint(CheckpointId::new(u64::from(number))));
        }
        barriers
    }

    #[test]
    fn a_completed_checkpoint_covers_those_before_it_oldest_first_and_once() {
        let mut barriers = three_prepared();
        assert_eq!(barriers.completed(CheckpointId::new(2)), [id(1), id(2)]);
        assert_eq!(barriers.completed(CheckpointId::new(2)), []);
        assert_eq!(barriers.completed(CheckpointId::new(1)), [], "late");
        assert_eq!(barriers.completed(CheckpointId::new(9)), [id(3)]);
    }

    #[test]
    fn at_the_bound_nothing_is_written_until_a_checkpoint_completes() {
        let mut barriers = three_prepared();
        assert!(matches!(barriers.may_write(), Err(RuntimeError::TooManyPrepared { prepared: 3 })));
        barriers.completed(CheckpointId::new(1));
        assert!(barriers.may_write().is_ok());
    }

    #[test]
    fn a_barrier_is_newer_than_the_one_before_and_nothing_follows_the_last() {
        let mut barriers = Barriers::restored(Some(CheckpointId::new(4)), 3);
        let refused = barriers.may_draw(Barrier::checkpoint(CheckpointId::new(4))).unwrap_err();
        assert_eq!(refused.to_string(), "checkpoint 4 is not newer than 4");
        barriers.drawn(Barrier::last(CheckpointId::new(5)));
        assert!(matches!(barriers.may_write(), Err(RuntimeError::AfterFinal)));
        assert!(matches!(barriers.may_draw(Barrier::checkpoint(CheckpointId::new(6))), Err(RuntimeError::AfterFinal)));
    }
}
