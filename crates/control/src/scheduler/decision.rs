//! One scheduling decision: filter → score → pick → explain, as a pure function of its inputs.

use super::explain;
use super::filter::{FilterResult, Fit, FitError, PlacementRequest, Rejection, candidate, check_quota, label_of};
use super::snapshot::Snapshot;
use super::strategy::{Candidate, Pick, RouteName, Strategy, pick};
use super::webhook;
use super::webhook::message::Answer;
use signpost_types::names::{LABEL_OCTETS_MAX, NAME_OCTETS_MAX, acme_zone, alias_zone, is_at_or_below, is_below};
use signpost_types::v1alpha1::route::{ADOPTED, Adopted, MOVE, MOVE_ANNOTATION};
use signpost_types::v1alpha1::route_binding::Explanation;

/// The Router for a route, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    pub router: String,
    /// The Router's zone.
    pub dns: String,
    pub strategy: &'static str,
    /// The explanation of the choice.
    pub explanation: Explanation,
}

/// Chooses a Router for the route of `request`. `instead_of` is the reason why this strategy decides instead of the webhook, if
/// so.
pub fn decide(
    request: &PlacementRequest<'_>,
    snapshot: &Snapshot,
    strategy: &dyn Strategy,
    instead_of: Option<&str>,
) -> Result<Placement, FitError> {
    within_quota(request, snapshot)?;
    let mut verdicts = filter(request, snapshot, Some(strategy));
    prefer_below_soft_capacity(&mut verdicts);
    let Some(best) = score(request, &mut verdicts, strategy) else { return Err(explain::no_fit(request, &verdicts)) };
    Ok(placement(request, &verdicts, best, strategy.name().as_str(), instead_of))
}

/// Takes the Router `to` in the route's annotation, if it can take the route. Soft capacity and weights do not count, because
/// they apply to choices.
pub fn decide_requested(request: &PlacementRequest<'_>, snapshot: &Snapshot, to: &str) -> Result<Placement, FitError> {
    within_quota(request, snapshot)?;
    let verdicts = filter(request, snapshot, None);
    let Some(index) = verdicts.iter().position(|verdict| verdict.router.name == to) else {
        return Err(FitError {
            reason: "RouterNotFound",
            message: format!("Router {to}, requested by {MOVE_ANNOTATION}, does not exist"),
        });
    };
    if let Fit::Rejected(rejection) = verdicts[index].fit {
        let message = format!(
            "Router {to}, requested by {MOVE_ANNOTATION}, {}",
            rejection.message_for(request, verdicts[index].router)
        );
        return Err(FitError { reason: rejection.reason(), message });
    }
    let mut placement = placement(request, &verdicts, Pick { index, tied: 0 }, MOVE, None);
    placement.explanation.summary = match request.leaving {
        Some(from) => format!("moved from {from} to {to}, as requested by {MOVE_ANNOTATION}"),
        None => format!("placed on {to}, as requested by {MOVE_ANNOTATION}"),
    };
    Ok(placement)
}

/// Takes the Router in the route's `spec.adopted`. Its state, selectors, and capacity do not count: the router
/// of a source decides itself which hosts it serves. `domain` is the domain of the platform that the host is in, if any.
pub fn decide_adopted(
    request: &PlacementRequest<'_>,
    snapshot: &Snapshot,
    adopted: &Adopted,
    domain: Option<&str>,
) -> Result<Placement, FitError> {
    let Adopted { router: name, by } = adopted;
    let host = request.route.host.as_deref().unwrap_or_default();
    let unfit = |reason, message: String| Err(FitError { reason, message });
    let Some((router, shard)) = snapshot.router(name) else {
        return unfit("RouterNotFound", format!("Router {name} does not exist, for which {by} admitted {host}"));
    };
    let zones = snapshot.routers().map(|(router, _)| router).filter(|router| is_at_or_below(host, &router.dns));
    match (zones.max_by_key(|router| router.dns.len()), domain) {
        (Some(closest), _) if !closest.dns.eq_ignore_ascii_case(&router.dns) => {
            let message = format!(
                "{host} is in {}, the zone of Router {}, and does not resolve to Router {name}, for which {by} admitted it",
                closest.dns, closest.name
            );
            return unfit("HostInOtherZone", message);
        }
        (Some(_), _) if host.eq_ignore_ascii_case(&router.dns) && !router.has_apex => {
            let message =
                format!("{host} is the apex of the zone of Router {name}; only names below it have addresses");
            return unfit("HostAtApex", message);
        }
        (None, Some(domain)) if !has_place(host, domain) => {
            let message = format!(
                "{host} is in {domain}, the platform's domain, and in the zone of no Router; only names without an asterisk, \
                 below {domain}, which the platform does not use itself, get records there"
            );
            return unfit("HostInPlatformDomain", message);
        }
        _ => {}
    }
    let rejection = match () {
        () if router.deleting => Some(Rejection::Deleting),
        () if request.leaving.is_some() && router.is_unpublished => Some(Rejection::ZoneNotPublished),
        () if LABEL_OCTETS_MAX + 1 + router.dns.len() > NAME_OCTETS_MAX => Some(Rejection::NameTooLong),
        () => None,
    };
    if let Some(rejection) = rejection {
        return unfit(rejection.reason(), format!("Router {name} {}", rejection.message()));
    }
    let verdict = FilterResult { router, shard, fit: Fit::Eligible(None) };
    Ok(Placement {
        router: router.name.clone(),
        dns: router.dns.clone(),
        strategy: ADOPTED,
        explanation: explain::adopted(request, &verdict, &format!("adopted: {by} admitted {host} on {name}")),
    })
}

