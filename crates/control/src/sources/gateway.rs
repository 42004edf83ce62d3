//! Gateway API: a Gateway is a shard for each base of its wildcard listeners, and an accepted Route has the hosts that it shares with them.
//!
//! A Route is attached if both sides agree: its `parentRefs`, and `allowedRoutes` of the listener. Its router must have accepted it. The
//! effective host is the intersection of the host of the listener and that of the Route: the more specific of two that cover each other.
//!
//! A router that reports nothing has not refused: controllers that restart, and those that replace the status of others, remove entries. So
//! a name without an entry is not derived, but a written one stays.
//!
//! A wildcard covers names at any depth below its base, and not the base itself.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::inventory::{
    AllowedKind, AllowedRoutes, Condition, GATEWAY_GROUP as GROUP, Gateway, GatewayClass, GatewayRoute, Inventory,
    Kind, Listener, ListenerSet, Meta, ParentRef, ParentStatus, is_true, selects,
};
use super::targets::{annotated, ignored, is_others, usable};
use super::{
    Family, Found, Frame, Name, Note, Origin, Platform, Reason, Settings, Shard, Source, host, route_name, shard_name,
};
use signpost_types::names::{covers, is_at_or_below};

/// The annotation of a Gateway without wildcard listeners that names its zone.
pub const ZONE_ANNOTATION: &str = "signpost.dev/dns";

/// The Gateways that count, and their ListenerSets: what the names of Routes depend on.
#[derive(Debug, Default, PartialEq)]
pub struct Parents {
    parents: Vec<Parent>,
    /// The parent of each Gateway and ListenerSet.
    by_source: BTreeMap<Source, usize>,
    /// The Gateways of which it is unknown whether they count.
    unknown: BTreeSet<Source>,
}

/// A Gateway that counts, with its listeners.
#[derive(Debug, PartialEq)]
struct Parent {
    controller: String,
    /// Each listener, and the object that has it.
    listeners: Vec<(Source, Listener)>,
    /// The zone and the name of each of its shards.
    shards: Vec<(String, String)>,
}

/// Derives shards from Gateways.
pub(super) fn frame(
    inventory: &Inventory,
    settings: &Settings,
    platform: &Platform,
    cluster_ips: &BTreeSet<IpAddr>,
    frame: &mut Frame,
) {
    let classes: BTreeMap<&str, &GatewayClass> =
        inventory.all::<GatewayClass>(Kind::GatewayClass).map(|class| (&*class.metadata.name, class)).collect();
    let sets: Vec<&ListenerSet> = inventory.all(Kind::ListenerSet).collect();
    for gateway in inventory.all::<Gateway>(Kind::Gateway) {
        let source = Source::new(Kind::Gateway, &gateway.metadata);
        if is_others(&gateway.metadata, settings) {
            let message = "the annotation \"controller\" leaves it to another controller";
            frame.note(source, Reason::OtherController, message);
            continue;
        }
        if !inventory.is_known(Kind::GatewayClass) {
            frame.note(source.clone(), Reason::Unknown, "GatewayClasses cannot be listed");
            frame.gateways.unknown.insert(source);
            continue;
        }
        let class = classes.get(&*gateway.spec.gateway_class_name);
        let Some(class) = class.filter(|class| counts(class, settings)) else {
            let class = &gateway.spec.gateway_class_name;
            let message = format!("its class {class:?} is not accepted, or its controller does not count");
            frame.note(source, Reason::ClassNotAccepted, message);
            continue;
        };
        let listeners = listeners(gateway, &sets, inventory);
        if listeners.is_empty() {
            // A waypoint of a mesh, for example.
            frame.note(source, Reason::NoHost, "no listener has the protocol HTTP, HTTPS, or TLS");
            continue;
        }
        let index = frame.gateways.parents.len();
        frame.gateways.by_source.extend(listeners.iter().map(|(owner, _)| (owner.clone(), index)));
        let zones = zones(gateway, &listeners, settings);
        let shards: Vec<(String, String)> =
            zones.into_iter().map(|dns| (dns.clone(), shard_name("gw", &source, &dns))).collect();
        let mut parent = Parent { controller: class.spec.controller_name.clone(), listeners, shards };
        // As in Istio: a Gateway that was programmed once stays in use until it is deleted.
        let was_programmed = parent.shards.iter().any(|(_, name)| platform.written.contains_key(name));
        let targets = annotated(&gateway.metadata.annotations, settings);
        let is_programmed = is_programmed(&gateway.status.conditions, targets.is_some());
        if !is_programmed {
            let state = if was_programmed { "; its shard is kept, because it was" } else { "" };
            let message = format!("the condition Programmed of the Gateway is not True{state}");
            frame.note(source.clone(), Reason::NotProgrammed, message);
        }
        if was_programmed || is_programmed {
            if let Some(message) = ignored(Kind::Gateway, &gateway.metadata, settings) {
                frame.note(source.clone(), Reason::AnnotationIgnored, message);
            }
            let targets = targets
                .unwrap_or_else(|| gateway.status.addresses.iter().map(|address| address.value.clone()).collect());
            let targets = usable(&source, targets, cluster_ips, settings, frame);
            let hosts: BTreeSet<String> =
                parent.listeners.iter().filter_map(|(_, listener)| host(listener.hostname.as_deref()?)).collect();
            let (mode, origin) = (settings.mode(Family::Gateway), Origin::of(&gateway.metadata));
            frame.shards.extend(parent.shards.iter().map(|(dns, name)| Shard {
                // A listener for the name itself.
                has_apex: hosts.contains(dns),
                ..Shard::new(name.clone(), dns.clone(), &targets, &source, mode, origin.clone())
            }));
        } else {
            parent.shards.clear();
        }
        frame.gateways.by_source.insert(source, index);
        frame.gateways.parents.push(parent);
    }
}

