//! The values of an object that lists, selectors, and the garbage collector read without its JSON.

use super::Owner;
use crate::json_scan::Json;

/// The indexed fields of one object. A hundred thousand Routes have three hundred thousand of these, so no field has spare
/// capacity.
#[derive(Clone)]
pub(super) struct IndexedFields {
    /// The object's key after the kind's prefix.
    pub key: Box<str>,
    pub uid: Box<str>,
    pub deleting: bool,
    /// The values of the kind's selectable fields; empty where one is absent.
    pub fields: Box<[Box<str>]>,
    pub labels: Box<[(Box<str>, Box<str>)]>,
    pub owners: Box<[Owner]>,
}

impl IndexedFields {
    /// Returns the fields of an object with this key and these values at the paths of its kind ([`Selectable::facts`]).
    ///
    /// [`Selectable::facts`]: crate::kind::selectable::Selectable
    pub fn of(key: &str, found: &[Json<'_>]) -> IndexedFields {
        let ([uid, labels, owners, deleted], fields) = found.split_first_chunk().expect("the paths begin with these");
        let owner = |owner: Json<'_>| {
            let [api_version, kind, name, uid, blocks] =
                owner.get(["apiVersion", "kind", "name", "uid", "blockOwnerDeletion"]);
            Owner {
                api_version: text(api_version),
                kind: text(kind),
                name: text(name),
                uid: text(uid),
                blocks: blocks.octets() == b"true",
            }
        };
        let field = |field: &Json<'_>| match field.text() {
            Some(text) => text.into(),
            None if field.is_null() => "".into(),
            None => String::from_utf8_lossy(field.octets()).into(),
        };
        IndexedFields {
            key: key.into(),
            uid: text(*uid),
            deleting: !deleted.is_null(),
            fields: fields.iter().map(field).collect(),
            labels: labels.members().map(|(key, value)| (key.into(), text(value))).collect(),
            owners: owners.items().map(owner).collect(),
        }
    }
}

/// Returns the text; a missing text is empty.
fn text(value: Json<'_>) -> Box<str> {
    value.text().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kind::Kind;
    use crate::registry::event::EVENT;
    use crate::registry::namespace::NAMESPACE;

    fn facts_of(kind: &Kind, key: &str, object: &Value) -> IndexedFields {
        let json = object.to_string();
        let paths = kind.selectable_fields.facts();
        IndexedFields::of(key, &paths.find(json.as_bytes()).expect("an object"))
    }

    #[test]
    fn facts_are_those_of_the_object() {
        let owner = |name: &str, blocks: bool| json!({"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": "u", "blockOwnerDeletion": blocks});
        let facts = facts_of(
            &EVENT,
            "one",
            &json!({
                "metadata": {
                    "uid": "u-1", "labels": {"a": "", "ä": "é\n"},
                    "ownerReferences": [owner("one", true), owner("two", false)],
                },
                "involvedObject": {"kind": "Lease", "namespace": "s", "name": 7, "apiVersion": "v1"},
                "type": "Normal",
            }),
        );
        assert_eq!((&*facts.key, &*facts.uid, facts.deleting), ("one", "u-1", false));
        assert_eq!(*facts.labels, [("a".into(), "".into()), ("ä".into(), "é\n".into())]);
        assert_eq!(facts.fields[..5], ["Lease", "s", "7", "", "v1"].map(Box::from));
        let owners: Vec<_> = facts.owners.iter().map(|owner| (&*owner.name, owner.blocks)).collect();
        assert_eq!(owners, [("one", true), ("two", false)]);
        let facts = facts_of(&NAMESPACE, "", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
        assert_eq!((&*facts.uid, facts.deleting, facts.labels.len(), facts.owners.len()), ("", true, 0, 0));
    }
}
