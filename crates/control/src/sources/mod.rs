//! Objects of other APIs to the shards and names that they mean: pure.
//!
//! People have Gateways, IngressControllers, Ingresses and OpenShift's Routes. A source derives from them what Signpost would publish, and reports
//! why it leaves anything out. The router of a name has admitted it, or it is left out: a source never contradicts an admission.
//!
//! ```text
//!  Inventory ──► gateway   ─┐
//!  (a cluster)   openshift  ├─► Derived: shards, names, notes
//!                ingress   ─┘
//! ```
//!
//! A kind that cannot be listed is unknown, and not empty: what depends on it is unknown, too.

pub mod gateway;
pub mod ingress;
pub mod inventory;
pub mod openshift;
pub mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use aws_lc_rs::digest;
use data_encoding::BASE32HEX_NOPAD;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use self::inventory::{Inventory, Meta};
use signpost_types::names::{check_host, check_zone, is_at_or_below};

/// The characters of the hash at the end of a derived name.
const HASH_CHARACTERS: usize = 5;
/// The longest derived name of a shard: the length of a label.
const NAME_BYTES_MAX: usize = 63;

/// The operator's settings for sources.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The domain of the platform.
    pub domain: String,
    /// Further domains in which shards may lie.
    pub domains: Vec<String>,
    /// The controllers whose GatewayClasses count; empty: all.
    pub gateway_controllers: Vec<String>,
    /// The zone of the shard of each ingress class.
    pub ingress_classes: BTreeMap<String, String>,
    /// Whether a shard may have addresses of private networks.
    pub private_addresses: bool,
}

/// An object of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    pub kind: &'static str,
    /// Absent: the kind has no namespaces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    pub name: String,
}

impl Source {
    fn new(kind: &'static str, meta: &Meta) -> Source {
        Source { kind, namespace: meta.namespace.clone(), name: meta.name.clone() }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.namespace, &*self.name) {
            ("", "") => write!(formatter, "{}", self.kind),
            ("", name) => write!(formatter, "{} {name}", self.kind),
            (namespace, name) => write!(formatter, "{} {namespace}/{name}", self.kind),
        }
    }
}

/// A shard: one Router.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shard {
    pub name: String,
    /// The zone.
    pub dns: String,
    pub addresses: BTreeSet<IpAddr>,
    /// The host names whose addresses are those of the shard.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub host_names: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    pub source: Source,
}

/// A name that a router serves: one Route.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Name {
    pub host: String,
    pub shard: String,
    /// Whether the host is in the zone of the shard, so that its wildcard answers for it. Otherwise it needs a CNAME to the alias.
    pub in_zone: bool,
    /// The name of the derived Route, in the namespace of the source.
    pub route: String,
    pub source: Source,
    /// The part of the source that admits the host.
    pub admitted_by: String,
    /// The creation of the source: the oldest one has the host.
    #[serde(skip)]
    pub since: Option<Timestamp>,
}

/// A remark about an object that is left out, wholly or in part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    pub source: Source,
    pub reason: Reason,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Reason {
    /// The object cannot be read.
    Invalid,
    /// A kind on which the object depends cannot be listed.
    Unknown,
    /// The class of the object is not accepted, or not one that counts.
    ClassNotAccepted,
    /// Nothing programs the object.
    NotProgrammed,
    /// No router has admitted the object.
    NotAdmitted,
    /// The object has no host.
    NoHost,
    /// A host of the object matches no listener of its parent, and is not served.
    HostNotServed,
    /// The shard has no address that resolvers can use.
    NoAddress,
    /// An address of the shard is useless outside the cluster.
    AddressRefused,
    /// The zone of the shard is in no domain of the platform.
    OutsideDomain,
    /// Another, older object has the zone or the host.
    Taken,
    /// Several parents serve the host; one has the alias.
    SeveralParents,
}

/// The shards and names of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Derived {
    /// Sorted by name.
    pub shards: Vec<Shard>,
    /// Sorted by host.
    pub names: Vec<Name>,
    pub notes: BTreeSet<Note>,
}

impl Derived {
    fn note(&mut self, source: Source, reason: Reason, message: impl Into<String>) {
        self.notes.insert(Note { source, reason, message: message.into() });
    }
}

