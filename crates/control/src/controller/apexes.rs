//! The owner of each apex: a zone file or the objects of the API, never both.
//!
//! Two loops publish into one map of zones, and this register separates them: the loop of the zone files records the apexes that
//! its files serve, and the loop of the objects skips these. A file wins, because the operator of this name server put it there;
//! the Router with the same apex gets a diagnostic that names the file. Two apexes belong to the platform: the file of the
//! platform's domain is not a zone but the base of the parent zone, and a file for the alias zone is rejected. The same holds for
//! each former domain that is served; a file that was served before the former domain was known, or when its service ends, changes
//! its use.
//!
//! An apex whose only files have errors has no owner: it answers SERVFAIL if no other zone contains the name, and a zone of the
//! platform replaces it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::compiler::Settings;
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::image::{DENIES_ALWAYS, Unavailable};
use signpost_dns::zone::{Contents, Zone, ZoneDb, db};

/// The problem with a file for an alias zone.
pub const ALIASES_REFUSED: &str =
    "the alias zone is built from the API's objects and cannot come from a file; remove the file";

/// The register.
pub struct ApexOwners {
    /// The platform's domain and alias zone; `None` on a name server that serves only zone files.
    platform: Option<(Name, Name)>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    files: NameMap<Arc<Path>>,
    /// The placeholders for the zones of broken files, until a real zone exists.
    broken: NameMap<Arc<Zone>>,
    /// The bases of parent zones, by apex.
    bases: NameMap<Base>,
    /// The former domains of the platform, each with its alias zone.
    former_domains: Vec<(Name, Name)>,
    /// Whether existing names may be missing from the platform's zones, because objects cannot be read.
    partial: bool,
    /// The time until which the parent and the alias zone may deny names, in seconds since the epoch; `None`: always.
    denies_until: Option<u64>,
}

/// The contents of a file for a parent zone.
struct Base {
    contents: Arc<Contents>,
    path: Arc<Path>,
}

/// The use of a zone file's zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileZoneStatus {
    Served,
    /// The zone is the base of the parent zone.
    Base,
    /// The zone is not served: its apex is that of the alias zone, which the platform generates.
    Refused,
}

