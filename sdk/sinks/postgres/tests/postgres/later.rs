//! What the catalogue cannot tell at open: when it is met, in either way to stage, and that a commit goes on once it is mended.

use std::sync::Arc;

use ratified::{Committed, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink};
use ratified_postgres::{Database, PostgresSink, Staging};
use ratified_servers::Postgres;

use crate::site::{Number, Place, number, stage, txn};

/// Something that is in the way of the row 11 of the table `t`.
struct Obstacle {
    /// Makes the table `t` of a column `n`, and what may come in the way.
    before: &'static str,
    /// What happens once the row is staged; nothing, if it was in the way all along.
    after: &'static str,
    /// How the commit of what a ledger has staged fails.
    told: &'static str,
    /// What lets it go on.
    mend: &'static str,
}

const OBSTACLES: [Obstacle; 11] = [
    Obstacle {
        before: "CREATE TABLE t (n bigint) PARTITION BY RANGE (n); CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (10)",
        after: "",
        told: "ERROR: no partition of relation \"t\" found for row (SQLSTATE 23514)",
        mend: "CREATE TABLE q PARTITION OF t FOR VALUES FROM (10) TO (20); GRANT ALL ON q TO job",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS \
                 'BEGIN RAISE EXCEPTION ''not %'', NEW.n; END'; CREATE TRIGGER no BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
        after: "",
        told: "ERROR: not 11 (SQLSTATE P0001)",
        mend: "DROP TRIGGER no ON t",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint UNIQUE); INSERT INTO t VALUES (11)",
        after: "",
        told: "(SQLSTATE 23505); detail: Key (n)=(11) already exists.",
        mend: "DELETE FROM t",
    },
    Obstacle {
        before: "CREATE TABLE parent (n bigint PRIMARY KEY); CREATE TABLE t (n bigint REFERENCES parent)",
        after: "",
        told: "(SQLSTATE 23503); detail: Key (n)=(11) is not present in table \"parent\".",
        mend: "INSERT INTO parent VALUES (11)",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint, most bigint DEFAULT 10, CHECK (n < most))",
        after: "",
        told: "violates check constraint \"t_check\" (SQLSTATE 23514)",
        mend: "ALTER TABLE t ALTER most SET DEFAULT 20",
    },
    Obstacle {
        before: "CREATE TABLE gate (shut bool); INSERT INTO gate VALUES (false); GRANT SELECT ON gate TO job; \
                 CREATE FUNCTION is_open() RETURNS bool LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT NOT shut FROM SCHEMA.gate); END'; \
                 CREATE TABLE t (n bigint CHECK (is_open()))",
        after: "UPDATE gate SET shut = true",
        told: "violates check constraint \"t_check\" (SQLSTATE 23514)",
        mend: "UPDATE gate SET shut = false",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint)",
        after: "REVOKE INSERT ON t FROM job",
        told: "ERROR: permission denied for table t (SQLSTATE 42501)",
        mend: "GRANT INSERT ON t TO job",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint)",
        after: "ALTER TABLE t RENAME n TO m",
        told: "ERROR: column \"n\" of relation \"t\" does not exist (SQLSTATE 42703)",
        mend: "ALTER TABLE t RENAME m TO n",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint)",
        after: "ALTER TABLE t ADD must bigint NOT NULL",
        told: "ERROR: null value in column \"must\" of relation \"t\" violates not-null constraint (SQLSTATE 23502)",
        mend: "ALTER TABLE t ALTER must SET DEFAULT 0",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint)",
        after: "ALTER TABLE t RENAME TO u",
        told: ".t\" does not exist (SQLSTATE 42P01)",
        mend: "ALTER TABLE u RENAME TO t",
    },
    Obstacle {
        before: "CREATE TABLE t (n bigint); ALTER TABLE t ENABLE ROW LEVEL SECURITY; \
                 CREATE POLICY few ON t USING (true) WITH CHECK (n < 10)",
        after: "",
        told: "ERROR: new row violates row-level security policy for table \"t\" (SQLSTATE 42501)",
        mend: "DROP POLICY few ON t; CREATE POLICY all_rows ON t USING (true)",
    },
];

