//! The addresses of Routers with `addressesFrom.serviceSelector`, from the selected Services and EndpointSlices.
//!
//! Only the namespaces in such a Router are watched, not the cluster, which has many other EndpointSlices. The reconciler writes
//! the result into `status.currentAddresses`. A namespace without any Service, or without any EndpointSlice, is unknown at first: the
//! addresses stay for a minute, in which both kinds are listed again.
//!
//! The host name of a load balancer counts as the addresses that it [resolves](super::resolve) to. Until these are known, the Router
//! keeps the addresses that it has, and gets those of the other Services.

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
use crate::world::host_names::HostNames;
use crate::world::observations::{Observations, ServiceFindings};
use crate::world::router::{Labels, matches, selector};
use crate::world::{RouterInfo, World};
use signpost_types::addresses::{unusable, unusable_name};
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
    /// The host names of its load balancer: of an entry without an address.
    host_names: BTreeSet<String>,
    /// Whether the Service uses the addresses of its endpoints if it has no address. A load balancer will get one.
    has_endpoints: bool,
}

impl ServiceInfo {
    fn new(service: Service) -> ServiceInfo {
        let spec = service.spec.unwrap_or_default();
        let balancer = service.status.and_then(|status| status.load_balancer).and_then(|balancer| balancer.ingress);
        let balancer = balancer.unwrap_or_default();
        let mut external = usable(balancer.iter().filter_map(|ingress| ingress.ip.clone()));
        let named = balancer.into_iter().filter(|ingress| ingress.ip.is_none()).filter_map(|ingress| ingress.hostname);
        let mut host_names: BTreeSet<String> =
            named.map(|name| name.trim_end_matches('.').to_ascii_lowercase()).filter(|name| !name.is_empty()).collect();
        let external_ips = usable(spec.external_ips.into_iter().flatten());
        if external.is_empty() && !external_ips.is_empty() {
            external = external_ips;
            // The operator prefers these.
            host_names.clear();
        }
        let kind = spec.type_.as_deref().unwrap_or_default();
        let has_endpoints = !["LoadBalancer", "ExternalName"].contains(&kind);
        ServiceInfo { labels: service.metadata.labels.unwrap_or_default(), external, host_names, has_endpoints }
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

/// The addresses behind the host names of selected Services.
#[derive(Debug, Default, PartialEq)]
struct Named {
    /// The names to resolve.
    wanted: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
    /// Whether the addresses of a name are not known yet.
    is_partial: bool,
    /// The first name with a fault, in a statement.
    fault: Option<String>,
}

impl Named {
    fn find(
        selector: &Result<Selector, String>,
        services: &[(ObjectKey, Arc<ServiceInfo>)],
        names: &HostNames,
    ) -> Named {
        let mut found = Named::default();
        let mut selected: Vec<_> = services.iter().filter(|(_, service)| matches(selector, &service.labels)).collect();
        selected.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (key, name) in
            selected.iter().flat_map(|(key, service)| service.host_names.iter().map(move |name| (key, name)))
        {
            let fault = match unusable_name(name) {
                Some(reason) => Some(format!("which is not used: {reason}")),
                None => {
                    let known = names.get(name);
                    found.is_partial |= known.addresses.is_none();
                    found.addresses.extend(known.addresses.into_iter().flatten());
                    found.wanted.insert(name.clone());
                    known.fault.map(|fault| format!("and its last known addresses stay in use: {fault}"))
                }
            };
            let statement = |fault| format!("the load balancer of Service {key} has the host name {name}, {fault}");
            found.fault = found.fault.or_else(|| fault.map(statement));
        }
        found
    }
}

/// A namespace that is watched.
struct Namespace {
    services: Store<ServiceInfo>,
    slices: Store<SliceInfo>,
    /// The time from which an empty list counts, since it is empty.
    empty_at: Option<Instant>,
    /// The host names of the selected load balancers.
    host_names: BTreeSet<String>,
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
        let host_names = BTreeSet::new();
        (Namespace { services, slices, empty_at: None, host_names, _watch: stop.drop_guard() }, changes)
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
    let (observations, host_names) = (world.observations, world.host_names);
    inputs.add(controller::changes(host_names.results()), |watch: &mut Watch, _| watch.resolved());
    observations.for_routers(|router| router.services = None);
    let (selecting, namespaces) = Default::default();
    let queue = WorkQueue::new(1, [Duration::ZERO; 2]);
    let watch = Watch { client, observations, host_names, selecting, namespaces, opened, queue };
    controller::run(watch, inputs, stop).await;
}

struct Watch {
    client: kube::Client,
    observations: Arc<Observations>,
    host_names: HostNames,
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
        let mut wanted = BTreeSet::new();
        for (router, selecting) in self.selecting.iter_mut().filter(|(_, router)| router.namespace == key.name) {
            let named = Named::find(&selecting.selector, &services, &self.host_names);
            let mut found = addresses(&selecting.selector, &services, &slices);
            found.extend(named.addresses);
            wanted.extend(named.wanted);
            let found = ServiceFindings {
                addresses: Some(found.into_iter().collect::<Vec<_>>())
                    .filter(|found| !found.is_empty() || unknown_until.is_none()),
                is_partial: named.is_partial,
                fault: named.fault,
            };
            if selecting.reported.as_ref() != Some(&found) {
                selecting.reported = Some(found.clone());
                self.observations.set_router(router, |findings| findings.services = Some(found));
            }
        }
        if namespace.host_names != wanted {
            namespace.host_names = wanted;
            self.want();
        }
        unknown_until.map_or(Plan::Nothing, Plan::At)
    }
}

impl Watch {
    fn add(&mut self, namespace: &str) {
        self.queue.add(ObjectKey::cluster(namespace), Instant::now() + PAUSE);
    }

