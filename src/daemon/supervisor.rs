//! What the service manager is told (`NOTIFY_SOCKET`, sd_notify(3)): that the process is ready, reads its settings
//! again, stops, and is alive. Without a service manager nobody is told.

use std::future;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// The process has started, and `what` it does.
pub fn ready(what: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(what)]);
}

/// The process reads its settings again; [`ready`] ends that. Newer managers want to know since when.
pub fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    tell(&states);
}

/// The process stops, and why it may take that long: for `longest` the manager shall not lose its patience.
pub fn stopping(what: &str, longest: Duration) {
    let microseconds = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::Status(what), NotifyState::ExtendTimeoutUsec(microseconds)]);
}

/// Tells the manager twice in the time it has set that the process is alive, until the task is aborted. It is a task
/// among the others: when none of them runs any more, neither does this one, and the manager starts the process anew.
pub fn keep_alive() -> JoinHandle<()> {
    let limit = sd_notify::watchdog_enabled();
    tokio::spawn(async move {
        let Some(limit) = limit.filter(|limit| !limit.is_zero()) else { return future::pending().await };
        let mut ticks = interval(limit / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            tell(&[NotifyState::Watchdog]);
        }
    })
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
