//! PostgreSQL from the distribution's package (Debian: `postgresql`).

use std::{
    collections::BTreeMap,
    env,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use tempfile::TempDir;

use crate::process::{User, children_of, free_port, is_alive, kill_family, wait_for};

/// How often another port is tried when somebody else has taken the one that was chosen.
const PORT_ATTEMPTS: u32 = 5;

/// A cluster that can be killed and started again on the same data and port. [`SUPERUSER`] is its superuser, without a password;
/// connections are possible from this host only. It is killed when dropped; its log is printed if the test fails.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    user: Option<User>,
    port: u16,
    settings: BTreeMap<String, String>,
    child: Option<Child>,
}

/// The name of the superuser.
pub const SUPERUSER: &str = "tester";

impl Postgres {
    /// Whether the programs are there to start one.
    pub fn is_installed() -> bool {
        found_binaries().is_some_and(|programs| programs.join("initdb").is_file())
    }

    /// A new cluster with 64 prepared transactions, running.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// A new cluster with these settings of `postgresql.conf`, running. Durability is as configured by default: what is
    /// committed is synced.
    ///
    /// # Panics
    /// When PostgreSQL is not installed, or does not start.
    pub fn start_with(settings: &[(&str, &str)]) -> Self {
        let dir = tempfile::Builder::new().prefix("ratified-pg-").tempdir().unwrap();
        let user = User::unprivileged(&["postgres", "nobody"]);
        if let Some(user) = user {
            user.own(dir.path());
        }
        let mut all: BTreeMap<_, _> = [("max_prepared_transactions", "64"), ("max_connections", "100")].into();
        all.extend(settings.iter().copied());
        let settings = all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let mut postgres = Self { dir, user, port: 0, settings, child: None };
        postgres.init();
        postgres.start_on_any_port();
        postgres
    }

    /// Changes a setting, for the next start.
    pub fn set(&mut self, key: &str, value: &str) {
        self.settings.insert(key.to_owned(), value.to_owned());
    }

    /// Where it listens, also while it does not run.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The URL of the database that is always there.
    pub fn url(&self) -> String {
        self.url_at(self.address())
    }

    /// The same URL by way of another address, a proxy's for example.
    pub fn url_at(&self, address: SocketAddr) -> String {
        format!("postgresql://{SUPERUSER}@{address}/postgres?sslmode=disable")
    }

    /// Runs statements in the database that is always there, each in its own transaction, and returns what they answer:
    /// one line per row, columns separated by `|`.
    ///
    /// # Panics
    /// When one fails.
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|why| panic!("{statements}: {why}"))
    }

    /// As [`sql`](Self::sql).
    ///
    /// # Errors
    /// What the server said.
    ///
    /// # Panics
    /// When the client cannot be run.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        let mut command = self.command("psql");
        command.args(["--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url()).args(["-f", "-"]);
        let mut psql = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut psql.stdin.take().unwrap(), statements.as_bytes()).unwrap();
        let output = psql.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
        if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
    }

    /// SIGKILL to the postmaster and everything it has started, as a power cut does to processes.
    ///
    /// # Panics
    /// When it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        let children = children_of(child.id());
        kill_family(child.id());
        child.wait().unwrap();
        // Shared memory is free for the next start only when nobody uses it any longer.
        wait_for("the server's processes to end", || children.iter().all(|id| !is_alive(*id)).then_some(()));
    }

    /// Starts it on the data it has, and waits until it takes connections.
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

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The directory of the cluster, for files that must be near it; the server's user may write there.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a directory that the server may use as a tablespace.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn make_dir(&self, name: &str) -> PathBuf {
        let dir = self.dir.path().join(name);
        fs::create_dir_all(&dir).unwrap();
        self.give(&dir);
        dir
    }

    /// Makes a directory the server's.
    ///
    /// # Panics
    /// When it cannot be given away.
    pub fn give(&self, dir: &Path) {
        if let Some(user) = self.user {
            user.own(dir);
        }
    }

    /// Has it speak TLS, with a certificate of its own for this host, and starts it again. Returns the certificate, which
    /// has signed itself, as PEM.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn speak_tls(&mut self) -> Vec<u8> {
        let (certificate, key) = (self.dir.path().join("server.crt"), self.dir.path().join("server.key"));
        let mut command = self.run("openssl".into());
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        command.args(["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]);
        command
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout"])
            .arg(&key)
            .arg("-out")
            .arg(&certificate);
        let output = command.output().unwrap();
        assert!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
        for (setting, value) in [("ssl_cert_file", &certificate), ("ssl_key_file", &key)] {
            self.set(setting, &value.display().to_string());
        }
        self.set("ssl", "on");
        self.crash();
        fs::read(certificate).unwrap()
    }

    /// The server's version, as it tells it.
    ///
    /// # Panics
    /// When PostgreSQL is not installed.
    pub fn version(&self) -> String {
        let output = self.command("postgres").arg("--version").output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn init(&self) {
        let mut command = self.command("initdb");
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        command.args(["--username", SUPERUSER, "--pgdata"]).arg(self.data());
        let output = command.output().unwrap();
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn start_on_any_port(&mut self) {
        for _ in 0..PORT_ATTEMPTS {
            self.port = free_port();
            if self.try_start().is_ok() {
                return;
            }
        }
        panic!("it does not start\n{}", self.log());
    }

    fn try_start(&mut self) -> Result<(), ExitStatus> {
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).unwrap();
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        command.arg("-c").arg(format!("unix_socket_directories={}", self.dir.path().display()));
        for (key, value) in &self.settings {
            command.arg("-c").arg(format!("{key}={value}"));
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let ended = wait_for("the server to take connections", || match child.try_wait().unwrap() {
            Some(status) => Some(Err(status)),
            None => self.takes_connections().then_some(Ok(())),
        });
        if ended.is_ok() {
            self.child = Some(child);
        }
        ended
    }

    fn takes_connections(&self) -> bool {
        let mut command = self.command("pg_isready");
        command.args(["-q", "-d", "postgres", "-U", SUPERUSER, "-h"]).arg(self.dir.path());
        command.args(["-p", &self.port.to_string()]).status().unwrap().success()
    }

    fn command(&self, program: &str) -> Command {
        self.run(binaries().join(program))
    }

    fn run(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = self.user {
            user.run(&mut command);
        }
        // The user may not be allowed to be where the test is.
        command.current_dir(self.dir.path()).env("LC_ALL", "C");
        command
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("--- log of PostgreSQL ---\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}

/// Where the programs are: `PGBIN`, or the newest version that the Debian packages have installed.
fn binaries() -> PathBuf {
    found_binaries().expect("PostgreSQL is not installed: apt-get install postgresql, or set PGBIN")
}

fn found_binaries() -> Option<PathBuf> {
    if let Some(dir) = env::var_os("PGBIN") {
        return Some(dir.into());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let found = versions.filter_map(|entry| {
        let dir = entry.ok()?.path();
        let version: u32 = dir.file_name()?.to_str()?.parse().ok()?;
        let programs = dir.join("bin");
        programs.join("initdb").is_file().then_some((version, programs))
    });
    found.max().map(|(_, programs)| programs)
}
