//! The coordinator, typed: one method per call of the protocol.

mod exchange;
mod gather;
mod listings;
mod operations;
mod store;
#[cfg(test)]
mod tests;
mod transactions;

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

pub use listings::{ClientQuery, TxnQuery};
pub use store::MetStore;
pub(crate) use store::StoreTracker;

use gather::Gathering;

use crate::{
    error::{Cause, ClientError},
    retry::{Limit, RetryDelays},
    transport::{self, HttpTransport},
};

/// How patient a [`CoordinatorClient`] is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ClientOptions {
    /// How long one attempt may take, not counting what the coordinator was asked to wait.
    pub request_timeout: Duration,
    /// How long a call is repeated. `commit`, `abort` and `ack` are repeated for ever instead.
    pub call_deadline: Duration,
    /// The delays between attempts.
    pub delays: RetryDelays,
    /// Whether concurrent calls of this process to one coordinator share requests. A lone call never waits for others.
    pub gather: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(10),
            call_deadline: Duration::from_secs(60),
            delays: RetryDelays::default(),
            gather: true,
        }
    }
}

impl ClientOptions {
    /// The same options with this bound on one attempt.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// The same options with this bound on a repeated call.
    #[must_use]
    pub fn call_deadline(mut self, deadline: Duration) -> Self {
        self.call_deadline = deadline;
        self
    }

    /// The same options with these delays.
    #[must_use]
    pub fn delays(mut self, delays: RetryDelays) -> Self {
        self.delays = delays;
        self
    }

    /// The same options with calls that share requests, or with a request for each.
    #[must_use]
    pub fn gather(mut self, gather: bool) -> Self {
        self.gather = gather;
        self
    }
}

/// A client of one coordinator. Clones are cheap and share connections and what is known about the store.
///
/// What is not surely the coordinator's answer is asked again: transport errors, 5xx, 429 (with `Retry-After`), bodies
/// that are cut short or are not about what was asked. `commit`, `abort` and `ack` are asked without an end, since what
/// was decided must be carried out; everything else within [`ClientOptions::call_deadline`].
///
/// A definite refusal by something in front of the coordinator (the 404 page of a proxy, a 401) ends a call at once;
/// `commit`, `abort` and `ack` only after it has lasted for `call_deadline`: what was pending stays pending then. A code,
/// state or reason that this version does not know is a value ([`ratified_protocol::Told`]), judged by its status.
#[derive(Clone)]
pub struct CoordinatorClient {
    base: reqwest::Url,
    options: ClientOptions,
    transport: Arc<dyn HttpTransport>,
    gathering: Option<Gathering>,
    store: StoreTracker,
    limit: Limit,
}

impl std::fmt::Debug for CoordinatorClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoordinatorClient").field("url", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl CoordinatorClient {
    /// A client of the coordinator at this `http` or `https` URL. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ClientError::Setup`]; the caller must mend the URL.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        Self::with_options(url, ClientOptions::default())
    }

    /// As [`Self::new`], with these options.
    ///
    /// # Errors
    /// [`ClientError::Setup`]; the caller must mend the URL.
    pub fn with_options(url: &str, options: ClientOptions) -> Result<Self, ClientError> {
        let transport = transport::production()?;
        let base = base(url)?;
        let many = below(&base, MANY);
        let gathering = options.gather.then(|| Gathering::of_this_process(&base, many, transport.clone()));
        Ok(Self::assemble(base, options, transport, gathering))
    }

    /// As [`Self::with_options`], over a transport of the caller's own.
    ///
    /// # Errors
    /// [`ClientError::Setup`]; the caller must mend the URL.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    pub fn with_transport(
        url: &str,
        options: ClientOptions,
        transport: Arc<dyn HttpTransport>,
    ) -> Result<Self, ClientError> {
        let base = base(url)?;
        let gathering = options.gather.then(|| Gathering::of_clones(below(&base, MANY), transport.clone()));
        Ok(Self::assemble(base, options, transport, gathering))
    }

    fn assemble(
        base: reqwest::Url,
        options: ClientOptions,
        transport: Arc<dyn HttpTransport>,
        gathering: Option<Gathering>,
    ) -> Self {
        Self { base, options, transport, gathering, store: StoreTracker::default(), limit: Limit::Never }
    }

    /// The store that has answered so far, with the greatest loads met.
    pub fn known_store(&self) -> Option<MetStore> {
        self.store.known()
    }

    /// Makes a store known that was met before, by this process or another one: a coordinator whose store is another
    /// one, or an older copy, is refused from then on.
    ///
    /// # Errors
    /// [`ClientError::StoreChanged`] if it contradicts what was already met; the caller must stop.
    pub fn expect_store(&self, store: &MetStore) -> Result<(), ClientError> {
        self.store.expect(store)
    }

    /// The same client with a tracker of its own: what a job knows about its store must not depend on its neighbours.
    pub(crate) fn with_own_store(&self) -> Self {
        Self { store: StoreTracker::default(), ..self.clone() }
    }

    /// The same client, every call of which ends at this instant, also those that are otherwise repeated for ever.
    pub(crate) fn until(&self, end: Instant) -> Self {
        Self { limit: self.limit.earlier(Limit::Until(end)), ..self.clone() }
    }

    pub(crate) fn delays(&self) -> RetryDelays {
        self.options.delays
    }

    /// The limit of a call that is repeated within a deadline.
    fn within_deadline(&self) -> Limit {
        self.limit.earlier(Limit::Until(Instant::now() + self.options.call_deadline))
    }

    fn url(&self, path: &str, query: &[(&'static str, String)]) -> reqwest::Url {
        let mut url = below(&self.base, path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

/// The call over many clients.
const MANY: &str = "/v1/batch";

fn base(url: &str) -> Result<reqwest::Url, ClientError> {
    let base = reqwest::Url::parse(url).map_err(|e| ClientError::Setup(Cause::new(e)))?;
    if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
        return Err(ClientError::Setup(Cause::new(format!("{url} is not an http or https URL"))));
    }
    Ok(base)
}

/// A coordinator may live below a path of a proxy: what is there is kept.
fn below(base: &reqwest::Url, path: &str) -> reqwest::Url {
    let mut url = base.clone();
    let full = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&full);
    url
}
