//! Former names: the records in a shard's zone for routes that have moved to another one.
//!
//! ```text
//! *.shard1.v3.example.             A      unchanged
//! shop-web.shard1.v3.example.      CNAME  shop-web.shard2.v3.example.
//! *.shop-web.shard1.v3.example.    CNAME  shop-web.shard2.v3.example.
//! ```
//!
//! The second record is necessary because a name that exists also blocks the wildcard for the names below it (RFC 4592 §3.3.1),
//! which the wildcard answered before.
//!
//! A RouteBinding contains the zones that its Route has left. The targets of these names are not stored, but derived from the
//! Route's current shard. So a Route that moves twice has two former names that point to one name, never a chain; and a zone to
//! which a Route has returned contains no former name of it, so that there is no loop. Resolvers can cache the earlier record of
//! such a zone: until it expires, the former names point to the name that the Route left last, where the wildcard answers
//! ([`BindingInput::leads_to`]).
//!
//! Adding or removing a former name has the cost of one name, for any number of them: a drained shard gets tens of thousands.

use std::collections::{BTreeMap, BTreeSet};

use super::apex;
use super::diagnostic::Diagnostic;
use super::digest::Digest;
use super::inputs::{BindingInput, RouterInput};
use crate::put::Put as _;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, OwnerChange, Rrset, Ttl};

/// The longest TTL of a former name's CNAME in seconds. It is short, regardless of the shard's, because a further move changes
/// it.
const TTL_SECONDS_MAX: u32 = 30;

/// The former names in one shard's zone: the label of each route that has left, and the zone to which the label's name points.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormerNames {
    labels: BTreeMap<Box<str>, Box<str>>,
    digest: Digest,
}

impl FormerNames {
    /// Returns whether there are no former names.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns their contribution to the digest of the shard's zone.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Points the former name of `label` to `zone`, or removes it without one.
    pub fn set(&mut self, label: &str, zone: Option<Box<str>>) {
        let part = |zone: &str| Digest::of_former_name(label, zone);
        if let Some(zone) = &zone {
            self.digest = self.digest.plus(part(zone));
        }
        if let Some(before) = self.labels.put(label.into(), zone) {
            self.digest = self.digest.minus(part(&before));
        }
    }
}

/// The former names of all zones.
#[derive(Debug, Clone, Default)]
pub struct FormerNameIndex(BTreeMap<Name, FormerNames>);

/// A former name that is another one now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The zone that it is in.
    pub apex: Name,
    /// The zone to which the label's name points; `None`: the former name was removed.
    pub zone: Option<Box<str>>,
    /// The digest of all former names in the zone after this change.
    pub digest: Digest,
}

impl FormerNameIndex {
    /// Returns the former names in the zone `apex`, if there are any.
    pub fn of(&self, apex: &Name) -> Option<&FormerNames> {
        self.0.get(apex)
    }

    /// Replaces the former names of the binding that had the label with those of another one. Returns the changes.
    pub fn replace(&mut self, before: Option<&BindingInput>, now: Option<&BindingInput>) -> Vec<Changed> {
        let leads = |binding: Option<&BindingInput>, apex: &Name| {
            let binding = binding.filter(|binding| binding.former_names.contains(apex))?;
            Some(Box::from(binding.target()))
        };
        let of = |binding: Option<&BindingInput>| binding.map_or(Vec::new(), |binding| binding.former_names.to_vec());
        let Some(label) = now.or(before).map(|binding| &binding.label) else { return Vec::new() };
        let mut zones = of(before);
        zones.extend(of(now));
        zones.sort_unstable();
        zones.dedup();
        zones.retain(|apex| leads(before, apex) != leads(now, apex));
        let change = |apex: Name| {
            let zone = leads(now, &apex);
            let former_names = self.0.entry(apex.clone()).or_default();
            former_names.set(label, zone.clone());
            let digest = former_names.digest();
            if former_names.is_empty() {
                self.0.remove(&apex);
            }
            Changed { apex, zone, digest }
        };
        zones.into_iter().map(change).collect()
    }
}

/// Adds the former names of a shard's zone to it. A label at which the Router has records of its own gets none, but a diagnostic:
/// a CNAME cannot coexist with other records (RFC 1034 §3.6.2).
pub fn add(
    contents: &mut Contents,
    router: &RouterInput,
    former_names: &FormerNames,
    diagnostics: &mut Vec<Diagnostic>,
) {
    for (label, zone) in &former_names.labels {
        let [own, below] = changes(router, label, Some(zone));
        if !contents.owner(&own.owner).is_empty() {
            let message = format!(
                "{} has records, so the former name cannot lead to {label}.{zone}, the current name of its Route; \
                 remove the records",
                own.owner
            );
            diagnostics.push(Diagnostic::router(&router.name, "spec.records", message));
            continue;
        }
        let below = Some(below).filter(|below| contents.owner(&below.owner).is_empty());
        for OwnerChange { owner, rrsets, .. } in std::iter::once(own).chain(below) {
            for Rrset { rtype, ttl, rdata } in rrsets {
                apex::set(contents, &owner, rtype, ttl, rdata);
            }
        }
    }
}

/// Returns the owners of the former name of `label` in the zone of `router`: its own name, and the wildcard below. Valid only if
/// the Router has no record at or below the label ([`own_labels`]).
///
/// # Panics
///
/// If `label` is not a label, or there is no room for it in either zone: `BindingInput::read` rejects these.
pub fn changes(router: &RouterInput, label: &str, zone: Option<&str>) -> [OwnerChange; 2] {
    let ttl = Ttl::new(router.ttl.seconds().min(TTL_SECONDS_MAX)).expect("smaller than a TTL");
    let checked = "BindingInput::read has checked it";
    let owner = router.apex.prepend(label.as_bytes()).expect(checked);
    let below = owner.wildcard().ok();
    let rrset = zone.map(|zone| {
        let target = zone.parse::<Name>().and_then(|zone| zone.prepend(label.as_bytes())).expect(checked);
        Rrset { rtype: RecordType::CNAME, ttl, rdata: vec![target.as_wire().into()] }
    });
    let change = |owner| OwnerChange { owner, rrsets: rrset.iter().cloned().collect(), weights: Vec::new() };
    // A name that leaves no room for an asterisk below it blocks nothing there.
    let below = below.unwrap_or_else(|| owner.clone());
    [change(owner), change(below)]
}

/// Returns the labels directly below the apex at or below which a zone has records other than former names: a former name of such
/// a label also depends on these records. The shard's own wildcard is excluded, because no route has that label.
pub fn own_labels(contents: &Contents) -> BTreeSet<Box<[u8]>> {
    let labels = contents.owners().filter_map(|(owner, _)| top_label(owner, contents.apex()));
    labels.filter(|label| **label != *b"*").collect()
}

/// Returns the label of `name` directly below `apex`, in lower case; `None` for the apex itself and names elsewhere.
pub fn top_label(name: &Name, apex: &Name) -> Option<Box<[u8]>> {
    let above = name.is_below(apex).then(|| name.label_count() - apex.label_count() - 1)?;
    name.labels().nth(above).map(|label| label.to_ascii_lowercase().into())
}
