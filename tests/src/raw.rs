//! A client of the coordinator written from the protocol alone: text in, text out, no retries, no types of the SDK.

use std::{fmt, ops::Index, time::Duration};

use reqwest::{Method, header::HeaderMap};
use serde_json::Value;

use crate::process::Address;

/// Longer than any `waitMs`, so that only a hanging coordinator runs into it.
const CALL_TIMEOUT: Duration = Duration::from_secs(45);

/// No answer was had: the request may or may not have been carried out.
#[derive(Debug)]
pub struct Lost(String);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An answer of the coordinator.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as text.
    pub text: String,
    /// The body as JSON; `null` if it is none.
    pub json: Value,
}

/// A client; clones share connections.
#[derive(Debug, Clone)]
pub struct Raw {
    http: reqwest::Client,
    address: Address,
}

impl Raw {
    /// A client of whatever is at this address.
    ///
    /// # Panics
    /// When there can be no HTTP client.
    pub fn new(address: Address) -> Self {
        let http = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .build()
            .unwrap();
        Self { http, address }
    }

    /// One call with a JSON body, or none.
    ///
    /// # Errors
    /// Without a complete answer.
    pub async fn try_call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Reply, Lost> {
        let body = body.map(|json| ("application/json", json.to_string().into_bytes()));
        self.try_bytes(method, path, body).await
    }

    /// One call with a body of any kind.
    ///
    /// # Errors
    /// Without a complete answer.
    pub async fn try_bytes(&self, method: &str, path: &str, body: Option<(&str, Vec<u8>)>) -> Result<Reply, Lost> {
        let lost = |error: reqwest::Error| Lost(format!("{method} {path}: {error:?}"));
        let address = self.address.current().ok_or_else(|| Lost("nothing runs".to_owned()))?;
        let method_name: Method = method.parse().map_err(|_| Lost(format!("{method} is no method")))?;
        let mut request = self.http.request(method_name, format!("http://{address}{path}"));
        if let Some((kind, bytes)) = body {
            if !kind.is_empty() {
                request = request.header("content-type", kind);
            }
            request = request.body(bytes);
        }
        let response = request.send().await.map_err(lost)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.map_err(lost)?;
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Reply { status, headers, text, json })
    }

    /// `GET`.
    ///
    /// # Panics
    /// Without an answer.
    pub async fn get(&self, path: &str) -> Reply {
        self.try_call("GET", path, None).await.unwrap()
    }

    /// `POST` with a JSON body.
    ///
    /// # Panics
    /// Without an answer.
    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.try_call("POST", path, Some(&body)).await.unwrap()
    }

    /// `PUT` with a JSON body.
    ///
    /// # Panics
    /// Without an answer.
    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.try_call("PUT", path, Some(&body)).await.unwrap()
    }

    /// A call with a body of any kind; an empty kind sends no content type.
    ///
    /// # Panics
    /// Without an answer.
    pub async fn bytes(&self, method: &str, path: &str, kind: &str, body: impl Into<Vec<u8>>) -> Reply {
        self.try_bytes(method, path, Some((kind, body.into()))).await.unwrap()
    }
}

