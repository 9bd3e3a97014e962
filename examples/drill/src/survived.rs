//! The kills that were survived, as a table.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::{
    pass::Home,
    plan::{Moment, Order, Victim},
    point::KillPoint,
};

/// Who died, in the columns of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Dead {
    Job,
    Coordinator,
    Both,
    JobWithCoordinator,
    Server(usize),
}

/// What restarted jobs did for those that were killed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Replayed {
    /// Commits that were carried out for an earlier life.
    pub(crate) all: u64,
    /// How many of them the sink had made visible before.
    pub(crate) already: u64,
    /// Jobs that ended with an error when a server was killed under them.
    pub(crate) gave_up: u64,
}

/// What was killed when, and what it took.
#[derive(Debug, Clone)]
pub struct Survived {
    points: &'static [KillPoint],
    servers: &'static [&'static str],
    kills: BTreeMap<(Option<KillPoint>, Dead), u64>,
    replayed: Replayed,
    /// How often the input was gone through.
    pub passes: u64,
    /// How long all of it took.
    pub took: Duration,
}

impl Survived {
    pub(crate) fn new(points: &'static [KillPoint], servers: &'static [&'static str]) -> Self {
        let (kills, replayed) = (BTreeMap::new(), Replayed::default());
        Self { points, servers, kills, replayed, passes: 0, took: Duration::ZERO }
    }

    pub(crate) fn struck(&mut self, order: &Order, home: Home) {
        let point = match order.moment {
            Moment::At { point, .. } => Some(point),
            Moment::After(_) => None,
        };
        let dead = match (home, order.victim) {
            (_, Victim::Server(server)) => Dead::Server(server),
            (Home::Embedded, _) => Dead::JobWithCoordinator,
            (Home::Own, Victim::Job) => Dead::Job,
            (Home::Own, Victim::Coordinator) => Dead::Coordinator,
            (Home::Own, Victim::Both) => Dead::Both,
        };
        *self.kills.entry((point, dead)).or_default() += 1;
    }

    pub(crate) fn passed(&mut self, replayed: Replayed) {
        self.passes += 1;
        self.replayed.all += replayed.all;
        self.replayed.already += replayed.already;
        self.replayed.gave_up += replayed.gave_up;
    }

    fn count(&self, is_counted: impl Fn(Option<KillPoint>, Dead) -> bool) -> u64 {
        self.kills.iter().filter(|((point, dead), _)| is_counted(*point, *dead)).map(|(_, count)| count).sum()
    }

    fn columns(&self) -> Vec<(Dead, &'static str)> {
        let mut columns = vec![
            (Dead::Job, "job"),
            (Dead::Coordinator, "coord."),
            (Dead::Both, "both"),
            (Dead::JobWithCoordinator, "embedded"),
        ];
        columns.extend(self.servers.iter().enumerate().map(|(index, name)| (Dead::Server(index), *name)));
        columns
    }
}

impl fmt::Display for Survived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.columns();
        write!(f, "{:<44}", "kills survived")?;
        for (_, name) in &columns {
            write!(f, "{name:>width$}", width = width(name))?;
        }
        writeln!(f, "{:>7}", "all")?;
        for point in self.points.iter().copied().map(Some).chain([None]) {
            write!(f, "  {:<42}", point.map_or("at a random moment", |point| point.description))?;
            for (dead, name) in &columns {
                let count = self.count(|p, d| p == point && d == *dead);
                write!(f, "{count:>width$}", width = width(name))?;
            }
            writeln!(f, "{:>7}", self.count(|p, _| p == point))?;
        }
        write!(f, "  {:<42}", "all")?;
        for (dead, name) in &columns {
            write!(f, "{:>width$}", self.count(|_, d| d == *dead), width = width(name))?;
        }
        writeln!(f, "{:>7}", self.count(|_, _| true))?;
        let Replayed { all, already, gave_up } = self.replayed;
        writeln!(f)?;
        writeln!(f, "{:<44}{all:>14}", "commits replayed after a restart")?;
        writeln!(f, "{:<44}{already:>14}", "  of them found visible already")?;
        if !self.servers.is_empty() {
            writeln!(f, "{:<44}{gave_up:>14}", "jobs that a dying server took with it")?;
        }
        Ok(())
    }
}

fn width(name: &str) -> usize {
    name.len().max(7) + 2
}
