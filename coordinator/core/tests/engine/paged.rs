//! Calls that take several steps: a page of what they have to do in each.

use ratified_core::{Effect, Input, Limits, Request, Sweep, Ticket};
use ratified_protocol::{Outcome, TxnState};
use serde_json::{Value, json};

use crate::support::{
    Driver, Told, ack, batch, begin, commit, epoch, get, id_text, open, prepare, preserver, register, reinstate, retire,
};

const PAGE: usize = 2;

fn driver() -> Driver {
    Driver::opened_with(Limits { page: PAGE, ..Limits::default() })
}

/// Client `c` with so many OPEN transactions of epoch 1, each with this participant.
fn with_open(count: u64, participants: &[&str]) -> Driver {
    let mut d = driver();
    let item = |n| json!({"op": "begin", "txnId": id_text(n), "epoch": 1, "participants": participants});
    d.call(batch("c", (1..=count).map(item).collect(), true));
    d
}

/// The transactions that a step has aborted, in order.
fn aborted(effects: &[Effect]) -> Vec<String> {
    let ended = effects.iter().filter_map(|effect| match effect {
        Effect::Transition(t) if t.to == TxnState::Aborted => Some(t.txn_id.to_string()),
        _ => None,
    });
    ended.collect()
}

fn ids(numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
    numbers.map(id_text).collect()
}

/// Hands a request in, and does no more than its own step.
fn first_page(d: &mut Driver, request: Request) -> (Ticket, Vec<Effect>) {
    let ticket = d.ticket();
    let effects = d.step(Input::Request { ticket, request });
    d.seal();
    d.sync();
    (ticket, effects)
}

fn next_page(d: &mut Driver) -> Vec<Effect> {
    let effects = d.step(Input::Sweep(Sweep::Calls));
    d.seal();
    d.sync();
    effects
}

fn again() -> Effect {
    Effect::SweepAgain(Sweep::Calls)
}

#[test]
fn an_open_ends_a_page_in_a_step_and_is_answered_after_the_last() {
    for (count, steps) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2)] {
        let mut d = with_open(count, &[]);
        let (ticket, effects) = first_page(&mut d, open("c", 2));
        assert_eq!(aborted(&effects), ids(1..=count.min(2)));
        let mut taken = 0;
        let mut is_left = effects.contains(&again());
        while is_left {
            assert_eq!(d.answer(ticket), None);
            let effects = next_page(&mut d);
            taken += 1;
            assert_eq!(aborted(&effects), ids(2 * taken + 1..=count.min(2 * taken + 2)));
            is_left = effects.contains(&again());
        }
        assert_eq!(taken, steps, "{count}");
        let told = d.answer(ticket).unwrap();
        assert_eq!((told.member("epoch"), told.member("unfinished")), (json!(2), json!([])), "{count}");
    }
}

#[test]
fn the_epoch_is_raised_with_the_first_page_and_nothing_older_is_decided_otherwise() {
    let mut d = with_open(6, &[]);
    let (opening, _) = first_page(&mut d, open("c", 2));
    assert_eq!(d.answer(opening), None);
    let fenced = |told: Told| (told.brief(), told.member("currentEpoch"));
    let submit = |d: &mut Driver, request| {
        let (ticket, _) = first_page(d, request);
        d.answer(ticket).unwrap()
    };
    assert_eq!(fenced(submit(&mut d, begin("c", 9, &epoch(1)))), ("409 FENCED".to_owned(), json!(2)));
    // Whoever meets one that is still OPEN ends it, whatever epoch it says.
    let ended = "ABORTED FENCED preserved";
    assert_eq!(submit(&mut d, commit("c", 6, &epoch(2))).brief(), format!("409 OUTCOME_ABORTED: {ended}"));
    assert_eq!(submit(&mut d, prepare("c", 5, &epoch(2))).brief(), format!("409 OUTCOME_ABORTED: {ended}"));
    assert_eq!(submit(&mut d, get("c", 4)).brief(), format!("200 {ended}"));
    d.finish_calls();
    d.seal();
    d.sync();
    assert_eq!(d.answer(opening).unwrap().member("epoch"), 2);
    assert_eq!(d.read(get("c", 3)).brief(), format!("200 {ended}"));
}

#[test]
fn a_start_goes_on_with_an_open_that_was_half_done() {
    let mut d = with_open(5, &[]);
    first_page(&mut d, open("c", 2));
    d.restart();
    assert_eq!(aborted(&d.step(Input::Sweep(Sweep::Calls))), ids(3..=4));
    d.seal();
    d.sync();
    d.restart();
    // The same call again, since it was not answered.
    let told = d.call(open("c", 2));
    assert_eq!((told.member("epoch"), told.member("unfinished")), (json!(2), json!([])));
    for n in 1..=5 {
        assert_eq!(d.read(get("c", n)).brief(), "200 ABORTED FENCED preserved", "{n}");
    }
}

#[test]
fn a_second_open_between_the_pages_wins_and_the_first_is_told() {
    let mut d = with_open(5, &[]);
    let (first, _) = first_page(&mut d, open("c", 2));
    let (second, _) = first_page(&mut d, open("c", 3));
    let (repeated, _) = first_page(&mut d, open("c", 2));
    assert_eq!(d.answer(repeated).unwrap().brief(), "409 FENCED");
    d.finish_calls();
    d.seal();
    d.sync();
    let told = d.answer(first).unwrap();
    assert_eq!((told.brief(), told.member("currentEpoch")), ("409 FENCED".to_owned(), json!(3)));
    assert_eq!(d.answer(second).unwrap().member("epoch"), 3);
}

