//! When which sweep runs.

use std::collections::BTreeSet;

use ratified_core::{Sweep, Uptime};

use crate::config::Periods;

/// The timetable of the sweeps. A sweep that stopped at its bound goes on in the next turn, after the requests that
/// came meanwhile.
#[derive(Debug)]
pub struct Sweeps {
    periods: Periods,
    next: [(Sweep, Uptime); Sweep::ALL.len()],
    again: BTreeSet<Sweep>,
}

impl Sweeps {
    /// A timetable that begins now: every sweep runs first after one period.
    pub fn new(periods: Periods, now: Uptime) -> Self {
        let next = Sweep::ALL.map(|sweep| (sweep, now.plus_millis(period_ms(&periods, sweep))));
        Self { periods, next, again: BTreeSet::new() }
    }

    /// The sweeps to run in this turn, and puts them off by their period. `now` is the arrival of the oldest request
    /// in the queue: a request that came before a deadline is not overtaken by the sweep that waited with it.
    pub fn take_due(&mut self, now: Uptime, next_deadline: Option<Uptime>) -> BTreeSet<Sweep> {
        let mut due = std::mem::take(&mut self.again);
        for (sweep, at) in &mut self.next {
            let deadline_passed = *sweep == Sweep::Timeouts && next_deadline.is_some_and(|d| d <= now);
            if *at <= now || deadline_passed {
                *at = now.plus_millis(period_ms(&self.periods, *sweep));
                due.insert(*sweep);
            }
        }
        due
    }

    /// This sweep has to go on in the next turn.
    pub fn again(&mut self, sweep: Sweep) {
        self.again.insert(sweep);
    }

    /// When the next turn is due even if nobody asks.
    pub fn wake_at(&self, next_deadline: Option<Uptime>) -> Uptime {
        if !self.again.is_empty() {
            return Uptime::default();
        }
        let at = self.next.iter().map(|(_, at)| *at).chain(next_deadline).min();
        at.unwrap_or_default()
    }
}

fn period_ms(periods: &Periods, sweep: Sweep) -> u64 {
    match sweep {
        // Those that were not done when the coordinator ended; the others ask to go on.
        Sweep::Timeouts | Sweep::Calls => periods.timeouts_ms,
        Sweep::Expiry => periods.expiry_ms,
        // Rewriting follows what is written, and is not in the timetable.
        Sweep::Gc | Sweep::IdleClients | Sweep::Rewrite => periods.gc_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIODS: Periods = Periods { timeouts_ms: 60, expiry_ms: 300, gc_ms: 300 };

    fn at(millis: u64) -> Uptime {
        Uptime::from_millis(millis)
    }

    #[test]
    fn sweeps_run_each_period_and_at_the_next_deadline() {
        let mut sweeps = Sweeps::new(PERIODS, at(1000));
        assert_eq!(sweeps.wake_at(None), at(1060));
        assert_eq!(sweeps.wake_at(Some(at(1007))), at(1007));
        assert_eq!(sweeps.take_due(at(1006), Some(at(1007))), BTreeSet::new());
        assert_eq!(sweeps.take_due(at(1007), Some(at(1007))), BTreeSet::from([Sweep::Timeouts]));
        assert_eq!(sweeps.wake_at(None), at(1060));
        assert_eq!(sweeps.take_due(at(1300), None), BTreeSet::from(Sweep::ALL));
        assert_eq!(sweeps.take_due(at(1300), None), BTreeSet::new());
    }

    #[test]
    fn a_sweep_that_stopped_at_its_bound_goes_on_in_the_next_turn() {
        let mut sweeps = Sweeps::new(PERIODS, at(0));
        sweeps.again(Sweep::Gc);
        assert_eq!(sweeps.wake_at(None), at(0));
        assert_eq!(sweeps.take_due(at(0), None), BTreeSet::from([Sweep::Gc]));
        assert_eq!(sweeps.take_due(at(0), None), BTreeSet::new());
    }
}
