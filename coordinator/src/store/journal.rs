//! What is done to the engine's journal before the engine may touch it.
//!
//! The engine takes everything behind a record it cannot read for a torn tail and cuts it, and the sequence number of
//! a batch is not under its checksum. So the journals are first read here: a record that cannot be read while whole
//! ones follow, and a batch number or sequence number out of order, are damage, and refused.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use xxhash_rust::xxh3::xxh3_64;

use super::{
    StoreError,
    codec::{self, Entry, Meta},
};

const EXTENSION: &str = "jnl";
const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: &[u8; 4] = b"FJL\x03";
/// A value, a tombstone, a weak tombstone.
const VALUE_TYPES: [u8; 3] = [0, 1, 2];
/// What a disk writes whole or not at all, in bytes.
const SECTOR: usize = 512;
/// Sequence numbers between neighbours differ by a few; a step like this is a damaged number.
const MAX_STEP: u64 = 1 << 32;

/// The engine's journals, oldest first; the last one is written to.
pub(super) fn list(dir: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(file_error("list", dir))?,
    };
    for entry in entries {
        let path = entry.map_err(file_error("list", dir))?.path();
        if path.extension().is_some_and(|e| e == EXTENSION) {
            let number = path.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse::<u64>().ok());
            let number = number.ok_or_else(|| damaged(&path, 0, "its name is not a number"))?;
            found.push((number, path));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// A tail that a crash tore: the journal is good up to this byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Torn {
    path: PathBuf,
    at: usize,
}

/// Reads every journal and refuses damage before the tail; gives the tails that a crash tore.
pub(super) fn inspect(journals: &[PathBuf]) -> Result<Vec<Torn>, StoreError> {
    let mut order = Order::default();
    let mut torn = Vec::new();
    for path in journals {
        let bytes = read_without_padding(path).map_err(file_error("read", path))?;
        let mut at = 0;
        while let Some(batch) = read_batch(&bytes, at) {
            order.follow(&batch).map_err(|problem| damaged(path, at, problem))?;
            at = batch.end;
        }
        let tail = bytes.get(at..).unwrap_or_default();
        match find_trailer(tail, order.sequence) {
            None if tail.is_empty() => {}
            Some(end) if end < tail.len() || !has_unwritten_sector(&bytes, at) => {
                let problem = format!("cannot be read, but a whole record ends {end} bytes further on");
                return Err(damaged(path, at, problem));
            }
            _ => torn.push(Torn { path: path.clone(), at }),
        }
    }
    Ok(torn)
}

/// Cuts a torn tail: the engine knows only some kinds of them, and refuses the others.
pub(super) fn cut(torn: &Torn) -> Result<(), StoreError> {
    tracing::warn!(journal = %torn.path.display(), at = torn.at, "a torn tail, never acknowledged, is cut");
    let file = OpenOptions::new().write(true).open(&torn.path).map_err(file_error("open", &torn.path))?;
    let cut = file.set_len(torn.at as u64).and_then(|()| file.sync_all());
    cut.map_err(file_error("cut", &torn.path))
}

/// Copies the journals to `to`, durably, unless a copy is already there: opening the store may cut the originals, and
/// the oldest copy is the one that was found.
pub(super) fn set_aside(journals: &[PathBuf], to: &Path) -> Result<(), StoreError> {
    if to.exists() {
        return Ok(());
    }
    let unfinished = to.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(file_error("remove", &unfinished))?;
    }
    fs::create_dir_all(&unfinished).map_err(file_error("make", &unfinished))?;
    for path in journals {
        let copy = unfinished.join(path.file_name().unwrap_or_default());
        copy_without_padding(path, &copy).map_err(file_error("copy to", &copy))?;
    }
    sync_dir(&unfinished)?;
    fs::rename(&unfinished, to).map_err(file_error("rename to", to))?;
    sync_dir(to.parent().unwrap_or(to))
}

/// Begins a new journal, so that the engine takes the ones before for full: it replays them into new synced tables and
/// deletes them, and never again writes behind bytes of which nobody knows whether they reached the disk.
pub(super) fn begin_new(dir: &Path, journals: &[PathBuf]) -> Result<(), StoreError> {
    let is_full = |path: &&PathBuf| path.metadata().is_ok_and(|m| m.len() > 0);
    let Some(last) = journals.last().filter(is_full) else {
        return Ok(());
    };
    let number = last.file_stem().and_then(|s| s.to_str()).and_then(|s| s.parse::<u64>().ok()).unwrap_or_default();
    let path = dir.join(format!("{}.{EXTENSION}", number.saturating_add(1)));
    let file = File::create_new(&path).map_err(file_error("make", &path))?;
    file.sync_all().map_err(file_error("sync", &path))?;
    sync_dir(dir)
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(file_error("sync", dir))
}

/// Names a file operation that failed.
pub(super) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::File { action, path, source }
}

fn damaged(path: &Path, at: usize, problem: impl Into<String>) -> StoreError {
    StoreError::damaged(format!("{} at byte {at}", path.display()), problem)
}

