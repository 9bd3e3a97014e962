//! The same rows by the driver alone: what the server can take from one connection.

use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt as _;
use ratified_postgres::tokio_postgres::{self, NoTls};
use ratified_servers::Postgres;
use tokio::time::Instant;

use crate::{
    leg::{INTERVAL, ROWS, Rate},
    row::NOTE,
};

const CHUNK_BYTES: usize = 256 * 1024;

/// A COPY and a COMMIT per second.
pub(crate) async fn copy(server: &Postgres, checkpoints: u32) -> Rate {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let (start, mut rows) = (Instant::now(), 0_u64);
    for nth in 1..=checkpoints {
        client.batch_execute("BEGIN").await.unwrap();
        let mut sink = pin!(client.copy_in::<_, Bytes>("COPY orders FROM STDIN").await.unwrap());
        let mut buffer = String::new();
        while Instant::now() < start + INTERVAL * nth {
            for _ in 0..ROWS {
                buffer.push_str(&format!("{rows}\t{}\t{NOTE}\n", rows % 1000));
                rows += 1;
            }
            if buffer.len() >= CHUNK_BYTES {
                sink.feed(Bytes::from(std::mem::take(&mut buffer))).await.unwrap();
            }
        }
        sink.feed(Bytes::from(buffer)).await.unwrap();
        sink.finish().await.unwrap();
        client.batch_execute("COMMIT").await.unwrap();
    }
    Rate { rows, took: start.elapsed() }
}
