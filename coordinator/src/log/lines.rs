//! A bounded queue of log lines and the thread that writes them: whoever logs never waits for whoever reads.

use std::{
    io::{self, Write},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::escape::{self, LogFormat};

/// Lines of this process that were dropped.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// How many lines of this process were dropped because nobody took them.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    dropped: u64,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    max_bytes: usize,
    format: LogFormat,
}

/// The lines that wait to be written. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Lines(Arc<Shared>);

impl Lines {
    /// A queue of at most this many bytes, and a thread that writes what is in it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(out: impl Write + Send + 'static, max_bytes: usize, format: LogFormat) -> io::Result<Self> {
        let lines = Self(Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), max_bytes, format }));
        let written = lines.clone();
        thread::Builder::new().name("ratified-log".to_owned()).spawn(move || written.write_all_to(out))?;
        Ok(lines)
    }

    /// Queues a line; counts it instead if there is no room.
    pub(super) fn push(&self, line: &str) {
        let line = escape::line(line, self.0.format);
        let mut state = self.lock();
        if state.waiting.len().saturating_add(line.len()) > self.0.max_bytes {
            state.dropped += 1;
            DROPPED.fetch_add(1, Ordering::Relaxed);
        } else {
            state.waiting.extend_from_slice(line.as_bytes());
            self.0.changed.notify_all();
        }
    }

    /// Queues the last words of the process as they are; there is always room for them.
    pub(super) fn push_last(&self, line: &str) {
        self.lock().waiting.extend_from_slice(line.as_bytes());
        self.0.changed.notify_all();
    }

    /// Waits until everything is written, or this long.
    pub(super) fn flush(&self, timeout: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        drop(self.0.changed.wait_timeout_while(self.lock(), timeout, is_busy));
    }

    fn write_all_to(&self, mut out: impl Write) {
        let mut taken = Vec::new();
        loop {
            {
                let waiting = self.0.changed.wait_while(self.lock(), |state| state.waiting.is_empty());
                let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
                std::mem::swap(&mut state.waiting, &mut taken);
                state.is_writing = true;
            }
            let written = out.write_all(&taken).and_then(|()| out.flush());
            let lost = if written.is_err() { taken.iter().filter(|b| **b == b'\n').count() } else { 0 };
            DROPPED.fetch_add(lost as u64, Ordering::Relaxed);
            taken.clear();
            let dropped = {
                let mut state = self.lock();
                state.is_writing = false;
                self.0.changed.notify_all();
                // Told once it flows again; until then the number goes on growing.
                if written.is_ok() { std::mem::take(&mut state.dropped) } else { 0 }
            };
            if dropped > 0 {
                tracing::warn!(dropped, "lines of the log were dropped, because stderr was not read");
            }
        }
    }

    // A panic elsewhere leaves whole lines.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes an event at a time, as the formatting layer writes it.
impl Write for Lines {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.push(&String::from_utf8_lossy(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes nothing until it is told to, then everything.
    struct Held {
        go: mpsc::Receiver<()>,
        is_going: bool,
        began: mpsc::Sender<()>,
        out: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.is_going {
                self.began.send(()).unwrap();
                self.is_going = self.go.recv().is_ok();
            }
            self.out.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_beyond_the_bound_are_counted_and_nobody_waits() {
        let (go, held) = mpsc::channel();
        let (began, has_begun) = mpsc::channel();
        let out = Arc::new(Mutex::new(Vec::new()));
        let held = Held { go: held, is_going: false, began, out: out.clone() };
        let lines = Lines::start(held, 10, LogFormat::Text).unwrap();
        lines.push("one\n");
        has_begun.recv().unwrap();
        // The thread holds the first line and takes no more: ten bytes are room for two of five.
        let before = dropped_lines();
        for line in ["2222\n", "3333\n", "4444\n"] {
            lines.push(line);
        }
        assert_eq!(dropped_lines() - before, 1);
        lines.flush(Duration::ZERO);
        lines.push_last("last\n");
        go.send(()).unwrap();
        lines.flush(Duration::from_secs(60));
        assert_eq!(String::from_utf8(out.lock().unwrap().clone()).unwrap(), "one\n2222\n3333\nlast\n");
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::start(Gone, 1024, LogFormat::Text).unwrap();
        let before = dropped_lines();
        lines.push("one\n");
        lines.flush(Duration::from_secs(60));
        assert!(dropped_lines() > before);
    }
}
