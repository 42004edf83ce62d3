//! EndpointSlice of Kubernetes (discovery.k8s.io/v1): the addresses of a Service's endpoints. Plain data: Kubernetes derives
//! EndpointSlices from pods; here, the operator of an application writes them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::LazyLock;

use serde_json::{Value, json};

use crate::access;
use signpost_apiserver::auth::rules::Access;
use signpost_apiserver::cause::Cause;
use signpost_apiserver::json_scan::Json;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{BUILT_IN_AGE, Cell, Column};
use signpost_apiserver::registry::labels::{check_key, check_label, check_subdomain};
use signpost_apiserver::registry::{Context, Hooks};
use signpost_types::addresses::unusable;

/// The verb on EndpointSlices that a user needs to write loopback and link-local addresses. Only administrators have it: a router
/// connects to these addresses, and interfaces behind them trust local clients.
const LOCAL_ADDRESSES_VERB: &str = "set-local-addresses";

pub static ENDPOINT_SLICE: LazyLock<Kind> = LazyLock::new(|| {
    let atomic = |items_max: u32| json!({"x-kubernetes-list-type": "atomic", "maxItems": items_max});
    Kind::built_in::<k8s_openapi::api::discovery::v1::EndpointSlice>([
        ("addressType", json!({"enum": ["FQDN", "IPv4", "IPv6"]})),
        ("endpoints", atomic(1_000)),
        ("endpoints[].addresses", json!({"x-kubernetes-list-type": "set", "minItems": 1, "maxItems": 100})),
        ("endpoints[].targetRef", json!({"x-kubernetes-map-type": "atomic"})),
        ("endpoints[].hints.forZones", atomic(8)),
        ("endpoints[].hints.forNodes", atomic(8)),
        ("ports", atomic(100)),
        ("ports[].name", json!({"default": ""})),
        ("ports[].protocol", json!({"default": "TCP", "enum": ["SCTP", "TCP", "UDP"]})),
        ("ports[].port", json!({"minimum": 1, "maximum": u16::MAX})),
    ])
    .with_columns(COLUMNS)
});

const COLUMNS: &[Column] = &[
    Column::new("AddressType", &["addressType"], "Type of the addresses: `IPv4`, `IPv6`, or `FQDN`."),
    Column::new("Ports", &["ports"], "First ports of the endpoints.").with_cell(|read, _| {
        first_of(read[0].items().map(|port| {
            let [number, name] = port.get(["port", "name"]);
            match number.number() {
                Some(number) => number.to_string(),
                None if name.is_null() => "*".to_owned(),
                None => name.text().unwrap_or_default().into_owned(),
            }
        }))
    }),
    Column::new("Endpoints", &["endpoints"], "First addresses.").with_cell(|read, _| {
        let addresses = read[0].items().flat_map(|endpoint| endpoint.get(["addresses"])[0].items());
        first_of(addresses.filter_map(Json::text).map(|address| address.into_owned()))
    }),
    BUILT_IN_AGE,
];

/// Returns the first three, and how many more there are.
fn first_of<'a>(texts: impl Iterator<Item = String>) -> Cell<'a> {
    let mut texts = texts.fuse();
    let first: Vec<String> = texts.by_ref().take(3).collect();
    Cell::text(match (first.join(","), texts.count()) {
        (first, 0) if first.is_empty() => "<unset>".to_owned(),
        (first, 0) => first,
        (first, more) => format!("{first} + {more} more..."),
    })
}

pub(super) struct EndpointSlices;

impl Hooks for EndpointSlices {
    fn validate(&self, context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = faults(new);
        if old.is_some_and(|old| old["addressType"] != new["addressType"]) {
            causes.push(Cause::invalid("addressType", &new["addressType"], "field is immutable"));
        }
        // A tenant may label a slice of an administrator, but not redirect it to another port of a local address.
        if old.is_none_or(|old| ["endpoints", "ports"].iter().any(|name| old[*name] != new[*name])) {
            causes.extend(local_faults(context, new));
        }
        causes
    }
}

fn faults(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (path, address) in addresses(new) {
        let text = address.as_str().unwrap_or_default();
        let fault = match new["addressType"].as_str() {
            Some("FQDN") => check_fqdn(text),
            Some("IPv4") => address_fault::<Ipv4Addr>(text, "must be a valid IPv4 address"),
            Some("IPv6") => address_fault::<Ipv6Addr>(text, "must be a valid IPv6 address"),
            // The schema reports that.
            _ => None,
        };
        causes.extend(fault.map(|what| Cause::invalid(path, address, &what)));
    }
    for (index, endpoint) in new["endpoints"].as_array().into_iter().flatten().enumerate() {
        let hostname = &endpoint["hostname"];
        if let Some(what) = hostname.as_str().and_then(check_label) {
            causes.push(Cause::invalid(format!("endpoints[{index}].hostname"), hostname, &what));
        }
    }
    let mut names = HashSet::new();
    for (index, port) in new["ports"].as_array().into_iter().flatten().enumerate() {
        let (path, name) = (format!("ports[{index}].name"), port["name"].as_str().unwrap_or_default());
        if let Some(what) = check_label(name).filter(|_| !name.is_empty()) {
            causes.push(Cause::invalid(path, &port["name"], &what));
        } else if !names.insert(name) {
            causes.push(Cause::duplicate(path, &port["name"]));
        }
        let protocol = &port["appProtocol"];
        if let Some(what) = protocol.as_str().and_then(check_key) {
            causes.push(Cause::invalid(format!("ports[{index}].appProtocol"), protocol, &what));
        }
    }
    causes
}

