//! Objects of other APIs to the shards and names that they mean, and to the Routers and Routes of the platform.
//!
//! People have Gateways, IngressControllers, Ingresses, Services and OpenShift's Routes. A source derives from them what Signpost publishes, and reports
//! why it leaves anything out. The router of a name has admitted it, or it is left out: a source never contradicts an admission.
//!
//! ```text
//!  cluster ─ reader ─► Inventory ─► gateway   ─┐ derivation
//!                                   openshift  ├─► Derived: shards, names, notes ─ writer ─► Routers, Routes of the platform
//!                                   ingress   ─┤ (conflicts)                          │
//!                                   service   ─┘                                      ▼
//!                                               status.parents[], Events on the objects ◄─ report
//! ```
//!
//! Unknown is not empty: a kind that cannot be read keeps its last objects, and their Routers and Routes stay. Lost ones go through a
//! [deletion hold](crate::deletion_hold), unless one watched change of their own object explains the loss.

pub mod inventory;

pub mod gateway;
pub mod ingress;
pub mod openshift;
pub mod service;
pub mod targets;

pub mod conflicts;
pub mod derivation;

pub mod losses;
pub mod metrics;
pub mod reader;
pub mod rights;
pub mod writer;

pub mod report;
pub mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::digest;
use data_encoding::BASE32HEX_NOPAD;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Serialize, Serializer};
use tokio::sync::watch;

use self::derivation::Derivation;
use self::inventory::{Inventory, Kind, Meta, ParentRef, selects};
use self::targets::{Targets, is_others};
use crate::client::reflector::ObjectKey;
use signpost_types::names::check_host;

/// The characters of the hash at the end of a derived name.
const HASH_CHARACTERS: usize = 5;
/// The longest derived name of a shard: the length of a label.
const NAME_BYTES_MAX: usize = 63;
/// The prefixes of the annotations of external-dns: the present one, and that of older versions.
pub const ANNOTATION_PREFIXES: [&str; 2] = ["external-dns.kubernetes.io/", "external-dns.alpha.kubernetes.io/"];

/// The kinds that are one source: each is switched by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    Gateway,
    OpenShift,
    Ingress,
    Service,
}

impl Family {
    pub const ALL: [Family; 4] = [Family::Gateway, Family::OpenShift, Family::Ingress, Family::Service];

    /// Returns the kinds that the source reads.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Family::Gateway => &[
                Kind::GatewayClass,
                Kind::Gateway,
                Kind::ListenerSet,
                Kind::HTTPRoute,
                Kind::GRPCRoute,
                Kind::TLSRoute,
                Kind::Namespace,
                Kind::Service,
            ],
            Family::OpenShift => &[
                Kind::IngressController,
                Kind::Infrastructure,
                Kind::Route,
                Kind::Service,
                Kind::EndpointSlice,
                Kind::Namespace,
            ],
            Family::Ingress => &[Kind::IngressClass, Kind::Ingress, Kind::Service, Kind::Namespace],
            Family::Service => &[Kind::Service, Kind::Namespace],
        }
    }

    /// Returns the kinds without which the source means nothing: if the cluster does not serve them, it did so before, or the source
    /// is not in use.
    fn required(self) -> &'static [Kind] {
        match self {
            Family::Gateway => &[Kind::GatewayClass, Kind::Gateway],
            Family::OpenShift => &[Kind::IngressController],
            Family::Ingress => &[Kind::Ingress],
            Family::Service => &[Kind::Service],
        }
    }

    /// Returns the source that makes shards or names from objects of a kind.
    pub fn of(kind: Kind) -> Option<Family> {
        match kind {
            Kind::Gateway | Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute => Some(Family::Gateway),
            Kind::IngressController | Kind::Route => Some(Family::OpenShift),
            Kind::IngressClass | Kind::Ingress => Some(Family::Ingress),
            Kind::Service => Some(Family::Service),
            _ => None,
        }
    }
}

/// The use of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The objects are not read.
    #[default]
    Off,
    /// Read and reported; nothing is written.
    Show,
    /// Written as Routers and Routes.
    Publish,
}

