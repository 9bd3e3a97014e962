//! Commit, abort, and what is read afterwards.

use super::*;

fn path_of(dir: &Path, handle: &FileHandle, index: usize) -> PathBuf {
    dir.join(&handle.file_names()[index])
}

#[tokio::test]
async fn a_crash_between_two_renames_is_mended_by_the_next_commit() {
    let room = Room::new();
    let dying = room.watched(&[("rename r", 0, io::ErrorKind::Interrupted)]).build().unwrap();
    let handle = stage(&dying, &txn(1), &["o1", "r2"]).await.unwrap();
    assert_eq!(certainty(commit(&dying, &txn(1), &handle).await), Certainty::Indeterminate);
    assert_eq!((room.read("o"), room.read("r")), ("o1".to_owned(), String::new()));
    let next = room.builder().build().unwrap();
    assert_eq!(listed(&next, CLIENT).await, [id(1)]);
    assert_eq!(commit(&next, &txn(1), &handle).await.unwrap(), Committed::Now);
    assert_eq!(commit(&next, &txn(1), &handle).await.unwrap(), Committed::Already);
    assert_eq!((room.read("o"), room.read("r")), ("o1".to_owned(), "r2".to_owned()));
    assert_eq!(listed(&next, CLIENT).await, []);
}

#[tokio::test]
async fn a_lost_file_is_named_and_nothing_of_its_transaction_becomes_visible() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1", "r2"]).await.unwrap();
    fs::remove_file(path_of(&room.staging(), &handle, 1)).unwrap();
    let refused = refusal(commit(&sink, &txn(1), &handle).await);
    assert_eq!(refused, format!("{} is lost: it is neither staged nor visible", handle.file_names()[1]));
    assert_eq!(room.visible(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_removed_after_its_commit_is_lost_not_already_there() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1", "r2"]).await.unwrap();
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
    fs::remove_file(path_of(&room.root(), &handle, 0)).unwrap();
    let refused = refusal(commit(&sink, &txn(1), &handle).await);
    assert!(refused.starts_with(&format!("{} is lost", handle.file_names()[0])), "{refused}");
}

#[tokio::test]
async fn a_damaged_target_is_refused_and_says_how_it_differs() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("it has 1 bytes, not 2", |path| fs::write(path, "o").unwrap()),
        ("its checksum is ", |path| fs::write(path, "oX").unwrap()),
        ("it is no regular file", |path| {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }),
    ];
    for (why, damage) in damages {
        let room = Room::new();
        let sink = room.builder().build().unwrap();
        let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
        assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
        let path = path_of(&room.root(), &handle, 0);
        damage(&path);
        let refused = refusal(commit(&sink, &txn(1), &handle).await);
        let expected = format!("{} is not the file that was staged: {why}", path.display());
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[tokio::test]
async fn damaged_staged_data_is_not_made_visible() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1", "r2"]).await.unwrap();
    fs::write(path_of(&room.staging(), &handle, 1), "rX").unwrap();
    assert!(refusal(commit(&sink, &txn(1), &handle).await).contains("its checksum is"));
    assert_eq!(room.visible(), Vec::<String>::new());
}

#[tokio::test]
async fn a_strangers_file_in_the_place_of_a_target_is_not_replaced() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
    fs::write(path_of(&room.root(), &handle, 0), "a stranger's").unwrap();
    assert!(refusal(commit(&sink, &txn(1), &handle).await).contains("is not the file that was staged"));
    assert_eq!(room.read("o"), "a stranger's");
    assert_eq!(listed(&sink, CLIENT).await, [id(1)]);
}

#[tokio::test]
async fn a_strangers_file_that_comes_between_look_and_rename_is_not_replaced() {
    let room = Room::new();
    let handle = stage(&room.builder().build().unwrap(), &txn(1), &["o1"]).await.unwrap();
    let path = path_of(&room.root(), &handle, 0);
    let stranger = path.clone();
    let sink = room.builder().on_step(move |step| match step {
        FileStep::Rename { .. } => fs::write(&stranger, "a stranger's"),
        _ => Ok(()),
    });
    let refused = refusal(commit(&sink.build().unwrap(), &txn(1), &handle).await);
    assert!(refused.contains("is not the file that was staged"), "{refused}");
    assert_eq!(fs::read_to_string(path).unwrap(), "a stranger's");
}

