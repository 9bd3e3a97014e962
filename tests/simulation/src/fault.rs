//! Defects seeded on purpose: the harness has to find each of them.

use crate::engine_defect::{self, EngineDefect};

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A defect of the store double or of the client model.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Fault { $($(#[$doc])* $name),* }
        impl Fault {
            /// Every fault of this crate.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

faults! {
    /// The store double: a sync that reaches nothing.
    SyncSkipped,
    /// The store double: a load that does not rewrite what was never synced.
    LoadNotRewritten,
    /// The writer: tells the pipeline that a batch is synced as soon as it is written.
    ReleasedBeforeSync,
    /// The writer: goes on after a failed sync as if it had succeeded.
    FailedSyncIgnored,
    /// The client: acknowledges before its sink has committed.
    AckBeforeSinkCommit,
    /// The client: a completed checkpoint commits what later ones prepared, too.
    CommitAboveCheckpoint,
    /// The client: an abort of a checkpointed transaction is skipped.
    SkipOnAborted,
    /// The client: an outcome that is no longer kept is skipped.
    SkipOnExpired,
    /// The client: close aborts what is prepared.
    CloseAbortsPrepared,
    /// The client: is no participant of its own transactions, so that the header goes before the sink has committed.
    NotAParticipant,
    /// The client: after a failed pre_commit it goes on with the next checkpoint.
    PreCommitErrorNotSticky,
    /// The client: an aborted checkpoint aborts what it had prepared.
    CheckpointAbortedAborts,
    /// The client: a worker aborts prepared transactions that its snapshots do not name.
    AbortsUnnamed,
    /// The client: a restore from an older checkpoint is not refused.
    RewindNotRefused,
    /// The client: one incarnation for all attempts on a host.
    IncarnationPerHost,
    /// The client: a snapshot leaves out transactions that are decided but not finished.
    SnapshotWithoutDecided,
    /// The client: a snapshot lists only the newest transaction.
    SnapshotNewestOnly,
    /// The client: reads the source on before the commit's answer came.
    CommitNotAwaited,
    /// The client: takes a refusal of its commit for success.
    RefusalIsSuccess,
    /// The client: runs sink.commit before the decision.
    SinkCommitBeforeDecision,
    /// The client: draws ids from its own counter, not above what `open` told.
    IdsRestart,
    /// The client: open leaves what is COMMITTING to others.
    OpenSkipsCommitting,
    /// The client: after a rescale nobody takes over the clients of larger slots.
    NoTakeOver,
    /// The client: commits with the epoch of the transaction's begin.
    CommitWithOldEpoch,
}

/// The faults of a run: none, or one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Faults {
    /// None.
    #[default]
    None,
    /// In the store double or the client model.
    Model(Fault),
    /// In the engine.
    Engine(EngineDefect),
}

impl Faults {
    /// Whether this fault is in.
    pub fn has(self, fault: Fault) -> bool {
        self == Self::Model(fault)
    }

    /// Every fault there is.
    pub fn all() -> impl Iterator<Item = Self> {
        let model = Fault::ALL.iter().copied().map(Self::Model);
        model.chain(EngineDefect::all().map(Self::Engine))
    }

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Model(fault) => format!("{fault:?}"),
            Self::Engine(defect) => defect.name(),
        }
    }

    /// Seeds the engine's part in this thread.
    pub fn seed(self) {
        engine_defect::seed(match self {
            Self::Engine(defect) => Some(defect),
            _ => None,
        });
    }
}
