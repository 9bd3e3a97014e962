//! What an answer may say, one function per property. An answer is judged when it leaves, whether or not it arrives.

use ratified_core::{Answer, Key, Record, Request, Success, TxnCall};
use ratified_protocol::{
    ClientName, Code, EndReason, Epoch, Incarnation, OpenAnswer, Outcome, Payload, Problem, Told, Txn, TxnId, TxnState,
};

use super::{Asked, Oracle, TxnKey, Verdict, causes, causes::Call, ensure};
use crate::probes::Probes;

/// One thing that an answer says.
#[derive(Debug)]
enum Said<'a> {
    Txn(&'a Txn),
    Outcome(TxnKey, Outcome, Option<EndReason>),
    NotFound(TxnKey),
    Expired(TxnKey),
    Opened(&'a ClientName, &'a OpenAnswer, Incarnation),
    Fenced(&'a ClientName, &'a Problem, Option<Epoch>),
    EpochUnknown(&'a ClientName, Option<Epoch>),
    ClientUnknown(&'a ClientName),
}

type Check = fn(&Oracle, &Said<'_>) -> Verdict;

const CHECKS: &[(&str, Check)] = &[
    ("all answers ever given about one id agree", answers_agree),
    ("an outcome is told only when its decision is durable", outcome_is_durable),
    ("a state is told only when it is durable", state_is_durable),
    ("terminal is told only when it is durable", terminal_is_durable),
    ("a payload is told as it was given", payload_is_true),
    ("NOT_FOUND is never told of what was acknowledged", not_found_is_true),
    ("EXPIRED is told only below a durable watermark", expired_is_true),
    ("an epoch is given to one incarnation, durably", epoch_is_unique),
    ("FENCED names a newer epoch", fenced_is_true),
    ("EPOCH_UNKNOWN is never told of an epoch that was given out", epoch_unknown_is_true),
    ("CLIENT_NOT_FOUND is never told of a client in use", client_unknown_is_true),
];

impl Oracle {
    /// Checks an answer against everything ever told and everything durable, and remembers what it says.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn told(&mut self, asked: &Asked, answer: &Answer, probes: &mut Probes) -> Verdict {
        let mut said = statements(asked, answer);
        if let Request::Batch { .. } = &asked.request {
            // An item that read what a later item changed: whoever waited for that change may have heard of it first.
            let (begun, decided) = changed_by(&asked.request);
            said.retain(|one| match one {
                Said::Txn(txn) => txn.state.outcome().is_some() || !decided.contains(&txn.txn_id),
                Said::NotFound((_, id)) => !begun.contains(id),
                _ => true,
            });
        }
        for one in &said {
            for (property, check) in CHECKS {
                check(self, one).map_err(|place| format!("{property}: {place}; said {one:?}"))?;
            }
        }
        success_fits(asked, answer)?;
        repeats_change_nothing(asked, answer)?;
        for one in &said {
            self.remember(asked, one);
        }
        crate::paths::of_answer(probes, asked, answer);
        Ok(())
    }

    /// Somebody was told that his decision is durable although the store failed.
    ///
    /// # Errors
    /// It is not.
    pub fn preserver_closed(&self, asked: &Asked) -> Verdict {
        for (client, id, call) in causes::of_request(&asked.request) {
            let outcome = match call {
                Call::Commit(_) => Outcome::Committed,
                Call::Abort(_) => Outcome::Aborted,
                Call::Resolve(outcome) => outcome,
                _ => continue,
            };
            let key = (client.clone(), id);
            ensure(self.is_decided_durably(&key, outcome), || {
                format!("TRANSACTION_PRESERVER_CLOSED although nothing is durable: {key:?} {outcome}")
            })?;
        }
        Ok(())
    }

    fn remember(&mut self, asked: &Asked, said: &Said<'_>) {
        match said {
            Said::Txn(txn) => {
                let key = (txn.client_name.clone(), txn.txn_id);
                let fact = self.facts.entry(key).or_default();
                fact.exists = true;
                fact.prepared |= txn.state != TxnState::Open;
                fact.terminal |= txn.state.is_terminal();
                if let Some(outcome) = txn.state.outcome() {
                    fact.outcome = Some(outcome);
                    fact.reason = fact.reason.or(reason_of(txn));
                }
                if let Some(payload) = given_payload(asked, txn).filter(|_| fact.payload.is_none()) {
                    fact.payload = Some(payload.to_bytes());
                }
            }
            Said::Outcome(key, outcome, reason) => {
                let fact = self.facts.entry(key.clone()).or_default();
                fact.exists = true;
                fact.prepared = true;
                fact.outcome = Some(*outcome);
                fact.reason = fact.reason.or(*reason);
            }
            Said::Expired(key) => self.facts.entry(key.clone()).or_default().expired = true,
            Said::Opened(client, answer, incarnation) => {
                let fact = self.clients.entry((*client).clone()).or_default();
                fact.epochs.insert(answer.epoch, *incarnation);
                fact.evicted_through = fact.evicted_through.max(answer.evicted_through);
            }
            _ => {}
        }
    }

    fn durable_client(&self, client: &ClientName) -> Option<&ratified_core::ClientRecord> {
        match self.durable.get(&Key::Client(client.clone())) {
            Some(Record::Client(_, record)) => Some(record),
            _ => None,
        }
    }

    fn is_evicted_durably(&self, (client, id): &TxnKey) -> bool {
        let through = self.durable_client(client).and_then(|c| c.evicted_through);
        through.is_some_and(|through| *id <= through)
    }

    fn durable_outcome(&self, (client, id): &TxnKey) -> Option<Outcome> {
        if let Some(Record::Outcome(_, _, record)) = self.durable.get(&Key::Outcome(client.clone(), *id)) {
            return Some(record.outcome);
        }
        if let Some(Record::Transaction(_, _, header)) = self.durable.get(&Key::Transaction(client.clone(), *id)) {
            return header.state.outcome();
        }
        let last = self.durable_client(client)?.last_committed?;
        (last.txn_id == *id).then_some(Outcome::Committed)
    }

    fn is_decided_durably(&self, key: &TxnKey, outcome: Outcome) -> bool {
        match self.durable_outcome(key) {
            Some(durable) => durable == outcome,
            None => self.is_evicted_durably(key),
        }
    }
}

/// What a batch begins, and what it decides.
fn changed_by(request: &Request) -> (Vec<TxnId>, Vec<TxnId>) {
    let (mut begun, mut decided) = (Vec::new(), Vec::new());
    for (_, id, call) in causes::of_request(request) {
        match call {
            Call::Begin(_) => begun.push(id),
            Call::Commit(_) | Call::Abort(_) => decided.push(id),
            _ => {}
        }
    }
    (begun, decided)
}

/// The payload that this call set, if it was the one that did.
fn given_payload<'a>(asked: &'a Asked, txn: &Txn) -> Option<&'a Payload> {
    let Request::Txn { call, .. } = &asked.request else { return None };
    let committed = txn.state.outcome() == Some(Outcome::Committed);
    match call {
        TxnCall::Prepare(request) if txn.state == TxnState::Prepared => request.payload.as_ref(),
        TxnCall::Commit(request) if committed && asked.changed => request.payload.as_ref(),
        _ => None,
    }
}

