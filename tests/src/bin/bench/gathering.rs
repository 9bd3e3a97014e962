//! Callers of one process that share requests, next to the same with a request for each call.

use std::time::{Duration, Instant};

use ratified::protocol::BeginRequest;
use ratified_tests::process::Ratifyd;

use super::{
    Opened, client, median, new_id,
    single::{CALLERS, callers, decide_for},
};

const SAMPLES: usize = 400;

/// Decisions per second with and without, one after the other in every round, and how long a lone caller waits.
pub(crate) async fn measure(ratifyd: &Ratifyd, round: Duration, rounds: u64) {
    let shared = callers(&client(&ratifyd.url(), true), "gathered").await;
    let apart = callers(&client(&ratifyd.url(), false), "apart").await;
    decide_for(&shared, round / 5).await;
    decide_for(&apart, round / 5).await;
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (ours, theirs) = (decide_for(&shared, round).await, decide_for(&apart, round).await);
        with.push(ours);
        without.push(theirs);
        ratios.push(ours / theirs);
    }
    println!("calls that share requests, {CALLERS} callers of one process, {rounds} rounds of {round:?}, medians:");
    println!("  shared                 {:>9.0} decisions/s", median(with));
    println!("  a request for each     {:>9.0} decisions/s", median(without));
    println!("  ratio                  {:>9.2}", median(ratios));
    let mut lone = [Vec::new(), Vec::new()];
    for _ in 0..SAMPLES {
        for (caller, waits) in [&shared[0], &apart[0]].into_iter().zip(&mut lone) {
            waits.push(commit_alone(caller).await);
        }
    }
    let [with, without] = lone.map(median);
    println!("  a lone caller's commit, {SAMPLES} samples of each, medians: ratio {:>6.3}", with / without);
}

async fn commit_alone(caller: &Opened) -> f64 {
    let id = new_id();
    caller.begin(id, BeginRequest::default()).await;
    caller.prepare(id).await;
    let began = Instant::now();
    caller.commit(id).await;
    began.elapsed().as_secs_f64()
}
