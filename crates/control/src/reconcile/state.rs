//! The state of the reconciler, and the resulting actions. Pure except for the stores that it reads.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::claim::{self, Step};
use super::{Key, Settings};
use crate::client::reflector::{ObjectKey, Store};
use crate::compiler;
use crate::deletion_hold::keep::CHECK_AGAIN;
use crate::hash::hash_of;
use crate::status::route::{self, Change, Hold, Inputs, Placement};
use crate::status::router::{self, Load};
use crate::status::table::ConditionInputs;
use crate::world::binding::FormerNameInfo;
use crate::world::objects::Objects;
use crate::world::observations::{Observations, RouterFindings};
use crate::world::owners::Owners;
use crate::world::parents::FormerDomains;
use crate::world::{BindingInfo, ClaimInfo, RouteInfo, RouterInfo, later};
use signpost_dns::wire::Name;
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::instance::InstanceReport;
use signpost_types::names::{host_claim_name, is_at_or_below, is_below, label_claim_name, wildcards_above};
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::name_claim::{ClaimKind, HOLDERS_MAX};
use signpost_types::v1alpha1::route::{CERTIFICATE_READY, PROGRAMMED, PUBLISHED, RESOLVED_REFS};
use signpost_types::v1alpha1::router::{Instance, InstanceState};

/// The interval of checks of a moved Route until instances serve it.
const INSTANCES_INTERVAL: Duration = Duration::from_millis(100);
/// The longest wait for instances; then the names point to the Router anyway, because the former one may be shut down.
const INSTANCES_LONGEST: Duration = Duration::from_secs(60);

/// The objects of the informers, the findings, and the index of both.
pub(super) struct Planner {
    pub platform: Arc<compiler::Settings>,
    pub objects: Objects,
    pub owners: Owners,
    pub deletion_holds: Store<DeletionHold>,
    pub instances: Store<Option<InstanceReport>>,
    pub observations: Arc<Observations>,
    pub former_domains: FormerDomains,
    pub index: Index,
}

pub(super) type FormerNameKey = (Arc<str>, Arc<str>, Timestamp, ObjectKey);

/// The relations between objects, updated with the changes that the reconciler handles.
#[derive(Default)]
pub(super) struct Index {
    /// The claims that a Route holds or held last, by the hash of its namespace and name, because there can be 100,000. A claim
    /// of another Route with the same hash is checked in vain.
    pub claims_of: BTreeSet<(u64, Box<str>)>,
    /// The number of routes of each Router.
    pub counts: HashMap<Arc<str>, u32>,
    /// The former names of Routes: their Router, zone and end, and the Route.
    pub former_names: BTreeSet<FormerNameKey>,
    /// The bound Routes that do not have their host, with that.
    pub without_host: BTreeMap<ObjectKey, String>,
    /// The Routes that are being deleted.
    pub deleting: HashSet<ObjectKey>,
    /// The number of RouteBindings that deletion holds keep.
    pub held: u32,
    /// The time at which each Route without a Router was first seen, by the hash of its key: the times serve a metric, and
    /// thousands can arrive at a time, so their texts are not stored.
    pub appeared: HashMap<u64, Instant>,
}

/// The action for a key.
pub(super) enum Plan {
    /// Nothing.
    Done,
    /// Check again, not before this time.
    LookAgain(Duration),
    Act(Box<Action>),
}

impl Plan {
    fn act(action: Action) -> Self {
        Self::Act(Box::new(action))
    }
}

/// The actions: each is one write, and safe to repeat.
pub enum Action {
    /// Takes this step of a claim.
    SettleClaim(String, Step),
    /// Claims the host of the Route with this uid for it again.
    Reclaim(ObjectKey, String),
    /// Ends and begins former names, and renames aliases of a former domain.
    SettleNames(ObjectKey),
    /// Deletes a binding that has no Route.
    ClearBinding(ObjectKey),
    /// Changes the status of a Route.
    WriteRoute { key: ObjectKey, change: Change },
    /// Updates the status of a Router.
    WriteRouter { name: String, load: Load, findings: RouterFindings },
}

