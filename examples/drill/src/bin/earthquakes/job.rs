//! The job as a process of a drill: decorated from outside, it knows nothing of it.

use std::{error::Error, path::PathBuf};

use clap::Args;
use earthquakes::{Tally, job};
use ratified::{JobSinkBuilder, pending::FileStore, sinks::file::FileStep};
use ratified_drill::{Control, DrilledSink, KillPoint, NearCoordinator, cli};

/// The job's name at the coordinator.
const CLIENT: &str = "earthquakes";
/// Lines that are read and written at a time.
const BATCH_RECORDS: usize = 256;

/// One file of a transaction is visible, the next one is not.
pub(crate) const BETWEEN_RENAMES: KillPoint = KillPoint::new("between-renames", "between two renames of one commit");

/// How the job is run.
#[derive(Debug, Clone, Args)]
pub(crate) struct JobArgs {
    /// The catalogue.
    #[arg(long)]
    input: PathBuf,
    /// Where the visible files are.
    #[arg(long)]
    output: PathBuf,
    /// A checkpoint is taken after so many lines.
    #[arg(long)]
    checkpoint_records: u64,
    #[command(flatten)]
    common: cli::CommonArgs,
}

impl JobArgs {
    pub(crate) async fn run(self) -> Result<(), Box<dyn Error>> {
        let control = Control::start()?;
        let cli::CommonArgs { data_dir, coordinator, sabotage } = self.common;
        let coordinator = NearCoordinator::start(coordinator.as_deref(), &data_dir.join("coordinator")).await?;
        let (points, renames) = (control.clone(), control.clone());
        let sink = job::sink(&self.output)?.on_step(move |step| {
            if is_between_renames(step) {
                renames.pass(BETWEEN_RENAMES);
            }
            Ok(())
        });
        let sink =
            JobSinkBuilder::new(DrilledSink::new(sink.build()?, control.clone(), sabotage), coordinator.client()?)
                .pending(FileStore::new(data_dir.join("pending")))
                // The drill keeps what the coordinator knows, but may kill the job before it is known.
                .first_start(true)
                .on_point(move |point| points.point(point));
        let batch =
            usize::try_from(self.checkpoint_records).map_or(BATCH_RECORDS, |records| records.min(BATCH_RECORDS));
        let job = job::job(CLIENT.parse()?, &self.input, sink)
            .checkpoint_records(self.checkpoint_records)
            .batch_records(batch);
        let report = job.run().await?;
        coordinator.stop().await?;
        let Tally { lines, kept, filtered, rejected } = report.position.tally;
        control.done(&format!("{lines} {kept} {filtered} {rejected}"));
        Ok(())
    }
}

/// What the job has said of its end, if it has.
pub(crate) fn parse_tally(words: &str) -> Option<Tally> {
    let numbers: Vec<u64> = words.split_whitespace().map_while(|word| word.parse().ok()).collect();
    match *numbers.as_slice() {
        [lines, kept, filtered, rejected] => Some(Tally { lines, kept, filtered, rejected }),
        _ => None,
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
