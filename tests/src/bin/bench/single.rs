//! One call per step: begin, prepare and commit by many callers at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ratified::CoordinatorClient;
use ratified_tests::process::Ratifyd;

use super::{Opened, client, cpu::Cpu, echo::Echo, median};

pub(crate) const CALLERS: u64 = 64;

/// Decisions per second of the coordinator and of the echo, one after the other in every round.
pub(crate) async fn measure(ratifyd: &Ratifyd, round: Duration, rounds: u64) {
    let echo = Echo::start();
    let coordinator = callers(&client(&ratifyd.url(), false), "bench").await;
    let echoing = callers(&client(&echo.url().await, false), "bench").await;
    decide_for(&coordinator, round / 5).await;
    decide_for(&echoing, round / 5).await;
    let (mut durable, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (ours, theirs) = (Cpu::of(ratifyd.pid()), Cpu::of(echo.pid()));
    let (mut our_cost, mut their_cost) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let before = (ours.used(), theirs.used());
        let (our_rate, their_rate) = (decide_for(&coordinator, round).await, decide_for(&echoing, round).await);
        our_cost.push((ours.used() - before.0) / (our_rate * round.as_secs_f64()));
        their_cost.push((theirs.used() - before.1) / (their_rate * round.as_secs_f64()));
        durable.push(our_rate);
        bare.push(their_rate);
        ratios.push(our_rate / their_rate);
    }
    println!("single calls, {CALLERS} callers, begin + prepare + commit, {rounds} rounds of {round:?}, medians:");
    let (our_cost, their_cost) = (median(our_cost) * 1e6, median(their_cost) * 1e6);
    println!("  coordinator, durable   {:>9.0} decisions/s {our_cost:>6.0} us of CPU each", median(durable));
    println!("  bare axum echo         {:>9.0} decisions/s {their_cost:>6.0} us of CPU each", median(bare));
    println!("  ratio                  {:>9.3}", median(ratios));
}

/// Callers that share a client, each with a name of its own.
pub(crate) async fn callers(client: &CoordinatorClient, prefix: &str) -> Vec<Arc<Opened>> {
    let mut callers = Vec::new();
    for at in 0..CALLERS {
        callers.push(Arc::new(Opened::new(client, format!("{prefix}.{at}")).await));
    }
    callers
}

/// Decisions per second of all callers, each one after the other, for this long.
pub(crate) async fn decide_for(callers: &[Arc<Opened>], time: Duration) -> f64 {
    let began = Instant::now();
    let tasks: Vec<_> = callers
        .iter()
        .cloned()
        .map(|caller| {
            tokio::spawn(async move {
                let mut decisions = 0_u32;
                while began.elapsed() < time {
                    caller.decide().await;
                    decisions += 1;
                }
                decisions
            })
        })
        .collect();
    let mut decisions = 0;
    for task in tasks {
        decisions += task.await.expect("a caller ends");
    }
    f64::from(decisions) / began.elapsed().as_secs_f64()
}
