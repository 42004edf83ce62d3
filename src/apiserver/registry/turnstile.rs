//! Turnstiles: how a rule that counts other objects is held to what it counted.
//!
//! A transaction can demand of a key that it was not written since. It cannot demand that nothing was *added* under a
//! prefix: "no zone overlaps this one" and "no Route is bound to this Router" are such demands. A turnstile is a key for
//! each of them. Whoever adds something writes it, in the same transaction; whoever counts reads it first, waits until the
//! cache shows that moment ([`Reader::passed`]), counts in the cache, and demands in its transaction that nobody has
//! passed since. If somebody has, it counts anew. That holds among several servers over one store, and needs no mending
//! after a crash: the key says nothing but when it was written.
//!
//! Turnstiles lie beside the objects in the store, under a prefix that no kind has: no list and no watch shows them, while
//! backups carry them like everything else. A database of an earlier version has none; an absent one was never passed.
//!
//! [`Reader::passed`]: super::Reader::passed

use serde_json::json;

use super::{Effect, SideWrite};
use crate::apiserver::engine;
use crate::store::Key;

/// What a [`SideWrite`] has for a kind if it is about a turnstile. No kind is called so.
pub const KIND: &str = "Turnstile";
/// Where turnstiles lie in the store.
pub const PREFIX: &str = "/signpost.dev/turnstiles/";

/// A turnstile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turnstile<'a> {
    /// To the zones of shards: each new Router passes.
    Zones,
    /// To the Router of this name: each binding passes.
    Router(&'a str),
}

impl Turnstile<'_> {
    /// Its key, behind [`PREFIX`].
    fn name(&self) -> String {
        match self {
            Turnstile::Zones => "zones".to_owned(),
            Turnstile::Router(name) => format!("routers/{name}"),
        }
    }

    /// Its key in the store.
    pub fn key(&self) -> Key {
        engine::key(PREFIX, &self.name())
    }

    /// Passes, whoever else does.
    pub fn pass(&self) -> SideWrite {
        self.write(None, Effect::Pass)
    }

    /// Passes if nobody has since `passed` was read.
    pub fn pass_next(&self, passed: Option<String>) -> SideWrite {
        self.write(passed, Effect::Put(json!({})))
    }

    /// Takes it away, if nobody has passed since `passed` was read.
    pub fn remove(&self, passed: Option<String>) -> SideWrite {
        self.write(passed, Effect::Delete)
    }

    fn write(&self, expect: Option<String>, effect: Effect) -> SideWrite {
        SideWrite { kind: KIND, namespace: None, name: self.name(), expect, effect }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kinds;
    use super::*;

    #[test]
    fn no_kind_shows_them() {
        for turnstile in [Turnstile::Zones, Turnstile::Router("zones")] {
            let key = turnstile.key();
            assert!(kinds().iter().all(|kind| !key.0.starts_with(kind.key_prefix)), "{key:?}");
        }
        assert!(kinds().iter().all(|kind| kind.kind != KIND));
        assert_ne!(Turnstile::Zones.key(), Turnstile::Router("zones").key());
    }
}
