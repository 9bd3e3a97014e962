//! The store of a single machine: fjall, with what it does not promise added around it.
//!
//! In the data directory: `LOCK` (held while in use), `MARK` (see [`super::mark`]), `store/` (fjall's), and
//! `journal-aside/` (the journal as a load found it; there after a refused or interrupted one).

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{
    Batch, BatchLimits, Claim, Store, StoreError, Visit,
    codec::{self, Entry, Meta},
    journal::{self, file_error},
    mark::{self, Found, Marker},
    versions,
};

const KEYSPACE: &str = "ratified";
/// Size at which the memtable is flushed to a table; bounds what a load has to replay.
const MEMTABLE_BYTES: u64 = 16 * 1024 * 1024;
/// One for flushes, one for compactions.
const WORKERS: usize = 2;
/// The engine counts the items of a batch in 32 bits; the bytes are those of the largest body that can be configured.
const BATCH_LIMITS: BatchLimits = BatchLimits { changes: u32::MAX as usize, bytes: 1 << 30 };
/// Tables kept open; only a load reads them. Connections are bounded so that these and what is written anew find a place.
const MAX_CACHED_FILES: usize = 64;
const POLL: Duration = Duration::from_millis(2);

/// Where and how the embedded store keeps its data.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// The data directory; made when it is missing.
    pub data_dir: PathBuf,
    /// At most how often the mark is written.
    pub mark_interval: Duration,
    /// The block cache, in bytes; only a load reads.
    pub cache_bytes: u64,
}

impl EmbeddedOptions {
    /// The defaults, in this directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self { data_dir: data_dir.into(), mark_interval: Duration::from_millis(100), cache_bytes: 32 * 1024 * 1024 }
    }
}

/// A store in a directory of the local file system.
pub struct EmbeddedStore {
    options: EmbeddedOptions,
    database: Option<Opened>,
    marker: Marker,
    last_batch: u64,
    last_synced: Option<u64>,
    aside_is_kept: bool,
    // Declared last: the directory is free only when everything else is closed.
    _lock: File,
}

struct Opened {
    database: Database,
    records: Keyspace,
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("options", &self.options).finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Takes the directory for this process. Nothing is read yet.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another store has it; the directory cannot be made or written.
    pub fn open(options: EmbeddedOptions) -> Result<Self, StoreError> {
        let dir = &options.data_dir;
        make_dir(dir).map_err(file_error("make the data directory", dir))?;
        let lock = lock(dir)?;
        let mark = dir.join("MARK");
        let marker = Marker::open(&mark, options.mark_interval).map_err(file_error("open", &mark))?;
        Ok(Self {
            options,
            database: None,
            marker,
            last_batch: 0,
            last_synced: None,
            aside_is_kept: false,
            _lock: lock,
        })
    }

    fn aside(&self) -> PathBuf {
        self.options.data_dir.join("journal-aside")
    }

    fn open_engine(&self, store: &Path) -> Result<Opened, StoreError> {
        // The engine asserts some of what it reads back; to us all of that is damage.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let database = Database::builder(store)
                .manual_journal_persist(true)
                .worker_threads(WORKERS)
                .cache_size(self.options.cache_bytes)
                .max_cached_files(Some(MAX_CACHED_FILES))
                .open()?;
            let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
            let records = database.keyspace(KEYSPACE, options)?;
            Ok::<_, fjall::Error>(Opened { database, records })
        }));
        match opened {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(fjall::Error::Locked)) => Err(StoreError::Locked { path: self.options.data_dir.clone() }),
            Ok(Err(e)) => Err(unreadable(store, store.display().to_string(), &e)),
            Err(_) => Err(StoreError::damaged(store.display().to_string(), "the engine gave up reading it")),
        }
    }

    fn check_mark(&self, marked: Found, stored: u64) -> Result<(), StoreError> {
        match marked {
            Found::Batch(marked) if stored < marked => {
                Err(StoreError::Missing { stored, marked, journal: self.aside() })
            }
            Found::Unreadable => {
                tracing::warn!("the mark file cannot be read; whether acknowledged data is missing is not checked");
                Ok(())
            }
            Found::Nothing | Found::Batch(_) => Ok(()),
        }
    }
}

