//! What a step may change, one function per property.

use std::collections::BTreeMap;

use ratified_core::{Engine, Input, Key, Now, OutcomeRecord, Record, Request, Sweep, TransactionRecord};
use ratified_protocol::{ClientName, EndReason, Outcome, TxnId, TxnState};

use super::{Oracle, Verdict, causes, causes::Call, ensure};

/// A record that a step changed.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// When the step was judged.
    pub now: Now,
    /// What was carried out.
    pub input: &'a Input,
    /// Which record.
    pub key: &'a Key,
    /// As it was.
    pub before: Option<&'a Record>,
    /// As it is.
    pub after: Option<&'a Record>,
    /// The engine after the step.
    pub engine: &'a Engine,
    /// What is known, before this change.
    pub oracle: &'a Oracle,
}

/// A changed header.
#[derive(Clone, Copy)]
struct Header<'a> {
    change: &'a Change<'a>,
    client: &'a ClientName,
    id: TxnId,
    before: Option<&'a TransactionRecord>,
    after: Option<&'a TransactionRecord>,
}

type HeaderCheck = fn(&Header<'_>) -> Verdict;

const HEADER_CHECKS: &[(&str, HeaderCheck)] = &[
    ("a transaction moves along the table of transitions", header_moves_legally),
    ("nothing but begin creates a live transaction", only_begin_creates),
    ("what begin and prepare said stays", header_keeps_identity),
    ("prepare needs the current epoch", prepare_has_a_cause),
    ("a decision has its cause", decision_has_its_cause),
    ("terminal only when every participant acknowledged", terminal_when_all_acked),
    ("participants join only while OPEN", participants_join_only_open),
];

/// Checks a change against every property.
///
/// # Errors
/// The property that does not hold, and where.
pub fn check(change: &Change<'_>) -> Verdict {
    match change.key {
        Key::Transaction(client, id) => {
            let header =
                Header { change, client, id: *id, before: as_header(change.before), after: as_header(change.after) };
            for (name, check) in HEADER_CHECKS {
                check(&header).map_err(|place| format!("{name}: {client}/{id} {place}"))?;
            }
            Ok(())
        }
        Key::Outcome(client, id) => match (as_outcome(change.before), as_outcome(change.after)) {
            (None, Some(after)) => outcome_agrees(change, client, *id, after),
            (Some(before), None) => outcome_is_dropped_legally(change, client, *id, before),
            _ => Err(format!("an outcome is never rewritten: {client}/{id}")),
        },
        Key::Ack(client, id, participant) => {
            let verdict = acks_follow_decisions(change, client, *id);
            verdict.map_err(|what| format!("{what}: {client}/{id} {participant}"))
        }
        Key::Payload(client, id) => payload_is_written_once(change, client, *id),
        Key::Client(client) => super::clients::check(change, client),
        Key::Participant(name) => {
            let asked = match change.input {
                Input::Request { request: Request::Retire { participant, .. }, .. } => participant == name,
                Input::Request { request: Request::Reinstate { participant, .. }, .. } => participant == name,
                _ => false,
            };
            ensure(asked, || format!("only an operator retires and reinstates: {name}"))
        }
    }
}

fn as_header(record: Option<&Record>) -> Option<&TransactionRecord> {
    match record {
        Some(Record::Transaction(_, _, header)) => Some(header),
        _ => None,
    }
}

fn as_outcome(record: Option<&Record>) -> Option<&OutcomeRecord> {
    match record {
        Some(Record::Outcome(_, _, outcome)) => Some(outcome),
        _ => None,
    }
}

impl Change<'_> {
    fn header_now(&self, client: &ClientName, id: TxnId) -> Option<TransactionRecord> {
        match self.engine.record_at(&Key::Transaction(client.clone(), id)) {
            Some(Record::Transaction(_, _, header)) => Some(header),
            _ => None,
        }
    }

    pub(super) fn client_now(&self, client: &ClientName) -> Option<ratified_core::ClientRecord> {
        match self.engine.record_at(&Key::Client(client.clone())) {
            Some(Record::Client(_, record)) => Some(record),
            _ => None,
        }
    }

    fn outcome_now(&self, client: &ClientName, id: TxnId) -> Option<OutcomeRecord> {
        match self.engine.record_at(&Key::Outcome(client.clone(), id)) {
            Some(Record::Outcome(_, _, outcome)) => Some(outcome),
            _ => None,
        }
    }
}

