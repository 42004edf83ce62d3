//! The filter of Routers that may take a route, with the reasons for rejection.
//!
//! The checks run in a fixed order, starting with deliberate settings, and the first failure is the result: for a cordoned shard,
//! an operator sees only that, not also that it is full.

use std::borrow::Cow;
use std::sync::Arc;

use super::hosts::Hosts;
use super::snapshot::Shard;
use super::strategy::{Candidate, Strategy};
use crate::client::reflector::ObjectKey;
use crate::world::namespace::Quota;
use crate::world::router::{RouterTarget, matches};
use crate::world::{NamespaceInfo, RouteInfo};
use signpost_types::names::{LABEL_OCTETS_MAX, NAME_OCTETS_MAX, is_label_to_have, system_name, wanted_label};
use signpost_types::selectors::unmatched_term;
use signpost_types::v1alpha1::route::QUOTA_ANNOTATION;
use signpost_types::v1alpha1::router::RouterState;

/// The route to be placed, and its inputs.
#[derive(Debug, Clone, Copy)]
pub struct PlacementRequest<'a> {
    /// The Route's key.
    pub key: &'a ObjectKey,
    pub route: &'a RouteInfo,
    /// The Route's Namespace.
    pub namespace: &'a NamespaceInfo,
    /// The platform name that its `spec.host` requests, if any.
    pub platform_host: Option<&'a str>,
    /// The current Router of a route that must move: the route counts against its namespace's quota already.
    pub leaving: Option<&'a str>,
    /// The Route that decides the Router, because it has the same host.
    pub host_leader: Option<&'a HostLeader>,
    /// The routes that follow this one, because they share its host.
    pub followers: &'a [(ObjectKey, Arc<RouteInfo>)],
    /// The hosts of Routes, some of which are in zones of Routers.
    pub hosts: Option<&'a Hosts>,
}

/// The first Route of several with one host. Requests of the host arrive at one Router, so all of them are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLeader {
    /// The name of the Route.
    pub name: String,
    pub router: String,
}

impl<'a> PlacementRequest<'a> {
    /// Returns the request of a Route that has no Router.
    pub fn new(key: &'a ObjectKey, route: &'a RouteInfo, namespace: &'a NamespaceInfo) -> Self {
        let (platform_host, leaving, host_leader, hosts) = (None, None, None, None);
        PlacementRequest { key, route, namespace, platform_host, leaving, host_leader, followers: &[], hosts }
    }

    /// Returns the first follower that `router` may not take, and why.
    fn rejected_follower(&self, router: &RouterTarget, shard: &Shard) -> Option<(&'a ObjectKey, Rejection)> {
        let rejection = |(key, route): &'a (ObjectKey, Arc<RouteInfo>)| {
            let request =
                PlacementRequest { leaving: self.leaving, ..PlacementRequest::new(key, route, self.namespace) };
            Some((key, evaluate(&request, router, shard, None).err()?))
        };
        self.followers.iter().find_map(rejection)
    }
}

/// The reason why a Router may not take a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rejection {
    /// The Router is being deleted.
    Deleting,
    /// A source derived the Router, whose proxies do not get routes from the platform.
    OfSource,
    /// `spec.state: cordoned`.
    Cordoned,
    /// `spec.state: draining`.
    Draining,
    /// A selector cannot be read.
    InvalidSelector,
    /// `spec.routeSelector` does not match.
    RouteSelectorMismatch,
    /// `spec.namespaceSelector` does not match.
    NamespaceSelectorMismatch,
    /// The Router has `spec.capacity.hard` routes.
    CapacityReached,
    /// The Router has no active address, so the route's name would resolve to NODATA.
    NoActiveAddress,
    /// The route's name on it would be over 253 octets.
    NameTooLong,
    /// The route's name in the Router's zone is in use by its records, or is the name of a name server, an adopted host, or another zone.
    NameTaken,
    /// The route's host is a platform name that is not on this Router.
    HostElsewhere,
    /// The route shares its host with Routes on another Router.
    HostSharedElsewhere,
    /// The Router cannot take a route that shares the host of the Route that moves.
    FollowerRejected,
    /// The strategy does not choose Routers of weight 0.
    ZeroWeight,
    /// The name servers do not serve its zone: a route with resolvable names is not moved there.
    ZoneNotPublished,
}