/// What is in the way, a file or a link that leads nowhere, is "File exists" to the system, which helps nobody.
fn make_dir(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(
            error.kind(),
            "something that is no directory has this name: name another one in data_dir, or move that away",
        ),
        _ => error,
    })
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let path = dir.join("LOCK");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = file.map_err(file_error("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { path: dir.to_owned() }),
        Err(TryLockError::Error(e)) => Err(file_error("lock", &path)(e)),
    }
}

/// Refuses a directory whose files are not all there; moves aside one that was never finished.
fn check_files(data_dir: &Path, store: &Path, marked: Found) -> Result<(), StoreError> {
    let exists = store.exists();
    let is_made = store.join("version").exists();
    match marked {
        _ if is_made => check_tables(store),
        Found::Nothing if exists => {
            // The process that was making it died before anything could be acknowledged.
            let unfinished = data_dir.join("store-unfinished");
            if unfinished.exists() {
                fs::remove_dir_all(&unfinished).map_err(file_error("remove", &unfinished))?;
            }
            fs::rename(store, &unfinished).map_err(file_error("set aside", store))
        }
        Found::Nothing => Ok(()),
        Found::Batch(_) | Found::Unreadable => Err(StoreError::damaged(
            store.display().to_string(),
            "there is a MARK, but the engine's files are not there",
        )),
    }
}

/// The engine takes a keyspace without its version file, or without its name in keyspace 0, for one that was never
/// finished, and deletes it.
fn check_tables(store: &Path) -> Result<(), StoreError> {
    let keyspaces = store.join("keyspaces");
    if keyspaces.join("1").exists() && !keyspaces.join("0").exists() {
        return Err(StoreError::damaged(keyspaces.display().to_string(), "keyspace 0, with the names, is not there"));
    }
    for entry in fs::read_dir(&keyspaces).map_err(file_error("list", &keyspaces))? {
        let path = entry.map_err(file_error("list", &keyspaces))?.path();
        let has_tables = fs::read_dir(path.join("tables")).is_ok_and(|mut tables| tables.next().is_some());
        if has_tables && !path.join("current").exists() {
            return Err(StoreError::damaged(path.display().to_string(), "there are tables, but no `current`"));
        }
        versions::check(&path)?;
    }
    Ok(())
}

/// What the operating system refuses, as a read that fails or a full disk, is no damage; what the engine expects and
/// does not find is.
fn unreadable(store: &Path, place: String, error: &fjall::Error) -> StoreError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<io::Error>().and_then(refused_by_the_system) {
            return StoreError::File {
                action: "read or write the engine's files in",
                path: store.to_owned(),
                source: refused,
            };
        }
        cause = error.source();
    }
    StoreError::damaged(place, error.to_string())
}

fn refused_by_the_system(error: &io::Error) -> Option<io::Error> {
    use io::ErrorKind::{AlreadyExists, InvalidInput, IsADirectory, NotADirectory, NotFound};
    // Damaged names and offsets lead to these.
    let is_damage = matches!(error.kind(), AlreadyExists | InvalidInput | IsADirectory | NotADirectory | NotFound);
    error.raw_os_error().filter(|_| !is_damage).map(io::Error::from_raw_os_error)
}

impl Opened {
    fn last_batch(&self, store: &Path) -> Result<u64, StoreError> {
        let key = codec::encode_meta(&Meta::Batch(0))?.key;
        let read = |e: fjall::Error| unreadable(store, codec::place(&key), &e);
        match self.records.get(&key).map_err(read)? {
            None => Ok(0),
            Some(value) => match codec::decode(&key, &value)? {
                Entry::Meta(Meta::Batch(number)) => Ok(number),
                _ => Ok(0),
            },
        }
    }

    fn visit(&self, store: &Path, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let mut before = None;
        for entry in self.records.iter() {
            let (key, value) = entry.into_inner().map_err(|e| {
                let place = before.as_deref().map_or_else(|| "the first record".to_owned(), codec::place);
                unreadable(store, format!("behind {place}"), &e)
            })?;
            visit(&key, &value)?;
            before = Some(key.to_vec());
        }
        Ok(())
    }

