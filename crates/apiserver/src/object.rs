//! An object in the cache: its served JSON, and the few values that lists and watches need.
//!
//! The parsed JSON tree of a 1-KiB object takes more than 10 KiB, so no tree is kept. The cache keeps the serialization, which
//! most responses copy unchanged, and the values that selectors, the garbage collector, and preconditions read (`facts`). Objects
//! of a kind are similar, so objects at rest keep only the difference between their serialization and that of another object
//! ([`sample`]): a tenth of its length.
//!
//! In the store, an object is its JSON with `apiVersion`, `kind`, and `metadata` first, and without `metadata.resourceVersion`,
//! which is unknown before the commit. [`with_revision`] inserts it as the first member of the metadata, so that it is found
//! without parsing.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use self::facts::IndexedFields;
use self::sample::{Compressed, Dictionary};
use super::json_scan;
use super::kind::Kind;

pub(super) mod facts;
pub mod sample;

/// The text before the members of the metadata.
const METADATA: &[u8] = b"\"metadata\":{";
/// The text before the revision in served JSON.
const REVISION: &[u8] = b"\"resourceVersion\":\"";

/// One revision of an object.
pub struct Object {
    /// The revision that wrote it (for a deleted object: that deleted it).
    pub revision: u64,
    /// The range of the value of `metadata` in the JSON, including braces.
    metadata: (u32, u32),
    text: RwLock<Text>,
    facts: IndexedFields,
}

/// The JSON of an object as served, with `metadata.resourceVersion`.
enum Text {
    /// The uncompressed JSON, boxed: few objects have it at a time, and inline it would waste space in all others.
    Plain(Box<Bytes>),
    /// The compressed form of an object at rest.
    Compressed(Compressed),
}

/// One of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion` of the owner.
    pub api_version: Box<str>,
    /// Kind of the owner.
    pub kind: Box<str>,
    /// Name of the owner.
    pub name: Box<str>,
    /// Uid of the owner.
    pub uid: Box<str>,
    /// Whether a foreground deletion of the owner waits for the dependent.
    pub blocks: bool,
}

/// The value under a key is not an object in the format of this server.
#[derive(Debug, thiserror::Error)]
#[error("the value of {key} is not an object: {why}")]
pub struct NotAnObject {
    key: String,
    why: String,
}

impl Object {
    /// Returns the object whose stored value is `value`; `kind` is the stored kind (no view).
    pub fn from_stored(kind: &Kind, key: &str, value: &[u8], revision: u64) -> Result<Object, NotAnObject> {
        let not = |why: &str| NotAnObject { key: format!("{}{key}", kind.key_prefix), why: why.to_owned() };
        let json = with_revision(value, revision).ok_or_else(|| not("it has no metadata in front"))?;
        let metadata = metadata_range(&json).ok_or_else(|| not("its metadata do not end"))?;
        let found = kind.selectable_fields.facts().find(&json).ok_or_else(|| not("its JSON does not end"))?;
        let facts = IndexedFields::of(key, &found);
        Ok(Object { revision, metadata, text: RwLock::new(Text::Plain(Box::new(json))), facts })
    }

    #[cfg(test)]
    pub(super) fn for_selector_tests(labels: &[(&str, &str)]) -> Object {
        let kind = &*super::registry::namespace::NAMESPACE;
        let labels: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        let object = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": labels}});
        Object::from_stored(kind, "x", &encode(&object), 1).expect("encoded")
    }

    /// Returns the object's key after the kind's prefix: `namespace/name` or `name`.
    pub fn key(&self) -> &str {
        &self.facts.key
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.key().rsplit('/').next().unwrap_or_default()
    }

    /// `metadata.namespace`, of an object that has one.
    pub fn namespace(&self) -> Option<&str> {
        self.key().split_once('/').map(|(namespace, _)| namespace)
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        &self.facts.uid
    }

