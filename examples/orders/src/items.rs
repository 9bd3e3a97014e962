//! Items as the columns of Parquet files, and back.

use std::sync::Arc;

use ratified::Cause;

use ratified_object_store::arrow::{
    array::{
        Array, ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray, UInt8Array, UInt32Array, UInt64Array,
    },
    schema::{DataType, Field, Schema, TimeUnit},
};

use super::{
    basket::{Basket, Item},
    cents::{Amounts, Cents},
};

const AMOUNTS: [&str; 4] = ["sales_cents", "retail_disc_cents", "coupon_disc_cents", "coupon_match_disc_cents"];

/// A row of a file: an item, and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct ItemRow {
    basket_id: i64,
    household_id: u32,
    store_id: u32,
    week: u8,
    bought_at_ms: i64,
    item: Item,
}

/// What is read back of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredItem {
    /// The number of its line in the input.
    pub line: u64,
    /// Its basket.
    pub basket_id: i64,
    /// Its amounts.
    pub amounts: Amounts,
}

/// The rows of a basket.
pub fn rows_of(basket: &Basket) -> impl Iterator<Item = ItemRow> + '_ {
    basket.items.iter().map(|item| ItemRow {
        basket_id: basket.id,
        household_id: basket.household_id,
        store_id: basket.store_id,
        week: basket.week,
        bought_at_ms: basket.at.and_utc().timestamp_millis(),
        item: *item,
    })
}

/// The columns of the files.
pub(super) fn schema() -> Arc<Schema> {
    let field = |name: &str, kind| Field::new(name, kind, false);
    let mut fields = vec![
        field("line", DataType::UInt64),
        field("basket_id", DataType::Int64),
        field("household_id", DataType::UInt32),
        field("store_id", DataType::UInt32),
        field("week", DataType::UInt8),
        field("bought_at", DataType::Timestamp(TimeUnit::Millisecond, None)),
        field("product_id", DataType::UInt32),
        field("quantity", DataType::UInt32),
    ];
    fields.extend(AMOUNTS.map(|name| field(name, DataType::Int64)));
    Arc::new(Schema::new(fields))
}

pub(super) fn batch_of(schema: &Arc<Schema>, rows: &[ItemRow]) -> Result<RecordBatch, Cause> {
    let u32s = |value: fn(&ItemRow) -> u32| Arc::new(UInt32Array::from_iter_values(rows.iter().map(value))) as ArrayRef;
    let cents = |value: fn(&Amounts) -> Cents| {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| value(&row.item.amounts).get()))) as ArrayRef
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.item.line))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.basket_id))),
        u32s(|row| row.household_id),
        u32s(|row| row.store_id),
        Arc::new(UInt8Array::from_iter_values(rows.iter().map(|row| row.week))),
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.bought_at_ms))),
        u32s(|row| row.item.product_id),
        u32s(|row| row.item.quantity),
        cents(|amounts| amounts.sales),
        cents(|amounts| amounts.retail_disc),
        cents(|amounts| amounts.coupon_disc),
        cents(|amounts| amounts.coupon_match_disc),
    ];
    RecordBatch::try_new(schema.clone(), columns).map_err(Cause::new)
}

pub(super) fn items_of(batch: &RecordBatch) -> Result<Vec<StoredItem>, Cause> {
    let lines: &UInt64Array = column(batch, "line")?;
    let baskets: &Int64Array = column(batch, "basket_id")?;
    let [sales, retail, coupon, matched] = AMOUNTS.map(|name| column::<Int64Array>(batch, name));
    let (sales, retail, coupon, matched) = (sales?, retail?, coupon?, matched?);
    let rows =
        lines.iter().zip(baskets.iter()).zip(sales.iter().zip(retail.iter())).zip(coupon.iter().zip(matched.iter()));
    let item = |(((line, basket), (sales, retail)), (coupon, matched))| {
        let cents = |value: Option<i64>| value.map(Cents::new);
        let amounts = Amounts {
            sales: cents(sales)?,
            retail_disc: cents(retail)?,
            coupon_disc: cents(coupon)?,
            coupon_match_disc: cents(matched)?,
        };
        Some(StoredItem { line: line?, basket_id: basket?, amounts })
    };
    rows.map(item).collect::<Option<_>>().ok_or_else(|| Cause::new("a column has no value in a row"))
}

fn column<'a, T: Array + 'static>(batch: &'a RecordBatch, name: &str) -> Result<&'a T, Cause> {
    let column = batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<T>());
    column.ok_or_else(|| Cause::new(format!("it has no column {name} as it is written here")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let amounts = |sales| Amounts { sales: Cents::new(sales), coupon_disc: Cents::new(-3), ..Amounts::default() };
        let item = |line, sales| Item { line, product_id: 8, quantity: 2, amounts: amounts(sales) };
        let basket = Basket {
            id: 31_198_570_044,
            household_id: 900,
            store_id: 330,
            week: 1,
            at: "2017-01-01T11:53:26".parse().unwrap(),
            items: vec![item(2, 50), item(3, i64::MAX)],
            quantity: 4,
            amounts: Amounts::default(),
        };
        let rows: Vec<_> = rows_of(&basket).collect();
        let batch = batch_of(&schema(), &rows).unwrap();
        let stored = |line, sales| StoredItem { line, basket_id: 31_198_570_044, amounts: amounts(sales) };
        assert_eq!(items_of(&batch).unwrap(), [stored(2, 50), stored(3, i64::MAX)]);
        let at: &TimestampMillisecondArray = column(&batch, "bought_at").unwrap();
        assert_eq!(at.value(0), 1_483_271_606_000);
        assert!(column::<Int64Array>(&batch, "line").unwrap_err().to_string().contains("no column line"));
    }
}
