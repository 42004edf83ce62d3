//! The rules that lead from a Route to the ports and endpoints of its Services. Agents configure proxies by them, and the control plane
//! reports by them.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::v1alpha1::route::RouteSpec;

/// The label of an EndpointSlice with the name of its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The kind of a target that gets requests.
pub const SERVICE_KIND: &str = "Service";

/// The port of a Route: `spec.port.targetPort`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RoutePortRef {
    /// A port of the endpoints, or a port of the Service if no endpoint has the number.
    Number(i32),
    /// The name of a port in the Service and its endpoints.
    Name(Box<str>),
}

impl RoutePortRef {
    /// Returns the port of a Route; `None`: the first TCP port of the Service.
    pub fn of(spec: &RouteSpec) -> Option<RoutePortRef> {
        spec.port.as_ref().map(|port| match &port.target_port {
            IntOrString::Int(number) => RoutePortRef::Number(*number),
            IntOrString::String(name) => RoutePortRef::Name(name.as_str().into()),
        })
    }
}

impl fmt::Display for RoutePortRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoutePortRef::Number(number) => write!(formatter, "{number}"),
            RoutePortRef::Name(name) => formatter.write_str(name),
        }
    }
}

/// A TCP port of a Service or of an EndpointSlice. The ports of a Service and of its slices have the same names; a single one may have
/// an empty name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpPort {
    /// The name; empty if it has none.
    pub name: Box<str>,
    /// The number; never 0.
    pub number: u16,
}

impl TcpPort {
    fn new(name: Option<&String>, protocol: Option<&String>, number: Option<i32>) -> Option<TcpPort> {
        let is_tcp = protocol.is_none_or(|protocol| protocol == "TCP");
        let number = number.and_then(|number| u16::try_from(number).ok()).filter(|number| *number > 0 && is_tcp)?;
        Some(TcpPort { name: name.map_or("", String::as_str).into(), number })
    }
}

/// Returns the TCP ports of a Service, in its order.
pub fn service_ports(service: &Service) -> Box<[TcpPort]> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports.filter_map(|port| TcpPort::new(port.name.as_ref(), port.protocol.as_ref(), Some(port.port))).collect()
}

/// Returns the TCP ports of an EndpointSlice, in its order.
pub fn slice_ports(slice: &EndpointSlice) -> Box<[TcpPort]> {
    let ports = slice.ports.iter().flatten();
    ports.filter_map(|port| TcpPort::new(port.name.as_ref(), port.protocol.as_ref(), port.port)).collect()
}

/// Returns whether a Service has the type ExternalName, which gets no requests: with it, a tenant could make a router connect to hosts
/// that only the router can reach.
pub fn is_external_name(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("ExternalName")
}

/// Returns whether a slice has endpoints, ready or not. Kubernetes keeps a slice without endpoints and ports for a Service that selects no
/// pod: it does not show which ports the Service has.
pub fn has_endpoints(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().flatten().next().is_some()
}

/// Returns whether an endpoint is ready (`true`), or still serves while it ends (`false`). The others get no requests, and those that end
/// only if no endpoint of the Service is ready.
pub fn is_ready(endpoint: &Endpoint) -> Option<bool> {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let ending = conditions.terminating.unwrap_or(false);
    match conditions.ready.unwrap_or(true) && !ending {
        true => Some(true),
        false => (ending && conditions.serving.unwrap_or(false)).then_some(false),
    }
}

