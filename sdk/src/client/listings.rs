//! Listings and the preserver.

use std::time::Duration;

use ratified_protocol::{ClientItem, ClientName, List, PreservedOutcome, PreserverAnswer, Txn, TxnId, TxnState};

use super::CoordinatorClient;
use crate::error::ClientError;

/// Which clients to list.
#[derive(Debug, Clone, Default)]
pub struct ClientQuery {
    /// Only names that start so.
    pub prefix: Option<String>,
    /// Only the clients of this sink, `<name>.<digits>`; not together with a prefix.
    pub sink: Option<String>,
    /// Most items of a page; 50 when absent, at most 1000.
    pub page_size: Option<u32>,
    /// The last page's `nextPageToken`.
    pub page_token: Option<String>,
}

/// Which transactions to list: live ones, unless `state` asks for preserved outcomes.
#[derive(Debug, Clone, Default)]
pub struct TxnQuery {
    /// Only those in this state.
    pub state: Option<TxnState>,
    /// Only this client's.
    pub client: Option<ClientName>,
    /// Only those of clients whose names start so.
    pub client_prefix: Option<String>,
    /// Only those begun at least this long ago.
    pub older_than: Option<Duration>,
    /// Most items of a page; 50 when absent, at most 1000.
    pub page_size: Option<u32>,
    /// The last page's `nextPageToken`.
    pub page_token: Option<String>,
}

impl CoordinatorClient {
    /// One page of clients, by name. An absent `nextPageToken` is the only end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn clients(&self, query: &ClientQuery) -> Result<List<ClientItem>, ClientError> {
        let mut pairs = Vec::new();
        push(&mut pairs, "prefix", query.prefix.as_ref());
        push(&mut pairs, "sink", query.sink.as_ref());
        push(&mut pairs, "pageSize", query.page_size.as_ref());
        push(&mut pairs, "pageToken", query.page_token.as_ref());
        let prefix = query.prefix.as_deref().or(query.sink.as_deref()).unwrap_or("");
        let is_answer = |list: &List<ClientItem>| list.items.iter().all(|i| i.client_name.as_str().starts_with(prefix));
        self.fetch_plain("clients", "/v1/clients".to_owned(), pairs, Duration::ZERO, &is_answer).await
    }

    /// One page of transactions, by client and id. An absent `nextPageToken` is the only end.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn txns(&self, query: &TxnQuery) -> Result<List<Txn>, ClientError> {
        let mut pairs = Vec::new();
        push(&mut pairs, "state", query.state.as_ref());
        push(&mut pairs, "client", query.client.as_ref());
        push(&mut pairs, "clientPrefix", query.client_prefix.as_ref());
        push(&mut pairs, "olderThanMs", query.older_than.map(|age| age.as_millis()).as_ref());
        push(&mut pairs, "pageSize", query.page_size.as_ref());
        push(&mut pairs, "pageToken", query.page_token.as_ref());
        let is_ours = |txn: &Txn| query.client.as_ref().is_none_or(|client| txn.client_name == *client);
        let is_answer = |list: &List<Txn>| list.items.iter().all(is_ours);
        self.fetch_plain("txns", "/v1/txns".to_owned(), pairs, Duration::ZERO, &is_answer).await
    }

    /// All that the preserver keeps about a client (PIP-255 `TransactionMetadataPreserver`).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn preserver(&self, client: &ClientName) -> Result<PreserverAnswer, ClientError> {
        let is_answer = |answer: &PreserverAnswer| answer.client_name == *client;
        let path = format!("/v1/preserver/{client}");
        self.fetch_plain("preserver", path, Vec::new(), Duration::ZERO, &is_answer).await
    }

    /// The preserved outcome of one transaction.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn preserved(&self, client: &ClientName, id: TxnId) -> Result<PreservedOutcome, ClientError> {
        let is_answer = |answer: &PreservedOutcome| answer.txn_id == id;
        let path = format!("/v1/preserver/{client}/{id}");
        self.fetch_plain("preserved", path, Vec::new(), Duration::ZERO, &is_answer).await
    }
}

fn push<T: ToString>(pairs: &mut Vec<(&'static str, String)>, name: &'static str, value: Option<&T>) {
    pairs.extend(value.map(|value| (name, value.to_string())));
}
