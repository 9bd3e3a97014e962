//! Seeded mistakes: the harness must find each of them, or it would not find a real one.

/// What is done wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// Nothing.
    None,
    /// The sink shows what is only staged.
    ShowsStaged,
    /// The coordinator answers before the sync.
    RepliesBeforeSync,
    /// The coordinator's load acts on what it read without making it durable first (KAFKA-21349).
    LoadNotRewritten,
    /// A participant acknowledges before it has applied.
    AcksBeforeApplied,
    /// The sink does not recognise that it has committed before.
    CommitsTwice,
    /// The engine starts an attempt while an older one is still opening. Not among those that must be found: what it used to
    /// lose is refused by `open` as unnamed, and an engine that numbers its attempts fences the late one.
    OpensOvertaken,
}

impl Mistake {
    /// Every mistake that must be found.
    pub const ALL: [Self; 5] = [
        Self::ShowsStaged,
        Self::RepliesBeforeSync,
        Self::LoadNotRewritten,
        Self::AcksBeforeApplied,
        Self::CommitsTwice,
    ];
}
