//! Former names: what is left in a shard's zone of routes that have moved to another one.
//!
//! ```text
//! *.shard1.v3.example.             A      as ever
//! shop-web.shard1.v3.example.      CNAME  shop-web.shard2.v3.example.
//! *.shop-web.shard1.v3.example.    CNAME  shop-web.shard2.v3.example.
//! ```
//!
//! The second record is there since a name that exists blocks the wildcard also for the names below it (RFC 4592 §3.3.1),
//! which the wildcard answered before.
//!
//! A RouteBinding holds the zones that its Route has left. Where their names lead is not stored but made from where the Route
//! is now, so that a Route that moves twice has two former names to one name, never a chain; and a zone that a Route has come
//! back to holds no former name of it, so that there is no loop. Resolvers may hold for a while what such a zone said before: until
//! they do not, the former names lead to the name that the Route left last, where the wildcard answers
//! ([`BindingInput::leads_to`]).
//!
//! A former name that comes or goes costs what one name costs, however many there are: a drained shard gets tens of thousands.

use std::collections::{BTreeMap, BTreeSet};

use super::apex;
use super::diagnostic::Diagnostic;
use super::digest::Digest;
use super::inputs::{BindingInput, RouterInput};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, OwnerChange, Rrset, Ttl};

/// Longest TTL of a former name's CNAME in seconds. It is short, whatever the shard's, since a further move changes it.
const TTL_SECONDS_MAX: u32 = 30;

/// The former names in one shard's zone: the label of each route that has left, and the zone below which the label's name leads on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormerNames {
    labels: BTreeMap<Box<str>, Box<str>>,
    digest: Digest,
}

impl FormerNames {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// What they add to the digest of the shard's zone.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Lets the former name of `label` lead to `zone`; without one it is gone.
    pub fn set(&mut self, label: &str, zone: Option<Box<str>>) {
        let part = |zone: &str| Digest::of_former_name(label, zone);
        let before = match zone {
            Some(zone) => {
                self.digest = self.digest.plus(part(&zone));
                self.labels.insert(label.into(), zone)
            }
            None => self.labels.remove(label),
        };
        if let Some(before) = before {
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
    /// The zone below which the label's name leads on; `None`: the former name is gone.
    pub zone: Option<Box<str>>,
    /// The digest of all former names in the zone after this change.
    pub digest: Digest,
}

impl FormerNameIndex {
    /// The former names in the zone `apex`, if there are any.
    pub fn of(&self, apex: &Name) -> Option<&FormerNames> {
        self.0.get(apex)
    }

    /// Puts the former names of a binding in the place of those of the one that had its label before. The answer is what this
    /// changes.
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

/// Puts the former names of a shard's zone into it. A label at which the Router has records of its own gets none, with a diagnostic: a
/// CNAME stands alone (RFC 1034 §3.6.2).
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

/// What the former name of `label` is in the zone of `router`: its own name, and the wildcard below. This holds where the Router has
/// no record at or below the label ([`own_labels`]).
///
/// # Panics
///
/// If `label` is no label, or there is no room for it in either zone: `BindingInput::read` refuses such.
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

/// The labels right below the apex at or below which a zone, as yet without former names, has records: a former name of such a label is not
/// a matter of its own name alone. The shard's own wildcard is none of them: no route has that label.
pub fn own_labels(contents: &Contents) -> BTreeSet<Box<[u8]>> {
    let labels = contents.owners().filter_map(|(owner, _)| top_label(owner, contents.apex()));
    labels.filter(|label| **label != *b"*").collect()
}

/// The label of `name` right below `apex`, in lower case; `None` for the apex itself and names elsewhere.
pub fn top_label(name: &Name, apex: &Name) -> Option<Box<[u8]>> {
    let above = name.is_below(apex).then(|| name.label_count() - apex.label_count() - 1)?;
    name.labels().nth(above).map(|label| label.to_ascii_lowercase().into())
}
