//! moto from the PyPI package `moto[server]`: another reading of S3, which forgets everything when it ends.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, ExitStatus, Stdio},
};

use tempfile::TempDir;

use crate::{
    process::{free_port, wait_for},
    s3,
};

const PORT_ATTEMPTS: u32 = 5;

/// A running server. It is killed when dropped; its log is printed if the test fails.
#[derive(Debug)]
pub struct Moto {
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Moto {
    /// A new, empty server, running.
    ///
    /// # Panics
    /// When it is not installed, or does not start.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("ratified-moto-").tempdir().unwrap();
        for _ in 0..PORT_ATTEMPTS {
            let port = free_port();
            if let Ok(child) = try_start(&dir, port) {
                return Self { dir, port, child };
            }
        }
        panic!("it does not start\n{}", log_in(&dir));
    }

    /// Where S3 is spoken.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// When that is refused.
    pub fn make_bucket(&self, bucket: &str) {
        s3::make_bucket(self.address(), bucket);
    }
}

fn try_start(dir: &TempDir, port: u16) -> Result<Child, ExitStatus> {
    let log = File::options().create(true).append(true).open(dir.path().join("log")).unwrap();
    let mut command = Command::new(s3::program("moto_server", "moto[server]"));
    command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).current_dir(dir.path());
    let output = log.try_clone().unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_for("moto to answer", || match child.try_wait().unwrap() {
        Some(status) => Some(Err(status)),
        None => s3::request(address, "GET", "/").map(|_| Ok(())),
    })?;
    Ok(child)
}

fn log_in(dir: &TempDir) -> String {
    fs::read_to_string(dir.path().join("log")).unwrap_or_default()
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = log_in(&self.dir);
            let lines: Vec<_> = log.lines().collect();
            eprintln!("--- log of moto ---\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}
