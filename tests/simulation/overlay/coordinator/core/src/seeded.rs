//! Which of the defects that are seeded in this copy of the state machine is on.

use std::cell::Cell;

thread_local! {
    static ON: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Switches on one defect in every engine of this thread, by its place in the list, or none.
pub fn seed(defect: Option<usize>) {
    ON.set(defect);
}

pub(crate) fn is_on(defect: usize) -> bool {
    ON.get() == Some(defect)
}
