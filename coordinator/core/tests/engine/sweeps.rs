//! Sweeps, and races between a deadline and a request.

use ratified_core::{Effect, Input, Limits, Sweep, Uptime};
use ratified_protocol::Outcome::Aborted;
use serde_json::{Value, json};

use crate::support::{
    Driver, abort, ack, batch, begin, clients, commit, epoch, get, id_text, keep_alive, open, page, prepare, preserver,
};

const TIMEOUT_MS: u64 = 1000;

fn begun_at_0() -> Driver {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": TIMEOUT_MS})));
    d
}

#[test]
fn a_commit_before_the_deadline_wins_and_at_or_after_it_loses_to_the_timeout() {
    for (arrival_ms, to_commit, then_to_get) in [
        (999, "200 COMMITTED CLIENT preserved", "200 COMMITTED CLIENT preserved"),
        (1000, "409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved", "200 ABORTED TIMEOUT preserved"),
        (1001, "409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved", "200 ABORTED TIMEOUT preserved"),
    ] {
        // Without a sweep, with one just before, and with one just after: there is one winner.
        for (before, after) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut d = begun_at_0();
            d.now_ms = arrival_ms;
            if before {
                d.sweep(Sweep::Timeouts);
            }
            let ticket = d.submit(commit("c", 1, &epoch(1)));
            if after {
                d.sweep(Sweep::Timeouts);
            }
            d.seal();
            d.sync();
            assert_eq!(d.answer(ticket).unwrap().brief(), to_commit, "at {arrival_ms}");
            assert_eq!(d.read(get("c", 1)).brief(), then_to_get, "at {arrival_ms}");
        }
    }
}

#[test]
fn every_call_that_meets_a_passed_deadline_writes_the_abort_first() {
    type Call = fn(&str, u64, &Value) -> ratified_core::Request;
    let getting: Call = |name, n, _| get(name, n);
    for (call, expected) in [
        (getting, "200 ABORTED TIMEOUT preserved"),
        (abort, "200 ABORTED TIMEOUT replayed preserved"),
        (begin, "200 ABORTED TIMEOUT replayed preserved"),
        (prepare, "409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved"),
        (keep_alive, "409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved"),
        (commit, "409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved"),
    ] {
        let mut d = begun_at_0();
        d.now_ms = TIMEOUT_MS;
        let ticket = d.submit(call("c", 1, &epoch(1)));
        assert_eq!(d.answer(ticket), None, "it waits for the sync of the abort");
        d.seal();
        d.sync();
        assert_eq!(d.answer(ticket).unwrap().brief(), expected);
    }
}

#[test]
fn a_request_is_judged_at_its_arrival_not_at_its_place_in_the_queue() {
    let mut d = begun_at_0();
    d.call(begin("c", 2, &epoch(1)));
    d.now_ms = 1500;
    d.call(keep_alive("c", 2, &epoch(1)));
    d.now_ms = 999;
    assert_eq!(d.call(commit("c", 1, &epoch(1))).brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.engine.uptime(), Uptime::from_millis(1500), "the clock of the store never goes back");
}

#[test]
fn the_sweep_aborts_at_the_deadline_and_never_before() {
    let mut d = begun_at_0();
    assert_eq!(d.engine.next_deadline(), Some(Uptime::from_millis(TIMEOUT_MS)));
    d.now_ms = TIMEOUT_MS - 1;
    assert_eq!(d.step(Input::Sweep(Sweep::Timeouts)), []);
    d.now_ms = TIMEOUT_MS;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.read(get("c", 1)).brief(), "200 ABORTED TIMEOUT preserved");
    assert_eq!(d.engine.next_deadline(), None);
    assert_eq!(d.step(Input::Sweep(Sweep::Timeouts)), [], "two at once are one");
}

#[test]
fn a_timed_out_transaction_with_participants_is_aborting_until_they_acknowledge() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10, "participants": ["p"]})));
    d.pass(10);
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.read(get("c", 1)).brief(), "200 ABORTING TIMEOUT");
    d.pass(1_000_000_000);
    for sweep in Sweep::ALL {
        d.sweep(sweep);
    }
    assert_eq!(d.read(get("c", 1)).brief(), "200 ABORTING TIMEOUT", "no sweep touches a header with a missing ack");
    assert_eq!(d.call(ack("c", 1, "p", Aborted)).brief(), "200 ABORTED TIMEOUT preserved");
}

#[test]
fn no_sweep_ever_touches_a_prepared_transaction() {
    let mut d = Driver::opened_with(Limits { client_retention_ms: Some(1), ..Limits::default() });
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10})));
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.engine.next_deadline(), None);
    d.pass(u64::from(u32::MAX) * 1000);
    for sweep in Sweep::ALL {
        assert_eq!(d.step(Input::Sweep(sweep)), []);
    }
    d.restart();
    d.pass(u64::from(u32::MAX) * 1000);
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.call(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT preserved");
}

#[test]
fn a_prepared_timeout_runs_from_prepare_and_aborts_at_its_end() {
    let mut d = begun_at_0();
    d.pass(400);
    d.call(prepare("c", 1, &json!({"epoch": 1, "preparedTimeoutMs": 5000})));
    d.now_ms = 5399;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.read(get("c", 1)).brief(), "200 PREPARED");
    d.now_ms = 5400;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.read(get("c", 1)).brief(), "200 ABORTED PREPARED_TIMEOUT preserved");
}

