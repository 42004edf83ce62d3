//! Whether a name server's zones are available, and whether they follow the API.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use signpost_control::client::reflector::{Health, HealthProbe};
use signpost_control::name_server::status::Status;

/// The interval at which the staleness of answers is checked.
const STALENESS_INTERVAL: Duration = Duration::from_millis(500);
/// The reason why a name server without any of the API's objects is not ready.
pub const UNHEARD: &str = "the objects have not been listed yet, and there is no last-known-good state";

/// Marks answers as possibly stale while the API has been silent for longer than `after`, if that is set.
pub async fn mark_stale(
    engine: Arc<Engine>,
    status: Arc<Status>,
    informers: [HealthProbe; 3],
    mut after: watch::Receiver<Option<Duration>>,
    stop: CancellationToken,
) {
    let started = Instant::now();
    loop {
        let longest = *after.borrow_and_update();
        let stale = longest
            .is_some_and(|longest| is_stale(informers.iter().map(|informer| informer()), started.elapsed(), longest));
        if std::mem::replace(&mut status.state().is_stale, stale) != stale {
            engine.set_stale(stale);
            match stale {
                true => {
                    let longest = longest.unwrap_or_default();
                    tracing::warn!("no message from the API for {longest:?}; answers are marked as stale");
                }
                false => tracing::info!("answers are no longer marked as stale"),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(STALENESS_INTERVAL), if longest.is_some() => {}
            Ok(()) = after.changed() => {}
        }
    }
}

/// Returns whether an informer of the API's objects has been without a watch for too long. An open watch that is silent is idle;
/// if it is dead, the informer finds out.
fn is_stale(mut informers: impl Iterator<Item = Health>, running: Duration, after: Duration) -> bool {
    informers.any(|informer| !informer.connected && informer.age.unwrap_or(running) > after)
}

/// Returns the reason why the zones are not available yet; `None` if they are.
pub fn missing_zones(status: &Status, informers: &[HealthProbe]) -> Option<String> {
    let state = status.state();
    if state.is_ready {
        return None;
    }
    let unheard = informers.iter().map(|informer| informer()).filter(|informer| !informer.synced);
    let unheard = unheard.map(|informer| match informer.error {
        Some(error) => format!("{} not listed: {error}", informer.kind),
        None => format!("{} not listed yet", informer.kind),
    });
    let why: Vec<String> = state.hindrance.clone().into_iter().chain(unheard).collect();
    Some(if why.is_empty() { UNHEARD.to_owned() } else { why.join("; ") })
}
