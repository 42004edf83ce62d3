//! The lock-free map of zones: where the control plane publishes and the data plane reads.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use super::image::Zone;
use crate::wire::Name;

/// What one batch of queries is answered from: the zones as they were at one moment.
pub struct Snapshot {}

/// All zones of a name server.
pub struct ZoneDb {
    current: Arc<ArcSwap<Snapshot>>,
}

/// A worker's view of the zones: one atomic load a batch while nothing changes.
pub struct Reader {
    cache: Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>,
}

/// One step of [`ZoneDb::apply`].
pub enum Change {
    /// Serve this zone, in the place of what its apex had.
    Publish(Arc<Zone>),
    /// Serve this apex no more.
    Remove(Name),
}

impl Reader {
    /// The zones of now. Take it once a batch.
    pub fn snapshot(&mut self) -> &Snapshot {
        self.cache.load()
    }
}

impl ZoneDb {
    /// No zones, not ready.
    pub fn new() -> Self {
        ZoneDb { current: Arc::new(ArcSwap::from_pointee(Snapshot {})) }
    }

    /// A view for one worker.
    pub fn reader(&self) -> Reader {
        Reader { cache: Cache::new(Arc::clone(&self.current)) }
    }

    /// Applies all `changes` in one step: readers see none or all of them.
    pub fn apply(&self, _changes: impl IntoIterator<Item = Change>) {}

    /// Serves `zone` in the place of what its apex had.
    pub fn publish(&self, zone: impl Into<Arc<Zone>>) {
        self.apply([Change::Publish(zone.into())]);
    }

    /// Serves all of `zones`, in one step.
    pub fn publish_many(&self, zones: impl IntoIterator<Item = Zone>) {
        self.apply(zones.into_iter().map(|zone| Change::Publish(Arc::new(zone))));
    }

    /// Serves `apex` no more; whether it was there.
    pub fn remove(&self, _apex: &Name) -> bool {
        false
    }

    /// The zone at `apex`.
    pub fn get(&self, _apex: &Name) -> Option<Arc<Zone>> {
        None
    }

    /// All zones, in canonical order of their apexes.
    pub fn zones(&self) -> Vec<Arc<Zone>> {
        Vec::new()
    }

    /// From now on a name outside all zones is REFUSED; before, every query is answered SERVFAIL with EDE 14 (Not Ready).
    pub fn set_ready(&self) {}

    /// Whether [`Self::set_ready`] was called.
    pub fn is_ready(&self) -> bool {
        false
    }

    /// Frees versions that no reader holds any more; how many are still held. Every publish does so too; call it from
    /// a housekeeping loop, so that the last version before a quiet hour does not stay.
    pub fn reclaim(&self) -> usize {
        0
    }
}

impl Default for ZoneDb {
    fn default() -> Self {
        Self::new()
    }
}
