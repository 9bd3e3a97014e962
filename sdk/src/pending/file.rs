//! A pending store on disk: one append-only file per client, one sync per transaction.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
};

use async_trait::async_trait;
use ratified_protocol::{ClientName, TxnId};

use super::{
    Change, PendingContents, PendingError, PendingLog, PendingStore,
    codec::{Refusal, decode_file, encode_file, encode_record},
};
use crate::{author::remedy, client::MetStore, error::Cause, ids::this_process};

/// A file is not rewritten before it has reached twice this many bytes.
const LEAST_BASELINE_BYTES: u64 = 4096;
/// As much as is told of what stands in a lock file.
const MAX_HOLDER_BYTES: u64 = 200;

/// Keeps pending transactions in a directory, one file per client.
///
/// Beginning a transaction costs one `fdatasync`; everything else is synced along with the next one. The file is written
/// anew (temporary file, sync, rename, sync of the directory) when it has doubled. A tail torn by a crash is cut; damage
/// anywhere else is refused. A second process is kept out by a lock, which ends with the process.
#[derive(Debug, Clone)]
pub struct FileStore {
    dir: PathBuf,
}

impl FileStore {
    /// A store in this directory, which is made when a client is first opened. It must be on a local disk.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }
}

#[async_trait]
impl PendingStore for FileStore {
    async fn open(&self, client: &ClientName) -> Result<Arc<dyn PendingLog>, PendingError> {
        let (dir, client) = (self.dir.clone(), client.clone());
        let log = blocking(self.dir.clone(), move || FileLog::open_shared(&dir, &client)).await?;
        Ok(log)
    }
}

/// Logs this process has open. A second `open` in one process shares the first one's file: the lock is against other
/// processes, owners within one are told apart by the coordinator's epoch.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<FileLog>>> = Mutex::new(BTreeMap::new());

/// Told whenever a log was closed: between its last use and the end of its lock it can be neither shared nor opened.
static CLOSED: Condvar = Condvar::new();

struct FileLog {
    path: PathBuf,
    state: Arc<Mutex<State>>,
    lock_file: Option<File>,
}

impl Drop for FileLog {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = self.lock_file.take()
            // A child of this process that has not executed its program yet holds the file open, too.
            && let Err(error) = file.unlock()
        {
            tracing::warn!(path = %self.path.display(), %error, "the lock ends with the process only");
        }
        open.remove(&self.path);
        CLOSED.notify_all();
    }
}

struct State {
    client: ClientName,
    path: PathBuf,
    file: File,
    length: u64,
    durable: u64,
    baseline: u64,
    contents: PendingContents,
    failed: Option<PendingError>,
}

impl FileLog {
    fn open_shared(dir: &Path, client: &ClientName) -> Result<Arc<Self>, PendingError> {
        fs::create_dir_all(dir).map_err(at(dir))?;
        let dir = dir.canonicalize().map_err(at(dir))?;
        let path = dir.join(format!("{client}.pending"));
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(known) = open.get(&path) {
            if let Some(log) = known.upgrade() {
                // Dropping a log takes the registry: it must not be held while the last use of one may end.
                drop(open);
                let mut state = log.lock();
                if state.failed.is_some() {
                    *state = State::load(client, &path)?;
                }
                drop(state);
                return Ok(log);
            }
            open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner);
        }
        let lock = lock(&dir.join(format!("{client}.lock")))?;
        let state = Arc::new(Mutex::new(State::load(client, &path)?));
        let log = Arc::new(Self { path: path.clone(), state, lock_file: Some(lock) });
        open.insert(path, Arc::downgrade(&log));
        Ok(log)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn change(&self, change: Change) -> Result<(), PendingError> {
        let state = self.state.clone();
        blocking(self.path.clone(), move || {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            state.change(change)
        })
        .await
    }
}

#[async_trait]
impl PendingLog for FileLog {
    fn contents(&self) -> PendingContents {
        self.lock().contents.clone()
    }

    async fn begin(&self, id: TxnId) -> Result<(), PendingError> {
        self.change(Change::Begin(id)).await
    }

    async fn begin_at_least_once(&self, id: TxnId) -> Result<(), PendingError> {
        self.change(Change::BeginAtLeastOnce(id)).await
    }

    async fn attach(&self, id: TxnId, handle: Vec<u8>) -> Result<(), PendingError> {
        self.change(Change::Handle(id, handle)).await
    }

