//! The derivation of shards and names, step by step: a change derives only what depends on it.
//!
//! ```text
//!  Gateway, IngressController, Ingress, Service, … ──► Frame: shards, and what names depend on
//!                                                        │ differs
//!                                                        ▼
//!  HTTPRoute, Route, Ingress, … ──► Found: the names of one object ──► the first claim to each host ──► names
//! ```
//!
//! The frame is small and derived as a whole. The names of an object are derived again if the object changes, or its namespace, or
//! the part of the frame that its kind depends on. Each host has the names that claim it, and is settled by [`super::conflicts`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::conflicts::{decided_by, order};
use super::inventory::{Inventory, Kind, Objects, Resource};
use super::targets::ignored;
use super::{
    Derived, Family, Found, Frame, Mode, Name, Note, Platform, Reason, Resolved, Scope, Settings, Shard, Source,
    gateway, ingress, openshift, service, status,
};
use crate::client::reflector::ObjectKey;
use crate::put::Put as _;
use signpost_types::names::{check_zone, is_at_or_below};

/// Returns whether a host is more than one label below a zone, so that the wildcard of the zone covers it in DNS, but not in a certificate.
fn is_deep(host: &str, dns: &str) -> bool {
    host.strip_suffix(dns).and_then(|above| above.strip_suffix('.')).is_some_and(|above| above.contains('.'))
}

