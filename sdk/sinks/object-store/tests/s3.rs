//! The sink of object stores against servers that speak S3: SeaweedFS, and moto as a second opinion. They differ in what
//! they answer to a repeated completion; the sink must not.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "helpers of a test are tests")]

mod support;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use ratified::{
    Committed, SinkCommitter, SinkError, SinkWriter, TwoPhaseSink, TxnContext, sinks::file::TargetName,
    testkit::HarnessError,
};
use ratified_object_store::{
    JsonLines, MIN_PART_BYTES, ObjectHandle, ObjectStep, ObjectStoreSink, ObjectStoreSinkBuilder, committed_objects,
    store::{
        BackoffConfig, Error as StoreError, ObjectStoreExt, RetryConfig,
        aws::{AmazonS3, AmazonS3Builder},
        multipart::MultipartStore,
        path::Path,
    },
};
use ratified_servers::{Cutter, Moto, SeaweedFs, cutter::Side, process::PATIENCE, tally};
use support::{
    contract::{Place, Room, Setup, passes_the_testkit},
    crash::{client, txn},
};

const BUCKET: &str = "lake";
const ID: &str = "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f";

/// A bucket with little patience, so that a test meets its faults soon.
fn bucket(address: SocketAddr) -> AmazonS3 {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(20), max_backoff: Duration::from_millis(200), base: 2.0 };
    let retry = RetryConfig { backoff, max_retries: 2, retry_timeout: Duration::from_secs(5) };
    let builder = AmazonS3Builder::new().with_endpoint(format!("http://{address}")).with_allow_http(true);
    let builder = builder.with_bucket_name(BUCKET).with_region("us-east-1").with_retry(retry);
    builder.with_access_key_id("tester").with_secret_access_key("secret").build().unwrap()
}

fn target(name: &str) -> TargetName {
    name.parse().unwrap()
}

/// Numbers as JSON lines; the even and the odd ones are targets of their own.
fn sink(address: SocketAddr, prefix: &str) -> ObjectStoreSinkBuilder<u64> {
    ObjectStoreSink::multipart(bucket(address), target("odd"), JsonLines::new())
        .route(|number| target(if number % 2 == 0 { "even" } else { "odd" }))
        .prefix(prefix)
}

async fn visible(address: SocketAddr, prefix: &str, targets: &[&str]) -> Result<String, HarnessError> {
    let store = bucket(address);
    let mut content = Vec::new();
    for name in targets {
        for object in committed_objects(&store, prefix, &target(name)).await? {
            content.extend(store.get(&object.location).await?.bytes().await?);
        }
    }
    Ok(String::from_utf8(content)?)
}

async fn stage(sink: &ObjectStoreSink<u64>, txn: &TxnContext, numbers: &[u64]) -> Result<ObjectHandle, SinkError> {
    let mut writer = sink.writer().await?;
    let mut handle = writer.begin(txn).await?;
    writer.write(txn, &mut handle, numbers.to_vec()).await?;
    writer.pre_commit(txn, &mut handle).await?;
    Ok(handle)
}

/// A server under the testkit; each place is a prefix of its own.
struct Server(SocketAddr);

#[async_trait]
impl Setup for Server {
    type Sink = ObjectStoreSink<u64>;

