//! A shard's zone: one Router's wildcard, its addresses, and its further records.
//!
//! ```text
//! shard1.v3.example.             SOA  NS                     from the configuration
//! *.shard1.v3.example.           A A AAAA                    spec.addresses
//! _acme-challenge.app.shard1…    TXT                         spec.records
//! app.shard1…, and the name above  A A AAAA                  copied from the wildcard
//! moved.shard1…                    CNAME                     former names of routes that have left (see `former_names`)
//! eu.shard1…                       NS                        a cut: the zone of a shard inside this one
//! _acme-challenge.other.shard1…    TXT                       ChallengeRecords (see `challenges`)
//! ```
//!
//! The copies are necessary because a name that exists blocks the wildcard, for all types, at itself and at every name above it
//! that exists as a result (RFC 4592 §2.2.1, §3.3.1). Without them, the ownership challenge of a certificate's name would make
//! the application of that name unreachable.
//!
//! At and below a cut are only NS records and the addresses of name servers (RFC 9471: glue). The Router's records there are omitted,
//! because these names belong to the inner shard. The wildcard does not cover them (RFC 4592 §2.2.1).
//!
//! A shard whose addresses are all drained keeps its wildcard, with a TXT record instead of the addresses: its names answer
//! NODATA instead of NXDOMAIN, which resolvers would extend to every type and every name below (RFC 8020).

use std::collections::BTreeSet;
use std::ops::Deref;

use super::apex;
use super::challenges::TextValues;
use super::diagnostic::Diagnostic;
use super::digest::Digest;
use super::expectation::{Expectation, label_below};
use super::former_names::{self, FormerNames};
use super::inputs::RouterInput;
use super::records;
use super::settings::Settings;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::check::{self, Severity};
use signpost_dns::zone::{Contents, Rrset};
use signpost_types::v1alpha1::router::Router;

/// The text at the wildcard of a shard without an active address.
const NO_ADDRESS: &[u8] = b"no active address";

/// The only reading of a Router as a zone. It is computed once for each change of the object, and all loops share it, so that they
/// agree on every record. It dereferences to its input, because most readers only need the name and the apex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardView {
    router: RouterInput,
    /// The apexes of the shards directly inside this one.
    cuts: BTreeSet<Name>,
    /// The values of ChallengeRecords.
    texts: TextValues,
    /// The wildcard and the further records of a Router that has any. Without them, the wildcard is derived from the addresses when
    /// it is needed, which parses nothing: copies for 100,000 shards would take some 80 MB.
    contents: Option<Box<Contents>>,
    /// The digest of the zone without former names. Equal on all name servers: it does not depend on settings.
    pub digest: Digest,
    /// The further records that are omitted from the zone, with the reasons.
    pub diagnostics: Box<[Diagnostic]>,
    /// The labels directly below the apex at which it has further records, in lower case: no former name can be there.
    pub record_labels: BTreeSet<Box<str>>,
    /// The labels at or below which the zone has other records than the wildcard (see [`former_names::own_labels`]).
    pub own_labels: BTreeSet<Box<[u8]>>,
    /// The expected answers for the zone's names.
    pub expectation: Expectation,
}

impl ShardView {
    /// Reads a Router. Returns `None` if no zone is possible. `diagnostics` gets the problems of all fields but `spec.records`.
    pub fn read(router: &Router, settings: &Settings, diagnostics: &mut Vec<Diagnostic>) -> Option<ShardView> {
        let router = RouterInput::read(router, &settings.domain_text(), diagnostics)?;
        Some(ShardView::new(router, settings))
    }

    /// Returns the view of a Router with no other shard inside its own. Records that make the zone invalid are omitted, all of them if the
    /// fault is in the whole zone.
    pub fn new(router: RouterInput, settings: &Settings) -> ShardView {
        ShardView::with(router, BTreeSet::new(), TextValues::default(), settings)
    }

