//! The job as a process of a drill.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use ratified::{Point, sinks::file::FileStep};

use super::super::{CLIENT, Output, Pipeline, PipelineError, Watch};
use crate::{
    drill::{Control, DrilledSink, KillPoint, Sabotage},
    quakes::Tally,
};

/// One file of a transaction is visible, the next one is not.
pub(super) const BETWEEN_RENAMES: KillPoint = KillPoint::new("between-renames", "between two renames of one commit");

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
            flag("sabotage", sabotage.word().to_owned());
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
        let watch = Arc::new(Drilled(control.clone()));
        let report = pipeline.run_with(|sink| DrilledSink::new(sink, drilled, sabotage), watch).await?;
        let Tally { lines, kept, filtered, rejected } = report.position.tally;
        control.done(&format!("{lines} {kept} {filtered} {rejected}"));
        Ok(())
    }
}

/// What the job has said of its end, if it has.
pub(super) fn parse_tally(words: &str) -> Option<Tally> {
    let numbers: Vec<u64> = words.split_whitespace().map_while(|word| word.parse().ok()).collect();
    match *numbers.as_slice() {
        [lines, kept, filtered, rejected] => Some(Tally { lines, kept, filtered, rejected }),
        _ => None,
    }
}

/// Stands still where the drill wants it to.
struct Drilled(Arc<Control>);

impl Watch for Drilled {
    fn point(&self, point: Point) {
        self.0.point(point);
    }

    fn step(&self, step: &FileStep<'_>) {
        if is_between_renames(step) {
            self.0.pass(BETWEEN_RENAMES);
        }
    }
}

fn is_between_renames(step: &FileStep<'_>) -> bool {
    matches!(step, FileStep::Rename { index: 1.., .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_second_rename_of_a_commit_lies_between_two() {
        let at = |index| is_between_renames(&FileStep::Rename { file: "f", index });
        assert_eq!([at(0), at(1), at(2)], [false, true, true]);
    }

    #[test]
    fn four_numbers_are_a_tally() {
        let tally = Tally { lines: 10, kept: 5, filtered: 3, rejected: 2 };
        assert_eq!(parse_tally("10 5 3 2"), Some(tally));
        for wrong in ["", "10 5 3", "10 5 3 2 1", "10 5 x 2"] {
            assert_eq!(parse_tally(wrong), None);
        }
    }
}
