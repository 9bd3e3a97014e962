//! The position column: which type it has, and whether a source can go by it.

use super::Trouble;
use crate::database::{Failure, Session};

/// Names the type, without a length or precision. SQL's own spelling will not do: `character` and `bit` mean one of them.
const TYPE: &str = "SELECT quote_ident(n.nspname) || '.' || quote_ident(t.typname), t.typtype = 'p', \
     CASE WHEN n.nspname = ANY (current_schemas(true)) THEN NULL ELSE quote_ident(n.nspname) END, format_type(t.oid, NULL) \
     FROM pg_catalog.pg_type AS t JOIN pg_catalog.pg_namespace AS n ON n.oid = t.typnamespace WHERE t.oid = $1";
/// The operators of a type are most often where the type is; what they mean must not depend on whose session it is.
const ADD_SCHEMA: &str = "SELECT set_config('search_path', current_setting('search_path') || ', ' || $1, false)";

/// The type of a column of a query, as a cast has it.
pub(super) async fn kind_of(session: &Session, query: &str, column: &str) -> Result<String, Trouble> {
    let doing = format!("look at column {column} of the source's query");
    let columns = format!("SELECT q.{column} FROM ({query}) AS q");
    let statement = session.within(&doing, session.client().prepare(&columns)).await?;
    let oid = statement.columns().first().map(|column| column.type_().oid());
    let row = session.query_one(&doing, TYPE, &[&oid]).await?;
    let read = |error| Failure::new(&doing, error);
    let (kind, is_pseudo): (String, bool) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
    let (schema, name): (Option<String>, String) = (row.try_get(2).map_err(read)?, row.try_get(3).map_err(read)?);
    if is_pseudo {
        return Err(Trouble::Refused(format!(
            "the position column {column} has the type {name}, which cannot be read again from its text; take a column of \
             another type"
        )));
    }
    if let Some(schema) = schema {
        session.query_one(&doing, ADD_SCHEMA, &[&schema]).await?;
    }
    Ok(kind)
}
