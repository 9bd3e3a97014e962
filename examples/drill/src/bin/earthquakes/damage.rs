//! Damaged lines mixed into a catalogue, so that a drill has rejects to lose.

use ratified_drill::Draw;

/// One damaged line follows after at most so many lines.
const EVERY: u64 = 20;

/// The catalogue with damaged lines in between. The header stays first, and every line of the original stays as it is.
pub(crate) fn damage(catalogue: &[u8], seed: u64) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    let mut damaged = Vec::with_capacity(catalogue.len() * 2);
    let mut until_next = 1 + draw.below(EVERY);
    for (index, line) in catalogue.split_inclusive(|byte| *byte == b'\n').enumerate() {
        damaged.extend_from_slice(line);
        until_next -= 1;
        if index > 0 && until_next == 0 && line.ends_with(b"\n") {
            damaged.extend(spoil(line, draw.below(7)));
        }
        if until_next == 0 {
            until_next = 1 + draw.below(EVERY);
        }
    }
    damaged
}

/// A line made from the one before it, spoiled in one of the ways in which real files are.
fn spoil(line: &[u8], way: u64) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let mut fields: Vec<&str> = text.splitn(7, ',').collect();
    let mut set = |index: usize, value: &'static str| {
        if let Some(field) = fields.get_mut(index) {
            *field = value;
        }
    };
    match way {
        // The same line again: a duplicate id.
        0 => return line.to_vec(),
        1 => return b"\r\n".to_vec(),
        2 => return [b"\xff\xfe", line].concat(),
        3 => return text.replacen('"', "", 1).into_bytes(),
        4 => set(2, "strong"),
        5 => set(5, "91.5"),
        _ => {
            // An event of its own, but long ago.
            set(0, "1000000000000");
            set(1, "late0001");
        }
    }
    fields.join(",").into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use earthquakes::{Catalogue, Row};

    use super::*;

    #[test]
    fn every_damaged_line_is_refused_and_every_other_one_is_as_before() {
        let original = include_bytes!("../../../../data/earthquakes.csv");
        let mut kinds = BTreeSet::new();
        for seed in 0..2 {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), damage(original, seed)).unwrap();
            let mut catalogue = Catalogue::open(file.path()).unwrap();
            while let Some(row) = catalogue.next_row().unwrap() {
                if let Row::Rejected(reject) = row {
                    kinds.insert(reject.fault.kind());
                }
            }
            let tally = catalogue.position().tally;
            assert_eq!((tally.kept, tally.filtered), (996, 711));
            assert!((120..=240).contains(&tally.rejected), "{tally:?}");
        }
        let expected = [
            "column-count",
            "duplicate-id",
            "not-a-number",
            "not-utf8",
            "open-quote",
            "out-of-range",
            "time-goes-back",
        ];
        assert_eq!(kinds, BTreeSet::from(expected));
    }
}
