//! Finishing decided transactions in the background: oldest first, each to the end.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use ratified_protocol::{Outcome, TxnId};
use tokio::{sync::Notify, task::JoinHandle};

use super::{
    env::{Env, Status},
    error::RuntimeError,
    metrics::{self, PendingTimer},
    policy::Point,
};
use crate::{
    error::SinkError,
    pending::PendingLog,
    retry::Limit,
    sink::{SinkCommitter, TxnContext},
};

/// How often the age of the oldest pending transaction is told.
const REFRESH_PERIOD: Duration = Duration::from_secs(5);

/// A transaction that must be committed.
pub(crate) struct Ending<H> {
    pub(crate) txn: TxnContext,
    /// The sink's handle; `None`: the sink has nothing to apply.
    pub(crate) handle: Option<H>,
    /// The handle as it stands in snapshots.
    pub(crate) encoded: Vec<u8>,
    /// Whether the commit was decided already.
    pub(crate) is_decided: bool,
    pub(crate) timer: PendingTimer,
}

/// A task that ends with its owner. Nothing is aborted by that: what is prepared stays prepared.
pub(crate) struct OwnedTask(JoinHandle<()>);

impl OwnedTask {
    pub(crate) fn spawn(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The transactions to be finished, and the task that does it.
pub(crate) struct Committer<H> {
    queue: Arc<Queue<H>>,
    _task: OwnedTask,
}

struct Queue<H> {
    endings: Mutex<BTreeMap<TxnId, Arc<Ending<H>>>>,
    wake: Notify,
    status: Status,
}

impl<H: Send + Sync + 'static> Committer<H> {
    pub(crate) fn start<C>(env: Arc<Env<C>>, log: Arc<dyn PendingLog>) -> Self
    where
        C: SinkCommitter<Handle = H>,
    {
        let status = env.status.clone();
        let queue = Arc::new(Queue::new(status.clone()));
        let work = run(queue.clone(), env, log);
        let task = OwnedTask::spawn(async move {
            let finished = tokio::select! {
                biased;
                finished = AssertUnwindSafe(work).catch_unwind() => finished,
                never = keep_ages_fresh() => match never {},
            };
            let panicked = || SinkError::rejected("the committer panicked");
            status.fail(finished.unwrap_or_else(|_| RuntimeError::Sink { call: "sink.commit", error: panicked() }));
        });
        Self { queue, _task: task }
    }

    /// Hands over transactions to be finished.
    pub(crate) fn enqueue(&self, endings: impl IntoIterator<Item = Ending<H>>) {
        self.queue.enqueue(endings);
    }

    /// What is not finished, ascending.
    pub(crate) fn unfinished(&self) -> Vec<Arc<Ending<H>>> {
        self.queue.lock().values().cloned().collect()
    }
}

impl<H> Queue<H> {
    fn new(status: Status) -> Self {
        Self { endings: Mutex::default(), wake: Notify::new(), status }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TxnId, Arc<Ending<H>>>> {
        self.endings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> Option<Arc<Ending<H>>> {
        self.lock().values().next().cloned()
    }

    fn enqueue(&self, endings: impl IntoIterator<Item = Ending<H>>) {
        let mut queued = self.lock();
        queued.extend(endings.into_iter().map(|ending| (ending.txn.txn_id, Arc::new(ending))));
        // Told under the lock: else a count from before could come last, and a flush would not wait for these.
        self.status.update(|progress| progress.ending = queued.len());
        drop(queued);
        self.wake.notify_one();
    }

    fn finished(&self, id: TxnId) {
        let mut queued = self.lock();
        queued.remove(&id);
        self.status.update(|progress| {
            progress.ending = queued.len();
            progress.finished = Some(id);
        });
    }
}

/// Ages grow while nothing happens: while a commit is repeated, for example.
async fn keep_ages_fresh() -> Infallible {
    loop {
        tokio::time::sleep(REFRESH_PERIOD).await;
        metrics::refresh();
    }
}

/// Runs until something is definitely wrong; returns what.
async fn run<C: SinkCommitter>(
    queue: Arc<Queue<C::Handle>>,
    env: Arc<Env<C>>,
    log: Arc<dyn PendingLog>,
) -> RuntimeError {
    loop {
        let Some(ending) = queue.first() else {
            queue.wake.notified().await;
            continue;
        };
        if let Err(error) = finish(&env, &ending, &*log).await {
            return error;
        }
        ending.timer.finished();
        queue.finished(ending.txn.txn_id);
    }
}

async fn finish<C: SinkCommitter>(
    env: &Env<C>,
    ending: &Ending<C::Handle>,
    log: &dyn PendingLog,
) -> Result<(), RuntimeError> {
    let txn = &ending.txn;
    let Some(handle) = &ending.handle else { return Ok(()) };
    let mut is_acked = false;
    if !ending.is_decided {
        is_acked = env.decide_commit(Limit::Never, &txn.client, txn.txn_id).await?.state.is_terminal();
    }
    env.observer.pass(Point::Decided);
    // Now or Already was counted; either way the data is visible.
    let _ = env.sink_commit(Limit::Never, txn, handle).await?;
    env.observer.pass(Point::Applied);
    if !is_acked {
        env.ack(Limit::Never, txn, Outcome::Committed).await?;
    }
    env.observer.pass(Point::Acked);
    log.remove(txn.txn_id).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ratified_protocol::Epoch;

    use super::*;

    fn id(number: usize) -> TxnId {
        format!("01920000-0000-7000-8000-{number:012x}").parse().unwrap()
    }

    fn ending(number: usize) -> Ending<()> {
        let txn = TxnContext::new("job.0".parse().unwrap(), id(number), Epoch::new(1));
        Ending { txn, handle: Some(()), encoded: Vec::new(), is_decided: false, timer: PendingTimer::start() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_the_oldest_pending_transaction_grows_while_nothing_happens() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let told = recorder.handle();
        let _kept = ::metrics::set_default_local_recorder(&recorder);
        let _pending = PendingTimer::start();
        let late = REFRESH_PERIOD + Duration::from_millis(1);
        let _ = tokio::time::timeout(late, keep_ages_fresh()).await;
        // Other tests of the process may have older ones.
        let age = told
            .render()
            .lines()
            .find_map(|line| line.strip_prefix("ratified_sdk_oldest_pending_age_seconds ").map(str::to_owned));
        assert!(age.unwrap().parse::<f64>().unwrap() >= 5.0);
    }

    /// With a count that is older than the queue `flush_commits` returns before the last commit, and a job ends with its
    /// last transaction prepared.
    #[test]
    fn the_count_that_is_told_is_that_of_the_queue_at_every_instant() {
        const ROUNDS: usize = 10_000;
        let queue = Queue::new(Status::default());
        let work = |first: usize| {
            for number in first..first + ROUNDS {
                queue.enqueue([ending(number)]);
                queue.finished(id(number));
            }
        };
        let mut wrong = BTreeSet::new();
        std::thread::scope(|threads| {
            let working = [0, ROUNDS].map(|first| threads.spawn(move || work(first)));
            while !working.iter().all(|thread| thread.is_finished()) {
                let queued = queue.lock();
                let told = queue.status.now().ending;
                if told != queued.len() {
                    wrong.insert((told, queued.len()));
                }
            }
        });
        assert_eq!(wrong, BTreeSet::new(), "(told, queued)");
        assert_eq!(queue.status.now().ending, 0);
    }
}
