//! A thousand commits in one durable write.

use std::time::{Duration, Instant};

use ratified::{
    CoordinatorClient, TxnId,
    protocol::{BatchItem, BatchOp, BatchRequest, BeginRequest, CommitRequest, PrepareRequest},
};
use ratified_tests::process::Ratifyd;

use super::{Opened, median, new_id};

const ITEMS: usize = 1000;

/// Decisions per second of one caller that commits a thousand prepared transactions at a time.
pub(crate) async fn measure(ratifyd: &Ratifyd, time: Duration) {
    let client = CoordinatorClient::new(&ratifyd.url()).expect("a client");
    let caller = Opened::new(&client, "bench-batch".to_owned()).await;
    let epoch = Some(caller.epoch);
    let (began, mut rates) = (Instant::now(), Vec::new());
    while began.elapsed() < time || rates.len() < 5 {
        let ids: Vec<_> = (0..ITEMS).map(|_| new_id()).collect();
        send(&caller, &ids, || BatchOp::Begin(BeginRequest { epoch, ..Default::default() })).await;
        send(&caller, &ids, || BatchOp::Prepare(PrepareRequest { epoch, ..Default::default() })).await;
        let sent = Instant::now();
        send(&caller, &ids, || BatchOp::Commit(CommitRequest { epoch, ..Default::default() })).await;
        rates.push(1000.0 / sent.elapsed().as_secs_f64());
    }
    println!("batches of {ITEMS} commits, one caller, {} batches, median:", rates.len());
    println!("  coordinator, durable   {:>9.0} decisions/s", median(rates));
}

async fn send(caller: &Opened, ids: &[TxnId], op: impl Fn() -> BatchOp) {
    let items: Vec<_> = ids.iter().map(|txn_id| BatchItem { txn_id: *txn_id, op: op() }).collect();
    let answer = caller.client.batch(&caller.name, &BatchRequest::new(&items, true)).await.expect("batch");
    assert_eq!((answer.results.len(), answer.stopped_at), (ITEMS, None));
}
