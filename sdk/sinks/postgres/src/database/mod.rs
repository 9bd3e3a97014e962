//! How a PostgreSQL database is reached: by the [sink](crate::PostgresSink) and by the
//! [source](crate::PostgresSource).

mod failure;
mod session;
mod sql;

use std::{fmt, sync::Arc, time::Duration};

use thiserror::Error;
use tokio_postgres::Config;

use ratified::{Cause, Place};

pub use {rustls, tokio_postgres};

pub(crate) use self::{
    failure::Failure,
    session::Session,
    sql::{identifier, literal, qualified},
};

/// How long one call of the database may take, unless set otherwise: a minute.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest timeout: a day.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest name of a table, a column or a schema, in bytes: PostgreSQL cuts longer ones.
pub const MAX_IDENTIFIER_BYTES: usize = 63;

/// Why a database cannot be used as asked. The caller must mend the setting that it names.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// The URL is none.
    #[error("the database URL cannot be read: {0}")]
    Url(Cause),
    /// A name is empty, longer than 63 bytes, or has a NUL character.
    #[error("{what} {name:?} must be 1..=63 bytes without a NUL character")]
    Identifier {
        /// What it names.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A record would fill one column twice.
    #[error("column {column:?} of table {table:?} is named twice")]
    Duplicate {
        /// Of which table.
        table: String,
        /// Which column.
        column: String,
    },
    /// A setting lies outside its bounds.
    #[error("{key} must be {bounds}")]
    OutOfBounds {
        /// The setting.
        key: &'static str,
        /// What it takes.
        bounds: &'static str,
    },
}

/// Where a database is, as whom and how it is reached. Cheap to clone.
///
/// Connections are made directly: a pooler in front must keep a session for as long as a connection lives (PgBouncer:
/// `pool_mode = session`).
#[derive(Clone)]
pub struct Database {
    config: Config,
    tls: Option<Arc<rustls::ClientConfig>>,
    timeout: Duration,
}

impl Database {
    /// A database by its URL, `postgresql://user:password@host:5432/name?sslmode=require`, or by `key=value` pairs as
    /// libpq takes them. TLS is by rustls; the server's certificate must be good for its name and signed by somebody the
    /// system trusts, whatever `sslmode` says, except `disable`.
    ///
    /// # Errors
    /// [`PostgresError::Url`].
    pub fn new(url: &str) -> Result<Self, PostgresError> {
        let config = url.parse::<Config>().map_err(|error| PostgresError::Url(Cause::new(error)))?;
        Ok(Self::from_config(config))
    }

    /// A database by the driver's own configuration.
    pub fn from_config(config: Config) -> Self {
        Self { config, tls: None, timeout: DEFAULT_TIMEOUT }
    }

    /// TLS with another configuration: own certificate authorities, client certificates.
    #[must_use]
    pub fn tls(mut self, config: rustls::ClientConfig) -> Self {
        self.tls = Some(Arc::new(config));
        self
    }

    /// How long one call may take, waiting for locks included, by default a minute. One that takes longer counts as
    /// failed for now, and its connection is given up. At least a millisecond, at most [`MAX_TIMEOUT`].
    ///
    /// # Errors
    /// [`PostgresError::OutOfBounds`].
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, PostgresError> {
        if !(Duration::from_millis(1)..=MAX_TIMEOUT).contains(&timeout) {
            return Err(PostgresError::OutOfBounds { key: "timeout", bounds: "1 ms..=24 h" });
        }
        self.timeout = timeout;
        Ok(self)
    }

    /// Where a sink of this name is. One server under two host names is not recognised.
    pub(crate) fn place(&self, sink: &str) -> Place {
        let config = &self.config;
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user);
        let (hosts, ports) = (config.get_hosts(), config.get_ports());
        Place::named(format!("database {database:?} of {hosts:?} {ports:?} under the sink's name {sink:?}"))
    }

    /// Runs statements without parameters on a connection of their own, in one transaction: makes tables before a job
    /// opens, for example. Nothing is repeated.
    ///
    /// # Errors
    /// What the database said. After a timeout or a lost connection the statements may have been run.
    pub async fn run(&self, statements: &str) -> Result<(), Cause> {
        let told = |failure: Failure| Cause::new(failure.to_string());
        let session = Session::connect(self, "ratified-setup").await.map_err(told)?;
        session.run("run the statements", statements).await.map_err(told)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("config", &self.config).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Checks the name of something in the database.
pub(crate) fn checked_name(what: &'static str, name: impl Into<String>) -> Result<String, PostgresError> {
    let name = name.into();
    let taken = (1..=MAX_IDENTIFIER_BYTES).contains(&name.len()) && !name.contains('\0');
    if taken { Ok(name) } else { Err(PostgresError::Identifier { what, name }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_its_password_never_told() {
        let database = Database::new("postgresql://me:secret@db:5433/orders").unwrap();
        let text = format!("{database:?}");
        assert!(text.contains("\"orders\"") && !text.contains("secret"), "{text}");
        let error = Database::new("postgresql://me:secret@db:port/orders").unwrap_err().to_string();
        assert!(error.starts_with("the database URL cannot be read: ") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn names_are_taken_up_to_their_bound() {
        let longest = "n".repeat(63);
        for good in ["a", "Order Lines", "ä", "a\"b", longest.as_str()] {
            assert_eq!(checked_name("table", good).unwrap(), good);
        }
        for wrong in ["", "a\0b", &"n".repeat(64)] {
            let error = checked_name("table", wrong).unwrap_err().to_string();
            assert!(error.starts_with("table ") && error.contains("1..=63 bytes"), "{error}");
        }
    }

    #[test]
    fn a_timeout_is_taken_up_to_its_bounds() {
        let database = || Database::new("host=db").unwrap();
        for (timeout, taken) in [
            (Duration::ZERO, false),
            (Duration::from_millis(1), true),
            (MAX_TIMEOUT, true),
            (MAX_TIMEOUT + Duration::from_millis(1), false),
        ] {
            assert_eq!(database().timeout(timeout).is_ok(), taken, "{timeout:?}");
        }
    }
}