fn statements<'a>(asked: &'a Asked, answer: &'a Answer) -> Vec<Said<'a>> {
    let mut said = Vec::new();
    let client = client_of(&asked.request);
    match answer {
        Answer::Txn(_, txn) => said.push(Said::Txn(txn)),
        Answer::Open(open) => {
            let (Some(client), Request::Open { body, .. }) = (client, &asked.request) else { return said };
            said.push(Said::Opened(client, open, body.incarnation));
            said.extend(open.unfinished.iter().map(Said::Txn));
            if let Some(last) = &open.last_committed {
                let key = (client.clone(), last.txn_id);
                said.push(Said::Outcome(key, Outcome::Committed, last.end_reason.known()));
            }
        }
        Answer::Batch(batch) => {
            let calls = causes::of_request(&asked.request);
            for (result, (client, id, call)) in batch.results.iter().zip(calls) {
                said.extend(result.txn.as_ref().map(Said::Txn));
                if let Some(problem) = &result.problem {
                    refusal(&mut said, client, Some((id, call.epoch())), problem);
                }
            }
        }
        Answer::Decisions(decisions) => said.extend(
            decisions
                .decisions
                .iter()
                .filter_map(|d| Some(Said::Outcome((d.client_name.clone(), d.txn_id), d.outcome.known()?, None))),
        ),
        Answer::Preserver(all) => said.extend(
            all.outcomes
                .iter()
                .filter_map(|o| Some((o, o.outcome.known()?)))
                .map(|(o, out)| Said::Outcome((all.client_name.clone(), o.txn_id), out, o.end_reason.known())),
        ),
        Answer::Preserved(one) => {
            let key = client.map(|client| (client.clone(), one.txn_id));
            said.extend(key.zip(one.outcome.known()).map(|(key, out)| Said::Outcome(key, out, one.end_reason.known())));
        }
        Answer::Txns(list) => said.extend(list.items.iter().map(Said::Txn)),
        Answer::Problem(problem) => {
            let Some(client) = client else { return said };
            let call = causes::of_request(&asked.request).into_iter().next();
            refusal(&mut said, client, call.map(|(_, id, call)| (id, call.epoch())), problem);
        }
        _ => {}
    }
    said
}

