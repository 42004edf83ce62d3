//! What is asked of an object at rest without looking at its JSON, in one piece of memory.
//!
//! ```text
//! fields(1) labels(2) owners(2) is a UUID(1)    how many there are of each, little-endian; and how the uid is kept
//! uid(16)                                       if it is a UUID, as all are that this server has given
//! key, uid, fields, labels' keys and values, owners' parts    each string behind its length; the uid if it is none
//! ```
//!
//! As strings of their own these dozen short texts took six times as much, most of it in the allocator's grain. A length is
//! one octet, or 255 and four more.

use std::borrow::Cow;

use super::Owner;
use crate::json_scan::{Json, Paths};

/// Where the uid or the strings begin.
const HEADER: usize = 6;
/// How many strings an owner is.
const OWNER_PARTS: usize = 5;
/// What the last of them is if the owner is blocked by its dependent.
const BLOCKS: &str = "1";

/// Where in the metadata facts lie; that the object is being deleted is told by the last, and kept apart.
const METADATA: [&str; 4] =
    ["metadata.uid", "metadata.labels", "metadata.ownerReferences", "metadata.deletionTimestamp"];

/// Where the facts lie of objects that can be selected by `fields`.
pub fn paths(fields: impl Iterator<Item = &'static str>) -> Paths {
    Paths::new(METADATA.into_iter().chain(fields))
}

/// See the module.
#[derive(Clone)]
pub(super) struct Facts(Box<[u8]>);

