//! What is shown and what is removed: by looking at the objects, whatever happened in between.

use object_store::multipart::MultipartStore;

use super::{forgiving::Forgiving, *};
use crate::handle::Staged;

const BOTH: [Kind; 2] = [Kind::Memory, Kind::Local];

#[tokio::test]
async fn a_commit_that_stopped_between_two_objects_is_mended_by_the_next() {
    for kind in BOTH {
        let room = Room::new(kind);
        let handle = stage(&room.sink(), 1, &["a1", "b1", "c1"]).await;
        room.fail("reveal", 1);
        let error = committer(&room.sink()).await.commit(&txn(1), &handle).await.unwrap_err();
        assert!(matches!(error, SinkError::Retry { .. }), "{error}");
        assert_eq!(committed_objects(&room.store(), "p", &target("a")).await.unwrap().len(), 1);
        assert_eq!(committed_objects(&room.store(), "p", &target("b")).await.unwrap().len(), 0);
        let committer = committer(&room.sink()).await;
        assert_eq!(committer.list_staged(&client()).await.unwrap(), [id(1)]);
        assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
        assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Already);
        assert_eq!(room.keys().await, [key("a", 1, 0), key("b", 1, 1), key("c", 1, 2)]);
    }
}

#[tokio::test]
async fn what_a_commit_left_in_the_staging_area_is_removed_by_the_next() {
    for kind in BOTH {
        let room = Room::new(kind);
        let handle = stage(&room.sink(), 1, &["a1"]).await;
        room.fail("settle", 0);
        let committer = committer(&room.sink()).await;
        committer.commit(&txn(1), &handle).await.unwrap_err();
        assert_eq!(committer.list_staged(&client()).await.unwrap(), [id(1)]);
        assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Already);
        assert_eq!(committer.list_staged(&client()).await.unwrap(), []);
    }
}

#[tokio::test]
async fn an_object_removed_behind_our_back_is_lost_and_loud() {
    for kind in BOTH {
        let room = Room::new(kind);
        let committer = committer(&room.sink()).await;
        let handle = stage(&room.sink(), 1, &["a1"]).await;
        assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
        room.store().delete(&Path::from(key("a", 1, 0))).await.unwrap();
        let error = committer.commit(&txn(1), &handle).await.unwrap_err();
        let told = format!("the sink refused: {} is lost: it is neither staged nor visible", key("a", 1, 0));
        assert_eq!(rejected(&error), told, "{kind:?}");
    }
}

#[tokio::test]
async fn a_success_that_leaves_no_object_is_a_loss_and_loud() {
    let store = Forgiving(InMemory::new());
    let sink = ObjectStoreSink::multipart(store.clone(), target("a"), Raw).prefix("p").build().unwrap();
    let (committer, handle) = (committer(&sink).await, stage(&sink, 1, &["a1"]).await);
    assert_eq!(committer.commit(&txn(1), &handle).await.unwrap(), Committed::Now);
    store.delete(&Path::from(key("a", 1, 0))).await.unwrap();
    let error = committer.commit(&txn(1), &handle).await.unwrap_err();
    let told = format!("the sink refused: {} is lost: it is neither staged nor visible", key("a", 1, 0));
    assert_eq!(rejected(&error), told);
}

#[tokio::test]
async fn an_upload_aborted_behind_our_back_is_lost_and_loud() {
    let room = Room::new(Kind::Memory);
    let handle = stage(&room.sink(), 1, &["a1"]).await;
    let committer = committer(&room.sink()).await;
    let Staged::Upload { id, .. } = &handle.files[0].staged else { panic!("no upload") };
    room.memory.abort_multipart(&Path::from(key("a", 1, 0)), id).await.unwrap();
    // This store does not say that there is no such upload; while its marker is there, that may pass.
    let error = committer.commit(&txn(1), &handle).await.unwrap_err();
    assert!(matches!(error, SinkError::Retry { .. }), "{error}");
    for marker in room.keys().await {
        room.memory.delete(&Path::from(marker)).await.unwrap();
    }
    let error = committer.commit(&txn(1), &handle).await.unwrap_err();
    assert_eq!(
        rejected(&error),
        format!("the sink refused: {} is lost: it is neither staged nor visible", key("a", 1, 0))
    );
}

#[tokio::test]
async fn an_object_overwritten_behind_our_back_is_told_and_nothing_is_shown() {
    for (kind, why) in [
        (Kind::Memory, "it has no mark of this sink in its metadata"),
        (Kind::Local, "its checksum is eb8eba67, not ae99cc21"),
    ] {
        let room = Room::new(kind);
        let handle = stage(&room.sink(), 1, &["a1", "b1"]).await;
        let stranger = Path::from(key("b", 1, 1));
        room.store().put(&stranger, "xyz".into()).await.unwrap();
        let error = committer(&room.sink()).await.commit(&txn(1), &handle).await.unwrap_err();
        let told = format!("the sink refused: {stranger} is not the object that was staged: {why}");
        assert_eq!(rejected(&error), told, "{kind:?}");
        assert_eq!(committed_objects(&room.store(), "p", &target("a")).await.unwrap(), [], "{kind:?}");
        assert_eq!(room.read(stranger.as_ref()).await, "xyz", "{kind:?}");
    }
}

