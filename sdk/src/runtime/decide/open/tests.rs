use super::*;

fn id(last: u8) -> TxnId {
    TxnId::from_bytes([0, 0, 0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, last]).unwrap()
}

fn client(slot: u8) -> ClientName {
    format!("job.{slot}").parse().unwrap()
}

fn key(number: u8, slot: u8) -> Key {
    (id(number), client(slot))
}

fn at(checkpoint: u64) -> Option<CheckpointId> {
    Some(CheckpointId::new(checkpoint))
}

/// An engine restores checkpoint 2, of which the snapshots name these.
fn engine(named: impl IntoIterator<Item = Key>) -> Rules {
    Rules::Engine {
        restored: at(2),
        named: named.into_iter().collect(),
        share: Share::Whole,
        unnamed: UnnamedPolicy::Fail,
        run: None,
        accept_rewind: false,
    }
}

fn with(mut rules: Rules, change: impl FnOnce(&mut UnnamedPolicy, &mut Share)) -> Rules {
    if let Rules::Engine { unnamed, share, .. } = &mut rules {
        change(unnamed, share);
    }
    rules
}

fn from_nothing(this_run: Option<&str>) -> Rules {
    let mut rules = engine([]);
    if let Rules::Engine { restored, run, .. } = &mut rules {
        *restored = None;
        *run = this_run.map(str::to_owned);
    }
    rules
}

fn owned(slot: u8, unfinished: &[(u8, TxnState, u64)]) -> OwnedClient {
    let unfinished: Vec<_> = unfinished.iter().map(|(n, state, own)| (id(*n), *state, at(*own))).collect();
    let newest = unfinished.iter().map(|(id, ..)| *id).max();
    OwnedClient { client: client(slot), unfinished, newest, visible: None, staged: Vec::new() }
}

fn findings(owned: impl IntoIterator<Item = OwnedClient>) -> Findings {
    Findings { owned: owned.into_iter().collect(), ..Findings::default() }
}

use TxnState::{Aborting, Committing, Prepared};

#[test]
fn commits_come_first_and_ascend_over_all_clients_then_aborts_newest_first() {
    let found = findings([
        owned(0, &[(1, Committing, 1), (4, Prepared, 2), (5, Aborting, 3), (7, Prepared, 3), (8, Prepared, 4)]),
        owned(1, &[(2, Committing, 1), (6, Prepared, 3)]),
    ]);
    let plan = plan(&engine([key(4, 0), key(3, 9)]), &found).unwrap();
    use Command::{Abort, Apply, Commit, Remove};
    assert_eq!(
        plan,
        [
            Apply(key(1, 0)),
            Apply(key(2, 1)),
            Commit(key(3, 9)),
            Commit(key(4, 0)),
            Remove(key(5, 0)),
            Abort(key(8, 0)),
            Abort(key(7, 0)),
            Abort(key(6, 1)),
        ]
    );
}

#[test]
fn what_no_snapshot_of_the_only_worker_names_fails_or_follows_the_policy() {
    let found = findings([owned(0, &[(1, Prepared, 1), (2, Prepared, 2), (3, Prepared, 3)])]);
    let failed = plan(&engine([key(1, 0)]), &found).unwrap_err();
    assert!(matches!(&failed, RuntimeError::Unnamed { txns, .. } if *txns == [(client(0), id(2))]), "{failed}");
    let with_policy = |policy| plan(&with(engine([]), |unnamed, _| *unnamed = policy), &found).unwrap();
    use Command::{Abort, Commit, LeaveAlone};
    assert_eq!(with_policy(UnnamedPolicy::Commit), [Commit(key(1, 0)), Commit(key(2, 0)), Abort(key(3, 0))]);
    let left = [Abort(key(3, 0)), LeaveAlone(key(2, 0)), LeaveAlone(key(1, 0))];
    assert_eq!(with_policy(UnnamedPolicy::LeaveAlone), left);
}

#[test]
fn while_other_workers_may_have_the_snapshot_it_is_left_alone_whatever_the_policy() {
    let found = findings([owned(0, &[(2, Prepared, 2)])]);
    for policy in [UnnamedPolicy::Fail, UnnamedPolicy::Commit, UnnamedPolicy::LeaveAlone] {
        let rules = with(engine([]), |unnamed, share| (*unnamed, *share) = (policy, Share::Part));
        assert_eq!(plan(&rules, &found).unwrap(), [Command::LeaveAlone(key(2, 0))]);
    }
}

#[test]
fn a_job_that_checkpoints_itself_aborts_all_that_is_prepared() {
    let found = findings([owned(0, &[(1, Prepared, 1), (2, Prepared, 2)])]);
    assert_eq!(plan(&Rules::LastCommit, &found).unwrap(), [Command::Abort(key(2, 0)), Command::Abort(key(1, 0))]);
}

fn refusal(rules: &Rules, clients: &[(u8, Option<u64>)], prepared: &[(u8, Option<&str>)]) -> Option<String> {
    let clients = clients.iter().map(|(slot, committed)| Found {
        client: client(*slot),
        last_committed: committed.map(|_| id(1)),
        committed: committed.map(at),
    });
    let prepared = prepared.iter().map(|(slot, run)| Labelled { client: client(*slot), run: run.map(str::to_owned) });
    let found = Findings { clients: clients.collect(), prepared: prepared.collect(), owned: Vec::new() };
    check_restore(rules, &found).err().map(|refused| refused.to_string())
}