/// Returns whether the controller has set a Gateway up. If its operator names the addresses, the controller need not know any.
fn is_programmed(conditions: &[Condition], has_targets: bool) -> bool {
    let lacks_address = |condition: &Condition| {
        condition.kind == "Programmed" && ["AddressNotAssigned", "AddressNotUsable"].contains(&&*condition.reason)
    };
    is_true(conditions, "Programmed") || has_targets && conditions.iter().any(lacks_address)
}

/// Returns whether the Gateways of a class count.
fn counts(class: &GatewayClass, settings: &Settings) -> bool {
    let controllers = &settings.gateway_controllers;
    let is_wanted = controllers.is_empty() || controllers.contains(&class.spec.controller_name);
    is_wanted && class.status.is_true("Accepted")
}

/// Returns the listeners of a Gateway that distinguish hosts, those of its ListenerSets included, each with the object that has it.
fn listeners(gateway: &Gateway, sets: &[&ListenerSet], inventory: &Inventory) -> Vec<(Source, Listener)> {
    let of = |owner: Source, listeners: Vec<&Listener>| {
        let with_hosts = listeners.into_iter().filter(|listener| has_hosts(listener));
        with_hosts.map(|listener| (owner.clone(), listener.clone())).collect::<Vec<_>>()
    };
    let own = of(Source::new(Kind::Gateway, &gateway.metadata), gateway.spec.listeners.iter().collect());
    let sets = sets.iter().filter(|set| is_set_of(set, gateway, inventory));
    let of_sets = sets.flat_map(|set| {
        let used = set.spec.listeners.iter().filter(|listener| set.status.uses(listener));
        of(Source::new(Kind::ListenerSet, &set.metadata), used.collect())
    });
    own.into_iter().chain(of_sets).collect()
}

/// Returns the zones of a Gateway: the bases of its wildcard listeners. Without one, its annotation or its name in the domain is the zone.
fn zones(gateway: &Gateway, listeners: &[(Source, Listener)], settings: &Settings) -> BTreeSet<String> {
    let hosts = listeners.iter().filter_map(|(_, listener)| host(listener.hostname.as_deref()?));
    let bases: BTreeSet<String> = hosts.filter_map(|host| Some(host.strip_prefix("*.")?.to_owned())).collect();
    if !bases.is_empty() {
        return bases;
    }
    let Meta { name, annotations, .. } = &gateway.metadata;
    let annotated = annotations.get(ZONE_ANNOTATION).map(|zone| zone.trim().to_ascii_lowercase());
    BTreeSet::from([annotated.unwrap_or_else(|| format!("{name}.{}", settings.domain))])
}

/// Returns whether a ListenerSet adds listeners to a Gateway.
fn is_set_of(set: &ListenerSet, gateway: &Gateway, inventory: &Inventory) -> bool {
    let of_gateway = Source::new(Kind::Gateway, &gateway.metadata);
    // Without a field no namespace may add listeners.
    let allowed = gateway.spec.allowed_listeners.as_ref();
    target(&set.spec.parent_ref, &set.metadata.namespace) == Some(of_gateway)
        && is_true(&set.status.conditions, "Accepted")
        && allowed.is_some_and(|allowed| {
            is_from(allowed, "None", &gateway.metadata.namespace, &set.metadata.namespace, inventory) == Some(true)
        })
}

