//! Drawing transaction ids: UUIDv7, each above every id the coordinator has seen of the client.

use std::time::{SystemTime, UNIX_EPOCH};

use ratified_protocol::{IdError, TxnId};
use uuid::{Builder, Uuid};

/// The bits of a UUIDv7 that are free, in order: 48 of time, 12, and 62.
const FREE_BITS: u32 = 122;
const LOW_BITS: u32 = 62;
const LOW_MASK: u128 = (1 << LOW_BITS) - 1;
const MIDDLE_MASK: u128 = (1 << 12) - 1;

/// Draws ids of one client, each greater than the one before, whatever the clock does.
#[derive(Debug)]
pub(crate) struct IdSource {
    floor: Option<TxnId>,
}

impl IdSource {
    /// A source that draws above the greatest of these.
    pub(crate) fn above(floors: impl IntoIterator<Item = TxnId>) -> Self {
        Self { floor: floors.into_iter().max() }
    }

    /// The next id. Fails only when the floor is the greatest id there is.
    pub(crate) fn draw(&mut self) -> Result<TxnId, IdError> {
        self.draw_from(fresh(), random_u32())
    }

    fn draw_from(&mut self, fresh: Uuid, step: u32) -> Result<TxnId, IdError> {
        let fresh = TxnId::try_from(fresh)?;
        let drawn = match self.floor {
            // The clock of whoever drew the floor was ahead of ours: go on above it, by a random step.
            Some(floor) if fresh <= floor => stepped(floor, step)?,
            _ => fresh,
        };
        self.floor = Some(drawn);
        Ok(drawn)
    }
}

/// An id of this moment. `Uuid::now_v7` draws more or less often as its clock goes on, which no simulation could repeat;
/// that each is above the one before is the floor's to see to.
fn fresh() -> Uuid {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let [a, b, c, d, e, f, _, g, _, h, i, j, ..] = Uuid::new_v4().into_bytes();
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    Builder::from_unix_timestamp_millis(millis, &[a, b, c, d, e, f, g, h, i, j]).into_uuid()
}

/// Drawn from the system, as the ids are: a simulation can set the seed of both.
pub(crate) fn random_u32() -> u32 {
    Uuid::new_v4().as_fields().0
}

fn stepped(floor: TxnId, step: u32) -> Result<TxnId, IdError> {
    let number = u128::from_be_bytes(*floor.as_bytes());
    let free = (number >> 80) << (12 + LOW_BITS) | ((number >> 64) & MIDDLE_MASK) << LOW_BITS | (number & LOW_MASK);
    let next = free + u128::from(step) + 1;
    if next >> FREE_BITS != 0 {
        return Err(IdError::TxnId);
    }
    let time = (next >> (12 + LOW_BITS)) << 80;
    let middle = ((next >> LOW_BITS) & MIDDLE_MASK) << 64;
    let version_and_variant = 0x7 << 76 | 0b10 << LOW_BITS;
    TxnId::from_bytes((time | version_and_variant | middle | (next & LOW_MASK)).to_be_bytes())
}

/// Host and id of this process, for people.
pub(crate) fn this_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { "host" } else { host.trim() };
    format!("{host}:{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(text: &str) -> TxnId {
        text.parse().unwrap()
    }

    #[test]
    fn a_fresh_id_above_the_floor_is_taken_as_it_is() {
        let mut ids = IdSource::above([id("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f")]);
        let fresh = Uuid::try_parse("0190f2c4-7a62-7000-8000-000000000000").unwrap();
        assert_eq!(ids.draw_from(fresh, 0), Ok(id("0190f2c4-7a62-7000-8000-000000000000")));
    }

    #[test]
    fn a_clock_behind_the_floor_steps_above_the_floor() {
        let behind = Uuid::try_parse("0190f2c4-0000-7000-8000-000000000000").unwrap();
        for (floor, next) in [
            ("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f", "0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e40"),
            ("0190f2c4-7a61-7c3e-bfff-ffffffffffff", "0190f2c4-7a61-7c3f-8000-000000000000"),
            ("0190f2c4-7a61-7fff-bfff-ffffffffffff", "0190f2c4-7a62-7000-8000-000000000000"),
        ] {
            assert_eq!(IdSource::above([id(floor)]).draw_from(behind, 0), Ok(id(next)), "{floor}");
        }
    }

    #[test]
    fn the_floor_is_the_greatest_of_all() {
        let (low, high) = (id("0190f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f"), id("ff90f2c4-7a61-7c3e-9d0a-0d0f6b1c2e3f"));
        for floors in [[low, high], [high, low]] {
            assert!(IdSource::above(floors).draw().unwrap() > high);
        }
    }

    #[test]
    fn above_the_greatest_id_there_is_nothing() {
        let last = id("ffffffff-ffff-7fff-bfff-ffffffffffff");
        assert_eq!(IdSource::above([last]).draw(), Err(IdError::TxnId));
    }

    proptest! {
        #[test]
        fn ids_only_grow(floor: u128, steps: Vec<u32>) {
            let bytes = ((floor & !(0xf << 76) & !(0b11 << 62)) | 0x7 << 76 | 0b10 << 62).to_be_bytes();
            let mut last = TxnId::from_bytes(bytes).unwrap();
            let mut ids = IdSource::above([last]);
            for step in steps {
                let Ok(next) = ids.draw_from(Uuid::now_v7(), step) else { break };
                prop_assert!(next > last);
                last = next;
            }
        }
    }
}