/// Returns whether the parent zone of a domain can have a record for a host in it.
fn has_place(host: &str, domain: &str) -> bool {
    let is_of_platform = [alias_zone(domain), acme_zone(domain)].iter().any(|zone| is_at_or_below(host, zone));
    is_below(host, domain) && !host.starts_with(['*', '_']) && !is_of_platform
}

/// Returns the reason why a route whose Router drains stays there.
pub fn stays_adopted(adopted: &Adopted) -> FitError {
    let message = format!("the Route stays on Router {}, on which {} admitted its host", adopted.router, adopted.by);
    FitError { reason: "Adopted", message }
}

/// Returns the Routers among which the webhook chooses, at least one, and the number of checked Routers.
pub fn feasible_routers<'a>(
    request: &PlacementRequest<'_>,
    snapshot: &'a Snapshot,
) -> Result<(Vec<FilterResult<'a>>, usize), FitError> {
    let verdicts = eligible(request, snapshot)?;
    let considered = verdicts.len();
    Ok((verdicts.into_iter().filter(|verdict| verdict.fit == Fit::Eligible(None)).collect(), considered))
}

/// The reason why a webhook's answer is not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidAnswer {
    /// No Router can take the route any more.
    FitError(FitError),
    /// The chosen Router cannot take the route, for the reason after its name.
    Router(String),
}

/// Selects the Router that the webhook chose, if it can take the route now.
pub fn decide_as_answered(
    request: &PlacementRequest<'_>,
    snapshot: &Snapshot,
    answer: &Answer,
) -> Result<Placement, InvalidAnswer> {
    let mut verdicts = eligible(request, snapshot).map_err(InvalidAnswer::FitError)?;
    let Some(index) = verdicts.iter().position(|verdict| verdict.router.name == answer.router) else {
        return Err(InvalidAnswer::Router("is deleted".to_owned()));
    };
    if let Some(message) = verdicts[index].message(request) {
        return Err(InvalidAnswer::Router(message.into_owned()));
    }
    for verdict in &mut verdicts {
        if verdict.fit == Fit::Eligible(None) {
            verdict.fit = Fit::Eligible(answer.score(&verdict.router.name));
        }
    }
    Ok(placement(request, &verdicts, Pick { index, tied: 0 }, webhook::NAME, answer.reason.as_deref()))
}

/// Returns the results before any strategy scores, at least one of them eligible.
fn eligible<'a>(request: &PlacementRequest<'_>, snapshot: &'a Snapshot) -> Result<Vec<FilterResult<'a>>, FitError> {
    within_quota(request, snapshot)?;
    let mut verdicts = filter(request, snapshot, None);
    prefer_below_soft_capacity(&mut verdicts);
    let any = verdicts.iter().any(|verdict| verdict.fit == Fit::Eligible(None));
    if any { Ok(verdicts) } else { Err(explain::no_fit(request, &verdicts)) }
}

