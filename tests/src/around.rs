//! What a process under test is run inside: a tracer, a preloaded library, a limit, another clock.

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    process::Command,
};

/// A program that runs the process under test, and variables for it. Whatever is put around it, the process keeps the
/// id that was spawned, so that signals reach it.
#[derive(Debug, Clone, Default)]
pub struct Around {
    program: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Around {
    /// Nothing at all.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// This program and its arguments, to which the process and its own arguments are appended; it must become it, by
    /// `exec`.
    pub fn program(words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: words.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// A shell that ignores SIGXFSZ, so that a write beyond the limit on file sizes is an error and no death.
    pub fn without_sigxfsz() -> Self {
        Self::program(["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"])
    }

    /// The same with a variable set.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// The command that runs this program inside.
    pub fn command(&self, program: &Path) -> Command {
        let mut words = self.program.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(OsStr::new("")));
        command.args(words).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A file that a Debian package brings.
///
/// # Panics
/// When none of the places has it: `scripts/test` installs the package.
pub(crate) fn needed(package: &str, places: &[&str]) -> PathBuf {
    let found = places.iter().map(Path::new).find(|path| path.exists());
    let found =
        found.unwrap_or_else(|| panic!("{places:?} is not there; install the package {package}, as scripts/test does"));
    found.to_owned()
}
