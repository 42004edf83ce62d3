//! Service of Kubernetes (v1): the ports of an application, and the name that Routes refer to. Plain data: the server allocates
//! nothing for it, and its EndpointSlices contain the endpoints.
//!
//! Defaults and validation match kube-apiserver where clients that read a Service depend on them.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use signpost_apiserver::cause::Cause;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::columns::{BUILT_IN_AGE, Cell, Column};
use signpost_apiserver::kind::{Aliases, Kind};
use signpost_apiserver::registry::labels::{check_label, check_labels, check_subdomain};
use signpost_apiserver::registry::{Context, Hooks};

pub static SERVICE: LazyLock<Kind> = LazyLock::new(|| {
    let keys = json!(["port", "protocol"]);
    let atomic = || json!({"x-kubernetes-list-type": "atomic"});
    let port = |minimum: u16| json!({"minimum": minimum, "maximum": u16::MAX});
    let policy = || json!({"enum": ["Cluster", "Local"]});
    let kind = Kind::built_in::<k8s_openapi::api::core::v1::Service>([
        (
            "spec.type",
            json!({"default": "ClusterIP", "enum": ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]}),
        ),
        ("spec.sessionAffinity", json!({"default": "None", "enum": ["ClientIP", "None"]})),
        ("spec.internalTrafficPolicy", policy()),
        ("spec.externalTrafficPolicy", policy()),
        ("spec.ports", json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys})),
        ("spec.ports[].port", port(1)),
        ("spec.ports[].nodePort", port(0)),
        ("spec.ports[].protocol", json!({"default": "TCP", "enum": ["SCTP", "TCP", "UDP"]})),
        ("spec.selector", json!({"x-kubernetes-map-type": "atomic"})),
        ("spec.clusterIPs", atomic()),
        ("spec.ipFamilies", atomic()),
        ("spec.externalIPs", atomic()),
        ("spec.loadBalancerSourceRanges", atomic()),
        ("status.loadBalancer.ingress", atomic()),
        ("status.conditions", json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]})),
    ]);
    Kind {
        aliases: Aliases { short_names: &["svc"], categories: &["all"], ..kind.aliases },
        has_status: true,
        ..kind.with_columns(COLUMNS).selectable_by(&["spec.clusterIP", "spec.type"])
    }
});

const COLUMNS: &[Column] = &[
    Column::new("Type", &["spec.type"], "Exposure of the Service."),
    Column::new("Cluster-IP", &["spec.clusterIP"], "The address in the cluster, if set.")
        .with_cell(|read, _| or_none(read[0].text().unwrap_or_default())),
    Column::new(
        "External-IP",
        &["spec.type", "spec.externalName", "spec.externalIPs", "status.loadBalancer.ingress"],
        "Addresses outside the cluster.",
    )
    .with_cell(external),
    Column::new("Port(s)", &["spec.ports"], "Ports, with node ports and protocols.").with_cell(|read, _| {
        let port = |port: Json<'_>| {
            let [port, node_port, protocol] = port.get(["port", "nodePort", "protocol"]);
            let node_port = node_port.number().filter(|node_port| *node_port > 0);
            let node_port = node_port.map(|node_port| format!(":{node_port}")).unwrap_or_default();
            format!("{}{node_port}/{}", port.number().unwrap_or_default(), protocol.text().unwrap_or_default())
        };
        or_none(read[0].items().map(port).collect::<Vec<_>>().join(","))
    }),
    BUILT_IN_AGE,
    Column::new("Selector", &["spec.selector"], "Labels of the pods, if set.")
        .with_cell(|read, _| {
            let label = |(key, value): (String, Json<'_>)| format!("{key}={}", value.text().unwrap_or_default());
            or_none(read[0].members().map(label).collect::<Vec<_>>().join(","))
        })
        .wide(),
];

fn or_none<'a>(text: impl Into<std::borrow::Cow<'a, str>>) -> Cell<'a> {
    match text.into() {
        text if text.is_empty() => Cell::text("<none>"),
        text => Cell::Text(text),
    }
}

