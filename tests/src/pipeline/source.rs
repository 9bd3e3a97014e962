//! The numbers from zero on.

use async_trait::async_trait;
use ratified::{
    Cause,
    job::{Read, Source},
};

/// All numbers below an end, in order; read again from any of them.
#[derive(Debug, Clone, Copy)]
pub struct Numbers {
    next: u64,
    end: u64,
    acknowledged: u64,
}

impl Numbers {
    /// The numbers below `end`.
    pub const fn below(end: u64) -> Self {
        Self { next: 0, end, acknowledged: 0 }
    }
}

#[async_trait]
impl Source for Numbers {
    type Record = u64;
    type Position = u64;

    async fn seek(&mut self, position: Option<&u64>) -> Result<(), Cause> {
        self.next = position.copied().unwrap_or(0);
        self.acknowledged = self.next;
        Ok(())
    }

    async fn read(&mut self, max_records: usize) -> Result<Read<u64>, Cause> {
        let end = self.next.saturating_add(max_records as u64).min(self.end);
        let records: Vec<_> = (self.next..end).collect();
        self.next = end;
        Ok(if records.is_empty() { Read::End } else { Read::Records(records) })
    }

    fn position(&self) -> u64 {
        self.next
    }

    async fn acknowledge(&mut self, position: &u64) -> Result<(), Cause> {
        if *position < self.acknowledged || *position > self.next {
            return Err(Cause::new(format!("{position} acknowledged out of turn")));
        }
        self.acknowledged = *position;
        Ok(())
    }
}
