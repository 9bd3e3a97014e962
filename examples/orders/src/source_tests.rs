use std::{fs, sync::Arc};

use ratified::job::{Read, Source};

use super::{MAX_BASKET_ROWS, OrderPosition, OrderSource, Unit};

const HEADER: &str = "household_id,store_id,basket_id,product_id,quantity,sales_value,retail_disc,coupon_disc,coupon_match_disc,week,transaction_timestamp\n";

fn row(basket: u32, product: u32, sales: &str) -> String {
    format!("1,2,{basket},{product},1,{sales},0.10,0.00,0.00,1,2017-01-01T11:53:26\n")
}

fn file(rows: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("{HEADER}{rows}")).unwrap();
    file
}

fn source(file: &tempfile::NamedTempFile) -> OrderSource {
    OrderSource::new(file.path(), Arc::new(|_| {}))
}

/// Everything from a position on, `batch` units at a time, and the position behind each batch.
async fn read_all(
    source: &mut OrderSource,
    from: Option<&OrderPosition>,
    batch: usize,
) -> Result<(Vec<Unit>, Vec<OrderPosition>), String> {
    source.seek(from).await.map_err(|e| e.to_string())?;
    let (mut units, mut positions) = (Vec::new(), Vec::new());
    while let Read::Records(read) = source.read(batch).await.map_err(|e| e.to_string())? {
        assert!((1..=batch).contains(&read.len()));
        units.extend(read);
        positions.push(source.position());
    }
    Ok((units, positions))
}

/// Basket, lines of its items, lines of what was refused.
fn told(units: &[Unit]) -> Vec<(Option<i64>, Vec<u64>, Vec<u64>)> {
    let lines = |unit: &Unit| {
        let items = unit.basket.iter().flat_map(|basket| &basket.items).map(|item| item.line).collect();
        let rejects = unit.rejects.iter().map(|reject| reject.line).collect();
        (unit.basket.as_ref().map(|basket| basket.id), items, rejects)
    };
    units.iter().map(lines).collect()
}

fn mixed() -> tempfile::NamedTempFile {
    let rows = [
        "nonsense\n".to_owned(),
        row(10, 1, "0.50"),
        row(10, 2, "five"),
        row(10, 3, "1.25"),
        row(11, 1, "2.00"),
        "1,2\n".to_owned(),
        row(12, 1, "3.00"),
        row(12, 2, "3.00").replace("1,2,", "9,2,"),
        row(12, 3, "4.01"),
    ];
    file(&rows.concat())
}

#[tokio::test]
async fn rows_become_baskets_and_what_is_refused_between_them_goes_with_them() {
    let (units, positions) = read_all(&mut source(&mixed()), None, 100).await.unwrap();
    assert_eq!(
        told(&units),
        [
            (None, vec![], vec![2]),
            (Some(10), vec![3, 5], vec![4]),
            (Some(11), vec![6], vec![7]),
            (Some(12), vec![8, 10], vec![9]),
        ]
    );
    let tally = positions.last().unwrap().tally;
    assert_eq!((tally.rows, tally.baskets, tally.items, tally.rejects), (9, 3, 5, 4));
    assert_eq!(tally.amounts.to_cents(), [50 + 125 + 200 + 300 + 401, 50, 0, 0]);
    assert_eq!(units[1].rejects[0].why, "\"five\" is no amount: up to 15 digits, a point and two digits are one");
    assert_eq!(units[3].rejects[0].why, "household_id is not that of its basket 12, which begins in line 8");
}

#[tokio::test]
async fn from_every_position_the_same_baskets_come_and_none_is_ever_parted() {
    let file = mixed();
    let (all, positions) = read_all(&mut source(&file), None, 1).await.unwrap();
    assert_eq!(positions.len(), 4);
    for (index, position) in positions.iter().enumerate() {
        let (rest, later) = read_all(&mut source(&file), Some(position), 1).await.unwrap();
        assert_eq!(rest, all[index + 1..], "{index}");
        assert_eq!(later, positions[index + 1..], "{index}");
    }
    let lines: Vec<_> = positions.iter().map(|position| position.file.lines).collect();
    assert_eq!(lines, [2, 5, 7, 10], "an open basket is never behind the position");
}

#[tokio::test]
async fn a_basket_may_be_longer_than_what_is_read_at_a_time() {
    let rows: String = (0..3000).map(|n| row(n / 1500, n, "0.01")).collect();
    let file = file(&rows);
    let (units, positions) = read_all(&mut source(&file), None, 1).await.unwrap();
    let lengths: Vec<_> = units.iter().map(|unit| unit.basket.as_ref().unwrap().items.len()).collect();
    assert_eq!(lengths, [1500, 1500]);
    assert_eq!(positions[0].file.lines, 1501);
    let (rest, _) = read_all(&mut source(&file), Some(&positions[0]), 1).await.unwrap();
    assert_eq!(rest, units[1..]);
}

#[tokio::test]
async fn a_basket_has_at_most_ten_thousand_rows_refused_ones_counted() {
    let longest: String = (0..MAX_BASKET_ROWS as u32 - 1).map(|n| row(7, n, "0.01")).collect();
    let (units, _) = read_all(&mut source(&file(&format!("{longest}nonsense\n"))), None, 1).await.unwrap();
    assert_eq!((units[0].basket.as_ref().unwrap().items.len(), units[0].rejects.len()), (9999, 1));
    let error = read_all(&mut source(&file(&format!("{longest}nonsense\nnonsense\n"))), None, 1).await.unwrap_err();
    assert!(error.contains("basket 7, which begins in line 2, has more than 10000 rows"), "{error}");
}

#[tokio::test]
async fn what_is_wrong_with_a_row_is_told() {
    let good = row(1, 1, "0.50");
    for (bad, why) in [
        (good.replace("0.50", "1.005"), "\"1.005\" is no amount: up to 15 digits, a point and two digits are one"),
        (good.replace(",1,1,0.50", ",1,-1,0.50"), "field 4: invalid digit found in string"),
        (
            good.replace("2017-01-01", "2017-02-30"),
            "\"2017-02-30T11:53:26\" is no time, as 2017-01-31T17:05:00 is one: input is out of range",
        ),
        (good.replace("1,2,", "4294967296,2,"), "field 0: number too large to fit in target type"),
        (good.replace("1,2,", "1,2,3,"), "12 columns instead of 11"),
    ] {
        let (units, _) = read_all(&mut source(&file(&bad)), None, 1).await.unwrap();
        assert_eq!(units[0].rejects[0].why, why, "{bad}");
        assert_eq!(units[0].rejects[0].text, bad.trim_end());
    }
}

#[tokio::test]
async fn a_file_of_other_columns_is_refused_as_a_whole() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), HEADER.replace("basket_id", "cart_id")).unwrap();
    let error = read_all(&mut source(&file), None, 1).await.unwrap_err();
    assert!(error.contains("the header has no column \"basket_id\""), "{error}");
}
