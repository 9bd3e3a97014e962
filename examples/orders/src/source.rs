//! Rows into baskets, so that no checkpoint ever parts a basket.
//!
//! The rows of a basket follow each other, so a basket ends where the next one begins. Until then it is open: its rows are
//! read, and none of them is given to the job. The position is what lies before the open basket, and that is what a
//! checkpoint keeps; a job that is killed reads the open basket again, from its first row. What is refused within an open
//! basket waits with it: told at once, it would be told twice.

use std::{collections::VecDeque, path::PathBuf, sync::Arc};

use async_trait::async_trait;
use ratified::{
    Cause,
    job::{BadRow, CsvSource, FilePosition, Read, Row, Source},
};
use serde::{Deserialize, Serialize};

use super::basket::{Basket, COLUMNS, Line, Reject, Tally};

/// Rows that are read at a time.
const CHUNK_ROWS: usize = 512;
/// Most rows of a basket, refused ones between them counted: all of them are held in memory.
pub const MAX_BASKET_ROWS: usize = 10_000;

/// A place between two baskets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OrderPosition {
    /// Behind the last row of the last basket.
    pub file: FilePosition,
    /// What lies before.
    pub tally: Tally,
}

/// What is written together or not at all: a basket, and what was refused between its rows; or a refused row that belongs
/// to no basket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unit {
    /// The basket, if it is one.
    pub basket: Option<Basket>,
    /// What was refused.
    pub rejects: Vec<Reject>,
    end: FilePosition,
}

/// Is told the position at the start and after each read.
pub type Observer = Arc<dyn Fn(&OrderPosition) + Send + Sync>;

/// The baskets of a file.
pub struct OrderSource {
    csv: CsvSource<Line>,
    rows: VecDeque<Result<Row<Line>, BadRow>>,
    open: Option<Unit>,
    position: OrderPosition,
    observer: Observer,
}

impl OrderSource {
    /// The baskets of this file. Touches nothing yet.
    pub fn new(path: impl Into<PathBuf>, observer: Observer) -> Self {
        let csv = CsvSource::new(path).require_columns(&COLUMNS);
        Self { csv, rows: VecDeque::new(), open: None, position: OrderPosition::default(), observer }
    }

    /// The next unit that is whole; none at the end of the file, which ends the last basket.
    async fn next_unit(&mut self) -> Result<Option<Unit>, Cause> {
        loop {
            let Some(row) = self.next_row().await? else { return Ok(self.open.take()) };
            let ended = match (row, &mut self.open) {
                (Ok(row), Some(open)) if open.is_of(row.value.basket_id()) => {
                    open.take(&row);
                    None
                }
                (Ok(row), open) => open.replace(Unit::begun(&row)),
                (Err(bad), Some(open)) => {
                    open.end = bad.end;
                    open.rejects.push(bad.into());
                    None
                }
                (Err(bad), None) => Some(Unit { end: bad.end, basket: None, rejects: vec![bad.into()] }),
            };
            if ended.is_some() {
                return Ok(ended);
            }
            self.open.as_ref().map_or(Ok(()), |open| open.check_length(&self.csv))?;
        }
    }

    async fn next_row(&mut self) -> Result<Option<Result<Row<Line>, BadRow>>, Cause> {
        if self.rows.is_empty()
            && let Read::Records(rows) = self.csv.read(CHUNK_ROWS).await?
        {
            self.rows = rows.into();
        }
        Ok(self.rows.pop_front())
    }

    fn give(&mut self, unit: &Unit) -> Result<(), Cause> {
        let Tally { rows, baskets, items, rejects, amounts } = self.position.tally;
        let refused = unit.rejects.len() as u64;
        let taken = unit.basket.as_ref().map_or(0, |basket| basket.items.len() as u64);
        let added = unit.basket.as_ref().map_or_else(Default::default, |basket| basket.amounts);
        let path = self.csv.path().display();
        let amounts = amounts
            .plus(&added)
            .ok_or_else(|| Cause::new(format!("{path}: the sum of all amounts is out of range")))?;
        self.position.tally = Tally {
            rows: rows + taken + refused,
            baskets: baskets + u64::from(unit.basket.is_some()),
            items: items + taken,
            rejects: rejects + refused,
            amounts,
        };
        self.position.file = unit.end;
        Ok(())
    }
}

#[async_trait]
impl Source for OrderSource {
    type Record = Unit;
    type Position = OrderPosition;

    async fn seek(&mut self, position: Option<&OrderPosition>) -> Result<(), Cause> {
        self.csv.seek(position.map(|position| &position.file)).await?;
        self.rows.clear();
        self.open = None;
        let tally = position.map_or_else(Tally::default, |position| position.tally);
        self.position = OrderPosition { file: self.csv.position(), tally };
        (self.observer)(&self.position);
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<Unit>, Cause> {
        let mut units = Vec::with_capacity(max_records.min(CHUNK_ROWS));
        while units.len() < max_records
            && let Some(unit) = self.next_unit().await?
        {
            self.give(&unit)?;
            units.push(unit);
        }
        (self.observer)(&self.position);
        Ok(if units.is_empty() { Read::End } else { Read::Records(units) })
    }

    fn position(&self) -> OrderPosition {
        self.position
    }
}

impl Unit {
    fn begun(row: &Row<Line>) -> Self {
        Self { basket: Some(Basket::new(row.line, &row.value)), rejects: Vec::new(), end: row.end }
    }

    fn is_of(&self, basket_id: i64) -> bool {
        self.basket.as_ref().is_some_and(|basket| basket.id == basket_id)
    }

    fn take(&mut self, row: &Row<Line>) {
        self.end = row.end;
        if let Some(basket) = &mut self.basket
            && let Err(reject) = basket.take(row.line, &row.value)
        {
            self.rejects.push(reject);
        }
    }

    fn check_length(&self, csv: &CsvSource<Line>) -> Result<(), Cause> {
        let Some(basket) = &self.basket else { return Ok(()) };
        if basket.items.len().saturating_add(self.rejects.len()) <= MAX_BASKET_ROWS {
            return Ok(());
        }
        let (path, id, first) = (csv.path().display(), basket.id, basket.first_line());
        Err(Cause::new(format!(
            "{path}: basket {id}, which begins in line {first}, has more than {MAX_BASKET_ROWS} rows, refused ones between \
             them counted: are its rows those of one purchase?"
        )))
    }
}
