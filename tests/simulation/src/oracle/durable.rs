//! What a batch must hold, what a crash may take, and what a recovered coordinator must know.

use std::collections::BTreeMap;

use ratified_coordinator::store::{
    Batch,
    codec::{self, Entry, Meta},
};
use ratified_core::{Engine, Key, Now, Record, Recovery, Uptime};
use ratified_protocol::{Outcome, TxnState};

use super::{Oracle, TxnKey, Verdict, ensure};
use crate::{
    disk::Disk,
    probes::{Probe, Probes},
};

type Records = BTreeMap<Key, Record>;
type Writes = Vec<(Key, Option<Record>)>;

fn same(left: &Records, right: &Records) -> bool {
    left.len() == right.len() && left.iter().zip(right).all(|((k, a), (l, b))| k == l && equal(a, b))
}

/// The newest id is written with the client's other changes only; ids with a trace say the rest.
fn equal(left: &Record, right: &Record) -> bool {
    let (Record::Client(name, a), Record::Client(other, b)) = (left, right) else { return left == right };
    name == other
        && (a.epoch, a.evicted_through, a.last_committed) == (b.epoch, b.evicted_through, b.last_committed)
        && (&a.incarnations, &a.owner, &a.previous_owner) == (&b.incarnations, &b.owner, &b.previous_owner)
        && (a.forgotten, a.written) == (b.forgotten, b.written)
}

fn difference(left: &Records, right: &Records) -> String {
    let keys = left.keys().chain(right.keys());
    let agree = |key: &Key| match (left.get(key), right.get(key)) {
        (Some(left), Some(right)) => equal(left, right),
        (left, right) => left.is_none() && right.is_none(),
    };
    keys.filter(|key| !agree(key))
        .map(|key| format!("{:?} is {:?}", left.get(key), right.get(key)))
        .next()
        .unwrap_or_default()
}

fn of_engine(engine: &Engine) -> Records {
    engine.records().into_iter().map(|record| (record.key(), record)).collect()
}

