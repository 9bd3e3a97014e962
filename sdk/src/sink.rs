//! What a system must offer so that the runtime can write to it exactly once.
//!
//! The shape is Flink's two-phase sink: a writer stages, a committer makes visible. What is added is what makes the
//! second half safe to repeat: every call carries the transaction's own id, `commit` says whether it found its work
//! done, and what another process needs to finish the transaction travels in a [`TwoPhaseSink::Handle`].

use std::{
    fmt,
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use ratified_protocol::{CheckpointId, ClientName, Epoch, TxnId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::SinkError;

/// How many transactions [`SinkCommitter::list_visible`] tells at most.
pub const MAX_VISIBLE: usize = 1000;

/// A worker's place among the writers of one sink when it began a transaction. It is carried with the transaction and
/// never derived again, so that a job may be rescaled while transactions are pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(u32);

impl Slot {
    /// The place with this index; the first is 0.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index.
    pub const fn as_u32(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which transaction a sink is asked to work on. (`client`, `txn_id`) names it for ever; the rest is for fencing,
/// names and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TxnContext {
    /// Whose transaction it is. Stable across restarts and hosts.
    pub client: ClientName,
    /// Its id; drawn once, never reused.
    pub txn_id: TxnId,
    /// The epoch of the owner that *calls*: after a restart a greater one than the epoch that began it. A worker that
    /// finishes what another worker's client began gives the epoch that began it.
    pub epoch: Epoch,
    /// The worker index that began it; 0 in a job without workers.
    pub slot: Slot,
    /// The checkpoint that lists it, where it is known: from `pre_commit` on.
    pub checkpoint: Option<CheckpointId>,
}

impl TxnContext {
    /// A context of slot 0 and without a checkpoint.
    pub fn new(client: ClientName, txn_id: TxnId, epoch: Epoch) -> Self {
        Self { client, txn_id, epoch, slot: Slot::new(0), checkpoint: None }
    }

    /// The same transaction, begun by this worker.
    #[must_use]
    pub fn with_slot(mut self, slot: Slot) -> Self {
        self.slot = slot;
        self
    }

    /// The same transaction, listed by this checkpoint.
    #[must_use]
    pub fn with_checkpoint(mut self, checkpoint: Option<CheckpointId>) -> Self {
        self.checkpoint = checkpoint;
        self
    }
}

/// How [`SinkCommitter::commit`] found the sink.
#[must_use = "whether a commit was a repetition must be counted"]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Committed {
    /// The data became visible by this call.
    Now,
    /// The data was visible before. Needs a proof read from the sink: a marker row, the target file, the object. The
    /// absence of staged data is no proof.
    Already,
}

/// Where a sink stages and shows. Two sinks of one client that are in equal places would take each other's data for their
/// own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(String);

impl Place {
    /// A directory, by whatever path it is reached; what does not exist yet is below what does. Asks the file system.
    pub fn directory(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let resolved = path.ancestors().find_map(|there| {
            let rest = path.strip_prefix(there).ok()?;
            // An empty rest would add a separator.
            let real = there.canonicalize().ok()?;
            Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
        });
        let path: PathBuf = resolved.unwrap_or(path).components().collect();
        Self(format!("directory {}", path.display()))
    }

    /// Anything else, by a text that is the same for the same place.
    pub fn named(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A system that can stage data invisibly, keep it across a crash, and make it visible by id.
#[async_trait]
pub trait TwoPhaseSink: Send + Sync + 'static {
    /// What is written.
    type Record: Send + 'static;
    /// What another process needs to finish a transaction. At most 64 KiB when encoded, a source position included;
    /// more must be kept beside the data and referred to.
    type Handle: Serialize + DeserializeOwned + Clone + Send + Sync + 'static;
    /// Stages data.
    type Writer: SinkWriter<Record = Self::Record, Handle = Self::Handle>;
    /// Makes staged data visible, or removes it.
    type Committer: SinkCommitter<Handle = Self::Handle>;

    /// Where the sink stages and shows, as far as it can tell without asking the system: a
    /// [`Composite`](crate::sinks::composite::Composite) refuses members that would meet. A sink that wraps another passes
    /// on what that one says. Default: nothing is known.
    fn places(&self) -> Vec<Place> {
        Vec::new()
    }

    /// A writer for one owner of one client; called once by each `open`, after older epochs were fenced.
    ///
    /// # Errors
    /// [`SinkError::Retry`] is repeated until the deadline of `open`.
    async fn writer(&self) -> Result<Self::Writer, SinkError>;

    /// A committer; called once by each `open`, before anything else.
    ///
    /// # Errors
    /// [`SinkError::Retry`] is repeated until the deadline of `open`.
    async fn committer(&self) -> Result<Self::Committer, SinkError>;
}

/// Stages the data of one transaction after the other. Nothing it does is visible to readers of the sink. The runtime
/// bounds no call: a sink must have timeouts of its own.
#[async_trait]
pub trait SinkWriter: Send + 'static {
    /// What is written.
    type Record: Send + 'static;
    /// See [`TwoPhaseSink::Handle`].
    type Handle: Send + Sync + 'static;

    /// Starts staging under this id. The coordinator already knows the id; nothing was staged under it.
    ///
    /// # Errors
    /// Ends the writer, unless it is a determinate [`SinkError::Retry`], which is repeated within a deadline.
    async fn begin(&mut self, txn: &TxnContext) -> Result<Self::Handle, SinkError>;

    /// Stages a batch; the runtime gathers records, so that a call is paid per batch. May change the handle.
    ///
    /// # Errors
    /// Any ends the writer: what was staged is given up and the job reads its records again.
    async fn write(
        &mut self,
        txn: &TxnContext,
        handle: &mut Self::Handle,
        records: Vec<Self::Record>,
    ) -> Result<(), SinkError>;

    /// Flushes: afterwards the staged data survives a crash and is still invisible. A write that failed earlier, also in
    /// the background, must surface here. The handle as it is now is what `commit` will be given.
    ///
    /// # Errors
    /// Ends the writer, unless it is a determinate [`SinkError::Retry`], which is repeated within a deadline.
    async fn pre_commit(&mut self, txn: &TxnContext, handle: &mut Self::Handle) -> Result<(), SinkError>;

    /// How many bytes were staged by this writer so far, for a metric. Default: unknown, 0.
    fn staged_bytes(&self) -> u64 {
        0
    }
}

/// Applies outcomes. The runtime bounds no call once an outcome is decided: a sink must have timeouts of its own, and tell
/// them as [`SinkError::Retry`]. A call's future may be dropped at any point, at a deadline or when the process ends; the call is
/// then made again. Runs while the writer writes, in several processes at once, and for transactions that another
/// process staged: everything it needs is in the context and the handle.
#[async_trait]
pub trait SinkCommitter: Clone + Send + Sync + 'static {
    /// See [`TwoPhaseSink::Handle`].
    type Handle: Send + Sync + 'static;

    /// Makes the staged data visible. Called only after the commit was decided for ever, and again after a lost answer
    /// or a restart, any number of times and possibly twice at once.
    ///
    /// [`Committed::Already`] needs a proof read from the sink, never the mere absence of the staged data: data that is
    /// neither staged nor visible is lost, and that is [`SinkError::Rejected`].
    ///
    /// # Errors
    /// [`SinkError::Retry`] is repeated for ever; [`SinkError::Rejected`] stops the job and keeps the transaction pending.
    async fn commit(&self, txn: &TxnContext, handle: &Self::Handle) -> Result<Committed, SinkError>;

    /// Removes everything staged under this id, also when the handle was lost, also when nothing was begun or all was
    /// removed before.
    ///
    /// # Errors
    /// As `commit`.
    async fn abort(&self, txn: &TxnContext, handle: Option<&Self::Handle>) -> Result<(), SinkError>;

    /// The transactions of this client that have something staged which is not visible; asked at `open`, for clean-up.
    ///
    /// # Errors
    /// [`SinkError::Retry`] is repeated until the deadline of `open`.
    async fn list_staged(&self, client: &ClientName) -> Result<Vec<TxnId>, SinkError>;

    /// The newest [`MAX_VISIBLE`] transactions of this client that readers see, in ascending order; asked at `open`, to refuse a
    /// job that was put back to a time before them, and one that starts anew over what it wrote before. `None`: this sink
    /// cannot tell, the default. One of which a part is visible counts; one that wrote nothing need not.
    ///
    /// # Errors
    /// [`SinkError::Retry`] is repeated until the deadline of `open`.
    async fn list_visible(&self, client: &ClientName) -> Result<Option<Vec<TxnId>>, SinkError> {
        let _ = client;
        Ok(None)
    }

    /// Ends what owners older than `epoch` still hold open: sessions, locks, uploads. Must leave what is prepared alone.
    /// Default: nothing.
    ///
    /// # Errors
    /// [`SinkError::Retry`] is repeated until the deadline of `open`.
    async fn fence(&self, client: &ClientName, epoch: Epoch) -> Result<(), SinkError> {
        let _ = (client, epoch);
        Ok(())
    }
}
