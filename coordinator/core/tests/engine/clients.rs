//! open and forget.

use ratified_core::{Limits, Page, Sweep};
use ratified_protocol::Outcome::{Aborted, Committed};
use serde_json::{Value, json};

use crate::support::{
    Driver, abort, ack, batch, begin, clients, commit, epoch, forget, get, id_text, open, open_of, open_with, prepare,
    preserver,
};

#[test]
fn the_first_open_gives_epoch_1_and_knows_nothing() {
    let mut d = Driver::new(Limits::default());
    let told = d.call(open("c", 1));
    assert_eq!(told.status, 200);
    assert_eq!(
        told.body,
        json!({"epoch": 1, "previousEpoch": null, "previousOwner": null, "unfinished": [], "lastCommitted": null,
               "newestTxnId": null, "evictedThrough": null, "acceptedFrom": []})
    );
}

#[test]
fn open_without_create_never_makes_a_client() {
    let mut d = Driver::new(Limits::default());
    assert_eq!(d.read(open_with("c", 1, false)).brief(), "404 CLIENT_NOT_FOUND");
    d.call(open("c", 1));
    assert_eq!(d.call(open_with("c", 2, false)).member("epoch"), 2);
    d.call(forget("c"));
    assert_eq!(d.read(open_with("c", 3, false)).brief(), "404 CLIENT_NOT_FOUND");
}

#[test]
fn a_new_owner_is_told_who_was_before() {
    let mut d = Driver::opened();
    let told = d.call(open("c", 2));
    assert_eq!(told.member("epoch"), 2);
    assert_eq!((told.member("previousEpoch"), told.member("previousOwner")), (json!(1), json!("owner-1")));
    d.restart();
    let told = d.read(open("c", 2));
    assert_eq!((told.member("previousEpoch"), told.member("previousOwner")), (json!(1), json!("owner-1")));
}

#[test]
fn the_same_incarnation_again_is_given_the_same_epoch_and_the_lists_read_anew() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    let told = d.read(open("c", 1));
    assert_eq!((told.member("epoch"), told.member("newestTxnId")), (json!(1), json!(id_text(1))));
    assert_eq!(told.ids("unfinished"), [1]);
    assert_eq!(d.read(get("c", 1)).brief(), "200 OPEN", "its own transactions are untouched");
    d.restart();
    assert_eq!(d.read(open("c", 1)).member("epoch"), 1);
}

#[test]
fn a_superseded_incarnation_is_fenced_and_disturbs_nobody() {
    let mut d = Driver::opened();
    d.call(open("c", 2));
    d.call(begin("c", 1, &epoch(2)));
    let told = d.read(open("c", 1));
    assert_eq!(told.brief(), "409 FENCED");
    assert_eq!((told.member("currentEpoch"), told.member("owner")), (json!(2), json!("owner-2")));
    d.restart();
    assert_eq!(d.read(open("c", 1)).brief(), "409 FENCED");
    assert_eq!(d.read(get("c", 1)).brief(), "200 OPEN");
}

#[test]
fn a_smaller_generation_than_the_greatest_seen_is_fenced_and_changes_nothing() {
    let mut d = Driver::new(Limits::default());
    d.call(open_of("c", 1, 5));
    d.call(begin("c", 1, &epoch(1)));
    let late = d.read(open_of("c", 2, 4));
    assert_eq!(late.brief(), "409 FENCED");
    assert_eq!((late.member("currentEpoch"), late.member("owner")), (json!(1), json!("owner-1")));
    assert_eq!(d.read(get("c", 1)).brief(), "200 OPEN");
    d.restart();
    assert_eq!(d.read(open_of("c", 2, 4)).brief(), "409 FENCED");
    assert_eq!(d.call(open_of("c", 2, 5)).member("epoch"), 2, "the same one is a restart within an attempt");
    assert_eq!(d.call(open("c", 3)).member("epoch"), 3, "an owner without one is a new owner like any other");
    d.restart();
    assert_eq!(d.read(open_of("c", 4, 4)).brief(), "409 FENCED", "and takes nothing back");
}

#[test]
fn the_greatest_generation_outlives_forgetting_and_a_repeat_may_raise_it() {
    let mut d = Driver::new(Limits::default());
    d.call(open_of("c", 1, 5));
    assert_eq!(d.call(open_of("c", 1, 6)).member("epoch"), 1);
    assert_eq!(d.read(open_of("c", 1, 5)).brief(), "409 FENCED", "the current incarnation, too");
    d.call(forget("c"));
    d.restart();
    assert_eq!(d.read(open_of("c", 2, 5)).brief(), "409 FENCED");
    assert_eq!(d.call(open_of("c", 2, 6)).member("epoch"), 2);
}

