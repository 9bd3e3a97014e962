//! Reads a value from the bytes of a stored position.

use serde::{
    de::{
        self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, MapAccess, SeqAccess,
        VariantAccess, Visitor, value::BorrowedStrDeserializer,
    },
    forward_to_deserialize_any,
};

use super::tag::{self, CodecError};

/// How deep values may lie in each other.
const MAX_DEPTH: u32 = 100;

/// The value that all of the bytes are.
pub(super) fn whole<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let mut reader = Reader { bytes, depth: 0 };
    let value = T::deserialize(&mut reader)?;
    if reader.bytes.is_empty() { Ok(value) } else { Err(error("more bytes follow")) }
}

fn error(what: impl Into<String>) -> CodecError {
    CodecError(what.into())
}

struct Reader<'de> {
    bytes: &'de [u8],
    depth: u32,
}

impl<'de> Reader<'de> {
    fn peek(&self) -> Result<u8, CodecError> {
        self.bytes.first().copied().ok_or_else(|| error("it is cut off"))
    }

    fn byte(&mut self) -> Result<u8, CodecError> {
        let byte = self.peek()?;
        self.bytes = self.bytes.get(1..).unwrap_or_default();
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or_else(|| error("it is cut off"))?;
        self.bytes = rest;
        Ok(*array)
    }

    fn number(&mut self) -> Result<u64, CodecError> {
        let (mut number, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            // One spelling for each number: nothing is shifted out, and no byte is there for nothing.
            if shift > 63 || (part << shift) >> shift != part || (byte == 0 && shift > 0) {
                return Err(error("a number is out of range"));
            }
            number |= part << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
    }

    fn counted(&mut self) -> Result<&'de [u8], CodecError> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let (bytes, rest) = self.bytes.split_at_checked(length).ok_or_else(|| error("it is cut off"))?;
        self.bytes = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<&'de str, CodecError> {
        std::str::from_utf8(self.counted()?).map_err(CodecError::custom)
    }

    /// Reads what lies within another value.
    fn within<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, CodecError>) -> Result<T, CodecError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(error(format!("values lie in each other more than {MAX_DEPTH} deep")));
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Reads the elements of a sequence or map, which must be all.
    fn elements<T>(
        &mut self,
        read: impl FnOnce(&mut Elements<'_, 'de>) -> Result<T, CodecError>,
    ) -> Result<T, CodecError> {
        self.within(|reader| {
            let value = read(&mut Elements { reader })?;
            if reader.byte()? == tag::END { Ok(value) } else { Err(error("there are more elements than it has")) }
        })
    }
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = CodecError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.byte()? {
            tag::UNIT => visitor.visit_unit(),
            tag::FALSE => visitor.visit_bool(false),
            tag::TRUE => visitor.visit_bool(true),
            tag::UNSIGNED => visitor.visit_u64(self.number()?),
            tag::SIGNED => {
                let number = self.number()?;
                visitor.visit_i64((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
            }
            tag::U128 => visitor.visit_u128(u128::from_le_bytes(self.array()?)),
            tag::I128 => visitor.visit_i128(i128::from_le_bytes(self.array()?)),
            tag::F32 => visitor.visit_f32(f32::from_le_bytes(self.array()?)),
            tag::F64 => visitor.visit_f64(f64::from_le_bytes(self.array()?)),
            tag::CHAR => {
                let char = u32::try_from(self.number()?).ok().and_then(char::from_u32);
                visitor.visit_char(char.ok_or_else(|| error("a character is none"))?)
            }
            tag::TEXT => visitor.visit_borrowed_str(self.text()?),
            tag::BYTES => visitor.visit_borrowed_bytes(self.counted()?),
            tag::NONE => visitor.visit_none(),
            tag::SOME => self.within(|reader| visitor.visit_some(reader)),
            tag::SEQUENCE => self.elements(|elements| visitor.visit_seq(elements)),
            tag::MAP => self.elements(|elements| visitor.visit_map(elements)),
            other => Err(error(format!("tag {other} is unknown"))),
        }
    }

    /// A field that has become optional since it was stored is there.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.peek()? {
            tag::NONE | tag::SOME => self.deserialize_any(visitor),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, CodecError> {
        self.within(|reader| visitor.visit_newtype_struct(reader))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        match self.byte()? {
            tag::TEXT => visitor.visit_enum(BorrowedStrDeserializer::new(self.text()?)),
            tag::MAP => self.elements(|Elements { reader }| visitor.visit_enum(Variant { reader })),
            other => Err(error(format!("tag {other} is no enum"))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The elements of a sequence or map, up to its end.
struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
}

impl<'de> Elements<'_, 'de> {
    fn next<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, CodecError> {
        if self.reader.peek()? == tag::END { Ok(None) } else { seed.deserialize(&mut *self.reader).map(Some) }
    }
}

impl<'de> SeqAccess<'de> for &mut Elements<'_, 'de> {
    type Error = CodecError;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, CodecError> {
        self.next(seed)
    }
}

impl<'de> MapAccess<'de> for &mut Elements<'_, 'de> {
    type Error = CodecError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, CodecError> {
        self.next(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, CodecError> {
        self.next(seed)?.ok_or_else(|| error("a key has no value"))
    }
}

/// A variant that holds something.
struct Variant<'a, 'de> {
    reader: &'a mut Reader<'de>,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = CodecError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), CodecError> {
        let name = seed.deserialize(&mut *self.reader)?;
        Ok((name, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = CodecError;

    fn unit_variant(self) -> Result<(), CodecError> {
        de::Deserialize::deserialize(self.reader)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, CodecError> {
        seed.deserialize(self.reader)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.reader.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, CodecError> {
        self.reader.deserialize_any(visitor)
    }
}
