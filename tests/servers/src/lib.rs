//! Real servers for the tests, one module per server. Each is started in a temporary directory, on a free port of the
//! loopback interface, and is gone when its value is dropped.
//!
//! Calls block for as long as a server needs to start or to end: in an asynchronous test, use several threads.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test harness: a failure here is a failed test"
)]

pub mod cutter;
pub mod disk;
pub mod moto;
pub mod postgres;
pub mod process;
pub mod program;
mod s3;
pub mod seaweedfs;
pub mod tally;

pub use self::{cutter::Cutter, disk::SmallDisk, moto::Moto, postgres::Postgres, seaweedfs::SeaweedFs};
