//! Two sinks under one decision: run, run again, grown, refused, drilled, and drilled with a sink that is broken on
//! purpose. The literal sums are those of `awk` over examples/data/transactions.csv.

use std::fs;

use ratified_servers::{Postgres, tally};

use crate::common::{note_kills, numbers, run, text};

const ORDERS: &str = env!("CARGO_BIN_EXE_orders");
const EXTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/transactions.csv");
const SUMS: &str = "SELECT count(*), sum(items), sum(sales_cents), sum(retail_disc_cents), sum(coupon_disc_cents), \
     sum(coupon_match_disc_cents) FROM orders.basket";

/// The amounts of the table, in the columns for what was read, for PostgreSQL and for the store.
fn amounts<'a>(told: &'a str, name: &str) -> Vec<&'a str> {
    let line = told.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{told}"));
    line[name.len()..].split_whitespace().collect()
}

#[test]
fn the_extract_is_in_both_places_to_the_cent_and_run_again_it_changes_nothing() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgres::start());
    let url = server.url();
    let args = ["--postgres", &url, "--store", "store", "--data-dir", "data", "--checkpoint-baskets", "50"];
    for told_first in ["started at the beginning\ncommitted 5 transactions", "resumed behind line 2001\ncommitted 0"] {
        let output = run(ORDERS, dir.path(), &args);
        let told = text(&output);
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.contains(told_first), "{told}");
        assert_eq!(numbers(&told, "rows in"), [2000]);
        assert_eq!(numbers(&told, "baskets"), [202, 202]);
        assert_eq!(numbers(&told, "items"), [2000; 3]);
        assert_eq!(amounts(&told, "sales"), ["5766.73"; 3]);
        assert_eq!(amounts(&told, "discounts of the shop"), ["1095.67"; 3]);
        assert_eq!(amounts(&told, "discounts of coupons"), ["15.05"; 3]);
        assert_eq!(amounts(&told, "matched coupons"), ["1.65"; 3]);
        assert_eq!(server.sql(SUMS), "202|2000|576673|109567|1505|165");
        let basket = "SELECT household_id, store_id, week, bought_at, first_line, items, quantity, sales_cents \
             FROM orders.basket WHERE basket_id = 31198640134";
        assert_eq!(server.sql(basket), "1873|361|1|2017-01-01 13:47:20|23|6|6|1092");
    }
    assert_eq!(fs::read_dir(dir.path().join("store/items")).unwrap().count(), 5, "a file per transaction");
}

#[test]
fn a_row_that_is_none_is_refused_with_its_line_and_a_file_may_grow() {
    let (dir, server) = (tempfile::tempdir().unwrap(), Postgres::start());
    let url = server.url();
    let args = ["--input", "in.csv", "--postgres", &url, "--store", "store", "--data-dir", "data"];
    let extract = fs::read_to_string(EXTRACT).unwrap();
    let lines: Vec<_> = extract.lines().collect();
    // Five baskets of one row each, a row with an amount that is none, then one more row.
    let begin = format!("{}\n", lines[..5].join("\n"));
    let bad = lines[1].replace("0.50", "0.5");
    fs::write(dir.path().join("in.csv"), format!("{begin}{bad}\n")).unwrap();
    assert_eq!(run(ORDERS, dir.path(), &args).status.code(), Some(0));
    fs::write(dir.path().join("in.csv"), format!("{begin}{bad}\n1,2\n{}\n", lines[5])).unwrap();
    let output = run(ORDERS, dir.path(), &args);
    let told = text(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("resumed behind line 6"), "{told}");
    assert_eq!((numbers(&told, "rows in"), numbers(&told, "refused rows")), (vec![7], vec![2, 2]), "{told}");
    assert_eq!(
        server.sql("SELECT line, why, row FROM orders.reject ORDER BY seq"),
        format!(
            "6|\"0.5\" is no amount: up to 15 digits, a point and two digits are one|{bad}\n7|2 columns instead of 11|1,2"
        )
    );

    server.sql("DELETE FROM orders.basket WHERE first_line = 2");
    let output = run(ORDERS, dir.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    let told = text(&output);
    assert!(told.contains("baskets were committed, and"), "{told}");
    fs::remove_dir_all(dir.path().join("data")).unwrap();
    let output = run(ORDERS, dir.path(), &args);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("the coordinator does not know orders"), "{}", text(&output));
}

#[test]
fn what_is_missing_is_told_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str]| {
        let output = run(ORDERS, dir.path(), args);
        assert_ne!(output.status.code(), Some(0));
        text(&output)
    };
    let told = refused(&[]);
    for words in
        ["orders --postgres postgresql://", "max_prepared_transactions > 0", "orders --throw-away", "--drill 50"]
    {
        assert!(told.contains(words), "{words} is not in\n{told}");
    }
    assert!(refused(&["--postgres", "postgresql://h:port/d"]).contains("the database URL cannot be read"));
    assert!(refused(&["--store", "gs://lake"]).contains("give a directory, or s3://BUCKET/PREFIX"));
    assert!(refused(&["--input", "nowhere", "--postgres", "postgresql://h/d"]).contains("nowhere: No such file"));
    // A coordinator outlives what is thrown away, and would take it for lost.
    assert!(refused(&["--throw-away", "--coordinator", "http://127.0.0.1:1"]).contains("cannot be used with"));
    assert!(refused(&["--drill", "1", "--postgres", "postgresql://h/d"]).contains("cannot be used with"));
}

#[test]
fn a_drill_that_kills_the_servers_too_loses_and_doubles_nothing_in_either_place() {
    let told = drill(&["--drill", "11", "--seed", "5", "--seaweedfs", "--checkpoint-baskets", "6"], 0);
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
    let args = ["--drill", "4", "--seed", "165", "--checkpoint-baskets", "8", "--sabotage", "forgetful"];
    let told = drill(&args, 1);
    assert!(told.contains("NOT exactly once; seed 165"), "{told}");
    assert!(numbers(&told, "lost")[0] > 0, "{told}");
    note_kills(4);
}

fn drill(args: &[&str], code: i32) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = run(ORDERS, dir.path(), &[&["--data-dir", "data"], args].concat());
    let told = text(&output);
    assert_eq!(output.status.code(), Some(code), "{told}");
    told
}
