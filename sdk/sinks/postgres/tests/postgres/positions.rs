//! Positions of the source: of every type that has an order, and in nothing but what they were taken in.

use ratified::job::{Read, Source, decode_position, encode_position};
use ratified_postgres::{PostgresPosition, PostgresSource};
use ratified_servers::Postgres;

use crate::source::{read_all, source};

/// A type, and values of it: no two are equal.
const TYPES: [(&str, &[&str]); 46] = [
    ("char(5)", &["aaaaa", "bbbbb", "bcccc", "b", "c"]),
    ("bpchar", &["a", "bb", "bbb", "c d"]),
    ("\"char\"", &["a", "b", "z"]),
    ("varchar(3)", &["a", "abc", "ab", "", " "]),
    ("text COLLATE \"C\"", &["a", "B", "\u{e4}", "\\", "'", "a\nb"]),
    ("text COLLATE \"und-x-icu\"", &["a", "B", "\u{e4}", "c", "-a"]),
    ("text COLLATE nocase", &["a", "B", "c"]),
    ("ext.citext", &["a", "B", "c", "D"]),
    ("name", &["a", "B", "c"]),
    ("bit(3)", &["000", "001", "101", "110"]),
    ("varbit", &["", "0", "00", "101", "1"]),
    ("smallint", &["-32768", "0", "32767"]),
    ("int", &["-2147483648", "0", "2147483647"]),
    ("bigint", &["-9223372036854775808", "9007199254740993", "9223372036854775807"]),
    ("oid", &["0", "4294967295"]),
    ("numeric", &["-Infinity", "NaN", "Infinity", "0.10", "0.1000000000000000000001", "1e100"]),
    ("numeric(5, 2)", &["-1.5", "0", "999.99"]),
    ("real", &["-Infinity", "-0", "1e-40", "0.1", "NaN", "Infinity"]),
    ("double precision", &["-Infinity", "-0", "5e-324", "0.1", "0.10000000000000002", "NaN", "Infinity"]),
    ("money", &["-1000.50", "0", "1234567.89"]),
    ("bool", &["t", "f"]),
    ("date", &["-infinity", "0044-03-15 BC", "2024-02-03", "2024-03-02", "infinity"]),
    ("timestamp", &["-infinity", "2024-01-01 00:00:00.000001", "2024-01-01 00:00:00.000002", "infinity"]),
    (
        "timestamptz",
        &["-infinity", "0001-01-01 00:00:00+00 BC", "2024-10-27 00:30:00+00", "2024-10-27 01:30:00+00", "infinity"],
    ),
    ("timestamp(0)", &["2024-01-01 00:00:01", "2024-01-01 00:00:02"]),
    ("time", &["00:00", "24:00", "23:59:59.999999"]),
    ("timetz", &["00:00+14", "00:00-12", "12:00+00"]),
    ("interval", &["-1 mon", "1 mon -1 day", "1 day -1 sec", "1 day", "178000000 years"]),
    ("uuid", &["00000000-0000-0000-0000-000000000001", "ffffffff-ffff-ffff-ffff-ffffffffffff"]),
    ("bytea", &["\\x", "\\x00", "\\x0001", "\\x5c27", "\\xff"]),
    ("inet", &["10.0.0.0/8", "10.0.0.1", "10.0.0.0", "::1"]),
    ("cidr", &["10.0.0.0/8", "10.0.0.0/16", "::/0"]),
    ("macaddr", &["00:00:00:00:00:01", "ff:00:00:00:00:00"]),
    ("mood", &["sad", "o k", "Happy"]),
    ("code", &["a", "ab", "abc"]),
    ("int[]", &["{}", "{1}", "{1,NULL}", "{1,2}", "{{1},{2}}"]),
    ("text[]", &["{}", "{\"\"}", "{\"a,\\\"b\"}", "{NULL}"]),
    ("char(3)[]", &["{a}", "{ab}", "{abc}"]),
    ("bit(2)[]", &["{00}", "{01}", "{10}"]),
    ("jsonb", &["1", "[1]", "{\"a\": null}", "\"x\"", "1.50"]),
    ("int4range", &["empty", "[1,5)", "(,3]", "[2,)"]),
    ("numrange", &["[1.1,2)", "(1.1,2)"]),
    ("int4multirange", &["{}", "{[1,2)}", "{[1,2),[4,5)}"]),
    ("tsvector", &["a", "b:1A c"]),
    ("pg_lsn", &["0/1", "1/0"]),
    ("pair", &["(1,a)", "(1,ab)", "(2,)", "(2,\"b c\")"]),
];

