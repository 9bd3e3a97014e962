//! The SDK's way to the coordinator: reqwest's types over a hyper client on simulated sockets. A tap shows the oracle
//! every answer, byte for byte as the SDK reads it.

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::Uri;
use http_body::{Body, Frame};
use hyper::{
    body::Incoming,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{Connected, Connection},
    },
    rt::{TokioExecutor, TokioIo},
};
use ratified::{Cause, transport::HttpTransport};
use turmoil::net::TcpStream;

use crate::{
    answers::Question,
    world::{Host, World},
};

/// A connection over simulated sockets.
pub struct Socket(TokioIo<TcpStream>);

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Connects by host name.
#[derive(Clone)]
pub struct Connector;

impl tower_service::Service<Uri> for Connector {
    type Response = Socket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Socket>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let target = uri.authority().ok_or(io::ErrorKind::InvalidInput)?.as_str().to_owned();
            Ok(Socket(TokioIo::new(TcpStream::connect(target).await?)))
        })
    }
}

/// The transport of one host.
pub struct SimTransport {
    world: World,
    host: Host,
    client: Client<Connector, reqwest::Body>,
}

impl SimTransport {
    /// A transport without connections.
    pub fn new(world: World, host: Host) -> Self {
        Self { world, host, client: Client::builder(TokioExecutor::new()).build(Connector) }
    }

    /// A copy of the request that arrives later, as if a network had kept it; nobody waits for its answer, the oracle
    /// reads it all the same.
    fn duplicate(&self, request: &reqwest::Request) {
        let Some(copy) = request.try_clone() else { return };
        self.world.count("requests duplicated");
        let (world, host, client) = (self.world.clone(), self.host, self.client.clone());
        tokio::spawn(async move {
            world.linger(2500).await;
            let late = Self { world, host, client };
            if let Ok(Ok(mut response)) = tokio::time::timeout(Duration::from_secs(5), late.send(copy)).await {
                while let Ok(Some(_)) = response.chunk().await {}
            }
        });
    }

    async fn send(&self, request: reqwest::Request) -> Result<reqwest::Response, Cause> {
        let question = Question::of(&self.world, self.host, &request);
        let request: http::Request<reqwest::Body> = request.try_into().map_err(|e: reqwest::Error| Cause::new(e))?;
        let response = self.client.request(request).await.map_err(Cause::new)?;
        let (parts, body) = response.into_parts();
        let tap = Tap {
            body,
            kept: Vec::new(),
            status: parts.status.as_u16(),
            question: Some(question),
            world: self.world.clone(),
        };
        let response = http::Response::from_parts(parts, reqwest::Body::wrap(tap));
        Ok(reqwest::Response::from(response))
    }
}

#[async_trait]
impl HttpTransport for SimTransport {
    async fn execute(&self, request: reqwest::Request) -> Result<reqwest::Response, Cause> {
        if self.world.mischief(15) {
            self.duplicate(&request);
        }
        let mut response = self.send(request).await?;
        if self.world.mischief(40) {
            // It arrived and was carried out; its answer is lost, or something that is no answer comes instead.
            while let Ok(Some(_)) = response.chunk().await {}
            self.world.count("answers replaced");
            return match self.world.roll(3) {
                0 => Err(Cause::new("connection reset")),
                1 => Ok(instead(502, "<html>bad gateway</html>")),
                _ => Ok(instead(200, "<html>welcome to the hotel</html>")),
            };
        }
        Ok(response)
    }
}

fn instead(status: u16, body: &'static str) -> reqwest::Response {
    http::Response::builder().status(status).body(body).expect("a response").into()
}

/// Passes a body on and shows it to the oracle once it is complete.
struct Tap {
    body: Incoming,
    kept: Vec<u8>,
    status: u16,
    question: Option<Question>,
    world: World,
}

impl Body for Tap {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let data = frame.data_ref().map(|data| data.to_vec()).unwrap_or_default();
                self.kept.extend(data);
            }
            Poll::Ready(None) => {
                if let Some(question) = self.question.take() {
                    question.answered(&self.world, self.status, &self.kept);
                }
            }
            _ => {}
        }
        polled
    }
}
