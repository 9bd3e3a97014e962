//! Which store has answered so far: a client must notice a restored backup.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use ratified_protocol::{IdError, KnownStore, LoadNonce, StoreId};
use uuid::Uuid;

use crate::error::ClientError;

/// A store as it was met: which one, how often it had been loaded, and what tells that load from one of the same number.
/// As text `<storeId>` or `<storeId>.<nonce>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MetStore {
    /// Which store, and how often it had been loaded.
    pub id: StoreId,
    /// The nonce of that load, if one was told and the id names one load only.
    pub nonce: Option<LoadNonce>,
}

impl MetStore {
    fn as_known(&self) -> Option<KnownStore> {
        let nonce = self.nonce?;
        Some(KnownStore { store: self.id.clone(), nonce })
    }
}

impl From<StoreId> for MetStore {
    fn from(id: StoreId) -> Self {
        Self { id, nonce: None }
    }
}

impl FromStr for MetStore {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.parse::<KnownStore>() {
            Ok(known) => Ok(Self { id: known.store, nonce: Some(known.nonce) }),
            Err(_) => Ok(text.parse::<StoreId>()?.into()),
        }
    }
}

impl fmt::Display for MetStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_known() {
            Some(known) => fmt::Display::fmt(&known, f),
            None => fmt::Display::fmt(&self.id, f),
        }
    }
}

/// A partition of a store; the whole of one that has none.
type Part = Option<u16>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    loads: u64,
    nonce: Option<LoadNonce>,
}

/// What was known of the store when a request was sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    known: Option<Known>,
    header: Option<KnownStore>,
}

impl Sent {
    /// What the request must say the caller knows.
    pub(crate) fn header(&self) -> Option<&KnownStore> {
        self.header.as_ref()
    }
}

/// The greatest loads of one store, each part alone.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    cluster_id: Uuid,
    loads: BTreeMap<Part, Load>,
}

impl Known {
    fn of(met: &MetStore) -> Self {
        let nonce = met.nonce;
        let loads = met.id.parts().map(|(part, loads)| (part, Load { loads, nonce })).collect();
        Self { cluster_id: met.id.cluster_id(), loads }
    }

    /// As text: partitions, once there are any.
    fn as_met(&self) -> Option<MetStore> {
        let pairs: BTreeMap<u16, u64> = self.loads.iter().filter_map(|(p, load)| Some(((*p)?, load.loads))).collect();
        let nonce = match self.loads.values().next() {
            Some(load) if self.loads.len() == 1 => load.nonce,
            _ => None,
        };
        let id = match StoreId::partitioned(self.cluster_id, pairs) {
            Ok(id) => id,
            Err(_) => StoreId::new(self.cluster_id, self.loads.get(&None)?.loads),
        };
        Some(MetStore { id, nonce })
    }

    /// Whether a store that was this may not answer so later. A whole store that became partitions, or the other way
    /// round, goes on above all that was known.
    fn forbids(&self, met: &Self) -> bool {
        self.cluster_id != met.cluster_id
            || met.loads.iter().any(|(part, load)| match (part, self.loads.get(part)) {
                (_, Some(known)) => load.loads < known.loads || load.is_another(known),
                (Some(_), None) => self.loads.get(&None).is_some_and(|whole| load.loads <= whole.loads),
                (None, None) => self.loads.values().any(|known| load.loads <= known.loads),
            })
    }

    /// Whether one load of the store would have had two nonces.
    fn contradicts(&self, met: &Self) -> bool {
        self.cluster_id != met.cluster_id
            || met.loads.iter().any(|(part, load)| self.loads.get(part).is_some_and(|known| load.is_another(known)))
    }

    fn merge(&mut self, met: &Self) {
        for (part, load) in &met.loads {
            let known = self.loads.entry(*part).or_insert(*load);
            if known.loads < load.loads || (known.loads == load.loads && known.nonce.is_none()) {
                *known = *load;
            }
        }
        // What a whole store has outgrown is of no use any longer.
        if let Some(whole) = self.loads.get(&None).copied() {
            self.loads.retain(|part, load| part.is_none() || load.loads > whole.loads);
        }
    }
}

impl Load {
    fn is_another(&self, known: &Self) -> bool {
        self.loads == known.loads && self.nonce.zip(known.nonce).is_some_and(|(nonce, known)| nonce != known)
    }
}

