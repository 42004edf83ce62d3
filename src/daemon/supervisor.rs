//! What the service manager is told (`NOTIFY_SOCKET`, sd_notify(3)): that the process is ready, reads its settings
//! again, stops, and is alive. Without a service manager nobody is told.
//!
//! Whoever writes to a manager that does not read waits for it, and the system keeps ten messages for it. So a thread of its own
//! tells it, which nobody waits for: it may stand still for as long as the manager does, and ends with the process.

use std::sync::LazyLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use std::{env, future};

use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// Messages that wait for a manager that does not read; beyond, the newest are let go. It wants to know that the process is
/// alive, not how often it was.
const WAITING_MAX: usize = 16;

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
    static MESSAGES: LazyLock<SyncSender<String>> = LazyLock::new(|| {
        let (sender, receiver) = sync_channel::<String>(WAITING_MAX);
        let telling = std::thread::Builder::new().name("supervisor".into()).spawn(move || {
            for message in receiver {
                if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&message)]) {
                    tracing::warn!(%error, "the service manager could not be told");
                }
            }
        });
        if let Err(error) = telling {
            tracing::warn!(%error, "the service manager is told nothing");
        }
        sender
    });
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let message = states.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    if let Err(error) = MESSAGES.try_send(message) {
        tracing::debug!(%error, "the service manager does not listen");
    }
}
