//! The writer as two threads: one that steps, one that writes and syncs.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use ratified_core::{Answer, Input, Now, Ticket};
use ratified_protocol::Code;
use tokio::sync::oneshot;

use super::{
    inbox::{Arrival, Inbox},
    load::Loaded,
    pipeline::{Pipeline, Release, Room},
    sweeps::Sweeps,
};
use crate::{
    clock::Clock,
    config::Config,
    log,
    metrics::Metrics,
    store::{Batch, Claim, Store, StoreError, codec::Meta},
};

/// How the writer ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was told to, and everything it had taken is durable.
    Stopped,
    /// The store failed.
    Failed(StoreError),
}

/// The state of the stepping thread.
pub(crate) struct Writer {
    pipeline: Pipeline,
    inbox: Arc<Inbox>,
    sweeps: Sweeps,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    replies: HashMap<Ticket, oneshot::Sender<Result<Answer, Code>>>,
    next_ticket: u64,
    to_sync: mpsc::SyncSender<Batch>,
    sync_thread: thread::JoinHandle<()>,
    sync_began: Option<Instant>,
    storage_timeout: Duration,
}

impl Writer {
    /// Takes over a loaded coordinator and starts the thread that syncs.
    pub(crate) fn new(
        loaded: Loaded,
        store: Box<dyn Store>,
        inbox: Arc<Inbox>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        config: &Config,
    ) -> std::io::Result<Self> {
        let (to_sync, batches) = mpsc::sync_channel(1);
        let ended = inbox.clone();
        let sync = thread::Builder::new().name("ratified-sync".to_owned());
        Ok(Self {
            pipeline: loaded.pipeline,
            sweeps: Sweeps::new(config.periods, clock.now().uptime),
            inbox,
            metrics,
            clock,
            replies: HashMap::new(),
            next_ticket: 0,
            to_sync,
            sync_thread: sync.spawn(move || sync_loop(store, loaded.claim, &batches, &ended))?,
            sync_began: None,
            storage_timeout: Duration::from_millis(config.storage_timeout_ms),
        })
    }

    /// Serves until it is told to stop or the store fails. Everybody is answered before it returns.
    pub(crate) fn run(mut self) -> Ended {
        if let Err(error) = self.serve().and_then(|()| self.finish()) {
            self.inbox.close(Code::StorageUnavailable);
            for (ticket, code) in self.pipeline.fail() {
                self.reply(ticket, Err(code));
            }
            self.close_store();
            return Ended::Failed(error);
        }
        for ticket in self.pipeline.take_waiting() {
            self.reply(ticket, Err(Code::ShuttingDown));
        }
        self.close_store();
        Ended::Stopped
    }

    /// Waits until the store, and with it the data directory, is free; not for a sync that did not end.
    fn close_store(self) {
        drop(self.to_sync);
        if self.sync_began.is_none() {
            let _ = self.sync_thread.join();
        }
    }

    fn serve(&mut self) -> Result<(), StoreError> {
        loop {
            self.release();
            let room = self.pipeline.room_left();
            let turn = self.inbox.wait(room, self.patience(room));
            self.take_sync(turn.synced)?;
            // The disk works on the next batch while those of the last are told.
            self.hand_over(&[])?;
            self.release();
            for probe in turn.probes {
                let gauges = self.pipeline.engine().gauges(self.clock.now().uptime);
                let _ = probe.send((*self.pipeline.engine().stats(), gauges));
            }
            if turn.stop {
                return Ok(());
            }
            if room.requests > 0 {
                self.sweep(turn.sweep_at)?;
            }
            let mut arrivals = turn.arrivals.into_iter();
            while self.pipeline.room_left().requests > 0 {
                let Some(arrival) = arrivals.next() else { break };
                self.step(arrival)?;
            }
            // The room was asked for before anything of this turn was stepped.
            self.inbox.put_back(arrivals);
            self.release();
            self.hand_over(&[])?;
        }
    }