/// What is known of the store behind a coordinator. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreTracker {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    greatest: Option<Known>,
    /// Loads that somebody else has met, of which the coordinator was not asked yet whether it had them.
    unconfirmed: Vec<KnownStore>,
    /// Stores that this one was restored from, and an operator accepts that.
    accepted: BTreeSet<Uuid>,
    stopped: Option<Box<(MetStore, MetStore)>>,
}

impl StoreTracker {
    /// The greatest loads met.
    pub(crate) fn known(&self) -> Option<MetStore> {
        self.lock().greatest.as_ref().and_then(Known::as_met)
    }

    /// What is known now; taken when a request is sent.
    ///
    /// # Errors
    /// Once a changed store was met: nothing such a store says may be acted on.
    pub(crate) fn send(&self) -> Result<Sent, ClientError> {
        let state = self.lock();
        if let Some(stopped) = &state.stopped {
            let (known, met) = (**stopped).clone();
            return Err(ClientError::StoreChanged { known, met });
        }
        let greatest = || state.greatest.as_ref().and_then(Known::as_met).and_then(|met| met.as_known());
        let header = state.unconfirmed.first().cloned().or_else(greatest);
        Ok(Sent { known: state.greatest.clone(), header })
    }

    /// Takes note of the store that answered a request. A restart between request and answer makes an older number than
    /// the one known *now* legitimate. `accepted`: the stores that an operator accepts this one to be restored from.
    pub(crate) fn observe(&self, sent: &Sent, met: &MetStore, accepted: &[StoreId]) -> Result<(), ClientError> {
        let mut state = self.lock();
        let now = Known::of(met);
        let takes = |known: &Known| {
            known.cluster_id != now.cluster_id && accepted.iter().any(|from| from.cluster_id() == known.cluster_id)
        };
        if let Some(before) = state.greatest.take_if(|known| takes(known)) {
            state.accepted.insert(before.cluster_id);
            state.unconfirmed.clear();
        }
        let went_back = sent.known.as_ref().filter(|known| !state.accepted.contains(&known.cluster_id));
        let went_back = went_back.filter(|known| known.forbids(&now));
        let other = state.greatest.as_ref().filter(|known| known.contradicts(&now));
        if let Some(known) = went_back.or(other).and_then(Known::as_met) {
            return Err(stop(&mut state, known, met.clone()));
        }
        state.unconfirmed.retain(|known| sent.header.as_ref() != Some(known));
        match &mut state.greatest {
            Some(greatest) => greatest.merge(&now),
            None => state.greatest = Some(now),
        }
        Ok(())
    }

    /// The coordinator says that its store is not the one the request knew.
    pub(crate) fn refused(&self, sent: &Sent, met: &MetStore) -> ClientError {
        let known = sent.header.clone().map(|known| MetStore { id: known.store, nonce: Some(known.nonce) });
        stop(&mut self.lock(), known.unwrap_or_else(|| met.clone()), met.clone())
    }

