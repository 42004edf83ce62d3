//! The uid of an object.

use std::fmt;
use std::sync::Arc;

/// The uid of an object; clones share the text.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Arc<str>);

impl Uid {
    pub fn new(text: &str) -> Self {
        Uid(text.into())
    }

    /// Returns the uid of an object, which can be missing.
    pub fn of(uid: Option<&str>) -> Self {
        Uid::new(uid.unwrap_or_default())
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, text: &str) -> bool {
        *self.0 == *text
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