fn placement(
    request: &PlacementRequest<'_>,
    verdicts: &[FilterResult<'_>],
    best: Pick,
    strategy: &'static str,
    remark: Option<&str>,
) -> Placement {
    let chosen = verdicts[best.index].router;
    Placement {
        router: chosen.name.clone(),
        dns: chosen.dns.clone(),
        strategy,
        explanation: explain::placement(request, verdicts, best, strategy, remark),
    }
}

fn within_quota(request: &PlacementRequest<'_>, snapshot: &Snapshot) -> Result<(), FitError> {
    if request.leaving.is_some() {
        return Ok(());
    }
    let namespace = request.key.namespace();
    check_quota(&request.namespace.quota, snapshot.routes_of_namespace(namespace))
        .map_err(|over| FitError { reason: over.reason(), message: over.to_string() })
}

fn filter<'a>(
    request: &PlacementRequest<'_>,
    snapshot: &'a Snapshot,
    strategy: Option<&dyn Strategy>,
) -> Vec<FilterResult<'a>> {
    // Nearly always, no zone is inside another one.
    let label = snapshot.is_nested().then(|| label_of(request));
    let result = |(router, shard)| {
        let mut result = FilterResult::of(request, router, shard, strategy);
        let is_zone = label.as_ref().is_some_and(|label| snapshot.is_zone(router, label));
        if is_zone && !matches!(result.fit, Fit::Rejected(_)) {
            result.fit = Fit::Rejected(Rejection::NameTaken);
        }
        result
    };
    snapshot.routers().map(result).collect()
}