fn refusal<'a>(
    said: &mut Vec<Said<'a>>,
    client: &'a ClientName,
    call: Option<(TxnId, Option<Epoch>)>,
    problem: &'a Problem,
) {
    said.extend(problem.txn.as_deref().map(Said::Txn));
    let epoch = call.and_then(|(_, epoch)| epoch);
    let key = call.map(|(id, _)| (client.clone(), id));
    match (problem.code.known(), key) {
        (Some(Code::TxnNotFound), Some(key)) => said.push(Said::NotFound(key)),
        (Some(Code::OutcomeExpired | Code::TxnIdTooOld), Some(key)) => said.push(Said::Expired(key)),
        (Some(Code::Fenced), _) => said.push(Said::Fenced(client, problem, epoch)),
        (Some(Code::EpochUnknown), _) => said.push(Said::EpochUnknown(client, epoch)),
        (Some(Code::ClientNotFound), _) => said.push(Said::ClientUnknown(client)),
        _ => {}
    }
}

fn client_of(request: &Request) -> Option<&ClientName> {
    match request {
        Request::Open { client, .. }
        | Request::Txn { client, .. }
        | Request::Batch { client, .. }
        | Request::Preserver { client }
        | Request::PreserverLookup { client, .. }
        | Request::Forget { client, .. } => Some(client),
        _ => None,
    }
}

fn reason_of(txn: &Txn) -> Option<EndReason> {
    txn.end_reason.as_ref().and_then(Told::known)
}

fn answers_agree(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let (key, outcome, reason) = match said {
        Said::Txn(txn) => ((txn.client_name.clone(), txn.txn_id), txn.state.outcome(), reason_of(txn)),
        Said::Outcome(key, outcome, reason) => (key.clone(), Some(*outcome), *reason),
        _ => return Ok(()),
    };
    let Some(fact) = oracle.fact(&key) else { return Ok(()) };
    let live_again = outcome.is_none() && fact.outcome.is_some();
    let other = outcome.is_some() && fact.outcome.is_some() && outcome != fact.outcome;
    let other_reason = reason.is_some() && fact.reason.is_some() && reason != fact.reason;
    ensure(!live_again && !other && !other_reason, || format!("{key:?} was told as {fact:?}"))?;
    ensure(outcome.is_some() || !fact.expired, || format!("{key:?} was told to be expired"))
}

fn outcome_is_durable(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let (key, outcome) = match said {
        Said::Txn(txn) => ((txn.client_name.clone(), txn.txn_id), txn.state.outcome()),
        Said::Outcome(key, outcome, _) => (key.clone(), Some(*outcome)),
        _ => return Ok(()),
    };
    let Some(outcome) = outcome else { return Ok(()) };
    ensure(oracle.is_decided_durably(&key, outcome), || format!("{key:?} {outcome}"))
}

fn state_is_durable(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::Txn(txn) = said else { return Ok(()) };
    if txn.state.outcome().is_some() {
        return Ok(());
    }
    let key = (txn.client_name.clone(), txn.txn_id);
    let durable = match oracle.durable.get(&Key::Transaction(key.0.clone(), key.1)) {
        Some(Record::Transaction(_, _, header)) => txn.state == TxnState::Open || header.state != TxnState::Open,
        _ => oracle.durable_outcome(&key).is_some() || oracle.is_evicted_durably(&key),
    };
    ensure(durable, || format!("{key:?} {}", txn.state))
}

