//! Immediate service after a restart, from the zone images in the last-known-good state, before any object is processed.
//!
//! A shard's zone is part of the state, as published. The parent zone and the alias zone can have a million names and change with
//! each, so they are not part of it, but are derived from the Routers, bindings, and ChallengeRecords. If the derived zone does not match the last
//! published digest, as after a kill between a change and its publication, the zone is left out, and its names wait for the
//! objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::record::Loaded;
use super::version_history::Published;
use crate::compiler::challenges::{self, TextValues, first_label, is_of_host};
use crate::compiler::parent::{self, Delegations};
use crate::compiler::{Digest, Settings, alias};
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::publish::{self, Change, Origin};
use signpost_dns::zone::{Contents, Zone, stored};

/// The zones published before a restart.
#[derive(Default)]
pub struct Restored {
    pub shards: NameMap<Arc<Zone>>,
    /// The parent and alias zones of all domains.
    pub large: NameMap<Arc<Zone>>,
    /// The shards whose zone must be rebuilt.
    pub missing: Vec<Name>,
}

impl Restored {
    /// Takes the images out of the loaded state, and builds the two zones that are not part of it. Zones of another configuration
    /// are omitted, because they contain its name servers.
    pub fn take(loaded: &mut Loaded, settings: &Settings) -> Restored {
        let config = settings.digest();
        let published = |apex: &Name| loaded.published.get(apex).filter(|published| published.config == config);
        let platform = large(settings);
        let stored = std::mem::take(&mut loaded.zones);
        let shard = |(apex, octets): &(Name, Box<[u8]>)| {
            let published = published(apex).filter(|_| !platform.contains(&apex))?;
            stored::restore(octets).filter(|zone| zone.serial() == Some(published.serial)).map(Arc::new)
        };
        let last = |apex: &Name, domain: &Settings| {
            loaded.published.get(apex).filter(|published| published.config == domain.digest())
        };
        let (state, texts) = (&*loaded, &texts(loaded));
        let (shards, large) = std::thread::scope(|scope| {
            // They take longest, and each is one thread's work.
            let parents = domains(settings).filter_map(|domain| Some((domain, last(domain.domain(), domain)?)));
            let parents =
                parents.map(|(domain, last)| scope.spawn(move || restore_parent(state, texts, settings, domain, last)));
            let parents: Vec<_> = parents.collect();
            let shards = in_parallel(&stored, shard).into_iter();
            let shards: NameMap<_> = shards.filter_map(|((apex, _), zone)| Some((apex.clone(), zone?))).collect();
            let aliases = domains(settings).filter_map(|domain| Some((domain, last(domain.alias_apex(), domain)?)));
            let aliases: Vec<_> =
                aliases.map(|(domain, last)| restore_alias(state, texts, settings, domain, last)).collect();
            let parents = parents.into_iter().map(|thread| thread.join().expect("making a zone does not panic"));
            let large = parents.chain(aliases).flatten().map(|zone| (zone.apex().clone(), zone)).collect();
            (shards, large)
        });
        let apexes = loaded.routers.iter().map(|router| &router.apex);
        let is_missing = |apex: &&Name| !shards.contains_key(*apex) && published(apex).is_some();
        let missing = apexes.filter(is_missing).cloned().collect();
        Restored { shards, large, missing }
    }

    /// Returns whether there are no zones.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.large.is_empty()
    }

    /// Returns whether all zones exist.
    pub fn is_whole(&self, settings: &Settings) -> bool {
        large(settings).into_iter().all(|apex| self.large.contains_key(apex)) && self.missing.is_empty()
    }

    /// Returns the changes to publish. A placeholder replaces a missing zone; otherwise, the parent zone would answer
    /// that its names do not exist, or refer to another place.
    pub fn changes(&self, settings: &Settings) -> Vec<Change> {
        let change = |apex: &Name, zone: Option<&Arc<Zone>>| match zone {
            Some(zone) => Change::whole(Origin::Objects, Arc::clone(zone)),
            None => Change::unavailable(Origin::Objects, apex),
        };
        let shards = self.shards.iter().map(|(apex, zone)| change(apex, Some(zone)));
        let missing = self.missing.iter().map(|apex| change(apex, None));
        // Of two zones at one apex, the last counts: a Router may request the apex of the platform, in vain.
        let large = large(settings).into_iter().map(|apex| change(apex, self.large.get(apex)));
        shards.chain(missing).chain(large).collect()
    }
}

/// Returns the settings of each domain.
fn domains(settings: &Settings) -> impl Iterator<Item = &Settings> {
    [settings].into_iter().chain(settings.former_domains().iter().map(|former| &**former))
}

/// Returns the apexes of the parent and alias zones of all domains.
fn large(settings: &Settings) -> Vec<&Name> {
    domains(settings).flat_map(|domain| [domain.domain(), domain.alias_apex()]).collect()
}

/// Returns the values of the ChallengeRecords. One whose name is not of its namespace is not served: then the digest differs.
fn texts(loaded: &Loaded) -> TextValues {
    let mut challenges: Vec<_> = loaded.challenges.iter().collect();
    challenges.sort_by_key(|(key, challenge)| (challenge.created, key));
    let mut texts = TextValues::default();
    challenges.into_iter().for_each(|(_, challenge)| texts.add(&challenge.owner, &challenge.value));
    texts
}

/// Builds the parent zone of a domain. `settings`: those of the whole platform.
fn restore_parent(
    loaded: &Loaded,
    texts: &TextValues,
    settings: &Settings,
    domain: &Settings,
    published: &Published,
) -> Option<Arc<Zone>> {
    let mut delegations = Delegations::default();
    let apexes = loaded.routers.iter().map(|router| &router.apex).chain(domains(settings).map(Settings::domain));
    apexes.filter(|apex| apex.is_below(domain.domain())).for_each(|apex| delegations.insert(apex.clone()));
    for (owner, values) in texts.iter().filter(|(owner, _)| is_of_host(owner, domain.domain())) {
        delegations.set_texts(owner, values.clone());
    }
    (delegations.digest() == published.digest).then(|| build(parent::zone(&delegations, domain, published.serial.0)))
}

/// Builds the alias zone of a domain. `settings`: those of the whole platform, whose alias zones have the same values.
fn restore_alias(
    loaded: &Loaded,
    texts: &TextValues,
    settings: &Settings,
    domain: &Settings,
    published: &Published,
) -> Option<Arc<Zone>> {
    let mut below: BTreeMap<Box<str>, BTreeSet<Box<str>>> = BTreeMap::new();
    for (owner, values) in texts.iter() {
        let alias = owner.parent().filter(|alias| {
            let zone = alias.parent();
            domains(settings).any(|domain| zone.as_ref() == Some(domain.alias_apex()))
        });
        if let Some(label) = alias.and_then(|alias| first_label(&alias)) {
            below.entry(label.into()).or_default().extend(values.iter().cloned());
        }
    }
    let parts = loaded.bindings.iter().map(|binding| Digest::of_alias(&binding.label, binding.target()));
    let texts = below.iter().map(|(label, values)| challenges::digest(label.as_bytes(), values));
    let digest = parts.chain(texts).fold(Digest::default(), Digest::plus);
    (digest == published.digest).then(|| build(alias::zone(&loaded.bindings, &below, domain, published.serial.0)))
}

fn build(contents: Contents) -> Arc<Zone> {
    publish::build(contents).expect("the zone has been given a SOA")
}
