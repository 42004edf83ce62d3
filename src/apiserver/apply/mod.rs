//! Who owns which field: server-side apply, and the book-keeping of all other writes.

use jiff::Timestamp;
use serde_json::Value;

use super::error::ApiError;
use super::registry::Kind;

/// Server-side apply: merges `config` into `live` (`None`: the object is not there) and returns the object as it will be,
/// `metadata.managedFields` included. The result equals `live` where nothing changes. A conflict is 409 with a cause for
/// each field and owner.
///
/// `config` must be pruned already. With `subresource` `status` only its status counts, without it all but the status.
pub fn server_side_apply(
    _kind: &Kind,
    _live: Option<&Value>,
    _config: Value,
    _manager: &str,
    _force: bool,
    _subresource: Option<&str>,
    _now: Timestamp,
) -> Result<Value, ApiError> {
    todo!()
}

/// Sets `new.metadata.managedFields` for a write that is no apply (`old` is `None`: a create): `manager` owns what it changed.
/// `new` may carry the `managedFields` that the client sent. Fills in the schema's defaults, which nobody owns.
pub fn track_update(
    kind: &Kind,
    _old: Option<&Value>,
    new: &mut Value,
    _manager: &str,
    _subresource: Option<&str>,
    _now: Timestamp,
) {
    super::schema::apply_defaults(&kind.schema, new);
}
