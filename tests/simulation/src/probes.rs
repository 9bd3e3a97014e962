//! Counters of rare paths. A path that no standard seed reaches is a path that is not tested, so it fails the run.

use std::collections::BTreeMap;

macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A rare path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Probe { $($(#[$doc])* $name),* }
        impl Probe {
            /// Every probe.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

probes! {
    /// C0: a crash with a decision stepped and not written.
    C00DecisionNotWritten,
    /// C1: a crash with a decision written and not synced; it was lost.
    C01DecisionLost,
    /// C1: the same; it survived.
    C01DecisionSurvived,
    /// C2: a crash after the sync, before memory heard of it.
    C02SyncedNotNoted,
    /// C3, C4: a crash with decisions noted and participants not yet told.
    C03NobodyTold,
    /// C5, C6: a crash with some acknowledgements there and some missing.
    C05SomeAcked,
    /// C7 to C9: a crash with outcomes of terminal transactions in a batch that is not synced.
    C07OutcomesNotFlushed,
    /// C10 to C12: a crash with the removal of headers written, not synced.
    C10TerminalUnsynced,
    /// C13: a crash between two answers of one batch.
    C13RepliesLost,
    /// C14, C15: a crash while evictions or expiries are not synced.
    C14EvictionUnsynced,
    /// C17: a crash while reading back.
    C17LoadRead,
    /// C17: a crash after the rewrite, before the load record.
    C17LoadRewritten,
    /// C17: a crash with the load record written, not synced.
    C17LoadWritten,
    /// C17: a crash with the load record synced.
    C17LoadSynced,
    /// C18: a write failed.
    C18WriteFailed,
    /// C18: a sync failed.
    C18SyncFailed,
    /// C18: the store still failed at the next load.
    C18LoadFailed,
    /// Somebody was told that the decision is durable although the store failed.
    PreserverClosedTold,
    /// A batch that was never synced was there at a load.
    LoadedUnsyncedTail,
    /// Such a batch vanished at a second crash.
    UnsyncedTailVanished,
    /// Several steps shared a batch.
    BatchShared,
    /// A step joined the batch after the one in flight.
    SteppedWhileSyncing,
    /// An answer left at once while a sync was in flight.
    AnsweredWhileSyncing,
    /// A batch was full.
    BatchFull,
    /// A batch ended a round of rewriting: what came before the round was given up.
    RoundRewritten,
    /// A sweep was judged at the arrival of a request that waited.
    SweepJudgedAtArrival,
    /// An outcome was evicted by count.
    EvictedByCount,
    /// An outcome was evicted by the limit.
    EvictedByLimit,
    /// An outcome expired.
    Expired,
    /// An outcome expired in the batch that wrote it.
    DroppedUnflushed,
    /// Several transactions of one client were flushed at once.
    FlushCoalesced,
    /// A call was fenced.
    FencedCall,
    /// A superseded open came late.
    FencedOpen,
    /// `open` aborted an OPEN transaction.
    OpenAborted,
    /// `open` left a PREPARED transaction alone.
    OpenKeptPrepared,
    /// `open` was asked again by the same incarnation.
    OpenRepeated,
    /// A deadline aborted, met by a sweep.
    SweepAborted,
    /// A deadline aborted, met by a call.
    CallAborted,
    /// A prepared timeout aborted.
    PreparedTimeout,
    /// A request that came before the deadline was carried out after it.
    ArrivedBeforeDeadline,
    /// A deadline was given anew after a load.
    DeadlineRenewed,
    /// A commit was told the abort.
    CommitToldAborted,
    /// An abort was told the commit.
    AbortToldCommitted,
    /// A commit came without epoch.
    CommitWithoutEpoch,
    /// A commit of a PREPARED transaction by an epoch that was not its own.
    LateCommit,
    /// A commit straight from OPEN.
    CommitFromOpen,
    /// A commit was replayed.
    CommitReplayed,
    /// A begin of an id at or below the watermark was refused.
    TooOldRefused,
    /// A begin of a decided id told its outcome.
    BeginToldOutcome,
    /// An outcome was no longer kept.
    OutcomeExpired,
    /// An id had never begun.
    NotFound,
    /// lastCommitted did not move, since an older id was committed after a newer one.
    CommitOutOfOrder,
    /// lastCommitted outlived its outcome.
    LastCommittedAlone,
    /// A client became a tombstone by `forget`.
    Forgotten,
    /// A client became a tombstone by idleness.
    IdleShrunk,
    /// A tombstone was opened again.
    TombstoneOpened,
    /// A participant was retired with acknowledgements missing.
    RetiredPending,
    /// A retired participant was taken back.
    Reinstated,
    /// A participant joined an OPEN transaction.
    Registered,
    /// A participant was refused once the transaction was not OPEN.
    RegisterRefused,
    /// An acknowledgement came before the decision.
    AckTooEarly,
    /// An acknowledgement came again.
    AckRepeated,
    /// An operator resolved a transaction.
    Resolved,
    /// A request waited until its transaction was terminal.
    WaitedTerminal,
    /// A request waited until a participant had something to apply.
    WaitedDecision,
    /// A wait ran out.
    WaitRanOut,
    /// A batch call stopped at a failed item.
    BatchStopped,
    /// A keep-alive renewed a deadline.
    KeptAlive,
    /// The same id with other parameters.
    IdReused,
    /// Too many OPEN transactions.
    TooManyOpen,
    /// An epoch from a future that this store never saw.
    EpochUnknown,
    /// The coordinator stopped in good order.
    GracefulStop,
    /// The clock of the coordinator jumped ahead.
    ClockJumped,
    /// A job was restarted.
    JobRestarted,
    /// A job was restored with another number of workers.
    JobRescaled,
    /// Two attempts of a job ran at once.
    ZombieAttempt,
    /// A worker was fenced by another attempt.
    WorkerFenced,
    /// A worker finished a transaction that an earlier one had left committing.
    FinishedCommitting,
    /// A worker rolled back what an earlier one had left aborting.
    FinishedAborting,
    /// A worker aborted what was prepared for a checkpoint that never completed.
    AbortedBeyond,
    /// A worker left a prepared transaction to whoever restored its handle.
    LeftPrepared,
    /// A worker committed a transaction of another client's snapshot.
    CommittedForOther,
    /// The sink had already committed.
    SinkAlready,
    /// One notification committed several checkpoints' transactions.
    CommittedSeveral,
    /// A restore from an older checkpoint was refused.
    RewindRefused,
    /// A restore from an older checkpoint went through.
    RewindAccepted,
    /// A checkpointed transaction could not be committed, and the job said so.
    LoudFailure,
    /// A self-checkpointing job resumed at lastCommitted.
    SelfResumed,
    /// Staged data of an aborted transaction was found at open.
    StagedCleaned,
}

/// How often each path was taken.
#[derive(Debug, Clone, Default)]
pub struct Probes(BTreeMap<Probe, u64>);

impl Probes {
    /// A path was taken.
    pub fn hit(&mut self, probe: Probe) {
        *self.0.entry(probe).or_default() += 1;
    }

    /// A path was taken this often.
    pub fn add(&mut self, probe: Probe, times: u64) {
        if times > 0 {
            *self.0.entry(probe).or_default() += times;
        }
    }

    /// How often a path was taken.
    pub fn count(&self, probe: Probe) -> u64 {
        self.0.get(&probe).copied().unwrap_or_default()
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (probe, times) in &other.0 {
            self.add(*probe, *times);
        }
    }

    /// Paths that were never taken.
    pub fn cold(&self) -> Vec<Probe> {
        Probe::ALL.iter().copied().filter(|probe| self.count(*probe) == 0).collect()
    }
}