// The engine allocates journals ahead; the zeros behind the last record are no concern of anybody. Whole blocks are
// compared, since there are many.
fn read_without_padding(path: &Path) -> io::Result<Vec<u8>> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut bytes = fs::read(path)?;
    let padding = bytes.rchunks(ZEROS.len()).take_while(|block| ZEROS.starts_with(block)).map(<[u8]>::len).sum();
    bytes.truncate(bytes.len().saturating_sub(padding));
    let end = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    Ok(bytes)
}

fn copy_without_padding(from: &Path, to: &Path) -> io::Result<()> {
    let mut file = File::create(to)?;
    file.write_all(&read_without_padding(from)?)?;
    file.sync_all()
}

/// What a whole batch says about its place.
struct JournalBatch {
    sequence: u64,
    number: Option<u64>,
    end: usize,
}

#[derive(Default)]
struct Order {
    sequence: Option<u64>,
    number: Option<u64>,
}

impl Order {
    fn follow(&mut self, batch: &JournalBatch) -> Result<(), String> {
        if let Some(before) = self.sequence {
            let step = batch.sequence.saturating_sub(before);
            if step == 0 || step > MAX_STEP {
                return Err(format!("sequence number {} follows {before}", batch.sequence));
            }
        }
        if let (Some(before), Some(number)) = (self.number, batch.number)
            && before.checked_add(1) != Some(number)
        {
            return Err(format!("batch {number} follows batch {before}"));
        }
        self.sequence = Some(batch.sequence);
        self.number = batch.number.or(self.number);
        Ok(())
    }
}

/// A whole batch at this place, or `None` if there is none. Every field is checked: the engine asserts some of them,
/// and ends the process where they are not what it wrote.
fn read_batch(bytes: &[u8], at: usize) -> Option<JournalBatch> {
    let mut cursor = Cursor { bytes, at };
    if cursor.byte()? != START {
        return None;
    }
    let items = cursor.u32()?;
    let sequence = cursor.u64()?;
    let items_at = cursor.at;
    let mut number = None;
    for _ in 0..items {
        match cursor.byte()? {
            ITEM => number = read_item(&mut cursor)?.or(number),
            CLEAR => {
                cursor.u64()?;
            }
            _ => return None,
        }
    }
    let items_end = cursor.at;
    if cursor.byte()? != END {
        return None;
    }
    let checksum = cursor.u64()?;
    let is_whole = cursor.take(TRAILER.len())? == TRAILER && xxh3_64(bytes.get(items_at..items_end)?) == checksum;
    is_whole.then_some(JournalBatch { sequence, number, end: cursor.at })
}

/// An item; gives the number of the batch if this is where it is written.
fn read_item(cursor: &mut Cursor<'_>) -> Option<Option<u64>> {
    let value_type = cursor.byte()?;
    let compression = cursor.byte()?;
    let _keyspace = cursor.u64()?;
    let key_bytes = usize::from(cursor.u16()?);
    let plain_bytes = cursor.u32()?;
    let value_bytes = cursor.u32()?;
    if !VALUE_TYPES.contains(&value_type) || compression != 0 || plain_bytes != value_bytes {
        return None;
    }
    let key = cursor.take(key_bytes)?;
    let value = cursor.take(usize::try_from(value_bytes).ok()?)?;
    match codec::decode(key, value) {
        Ok(Entry::Meta(Meta::Batch(number))) => Some(Some(number)),
        _ => Some(None),
    }
}

/// Where a whole record ends: a trailer, and behind it nothing or the start of the next record.
fn find_trailer(bytes: &[u8], last_sequence: Option<u64>) -> Option<usize> {
    let is_next = |at: usize| {
        let mut cursor = Cursor { bytes, at };
        let starts = cursor.byte() == Some(START) && cursor.u32().is_some();
        let step = cursor.u64().map(|sequence| sequence.wrapping_sub(last_sequence.unwrap_or_default()));
        starts && step.is_some_and(|step| (1..=MAX_STEP).contains(&step))
    };
    let ends = bytes.windows(TRAILER.len()).enumerate().filter(|(_, w)| w == TRAILER).map(|(at, _)| at + TRAILER.len());
    ends.into_iter().find(|end| *end == bytes.len() || is_next(*end))
}

/// Whether a sector at or behind this place was never written: the disk was stopped while it wrote the pages of a batch,
/// in an order of its own. Of the sector in which the batch begins, what lies before it is older and was there already.
fn has_unwritten_sector(bytes: &[u8], from: usize) -> bool {
    let first = bytes.get(from..from.next_multiple_of(SECTOR)).unwrap_or_default();
    if !first.is_empty() && first.iter().all(|byte| *byte == 0) {
        return true;
    }
    let sectors = bytes.chunks_exact(SECTOR).skip(from.div_ceil(SECTOR));
    sectors.into_iter().any(|sector| sector == [0; SECTOR])
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }
}
