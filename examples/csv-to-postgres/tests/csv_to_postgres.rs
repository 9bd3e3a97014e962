//! The job that the README shows: run, run again with more rows, and run by a coordinator that has forgotten it.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::{fs, path::Path, process::Command};

use ratified_coordinator::{Config, Coordinator};
use ratified_servers::Postgres;

const TABLES: [&str; 2] =
    ["CREATE TABLE orders (id bigint, customer text, cents bigint)", "CREATE TABLE rejects (line bigint, why text)"];

/// What the job says, and whether it ended well.
fn run(dir: &Path, database: &str, coordinator: &str, args: &[&str]) -> (bool, String) {
    let mut job = Command::new(env!("CARGO_BIN_EXE_csv-to-postgres"));
    let job = job.current_dir(dir).args(args).env("DATABASE_URL", database).env("RATIFYD_URL", coordinator);
    let output = job.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(told).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_in_the_database_once_and_rows_that_are_none_are_in_the_other_table() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgres::start());
    let coordinator = Coordinator::start(Config::local(dir.path().join("coordinator"))).await.unwrap();
    let (url, database) = (coordinator.base_url(), server.url());
    for table in TABLES {
        server.sql(table);
    }
    let file = dir.path().join("orders.csv");
    let rows = "id,customer,cents\n1,ada,1250\n2,grace,many\n3,edsger,99\n";
    fs::write(&file, rows).unwrap();

    let (is_well, told) = run(dir.path(), &database, &url, &[]);
    assert!(!is_well && told.contains("orders-to-postgres"), "{told}");
    assert_eq!(server.sql("SELECT count(*) FROM orders"), "0");

    let (is_well, told) = run(dir.path(), &database, &url, &["--first-start"]);
    assert!(is_well, "{told}");
    assert_eq!(told, "3 rows read, 1 transactions committed\n");
    let (is_well, told) = run(dir.path(), &database, &url, &[]);
    assert!(is_well, "{told}");
    assert_eq!(told, "0 rows read, 0 transactions committed\n");

    fs::write(&file, format!("{rows}4,barbara,7\n")).unwrap();
    let (is_well, told) = run(dir.path(), &database, &url, &[]);
    assert!(is_well, "{told}");
    assert_eq!(
        server.sql("SELECT id, customer, cents FROM orders ORDER BY id"),
        "1|ada|1250\n3|edsger|99\n4|barbara|7"
    );
    assert_eq!(server.sql("SELECT count(*), min(line) FROM rejects"), "1|3");
    coordinator.shutdown().await.unwrap();
}

#[test]
fn the_readme_shows_the_job_as_it_is() {
    let readme = include_str!("../../../README.md");
    assert!(readme.contains(&format!("```rust\n{}```", include_str!("../src/main.rs"))));
}
