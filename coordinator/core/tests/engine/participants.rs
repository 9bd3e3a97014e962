//! Participants: the decisions they pull, their retirement, and waiting for something to apply.

use ratified_core::{Effect, Input, Limits, Sweep};
use ratified_protocol::Outcome::{Aborted, Committed};
use serde_json::{Value, json};

use crate::support::{
    Driver, Told, abort, ack, batch, begin, commit, decisions, epoch, get, id_text, open, prepare, register, reinstate,
    retire, waiting,
};

/// Ids 1..=n of client `c`, each with participant `p`.
fn begun(n: u64) -> Driver {
    let mut d = Driver::opened();
    for n in 1..=n {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
    }
    d
}

fn cursor(told: &Told) -> String {
    told.member("cursor").as_str().unwrap().to_owned()
}

#[test]
fn decisions_are_told_in_the_order_they_were_made_until_they_are_acknowledged() {
    let mut d = begun(3);
    assert_eq!(d.read(decisions("p", None)).body, json!({"decisions": [], "cursor": "1.0"}));
    d.call(abort("c", 3, &epoch(1)));
    d.call(commit("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    let told = d.read(decisions("p", None));
    assert_eq!(
        told.body,
        json!({
            "decisions": [
                {"clientName": "c", "txnId": id_text(3), "outcome": "ABORTED", "payload": null},
                {"clientName": "c", "txnId": id_text(1), "outcome": "COMMITTED", "payload": "eA=="}
            ],
            "cursor": "1.2"
        })
    );
    assert_eq!(d.read(decisions("p", None)), told, "told again until it is acknowledged");
    d.call(ack("c", 3, "p", Aborted));
    assert_eq!(d.read(decisions("p", None)).ids("decisions"), [1]);
    assert_eq!(d.read(decisions("q", None)).ids("decisions"), [] as [u64; 0]);
}

#[test]
fn a_cursor_leads_to_what_is_newer() {
    let mut d = begun(2);
    d.call(commit("c", 2, &epoch(1)));
    let first = d.read(decisions("p", None));
    assert_eq!(d.read(decisions("p", Some(&cursor(&first)))).body, json!({"decisions": [], "cursor": "1.1"}));
    d.call(commit("c", 1, &epoch(1)));
    assert_eq!(d.read(decisions("p", Some(&cursor(&first)))).ids("decisions"), [1]);
    assert_eq!(d.read(decisions("p", None)).ids("decisions"), [2, 1]);
}

#[test]
fn a_cursor_of_an_earlier_load_counts_as_absent() {
    let mut d = begun(2);
    d.call(commit("c", 1, &epoch(1)));
    d.call(commit("c", 2, &epoch(1)));
    let old = cursor(&d.read(decisions("p", None)));
    d.restart();
    let told = d.read(decisions("p", Some(&old)));
    assert_eq!(told.ids("decisions"), [1, 2]);
    assert_eq!(cursor(&told), "2.2");
}

#[test]
fn a_malformed_cursor_is_refused() {
    let mut d = begun(0);
    for after in ["", "1", "x.1", "1.x", "1.2.3", "-1.0"] {
        assert_eq!(d.read(decisions("p", Some(after))).brief(), "400 INVALID_ARGUMENT", "{after:?}");
    }
}

#[test]
fn a_thousand_decisions_fit_an_answer_and_the_cursor_leads_on() {
    let mut d = begun(0);
    let op = |op: &str, n: u64| json!({"op": op, "txnId": id_text(n), "epoch": 1});
    let begin = |n| {
        let mut begin = op("begin", n);
        begin["participants"] = json!(["p"]);
        begin
    };
    d.call(batch("c", (1..=1001).flat_map(|n| [begin(n), op("commit", n)]).collect(), true));
    let told = d.call(decisions("p", None));
    assert_eq!(told.ids("decisions"), (1..=1000).collect::<Vec<_>>());
    assert_eq!(d.read(decisions("p", Some(&cursor(&told)))).ids("decisions"), [1001]);
}

#[test]
fn a_mebibyte_of_payloads_fits_an_answer_and_the_cursor_leads_on() {
    let payload = format!("{}AA==", "A".repeat(4 * (65535 / 3)));
    let mut d = begun(17);
    for n in 1..=17 {
        d.submit(commit("c", n, &json!({"epoch": 1, "payload": payload})));
    }
    let told = d.call(decisions("p", None));
    assert_eq!(told.ids("decisions"), (1..=16).collect::<Vec<_>>());
    assert_eq!(d.read(decisions("p", Some(&cursor(&told)))).ids("decisions"), [17]);
}

#[test]
fn a_poll_waits_for_the_next_decision_of_its_participant() {
    let mut d = begun(2);
    d.call(begin("c", 9, &json!({"epoch": 1, "participants": ["q"]})));
    d.call(commit("c", 1, &epoch(1)));
    let after = cursor(&d.read(decisions("p", None)));
    let parked = d.submit(waiting(decisions("p", Some(&after)), 1000));
    let other = d.submit(waiting(decisions("r", None), 1000));
    d.call(commit("c", 9, &epoch(1)));
    assert_eq!(d.answer(parked), None);
    d.submit(commit("c", 2, &epoch(1)));
    assert_eq!(d.answer(parked), None, "told only when the decision is durable");
    d.seal();
    d.sync();
    let told = d.answer(parked).unwrap();
    assert_eq!((told.ids("decisions"), cursor(&told)), (vec![2], "1.3".to_owned()));
    assert_eq!(d.answer(other), None);
    d.pass(1000);
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.answer(other).unwrap().body, json!({"decisions": [], "cursor": "1.0"}));
}

#[test]
fn a_poll_with_something_to_tell_does_not_wait() {
    let mut d = begun(1);
    d.call(commit("c", 1, &epoch(1)));
    assert_eq!(d.read(waiting(decisions("p", None), 1000)).ids("decisions"), [1]);
}

#[test]
fn a_retired_participant_is_waited_for_no_more() {
    let mut d = begun(2);
    d.call(begin("c", 3, &json!({"epoch": 1, "participants": ["p", "q"]})));
    d.call(begin("c", 4, &json!({"epoch": 1, "participants": ["q"]})));
    d.call(prepare("c", 1, &epoch(1)));
    d.call(commit("c", 2, &epoch(1)));
    d.call(abort("c", 3, &epoch(1)));
    assert_eq!(d.call(retire("p")).body, json!({"name": "p", "retired": true, "reason": "gone"}));
    assert_eq!(d.read(get("c", 1)).member("participants"), json!([]));
    assert_eq!(d.read(get("c", 2)).brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.read(get("c", 3)).member("participants"), json!([{"name": "q", "acked": false}]));
    assert_eq!(d.read(get("c", 4)).member("participants"), json!([{"name": "q", "acked": false}]));
    assert_eq!(d.read(decisions("p", None)).member("decisions"), json!([]));
    d.restart();
    assert_eq!(d.call(commit("c", 1, &json!({}))).brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.call(ack("c", 3, "q", Aborted)).brief(), "200 ABORTED CLIENT preserved");
}

#[test]
fn an_acknowledgement_given_before_retirement_goes_with_the_header() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p", "q"]})));
    d.call(commit("c", 1, &epoch(1)));
    d.call(ack("c", 1, "p", Committed));
    d.call(retire("p"));
    d.restart();
    assert_eq!(d.call(ack("c", 1, "q", Committed)).brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.synced.len(), 3, "client, outcome, participant");
}

