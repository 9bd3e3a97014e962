//! Reports from the field, as far as the state machine alone can show them.

use ratified_core::{Input, Limits, Sweep};
use ratified_protocol::Outcome::{Aborted, Committed};
use serde_json::json;

use crate::support::{
    Driver, abort, ack, begin, commit, decisions, epoch, get, id_text, open, prepare, preserver, register, retire,
};

/// Pulsar #19629, pulsar-flink #417: the commit is applied, its answer lost, and the job sends it again.
#[test]
fn a_commit_whose_answer_was_lost_is_told_the_same_however_often_it_is_sent() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    d.submit(commit("c", 1, &json!({})));
    d.seal();
    d.sync();
    for restart in 0..5 {
        d.restart();
        d.call(open("c", 10 + restart));
        assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT replayed preserved");
    }
}

/// Pulsar PR 20356: the name is part of the key.
#[test]
fn the_same_id_of_another_client_is_another_transaction() {
    let mut d = Driver::opened();
    d.call(open("d", 1));
    d.call(begin("c", 1, &epoch(1)));
    d.call(begin("d", 1, &epoch(1)));
    d.call(commit("c", 1, &epoch(1)));
    assert_eq!(d.read(get("d", 1)).brief(), "200 OPEN");
    assert_eq!(d.call(abort("d", 1, &epoch(1))).brief(), "200 ABORTED CLIENT preserved");
    assert_eq!(d.read(get("c", 1)).brief(), "200 COMMITTED CLIENT preserved");
}

/// Pulsar PR 20356: more than N terminations in flight.
#[test]
fn more_than_n_endings_in_flight_lose_no_outcome() {
    let mut d = Driver::opened_with(Limits { persist_count: 2, gc_retention_ms: 0, ..Limits::default() });
    for n in 1..=6 {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
        d.call(abort("c", n, &epoch(1)));
    }
    d.sweep(Sweep::Gc);
    for n in 1..=6 {
        assert_eq!(d.read(abort("c", n, &epoch(1))).brief(), "202 ABORTING CLIENT replayed");
    }
}

/// A crash-looping job: every attempt aborts what the one before began.
#[test]
fn a_crash_looping_job_does_not_push_out_the_commit_its_checkpoint_lists() {
    let mut d = Driver::opened_with(Limits { gc_retention_ms: 0, ..Limits::default() });
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    d.call(commit("c", 1, &json!({})));
    // A later commit, so that the first one is not kept as the last.
    d.call(begin("c", 2, &epoch(1)));
    d.call(commit("c", 2, &epoch(1)));
    for attempt in 2..80 {
        d.call(open("c", u128::from(attempt)));
        d.call(begin("c", attempt + 1, &epoch(attempt)));
        d.sweep(Sweep::Gc);
    }
    assert_eq!(d.read(preserver("c")).ids("outcomes").len(), 64 + 2);
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT replayed preserved");
}

/// Pulsar PR 10131: end retried while COMMITTING joins the running end.
#[test]
fn a_commit_retried_while_committing_joins_the_running_end() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(commit("c", 1, &epoch(1)));
    assert_eq!(d.read(commit("c", 1, &epoch(1))).brief(), "202 COMMITTING CLIENT replayed");
    assert_eq!(d.read(decisions("p", None)).ids("decisions"), [1], "decided once");
}

/// FLINK-7784, FLINK-24131: a prepared transaction timed out, was logged and dropped, and the job stayed green.
#[test]
fn a_prepared_transaction_that_is_gone_is_told_with_its_reason() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &json!({"epoch": 1, "preparedTimeoutMs": 10})));
    d.pass(10);
    assert_eq!(d.call(commit("c", 1, &json!({}))).brief(), "409 OUTCOME_ABORTED: ABORTED PREPARED_TIMEOUT preserved");
}

