//! The dataflow as a process of a drill: its sinks are decorated from outside, it knows nothing of it.

use std::{error::Error, path::PathBuf};

use clap::Args;
use ratified::{EngineSinkBuilder, pending::FileStore};
use ratified_drill::{Control, DrilledSink, NearCoordinator, cli};
use timely_sink::{Flow, sink};

/// How the dataflow is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobArgs {
    /// The catalogue.
    #[arg(long)]
    input: PathBuf,
    /// Where output and checkpoints are.
    #[arg(long)]
    dir: PathBuf,
    /// How often the catalogue is read.
    #[arg(long)]
    passes: u64,
    /// How many events make an epoch.
    #[arg(long)]
    epoch_events: usize,
    /// How many workers there are.
    #[arg(long)]
    workers: u32,
    #[command(flatten)]
    common: cli::CommonArgs,
}

impl JobArgs {
    pub(crate) async fn run(self) -> Result<(), Box<dyn Error>> {
        let control = Control::start()?;
        let Self { input, dir, passes, epoch_events, workers, common } = self;
        let cli::CommonArgs { data_dir, coordinator, sabotage } = common;
        let coordinator = NearCoordinator::start(coordinator.as_deref(), &data_dir.join("coordinator")).await?;
        let flow = Flow { input, passes, epoch_events, workers, dir: dir.clone() };
        let (client, pending, drilled) = (coordinator.client()?, data_dir.join("pending"), control.clone());
        let sinks = move |worker| {
            let points = drilled.clone();
            Ok(EngineSinkBuilder::new(DrilledSink::new(sink(&dir)?, drilled.clone(), sabotage), client.clone())
                .worker(worker)
                .pending(FileStore::new(&pending))
                // The drill keeps what the coordinator knows, but may kill the dataflow before it is known.
                .first_start(true)
                .on_point(move |point| points.point(point)))
        };
        let tokio = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || flow.run(&tokio, sinks)).await??;
        coordinator.stop().await?;
        control.done("all");
        Ok(())
    }
}
