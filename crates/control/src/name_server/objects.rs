//! Changes of the objects that zones are made from, as informers report them.

use std::sync::Arc;

use tokio::time::Instant;

use crate::client::reflector::{Change, Changes, HealthProbe, ObjectKey, Store};
use crate::compiler::challenges::ChallengeInput;
use crate::compiler::inputs::BindingInput;
use crate::compiler::platform::{self, Input};
use crate::compiler::{Diagnostic, Platform, ShardView};
use crate::world::{BindingInfo, ChallengeInfo, RouterInfo, World};
use signpost_types::v1alpha1::zone::Zone;

/// Readers of the objects that zones are made from, and of the ledger of their serials.
pub struct Objects {
    pub routers: (Store<RouterInfo>, Changes<RouterInfo>),
    /// The RouteBindings.
    pub bindings: (Store<BindingInfo>, Changes<BindingInfo>),
    /// The ChallengeRecords. A cluster with older definitions lacks the kind: nothing waits for its list.
    pub challenges: (Store<ChallengeInfo>, Changes<ChallengeInfo>),
    /// The ledger.
    pub zones: (Store<Zone>, Changes<Zone>),
}

/// A change of these.
pub enum Event {
    Router(Change<RouterInfo>),
    /// A change of RouteBindings.
    Binding(Change<BindingInfo>),
    Challenge(Change<ChallengeInfo>),
    /// A change of the ledger.
    Zone(Change<Zone>),
}

impl Objects {
    /// Starts to read them.
    pub fn read(world: &World) -> Self {
        Objects {
            routers: world.routers.read(),
            bindings: world.bindings.read(),
            challenges: world.challenges.read(),
            zones: world.zones.read(),
        }
    }

    /// Returns the health of the informers.
    pub fn probes(&self) -> [HealthProbe; 3] {
        [self.routers.0.probe(), self.bindings.0.probe(), self.zones.0.probe()]
    }

    /// Waits for the next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Event {
        tokio::select! {
            change = self.routers.1.next() => Event::Router(change),
            change = self.bindings.1.next() => Event::Binding(change),
            change = self.challenges.1.next() => Event::Challenge(change),
            change = self.zones.1.next() => Event::Zone(change),
        }
    }

    /// Returns the time up to which all changes of the API are in the stores, regardless of serials.
    pub fn caught_up(&self) -> Option<Instant> {
        Some(self.routers.0.caught_up()?.min(self.bindings.0.caught_up()?))
    }

    /// Returns whether the stores have changes that [`Self::next`] has not returned.
    pub fn are_behind(&self) -> bool {
        self.routers.1.is_behind() || self.bindings.1.is_behind()
    }

    /// Returns whether all kinds are listed, and [`Self::next`] has returned what they contain.
    pub fn is_taken(&self) -> bool {
        self.are_synced() && !self.are_behind()
    }

    /// Returns whether all kinds are listed.
    pub fn are_synced(&self) -> bool {
        self.routers.0.is_synced() && self.bindings.0.is_synced() && self.zones.0.is_synced()
    }
}

/// An object of which zones are made in a reduced form.
pub trait Reduced {
    /// That form.
    type Input: Input;

    /// Returns the reduced form; `None` if no zone can be built from the object.
    fn input(&self) -> Option<&Arc<Self::Input>>;

    /// Returns the object's problems.
    fn diagnostics(&self) -> &[Diagnostic];
}

impl Reduced for RouterInfo {
    type Input = ShardView;

    fn input(&self) -> Option<&Arc<ShardView>> {
        self.shard.as_ref()
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

impl Reduced for ChallengeInfo {
    type Input = ChallengeInput;

    fn input(&self) -> Option<&Arc<ChallengeInput>> {
        self.input.as_ref()
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &[]
    }
}

impl Reduced for BindingInfo {
    type Input = BindingInput;

    fn input(&self) -> Option<&Arc<BindingInput>> {
        self.input.as_ref()
    }

    fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }
}

/// Applies a change to a platform, and adds what that changes in the zones to `changes`.
pub fn put_all<I: Reduced>(platform: &mut Platform, change: &Change<I>, changes: &mut Vec<platform::Change>) {
    each_object(change, |key, read| {
        platform.put(&key.to_string(), read.and_then(|read| read.input()).cloned(), changes);
    });
}

/// Calls `on` for each object of a change, with its value or, if it was deleted, `None`; but not for those that a list lacks,
/// because these are assessed together.
pub fn each<V>(change: &Change<V>, mut on: impl FnMut(&ObjectKey, Option<&Arc<V>>)) {
    match change {
        Change::Applied(applied) => on(&applied.key, Some(&applied.now)),
        Change::Deleted { key, .. } => on(key, None),
        Change::Relisted(list) => list.applied.iter().for_each(|applied| on(&applied.key, Some(&applied.now))),
    }
}

/// Calls `on` for each object of a change, also for those that a list lacks.
pub fn each_object<V>(change: &Change<V>, mut on: impl FnMut(&ObjectKey, Option<&Arc<V>>)) {
    if let Change::Relisted(list) = change {
        list.vanished.iter().for_each(|(key, _)| on(key, None));
    }
    each(change, on);
}
