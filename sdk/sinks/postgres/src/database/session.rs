//! One connection, and the calls on it, each within its time.

use std::future::Future;

use tokio::{task::JoinHandle, time::timeout};
use tokio_postgres::{Client, Error, NoTls, Row, config::SslMode, types::ToSql};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{Database, Failure};
use ratified::Cause;

/// Parameters of a statement.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection. When it is dropped the server undoes whatever was not committed or prepared.
pub(crate) struct Session {
    client: Client,
    connection: JoinHandle<()>,
    timeout: std::time::Duration,
}

impl Drop for Session {
    fn drop(&mut self) {
        // Nothing that was said and not yet sent may arrive later.
        self.connection.abort();
    }
}

impl Session {
    /// Connects as this application.
    pub(crate) async fn connect(database: &Database, application: &str) -> Result<Self, Failure> {
        let doing = "connect to the database";
        let mut config = database.config.clone();
        config.application_name(application);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(database.timeout);
        }
        let connect = async {
            if config.get_ssl_mode() == SslMode::Disable {
                let (client, connection) = config.connect(NoTls).await?;
                return Ok((client, tokio::spawn(watch(connection))));
            }
            let (client, connection) = config.connect(tls_of(database)).await?;
            Ok((client, tokio::spawn(watch(connection))))
        };
        match timeout(database.timeout, connect).await {
            Ok(Ok((client, connection))) => Ok(Self { client, connection, timeout: database.timeout }),
            Ok(Err(error)) => Err(Failure::new(doing, error)),
            Err(_) => Err(Failure::timeout(doing, database.timeout)),
        }
    }

    /// The driver's client, for calls inside of [`within`](Self::within).
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the server may still be there.
    pub(crate) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// How long a call may take, in milliseconds, as the server's settings have it.
    pub(crate) fn timeout_ms(&self) -> u128 {
        self.timeout.as_millis()
    }

    /// Waits for a call, but not for ever.
    pub(crate) async fn within<T>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        match timeout(self.timeout, call).await {
            Ok(result) => result.map_err(|error| Failure::new(doing, error)),
            Err(_) => {
                // Whatever the server still does is its own; this connection tells nothing more about it.
                self.connection.abort();
                Err(Failure::timeout(doing, self.timeout))
            }
        }
    }

    /// All rows of a query.
    pub(crate) async fn query(&self, doing: &str, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Failure> {
        self.within(doing, self.client.query(sql, values)).await
    }

    /// The row of a query that has exactly one.
    pub(crate) async fn query_one(&self, doing: &str, sql: &str, values: Values<'_>) -> Result<Row, Failure> {
        self.within(doing, self.client.query_one(sql, values)).await
    }

    /// The row of a query that has at most one.
    pub(crate) async fn query_opt(&self, doing: &str, sql: &str, values: Values<'_>) -> Result<Option<Row>, Failure> {
        self.within(doing, self.client.query_opt(sql, values)).await
    }

    /// How many rows a statement has changed.
    pub(crate) async fn execute(&self, doing: &str, sql: &str, values: Values<'_>) -> Result<u64, Failure> {
        self.within(doing, self.client.execute(sql, values)).await
    }

    /// Runs statements without parameters.
    pub(crate) async fn run(&self, doing: &str, statements: &str) -> Result<(), Failure> {
        self.within(doing, self.client.batch_execute(statements)).await
    }
}

async fn watch(connection: impl Future<Output = Result<(), Error>>) {
    if let Err(error) = connection.await {
        tracing::debug!(error = %Cause::new(error), "a database connection ended");
    }
}

fn tls_of(database: &Database) -> MakeRustlsConnect {
    let config = database.tls.as_ref().map_or_else(crate::tls::trusted_by_the_system, |config| config.as_ref().clone());
    MakeRustlsConnect::new(config)
}