/// Applies soft capacity, a preference under every strategy: a Router above it is chosen only when all are.
fn prefer_below_soft_capacity(verdicts: &mut [FilterResult<'_>]) {
    let is_full =
        |verdict: &FilterResult<'_>| verdict.router.capacity.soft.is_some_and(|soft| verdict.shard.routes >= soft);
    let is_eligible = |verdict: &FilterResult<'_>| verdict.fit == Fit::Eligible(None);
    if verdicts.iter().any(|verdict| is_eligible(verdict) && !is_full(verdict)) {
        for verdict in verdicts.iter_mut().filter(|verdict| is_eligible(verdict) && is_full(verdict)) {
            verdict.fit = Fit::AboveSoftCapacity;
        }
    }
}

/// Writes the scores into the verdicts; the pick's index is into them.
fn score(request: &PlacementRequest<'_>, verdicts: &mut [FilterResult<'_>], strategy: &dyn Strategy) -> Option<Pick> {
    let is_eligible = |index: &usize| verdicts[*index].fit == Fit::Eligible(None);
    let eligible: Vec<usize> = (0..verdicts.len()).filter(is_eligible).collect();
    let candidates: Vec<Candidate<'_>> =
        eligible.iter().map(|index| candidate(verdicts[*index].router, verdicts[*index].shard)).collect();
    let namespace = request.key.namespace();
    let scores = strategy.score(RouteName { namespace, name: &request.key.name }, &candidates);
    let best = pick(&candidates, &scores)?;
    for (index, score) in eligible.iter().zip(scores) {
        verdicts[*index].fit = Fit::Eligible(Some(score));
    }
    Some(Pick { index: eligible[best.index], ..best })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::reflector::ObjectKey;
    use crate::scheduler::filter::{HostLeader, tests::router};
    use crate::scheduler::strategy::StrategyName;
    use crate::world::namespace::Quota;
    use crate::world::router::RouterTarget;
    use crate::world::{BindingInfo, NamespaceInfo, RouteInfo};
    use serde_json::json;
    use tokio::time::Instant;

    fn decide_for(name: &str, snapshot: &Snapshot, strategy: StrategyName) -> Result<Placement, FitError> {
        let (route, namespace) = (RouteInfo::default(), NamespaceInfo::default());
        let key = ObjectKey::namespaced("ns", name);
        let request = PlacementRequest::new(&key, &route, &namespace);
        decide(&request, snapshot, strategy.strategy(), None)
    }

    fn bind(snapshot: &mut Snapshot, router: &str, routes: u32) {
        for i in 0..routes {
            let binding = BindingInfo { router: router.into(), turn: u64::from(i), ..BindingInfo::default() };
            snapshot.bound(&ObjectKey::namespaced("old", &format!("{router}-{i}")), &binding);
        }
    }

    #[test]
    fn no_router_and_no_fit() {
        let mut snapshot = Snapshot::default();
        let error = decide_for("a", &snapshot, StrategyName::RoundRobin).expect_err("there is none");
        assert_eq!(error.reason, "NoRouter");
        snapshot.set_router(router("shard1", json!({"state": "cordoned"})));
        snapshot.set_router(router("shard2", json!({"addresses": []})));
        let error = decide_for("a", &snapshot, StrategyName::RoundRobin).expect_err("none fits");
        assert_eq!(error.reason, "Unschedulable");
        assert_eq!(error.message, "0/2 Routers are available: shard1 is cordoned; shard2 has no active address");
    }

    #[test]
    fn the_explanation_lists_every_router() {
        let mut snapshot = Snapshot::default();
        for (name, spec) in [
            ("shard1", json!({})),
            ("shard2", json!({"state": "draining"})),
            ("shard3", json!({})),
            ("shard4", json!({"capacity": {"soft": 1}})),
        ] {
            snapshot.set_router(router(name, spec));
        }
        bind(&mut snapshot, "shard4", 3);
        let placement = decide_for("a", &snapshot, StrategyName::LeastRoutes).expect("two fit");
        assert_eq!((placement.router.as_str(), placement.dns.as_str()), ("shard1", "shard1.v3.example"));
        let explanation = placement.explanation;
        assert_eq!((explanation.considered, explanation.eligible), (4, 3));
        assert_eq!(
            explanation.summary,
            "strategy least-routes selected shard1: 3 of 4 Routers feasible; 2 Routers have the same score, and the first \
             by name was selected; above their soft capacity: 1; filtered out: 1 Draining"
        );
        let found: Vec<_> = explanation
            .routers
            .iter()
            .map(|verdict| (verdict.name.as_str(), verdict.eligible, verdict.reason.as_deref(), verdict.score))
            .collect();
        assert_eq!(
            found,
            [
                ("shard1", true, None, Some(0)),
                ("shard3", true, None, Some(0)),
                ("shard4", true, Some("AboveSoftCapacity"), None),
                ("shard2", false, Some("Draining"), None),
            ]
        );
    }

    #[test]
    fn an_asked_router_is_taken_or_refused_for_what_it_is() {
        let mut snapshot = Snapshot::default();
        snapshot.set_router(router("shard1", json!({})));
        snapshot.set_router(router("shard2", json!({"capacity": {"soft": 1, "hard": 9}, "weight": 0})));
        snapshot.set_router(router("shard3", json!({"state": "cordoned"})));
        bind(&mut snapshot, "shard2", 5);
        let (route, key) = (RouteInfo::default(), ObjectKey::namespaced("ns", "a"));
        // The namespace's quota is exhausted; this route does not count against it.
        let namespace = NamespaceInfo { quota: Quota::AtMost(0), ..NamespaceInfo::default() };
        let request = PlacementRequest { leaving: Some("shard1"), ..PlacementRequest::new(&key, &route, &namespace) };
        let placement = decide_requested(&request, &snapshot, "shard2").expect("it has room");
        assert_eq!((placement.router.as_str(), placement.strategy), ("shard2", "move"));
        assert_eq!(placement.explanation.summary, "moved from shard1 to shard2, as requested by signpost.dev/move-to");
        for (to, reason) in [("shard3", "Cordoned"), ("shard4", "RouterNotFound")] {
            assert_eq!(decide_requested(&request, &snapshot, to).expect_err("it cannot").reason, reason);
        }
        let request = PlacementRequest { leaving: None, ..request };
        assert_eq!(decide_requested(&request, &snapshot, "shard2").expect_err("a new one").reason, "QuotaExceeded");
    }

    #[test]
    fn an_admission_decides_the_router_if_the_host_leads_there() {
        let mut snapshot = Snapshot::default();
        // The settings that exclude other Routes do not count.
        let closed = json!({"dns": "apps.v3.example", "state": "draining", "capacity": {"hard": 0}, "addresses": []});
        snapshot.set_router(router("apps", closed));
        snapshot.set_router(router("eu", json!({"dns": "eu.apps.v3.example"})));
        snapshot.set_router(RouterTarget { deleting: true, ..router("going", json!({"dns": "going.example"})) });
        snapshot.set_router(RouterTarget { has_apex: true, ..router("own", json!({"dns": "own.v3.example"})) });
        let namespace = NamespaceInfo { quota: Quota::AtMost(0), ..NamespaceInfo::default() };
        let key = ObjectKey::namespaced("ns", "a");
        for (host, to, found) in [
            ("web.apps.v3.example", "apps", Ok("apps.v3.example")),
            ("a.B.Apps.v3.example", "apps", Ok("apps.v3.example")),
            ("*.apps.v3.example", "apps", Ok("apps.v3.example")),
            ("*.eu.apps.v3.example", "eu", Ok("eu.apps.v3.example")),
            ("www.shop.example", "eu", Ok("eu.apps.v3.example")),
            ("*.example", "eu", Ok("eu.apps.v3.example")),
            ("web.apps.v3.example", "eu", Err("HostInOtherZone")),
            ("web.eu.apps.v3.example", "apps", Err("HostInOtherZone")),
            ("eu.apps.v3.example", "eu", Err("HostAtApex")),
            ("eu.apps.v3.example", "apps", Err("HostInOtherZone")),
            ("own.v3.example", "own", Ok("own.v3.example")),
            // The parent zone has a record for it.
            ("web.us.v3.example", "apps", Ok("apps.v3.example")),
            ("*.us.v3.example", "apps", Err("HostInPlatformDomain")),
            ("v3.example", "apps", Err("HostInPlatformDomain")),
            ("a.routes.v3.example", "apps", Err("HostInPlatformDomain")),
            ("a.acme.v3.example", "apps", Err("HostInPlatformDomain")),
            ("_dns.v3.example", "apps", Err("HostInPlatformDomain")),
            ("web.apps.v3.example", "gone", Err("RouterNotFound")),
            ("web.going.example", "going", Err("Deleting")),
        ] {
            let adopted = Adopted { router: to.to_owned(), by: "listener a of Gateway n/g".to_owned() };
            let route = RouteInfo { host: Some(host.into()), ..RouteInfo::default() };
            let request = PlacementRequest::new(&key, &route, &namespace);
            let domain = Some("v3.example").filter(|domain| is_at_or_below(host, domain));
            let decided = decide_adopted(&request, &snapshot, &adopted, domain);
            if let Ok(placement) = &decided {
                assert_eq!((placement.router.as_str(), placement.strategy), (to, "adopted"));
                assert_eq!(placement.explanation.routers[0].name, to);
            }
            let quoted = match &decided {
                Ok(placement) => placement.explanation.summary.clone(),
                Err(error) => error.message.clone(),
            };
            let is_quoted =
                quoted.contains("listener a of Gateway n/g") || !matches!(found, Ok(_) | Err("RouterNotFound"));
            assert!(is_quoted && quoted.contains(if found == Err("Deleting") { to } else { host }), "{quoted}");
            assert_eq!(decided.as_ref().map(|found| found.dns.as_str()).map_err(|error| error.reason), found, "{host}");
        }
    }

    #[test]
    fn a_zone_inside_another_one_takes_its_name() {
        let mut snapshot = Snapshot::default();
        snapshot.set_router(router("apps", json!({"dns": "apps.v3.example"})));
        snapshot.set_router(router("inner", json!({"dns": "ns-a.apps.v3.example", "state": "cordoned"})));
        for (name, reason) in [("a", Some("Unschedulable")), ("b", None)] {
            let decided = decide_for(name, &snapshot, StrategyName::RoundRobin);
            let found = decided.as_ref().err();
            assert_eq!(found.map(|error| error.reason), reason, "{name}");
            assert!(
                found.is_none_or(|error| error.message.contains("apps already uses the Route's name")),
                "{found:?}"
            );
        }
        snapshot.remove_router("inner");
        assert!(decide_for("a", &snapshot, StrategyName::RoundRobin).is_ok(), "the name is free");
    }

    #[test]
    fn soft_capacity_yields_when_all_are_above_it() {
        let mut snapshot = Snapshot::default();
        snapshot.set_router(router("shard1", json!({"capacity": {"soft": 1}})));
        snapshot.set_router(router("shard2", json!({"capacity": {"soft": 1}})));
        bind(&mut snapshot, "shard1", 4);
        bind(&mut snapshot, "shard2", 5);
        let placement = decide_for("a", &snapshot, StrategyName::LeastRoutes).expect("both may");
        assert_eq!(placement.router, "shard1");
    }

    #[test]
    fn an_answer_is_taken_only_while_it_fits() {
        let mut snapshot = Snapshot::default();
        for (name, spec) in [
            ("shard1", json!({})),
            ("shard2", json!({"state": "cordoned"})),
            ("shard3", json!({"capacity": {"hard": 1}})),
            ("shard4", json!({"capacity": {"soft": 1}, "weight": 0})),
        ] {
            snapshot.set_router(router(name, spec));
        }
        bind(&mut snapshot, "shard4", 2);
        let (route, namespace) = (RouteInfo::default(), NamespaceInfo::default());
        let key = ObjectKey::namespaced("ns", "a");
        let request = PlacementRequest::new(&key, &route, &namespace);
        let (asked, considered) = feasible_routers(&request, &snapshot).expect("two may");
        let names: Vec<_> = asked.iter().map(|feasible| feasible.router.name.as_str()).collect();
        assert_eq!((names, considered), (vec!["shard1", "shard3"], 4));
        let answer = |router: &str| {
            let text =
                json!({"router": router, "reason": "it is near", "scores": {"shard1": 5, "shard2": 9}}).to_string();
            Answer::parse(text.as_bytes()).expect("an answer")
        };
        let placement = decide_as_answered(&request, &snapshot, &answer("shard3")).expect("it may");
        assert_eq!((placement.router.as_str(), placement.strategy), ("shard3", "webhook"));
        assert_eq!(
            placement.explanation.summary,
            "strategy webhook selected shard3: 3 of 4 Routers feasible; it is near; above their soft capacity: 1; filtered out: 1 Cordoned"
        );
        let scores: Vec<_> =
            placement.explanation.routers.iter().map(|verdict| (verdict.name.as_str(), verdict.score)).collect();
        assert_eq!(scores, [("shard3", None), ("shard1", Some(5)), ("shard4", None), ("shard2", None)]);
        snapshot.assume(ObjectKey::namespaced("ns", "b"), "shard3", Instant::now());
        for (router, why) in [
            ("shard2", "is cordoned"),
            ("shard3", "has reached its hard capacity"),
            ("shard4", "has reached its soft capacity, and others have not"),
            ("shard5", "is deleted"),
        ] {
            let unfit = decide_as_answered(&request, &snapshot, &answer(router)).expect_err(router);
            assert_eq!(unfit, InvalidAnswer::Router(why.to_owned()));
        }
        for name in ["shard1", "shard4"] {
            snapshot.remove_router(name);
        }
        let unfit = decide_as_answered(&request, &snapshot, &answer("shard1")).expect_err("none is left");
        assert!(matches!(unfit, InvalidAnswer::FitError(FitError { reason: "Unschedulable", .. })), "{unfit:?}");
        // The explanation names the strategy that decided instead.
        snapshot.set_router(router("shard1", json!({})));
        let strategy = StrategyName::LeastRoutes.strategy();
        let placement = decide(&request, &snapshot, strategy, Some("the webhook is away")).expect("one may");
        assert_eq!(placement.strategy, "least-routes");
        assert!(
            placement.explanation.summary.contains("Routers feasible; the webhook is away; filtered out"),
            "{placement:?}"
        );
    }

    #[test]
    fn a_namespace_gets_no_more_than_its_quota() {
        let mut snapshot = Snapshot::default();
        snapshot.set_router(router("shard1", json!({})));
        bind(&mut snapshot, "shard1", 5);
        let route = RouteInfo::default();
        let error = |snapshot: &Snapshot, namespace: &str, quota: Quota| {
            let namespaced = NamespaceInfo { quota, ..NamespaceInfo::default() };
            let key = ObjectKey::namespaced(namespace, "a");
            let request = PlacementRequest::new(&key, &route, &namespaced);
            let decided = decide(&request, snapshot, StrategyName::RoundRobin.strategy(), None);
            decided.err().map(|error| (error.reason, error.message))
        };
        assert_eq!(error(&snapshot, "old", Quota::Unlimited), None);
        assert_eq!(error(&snapshot, "old", Quota::AtMost(6)), None);
        assert_eq!(error(&snapshot, "new", Quota::AtMost(1)), None);
        let (reason, message) = error(&snapshot, "old", Quota::AtMost(4)).expect("five are more than four");
        assert_eq!(reason, "QuotaExceeded");
        assert!(message.contains("has 5 Routes") && message.contains("allows 4"), "{message}");
        let (reason, message) = error(&snapshot, "new", Quota::Unreadable("ten".to_owned())).expect("no number");
        assert!(reason == "InvalidQuota" && message.contains("\"ten\""), "{reason}: {message}");
        // What is assumed counts.
        snapshot.assume(ObjectKey::namespaced("new", "b"), "shard1", Instant::now());
        assert!(error(&snapshot, "new", Quota::AtMost(1)).is_some());
    }

    /// A thousand Routers with the longest names, of every class of result: all classes appear, in few bytes.
    #[test]
    fn no_class_of_verdict_goes_unmentioned() {
        let mut snapshot = Snapshot::default();
        let name = |i: usize| format!("shard{i:04}.{}", ["a".repeat(61).as_str(); 3].join("."));
        let long_dns = format!("{}.{}.{}.example", "a".repeat(63), "b".repeat(63), "c".repeat(60));
        for i in 0..1000 {
            let spec = match i % 12 {
                0 | 1 => json!({"state": "cordoned"}),
                2 => json!({"state": "draining"}),
                3 => json!({"routeSelector": {"matchExpressions": [{"key": "x", "operator": "?"}]}}),
                4 => json!({"routeSelector": {"matchLabels": {"tier": "lead"}}}),
                5 => json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}),
                6 => json!({"capacity": {"hard": 0}}),
                7 => json!({"addresses": []}),
                8 => json!({"dns": long_dns}),
                9 => json!({"weight": 0}),
                10 => json!({"capacity": {"soft": 0}}),
                11 if i == 23 => json!({"records": ["ns-a CNAME elsewhere.example."]}),
                11 if i == 35 => json!({"records": ["ns-b CNAME elsewhere.example."]}),
                _ => json!({}),
            };
            let facts = router(&name(i), spec);
            let dns = if i % 12 == 8 { facts.dns.clone() } else { format!("s{i}.v3.example") };
            snapshot.set_router(RouterTarget {
                deleting: i % 12 == 1,
                is_unpublished: i == 11,
                is_of_source: i == 59,
                dns,
                ..facts
            });
        }
        let (route, namespace) = (RouteInfo::default(), NamespaceInfo::default());
        let key = ObjectKey::namespaced("ns", "a");
        let own = Some("ns-a.s995.v3.example");
        let mut found = String::new();
        let leader = HostLeader { name: "b".to_owned(), router: name(995) };
        let followers = [(ObjectKey::namespaced("ns", "b"), Arc::new(RouteInfo::default()))];
        // A route that moves, whose Router must be served, and one whose host names its Router; one that shares the host of another, and
        // one that another follows.
        for (platform_host, leaving, host_leader, followers) in [
            (None, Some("elsewhere"), None, &[][..]),
            (own, None, None, &[]),
            (None, None, Some(&leader), &[]),
            (None, Some("elsewhere"), None, &followers),
        ] {
            let request = PlacementRequest::new(&key, &route, &namespace);
            let request = PlacementRequest { platform_host, leaving, host_leader, followers, ..request };
            let placement = decide(&request, &snapshot, StrategyName::Weighted.strategy(), None).expect("some fit");
            let explanation = placement.explanation;
            let omitted: u32 = explanation.omitted.iter().map(|omitted| omitted.count).sum();
            assert_eq!((explanation.considered, omitted), (1000, 984));
            let octets = serde_json::to_vec(&explanation).expect("JSON").len();
            assert!(octets < 10_000 && explanation.summary.len() < 1024, "{octets} {}", explanation.summary);
            let counted: u32 = explanation
                .summary
                .split(&[' ', ',', ';'])
                .collect::<Vec<_>>()
                .windows(2)
                .filter(|pair| Rejection::ALL.iter().any(|rejection| rejection.reason() == pair[1]))
                .map(|pair| pair[0].parse::<u32>().expect("a count"))
                .sum();
            assert_eq!(counted + explanation.eligible, 1000, "{}", explanation.summary);
            found += &explanation.summary;
        }
        for reason in Rejection::ALL.map(Rejection::reason) {
            assert!(found.contains(reason), "{reason}: {found}");
        }
        assert!(found.contains("above their soft capacity: 83"), "{found}");
    }

    #[test]
    fn messages_stay_bounded_with_a_thousand_routers() {
        let mut snapshot = Snapshot::default();
        for i in 0..1000 {
            snapshot.set_router(router(&format!("shard{i:04}"), json!({"state": "cordoned"})));
        }
        let error = decide_for("a", &snapshot, StrategyName::RoundRobin).expect_err("none fits");
        assert!(error.message.len() < 1024 && error.message.contains("992 more: 992 Cordoned"), "{}", error.message);
    }
}
