//! Damaged rows mixed into a file of transactions, so that a drill has rejects to lose.

use std::collections::BTreeSet;

use ratified_drill::Draw;

/// One damaged row follows after at most so many rows.
const EVERY: u64 = 20;
/// In how many ways a row is damaged.
const WAYS: u64 = 9;

/// A file with damaged rows in it.
pub(crate) struct Damaged {
    pub(crate) bytes: Vec<u8>,
    /// The numbers of the damaged lines; the header is line 1.
    pub(crate) lines: BTreeSet<u64>,
}

/// The file with damaged rows in between. The header stays first, and every row of the original stays as it is.
pub(crate) fn damage(file: &[u8], seed: u64) -> Damaged {
    let mut draw = Draw::new(seed);
    let mut damaged = Damaged { bytes: Vec::with_capacity(file.len() + file.len() / 8), lines: BTreeSet::new() };
    let (mut number, mut until_next) = (0, 1 + draw.below(EVERY));
    for row in file.split_inclusive(|byte| *byte == b'\n') {
        damaged.bytes.extend_from_slice(row);
        number += 1;
        until_next -= 1;
        if number > 1 && until_next == 0 && row.ends_with(b"\n") {
            damaged.bytes.extend(spoil(row, draw.below(WAYS)));
            number += 1;
            damaged.lines.insert(number);
        }
        if until_next == 0 {
            until_next = 1 + draw.below(EVERY);
        }
    }
    damaged
}

/// A row made from the one before it, spoiled in one of the ways in which real files are.
fn spoil(row: &[u8], way: u64) -> Vec<u8> {
    let mut fields: Vec<&[u8]> = row.trim_ascii_end().split(|byte| *byte == b',').collect();
    let mut set = |index: usize, value: &'static [u8]| {
        if let Some(field) = fields.get_mut(index) {
            *field = value;
        }
    };
    match way {
        0 => fields.truncate(2),
        1 => fields.push(b"more"),
        2 => set(5, b"five"),
        // An amount that a floating point number would take, and perhaps round.
        3 => set(5, b"1.005"),
        4 => set(10, b"2017-02-30T12:00:00"),
        5 => set(3, b"\xff\xfe"),
        6 => set(4, b"-1"),
        7 => set(3, b"1\0"),
        // A row of the basket that is open, of a household that cannot have it.
        _ => set(0, b"4294967295"),
    }
    let mut spoiled = fields.join(&b","[..]);
    spoiled.push(b'\n');
    spoiled
}
