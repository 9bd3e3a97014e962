//! When two states of the search are the same.

use std::hash::{DefaultHasher, Hash, Hasher};

use ratified_coordinator::store::codec;
use ratified_core::{Record, Uptime, Write};

use super::{State, told::Held};

impl State {
    /// Brings the canonical form up to date.
    pub fn settle(&mut self) {
        let form = self.canonical_form();
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, &form).hash(&mut hasher);
            hasher.finish()
        };
        self.canonical = [hash(0), hash(1)];
    }

    /// All that can make a difference later: stamps cannot, but for the deadline.
    fn canonical_form(&self) -> Vec<u8> {
        let mut form = Vec::with_capacity(512);
        if let Some(engine) = &self.engine {
            engine.records().into_iter().for_each(|record| push(&mut form, Write::Put(unstamped(record))));
            form.push(0xfe);
            engine.touched().for_each(|key| form.extend(codec::encode_key(key)));
            let deadline = engine.next_deadline().map(|d| d.as_millis() > self.now_ms);
            form.extend([0xfe, deadline.map_or(2, u8::from)]);
        }
        form.push(0xff);
        self.durable.values().for_each(|record| push(&mut form, Write::Put(unstamped(record.clone()))));
        form.push(0xff);
        self.held.push(&mut form);
        if let Some(flight) = &self.flight {
            for write in &flight.writes {
                let write = match write {
                    Write::Put(record) => Write::Put(unstamped(record.clone())),
                    delete @ Write::Delete(_) => delete.clone(),
                };
                push(&mut form, write);
            }
            flight.held.push(&mut form);
        }
        form.extend([0xff, self.crashes, self.ticks, self.evictions, u8::from(self.wrong.is_some())]);
        form.extend(format!("{:?}{:?}{:?}", self.told, self.epochs, self.heard).into_bytes());
        form
    }
}

fn push(form: &mut Vec<u8>, write: Write) {
    let change = codec::encode_write(&write).unwrap();
    form.extend(change.key);
    form.push(0xfd);
    form.extend(change.value.unwrap_or_default());
}

fn unstamped(mut record: Record) -> Record {
    let zero = Uptime::default();
    match &mut record {
        Record::Client(_, client) => client.written = zero,
        Record::Transaction(_, _, header) => {
            header.begun = zero;
            header.prepared = header.prepared.map(|_| zero);
        }
        Record::Outcome(_, _, outcome) => outcome.ended = zero,
        _ => {}
    }
    record
}

impl Held {
    fn push(&self, form: &mut Vec<u8>) {
        form.extend(format!("{:?}{:?}", self.told, self.heard).into_bytes());
    }
}