impl Planner {
    /// Returns the action for a key, by the state at `now`.
    pub fn plan(&self, key: &Key, settings: &Settings, now: Timestamp) -> Plan {
        match key {
            Key::Claim(name) => self.plan_claim(name, settings, now),
            Key::Binding(key) => {
                let route = self.objects.routes.get(key);
                if self.owners.keeps_route(key) {
                    return Plan::LookAgain(CHECK_AGAIN);
                }
                let is_stray = |binding: &BindingInfo| claim::is_stray(binding, route.as_deref());
                match self.objects.bindings.get(key).is_some_and(|binding| !binding.deleting && is_stray(&binding)) {
                    true => Plan::act(Action::ClearBinding(key.clone())),
                    false => Plan::Done,
                }
            }
            Key::FormerNames(key) => {
                match self.objects.bindings.get(key).and_then(|binding| binding.former_name_turn()) {
                    None => Plan::Done,
                    Some(turn) if turn <= now && self.waits_for_instances(key, now) => {
                        Plan::LookAgain(INSTANCES_INTERVAL)
                    }
                    Some(turn) if turn <= now => Plan::act(Action::SettleNames(key.clone())),
                    Some(turn) => Plan::LookAgain(Duration::try_from(turn.duration_since(now)).unwrap_or_default()),
                }
            }
            Key::Route(key) => self.plan_route(key, true, settings, now),
            Key::Findings(key) => self.plan_route(key, false, settings, now),
            Key::Router(name) => self.plan_router(name, now),
        }
    }

    /// Returns whether all findings about a Route are about its instances and Services, while nothing is known about its names: it has just
    /// been bound.
    pub fn waits_for_names(&self, key: &ObjectKey) -> bool {
        let is_new = |route: Arc<RouteInfo>| route.conditions.get(PUBLISHED).is_none();
        let findings = self.observations.route(key);
        let of_instances = [PROGRAMMED, CERTIFICATE_READY, RESOLVED_REFS];
        !findings.is_empty()
            && findings.iter().all(|(part, _)| of_instances.contains(&part))
            && self.objects.routes.get(key).is_some_and(is_new)
    }

    /// Returns whether the names of a moved Route must still point to its former name, because the instances of its Router do not
    /// all serve it yet, or not all Routes that share its host.
    fn waits_for_instances(&self, key: &ObjectKey, now: Timestamp) -> bool {
        let Some(binding) = self.objects.bindings.get(key) else { return false };
        let last_left = binding.former_names.iter().find(|former_name| former_name.from.is_some());
        let Some(since) = last_left.and_then(|former_name| former_name.from) else { return false };
        let Some(router) = self.objects.router(&binding.router).filter(|router| router.target.active.has_instances)
        else {
            return false;
        };
        let instances = router.object.status.iter().flat_map(|status| &status.instances);
        let mut serving = instances.filter(|instance| instance.state == InstanceState::Serving).peekable();
        let sharers = self.sharers(key, &binding);
        let newest = sharers.iter().map(|sharer| sharer.turn).fold(binding.turn, u64::max);
        let is_behind = |instance: &Instance| {
            let report = self.instances.get(&ObjectKey::namespaced(AGENT_NAMESPACE, &instance.name));
            report.is_none_or(|report| report.as_ref().as_ref().is_none_or(|report| report.applied_revision < newest))
        };
        let are_apart = sharers.iter().any(|sharer| sharer.router != binding.router);
        later(since, INSTANCES_LONGEST) > now && (are_apart || serving.peek().is_none() || serving.any(is_behind))
    }

    /// Returns the bindings of the other Routes with the host of a Route.
    fn sharers(&self, key: &ObjectKey, binding: &BindingInfo) -> Vec<Arc<BindingInfo>> {
        let host = self.objects.routes.get(key).filter(|_| binding.has_host).and_then(|route| route.host.clone());
        let claim = host.and_then(|host| self.objects.claim(&host_claim_name(&host)));
        let Some(claim) = claim.filter(|claim| claim.released.is_none() && claim.is_shared()) else {
            return Vec::new();
        };
        let others = claim.holders().map(|(other, ..)| other).filter(|other| other != key);
        others.filter_map(|other| self.objects.bindings.get(&other)).collect()
    }

