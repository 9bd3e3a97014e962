//! The queue between those who ask and the writer.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ratified_core::{Answer, Gauges, Now, Request, Stats};
use ratified_protocol::Code;
use tokio::sync::oneshot;

use super::pipeline::Room;
use crate::{clock::Clock, store::StoreError};

/// A request in the queue.
#[derive(Debug)]
pub struct Arrival {
    /// When it came: what its step is judged at.
    pub now: Now,
    /// What is asked.
    pub request: Request,
    /// Where the answer goes; nobody may be listening any more.
    pub reply: oneshot::Sender<Result<Answer, Code>>,
    /// The size of its body.
    pub bytes: usize,
}

/// Why a request is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The queue is full.
    Full,
    /// Nothing more is taken: this code says why.
    Closed(Code),
}

/// What the writer is given at once.
#[derive(Debug, Default)]
pub struct Turn {
    /// How the sync ended, if one did.
    pub synced: Option<Result<(), StoreError>>,
    /// Requests, oldest first.
    pub arrivals: Vec<Arrival>,
    /// Those who want to see the engine's numbers.
    pub probes: Vec<oneshot::Sender<(Stats, Gauges)>>,
    /// What sweeps are judged at: the arrival of the oldest request in the queue, or now.
    pub sweep_at: Now,
    /// Whether to stop.
    pub stop: bool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arrival>,
    bytes: usize,
    synced: Option<Result<(), StoreError>>,
    probes: Vec<oneshot::Sender<(Stats, Gauges)>>,
    closed: Option<Code>,
    stop: bool,
}

/// A bounded queue. Arrivals are stamped in the order in which they are queued.
pub struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
    arrived: tokio::sync::Notify,
    clock: Arc<dyn Clock>,
    max_requests: usize,
    max_bytes: usize,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("queued", &self.len()).finish_non_exhaustive()
    }
}

impl Inbox {
    /// An empty queue that takes this many requests, with bodies of this many bytes in all.
    pub fn new(clock: Arc<dyn Clock>, max_requests: usize, max_bytes: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            arrived: tokio::sync::Notify::new(),
            clock,
            max_requests,
            max_bytes,
        }
    }

    /// Queues a request whose body had this many bytes. What is queued is carried out, whether or not the caller still
    /// listens.
    ///
    /// # Errors
    /// The queue is full or closed; the request was not taken.
    pub fn submit(&self, request: Request, bytes: usize) -> Result<oneshot::Receiver<Result<Answer, Code>>, Refused> {
        let mut state = self.lock();
        if let Some(code) = state.closed {
            return Err(Refused::Closed(code));
        }
        if state.queue.len() >= self.max_requests || state.bytes.saturating_add(bytes) > self.max_bytes {
            return Err(Refused::Full);
        }
        let (reply, receiver) = oneshot::channel();
        state.bytes += bytes;
        state.queue.push_back(Arrival { now: self.clock.now(), request, reply, bytes });
        drop(state);
        self.wake();
        Ok(receiver)
    }

    /// Asks for the engine's numbers; the writer answers in its next turn.
    pub fn probe(&self) -> oneshot::Receiver<(Stats, Gauges)> {
        let (reply, receiver) = oneshot::channel();
        let mut state = self.lock();
        if state.closed.is_none() {
            state.probes.push(reply);
        }
        drop(state);
        self.wake();
        receiver
    }

    /// Takes nothing more, and makes the writer stop when it has finished its batch. Whoever is still in the queue is
    /// told the code.
    pub fn close(&self, code: Code) {
        let mut state = self.lock();
        state.closed.get_or_insert(code);
        state.stop = true;
        for arrival in std::mem::take(&mut state.queue) {
            let _ = arrival.reply.send(Err(code));
        }
        state.bytes = 0;
        state.probes.clear();
        drop(state);
        self.wake();
    }

    /// Tells the writer how the sync ended.
    pub fn sync_ended(&self, result: Result<(), StoreError>) {
        self.lock().synced = Some(result);
        self.wake();
    }

    /// How many requests are in the queue.
    pub fn len(&self) -> usize {
        self.lock().queue.len()
    }

    /// Whether no request is in the queue.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until something has been queued or has ended; for a writer that is a task rather than a thread.
    pub async fn changed(&self) {
        self.arrived.notified().await;
    }

    /// Takes what there is, and of the requests what there is room for.
    pub fn take(&self, room: Room) -> Turn {
        Self::turn(&mut self.lock(), room, self.clock.as_ref())
    }

    /// Gives back, in their order, what was taken last and found no room: it is taken first again.
    pub fn put_back(&self, arrivals: impl DoubleEndedIterator<Item = Arrival>) {
        let mut state = self.lock();
        for arrival in arrivals.rev() {
            match state.closed {
                Some(code) => drop(arrival.reply.send(Err(code))),
                None => {
                    state.bytes = state.bytes.saturating_add(arrival.bytes);
                    state.queue.push_front(arrival);
                }
            }
        }
    }

    /// Waits until there is something for the writer to do, or this long, and takes it.
    pub fn wait(&self, room: Room, timeout: Duration) -> Turn {
        let idle = |state: &mut State| {
            let has_work = room.requests > 0 && !state.queue.is_empty();
            !has_work && state.synced.is_none() && state.probes.is_empty() && !state.stop
        };
        let guard = self.changed.wait_timeout_while(self.lock(), timeout, idle);
        let (mut state, _) = guard.unwrap_or_else(PoisonError::into_inner);
        Self::turn(&mut state, room, self.clock.as_ref())
    }

    /// Waits until the sync has ended, or this long.
    pub fn wait_for_sync(&self, timeout: Duration) -> Option<Result<(), StoreError>> {
        let guard = self.changed.wait_timeout_while(self.lock(), timeout, |state| state.synced.is_none());
        let (mut state, _) = guard.unwrap_or_else(PoisonError::into_inner);
        state.synced.take()
    }

    fn turn(state: &mut State, room: Room, clock: &dyn Clock) -> Turn {
        let sweep_at = state.queue.front().map_or_else(|| clock.now(), |oldest| oldest.now);
        let mut arrivals = Vec::new();
        let mut bytes = 0;
        while arrivals.len() < room.requests && bytes < room.bytes {
            let Some(arrival) = state.queue.pop_front() else { break };
            bytes = bytes.saturating_add(arrival.bytes);
            arrivals.push(arrival);
        }
        state.bytes = state.bytes.saturating_sub(bytes);
        let probes = std::mem::take(&mut state.probes);
        Turn { synced: state.synced.take(), arrivals, probes, sweep_at, stop: state.stop }
    }

    fn wake(&self) {
        self.changed.notify_one();
        self.arrived.notify_one();
    }

    // A panic elsewhere leaves the queue as it was before or after one whole change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
