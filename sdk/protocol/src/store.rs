//! Which store answered, and which start of it: what a client needs to notice a restored backup.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::IdError;

/// Most partitions of a store.
pub const MAX_PARTITIONS: u16 = 64;

/// Which store answered, and how often it had been loaded: `<clusterId>.<loads>`, or `<clusterId>.<p>:<loads>` with a
/// pair per partition that answered, ascending and joined by commas. A client that sees a number go back, or another
/// cluster, has met a restored backup or a stranger and must stop.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct StoreId {
    cluster_id: Uuid,
    loads: Loads,
}

/// How often a store was loaded. Grows at each load.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Loads {
    /// A store that is not partitioned.
    Whole(u64),
    /// The partitions that answered, at least one, each below [`MAX_PARTITIONS`].
    Partitions(BTreeMap<u16, u64>),
}

impl StoreId {
    /// A store that is not partitioned. `cluster_id` is drawn once, when the store is made.
    pub const fn new(cluster_id: Uuid, loads: u64) -> Self {
        Self { cluster_id, loads: Loads::Whole(loads) }
    }

    /// Partitions of a store, with the loads of each; the caller must name at least one, each below
    /// [`MAX_PARTITIONS`].
    ///
    /// # Errors
    /// [`IdError::StoreId`] otherwise.
    pub fn partitioned(cluster_id: Uuid, loads: BTreeMap<u16, u64>) -> Result<Self, IdError> {
        let is_sound = loads.last_key_value().is_some_and(|(last, _)| *last < MAX_PARTITIONS);
        if is_sound { Ok(Self { cluster_id, loads: Loads::Partitions(loads) }) } else { Err(IdError::StoreId) }
    }

    /// Which store.
    pub const fn cluster_id(&self) -> Uuid {
        self.cluster_id
    }

    /// How often it was loaded.
    pub const fn loads(&self) -> &Loads {
        &self.loads
    }

    /// The greatest number of loads that it names: that of the store, if it is not partitioned.
    pub fn newest_loads(&self) -> u64 {
        self.parts().map(|(_, loads)| loads).max().unwrap_or_default()
    }

    /// How often it was loaded, each part of the store alone; `None` is the whole of one that is not partitioned.
    pub fn parts(&self) -> impl Iterator<Item = (Option<u16>, u64)> + '_ {
        let (whole, partitions) = match &self.loads {
            Loads::Whole(loads) => (Some((None, *loads)), None),
            Loads::Partitions(loads) => (None, Some(loads)),
        };
        whole.into_iter().chain(partitions.into_iter().flatten().map(|(partition, loads)| (Some(*partition), *loads)))
    }
}

impl FromStr for StoreId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let (cluster, loads) = text.split_once('.').ok_or(IdError::StoreId)?;
        let cluster_id = Uuid::try_parse(cluster).map_err(|_| IdError::StoreId)?;
        let id = if loads.contains(':') {
            let pairs: Option<_> = loads.split(',').map(pair).collect();
            Self::partitioned(cluster_id, pairs.ok_or(IdError::StoreId)?)?
        } else {
            Self::new(cluster_id, loads.parse().map_err(|_| IdError::StoreId)?)
        };
        // One store must have one spelling: no capitals, no leading zeros or plus signs, each pair once and in order.
        if id.to_string() == text { Ok(id) } else { Err(IdError::StoreId) }
    }
}

fn pair(text: &str) -> Option<(u16, u64)> {
    let (partition, loads) = text.split_once(':')?;
    Some((partition.parse().ok()?, loads.parse().ok()?))
}

impl TryFrom<String> for StoreId {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<StoreId> for String {
    fn from(id: StoreId) -> String {
        id.to_string()
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cluster_id.hyphenated())?;
        for (index, (partition, loads)) in self.parts().enumerate() {
            f.write_str(if index == 0 { "." } else { "," })?;
            match partition {
                Some(partition) => write!(f, "{partition}:{loads}")?,
                None => write!(f, "{loads}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "0190f2c4-7a61-4c3e-9d0a-0d0f6b1c2e3f";

    #[test]
    fn a_store_id_is_cluster_and_loads() {
        let text = format!("{CLUSTER}.12");
        let id: StoreId = text.parse().unwrap();
        assert_eq!(id, StoreId::new(CLUSTER.parse().unwrap(), 12));
        assert_eq!(id.parts().collect::<Vec<_>>(), [(None, 12)]);
        assert_eq!(id.to_string(), text);
    }

    #[test]
    fn a_store_id_of_a_cluster_is_a_pair_for_each_partition() {
        let text = format!("{CLUSTER}.0:7,3:12,63:1");
        let id: StoreId = text.parse().unwrap();
        assert_eq!(id.parts().collect::<Vec<_>>(), [(Some(0), 7), (Some(3), 12), (Some(63), 1)]);
        assert_eq!(id.to_string(), text);
    }

    #[test]
    fn a_store_id_has_one_spelling() {
        let wrong = [
            "12",
            ".12",
            "x.12",
            "{c}",
            "{c}.",
            "{c}.-1",
            "{c}.+1",
            "{c}.01",
            "{c}.18446744073709551616",
            "{c}.1 ",
            "{c}.3:",
            "{c}.:3",
            "{c}.0:1,",
            "{c}.0:1,2",
            "{c}.1:1,0:1",
            "{c}.0:1,0:1",
            "{c}.64:1",
            "{c}.0:1, 1:1",
            "{c}.00:1",
            "{c}.0:1.2",
        ];
        for wrong in wrong {
            let text = wrong.replace("{c}", CLUSTER);
            assert_eq!(text.parse::<StoreId>(), Err(IdError::StoreId), "{text}");
        }
        assert_eq!(format!("{}.1", CLUSTER.to_uppercase()).parse::<StoreId>(), Err(IdError::StoreId));
        assert_eq!(StoreId::partitioned(Uuid::nil(), BTreeMap::new()), Err(IdError::StoreId));
    }
}
