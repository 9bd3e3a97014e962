//! What was bought together.

use chrono::NaiveDateTime;
use ratified::job::{BadRow, RowFault};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::cents::{Amounts, Cents};

/// The columns that a file of transactions must have.
pub const COLUMNS: [&str; 11] = [
    "household_id",
    "store_id",
    "basket_id",
    "product_id",
    "quantity",
    "sales_value",
    "retail_disc",
    "coupon_disc",
    "coupon_match_disc",
    "week",
    "transaction_timestamp",
];
/// Most bytes that are kept of a refused row's text.
pub const MAX_REJECT_BYTES: usize = 1000;

/// A row of the file: one product of a basket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Line {
    household_id: u32,
    store_id: u32,
    basket_id: i64,
    product_id: u32,
    quantity: u32,
    sales_value: Cents,
    retail_disc: Cents,
    coupon_disc: Cents,
    coupon_match_disc: Cents,
    week: u8,
    #[serde(deserialize_with = "time")]
    transaction_timestamp: NaiveDateTime,
}

/// Reads a time, and says what one looks like.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NaiveDateTime, D::Error> {
    let text = <&str>::deserialize(deserializer)?;
    text.parse()
        .map_err(|error| D::Error::custom(format_args!("{text:?} is no time, as 2017-01-31T17:05:00 is one: {error}")))
}

impl Line {
    /// Which basket it belongs to.
    pub fn basket_id(&self) -> i64 {
        self.basket_id
    }

    fn item(&self, line: u64) -> Item {
        let amounts = Amounts {
            sales: self.sales_value,
            retail_disc: self.retail_disc,
            coupon_disc: self.coupon_disc,
            coupon_match_disc: self.coupon_match_disc,
        };
        Item { line, product_id: self.product_id, quantity: self.quantity, amounts }
    }

    fn to_text(&self) -> String {
        let Self { household_id, store_id, basket_id, product_id, quantity, week, transaction_timestamp, .. } = self;
        let amounts = [self.sales_value, self.retail_disc, self.coupon_disc, self.coupon_match_disc];
        let amounts = amounts.map(|amount| amount.to_string()).join(",");
        let at = transaction_timestamp.format("%Y-%m-%dT%H:%M:%S%.f");
        format!("{household_id},{store_id},{basket_id},{product_id},{quantity},{amounts},{week},{at}")
    }
}

/// A product in a basket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// The number of its line in the file; the header is line 1.
    pub line: u64,
    /// Which product.
    pub product_id: u32,
    /// How many pieces, or how much as the product is measured.
    pub quantity: u32,
    /// What was paid for it.
    pub amounts: Amounts,
}

/// What one household bought at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basket {
    /// Which basket.
    pub id: i64,
    /// Who.
    pub household_id: u32,
    /// Where.
    pub store_id: u32,
    /// In which week of the year.
    pub week: u8,
    /// When, local time.
    pub at: NaiveDateTime,
    /// What, in the order of the file; at least one.
    pub items: Vec<Item>,
    /// The sum of all quantities.
    pub quantity: u64,
    /// The sums of all items.
    pub amounts: Amounts,
}

impl Basket {
    /// A basket with its first row.
    pub fn new(number: u64, line: &Line) -> Self {
        let item = line.item(number);
        Self {
            id: line.basket_id,
            household_id: line.household_id,
            store_id: line.store_id,
            week: line.week,
            at: line.transaction_timestamp,
            items: vec![item],
            quantity: u64::from(item.quantity),
            amounts: item.amounts,
        }
    }

    /// The number of its first line.
    pub fn first_line(&self) -> u64 {
        self.items.first().map_or(0, |item| item.line)
    }

