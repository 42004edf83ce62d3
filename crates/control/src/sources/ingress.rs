//! Ingresses: the controller of a class is a shard, if the operator has named its zone; each rule of an Ingress has a host.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::networking::v1::{Ingress, IngressClass};

use super::inventory::{Inventory, Meta};
use super::targets::{annotated, usable};
use super::{Derived, Name, Reason, Settings, Shard, Source, host, route_name, shard_name};
use signpost_types::names::is_at_or_below;

/// The annotation that preceded `spec.ingressClassName`, and is still in use.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

/// Derives shards from the ingress classes with a zone, and names from their Ingresses.
pub fn derive(inventory: &Inventory, settings: &Settings, derived: &mut Derived) {
    let Some(ingresses) = &inventory.ingresses else { return };
    let classes = inventory.ingress_classes.as_deref().unwrap_or_default();
    let mut by_class: BTreeMap<String, Vec<&Ingress>> = BTreeMap::new();
    for ingress in ingresses {
        match class(ingress, classes) {
            Some(class) => by_class.entry(class).or_default().push(ingress),
            None => {
                let source = Source::new("Ingress", &Meta::of(&ingress.metadata));
                derived.note(source, Reason::ClassNotAccepted, "it has no class, and no class is the default");
            }
        }
    }
    for (class, ingresses) in by_class {
        let source = Source { kind: "IngressClass", namespace: String::new(), name: class.clone() };
        let Some(dns) = settings.ingress_classes.get(&class) else {
            let message = format!("no zone is set for the class, which has {} Ingresses", ingresses.len());
            derived.note(source, Reason::ClassNotAccepted, message);
            continue;
        };
        let dns = dns.to_ascii_lowercase();
        let reported: BTreeSet<String> = ingresses.iter().flat_map(|ingress| targets(ingress)).collect();
        let targets = usable(&source, reported, inventory, settings, derived);
        let shard = shard_name("ing", &source, &dns);
        for ingress in ingresses {
            names(ingress, &shard, &dns, derived);
        }
        derived.shards.push(Shard {
            name: shard,
            dns,
            addresses: targets.addresses,
            host_names: targets.host_names,
            route_selector: None,
            namespace_selector: None,
            source,
        });
    }
}

/// Returns the class of an Ingress: its field, the older annotation, or the default class.
fn class(ingress: &Ingress, classes: &[IngressClass]) -> Option<String> {
    let of_field = ingress.spec.as_ref().and_then(|spec| spec.ingress_class_name.clone());
    let annotations = ingress.metadata.annotations.as_ref();
    let of_annotation = annotations.and_then(|annotations| annotations.get(CLASS_ANNOTATION).cloned());
    let is_default = |class: &&IngressClass| {
        let annotations = class.metadata.annotations.as_ref();
        annotations.and_then(|annotations| annotations.get(DEFAULT_ANNOTATION)).is_some_and(|value| value == "true")
    };
    let default = || classes.iter().find(is_default).and_then(|class| class.metadata.name.clone());
    of_field.or(of_annotation).or_else(default).filter(|class| !class.is_empty())
}

/// Returns the targets of an Ingress: those of its annotation; without one, those that its controller reports.
fn targets(ingress: &Ingress) -> Vec<String> {
    if let Some(targets) = annotated(ingress.metadata.annotations.as_ref().unwrap_or(&BTreeMap::new())) {
        return targets;
    }
    let balancer = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let reported = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
    reported.filter_map(|one| one.ip.clone().or_else(|| one.hostname.clone())).collect()
}

fn names(ingress: &Ingress, shard: &str, dns: &str, derived: &mut Derived) {
    let meta = Meta::of(&ingress.metadata);
    let source = Source::new("Ingress", &meta);
    if targets(ingress).is_empty() {
        derived.note(source, Reason::NotAdmitted, "its status has no address: no controller serves it");
        return;
    }
    let rules = ingress.spec.iter().flat_map(|spec| spec.rules.iter().flatten());
    let hosts: BTreeSet<&str> = rules.filter_map(|rule| rule.host.as_deref()).filter(|host| !host.is_empty()).collect();
    if hosts.is_empty() {
        derived.note(source.clone(), Reason::NoHost, "no rule has a host");
    }
    for text in hosts {
        let Some(host) = host(text) else {
            derived.note(source.clone(), Reason::Invalid, format!("{text:?} is not a host"));
            continue;
        };
        derived.names.push(Name {
            in_zone: is_at_or_below(&host, dns),
            route: route_name(&source, &host),
            shard: shard.to_owned(),
            since: meta.creation_timestamp,
            admitted_by: "the address in its status".to_owned(),
            source: source.clone(),
            host,
        });
    }
}
