//! The table at the end of a drill.

use std::{fmt, path::PathBuf};

use earthquakes::Tally;
use ratified_drill::{Survived, cli::Report};

use crate::Verdict;

/// What a drill found.
#[derive(Debug, Clone)]
pub(crate) struct DrillReport {
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
    pub(crate) expected: Tally,
    /// What the passes say they have read and left out, and what is visible of it.
    pub(crate) tally: Tally,
    pub(crate) verdict: Verdict,
    pub(crate) uninterrupted: Verdict,
    pub(crate) survived: Survived,
}

impl DrillReport {
    /// Whether records in = out + filtered + rejected.
    fn is_balanced(&self) -> bool {
        self.tally.lines == self.verdict.out + self.tally.filtered + self.verdict.rejected
    }

    fn write_records(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { lines, kept, filtered, rejected } = self.expected;
        let (verdict, passes) = (&self.verdict, self.survived.passes);
        writeln!(f, "{:<44}{:>14}{:>14}", "", "one pass", format!("{passes} passes"))?;
        let rows = [
            ("records in", Some(lines), self.tally.lines),
            ("out", Some(kept), verdict.out),
            ("filtered", Some(filtered), self.tally.filtered),
            ("rejected", Some(rejected), verdict.rejected),
            ("lost", None, verdict.lost),
            ("doubled", None, verdict.doubled),
            ("torn or foreign", None, verdict.foreign),
        ];
        for (name, one, all) in rows {
            let one = one.map(|count| count.to_string()).unwrap_or_default();
            writeln!(f, "{name:<44}{one:>14}{all:>14}")?;
        }
        let sum = if self.is_balanced() { "yes" } else { "NO" };
        writeln!(f, "{:<44}{:>28}", "in = out + filtered + rejected", sum)?;
        let equal = passes.saturating_sub(verdict.unequal);
        let equal = format!("{equal} of {passes} passes");
        writeln!(f, "{:<44}{equal:>28}", "equal to an uninterrupted run, byte for byte")
    }
}

impl Report for DrillReport {
    /// Whether every pass, and the run that was not killed, wrote exactly what had to be written, and every line that was
    /// read is accounted for.
    fn is_exact(&self) -> bool {
        self.verdict.is_exact() && self.uninterrupted.is_exact() && self.is_balanced()
    }
}

impl fmt::Display for DrillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.write_records(f)?;
        writeln!(f)?;
        writeln!(f, "{}", self.survived)?;
        let verdict = if self.is_exact() { "exactly once" } else { "NOT exactly once" };
        writeln!(
            f,
            "{verdict}; seed {}, {:.1} s, everything is in {}",
            self.seed,
            self.survived.took.as_secs_f64(),
            self.dir.display()
        )
    }
}
