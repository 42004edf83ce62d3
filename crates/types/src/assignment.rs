//! The part of a Route's status that its RouteBinding sets: the phase, the Router, the names, and the conditions on them.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::conditions::set_condition;
use crate::names;
use crate::v1alpha1::route::{ADMITTED, AssignedName, CONDITIONS, MOVE_PENDING, NameKind, RouteStatus, SCHEDULED};
use crate::v1alpha1::route_binding::RouteBindingSpec;

/// The members of `status` that only a RouteBinding sets.
pub const BOUND_FIELDS: [&str; 6] = ["phase", "dns", "router", "canonicalName", "names", "formerNames"];

/// Sets the part of a Route's status that its binding determines: phase, names, and the conditions of its placement. Signpost's
/// server does so in the transaction that writes the binding; with a server without such transactions, the control plane does.
pub fn assign(status: &mut Value, route: &Value, spec: &RouteBindingSpec, now: Timestamp) {
    let generation = &route["metadata"]["generation"];
    let host = route["spec"]["host"].as_str().filter(|host| !host.is_empty());
    let (dns, canonical_name) = main_names(host, &spec.names);
    let before = status.clone();
    status["phase"] = json!("scheduled");
    status["dns"] = json!(dns);
    status["router"] = Value::from(spec.router.as_str());
    status["canonicalName"] = json!(canonical_name);
    status["names"] = json!(spec.names);
    if generation.is_number() {
        status["observedGeneration"] = generation.clone();
    }
    set_former_names(status, &json!(spec.former_names));
    // Former names do not affect the Route's own names.
    if BOUND_FIELDS.iter().any(|name| *name != "formerNames" && before[*name] != status[*name]) {
        forget_publication(status);
    }
    // Only a Route that holds its names is bound. A Route that has lost its host since does not regain it by a move.
    let has_lost_host = before["phase"] == "scheduled" && condition(route, ADMITTED, "status") == "False";
    if !has_lost_host {
        let namespace = route["metadata"]["namespace"].as_str().unwrap_or(&spec.route_namespace);
        let subdomain = route["spec"]["subdomain"].as_str().filter(|subdomain| !subdomain.is_empty());
        let other = names::other_label(namespace, &spec.route_name, subdomain, &spec.label);
        let (reason, message) = other.unwrap_or(("Admitted", "the Route holds its names".to_owned()));
        set_condition(status, ADMITTED, true, (reason, &message), generation, now);
    }
    set_condition(status, SCHEDULED, true, ("Scheduled", &spec.summary()), generation, now);
    if condition(route, MOVE_PENDING, "status") == "True" {
        let moved = ("Moved", format!("moved to {}", spec.router));
        set_condition(status, MOVE_PENDING, false, (moved.0, &moved.1), generation, now);
    }
}

/// Returns the name of a Route's host on a Router with the zone `dns`. A host in that zone that the router of a source admitted is an
/// adopted name, for which the zone's wildcard answers, or its records at the apex. Any other host is a custom name, with the record that leads it to `alias`.
pub fn host_name(host: &str, is_adopted: bool, dns: &str, alias: &str) -> AssignedName {
    let (kind, record) = match is_adopted && names::is_at_or_below(host, dns) {
        true => (NameKind::Adopted, None),
        false => (NameKind::Custom, Some(names::record_for_host(host, alias))),
    };
    AssignedName { name: host.to_owned(), kind, record }
}

/// Returns `status.dns` and `status.canonicalName` of a Route with this host and these names.
pub fn main_names<'a>(host: Option<&'a str>, names: &'a [AssignedName]) -> (Option<&'a str>, Option<&'a str>) {
    let of_kind = |kind: NameKind| names.iter().find(|name| name.kind == kind).map(|name| name.name.as_str());
    (host.filter(|host| !host.is_empty()).or_else(|| of_kind(NameKind::System)), of_kind(NameKind::Alias))
}

