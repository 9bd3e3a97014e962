//! The source of a query: every row once, in order, from any position; what it could not promise is an error.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use ratified::{
    Cause, CoordinatorClient, JobSinkBuilder,
    job::{Job, Read, Source},
    pending::FileStore,
};
use ratified_coordinator::{Config, Coordinator};
use ratified_postgres::{Database, PostgresSource, Staging};
use ratified_servers::Postgres;

use crate::site::{Number, Place, number};

pub(crate) fn source(server: &Postgres, query: &str, column: &str) -> PostgresSource<String> {
    let database = Database::new(&server.url()).unwrap();
    PostgresSource::new(database, query, column, |row| row.try_get::<_, String>("note").map_err(Cause::new)).unwrap()
}

pub(crate) async fn read_all(source: &mut PostgresSource<String>, at_once: usize) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    loop {
        match source.read(at_once).await.map_err(|error| error.to_string())? {
            Read::Records(records) => {
                assert!((1..=at_once).contains(&records.len()));
                all.extend(records);
            }
            Read::Idle => panic!("idle"),
            Read::End => return Ok(all),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_of_any_type_is_kept_without_loss_and_read_on_from() {
    let server = Postgres::start();
    for (kind, positions) in [
        ("bigint", ["-9223372036854775808", "7", "10"]),
        ("numeric", ["0.1", "0.10000000000000000000000001", "10"]),
        ("timestamptz", ["2024-01-01 00:00:00.000001+00", "2024-01-01 00:00:00.000002+00", "infinity"]),
        (
            "uuid",
            [
                "0190f2c4-7a61-7c3e-9d0a-000000000000",
                "0190f2c4-7a61-7c3e-9d0a-000000000001",
                "f0000000-0000-0000-0000-000000000000",
            ],
        ),
        ("text", ["", "a'b", "ä\\"]),
        ("double precision", ["0.1", "0.10000000000000002", "1e300"]),
        ("date", ["2024-02-03", "2024-03-02", "2025-01-01"]),
        ("bytea", ["\\x00", "\\x0001", "\\xff"]),
    ] {
        let values: Vec<_> = positions
            .iter()
            .zip(["b", "a", "c"])
            .map(|(p, note)| format!("('{}', '{note}')", p.replace('\'', "''")))
            .collect();
        // Sessions of the reader are spelt otherwise than those that wrote.
        server.sql(&format!(
            "ALTER ROLE tester SET DateStyle = 'German'; ALTER ROLE tester SET TimeZone = 'Asia/Tokyo'; \
             DROP TABLE IF EXISTS t; CREATE TABLE t (\"Pos\" {kind}, note text); \
             SET DateStyle = 'ISO'; INSERT INTO t VALUES {}",
            values.join(", ")
        ));
        let mut first = source(&server, "SELECT note, \"Pos\" FROM t", "Pos");
        first.seek(None).await.unwrap();
        assert_eq!(first.position().after, None);
        assert_eq!(first.read(1).await.unwrap(), Read::Records(vec!["b".to_owned()]), "{kind}");
        let kept = serde_json::to_string(&first.position()).unwrap();
        let mut second = source(&server, "SELECT note, \"Pos\" FROM t", "Pos");
        second.seek(Some(&serde_json::from_str(&kept).unwrap())).await.unwrap();
        assert_eq!(read_all(&mut second, 1).await.unwrap(), ["a", "c"], "{kind} from {kept}");
        assert_eq!(read_all(&mut first, 5).await.unwrap(), ["a", "c"], "{kind}");
        second.seek(None).await.unwrap();
        assert_eq!(read_all(&mut second, 2).await.unwrap(), ["b", "a", "c"], "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_that_two_rows_share_or_that_is_missing_is_an_error_wherever_a_read_ends() {
    let server = Postgres::start();
    server.sql("CREATE TABLE t (p numeric, note text); INSERT INTO t VALUES (1.0, 'a'), (1.00, 'b'), (2, 'c')");
    for at_once in [1, 2, 9] {
        let mut source = source(&server, "SELECT * FROM t", "p");
        source.seek(None).await.unwrap();
        let error = read_all(&mut source, at_once).await.unwrap_err();
        assert!(error.starts_with("two rows have the position \"1.0"), "{error}");
        assert!(error.ends_with("in column \"p\": it must be unique"), "{error}");
    }
    server.sql("DELETE FROM t WHERE note = 'b'; INSERT INTO t VALUES (NULL, 'n')");
    let mut source = source(&server, "SELECT * FROM t", "p");
    let error = source.seek(None).await.unwrap_err().to_string();
    assert_eq!(error, "a row of the source's query has NULL in its position column \"p\"");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_follows_waits_for_rows_and_outlives_its_server_between_two_reads() {
    let mut server = Postgres::start();
    server.sql("CREATE TABLE t (p int PRIMARY KEY, note text)");
    let mut source = source(&server, "SELECT * FROM t", "p").follow(true);
    source.seek(None).await.unwrap();
    assert_eq!(source.read(5).await.unwrap(), Read::Idle);
    server.sql("INSERT INTO t VALUES (3, 'x')");
    assert_eq!(source.read(5).await.unwrap(), Read::Records(vec!["x".to_owned()]));
    server.crash();
    server.sql("INSERT INTO t VALUES (4, 'y')");
    assert_eq!(source.read(5).await.unwrap(), Read::Records(vec!["y".to_owned()]));
    assert_eq!(source.read(5).await.unwrap(), Read::Idle);
    server.kill();
    assert!(source.read(5).await.unwrap_err().to_string().starts_with("connect to the database: "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_is_not_there_and_a_query_that_writes_are_refused() {
    let server = Postgres::start();
    server.sql("CREATE TABLE t (p int PRIMARY KEY, note text)");
    let error = source(&server, "SELECT * FROM t", "q").seek(None).await.unwrap_err().to_string();
    assert!(
        error.starts_with("look at column \"q\" of the source's query: ERROR: column q.q does not exist"),
        "{error}"
    );
    let writes = "WITH x AS (INSERT INTO t VALUES (1, 'x') RETURNING *) SELECT * FROM x";
    assert!(source(&server, writes, "p").seek(None).await.is_err());
    assert_eq!(server.sql("SELECT count(*) FROM t"), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_from_table_to_table_that_fails_half_way_moves_every_row_once() {
    let place = Place::new();
    place.server.sql("CREATE TABLE t AS SELECT n * 7 AS p FROM generate_series(1, 500) AS n");
    let dir = tempfile::tempdir().unwrap();
    let coordinator = Coordinator::start(Config::local(dir.path().join("data"))).await.unwrap();
    let passed = Arc::new(AtomicU64::new(0));
    let pending = dir.path().join("pending");
    let mut resumed = Vec::new();
    for attempt in 0..4 {
        let database = Database::new(&place.server.url()).unwrap();
        let decode = |row: &ratified_postgres::tokio_postgres::Row| row.try_get::<_, i32>(0).map_err(Cause::new);
        let source = PostgresSource::new(database, "SELECT p FROM t", "p", decode).unwrap();
        let passed = passed.clone();
        let transform = move |p: i32, emit: &mut Vec<Number>| {
            // Each of the first three attempts ends in the middle of an interval.
            if passed.fetch_add(1, Ordering::SeqCst) == 110 * (attempt + 1) && attempt < 3 {
                return Err(Cause::new("made up"));
            }
            emit.push(number(p.unsigned_abs().into()));
            Ok(())
        };
        let client = CoordinatorClient::new(&coordinator.base_url()).unwrap();
        let staging = if attempt % 2 == 0 { Staging::Prepared } else { Staging::Ledger };
        let sink = JobSinkBuilder::new(place.sink(staging), client)
            .pending(FileStore::new(&pending))
            .first_start(attempt == 0);
        let job = Job::new("table.part-0".parse().unwrap(), source, transform, sink);
        match job.checkpoint_records(25).batch_records(10).run().await {
            Ok(report) => resumed.push(report.resumed_from.unwrap().after.unwrap()),
            Err(error) => assert!(error.to_string().contains("made up"), "{error}"),
        }
    }
    assert_eq!(place.visible(), (1..=500).map(|n| n * 7).collect::<Vec<u64>>());
    assert_eq!(resumed.len(), 1);
    assert_eq!(
        (place.prepared(), place.server.sql("SELECT count(*) FROM own.staged")),
        (String::new(), "0".to_owned())
    );
    coordinator.shutdown().await.unwrap();
}
