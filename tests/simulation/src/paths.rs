//! Which rare paths a step or an answer has taken.

use ratified_core::{Answer, Input, Key, Record, Request, Stats, Success, Sweep};
use ratified_protocol::{Code, EndReason, Problem, TxnState};

use crate::{
    oracle::{Asked, Summary, causes, causes::Call},
    probes::{Probe, Probes},
};

/// Paths that the engine counts itself.
pub fn of_step(probes: &mut Probes, before: &Stats, after: &Stats) {
    probes.add(Probe::EvictedByCount, after.evicted_by_count - before.evicted_by_count);
    probes.add(Probe::EvictedByLimit, after.evicted_by_limit - before.evicted_by_limit);
    probes.add(Probe::Expired, after.expired - before.expired);
}

/// Paths that a change shows.
pub fn of_change(probes: &mut Probes, change: &Summary<'_>) {
    let sweep = matches!(change.input, Input::Sweep(_));
    let open = matches!(change.input, Input::Request { request: Request::Open { .. }, .. });
    match change.key {
        Key::Transaction(client, id) => {
            match change.reason.filter(|_| change.from.is_some_and(|f| f.outcome().is_none())) {
                Some(EndReason::Timeout) if sweep => probes.hit(Probe::SweepAborted),
                Some(EndReason::Timeout) => probes.hit(Probe::CallAborted),
                Some(EndReason::Fenced) => probes.hit(Probe::OpenAborted),
                Some(EndReason::PreparedTimeout) => probes.hit(Probe::PreparedTimeout),
                Some(EndReason::Operator) => probes.hit(Probe::Resolved),
                _ => {}
            }
            for call in causes::about(change.input, client, *id) {
                match call {
                    Call::Commit(_) if change.from == Some(TxnState::Open) => probes.hit(Probe::CommitFromOpen),
                    Call::Commit(request) if change.from == Some(TxnState::Prepared) && request.epoch.is_none() => {
                        probes.hit(Probe::CommitWithoutEpoch);
                    }
                    Call::Register(..) if change.from == change.to => probes.hit(Probe::Registered),
                    _ => {}
                }
            }
            if let Input::Request { request: Request::Retire { .. }, .. } = change.input {
                probes.add(Probe::RetiredPending, u64::from(change.from.is_some_and(|f| f.outcome().is_some())));
            }
        }
        Key::Client(_) => of_client(probes, change, open),
        Key::Participant(_) => {
            let back = matches!(change.input, Input::Request { request: Request::Reinstate { .. }, .. });
            probes.add(Probe::Reinstated, u64::from(back));
        }
        _ => {}
    }
}

fn of_client(probes: &mut Probes, change: &Summary<'_>, open: bool) {
    let Some(Record::Client(_, after)) = change.after else { return };
    let before = match change.before {
        Some(Record::Client(_, before)) => Some(before),
        _ => None,
    };
    let was_forgotten = before.is_some_and(|b| b.forgotten);
    if after.forgotten && !was_forgotten {
        let idle = matches!(change.input, Input::Sweep(Sweep::IdleClients));
        probes.hit(if idle { Probe::IdleShrunk } else { Probe::Forgotten });
    }
    probes.add(Probe::TombstoneOpened, u64::from(open && was_forgotten && !after.forgotten));
}

/// Paths that an answer shows.
pub fn of_answer(probes: &mut Probes, asked: &Asked, answer: &Answer) {
    let calls = causes::of_request(&asked.request);
    match answer {
        Answer::Txn(success, txn) => {
            let waited = matches!(&asked.request, Request::Txn { wait_ms, .. } if *wait_ms > 0);
            if waited && txn.state.is_terminal() && !txn.replayed {
                probes.hit(Probe::WaitedTerminal);
            }
            probes.add(Probe::WaitRanOut, u64::from(waited && *success == Success::Accepted));
            for (_, _, call) in &calls {
                match call {
                    Call::Commit(_) if txn.replayed => probes.hit(Probe::CommitReplayed),
                    Call::Commit(request) if request.epoch.is_some() && request.epoch != txn.epoch => {
                        probes.add(Probe::LateCommit, u64::from(txn.epoch.is_some() && !txn.replayed));
                    }
                    Call::Begin(_) if txn.state.outcome().is_some() => probes.hit(Probe::BeginToldOutcome),
                    Call::Ack(..) if txn.replayed => probes.hit(Probe::AckRepeated),
                    _ => {}
                }
                let alone = txn.state == TxnState::Committed && !txn.preserved;
                probes.add(Probe::LastCommittedAlone, u64::from(alone));
            }
        }
        Answer::Open(open) => {
            probes.add(Probe::OpenRepeated, u64::from(!asked.changed));
            let prepared = open.unfinished.iter().filter(|t| t.state == TxnState::Prepared).count() as u64;
            probes.add(Probe::OpenKeptPrepared, prepared);
        }
        Answer::Batch(batch) => {
            probes.add(Probe::BatchStopped, u64::from(batch.stopped_at.is_some()));
            for (result, (_, _, call)) in batch.results.iter().zip(&calls) {
                if let Some(problem) = &result.problem {
                    of_problem(probes, Some(call), problem);
                }
            }
        }
        Answer::Decisions(all) => {
            let waited = matches!(&asked.request, Request::Decisions { wait_ms, after, .. }
                if *wait_ms > 0 && after.is_some());
            probes.add(Probe::WaitedDecision, u64::from(waited && !all.decisions.is_empty()));
        }
        Answer::Problem(problem) => {
            let open = matches!(asked.request, Request::Open { .. });
            probes.add(Probe::FencedOpen, u64::from(open && problem.code == Code::Fenced));
            of_problem(probes, calls.first().map(|(_, _, call)| call), problem);
        }
        _ => {}
    }
}

fn of_problem(probes: &mut Probes, call: Option<&Call<'_>>, problem: &Problem) {
    let probe = match (problem.code.known(), call) {
        (Some(Code::Fenced), Some(_)) => Probe::FencedCall,
        (Some(Code::EpochUnknown), _) => Probe::EpochUnknown,
        (Some(Code::OutcomeAborted), Some(Call::Commit(_))) => Probe::CommitToldAborted,
        (Some(Code::OutcomeCommitted), Some(Call::Abort(_))) => Probe::AbortToldCommitted,
        (Some(Code::TxnIdTooOld), _) => Probe::TooOldRefused,
        (Some(Code::OutcomeExpired), _) => Probe::OutcomeExpired,
        (Some(Code::TxnNotFound), _) => Probe::NotFound,
        (Some(Code::InvalidTxnState), Some(Call::Ack(..))) => Probe::AckTooEarly,
        (Some(Code::InvalidTxnState), Some(Call::Register(..))) => Probe::RegisterRefused,
        (Some(Code::TxnIdReused), _) => Probe::IdReused,
        (Some(Code::TooManyOpen), _) => Probe::TooManyOpen,
        _ => return,
    };
    probes.hit(probe);
}
