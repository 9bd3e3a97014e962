//! The table at the end of a drill.

use std::{fmt, path::PathBuf};

use ratified_drill::{Survived, cli::Report};

/// What a drill found.
#[derive(Debug, Clone)]
pub(crate) struct FlowReport {
    pub(crate) seed: u64,
    pub(crate) dir: PathBuf,
    /// Epochs of one pass.
    pub(crate) epochs: u64,
    /// Rows that one pass must leave.
    pub(crate) expected: u64,
    /// Rows that are visible, in all passes.
    pub(crate) rows: u64,
    /// Passes whose rows are, byte for byte, those of a computation without sink and workers.
    pub(crate) equal: u64,
    pub(crate) survived: Survived,
}

impl Report for FlowReport {
    fn is_exact(&self) -> bool {
        self.equal == self.survived.passes
    }
}

impl fmt::Display for FlowReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passes = self.survived.passes;
        writeln!(f)?;
        writeln!(f, "{:<44}{:>14}{:>14}", "", "one pass", format!("{passes} passes"))?;
        writeln!(f, "{:<44}{:>14}{:>14}", "epochs", self.epochs, self.epochs * passes)?;
        writeln!(f, "{:<44}{:>14}{:>14}", "rows", self.expected, self.rows)?;
        let equal = format!("{} of {passes} passes", self.equal);
        writeln!(f, "{:<44}{equal:>28}", "equal to what is computed without a sink")?;
        writeln!(f)?;
        writeln!(f, "{}", self.survived)?;
        let verdict = if self.is_exact() { "exactly once" } else { "NOT exactly once" };
        let seconds = self.survived.took.as_secs_f64();
        writeln!(f, "{verdict}; seed {}, {seconds:.1} s, everything is in {}", self.seed, self.dir.display())
    }
}
