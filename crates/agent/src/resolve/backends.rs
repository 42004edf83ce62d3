//! Resolves the targets of a Route to the endpoints that receive its requests.
//!
//! A Service and port are resolved once for all Routes that use them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use signpost_types::backends::{
    RoutePortRef, SERVICE_KIND, SERVICE_LABEL, TcpPort, has_endpoints, is_external_name, is_ready, route_ports,
    service_ports, slice_ports,
};
use signpost_types::v1alpha1::route::{InsecurePolicy, RouteSpec, Target, Termination, WEIGHT_DEFAULT};

use super::refused::Refused;
use super::{Key, Reason};
use crate::site::{Host, Insecure, Server, Upstream, WEIGHT_MAX};

/// The most refused endpoints of a Service that a fault lists.
const REFUSED_LISTED_MAX: usize = 3;

/// The endpoints of one target of a Route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub service: String,
    /// The weight of the target, which its endpoints share; 0 to 256.
    pub weight: u32,
    /// The endpoints that get requests.
    pub endpoints: BTreeSet<SocketAddr>,
}

/// A target of a Route with what its Service and port mean.
#[derive(Clone, Debug)]
pub(super) struct ResolvedTarget {
    pub(super) service: String,
    pub(super) weight: u32,
    pub(super) endpoints: Arc<Endpoints>,
}

/// The endpoints of a Service and port.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Endpoints {
    /// The endpoints that get requests, in the order in which a limit keeps them. It depends on each address alone, so that a change of
    /// some endpoints never moves the others.
    pub(super) addresses: Vec<SocketAddr>,
    faults: Vec<(Reason, String)>,
}

/// The port of a Route; `None`: it has none.
type Port = Option<RoutePortRef>;

/// Services and their endpoints.
#[derive(Debug)]
pub(super) struct Backends {
    services: HashMap<Key, Arc<Service>>,
    slices: HashMap<Key, Arc<EndpointSlice>>,
    /// The names of the slices of each Service.
    of_service: HashMap<Key, BTreeSet<String>>,
    /// The endpoints of each Service by port, as long as a Route uses them and neither the Service nor its slices change.
    resolved: HashMap<Key, HashMap<Port, Weak<Endpoints>>>,
    refused: Refused,
}

impl Backends {
    pub(super) fn new(refused: Refused) -> Backends {
        let (services, slices, of_service, resolved) = Default::default();
        Backends { services, slices, of_service, resolved, refused }
    }

    /// Replaces the rules for endpoints; returns whether they differ.
    pub(super) fn set_refused(&mut self, refused: Refused) -> bool {
        if self.refused == refused {
            return false;
        }
        self.refused = refused;
        self.resolved.clear();
        true
    }

    /// Records a Service, or that it is gone. Returns whether its endpoints may differ.
    pub(super) fn put_service(&mut self, key: Key, service: Option<Arc<Service>>) -> bool {
        let spec = |service: &Arc<Service>| service.spec.clone();
        let after = service.as_ref().map(spec);
        let before = match service {
            Some(service) => self.services.insert(key.clone(), service),
            None => self.services.remove(&key),
        };
        let has_changed = before.as_ref().map(spec) != after;
        if has_changed {
            self.resolved.remove(&key);
        }
        has_changed
    }

    /// Records an EndpointSlice, or that it is gone. Returns the Services whose endpoints may differ.
    pub(super) fn put_slice(&mut self, key: Key, slice: Option<Arc<EndpointSlice>>) -> BTreeSet<Key> {
        let (namespace, name) = key.clone();
        let service = |slice: &EndpointSlice| {
            let service = slice.metadata.labels.as_ref()?.get(SERVICE_LABEL)?;
            Some((namespace.clone(), service.clone()))
        };
        let after = slice.as_deref().and_then(service);
        let new = slice.clone();
        let old = match slice {
            Some(slice) => self.slices.insert(key, slice),
            None => self.slices.remove(&key),
        };
        let before = old.as_deref().and_then(service);
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
        if before == after
            && let (Some(old), Some(new)) = (old, new)
            && old.endpoints == new.endpoints
            && old.ports == new.ports
        {
            return BTreeSet::new();
        }
        let services: BTreeSet<Key> = before.into_iter().chain(after).collect();
        for service in &services {
            self.resolved.remove(service);
        }
        services
    }

