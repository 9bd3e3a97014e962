//! JSON without silent changes.

use std::fmt::Display;

use serde::{
    Serialize, Serializer,
    ser::{
        SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
        SerializeTupleVariant,
    },
};

use crate::error::Cause;

/// Appends a record as a line of JSON.
///
/// # Errors
/// What cannot be written: a NaN or an infinity among it, for which JSON has no word and which would become `null`. The record
/// must be rejected; what was appended of it must not be used.
pub fn json_line<T: Serialize + ?Sized>(record: &T, out: &mut Vec<u8>) -> Result<(), Cause> {
    serde_json::to_writer(&mut *out, &Finite { value: record, field: "" }).map_err(Cause::new)?;
    out.push(b'\n');
    Ok(())
}

/// A value, or a serializer, in the field of this name.
struct Finite<'f, T> {
    value: T,
    field: &'f str,
}

impl<T: Serialize + ?Sized> Serialize for Finite<'_, &T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Finite { value: serializer, field: self.field })
    }
}

fn refused<E: serde::ser::Error>(field: &str, value: f64) -> E {
    let place = if field.is_empty() { String::new() } else { format!(" in field {field}") };
    E::custom(format!("{value}{place} has no word in JSON: write it as a text, or as null of your own"))
}

macro_rules! plain {
    ($($method:ident($kind:ty)),* $(,)?) => {
        $(fn $method(self, value: $kind) -> Result<S::Ok, S::Error> { self.value.$method(value) })*
    };
}

impl<'f, S: Serializer> Serializer for Finite<'f, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Finite<'f, S::SerializeSeq>;
    type SerializeTuple = Finite<'f, S::SerializeTuple>;
    type SerializeTupleStruct = Finite<'f, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Finite<'f, S::SerializeTupleVariant>;
    type SerializeMap = Finite<'f, S::SerializeMap>;
    type SerializeStruct = Finite<'f, S::SerializeStruct>;
    type SerializeStructVariant = Finite<'f, S::SerializeStructVariant>;

    plain!(
        serialize_bool(bool),
        serialize_i8(i8),
        serialize_i16(i16),
        serialize_i32(i32),
        serialize_i64(i64),
        serialize_i128(i128),
        serialize_u8(u8),
        serialize_u16(u16),
        serialize_u32(u32),
        serialize_u64(u64),
        serialize_u128(u128),
        serialize_char(char),
        serialize_str(&str),
        serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str),
    );

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.value.serialize_f32(value) } else { Err(refused(self.field, value.into())) }
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.value.serialize_f64(value) } else { Err(refused(self.field, value)) }
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.value.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.value.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.value.serialize_some(&Finite { value, field: self.field })
    }

    fn serialize_unit_variant(self, name: &'static str, index: u32, variant: &'static str) -> Result<S::Ok, S::Error> {
        self.value.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, name: &'static str, value: &T) -> Result<S::Ok, S::Error> {
        self.value.serialize_newtype_struct(name, &Finite { value, field: self.field })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.value.serialize_newtype_variant(name, index, variant, &Finite { value, field: variant })
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Ok(Finite { value: self.value.serialize_seq(len)?, field: self.field })
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        Ok(Finite { value: self.value.serialize_tuple(len)?, field: self.field })
    }

    fn serialize_tuple_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeTupleStruct, S::Error> {
        Ok(Finite { value: self.value.serialize_tuple_struct(name, len)?, field: self.field })
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        Ok(Finite { value: self.value.serialize_tuple_variant(name, index, variant, len)?, field: variant })
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Ok(Finite { value: self.value.serialize_map(len)?, field: self.field })
    }

    fn serialize_struct(self, name: &'static str, len: usize) -> Result<Self::SerializeStruct, S::Error> {
        Ok(Finite { value: self.value.serialize_struct(name, len)?, field: self.field })
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        Ok(Finite { value: self.value.serialize_struct_variant(name, index, variant, len)?, field: self.field })
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.value.collect_str(value)
    }
}

macro_rules! elements {
    ($($kind:ident::$method:ident),* $(,)?) => {
        $(impl<C: $kind> $kind for Finite<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
                self.value.$method(&Finite { value, field: self.field })
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.value.end()
            }
        })*
    };
}

elements!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
);

macro_rules! fields {
    ($($kind:ident),*) => {
        $(impl<C: $kind> $kind for Finite<'_, C> {
            type Ok = C::Ok;
            type Error = C::Error;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), C::Error> {
                self.value.serialize_field(key, &Finite { value, field: key })
            }

            fn skip_field(&mut self, key: &'static str) -> Result<(), C::Error> {
                self.value.skip_field(key)
            }

            fn end(self) -> Result<C::Ok, C::Error> {
                self.value.end()
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl<C: SerializeMap> SerializeMap for Finite<'_, C> {
    type Ok = C::Ok;
    type Error = C::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), C::Error> {
        self.value.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), C::Error> {
        self.value.serialize_value(&Finite { value, field: self.field })
    }

    fn end(self) -> Result<C::Ok, C::Error> {
        self.value.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::value::to_raw_value;

    use super::*;

    #[derive(Serialize)]
    struct Inner<T>(T);

    #[derive(Serialize)]
    enum Kind<T> {
        Unit,
        One(T),
        Two(T, T),
        Named { value: T },
    }

    #[derive(Serialize)]
    struct Reading<T: Serialize> {
        id: u64,
        measured: T,
    }

    fn line<T: Serialize>(measured: T) -> Result<String, String> {
        let mut out = Vec::new();
        json_line(&Reading { id: 7, measured }, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn what_is_finite_is_written_as_serde_json_does() {
        let map: BTreeMap<&str, Option<f64>> = [("a", Some(1.5)), ("b", None)].into();
        let all = (
            (1.5_f32, -0.0_f64, 'c', "t\u{1}", true, u128::MAX),
            [Kind::Unit, Kind::One(1.0), Kind::Two(1.0, 2.0), Kind::Named { value: 3.0 }],
            (map, Inner(Some(2.5)), (), to_raw_value(&1.25).unwrap()),
        );
        let plain = serde_json::to_string(&Reading { id: 7, measured: &all }).unwrap();
        assert_eq!(line(&all).unwrap(), format!("{plain}\n"));
    }

    #[test]
    fn what_json_has_no_word_for_is_refused_with_its_field_wherever_it_is() {
        const NAN: f64 = f64::NAN;
        let told = |value: &str, field: &str| {
            Err(format!("{value} in field {field} has no word in JSON: write it as a text, or as null of your own"))
        };
        assert_eq!(line(NAN), told("NaN", "measured"));
        assert_eq!(line(f64::INFINITY), told("inf", "measured"));
        assert_eq!(line(f32::NEG_INFINITY), told("-inf", "measured"));
        assert_eq!(line(vec![Some(1.0), Some(NAN)]), told("NaN", "measured"));
        assert_eq!(line((1, Inner(NAN))), told("NaN", "measured"));
        assert_eq!(line(BTreeMap::from([("a", NAN)])), told("NaN", "measured"));
        assert_eq!(line(Kind::One(NAN)), told("NaN", "One"));
        assert_eq!(line(Kind::Two(1.0, NAN)), told("NaN", "Two"));
        assert_eq!(line(Kind::Named { value: NAN }), told("NaN", "value"));
        let bare = json_line(&NAN, &mut Vec::new()).unwrap_err().to_string();
        assert_eq!(bare, "NaN has no word in JSON: write it as a text, or as null of your own");
    }
}
