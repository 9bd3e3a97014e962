//! Writes a value as the bytes of a stored position.

use serde::{
    Serialize,
    ser::{
        SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
        SerializeTupleVariant, Serializer,
    },
};

use super::tag::{self, CodecError};

type Written = Result<(), CodecError>;

/// Appends a value.
pub(super) fn append(out: &mut Vec<u8>, value: &impl Serialize) -> Written {
    value.serialize(Writer { out })
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn tagged(self, tag: u8, bytes: &[u8]) -> Written {
        self.out.push(tag);
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn number(&mut self, tag: u8, mut number: u64) {
        self.out.push(tag);
        while number > 0x7f {
            self.out.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.out.push(number.to_le_bytes()[0]);
    }

    fn counted(mut self, tag: u8, bytes: &[u8]) -> Written {
        self.number(tag, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

impl<'a> Writer<'a> {
    /// Begins a sequence or map; within the map of an enum's variant if it is one.
    fn begin(self, variant: Option<&'static str>, tag: u8) -> Result<Elements<'a>, CodecError> {
        if let Some(variant) = variant {
            self.out.push(tag::MAP);
            append(self.out, &variant)?;
        }
        self.out.push(tag);
        Ok(Elements { out: self.out, ends: if variant.is_some() { &[tag::END, tag::END] } else { &[tag::END] } })
    }
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = CodecError;
    type SerializeSeq = Elements<'a>;
    type SerializeTuple = Elements<'a>;
    type SerializeTupleStruct = Elements<'a>;
    type SerializeTupleVariant = Elements<'a>;
    type SerializeMap = Elements<'a>;
    type SerializeStruct = Elements<'a>;
    type SerializeStructVariant = Elements<'a>;

    fn serialize_bool(self, value: bool) -> Written {
        self.tagged(if value { tag::TRUE } else { tag::FALSE }, &[])
    }

    fn serialize_i8(self, value: i8) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Written {
        self.serialize_i64(value.into())
    }

    fn serialize_i64(mut self, value: i64) -> Written {
        self.number(tag::SIGNED, ((value << 1) ^ (value >> 63)).cast_unsigned());
        Ok(())
    }

    fn serialize_i128(self, value: i128) -> Written {
        self.tagged(tag::I128, &value.to_le_bytes())
    }

    fn serialize_u8(self, value: u8) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Written {
        self.serialize_u64(value.into())
    }

    fn serialize_u64(mut self, value: u64) -> Written {
        self.number(tag::UNSIGNED, value);
        Ok(())
    }

    fn serialize_u128(self, value: u128) -> Written {
        self.tagged(tag::U128, &value.to_le_bytes())
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.tagged(tag::F32, &value.to_le_bytes())
    }

    fn serialize_f64(self, value: f64) -> Written {
        self.tagged(tag::F64, &value.to_le_bytes())
    }

    fn serialize_char(mut self, value: char) -> Written {
        self.number(tag::CHAR, u32::from(value).into());
        Ok(())
    }

    fn serialize_str(self, value: &str) -> Written {
        self.counted(tag::TEXT, value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        self.counted(tag::BYTES, value)
    }

    fn serialize_none(self) -> Written {
        self.tagged(tag::NONE, &[])
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        self.out.push(tag::SOME);
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        self.tagged(tag::UNIT, &[])
    }

    fn serialize_unit_struct(self, _: &'static str) -> Written {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        let mut map = self.begin(None, tag::MAP)?;
        map.add(variant)?;
        map.add(value)?;
        map.finish()
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Elements<'a>, CodecError> {
        self.begin(None, tag::SEQUENCE)
    }

    fn serialize_tuple(self, _: usize) -> Result<Elements<'a>, CodecError> {
        self.begin(None, tag::SEQUENCE)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Elements<'a>, CodecError> {
        self.begin(None, tag::SEQUENCE)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Elements<'a>, CodecError> {
        self.begin(Some(variant), tag::SEQUENCE)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Elements<'a>, CodecError> {
        self.begin(None, tag::MAP)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Elements<'a>, CodecError> {
        self.begin(None, tag::MAP)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Elements<'a>, CodecError> {
        self.begin(Some(variant), tag::MAP)
    }
}

/// The elements of a sequence, or the keys and values of a map.
struct Elements<'a> {
    out: &'a mut Vec<u8>,
    ends: &'static [u8],
}

impl Elements<'_> {
    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        value.serialize(Writer { out: self.out })
    }

    fn finish(self) -> Written {
        self.out.extend_from_slice(self.ends);
        Ok(())
    }
}

macro_rules! sequence {
    ($($trait:ident :: $add:ident),*) => {$(
        impl $trait for Elements<'_> {
            type Ok = ();
            type Error = CodecError;

            fn $add<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
                self.add(value)
            }

            fn end(self) -> Written {
                self.finish()
            }
        }
    )*};
}

macro_rules! fields {
    ($($trait:ident),*) => {$(
        impl $trait for Elements<'_> {
            type Ok = ();
            type Error = CodecError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Written {
                self.add(name)?;
                self.add(value)
            }

            fn end(self) -> Written {
                self.finish()
            }
        }
    )*};
}

sequence!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);
fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for Elements<'_> {
    type Ok = ();
    type Error = CodecError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Written {
        self.add(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Written {
        self.add(value)
    }

    fn end(self) -> Written {
        self.finish()
    }
}
