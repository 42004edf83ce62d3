//! Faults of single fields, with Kubernetes' messages.

use serde_json::{Value, json};

/// One fault in an object, at one field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, `FieldValueNotSupported`, `FieldValueDuplicate`, `FieldValueForbidden`,
    /// `FieldValueTooLong`, `FieldValueTypeInvalid`, `FieldManagerConflict`.
    pub reason: &'static str,
    /// Path of the field, such as `spec.addresses[0].ip`.
    pub field: String,
    /// The problem and the action, as kubectl prints it after the path, such as `Invalid value: "x": must be …`.
    pub message: String,
}

impl Cause {
    /// The reason of [`Self::type_invalid`].
    pub const TYPE_INVALID: &'static str = "FieldValueTypeInvalid";
    /// The reason of [`Self::too_long`].
    pub const TOO_LONG: &'static str = "FieldValueTooLong";
    /// The reason of [`Self::too_many`].
    pub const TOO_MANY: &'static str = "FieldValueTooMany";

    /// Returns a fault at `field`.
    pub fn new(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Cause { reason, field: field.into(), message: message.into() }
    }

    /// Returns the fault of a missing required field.
    pub fn required(field: impl Into<String>, what: &str) -> Self {
        let message = if what.is_empty() { "Required value".to_owned() } else { format!("Required value: {what}") };
        Self::new("FieldValueRequired", field, message)
    }

    /// Returns a value that cannot be: `Invalid value: "x": what`.
    pub fn invalid(field: impl Into<String>, value: &Value, what: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {}: {what}", shown(value)))
    }

    /// Returns a value of the wrong JSON type.
    pub fn type_invalid(field: &str, value: &Value, expected: &str) -> Self {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let message = format!("Invalid value: \"{found}\": {field} in body must be of type {expected}: \"{found}\"");
        Self::new(Self::TYPE_INVALID, field, message)
    }

    /// Returns a value outside an enumeration.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list: Vec<String> = supported.iter().map(|one| format!("{one:?}")).collect();
        let message = format!("Unsupported value: {}: supported values: {}", shown(value), list.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    /// Returns a value that may be there once only.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {}", shown(value)))
    }

    /// Returns a value that may not be set, or not by this sender.
    pub fn forbidden(field: impl Into<String>, what: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {what}"))
    }

    /// Returns the fault of a reference to a missing object.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueNotFound", field, format!("Not found: {}", shown(value)))
    }

    /// Returns the fault of a text over its maximum length in octets.
    pub fn too_long(field: impl Into<String>, octets_max: u64) -> Self {
        Self::new(Self::TOO_LONG, field, format!("Too long: may not be more than {octets_max} bytes"))
    }

    /// Returns a list or map with too many items.
    pub fn too_many(field: impl Into<String>, found: usize, items_max: u64) -> Self {
        Self::new(Self::TOO_MANY, field, format!("Too many: {found}: must have at most {items_max} items"))
    }

    /// Returns the form in a `Status`.
    pub(crate) fn to_value(&self) -> Value {
        let mut cause = json!({"reason": self.reason, "message": self.message});
        if !self.field.is_empty() {
            cause["field"] = Value::from(self.field.as_str());
        }
        cause
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.as_str() {
            "" => formatter.write_str(&self.message),
            field => write!(formatter, "{field}: {}", self.message),
        }
    }
}

/// Returns a value as messages show it, cut where it is long. The rest is not written: several causes can show one large value.
fn shown(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 512;
    struct Excerpt {
        text: String,
        left: usize,
    }
    impl std::fmt::Write for Excerpt {
        fn write_str(&mut self, more: &str) -> std::fmt::Result {
            for character in more.chars() {
                self.left = self.left.checked_sub(1).ok_or(std::fmt::Error)?;
                self.text.push(character);
            }
            Ok(())
        }
    }
    let mut shown = Excerpt { text: String::new(), left: CHARACTERS_MAX };
    if std::fmt::Write::write_fmt(&mut shown, format_args!("{value}")).is_err() {
        shown.text.push('…');
    }
    shown.text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut() {
        for (value, expected) in [
            (json!({"a": "ä"}), r#"{"a":"ä"}"#.to_owned()),
            (json!("x".repeat(510)), format!("\"{}\"", "x".repeat(510))),
            (json!("ä".repeat(511)), format!("\"{}…", "ä".repeat(511))),
            (json!(vec![1; 100_000]), format!("[{}1…", "1,".repeat(255))),
        ] {
            assert_eq!(shown(&value), expected);
        }
    }
}
