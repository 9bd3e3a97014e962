//! Defects seeded on purpose, so that the simulation can prove that it would find them.
//!
//! Without the feature `faults` none is ever on, at compile time. With it, at most one is on per thread, and none until
//! a test seeds it. The feature cannot be built without debug assertions, so that no release ever carries it.

#[cfg(all(feature = "faults", not(debug_assertions)))]
compile_error!("the feature `faults` seeds defects for tests; it must never be part of a release");

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A defect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Fault { $($(#[$doc])* $name),* }
        impl Fault {
            /// Every defect.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

faults! {
    /// A decision changes memory, and is not written.
    DecisionNotWritten,
    /// Replies do not wait for the sync.
    ReplyBeforeSync,
    /// A read of a live transaction does not wait for the sync of what it saw.
    UnsyncedRead,
    /// N counts both outcomes together (PIP-255 as written).
    SharedN,
    /// Dropping the last trace of an id leaves the watermark where it is.
    EvictionWithoutWatermark,
    /// Outcomes are never written.
    FlushSkipped,
    /// Headers go in one batch, their outcomes come in the next.
    TerminalBeforeFlush,
    /// Eviction takes an outcome whose header is live.
    UnflushedEvicted,
    /// Eviction by count does not look at the retention.
    RetentionIgnored,
    /// The timeout sweep aborts PREPARED transactions.
    SweepAbortsPrepared,
    /// The timeout sweep goes by the begin, and does not look whether the deadline was renewed.
    SweepWithoutCheck,
    /// A deadline strikes one millisecond early.
    DeadlineEarly,
    /// A deadline has not passed at the deadline itself.
    DeadlineLate,
    /// A raised epoch is not written.
    EpochNotWritten,
    /// `open` aborts PREPARED transactions.
    OpenAbortsPrepared,
    /// `open` leaves the OPEN transactions of older epochs.
    OpenFencesNothing,
    /// `open` by the incarnation that holds the client aborts its own OPEN transactions.
    RepeatedOpenFences,
    /// A repeated `open` is answered before the first one is synced.
    RepeatedOpenBeforeSync,
    /// A superseded incarnation is taken for the current one: one incarnation per process.
    SupersededIsCurrent,
    /// `begin` does not look at the watermark.
    BeginBelowWatermark,
    /// `begin` does not look at the preserver.
    BeginForgetsOutcome,
    /// `prepare` is taken from any epoch.
    StalePrepare,
    /// An acknowledgement is taken before the decision.
    AckBeforeDecision,
    /// One acknowledgement counts for all.
    HeaderGoneWithPendingAck,
    /// An acknowledgement is not written.
    AckNotWritten,
    /// A participant joins a PREPARED transaction.
    JoinAfterOpen,
    /// `lastCommitted` is the commit that came last.
    LastCommittedByArrival,
    /// `lastCommitted` expires with its outcome.
    LastCommittedExpires,
    /// The payload goes with the decision.
    PayloadDroppedEarly,
    /// `forget` leaves no tombstone.
    ForgetWithoutTombstone,
    /// Expiry removes from memory only.
    ExpiryNotWritten,
    /// Expiry takes what is half as old as it must be.
    ExpiryTooEarly,
    /// A repeat writes its record again.
    RepeatWrites,
    /// The contrary outcome is told as if it were the one asked for.
    ContraryToldAsDone,
    /// What was evicted is told to have never begun.
    EvictedToldAsUnknown,
    /// What never began is told to be no longer known.
    UnknownToldAsExpired,
    /// A deadline's abort is told as FENCED (KAFKA-6119).
    TimeoutToldAsFenced,
    /// After a load deadlines go on from the begin.
    LeaseNotRenewed,
    /// After a load the numbers of decisions begin anew.
    DecisionNumbersRestart,
    /// After a load acknowledgements are forgotten.
    AcksForgotten,
    /// Nobody who waits for the end of a transaction is woken.
    WaiterForgotten,
}

impl Fault {
    /// Whether it is seeded.
    #[cfg(not(feature = "faults"))]
    pub(crate) const fn is_on(self) -> bool {
        false
    }

    /// Whether it is seeded.
    #[cfg(feature = "faults")]
    pub(crate) fn is_on(self) -> bool {
        SEEDED.get() == Some(self)
    }
}

#[cfg(feature = "faults")]
thread_local! {
    static SEEDED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Seeds a defect in every engine of this thread, or none.
#[cfg(feature = "faults")]
pub fn seed(fault: Option<Fault>) {
    SEEDED.set(fault);
}
