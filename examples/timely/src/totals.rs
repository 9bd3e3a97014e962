//! What is computed: for each network of seismometers the number of its events so far, and the strongest of them.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use earthquakes::{Catalogue, CatalogueError, Row as CatalogueRow};
use serde::{Deserialize, Serialize};

/// An event, in the epoch it belongs to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The epoch; the first is 1.
    pub epoch: u64,
    /// The network that reported it.
    pub network: String,
    /// Its magnitude.
    pub magnitude: f64,
}

/// What is known of a network.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Total {
    /// How many events it has reported.
    pub events: u64,
    /// The greatest magnitude.
    pub strongest: f64,
}

/// A row of the output: a network's total behind an epoch in which it had events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The epoch.
    pub epoch: u64,
    /// The network.
    pub network: String,
    /// Its total.
    #[serde(flatten)]
    pub total: Total,
}

/// Totals by network.
pub(super) type Totals = BTreeMap<String, Total>;

/// Which worker counts a network: this number modulo the number of workers.
pub(super) fn owner_of(network: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    network.hash(&mut hasher);
    hasher.finish()
}

/// The rows of an epoch. Only epochs whose events are complete are counted, in any order.
pub(super) fn count(totals: &mut Totals, epoch: u64, events: Vec<Event>) -> Vec<Row> {
    let mut touched = BTreeMap::new();
    for event in events {
        let total = totals.entry(event.network.clone()).or_default();
        total.events += 1;
        total.strongest = total.strongest.max(event.magnitude);
        touched.insert(event.network, *total);
    }
    touched.into_iter().map(|(network, total)| Row { epoch, network, total }).collect()
}

/// The events of a catalogue, read so many times.
///
/// # Errors
/// See [`CatalogueError`].
pub fn events_of(input: &Path, passes: u64, epoch_events: usize) -> Result<Vec<Event>, CatalogueError> {
    let mut events = Vec::new();
    let epoch_events = epoch_events.max(1);
    for _ in 0..passes {
        let mut catalogue = Catalogue::open(input)?;
        while let Some(row) = catalogue.next_row()? {
            if let CatalogueRow::Kept(kept) = row {
                let epoch = 1 + (events.len() / epoch_events) as u64;
                events.push(Event { epoch, network: kept.event.network, magnitude: kept.event.magnitude });
            }
        }
    }
    Ok(events)
}

/// The rows that must be visible in the end, sorted, worked out without workers, epochs in flight and a sink.
///
/// # Errors
/// A row cannot be encoded.
pub fn expected_rows(events: &[Event]) -> Result<Vec<u8>, serde_json::Error> {
    let (mut totals, mut lines) = (Totals::new(), Vec::new());
    for epoch in events.chunk_by(|a, b| a.epoch == b.epoch) {
        let number = epoch.first().map_or(0, |event| event.epoch);
        for row in count(&mut totals, number, epoch.to_vec()) {
            lines.push([serde_json::to_vec(&row)?, b"\n".to_vec()].concat());
        }
    }
    lines.sort_unstable();
    Ok(lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_a_row_in_each_epoch_in_which_it_had_events() {
        let event = |epoch, network: &str, magnitude| Event { epoch, network: network.to_owned(), magnitude };
        let events = [event(1, "us", 2.5), event(1, "ak", 1.0), event(1, "us", 2.0), event(2, "us", 3.0)];
        let expected = "{\"epoch\":1,\"network\":\"ak\",\"events\":1,\"strongest\":1.0}\n\
                        {\"epoch\":1,\"network\":\"us\",\"events\":2,\"strongest\":2.5}\n\
                        {\"epoch\":2,\"network\":\"us\",\"events\":3,\"strongest\":3.0}\n";
        assert_eq!(String::from_utf8(expected_rows(&events).unwrap()).unwrap(), expected);
    }
}
