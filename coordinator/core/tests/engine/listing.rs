//! Lists of clients and transactions.

use ratified_core::{Input, Limits, Page, Sweep, TxnFilter};
use ratified_protocol::TxnState;
use serde_json::{Value, json};

use crate::support::{
    Driver, Told, abort, batch, begin, client, clients, clients_of, commit, epoch, forget, get, id_text, open, page,
    prepare, txns,
};

fn state(state: TxnState) -> TxnFilter {
    TxnFilter { state: Some(state), ..TxnFilter::default() }
}

fn token(told: &Told) -> Option<String> {
    told.body.get("nextPageToken").map(|token| token.as_str().unwrap().to_owned())
}

/// Pairs of client and number.
fn keys(told: &Told) -> Vec<(String, u64)> {
    told.each("items", "clientName").into_iter().zip(told.ids("items")).collect()
}

fn key(name: &str, n: u64) -> (String, u64) {
    (name.to_owned(), n)
}

/// Clients a1, a2 and b, each with ids 1 OPEN, 2 PREPARED, 3 COMMITTED, 4 ABORTED and 5 COMMITTING.
fn three_clients() -> Driver {
    let mut d = Driver::new(Limits::default());
    for name in ["b", "a2", "a1"] {
        d.call(open(name, 1));
        for n in 1..=4 {
            d.call(begin(name, n, &epoch(1)));
        }
        d.call(begin(name, 5, &json!({"epoch": 1, "participants": ["p"]})));
        d.call(prepare(name, 2, &epoch(1)));
        d.call(commit(name, 3, &json!({"epoch": 1, "payload": "eA=="})));
        d.call(abort(name, 4, &epoch(1)));
        d.call(commit(name, 5, &epoch(1)));
    }
    d
}

#[test]
fn transactions_are_listed_by_client_and_id_and_only_live_ones() {
    let mut d = three_clients();
    let told = d.read(txns(TxnFilter::default(), Page::default()));
    let expected: Vec<_> = ["a1", "a2", "b"].iter().flat_map(|name| [1, 2, 5].map(|n| key(name, n))).collect();
    assert_eq!(keys(&told), expected);
    assert_eq!(token(&told), None);
}

#[test]
fn a_state_filters_and_terminal_ones_ask_the_preserver() {
    let mut d = three_clients();
    for (wanted, n) in [
        (TxnState::Open, 1),
        (TxnState::Prepared, 2),
        (TxnState::Committed, 3),
        (TxnState::Aborted, 4),
        (TxnState::Committing, 5),
    ] {
        let told = d.read(txns(state(wanted), Page::default()));
        assert_eq!(keys(&told), [key("a1", n), key("a2", n), key("b", n)], "{wanted}");
        assert!(told.each("items", "state").iter().all(|s| s == wanted.as_str()));
    }
    assert_eq!(keys(&d.read(txns(state(TxnState::Aborting), Page::default()))), []);
}

#[test]
fn client_and_prefix_filter_and_must_both_match() {
    let mut d = three_clients();
    let of = |name: Option<&str>, prefix: Option<&str>, state| TxnFilter {
        client: name.map(client),
        client_prefix: prefix.map(str::to_owned),
        state,
        ..TxnFilter::default()
    };
    let mut listed = |filter: TxnFilter| keys(&d.read(txns(filter, Page::default()))).len();
    assert_eq!(listed(of(Some("a1"), None, None)), 3);
    assert_eq!(listed(of(None, Some("a"), None)), 6);
    assert_eq!(listed(of(None, Some("a"), Some(TxnState::Committed))), 2);
    assert_eq!(listed(of(None, Some("c"), None)), 0);
    assert_eq!(listed(of(Some("a1"), Some("a"), None)), 3);
    assert_eq!(listed(of(Some("a1"), Some("b"), None)), 0);
    assert_eq!(listed(of(Some("nobody"), None, None)), 0);
}

#[test]
fn age_filters_live_ones_by_their_begin_and_ended_ones_by_their_end() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &epoch(1)));
    d.pass(10);
    d.call(begin("c", 2, &epoch(1)));
    d.call(begin("c", 3, &epoch(1)));
    d.call(abort("c", 3, &epoch(1)));
    d.pass(10);
    let older = |ms, state| TxnFilter { older_than_ms: Some(ms), state, ..TxnFilter::default() };
    let mut listed = |filter| d.read(txns(filter, Page::default())).ids("items");
    assert_eq!(listed(older(10, None)), [1, 2]);
    assert_eq!(listed(older(11, None)), [1]);
    assert_eq!(listed(older(20, None)), [1]);
    assert_eq!(listed(older(21, None)), [] as [u64; 0]);
    assert_eq!(listed(older(10, Some(TxnState::Aborted))), [3]);
    assert_eq!(listed(older(11, Some(TxnState::Aborted))), [] as [u64; 0]);
}

