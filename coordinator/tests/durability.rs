//! Nothing is told before it is durable, and nothing after the store has failed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ratified_coordinator::{Failure, StartError};
use serde_json::{Value, json};
use support::{Answer, Control, Fails, Http, T1, T2, T3, T4, TestStore, config, start};

fn txn(id: &str) -> String {
    format!("/v1/clients/c/txns/{id}")
}

/// Asks in a task of its own; the caller goes on.
fn ask(http: &Http, method: &'static str, path: String, body: Value) -> tokio::task::JoinHandle<Answer> {
    let request = http.request(method, &path).json(&body);
    tokio::spawn(async move { Answer::read(request.send().await.unwrap()).await })
}

/// Waits until the writer has this many requests in its queue.
async fn queued(http: &Http, count: usize) {
    let line = format!("ratified_queue_length {count}");
    loop {
        let text = http.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
        if text.lines().any(|l| l == line) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_reply_leaves_only_after_its_sync() {
    let control = Control::new();
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    control.hold_syncs();
    let may_leave = Arc::new(AtomicBool::new(false));
    let watched = may_leave.clone();
    let begin = ask(&http, "PUT", txn(T1), json!({"epoch": 1}));
    let begin = tokio::spawn(async move { (begin.await.unwrap(), watched.load(Ordering::SeqCst)) });
    control.sync_begun(3).await;
    assert!(!begin.is_finished());
    may_leave.store(true, Ordering::SeqCst);
    control.release();
    let (answer, was_allowed) = begin.await.unwrap();
    assert_eq!((answer.status, was_allowed), (201, true));
}

#[tokio::test]
async fn what_is_synced_is_told_while_a_sync_is_in_flight() {
    let control = Control::new();
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.begin("c", T1).await;
    http.post(&format!("{}/commit", txn(T1)), json!({"epoch": 1})).await;
    control.hold_syncs();
    let begin = ask(&http, "PUT", txn(T2), json!({"epoch": 1}));
    control.sync_begun(5).await;
    let replay = http.post(&format!("{}/commit", txn(T1)), json!({"epoch": 1})).await;
    assert_eq!((replay.status, &replay.body["replayed"]), (200, &json!(true)));
    assert_eq!(
        http.post(&format!("{}/abort", txn(T1)), json!({"epoch": 1})).await.refusal(),
        (409, "OUTCOME_COMMITTED")
    );
    assert!(control.is_sync_held());
    assert!(!begin.is_finished());
    control.release();
    assert_eq!(begin.await.unwrap().status, 201);
}

#[tokio::test]
async fn requests_that_wait_together_share_one_sync() {
    let control = Control::new();
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    control.hold_syncs();
    let first = ask(&http, "PUT", txn(T1), json!({"epoch": 1}));
    control.sync_begun(3).await;
    let rest: Vec<_> = [T2, T3, T4].map(|id| ask(&http, "PUT", txn(id), json!({"epoch": 1}))).into();
    // Stepped, since an unsynced read of the last one waits as well; nothing but a count tells when.
    stepped(&http, 4).await;
    control.release();
    assert_eq!(first.await.unwrap().status, 201);
    for begin in rest {
        assert_eq!(begin.await.unwrap().status, 201);
    }
    assert_eq!(control.syncs_begun(), 4, "load, open, the first begin, the other three");
}

/// Waits until this many transactions have been begun in memory.
async fn stepped(http: &Http, count: usize) {
    let line = format!("ratified_transactions_begun_total {count}");
    loop {
        let text = http.request("GET", "/metrics").send().await.unwrap().text().await.unwrap();
        if text.lines().any(|l| l == line) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn no_step_joins_a_batch_that_is_as_large_as_the_store_takes() {
    let control = Control::new();
    control.limit_changes(2);
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    control.hold_syncs();
    let begin = |n: u32| ask(&http, "PUT", txn(&format!("0190f2c4-7a61-7c3e-9d0a-{n:012x}")), json!({"epoch": 1}));
    let mut begun = vec![begin(0)];
    control.sync_begun(3).await;
    begun.extend((1..=5).map(begin));
    queued(&http, 3).await;
    control.release();
    for begin in begun {
        assert_eq!(begin.await.unwrap().status, 201);
    }
    assert_eq!(control.syncs_begun(), 6, "load, open, the first begin, and five of which two share a sync");
}

#[tokio::test]
async fn a_caller_that_hangs_up_does_not_cancel_its_step() {
    let control = Control::new();
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    control.hold_syncs();
    let begin = ask(&http, "PUT", txn(T1), json!({"epoch": 1}));
    control.sync_begun(3).await;
    begin.abort();
    assert!(begin.await.is_err());
    control.release();
    assert_eq!(http.get(&txn(T1)).await.body["state"], "OPEN");
}

#[tokio::test]
async fn a_full_queue_is_refused_and_what_is_in_it_is_served() {
    let control = Control::new();
    let mut config = config();
    config.max_queue = 2;
    config.max_batch_requests = 1;
    let handle = start(&control, config).await;
    let http = Http::to(&handle);
    http.open("c").await;
    control.hold_syncs();
    let mut begun = vec![ask(&http, "PUT", txn(T1), json!({"epoch": 1}))];
    control.sync_begun(3).await;
    begun.push(ask(&http, "PUT", txn(T2), json!({"epoch": 1})));
    stepped(&http, 2).await;
    begun.push(ask(&http, "PUT", txn(T3), json!({"epoch": 1})));
    queued(&http, 1).await;
    begun.push(ask(&http, "PUT", txn(T4), json!({"epoch": 1})));
    queued(&http, 2).await;
    assert_eq!(http.get(&txn(T1)).await.refusal(), (429, "OVERLOADED"));
    control.release();
    for begin in begun {
        assert_eq!(begin.await.unwrap().status, 201);
    }
}

#[tokio::test]
async fn the_queue_is_bounded_in_bytes_too() {
    let control = Control::new();
    let mut config = config();
    (config.max_body_bytes, config.max_batch_body_bytes) = (2000, 2000);
    (config.max_queue_bytes, config.max_batch_requests) = (2000, 1);
    let handle = start(&control, config).await;
    let http = Http::to(&handle);
    http.open("c").await;
    control.hold_syncs();
    let first = ask(&http, "PUT", txn(T1), json!({"epoch": 1}));
    control.sync_begun(3).await;
    let second = ask(&http, "PUT", txn(T2), json!({"epoch": 1}));
    stepped(&http, 2).await;
    let value = "v".repeat(250);
    // The first KiB of each body is not counted: two of these fit, a third does not.
    let labels: serde_json::Map<_, _> = ('a'..='g').map(|key| (key.to_string(), json!(value))).collect();
    let labels = json!({"epoch": 1, "labels": labels});
    let third = ask(&http, "PUT", txn(T3), labels.clone());
    queued(&http, 1).await;
    let fourth = ask(&http, "PUT", txn(T4), labels.clone());
    queued(&http, 2).await;
    assert_eq!(http.put(&txn("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e05"), labels).await.refusal(), (429, "OVERLOADED"));
    control.release();
    for begin in [first, second, third, fourth] {
        assert_eq!(begin.await.unwrap().status, 201);
    }
}

#[tokio::test]
async fn after_a_failed_sync_nobody_is_told_anything_and_the_store_is_left_alone() {
    for fails in [Fails::Write, Fails::Sync, Fails::Panic] {
        let control = Control::new();
        let handle = start(&control, config()).await;
        let http = Http::to(&handle);
        http.open("c").await;
        http.put(&txn(T1), json!({"epoch": 1, "participants": ["p"]})).await;
        let parked = ask(&http, "POST", format!("{}/commit?waitMs=30000", txn(T1)), json!({"epoch": 1}));
        control.sync_begun(4).await;
        while http.get(&txn(T1)).await.body["state"] != "COMMITTING" {}
        let looking = ask(&http, "GET", format!("{}?waitMs=30000", txn(T1)), json!({}));
        control.fail(fails);
        let begin = http.begin("c", T2).await;
        assert_eq!(begin.refusal(), (503, "STORAGE_UNAVAILABLE"), "{fails:?}");
        assert_eq!(parked.await.unwrap().refusal(), (503, "TRANSACTION_PRESERVER_CLOSED"), "{fails:?}");
        assert_eq!(looking.await.unwrap().refusal(), (503, "STORAGE_UNAVAILABLE"), "{fails:?}");
        let failure = handle.wait().await.unwrap_err();
        assert!(matches!(*failure, Failure::Storage(_)), "{failure}");
        let (writes, syncs) = (control.writes(), control.syncs_begun());
        assert_eq!(http.get(&txn(T1)).await.refusal(), (503, "STORAGE_UNAVAILABLE"));
        assert_eq!(http.begin("c", T3).await.refusal(), (503, "STORAGE_UNAVAILABLE"));
        assert!(handle.shutdown().await.is_err());
        assert_eq!((control.writes(), control.syncs_begun()), (writes, syncs), "{fails:?}");
    }
}

#[tokio::test]
async fn a_sync_that_does_not_end_is_a_failure() {
    let control = Control::new();
    let mut config = config();
    config.storage_timeout_ms = 50;
    let handle = start(&control, config).await;
    let http = Http::to(&handle);
    http.open("c").await;
    control.hold_syncs();
    assert_eq!(http.begin("c", T1).await.refusal(), (503, "STORAGE_UNAVAILABLE"));
    let failure = handle.wait().await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the store failed: sync failed, whether it reached the disk is unknown: no end within 50 ms"
    );
    control.release();
}

#[tokio::test]
async fn a_crash_takes_back_only_what_nobody_was_told() {
    let control = Control::new();
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    assert_eq!(http.begin("c", T1).await.status, 201);
    control.hold_syncs();
    let lost = ask(&http, "PUT", txn(T2), json!({"epoch": 1}));
    control.sync_begun(4).await;
    let found = control.crash();
    let after = start(&found, config()).await;
    let http = Http::to(&after);
    assert_eq!(http.get(&txn(T1)).await.body["state"], "OPEN");
    assert_eq!(http.get(&txn(T2)).await.refusal(), (404, "TXN_NOT_FOUND"));
    assert_eq!(loads(&after), loads(&handle) + 1);
    assert_eq!(after.store_id().unwrap().cluster_id(), handle.store_id().unwrap().cluster_id());
    control.release();
    assert_eq!(lost.await.unwrap().status, 201);
}

fn loads(handle: &ratified_coordinator::Handle) -> u64 {
    handle.store_id().unwrap().newest_loads()
}

#[tokio::test]
async fn a_shutdown_finishes_its_batch_and_tells_the_rest() {
    let control = Control::new();
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.put(&txn(T1), json!({"epoch": 1, "participants": ["p"]})).await;
    let parked = ask(&http, "POST", format!("{}/commit?waitMs=30000", txn(T1)), json!({"epoch": 1}));
    control.sync_begun(4).await;
    while http.get(&txn(T1)).await.body["state"] != "COMMITTING" {}
    control.hold_syncs();
    let begin = ask(&http, "PUT", txn(T2), json!({"epoch": 1}));
    control.sync_begun(5).await;
    let shutdown = tokio::spawn(handle.shutdown());
    // It takes no connections any more, and closes those on which nobody waits.
    while http.request("GET", "/readyz").send().await.is_ok_and(|r| r.status() == 200) {}
    control.release();
    assert_eq!(begin.await.unwrap().status, 201);
    assert_eq!(parked.await.unwrap().refusal(), (503, "SHUTTING_DOWN"));
    shutdown.await.unwrap().unwrap();
    let after = start(&control.crash(), config()).await;
    assert_eq!(Http::to(&after).get(&txn(T2)).await.body["state"], "OPEN");
}

#[tokio::test]
async fn a_load_is_refused_with_the_place_named() {
    let control = Control::new();
    start(&control, config()).await.shutdown().await.unwrap();
    for (key, value, place) in [
        (b"\x02c".to_vec(), vec![9, 9], "client c: unknown version 9"),
        (b"\x09c".to_vec(), vec![1], "key 0x0963: unknown tag 9"),
        (b"\x01format".to_vec(), vec![1, 2], "meta format: version 2, this program reads 1"),
        (b"\x01loads".to_vec(), vec![1, 0x80], "meta loads: "),
    ] {
        let damaged = control.crash();
        damaged.put(&key, &value);
        let store = Box::new(TestStore(damaged.clone()));
        let mut handle = ratified_coordinator::Coordinator::listen_with(config(), store).await.unwrap();
        let Err(StartError::Failed(failure)) = handle.loaded().await else { panic!("{place}: it loaded") };
        let expected = format!("the load is refused: damaged or unknown data at {place}");
        assert!(failure.to_string().starts_with(&expected), "{failure}");
        assert_eq!(damaged.writes(), 0, "what was refused is left as it is");
        assert_eq!(Http::to(&handle).get("/readyz").await.refusal(), (503, "STORAGE_UNAVAILABLE"));
    }
}

#[tokio::test]
async fn a_meta_record_that_is_missing_is_damage() {
    let control = Control::new();
    start(&control, config()).await.shutdown().await.unwrap();
    for name in ["format", "clusterId", "loads", "batch", "uptime", "history"] {
        let damaged = Control::new();
        let key = [b"\x01".as_slice(), name.as_bytes()].concat();
        control.entries().iter().filter(|(k, _)| **k != key).for_each(|(k, v)| damaged.put(k, v));
        let store = Box::new(TestStore(damaged));
        let mut handle = ratified_coordinator::Coordinator::listen_with(config(), store).await.unwrap();
        let refusal = handle.loaded().await.unwrap_err().to_string();
        assert_eq!(
            refusal,
            format!("the load is refused: damaged or unknown data at meta {name}: the record is missing")
        );
    }
}

#[tokio::test]
async fn deadlines_are_kept_without_anybody_asking() {
    let control = Control::new();
    let handle = start(&control, config()).await;
    let http = Http::to(&handle);
    http.open("c").await;
    http.put(&txn(T1), json!({"epoch": 1, "timeoutMs": 1})).await;
    let ended = http.get(&format!("{}?waitMs=30000", txn(T1))).await;
    assert_eq!((&ended.body["state"], &ended.body["endReason"]), (&json!("ABORTED"), &json!("TIMEOUT")));
}