impl Facts {
    /// Of an object's key and what lies at the paths of its kind's facts. More labels or owners than 65,535 are no facts.
    pub fn of(key: &str, found: &[Json<'_>]) -> Facts {
        let ([uid, labels, owners, _], fields) = found.split_first_chunk().expect("the paths begin with these");
        let labels_len = u16::try_from(labels.members().count()).unwrap_or(u16::MAX);
        let owners_len = u16::try_from(owners.items().count()).unwrap_or(u16::MAX);
        let mut out = Vec::with_capacity(256);
        out.push(u8::try_from(fields.len()).expect("a kind has few selectable fields"));
        out.extend_from_slice(&labels_len.to_le_bytes());
        out.extend_from_slice(&owners_len.to_le_bytes());
        let uid = text(*uid);
        let uuid = uuid::Uuid::try_parse(&uid).ok().filter(|uuid| uuid.hyphenated().to_string() == uid);
        out.push(u8::from(uuid.is_some()));
        out.extend_from_slice(uuid.as_ref().map_or(&[], |uuid| uuid.as_bytes()));
        push(&mut out, key);
        if uuid.is_none() {
            push(&mut out, &uid);
        }
        for field in fields {
            match field.text() {
                Some(text) => push(&mut out, &text),
                None if field.is_null() => push(&mut out, ""),
                None => push(&mut out, &String::from_utf8_lossy(field.octets())),
            }
        }
        for (key, value) in labels.members().take(labels_len.into()) {
            push(&mut out, &text(key));
            push(&mut out, &text(value));
        }
        for owner in owners.items().take(owners_len.into()) {
            let [api_version, kind, name, uid, blocks] =
                owner.get(["apiVersion", "kind", "name", "uid", "blockOwnerDeletion"]);
            [api_version, kind, name, uid].iter().for_each(|part| push(&mut out, &text(*part)));
            push(&mut out, if blocks.octets() == b"true" { BLOCKS } else { "" });
        }
        // Copied, since an allocator leaves what shrinks by less than half where it is.
        Facts(out.as_slice().into())
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(found: &[Json<'_>]) -> bool {
        found.get(METADATA.len() - 1).is_some_and(|time| !time.is_null())
    }

    pub fn key(&self) -> &str {
        self.strings().next().unwrap_or_default()
    }

    pub fn uid(&self) -> String {
        match self.0[HEADER..].first_chunk::<16>().filter(|_| self.is_uuid()) {
            Some(octets) => uuid::Uuid::from_bytes(*octets).hyphenated().to_string(),
            None => self.strings().nth(1).unwrap_or_default().to_owned(),
        }
    }

    pub fn field(&self, place: usize) -> Option<&str> {
        if place < self.fields_len() { self.strings().nth(self.fields_at() + place) } else { None }
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut strings = self.strings().skip(self.fields_at() + self.fields_len());
        (0..self.labels_len()).map_while(move |_| Some((strings.next()?, strings.next()?)))
    }

    pub fn owners(&self) -> Vec<Owner> {
        let owners_len = self.number(3);
        if owners_len == 0 {
            return Vec::new();
        }
        let mut parts = self.strings().skip(self.fields_at() + self.fields_len() + 2 * self.labels_len());
        let owner = |_| {
            let parts: [&str; OWNER_PARTS] = std::array::from_fn(|_| parts.next().unwrap_or_default());
            let [api_version, kind, name, uid, blocks] = parts;
            Owner {
                api_version: api_version.into(),
                kind: kind.into(),
                name: name.into(),
                uid: uid.into(),
                blocks: blocks == BLOCKS,
            }
        };
        (0..owners_len).map(owner).collect()
    }

    fn is_uuid(&self) -> bool {
        self.0[HEADER - 1] == 1
    }

    /// Which string is the first field.
    fn fields_at(&self) -> usize {
        if self.is_uuid() { 1 } else { 2 }
    }

    fn fields_len(&self) -> usize {
        self.0[0].into()
    }

    fn labels_len(&self) -> usize {
        self.number(1)
    }

    fn number(&self, at: usize) -> usize {
        u16::from_le_bytes([self.0[at], self.0[at + 1]]).into()
    }

    fn strings(&self) -> Strings<'_> {
        Strings(&self.0[HEADER + if self.is_uuid() { 16 } else { 0 }..])
    }
}

/// The text; none is an empty one.
fn text(value: Json<'_>) -> Cow<'_, str> {
    value.text().unwrap_or_default()
}

fn push(out: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(short) if short < u8::MAX => out.push(short),
        _ => {
            let len = u32::try_from(text.len()).expect("an object is smaller than four GiB");
            out.push(u8::MAX);
            out.extend_from_slice(&len.to_le_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}

/// The strings that are left.
struct Strings<'a>(&'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let (&short, mut rest) = self.0.split_first()?;
        let mut len = usize::from(short);
        if short == u8::MAX {
            let (long, behind) = rest.split_first_chunk::<4>()?;
            (len, rest) = (u32::from_le_bytes(*long) as usize, behind);
        }
        let (text, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kind::Kind;
    use crate::registry::event::EVENT;
    use crate::registry::namespace::NAMESPACE;

    fn facts_of(kind: &Kind, key: &str, object: &Value) -> Facts {
        let json = object.to_string();
        let paths = kind.selectable_fields.facts();
        Facts::of(key, &paths.find(json.as_bytes(), 0..0).expect("an object"))
    }

    #[test]
    fn facts_are_found_again() {
        let long = "x".repeat(300);
        let owner = |name: &str, blocks: bool| json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": "u", "blockOwnerDeletion": blocks});
        let facts = facts_of(
            &EVENT,
            "one",
            &json!({
                "metadata": {
                    "uid": "u-1", "labels": {"a": "", "ä": &long},
                    "ownerReferences": [owner("one", true), owner("two", false)],
                },
                "involvedObject": {"kind": "Lease", "namespace": &long, "name": "n", "apiVersion": "v1"},
                "type": "Normal",
            }),
        );
        assert_eq!((facts.key(), &*facts.uid()), ("one", "u-1"));
        assert_eq!(facts.labels().collect::<Vec<_>>(), [("a", ""), ("ä", long.as_str())]);
        let fields: Vec<_> = [0, 1, 2, 3, 4, 10, 11].into_iter().map(|place| facts.field(place)).collect();
        assert_eq!(fields, [Some("Lease"), Some(long.as_str()), Some("n"), Some(""), Some("v1"), Some("Normal"), None]);
        let owners: Vec<_> = facts.owners().into_iter().map(|owner| (owner.name, owner.blocks)).collect();
        assert_eq!(owners, [("one".into(), true), ("two".into(), false)]);
    }

    #[test]
    fn an_object_without_any_has_none() {
        let facts = facts_of(&NAMESPACE, "", &json!({}));
        assert_eq!((&*facts.uid(), facts.labels().count(), facts.owners().len()), ("", 0, 0));
    }

    #[test]
    fn uids_are_given_as_they_came() {
        for uid in ["391d05cf-d81e-4196-a83e-22fcabafd036", "391D05CF-d81e-4196-a83e-22fcabafd036", "u"] {
            let facts = facts_of(&EVENT, "n", &json!({"metadata": {"uid": uid}, "involvedObject": {"kind": "Pod"}}));
            assert_eq!((facts.key(), &*facts.uid(), facts.field(0)), ("n", uid, Some("Pod")));
            assert_eq!(facts.is_uuid(), uid.starts_with("391d"), "{uid}");
        }
    }
}
