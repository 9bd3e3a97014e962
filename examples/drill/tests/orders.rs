//! The drill of `orders`: exact, and failing with a sink that is broken on purpose. The literal sums are those of `awk`
//! over examples/data/transactions.csv.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use ratified_servers::{
    program::{note_kills, numbers, run, text},
    tally,
};

const DRILL: &str = env!("CARGO_BIN_EXE_drill-orders");

/// The amounts of the table, in the columns for what was read, for PostgreSQL and for the store.
fn amounts<'a>(told: &'a str, name: &str) -> Vec<&'a str> {
    let line = told.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{told}"));
    line[name.len()..].split_whitespace().collect()
}

#[test]
fn a_drill_that_kills_the_servers_too_loses_and_doubles_nothing_in_either_place() {
    let told = drill(&["--kills", "11", "--seed", "5", "--seaweedfs", "--checkpoint-baskets", "6"], 0);
    assert!(told.contains("exactly once, to the cent; seed 5"), "{told}");
    for name in ["lost", "doubled", "wrong"] {
        assert_eq!(numbers(&told, name), [0], "{told}");
    }
    assert!(told.contains("servers: postgres (PostgreSQL) ") && told.contains(", SeaweedFS 4."), "{told}");
    assert_eq!(numbers(&told, "baskets"), [202, 404, 404]);
    assert_eq!(numbers(&told, "items"), [2000, 4000, 4000, 4000]);
    assert_eq!(amounts(&told, "sales"), ["5766.73", "11533.46", "11533.46", "11533.46"]);
    assert_eq!(amounts(&told, "discounts of the shop"), ["1095.67", "2191.34", "2191.34", "2191.34"]);
    assert_eq!(amounts(&told, "discounts of coupons"), ["15.05", "30.10", "30.10", "30.10"]);
    assert_eq!(amounts(&told, "matched coupons"), ["1.65", "3.30", "3.30", "3.30"]);
    let refused = numbers(&told, "refused rows");
    assert!(refused[0] > 100 && refused[1] == 2 * refused[0] && refused[2] == refused[1], "{told}");
    for point in [
        "after begin",
        "prepared in PostgreSQL, not in the store",
        "after pre_commit",
        "decided, before sink.commit",
        "visible in PostgreSQL, not in the store",
        "visible, before the ack",
        "acked, before the pending entry is dropped",
    ] {
        assert_eq!(numbers(&told, point).last(), Some(&1), "{point}: {told}");
    }
    let all = numbers(&told, "all");
    assert_eq!(all.last(), Some(&11), "{told}");
    assert!(all[4] > 0 && all[5] > 0, "a server of either kind is killed by this plan: {told}");
    tally::seed("drill of orders", 5);
    note_kills(11);
}

#[test]
fn a_drill_finds_a_sink_that_takes_a_repeated_commit_for_done() {
    // The job dies when a commit is decided, and when it is visible in PostgreSQL only.
    let args = ["--kills", "4", "--seed", "165", "--checkpoint-baskets", "8", "--sabotage", "forgetful"];
    let told = drill(&args, 1);
    assert!(told.contains("NOT exactly once; seed 165"), "{told}");
    assert!(numbers(&told, "lost")[0] > 0, "{told}");
    note_kills(4);
}

fn drill(args: &[&str], code: i32) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = run(DRILL, dir.path(), &[&["--dir", "drill"], args].concat());
    let told = text(&output);
    assert_eq!(output.status.code(), Some(code), "{told}");
    told
}
