//! The checks must be able to fail: each is shown a sink that is broken in just its way.

pub(crate) mod memory;

use std::collections::BTreeSet;

use super::{BEHAVIOURS, Report, run_all};
use memory::{Fault, Harness};

/// Every way to break the sink, and the check that is there for it.
const CAUGHT_BY: &[(Fault, &str)] = &[
    (Fault::StagedIsVisible, "staged_data_is_invisible"),
    (Fault::CommitLosesARecord, "commit_makes_exactly_its_records_visible"),
    (Fault::EmptyIsRejected, "empty_transaction_commits"),
    (Fault::BufferIsCut, "large_transaction_is_whole"),
    (Fault::HandleLosesAField, "handle_survives_its_encoding"),
    (Fault::HandleIsHuge, "handle_survives_its_encoding"),
    (Fault::CommitRepeats, "commit_twice_is_already"),
    (Fault::CommitSaysNowAgain, "commit_twice_is_already"),
    (Fault::OnlyTheLastCommitIsProved, "an_older_commit_is_still_already"),
    (Fault::StagedInTheProcess, "commit_from_another_instance_makes_the_records_visible"),
    (Fault::StagedInTheProcess, "commit_after_a_crash_makes_the_records_visible"),
    (Fault::CommitRaces, "commits_at_once_apply_once"),
    (Fault::NewestFirst, "commits_keep_their_order"),
    (Fault::AbsenceIsAlready, "commit_after_abort_is_rejected"),
    (Fault::AbsenceIsRetried, "commit_after_abort_is_rejected"),
    (Fault::AbortKeepsPrepared, "abort_removes_staged_data"),
    (Fault::AbortOfNothingIsRejected, "abort_twice_succeeds"),
    (Fault::AbortOfNothingIsRejected, "abort_of_nothing_succeeds"),
    (Fault::AbortNeedsTheHandle, "abort_without_a_handle_removes_staged_data"),
    (Fault::AbortRemovesCommitted, "abort_leaves_committed_data"),
    (Fault::AbortRemovesTheClient, "abort_leaves_other_transactions"),
    (Fault::AbortKeepsOpen, "open_data_of_a_crash_is_removed"),
    (Fault::CommitTakesTheClient, "two_transactions_are_independent"),
    (Fault::IdAloneIsTheKey, "one_id_of_two_clients_is_two_transactions"),
    (Fault::ListsCommitted, "list_staged_names_staged_data_only"),
    (Fault::ListsNothing, "list_staged_names_staged_data_only"),
    (Fault::ListsEverybody, "list_staged_tells_clients_apart"),
    (Fault::ListsByPrefix, "list_staged_tells_clients_apart"),
    (Fault::ListsWithoutCase, "list_staged_tells_clients_apart"),
    (Fault::ShowsStaged, "list_visible_names_what_was_committed"),
    (Fault::ShowsEverybody, "list_visible_names_what_was_committed"),
    (Fault::ShowsNothing, "list_visible_names_what_was_committed"),
    (Fault::FenceRemovesPrepared, "fence_leaves_prepared_data"),
    (Fault::WriteErrorIsSwallowed, "write_error_surfaces_at_pre_commit"),
];

async fn report_of(fault: Option<Fault>) -> Report {
    run_all(&Harness { fault, is_able: true }).await
}

#[tokio::test]
async fn a_sink_that_keeps_the_contract_passes_every_check() {
    let report = report_of(None).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test]
async fn a_check_that_the_harness_cannot_support_is_skipped() {
    let report = run_all(&Harness { fault: None, is_able: false }).await;
    report.assert();
    assert_eq!(report.skipped, ["list_visible_names_what_was_committed", "write_error_surfaces_at_pre_commit"]);
    assert_eq!(report.held.len(), BEHAVIOURS.len() - 2);
}

#[tokio::test]
async fn each_broken_sink_is_caught_by_the_check_that_is_there_for_it() {
    for (fault, behaviour) in CAUGHT_BY {
        let report = report_of(Some(*fault)).await;
        assert!(report.failed(behaviour), "{fault:?} was not caught by {behaviour}: {report}");
    }
}

#[tokio::test]
async fn a_failure_carries_the_name_of_its_check_and_no_other() {
    for (fault, _) in CAUGHT_BY {
        let report = report_of(Some(*fault)).await;
        let failed: BTreeSet<_> = report.failures.iter().map(|failure| failure.behaviour).collect();
        let held: BTreeSet<_> = report.held.iter().copied().collect();
        assert_eq!(failed.union(&held).copied().collect::<BTreeSet<_>>(), BEHAVIOURS.iter().copied().collect());
        assert!(failed.is_disjoint(&held), "{fault:?}: {report}");
    }
}

#[test]
fn every_check_is_there_for_some_broken_sink() {
    let caught: BTreeSet<_> = CAUGHT_BY.iter().map(|(_, behaviour)| *behaviour).collect();
    assert_eq!(caught, BEHAVIOURS.iter().copied().collect());
}
