//! Gateway API: a Gateway is a shard for each base of its wildcard listeners, and an accepted Route has the hosts that it shares with them.
//!
//! A Route is attached if both sides agree: its `parentRefs`, and `allowedRoutes` of the listener. Its router must have accepted it. The
//! effective host is the intersection of the host of the listener and that of the Route: the more specific of two that cover each other.
//!
//! A wildcard covers names at any depth below its base, and not the base itself.

use std::collections::{BTreeMap, BTreeSet};

use super::inventory::{
    AllowedKind, AllowedRoutes, GATEWAY_GROUP as GROUP, Gateway, GatewayRoute, Inventory, Listener, ListenerSet, Meta,
    ParentRef, ParentStatus, is_true, selects,
};
use super::targets::{annotated, usable};
use super::{Derived, Name, Reason, Settings, Shard, Source, host, route_name, shard_name};
use signpost_types::names::{covers, is_at_or_below};

/// The annotation of a Gateway without wildcard listeners that names its zone.
pub const ZONE_ANNOTATION: &str = "signpost.dev/dns";

/// A Gateway that counts, with its listeners.
struct Parent<'a> {
    gateway: &'a Gateway,
    controller: &'a str,
    /// Each listener, and the object that has it.
    listeners: Vec<(&'a Meta, &'static str, &'a Listener)>,
    /// The zone and the name of each of its shards.
    shards: Vec<(String, String)>,
}

/// Derives shards from Gateways, and names from the Routes of Gateway API.
pub fn derive(inventory: &Inventory, settings: &Settings, derived: &mut Derived) {
    let mut parents: Vec<Parent<'_>> = Vec::new();
    for gateway in inventory.gateways.iter().flatten() {
        parents.extend(parent(gateway, inventory, settings, derived));
    }
    for (kind, routes) in &inventory.gateway_routes {
        for route in routes {
            names(kind, route, &parents, inventory, derived);
        }
    }
}

fn parent<'a>(
    gateway: &'a Gateway,
    inventory: &'a Inventory,
    settings: &Settings,
    derived: &mut Derived,
) -> Option<Parent<'a>> {
    let source = Source::new("Gateway", &gateway.metadata);
    let Some(classes) = &inventory.gateway_classes else {
        derived.note(source, Reason::Unknown, "GatewayClasses cannot be listed");
        return None;
    };
    let class = classes.iter().find(|class| class.metadata.name == gateway.spec.gateway_class_name);
    let is_wanted =
        |name: &String| settings.gateway_controllers.is_empty() || settings.gateway_controllers.contains(name);
    let class = class.filter(|class| class.status.is_true("Accepted") && is_wanted(&class.spec.controller_name));
    let Some(class) = class else {
        let message = format!(
            "its class {:?} is not accepted, or its controller does not count",
            gateway.spec.gateway_class_name
        );
        derived.note(source, Reason::ClassNotAccepted, message);
        return None;
    };
    let mut listeners: Vec<_> =
        gateway.spec.listeners.iter().map(|listener| (&gateway.metadata, "Gateway", listener)).collect();
    for set in inventory.listener_sets.iter().flatten().filter(|set| is_set_of(set, gateway, inventory)) {
        listeners.extend(set.spec.listeners.iter().map(|listener| (&set.metadata, "ListenerSet", listener)));
    }
    let mut parent = Parent { gateway, controller: &class.spec.controller_name, listeners, shards: Vec::new() };
    if !is_true(&gateway.status.conditions, "Programmed") {
        derived.note(source, Reason::NotProgrammed, "the condition Programmed of the Gateway is not True");
        return Some(parent);
    }
    let targets = annotated(&gateway.metadata.annotations)
        .unwrap_or_else(|| gateway.status.addresses.iter().map(|address| address.value.clone()).collect());
    let targets = usable(&source, targets, inventory, settings, derived);
    for dns in zones(&parent, settings) {
        let name = shard_name("gw", &source, &dns);
        parent.shards.push((dns.clone(), name.clone()));
        derived.shards.push(Shard {
            name,
            dns,
            addresses: targets.addresses.clone(),
            host_names: targets.host_names.clone(),
            route_selector: None,
            namespace_selector: None,
            source: source.clone(),
        });
    }
    Some(parent)
}

