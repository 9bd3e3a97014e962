//! A caller says which store it knows; one that is put back to an older copy, or is another, does nothing for it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use std::sync::Arc;

use ratified_coordinator::{Coordinator, Handle};
use serde_json::{Value, json};
use support::{Answer, Control, Http, T1, TestStore, config, start};

/// What a caller keeps of an answer, and sends with its next request.
async fn known(handle: &Handle) -> String {
    let answer = Http::to(handle).get("/v1").await;
    format!("{}.{}", answer.header("ratified-store").unwrap(), answer.header("ratified-load").unwrap())
}

async fn ask(handle: &Handle, method: &str, path: &str, known: &[&str], body: &Value) -> Answer {
    let mut request = Http::to(handle).request(method, path).json(body);
    for value in known {
        request = request.header("ratified-known", *value);
    }
    Answer::read(request.send().await.unwrap()).await
}

async fn begin(handle: &Handle, known: &[&str]) -> Answer {
    ask(handle, "PUT", &format!("/v1/clients/c/txns/{T1}"), known, &json!({"epoch": 1})).await
}

/// A store with client `c` at epoch 1, copied after its first load.
async fn copied() -> (Arc<Control>, String) {
    let control = Control::new();
    let handle = start(&control, config()).await;
    Http::to(&handle).open("c").await;
    let first = known(&handle).await;
    handle.shutdown().await.unwrap();
    (control, first)
}

const MALFORMED: &str = "Ratified-Known: must be <clusterId>.<loads>.<nonce>, or <clusterId>.<p>:<loads>.<nonce>";

#[tokio::test]
async fn a_copy_that_is_put_back_is_noticed_although_its_number_is_the_one_that_was_known() {
    let (control, first) = copied().await;
    let handle = start(&control.crash(), config()).await;
    let second = known(&handle).await;
    assert_eq!(begin(&handle, &[&second]).await.status, 201);
    handle.shutdown().await.unwrap();

    let put_back = start(&control.crash(), config()).await;
    let number = |known: &str| known.rsplit_once('.').unwrap().0.to_owned();
    assert_eq!(number(&known(&put_back).await), number(&second), "the number alone tells nothing");
    let refused = begin(&put_back, &[&second]).await;
    assert_eq!(refused.refusal(), (409, "STORE_CHANGED"));
    assert_eq!((&refused.body["retryable"], &refused.body["final"]), (&json!(false), &json!(false)));
    let read = ask(&put_back, "GET", "/v1/clients", &[&second], &json!({})).await;
    assert_eq!(read.refusal(), (409, "STORE_CHANGED"), "nothing such a store says may be acted on");
    let absent = Http::to(&put_back).get(&format!("/v1/clients/c/txns/{T1}")).await;
    assert_eq!(absent.refusal(), (404, "TXN_NOT_FOUND"), "nothing was done");
    assert_eq!(begin(&put_back, &[&first]).await.status, 201, "the load before the copy is in both histories");
}

#[tokio::test]
async fn a_greater_load_and_another_store_are_refused() {
    let (control, first) = copied().await;
    let later = start(&control.crash(), config()).await;
    let second = known(&later).await;
    let stranger = start(&Control::new(), config()).await;
    assert_eq!(begin(&stranger, &[&first]).await.refusal(), (409, "STORE_CHANGED"));
    let forged = second.replacen(".2.", ".3.", 1);
    assert_eq!(begin(&later, &[&forged]).await.refusal(), (409, "STORE_CHANGED"));
    for known in [&first, &second] {
        assert_ne!(begin(&later, &[known]).await.status, 409, "{known}");
    }
}

#[tokio::test]
async fn what_is_known_must_be_said_once_and_well() {
    let (control, first) = copied().await;
    let handle = start(&control, config()).await;
    for (values, detail) in [
        (vec!["x"], MALFORMED),
        (vec![""], MALFORMED),
        (vec![first.rsplit_once('.').unwrap().0], MALFORMED),
        (vec![first.as_str(), first.as_str()], "Ratified-Known: comes more than once"),
    ] {
        let refused = begin(&handle, &values).await;
        assert_eq!((refused.refusal(), refused.body["detail"].as_str()), ((400, "INVALID_ARGUMENT"), Some(detail)));
    }
}

#[tokio::test]
async fn a_changed_store_is_told_after_a_bad_body_and_loading_and_before_what_is_stored() {
    let (control, first) = copied().await;
    let other = start(&Control::new(), config()).await;
    let bad = ask(&other, "POST", "/v1/clients/c/open", &[&first], &json!({"x": 1})).await;
    assert_eq!(bad.refusal(), (400, "INVALID_ARGUMENT"));
    assert_eq!(begin(&other, &[&first]).await.refusal(), (409, "STORE_CHANGED"), "not 404 CLIENT_NOT_FOUND");
    assert_eq!(ask(&other, "GET", "/readyz", &[&first], &json!({})).await.status, 200, "monitors know no store");

    let held = control.crash();
    held.hold_load();
    let loading = Coordinator::listen_with(config(), Box::new(TestStore(held.clone()))).await.unwrap();
    assert_eq!(begin(&loading, &[&first]).await.refusal(), (503, "COORDINATOR_LOADING"));
    held.release();
}
