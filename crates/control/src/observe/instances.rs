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
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::reflector::{Change, ObjectKey, Store};
use crate::status::instances::{is_enough, remembered};
use crate::world::observations::{InstanceFindings, Observations};
use crate::world::{RouterInfo, World};
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::instance::InstanceReport;
use signpost_types::v1alpha1::router::{Instance, InstanceState};

/// The time after which a dead instance that no answer needs is removed: its Lease is deleted.
const DEAD_LONGEST: Duration = Duration::from_secs(600);
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
    let (routers, mut router_changes) = world.routers.read();
    let (reports, mut changes) = world.instances.read();
    let observations = world.observations;
    observations.for_routers(|router| router.instances = None);
    let leases: Api<Lease> = Api::namespaced(client, AGENT_NAMESPACE);
    let mut watch = Watch { panic_percent, metrics, ..Watch::default() };
    loop {
        let wake_at = watch.expire(Instant::now());
        if reports.is_synced() && routers.is_synced() {
            watch.report(&routers, &observations);
            for key in watch.take_dead() {
                match reports.get_versioned(&key) {
                    Some((_, version)) => forget(&leases, &key, &version).await,
                    None => watch.drop_lost(&key),
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            change = router_changes.next() => {
                watch.take_routers(change);
                while let Some(change) = router_changes.next().now_or_never() {
                    watch.take_routers(change);
                }
            }
            change = changes.next() => {
                watch.take_reports(change, &routers, Instant::now());
                while let Some(change) = changes.next().now_or_never() {
                    watch.take_reports(change, &routers, Instant::now());
                }
            }
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
        }
    }
    let shown: Vec<String> = watch.routers.into_iter().collect();
    shown.iter().for_each(|router| watch.metrics.forget(router));
}

/// Deletes a Lease, if it is unchanged.
async fn forget(leases: &Api<Lease>, key: &ObjectKey, version: &str) {
    let preconditions = Preconditions { resource_version: Some(version.into()), uid: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match timeout(REQUEST_TIMEOUT, leases.delete(&key.name, &parameters)).await {
        Ok(Ok(_)) => tracing::info!(lease = key.name, "deleted the Lease of a dead instance"),
        Ok(Err(error)) => tracing::warn!(lease = key.name, %error, "failed to delete the Lease of a dead instance"),
        Err(_) => tracing::warn!(lease = key.name, "failed to delete the Lease of a dead instance: timed out"),
    }
}

/// The known state of Leases.
#[derive(Default)]
struct Watch {
    panic_percent: u32,
    metrics: Metrics,
    instances: BTreeMap<String, HashMap<ObjectKey, TrackedInstance>>,
    /// The times at which Leases are checked.
    checks: BTreeSet<(Instant, ObjectKey)>,
    routers: BTreeSet<String>,
    /// The Routers with changes to report.
    dirty: BTreeSet<String>,
    /// The Leases that have been expired for [`DEAD_LONGEST`].
    dead: Vec<ObjectKey>,
}

/// An instance, and the time at which its Lease was seen renewed.
#[derive(Debug)]
struct TrackedInstance {
    report: InstanceReport,
    turn: Instant,
    is_expired: bool,
}

impl Watch {
    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, _) in gone {
            self.routers.remove(&key.name);
            self.metrics.forget(&key.name);
        }
        for applied in applied {
            let inputs = |router: &RouterInfo| {
                let instances = router.object.status.as_ref().map(|status| status.instances.clone());
                (router.object.spec.addresses.clone(), instances.unwrap_or_default())
            };
            // The metrics contain the instances that only the status remembers.
            let is_changed = applied.before.as_deref().map(inputs) != Some(inputs(&applied.now));
            if self.routers.insert(applied.key.name.clone()) || is_changed {
                self.dirty.insert(applied.key.name);
            }
        }
    }

    fn take_reports(&mut self, change: Change<Option<InstanceReport>>, routers: &Store<RouterInfo>, now: Instant) {
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
                let router = routers.get(&ObjectKey::cluster(&report.router));
                let status = router.as_ref().and_then(|router| router.object.status.as_ref());
                let entry = status.and_then(|status| status.instances.iter().find(|one| one.name == applied.key.name));
                entry.is_some_and(|entry| entry.state == InstanceState::Expired)
            };
            self.set(applied.key.clone(), report.clone(), is_first && was_expired(), now);
        }
    }

    fn remove(&mut self, router: &str, key: &ObjectKey) {
        let Some(of_router) = self.instances.get_mut(router) else { return };
        if let Some(known) = of_router.remove(key) {
            self.checks.remove(&(known.turn, key.clone()));
            self.dirty.insert(router.to_owned());
        }
        if of_router.is_empty() {
            self.instances.remove(router);
        }
    }

    /// Removes a dead instance whose Lease no longer exists.
    fn drop_lost(&mut self, key: &ObjectKey) {
        let of =
            self.instances.iter().find(|(_, of_router)| of_router.contains_key(key)).map(|(router, _)| router.clone());
        of.into_iter().for_each(|router| self.remove(&router, key));
    }

    fn set(&mut self, key: ObjectKey, report: InstanceReport, is_expired: bool, now: Instant) {
        let router = report.router.clone();
        let of_router = self.instances.entry(router.clone()).or_default();
        if let Some(known) = of_router.get_mut(&key) {
            if known.report.renewed == report.renewed {
                // Another client has changed the Lease.
                known.report = report;
                self.dirty.insert(router);
                return;
            }
            self.checks.remove(&(known.turn, key.clone()));
        }
        let turn = now + if is_expired { DEAD_LONGEST } else { report.duration };
        self.checks.insert((turn, key.clone()));
        let before = of_router.insert(key, TrackedInstance { report: report.clone(), turn, is_expired });
        let is_same =
            before.is_some_and(|before| before.report.to_instance(before.is_expired) == report.to_instance(is_expired));
        if !is_same {
            self.dirty.insert(router);
        }
    }

    /// Records expired Leases; returns the time of the next check.
    fn expire(&mut self, now: Instant) -> Option<Instant> {
        while let Some((turn, key)) = self.checks.first().filter(|(turn, _)| *turn <= now).cloned() {
            self.checks.remove(&(turn, key.clone()));
            let known = self.instances.iter_mut().find_map(|(router, known)| Some((router, known.get_mut(&key)?)));
            let Some((router, known)) = known else { continue };
            if known.is_expired {
                self.dead.push(key.clone());
            } else {
                known.is_expired = true;
                self.metrics.expired.inc();
                self.dirty.insert(router.clone());
                tracing::warn!(router, lease = key.name, "an instance did not renew its Lease: it counts as dead");
            }
            known.turn = now + DEAD_LONGEST;
            self.checks.insert((known.turn, key));
        }
        self.checks.first().map(|(turn, _)| *turn)
    }

    /// Reports the changes.
    fn report(&mut self, routers: &Store<RouterInfo>, observations: &Observations) {
        for name in std::mem::take(&mut self.dirty) {
            if !self.routers.contains(&name) {
                continue;
            }
            let known = self.instances.get(&name).into_iter().flatten();
            let mut instances: Vec<Instance> =
                known.map(|(_, known)| known.report.to_instance(known.is_expired)).collect();
            instances.sort_by(|one, other| one.name.cmp(&other.name));
            let object = routers.get(&ObjectKey::cluster(&name));
            let check = object.as_ref().and_then(|router| router.object.spec.health_check.as_ref());
            let panic_percent = check.and_then(|check| check.panic_threshold).unwrap_or(self.panic_percent);
            let findings = InstanceFindings { instances, panic_percent };
            let known = object.map(|router| {
                let before = router.object.status.as_ref().map(|status| status.instances.clone());
                remembered(&router.object, &findings, before.unwrap_or_default())
            });
            self.metrics.show(&name, known.as_deref().unwrap_or(&findings.instances));
            observations.set_router(&name, |router| router.instances = Some(findings));
        }
    }

    /// Returns the Leases to delete: the Leases of instances that have been dead for long, if enough others serve.
    fn take_dead(&mut self) -> Vec<ObjectKey> {
        let mut dead = std::mem::take(&mut self.dead);
        dead.retain(|key| {
            let of_router = self.instances.values().find(|of_router| of_router.contains_key(key));
            of_router.is_some_and(|of_router| {
                let serving = of_router.values().filter(|known| !known.is_expired).count();
                of_router.get(key).is_some_and(|known| known.is_expired)
                    && is_enough(serving, of_router.len(), self.panic_percent)
            })
        });
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::Relist;
    use crate::world;
    use jiff::Timestamp;
    use signpost_types::instance::LEASE_DURATION;
    use std::sync::Arc;

    fn report(octet: u8, renewal: i64) -> InstanceReport {
        InstanceReport {
            router: "shard1".to_owned(),
            address: [192, 0, 2, octet].into(),
            http_port: 80,
            https_port: 443,
            proxy: "haproxy".to_owned(),
            version: String::new(),
            state: InstanceState::Serving,
            faults: 0,
            applied_revision: 0,
            applied_routes: None,
            certificates: None,
            renewed: Timestamp::constant(renewal, 0),
            duration: LEASE_DURATION,
        }
    }

    /// A watch of instances, and its reports at seconds since its start.
    struct Scene {
        watch: Watch,
        start: Instant,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { watch: Watch { panic_percent: 50, ..Watch::default() }, start: Instant::now() }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn renew(&mut self, octet: u8, seconds: u64) {
            let report = report(octet, i64::try_from(seconds).expect("few seconds"));
            let key = ObjectKey::namespaced(AGENT_NAMESPACE, &report.lease_name());
            self.watch.set(key, report, false, self.at(seconds));
        }

        fn serving(&mut self, seconds: u64) -> usize {
            self.watch.expire(self.at(seconds));
            self.watch.instances["shard1"].values().filter(|known| !known.is_expired).count()
        }
    }

    #[test]
    fn a_lease_expires_unless_it_is_renewed() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        scene.renew(2, 0);
        assert_eq!(scene.watch.expire(scene.at(1)), Some(scene.at(15)));
        scene.renew(1, 10);
        assert_eq!((scene.serving(14), scene.serving(15), scene.serving(25)), (2, 1, 0));
        scene.renew(2, 30);
        assert_eq!(scene.serving(30), 1);
    }

    /// The applied revision changes without a renewal when another client writes the Lease.
    #[test]
    fn another_change_is_no_renewal() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        let key = ObjectKey::namespaced(AGENT_NAMESPACE, &report(1, 0).lease_name());
        scene.watch.set(key, report(1, 0), false, scene.at(10));
        assert_eq!(scene.serving(15), 0);
    }

    #[test]
    fn the_lease_of_a_dead_instance_is_deleted_once_no_answer_needs_it() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        scene.watch.expire(scene.at(15));
        scene.watch.expire(scene.at(615));
        assert_eq!(scene.watch.take_dead().len(), 0, "it is answered under panic");
        scene.renew(2, 1210);
        scene.watch.expire(scene.at(1215));
        assert_eq!(scene.watch.take_dead().len(), 1);
    }

    /// A Lease that a list lacks counts until it expires, and then as dead; a deleted one does not count at all.
    #[tokio::test]
    async fn a_list_without_leases_takes_no_address_at_once() {
        let silent = |_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        };
        let client = kube::Client::new(tower::service_fn(silent), "default");
        let (routers, _changes) = World::new(&client, world::Settings::of_domain("v3.example")).routers.read();
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
            scene.watch.take_reports(change, &routers, scene.start);
            assert_eq!(scene.watch.instances["shard1"].len(), left, "{is_list} {state:?}");
            scene.renew(2, 10);
            assert_eq!(scene.serving(15), 1, "{is_list} {state:?}");
            // When it has been dead for long, it is dropped.
            scene.renew(2, 610);
            scene.watch.expire(scene.at(615));
            scene.watch.take_dead().iter().for_each(|key| scene.watch.drop_lost(key));
            assert_eq!(scene.watch.instances["shard1"].len(), 1, "{is_list} {state:?}");
        }
    }

    /// A renewal causes no report: the status does not change.
    #[test]
    fn only_changes_are_reported() {
        let mut scene = Scene::new();
        scene.renew(1, 0);
        assert_eq!(std::mem::take(&mut scene.watch.dirty).len(), 1);
        scene.renew(1, 5);
        assert!(scene.watch.dirty.is_empty());
        scene.watch.expire(scene.at(20));
        assert_eq!(scene.watch.dirty.len(), 1);
    }
}
