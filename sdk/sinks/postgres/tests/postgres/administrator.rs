//! What an administrator, a failover or a restore does behind the sink's back is told, exactly and loudly.

use ratified::{Committed, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink};

use ratified_postgres::Staging;
use ratified_servers::Postgres;

use crate::site::{Place, STAGINGS, client, number, open, stage, txn};

fn rejection<T: std::fmt::Debug>(result: Result<T, SinkError>) -> String {
    match result {
        Err(SinkError::Rejected(why)) => why.to_string(),
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_rolled_back_by_hand_is_told_to_be_lost_when_it_was_decided_to_commit_it() {
    let place = Place::new();
    let (committer, mut writer) = open(&place.sink(Staging::Prepared)).await;
    let handle = stage(&mut writer, &txn(1), &[1, 2]).await;
    let gid = place.prepared();
    assert!(gid.starts_with(&format!("ratified:{}:", place.name)) && gid.ends_with(":shop.sink.0"), "{gid}");
    place.server.sql(&format!("ROLLBACK PREPARED '{gid}'"));
    let expected = format!(
        "{gid} is lost: it is not prepared, and no marker of it in \"own\".\"marker\" says that it was committed. It was \
         rolled back by hand, or lost by a failover or a restore, after it was decided to commit it"
    );
    for _ in 0..2 {
        assert_eq!(rejection(committer.commit(&txn(1), &handle).await), expected);
    }
    assert_eq!(place.visible(), Vec::<u64>::new());
    // Had it been decided to abort it, all would be well.
    committer.abort(&txn(1), Some(&handle)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_committed_by_hand_is_already_or_told_when_it_was_decided_to_abort_it() {
    let place = Place::new();
    let (committer, mut writer) = open(&place.sink(Staging::Prepared)).await;
    let handle = stage(&mut writer, &txn(1), &[1, 2]).await;
    place.server.sql(&format!("COMMIT PREPARED '{}'", place.prepared()));
    let expected = format!(
        "{} of shop.sink.0 was decided to be aborted, but its marker in \"own\".\"marker\" says that it is committed: by \
         hand, for example. Its rows are visible, and the job is about to write them again",
        txn(1).txn_id
    );
    for handle in [Some(&handle), None] {
        assert_eq!(rejection(committer.abort(&txn(1), handle).await), expected);
    }
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Already);
    assert_eq!(place.visible(), [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staged_rows_removed_by_hand_are_told_to_be_lost_as_a_whole_or_in_part() {
    let place = Place::new();
    let (committer, mut writer) = open(&place.sink(Staging::Ledger)).await;
    let handle = stage(&mut writer, &txn(1), &[1, 2, 3]).await;
    let stage_table =
        place.server.sql("SELECT relname FROM pg_class WHERE relname ~ '^staged_[0-9a-f]{16}$' ORDER BY 1");
    for table in stage_table.lines() {
        place.server.sql(&format!("DELETE FROM own.{table} WHERE n = 2"));
    }
    let why = rejection(committer.commit(&txn(1), &handle).await);
    assert!(why.ends_with("holds 2 rows of a transaction that staged 3: some were removed"), "{why}");
    assert_eq!((place.visible(), committer.list_staged(&client()).await.unwrap()), (vec![], vec![txn(1).txn_id]));
    place.server.sql("DELETE FROM own.staged");
    let why = rejection(committer.commit(&txn(1), &handle).await);
    let expected = format!("{} of shop.sink.0 is lost: it is not staged in \"own\".\"staged\", and", txn(1).txn_id);
    assert!(why.starts_with(&expected), "{why}");
    assert_eq!(place.server.sql("SELECT count(*) FROM own.marker"), "0", "a lost commit leaves no marker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_of_others_are_neither_listed_nor_touched() {
    let place = Place::new();
    let (committer, mut writer) = open(&place.sink(Staging::Prepared)).await;
    stage(&mut writer, &txn(1), &[1]).await;
    let own = place.prepared();
    let other_id = own.replace(&txn(1).txn_id.to_string(), &txn(7).txn_id.to_string());
    let other_sink = other_id.replace(&place.name, "other");
    let other_client = format!("{other_id}0");
    for gid in ["anything", &other_sink, &other_client] {
        place.server.sql(&format!("BEGIN; CREATE TABLE t{} (); PREPARE TRANSACTION '{gid}'", gid.len()));
    }
    place.server.sql("CREATE DATABASE elsewhere");
    assert_eq!(committer.list_staged(&client()).await.unwrap(), [txn(1).txn_id]);
    for n in [1, 2, 7] {
        committer.abort(&txn(n), None).await.unwrap();
    }
    let left: Vec<String> = place.prepared().lines().map(str::to_owned).collect();
    let mut expected = ["anything".to_owned(), other_sink, other_client];
    expected.sort();
    assert_eq!(left, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_prepares_nothing_is_recognised_at_open_and_the_ledger_does_without() {
    let place = Place::in_server(Postgres::start_with(&[("max_prepared_transactions", "0")]).into());
    assert_eq!(
        rejection(place.sink(Staging::Prepared).committer().await),
        "the server has max_prepared_transactions = 0 and so cannot prepare any: set it in postgresql.conf to more than all \
         its writers can have prepared at once (ALTER SYSTEM SET max_prepared_transactions = 64), restart the server, and \
         start again; or stage by Staging::Ledger, which does not need it"
    );
    let (committer, mut writer) = open(&place.sink(Staging::Ledger)).await;
    let handle = stage(&mut writer, &txn(1), &[1]).await;
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_prepared_transaction_too_many_ends_the_writer_with_the_setting_to_change() {
    let place = Place::in_server(Postgres::start_with(&[("max_prepared_transactions", "1")]).into());
    let (committer, mut writer) = open(&place.sink(Staging::Prepared)).await;
    let first = stage(&mut writer, &txn(1), &[1]).await;
    let mut handle = writer.begin(&txn(2)).await.unwrap();
    writer.write(&txn(2), &mut handle, vec![number(2)]).await.unwrap();
    for _ in 0..2 {
        let error = writer.pre_commit(&txn(2), &mut handle).await.unwrap_err().to_string();
        let expected = "hint: Increase max_prepared_transactions (currently 1).";
        assert!(error.contains("(Indeterminate)") && error.contains(expected), "{error}");
    }
    assert_eq!(committer.commit(&txn(1), &first).await.unwrap(), Committed::Now);
    let handle = stage(&mut writer, &txn(3), &[3]).await;
    assert_eq!(committer.commit(&txn(3), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), [1, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_database_that_would_lose_or_end_something_are_overruled() {
    let place = Place::new();
    place.server.sql(
        "ALTER DATABASE postgres SET synchronous_commit = off; \
         ALTER DATABASE postgres SET idle_in_transaction_session_timeout = 30; \
         ALTER DATABASE postgres SET statement_timeout = 30; \
         ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'",
    );
    for (n, staging) in (1..).zip(STAGINGS) {
        let (committer, mut writer) = open(&place.sink(staging)).await;
        let mut handle = writer.begin(&txn(n)).await.unwrap();
        writer.write(&txn(n), &mut handle, vec![number(n.into())]).await.unwrap();
        // Longer than the timeouts of the database.
        place.server.sql("SET statement_timeout = 0; SELECT pg_sleep(0.1)");
        writer.write(&txn(n), &mut handle, vec![number(n.into())]).await.unwrap();
        writer.pre_commit(&txn(n), &mut handle).await.unwrap();
        assert_eq!(committer.commit(&txn(n), &handle).await.unwrap(), Committed::Now);
    }
    assert_eq!(place.visible(), [1, 1, 2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_staged_one_way_is_finished_by_a_sink_that_stages_the_other_way() {
    let place = Place::new();
    let [prepared, ledger] = STAGINGS.map(|staging| place.sink(staging));
    let (of_prepared, mut writer) = open(&prepared).await;
    let (first, aborted) = (stage(&mut writer, &txn(1), &[1]).await, stage(&mut writer, &txn(2), &[2]).await);
    let (of_ledger, mut writer) = open(&ledger).await;
    let second = stage(&mut writer, &txn(3), &[3]).await;
    stage(&mut writer, &txn(4), &[4]).await;
    let all = [1, 2, 3, 4].map(|n| txn(n).txn_id);
    assert_eq!(of_prepared.list_staged(&client()).await.unwrap(), all);
    assert_eq!(of_ledger.commit(&txn(1), &first).await.unwrap(), Committed::Now);
    of_ledger.abort(&txn(2), Some(&aborted)).await.unwrap();
    assert_eq!(of_prepared.commit(&txn(3), &second).await.unwrap(), Committed::Now);
    of_prepared.abort(&txn(4), None).await.unwrap();
    assert_eq!(of_prepared.list_staged(&client()).await.unwrap(), []);
    assert_eq!(place.visible(), [1, 3]);
    let of_stranger = place.builder(Staging::Prepared).name("stranger").build().unwrap().committer().await.unwrap();
    let why = rejection(of_stranger.commit(&txn(1), &first).await);
    assert_eq!(why, format!("{} was staged by the sink {}, not stranger", txn(1).txn_id, place.name));
}
