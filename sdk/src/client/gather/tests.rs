//! Calls that share requests, over a transport that holds every request until the test answers it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ratified_protocol::{
    BeginRequest, ClientName, Code, CommitRequest, MAX_BATCH_BYTES, Payload, PrepareRequest, Problem, Txn, TxnId,
};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

use super::Gathering;
use crate::{
    client::{ClientOptions, CoordinatorClient, MANY, StoreTracker, base, below},
    error::{Cause, ClientError},
    retry::{Limit, RetryDelays},
    transport::HttpTransport,
};

const STORE: &str = "0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f";

/// A request that was sent and waits for its answer.
struct Held {
    path: String,
    known: Option<String>,
    body: Vec<u8>,
    answer: oneshot::Sender<Result<reqwest::Response, Cause>>,
}

impl Held {
    fn operations(&self) -> Vec<Value> {
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        body["operations"].as_array().unwrap().clone()
    }

    /// The clients of its operations, in order.
    fn clients(&self) -> Vec<String> {
        self.operations().iter().map(|operation| operation["clientName"].as_str().unwrap().to_owned()).collect()
    }

    fn answer(self, status: u16, loads: u64, body: &Value) {
        let response = http::Response::builder()
            .status(status)
            .header("ratified-store", format!("{STORE}.{loads}"))
            .body(serde_json::to_vec(body).unwrap())
            .unwrap();
        drop(self.answer.send(Ok(response.into())));
    }

    fn fail(self) {
        drop(self.answer.send(Err(Cause::new("cut"))));
    }

    /// Answers each call with its transaction as committed.
    fn commit_all(self, loads: u64) {
        if let Some(name) = self.path.strip_prefix("/v1/clients/").and_then(|rest| rest.split('/').next()) {
            let committed = txn(name, "COMMITTED");
            return self.answer(200, loads, &committed);
        }
        let result = |name: &String| json!({"status": 200, "txn": txn(name, "COMMITTED")});
        let results: Vec<_> = self.clients().iter().map(result).collect();
        self.answer(200, loads, &json!({ "results": results }));
    }
}

struct Wire(mpsc::UnboundedSender<Held>);

#[async_trait]
impl HttpTransport for Wire {
    async fn execute(&self, request: reqwest::Request) -> Result<reqwest::Response, Cause> {
        let (answer, answered) = oneshot::channel();
        let path = request.url().path().to_owned();
        let known = request.headers().get("ratified-known").map(|value| value.to_str().unwrap().to_owned());
        let body = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default().to_vec();
        self.0.send(Held { path, known, body, answer }).map_err(|_| Cause::new("the test has ended"))?;
        answered.await.map_err(|_| Cause::new("the test has dropped it"))?
    }
}

/// A client, and what it sends.
struct Scene {
    client: CoordinatorClient,
    sent: mpsc::UnboundedReceiver<Held>,
}

impl Scene {
    fn new(options: ClientOptions) -> Self {
        let (sender, sent) = mpsc::unbounded_channel();
        let transport: Arc<dyn HttpTransport> = Arc::new(Wire(sender));
        let base = base("http://coordinator").unwrap();
        let gathering = options.gather.then(|| Gathering::of_clones(below(&base, MANY), transport.clone()));
        Self { client: CoordinatorClient::assemble(base, options, transport, gathering), sent }
    }

    fn commit(&self, name: &str) -> JoinHandle<Result<Txn, ClientError>> {
        let (client, name) = (self.client.clone(), name.parse::<ClientName>().unwrap());
        tokio::spawn(async move { client.commit(&name, id(), &CommitRequest::default(), None).await })
    }

    /// Lets every task go as far as it can, and tells what was sent meanwhile.
    async fn all_sent(&mut self) -> Vec<Held> {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        std::iter::from_fn(|| self.sent.try_recv().ok()).collect()
    }

    async fn one_sent(&mut self) -> Held {
        let mut sent = self.all_sent().await;
        assert_eq!(sent.len(), 1, "{:?}", sent.iter().map(|held| &held.path).collect::<Vec<_>>());
        sent.remove(0)
    }

