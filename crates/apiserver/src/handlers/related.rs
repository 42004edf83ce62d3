//! The other objects of a write: reads by hooks, and the related writes that join the transaction.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::kind::{HookReads, Kind};
use crate::object::Object;
use crate::registry::conflict_key::{self, ConflictKey};
use crate::registry::kinds::Kinds;
use crate::registry::{Reader, RelatedWrite, SideEffect};
use crate::request::object_key;
use crate::store::{Key, Precondition, Revision, Txn, Write};
use crate::watch_cache::SHOWN_WAIT;
use crate::{Shared, object};

/// Reads of hooks, from the cache, which contains every answered write. The write of a hook is committed only if the objects that
/// it read are unchanged.
pub(crate) struct CacheReader<'a> {
    pub(crate) server: &'a Arc<Shared>,
}

#[async_trait]
impl Reader for CacheReader<'_> {
    fn get(&self, kind: &str, namespace: Option<&str>, name: &str) -> Result<Option<Arc<Value>>, ApiError> {
        let kind_cache = self.server.cache.kind_cache(known(&self.server.kinds, kind)?);
        let tree = |object: Arc<Object>| match kind_cache.kind.hook_reads {
            HookReads::OftenTheSame => kind_cache.trees.of(&object),
            HookReads::Whole => Arc::new(object.tree()),
            HookReads::Content => Arc::new(object.tree_without_managed_fields()),
        };
        Ok(kind_cache.get(&object_key(namespace, name)).map(tree))
    }

    fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Vec<Value>, ApiError> {
        let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
        let snapshot = self.server.cache.snapshot(known(&self.server.kinds, kind)?, &prefix);
        Ok(snapshot.objects.iter().map(|object| object.tree_without_managed_fields()).collect())
    }

    fn matching(&self, kind: &str, field: &str, test: &dyn Fn(&str) -> bool) -> Result<Vec<Value>, ApiError> {
        let kind = known(&self.server.kinds, kind)?;
        let place = place_of(kind, field)?;
        let wanted = |object: &Object| object.field(place).is_some_and(test);
        let (found, _) = self.server.cache.page(kind, "", usize::MAX, Some(&wanted));
        Ok(found.objects.iter().map(|object| object.tree_without_managed_fields()).collect())
    }

    fn selected(&self, kind: &str, namespace: &str, field: &str, value: &str) -> Result<Vec<Value>, ApiError> {
        let kind = known(&self.server.kinds, kind)?;
        let place = place_of(kind, field)?;
        let same = |object: &Object| object.field(place) == Some(value);
        let (found, _) = self.server.cache.page(kind, &format!("{namespace}/"), usize::MAX, Some(&same));
        Ok(found.objects.iter().map(|object| object.tree_without_managed_fields()).collect())
    }

    fn count(&self, kind: &str, field: &str, value: &str) -> Result<usize, ApiError> {
        let kind = known(&self.server.kinds, kind)?;
        let place = place_of(kind, field)?;
        let same = |object: &Object| object.field(place) == Some(value);
        let (found, _) = self.server.cache.page(kind, "", usize::MAX, Some(&same));
        Ok(found.objects.len())
    }

    fn number(&self, kind: &str) -> Result<usize, ApiError> {
        Ok(self.server.cache.kind_cache(known(&self.server.kinds, kind)?).len())
    }

    fn bytes(&self, kind: &str) -> Result<u64, ApiError> {
        let cache = self.server.cache.kind_cache(known(&self.server.kinds, kind)?);
        let usage = cache.usage.as_ref();
        usage.map(|usage| usage.bytes()).ok_or_else(|| ApiError::internal(format!("the kind {kind} has no quota")))
    }

    async fn touched(&self, key: &ConflictKey) -> Result<Option<String>, ApiError> {
        let (at, found) = self.server.store.get(&key.key(), None).await?;
        if !self.server.cache.reaches(at.0, SHOWN_WAIT).await {
            return Err(ApiError::unavailable("the server is behind its store, please try again"));
        }
        Ok(found.map(|found| found.modified.0.to_string()))
    }
}

/// Returns the index of a field among the selectable fields of the kind.
fn place_of(kind: &Kind, field: &str) -> Result<usize, ApiError> {
    let place = kind.selectable_fields.iter().position(|selectable| *selectable == field);
    place.ok_or_else(|| ApiError::internal(format!("a hook requests the unknown field {field}")))
}

fn known(kinds: &Kinds, kind: &str) -> Result<&'static Kind, ApiError> {
    kinds.find_kind(kind).ok_or_else(|| ApiError::internal(format!("a hook requests the unknown kind {kind}")))
}

/// Adds a related write to a transaction.
pub(super) fn add(kinds: &Kinds, txn: &mut Txn, write: RelatedWrite) -> Result<(), ApiError> {
    let (key, ttl) = if write.kind == conflict_key::KIND {
        (Key(write.name.into()), None)
    } else {
        let kind = known(kinds, write.kind)?;
        // An object that is re-created need not have been read.
        let changes = matches!(write.effect, SideEffect::Put(_)) && write.expect.is_some();
        if changes && kind.hook_reads != HookReads::Whole {
            return Err(ApiError::internal(format!(
                "a hook changes a {} of which it has read only a part",
                write.kind
            )));
        }
        (Key::below(kind.key_prefix, &object_key(write.namespace.as_deref(), &write.name)), kind.time_to_live)
    };
    let expect = match &write.expect {
        None => Precondition::Absent,
        Some(version) => {
            let revision = version.parse().map_err(|_| {
                ApiError::internal(format!("a hook expects {key:?} at {version:?}, which is not a resource version"))
            })?;
            Precondition::At(Revision(revision))
        }
    };
    if write.effect != SideEffect::Touch {
        txn.expect.push((key.clone(), expect));
    }
    match write.effect {
        SideEffect::Put(object) => {
            let value = object::stored(&object);
            txn.writes.push(Write::Put { key, value, ttl });
        }
        SideEffect::Touch => {
            let value = object::stored(&json!({}));
            txn.writes.push(Write::Put { key, value, ttl });
        }
        SideEffect::Delete => txn.writes.push(Write::Delete { key }),
        SideEffect::Keep => {}
    }
    Ok(())
}
