//! Every seeded defect is found, by the ring and within the seeds that are on record.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test harness: a failure here is a failed test")]
