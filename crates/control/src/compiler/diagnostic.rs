//! Problems of objects: the compiler's result for unusable input.
//!
//! The API server validates before it stores, so a diagnostic is rare: an object from another version, or a conflict between two
//! objects that are valid separately. It appears in the object's status and in the log; the rest of the zone is served.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    Router(Box<str>),
    /// A RouteBinding, by `<namespace>/<name>`.
    Binding(Box<str>),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Router(name) => write!(f, "Router {name}"),
            Object::Binding(key) => write!(f, "RouteBinding {key}"),
        }
    }
}

/// One problem of one object: its position, and the necessary correction.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The object at fault.
    pub object: Object,
    /// The field, such as `spec.records[2]`.
    pub path: String,
    /// The problem, and the required form.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.object, self.path, self.message)
    }
}

impl Diagnostic {
    pub fn router(name: &str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Diagnostic { object: Object::Router(name.into()), path: path.into(), message: message.into() }
    }

    /// Returns a diagnostic on a RouteBinding, named by `<namespace>/<name>`.
    pub fn binding(key: &str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Diagnostic { object: Object::Binding(key.into()), path: path.into(), message: message.into() }
    }
}