/// The operator's settings for sources.
#[derive(Debug, Clone)]
pub struct Settings {
    pub modes: BTreeMap<Family, Mode>,
    /// The domain of the platform.
    pub domain: String,
    /// Further domains in which shards may lie.
    pub domains: Vec<String>,
    /// The controllers whose GatewayClasses count; empty: all.
    pub gateway_controllers: Vec<String>,
    /// The zone of the shard of each ingress class.
    pub ingress_classes: BTreeMap<String, String>,
    /// The labels of the namespaces whose names count; `None`: all.
    pub namespace_selector: Option<LabelSelector>,
    /// The prefixes of the annotations that are read, in order.
    pub annotation_prefixes: Vec<String>,
    /// Whether a shard may have addresses of private networks.
    pub private_addresses: bool,
}

impl Settings {
    pub fn mode(&self, family: Family) -> Mode {
        self.modes.get(&family).copied().unwrap_or_default()
    }

    /// Returns the kinds to read.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        let families = Family::ALL.into_iter().filter(|family| self.mode(*family) != Mode::Off);
        families.flat_map(|family| family.kinds().iter().copied()).collect()
    }

    /// Returns whether an object in a namespace counts.
    fn scope(&self, meta: &Meta, inventory: &Inventory) -> Scope {
        if let Some(selector) = &self.namespace_selector {
            match inventory.labels(&meta.namespace) {
                None if !inventory.is_known(Kind::Namespace) => return Scope::Unknown,
                Some(labels) if selects(selector, labels) == Some(true) => {}
                _ => return Scope::NotSelected,
            }
        }
        if is_others(meta, self) { Scope::OtherController } else { Scope::Counts }
    }
}

