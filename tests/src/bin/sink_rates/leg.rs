//! One leg: a sink written to for so many seconds.

use std::time::Duration;

use ratified::{Barrier, CheckpointId, CoordinatorClient, EngineSinkBuilder, Mode, TwoPhaseSink};
use tokio::time::Instant;

use crate::row::Row;

/// Time between two checkpoints.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// How many rows are written between two looks at the clock.
pub(crate) const ROWS: u64 = 100;

/// How many rows became visible in how much time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) rows: u64,
    pub(crate) took: Duration,
}

impl Rate {
    pub(crate) fn per_second(self) -> f64 {
        self.rows as f64 / self.took.as_secs_f64()
    }
}

/// Writes as fast as the sink takes it, with a checkpoint in each second, until all of it is visible.
pub(crate) async fn run<S: TwoPhaseSink<Record = Row>>(
    sink: S,
    url: &str,
    name: &str,
    mode: Mode,
    checkpoints: u32,
) -> Rate {
    let client = CoordinatorClient::new(url).unwrap();
    let builder = EngineSinkBuilder::new(sink, client).mode(mode).first_start(true);
    let mut runtime = builder.open(name.parse().unwrap(), Some(CheckpointId::new(0)), []).await.unwrap();
    let (start, mut rows) = (Instant::now(), 0);
    for nth in 1..=checkpoints {
        while Instant::now() < start + INTERVAL * nth {
            for _ in 0..ROWS {
                runtime.write(Row::new(rows)).await.unwrap();
                rows += 1;
            }
        }
        let checkpoint = CheckpointId::new(u64::from(nth));
        let barrier = if nth == checkpoints { Barrier::last(checkpoint) } else { Barrier::checkpoint(checkpoint) };
        let _ = runtime.pre_commit(barrier).await.unwrap();
        runtime.checkpoint_completed(checkpoint).unwrap();
    }
    runtime.flush_commits().await.unwrap();
    let took = start.elapsed();
    runtime.close().await.unwrap();
    Rate { rows, took }
}