impl Change<'_> {
    /// What the engine keeps of a client by now: what it had and still has, and what ended in this step.
    fn outcomes_now(&self, client: &ClientName) -> BTreeMap<TxnId, OutcomeRecord> {
        let ended = self.engine.touched().filter_map(|key| match key {
            Key::Transaction(name, id) if name == client => Some(*id),
            _ => None,
        });
        let ids = self.oracle.outcomes(client).map(|(id, _)| id).chain(ended);
        ids.filter_map(|id| Some((id, self.outcome_now(client, id)?))).collect()
    }
}

impl Header<'_> {
    fn calls(&self) -> impl Iterator<Item = Call<'_>> {
        causes::about(self.change.input, self.client, self.id)
    }

    fn is_current(&self, call: &Call<'_>) -> bool {
        let current = self.change.oracle.client(self.client).map(|c| c.epoch);
        call.epoch().is_some() && call.epoch() == current
    }

    /// What this step decided: the outcome and why; `None` for the reason if the outcome is already dropped again.
    fn decided(&self) -> Option<(Outcome, Option<EndReason>)> {
        if self.before.is_some_and(|h| h.state.outcome().is_some()) {
            return None;
        }
        match self.after {
            Some(after) => Some((after.state.outcome()?, after.decision.map(|d| d.reason))),
            None => {
                let outcome = self.change.outcome_now(self.client, self.id)?;
                Some((outcome.outcome, Some(outcome.end_reason)))
            }
        }
    }
}

const fn rank(state: TxnState) -> u8 {
    match state {
        TxnState::Open => 0,
        TxnState::Prepared => 1,
        _ => 2,
    }
}

fn header_moves_legally(header: &Header<'_>) -> Verdict {
    let (Some(before), Some(after)) = (header.before, header.after) else {
        let gone = header.before.and_then(|h| h.state.outcome());
        let outcome = header.change.outcome_now(header.client, header.id).map(|o| o.outcome);
        return ensure(gone.is_none() || outcome.is_none() || gone == outcome, || {
            format!("{gone:?} became {outcome:?}")
        });
    };
    let onward = rank(after.state) >= rank(before.state);
    let same = before.state.outcome().is_none() || before.state == after.state;
    ensure(onward && same, || format!("{} became {}", before.state, after.state))
}

fn only_begin_creates(header: &Header<'_>) -> Verdict {
    if header.before.is_some() {
        return Ok(());
    }
    let oracle = header.change.oracle;
    let begun = header.calls().any(|c| matches!(c, Call::Begin(_)) && header.is_current(&c));
    ensure(begun, || "appeared without a begin of the current epoch".to_owned())?;
    let key = (header.client.clone(), header.id);
    ensure(!oracle.was_evicted(&key), || "began at or below the watermark".to_owned())?;
    let fact = oracle.fact(&key);
    let known = fact.is_some_and(|f| f.outcome.is_some() || f.expired);
    let kept = oracle.memory.contains_key(&Key::Outcome(header.client.clone(), header.id));
    let last = oracle.client(header.client).and_then(|c| c.last_committed).is_some_and(|l| l.txn_id == header.id);
    ensure(!known && !kept && !last, || "was resurrected".to_owned())
}

fn header_keeps_identity(header: &Header<'_>) -> Verdict {
    let (Some(b), Some(a)) = (header.before, header.after) else { return Ok(()) };
    let same = b.epoch == a.epoch
        && b.timeout_ms == a.timeout_ms
        && b.require_prepare == a.require_prepare
        && b.labels == a.labels
        && b.begun == a.begun;
    ensure(same, || "was begun otherwise".to_owned())?;
    let prepared = b.checkpoint_id == a.checkpoint_id && b.prepared_timeout_ms == a.prepared_timeout_ms;
    ensure(prepared || b.state == TxnState::Open, || "was prepared otherwise".to_owned())?;
    ensure(b.decision.is_none() || b.decision == a.decision, || "was decided otherwise".to_owned())
}

fn prepare_has_a_cause(header: &Header<'_>) -> Verdict {
    let becomes = header.after.is_some_and(|h| h.state == TxnState::Prepared);
    let was = header.before.is_some_and(|h| h.state == TxnState::Prepared);
    let asked = header.calls().any(|c| matches!(c, Call::Prepare(_)) && header.is_current(&c));
    ensure(!becomes || was || asked, || "was not asked for under the current epoch".to_owned())
}

