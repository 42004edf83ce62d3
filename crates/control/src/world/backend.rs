//! Services and EndpointSlices, as far as Routes depend on them: a cluster can have 100,000 of each.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use signpost_types::backends::{
    RoutePortRef, SERVICE_KIND, SERVICE_LABEL, TcpPort, has_endpoints, is_external_name, is_ready, service_ports,
    slice_ports,
};
use signpost_types::v1alpha1::route::{RouteSpec, Target, WEIGHT_DEFAULT};

/// A Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceInfo {
    /// Whether it has the type ExternalName.
    pub is_external_name: bool,
    pub ports: Box<[TcpPort]>,
}

impl From<Service> for ServiceInfo {
    fn from(service: Service) -> Self {
        ServiceInfo { is_external_name: is_external_name(&service), ports: service_ports(&service) }
    }
}

/// An EndpointSlice. All of its endpoints have the same ports, so one that gets requests is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceInfo {
    /// The name of its Service; empty if it has none.
    pub service: Box<str>,
    pub ports: Box<[TcpPort]>,
    /// Whether it has endpoints, ready or not.
    pub has_endpoints: bool,
    /// Whether one of them gets requests.
    pub is_serving: bool,
}

impl From<EndpointSlice> for SliceInfo {
    fn from(slice: EndpointSlice) -> Self {
        let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
        let is_serving = slice.endpoints.iter().flatten().any(|endpoint| {
            let is_address = endpoint.addresses.first().is_some_and(|address| address.parse::<IpAddr>().is_ok());
            is_address && is_ready(endpoint).is_some()
        });
        SliceInfo {
            service: service.map_or("", String::as_str).into(),
            ports: slice_ports(&slice),
            has_endpoints: has_endpoints(&slice),
            is_serving,
        }
    }
}

/// The targets of a Route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteTargets {
    pub targets: Box<[TargetInfo]>,
    /// The port; `None`: the first TCP port of each Service.
    pub port: Option<RoutePortRef>,
}

/// A target of a Route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetInfo {
    pub name: Box<str>,
    /// The kind, if that is not Service.
    pub other_kind: Option<Box<str>>,
    /// Whether its weight is above 0.
    pub has_weight: bool,
}

impl RouteTargets {
    pub fn of(spec: &RouteSpec) -> RouteTargets {
        let target = |target: &Target| TargetInfo {
            name: target.name.as_str().into(),
            other_kind: (target.kind != SERVICE_KIND).then(|| target.kind.as_str().into()),
            has_weight: target.weight.unwrap_or(WEIGHT_DEFAULT) > 0,
        };
        let targets = spec.to.iter().chain(&spec.alternate_backends).map(target).collect();
        RouteTargets { targets, port: RoutePortRef::of(spec) }
    }

    /// Returns the names of the Services.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().filter(|target| target.other_kind.is_none()).map(|target| &*target.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_is_kept_of_a_slice() {
        for (endpoints, has_endpoints, is_serving) in [
            (Value::Null, false, false),
            (json!([]), false, false),
            (json!([{"addresses": ["192.0.2.1"]}]), true, true),
            (json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}]), true, false),
            (
                json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}, {"addresses": ["192.0.2.2"]}]),
                true,
                true,
            ),
            (
                json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": false, "serving": true, "terminating": true}}]),
                true,
                true,
            ),
            (json!([{"addresses": ["shop.example"]}]), true, false),
        ] {
            let slice = json!({"addressType": "IPv4", "metadata": {"name": "shop-1", "labels": {SERVICE_LABEL: "shop"}},
                "endpoints": endpoints, "ports": [{"port": 80}]});
            let info = SliceInfo::from(serde_json::from_value::<EndpointSlice>(slice).expect("an EndpointSlice"));
            assert_eq!((info.has_endpoints, info.is_serving), (has_endpoints, is_serving), "{endpoints}");
            assert_eq!((&*info.service, info.ports.len()), ("shop", 1));
        }
    }
}
