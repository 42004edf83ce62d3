//! Faults of single fields, in Kubernetes' words.

use serde_json::Value;

use crate::error::Cause;

/// A field that must be set is absent.
pub fn required(path: &str, what: &str) -> Cause {
    let message = if what.is_empty() { "Required value".to_owned() } else { format!("Required value: {what}") };
    Cause { reason: "FieldValueRequired", field: path.to_owned(), message }
}

/// A value that cannot be: `Invalid value: "x": what`.
pub fn invalid(path: &str, value: &Value, what: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        field: path.to_owned(),
        message: format!("Invalid value: {}: {what}", shown(value)),
    }
}

/// The reason of [`type_invalid`].
pub const TYPE_INVALID: &str = "FieldValueTypeInvalid";

/// The reason of [`too_long`].
pub const TOO_LONG: &str = "FieldValueTooLong";
/// The reason of [`too_many`].
pub const TOO_MANY: &str = "FieldValueTooMany";

/// A value of the wrong JSON type.
pub fn type_invalid(path: &str, value: &Value, expected: &str) -> Cause {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Cause {
        reason: TYPE_INVALID,
        field: path.to_owned(),
        message: format!("Invalid value: \"{found}\": {path} in body must be of type {expected}: \"{found}\""),
    }
}

/// A value outside an enumeration.
pub fn not_supported(path: &str, value: &Value, supported: &[&str]) -> Cause {
    let list: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
    Cause {
        reason: "FieldValueNotSupported",
        field: path.to_owned(),
        message: format!("Unsupported value: {}: supported values: {}", shown(value), list.join(", ")),
    }
}

/// A value that may be there once only.
pub fn duplicate(path: &str, value: &Value) -> Cause {
    Cause {
        reason: "FieldValueDuplicate",
        field: path.to_owned(),
        message: format!("Duplicate value: {}", shown(value)),
    }
}

/// A value that may not be set, or not by this sender.
pub fn forbidden(path: &str, what: &str) -> Cause {
    Cause { reason: "FieldValueForbidden", field: path.to_owned(), message: format!("Forbidden: {what}") }
}

/// Another object that is named and is not there.
pub fn not_found(path: &str, value: &Value) -> Cause {
    Cause { reason: "FieldValueNotFound", field: path.to_owned(), message: format!("Not found: {}", shown(value)) }
}

/// Text over its length in octets.
pub fn too_long(path: &str, octets_max: u64) -> Cause {
    Cause {
        reason: TOO_LONG,
        field: path.to_owned(),
        message: format!("Too long: may not be more than {octets_max} bytes"),
    }
}

/// A list or map with too many items.
pub fn too_many(path: &str, found: usize, items_max: u64) -> Cause {
    Cause {
        reason: TOO_MANY,
        field: path.to_owned(),
        message: format!("Too many: {found}: must have at most {items_max} items"),
    }
}

/// A value as messages show it, cut where it is long.
fn shown(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 512;
    let text = value.to_string();
    if text.chars().count() <= CHARACTERS_MAX {
        return text;
    }
    text.chars().take(CHARACTERS_MAX).chain("…".chars()).collect()
}