    /// Makes everything that was stepped durable, and the uptime with it.
    fn finish(&mut self) -> Result<(), StoreError> {
        self.settle()?;
        self.hand_over(&[Meta::Uptime(self.clock.now().uptime)])?;
        self.settle()
    }

    fn settle(&mut self) -> Result<(), StoreError> {
        loop {
            self.hand_over(&[])?;
            if !self.pipeline.is_in_flight() {
                return Ok(());
            }
            let ended = self.inbox.wait_for_sync(self.storage_timeout);
            self.take_sync(ended)?;
            self.release();
        }
    }

    fn sweep(&mut self, at: Now) -> Result<(), StoreError> {
        let deadline = self.pipeline.engine().next_deadline();
        for sweep in self.sweeps.take_due(at.uptime, deadline) {
            self.pipeline.step(at, Input::Sweep(sweep), 0)?;
        }
        Ok(())
    }

    fn step(&mut self, arrival: Arrival) -> Result<(), StoreError> {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket = self.next_ticket.wrapping_add(1);
        self.replies.insert(ticket, arrival.reply);
        self.pipeline.step(arrival.now, Input::Request { ticket, request: arrival.request }, arrival.bytes)
    }

    fn take_sync(&mut self, ended: Option<Result<(), StoreError>>) -> Result<(), StoreError> {
        let Some(began) = self.sync_began else {
            return Ok(());
        };
        match ended {
            Some(result) => {
                self.sync_began = None;
                result?;
                self.metrics.synced(began.elapsed());
                self.pipeline.synced();
                Ok(())
            }
            None if began.elapsed() >= self.storage_timeout => {
                let problem = format!("no end within {} ms", self.storage_timeout.as_millis());
                Err(StoreError::indeterminate("sync", problem))
            }
            None => Ok(()),
        }
    }

    fn hand_over(&mut self, meta: &[Meta]) -> Result<(), StoreError> {
        let steps = self.pipeline.staged_steps();
        let Some(batch) = self.pipeline.seal_with(meta)? else {
            return Ok(());
        };
        self.metrics.batch(steps, batch.bytes());
        self.sync_began = Some(Instant::now());
        self.to_sync.send(batch).map_err(|_| StoreError::indeterminate("sync", "the thread that syncs has ended"))
    }

    fn release(&mut self) {
        for release in self.pipeline.take_released() {
            match release {
                Release::Reply(ticket, answer) => self.reply(ticket, Ok(answer)),
                Release::Transition(transition) => log::transition(&transition),
                Release::Ownership(ownership) => log::ownership(&ownership),
                Release::Audit(audit) => log::audit(&audit),
            }
        }
        for sweep in self.pipeline.take_again() {
            self.sweeps.again(sweep);
        }
    }

    // Whoever hung up is not told; the step is done all the same.
    fn reply(&mut self, ticket: Ticket, answer: Result<Answer, Code>) {
        if let Some(reply) = self.replies.remove(&ticket) {
            let _ = reply.send(answer);
        }
    }

    /// How long there is nothing to do: until the next sweep, unless there is no room for one, or until the sync has
    /// taken too long.
    fn patience(&self, room: Room) -> Duration {
        let sync = self.sync_began.map(|began| self.storage_timeout.saturating_sub(began.elapsed()));
        let sweep = (room.requests > 0).then(|| {
            let wake_at = self.sweeps.wake_at(self.pipeline.engine().next_deadline());
            Duration::from_millis(wake_at.millis_since(self.clock.now().uptime))
        });
        sync.into_iter().chain(sweep).min().unwrap_or(self.storage_timeout)
    }
}

fn sync_loop(mut store: Box<dyn Store>, claim: Claim, batches: &mpsc::Receiver<Batch>, ended: &Inbox) {
    while let Ok(batch) = batches.recv() {
        let written = catch_unwind(AssertUnwindSafe(|| store.write(claim, batch).and_then(|()| store.sync())));
        let result = written.unwrap_or_else(|_| Err(StoreError::indeterminate("sync", "the store panicked")));
        let has_failed = result.is_err();
        ended.sync_ended(result);
        if has_failed {
            return;
        }
    }
}