/// Returns the reason why an address is not of this family, or is not reachable.
fn address_fault<T: FromStr + Into<IpAddr>>(text: &str, what: &str) -> Option<String> {
    match text.parse::<T>() {
        Ok(ip) => unusable(ip.into()).map(str::to_owned),
        Err(_) => Some(what.to_owned()),
    }
}

/// Returns the loopback and link-local addresses of a slice, unless the sender may write them.
fn local_faults(context: &Context<'_>, slice: &Value) -> Vec<Cause> {
    let is_local = |address: &Value| match address.as_str().and_then(|text| text.parse().ok()) {
        Some(IpAddr::V4(ip)) => ip.is_loopback() || ip.is_link_local(),
        Some(IpAddr::V6(ip)) => ip.is_loopback(),
        None => false,
    };
    let local = addresses(slice).filter(|(_, address)| is_local(address));
    let what = "only administrators can set loopback and link-local addresses";
    let causes: Vec<Cause> = local.map(|(path, _)| Cause::forbidden(path, what)).collect();
    let (group, plural) = (ENDPOINT_SLICE.group, ENDPOINT_SLICE.plural);
    let wanted = Access::resource(LOCAL_ADDRESSES_VERB, group, plural, context.namespace, None);
    match causes.is_empty() || access::authorize(context.identity, &wanted).is_ok() {
        true => Vec::new(),
        false => causes,
    }
}

/// Returns all addresses of a slice, with their paths.
fn addresses(slice: &Value) -> impl Iterator<Item = (String, &Value)> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten().enumerate();
    endpoints.flat_map(|(endpoint, value)| {
        let addresses = value["addresses"].as_array().into_iter().flatten().enumerate();
        addresses.map(move |(index, address)| (format!("endpoints[{endpoint}].addresses[{index}]"), address))
    })
}

/// Returns the reason why a name is not a fully qualified domain name, which may end in a dot and has two labels or more.
fn check_fqdn(name: &str) -> Option<String> {
    let name = name.strip_suffix('.').unwrap_or(name);
    check_subdomain(name).or_else(|| {
        (!name.contains('.')).then(|| "should be a domain with at least two segments separated by dots".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::GROUP_ADMINS;
    use crate::identity::{GROUP_TENANT_PREFIX, Identity};
    use crate::kinds::fixture::{cell, context};

    fn slice(kind: &str, addresses: &[&str]) -> Value {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web-1", "namespace": "n"},
            "addressType": kind, "endpoints": [{"addresses": addresses}], "ports": [{"port": 8080}]})
    }

    #[test]
    fn only_administrators_write_local_addresses() {
        let member = |group: String| Identity { groups: vec![group], ..Identity::user("u") };
        let (admin, tenant) = (member(GROUP_ADMINS.to_owned()), member(format!("{GROUP_TENANT_PREFIX}n")));
        for (address, kind) in [("127.0.0.1", "IPv4"), ("169.254.169.254", "IPv4"), ("::1", "IPv6")] {
            let one = slice(kind, &[address]);
            let as_admin = Context { identity: &admin, ..context() };
            assert!(EndpointSlices.validate(&as_admin, None, &one).is_empty(), "{address}");
            let as_tenant = Context { identity: &tenant, ..context() };
            let found = EndpointSlices.validate(&as_tenant, None, &one);
            assert_eq!(found.len(), 1, "{address} {found:?}");
            assert!(found[0].to_string().starts_with("endpoints[0].addresses[0]: Forbidden: "), "{found:?}");
            let mut labeled = one.clone();
            labeled["metadata"]["labels"] = json!({"a": "b"});
            assert!(EndpointSlices.validate(&as_tenant, Some(&one), &labeled).is_empty(), "{address}");
            labeled["ports"][0]["port"] = json!(22);
            assert_eq!(EndpointSlices.validate(&as_tenant, Some(&one), &labeled).len(), 1, "{address}");
        }
    }

    #[test]
    fn cells_are_those_of_kubectl() {
        let cells = |slice: &Value| ["Ports", "Endpoints"].map(|name| cell(&ENDPOINT_SLICE, name, slice));
        assert_eq!(cells(&json!({"addressType": "IPv4"})), ["<unset>", "<unset>"]);
        let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4", "192.0.2.5"];
        assert_eq!(cells(&slice("IPv4", &addresses)), ["8080", "192.0.2.1,192.0.2.2,192.0.2.3 + 2 more..."]);
    }
}