fn decode(map: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<(Records, u64, Uptime), String> {
    let (mut records, mut loads, mut uptime) = (Records::new(), 0, Uptime::default());
    for (key, value) in map {
        match codec::decode(key, value).map_err(|e| e.to_string())? {
            Entry::Record(record) => {
                records.insert(record.key(), record);
            }
            Entry::Meta(Meta::Loads(n)) => loads = n,
            Entry::Meta(Meta::Uptime(at)) => uptime = at,
            Entry::Meta(_) => {}
        }
    }
    Ok((records, loads, uptime))
}

impl Oracle {
    /// A batch is about to be written: with it, the disk holds exactly what the engine holds, and what ended in it
    /// is preserved in it.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn sealed(&mut self, batch: &Batch, engine: &Engine) -> Verdict {
        // Every batch is compared with the memory here, and one in four is read back and compared with the engine's.
        let thorough = batch.number.is_multiple_of(4);
        let (writes, uptime) = self.writes_of(batch, engine, thorough)?;
        apply(&mut self.ahead, &writes);
        ensure(same(&self.ahead, &self.memory), || {
            format!("a batch writes all that its steps changed: {}", difference(&self.ahead, &self.memory))
        })?;
        if thorough {
            let held = of_engine(engine);
            ensure(same(&self.memory, &held), || {
                format!("every change is seen at its step: {}", difference(&self.memory, &held))
            })?;
        }
        self.flushed_with_terminal(&writes)?;
        ensure(uptime >= engine.uptime(), || "no stored stamp exceeds the stored uptime".to_owned())?;
        self.written = Some(writes);
        Ok(())
    }

    fn writes_of(&mut self, batch: &Batch, engine: &Engine, thorough: bool) -> Result<(Writes, Uptime), String> {
        let mut writes = Vec::new();
        let mut uptime = Uptime::default();
        for change in &batch.changes {
            let known = self.keys.get(&change.key).cloned();
            match (&change.value, known) {
                (None, Some(key)) => writes.push((key, None)),
                // Removed before it was ever written.
                (None, None) => {}
                (Some(_), Some(key)) if !thorough => {
                    let record = engine.record_at(&key);
                    writes.push((key, record));
                }
                (Some(value), _) => match codec::decode(&change.key, value).map_err(|e| e.to_string())? {
                    Entry::Record(record) => {
                        let key = self.keys.entry(change.key.clone()).or_insert_with(|| record.key()).clone();
                        writes.push((key, Some(record)));
                    }
                    Entry::Meta(Meta::Uptime(at)) => uptime = at,
                    Entry::Meta(_) => {}
                },
            }
        }
        Ok((writes, uptime))
    }

    /// Order: decision durable <= told <= preserver flushed <= terminal. The last two share a batch.
    fn flushed_with_terminal(&self, writes: &[(Key, Option<Record>)]) -> Verdict {
        for (key, record) in writes {
            let (Key::Transaction(client, id), None) = (key, record) else { continue };
            if !self.durable.contains_key(key) {
                continue;
            }
            let evicted = self.was_evicted(&(client.clone(), *id));
            let last = self.client(client).and_then(|c| c.last_committed).is_some_and(|l| l.txn_id == *id);
            let outcome = Key::Outcome(client.clone(), *id);
            let kept = writes.iter().any(|(k, r)| r.is_some() && *k == outcome);
            ensure(kept || evicted || last, || format!("terminal without its outcome flushed: {client}/{id}"))?;
        }
        Ok(())
    }

    /// The batch in flight is durable.
    pub fn synced(&mut self) {
        let writes = self.written.take().unwrap_or_default();
        apply(&mut self.durable, &writes);
    }

    /// The coordinator died.
    pub fn crashed(&mut self, probes: &mut Probes) {
        for record in self.memory.values() {
            let Record::Transaction(client, id, header) = record else { continue };
            if header.decision.is_none() {
                continue;
            }
            let acked = header
                .participants
                .iter()
                .filter(|p| self.memory.contains_key(&Key::Ack(client.clone(), *id, p.name.clone())));
            match acked.count() {
                0 => probes.hit(Probe::C03NobodyTold),
                _ => probes.hit(Probe::C05SomeAcked),
            }
        }
    }

    /// A coordinator was loaded and is about to serve.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn recovered(&mut self, engine: &Engine, disk: &Disk, now: Now, probes: &mut Probes) -> Verdict {
        let (on_disk, loads, uptime) = decode(&disk.readable())?;
        let held = of_engine(engine);
        ensure(same(&on_disk, &held), || format!("recovered as on disk: {}", difference(&on_disk, &held)))?;
        self.nothing_synced_is_lost(&held)?;
        ensure(now.uptime >= uptime || uptime == engine.uptime(), || "uptime went back".to_owned())?;
        self.recovering_twice_is_recovering_once(&on_disk, &held, loads, now)?;
        self.memory = held;
        self.durable = self.memory.clone();
        self.ahead = self.memory.clone();
        self.written = None;
        self.loaded_at = now.uptime;
        self.facts_survive()?;
        self.renew_deadlines(now, probes);
        Ok(())
    }

    fn nothing_synced_is_lost(&self, held: &Records) -> Verdict {
        if same(&self.durable, held) {
            return Ok(());
        }
        let mut with_tail = self.durable.clone();
        apply(&mut with_tail, self.written.as_deref().unwrap_or_default());
        ensure(same(&with_tail, held), || {
            let (plain, tail) = (difference(&self.durable, held), difference(&with_tail, held));
            format!("what was synced survives, and a batch survives whole or not at all: {plain} / {tail}")
        })
    }

    fn recovering_twice_is_recovering_once(&self, on_disk: &Records, held: &Records, loads: u64, now: Now) -> Verdict {
        let mut recovery = Recovery::new(self.limits, loads + 1);
        for record in on_disk.values() {
            recovery.add(record.clone()).map_err(|e| e.to_string())?;
        }
        let (again, _) = recovery.finish(now).map_err(|e| e.to_string())?;
        let again = of_engine(&again);
        ensure(same(&again, held), || format!("recovering twice is recovering once: {}", difference(&again, held)))
    }

    fn facts_survive(&self) -> Verdict {
        for (key, fact) in &self.facts {
            if fact.exists || fact.expired {
                self.fact_survives(key)?;
            }
        }
        for (name, fact) in &self.clients {
            let record = self.client(name);
            let newest = fact.epochs.keys().max().copied();
            let kept = record.is_some_and(|r| Some(r.epoch) >= newest && r.evicted_through >= fact.evicted_through);
            ensure(kept, || format!("an acknowledged open survives any crash: {name} {newest:?} is {record:?}"))?;
        }
        Ok(())
    }

    fn fact_survives(&self, key: &TxnKey) -> Verdict {
        let Some(fact) = self.facts.get(key) else { return Ok(()) };
        let place = |now: &str| format!("what was acknowledged survives any crash: {key:?} {fact:?} is {now}");
        let (client, id) = key;
        if self.was_evicted(key) && self.header(client, *id).is_none() {
            return Ok(());
        }
        ensure(!fact.expired, || place("below no watermark"))?;
        if let Some(header) = self.header(client, *id) {
            let decided = fact.outcome.is_none() || fact.outcome == header.state.outcome();
            let prepared = !fact.prepared || header.state != TxnState::Open;
            return ensure(decided && prepared && !fact.terminal, || place(header.state.as_str()));
        }
        let outcome = match self.memory.get(&Key::Outcome(client.clone(), *id)) {
            Some(Record::Outcome(_, _, record)) => Some(record.outcome),
            _ => {
                let last = self.client(client).and_then(|c| c.last_committed).filter(|l| l.txn_id == *id);
                last.map(|_| Outcome::Committed)
            }
        };
        ensure(outcome.is_some() && (fact.outcome.is_none() || fact.outcome == outcome), || {
            place(&format!("{outcome:?}"))
        })
    }

    fn renew_deadlines(&mut self, now: Now, probes: &mut Probes) {
        self.deadlines.clear();
        let live: Vec<_> = self.live().map(|(client, id, header)| ((client.clone(), id), header.clone())).collect();
        for (key, header) in live {
            self.set_deadline(&key, &header, now.uptime);
            probes.add(Probe::DeadlineRenewed, u64::from(self.deadlines.contains_key(&key)));
        }
    }
}

fn apply(records: &mut Records, writes: &[(Key, Option<Record>)]) {
    for (key, record) in writes {
        match record {
            Some(record) => records.insert(key.clone(), record.clone()),
            None => records.remove(key),
        };
    }
}
