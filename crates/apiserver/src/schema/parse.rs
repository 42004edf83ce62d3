//! Parses text into a JSON value, and reports duplicate keys.
//!
//! `serde_json::Value` silently keeps the last of two equal keys, but Kubernetes warns the user. This parser therefore has its
//! own visitor, which tracks the current path. The readers limit nesting (128 levels in JSON).

use std::cell::RefCell;
use std::fmt;
use std::vec;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::path::Path;

/// The error of invalid JSON or YAML text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// The maximum number of reported duplicate keys; a hostile body could otherwise fill the response.
const DUPLICATES_MAX: usize = 64;
/// The maximum depth of a YAML document. JSON's reader has a built-in limit of 128.
const YAML_LEVELS_MAX: usize = 128;

/// The booleans of YAML 1.1 as kube-apiserver parses them. The YAML reader ignores case, and also accepts `yEs`.
const YAML_BOOLEANS: [&str; 22] = [
    "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true", "True", "TRUE", "n", "N", "no", "No", "NO", "off", "Off",
    "OFF", "false", "False", "FALSE",
];

/// Parses JSON. Also returns the paths of duplicate keys (the last one counts), such as `spec.host`.
pub fn parse_json(bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    let notes = RefCell::<Notes>::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = ParsePosition { path: &Path::Root, level: 0, notes: &notes }.deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value)).map_err(|error| ParseError(error.to_string()))?;
    Ok((value, notes.into_inner().duplicates))
}

/// Parses one YAML document (or JSON), like [`parse_json`].
pub fn parse_yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    // Programs send JSON with the media type of YAML, and parsing it as JSON takes a fraction of the time.
    if let Ok(read @ (Value::Object(_), _)) = parse_json(bytes) {
        return Ok(read);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ParseError("the document is not UTF-8".to_owned()))?;
    let mut notes = RefCell::<Notes>::default();
    let is_other_spelling = |word: &str| is_boolean_in_any_case(word) && !YAML_BOOLEANS.contains(&word);
    if text.split(|letter: char| !letter.is_ascii_alphanumeric()).any(is_other_spelling) {
        // In YAML 1.2, which has fewer booleans, the reader returns the spelling of the others. If it fails, it fails below.
        let spellings = RefCell::new(Notes { booleans: Booleans::Collected(Vec::new()), ..Notes::default() });
        if read_yaml(text, true, &spellings).is_ok()
            && let Booleans::Collected(spellings) = spellings.into_inner().booleans
        {
            notes.get_mut().booleans = Booleans::Known(spellings.into_iter());
        }
    }
    let value = read_yaml(text, false, &notes)?;
    Ok((value, notes.into_inner().duplicates))
}

fn read_yaml(text: &str, strict_booleans: bool, notes: &RefCell<Notes>) -> Result<Value, ParseError> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::PassThrough,
        strict_booleans: strict_booleans,
    };
    let place = ParsePosition { path: &Path::Root, level: 0, notes };
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |reader| place.deserialize(reader))
        .map_err(|error| ParseError(error.to_string()))
}

fn is_boolean_in_any_case(text: &str) -> bool {
    YAML_BOOLEANS.iter().any(|boolean| boolean.eq_ignore_ascii_case(text))
}

/// The findings of a parser in addition to the value.
#[derive(Default)]
struct Notes {
    duplicates: Vec<String>,
    booleans: Booleans,
}

/// The spellings of all scalars, quoted or not, that are a boolean in any case, in their order.
#[derive(Default)]
enum Booleans {
    /// The findings are not needed.
    #[default]
    Ignored,
    /// The first pass.
    Collected(Vec<String>),
    /// The second pass; the first one collected these.
    Known(vec::IntoIter<String>),
}

#[derive(Clone, Copy)]
struct ParsePosition<'a> {
    path: &'a Path<'a>,
    level: usize,
    notes: &'a RefCell<Notes>,
}

impl<'de> DeserializeSeed<'de> for ParsePosition<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ParsePosition<'_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        match &mut self.notes.borrow_mut().booleans {
            Booleans::Ignored => {}
            Booleans::Collected(spellings) => spellings.push("true".to_owned()),
            Booleans::Known(spellings) => {
                let other = spellings.next().filter(|text| !YAML_BOOLEANS.contains(&text.as_str()));
                if let Some(text) = other {
                    return Ok(Value::String(text));
                }
            }
        }
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // `5.0` is the integer 5 in Kubernetes; written back as `5.0`, it would break clients in Go. Above 2^53, a float does not
        // represent an exact integer.
        const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= EXACT_MAX {
            return Ok(Value::from(value as i64));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        match &mut self.notes.borrow_mut().booleans {
            Booleans::Collected(spellings) if is_boolean_in_any_case(&value) => spellings.push(value.clone()),
            Booleans::Known(spellings) if is_boolean_in_any_case(&value) => drop(spellings.next()),
            _ => {}
        }
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
            match sequence.next_element_seed(ParsePosition { path: &path, level, ..self })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let level = deeper::<A::Error>(self.level)?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key_seed(Key(self.notes))? {
            let path = Path::Field(self.path, &key);
            let value = entries.next_value_seed(ParsePosition { path: &path, level, ..self })?;
            if object.contains_key(&key) && self.notes.borrow().duplicates.len() < DUPLICATES_MAX {
                let duplicate = path.to_string();
                let duplicates = &mut self.notes.borrow_mut().duplicates;
                if !duplicates.contains(&duplicate) {
                    duplicates.push(duplicate);
                }
            }
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// A key as text. In YAML it can be a boolean or a number, which kube-apiserver writes as JSON does: the key `on` is `true`.
struct Key<'a>(&'a RefCell<Notes>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        let key = ParsePosition { path: &Path::Root, level: YAML_LEVELS_MAX, notes: self.0 };
        match key.deserialize(deserializer)? {
            Value::String(text) => Ok(text),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(D::Error::custom("a key must be text")),
            scalar => Ok(scalar.to_string()),
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
            ("[y, Y, yes, Yes, YES, on, On, ON, true, True, TRUE]", Value::from(vec![true; 11])),
            ("[n, N, no, No, NO, off, Off, OFF, false, False, FALSE]", Value::from(vec![false; 11])),
            ("['y', \"no\", yess, o, 'on', !!str yes]", json!(["y", "no", "yess", "o", "on", "yes"])),
            ("{on: 1, 'on': 2, 7: x}", json!({"true": 1, "on": 2, "7": "x"})),
            // Any other case is text, in any context.
            (
                "[yEs, yeS, oN, nO, oFF, OFf, tRUE, FaLsE]",
                json!(["yEs", "yeS", "oN", "nO", "oFF", "OFf", "tRUE", "FaLsE"]),
            ),
            ("[yes, yEs, 'on', oN, \"nO\", true, off]", json!([true, "yEs", "on", "oN", "nO", true, false])),
            ("{yEs: on, on: yEs, a: {'oN': no}}", json!({"yEs": true, "true": "yEs", "a": {"oN": false}})),
            ("a: &a oN\nb: *a\nc: y # yEs\nd: |-\n  oN\n", json!({"a": "oN", "b": "oN", "c": true, "d": "oN"})),
        ] {
            assert_eq!(parse_yaml(text.as_bytes()).unwrap().0, expected, "{text}");
        }
        assert_eq!(parse_yaml(b"{oN: 1, oN: 2}").unwrap(), (json!({"oN": 2}), vec!["oN".to_owned()]));
        assert!(parse_yaml(b"{[a]: 1}").is_err());
    }
}
