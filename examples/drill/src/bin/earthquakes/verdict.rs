//! What was lost, what was doubled: rows compared as a whole, then byte for byte.

use std::collections::HashMap;

use earthquakes::Written;

/// How the output of a drill differs from what it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Verdict {
    /// Rows of the result that are there.
    pub(crate) out: u64,
    /// Refused lines that are there.
    pub(crate) rejected: u64,
    /// Rows, of either kind, that are missing.
    pub(crate) lost: u64,
    /// Rows, of either kind, that are there once too often, each time counted.
    pub(crate) doubled: u64,
    /// Rows that nobody wrote: torn ones, or ones of another run.
    pub(crate) foreign: u64,
    /// Outputs that are not the expected one byte for byte.
    pub(crate) unequal: u64,
}

impl Verdict {
    /// Compares what was written with what had to be.
    pub(crate) fn of(written: &Written, expected: &Written) -> Self {
        let mut verdict = Self {
            out: rows(&written.events).count() as u64,
            rejected: rows(&written.rejects).count() as u64,
            unequal: u64::from(written != expected),
            ..Self::default()
        };
        verdict.compare(&written.events, &expected.events);
        verdict.compare(&written.rejects, &expected.rejects);
        verdict
    }

    fn compare(&mut self, written: &[u8], expected: &[u8]) {
        let mut missing: HashMap<&[u8], i64> = HashMap::new();
        for row in rows(expected) {
            *missing.entry(row).or_default() += 1;
        }
        for row in rows(written) {
            match missing.get_mut(row) {
                Some(left) => *left -= 1,
                None => self.foreign += 1,
            }
        }
        for left in missing.into_values() {
            self.lost += u64::try_from(left).unwrap_or(0);
            self.doubled += u64::try_from(-left).unwrap_or(0);
        }
    }

    /// Both together.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            out: self.out + other.out,
            rejected: self.rejected + other.rejected,
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            foreign: self.foreign + other.foreign,
            unequal: self.unequal + other.unequal,
        }
    }

    /// Whether every row is there exactly once, in order.
    pub(crate) fn is_exact(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.foreign == 0 && self.unequal == 0
    }
}

fn rows(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(events: &str, rejects: &str) -> Written {
        Written { events: events.into(), rejects: rejects.into() }
    }

    #[test]
    fn the_same_bytes_are_exact() {
        let verdict = Verdict::of(&written("a\nb\n", "r\n"), &written("a\nb\n", "r\n"));
        assert_eq!(verdict, Verdict { out: 2, rejected: 1, ..Verdict::default() });
        assert!(verdict.is_exact());
    }

    #[test]
    fn lost_doubled_torn_and_misplaced_rows_are_told_apart() {
        let expected = written("a\nb\nc\n", "r\n");
        let of = |events, rejects| Verdict::of(&written(events, rejects), &expected);
        assert_eq!(of("a\nc\n", "r\n"), Verdict { out: 2, rejected: 1, lost: 1, unequal: 1, ..Verdict::default() });
        assert_eq!(
            of("a\nb\nc\nb\nb\n", "r\n"),
            Verdict { out: 5, rejected: 1, doubled: 2, unequal: 1, ..Verdict::default() }
        );
        let torn = Verdict { out: 3, rejected: 1, lost: 1, foreign: 1, unequal: 1, ..Verdict::default() };
        assert_eq!(of("a\nb\nc", "r\n"), torn);
        assert_eq!(of("b\na\nc\n", "r\n"), Verdict { out: 3, rejected: 1, unequal: 1, ..Verdict::default() });
        assert_eq!(of("a\nb\nc\n", ""), Verdict { out: 3, lost: 1, unequal: 1, ..Verdict::default() });
        assert!(!of("b\na\nc\n", "r\n").is_exact());
    }
}
