//! The uid of an object.

use std::sync::Arc;

/// The uid of an object, empty if it has none; clones share the text.
pub type Uid = Arc<str>;
