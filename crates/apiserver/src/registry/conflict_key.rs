//! Conflict keys: materialized conflicts, which detect changes to the objects that a hook has counted.
//!
//! A transaction can require that a key was not written since. It cannot require that nothing was *added* under a prefix, such as
//! "no object overlaps this one" or "no object refers to this one". A conflict key represents such a requirement. A transaction
//! that adds an object also touches the key. A transaction that counts objects first reads the key, waits until the cache has
//! reached that moment ([`Reader::touched`]), counts in the cache, and requires at its commit that the key is unchanged. If the
//! key has changed, it counts again. This works with several servers over one store, and needs no repair after a crash: the key
//! contains only the time of its last write.
//!
//! Conflict keys are in the store under a prefix that no kind has. Lists and watches do not contain them, but backups do. An
//! absent key was never touched.
//!
//! [`Reader::touched`]: super::Reader::touched

use serde_json::json;

use super::{RelatedWrite, SideEffect};
use crate::store::Key;

/// The `kind` of a [`RelatedWrite`] to a conflict key. No kind may have this name.
pub const KIND: &str = "ConflictKey";

/// A conflict key, by its whole key in the store, which must not be under the prefix of any kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictKey(pub String);

impl ConflictKey {
    /// Returns the key in the store.
    pub fn key(&self) -> Key {
        Key(self.0.as_str().into())
    }

    /// Returns the write that touches the key, regardless of other writes.
    pub fn touch(&self) -> RelatedWrite {
        self.write(None, SideEffect::Touch)
    }

    /// Returns the write that touches the key if it is unchanged since `touched` was read.
    pub fn touch_next(&self, touched: Option<String>) -> RelatedWrite {
        self.write(touched, SideEffect::Put(json!({})))
    }

    /// Returns the write that deletes the key if it is unchanged since `touched` was read.
    pub fn remove(&self, touched: Option<String>) -> RelatedWrite {
        self.write(touched, SideEffect::Delete)
    }

    fn write(&self, expect: Option<String>, effect: SideEffect) -> RelatedWrite {
        RelatedWrite { kind: KIND, namespace: None, name: self.0.clone(), expect, effect }
    }
}
