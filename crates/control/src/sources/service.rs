//! Services: one of type LoadBalancer with hosts in an annotation of external-dns is a shard for them.
//!
//! external-dns creates a record for each host, with the addresses of the load balancer. Here, each host is a zone in the platform's
//! domain: `*.apps.example.com` is the shard `apps.example.com`, and `db.example.com` is a shard whose own name has the addresses,
//! too. It needs no Route. A host below a wildcard of the same Service is a name of that shard. A host in the zone of an older object is
//! left out ([`super::derivation`]): a user who may create a Service must not take names of other routers.
//!
//! The load balancer admits the hosts: without an address it serves nothing. A shard that is written keeps its addresses while the load
//! balancer reports none.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::inventory::{Inventory, Kind, Service};
use super::targets::{annotated, annotation, listed, ttl, usable};
use super::{
    Family, Found, Frame, Name, Note, Origin, Platform, Reason, Scope, Settings, Shard, Source, host, route_name,
    shard_name,
};
use signpost_types::names::covers;

/// The annotation with the hosts, after a prefix: separated by commas.
const HOSTS: &str = "hostname";
/// The type of Services with a load balancer.
const LOAD_BALANCER: &str = "LoadBalancer";

/// The hosts of a Service.
#[derive(Debug, Default)]
struct Hosts {
    /// The bases of its wildcards.
    bases: BTreeSet<String>,
    /// The others.
    plain: BTreeSet<String>,
    /// The texts that are not hosts.
    invalid: Vec<String>,
}

impl Hosts {
    /// Returns the hosts of a Service; `None`: it is not a source.
    fn of(service: &Service, settings: &Settings) -> Option<Hosts> {
        let text = annotation(&service.metadata.annotations, HOSTS, settings)?;
        if service.spec.kind != LOAD_BALANCER {
            return None;
        }
        let mut hosts = Hosts::default();
        for text in listed(text) {
            match host(text.trim_end_matches('.')) {
                None => hosts.invalid.push(text),
                Some(host) => match host.strip_prefix("*.") {
                    Some(base) => _ = hosts.bases.insert(base.to_owned()),
                    None => _ = hosts.plain.insert(host),
                },
            }
        }
        Some(hosts)
    }

    /// Returns the hosts that are zones, because no wildcard covers them.
    fn apexes(&self) -> BTreeSet<&String> {
        let is_below = |host: &&String| self.bases.iter().any(|base| covers(&format!("*.{base}"), host));
        self.plain.iter().filter(|host| !is_below(host)).collect()
    }
}

/// Derives shards from the Services with hosts.
pub(super) fn frame(
    inventory: &Inventory,
    settings: &Settings,
    platform: &Platform,
    cluster_ips: &BTreeSet<IpAddr>,
    frame: &mut Frame,
) {
    for service in inventory.all::<Service>(Kind::Service) {
        let Some(hosts) = Hosts::of(service, settings) else { continue };
        if settings.scope(&service.metadata, inventory) != Scope::Counts {
            continue;
        }
        let source = Source::new(Kind::Service, &service.metadata);
        let reported = targets(service, settings);
        let apexes = hosts.apexes();
        let zones = hosts.bases.iter().chain(apexes.iter().copied());
        let zones = zones.map(|dns| (dns, shard_name("svc", &source, dns)));
        let zones: BTreeSet<(&String, String)> =
            zones.filter(|(_, name)| !reported.is_empty() || platform.written.contains_key(name)).collect();
        // The names have a note.
        if zones.is_empty() {
            continue;
        }
        let targets = usable(&source, reported, cluster_ips, settings, frame);
        let ttl = ttl(&service.metadata.annotations, settings).unwrap_or_else(|message| {
            frame.note(source.clone(), Reason::Invalid, message);
            None
        });
        let (mode, origin) = (settings.mode(Family::Service), Origin::of(&service.metadata));
        frame.shards.extend(zones.into_iter().map(|(dns, name)| Shard {
            has_apex: apexes.contains(dns),
            ttl,
            ..Shard::new(name, dns.clone(), &targets, &source, mode, origin.clone())
        }));
    }
}

/// Derives the names of one Service.
pub(super) fn names(service: &Service, settings: &Settings) -> Option<Found> {
    let hosts = Hosts::of(service, settings)?;
    let source = Source::new(Kind::Service, &service.metadata);
    let mut found = Found::default();
    let mut note = |reason, message: String| found.notes.push(Note { source: source.clone(), reason, message });
    for text in &hosts.invalid {
        note(Reason::Invalid, format!("{text:?} is not a host"));
    }
    if hosts.bases.is_empty() && hosts.plain.is_empty() {
        note(Reason::NoHost, "the annotation with its hosts has none".to_owned());
        return Some(found);
    }
    let is_admitted = !targets(service, settings).is_empty();
    if !is_admitted {
        note(Reason::NotAdmitted, "its load balancer has no address".to_owned());
    }
    for host in &hosts.plain {
        let bases = hosts.bases.iter().filter(|base| covers(&format!("*.{base}"), host));
        // The others are zones.
        let Some(zone) = bases.max_by_key(|base| base.len()) else { continue };
        if !is_admitted {
            found.pending.insert(route_name(&source, host));
            continue;
        }
        let (shard, by) = (shard_name("svc", &source, zone), format!("the load balancer of {source}"));
        found.names.push(Name::new(&source, &service.metadata, &shard, host.clone(), by));
    }
    Some(found)
}

/// Returns the targets of a Service: those of its annotation, otherwise its external IPs, otherwise those of its load balancer. This is
/// the order of external-dns.
fn targets(service: &Service, settings: &Settings) -> Vec<String> {
    if let Some(targets) = annotated(&service.metadata.annotations, settings) {
        return targets;
    }
    match service.spec.external_ips.is_empty() {
        true => service.status.targets().collect(),
        false => service.spec.external_ips.clone(),
    }
}
