//! The Routers and Routes that sources derive. They have the label of a source, and the platform's leader writes them, but no others.

use serde_json::Value;

use crate::access;
use crate::identity::Identity;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::Operation;
use signpost_types::v1alpha1::SOURCE_LABEL;

/// Returns the value of the label of a source.
pub(super) fn label(object: &Value) -> &Value {
    &object["metadata"]["labels"][SOURCE_LABEL]
}

/// Rejects a write of a Router or Route without the label of a source by the platform's leader: a stolen credential must not change those
/// of users. A change of the status alone is no such write.
pub(super) fn guard_leader(identity: &Identity, kind: &Kind, operation: Operation<'_>) -> Result<(), ApiError> {
    let (old, new) = match operation {
        Operation::Create(new) => (None, Some(new)),
        Operation::Update { old, new } => (Some(old), Some(new)),
        Operation::Delete { old, .. } => (Some(old), None),
        Operation::Release { .. } => return Ok(()),
    };
    let part = |object: &Value| {
        let metadata = &object["metadata"];
        [&object["spec"], &metadata["labels"], &metadata["annotations"], &metadata["finalizers"]].map(Value::clone)
    };
    let is_other = || [old, new].into_iter().flatten().any(|object| label(object).is_null());
    if !access::is_confined_to_sources(identity) || old.map(part) == new.map(part) || !is_other() {
        return Ok(());
    }
    let name = new.or(old).and_then(|object| object["metadata"]["name"].as_str()).unwrap_or_default();
    let why = format!(
        "metadata.labels[{SOURCE_LABEL}]: schedulers and controllers write only the objects of sources, which have it"
    );
    Err(ApiError::forbidden(kind, name, &why))
}
