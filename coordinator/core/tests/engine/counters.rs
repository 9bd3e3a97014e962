//! The numbers of the metrics endpoint: what each call counts, and what is there.

use ratified_core::{Gauges, Limits, Request, Stats, Sweep};
use ratified_protocol::Outcome;
use serde_json::json;

use crate::support::{
    Driver, abort, ack, begin, commit, epoch, forget, get, keep_alive, lookup, open, prepare, resolve, waiting,
};

/// What a call changes in the counters.
#[track_caller]
fn assert_counts(d: &mut Driver, request: Request, expected: impl FnOnce(&mut Stats)) {
    let mut after = *d.engine.stats();
    d.call(request);
    expected(&mut after);
    assert_eq!(*d.engine.stats(), after);
}

#[test]
fn a_transaction_is_counted_when_it_begins_when_it_is_decided_and_when_its_outcome_is_written() {
    let mut d = Driver::opened();
    assert_counts(&mut d, begin("c", 1, &epoch(1)), |s| s.begun += 1);
    assert_counts(&mut d, prepare("c", 1, &epoch(1)), |_| {});
    assert_counts(&mut d, commit("c", 1, &json!({})), |s| {
        s.decided[0][0] += 1;
        s.preserver_appends += 1;
        s.preserver_flush_writes += 1;
    });
    assert_counts(&mut d, begin("c", 2, &json!({"epoch": 1, "participants": ["p"]})), |s| s.begun += 1);
    assert_counts(&mut d, abort("c", 2, &epoch(1)), |s| {
        s.decided[1][0] += 1;
        s.preserver_appends += 1;
    });
    assert_counts(&mut d, ack("c", 2, "p", Outcome::Aborted), |s| s.preserver_flush_writes += 1);
}

#[test]
fn decisions_are_counted_by_reason() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10})));
    d.call(begin("c", 2, &epoch(1)));
    d.call(prepare("c", 2, &json!({"epoch": 1, "preparedTimeoutMs": 10})));
    d.call(begin("c", 3, &epoch(1)));
    d.call(begin("c", 4, &epoch(1)));
    d.call(prepare("c", 4, &epoch(1)));
    d.call(begin("c", 5, &epoch(1)));
    d.pass(10);
    d.sweep(Sweep::Timeouts);
    d.call(resolve("c", 3, "ABORT"));
    d.call(resolve("c", 4, "COMMIT"));
    d.call(open("c", 2));
    // CLIENT, TIMEOUT, FENCED, OPERATOR, PREPARED_TIMEOUT
    assert_eq!(d.engine.stats().decided, [[0, 0, 0, 1, 0], [0, 1, 1, 1, 1]]);
}

#[test]
fn whoever_asks_about_what_is_decided_is_counted_as_a_hit_and_a_repeat_as_a_replay() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let replay = |s: &mut Stats| s.replays += 1;
    let hit = |s: &mut Stats| s.lookup_hits += 1;
    let replayed_hit = |s: &mut Stats| (s.replays, s.lookup_hits) = (s.replays + 1, s.lookup_hits + 1);
    assert_counts(&mut d, begin("c", 1, &epoch(1)), replay);
    assert_counts(&mut d, get("c", 1), |_| {});
    d.call(commit("c", 1, &epoch(1)));
    assert_counts(&mut d, get("c", 1), hit);
    assert_counts(&mut d, lookup("c", 1), hit);
    assert_counts(&mut d, abort("c", 1, &epoch(1)), hit);
    assert_counts(&mut d, begin("c", 1, &epoch(1)), replayed_hit);
    assert_counts(&mut d, commit("c", 1, &epoch(1)), replayed_hit);
    d.pass(Limits::default().persist_time_ms);
    assert_eq!(d.sweep(Sweep::Expiry), 1);
    assert_counts(&mut d, lookup("c", 1), hit);
}