#[test]
fn pages_lead_on_to_the_end_and_a_token_is_stable_under_inserts() {
    let mut d = three_clients();
    let first = d.read(txns(TxnFilter::default(), page(4, None)));
    assert_eq!(keys(&first), [key("a1", 1), key("a1", 2), key("a1", 5), key("a2", 1)]);
    // Whatever comes and goes meanwhile: nothing is told twice, and nothing that was there throughout is left out.
    d.call(begin("a1", 6, &epoch(1)));
    d.call(begin("a2", 6, &epoch(1)));
    d.call(abort("a2", 1, &epoch(1)));
    let second = d.read(txns(TxnFilter::default(), page(4, token(&first).as_deref())));
    assert_eq!(keys(&second), [key("a2", 2), key("a2", 5), key("a2", 6), key("b", 1)]);
    let third = d.read(txns(TxnFilter::default(), page(4, token(&second).as_deref())));
    assert_eq!((keys(&third), token(&third)), (vec![key("b", 2), key("b", 5)], None));
}

#[test]
fn a_page_that_ends_with_the_last_item_has_no_token() {
    let mut d = three_clients();
    let told = d.read(txns(TxnFilter::default(), page(9, None)));
    assert_eq!((keys(&told).len(), token(&told)), (9, None));
    let told = d.read(txns(TxnFilter::default(), page(8, None)));
    assert!(token(&told).is_some());
    let told = d.read(clients(None, page(3, None)));
    assert_eq!((told.each("items", "clientName").len(), token(&told)), (3, None));
}

#[test]
fn page_size_is_50_unless_given_and_coerced() {
    let mut d = Driver::opened_with(Limits { max_open_per_client: 2000, ..Limits::default() });
    let begins = (1..=1001).map(|n| json!({"op": "begin", "txnId": id_text(n), "epoch": 1}));
    d.call(batch("c", begins.collect(), true));
    let mut listed = |size: Option<u64>| {
        let told = d.read(txns(TxnFilter::default(), Page { size, token: None }));
        (told.ids("items").len(), token(&told).is_some())
    };
    assert_eq!(listed(None), (50, true));
    assert_eq!(listed(Some(0)), (1, true));
    assert_eq!(listed(Some(1000)), (1000, true));
    assert_eq!(listed(Some(u64::MAX)), (1000, true));
}

#[test]
fn a_token_of_no_earlier_answer_is_refused() {
    let mut d = three_clients();
    for token in ["", "x", "a1", "a1,", &format!("a/1,{}", id_text(1)), "a1,1"] {
        let told = d.read(txns(TxnFilter::default(), page(4, Some(token))));
        assert_eq!(told.brief(), "400 INVALID_ARGUMENT", "{token:?}");
    }
    let filter = TxnFilter { client: Some(client("b")), ..TxnFilter::default() };
    let told = d.read(txns(filter, page(4, Some(&format!("a1,{}", id_text(1))))));
    assert_eq!(told.brief(), "400 INVALID_ARGUMENT", "a token of another listing");
    assert_eq!(d.read(clients(None, page(4, Some("/")))).brief(), "400 INVALID_ARGUMENT");
}

#[test]
fn a_step_visits_a_bounded_number_of_entries_and_a_short_page_has_a_token() {
    let mut d = Driver::opened_with(Limits { max_open_per_client: 6000, ..Limits::default() });
    let begins = (1..=5001).map(|n| json!({"op": "begin", "txnId": id_text(n), "epoch": 1}));
    d.call(batch("c", begins.collect(), true));
    d.call(prepare("c", 5001, &epoch(1)));
    let first = d.read(txns(state(TxnState::Prepared), page(10, None)));
    assert_eq!(first.ids("items"), [] as [u64; 0]);
    let second = d.read(txns(state(TxnState::Prepared), page(10, token(&first).as_deref())));
    assert_eq!((second.ids("items"), token(&second)), (vec![5001], None));
}

#[test]
fn a_listing_that_meets_a_passed_deadline_aborts_and_tells_the_truth() {
    let mut d = Driver::opened();
    d.call(begin("c", 1, &json!({"epoch": 1, "timeoutMs": 10, "participants": ["p"]})));
    d.call(begin("c", 2, &json!({"epoch": 1, "timeoutMs": 10})));
    d.pass(10);
    let ticket = d.submit(txns(TxnFilter::default(), Page::default()));
    assert_eq!(d.answer(ticket), None, "it waits for the aborts it wrote");
    d.seal();
    d.sync();
    let told = d.answer(ticket).unwrap();
    assert_eq!((told.ids("items"), told.each("items", "state")), (vec![1], vec!["ABORTING".to_owned()]));
    assert_eq!(d.read(get("c", 2)).brief(), "200 ABORTED TIMEOUT preserved");
}

