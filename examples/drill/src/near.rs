//! The coordinator of a drilled job: one in a process of its own, or one in the job's.

use std::{path::Path, sync::Arc, time::Duration};

use ratified::{ClientError, ClientOptions, CoordinatorClient, RetryDelays};
use ratified_coordinator::{Config, Coordinator, Failure, Handle, StartError};
use thiserror::Error;

/// Why there is no coordinator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// The embedded coordinator did not start.
    #[error("the coordinator does not start: {0}")]
    Start(#[from] StartError),
    /// The embedded coordinator failed.
    #[error("the coordinator failed: {0}")]
    Failed(#[from] Arc<Failure>),
    /// The URL of the coordinator is none.
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A coordinator that is near: it is back soon after a restart, and asking it costs little.
pub struct NearCoordinator {
    url: String,
    embedded: Option<Handle>,
}

impl NearCoordinator {
    /// The one at this URL; without one, one in this process, whose store is in this directory.
    ///
    /// # Errors
    /// [`CoordinatorError::Start`].
    pub async fn start(url: Option<&str>, data_dir: &Path) -> Result<Self, CoordinatorError> {
        if let Some(url) = url {
            return Ok(Self { url: url.to_owned(), embedded: None });
        }
        let handle = Coordinator::start(Config::local(data_dir)).await?;
        Ok(Self { url: handle.base_url(), embedded: Some(handle) })
    }

    /// A client of it.
    ///
    /// # Errors
    /// [`CoordinatorError::Client`].
    pub fn client(&self) -> Result<CoordinatorClient, CoordinatorError> {
        let delays = RetryDelays { first: Duration::from_millis(10), longest: Duration::from_millis(500) };
        Ok(CoordinatorClient::with_options(&self.url, ClientOptions::default().delays(delays))?)
    }

    /// Ends it if it is in this process.
    ///
    /// # Errors
    /// [`CoordinatorError::Failed`].
    pub async fn stop(self) -> Result<(), CoordinatorError> {
        match self.embedded {
            Some(handle) => Ok(handle.shutdown().await?),
            None => Ok(()),
        }
    }
}
