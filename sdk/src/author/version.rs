//! The version of an encoding.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The version of an encoding, its first field: written as this number, and no other one is read. What a sink hands to
/// another process may be read by an older or a newer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version<const KNOWN: u8>;

impl<const KNOWN: u8> Serialize for Version<KNOWN> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(KNOWN)
    }
}

impl<'de, const KNOWN: u8> Deserialize<'de> for Version<KNOWN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = u64::deserialize(deserializer)?;
        if found == u64::from(KNOWN) {
            return Ok(Self);
        }
        Err(D::Error::custom(format!("version {found} is not known here, only {KNOWN}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Handle {
        version: Version<2>,
        rows: u64,
    }

    #[test]
    fn a_version_is_a_number_and_another_one_is_refused() {
        let handle = Handle { version: Version, rows: 7 };
        let json = serde_json::to_string(&handle).unwrap();
        assert_eq!(json, r#"{"version":2,"rows":7}"#);
        assert_eq!(serde_json::from_str::<Handle>(&json).unwrap(), handle);
        for other in [1, 3, 300] {
            let error = serde_json::from_str::<Handle>(&json.replace(":2,", &format!(":{other},"))).unwrap_err();
            let told = format!("version {other} is not known here, only 2");
            assert!(error.to_string().starts_with(&told), "{error}");
        }
    }
}