fn terminal_is_durable(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::Txn(txn) = said else { return Ok(()) };
    let live = oracle.durable.contains_key(&Key::Transaction(txn.client_name.clone(), txn.txn_id));
    ensure(!(txn.state.is_terminal() && live), || format!("{} still has its header", txn.txn_id))
}

fn payload_is_true(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::Txn(txn) = said else { return Ok(()) };
    let key = (txn.client_name.clone(), txn.txn_id);
    let Some(given) = oracle.fact(&key).and_then(|f| f.payload.as_ref()) else { return Ok(()) };
    let told = txn.payload.as_ref().map(Payload::as_bytes);
    let must = !txn.state.is_terminal() && !txn.payload_omitted;
    let right = told.map_or(!must, |told| told == given.as_ref());
    ensure(right, || format!("{key:?} {told:?} instead of {given:?}"))
}

fn not_found_is_true(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::NotFound(key) = said else { return Ok(()) };
    let fact = oracle.fact(key);
    ensure(fact.is_none_or(|f| !f.exists && !f.expired), || format!("{key:?} was told as {fact:?}"))
}

fn expired_is_true(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::Expired(key) = said else { return Ok(()) };
    ensure(oracle.is_evicted_durably(key), || format!("{key:?}"))
}

fn epoch_is_unique(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::Opened(client, answer, incarnation) = said else { return Ok(()) };
    let durable = oracle.durable_client(client);
    let is_durable = durable.is_some_and(|c| c.epoch >= answer.epoch);
    ensure(is_durable, || format!("{client} {} is not durable", answer.epoch))?;
    let Some(fact) = oracle.clients.get(*client) else { return Ok(()) };
    let newest = fact.epochs.keys().max();
    let holder = fact.epochs.get(&answer.epoch);
    ensure(holder.is_none_or(|holder| holder == incarnation), || {
        format!("{client} {} was given to {holder:?}, now {incarnation}", answer.epoch)
    })?;
    let falls = newest.is_some_and(|n| *n > answer.epoch) && holder.is_none();
    ensure(!falls, || format!("{client} {} after {newest:?}", answer.epoch))?;
    let lower = answer.evicted_through < fact.evicted_through && holder.is_none();
    ensure(!lower, || format!("{client} watermark {:?} fell", fact.evicted_through))
}

fn fenced_is_true(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::Fenced(client, problem, given) = said else { return Ok(()) };
    let durable = oracle.durable_client(client).map(|c| c.epoch);
    let newer = given.is_none_or(|given| Some(given) < problem.current_epoch);
    ensure(newer && problem.current_epoch <= durable, || format!("{client} {given:?} against {durable:?}"))
}

fn epoch_unknown_is_true(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::EpochUnknown(client, Some(given)) = said else { return Ok(()) };
    let told = oracle.clients.get(*client).is_some_and(|f| f.epochs.contains_key(given));
    ensure(!told, || format!("{client} {given} was told"))
}

fn client_unknown_is_true(oracle: &Oracle, said: &Said<'_>) -> Verdict {
    let Said::ClientUnknown(client) = said else { return Ok(()) };
    let opened = oracle.clients.get(*client).is_some_and(|f| !f.epochs.is_empty());
    ensure(!opened || oracle.was_forgotten(client), || format!("{client} had been opened"))
}

fn success_fits(asked: &Asked, answer: &Answer) -> Verdict {
    let Answer::Txn(success, txn) = answer else { return Ok(()) };
    let decides = causes::of_request(&asked.request)
        .iter()
        .any(|(_, _, call)| matches!(call, Call::Commit(_) | Call::Abort(_) | Call::Resolve(_)));
    let accepted = *success == Success::Accepted;
    let fits = accepted == (decides && !txn.state.is_terminal());
    ensure(fits, || format!("202 while acknowledgements are missing, 200 when terminal: {success:?} {}", txn.state))
}

fn repeats_change_nothing(asked: &Asked, answer: &Answer) -> Verdict {
    let Answer::Txn(_, txn) = answer else { return Ok(()) };
    // What was over already, and is ended by the first call that meets it, is no work of the call.
    let over = [EndReason::Timeout, EndReason::PreparedTimeout, EndReason::Fenced];
    let was_over = reason_of(txn).is_some_and(|reason| over.contains(&reason));
    ensure(!(txn.replayed && asked.changed) || was_over, || {
        format!("a repeat changes no durable byte: {} {}", txn.txn_id, txn.state)
    })
}