    fn slices(&self, service: &Key) -> Vec<&EndpointSlice> {
        let names = self.of_service.get(service).into_iter().flatten();
        names.filter_map(|name| self.slices.get(&(service.0.clone(), name.clone()))).map(|slice| &**slice).collect()
    }

    /// Resolves the targets of a Route, and reports why they get no requests, or not all.
    pub(super) fn targets(
        &mut self,
        namespace: &str,
        spec: &RouteSpec,
        report: &mut impl FnMut(Reason, String),
    ) -> Vec<ResolvedTarget> {
        if spec.to.is_none() {
            report(Reason::NoTarget, "the Route has no target; set spec.to".to_owned());
        }
        let port = RoutePortRef::of(spec);
        let mut targets = Vec::new();
        for Target { kind, name, weight, .. } in spec.to.iter().chain(&spec.alternate_backends) {
            let endpoints = match kind.as_str() {
                SERVICE_KIND => self.endpoints(&(namespace.to_owned(), name.clone()), &port),
                _ => {
                    report(Reason::NoTarget, format!("target {name:?} has kind {kind:?}, which is not supported"));
                    Arc::default()
                }
            };
            endpoints.faults.iter().for_each(|(reason, message)| report(*reason, message.clone()));
            targets.push(ResolvedTarget { service: name.clone(), weight: weight.unwrap_or(WEIGHT_DEFAULT), endpoints });
        }
        if targets.iter().all(|target| target.weight == 0 || target.endpoints.addresses.is_empty()) {
            report(Reason::NoReadyEndpoints, "no endpoint is ready: requests get a 503".to_owned());
        }
        targets
    }

    /// Returns the endpoints of a Service and port.
    fn endpoints(&mut self, service: &Key, port: &Port) -> Arc<Endpoints> {
        let known = self.resolved.get(service).and_then(|ports| ports.get(port));
        if let Some(endpoints) = known.and_then(Weak::upgrade) {
            return endpoints;
        }
        let endpoints = Arc::new(self.resolve(service, port));
        let ports = self.resolved.entry(service.clone()).or_default();
        // So that it never has more entries than there are Routes.
        ports.retain(|_, endpoints| endpoints.strong_count() > 0);
        ports.insert(port.clone(), Arc::downgrade(&endpoints));
        endpoints
    }

    fn resolve(&self, service: &Key, port: &Port) -> Endpoints {
        let (_, name) = service;
        let failed = |reason, message| Endpoints { addresses: Vec::new(), faults: vec![(reason, message)] };
        let Some(object) = self.services.get(service) else {
            return failed(Reason::NoService, format!("Service {name} does not exist"));
        };
        if is_external_name(object) {
            let message = format!("Service {name} has type ExternalName, which is not supported");
            return failed(Reason::Unsupported, message);
        }
        let of_service = service_ports(object);
        let slices = self.slices(service);
        let mut has_port = !slices.iter().any(|slice| has_endpoints(slice));
        let mut found: Vec<(SocketAddr, bool)> = Vec::new();
        let mut refused = BTreeMap::new();
        for slice in &slices {
            for port in route_ports(&slice_ports(slice), port.as_ref(), &of_service) {
                has_port = true;
                for endpoint in slice.endpoints.iter().flatten() {
                    let (Some(text), Some(is_ready)) = (endpoint.addresses.first(), is_ready(endpoint)) else {
                        continue;
                    };
                    let Ok(address) = text.parse::<IpAddr>() else {
                        refused.insert(text.clone(), "is not an IP address".to_owned());
                        continue;
                    };
                    let endpoint = SocketAddr::new(address.to_canonical(), port);
                    match self.refused.reason(address, port) {
                        Some(reason) => _ = refused.insert(endpoint.to_string(), reason),
                        None => found.push((endpoint, is_ready)),
                    }
                }
            }
        }
        let mut faults = Vec::new();
        if let (false, Some(port)) = (has_port, port) {
            faults.push((Reason::NoPort, format!("Service {name} has no endpoints with port {port}")));
        }
        if let (None, Some(first)) = (port, first_of_several(&slices, &of_service)) {
            let message = format!("Service {name} has several ports: requests go to the first, {first}; set spec.port");
            faults.push((Reason::FirstPort, message));
        }
        for (endpoint, reason) in refused.iter().take(REFUSED_LISTED_MAX) {
            let message = format!("endpoint {endpoint} of Service {name} {reason}, and gets no requests");
            faults.push((Reason::RefusedEndpoint, message));
        }
        if refused.len() > REFUSED_LISTED_MAX {
            let message = format!("further endpoints of Service {name} are refused, {} in total", refused.len());
            faults.push((Reason::RefusedEndpoint, message));
        }
        // The endpoints that end are better than none: Kubernetes does the same.
        let ready = found.iter().any(|(_, ready)| *ready);
        let addresses = found.into_iter().filter(|(_, is_ready)| *is_ready == ready).map(|(address, _)| address);
        let (v4, v6): (BTreeSet<_>, BTreeSet<_>) = addresses.partition(SocketAddr::is_ipv4);
        // In a dual-stack cluster, both are the same endpoints.
        let mut addresses: Vec<SocketAddr> = if v4.is_empty() { v6 } else { v4 }.into_iter().collect();
        addresses.sort_by_cached_key(|address| (rank(address), *address));
        Endpoints { addresses, faults }
    }
}

