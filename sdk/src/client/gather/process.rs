//! The lanes of a process, by coordinator.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::Lanes;

static BY_COORDINATOR: Mutex<BTreeMap<String, Weak<Lanes>>> = Mutex::new(BTreeMap::new());

/// The lanes to the coordinator with this base URL, shared by all that have a client of it.
pub(super) fn lanes(base: &str) -> Arc<Lanes> {
    let mut all = BY_COORDINATOR.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(lanes) = all.get(base).and_then(Weak::upgrade) {
        return lanes;
    }
    all.retain(|_, lanes| lanes.strong_count() > 0);
    let lanes = Arc::new(Lanes::default());
    all.insert(base.to_owned(), Arc::downgrade(&lanes));
    lanes
}
