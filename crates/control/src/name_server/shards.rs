//! One shard's zone: its inputs, and how it is built.
//!
//! A changed Router rebuilds its zone, which is small without former names. Adding, changing, or removing a former name changes
//! two owners of the last built zone, for any number of other former names. Only if the Router has records at or below the former
//! name's label, the result depends on both, and the zone is rebuilt.

use std::sync::Arc;
use std::time::Instant;

use super::version_history::{Published, VersionHistory};
use crate::compiler::former_names::{self, FormerNames};
use crate::compiler::{Diagnostic, Digest, Settings, ShardView};
use signpost_dns::zone::publish::{self, What};
use signpost_dns::zone::{OwnerChange, Serial, Zone};

/// A shard's zone, with its pending states.
pub struct Shard {
    /// The Router at the start of the timeline.
    router: Arc<ShardView>,
    /// The former names at the start of the timeline.
    former_names: FormerNames,
    /// The digest of the contribution of the Router at the end of the timeline.
    own: Digest,
    /// The states of the zone.
    pub timeline: VersionHistory<Step>,
    /// Whether the publisher has the zone at the start of the timeline.
    pub is_published: bool,
}

/// The difference between one state of a shard's zone and the next.
#[derive(Debug, Clone)]
pub enum Step {
    /// The Router is this one now.
    Router(Arc<ShardView>),
    /// The former name of a label leads elsewhere.
    FormerName {
        label: Box<str>,
        /// The zone to which its name points; `None`: the former name was removed.
        zone: Option<Box<str>>,
    },
}

/// A shard's zone to serve.
pub struct Built {
    pub zone: Arc<Zone>,
    /// The Router's problems.
    pub diagnostics: Vec<Diagnostic>,
}

impl Shard {
    /// Returns a zone in the state with which its timeline starts.
    pub fn new(router: Arc<ShardView>, former_names: FormerNames, timeline: VersionHistory<Step>) -> Self {
        Shard {
            own: timeline.digest().minus(former_names.digest()),
            router,
            former_names,
            timeline,
            is_published: false,
        }
    }

    /// Adds a step for a new or changed Router. `formerNames` is the digest of all former names.
    pub fn push_router(&mut self, router: Arc<ShardView>, former_names: Digest, now: Instant) {
        self.own = router.digest;
        self.timeline.push(Step::Router(router), self.own.plus(former_names), now);
    }

    /// Adds a step for a former name with a new target. `formerNames` is the digest of all former names.
    pub fn push_former_name(&mut self, label: Box<str>, zone: Option<Box<str>>, former_names: Digest, now: Instant) {
        self.timeline.push(Step::FormerName { label, zone }, self.own.plus(former_names), now);
    }

    /// Returns the changes of the published zone by the first `steps` steps; `None` if a rebuild is necessary.
    pub fn changed(&self, steps: usize, published: &Published) -> Option<What> {
        self.timeline.published().filter(|last| self.is_published && last.config == published.config)?;
        let mut changes: Vec<OwnerChange> = Vec::with_capacity(2 * steps);
        for step in self.timeline.steps(steps) {
            let Step::FormerName { label, zone } = step else { return None };
            if self.router.own_labels.contains(label.as_bytes()) {
                return None;
            }
            changes.extend(former_names::changes(&self.router, label, zone.as_deref()));
        }
        Some(What::Owners { changes, serial: published.serial })
    }

    /// Applies the first `steps` steps, which are part of the published version.
    pub fn pass(&mut self, steps: usize, published: Published) {
        for step in self.timeline.publish(steps, published) {
            match step {
                Step::Router(router) => self.router = router,
                Step::FormerName { label, zone } => self.former_names.set(&label, zone),
            }
        }
    }

    /// Rebuilds the zone in the state at the start of the timeline.
    pub fn build(&self, settings: &Settings, serial: Serial) -> Built {
        let mut diagnostics = self.router.diagnostics.to_vec();
        let contents = self.router.zone(&self.former_names, settings, serial.0, &mut diagnostics);
        Built { zone: publish::build(contents).expect("the zone has been given a SOA"), diagnostics }
    }
}
