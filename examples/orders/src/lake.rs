//! Where the items of all baskets go: Parquet files in an object store.

use std::{fmt, fs, io, path::PathBuf, str::FromStr, sync::Arc};

use ratified::{Cause, sinks::file::TargetName};

use ratified_object_store::{
    CommittedObject, ObjectStoreSink, ObjectStoreSinkBuilder, ObjectStoreSinkError, Parquet,
    arrow::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder,
    committed_objects,
    store::{
        self, ObjectStore, ObjectStoreExt as _,
        aws::{AmazonS3, AmazonS3Builder},
        local::LocalFileSystem,
    },
};
use thiserror::Error;

use super::items::{ItemRow, StoredItem, batch_of, items_of, schema};

const TARGET: &str = "items";

/// Where objects are: a directory, or a bucket and what their keys begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory of this host; it is made if it is missing.
    Dir(PathBuf),
    /// A bucket of a store that speaks S3; it must exist.
    S3 {
        /// The bucket.
        bucket: String,
        /// What keys begin with; may be empty.
        prefix: String,
        /// The store's URL if it is not Amazon's.
        endpoint: Option<String>,
    },
}

/// A text that is no place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} is no store: give a directory, or s3://BUCKET/PREFIX, or s3://BUCKET/PREFIX?endpoint=URL")]
pub struct NoPlace {
    text: String,
}

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        let no_place = || NoPlace { text: text.to_owned() };
        let Some(rest) = text.strip_prefix("s3://") else {
            let is_dir = !text.is_empty() && !text.contains("://");
            return is_dir.then(|| Self::Dir(text.into())).ok_or_else(no_place);
        };
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let endpoint = match query.map(|query| query.strip_prefix("endpoint=").filter(|url| url.contains("://"))) {
            Some(None) => return Err(no_place()),
            Some(Some(url)) => Some(url.to_owned()),
            None => None,
        };
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(no_place());
        }
        Ok(Self::S3 { bucket: bucket.to_owned(), prefix: prefix.trim_end_matches('/').to_owned(), endpoint })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(dir) => write!(f, "{}", dir.display()),
            Self::S3 { bucket, prefix, endpoint } => {
                write!(f, "s3://{bucket}/{prefix}")?;
                endpoint.as_ref().map_or(Ok(()), |url| write!(f, "?endpoint={url}"))
            }
        }
    }
}

/// Why the store cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LakeError {
    /// The directory cannot be made.
    #[error("{}: {source}", path.display())]
    Dir {
        /// Which directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store says no.
    #[error("the store: {0}")]
    Store(#[from] store::Error),
    /// A setting of the sink.
    #[error(transparent)]
    Sink(#[from] ObjectStoreSinkError),
    /// A file is none of ours.
    #[error("{object}: {why}")]
    File {
        /// Which.
        object: String,
        /// What is wrong with it.
        why: Cause,
    },
}

/// The items in a store.
#[derive(Debug, Clone)]
pub struct Lake {
    place: Place,
    target: TargetName,
}

impl Lake {
    /// The items at this place.
    ///
    /// # Errors
    /// [`LakeError::Dir`].
    pub fn new(place: Place) -> Result<Self, LakeError> {
        if let Place::Dir(path) = &place {
            fs::create_dir_all(path).map_err(|source| LakeError::Dir { path: path.clone(), source })?;
        }
        let target = TARGET.parse().map_err(|_| ObjectStoreSinkError::Prefix)?;
        Ok(Self { place, target })
    }

    /// The sink that writes them.
    ///
    /// # Errors
    /// The caller must mend the place.
    pub fn sink(&self) -> Result<ObjectStoreSinkBuilder<ItemRow>, LakeError> {
        let of_schema = schema();
        let format = Parquet::new(of_schema.clone(), move |rows| batch_of(&of_schema, rows));
        let builder: ObjectStoreSinkBuilder<ItemRow> = match &self.place {
            Place::Dir(dir) => ObjectStoreSink::local(dir, self.target.clone(), format),
            Place::S3 { .. } => ObjectStoreSink::multipart(self.bucket()?, self.target.clone(), format),
        };
        Ok(builder.prefix(self.prefix()))
    }

    /// Each item, as often as it is there; file by file, so that one of them is in memory at a time.
    ///
    /// # Errors
    /// See [`LakeError`].
    pub async fn each_item(&self, mut each: impl FnMut(StoredItem)) -> Result<(), LakeError> {
        let store = self.store()?;
        for object in self.objects(&store).await? {
            let content = store.get(&object.location).await?.bytes().await?;
            let failed = |why| LakeError::File { object: object.location.to_string(), why };
            let reader = ParquetRecordBatchReaderBuilder::try_new(content).and_then(|builder| builder.build());
            for batch in reader.map_err(|error| failed(Cause::new(error)))? {
                let items = batch.map_err(Cause::new).and_then(|batch| items_of(&batch)).map_err(failed)?;
                items.into_iter().for_each(&mut each);
            }
        }
        Ok(())
    }

    async fn objects(&self, store: &Arc<dyn ObjectStore>) -> Result<Vec<CommittedObject>, LakeError> {
        Ok(committed_objects(store, self.prefix(), &self.target).await?)
    }

    fn prefix(&self) -> &str {
        match &self.place {
            Place::Dir(_) => "",
            Place::S3 { prefix, .. } => prefix,
        }
    }

    fn store(&self) -> Result<Arc<dyn ObjectStore>, LakeError> {
        Ok(match &self.place {
            Place::Dir(dir) => Arc::new(LocalFileSystem::new_with_prefix(dir)?),
            Place::S3 { .. } => Arc::new(self.bucket()?),
        })
    }

    /// Credentials and all else are taken from the environment, as `AWS_...`.
    fn bucket(&self) -> Result<AmazonS3, LakeError> {
        let Place::S3 { bucket, endpoint, .. } = &self.place else {
            return Err(ObjectStoreSinkError::Prefix.into());
        };
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        if let Some(url) = endpoint {
            builder = builder.with_endpoint(url).with_allow_http(url.starts_with("http://"));
            if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
                // A store of one's own that asks nobody who he is.
                builder = builder.with_skip_signature(true);
            }
        }
        Ok(builder.build()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_or_a_bucket() {
        let s3 = |bucket: &str, prefix: &str, endpoint: Option<&str>| Place::S3 {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            endpoint: endpoint.map(str::to_owned),
        };
        for (text, place) in [
            ("target/store", Place::Dir("target/store".into())),
            ("s3://lake", s3("lake", "", None)),
            ("s3://lake/a/b/", s3("lake", "a/b", None)),
            ("s3://lake/a?endpoint=http://127.0.0.1:1", s3("lake", "a", Some("http://127.0.0.1:1"))),
        ] {
            assert_eq!(text.parse(), Ok(place));
        }
        for wrong in ["", "s3://", "s3:///a", "gs://lake", "s3://lake/a?region=x", "s3://lake?endpoint=here"] {
            assert!(wrong.parse::<Place>().unwrap_err().to_string().contains("give a directory, or s3://"), "{wrong}");
        }
    }
}