#[tokio::test]
async fn an_object_of_another_upload_or_length_is_told() {
    let room = Room::new(Kind::Memory);
    let committer = committer(&room.sink()).await;
    let first = stage(&room.sink(), 1, &["a1"]).await;
    let second = stage(&room.sink(), 1, &["a2"]).await;
    assert_eq!(committer.commit(&txn(1), &second).await.unwrap(), Committed::Now);
    let (path, id) = (key("a", 1, 0), id(1));
    let error = committer.commit(&txn(1), &first).await.unwrap_err();
    assert_eq!(
        rejected(&error),
        format!(
            "the sink refused: {path} is not the object that was staged: it was made by another upload, of transaction \
             {id} of {CLIENT}"
        )
    );
    let mut longer = second;
    longer.files[0].bytes = 4;
    let error = committer.commit(&txn(1), &longer).await.unwrap_err();
    assert_eq!(
        rejected(&error),
        format!("the sink refused: {path} is not the object that was staged: it has 3 bytes, not 4")
    );
}

#[tokio::test]
async fn a_staged_file_changed_behind_our_back_is_not_shown() {
    let room = Room::new(Kind::Local);
    let handle = stage(&room.sink(), 1, &["a1"]).await;
    let staged = Path::from(format!("p/_ratified/{CLIENT}/{}/00000", id(1)));
    room.store().put(&staged, "a1".into()).await.unwrap();
    let error = committer(&room.sink()).await.commit(&txn(1), &handle).await.unwrap_err();
    let told = format!("the sink refused: {} is not the object that was staged: it has 2 bytes, not 3", key("a", 1, 0));
    assert_eq!(rejected(&error), told);
}

#[tokio::test]
async fn a_handle_of_another_transaction_or_kind_of_store_is_refused() {
    for (kind, other) in [(Kind::Memory, Kind::Local), (Kind::Local, Kind::Memory)] {
        let (room, elsewhere) = (Room::new(kind), Room::new(other));
        let handle = stage(&room.sink(), 1, &["a1"]).await;
        let committer = committer(&elsewhere.sink()).await;
        let error = committer.commit(&txn(1), &handle).await.unwrap_err();
        let told = "was staged in another kind of store: open the sink over the one it began with";
        assert_eq!(rejected(&error), format!("the sink refused: {} {told}", key("a", 1, 0)));
        let error = committer.commit(&txn(2), &handle).await.unwrap_err();
        assert_eq!(rejected(&error), format!("the sink refused: {} is not an object of {}", key("a", 1, 0), id(2)));
    }
}

#[tokio::test]
async fn an_abort_that_stopped_half_way_is_ended_by_the_next() {
    let room = Room::new(Kind::Memory);
    stage(&room.sink(), 1, &["a1", "b1"]).await;
    room.fail("discard", 1);
    let committer = committer(&room.sink()).await;
    committer.abort(&txn(1), None).await.unwrap_err();
    assert_eq!(room.keys().await, [format!("p/_ratified/{CLIENT}/{}/00001", id(1))]);
    committer.abort(&txn(1), None).await.unwrap();
    assert_eq!(room.keys().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_marker_that_is_none_of_ours_is_named_and_left_alone() {
    let room = Room::new(Kind::Memory);
    let marker = Path::from(format!("p/_ratified/{CLIENT}/{}/00000", id(1)));
    room.memory.put(&marker, "{\"version\":1}".into()).await.unwrap();
    let committer = committer(&room.sink()).await;
    let error = committer.abort(&txn(1), None).await.unwrap_err();
    let told = rejected(&error);
    assert!(told.starts_with(&format!("the sink refused: {marker} is not a marker of this sink: ")), "{told}");
    room.memory.put(&marker, vec![b' '; 16 * 1024 + 1].into()).await.unwrap();
    let error = committer.abort(&txn(1), None).await.unwrap_err();
    assert_eq!(rejected(&error), format!("the sink refused: {marker} is not a marker of this sink: it is too long"));
    assert_eq!(room.keys().await, [marker.to_string()]);
}

#[tokio::test]
async fn what_strangers_put_into_the_staging_area_is_not_listed() {
    for kind in BOTH {
        let room = Room::new(kind);
        for key in [format!("p/_ratified/{CLIENT}/README/00000"), format!("p/_ratified/{CLIENT}2/{}/00000", id(1))] {
            room.store().put(&Path::from(key), "x".into()).await.unwrap();
        }
        assert_eq!(committer(&room.sink()).await.list_staged(&client()).await.unwrap(), [], "{kind:?}");
    }
}
