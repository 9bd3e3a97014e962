//! How a sink of objects is set up, and its bounds.

use std::{fmt, io, path::PathBuf, sync::Arc, time::Duration};

use object_store::{ObjectStore, multipart::MultipartStore};
use thiserror::Error;

use super::{
    ObjectStoreSink,
    backend::{Backend, ObjectStep, Steps, Watch},
    format::Format,
    local::Local,
    multipart::Multipart,
    names::Layout,
};
use ratified::author::{Extension, NameError, TargetName};

/// Bytes of a part, unless set otherwise: 8 MiB. A writer holds up to one part per open target, and those on their way.
pub const DEFAULT_PART_BYTES: usize = 8 * 1024 * 1024;
/// Smallest part: 5 MiB. S3 refuses smaller ones, all but the last, and only when the upload is completed.
pub const MIN_PART_BYTES: usize = 5 * 1024 * 1024;
/// Greatest part: 512 MiB.
pub const MAX_PART_BYTES: usize = 512 * 1024 * 1024;
/// Bytes of a file, unless set otherwise: 256 MiB.
pub const DEFAULT_FILE_BYTES: u64 = 256 * 1024 * 1024;
/// Greatest file: 1 TiB.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024 * 1024 * 1024;
/// How long a file takes records, unless set otherwise: 15 minutes.
pub const DEFAULT_FILE_AGE: Duration = Duration::from_secs(15 * 60);
/// Most files of one transaction, unless set otherwise.
pub const DEFAULT_MAX_FILES: u32 = 64;
/// Greatest bound on the files of one transaction.
pub const MAX_FILES: u32 = 128;
/// Most targets of one transaction, unless set otherwise. Each may hold a part in memory.
pub const DEFAULT_MAX_TARGETS: usize = 16;
/// Greatest bound on the targets of one transaction.
pub const MAX_TARGETS: usize = 128;
/// Most parts of one transaction that are on their way at once, unless set otherwise.
pub const DEFAULT_PARTS_IN_FLIGHT: usize = 4;
/// Greatest bound on the parts on their way.
pub const MAX_PARTS_IN_FLIGHT: usize = 64;

type Route<R> = Arc<dyn Fn(&R) -> TargetName + Send + Sync>;
type Connect = Box<dyn FnOnce(Layout, Steps, usize) -> Result<Arc<dyn Backend>, ObjectStoreSinkError> + Send>;

/// Why a sink of objects cannot be built as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ObjectStoreSinkError {
    /// The caller must choose another prefix.
    #[error("a prefix must be segments with a / between them, none empty, . or .., together 0..=256 bytes")]
    Prefix,
    /// The caller must choose another name; of an extension, the format tells it.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The caller must choose a value within the bounds.
    #[error("{key} must be {min}..={max}")]
    OutOfBounds {
        /// Which setting.
        key: &'static str,
        /// Its least value.
        min: u64,
        /// Its greatest value.
        max: u64,
    },
    /// The caller must make the directory, or mount it.
    #[error("{} is no directory that can be used: {why}", root.display())]
    Root {
        /// Which directory.
        root: PathBuf,
        /// What the system said.
        why: String,
    },
}

/// What the writers of one sink share.
pub(super) struct Settings<R> {
    pub(super) format: Arc<dyn Format<R>>,
    pub(super) extension: Extension,
    pub(super) layout: Layout,
    pub(super) route: Route<R>,
    pub(super) part_bytes: usize,
    pub(super) file_bytes: u64,
    pub(super) file_age: Duration,
    pub(super) max_files: u32,
    pub(super) max_targets: usize,
}

/// Sets up an [`ObjectStoreSink`]; begun by [`ObjectStoreSink::multipart`] or [`ObjectStoreSink::local`].
pub struct ObjectStoreSinkBuilder<R> {
    connect: Connect,
    format: Arc<dyn Format<R>>,
    prefix: String,
    route: Route<R>,
    part_bytes: usize,
    file_bytes: u64,
    file_age: Duration,
    max_files: u32,
    max_targets: usize,
    parts_in_flight: usize,
    watch: Option<Watch>,
}

