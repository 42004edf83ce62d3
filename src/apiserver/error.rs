//! Failures as Kubernetes tells them: `Status` objects.

/// One fault in an object, at one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, `FieldValueNotSupported`, `FieldValueDuplicate`, `FieldValueForbidden`,
    /// `FieldValueTooLong`, `FieldValueTypeInvalid`, `FieldManagerConflict`.
    pub reason: &'static str,
    /// Path of the field, such as `spec.addresses[0].ip`.
    pub field: String,
    /// What is wrong and what to do, as kubectl prints it after the path, such as `Invalid value: "x": must be …`.
    pub message: String,
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// What people read.
    pub message: String,
    /// What failed: the plural or, for `Invalid`, the kind.
    pub kind: Option<String>,
    /// API group of what failed.
    pub group: Option<String>,
    /// Name of the object.
    pub name: Option<String>,
    /// Its single faults.
    pub causes: Vec<Cause>,
    /// When to try again, in seconds.
    pub retry_after_seconds: Option<u32>,
}