#[tokio::test]
async fn another_committer_that_comes_between_look_and_rename_is_seen() {
    let room = Room::new();
    let handle = stage(&room.builder().build().unwrap(), &txn(1), &["o1"]).await.unwrap();
    let (from, to) = (path_of(&room.staging(), &handle, 0), path_of(&room.root(), &handle, 0));
    let sink = room.builder().on_step(move |step| match step {
        FileStep::Rename { .. } => fs::rename(&from, &to),
        _ => Ok(()),
    });
    assert_eq!(commit(&sink.build().unwrap(), &txn(1), &handle).await.unwrap(), Committed::Already);
    assert_eq!(room.read("o"), "o1");
}

#[tokio::test]
async fn a_target_that_cannot_be_looked_at_is_unknown_not_missing() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
    let aside = room.dir.path().join("aside");
    fs::rename(room.root(), &aside).unwrap();
    fs::write(room.root(), "not a directory").unwrap();
    assert_eq!(certainty(commit(&sink, &txn(1), &handle).await), Certainty::Indeterminate);
    assert_eq!(certainty(sink.committer().await.unwrap().abort(&txn(1), None).await), Certainty::Indeterminate);
    let client = CLIENT.parse().unwrap();
    assert_eq!(certainty(sink.committer().await.unwrap().list_staged(&client).await), Certainty::Determinate);
    fs::remove_file(room.root()).unwrap();
    fs::rename(aside, room.root()).unwrap();
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
}

#[tokio::test]
async fn after_a_failed_sync_of_a_commit_nothing_more_is_applied() {
    for step in ["sync /out", "sync /out/.staged/shop"] {
        let room = Room::new();
        let handle = stage(&room.builder().build().unwrap(), &txn(1), &["o1"]).await.unwrap();
        let sink = room.watched(&[(step, 0, io::ErrorKind::Other)]).build().unwrap();
        let committer = sink.committer().await.unwrap();
        // The hook fails once: asked again, the directory would be called clean.
        for _ in 0..2 {
            let refused = refusal(committer.commit(&txn(1), &handle).await);
            assert!(refused.starts_with("check the storage, then open the sink again: cannot sync "), "{refused}");
        }
        refusal(committer.abort(&txn(2), None).await);
        refusal(sink.writer().await.unwrap().begin(&txn(3)).await);
        let opened_again = room.builder().build().unwrap();
        assert_eq!(commit(&opened_again, &txn(1), &handle).await.unwrap(), Committed::Already);
    }
}

#[tokio::test]
async fn a_rename_that_is_not_permitted_is_known_not_to_have_happened() {
    let room = Room::new();
    let sink = room.watched(&[("rename", 0, io::ErrorKind::PermissionDenied)]).build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
    assert_eq!(certainty(commit(&sink, &txn(1), &handle).await), Certainty::Determinate);
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
}

#[tokio::test]
async fn a_commit_that_moved_a_file_has_happened_in_part() {
    let room = Room::new();
    let sink = room.watched(&[("rename r", 0, io::ErrorKind::PermissionDenied)]).build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1", "r1"]).await.unwrap();
    assert_eq!(certainty(commit(&sink, &txn(1), &handle).await), Certainty::Indeterminate);
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
}

#[tokio::test]
async fn a_handle_of_another_transaction_or_client_is_refused() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
    let mut other = txn(1);
    other.client = "shop.sink.4".parse().unwrap();
    for txn in [txn(2), other] {
        let refused = refusal(commit(&sink, &txn, &handle).await);
        assert_eq!(refused, format!("{} is not a file of {}", handle.file_names()[0], txn.txn_id));
    }
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Now);
}

