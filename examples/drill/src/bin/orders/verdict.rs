//! What was lost, what was doubled: every basket, every item and every refused row, in both places.

use std::collections::HashMap;

use orders::{Lake, Tables, VisibleError};

use crate::expected::{Expected, Known};

/// How the output of a drill differs from what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    pub(crate) baskets: u64,
    pub(crate) rejects: u64,
    /// Sums over the baskets in PostgreSQL.
    pub(crate) tables: Known,
    /// Sums over the items in the store.
    pub(crate) store: Known,
    /// Baskets, items and refused rows that are missing.
    pub(crate) lost: u64,
    /// Those that are there once too often, each time counted.
    pub(crate) doubled: u64,
    /// Those that nobody wrote, and baskets whose items or cents are not theirs.
    pub(crate) wrong: u64,
}

impl Verdict {
    /// Looks at both places, and compares.
    pub(crate) async fn of(tables: &Tables, lake: &Lake, expected: &Expected) -> Result<Self, VisibleError> {
        let mut verdict = Self::default();
        let mut found = Found::default();
        tables
            .each_basket(|sums| {
                verdict.baskets += 1;
                let cents = sums.amounts.to_cents();
                verdict.tables.items += sums.items;
                for (sum, cents) in verdict.tables.cents.iter_mut().zip(cents) {
                    *sum += cents;
                }
                found.basket(sums.basket, Known { items: sums.items, cents });
            })
            .await
            .map_err(VisibleError::Tables)?;
        tables
            .each_reject(|(line, _)| {
                verdict.rejects += 1;
                *found.rejects.entry(u64::try_from(line).unwrap_or(0)).or_default() += 1;
            })
            .await
            .map_err(VisibleError::Tables)?;
        lake.each_item(|item| {
            let cents = item.amounts.to_cents();
            verdict.store.add(cents);
            found.item(item.line, item.basket_id, cents);
        })
        .await?;
        verdict.judge(&found, expected);
        Ok(verdict)
    }

    fn judge(&mut self, found: &Found, expected: &Expected) {
        self.compare(&expected.rejects.iter().copied().collect::<Vec<_>>(), &found.rejects);
        self.compare(&expected.baskets.keys().copied().collect::<Vec<_>>(), &found.baskets);
        let lines: Vec<_> = expected.lines.iter().map(|(line, basket)| (*line, *basket)).collect();
        self.compare(&lines, &found.items);
        for (basket, known) in &expected.baskets {
            let times = found.baskets.get(basket).copied().unwrap_or(0);
            // The sums of a basket that is there exactly once, told by PostgreSQL and by its items in the store.
            let in_tables = found.sums.get(basket).is_some_and(|sums| times == 1 && sums != known);
            let has_all = found.stored.get(basket).is_some_and(|stored| stored.items == known.items && stored != known);
            self.wrong += u64::from(in_tables) + u64::from(has_all);
        }
    }

    fn compare<K: std::hash::Hash + Eq>(&mut self, expected: &[K], found: &HashMap<K, u64>) {
        let mut known = 0;
        for key in expected {
            match found.get(key) {
                None => self.lost += 1,
                Some(times) => {
                    known += times;
                    self.doubled += times - 1;
                }
            }
        }
        self.wrong += found.values().sum::<u64>() - known;
    }

    /// Both together.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        let sum = |a: Known, b: Known| Known {
            items: a.items + b.items,
            cents: std::array::from_fn(|at| a.cents.get(at).zip(b.cents.get(at)).map_or(0, |(a, b)| a + b)),
        };
        Self {
            baskets: self.baskets + other.baskets,
            rejects: self.rejects + other.rejects,
            tables: sum(self.tables, other.tables),
            store: sum(self.store, other.store),
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            wrong: self.wrong + other.wrong,
        }
    }
}

/// What is there, and how often.
#[derive(Debug, Default)]
struct Found {
    baskets: HashMap<i64, u64>,
    sums: HashMap<i64, Known>,
    items: HashMap<(u64, i64), u64>,
    stored: HashMap<i64, Known>,
    rejects: HashMap<u64, u64>,
}

impl Found {
    fn basket(&mut self, basket: i64, sums: Known) {
        *self.baskets.entry(basket).or_default() += 1;
        self.sums.insert(basket, sums);
    }

    fn item(&mut self, line: u64, basket: i64, cents: [i64; 4]) {
        *self.items.entry((line, basket)).or_default() += 1;
        self.stored.entry(basket).or_default().add(cents);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> Expected {
        let mut expected = Expected::default();
        for (line, basket, cents) in [(2, 1, 50), (3, 1, 25), (5, 2, 99)] {
            expected.lines.insert(line, basket);
            expected.baskets.entry(basket).or_default().add([cents, 0, 0, 0]);
        }
        expected.rejects.insert(4);
        expected
    }

    /// A verdict over these items, with the baskets that PostgreSQL has, by number, items and cents.
    fn judged(items: &[(u64, i64, i64)], baskets: &[(i64, i64, i64)], rejects: &[u64]) -> (u64, u64, u64) {
        let mut found = Found::default();
        for (line, basket, cents) in items {
            found.item(*line, *basket, [*cents, 0, 0, 0]);
        }
        for (basket, items, cents) in baskets {
            found.basket(*basket, Known { items: *items, cents: [*cents, 0, 0, 0] });
        }
        for line in rejects {
            *found.rejects.entry(*line).or_default() += 1;
        }
        let mut verdict = Verdict::default();
        verdict.judge(&found, &expected());
        (verdict.lost, verdict.doubled, verdict.wrong)
    }

    const ITEMS: [(u64, i64, i64); 3] = [(2, 1, 50), (3, 1, 25), (5, 2, 99)];
    const BASKETS: [(i64, i64, i64); 2] = [(1, 2, 75), (2, 1, 99)];

    #[test]
    fn what_is_all_there_once_is_exact() {
        assert_eq!(judged(&ITEMS, &BASKETS, &[4]), (0, 0, 0));
    }

    #[test]
    fn what_is_lost_doubled_or_wrong_is_told_apart() {
        assert_eq!(judged(&ITEMS[..2], &BASKETS, &[4]), (1, 0, 0), "an item is missing");
        assert_eq!(judged(&ITEMS, &BASKETS[..1], &[4]), (1, 0, 0), "a basket is missing");
        assert_eq!(judged(&ITEMS, &BASKETS, &[]), (1, 0, 0), "a refused row is missing");
        assert_eq!(judged(&[&ITEMS[..], &ITEMS[..1]].concat(), &BASKETS, &[4]), (0, 1, 0), "an item twice");
        assert_eq!(judged(&ITEMS, &[&BASKETS[..], &BASKETS[..]].concat(), &[4, 4]), (0, 3, 0), "baskets and row twice");
        assert_eq!(judged(&ITEMS, &[(1, 2, 74), (2, 1, 99)], &[4]), (0, 0, 1), "a cent is missing in PostgreSQL");
        assert_eq!(judged(&ITEMS, &[(1, 1, 75), (2, 1, 99)], &[4]), (0, 0, 1), "a basket of fewer items");
        let store = [(2, 1, 51), ITEMS[1], ITEMS[2]];
        assert_eq!(judged(&store, &BASKETS, &[4]), (0, 0, 1), "a cent too much in the store");
        assert_eq!(judged(&ITEMS, &[BASKETS[0], BASKETS[1], (9, 1, 1)], &[4, 9]), (0, 0, 2), "nobody's");
    }
}
