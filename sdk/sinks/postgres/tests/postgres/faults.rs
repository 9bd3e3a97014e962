//! Connections that are cut, a disk that is full, and servers whose certificates nobody trusts.

use std::time::Duration;

use ratified::{Certainty, Committed, Epoch, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink};

use ratified_postgres::{
    Database, PostgresSink, Staging,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, pem::PemObject},
    },
};
use ratified_servers::{Cutter, Postgres, SmallDisk, cutter::Side};

use crate::site::{Number, Place, STAGINGS, client, number, open, stage, txn};

/// Asks until it is told, as the runtime does.
async fn commit_until_told(committer: &impl SinkCommitter<Handle = H>, n: u32, handle: &H) -> Committed {
    loop {
        match committer.commit(&txn(n), handle).await {
            Ok(committed) => return committed,
            Err(SinkError::Retry { .. }) => tokio::task::yield_now().await,
            Err(rejected) => panic!("{n}: {rejected}"),
        }
    }
}

type H = ratified_postgres::PostgresHandle;

/// A transaction through connections that are cut when one side has sent so many bytes. Whether they were.
async fn cut_at(place: &Place, staging: Staging, side: Side, n: u32, bytes: u64) -> bool {
    let direct = place.sink(staging).committer().await.unwrap();
    let cutter = Cutter::start(place.server.address());
    let url = place.server.url_at(cutter.address());
    let (committer, mut writer) = open(&place.builder_at(&url, staging).buffer_bytes(16).build().unwrap()).await;
    cutter.cut_after(side, bytes);
    let staged = async {
        let mut handle = writer.begin(&txn(n)).await?;
        for number_of in 0..40 {
            let table = usize::from(number_of >= 20);
            writer.write(&txn(n), &mut handle, vec![Number { n: number_of, table }]).await?;
        }
        writer.pre_commit(&txn(n), &mut handle).await?;
        Ok::<_, SinkError>(handle)
    };
    match staged.await {
        Ok(handle) => {
            assert_eq!(direct.list_staged(&client()).await.unwrap(), [txn(n).txn_id]);
            let _ = commit_until_told(&committer, n, &handle).await;
            assert_eq!(direct.commit(&txn(n), &handle).await.unwrap(), Committed::Already);
            assert_eq!(place.visible(), (0..40).collect::<Vec<u64>>(), "{side:?} {bytes}");
            place.server.sql(&format!("DELETE FROM {0}.low; DELETE FROM {0}.high", place.name));
        }
        Err(error) => {
            assert!(matches!(error, SinkError::Retry { .. }), "{side:?} {bytes}: {error}");
            // It may have been staged all the same: the answer may be what was lost. First nothing more may happen.
            direct.fence(&client(), Epoch::new(u64::from(n) + 1)).await.unwrap();
            direct.abort(&txn(n), None).await.unwrap();
            assert_eq!(place.visible(), Vec::<u64>::new());
        }
    }
    assert_eq!(direct.list_staged(&client()).await.unwrap(), []);
    place.server.sql("DELETE FROM own.owner");
    cutter.has_cut()
}

