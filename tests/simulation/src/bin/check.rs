//! Searches every order of everything, and says how large that was.

use std::{process::ExitCode, time::Instant};

use ratified_simulation::model_checking::Space;

fn main() -> ExitCode {
    let numbers: Vec<u8> = std::env::args().skip(1).filter_map(|n| n.parse().ok()).collect();
    let mut holds = true;
    for (name, mut space) in [("prepared", Space::prepared()), ("two", Space::two())] {
        if let [queue, crashes, ticks, evictions] = numbers[..] {
            (space.queue, space.crashes, space.ticks, space.evictions) = (queue, crashes, ticks, evictions);
        }
        let began = Instant::now();
        let found = space.search(2);
        println!("{name}: {} states, {:.1} s, {found:?}", found.states, began.elapsed().as_secs_f64());
        holds &= found.broken.is_none() && found.unreached.is_empty();
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
