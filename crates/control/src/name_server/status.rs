//! The status of the zones' loop, for `/readyz`, `/metrics`, and operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::platform_zones::Counters;
use crate::compiler::Diagnostic;
use crate::compiler::adopted::AdoptedHosts;
use crate::deletion_hold::losses::HeldLosses;

/// The shared status: the loop writes it, and any thread reads it.
#[derive(Debug, Default)]
pub struct Status {
    state: Mutex<State>,
    losses: Arc<HeldLosses>,
}

/// The state of the loop.
#[derive(Debug, Default)]
pub struct State {
    /// Whether the platform's zones are served, including those from the last-known-good state.
    pub is_ready: bool,
    /// Whether answers are marked as stale, because the API was unreachable for long.
    pub is_stale: bool,
    /// Whether names that are not found are denied: the zones are up to date with the API, or it is in this process.
    pub is_denying: bool,
    /// Whether the last-known-good state on disk, if there is one, currently cannot be written.
    pub(super) last_good_failing: Arc<AtomicBool>,
    /// Whether the last-known-good state at the start was damaged, or of another platform, and moved aside, and there is no new one on
    /// disk yet.
    pub is_last_good_refused: bool,
    /// The time at which a last-known-good state was rejected, if one was since the start.
    pub last_good_refused_at: Option<Timestamp>,
    /// The obstacle to readiness, other than unsynced informers.
    pub hindrance: Option<String>,
    /// Counts since the start.
    pub counters: Counters,
    /// The number of zones built from objects, including the parent and the alias zone.
    pub zones: usize,
    /// The number of former domains whose zones are served.
    pub former_domains: usize,
    /// The problems of objects: conflicts, and records that cannot be served. At most a second old.
    pub diagnostics: Vec<Diagnostic>,
    /// The adopted hosts of the objects.
    pub adopted_hosts: Arc<AdoptedHosts>,
}

impl State {
    pub fn is_last_good_failing(&self) -> bool {
        self.last_good_failing.load(Ordering::Relaxed)
    }
}

impl Status {
    /// Returns the state, for a moment: the loop waits until the guard is dropped.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns the held losses and the decisions on them, which their reporter shares.
    pub fn losses(&self) -> &Arc<HeldLosses> {
        &self.losses
    }
}