    fn plan_claim(&self, name: &str, settings: &Settings, now: Timestamp) -> Plan {
        let Some(claim) = self.objects.claim(name) else { return Plan::Done };
        if claim.is_kept(|key| self.owners.keeps_route(key)) {
            return Plan::LookAgain(CHECK_AGAIN);
        }
        let binding = self.objects.bindings.get(&claim.holder_key());
        let routes = claim.holders().filter_map(|(key, ..)| self.objects.routes.get(&key).map(|route| (key, route)));
        let routes: HashMap<ObjectKey, Arc<RouteInfo>> = routes.collect();
        let find = |key: &ObjectKey| routes.get(key).map(|route| &**route);
        match claim::next_step(&claim, find, binding.as_deref(), now, settings) {
            Step::Keep => Plan::Done,
            Step::LookAgain(time) => Plan::LookAgain(Duration::try_from(time.duration_since(now)).unwrap_or_default()),
            step => Plan::act(Action::SettleClaim(name.to_owned(), step)),
        }
    }

    fn plan_route(&self, key: &ObjectKey, has_settled: bool, settings: &Settings, now: Timestamp) -> Plan {
        let findings = self.observations.route(key);
        let Some(route) = self.objects.routes.get(key) else {
            // The Route was deleted, and its findings are obsolete.
            self.observations.settle_route(key, &findings);
            return Plan::Done;
        };
        let binding = self.objects.bindings.get(key).filter(|binding| has_settled && binding.route_uid == route.uid);
        let (mut router, mut hold, mut blocking, mut lost) = (None, Hold::Held, Vec::new(), Vec::new());
        let namespace = self.objects.namespace_of(key);
        if let Some(binding) = &binding {
            router = self.objects.router(&binding.router);
            hold = self.hold(key, &route, binding, settings, now);
            (blocking, lost) = self.blocked(binding);
        }
        let placement = binding.as_deref().map(|binding| Placement {
            binding,
            router: router.as_deref(),
            namespace: &namespace.labels,
            hold: &hold,
            blocking: &blocking,
            lost: &lost,
        });
        let reported = route.router.as_deref().and_then(|name| self.objects.router(name));
        let facts = ConditionInputs {
            services: !self.observations.are_services_unknown(),
            verifies_names: settings.verify_names,
            verifies_hosts: settings.verify_hosts,
            ..ConditionInputs::of(&route, reported.as_deref())
        };
        let change = route::route(&route, Inputs { key, placement, findings: &findings, facts });
        if !change.is_empty() {
            return Plan::act(Action::WriteRoute { key: key.clone(), change });
        }
        match route.bound && hold == Hold::Free {
            true => Plan::act(Action::Reclaim(key.clone(), route.uid.to_string())),
            false => Plan::Done,
        }
    }

    /// Returns the Routers that have records at the former names of a Route, and the zones of former names that no Router has.
    fn blocked(&self, binding: &BindingInfo) -> (Vec<String>, Vec<String>) {
        let blocks =
            |router: &str| self.objects.router(router).is_some_and(|router| router.has_records_at(&binding.label));
        let (lost, there): (Vec<_>, Vec<_>) = binding.former_names.iter().partition(|former| self.is_lost(former));
        let blocking = there.iter().filter(|former| blocks(&former.router)).map(|former| former.router.to_string());
        (blocking.collect(), lost.iter().map(|former| former.zone.to_string()).collect())
    }

    /// Returns whether no Router has the zone of a former name any longer.
    fn is_lost(&self, former_name: &FormerNameInfo) -> bool {
        let router = self.objects.router(&former_name.router);
        // Nearly always, the Router still exists. If not, another one may have its zone.
        router.is_none_or(|router| router.has_other_zone(&former_name.zone))
            && !self.objects.routers.all().iter().any(|(_, router)| router.has_zone(&former_name.zone))
    }