/// Returns, for each zone, the shard that has it, and the others that claim it. `sorted`: by zone, and then by claim.
fn same_zone<'a, 'b>(sorted: &'b [&'a Shard]) -> impl Iterator<Item = (&'a Shard, &'b [&'a Shard])> {
    sorted
        .chunk_by(|a, b| a.dns == b.dns)
        .filter_map(|claims| claims.split_first())
        .map(|(first, others)| (*first, others))
}

/// The kinds whose objects have names.
const NAMED: [Kind; 6] = [Kind::HTTPRoute, Kind::GRPCRoute, Kind::TLSRoute, Kind::Route, Kind::Ingress, Kind::Service];

/// The settled names and notes of one object.
#[derive(Debug, Default)]
struct Settled {
    hosts: Vec<String>,
    notes: Vec<Arc<Note>>,
    is_unknown: bool,
    pending: BTreeSet<String>,
    marked: Option<Option<i64>>,
}

/// The claims to one host.
#[derive(Debug, Default)]
struct Host {
    claims: Vec<Arc<Name>>,
    /// The first of them.
    first: Option<Arc<Name>>,
    /// The claims of other objects of the namespace that share its Route.
    shared: Vec<Arc<Name>>,
    notes: Vec<Arc<Note>>,
}

/// The Routers and Routes that a change concerns.
#[derive(Debug, Default)]
pub struct Changes {
    pub shards: BTreeSet<String>,
    pub routes: BTreeSet<ObjectKey>,
    /// Whether the result can differ, for example in a note.
    pub is_any: bool,
}

/// The derived shards and names of a cluster, kept up to date.
#[derive(Debug)]
pub struct Derivation {
    settings: Settings,
    inventory: Inventory,
    platform: Platform,
    resolved: Arc<Resolved>,
    frame: Frame,
    shards: BTreeMap<String, Arc<Shard>>,
    /// The same by zone.
    zones: HashMap<String, Arc<Shard>>,
    shard_notes: BTreeSet<Arc<Note>>,
    found: HashMap<Source, Settled>,
    hosts: BTreeMap<String, Host>,
    /// The names by the keys of their Routes.
    names: HashMap<ObjectKey, Arc<Name>>,
}

impl Derivation {
    pub fn new(settings: Settings) -> Self {
        Derivation::of(Inventory::default(), settings)
    }

    /// Returns the derivation of these objects.
    pub fn of(inventory: Inventory, settings: Settings) -> Self {
        let mut derivation = Derivation {
            settings,
            inventory,
            platform: Platform::default(),
            resolved: Arc::default(),
            frame: Frame::default(),
            shards: BTreeMap::new(),
            zones: HashMap::new(),
            shard_notes: BTreeSet::new(),
            found: HashMap::new(),
            hosts: BTreeMap::new(),
            names: HashMap::new(),
        };
        derivation.derive_frame(&mut Changes::default());
        derivation.derive_kinds(&NAMED, &mut Changes::default());
        derivation
    }

    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Adds or replaces an object.
    pub fn put(&mut self, kind: Kind, key: ObjectKey, object: Result<Arc<Resource>, String>) -> Changes {
        let mut changes = Changes::default();
        if self.inventory.put(kind, key.clone(), object) {
            self.derive_after(kind, &key, &mut changes);
        }
        changes
    }

    pub fn remove(&mut self, kind: Kind, key: &ObjectKey) -> Changes {
        let mut changes = Changes::default();
        if self.inventory.remove(kind, key) {
            self.derive_after(kind, key, &mut changes);
        }
        changes
    }

    /// Sets all objects of a kind.
    pub fn replace(&mut self, kind: Kind, objects: Objects) -> Changes {
        let mut changes = Changes::default();
        let before = self.inventory.replace(kind, objects);
        self.derive_frame(&mut changes);
        if kind == Kind::Namespace {
            self.derive_kinds(&NAMED, &mut changes);
        } else if NAMED.contains(&kind) {
            let sources = before.keys().map(|key| Source::named(kind, key));
            let gone: Vec<Source> = sources.filter(|source| !self.has(kind, source)).collect();
            gone.into_iter().for_each(|source| self.settle_found(source, Found::default(), &mut changes));
            self.derive_kinds(&[kind], &mut changes);
        }
        changes
    }

    /// Notes that a kind is not served. Its objects stay.
    pub fn set_absent(&mut self, kind: Kind) -> Changes {
        let mut changes = Changes::default();
        let was_settled = self.inventory.is_settled(kind);
        self.inventory.set_absent(kind);
        if !was_settled {
            self.derive_frame(&mut changes);
        }
        changes
    }

    /// Notes why a kind cannot be read now, or that it can.
    pub fn set_failure(&mut self, kind: Kind, error: Option<String>) -> Changes {
        let before = self.inventory.failures.put(kind, error.clone());
        Changes { is_any: before != error, ..Changes::default() }
    }

    pub fn set_platform(&mut self, platform: Platform) -> Changes {
        let mut changes = Changes::default();
        if self.platform != platform {
            let before = std::mem::replace(&mut self.platform, platform);
            self.derive_frame(&mut changes);
            if before.zones != self.platform.zones {
                self.settle_hosts(&mut changes);
            }
        }
        changes
    }

    pub fn set_resolved(&mut self, resolved: Arc<Resolved>) -> Changes {
        let mut changes = Changes::default();
        if self.resolved != resolved {
            self.resolved = resolved;
            self.derive_frame(&mut changes);
        }
        changes
    }

    /// Returns the shard that is published as this Router.
    pub fn shard(&self, router: &str) -> Option<&Arc<Shard>> {
        self.shards.get(router).filter(|shard| shard.mode == Mode::Publish)
    }

    /// Returns the name that is published as this Route.
    pub fn name(&self, route: &ObjectKey) -> Option<&Arc<Name>> {
        self.names.get(route).filter(|name| name.mode == Mode::Publish)
    }

    /// Returns the published shards.
    pub fn routers(&self) -> impl Iterator<Item = &Arc<Shard>> {
        self.shards.values().filter(|shard| shard.mode == Mode::Publish)
    }

    /// Returns the published names.
    pub fn routes(&self) -> impl Iterator<Item = &Arc<Name>> {
        self.names.values().filter(|name| name.mode == Mode::Publish)
    }

    /// Returns whether the derivation is complete for a source: all kinds on which it depends are known. Then a written Router or Route
    /// that is not derived is lost.
    pub fn is_certain(&self, source: &Source) -> bool {
        let Some(kind) = Kind::named(source.kind) else { return false };
        let Some(family) = Family::of(kind) else { return false };
        let is_published = self.settings.mode(family) == Mode::Publish;
        // A class that only Ingresses name has no object.
        let has_objects = kind == Kind::IngressClass || self.inventory.is_known(kind);
        is_published
            && has_objects
            && family.required().iter().all(|kind| self.inventory.is_known(*kind))
            && family.kinds().iter().all(|kind| self.inventory.is_settled(*kind))
            && !self.inventory.is_unread(source)
            && !self.found.get(source).is_some_and(|found| found.is_unknown)
    }

    /// Returns whether the router of a source reports nothing about the name with this Route, which it may still serve.
    pub fn is_pending(&self, source: &Source, route: &ObjectKey) -> bool {
        let found = self.found.get(source).filter(|_| source.namespace == route.namespace());
        found.is_some_and(|found| found.pending.contains(&route.name))
    }

    /// Returns the result.
    pub fn derived(&self) -> Derived {
        let mut notes = self.shard_notes.clone();
        for (kind, error) in &self.inventory.failures {
            let source = Source { kind: kind.name(), namespace: String::new(), name: String::new() };
            let state = if self.inventory.is_known(*kind) { "; their last state counts" } else { "" };
            let message = format!("the objects of this kind cannot be read: {error}{state}");
            notes.insert(Arc::new(Note { source, reason: Reason::Unknown, message }));
        }
        for (source, error) in self.inventory.unreadable() {
            let message = format!("the object cannot be read: {error}");
            notes.insert(Arc::new(Note { source: source.clone(), reason: Reason::Invalid, message }));
        }
        notes.extend(self.frame.notes.iter().cloned());
        notes.extend(self.found.values().flat_map(|found| found.notes.iter().cloned()));
        notes.extend(self.hosts.values().flat_map(|host| host.notes.iter().cloned()));
        Derived {
            shards: self.shards.values().cloned().collect(),
            names: self.hosts.values().filter_map(|host| host.first.clone()).collect(),
            shared: self.hosts.values().flat_map(|host| host.shared.iter().cloned()).collect(),
            marked: self.found.iter().filter_map(|(source, found)| Some((source.clone(), found.marked?))).collect(),
            notes,
        }
    }

    fn has(&self, kind: Kind, source: &Source) -> bool {
        self.inventory.object(kind, &source.key()).is_some()
    }

    /// Derives what depends on an object.
    fn derive_after(&mut self, kind: Kind, key: &ObjectKey, changes: &mut Changes) {
        changes.is_any = true;
        if !NAMED.contains(&kind) || matches!(kind, Kind::Ingress | Kind::Service) {
            self.derive_frame(changes);
        }
        match kind {
            // Its labels select it.
            Kind::Namespace => {
                for kind in NAMED {
                    let keys: Vec<ObjectKey> = self.inventory.in_namespace(kind, &key.name).cloned().collect();
                    keys.iter().for_each(|key| self.derive_names(kind, key, changes));
                }
            }
            kind if NAMED.contains(&kind) => self.derive_names(kind, key, changes),
            _ => {}
        }
    }

    /// Derives the frame, and the names that depend on a part of it that differs.
    fn derive_frame(&mut self, changes: &mut Changes) {
        let mut frame = Frame::default();
        let cluster_ips = self.inventory.cluster_ips();
        if self.settings.mode(Family::Gateway) != Mode::Off {
            gateway::frame(&self.inventory, &self.settings, &self.platform, &cluster_ips, &mut frame);
        }
        if self.settings.mode(Family::OpenShift) != Mode::Off {
            openshift::frame(&self.inventory, &self.settings, &cluster_ips, &mut frame);
        }
        if self.settings.mode(Family::Ingress) != Mode::Off {
            ingress::frame(&self.inventory, &self.settings, &cluster_ips, &mut frame);
        }
        if self.settings.mode(Family::Service) != Mode::Off {
            service::frame(&self.inventory, &self.settings, &self.platform, &cluster_ips, &mut frame);
        }
        changes.is_any |= frame.notes != self.frame.notes;
        let before = std::mem::replace(&mut self.frame, frame);
        self.settle_shards(changes);
        if before.gateways != self.frame.gateways {
            self.derive_kinds(&[Kind::HTTPRoute, Kind::GRPCRoute, Kind::TLSRoute], changes);
        }
        if before.controllers != self.frame.controllers {
            self.derive_kinds(&[Kind::Route], changes);
        }
        if before.classes != self.frame.classes {
            self.derive_kinds(&[Kind::Ingress], changes);
        }
    }

    fn derive_kinds(&mut self, kinds: &[Kind], changes: &mut Changes) {
        for kind in kinds {
            let keys: Vec<ObjectKey> = self.inventory.objects(*kind).map(|(key, _)| key.clone()).collect();
            keys.iter().for_each(|key| self.derive_names(*kind, key, changes));
        }
    }

    /// Derives the names of an object.
    fn derive_names(&mut self, kind: Kind, key: &ObjectKey, changes: &mut Changes) {
        let source = Source::named(kind, key);
        let mut found = self.found_of(kind, key).unwrap_or_default();
        let mode = source.family().map_or(Mode::Off, |family| self.settings.mode(family));
        found.names.iter_mut().for_each(|name| name.mode = mode);
        if let Some(Resource::GatewayRoute(route)) = self.inventory.object(kind, key).map(|object| &**object) {
            let is_marked = route.status.parents.iter().any(|parent| parent.controller_name == status::CONTROLLER);
            found.marked = is_marked.then_some(route.metadata.generation);
        }
        self.settle_found(source, found, changes);
    }

    /// Returns the names of an object that counts.
    fn found_of(&self, kind: Kind, key: &ObjectKey) -> Option<Found> {
        let object = self.inventory.object(kind, key)?;
        if self.settings.mode(Family::of(kind)?) == Mode::Off {
            return None;
        }
        match self.settings.scope(object.meta(), &self.inventory) {
            Scope::Counts => {}
            Scope::Unknown => return Some(Found { is_unknown: true, ..Found::default() }),
            Scope::NotSelected => return None,
            Scope::OtherController => {
                let message = "the annotation \"controller\" leaves it to another controller".to_owned();
                let note = Note { source: Source::named(kind, key), reason: Reason::OtherController, message };
                return Some(Found { notes: vec![note], ..Found::default() });
            }
        }
        let mut found = match &**object {
            Resource::GatewayRoute(route) => gateway::names(kind, route, &self.frame.gateways, &self.inventory),
            Resource::OpenShiftRoute(route) => openshift::names(route, &self.frame.controllers),
            Resource::Ingress(ingress) => ingress::names(ingress, &self.frame.classes),
            Resource::Service(service) => service::names(service, &self.settings)?,
            _ => return None,
        };
        let has_hosts = !found.names.is_empty() || !found.pending.is_empty();
        if let Some(message) = ignored(kind, object.meta(), &self.settings).filter(|_| has_hosts) {
            let source = Source::named(kind, key);
            found.notes.push(Note { source, reason: Reason::AnnotationIgnored, message });
        }
        Some(found)
    }

    /// Settles the shards: those outside the domains, and all but the first of each zone, are left out.
    fn settle_shards(&mut self, changes: &mut Changes) {
        let mut notes = BTreeSet::new();
        let mut note = |shard: &Shard, reason, message| {
            notes.insert(Arc::new(Note { source: shard.source.clone(), reason, message }));
        };
        let mut sorted: Vec<&Shard> = self.frame.shards.iter().collect();
        sorted.sort_by(|a, b| a.dns.cmp(&b.dns).then_with(|| order(&a.claim(), &b.claim())));
        sorted.retain(|shard| {
            let domain = &self.settings.domain;
            // A further domain can be a shard itself.
            let is_inside = is_at_or_below(&shard.dns, domain) && shard.dns.len() > domain.len()
                || self.settings.domains.iter().any(|domain| is_at_or_below(&shard.dns, domain));
            if let Err(error) = check_zone(&shard.dns) {
                note(shard, Reason::Invalid, format!("{} is not a zone: it {error}", shard.dns));
            } else if shard.dns == *domain && !is_inside {
                let message = format!(
                    "{domain} is the domain of the platform itself, whose names are shards; to publish it as the zone of a shard, \
                     choose another domain, and add {domain} to sources.domains"
                );
                note(shard, Reason::OutsideDomain, message);
            } else if !is_inside {
                let message = format!(
                    "{} is not in the domain {domain}; to publish it as a zone of its own, add it, or a domain above it, to \
                     sources.domains, and delegate that domain to the platform",
                    shard.dns
                );
                note(shard, Reason::OutsideDomain, message);
            } else if let Some(router) = self.platform.zones.get(&shard.dns) {
                let message = format!("{} is the zone of Router {router}, which no source wrote", shard.dns);
                note(shard, Reason::DomainAlreadyInUse, message);
            } else {
                return true;
            }
            false
        });
        // A Service that is left out leaves its zone to the next object, which can be one of those that Services must not be inside of.
        loop {
            let inside = self.inside_others(same_zone(&sorted).map(|(first, _)| first));
            if inside.is_empty() {
                break;
            }
            sorted.retain(|shard| {
                let owner = inside.get(&*shard.name);
                if let Some(owner) = owner {
                    note(shard, Reason::Taken, format!("{} is in the zone of {owner}", shard.dns));
                }
                owner.is_none()
            });
        }
        let mut shards: BTreeMap<String, Arc<Shard>> = BTreeMap::new();
        for (first, others) in same_zone(&sorted) {
            shards.insert(first.name.clone(), Arc::new(self.with_addresses(first)));
            for shard in others {
                let why = decided_by(&first.claim(), &shard.claim());
                let message = format!("{} is the zone of {} ({why})", shard.dns, first.source);
                note(shard, Reason::DomainAlreadyInUse, message);
            }
        }
        let keys = shards.keys().chain(self.shards.keys());
        let differing = keys.filter(|name| shards.get(*name) != self.shards.get(*name)).cloned();
        let before = changes.shards.len();
        changes.shards.extend(differing);
        changes.is_any |= changes.shards.len() > before || notes != self.shard_notes;
        let zones = |shards: &BTreeMap<String, Arc<Shard>>| -> Vec<(String, String, Mode)> {
            shards.values().map(|shard| (shard.name.clone(), shard.dns.clone(), shard.mode)).collect()
        };
        let has_other_zones = zones(&shards) != zones(&self.shards);
        self.zones = shards.values().map(|shard| (shard.dns.clone(), Arc::clone(shard))).collect();
        self.shards = shards;
        self.shard_notes = notes;
        if has_other_zones {
            self.settle_hosts(changes);
        }
    }

    /// Returns the names of the shards of Services that are in the zone of an older object, and that object. They would take its names away.
    fn inside_others<'a>(&self, shards: impl Iterator<Item = &'a Shard>) -> HashMap<&'a str, String> {
        let by_zone: HashMap<&str, &Shard> = shards.map(|shard| (&*shard.dns, shard)).collect();
        let of_services = by_zone.values().filter(|shard| shard.source.family() == Some(Family::Service));
        let inside = of_services.filter_map(|shard| {
            let above = shard.dns.match_indices('.').map(|(dot, _)| &shard.dns[dot + 1..]);
            let owner = above.into_iter().find_map(|dns| {
                let router = self.platform.zones.get(dns).map(|router| format!("Router {router}"));
                let other = by_zone.get(dns).filter(|other| other.source != shard.source);
                let other = other.filter(|other| order(&other.claim(), &shard.claim()).is_lt());
                router.or_else(|| other.map(|other| other.source.to_string()))
            })?;
            Some((&*shard.name, owner))
        });
        inside.collect()
    }

    fn settle_hosts(&mut self, changes: &mut Changes) {
        let hosts: Vec<String> = self.hosts.keys().cloned().collect();
        hosts.iter().for_each(|host| self.settle_host(host, changes));
    }

    /// Returns a shard with the addresses of its host names. It keeps those of its Router if it has no others, and while a host name is not
    /// resolved: a process that begins to lead has not queried all of them yet.
    fn with_addresses(&self, shard: &Shard) -> Shard {
        let mut shard = shard.clone();
        let resolved = shard.host_names.iter().filter_map(|name| self.resolved.get(name));
        shard.addresses.extend(resolved.flatten());
        let is_unresolved = shard.host_names.iter().any(|name| !self.resolved.contains_key(name));
        if shard.addresses.is_empty() || is_unresolved {
            shard.addresses.extend(self.platform.written.get(&shard.name).into_iter().flatten());
        }
        shard
    }

    /// Replaces the names of an object.
    fn settle_found(&mut self, source: Source, found: Found, changes: &mut Changes) {
        let before = self.found.remove(&source).unwrap_or_default();
        let mut hosts: BTreeSet<String> = before.hosts.iter().cloned().collect();
        for host in before.hosts {
            if let Some(host) = self.hosts.get_mut(&host) {
                host.claims.retain(|claim| claim.source != source);
            }
        }
        // Their written Routes can go now.
        let refused = before.pending.difference(&found.pending);
        changes.routes.extend(refused.map(|route| ObjectKey::namespaced(&source.namespace, route)));
        let mut settled = Settled {
            is_unknown: found.is_unknown,
            pending: found.pending,
            marked: found.marked,
            ..Settled::default()
        };
        for name in found.names {
            settled.hosts.push(name.host.clone());
            hosts.insert(name.host.clone());
            self.hosts.entry(name.host.clone()).or_default().claims.push(Arc::new(name));
        }
        settled.notes = found.notes.into_iter().map(Arc::new).collect();
        changes.is_any |=
            settled.notes != before.notes || settled.is_unknown != before.is_unknown || settled.marked != before.marked;
        let is_empty = settled.hosts.is_empty()
            && settled.notes.is_empty()
            && settled.pending.is_empty()
            && settled.marked.is_none();
        if !is_empty || settled.is_unknown {
            self.found.insert(source, settled);
        }
        hosts.iter().for_each(|host| self.settle_host(host, changes));
    }

    /// Settles who has a host.
    fn settle_host(&mut self, host: &str, changes: &mut Changes) {
        let Some(mut entry) = self.hosts.remove(host) else { return };
        entry.claims.sort_by(|a, b| order(&a.claim(), &b.claim()));
        let mut first: Option<Arc<Name>> = None;
        let (mut shared, mut notes) = (Vec::new(), Vec::new());
        let mut note = |name: &Name, reason, message| {
            notes.push(Arc::new(Note { source: name.source.clone(), reason, message }));
        };
        for name in &entry.claims {
            // The shard has a note.
            let Some(shard) = self.shards.get(&name.shard) else { continue };
            if let Some((dns, owner)) = self.zone_of(host, name.mode).filter(|(_, owner)| *owner != shard.name) {
                let is_there = |other: &&Arc<Name>| other.source == name.source && other.shard == owner;
                if entry.claims.iter().any(|other| is_there(&other)) {
                    let message =
                        format!("{host} is on {owner} and {}; it resolves to {owner}, in whose zone it is", name.shard);
                    note(name, Reason::SeveralParents, message);
                } else {
                    note(name, Reason::Taken, format!("{host} is in {dns}, the zone of the Router {owner}"));
                }
                continue;
            }
            if is_deep(host, &shard.dns) {
                let message = format!(
                    "a certificate of *.{} is not one of {host}, which is more than one label below",
                    shard.dns
                );
                note(name, Reason::SeveralLabels, message);
            }
            match &first {
                None => first = Some(Arc::new(Name { in_zone: is_at_or_below(host, &shard.dns), ..(**name).clone() })),
                Some(first) if first.source == name.source && first.shard == name.shard => {}
                Some(first) if first.source == name.source => {
                    let message =
                        format!("{host} is on {} and {}; the alias leads to {}", first.shard, name.shard, first.shard);
                    note(name, Reason::SeveralParents, message);
                }
                Some(first) if first.source.namespace == name.source.namespace && first.shard == name.shard => {
                    shared.push(Arc::clone(name));
                }
                Some(first) => {
                    let why = decided_by(&first.claim(), &name.claim());
                    note(name, Reason::Taken, format!("{host} belongs to {} ({why})", first.source));
                }
            }
        }
        if entry.first != first {
            for name in entry.first.iter().chain(&first) {
                changes.routes.insert(name.key());
                changes.is_any = true;
            }
            if let Some(name) = &entry.first {
                self.names.remove(&name.key());
            }
            if let Some(name) = &first {
                self.names.insert(name.key(), Arc::clone(name));
            }
        }
        changes.is_any |= entry.notes != notes || entry.shared != shared;
        (entry.first, entry.shared, entry.notes) = (first, shared, notes);
        if !entry.claims.is_empty() {
            self.hosts.insert(host.to_owned(), entry);
        }
    }

    /// Returns the closest zone that contains a host, and the Router of it.
    fn zone_of<'a>(&'a self, host: &'a str, mode: Mode) -> Option<(&'a str, &'a str)> {
        let starts = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
        let mut zones = [host].into_iter().chain(starts);
        zones.find_map(|dns| {
            let derived = self.zones.get(dns).filter(|shard| shard.mode == Mode::Publish || mode != Mode::Publish);
            let router = self.platform.zones.get(dns).or_else(|| derived.map(|shard| &shard.name))?;
            Some((dns, router.as_str()))
        })
    }
}