#[test]
fn whoever_finds_its_work_aborted_by_a_newer_owner_learns_who_that_is() {
    let mut d = Driver::opened();
    for n in [1, 2] {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
    }
    d.call(begin("c", 3, &epoch(1)));
    d.call(abort("c", 3, &epoch(1)));
    d.call(open("c", 2));
    d.call(ack("c", 2, "p", Aborted));
    for (n, state) in [(1, "ABORTING"), (2, "ABORTED")] {
        let told = d.read(commit("c", n, &epoch(1)));
        assert_eq!((told.status, told.member("code")), (409, json!("OUTCOME_ABORTED")));
        assert_eq!((&told.body["txn"]["state"], &told.body["txn"]["endReason"]), (&json!(state), &json!("FENCED")));
        assert_eq!((told.member("currentEpoch"), told.member("owner")), (json!(2), json!("owner-2")));
    }
    let own = d.read(commit("c", 3, &epoch(1)));
    assert_eq!((own.member("currentEpoch"), own.member("owner")), (Value::Null, Value::Null), "its own abort");
}

#[test]
fn the_last_16_incarnations_are_remembered() {
    let mut d = Driver::opened();
    for by in 2..=17 {
        d.call(open("c", by));
    }
    for by in 2..=16 {
        assert_eq!(d.read(open("c", by)).brief(), "409 FENCED", "{by}");
    }
    assert_eq!(d.read(open("c", 17)).member("epoch"), 17);
    // The first one is forgotten: it is a new owner like any other.
    assert_eq!(d.call(open("c", 1)).member("epoch"), 18);
}

#[test]
fn open_aborts_what_older_epochs_left_open_and_never_what_is_prepared_or_ending() {
    let mut d = Driver::opened();
    for n in [1, 2, 3, 4] {
        d.call(begin("c", n, &json!({"epoch": 1, "participants": ["p"]})));
    }
    d.call(prepare("c", 2, &json!({"epoch": 1, "payload": "eA=="})));
    d.call(commit("c", 3, &json!({"epoch": 1})));
    let told = d.call(open("c", 2));
    assert_eq!(told.ids("unfinished"), [1, 2, 3, 4]);
    assert_eq!(told.each("unfinished", "state"), ["ABORTING", "PREPARED", "COMMITTING", "ABORTING"]);
    assert_eq!(told.body["unfinished"][0]["endReason"], "FENCED");
    assert_eq!(told.body["unfinished"][1]["payload"], "eA==");
    assert_eq!(told.member("newestTxnId"), id_text(4));
    assert_eq!(told.member("lastCommitted")["txnId"], id_text(3));
}

#[test]
fn open_tells_the_true_reason_of_a_passed_deadline_and_aborts_in_order() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.call(begin("c", 2, &json!({"epoch": 1, "timeoutMs": 10})));
    d.call(begin("c", 3, &epoch(1)));
    d.call(prepare("c", 3, &json!({"epoch": 1, "preparedTimeoutMs": 10})));
    d.call(begin("c", 4, &epoch(1)));
    d.pass(10);
    assert_eq!(d.call(open("c", 2)).member("unfinished"), json!([]));
    let told = d.read(preserver("c"));
    assert_eq!(told.ids("outcomes"), [4, 3, 2, 1], "newest termination first");
    assert_eq!(told.each("outcomes", "endReason"), ["FENCED", "PREPARED_TIMEOUT", "TIMEOUT", "FENCED"]);
}

#[test]
fn unfinished_is_bounded_by_a_thousand_ascending() {
    let mut d = Driver::opened_with(Limits { max_open_per_client: 2000, ..Limits::default() });
    let begins = (1..=1001).rev().map(|n| json!({"op": "begin", "txnId": id_text(n), "epoch": 1}));
    d.call(batch("c", begins.collect(), true));
    let told = d.call(open("c", 1));
    assert_eq!(told.ids("unfinished"), (1..=1000).collect::<Vec<_>>());
}

#[test]
fn open_carries_payloads_up_to_a_mebibyte_the_last_commits_first() {
    let payload = format!("{}AA==", "A".repeat(4 * (65535 / 3)));
    let mut d = Driver::opened();
    for n in 1..=18 {
        d.submit(begin("c", n, &epoch(1)));
        d.submit(prepare("c", n, &json!({"epoch": 1, "payload": payload})));
    }
    d.submit(commit("c", 18, &json!({})));
    let told = d.call(open("c", 1));
    assert_eq!(told.body["lastCommitted"]["payload"], payload);
    let has: Vec<bool> =
        told.body["unfinished"].as_array().unwrap().iter().map(|txn| txn.get("payload").is_some()).collect();
    let mut expected = vec![true; 15];
    expected.extend([false, false]);
    assert_eq!(has, expected, "16 payloads of 64 KiB, one of them the last commit's");
    assert_eq!(told.body["unfinished"][14].get("payloadOmitted"), None);
    assert_eq!(told.body["unfinished"][15]["payloadOmitted"], true);
    assert_eq!(d.read(get("c", 16)).member("payload"), payload);
}

#[test]
fn clients_are_bounded_and_tombstones_do_not_count() {
    let mut d = Driver::new(Limits { max_clients: 2, ..Limits::default() });
    d.call(open("a", 1));
    d.call(open("b", 1));
    let told = d.read(open("c", 1));
    assert_eq!((told.brief().as_str(), told.member("retryable")), ("429 TOO_MANY_CLIENTS", json!(true)));
    assert_eq!(d.call(open("a", 2)).member("epoch"), 2);
    d.call(forget("a"));
    assert_eq!(d.call(open("c", 1)).member("epoch"), 1);
    assert_eq!(d.read(open("a", 3)).brief(), "429 TOO_MANY_CLIENTS");
}

