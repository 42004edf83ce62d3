//! Settings that loops go by, and that a reload changes while they run.

use std::time::Duration;

use tokio::sync::watch;

use crate::config::Settings;

/// What can be turned. Each loop holds a receiver of its own; a process without the loop turns in vain.
pub struct Dials {
    /// `brake-share`.
    pub brake_share: watch::Sender<u32>,
    /// `stale-after`; `None`: never.
    pub stale_after: watch::Sender<Option<Duration>>,
    /// `health-probes`, and `health-panic-threshold` in percent.
    pub health: watch::Sender<(usize, u32)>,
}

impl Dials {
    /// As the settings say.
    pub fn new(settings: &Settings) -> Dials {
        Dials {
            brake_share: watch::Sender::new(settings.brake_share),
            stale_after: watch::Sender::new(settings.stale_after),
            health: watch::Sender::new((settings.health_probes_max, settings.health_panic_percent)),
        }
    }

    /// As the settings say now; what is as it was tells nobody.
    pub fn turn(&self, settings: &Settings) {
        set(&self.brake_share, settings.brake_share);
        set(&self.stale_after, settings.stale_after);
        set(&self.health, (settings.health_probes_max, settings.health_panic_percent));
    }
}

fn set<T: PartialEq>(dial: &watch::Sender<T>, to: T) {
    dial.send_if_modified(|now| {
        let changes = *now != to;
        *now = to;
        changes
    });
}
