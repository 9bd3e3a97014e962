//! Which defect of the engine is on: none can be. The copy of the workspace in which they are seeded ([`crate::copy`])
//! has another file in this place.

/// A defect of the engine: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineDefect {}

impl EngineDefect {
    /// Every defect of the engine.
    pub fn all() -> impl Iterator<Item = Self> {
        std::iter::empty()
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {}
    }
}

/// Switches on a defect in every engine of this thread, or none.
pub const fn seed(_: Option<EngineDefect>) {}
