//! How far the drill is: a bar on a terminal, plain lines elsewhere.

use std::{
    cell::Cell,
    io::{IsTerminal, stderr},
};

use indicatif::{ProgressBar, ProgressStyle};

use super::pass::Home;

/// Shows the kills as they are survived.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    kills: usize,
    done: Cell<usize>,
}

impl Progress {
    pub(crate) fn new(kills: usize) -> Self {
        let bar = stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(kills as u64);
            match ProgressStyle::with_template("{bar:40} {pos} of {len} kills survived, {elapsed}, {msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { bar, kills, done: Cell::new(0) }
    }

    pub(crate) fn pass(&self, number: usize, home: Home) {
        let home = match home {
            Home::Own => "coordinator as its own process",
            Home::Embedded => "coordinator inside the job",
        };
        match &self.bar {
            Some(bar) => bar.set_message(format!("pass {number}: {home}")),
            None => eprintln!("pass {number}: {home}"),
        }
    }

    pub(crate) fn struck(&self) {
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

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
