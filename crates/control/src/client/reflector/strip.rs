//! A deserializer that skips fields that no informer stores: the managers of fields, and the explanation of a Router choice.
//! They are half of many objects, in many small strings: building and dropping them costs more than the rest of an event.
//!
//! [`StripDeserializer`] wraps the JSON reader, for a struct with structs as members. It skips those members as if they were
//! missing.

use std::borrow::Cow;
use std::fmt;

use serde::de::value::CowStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

/// The skipped members, each of a member of the object itself.
const SKIPPED: [(&str, &str); 2] = [("metadata", "managedFields"), ("spec", "explanation")];

/// The position of the reader in an object; below these positions, the reader works unchanged.
#[derive(Clone, Copy)]
enum PathState {
    /// The object itself.
    Top,
    /// The member of the object with this index, in which a member is in [`SKIPPED`].
    Below(usize),
}

/// A deserializer of an object without [`SKIPPED`].
pub(super) struct StripDeserializer<D> {
    inner: D,
    path: PathState,
}

impl<D> StripDeserializer<D> {
    /// Returns a deserializer of a whole object.
    pub(super) fn new(inner: D) -> Self {
        StripDeserializer { inner, path: PathState::Top }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StripDeserializer<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(StripVisitor { inner: visitor, path: self.path })
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_option(StripVisitor { inner: visitor, path: self.path })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A visitor of a struct, or of an optional one.
struct StripVisitor<V> {
    inner: V,
    path: PathState,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for StripVisitor<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(formatter)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(StripDeserializer { inner: deserializer, path: self.path })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.inner.visit_map(StripMap { inner: map, path: self.path, next: None })
    }
}

struct StripMap<A> {
    inner: A,
    path: PathState,
    /// The position of the value whose key was read last, if the value needs this visitor.
    next: Option<PathState>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for StripMap<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            let Some(Key(key)) = self.inner.next_key_seed(KeySeed)? else { return Ok(None) };
            self.next = match self.path {
                PathState::Top => SKIPPED.iter().position(|(member, _)| *member == key).map(PathState::Below),
                PathState::Below(which) if SKIPPED[which].1 == key => {
                    self.inner.next_value::<IgnoredAny>()?;
                    continue;
                }
                PathState::Below(_) => None,
            };
            return seed.deserialize(CowStrDeserializer::new(key)).map(Some);
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        match self.next {
            None => self.inner.next_value_seed(seed),
            Some(path) => self.inner.next_value_seed(StripSeed { inner: seed, path }),
        }
    }
}

struct StripSeed<S> {
    inner: S,
    path: PathState,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for StripSeed<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(StripDeserializer { inner: deserializer, path: self.path })
    }
}

/// A key, usually borrowed from the input.
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
    use serde_json::json;

    use super::*;
    use signpost_types::v1alpha1::route_binding::RouteBinding;

    struct Object<T>(T);

    impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            T::deserialize(StripDeserializer::new(deserializer)).map(Object)
        }
    }

    #[test]
    fn objects_are_decoded_without_the_skipped_members() {
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
