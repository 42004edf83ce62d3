//! The last check before a commit: the size of the object, and the quota of its namespace.
//!
//! Every object that is committed or shown by a dry run is an [`Admitted`] one, which only this file creates. It holds the
//! encoded object, and the reservation of its addition to the namespace until the commit has ended.

use bytes::Bytes;
use serde_json::Value;

use super::writer::{CurrentObject, Part, Writer, name_of};
use crate::error::ApiError;
use crate::limits::{Amount, Bound, CLUSTER_OBJECT_BYTES, Limit, Quota};
use crate::object::{self, Object};
use crate::registry::namespace::NAMESPACE;
use crate::request::object_key;
use crate::watch_cache::usage::{Reservation, exceeds};

/// An object that can be committed.
pub(crate) struct Admitted {
    pub(super) name: String,
    /// The object in the stored form.
    pub(super) value: Bytes,
    pub(super) reservation: Option<Reservation>,
    /// Whether it is part of a deletion, which a full disk does not block.
    pub(super) frees: bool,
}

impl Writer<'_> {
    /// Admits a new object (`old` is `None`) or a changed one, or rejects it: 413 if the object is too large, 403 if the
    /// namespace has no room for it.
    pub(crate) fn admit(&self, tree: Value, old: Option<&CurrentObject>, part: Part) -> Result<Admitted, ApiError> {
        let name = name_of(&tree).to_owned();
        let frees = old.is_some_and(|old| releases(&old.tree, &tree));
        let stored = self.to_stored(tree);
        let value = object::stored(&stored);
        self.check_size(&name, value.len(), &stored, old, part)?;
        let reservation = self.reserve(&name, value.len(), old)?;
        Ok(Admitted { name, value, reservation, frees })
    }

    /// Admits an object that is marked for deletion, which is always permitted.
    pub(crate) fn admit_marked(&self, tree: Value) -> Admitted {
        let name = name_of(&tree).to_owned();
        Admitted { name, value: object::stored(&self.to_stored(tree)), reservation: None, frees: true }
    }

    /// Checks the size of an object. The limit is `size_max`, and twice that for a status or for users that write beyond the
    /// limits, so that an object of a tenant at the limit still gets its status. A stored object above the limit can be changed
    /// if it does not grow, or if everything except its field sets shrinks: a client that removes a finalizer becomes one of the
    /// managers.
    fn check_size(
        &self,
        name: &str,
        found: usize,
        stored: &Value,
        old: Option<&CurrentObject>,
        part: Part,
    ) -> Result<(), ApiError> {
        let of_server = if self.kind.namespaced { self.server.object_bytes } else { CLUSTER_OBJECT_BYTES };
        let of_kind = self.kind.object_bytes.unwrap_or(of_server);
        let old_bytes = old.map_or(0, |old| old.bytes);
        let limit = match part == Part::Status || self.is_beyond_limits() {
            true => (2 * of_kind).max(old_bytes + of_kind),
            false => of_kind,
        };
        let shrinks = |old: &CurrentObject| {
            found <= old.bytes || content_bytes(stored) < content_bytes(&self.to_stored(old.tree.clone()))
        };
        match found <= limit || old.is_some_and(shrinks) {
            true => Ok(()),
            false => Err(ApiError::object_too_large(self.kind, name, found, limit)),
        }
    }

    /// Returns an object that is not committed, of a dry run.
    pub(crate) fn shown_admitted(&self, admitted: &Admitted, revision: u64) -> Result<Object, ApiError> {
        self.object(&object_key(self.namespace, &admitted.name), &admitted.value, revision)
    }

    fn is_beyond_limits(&self) -> bool {
        self.server.authorizer.is_beyond_limits(self.identity)
    }

    fn reserve(&self, name: &str, found: usize, old: Option<&CurrentObject>) -> Result<Option<Reservation>, ApiError> {
        let kind_cache = self.server.cache.kind_cache(self.kind);
        let Some(usage) = &kind_cache.usage else { return Ok(None) };
        let Some(quota) = self.server.kinds.quota(kind_cache.kind) else { return Ok(None) };
        let bytes = found.saturating_sub(old.map_or(0, |old| old.bytes));
        let adds = Amount { objects: u64::from(old.is_none()), bytes: bytes as u64 };
        if adds == Amount::default() {
            return Ok(None);
        }
        let own = self.quota_of(quota);
        let limit = match (self.is_beyond_limits(), quota.beyond_limits) {
            (false, _) => Some(own),
            (true, None) => None,
            (true, Some(times)) => {
                Some(Amount { objects: own.objects.saturating_mul(times), bytes: own.bytes.saturating_mul(times) })
            }
        };
        let base = old.map_or(0, |old| old.revision);
        let reserved = usage.reserve(&object_key(self.namespace, name), base, adds, limit);
        reserved.map(Some).map_err(|used| self.exceeded(quota, name, (used, adds), limit.unwrap_or(own)))
    }

    /// Returns the quota of the namespace.
    fn quota_of(&self, quota: &Quota) -> Amount {
        let kind_cache = self.server.cache.kind_cache(&NAMESPACE);
        let found = self.namespace.and_then(|namespace| kind_cache.get(namespace));
        let found = found.map(|found| kind_cache.trees.of(&found));
        quota.amount(found.as_deref())
    }

    /// Returns 403 with the message of a ResourceQuota.
    fn exceeded(&self, quota: &Quota, name: &str, (used, adds): (Amount, Amount), limit: Amount) -> ApiError {
        let reported = |bound: &Bound, requested: u64, used: u64, limited: u64| {
            let Bound { limit, resource, annotation } = bound;
            let or = annotation.map(|annotation| {
                format!(", or have an administrator of the platform set the annotation {annotation} of the namespace")
            });
            let why = format!(
                "exceeded quota: {limit}, requested: {resource}={requested}, used: {resource}={used}, limited: \
                 {resource}={limited}; delete some{}",
                or.unwrap_or_default()
            );
            ApiError::forbidden(self.stored_kind(), name, &why).limited(Limit(limit))
        };
        match exceeds(used, adds, limit) {
            (true, _) => reported(&quota.objects, adds.objects, used.objects, limit.objects),
            (false, _) => reported(&quota.bytes, adds.bytes, used.bytes, limit.bytes),
        }
    }
}

/// Returns the size of an object without its field sets.
fn content_bytes(stored: &Value) -> usize {
    let mut content = stored.clone();
    content["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
    object::encode(&content).len()
}

/// Returns whether an update is part of a deletion: it starts one, or removes what blocks it.
fn releases(old: &Value, new: &Value) -> bool {
    let began = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
    let holders = |object: &Value| {
        let count = |list: &Value| list.as_array().map_or(0, Vec::len);
        count(&object["metadata"]["finalizers"]) + count(&object["spec"]["finalizers"])
    };
    began(new) && (!began(old) || holders(new) < holders(old))
}
