//! A job that checkpoints itself, on whichever host it is placed; sometimes on two at once.

use std::time::Duration;

use async_trait::async_trait;
use ratified::{
    Cause, JobSinkBuilder, RuntimeError,
    job::{Job, JobError, Read, Source},
    protocol::{ShortText, TimeoutMs},
};

use crate::{
    chaos,
    pending::PendingDisk,
    sink::{Record, SimSink},
    world::{Host, RECORDS, World, client},
};

/// The name of the job in the sink, and its client.
pub const JOB: &str = "split";

/// What is known of the job outside of it.
#[derive(Debug, Default)]
pub struct SplitState {
    has_opened: bool,
    /// Whether a run came to the end of the source.
    pub is_done: bool,
}

/// Runs the job whenever it is placed on this host, until it is done.
pub async fn run(world: World, host: Host) {
    loop {
        if world.placement(JOB) != host || world.split().is_done {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        let is_first = !world.split().has_opened;
        match attempt(&world, host, is_first).await {
            Ok(position) => {
                world.note(format!("{host} has read to {position}"));
                world.split().is_done = position == RECORDS;
            }
            Err(error) => judge(&world, host, is_first, &error),
        }
        world.linger(150).await;
    }
}

async fn attempt(world: &World, host: Host, is_first: bool) -> Result<u64, JobError> {
    world.count("split job starts");
    let sink = JobSinkBuilder::new(SimSink(world.clone()), client(world, host))
        .pending(PendingDisk { world: world.clone(), host })
        .owner(owner(host))
        .transaction_timeout(timeout())
        .open_deadline(Duration::from_secs(3))
        .close_deadline(Duration::from_secs(1))
        .batch_records(2)
        .max_pending(2)
        .first_start(is_first)
        .on_point(chaos::kill_at_points(world, host));
    let source = SimSource { world: world.clone(), next: 0 };
    let transform = |record: Record, emit: &mut Vec<Record>| {
        emit.push(record);
        Ok::<_, Cause>(())
    };
    let job = Job::new(JOB.parse().expect("a name"), source, transform, sink)
        .checkpoint_records(3)
        .checkpoint_interval(Duration::from_millis(250))
        .batch_records(3)
        .idle_pause(Duration::from_millis(20));
    Ok(job.run().await?.position)
}

/// Who a host is.
pub fn owner(host: Host) -> ShortText {
    ShortText::try_from(host.to_owned()).expect("a short text")
}

/// How long an OPEN transaction lives without its owner.
pub fn timeout() -> TimeoutMs {
    serde_json::from_value(1500.into()).expect("a timeout")
}

fn judge(world: &World, host: Host, was_first: bool, error: &JobError) {
    world.note(format!("{host} fails: {}", kind(error)));
    let is_never = match error {
        JobError::Runtime(RuntimeError::ClientUnknown { .. }) => !was_first,
        JobError::Runtime(error) => is_never(error),
        _ => true,
    };
    if is_never {
        world.violate(format!("{host}: {error}"));
    }
}

/// Errors that no fault of a run may lead to.
pub fn is_never(error: &RuntimeError) -> bool {
    use RuntimeError as E;
    match error {
        E::OpenIncomplete { cause, .. } => is_never(cause),
        E::Coordinator(error) => {
            matches!(error, ratified::ClientError::StoreChanged { .. } | ratified::ClientError::Setup(_))
        }
        E::Fenced { .. } | E::TxnAborted { .. } | E::Sink { .. } | E::Unflushed { .. } | E::Interrupted => false,
        _ => true,
    }
}

/// An error without what differs from run to run.
fn kind(error: &JobError) -> String {
    match error {
        JobError::Runtime(error) => runtime_kind(error),
        other => other.to_string(),
    }
}

/// The variant's name: the rest holds ids, which differ from run to run.
pub fn runtime_kind(error: &RuntimeError) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(', '{']).next().unwrap_or_default().to_owned()
}

struct SimSource {
    world: World,
    next: u64,
}

#[async_trait]
impl Source for SimSource {
    type Record = Record;
    type Position = u64;

    async fn seek(&mut self, position: Option<&u64>) -> Result<(), Cause> {
        self.world.split().has_opened = true;
        self.next = position.copied().unwrap_or_default();
        self.world.note(format!("split goes on from {}", self.next));
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<Record>, Cause> {
        self.world.linger(150).await;
        if self.next == RECORDS {
            return Ok(Read::End);
        }
        let count = self.world.roll(max_records as u64 + 1).min(RECORDS - self.next);
        if count == 0 {
            return Ok(Read::Idle);
        }
        let places = self.next..self.next + count;
        self.next += count;
        Ok(Read::Records(places.map(|place| (JOB, place)).collect()))
    }

    fn position(&self) -> u64 {
        self.next
    }

    async fn acknowledge(&mut self, position: &u64) -> Result<(), Cause> {
        let visible = self.world.sink().visible(JOB);
        if !(0..*position).all(|place| visible.contains(&place)) {
            self.world.violate(format!("the source is acknowledged to {position}, visible are {visible:?}"));
        }
        Ok(())
    }
}
