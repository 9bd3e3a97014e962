//! Where baskets and refused rows go: two tables of PostgreSQL.

use std::{fmt, str::FromStr, sync::Arc};

use ratified::{
    Cause,
    job::{Read, Source},
};

use ratified_postgres::{
    CopyRow, Database, PgRecord, PostgresError, PostgresSink, PostgresSinkBuilder, PostgresSource, Table,
    tokio_postgres::{Row, types::FromSqlOwned},
};
use thiserror::Error;

use super::{
    basket::{Basket, Reject},
    cents::{Amounts, Cents},
};

const BASKET: &str = "basket";
const REJECT: &str = "reject";
const BASKET_COLUMNS: [&str; 12] = [
    "basket_id",
    "household_id",
    "store_id",
    "week",
    "bought_at",
    "first_line",
    "items",
    "quantity",
    "sales_cents",
    "retail_disc_cents",
    "coupon_disc_cents",
    "coupon_match_disc_cents",
];
const REJECT_COLUMNS: [&str; 3] = ["line", "why", "row"];
/// How many rows are read at a time when the tables are looked at.
const READ_ROWS: usize = 10_000;

/// The name of a schema: 1..=32 of `a-z 0-9 _`, the first one a letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaName(String);

/// A text that names no schema.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("a schema's name must be 1..=32 of a-z 0-9 _, the first one a letter")]
pub struct NoSchemaName;

impl FromStr for SchemaName {
    type Err = NoSchemaName;

    fn from_str(text: &str) -> Result<Self, NoSchemaName> {
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        if begins && text.len() <= 32 && text.bytes().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NoSchemaName)
        }
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A row of one of the two tables.
#[derive(Debug, Clone)]
pub enum TableRow {
    /// A basket.
    Basket(BasketRow),
    /// A refused row.
    Reject(Reject),
}

/// What is written of a basket: its sums.
#[derive(Debug, Clone)]
pub struct BasketRow {
    head: [i64; 4],
    bought_at: String,
    sums: [u64; 3],
    amounts: Amounts,
}

impl From<&Basket> for BasketRow {
    fn from(basket: &Basket) -> Self {
        let Basket { id, household_id, store_id, week, at, items, quantity, amounts } = basket;
        Self {
            head: [*id, i64::from(*household_id), i64::from(*store_id), i64::from(*week)],
            bought_at: at.format("%Y-%m-%d %H:%M:%S%.f").to_string(),
            sums: [basket.first_line(), items.len() as u64, *quantity],
            amounts: *amounts,
        }
    }
}

impl PgRecord for TableRow {
    fn table(&self) -> usize {
        match self {
            Self::Basket(_) => 0,
            Self::Reject(_) => 1,
        }
    }

    fn fill(&self, row: &mut CopyRow<'_>) -> Result<(), Cause> {
        match self {
            Self::Basket(basket) => {
                for value in basket.head {
                    row.value(value);
                }
                row.text(&basket.bought_at);
                for value in basket.sums {
                    row.value(value);
                }
                for cents in basket.amounts.to_cents() {
                    row.value(cents);
                }
            }
            Self::Reject(reject) => {
                row.value(reject.line).text(&reject.why).text(&reject.text);
            }
        }
        Ok(())
    }
}

/// What the tables hold of one basket, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Which basket; of all of them, how many.
    pub basket: i64,
    /// Its items.
    pub items: i64,
    /// Its amounts.
    pub amounts: Amounts,
}

/// The two tables in a schema of a database.
#[derive(Debug, Clone)]
pub struct Tables {
    database: Database,
    schema: SchemaName,
}

impl Tables {
    /// The tables of this schema.
    pub fn new(database: Database, schema: SchemaName) -> Self {
        Self { database, schema }
    }

    /// Makes schema and tables unless they are there. No key keeps a basket from being there twice: nothing but the
    /// transactions does.
    ///
    /// # Errors
    /// What the database says.
    pub async fn make(&self) -> Result<(), Cause> {
        let schema = &self.schema;
        let sums: Vec<_> = BASKET_COLUMNS.iter().skip(5).map(|column| format!("{column} bigint NOT NULL")).collect();
        let sums = sums.join(", ");
        let id = "seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY";
        self.database
            .run(&format!(
                "DO $$ BEGIN IF to_regclass('{schema}.{BASKET}') IS NULL THEN CREATE SCHEMA IF NOT EXISTS {schema}; \
                 CREATE TABLE {schema}.{BASKET} ({id}, basket_id bigint NOT NULL, household_id bigint NOT NULL, \
                 store_id bigint NOT NULL, week smallint NOT NULL, bought_at timestamp NOT NULL, {sums}); \
                 CREATE TABLE {schema}.{REJECT} ({id}, line bigint NOT NULL, why text NOT NULL, row text NOT NULL); \
                 END IF; END $$"
            ))
            .await
    }