/// Returns the object of this API that a reference in a namespace names.
pub(super) fn target(reference: &ParentRef, namespace: &str) -> Option<Source> {
    if reference.group.as_deref().unwrap_or(GROUP) != GROUP {
        return None;
    }
    let kind = match reference.kind.as_deref().unwrap_or("Gateway") {
        "Gateway" => Kind::Gateway,
        "ListenerSet" => Kind::ListenerSet,
        _ => return None,
    };
    let namespace = reference.namespace.as_deref().unwrap_or(namespace).to_owned();
    Some(Source { kind: kind.name(), namespace, name: reference.name.clone() })
}

/// Returns whether a namespace is one from which an object in another one allows objects; `None`: its labels are unknown.
fn is_from(allowed: &AllowedRoutes, default: &str, to: &str, from: &str, inventory: &Inventory) -> Option<bool> {
    let namespaces = allowed.namespaces.as_ref();
    match namespaces.and_then(|namespaces| namespaces.from.as_deref()).unwrap_or(default) {
        "All" => Some(true),
        "Same" => Some(to == from),
        "Selector" => {
            let selector = namespaces.and_then(|namespaces| namespaces.selector.as_ref());
            match inventory.labels(from) {
                Some(labels) => Some(selector.is_some_and(|selector| selects(selector, labels) == Some(true))),
                None if inventory.is_known(Kind::Namespace) => Some(false),
                None => None,
            }
        }
        _ => Some(false),
    }
}

/// Returns whether a listener takes Routes of a namespace; `None`: its labels are unknown.
fn allows(listener: &Listener, owner: &Source, namespace: &str, inventory: &Inventory) -> Option<bool> {
    let default = AllowedRoutes::default();
    let allowed = listener.allowed_routes.as_ref().unwrap_or(&default);
    is_from(allowed, "Same", &owner.namespace, namespace, inventory)
}

/// Returns whether a listener distinguishes hosts, by its protocol.
fn has_hosts(listener: &Listener) -> bool {
    ["HTTP", "HTTPS", "TLS"].contains(&listener.protocol.as_str())
}

/// Returns whether a listener takes Routes of a kind, by its protocol and its own list.
fn takes(listener: &Listener, kind: Kind) -> bool {
    let by_protocol = has_hosts(listener) && (listener.protocol == "TLS") == (kind == Kind::TLSRoute);
    let kinds = listener.allowed_routes.as_ref().map_or(&[][..], |allowed| &allowed.kinds);
    let is_kind = |one: &AllowedKind| one.kind == kind.name() && one.group.as_deref().unwrap_or(GROUP) == GROUP;
    by_protocol && (kinds.is_empty() || kinds.iter().any(is_kind))
}

impl Parent {
    /// Returns whether the controller has accepted a Route for this reference; `None`: it reports neither that nor a refusal. Other
    /// controllers write entries in its name, too: one that accepts is enough.
    fn has_accepted(&self, route: &GatewayRoute, reference: &ParentRef) -> Option<bool> {
        let is_it = |status: &&ParentStatus| {
            status.controller_name == self.controller && status.parent_ref.is_same(reference, &route.metadata.namespace)
        };
        let statuses = || route.status.parents.iter().filter(is_it);
        let has = |wanted: &str| {
            let is_wanted = |one: &Condition| one.kind == "Accepted" && one.status == wanted;
            statuses().any(|status| status.conditions.iter().any(is_wanted))
        };
        if has("True") { Some(true) } else { has("False").then_some(false) }
    }
}

/// Returns whether a reference to the parent is to this listener, too.
fn refers(reference: &ParentRef, listener: &Listener) -> bool {
    let has_port = reference.port.is_none_or(|port| listener.port == Some(port));
    has_port && reference.section_name.as_ref().is_none_or(|name| *name == listener.name)
}

