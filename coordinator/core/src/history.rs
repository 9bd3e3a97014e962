//! Which loads a store has had: what a caller knows is checked against it before anything is done for it.

use std::collections::BTreeMap;

use ratified_protocol::{Code, KnownStore, LoadNonce, Problem, StoreId};
use uuid::Uuid;

use crate::recovery::RecoveryError;

/// The loads of a store, each with the nonce that was drawn for it; the newest [`LoadHistory::MAX_LOADS`] of them.
///
/// A copy of a store that is put back and loaded counts on from where it was copied, so that its store id alone may
/// equal one that was given out before. Its nonce does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadHistory {
    cluster_id: Uuid,
    loads: u64,
    nonce: LoadNonce,
    nonces: BTreeMap<u64, LoadNonce>,
}

impl LoadHistory {
    /// How many loads are remembered. A caller that has not been answered for more is refused: whether its store was
    /// put back meanwhile cannot be told.
    pub const MAX_LOADS: usize = 1024;

    /// The history of a store that is new, at its first load.
    pub fn new(cluster_id: Uuid, loads: u64, nonce: LoadNonce) -> Self {
        Self { cluster_id, loads, nonce, nonces: BTreeMap::from([(loads, nonce)]) }
    }

    /// The history after one more load: `remembered` is what was read back, `loads` the number of the new load.
    ///
    /// # Errors
    /// What was read back cannot have been written: its newest load is not the one before, it is unordered or too
    /// long. The caller must refuse to start.
    pub fn resume(
        cluster_id: Uuid,
        remembered: Vec<(u64, LoadNonce)>,
        loads: u64,
        nonce: LoadNonce,
    ) -> Result<Self, RecoveryError> {
        let damaged = |problem: &str| RecoveryError { place: "meta history".to_owned(), problem: problem.to_owned() };
        if remembered.len() > Self::MAX_LOADS {
            return Err(damaged("it has too many loads"));
        }
        if !remembered.is_sorted_by(|(before, _), (after, _)| before < after) {
            return Err(damaged("its loads are not in order"));
        }
        if remembered.last().is_none_or(|(newest, _)| *newest >= loads) {
            return Err(damaged("its newest load is not before this one"));
        }
        let mut nonces: BTreeMap<_, _> = remembered.into_iter().collect();
        if nonces.len() == Self::MAX_LOADS {
            nonces.pop_first();
        }
        nonces.insert(loads, nonce);
        Ok(Self { cluster_id, loads, nonce, nonces })
    }

    /// Which store this is, and which load of it.
    pub fn store_id(&self) -> StoreId {
        StoreId::new(self.cluster_id, self.loads)
    }

    /// The nonce of this load.
    pub fn nonce(&self) -> LoadNonce {
        self.nonce
    }

    /// What is remembered, oldest first.
    pub fn loads(&self) -> impl Iterator<Item = (u64, LoadNonce)> {
        self.nonces.iter().map(|(loads, nonce)| (*loads, *nonce))
    }

    /// Whether the store that a caller knows is this one, as it is now or as it was.
    ///
    /// # Errors
    /// `STORE_CHANGED`: another store, a load that is still to come, or one that was another. Nothing may be done for
    /// the caller.
    pub fn check(&self, known: &KnownStore) -> Result<(), Problem> {
        let changed = |what: &str| {
            let detail = format!(
                "{what}: you know {}, this is {}; nothing was done. Was an older copy put back, or is this another \
                 coordinator? Have this job talk to the store that it knows",
                known.store,
                self.store_id()
            );
            Err(Problem::new(Code::StoreChanged, detail))
        };
        if known.store.cluster_id() != self.cluster_id {
            return changed("another store");
        }
        let loads = known.store.newest_loads();
        match self.nonces.get(&loads) {
            Some(nonce) if *nonce == known.nonce => Ok(()),
            Some(_) => changed("another history of the same store"),
            None if loads > self.loads => changed("an older copy of the store"),
            None => changed("a load that this store no longer remembers, or never had"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: Uuid = Uuid::from_u128(7);

    fn nonce(n: u128) -> LoadNonce {
        LoadNonce::new(Uuid::from_u128(n))
    }

    fn known(cluster_id: Uuid, loads: u64, n: u128) -> KnownStore {
        KnownStore { store: StoreId::new(cluster_id, loads), nonce: nonce(n) }
    }

    fn refused(history: &LoadHistory, known: KnownStore) -> String {
        let problem = history.check(&known).unwrap_err();
        assert_eq!(problem.code, Code::StoreChanged);
        problem.detail.split(':').next().unwrap_or_default().to_owned()
    }

    /// A history with loads 1..=count, the nonce of each its number.
    fn loaded(count: u64) -> LoadHistory {
        let first = LoadHistory::new(CLUSTER, 1, nonce(1));
        (2..=count).fold(first, |history, loads| {
            LoadHistory::resume(CLUSTER, history.loads().collect(), loads, nonce(loads.into())).unwrap()
        })
    }

    #[test]
    fn a_load_of_this_store_is_known_again_and_nothing_else_is() {
        let history = loaded(3);
        assert_eq!((history.store_id().newest_loads(), history.nonce()), (3, nonce(3)));
        for n in 1..=3 {
            assert_eq!(history.check(&known(CLUSTER, n, n.into())), Ok(()));
        }
        assert_eq!(refused(&history, known(Uuid::from_u128(8), 3, 3)), "another store");
        assert_eq!(refused(&history, known(CLUSTER, 3, 4)), "another history of the same store");
        assert_eq!(refused(&history, known(CLUSTER, 1, 3)), "another history of the same store");
        assert_eq!(refused(&history, known(CLUSTER, 4, 4)), "an older copy of the store");
    }

    #[test]
    fn the_newest_1024_loads_are_remembered() {
        let history = loaded(1024);
        assert_eq!(history.loads().next(), Some((1, nonce(1))));
        assert_eq!(history.check(&known(CLUSTER, 1, 1)), Ok(()));
        let history = loaded(1025);
        assert_eq!(history.loads().count(), 1024);
        assert_eq!(history.check(&known(CLUSTER, 2, 2)), Ok(()));
        assert_eq!(refused(&history, known(CLUSTER, 1, 1)), "a load that this store no longer remembers, or never had");
    }

    #[test]
    fn loads_may_be_skipped_and_a_skipped_one_never_was() {
        let history = LoadHistory::resume(CLUSTER, vec![(1, nonce(1))], 900, nonce(900)).unwrap();
        assert_eq!(history.check(&known(CLUSTER, 900, 900)), Ok(()));
        assert_eq!(refused(&history, known(CLUSTER, 2, 2)), "a load that this store no longer remembers, or never had");
    }

    #[test]
    fn what_cannot_have_been_written_is_refused() {
        let resume = |remembered: &[u64], loads| {
            let remembered = remembered.iter().map(|n| (*n, nonce(1))).collect();
            LoadHistory::resume(CLUSTER, remembered, loads, nonce(1)).unwrap_err().to_string()
        };
        let too_many: Vec<u64> = (1..=1025).collect();
        assert_eq!(resume(&[], 1), "meta history: its newest load is not before this one");
        assert_eq!(resume(&[1, 2], 2), "meta history: its newest load is not before this one");
        assert_eq!(resume(&[2, 1], 3), "meta history: its loads are not in order");
        assert_eq!(resume(&[1, 1], 3), "meta history: its loads are not in order");
        assert_eq!(resume(&too_many, 1026), "meta history: it has too many loads");
    }
}
