//! Many seeds, each run twice, each run in a process of its own. Two processes share the seeds, one for each core.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
};

/// How many seeds the gate runs; `RATIFIED_NET_SEEDS` asks for more.
const SEEDS: u64 = 300;

/// What must have happened at least once in every hundred seeds: a fault that never strikes proves nothing.
const MUST_HAPPEN: [&str; 24] = [
    "answers replaced",
    "answers silenced",
    "applies failed",
    "batch calls",
    "checkpoints declined",
    "commits repeated",
    "coordinator crashes",
    "disk failures",
    "failovers",
    "job disks lost",
    "killed at prepared",
    "killed before the sync",
    "participants killed",
    "killed at decided",
    "latency spikes",
    "links held",
    "notifications lost",
    "partitions",
    "power losses",
    "races",
    "requests duplicated",
    "requests silenced",
    "unsynced batches lost",
    "zombie workers",
];

#[test]
fn whatever_the_network_does_every_record_is_visible_once_and_every_answer_agrees() {
    let seeds = std::env::var("RATIFIED_NET_SEEDS").map_or(SEEDS, |seeds| seeds.parse().expect("a number of seeds"));
    let start = |base: u64| {
        Command::new(env!("CARGO_BIN_EXE_ratified-network"))
            .args(["--base", &base.to_string(), "--seeds", &(seeds - base).to_string(), "--step", "2"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the simulator")
    };
    let running = [start(0), start(1)];
    let mut counts = BTreeMap::<String, u64>::new();
    let mut is_good = true;
    for process in running {
        let output = process.wait_with_output().expect("the simulator's output");
        is_good &= output.status.success();
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            match line.strip_prefix("count ").and_then(|rest| rest.trim().split_once(' ')) {
                Some((count, what)) => {
                    *counts.entry(what.to_owned()).or_default() += count.parse::<u64>().expect("a count")
                }
                None => println!("{line}"),
            }
        }
    }
    counts.iter().for_each(|(what, count)| println!("{count:>8} {what}"));
    assert!(is_good, "the failed seeds are named above, each with the command that runs it again");
    let never: Vec<_> =
        MUST_HAPPEN.iter().filter(|what| counts.get(**what).copied().unwrap_or(0) < seeds / 100).collect();
    assert!(never.is_empty(), "these hardly ever happened: {never:?}");
}
