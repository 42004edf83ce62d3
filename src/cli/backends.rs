//! The applications behind a Route, as the agents of its Router resolve them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use serde::Serialize;

use super::access::Access;
use signpost_agent::listeners;
use signpost_agent::resolve::{self, Destination, Refused};
use signpost_types::backends::{RoutePortRef, SERVICE_LABEL};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;

/// The longest name of a Service (RFC 1035 §2.3.4).
const SERVICE_NAME_BYTES_MAX: usize = 63;

/// The backends of a Route. Its JSON is an interface: fields are added, and none is renamed.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Backends {
    /// The targets, in the order of the Route.
    pub(super) targets: Vec<BackendTarget>,
    /// The reasons why the Route is not, or not wholly, served.
    pub(super) faults: Vec<BackendFault>,
}

/// A target of a Route.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BackendTarget {
    pub(super) service: String,
    /// The port of the Route; absent: the first port of the Service.
    port: Option<String>,
    weight: u32,
    pub(super) endpoints: BTreeSet<SocketAddr>,
}

/// A reason why a Route is not, or not wholly, served.
#[derive(Debug, Serialize)]
pub(super) struct BackendFault {
    reason: String,
    message: String,
}

impl Backends {
    /// Resolves the backends of a Route; `None` if the user may not read Services or EndpointSlices.
    pub(super) async fn find(access: &Access, route: &Route) -> Result<Option<Backends>, String> {
        match objects(access, route).await {
            Ok((services, slices)) => {
                let routers = access.all_permitted::<Router>().await?.unwrap_or_default();
                Ok(Some(Backends::new(route, &services, &slices, listeners::of_routers(&routers))))
            }
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            Err(error) => Err(access.unanswered(error)),
        }
    }

    fn new(
        route: &Route,
        services: &[Arc<Service>],
        slices: &[Arc<EndpointSlice>],
        listeners: BTreeSet<(IpAddr, u16)>,
    ) -> Backends {
        let port = RoutePortRef::of(&route.spec).map(|port| port.to_string());
        // Loopback endpoints are included: an option of the agents decides about them.
        let refused = Refused { loopback: true, listeners, ..Refused::default() };
        let (found, faults) = resolve::destinations(route, services, slices, refused);
        let target = |Destination { service, weight, endpoints }| {
            let port = port.clone();
            BackendTarget { service, port, weight, endpoints }
        };
        let fault = |(reason, message)| BackendFault { reason: format!("{reason:?}"), message };
        Backends { targets: found.into_iter().map(target).collect(), faults: faults.into_iter().map(fault).collect() }
    }

    pub(super) fn target_lines(&self) -> impl Iterator<Item = String> {
        self.targets.iter().map(|BackendTarget { service, port, weight, endpoints }| {
            let port = port.as_ref().map_or("first port".to_owned(), |port| format!("port {port}"));
            let count = match endpoints.len() {
                1 => "1 endpoint".to_owned(),
                count => format!("{count} endpoints"),
            };
            let loopback = match endpoints.iter().any(|endpoint| endpoint.ip().is_loopback()) {
                true => "; loopback addresses need agents with --loopback-endpoints",
                false => "",
            };
            format!("Service {service}, {port}, weight {weight}: {count} ready{loopback}")
        })
    }

    /// Returns a line for each reason why the Route is not, or not wholly, served.
    pub(super) fn fault_lines(&self) -> impl Iterator<Item = String> {
        self.faults.iter().map(|BackendFault { reason, message }| format!("{reason}: {message}"))
    }
}