    async fn remove(&self, id: TxnId) -> Result<(), PendingError> {
        self.change(Change::Remove(id)).await
    }

    async fn note_store(&self, store: MetStore) -> Result<(), PendingError> {
        self.change(Change::Store(store)).await
    }
}

impl State {
    fn load(client: &ClientName, path: &Path) -> Result<Self, PendingError> {
        let mut bytes = Vec::new();
        match File::open(path) {
            Ok(mut file) => file.read_to_end(&mut bytes).map(|_| ()).map_err(at(path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bytes = encode_file(client, std::iter::empty());
                replace(path, &bytes).map_err(at(path))?;
            }
            Err(error) => return Err(at(path)(error)),
        }
        let mut read = decode_file(&bytes, client).map_err(|refusal| refused(path, client, refusal))?;
        let mut contents = PendingContents::default();
        std::mem::take(&mut read.changes).into_iter().for_each(|change| contents.apply(change));
        if read.is_old {
            bytes = encode_file(client, contents.as_changes());
            replace(path, &bytes).map_err(at(path))?;
            read.end = bytes.len();
        }
        let file = OpenOptions::new().write(true).open(path).map_err(at(path))?;
        let length = read.end as u64;
        if read.end < bytes.len() {
            tracing::warn!(path = %path.display(), from = read.end, to = bytes.len(), "cutting a torn tail");
            file.set_len(length).map_err(at(path))?;
        }
        // What was read may be in the page cache only; it must not be acted on before it is on disk.
        file.sync_all().map_err(at(path))?;
        let baseline = length.max(LEAST_BASELINE_BYTES);
        let (client, path) = (client.clone(), path.to_owned());
        Ok(Self { client, path, file, length, durable: length, baseline, contents, failed: None })
    }

    fn change(&mut self, change: Change) -> Result<(), PendingError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.contents.check_bounds(&change)?;
        let written = self.write(change).map_err(at(&self.path));
        // After a failed write or sync nobody knows what is on disk: only reading it anew tells.
        self.failed = written.as_ref().err().cloned();
        written
    }

    fn write(&mut self, change: Change) -> io::Result<()> {
        let record = encode_record(self.durable, &change);
        self.file.seek(SeekFrom::Start(self.length))?;
        self.file.write_all(&record)?;
        self.length += record.len() as u64;
        let must_be_durable = matches!(change, Change::Begin(_) | Change::BeginAtLeastOnce(_));
        self.contents.apply(change);
        if self.length >= self.baseline * 2 {
            match Replacement::prepare(&self.path) {
                Ok(replacement) => return self.rewrite(replacement),
                // Nothing was written: the file is as good as it was, and only longer than it would have to be.
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "the file cannot be rewritten now; it grows");
                    self.baseline = self.length;
                }
            }
        }
        if must_be_durable {
            self.file.sync_data()?;
            still_there(&self.file)?;
            self.durable = self.length;
        }
        Ok(())
    }

    fn rewrite(&mut self, replacement: Replacement) -> io::Result<()> {
        let bytes = encode_file(&self.client, self.contents.as_changes());
        self.file = replacement.put(&self.path, &bytes)?;
        self.length = bytes.len() as u64;
        self.durable = self.length;
        self.baseline = self.length.max(LEAST_BASELINE_BYTES);
        Ok(())
    }
}

/// What is on disk under no name is lost with the process.
#[cfg(unix)]
fn still_there(file: &File) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;

    if file.metadata()?.nlink() > 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "it was removed while it was in use"))
}

#[cfg(not(unix))]
fn still_there(_: &File) -> io::Result<()> {
    Ok(())
}

/// Puts a whole file in place: afterwards it is there durably, or the old one still is.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    Replacement::prepare(path)?.put(path, bytes).map(drop)
}

/// All that is opened to put a file in place. It is opened first: whoever has no descriptor left is told before anything
/// is written.
struct Replacement {
    temporary: PathBuf,
    file: File,
    dir: File,
}

impl Replacement {
    fn prepare(path: &Path) -> io::Result<Self> {
        let temporary = path.with_extension("pending.new");
        let dir = File::open(path.parent().unwrap_or(Path::new(".")))?;
        Ok(Self { file: File::create(&temporary)?, temporary, dir })
    }

