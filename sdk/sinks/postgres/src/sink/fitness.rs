//! Whether a table can take the rows, as far as the catalogue tells: what the first row, or the move of staged rows behind the
//! decision, would meet every time is found out at open.

use ratified::SinkError;
use tokio_postgres::{Error, Row};

use super::{handle::Staging, table::Table};
use crate::database::{Failure, Session};

const TABLE: &str = "SELECT relkind::text, row_security_active(c.oid), \
     (SELECT string_agg(quote_ident(rulename), ', ') FROM pg_rewrite \
      WHERE ev_class = c.oid AND ev_type = '3' AND ev_enabled <> 'D'), \
     (SELECT string_agg(p.oid::regclass::text, ', ') FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid \
      WHERE p.relkind = 'f' OR p.relpersistence <> 'p') \
     FROM pg_class c WHERE c.oid = to_regclass($1)";
/// A trigger that runs before the insert of a row may fill any column. Of a default, only its sequences ask for a privilege that
/// the catalogue tells; CASE, because the order of conditions is the planner's.
const COLUMNS: &str = "SELECT attname::text, attname = ANY($2), attgenerated <> '', \
     has_column_privilege(attrelid, attnum, 'INSERT'), \
     (attnotnull OR typnotnull) AND NOT atthasdef AND attidentity = '' AND typdefault IS NULL \
       AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = attrelid AND NOT tgisinternal AND tgtype & 7 = 7), \
     (SELECT string_agg(s.oid::regclass::text, ', ') FROM pg_attrdef f \
      JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass \
      JOIN pg_class s ON s.oid = d.refobjid \
      WHERE f.adrelid = attrelid AND f.adnum = attnum \
        AND CASE WHEN s.relkind = 'S' THEN NOT has_sequence_privilege(s.oid, 'USAGE, UPDATE') ELSE false END) \
     FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid \
     WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";

/// What the database calls for a row as the role that inserts it. The move of staged rows calls more than COPY to where they are
/// staged: defaults, generated columns, indexes.
const FUNCTIONS: &str = "SELECT string_agg(DISTINCT p.oid::regprocedure::text, ', ') FROM pg_depend d \
     JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid \
     WHERE NOT has_function_privilege(p.oid, 'EXECUTE') AND ( \
     d.classid = 'pg_attrdef'::regclass AND d.objid IN ( \
         SELECT f.oid FROM pg_attrdef f JOIN pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum \
         WHERE f.adrelid = to_regclass($1) AND (a.attgenerated <> '' OR NOT a.attname = ANY($2))) \
     OR d.classid = 'pg_class'::regclass AND d.objid IN (SELECT indexrelid FROM pg_index WHERE indrelid = to_regclass($1)) \
     OR d.classid = 'pg_constraint'::regclass AND d.objid IN ( \
         SELECT oid FROM pg_constraint WHERE conrelid = to_regclass($1) AND contype = 'c'))";

/// Refuses a table that could never take the rows as they are staged.
pub(super) async fn check(session: &Session, table: &Table, staging: Staging) -> Result<(), SinkError> {
    let name = table.quoted();
    let doing = format!("look at what table {name} takes");
    let read = |error| SinkError::from(Failure::new(&doing, error));
    for row in session.query(&doing, TABLE, &[&name]).await.map_err(Failure::into_determinate)? {
        refuse(&name, "", unfit_table(&row, staging).map_err(read)?)?;
    }
    let rows = session.query(&doing, COLUMNS, &[&name, &table.columns()]).await.map_err(Failure::into_determinate)?;
    for row in rows {
        let column: String = row.try_get(0).map_err(read)?;
        refuse(&name, &format!("column {column:?} of "), unfit_column(&row).map_err(read)?)?;
    }
    let row = session.query_one(&doing, FUNCTIONS, &[&name, &table.columns()]).await;
    let functions: Option<String> = row.map_err(Failure::into_determinate)?.try_get(0).map_err(read)?;
    let why = |functions| {
        format!(
            "calls for each row, in a default, a generated column, a check or an index, what this role may not: GRANT EXECUTE \
             ON FUNCTION {functions} to it"
        )
    };
    refuse(&name, "", functions.map(why))
}

fn refuse(table: &str, column: &str, why: Option<String>) -> Result<(), SinkError> {
    why.map_or(Ok(()), |why| Err(SinkError::rejected(format!("{column}table {table} {why}"))))
}

fn unfit_table(row: &Row, staging: Staging) -> Result<Option<String>, Error> {
    let (kind, row_security): (String, bool) = (row.try_get(0)?, row.try_get(1)?);
    let (rules, partitions): (Option<String>, Option<String>) = (row.try_get(2)?, row.try_get(3)?);
    let kind = match kind.as_str() {
        "r" | "p" => None,
        "v" | "m" => Some("a view"),
        "f" => Some("a foreign table"),
        _ => Some("something else"),
    };
    if let Some(kind) = kind {
        return Ok(Some(format!(
            "is {kind}: rows are taken by tables of this database only; name the table behind it"
        )));
    }
    if let Some(partitions) = partitions {
        return Ok(Some(format!(
            "has partitions that are foreign, unlogged or temporary, which no transaction keeps as decided: detach {partitions}"
        )));
    }
    Ok(match (staging, row_security, rules) {
        (Staging::Prepared, true, _) => Some(
            "has row security for this role, which COPY does not support: ALTER ROLE ... BYPASSRLS, or stage by \
             Staging::Ledger"
                .to_owned(),
        ),
        (Staging::Ledger, _, Some(rules)) => Some(format!(
            "has rules for INSERT, which the move of staged rows would obey and COPY does not: drop {rules}, or stage by \
             Staging::Prepared"
        )),
        _ => None,
    })
}

fn unfit_column(row: &Row) -> Result<Option<String>, Error> {
    let (is_filled, is_generated, may_insert): (bool, bool, bool) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
    let (must_be_filled, sequences): (bool, Option<String>) = (row.try_get(4)?, row.try_get(5)?);
    Ok(match (is_filled, sequences) {
        (true, _) if is_generated => {
            Some("is generated by the database: take it out of the columns that records fill".to_owned())
        }
        (true, _) if !may_insert => {
            Some("may not be filled by this role: GRANT INSERT on the table, or on that column, to it".to_owned())
        }
        (false, _) if must_be_filled => Some(
            "may not be NULL, has no default and is not filled: fill it, or ALTER TABLE ... SET DEFAULT".to_owned(),
        ),
        (false, Some(sequences)) => {
            Some(format!("draws its default from {sequences}: GRANT USAGE ON SEQUENCE {sequences} to this role"))
        }
        _ => None,
    })
}