#[test]
fn retirement_is_recorded_once_and_ends_with_reinstatement() {
    let mut d = Driver::opened();
    let is_audit = |effect: &&Effect| matches!(effect, Effect::Audit(_));
    assert_eq!(d.effects(retire("p")).iter().filter(is_audit).count(), 1);
    assert_eq!(d.effects(retire("p")).len(), 1, "again: only the reply");
    d.restart();
    assert_eq!(d.read(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]}))).brief(), "409 PARTICIPANT_RETIRED");
    assert_eq!(d.call(reinstate("p")).body, json!({"name": "p", "retired": false, "reason": "back"}));
    assert_eq!(d.effects(reinstate("p")).len(), 1, "again: only the reply");
    d.restart();
    assert_eq!(d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]}))).brief(), "201 OPEN");
    assert_eq!(d.read(reinstate("never-seen")).body, json!({"name": "never-seen", "retired": false, "reason": null}));
}

#[test]
fn a_reinstated_participant_joins_again_where_it_was_dropped() {
    let mut d = begun(1);
    d.call(retire("p"));
    d.call(reinstate("p"));
    assert_eq!(d.read(get("c", 1)).member("participants"), json!([]), "it stays dropped until it joins");
    assert_eq!(d.call(register("c", 1, "p", &epoch(1))).brief(), "201 OPEN");
    assert_eq!(d.read(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]}))).brief(), "200 OPEN replayed");
    assert_eq!(d.call(commit("c", 1, &epoch(1))).brief(), "202 COMMITTING CLIENT");
}

#[test]
fn commit_and_abort_wait_for_the_acknowledgements() {
    let mut d = begun(2);
    let committing = d.submit(waiting(commit("c", 1, &epoch(1)), 500));
    let aborting = d.submit(waiting(abort("c", 2, &epoch(1)), 500));
    let getting = d.submit(waiting(get("c", 1), 500));
    let again = d.submit(waiting(commit("c", 1, &epoch(1)), 500));
    d.seal();
    d.sync();
    d.submit(ack("c", 1, "p", Committed));
    assert_eq!(d.answer(committing), None, "terminal is told when it is durable");
    d.seal();
    d.sync();
    assert_eq!(d.answer(committing).unwrap().brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.answer(again).unwrap().brief(), "200 COMMITTED CLIENT replayed preserved");
    assert_eq!(d.answer(getting).unwrap().brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.answer(aborting), None);
    d.call(ack("c", 2, "p", Aborted));
    assert_eq!(d.answer(aborting).unwrap().brief(), "200 ABORTED CLIENT preserved");
}

