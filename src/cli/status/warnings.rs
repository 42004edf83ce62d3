//! What is not as it should be of Routers and routes, in sentences; each names a few of the objects that it speaks of.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::v1alpha1::route::{ADMITTED, MOVE_PENDING, PUBLISHED, RESOLVABLE, Route};
use crate::api::v1alpha1::router::{ACCEPTED, ADDRESSES_HEALTHY, Router, ZONE_PUBLISHED};

/// How many objects a warning names, and how many Routers have a warning of their own for one thing.
pub(super) const NAMED: usize = 3;

/// What to say of a Router by its name and a condition that is not met.
type Say = fn(&str, &Condition) -> Option<String>;

/// What the conditions of Routers say, but for `Ready`.
pub(super) fn of_routers(routers: &[Router]) -> Vec<String> {
    let mut warnings = Vec::new();
    let kinds: [(&str, Say); 3] = [
        (ACCEPTED, |name, said| {
            Some(format!("Router {name} is not used as it stands, {}: {}", said.reason, said.message))
        }),
        (ADDRESSES_HEALTHY, |name, said| match said.reason.as_str() {
            "Panic" => Some(format!("Router {name} is in panic: {}", said.message)),
            // The second is what `Ready` says.
            "NoVerdictYet" | "NoActiveAddress" => None,
            _ => Some(format!("Router {name} has unhealthy addresses: {}", said.message)),
        }),
        (ZONE_PUBLISHED, |name, said| {
            Some(format!("the zone of Router {name} is not served as it should be, {}: {}", said.reason, said.message))
        }),
    ];
    for (kind, tell) in kinds {
        let told = routers.iter().filter_map(|router| {
            let conditions = &router.status.as_ref()?.conditions;
            let said = conditions.iter().find(|said| said.type_ == kind && said.status == "False")?;
            tell(router.metadata.name.as_deref().unwrap_or_default(), said)
        });
        let mut told: Vec<String> = told.collect();
        let more = told.len().saturating_sub(NAMED);
        told.truncate(NAMED);
        warnings.append(&mut told);
        if more > 0 {
            warnings.push(format!("and {more} more Routers whose condition {kind} is False: signpost routers"));
        }
    }
    warnings
}

/// What becomes of routes that have a Router: names that are dead, moves that wait, Routers that are gone. `routers`: the
/// names of all there are, if they could be read.
pub(super) fn of_routes(routes: &[Route], routers: Option<&BTreeSet<&str>>) -> Vec<String> {
    let mut by_trouble: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
    for route in routes {
        let Some(status) = &route.status else { continue };
        let Some(on) = &status.router else { continue };
        let (namespace, name) = (route.metadata.namespace.as_deref(), route.metadata.name.as_deref());
        let named = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        let mut add = |rank: u8, trouble: String| by_trouble.entry((rank, trouble)).or_default().push(named.clone());
        if routers.is_some_and(|routers| !routers.contains(on.as_str())) {
            add(0, format!("on a Router that is gone, {on}"));
        }
        let says = |kind: &str, word: &str| {
            status.conditions.iter().find(|condition| condition.type_ == kind && condition.status == word)
        };
        if let Some(said) = says(ADMITTED, "False") {
            add(1, format!("not admitted any more, {}", said.reason));
        }
        match (says(PUBLISHED, "False"), says(RESOLVABLE, "False")) {
            (Some(said), _) => add(1, format!("not published, {}", said.reason)),
            (None, Some(said)) => add(2, format!("not resolvable, {}", said.reason)),
            (None, None) => {}
        }
        if let Some(said) = says(MOVE_PENDING, "True") {
            add(3, format!("to move and cannot, {}", said.reason));
        }
    }
    by_trouble.into_iter().map(|((_, trouble), names)| summed(&trouble, names)).collect()
}

/// Routes with the same trouble, in one line.
pub(super) fn summed(trouble: &str, mut names: Vec<String>) -> String {
    names.sort_unstable();
    let count = names.len();
    let more = if count > NAMED { ", …" } else { "" };
    names.truncate(NAMED);
    let routes = if count == 1 { "route" } else { "routes" };
    format!("{count} {routes} {trouble}: {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object<T: serde::de::DeserializeOwned>(kind: &str, metadata: Value, status: Value) -> T {
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": {},
            "status": status});
        serde_json::from_value(object).expect("an object")
    }

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("about {reason}"),
            "lastTransitionTime": "2025-01-01T00:00:00Z"})
    }

    #[test]
    fn routers_that_are_not_well() {
        let router = |name: &str, conditions: Value| -> Router {
            object("Router", json!({"name": name}), json!({"conditions": conditions}))
        };
        let mut routers = vec![
            router("s1", json!([condition("AddressesHealthy", "False", "Panic")])),
            router("s2", json!([condition("AddressesHealthy", "False", "SomeUnhealthy")])),
            router("s3", json!([condition("AddressesHealthy", "False", "NoVerdictYet")])),
            router("s4", json!([condition("Accepted", "False", "InvalidFields"), condition("Ready", "True", "Ready")])),
        ];
        for number in 5..10 {
            routers.push(router(&format!("s{number}"), json!([condition("ZonePublished", "False", "ErrorAnswer")])));
        }
        let expected = [
            "Router s4 is not used as it stands, InvalidFields: about InvalidFields",
            "Router s1 is in panic: about Panic",
            "Router s2 has unhealthy addresses: about SomeUnhealthy",
            "the zone of Router s5 is not served as it should be, ErrorAnswer: about ErrorAnswer",
            "the zone of Router s6 is not served as it should be, ErrorAnswer: about ErrorAnswer",
            "the zone of Router s7 is not served as it should be, ErrorAnswer: about ErrorAnswer",
            "and 2 more Routers whose condition ZonePublished is False: signpost routers",
        ];
        assert_eq!(of_routers(&routers), expected);
    }

    #[test]
    fn routes_whose_names_are_dead() {
        let route = |name: &str, router: &str, conditions: Value| -> Route {
            let status = json!({"phase": "scheduled", "router": router, "conditions": conditions});
            object("Route", json!({"namespace": "shop", "name": name}), status)
        };
        let dead = json!([condition("Published", "True", "P"), condition("Resolvable", "False", "WrongAnswer")]);
        let unknown = json!([condition("Resolvable", "Unknown", "NotAsked")]);
        let routes = [
            route("a", "s1", dead.clone()),
            route("b", "s1", dead.clone()),
            route("c", "s1", dead.clone()),
            route("d", "s1", dead),
            route("e", "s1", unknown),
            route("f", "s9", json!([condition("MovePending", "True", "Cordoned")])),
            route(
                "g",
                "s1",
                json!([condition("Published", "False", "Held"), condition("Resolvable", "False", "Held")]),
            ),
            route("h", "s1", json!([condition("MovePending", "False", "Stays")])),
        ];
        let expected = [
            "1 route on a Router that is gone, s9: shop/f",
            "1 route not published, Held: shop/g",
            "4 routes not resolvable, WrongAnswer: shop/a, shop/b, shop/c, …",
            "1 route to move and cannot, Cordoned: shop/f",
        ];
        assert_eq!(of_routes(&routes, Some(&BTreeSet::from(["s1"]))), expected);
        assert_eq!(of_routes(&routes[4..6], None).len(), 1, "whether a Router is gone is not known");
    }
}