    /// A call of `first` that is in flight, and one of each of the others.
    async fn behind_one(&mut self, names: &[&str]) -> (Held, Vec<JoinHandle<Result<Txn, ClientError>>>) {
        drop(self.commit("first"));
        let held = self.one_sent().await;
        assert_eq!(held.path, single("first"));
        let calls: Vec<_> = names.iter().map(|name| self.commit(name)).collect();
        assert!(self.all_sent().await.is_empty(), "they wait");
        (held, calls)
    }
}

fn id() -> TxnId {
    "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f".parse().unwrap()
}

fn single(name: &str) -> String {
    format!("/v1/clients/{name}/txns/{}/commit", id())
}

fn txn(name: &str, state: &str) -> Value {
    json!({"clientName": name, "txnId": id(), "state": state})
}

fn options() -> ClientOptions {
    let delays = RetryDelays { first: Duration::from_millis(1), longest: Duration::from_millis(2) };
    ClientOptions::default().delays(delays)
}

fn problem(code: Code) -> Value {
    serde_json::to_value(Problem::new(code, "scripted")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lone_call_is_a_request_of_its_own_and_leaves_at_once() {
    let mut scene = Scene::new(options());
    for _ in 0..2 {
        let call = scene.commit("a");
        let held = scene.one_sent().await;
        assert_eq!(held.path, single("a"));
        held.answer(200, 1, &txn("a", "COMMITTED"));
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn calls_share_the_next_request_and_each_hears_its_own_answer() {
    let mut scene = Scene::new(options());
    let (held, mut calls) = scene.behind_one(&["a", "b", "c"]).await;
    held.answer(200, 1, &txn("first", "COMMITTED"));
    let held = scene.one_sent().await;
    assert_eq!(held.path, "/v1/batch");
    assert_eq!(held.operations()[0], json!({"clientName": "a", "op": "commit", "txnId": id()}));
    assert_eq!(held.clients(), ["a", "b", "c"]);
    held.answer(
        200,
        1,
        &json!({"results": [
            {"status": 200, "txn": txn("a", "COMMITTED")},
            {"status": 409, "problem": problem(Code::Fenced)},
            {"status": 503, "problem": problem(Code::StorageUnavailable)},
        ]}),
    );
    assert_eq!(calls.remove(0).await.unwrap().unwrap().client_name.as_str(), "a");
    assert_eq!(calls.remove(0).await.unwrap().unwrap_err().code(), Some(Code::Fenced));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let held = scene.one_sent().await;
    assert_eq!(held.path, single("c"), "only what was not answered is asked again");
    held.answer(200, 1, &txn("c", "COMMITTED"));
    calls.remove(0).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_alone_is_a_request_of_its_own_and_others_wait_for_that() {
    let mut scene = Scene::new(options());
    let (held, mut calls) = scene.behind_one(&["a"]).await;
    held.fail();
    let held = scene.one_sent().await;
    assert_eq!(held.path, single("a"));
    calls.push(scene.commit("b"));
    calls.push(scene.commit("c"));
    // The first one, that was cut, is asked again, too.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(scene.all_sent().await.is_empty());
    held.answer(200, 1, &txn("a", "COMMITTED"));
    let held = scene.one_sent().await;
    assert_eq!(held.clients(), ["b", "c", "first"]);
    held.commit_all(1);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_is_not_sent() {
    let mut scene = Scene::new(options());
    let (held, mut calls) = scene.behind_one(&["a", "b", "c"]).await;
    calls.remove(1).abort();
    drop(held);
    let held = scene.one_sent().await;
    assert_eq!(held.clients(), ["a", "c"]);
    // Nobody waits for what is in flight any longer: the place is free again.
    for call in calls {
        call.abort();
    }
    drop(held);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let held = scene.one_sent().await;
    assert_eq!(held.path, single("first"));
}

#[tokio::test(start_paused = true)]
async fn what_concerns_the_whole_request_concerns_each_call() {
    let mut scene = Scene::new(options());
    let (held, calls) = scene.behind_one(&["a", "b"]).await;
    held.answer(200, 7, &txn("first", "COMMITTED"));
    scene.one_sent().await.answer(503, 7, &problem(Code::CoordinatorLoading));
    let mut refused = 0;
    for mut call in calls {
        let ended = loop {
            tokio::select! {
                ended = &mut call => break ended.unwrap(),
                held = scene.sent.recv() => held.unwrap().commit_all(6),
            }
        };
        refused += u32::from(matches!(ended, Err(ClientError::StoreChanged { .. })));
    }
    assert_eq!(refused, 2, "an older store is believed by nobody");
}

#[tokio::test(start_paused = true)]
async fn a_coordinator_without_the_call_is_asked_one_by_one_from_then_on() {
    let mut scene = Scene::new(options());
    let (held, calls) = scene.behind_one(&["a", "b"]).await;
    held.answer(200, 1, &txn("first", "COMMITTED"));
    scene.one_sent().await.answer(404, 1, &problem(Code::RouteNotFound));
    for held in scene.all_sent().await {
        let name = if held.path == single("a") { "a" } else { "b" };
        assert_eq!(held.path, single(name));
        held.answer(200, 1, &txn(name, "COMMITTED"));
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let calls = ["a", "b", "c"].map(|name| scene.commit(name));
    let sent = scene.all_sent().await;
    assert_eq!(sent.iter().map(|held| held.path.clone()).collect::<Vec<_>>(), ["a", "b", "c"].map(single));
    drop((sent, calls));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_whole_lets_each_ask_by_itself_this_once() {
    for (status, body) in [(401, json!({})), (413, problem(Code::TooLarge)), (200, json!({"results": []}))] {
        let mut scene = Scene::new(options());
        let (held, calls) = scene.behind_one(&["a", "b"]).await;
        held.answer(200, 1, &txn("first", "COMMITTED"));
        scene.one_sent().await.answer(status, 1, &body);
        let sent = scene.all_sent().await;
        assert_eq!(sent.iter().map(|held| held.path.clone()).collect::<Vec<_>>(), ["a", "b"].map(single), "{status}");
        for (held, name) in sent.into_iter().zip(["a", "b"]) {
            held.answer(200, 1, &txn(name, "COMMITTED"));
        }
        for call in calls {
            call.await.unwrap().unwrap();
        }
        let (held, _calls) = scene.behind_one(&["a", "b"]).await;
        held.answer(200, 1, &txn("first", "COMMITTED"));
        assert_eq!(scene.one_sent().await.path, "/v1/batch", "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_long_for_a_request_that_does_not_come_back() {
    let mut scene = Scene::new(options());
    let (hangs, calls) = scene.behind_one(&["a", "b"]).await;
    tokio::time::sleep(Duration::from_millis(249)).await;
    assert!(scene.all_sent().await.is_empty());
    tokio::time::sleep(Duration::from_millis(2)).await;
    let held = scene.one_sent().await;
    assert_eq!(held.clients(), ["a", "b"]);
    held.commit_all(1);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    drop(hangs);
}

#[tokio::test(start_paused = true)]
async fn four_requests_are_in_flight_at_most() {
    let mut scene = Scene::new(options());
    let mut hang = Vec::new();
    for n in 0..8 {
        drop(scene.commit(&format!("a{n}")));
        drop(scene.commit(&format!("b{n}")));
        tokio::time::sleep(Duration::from_millis(300)).await;
        hang.extend(scene.all_sent().await);
    }
    assert_eq!(hang.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_a_thousand_calls_and_eight_mebibytes() {
    let mut scene = Scene::new(options());
    let names: Vec<_> = (0..1001).map(|n| format!("c{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (held, _calls) = scene.behind_one(&names).await;
    held.answer(200, 1, &txn("first", "COMMITTED"));
    let held = scene.one_sent().await;
    assert_eq!(held.operations().len(), 1000);
    held.commit_all(1);
    assert_eq!(scene.one_sent().await.path, single("c1000"));

    let mut scene = Scene::new(options());
    let (held, _calls) = scene.behind_one(&[]).await;
    let request = PrepareRequest { payload: Some(Payload::new(vec![7; 65_536])), ..PrepareRequest::default() };
    for n in 0..120 {
        let (client, request) = (scene.client.clone(), request.clone());
        let name: ClientName = format!("c{n}").parse().unwrap();
        tokio::spawn(async move { client.prepare(&name, id(), &request).await });
    }
    assert!(scene.all_sent().await.is_empty());
    held.answer(200, 1, &txn("first", "COMMITTED"));
    let held = scene.one_sent().await;
    // 87,384 bytes of base64 and a little around it.
    assert_eq!(held.operations().len(), 95);
    assert!(held.body.len() <= MAX_BATCH_BYTES && held.body.len() > MAX_BATCH_BYTES - 90_000, "{}", held.body.len());
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_payload_was_left_out_is_asked_for_again() {
    let mut scene = Scene::new(options());
    let (held, mut calls) = scene.behind_one(&["a", "b"]).await;
    held.answer(200, 1, &txn("first", "COMMITTED"));
    let mut without = txn("b", "COMMITTED");
    without["payloadOmitted"] = true.into();
    let results = json!([{"status": 200, "txn": txn("a", "COMMITTED")}, {"status": 200, "txn": without}]);
    scene.one_sent().await.answer(200, 1, &json!({ "results": results }));
    let held = scene.one_sent().await;
    assert_eq!(held.path, single("b"));
    let mut whole = txn("b", "COMMITTED");
    whole["payload"] = "Bw==".into();
    held.answer(200, 1, &whole);
    assert_eq!(calls.remove(1).await.unwrap().unwrap().payload, Some(Payload::new(vec![7])));
}

#[tokio::test(start_paused = true)]
async fn calls_that_know_different_stores_do_not_share() {
    let mut scene = Scene::new(options());
    let nonce = "0190f2c47a614c3e9d0a000000000001";
    let (held, _calls) = scene.behind_one(&["a"]).await;
    let other = CoordinatorClient { store: StoreTracker::default(), ..scene.client.clone() };
    other.expect_store(&format!("{STORE}.1.{nonce}").parse().unwrap()).unwrap();
    let name: ClientName = "b".parse().unwrap();
    tokio::spawn(async move { other.commit(&name, id(), &CommitRequest::default(), None).await });
    let held_too = scene.one_sent().await;
    assert_eq!((held_too.path.as_str(), held.known.as_deref()), (single("b").as_str(), None));
    assert_eq!(held_too.known.as_deref(), Some(format!("{STORE}.1.{nonce}").as_str()));
}

#[tokio::test(start_paused = true)]
async fn it_can_be_switched_off_and_what_waits_by_design_goes_alone() {
    let mut scene = Scene::new(options().gather(false));
    let calls = ["a", "b", "c"].map(|name| scene.commit(name));
    assert_eq!(scene.all_sent().await.len(), 3);
    drop(calls);
    let mut scene = Scene::new(options());
    let (_held, _calls) = scene.behind_one(&[]).await;
    let (client, name) = (scene.client.clone(), "a".parse::<ClientName>().unwrap());
    tokio::spawn(async move { client.get(&name, id(), Some(Duration::from_secs(5))).await });
    assert_eq!(scene.all_sent().await.len(), 1, "a long poll goes alone");
}

#[tokio::test(start_paused = true)]
async fn a_limit_holds_while_it_waits() {
    let mut scene = Scene::new(options());
    let (_held, _calls) = scene.behind_one(&[]).await;
    let end = tokio::time::Instant::now() + Duration::from_millis(100);
    let client = CoordinatorClient { limit: Limit::Until(end), ..scene.client.clone() };
    let name: ClientName = "a".parse().unwrap();
    let ended = client.begin(&name, id(), &BeginRequest::default()).await;
    assert!(matches!(ended, Err(ClientError::Unanswered { .. })), "{ended:?}");
    assert!(scene.all_sent().await.is_empty());
}