/// Returns the external addresses of a Service, as kubectl shows them for its type.
fn external<'a>(read: &[Json<'a>], _now: i64) -> Cell<'a> {
    let [kind, name, addresses, ingress] = [read[0], read[1], read[2], read[3]];
    if kind.is("ExternalName") {
        return Cell::As(name);
    }
    let ingress = ingress.items().filter(|_| kind.is("LoadBalancer")).filter_map(|one| {
        let [ip, hostname] = one.get(["ip", "hostname"]);
        ip.text().or(hostname.text())
    });
    let all: Vec<_> = ingress.chain(addresses.items().filter_map(Json::text)).collect();
    match all.is_empty() && kind.is("LoadBalancer") {
        true => Cell::text("<pending>"),
        false => or_none(all.join(",")),
    }
}

pub(super) struct Services;

impl Hooks for Services {
    /// Sets the defaults that depend on other fields.
    fn prepare(&self, _context: &Context<'_>, _old: Option<&Value>, new: &mut Value) {
        let Some(service) = new.as_object_mut() else { return };
        let Some(spec) = service.entry("spec").or_insert_with(|| json!({})).as_object_mut() else { return };
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let is_unset = |target: &Value| target.is_null() || *target == 0 || *target == "";
            if is_unset(&port["targetPort"])
                && let Some(fields) = port.as_object_mut()
                && let Some(number) = fields.get("port").cloned()
            {
                fields.insert("targetPort".to_owned(), number);
            }
        }
        let kind = spec.get("type").and_then(Value::as_str).unwrap_or("ClusterIP");
        let (is_inside, is_outside) = (kind != "ExternalName", matches!(kind, "NodePort" | "LoadBalancer"));
        for (name, is_used) in [("internalTrafficPolicy", is_inside), ("externalTrafficPolicy", is_outside)] {
            if is_used {
                spec.entry(name).or_insert_with(|| json!("Cluster"));
            }
        }
        first_cluster_ip(spec);
    }

    fn validate(&self, _context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        let name = &new["metadata"]["name"];
        let fault = name_fault(name.as_str().unwrap_or_default()).filter(|_| old.is_none());
        causes.extend(fault.map(|what| Cause::invalid("metadata.name", name, what)));
        causes.extend(faults(&new["spec"]));
        causes
    }
}

/// Returns the reason why the name of an object is not that of a Service, a label that begins with a letter (RFC 1035 §2.3.1).
fn name_fault(name: &str) -> Option<&'static str> {
    let is_label = check_label(name).is_none() && !name.starts_with(|first: char| first.is_ascii_digit());
    (check_subdomain(name).is_none() && !is_label).then_some(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end \
         with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
         '[a-z]([-a-z0-9]*[a-z0-9])?')",
    )
}

/// Makes the first of `clusterIPs` equal to `clusterIP`, which older clients set alone.
fn first_cluster_ip(spec: &mut Map<String, Value>) {
    match spec.get("clusterIP").filter(|ip| ip.as_str().is_some_and(|ip| !ip.is_empty())).cloned() {
        None => {
            spec.remove("clusterIPs");
        }
        Some(ip) => match spec.entry("clusterIPs").or_insert_with(|| json!([])) {
            Value::Array(all) if all.is_empty() => all.push(ip),
            Value::Array(all) => all[0] = ip,
            _ => {}
        },
    }
}