/// Returns the place of an endpoint among those that a limit keeps.
fn rank(address: &SocketAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    address.hash(&mut hasher);
    hasher.finish()
}

/// Distributes a number of servers among the targets of a Route: as evenly as their endpoints permit, and first to those that get
/// requests.
pub(super) fn distribute(targets: &[ResolvedTarget], most: usize) -> Vec<Destination> {
    let mut order: Vec<usize> = (0..targets.len()).collect();
    order.sort_by_key(|at| (targets[*at].weight == 0, targets[*at].endpoints.addresses.len()));
    let (mut left, mut counts) = (most, vec![0; targets.len()]);
    let weighted = targets.iter().filter(|target| target.weight > 0).count();
    for (done, at) in order.into_iter().enumerate() {
        let of_group = if done < weighted { weighted } else { targets.len() };
        // Rounded up, so that the first targets get at least one.
        counts[at] = targets[at].endpoints.addresses.len().min(left.div_ceil(of_group - done));
        left -= counts[at];
    }
    // No endpoint has a smaller weight than 1: a target whose share is too small for all of its endpoints uses fewer of them.
    let shares = targets.iter().zip(&counts).filter(|(_, count)| **count > 0);
    let largest = shares.map(|(target, count)| f64::from(target.weight) / *count as f64).fold(0.0, f64::max);
    for (target, count) in targets.iter().zip(&mut counts).filter(|(target, _)| target.weight > 0) {
        let permitted = (f64::from(target.weight) / largest * f64::from(WEIGHT_MAX)) as usize;
        *count = (*count).min(permitted.max(1));
    }
    let destination = |(target, count): (&ResolvedTarget, usize)| Destination {
        service: target.service.clone(),
        weight: target.weight,
        endpoints: target.endpoints.addresses[..count].iter().copied().collect(),
    };
    targets.iter().zip(counts).map(destination).collect()
}

/// Returns the servers of a Route, and its treatment of TLS.
pub(super) fn upstream(namespace: &str, spec: &RouteSpec, destinations: Vec<Destination>) -> Upstream {
    let termination = spec.tls.as_ref().map(|tls| tls.termination);
    let insecure = match spec.tls.as_ref().and_then(|tls| tls.insecure_edge_termination_policy) {
        None | Some(InsecurePolicy::None) => Insecure::None,
        Some(InsecurePolicy::Allow) => Insecure::Allow,
        Some(InsecurePolicy::Redirect) => Insecure::Redirect,
    };
    let mut shares: BTreeMap<(SocketAddr, Option<Host>), f64> = BTreeMap::new();
    for Destination { service, weight, endpoints } in destinations {
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

/// Returns the first TCP port of a Service that has several, or whose endpoints have several.
fn first_of_several(slices: &[&EndpointSlice], of_service: &[TcpPort]) -> Option<String> {
    let first = |ports: &[TcpPort]| match ports {
        [first, _, ..] if first.name.is_empty() => Some(first.number.to_string()),
        [first, _, ..] => Some(first.name.to_string()),
        _ => None,
    };
    first(of_service).or_else(|| slices.iter().find_map(|slice| first(&slice_ports(slice))))
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
