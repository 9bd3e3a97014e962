//! The same pipeline into a bucket of a store that speaks S3.

use std::time::Duration;

use futures_util::TryStreamExt;
use ratified::job::{JobError, JobReport};
use ratified_object_store::{
    JsonLines, ObjectStep, ObjectStoreSink, committed_objects,
    store::{
        BackoffConfig, Error, ObjectStore, ObjectStoreExt, RetryConfig,
        aws::{AmazonS3, AmazonS3Builder},
        path::Path,
    },
};

use super::{EngineError, Plan, Row, engine::run_attempt, run_job, targets};

/// The bucket that the pipeline writes to; its keys begin with the name of the plan.
pub const BUCKET: &str = "lake";

/// The bucket of the store at this URL, with little patience, so that a test meets its faults soon.
///
/// # Panics
/// When the URL is none.
pub fn bucket(endpoint: &str) -> AmazonS3 {
    let (first, longest) = (Duration::from_millis(20), Duration::from_millis(500));
    let backoff = BackoffConfig { init_backoff: first, max_backoff: longest, base: 2.0 };
    let retry = RetryConfig { backoff, max_retries: 3, retry_timeout: Duration::from_secs(10) };
    let builder = AmazonS3Builder::new().with_endpoint(endpoint).with_allow_http(true).with_bucket_name(BUCKET);
    let builder = builder.with_region("us-east-1").with_access_key_id("tester").with_secret_access_key("secret");
    builder.with_retry(retry).build().unwrap()
}

fn objects(plan: &Plan, endpoint: &str) -> ObjectStoreSink<Row> {
    let (even, odd) = targets();
    let watch = plan.places.clone();
    ObjectStoreSink::multipart(bucket(endpoint), even.clone(), JsonLines::new())
        .route(move |row: &Row| if row.n.is_multiple_of(2) { even.clone() } else { odd.clone() })
        .prefix(&plan.name)
        .on_step(move |step| {
            watch(&name_of_step(step));
            Ok(())
        })
        .build()
        .unwrap()
}

/// Runs the pipeline as a job that checkpoints itself, into the bucket of the store at this URL.
///
/// # Errors
/// What the job says.
///
/// # Panics
/// When the plan is nonsense.
pub async fn run_objects_split(plan: &Plan, endpoint: &str) -> Result<JobReport<u64>, JobError> {
    run_job(plan, plan.builder_of(objects(plan, endpoint))).await
}

/// Runs the pipeline under an engine, into the bucket of the store at this URL.
///
/// # Errors
/// What stopped the attempt.
///
/// # Panics
/// When the plan is nonsense.
pub async fn run_objects_engine(plan: &Plan, endpoint: &str) -> Result<(), EngineError> {
    run_attempt(plan, plan.builder_of(objects(plan, endpoint))).await
}

fn name_of_step(step: &ObjectStep<'_>) -> String {
    match step {
        ObjectStep::Create { .. } => "create".to_owned(),
        ObjectStep::PutMarker { .. } => "marker".to_owned(),
        ObjectStep::PutPart { .. } => "part".to_owned(),
        ObjectStep::Reveal { index, .. } => format!("reveal_{index}"),
        ObjectStep::Settle { .. } => "settle".to_owned(),
        ObjectStep::Discard { .. } => "discard".to_owned(),
        ObjectStep::RemoveMarker { .. } => "remove_marker".to_owned(),
        _ => "another step".to_owned(),
    }
}

/// What is wrong with a prefix that should hold every number below `records` once, in order, and nothing staged.
///
/// # Errors
/// What is wrong.
pub async fn check_objects(endpoint: &str, prefix: &str, records: u64) -> Result<(), String> {
    let (even, odd) = targets();
    for (parity, target) in [(0, even), (1, odd)] {
        let visible = numbers(endpoint, prefix, &target).await.map_err(|error| error.to_string())?;
        let expected: Vec<_> = (0..records).filter(|n| n % 2 == parity).collect();
        if visible != expected {
            return Err(format!("visible is {visible:?}, not {expected:?}"));
        }
    }
    let markers = Path::from(format!("{prefix}/_ratified"));
    let staged = bucket(endpoint).list(Some(&markers)).map_ok(|object| object.location).try_collect::<Vec<_>>().await;
    match staged {
        Ok(staged) if staged.is_empty() => Ok(()),
        Ok(staged) => Err(format!("still staged: {staged:?}")),
        Err(error) => Err(error.to_string()),
    }
}

async fn numbers(endpoint: &str, prefix: &str, target: &ratified::sinks::file::TargetName) -> Result<Vec<u64>, Error> {
    let store = bucket(endpoint);
    let mut numbers = Vec::new();
    for object in committed_objects(&store, prefix, target).await? {
        let content = store.get(&object.location).await?.bytes().await?;
        let rows = serde_json::Deserializer::from_slice(&content).into_iter::<Row>();
        for row in rows {
            numbers.push(row.map_err(|source| Error::Generic { store: "rows", source: source.into() })?.n);
        }
    }
    Ok(numbers)
}

/// The uploads under a prefix that have neither been completed nor aborted, and how many parts each holds, as the store at
/// this URL tells it.
///
/// # Panics
/// When it does not tell.
pub async fn unfinished_uploads(endpoint: &str, prefix: &str) -> Vec<(String, usize)> {
    let listed = ask(&format!("{endpoint}/{BUCKET}?uploads&prefix={prefix}/")).await;
    let mut uploads = Vec::new();
    for upload in listed.split("<Upload>").skip(1) {
        let [key, id] = ["Key", "UploadId"].map(|name| element(upload, name));
        let parts = ask(&format!("{endpoint}/{BUCKET}/{key}?uploadId={id}")).await;
        uploads.push((key, parts.matches("<Part>").count()));
    }
    uploads
}

async fn ask(url: &str) -> String {
    let answer = reqwest::get(url).await.unwrap();
    answer.error_for_status().unwrap().text().await.unwrap()
}

fn element(text: &str, name: &str) -> String {
    let (_, rest) = text.split_once(&format!("<{name}>")).unwrap();
    rest.split_once('<').unwrap().0.to_owned()
}
