//! What these tests share with those of the SDK's own sinks.
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../../tests/support/contract.rs"]
pub(crate) mod contract;
#[path = "../../../../tests/support/crash.rs"]
pub(crate) mod crash;
#[path = "../../../../tests/support/descriptors.rs"]
pub(crate) mod descriptors;
