//! One seed from beginning to end, and many of them.

use std::{collections::BTreeMap, time::Duration};

use ratified::Outcome;
use turmoil::{Builder, Sim};

use crate::{
    chaos::{Chaos, unfinished},
    coordinator, engine_job,
    entropy::{Dice, align_task_ids, seed_thread},
    ledger,
    mistake::Mistake,
    participant, split_job,
    world::{COORDINATOR, OTHERS, RECORDS, Shared, World},
};

/// Length of a step, in simulated milliseconds.
const TICK_MS: u64 = 5;
/// How long everything has to converge after the healing, in simulated milliseconds.
const CONVERGENCE_MS: u64 = 60_000;

/// What came of a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcomes {
    /// What must not have happened.
    pub violation: Option<String>,
    /// The hash of the trace.
    pub hash: u64,
    /// How many lines it has.
    pub lines: u64,
    /// What happened how often.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs one seed, on a thread of its own: std and `rand` keep randomness for each thread.
pub fn run(seed: u64, mistake: Mistake, verbose: bool) -> Outcomes {
    let thread = std::thread::Builder::new().name(format!("seed {seed}"));
    let running = thread.spawn(move || {
        seed_thread(seed);
        align_task_ids();
        run_here(seed, mistake, verbose)
    });
    match running.expect("a thread").join() {
        Ok(outcomes) => outcomes,
        Err(panic) => {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|what| (*what).to_owned()));
            let violation = Some(format!("panic: {}", what.unwrap_or_default()));
            Outcomes { violation, hash: 0, lines: 0, counts: BTreeMap::new() }
        }
    }
}

fn run_here(seed: u64, mistake: Mistake, verbose: bool) -> Outcomes {
    let mut dice = Dice::new(seed);
    let world = Shared::new(Dice::new(dice.draw()), mistake, verbose);
    let mut sim = Builder::new()
        .rng_seed(dice.draw())
        .tick_duration(Duration::from_millis(TICK_MS))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(dice.pick(&[10, 30, 80])))
        .tcp_capacity(4096)
        .enable_random_order()
        .simulation_duration(Duration::from_secs(600))
        .build();
    populate(&mut sim, &world);
    let mut chaos = Chaos::new(world.clone(), dice);
    let end_ms = chaos.heal_at_ms() + CONVERGENCE_MS;
    loop {
        world.set_now_ms(sim.elapsed().as_millis() as u64);
        chaos.step(&mut sim);
        if let Err(error) = sim.step() {
            world.violate(format!("a host failed: {error}"));
        }
        let now = world.now_ms();
        let is_over = now >= end_ms || (world.is_healed() && now.is_multiple_of(100) && has_converged(&world));
        if world.violation().is_some() || is_over {
            break;
        }
    }
    if world.violation().is_none() {
        check_finale(&world);
    }
    drop(sim);
    let (hash, lines) = world.trace();
    let mut counts = world.counts();
    counts.insert("simulated seconds", world.now_ms() / 1000);
    Outcomes { violation: world.violation(), hash, lines, counts }
}

fn populate(sim: &mut Sim<'_>, world: &World) {
    let shared = world.clone();
    sim.host(COORDINATOR, move || {
        let world = shared.clone();
        async move {
            coordinator::run(world).await;
            Ok(())
        }
    });
    for host in OTHERS {
        let shared = world.clone();
        sim.host(host, move || {
            let world = shared.clone();
            async move {
                match host {
                    "split-a" | "split-b" => split_job::run(world, host).await,
                    "engine-a" | "engine-b" => engine_job::run(world, host).await,
                    "ledger" => ledger::run(world, host).await,
                    _ => participant::run(world, host).await,
                }
                Ok(())
            }
        });
    }
}

fn has_converged(world: &World) -> bool {
    world.split().is_done && world.engine().is_done && world.ledger().is_done && unfinished(world).is_empty()
}

/// Everything read is visible once, everything begun is ended, and every participant did what everybody was told.
fn check_finale(world: &World) {
    let all: Vec<_> = (0..RECORDS).collect();
    for job in [split_job::JOB, engine_job::JOB] {
        let visible = world.sink().visible(job);
        if visible != all {
            world.violate(format!("of {job} are visible {visible:?}"));
        }
    }
    if !has_converged(world) {
        let jobs = (world.split().is_done, world.engine().is_done, world.ledger().is_done);
        world.violate(format!(
            "it does not come to rest; split, engine and ledger done: {jobs:?}, live: {:?}",
            unfinished(world)
        ));
    }
    let told: BTreeMap<_, _> = ledger::outcomes(world).into_iter().collect();
    let applied = world.answers().applied.clone();
    for ((host, (_, id)), outcome) in &applied {
        if told.get(id).copied().flatten().is_some_and(|told| told != *outcome) {
            world.violate(format!("{host} has applied {outcome} of {id}, which was told otherwise"));
        }
    }
    // The first participant is in every transaction.
    for (id, outcome) in told.iter().filter_map(|(id, outcome)| Some((id, (*outcome)?))) {
        let has_applied = applied.iter().any(|((host, (_, of)), what)| *host == "p-0" && of == id && *what == outcome);
        if !has_applied && outcome == Outcome::Committed {
            world.violate(format!("p-0 has never applied {outcome} of {id}"));
        }
    }
}
