//! Which defect of the engine is on: none can be. The copy of the workspace in which the defects are seeded has another
//! file in this place.

/// A defect of the engine: there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineDefect {}

impl EngineDefect {
    /// Every defect of the engine.
    pub const ALL: &'static [Self] = &[];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {}
    }
}

/// Seeds a defect in every engine of this thread, or none.
pub const fn seed(_: Option<EngineDefect>) {}