    /// Makes known what somebody else has met: the next request asks the coordinator whether it had that load.
    pub(crate) fn expect(&self, met: &MetStore) -> Result<(), ClientError> {
        let mut state = self.lock();
        let expected = Known::of(met);
        if state.accepted.contains(&expected.cluster_id) {
            return Ok(());
        }
        if let Some(known) =
            state.greatest.as_ref().filter(|known| known.contradicts(&expected)).and_then(Known::as_met)
        {
            return Err(stop(&mut state, known, met.clone()));
        }
        match &mut state.greatest {
            Some(greatest) => greatest.merge(&expected),
            None => state.greatest = Some(expected),
        }
        if let Some(known) = met.as_known().filter(|known| !state.unconfirmed.contains(known)) {
            state.unconfirmed.push(known);
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stop(state: &mut State, known: MetStore, met: MetStore) -> ClientError {
    state.stopped.get_or_insert_with(|| Box::new((known.clone(), met.clone())));
    ClientError::StoreChanged { known, met }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(cluster: u8, loads: &str, nonce: Option<u8>) -> MetStore {
        let nonce = nonce.map_or(String::new(), |n| format!(".6ba7b8109dad41d180b400c04fd430{n:02x}"));
        format!("0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e{cluster:02x}.{loads}{nonce}").parse().unwrap()
    }

    fn observe(tracker: &StoreTracker, met: &MetStore) -> Result<(), ClientError> {
        tracker.observe(&tracker.send()?, met, &[])
    }

    fn header(tracker: &StoreTracker) -> Option<String> {
        tracker.send().unwrap().header().map(ToString::to_string)
    }

    #[test]
    fn loads_may_grow_and_stay_and_are_told_with_their_nonce() {
        let tracker = StoreTracker::default();
        assert_eq!(header(&tracker), None);
        for loads in [1, 1, 2, 9] {
            observe(&tracker, &met(1, &loads.to_string(), Some(loads))).unwrap();
        }
        assert_eq!(tracker.known(), Some(met(1, "9", Some(9))));
        assert_eq!(header(&tracker), Some(met(1, "9", Some(9)).to_string()));
    }

    #[test]
    fn fewer_loads_than_known_when_sent_stop_for_good() {
        let tracker = StoreTracker::default();
        observe(&tracker, &met(1, "5", None)).unwrap();
        let stopped = observe(&tracker, &met(1, "4", None)).unwrap_err().to_string();
        assert!(stopped.contains("e01.5 and now is") && stopped.contains("e01.4: an older copy"), "{stopped}");
        assert!(tracker.send().is_err());
    }

    #[test]
    fn the_same_load_with_another_nonce_stops_for_good() {
        let tracker = StoreTracker::default();
        observe(&tracker, &met(1, "5", Some(1))).unwrap();
        assert!(observe(&tracker, &met(1, "5", Some(2))).is_err());
        assert!(tracker.send().is_err());
    }

    #[test]
    fn an_answer_from_before_a_restart_may_come_late() {
        let tracker = StoreTracker::default();
        observe(&tracker, &met(1, "5", None)).unwrap();
        let sent = tracker.send().unwrap();
        tracker.observe(&sent, &met(1, "6", None), &[]).unwrap();
        assert!(tracker.observe(&sent, &met(1, "5", None), &[]).is_ok());
        assert_eq!(tracker.known(), Some(met(1, "6", None)));
    }

    #[test]
    fn another_cluster_stops_whatever_its_loads() {
        let tracker = StoreTracker::default();
        observe(&tracker, &met(1, "5", None)).unwrap();
        assert!(tracker.observe(&Sent::default(), &met(2, "99", None), &[]).is_err());
    }

    #[test]
    fn a_restored_store_is_taken_for_the_one_it_was_restored_from_once_that_is_accepted() {
        let tracker = StoreTracker::default();
        tracker.expect(&met(1, "5", Some(1))).unwrap();
        let from = [met(1, "3", None).id];
        tracker.observe(&tracker.send().unwrap(), &met(2, "1", Some(7)), &from).unwrap();
        assert_eq!(tracker.known(), Some(met(2, "1", Some(7))));
        assert_eq!(header(&tracker), Some(met(2, "1", Some(7)).to_string()));
        tracker.expect(&met(1, "5", Some(1))).unwrap();
        assert!(observe(&tracker, &met(1, "6", None)).is_err(), "the one before is a stranger now");
    }

    #[test]
    fn what_somebody_else_has_met_is_asked_about_once() {
        let tracker = StoreTracker::default();
        observe(&tracker, &met(1, "7", Some(7))).unwrap();
        tracker.expect(&met(1, "6", Some(6))).unwrap();
        assert_eq!(header(&tracker), Some(met(1, "6", Some(6)).to_string()));
        observe(&tracker, &met(1, "7", Some(7))).unwrap();
        assert_eq!(header(&tracker), Some(met(1, "7", Some(7)).to_string()));
        assert!(tracker.expect(&met(1, "7", Some(8))).is_err());
    }

    #[test]
    fn each_partition_of_a_store_counts_alone() {
        let tracker = StoreTracker::default();
        observe(&tracker, &met(1, "0:5", None)).unwrap();
        observe(&tracker, &met(1, "3:2", None)).unwrap();
        assert_eq!(tracker.known(), Some(met(1, "0:5,3:2", None)));
        observe(&tracker, &met(1, "0:5,3:4,7:1", None)).unwrap();
        assert!(observe(&tracker, &met(1, "3:3", None)).is_err());
    }

    #[test]
    fn a_store_that_is_moved_goes_on_above_all_that_was_known() {
        for (before, after, is_taken) in
            [("5", "0:6", true), ("5", "0:5", false), ("0:5,1:7", "8", true), ("0:5,1:7", "7", false)]
        {
            let tracker = StoreTracker::default();
            observe(&tracker, &met(1, before, None)).unwrap();
            assert_eq!(observe(&tracker, &met(1, after, None)).is_ok(), is_taken, "{before} {after}");
        }
    }
}
