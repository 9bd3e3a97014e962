//! What a request's path and query name.

use std::collections::BTreeSet;

use axum::extract::{Query, RawPathParams, rejection::RawPathParamsRejection};
use ratified_core::{Page, TxnFilter};
use ratified_protocol::{ClientName, Code, MAX_WAIT_MS, ParticipantName, Problem, TxnId, TxnState};

use super::routes::Route;

/// The parts of a path and a query, each of its own type. A route's path says which are there.
#[derive(Debug, Default)]
pub(super) struct Target {
    client: Option<ClientName>,
    txn_id: Option<TxnId>,
    participant: Option<ParticipantName>,
    pub(super) wait_ms: u64,
    pub(super) after: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) sink: Option<ClientName>,
    pub(super) filter: TxnFilter,
    pub(super) page: Page,
}

impl Target {
    /// Reads path and query; a parameter that the route does not know, or that comes twice, is refused.
    pub(super) fn parse(
        route: &Route,
        params: Result<RawPathParams, RawPathParamsRejection>,
        query: Option<&str>,
    ) -> Result<Self, Problem> {
        let mut target = Self::default();
        let params = params.map_err(|e| invalid("path", e.body_text()))?;
        for (name, value) in &params {
            target.take_param(name, value)?;
        }
        let mut seen = BTreeSet::new();
        for (name, value) in pairs(query)? {
            if !route.query.contains(&name.as_str()) {
                return Err(invalid(
                    &name,
                    format!("is not a query parameter of this call; it takes {:?}", route.query),
                ));
            }
            target.take_query(&name, value)?;
            if !seen.insert(name.clone()) {
                return Err(invalid(&name, "comes more than once"));
            }
        }
        Ok(target)
    }

    fn take_param(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        match name {
            "clientName" => self.client = Some(value.parse().map_err(|e| invalid(name, e))?),
            "txnId" => self.txn_id = Some(value.parse().map_err(|e| invalid(name, e))?),
            _ => self.participant = Some(value.parse().map_err(|e| invalid(name, e))?),
        }
        Ok(())
    }

    fn take_query(&mut self, name: &str, value: String) -> Result<(), Problem> {
        match name {
            "waitMs" => self.wait_ms = number(name, &value)?.min(MAX_WAIT_MS),
            "after" => self.after = Some(value),
            "prefix" => self.prefix = Some(value),
            "sink" => self.sink = Some(value.parse().map_err(|e| invalid(name, e))?),
            "pageSize" => self.page.size = Some(number(name, &value)?),
            "pageToken" => self.page.token = Some(value),
            "state" => self.filter.state = Some(state(name, &value)?),
            "client" => self.filter.client = Some(value.parse().map_err(|e| invalid(name, e))?),
            "clientPrefix" => self.filter.client_prefix = Some(value),
            "olderThanMs" => self.filter.older_than_ms = Some(number(name, &value)?),
            _ => return Err(invalid(name, "is not a query parameter of this call")),
        }
        Ok(())
    }

    /// Whose call it is.
    pub(super) fn client(&mut self) -> Result<ClientName, Problem> {
        self.client.take().ok_or_else(|| invalid("clientName", "missing"))
    }

    /// Which transaction it is about.
    pub(super) fn txn_id(&self) -> Result<TxnId, Problem> {
        self.txn_id.ok_or_else(|| invalid("txnId", "missing"))
    }

    /// Which participant it is about.
    pub(super) fn participant(&mut self) -> Result<ParticipantName, Problem> {
        self.participant.take().ok_or_else(|| invalid("participant", "missing"))
    }
}

fn pairs(query: Option<&str>) -> Result<Vec<(String, String)>, Problem> {
    let Some(query) = query else {
        return Ok(Vec::new());
    };
    let uri = axum::http::Uri::builder().path_and_query(format!("/?{query}"));
    let uri = uri.build().map_err(|e| invalid("query", e))?;
    Query::<Vec<(String, String)>>::try_from_uri(&uri).map(|q| q.0).map_err(|e| invalid("query", e.body_text()))
}

/// A whole number; one that is too large for the machine is the largest, since all of these are capped or compared.
fn number(name: &str, value: &str) -> Result<u64, Problem> {
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(name, "must be a whole number"));
    }
    Ok(value.parse().unwrap_or(u64::MAX))
}

fn state(name: &str, value: &str) -> Result<TxnState, Problem> {
    let found = TxnState::ALL.into_iter().find(|state| state.as_str() == value);
    found.ok_or_else(|| invalid(name, format!("must be one of {}", TxnState::ALL.map(TxnState::as_str).join(", "))))
}

fn invalid(name: &str, problem: impl std::fmt::Display) -> Problem {
    Problem::new(Code::InvalidArgument, format!("{name}: {problem}"))
}
