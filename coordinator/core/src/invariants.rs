//! What must hold after every step, one function per property. Tests and simulations call [`check_all`].

use ratified_protocol::{ClientName, Outcome, TxnId, TxnState};

use crate::{client::Client, client::live_index, engine::Engine, transaction::Transaction, waiting::WaitFor};

type Verdict = Result<(), String>;
type Check = fn(&Engine) -> Verdict;

const CHECKS: &[(&str, Check)] = &[
    ("a header is live and its decision agrees with its state", headers_are_live),
    ("an ending header waits for somebody", ending_headers_wait),
    ("OPEN transactions are of the current epoch, or being fenced", open_is_current),
    ("a deadline belongs to OPEN, or to PREPARED with a timeout", deadlines_belong),
    ("timers name exactly the headers", timers_follow_headers),
    ("participants are indexed exactly", participants_follow_headers),
    ("the preserver and the headers agree", preserver_follows_headers),
    ("the preserver is bounded", preserver_is_bounded),
    ("lastCommitted is the newest commit", last_committed_is_newest),
    ("watermarks cover what they should", watermarks_cover),
    ("a tombstone has nothing left", tombstones_are_bare),
    ("counts are right", counts_are_right),
    ("a parked request has something to wait for", parked_requests_wait),
    ("idle clients are indexed", idle_clients_are_indexed),
];

/// Checks every invariant of the engine.
///
/// # Errors
/// The first invariant that does not hold, and where.
pub fn check_all(engine: &Engine) -> Result<(), String> {
    for (name, check) in CHECKS {
        check(engine).map_err(|place| format!("{name}: {place}"))?;
    }
    Ok(())
}

fn ensure(holds: bool, place: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(place()) }
}

fn headers(engine: &Engine) -> impl Iterator<Item = (&ClientName, &Client, TxnId, &Transaction)> {
    engine.clients.iter().flat_map(|(name, c)| c.txns.iter().map(move |(id, txn)| (name, c, *id, txn)))
}

fn headers_are_live(engine: &Engine) -> Verdict {
    for (name, _, id, txn) in headers(engine) {
        let live = live_index(txn.record.state).is_some();
        let agrees = txn.record.state.outcome().is_some() == txn.record.decision.is_some();
        ensure(live && agrees, || format!("{name}/{id} {}", txn.record.state))?;
    }
    Ok(())
}

fn ending_headers_wait(engine: &Engine) -> Verdict {
    for (name, _, id, txn) in headers(engine) {
        let waits = txn.record.state.outcome().is_none() || txn.missing_acks().next().is_some();
        ensure(waits, || format!("{name}/{id} {}", txn.record.state))?;
    }
    Ok(())
}

fn open_is_current(engine: &Engine) -> Verdict {
    for (name, client, id, txn) in headers(engine) {
        let current = txn.record.epoch == client.record.epoch || engine.pages.fences(name);
        let not_ahead = txn.record.epoch <= client.record.epoch;
        ensure(not_ahead && (current || txn.record.state != TxnState::Open), || format!("{name}/{id}"))?;
    }
    Ok(())
}

fn deadlines_belong(engine: &Engine) -> Verdict {
    for (name, _, id, txn) in headers(engine) {
        let due = match txn.record.state {
            TxnState::Open => true,
            TxnState::Prepared => txn.record.prepared_timeout_ms.is_some(),
            _ => false,
        };
        ensure(txn.deadline.is_some() == due, || format!("{name}/{id} {}", txn.record.state))?;
    }
    Ok(())
}

fn timers_follow_headers(engine: &Engine) -> Verdict {
    let mut sizes = [0; 4];
    for (name, _, id, txn) in headers(engine) {
        ensure(engine.timers.names(name, id, txn), || format!("{name}/{id}"))?;
        sizes[0] += usize::from(txn.deadline.is_some());
        sizes[1] += usize::from(txn.record.state == TxnState::Open);
        sizes[2] += usize::from(txn.record.state == TxnState::Prepared);
        sizes[3] += usize::from(txn.record.decision.is_some());
    }
    ensure(engine.timers.sizes() == sizes, || format!("{:?} entries for {sizes:?}", engine.timers.sizes()))?;
    let busy = engine.clients.iter().filter(|(_, c)| !c.txns.is_empty()).map(|(name, _)| name);
    ensure(engine.busy.iter().eq(busy), || "busy clients".to_owned())
}

fn participants_follow_headers(engine: &Engine) -> Verdict {
    let mut members = Vec::new();
    let mut pending = Vec::new();
    for (name, _, id, txn) in headers(engine) {
        members.extend(txn.members().map(|p| (p.clone(), (name.clone(), id))));
        if let Some(decision) = txn.record.decision {
            pending.extend(txn.missing_acks().map(|p| (p.clone(), decision.number, (name.clone(), id))));
        }
        let retired = txn.members().find(|p| engine.participants.is_retired(p) && !engine.pages.retires(p));
        ensure(retired.is_none(), || format!("{name}/{id} has a retired participant"))?;
    }
    members.sort();
    pending.sort();
    let indexed = engine.participants.all_members().map(|(p, key)| (p.clone(), key.clone()));
    ensure(indexed.eq(members), || "members".to_owned())?;
    let count = pending.len() as u64;
    let indexed = engine.participants.all_pending().map(|(p, n, key)| (p.clone(), n, key.clone()));
    ensure(indexed.eq(pending), || "pending decisions".to_owned())?;
    ensure(engine.participants.pending_acks() == count, || "number of pending acks".to_owned())
}