#[test]
fn a_checkpoint_older_than_any_clients_last_commit_is_refused_naming_both() {
    assert_eq!(refusal(&engine([]), &[(0, Some(2)), (1, None)], &[]), None);
    let refused = "restoring checkpoint 2 would write twice what job.1 has committed with checkpoint 3";
    assert_eq!(refusal(&engine([]), &[(0, Some(2)), (1, Some(3))], &[]).as_deref(), Some(refused));
    let mut accepting = engine([]);
    if let Rules::Engine { accept_rewind, .. } = &mut accepting {
        *accept_rewind = true;
    }
    assert_eq!(refusal(&accepting, &[(1, Some(3))], &[]), None);
}

#[test]
fn a_start_from_nothing_passes_what_its_own_run_prepared_and_nothing_else() {
    let foreign = "restoring no checkpoint would write twice what job.1 has prepared or committed";
    let own = from_nothing(Some("run 7"));
    assert_eq!(refusal(&own, &[(0, None)], &[(0, Some("run 7")), (1, Some("run 7"))]), None);
    for other in [Some("run 6"), None] {
        assert_eq!(refusal(&own, &[], &[(0, Some("run 7")), (1, other)]).as_deref(), Some(foreign));
    }
    assert_eq!(refusal(&from_nothing(None), &[], &[(1, None)]).as_deref(), Some(foreign), "without a run");
    let committed = "restoring no checkpoint would write twice what job.0 has committed with checkpoint 1";
    assert_eq!(refusal(&own, &[(0, Some(1))], &[]).as_deref(), Some(committed), "a checkpoint was completed");
}

fn ahead(rules: &Rules, one: OwnedClient, is_first_start: bool) -> Option<(Vec<TxnId>, Vec<TxnId>)> {
    match check_sink(rules, &findings([one]), is_first_start) {
        Err(RuntimeError::SinkAhead { visible, staged, .. }) => Some((visible, staged)),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    }
}

#[test]
fn a_sink_that_shows_what_the_coordinator_has_not_met_is_ahead() {
    let shows = |known: Option<u8>, visible: &[u8]| OwnedClient {
        newest: known.map(id),
        visible: Some(visible.iter().copied().map(id).collect()),
        ..owned(0, &[])
    };
    assert_eq!(ahead(&engine([]), shows(Some(2), &[1, 2]), false), None);
    assert_eq!(ahead(&engine([]), shows(Some(2), &[1, 2, 3]), false), Some((vec![id(3)], vec![])));
    assert_eq!(ahead(&engine([key(3, 0)]), shows(Some(2), &[1, 2, 3]), false), None, "a snapshot names it");
    assert_eq!(ahead(&engine([key(3, 1)]), shows(Some(2), &[3]), false), Some((vec![id(3)], vec![])), "of another");
    assert_eq!(ahead(&Rules::LastCommit, shows(None, &[1]), true), Some((vec![id(1)], vec![])));
}

#[test]
fn a_sink_that_shows_what_would_be_aborted_is_ahead() {
    let shows_all = |unfinished: &[(u8, TxnState, u64)]| {
        let one = owned(0, unfinished);
        OwnedClient { visible: Some(one.unfinished.iter().map(|(id, ..)| *id).collect()), ..one }
    };
    let all = [(1, Committing, 1), (2, Prepared, 2), (3, Prepared, 3), (4, Aborting, 3)];
    assert_eq!(ahead(&engine([key(2, 0)]), shows_all(&all), false), Some((vec![id(3), id(4)], vec![])));
    assert_eq!(ahead(&engine([key(2, 0)]), shows_all(&all[..2]), false), None);
}

#[test]
fn staged_data_is_refused_only_where_nothing_ever_began() {
    let staged = |known: Option<u8>| OwnedClient { newest: known.map(id), staged: vec![id(1)], ..owned(0, &[]) };
    assert_eq!(ahead(&Rules::LastCommit, staged(None), true), Some((vec![], vec![id(1)])));
    assert_eq!(ahead(&Rules::LastCommit, staged(None), false), None, "it is reported");
    assert_eq!(ahead(&Rules::LastCommit, staged(Some(1)), true), None);
}

#[test]
fn a_loss_is_given_up_by_its_policy_or_when_an_accepted_rewind_has_outlived_it() {
    let mut rewinding = engine([]);
    if let Rules::Engine { accept_rewind, .. } = &mut rewinding {
        *accept_rewind = true;
    }
    let fails = LostPolicy::Fail;
    assert!(is_given_up(&engine([]), LostPolicy::Skip, Lost::Aborted, id(1), None));
    assert!(!is_given_up(&engine([]), fails, Lost::Expired, id(1), Some(id(2))));
    assert!(is_given_up(&rewinding, fails, Lost::Expired, id(1), Some(id(2))));
    for (lost, last) in [(Lost::Expired, Some(id(1))), (Lost::Expired, None), (Lost::Aborted, Some(id(2)))] {
        assert!(!is_given_up(&rewinding, fails, lost, id(1), last), "{lost:?} {last:?}");
    }
}
