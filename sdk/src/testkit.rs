//! Behaviour checks for authors of sinks: what the runtime relies on, one function each.
//!
//! Describe the sink by a [`SinkHarness`] and run [`run_all`] in a test:
//!
//! ```no_run
//! # async fn check<H: ratified::testkit::SinkHarness>(harness: H) {
//! ratified::testkit::run_all(&harness).await.assert();
//! # }
//! ```
//!
//! Checks run inside a tokio runtime, best one of several threads. A check tells what it saw as a [`Failure`]; it panics
//! only in [`Report::assert`]. The medium must work while the checks run: a sink error where success is due is a failure,
//! [`SinkError::Retry`](crate::SinkError) included, except where two commits meet. No check waits for time to pass.

mod abort;
mod commit;
mod listing;
mod report;
mod scene;
mod stage;
#[cfg(test)]
pub(crate) mod tests;

use std::error::Error;

use async_trait::async_trait;

use crate::sink::TwoPhaseSink;

pub use self::{
    abort::{
        abort_leaves_committed_data, abort_leaves_other_transactions, abort_of_nothing_succeeds,
        abort_removes_staged_data, abort_twice_succeeds, abort_without_a_handle_removes_staged_data,
        open_data_of_a_crash_is_removed,
    },
    commit::{
        an_older_commit_is_still_already, commit_after_a_crash_makes_the_records_visible,
        commit_after_abort_is_rejected, commit_from_another_instance_makes_the_records_visible,
        commit_makes_exactly_its_records_visible, commit_twice_is_already, commits_at_once_apply_once,
        commits_keep_their_order, handle_survives_its_encoding,
    },
    listing::{
        fence_leaves_prepared_data, list_staged_names_staged_data_only, list_staged_tells_clients_apart,
        list_visible_names_what_was_committed, one_id_of_two_clients_is_two_transactions,
    },
    report::{Failure, Report, Verdict},
    stage::{
        empty_transaction_commits, large_transaction_is_whole, staged_data_is_invisible,
        two_transactions_are_independent, write_error_surfaces_at_pre_commit,
    },
};

/// What goes wrong in a harness itself; told as a [`Failure`].
pub type HarnessError = Box<dyn Error + Send + Sync>;

/// Whether a harness can make writes fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// From now on nothing more can be staged at this location.
    Broken,
    /// This harness cannot; the check is skipped.
    Unbreakable,
}

/// How the checks make a sink and read what is visible in it.
#[async_trait]
pub trait SinkHarness: Send + Sync {
    /// The sink under test.
    type Sink: TwoPhaseSink;
    /// A place that sinks write to: a directory, a schema, a bucket. Its drop may remove it.
    type Location: Send + Sync;

    /// A place in which nothing was ever staged.
    ///
    /// # Errors
    /// Any is told as a failure of the check.
    async fn fresh(&self) -> Result<Self::Location, HarnessError>;

    /// A sink over this place as another process would make it: it must share nothing in memory with other instances.
    ///
    /// # Errors
    /// Any is told as a failure of the check.
    async fn instance(&self, at: &Self::Location) -> Result<Self::Sink, HarnessError>;

    /// The record that [`visible`](Self::visible) reads back as this number.
    fn record(&self, number: u64) -> <Self::Sink as TwoPhaseSink>::Record;

    /// What a reader of this place sees now, in the order in which it is read. Repeated records must be told as often as
    /// they are seen.
    ///
    /// # Errors
    /// Any is told as a failure of the check.
    async fn visible(&self, at: &Self::Location) -> Result<Vec<u64>, HarnessError>;

    /// Makes staging fail at this place, for instances that are in use too: a full disk, a closed connection. Default:
    /// [`Medium::Unbreakable`], which skips [`write_error_surfaces_at_pre_commit`].
    ///
    /// # Errors
    /// Any is told as a failure of the check.
    async fn break_medium(&self, at: &Self::Location) -> Result<Medium, HarnessError> {
        let _ = at;
        Ok(Medium::Unbreakable)
    }

    /// How many records the large transaction has; more than fit the sink's buffers. Default: 10 000.
    fn large_records(&self) -> u64 {
        10_000
    }
}

macro_rules! behaviours {
    ($($check:ident),* $(,)?) => {
        /// The names of all checks, in the order in which [`run_all`] runs them.
        pub const BEHAVIOURS: &[&str] = &[$(stringify!($check)),*];

        /// Runs every check, each at a fresh location, one after the other.
        pub async fn run_all<H: SinkHarness>(harness: &H) -> Report {
            let mut report = Report::default();
            $(report.note(stringify!($check), $check(harness).await);)*
            report
        }
    };
}

behaviours![
    staged_data_is_invisible,
    commit_makes_exactly_its_records_visible,
    empty_transaction_commits,
    large_transaction_is_whole,
    handle_survives_its_encoding,
    commit_twice_is_already,
    an_older_commit_is_still_already,
    commit_from_another_instance_makes_the_records_visible,
    commit_after_a_crash_makes_the_records_visible,
    commits_at_once_apply_once,
    commits_keep_their_order,
    commit_after_abort_is_rejected,
    abort_removes_staged_data,
    abort_twice_succeeds,
    abort_without_a_handle_removes_staged_data,
    abort_of_nothing_succeeds,
    abort_leaves_committed_data,
    abort_leaves_other_transactions,
    open_data_of_a_crash_is_removed,
    two_transactions_are_independent,
    one_id_of_two_clients_is_two_transactions,
    list_staged_names_staged_data_only,
    list_staged_tells_clients_apart,
    list_visible_names_what_was_committed,
    fence_leaves_prepared_data,
    write_error_surfaces_at_pre_commit,
];