fn preserver_follows_headers(engine: &Engine) -> Verdict {
    for (name, _, id, txn) in headers(engine) {
        let entry = engine.preserver.lookup(name, id);
        ensure(entry.map(|e| e.outcome) == txn.record.state.outcome(), || format!("{name}/{id} outcome"))?;
        ensure(entry.is_none_or(|e| e.terminal.is_none() && !e.flushed), || format!("{name}/{id} early"))?;
    }
    for (name, client) in &engine.clients {
        for (id, entry) in engine.preserver.entries(name) {
            let live = client.txns.contains_key(&id);
            ensure(live == entry.terminal.is_none(), || format!("{name}/{id} live {live}"))?;
        }
    }
    Ok(())
}

fn preserver_is_bounded(engine: &Engine) -> Verdict {
    let most = engine.limits.max_outcomes_per_client.max(engine.limits.persist_count);
    for name in engine.clients.keys() {
        for outcome in Outcome::ALL {
            let kept = engine.preserver.queue_len(name, outcome);
            ensure(kept <= most, || format!("{name} keeps {kept} {outcome}"))?;
        }
    }
    Ok(())
}

fn last_committed_is_newest(engine: &Engine) -> Verdict {
    for (name, client) in &engine.clients {
        let last = client.record.last_committed.map(|last| last.txn_id);
        let entries = engine.preserver.entries(name).filter(|(_, e)| e.outcome == Outcome::Committed);
        let newest = entries.map(|(id, _)| id).max();
        ensure(newest <= last, || format!("{name} last {last:?}, newest {newest:?}"))?;
        let payload = last.and_then(|id| client.txns.get(&id)).is_none_or(|t| t.payload == client.last_payload);
        ensure(payload && (last.is_some() || client.last_payload.is_none()), || format!("{name} payload"))?;
    }
    Ok(())
}

fn watermarks_cover(engine: &Engine) -> Verdict {
    for (name, client) in &engine.clients {
        let record = &client.record;
        let ids = client.txns.keys().copied().chain(engine.preserver.entries(name).map(|(id, _)| id));
        let newest = ids.chain(record.evicted_through).chain(record.last_committed.map(|l| l.txn_id)).max();
        ensure(newest <= record.newest_txn_id, || format!("{name} newest {:?}", record.newest_txn_id))?;
        ensure(record.written <= engine.uptime && client.active <= engine.uptime, || format!("{name} stamp"))?;
    }
    Ok(())
}

fn tombstones_are_bare(engine: &Engine) -> Verdict {
    let mut tombstones = 0;
    for (name, client) in engine.clients.iter().filter(|(_, c)| c.record.forgotten) {
        tombstones += 1;
        let record = &client.record;
        let bare = client.txns.is_empty()
            && record.last_committed.is_none()
            && record.owner.is_none()
            && engine.preserver.entries(name).next().is_none();
        ensure(bare && record.evicted_through == record.newest_txn_id, || name.to_string())?;
    }
    ensure(tombstones == engine.tombstones, || format!("{tombstones} tombstones"))
}

fn counts_are_right(engine: &Engine) -> Verdict {
    let mut live = [0; 4];
    let mut payload_bytes = 0;
    for (name, client) in &engine.clients {
        let mut own = [0; 4];
        for (id, txn) in &client.txns {
            if let Some(count) = live_index(txn.record.state).and_then(|i| own.get_mut(i)) {
                *count += 1;
            }
            let shared = client.is_last_committed(*id);
            payload_bytes += txn.payload.as_ref().filter(|_| !shared).map_or(0, |p| p.len() as u64);
        }
        payload_bytes += client.last_payload.as_ref().map_or(0, |p| p.len() as u64);
        ensure(client.counts == own, || format!("{name} {own:?}"))?;
        let overtaken = client.txns.values().filter(|txn| client.has_overtaken(txn)).count() as u64;
        ensure(client.overtaken == overtaken, || format!("{name} {overtaken} overtaken"))?;
        live.iter_mut().zip(own).for_each(|(all, own)| *all += own);
    }
    ensure(engine.live == live, || format!("{live:?}"))?;
    ensure(engine.payload_bytes == payload_bytes, || format!("{payload_bytes} payload bytes"))?;
    ensure(engine.stats.stray_index_entries == 0, || "stray index entries".to_owned())
}

fn parked_requests_wait(engine: &Engine) -> Verdict {
    let parked = engine.waiting.len() + engine.pages.attended();
    ensure(parked <= engine.limits.max_waiting, || "too many".to_owned())?;
    for what in engine.waiting.all() {
        match what {
            WaitFor::Terminal { client, txn_id, .. } => {
                let live = engine.clients.get(client).is_some_and(|c| c.txns.contains_key(txn_id));
                ensure(live, || format!("{client}/{txn_id}"))?;
            }
            WaitFor::Decision { participant, after } => {
                let nothing = engine.participants.decisions(participant, *after).next().is_none();
                ensure(nothing, || participant.to_string())?;
            }
        }
    }
    Ok(())
}

fn idle_clients_are_indexed(engine: &Engine) -> Verdict {
    if engine.limits.client_retention_ms.is_none() {
        return Ok(());
    }
    let idle = engine.clients.keys().filter(|name| engine.is_idle(name)).count();
    ensure(engine.timers.idle_names().count() == idle, || format!("{idle} idle clients"))?;
    for (since, name) in engine.timers.idle_names() {
        let right = engine.is_idle(name) && engine.clients.get(name).is_some_and(|c| c.active == *since);
        ensure(right, || name.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
