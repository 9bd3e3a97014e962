//! Errors of the C library's calls, switched on in a running process: libfiu.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::around::{Around, needed};

/// What a failing call says. The numbers are those of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// The disk failed.
    Eio,
    /// The disk is full.
    Enospc,
}

impl Errno {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Eio, Self::Enospc];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eio => "EIO",
            Self::Enospc => "ENOSPC",
        }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Eio => 5,
            Self::Enospc => 28,
        }
    }
}

/// How often a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The next time only.
    Once,
    /// From now on.
    Always,
}

impl Times {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Once, Self::Always];
}

/// The pipes through which processes with libfiu are told what is to fail.
#[derive(Debug, Clone)]
pub struct Fiu {
    pipes: PathBuf,
}

impl Fiu {
    /// With its pipes in this directory.
    pub fn new(dir: &Path) -> Self {
        Self { pipes: dir.join("fiu") }
    }

    /// Puts libfiu into a process; nothing fails yet.
    ///
    /// # Panics
    /// When it is not installed.
    pub fn around(&self) -> Around {
        let program = needed("fiu-utils", &["/usr/bin/fiu-run"]);
        Around::program([program.into_os_string(), "-x".into(), "-f".into(), self.pipes.clone().into_os_string()])
    }

    /// Lets calls of a process fail; it holds once this has returned. `call` is a point of libfiu's POSIX preloader,
    /// as `posix/io/sync/fsync`. The fault's name is given, for the ledger, once it was seen to have an effect.
    ///
    /// # Panics
    /// When the process is not there any more.
    #[must_use]
    pub fn fail(&self, process: u32, call: &str, errno: Errno, times: Times) -> String {
        let once = if times == Times::Once { ",onetime" } else { "" };
        self.control(process, &format!("enable name={call},failinfo={}{once}", errno.number()));
        format!("{} {} {times:?}", errno.name(), call.rsplit('/').next().unwrap_or(call))
    }

    fn control(&self, process: u32, command: &str) {
        // In the process under test this is called from inside: what controls must not be controlled itself.
        let output = Command::new(needed("fiu-utils", &["/usr/bin/fiu-ctrl"]))
            .arg("-f")
            .arg(&self.pipes)
            .args(["-c", command, &process.to_string()])
            .env_remove("LD_PRELOAD")
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success() && said.is_empty(), "{command}: {}", String::from_utf8_lossy(&said));
    }
}
