//! Problems of Routers and Routes, in sentences; each names a few of the affected objects.

use std::collections::{BTreeMap, BTreeSet};

use signpost_types::route_state::RouteState;
use signpost_types::v1alpha1::route::{ADMITTED, MOVE_PENDING, PUBLISHED, Phase, RESOLVABLE, RESOLVED_REFS, Route};
use signpost_types::v1alpha1::router::{
    ACCEPTED, ADDRESSES_HEALTHY, AddressState, INSTANCES_READY, NO_ACTIVE_ADDRESS, READY, Router, RouterState,
    ZONE_PUBLISHED,
};

/// The number of objects that a warning names, and of Routers with their own warning for one problem.
const NAMED: usize = 3;

/// Returns the warnings that the conditions of Routers give. `dead`: the Routers that are reported as outages.
pub(super) fn of_routers(routers: &[Router], dead: &BTreeMap<String, String>) -> Vec<String> {
    let mut warnings = Vec::new();
    for kind in [READY, ACCEPTED, ADDRESSES_HEALTHY, INSTANCES_READY, ZONE_PUBLISHED] {
        let found = routers.iter().filter_map(|router| {
            let conditions = &router.status.as_ref()?.conditions;
            let said = conditions.iter().find(|said| said.type_ == kind && said.status == "False")?;
            let name = router.metadata.name.as_deref().unwrap_or_default();
            let is_reported = kind == READY && dead.contains_key(name)
                // `Ready` already reports the second one.
                || kind == ADDRESSES_HEALTHY && ["NoVerdictYet", "NoActiveAddress"].contains(&said.reason.as_str());
            (!is_reported).then(|| format!("Router {name}: {kind} is False, {}: {}", said.reason, said.message))
        });
        let mut found: Vec<String> = found.collect();
        let more = found.len().saturating_sub(NAMED);
        found.truncate(NAMED);
        warnings.append(&mut found);
        if more > 0 {
            warnings.push(format!("and {more} more Routers whose condition {kind} is False: kubectl get routers"));
        }
    }
    warnings
}

/// Returns a message, by name, for each Router that needs an active address and has none: it has Routes, or can get
/// some. `routes`: all Routes, if they can be read.
pub(super) fn dead_routers(routers: &[Router], routes: Option<&[Route]>) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for router in routes.unwrap_or_default().iter().filter_map(|route| route.status.as_ref()?.router.as_deref()) {
        *counts.entry(router).or_default() += 1;
    }
    let dead = routers.iter().filter_map(|router| {
        let name = router.metadata.name.as_deref().unwrap_or_default();
        let counted = || router.status.as_ref().and_then(|status| status.routes).unwrap_or(0) as usize;
        let count = if routes.is_some() { counts.get(name).copied().unwrap_or(0) } else { counted() };
        let takes = router.spec.state == RouterState::Active && router.metadata.deletion_timestamp.is_none();
        let is_active = router.addresses().iter().any(|address| address.state == AddressState::Active);
        let what = match count {
            _ if is_active => return None,
            0 if takes => "it cannot take any Route".to_owned(),
            0 => return None,
            1 => "its Route is unreachable".to_owned(),
            count => format!("its {count} Routes are unreachable"),
        };
        Some((name.to_owned(), format!("Router {name} has no active address: {what}")))
    });
    dead.collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OfRoutes {
    /// Names that lead nowhere.
    pub(super) outages: Vec<String>,
    /// Other problems.
    pub(super) warnings: Vec<String>,
}

/// Returns what is wrong with routes: those without a Router, names that are dead, moves that wait, Routers that are gone.
/// `routers`: the names of all Routers, if they could be read.
pub(super) fn of_routes(routes: &[Route], routers: Option<&BTreeSet<&str>>) -> OfRoutes {
    let mut by_trouble: BTreeMap<(u8, String), Vec<String>> = BTreeMap::new();
    for route in routes {
        let status = route.status.clone().unwrap_or_default();
        let (namespace, name) = (route.metadata.namespace.as_deref(), route.metadata.name.as_deref());
        let named = format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default());
        let mut add = |rank: u8, trouble: String| by_trouble.entry((rank, trouble)).or_default().push(named.clone());
        let (state, why) = RouteState::of(&status);
        if status.phase == Phase::New {
            let reason = why.map_or("not processed yet", |condition| condition.reason.as_str());
            add(2, format!("{}, {reason}", state.word()));
        }
        let Some(on) = &status.router else { continue };
        if routers.is_some_and(|routers| !routers.contains(on.as_str())) {
            add(0, format!("on a deleted Router, {on}"));
        }
        let says = |kind: &str, word: &str| {
            status.conditions.iter().find(|condition| condition.type_ == kind && condition.status == word)
        };
        if let Some(said) = says(ADMITTED, "False") {
            add(3, format!("no longer admitted, {}", said.reason));
        }
        match (says(PUBLISHED, "False"), says(RESOLVABLE, "False")) {
            // The Router already reports this.
            (Some(said), _) if said.reason == NO_ACTIVE_ADDRESS && routers.is_some() => {}
            (Some(said), _) => add(1, format!("not published, {}", said.reason)),
            (None, Some(said)) => add(4, format!("not resolvable, {}", said.reason)),
            (None, None) => {}
        }
        if let Some(said) = says(RESOLVED_REFS, "False") {
            add(5, format!("with backends that are not ready, {}", said.reason));
        }
        if let Some(said) = says(MOVE_PENDING, "True") {
            add(6, format!("with a pending move, {}", said.reason));
        }
    }
    let mut found = OfRoutes::default();
    for ((rank, trouble), names) in by_trouble {
        let to = if rank < 2 { &mut found.outages } else { &mut found.warnings };
        to.push(summed(&trouble, names));
    }
    found
}

