//! The held losses of one holder, and the decisions on them. The holder writes the losses, and the [`Reporter`](super::reporter)
//! the decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::hold::{Decisions, Held};
use crate::work::controller::set;

#[derive(Debug, Default)]
pub struct HeldLosses {
    synced: AtomicBool,
    held: watch::Sender<Vec<Held>>,
    decisions: watch::Sender<Arc<Decisions>>,
}

impl HeldLosses {
    /// Returns whether the holder has listed all objects since the start. Before that, its entries from before a restart count.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    pub fn set_synced(&self, synced: bool) {
        self.synced.store(synced, Ordering::Release);
    }

    pub fn held(&self) -> Vec<Held> {
        self.held.borrow().clone()
    }

    /// Returns the held losses, with a signal when they change.
    pub fn watch_held(&self) -> watch::Receiver<Vec<Held>> {
        self.held.subscribe()
    }

    pub fn set_held(&self, held: Vec<Held>) {
        set(&self.held, held);
    }

    pub fn decisions(&self) -> watch::Receiver<Arc<Decisions>> {
        self.decisions.subscribe()
    }

    /// Sets all decisions on the held objects, by ID.
    pub fn set_decisions(&self, decisions: Decisions) {
        set(&self.decisions, Arc::new(decisions));
    }
}