fn decision_has_its_cause(header: &Header<'_>) -> Verdict {
    let Some((outcome, reason)) = header.decided() else { return Ok(()) };
    let Some(reason) = reason else { return Ok(()) };
    let held = match reason {
        EndReason::Client if outcome == Outcome::Committed => committed_by_client(header),
        EndReason::Client => header.calls().any(|c| matches!(c, Call::Abort(_)) && header.is_current(&c)),
        EndReason::Operator => {
            let was_open = header.before.is_none_or(|h| h.state == TxnState::Open);
            let asked = header.calls().any(|c| matches!(c, Call::Resolve(o) if o == outcome));
            asked && !(was_open && outcome == Outcome::Committed)
        }
        EndReason::Timeout => outcome == Outcome::Aborted && was_due(header, TxnState::Open),
        EndReason::PreparedTimeout => outcome == Outcome::Aborted && was_due(header, TxnState::Prepared),
        EndReason::Fenced => outcome == Outcome::Aborted && overtaken_by_open(header),
    };
    let from = header.before.map(|h| h.state);
    ensure(held, || format!("{from:?} was {outcome} for {reason:?} without cause"))
}

fn committed_by_client(header: &Header<'_>) -> bool {
    let from = header.before.map(|h| h.state);
    let requires = header.before.or(header.after).is_some_and(|h| h.require_prepare);
    let prepared_here = header.calls().any(|c| matches!(c, Call::Prepare(_)));
    if overtaken_by_open(header) {
        return false;
    }
    let prepared = from == Some(TxnState::Prepared) || prepared_here;
    header.calls().any(|call| {
        let Call::Commit(request) = call else { return false };
        let current = header.is_current(&call);
        (current || (prepared && request.epoch.is_none())) && (prepared || !requires)
    })
}

fn was_due(header: &Header<'_>, state: TxnState) -> bool {
    let key = (header.client.clone(), header.id);
    let deadline = header.change.oracle.deadlines.get(&key);
    header.before.is_some_and(|h| h.state == state) && deadline.is_some_and(|d| *d <= header.change.now.uptime)
}

/// An `open` has raised the client's epoch above the transaction's, in this step or in an earlier one whose pages have not
/// come to it yet.
fn overtaken_by_open(header: &Header<'_>) -> bool {
    let Some(now) = header.change.client_now(header.client) else { return false };
    header.before.is_some_and(|h| h.state == TxnState::Open && h.epoch < now.epoch)
}

fn terminal_when_all_acked(header: &Header<'_>) -> Verdict {
    let (Some(before), None) = (header.before, header.after) else { return Ok(()) };
    let key = (header.client.clone(), header.id);
    let is_gone = |name| {
        let record = header.change.engine.record_at(&Key::Participant(name));
        matches!(record, Some(Record::Participant(_, record)) if record.retired)
    };
    let missing = before.participants.iter().find(|p| {
        let acked = header.change.oracle.acks.contains(&(key.clone(), p.name.clone()));
        // It met one that was over, and acknowledged that.
        let acks = header.calls().any(|call| matches!(call, Call::Ack(name, _) if *name == p.name));
        !acked && !acks && !p.retired && !is_gone(p.name.clone())
    });
    ensure(missing.is_none(), || format!("{missing:?} has not"))
}

fn participants_join_only_open(header: &Header<'_>) -> Verdict {
    let (Some(before), Some(after)) = (header.before, header.after) else { return Ok(()) };
    if before.participants == after.participants {
        return Ok(());
    }
    for entry in &after.participants {
        let was = before.participants.iter().find(|p| p.name == entry.name);
        if was.is_none_or(|p| p.retired && !entry.retired) {
            let asked =
                header.calls().any(|c| matches!(c, Call::Register(p, _) if *p == entry.name) && header.is_current(&c));
            ensure(asked && before.state == TxnState::Open, || format!("{} in {}", entry.name, before.state))?;
        } else if was.is_some_and(|p| !p.retired) && entry.retired {
            // In the step that retires it, or in one of its later pages.
            let leaves = match header.change.input {
                Input::Request { request: Request::Retire { participant, .. }, .. } => *participant == entry.name,
                Input::Sweep(Sweep::Calls) => {
                    let record = header.change.engine.record_at(&Key::Participant(entry.name.clone()));
                    matches!(record, Some(Record::Participant(_, record)) if record.retired)
                }
                _ => false,
            };
            ensure(leaves, || format!("{} left by itself", entry.name))?;
        }
    }
    ensure(before.participants.len() <= after.participants.len(), || "somebody was dropped".to_owned())
}

fn acks_follow_decisions(change: &Change<'_>, client: &ClientName, id: TxnId) -> Verdict {
    let header = change.header_now(client, id);
    match change.after {
        Some(_) => {
            let decided = header.is_some_and(|h| h.state.outcome().is_some());
            ensure(decided, || "acknowledged before the decision".to_owned())
        }
        None => ensure(header.is_none(), || "an acknowledgement was dropped".to_owned()),
    }
}

