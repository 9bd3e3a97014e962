//! Parquet files in an object store keep the contract of a two-phase sink: in memory, in a local directory, and in
//! SeaweedFS.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on must panic")]

mod support;

use std::{fmt::Write, net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use ratified::{Cause, testkit::HarnessError};
use ratified_object_store::{
    ObjectStep, ObjectStoreSink, Parquet,
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
};
use ratified_servers::SeaweedFs;
use support::contract::{Place, Room, Setup, passes_the_testkit};

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

enum Objects {
    /// One store; each place is a prefix of its own.
    Memory(InMemory),
    Local,
    S3(SocketAddr),
}

fn prefix(at: &Place) -> String {
    format!("place/{}", at.number)
}

#[async_trait]
impl Setup for Objects {
    type Sink = ObjectStoreSink<u64>;

    fn sink(&self, at: &Place, room: Room) -> ObjectStoreSink<u64> {
        let target = "numbers".parse().unwrap();
        let builder = match self {
            Self::Memory(store) => ObjectStoreSink::multipart(store.clone(), target, numbers()),
            Self::Local => ObjectStoreSink::local(at.dir.path(), target, numbers()),
            Self::S3(address) => ObjectStoreSink::multipart(bucket(*address), target, numbers()),
        };
        let full = move |step: &ObjectStep<'_>| match step {
            ObjectStep::PutPart { .. } => room.check(),
            _ => Ok(()),
        };
        builder.prefix(&prefix(at)).file_bytes(10_000).on_step(full).build().unwrap()
    }

    async fn visible(&self, at: &Place) -> Result<String, HarnessError> {
        let store: Box<dyn ObjectStore> = match self {
            Self::Memory(store) => Box::new(store.clone()),
            Self::Local => Box::new(LocalFileSystem::new_with_prefix(at.dir.path())?),
            Self::S3(address) => Box::new(bucket(*address)),
        };
        let mut lines = String::new();
        for object in committed_objects(&store, &prefix(at), &"numbers".parse()?).await? {
            let content = store.get(&object.location).await?.bytes().await?;
            for batch in ParquetRecordBatchReaderBuilder::try_new(content)?.build()? {
                for number in batch?.column(0).as_primitive::<UInt64Type>().values() {
                    writeln!(lines, "{number}")?;
                }
            }
        }
        Ok(lines)
    }

    fn large_records(&self) -> u64 {
        10_000
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_in_memory_passes_the_testkit() {
    passes_the_testkit(Objects::Memory(InMemory::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_in_a_local_directory_passes_the_testkit() {
    passes_the_testkit(Objects::Local).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parquet_in_seaweedfs_passes_the_testkit() {
    let server = SeaweedFs::start();
    server.make_bucket(BUCKET);
    passes_the_testkit(Objects::S3(server.address())).await;
}
