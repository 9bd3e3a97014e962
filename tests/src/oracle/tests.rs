use super::{Answered::*, Asked::*, Opened, Oracle, Outcome::*, Seen, Seen::*};

/// One call and its answer.
fn call(oracle: &mut Oracle, txn: u64, asked: super::Asked, answered: super::Answered) -> bool {
    let call = oracle.ask("c", txn, asked);
    oracle.answer(&call, answered).is_ok()
}

fn look(oracle: &mut Oracle, txn: u64, seen: Seen) -> bool {
    let answered = if matches!(seen, Absent | Expired) { Refused(seen) } else { Done(seen) };
    call(oracle, txn, Look, answered)
}

fn committed(keep: Option<usize>, txns: impl IntoIterator<Item = u64>) -> Oracle {
    let mut oracle = Oracle::new(keep);
    for txn in txns {
        assert!(call(&mut oracle, txn, Begin, Done(Open)));
        assert!(call(&mut oracle, txn, Commit, Done(Ended(Committed))));
    }
    oracle
}

#[test]
fn what_was_acknowledged_is_never_unseen() {
    let mut oracle = Oracle::new(None);
    assert!(call(&mut oracle, 1, Begin, Done(Open)));
    assert!(!look(&mut oracle, 1, Absent));
    assert!(call(&mut oracle, 1, Prepare, Done(Prepared)));
    assert!(!look(&mut oracle, 1, Open));
    assert!(look(&mut oracle, 1, Prepared));
    assert!(call(&mut oracle, 1, Commit, Done(Ending(Committed))));
    assert!(!look(&mut oracle, 1, Prepared));
    assert!(call(&mut oracle, 1, Ack(Committed), Done(Ended(Committed))));
    assert!(!look(&mut oracle, 1, Ending(Committed)));
    assert!(!look(&mut oracle, 1, Expired));
}

#[test]
fn an_outcome_is_never_both() {
    let mut oracle = committed(None, [1]);
    assert!(!call(&mut oracle, 1, Abort, Done(Ended(Aborted))));
    let mut oracle = Oracle::new(None);
    assert!(call(&mut oracle, 1, Begin, Done(Open)));
    assert!(call(&mut oracle, 1, Commit, Unknown));
    assert!(call(&mut oracle, 1, Abort, Unknown));
    assert!(look(&mut oracle, 1, Ended(Aborted)));
    assert!(!look(&mut oracle, 1, Ended(Committed)));
}

#[test]
fn an_unknown_call_may_have_either_fate() {
    for seen in [Absent, Open] {
        let mut oracle = Oracle::new(None);
        assert!(call(&mut oracle, 1, Begin, Unknown));
        assert!(look(&mut oracle, 1, seen), "{seen:?}");
    }
    for seen in [Open, Ending(Committed), Ended(Committed)] {
        let mut oracle = Oracle::new(None);
        assert!(call(&mut oracle, 1, Begin, Done(Open)));
        assert!(call(&mut oracle, 1, Commit, Unknown));
        assert!(look(&mut oracle, 1, seen), "{seen:?}");
    }
}

#[test]
fn nothing_happens_that_nobody_asked_for() {
    let mut oracle = Oracle::new(None);
    assert!(!look(&mut oracle, 1, Open));
    assert!(call(&mut oracle, 2, Begin, Done(Open)));
    assert!(!look(&mut oracle, 2, Prepared));
    assert!(!look(&mut oracle, 2, Ended(Committed)));
    assert!(!look(&mut oracle, 2, Ended(Aborted)));
}

#[test]
fn a_refused_call_never_takes_effect() {
    let mut oracle = Oracle::new(None);
    oracle.ask_open("c", 1);
    oracle.ask_open("c", 2);
    assert!(call(&mut oracle, 1, Begin, Done(Open)));
    assert!(call(&mut oracle, 1, Commit, Fenced));
    assert!(!look(&mut oracle, 1, Ended(Committed)));
    let mut oracle = Oracle::new(None);
    assert!(call(&mut oracle, 1, Begin, Refused(Absent)));
    assert!(!look(&mut oracle, 1, Open));
}

#[test]
fn only_a_newer_open_fences() {
    let opened = Opened { epoch: 1, newest: None, last_committed: None };
    let mut oracle = Oracle::new(None);
    let first = oracle.ask_open("c", 1);
    assert!(oracle.opened(&first, &opened).is_ok());
    assert!(call(&mut oracle, 1, Begin, Done(Open)));
    assert!(!look(&mut oracle, 1, Ended(Aborted)));
    assert!(!call(&mut oracle, 1, Prepare, Fenced));
    let second = oracle.ask_open("c", 2);
    assert!(look(&mut oracle, 1, Ended(Aborted)));
    assert!(call(&mut oracle, 2, Begin, Done(Open)));
    assert!(look(&mut oracle, 2, Ended(Aborted)), "begun while an open was on its way");
    oracle.superseded(&second);
    assert!(call(&mut oracle, 3, Begin, Done(Open)));
    assert!(!look(&mut oracle, 3, Ended(Aborted)));
    assert!(call(&mut oracle, 4, Begin, Fenced));
}

