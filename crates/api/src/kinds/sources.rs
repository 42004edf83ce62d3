//! The Routers and Routes that sources derive. They have the label of a source, and the platform's leader writes them, but no others.

use serde_json::Value;

use crate::access;
use crate::identity::Identity;
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::Operation;
use signpost_types::v1alpha1::{SOURCE_LABEL, SOURCE_OBJECT_ANNOTATION};

/// Returns the value of the label of a source.
pub(super) fn label(object: &Value) -> &Value {
    &object["metadata"]["labels"][SOURCE_LABEL]
}

/// Returns the annotation with the object of a source.
pub(super) fn object(object: &Value) -> &Value {
    &object["metadata"]["annotations"][SOURCE_OBJECT_ANNOTATION]
}

/// Returns the fault of a write by the platform's leader of a Router or Route, one of whose states, before and after the write, has no
/// label of a source: a stolen credential must not change those of users. Writes of the status alone are not checked.
pub(super) fn leader_fault(identity: &Identity, old: Option<&Value>, new: &Value) -> Option<Cause> {
    let is_other = old.is_some_and(|old| label(old).is_null()) || label(new).is_null();
    let what = "is missing: schedulers and controllers write only Routers and Routes of sources";
    let is_refused = is_other && access::is_confined_to_sources(identity);
    is_refused.then(|| Cause::forbidden(format!("metadata.labels[{SOURCE_LABEL}]"), what))
}

/// Rejects the deletion of such an object.
pub(super) fn guard_deletion(identity: &Identity, kind: &Kind, operation: Operation<'_>) -> Result<(), ApiError> {
    let Operation::Delete { old, .. } = operation else { return Ok(()) };
    match leader_fault(identity, None, old) {
        None => Ok(()),
        Some(cause) => {
            let name = old["metadata"]["name"].as_str().unwrap_or_default();
            Err(ApiError::forbidden(kind, name, &format!("{}: {}", cause.field, cause.message)))
        }
    }
}