    fn sink(&self, at: &Place, room: Room) -> ObjectStoreSink<u64> {
        let full = move |step: &ObjectStep<'_>| match step {
            ObjectStep::PutPart { .. } => room.check(),
            _ => Ok(()),
        };
        let builder = sink(self.0, &format!("place/{}", at.number)).route(|_| target("numbers"));
        builder.file_bytes(4000).on_step(full).build().unwrap()
    }

    async fn visible(&self, at: &Place) -> Result<String, HarnessError> {
        visible(self.0, &format!("place/{}", at.number), &["numbers"]).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seaweedfs_passes_the_testkit() {
    println!("SeaweedFS {}", SeaweedFs::version());
    let server = SeaweedFs::start();
    server.make_bucket(BUCKET);
    passes_the_testkit(Server(server.address())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_passes_the_testkit() {
    let server = Moto::start();
    server.make_bucket(BUCKET);
    passes_the_testkit(Server(server.address())).await;
}

/// What a store answers to completions that have nothing to complete.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Success,
    NoSuchUpload,
    SomethingElse,
}

async fn complete(store: &AmazonS3, path: &Path, id: &String, tag: &str) -> Answer {
    let part = ratified_object_store::store::multipart::PartId { content_id: tag.to_owned() };
    match store.complete_multipart(path, id, vec![part]).await {
        Ok(_) => Answer::Success,
        Err(StoreError::NotFound { .. }) => Answer::NoSuchUpload,
        Err(_) => Answer::SomethingElse,
    }
}

/// After a completion; when the object has been removed since; and after an abort.
async fn answers(address: SocketAddr) -> [Answer; 3] {
    let (store, path) = (bucket(address), Path::from("answers/x"));
    let id = store.create_multipart(&path).await.unwrap();
    let tag = store.put_part(&path, &id, 0, "x".into()).await.unwrap().content_id;
    assert_eq!(complete(&store, &path, &id, &tag).await, Answer::Success);
    let again = complete(&store, &path, &id, &tag).await;
    store.delete(&path).await.unwrap();
    let removed = complete(&store, &path, &id, &tag).await;
    let id = store.create_multipart(&path).await.unwrap();
    let tag = store.put_part(&path, &id, 0, "x".into()).await.unwrap().content_id;
    store.abort_multipart(&path, &id).await.unwrap();
    [again, removed, complete(&store, &path, &id, &tag).await]
}

/// What happens to committed and to decided data behind the sink's back is told, with the key, by every store.
async fn tells_what_happened_behind_its_back(address: SocketAddr) {
    let key = format!("back/even/00000-{ID}-{:08x}-00000.jsonl", crc32fast::hash(b"shop.sink.0"));
    let (store, path) = (bucket(address), Path::from(key.as_str()));
    let sink = sink(address, "back").build().unwrap();
    let handle = stage(&sink, &txn(), &[2]).await.unwrap();
    assert_eq!(handle.keys(), [key.as_str()]);
    let committer = sink.committer().await.unwrap();
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Now);
    assert_eq!(committer.commit(&txn(), &handle).await.unwrap(), Committed::Already);
    store.delete(&path).await.unwrap();
    let error = committer.commit(&txn(), &handle).await.unwrap_err().to_string();
    assert_eq!(error, format!("the sink refused: {key} is lost: it is neither staged nor visible"));
    store.put(&path, "2\n".into()).await.unwrap();
    let error = committer.commit(&txn(), &handle).await.unwrap_err().to_string();
    let why = "it has no mark of this sink in its metadata";
    assert_eq!(error, format!("the sink refused: {key} is not the object that was staged: {why}"));
    store.delete(&path).await.unwrap();
}

/// Ends the upload of a staged transaction as a stranger would; what a commit says then, and once its marker is gone, too.
async fn upload_aborted_behind_its_back(address: SocketAddr) -> [SinkError; 2] {
    let sink = sink(address, "aborted").build().unwrap();
    let handle = stage(&sink, &txn(), &[2]).await.unwrap();
    let (store, path) = (bucket(address), Path::from(handle.keys().remove(0)));
    let encoded = serde_json::to_value(&handle).unwrap();
    let id = encoded["files"][0]["upload"]["id"].as_str().unwrap().to_owned();
    store.abort_multipart(&path, &id).await.unwrap();
    let committer = sink.committer().await.unwrap();
    let marked = committer.commit(&txn(), &handle).await.unwrap_err();
    store.delete(&Path::from(format!("aborted/_ratified/{}/{ID}/00000", client()))).await.unwrap();
    [marked, committer.commit(&txn(), &handle).await.unwrap_err()]
}

fn lost(error: &SinkError) -> bool {
    let key = format!("aborted/even/00000-{ID}-{:08x}-00000.jsonl", crc32fast::hash(b"shop.sink.0"));
    error.to_string() == format!("the sink refused: {key} is lost: it is neither staged nor visible")
}

/// A file of several parts is the records that were written.
async fn parts_are_put_together(address: SocketAddr) {
    let store = bucket(address);
    let sink = ObjectStoreSink::multipart(store, target("texts"), JsonLines::new().max_record_bytes(13 << 20));
    let sink = sink.prefix("parts").part_bytes(MIN_PART_BYTES).build().unwrap();
    let text: String = "0123456789".chars().cycle().take(12 << 20).collect();
    let mut writer = sink.writer().await.unwrap();
    let mut handle = writer.begin(&txn()).await.unwrap();
    writer.write(&txn(), &mut handle, vec![text.clone(), "end".to_owned()]).await.unwrap();
    writer.pre_commit(&txn(), &mut handle).await.unwrap();
    let encoded = serde_json::to_value(&handle).unwrap();
    assert_eq!(encoded["files"][0]["upload"]["parts"].as_array().unwrap().len(), 3);
    assert_eq!(sink.committer().await.unwrap().commit(&txn(), &handle).await.unwrap(), Committed::Now);
    assert!(visible(address, "parts", &["texts"]).await.unwrap() == format!("\"{text}\"\n\"end\"\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seaweedfs_is_asked_for_the_object_and_not_for_an_answer() {
    let server = SeaweedFs::start();
    server.make_bucket(BUCKET);
    let address = server.address();
    assert_eq!(answers(address).await, [Answer::Success, Answer::NoSuchUpload, Answer::NoSuchUpload]);
    tells_what_happened_behind_its_back(address).await;
    let [marked, unmarked] = upload_aborted_behind_its_back(address).await;
    assert!(lost(&marked) && lost(&unmarked), "{marked}, {unmarked}");
    parts_are_put_together(address).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moto_is_asked_for_the_object_and_not_for_an_answer() {
    let server = Moto::start();
    server.make_bucket(BUCKET);
    let address = server.address();
    assert_eq!(answers(address).await, [Answer::Success, Answer::SomethingElse, Answer::SomethingElse]);
    tells_what_happened_behind_its_back(address).await;
    // It answers 500 for an upload that is gone, which may pass: only without the marker it is told as lost.
    let [marked, unmarked] = upload_aborted_behind_its_back(address).await;
    assert!(matches!(marked, SinkError::Retry { .. }) && lost(&unmarked), "{marked}, {unmarked}");
    parts_are_put_together(address).await;
}

/// One transaction during which the server is killed before the n-th step. Says whether that step was reached, and whether
/// it was decided by then.
async fn with_a_crash_at(server: &Arc<Mutex<SeaweedFs>>, nth: usize) -> (bool, bool) {
    let (address, prefix) = (server.lock().unwrap().address(), format!("crash/{nth}"));
    let (steps, killed) = (Arc::new(AtomicUsize::new(0)), server.clone());
    let counted = steps.clone();
    let watch = move |_: &ObjectStep<'_>| {
        if counted.fetch_add(1, Ordering::SeqCst) == nth {
            tally::fault("SIGKILL SeaweedFS");
            tokio::task::block_in_place(|| killed.lock().unwrap().crash());
        }
        Ok(())
    };
    let sink = sink(address, &prefix).on_step(watch).build().unwrap();
    let committer = sink.committer().await.unwrap();
    let mut context = txn();
    // A transaction that failed while it was written is aborted, and its records are read again under the next id.
    let mut next = 0..;
    let handle = loop {
        match stage(&sink, &context, &[1, 2, 3, 4]).await {
            Ok(handle) => break handle,
            Err(error) => {
                println!("step {nth}: {error}");
                until_done(|| committer.abort(&context, None)).await;
                context.txn_id =
                    format!("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c00{:02x}", next.next().unwrap()).parse().unwrap();
            }
        }
    };
    let undecided = steps.load(Ordering::SeqCst);
    let _ = until_done(|| committer.commit(&context, &handle)).await;
    // After a restart it answers before it has found its volumes.
    let read = || async { visible(address, &prefix, &["odd", "even"]).await.map_err(SinkError::indeterminate) };
    assert_eq!(until_done(read).await, "1\n3\n2\n4\n", "step {nth}");
    assert_eq!(committer.commit(&context, &handle).await.unwrap(), Committed::Already, "step {nth}");
    assert_eq!(committer.list_staged(&client()).await.unwrap(), [], "step {nth}");
    (steps.load(Ordering::SeqCst) > nth, nth >= undecided)
}

/// As the runtime does: what may pass is asked again.
async fn until_done<T, F: Future<Output = Result<T, SinkError>>>(call: impl Fn() -> F) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match call().await {
            Ok(done) => return done,
            Err(SinkError::Retry { cause, .. }) => assert!(Instant::now() < end, "{cause}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_and_restarted_at_any_step_loses_and_doubles_nothing() {
    let server = SeaweedFs::start();
    server.make_bucket(BUCKET);
    let server = Arc::new(Mutex::new(server));
    let mut decided = 0;
    for nth in 0.. {
        let (is_reached, is_decided) = with_a_crash_at(&server, nth).await;
        if !is_reached {
            // Two files: begun, marked and filled; completed; the markers removed, and once more by the repeated commit.
            assert_eq!((nth, decided), (10, 4));
            return;
        }
        decided += usize::from(is_decided);
    }
}

/// One transaction through connections that are cut when one side has sent so many bytes. Whether they were.
async fn with_a_cut_at(address: SocketAddr, side: Side, bytes: u64) -> bool {
    let (txn, prefix) = (txn(), format!("cut/{side:?}/{bytes}"));
    let cutter = Cutter::start(address);
    let (direct, cut) = (sink(address, &prefix), sink(cutter.address(), &prefix));
    let (direct, cut) = (direct.build().unwrap().committer().await.unwrap(), cut.build().unwrap());
    cutter.cut_after(side, bytes);
    let expected = match stage(&cut, &txn, &[1, 2, 3, 4]).await {
        Ok(handle) => {
            let committer = cut.committer().await.unwrap();
            let _ = until_done(|| committer.commit(&txn, &handle)).await;
            assert_eq!(direct.commit(&txn, &handle).await.unwrap(), Committed::Already, "{side:?} {bytes}");
            "1\n3\n2\n4\n"
        }
        Err(error) => {
            assert!(matches!(error, SinkError::Retry { .. }), "{side:?} {bytes}: {error}");
            direct.abort(&txn, None).await.unwrap();
            ""
        }
    };
    assert_eq!(visible(address, &prefix, &["odd", "even"]).await.unwrap(), expected, "{side:?} {bytes}");
    assert_eq!(direct.list_staged(&client()).await.unwrap(), [], "{side:?} {bytes}");
    cutter.has_cut()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_in_the_middle_of_any_request_or_answer_loses_and_doubles_nothing() {
    let server = SeaweedFs::start();
    server.make_bucket(BUCKET);
    for side in [Side::Caller, Side::Server] {
        let mut cuts = 0;
        while with_a_cut_at(server.address(), side, 1 + cuts * 397).await {
            cuts += 1;
        }
        println!("{cuts} cuts of what the {side:?} sends");
        assert!(cuts > 8, "{cuts} cuts of what the {side:?} sends");
    }
}
