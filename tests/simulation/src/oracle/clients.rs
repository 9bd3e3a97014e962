//! What a step may change of a client.

use ratified_core::{ClientRecord, Input, Record, Request, Sweep};
use ratified_protocol::{ClientName, Epoch, OpenRequest};

use super::{Verdict, changes::Change, ensure};

type Check = fn(&Change<'_>, &ClientName, Option<&ClientRecord>, &ClientRecord) -> Verdict;

const CHECKS: &[(&str, Check)] = &[
    ("an epoch grows by one, by an open", epoch_grows_by_open),
    ("a superseded or repeated open disturbs nobody", old_opens_disturb_nobody),
    ("watermarks never fall", watermarks_never_fall),
    ("lastCommitted is the greatest id committed", last_committed_is_greatest),
    ("a client is forgotten only when idle, by who may", forgotten_only_when_idle),
];

/// Checks a changed client.
///
/// # Errors
/// The property that does not hold, and where.
pub fn check(change: &Change<'_>, name: &ClientName) -> Verdict {
    let Some(after) = as_client(change.after) else { return Err(format!("a client never vanishes: {name}")) };
    for (property, check) in CHECKS {
        check(change, name, as_client(change.before), after).map_err(|place| format!("{property}: {name} {place}"))?;
    }
    Ok(())
}

fn as_client(record: Option<&Record>) -> Option<&ClientRecord> {
    match record {
        Some(Record::Client(_, client)) => Some(client),
        _ => None,
    }
}

fn open_of<'a>(change: &'a Change<'_>, name: &ClientName) -> Option<&'a OpenRequest> {
    match change.input {
        Input::Request { request: Request::Open { client, body }, .. } if client == name => Some(body),
        _ => None,
    }
}

fn epoch_grows_by_open(
    change: &Change<'_>,
    name: &ClientName,
    before: Option<&ClientRecord>,
    after: &ClientRecord,
) -> Verdict {
    let was = before.map_or(Epoch::new(0), |b| b.epoch);
    if was == after.epoch {
        return Ok(());
    }
    let open = open_of(change, name);
    let by_open = open.is_some_and(|body| after.incarnations.last() == Some(&body.incarnation));
    let created = before.is_some_and(|b| !b.forgotten) || open.is_some_and(|body| body.create);
    let next = was.next() == Some(after.epoch);
    ensure(by_open && created && next, || format!("{was} became {}", after.epoch))
}

fn old_opens_disturb_nobody(
    change: &Change<'_>,
    name: &ClientName,
    before: Option<&ClientRecord>,
    after: &ClientRecord,
) -> Verdict {
    let (Some(before), Some(open)) = (before, open_of(change, name)) else { return Ok(()) };
    let known = before.incarnations.contains(&open.incarnation);
    ensure(!known || before.epoch == after.epoch, || format!("{} changed it again", open.incarnation))
}

fn watermarks_never_fall(
    _: &Change<'_>,
    _: &ClientName,
    before: Option<&ClientRecord>,
    after: &ClientRecord,
) -> Verdict {
    let Some(before) = before else { return Ok(()) };
    let evicted = before.evicted_through <= after.evicted_through;
    ensure(evicted && before.newest_txn_id <= after.newest_txn_id, || {
        format!("{:?} became {:?}", before.evicted_through, after.evicted_through)
    })
}

fn last_committed_is_greatest(
    change: &Change<'_>,
    name: &ClientName,
    before: Option<&ClientRecord>,
    after: &ClientRecord,
) -> Verdict {
    let was = before.and_then(|b| b.last_committed).map(|l| l.txn_id);
    let is = after.last_committed.map(|l| l.txn_id);
    ensure(after.forgotten || was <= is, || format!("{was:?} became {is:?}"))?;
    let newest = change.oracle.newest_commit(name, change.engine);
    ensure(after.forgotten || newest <= is, || format!("{is:?}, but {newest:?} is committed"))
}

fn forgotten_only_when_idle(
    change: &Change<'_>,
    name: &ClientName,
    before: Option<&ClientRecord>,
    after: &ClientRecord,
) -> Verdict {
    let was = before.is_some_and(|b| b.forgotten);
    if was && !after.forgotten {
        let revived = open_of(change, name).is_some_and(|body| body.create);
        return ensure(revived, || "revived without create".to_owned());
    }
    if was || !after.forgotten {
        return Ok(());
    }
    let by = match change.input {
        Input::Request { request: Request::Forget { client, .. }, .. } => client == name,
        Input::Sweep(Sweep::IdleClients) => {
            let kept = change.oracle.outcomes(name).next().is_some();
            !kept && before.is_some_and(|b| b.last_committed.is_none())
        }
        _ => false,
    };
    let busy = change.oracle.live().any(|(client, id, _)| {
        let key = ratified_core::Key::Transaction(client.clone(), id);
        client == name && change.engine.record_at(&key).is_some()
    });
    ensure(by && !busy, || format!("busy {busy}"))?;
    ensure(after.evicted_through == after.newest_txn_id, || "its ids may begin again".to_owned())
}