impl<R> fmt::Debug for ObjectStoreSinkBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStoreSinkBuilder").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl<R: 'static> ObjectStoreSink<R> {
    /// Objects in a store with multipart uploads, all of them of this target unless routed. The store's own timeouts and
    /// retries bound each call; credentials must allow to list, or the store cannot say that an object is missing.
    pub fn multipart(
        store: impl ObjectStore + MultipartStore,
        target: TargetName,
        format: impl Format<R>,
    ) -> ObjectStoreSinkBuilder<R> {
        let connect =
            move |layout, steps, parts| Ok(Arc::new(Multipart::new(store, layout, steps, parts)) as Arc<dyn Backend>);
        ObjectStoreSinkBuilder::new(Box::new(connect), target, format)
    }

    /// Files under a directory that exists, all of them of this target unless routed. It is one file system that keeps
    /// what was synced and renames atomically.
    pub fn local(root: impl Into<PathBuf>, target: TargetName, format: impl Format<R>) -> ObjectStoreSinkBuilder<R> {
        let root = root.into();
        let connect = move |layout, steps, _| match Local::new(&root, layout, steps) {
            Ok(local) => Ok(Arc::new(local) as Arc<dyn Backend>),
            Err(error) => Err(ObjectStoreSinkError::Root { root, why: error.to_string() }),
        };
        ObjectStoreSinkBuilder::new(Box::new(connect), target, format)
    }
}

