//! Carrying out a move: the binding is replaced by one on another Router, and the name that the route leaves behind becomes a
//! trail; and the end of trails.
//!
//! The label stays the route's, and so do its claims, its alias and its custom host: of its names only the system name is
//! another one. Each write carries the resourceVersion of the binding that was read, so that whoever else changed it meanwhile
//! is not undone, and that of the Route, so that nobody is moved whose wish has changed. To repeat a move that was done is
//! no fault: the binding names the Router by then.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;

use super::bind::{Binder, CHANGES_MAX, Outcome, Plan};
use super::facts::{RouteFacts, RouterFacts};
use crate::api::names;
use crate::api::v1alpha1::route::{NameKind, Route, TRAILS_MAX, Trail};
use crate::api::v1alpha1::route_binding::{Explanation, FENCING_ANNOTATION, RouteBinding};
use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;

/// How long resolvers may hold what points to a system name: the alias, and trails.
pub const POINTERS_TTL: Duration = Duration::from_secs(30);

/// A Router that a route is to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The Router.
    pub router: String,
    /// Why.
    pub cause: Cause,
    /// How long the route's name there leads to its new one; `None` if the Router, and its zone, are gone.
    pub trail: Option<Duration>,
}

/// Why a route leaves its Router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its annotation says so.
    Asked,
    /// The Router is draining.
    Drained,
}

/// How long after `now` resolvers may hold an address of the Router: its TTL, or that of before it was lowered, on top of the
/// TTL of what points to the name.
pub fn held_by_caches(router: &RouterFacts, now: Timestamp) -> Duration {
    let before = router.ttl_horizon.and_then(|horizon| Duration::try_from(horizon.duration_since(now)).ok());
    Duration::from_secs(router.ttl.into()).max(before.unwrap_or_default()) + POINTERS_TTL
}

