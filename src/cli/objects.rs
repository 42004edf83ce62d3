//! Objects of the API, for tests of commands.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Returns an object of the platform's API; a part that is null is left out.
pub(super) fn object<T: DeserializeOwned>(kind: &str, metadata: Value, spec: Value, status: Value) -> T {
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
        "status": status});
    serde_json::from_value(object).expect("an object of a test")
}