#[test]
fn sweeps_are_paged_and_ask_to_be_run_again() {
    let mut d = Driver::opened();
    let ops = |op: &str, timeout: bool| {
        let item = |n: u64| {
            let mut item = json!({"op": op, "txnId": id_text(n), "epoch": 1});
            if timeout {
                item["timeoutMs"] = json!(n);
            }
            item
        };
        (1..=300).map(item).collect()
    };
    d.call(batch("c", ops("begin", true), true));
    d.pass(300);
    let effects = d.step(Input::Sweep(Sweep::Timeouts));
    assert_eq!(effects.last(), Some(&Effect::SweepAgain(Sweep::Timeouts)));
    let ended = effects.iter().filter(|e| matches!(e, Effect::Transition(t) if t.to.is_terminal())).count();
    assert_eq!(ended, 256, "oldest deadline first, one page");
    assert_eq!(d.engine.next_deadline(), Some(Uptime::from_millis(257)));
    assert_eq!(d.sweep(Sweep::Timeouts), 1);
    assert_eq!(d.read(preserver("c")).ids("outcomes").len(), 300);

    d.pass(Limits::default().gc_retention_ms);
    assert_eq!(d.sweep(Sweep::Gc), 1, "236 of 300 are surplus");
    assert_eq!(d.read(preserver("c")).ids("outcomes"), (237..=300).rev().collect::<Vec<_>>());
    d.pass(Limits::default().persist_time_ms);
    assert_eq!(d.sweep(Sweep::Expiry), 1);
    assert_eq!(d.read(preserver("c")).member("outcomes"), json!([]));
}

#[test]
fn expired_outcomes_beyond_a_page_follow_in_the_next_step() {
    let mut d = Driver::opened();
    let op = |op: &str, n: u64| json!({"op": op, "txnId": id_text(n), "epoch": 1});
    d.call(batch("c", (1..=257).flat_map(|n| [op("begin", n), op("abort", n)]).collect(), true));
    d.pass(Limits::default().persist_time_ms);
    assert_eq!(d.sweep(Sweep::Expiry), 2);
    assert_eq!(d.engine.stats().expired, 257);
}

#[test]
fn a_sweep_with_nothing_due_has_no_effect_whatever_there_is() {
    let mut d = Driver::opened();
    let begins = (1..=1000).map(|n| json!({"op": "begin", "txnId": id_text(n), "epoch": 1}));
    d.call(batch("c", begins.collect(), true));
    let revision = d.engine.revision();
    for sweep in Sweep::ALL {
        assert_eq!(d.step(Input::Sweep(sweep)), []);
    }
    assert_eq!(d.engine.revision(), revision);
}

const RETENTION_MS: u64 = 1000;

fn with_client_retention() -> Driver {
    Driver::opened_with(Limits {
        client_retention_ms: Some(RETENTION_MS),
        persist_time_ms: 100,
        gc_retention_ms: 0,
        min_committed_per_client: 0,
        ..Limits::default()
    })
}

fn is_tombstone(d: &mut Driver) -> bool {
    d.read(clients(Some("c"), page(1, None))).body["items"][0]["forgotten"] == Value::Bool(true)
}

#[test]
fn an_idle_client_shrinks_to_a_tombstone_after_its_retention() {
    let mut d = with_client_retention();
    d.now_ms = RETENTION_MS - 1;
    d.sweep(Sweep::IdleClients);
    assert!(!is_tombstone(&mut d));
    d.now_ms = RETENTION_MS;
    d.sweep(Sweep::IdleClients);
    assert!(is_tombstone(&mut d));
    assert_eq!(d.read(begin("c", 1, &epoch(1))).brief(), "404 CLIENT_NOT_FOUND");
    assert_eq!(d.call(open("c", 2)).member("epoch"), 2, "its epoch goes on");
}

#[test]
fn a_client_with_anything_left_is_not_idle() {
    let mut d = with_client_retention();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 100_000})));
    d.now_ms = 50_000;
    d.sweep(Sweep::IdleClients);
    assert!(!is_tombstone(&mut d), "an unfinished transaction");
    d.call(abort("c", 1, &epoch(1)));
    d.now_ms = 60_000;
    d.sweep(Sweep::IdleClients);
    assert!(!is_tombstone(&mut d), "an outcome");
    d.sweep(Sweep::Expiry);
    d.now_ms = 60_999;
    d.sweep(Sweep::IdleClients);
    assert!(!is_tombstone(&mut d), "idle since the outcome expired");
    d.now_ms = 61_000;
    d.sweep(Sweep::IdleClients);
    assert!(is_tombstone(&mut d));
    assert_eq!(d.read(get("c", 1)).brief(), "410 OUTCOME_EXPIRED");
}

#[test]
fn a_last_commit_keeps_its_client_for_ever() {
    let mut d = with_client_retention();
    d.call(begin("c", 1, &epoch(1)));
    d.call(commit("c", 1, &epoch(1)));
    d.pass(1_000_000);
    d.sweep(Sweep::Expiry);
    d.pass(1_000_000);
    d.sweep(Sweep::IdleClients);
    assert!(!is_tombstone(&mut d));
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT replayed");
}

#[test]
fn idle_clients_are_found_again_after_a_restart() {
    let mut d = with_client_retention();
    d.restart();
    d.now_ms = RETENTION_MS;
    d.sweep(Sweep::IdleClients);
    assert!(is_tombstone(&mut d));
}

#[test]
fn by_default_clients_are_kept_for_ever() {
    let mut d = Driver::opened();
    d.pass(u64::MAX / 2);
    d.sweep(Sweep::IdleClients);
    assert!(!is_tombstone(&mut d));
}
