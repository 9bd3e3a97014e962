//! A newer owner ends older ones, and nobody else.

use std::{
    sync::{Mutex, mpsc},
    time::Duration,
};

use ratified::{Committed, Epoch, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext};

use ratified_postgres::{Database, PostgresHandle, PostgresStep, PostgresWriter, Staging};

use crate::site::{Number, Place, STAGINGS, client, number, open, stage, txn};

fn of_epoch(mut txn: TxnContext, epoch: u64) -> TxnContext {
    txn.epoch = Epoch::new(epoch);
    txn
}

async fn begun(place: &Place, staging: Staging, txn: &TxnContext) -> PostgresWriter<Number> {
    let mut writer = place.builder(staging).buffer_bytes(1).build().unwrap().writer().await.unwrap();
    let mut handle = writer.begin(txn).await.unwrap();
    writer.write(txn, &mut handle, vec![number(1)]).await.unwrap();
    writer
}

/// Waits until the server has seen that a session has ended or been made.
async fn writing_sessions(place: &Place, expected: usize) {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ratified:%'";
    for _ in 0..1000 {
        if place.server.sql(count) == expected.to_string() {
            return;
        }
    }
    panic!("not {expected} writing sessions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_older_owners_are_gone_when_the_fence_returns_and_others_go_on() {
    for staging in STAGINGS {
        let place = Place::new();
        let (committer, mut prepared_by) = open(&place.sink(staging)).await;
        let kept = stage(&mut prepared_by, &of_epoch(txn(1), 1), &[7]).await;
        let mut old = begun(&place, staging, &of_epoch(txn(2), 1)).await;
        let mut of_its_own = begun(&place, staging, &of_epoch(txn(3), 2)).await;
        let mut newer = begun(&place, staging, &of_epoch(txn(4), 3)).await;
        let mut neighbour = of_epoch(txn(5), 1);
        neighbour.client = "shop.sink.00".parse().unwrap();
        let mut of_neighbour = begun(&place, staging, &neighbour).await;
        writing_sessions(&place, 5).await;

        committer.fence(&client(), Epoch::new(2)).await.unwrap();

        // The idle one that has prepared, and the one in the middle of its transaction.
        assert_eq!(
            place.server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ratified:%'"),
            "3"
        );
        let handle = &mut kept.clone();
        assert!(old.pre_commit(&of_epoch(txn(2), 1), handle).await.is_err());
        of_its_own.pre_commit(&of_epoch(txn(3), 2), handle).await.unwrap();
        newer.pre_commit(&of_epoch(txn(4), 3), handle).await.unwrap();
        of_neighbour.pre_commit(&neighbour, handle).await.unwrap();
        let staged = [1, 3, 4].map(|n| txn(n).txn_id);
        assert_eq!(committer.list_staged(&client()).await.unwrap(), staged);
        assert_eq!(committer.commit(&of_epoch(txn(1), 2), &kept).await.unwrap(), Committed::Now);
        assert_eq!(place.visible(), [7]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_wakes_up_late_is_refused_whatever_it_does() {
    for staging in STAGINGS {
        let place = Place::new();
        let (committer, mut writer) = open(&place.sink(staging)).await;
        committer.fence(&client(), Epoch::new(u64::MAX)).await.unwrap();
        let expected = format!(
            "a newer owner of shop.sink.0 writes to this database, of epoch {}, while this one has epoch 1; if there is none \
             because the coordinator was replaced, remove the client's row from \"own\".\"owner\"",
            u64::MAX
        );
        let refused = [
            writer.begin(&txn(1)).await.map(drop).unwrap_err(),
            committer.fence(&client(), Epoch::FIRST).await.unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(&error, SinkError::Rejected(why) if why.to_string() == expected), "{error}");
        }
        stage(&mut writer, &of_epoch(txn(2), u64::MAX), &[1]).await;
        assert_eq!(place.server.sql("SELECT epoch FROM own.owner"), u64::MAX.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_owners_that_take_over_at_once_the_newest_stays_and_no_other_can_stage() {
    let place = Place::new();
    let mut old = begun(&place, Staging::Prepared, &txn(1)).await;
    let sink = place.sink(Staging::Prepared);
    let mut takeovers = Vec::new();
    for epoch in 2..10 {
        let committer = sink.committer().await.unwrap();
        takeovers.push(tokio::spawn(async move { (epoch, committer.fence(&client(), Epoch::new(epoch)).await) }));
    }
    for takeover in takeovers {
        let (epoch, fenced) = takeover.await.unwrap();
        assert!(fenced.is_ok() || epoch < 9, "{epoch}: {fenced:?}");
    }
    let mut handle = stage(&mut sink.writer().await.unwrap(), &of_epoch(txn(9), 9), &[9]).await;
    assert!(old.pre_commit(&txn(1), &mut handle).await.is_err());
    for epoch in 1..9 {
        let begun = sink.writer().await.unwrap().begin(&of_epoch(txn(20), epoch)).await;
        assert!(matches!(begun, Err(SinkError::Rejected(_))), "{epoch}: {begun:?}");
    }
    assert_eq!(sink.committer().await.unwrap().list_staged(&client()).await.unwrap(), [txn(9).txn_id]);
}

/// A process that stops for good in the middle of moving rows, and what its successor needs to finish them.
async fn suspended_while_moving(place: &Place, timeout: Duration) -> (PostgresHandle, Suspended) {
    let (moving, moves) = mpsc::channel();
    let (wake, woken) = mpsc::channel();
    let (moving, woken) = (Mutex::new(moving), Mutex::new(woken));
    let database = Database::new(&place.server.url()).unwrap().timeout(timeout).unwrap();
    let sink = place.builder_on(database, Staging::Ledger).on_step(move |step| {
        if step == PostgresStep::Moved {
            moving.lock().unwrap().send(()).unwrap();
            // Ends when the test does.
            let _ = woken.lock().unwrap().recv();
        }
    });
    let (committer, mut writer) = open(&sink.build().unwrap()).await;
    let handle = stage(&mut writer, &txn(1), &[1, 2]).await;
    let of_zombie = handle.clone();
    tokio::spawn(async move { committer.commit(&txn(1), &of_zombie).await });
    tokio::task::spawn_blocking(move || moves.recv().unwrap()).await.unwrap();
    (handle, Suspended(wake))
}

struct Suspended(#[expect(dead_code, reason = "its drop wakes the zombie")] mpsc::Sender<()>);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_suspended_while_it_moves_rows_is_ended_by_its_successor() {
    let place = Place::new();
    let (handle, _suspended) = suspended_while_moving(&place, Duration::from_secs(3600)).await;
    let successor = place.sink(Staging::Ledger).committer().await.unwrap();
    successor.fence(&client(), Epoch::new(2)).await.unwrap();
    assert_eq!(successor.commit(&of_epoch(txn(1), 2), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), [1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_owner_suspended_while_it_moves_rows_is_ended_by_the_server_if_nobody_fences_it() {
    let place = Place::new();
    let (handle, _suspended) = suspended_while_moving(&place, Duration::from_millis(500)).await;
    let other = place.sink(Staging::Ledger).committer().await.unwrap();
    assert_eq!(other.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), [1, 2]);
}
