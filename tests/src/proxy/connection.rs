//! One connection of a caller: requests in, one of the faults, answers out.

use std::{io, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    Shared,
    policy::{self, Fault},
};

/// How long a held-back request or answer waits at most; far beyond the timeouts of the callers in these tests.
const HOLD: Duration = Duration::from_secs(5);

struct Request {
    method: String,
    path: String,
    content_type: Option<String>,
    body: Vec<u8>,
}

struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn made_up(status: u16, kind: &str, body: &str) -> Self {
        let headers = vec![("content-type".to_owned(), kind.to_owned()), ("retry-after".to_owned(), "0".to_owned())];
        Self { status, headers, body: body.as_bytes().to_vec() }
    }
}

/// Serves one connection until it ends or a fault ends it.
pub(super) async fn serve(shared: Arc<Shared>, mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::new();
    while let Ok(Some(request)) = read_request(&mut stream, &mut buffer).await {
        let fault = shared.decide(&request.method, &request.path);
        match act(&shared, &mut stream, request, fault).await {
            Ok(true) => {}
            // The caller sees a reset, not an orderly end.
            Ok(false) | Err(_) => {
                let _ = stream.set_zero_linger();
                return;
            }
        }
    }
}

/// Whether the connection goes on.
async fn act(shared: &Arc<Shared>, stream: &mut TcpStream, request: Request, fault: Fault) -> io::Result<bool> {
    let answer = match fault {
        Fault::Pass => shared.forward(&request).await?,
        Fault::DropRequest => return Ok(false),
        Fault::DropAnswer => {
            shared.forward(&request).await?;
            return Ok(false);
        }
        Fault::DelayAnswer => {
            let answer = shared.forward(&request).await?;
            hold(shared, stream).await;
            answer
        }
        Fault::LateRequest => {
            until_gone(stream).await;
            // By now the caller has come again, or gone on: what arrives is a duplicate of the past.
            let shared = shared.clone();
            tokio::spawn(async move {
                let mut begun = shared.begun.subscribe();
                let _ = tokio::time::timeout(HOLD, begun.changed()).await;
                let _ = shared.forward(&request).await;
            });
            return Ok(false);
        }
        Fault::DuplicateRequest => {
            shared.forward(&request).await?;
            shared.forward(&request).await?
        }
        Fault::TruncateAnswer => {
            let answer = shared.forward(&request).await?;
            let half = answer.body.len() / 2;
            write_answer(stream, &answer, half).await?;
            return Ok(false);
        }
        Fault::Unavailable => Answer::made_up(503, "text/plain", "no healthy upstream"),
        Fault::TooMany => Answer::made_up(429, "text/plain", "slow down"),
        Fault::Html => Answer::made_up(200, "text/html", "<html><body>Please log in</body></html>"),
        Fault::EmptyBody => Answer::made_up(200, "application/json", ""),
    };
    write_answer(stream, &answer, answer.body.len()).await?;
    Ok(true)
}

/// Waits until another transaction has begun, or the caller has given up.
async fn hold(shared: &Shared, stream: &mut TcpStream) {
    let mut begun = shared.begun.subscribe();
    begun.mark_unchanged();
    tokio::select! {
        _ = tokio::time::timeout(HOLD, begun.changed()) => {}
        () = until_gone(stream) => {}
    }
}

/// Waits until the caller has closed its side, for [`HOLD`] at most.
async fn until_gone(stream: &mut TcpStream) {
    let mut byte = [0];
    let _ = tokio::time::timeout(HOLD, stream.read(&mut byte)).await;
}

impl Shared {
    async fn forward(&self, request: &Request) -> io::Result<Answer> {
        let address = self.upstream.current().ok_or(io::ErrorKind::NotConnected)?;
        let method = request.method.parse().map_err(io::Error::other)?;
        let mut outgoing = self.http.request(method, format!("http://{address}{}", request.path));
        if let Some(kind) = &request.content_type {
            outgoing = outgoing.header("content-type", kind);
        }
        let answer = outgoing.body(request.body.clone()).send().await.map_err(io::Error::other)?;
        let status = answer.status().as_u16();
        let headers = answer
            .headers()
            .iter()
            .filter(|(name, _)| !["content-length", "connection", "transfer-encoding"].contains(&name.as_str()))
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.to_owned())))
            .collect();
        let body = answer.bytes().await.map_err(io::Error::other)?.to_vec();
        if policy::kind_of(&request.method, &request.path) == "begin" {
            self.begun.send_if_modified(|begun| begun.insert(request.path.clone()));
        }
        Ok(Answer { status, headers, body })
    }
}

async fn write_answer(stream: &mut TcpStream, answer: &Answer, bytes: usize) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\ncontent-length: {}\r\n", answer.status, answer.body.len());
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let mut out = head.into_bytes();
    out.extend_from_slice(&answer.body[..bytes]);
    stream.write_all(&out).await?;
    stream.flush().await
}

/// The next request, whole; `None` when the caller has ended the connection between two of them.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default().to_owned(), first.next().unwrap_or_default().to_owned());
    let header = |name: &str| {
        let mut headers = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    };
    let length = header("content-length").and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    while buffer.len() < head_end + length {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let body = buffer[head_end..head_end + length].to_vec();
    buffer.drain(..head_end + length);
    Ok(Some(Request { method, path, content_type: header("content-type"), body }))
}
