//! The health of addresses: the leading controller probes them, and the reconciler writes the results into each Router's status.
//!
//! ```text
//!  Routers ──watch──► ProbeSchedule: probes and their times ──► Probe ──► HealthTracker ──► status.addresses[] ──► name servers
//!  (spec.healthCheck)           (jittered, bounded)                       (when a verdict changes)                 (compiler)
//! ```
//!
//! There is one prober, not one in each name server. All name servers must have the same zone under the same serial, which they
//! do because the verdicts are part of an object that all of them watch. Each address is therefore probed once, from the
//! controller's network; do not set a health check if the controller cannot reach the addresses. If the prober dies or the API is
//! unreachable, the last verdicts stay, as the best guess, and the panic threshold still applies. A new leader continues from
//! these verdicts.
//!
//! A verdict is reported when it changes, and one write contains all changes of a Router. So the API has no work while nothing
//! changes, at any probe frequency.

pub mod probe_schedule;

pub mod health_tracker;
pub mod metrics;
pub mod probe;

use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::metrics::Metrics;
use self::probe::ProbeError;
use self::probe_schedule::ProbeSchedule;
use crate::work::executor::Executor;
use crate::world::World;

/// A probe ends by itself long before this.
const PROBE_LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The settings of the prober.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The probes in flight; Routers share these permits.
    pub probes_max: usize,
    /// The panic threshold of Routers that set none, in percent.
    pub panic_percent: u32,
}

/// Probes until `stop`, which also ends with this process's leadership.
pub async fn run(world: World, settings: Settings, metrics: Metrics, stop: CancellationToken) {
    let (routers, mut changes) = world.routers.read();
    let observations = world.observations;
    observations.for_routers(|router| router.health = None);
    let mut schedule = ProbeSchedule::new(settings, metrics.clone());
    let mut probes = Executor::new(PROBE_LONGEST);
    loop {
        let now = Instant::now();
        while let Some((key, probe)) = schedule.next_probe(now) {
            probes.start(key, async move {
                Ok(match probe {
                    Ok(probe) => probe.run().await,
                    Err(error) => Err(error),
                })
            });
        }
        // Before all Routers are known, nothing is reported: verdicts of the previous leader could be overlooked.
        let may_report = routers.is_synced();
        while may_report && let Some((name, findings)) = schedule.next_findings(now) {
            observations.set_router(&name, |router| router.health = Some(findings));
        }
        let wake_at = schedule.next_time(may_report);
        tokio::select! {
            () = stop.cancelled() => break,
            change = changes.next() => {
                schedule.take_change(change, Instant::now(), Timestamp::now());
                while let Some(change) = changes.next().now_or_never() {
                    schedule.take_change(change, Instant::now(), Timestamp::now());
                }
            }
            Some((key, outcome)) = probes.next() => {
                let outcome = outcome.unwrap_or(Err(ProbeError::Broken));
                schedule.take_outcome(&key, outcome, Instant::now(), Timestamp::now());
            }
            () = tokio::time::sleep_until(wake_at.unwrap_or(now)), if wake_at.is_some() => {}
        }
    }
    // A probe cut short does no harm.
    probes.shutdown().await;
    metrics.forget_all();
}