    /// Puts everything that was replayed into new synced tables, and drops the journals it came from.
    fn settle(&self) -> Result<(), StoreError> {
        let Some(format) = self
            .records
            .get(codec::encode_meta(&Meta::Format(0))?.key)
            .map_err(failed("flushing what was read back"))?
        else {
            return Ok(());
        };
        // One record written again makes the engine flush, and so look which journals are no longer needed.
        self.records
            .insert(codec::encode_meta(&Meta::Format(0))?.key, format)
            .map_err(failed("flushing what was read back"))?;
        self.records.rotate_memtable().map_err(failed("flushing what was read back"))?;
        while self.records.sealed_memtable_count() > 0 || self.database.journal_count() > 1 {
            // The engine's own wait never ends when its worker has died; this tells.
            self.database.persist(PersistMode::Buffer).map_err(failed("flushing what was read back"))?;
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

fn failed(action: &'static str) -> impl Fn(fjall::Error) -> StoreError {
    move |error| match error {
        fjall::Error::Poisoned => StoreError::indeterminate(
            action,
            "the engine takes nothing more since something failed in its background; the log says what",
        ),
        error => StoreError::indeterminate(action, error),
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let Some(batch) = self.last_synced
            && let Err(e) = self.marker.note_now(batch)
        {
            tracing::warn!(error = %e, "the mark file cannot be written");
        }
    }
}

impl Store for EmbeddedStore {
    fn limits(&self) -> BatchLimits {
        BATCH_LIMITS
    }

    fn load(&mut self, visit: &mut Visit<'_>) -> Result<(), StoreError> {
        let store = self.options.data_dir.join("store");
        let marked = mark::read(&self.options.data_dir.join("MARK"));
        check_files(&self.options.data_dir, &store, marked)?;
        let journals = journal::list(&store)?;
        let torn = journal::inspect(&journals)?;
        if store.exists() {
            journal::set_aside(&journals, &self.aside())?;
            torn.iter().try_for_each(journal::cut)?;
            journal::begin_new(&store, &journals)?;
        }
        self.aside_is_kept = self.aside().exists();
        let opened = self.open_engine(&store)?;
        self.last_batch = opened.last_batch(&store)?;
        self.check_mark(marked, self.last_batch)?;
        opened.visit(&store, visit)?;
        opened.settle()?;
        self.database = Some(opened);
        let data_dir = &self.options.data_dir;
        data_dir.canonicalize().ok().as_deref().and_then(Path::parent).map_or(Ok(()), journal::sync_dir)?;
        journal::sync_dir(data_dir)
    }

    // Nobody else can hold the directory's lock, so that the claim needs no comparing.
    fn write(&mut self, _claim: Claim, batch: Batch) -> Result<(), StoreError> {
        let opened = self.database.as_ref();
        let opened = opened.ok_or_else(|| StoreError::indeterminate("write", "the store was not loaded"))?;
        let mut changes = opened.database.batch();
        for change in batch.changes {
            match change.value {
                Some(value) => changes.insert(&opened.records, change.key, value),
                None => changes.remove(&opened.records, change.key),
            }
        }
        changes.commit().map_err(failed("write"))?;
        self.last_batch = batch.number;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let opened = self.database.as_ref();
        let opened = opened.ok_or_else(|| StoreError::indeterminate("sync", "the store was not loaded"))?;
        opened.database.persist(PersistMode::SyncAll).map_err(failed("sync"))?;
        self.last_synced = Some(self.last_batch);
        // The mark only ever lags, so that failing to write it loses nothing.
        if let Err(e) = self.marker.note(self.last_batch) {
            tracing::warn!(error = %e, "the mark file cannot be written");
        }
        if self.aside_is_kept {
            self.aside_is_kept = false;
            let aside = self.aside();
            if let Err(e) = fs::remove_dir_all(&aside) {
                tracing::warn!(error = %e, path = %aside.display(), "the copy of the journal cannot be removed");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "embedded_tests.rs"]
mod tests;
