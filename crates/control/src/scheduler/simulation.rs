//! Simulation of the scheduler: its own decisions, applied to a copy of the platform instead of the API.
//!
//! A [`Simulation`] is created from the current objects, can be changed (a Router added, drained, weighted), and then predicts
//! the Router of each route. It uses the scheduler's decision function in the same order, so for the built-in strategies, the
//! scheduler decides as predicted if nothing else happens meanwhile. The simulation does not call webhooks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use tokio::time::Instant;

use super::bind::{is_label_refused, labels, names_kept};
use super::decision::{Placement, decide, decide_adopted, decide_requested, stays_adopted};
use super::filter::{FitError, HostLeader, PlacementRequest};
use super::snapshot::{Shard, Snapshot};
use super::strategy::Strategy;
use crate::client::reflector::ObjectKey;
use crate::put::Put as _;
use crate::world::router::RouterTarget;
use crate::world::{BindingInfo, NamespaceInfo, Quarantined, RouteInfo};
use signpost_types::names::{self, LabelRules, is_at_or_below, takes_names_of};
use signpost_types::v1alpha1::name_claim::{ClaimKind, NameClaim};
use signpost_types::v1alpha1::route::{ADMITTED, Route};
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::{Router, RouterState};

/// A copy of the platform.
pub struct Simulation {
    domain: String,
    now: Instant,
    snapshot: Snapshot,
    namespaces: HashMap<String, NamespaceInfo>,
    routes: BTreeMap<ObjectKey, RouteInfo>,
    /// The reasons why routes are not admitted: their condition `Admitted`, if that is false.
    refused: BTreeMap<ObjectKey, FitError>,
    bindings: BTreeMap<ObjectKey, BindingInfo>,
    /// The Routes of each custom host, in lower case, the first one first.
    hosts: HashMap<String, Vec<ObjectKey>>,
    /// The labels of these, in lower case.
    labels: HashSet<String>,
    /// Labels in quarantine, and whose they were.
    kept: HashMap<String, QuarantinedLabel>,
    quarantined: Quarantined,
    quarantined_max: u32,
    label_rules: LabelRules,
}

struct QuarantinedLabel {
    holder: ObjectKey,
    until: Timestamp,
}

/// The predicted result for one route.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The Route's key.
    pub key: ObjectKey,
    /// The current Router, if there is one.
    pub from: Option<String>,
    /// The predicted Router, or the reason why there is none.
    pub outcome: Result<Placement, FitError>,
}

impl Simulation {
    /// Returns a platform without objects, of this domain. `now` is the time of all events in it.
    pub fn new(domain: &str, now: Instant) -> Self {
        Simulation {
            domain: domain.to_owned(),
            now,
            snapshot: Snapshot::default(),
            namespaces: HashMap::new(),
            routes: BTreeMap::new(),
            refused: BTreeMap::new(),
            bindings: BTreeMap::new(),
            hosts: HashMap::new(),
            labels: HashSet::new(),
            kept: HashMap::new(),
            quarantined: Quarantined::default(),
            quarantined_max: u32::MAX,
            label_rules: LabelRules::default(),
        }
    }

    /// Reserves these labels, so that no Route gets them.
    pub fn with_reserved_labels(mut self, reserved: Vec<String>) -> Self {
        self.label_rules.reserved = reserved;
        self
    }

    /// Sets the number of labels in quarantine from which a namespace gets no new one.
    pub fn with_quarantined_max(mut self, most: u32) -> Self {
        self.quarantined_max = most;
        self
    }

