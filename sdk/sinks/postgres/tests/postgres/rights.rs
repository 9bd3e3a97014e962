//! Every right and property that a commit needs is looked at when the sink is opened: each is taken away once.

use ratified::{Committed, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink};
use ratified_postgres::{Database, PostgresSink, Staging, Table, control_tables};

use crate::site::{Number, Place, STAGINGS, open, stage, txn};

/// A place in which the role `job` may do what is documented, and nothing more.
fn place_of_job() -> Place {
    let place = Place::new();
    let name = &place.name;
    place.server.sql(&format!(
        "CREATE ROLE job LOGIN; {} GRANT USAGE, CREATE ON SCHEMA own TO job; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA own TO job; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA own TO job; GRANT USAGE ON SCHEMA {name} TO job; \
         GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {name} TO job",
        control_tables("own")
    ));
    place
}

fn sink(place: &Place, staging: Staging, user: &str, table: &str) -> PostgresSink<Number> {
    let database = Database::new(&place.server.url().replace("tester@", &format!("{user}@"))).unwrap();
    let builder = PostgresSink::builder(database, [place.table(table)]).name(&place.name).schema("own");
    builder.staging(staging).build().unwrap()
}

fn reason(error: SinkError) -> String {
    match error {
        SinkError::Rejected(why) => why.to_string(),
        error => panic!("not rejected: {error}"),
    }
}