impl Rejection {
    /// All reasons.
    pub const ALL: [Rejection; 16] = [
        Rejection::Deleting,
        Rejection::OfSource,
        Rejection::Cordoned,
        Rejection::Draining,
        Rejection::InvalidSelector,
        Rejection::RouteSelectorMismatch,
        Rejection::NamespaceSelectorMismatch,
        Rejection::CapacityReached,
        Rejection::NoActiveAddress,
        Rejection::NameTooLong,
        Rejection::NameTaken,
        Rejection::HostElsewhere,
        Rejection::HostSharedElsewhere,
        Rejection::FollowerRejected,
        Rejection::ZeroWeight,
        Rejection::ZoneNotPublished,
    ];

    /// Returns the reason as a single word.
    pub fn reason(self) -> &'static str {
        self.texts().0
    }

    /// Returns the reason as text that follows the Router's name, without volatile numbers: the text is compared to detect
    /// changes.
    pub fn message(self) -> &'static str {
        self.texts().1
    }

    fn texts(self) -> (&'static str, &'static str) {
        match self {
            Rejection::Deleting => ("Deleting", "is being deleted"),
            Rejection::OfSource => {
                ("OfSource", "is that of a source, such as a Gateway, and takes only hosts that its own router admits")
            }
            Rejection::Cordoned => ("Cordoned", "is cordoned"),
            Rejection::Draining => ("Draining", "is draining"),
            Rejection::InvalidSelector => ("InvalidSelector", "has an invalid selector"),
            Rejection::RouteSelectorMismatch => ("RouteSelectorMismatch", "selects other Routes by their labels"),
            Rejection::NamespaceSelectorMismatch => {
                ("NamespaceSelectorMismatch", "selects other namespaces by their labels")
            }
            Rejection::CapacityReached => ("CapacityReached", "has reached its hard capacity"),
            Rejection::NoActiveAddress => ("NoActiveAddress", "has no active address"),
            Rejection::NameTooLong => ("NameTooLong", "would make the Route's name longer than 253 octets"),
            Rejection::NameTaken => (
                "NameTaken",
                "already uses the Route's name, for a record, a name server, an adopted host, or another zone",
            ),
            Rejection::HostElsewhere => ("HostElsewhere", "is not the Router that the host names"),
            Rejection::HostSharedElsewhere => {
                ("HostSharedElsewhere", "is not the Router of the other Routes with the host")
            }
            Rejection::FollowerRejected => ("FollowerRejected", "cannot take all Routes with the host"),
            Rejection::ZeroWeight => ("ZeroWeight", "has weight 0"),
            Rejection::ZoneNotPublished => ("ZoneNotPublished", "has a zone that not all name servers serve"),
        }
    }

    /// Returns [`Self::message`] for this Router and the route of `request`: for a selector, with the term that does not match.
    /// Users who can see Routers may see that; the text omits the values of the route and its namespace.
    pub fn message_for(self, request: &PlacementRequest<'_>, router: &RouterTarget) -> Cow<'static, str> {
        let (selector, labels, whose, field) = match self {
            Rejection::RouteSelectorMismatch => {
                (&router.route_selector, &request.route.labels, "this one does", "spec.routeSelector")
            }
            Rejection::NamespaceSelectorMismatch => {
                (&router.namespace_selector, &request.namespace.labels, "the Route's does", "spec.namespaceSelector")
            }
            Rejection::HostSharedElsewhere => {
                let leader = request.host_leader.map_or("", |leader| &leader.name);
                return format!("is not the Router of Route {leader}, which decides for all Routes with the host")
                    .into();
            }
            Rejection::FollowerRejected => {
                let rejected = request.rejected_follower(router, &Shard::default());
                let follower = rejected.map_or("", |(key, _)| &key.name);
                return format!("cannot take Route {follower}, which shares the host").into();
            }
            _ => return self.message().into(),
        };
        let Some(text) = selector.as_ref().ok().and_then(|selector| unmatched_term(selector, labels)) else {
            return self.message().into();
        };
        format!("{}, and {whose} not match {text} ({field})", self.message()).into()
    }
}

