//! The PostgreSQL sink and source against a real server.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a failure here is a failed test")]

mod administrator;
mod contract;
mod faults;
mod fencing;
mod later;
mod markers;
mod orphans;
mod positions;
mod rights;
mod setup;
mod site;
mod source;
