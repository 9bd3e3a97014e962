//! Two sinks under one decision: run, run again, grown, and refused. The literal sums are those of `awk` over examples/data/transactions.csv.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::fs;

use ratified_servers::{
    Postgres,
    program::{numbers, run, text},
};

const ORDERS: &str = env!("CARGO_BIN_EXE_orders");
const EXTRACT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/transactions.csv");
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
    let runs = [
        (&["--first-start"][..], "started at the beginning\ncommitted 5 transactions"),
        (&[], "resumed behind line 2001\ncommitted 0"),
    ];
    for (first, told_first) in runs {
        let output = run(ORDERS, dir.path(), &[&args, first].concat());
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
    assert_eq!(run(ORDERS, dir.path(), &[&args[..], &["--first-start"]].concat()).status.code(), Some(0));
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
    for words in ["orders --postgres postgresql://", "max_prepared_transactions > 0", "--bin drill-orders"] {
        assert!(told.contains(words), "{words} is not in\n{told}");
    }
    assert!(refused(&["--postgres", "postgresql://h:port/d"]).contains("the database URL cannot be read"));
    assert!(refused(&["--store", "gs://lake"]).contains("give a directory, or s3://BUCKET/PREFIX"));
    assert!(refused(&["--input", "nowhere", "--postgres", "postgresql://h/d"]).contains("nowhere: No such file"));
}