#[test]
fn whoever_asks_about_what_is_absent_is_counted_by_whether_it_was_ever_there() {
    let limits = Limits { persist_count: 1, max_outcomes_per_client: 1, ..Limits::default() };
    let mut d = Driver::opened_with(limits);
    for n in [1, 2] {
        d.call(begin("c", n, &epoch(1)));
        d.call(abort("c", n, &epoch(1)));
    }
    let expired = |s: &mut Stats| s.lookup_expired += 1;
    let missed = |s: &mut Stats| s.lookup_misses += 1;
    assert_eq!(d.engine.stats().evicted_by_limit, 1);
    assert_counts(&mut d, get("c", 1), expired);
    assert_counts(&mut d, begin("c", 1, &epoch(1)), expired);
    assert_counts(&mut d, lookup("c", 1), expired);
    assert_counts(&mut d, get("c", 3), missed);
    assert_counts(&mut d, lookup("c", 3), missed);
}

#[test]
fn calls_of_an_older_owner_are_counted_as_fenced() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    d.call(open("c", 2));
    let fenced = |s: &mut Stats| s.fenced_calls += 1;
    assert_counts(&mut d, keep_alive("c", 1, &epoch(1)), fenced);
    assert_counts(&mut d, abort("c", 1, &epoch(1)), fenced);
    assert_counts(&mut d, open("c", 1), fenced);
    assert_counts(&mut d, abort("c", 1, &epoch(3)), |_| {});
}

/// Client `c` with a transaction in every state and a parked commit; `gone` is a tombstone.
fn crowded() -> Driver {
    let mut d = Driver::opened();
    d.call(open("gone", 1));
    d.call(forget("gone"));
    d.pass(5);
    d.call(begin("c", 1, &epoch(1)));
    d.pass(10);
    d.call(begin("c", 2, &epoch(1)));
    d.pass(5);
    d.call(prepare("c", 2, &json!({"epoch": 1, "payload": "eA=="})));
    d.call(begin("c", 3, &json!({"epoch": 1, "participants": ["p", "q"]})));
    d.submit(waiting(commit("c", 3, &json!({"epoch": 1, "payload": "eHh4"})), 1000));
    d.call(begin("c", 4, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(abort("c", 4, &epoch(1)));
    d.call(begin("c", 5, &epoch(1)));
    d.call(commit("c", 5, &json!({"epoch": 1, "payload": "eHg="})));
    for n in [6, 7] {
        d.call(begin("c", n, &epoch(1)));
        d.call(abort("c", n, &epoch(1)));
    }
    d.pass(25);
    d
}

#[test]
fn the_gauges_tell_what_is_there() {
    let mut d = crowded();
    let expected = Gauges {
        clients: 1,
        tombstones: 1,
        live: [1, 1, 1, 1],
        preserved: [1, 2],
        pending_acks: 3,
        waiting: 1,
        payload_bytes: 6,
        oldest_open_ms: 40,
        oldest_prepared_ms: 25,
        oldest_ending_ms: 25,
    };
    assert_eq!(d.engine.gauges(d.now().uptime), expected);
    // The clock goes on where the newest batch was, which is that of the last call; nobody waits any more.
    d.restart();
    let expected = Gauges { waiting: 0, oldest_open_ms: 15, oldest_prepared_ms: 0, oldest_ending_ms: 0, ..expected };
    assert_eq!(d.engine.gauges(d.now().uptime), expected);
}

#[test]
fn the_oldest_decision_that_waits_is_the_one_whose_acknowledgements_are_missing() {
    let mut d = Driver::opened();
    for n in [1, 2] {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
        d.call(abort("c", n, &epoch(1)));
        d.pass(10);
    }
    let oldest = |d: &Driver| d.engine.gauges(d.now().uptime).oldest_ending_ms;
    assert_eq!(oldest(&d), 20);
    d.call(ack("c", 1, "p", Outcome::Aborted));
    assert_eq!(oldest(&d), 10);
    d.call(ack("c", 2, "p", Outcome::Aborted));
    assert_eq!(oldest(&d), 0);
}

#[test]
fn an_empty_engine_has_nothing() {
    let d = Driver::new(Limits::default());
    assert_eq!(d.engine.gauges(d.now().uptime), Gauges::default());
}
