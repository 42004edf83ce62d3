//! Decoding of objects: an object that does not decode does not affect the others.

use futures::stream::{BoxStream, Stream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Resource;
use kube::api::{ObjectMeta, WatchEvent};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use super::ObjectKey;
use super::strip::StripDeserializer;
use crate::client::uid::Uid;
use signpost_types::v1alpha1::DAMAGED_ANNOTATION;

/// The events of an open watch.
pub(super) type Events<K> = BoxStream<'static, kube::Result<WatchEvent<Decoded<K>>>>;

/// Whether an object that does not decode fails its whole list (fast), or only itself (through a JSON value). The first failure
/// switches.
#[derive(Clone, Copy)]
pub(super) enum Decoding {
    Strict,
    Lenient,
}

#[derive(Clone)]
pub(super) enum Decoded<K> {
    Good(K),
    Bad { meta: Box<ObjectMeta>, error: String },
}

pub(super) struct Identity {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
    pub(super) version: Box<str>,
}

impl<K: Resource> Decoded<K> {
    /// Returns whether this is a placeholder of an object that the server itself cannot read.
    pub(super) fn is_placeholder(&self) -> bool {
        match self {
            Decoded::Good(_) => false,
            Decoded::Bad { meta, .. } => {
                meta.annotations.as_ref().is_some_and(|found| found.contains_key(DAMAGED_ANNOTATION))
            }
        }
    }

    pub(super) fn identity(&self) -> Identity {
        let meta = match self {
            Decoded::Good(object) => object.meta(),
            Decoded::Bad { meta, .. } => meta,
        };
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
        Identity {
            key: ObjectKey { namespace: meta.namespace.clone(), name: text(&meta.name) },
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: text(&meta.resource_version).into(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Page<T> {
    pub(super) metadata: ListMeta,
    pub(super) items: Vec<T>,
}

impl<T> Page<T> {
    pub(super) fn decoded<K>(self) -> Page<Decoded<K>>
    where
        T: Into<Decoded<K>>,
    {
        Page { metadata: self.metadata, items: self.items.into_iter().map(Into::into).collect() }
    }
}

#[derive(Clone)]
pub(super) struct Strict<K>(K);

impl<'de, K: Deserialize<'de>> Deserialize<'de> for Strict<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        K::deserialize(StripDeserializer::new(deserializer)).map(Strict)
    }
}

impl<K> From<Strict<K>> for Decoded<K> {
    fn from(Strict(object): Strict<K>) -> Self {
        Decoded::Good(object)
    }
}

#[derive(Clone)]
pub(super) struct Lenient<K>(Decoded<K>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Lenient<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = serde_json::Value::deserialize(deserializer)?;
        let error = match K::deserialize(&value) {
            _ if value["metadata"]["annotations"][DAMAGED_ANNOTATION].is_string() => {
                "its stored value is damaged".to_owned()
            }
            Ok(object) => return Ok(Lenient(Decoded::Good(object))),
            Err(error) => error.to_string(),
        };
        let meta = serde_json::from_value(value["metadata"].take()).map_err(serde::de::Error::custom)?;
        Ok(Lenient(Decoded::Bad { meta, error }))
    }
}

impl<K> From<Lenient<K>> for Decoded<K> {
    fn from(Lenient(decoded): Lenient<K>) -> Self {
        decoded
    }
}

pub(super) fn decoded_events<T, K>(
    events: impl Stream<Item = kube::Result<WatchEvent<T>>> + Send + 'static,
) -> Events<K>
where
    T: Into<Decoded<K>> + Send + 'static,
    K: Send + 'static,
{
    let decode = |event| match event {
        WatchEvent::Added(object) => WatchEvent::Added(T::into(object)),
        WatchEvent::Modified(object) => WatchEvent::Modified(T::into(object)),
        WatchEvent::Deleted(object) => WatchEvent::Deleted(T::into(object)),
        WatchEvent::Bookmark(bookmark) => WatchEvent::Bookmark(bookmark),
        WatchEvent::Error(status) => WatchEvent::Error(status),
    };
    events.map(move |event| event.map(decode)).boxed()
}
