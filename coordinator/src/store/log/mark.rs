//! The mark: which batch is known to have been synced, noted beside the store.
//!
//! It is written in place after a sync and not synced itself, so that it can only lag behind. A store that ends before
//! its mark has lost acknowledged data.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    time::{Duration, Instant},
};

use super::files;

const MAGIC: &[u8; 4] = b"RMK1";
const LENGTH: usize = 16;

/// What was found in the mark file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// There is no file, or nothing was ever written to it.
    Nothing,
    /// The file is not what was written; worth a warning.
    Unreadable,
    /// The batch.
    Batch(u64),
}

/// Reads the mark.
pub(super) fn read(path: &Path) -> Found {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|f| f.take(LENGTH as u64 + 1).read_to_end(&mut bytes)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Found::Nothing,
        Err(_) => Found::Unreadable,
        Ok(0) => Found::Nothing,
        Ok(_) => decode(&bytes).map_or(Found::Unreadable, Found::Batch),
    }
}

fn encode(batch: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let (head, checksum) = bytes.split_at_mut(12);
    let (magic, number) = head.split_at_mut(4);
    magic.copy_from_slice(MAGIC);
    number.copy_from_slice(&batch.to_le_bytes());
    checksum.copy_from_slice(&crc32fast::hash(head).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let (head, checksum) = bytes.split_first_chunk::<12>()?;
    let number = head.strip_prefix(MAGIC)?;
    let intact = checksum == crc32fast::hash(head).to_le_bytes();
    if intact { number.try_into().ok().map(u64::from_le_bytes) } else { None }
}

/// Writes the mark, not more often than once an interval.
#[derive(Debug)]
pub(super) struct Marker {
    file: File,
    interval: Duration,
    last: Option<Instant>,
}

impl Marker {
    /// Opens or makes the file.
    pub(super) fn open(path: &Path, interval: Duration) -> io::Result<Self> {
        Ok(Self { file: files::open_or_make(path, false)?, interval, last: None })
    }

    /// Notes that this batch has been synced, unless something was noted a moment ago.
    pub(super) fn note(&mut self, batch: u64) -> io::Result<()> {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < self.interval) {
            return Ok(());
        }
        self.note_now(batch)?;
        self.last = Some(now);
        Ok(())
    }

    /// Notes that this batch has been synced.
    pub(super) fn note_now(&mut self, batch: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&encode(batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_sixteen_checksummed_bytes() {
        let bytes = encode(0x0102);
        assert_eq!(bytes[..12], *b"RMK1\x02\x01\0\0\0\0\0\0");
        assert_eq!(decode(&bytes), Some(0x0102));
        for at in 0..bytes.len() {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(decode(&wrong), None, "byte {at}");
        }
        assert_eq!(decode(&bytes[..15]), None);
    }

    #[test]
    fn a_mark_is_written_in_place_and_not_more_often_than_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MARK");
        assert_eq!(read(&path), Found::Nothing);
        let mut marker = Marker::open(&path, Duration::from_secs(3600)).unwrap();
        marker.note(7).unwrap();
        marker.note(8).unwrap();
        assert_eq!(read(&path), Found::Batch(7));
        marker.note_now(9).unwrap();
        assert_eq!(read(&path), Found::Batch(9));
        std::fs::write(&path, b"RMK1").unwrap();
        assert_eq!(read(&path), Found::Unreadable);
    }
}