    /// Adds a NameClaim, which matters for a label in quarantine, and for a host.
    pub fn set_claim(&mut self, claim: NameClaim) {
        let spec = claim.spec;
        if spec.kind == ClaimKind::Host && spec.released_at.is_none() {
            let holders = spec.holders().into_iter();
            let routes = holders.map(|holder| ObjectKey::namespaced(&holder.namespace, &holder.name)).collect();
            self.hosts.insert(spec.value.to_ascii_lowercase(), routes);
        }
        if let Some(until) = spec.quarantine_until.filter(|_| spec.kind == ClaimKind::Label) {
            self.quarantined.add((ClaimKind::Label, spec.holder.namespace.as_str().into()));
            let holder = ObjectKey::namespaced(&spec.holder.namespace, &spec.holder.name);
            self.kept.insert(spec.value.to_ascii_lowercase(), QuarantinedLabel { holder, until: until.0 });
        }
    }

    /// Adds a Router, or replaces the Router of that name.
    pub fn set_router(&mut self, router: Router) {
        self.snapshot.set_router(RouterTarget::read(&router, &self.domain, Vec::new()));
    }

    /// Changes a Router; whether it is there.
    pub fn edit_router(&mut self, name: &str, edit: impl FnOnce(&mut RouterTarget)) -> bool {
        let Some((router, _)) = self.snapshot.router(name) else { return false };
        let mut router = router.clone();
        edit(&mut router);
        self.snapshot.set_router(router);
        true
    }

    /// Removes a Router. Routes bound to it stay bound, as on the platform.
    pub fn remove_router(&mut self, name: &str) {
        self.snapshot.remove_router(name);
    }

    /// Adds a Namespace.
    pub fn set_namespace(&mut self, namespace: Namespace) {
        let name = namespace.metadata.name.clone().unwrap_or_default();
        self.namespaces.insert(name, NamespaceInfo::from(namespace));
    }

    /// Adds a Route.
    pub fn set_route(&mut self, route: Route) {
        let key = key_of(route.metadata.namespace.as_deref(), route.metadata.name.as_deref());
        self.refused.put(key.clone(), refusal(&route));
        self.routes.insert(key, RouteInfo::new(&route));
    }

    /// Adds a RouteBinding.
    pub fn set_binding(&mut self, binding: RouteBinding) {
        let key = key_of(binding.metadata.namespace.as_deref(), binding.metadata.name.as_deref());
        let binding = BindingInfo::new(&binding);
        self.snapshot.bound(&key, &binding);
        self.labels.insert(binding.label.to_ascii_lowercase());
        self.bindings.insert(key, binding);
    }

    /// Returns the Routers by name, with their routes.
    pub fn routers(&self) -> impl Iterator<Item = (&RouterTarget, &Shard)> {
        self.snapshot.routers()
    }

    /// Returns the Router of this name, with its routes.
    pub fn router(&self, name: &str) -> Option<(&RouterTarget, &Shard)> {
        self.snapshot.router(name)
    }

    pub fn route(&self, key: &ObjectKey) -> Option<&RouteInfo> {
        self.routes.get(key)
    }

    /// Returns the actual or predicted binding of a Route.
    pub fn bound(&self, key: &ObjectKey) -> Option<&BindingInfo> {
        self.bindings.get(key)
    }

    /// Moves a route to the Router `to`, as its annotation would, and those with the same host that follow it; `None` if there is no
    /// such route. The first step is that of the route.
    pub fn move_route(&mut self, key: &ObjectKey, to: &str) -> Option<Vec<Step>> {
        let decide = |request: &PlacementRequest<'_>, snapshot: &Snapshot| decide_requested(request, snapshot, to);
        let step = self.step(key, decide)?;
        let host = self.routes.get(key).filter(|_| step.outcome.is_ok()).and_then(|route| route.host.clone());
        let followers = host.map(|host| self.followers(key, &host)).unwrap_or_default();
        Some(std::iter::once(step).chain(followers.iter().filter_map(|key| self.step(key, decide))).collect())
    }

    /// Returns the Routes of a namespace that have a host, the first one first.
    fn routes_of<'a>(&'a self, key: &'a ObjectKey, host: &str) -> impl Iterator<Item = &'a ObjectKey> {
        let routes = self.hosts.get(&host.to_ascii_lowercase());
        routes.into_iter().flatten().filter(|other| other.namespace == key.namespace)
    }

