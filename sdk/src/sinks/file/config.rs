//! How a file sink is set up, and its bounds.

use std::{fmt, io, path::PathBuf, sync::Arc};

use serde::Serialize;

use super::{
    FileSink,
    disk::{Disk, FileStep, Watch},
    names::FileSinkError,
};
use crate::{
    author::{Extension, TargetName, json_line},
    error::Cause,
};

/// Bytes held in memory before they are written, unless set otherwise: 256 KiB.
pub const DEFAULT_BUFFER_BYTES: usize = 256 * 1024;
/// Greatest buffer: 64 MiB.
pub const MAX_BUFFER_BYTES: usize = 64 * 1024 * 1024;
/// Longest encoded record, unless set otherwise: 1 MiB.
pub const DEFAULT_MAX_RECORD_BYTES: usize = 1024 * 1024;
/// Greatest bound on an encoded record: 64 MiB.
pub const MAX_RECORD_BYTES: usize = 64 * 1024 * 1024;
/// Most targets of one transaction, unless set otherwise. Each holds a file open.
pub const DEFAULT_MAX_TARGETS: usize = 16;
/// Greatest bound on the targets of one transaction; its handle still fits the payload.
pub const MAX_TARGETS: usize = 128;

type Encode<R> = Arc<dyn Fn(&R, &mut Vec<u8>) -> Result<(), Cause> + Send + Sync>;
type Route<R> = Arc<dyn Fn(&R) -> TargetName + Send + Sync>;

/// What the writers of one sink share.
pub(super) struct Settings<R> {
    pub(super) encode: Encode<R>,
    pub(super) route: Route<R>,
    pub(super) extension: Extension,
    pub(super) buffer_bytes: usize,
    pub(super) max_record_bytes: usize,
    pub(super) max_targets: usize,
}

/// Sets up a [`FileSink`]; begun by [`FileSink::json_lines`] or [`FileSink::raw`].
pub struct FileSinkBuilder<R> {
    root: PathBuf,
    encode: Encode<R>,
    route: Route<R>,
    extension: String,
    buffer_bytes: usize,
    max_record_bytes: usize,
    max_targets: usize,
    watch: Option<Watch>,
}

impl<R> fmt::Debug for FileSinkBuilder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSinkBuilder").field("root", &self.root).finish_non_exhaustive()
    }
}

impl<R: Serialize + 'static> FileSink<R> {
    /// One line of JSON per record; one with a NaN or an infinity, which would become `null`, is rejected. In `.jsonl` files under `root`, all of them of this target unless routed. The
    /// directory is made, its missing parents too, when the first transaction begins.
    pub fn json_lines(root: impl Into<PathBuf>, target: TargetName) -> FileSinkBuilder<R> {
        FileSinkBuilder::new(root.into(), target, "jsonl", json_line)
    }
}

impl<R: AsRef<[u8]> + 'static> FileSink<R> {
    /// The bytes of the records, nothing between them, in `.bin` files under `root`, all of them of this target unless
    /// routed. The directory is made, its missing parents too, when the first transaction begins.
    pub fn raw(root: impl Into<PathBuf>, target: TargetName) -> FileSinkBuilder<R> {
        FileSinkBuilder::new(root.into(), target, "bin", |record: &R, out: &mut Vec<u8>| {
            out.extend_from_slice(record.as_ref());
            Ok(())
        })
    }
}

impl<R> FileSinkBuilder<R> {
    fn new(
        root: PathBuf,
        target: TargetName,
        extension: &str,
        encode: impl Fn(&R, &mut Vec<u8>) -> Result<(), Cause> + Send + Sync + 'static,
    ) -> Self {
        Self {
            root,
            encode: Arc::new(encode),
            route: Arc::new(move |_| target.clone()),
            extension: extension.to_owned(),
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            max_record_bytes: DEFAULT_MAX_RECORD_BYTES,
            max_targets: DEFAULT_MAX_TARGETS,
            watch: None,
        }
    }

    /// Names the target of each record.
    #[must_use]
    pub fn route(mut self, route: impl Fn(&R) -> TargetName + Send + Sync + 'static) -> Self {
        self.route = Arc::new(route);
        self
    }

    /// The extension of the files, without the dot: 1..=16 letters and digits.
    #[must_use]
    pub fn extension(mut self, extension: &str) -> Self {
        extension.clone_into(&mut self.extension);
        self
    }

    /// How many bytes a writer holds in memory before it writes them, 1..=[`MAX_BUFFER_BYTES`]; it may exceed them by one
    /// record.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// How many bytes an encoded record may have, its line end included, 1..=[`MAX_RECORD_BYTES`]. A longer one is
    /// rejected.
    #[must_use]
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.max_record_bytes = bytes;
        self
    }

    /// How many targets one transaction may have, 1..=[`MAX_TARGETS`]. A record that would need one more is rejected.
    #[must_use]
    pub fn max_targets(mut self, targets: usize) -> Self {
        self.max_targets = targets;
        self
    }

    /// For tests and drills: called before each step that changes the disk, on the thread that takes it. It may end the
    /// process there; an error it returns is taken for the step's own, which is then not taken.
    #[must_use]
    pub fn on_step(mut self, watch: impl Fn(&FileStep<'_>) -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }

    /// The sink. Touches no file.
    ///
    /// # Errors
    /// The caller must mend the setting that the error names.
    pub fn build(self) -> Result<FileSink<R>, FileSinkError> {
        let settings = Settings {
            extension: self.extension.parse()?,
            encode: self.encode,
            route: self.route,
            buffer_bytes: bounded("buffer_bytes", self.buffer_bytes, MAX_BUFFER_BYTES)?,
            max_record_bytes: bounded("max_record_bytes", self.max_record_bytes, MAX_RECORD_BYTES)?,
            max_targets: bounded("max_targets", self.max_targets, MAX_TARGETS)?,
        };
        Ok(FileSink { settings: Arc::new(settings), disk: Arc::new(Disk::new(self.root, self.watch)) })
    }
}

fn bounded(key: &'static str, value: usize, max: usize) -> Result<usize, FileSinkError> {
    if (1..=max).contains(&value) { Ok(value) } else { Err(FileSinkError::OutOfBounds { key, max }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::author::NameError;

    fn raw() -> FileSinkBuilder<Vec<u8>> {
        FileSink::raw("out", "t".parse().unwrap())
    }

    #[test]
    fn settings_are_taken_up_to_their_bounds() {
        type Set = fn(FileSinkBuilder<Vec<u8>>, usize) -> FileSinkBuilder<Vec<u8>>;
        let settings: [(&str, usize, Set); 3] = [
            ("buffer_bytes", MAX_BUFFER_BYTES, FileSinkBuilder::buffer_bytes),
            ("max_record_bytes", MAX_RECORD_BYTES, FileSinkBuilder::max_record_bytes),
            ("max_targets", MAX_TARGETS, FileSinkBuilder::max_targets),
        ];
        for (key, max, set) in settings {
            for (value, taken) in [(0, false), (1, true), (max, true), (max + 1, false)] {
                let error = set(raw(), value).build().err();
                assert_eq!(error, (!taken).then_some(FileSinkError::OutOfBounds { key, max }), "{key} {value}");
            }
        }
    }

    #[test]
    fn an_extension_with_a_dot_is_refused() {
        assert_eq!(raw().extension("tar.gz").build().err(), Some(FileSinkError::Name(NameError::Extension)));
    }
}