/// Returns whether the status of a bound Route with this host has the main names that follow from its names.
pub fn has_main_names(host: Option<&str>, status: &RouteStatus) -> bool {
    let is_same = |one: Option<&str>, other: Option<&str>| match (one, other) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        (one, other) => one == other,
    };
    let (dns, canonical_name) = main_names(host, &status.names);
    is_same(dns, status.dns.as_deref()) && is_same(canonical_name, status.canonical_name.as_deref())
}

/// Resets what [`assign`] has set, in the status of a Route whose binding was deleted.
pub fn clear(status: &mut Value, route: &Value, now: Timestamp) {
    for name in BOUND_FIELDS {
        status.as_object_mut().and_then(|status| status.remove(name));
    }
    status["phase"] = json!("new");
    forget_publication(status);
    let why = ("BindingDeleted", "the RouteBinding was deleted; the scheduler will bind the Route again");
    let generation = &route["metadata"]["generation"];
    if generation.is_number() {
        status["observedGeneration"] = generation.clone();
    }
    set_condition(status, SCHEDULED, false, why, generation, now);
}

/// Sets the former names of a Route's status, or removes the field if there are none.
pub fn set_former_names(status: &mut Value, former_names: &Value) {
    let Some(status) = status.as_object_mut() else { return };
    match former_names.as_array().is_some_and(|former_names| !former_names.is_empty()) {
        true => drop(status.insert("formerNames".to_owned(), former_names.clone())),
        false => drop(status.remove("formerNames")),
    }
}

/// Removes the conditions about a binding: results for the old names do not apply to the new ones, and `kubectl wait` must not use
/// them.
fn forget_publication(status: &mut Value) {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        let is_of_binding = |kind: &Value| CONDITIONS.iter().any(|known| known.is_of_binding && kind == known.kind);
        conditions.retain(|condition| !is_of_binding(&condition["type"]));
    }
}

/// Returns the member `name` of a Route's condition; null if there is no such one.
fn condition<'a>(route: &'a Value, kind: &str, name: &str) -> &'a Value {
    let conditions = route["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == kind).map_or(&Value::Null, |condition| &condition[name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_gives_no_host_back_and_another_label_is_reported() {
        let spec = json!({"routeNamespace": "n", "routeName": "r", "routeUID": "u", "router": "s1", "dns": "s1.v3.example",
            "label": "n-r", "strategy": "round-robin", "names": [{"name": "n-r.s1.v3.example", "type": "system"}]});
        let spec: RouteBindingSpec = serde_json::from_value(spec).expect("a spec");
        let now = Timestamp::UNIX_EPOCH;
        for (status, expected) in [
            (json!({"phase": "new"}), ("True", "Admitted")),
            (
                json!({"phase": "scheduled", "conditions": [{"type": "Admitted", "status": "False", "reason": "x"}]}),
                ("False", "x"),
            ),
            (
                json!({"phase": "new", "conditions": [{"type": "Admitted", "status": "False", "reason": "x"}]}),
                ("True", "Admitted"),
            ),
        ] {
            let before =
                json!({"metadata": {"name": "r", "namespace": "n", "generation": 2}, "spec": {}, "status": status});
            let mut after = before["status"].clone();
            assign(&mut after, &before, &spec, now);
            let admitted = |status: &Value| {
                let route = json!({"status": status});
                let text = |field: &str| condition(&route, ADMITTED, field).as_str().unwrap_or("").to_owned();
                (text("status"), text("reason"))
            };
            assert_eq!(admitted(&after), (expected.0.to_owned(), expected.1.to_owned()), "{status}");
            let mut other = before.clone();
            other["spec"]["subdomain"] = json!("shop");
            let mut after = json!({"phase": "new"});
            assign(&mut after, &other, &spec, now);
            assert_eq!(admitted(&after).1, "SubdomainTaken");
        }
    }
}
