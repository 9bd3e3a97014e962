//! What must be there, worked out without anything of the job: no CSV reader, no amounts, no baskets of its own.

use std::collections::{BTreeSet, HashMap};

use crate::damage::Damaged;

/// The columns of a row.
const COLUMNS: usize = 11;

/// What is known of a basket: how many items it has, and its four sums in cents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Known {
    pub(crate) items: i64,
    pub(crate) cents: [i64; 4],
}

impl Known {
    pub(crate) fn add(&mut self, cents: [i64; 4]) {
        self.items += 1;
        for (sum, cents) in self.cents.iter_mut().zip(cents) {
            *sum += cents;
        }
    }
}

/// What one pass must leave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Expected {
    pub(crate) rows: u64,
    pub(crate) baskets: HashMap<i64, Known>,
    /// The basket of each line.
    pub(crate) lines: HashMap<u64, i64>,
    pub(crate) rejects: BTreeSet<u64>,
    pub(crate) all: Known,
}

impl Expected {
    /// Of this file; `None` if the original is no file of whole, sound rows.
    pub(crate) fn of(damaged: &Damaged) -> Option<Self> {
        let mut expected = Self { rejects: damaged.lines.clone(), ..Self::default() };
        let lines = damaged.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        for (line, number) in lines.zip(1_u64..).skip(1) {
            expected.rows += 1;
            if damaged.lines.contains(&number) {
                continue;
            }
            let line = std::str::from_utf8(line).ok()?;
            let fields: Vec<&str> = line.split(',').collect();
            if fields.len() != COLUMNS {
                return None;
            }
            let basket = fields.get(2)?.parse().ok()?;
            let mut cents = [0; 4];
            for (cents, field) in cents.iter_mut().zip(fields.get(5..9)?) {
                // Every amount of the file has two places.
                *cents = field.replace('.', "").parse().ok()?;
            }
            expected.baskets.entry(basket).or_default().add(cents);
            expected.lines.insert(number, basket);
            expected.all.add(cents);
        }
        Some(expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::damage;

    /// Counted and summed up with awk over examples/data/transactions.csv.
    const ROWS: u64 = 2000;
    const BASKETS: usize = 202;
    const CENTS: [i64; 4] = [576_673, 109_567, 1_505, 165];

    #[test]
    fn what_is_expected_of_the_extract_is_what_awk_says() {
        let file = include_bytes!("../../../../data/transactions.csv");
        for seed in [1, 2] {
            let damaged = damage(file, seed);
            let expected = Expected::of(&damaged).unwrap();
            assert_eq!(expected.rows, ROWS + damaged.lines.len() as u64);
            assert!((140..=280).contains(&damaged.lines.len()), "{}", damaged.lines.len());
            assert_eq!((expected.baskets.len(), expected.lines.len()), (BASKETS, 2000));
            assert_eq!(expected.all, Known { items: 2000, cents: CENTS });
        }
    }
}