/// Returns one line for all Routes with the same problem.
fn summed(trouble: &str, mut names: Vec<String>) -> String {
    names.sort_unstable();
    let count = names.len();
    let more = if count > NAMED { ", …" } else { "" };
    names.truncate(NAMED);
    let routes = if count == 1 { "Route" } else { "Routes" };
    format!("{count} {routes} {trouble}: {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::objects::object;
    use serde_json::{Value, json};

    fn condition(kind: &str, status: &str, reason: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("about {reason}"),
            "lastTransitionTime": "2025-01-01T00:00:00Z"})
    }

    #[test]
    fn routers_that_are_not_well() {
        let router = |name: &str, conditions: Value| -> Router {
            object("Router", json!({"name": name}), json!({}), json!({"conditions": conditions}))
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
            "Router s4: Accepted is False, InvalidFields: about InvalidFields",
            "Router s1: AddressesHealthy is False, Panic: about Panic",
            "Router s2: AddressesHealthy is False, SomeUnhealthy: about SomeUnhealthy",
            "Router s5: ZonePublished is False, ErrorAnswer: about ErrorAnswer",
            "Router s6: ZonePublished is False, ErrorAnswer: about ErrorAnswer",
            "Router s7: ZonePublished is False, ErrorAnswer: about ErrorAnswer",
            "and 2 more Routers whose condition ZonePublished is False: kubectl get routers",
        ];
        assert_eq!(of_routers(&routers, &BTreeMap::new()), expected);
    }

    #[test]
    fn routers_without_an_active_address() {
        let router = |name: &str, spec: Value, routes: u32| -> Router {
            object("Router", json!({"name": name}), spec, json!({"routes": routes}))
        };
        let drained = json!([{"ip": "192.0.2.1", "state": "drained"}]);
        let routers = [
            router("active", json!({"addresses": [{"ip": "192.0.2.1"}]}), 4),
            router("many", json!({"addresses": drained}), 3),
            router("one", json!({"state": "cordoned"}), 1),
            router("empty", json!({"addresses": drained, "state": "draining"}), 0),
            router("new", json!({}), 0),
        ];
        let found: Vec<String> = dead_routers(&routers, None).into_values().collect();
        let expected = [
            "Router many has no active address: its 3 Routes are unreachable",
            "Router new has no active address: it cannot take any Route",
            "Router one has no active address: its Route is unreachable",
        ];
        assert_eq!(found, expected);
        assert_eq!(dead_routers(&routers, Some(&[])).len(), 2, "the routes themselves are counted, where they can be");
    }

    #[test]
    fn routes_whose_names_are_dead() {
        let route = |name: &str, router: &str, conditions: Value| -> Route {
            let status = json!({"phase": "scheduled", "router": router, "conditions": conditions});
            object("Route", json!({"namespace": "shop", "name": name}), json!({}), status)
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
            route("i", "s1", json!([condition("ResolvedRefs", "False", "NoReadyEndpoints")])),
        ];
        let outages = ["1 Route on a deleted Router, s9: shop/f", "1 Route not published, Held: shop/g"];
        let expected = [
            "4 Routes not resolvable, WrongAnswer: shop/a, shop/b, shop/c, …",
            "1 Route with backends that are not ready, NoReadyEndpoints: shop/i",
            "1 Route with a pending move, Cordoned: shop/f",
        ];
        let found = of_routes(&routes, Some(&BTreeSet::from(["s1"])));
        assert_eq!(
            (found.outages, found.warnings),
            (outages.map(str::to_owned).into(), expected.map(str::to_owned).into())
        );
        assert_eq!(
            of_routes(&routes[4..6], None).outages,
            Vec::<String>::new(),
            "whether a Router is gone is not known"
        );
    }
}
