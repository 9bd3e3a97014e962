//! Connections that say exactly what a test wants.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A connection on which this has been said.
pub(crate) async fn said(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// All that comes until the connection ends.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

/// Says this on a connection of its own, and reads until it ends.
pub(crate) async fn say(address: SocketAddr, text: &str) -> String {
    rest(&mut said(address, text).await).await
}

/// Says this and reads one answer whole; the connection stays.
pub(crate) async fn call(stream: &mut TcpStream, text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "it ended");
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() >= length.parse().unwrap() {
            return text.into_owned();
        }
    }
}

/// Status and code of an answer.
pub(crate) fn short(answer: &str) -> (&str, &str) {
    let status = answer.get(9..12).unwrap_or_default();
    (status, answer.split("\"code\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default())
}
