//! How many outcomes share one flush of the preserver, when one client ends many transactions at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use ratified::{
    Outcome, ParticipantName,
    protocol::{BeginRequest, ParticipantSet},
};
use ratified_tests::process::Ratifyd;

use super::{Opened, client, new_id};

const IN_FLIGHT: usize = 64;

/// Flushes that wrote something, per appended outcome.
pub(crate) async fn measure(ratifyd: &Ratifyd, time: Duration) {
    let client = client(&ratifyd.url(), false);
    let caller = Arc::new(Opened::new(&client, "bench-coalescing".to_owned()).await);
    let (appends, writes) = (counter(ratifyd, "appends").await, counter(ratifyd, "flush_writes").await);
    let began = Instant::now();
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let caller = caller.clone();
            tokio::spawn(async move {
                while began.elapsed() < time {
                    end_one(&caller).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a caller ends");
    }
    let appends = counter(ratifyd, "appends").await - appends;
    let writes = counter(ratifyd, "flush_writes").await - writes;
    println!("one client with a participant, {IN_FLIGHT} transactions in flight, {appends} of them:");
    println!("  flush writes / appends {:>9.3}", writes / appends);
}

async fn end_one(caller: &Opened) {
    let participant = ParticipantName::from(&caller.name);
    let participants = ParticipantSet::try_from(vec![participant.clone()]).expect("one participant");
    let id = new_id();
    caller.begin(id, BeginRequest { participants, ..Default::default() }).await;
    caller.commit(id).await;
    caller.client.ack(&caller.name, id, &participant, Outcome::Committed).await.expect("ack");
}

async fn counter(ratifyd: &Ratifyd, name: &str) -> f64 {
    let line = format!("ratified_preserver_{name}_total ");
    let metrics = ratifyd.raw().get("/metrics").await.text;
    let value = metrics.lines().find_map(|l| l.strip_prefix(&line)).expect("the counter is there");
    value.parse().expect("a number")
}