    /// The file, which is at `path` now.
    fn put(mut self, path: &Path, bytes: &[u8]) -> io::Result<File> {
        self.file.write_all(bytes)?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, path)?;
        self.dir.sync_all()?;
        Ok(self.file)
    }
}

fn lock(path: &Path) -> Result<File, PendingError> {
    let options = OpenOptions::new().create(true).truncate(false).read(true).write(true).to_owned();
    let mut file = options.open(path).map_err(at(path))?;
    let this = this_process();
    match file.try_lock() {
        Ok(()) => {
            // For whoever finds it locked; that nothing can be written now is found out where it matters.
            let _ = file.set_len(0).and_then(|()| file.write_all(this.as_bytes()));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = Vec::new();
            // It may have been locked a moment ago, or by something else.
            let _ = file.take(MAX_HOLDER_BYTES).read_to_end(&mut holder);
            let holder = String::from_utf8_lossy(&holder).escape_debug().to_string();
            let holder = if holder.is_empty() { "it has not said which".to_owned() } else { holder };
            Err(PendingError::Locked { path: path.to_owned(), holder, this })
        }
        Err(TryLockError::Error(error)) => Err(at(path)(error)),
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> PendingError + use<> {
    let path = path.to_owned();
    move |error| PendingError::Io { path: path.clone(), cause: Cause::new(format!("{error}{}", remedy(&error))) }
}

fn refused(path: &Path, client: &ClientName, refusal: Refusal) -> PendingError {
    let path = path.to_owned();
    match refusal {
        Refusal::OtherClient(owner) => PendingError::OtherClient { path, owner, client: client.clone() },
        Refusal::Damaged(offset, what) => PendingError::Damaged { path, offset: offset as u64, what },
        Refusal::Version(version) => PendingError::UnknownVersion { path, version },
    }
}

async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> Result<T, PendingError> + Send + 'static,
) -> Result<T, PendingError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(PendingError::Io { path, cause: Cause::new(error) }),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::ids::IdSource;

    fn client() -> ClientName {
        "job.0".parse().unwrap()
    }

    async fn open(dir: &Path) -> Result<Arc<dyn PendingLog>, PendingError> {
        FileStore::new(dir).open(&client()).await
    }

    #[tokio::test]
    async fn what_was_begun_is_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = IdSource::above([]);
        let (a, b, c) = (ids.draw().unwrap(), ids.draw().unwrap(), ids.draw().unwrap());
        let store: MetStore = "0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f.12".parse().unwrap();
        let log = open(dir.path()).await.unwrap();
        log.note_store(store.clone()).await.unwrap();
        for id in [a, b, c] {
            log.begin(id).await.unwrap();
        }
        log.attach(b, b"handle".to_vec()).await.unwrap();
        log.remove(a).await.unwrap();
        let before = log.contents();
        drop(log);
        let after = open(dir.path()).await.unwrap().contents();
        assert_eq!(after, before);
        assert_eq!(after.store, Some(store));
        assert_eq!(after.entries, BTreeMap::from([(b, Some(b"handle".to_vec())), (c, None)]));
    }

    #[tokio::test]
    async fn a_torn_tail_is_cut_and_the_log_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = IdSource::above([]);
        let kept = ids.draw().unwrap();
        let log = open(dir.path()).await.unwrap();
        log.begin(kept).await.unwrap();
        drop(log);
        let path = dir.path().join("job.0.pending");
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], &[45, 0, 0, 0, 210]].concat()).unwrap();
        let next = ids.draw().unwrap();
        let log = open(dir.path()).await.unwrap();
        log.begin(next).await.unwrap();
        drop(log);
        let entries = open(dir.path()).await.unwrap().contents().entries;
        assert_eq!(entries.into_keys().collect::<Vec<_>>(), [kept, next]);
    }

    #[tokio::test]
    async fn damage_is_refused_with_file_and_offset() {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = IdSource::above([]);
        let log = open(dir.path()).await.unwrap();
        for _ in 0..3 {
            log.begin(ids.draw().unwrap()).await.unwrap();
        }
        drop(log);
        let path = dir.path().join("job.0.pending");
        let mut bytes = fs::read(&path).unwrap();
        bytes[50] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        let Err(PendingError::Damaged { path: named, offset, .. }) = open(dir.path()).await else { panic!("taken") };
        assert_eq!((named.file_name(), offset), (path.file_name(), 27));
    }

    #[tokio::test]
    async fn a_long_life_does_not_make_a_long_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = IdSource::above([]);
        let log = open(dir.path()).await.unwrap();
        let kept = ids.draw().unwrap();
        log.begin(kept).await.unwrap();
        for _ in 0..1000 {
            let id = ids.draw().unwrap();
            log.begin(id).await.unwrap();
            log.attach(id, vec![7; 100]).await.unwrap();
            log.remove(id).await.unwrap();
        }
        drop(log);
        let length = fs::metadata(dir.path().join("job.0.pending")).unwrap().len();
        assert!(length < 8192 + 200, "{length}");
        assert_eq!(open(dir.path()).await.unwrap().contents().entries, BTreeMap::from([(kept, None)]));
    }

    #[tokio::test]
    async fn a_second_open_in_one_process_shares_the_first_ones_file() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (open(dir.path()).await.unwrap(), open(dir.path()).await.unwrap());
        first.begin(IdSource::above([]).draw().unwrap()).await.unwrap();
        assert_eq!(second.contents().entries.len(), 1);
    }

    #[test]
    fn a_log_that_is_being_closed_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..300 {
            let log = FileLog::open_shared(dir.path(), &client()).unwrap();
            let closing = std::thread::spawn(move || drop(log));
            let again = FileLog::open_shared(dir.path(), &client());
            assert!(again.is_ok(), "{:?}", again.err());
            closing.join().unwrap();
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_rewritten_grows_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = IdSource::above([]);
        let log = open(dir.path()).await.unwrap();
        // What cannot be opened: a directory where the temporary file has to be.
        let in_the_way = dir.path().join("job.0.pending.new");
        fs::create_dir(&in_the_way).unwrap();
        let mut begun = Vec::new();
        for _ in 0..100 {
            let id = ids.draw().unwrap();
            log.begin(id).await.unwrap();
            log.attach(id, vec![7; 200]).await.unwrap();
            begun.push(id);
        }
        fs::remove_dir(&in_the_way).unwrap();
        log.begin(ids.draw().unwrap()).await.unwrap();
        drop(log);
        let entries = open(dir.path()).await.unwrap().contents().entries;
        assert!(begun.iter().all(|id| entries[id] == Some(vec![7; 200])));
    }

    #[tokio::test]
    async fn after_a_failure_nothing_is_taken_until_the_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = IdSource::above([]);
        let (kept, next) = (ids.draw().unwrap(), ids.draw().unwrap());
        let log = FileLog::open_shared(dir.path(), &client()).unwrap();
        log.begin(kept).await.unwrap();
        let read_only = File::open(dir.path().join("job.0.pending")).unwrap();
        let writable = std::mem::replace(&mut log.lock().file, read_only);
        assert!(matches!(log.begin(next).await, Err(PendingError::Io { .. })));
        log.lock().file = writable;
        assert!(matches!(log.begin(next).await, Err(PendingError::Io { .. })));
        let again = open(dir.path()).await.unwrap();
        assert_eq!(again.contents().entries, BTreeMap::from([(kept, None)]));
        again.begin(next).await.unwrap();
        log.remove(kept).await.unwrap();
    }

    #[tokio::test]
    async fn a_handle_is_kept_up_to_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let id = IdSource::above([]).draw().unwrap();
        let log = open(dir.path()).await.unwrap();
        log.begin(id).await.unwrap();
        log.attach(id, vec![7; 65_536]).await.unwrap();
        assert!(matches!(log.attach(id, vec![7; 65_537]).await, Err(PendingError::HandleTooLarge { .. })));
        drop(log);
        assert_eq!(open(dir.path()).await.unwrap().contents().entries, BTreeMap::from([(id, Some(vec![7; 65_536]))]));
    }

    #[tokio::test]
    async fn a_second_process_is_kept_out_until_the_first_one_ends() {
        let dir = tempfile::tempdir().unwrap();
        let lock_path = dir.path().join("job.0.lock");
        fs::write(&lock_path, "").unwrap();
        // `flock` says when it holds the lock, and holds it until its input ends.
        let mut holder = Command::new("flock")
            .arg(&lock_path)
            .args(["sh", "-c", "echo held; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 5];
        holder.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let told = open(dir.path()).await.map(drop).unwrap_err().to_string();
        let (path, this) = (lock_path.canonicalize().unwrap(), this_process());
        let held = |holder: &str| format!("{} is held by another process: {holder}; this is {this}", path.display());
        assert_eq!(told, held("it has not said which"));
        fs::write(&lock_path, "elsewhere:7\n").unwrap();
        assert_eq!(open(dir.path()).await.map(drop).unwrap_err().to_string(), held("elsewhere:7\\n"));
        drop(holder.stdin.take());
        holder.wait().unwrap();
        let log = open(dir.path()).await.unwrap();
        assert_eq!(fs::read_to_string(&lock_path).unwrap(), this);
        drop(log);
    }

    /// As on a file system that does not tell names apart by case: both names lead to one file.
    #[tokio::test]
    async fn a_client_whose_file_is_another_ones_is_refused_naming_both() {
        let dir = tempfile::tempdir().unwrap();
        let id = IdSource::above([]).draw().unwrap();
        let log = open(dir.path()).await.unwrap();
        log.begin(id).await.unwrap();
        std::os::unix::fs::symlink(dir.path().join("job.0.pending"), dir.path().join("JOB.0.pending")).unwrap();
        let other = FileStore::new(dir.path()).open(&"JOB.0".parse().unwrap()).await.map(drop).unwrap_err();
        let expected = format!(
            "{} is the file of job.0, not of JOB.0: this file system does not tell the two names apart; rename one of \
             them, or keep them in different directories",
            dir.path().canonicalize().unwrap().join("JOB.0.pending").display()
        );
        assert_eq!(other.to_string(), expected);
        log.remove(id).await.unwrap();
    }

    #[tokio::test]
    async fn a_file_that_goes_while_it_is_open_is_told_by_the_next_begin_and_made_again_by_the_next_open() {
        let dir = tempfile::tempdir().unwrap();
        let (pending, mut ids) = (dir.path().join("pending"), IdSource::above([]));
        let log = open(&pending).await.unwrap();
        let path = pending.canonicalize().unwrap().join("job.0.pending");
        fs::remove_dir_all(&pending).unwrap();
        let id = ids.draw().unwrap();
        let told = log.begin(id).await.unwrap_err().to_string();
        assert_eq!(told, format!("{}: it was removed while it was in use", path.display()));
        let again = open(&pending).await.unwrap();
        assert_eq!(again.contents(), PendingContents::default());
        again.begin(id).await.unwrap();
        drop((log, again));
        assert_eq!(open(&pending).await.unwrap().contents().entries, BTreeMap::from([(id, None)]));
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_full_disk_is_told_with_the_file_and_what_was_begun_before_is_kept() {
        let disk = ratified_servers::SmallDisk::mount(256 << 10);
        let mut ids = IdSource::above([]);
        let filler = disk.path().join("filler");
        let fill = || drop(fs::write(&filler, vec![7; 1 << 20]));
        fill();
        let told = open(&disk.path()).await.map(drop).unwrap_err().to_string();
        assert!(told.contains("job.0.pending: No space left on device"), "{told}");
        fs::remove_file(&filler).unwrap();
        let log = open(&disk.path()).await.unwrap();
        let kept = ids.draw().unwrap();
        log.begin(kept).await.unwrap();
        fill();
        let mut refused = None;
        // What the file's last page has left.
        for _ in 0..200 {
            refused = log.begin(ids.draw().unwrap()).await.err();
            if refused.is_some() {
                break;
            }
        }
        let told = refused.unwrap().to_string();
        assert!(told.contains("job.0.pending: No space left on device"), "{told}");
        fs::remove_file(&filler).unwrap();
        let again = open(&disk.path()).await.unwrap();
        assert!(again.contents().entries.contains_key(&kept));
        again.begin(ids.draw().unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn a_directory_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (file, gone) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("gone"), &gone).unwrap();
        for (place, why) in [
            (file.join("pending"), "Not a directory"),
            (gone, "File exists"),
            (dir.path().join("d".repeat(256)), "File name too long"),
        ] {
            let told = open(&place).await.map(drop).unwrap_err().to_string();
            assert!(told.starts_with(&format!("{}: {why}", place.display())), "{told}");
        }
        let odd = dir.path().join("two\nlines");
        open(&odd).await.unwrap().begin(IdSource::above([]).draw().unwrap()).await.unwrap();
    }
}
