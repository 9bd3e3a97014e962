//! The newest transactions among any number of them.

use std::collections::BTreeSet;

use ratified_protocol::TxnId;

use crate::sink::MAX_VISIBLE;

/// Keeps the newest [`MAX_VISIBLE`] of the transactions it is given, each once, in as little memory as that takes.
#[derive(Debug, Default)]
pub struct Newest(BTreeSet<TxnId>);

impl Newest {
    /// In ascending order.
    pub fn into_ids(self) -> Vec<TxnId> {
        self.0.into_iter().collect()
    }
}

impl Extend<TxnId> for Newest {
    fn extend<T: IntoIterator<Item = TxnId>>(&mut self, ids: T) {
        for id in ids {
            self.0.insert(id);
            if self.0.len() > MAX_VISIBLE {
                self.0.pop_first();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_up_to_the_bound() {
        let id = |number: usize| format!("0190f2c4-7a61-7c3e-9d0a-{number:012x}").parse::<TxnId>().unwrap();
        let mut newest = Newest::default();
        newest.extend((0..=MAX_VISIBLE).rev().map(id));
        newest.extend([id(MAX_VISIBLE), id(0)]);
        assert_eq!(newest.into_ids(), (1..=MAX_VISIBLE).map(id).collect::<Vec<_>>());
    }
}
