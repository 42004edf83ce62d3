//! The loop of each external check for Routes with a custom host: the due Routes, the findings, and the next checks.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::backoff::random;
use crate::client::reflector::{Applied, Change, ObjectKey, Store};
use crate::work::controller::{self, Action, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::observations::{Observations, Part, RouteFinding};
use crate::world::{RouteInfo, World};

/// The maximum number of checks in flight. The namespaces share these permits, because owners of hosts may have slow name
/// servers.
const IN_FLIGHT_MAX: usize = 16;

pub trait RouteCheck: Send + Sync + 'static {
    /// The relevant part of a Route.
    type Target: Send + 'static;
    /// The part of the observations that the check provides.
    const PART: Part;
    /// The subject of the log message for a failure.
    const SUBJECT: &'static str;
    /// The time for one check.
    const TIMEOUT: Duration;

    /// Returns the target; `None` for a Route without one.
    fn target(&self, key: &ObjectKey, route: &RouteInfo) -> Option<Self::Target>;

    /// Returns whether a change from `before` to `now` needs no check: at most the Route's status reports more.
    fn is_same(now: &Self::Target, before: &Self::Target) -> bool;

    /// Returns the wait before the first check, and the finding until then.
    fn start(&self, _: &ObjectKey, _: &RouteInfo, _: &Self::Target) -> (Duration, Option<RouteFinding>) {
        (Duration::ZERO, None)
    }

    /// Returns the waits after failures, the first and the longest.
    fn retry(&self) -> [Duration; 2];

    /// Checks one Route. `None`: the Route has changed.
    fn check(
        &self,
        client: &kube::Client,
        key: &ObjectKey,
        target: &Self::Target,
    ) -> impl Future<Output = kube::Result<Option<Checked>>> + Send;
}

/// The end of a check.
#[derive(Debug)]
pub struct Checked {
    /// The label of the metric.
    pub outcome: &'static str,
    pub finding: RouteFinding,
    pub next: Next,
}

/// The time of the next check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// About this long after the last check.
    After(Duration),
    /// Sooner, and then ever more rarely.
    Retry,
    /// The next change of the Route.
    Never,
}

/// The counter of checks by outcome; clones share it.
#[derive(Debug, Clone)]
pub struct Metrics {
    name: &'static str,
    help: &'static str,
    checks: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Metrics {
    /// Returns a counter of this name and with these outcomes.
    pub fn new(name: &'static str, help: &'static str, outcomes: &[&'static str]) -> Self {
        let checks = Family::<[(&'static str, &'static str); 1], Counter>::default();
        outcomes.iter().for_each(|outcome| drop(checks.get_or_create(&[("outcome", outcome)])));
        Metrics { name, help, checks }
    }

    /// Adds it to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(self.name, self.help, self.checks.clone());
    }
}

/// Checks Routes until `stop`, and stores the findings in the World's observations. `client` must be allowed to read Routes, and
/// the inputs of the check.
pub async fn run<C: RouteCheck>(
    check: C,
    client: kube::Client,
    world: World,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut inputs = Inputs::default();
    let routes = inputs.read(&world.routes, RouteChecks::take);
    let observations = world.observations;
    observations.forget(C::PART);
    let queue = WorkQueue::new(IN_FLIGHT_MAX, check.retry());
    let checks = RouteChecks { check: Arc::new(check), client, routes, observations, metrics, queue };
    controller::run(checks, inputs, stop).await;
}

struct RouteChecks<C> {
    check: Arc<C>,
    client: kube::Client,
    routes: Store<RouteInfo>,
    observations: Arc<Observations>,
    metrics: Metrics,
    queue: WorkQueue<ObjectKey>,
}

impl<C: RouteCheck> RouteChecks<C> {
    fn target(&self, key: &ObjectKey) -> Option<C::Target> {
        self.routes.get(key).and_then(|route| self.check.target(key, &route))
    }

    fn take(&mut self, change: Change<RouteInfo>) {
        let (applied, mut gone) = change.into_parts();
        for Applied { key, now: route, before, .. } in applied {
            let Some(target) = self.check.target(&key, &route) else {
                gone.push((key, route));
                continue;
            };
            let before = before.and_then(|before| self.check.target(&key, &before));
            if before.is_some_and(|before| C::is_same(&target, &before)) {
                continue;
            }
            let (wait, finding) = self.check.start(&key, &route, &target);
            if finding.is_some() {
                self.observations.set_route(&key, C::PART, finding);
            }
            self.queue.succeeded(&key);
            self.queue.plan(key, Instant::now() + wait);
        }
        for (key, _) in gone {
            self.queue.forget(&key);
            self.observations.set_route(&key, C::PART, None);
        }
    }
}

impl<C: RouteCheck> Controller for RouteChecks<C> {
    type Key = ObjectKey;
    type Job = C::Target;
    type Done = Option<Checked>;

    const JOB_TIMEOUT: Duration = C::TIMEOUT;

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    fn plan(&mut self, key: &ObjectKey, _: Instant) -> Plan<C::Target> {
        self.target(key).map_or(Plan::Nothing, Plan::Act)
    }

    fn act(&self, key: &ObjectKey, target: C::Target) -> Action<Option<Checked>> {
        let (check, client, key) = (Arc::clone(&self.check), self.client.clone(), key.clone());
        async move { check.check(&client, &key, &target).await }.boxed()
    }

    fn done(&mut self, key: ObjectKey, result: kube::Result<Option<Checked>>, now: Instant) {
        let has_target = self.target(&key).is_some();
        let (outcome, next) = match result {
            Ok(Some(Checked { outcome, finding, next })) => {
                if has_target {
                    self.observations.set_route(&key, C::PART, Some(finding));
                }
                (Some(outcome), next)
            }
            Ok(None) => (None, Next::Retry),
            Err(error) => {
                tracing::warn!(route = %key, %error, "failed to check {}; retrying", C::SUBJECT);
                (Some("failed"), Next::Retry)
            }
        };
        if let Some(outcome) = outcome {
            self.metrics.checks.get_or_create(&[("outcome", outcome)]).inc();
        }
        if !has_target || self.queue.has(&key) {
            return;
        }
        match next {
            Next::After(interval) => {
                self.queue.succeeded(&key);
                let wait = interval.mul_f64(0.75 + (random() >> 32) as f64 / f64::from(u32::MAX) / 2.0);
                self.queue.plan(key, now + wait);
            }
            Next::Retry => self.queue.failed(&key, now, random()),
            Next::Never => {}
        }
    }
}
