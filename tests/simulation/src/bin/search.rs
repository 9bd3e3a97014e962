//! Searches every order of everything, and says how large that was.

use std::{process::ExitCode, time::Instant};

use ratified_simulation::exhaustive::Space;
use stateright::{Checker, Model};

fn main() -> ExitCode {
    let numbers: Vec<u8> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    let mut failed = false;
    for (name, mut space) in [("prepared", Space::prepared()), ("two", Space::two())] {
        if let [queue, crashes, ticks, evictions] = numbers[..] {
            (space.queue, space.crashes, space.ticks, space.evictions) = (queue, crashes, ticks, evictions);
        }
        let began = Instant::now();
        let checker = space.checker().threads(2).spawn_bfs().join();
        println!("{name}: {} states, {:.1} s", checker.unique_state_count(), began.elapsed().as_secs_f64());
        for (property, path) in checker.discoveries() {
            let last = path.last_state();
            println!("  {property}: {:?}", last.wrong);
            if last.wrong.is_some() {
                failed = true;
                path.into_actions().iter().for_each(|action| println!("    {action:?}"));
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