/// How opening is refused; nothing if it is not.
async fn refusal(place: &Place, staging: Staging, table: &str) -> String {
    let sink = sink(place, staging, "job", table);
    match sink.committer().await {
        Err(error) => reason(error),
        Ok(_) => sink.writer().await.map(drop).map_or_else(reason, |()| String::new()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_right_on_the_sinks_own_tables_that_is_missing_is_told_at_open() {
    let place = place_of_job();
    for staging in STAGINGS {
        assert_eq!(refusal(&place, staging, "low").await, "", "{staging:?}");
        for (table, rights) in [
            ("marker", "SELECT INSERT UPDATE DELETE"),
            ("owner", "SELECT INSERT UPDATE"),
            ("staged", "SELECT INSERT DELETE"),
        ] {
            for right in rights.split(' ') {
                place.server.sql(&format!("REVOKE {right} ON own.{table} FROM job"));
                let expected = format!(
                    "the sink's own table \"own\".\"{table}\" may not be used as it is needed: GRANT {right} on it to this role"
                );
                assert_eq!(refusal(&place, staging, "low").await, expected, "{staging:?}");
                place.server.sql(&format!("GRANT {right} ON own.{table} TO job"));
            }
        }
        place.server.sql("REVOKE USAGE ON SCHEMA own FROM job");
        let expected = "the role may not use schema \"own\": GRANT USAGE ON SCHEMA \"own\" to it";
        assert_eq!(refusal(&place, staging, "low").await, expected, "{staging:?}");
        place.server.sql("GRANT USAGE ON SCHEMA own TO job; ALTER TABLE own.marker SET UNLOGGED");
        assert!(refusal(&place, staging, "low").await.contains("\"own\".\"marker\" is unlogged"), "{staging:?}");
        place.server.sql(
            "ALTER TABLE own.marker SET LOGGED; ALTER TABLE own.staged ENABLE ROW LEVEL SECURITY, \
             FORCE ROW LEVEL SECURITY",
        );
        assert!(refusal(&place, staging, "low").await.contains("\"own\".\"staged\" has row security"), "{staging:?}");
        place.server.sql("ALTER TABLE own.staged DISABLE ROW LEVEL SECURITY; ALTER TABLE own.owner RENAME epoch TO e");
        let told = refusal(&place, staging, "low").await;
        assert!(
            told.starts_with(
                "the sink's own table \"own\".\"owner\" is not the table that this sink makes: it has client text, e "
            ),
            "{told}"
        );
        place.server.sql("ALTER TABLE own.owner RENAME e TO epoch");
    }
    place.server.sql("REVOKE USAGE ON SEQUENCE own.staged_id FROM job");
    assert_eq!(refusal(&place, Staging::Prepared, "low").await, "");
    let told = refusal(&place, Staging::Ledger, "low").await;
    assert!(told.contains("\"own\".\"staged_id\"") && told.contains("GRANT USAGE ON SEQUENCE"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_ledger_needs_to_stage_beside_its_target_is_told_at_open() {
    let place = place_of_job();
    let name = place.name.clone();
    let says = |why: String| format!("Staging::Ledger stages rows for \"{name}\".\"low\" in a table of its own: {why}");
    place.server.sql("REVOKE CREATE ON SCHEMA own FROM job");
    let expected = says("the role may make no table in \"own\": GRANT CREATE ON SCHEMA \"own\" to it".to_owned());
    assert_eq!(refusal(&place, Staging::Ledger, "low").await, expected);
    place.server.sql(&format!("GRANT CREATE ON SCHEMA own TO job; REVOKE SELECT ON {name}.low FROM job"));
    let expected = says(format!(
        "a table like \"{name}\".\"low\" has to be made: GRANT SELECT on \"{name}\".\"low\" to this role"
    ));
    assert_eq!(refusal(&place, Staging::Ledger, "low").await, expected);
    assert_eq!(refusal(&place, Staging::Prepared, "low").await, "");
    // Made by another role, which later starts do not ask for more than to be used.
    open(&sink(&place, Staging::Ledger, "tester", "low")).await;
    let stage = place.server.sql("SELECT relname FROM pg_class WHERE relname LIKE 'staged\\_%' AND relkind = 'r'");
    for right in ["SELECT", "INSERT", "DELETE"] {
        place.server.sql(&format!(
            "GRANT SELECT, INSERT, DELETE ON own.{stage} TO job; REVOKE {right} ON own.{stage} FROM job"
        ));
        let expected = says(format!("\"own\".\"{stage}\" was made by another role: GRANT {right} on it to this role"));
        assert_eq!(refusal(&place, Staging::Ledger, "low").await, expected);
    }
    place.server.sql(&format!("GRANT ALL ON own.{stage} TO job; REVOKE CREATE ON SCHEMA own FROM job"));
    assert_eq!(refusal(&place, Staging::Ledger, "low").await, "");
    place.server.sql(&format!("ALTER TABLE own.{stage} SET UNLOGGED"));
    assert!(refusal(&place, Staging::Ledger, "low").await.contains("is unlogged"));
    place
        .server
        .sql(&format!("CREATE TABLE {name}.odd (n bigint, ratified_id bigint); GRANT ALL ON {name}.odd TO job"));
    let told = refusal(&place, Staging::Ledger, "odd").await;
    assert!(
        told.ends_with("has a column ratified_id or ratified_seq, which staged rows have, too: rename it"),
        "{told}"
    );
    assert_eq!(refusal(&place, Staging::Prepared, "odd").await, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_the_role_may_not_call_for_a_row_are_told_at_open() {
    let place = place_of_job();
    let name = place.name.clone();
    place.server.sql(&format!(
        "SET search_path = {name}; CREATE FUNCTION f(n bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT n';
         REVOKE EXECUTE ON FUNCTION f FROM PUBLIC;
         CREATE TABLE defaulted (n bigint, m bigint DEFAULT f(7)); CREATE TABLE filled (n bigint DEFAULT f(7));
         CREATE TABLE generated (n bigint, m bigint GENERATED ALWAYS AS (f(n)) STORED);
         CREATE TABLE checked (n bigint CHECK (f(n) > 0)); CREATE TABLE indexed (n bigint); CREATE INDEX ON indexed (f(n));
         GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA {name} TO job"
    ));
    for staging in STAGINGS {
        for table in ["defaulted", "generated", "checked", "indexed"] {
            let expected = format!(
                "table \"{name}\".\"{table}\" calls for each row, in a default, a generated column, a check or an index, what \
                 this role may not: GRANT EXECUTE ON FUNCTION {name}.f(bigint) to it"
            );
            assert_eq!(refusal(&place, staging, table).await, expected, "{staging:?}");
            // As the server says.
            let insert = format!("SET ROLE job; INSERT INTO {name}.{table} (n) VALUES (1)");
            assert!(place.server.try_sql(&insert).unwrap_err().contains("permission denied for function f"), "{table}");
        }
        assert_eq!(refusal(&place, staging, "filled").await, "", "{staging:?}: its default is not asked");
    }
    place.server.sql(&format!("GRANT EXECUTE ON FUNCTION {name}.f TO job"));
    for (n, staging) in (1..).zip(STAGINGS) {
        let (committer, mut writer) = open(&sink(&place, staging, "job", "generated")).await;
        let handle = stage(&mut writer, &txn(n), &[n.into()]).await;
        assert_eq!(committer.commit(&txn(n), &handle).await.unwrap(), Committed::Now);
    }
    assert_eq!(place.server.sql(&format!("SELECT n, m FROM {name}.generated ORDER BY n")), "1|1\n2|2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_of_every_kind_in_any_order_take_rows_in_both_ways_to_stage() {
    let place = place_of_job();
    let name = place.name.clone();
    place.server.sql(&format!(
        "SET search_path = {name}; CREATE TYPE mood AS ENUM ('sad', 'happy'); CREATE DOMAIN small AS bigint CHECK (VALUE < 10);
         CREATE TABLE odd (gone text, \"Mo od\" mood, id bigint GENERATED ALWAYS AS IDENTITY, s small NOT NULL,
                           twice bigint GENERATED ALWAYS AS (s * 2) STORED, by text DEFAULT current_user, a small[]);
         ALTER TABLE odd DROP gone; GRANT ALL ON odd TO job; GRANT ALL ON ALL SEQUENCES IN SCHEMA {name} TO job"
    ));
    struct Odd(&'static str, u64);
    impl ratified_postgres::PgRecord for Odd {
        fn fill(&self, row: &mut ratified_postgres::CopyRow<'_>) -> Result<(), ratified::Cause> {
            row.value(format_args!("{{{},NULL}}", self.1)).value(self.1).text(self.0);
            Ok(())
        }
    }
    for (n, staging) in (1..).zip(STAGINGS) {
        let database = Database::new(&place.server.url().replace("tester@", "job@")).unwrap();
        let table = Table::new("odd", ["a", "s", "Mo od"]).unwrap().in_schema(&name).unwrap();
        let sink = PostgresSink::builder(database, [table]).name(&name).schema("own").staging(staging).build().unwrap();
        let (committer, mut writer) = (sink.committer().await.unwrap(), sink.writer().await.unwrap());
        let mut handle = writer.begin(&txn(n)).await.unwrap();
        writer.write(&txn(n), &mut handle, vec![Odd("happy", n.into())]).await.unwrap();
        writer.pre_commit(&txn(n), &mut handle).await.unwrap();
        assert_eq!(committer.commit(&txn(n), &handle).await.unwrap(), Committed::Now);
        // What type and domain refuse is told before the decision.
        for wrong in [Odd("angry", 1), Odd("sad", 10)] {
            let mut handle = writer.begin(&txn(9)).await.unwrap();
            writer.write(&txn(9), &mut handle, vec![wrong]).await.unwrap();
            reason(writer.pre_commit(&txn(9), &mut handle).await.unwrap_err());
        }
    }
    let rows = place.server.sql(&format!("SELECT \"Mo od\", id, s, twice, by, a FROM {name}.odd ORDER BY s"));
    assert_eq!(rows, "happy|1|1|2|job|{1,NULL}\nhappy|2|2|4|job|{2,NULL}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_role_has_prepared_is_told_at_open_and_a_read_only_default_is_overruled() {
    let place = place_of_job();
    let name = place.name.clone();
    place.server.sql(&format!(
        "CREATE ROLE other LOGIN; GRANT ALL ON SCHEMA own, {name} TO other; GRANT ALL ON ALL TABLES IN SCHEMA own, {name} TO other;
         GRANT ALL ON ALL SEQUENCES IN SCHEMA own TO other; ALTER ROLE job SET default_transaction_read_only = on"
    ));
    let (committer, mut writer) = open(&sink(&place, Staging::Prepared, "job", "low")).await;
    committer.fence(&txn(1).client, txn(1).epoch).await.unwrap();
    let handle = stage(&mut writer, &txn(1), &[1]).await;
    let gid = place.prepared();
    let others = sink(&place, Staging::Prepared, "other", "low").committer().await.unwrap();
    let told = reason(others.list_staged(&txn(1).client).await.unwrap_err());
    let expected = format!(
        "{gid} was prepared by the role \"job\", and only that role may end it: connect as \"job\", not as \"other\""
    );
    assert_eq!(told, expected);
    let another = "shop.sink.1".parse().unwrap();
    assert_eq!(others.list_staged(&another).await.unwrap(), [], "another client's is nobody's business");
    let superuser = sink(&place, Staging::Prepared, "tester", "low").committer().await.unwrap();
    assert_eq!(superuser.list_staged(&txn(1).client).await.unwrap(), [txn(1).txn_id]);
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_may_not_make_the_sinks_tables_is_told_what_to_have_made() {
    let place = Place::new();
    place.server.sql(&format!(
        "CREATE ROLE job LOGIN; GRANT USAGE ON SCHEMA {0} TO job; GRANT INSERT ON {0}.low TO job",
        place.name
    ));
    let told = refusal(&place, Staging::Prepared, "low").await;
    assert!(
        told.starts_with("make the tables of schema \"own\": ERROR: permission denied for database postgres"),
        "{told}"
    );
    assert!(
        told.ends_with("have somebody who may run what ratified_postgres::control_tables(\"own\") returns"),
        "{told}"
    );
}
