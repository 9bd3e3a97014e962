//! Where records come from.

use std::fmt;

use async_trait::async_trait;
use serde::{Serialize, de::DeserializeOwned};

use crate::error::Cause;

/// What one read of a source brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read<R> {
    /// Records, at most as many as were asked for.
    Records(Vec<R>),
    /// Nothing for now; there may be more later.
    Idle,
    /// Nothing, and there never will be.
    End,
}

/// A source that can be read again from a position. Implement it for whatever holds your records; the SDK's own are
/// [`LineSource`](super::LineSource), [`channel`](super::channel), [`MemorySource`] and, with the feature `csv`,
/// `CsvSource`.
///
/// What a job relies on:
/// * From the same position the same records come, in the same order, also after a restart. A source that cannot promise
///   that must say so by an error at `seek`.
/// * The position behind the last record read is what is committed with everything read before.
/// * A record that makes no sense is no error of the source: give it as a value, `Result` for example, so that the job can
///   write it where it belongs. Every record counts, also a bad one.
///
/// ```
/// use async_trait::async_trait;
/// use ratified::{Cause, job::{Read, Source}};
///
/// /// The squares of the numbers below `end`; the position is the next number.
/// struct Squares {
///     next: u64,
///     end: u64,
/// }
///
/// #[async_trait]
/// impl Source for Squares {
///     type Record = u64;
///     type Position = u64;
///
///     async fn seek(&mut self, position: Option<&u64>) -> Result<(), Cause> {
///         self.next = position.copied().unwrap_or(0);
///         Ok(())
///     }
///
///     async fn read(&mut self, max_records: usize) -> Result<Read<u64>, Cause> {
///         let end = self.end.min(self.next + max_records as u64);
///         let squares: Vec<_> = (self.next..end).map(|n| n * n).collect();
///         self.next = end;
///         Ok(if squares.is_empty() { Read::End } else { Read::Records(squares) })
///     }
///
///     fn position(&self) -> u64 {
///         self.next
///     }
/// }
/// ```
#[async_trait]
pub trait Source: Send + 'static {
    /// What is read.
    type Record: Send + 'static;
    /// A place between two records; small, since it travels with every commit. It should name what it is a place in, so
    /// that `seek` can refuse another one.
    ///
    /// It is stored exactly, infinities, 128-bit numbers and any keys of maps included, and is read back and compared
    /// before anything is decided with it: a field that is skipped, or a value that is not equal to itself, as NaN, is an
    /// error of the first commit and not of the first restart.
    type Position: Serialize + DeserializeOwned + PartialEq + fmt::Debug + Clone + Send + Sync + 'static;

    /// Goes to a position; `None` is the beginning.
    ///
    /// # Errors
    /// Any ends the job. A position in something else must be one: a file or table that was made anew.
    async fn seek(&mut self, position: Option<&Self::Position>) -> Result<(), Cause>;

    /// The next records, at most `max_records`. Must not wait long: [`Read::Idle`] lets the job take its checkpoint.
    ///
    /// # Errors
    /// Any ends the job; a restart reads again from the last commit.
    async fn read(&mut self, max_records: usize) -> Result<Read<Self::Record>, Cause>;

    /// The position behind the last record that was read.
    fn position(&self) -> Self::Position;

    /// Everything before this position is visible in the sink: the source may forget it. Default: nothing.
    ///
    /// # Errors
    /// Any ends the job.
    async fn acknowledge(&mut self, position: &Self::Position) -> Result<(), Cause> {
        let _ = position;
        Ok(())
    }
}

/// Records in memory, read in order; the position is how many were read. For examples and tests.
#[derive(Debug, Clone)]
pub struct MemorySource<R> {
    records: Vec<R>,
    next: u64,
}

impl<R> MemorySource<R> {
    /// A source of these records.
    pub fn new(records: impl IntoIterator<Item = R>) -> Self {
        Self { records: records.into_iter().collect(), next: 0 }
    }
}

#[async_trait]
impl<R: Clone + Send + Sync + 'static> Source for MemorySource<R> {
    type Record = R;
    type Position = u64;

    async fn seek(&mut self, position: Option<&u64>) -> Result<(), Cause> {
        let position = position.copied().unwrap_or(0);
        if position > self.records.len() as u64 {
            return Err(Cause::new(format!(
                "position {position} is behind the last of {} records",
                self.records.len()
            )));
        }
        self.next = position;
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<R>, Cause> {
        let start = usize::try_from(self.next).map_err(Cause::new)?;
        let records: Vec<_> = self.records.iter().skip(start).take(max_records).cloned().collect();
        self.next += records.len() as u64;
        Ok(if records.is_empty() { Read::End } else { Read::Records(records) })
    }

    fn position(&self) -> u64 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn records_in_memory_are_read_from_a_position_in_bounded_batches() {
        let mut source = MemorySource::new(["a", "b", "c"]);
        source.seek(Some(&1)).await.unwrap();
        assert_eq!(source.read(1).await.unwrap(), Read::Records(vec!["b"]));
        assert_eq!(source.position(), 2);
        assert_eq!(source.read(9).await.unwrap(), Read::Records(vec!["c"]));
        assert_eq!(source.read(9).await.unwrap(), Read::End);
        source.seek(None).await.unwrap();
        assert_eq!(source.read(9).await.unwrap(), Read::Records(vec!["a", "b", "c"]));
        assert!(source.seek(Some(&4)).await.is_err());
    }
}