fn server_of_job() -> Arc<Postgres> {
    let server = Postgres::start();
    server.sql("CREATE ROLE job LOGIN; GRANT CREATE ON DATABASE postgres TO job");
    Arc::new(server)
}

fn place_of(server: &Arc<Postgres>, before: &str) -> Place {
    let place = Place::in_server(server.clone());
    let name = &place.name;
    let before = before.replace("SCHEMA.", &format!("{name}."));
    place.server.sql(&format!(
        "SET search_path = {name}; {before}; \
         GRANT USAGE ON SCHEMA {name} TO job; GRANT SELECT, INSERT ON t TO job"
    ));
    place
}

fn sink(place: &Place, staging: Staging) -> PostgresSink<Number> {
    let database = Database::new(&place.server.url().replace("tester@", "job@")).unwrap();
    let builder = PostgresSink::builder(database, [place.table("t")]).name(&place.name).schema("own");
    builder.staging(staging).build().unwrap()
}

fn told(error: SinkError) -> String {
    match error {
        SinkError::Rejected(why) => why.to_string(),
        error => panic!("not rejected: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_ledger_meets_behind_the_decision_loses_nothing_and_goes_on_once_it_is_mended() {
    let server = server_of_job();
    for Obstacle { before, after, told: expected, mend } in OBSTACLES {
        let place = place_of(&server, before);
        let run = |statements: &str| drop(place.server.sql(&format!("SET search_path = {}; {statements}", place.name)));
        let count = || place.server.sql(&format!("SELECT count(*) FROM {}.t WHERE n = 11", place.name));
        let sink = sink(&place, Staging::Ledger);
        let (committer, mut writer) = (sink.committer().await.unwrap(), sink.writer().await.unwrap());
        let handle = stage(&mut writer, &txn(1), &[11]).await;
        run(after);
        for _ in 0..2 {
            let told = told(committer.commit(&txn(1), &handle).await.unwrap_err());
            assert!(told.contains(&format!("move staged rows to \"{}\".\"t\": ", place.name)), "{told}");
            assert!(told.contains(expected), "{told}, not {expected}");
        }
        run(mend);
        assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now, "{mend}");
        assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Already, "{mend}");
        assert_eq!(count(), "1", "{mend}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_meets_nothing_behind_the_decision() {
    let server = server_of_job();
    for Obstacle { before, after, told: expected, .. } in OBSTACLES {
        let place = place_of(&server, before);
        let sink = sink(&place, Staging::Prepared);
        let committer = sink.committer().await.unwrap();
        let mut writer = match sink.writer().await {
            Ok(writer) => writer,
            Err(error) => {
                assert!(before.contains("ROW LEVEL SECURITY"), "{error}");
                continue;
            }
        };
        let mut handle = writer.begin(&txn(1)).await.unwrap();
        writer.write(&txn(1), &mut handle, vec![number(11)]).await.unwrap();
        let prepared = writer.pre_commit(&txn(1), &mut handle).await;
        if after.is_empty() {
            let told = told(prepared.unwrap_err());
            assert!(told.contains(expected), "{told}, not {expected}");
            continue;
        }
        prepared.unwrap();
        // What would change the table waits for the prepared transaction, and here gives up.
        let changed = format!("SET lock_timeout = 100; SET search_path = {}; {after}", place.name);
        assert_eq!(place.server.try_sql(&changed).is_err(), after.starts_with("ALTER TABLE"), "{after}");
        assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now, "{after}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_that_notifies_is_told_at_pre_commit_where_transactions_are_prepared() {
    let place = place_of(
        &server_of_job(),
        "CREATE TABLE t (n bigint); CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN NOTIFY rows; RETURN NEW; END'; CREATE TRIGGER tell AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
    );
    let mut writer = sink(&place, Staging::Prepared).writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, vec![number(11)]).await.unwrap();
    let told = told(writer.pre_commit(&txn(1), &mut handle).await.unwrap_err());
    assert!(told.contains("cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY"), "{told}");
    let sink = sink(&place, Staging::Ledger);
    let handle = stage(&mut sink.writer().await.unwrap(), &txn(2), &[11]).await;
    assert_eq!(sink.committer().await.unwrap().commit(&txn(2), &handle).await.unwrap(), Committed::Now);
}
