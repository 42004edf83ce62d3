//! The instances of Routers: those that serve, by the Leases that their agents renew.
//!
//! A Lease expires when it was not renewed for its duration by this process's clock, because clocks of instances can differ. A
//! new leader gives each Lease that time again, unless the Router's status shows it as expired: such an instance counts again from
//! its next renewal on, and an earlier one, while no scheduler led, is not seen. A Lease that a list lacks expires like one that is not
//! renewed: the list can be wrong.
//!
//! The reconciler writes the results into `status.instances`, `status.readyInstances`, and, for Routers whose addresses come from
//! instances, `status.currentAddresses`, from which the name servers build the zone. For other Routers, they omit the addresses of
//! `spec.addresses` whose instances are dead in `status.instances`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::reflector::{Change, ObjectKey, Store};
use crate::status::instances::{is_enough, remembered};
use crate::work::controller::{self, Action, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::observations::{InstanceFindings, Observations};
use crate::world::{RouterInfo, World};
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::instance::InstanceReport;
use signpost_types::v1alpha1::router::{Instance, InstanceState};

/// The time after which a dead instance that no answer needs is removed: its Lease is deleted.
const DEAD_LONGEST: Duration = Duration::from_secs(600);
/// The most deletions of Leases in progress.
const DELETIONS_MAX: usize = 8;
/// The time for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The metrics of instances on `/metrics`; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    instances: Family<[(&'static str, String); 2], Gauge>,
    faults: Family<[(&'static str, String); 1], Gauge>,
    expired: Counter,
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("router_instances", "Instances of Routers, by state", self.instances.clone());
        let help = "Routes and certificates that an instance does not serve or serves only in part; the maximum over \
                    the Router's instances";
        registry.register("router_instance_faults", help, self.faults.clone());
        registry.register("router_instance_expirations", "Leases of instances that expired", self.expired.clone());
    }

    fn show(&self, router: &str, instances: &[Instance]) {
        for (state, word) in [
            (InstanceState::Serving, "serving"),
            (InstanceState::Leaving, "leaving"),
            (InstanceState::Expired, "expired"),
        ] {
            let count = instances.iter().filter(|instance| instance.state == state).count();
            let labels = [("router", router.to_owned()), ("state", word.to_owned())];
            self.instances.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let serving = instances.iter().filter(|instance| instance.state == InstanceState::Serving);
        let faults = serving.map(|instance| instance.faults).max().unwrap_or(0);
        self.faults.get_or_create(&[("router", router.to_owned())]).set(i64::from(faults));
    }

    fn forget(&self, router: &str) {
        for word in ["serving", "leaving", "expired"] {
            self.instances.remove(&[("router", router.to_owned()), ("state", word.to_owned())]);
        }
        self.faults.remove(&[("router", router.to_owned())]);
    }
}

/// Watches the Leases until `stop`, which also ends with this process's leadership. `panic_percent` is the panic threshold of
/// Routers that set none.
pub async fn run(client: kube::Client, world: World, panic_percent: u32, metrics: Metrics, stop: CancellationToken) {
    let mut inputs = Inputs::default();
    let routers = inputs.read(&world.routers, Watch::take_routers);
    let reports = inputs.read(&world.instances, |watch, change| watch.take_reports(change, Instant::now()));
    world.observations.for_routers(|router| router.instances = None);
    let leases = Api::namespaced(client, AGENT_NAMESPACE);
    let watch = Watch::new(leases, routers, reports, world.observations, panic_percent, metrics);
    controller::run(watch, inputs, stop).await;
}

/// Deletes a Lease, if it is unchanged.
async fn forget(leases: Api<Lease>, key: ObjectKey, version: Box<str>) -> kube::Result<()> {
    let preconditions = Preconditions { resource_version: Some(version.into()), uid: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    leases.delete(&key.name, &parameters).await?;
    tracing::info!(lease = key.name, "deleted the Lease of a dead instance");
    Ok(())
}

/// The known state of Leases.
struct Watch {
    leases: Api<Lease>,
    routers: Store<RouterInfo>,
    reports: Store<Option<InstanceReport>>,
    observations: Arc<Observations>,
    panic_percent: u32,
    metrics: Metrics,
    instances: BTreeMap<String, HashMap<ObjectKey, TrackedInstance>>,
    /// The Leases, by the times at which they expire or can be deleted.
    queue: WorkQueue<ObjectKey>,
    known: BTreeSet<String>,
    /// The Routers with changes to report.
    dirty: BTreeSet<String>,
}

/// An instance, and whether its Lease has expired.
#[derive(Debug)]
struct TrackedInstance {
    report: InstanceReport,
    is_expired: bool,
}

impl Controller for Watch {
    type Key = ObjectKey;
    /// The version of the Lease to delete.
    type Job = Box<str>;
    type Done = ();

    const JOB_TIMEOUT: Duration = REQUEST_TIMEOUT;

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    fn is_ready(&self) -> bool {
        self.reports.is_synced() && self.routers.is_synced()
    }

    /// Records an expired Lease. Deletes the Lease of an instance that has been dead for long, if enough others serve.
    fn plan(&mut self, key: &ObjectKey, now: Instant) -> Plan<Box<str>> {
        let of_router = self.instances.iter_mut().find(|(_, of_router)| of_router.contains_key(key));
        let Some((router, of_router)) = of_router else { return Plan::Nothing };
        let serving = of_router.values().filter(|known| !known.is_expired).count();
        let is_enough = is_enough(serving, of_router.len(), self.panic_percent);
        match of_router.get_mut(key) {
            Some(known) if !known.is_expired => {
                known.is_expired = true;
                self.metrics.expired.inc();
                self.dirty.insert(router.clone());
                tracing::warn!(router, lease = key.name, "an instance did not renew its Lease: it counts as dead");
            }
            Some(_) if is_enough => match self.reports.get_versioned(key) {
                Some((_, version)) => return Plan::Act(version),
                None => {
                    let router = router.clone();
                    self.remove(&router, key);
                    return Plan::Nothing;
                }
            },
            _ => {}
        }
        Plan::At(now + DEAD_LONGEST)
    }

    fn act(&self, key: &ObjectKey, version: Box<str>) -> Action<()> {
        forget(self.leases.clone(), key.clone(), version).boxed()
    }

    fn done(&mut self, key: ObjectKey, result: kube::Result<()>, now: Instant) {
        if let Err(error) = result {
            tracing::warn!(lease = key.name, %error, "failed to delete the Lease of a dead instance");
        }
        self.queue.add(key, now + DEAD_LONGEST);
    }

    /// Reports the changes.
    fn settle(&mut self, _: Instant) -> Option<Instant> {
        if self.is_ready() {
            self.report();
        }
        None
    }

    fn end(&mut self) {
        self.known.iter().for_each(|router| self.metrics.forget(router));
    }
}

impl Watch {
    fn new(
        leases: Api<Lease>,
        routers: Store<RouterInfo>,
        reports: Store<Option<InstanceReport>>,
        observations: Arc<Observations>,
        panic_percent: u32,
        metrics: Metrics,
    ) -> Watch {
        let queue = WorkQueue::new(DELETIONS_MAX, [DEAD_LONGEST; 2]);
        let (instances, known, dirty) = Default::default();
        Watch { leases, routers, reports, observations, panic_percent, metrics, instances, queue, known, dirty }
    }

    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, _) in gone {
            self.known.remove(&key.name);
            self.metrics.forget(&key.name);
        }
        for applied in applied {
            let inputs = |router: &RouterInfo| {
                let instances = router.object.status.as_ref().map(|status| status.instances.clone());
                (router.object.spec.addresses.clone(), instances.unwrap_or_default())
            };
            // The metrics contain the instances that only the status remembers.
            let is_changed = applied.before.as_deref().map(inputs) != Some(inputs(&applied.now));
            if self.known.insert(applied.key.name.clone()) || is_changed {
                self.dirty.insert(applied.key.name);
            }
        }
    }

    fn take_reports(&mut self, change: Change<Option<InstanceReport>>, now: Instant) {
        let (is_first, is_list) = (change.is_first(), matches!(change, Change::Relisted(_)));
        let (applied, gone) = change.into_parts();
        for (key, last) in gone {
            // A list can lack Leases by mistake. An instance that has not left then counts until its Lease would expire, and the panic
            // threshold applies to it. A client that deletes the Lease is an event.
            let is_lost = |last: &&InstanceReport| is_list && last.state == InstanceState::Serving;
            let removed = Option::as_ref(&last).filter(|last| !is_lost(last));
            removed.into_iter().for_each(|last| self.remove(&last.router, &key));
        }
        for applied in applied {
            if let Some(before) = applied.before.as_ref().and_then(|before| Option::as_ref(before)) {
                // It speaks of another Router, or of none.
                let stays = Option::as_ref(&applied.now).is_some_and(|report| report.router == before.router);
                if !stays {
                    self.remove(&before.router, &applied.key);
                }
            }
            let Some(report) = Option::as_ref(&applied.now) else { continue };
            let was_expired = || {
                let router = self.routers.get(&ObjectKey::cluster(&report.router));
                let status = router.as_ref().and_then(|router| router.object.status.as_ref());
                let entry = status.and_then(|status| status.instances.iter().find(|one| one.name == applied.key.name));
                entry.is_some_and(|entry| entry.state == InstanceState::Expired)
            };
            self.set(applied.key.clone(), report.clone(), is_first && was_expired(), now);
        }
    }

    fn remove(&mut self, router: &str, key: &ObjectKey) {
        let Some(of_router) = self.instances.get_mut(router) else { return };
        if of_router.remove(key).is_some() {
            self.queue.forget(key);
            self.dirty.insert(router.to_owned());
        }
        if of_router.is_empty() {
            self.instances.remove(router);
        }
    }

    fn set(&mut self, key: ObjectKey, report: InstanceReport, is_expired: bool, now: Instant) {
        let router = report.router.clone();
        let of_router = self.instances.entry(router.clone()).or_default();
        if let Some(known) = of_router.get_mut(&key).filter(|known| known.report.renewed == report.renewed) {
            // Another client has changed the Lease.
            known.report = report;
            self.dirty.insert(router);
            return;
        }
        self.queue.plan(key.clone(), now + if is_expired { DEAD_LONGEST } else { report.duration });
        let before = of_router.insert(key, TrackedInstance { report: report.clone(), is_expired });
        let is_same =
            before.is_some_and(|before| before.report.to_instance(before.is_expired) == report.to_instance(is_expired));
        if !is_same {
            self.dirty.insert(router);
        }
    }

    fn report(&mut self) {
        for name in std::mem::take(&mut self.dirty) {
            if !self.known.contains(&name) {
                continue;
            }
            let known = self.instances.get(&name).into_iter().flatten();
            let mut instances: Vec<Instance> =
                known.map(|(_, known)| known.report.to_instance(known.is_expired)).collect();
            instances.sort_by(|one, other| one.name.cmp(&other.name));
            let object = self.routers.get(&ObjectKey::cluster(&name));
            let check = object.as_ref().and_then(|router| router.object.spec.health_check.as_ref());
            let panic_percent = check.and_then(|check| check.panic_threshold).unwrap_or(self.panic_percent);
            let findings = InstanceFindings { instances, panic_percent };
            let known = object.map(|router| {
                let before = router.object.status.as_ref().map(|status| status.instances.clone());
                remembered(&router.object, &findings, before.unwrap_or_default())
            });
            self.metrics.show(&name, known.as_deref().unwrap_or(&findings.instances));
            self.observations.set_router(&name, |router| router.instances = Some(findings));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::Relist;
    use crate::world;
    use jiff::Timestamp;

    fn report(octet: u8, renewal: i64) -> InstanceReport {
        InstanceReport::new("shard1", [192, 0, 2, octet].into(), Timestamp::constant(renewal, 0))
    }

    /// A watch of instances, and its reports at seconds since its start.
    struct Scene {
        watch: Watch,
        start: Instant,
    }

    impl Scene {
        fn new() -> Scene {
            let silent = |_: http::Request<kube::client::Body>| {
                std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
            };
            let client = kube::Client::new(tower::service_fn(silent), "default");
            let world = World::new(&client, world::Settings::of_domain("v3.example"));
            let (routers, reports) = (world.routers.read().0, world.instances.read().0);
            let leases = Api::namespaced(client, AGENT_NAMESPACE);
            let watch = Watch::new(leases, routers, reports, world.observations, 50, Metrics::default());
            Scene { watch, start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn renew(&mut self, octet: u8, seconds: u64) {
            let report = report(octet, i64::try_from(seconds).expect("few seconds"));
            let key = ObjectKey::namespaced(AGENT_NAMESPACE, &report.lease_name());
            self.watch.set(key, report, false, self.at(seconds));
        }

        /// Checks the due Leases, of which the API has none.
        fn check(&mut self, seconds: u64) {
            let now = self.at(seconds);
            while let Some(key) = self.watch.queue.begin(now) {
                let plan = self.watch.plan(&key, now);
                self.watch.queue.end(&key);
                match plan {
                    Plan::At(at) => self.watch.queue.add(key, at),
                    plan => assert!(matches!(plan, Plan::Nothing), "{plan:?}"),
                }
            }
        }

        fn known(&self) -> usize {
            self.watch.instances.get("shard1").map_or(0, HashMap::len)
        }

        fn serving(&mut self, seconds: u64) -> usize {
            self.check(seconds);
            self.watch.instances["shard1"].values().filter(|known| !known.is_expired).count()
        }
    }

    #[tokio::test]
    async fn a_lease_expires_unless_it_is_renewed() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        scene.renew(2, 0);
        scene.check(1);
        assert_eq!(scene.watch.queue.next_at(), Some(scene.at(15)));
        scene.renew(1, 10);
        assert_eq!((scene.serving(14), scene.serving(15), scene.serving(25)), (2, 1, 0));
        scene.renew(2, 30);
        assert_eq!(scene.serving(30), 1);
    }

    /// The applied revision changes without a renewal when another client writes the Lease.
    #[tokio::test]
    async fn another_change_is_no_renewal() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        let key = ObjectKey::namespaced(AGENT_NAMESPACE, &report(1, 0).lease_name());
        scene.watch.set(key, report(1, 0), false, scene.at(10));
        assert_eq!(scene.serving(15), 0);
    }

    #[tokio::test]
    async fn a_dead_instance_is_dropped_once_no_answer_needs_it() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        scene.check(15);
        scene.check(615);
        assert_eq!(scene.known(), 1, "it is answered under panic");
        scene.renew(2, 1210);
        scene.check(1215);
        assert_eq!(scene.known(), 1);
        assert_eq!(scene.serving(1215), 1);
    }

    /// A Lease that a list lacks counts until it expires, and then as dead; a deleted one does not count at all.
    #[tokio::test]
    async fn a_list_without_leases_takes_no_address_at_once() {
        for (is_list, state, left) in
            [(true, InstanceState::Serving, 2), (true, InstanceState::Leaving, 1), (false, InstanceState::Serving, 1)]
        {
            let mut scene = Scene::new();
            scene.renew(1, 0);
            scene.renew(2, 0);
            let key = ObjectKey::namespaced(AGENT_NAMESPACE, &report(1, 0).lease_name());
            let last = Arc::new(Some(InstanceReport { state, ..report(1, 0) }));
            let vanished = vec![(key.clone(), Arc::clone(&last))];
            let change = match is_list {
                true => Change::Relisted(Relist { first: false, applied: Vec::new(), vanished, total: 1 }),
                false => Change::Deleted { key: key.clone(), last },
            };
            scene.watch.take_reports(change, scene.start);
            assert_eq!(scene.known(), left, "{is_list} {state:?}");
            scene.renew(2, 10);
            assert_eq!(scene.serving(15), 1, "{is_list} {state:?}");
            // When it has been dead for long, it is dropped.
            scene.renew(2, 610);
            scene.check(615);
            assert_eq!(scene.known(), 1, "{is_list} {state:?}");
        }
    }

    /// A renewal causes no report: the status does not change.
    #[tokio::test]
    async fn only_changes_are_reported() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        assert_eq!(std::mem::take(&mut scene.watch.dirty).len(), 1);
        scene.renew(1, 5);
        assert!(scene.watch.dirty.is_empty());
        scene.check(20);
        assert_eq!(scene.watch.dirty.len(), 1);
    }
}
