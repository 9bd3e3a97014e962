//! The catalogue as the source of a job.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use ratified::{
    Cause,
    job::{Read, Source},
};

use crate::quakes::{Catalogue, Position, Row};

/// Reads a catalogue from the position of the last commit on.
pub(super) struct CatalogueSource {
    path: PathBuf,
    catalogue: Option<Catalogue>,
}

impl CatalogueSource {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), catalogue: None }
    }
}

#[async_trait]
impl Source for CatalogueSource {
    type Record = Row;
    type Position = Position;

    async fn seek(&mut self, position: Option<&Position>) -> Result<(), Cause> {
        let catalogue = match position {
            Some(position) => Catalogue::resume(&self.path, position),
            None => Catalogue::open(&self.path),
        };
        self.catalogue = Some(catalogue.map_err(Cause::new)?);
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<Row>, Cause> {
        let Some(catalogue) = &mut self.catalogue else { return Ok(Read::End) };
        let mut rows = Vec::with_capacity(max_records);
        while rows.len() < max_records
            && let Some(row) = catalogue.next_row().map_err(Cause::new)?
        {
            rows.push(row);
        }
        Ok(if rows.is_empty() { Read::End } else { Read::Records(rows) })
    }

    fn position(&self) -> Position {
        self.catalogue.as_ref().map(Catalogue::position).unwrap_or_default()
    }
}
