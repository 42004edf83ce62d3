//! Execution of a move: a binding on another Router replaces the old one, and the old system name becomes a former name.
//! `reconcile::former_names` decides when former names begin and end.
//!
//! A route can return to a Router whose zone has a former name of it. Resolvers then cache for a while that its name there is a
//! CNAME; if another name immediately pointed back to it, they would be in a loop (RFC 1034 §3.6.2 makes them give up):
//!
//! ```text
//!   on A, then on B      a.A CNAME a.B
//!   on A again           a.A answers itself      a.B answers itself, by B's wildcard, for PENDING
//!   PENDING later        a.A answers itself      a.B CNAME a.A
//! ```
//!
//! The last target, `a.B`, stays the target until no resolver can cache the opposite direction: its former name exists with a
//! time `from` at which it begins, and all other former names point to it meanwhile. No name is a target that was a CNAME within
//! [`PENDING`]. So for any mixture of old and new records in a resolver, each step goes to a name that became a target later, and
//! there is no loop.
//!
//! The instances of a Router, if they report, serve the Route some time after the move. Until then, alias and former names point
//! to the name that the route has left: that former name also has a time `from` at which it begins, after the instances' report.
//!
//! The route keeps its label, its claims, its alias, and its custom host: only its system name changes. Each write carries the
//! resourceVersion of the binding that was read, so that concurrent changes are not reverted, and the resourceVersion of the
//! Route, so that a route with a changed request is not moved. Repeating a completed move is not an error: the binding names the
//! Router already.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::PostParams;

use super::bind::{Binder, CHANGES_MAX, MoveSource, Outcome, Plan, fence, is_fenced};
use crate::client::lease::Term;
use crate::world::later;
use crate::world::router::RouterTarget;
use signpost_types::assignment::host_name;
use signpost_types::names;
use signpost_types::v1alpha1::route::{FORMER_NAMES_MAX, FormerName, NameKind};
use signpost_types::v1alpha1::route_binding::{Explanation, RouteBinding};

/// The time for which resolvers can cache records that point to a system name: the alias, and former names.
pub const POINTERS_TTL: Duration = Duration::from_secs(30);

/// The time for which a name that was a CNAME is not a target: as long as resolvers can cache its old target, plus a margin,
/// because the name servers do not publish in the same moment.
pub const PENDING: Duration = Duration::from_secs(40);

/// Returns how long after `now` resolvers can cache an address of the Router: its TTL, or the TTL from before it was lowered,
/// plus the TTL of the records that point to the name.
pub fn held_by_caches(router: &RouterTarget, now: Timestamp) -> Duration {
    let before = router.ttl_horizon.and_then(|horizon| Duration::try_from(horizon.duration_since(now)).ok());
    Duration::from_secs(router.ttl.into()).max(before.unwrap_or_default()) + POINTERS_TTL
}

impl Binder {
    /// Moves a route as planned, while `term` lasts.
    pub(super) async fn move_route(&self, plan: &Plan, leaving: &MoveSource, term: &Term) -> kube::Result<Outcome> {
        let namespace = plan.key.namespace();
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), namespace);
        for _ in 0..=CHANGES_MAX {
            if !term.is_current() {
                return Ok(Outcome::Deposed);
            }
            let Some(binding) = bindings.get_opt(&plan.key.name).await? else { return Ok(Outcome::Changed) };
            let is_its = *plan.route.uid == *binding.spec.route_uid;
            let is_there = binding.spec.router == plan.placement.router && binding.spec.dns == plan.placement.dns;
            if is_its && is_there {
                return Ok(Outcome::AlreadyBound);
            }
            if !is_its || binding.spec.router != leaving.router {
                return Ok(Outcome::Changed);
            }
            let current = self.current_route(plan).await?.filter(|(route, _)| route.decides_as(&plan.route));
            let Some((_, version)) = current else { return Ok(Outcome::Changed) };
            let now = Timestamp::now();
            let Some(mut moved) = moved(binding, plan, leaving, now) else {
                let error = format!("its name below {} would be longer than 253 octets", plan.placement.dns);
                return Ok(Outcome::failed(error));
            };
            moved.spec.route_resource_version = version;
            fence(&mut moved, term);
            match bindings.replace(&plan.key.name, &PostParams::default(), &moved).await {
                Ok(_) => return Ok(Outcome::Moved),
                Err(kube::Error::Api(status)) if is_fenced(&status) => return Err(kube::Error::Api(status)),
                // One of the two has changed since it was read.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Outcome::Changed)
    }
}

