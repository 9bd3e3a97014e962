//! The dataflow of one worker.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};

use ratified::{Barrier, CheckpointId, EngineSink, TwoPhaseSink};
use timely::{
    dataflow::{
        InputHandle, ProbeHandle,
        channels::pact::{Exchange, Pipeline},
        operators::{Capability, Operator, Probe, vec::Broadcast},
    },
    worker::Worker,
};

use super::{
    Failure, FlowError,
    checkpoint::{Checkpoints, Part, Restored},
    totals::{Event, Row, Totals, count, owner_of},
};

/// How many epochs may be on their way.
const EPOCHS_IN_FLIGHT: u64 = 3;
/// How long a worker that has nothing to do sleeps.
const PARK: Duration = Duration::from_millis(1);

/// The part of a worker that writes.
struct Writer<S: TwoPhaseSink> {
    tokio: tokio::runtime::Handle,
    runtime: EngineSink<S>,
    totals: Totals,
    checkpoints: Checkpoints,
    index: usize,
    last_epoch: u64,
}

impl<S: TwoPhaseSink<Record = Row>> Writer<S> {
    /// Commits what these epochs have prepared.
    fn completed(&mut self, epochs: &[u64]) -> Result<(), FlowError> {
        for epoch in epochs {
            self.runtime.checkpoint_completed(CheckpointId::new(*epoch))?;
        }
        Ok(())
    }

    /// Writes the rows of an epoch, prepares its transaction, and stores what a restart needs.
    fn barrier(&mut self, epoch: u64, events: Vec<Event>) -> Result<(), FlowError> {
        for row in count(&mut self.totals, epoch, events) {
            self.tokio.block_on(self.runtime.write(row))?;
        }
        let checkpoint = CheckpointId::new(epoch);
        let is_last = epoch == self.last_epoch;
        let barrier = if is_last { Barrier::last(checkpoint) } else { Barrier::checkpoint(checkpoint) };
        let snapshot = self.tokio.block_on(self.runtime.pre_commit(barrier))?.to_bytes();
        self.checkpoints.store_part(epoch, self.index, &Part { snapshot, totals: self.totals.clone() })
    }
}

/// Runs this worker to the end of the input, or until any worker has failed.
pub(super) fn run<S: TwoPhaseSink<Record = Row>>(
    sink: EngineSink<S>,
    worker: &mut Worker,
    tokio: &tokio::runtime::Handle,
    events: &[Event],
    checkpoints: &Checkpoints,
    restored: &Restored,
    failure: &Failure,
) -> Result<(), FlowError> {
    let (index, peers) = (worker.index(), worker.peers());
    let last_epoch = events.last().map_or(0, |event| event.epoch);
    let is_own = |network: &str| owner_of(network) % peers as u64 == index as u64;
    let totals = restored.totals.iter().filter(|(network, _)| is_own(network));
    let totals = totals.map(|(network, total)| (network.clone(), *total)).collect();
    let (tokio, checkpoints) = (tokio.clone(), checkpoints.clone());
    let writer = Rc::new(RefCell::new(Writer { tokio, runtime: sink, totals, checkpoints, index, last_epoch }));

    let mut input = InputHandle::new();
    let probe = ProbeHandle::new();
    let first_epoch = restored.epoch + 1;
    build(worker, &mut input, &probe, &writer, first_epoch, failure);
    input.advance_to(first_epoch);
    for epoch in first_epoch..=last_epoch {
        let of_epoch = events.iter().enumerate().filter(|(_, event)| event.epoch == epoch);
        for (_, event) in of_epoch.filter(|(number, _)| number % peers == index) {
            input.send(event.clone());
        }
        input.advance_to(epoch + 1);
        while probe.less_than(&(epoch + 1).saturating_sub(EPOCHS_IN_FLIGHT)) && !failure.is_noted() {
            worker.step_or_park(Some(PARK));
        }
    }
    input.close();
    while !probe.done() && !failure.is_noted() {
        worker.step_or_park(Some(PARK));
    }
    // The operators let go of the writer.
    for dataflow in worker.installed_dataflows() {
        worker.drop_dataflow(dataflow);
    }
    if failure.is_noted() {
        return Ok(());
    }
    let writer = Rc::into_inner(writer).map(RefCell::into_inner);
    let writer = writer.ok_or_else(|| FlowError::Dataflow("an operator outlives its dataflow".to_owned()))?;
    writer.tokio.block_on(writer.runtime.flush_commits())?;
    Ok(writer.tokio.block_on(writer.runtime.close())?)
}