    /// Returns the Route that decides the Router of the Routes with a host, as the scheduler does.
    fn host_leader(&self, key: &ObjectKey, host: &str) -> Option<HostLeader> {
        let (leader, binding) = self.routes_of(key, host).find_map(|other| Some((other, self.bindings.get(other)?)))?;
        (leader != key).then(|| HostLeader { name: leader.name.clone(), router: binding.router.to_string() })
    }

    fn followers(&self, key: &ObjectKey, host: &str) -> Vec<ObjectKey> {
        let others = self.routes_of(key, host).filter(|other| *other != key && self.bindings.contains_key(*other));
        others.cloned().collect()
    }

    /// Moves all routes away from the Routers that are draining.
    pub fn drain(&mut self, strategy: &dyn Strategy) -> Vec<Step> {
        self.drain_those(strategy, |_| true)
    }

    /// Moves all routes away from the Router `name` if it is draining, and none from others that are.
    pub fn drain_router(&mut self, name: &str, strategy: &dyn Strategy) -> Vec<Step> {
        self.drain_those(strategy, |router| router == name)
    }

    fn drain_those(&mut self, strategy: &dyn Strategy, which: impl Fn(&str) -> bool) -> Vec<Step> {
        let drains = |name: &str| {
            which(name) && self.router(name).is_some_and(|(router, _)| router.state == RouterState::Draining)
        };
        let on = self.bindings.iter().filter(|(_, bound)| drains(&bound.router));
        let mut keys: Vec<ObjectKey> = on.map(|(key, _)| key.clone()).collect();
        // Routes with one host follow the first one.
        keys.sort_by_key(|key| {
            let host = self.routes.get(key).and_then(|route| route.host.as_deref());
            host.is_some_and(|host| self.host_leader(key, host).is_some())
        });
        let decide = |request: &PlacementRequest<'_>, snapshot: &Snapshot| decide(request, snapshot, strategy, None);
        keys.iter().filter_map(|key| self.step(key, decide)).collect()
    }

    /// Places the routes that have no Router, the oldest first. Routes with a host that is not admitted stay unplaced: a
    /// simulation does not check hosts, and uses their condition.
    pub fn place(&mut self, strategy: &dyn Strategy) -> Vec<Step> {
        let without = self.routes.iter().filter(|(key, route)| !route.deleting && !self.bindings.contains_key(*key));
        let mut keys: Vec<(i64, ObjectKey)> = without.map(|(key, route)| (route.created, key.clone())).collect();
        keys.sort_unstable();
        let decide = |request: &PlacementRequest<'_>, snapshot: &Snapshot| decide(request, snapshot, strategy, None);
        keys.iter().filter_map(|(_, key)| self.step(key, decide)).collect()
    }

    /// Returns the label that a route without one would get, according to bindings and quarantine, or, as an error, the number of
    /// labels in quarantine that prevent a new one.
    fn label(&self, key: &ObjectKey, route: &RouteInfo, host_is_own: bool) -> Result<String, u32> {
        let namespace = key.namespace();
        let tried = if host_is_own { 1 } else { usize::MAX };
        let now = Timestamp::now();
        let subdomain = route.subdomain.as_deref();
        let is_refused = is_label_refused(&self.label_rules, key, subdomain, |name| self.namespaces.contains_key(name));
        for label in labels(namespace, &key.name, subdomain, is_refused).into_iter().take(tried) {
            let label = label.to_ascii_lowercase();
            match self.kept.get(&label) {
                Some(kept) if kept.holder == *key || kept.until <= now => return Ok(label),
                Some(_) => {}
                None if self.labels.contains(&label) => {}
                None => {
                    let most = self.quarantined.full(ClaimKind::Label, namespace, self.quarantined_max);
                    return most.map_or(Ok(label), Err);
                }
            }
        }
        // All labels are others': the claim attempt detects that.
        Ok(names::wanted_label(namespace, &key.name, subdomain))
    }