    /// Takes one more row of this basket.
    ///
    /// # Errors
    /// The row is refused if it contradicts the basket, or if a sum would be out of range.
    pub fn take(&mut self, number: u64, line: &Line) -> Result<(), Reject> {
        let first = self.first_line();
        let refuse = |why: String| Err(Reject::new(number, why, line.to_text()));
        for (what, is_same) in [
            ("household_id", line.household_id == self.household_id),
            ("store_id", line.store_id == self.store_id),
            ("week", line.week == self.week),
            ("transaction_timestamp", line.transaction_timestamp == self.at),
        ] {
            if !is_same {
                return refuse(format!("{what} is not that of its basket {}, which begins in line {first}", self.id));
            }
        }
        let item = line.item(number);
        let Some(amounts) = self.amounts.plus(&item.amounts) else {
            return refuse(format!("an amount of basket {}, which begins in line {first}, is out of range", self.id));
        };
        self.amounts = amounts;
        self.quantity = self.quantity.saturating_add(u64::from(item.quantity));
        self.items.push(item);
        Ok(())
    }
}

/// A row that is refused. It is written down where all others are, in the same transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The number of its line in the file; the header is line 1.
    pub line: u64,
    /// What is wrong with it.
    pub why: String,
    /// Its text, or the beginning of it; what is not UTF-8, and NUL, which PostgreSQL cannot hold, are replaced.
    pub text: String,
}

impl Reject {
    fn new(line: u64, why: String, text: String) -> Self {
        let clean = |text: String| {
            let mut text = text.replace('\0', "\u{fffd}");
            let cut = (0..=MAX_REJECT_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(cut);
            text
        };
        Self { line, why: clean(why), text: clean(text) }
    }
}

impl From<BadRow> for Reject {
    fn from(row: BadRow) -> Self {
        let why = match row.fault {
            RowFault::Fields { expected, found } => format!("{found} columns instead of {expected}"),
            RowFault::NotUtf8 { field } => format!("column {} is not UTF-8", field + 1),
            RowFault::Invalid { why } => why,
            other => other.to_string(),
        };
        Self::new(row.line, why, row.fields.join(","))
    }
}

/// What lies before a position of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Rows, refused ones too.
    pub rows: u64,
    /// Baskets.
    pub baskets: u64,
    /// Rows that are items of a basket.
    pub items: u64,
    /// Rows that were refused.
    pub rejects: u64,
    /// The sums of all baskets.
    pub amounts: Amounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn line(basket_id: i64, household_id: u32, sales: i64) -> Line {
        Line {
            household_id,
            store_id: 7,
            basket_id,
            product_id: 8,
            quantity: 2,
            sales_value: Cents::new(sales),
            retail_disc: Cents::new(1),
            coupon_disc: Cents::new(0),
            coupon_match_disc: Cents::new(0),
            week: 1,
            transaction_timestamp: "2017-01-01T11:53:26".parse().unwrap(),
        }
    }

    #[test]
    fn a_basket_sums_its_rows() {
        let mut basket = Basket::new(2, &line(5, 1, 50));
        basket.take(3, &line(5, 1, 99)).unwrap();
        assert_eq!((basket.items.len(), basket.quantity, basket.amounts.to_cents()), (2, 4, [149, 2, 0, 0]));
    }

    #[test]
    fn a_row_that_contradicts_its_basket_is_refused_and_changes_nothing() {
        let mut basket = Basket::new(2, &line(5, 1, 50));
        let before = basket.clone();
        let reject = basket.take(3, &line(5, 9, 99)).unwrap_err();
        assert_eq!(reject.why, "household_id is not that of its basket 5, which begins in line 2");
        assert_eq!(reject.text, "9,7,5,8,2,0.99,0.01,0.00,0.00,1,2017-01-01T11:53:26");
        let reject = basket.take(4, &line(5, 1, i64::MAX)).unwrap_err();
        assert_eq!(reject.why, "an amount of basket 5, which begins in line 2, is out of range");
        assert_eq!(basket, before);
    }

    #[test]
    fn the_text_of_a_reject_is_bounded_and_has_no_nul() {
        let reject = Reject::new(2, "why".to_owned(), format!("a\0{}", "ä".repeat(1000)));
        assert_eq!(reject.text, format!("a\u{fffd}{}", "ä".repeat(498)));
        assert_eq!(Reject::new(2, String::new(), "x".repeat(1000)).text.len(), 1000);
        assert_eq!(Reject::new(2, String::new(), "x".repeat(1001)).text.len(), 1000);
    }
}