/// Returns the ports of a slice that a Route means.
pub fn route_ports(of_slice: &[TcpPort], wanted: Option<&RoutePortRef>, of_service: &[TcpPort]) -> BTreeSet<u16> {
    let named = |name: &str| -> BTreeSet<u16> {
        of_slice.iter().filter(|port| *port.name == *name).map(|port| port.number).collect()
    };
    match wanted {
        None => {
            let first = of_service.first().map(|port| named(&port.name)).unwrap_or_default();
            match first.is_empty() && of_service.len() < 2 {
                // A slice that was written by hand, or a Service without ports.
                true => of_slice.first().map(|port| port.number).into_iter().collect(),
                false => first,
            }
        }
        Some(RoutePortRef::Number(wanted)) => {
            let is_wanted = |port: &&TcpPort| i32::from(port.number) == *wanted;
            match of_slice.iter().find(is_wanted) {
                Some(port) => BTreeSet::from([port.number]),
                None => of_service.iter().find(is_wanted).map(|port| named(&port.name)).unwrap_or_default(),
            }
        }
        Some(RoutePortRef::Name(name)) => named(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ports(ports: &[(&str, u16)]) -> Box<[TcpPort]> {
        ports.iter().map(|(name, number)| TcpPort { name: (*name).into(), number: *number }).collect()
    }

    #[test]
    fn the_ports_that_a_route_means() {
        let number = |number| Some(RoutePortRef::Number(number));
        let name = |name: &str| Some(RoutePortRef::Name(name.into()));
        let (web, api) = (("web", 80), ("api", 81));
        let slice = [("web", 8080), ("api", 8081)];
        for (what, wanted, service, of_slice, expected) in [
            ("the first of the Service", None, &[api, web][..], &slice[..], &[8081][..]),
            ("a slice by hand", None, &[("", 80)], &[("http", 9000)], &[9000]),
            ("a Service without ports", None, &[], &slice, &[8080]),
            ("the first of several is missing", None, &[("old", 79), web], &slice, &[]),
            ("of the endpoints", number(8081), &[web, api], &slice, &[8081]),
            ("of the Service", number(81), &[web, api], &slice, &[8081]),
            ("of the endpoints first", number(80), &[("api", 80)], &[("web", 80), ("api", 81)], &[80]),
            ("of none", number(82), &[web, api], &slice, &[]),
            ("by name", name("api"), &[web, api], &slice, &[8081]),
            ("no such name", name("admin"), &[web, api], &slice, &[]),
            ("several numbers", name("web"), &[web], &[("web", 1), ("web", 2)], &[1, 2]),
            ("no port", number(80), &[web], &[], &[]),
        ] {
            let found = route_ports(&ports(of_slice), wanted.as_ref(), &ports(service));
            assert_eq!(found, expected.iter().copied().collect(), "{what}");
        }
    }

    #[test]
    fn ports_that_are_not_tcp_or_have_no_number_are_left_out() {
        let list = json!([{"port": 53, "protocol": "UDP"}, {"port": 0}, {"name": "a", "port": 65535}, {"name": "b", "port": 80, "protocol": "TCP"}]);
        let expected = ports(&[("a", 65535), ("b", 80)]);
        let service = json!({"spec": {"ports": list}});
        assert_eq!(service_ports(&serde_json::from_value(service).expect("a Service")), expected);
        let slice = json!({"addressType": "IPv4", "endpoints": [], "ports": list});
        let slice = serde_json::from_value(slice).expect("an EndpointSlice");
        assert_eq!((slice_ports(&slice), has_endpoints(&slice)), (expected, false));
    }

    #[test]
    fn readiness() {
        for (conditions, expected) in [
            (Value::Null, Some(true)),
            (json!({"ready": true}), Some(true)),
            (json!({"ready": false}), None),
            (json!({"ready": false, "serving": true}), None),
            (json!({"ready": false, "serving": true, "terminating": true}), Some(false)),
            // As for a Service that publishes addresses that are not ready.
            (json!({"ready": true, "serving": true, "terminating": true}), Some(false)),
            (json!({"ready": false, "serving": false, "terminating": true}), None),
        ] {
            let endpoint = json!({"addresses": ["192.0.2.1"], "conditions": conditions});
            let endpoint: Endpoint = serde_json::from_value(endpoint).expect("an endpoint");
            assert_eq!(is_ready(&endpoint), expected, "{conditions}");
        }
    }
}