/// Returns the zones of a Gateway: the bases of its wildcard listeners. Without one, its annotation or its name in the domain is the zone.
fn zones(parent: &Parent<'_>, settings: &Settings) -> BTreeSet<String> {
    let hosts = parent.listeners.iter().filter_map(|(.., listener)| host(listener.hostname.as_deref()?));
    let bases: BTreeSet<String> = hosts.filter_map(|host| Some(host.strip_prefix("*.")?.to_owned())).collect();
    if !bases.is_empty() {
        return bases;
    }
    let Meta { name, annotations, .. } = &parent.gateway.metadata;
    let annotated = annotations.get(ZONE_ANNOTATION).map(|zone| zone.trim().to_ascii_lowercase());
    BTreeSet::from([annotated.unwrap_or_else(|| format!("{name}.{}", settings.domain))])
}

/// Returns whether a ListenerSet adds listeners to a Gateway.
fn is_set_of(set: &ListenerSet, gateway: &Gateway, inventory: &Inventory) -> bool {
    let names_it = refers(&set.spec.parent_ref, &set.metadata, "Gateway", &gateway.metadata);
    // Without a field no namespace may add listeners.
    let allowed = gateway.spec.allowed_listeners.as_ref();
    names_it
        && set.status.is_true("Accepted")
        && allowed.is_some_and(|allowed| is_from(allowed, "None", &gateway.metadata, &set.metadata, inventory))
}

/// Returns whether a reference of an object is to another one of this kind.
fn refers(reference: &ParentRef, from: &Meta, kind: &str, to: &Meta) -> bool {
    reference.group.as_deref().unwrap_or(GROUP) == GROUP
        && reference.kind.as_deref().unwrap_or("Gateway") == kind
        && reference.namespace.as_deref().unwrap_or(&from.namespace) == to.namespace
        && reference.name == to.name
}

/// Returns whether an object is in a namespace from which another one allows it.
fn is_from(allowed: &AllowedRoutes, default: &str, to: &Meta, from: &Meta, inventory: &Inventory) -> bool {
    let namespaces = allowed.namespaces.as_ref();
    match namespaces.and_then(|namespaces| namespaces.from.as_deref()).unwrap_or(default) {
        "All" => true,
        "Same" => to.namespace == from.namespace,
        "Selector" => {
            let selector = namespaces.and_then(|namespaces| namespaces.selector.as_ref());
            let labels = inventory.labels(&from.namespace);
            selector.zip(labels).and_then(|(selector, labels)| selects(selector, &labels)).unwrap_or(false)
        }
        _ => false,
    }
}

/// Returns whether a listener takes Routes of a kind, by its protocol and its own list.
fn takes(listener: &Listener, kind: &str) -> bool {
    let by_protocol = match listener.protocol.as_str() {
        "HTTP" | "HTTPS" => kind != "TLSRoute",
        "TLS" => kind == "TLSRoute",
        _ => false,
    };
    let kinds = listener.allowed_routes.as_ref().map_or(&[][..], |allowed| &allowed.kinds);
    let is_kind = |one: &AllowedKind| one.kind == kind && one.group.as_deref().unwrap_or(GROUP) == GROUP;
    by_protocol && (kinds.is_empty() || kinds.iter().any(is_kind))
}

