//! Stands between a client and the coordinator, and treats chosen answers badly.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What happens to a request or its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mischief {
    /// The request never arrives.
    LoseRequest,
    /// The request is carried out, its answer is lost.
    LoseAnswer,
    /// The request is carried out, half of its answer arrives.
    HalfAnswer,
    /// The request is carried out, a web page is the answer.
    Html,
    /// The request is carried out, an empty success is the answer.
    Empty,
    /// The request is carried out twice.
    Twice,
    /// The request never arrives, and nobody says so.
    Silence,
    /// A gateway says 502 without asking.
    BadGateway,
}

pub(crate) const EVERY_MISCHIEF: [Mischief; 7] = [
    Mischief::LoseRequest,
    Mischief::LoseAnswer,
    Mischief::HalfAnswer,
    Mischief::Html,
    Mischief::Empty,
    Mischief::Twice,
    Mischief::BadGateway,
];

struct Rule {
    /// What the request line must contain.
    target: &'static str,
    mischief: Mischief,
    left: usize,
}

pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    rules: Arc<Mutex<Vec<Rule>>>,
}

impl Proxy {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let rules: Arc<Mutex<Vec<Rule>>> = Arc::default();
        let shared = rules.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, upstream, shared.clone()));
            }
        });
        Self { addr, rules }
    }

    /// The next `times` requests whose request line contains `target` are treated so.
    pub(crate) fn plan(&self, target: &'static str, mischief: Mischief, times: usize) {
        self.rules.lock().unwrap().push(Rule { target, mischief, left: times });
    }

    /// Whether everything that was planned has happened.
    pub(crate) fn is_spent(&self) -> bool {
        self.rules.lock().unwrap().iter().all(|rule| rule.left == 0)
    }
}

async fn serve(mut socket: TcpStream, upstream: SocketAddr, rules: Arc<Mutex<Vec<Rule>>>) {
    while let Some(request) = read_message(&mut socket).await {
        let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
        let mischief = {
            let mut rules = rules.lock().unwrap();
            let rule = rules.iter_mut().find(|rule| rule.left > 0 && line.contains(rule.target));
            rule.map(|rule| {
                rule.left -= 1;
                rule.mischief
            })
        };
        let Some(answer) = treat(&request, mischief, upstream).await else { return };
        if socket.write_all(&answer).await.is_err() || mischief == Some(Mischief::HalfAnswer) {
            return;
        }
    }
}

async fn treat(request: &[u8], mischief: Option<Mischief>, upstream: SocketAddr) -> Option<Vec<u8>> {
    match mischief {
        Some(Mischief::LoseRequest) => return None,
        Some(Mischief::Silence) => std::future::pending().await,
        Some(Mischief::BadGateway) => {
            return Some(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 4\r\n\r\noops".to_vec());
        }
        _ => {}
    }
    let mut answer = forward(request, upstream).await?;
    match mischief {
        Some(Mischief::LoseAnswer) => None,
        Some(Mischief::Twice) => forward(request, upstream).await,
        Some(Mischief::HalfAnswer) => {
            answer.truncate(answer.len() / 2);
            Some(answer)
        }
        Some(Mischief::Html) => {
            let page = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>";
            Some(page.as_bytes().to_vec())
        }
        Some(Mischief::Empty) => Some(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()),
        _ => Some(answer),
    }
}

async fn forward(request: &[u8], upstream: SocketAddr) -> Option<Vec<u8>> {
    let mut socket = TcpStream::connect(upstream).await.ok()?;
    socket.write_all(request).await.ok()?;
    read_message(&mut socket).await
}

/// One request or answer with its body; `None` at the end of the connection.
async fn read_message(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length = length.map_or(0, |n| n.trim().parse::<usize>().unwrap());
            if bytes.len() >= end + 4 + length {
                return Some(bytes);
            }
        }
        match socket.read(&mut chunk).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&chunk[..read]),
            _ => return None,
        }
    }
}