fn payload_is_written_once(change: &Change<'_>, client: &ClientName, id: TxnId) -> Verdict {
    let live = change.header_now(client, id).is_some();
    let last = change.client_now(client).and_then(|c| c.last_committed).is_some_and(|l| l.txn_id == id);
    ensure(change.before.is_none() || change.after.is_none(), || format!("{client}/{id} payload rewritten"))?;
    let needed = live || last;
    ensure(change.after.is_some() == needed, || format!("{client}/{id} payload, needed {needed}"))
}

fn outcome_agrees(change: &Change<'_>, client: &ClientName, id: TxnId, after: &OutcomeRecord) -> Verdict {
    let place = || format!("the preserver keeps what was decided: {client}/{id} {after:?}");
    let header = change.oracle.header(client, id);
    match header.and_then(|h| h.decision) {
        Some(decision) => {
            let outcome = header.and_then(|h| h.state.outcome());
            ensure(outcome == Some(after.outcome) && decision.reason == after.end_reason, place)?;
        }
        None => {
            let begun = causes::about(change.input, client, id).any(|c| matches!(c, Call::Begin(_)));
            ensure(header.is_some() || begun, place)?;
        }
    }
    ensure(change.header_now(client, id).is_none(), || format!("preserved while live: {client}/{id}"))?;
    ensure(after.ended <= change.engine.uptime(), || format!("a stamp from the future: {client}/{id}"))?;
    let later = change.oracle.outcomes(client).find(|(i, o)| *i != id && o.termination >= after.termination);
    // Outcomes of the same step come in order of ids, not of termination.
    let same_step = later.is_some_and(|(i, _)| causes::about(change.input, client, i).next().is_some());
    ensure(later.is_none() || same_step || !matches!(change.input, Input::Request { .. }), || {
        format!("terminations are in order: {client}/{id}")
    })
}

fn outcome_is_dropped_legally(change: &Change<'_>, client: &ClientName, id: TxnId, before: &OutcomeRecord) -> Verdict {
    let place = |why: &str| format!("eviction is legal: {client}/{id} {before:?} {why}");
    let record = change.client_now(client).ok_or_else(|| place("its client is gone"))?;
    let covered = record.evicted_through.is_some_and(|through| id <= through);
    let last = record.last_committed.is_some_and(|l| l.txn_id == id);
    ensure(covered || last, || place("left no watermark"))?;
    if let Input::Request { request: Request::Forget { client: forgotten, .. }, .. } = change.input {
        return ensure(forgotten == client && record.forgotten, || place("by another's forget"));
    }
    let kept: Vec<_> = change.outcomes_now(client).into_iter().filter(|(_, o)| o.outcome == before.outcome).collect();
    let older = kept.iter().find(|(_, o)| o.termination < before.termination);
    ensure(older.is_none(), || place("although an older one is kept"))?;
    let age = change.now.uptime.millis_since(before.ended);
    let limits = change.oracle.limits;
    match change.input {
        Input::Sweep(Sweep::Expiry) => {
            let listed = before.outcome == Outcome::Committed && kept.len() < limits.min_committed_per_client;
            ensure(!listed, || place("a checkpoint may still list it"))?;
            ensure(age >= limits.persist_time_ms, || place("too young to expire"))
        }
        Input::Sweep(Sweep::Gc) => {
            let surplus = kept.len() >= limits.persist_count;
            ensure(surplus && age >= limits.gc_retention_ms, || place("not in surplus, or too young"))
        }
        _ => {
            let most = limits.max_outcomes_per_client.max(limits.persist_count);
            ensure(kept.len() >= most, || place("below the limit"))
        }
    }
}

/// What holds after a step, whatever it changed.
///
/// # Errors
/// The property that does not hold, and where.
pub fn after_step(oracle: &Oracle, now: Now, input: &Input, engine: &Engine) -> Verdict {
    let due = |key: &super::TxnKey| oracle.deadlines.get(key).is_some_and(|d| *d <= now.uptime);
    for (client, id, _) in causes::calls(input) {
        let key = (client.clone(), id);
        // A call behind the item that stopped its batch is not looked at.
        let single = !matches!(input, Input::Request { request: Request::Batch { .. }, .. });
        ensure(!(single && due(&key)), || format!("the step that meets a deadline aborts: {client}/{id}"))?;
    }
    if matches!(input, Input::Sweep(Sweep::Timeouts)) {
        let left = oracle.deadlines.keys().find(|key| due(key));
        ensure(left.is_none(), || format!("a sweep leaves nothing that is due: {left:?}"))?;
    }
    let told = engine.next_deadline();
    let first = oracle.deadlines.values().min().copied();
    ensure(first.is_none() || told <= first, || format!("the next deadline is {first:?}, not {told:?}"))
}
