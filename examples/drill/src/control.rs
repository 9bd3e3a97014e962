//! The drill's hand inside a process that is to be killed.
//!
//! Parent and child talk in lines. The parent says `arm <point> <n>`: when the point is passed for the n-th time from then
//! on, the child says `at <point>` and stands still, until it is killed or told to `go`. When the parent is gone the
//! child ends too: nothing may be left running.

use std::{
    io::{self, BufRead, Write},
    process,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use ratified::{Committed, Point};

use super::{
    message::{Command, Event},
    point::KillPoint,
};

/// The exit code of a child whose parent is gone.
const ORPHANED: i32 = 4;

/// What the child does at the points it passes.
#[derive(Debug, Default)]
pub struct Control {
    state: Mutex<State>,
    go: Condvar,
}

#[derive(Debug, Default)]
struct State {
    armed: Option<(String, u32)>,
    is_standing: bool,
}

impl Control {
    /// Obeys the parent at the other end of stdin from now on.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start() -> io::Result<Arc<Self>> {
        let control = Arc::new(Self::default());
        let obeying = control.clone();
        thread::Builder::new().name("drill-control".to_owned()).spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if let Ok(command) = line.parse() {
                    obeying.obey(command);
                }
            }
            process::exit(ORPHANED);
        })?;
        Ok(control)
    }

    /// The runtime passes a point: stands still there if the parent has asked for it.
    pub fn point(&self, point: Point) {
        if let Some(point) = KillPoint::from_point(point) {
            self.pass(point);
        }
    }

    /// The job passes a point of its own.
    pub fn pass(&self, passed: KillPoint) {
        let mut state = self.lock();
        match &mut state.armed {
            Some((point, left)) if *point == passed.word && *left > 1 => *left -= 1,
            Some((point, _)) if *point == passed.word => {
                state.armed = None;
                state.is_standing = true;
                tell(&Event::At(passed.word.to_owned()));
                // Ends: the parent kills, says go, or is gone, and then the process is too.
                while state.is_standing {
                    state = self.go.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
            _ => {}
        }
    }

    /// Tells the parent that the job has reached its end, in one line of the job's own words.
    pub fn done(&self, words: &str) {
        tell(&Event::Done(words.to_owned()));
    }

    /// Tells the parent that a commit of an earlier life was carried out.
    pub(crate) fn replayed(&self, how: Committed) {
        tell(&Event::Replayed(how));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn obey(&self, command: Command) {
        let mut state = self.lock();
        match command {
            Command::Arm(point, nth) => state.armed = Some((point, nth)),
            Command::Go => state.is_standing = false,
        }
        drop(state);
        self.go.notify_all();
    }
}

/// Says a line to the parent. If it cannot hear it any more, the end of stdin ends this process.
pub(crate) fn tell(event: &Event) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}
