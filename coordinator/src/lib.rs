//! The Ratified transaction coordinator: HTTP in, durable store out, all rules in `ratified-core` between them.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use ratified_coordinator::{Config, Coordinator};
//!
//! let coordinator = Coordinator::start(Config::local("data")).await?;
//! println!("listening at {}", coordinator.base_url());
//! coordinator.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod clock;
mod config;
mod coordinator;
mod http;
mod log;
mod metrics;
pub mod store;
pub mod writer;

pub use clock::{Clock, SystemClock};
pub use config::{Config, ConfigError, Periods, ServerName, ServerNameError, Sources};
pub use coordinator::{Coordinator, Failure, Handle, StartError};
pub use http::{Frontend, OPENAPI};
pub use log::{LogFormat, flush_log, log_to_stderr, say_last};