    fn step(
        &mut self,
        key: &ObjectKey,
        decide: impl Fn(&PlacementRequest<'_>, &Snapshot) -> Result<Placement, FitError>,
    ) -> Option<Step> {
        let route = self.routes.get(key)?;
        let from = self.bindings.get(key).cloned();
        let leaving = from.as_ref().map(|from| &*from.router);
        let step = |outcome| Some(Step { key: key.clone(), from: leaving.map(str::to_owned), outcome });
        let unknown = NamespaceInfo::default();
        let namespace = self.namespaces.get(key.namespace()).unwrap_or(&unknown);
        if route.deleting || namespace.terminating {
            let what = if route.deleting { "it" } else { "its namespace" };
            return step(Err(FitError { reason: "Deleting", message: format!("{what} is being deleted") }));
        }
        // One that has a Router was judged before.
        if let Some(refusal) = self.refused.get(key).filter(|_| from.is_none()) {
            return step(Err(refusal.clone()));
        }
        let is_platform_name = |host: &&str| {
            takes_names_of(host, &self.domain)
                || self.snapshot.routers().any(|(router, _)| takes_names_of(host, &router.dns))
        };
        let platform_host = route.host.as_deref().filter(|_| route.adopted.is_none()).filter(is_platform_name);
        let mut binding = from.clone();
        let shared = route.host.as_deref().filter(|_| platform_host.is_none() && route.adopted.is_none());
        let host_leader = shared.and_then(|host| self.host_leader(key, host));
        let leads = shared.filter(|_| leaving.is_some() && host_leader.is_none());
        let followers = leads.map(|host| self.followers(key, host)).into_iter().flatten();
        let followers = followers.filter_map(|other| Some((other.clone(), Arc::new(self.routes.get(&other)?.clone()))));
        let followers: Vec<_> = followers.collect();
        let request = PlacementRequest {
            platform_host,
            leaving,
            host_leader: host_leader.as_ref(),
            followers: &followers,
            ..PlacementRequest::new(key, route, namespace)
        };
        let decided = match route.adopted.as_deref() {
            None => decide(&request, &self.snapshot),
            Some(adopted) if leaving == Some(&*adopted.router) => Err(stays_adopted(adopted)),
            Some(adopted) => {
                let host = route.host.as_deref().unwrap_or_default();
                let domain = Some(&*self.domain).filter(|domain| is_at_or_below(host, domain));
                decide_adopted(&request, &self.snapshot, adopted, domain)
            }
        };
        let host = shared.map(str::to_ascii_lowercase);
        let outcome = decided.and_then(|placement| {
            if binding.is_none() {
                let label = self.label(key, route, platform_host.is_some()).map_err(|most| {
                    let (reason, message) = names_kept(ClaimKind::Label, most);
                    FitError { reason, message }
                })?;
                let route_uid = route.uid.clone();
                binding = Some(BindingInfo { route_uid, label: label.into(), ..BindingInfo::default() });
            }
            Ok(placement)
        });
        if let (Ok(placement), Some(mut binding)) = (&outcome, binding) {
            self.snapshot.assume(key.clone(), &placement.router, self.now);
            if let Some(routes) = host.map(|host| self.hosts.entry(host).or_default())
                && !routes.contains(key)
            {
                routes.push(key.clone());
            }
            if let Some(before) = &from {
                self.snapshot.unbound(key, before);
            } else if self.labels.insert(binding.label.to_string())
                // A Route that returns from quarantine makes room there.
                && let Some(kept) = self.kept.remove(&*binding.label)
            {
                self.quarantined.remove(&(ClaimKind::Label, kept.holder.namespace().into()));
            }
            (binding.router, binding.dns) = (placement.router.as_str().into(), placement.dns.as_str().into());
            self.bindings.insert(key.clone(), binding);
        }
        step(outcome)
    }
}

/// Returns the reason why a Route is not admitted, from its status.
fn refusal(route: &Route) -> Option<FitError> {
    let conditions = &route.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|found| found.type_ == ADMITTED && found.status == "False")?;
    let known = ["HostAlreadyClaimed", "HostReserved", "HostInPlatformDomain", "OwnershipNotVerified"];
    let reason = known.into_iter().find(|known| *known == condition.reason).unwrap_or("NotAdmitted");
    Some(FitError { reason, message: condition.message.clone() })
}

