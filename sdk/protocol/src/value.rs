//! Bounded values of requests. Each bound is the protocol's and is checked when the value is made.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::{ids::ParticipantName, strict::Texts};

/// Longest `timeoutMs` and `preparedTimeoutMs`: one week.
pub const MAX_TIMEOUT_MS: u64 = 604_800_000;
/// Longest server-side wait, in milliseconds; a longer `waitMs` is cut to this.
pub const MAX_WAIT_MS: u64 = 30_000;
/// Most labels of a transaction.
pub const MAX_LABELS: usize = 16;
/// Longest key and longest value of a label, in bytes.
pub const MAX_LABEL_BYTES: usize = 256;
/// Most participants of a transaction.
pub const MAX_PARTICIPANTS: usize = 100;
/// Longest `owner`, `reason` and `actor`, in bytes.
pub const MAX_TEXT_BYTES: usize = 256;
/// Longest payload, decoded, in bytes.
pub const MAX_PAYLOAD_BYTES: usize = 64 * 1024;
/// Most payload bytes in one answer; a payload beyond is left out and marked `payloadOmitted`.
pub const MAX_ANSWER_PAYLOAD_BYTES: usize = 1024 * 1024;

/// Why a value is out of its bounds.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A timeout is out of range.
    #[error("must be 1..=604800000 milliseconds")]
    Timeout,
    /// Too many labels, or one is too long.
    #[error("must be at most 16 labels with keys and values of at most 256 bytes")]
    Labels,
    /// Too many participants.
    #[error("must be at most 100 participants")]
    Participants,
    /// A text is too long.
    #[error("must be at most 256 bytes")]
    Text,
}

/// A transaction timeout in milliseconds, 1..=604800000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct TimeoutMs(u64);

impl TimeoutMs {
    /// What `begin` takes when no timeout is given: one minute.
    pub const DEFAULT: Self = Self(60_000);

