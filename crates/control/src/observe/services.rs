//! The addresses of Routers with `addressesFrom.serviceSelector`, from the selected Services and EndpointSlices.
//!
//! Only the namespaces in such a Router are watched, not the cluster, which has many other EndpointSlices. The reconciler writes
//! the result into `status.currentAddresses`. A namespace without any Service, or without any EndpointSlice, is unknown at first: the
//! addresses stay for a minute, in which both kinds are listed again.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::{BoxStream, select};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::Selector;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::reflector::{self, Change, Informer, ObjectKey, Store};
use crate::work::controller::{self, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::observations::{Observations, ServiceFindings};
use crate::world::router::{Labels, matches, selector};
use crate::world::{RouterInfo, World};
use signpost_types::addresses::unusable;
use signpost_types::backends::SERVICE_LABEL;
use signpost_types::v1alpha1::router::Router;

/// The time within which changes are processed together.
const PAUSE: Duration = Duration::from_millis(20);
/// The time for which an empty list does not remove addresses: the API can lack objects for a moment, after a restore or on another
/// server, and an answer without addresses is an outage.
const EMPTY_WAIT: Duration = Duration::from_secs(60);

/// The stored part of a Service.
#[derive(Debug, Default, PartialEq)]
struct ServiceInfo {
    labels: Labels,
    /// The Service's addresses outside the cluster.
    external: BTreeSet<IpAddr>,
    /// The host name of its load balancer, if that has no address.
    host_name: Option<String>,
    /// Whether the Service uses the addresses of its endpoints if it has no address. A load balancer will get one.
    has_endpoints: bool,
}

impl ServiceInfo {
    fn new(service: Service) -> ServiceInfo {
        let spec = service.spec.unwrap_or_default();
        let balancer = service.status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
        let balancer = balancer.unwrap_or_default();
        let mut external = usable(balancer.iter().filter_map(|ingress| ingress.ip.clone()));
        if external.is_empty() {
            external = usable(spec.external_ips.into_iter().flatten());
        }
        let kind = spec.type_.as_deref().unwrap_or_default();
        let has_endpoints = !["LoadBalancer", "ExternalName"].contains(&kind);
        let host_name = balancer.into_iter().find_map(|ingress| ingress.hostname).filter(|_| external.is_empty());
        ServiceInfo { labels: service.metadata.labels.unwrap_or_default(), external, host_name, has_endpoints }
    }
}

/// The stored part of an EndpointSlice.
#[derive(Debug, Default, PartialEq)]
struct SliceInfo {
    labels: Labels,
    /// The addresses that are ready.
    ready: BTreeSet<IpAddr>,
    /// The others, without those that are terminating.
    unready: BTreeSet<IpAddr>,
}

impl SliceInfo {
    fn new(slice: EndpointSlice) -> SliceInfo {
        let labels = slice.metadata.labels.unwrap_or_default();
        let mut info = SliceInfo { labels, ..SliceInfo::default() };
        for endpoint in slice.endpoints.into_iter().flatten() {
            let conditions = endpoint.conditions.unwrap_or_default();
            // Endpoints with unknown readiness count as ready, as in Kubernetes.
            match (conditions.ready.unwrap_or(true), conditions.terminating.unwrap_or(false)) {
                (true, _) => info.ready.extend(usable(endpoint.addresses.into_iter())),
                (false, false) => info.unready.extend(usable(endpoint.addresses.into_iter())),
                (false, true) => {}
            }
        }
        info
    }
}

fn usable(ips: impl Iterator<Item = String>) -> BTreeSet<IpAddr> {
    ips.filter_map(|ip| ip.parse().ok()).filter(|ip| unusable(*ip).is_none()).collect()
}

/// Returns the addresses of a selector: the ready ones, or all if none is ready. An answer without addresses is useless, and
/// readiness can be wrong.
fn addresses(
    selector: &Result<Selector, String>,
    services: &[(ObjectKey, Arc<ServiceInfo>)],
    slices: &[(ObjectKey, Arc<SliceInfo>)],
) -> BTreeSet<IpAddr> {
    let selected: BTreeMap<&str, &ServiceInfo> = services
        .iter()
        .filter(|(_, service)| matches(selector, &service.labels))
        .map(|(key, service)| (&*key.name, &**service))
        .collect();
    let external = selected.values().flat_map(|service| service.external.iter().copied());
    // The slices of a Service have its labels: if the Service is selected, it decides whether they count.
    let counts = |slice: &SliceInfo| match slice.labels.get(SERVICE_LABEL).and_then(|name| selected.get(&**name)) {
        Some(service) => service.has_endpoints && service.external.is_empty(),
        None => matches(selector, &slice.labels),
    };
    let slices = || slices.iter().filter(|(_, slice)| counts(slice));
    let found: BTreeSet<IpAddr> = external.chain(slices().flat_map(|(_, slice)| slice.ready.iter().copied())).collect();
    match found.is_empty() {
        true => slices().flat_map(|(_, slice)| slice.unready.iter().copied()).collect(),
        false => found,
    }
}

/// Returns the first selected Service whose load balancer has only a host name.
fn unresolved(
    selector: &Result<Selector, String>,
    services: &[(ObjectKey, Arc<ServiceInfo>)],
) -> Option<(ObjectKey, String)> {
    let named = services.iter().filter(|(_, service)| matches(selector, &service.labels));
    let named = named.filter_map(|(key, service)| Some((key.clone(), service.host_name.clone()?)));
    named.min_by(|(a, _), (b, _)| a.cmp(b))
}

/// A namespace that is watched.
struct Namespace {
    services: Store<ServiceInfo>,
    slices: Store<SliceInfo>,
    /// The time from which an empty list counts, since it is empty.
    empty_at: Option<Instant>,
    _watch: DropGuard,
}

impl Namespace {
    /// Returns a namespace, and its name at every change in it.
    fn new(client: &kube::Client, name: &str) -> (Namespace, BoxStream<'static, String>) {
        let settings = || reflector::Settings { namespace: Some(name.to_owned()), ..reflector::Settings::default() };
        let (services, service_changes) = Informer::new(client.clone(), settings(), ServiceInfo::new).read();
        let (slices, slice_changes) = Informer::new(client.clone(), settings(), SliceInfo::new).read();
        let (stop, name) = (CancellationToken::new(), name.to_owned());
        let changes = select(service_changes.map(drop), slice_changes.map(drop)).map(move |()| name.clone());
        let changes = changes.take_until(stop.clone().cancelled_owned()).boxed();
        (Namespace { services, slices, empty_at: None, _watch: stop.drop_guard() }, changes)
    }

    /// Returns the time until which nothing is known, because a list is empty, and may be of a server that lacks the objects.
    fn unknown_until(&mut self, now: Instant) -> Option<Instant> {
        if !self.services.is_empty() && !self.slices.is_empty() {
            self.empty_at = None;
            return None;
        }
        let empty_at = *self.empty_at.get_or_insert_with(|| {
            self.services.relist();
            self.slices.relist();
            now + EMPTY_WAIT
        });
        (now < empty_at).then_some(empty_at)
    }
}

/// A Router whose addresses are selected.
struct Selecting {
    namespace: String,
    selector: Result<Selector, String>,
    /// The last report.
    reported: Option<ServiceFindings>,
}

impl Selecting {
    fn of(router: &Router) -> Option<Selecting> {
        let from = router.addresses_from()?;
        let (selected, namespace) = (from.service_selector.clone()?, from.namespace.clone()?);
        Some(Selecting { namespace, selector: selector(&Some(selected)), reported: None })
    }
}

/// Watches until `stop`, which also ends with this process's leadership.
pub async fn run(client: kube::Client, world: World, stop: CancellationToken) {
    let mut inputs = Inputs::default();
    drop(inputs.read(&world.routers, Watch::take_routers));
    let (opened, changes) = unbounded::<BoxStream<'static, String>>();
    inputs.add(changes.flatten_unordered(None), |watch: &mut Watch, name| watch.add(&name));
    let observations = world.observations;
    observations.for_routers(|router| router.services = None);
    let (selecting, namespaces) = Default::default();
    let queue = WorkQueue::new(1, [Duration::ZERO; 2]);
    controller::run(Watch { client, observations, selecting, namespaces, opened, queue }, inputs, stop).await;
}

struct Watch {
    client: kube::Client,
    observations: Arc<Observations>,
    selecting: BTreeMap<String, Selecting>,
    namespaces: BTreeMap<String, Namespace>,
    /// The sender of the changes in a namespace.
    opened: UnboundedSender<BoxStream<'static, String>>,
    /// The namespaces with changes.
    queue: WorkQueue<ObjectKey>,
}

impl Controller for Watch {
    type Key = ObjectKey;
    type Job = Infallible;
    type Done = Infallible;

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    fn plan(&mut self, key: &ObjectKey, now: Instant) -> Plan<Infallible> {
        let Some(namespace) = self.namespaces.get_mut(&key.name) else { return Plan::Nothing };
        if !namespace.services.is_synced() || !namespace.slices.is_synced() {
            return Plan::Nothing;
        }
        let unknown_until = namespace.unknown_until(now);
        let (services, slices) = (namespace.services.all(), namespace.slices.all());
        for (router, selecting) in self.selecting.iter_mut().filter(|(_, router)| router.namespace == key.name) {
            let found: Vec<IpAddr> = addresses(&selecting.selector, &services, &slices).into_iter().collect();
            let found = ServiceFindings {
                addresses: Some(found).filter(|found| !found.is_empty() || unknown_until.is_none()),
                unresolved: unresolved(&selecting.selector, &services),
            };
            if selecting.reported.as_ref() != Some(&found) {
                selecting.reported = Some(found.clone());
                self.observations.set_router(router, |findings| findings.services = Some(found));
            }
        }
        unknown_until.map_or(Plan::Nothing, Plan::At)
    }
}

impl Watch {
    fn add(&mut self, namespace: &str) {
        self.queue.add(ObjectKey::cluster(namespace), Instant::now() + PAUSE);
    }

    /// Notes which Routers select their addresses, and watches their namespaces.
    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, _) in gone {
            self.selecting.remove(&key.name);
        }
        for applied in applied {
            let name = applied.key.name;
            let Some(now) = Selecting::of(&applied.now.object) else {
                self.selecting.remove(&name);
                continue;
            };
            let is_same = |before: &Selecting| (&before.namespace, &before.selector) == (&now.namespace, &now.selector);
            if !self.selecting.get(&name).is_some_and(is_same) {
                self.add(&now.namespace);
                self.selecting.insert(name, now);
            }
        }
        let wanted: BTreeSet<&str> = self.selecting.values().map(|router| &*router.namespace).collect();
        self.namespaces.retain(|name, _| wanted.contains(&**name));
        for name in wanted {
            self.namespaces.entry(name.to_owned()).or_insert_with(|| {
                let (namespace, changes) = Namespace::new(&self.client, name);
                // The loop that receives them owns this.
                let _ = self.opened.unbounded_send(changes);
                namespace
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(name: &str, labels: Value, spec: Value, balancer: &[&str]) -> (ObjectKey, Arc<ServiceInfo>) {
        let ingress: Vec<Value> = balancer.iter().map(|ip| json!({"ip": ip})).collect();
        let service = json!({
            "metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"loadBalancer": {"ingress": ingress}},
        });
        let service = serde_json::from_value(service).expect("a Service");
        (ObjectKey::namespaced("edge", name), Arc::new(ServiceInfo::new(service)))
    }

    /// Returns an EndpointSlice with an address that is ready, one that is not, and one of which that is not known.
    fn slice(name: &str, labels: Value, octet: u8) -> (ObjectKey, Arc<SliceInfo>) {
        let ip = |last: u8| format!("192.0.2.{}", octet + last);
        let slice = json!({
            "addressType": "IPv4", "metadata": {"name": name, "labels": labels},
            "endpoints": [
                {"addresses": [ip(0)], "conditions": {"ready": true}},
                {"addresses": [ip(1)], "conditions": {"ready": false}},
                {"addresses": [ip(2)]},
                {"addresses": ["224.0.0.1"]},
            ],
        });
        let slice = serde_json::from_value(slice).expect("an EndpointSlice");
        (ObjectKey::namespaced("edge", name), Arc::new(SliceInfo::new(slice)))
    }

    /// A namespace without objects, of an API that does not answer.
    #[tokio::test]
    async fn an_empty_list_is_unknown_for_a_minute() {
        let silent = |_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, Infallible>>()
        };
        let client = kube::Client::new(tower::service_fn(silent), "default");
        let (mut namespace, _changes) = Namespace::new(&client, "edge");
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for (seconds, unknown_until) in [(0, Some(at(60))), (59, Some(at(60))), (60, None), (90, None)] {
            assert_eq!(namespace.unknown_until(at(seconds)), unknown_until, "{seconds}");
        }
    }

    #[test]
    fn without_any_that_is_ready_all_are() {
        let slice = |endpoints: &[(u8, &str)]| {
            let endpoint = |(octet, condition): &(u8, &str)| {
                let conditions = match *condition {
                    "leaving" => json!({"ready": false, "serving": true, "terminating": true}),
                    condition => json!({"ready": condition == "ready"}),
                };
                json!({"addresses": [format!("192.0.2.{octet}")], "conditions": conditions})
            };
            let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
            let slice = json!({
                "addressType": "IPv4", "metadata": {"name": "a", "labels": {"tier": "edge"}}, "endpoints": endpoints,
            });
            let slice = serde_json::from_value(slice).expect("an EndpointSlice");
            [(ObjectKey::namespaced("edge", "a"), Arc::new(SliceInfo::new(slice)))]
        };
        let wanted = serde_json::from_value(json!({"matchLabels": {"tier": "edge"}})).expect("a selector");
        let wanted = selector(&Some(wanted));
        for (endpoints, expected) in [
            (&[(1, "ready"), (2, "unready")][..], &["192.0.2.1"][..]),
            (&[(1, "unready"), (2, "unready")], &["192.0.2.1", "192.0.2.2"]),
            (&[(1, "unready"), (2, "leaving")], &["192.0.2.1"]),
            (&[(1, "leaving")], &[]),
        ] {
            let found: Vec<String> = addresses(&wanted, &[], &slice(endpoints)).iter().map(IpAddr::to_string).collect();
            assert_eq!(found, expected, "{endpoints:?}");
        }
    }

    #[test]
    fn which_addresses_are_selected() {
        let edge = || json!({"tier": "edge"});
        let of = |service: &str| json!({"kubernetes.io/service-name": service});
        let edge_of = |service: &str| json!({"kubernetes.io/service-name": service, "tier": "edge"});
        let balancer = || json!({"type": "LoadBalancer"});
        for (what, services, slices, expected) in [
            ("nothing", vec![], vec![], vec![]),
            (
                "another tier",
                vec![service("a", json!({"tier": "core"}), json!({}), &[])],
                vec![slice("a", of("a"), 1)],
                vec![],
            ),
            (
                "a balancer",
                vec![service("a", edge(), balancer(), &["198.51.100.1"])],
                vec![slice("a", edge_of("a"), 1)],
                vec!["198.51.100.1"],
            ),
            ("one that waits", vec![service("a", edge(), balancer(), &[])], vec![slice("a", edge_of("a"), 1)], vec![]),
            (
                "external addresses",
                vec![service("a", edge(), json!({"externalIPs": ["198.51.100.2", "0.0.0.0"]}), &[])],
                vec![slice("a", of("a"), 1)],
                vec!["198.51.100.2"],
            ),
            (
                "endpoints, with any labels of their slice",
                vec![service("a", edge(), json!({}), &[])],
                vec![slice("a", of("a"), 1), slice("b", of("b"), 10)],
                vec!["192.0.2.1", "192.0.2.3"],
            ),
            ("a slice alone", vec![], vec![slice("a", edge(), 1)], vec!["192.0.2.1", "192.0.2.3"]),
            (
                "both",
                vec![service("a", edge(), balancer(), &["198.51.100.1"])],
                vec![slice("b", edge_of("b"), 10)],
                vec!["192.0.2.10", "192.0.2.12", "198.51.100.1"],
            ),
        ] {
            let wanted = serde_json::from_value(json!({"matchLabels": {"tier": "edge"}})).expect("a selector");
            let found = addresses(&selector(&Some(wanted)), &services, &slices);
            let found: Vec<String> = found.iter().map(IpAddr::to_string).collect();
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn a_load_balancer_with_only_a_host_name_is_reported() {
        let wanted = serde_json::from_value(json!({"matchLabels": {"tier": "edge"}})).expect("a selector");
        let wanted = selector(&Some(wanted));
        let found = |tier: &str, external: &[&str], ingress: Value| {
            let service = json!({
                "metadata": {"name": "a", "labels": {"tier": tier}},
                "spec": {"type": "LoadBalancer", "externalIPs": external},
                "status": {"loadBalancer": {"ingress": ingress}},
            });
            let service = ServiceInfo::new(serde_json::from_value(service).expect("a Service"));
            unresolved(&wanted, &[(ObjectKey::namespaced("edge", "a"), Arc::new(service))]).map(|(_, host)| host)
        };
        let host = || json!([{"hostname": "lb.example"}]);
        assert_eq!(found("edge", &[], host()).as_deref(), Some("lb.example"));
        assert_eq!(found("core", &[], host()), None);
        assert_eq!(found("edge", &["192.0.2.1"], host()), None);
        assert_eq!(found("edge", &[], json!([{"ip": "192.0.2.1"}, {"hostname": "lb.example"}])), None);
        assert_eq!(found("edge", &[], json!([])), None);
    }
}
