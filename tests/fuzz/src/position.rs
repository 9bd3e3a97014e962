//! Positions of sources as they are stored.

use std::collections::BTreeMap;

use ratified::job::{decode_position, encode_position};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Place {
    Start,
    At(i64),
    Between(f32, Option<Option<char>>),
    Named { key: String, wide: i128 },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Loose {
    Number(f64),
    Text(String),
    Flag(bool),
    List(Vec<Loose>),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    next: u64,
    #[serde(default)]
    unit: (),
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Position {
    places: BTreeMap<(u8, String), Place>,
    loose: Loose,
    #[serde(flatten)]
    inner: Inner,
}

/// A stored position, of a type that has everything.
pub fn position(data: &[u8]) {
    let Ok(read) = decode_position::<Position>(data) else { return };
    assert_eq!(data.first(), Some(&2), "a position of another version is taken");
    // What cannot be told apart is refused where it would be written.
    let Ok(again) = encode_position(&read) else { return };
    assert_eq!(decode_position::<Position>(&again), Ok(read));
}

/// A full one and an empty one.
pub fn position_seeds() -> Vec<Vec<u8>> {
    let places = [
        Place::Start,
        Place::At(-3),
        Place::Between(f32::NEG_INFINITY, Some(None)),
        Place::Named { key: "k".to_owned(), wide: i128::MIN },
    ];
    let places = (0..).zip(places).map(|(n, place)| ((n, n.to_string()), place)).collect();
    let loose = Loose::List(vec![Loose::Number(f64::INFINITY), Loose::Text("t".to_owned()), Loose::Flag(true)]);
    let full = Position { places, loose, inner: Inner { next: u64::MAX, unit: () } };
    let empty = Position { places: BTreeMap::new(), loose: Loose::Flag(false), inner: Inner { next: 0, unit: () } };
    [full, empty].iter().map(|position| encode_position(position).expect("it is exact")).collect()
}