/// The reason why no Router is checked: the route's namespace may not place another route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OverQuota {
    /// The namespace has reached its quota.
    #[error(
        "the namespace has {routes} with a Router, and its annotation {annotation} allows {quota}; the scheduler \
         places the Route when one of them is deleted or the quota is raised",
        routes = if *.placed == 1 { "1 Route".to_owned() } else { format!("{} Routes", .placed) },
        annotation = QUOTA_ANNOTATION
    )]
    Exceeded {
        /// The number of placed routes.
        placed: u32,
        quota: u32,
    },
    /// The quota cannot be read.
    #[error(
        "the namespace's annotation {annotation} is {0:?}; it must be a whole number from 0 to {max}",
        annotation = QUOTA_ANNOTATION,
        max = u32::MAX
    )]
    Unreadable(String),
}

impl OverQuota {
    /// Returns the reason as a single word.
    pub fn reason(&self) -> &'static str {
        match self {
            OverQuota::Exceeded { .. } => "QuotaExceeded",
            OverQuota::Unreadable(_) => "InvalidQuota",
        }
    }
}

/// The reason why no Router fits a route, as in a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FitError {
    /// `NoRouter`, `Unschedulable`, `QuotaExceeded` or `InvalidQuota`; of a forecast also why a host is not admitted.
    pub reason: &'static str,
    /// The results for each Router, or the namespace's exceeded limit.
    pub message: String,
}

/// The result for one Router.
pub struct FilterResult<'a> {
    pub router: &'a RouterTarget,
    /// The routes bound to the Router.
    pub shard: &'a Shard,
    /// Whether it may take the route.
    pub fit: Fit,
}

impl<'a> FilterResult<'a> {
    /// Evaluates whether `router` may take the route of `request`, before any score and any soft capacity. Without a `strategy`,
    /// any weight is accepted.
    pub fn of(
        request: &PlacementRequest<'_>,
        router: &'a RouterTarget,
        shard: &'a Shard,
        strategy: Option<&dyn Strategy>,
    ) -> Self {
        let fit = evaluate(request, router, shard, strategy).map_or_else(Fit::Rejected, |()| Fit::Eligible(None));
        FilterResult { router, shard, fit }
    }

    /// Returns the reason as a single word, such as `Cordoned`; `Eligible` if the Router may take the route.
    pub fn reason(&self) -> &'static str {
        match self.fit {
            Fit::Eligible(_) => "Eligible",
            Fit::AboveSoftCapacity => "AboveSoftCapacity",
            Fit::Rejected(rejection) => rejection.reason(),
        }
    }

    /// Returns the reason why the Router is rejected or not preferred, as text that follows its name.
    pub fn message(&self, request: &PlacementRequest<'_>) -> Option<Cow<'static, str>> {
        match self.fit {
            Fit::Eligible(_) => None,
            Fit::AboveSoftCapacity => Some("has reached its soft capacity, and others have not".into()),
            Fit::Rejected(rejection) => Some(rejection.message_for(request, self.router)),
        }
    }
}

/// Whether a Router may take the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The Router fits, with this score of the strategy, if there is one.
    Eligible(Option<i64>),
    /// The Router fits, but has reached its soft capacity, and others have not.
    AboveSoftCapacity,
    /// The Router does not fit.
    Rejected(Rejection),
}

/// Checks whether another route of a namespace with `placed` of them may have a Router.
pub fn check_quota(quota: &Quota, placed: u32) -> Result<(), OverQuota> {
    match quota {
        Quota::AtMost(quota) if placed >= *quota => Err(OverQuota::Exceeded { placed, quota: *quota }),
        Quota::Unlimited | Quota::AtMost(_) => Ok(()),
        Quota::Unreadable(text) => Err(OverQuota::Unreadable(text.clone())),
    }
}

