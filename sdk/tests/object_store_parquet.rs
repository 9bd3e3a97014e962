//! Parquet files in an object store keep the contract of a two-phase sink: in memory, in a local directory, and in
//! SeaweedFS.
#![cfg(all(feature = "testkit", feature = "parquet"))]
#![allow(clippy::unwrap_used, reason = "helpers of a test are tests")]

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use ratified::{
    Cause,
    sinks::object_store::{
        ObjectStep, ObjectStoreSink, ObjectStoreSinkBuilder, Parquet,
        arrow::{
            array::{ArrayRef, RecordBatch, UInt64Array, cast::AsArray, types::UInt64Type},
            parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder,
            schema::{DataType, Field, Schema},
        },
        committed_objects,
        store::{
            ObjectStore, ObjectStoreExt,
            aws::{AmazonS3, AmazonS3Builder},
            local::LocalFileSystem,
            memory::InMemory,
        },
    },
    testkit::{BEHAVIOURS, HarnessError, Medium, SinkHarness, run_all},
};
use ratified_servers::SeaweedFs;
use tempfile::TempDir;

const BUCKET: &str = "lake";

/// Row groups of 100 numbers, so that a large transaction has many.
fn numbers() -> Parquet<u64> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::UInt64, false)]));
    let of_schema = schema.clone();
    let format = Parquet::new(schema, move |numbers: &[u64]| {
        let column: ArrayRef = Arc::new(UInt64Array::from(numbers.to_vec()));
        RecordBatch::try_new(of_schema.clone(), vec![column]).map_err(Cause::new)
    });
    format.batch_rows(100).row_group_bytes(1)
}

fn bucket(address: SocketAddr) -> AmazonS3 {
    let builder = AmazonS3Builder::new().with_endpoint(format!("http://{address}")).with_allow_http(true);
    let builder = builder.with_bucket_name(BUCKET).with_region("us-east-1");
    builder.with_access_key_id("tester").with_secret_access_key("secret").build().unwrap()
}

enum Kind {
    Memory,
    Local,
    S3(SocketAddr),
}

struct Setup {
    kind: Kind,
    places: AtomicU64,
}

/// One place of each kind; a test uses one of them.
struct Place {
    dir: TempDir,
    memory: InMemory,
    prefix: String,
    broken: Arc<AtomicBool>,
}

impl Setup {
    fn new(kind: Kind) -> Self {
        Self { kind, places: AtomicU64::new(0) }
    }

    fn builder(&self, at: &Place) -> ObjectStoreSinkBuilder<u64> {
        let target = "numbers".parse().unwrap();
        match self.kind {
            Kind::Memory => ObjectStoreSink::multipart(at.memory.clone(), target, numbers()),
            Kind::Local => ObjectStoreSink::local(at.dir.path(), target, numbers()),
            Kind::S3(address) => ObjectStoreSink::multipart(bucket(address), target, numbers()),
        }
    }

    fn store(&self, at: &Place) -> Box<dyn ObjectStore> {
        match self.kind {
            Kind::Memory => Box::new(at.memory.clone()),
            Kind::Local => Box::new(LocalFileSystem::new_with_prefix(at.dir.path()).unwrap()),
            Kind::S3(address) => Box::new(bucket(address)),
        }
    }
}

#[async_trait]
impl SinkHarness for Setup {
    type Sink = ObjectStoreSink<u64>;
    type Location = Place;

    async fn fresh(&self) -> Result<Place, HarnessError> {
        let prefix = format!("place/{}", self.places.fetch_add(1, Ordering::SeqCst));
        Ok(Place { dir: TempDir::new()?, memory: InMemory::new(), prefix, broken: Arc::default() })
    }

    async fn instance(&self, at: &Place) -> Result<ObjectStoreSink<u64>, HarnessError> {
        let broken = at.broken.clone();
        let full = move |step: &ObjectStep<'_>| match step {
            ObjectStep::PutPart { .. } if broken.load(Ordering::SeqCst) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        Ok(self.builder(at).prefix(&at.prefix).file_bytes(10_000).on_step(full).build()?)
    }

    fn record(&self, number: u64) -> u64 {
        number
    }

    async fn visible(&self, at: &Place) -> Result<Vec<u64>, HarnessError> {
        let store = self.store(at);
        let mut numbers = Vec::new();
        for object in committed_objects(&store, &at.prefix, &"numbers".parse()?).await? {
            let content = store.get(&object.location).await?.bytes().await?;
            for batch in ParquetRecordBatchReaderBuilder::try_new(content)?.build()? {
                numbers.extend(batch?.column(0).as_primitive::<UInt64Type>().values());
            }
        }
        Ok(numbers)
    }

    async fn break_medium(&self, at: &Place) -> Result<Medium, HarnessError> {
        at.broken.store(true, Ordering::SeqCst);
        Ok(Medium::Broken)
    }
}

async fn passes_the_testkit(kind: Kind) {
    let report = run_all(&Setup::new(kind)).await;
    report.assert();
    assert_eq!(report.held, BEHAVIOURS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_in_memory_passes_the_testkit() {
    passes_the_testkit(Kind::Memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_in_a_local_directory_passes_the_testkit() {
    passes_the_testkit(Kind::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_in_seaweedfs_passes_the_testkit() {
    let server = SeaweedFs::start();
    server.make_bucket(BUCKET);
    passes_the_testkit(Kind::S3(server.address())).await;
}