    /// Returns whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(&self) -> bool {
        self.facts.deleting
    }

    /// `metadata.labels`, each with its value.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.facts.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Returns the value of the kind's selectable field at `place`.
    pub fn field(&self, place: usize) -> Option<&str> {
        self.facts.fields.get(place).map(|field| &**field)
    }

    /// Returns the owners of the object.
    pub fn owners(&self) -> &[Owner] {
        &self.facts.owners
    }

    /// Returns the JSON as served, with `metadata.resourceVersion`.
    pub fn json(&self) -> Bytes {
        match &*self.text.read() {
            Text::Plain(json) => json.as_ref().clone(),
            Text::Compressed(packed) => packed.unpack(),
        }
    }

    /// Returns the length of its JSON as served.
    pub fn json_len(&self) -> usize {
        match &*self.text.read() {
            Text::Plain(json) => json.len(),
            Text::Compressed(packed) => packed.len(),
        }
    }

    /// Returns the length of its JSON as stored, without `metadata.resourceVersion`.
    pub fn stored_len(&self) -> usize {
        let version = REVISION.len() + decimal_len(self.revision) + "\",".len();
        self.json_len().saturating_sub(version)
    }

    /// Appends its JSON as served.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        match &*self.text.read() {
            Text::Plain(json) => out.extend_from_slice(json),
            Text::Compressed(packed) => packed.unpack_to(out),
        }
    }

    /// Returns the range of the value of `metadata` in the JSON, including braces.
    pub fn metadata(&self) -> Range<usize> {
        self.metadata.0 as usize..self.metadata.1 as usize
    }

    /// Compresses its JSON relative to `sample`, unless that is done already: for an object at rest.
    pub fn pack(&self, sample: &Arc<Dictionary>) {
        let json = self.json();
        let mut text = self.text.write();
        if matches!(*text, Text::Plain(_)) {
            *text = Text::Compressed(Compressed::new(&json, sample));
        }
    }

    /// Returns whether its JSON is kept packed.
    #[cfg(test)]
    pub fn is_packed(&self) -> bool {
        matches!(*self.text.read(), Text::Compressed(_))
    }

    /// Returns the whole object.
    pub fn tree(&self) -> Value {
        serde_json::from_slice(&self.json()).unwrap_or_default()
    }

    /// Returns the object without `metadata.managedFields`, which only writes read and which are more than half of it.
    pub fn tree_without_managed_fields(&self) -> Value {
        parse(&self.json()).unwrap_or_default()
    }

    /// Returns the same content without `metadata.resourceVersion`, as a dry run shows it.
    pub fn unwritten(&self) -> Object {
        let json = self.json();
        let start = self.metadata.0 as usize + 1;
        let mut end = start + REVISION.len() + decimal_len(self.revision) + 1;
        end += usize::from(json.get(end) == Some(&b','));
        self.with_json([&json[..start], &json[end..]].concat(), 0)
    }

    /// Returns the same content at another revision, for a watch whose selector the object has left.
    pub fn at(&self, revision: u64) -> Object {
        let json = self.json();
        let start = self.metadata.0 as usize + 1 + REVISION.len();
        let end = start + decimal_len(self.revision);
        let number = revision.to_string();
        self.with_json([&json[..start], number.as_bytes(), &json[end..]].concat(), revision)
    }

    fn with_json(&self, json: Vec<u8>, revision: u64) -> Object {
        Object {
            revision,
            metadata: metadata_range(&json).unwrap_or(self.metadata),
            text: RwLock::new(Text::Plain(Box::new(json.into()))),
            facts: self.facts.clone(),
        }
    }
}

/// Returns the stored form of an object: `apiVersion`, `kind`, `metadata` without `resourceVersion`, then the rest.
pub fn encode(object: &Value) -> Vec<u8> {
    let empty = Map::new();
    let object = object.as_object().unwrap_or(&empty);
    let mut out = Vec::with_capacity(2048);
    for (before, key) in [("{\"apiVersion\":", "apiVersion"), (",\"kind\":", "kind")] {
        out.extend_from_slice(before.as_bytes());
        match object.get(key) {
            Some(value) => write_json(&mut out, value),
            None => write_json(&mut out, ""),
        }
    }
    out.push(b',');
    out.extend_from_slice(METADATA);
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    members(&mut out, metadata.iter().filter(|(key, _)| !matches!(key.as_str(), "resourceVersion" | "selfLink")));
    out.push(b'}');
    let mut rest =
        object.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata")).peekable();
    if rest.peek().is_some() {
        out.push(b',');
    }
    members(&mut out, rest);
    out.push(b'}');
    out
}