/// Derives the names of one Route.
fn names(
    kind: &'static str,
    route: &GatewayRoute,
    parents: &[Parent<'_>],
    inventory: &Inventory,
    derived: &mut Derived,
) {
    let source = Source::new(kind, &route.metadata);
    let mut unserved: BTreeSet<&String> = route.spec.hostnames.iter().collect();
    let (mut is_accepted, mut has_parent) = (false, false);
    let mut found: BTreeMap<(String, String), String> = BTreeMap::new();
    for reference in &route.spec.parent_refs {
        for parent in parents {
            let mut attached = parent.listeners.iter().filter(|(owner, owner_kind, listener)| {
                let has_port = reference.port.is_none_or(|port| listener.port == Some(port));
                let has_name = reference.section_name.as_ref().is_none_or(|name| *name == listener.name);
                refers(reference, &route.metadata, owner_kind, owner) && has_port && has_name
            });
            let mut attached = attached.by_ref().peekable();
            if attached.peek().is_none() {
                continue;
            }
            has_parent = true;
            let is_it = |status: &&ParentStatus| {
                status.parent_ref.is_same(reference, &route.metadata) && status.controller_name == parent.controller
            };
            let status = route.status.parents.iter().find(is_it);
            if !status.is_some_and(|status| is_true(&status.conditions, "Accepted")) {
                continue;
            }
            is_accepted = true;
            for (owner, owner_kind, listener) in attached {
                let default = AllowedRoutes::default();
                let allowed = listener.allowed_routes.as_ref().unwrap_or(&default);
                if !takes(listener, kind) || !is_from(allowed, "Same", owner, &route.metadata, inventory) {
                    continue;
                }
                let of_listener = listener.hostname.as_deref().unwrap_or_default();
                let wanted = if route.spec.hostnames.is_empty() { vec![""] } else { Vec::new() };
                for of_route in wanted.into_iter().chain(route.spec.hostnames.iter().map(String::as_str)) {
                    let Some(host) = intersection(of_listener, of_route) else { continue };
                    unserved.retain(|hostname| *hostname != of_route);
                    let Some(shard) = shard_of(&host, parent) else { continue };
                    let by = format!("listener {} of {}", listener.name, Source::new(owner_kind, owner));
                    found.entry((host, shard)).or_insert(by);
                }
            }
        }
    }
    match (has_parent, is_accepted) {
        (true, false) => derived.note(source.clone(), Reason::NotAdmitted, "no Gateway has accepted it"),
        (true, true) if found.is_empty() && route.spec.hostnames.is_empty() => {
            derived.note(source.clone(), Reason::NoHost, "neither it nor its listeners have a host");
        }
        (true, true) => {
            for hostname in unserved {
                let message = format!("{hostname:?} matches no listener that takes it");
                derived.note(source.clone(), Reason::HostNotServed, message);
            }
        }
        // A mesh, or another implementation.
        (false, _) => {}
    }
    for ((host, shard), admitted_by) in found {
        let zone = parents.iter().flat_map(|parent| &parent.shards).find(|(_, name)| *name == shard);
        derived.names.push(Name {
            in_zone: zone.is_some_and(|(dns, _)| is_at_or_below(&host, dns)),
            route: route_name(&source, &host),
            since: route.metadata.creation_timestamp,
            source: source.clone(),
            host,
            shard,
            admitted_by,
        });
    }
}

impl ParentRef {
    /// Returns whether two references of an object are the same.
    fn is_same(&self, other: &ParentRef, from: &Meta) -> bool {
        let parts = |reference: &ParentRef| {
            (
                reference.group.clone().unwrap_or_else(|| GROUP.to_owned()),
                reference.kind.clone().unwrap_or_else(|| "Gateway".to_owned()),
                reference.namespace.clone().unwrap_or_else(|| from.namespace.clone()),
                reference.name.clone(),
                reference.section_name.clone(),
                reference.port,
            )
        };
        parts(self) == parts(other)
    }
}

/// Returns the shard of a Gateway that serves a host: the shard with the closest zone above it; without one, the first.
fn shard_of(host: &str, parent: &Parent<'_>) -> Option<String> {
    let closest = parent.shards.iter().filter(|(dns, _)| is_at_or_below(host, dns)).max_by_key(|(dns, _)| dns.len());
    closest.or(parent.shards.first()).map(|(_, name)| name.clone())
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
