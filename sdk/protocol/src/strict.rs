//! JSON whose objects name each member once. serde's own value takes the last of two: an item that says `abort` and then
//! `commit` would be a commit.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};

/// Reads values, and refuses an object that names a member twice.
pub(crate) fn values<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Vec::<Strict>::deserialize(deserializer)?.into_iter().map(|Strict(value)| value).collect())
}

/// Texts by name.
#[derive(Debug)]
pub(crate) struct Texts(pub(crate) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(TextsVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Texts, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((name, text)) = members.next_entry::<String, String>()? {
            if texts.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            texts.insert(name, text);
        }
        Ok(Texts(texts))
    }
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("duplicate field `{name}`")));
            }
            let Strict(value) = members.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use crate::{BatchRequest, BeginRequest, Code, decode_body};

    #[test]
    fn a_label_named_twice_is_refused() {
        let refused = decode_body::<BeginRequest>(br#"{"labels":{"a":"1","b":"2","a":"1"}}"#).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        assert!(
            refused.detail.starts_with("labels") && refused.detail.contains("duplicate field `a`"),
            "{}",
            refused.detail
        );
    }

    #[test]
    fn a_member_named_twice_is_refused_wherever_it_is() {
        for (item, name) in [
            (r#"{"op":"abort","op":"commit"}"#, "op"),
            (r#"{"op":"begin","labels":{"a":"1","a":"2"}}"#, "a"),
            (r#"[{"x":1,"x":1}]"#, "x"),
        ] {
            let body = format!(r#"{{"operations":[{item}]}}"#);
            let refused = decode_body::<BatchRequest>(body.as_bytes()).unwrap_err();
            assert_eq!(refused.code, Code::InvalidArgument);
            assert!(refused.detail.contains(&format!("duplicate field `{name}`")), "{}", refused.detail);
        }
    }

    #[test]
    fn every_kind_of_value_is_kept_as_it_came() {
        let items = r#"[null,true,7,-7,0.5,"x",[],{"a":{"b":[1]}}]"#;
        let body = format!(r#"{{"operations":{items}}}"#);
        let taken = decode_body::<BatchRequest>(body.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&taken.operations).unwrap(), items);
    }
}
