//! The table at the end of a drill.

use std::{fmt, path::PathBuf};

use orders::{AMOUNT_NAMES, Cents};
use ratified_drill::{Survived, cli::Report};

use crate::{expected::Expected, verdict::Verdict};

/// What a drill found.
#[derive(Debug, Clone)]
pub(crate) struct OrdersReport {
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
    pub(crate) servers: Vec<String>,
    pub(crate) expected: Expected,
    /// Rows that the passes say they have read.
    pub(crate) rows: u64,
    pub(crate) verdict: Verdict,
    pub(crate) survived: Survived,
}

impl Report for OrdersReport {
    /// Whether every pass left exactly what it had to, in both places, by row, by basket and by cent.
    fn is_exact(&self) -> bool {
        let Self { expected, rows, verdict, .. } = self;
        let passes = self.survived.passes;
        let of_all = |one: u64| one.checked_mul(passes);
        let items = of_all(expected.lines.len() as u64).and_then(|items| i64::try_from(items).ok());
        let cents = |cents: i64| i64::try_from(passes).ok().and_then(|passes| cents.checked_mul(passes));
        let sums = expected.all.cents.map(cents);
        let is_nothing_amiss = verdict.lost == 0 && verdict.doubled == 0 && verdict.wrong == 0;
        is_nothing_amiss
            && of_all(expected.rows) == Some(*rows)
            && of_all(expected.baskets.len() as u64) == Some(verdict.baskets)
            && of_all(expected.rejects.len() as u64) == Some(verdict.rejects)
            && [verdict.tables, verdict.store]
                .iter()
                .all(|found| items == Some(found.items) && found.cents.map(Some) == sums)
    }
}

impl OrdersReport {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (expected, verdict, passes) = (&self.expected, &self.verdict, self.survived.passes);
        let times = |one: u64| one.saturating_mul(passes).to_string();
        let header = format!("in {passes} passes");
        writeln!(f, "{:<26}{:>14}{header:>16}{:>16}{:>16}", "", "one pass", "PostgreSQL", "store")?;
        let all = expected.all;
        let items = u64::try_from(all.items).unwrap_or(0);
        let count = |count: u64| count.to_string();
        let (tables, store) = (verdict.tables, verdict.store);
        let mut lines = vec![
            ("rows in", count(expected.rows), count(self.rows), String::new(), String::new()),
            (
                "baskets",
                count(expected.baskets.len() as u64),
                times(expected.baskets.len() as u64),
                count(verdict.baskets),
                String::new(),
            ),
            ("items", count(items), times(items), tables.items.to_string(), store.items.to_string()),
            (
                "refused rows",
                count(expected.rejects.len() as u64),
                times(expected.rejects.len() as u64),
                count(verdict.rejects),
                String::new(),
            ),
        ];
        let sums = all.cents.into_iter().zip(tables.cents.into_iter().zip(store.cents));
        for (name, (one, (tables, store))) in AMOUNT_NAMES.into_iter().zip(sums) {
            let all = one.saturating_mul(i64::try_from(passes).unwrap_or(i64::MAX));
            let [one, all, tables, store] = [one, all, tables, store].map(|cents| Cents::new(cents).to_string());
            lines.push((name, one, all, tables, store));
        }
        for (name, one, all, tables, store) in lines {
            writeln!(f, "{name:<26}{one:>14}{all:>16}{tables:>16}{store:>16}")?;
        }
        for (name, value) in [("lost", verdict.lost), ("doubled", verdict.doubled), ("wrong", verdict.wrong)] {
            writeln!(f, "{name:<26}{:>14}{value:>16}", "")?;
        }
        Ok(())
    }
}

impl fmt::Display for OrdersReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.write_rows(f)?;
        writeln!(f)?;
        writeln!(f, "{}", self.survived)?;
        writeln!(f, "servers: {}", self.servers.join(", "))?;
        let seconds = self.survived.took.as_secs_f64();
        let rate = self.rows as f64 / seconds.max(0.001);
        let verdict = if self.is_exact() { "exactly once, to the cent" } else { "NOT exactly once" };
        writeln!(
            f,
            "{verdict}; seed {}, {seconds:.1} s, {rate:.0} rows/s with all the kills, everything but the tables is in {}",
            self.seed,
            self.dir.display()
        )
    }
}