/// Derives the names of one Route.
pub(super) fn names(kind: Kind, route: &GatewayRoute, gateways: &Parents, inventory: &Inventory) -> Found {
    let source = Source::new(kind, &route.metadata);
    let namespace = &route.metadata.namespace;
    let mut derived = Found::default();
    let mut note = |reason, message: String| derived.notes.push(Note { source: source.clone(), reason, message });
    let mut unserved: BTreeSet<&String> = route.spec.hostnames.iter().collect();
    let (mut is_accepted, mut has_parent) = (false, false);
    let mut found: BTreeMap<(String, String), (String, Vec<ParentRef>)> = BTreeMap::new();
    for reference in &route.spec.parent_refs {
        let Some(of) = target(reference, namespace) else { continue };
        let is_unserved_set = of.kind == Kind::ListenerSet.name() && !inventory.is_known(Kind::ListenerSet);
        if is_unserved_set || gateways.unknown.contains(&of) {
            note(Reason::Unknown, format!("its parent {of} cannot be read"));
            derived.is_unknown = true;
            continue;
        }
        let Some(parent) = gateways.by_source.get(&of).map(|index| &gateways.parents[*index]) else { continue };
        let attached = parent.listeners.iter().filter(|(owner, listener)| *owner == of && refers(reference, listener));
        let attached: Vec<_> = attached.collect();
        if attached.is_empty() {
            continue;
        }
        has_parent = true;
        let has_accepted = parent.has_accepted(route, reference);
        if has_accepted == Some(false) {
            continue;
        }
        is_accepted |= has_accepted.is_some();
        for (owner, listener) in attached.into_iter().filter(|(_, listener)| takes(listener, kind)) {
            let is_allowed = allows(listener, owner, namespace, inventory);
            derived.is_unknown |= is_allowed.is_none();
            if is_allowed != Some(true) {
                continue;
            }
            let wanted = if route.spec.hostnames.is_empty() { vec![""] } else { Vec::new() };
            for of_route in wanted.into_iter().chain(route.spec.hostnames.iter().map(String::as_str)) {
                let Some(host) = intersection(listener.hostname.as_deref().unwrap_or_default(), of_route) else {
                    continue;
                };
                unserved.retain(|hostname| *hostname != of_route);
                let Some(shard) = shard_of(&host, parent) else { continue };
                if has_accepted.is_none() {
                    derived.pending.insert(route_name(&source, &host));
                    continue;
                }
                let by = format!("listener {} of {owner}", listener.name);
                let (_, through) = found.entry((host, shard.to_owned())).or_insert((by, Vec::new()));
                if through.last() != Some(reference) {
                    through.push(reference.clone());
                }
            }
        }
    }
    let has_host = !(found.is_empty() && derived.pending.is_empty() && route.spec.hostnames.is_empty());
    match (has_parent, is_accepted) {
        (true, false) => note(Reason::NotAdmitted, "no Gateway has accepted it".to_owned()),
        (true, true) if !has_host => note(Reason::NoHost, "neither it nor its listeners have a host".to_owned()),
        (true, true) => unserved.into_iter().for_each(|hostname| {
            note(Reason::HostNotServed, format!("{hostname:?} matches no listener that takes it"));
        }),
        // A mesh, or another implementation.
        (false, _) => {}
    }
    derived.names = found
        .into_iter()
        .map(|((host, shard), (by, parents))| Name { parents, ..Name::new(&source, &route.metadata, &shard, host, by) })
        .collect();
    derived
}

impl ParentRef {
    /// Returns whether two references of an object in this namespace are the same.
    pub(super) fn is_same(&self, other: &ParentRef, namespace: &str) -> bool {
        let of = |reference: &ParentRef| -> [String; 4] {
            let text = |text: &Option<String>, default: &str| text.as_deref().unwrap_or(default).to_owned();
            [
                text(&reference.group, GROUP),
                text(&reference.kind, "Gateway"),
                text(&reference.namespace, namespace),
                reference.name.clone(),
            ]
        };
        self.section_name == other.section_name && self.port == other.port && of(self) == of(other)
    }
}

/// Returns the name of the shard of a Gateway that serves a host: the shard with the closest zone above it; without one, the first.
fn shard_of<'a>(host: &str, parent: &'a Parent) -> Option<&'a str> {
    let closest = parent.shards.iter().filter(|(dns, _)| is_at_or_below(host, dns)).max_by_key(|(dns, _)| dns.len());
    closest.or(parent.shards.first()).map(|(_, name)| name.as_str())
}

/// Returns the host that a listener and a Route have in common. Empty means all.
pub fn intersection(listener: &str, route: &str) -> Option<String> {
    let (listener, route) = match (listener, route) {
        ("", "") => return None,
        ("", one) | (one, "") => return host(one),
        both => (host(both.0)?, host(both.1)?),
    };
    match () {
        () if listener == route || covers(&listener, &route) => Some(route),
        () if covers(&route, &listener) => Some(listener),
        () => None,
    }
}
