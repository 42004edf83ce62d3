//! JSON patch (RFC 6902) and merge patch (RFC 7386).

use serde_json::Value;

use super::error::ApiError;

/// Applies a JSON patch. A body that is no list of operations is 400; a failed `test` or a path that is not there is 422,
/// and leaves `target` as it was.
pub fn json_patch(_target: &mut Value, _body: &[u8]) -> Result<(), ApiError> {
    todo!()
}

/// Applies a merge patch: `null` removes, objects merge, all else replaces.
pub fn merge_patch(_target: &mut Value, _patch: &Value) {
    todo!()
}
