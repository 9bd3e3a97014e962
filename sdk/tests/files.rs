//! Files as the source of whole jobs: what comes out does not depend on restarts, and everything that was read, bad or good,
//! fits through the sink with every bound as it is by default.
#![cfg(feature = "csv")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

use std::path::Path;

use ratified::{
    Cause, CoordinatorClient, JobSinkBuilder,
    job::{
        BadLine, BadRow, CsvSource, DEFAULT_MAX_LINE_BYTES, DEFAULT_MAX_RECORD_BYTES, Job, Line, LineSource, Row,
        Source,
    },
    sinks::file::{FileSink, TargetName, read_target},
};
use ratified_coordinator::{Config, Coordinator};
use serde::Serialize;
use tempfile::TempDir;

fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

/// What a job that keeps its rejects writes of a record, in the ways that make it longest.
#[derive(Serialize)]
struct Judged {
    line: u64,
    fault: String,
    text: String,
    bytes: Vec<u8>,
}

/// Runs a job, `runs` times; all but the last time it ends at its third record.
async fn run<S: Source>(
    dir: &Path,
    runs: usize,
    new: impl Fn() -> S,
    judge: fn(S::Record) -> Judged,
) -> Result<Vec<String>, String> {
    let coordinator = Coordinator::start(Config::local(dir.join("coordinator"))).await.unwrap();
    let out = dir.join("out");
    let mut last = Ok(());
    for round in 1..=runs {
        let sink = FileSink::json_lines(&out, target("good"))
            .route(|judged: &Judged| target(if judged.fault.is_empty() { "good" } else { "rejects" }))
            .build()
            .unwrap();
        let client = CoordinatorClient::new(&coordinator.base_url()).unwrap();
        let sink = JobSinkBuilder::new(sink, client).first_start(round == 1);
        let mut seen = 0;
        let transform = move |record, emit: &mut Vec<Judged>| {
            seen += 1;
            if round < runs && seen == 3 {
                return Err(Cause::new("made up"));
            }
            emit.push(judge(record));
            Ok(())
        };
        let job = Job::new("files".parse().unwrap(), new(), transform, sink).checkpoint_records(1).batch_records(1);
        last = job.run().await.map(drop).map_err(|error| error.to_string());
    }
    coordinator.shutdown().await.unwrap();
    last?;
    let text = |name| String::from_utf8(read_target(&out, &target(name)).unwrap()).unwrap();
    Ok(["good", "rejects"].iter().flat_map(|name| text(name).lines().map(str::to_owned).collect::<Vec<_>>()).collect())
}

fn judged_line(line: Result<Line, BadLine>) -> Judged {
    match line {
        Ok(Line { number, text }) => Judged { line: number, fault: String::new(), text, bytes: Vec::new() },
        Err(bad) => Judged {
            line: bad.number,
            fault: bad.to_string(),
            text: String::from_utf8_lossy(&bad.bytes).into_owned(),
            bytes: bad.bytes,
        },
    }
}

fn judged_row(row: Result<Row<Vec<String>>, BadRow>) -> Judged {
    match row {
        Ok(row) => Judged { line: row.line, fault: String::new(), text: row.value.concat(), bytes: Vec::new() },
        Err(bad) => {
            let bytes = bad.fields.concat().into_bytes();
            Judged { line: bad.line, fault: bad.to_string(), text: format!("{:?}", bad.fields), bytes }
        }
    }
}

#[tokio::test]
async fn whatever_is_read_of_a_file_can_be_written_with_every_bound_as_it_is_by_default() {
    for byte in [b"x", b"\"", b"\x01", b"\\", b"\xff"] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("in.txt");
        let lines = [DEFAULT_MAX_LINE_BYTES, DEFAULT_MAX_LINE_BYTES + 1, 3 << 20].map(|length| byte.repeat(length));
        std::fs::write(&path, lines.join(&b'\n')).unwrap();
        let written = run(dir.path(), 1, || LineSource::new(&path), judged_line).await;
        assert_eq!(written.map(|lines| lines.len()), Ok(3), "{}", byte.escape_ascii());
    }
    for byte in [b"x", b"\x01", b"\\", b"\xff"] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("in.csv");
        let rows = [DEFAULT_MAX_RECORD_BYTES, DEFAULT_MAX_RECORD_BYTES + 1, 3 << 20].map(|length| byte.repeat(length));
        std::fs::write(&path, [b"text\n", &rows.join(&b'\n')[..], b"\n", &b"a,".repeat(60_000)].concat()).unwrap();
        let written = run(dir.path(), 1, || CsvSource::new(&path), judged_row).await;
        assert_eq!(written.map(|rows| rows.len()), Ok(4), "{}", byte.escape_ascii());
    }
}

#[tokio::test]
async fn a_job_that_was_restarted_writes_what_an_uninterrupted_one_writes() {
    let content = "\u{feff}id,name\r\n1,anna\n\u{feff}2,\"b\rob\"\n\"3,eve\r\r\u{feff}4,dan\n5,\u{1}\r6";
    let mut outputs = Vec::new();
    for runs in [1, 4] {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("in.csv");
        std::fs::write(&path, content).unwrap();
        let rows = run(dir.path(), runs, || CsvSource::new(&path).require_columns(&["id"]), judged_row).await.unwrap();
        let lines = TempDir::new().unwrap();
        outputs.push((rows, run(lines.path(), runs, || LineSource::new(&path), judged_line).await.unwrap()));
    }
    assert_eq!(outputs[0], outputs[1]);
    assert_eq!((outputs[0].0.len(), outputs[0].1.len()), (6, 9));
}
