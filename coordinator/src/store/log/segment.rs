//! One segment as a file: allocated in full and zeroed before it is used, so that writing to it changes no metadata.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{files, format::HEADER_BLOCK};

/// Zeroed and synced at once: what others write meanwhile does not wait behind all of a segment.
const STRIDE: usize = 4 << 20;
const NAME_DIGITS: usize = 20;
const EXTENSION: &str = "seg";

/// The name of the segment that begins with this batch.
pub(super) fn file_name(first: u64) -> String {
    format!("{first:0NAME_DIGITS$}.{EXTENSION}")
}

/// The first batch of the segment of this name, if it is one.
pub(super) fn parse_name(name: &Path) -> Option<u64> {
    let first = name.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?.parse().ok()?;
    (name == Path::new(&file_name(first))).then_some(first)
}

/// A segment that is written to.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its name.
    pub(super) path: PathBuf,
    /// Its first batch.
    pub(super) first: u64,
    /// How long it is.
    pub(super) bytes: u64,
    /// Where the next batch goes.
    pub(super) at: u64,
    /// The file.
    pub(super) file: File,
}

impl Segment {
    /// How much it still takes.
    pub(super) fn room(&self) -> u64 {
        self.bytes.saturating_sub(self.at)
    }

    /// Writes at the end, by one call; durable only after a sync.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.at)?;
        self.at = self.at.saturating_add(bytes.len() as u64);
        Ok(())
    }
}

/// Makes a file of this many zeros, durable but for its name; what was there under the name is gone. Gives up between
/// two strides when it is told to.
pub(super) fn allocate(path: &Path, bytes: u64, give_up: impl Fn() -> bool) -> io::Result<File> {
    let file = files::open_or_make(path, true)?;
    let zeros = vec![0; STRIDE.min(usize::try_from(bytes).unwrap_or(STRIDE))];
    let mut at = 0;
    while at < bytes {
        if give_up() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the store is closed"));
        }
        let left = usize::try_from(bytes - at).unwrap_or(usize::MAX).min(zeros.len());
        file.write_all_at(zeros.get(..left).unwrap_or_default(), at)?;
        file.sync_data()?;
        at = at.saturating_add(left as u64);
    }
    file.sync_all()?;
    Ok(file)
}

/// The least length of a segment that has room for a batch of this length, and for its own end.
pub(super) fn least_bytes(batch_bytes: usize) -> u64 {
    (HEADER_BLOCK as u64).saturating_add(batch_bytes as u64).saturating_add(super::format::SECTOR as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_named_after_its_first_batch_and_nothing_else_is_a_name() {
        assert_eq!(file_name(17), "00000000000000000017.seg");
        assert_eq!(parse_name(Path::new("00000000000000000017.seg")), Some(17));
        assert_eq!(parse_name(Path::new("18446744073709551615.seg")), Some(u64::MAX));
        for other in ["17.seg", "00000000000000000017", "00000000000000000017.seg~", "+0000000000000000017.seg", "next"]
        {
            assert_eq!(parse_name(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_segment_is_all_zeros_whatever_had_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("next");
        std::fs::write(&path, vec![1; 10_000]).unwrap();
        allocate(&path, 9_000, || false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), vec![0; 9_000]);
        assert!(allocate(&path, 9_000, || true).is_err());
    }
}
