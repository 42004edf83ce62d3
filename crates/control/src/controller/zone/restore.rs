//! Immediate service after a restart, from the zone images in the last-known-good state, before any object is processed.
//!
//! A shard's zone is part of the state, as published. The parent zone and the alias zone can have a million names and change with
//! each, so they are not part of it, but are derived from the Routers and bindings. If the derived zone does not match the last
//! published digest, as after a kill between a change and its publication, the zone is left out, and its names wait for the
//! objects.

use std::sync::Arc;

use super::record::Loaded;
use super::version_history::Published;
use crate::compiler::inputs::RouterInput;
use crate::compiler::parent::{self, Delegations};
use crate::compiler::{Digest, Settings, alias};
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::image::Unavailable;
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::{Contents, Zone, db, stored};

/// The zones published before a restart.
#[derive(Default)]
pub struct Restored {
    pub shards: NameMap<Arc<Zone>>,
    pub parent: Option<Arc<Zone>>,
    pub alias: Option<Arc<Zone>>,
    /// The shards whose zone must be rebuilt.
    pub missing: Vec<Name>,
}

impl Restored {
    /// Takes the images out of the loaded state, and builds the two zones that are not part of it. Zones of another configuration
    /// are omitted, because they contain its name servers.
    pub fn take(loaded: &mut Loaded, settings: &Settings) -> Restored {
        let config = settings.digest();
        let published = |apex: &Name| loaded.published.get(apex).filter(|published| published.config == config);
        let stored = std::mem::take(&mut loaded.zones);
        let shard = |(apex, octets): &(Name, Box<[u8]>)| {
            let published =
                published(apex).filter(|_| *apex != *settings.domain() && *apex != *settings.alias_apex())?;
            stored::restore(octets).filter(|zone| zone.serial() == Some(published.serial)).map(Arc::new)
        };
        let (shards, parent, alias) = std::thread::scope(|scope| {
            // It takes longest, and is one thread's work.
            let parent = published(settings.domain())
                .map(|published| scope.spawn(|| restore_parent(&loaded.routers, settings, published)));
            let shards = in_parallel(&stored, shard).into_iter();
            let shards: NameMap<_> = shards.filter_map(|((apex, _), zone)| Some((apex.clone(), zone?))).collect();
            let alias =
                published(settings.alias_apex()).and_then(|published| restore_alias(loaded, settings, published));
            (shards, parent.and_then(|thread| thread.join().expect("making a zone does not panic")), alias)
        });
        let apexes = loaded.routers.iter().map(|router| &router.apex);
        let is_missing = |apex: &&Name| !shards.contains_key(*apex) && published(apex).is_some();
        let missing = apexes.filter(is_missing).cloned().collect();
        Restored { shards, parent, alias, missing }
    }

    /// Returns whether there are no zones.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty() && self.parent.is_none() && self.alias.is_none()
    }

    /// Returns whether all zones exist.
    pub fn is_whole(&self) -> bool {
        self.parent.is_some() && self.alias.is_some() && self.missing.is_empty()
    }

    /// Returns the changes for the map of zones. A placeholder replaces a missing zone; otherwise, the parent zone would answer
    /// that its names do not exist, or refer to another place.
    pub fn changes(&self, settings: &Settings) -> Vec<db::ZoneUpdate> {
        let large = [(&self.parent, settings.domain()), (&self.alias, settings.alias_apex())];
        let large = large.map(|(zone, apex)| match zone {
            Some(zone) => Arc::clone(zone),
            None => not_there(apex),
        });
        let missing = self.missing.iter().map(not_there);
        // Of two zones at one apex, the last counts: a Router may request the apex of the platform, in vain.
        self.shards.values().cloned().chain(missing).chain(large).map(db::ZoneUpdate::Publish).collect()
    }
}

fn not_there(apex: &Name) -> Arc<Zone> {
    Arc::new(Zone::unavailable(apex.clone(), Unavailable::NotLoaded))
}

fn restore_parent(routers: &[RouterInput], settings: &Settings, published: &Published) -> Option<Arc<Zone>> {
    let mut delegations = Delegations::default();
    let apexes = routers.iter().map(|router| &router.apex);
    apexes.filter(|apex| apex.is_below(settings.domain())).for_each(|apex| delegations.insert(apex.clone()));
    (delegations.digest() == published.digest).then(|| build(&parent::zone(&delegations, settings, published.serial.0)))
}

fn restore_alias(loaded: &Loaded, settings: &Settings, published: &Published) -> Option<Arc<Zone>> {
    let parts = loaded.bindings.iter().map(|binding| Digest::of_alias(&binding.label, binding.target()));
    let digest = parts.fold(Digest::default(), Digest::plus);
    (digest == published.digest).then(|| build(&alias::zone(&loaded.bindings, settings, published.serial.0)))
}

fn build(contents: &Contents) -> Arc<Zone> {
    Arc::new(Zone::build(contents).expect("the zone has been given a SOA"))
}