    /// Returns the state of a bound Route's host.
    fn hold(
        &self,
        key: &ObjectKey,
        route: &RouteInfo,
        binding: &BindingInfo,
        settings: &Settings,
        now: Timestamp,
    ) -> Hold {
        let Some(host) = route.host.as_deref().filter(|_| binding.has_host) else { return Hold::Held };
        if settings.verify_hosts && route.adopted.is_none() && route.conditions.host_verified() == Some(false) {
            return Hold::Unverified;
        }
        let claim = self.objects.claim(&host_claim_name(host));
        let is_kept = |claim: &ClaimInfo| {
            claim.released.is_none() || claim.is_reserved(now) && claim.namespace() != key.namespace()
        };
        let Some(claim) = claim.filter(|claim| is_kept(claim)) else {
            // The router of an adopted host accepts overlapping hosts of other namespaces.
            return match route.adopted.is_none() && self.has_overlap(key, host, now) {
                true => Hold::Taken(format!("{host} overlaps with a host that a Route of another namespace now holds")),
                false => Hold::Free,
            };
        };
        if claim.namespace() != key.namespace() {
            return Hold::Taken(format!("{host} is now held by a Route of another namespace"));
        }
        // Another uid of the same name, and another path, are stored when the claim is checked.
        if claim.released.is_none() && claim.holders().any(|(holder, ..)| holder == *key) {
            return Hold::Held;
        }
        let path = route.path();
        match claim.holders().find(|(_, _, its)| *its == path) {
            Some((holder, ..)) => {
                Hold::Taken(format!("{host} with the path {path} is now held by Route {}", holder.name))
            }
            None if claim.holders().count() >= HOLDERS_MAX => {
                Hold::Taken(format!("{HOLDERS_MAX} Routes have {host}, the maximum"))
            }
            None => Hold::Free,
        }
    }

    /// Returns whether a Route of another namespace holds a host that overlaps this one. Used only for the few Routes that have
    /// lost theirs.
    fn has_overlap(&self, key: &ObjectKey, host: &str, now: Timestamp) -> bool {
        let is_in_the_way = |claim: &ClaimInfo| {
            claim.kind == ClaimKind::Host
                && (claim.released.is_none() || claim.is_reserved(now))
                && claim.holder_key().namespace != key.namespace
                && claim::overlap(&claim.value, host)
        };
        if host.starts_with("*.") {
            return self.objects.claims.all().iter().any(|(_, claim)| is_in_the_way(claim));
        }
        wildcards_above(host).any(|wildcard| {
            let claim = self.objects.claim(&host_claim_name(&wildcard));
            claim.is_some_and(|claim| is_in_the_way(&claim))
        })
    }

    fn plan_router(&self, name: &str, now: Timestamp) -> Plan {
        let Some(router) = self.objects.router(name) else {
            self.observations.forget_router(name);
            return Plan::Done;
        };
        // A user may wait for `Drained` to delete the Router.
        if router.is_draining() && !self.knows_deletion_holds() {
            return Plan::LookAgain(Duration::ZERO);
        }
        let (load, findings) = (self.load(name), self.observations.router(name));
        match router::router(&router, &load, &findings, &self.platform, now) {
            Some(_) => Plan::act(Action::WriteRouter { name: name.to_owned(), load, findings }),
            None => Plan::Done,
        }
    }

    fn load(&self, router: &str) -> Load {
        let view = self.objects.router(router);
        let is_of_zone = |zone: &str| !view.as_ref().is_some_and(|view| view.has_other_zone(zone));
        let former_names = || self.index.former_names_on(router).filter(|(_, zone, ..)| is_of_zone(zone));
        Load {
            routes: self.index.counts.get(router).copied().unwrap_or(0),
            deleting: self.deleting_on(router),
            former_names: u32::try_from(former_names().count()).unwrap_or(u32::MAX),
            former_names_until: former_names().map(|(.., until, _)| *until).max(),
            held: self.index.held,
            is_name_taken: self.is_name_taken(router),
            former_domain: view.as_ref().and_then(|view| self.former_domains.above(view.zone()?)),
            is_former_name_blocked: self.is_former_name_blocked(router),
            is_inner: view.as_ref().is_some_and(|view| self.is_inner(view)),
            inner_zones: view.as_ref().map(|view| self.inner_zones(view)).unwrap_or_default(),
        }
    }

