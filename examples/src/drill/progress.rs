//! How far the drill is: a bar on a terminal, plain lines elsewhere.

use std::cell::Cell;

use indicatif::ProgressBar;

use super::pass::Home;
use crate::progress::terminal_bar;

/// Shows the kills as they are survived.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    kills: usize,
    done: Cell<usize>,
}

impl Progress {
    pub(super) fn new(kills: usize) -> Self {
        let bar = terminal_bar(kills as u64, "{bar:40} {pos} of {len} kills survived, {elapsed}, {msg}");
        Self { bar, kills, done: Cell::new(0) }
    }

    pub(super) fn pass(&self, number: usize, home: Home) {
        let home = match home {
            Home::Own => "coordinator as its own process",
            Home::Embedded => "coordinator inside the job",
        };
        match &self.bar {
            Some(bar) => bar.set_message(format!("pass {number}: {home}")),
            None => eprintln!("pass {number}: {home}"),
        }
    }

    pub(super) fn struck(&self) {
        self.done.set(self.done.get() + 1);
        match &self.bar {
            Some(bar) => bar.inc(1),
            // About ten lines in all.
            None if self.done.get().is_multiple_of(self.kills.div_ceil(10).max(1)) => {
                eprintln!("{} of {} kills survived", self.done.get(), self.kills);
            }
            None => {}
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
