//! `ratifyd` as a process whose stderr and limits a test chooses.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_ratifyd");

pub(crate) struct Process {
    child: Child,
    client: reqwest::Client,
    _dir: TempDir,
    pub(crate) address: std::net::SocketAddr,
}

impl Process {
    /// Starts one with these keys and flags, and waits until it is ready.
    pub(crate) async fn start(keys: &[&str], flags: &[&str], stderr: impl Into<Stdio>) -> Self {
        Self::start_with(Command::new(BINARY), keys, flags, stderr).await
    }

    /// The same by a shell that changes something first.
    pub(crate) async fn start_after(shell: &str, stderr: impl Into<Stdio>) -> Self {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{shell}; exec \"$0\" \"$@\""), BINARY]);
        Self::start_with(command, &[], &[], stderr).await
    }

    async fn start_with(mut command: Command, keys: &[&str], flags: &[&str], stderr: impl Into<Stdio>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port_file = dir.path().join("port");
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir.path().join("data"));
        command.arg("--port-file").arg(&port_file).args(flags);
        for key in keys {
            command.args(["--set", key]);
        }
        let mut child = command.stderr(stderr).spawn().unwrap();
        let address = loop {
            if let Ok(address) = fs::read_to_string(&port_file) {
                break address.trim().parse().unwrap();
            }
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            std::thread::yield_now();
        };
        let process =
            Self { child, client: reqwest::Client::builder().no_proxy().build().unwrap(), _dir: dir, address };
        while process.send("GET", "/readyz", None).await.0 != 200 {}
        process
    }

    /// Status and text of an answer.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.client.request(method, format!("http://{}{path}", self.address));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> u16 {
        self.send("POST", path, Some(body)).await.0
    }

    pub(crate) async fn open(&self) {
        let body = serde_json::json!({"incarnation": "6ba7b810-9dad-41d1-80b4-00c04fd430c8", "create": true});
        assert_eq!(self.post("/v1/clients/c/open", body).await, 200);
    }

    /// A number of `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.send("GET", "/metrics", None).await;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    }

    /// Its exit code.
    pub(crate) fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
