//! Trails: what is left in a shard's zone of routes that have moved to another one.
//!
//! ```text
//! *.shard1.v3.example.             A      as ever
//! shop-web.shard1.v3.example.      CNAME  shop-web.shard2.v3.example.
//! *.shop-web.shard1.v3.example.    CNAME  shop-web.shard2.v3.example.
//! ```
//!
//! The second record is there since a name that exists blocks the wildcard also for the names below it (RFC 4592 §3.3.1),
//! which the wildcard answered before.
//!
//! A RouteBinding holds the zones that its Route has left. Where their names lead is not stored but made from where the Route
//! is now, so that a Route that moves twice has two trails to its name of now, never a chain; and a zone that a Route has come
//! back to holds no trail of it, so that there is no loop.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::apex;
use super::digest::Digest;
use super::inputs::{BindingInput, RouterInput};
use super::verdict::Verdict;
use crate::wire::{Name, RecordType};
use crate::zone::{Contents, Ttl};

/// Longest TTL of a trail's CNAME in seconds. It is short, whatever the shard's, since a further move changes it.
const TTL_SECONDS_MAX: u32 = 30;

/// The trails in one shard's zone: the label of each route that has left, and the zone of the shard that it is on now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trails {
    labels: BTreeMap<Box<str>, Box<str>>,
    digest: Digest,
}

impl Trails {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// What they add to the digest of the shard's zone.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    fn set(&mut self, label: &str, shard: &str) {
        let part = Digest::of_trail(label, shard);
        match self.labels.entry(label.into()) {
            Entry::Occupied(mut entry) => {
                self.digest = self.digest.minus(Digest::of_trail(label, entry.get())).plus(part);
                entry.insert(shard.into());
            }
            Entry::Vacant(entry) => {
                self.digest = self.digest.plus(part);
                entry.insert(shard.into());
            }
        }
    }

    fn remove(&mut self, label: &str) {
        if let Some(shard) = self.labels.remove(label) {
            self.digest = self.digest.minus(Digest::of_trail(label, &shard));
        }
    }
}

/// The trails of all zones.
#[derive(Debug, Clone, Default)]
pub struct AllTrails(BTreeMap<Name, Arc<Trails>>);

impl AllTrails {
    /// The trails in the zone `apex`.
    pub fn of(&self, apex: &Name) -> Arc<Trails> {
        self.0.get(apex).cloned().unwrap_or_default()
    }

    /// Puts the trails of a binding in the place of those of the one that had its label before. The answer names the zones that
    /// this changes.
    pub fn replace(&mut self, before: Option<&BindingInput>, now: Option<&BindingInput>) -> Vec<Name> {
        let leads = |binding: Option<&BindingInput>, apex: &Name| {
            binding.filter(|binding| binding.trails.contains(apex)).map(|binding| binding.shard.clone())
        };
        let of = |binding: Option<&BindingInput>| binding.map_or(Vec::new(), |binding| binding.trails.to_vec());
        let Some(label) = now.or(before).map(|binding| &binding.label) else { return Vec::new() };
        let mut zones = of(before);
        zones.extend(of(now));
        zones.sort_unstable();
        zones.dedup();
        zones.retain(|apex| leads(before, apex) != leads(now, apex));
        for apex in &zones {
            let trails = self.0.entry(apex.clone()).or_default();
            match leads(now, apex) {
                Some(shard) => Arc::make_mut(trails).set(label, &shard),
                None => Arc::make_mut(trails).remove(label),
            }
            if trails.is_empty() {
                self.0.remove(apex);
            }
        }
        zones
    }
}

/// Puts the trails of a shard's zone into it. A label at which the Router has records of its own gets none, with a verdict: a
/// CNAME stands alone (RFC 1034 §3.6.2).
pub fn add(contents: &mut Contents, router: &RouterInput, verdicts: &mut Vec<Verdict>) {
    let ttl = Ttl::new(router.ttl.seconds().min(TTL_SECONDS_MAX)).expect("smaller than a TTL");
    for (label, shard) in &router.trails.labels {
        let target = shard.parse::<Name>().and_then(|shard| shard.prepend(label.as_bytes()));
        // BindingInput::read has checked both names.
        let (Ok(owner), Ok(target)) = (router.apex.prepend(label.as_bytes()), target) else { continue };
        if !contents.owner(&owner).is_empty() {
            let message = format!(
                "{owner} has records, so that it cannot lead to {target}, where its route has moved; take them out"
            );
            verdicts.push(Verdict::router(&router.name, "spec.records", message));
            continue;
        }
        let below = owner.wildcard().ok().filter(|below| contents.owner(below).is_empty());
        for owner in std::iter::once(owner).chain(below) {
            apex::set(contents, &owner, RecordType::CNAME, ttl, vec![target.as_wire().into()]);
        }
    }
}
