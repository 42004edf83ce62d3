//! Resolves the targets of a Route to the endpoints that receive its requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use signpost_types::v1alpha1::route::{self, InsecurePolicy, RouteSpec, Target, WEIGHT_DEFAULT};

use super::{Key, Reason};
use crate::site::{Host, Insecure, Server, Termination, Upstream, WEIGHT_MAX};

/// The label of an EndpointSlice with the name of its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The endpoints of one target of a Route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub service: String,
    /// The weight of the target, which its endpoints share; 0 to 256.
    pub weight: u32,
    /// The endpoints that get requests.
    pub endpoints: BTreeSet<SocketAddr>,
}

/// Services and their endpoints.
#[derive(Debug)]
pub(super) struct Backends {
    services: HashMap<Key, Arc<Service>>,
    slices: HashMap<Key, Arc<EndpointSlice>>,
    /// The names of the slices of each Service.
    of_service: HashMap<Key, BTreeSet<String>>,
    loopback: bool,
}

impl Backends {
    pub(super) fn new(loopback: bool) -> Backends {
        Backends { services: HashMap::new(), slices: HashMap::new(), of_service: HashMap::new(), loopback }
    }

    /// Records a Service, or that it is gone.
    pub(super) fn put_service(&mut self, key: Key, service: Option<Arc<Service>>) {
        match service {
            Some(service) => _ = self.services.insert(key, service),
            None => _ = self.services.remove(&key),
        }
    }

    /// Records an EndpointSlice, or that it is gone. Returns the Services whose endpoints it has or had.
    pub(super) fn put_slice(&mut self, key: Key, slice: Option<Arc<EndpointSlice>>) -> BTreeSet<Key> {
        let (namespace, name) = key.clone();
        let service = |slice: &EndpointSlice| {
            let service = slice.metadata.labels.as_ref()?.get(SERVICE_LABEL)?;
            Some((namespace.clone(), service.clone()))
        };
        let after = slice.as_deref().and_then(service);
        let before = match slice {
            Some(slice) => self.slices.insert(key, slice),
            None => self.slices.remove(&key),
        };
        let before = before.as_deref().and_then(service);
        if let Some(service) = before.as_ref().filter(|_| before != after)
            && let Some(names) = self.of_service.get_mut(service)
        {
            names.remove(&name);
            if names.is_empty() {
                self.of_service.remove(service);
            }
        }
        if let Some(service) = &after {
            self.of_service.entry(service.clone()).or_default().insert(name);
        }
        before.into_iter().chain(after).collect()
    }

    fn slices(&self, service: &Key) -> Vec<&EndpointSlice> {
        let names = self.of_service.get(service).into_iter().flatten();
        names.filter_map(|name| self.slices.get(&(service.0.clone(), name.clone()))).map(|slice| &**slice).collect()
    }

    pub(super) fn upstream(
        &self,
        namespace: &str,
        spec: &RouteSpec,
        report: &mut impl FnMut(Reason, String),
    ) -> Upstream {
        let termination = spec.tls.as_ref().map(|tls| match tls.termination {
            route::Termination::Edge => Termination::Edge,
            route::Termination::Passthrough => Termination::Passthrough,
            route::Termination::Reencrypt => Termination::Reencrypt,
        });
        let insecure = match spec.tls.as_ref().and_then(|tls| tls.insecure_edge_termination_policy) {
            None | Some(InsecurePolicy::None) => Insecure::None,
            Some(InsecurePolicy::Allow) => Insecure::Allow,
            Some(InsecurePolicy::Redirect) => Insecure::Redirect,
        };
        let mut shares: BTreeMap<(SocketAddr, Option<Host>), f64> = BTreeMap::new();
        for Destination { service, weight, endpoints } in self.destinations(namespace, spec, report) {
            let tls_name = match termination {
                Some(Termination::Reencrypt) => format!("{service}.{namespace}.svc").parse().ok(),
                _ => None,
            };
            let weight = f64::from(weight) / endpoints.len() as f64;
            for address in endpoints {
                *shares.entry((address, tls_name.clone())).or_default() += weight;
            }
        }
        Upstream { termination, insecure, servers: weighted(shares), ..Upstream::default() }
    }

    pub(super) fn destinations(
        &self,
        namespace: &str,
        spec: &RouteSpec,
        report: &mut impl FnMut(Reason, String),
    ) -> Vec<Destination> {
        if spec.to.is_none() {
            report(Reason::NoTarget, "the Route has no target; set spec.to".to_owned());
        }
        let port = spec.port.as_ref().map(|port| &port.target_port);
        let mut found = Vec::new();
        for target in spec.to.iter().chain(&spec.alternate_backends) {
            let endpoints = self.endpoints(namespace, target, port, report);
            let weight = target.weight.unwrap_or(WEIGHT_DEFAULT);
            found.push(Destination { service: target.name.clone(), weight, endpoints });
        }
        if found.iter().all(|target| target.weight == 0 || target.endpoints.is_empty()) {
            report(Reason::NoReadyEndpoints, "no endpoint is ready: requests get a 503".to_owned());
        }
        found
    }