/// Whether an object counts: it makes shards and names, and adds addresses, only then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Counts,
    /// The labels of its namespace cannot be read.
    Unknown,
    /// The labels of its namespace are not selected.
    NotSelected,
    /// An annotation leaves it to another controller.
    OtherController,
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
    pub fn named(kind: Kind, key: &ObjectKey) -> Source {
        Source { kind: kind.name(), namespace: key.namespace().to_owned(), name: key.name.clone() }
    }

    fn new(kind: Kind, meta: &Meta) -> Source {
        Source { kind: kind.name(), namespace: meta.namespace.clone(), name: meta.name.clone() }
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Source> {
        let (kind, rest) = text.split_once(' ')?;
        let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
        let kind = Kind::named(kind)?.name();
        Some(Source { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    }

    pub fn key(&self) -> ObjectKey {
        let namespace = Some(self.namespace.clone()).filter(|namespace| !namespace.is_empty());
        ObjectKey { namespace, name: self.name.clone() }
    }

    pub fn family(&self) -> Option<Family> {
        Family::of(Kind::named(self.kind)?)
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

/// The object that a shard or name comes from, as the conflicts and the writer need it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin {
    /// Empty: the object has none.
    pub uid: String,
    /// The creation of the object: the oldest one has the zone or host.
    pub since: Option<Timestamp>,
}

impl Origin {
    fn of(meta: &Meta) -> Origin {
        Origin { uid: meta.uid.clone(), since: meta.creation_timestamp }
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
    /// Whether the zone's own name has the addresses, as the names below it do.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_apex: bool,
    /// The TTL that the source requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_selector: Option<LabelSelector>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
    pub source: Source,
    pub mode: Mode,
    #[serde(skip)]
    pub origin: Origin,
}

impl Shard {
    /// Returns a shard without the fields that only some sources have.
    fn new(name: String, dns: String, targets: &Targets, source: &Source, mode: Mode, origin: Origin) -> Shard {
        Shard {
            name,
            dns,
            addresses: targets.addresses.clone(),
            host_names: targets.host_names.clone(),
            has_apex: false,
            ttl: None,
            route_selector: None,
            namespace_selector: None,
            source: source.clone(),
            mode,
            origin,
        }
    }
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
    pub mode: Mode,
    /// The parents through which a Route of Gateway API has the host.
    #[serde(skip)]
    pub parents: Vec<ParentRef>,
    #[serde(skip)]
    pub origin: Origin,
}

impl Name {
    /// Returns the name for a host of an object. The derivation sets the mode, and whether the host is in the zone.
    fn new(source: &Source, meta: &Meta, shard: &str, host: String, admitted_by: String) -> Name {
        Name {
            shard: shard.to_owned(),
            in_zone: false,
            route: route_name(source, &host),
            source: source.clone(),
            admitted_by,
            mode: Mode::Off,
            parents: Vec::new(),
            origin: Origin::of(meta),
            host,
        }
    }

    /// Returns the key of the derived Route.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::namespaced(&self.source.namespace, &self.route)
    }
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
    /// A kind on which the object depends cannot be read.
    Unknown,
    /// The class of the object is not accepted, or not one that counts.
    ClassNotAccepted,
    /// An annotation leaves the object to another controller.
    OtherController,
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
    /// Another object has the zone of the shard.
    DomainAlreadyInUse,
    /// Another object has the host.
    Taken,
    /// Several parents serve the host; one has the alias.
    SeveralParents,
    /// The API of the platform rejects the Router or Route.
    Rejected,
    /// A deletion hold keeps the Router or Route, which is no longer derived.
    Held,
    /// A wildcard certificate of the shard does not cover the host.
    SeveralLabels,
    /// An annotation of external-dns has no effect on the object.
    AnnotationIgnored,
}

impl Reason {
    /// Returns whether an object with such a note is published.
    pub fn is_advice(self) -> bool {
        matches!(self, Reason::SeveralLabels | Reason::AnnotationIgnored)
    }
}

/// The parts of the platform on which the derivation depends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Platform {
    /// The zone and the name of each Router that no source wrote.
    pub zones: BTreeMap<String, String>,
    /// The addresses of each Router that a source wrote, by name: they stay while its source reports none.
    pub written: BTreeMap<String, BTreeSet<IpAddr>>,
}

/// The shards, and what names depend on.
#[derive(Debug, Default)]
pub struct Frame {
    shards: Vec<Shard>,
    notes: BTreeSet<Arc<Note>>,
    gateways: gateway::Parents,
    controllers: openshift::Controllers,
    classes: ingress::Classes,
}

impl Frame {
    fn note(&mut self, source: Source, reason: Reason, message: impl Into<String>) {
        self.notes.insert(Arc::new(Note { source, reason, message: message.into() }));
    }
}

/// The names of one object.
#[derive(Debug, Default)]
pub struct Found {
    names: Vec<Name>,
    notes: Vec<Note>,
    /// Whether it depends on something unknown, so that its written objects stay.
    is_unknown: bool,
    /// The names of the Routes that it would have if its router reported about it: those that are written stay.
    pending: BTreeSet<String>,
    /// The generation of the object, if its status has an entry of Signpost.
    marked: Option<Option<i64>>,
}

/// The shards and names of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Derived {
    /// Sorted by name.
    #[serde(serialize_with = "serialize")]
    pub shards: Vec<Arc<Shard>>,
    /// Sorted by host.
    #[serde(serialize_with = "serialize")]
    pub names: Vec<Arc<Name>>,
    #[serde(serialize_with = "serialize")]
    pub notes: BTreeSet<Arc<Note>>,
    /// The names of objects that share the Route of another object for their host.
    #[serde(skip)]
    pub shared: Vec<Arc<Name>>,
    /// The Routes of Gateway API with an entry of Signpost in their status, and their generations.
    #[serde(skip)]
    pub marked: BTreeMap<Source, Option<i64>>,
}

fn serialize<'a, T: Serialize + 'a, S: Serializer>(
    items: impl IntoIterator<Item = &'a Arc<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(items.into_iter().map(|item| &**item))
}

/// Returns what the objects of a cluster mean.
pub fn derive(inventory: &Inventory, settings: &Settings) -> Derived {
    Derivation::of(inventory.clone(), settings.clone()).derived()
}

/// The addresses of host names of load balancers, as the leader resolved them.
pub type Resolved = BTreeMap<String, BTreeSet<IpAddr>>;

/// The values that the loops of sources share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The result of the writer, empty in a process that does not lead.
    pub derived: watch::Sender<Arc<Derived>>,
    /// The addresses of [`Shard::host_names`], which the resolver sets.
    pub resolved: watch::Sender<Arc<Resolved>>,
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
