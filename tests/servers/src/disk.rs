//! A disk so small that it fills up.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// A file system of its own in memory, of a fixed size; it is gone when dropped.
///
/// Mounting needs root, or a `sudo` that asks for nothing.
#[derive(Debug)]
pub struct SmallDisk {
    dir: TempDir,
}

impl SmallDisk {
    /// One of so many bytes, rounded up to pages.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn mount(bytes: u64) -> Self {
        let dir = tempfile::Builder::new().prefix("ratified-disk-").tempdir().unwrap();
        let size = format!("size={bytes},mode=0755");
        let mounted = as_root("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], dir.path());
        assert!(mounted, "a small disk cannot be mounted: run this test as root, or allow sudo without a password");
        Self { dir }
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: whoever still has a file open there keeps it until it ends.
        as_root("umount", &["-l"], self.dir.path());
    }
}

fn as_root(program: &str, arguments: &[&str], path: &Path) -> bool {
    let run = |command: &mut Command| command.args(arguments).arg(path).status().is_ok_and(|status| status.success());
    run(&mut Command::new(program)) || run(Command::new("sudo").args(["-n", program]))
}