#[tokio::test]
async fn a_staged_name_left_beside_its_target_is_removed_by_the_next_commit() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1"]).await.unwrap();
    fs::copy(path_of(&room.staging(), &handle, 0), path_of(&room.root(), &handle, 0)).unwrap();
    assert_eq!(commit(&sink, &txn(1), &handle).await.unwrap(), Committed::Already);
    assert_eq!(listed(&sink, CLIENT).await, []);
    assert_eq!(room.read("o"), "o1");
}

#[tokio::test]
async fn orphans_of_a_crash_are_listed_and_removed_by_id_and_nothing_else_is() {
    let room = Room::new();
    let dying = room.builder().buffer_bytes(1).build().unwrap();
    stage(&dying, &txn(2), &["o2"]).await.unwrap();
    let mut writer = dying.writer().await.unwrap();
    let mut handle = writer.begin(&txn(1)).await.unwrap();
    writer.write(&txn(1), &mut handle, vec!["o1", "r1"]).await.unwrap();
    drop(writer);
    fs::write(room.staging().join("README"), "a stranger's").unwrap();
    let next = room.builder().build().unwrap();
    assert_eq!(listed(&next, CLIENT).await, [id(1), id(2)]);
    next.committer().await.unwrap().abort(&txn(1), None).await.unwrap();
    assert_eq!(listed(&next, CLIENT).await, [id(2)]);
    assert_eq!(room.staged(), ["README".to_owned(), stage_name(2)]);
}

fn stage_name(number: u8) -> String {
    format!("o-00003-{}-{:08x}.bin", id(number), crc32fast::hash(CLIENT.as_bytes()))
}

#[tokio::test]
async fn an_abort_that_failed_half_way_is_finished_by_the_next() {
    let room = Room::new();
    let sink = room.watched(&[("remove r", 0, io::ErrorKind::Other)]).build().unwrap();
    let handle = stage(&sink, &txn(1), &["o1", "r2"]).await.unwrap();
    room.steps();
    let committer = sink.committer().await.unwrap();
    assert_eq!(certainty(committer.abort(&txn(1), Some(&handle)).await), Certainty::Indeterminate);
    committer.abort(&txn(1), Some(&handle)).await.unwrap();
    committer.abort(&txn(1), Some(&handle)).await.unwrap();
    let sync = "sync /out/.staged/shop.sink.3";
    assert_eq!(room.steps(), ["remove o", "remove r", "remove r", sync, sync]);
    assert_eq!(room.staged(), Vec::<String>::new());
}

#[tokio::test]
async fn abort_and_listing_need_no_directory() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    assert_eq!(listed(&sink, CLIENT).await, []);
    sink.committer().await.unwrap().abort(&txn(1), None).await.unwrap();
    assert!(!room.root().exists());
    assert_eq!(room.read("o"), "");
}

#[tokio::test]
async fn parts_are_read_by_slot_then_transaction_and_other_files_are_not() {
    let room = Room::new();
    let sink = room.builder().build().unwrap();
    for (slot, number, record) in [(10, 1, "o4"), (2, 3, "o3"), (2, 2, "o2"), (0, 9, "o1")] {
        let txn = txn(number).with_slot(Slot::new(slot));
        let handle = stage(&sink, &txn, &[record]).await.unwrap();
        assert_eq!(commit(&sink, &txn, &handle).await.unwrap(), Committed::Now);
    }
    let staged = stage(&sink, &txn(8), &["o5"]).await.unwrap();
    fs::write(room.root().join("o-notes.txt"), "a stranger's").unwrap();
    assert_eq!(room.read("o"), "o1o2o3o4");
    let found = parts(&room.root(), &target("o")).unwrap();
    let order: Vec<_> = found.iter().map(|part| (part.slot.as_u32(), part.txn_id)).collect();
    assert_eq!(order, [(0, id(9)), (2, id(2)), (2, id(3)), (10, id(1))]);
    assert!(found.iter().all(|part| part.path.is_file()));
    assert_eq!(staged.file_names().len(), 1);
}
