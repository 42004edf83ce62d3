//! Ingresses: the controller of a class is a shard, if the operator has named its zone; each rule of an Ingress has a host.
//!
//! An Ingress without an address in its status is not admitted yet. Controllers also remove the addresses while they restart, so the names
//! that are written stay.
//!
//! A class has the addresses that its controller reports on its Ingresses. Only an annotation of the IngressClass replaces them: users may
//! create Ingresses, and the addresses are those of all hosts of the class.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::inventory::{CLASS_ANNOTATION, DEFAULT_ANNOTATION, Ingress, Inventory, Kind, OfResource as _, Plain};
use super::targets::{annotated, usable};
use super::{
    Family, Found, Frame, Name, Note, Origin, Reason, Scope, Settings, Shard, Source, host, route_name, shard_name,
};
use crate::client::reflector::ObjectKey;

/// The classes with a zone: what the names of Ingresses depend on.
#[derive(Debug, Default, PartialEq)]
pub struct Classes {
    /// The class of an Ingress that names none.
    default: Option<String>,
    /// Whether the default is unknown.
    is_default_unknown: bool,
    /// The name of the shard of each class.
    shards: BTreeMap<String, String>,
}

/// Derives shards from the ingress classes with a zone.
pub(super) fn frame(inventory: &Inventory, settings: &Settings, cluster_ips: &BTreeSet<IpAddr>, frame: &mut Frame) {
    let is_default =
        |class: &&Plain| class.metadata.annotations.get(DEFAULT_ANNOTATION).is_some_and(|value| value == "true");
    let default = inventory.all::<Plain>(Kind::IngressClass).find(is_default);
    frame.classes.default = default.map(|class| class.metadata.name.clone());
    frame.classes.is_default_unknown = !inventory.is_settled(Kind::IngressClass);
    let mut reported: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for ingress in inventory.all::<Ingress>(Kind::Ingress) {
        if let Some(class) = class(ingress, frame.classes.default.as_deref()) {
            if settings.scope(&ingress.metadata, inventory) != Scope::Counts {
                continue;
            }
            *counts.entry(class).or_default() += 1;
            reported.entry(class).or_default().extend(ingress.status.targets());
        }
    }
    let unset = counts.iter().filter(|(class, _)| !settings.ingress_classes.contains_key(**class));
    let unset: Vec<(String, usize)> = unset.map(|(class, count)| ((*class).to_owned(), *count)).collect();
    let shards: Vec<(String, BTreeSet<String>)> =
        reported.into_iter().map(|(class, targets)| (class.to_owned(), targets)).collect();
    for (class, count) in unset {
        let source = Source { kind: Kind::IngressClass.name(), namespace: String::new(), name: class };
        let message = format!("no zone is set for the class, which has {count} Ingresses");
        frame.note(source, Reason::ClassNotAccepted, message);
    }
    for (class, reported) in shards {
        let Some(dns) = settings.ingress_classes.get(&class) else { continue };
        let dns = dns.to_ascii_lowercase();
        let object =
            inventory.object(Kind::IngressClass, &ObjectKey::cluster(&class)).and_then(|object| Plain::of(object));
        let source = Source { kind: Kind::IngressClass.name(), namespace: String::new(), name: class.clone() };
        let annotated = object.and_then(|class| annotated(&class.metadata.annotations, settings));
        let targets = annotated.unwrap_or_else(|| reported.into_iter().collect());
        let targets = usable(&source, targets, cluster_ips, settings, frame);
        let name = shard_name("ing", &source, &dns);
        frame.classes.shards.insert(class, name.clone());
        let origin = object.map(|class| Origin::of(&class.metadata)).unwrap_or_default();
        frame.shards.push(Shard::new(name, dns, &targets, &source, settings.mode(Family::Ingress), origin));
    }
}

/// Returns the class of an Ingress: its field, the older annotation, or the default class.
fn class<'a>(ingress: &'a Ingress, default: Option<&'a str>) -> Option<&'a str> {
    let of_field = ingress.spec.ingress_class_name.as_deref();
    let of_annotation = || ingress.metadata.annotations.get(CLASS_ANNOTATION).map(String::as_str);
    of_field.or_else(of_annotation).or(default).filter(|class| !class.is_empty())
}

/// Derives the names of one Ingress.
pub(super) fn names(ingress: &Ingress, classes: &Classes) -> Found {
    let source = Source::new(Kind::Ingress, &ingress.metadata);
    let mut found = Found::default();
    let mut note = |reason, message: String| found.notes.push(Note { source: source.clone(), reason, message });
    let Some(class) = class(ingress, classes.default.as_deref()) else {
        found.is_unknown = classes.is_default_unknown;
        note(Reason::ClassNotAccepted, "it has no class, and no class is the default".to_owned());
        return found;
    };
    // The class has a note.
    let Some(shard) = classes.shards.get(class) else { return found };
    let is_admitted = ingress.status.targets().next().is_some();
    if !is_admitted {
        note(Reason::NotAdmitted, "its status has no address: no controller serves it".to_owned());
    }
    let hosts = ingress.spec.rules.iter().filter_map(|rule| rule.host.as_deref());
    let hosts: BTreeSet<&str> = hosts.filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() && is_admitted {
        note(Reason::NoHost, "no rule has a host".to_owned());
    }
    for text in hosts {
        let Some(host) = host(text) else {
            note(Reason::Invalid, format!("{text:?} is not a host"));
            continue;
        };
        if !is_admitted {
            found.pending.insert(route_name(&source, &host));
            continue;
        }
        let by = "the address in its status".to_owned();
        found.names.push(Name::new(&source, &ingress.metadata, shard, host, by));
    }
    found
}
