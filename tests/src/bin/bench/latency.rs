//! How long one caller waits for a commit, next to what one write and fdatasync takes on the same disk.

use std::{
    fs::File,
    io::Write,
    time::{Duration, Instant},
};

use ratified::{CoordinatorClient, protocol::BeginRequest};
use ratified_tests::process::Ratifyd;

use super::{Opened, median, new_id};

const SAMPLES: usize = 400;
/// About what one commit writes to the log.
const BYTES: [u8; 512] = [7; 512];

/// Median latencies, one sample of each after the other.
pub(crate) async fn measure(ratifyd: &Ratifyd) {
    let client = CoordinatorClient::new(&ratifyd.url()).expect("a client");
    let caller = Opened::new(&client, "bench-latency".to_owned()).await;
    // Beside the store, not in it.
    let mut file = File::create(ratifyd.data_dir().with_extension("fdatasync")).expect("a file beside the store");
    let (mut commits, mut syncs) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let id = new_id();
        caller.begin(id, BeginRequest::default()).await;
        caller.prepare(id).await;
        let began = Instant::now();
        caller.commit(id).await;
        commits.push(milliseconds(began.elapsed()));
        let began = Instant::now();
        file.write_all(&BYTES).and_then(|()| file.sync_data()).expect("fdatasync");
        syncs.push(milliseconds(began.elapsed()));
    }
    let (commit, sync) = (median(commits), median(syncs));
    println!("latency of one caller, {SAMPLES} samples, medians:");
    println!("  commit                 {commit:>9.3} ms");
    println!("  write + fdatasync      {sync:>9.3} ms");
    println!("  ratio                  {:>9.2}", commit / sync);
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
