//! Up to and with `pre_commit`.

use std::sync::mpsc;

use futures_util::FutureExt as _;

use super::*;

#[tokio::test]
async fn a_transaction_takes_these_steps_in_this_order() {
    let room = Room::new();
    let sink = room.watched(&[]).build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1", "r2", "o3"]).await.unwrap();
    assert_eq!(
        room.steps(),
        [
            "sync /out/.staged",
            "sync /out",
            "sync /",
            "write o",
            "write r",
            "sync o",
            "sync r",
            "sync /out/.staged/shop.sink.3",
        ]
    );
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(room.steps(), ["rename o 0", "rename r 1", "sync /out", "sync /out/.staged/shop.sink.3"]);
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Already);
    assert_eq!(room.steps(), ["sync /out", "sync /out/.staged/shop.sink.3"]);
    assert_eq!((room.read("o"), room.read("r")), ("o1o3".to_owned(), "r2".to_owned()));
}

#[tokio::test]
async fn missing_parents_are_made_and_synced() {
    let room = Room::new();
    let deep = room.root().join("a/b");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = seen.clone();
    let sink = FileSink::<String>::raw(&deep, target("o")).on_step(move |step| {
        if let FileStep::SyncDirectory { path } = step {
            note.lock().unwrap().push((*path).to_owned());
        }
        Ok(())
    });
    sink.build().unwrap().writer().await.unwrap().begin(&txn(1)).await.unwrap();
    let expected = [deep.join(".staged"), deep.clone(), room.root().join("a"), room.root(), room.dir.path().to_owned()];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_handle_lists_files_with_length_and_checksum() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1", "r23"]).await.unwrap();
    let tag = crc32fast::hash(CLIENT.as_bytes());
    let file = |target: &str| format!("{target}-00003-{}-{tag:08x}.bin", id(1));
    assert_eq!(handle.file_names(), [file("o"), file("r")]);
    assert_eq!(handle.bytes(), 5);
    let parts: Vec<_> = handle.parts.iter().map(|part| (part.bytes, part.crc32)).collect();
    assert_eq!(parts, [(2, crc32fast::hash(b"o1")), (3, crc32fast::hash(b"r23"))]);
    assert_eq!(room.staged(), [file("o"), file("r")]);
    assert_eq!(room.visible(), Vec::<String>::new());
}

#[tokio::test]
async fn bytes_are_written_once_the_buffer_is_full_and_not_before() {
    let room = Room::new();
    let sink = room.watched(&[]).buffer_bytes(4).build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    room.steps();
    writer.write(&txn(1), &mut handle, vec!["o12"]).await.unwrap();
    assert_eq!(room.steps(), Vec::<String>::new());
    writer.write(&txn(1), &mut handle, vec!["r"]).await.unwrap();
    assert_eq!(room.steps(), ["write o", "write r"]);
    writer.write(&txn(1), &mut handle, vec!["o", "o4567", "r"]).await.unwrap();
    assert_eq!(room.steps(), ["write o"]);
    writer.pre_commit(&txn(1), &mut handle).await.unwrap();
    assert_eq!(writer.staged_bytes(), 11);
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!((room.read("o"), room.read("r")), ("o12oo4567".to_owned(), "rr".to_owned()));
}

#[tokio::test]
async fn a_record_is_taken_up_to_its_bound() {
    let room = Room::new();
    let sink = room.builder().max_record_bytes(3).build().unwrap();
    stage(&sink, &txn(1), &["o23"]).await.unwrap();
    let refused = refusal(stage(&sink, &txn(2), &["o234"]).await);
    assert_eq!(refused, "a record of 4 bytes is longer than 3");
}

#[tokio::test]
async fn targets_are_taken_up_to_their_bound() {
    let room = Room::new();
    let sink = room.builder().max_targets(2).build().unwrap();
    stage(&sink, &txn(1), &["a", "b", "a"]).await.unwrap();
    let refused = refusal(stage(&sink, &txn(2), &["a", "b", "c"]).await);
    assert_eq!(refused, "c would be more than 2 targets in one transaction");
}

#[tokio::test]
async fn json_lines_are_one_line_per_record() {
    #[derive(serde::Serialize)]
    struct Order {
        id: u64,
        note: &'static str,
    }
    let room = Room::new();
    let sink = FileSink::json_lines(room.root(), target("orders")).build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    let orders = vec![Order { id: 1, note: "two\nlines" }, Order { id: 2, note: "" }];
    writer.write(&txn(1), &mut handle, orders).await.unwrap();
    writer.pre_commit(&txn(1), &mut handle).await.unwrap();
    assert!(handle.file_names()[0].ends_with(".jsonl"));
    assert_eq!(sink.committer().await.unwrap().commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(room.read("orders"), "{\"id\":1,\"note\":\"two\\nlines\"}\n{\"id\":2,\"note\":\"\"}\n");
}

#[tokio::test]
async fn a_record_that_cannot_be_encoded_ends_the_transaction() {
    let room = Room::new();
    let sink = FileSink::json_lines(room.root(), target("o")).build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    let unkeyed = std::collections::BTreeMap::from([(vec![1], 1)]);
    let refused = refusal(writer.write(&txn(1), &mut handle, vec![unkeyed]).await);
    assert_eq!(refused, "key must be a string");
    assert_eq!(refusal(writer.pre_commit(&txn(1), &mut handle).await), refused);
}

#[tokio::test]
async fn a_full_disk_at_write_is_told_by_pre_commit_too_and_stays() {
    let room = Room::new();
    let sink = room.watched(&[("write", 1, io::ErrorKind::StorageFull)]).buffer_bytes(1).build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, vec!["o1"]).await.unwrap();
    let failed = writer.write(&txn(1), &mut handle, vec!["o2"]).await.unwrap_err().to_string();
    assert!(failed.contains("cannot write") && failed.contains("no storage space"), "{failed}");
    for _ in 0..2 {
        // The disk has room again: the hook fails once.
        assert_eq!(writer.write(&txn(1), &mut handle, vec!["o3"]).await.unwrap_err().to_string(), failed);
        let told = writer.pre_commit(&txn(1), &mut handle).await;
        assert_eq!(told.as_ref().unwrap_err().to_string(), failed);
        assert_eq!(certainty(told), Certainty::Indeterminate);
    }
    assert_eq!(handle.file_names(), Vec::<String>::new());
}

