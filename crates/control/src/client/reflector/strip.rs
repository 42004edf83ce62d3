//! Reading an object without what no informer keeps: who manages which field, and why a Router was chosen. They are half of many
//! an object, and trees of small texts, so that to make them only to drop them costs more than all else of an event.
//!
//! [`StripDeserializer`] stands between the reader of JSON and the type that is read. It knows where in the object it is, and steps over those
//! members as if they were not there.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::CowStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

/// Members that are stepped over, each below a member of the object itself.
const SKIPPED: [(&str, &str); 2] = [("metadata", "managedFields"), ("spec", "explanation")];

/// Where in an object the reader is; everywhere else it reads by itself.
#[derive(Clone, Copy)]
enum Place {
    /// At the object itself.
    Top,
    /// At this member of it, of which one of [`SKIPPED`] speaks.
    Below(usize),
}

/// A deserializer of an object that does without [`SKIPPED`].
pub(super) struct StripDeserializer<D> {
    inner: D,
    place: Place,
}

impl<D> StripDeserializer<D> {
    /// One of a whole object.
    pub(super) fn new(inner: D) -> Self {
        StripDeserializer { inner, place: Place::Top }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StripDeserializer<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(ThinVisitor { inner: visitor, place: self.place })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(ThinVisitor { inner: visitor, place: self.place })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    // JSON says itself what comes.
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

struct ThinVisitor<V> {
    inner: V,
    place: Place,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for ThinVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<V::Value, E> {
        self.inner.visit_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<V::Value, E> {
        self.inner.visit_i64(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<V::Value, E> {
        self.inner.visit_u64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<V::Value, E> {
        self.inner.visit_f64(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<V::Value, E> {
        self.inner.visit_str(value)
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<V::Value, E> {
        self.inner.visit_borrowed_str(value)
    }

    fn visit_string<E: Error>(self, value: String) -> Result<V::Value, E> {
        self.inner.visit_string(value)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(StripDeserializer { inner: deserializer, place: self.place })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.inner.visit_seq(seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(ThinMap { inner: map, place: self.place, next: None })
    }
}

struct ThinMap<A> {
    inner: A,
    place: Place,
    /// Where the value is whose key was read last, if it is to be read like this.
    next: Option<Place>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ThinMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            let Some(Key(key)) = self.inner.next_key_seed(KeySeed)? else { return Ok(None) };
            self.next = match self.place {
                Place::Top => SKIPPED.iter().position(|(member, _)| *member == key).map(Place::Below),
                Place::Below(which) if SKIPPED[which].1 == key => {
                    self.inner.next_value::<IgnoredAny>()?;
                    continue;
                }
                Place::Below(_) => None,
            };
            return seed.deserialize(CowStrDeserializer::new(key)).map(Some);
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.next {
            None => self.inner.next_value_seed(seed),
            Some(place) => self.inner.next_value_seed(ThinSeed { inner: seed, place }),
        }
    }
}

struct ThinSeed<S> {
    inner: S,
    place: Place,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ThinSeed<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(StripDeserializer { inner: deserializer, place: self.place })
    }
}

/// A key; as a rule it is where it was read from.
struct Key<'de>(Cow<'de, str>);

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key<'de>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for KeySeed {
    type Value = Key<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a member")
    }

    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Borrowed(key)))
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Owned(key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::{Value, json};

    use super::*;
    use signpost_api::v1alpha1::route_binding::RouteBinding;

    struct Object<T>(T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            T::deserialize(StripDeserializer::new(deserializer)).map(Object)
        }
    }

    #[test]
    fn what_is_stepped_over_is_as_if_it_were_not_there() {
        for (object, expected) in [
            (json!({}), json!({})),
            (json!([1, null, "x"]), json!([1, null, "x"])),
            (json!({"metadata": null, "spec": 7}), json!({"metadata": null, "spec": 7})),
            (
                json!({"metadata": {"name": "a", "managedFields": [{"fieldsV1": {"f:x": {}}}], "uid": "u"}}),
                json!({"metadata": {"name": "a", "uid": "u"}}),
            ),
            (
                json!({"spec": {"explanation": {"a": "\"}"}, "dns": "d"}, "managedFields": 1, "explanation": 2}),
                json!({"spec": {"dns": "d"}, "managedFields": 1, "explanation": 2}),
            ),
            (
                json!({"spec": {"managedFields": 1, "x": {"explanation": 2}}, "metadata": {"explanation": [3]}}),
                json!({"spec": {"managedFields": 1, "x": {"explanation": 2}}, "metadata": {"explanation": [3]}}),
            ),
        ] {
            let Object(found) = serde_json::from_str::<Object<Value>>(&object.to_string()).expect("it is JSON");
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn types_are_read_through_it() {
        let names = json!([{"name": "a.s1.example", "type": "system"}]);
        let object = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
            "metadata": {
                "name": "a", "labels": {"x\u{e9}\"": "y"}, "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": "not even a list",
            },
            "spec": {
                "routeNamespace": "n", "routeName": "a", "routeUID": "u", "router": "s1", "dns": "s1.example", "label": "a",
                "names": names, "strategy": "x", "explanation": "neither",
            },
        });
        let Object(binding) =
            serde_json::from_str::<Object<RouteBinding>>(&object.to_string()).expect("a RouteBinding");
        assert_eq!((binding.spec.router.as_str(), binding.spec.names.len(), binding.spec.explanation), ("s1", 1, None));
        assert_eq!(
            (binding.metadata.generation, binding.metadata.labels.map(|labels| labels.len())),
            (Some(3), Some(1))
        );
        let missing = serde_json::from_str::<Object<RouteBinding>>(r#"{"metadata": {"name": "a"}}"#);
        assert!(missing.is_err_and(|error| error.to_string().contains("spec")));
    }
}
