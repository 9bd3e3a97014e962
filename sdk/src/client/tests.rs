//! The client against a server that answers anything but what it should.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use ratified_protocol::{BeginRequest, CommitRequest, Epoch, OpenRequest, Problem, TxnId};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{exchange::MAX_ANSWER_BYTES, *};
use crate::{ClientName, Code, Outcome, TxnState, retry::RetryDelays};

const STORE: &str = "0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f";
const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";

/// Answers each request on a connection of its own with the next of the scripted bytes, and notes what was asked.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    known: Arc<Mutex<Vec<Option<String>>>>,
}

impl Server {
    async fn start(script: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/below", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::new(Mutex::new(Vec::new()));
        let (noted, noted_known) = (asked.clone(), known.clone());
        tokio::spawn(async move {
            let mut script = VecDeque::from(script);
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (request, known) = read_request(&mut socket).await;
                noted.lock().unwrap().push(request);
                noted_known.lock().unwrap().push(known);
                let Some(answer) = script.pop_front() else { return };
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { url, asked, known }
    }

    fn client(&self) -> CoordinatorClient {
        let delays = RetryDelays { first: Duration::from_millis(1), longest: Duration::from_millis(2) };
        let options = ClientOptions::default().delays(delays);
        CoordinatorClient::with_options(&self.url, options).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read_request(socket: &mut tokio::net::TcpStream) -> (String, Option<String>) {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
            if body.len() >= length {
                let known = head.lines().find_map(|l| l.strip_prefix("ratified-known: ")).map(ToOwned::to_owned);
                return (format!("{} {body}", head.lines().next().unwrap()), known);
            }
        }
        let mut chunk = [0; 4096];
        let read = socket.read(&mut chunk).await.unwrap();
        assert!(read > 0, "the client hung up");
        bytes.extend_from_slice(&chunk[..read]);
    }
}

fn http(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn answer(status: u16, loads: u64, body: &str) -> String {
    http(status, &format!("ratified-store: {STORE}.{loads}\r\n"), body)
}

fn problem(code: Code) -> String {
    serde_json::to_string(&Problem::new(code, "scripted")).unwrap()
}

fn txn(state: &str) -> String {
    format!(r#"{{"clientName":"job.0","txnId":"{ID}","state":"{state}"}}"#)
}

fn names() -> (ClientName, TxnId) {
    ("job.0".parse().unwrap(), ID.parse().unwrap())
}

async fn commit(client: &CoordinatorClient) -> Result<ratified_protocol::Txn, ClientError> {
    let (name, id) = names();
    client.commit(&name, id, &CommitRequest::default(), Some(Duration::from_millis(1500))).await
}

#[tokio::test]
async fn what_is_not_an_answer_is_asked_again() {
    let html = "<html><body>Welcome to our hotel</body></html>";
    let other_id = txn("COMMITTED").replace("2e3f", "2e40");
    let script = vec![
        String::new(),
        answer(200, 1, html),
        answer(200, 1, ""),
        answer(200, 1, "{}"),
        answer(200, 1, &other_id),
        answer(200, 1, &txn("COMMITTED").replace("job.0", "job.1")),
        answer(200, 1, &txn("OPEN")),
        answer(200, 1, &txn("ABORTED")),
        answer(200, 1, &txn("COMMITTED")).replace("content-length: ", "content-length: 9"),
        http(200, "", &txn("COMMITTED")),
        http(404, "", html),
        http(302, "location: /elsewhere\r\n", ""),
        http(401, "", html),
        answer(403, 1, &problem(Code::Forbidden)),
        http(408, "", html),
        http(500, "", html),
        http(502, "retry-after: 0\r\n", html),
        answer(500, 1, &problem(Code::TxnNotFound)),
        answer(503, 1, &problem(Code::CoordinatorLoading)),
        answer(429, 1, &problem(Code::Overloaded)),
        answer(202, 1, &txn("COMMITTING")),
    ];
    let scripted = script.len();
    let server = Server::start(script).await;
    let done = commit(&server.client()).await.unwrap();
    assert_eq!(done.state, TxnState::Committing);
    let asked = server.asked();
    assert_eq!(asked.len(), scripted);
    let line = format!("POST /below/v1/clients/job.0/txns/{ID}/commit?waitMs=1500 HTTP/1.1 {{}}");
    assert!(asked.iter().all(|request| *request == line), "{asked:?}");
}

#[tokio::test]
async fn an_endless_answer_is_cut_off_and_asked_again() {
    let endless = answer(200, 1, &" ".repeat(MAX_ANSWER_BYTES + 1));
    let longest = answer(200, 1, &format!("{}{}", " ".repeat(MAX_ANSWER_BYTES - 200), txn("COMMITTED")));
    let server = Server::start(vec![endless, longest]).await;
    assert_eq!(commit(&server.client()).await.unwrap().state, TxnState::Committed);
    assert_eq!(server.asked().len(), 2);
}

/// A 404 page is no word about the transaction, whatever asks. Commit waits for it to pass, within its bound.
#[tokio::test]
async fn what_something_in_front_refuses_is_told_as_that_and_not_asked_for_ever() {
    let html = "<html>\u{1b}[2J";
    for status in [302, 400, 401, 403, 404, 405, 409, 410, 413, 421] {
        let server = Server::start(vec![http(status, "", html); 60]).await;
        let mut client = server.client();
        let (name, id) = names();
        let refused = client.get(&name, id, None).await.unwrap_err();
        assert_eq!(refused.code(), None);
        let text = format!(
            "get was answered by something that is not the coordinator: status {status}, \"<html>\\\\x1b[2J\". Nothing"
        );
        assert!(refused.to_string().starts_with(&text), "{refused}");
        assert_eq!(server.asked().len(), 1);
        client.options.call_deadline = Duration::from_millis(20);
        let refused = commit(&client).await.unwrap_err();
        assert!(matches!(refused, ClientError::NotTheCoordinator { call: "commit", .. }), "{refused}");
        assert!(server.asked().len() > 2);
    }
}

#[tokio::test]
async fn who_has_no_right_is_told_at_once_and_a_commit_waits_for_it_within_its_bound() {
    for code in [Code::Unauthenticated, Code::Forbidden, Code::CrossOrigin] {
        let server = Server::start(vec![http(code.status(), "", &problem(code)); 60]).await;
        let mut client = server.client();
        let (name, id) = names();
        assert!(client.get(&name, id, None).await.is_err());
        assert_eq!(server.asked().len(), 1);
        client.options.call_deadline = Duration::from_millis(20);
        assert!(commit(&client).await.is_err());
        assert!(server.asked().len() > 2);
    }
}

#[tokio::test]
async fn words_of_a_later_version_are_judged_by_their_status() {
    let later = |status: u16| {
        format!(r#"{{"status":{status},"code":"MOON_IS_FULL","retryable":false,"final":true,"detail":"d","more":1}}"#)
    };
    let script = vec![answer(503, 1, &later(503)), answer(429, 1, &later(429)), answer(409, 1, &later(409))];
    let server = Server::start(script).await;
    let refused = commit(&server.client()).await.unwrap_err();
    assert_eq!(refused.to_string(), "the coordinator refused: MOON_IS_FULL: d");
    assert_eq!((refused.code(), server.asked().len()), (None, 3));

    let server = Server::start(vec![answer(202, 1, &txn("SEALED"))]).await;
    assert_eq!(commit(&server.client()).await.unwrap().state.to_string(), "SEALED");
}

#[tokio::test]
async fn what_is_known_of_the_store_goes_with_every_request() {
    const NONCE: &str = "6ba7b8109dad41d180b400c04fd430c8";
    let headers = format!("ratified-store: {STORE}.7\r\nratified-load: {NONCE}\r\n");
    let changed = format!("ratified-store: {STORE}.7\r\nratified-load: 7ba7b8109dad41d180b400c04fd430c8\r\n");
    let script = vec![http(200, &headers, &txn("COMMITTED")), http(409, &changed, &problem(Code::StoreChanged))];
    let server = Server::start(script).await;
    let client = server.client();
    commit(&client).await.unwrap();
    let stopped = commit(&client).await.unwrap_err().to_string();
    let text = format!(
        "the coordinator's store was {STORE}.7.{NONCE} and now is {STORE}.7.7ba7b8109dad41d180b400c04fd430c8: an older copy"
    );
    assert!(stopped.starts_with(&text), "{stopped}");
    assert!(matches!(commit(&client).await, Err(ClientError::StoreChanged { .. })));
    let known: Vec<_> = server.known.lock().unwrap().clone();
    assert_eq!(known, [None, Some(format!("{STORE}.7.{NONCE}"))]);
}

#[tokio::test]
async fn a_refusal_is_told_once_with_its_code() {
    for code in [Code::OutcomeAborted, Code::OutcomeExpired, Code::TxnNotFound, Code::Fenced, Code::EpochUnknown] {
        let server = Server::start(vec![answer(code.status(), 1, &problem(code))]).await;
        assert_eq!(commit(&server.client()).await.unwrap_err().code(), Some(code));
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn a_refusal_about_another_transaction_is_not_an_answer() {
    let stranger: ratified_protocol::Txn = serde_json::from_str(&txn("ABORTED").replace("2e3f", "2e40")).unwrap();
    let problem = Problem::new(Code::OutcomeAborted, "scripted").with_txn(stranger);
    let stranger = answer(409, 1, &serde_json::to_string(&problem).unwrap());
    let server = Server::start(vec![stranger, answer(200, 1, &txn("COMMITTED"))]).await;
    assert_eq!(commit(&server.client()).await.unwrap().state, TxnState::Committed);
}

#[tokio::test]
async fn begin_gives_up_at_its_deadline_and_commit_does_not() {
    let (name, id) = names();
    let server = Server::start(vec![http(500, "", ""); 50]).await;
    let mut client = server.client();
    client.options.call_deadline = Duration::from_millis(20);
    let given_up = client.begin(&name, id, &BeginRequest::default()).await.unwrap_err();
    assert!(matches!(given_up, ClientError::Unanswered { call: "begin", attempts: 1.., .. }), "{given_up}");

    let mut script = vec![http(500, "", ""); 50];
    script.push(answer(200, 1, &txn("COMMITTED")));
    let server = Server::start(script).await;
    let mut client = server.client();
    client.options.call_deadline = Duration::from_millis(20);
    assert!(commit(&client).await.is_ok());
    assert_eq!(server.asked().len(), 51);
}

fn loads(store: &MetStore) -> u64 {
    store.id.newest_loads()
}

#[tokio::test]
async fn a_store_that_went_back_stops_the_client_for_good() {
    let script = vec![answer(200, 7, &txn("COMMITTED")), answer(200, 6, &txn("COMMITTED"))];
    let server = Server::start(script).await;
    let client = server.client();
    assert!(commit(&client).await.is_ok());
    assert_eq!(client.known_store().map(|s| loads(&s)), Some(7));
    assert!(
        matches!(commit(&client).await, Err(ClientError::StoreChanged { known, met }) if loads(&known) == 7 && loads(&met) == 6)
    );
    assert!(matches!(commit(&client.clone()).await, Err(ClientError::StoreChanged { .. })));
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn another_store_than_the_expected_one_stops_the_client() {
    let server = Server::start(vec![answer(200, 7, &txn("COMMITTED"))]).await;
    let client = server.client();
    client.expect_store(&"1190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f.1".parse().unwrap()).unwrap();
    assert!(matches!(commit(&client).await, Err(ClientError::StoreChanged { .. })));
}

#[tokio::test]
async fn an_open_of_another_client_is_not_an_answer() {
    let answers = |client: &str| {
        let unfinished = txn("PREPARED").replace("job.0", client);
        let body = format!(
            r#"{{"epoch":2,"previousEpoch":1,"previousOwner":null,"unfinished":[{unfinished}],"lastCommitted":null,"newestTxnId":null,"evictedThrough":null}}"#
        );
        answer(200, 1, &body)
    };
    let server = Server::start(vec![answers("job.1"), answers("job.0")]).await;
    let incarnation = ratified_protocol::Incarnation::new(uuid::Uuid::from_u128(5));
    let request = OpenRequest { incarnation, owner: None, create: false, generation: None };
    let (name, _) = names();
    assert_eq!(server.client().open(&name, &request).await.unwrap().epoch, Epoch::new(2));
    let line = r#"POST /below/v1/clients/job.0/open HTTP/1.1 {"incarnation":"00000000-0000-0000-0000-000000000005","create":false}"#;
    assert_eq!(server.asked(), [line, line]);
}

#[tokio::test]
async fn an_ack_names_participant_and_outcome() {
    let server = Server::start(vec![answer(200, 1, &txn("COMMITTING"))]).await;
    let (name, id) = names();
    server.client().ack(&name, id, &(&name).into(), Outcome::Committed).await.unwrap();
    let line =
        format!(r#"POST /below/v1/clients/job.0/txns/{ID}/participants/job.0/ack HTTP/1.1 {{"outcome":"COMMITTED"}}"#);
    assert_eq!(server.asked(), [line]);
}

#[tokio::test]
async fn listings_carry_their_query() {
    let body = format!(r#"{{"items":[{}],"nextPageToken":"x"}}"#, txn("PREPARED"));
    let server = Server::start(vec![answer(200, 1, &body)]).await;
    let query = TxnQuery {
        state: Some(TxnState::Prepared),
        client: Some(names().0),
        older_than: Some(Duration::from_secs(2)),
        page_token: Some("a=b&c".to_owned()),
        ..TxnQuery::default()
    };
    let list = server.client().txns(&query).await.unwrap();
    assert_eq!((list.items.len(), list.next_page_token.as_deref()), (1, Some("x")));
    let line = "GET /below/v1/txns?state=PREPARED&client=job.0&olderThanMs=2000&pageToken=a%3Db%26c HTTP/1.1 ";
    assert_eq!(server.asked(), [line]);
}

#[test]
fn only_http_urls_with_a_host_are_taken() {
    for url in ["", "coordinator:7070", "ftp://host/", "/v1", "http://"] {
        assert!(matches!(CoordinatorClient::new(url), Err(ClientError::Setup(_))), "{url}");
    }
    assert!(CoordinatorClient::new("https://coordinator.example:7070/ratified").is_ok());
}