#[test]
fn forget_leaves_a_tombstone_with_epoch_and_watermark() {
    let mut d = Driver::opened();
    d.call(open("c", 2));
    d.call(begin("c", 1, &epoch(2)));
    d.call(commit("c", 1, &json!({"epoch": 2, "payload": "eA=="})));
    d.call(begin("c", 2, &epoch(2)));
    d.call(abort("c", 2, &epoch(2)));
    let told = d.call(forget("c"));
    assert_eq!(
        told.body,
        json!({"clientName": "c", "epoch": 2, "owner": null, "forgotten": true, "lastCommitted": null,
               "counts": {"OPEN": 0, "PREPARED": 0, "COMMITTING": 0, "COMMITTED": 0, "ABORTING": 0, "ABORTED": 0}})
    );
    assert_eq!(d.synced.len(), 1, "only the client's record is left");
    assert_eq!(d.read(forget("c")).body, told.body, "again: the same, and no write");
    let told = d.read(preserver("c"));
    assert_eq!((told.member("outcomes"), told.member("lastCommitted")), (json!([]), Value::Null));
    assert_eq!(told.member("evictedThrough"), id_text(2));
    d.restart();
    assert_eq!(d.read(begin("c", 3, &epoch(2))).brief(), "404 CLIENT_NOT_FOUND");
    assert_eq!(d.read(begin("c", 1, &epoch(2))).brief(), "404 CLIENT_NOT_FOUND");
}

#[test]
fn a_forgotten_client_goes_on_where_it_stopped() {
    let mut d = Driver::opened();
    d.call(open("c", 2));
    d.call(begin("c", 5, &epoch(2)));
    d.call(commit("c", 5, &epoch(2)));
    d.call(forget("c"));
    assert_eq!(d.read(open("c", 1)).brief(), "409 FENCED", "its incarnations are remembered");
    let told = d.call(open("c", 3));
    assert_eq!(told.member("epoch"), 3);
    assert_eq!((told.member("previousEpoch"), told.member("lastCommitted")), (json!(2), Value::Null));
    assert_eq!((told.member("evictedThrough"), told.member("newestTxnId")), (json!(id_text(5)), json!(id_text(5))));
    assert_eq!(d.read(begin("c", 5, &epoch(3))).brief(), "410 TXN_ID_TOO_OLD");
    assert_eq!(d.call(begin("c", 6, &epoch(3))).brief(), "201 OPEN");
}

#[test]
fn the_owner_of_a_forgotten_client_that_asks_again_keeps_its_epoch() {
    let mut d = Driver::opened();
    d.call(forget("c"));
    assert_eq!(d.call(open("c", 1)).member("epoch"), 1);
    assert_eq!(d.read(open("c", 1)).member("epoch"), 1);
    let told = d.read(clients(None, Page::default()));
    assert_eq!(
        (&told.body["items"][0]["forgotten"], &told.body["items"][0]["owner"]),
        (&json!(false), &json!("owner-1"))
    );
    assert_eq!(d.call(begin("c", 1, &epoch(1))).brief(), "201 OPEN");
}

#[test]
fn a_client_with_unfinished_transactions_is_not_forgotten() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "participants": ["p"]})));
    assert_eq!(d.read(forget("c")).brief(), "409 CLIENT_BUSY");
    d.call(prepare("c", 1, &epoch(1)));
    assert_eq!(d.read(forget("c")).brief(), "409 CLIENT_BUSY");
    d.call(commit("c", 1, &json!({})));
    assert_eq!(d.read(forget("c")).brief(), "409 CLIENT_BUSY");
    d.call(ack("c", 1, "p", Committed));
    assert_eq!(d.call(forget("c")).member("forgotten"), true);
    assert_eq!(d.read(forget("x")).brief(), "404 CLIENT_NOT_FOUND");
}

#[test]
fn a_passed_deadline_does_not_keep_a_client_busy() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10})));
    d.pass(10);
    assert_eq!(d.call(forget("c")).member("forgotten"), true);
    assert_eq!(d.read(get("c", 1)).brief(), "410 OUTCOME_EXPIRED");
}

#[test]
fn the_newest_id_never_falls_back() {
    let mut d = Driver::opened();
    d.call(begin("c", 9, &epoch(1)));
    d.call(abort("c", 9, &epoch(1)));
    d.call(begin("c", 3, &json!({"epoch": 1, "participants": ["p"]})));
    d.call(abort("c", 3, &epoch(1)));
    d.call(ack("c", 3, "p", Aborted));
    let newest = |d: &mut Driver| d.read(open("c", 1)).member("newestTxnId");
    assert_eq!(newest(&mut d), id_text(9));
    d.restart();
    assert_eq!(newest(&mut d), id_text(9));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    assert_eq!(newest(&mut d), id_text(9));
    d.restart();
    assert_eq!(newest(&mut d), id_text(9));
}
