//! The same pipeline into two directories at once, as two sinks under one decision.

use std::path::{Path, PathBuf};

use ratified::{
    job::{JobError, JobReport},
    sinks::composite::Composite,
};

use super::{Plan, Row, check_exactly_once, run_job};

/// Where the second sink writes to, if the first one writes to `out`.
pub fn copy_of(out: &Path) -> PathBuf {
    out.with_extension("copy")
}

/// Runs the pipeline as a job that checkpoints itself, into two sinks. The steps of the second one are told with the
/// prefix `copy_`.
///
/// # Errors
/// What the job says.
///
/// # Panics
/// When the plan is nonsense.
pub async fn run_composite(plan: &Plan) -> Result<JobReport<u64>, JobError> {
    let both = |row: &Row, rows: &mut Vec<Row>| rows.push(*row);
    let sink = Composite::builder()
        .member("out", plan.files(&plan.out(), ""), both)
        .member("copy", plan.files(&copy_of(&plan.out()), "copy_"), both)
        .build()
        .unwrap();
    run_job(plan, plan.builder_of(sink)).await
}

/// What is wrong with two outputs that should each hold every number below `records` once, in order, and nothing staged.
///
/// # Errors
/// What is wrong, and in which.
pub fn check_both(out: &Path, records: u64) -> Result<(), String> {
    for root in [out.to_owned(), copy_of(out)] {
        check_exactly_once(&root, records).map_err(|why| format!("{}: {why}", root.display()))?;
    }
    Ok(())
}
