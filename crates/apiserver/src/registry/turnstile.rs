//! Turnstiles: how a rule that counts other objects is held to what it counted.
//!
//! A transaction can demand of a key that it was not written since. It cannot demand that nothing was *added* under a
//! prefix: "no zone overlaps this one", "no Route is bound to this Router" and "no host below this wildcard is held" are such demands. A turnstile is a key for
//! each of them. Whoever adds something writes it, in the same transaction; whoever counts reads it first, waits until the
//! cache shows that moment ([`Reader::passed`]), counts in the cache, and demands in its transaction that nobody has
//! passed since. If somebody has, it counts anew. That holds among several servers over one store, and needs no mending
//! after a crash: the key says nothing but when it was written.
//!
//! Turnstiles lie beside the objects in the store, under a prefix that no kind has: no list and no watch shows them, while
//! backups carry them like everything else. A database of an earlier version has none; an absent one was never passed.
//!
//! [`Reader::passed`]: super::Reader::passed

use aws_lc_rs::digest::{SHA256, digest};
use serde_json::json;

use super::{Effect, SideWrite};
use crate::engine;
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
    /// To the custom hosts whose last two labels are those of this one: each claim on such a host passes. They share 256 keys,
    /// so that there are not as many as there were domains ever.
    HostsOf(&'a str),
    /// To all custom hosts: each claim on one passes.
    Hosts,
}

impl Turnstile<'_> {
    /// Its key, behind [`PREFIX`].
    fn name(&self) -> String {
        match self {
            Turnstile::Zones => "zones".to_owned(),
            Turnstile::Router(name) => format!("routers/{name}"),
            Turnstile::HostsOf(host) => {
                let host = host.to_ascii_lowercase();
                let start = host.rmatch_indices('.').nth(1).map_or(0, |(dot, _)| dot + 1);
                let hash = digest(&SHA256, &host.as_bytes()[start..]);
                format!("hosts/{:02x}", hash.as_ref()[0])
            }
            Turnstile::Hosts => "hosts/all".to_owned(),
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
        for turnstile in [Turnstile::Zones, Turnstile::Router("zones"), Turnstile::Hosts, Turnstile::HostsOf("a.b")] {
            let key = turnstile.key();
            assert!(kinds().iter().all(|kind| !key.0.starts_with(kind.key_prefix)), "{key:?}");
        }
        assert!(kinds().iter().all(|kind| kind.kind != KIND));
        assert_ne!(Turnstile::Zones.key(), Turnstile::Router("zones").key());
        assert_ne!(Turnstile::Hosts.key(), Turnstile::Router("all").key());
    }

    #[test]
    fn hosts_of_one_domain_share_one() {
        for host in ["shop.example", "*.shop.example", "a.b.SHOP.Example"] {
            assert_eq!(Turnstile::HostsOf(host).key(), Turnstile::HostsOf("www.shop.example").key(), "{host}");
        }
        assert_ne!(Turnstile::HostsOf("shop.example").key(), Turnstile::HostsOf("shop.test").key());
        assert_ne!(Turnstile::HostsOf("example").key(), Turnstile::Hosts.key());
    }
}
