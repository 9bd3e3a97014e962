//! Which defect of the engine is on: in this copy of the workspace all are seeded.

use crate::defects::listed;

/// A defect of the engine, by its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineDefect(usize);

impl EngineDefect {
    /// Every defect of the engine.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..listed().len()).map(Self)
    }

    /// Its name.
    pub fn name(self) -> String {
        listed().swap_remove(self.0).name
    }
}

/// Switches on a defect in every engine of this thread, or none.
pub fn seed(defect: Option<EngineDefect>) {
    ratified_core::seeded::seed(defect.map(|defect| defect.0));
}
