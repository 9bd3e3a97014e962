//! Records from a producer in the same process, which learns what is durable.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use super::{Read, Source};
use crate::error::Cause;

/// How long a read waits for a record.
const READ_WAIT: Duration = Duration::from_millis(20);

/// A channel into a job, for programs that embed one: at most `capacity` records (at least 1) wait in it.
///
/// The producer gives each record its position, any type that is ordered, and keeps a record until its position is
/// durable: then it is visible in the sink, and a restarted job goes on behind it. What is not durable when the process
/// ends must be sent again; [`ChannelSender::resume_after`] says from where.
///
/// ```
/// # use ratified::{Cause, CoordinatorClient, JobSinkBuilder, job::{Job, channel}, sinks::file::FileSink};
/// # use ratified_coordinator::{Config, Coordinator};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let coordinator = Coordinator::start(Config::local(dir.path().join("data"))).await?;
/// # let sink = FileSink::json_lines(dir.path().join("out"), "orders".parse()?).build()?;
/// # let sink = JobSinkBuilder::new(sink, CoordinatorClient::new(&coordinator.base_url())?).first_start(true);
/// let log = ["order 1", "order 2", "order 3"]; // what the producer can read again
/// let (mut sender, source) = channel::<String, usize>(100);
/// let transform = |order: String, emit: &mut Vec<String>| Ok::<_, Cause>(emit.push(order));
/// let job = tokio::spawn(Job::new("orders".parse()?, source, transform, sink).run());
///
/// let next = sender.resume_after().await?.map_or(0, |last| last + 1);
/// for (position, order) in log.iter().enumerate().skip(next) {
///     sender.send(position, (*order).to_owned()).await?;
/// }
/// let mut durable = sender.durable();
/// drop(sender); // the end of the input: the job commits what it has, and ends
/// let report = job.await??;
/// assert_eq!((report.position, *durable.borrow_and_update()), (Some(2), Some(2)));
/// # coordinator.shutdown().await?;
/// # Ok(()) }
/// ```
pub fn channel<R, P>(capacity: usize) -> (ChannelSender<R, P>, ChannelSource<R, P>)
where
    R: Send + 'static,
    P: Serialize + DeserializeOwned + Ord + fmt::Debug + Clone + Send + Sync + 'static,
{
    let (records, waiting) = mpsc::channel(capacity.max(1));
    let (started, start) = watch::channel(None);
    let (acknowledged, durable) = watch::channel(None);
    let sender = ChannelSender { records, start, durable, last: None };
    (sender, ChannelSource { waiting, started, acknowledged, position: None })
}

/// Why a producer can go on no longer, or not like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The job has ended. The caller must look at its error, start it again with a new channel, and send again what is
    /// not durable.
    #[error("the job has ended")]
    Ended,
    /// The position is not greater than the last one, or than the one the job resumed after. The caller must send in
    /// ascending order, from behind [`ChannelSender::resume_after`] on.
    #[error("the position is not greater than the last one")]
    OutOfOrder,
}

/// The producer's end. Dropping it is the end of the input.
#[derive(Debug)]
pub struct ChannelSender<R, P> {
    records: mpsc::Sender<(P, R)>,
    /// Where the job resumed, once it has: `Some(None)` is the beginning.
    start: watch::Receiver<Option<Option<P>>>,
    durable: watch::Receiver<Option<P>>,
    last: Option<P>,
}

impl<R, P: Ord + Clone> ChannelSender<R, P> {
    /// Waits until the job is open, and tells the position of the last durable record: the producer must go on behind it.
    /// `None`: nothing is, it must begin at its beginning.
    ///
    /// # Errors
    /// [`ChannelError::Ended`]: the job could not be opened.
    pub async fn resume_after(&mut self) -> Result<Option<P>, ChannelError> {
        let started = self.start.wait_for(Option::is_some).await.map_err(|_| ChannelError::Ended)?;
        Ok(started.clone().flatten())
    }

    /// Sends a record; waits while the channel is full, and before the job is open.
    ///
    /// # Errors
    /// See [`ChannelError`]; the record was not taken.
    pub async fn send(&mut self, position: P, record: R) -> Result<(), ChannelError> {
        let last = self.last.clone().max(self.resume_after().await?);
        if last.is_some_and(|last| position <= last) {
            return Err(ChannelError::OutOfOrder);
        }
        self.records.send((position.clone(), record)).await.map_err(|_| ChannelError::Ended)?;
        self.last = Some(position);
        Ok(())
    }

    /// Waits until a position is durable: it and everything before is visible in the sink and need not be sent again.
    ///
    /// # Errors
    /// [`ChannelError::Ended`]: the job ended before.
    pub async fn until_durable(&mut self, position: &P) -> Result<(), ChannelError> {
        let is_durable = |durable: &Option<P>| durable.as_ref().is_some_and(|durable| durable >= position);
        self.durable.wait_for(is_durable).await.map(drop).map_err(|_| ChannelError::Ended)
    }

    /// The greatest durable position, to be watched; it outlives the sender.
    pub fn durable(&self) -> watch::Receiver<Option<P>> {
        self.durable.clone()
    }
}

/// The job's end of a [`channel`].
pub struct ChannelSource<R, P> {
    waiting: mpsc::Receiver<(P, R)>,
    started: watch::Sender<Option<Option<P>>>,
    acknowledged: watch::Sender<Option<P>>,
    position: Option<P>,
}

impl<R, P: fmt::Debug> fmt::Debug for ChannelSource<R, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelSource").field("position", &self.position).finish_non_exhaustive()
    }
}

#[async_trait]
impl<R, P> Source for ChannelSource<R, P>
where
    R: Send + 'static,
    P: Serialize + DeserializeOwned + Ord + fmt::Debug + Clone + Send + Sync + 'static,
{
    type Record = R;
    type Position = Option<P>;

    async fn seek(&mut self, position: Option<&Option<P>>) -> Result<(), Cause> {
        if self.started.borrow().is_some() {
            return Err(Cause::new("what was taken out of a channel cannot be read again"));
        }
        self.position = position.cloned().flatten();
        self.acknowledged.send_replace(self.position.clone());
        self.started.send_replace(Some(self.position.clone()));
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<R>, Cause> {
        let mut taken = Vec::new();
        match tokio::time::timeout(READ_WAIT, self.waiting.recv_many(&mut taken, max_records)).await {
            Err(_) => return Ok(Read::Idle),
            Ok(0) => return Ok(Read::End),
            Ok(_) => {}
        }
        if let Some((position, _)) = taken.last() {
            self.position = Some(position.clone());
        }
        Ok(Read::Records(taken.into_iter().map(|(_, record)| record).collect()))
    }

    fn position(&self) -> Option<P> {
        self.position.clone()
    }

    async fn acknowledge(&mut self, position: &Option<P>) -> Result<(), Cause> {
        self.acknowledged.send_replace(position.clone());
        Ok(())
    }
}
