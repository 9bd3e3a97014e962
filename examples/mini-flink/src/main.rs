//! Engine mode without an engine: what a real one does to its sinks, scene by scene, and what becomes of the records.

mod engine;

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use ratified::{BarrierKind, CoordinatorClient, RuntimeError};
use ratified_coordinator::{Config, Coordinator};
use tracing_subscriber::filter::LevelFilter;

use self::engine::{Checkpoint, Engine, EngineError, Start, unexpected};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_max_level(LevelFilter::ERROR).with_writer(io::stderr).init();
    match play().await {
        Ok(()) => {
            scene("All scenes went as they had to: nothing lost, nothing doubled but what was asked for.");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("\nNOT as it had to be: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn play() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let coordinator = Coordinator::start(Config::local(dir.path().join("coordinator"))).await?;
    let client = CoordinatorClient::new(&coordinator.base_url())?;
    let output = dir.path().join("output");
    let mut engine = Engine::new(client, output, "numbers".parse()?, "counting.sink".parse()?);

    first_checkpoint(&mut engine).await?;
    lost_notification(&mut engine).await?;
    declined_checkpoint(&mut engine).await?;
    savepoint(&mut engine).await?;
    let older = rescale_up(&mut engine).await?;
    rescale_down(&mut engine).await?;
    rewind(&mut engine, &older).await?;

    engine.stop().await?;
    coordinator.shutdown().await?;
    Ok(())
}

async fn first_checkpoint(engine: &mut Engine) -> Result<(), EngineError> {
    scene("Two workers, one checkpoint");
    engine.start(Start::First, 2, None, |_| 0).await?;
    engine.read(10).await?;
    let first = engine.barrier(BarrierKind::Checkpoint).await?;
    say("the barrier passed, both workers prepared; the checkpoint is not complete yet");
    visible_up_to(engine, 0)?;
    engine.completed(&first).await?;
    say("checkpoint 1 is complete, the workers were told");
    visible_up_to(engine, 10)
}

async fn lost_notification(engine: &mut Engine) -> Result<(), EngineError> {
    scene("A notification is lost");
    engine.read(10).await?;
    engine.barrier(BarrierKind::Checkpoint).await?;
    say("checkpoint 2 is complete, and nobody was told");
    visible_up_to(engine, 10)?;
    engine.read(10).await?;
    let third = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.completed(&third).await?;
    say("the notification of checkpoint 3 commits both, oldest first");
    visible_up_to(engine, 30)?;
    engine.completed(&third).await?;
    say("told again, it changes nothing");
    visible_up_to(engine, 30)
}

async fn declined_checkpoint(engine: &mut Engine) -> Result<(), EngineError> {
    scene("A checkpoint is declined by somebody else");
    engine.read(10).await?;
    let fourth = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.declined(&fourth).await?;
    say("checkpoint 4 is given up; what the workers prepared for it is neither shown nor removed");
    visible_up_to(engine, 30)?;
    engine.read(10).await?;
    let fifth = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.completed(&fifth).await?;
    say("checkpoint 5 covers it");
    visible_up_to(engine, 50)
}

async fn savepoint(engine: &mut Engine) -> Result<(), EngineError> {
    scene("A savepoint");
    engine.read(10).await?;
    engine.barrier(BarrierKind::Savepoint).await?;
    say("engines do not notify of plain savepoints");
    visible_up_to(engine, 50)?;
    engine.read(10).await?;
    let seventh = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.completed(&seventh).await?;
    say("the next checkpoint commits two intervals at once");
    visible_up_to(engine, 70)
}

async fn rescale_up(engine: &mut Engine) -> Result<Checkpoint, EngineError> {
    scene("Crash after checkpoint 8, then 2 -> 3 workers");
    engine.read(10).await?;
    let eighth = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.read(10).await?;
    engine.barrier(BarrierKind::Checkpoint).await?;
    engine.read(3).await?;
    say("8 is complete, 9 prepared but not complete, 3 numbers are behind it; all workers die");
    engine.crash();
    visible_up_to(engine, 70)?;
    // The worker that opens first gets nothing: what it does not know of must not be hurt by it.
    engine.start(Start::Again, 3, Some(&eighth), |_| 2).await?;
    let left_alone = engine.workers().first().map_or(0, |worker| worker.report().left_alone.len());
    say(&format!("worker 0 opened first, with an empty list; prepared transactions that it left alone: {left_alone}"));
    if left_alone == 0 {
        return Err(unexpected("worker 0 should have met prepared transactions that others must commit"));
    }
    say("worker 2 was dealt all of checkpoint 8 and committed it; what was prepared for 9 is aborted and read again");
    visible_up_to(engine, 80)?;
    engine.read(20).await?;
    let tenth = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.completed(&tenth).await?;
    visible_up_to(engine, 100)?;
    Ok(eighth)
}

async fn rescale_down(engine: &mut Engine) -> Result<(), EngineError> {
    scene("Crash after checkpoint 11, then 3 -> 1 worker");
    engine.read(10).await?;
    let eleventh = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.read(5).await?;
    engine.crash();
    visible_up_to(engine, 100)?;
    engine.start(Start::Again, 1, Some(&eleventh), |_| 0).await?;
    let clients = engine.workers().first().map(|worker| worker.report().clients.clone()).unwrap_or_default();
    let names: Vec<_> = clients.iter().map(ToString::to_string).collect();
    say(&format!("the one worker took over {}", names.join(", ")));
    if names.len() != 3 {
        return Err(unexpected("the one worker should have taken over three clients"));
    }
    visible_up_to(engine, 110)?;
    engine.read(10).await?;
    let twelfth = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.completed(&twelfth).await?;
    visible_up_to(engine, 120)
}

async fn rewind(engine: &mut Engine, older: &Checkpoint) -> Result<(), EngineError> {
    scene("Checkpoint 8 is restored, although 12 is committed");
    match engine.start(Start::Again, 1, Some(older), |_| 0).await {
        Err(EngineError::Runtime(error @ RuntimeError::Rewound { .. })) => say(&format!("refused: {error}")),
        Err(error) => return Err(error),
        Ok(()) => return Err(unexpected("a rewind was not refused")),
    }
    visible_up_to(engine, 120)?;
    engine.start(Start::Rewound, 1, Some(older), |_| 0).await?;
    say("accepted by policy: the source reads again from 81, into the same sink");
    engine.read(40).await?;
    let thirteenth = engine.barrier(BarrierKind::Checkpoint).await?;
    engine.completed(&thirteenth).await?;
    let expected = (1..=120).map(|number| (number, if number > older.position { 2 } else { 1 })).collect();
    if engine.visible()? != expected {
        return Err(unexpected("81..=120 should be visible twice, and everything before once"));
    }
    say("visible: 1..=80 once, 81..=120 twice, as was asked for");
    Ok(())
}

fn visible_up_to(engine: &Engine, last: u64) -> Result<(), EngineError> {
    let visible = engine.visible()?;
    let lost: Vec<_> = (1..=last).filter(|number| !visible.contains_key(number)).collect();
    let doubled: Vec<_> = visible.iter().filter(|(_, count)| **count > 1).map(|(number, _)| number).collect();
    let early: Vec<_> = visible.keys().filter(|number| **number > last).collect();
    if lost.is_empty() && doubled.is_empty() && early.is_empty() {
        let range = if last == 0 { "nothing".to_owned() } else { format!("1..={last}, each once") };
        say(&format!("visible: {range}"));
        return Ok(());
    }
    Err(unexpected(format!("lost {lost:?}, doubled {doubled:?}, visible too early {early:?}")))
}

fn scene(title: &str) {
    let _ = writeln!(io::stdout(), "\n{title}");
}

/// A reader that has seen enough, as `head` has, is no reason to fail.
fn say(what: &str) {
    let _ = writeln!(io::stdout(), "  {what}");
}
