//! The next segment, made before it is needed by a thread that has nothing else to do but to remove old ones.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use super::{files, segment};
use crate::store::StoreStatus;

/// The name of a segment that is not yet in use.
pub(super) const NEXT: &str = "next";
/// How long it waits before it tries again to make a segment.
const RETRY: Duration = Duration::from_secs(1);

/// A segment made ahead, and how long it is.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) file: File,
    pub(super) bytes: u64,
}

#[derive(Default)]
struct State {
    wanted: Option<u64>,
    ready: Option<Ready>,
    failed: Option<io::Error>,
    old: Vec<PathBuf>,
    stop: bool,
}

struct Shared {
    dir: PathBuf,
    status: Arc<StoreStatus>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread. It ends with this.
pub(super) struct Ahead {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Ahead {
    /// Starts the thread for this directory of segments, with a first one to be made.
    pub(super) fn start(dir: &Path, status: Arc<StoreStatus>, bytes: u64) -> io::Result<Self> {
        let state = Mutex::new(State { wanted: Some(bytes), ..State::default() });
        let shared = Arc::new(Shared { dir: dir.to_owned(), status, state, changed: Condvar::new() });
        let worker = shared.clone();
        let thread = thread::Builder::new().name("ratified-ahead".to_owned()).spawn(move || worker.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Asks for another segment; the caller has taken the one before.
    pub(super) fn want(&self, bytes: u64) {
        self.shared.lock().wanted = Some(bytes);
        self.shared.changed.notify_all();
    }

    /// The segment, waited for if it is being made.
    ///
    /// # Errors
    /// It could not be made; what was held in reserve is used up.
    pub(super) fn take(&self) -> io::Result<Ready> {
        let waits = |state: &mut State| state.ready.is_none() && state.failed.is_none();
        let guard = self.shared.changed.wait_while(self.shared.lock(), waits);
        let mut state = guard.unwrap_or_else(PoisonError::into_inner);
        match (state.ready.take(), &state.failed) {
            (Some(ready), _) => Ok(ready),
            (None, Some(failed)) => Err(copy_of(failed)),
            (None, None) => Err(io::ErrorKind::Other.into()),
        }
    }

    /// Removes segments that nothing needs any more, in this order.
    pub(super) fn remove(&self, old: Vec<PathBuf>) {
        self.shared.lock().old.extend(old);
        self.shared.changed.notify_all();
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut state = self.lock();
            while !state.stop && state.wanted.is_none() && state.old.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let old = std::mem::take(&mut state.old);
            let (wanted, stop) = (state.wanted, state.stop);
            drop(state);
            self.remove(old);
            match wanted {
                _ if stop => return,
                Some(bytes) => self.make(bytes),
                None => {}
            }
        }
    }

    fn make(&self, bytes: u64) {
        let path = self.dir.join(NEXT);
        let made = segment::allocate(&path, bytes, || self.lock().stop);
        let mut state = self.lock();
        match made {
            Ok(file) => {
                if self.status.set_short(false) {
                    tracing::info!(path = %path.display(), bytes, "there is room for the next segment again");
                }
                (state.ready, state.failed, state.wanted) = (Some(Ready { file, bytes }), None, None);
                self.changed.notify_all();
            }
            Err(_) if state.stop => {}
            Err(error) => {
                // What was written of it would only take room from others.
                let _ = fs::remove_file(&path);
                if !self.status.set_short(true) {
                    tracing::error!(path = %path.display(), bytes, %error, "the next segment cannot be made: nothing new is \
                         begun, decisions go on within what is left of the present one");
                }
                state.failed = Some(error);
                self.changed.notify_all();
                let idle = |state: &mut State| !state.stop && state.old.is_empty();
                drop(self.changed.wait_timeout_while(state, RETRY, idle));
            }
        }
    }

    // Oldest first: were a later one gone before an earlier one, what it removed would be there again.
    fn remove(&self, old: Vec<PathBuf>) {
        let count = old.len();
        for path in old {
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "an old segment cannot be removed; the next start tries again");
                return;
            }
        }
        if count > 0
            && let Err(error) = files::sync_dir(&self.dir)
        {
            tracing::warn!(%error, "removed segments may be there again after a crash");
        }
    }

    // A panic elsewhere leaves the state as it was before or after one whole change.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn copy_of(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}