fn faults(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let ports = spec["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let is_external = spec["type"] == "ExternalName";
    if ports.is_empty() && !is_external && spec["clusterIP"] != "None" {
        causes.push(Cause::required("spec.ports", ""));
    }
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{index}]");
        causes.extend(target_port_fault(&format!("{path}.targetPort"), &port["targetPort"]));
        let (path, name) = (format!("{path}.name"), port["name"].as_str().unwrap_or_default());
        if name.is_empty() {
            causes.extend((ports.len() > 1).then(|| Cause::required(path, "")));
        } else if let Some(what) = check_label(name) {
            causes.push(Cause::invalid(path, &port["name"], &what));
        } else if !names.insert(name) {
            causes.push(Cause::duplicate(path, &port["name"]));
        }
    }
    let ips = ["clusterIPs", "externalIPs"].into_iter().flat_map(|field| {
        let ips = spec[field].as_array().into_iter().flatten().enumerate();
        ips.filter(move |(_, ip)| field != "clusterIPs" || **ip != "None")
            .map(move |(index, ip)| (format!("spec.{field}[{index}]"), ip))
    });
    for (path, ip) in ips {
        if ip.as_str().is_some_and(|ip| ip.parse::<IpAddr>().is_err()) {
            causes.push(Cause::invalid(path, ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        }
    }
    let external_name = spec["externalName"].as_str().unwrap_or_default();
    if is_external {
        match external_name.strip_suffix('.').unwrap_or(external_name) {
            "" => causes.push(Cause::required("spec.externalName", "")),
            name => causes.extend(
                check_subdomain(name).map(|what| Cause::invalid("spec.externalName", &spec["externalName"], &what)),
            ),
        }
    }
    causes.extend(check_labels("spec.selector", spec.get("selector")));
    causes
}

/// Returns the fault of the number or the name of a port. Names are labels in lower case, and can start with digits: `kubectl
/// create service` names ports `80-8080`.
fn target_port_fault(path: &str, port: &Value) -> Option<Cause> {
    let what = match port {
        Value::Number(number) if !number.as_u64().is_some_and(|port| (1..=65535).contains(&port)) => {
            "must be between 1 and 65535, inclusive"
        }
        Value::String(name) if check_label(name).is_some() => {
            "must be a port name: at most 63 lower-case letters, digits, and inner dashes"
        }
        _ => return None,
    };
    Some(Cause::invalid(path, port, what))
}

#[cfg(test)]
mod tests {
    use signpost_apiserver::schema;

    use super::*;
    use crate::kinds::fixture::{cell, check_update, context, known};

    fn service(name: &str, spec: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "n"}, "spec": spec})
    }

    #[test]
    fn what_is_left_out_is_as_in_kubernetes() {
        let filled = |spec: Value| {
            let mut service = service("web", spec);
            Services.prepare(&context(), None, &mut service);
            schema::apply_defaults(&known("Service").schema, &mut service);
            service["spec"].take()
        };
        let port = |target: Value| json!([{"port": 80, "protocol": "TCP", "targetPort": target}]);
        for (spec, expected) in [
            (
                json!({"ports": [{"port": 80}]}),
                json!({"ports": port(json!(80)), "type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"}),
            ),
            (
                json!({"ports": [{"port": 80, "targetPort": 0}], "type": "NodePort", "clusterIP": "192.0.2.1"}),
                json!({"ports": port(json!(80)), "type": "NodePort", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                    "externalTrafficPolicy": "Cluster", "clusterIP": "192.0.2.1", "clusterIPs": ["192.0.2.1"]}),
            ),
            (
                json!({"type": "ExternalName", "clusterIP": "", "clusterIPs": ["192.0.2.1"]}),
                json!({"type": "ExternalName", "sessionAffinity": "None", "clusterIP": ""}),
            ),
        ] {
            assert_eq!(filled(spec.clone()), expected, "{spec}");
        }
        let old = service("web", json!({"ports": [{"port": 80}]}));
        assert_eq!(check_update("Service", &old, service("web", json!({}))), ["spec.ports: Required value"]);
    }

    #[test]
    fn cells_are_those_of_kubectl() {
        let ports = json!([{"port": 80, "protocol": "TCP"}, {"port": 53, "nodePort": 30053, "protocol": "UDP"}]);
        for (spec, status, expected) in [
            (
                json!({"type": "ClusterIP", "ports": ports}),
                json!({}),
                ["<none>", "<none>", "80/TCP,53:30053/UDP", "<none>"],
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "selector": {"a": "b", "c": "d"}}),
                json!({}),
                ["None", "<none>", "<none>", "a=b,c=d"],
            ),
            (json!({"type": "LoadBalancer"}), json!({}), ["<none>", "<pending>", "<none>", "<none>"]),
            (
                json!({"type": "LoadBalancer", "externalIPs": ["192.0.2.3"]}),
                json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "lb.example"}]}}),
                ["<none>", "192.0.2.1,lb.example,192.0.2.3", "<none>", "<none>"],
            ),
            (
                json!({"type": "ExternalName", "externalName": "shop.example"}),
                json!({}),
                ["<none>", "shop.example", "<none>", "<none>"],
            ),
        ] {
            let service = json!({"spec": spec, "status": status});
            let cells = ["Cluster-IP", "External-IP", "Port(s)", "Selector"];
            assert_eq!(cells.map(|name| cell(&SERVICE, name, &service)), expected, "{service}");
        }
    }
}