    /// The sink that writes to them.
    ///
    /// # Errors
    /// Never for the names of this example.
    pub fn sink(&self) -> Result<PostgresSinkBuilder<TableRow>, PostgresError> {
        let schema = self.schema.to_string();
        let baskets = Table::new(BASKET, BASKET_COLUMNS)?.in_schema(&schema)?;
        let rejects = Table::new(REJECT, REJECT_COLUMNS)?.in_schema(&schema)?;
        // The schema's name is the sink's, too, so that two jobs of one database do not meet.
        let name: String = schema.chars().take(24).collect();
        Ok(PostgresSink::builder(self.database.clone(), [baskets, rejects]).name(&name))
    }

    /// All baskets together.
    ///
    /// # Errors
    /// What the database says.
    pub async fn sums(&self) -> Result<Sums, Cause> {
        let sum = |column: &str| format!("coalesce(sum({column}), 0)::bigint AS {column}");
        let sums: Vec<_> = BASKET_COLUMNS.iter().skip(6).map(|column| sum(column)).collect();
        let query =
            format!("SELECT 1 AS seq, count(*) AS basket_id, {} FROM {}.{BASKET}", sums.join(", "), self.schema);
        let mut all = Sums::default();
        self.read(&query, read_sums, |sums| all = sums).await?;
        Ok(all)
    }

    /// Each basket, as often as it is there.
    ///
    /// # Errors
    /// What the database says.
    pub async fn each_basket(&self, each: impl FnMut(Sums)) -> Result<(), Cause> {
        self.read(&format!("SELECT * FROM {}.{BASKET}", self.schema), read_sums, each).await
    }

    /// The line of each refused row and what was wrong, as often as it is there.
    ///
    /// # Errors
    /// What the database says.
    pub async fn each_reject(&self, each: impl FnMut((i64, String))) -> Result<(), Cause> {
        let read = |row: &Row| Ok((column(row, "line")?, column(row, "why")?));
        self.read(&format!("SELECT * FROM {}.{REJECT}", self.schema), read, each).await
    }

    async fn read<R: Send + 'static>(
        &self,
        query: &str,
        decode: impl Fn(&Row) -> Result<R, Cause> + Send + Sync + 'static,
        mut each: impl FnMut(R),
    ) -> Result<(), Cause> {
        let decode = Arc::new(decode);
        let source = PostgresSource::new(self.database.clone(), query, "seq", move |row| decode(row));
        let mut source = source.map_err(Cause::new)?;
        source.seek(None).await?;
        while let Read::Records(rows) = source.read(READ_ROWS).await? {
            rows.into_iter().for_each(&mut each);
        }
        Ok(())
    }
}

fn read_sums(row: &Row) -> Result<Sums, Cause> {
    let cents = |name: &str| column(row, name).map(Cents::new);
    let amounts = Amounts {
        sales: cents("sales_cents")?,
        retail_disc: cents("retail_disc_cents")?,
        coupon_disc: cents("coupon_disc_cents")?,
        coupon_match_disc: cents("coupon_match_disc_cents")?,
    };
    Ok(Sums { basket: column(row, "basket_id")?, items: column(row, "items")?, amounts })
}

fn column<T: FromSqlOwned>(row: &Row, name: &str) -> Result<T, Cause> {
    row.try_get(name).map_err(Cause::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_named_by_small_letters() {
        let longest = "s".repeat(32);
        for good in ["o", "orders", "pass_1", longest.as_str()] {
            assert_eq!(good.parse::<SchemaName>().unwrap().to_string(), good);
        }
        for wrong in ["", "1st", "_x", "Orders", "a b", "a'b", "a\"b", "a.b", "ä", &"s".repeat(33)] {
            assert_eq!(wrong.parse::<SchemaName>(), Err(NoSchemaName), "{wrong:?}");
        }
    }
}