impl Binder {
    /// Moves a route as planned, while `term` lasts.
    pub(super) async fn move_route(&self, plan: &Plan, leaving: &Leaving, term: &Term) -> kube::Result<Outcome> {
        let namespace = plan.key.namespace.as_deref().unwrap_or_default();
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), namespace);
        let routes: Api<Route> = Api::namespaced(self.client.clone(), namespace);
        for _ in 0..=CHANGES_MAX {
            if !term.is_current() {
                return Ok(Outcome::Deposed);
            }
            let Some(binding) = bindings.get_opt(&plan.key.name).await? else { return Ok(Outcome::Changed) };
            let is_its = binding.spec.route_uid == plan.route.uid;
            if is_its && binding.spec.router == plan.placement.router {
                return Ok(Outcome::AlreadyBound);
            }
            if !is_its || binding.spec.router != leaving.router {
                return Ok(Outcome::Changed);
            }
            let Some(route) = routes.get_opt(&plan.key.name).await? else { return Ok(Outcome::Changed) };
            let version = route.metadata.resource_version.clone();
            if !RouteFacts::from(route).decides_as(&plan.route) {
                return Ok(Outcome::Changed);
            }
            let Some(mut moved) = moved(binding, plan, leaving.trail, Timestamp::now()) else {
                let error = format!("its name below {} would be over 253 octets", plan.placement.dns);
                return Ok(Outcome::Failed { answered: true, error });
            };
            moved.spec.route_resource_version = version;
            fence(&mut moved, term);
            match bindings.replace(&plan.key.name, &PostParams::default(), &moved).await {
                Ok(_) => return Ok(Outcome::Moved),
                // One of the two has changed since it was read.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Outcome::Changed)
    }

    /// Takes those trails off the binding at `key` whose time is over.
    pub(super) async fn end_trails(&self, key: &ObjectKey, term: &Term) -> kube::Result<()> {
        let bindings: Api<RouteBinding> =
            Api::namespaced(self.client.clone(), key.namespace.as_deref().unwrap_or_default());
        let Some(mut binding) = bindings.get_opt(&key.name).await? else { return Ok(()) };
        let (now, before) = (Timestamp::now(), binding.spec.trails.len());
        binding.spec.trails.retain(|trail| trail.until.0 > now);
        if binding.spec.trails.len() == before || !term.is_current() {
            return Ok(());
        }
        fence(&mut binding, term);
        match bindings.replace(&key.name, &PostParams::default(), &binding).await {
            Ok(_) => Ok(()),
            // It is looked at again.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn fence(binding: &mut RouteBinding, term: &Term) {
    let annotations = binding.metadata.annotations.get_or_insert_default();
    annotations.insert(FENCING_ANNOTATION.to_owned(), term.fencing().to_string());
}

/// The binding as it is after the move; `None` if the name would be too long. The zone that it moves to holds no trail of it
/// any more; the one that it leaves holds one for the time `trail`.
fn moved(mut binding: RouteBinding, plan: &Plan, trail: Option<Duration>, now: Timestamp) -> Option<RouteBinding> {
    let spec = &mut binding.spec;
    let former = names::system_name(&spec.label, &spec.dns)?;
    let system = names::system_name(&spec.label, &plan.placement.dns)?;
    spec.trails.retain(|trail| trail.until.0 > now && trail.name != system && trail.name != former);
    if let Some(trail) = trail.filter(|_| former != system) {
        let trail = SignedDuration::try_from(trail).ok().and_then(|trail| now.checked_add(trail).ok());
        let until = Time(trail.unwrap_or(Timestamp::MAX));
        let router = spec.router.clone();
        spec.trails.push(Trail { name: former, router, since: Time(now), until });
        let beyond = spec.trails.len().saturating_sub(TRAILS_MAX);
        spec.trails.drain(..beyond);
    }
    for name in spec.names.iter_mut().filter(|name| name.kind == NameKind::System) {
        name.name.clone_from(&system);
    }
    spec.router.clone_from(&plan.placement.router);
    spec.dns.clone_from(&plan.placement.dns);
    plan.placement.strategy.clone_into(&mut spec.strategy);
    spec.explanation = Some(Explanation { moved_at: Some(Time(now)), ..plan.placement.explanation.clone() });
    Some(binding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use crate::scheduler::decision::Placement;
    use crate::scheduler::filter::tests::router;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn binding(shard: u8) -> RouteBinding {
        let dns = format!("s{shard}.v3.example");
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
            "metadata": {"namespace": "ns", "name": "app"},
            "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": format!("s{shard}"), "dns": dns,
                "label": "ns-app", "strategy": "round-robin", "names": [
                    {"name": format!("ns-app.{dns}"), "type": "system"},
                    {"name": "ns-app.routes.v3.example", "type": "alias"}]}});
        serde_json::from_value(object).expect("a RouteBinding")
    }

    fn to(shard: u8) -> Plan {
        Plan {
            key: ObjectKey::namespaced("ns", "app"),
            route: Arc::default(),
            host_is_own: false,
            leaving: None,
            placement: Placement {
                router: format!("s{shard}"),
                dns: format!("s{shard}.v3.example"),
                strategy: "move",
                explanation: Default::default(),
            },
        }
    }

    #[test]
    fn there_and_back_again() {
        let day = Some(Duration::from_secs(86_400));
        let there = moved(binding(1), &to(2), day, at(1000)).expect("short");
        assert_eq!((there.spec.router.as_str(), there.spec.dns.as_str()), ("s2", "s2.v3.example"));
        assert_eq!(there.spec.names[0].name, "ns-app.s2.v3.example");
        assert_eq!(there.spec.names[1].name, "ns-app.routes.v3.example", "the alias stays");
        let told: Vec<_> = there.spec.trails.iter().map(|trail| (trail.name.as_str(), trail.until.0)).collect();
        assert_eq!(told, [("ns-app.s1.v3.example", at(87_400))]);
        let back = moved(there.clone(), &to(1), day, at(2000)).expect("short");
        let told: Vec<_> = back.spec.trails.iter().map(|trail| trail.name.as_str()).collect();
        assert_eq!(told, ["ns-app.s2.v3.example"], "where it is there is no trail");
        let gone = moved(there, &to(3), None, at(2000)).expect("short");
        assert_eq!(gone.spec.trails.len(), 1, "the zone that it left is gone; the other trail stays");
    }

    #[test]
    fn the_largest_ttl_that_caches_may_hold() {
        let mut facts = router("s1", json!({"ttl": 60}));
        assert_eq!(held_by_caches(&facts, at(1000)), Duration::from_secs(90));
        facts.ttl_horizon = Some(at(1500));
        assert_eq!(held_by_caches(&facts, at(1000)), Duration::from_secs(530));
        assert_eq!(held_by_caches(&facts, at(2000)), Duration::from_secs(90));
    }

    proptest! {
        /// However often a route moves: no trail is its name of now, none is there twice, none is over, and there are not more
        /// than the API takes.
        #[test]
        fn trails_are_former_names(moves in proptest::collection::vec((0_u8..24, 1_i64..40, 0_u64..400), 1..80)) {
            let mut binding = binding(0);
            let mut now = 1000;
            for (shard, pause, trail) in moves {
                now += pause;
                let left = binding.spec.dns.clone();
                binding = moved(binding, &to(shard), Some(Duration::from_secs(trail)), at(now)).expect("short");
                let own = format!("ns-app.{}", binding.spec.dns);
                let names: std::collections::BTreeSet<_> = binding.spec.trails.iter().map(|trail| &trail.name).collect();
                prop_assert_eq!(names.len(), binding.spec.trails.len());
                prop_assert!(names.len() <= TRAILS_MAX && !names.contains(&own));
                prop_assert_eq!(&binding.spec.names[0].name, &own);
                let former = format!("ns-app.{left}");
                prop_assert!(former == own || names.contains(&former));
                prop_assert!(binding.spec.trails.iter().all(|trail| trail.until.0 >= at(now)));
            }
        }
    }
}
