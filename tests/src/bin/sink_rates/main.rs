//! What exactly once costs a job: rows per second into each sink, exactly once next to at least once, in turn, at a
//! checkpoint per second.
//!
//! `sink_rates [checkpoints per leg] [pairs of legs] [SINK...]`; needs a release build to mean anything. The servers run on
//! this machine, in the directory for temporary files (`TMPDIR`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test program: a failure here ends the run"
)]

mod leg;
mod plain;
mod row;
mod sinks;

use std::process::ExitCode;

use ratified::Mode;
use ratified_servers::{Postgres, SeaweedFs};

use self::{leg::Rate, sinks::Site};

/// What is measured. The baseline of each is the same sink at least once; of the ledger, which knows no other way, that
/// of the sink with prepared transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    File,
    Postgres,
    Ledger,
    Objects,
    Parquet,
    Composite,
    Copy,
}

const SUBJECTS: [(Subject, &str); 7] = [
    (Subject::File, "file"),
    (Subject::Postgres, "postgres"),
    (Subject::Ledger, "postgres-ledger"),
    (Subject::Objects, "objects-json"),
    (Subject::Parquet, "objects-parquet"),
    (Subject::Composite, "composite"),
    (Subject::Copy, "postgres-copy-alone"),
];

#[tokio::main(flavor = "multi_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| arguments.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (checkpoints, pairs) = (number(0, 5), number(1, 5));
    let asked: Vec<_> = arguments.iter().filter(|word| word.parse::<u32>().is_err()).map(String::as_str).collect();
    if let Some(unknown) = asked.iter().find(|word| !SUBJECTS.iter().any(|(_, name)| name == *word)) {
        eprintln!("sink_rates: no sink {unknown}; there are {}", SUBJECTS.map(|(_, name)| name).join(", "));
        return ExitCode::from(2);
    }
    if cfg!(debug_assertions) {
        println!("not a release build: the numbers mean little");
    }
    let site = Site::start().await;
    println!("{}, SeaweedFS {}", site.postgres.version(), SeaweedFs::version());
    println!("{checkpoints} checkpoints of 1 s per leg, medians of {pairs} pairs:");
    for (subject, name) in SUBJECTS {
        if asked.is_empty() || asked.contains(&name) {
            compare(&site, subject, name, checkpoints, pairs).await;
        }
    }
    ExitCode::SUCCESS
}

/// Both in turn, so that what else the machine does befalls both, and each as often first as second: whichever comes
/// first finds the machine as the other one left it.
async fn compare(site: &Site, subject: Subject, name: &str, checkpoints: u32, pairs: u32) {
    let (mut baselines, mut rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    run(site, subject, Mode::AtLeastOnce, 1).await;
    for pair in 0..pairs {
        let (mut baseline, mut rate) = (None, None);
        for turn in [pair % 2, (pair + 1) % 2] {
            if turn == 0 {
                rate = Some(run(site, subject, Mode::ExactlyOnce, checkpoints).await.per_second());
            } else {
                baseline = Some(run(site, subject, Mode::AtLeastOnce, checkpoints).await.per_second());
            }
        }
        let (baseline, rate) = (baseline.expect("every turn was taken"), rate.expect("every turn was taken"));
        baselines.push(baseline);
        rates.push(rate);
        ratios.push(rate / baseline);
    }
    println!(
        "{name:<20} {:>9.0} rows/s, at least once {:>9.0}, ratio {:.3} ({:.3} to {:.3})",
        median(&rates),
        median(&baselines),
        median(&ratios),
        ratios.iter().copied().fold(f64::MAX, f64::min),
        ratios.iter().copied().fold(0.0, f64::max),
    );
}

async fn run(site: &Site, subject: Subject, mode: Mode, checkpoints: u32) -> Rate {
    let (url, name) = (site.ratifyd.url(), site.fresh_name());
    let is_baseline = mode == Mode::AtLeastOnce;
    let rate = match subject {
        Subject::File => leg::run(site.file(), &url, &name, mode, checkpoints).await,
        Subject::Ledger if !is_baseline => leg::run(site.ledger(), &url, &name, mode, checkpoints).await,
        Subject::Copy if !is_baseline => plain::copy(&site.postgres, checkpoints).await,
        Subject::Postgres | Subject::Ledger | Subject::Copy => {
            leg::run(site.prepared(), &url, &name, mode, checkpoints).await
        }
        Subject::Objects => leg::run(site.objects(&name), &url, &name, mode, checkpoints).await,
        Subject::Parquet => leg::run(site.parquet(&name), &url, &name, mode, checkpoints).await,
        Subject::Composite => leg::run(site.composite(&name), &url, &name, mode, checkpoints).await,
    };
    if matches!(subject, Subject::Postgres | Subject::Ledger | Subject::Copy | Subject::Composite) {
        check(&site.postgres, rate);
    }
    site.clean();
    rate
}

/// A rate of rows that are not there would be no rate.
fn check(postgres: &Postgres, rate: Rate) {
    assert_eq!(postgres.sql("SELECT count(*) FROM orders"), rate.rows.to_string());
}

/// The middle of the values.
fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