    /// Requests the resolution of the host names in all namespaces.
    fn want(&self) {
        let names = self.namespaces.values().flat_map(|namespace| &namespace.host_names);
        self.host_names.want("addresses of Services", names.cloned().collect());
    }

    /// Processes changed addresses of host names.
    fn resolved(&mut self) {
        let named = self.namespaces.iter().filter(|(_, namespace)| !namespace.host_names.is_empty());
        let named: Vec<String> = named.map(|(name, _)| name.clone()).collect();
        named.iter().for_each(|name| self.add(name));
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
        let before = self.namespaces.len();
        self.namespaces.retain(|name, _| wanted.contains(&**name));
        if self.namespaces.len() < before {
            self.want();
        }
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
    use crate::world::host_names::Resolution;
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

    /// The host names of a Service, and what the Router gets of them.
    #[test]
    fn host_names_of_load_balancers() {
        let wanted = serde_json::from_value(json!({"matchLabels": {"tier": "edge"}})).expect("a selector");
        let wanted = selector(&Some(wanted));
        let names = HostNames::default();
        let address = |ip: &str| ip.parse::<IpAddr>().expect("an address");
        names.want("test", ["lb.example", "old.example"].map(str::to_owned).into());
        let known = || Some([address("192.0.2.7")].into());
        names.set("lb.example", Resolution { addresses: known(), fault: None });
        names.set("old.example", Resolution { addresses: known(), fault: Some("SERVFAIL".to_owned()) });
        let host = |name: &str| json!([{"hostname": name}]);
        for (tier, external, ingress, external_addresses, named, is_partial, fault) in [
            ("edge", &[][..], host("lb.example"), "", "192.0.2.7", false, None),
            ("edge", &[], host("LB.example."), "", "192.0.2.7", false, None),
            ("core", &[], host("lb.example"), "", "", false, None),
            // The last good addresses.
            ("edge", &[], host("old.example"), "", "192.0.2.7", false, Some("stay in use: SERVFAIL")),
            ("edge", &[], host("new.example"), "", "", true, None),
            // Names of the cluster or of a machine.
            ("edge", &[], host("a.b.svc.cluster.local"), "", "", false, Some("it is a name of the cluster")),
            ("edge", &[], host("localhost"), "", "", false, Some("it is a name of one machine")),
            ("edge", &["192.0.2.1"], host("lb.example"), "192.0.2.1", "", false, None),
            // Two entries, and one with both, as two families and some clouds have.
            (
                "edge",
                &[],
                json!([{"ip": "192.0.2.1"}, {"hostname": "lb.example"}]),
                "192.0.2.1",
                "192.0.2.7",
                false,
                None,
            ),
            ("edge", &[], json!([{"ip": "192.0.2.1", "hostname": "lb.example"}]), "192.0.2.1", "", false, None),
            (
                "edge",
                &[],
                json!([{"ip": "192.0.2.1", "ipMode": "Proxy"}, {"ip": "2001:db8::1", "ipMode": "VIP"}]),
                "192.0.2.1 2001:db8::1",
                "",
                false,
                None,
            ),
            ("edge", &[], json!([]), "", "", false, None),
        ] {
            let service = json!({
                "metadata": {"name": "a", "labels": {"tier": tier}},
                "spec": {"type": "LoadBalancer", "externalIPs": external},
                "status": {"loadBalancer": {"ingress": ingress}},
            });
            let service = ServiceInfo::new(serde_json::from_value(service).expect("a Service"));
            let services = [(ObjectKey::namespaced("edge", "a"), Arc::new(service))];
            let found = Named::find(&wanted, &services, &names);
            let text = |ips: &BTreeSet<IpAddr>| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ");
            assert_eq!((&*text(&found.addresses), found.is_partial), (named, is_partial), "{ingress}");
            assert_eq!(text(&addresses(&wanted, &services, &[])), external_addresses, "{ingress}");
            let is_expected = fault.is_none_or(|fault| found.fault.as_ref().is_some_and(|found| found.contains(fault)));
            assert!(is_expected && fault.is_some() == found.fault.is_some(), "{ingress}: {:?}", found.fault);
        }
    }
}
