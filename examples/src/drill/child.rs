//! The two processes that a drill starts: the job, and a coordinator.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use ratified_coordinator::{Config, Coordinator};

use super::{
    Sabotage,
    control::{Control, tell},
    message::Event,
    sabotage::DrilledSink,
};
use crate::pipeline::{CLIENT, Output, Pipeline, PipelineError};

/// How the job is run inside a drill.
#[derive(Debug, Clone, Args)]
pub struct JobArgs {
    /// The catalogue.
    #[arg(long)]
    pub input: PathBuf,
    /// Where the visible files are.
    #[arg(long)]
    pub output: PathBuf,
    /// Where the pending store is kept, and the store of an embedded coordinator.
    #[arg(long)]
    pub data_dir: PathBuf,
    /// A checkpoint is taken after so many lines.
    #[arg(long)]
    pub checkpoint_records: u64,
    /// The coordinator's URL; without one, a coordinator in the job's process.
    #[arg(long)]
    pub coordinator: Option<String>,
    /// How the sink is broken.
    #[arg(long, value_enum)]
    pub sabotage: Option<Sabotage>,
}

impl JobArgs {
    /// The command line of this executable that runs the job so.
    pub(super) fn to_args(&self) -> Vec<String> {
        let mut args = vec!["job".to_owned()];
        let mut flag = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        flag("input", self.input.display().to_string());
        flag("output", self.output.display().to_string());
        flag("data-dir", self.data_dir.display().to_string());
        flag("checkpoint-records", self.checkpoint_records.to_string());
        if let Some(url) = &self.coordinator {
            flag("coordinator", url.clone());
        }
        if let Some(sabotage) = self.sabotage {
            flag("sabotage", format!("{sabotage:?}").to_lowercase());
        }
        args
    }

    /// Runs the job under the drill's control.
    ///
    /// # Errors
    /// See [`PipelineError`].
    pub async fn run(&self) -> Result<(), PipelineError> {
        let failed = |source| PipelineError::Io { path: "stdin".into(), source };
        let control = Control::start().map_err(failed)?;
        let pipeline = Pipeline {
            input: self.input.clone(),
            output: Output::new(&self.output)?,
            data_dir: self.data_dir.clone(),
            coordinator: self.coordinator.clone(),
            client: CLIENT.parse().map_err(PipelineError::Name)?,
            checkpoint_records: self.checkpoint_records,
        };
        let (drilled, sabotage) = (control.clone(), self.sabotage);
        let report = pipeline.run_with(|sink| DrilledSink::new(sink, drilled, sabotage), control).await?;
        tell(&Event::Done(report.position.tally));
        Ok(())
    }
}

/// Serves a coordinator until it is killed, or its parent is gone.
///
/// # Errors
/// See [`PipelineError`].
pub async fn serve(data_dir: &Path, listen: SocketAddr) -> Result<(), PipelineError> {
    let failed = |source| PipelineError::Io { path: "stdin".into(), source };
    // Only for the end of stdin: nobody arms anything here.
    let _: Arc<Control> = Control::start().map_err(failed)?;
    let mut config = Config::local(data_dir);
    config.listen = listen;
    let coordinator = Coordinator::start(config).await?;
    tell(&Event::Listening(coordinator.local_addr()));
    coordinator.wait().await?;
    Ok(())
}
