//! Conflict keys: materialized conflicts, which hold a hook that counts other objects to what it counted.
//!
//! A transaction can demand of a key that it was not written since. It cannot demand that nothing was *added* under a prefix,
//! such as "no object overlaps this one" or "no object refers to this one". A conflict key stands for such a demand. Whoever
//! adds something touches it, in the same transaction. Whoever counts reads it first, waits until the cache shows that moment
//! ([`Reader::touched`]), counts in the cache, and demands in its transaction that nobody has touched it since. If somebody
//! has, it counts again. That holds among several servers over one store, and needs no repair after a crash: the key says
//! nothing but when it was written.
//!
//! Conflict keys lie beside the objects in the store, under a prefix that no kind has: no list and no watch shows them, while
//! backups carry them like everything else. An absent one was never touched.
//!
//! [`Reader::touched`]: super::Reader::touched

use serde_json::json;

use super::{RelatedWrite, SideEffect};
use crate::store::Key;

/// The `kind` of a [`RelatedWrite`] to a conflict key. No kind may be called so.
pub const KIND: &str = "ConflictKey";

/// A conflict key, by its whole key in the store, which must be under the prefix of no kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConflictKey(pub String);

impl ConflictKey {
    /// The key in the store.
    pub fn key(&self) -> Key {
        Key(self.0.as_str().into())
    }

    /// Touches it, whoever else does.
    pub fn touch(&self) -> RelatedWrite {
        self.write(None, SideEffect::Touch)
    }

    /// Touches it if nobody has since `touched` was read.
    pub fn touch_next(&self, touched: Option<String>) -> RelatedWrite {
        self.write(touched, SideEffect::Put(json!({})))
    }

    /// Deletes it if nobody has touched it since `touched` was read.
    pub fn remove(&self, touched: Option<String>) -> RelatedWrite {
        self.write(touched, SideEffect::Delete)
    }

    fn write(&self, expect: Option<String>, effect: SideEffect) -> RelatedWrite {
        RelatedWrite { kind: KIND, namespace: None, name: self.0.clone(), expect, effect }
    }
}
