//! The tables that a sink writes to.

use std::{collections::BTreeSet, fmt};

use crate::database::{PostgresError, checked_name, identifier, qualified};

/// Most columns of one table: PostgreSQL's own bound.
pub const MAX_COLUMNS: usize = 1600;

/// A table that records go to, and the columns that a record fills, in the order in which it fills them. Names are taken
/// as they are, capitals too; the other columns get their defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    schema: Option<String>,
    name: String,
    columns: Vec<String>,
}

impl Table {
    /// A table by its name and the columns that are filled. It is found by the search path of the connection, unless its
    /// [schema](Self::in_schema) is given.
    ///
    /// # Errors
    /// The caller must mend the name or the number of columns that the error tells, 1..=[`MAX_COLUMNS`].
    pub fn new<C: Into<String>>(
        name: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
    ) -> Result<Self, PostgresError> {
        let columns = columns.into_iter().map(|column| checked_name("column", column));
        let columns: Vec<_> = columns.collect::<Result<_, _>>()?;
        if !(1..=MAX_COLUMNS).contains(&columns.len()) {
            return Err(PostgresError::OutOfBounds { key: "columns of a table", bounds: "1..=1600" });
        }
        let (name, mut met) = (checked_name("table", name)?, BTreeSet::new());
        if let Some(column) = columns.iter().find(|column| !met.insert(*column)) {
            return Err(PostgresError::Duplicate { table: name, column: column.clone() });
        }
        Ok(Self { schema: None, name, columns })
    }

    /// The same table in this schema.
    ///
    /// # Errors
    /// The caller must mend the name.
    pub fn in_schema(mut self, schema: impl Into<String>) -> Result<Self, PostgresError> {
        self.schema = Some(checked_name("schema", schema)?);
        Ok(self)
    }

    /// The columns that a record fills.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Its name, quoted for a statement.
    pub(super) fn quoted(&self) -> String {
        qualified(self.schema.as_deref(), &self.name)
    }

    /// Its columns, quoted for a statement.
    pub(super) fn column_list(&self) -> String {
        let quoted: Vec<_> = self.columns.iter().map(|column| identifier(column)).collect();
        quoted.join(", ")
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.quoted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_they_are() {
        let table = Table::new("Order Lines", ["id", "per\"son"]).unwrap().in_schema("shop").unwrap();
        assert_eq!(table.quoted(), "\"shop\".\"Order Lines\"");
        assert_eq!(table.column_list(), "\"id\", \"per\"\"son\"");
    }

    #[test]
    fn a_column_that_is_named_twice_is_refused() {
        let error = Table::new("t", ["a", "b", "a"]).unwrap_err().to_string();
        assert_eq!(error, "column \"a\" of table \"t\" is named twice");
        assert!(Table::new("t", ["a", "A"]).is_ok());
    }

    #[test]
    fn a_table_has_1_to_1600_columns() {
        let columns = |count: usize| Table::new("t", (0..count).map(|n| format!("c{n}")));
        assert!(columns(1).is_ok() && columns(1600).is_ok());
        for wrong in [0, 1601] {
            let error = columns(wrong).unwrap_err().to_string();
            assert_eq!(error, "columns of a table must be 1..=1600");
        }
    }
}