/// Returns the Services of a Route's targets, and their EndpointSlices.
async fn objects(access: &Access, route: &Route) -> Result<(Vec<Arc<Service>>, Vec<Arc<EndpointSlice>>), kube::Error> {
    let namespace = route.metadata.namespace.as_deref().unwrap_or_default();
    let services: Api<Service> = Api::namespaced(access.client.clone(), namespace);
    let slices: Api<EndpointSlice> = Api::namespaced(access.client.clone(), namespace);
    let (mut found, mut of_services) = (Vec::new(), Vec::new());
    let targets = route.spec.to.iter().chain(&route.spec.alternate_backends);
    let names: BTreeSet<&str> =
        targets.map(|target| target.name.as_str()).filter(|name| is_service_name(name)).collect();
    for name in names {
        let Some(service) = services.get_opt(name).await? else { continue };
        found.push(Arc::new(service));
        let parameters = ListParams::default().labels(&format!("{SERVICE_LABEL}={name}"));
        super::access::each(&slices, parameters, |slice| of_services.push(Arc::new(slice))).await?;
    }
    Ok((found, of_services))
}

/// Returns whether a Service can have this name. A Route can name any text.
fn is_service_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= SERVICE_NAME_BYTES_MAX && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::objects::object;
    use serde_json::{Value, json};
    use signpost_agent::resolve::Reason;
    use signpost_control::observe::resolved_refs::{BackendState, verdict};
    use signpost_control::world::backend::{RouteTargets, ServiceInfo, SliceInfo};

    #[test]
    fn lines() {
        let spec = json!({"to": {"name": "shop", "weight": 3}, "alternateBackends": [{"name": "none"}], "port": {"targetPort": 80}});
        let route: Route = object("Route", json!({"namespace": "web", "name": "shop"}), spec, Value::Null);
        let service = json!({"metadata": {"namespace": "web", "name": "shop"}, "spec": {"ports": [{"port": 80}]}});
        let slice = json!({"addressType": "IPv4", "metadata": {"namespace": "web", "name": "shop-1", "labels": {SERVICE_LABEL: "shop"}},
            "endpoints": [{"addresses": ["127.0.0.1"]}], "ports": [{"port": 80}]});
        let services = [Arc::new(serde_json::from_value(service).expect("a Service"))];
        let slices = [Arc::new(serde_json::from_value(slice).expect("an EndpointSlice"))];
        let backends = Backends::new(&route, &services, &slices, BTreeSet::new());
        let expected = [
            "Service shop, port 80, weight 3: 1 endpoint ready; loopback addresses need agents with --loopback-endpoints",
            "Service none, port 80, weight 100: 0 endpoints ready",
        ];
        assert_eq!(backends.target_lines().collect::<Vec<_>>(), expected);
        assert_eq!(backends.fault_lines().collect::<Vec<_>>(), ["NoService: Service none does not exist"]);
        // The endpoint is an instance of a Router.
        let listeners = BTreeSet::from([(IpAddr::from([127, 0, 0, 1]), 80)]);
        let backends = Backends::new(&route, &services, &slices, listeners);
        let faults: Vec<String> = backends.fault_lines().collect();
        let refused = "RefusedEndpoint: endpoint 127.0.0.1:80 of Service shop is a listener of the platform, and gets no requests";
        assert!(faults.iter().any(|fault| fault == refused), "{faults:?}");
    }

    #[test]
    fn names_of_services() {
        for (name, expected) in [("web-1", true), ("a/status", false), ("..", false), (&"a".repeat(64), false)] {
            assert_eq!(is_service_name(name), expected, "{name}");
        }
    }

    /// The condition `ResolvedRefs` agrees with the agents, over all combinations of a Service, its slices, and the port of a Route.
    #[test]
    fn conditions_agree_with_agents() {
        let refused = Refused { loopback: true, networks: Vec::new(), listeners: BTreeSet::new() };
        let (mut serving, mut combinations) = (0, 0);
        for service in services() {
            for slices in 0..1 << slices().len() {
                let chosen = slices_of(slices);
                for port in [json!(null), json!(80), json!(8080), json!(81), json!("http"), json!("admin")] {
                    let port = if port.is_null() { json!(null) } else { json!({"targetPort": port}) };
                    let spec = json!({"to": {"name": "shop"}, "port": port});
                    let route: Route = object("Route", json!({"namespace": "web", "name": "shop"}), spec, Value::Null);
                    let services: Vec<_> = service.iter().cloned().map(Arc::new).collect();
                    let (found, faults) = resolve::destinations(&route, &services, &chosen, refused.clone());
                    let is_serving = found.iter().any(|destination| !destination.endpoints.is_empty());
                    let has = |reason: Reason| faults.iter().any(|(fault, _)| *fault == reason);
                    let expected = match is_serving {
                        true => "ResolvedRefs",
                        false if has(Reason::NoService) => "BackendNotFound",
                        false if has(Reason::Unsupported) => "InvalidKind",
                        false if has(Reason::NoPort) => "InvalidPort",
                        false => "NoReadyEndpoints",
                    };
                    let info = service.clone().map(ServiceInfo::from);
                    let slices: Vec<_> =
                        chosen.iter().map(|slice| SliceInfo::from(EndpointSlice::clone(slice))).collect();
                    let targets = RouteTargets::of(&route.spec);
                    let state = BackendState::new(info.as_ref(), slices.iter(), targets.port.as_ref());
                    let verdict = verdict(&targets, |_| state);
                    assert_eq!(verdict.update.reason, expected, "{:?} {services:?} {chosen:?} {faults:?}", route.spec);
                    assert_eq!(verdict.update.is_true(), is_serving);
                    serving += usize::from(is_serving);
                    combinations += 1;
                }
            }
        }
        assert!(serving > 100 && combinations > 2 * serving, "{serving} of {combinations}");
    }

    fn services() -> Vec<Option<Service>> {
        let service = |spec: Value| {
            let service = json!({"metadata": {"namespace": "web", "name": "shop"}, "spec": spec});
            Some(serde_json::from_value(service).expect("a Service"))
        };
        let http = || json!({"name": "http", "port": 80, "targetPort": 8080});
        vec![
            None,
            service(json!({"type": "ExternalName", "externalName": "shop.example", "ports": [http()]})),
            service(json!({})),
            service(json!({"ports": [{"port": 80}]})),
            service(json!({"ports": [{"name": "dns", "port": 81, "protocol": "UDP"}, http()]})),
            service(json!({"ports": [{"name": "admin", "port": 81}, http()]})),
        ]
    }

    fn slices() -> Vec<Value> {
        let (http, admin) = (json!({"name": "http", "port": 8080}), json!({"name": "admin", "port": 8081}));
        let endpoint = |conditions: Value| json!([{"addresses": ["192.0.2.1"], "conditions": conditions}]);
        vec![
            json!({"endpoints": endpoint(json!({})), "ports": [http]}),
            json!({"endpoints": endpoint(json!({"ready": false})), "ports": [admin, http]}),
            json!({"endpoints": endpoint(json!({"ready": false, "serving": true, "terminating": true})), "ports": [{"port": 80}]}),
            json!({"endpoints": endpoint(json!({})), "ports": [{"name": "dns", "port": 81, "protocol": "UDP"}]}),
            json!({"endpoints": [{"addresses": ["shop.example"]}], "ports": [admin]}),
            json!({"endpoints": [], "ports": null}),
        ]
    }

    /// Returns the slices with these bits.
    fn slices_of(bits: usize) -> Vec<Arc<EndpointSlice>> {
        let slices = slices().into_iter().enumerate().filter(|(at, _)| bits & 1 << at != 0);
        let slices = slices.map(|(at, mut slice)| {
            slice["addressType"] = json!("IPv4");
            slice["metadata"] =
                json!({"namespace": "web", "name": format!("shop-{at}"), "labels": {SERVICE_LABEL: "shop"}});
            Arc::new(serde_json::from_value(slice).expect("an EndpointSlice"))
        });
        slices.collect()
    }
}