/// KAFKA-6119, Jepsen on Bufstream: a timeout reported as "fenced".
#[test]
fn a_timeout_is_never_told_as_fenced() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10})));
    d.pass(10);
    d.call(open("c", 2));
    assert_eq!(d.read(commit("c", 1, &epoch(1))).brief(), "409 OUTCOME_ABORTED: ABORTED TIMEOUT preserved");
}

/// FLINK-31363, RisingWave PR 26498: an empty transaction behaves like any other.
#[test]
fn an_empty_transaction_is_prepared_committed_and_replayed_like_any_other() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    assert_eq!(d.call(prepare("c", 1, &epoch(1))).brief(), "200 PREPARED");
    assert_eq!(d.read(prepare("c", 1, &epoch(1))).brief(), "200 PREPARED replayed");
    assert_eq!(d.call(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.read(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT replayed preserved");
}

/// KAFKA-14055, Pulsar PR 25884: the decision is deleted while a participant may still ask.
#[test]
fn the_decision_stays_while_one_acknowledgement_is_missing() {
    let mut d = Driver::opened_with(Limits { persist_count: 0, gc_retention_ms: 0, ..Limits::default() });
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p", "q"]})));
    d.call(commit("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    d.call(ack("c", 1, "q", Committed));
    for _ in 0..3 {
        d.pass(Limits::default().persist_time_ms);
        for sweep in Sweep::ALL {
            d.sweep(sweep);
        }
        d.restart();
        let told = d.read(decisions("p", None));
        assert_eq!((told.ids("decisions"), told.body["decisions"][0]["payload"].clone()), (vec![1], json!("eA==")));
    }
}

/// Seata #1812: a participant joins while the rollback runs.
#[test]
fn nobody_joins_an_ending_transaction() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(abort("c", 1, &epoch(1)));
    assert_eq!(d.read(register("c", 1, "late", &epoch(1))).brief(), "409 INVALID_TXN_STATE: ABORTING CLIENT");
    assert_eq!(d.call(ack("c", 1, "p", Aborted)).brief(), "200 ABORTED CLIENT preserved");
}

/// KAFKA-14880, RocketMQ #9500: one that hangs must not starve the rest.
#[test]
fn a_stuck_participant_delays_only_its_own_transactions() {
    let mut d = Driver::opened();
    for n in 1..=3 {
        let who = if n == 2 { "stuck" } else { "well" };
        d.call(begin("c", n, &json!({"epoch": 1, "timeoutMs": 10, "participants": [who]})));
    }
    d.pass(10);
    d.sweep(Sweep::Timeouts);
    for n in d.read(decisions("well", None)).ids("decisions") {
        d.call(ack("c", n, "well", Aborted));
    }
    assert_eq!(d.read(get("c", 1)).brief(), "200 ABORTED TIMEOUT preserved");
    assert_eq!(d.read(get("c", 2)).brief(), "200 ABORTING TIMEOUT");
    assert_eq!(d.read(get("c", 3)).brief(), "200 ABORTED TIMEOUT preserved");
    d.call(retire("stuck"));
    assert_eq!(d.read(get("c", 2)).brief(), "200 ABORTED TIMEOUT preserved");
}

/// KAFKA-8803: a clock that moves back changes nothing.
#[test]
fn a_clock_that_moves_back_breaks_no_rule() {
    let mut d = Driver::opened();
    d.now_ms = 1_000_000;
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10})));
    d.call(abort("c", 1, &epoch(1)));
    d.now_ms = 5;
    d.call(begin("c", 2, &json!({"epoch": 1, "timeoutMs": 10})));
    d.call(abort("c", 2, &epoch(1)));
    for sweep in Sweep::ALL {
        assert_eq!(d.step(Input::Sweep(sweep)), []);
    }
    assert_eq!(d.read(preserver("c")).ids("outcomes"), [2, 1]);
}

