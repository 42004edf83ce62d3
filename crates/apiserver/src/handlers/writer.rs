//! The parts that all writes share: the sender, the target, and the object before the write.
//!
//! [`crate::registry`] defines the order of a write. All trees here have the representation of the request's kind, which can be a
//! view; they are converted to the stored one just before the commit.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::auth::identity::Identity;
use crate::error::ApiError;
use crate::kind::Kind;
use crate::object::Object;
use crate::registry::{Context, Hooks};
use crate::request::{FieldValidation, Resource, WriteOptions, object_key};
use crate::store::Key;
use crate::{Shared, object, representation};

/// A write in progress: its sender, target, and options.
pub(crate) struct Writer<'a> {
    pub(crate) server: &'a Arc<Shared>,
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) identity: &'a Identity,
    pub(crate) options: WriteOptions,
    pub(crate) now: Timestamp,
}

/// An object before a write.
pub(crate) struct CurrentObject {
    /// The object with its `resourceVersion`.
    pub(crate) tree: Value,
    /// The revision of the object.
    pub(crate) revision: u64,
    /// The size of the stored JSON.
    pub(crate) bytes: usize,
    /// Whether it is from the cache, and another server may have replaced it. A commit detects that; a write without a commit
    /// does not.
    pub(crate) is_cached: bool,
}

impl CurrentObject {
    fn new(kind: &Kind, object: &Object, is_cached: bool) -> CurrentObject {
        CurrentObject {
            revision: object.revision,
            bytes: object.stored_len(),
            tree: representation::tree(kind, object),
            is_cached,
        }
    }

    /// Returns whether an error of a write to it stays one: for a refusal, which has written nothing, the cache is not enough.
    pub(crate) fn is_final(&self, error: &ApiError) -> bool {
        !self.is_cached || error.code >= 500
    }
}

/// The part of an object that an update changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status.
    Main,
    /// The status.
    Status,
    /// The finalizers of a namespace's contents.
    Finalize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        server: &'a Arc<Shared>,
        resource: &'a Resource,
        identity: &'a Identity,
        options: WriteOptions,
    ) -> Self {
        let namespace = resource.namespace.as_deref();
        Writer { server, kind: resource.kind, namespace, identity, options, now: Timestamp::now() }
    }

    /// Returns a write of the server's own loops, which are exempt from the access rules.
    pub(crate) fn internal(
        server: &'a Arc<Shared>,
        kind: &'static Kind,
        namespace: Option<&'a str>,
        identity: &'a Identity,
    ) -> Self {
        let options = WriteOptions {
            dry_run: false,
            validation: FieldValidation::Ignore,
            manager: server.product.name.to_owned(),
            manager_named: true,
            force: None,
        };
        Writer { server, kind, namespace, identity, options, now: Timestamp::now() }
    }

    /// Returns the hooks of the kind.
    pub(crate) fn hooks(&self) -> &'a dyn Hooks {
        self.server.kinds.hooks(self.kind)
    }

    pub(super) fn context(&self) -> Context<'_> {
        Context {
            kinds: &self.server.kinds,
            identity: self.identity,
            namespace: self.namespace,
            manager: &self.options.manager,
            now: self.now,
        }
    }

    /// Returns the kind in its stored representation.
    pub(crate) fn stored_kind(&self) -> &'static Kind {
        self.server.cache.kind_cache(self.kind).kind
    }

    pub(super) fn store_key(&self, name: &str) -> Key {
        Key::below(self.kind.key_prefix, &object_key(self.namespace, name))
    }

    /// Returns the object as the cache has it, or, with `fresh` or if it is not there, as the store has it.
    pub(crate) async fn live(&self, name: &str, fresh: bool) -> Result<Option<CurrentObject>, ApiError> {
        let key = object_key(self.namespace, name);
        let cached = if fresh { None } else { self.server.cache.kind_cache(self.kind).get(&key) };
        if let Some(object) = cached {
            return Ok(Some(CurrentObject::new(self.kind, &object, true)));
        }
        let (_, found) = self.server.store.get(&self.store_key(name), None).await?;
        let Some(found) = found else { return Ok(None) };
        let object = self.object(&key, &found.value, found.modified.0)?;
        Ok(Some(CurrentObject::new(self.kind, &object, false)))
    }

    pub(crate) fn object(&self, key: &str, value: &[u8], revision: u64) -> Result<Object, ApiError> {
        Object::from_stored(self.stored_kind(), key, value, revision)
            .map_err(|error| ApiError::internal(error.to_string()))
    }

    /// Returns an object that did not change, or whose deletion is shown.
    pub(crate) fn shown(&self, name: &str, tree: &Value, revision: u64) -> Result<Arc<Object>, ApiError> {
        let stored = self.to_stored(tree.clone());
        self.object(&object_key(self.namespace, name), &object::encode(&stored), revision).map(Arc::new)
    }

    pub(super) fn to_stored(&self, tree: Value) -> Value {
        match self.kind.view {
            None => tree,
            Some(view) => (view.to_stored)(tree),
        }
    }

    /// Returns whether nothing holds an object any more that is being deleted.
    pub(crate) fn is_released(&self, object: &Value) -> bool {
        let meta = &object["metadata"];
        !meta["deletionTimestamp"].is_null() && is_empty(&meta["finalizers"]) && !self.holds_contents(object)
    }

    /// Returns whether this is a namespace whose contents are still to be deleted.
    pub(crate) fn holds_contents(&self, object: &Value) -> bool {
        self.kind.is_namespace() && !is_empty(&object["spec"]["finalizers"])
    }
}

/// Returns the metadata of an object, made if they are absent; 400 if they are something else.
pub(crate) fn metadata_of(object: &mut Value) -> Result<&mut Map<String, Value>, ApiError> {
    let object = object.as_object_mut().ok_or_else(|| ApiError::bad_request("an object is expected"))?;
    let meta = object.entry("metadata").or_insert(Value::Null);
    if meta.is_null() {
        *meta = json!({});
    }
    meta.as_object_mut().ok_or_else(|| ApiError::bad_request("metadata must be an object"))
}

/// `metadata.name`, or empty text.
pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}