/// Returns the binding after the move; `None` if the name would be too long. The zone of the target loses any former name of the
/// route. The zone that the route leaves gets one for its time, from now on, or from when it cannot make a loop and the instances
/// of the Router serve the Route.
fn moved(mut binding: RouteBinding, plan: &Plan, leaving: &MoveSource, now: Timestamp) -> Option<RouteBinding> {
    let spec = &mut binding.spec;
    let former = names::system_name(&spec.label, &spec.dns)?;
    let system = names::system_name(&spec.label, &plan.placement.dns)?;
    // Whether resolvers may cache that the new name is a CNAME.
    let has_led = spec.former_names.iter().any(|one| one.name == system && one.from.is_none());
    // Whether all names still lead to the new Router, because the Route has left it and the other one does not serve it yet.
    let still_leads = spec.former_names.iter().any(|one| one.name == system && one.from.is_some());
    spec.former_names.retain(|one| one.name != system && one.name != former);
    let to_another = former != system;
    if let Some(lasts) = leaving.former_name.filter(|_| to_another) {
        let since = Time(now);
        let until = Time(later(now, if has_led { lasts + PENDING } else { lasts }));
        spec.former_names.push(FormerName { name: former, router: spec.router.clone(), since, from: None, until });
    }
    if !still_leads && (has_led || leaving.to_instances) {
        // The others keep their earlier target. Instances are waited for when the time has come.
        let from = if has_led { later(now, PENDING) } else { now };
        let at = spec.former_names.iter().position(|one| one.from.is_some());
        let last_left = match at {
            Some(at) => spec.former_names.get_mut(at),
            None => spec.former_names.last_mut().filter(|one| one.since.0 == now),
        };
        if let Some(former_name) = last_left {
            former_name.until = Time(former_name.until.0.max(from));
            former_name.from = Some(Time(from));
        }
    } else if to_another {
        spec.former_names.iter_mut().for_each(|one| one.from = None);
    }
    while spec.former_names.len() > FORMER_NAMES_MAX {
        let oldest = spec.former_names.iter().position(|one| one.from.is_none()).unwrap_or(0);
        spec.former_names.remove(oldest);
    }
    let alias = spec.names.iter().find(|name| name.kind == NameKind::Alias).map(|name| name.name.clone());
    for name in &mut spec.names {
        match name.kind {
            NameKind::System => name.name.clone_from(&system),
            NameKind::Custom | NameKind::Adopted => {
                let (is_adopted, alias) = (plan.route.adopted.is_some(), alias.as_deref().unwrap_or_default());
                *name = host_name(&name.name, is_adopted, &plan.placement.dns, alias);
            }
            NameKind::Alias => {}
        }
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use proptest::prelude::*;
    use serde_json::json;

    use crate::client::reflector::ObjectKey;
    use crate::compiler::inputs::BindingInput;
    use crate::scheduler::decision::Placement;
    use crate::scheduler::filter::tests::router;
    use crate::scheduler::requests::MoveReason;

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
            version: "7".into(),
            host_is_own: false,
            leaving: None,
            placement: Placement {
                router: format!("s{shard}"),
                dns: format!("s{shard}.v3.example"),
                strategy: "move",
                explanation: Default::default(),
            },
            labels_kept: None,
            hosts_kept: None,
            is_label_refused: false,
        }
    }

    fn leaving(former_name: Option<Duration>) -> MoveSource {
        MoveSource { router: String::new(), reason: MoveReason::Asked, former_name, to_instances: false }
    }

    /// The name that the Route has left stays the target until the instances of its Router have reported.
    #[test]
    fn instances_are_waited_for() {
        let day = Some(Duration::from_secs(86_400));
        let to_instances = MoveSource { to_instances: true, ..leaving(day) };
        let moved = moved(binding(1), &to(2), &to_instances, at(1000)).expect("short");
        let read = BindingInput::read(&moved, &mut Vec::new()).expect("it has an alias");
        assert_eq!((read.target(), read.former_names.len()), ("s1.v3.example", 0));
        assert_eq!(moved.spec.former_names[0].from, Some(Time(at(1000))));
        // Back before they have reported: no name leads to the Router that never served it.
        let back = super::moved(moved, &to(1), &to_instances, at(1010)).expect("short");
        let read = BindingInput::read(&back, &mut Vec::new()).expect("it has an alias");
        let former: Vec<_> = back.spec.former_names.iter().map(|one| (&*one.name, one.from.is_some())).collect();
        assert_eq!((read.target(), former), ("s1.v3.example", vec![("ns-app.s2.v3.example", false)]));
    }

    #[test]
    fn there_and_back_again() {
        let day = Some(Duration::from_secs(86_400));
        let there = moved(binding(1), &to(2), &leaving(day), at(1000)).expect("short");
        assert_eq!((there.spec.router.as_str(), there.spec.dns.as_str()), ("s2", "s2.v3.example"));
        assert_eq!(there.spec.names[0].name, "ns-app.s2.v3.example");
        assert_eq!(there.spec.names[1].name, "ns-app.routes.v3.example", "the alias stays");
        let listed: Vec<_> = there.spec.former_names.iter().map(|one| (one.name.as_str(), one.until.0)).collect();
        assert_eq!(listed, [("ns-app.s1.v3.example", at(87_400))]);
        let back = moved(there.clone(), &to(1), &leaving(day), at(2000)).expect("short");
        let listed = |binding: &RouteBinding| -> Vec<_> {
            let of = |one: &FormerName| (one.name.clone(), one.from.as_ref().map(|from| from.0.as_second()));
            binding.spec.former_names.iter().map(of).collect()
        };
        let s = |shard: u8, from| (format!("ns-app.s{shard}.v3.example"), from);
        assert_eq!(
            listed(&back),
            [s(2, Some(2040))],
            "where it is there is no former name, and the other begins later"
        );
        assert_eq!(back.spec.former_names[0].until.0, at(88_440), "it lasts as long as any");
        // Back there again: the name of s2 was never a CNAME, so it is a target immediately.
        assert_eq!(listed(&moved(back.clone(), &to(2), &leaving(day), at(2010)).expect("short")), [s(1, None)]);
        // Elsewhere: no name there is a CNAME, so all point there immediately.
        assert_eq!(listed(&moved(back, &to(3), &leaving(day), at(2010)).expect("short")), [s(2, None), s(1, None)]);
        // The full circle: the others point to the last target, and keep doing so until that is on another of them.
        let third = moved(there.clone(), &to(3), &leaving(day), at(2000)).expect("short");
        assert_eq!(listed(&third), [s(1, None), s(2, None)]);
        let round = moved(third, &to(1), &leaving(day), at(3000)).expect("short");
        assert_eq!(listed(&round), [s(2, None), s(3, Some(3040))]);
        let again = moved(round, &to(2), &leaving(day), at(3010)).expect("short");
        assert_eq!(listed(&again), [s(3, Some(3050)), s(1, None)]);
        let gone = moved(there.clone(), &to(3), &leaving(None), at(2000)).expect("short");
        assert_eq!(gone.spec.former_names.len(), 1, "the zone that it left is gone; the other former name stays");
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
        /// Any number of moves: no former name is the current name, none is there twice, and they do not exceed the API's
        /// limit.
        #[test]
        fn former_names_are_former_names(moves in proptest::collection::vec((0_u8..24, 1_i64..40, 0_u64..400), 1..80)) {
            let mut binding = binding(0);
            let mut now = 1000;
            for (shard, pause, former_name) in moves {
                now += pause;
                let left = binding.spec.dns.clone();
                binding = moved(binding, &to(shard), &leaving(Some(Duration::from_secs(former_name))), at(now)).expect("short");
                let own = format!("ns-app.{}", binding.spec.dns);
                let names: BTreeSet<_> = binding.spec.former_names.iter().map(|former_name| &former_name.name).collect();
                prop_assert_eq!(names.len(), binding.spec.former_names.len());
                prop_assert!(names.len() <= FORMER_NAMES_MAX && !names.contains(&own));
                prop_assert_eq!(&binding.spec.names[0].name, &own);
                let former = format!("ns-app.{left}");
                prop_assert!(former == own || names.contains(&former));
                prop_assert!(binding.spec.former_names.iter().filter(|one| one.from.is_some()).count() <= 1);
            }
        }

        /// Any number of moves among few Routers, and any cached records within the TTL of a former name, resolution
        /// terminates.
        #[test]
        fn no_mixture_of_old_and_new_is_a_loop(moves in proptest::collection::vec((0_u8..4, 0_i64..50), 1..40)) {
            let ttl = i64::try_from(POINTERS_TTL.as_secs()).expect("small");
            let mut binding = binding(0);
            let mut now = 1000;
            // The earlier targets of each name, and the times until which resolvers can cache them.
            let mut held: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
            for (shard, pause) in moves {
                for _ in 0..pause {
                    now += 1;
                    for former_name in &mut binding.spec.former_names {
                        former_name.from = former_name.from.take().filter(|from| from.0 > at(now));
                    }
                    hold(&mut held, &binding, now + ttl);
                }
                binding = moved(binding, &to(shard), &leaving(Some(Duration::from_secs(90_000))), at(now)).expect("short");
                hold(&mut held, &binding, now + ttl);
                held.values_mut().for_each(|targets| targets.retain(|_, until| *until > now));
                held.retain(|_, targets| !targets.is_empty());
                // Repeatedly removing names without a cached CNAME to another one removes all names.
                let mut left = held.clone();
                while let Some(end) = left.iter().find(|(_, to)| to.keys().all(|to| !left.contains_key(to))) {
                    let end = end.0.clone();
                    left.remove(&end);
                }
                prop_assert!(left.is_empty(), "{left:?} after {binding:?}");
            }
        }
    }

    /// Records the served former names of a binding.
    fn hold(held: &mut BTreeMap<String, BTreeMap<String, i64>>, binding: &RouteBinding, until: i64) {
        let read = BindingInput::read(binding, &mut Vec::new()).expect("it has an alias");
        let zone = read.target();
        for left in &read.former_names {
            let name = format!("{}.{}", read.label, left.to_string().trim_end_matches('.'));
            held.entry(name).or_default().insert(format!("{}.{zone}", read.label), until);
        }
    }
}
