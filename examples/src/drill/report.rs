//! The table at the end of a drill.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use super::{
    Drill, Verdict,
    pass::{Home, Replayed},
    plan::{Moment, Order, Victim},
    point::KillPoint,
};
use crate::quakes::Tally;

/// Who died, in the columns of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dead {
    Job,
    Coordinator,
    Both,
    JobWithCoordinator,
}

/// What a drill found.
#[derive(Debug, Clone)]
pub struct DrillReport {
    seed: u64,
    dir: PathBuf,
    expected: Tally,
    passes: u64,
    /// What the passes say they have read and left out, and what is visible of it.
    tally: Tally,
    verdict: Verdict,
    pub(super) uninterrupted: Verdict,
    kills: BTreeMap<(Option<KillPoint>, Dead), u64>,
    pub(super) replayed: Replayed,
    pub(super) took: Duration,
}

impl DrillReport {
    pub(super) fn new(drill: &Drill, expected: Tally) -> Self {
        Self {
            seed: drill.seed,
            dir: drill.dir.clone(),
            expected,
            passes: 0,
            tally: Tally::default(),
            verdict: Verdict::default(),
            uninterrupted: Verdict::default(),
            kills: BTreeMap::new(),
            replayed: Replayed::default(),
            took: Duration::ZERO,
        }
    }

    pub(super) fn struck(&mut self, order: &Order, home: Home) {
        let point = match order.moment {
            Moment::At { point, .. } => Some(point),
            Moment::After(_) => None,
        };
        let dead = match (home, order.victim) {
            (Home::Embedded, _) => Dead::JobWithCoordinator,
            (Home::Own, Victim::Job) => Dead::Job,
            (Home::Own, Victim::Coordinator) => Dead::Coordinator,
            (Home::Own, Victim::Both) => Dead::Both,
        };
        *self.kills.entry((point, dead)).or_default() += 1;
    }

    pub(super) fn passed(&mut self, tally: &Tally, verdict: Verdict) {
        self.passes += 1;
        self.tally.lines += tally.lines;
        self.tally.filtered += tally.filtered;
        self.verdict = self.verdict.plus(verdict);
    }

    /// Rows missing, and rows that are there too often, in all passes.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether every pass, and the run that was not killed, wrote exactly what had to be written, and every line that was
    /// read is accounted for.
    pub fn is_exact(&self) -> bool {
        self.verdict.is_exact() && self.uninterrupted.is_exact() && self.is_balanced()
    }

    /// Whether records in = out + filtered + rejected.
    fn is_balanced(&self) -> bool {
        self.tally.lines == self.verdict.out + self.tally.filtered + self.verdict.rejected
    }

    fn count(&self, is_counted: impl Fn(Option<KillPoint>, Dead) -> bool) -> u64 {
        self.kills.iter().filter(|((point, dead), _)| is_counted(*point, *dead)).map(|(_, count)| count).sum()
    }

    fn write_records(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { lines, kept, filtered, rejected } = self.expected;
        let (verdict, passes) = (&self.verdict, self.passes);
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

    fn write_kills(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const COLUMNS: [(Dead, &str); 4] = [
            (Dead::Job, "job"),
            (Dead::Coordinator, "coord."),
            (Dead::Both, "both"),
            (Dead::JobWithCoordinator, "embedded"),
        ];
        write!(f, "{:<44}", "kills survived")?;
        for (_, name) in COLUMNS {
            write!(f, "{name:>9}")?;
        }
        writeln!(f, "{:>7}", "all")?;
        let points = KillPoint::ALL.into_iter().map(Some).chain([None]);
        for point in points {
            write!(f, "  {:<42}", point.map_or("at a random moment", KillPoint::describe))?;
            for (dead, _) in COLUMNS {
                write!(f, "{:>9}", self.count(|p, d| p == point && d == dead))?;
            }
            writeln!(f, "{:>7}", self.count(|p, _| p == point))?;
        }
        write!(f, "  {:<42}", "all")?;
        for (dead, _) in COLUMNS {
            write!(f, "{:>9}", self.count(|_, d| d == dead))?;
        }
        writeln!(f, "{:>7}", self.count(|_, _| true))
    }
}

impl fmt::Display for DrillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        self.write_records(f)?;
        writeln!(f)?;
        self.write_kills(f)?;
        let Replayed { all, already } = self.replayed;
        writeln!(f)?;
        writeln!(f, "{:<44}{all:>14}", "commits replayed after a restart")?;
        writeln!(f, "{:<44}{already:>14}", "  of them found visible already")?;
        writeln!(f)?;
        let verdict = if self.is_exact() { "exactly once" } else { "NOT exactly once" };
        writeln!(
            f,
            "{verdict}; seed {}, {:.1} s, everything is in {}",
            self.seed,
            self.took.as_secs_f64(),
            self.dir.display()
        )
    }
}
