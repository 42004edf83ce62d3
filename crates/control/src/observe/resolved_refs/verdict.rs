//! The condition `ResolvedRefs` of a Route that follows from its targets. Pure.
//!
//! It agrees with what the agents do ([`signpost_types::backends`]): a target without endpoints gets no requests, and the others get its
//! share, so requests fail only if no target has endpoints. A target that is wrong in the Route (a missing Service, a wrong port or kind)
//! is reported in any case, as in Gateway API.
//!
//! It does not judge the addresses of endpoints: which of them an agent refuses depends on the settings of that agent.

use std::borrow::Borrow;

use crate::world::backend::{RouteTargets, ServiceInfo, SliceInfo, TargetInfo};
use crate::world::condition::{ConditionUpdate, Status};
use signpost_types::backends::{RoutePortRef, route_ports};
use signpost_types::v1alpha1::route::RESOLVED_REFS;

/// The state of a Service and port, as a Route uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendState {
    /// Endpoints get requests.
    Serving,
    /// The Service does not exist.
    NotFound,
    /// The Service has the type ExternalName.
    ExternalName,
    /// There are endpoints, and none has the port.
    NoPort,
    /// No endpoint is ready.
    NoReadyEndpoints,
}

impl BackendState {
    /// Returns the state of a Service with these EndpointSlices and the port of a Route.
    pub fn new<S: Borrow<SliceInfo>>(
        service: Option<&ServiceInfo>,
        slices: impl Iterator<Item = S>,
        port: Option<&RoutePortRef>,
    ) -> BackendState {
        let Some(service) = service else { return BackendState::NotFound };
        if service.is_external_name {
            return BackendState::ExternalName;
        }
        let (mut has_endpoints, mut has_port) = (false, port.is_none());
        for slice in slices {
            let slice: &SliceInfo = slice.borrow();
            has_endpoints |= slice.has_endpoints;
            if !route_ports(&slice.ports, port, &service.ports).is_empty() {
                if slice.is_serving {
                    return BackendState::Serving;
                }
                has_port = true;
            }
        }
        if has_endpoints && !has_port { BackendState::NoPort } else { BackendState::NoReadyEndpoints }
    }
}

/// The condition of a Route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefsState {
    pub update: ConditionUpdate,
    /// Whether every target gets its share of the requests.
    pub is_whole: bool,
}

/// The reasons, the first for the worst fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    BackendNotFound,
    InvalidKind,
    InvalidPort,
    NoReadyEndpoints,
}

impl Reason {
    const ALL: [Reason; 4] =
        [Reason::BackendNotFound, Reason::InvalidKind, Reason::InvalidPort, Reason::NoReadyEndpoints];

    fn text(self) -> &'static str {
        match self {
            Reason::BackendNotFound => "BackendNotFound",
            Reason::InvalidKind => "InvalidKind",
            Reason::InvalidPort => "InvalidPort",
            Reason::NoReadyEndpoints => "NoReadyEndpoints",
        }
    }
}

/// Returns the reasons of a condition that is False.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    Reason::ALL.into_iter().map(Reason::text)
}

/// Returns the condition of a Route with these targets. `state` returns the state of a Service.
pub fn verdict(targets: &RouteTargets, mut state: impl FnMut(&str) -> BackendState) -> RefsState {
    let (mut faults, mut is_serving) = (Vec::new(), false);
    for target in &targets.targets {
        let state = target.other_kind.is_none().then(|| state(&target.name));
        is_serving |= target.has_weight && state == Some(BackendState::Serving);
        faults.extend(fault(target, state, targets.port.as_ref()));
    }
    if targets.targets.is_empty() {
        faults.push((Reason::BackendNotFound, "the Route has no target; set spec.to".to_owned()));
    } else if !targets.targets.iter().any(|target| target.has_weight) {
        faults.push((Reason::NoReadyEndpoints, "no target has a weight above 0".to_owned()));
    }
    let worst = faults.iter().map(|(reason, _)| *reason).min();
    let mut message = faults.into_iter().map(|(_, message)| message).collect::<Vec<_>>().join("; ");
    let (status, reason) = match worst {
        Some(reason) if !is_serving || reason < Reason::NoReadyEndpoints => (Status::False, reason.text()),
        _ => (Status::True, "ResolvedRefs"),
    };
    message += match (worst, is_serving) {
        (None, _) => "the Services and ports exist, and endpoints are ready",
        (Some(_), true) => "; the other targets get all requests",
        (Some(_), false) => "; all requests get a 503",
    };
    RefsState { update: ConditionUpdate { kind: RESOLVED_REFS, status, reason, message }, is_whole: worst.is_none() }
}

