use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, HashMap},
    num::NonZeroU8,
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::*;

fn survives<P: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(position: P) {
    let bytes = encode_position(&position).unwrap();
    assert_eq!(decode_position::<P>(&bytes).unwrap(), position);
    for length in 0..bytes.len() {
        assert!(decode_position::<P>(&bytes[..length]).is_err(), "{length} bytes of {position:?}");
    }
    assert!(decode_position::<P>(&[&bytes[..], &[0]].concat()).is_err(), "{position:?}");
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Watermarked {
    next: u64,
    watermark: f64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Kind {
    Start,
    At(u64),
    Between(i8, String),
    Named {
        key: Option<Option<char>>,
        #[serde(default)]
        later: u8,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Number(f64),
    Text(String),
    Both { at: u64, of: Vec<Option<Option<u8>>> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Tagged {
    Empty,
    Full { limit: f64, after: Option<Option<u64>> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Flat {
    partition: u32,
    #[serde(flatten)]
    rest: Watermarked,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Unit;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Newtype<T>(T);

#[test]
fn what_people_have_for_positions_is_read_back_as_it_was() {
    survives(Watermarked { next: 3, watermark: f64::NEG_INFINITY });
    survives((f64::MIN_POSITIVE, f64::MAX, 5e-324, -0.0_f64, f32::INFINITY, 0.1_f32));
    survives((u64::MAX, i64::MIN, i64::MAX, u128::MAX, i128::MIN, (1_u64 << 53) + 1));
    survives([None, Some(None), Some(Some(None)), Some(Some(Some(1_u8)))]);
    survives((None::<()>, Some(()), Some(Unit), Newtype(Some(Newtype(None::<u8>)))));
    survives(BTreeMap::from(
        [((1_u8, Kind::Start), "a"), ((1, Kind::At(7)), "")].map(|(key, text)| (key, text.to_owned())),
    ));
    survives((0..100_u64).map(|n| ([n, n + 1], n)).collect::<HashMap<_, _>>());
    survives(Kind::Between(-1, "\0\"\u{feff}\u{10ffff}".to_owned()));
    survives([Some(Some('\0')), Some(None), None].map(|key| Kind::Named { key, later: 1 }));
    survives([Untagged::Number(f64::INFINITY), Untagged::Text(String::new())]);
    survives(Untagged::Both { at: u64::MAX, of: vec![None, Some(None), Some(Some(1))] });
    survives([Tagged::Empty, Tagged::Full { limit: f64::NEG_INFINITY, after: Some(None) }]);
    survives(Flat { partition: 1, rest: Watermarked { next: u64::MAX, watermark: f64::INFINITY }, key: None });
    survives(Cow::<'static, str>::Owned("a\\b".to_owned()));
    survives((SystemTime::UNIX_EPOCH + Duration::new(7, 9), Duration::MAX, NonZeroU8::MIN, uuid::Uuid::max()));
    survives(());
    survives(Some("x".repeat(60_000)));
}

proptest! {
    #[test]
    fn any_number_and_text_is_read_back(
        bits in any::<u64>(), signed in any::<i64>(), wide in any::<i128>(), text in any::<String>(), bytes in any::<Vec<u8>>()
    ) {
        let float = f64::from_bits(bits);
        if !float.is_nan() {
            survives((float, f32::from_bits(0x7f80_0000)));
        }
        survives((bits, signed, wide, text, bytes));
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Skips {
    at: u64,
    #[serde(skip)]
    of: String,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Ambiguous {
    Unsigned(u64),
    Signed(i64),
}

/// Counts in a floating-point number what does not fit one.
#[derive(Debug, PartialEq)]
struct ThroughFloat(u64);

impl Serialize for ThroughFloat {
    #[expect(clippy::cast_precision_loss, reason = "that is what is tried")]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0 as f64)
    }
}

impl<'de> Deserialize<'de> for ThroughFloat {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "that is what is tried")]
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(|float| Self(float as u64))
    }
}

fn refusal<P: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(position: &P) -> String {
    encode_position(position).unwrap_err().to_string()
}

#[test]
fn what_does_not_survive_is_told_with_what_would_have_come_back() {
    assert_eq!(
        refusal(&Skips { at: 3, of: "orders".to_owned() }),
        "the position Skips { at: 3, of: \"orders\" } would be read by a restarted job as Skips { at: 3, of: \"\" }, which \
         is not the same"
    );
    assert_eq!(
        refusal(&Watermarked { next: 1, watermark: f64::NAN }),
        "the position Watermarked { next: 1, watermark: NaN } would be read by a restarted job as Watermarked { next: 1, \
         watermark: NaN }, which is not the same"
    );
    assert!(refusal(&Ambiguous::Signed(5)).contains("Signed(5) would be read by a restarted job as Unsigned(5)"));
    assert!(refusal(&ThroughFloat((1 << 53) + 1)).contains("ThroughFloat(9007199254740993) would be read"));
    assert!(encode_position(&ThroughFloat(1 << 53)).is_ok());
}

/// Written as a number, read as a text.
#[derive(Debug, PartialEq, Deserialize)]
struct OneWay(String);

impl Serialize for OneWay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(7)
    }
}

#[derive(Debug, PartialEq, Deserialize)]
struct Unwritable(Cell<u8>);

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it is being read"))
    }
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nested(Option<Box<Nested>>);

#[test]
fn what_cannot_be_written_or_read_is_told_before_it_is_stored() {
    let refused = refusal(&OneWay("x".repeat(2000)));
    assert!(
        refused.contains("xx... could not be read again by a restarted job: invalid type: integer `7`"),
        "{refused}"
    );
    assert!(refused.len() < 1200);
    assert_eq!(
        refusal(&Unwritable(Cell::new(1))),
        "the position Unwritable(Cell { value: 1 }) cannot be stored: it is being read"
    );
    let nested = |depth: u32| (0..depth).fold(Nested(None), |inner, _| Nested(Some(Box::new(inner))));
    assert!(encode_position(&nested(49)).is_ok());
    assert!(refusal(&nested(50)).ends_with("values lie in each other more than 100 deep"));
}

#[test]
fn a_position_is_a_version_and_a_value() {
    let bytes = encode_position(&Kind::Named { key: Some(None), later: 200 }).unwrap();
    assert_eq!(bytes, b"\x02\x0f\x0a\x05Named\x0f\x0a\x03key\x0d\x0c\x0a\x05later\x03\xc8\x01\x10\x10");
    assert_eq!(
        encode_position(&(-1_i8, Kind::Start, 1.0_f32)).unwrap(),
        b"\x02\x0e\x04\x01\x0a\x05Start\x07\0\0\x80\x3f\x10"
    );
}

#[test]
fn positions_may_gain_fields_and_fields_may_become_optional() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Older {
        next: u64,
        unused: Vec<Kind>,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Newer {
        next: Option<u64>,
        #[serde(default)]
        of: String,
    }
    let bytes = encode_position(&Older { next: 7, unused: vec![Kind::At(1), Kind::Start] }).unwrap();
    assert_eq!(decode_position::<Newer>(&bytes), Ok(Newer { next: Some(7), of: String::new() }));
}

#[test]
fn what_was_stored_by_another_version_is_refused() {
    for (bytes, why) in [
        (&b"\x01[3]"[..], "version 1 is unknown"),
        (b"", "it is empty"),
        (b"\x02", "it is cut off"),
        (b"\x02\x11", "tag 17 is unknown"),
        (b"\x02\x0e\x03\x07\x10\x00", "more bytes follow"),
        (b"\x02\x0e\x03\x80\x00\x10", "a number is out of range"),
        (b"\x02\x0e\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x10", "a number is out of range"),
        (b"\x02\x0e\x0a\x01a\x10", "invalid type: string \"a\", expected u8"),
    ] {
        let refused = decode_position::<Vec<u8>>(bytes).unwrap_err().to_string();
        assert_eq!(refused, format!("the stored position cannot be read by this version of the job: {why}"));
    }
}