fn server_with_types() -> Postgres {
    let server = Postgres::start();
    server.sql(
        "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
         CREATE SEQUENCE n; CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext; CREATE TYPE mood AS ENUM ('sad', 'o k', 'Happy'); \
         CREATE DOMAIN code AS char(3); CREATE TYPE pair AS (a int, b char(4))",
    );
    server
}

/// As a job keeps it.
fn kept(position: &PostgresPosition) -> PostgresPosition {
    decode_position(&encode_position(position).unwrap()).unwrap()
}

/// Reads one row at a time, each from a stored position.
async fn one_by_one(new: impl Fn() -> PostgresSource<String>) -> Result<Vec<String>, String> {
    let (mut notes, mut position) = (Vec::new(), None);
    loop {
        let mut source = new();
        source.seek(position.as_ref()).await.map_err(|error| error.to_string())?;
        match source.read(1).await.map_err(|error| error.to_string())? {
            Read::Records(records) => notes.extend(records),
            Read::Idle | Read::End => return Ok(notes),
        }
        assert!(notes.len() < 100, "there is no end: {notes:?}");
        position = Some(kept(&source.position()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_are_read_once_and_in_order_by_a_column_of_any_type_that_has_an_order() {
    let server = server_with_types();
    for (kind, values) in TYPES {
        let values: Vec<_> =
            values.iter().map(|value| format!("(E'{}')", value.replace('\\', "\\\\").replace('\'', "\\'"))).collect();
        server.sql(&format!(
            "DROP TABLE IF EXISTS t; CREATE TABLE t (note text DEFAULT nextval('n')::text, p {kind}); \
             INSERT INTO t (p) VALUES {}",
            values.join(", ")
        ));
        let ordered = server.sql("SET search_path = public, ext; SELECT note FROM t ORDER BY p");
        let expected: Vec<_> = ordered.lines().filter(|line| *line != "SET").map(str::to_owned).collect();
        let read = one_by_one(|| source(&server, "SELECT note, p FROM t", "p")).await;
        assert_eq!((expected.len(), read), (values.len(), Ok(expected)), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_column_that_has_no_order_or_does_not_come_back_from_its_text_is_refused_with_its_type() {
    let server = server_with_types();
    server.sql("CREATE TABLE t (note text, a int, j json, x xml, d point)");
    for (column, told) in [
        ("j", "of type pg_catalog.json: ERROR: "),
        ("x", "of type pg_catalog.xml: ERROR: "),
        ("d", "of type pg_catalog.point: ERROR: "),
        ("r", "the position column \"r\" has the type record, which cannot be read again from its text"),
        ("rs", "the position column \"rs\" has the type record[], which cannot be read again from its text"),
    ] {
        let query = "SELECT note, j, x, d, ROW(a, 1) AS r, ARRAY[ROW(a, 1)] AS rs FROM t";
        let error = source(&server, query, column).seek(None).await.unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
    server.sql(
        "CREATE FUNCTION told(mood) RETURNS text LANGUAGE sql AS $$ SELECT 'sad' $$; CREATE CAST (mood AS text) WITH FUNCTION told; \
         CREATE TABLE m AS SELECT 'a' AS note, 'o k'::mood AS p",
    );
    let mut lossy = source(&server, "SELECT * FROM m", "p");
    lossy.seek(None).await.unwrap();
    assert_eq!(
        lossy.read(1).await.unwrap_err().to_string(),
        "the position \"sad\" in column \"p\" is another one when it is read again from that text; take a column of another \
         type"
    );
}

const QUERY: &str = "SELECT note, id FROM s";
const GONE: &str = "what the source's query reads was emptied, made anew or rewritten (as TRUNCATE does), and the row at the \
     stored position \"10\" is gone or another one; restore it, ";

fn fill(name: &str, rows: u32) -> String {
    format!("INSERT INTO s (note) SELECT '{name} ' || n FROM generate_series(1, {rows}) AS n")
}

/// Behind the tenth of ten rows.
async fn at_ten(server: &Postgres, query: &str) -> PostgresPosition {
    let mut first = source(server, query, "id");
    first.seek(None).await.unwrap();
    assert_eq!(read_all(&mut first, 4).await.map(|rows| rows.len()), Ok(10));
    assert_eq!(first.position().after.as_deref(), Some("10"));
    kept(&first.position())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_emptied_or_made_anew_is_refused_and_no_row_skipped() {
    let server = Postgres::start();
    for (table, emptied, dropped) in [
        ("CREATE TABLE s (id bigserial PRIMARY KEY, note text)", "s", "TABLE s"),
        (
            "CREATE TABLE base (id bigserial PRIMARY KEY, note text); CREATE VIEW s AS SELECT * FROM base WHERE id > 0",
            "base",
            "TABLE base CASCADE",
        ),
        (
            "CREATE TABLE s (id bigserial PRIMARY KEY, note text) PARTITION BY RANGE (id); \
             CREATE TABLE part PARTITION OF s FOR VALUES FROM (0) TO (1000)",
            "s",
            "TABLE s",
        ),
    ] {
        for rows in [5, 10, 20] {
            server.sql(&format!("{table}; {}", fill("old", 10)));
            let position = at_ten(&server, QUERY).await;
            let mut running = source(&server, QUERY, "id").follow(true);
            running.seek(Some(&position)).await.unwrap();
            server.sql(&format!("TRUNCATE {emptied} RESTART IDENTITY; {}", fill("new", rows)));
            let error = running.read(5).await.unwrap_err().to_string();
            assert!(error.starts_with(GONE), "{error}");
            let error = source(&server, QUERY, "id").seek(Some(&position)).await.unwrap_err().to_string();
            assert!(error.starts_with(GONE), "{error}");
            let mut taken_over = source(&server, QUERY, "id").take_over(true);
            taken_over.seek(Some(&position)).await.unwrap();
            let rest = read_all(&mut taken_over, 50).await.unwrap().len();
            assert_eq!(rest, (rows as usize).saturating_sub(10));
            server.sql(&format!("DROP {dropped}"));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_only_rewritten_or_restored_is_read_on() {
    let server = Postgres::start();
    server.sql(&format!("CREATE TABLE s (id bigserial PRIMARY KEY, note text); {}", fill("old", 10)));
    let mut position = at_ten(&server, QUERY).await;
    for (round, change) in [
        "VACUUM FULL s",
        "CREATE TABLE copy AS TABLE s; DROP TABLE s; ALTER TABLE copy RENAME TO s; ALTER TABLE s ADD PRIMARY KEY (id)",
        "UPDATE s SET note = note || '!' WHERE id = (SELECT max(id) FROM s)",
        "DELETE FROM s",
    ]
    .iter()
    .enumerate()
    {
        server.sql(change);
        let next = 11 + round;
        server.sql(&format!("INSERT INTO s (id, note) VALUES ({next}, 'later')"));
        let mut again = source(&server, QUERY, "id");
        again.seek(Some(&position)).await.unwrap();
        assert_eq!(read_all(&mut again, 5).await.unwrap(), ["later"], "{change}");
        position = kept(&again.position());
        assert_eq!(position.after, Some(next.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_of_another_query_or_column_is_refused() {
    let server = Postgres::start();
    server.sql(&format!("CREATE TABLE s (id bigserial PRIMARY KEY, note text, other bigserial); {}", fill("old", 10)));
    let position = at_ten(&server, QUERY).await;
    server.sql(&fill("new", 1));
    for (query, column) in [("SELECT note, id FROM s WHERE id > 3", "id"), ("SELECT note, other AS id FROM s", "id")] {
        let error = source(&server, query, column).seek(Some(&position)).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "the stored position is one in another query or by another column; read this one in a job with a client name of \
             its own or, if what is to be read lies behind that position here too, start once with take_over"
        );
        let mut taken_over = source(&server, query, column).take_over(true);
        taken_over.seek(Some(&position)).await.unwrap();
        assert_eq!(read_all(&mut taken_over, 5).await.unwrap(), ["new 1"]);
        let mut again = source(&server, query, column);
        again.seek(Some(&kept(&taken_over.position()))).await.unwrap();
        assert_eq!(read_all(&mut again, 5).await.unwrap(), Vec::<String>::new());
    }
}
