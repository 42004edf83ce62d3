//! One shard's zone: what it is made of, and how it comes to be made.
//!
//! A changed Router has its zone made anew: without former names it is small. A former name that comes, changes or goes is two owners of the
//! zone that was made last, however many others there are. Only where the Router has records at or below the former name's label, what
//! the two come to depends on both, and the zone is made anew all the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::version_history::{Published, VersionHistory};
use crate::compiler::apex::Soa;
use crate::compiler::former_names::{self, FormerNames};
use crate::compiler::inputs::RouterInput;
use crate::compiler::{Diagnostic, Digest, Settings, shard};
use signpost_dns::wire::RecordType;
use signpost_dns::zone::check::{self, Severity};
use signpost_dns::zone::{OwnerChange, Serial, Zone};

/// A shard's zone, with the states that it has yet to come to.
pub struct Shard {
    /// The Router at the start of the timeline.
    router: Arc<RouterInput>,
    /// The former names at the start of the timeline.
    former_names: FormerNames,
    /// The digest of what the Router at the end of the timeline contributes.
    own: Digest,
    /// Its states.
    pub timeline: VersionHistory<Step>,
    made: Option<BuiltZone>,
}

/// What leads from one state of a shard's zone to the next.
#[derive(Debug, Clone)]
pub enum Step {
    /// The Router is this one now.
    Router(Arc<RouterInput>),
    /// The former name of a label leads elsewhere.
    FormerName {
        /// The label.
        label: Box<str>,
        /// The zone below which its name leads on; `None`: the former name is gone.
        zone: Option<Box<str>>,
    },
}

/// The zone as it was made last, at the start of the timeline.
struct BuiltZone {
    zone: Arc<Zone>,
    own_labels: BTreeSet<Box<[u8]>>,
}

/// A shard's zone as it is to be served.
pub struct Built {
    /// The zone.
    pub zone: Arc<Zone>,
    /// What was found by making it anew.
    pub found: Option<Found>,
}

/// What making a zone anew finds.
pub struct Found {
    /// What is wrong with its Router.
    pub diagnostics: Vec<Diagnostic>,
    /// The labels of the Router's records (see [`former_names::own_labels`]).
    own_labels: BTreeSet<Box<[u8]>>,
}

impl Shard {
    /// A zone in the state that its timeline starts with.
    pub fn new(router: Arc<RouterInput>, former_names: FormerNames, timeline: VersionHistory<Step>) -> Self {
        Shard { own: timeline.digest().minus(former_names.digest()), router, former_names, timeline, made: None }
    }

    /// The Router is another one, or says otherwise. `formerNames` is the digest of all former names.
    pub fn push_router(&mut self, router: Arc<RouterInput>, former_names: Digest, now: Instant) {
        self.own = shard::digest(&router);
        self.timeline.push(Step::Router(router), self.own.plus(former_names), now);
    }

    /// A former name leads elsewhere. `formerNames` is the digest of all former names.
    pub fn push_former_name(&mut self, label: Box<str>, zone: Option<Box<str>>, former_names: Digest, now: Instant) {
        self.timeline.push(Step::FormerName { label, zone }, self.own.plus(former_names), now);
    }

    /// The zone after the first `steps` steps, made of the one before by what they change; `None` if it is to be made anew.
    pub fn changed(&self, steps: usize, published: &Published) -> Option<Built> {
        let made = self.made.as_ref()?;
        self.timeline.published().filter(|last| last.config == published.config)?;
        let mut changes: Vec<OwnerChange> = Vec::with_capacity(2 * steps + 1);
        for step in self.timeline.steps(steps) {
            let Step::FormerName { label, zone } = step else { return None };
            if made.own_labels.contains(label.as_bytes()) {
                return None;
            }
            changes.extend(former_names::changes(&self.router, label, zone.as_deref()));
        }
        let apex = made.zone.apex().clone();
        let mut rrsets = made.zone.owner(&apex);
        let soa = rrsets.iter_mut().find(|rrset| rrset.rtype == RecordType::SOA)?.rdata.first_mut()?;
        *soa = Soa { serial: published.serial.0, ..Soa::from_rdata(soa)? }.to_rdata();
        changes.push(OwnerChange { owner: apex, rrsets, weights: Vec::new() });
        let zone = made.zone.with_changes(&changes).expect("former names are in the zone, and the apex has its SOA");
        Some(Built { zone: Arc::new(zone), found: None })
    }

    /// The first `steps` steps are part of what is published.
    pub fn pass(&mut self, steps: usize, published: Published) {
        for step in self.timeline.publish(steps, published) {
            match step {
                Step::Router(router) => self.router = router,
                Step::FormerName { label, zone } => self.former_names.set(&label, zone),
            }
        }
    }

    /// Makes the zone anew, in the state at the start of the timeline.
    pub fn build(&self, settings: &Settings, serial: Serial) -> Built {
        let mut diagnostics = Vec::new();
        let made = shard::compile(&self.router, &self.former_names, &mut diagnostics);
        build_shard(&self.router, &self.former_names, made, diagnostics, settings, serial)
    }

    /// The zone was made. Returns what is wrong with the Router, if that was looked at.
    pub fn keep(&mut self, Built { zone, found }: Built) -> Option<Vec<Diagnostic>> {
        let before = self.made.take().map(|made| made.own_labels).unwrap_or_default();
        let (diagnostics, own_labels) = match found {
            Some(found) => (Some(found.diagnostics), found.own_labels),
            None => (None, before),
        };
        self.made = Some(BuiltZone { zone, own_labels });
        diagnostics
    }
}

/// Makes the zone of a Router whose records are compiled.
pub fn build_shard(
    router: &RouterInput,
    former_names: &FormerNames,
    made: shard::Shard,
    mut diagnostics: Vec<Diagnostic>,
    settings: &Settings,
    serial: Serial,
) -> Built {
    let mut own_labels = made.own_labels;
    let servers = settings.name_servers().iter();
    own_labels.extend(servers.filter_map(|server| former_names::top_label(&server.name, &router.apex)));
    let mut contents = shard::zone(made.records, settings, serial.0);
    // Without further records a zone is good by construction.
    if !router.records.is_empty()
        && let Some(fault) =
            check::check(&contents).into_iter().find(|finding| finding.code.severity() == Severity::Error)
    {
        let message = format!("{}: {}; the zone is served without these records", fault.owner, fault.message);
        diagnostics = vec![Diagnostic::router(&router.name, "spec.records", message)];
        let plain = RouterInput { records: Box::default(), ..router.clone() };
        contents = shard::zone(shard::compile(&plain, former_names, &mut diagnostics).records, settings, serial.0);
    }
    let zone = Arc::new(Zone::build(&contents).expect("the zone has been given a SOA"));
    Built { zone, found: Some(Found { diagnostics, own_labels }) }
}
