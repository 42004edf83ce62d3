//! Structural schemas: what an object may hold, walked over JSON values.
//!
//! A schema is an OpenAPI v3 document of the structural kind (no references, no `oneOf` over shapes), as JSON.

use serde_json::Value;

use super::error::Cause;

/// JSON or YAML text that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseError(pub String);

/// Reads JSON. Also returns the paths of keys that stand twice in one object (the last one counts), such as `spec.host`.
pub fn parse_json(_bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    todo!()
}

/// Reads one YAML document (or JSON); as [`parse_json`].
pub fn parse_yaml(_bytes: &[u8]) -> Result<(Value, Vec<String>), ParseError> {
    todo!()
}

/// Removes the fields that the schema does not know, and returns their paths, such as `spec.bogus` or
/// `spec.addresses[0].bogus`.
pub fn prune(_schema: &Value, _object: &mut Value) -> Vec<String> {
    todo!()
}

/// Fills in the defaults of absent fields, and removes fields that are `null`.
pub fn apply_defaults(_schema: &Value, _object: &mut Value) {
    todo!()
}

/// The faults of an object against its schema, one for each, in the order of the object.
pub fn validate(_schema: &Value, _object: &Value) -> Vec<Cause> {
    todo!()
}
