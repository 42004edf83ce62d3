//! The status of the zones' loop, for `/readyz`, `/metrics`, and operators.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::platform_zones::{Counters, Zones};
use crate::client::reflector::Health;
use crate::compiler::Diagnostic;
use crate::deletion_hold::hold::{Decisions, Held};
use crate::deletion_hold::losses::HeldLosses;

/// The shared status: the loop writes it, and any thread reads it.
#[derive(Default)]
pub struct Status {
    ready: AtomicBool,
    stale: AtomicBool,
    denying: AtomicBool,
    snapshot: Mutex<StatusSnapshot>,
    informers: OnceLock<Box<dyn Fn() -> Vec<Health> + Send + Sync>>,
    losses: Arc<HeldLosses>,
    last_good_failing: OnceLock<Arc<AtomicBool>>,
    last_good_refused: AtomicBool,
    last_good_refused_at: OnceLock<Timestamp>,
    hindrance: Mutex<Option<String>>,
}

#[derive(Default)]
struct StatusSnapshot {
    counters: Counters,
    zones: usize,
    former_domains: usize,
    diagnostics: Vec<Diagnostic>,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").field("ready", &self.is_ready()).field("synced", &self.is_synced()).finish()
    }
}

impl Status {
    /// Returns whether the platform's zones are served, including those from the last-known-good state.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Returns whether all objects were listed from the API since the start.
    pub fn is_synced(&self) -> bool {
        self.losses.is_synced()
    }

    /// Returns whether answers are marked as stale, because the API was unreachable for long.
    pub fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Sets whether answers are marked as stale; returns whether that is a change.
    pub fn set_stale(&self, stale: bool) -> bool {
        self.stale.swap(stale, Ordering::AcqRel) != stale
    }

    /// Returns whether names that are not found are denied: the zones are up to date with the API, or it is in this process.
    pub fn is_denying(&self) -> bool {
        self.denying.load(Ordering::Relaxed)
    }

    pub(super) fn set_denying(&self, denying: bool) {
        self.denying.store(denying, Ordering::Relaxed);
    }

    /// Returns whether a last-known-good state on disk currently cannot be written.
    pub fn is_last_good_failing(&self) -> bool {
        self.last_good_failing.get().is_some_and(|failing| failing.load(Ordering::Relaxed))
    }

    /// Returns whether the last-known-good state at the start was damaged, or of another platform, and moved aside, and there is
    /// no new one on disk yet.
    pub fn is_last_good_refused(&self) -> bool {
        self.last_good_refused.load(Ordering::Relaxed)
    }

    /// Returns the time at which a last-known-good state was rejected, if one was since the start.
    pub fn last_good_refused_at(&self) -> Option<Timestamp> {
        self.last_good_refused_at.get().copied()
    }

    /// Returns the obstacle to readiness, other than unsynced informers.
    pub fn hindrance(&self) -> Option<String> {
        self.hindrance.lock().clone()
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        self.snapshot().counters
    }

    /// Returns the number of zones built from objects, including the parent and the alias zone.
    pub fn zones(&self) -> usize {
        self.snapshot().zones
    }

    /// Returns the number of former domains whose zones are served.
    pub fn former_domains(&self) -> usize {
        self.snapshot().former_domains
    }

    /// Returns the held losses.
    pub fn held(&self) -> Vec<Held> {
        self.losses.held()
    }

    /// Returns the held losses and the decisions on them, for their reporter.
    pub fn losses(&self) -> Arc<HeldLosses> {
        Arc::clone(&self.losses)
    }

    /// Returns the problems of objects: conflicts, and records that cannot be served. At most a second old.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        self.snapshot().diagnostics.clone()
    }

    /// Returns the health of the informers: Router, RouteBinding, Zone. Empty before the loop runs.
    pub fn informers(&self) -> Vec<Health> {
        self.informers.get().map_or(Vec::new(), |informers| informers())
    }

    pub(super) fn decisions(&self) -> watch::Receiver<Arc<Decisions>> {
        self.losses.decisions()
    }

    pub(super) fn set_last_good(&self, failing: Arc<AtomicBool>) {
        // As for the informers: each status has one loop.
        let _ = self.last_good_failing.set(failing);
    }

    pub(super) fn set_last_good_refused(&self, now: Timestamp) {
        let _ = self.last_good_refused_at.set(now);
        self.last_good_refused.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_last_good_again(&self) {
        self.last_good_refused.store(false, Ordering::Relaxed);
    }

    pub(super) fn set_hindrance(&self, hindrance: Option<String>) {
        *self.hindrance.lock() = hindrance;
    }

    pub(super) fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    pub(super) fn set_synced(&self, synced: bool) {
        self.losses.set_synced(synced);
    }

    pub(super) fn set_counters(&self, zones: &Zones) {
        let mut snapshot = self.snapshot();
        (snapshot.counters, snapshot.zones) = (zones.counters, zones.count());
        snapshot.former_domains = zones.former_domains();
    }

    pub(super) fn set_held(&self, held: Vec<Held>) {
        self.losses.set_held(held);
    }

    pub(super) fn set_diagnostics(&self, diagnostics: Vec<Diagnostic>) {
        self.snapshot().diagnostics = diagnostics;
    }

    pub(super) fn set_informers(&self, informers: impl Fn() -> Vec<Health> + Send + Sync + 'static) {
        // A second loop over the same status would be a bug; the first one's informers stay.
        let _ = self.informers.set(Box::new(informers));
    }

    fn snapshot(&self) -> MutexGuard<'_, StatusSnapshot> {
        self.snapshot.lock()
    }
}
