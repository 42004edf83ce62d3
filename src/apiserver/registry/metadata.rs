//! What holds for the `metadata` of every kind.

use serde_json::Value;

use super::Kind;
use crate::apiserver::error::Cause;

/// The faults of an object's metadata beyond its schema: name and namespace, keys and values of labels, keys and size of
/// annotations, finalizers, owner references. With `old`, also of its change: name, namespace, uid are immutable.
pub fn validate(kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<Cause> {
    let _ = (kind, old, new);
    todo!()
}