#[test]
fn at_the_end_of_the_wait_the_current_state_is_answered() {
    let mut d = begun(3);
    let committing = d.submit(waiting(commit("c", 1, &epoch(1)), 500));
    let aborting = d.submit(waiting(abort("c", 2, &epoch(1)), 500));
    let ending = d.submit(waiting(get("c", 1), 500));
    let open = d.submit(waiting(get("c", 3), 500));
    assert_eq!(d.engine.next_deadline().map(ratified_core::Uptime::as_millis), Some(500));
    d.now_ms = 499;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.take_released(), []);
    d.now_ms = 500;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.answer(committing).unwrap().brief(), "202 COMMITTING CLIENT");
    assert_eq!(d.answer(aborting).unwrap().brief(), "202 ABORTING CLIENT");
    assert_eq!(d.answer(ending).unwrap().brief(), "200 COMMITTING CLIENT");
    assert_eq!(d.answer(open).unwrap().brief(), "200 OPEN");
}

#[test]
fn a_wait_is_cut_to_30_seconds() {
    let mut d = begun(1);
    d.call(prepare("c", 1, &epoch(1)));
    let ticket = d.submit(waiting(get("c", 1), u64::MAX));
    d.now_ms = 29_999;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.answer(ticket), None);
    d.now_ms = 30_000;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.answer(ticket).unwrap().brief(), "200 PREPARED");
}

#[test]
fn refusals_and_terminal_states_do_not_wait() {
    let mut d = begun(1);
    assert_eq!(d.read(waiting(commit("c", 1, &epoch(7)), 500)).brief(), "409 EPOCH_UNKNOWN: OPEN");
    assert_eq!(d.read(waiting(get("c", 7), 500)).brief(), "404 TXN_NOT_FOUND");
    d.call(abort("c", 1, &epoch(1)));
    assert_eq!(d.read(waiting(commit("c", 1, &epoch(1)), 500)).brief(), "409 OUTCOME_ABORTED: ABORTING CLIENT");
    d.call(ack("c", 1, "p", Aborted));
    assert_eq!(d.read(waiting(get("c", 1), 500)).brief(), "200 ABORTED CLIENT preserved");
}

#[test]
fn a_get_that_waits_hears_of_the_deadline() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 100})));
    let ticket = d.submit(waiting(get("c", 1), 500));
    d.now_ms = 100;
    d.sweep(Sweep::Timeouts);
    assert_eq!(d.answer(ticket).unwrap().brief(), "200 ABORTED TIMEOUT preserved");
}

#[test]
fn beyond_max_waiting_the_current_state_is_answered_at_once() {
    let mut d = Driver::opened_with(Limits { max_waiting: 1, ..Limits::default() });
    d.call(begin("c", 1, &epoch(1)));
    let parked = d.submit(waiting(get("c", 1), 500));
    assert_eq!(d.call(waiting(get("c", 1), 500)).brief(), "200 OPEN");
    assert_eq!(d.call(waiting(decisions("p", None), 500)).member("decisions"), json!([]));
    d.call(abort("c", 1, &epoch(1)));
    assert_eq!(d.answer(parked).unwrap().brief(), "200 ABORTED CLIENT preserved");
    let parked = d.submit(waiting(decisions("p", None), 500));
    assert_eq!(d.answer(parked), None, "there is room again");
}

#[test]
fn a_crash_answers_nobody_who_waits() {
    let mut d = begun(1);
    let ticket = d.submit(waiting(commit("c", 1, &epoch(1)), 500));
    d.seal();
    d.sync();
    d.crash(0);
    d.call(ack("c", 1, "p", Committed));
    assert_eq!(d.answer(ticket), None);
    assert_eq!(d.engine.gauges(d.now().uptime).waiting, 0);
}

#[test]
fn fencing_wakes_who_waits() {
    let mut d = begun(1);
    let getting = d.submit(waiting(get("c", 1), 500));
    let polling = d.submit(waiting(decisions("p", None), 500));
    d.call(open("c", 2));
    assert_eq!(d.answer(polling).unwrap().ids("decisions"), [1]);
    assert_eq!(d.answer(getting), None, "not terminal yet");
    d.step(Input::Sweep(Sweep::Gc));
    d.call(retire("p"));
    assert_eq!(d.answer(getting).unwrap().brief(), "200 ABORTED FENCED preserved");
    assert_eq!(d.read(decisions("p", None)).member("decisions"), Value::Array(Vec::new()));
}