/// The table of the protocol: status, code, retryable, final.
const CODES: [(u16, &str, bool, bool); 26] = [
    (400, "INVALID_ARGUMENT", false, false),
    (404, "TXN_NOT_FOUND", false, false),
    (404, "CLIENT_NOT_FOUND", false, false),
    (403, "CROSS_ORIGIN", false, false),
    (404, "ROUTE_NOT_FOUND", false, false),
    (405, "METHOD_NOT_ALLOWED", false, false),
    (415, "UNSUPPORTED_MEDIA_TYPE", false, false),
    (409, "OUTCOME_ABORTED", false, true),
    (409, "OUTCOME_COMMITTED", false, true),
    (409, "TXN_NOT_PREPARED", false, false),
    (409, "INVALID_TXN_STATE", false, false),
    (409, "CLIENT_BUSY", false, false),
    (409, "PARTICIPANT_RETIRED", false, false),
    (409, "FENCED", false, false),
    (409, "EPOCH_UNKNOWN", false, false),
    (410, "OUTCOME_EXPIRED", false, true),
    (410, "TXN_ID_TOO_OLD", false, true),
    (413, "TOO_LARGE", false, false),
    (422, "TXN_ID_REUSED", false, false),
    (429, "TOO_MANY_OPEN", true, false),
    (429, "TOO_MANY_CLIENTS", true, false),
    (429, "OVERLOADED", true, false),
    (503, "COORDINATOR_LOADING", true, false),
    (503, "STORAGE_UNAVAILABLE", true, false),
    (503, "TRANSACTION_PRESERVER_CLOSED", true, false),
    (503, "SHUTTING_DOWN", true, false),
];

impl Reply {
    /// The answer, if it has this status.
    ///
    /// # Panics
    /// With another one.
    #[track_caller]
    pub fn ok(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        if status != 204 {
            assert_eq!(self.header("content-type").as_deref(), Some("application/json"), "{}", self.text);
        }
        self.assert_store();
        self
    }

    /// The answer, if it is a refusal with this code, by every rule that holds for all refusals.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn refused(self, code: &str) -> Self {
        let row = CODES.iter().find(|row| row.1 == code);
        let (status, _, retryable, last_word) = *row.unwrap_or_else(|| panic!("{code} is not in the protocol"));
        assert_eq!((self.status, self.code()), (status, code), "{}", self.text);
        assert_problem(&self.json, status, retryable, last_word);
        assert_eq!(self.header("content-type").as_deref(), Some("application/problem+json"));
        let retry_after = self.header("retry-after");
        match status {
            429 | 503 => assert!(retry_after.is_some_and(|s| s.parse::<u64>().is_ok()), "{:?}", self.headers),
            _ => assert_eq!(retry_after, None),
        }
        self.assert_store();
        self
    }

    /// The code of a refusal; empty if it is none.
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    /// The detail of a refusal, for people.
    pub fn detail(&self) -> &str {
        self.json["detail"].as_str().unwrap_or_default()
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<String> {
        Some(self.headers.get(name)?.to_str().ok()?.to_owned())
    }

    /// How often the store had been started, by the `Ratified-Store` header.
    ///
    /// # Panics
    /// Without that header.
    #[track_caller]
    pub fn loads(&self) -> u64 {
        let store = self.header("ratified-store").expect("every answer names the store");
        let (_, loads) = store.rsplit_once('.').expect("cluster and loads");
        loads.parse().expect("loads is a number")
    }

    #[track_caller]
    fn assert_store(&self) {
        if self.code() != "COORDINATOR_LOADING" {
            assert!(self.loads() > 0, "{:?}", self.headers);
        }
    }
}

#[track_caller]
fn assert_problem(json: &Value, status: u16, retryable: bool, last_word: bool) {
    assert_eq!(json["type"], "about:blank", "{json}");
    assert_eq!(json["status"], status, "{json}");
    assert_eq!(json["retryable"], retryable, "{json}");
    assert_eq!(json["final"], last_word, "{json}");
    for text in ["title", "detail"] {
        assert!(json[text].as_str().is_some_and(|t| !t.is_empty()), "{text} is for people: {json}");
    }
}

/// Whether this is a refusal with this code, as an item of a batch.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn assert_item_refused(item: &Value, code: &str) {
    let row = CODES.iter().find(|row| row.1 == code);
    let (status, _, retryable, last_word) = *row.unwrap_or_else(|| panic!("{code} is not in the protocol"));
    assert_eq!((&item["status"], &item["problem"]["code"]), (&status.into(), &code.into()), "{item}");
    assert_problem(&item["problem"], status, retryable, last_word);
}

impl Index<&str> for Reply {
    type Output = Value;

    fn index(&self, member: &str) -> &Value {
        &self.json[member]
    }
}
