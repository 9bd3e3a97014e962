//! What a job decides about its sink.

use std::{fmt, str::FromStr, sync::Arc};

use ratified_protocol::{CheckpointId, ClientName, EndReason, IdError, MAX_NAME_CHARS, Told};

use super::error::RuntimeError;
use crate::sink::Slot;

/// The stable name of a job's sink. Its clients are `<sink>.<slot>`; neither may contain a job id or a host, since a
/// restarted job must find what an earlier one left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SinkName(ClientName);

impl SinkName {
    /// The client of this worker index.
    ///
    /// # Errors
    /// Never for a name that was parsed: room for the longest slot is kept.
    pub fn client(&self, slot: Slot) -> Result<ClientName, IdError> {
        format!("{}.{slot}", self.0).parse()
    }

    /// What the names of all its clients start with.
    pub(crate) fn prefix(&self) -> String {
        format!("{}.", self.0)
    }

    /// The slot in the name of one of its clients; `None` for a client that is not of this sink.
    pub(crate) fn slot_of(&self, client: &ClientName) -> Option<Slot> {
        let digits = client.as_str().strip_prefix(self.0.as_str())?.strip_prefix('.')?;
        let slot = digits.parse::<u32>().ok()?;
        // One slot, one spelling: `3`, never `03` or `+3`.
        (slot.to_string() == digits).then_some(Slot::new(slot))
    }
}

impl FromStr for SinkName {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let longest_slot = ".4294967295".len();
        if text.len() + longest_slot > MAX_NAME_CHARS {
            return Err(IdError::Name);
        }
        text.parse().map(Self)
    }
}

impl fmt::Display for SinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which of the job's parallel workers this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worker {
    index: u32,
    parallelism: u32,
}

impl Worker {
    /// The only worker of a job.
    pub const ONLY: Self = Self { index: 0, parallelism: 1 };

    /// Worker `index` of `parallelism`; `None` unless `index < parallelism`.
    pub const fn new(index: u32, parallelism: u32) -> Option<Self> {
        if index < parallelism { Some(Self { index, parallelism }) } else { None }
    }

    /// The slot of what it begins.
    pub const fn slot(self) -> Slot {
        Slot::new(self.index)
    }

    /// Whether the job has no other worker.
    pub(crate) const fn is_alone(self) -> bool {
        self.parallelism == 1
    }

    /// Whether it finishes what this slot left behind: every left-over of a larger past has one owner.
    pub(crate) const fn owns(self, slot: Slot) -> bool {
        slot.as_u32() % self.parallelism == self.index
    }
}

/// What the sink of an engine promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Mode {
    /// Every record of a completed checkpoint is visible once.
    #[default]
    ExactlyOnce,
    /// Records become visible at the barrier, before the checkpoint is complete; after a failure some are written again.
    /// What an exactly-once run left pending is still finished by `open`. The coordinator hears nothing of what this mode
    /// writes: a later exactly-once run over a sink that tells what it shows must
    /// [accept that](crate::SinkBuilder::accept_unknown_data); this mode accepts it by itself. What a crash leaves staged is
    /// removed by the next `open` with the same pending store, which remembers it; without one, a
    /// [`FileStore`](crate::pending::FileStore) on a disk that stays for example, it is only
    /// [told](crate::OpenReport::unaccounted).
    AtLeastOnce,
}

/// How a transaction that a restored snapshot names can be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// It was aborted: by an operator, or by the timeout it was given.
    Aborted,
    /// Its outcome is no longer kept.
    Expired,
    /// The coordinator never heard of it.
    NotFound,
    /// A newer owner ended it, or forbids to end it.
    Fenced,
}

impl Lost {
    /// The kind of loss an error tells of, if it does.
    pub(crate) fn from_error(error: &RuntimeError) -> Option<Self> {
        match error {
            RuntimeError::TxnAborted { end_reason: Some(Told::Known(EndReason::Fenced)), .. }
            | RuntimeError::Fenced { .. } => Some(Self::Fenced),
            RuntimeError::TxnAborted { .. } => Some(Self::Aborted),
            RuntimeError::TxnExpired { .. } => Some(Self::Expired),
            RuntimeError::TxnNotFound { .. } => Some(Self::NotFound),
            _ => None,
        }
    }
}

/// What `open` does about a lost transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum LostPolicy {
    /// It fails with the loss: the job stops, and somebody looks.
    #[default]
    Fail,
    /// It goes on without the transaction, counts it and names it in the report: its records are given up.
    Skip,
}

/// What `open` does about a transaction that was prepared for the restored checkpoint, or an older one, and that no
/// snapshot names: the engine has lost the sink's state, or was given an operator of another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnnamedPolicy {
    /// It fails with [`RuntimeError::Unnamed`]: the records belong to a completed checkpoint and would stay invisible. A
    /// sink of several workers fails when the first checkpoint completes, since another worker may have the snapshot.
    #[default]
    Fail,
    /// It is committed: the coordinator has kept its handle. For an engine whose restored checkpoint is known to hold it.
    Commit,
    /// It stays prepared and invisible, and is named in the report.
    LeaveAlone,
}