#[test]
fn a_listed_last_commit_has_its_payload() {
    let mut d = Driver::opened();
    for n in [1, 2] {
        d.call(begin("c", n, &epoch(1)));
        d.call(commit("c", n, &json!({"epoch": 1, "payload": "eA=="})));
    }
    let told = d.read(txns(state(TxnState::Committed), Page::default()));
    assert_eq!(told.body["items"][0].get("payload"), None, "gone with the commit after it");
    assert_eq!(told.body["items"][1]["payload"], "eA==");
}

#[test]
fn clients_are_listed_by_name_with_their_counts() {
    let mut d = three_clients();
    let told = d.read(clients(Some("a2"), Page::default()));
    assert_eq!(
        told.body,
        json!({"items": [{
            "clientName": "a2", "epoch": 1, "owner": "owner-1", "forgotten": false,
            "lastCommitted": {"txnId": id_text(5), "checkpointId": null, "endTime": "1970-01-01T00:00:00.000Z",
                              "endReason": "CLIENT"},
            "counts": {"OPEN": 1, "PREPARED": 1, "COMMITTING": 1, "COMMITTED": 1, "ABORTING": 0, "ABORTED": 1}
        }]})
    );
    assert_eq!(d.read(clients(None, Page::default())).each("items", "clientName"), ["a1", "a2", "b"]);
    assert_eq!(d.read(clients(Some("a"), Page::default())).each("items", "clientName"), ["a1", "a2"]);
    let first = d.read(clients(None, page(2, None)));
    assert_eq!(first.each("items", "clientName"), ["a1", "a2"]);
    d.call(open("a3", 1));
    let second = d.read(clients(None, page(2, token(&first).as_deref())));
    assert_eq!((second.each("items", "clientName"), token(&second)), (vec!["a3".to_owned(), "b".to_owned()], None));
}

#[test]
fn a_token_from_before_the_prefix_leads_to_the_first_name_with_it() {
    let mut d = three_clients();
    let told = d.read(clients(Some("b"), page(4, Some("a1"))));
    assert_eq!((told.each("items", "clientName"), token(&told)), (vec!["b".to_owned()], None));
}

#[test]
fn a_sink_has_the_clients_that_are_its_name_and_a_number() {
    let mut d = Driver::opened_with(Limits { max_clients: 10_000, ..Limits::default() });
    for name in ["s", "s.0", "s.12", "s.x", "s.1x", "s.0.3", "sx.1", "s-0", "t.0"] {
        d.call(open(name, 1));
    }
    assert_eq!(d.read(clients_of("s", Page::default())).each("items", "clientName"), ["s.0", "s.12"]);
    assert_eq!(d.read(clients_of("s.0", Page::default())).each("items", "clientName"), ["s.0.3"]);
    let first = d.read(clients_of("s", page(1, None)));
    assert_eq!(first.each("items", "clientName"), ["s.0"]);
    let rest = d.read(clients_of("s", page(9, token(&first).as_deref())));
    assert_eq!((rest.each("items", "clientName"), token(&rest)), (vec!["s.12".to_owned()], None));
}

#[test]
fn one_step_looks_at_five_thousand_names_and_a_token_leads_on() {
    let mut d = Driver::opened_with(Limits { max_clients: 10_000, ..Limits::default() });
    for n in 0..5_000 {
        // One check of all for all of them, not one for each.
        let input = Input::Request { ticket: d.ticket(), request: open(&format!("s.0x{n}"), 1) };
        d.engine.step(d.now(), input, &mut Vec::new());
    }
    d.call(open("s.1", 1));
    let first = d.read(clients_of("s", Page::default()));
    assert_eq!(first.each("items", "clientName"), [] as [&str; 0]);
    let rest = d.read(clients_of("s", page(50, token(&first).as_deref())));
    assert_eq!((rest.each("items", "clientName"), token(&rest)), (vec!["s.1".to_owned()], None));
}

#[test]
fn tombstones_are_listed_as_forgotten() {
    let mut d = Driver::opened();
    d.call(forget("c"));
    let told = d.read(clients(None, Page::default()));
    assert_eq!(
        (told.body["items"][0]["forgotten"].clone(), told.body["items"][0]["owner"].clone()),
        (json!(true), Value::Null)
    );
}

#[test]
fn a_last_commit_the_preserver_dropped_is_not_listed_among_outcomes() {
    let mut d = Driver::opened_with(Limits { min_committed_per_client: 0, ..Limits::default() });
    d.call(begin("c", 1, &epoch(1)));
    d.call(commit("c", 1, &epoch(1)));
    d.pass(Limits::default().persist_time_ms);
    d.sweep(Sweep::Expiry);
    assert_eq!(d.read(txns(state(TxnState::Committed), Page::default())).ids("items"), [] as [u64; 0]);
    let told = d.read(clients(None, Page::default()));
    assert_eq!(told.body["items"][0]["lastCommitted"]["txnId"], id_text(1));
    assert_eq!(told.body["items"][0]["counts"]["COMMITTED"], 0);
}
