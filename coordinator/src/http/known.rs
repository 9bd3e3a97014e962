//! Which store answers, and which one the caller knows.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use ratified_core::LoadHistory;
use ratified_protocol::{Code, KNOWN_HEADER, KnownStore, LOAD_HEADER, Problem, STORE_HEADER};

/// What every answer of a loaded store says about it, as headers.
#[derive(Debug)]
pub(super) struct Signature {
    store: HeaderValue,
    load: HeaderValue,
}

impl Signature {
    pub(super) fn of(history: &LoadHistory) -> Option<Self> {
        let value = |text: String| HeaderValue::try_from(text).ok();
        Some(Self { store: value(history.store_id().to_string())?, load: value(history.nonce().to_string())? })
    }

    pub(super) fn put(&self, headers: &mut HeaderMap) {
        headers.insert(HeaderName::from_static(STORE_HEADER), self.store.clone());
        headers.insert(HeaderName::from_static(LOAD_HEADER), self.load.clone());
    }
}

/// Reads the caller's `Ratified-Known`, if it sent one.
///
/// # Errors
/// `INVALID_ARGUMENT`: it is there more than once, or not of its form. It must not be passed over: the caller counts on
/// its being looked at.
pub(super) fn parse(headers: &HeaderMap) -> Result<Option<KnownStore>, Problem> {
    let mut values = headers.get_all(KNOWN_HEADER).iter();
    let invalid = |problem: String| Problem::new(Code::InvalidArgument, format!("Ratified-Known: {problem}"));
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(invalid("comes more than once".to_owned())),
        (Some(value), None) => {
            let text = value.to_str().map_err(|_| invalid("must be <clusterId>.<loads>.<nonce>".to_owned()))?;
            text.parse().map(Some).map_err(|e: ratified_protocol::IdError| invalid(e.to_string()))
        }
    }
}
