//! Of an object's JSON, the few members that the cache asks for beside it.
//!
//! Every write passes here. The tree of a Route with its field sets is some two hundred pieces of memory, to be made and given
//! back; of those that are wanted there are a dozen.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::registry::Kind;

/// The members of `metadata` that are wanted.
const METADATA: [&str; 4] = ["uid", "labels", "ownerReferences", "deletionTimestamp"];

/// The tree of an object with nothing in it but these members of its metadata, and the fields that `kind` can be selected by.
pub(super) fn read(kind: &Kind, json: &[u8]) -> Result<Value, serde_json::Error> {
    let fields = kind.selectable_fields.iter().map(|field| Kind::path_of(field));
    let paths: Vec<&str> = fields.collect();
    Place { paths: &paths, depth: 0 }.deserialize(&mut serde_json::Deserializer::from_slice(json))
}

/// A place in the object, and the paths of what is wanted there or below.
struct Place<'a> {
    paths: &'a [&'a str],
    /// How many segments of the paths lead here.
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.paths.iter().any(|path| path.split('.').nth(self.depth).is_none()) {
            true => Value::deserialize(deserializer),
            false => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.depth == 0 { "an object" } else { "a JSON value" })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Name(name)) = access.next_key()? {
            let value = if self.depth == 0 && name == "metadata" {
                access.next_value_seed(Metadata)?
            } else {
                let leads_on = |path: &&&str| path.split('.').nth(self.depth) == Some(&*name);
                let paths: Vec<&str> = self.paths.iter().filter(leads_on).copied().collect();
                if paths.is_empty() {
                    access.next_value::<IgnoredAny>()?;
                    continue;
                }
                access.next_value_seed(Place { paths: &paths, depth: self.depth + 1 })?
            };
            map.insert(name.into_owned(), value);
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        while access.next_element::<IgnoredAny>()?.is_some() {}
        self.nothing()
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.nothing()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Value, E> {
        self.nothing()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Value, E> {
        self.nothing()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Value, E> {
        self.nothing()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Value, E> {
        self.nothing()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Value, E> {
        self.nothing()
    }
}

impl Place<'_> {
    /// What has no members has nothing below. The whole must have some.
    fn nothing<E: Error>(self) -> Result<Value, E> {
        if self.depth == 0 { Err(E::custom("it is no object")) } else { Ok(Value::Null) }
    }
}

struct Metadata;

impl<'de> DeserializeSeed<'de> for Metadata {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Metadata {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(Name(name)) = access.next_key()? {
            if METADATA.contains(&&*name) {
                map.insert(name.into_owned(), access.next_value()?);
            } else {
                access.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Value::Object(map))
    }
}

/// The name of a member, borrowed where it holds no escapes.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(name.into()))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(name.to_owned().into()))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::apiserver::registry::kinds;

    fn any_object() -> impl Strategy<Value = Value> {
        const NAMES: [&str; 20] = [
            "spec",
            "status",
            "host",
            "phase",
            "router",
            "dns",
            "source",
            "component",
            "reason",
            "holder",
            "uid",
            "name",
            "namespace",
            "metadata",
            "labels",
            "ownerReferences",
            "deletionTimestamp",
            "involvedObject",
            "kind",
            "type",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e6..1e6).prop_map(Value::from),
            "[a\"\\\\é\n]{0,3}".prop_map(Value::from)
        ];
        let object = |inner: BoxedStrategy<Value>| {
            let name = proptest::sample::select(&NAMES[..]).prop_map(str::to_owned);
            let fields = proptest::collection::btree_map(name, inner, 0..8);
            fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
        };
        let inner = leaf.prop_recursive(3, 24, 6, move |inner| {
            prop_oneof![proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array), object(inner.boxed())]
        });
        (object(inner.clone().boxed()), object(inner.boxed())).prop_map(|(mut object, metadata)| {
            object["metadata"] = metadata;
            object
        })
    }

    proptest! {
        #[test]
        fn what_is_wanted_is_there_as_in_the_whole(object in any_object()) {
            let text = object.to_string();
            // As it is read: of a number the last digit may be another one.
            let object: Value = serde_json::from_str(&text).expect("JSON");
            for kind in kinds().iter().filter(|kind| kind.view.is_none()) {
                let found = read(kind, text.as_bytes()).expect("it is an object");
                for name in METADATA {
                    prop_assert_eq!(found["metadata"].get(name), object["metadata"].get(name), "{} {}", kind.kind, object);
                }
                for path in kind.selectable_fields {
                    prop_assert_eq!(kind.field(&found, path), kind.field(&object, path), "{} {}", path, object);
                }
            }
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        let kind = &kinds()[0];
        for text in ["[]", "1", "\"x\"", "null", "{", "", r#"{"metadata":1}"#] {
            assert!(read(kind, text.as_bytes()).is_err(), "{text}");
        }
        let object =
            json!({"kind": "x", "metadata": {"name": "n", "uid": "u", "managedFields": [{}]}, "spec": {"x": 1}});
        let found = read(kind, object.to_string().as_bytes()).expect("an object");
        assert_eq!(found["metadata"], json!({"uid": "u"}));
        assert!(kinds().iter().all(|kind| kind.selectable_fields.iter().all(|path| !path.starts_with("metadata"))));
    }
}