/// Returns what the objects of a cluster mean.
pub fn derive(inventory: &Inventory, settings: &Settings) -> Derived {
    let mut derived = Derived::default();
    for (source, error) in &inventory.unreadable {
        let (reason, what) = match source.name.is_empty() {
            true => (Reason::Unknown, "the objects of this kind"),
            false => (Reason::Invalid, "the object"),
        };
        derived.note(source.clone(), reason, format!("{what} cannot be read: {error}"));
    }
    gateway::derive(inventory, settings, &mut derived);
    openshift::derive(inventory, settings, &mut derived);
    ingress::derive(inventory, settings, &mut derived);
    settle(&mut derived, settings);
    derived
}

/// Leaves out shards outside the domains, and of each zone and host all but the first.
fn settle(derived: &mut Derived, settings: &Settings) {
    derived.shards.sort_by(|a, b| (&a.dns, &a.name).cmp(&(&b.dns, &b.name)));
    let mut left_out = BTreeSet::new();
    let mut shards: Vec<Shard> = Vec::new();
    for shard in std::mem::take(&mut derived.shards) {
        let mut domains = settings.domains.iter().chain([&settings.domain]);
        let other = shards.iter().find(|other| other.dns == shard.dns);
        let (reason, message) = if let Err(error) = check_zone(&shard.dns) {
            (Reason::Invalid, format!("{} is not a zone: it {error}", shard.dns))
        } else if !domains.any(|domain| is_at_or_below(&shard.dns, domain) && shard.dns.len() > domain.len()) {
            let message = format!(
                "{} is not in the domain {}; it would be a zone of its own, in a further domain that is delegated to the platform",
                shard.dns, settings.domain
            );
            (Reason::OutsideDomain, message)
        } else if let Some(other) = other {
            (Reason::Taken, format!("{} is already the zone of {}", shard.dns, other.source))
        } else {
            shards.push(shard);
            continue;
        };
        left_out.insert(shard.name.clone());
        derived.note(shard.source, reason, message);
    }
    shards.sort_by(|a, b| a.name.cmp(&b.name));
    derived.shards = shards;
    let order = |name: &Name| (name.host.clone(), name.since, name.source.clone(), name.shard.clone());
    derived.names.sort_by_cached_key(order);
    let mut names: Vec<Name> = Vec::new();
    for name in std::mem::take(&mut derived.names) {
        // The shard has a note.
        if left_out.contains(&name.shard) {
            continue;
        }
        match names.last().filter(|first| first.host == name.host) {
            None => names.push(name),
            Some(first) if first.source == name.source && first.shard == name.shard => {}
            Some(first) if first.source == name.source => {
                let message = format!(
                    "{} is on {} and {}; the alias leads to {}",
                    name.host, first.shard, name.shard, first.shard
                );
                derived.note(name.source, Reason::SeveralParents, message);
            }
            Some(first) if first.source.namespace == name.source.namespace && first.shard == name.shard => {}
            Some(first) => {
                let message = format!("{} belongs to the older {}", name.host, first.source);
                derived.note(name.source, Reason::Taken, message);
            }
        }
    }
    derived.names = names;
}

/// Returns a host in lower case, if it is one.
fn host(text: &str) -> Option<String> {
    let host = text.to_ascii_lowercase();
    (host.parse::<IpAddr>().is_err() && check_host(&host).is_ok()).then_some(host)
}

/// Returns the name of a shard: readable, at most 63 octets, and distinct for each zone of each source.
fn shard_name(prefix: &str, source: &Source, dns: &str) -> String {
    let words = [prefix, &source.namespace, &source.name];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    named(&words.join("-"), [&source.namespace, &source.name, dns], NAME_BYTES_MAX)
}

/// Returns the name of the Route for a host of a source.
fn route_name(source: &Source, host: &str) -> String {
    let name = format!("{}-{}", source.name, source.kind.to_ascii_lowercase());
    named(&name, [&source.name, source.kind, host], NAME_BYTES_MAX)
}

/// Returns a text, shortened, with a hash over the parts.
fn named(text: &str, parts: [&str; 3], bytes_max: usize) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        // The length is first, so that no two lists hash the same octets.
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let hash = BASE32HEX_NOPAD.encode(context.finish().as_ref()).to_ascii_lowercase();
    let text: String =
        text.to_ascii_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let text = text[..text.len().min(bytes_max - HASH_CHARACTERS - 1)].trim_matches('-');
    format!("{text}-{}", &hash[..HASH_CHARACTERS])
}

#[cfg(test)]
mod tests;