/// Returns whether `router` may take the route of `request`. Without a `strategy`, any weight is accepted.
pub fn evaluate(
    request: &PlacementRequest<'_>,
    router: &RouterTarget,
    shard: &Shard,
    strategy: Option<&dyn Strategy>,
) -> Result<(), Rejection> {
    let refuse = |refused: bool, rejection: Rejection| if refused { Err(rejection) } else { Ok(()) };
    refuse(router.deleting, Rejection::Deleting)?;
    refuse(router.is_of_source && request.route.adopted.is_none(), Rejection::OfSource)?;
    refuse(router.state == RouterState::Cordoned, Rejection::Cordoned)?;
    refuse(router.state == RouterState::Draining, Rejection::Draining)?;
    refuse(router.route_selector.is_err() || router.namespace_selector.is_err(), Rejection::InvalidSelector)?;
    refuse(!matches(&router.route_selector, &request.route.labels), Rejection::RouteSelectorMismatch)?;
    refuse(!matches(&router.namespace_selector, &request.namespace.labels), Rejection::NamespaceSelectorMismatch)?;
    let room_for = u32::try_from(request.followers.len()).unwrap_or(u32::MAX);
    let is_full = |hard: u32| shard.routes.saturating_add(room_for) >= hard;
    refuse(router.capacity.hard.is_some_and(is_full), Rejection::CapacityReached)?;
    refuse(!router.active.any, Rejection::NoActiveAddress)?;
    refuse(request.leaving.is_some() && router.is_unpublished, Rejection::ZoneNotPublished)?;
    // The shortened label can be the final one, and is at most this long.
    refuse(LABEL_OCTETS_MAX + 1 + router.dns.len() > NAME_OCTETS_MAX, Rejection::NameTooLong)?;
    refuse(is_taken(request, router), Rejection::NameTaken)?;
    refuse(request.platform_host.is_some_and(|host| !is_own_name(request, router, host)), Rejection::HostElsewhere)?;
    let is_leaders = |leader: &HostLeader| leader.router == router.name;
    refuse(request.host_leader.is_some_and(|leader| !is_leaders(leader)), Rejection::HostSharedElsewhere)?;
    refuse(request.rejected_follower(router, shard).is_some(), Rejection::FollowerRejected)?;
    refuse(strategy.is_some_and(|strategy| !strategy.admits(&candidate(router, shard))), Rejection::ZeroWeight)
}

/// Returns the strategy's input about a Router.
pub fn candidate<'a>(router: &'a RouterTarget, shard: &Shard) -> Candidate<'a> {
    Candidate { name: &router.name, weight: router.weight, routes: shard.routes, last_assigned: shard.last_assigned }
}

/// Returns whether the route's preferred label is in use for another purpose in the Router's zone. A route that moves keeps its label;
/// otherwise it gets another one if its name is an adopted host.
fn is_taken(request: &PlacementRequest<'_>, router: &RouterTarget) -> bool {
    let is_adopted = |hosts: &Hosts| {
        let name = system_name(&label_of(request), &router.dns);
        name.is_some_and(|name| hosts.is_of_another_route(&name, request.key))
    };
    // Nearly no Router has any.
    !router.taken.is_empty() && router.taken.contains(&*label_of(request))
        || request.leaving.is_some() && request.hosts.is_some_and(is_adopted)
}

/// Returns the route's preferred label.
pub fn label_of(request: &PlacementRequest<'_>) -> String {
    let namespace = request.key.namespace();
    wanted_label(namespace, &request.key.name, request.route.subdomain.as_deref())
}

