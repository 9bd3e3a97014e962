//! A wall clock of a process of its own, which may jump while it runs: libfaketime.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    around::{Around, needed},
    tally,
};

/// A wall clock that is off by so much. The monotonic clock stays the machine's, as when somebody sets the time.
#[derive(Debug, Clone)]
pub struct FakeClock {
    file: PathBuf,
}

impl FakeClock {
    /// A clock that is right, until it is set; kept in this file.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn new(file: &Path) -> Self {
        let clock = Self { file: file.to_owned() };
        clock.write(0);
        clock
    }

    /// Puts the clock around a process.
    ///
    /// # Panics
    /// When libfaketime is not installed.
    pub fn around(&self) -> Around {
        let machine = format!("/usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH);
        let library = needed("faketime", &[&machine, "/usr/lib/faketime/libfaketimeMT.so.1"]);
        Around::nothing()
            .with("LD_PRELOAD", library)
            .with("FAKETIME_TIMESTAMP_FILE", &self.file)
            .with("FAKETIME_NO_CACHE", "1")
            .with("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .with("DONT_FAKE_MONOTONIC", "1")
    }

    /// Sets it off by so many seconds, for running processes too.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set(&self, offset_seconds: i64) {
        self.write(offset_seconds);
        tally::fault("clock jump");
    }

    /// The file is replaced, so that nobody reads half of it.
    fn write(&self, offset_seconds: i64) {
        let unfinished = self.file.with_extension("unfinished");
        fs::write(&unfinished, format!("{offset_seconds:+}s\n")).unwrap();
        fs::rename(unfinished, &self.file).unwrap();
    }
}