fn build<S: TwoPhaseSink<Record = Row>>(
    worker: &mut Worker,
    input: &mut InputHandle<u64, timely::container::CapacityContainerBuilder<Vec<Event>>>,
    probe: &ProbeHandle<u64>,
    writer: &Rc<RefCell<Writer<S>>>,
    first_epoch: u64,
    failure: &Failure,
) {
    let (is_completer, peers) = (worker.index() == 0, worker.peers());
    worker.dataflow::<u64, _, _>(|scope| {
        let by_network = Exchange::new(|event: &Event| owner_of(&event.network));
        let (sink, noted) = (writer.clone(), failure.clone());
        let prepared = input.to_stream(scope).unary_frontier(by_network, "Sink", move |capability, _| {
            let mut epochs = Epochs::new(capability, first_epoch, sink.borrow().last_epoch);
            let mut waiting: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
            move |(input, frontier), output| {
                input.for_each(|_, events| {
                    events.drain(..).for_each(|event| waiting.entry(event.epoch).or_default().push(event));
                });
                epochs.passed(
                    |epoch| !frontier.less_equal(&epoch),
                    |epoch, capability| {
                        let events = waiting.remove(&epoch).unwrap_or_default();
                        match sink.borrow_mut().barrier(epoch, events) {
                            Ok(()) => output.session(capability).give(epoch),
                            Err(error) => noted.note(error),
                        }
                        !noted.is_noted()
                    },
                );
            }
        });
        let (sink, noted) = (writer.clone(), failure.clone());
        let to_one = Exchange::new(|_: &u64| 0);
        let prepared = prepared.container::<Vec<u64>>();
        let completed = prepared.unary_frontier(to_one, "Complete", move |capability, _| {
            let last = if is_completer { sink.borrow().last_epoch } else { 0 };
            let mut epochs = Epochs::new(capability, first_epoch, last);
            move |(input, frontier), output| {
                input.for_each(|_, epochs| epochs.clear());
                epochs.passed(
                    // All workers have stored their parts.
                    |epoch| !frontier.less_equal(&epoch),
                    |epoch, capability| {
                        match sink.borrow().checkpoints.complete(epoch, peers) {
                            Ok(()) => output.session(capability).give(epoch),
                            Err(error) => noted.note(error),
                        }
                        !noted.is_noted()
                    },
                );
            }
        });
        let (sink, noted) = (writer.clone(), failure.clone());
        let completed = completed.container::<Vec<u64>>().broadcast();
        let committed = completed.unary(Pipeline, "Commit", move |_, _| {
            move |input, output| {
                input.for_each(|capability, epochs| {
                    if let Err(error) = sink.borrow_mut().completed(epochs) {
                        noted.note(error);
                    }
                    output.session(&capability).give_container(epochs);
                });
            }
        });
        committed.container::<Vec<u64>>().probe_with(probe);
    });
}

/// The epochs that an operator ends, one after the other, also those without a record.
struct Epochs {
    capability: Option<Capability<u64>>,
    next: u64,
    last: u64,
}

impl Epochs {
    fn new(mut capability: Capability<u64>, first: u64, last: u64) -> Self {
        capability.downgrade(&first);
        Self { capability: Some(capability).filter(|_| first <= last), next: first, last }
    }

    /// Ends each epoch that has passed, as long as that works.
    fn passed(&mut self, has_passed: impl Fn(u64) -> bool, mut end: impl FnMut(u64, &Capability<u64>) -> bool) {
        while let Some(capability) = self.capability.as_mut().filter(|_| has_passed(self.next)) {
            if !end(self.next, capability) {
                return;
            }
            self.next += 1;
            if self.next > self.last {
                self.capability = None;
            } else {
                capability.downgrade(&self.next);
            }
        }
    }
}