/// Why a barrier was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BarrierKind {
    /// For a checkpoint.
    Checkpoint,
    /// For a savepoint. Engines may complete it without a notification; the next completed checkpoint then commits both.
    Savepoint,
    /// After the last record: nothing may be written behind it.
    Final,
}

/// The line between the records of one checkpoint and the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    /// The checkpoint's number; each greater than the one before.
    pub checkpoint: CheckpointId,
    /// What for.
    pub kind: BarrierKind,
}

impl Barrier {
    /// A barrier for a checkpoint.
    pub const fn checkpoint(id: CheckpointId) -> Self {
        Self { checkpoint: id, kind: BarrierKind::Checkpoint }
    }

    /// A barrier for a savepoint.
    pub const fn savepoint(id: CheckpointId) -> Self {
        Self { checkpoint: id, kind: BarrierKind::Savepoint }
    }

    /// The barrier after the last record.
    pub const fn last(id: CheckpointId) -> Self {
        Self { checkpoint: id, kind: BarrierKind::Final }
    }
}

/// Places in the life of a transaction at which a test or a drill may want to look, or to kill the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Point {
    /// Coordinator and sink have begun it; nothing is written yet.
    Begun,
    /// The sink has flushed; the coordinator does not know yet.
    PreCommitted,
    /// The coordinator holds it as prepared; no snapshot names it yet.
    Prepared,
    /// Commit is decided; the sink does not know yet.
    Decided,
    /// The sink has made it visible; the coordinator does not know yet.
    Applied,
    /// The coordinator knows that it is visible; the pending store still lists it.
    Acked,
}

/// Is told the points as they are passed.
#[derive(Clone)]
pub(crate) struct Observer(pub(crate) Arc<dyn Fn(Point) + Send + Sync>);

impl Default for Observer {
    fn default() -> Self {
        Self(Arc::new(|_| {}))
    }
}

impl Observer {
    pub(crate) fn pass(&self, point: Point) {
        (self.0)(point);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_sink_and_slot_in_one_spelling() {
        let sink: SinkName = "orders-job.sink".parse().unwrap();
        assert_eq!(sink.client(Slot::new(3)).unwrap().as_str(), "orders-job.sink.3");
        for (client, slot) in [
            ("orders-job.sink.3", Some(3)),
            ("orders-job.sink.4294967295", Some(u32::MAX)),
            ("orders-job.sink.03", None),
            ("orders-job.sink.", None),
            ("orders-job.sink.3.1", None),
            ("orders-job.sink.x", None),
            ("orders-job.sink2.3", None),
            ("orders-job.sink", None),
        ] {
            assert_eq!(sink.slot_of(&client.parse().unwrap()).map(Slot::as_u32), slot, "{client}");
        }
    }

    #[test]
    fn a_sink_name_leaves_room_for_every_slot() {
        assert!("s".repeat(190).parse::<SinkName>().is_err());
        let longest: SinkName = "s".repeat(189).parse().unwrap();
        assert!(longest.client(Slot::new(u32::MAX)).is_ok());
    }

    #[test]
    fn every_slot_has_one_owner() {
        for parallelism in 1..5 {
            for slot in 0..20 {
                let owners = (0..parallelism).filter(|i| Worker::new(*i, parallelism).unwrap().owns(Slot::new(slot)));
                assert_eq!(owners.count(), 1);
            }
        }
        assert_eq!(Worker::new(2, 2), None);
    }

    #[test]
    fn a_sink_is_shown_by_its_name() {
        assert_eq!("orders-job.sink".parse::<SinkName>().unwrap().to_string(), "orders-job.sink");
    }

    #[test]
    fn each_error_of_a_lost_transaction_is_of_its_kind() {
        let client: ClientName = "orders-job.sink.0".parse().unwrap();
        let txn_id = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap();
        let aborted = |end_reason| RuntimeError::TxnAborted { client: client.clone(), txn_id, end_reason };
        let fenced =
            RuntimeError::Fenced { client: client.clone(), this: String::new(), current_epoch: None, owner: None };
        for (error, lost) in [
            (aborted(None), Some(Lost::Aborted)),
            (aborted(Some(EndReason::Operator.into())), Some(Lost::Aborted)),
            (aborted(Some(EndReason::Fenced.into())), Some(Lost::Fenced)),
            (fenced, Some(Lost::Fenced)),
            (RuntimeError::TxnExpired { client: client.clone(), txn_id }, Some(Lost::Expired)),
            (RuntimeError::TxnNotFound { client: client.clone(), txn_id }, Some(Lost::NotFound)),
            (RuntimeError::Interrupted, None),
        ] {
            assert_eq!(Lost::from_error(&error), lost, "{error}");
        }
    }
}