#[test]
fn an_open_never_ends_what_was_prepared() {
    let mut oracle = Oracle::new(None);
    assert!(call(&mut oracle, 1, Begin, Done(Open)));
    assert!(call(&mut oracle, 1, Prepare, Done(Prepared)));
    oracle.ask_open("c", 2);
    assert!(!look(&mut oracle, 1, Ended(Aborted)));
}

#[test]
fn success_means_what_was_asked_for() {
    let mut oracle = Oracle::new(None);
    assert!(call(&mut oracle, 1, Begin, Done(Open)));
    assert!(!call(&mut oracle, 1, Prepare, Done(Open)));
    assert!(!call(&mut oracle, 1, Commit, Done(Prepared)));
    assert!(!call(&mut oracle, 1, Abort, Done(Ended(Committed))));
    assert!(!call(&mut oracle, 1, Ack(Committed), Done(Ending(Committed))));
}

#[test]
fn answers_that_overtake_each_other_break_no_rule() {
    let mut oracle = Oracle::new(None);
    assert!(call(&mut oracle, 1, Begin, Done(Open)));
    let slow = oracle.ask("c", 1, Look);
    assert!(call(&mut oracle, 1, Commit, Done(Ended(Committed))));
    assert!(oracle.answer(&slow, Done(Open)).is_ok());
}

#[test]
fn only_what_is_beyond_the_count_may_expire() {
    let mut oracle = committed(Some(2), 1..=3);
    assert!(look(&mut oracle, 1, Expired));
    assert!(!look(&mut oracle, 1, Ended(Committed)), "what has expired stays so");
    assert!(!look(&mut oracle, 2, Expired));
    assert!(!look(&mut oracle, 3, Expired));
}

#[test]
fn what_never_began_may_lie_below_the_watermark() {
    let mut oracle = committed(Some(2), 2..=9);
    assert!(call(&mut oracle, 1, Begin, Unknown));
    assert!(look(&mut oracle, 1, Expired));
    assert!(call(&mut oracle, 1, Commit, Refused(Expired)));
    assert!(look(&mut oracle, 1, Expired));
}

#[test]
fn the_last_commit_never_expires() {
    let mut oracle = committed(Some(0), [1, 2]);
    assert!(look(&mut oracle, 1, Expired));
    assert!(!look(&mut oracle, 2, Expired));
}

#[test]
fn aborts_do_not_count_against_commits() {
    let mut oracle = committed(Some(1), [1, 9]);
    for txn in 2..=5 {
        assert!(call(&mut oracle, txn, Begin, Done(Open)));
        assert!(call(&mut oracle, txn, Abort, Done(Ended(Aborted))));
    }
    assert!(look(&mut oracle, 1, Expired));
    assert!(!look(&mut oracle, 9, Expired));
    assert!(look(&mut oracle, 4, Expired));
    assert!(!look(&mut oracle, 5, Expired));
}

#[test]
fn epochs_never_go_back_and_have_one_owner() {
    let opened = |epoch| Opened { epoch, newest: None, last_committed: None };
    let mut oracle = Oracle::new(None);
    let first = oracle.ask_open("c", 1);
    assert!(oracle.opened(&first, &opened(1)).is_ok());
    assert!(oracle.opened(&first, &opened(1)).is_ok(), "a repeat is told the same");
    let second = oracle.ask_open("c", 2);
    assert!(oracle.clone().opened(&second, &opened(1)).is_err());
    assert!(oracle.clone().opened(&second, &opened(3)).is_err());
    assert!(oracle.opened(&second, &opened(2)).is_ok());
}

#[test]
fn open_forgets_neither_the_newest_nor_the_last_commit() {
    let told = |newest, last_committed| Opened { epoch: 1, newest, last_committed };
    let mut oracle = committed(None, [1, 2]);
    assert!(call(&mut oracle, 3, Begin, Done(Open)));
    assert!(call(&mut oracle, 4, Begin, Unknown));
    let opening = oracle.ask_open("c", 1);
    for (fine, answer) in [
        (true, told(Some(3), Some(2))),
        (true, told(Some(4), Some(2))),
        (false, told(Some(2), Some(2))),
        (false, told(Some(5), Some(2))),
        (false, told(Some(3), Some(1))),
        (false, told(Some(3), None)),
        (false, told(Some(3), Some(3))),
    ] {
        assert_eq!(oracle.clone().opened(&opening, &answer).is_ok(), fine, "{answer:?}");
    }
}
