//! Which store has answered so far: a client must notice a restored backup.

use std::sync::{Arc, Mutex, PoisonError};

use ratified_protocol::StoreId;

use crate::error::ClientError;

/// The greatest store id known. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreTracker {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    greatest: Option<StoreId>,
    stopped: Option<(StoreId, StoreId)>,
}

impl StoreTracker {
    /// What is known now; taken when a request is sent.
    pub(crate) fn known(&self) -> Option<StoreId> {
        self.lock().greatest
    }

    /// Refuses once a changed store was met: nothing such a store says may be acted on.
    pub(crate) fn check(&self) -> Result<(), ClientError> {
        match self.lock().stopped {
            Some((known, met)) => Err(ClientError::StoreChanged { known, met }),
            None => Ok(()),
        }
    }

    /// Takes note of the store that answered a request sent when `known_at_send` was known. A restart between request
    /// and answer makes an older number than the one known *now* legitimate.
    pub(crate) fn observe(&self, known_at_send: Option<StoreId>, met: StoreId) -> Result<(), ClientError> {
        let mut state = self.lock();
        let went_back = known_at_send.filter(|known| known.cluster_id != met.cluster_id || met.loads < known.loads);
        let stranger = state.greatest.filter(|known| known.cluster_id != met.cluster_id);
        if let Some(known) = went_back.or(stranger) {
            state.stopped.get_or_insert((known, met));
            return Err(ClientError::StoreChanged { known, met });
        }
        if state.greatest.is_none_or(|known| known.loads < met.loads) {
            state.greatest = Some(met);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(cluster: u8, loads: u64) -> StoreId {
        format!("0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e{cluster:02x}.{loads}").parse().unwrap()
    }

    #[test]
    fn loads_may_grow_and_stay() {
        let tracker = StoreTracker::default();
        for loads in [1, 1, 2, 9] {
            assert!(tracker.observe(tracker.known(), store(1, loads)).is_ok());
        }
        assert_eq!(tracker.known(), Some(store(1, 9)));
    }

    #[test]
    fn fewer_loads_than_known_when_sent_stop_for_good() {
        let tracker = StoreTracker::default();
        tracker.observe(None, store(1, 5)).unwrap();
        let met = tracker.observe(Some(store(1, 5)), store(1, 4)).unwrap_err();
        assert!(met.to_string().contains("older copy"));
        assert!(tracker.check().is_err());
    }

    #[test]
    fn an_answer_from_before_a_restart_may_come_late() {
        let tracker = StoreTracker::default();
        tracker.observe(None, store(1, 5)).unwrap();
        let known_at_send = tracker.known();
        tracker.observe(known_at_send, store(1, 6)).unwrap();
        assert!(tracker.observe(known_at_send, store(1, 5)).is_ok());
        assert_eq!(tracker.known(), Some(store(1, 6)));
    }

    #[test]
    fn another_cluster_stops_whatever_its_loads() {
        let tracker = StoreTracker::default();
        tracker.observe(None, store(1, 5)).unwrap();
        assert!(tracker.observe(None, store(2, 99)).is_err());
    }
}
