//! The parent zone: the platform's domain, from which resolvers find every shard.
//!
//! It contains SOA and NS, the name servers' addresses, a delegation for each shard inside the domain and for the alias zone, and
//! the records of a base file, `zones/<domain>.zone`. In case of a conflict:
//!
//! - The base's SOA gives MNAME (unless it is the root), RNAME, timers, and TTL. Its serial is not used: the parent's serials are
//!   managed like those of every other zone.
//! - The NS records at the apex and the addresses of name servers inside the domain are those of the configuration.
//! - The SVCB records of name servers at `_dns.<name server>` are those of the configuration, too.
//! - A delegation replaces all records of the base at and below its name, because these belong to the other zone. Only NS and the
//!   addresses of name servers (RFC 9471: glue) remain there.
//! - A shard inside another shard is not delegated here: it is below a cut. The name servers are the same, and answer from the
//!   closest zone.
//!
//! - The proofs for certification authorities below `acme.<domain>` are added ([`super::challenges`]).
//! - A host that the router of a source has admitted, and that is in no shard, is a CNAME to the alias of its Route, unless the name has
//!   other records.
//!
//! One name's records depend only on the settings and on the delegations, hosts and proofs at and above it. So adding or removing a Router changes
//! the name of its shard, and the records of the base and the name servers below that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

use super::apex;
use super::challenges::{self, TextValues};
use super::digest::Digest;
use super::settings::Settings;
use crate::put::Put as _;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, OwnerChange, Rrset};

/// The shards and the other domains of the platform inside the domain, which are delegated from the parent, as the alias zone
/// always is; the hosts of Routes in no shard; and the proofs of custom hosts.
#[derive(Debug, Clone, Default)]
pub struct Delegations {
    apexes: BTreeSet<Name>,
    /// The label of the alias that each host leads to.
    hosts: BTreeMap<Name, Box<str>>,
    texts: TextValues,
    digest: Digest,
}

impl Delegations {
    /// Notes that a shard has come.
    pub fn insert(&mut self, apex: Name) {
        let part = Digest::of_delegation(&apex);
        if self.apexes.insert(apex) {
            self.digest = self.digest.plus(part);
        }
    }

    /// Notes that a shard is gone.
    pub fn remove(&mut self, apex: &Name) {
        if self.apexes.remove(apex) {
            self.digest = self.digest.minus(Digest::of_delegation(apex));
        }
    }

    /// Sets the label of the alias that a host leads to. Returns whether it was another one.
    pub fn set_host(&mut self, host: &Name, label: Option<&str>) -> bool {
        let before = self.hosts.put(host.clone(), label.map(Box::from));
        if before.as_deref() == label {
            return false;
        }
        let digest = |label: Option<&str>| label.map_or_else(Digest::default, |label| Digest::of_host(host, label));
        self.digest = self.digest.minus(digest(before.as_deref())).plus(digest(label));
        true
    }

    /// Replaces the TXT values of a name. Returns whether they were others.
    pub fn set_texts(&mut self, owner: &Name, values: BTreeSet<Box<str>>) -> bool {
        let before = self.texts.of(owner).cloned().unwrap_or_default();
        if before == values {
            return false;
        }
        let digest = |values| challenges::digest(owner.as_wire(), values);
        self.digest = self.digest.minus(digest(&before)).plus(digest(&values));
        self.texts.set(owner, values);
        true
    }

    /// Returns the delegated names, in canonical order.
    pub fn apexes(&self) -> &BTreeSet<Name> {
        &self.apexes
    }

    /// Returns the digest of the parent zone.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the delegated name closest to the domain that is `name` or above it.
    fn cut_of(&self, name: &Name, settings: &Settings) -> Option<Name> {
        let mut cut = None;
        let mut at = name.clone();
        while at.is_below(settings.domain()) {
            let above = at.parent()?;
            if self.apexes.contains(&at) || at == *settings.alias_apex() {
                cut = Some(at);
            }
            at = above;
        }
        cut
    }
}

/// Returns the whole parent zone under a serial.
pub fn zone(delegations: &Delegations, settings: &Settings, serial: u32) -> Contents {
    let mut contents = Contents::new(settings.domain().clone());
    // Whether each is delegated.
    let mut owners: BTreeMap<&Name, bool> = delegations.apexes.iter().map(|apex| (apex, true)).collect();
    owners.insert(settings.alias_apex(), true);
    let hosts = delegations.hosts.keys();
    for name in own_names(settings).chain([settings.domain()]).chain(delegations.texts.owners()).chain(hosts) {
        owners.entry(name).or_insert(false);
    }
    // In canonical order, a name comes directly before those below it, so the last cut is the one above them.
    let mut cut: Option<&Name> = None;
    for (owner, is_delegated) in owners {
        if cut.is_none_or(|cut| !owner.is_below(cut)) {
            cut = is_delegated.then_some(owner);
        }
        for rrset in owner_rrsets(owner, cut, delegations, settings, serial) {
            contents.set(owner.clone(), rrset).expect("owners of the parent are in it");
        }
    }
    contents
}

