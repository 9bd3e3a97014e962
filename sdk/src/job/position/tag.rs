//! What stands before each value of a stored position.

use std::fmt;

use serde::{de, ser};
use thiserror::Error;

pub(super) const UNIT: u8 = 0;
pub(super) const FALSE: u8 = 1;
pub(super) const TRUE: u8 = 2;
/// `u64`, seven bits a byte, the lowest first.
pub(super) const UNSIGNED: u8 = 3;
/// `i64`, its sign in the lowest bit, then as `UNSIGNED`.
pub(super) const SIGNED: u8 = 4;
pub(super) const U128: u8 = 5;
pub(super) const I128: u8 = 6;
pub(super) const F32: u8 = 7;
pub(super) const F64: u8 = 8;
pub(super) const CHAR: u8 = 9;
pub(super) const TEXT: u8 = 10;
pub(super) const BYTES: u8 = 11;
pub(super) const NONE: u8 = 12;
pub(super) const SOME: u8 = 13;
pub(super) const SEQUENCE: u8 = 14;
/// Keys and values by turns. A struct is a map by the names of its fields; an enum the name of its variant, or a map of
/// that to what the variant holds.
pub(super) const MAP: u8 = 15;
/// Behind the last element of a sequence or map.
pub(super) const END: u8 = 16;

/// What is wrong with a value or its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub(super) struct CodecError(pub(super) String);

impl ser::Error for CodecError {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string())
    }
}

impl de::Error for CodecError {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self(what.to_string())
    }
}