impl ApexOwners {
    /// Returns the register of a name server that serves only zone files.
    pub fn of_files() -> Self {
        ApexOwners { platform: None, state: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// Returns the register of a name server of the platform.
    pub fn of_platform(settings: &Settings) -> Self {
        ApexOwners { platform: Some((settings.domain().clone(), settings.alias_apex().clone())), ..Self::of_files() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under this lock requires a bug in the map of zones; the register is consistent even then.
        self.state.lock()
    }

    /// Reserves the apexes of the platform's zones until they are published: a zone file of a parent domain must not answer for
    /// names at and below the platform's domain.
    pub fn hold_platform(&self, db: &ZoneDb) {
        if let Some((domain, _)) = &self.platform {
            db.publish(Zone::unavailable(domain.clone(), Unavailable::NotLoaded));
        }
    }

    /// Returns the use that a file's zone at `apex` would have.
    pub fn place(&self, apex: &Name) -> FileZoneStatus {
        self.place_in(&self.state(), apex)
    }

    fn place_in(&self, state: &State, apex: &Name) -> FileZoneStatus {
        let mut domains = self.platform.iter().chain(&state.former_domains);
        match domains.find(|(domain, aliases)| domain == apex || aliases == apex) {
            Some((domain, _)) if domain == apex => FileZoneStatus::Base,
            Some(_) => FileZoneStatus::Refused,
            None => FileZoneStatus::Served,
        }
    }

    /// Sets the former domains of the platform that are served.
    pub fn set_former_domains(&self, former: Vec<(Name, Name)>, db: &ZoneDb) {
        let mut state = self.state();
        if state.former_domains == former {
            return;
        }
        state.former_domains = former;
        let taken: Vec<Name> = state.files.keys().cloned().collect();
        for apex in taken {
            let place = self.place_in(&state, &apex);
            if place == FileZoneStatus::Served {
                continue;
            }
            let Some(path) = state.files.remove(&apex) else { continue };
            match db.get(&apex).filter(|_| place == FileZoneStatus::Base) {
                Some(zone) => {
                    let contents = Arc::new(zone.contents());
                    state.bases.insert(apex, Base { contents, path });
                }
                None => tracing::error!(file = %path.display(), "{ALIASES_REFUSED}"),
            }
        }
        let released: Vec<Name> = state.bases.keys().cloned().collect();
        let mut served = Vec::new();
        for apex in released {
            if self.place_in(&state, &apex) == FileZoneStatus::Served {
                served.extend(state.bases.remove(&apex));
            }
        }
        drop(state);
        let zones =
            served.into_iter().filter_map(|base| Some((Arc::new(Zone::build(&base.contents).ok()?), base.path)));
        self.publish_files(zones, db);
        self.changed.send_replace(());
    }

    /// Publishes zones of files that are [`FileZoneStatus::Served`], and records that files serve them.
    pub fn publish_files(&self, zones: impl IntoIterator<Item = (Arc<Zone>, Arc<Path>)>, db: &ZoneDb) {
        let mut state = self.state();
        let mut changes = Vec::new();
        // Most changes affect only a zone's contents, and need no scan of the apexes.
        let mut is_new = false;
        for (zone, path) in zones {
            is_new |= state.files.get(zone.apex()) != Some(&path);
            state.files.insert(zone.apex().clone(), path);
            changes.push(db::ZoneUpdate::Publish(zone));
        }
        if changes.is_empty() {
            return;
        }
        db.apply(changes);
        drop(state);
        if is_new {
            self.changed.send_replace(());
        }
    }

    /// Records that no file provides the zones at `withdrawn` any longer, and that the files of `broken` have errors and never
    /// provided a zone. If the platform is served too, its loop removes the withdrawn zones, or replaces them with its own, so
    /// that no name is without a zone in between. Returns the apexes of `broken` that another source serves.
    pub fn settle_files(&self, withdrawn: &[Name], broken: &[Name], db: &ZoneDb) -> Vec<Name> {
        let mut state = self.state();
        let mut changes = Vec::new();
        let former = std::mem::take(&mut state.broken);
        let is_former =
            |apex: &Name, zone: &Arc<Zone>| former.get(apex).is_some_and(|former| Arc::ptr_eq(former, zone));
        let mut served = Vec::new();
        let mut released = false;
        for apex in withdrawn {
            released |= state.files.remove(apex).is_some();
        }
        let withdrawn: HashSet<&Name> = withdrawn.iter().collect();
        for apex in broken {
            if state.files.contains_key(apex) || state.broken.contains_key(apex) {
                continue;
            }
            let unavailable = || Arc::new(Zone::unavailable(apex.clone(), Unavailable::NotLoaded));
            let placeholder = former.get(apex).cloned().unwrap_or_else(unavailable);
            match db.get(apex) {
                Some(zone) if zone.why_unavailable().is_some() => {}
                Some(_) if !withdrawn.contains(apex) => served.push(apex.clone()),
                // A withdrawn file's zone cannot be kept; the platform's loop removes it.
                Some(_) if self.platform.is_some() => {}
                _ => changes.push(db::ZoneUpdate::Publish(placeholder.clone())),
            }
            state.broken.insert(apex.clone(), placeholder);
        }
        for apex in former.keys().chain(withdrawn.iter().copied()) {
            let Some(zone) = db.get(apex) else { continue };
            let is_ours = is_former(apex, &zone) || self.platform.is_none();
            if is_ours && !state.broken.contains_key(apex) && !state.files.contains_key(apex) {
                changes.push(db::ZoneUpdate::Remove(apex.clone()));
            }
        }
        if !changes.is_empty() {
            db.apply(changes);
        }
        drop(state);
        if released {
            self.changed.send_replace(());
        }
        served
    }

    /// Changes the base of a parent zone.
    pub fn set_base(&self, contents: Arc<Contents>, path: Arc<Path>) {
        self.state().bases.insert(contents.apex().clone(), Base { contents, path });
        self.changed.send_replace(());
    }

    /// Removes the base of a parent zone.
    pub fn remove_base(&self, apex: &Name) {
        self.state().bases.remove(apex);
        self.changed.send_replace(());
    }

    /// Returns the base of the platform's parent zone.
    pub fn platform_base(&self) -> Option<Arc<Contents>> {
        self.base(&self.platform.as_ref()?.0)
    }

    /// Returns the base of the parent zone of a domain.
    pub fn base(&self, domain: &Name) -> Option<Arc<Contents>> {
        self.state().bases.get(domain).map(|base| Arc::clone(&base.contents))
    }

    /// Returns the apexes that files serve, with their files.
    pub fn files(&self) -> BTreeMap<Name, Arc<Path>> {
        self.state().files.iter().map(|(apex, path)| (apex.clone(), Arc::clone(path))).collect()
    }

    /// Sends the apexes that files serve to `receiver`, now and after each change, until `stop`. Without a receiver, it only
    /// waits.
    pub async fn report_files(self: Arc<Self>, receiver: watch::Sender<Arc<BTreeSet<Name>>>, stop: CancellationToken) {
        let mut changes = self.subscribe();
        loop {
            changes.mark_unchanged();
            let files: BTreeSet<Name> = self.state().files.keys().cloned().collect();
            receiver.send_if_modified(|before| {
                let differs = **before != files;
                *before = Arc::new(files);
                differs
            });
            tokio::select! {
                () = stop.cancelled() => return,
                () = receiver.closed() => return stop.cancelled().await,
                changed = changes.changed() => if changed.is_err() { return stop.cancelled().await },
            }
        }
    }

    /// Returns the file that serves `apex`.
    pub fn file_of(&self, apex: &Name) -> Option<Arc<Path>> {
        self.state().files.get(apex).cloned()
    }

    /// Sets whether existing names can be missing from the platform's zones: if so, these zones do not answer NXDOMAIN.
    pub fn set_partial(&self, partial: bool, db: &ZoneDb) {
        let mut state = self.state();
        if state.partial != partial {
            state.partial = partial;
            let zones = db.zones();
            zones.iter().filter(|zone| zone.follows()).for_each(|zone| self.limit_denials(&state, zone));
        }
    }

    /// Sets the time until which the parent and alias zones may answer NXDOMAIN, in seconds since the epoch. The zones of shards
    /// have a wildcard instead.
    pub fn set_denies_until(&self, seconds: u64, db: &ZoneDb) {
        let mut state = self.state();
        state.denies_until = Some(seconds);
        let domains = self.platform.iter().chain(&state.former_domains);
        let zones = domains.flat_map(|(domain, aliases)| [domain, aliases]).filter_map(|apex| db.get(apex));
        zones.for_each(|zone| self.limit_denials(&state, &zone));
    }

    fn limit_denials(&self, state: &State, zone: &Zone) {
        let limit = state.denies_until.filter(|_| self.place_in(state, zone.apex()) != FileZoneStatus::Served);
        zone.set_denies_until(if state.partial { 0 } else { limit.unwrap_or(DENIES_ALWAYS) });
    }

    /// Publishes zones of the platform, except those that a file serves.
    pub fn publish_platform(&self, changes: Vec<db::ZoneUpdate>, db: &ZoneDb) {
        let state = self.state();
        for change in &changes {
            if let db::ZoneUpdate::Publish(zone) = change {
                zone.set_follows();
                self.limit_denials(&state, zone);
                if self.place_in(&state, zone.apex()) == FileZoneStatus::Served {
                    zone.set_shard();
                }
            }
        }
        db.apply(changes.into_iter().filter_map(|change| match &change {
            db::ZoneUpdate::Publish(zone) => (!state.files.contains_key(zone.apex())).then_some(change),
            db::ZoneUpdate::Remove(apex) if state.files.contains_key(apex) => None,
            // A broken file still names the zone: it is unavailable, but not unknown.
            db::ZoneUpdate::Remove(apex) => {
                Some(state.broken.get(apex).cloned().map_or(change, db::ZoneUpdate::Publish))
            }
        }));
    }

    /// Returns a receiver that is notified of every change of the files or the base.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::apex::Soa;
    use crate::compiler::settings::Timers;
    use signpost_dns::wire::RecordType;
    use signpost_dns::zone::Ttl;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn zone(apex: &str) -> Arc<Zone> {
        let soa = Soa { mname: name("ns."), rname: name("admin."), serial: 7, timers: Timers::default() };
        let mut contents = Contents::new(name(apex));
        let ttl = Ttl::new(30).expect("small");
        contents.add(name(apex), RecordType::SOA, ttl, soa.to_rdata()).expect("in the zone");
        Arc::new(Zone::build(&contents).expect("it has a SOA"))
    }

    /// The files are read before a name server knows the former domains.
    #[test]
    fn a_file_of_a_former_domain_is_the_base_of_its_parent_zone_until_the_end() {
        let settings = Settings::new("v4.", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let (apexes, db) = (ApexOwners::of_platform(&settings.expect("good settings")), ZoneDb::with_numbers(0));
        let apex_names = ["v3.", "routes.v3.", "other."];
        apexes.publish_files(apex_names.map(|apex| (zone(apex), Arc::from(Path::new(apex)))), &db);
        let served = |apexes: &ApexOwners| apexes.files().into_keys().collect::<Vec<_>>();
        assert_eq!(served(&apexes).len(), 3);

        apexes.set_former_domains(vec![(name("v3."), name("routes.v3."))], &db);
        let places = apex_names.map(|apex| apexes.place(&name(apex)));
        assert_eq!(places, [FileZoneStatus::Base, FileZoneStatus::Refused, FileZoneStatus::Served]);
        assert_eq!(served(&apexes), [name("other.")]);
        assert!(apexes.base(&name("v3.")).is_some() && apexes.platform_base().is_none());

        apexes.set_former_domains(Vec::new(), &db);
        assert_eq!(served(&apexes), [name("other."), name("v3.")]);
        assert!(apexes.base(&name("v3.")).is_none() && db.get(&name("v3.")).is_some());
    }
}