/// Returns whether `host` is the system name that the route would have on this Router.
pub fn is_own_name(request: &PlacementRequest<'_>, router: &RouterTarget, host: &str) -> bool {
    let label = label_of(request);
    is_label_to_have(&label) && format!("{label}.{}", router.dns).eq_ignore_ascii_case(host)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scheduler::strategy::StrategyName;
    use crate::world::router::Labels;
    use signpost_types::v1alpha1::router::Router;

    /// Returns a Router of this name with one active address and the given fields of its spec.
    pub fn router(name: &str, spec: serde_json::Value) -> RouterTarget {
        let mut object = serde_json::json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": name, "resourceVersion": "7"},
            "spec": {"addresses": [{"ip": "192.0.2.1"}]},
        });
        for (field, value) in spec.as_object().into_iter().flatten() {
            object["spec"][field] = value.clone();
        }
        RouterTarget::read(&serde_json::from_value::<Router>(object).expect("a Router"), "v3.example", Vec::new())
    }

    #[test]
    fn verdicts() {
        use serde_json::json;
        let long = format!("{}.{}.{}.example", "a".repeat(63), "b".repeat(63), "c".repeat(60));
        for (spec, verdict) in [
            (json!({}), Ok(())),
            (json!({"state": "cordoned", "addresses": []}), Err(Rejection::Cordoned)),
            (json!({"state": "draining"}), Err(Rejection::Draining)),
            (json!({"routeSelector": {"matchLabels": {"tier": "gold"}}}), Ok(())),
            (json!({"routeSelector": {"matchLabels": {"tier": "lead"}}}), Err(Rejection::RouteSelectorMismatch)),
            (
                json!({"routeSelector": {"matchExpressions": [{"key": "x", "operator": "?"}]}}),
                Err(Rejection::InvalidSelector),
            ),
            (json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), Ok(())),
            (json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), Err(Rejection::NamespaceSelectorMismatch)),
            (json!({"capacity": {"hard": 5}}), Err(Rejection::CapacityReached)),
            (json!({"capacity": {"hard": 6}}), Ok(())),
            (json!({"capacity": {"soft": 1}}), Ok(())),
            (json!({"addresses": []}), Err(Rejection::NoActiveAddress)),
            (json!({"addresses": [{"ip": "192.0.2.1", "state": "drained"}]}), Err(Rejection::NoActiveAddress)),
            (json!({"dns": long}), Err(Rejection::NameTooLong)),
            (json!({"weight": 0}), Ok(())),
            (json!({"records": ["ns-app CNAME elsewhere.example."]}), Err(Rejection::NameTaken)),
            (json!({"records": ["_acme-challenge.ns-app TXT token", "other A 192.0.2.9"]}), Ok(())),
        ] {
            let labels = |key: &str, value: &str| Labels::from([(key.to_owned(), value.to_owned())]);
            let route = RouteInfo { labels: labels("tier", "gold"), ..RouteInfo::default() };
            let namespace = NamespaceInfo { labels: labels("team", "a"), ..NamespaceInfo::default() };
            let key = ObjectKey::namespaced("ns", "app");
            let request = PlacementRequest::new(&key, &route, &namespace);
            let shard = Shard { routes: 5, ..Shard::default() };
            let strategy = StrategyName::RoundRobin.strategy();
            assert_eq!(evaluate(&request, &router("shard1", spec.clone()), &shard, Some(strategy)), verdict, "{spec}");
        }
    }

    #[test]
    fn a_selector_is_reported_by_the_term_that_does_not_match() {
        use serde_json::json;
        let map = |text: &str| -> Labels {
            text.split(',').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
        };
        let long: Vec<String> = (0..500).map(|number| format!("value-{number}")).collect();
        for (spec, expected) in [
            (
                json!({"routeSelector": {"matchLabels": {"app": "web", "tier": "lead"}}}),
                "selects other Routes by their labels, and this one does not match tier=lead (spec.routeSelector)",
            ),
            (
                json!({"routeSelector": {"matchExpressions": [
                    {"key": "tier", "operator": "Exists"}, {"key": "tier", "operator": "NotIn", "values": ["gold", "silver"]},
                ]}}),
                "selects other Routes by their labels, and this one does not match tier notin (gold,silver) \
                 (spec.routeSelector)",
            ),
            (
                json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}),
                "selects other namespaces by their labels, and the Route's does not match team=b (spec.namespaceSelector)",
            ),
            (json!({"state": "cordoned"}), "is cordoned"),
            (
                json!({"routeSelector": {"matchExpressions": [{"key": "x", "operator": "In", "values": long}]}}),
                "selects other Routes by their labels, and this one does not match x in \
                 (value-0,value-1,value-10,value-100,value-101,value-102,value-103,value-104,value-105,value-106,value-107,value-108… \
                 (spec.routeSelector)",
            ),
        ] {
            let route = RouteInfo { labels: map("app=web,tier=gold"), ..RouteInfo::default() };
            let namespace = NamespaceInfo { labels: map("team=a"), ..NamespaceInfo::default() };
            let key = ObjectKey::namespaced("ns", "app");
            let request = PlacementRequest::new(&key, &route, &namespace);
            let router = router("shard1", spec);
            let rejection = evaluate(&request, &router, &Shard::default(), None).expect_err("it does not fit");
            assert_eq!(rejection.message_for(&request, &router), expected);
        }
    }

    #[test]
    fn a_platform_host_goes_to_its_own_router_only() {
        let route = RouteInfo::default();
        let namespace = NamespaceInfo::default();
        let key = ObjectKey::namespaced("myapp", "test");
        for (host, shard, verdict) in [
            ("myapp-test.shard1.v3.example", "shard1", Ok(())),
            ("MyApp-test.shard1.v3.EXAMPLE", "shard1", Ok(())),
            ("myapp-test.shard1.v3.example", "shard2", Err(Rejection::HostElsewhere)),
            ("other.shard1.v3.example", "shard1", Err(Rejection::HostElsewhere)),
        ] {
            let request =
                PlacementRequest { platform_host: Some(host), ..PlacementRequest::new(&key, &route, &namespace) };
            let facts = router(shard, serde_json::Value::Null);
            let strategy = StrategyName::RoundRobin.strategy();
            assert_eq!(evaluate(&request, &facts, &Shard::default(), Some(strategy)), verdict, "{host} on {shard}");
        }
        let unpublished = RouterTarget { is_unpublished: true, ..router("shard1", serde_json::Value::Null) };
        for (leaving, verdict) in [(None, Ok(())), (Some("shard2"), Err(Rejection::ZoneNotPublished))] {
            let request = PlacementRequest { leaving, ..PlacementRequest::new(&key, &route, &namespace) };
            assert_eq!(evaluate(&request, &unpublished, &Shard::default(), None), verdict, "{leaving:?}");
        }
        let of_source = RouterTarget { is_of_source: true, ..router("shard1", serde_json::Value::Null) };
        let request = PlacementRequest::new(&key, &route, &namespace);
        assert_eq!(evaluate(&request, &of_source, &Shard::default(), None), Err(Rejection::OfSource));
        // Routes with one host are on the Router of the first one, and only move where all of them can be.
        let leader = HostLeader { name: "first".to_owned(), router: "shard2".to_owned() };
        let request =
            PlacementRequest { host_leader: Some(&leader), ..PlacementRequest::new(&key, &route, &namespace) };
        let plain = router("shard1", serde_json::Value::Null);
        let rejected = evaluate(&request, &plain, &Shard::default(), None);
        assert_eq!(rejected, Err(Rejection::HostSharedElsewhere));
        let message = "is not the Router of Route first, which decides for all Routes with the host";
        assert_eq!(Rejection::HostSharedElsewhere.message_for(&request, &plain), message);
        assert_eq!(evaluate(&request, &router("shard2", serde_json::Value::Null), &Shard::default(), None), Ok(()));
        let tier = |tier: &str| Labels::from([("tier".to_owned(), tier.to_owned())]);
        let follower = RouteInfo { labels: tier("lead"), ..RouteInfo::default() };
        let followers = [(ObjectKey::namespaced("myapp", "api"), Arc::new(follower))];
        let gold = RouteInfo { labels: tier("gold"), ..RouteInfo::default() };
        for (spec, verdict) in [
            (serde_json::json!({}), Ok(())),
            (serde_json::json!({"capacity": {"hard": 2}}), Ok(())),
            (serde_json::json!({"capacity": {"hard": 1}}), Err(Rejection::CapacityReached)),
            (serde_json::json!({"routeSelector": {"matchLabels": {"tier": "gold"}}}), Err(Rejection::FollowerRejected)),
        ] {
            let request = PlacementRequest { followers: &followers, ..PlacementRequest::new(&key, &gold, &namespace) };
            let router = router("shard1", spec.clone());
            assert_eq!(evaluate(&request, &router, &Shard::default(), None), verdict, "{spec}");
            let message = "cannot take Route api, which shares the host";
            if verdict == Err(Rejection::FollowerRejected) {
                assert_eq!(Rejection::FollowerRejected.message_for(&request, &router), message);
            }
        }
        let weightless = router("shard1", serde_json::json!({"weight": 0}));
        let request = PlacementRequest::new(&key, &route, &namespace);
        let verdict = |strategy| evaluate(&request, &weightless, &Shard::default(), strategy);
        assert_eq!(verdict(Some(StrategyName::Weighted.strategy())), Err(Rejection::ZeroWeight));
        assert_eq!(verdict(None), Ok(()));
    }
}