/// Real Flink 2.3: every restore sends commits again, for all of the checkpoint, in no order, before or after `open`.
#[test]
fn commits_sent_again_by_anybody_in_any_order_change_nothing() {
    let mut d = Driver::opened();
    for n in 1..=3 {
        d.call(begin("c", n, &epoch(1)));
        d.call(prepare("c", n, &json!({"epoch": 1, "checkpointId": 5})));
    }
    for n in [2, 1, 3] {
        assert_eq!(d.call(commit("c", n, &json!({}))).brief(), "200 COMMITTED CLIENT preserved");
    }
    for attempt in 2..13 {
        for n in [3, 1, 2] {
            assert_eq!(d.read(commit("c", n, &json!({}))).brief(), "200 COMMITTED CLIENT replayed preserved");
        }
        d.call(open("c", attempt));
    }
    assert_eq!(d.read(preserver("c")).body["lastCommitted"]["txnId"], id_text(3));
}

/// Greenplum PR 10393: a slow prepare arrives after the owner changed.
#[test]
fn a_slow_prepare_of_the_owner_before_leaves_no_orphan() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(open("c", 2));
    assert_eq!(d.read(prepare("c", 1, &epoch(1))).brief(), "409 OUTCOME_ABORTED: ABORTED FENCED preserved");
    d.call(begin("c", 2, &epoch(2)));
    assert_eq!(d.read(prepare("c", 2, &epoch(1))).brief(), "409 FENCED: OPEN");
}

/// Z1 - Z6: an old process wakes and writes, prepares, opens late.
#[test]
fn an_old_owner_that_wakes_changes_nothing_of_the_new_one() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    d.call(open("c", 2));
    d.call(begin("c", 2, &epoch(2)));
    d.read(begin("c", 3, &epoch(1)));
    d.read(abort("c", 1, &epoch(1)));
    d.read(abort("c", 2, &epoch(1)));
    d.read(commit("c", 2, &epoch(1)));
    d.read(register("c", 2, "p", &epoch(1)));
    d.read(open("c", 1));
    assert_eq!(d.read(get("c", 1)).brief(), "200 PREPARED");
    assert_eq!(d.read(get("c", 2)).brief(), "200 OPEN");
}

/// K13: decided, and the host is lost before the data is applied.
#[test]
fn the_next_owner_finds_what_was_decided_with_its_payload() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["c"]})));
    d.call(prepare("c", 1, &json!({"epoch": 1, "checkpointId": 4, "payload": "eA=="})));
    d.call(commit("c", 1, &json!({})));
    d.restart();
    let told = d.call(open("c", 2));
    assert_eq!(told.each("unfinished", "state"), ["COMMITTING"]);
    assert_eq!(told.body["unfinished"][0]["payload"], "eA==");
    assert_eq!(d.call(ack("c", 1, "c", Committed)).brief(), "200 COMMITTED CLIENT preserved");
}

/// D1 - D3, dtm, Stripe: late duplicates never bring anything back.
#[test]
fn a_late_duplicate_of_begin_resurrects_nothing() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(abort("c", 1, &epoch(1)));
    assert_eq!(d.read(begin("c", 1, &epoch(1))).brief(), "200 ABORTED CLIENT replayed preserved");
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    assert_eq!(d.read(begin("c", 1, &epoch(1))).brief(), "410 TXN_ID_TOO_OLD");
    d.restart();
    assert_eq!(d.read(begin("c", 1, &epoch(1))).brief(), "410 TXN_ID_TOO_OLD");
}

/// Materialize #11334: two jobs with one name fence each other; the loser learns who won.
#[test]
fn of_two_owners_that_start_at_once_exactly_one_epoch_wins() {
    let mut d = Driver::opened();
    let (one, other) = (d.submit(open("c", 2)), d.submit(open("c", 3)));
    d.seal();
    d.sync();
    let epochs = [d.answer(one).unwrap().member("epoch"), d.answer(other).unwrap().member("epoch")];
    assert_eq!(epochs, [json!(2), json!(3)]);
    let told = d.read(begin("c", 1, &epoch(2)));
    assert_eq!((told.brief().as_str(), told.member("owner")), ("409 FENCED", json!("owner-3")));
    assert_eq!(d.call(begin("c", 1, &epoch(3))).brief(), "201 OPEN");
}