    /// Returns the zones of other Routers inside that of a Router with records.
    fn inner_zones(&self, router: &RouterInfo) -> BTreeSet<Name> {
        // Nearly no Router has any.
        let shard = router.shard.as_ref().filter(|_| !router.object.spec.records.is_empty());
        let Some(shard) = shard else { return BTreeSet::new() };
        let routers = self.objects.routers.all();
        let zones = routers.iter().filter_map(|(_, other)| Some(other.shard.as_ref()?.apex.clone()));
        let inside: BTreeSet<Name> = zones.filter(|zone| zone.is_below(&shard.apex)).collect();
        // Cuts are not inside one another.
        inside.iter().filter(|zone| !inside.iter().any(|other| zone.is_below(other))).cloned().collect()
    }

    /// Returns whether the Router's zone is outside of the platform's domain and inside that of another one, which delegates it.
    fn is_inner(&self, router: &RouterInfo) -> bool {
        let zone = router.zone().filter(|zone| !is_at_or_below(zone, &self.platform.domain_text()));
        zone.is_some_and(|zone| {
            let is_around = |other: &RouterInfo| other.zone().is_some_and(|other| is_below(zone, other));
            self.objects.routers.all().iter().any(|(_, other)| is_around(other))
        })
    }

    /// Returns whether the DeletionHolds were listed. A cluster with older definitions can lack the kind: then there are none.
    fn knows_deletion_holds(&self) -> bool {
        let health = self.deletion_holds.health();
        health.synced || health.error.is_some()
    }

    /// Returns the number of routes on a draining Router that are being deleted.
    fn deleting_on(&self, router: &str) -> u32 {
        // Nearly always there are none.
        if self.index.deleting.is_empty() || !self.objects.router(router).is_some_and(|one| one.is_draining()) {
            return 0;
        }
        let is_there =
            |key: &&ObjectKey| self.objects.bindings.get(key).is_some_and(|binding| *binding.router == *router);
        u32::try_from(self.index.deleting.iter().filter(is_there).count()).unwrap_or(u32::MAX)
    }

    /// Returns whether there are routes on a Router whose names in its zone have other targets.
    fn is_name_taken(&self, router: &str) -> bool {
        let Some(shard) = self.objects.router(router).and_then(|router| router.shard.clone()) else { return false };
        shard.expectation.all_taken().any(|(label, _)| {
            let claim = self.objects.claim(&label_claim_name(label));
            let binding = claim.and_then(|claim| self.objects.bindings.get(&claim.holder_key()));
            binding.is_some_and(|binding| *binding.router == *router && binding.label.eq_ignore_ascii_case(label))
        })
    }

    /// Returns whether a Router has records at former names of routes.
    fn is_former_name_blocked(&self, router: &str) -> bool {
        let Some(view) = self.objects.router(router).filter(|view| view.record_labels().is_some()) else {
            return false;
        };
        let mut former_names = self.index.former_names_on(router).filter(|(_, zone, ..)| !view.has_other_zone(zone));
        former_names
            .any(|(.., key)| self.objects.bindings.get(key).is_some_and(|binding| view.has_records_at(&binding.label)))
    }
}

impl Index {
    /// Returns the claims that the Route of this key holds, and rarely one of another Route with the same hash.
    pub fn claims_of(&self, key: &ObjectKey) -> Vec<String> {
        let hash = hash_of(key);
        let claims = self.claims_of.range((hash, Box::default())..).take_while(|(of, _)| *of == hash);
        claims.map(|(_, name)| name.to_string()).collect()
    }

    pub fn former_names_on(&self, router: &str) -> impl Iterator<Item = &FormerNameKey> + use<'_> {
        let router: Arc<str> = router.into();
        let from = (Arc::clone(&router), "".into(), Timestamp::MIN, ObjectKey::cluster(""));
        self.former_names.range(from..).take_while(move |(on, ..)| *on == router)
    }

    /// Returns the time at which the Route at `key` was first seen, once.
    pub fn take_appeared(&mut self, key: &ObjectKey) -> Option<Instant> {
        let at = self.appeared.remove(&hash_of(key));
        if self.appeared.is_empty() {
            // After a burst of Routes, the memory is freed.
            self.appeared = HashMap::new();
        }
        at
    }
}

pub(super) fn former_name_key(former: &FormerNameInfo, route: &ObjectKey) -> FormerNameKey {
    (Arc::clone(&former.router), Arc::clone(&former.zone), former.until, route.clone())
}
