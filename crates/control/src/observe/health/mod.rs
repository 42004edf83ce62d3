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

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::metrics::Metrics;
use self::probe::{Probe, ProbeError};
use self::probe_schedule::{Key, ProbeSchedule};
use crate::client::reflector::Store;
use crate::work::controller::{self, Action, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::observations::Observations;
use crate::world::{RouterInfo, World};

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
    let mut inputs = Inputs::default();
    let routers = inputs.read(&world.routers, |prober: &mut Prober, change| {
        prober.schedule.take_change(change, Instant::now(), Timestamp::now());
    });
    let observations = world.observations;
    observations.for_routers(|router| router.health = None);
    let schedule = ProbeSchedule::new(settings, metrics.clone());
    let prober = Prober { schedule, routers, observations, metrics };
    controller::run(prober, inputs, stop).await;
}

struct Prober {
    schedule: ProbeSchedule,
    routers: Store<RouterInfo>,
    observations: Arc<Observations>,
    metrics: Metrics,
}

impl Controller for Prober {
    type Key = Key;
    type Job = Result<Probe, ProbeError>;
    type Done = Result<(), ProbeError>;

    const JOB_TIMEOUT: Duration = PROBE_LONGEST;

    fn queue(&mut self) -> &mut WorkQueue<Key> {
        &mut self.schedule.queue
    }

    fn plan(&mut self, key: &Key, _: Instant) -> Plan<Self::Job> {
        self.schedule.probe(key).map_or(Plan::Nothing, Plan::Act)
    }

    fn act(&self, _: &Key, probe: Self::Job) -> Action<Self::Done> {
        async {
            Ok(match probe {
                Ok(probe) => probe.run().await,
                Err(error) => Err(error),
            })
        }
        .boxed()
    }

    fn done(&mut self, key: Key, outcome: kube::Result<Self::Done>, now: Instant) {
        let outcome = outcome.unwrap_or(Err(ProbeError::Broken));
        self.schedule.take_outcome(&key, outcome, now, Timestamp::now());
    }

    fn settle(&mut self, now: Instant) -> Option<Instant> {
        // Before all Routers are known, nothing is reported: verdicts of the previous leader could be overlooked.
        if !self.routers.is_synced() {
            return None;
        }
        while let Some((name, findings)) = self.schedule.next_findings(now) {
            self.observations.set_router(&name, |router| router.health = Some(findings));
        }
        self.schedule.next_findings_at()
    }

    fn end(&mut self) {
        self.metrics.forget_all();
    }
}
