//! What is missing or wrong is told at open, or when a record comes, with its name.

use ratified::{Committed, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink};

use ratified_postgres::{Database, PostgresSink, Staging, Table, control_tables};

use crate::site::{Number, Place, STAGINGS, number, open, stage, txn};

fn rejection<T: std::fmt::Debug>(result: Result<T, SinkError>) -> String {
    match result {
        Err(SinkError::Rejected(why)) => why.to_string(),
        other => panic!("not rejected: {other:?}"),
    }
}

/// How opening a writer of this table, as this user, is refused.
async fn refusal(place: &Place, table: Table, user: &str) -> String {
    let database = Database::new(&place.server.url().replace("tester@", &format!("{user}@"))).unwrap();
    let sink = PostgresSink::<Number>::builder(database, [table]).name(&place.name).schema("own").build().unwrap();
    match sink.committer().await {
        Ok(_) => rejection(sink.writer().await),
        refused => rejection(refused),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_cannot_be_written_is_told_at_open() {
    let place = Place::new();
    let name = &place.name;
    place.server.sql(&format!("CREATE UNLOGGED TABLE {name}.fleeting (n bigint); CREATE ROLE job LOGIN"));
    let here = |table: Table| table.in_schema(name).unwrap();
    assert_eq!(
        refusal(&place, here(Table::new("lost", ["n"]).unwrap()), "tester").await,
        format!("table \"{name}\".\"lost\" does not exist, or the role may not see it")
    );
    assert_eq!(
        refusal(&place, here(Table::new("low", ["n", "m"]).unwrap()), "tester").await,
        format!("table \"{name}\".\"low\" has no column \"m\"")
    );
    assert_eq!(
        refusal(&place, here(Table::new("fleeting", ["n"]).unwrap()), "tester").await,
        format!(
            "table \"{name}\".\"fleeting\" is unlogged or temporary: a crash of the server empties it, while its commits \
             would be remembered"
        )
    );
    place.server.sql(&format!("GRANT USAGE ON SCHEMA {name} TO job; GRANT USAGE ON SCHEMA own TO job"));
    assert_eq!(
        refusal(&place, place.table("low"), "job").await,
        format!("the role has no INSERT privilege on table \"{name}\".\"low\"")
    );
    assert!(refusal(&place, place.table("low"), "nobody").await.contains("role \"nobody\" does not exist"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_privileges_are_enough() {
    let place = Place::new();
    let name = &place.name;
    place.server.sql("CREATE ROLE job LOGIN");
    assert!(refusal(&place, place.table("low"), "job").await.contains("permission denied for database postgres"));
    place.server.sql(&control_tables("own"));
    let of_prepared = format!(
        "GRANT USAGE ON SCHEMA own TO job; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA own TO job; \
         GRANT USAGE ON ALL SEQUENCES IN SCHEMA own TO job; GRANT USAGE ON SCHEMA {name} TO job; \
         GRANT INSERT ON ALL TABLES IN SCHEMA {name} TO job"
    );
    let more_of_ledger =
        format!("GRANT CREATE ON SCHEMA own TO job; GRANT SELECT ON ALL TABLES IN SCHEMA {name} TO job");
    let url = place.server.url().replace("tester@", "job@");
    for (n, staging, grants) in [(1, Staging::Prepared, of_prepared), (3, Staging::Ledger, more_of_ledger)] {
        place.server.sql(&grants);
        let sink = place.builder_at(&url, staging).build().unwrap();
        let (committer, mut writer) = open(&sink).await;
        committer.fence(&txn(n).client, txn(n).epoch).await.unwrap();
        let handle = stage(&mut writer, &txn(n), &[n.into()]).await;
        assert_eq!(committer.commit(&txn(n), &handle).await.unwrap(), Committed::Now);
        assert_eq!(committer.commit(&txn(n), &handle).await.unwrap(), Committed::Already);
        let handle = stage(&mut writer, &txn(n + 1), &[0]).await;
        committer.abort(&txn(n + 1), Some(&handle)).await.unwrap();
    }
    assert_eq!(place.visible(), [1, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_a_row_ends_the_writer_at_once_or_at_pre_commit() {
    let place = Place::new();
    place.server.sql(&format!("ALTER TABLE {}.high ALTER n TYPE smallint", place.name));
    for staging in STAGINGS {
        let sink = place.builder(staging).max_row_bytes(30).build().unwrap();
        let mut writer = sink.writer().await.unwrap();
        let mut handle = writer.begin(&txn(1)).await.unwrap();
        let nowhere = Number { n: 1, table: 2 };
        let why = rejection(writer.write(&txn(1), &mut handle, vec![nowhere]).await);
        assert_eq!(why, "a record goes to table 2, and the sink has 2 from 0 on");
        assert_eq!(rejection(writer.pre_commit(&txn(1), &mut handle).await), why, "sticky");

        let too_wide = Number { n: 99_999, table: 1 };
        writer.begin(&txn(2)).await.unwrap();
        writer.write(&txn(2), &mut handle, vec![number(1), too_wide]).await.unwrap();
        let why = rejection(writer.pre_commit(&txn(2), &mut handle).await);
        assert!(why.contains("value \"99999\" is out of range for type smallint (SQLSTATE 22003)"), "{why}");
        assert!(why.contains("line 1, column n"), "{why}");
        assert_eq!((place.visible(), place.prepared()), (vec![], String::new()));
        stage(&mut writer, &txn(3), &[5]).await;
        sink.committer().await.unwrap().abort(&txn(3), None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_taken_up_to_its_bound() {
    let place = Place::new();
    // The number and its line end.
    let sink = place.builder(Staging::Prepared).max_row_bytes(4).build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, vec![number(999)]).await.unwrap();
    let why = rejection(writer.write(&txn(1), &mut handle, vec![number(1000)]).await);
    assert_eq!(why, format!("a row for \"{}\".\"low\" of 5 bytes is longer than 4", place.name));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_there_already_is_told_before_the_decision_or_by_the_ledger_behind_it() {
    let place = Place::new();
    place.server.sql(&format!("CREATE UNIQUE INDEX ON {0}.low (n); INSERT INTO {0}.low (n) VALUES (7)", place.name));
    let mut writer = place.sink(Staging::Prepared).writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, vec![number(7)]).await.unwrap();
    let why = rejection(writer.pre_commit(&txn(1), &mut handle).await);
    assert!(why.contains("(SQLSTATE 23505); detail: Key (n)=(7) already exists."), "{why}");

    let (committer, mut writer) = open(&place.sink(Staging::Ledger)).await;
    let handle = stage(&mut writer, &txn(2), &[6, 7]).await;
    let why = rejection(committer.commit(&txn(2), &handle).await);
    assert!(why.contains("(SQLSTATE 23505); detail: Key (n)=(7) already exists."), "{why}");
    assert_eq!(place.visible(), [7]);
    // Nothing is lost: once the conflict is removed by hand, the commit goes on.
    place.server.sql(&format!("DELETE FROM {}.low", place.name));
    assert_eq!(committer.commit(&txn(2), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), [6, 7]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_is_told_before_the_decision_also_with_a_ledger_and_a_changed_table_gets_a_new_stage() {
    let place = Place::new();
    let sink = place.sink(Staging::Ledger);
    let (committer, mut writer) = open(&sink).await;
    let before = stage(&mut writer, &txn(1), &[3]).await;
    place.server.sql(&format!("ALTER TABLE {}.low ADD CHECK (n < 10), ADD COLUMN more text DEFAULT 'x'", place.name));
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(2)).await.unwrap();
    writer.write(&txn(2), &mut handle, vec![number(11)]).await.unwrap();
    let why = rejection(writer.pre_commit(&txn(2), &mut handle).await);
    assert!(why.contains("violates check constraint"), "{why}");
    let after = stage(&mut writer, &txn(3), &[4]).await;
    for (n, handle) in [(1, before), (3, after)] {
        assert_eq!(committer.commit(&txn(n), &handle).await.unwrap(), Committed::Now);
    }
    assert_eq!(place.server.sql(&format!("SELECT n, more FROM {}.low ORDER BY seq", place.name)), "3|x\n4|x");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_are_run_all_or_none() {
    let place = Place::new();
    let database = Database::new(&place.server.url()).unwrap();
    database.run("CREATE TABLE one (n bigint); INSERT INTO one VALUES (1)").await.unwrap();
    let error = database.run("INSERT INTO one VALUES (2); INSERT INTO two VALUES (3)").await.unwrap_err();
    let expected = "run the statements: ERROR: relation \"two\" does not exist (SQLSTATE 42P01)";
    assert_eq!(error.to_string(), expected);
    assert_eq!(place.server.sql("SELECT n FROM one"), "1");
}