    /// Returns the addresses of a target's endpoints that get requests.
    fn endpoints(
        &self,
        namespace: &str,
        target: &Target,
        port: Option<&IntOrString>,
        report: &mut impl FnMut(Reason, String),
    ) -> BTreeSet<SocketAddr> {
        let name = &target.name;
        if target.kind != "Service" {
            report(Reason::NoTarget, format!("target {name:?} has kind {:?}, which is not supported", target.kind));
            return BTreeSet::new();
        }
        let service = (namespace.to_owned(), name.clone());
        let Some(object) = self.services.get(&service) else {
            report(Reason::NoService, format!("Service {name} does not exist"));
            return BTreeSet::new();
        };
        let spec = object.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            report(Reason::Unsupported, format!("Service {name} has type ExternalName, which is not supported"));
            return BTreeSet::new();
        }
        let slices = self.slices(&service);
        let mut has_port = slices.is_empty();
        let mut found: Vec<(SocketAddr, bool)> = Vec::new();
        for slice in slices {
            for port in ports(slice, port, spec.ports.as_deref().unwrap_or_default()) {
                has_port = true;
                let endpoints = slice.endpoints.iter().flatten();
                found.extend(
                    endpoints.filter_map(|endpoint| Some((self.address(endpoint, port)?, is_ready(endpoint)?))),
                );
            }
        }
        if let (false, Some(port)) = (has_port, port) {
            let port = match port {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(name) => name.clone(),
            };
            report(Reason::NoPort, format!("Service {name} has no endpoints with port {port}"));
        }
        // The endpoints that end are better than none: Kubernetes does the same.
        let ready = found.iter().any(|(_, ready)| *ready);
        let addresses = found.into_iter().filter(|(_, is_ready)| *is_ready == ready).map(|(address, _)| address);
        let (v4, v6): (BTreeSet<_>, BTreeSet<_>) = addresses.partition(SocketAddr::is_ipv4);
        // In a dual-stack cluster, both are the same endpoints.
        if v4.is_empty() { v6 } else { v4 }
    }

    /// Returns the address of an endpoint, unless it is one that no application should be reached at.
    fn address(&self, endpoint: &Endpoint, port: u16) -> Option<SocketAddr> {
        let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
        let address = address.to_canonical();
        let link_local = match address {
            IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let forbidden = link_local
            || address.is_unspecified()
            || address.is_multicast()
            || (address.is_loopback() && !self.loopback);
        (!forbidden).then_some(SocketAddr::new(address, port))
    }
}

/// Returns whether an endpoint is ready (`true`), or still serves while it ends (`false`).
fn is_ready(endpoint: &Endpoint) -> Option<bool> {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let ending = conditions.terminating.unwrap_or(false);
    match conditions.ready.unwrap_or(true) && !ending {
        true => Some(true),
        false => (ending && conditions.serving.unwrap_or(false)).then_some(false),
    }
}

/// Returns the TCP ports of a slice that a Route means.
fn ports(slice: &EndpointSlice, wanted: Option<&IntOrString>, of_service: &[ServicePort]) -> Vec<u16> {
    let is_tcp = |protocol: &Option<String>| protocol.as_deref().unwrap_or("TCP") == "TCP";
    let ports: Vec<_> = slice.ports.iter().flatten().filter(|port| is_tcp(&port.protocol)).collect();
    let named = |name: &str| -> Vec<_> {
        ports
            .iter()
            .filter(|port| port.name.as_deref().unwrap_or_default() == name)
            .filter_map(|port| port.port)
            .collect()
    };
    let numbers = match wanted {
        None => ports.iter().filter_map(|port| port.port).collect(),
        Some(IntOrString::Int(number)) if ports.iter().any(|port| port.port == Some(*number)) => vec![*number],
        // The ports of Services and of their slices have the same names; a single one may have none.
        Some(IntOrString::Int(number)) => {
            let port = of_service.iter().find(|port| port.port == *number && is_tcp(&port.protocol));
            port.map(|port| named(port.name.as_deref().unwrap_or_default())).unwrap_or_default()
        }
        Some(IntOrString::String(name)) => named(name),
    };
    numbers.into_iter().filter_map(|number| u16::try_from(number).ok().filter(|port| *port > 0)).collect()
}

/// Scales the shares so that the largest one has the largest weight, and none that is not 0 becomes 0.
fn weighted(shares: BTreeMap<(SocketAddr, Option<Host>), f64>) -> Vec<Server> {
    let largest = shares.values().copied().fold(0.0, f64::max);
    let weight = |share: f64| match share > 0.0 {
        true => ((share / largest * f64::from(WEIGHT_MAX)).round() as u16).max(1),
        false => 0,
    };
    shares.into_iter().map(|((address, tls_name), share)| Server { address, tls_name, weight: weight(share) }).collect()
}