/// Cuts in the midst of everything, COPY in both directions included.
async fn cut_everywhere(staging: Staging) {
    let place = Place::new();
    let mut n = 0;
    for side in [Side::Caller, Side::Server] {
        let mut cuts = 0;
        loop {
            n += 1;
            if !cut_at(&place, staging, side, n, 1 + cuts * 53).await {
                break;
            }
            cuts += 1;
        }
        println!("{staging:?}: {cuts} cuts of what the {side:?} sends");
        assert!(cuts > 10, "{cuts} cuts of what the {side:?} sends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_moment_loses_and_doubles_nothing_that_is_prepared() {
    cut_everywhere(Staging::Prepared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_moment_loses_and_doubles_nothing_of_the_ledger() {
    cut_everywhere(Staging::Ledger).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_in_the_middle_of_a_copy_ends_the_transaction_and_not_the_writer() {
    for staging in STAGINGS {
        let place = Place::new();
        let cutter = Cutter::start(place.server.address());
        let url = place.server.url_at(cutter.address());
        let (committer, mut writer) = open(&place.builder_at(&url, staging).buffer_bytes(1).build().unwrap()).await;
        let mut handle = writer.begin(&txn(1)).await.unwrap();
        writer.write(&txn(1), &mut handle, vec![number(1)]).await.unwrap();
        cutter.cut();
        // Sooner or later a write tells; the one that flushes tells for certain.
        let _ = writer.write(&txn(1), &mut handle, vec![number(2)]).await;
        for _ in 0..2 {
            let error = writer.pre_commit(&txn(1), &mut handle).await.unwrap_err();
            assert!(matches!(error, SinkError::Retry { certainty: Certainty::Indeterminate, .. }), "{error}");
        }
        committer.abort(&txn(1), Some(&handle)).await.unwrap();
        let handle = stage(&mut writer, &txn(2), &[3]).await;
        assert_eq!(committer.commit(&txn(2), &handle).await.unwrap(), Committed::Now);
        assert_eq!(place.visible(), [3]);
    }
}

/// Two tables on a disk of 4 MiB, most of which something else fills.
fn on_a_full_disk(place: &Place, disk: &SmallDisk) {
    place.server.give(&disk.path());
    place.server.sql(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.path().display()));
    place.server.sql(&format!(
        "ALTER TABLE {0}.low SET TABLESPACE small; CREATE TABLE filler (t text) TABLESPACE small; \
         ALTER TABLE filler ALTER t SET STORAGE PLAIN; \
         INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, 440)",
        place.name
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_at_the_server_ends_the_transaction_before_anything_is_decided() {
    let disk = SmallDisk::mount(4 * 1024 * 1024);
    let place = Place::new();
    on_a_full_disk(&place, &disk);
    let many: Vec<u64> = (0..60_000).collect();
    let (committer, mut writer) = open(&place.sink(Staging::Prepared)).await;
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    let _ = writer.write(&txn(1), &mut handle, many.iter().map(|n| number(*n)).collect()).await;
    for _ in 0..2 {
        let error = writer.pre_commit(&txn(1), &mut handle).await.unwrap_err();
        assert!(error.to_string().contains("No space left on device (SQLSTATE 53100)"), "{error}");
        assert!(matches!(error, SinkError::Retry { certainty: Certainty::Indeterminate, .. }), "{error}");
    }
    committer.abort(&txn(1), Some(&handle)).await.unwrap();
    assert_eq!((place.visible(), place.prepared()), (vec![], String::new()));
    place.server.sql("DROP TABLE filler");
    place.server.sql("CHECKPOINT");
    let handle = stage(&mut writer, &txn(2), &many).await;
    assert_eq!(committer.commit(&txn(2), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), many);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_the_ledger_that_meets_a_full_disk_is_repeated_until_there_is_room() {
    let disk = SmallDisk::mount(4 * 1024 * 1024);
    let place = Place::new();
    on_a_full_disk(&place, &disk);
    let many: Vec<u64> = (0..60_000).collect();
    let (committer, mut writer) = open(&place.sink(Staging::Ledger)).await;
    let handle = stage(&mut writer, &txn(1), &many).await;
    for _ in 0..2 {
        let error = committer.commit(&txn(1), &handle).await.unwrap_err();
        assert!(error.to_string().contains("No space left on device (SQLSTATE 53100)"), "{error}");
        assert!(matches!(error, SinkError::Retry { certainty: Certainty::Determinate, .. }), "{error}");
        assert_eq!(place.visible(), Vec::<u64>::new());
    }
    place.server.sql("DROP TABLE filler");
    place.server.sql("CHECKPOINT");
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), many);
}

fn trusting(pem: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pem).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
    builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots).with_no_client_auth()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_spoken_only_with_a_server_that_is_trusted() {
    let mut server = Postgres::start();
    let certificate = server.speak_tls();
    let place = Place::in_server(server.into());
    let url = place.server.url().replace("sslmode=disable", "sslmode=require");
    let database = || Database::new(&url).unwrap().timeout(Duration::from_secs(20)).unwrap();
    let sink_of = |database| PostgresSink::<Number>::builder(database, [place.table("low")]).build().unwrap();

    let refused = sink_of(database()).committer().await.unwrap_err();
    assert!(matches!(refused, SinkError::Rejected(_)), "{refused}");
    let text = refused.to_string();
    assert!(text.contains("error performing TLS handshake") && text.contains("certificate"), "{text}");

    let (committer, mut writer) = open(&sink_of(database().tls(trusting(&certificate)))).await;
    let of_writers = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
         WHERE application_name LIKE 'ratified%'";
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    assert_eq!(place.server.sql(of_writers), "t");
    writer.write(&txn(1), &mut handle, vec![number(1)]).await.unwrap();
    writer.pre_commit(&txn(1), &mut handle).await.unwrap();
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(place.visible(), [1]);
}
