//! What may leave when: an answer that depends on an unsynced step waits for its sync, whatever the answer says.

use ratified_core::{Limits, Page, Request, Sweep, TxnFilter};
use ratified_protocol::Outcome::Committed;
use serde_json::json;

use crate::support::{
    Driver, abort, ack, begin, client, clients, commit, decisions, epoch, forget, get, keep_alive, lookup, open,
    open_with, prepare, preserver, reply, retire, txns,
};

/// Asserts that an answer is held until the batch at hand is synced.
fn assert_held(d: &mut Driver, request: Request) {
    let ticket = d.submit(request);
    assert_eq!(d.answer(ticket), None, "before the seal");
    let mut d = d.clone();
    d.seal();
    assert_eq!(d.answer(ticket), None, "before the sync");
    d.sync();
    assert!(d.answer(ticket).is_some());
}

fn assert_leaves(d: &mut Driver, request: Request) {
    let ticket = d.submit(request);
    assert!(d.answer(ticket).is_some());
}

#[test]
fn repeats_refusals_absences_and_lists_wait_for_the_step_they_depend_on() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    assert_held(&mut d, commit("c", 1, &epoch(1)));
    for request in [
        commit("c", 1, &epoch(1)),
        abort("c", 1, &epoch(1)),
        get("c", 1),
        lookup("c", 1),
        preserver("c"),
        open("c", 1),
        begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})),
        decisions("p", None),
        decisions("q", None),
        clients(None, Page::default()),
        txns(TxnFilter::default(), Page::default()),
        ack("c", 1, "stranger", Committed),
        forget("c"),
    ] {
        assert_held(&mut d, request);
    }
}

#[test]
fn a_fenced_caller_is_told_only_when_the_new_epoch_is_durable() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(prepare("c", 1, &epoch(1)));
    assert_held(&mut d, open("c", 2));
    assert_held(&mut d, commit("c", 1, &epoch(1)));
    assert_held(&mut d, begin("c", 2, &epoch(1)));
    assert_held(&mut d, open("c", 1));
}

#[test]
fn an_absence_waits_for_the_eviction_it_tells_of() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(abort("c", 1, &epoch(1)));
    d.pass(Limits::default().persist_time_ms);
    d.step(ratified_core::Input::Sweep(Sweep::Expiry));
    assert_held(&mut d, get("c", 1));
    assert_held(&mut d, begin("c", 1, &epoch(1)));
}

#[test]
fn a_client_of_an_unsynced_open_is_not_told_about_before() {
    let mut d = Driver::new(Limits::default());
    assert_held(&mut d, open("c", 1));
    assert_held(&mut d, get("c", 1));
    assert_leaves(&mut d, get("other", 1));
    assert_leaves(&mut d, open_with("other", 1, false));
}

#[test]
fn replays_of_synced_outcomes_leave_at_once_whatever_else_is_on_its_way() {
    let mut d = Driver::opened();
    d.call(open("other", 1));
    for n in [1, 2] {
        d.call(begin("c", n, &epoch(1)));
    }
    d.call(commit("c", 1, &epoch(1)));
    assert_held(&mut d, abort("c", 2, &epoch(1)));
    assert_held(&mut d, begin("other", 1, &epoch(1)));
    assert_leaves(&mut d, commit("c", 1, &json!({})));
    assert_leaves(&mut d, abort("c", 1, &epoch(1)));
    assert_leaves(&mut d, prepare("c", 1, &epoch(1)));
    assert_leaves(&mut d, begin("c", 1, &epoch(1)));
    assert_leaves(&mut d, get("c", 1));
    assert_leaves(&mut d, lookup("c", 1));
}

#[test]
fn a_replay_that_lost_its_payload_waits_for_the_commit_that_took_its_place() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(commit("c", 1, &json!({"epoch": 1, "payload": "eA=="})));
    d.call(begin("c", 2, &epoch(1)));
    assert_held(&mut d, commit("c", 2, &epoch(1)));
    assert_held(&mut d, get("c", 1));
}

#[test]
fn a_keep_alive_waits_for_its_begin_and_for_nothing_else() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.submit(begin("c", 2, &epoch(1)));
    assert_leaves(&mut d, keep_alive("c", 1, &epoch(1)));
    assert_held(&mut d, keep_alive("c", 2, &epoch(1)));
}

#[test]
fn the_end_that_a_retirement_brings_is_told_when_it_is_durable() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(commit("c", 1, &epoch(1)));
    assert_held(&mut d, retire("p"));
    assert_held(&mut d, get("c", 1));
}

#[test]
fn steps_of_one_batch_have_revisions_of_their_own() {
    let mut d = Driver::opened();
    let mut after = |request| {
        let ticket = d.ticket();
        reply(&d.step(ratified_core::Input::Request { ticket, request })).0
    };
    assert_eq!(after(begin("c", 1, &epoch(1))), 2);
    assert_eq!(after(begin("c", 2, &epoch(1))), 3);
    assert_eq!(after(get("c", 1)), 2);
    assert_eq!(after(get("c", 2)), 3);
    assert_eq!(after(get("c", 3)), 3, "an absence depends on the client");
    assert_eq!(after(clients(None, Page::default())), 3);
}

#[test]
fn what_is_not_synced_dies_with_the_process_and_was_told_to_nobody() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let ticket = d.submit(commit("c", 1, &epoch(1)));
    d.seal();
    d.crash(0);
    assert_eq!(d.answer(ticket), None);
    assert_eq!(d.call(abort("c", 1, &epoch(1))).brief(), "200 ABORTED CLIENT preserved");
    assert!(d.synced.contains_key(&ratified_core::Key::Client(client("c"))));
}

#[test]
fn what_survived_unsynced_wins_over_any_later_request() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let ticket = d.submit(commit("c", 1, &epoch(1)));
    d.seal();
    d.crash(1);
    assert_eq!(d.answer(ticket), None);
    assert_eq!(d.call(abort("c", 1, &epoch(1))).brief(), "409 OUTCOME_COMMITTED: COMMITTED CLIENT preserved");
}
