//! What the integration tests share: real processes, a client written from the protocol alone, a fault proxy, an
//! oracle that keeps acknowledged, refused and unknown apart, and a load generator.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test harness: a failure here is a failed test"
)]

pub mod answers;
pub mod around;
pub mod binary;
pub mod clock;
pub mod config;
pub mod environment;
pub mod fiu;
pub mod jobs;
pub mod load;
pub mod oracle;
pub mod pipeline;
pub mod poll;
pub mod process;
pub mod proxy;
pub mod raw;
pub mod session;
pub mod shape;
pub mod site;
pub mod strace;
pub use ratified_servers::tally;
