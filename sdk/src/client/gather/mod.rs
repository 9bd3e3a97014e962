//! Concurrent calls of one process to one coordinator join one request while another is in flight. There is no timer: a
//! lone call leaves at once, as a request of its own. Each call is timed, retried, judged and fenced as if it were alone.

mod load;
mod process;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use load::Load;
pub(super) use load::{Operation, Parcel};
use tokio::{runtime::Handle, sync::oneshot};

use super::exchange::{self, Reply};
use crate::{error::Cause, transport::HttpTransport};

/// How long a call waits for a request that does not come back before it leaves beside it.
const HELD_UP: Duration = Duration::from_millis(250);
/// Most requests of one lane at once. A call beyond waits for one of them, no longer than its own timeout.
const MAX_IN_FLIGHT: usize = 4;

/// What is known of the store, as a request says it. Only calls that say the same can share a request.
type LaneKey = Option<String>;

#[derive(Default)]
struct Lane {
    in_flight: usize,
    waiting: VecDeque<Waiting>,
}

/// A call that waits for the next request.
struct Waiting {
    parcel: Parcel,
    answer: oneshot::Sender<Given>,
}

/// What a call that has waited is told.
enum Given {
    /// Its answer, as if it had been asked alone.
    Reply(Result<Reply, Cause>),
    /// To ask by itself; in the place of the request before, if that has ended.
    Alone(Option<Slot>),
}

/// One client's way into the requests of its process.
#[derive(Clone)]
pub(super) struct Gathering {
    lanes: Arc<Lanes>,
    way: Way,
}

/// How a client reaches the call over many clients.
#[derive(Clone)]
struct Way {
    url: reqwest::Url,
    transport: Arc<dyn HttpTransport>,
}

/// What is in flight to one coordinator, and what waits.
#[derive(Default)]
struct Lanes {
    open: Mutex<BTreeMap<LaneKey, Lane>>,
    /// Set once the coordinator turned out not to have the call.
    is_unknown: AtomicBool,
}

impl Gathering {
    /// Joins the calls of all clients of this process to the coordinator that is reached below `url`.
    pub(super) fn of_this_process(base: &reqwest::Url, url: reqwest::Url, transport: Arc<dyn HttpTransport>) -> Self {
        Self { lanes: process::lanes(base.as_str()), way: Way { url, transport } }
    }

    /// Joins the calls of the clones of one client.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn of_clones(url: reqwest::Url, transport: Arc<dyn HttpTransport>) -> Self {
        Self { lanes: Arc::default(), way: Way { url, transport } }
    }

    /// The answer to one call: `alone` asks it by itself, `parcel` says how it is asked together with others.
    pub(super) async fn ask(
        &self,
        known: LaneKey,
        parcel: impl FnOnce() -> Option<Parcel>,
        alone: impl Future<Output = Result<Reply, Cause>>,
    ) -> Result<Reply, Cause> {
        if self.lanes.is_unknown.load(Ordering::Relaxed) {
            return alone.await;
        }
        let mut given = match self.enter(&known, parcel) {
            Entered::Free(slot) => return alone_in(Some(slot), alone).await,
            Entered::Unfit => return alone.await,
            Entered::Waits(given) => given,
        };
        let told = match tokio::time::timeout(HELD_UP, &mut given).await {
            Ok(told) => told,
            Err(_) => {
                self.overtake(known);
                given.await
            }
        };
        match told {
            Ok(Given::Reply(reply)) => reply,
            Ok(Given::Alone(slot)) => alone_in(slot.map(|slot| slot.by(&self.way)), alone).await,
            // Whatever carried it is gone, with the runtime it ran in: it may have been carried out. Asking again tells.
            Err(_) => alone.await,
        }
    }

    fn enter(&self, known: &LaneKey, parcel: impl FnOnce() -> Option<Parcel>) -> Entered {
        let mut open = self.lanes.lock();
        let lane = open.entry(known.clone()).or_default();
        if lane.in_flight == 0 {
            lane.in_flight = 1;
            return Entered::Free(self.slot(known.clone()));
        }
        let Some(parcel) = parcel() else { return Entered::Unfit };
        let (answer, given) = oneshot::channel();
        lane.waiting.push_back(Waiting { parcel, answer });
        Entered::Waits(given)
    }

    /// Lets those that wait leave beside a request that does not come back.
    fn overtake(&self, known: LaneKey) {
        let mut open = self.lanes.lock();
        let Some(lane) = open.get_mut(&known) else { return };
        if lane.waiting.is_empty() || lane.in_flight >= MAX_IN_FLIGHT {
            return;
        }
        lane.in_flight += 1;
        drop(open);
        drop(self.slot(known));
    }

    fn slot(&self, known: LaneKey) -> Slot {
        Slot { lanes: self.lanes.clone(), way: self.way.clone(), known }
    }
}

async fn alone_in(slot: Option<Slot>, alone: impl Future<Output = Result<Reply, Cause>>) -> Result<Reply, Cause> {
    let reply = alone.await;
    drop(slot);
    reply
}

enum Entered {
    /// Nothing is in flight: it leaves at once.
    Free(Slot),
    /// It is too large to share a request.
    Unfit,
    Waits(oneshot::Receiver<Given>),
}

impl Lanes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<LaneKey, Lane>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What leaves next in a place of this lane; if nothing does, the place is given back.
    fn next(&self, known: &LaneKey) -> Option<Load> {
        let mut open = self.lock();
        let lane = open.get_mut(known)?;
        let load = Load::of(&mut lane.waiting);
        if load.is_none() {
            lane.in_flight = lane.in_flight.saturating_sub(1);
            if lane.in_flight == 0 {
                open.remove(known);
            }
        }
        load
    }
}

/// A place in flight. When its request has ended, however it ended, the place goes to those that wait.
struct Slot {
    lanes: Arc<Lanes>,
    way: Way,
    known: LaneKey,
}

impl Slot {
    /// The same place for the client that goes this way: connections belong to the runtime of who made them.
    fn by(mut self, way: &Way) -> Self {
        self.way = way.clone();
        self
    }

    fn again(&self) -> Self {
        Self { lanes: self.lanes.clone(), way: self.way.clone(), known: self.known.clone() }
    }

    async fn send(self, load: Load) {
        let request = exchange::post(self.way.url.clone(), self.known.as_deref(), load.body());
        metrics::counter!("ratified_sdk_gathered_calls_total").increment(load.calls());
        let fetched = tokio::time::timeout(load.timeout(), exchange::fetch(&*self.way.transport, request)).await;
        let reply = fetched.unwrap_or_else(|_| Err(Cause::new("no answer in time")));
        if load.answer(reply) == load::Answered::CallIsUnknown && !self.lanes.is_unknown.swap(true, Ordering::Relaxed) {
            tracing::info!("the coordinator has no call over many clients: each call is a request of its own");
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        while let Some(load) = self.lanes.next(&self.known) {
            match (load.single(), Handle::try_current()) {
                (Ok(only), _) => {
                    // A call that is no longer waited for gives the place back by dropping it.
                    drop(only.answer.send(Given::Alone(Some(self.again()))));
                    return;
                }
                (Err(load), Ok(runtime)) => {
                    drop(runtime.spawn(self.again().send(load)));
                    return;
                }
                (Err(load), Err(_)) => load.dismiss(),
            }
        }
    }
}
