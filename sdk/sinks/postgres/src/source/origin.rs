//! What a position is a position in.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio_postgres::SimpleQueryMessage;

use super::Trouble;
use crate::database::{Failure, Session};

const RELATIONS: &str = "SELECT DISTINCT c.oid FROM pg_catalog.pg_class AS c \
     JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace \
     JOIN unnest($1::text[], $2::text[]) AS r (schema, name) ON n.nspname = r.schema AND c.relname = r.name ORDER BY c.oid";
const FILES: &str = "SELECT coalesce(string_agg(concat(oid, ':', pg_relation_filenode(oid)), ',' ORDER BY oid), '') \
     FROM pg_catalog.pg_class WHERE oid = ANY ($1)";

/// The query and its position column, and the files that hold the tables it reads. Files are new ones after TRUNCATE, and
/// when a table was made anew, but also after VACUUM FULL and the like: then the row at the position tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    pub(super) query: u64,
    pub(super) files: u64,
}

/// The tables that a query reads, views and partitions seen through, as far as the plan tells.
#[derive(Debug)]
pub(super) struct Relations(Vec<u32>);

impl Relations {
    pub(super) async fn of(session: &Session, query: &str) -> Result<Self, Trouble> {
        let doing = "look at what the source's query reads";
        let explain = format!("EXPLAIN (VERBOSE, FORMAT JSON) SELECT * FROM ({query}) AS q");
        let plan = session.within(doing, session.client().simple_query(&explain)).await?;
        let text = plan.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        let plan = serde_json::from_str(text.unwrap_or_default());
        let plan: Value = plan.map_err(|error| Trouble::Refused(format!("{doing}: {error}")))?;
        let (mut schemas, mut names) = (Vec::new(), Vec::new());
        collect(&plan, &mut schemas, &mut names);
        let rows = session.query(doing, RELATIONS, &[&schemas, &names]).await?;
        let oids = rows.iter().map(|row| row.try_get(0).map_err(|error| Failure::new(doing, error)));
        Ok(Self(oids.collect::<Result<_, _>>()?))
    }

    /// The files that hold them now, as one number.
    pub(super) async fn files(&self, session: &Session) -> Result<u64, Failure> {
        let doing = "look at the tables of the source's query";
        let row = session.query_one(doing, FILES, &[&self.0]).await?;
        row.try_get(0).map(|files: String| digest(&[&files])).map_err(|error| Failure::new(doing, error))
    }
}

/// Each scan of a plan names what it scans.
fn collect(plan: &Value, schemas: &mut Vec<String>, names: &mut Vec<String>) {
    match plan {
        Value::Array(plans) => plans.iter().for_each(|plan| collect(plan, schemas, names)),
        Value::Object(node) => {
            if let (Some(Value::String(schema)), Some(Value::String(name))) =
                (node.get("Schema"), node.get("Relation Name"))
            {
                schemas.push(schema.clone());
                names.push(name.clone());
            }
            node.values().filter(|value| value.is_array() || value.is_object()).for_each(|inner| {
                collect(inner, schemas, names);
            });
        }
        _ => {}
    }
}

/// A number that texts have to themselves, as far as anybody will see.
pub(super) fn digest(texts: &[&str]) -> u64 {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    let hash: [u8; 32] = hasher.finalize().into();
    hash.first_chunk().copied().map_or(0, u64::from_le_bytes)
}