#[tokio::test]
async fn a_failed_sync_is_never_taken_for_a_clean_one_when_asked_again() {
    for step in ["sync o", "sync r", "sync /out/.staged/shop"] {
        let room = Room::new();
        let sink = room.watched(&[(step, 0, io::ErrorKind::Other)]).build().unwrap();
        let mut writer = sink.writer().await.unwrap();
        let mut handle = writer.begin(&txn(1)).await.unwrap();
        writer.write(&txn(1), &mut handle, vec!["o", "r"]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(certainty(writer.pre_commit(&txn(1), &mut handle).await), Certainty::Indeterminate, "{step}");
        }
        // What the failure left is found and removed.
        assert_eq!(listed(&sink, CLIENT).await, [id(1)]);
        sink.committer().await.unwrap().abort(&txn(1), Some(&handle)).await.unwrap();
        assert_eq!(room.staged(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_determinate_and_may_be_tried_again() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    fs::write(room.root(), "in the way").unwrap();
    let mut writer = sink.writer().await.unwrap();
    assert_eq!(certainty(writer.begin(&txn(1)).await), Certainty::Determinate);
    fs::remove_file(room.root()).unwrap();
    writer.begin(&txn(1)).await.unwrap();
}

#[tokio::test]
async fn a_write_that_was_given_up_half_way_fails_the_transaction() {
    let room = Room::new();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let sink = room.builder().buffer_bytes(1).on_step(move |step| match step {
        // Waits until the writer's caller has gone.
        FileStep::Write { .. } => gate.lock().unwrap().recv().map_err(io::Error::other),
        _ => Ok(()),
    });
    let sink = sink.build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    assert!(writer.write(&txn(1), &mut handle, vec!["o1"]).now_or_never().is_none());
    release.send(()).unwrap();
    let failed = writer.pre_commit(&txn(1), &mut handle).await;
    assert_eq!(certainty(failed.clone()), Certainty::Indeterminate);
    let told = failed.unwrap_err().to_string();
    assert!(told.ends_with(&format!("an earlier call for {} was given up half-way", id(1))), "{told}");
}

#[tokio::test]
async fn a_prepared_transaction_takes_no_more_records_and_stays_prepared() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, vec!["o1"]).await.unwrap();
    writer.pre_commit(&txn(1), &mut handle).await.unwrap();
    assert_eq!(
        refusal(writer.write(&txn(1), &mut handle, vec!["o2"]).await),
        format!("{} is prepared: it takes no records", txn(1).txn_id)
    );
    let before = handle.clone();
    writer.pre_commit(&txn(1), &mut handle).await.unwrap();
    assert_eq!(handle, before);
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(room.read("o"), "o1");
}

#[tokio::test]
async fn a_transaction_that_this_writer_did_not_begin_is_refused() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    let refused = refusal(writer.write(&txn(2), &mut handle, vec!["o"]).await);
    assert_eq!(refused, format!("{} was not begun by this writer", id(2)));
}

#[tokio::test]
async fn an_id_that_is_staged_already_is_not_staged_over() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
    assert_eq!(certainty(stage(&sink, &txn(1), &["o2"]).await), Certainty::Indeterminate);
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(room.read("o"), "o1");
}

#[tokio::test]
async fn odd_and_long_names_stage_and_commit_without_meeting() {
    let room = Room::new();
    let sink = FileSink::<String>::raw(room.root(), target(&format!("t.-_:@~{}", "t".repeat(121)))).build().unwrap();
    let clients = ["a".to_owned(), "a.1".into(), "a.10".into(), "A._:@~-z".into(), "c".repeat(200)];
    for (client, number) in clients.iter().zip(1..) {
        let txn = TxnContext::new(client.parse().unwrap(), id(1), Epoch::FIRST);
        let mut writer = sink.writer().await.unwrap();
        let mut handle = writer.begin(&txn).await.unwrap();
        writer.write(&txn, &mut handle, vec![number.to_string()]).await.unwrap();
        writer.pre_commit(&txn, &mut handle).await.unwrap();
        assert_eq!(sink.committer().await.unwrap().commit(&txn, &handle).await.unwrap(), Committed::Now);
    }
    assert_eq!(room.visible().len(), clients.len());
}