fn key_of(namespace: Option<&str>, name: Option<&str>) -> ObjectKey {
    ObjectKey::namespaced(namespace.unwrap_or_default(), name.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::strategy::StrategyName;
    use serde_json::{Value, json};

    fn object<T: serde::de::DeserializeOwned>(kind: &str, metadata: Value, spec: Value, status: Value) -> T {
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec,
            "status": status});
        serde_json::from_value(object).expect("an object")
    }

    #[test]
    fn what_is_being_deleted_stays_where_it_is() {
        let mut simulation = Simulation::new("v3.example", Instant::now());
        for (name, state) in [("s1", "draining"), ("s2", "active"), ("s3", "draining")] {
            let spec = json!({"dns": format!("{name}.v3.example"), "addresses": [{"ip": "192.0.2.1"}], "state": state});
            simulation.set_router(object("Router", json!({"name": name}), spec, Value::Null));
        }
        let going: Namespace = serde_json::from_value(json!({"metadata": {"name": "going",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        .expect("a Namespace");
        simulation.set_namespace(going);
        let deleted = json!("2026-01-01T00:00:00Z");
        for (namespace, name, deletion, router) in [
            ("going", "a", Value::Null, "s1"),
            ("shop", "b", deleted, "s1"),
            ("shop", "c", Value::Null, "s1"),
            ("shop", "d", Value::Null, "s3"),
        ] {
            let metadata = json!({"namespace": namespace, "name": name, "uid": name, "deletionTimestamp": deletion});
            simulation.set_route(object("Route", metadata.clone(), json!({}), json!({"phase": "scheduled"})));
            let dns = format!("{router}.v3.example");
            let spec = json!({"routeNamespace": namespace, "routeName": name, "routeUID": name, "router": router, "dns": dns,
                "label": format!("{namespace}-{name}"), "strategy": "weighted", "names": []});
            simulation.set_binding(object("RouteBinding", metadata, spec, Value::Null));
        }
        // Of two draining Routers, the simulation covers one.
        let steps = simulation.drain_router("s1", StrategyName::Weighted.strategy());
        let outcomes: Vec<_> = steps
            .iter()
            .map(|step| match &step.outcome {
                Ok(placement) => (step.key.name.as_str(), placement.router.as_str()),
                Err(error) => (step.key.name.as_str(), error.message.as_str()),
            })
            .collect();
        assert_eq!(outcomes, [("a", "its namespace is being deleted"), ("b", "it is being deleted"), ("c", "s2")]);
        assert_eq!(simulation.router("s1").map(|(_, shard)| shard.routes), Some(2));
        assert_eq!(simulation.router("s3").map(|(router, _)| router.state), Some(RouterState::Draining));
        let asked = simulation.move_route(&ObjectKey::namespaced("shop", "b"), "s2").expect("it is there").remove(0);
        assert_eq!(asked.outcome.expect_err("it is being deleted").reason, "Deleting");
    }

    #[test]
    fn a_namespace_with_too_many_names_in_quarantine_gets_no_new_one() {
        let mut simulation = Simulation::new("v3.example", Instant::now()).with_quarantined_max(2);
        let spec = json!({"addresses": [{"ip": "192.0.2.1"}]});
        simulation.set_router(object("Router", json!({"name": "s1"}), spec, Value::Null));
        let in_quarantine = |namespace: &str, name: &str, until: &str| {
            let label = format!("{namespace}-{name}");
            let holder = json!({"namespace": namespace, "name": name, "uid": "old"});
            let spec = json!({"type": "label", "value": label, "holder": holder, "since": "2020-01-01T00:00:00Z",
                "releasedAt": "2020-01-01T00:00:00Z", "quarantineUntil": until});
            object::<NameClaim>("NameClaim", json!({"name": format!("label-{label}")}), spec, Value::Null)
        };
        for (namespace, name) in [("shop", "back"), ("shop", "other"), ("blog", "one")] {
            simulation.set_claim(in_quarantine(namespace, name, "9999-01-01T00:00:00Z"));
        }
        for (at, (namespace, name, subdomain)) in [
            ("shop", "first", ""),
            ("blog", "new", ""),
            // The Route requests another's label, and so needs a new one.
            ("shop", "second", "shop-other"),
            ("shop", "back", ""),
            ("shop", "third", ""),
        ]
        .into_iter()
        .enumerate()
        {
            let metadata = json!({"namespace": namespace, "name": name, "uid": name,
                "creationTimestamp": format!("2026-01-01T00:00:0{at}Z")});
            simulation.set_route(object("Route", metadata, json!({"subdomain": subdomain}), Value::Null));
        }
        let mut place = || {
            let steps = simulation.place(StrategyName::Weighted.strategy());
            let outcomes = steps.iter().map(|step| {
                (step.key.name.clone(), step.outcome.as_ref().map_or_else(|error| error.reason, |_| "placed"))
            });
            outcomes.collect::<Vec<_>>()
        };
        let outcomes = |outcomes: &[(&str, &'static str)]| -> Vec<_> {
            outcomes.iter().map(|(name, outcomes)| ((*name).to_owned(), *outcomes)).collect()
        };
        let kept = "NamesInQuarantine";
        // A returning Route makes room for the next one.
        let expected = [("first", kept), ("new", "placed"), ("second", kept), ("back", "placed"), ("third", "placed")];
        assert_eq!(place(), outcomes(&expected));
        assert_eq!(
            place(),
            outcomes(&[("first", "placed"), ("second", "placed")]),
            "one is in quarantine, and two may be"
        );
        let label =
            |name: &str| simulation.bound(&ObjectKey::namespaced("shop", name)).map(|bound| bound.label.clone());
        assert_eq!(label("back").as_deref(), Some("shop-back"));
        assert!(label("second").is_some_and(|label| label.starts_with("shop-other-")));
    }

    #[test]
    fn reserved_labels_are_those_of_the_platform() {
        for (reserved, login, billing) in [(None, false, true), (Some("billing"), true, false)] {
            let mut simulation = Simulation::new("v3.example", Instant::now());
            if let Some(reserved) = reserved {
                simulation = simulation.with_reserved_labels(vec![reserved.to_owned()]);
            }
            let spec = json!({"addresses": [{"ip": "192.0.2.1"}]});
            simulation.set_router(object("Router", json!({"name": "s1"}), spec, Value::Null));
            for name in ["login", "billing"] {
                let metadata = json!({"namespace": "shop", "name": name, "uid": name,
                    "creationTimestamp": "2026-01-01T00:00:00Z"});
                simulation.set_route(object("Route", metadata, json!({"subdomain": name}), Value::Null));
            }
            simulation.place(StrategyName::Weighted.strategy());
            let is_whole = |name: &str| {
                simulation.bound(&ObjectKey::namespaced("shop", name)).is_some_and(|bound| *bound.label == *name)
            };
            assert_eq!((is_whole("login"), is_whole("billing")), (login, billing), "{reserved:?}");
        }
    }

    #[test]
    fn a_route_that_is_refused_takes_no_room() {
        let mut simulation = Simulation::new("v3.example", Instant::now());
        let spec = json!({"addresses": [{"ip": "192.0.2.1"}], "capacity": {"hard": 1}});
        simulation.set_router(object("Router", json!({"name": "s1"}), spec, Value::Null));
        let refused = json!({"conditions": [{"type": "Admitted", "status": "False", "reason": "HostAlreadyClaimed",
            "message": "another has it", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let at = |name: &str, hour: u32| {
            json!({"namespace": "shop", "name": name, "uid": name,
            "creationTimestamp": format!("2026-01-01T0{hour}:00:00Z")})
        };
        simulation.set_route(object("Route", at("first", 1), json!({"host": "www.shop.example"}), refused));
        simulation.set_route(object("Route", at("second", 2), json!({}), Value::Null));
        let steps = simulation.place(StrategyName::Weighted.strategy());
        let error = steps[0].outcome.as_ref().expect_err("it is refused");
        assert_eq!((error.reason, error.message.as_str()), ("HostAlreadyClaimed", "another has it"));
        assert_eq!(steps[1].outcome.as_ref().map(|placement| placement.router.as_str()), Ok("s1"));
        assert_eq!(simulation.router("s1").map(|(_, shard)| shard.routes), Some(1));
        let asked = simulation.move_route(&ObjectKey::namespaced("shop", "first"), "s1").expect("it is there");
        assert!(asked[0].outcome.is_err(), "nor is it placed by hand");
    }

    #[test]
    fn routes_with_one_host_stay_together() {
        let mut simulation = Simulation::new("v3.example", Instant::now());
        for name in ["s1", "s2", "s3"] {
            let spec = json!({"dns": format!("{name}.v3.example"), "addresses": [{"ip": "192.0.2.1"}]});
            simulation.set_router(object("Router", json!({"name": name}), spec, Value::Null));
        }
        let host = "www.shop.example";
        for (name, path) in [("z-first", "/"), ("api", "/api"), ("new", "/new")] {
            let metadata = json!({"namespace": "shop", "name": name, "uid": name});
            let spec = json!({"host": host, "path": path});
            simulation.set_route(object("Route", metadata.clone(), spec, json!({"phase": "scheduled"})));
            if name != "new" {
                let spec = json!({"routeNamespace": "shop", "routeName": name, "routeUID": name, "router": "s1",
                    "dns": "s1.v3.example", "label": format!("shop-{name}"), "strategy": "weighted", "names": []});
                simulation.set_binding(object("RouteBinding", metadata, spec, Value::Null));
            }
        }
        let spec = json!({"type": "host", "value": host, "since": "2026-01-01T00:00:00Z",
            "holder": {"namespace": "shop", "name": "z-first", "uid": "z-first"},
            "sharers": [{"name": "api", "uid": "api", "path": "/api"}]});
        simulation.set_claim(object("NameClaim", json!({"name": "host.x"}), spec, Value::Null));
        let key = |name: &str| ObjectKey::namespaced("shop", name);
        let results = |steps: Vec<Step>| -> Vec<(String, String)> {
            let result = |step: Step| (step.key.name, step.outcome.map_or_else(|error| error.message, |to| to.router));
            steps.into_iter().map(result).collect()
        };
        let expected = |steps: &[(&str, &str)]| -> Vec<(String, String)> {
            steps.iter().map(|(name, to)| ((*name).to_owned(), (*to).to_owned())).collect()
        };
        assert_eq!(results(simulation.place(StrategyName::LeastRoutes.strategy())), expected(&[("new", "s1")]));
        let alone = simulation.move_route(&key("api"), "s2").expect("it is there");
        let message = "Router s2, requested by signpost.dev/move-to, is not the Router of Route z-first, which decides for all \
                       Routes with the host";
        assert_eq!(results(alone), expected(&[("api", message)]));
        let moved = simulation.move_route(&key("z-first"), "s2").expect("it is there");
        assert_eq!(results(moved), expected(&[("z-first", "s2"), ("api", "s2"), ("new", "s2")]));
        simulation.edit_router("s2", |router| router.state = RouterState::Draining);
        simulation.edit_router("s1", |router| router.state = RouterState::Cordoned);
        let drained = results(simulation.drain(StrategyName::Weighted.strategy()));
        assert_eq!(drained, expected(&[("z-first", "s3"), ("api", "s3"), ("new", "s3")]));
    }
}