#[test]
fn what_is_prepared_is_looked_at_and_left_alone() {
    let mut d = with_open(5, &[]);
    for n in [1, 2, 4] {
        d.call(prepare("c", n, &epoch(1)));
    }
    let (ticket, effects) = first_page(&mut d, open("c", 2));
    assert_eq!(aborted(&effects), [] as [String; 0], "two were looked at");
    assert_eq!(aborted(&next_page(&mut d)), ids(3..=3));
    assert_eq!(aborted(&next_page(&mut d)), ids(5..=5));
    assert_eq!(d.answer(ticket).unwrap().ids("unfinished"), [1, 2, 4]);
    let (again, effects) = first_page(&mut d, open("c", 2));
    assert_eq!(
        (effects.len(), d.answer(again).unwrap().ids("unfinished")),
        (1, vec![1, 2, 4]),
        "nothing is left to do"
    );
}

#[test]
fn a_retirement_leaves_a_page_in_a_step_and_is_answered_after_the_last() {
    for (count, steps) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 2)] {
        let mut d = with_open(count, &["p"]);
        d.call(commit("c", 1, &epoch(1)));
        let (ticket, effects) = first_page(&mut d, retire("p"));
        let mut taken = 0;
        let mut is_left = effects.contains(&again());
        while is_left {
            assert_eq!(d.answer(ticket), None);
            taken += 1;
            is_left = next_page(&mut d).contains(&again());
        }
        assert_eq!(taken, steps, "{count}");
        assert_eq!(d.answer(ticket).unwrap().member("retired"), true);
        for n in 2..=count {
            assert_eq!(d.read(get("c", n)).member("participants"), json!([]), "{n}");
        }
    }
}

#[test]
fn between_the_pages_a_retired_participant_joins_nothing_and_may_still_acknowledge() {
    let mut d = with_open(5, &["p"]);
    d.call(commit("c", 5, &epoch(1)));
    let (ticket, _) = first_page(&mut d, retire("p"));
    let (joining, _) = first_page(&mut d, register("c", 4, "p", &epoch(1)));
    assert_eq!(d.answer(joining).unwrap().status, 200, "it takes part in that already");
    let (beginning, _) = first_page(&mut d, begin("c", 9, &json!({"epoch": 1, "participants": ["p"]})));
    assert_eq!(d.answer(beginning).unwrap().brief(), "409 PARTICIPANT_RETIRED");
    let (acking, _) = first_page(&mut d, ack("c", 5, "p", Outcome::Committed));
    assert_eq!(d.answer(acking).unwrap().brief(), "200 COMMITTED CLIENT preserved");
    d.finish_calls();
    d.seal();
    d.sync();
    assert_eq!(d.answer(ticket).unwrap().member("retired"), true);
}

#[test]
fn a_start_goes_on_with_a_retirement_and_a_reinstatement_ends_it() {
    let mut d = with_open(5, &["p"]);
    d.call(commit("c", 5, &epoch(1)));
    first_page(&mut d, retire("p"));
    d.restart();
    d.finish_calls();
    d.seal();
    d.sync();
    assert_eq!(d.read(get("c", 5)).brief(), "200 COMMITTED CLIENT preserved");
    assert_eq!(d.read(get("c", 4)).member("participants"), json!([]));

    let mut d = with_open(5, &["p"]);
    let (ticket, _) = first_page(&mut d, retire("p"));
    let (_, effects) = first_page(&mut d, reinstate("p"));
    assert!(!effects.contains(&again()));
    next_page(&mut d);
    assert_eq!(d.answer(ticket).unwrap().member("retired"), false);
    let takes_part = |d: &mut Driver, n| d.read(get("c", n)).member("participants") != json!([]);
    assert_eq!([1, 2, 3, 4, 5].map(|n| takes_part(&mut d, n)), [false, false, true, true, true]);
}

#[test]
fn a_list_of_the_preserver_is_the_same_in_pages_as_in_one() {
    let listed = |page: usize| {
        let mut d = Driver::opened_with(Limits { page, ..Limits::default() });
        for n in [4, 2, 5, 1, 3] {
            d.call(begin(
                "c",
                n,
                &json!({"epoch": 1, "timeoutMs": 50, "participants": if n == 2 { vec!["p"] } else { vec![] }}),
            ));
            if n != 3 {
                d.call(commit("c", n, &epoch(1)));
            }
        }
        d.pass(50);
        d.call(preserver("c")).body
    };
    let whole: Value = listed(256);
    assert_eq!(whole["outcomes"].as_array().unwrap().len(), 5, "what is over is ended first");
    for page in [1, 2, 3, 4, 5, 6] {
        assert_eq!(listed(page), whole, "{page}");
    }
    assert_eq!(driver().read(preserver("x")).brief(), "404 CLIENT_NOT_FOUND");
}

#[test]
fn more_calls_on_their_way_than_may_wait_are_refused_and_done_all_the_same() {
    let limits = Limits { page: PAGE, max_waiting: 0, ..Limits::default() };
    let mut d = Driver::opened_with(limits);
    let item = |n| json!({"op": "begin", "txnId": id_text(n), "epoch": 1});
    d.call(batch("c", (1..=5).map(item).collect(), true));
    let (ticket, _) = first_page(&mut d, open("c", 2));
    assert_eq!(d.answer(ticket).unwrap().brief(), "429 OVERLOADED");
    d.finish_calls();
    d.seal();
    d.sync();
    assert_eq!(d.read(get("c", 5)).brief(), "200 ABORTED FENCED preserved");
    assert_eq!(d.call(open("c", 2)).member("epoch"), 2, "the same call again");
}
