//! `ratifyd` as a process: flags, files, signals and exit codes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a failure is the test's answer")]

mod support;

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};
use support::{T1, T2};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ratifyd");

struct Process {
    child: Child,
    base: String,
}

impl Process {
    fn start(dir: &Path) -> Self {
        Self::start_with(dir, Command::new(BINARY))
    }

    /// Starts and waits until it listens.
    fn start_with(dir: &Path, mut command: Command) -> Self {
        let port_file = dir.join("port");
        let _ = fs::remove_file(&port_file);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.join("data"));
        command.arg("--port-file").arg(&port_file);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        loop {
            if let Ok(address) = fs::read_to_string(&port_file) {
                return Self { child, base: format!("http://{}", address.trim()) };
            }
            if child.try_wait().unwrap().is_some() {
                panic!("it ended: {}", log_of(&mut child));
            }
            std::thread::yield_now();
        }
    }

    fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Exit code and log.
    fn end(mut self) -> (Option<i32>, String) {
        let log = log_of(&mut self.child);
        (self.child.wait().unwrap().code(), log)
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Option<(u16, Value)> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let response = client.request(method, format!("{}{path}", self.base)).json(&body).send().await.ok()?;
        let status = response.status().as_u16();
        Some((status, response.json().await.ok()?))
    }

    async fn ready(&self) {
        while self.send("GET", "/readyz", json!({})).await.is_none_or(|(status, _)| status != 200) {}
    }

    async fn open(&self) {
        let body = json!({"incarnation": "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "create": true});
        assert_eq!(self.send("POST", "/v1/clients/c/open", body).await.unwrap().0, 200);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_of(child: &mut Child) -> String {
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    log
}

fn run(args: &[&str]) -> Output {
    Command::new(BINARY).args(args).output().unwrap()
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn sigterm_ends_it_in_peace_and_a_kill_loses_nothing_that_was_told() {
    let dir = dir();
    let process = Process::start(dir.path());
    process.ready().await;
    process.open().await;
    let txn = |id: &str| format!("/v1/clients/c/txns/{id}");
    assert_eq!(process.send("PUT", &txn(T1), json!({"epoch": 1})).await.unwrap().0, 201);
    process.terminate();
    let (code, log) = process.end();
    assert_eq!(code, Some(0), "{log}");
    for line in ["listening address=127.0.0.1:", "loaded store=", "ready", "stopped"] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(log.contains(&format!("transaction client=c txn={T1} from=\"-\" to=\"OPEN\" reason=\"-\"")), "{log}");

    let process = Process::start(dir.path());
    process.ready().await;
    let commit = process.send("POST", &format!("{}/commit", txn(T1)), json!({"epoch": 1})).await.unwrap();
    assert_eq!((commit.0, commit.1["state"].as_str()), (200, Some("COMMITTED")));
    drop(process);

    let process = Process::start(dir.path());
    process.ready().await;
    let replay = process.send("POST", &format!("{}/commit", txn(T1)), json!({"epoch": 1})).await.unwrap();
    assert_eq!((replay.0, replay.1["replayed"].as_bool()), (200, Some(true)));
}

/// Stop, copy, start; later the copy is put back and started as often as the original was.
#[tokio::test]
async fn a_backup_that_is_put_back_does_nothing_for_those_who_know_the_original() {
    let dir = dir();
    let run = async |known: Option<String>| {
        let process = Process::start(dir.path());
        process.ready().await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client.get(format!("{}/v1/clients", process.base));
        if let Some(known) = known {
            request = request.header("ratified-known", known);
        }
        let answer = request.send().await.unwrap();
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        let (store, load, status) = (header("ratified-store"), header("ratified-load"), answer.status().as_u16());
        process.terminate();
        assert_eq!(process.end().0, Some(0));
        (status, store.clone(), format!("{store}.{load}"))
    };
    let copy = |from: &str, to: &str| {
        let status = Command::new("cp").arg("-a").arg(dir.path().join(from)).arg(dir.path().join(to)).status();
        assert!(status.unwrap().success());
    };
    let (_, _, first) = run(None).await;
    copy("data", "backup");
    let (status, store, second) = run(Some(first.clone())).await;
    assert_eq!(status, 200);
    fs::remove_dir_all(dir.path().join("data")).unwrap();
    copy("backup", "data");
    let (status, put_back, _) = run(Some(second)).await;
    assert_eq!((status, put_back), (409, store), "the same number, and yet another store");
    assert_eq!(run(Some(first)).await.0, 200);
}

#[tokio::test]
async fn a_second_process_on_the_directory_is_refused() {
    let dir = dir();
    let process = Process::start(dir.path());
    process.ready().await;
    let data = dir.path().join("data");
    let second = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(1));
    let message = format!("ratifyd: {} is in use by another coordinator; stop that one first", data.display());
    assert!(stderr(&second).contains(&message), "{}", stderr(&second));
    process.open().await;
}

/// Files may not grow beyond 1 MiB: there is room for the first segment, and none for the next.
#[tokio::test]
async fn a_store_without_room_begins_nothing_and_ends_the_process_with_3_once_its_reserve_is_used() {
    let dir = dir();
    let process = Process::start(dir.path());
    process.ready().await;
    process.open().await;
    let id = |n: usize| format!("0190f2c4-7a61-7c3e-9d0a-{n:012x}");
    let begin = |n| json!({"op": "begin", "txnId": id(n), "epoch": 1});
    let batch = json!({"operations": (0..100).map(begin).collect::<Vec<_>>()});
    assert_eq!(process.send("POST", "/v1/clients/c/batch", batch).await.unwrap().0, 200);
    process.terminate();
    assert_eq!(process.end().0, Some(0));

    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"", BINARY]);
    let process = Process::start_with(dir.path(), limited);
    process.ready().await;
    // The segment is made by a thread of its own.
    let mut refused = (0, Value::Null);
    for _ in 0..10_000 {
        refused = process.send("PUT", &format!("/v1/clients/c/txns/{T1}"), json!({"epoch": 1})).await.unwrap();
        if refused.0 == 429 {
            break;
        }
    }
    assert_eq!((refused.0, refused.1["code"].as_str()), (429, Some("OVERLOADED")));
    let payload = "AAAA".repeat(16_000);
    let mut acknowledged = 0;
    let refused = loop {
        let body = json!({"epoch": 1, "payload": payload});
        match process.send("POST", &format!("/v1/clients/c/txns/{}/prepare", id(acknowledged)), body).await {
            Some((200, _)) => acknowledged += 1,
            other => break other,
        }
        assert!(acknowledged < 100, "the limit was never met");
    };
    if let Some((status, problem)) = refused {
        assert_eq!((status, problem["code"].as_str()), (503, Some("STORAGE_UNAVAILABLE")));
    }
    let (code, log) = process.end();
    assert_eq!(code, Some(3), "{log}");
    let last = log.lines().last().unwrap_or_default();
    let next = dir.path().join("data/log/next");
    assert!(
        last.starts_with(&format!("ratifyd: the store failed: allocate {}: File too large", next.display())),
        "{log}"
    );

    let process = Process::start(dir.path());
    process.ready().await;
    assert!(acknowledged > 10, "{acknowledged}");
    for n in 0..acknowledged {
        let (status, txn) = process.send("GET", &format!("/v1/clients/c/txns/{}", id(n)), json!({})).await.unwrap();
        assert_eq!((status, txn["state"].as_str()), (200, Some("PREPARED")), "{n} of {acknowledged}");
    }
}

#[tokio::test]
async fn a_store_that_is_damaged_is_refused_with_1() {
    let dir = dir();
    let process = Process::start(dir.path());
    process.ready().await;
    process.open().await;
    assert_eq!(process.send("PUT", &format!("/v1/clients/c/txns/{T2}"), json!({"epoch": 1})).await.unwrap().0, 201);
    process.terminate();
    let (code, log) = process.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("a new, empty store was made data_dir="), "{log}");
    let segment = dir.path().join("data/log/00000000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[0] = 9;
    fs::write(&segment, bytes).unwrap();
    let data = dir.path().join("data");
    let refused = || {
        let output = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let place = format!("ratifyd: the load is refused: damaged or unknown data at {}", segment.display());
    let message = format!("{place} at byte 0: the header block is not what was written");
    assert!(refused().contains(&message));
    // Whatever else is gone with it, it is never an empty start.
    fs::remove_file(data.join("MARK")).unwrap();
    fs::remove_file(&segment).unwrap();
    assert!(refused().contains("/log: no segment is there; put them back from a copy of this store"));
    fs::remove_dir_all(data.join("log")).unwrap();
    assert!(refused().contains("/log: the directory of segments is missing"));
}

#[test]
fn a_directory_of_somebody_else_is_refused_with_1_and_left_as_it_is() {
    let dir = dir();
    fs::create_dir(dir.path().join("photos")).unwrap();
    let output = run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", dir.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let message = format!("ratifyd: {} is not empty, and no store: there is photos", dir.path().display());
    assert!(stderr(&output).contains(&message), "{}", stderr(&output));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn an_address_that_others_reach_is_refused_with_the_reason() {
    let output = run(&["serve", "--data-dir", "/nowhere", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(1));
    let message = "ratifyd: listen: 0.0.0.0:0 can be reached from other machines, and there is neither authentication";
    assert!(stderr(&output).starts_with(message), "{}", stderr(&output));
}

/// What OPERATIONS.md says about exit codes at the start.
#[test]
fn what_the_file_system_refuses_at_the_start_ends_with_3_and_what_was_configured_with_1() {
    let dir = dir();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), "").unwrap();
    let serve = |data: &str, more: &[&str]| {
        let output = run(&[&["serve", "--listen", "127.0.0.1:0", "--data-dir", data], more].concat());
        (output.status.code(), stderr(&output))
    };
    let (code, log) = serve(&path("file"), &[]);
    assert_eq!(code, Some(3), "{log}");
    let in_the_way = "something that is no directory has this name: name another one in data_dir, or move that away";
    assert!(log.contains(&format!("ratifyd: make the data directory {}: {in_the_way}", path("file"))), "{log}");
    std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
    let (code, log) = serve(&path("link"), &[]);
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains(in_the_way), "{log}");
    let (code, log) = serve(&path("file/below"), &[]);
    assert_eq!(code, Some(3), "{log}");
    let (code, log) = serve(&path("data"), &["--port-file", &path("absent/port")]);
    assert_eq!(code, Some(3), "{log}");
    assert!(log.contains(&format!("ratifyd: write {}: No such file", path("absent/port"))), "{log}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = run(&["serve", "--listen", &address, "--data-dir", &path("data")]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("ratifyd: listen on {address}: ")), "{}", stderr(&output));
    let (code, log) = serve(&path("data"), &["--config", &path("absent.toml")]);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.starts_with(&format!("ratifyd: {}: No such file", path("absent.toml"))), "{log}");
}

#[tokio::test]
async fn a_data_directory_is_the_one_that_was_named() {
    use std::os::unix::ffi::OsStrExt;
    for name in [b"7117".as_slice(), b"true", b"1e5", b"bad\xff"] {
        let dir = dir();
        let name = std::ffi::OsStr::from_bytes(name);
        let mut command = Command::new(BINARY);
        command.current_dir(dir.path()).arg("serve").arg("--data-dir").arg(name);
        command.args(["--listen", "127.0.0.1:0", "--port-file", "port"]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        while !dir.path().join("port").exists() {
            assert!(child.try_wait().unwrap().is_none(), "{name:?}: {}", log_of(&mut child));
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut made: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        made.retain(|entry| entry != "port");
        assert_eq!(made, [name]);
    }
}

#[test]
fn variables_are_read_or_named() {
    use std::os::unix::ffi::OsStrExt;
    let check = |name: &str, value: &[u8]| {
        let mut command = Command::new(BINARY);
        command.arg("check-config").env(name, std::ffi::OsStr::from_bytes(value)).output().unwrap()
    };
    let misspelt = check("RATIFIED_MAX_CLIENT", b"5");
    assert_eq!(misspelt.status.code(), Some(0));
    let warning = "ratifyd: warning: RATIFIED_MAX_CLIENT: the environment variable names no key of the configuration\n";
    assert_eq!(stderr(&misspelt), warning);
    let broken = check("RATIFIED_MAX_CLIENTS", b"\xff");
    assert_eq!(broken.status.code(), Some(1));
    let refusal = "ratifyd: environment variable RATIFIED_MAX_CLIENTS: max_clients: takes a whole number of clients";
    assert!(stderr(&broken).starts_with(refusal), "{}", stderr(&broken));
    let misspelt = check("RATIFIED_MAX_CLIENT", b"\xff");
    assert_eq!((misspelt.status.code(), stderr(&misspelt)), (Some(0), warning.to_owned()));
}

#[test]
fn check_config_prints_what_is_in_effect() {
    let dir = dir();
    let file = dir.path().join("r.toml");
    fs::write(&file, "max_queue = 5\nmax_waiting = 6\n").unwrap();
    let file = file.to_str().unwrap();
    let output = Command::new(BINARY)
        .args(["check-config", "--config", file, "--set", "max_clients=7", "--insecure-allow-remote"])
        .env("RATIFIED_MAX_WAITING", "8")
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    for line in ["max_queue = 5", "max_waiting = 8", "max_clients = 7", "insecure_allow_remote = true"] {
        assert!(printed.lines().any(|l| l == line), "{line}: {printed}");
    }
}

#[test]
fn a_configuration_that_is_refused_names_file_and_key() {
    let dir = dir();
    let file = dir.path().join("r.toml");
    fs::write(&file, "gc_interval = 5\n").unwrap();
    let file = file.to_str().unwrap();
    for command in ["check-config", "serve"] {
        let output = run(&[command, "--config", file]);
        assert_eq!(output.status.code(), Some(1));
        let expected = format!("ratifyd: {file}: gc_interval: is not a key; the keys are listen, ");
        assert!(stderr(&output).starts_with(&expected), "{}", stderr(&output));
    }
}

#[test]
fn it_tells_its_version() {
    let output = run(&["--version"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("ratifyd {}\n", env!("CARGO_PKG_VERSION")));
}
