//! One shard's zone: what it is made of, and how it comes to be made.
//!
//! A changed Router has its zone made anew: without trails it is small. A trail that comes, changes or goes is two owners of the
//! zone that was made last, however many others there are. Only where the Router has records at or below the trail's label, what
//! the two come to depends on both, and the zone is made anew all the same.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::timeline::{Published, Timeline};
use crate::compiler::apex::Soa;
use crate::compiler::inputs::RouterInput;
use crate::compiler::trails::{self, Trails};
use crate::compiler::{Digest, Settings, Verdict, shard};
use signpost_dns::wire::RecordType;
use signpost_dns::zone::check::{self, Severity};
use signpost_dns::zone::{OwnerChange, Serial, Zone};

/// A shard's zone, with the states that it has yet to come to.
pub struct Shard {
    /// The Router at the start of the timeline.
    router: Arc<RouterInput>,
    /// The trails at the start of the timeline.
    trails: Trails,
    /// The digest of what the Router at the end of the timeline contributes.
    own: Digest,
    /// Its states.
    pub timeline: Timeline<Step>,
    made: Option<Made>,
}

/// What leads from one state of a shard's zone to the next.
#[derive(Debug, Clone)]
pub enum Step {
    /// The Router is this one now.
    Router(Arc<RouterInput>),
    /// The trail of a label leads elsewhere.
    Trail {
        /// The label.
        label: Box<str>,
        /// The zone below which its name leads on; `None`: the trail is gone.
        zone: Option<Box<str>>,
    },
}

/// The zone as it was made last, at the start of the timeline.
struct Made {
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
    pub verdicts: Vec<Verdict>,
    /// The labels of the Router's records (see [`trails::own_labels`]).
    own_labels: BTreeSet<Box<[u8]>>,
}

impl Shard {
    /// A zone in the state that its timeline starts with.
    pub fn new(router: Arc<RouterInput>, trails: Trails, timeline: Timeline<Step>) -> Self {
        Shard { own: timeline.digest().minus(trails.digest()), router, trails, timeline, made: None }
    }

    /// The Router is another one, or says otherwise. `trails` is the digest of all trails.
    pub fn push_router(&mut self, router: Arc<RouterInput>, trails: Digest, now: Instant) {
        self.own = shard::digest(&router);
        self.timeline.push(Step::Router(router), self.own.plus(trails), now);
    }

    /// A trail leads elsewhere. `trails` is the digest of all trails.
    pub fn push_trail(&mut self, label: Box<str>, zone: Option<Box<str>>, trails: Digest, now: Instant) {
        self.timeline.push(Step::Trail { label, zone }, self.own.plus(trails), now);
    }

    /// The zone after the first `steps` steps, made of the one before by what they change; `None` if it is to be made anew.
    pub fn changed(&self, steps: usize, published: &Published) -> Option<Built> {
        let made = self.made.as_ref()?;
        self.timeline.published().filter(|last| last.config == published.config)?;
        let mut changes: Vec<OwnerChange> = Vec::with_capacity(2 * steps + 1);
        for step in self.timeline.steps(steps) {
            let Step::Trail { label, zone } = step else { return None };
            if made.own_labels.contains(label.as_bytes()) {
                return None;
            }
            changes.extend(trails::changes(&self.router, label, zone.as_deref()));
        }
        let apex = made.zone.apex().clone();
        let mut rrsets = made.zone.owner(&apex);
        let soa = rrsets.iter_mut().find(|rrset| rrset.rtype == RecordType::SOA)?.rdata.first_mut()?;
        *soa = Soa { serial: published.serial.0, ..Soa::from_rdata(soa)? }.to_rdata();
        changes.push(OwnerChange { owner: apex, rrsets, weights: Vec::new() });
        let zone = made.zone.with_changes(&changes).expect("trails are in the zone, and the apex has its SOA");
        Some(Built { zone: Arc::new(zone), found: None })
    }

    /// The first `steps` steps are part of what is published.
    pub fn pass(&mut self, steps: usize, published: Published) {
        for step in self.timeline.publish(steps, published) {
            match step {
                Step::Router(router) => self.router = router,
                Step::Trail { label, zone } => self.trails.set(&label, zone),
            }
        }
    }

    /// Makes the zone anew, in the state at the start of the timeline.
    pub fn build(&self, settings: &Settings, serial: Serial) -> Built {
        let mut verdicts = Vec::new();
        let made = shard::compile(&self.router, &self.trails, &mut verdicts);
        build_shard(&self.router, &self.trails, made, verdicts, settings, serial)
    }

    /// The zone was made.
    pub fn keep(&mut self, zone: &Arc<Zone>, found: Option<BTreeSet<Box<[u8]>>>) {
        let before = self.made.take().map(|made| made.own_labels);
        let own_labels = found.or(before).unwrap_or_default();
        self.made = Some(Made { zone: Arc::clone(zone), own_labels });
    }
}

impl Found {
    /// The verdicts, and what [`Shard::keep`] wants to know.
    pub fn split(self) -> (Vec<Verdict>, BTreeSet<Box<[u8]>>) {
        (self.verdicts, self.own_labels)
    }
}

/// Makes the zone of a Router whose records are compiled.
pub fn build_shard(
    router: &RouterInput,
    trails: &Trails,
    made: shard::Shard,
    mut verdicts: Vec<Verdict>,
    settings: &Settings,
    serial: Serial,
) -> Built {
    let mut own_labels = made.own_labels;
    let servers = settings.name_servers().iter();
    own_labels.extend(servers.filter_map(|server| trails::top_label(&server.name, &router.apex)));
    let mut contents = shard::zone(made.records, settings, serial.0);
    // Without further records a zone is good by construction.
    if !router.records.is_empty()
        && let Some(fault) =
            check::check(&contents).into_iter().find(|finding| finding.code.severity() == Severity::Error)
    {
        let message = format!("{}: {}; the zone is served without these records", fault.owner, fault.message);
        verdicts = vec![Verdict::router(&router.name, "spec.records", message)];
        let plain = RouterInput { records: Box::default(), ..router.clone() };
        contents = shard::zone(shard::compile(&plain, trails, &mut verdicts).records, settings, serial.0);
    }
    let zone = Arc::new(Zone::build(&contents).expect("the zone has been given a SOA"));
    Built { zone, found: Some(Found { verdicts, own_labels }) }
}