impl<R: 'static> ObjectStoreSinkBuilder<R> {
    fn new(connect: Connect, target: TargetName, format: impl Format<R>) -> Self {
        Self {
            connect,
            format: Arc::new(format),
            prefix: String::new(),
            route: Arc::new(move |_| target.clone()),
            part_bytes: DEFAULT_PART_BYTES,
            file_bytes: DEFAULT_FILE_BYTES,
            file_age: DEFAULT_FILE_AGE,
            max_files: DEFAULT_MAX_FILES,
            max_targets: DEFAULT_MAX_TARGETS,
            parts_in_flight: DEFAULT_PARTS_IN_FLIGHT,
            watch: None,
        }
    }

    /// What every key begins with; by default nothing. It must stay the same while anything is staged.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Names the target of each record.
    #[must_use]
    pub fn route(mut self, route: impl Fn(&R) -> TargetName + Send + Sync + 'static) -> Self {
        self.route = Arc::new(route);
        self
    }

    /// How many bytes a part has, all but the last of a file, [`MIN_PART_BYTES`]..=[`MAX_PART_BYTES`].
    #[must_use]
    pub fn part_bytes(mut self, bytes: usize) -> Self {
        self.part_bytes = bytes;
        self
    }

    /// With how many bytes a file is ended and the next begun, 1..=[`MAX_FILE_BYTES`]. It may exceed them by a record, or
    /// by what the format holds back.
    #[must_use]
    pub fn file_bytes(mut self, bytes: u64) -> Self {
        self.file_bytes = bytes;
        self
    }

    /// How long a file takes records, at least a millisecond; the next record begins another one. A file never outlasts
    /// its transaction.
    #[must_use]
    pub fn file_age(mut self, age: Duration) -> Self {
        self.file_age = age;
        self
    }

    /// How many files one transaction may have, 1..=[`MAX_FILES`]. A record that would need one more is rejected.
    #[must_use]
    pub fn max_files(mut self, files: u32) -> Self {
        self.max_files = files;
        self
    }

    /// How many targets one transaction may have, 1..=[`MAX_TARGETS`]. A record that would need one more is rejected.
    #[must_use]
    pub fn max_targets(mut self, targets: usize) -> Self {
        self.max_targets = targets;
        self
    }

    /// How many parts of one transaction may be on their way at once, 1..=[`MAX_PARTS_IN_FLIGHT`]; each is held in
    /// memory. A local directory takes one at a time.
    #[must_use]
    pub fn parts_in_flight(mut self, parts: usize) -> Self {
        self.parts_in_flight = parts;
        self
    }

    /// For tests and drills: called before each step that changes the store, by the task that takes it. It may end the
    /// process there; an error it returns is taken for the step's own, which is then not taken.
    #[must_use]
    pub fn on_step(mut self, watch: impl Fn(&ObjectStep<'_>) -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }

    /// The sink. Changes nothing.
    ///
    /// # Errors
    /// The caller must mend the setting that the error names.
    pub fn build(self) -> Result<ObjectStoreSink<R>, ObjectStoreSinkError> {
        let layout = Layout::new(&self.prefix).ok_or(ObjectStoreSinkError::Prefix)?;
        bounded("part_bytes", self.part_bytes as u64, MIN_PART_BYTES as u64, MAX_PART_BYTES as u64)?;
        bounded("file_bytes", self.file_bytes, 1, MAX_FILE_BYTES)?;
        bounded("max_files", u64::from(self.max_files), 1, u64::from(MAX_FILES))?;
        bounded("max_targets", self.max_targets as u64, 1, MAX_TARGETS as u64)?;
        bounded("parts_in_flight", self.parts_in_flight as u64, 1, MAX_PARTS_IN_FLIGHT as u64)?;
        let age_ms = u64::try_from(self.file_age.as_millis()).unwrap_or(u64::MAX);
        bounded("file_age in ms", age_ms, 1, u64::MAX)?;
        let backend = (self.connect)(layout.clone(), Steps::new(self.watch), self.parts_in_flight)?;
        let settings = Settings {
            extension: self.format.extension().parse()?,
            format: self.format,
            layout,
            route: self.route,
            part_bytes: self.part_bytes,
            file_bytes: self.file_bytes,
            file_age: self.file_age,
            max_files: self.max_files,
            max_targets: self.max_targets,
        };
        Ok(ObjectStoreSink { settings: Arc::new(settings), backend })
    }
}

fn bounded(key: &'static str, value: u64, min: u64, max: u64) -> Result<(), ObjectStoreSinkError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(ObjectStoreSinkError::OutOfBounds { key, min, max }) }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::{super::JsonLines, *};

    fn builder() -> ObjectStoreSinkBuilder<u64> {
        ObjectStoreSink::multipart(InMemory::new(), "t".parse().unwrap(), JsonLines::new())
    }

    #[test]
    fn settings_are_taken_up_to_their_bounds() {
        type Set = fn(ObjectStoreSinkBuilder<u64>, u64) -> ObjectStoreSinkBuilder<u64>;
        let settings: [(&str, u64, u64, Set); 6] = [
            ("part_bytes", 5 << 20, 512 << 20, |b, v| b.part_bytes(usize::try_from(v).unwrap())),
            ("file_bytes", 1, 1 << 40, ObjectStoreSinkBuilder::file_bytes),
            ("max_files", 1, 128, |b, v| b.max_files(u32::try_from(v).unwrap())),
            ("max_targets", 1, 128, |b, v| b.max_targets(usize::try_from(v).unwrap())),
            ("parts_in_flight", 1, 64, |b, v| b.parts_in_flight(usize::try_from(v).unwrap())),
            ("file_age in ms", 1, u64::MAX, |b, v| b.file_age(Duration::from_millis(v))),
        ];
        for (key, min, max, set) in settings {
            for (value, taken) in [(min - 1, false), (min, true), (max, true), (max.saturating_add(1), max == u64::MAX)]
            {
                let error = set(builder(), value).build().err();
                assert_eq!(
                    error,
                    (!taken).then_some(ObjectStoreSinkError::OutOfBounds { key, min, max }),
                    "{key} {value}"
                );
            }
        }
    }

    #[test]
    fn a_prefix_that_climbs_is_refused() {
        assert_eq!(builder().prefix("a/../b").build().err(), Some(ObjectStoreSinkError::Prefix));
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused_with_its_name() {
        let sink = ObjectStoreSink::<u64>::local("/nowhere/at/all", "t".parse().unwrap(), JsonLines::new());
        let error = sink.build().unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/at/all is no directory that can be used: "), "{error}");
    }
}
