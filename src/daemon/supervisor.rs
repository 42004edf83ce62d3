//! Notifications to the service manager (`NOTIFY_SOCKET`, sd_notify(3)): the process is ready, reloads its settings, stops, and
//! is alive. Without a service manager, nothing is sent.
//!
//! A write to a manager that does not read blocks, and the system buffers ten messages. A separate thread therefore sends them,
//! and no other thread waits for it: it can block as long as the manager does, and ends with the process.

use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use std::{env, io};

use sd_notify::NotifyState;

use crate::admin::liveness::Liveness;

/// The maximum number of messages queued for a manager that does not read; beyond it, new ones are dropped. The manager needs
/// only the fact that the process is alive, not a count.
const WAITING_MAX: usize = 16;

/// Reports that the process has started, and its roles in `what`.
pub fn ready(what: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(what)]);
}

/// Reports that the process reloads its settings; [`ready`] ends that. Newer managers require the start time.
pub fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    notify(&states);
}

/// Reports that the process stops, and the reason for the duration: the manager must allow `longest`.
pub fn stopping(what: &str, longest: Duration) {
    let microseconds = u32::try_from(longest.as_micros()).unwrap_or(u32::MAX);
    notify(&[NotifyState::Stopping, NotifyState::Status(what), NotifyState::ExtendTimeoutUsec(microseconds)]);
}

/// The interval of checks that all parts of the process make progress.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The supervising thread; it ends when this is dropped.
pub struct Watch {
    _stop: Sender<()>,
}

/// Monitors `liveness` and notifies the manager, twice within the watchdog interval, that the process is alive, as long as no
/// part of it is hung. The thread does not wait for code that serves clients, so that load cannot starve it.
///
/// # Errors
///
/// The error of the system if it cannot start a thread.
pub fn keep_alive(liveness: Arc<Liveness>) -> io::Result<Watch> {
    let (stop, stopped) = channel();
    let limit = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero());
    let interval = limit.map_or(LOOK_INTERVAL, |limit| (limit / 4).min(LOOK_INTERVAL));
    std::thread::Builder::new().name("watchdog".into()).spawn(move || {
        let mut notified: Option<Instant> = None;
        let mut is_hung = false;
        loop {
            let now = Instant::now();
            liveness.sample(now);
            let hung = liveness.hung(now);
            if is_hung == hung.is_empty() {
                is_hung = !is_hung;
                match is_hung {
                    true => {
                        tracing::error!("{}; watchdog notifications to the service manager stopped", hung.join("; "))
                    }
                    false => tracing::warn!("all parts of the process make progress again"),
                }
            }
            let is_due =
                limit.is_some_and(|limit| notified.is_none_or(|notified| now - notified + interval > limit / 2));
            if hung.is_empty() && is_due {
                notify(&[NotifyState::Watchdog]);
                notified = Some(now);
            }
            if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    })?;
    Ok(Watch { _stop: stop })
}

fn notify(states: &[NotifyState<'_>]) {
    static MESSAGES: LazyLock<SyncSender<String>> = LazyLock::new(|| {
        let (sender, receiver) = sync_channel::<String>(WAITING_MAX);
        let telling = std::thread::Builder::new().name("supervisor".into()).spawn(move || {
            for message in receiver {
                if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&message)]) {
                    tracing::warn!(%error, "failed to notify the service manager");
                }
            }
        });
        if let Err(error) = telling {
            tracing::warn!(%error, "failed to start the thread that notifies the service manager");
        }
        sender
    });
    if env::var_os("NOTIFY_SOCKET").is_none() {
        return;
    }
    let message = states.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    if let Err(error) = MESSAGES.try_send(message) {
        tracing::debug!(%error, "notification to the service manager dropped");
    }
}