    /// The timeout in milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The timeout as a duration.
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl Default for TimeoutMs {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl TryFrom<u64> for TimeoutMs {
    type Error = ValueError;
    fn try_from(millis: u64) -> Result<Self, ValueError> {
        if (1..=MAX_TIMEOUT_MS).contains(&millis) { Ok(Self(millis)) } else { Err(ValueError::Timeout) }
    }
}

impl From<TimeoutMs> for u64 {
    fn from(timeout: TimeoutMs) -> u64 {
        timeout.0
    }
}

/// Free labels of a transaction: at most 16, keys and values of at most 256 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Texts", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// The labels by key.
    pub fn as_map(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl TryFrom<Texts> for Labels {
    type Error = ValueError;
    fn try_from(texts: Texts) -> Result<Self, ValueError> {
        texts.0.try_into()
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = ValueError;
    fn try_from(map: BTreeMap<String, String>) -> Result<Self, ValueError> {
        let short = |(k, v): (&String, &String)| k.len() <= MAX_LABEL_BYTES && v.len() <= MAX_LABEL_BYTES;
        if map.len() <= MAX_LABELS && map.iter().all(short) { Ok(Self(map)) } else { Err(ValueError::Labels) }
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

/// The participants of a transaction at `begin`: a set of at most 100.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<ParticipantName>", into = "Vec<ParticipantName>")]
pub struct ParticipantSet(BTreeSet<ParticipantName>);

impl ParticipantSet {
    /// The names in order.
    pub fn as_set(&self) -> &BTreeSet<ParticipantName> {
        &self.0
    }
}

impl TryFrom<Vec<ParticipantName>> for ParticipantSet {
    type Error = ValueError;
    fn try_from(names: Vec<ParticipantName>) -> Result<Self, ValueError> {
        let set: BTreeSet<_> = names.into_iter().collect();
        if set.len() <= MAX_PARTICIPANTS { Ok(Self(set)) } else { Err(ValueError::Participants) }
    }
}

impl From<ParticipantSet> for Vec<ParticipantName> {
    fn from(set: ParticipantSet) -> Self {
        set.0.into_iter().collect()
    }
}

/// Free text of at most 256 bytes: an owner, a reason, an actor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShortText(String);

impl ShortText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ShortText {
    type Error = ValueError;
    fn try_from(text: String) -> Result<Self, ValueError> {
        if text.len() <= MAX_TEXT_BYTES { Ok(Self(text)) } else { Err(ValueError::Text) }
    }
}

impl From<ShortText> for String {
    fn from(text: ShortText) -> String {
        text.0
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Opaque bytes that travel with a transaction: standard, padded base64 on the wire. The 64 KiB bound is checked by
/// [`crate::decode_body`], since breaking it is its own answer (413), not a malformed field.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Payload(Bytes);

impl Payload {
    /// A payload of these bytes; the caller must keep to [`MAX_PAYLOAD_BYTES`].
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, shared rather than copied.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none. An empty payload is still a payload.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.len())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(|_| de::Error::custom("must be standard, padded base64"))?;
        Ok(Self(bytes.into()))
    }
}

/// An instant of wall time, in milliseconds since the Unix epoch; RFC 3339 UTC on the wire. Only ever shown to people:
/// nothing is decided by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WallTime(u64);

impl WallTime {
    /// The instant this many milliseconds after the Unix epoch; what lies after the year 9999 is shown as its end.
    pub const fn from_unix_millis(millis: u64) -> Self {
        const LAST: u64 = 253_402_300_799_999;
        Self(if millis > LAST { LAST } else { millis })
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_unix_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = SystemTime::UNIX_EPOCH + Duration::from_millis(self.0);
        humantime::format_rfc3339_millis(instant).fmt(f)
    }
}

// Text on the wire, a number on disk.
impl Serialize for WallTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return u64::deserialize(deserializer).map(Self::from_unix_millis);
        }
        let text = String::deserialize(deserializer)?;
        let instant = humantime::parse_rfc3339(&text).map_err(de::Error::custom)?;
        let since = instant.duration_since(SystemTime::UNIX_EPOCH).map_err(de::Error::custom)?;
        Ok(Self::from_unix_millis(u64::try_from(since.as_millis()).map_err(de::Error::custom)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_taken_up_to_their_bounds() {
        for (millis, taken) in [(0, false), (1, true), (604_800_000, true), (604_800_001, false)] {
            assert_eq!(TimeoutMs::try_from(millis).is_ok(), taken, "{millis}");
        }
    }

    #[test]
    fn labels_are_taken_up_to_their_bounds() {
        let many = |n: usize| (0..n).map(|i| (i.to_string(), String::new())).collect::<BTreeMap<_, _>>();
        let long = |k: usize, v: usize| BTreeMap::from([("k".repeat(k), "v".repeat(v))]);
        assert!(Labels::try_from(many(16)).is_ok());
        assert_eq!(Labels::try_from(many(17)), Err(ValueError::Labels));
        assert!(Labels::try_from(long(256, 256)).is_ok());
        assert_eq!(Labels::try_from(long(257, 0)), Err(ValueError::Labels));
        assert_eq!(Labels::try_from(long(0, 257)), Err(ValueError::Labels));
    }

    #[test]
    fn participants_are_a_set_of_at_most_a_hundred() {
        let name = |i: usize| format!("p{i}").parse::<ParticipantName>();
        let names = |n: usize| (0..n).filter_map(|i| name(i).ok()).collect::<Vec<_>>();
        assert!(ParticipantSet::try_from(names(100)).is_ok());
        assert_eq!(ParticipantSet::try_from(names(101)), Err(ValueError::Participants));
        let twice = [names(1), names(1)].concat();
        assert_eq!(ParticipantSet::try_from(twice).map(|s| s.as_set().len()), Ok(1));
    }

    #[test]
    fn texts_are_taken_up_to_their_bound() {
        assert!(ShortText::try_from("x".repeat(256)).is_ok());
        assert_eq!(ShortText::try_from("x".repeat(257)), Err(ValueError::Text));
    }

    #[test]
    fn a_payload_is_standard_padded_base64() {
        let payload = Payload::new(vec![0xfb, 0xff]);
        assert_eq!(serde_json::to_string(&payload).ok().as_deref(), Some("\"+/8=\""));
        assert_eq!(serde_json::from_str::<Payload>("\"+/8=\"").ok(), Some(payload));
        for wrong in ["\"-_8=\"", "\"+/8\"", "\"!\"", "5"] {
            assert!(serde_json::from_str::<Payload>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wall_time_is_shown_as_rfc_3339_utc() {
        let time = WallTime::from_unix_millis(1_517_363_399_650);
        assert_eq!(time.to_string(), "2018-01-31T01:49:59.650Z");
        assert_eq!(serde_json::from_str::<WallTime>("\"2018-01-31T01:49:59.650Z\"").ok(), Some(time));
        assert_eq!(WallTime::from_unix_millis(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }
}