/// Returns the same in as many octets as it has, as the store takes it.
pub fn stored(object: &Value) -> Bytes {
    encode(object).into_boxed_slice().into()
}

fn members<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (index, (key, value)) in members.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_json(out, key);
        out.push(b':');
        write_json(out, value);
    }
}

fn write_json(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("strings and JSON trees serialize, and a Vec takes all");
}

/// Returns the served form of a stored value: with its revision. `None` if [`encode`] did not create it.
pub fn with_revision(stored: &[u8], revision: u64) -> Option<Bytes> {
    let at = metadata_start(stored)? + 1;
    let revision = revision.to_string();
    let mut json = Vec::with_capacity(stored.len() + REVISION.len() + revision.len() + 2);
    json.extend_from_slice(&stored[..at]);
    json.extend_from_slice(REVISION);
    json.extend_from_slice(revision.as_bytes());
    json.push(b'"');
    if stored.get(at) != Some(&b'}') {
        json.push(b',');
    }
    json.extend_from_slice(&stored[at..]);
    Some(json.into_boxed_slice().into())
}

/// Returns the position of the metadata's opening brace. Only `apiVersion` and `kind` precede it. Inside a string, the quotes of
/// the pattern would be escaped, so the first match is correct.
fn metadata_start(json: &[u8]) -> Option<usize> {
    json.windows(METADATA.len()).position(|window| window == METADATA).map(|at| at + METADATA.len() - 1)
}

fn metadata_range(json: &[u8]) -> Option<(u32, u32)> {
    let start = metadata_start(json)?;
    let end = json_scan::end_of_value(json, start)?;
    Some((u32::try_from(start).ok()?, u32::try_from(end).ok()?))
}

fn decimal_len(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Parses an object, leaving `metadata.managedFields` out.
fn parse(json: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Level::Object.deserialize(&mut deserializer)
}

#[derive(Clone, Copy)]
enum Level {
    Object,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Level {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Level {
    type Value = Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let value = match (self, key.as_str()) {
                (Level::Object, "metadata") => access.next_value_seed(Level::Metadata)?,
                (Level::Metadata, "managedFields") => {
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => access.next_value()?,
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn revisions_are_put_in_and_replaced() {
        let object = json!({
            "kind": "Event", "apiVersion": "v1", "message": "\"metadata\":{}", "action": "x",
            "metadata": {"name": "a", "resourceVersion": "7", "annotations": {"x": "}\"{"}},
        });
        let stored = encode(&object);
        let text = String::from_utf8(stored.clone()).expect("JSON");
        assert!(text.starts_with(r#"{"apiVersion":"v1","kind":"Event","metadata":{"annotations""#), "{text}");
        let served = with_revision(&stored, 99).expect("encoded");
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = json!("99");
        assert_eq!(serde_json::from_slice::<Value>(&served).expect("JSON"), expected);
        let (start, end) = metadata_range(&served).expect("encoded");
        let metadata: Value = serde_json::from_slice(&served[start as usize..end as usize]).expect("JSON");
        assert_eq!(metadata, expected["metadata"]);
        let kind = &*super::super::registry::event::EVENT;
        let object = Object::from_stored(kind, "n/a", &stored, 99).expect("encoded");
        assert_eq!((object.stored_len(), object.json_len()), (stored.len(), served.len()));
    }

    #[test]
    fn empty_metadata_take_a_revision() {
        let served = with_revision(&encode(&json!({"metadata": {}})), 1).expect("encoded");
        assert_eq!(
            serde_json::from_slice::<Value>(&served).expect("JSON"),
            json!({"apiVersion": "", "kind": "", "metadata": {"resourceVersion": "1"}})
        );
    }
}
