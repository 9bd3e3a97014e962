//! From the bytes of segments to the changes in them: what is taken, what is cut, and what is refused.
//!
//! Each batch must continue the chain. The first that does not is the torn tail if it is in the last segment and no whole
//! batch lies behind it: at most one batch was in flight, and the sectors of one batch reach the disk in any order.
//! Whether it was acknowledged is for the mark to say.

use super::{
    chain::{Chain, Key},
    format::{self, BatchRead, HEADER_BLOCK, Kind, SECTOR},
};

/// How far a log was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// The last batch.
    pub(super) number: u64,
    /// The chain behind it.
    pub(super) chain: Chain,
    /// The first batch of the oldest segment that it needs.
    pub(super) oldest: u64,
}

/// Where the batches of a segment end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// Behind the last one, in bytes.
    pub(super) at: usize,
    /// Whether the segment was ended, so that there must be another one.
    pub(super) is_closed: bool,
    /// Whether something that is no batch follows.
    pub(super) is_torn: bool,
}

/// What is wrong at a place of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    /// In bytes from the beginning of the segment.
    pub(super) at: usize,
    /// For people.
    pub(super) text: String,
}

/// Reads the batches of a segment and gives out what they change, in order.
///
/// # Errors
/// Damage: a batch that cannot be read though a later one can, or one that is at another place than it was written to.
pub(super) fn replay(
    key: &Key,
    bytes: &[u8],
    position: &mut Position,
    mut apply: impl FnMut(&[u8], Option<&[u8]>),
) -> Result<End, Problem> {
    let mut at = HEADER_BLOCK;
    while let Some(batch) = format::read_batch(key, bytes.get(at..).unwrap_or_default()) {
        let expected = position.number.saturating_add(1);
        if batch.number != expected || key.chain(position.chain, batch.check) != batch.chain {
            let found = describe(&batch);
            return Err(Problem { at, text: format!("{found} lies where batch {expected} is expected") });
        }
        if batch.kind == Kind::EndOfSegment {
            return Ok(End { at, is_closed: true, is_torn: false });
        }
        batch.changes().for_each(|(key, value)| apply(key, value));
        *position = Position { number: batch.number, chain: batch.chain, oldest: batch.oldest };
        at = at.saturating_add(batch.bytes);
    }
    let is_torn = bytes.get(at..).unwrap_or_default().iter().any(|byte| *byte != 0);
    match later_batch(key, bytes, at, position.number) {
        Some((later, batch)) => {
            let lost = position.number.saturating_add(1);
            let text = format!("batch {lost} cannot be read, but {} follows at byte {later}", describe(&batch));
            Err(Problem { at, text })
        }
        None => Ok(End { at, is_closed: false, is_torn }),
    }
}

fn describe(batch: &BatchRead<'_>) -> String {
    match batch.kind {
        Kind::Changes => format!("batch {}", batch.number),
        Kind::EndOfSegment => format!("the end of the segment before batch {}", batch.number),
    }
}

/// A whole batch with a greater number behind one that is not.
fn later_batch<'a>(key: &Key, bytes: &'a [u8], from: usize, number: u64) -> Option<(usize, BatchRead<'a>)> {
    let places = (from..bytes.len()).step_by(SECTOR).skip(1);
    let mut batches = places.filter_map(|at| Some((at, format::read_batch(key, bytes.get(at..)?)?)));
    batches.find(|(_, batch)| batch.number > number)
}
