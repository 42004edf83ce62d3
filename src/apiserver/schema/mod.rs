//! Structural schemas: what an object may hold, walked over JSON values.
//!
//! A schema is an OpenAPI v3 document of the structural kind (no references, one shape at each place), as JSON. Each walk
//! is a file: [`parse`](mod@parse) reads text and remembers keys that stand twice, [`prune`](mod@prune) takes out what the
//! schema does not know, [`defaults`] fills in what is absent, [`validate`](mod@validate) finds the faults, in the words of
//! Kubernetes. [`structural`] makes such schemas from those of our types.

pub mod defaults;
pub mod parse;
pub mod prune;
pub mod structural;
pub mod validate;

use serde_json::Value;

pub use defaults::apply_defaults;
pub use parse::{ParseError, parse_json, parse_yaml};
pub use prune::prune;
pub use validate::validate;

/// The schema of the field `name` of an object with this schema, declared or by `additionalProperties`.
pub(super) fn of_field<'a>(schema: &'a Value, name: &str) -> Option<&'a Value> {
    schema
        .get("properties")
        .and_then(|properties| properties.get(name))
        .or_else(|| schema.get("additionalProperties").filter(|additional| additional.is_object()))
}

/// Whether fields that the schema does not name are kept.
pub(super) fn preserves_unknown(schema: &Value) -> bool {
    schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
        || schema.get("additionalProperties") == Some(&Value::Bool(true))
}

/// The path of a field: `spec.host`, at the root just `spec`.
pub(super) fn field_path(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}