    /// Returns the view of a Router whose zone has these cuts, and the values of these ChallengeRecords.
    pub fn with(router: RouterInput, cuts: BTreeSet<Name>, texts: TextValues, settings: &Settings) -> ShardView {
        let mut diagnostics = Vec::new();
        let mut contents = compile(&router, &cuts, &mut diagnostics);
        let mut labels = record_labels(&contents);
        add_texts(&mut contents, &texts);
        let digest = Digest::of_contents(&contents);
        let digest = cuts.iter().fold(digest, |digest, cut| digest.plus(Digest::of_delegation(cut)));
        let complete = |mut contents: Contents| {
            add_cuts(&mut contents, &cuts, settings);
            complete(contents, &cuts, settings, 0)
        };
        let mut zone = complete(contents.clone());
        // Without further records, a zone is always valid. Former names are only where the zone has no records, so they cannot make
        // it invalid.
        if !router.records.is_empty()
            && let Some(fault) =
                check::check(&zone).into_iter().find(|finding| finding.code.severity() == Severity::Error)
        {
            let message = format!("{}: {}; the zone is served without these records", fault.owner, fault.message);
            diagnostics = vec![Diagnostic::router(&router.name, "spec.records", message)];
            contents = compile(&RouterInput { records: Box::default(), ..router.clone() }, &cuts, &mut Vec::new());
            labels = BTreeSet::new();
            add_texts(&mut contents, &texts);
            zone = complete(contents.clone());
        }
        ShardView {
            digest,
            diagnostics: diagnostics.into(),
            record_labels: labels,
            own_labels: former_names::own_labels(&zone),
            expectation: Expectation::new(&zone, settings),
            contents: (!router.records.is_empty() || !texts.is_empty()).then(|| Box::new(contents)),
            router,
            cuts,
            texts,
        }
    }

    /// Returns the same view with other cuts.
    pub fn with_cuts(&self, cuts: BTreeSet<Name>, settings: &Settings) -> ShardView {
        ShardView::with(self.router.clone(), cuts, self.texts.clone(), settings)
    }

    /// Returns the wildcard and the further records.
    pub fn contents(&self) -> Contents {
        match &self.contents {
            Some(contents) => (**contents).clone(),
            None => compile(&self.router, &self.cuts, &mut Vec::new()),
        }
    }

    /// Returns whether the apex has addresses, by the Router's records.
    pub fn has_apex(&self) -> bool {
        let is_address = |rrset: &Rrset| matches!(rrset.rtype, RecordType::A | RecordType::AAAA);
        self.contents.as_ref().is_some_and(|contents| contents.owner(&self.router.apex).iter().any(is_address))
    }

    /// Returns the apexes of the shards directly inside this one.
    pub fn cuts(&self) -> &BTreeSet<Name> {
        &self.cuts
    }

    /// Returns the values of ChallengeRecords in the zone.
    pub fn texts(&self) -> &TextValues {
        &self.texts
    }

    /// Returns the Router's input.
    pub fn input(&self) -> &RouterInput {
        &self.router
    }

    /// Returns the whole zone under a serial, with a diagnostic for each former name that is omitted.
    pub fn zone(
        &self,
        former_names: &FormerNames,
        settings: &Settings,
        serial: u32,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> Contents {
        let mut contents = self.contents();
        add_cuts(&mut contents, &self.cuts, settings);
        former_names::add(&mut contents, self, former_names, diagnostics);
        complete(contents, &self.cuts, settings, serial)
    }
}

impl Deref for ShardView {
    type Target = RouterInput;

