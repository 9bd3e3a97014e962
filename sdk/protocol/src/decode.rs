//! From bytes to a request: one way for every body.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    batch::{BatchRequest, ManyRequest, check_count},
    problem::{Code, Problem},
    request::{
        AckRequest, BeginRequest, CommitRequest, EmptyRequest, EpochRequest, ForgetRequest, OpenRequest,
        PrepareRequest, ReinstateRequest, ResolveRequest, RetireRequest, check_payload,
    },
};

/// Largest body of a single call, in bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A request body: what serde can read, and the bounds it cannot express.
pub trait RequestBody: DeserializeOwned {
    /// Refuses values whose bound has an answer of its own. Default: nothing.
    fn check(&self) -> Result<(), Problem> {
        Ok(())
    }
}

impl RequestBody for OpenRequest {}
impl RequestBody for BeginRequest {}
impl RequestBody for EpochRequest {}
impl RequestBody for AckRequest {}
impl RequestBody for ResolveRequest {}
impl RequestBody for ForgetRequest {}
impl RequestBody for RetireRequest {}
impl RequestBody for ReinstateRequest {}
impl RequestBody for EmptyRequest {}
impl RequestBody for PrepareRequest {
    fn check(&self) -> Result<(), Problem> {
        check_payload(self.payload.as_ref())
    }
}
impl RequestBody for CommitRequest {
    fn check(&self) -> Result<(), Problem> {
        check_payload(self.payload.as_ref())
    }
}
impl RequestBody for BatchRequest {
    fn check(&self) -> Result<(), Problem> {
        check_count(&self.operations)
    }
}
impl RequestBody for ManyRequest {
    fn check(&self) -> Result<(), Problem> {
        check_count(&self.operations)
    }
}

/// Reads a request from a body; an absent body is `{}`.
///
/// # Errors
/// `INVALID_ARGUMENT` naming the field, or `TOO_LARGE`; the caller must mend the request.
pub fn decode_body<T: RequestBody>(body: &[u8]) -> Result<T, Problem> {
    let body = if body.is_empty() { b"{}" } else { body };
    let is_object = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    if !is_object {
        return Err(Problem::new(Code::InvalidArgument, "body: must be a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let request: T = serde_path_to_error::deserialize(&mut json).map_err(|e| malformed(&e))?;
    json.end().map_err(|e| Problem::new(Code::InvalidArgument, format!("body: {e}")))?;
    request.check()?;
    Ok(request)
}

/// Reads a request from a JSON object that was already parsed.
pub(crate) fn decode_value<T: RequestBody>(value: Value) -> Result<T, Problem> {
    let request: T = serde_path_to_error::deserialize(value).map_err(|e| malformed(&e))?;
    request.check()?;
    Ok(request)
}

fn malformed(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let path = error.path().to_string();
    let field = if path == "." || path == "?" { "body" } else { &path };
    Problem::new(Code::InvalidArgument, format!("{field}: {}", error.inner()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::Epoch, value::TimeoutMs};

    fn refused<T: RequestBody + std::fmt::Debug>(body: &str) -> (Code, String) {
        match decode_body::<T>(body.as_bytes()) {
            Ok(request) => panic!("{body} was taken as {request:?}"),
            Err(problem) => (problem.code.known().unwrap(), problem.detail),
        }
    }

    #[test]
    fn an_absent_body_is_an_empty_object() {
        assert_eq!(decode_body::<BeginRequest>(b"").ok(), Some(BeginRequest::default()));
        assert_eq!(BeginRequest::default().timeout_ms.as_millis(), 60_000);
    }

    #[test]
    fn null_is_absent() {
        let body = br#"{"epoch":null,"timeoutMs":null,"requirePrepare":null,"participants":null,"labels":null}"#;
        assert_eq!(decode_body::<BeginRequest>(body).ok(), Some(BeginRequest::default()));
    }

    #[test]
    fn a_begin_is_read_whole() {
        let body =
            br#"{"epoch":8,"timeoutMs":5,"requirePrepare":true,"participants":["b","a","b"],"labels":{"x":"y"}}"#;
        let begin = decode_body::<BeginRequest>(body).unwrap();
        assert_eq!(begin.epoch, Some(Epoch::new(8)));
        assert_eq!(Ok(begin.timeout_ms), TimeoutMs::try_from(5));
        assert!(begin.require_prepare);
        let names: Vec<_> = begin.participants.as_set().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(begin.labels.as_map().get("x").map(String::as_str), Some("y"));
    }

    #[test]
    fn a_refusal_names_the_field() {
        for (body, field) in [
            (r#"{"timeoutMs":0}"#, "timeoutMs: must be 1..=604800000"),
            (r#"{"timeoutMs":"5s"}"#, "timeoutMs: invalid type"),
            (r#"{"epoch":-1}"#, "epoch: invalid value"),
            (r#"{"participants":["ok","not ok"]}"#, "participants[1]: must be 1..=200"),
            (r#"{"bogus":1}"#, "bogus: unknown field"),
            ("[]", "body: must be a JSON object"),
            ("nonsense", "body: must be a JSON object"),
            ("{", "body: EOF"),
            ("{} {}", "body: trailing characters"),
        ] {
            let (code, detail) = refused::<BeginRequest>(body);
            assert_eq!(code, Code::InvalidArgument, "{body}");
            assert!(detail.starts_with(field), "{body}: {detail}");
        }
    }

    #[test]
    fn a_payload_over_64_kib_is_too_large_not_malformed() {
        let body = |bytes: usize| {
            let payload = crate::value::Payload::new(vec![7; bytes]);
            serde_json::to_vec(&PrepareRequest { payload: Some(payload), ..Default::default() }).unwrap()
        };
        assert!(decode_body::<PrepareRequest>(&body(65_536)).is_ok());
        let refused = decode_body::<PrepareRequest>(&body(65_537)).unwrap_err();
        assert_eq!(refused.code, Code::TooLarge);
    }
}