/// Returns the fault of a target in this state; `None`: it is not a Service.
fn fault(target: &TargetInfo, state: Option<BackendState>, port: Option<&RoutePortRef>) -> Option<(Reason, String)> {
    let name = &target.name;
    match state {
        None => {
            let kind = target.other_kind.as_deref().unwrap_or_default();
            Some((Reason::InvalidKind, format!("target {name} has kind {kind}, which is not supported")))
        }
        Some(BackendState::Serving) => None,
        Some(BackendState::NotFound) => Some((Reason::BackendNotFound, format!("Service {name} does not exist"))),
        Some(BackendState::ExternalName) => {
            let message = format!("Service {name} has type ExternalName, which is not supported");
            Some((Reason::InvalidKind, message))
        }
        Some(BackendState::NoPort) => {
            let port = port.map(RoutePortRef::to_string).unwrap_or_default();
            Some((Reason::InvalidPort, format!("Service {name} has no endpoints with port {port}")))
        }
        // It would get no requests anyway.
        Some(BackendState::NoReadyEndpoints) if !target.has_weight => None,
        Some(BackendState::NoReadyEndpoints) => {
            Some((Reason::NoReadyEndpoints, format!("Service {name} has no ready endpoint")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Service;
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use serde_json::{Value, json};
    use signpost_types::v1alpha1::route::RouteSpec;

    fn targets(spec: Value) -> RouteTargets {
        RouteTargets::of(&serde_json::from_value::<RouteSpec>(spec).expect("a spec"))
    }

    #[test]
    fn what_a_service_and_port_are() {
        let service = |spec: Value| {
            let service = json!({"metadata": {"name": "shop"}, "spec": spec});
            ServiceInfo::from(serde_json::from_value::<Service>(service).expect("a Service"))
        };
        let slice = |endpoints: Value, ports: Value| {
            let labels = json!({"kubernetes.io/service-name": "shop"});
            let slice = json!({"addressType": "IPv4", "metadata": {"name": "shop-1", "labels": labels},
                "endpoints": endpoints, "ports": ports});
            SliceInfo::from(serde_json::from_value::<EndpointSlice>(slice).expect("an EndpointSlice"))
        };
        let ready = || json!([{"addresses": ["192.0.2.1"]}]);
        let unready = || json!([{"addresses": ["192.0.2.1"], "conditions": {"ready": false}}]);
        let ports = || json!([{"name": "http", "port": 8080}]);
        let shop = service(json!({"ports": [{"name": "http", "port": 80}]}));
        let (number, name) =
            (|number| Some(RoutePortRef::Number(number)), |name: &str| RoutePortRef::Name(name.into()));
        for (slices, port, expected) in [
            (vec![], None, BackendState::NoReadyEndpoints),
            (vec![], number(1), BackendState::NoReadyEndpoints),
            (vec![slice(ready(), ports())], None, BackendState::Serving),
            (vec![slice(ready(), ports())], number(80), BackendState::Serving),
            (vec![slice(ready(), ports())], number(8080), BackendState::Serving),
            (vec![slice(ready(), ports())], Some(name("http")), BackendState::Serving),
            (vec![slice(ready(), ports())], number(81), BackendState::NoPort),
            (vec![slice(ready(), ports())], Some(name("admin")), BackendState::NoPort),
            (vec![slice(unready(), ports())], number(80), BackendState::NoReadyEndpoints),
            (vec![slice(unready(), ports())], number(81), BackendState::NoPort),
            (vec![slice(unready(), ports()), slice(ready(), ports())], number(80), BackendState::Serving),
            // The slice with the port is not ready, and the other one has another port.
            (
                vec![slice(unready(), ports()), slice(ready(), json!([{"name": "old", "port": 1}]))],
                number(80),
                BackendState::NoReadyEndpoints,
            ),
            // As Kubernetes has it for a Service without pods.
            (vec![slice(json!([]), Value::Null)], number(80), BackendState::NoReadyEndpoints),
            (vec![slice(json!([]), Value::Null)], number(81), BackendState::NoReadyEndpoints),
        ] {
            let found = BackendState::new(Some(&shop), slices.iter(), port.as_ref());
            assert_eq!(found, expected, "{slices:?} {port:?}");
        }
        let external = service(json!({"type": "ExternalName", "externalName": "shop.example"}));
        let slices = [slice(ready(), ports())];
        assert_eq!(BackendState::new(Some(&external), slices.iter(), None), BackendState::ExternalName);
        assert_eq!(BackendState::new(None, slices.iter(), None), BackendState::NotFound);
    }

    /// Returns the state of a Service that is named after it.
    fn state_of(name: &str) -> BackendState {
        match name {
            "good" | "fine" => BackendState::Serving,
            "gone" => BackendState::NotFound,
            "external" => BackendState::ExternalName,
            "wrong" => BackendState::NoPort,
            "idle" => BackendState::NoReadyEndpoints,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn what_targets_come_to() {
        let port = || json!({"targetPort": "http"});
        let two = |first: &str, second: &str, weight: u32| json!({"to": {"name": first}, "alternateBackends": [{"name": second, "weight": weight}], "port": port()});
        let good = "True ResolvedRefs the Services and ports exist, and endpoints are ready";
        for (spec, is_whole, expected) in [
            (json!({"to": {"name": "good"}}), true, good),
            (two("good", "fine", 1), true, good),
            (json!({}), false, "False BackendNotFound the Route has no target; set spec.to; all requests get a 503"),
            (
                json!({"to": {"name": "gone"}}),
                false,
                "False BackendNotFound Service gone does not exist; all requests get a 503",
            ),
            (
                json!({"to": {"name": "external"}}),
                false,
                "False InvalidKind Service external has type ExternalName, which is not supported; all requests get a 503",
            ),
            (
                json!({"to": {"kind": "Pod", "name": "good"}}),
                false,
                "False InvalidKind target good has kind Pod, which is not supported; all requests get a 503",
            ),
            (
                json!({"to": {"name": "wrong"}, "port": port()}),
                false,
                "False InvalidPort Service wrong has no endpoints with port http; all requests get a 503",
            ),
            (
                json!({"to": {"name": "idle"}}),
                false,
                "False NoReadyEndpoints Service idle has no ready endpoint; all requests get a 503",
            ),
            (
                two("idle", "gone", 1),
                false,
                "False BackendNotFound Service idle has no ready endpoint; Service gone does not exist; all requests get a 503",
            ),
            // Requests succeed, but not as the Route specifies.
            (
                two("good", "gone", 1),
                false,
                "False BackendNotFound Service gone does not exist; the other targets get all requests",
            ),
            (
                two("good", "wrong", 0),
                false,
                "False InvalidPort Service wrong has no endpoints with port http; the other targets get all requests",
            ),
            (
                two("good", "idle", 1),
                false,
                "True ResolvedRefs Service idle has no ready endpoint; the other targets get all requests",
            ),
            // The weight 0 gets no requests.
            (two("good", "idle", 0), true, good),
            (
                two("idle", "good", 0),
                false,
                "False NoReadyEndpoints Service idle has no ready endpoint; all requests get a 503",
            ),
            (
                json!({"to": {"name": "good", "weight": 0}}),
                false,
                "False NoReadyEndpoints no target has a weight above 0; all requests get a 503",
            ),
        ] {
            let found = verdict(&targets(spec.clone()), state_of);
            let ConditionUpdate { status, reason, message, .. } = &found.update;
            assert_eq!(format!("{} {reason} {message}", status.text()), expected, "{spec}");
            assert_eq!(found.is_whole, is_whole, "{spec}");
        }
    }
}
