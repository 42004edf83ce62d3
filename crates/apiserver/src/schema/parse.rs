//! From text to a JSON value, with the keys that stand twice.
//!
//! `serde_json::Value` keeps the last of two equal keys and says nothing; Kubernetes wants to tell the user. So we read
//! with a visitor of our own, which carries the path it is at. Nesting is bounded by the readers (128 levels in JSON).

use std::cell::RefCell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::path::Path;

/// JSON or YAML text that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// At most this many duplicate keys are reported; a body made of nothing else would fill the answer.
const DUPLICATES_MAX: usize = 64;
/// Deepest nesting of a YAML document. JSON's reader has a bound of 128 built in.
const YAML_LEVELS_MAX: usize = 128;

/// Reads JSON. Also returns the paths of keys that stand twice in one object (the last one counts), such as `spec.host`.
pub fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    let document: Document = serde_json::from_slice(bytes).map_err(|error| ParseError(error.to_string()))?;
    Ok((document.value, document.duplicates))
}

/// Reads one YAML document (or JSON); as [`parse_json`].
pub fn parse_yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ParseError("the document is not UTF-8".to_owned()))?;
    // Booleans as in YAML 1.1, which kube-apiserver reads: `y`, `yes` and `on` are true.
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        strict_booleans: false,
    };
    let document: Document =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| ParseError(error.to_string()))?;
    Ok((document.value, document.duplicates))
}

/// A whole document, as the readers fill it.
struct Document {
    value: Value,
    duplicates: Vec<String>,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let duplicates = RefCell::new(Vec::new());
        let value = Place { path: &Path::Root, level: 0, duplicates: &duplicates }.deserialize(deserializer)?;
        Ok(Document { value, duplicates: duplicates.into_inner() })
    }
}

#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a Path<'a>,
    level: usize,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // `5.0` is the integer 5 to Kubernetes; written back as `5.0` it would break clients in Go. Above 2^53 a float is
        // no exact integer any more.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= EXACT_MAX {
            return Ok(Value::from(value as i64));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let level = deeper::<A::Error>(self.level)?;
        let mut items = Vec::new();
        loop {
            let path = Path::Item(self.path, items.len());
            match sequence.next_element_seed(Place { path: &path, level, ..self })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let level = deeper::<A::Error>(self.level)?;
        let mut object = Map::new();
        while let Some(Key(key)) = entries.next_key()? {
            let path = Path::Field(self.path, &key);
            let value = entries.next_value_seed(Place { path: &path, level, ..self })?;
            if object.contains_key(&key) && self.duplicates.borrow().len() < DUPLICATES_MAX {
                let duplicate = path.to_string();
                if !self.duplicates.borrow().contains(&duplicate) {
                    self.duplicates.borrow_mut().push(duplicate);
                }
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// A key as text. In YAML it can be a boolean or a number, which kube-apiserver writes as JSON does: the key `on` is `true`.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let duplicates = RefCell::new(Vec::new());
        let key = Place { path: &Path::Root, level: YAML_LEVELS_MAX, duplicates: &duplicates };
        match key.deserialize(deserializer)? {
            Value::String(text) => Ok(Key(text)),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(D::Error::custom("a key must be text")),
            scalar => Ok(Key(scalar.to_string())),
        }
    }
}

fn deeper<E: Error>(level: usize) -> Result<usize, E> {
    if level >= YAML_LEVELS_MAX {
        return Err(E::custom(format!("nested deeper than {YAML_LEVELS_MAX} levels")));
    }
    Ok(level + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_is_read_with_its_duplicate_keys() {
        for (text, value, duplicates) in [
            (r#"{"a":1}"#, json!({"a": 1}), vec![]),
            (r#"{"a":1,"a":2}"#, json!({"a": 2}), vec!["a"]),
            (r#"{"a":1,"a":2,"a":3}"#, json!({"a": 3}), vec!["a"]),
            (
                r#"{"spec":{"to":[{"x":1},{"name":"n","name":"m"}]}}"#,
                json!({"spec": {"to": [{"x": 1}, {"name": "m"}]}}),
                vec!["spec.to[1].name"],
            ),
            (r#"{"a":{"b":1},"a":{"b":1,"b":2}}"#, json!({"a": {"b": 2}}), vec!["a.b", "a"]),
            (r#"[1.0,1.5,-3,18446744073709551615,null]"#, json!([1, 1.5, -3, u64::MAX, null]), vec![]),
        ] {
            let (found, twice) = parse_json(text.as_bytes()).expect(text);
            assert_eq!(found, value, "{text}");
            assert_eq!(twice, duplicates, "{text}");
        }
    }

    #[test]
    fn broken_text_is_an_error() {
        let deep = "[".repeat(100_000);
        let deep_yaml = "[".repeat(400) + &"]".repeat(400);
        for text in ["", "{", "{\"a\":}", "{\"a\":1} x", "\u{feff}{}", deep.as_str()] {
            assert!(parse_json(text.as_bytes()).is_err(), "{}", &text[..text.len().min(20)]);
        }
        for text in [deep_yaml.as_str(), "a: [", "a: 1\n b: 2\n"] {
            assert!(parse_yaml(text.as_bytes()).is_err(), "{}", &text[..text.len().min(20)]);
        }
    }

    #[test]
    fn yaml_is_read_with_its_duplicate_keys() {
        let (value, twice) = parse_yaml(b"a: 1\nspec:\n  host: x\n  host: yes\n  to: [one, 2]\n  no: null\n").unwrap();
        assert_eq!(value, json!({"a": 1, "spec": {"host": true, "to": ["one", 2], "false": null}}));
        assert_eq!(twice, ["spec.host"]);
    }

    #[test]
    fn yaml_has_the_booleans_of_version_1_1() {
        for (text, expected) in [
            (
                "[y, Y, yes, Yes, YES, on, On, ON, true, True]",
                json!([true, true, true, true, true, true, true, true, true, true]),
            ),
            ("[n, N, no, off, Off, OFF, false]", json!([false, false, false, false, false, false, false])),
            ("['y', \"no\", yess, o, 'on']", json!(["y", "no", "yess", "o", "on"])),
            ("{on: 1, 'on': 2, 7: x}", json!({"true": 1, "on": 2, "7": "x"})),
        ] {
            assert_eq!(parse_yaml(text.as_bytes()).unwrap().0, expected, "{text}");
        }
        assert!(parse_yaml(b"{[a]: 1}").is_err());
    }
}
