//! The way to the coordinator: one request, one response, no policy. Retries and timeouts live above it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::error::{Cause, ClientError};

/// Carries one HTTP request. Production is [`reqwest::Client`]; a simulated network brings its own.
#[async_trait]
pub trait HttpTransport: Send + Sync + 'static {
    /// Sends the request and returns when the response's head has arrived. Dropping the future gives the request up.
    ///
    /// # Errors
    /// Any failure is indeterminate: the request may have been carried out.
    async fn execute(&self, request: reqwest::Request) -> Result<reqwest::Response, Cause>;
}

#[async_trait]
impl HttpTransport for reqwest::Client {
    async fn execute(&self, request: reqwest::Request) -> Result<reqwest::Response, Cause> {
        Self::execute(self, request).await.map_err(Cause::new)
    }
}

/// The transport of production. Redirects are not followed: only the coordinator itself may answer.
pub(crate) fn production() -> Result<Arc<dyn HttpTransport>, ClientError> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_secs(30))
        .tls_backend_preconfigured(crate::tls::trusted_by_the_system())
        .user_agent(concat!("ratified/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| ClientError::Setup(Cause::new(e)))?;
    Ok(Arc::new(client))
}