/// Returns the changes in the parent zone when the delegation of `apex` was added or removed, or its host or its TXT values were replaced,
/// without the SOA.
pub fn changes(apex: &Name, delegations: &Delegations, settings: &Settings) -> Vec<OwnerChange> {
    let names = own_names(settings).chain(delegations.texts.owners());
    let mut affected: BTreeSet<&Name> = names.filter(|name| name.is_below(apex)).collect();
    affected.insert(apex);
    let below = delegations.apexes.range::<Name, _>((Excluded(apex), Unbounded));
    affected.extend(below.take_while(|name| name.is_below(apex)));
    let hosts = delegations.hosts.range::<Name, _>((Excluded(apex), Unbounded)).map(|(host, _)| host);
    affected.extend(hosts.take_while(|host| host.is_below(apex)));
    let change = |owner: &Name| {
        let cut = delegations.cut_of(owner, settings);
        owner_change(owner, owner_rrsets(owner, cut.as_ref(), delegations, settings, 0))
    };
    affected.into_iter().map(change).collect()
}

/// Returns the names of the base at and below delegated names, which are not served; for a warning.
pub fn hidden_base_names(delegations: &Delegations, settings: &Settings) -> Vec<Name> {
    let Some(base) = &settings.base else { return Vec::new() };
    let hidden = |owner: &Name, rrsets: &[Rrset]| match delegations.cut_of(owner, settings) {
        // A base that delegates the same shards is normal, and loses nothing.
        Some(cut) if cut == *owner => rrsets.iter().any(|rrset| rrset.rtype != RecordType::NS),
        Some(_) => !settings.name_servers().iter().any(|server| server.name == *owner),
        None => false,
    };
    base.owners().filter(|(owner, rrsets)| hidden(owner, rrsets)).map(|(owner, _)| owner.clone()).collect()
}

/// Returns the names that the settings add to the parent, except for the apex: the base's owners, the name
/// servers, and the owners of their SVCB records.
fn own_names(settings: &Settings) -> impl Iterator<Item = &Name> {
    let base = settings.base.iter().flat_map(|base| base.owners().map(|(owner, _)| owner));
    let servers = settings.name_servers().iter().map(|server| &server.name);
    let services = settings.services().iter().map(|(owner, _)| owner);
    base.chain(servers).chain(services).filter(|name| name.is_below(settings.domain()))
}

fn owner_change(owner: &Name, rrsets: Vec<Rrset>) -> OwnerChange {
    OwnerChange { owner: owner.clone(), rrsets, weights: Vec::new() }
}

/// Returns the records of `owner`; `cut` is the delegated name closest to the domain that is `owner` or above it.
fn owner_rrsets(
    owner: &Name,
    cut: Option<&Name>,
    delegations: &Delegations,
    settings: &Settings,
    serial: u32,
) -> Vec<Rrset> {
    if owner == settings.domain() {
        return apex_rrsets(settings, serial);
    }
    let addresses = settings
        .name_servers()
        .iter()
        .filter(|server| server.name == *owner)
        .flat_map(|server| apex::address_rrsets(server, settings.infrastructure_ttl));
    let mut rrsets = match cut {
        Some(cut) if *cut == *owner => vec![Rrset {
            rtype: RecordType::NS,
            ttl: settings.infrastructure_ttl,
            rdata: apex::name_server_rdata(settings),
        }],
        Some(_) => Vec::new(),
        None => settings.base.as_ref().map_or(Vec::new(), |base| base.owner(owner).to_vec()),
    };
    let mut addresses = addresses.peekable();
    if addresses.peek().is_some() {
        rrsets.retain(|rrset| !matches!(rrset.rtype, RecordType::A | RecordType::AAAA | RecordType::CNAME));
    }
    rrsets.extend(addresses);
    if let (None, Some(service)) = (cut, apex::service_rrset(owner, settings)) {
        rrsets.retain(|rrset| !matches!(rrset.rtype, RecordType::SVCB | RecordType::CNAME));
        rrsets.push(service);
    }
    if let (None, Some(values)) = (cut, delegations.texts.of(owner)) {
        rrsets.retain(|rrset| !matches!(rrset.rtype, RecordType::TXT | RecordType::CNAME));
        rrsets.push(challenges::rrset(values));
    }
    if let (None, true, Some(label)) = (cut, rrsets.is_empty(), delegations.hosts.get(owner)) {
        let alias = settings.alias_apex().prepend(label.as_bytes()).expect("Settings::new leaves room for any label");
        rrsets.push(Rrset { rtype: RecordType::CNAME, ttl: settings.alias_ttl, rdata: vec![alias.as_wire().into()] });
    }
    rrsets
}

fn apex_rrsets(settings: &Settings, serial: u32) -> Vec<Rrset> {
    let apex = settings.domain();
    let base = settings.base.as_ref().map_or(&[][..], |base| base.owner(apex));
    let base_soa = base.iter().find(|rrset| rrset.rtype == RecordType::SOA);
    let mut rrsets = apex::soa_and_ns(settings, serial);
    if let Some(mut soa) = base_soa.cloned() {
        for rdata in &mut soa.rdata {
            // The root means the first name server.
            if let [0, rest @ ..] = &**rdata {
                *rdata = [settings.name_servers()[0].name.as_wire(), rest].concat().into();
            }
            if let Some(octets) = apex::serial_octets(rdata) {
                *octets = serial.to_be_bytes();
            }
        }
        rrsets[0] = soa;
    }
    let other = |rrset: &&Rrset| !matches!(rrset.rtype, RecordType::SOA | RecordType::NS | RecordType::CNAME);
    rrsets.extend(base.iter().filter(other).cloned());
    if let Some(server) =
        settings.name_servers().iter().find(|server| server.name == *apex && !server.addresses.is_empty())
    {
        rrsets.retain(|rrset| !matches!(rrset.rtype, RecordType::A | RecordType::AAAA));
        rrsets.extend(apex::address_rrsets(server, settings.infrastructure_ttl));
    }
    rrsets
}
