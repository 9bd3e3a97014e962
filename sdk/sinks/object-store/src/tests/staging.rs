//! What is staged, in which steps, and within which bounds.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn uploads_are_begun_marked_and_filled_in_this_order() {
    let room = Room::new(Kind::Memory);
    let sink = room.sink();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, texts(&["a1", "a2"])).await.unwrap();
    assert_eq!(room.steps(), Vec::<String>::new(), "nothing is sent before there is a part");
    writer.pre_commit(&txn(1), &mut handle).await.unwrap();
    assert_eq!(room.steps(), ["create 00000.bin", "marker 00000.bin", "part 00000.bin 0"]);
    assert_eq!(handle.keys(), [key("a", 1, 0)]);
    assert_eq!(handle.bytes(), 5);
    assert_eq!(room.keys().await, [format!("p/_ratified/{CLIENT}/{}/00000", id(1))]);
    assert_eq!(committer(&sink).await.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(room.steps(), ["reveal 00000.bin 0", "settle"]);
    assert_eq!(room.keys().await, [key("a", 1, 0)]);
    assert_eq!(room.read(&key("a", 1, 0)).await, "a1a2.");
}

#[tokio::test]
async fn local_files_are_staged_sealed_and_renamed_in_this_order() {
    let room = Room::new(Kind::Local);
    let sink = room.sink();
    let handle = stage(&sink, 1, &["a1", "b2"]).await;
    assert_eq!(
        room.steps(),
        [
            "create 00000.bin",
            "part 00000.bin 0",
            "create 00001.bin",
            "part 00001.bin 0",
            "seal 00000.bin",
            "seal 00001.bin"
        ]
    );
    let staged = |file| format!("p/_ratified/{CLIENT}/{}/{file:05}", id(1));
    assert_eq!(room.keys().await, [staged(0), staged(1)]);
    assert_eq!(committer(&sink).await.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(room.steps(), ["reveal 00000.bin 0", "reveal 00001.bin 1", "settle"]);
    assert_eq!(room.keys().await, [key("a", 1, 0), key("b", 1, 1)]);
    let left = std::fs::read_dir(room.dir.path().join("p/_ratified").join(CLIENT)).unwrap().count();
    assert_eq!(left, 0, "not even an empty directory");
}

#[tokio::test]
async fn a_file_is_cut_into_parts_of_one_length_that_arrive_as_they_were_written() {
    for kind in [Kind::Memory, Kind::Local] {
        let room = Room::new(kind);
        let sink = room.builder().part_bytes(MIN_PART_BYTES).build().unwrap();
        let long: String = "a".chars().chain("0123456".chars().cycle()).take(12 << 20).collect();
        let handle = stage(&sink, 1, &[&long, "a-end"]).await;
        let mut parts: Vec<_> = room.steps().into_iter().filter(|step| step.starts_with("part")).collect();
        parts.sort_unstable();
        assert_eq!(parts, ["part 00000.bin 0", "part 00000.bin 1", "part 00000.bin 2"], "{kind:?}");
        assert_eq!(committer(&sink).await.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
        assert!(room.read(&key("a", 1, 0)).await == format!("{long}a-end."), "{kind:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_long_enough_is_ended_and_the_next_begun() {
    let room = Room::new(Kind::Memory);
    let sink = room.builder().file_bytes(4).build().unwrap();
    let handle = stage(&sink, 1, &["a1", "b1", "a2", "a3", "b2", "a4", "a5", "a6"]).await;
    assert_eq!(committer(&sink).await.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    let mut files = Vec::new();
    for key in handle.keys() {
        files.push((key.clone(), room.read(&key).await));
    }
    let named = |target, file, content: &str| (key(target, 1, file), content.to_owned());
    assert_eq!(files, [named("a", 0, "a1a2."), named("b", 1, "b1b2."), named("a", 2, "a3a4."), named("a", 3, "a5a6.")]);
    let listed = committed_objects(&room.store(), "p", &target("a")).await.unwrap();
    let listed: Vec<String> = listed.into_iter().map(|object| object.location.to_string()).collect();
    assert_eq!(listed, [key("a", 1, 0), key("a", 1, 2), key("a", 1, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_old_enough_is_ended_and_the_next_begun() {
    let room = Room::new(Kind::Memory);
    let sink = room.builder().file_age(Duration::from_secs(60)).build().unwrap();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    for (wait_s, record) in [(0, "a1"), (59, "a2"), (1, "a3"), (59, "a4")] {
        tokio::time::advance(Duration::from_secs(wait_s)).await;
        writer.write(&txn(1), &mut handle, texts(&[record])).await.unwrap();
    }
    writer.pre_commit(&txn(1), &mut handle).await.unwrap();
    assert_eq!(committer(&sink).await.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(handle.keys(), [key("a", 1, 0), key("a", 1, 1)]);
    assert_eq!(room.read(&key("a", 1, 0)).await, "a1a2.");
    assert_eq!(room.read(&key("a", 1, 1)).await, "a3a4.");
}

#[tokio::test]
async fn one_target_or_one_file_more_than_the_bound_is_rejected() {
    let room = Room::new(Kind::Memory);
    let targets = room.builder().max_targets(2).build().unwrap();
    let files = room.builder().max_files(2).file_bytes(1).build().unwrap();
    let cases = [
        (targets, ["a1", "b1", "c1"], "the sink refused: c would be more than 2 targets in one transaction"),
        (
            files,
            ["a1", "a2", "a3"],
            "the sink refused: more than 2 files in one transaction: raise file_bytes, file_age or max_files, or take \
             checkpoints more often",
        ),
    ];
    for (sink, records, told) in cases {
        let mut writer = sink.writer().await.unwrap();
        let mut handle = writer.begin(&txn(1)).await.unwrap();
        writer.write(&txn(1), &mut handle, texts(&records[..2])).await.unwrap();
        let error = writer.write(&txn(1), &mut handle, texts(&records[2..])).await.unwrap_err();
        assert_eq!(rejected(&error), told);
        // Sticky: nothing is prepared with a record missing.
        assert_eq!(rejected(&writer.pre_commit(&txn(1), &mut handle).await.unwrap_err()), told);
    }
}

#[tokio::test]
async fn a_part_that_failed_in_the_background_is_told_at_pre_commit_and_again() {
    for kind in [Kind::Memory, Kind::Local] {
        for step in ["create", "part 00000.bin 0", "part 00000.bin 1"] {
            let room = Room::new(kind);
            let sink = room.builder().part_bytes(MIN_PART_BYTES).build().unwrap();
            let mut writer = sink.writer().await.unwrap();
            let mut handle = writer.begin(&txn(1)).await.unwrap();
            room.fail(step, 0);
            let _ = writer.write(&txn(1), &mut handle, vec!["a".repeat(6 << 20)]).await;
            for _ in 0..2 {
                let error = writer.pre_commit(&txn(1), &mut handle).await.unwrap_err();
                assert_eq!(error.to_string(), "the sink failed for now (Indeterminate): put in", "{kind:?} {step}");
            }
            let committer = committer(&sink).await;
            committer.abort(&txn(1), None).await.unwrap();
            assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
            assert_eq!(room.keys().await, Vec::<String>::new(), "{kind:?} {step}");
        }
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_encoded_ends_its_transaction_only() {
    let room = Room::new(Kind::Memory);
    let sink = room.sink();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    let error = writer.write(&txn(1), &mut handle, texts(&["a1", "a bad one"])).await.unwrap_err();
    assert_eq!(rejected(&error), "the sink refused: a bad record");
    assert!(writer.pre_commit(&txn(1), &mut handle).await.is_err());
    let mut handle = writer.begin(&txn(2)).await.unwrap();
    writer.write(&txn(2), &mut handle, texts(&["a2"])).await.unwrap();
    writer.pre_commit(&txn(2), &mut handle).await.unwrap();
    assert_eq!(handle.keys(), [key("a", 2, 0)]);
}

#[tokio::test]
async fn a_call_that_was_given_up_half_way_counts_as_failed() {
    let room = Room::new(Kind::Memory);
    let sink = room.sink();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, texts(&["a1"])).await.unwrap();
    {
        let context = txn(1);
        let mut call = std::pin::pin!(writer.pre_commit(&context, &mut handle));
        assert!(futures_util::poll!(&mut call).is_pending());
    }
    let error = writer.pre_commit(&txn(1), &mut handle).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!("the sink failed for now (Indeterminate): an earlier call for {} was given up half-way", id(1))
    );
}
