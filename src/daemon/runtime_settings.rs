//! The settings of loops that a reload changes while they run.

use std::time::Duration;

use tokio::sync::watch;

use crate::config::Settings;
use signpost_control::work::controller::set;

/// The settings that can change at run time. Each loop has its own receiver; in a process without the loop, a change has no
/// effect.
pub struct RuntimeSettings {
    /// `deletion-hold.threshold`.
    pub deletion_hold_threshold: watch::Sender<u32>,
    /// `dns.stale-after`; `None`: never.
    pub stale_after: watch::Sender<Option<Duration>>,
    /// `health.probes`, and `health.panic-threshold` in percent.
    pub health: watch::Sender<(usize, u32)>,
}

impl RuntimeSettings {
    pub fn new(settings: &Settings) -> RuntimeSettings {
        RuntimeSettings {
            deletion_hold_threshold: watch::Sender::new(settings.deletion_hold.threshold),
            stale_after: watch::Sender::new(stale_after(settings)),
            health: watch::Sender::new((settings.health.probes, settings.health.panic_threshold)),
        }
    }

    /// Applies the settings; unchanged values notify no receiver.
    pub fn turn(&self, settings: &Settings) {
        set(&self.deletion_hold_threshold, settings.deletion_hold.threshold);
        set(&self.stale_after, stale_after(settings));
        set(&self.health, (settings.health.probes, settings.health.panic_threshold));
    }
}

fn stale_after(settings: &Settings) -> Option<Duration> {
    Some(settings.dns.stale_after).filter(|after| !after.is_zero())
}