    fn deref(&self) -> &RouterInput {
        &self.router
    }
}

/// Returns the wildcard and the further records of a Router. Unusable records are omitted, with a diagnostic.
fn compile(router: &RouterInput, cuts: &BTreeSet<Name>, diagnostics: &mut Vec<Diagnostic>) -> Contents {
    let mut contents = Contents::new(router.apex.clone());
    let wildcard = router.apex.wildcard().expect("the apex leaves room for the wildcard: RouterInput::read");
    put_addresses(&mut contents, &wildcard, router);
    records::add(&mut contents, router, cuts, &wildcard, diagnostics);
    if contents.owner(&wildcard).is_empty() {
        apex::set(&mut contents, &wildcard, RecordType::TXT, router.ttl, vec![character_string(NO_ADDRESS)]);
    }
    contents
}

/// Returns the labels directly below the apex that have records.
fn record_labels(contents: &Contents) -> BTreeSet<Box<str>> {
    let owners = contents.owners().map(|(owner, _)| owner).filter(|owner| !owner.is_wildcard());
    owners.filter_map(|owner| label_below(owner, contents.apex())).collect()
}

/// Adds the values of ChallengeRecords to those of the Router's own TXT records. Where the Router has a CNAME, a DNAME above, or a cut,
/// there is no place for them.
fn add_texts(contents: &mut Contents, texts: &TextValues) {
    for (owner, mut rrset) in texts.rrsets() {
        let above = std::iter::successors(Some(owner.clone()), Name::parent).take_while(|name| name != contents.apex());
        let has = |name: &Name, rtype| contents.get(name, rtype).is_some();
        let is_elsewhere = has(owner, RecordType::CNAME)
            || above
                .into_iter()
                .any(|name| has(&name, RecordType::NS) || (name != *owner && has(&name, RecordType::DNAME)));
        if is_elsewhere {
            continue;
        }
        if let Some(own) = contents.get(owner, RecordType::TXT) {
            let new = rrset.rdata.into_iter().filter(|value| !own.rdata.contains(value));
            rrset = Rrset { rdata: own.rdata.iter().cloned().chain(new).collect(), ..own.clone() };
        }
        contents.set(owner.clone(), rrset).expect("the platform places only names of the zone here");
    }
}

/// Adds the NS records of the cuts, before former names, which have no place there.
fn add_cuts(contents: &mut Contents, cuts: &BTreeSet<Name>, settings: &Settings) {
    for cut in cuts {
        let rdata = apex::name_server_rdata(settings);
        apex::set(contents, cut, RecordType::NS, settings.infrastructure_ttl, rdata);
    }
}

/// Adds the records that do not come from the Router.
fn complete(mut contents: Contents, cuts: &BTreeSet<Name>, settings: &Settings, serial: u32) -> Contents {
    apex::dress(&mut contents, settings, serial);
    // The addresses of name servers below a cut are glue; their other records belong to the inner zone.
    for (owner, _) in settings.services().iter().filter(|(owner, _)| records::cut_above(cuts, owner).is_some()) {
        contents.remove(owner, RecordType::SVCB);
    }
    copy_wildcard(&mut contents);
    contents
}

fn put_addresses(contents: &mut Contents, wildcard: &Name, router: &RouterInput) {
    let mut weights: [(RecordType, Vec<u16>); 2] = [(RecordType::A, Vec::new()), (RecordType::AAAA, Vec::new())];
    for address in router.answering() {
        let (rtype, rdata) = apex::address_record(address.ip);
        contents.add(wildcard.clone(), rtype, router.ttl, rdata).expect("the wildcard is in the zone");
        weights[usize::from(address.ip.is_ipv6())].1.push(address.weight);
    }
    for (rtype, weights) in weights.into_iter().filter(|(_, weights)| !weights.is_empty()) {
        contents.set_weights(wildcard, rtype, weights).expect("a weight for each distinct address");
    }
}

fn character_string(text: &[u8]) -> Box<[u8]> {
    let length = u8::try_from(text.len()).expect("a constant of fewer than 256 octets");
    [&[length], text].concat().into_boxed_slice()
}

/// Gives every name that blocks the wildcard the wildcard's answer for the types that the name lacks, and also the names below
/// it, by a wildcard of its own: a record changes only its own name. A name with an address of its own gets none, because it has
/// a different target on purpose. A CNAME cannot coexist with other records, and the zone is not authoritative at and below a
/// zone cut, and below a DNAME.
fn copy_wildcard(contents: &mut Contents) {
    let apex = contents.apex().clone();
    let Ok(wildcard) = apex.wildcard() else { return };
    let rrsets = contents.owner(&wildcard).to_vec();
    if rrsets.is_empty() || contents.owner_count() <= 2 {
        return;
    }
    let blocking = blocking(contents, &apex, &wildcard);
    // Computed before any is added: names that are added here block nothing.
    let below = blocking.iter().filter(|name| !name.is_wildcard() && contents.get(name, RecordType::DNAME).is_none());
    // A longer name may not fit, and then cannot be queried either.
    let below: Vec<Name> = below.filter_map(|name| name.wildcard().ok()).collect();
    let below = below.into_iter().filter(|name| contents.owner(name).is_empty()).collect::<Vec<_>>();
    for name in blocking.iter().chain(&below) {
        copy(contents, &rrsets, &wildcard, name);
    }
}

/// Adds the missing ones of the wildcard's `rrsets` to `name`.
fn copy(contents: &mut Contents, rrsets: &[Rrset], wildcard: &Name, name: &Name) {
    let has = |rtype| contents.get(name, rtype).is_some();
    if has(RecordType::CNAME) {
        return;
    }
    let (addressed, placeholder) = (has(RecordType::A) || has(RecordType::AAAA), character_string(NO_ADDRESS));
    let lacks = |rrset: &&Rrset| match rrset.rtype {
        RecordType::A | RecordType::AAAA => !addressed,
        rtype => !has(rtype) && (rrset.rdata[..] != [placeholder.clone()] || name.is_wildcard()),
    };
    let copies: Vec<Rrset> = rrsets.iter().filter(lacks).cloned().collect();
    for rrset in copies {
        let rtype = rrset.rtype;
        let weights = contents.weights(wildcard, rtype).map(<[u16]>::to_vec);
        contents.set(name.clone(), rrset).expect("the name is in the zone");
        if let Some(weights) = weights {
            contents.set_weights(name, rtype, weights).expect("the weights of the same RRset");
        }
    }
}

/// Returns the names at which the wildcard no longer applies: owners, and the names between them and the apex.
fn blocking(contents: &Contents, apex: &Name, wildcard: &Name) -> BTreeSet<Name> {
    let mut blocking = BTreeSet::new();
    for (owner, _) in contents.owners() {
        // A name below the asterisk label itself does not match the wildcard (RFC 4592 §2.2.1).
        if owner == apex || owner.is_at_or_below(wildcard) {
            continue;
        }
        let mut chain = Vec::new();
        let mut name = owner.clone();
        while name != *apex {
            let above = name.parent().expect("the owner is below the apex");
            if contents.get(&name, RecordType::NS).is_some() {
                chain.clear();
            } else {
                chain.push(name);
            }
            name = above;
        }
        blocking.extend(chain);
    }
    blocking
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::zone::Ttl;

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    /// Returns the owners of a zone with a wildcard address and `owners`, given as name, type, after the copying.
    fn copied(owners: &[(&str, RecordType)]) -> Vec<String> {
        let apex = name("s.example.");
        let ttl = Ttl::new(30).expect("small");
        let mut contents = Contents::new(apex.clone());
        contents.add(apex.clone(), RecordType::SOA, ttl, Box::default()).expect("in zone");
        for (rtype, rdata) in [(RecordType::A, vec![192, 0, 2, 1]), (RecordType::AAAA, vec![0; 16])] {
            contents.add(name("*.s.example."), rtype, ttl, rdata.into()).expect("in zone");
        }
        for (owner, rtype) in owners {
            let owner = Name::parse(owner.as_bytes(), &apex).expect("a name of a test");
            contents.add(owner, *rtype, ttl, Box::from([9])).expect("in zone");
        }
        copy_wildcard(&mut contents);
        let types = |rrsets: &[signpost_dns::zone::Rrset]| {
            let mut types: Vec<_> = rrsets.iter().map(|rrset| rrset.rtype).collect();
            types.sort_unstable();
            types.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        contents.owners().skip(1).map(|(owner, rrsets)| format!("{owner} {}", types(rrsets))).collect()
    }

    #[test]
    fn names_that_block_the_wildcard_get_its_records() {
        let wildcard = "*.s.example. A AAAA";
        for (owners, expected) in [
            (vec![], vec![wildcard]),
            (
                vec![("_acme-challenge.app", RecordType::TXT)],
                vec![
                    wildcard,
                    "app.s.example. A AAAA",
                    "*.app.s.example. A AAAA",
                    "_acme-challenge.app.s.example. A TXT AAAA",
                    "*._acme-challenge.app.s.example. A AAAA",
                ],
            ),
            (
                vec![("a.b.c", RecordType::TXT)],
                vec![
                    wildcard,
                    "c.s.example. A AAAA",
                    "*.c.s.example. A AAAA",
                    "b.c.s.example. A AAAA",
                    "*.b.c.s.example. A AAAA",
                    "a.b.c.s.example. A TXT AAAA",
                    "*.a.b.c.s.example. A AAAA",
                ],
            ),
            // A name with an address of its own: it has a different target, for both families.
            (vec![("app", RecordType::A)], vec![wildcard, "app.s.example. A", "*.app.s.example. A AAAA"]),
            (vec![("app", RecordType::DNAME)], vec![wildcard, "app.s.example. A AAAA DNAME"]),
            (
                vec![("x.app", RecordType::CNAME)],
                vec![
                    wildcard,
                    "app.s.example. A AAAA",
                    "*.app.s.example. A AAAA",
                    "x.app.s.example. CNAME",
                    "*.x.app.s.example. A AAAA",
                ],
            ),
            // The zone is authoritative for the name above a cut, but not for the cut and below.
            (
                vec![("cut.up", RecordType::NS), ("ns.cut.up", RecordType::AAAA)],
                vec![
                    wildcard,
                    "up.s.example. A AAAA",
                    "*.up.s.example. A AAAA",
                    "cut.up.s.example. NS",
                    "ns.cut.up.s.example. AAAA",
                ],
            ),
            // Deeper wildcards block as well; names below the asterisk never matched it.
            (vec![("*.app", RecordType::TXT)], vec![wildcard, "app.s.example. A AAAA", "*.app.s.example. A TXT AAAA"]),
            (vec![("sub.*", RecordType::TXT)], vec![wildcard, "sub.*.s.example. TXT"]),
        ] {
            assert_eq!(copied(&owners), expected, "{owners:?}");
        }
    }
}
