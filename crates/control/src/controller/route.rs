//! Routes after they were placed: conditions that must follow later changes, and bindings without a Route.
//!
//! - A bound Route stays where it is when its labels, its Namespace's, or its Router's selectors change; its condition
//!   `SelectorMismatch` then says that it would not be placed there today.
//! - A Route that was refused its host, and got it later, is admitted; and so is any bound Route with a host that says
//!   nothing of it. One whose host was verified to be its owner's, and is no more, is not admitted any more, and stays; its
//!   claim on the host goes to whoever proves it, until which it can have it back.
//! - A Route whose Router is gone, which only an administrator who agrees to lose its routes can bring about, stays bound, so
//!   that all is as it was if the Router comes back; its condition `Scheduled` is false meanwhile. A Router made again with
//!   another zone is not the one that was.
//! - A former name of a Route, at which the Router that it has left has a record of its own, leads there and not to the
//!   Route: its condition `FormerNameBlocked` says so. And so it does if that Router is gone, or is another one by now,
//!   which takes the name with its zone; the former name stays for as long as it would, in case that the Router comes back.
//! - A bound Route whose conditions `Scheduled` and `Admitted` were taken away or changed by someone has them put back:
//!   both are written in the moment in which it is bound, so that one without them is not on its way to them.
//! - A RouteBinding whose Route is gone, or was made anew with another uid, is deleted. Our own server deletes it
//!   together with the Route; on others, after a crash in between, and where a finalizer holds it, this does. One that
//!   is held is served until it is gone.
//!
//! Only what is wrong is written: an ordinary Route gets no write from here.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;

use super::claim::Hold;
use crate::client::reflector::ObjectKey;
use crate::client::status::{Statement, state, update_status};
use crate::world::route::{HOST_TAKEN, Mark, SELECTOR_MISMATCH};
use crate::world::{BindingInfo, RouteInfo, RouterInfo};
use signpost_api::names::other_label;
use signpost_api::v1alpha1::route::{ADMITTED, FORMER_NAME_BLOCKED, NameKind, Phase, ROUTER_GONE, Route, SCHEDULED};
use signpost_api::v1alpha1::route_binding::RouteBinding;
use signpost_api::v1alpha1::router::Router;

/// Most former names that a condition tells.
const BLOCKED_TOLD_MAX: usize = 4;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// Whether a binding has no Route, or not the one that is there.
pub fn is_stray(binding: &BindingInfo, route: Option<&RouteInfo>) -> bool {
    route.is_none_or(|route| route.uid != binding.route_uid)
}

/// What a bound Route is judged by, beside itself and its binding.
#[derive(Debug, Clone, Copy)]
pub struct Around<'a> {
    /// Where it is.
    pub key: &'a ObjectKey,
    /// Its Router, if that exists.
    pub router: Option<&'a RouterInfo>,
    /// The labels of its Namespace.
    pub namespace: &'a Labels,
    /// How it stands to its host.
    pub hold: &'a Hold,
    /// The Routers that have records where its former names were.
    pub blocking: &'a [String],
    /// The zones of its former names that no Router has any more.
    pub lost: &'a [String],
}

/// What the conditions of a bound Route should say, and do not.
pub fn statements(route: &RouteInfo, binding: &BindingInfo, around: Around<'_>) -> Vec<Statement> {
    let mut statements = Vec::new();
    if !route.bound {
        return statements;
    }
    let [scheduled, admitted] =
        [route.conditions.scheduled, route.conditions.admitted].map(|mark| mark.map(Mark::is_true));
    let mut say = |kind, is_true, reason, message| statements.push(Statement { kind, is_true, reason, message });
    match around.hold {
        Hold::Unverified if admitted != Some(false) || route.conditions.host_taken => {
            let message = "the host is not verified to be the owner's; the condition HostVerified says why";
            say(ADMITTED, false, "OwnershipNotVerified", message.to_owned());
        }
        Hold::Taken(message) if admitted != Some(false) || !route.conditions.host_taken => {
            say(ADMITTED, false, HOST_TAKEN, message.clone());
        }
        Hold::Held if admitted != Some(true) => {
            let what = if route.host.is_some() { "the route holds its host" } else { "the route holds its names" };
            say(ADMITTED, true, "Admitted", what.to_owned());
        }
        _ => {}
    }
    let name = &binding.router;
    let router = around.router.filter(|router| !router.has_other_zone(&binding.dns));
    match router {
        None if !route.conditions.router_gone => {
            let (key, dns) = (around.key, &binding.dns);
            let message = match around.router {
                None => format!(
                    "Router {name} is gone, and the route's name with it: move the route to another one with \
                     \"signpost move route {key} --to ROUTER\", or make Router {name} again"
                ),
                Some(_) => format!(
                    "Router {name} was made again with another zone than {dns}, and the route's name is gone: give it one with \
                     \"signpost move route {key} --to {name}\", or move it to another Router"
                ),
            };
            say(SCHEDULED, false, ROUTER_GONE, message);
        }
        Some(_) if route.conditions.router_gone => {
            say(SCHEDULED, true, "Scheduled", format!("Router {name} is there again"))
        }
        Some(_) if scheduled != Some(true) => {
            let message = format!("it is on {name}; \"signpost explain route {}\" says why", around.key);
            say(SCHEDULED, true, "Scheduled", message);
        }
        _ => {}
    }
    let mismatch = router.is_some_and(|router| !router.selects(&route.labels, around.namespace));
    if mismatch && route.conditions.mismatch != Some(true) {
        let term = router.and_then(|router| router.unmatched(&route.labels, around.namespace));
        let term = term.map_or(String::new(), |term| format!(": {term}"));
        let message = format!("the selectors of Router {name} do not match the route any more; it stays there{term}");
        say(SELECTOR_MISMATCH, true, "SelectorsChanged", message);
    }
    if !mismatch && route.conditions.mismatch == Some(true) {
        say(SELECTOR_MISMATCH, false, "SelectorsMatch", format!("the selectors of Router {name} match the route"));
    }
    let blocked = blocked(&binding.label, around.blocking, around.lost);
    match (&blocked, &route.conditions.former_name_blocked) {
        (Some(message), told) if told.as_deref() != Some(message.as_str()) => {
            let reason = if around.blocking.is_empty() { "FormerZoneGone" } else { "RecordAtFormerName" };
            say(FORMER_NAME_BLOCKED, true, reason, message.clone());
        }
        (None, Some(_)) => {
            say(FORMER_NAME_BLOCKED, false, "FormerNamesServed", "its former names lead to it".to_owned())
        }
        _ => {}
    }
    statements
}

/// What is said of former names that do not lead to the Route.
fn blocked(label: &str, blocking: &[String], lost: &[String]) -> Option<String> {
    let told = |all: &[String]| {
        let told = all.iter().take(BLOCKED_TOLD_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = all.len().saturating_sub(BLOCKED_TOLD_MAX);
        if more > 0 { format!("{told} and {more} more") } else { told }
    };
    let by_records = (!blocking.is_empty()).then(|| {
        format!(
            "the former name with the label {label} does not lead to the route any more, since spec.records has \
             records there, on: {}; take these out",
            told(blocking)
        )
    });
    let with_zone = (!lost.is_empty()).then(|| {
        format!(
            "the former name with the label {label} does not lead to the route any more, since no Router has its zone: {}; \
             a Router with that zone would bring it back",
            told(lost)
        )
    });
    by_records.into_iter().chain(with_zone).reduce(|one, other| format!("{one}; {other}"))
}

/// Writes statements into the conditions of the Route at `key`, if it still is the one with this uid, and bound. The answer is
/// which of the conditions became true or false by that, or were said first.
pub async fn write(
    client: &kube::Client,
    key: &ObjectKey,
    uid: &str,
    statements: &[Statement],
) -> kube::Result<Option<Vec<Statement>>> {
    let routes: Api<Route> = Api::namespaced(client.clone(), namespace(key));
    // An informer of Routers that lags must not make anybody believe that one is gone.
    if statements.iter().any(|statement| statement.reason == ROUTER_GONE) {
        let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), namespace(key));
        let routers: Api<Router> = Api::all(client.clone());
        let Some(binding) = bindings.get_opt(&key.name).await? else { return Ok(None) };
        let router = routers.get_opt(&binding.spec.router).await?;
        let is_same = |dns: &str| dns.is_empty() || dns.eq_ignore_ascii_case(&binding.spec.dns);
        if router.is_some_and(|router| router.spec.dns.as_deref().is_none_or(is_same)) {
            return Ok(None);
        }
    }
    let mut written = None;
    let change = |route: &Route| {
        written = None;
        let status = route.status.clone().unwrap_or_default();
        if route.metadata.uid.as_deref() != Some(uid) || status.phase != Phase::Scheduled {
            return None;
        }
        let mut conditions = status.conditions;
        let (mut changed, mut turned) = (false, Vec::new());
        for statement in statements {
            let statement = with_label_told(statement, route);
            let before = conditions.iter().find(|condition| condition.type_ == statement.kind);
            changed |= {
                let is_turned = before.is_none_or(|before| (before.status == "True") != statement.is_true);
                let changed = state(&mut conditions, &statement, route.metadata.generation, Timestamp::now());
                turned.extend(is_turned.then_some(statement));
                changed
            };
        }
        written = changed.then_some(turned);
        changed.then(|| json!({"conditions": conditions}))
    };
    update_status(&routes, &key.name, change).await?;
    Ok(written)
}

/// A Route that has its names has another label than it would like, perhaps: then that is the reason, as it was when it
/// was bound.
fn with_label_told(statement: &Statement, route: &Route) -> Statement {
    let mut statement = statement.clone();
    if statement.kind == ADMITTED && statement.is_true {
        let names = route.status.iter().flat_map(|status| &status.names);
        let label = names.filter(|name| name.kind == NameKind::System).find_map(|name| name.name.split('.').next());
        let (namespace, name) = (route.metadata.namespace.as_deref(), route.metadata.name.as_deref());
        let subdomain = route.spec.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty());
        let other = |label| other_label(namespace.unwrap_or_default(), name.unwrap_or_default(), subdomain, label);
        if let Some((reason, message)) = label.and_then(other) {
            (statement.reason, statement.message) = (reason, message);
        }
    }
    statement
}

/// Deletes the binding at `key`, if it has no Route by what the API says now.
pub async fn clear_binding(client: &kube::Client, key: &ObjectKey) -> kube::Result<Option<&'static str>> {
    let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), namespace(key));
    let routes: Api<Route> = Api::namespaced(client.clone(), namespace(key));
    // In this order: were the Route made anew and bound in between, the binding's uid would be another one.
    let Some(binding) = bindings.get_opt(&key.name).await? else { return Ok(None) };
    let route = routes.get_opt(&key.name).await?.map(|route| RouteInfo::new(&route));
    let view = BindingInfo::new(&binding);
    if view.deleting || !is_stray(&view, route.as_ref()) {
        return Ok(None);
    }
    let preconditions = Preconditions { uid: binding.metadata.uid, resource_version: None };
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    match bindings.delete(&key.name, &parameters).await {
        Ok(_) => Ok(Some("deleted")),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}

fn namespace(key: &ObjectKey) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{self, route::Conditions};

    fn router(spec: serde_json::Value) -> RouterInfo {
        let router: Router = serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"}, "spec": spec,
        }))
        .expect("a Router");
        RouterInfo::new(&router, &world::Settings::of_domain("v3.example"))
    }

    fn mark(is_true: bool) -> Mark {
        Mark::of(if is_true { "True" } else { "False" }, "", "")
    }

    /// A Route as its binding leaves it.
    fn placed() -> RouteInfo {
        let conditions =
            Conditions { scheduled: Some(mark(true)), admitted: Some(mark(true)), ..Conditions::default() };
        RouteInfo { bound: true, conditions, ..RouteInfo::default() }
    }

    /// The same with other conditions.
    fn with(change: impl FnOnce(&mut Conditions)) -> RouteInfo {
        let mut route = placed();
        change(&mut route.conditions);
        route
    }

    fn said(
        route: &RouteInfo,
        router: Option<&RouterInfo>,
        hold: &Hold,
        (blocking, lost): (&[String], &[String]),
    ) -> Vec<(&'static str, bool)> {
        let binding = BindingInfo { router: "shard1".into(), label: "ns-app".into(), ..BindingInfo::default() };
        let key = ObjectKey::namespaced("ns", "app");
        let around = Around { key: &key, router, namespace: &Labels::new(), hold, blocking, lost };
        statements(route, &binding, around).iter().map(|statement| (statement.kind, statement.is_true)).collect()
    }

    #[test]
    fn conditions_follow_changes_and_are_silent_otherwise() {
        let router = router(json!({"routeSelector": {"matchLabels": {"tier": "gold"}}}));
        for (tier, bound, admitted, mismatch, expected) in [
            ("gold", true, Some(true), None, vec![]),
            ("gold", true, Some(true), Some(false), vec![]),
            ("lead", true, Some(true), None, vec![(SELECTOR_MISMATCH, true)]),
            ("lead", true, Some(true), Some(true), vec![]),
            ("gold", true, Some(true), Some(true), vec![(SELECTOR_MISMATCH, false)]),
            ("gold", true, None, None, vec![(ADMITTED, true)]),
            ("gold", true, Some(false), None, vec![(ADMITTED, true)]),
            ("lead", false, Some(false), None, vec![]),
        ] {
            let labels = Labels::from([("tier".to_owned(), tier.to_owned())]);
            let conditions = Conditions { admitted: admitted.map(mark), mismatch, ..placed().conditions };
            let route = RouteInfo { labels, bound, conditions, ..placed() };
            assert_eq!(said(&route, Some(&router), &Hold::Held, (&[], &[])), expected, "{route:?}");
        }
    }

    #[test]
    fn a_host_is_admitted_as_long_as_it_is_held() {
        let router = router(json!({}));
        let taken = Hold::Taken("another's".to_owned());
        for (hold, admitted, expected) in [
            (&Hold::Held, None, Some(true)),
            (&Hold::Held, Some(true), None),
            (&Hold::Held, Some(false), Some(true)),
            (&Hold::Unverified, Some(true), Some(false)),
            (&Hold::Unverified, Some(false), None),
            (&taken, Some(true), Some(false)),
            // It says already that it has not the host, and now why: another has it.
            (&taken, Some(false), Some(false)),
            // The claim comes first.
            (&Hold::Free, Some(false), None),
        ] {
            let host = Some("www.shop.example".into());
            let route = RouteInfo { host, ..with(|conditions| conditions.admitted = admitted.map(mark)) };
            let expected: Vec<_> = expected.map(|is_true| (ADMITTED, is_true)).into_iter().collect();
            assert_eq!(said(&route, Some(&router), hold, (&[], &[])), expected, "{hold:?} {admitted:?}");
        }
    }

    #[test]
    fn what_was_taken_away_is_put_back() {
        let router = router(json!({}));
        let bare = with(|conditions| (conditions.scheduled, conditions.admitted) = (None, None));
        let scheduled = |said: Option<bool>| with(|conditions| conditions.scheduled = said.map(mark));
        let both = vec![(ADMITTED, true), (SCHEDULED, true)];
        for (route, router, expected) in [
            (bare.clone(), Some(&router), both),
            (scheduled(None), Some(&router), vec![(SCHEDULED, true)]),
            (scheduled(Some(false)), Some(&router), vec![(SCHEDULED, true)]),
            // One whose Router is gone is not said to be on it.
            (scheduled(None), None, vec![(SCHEDULED, false)]),
            (RouteInfo { bound: false, ..bare }, Some(&router), vec![]),
        ] {
            assert_eq!(said(&route, router, &Hold::Held, (&[], &[])), expected, "{route:?}");
        }
    }

    #[test]
    fn a_label_that_is_not_the_wished_for_one_is_told_of_again() {
        let route = |label: &str| {
            let names = json!([{"type": "system", "name": format!("{label}.shard1.v3.example")}]);
            let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
                "metadata": {"namespace": "ns", "name": "app"}, "spec": {"to": {"kind": "Service", "name": "app"}},
                "status": {"phase": "scheduled", "names": names}});
            serde_json::from_value::<Route>(object).expect("a Route")
        };
        let admitted = |is_true| Statement { kind: ADMITTED, is_true, reason: "Admitted", message: String::new() };
        for (label, is_true, reason) in [
            ("ns-app", true, "Admitted"),
            ("ns-app-0123456789", true, "LabelTaken"),
            ("ns-app-0123456789", false, "Admitted"),
        ] {
            assert_eq!(with_label_told(&admitted(is_true), &route(label)).reason, reason, "{label}");
        }
    }

    #[test]
    fn a_router_that_goes_and_comes_back_is_told_of() {
        let router = router(json!({}));
        let route = placed();
        let orphan = with(|conditions| (conditions.scheduled, conditions.router_gone) = (Some(mark(false)), true));
        for (route, router, expected) in [
            (&route, Some(&router), vec![]),
            (&route, None, vec![(SCHEDULED, false)]),
            (&orphan, None, vec![]),
            (&orphan, Some(&router), vec![(SCHEDULED, true)]),
        ] {
            assert_eq!(said(route, router, &Hold::Held, (&[], &[])), expected, "{route:?}");
        }
    }

    #[test]
    fn a_router_made_again_with_another_zone_is_not_the_one_that_was() {
        let key = ObjectKey::namespaced("ns", "app");
        let dns = "old.v3.example".into();
        let binding = BindingInfo { router: "shard1".into(), label: "ns-app".into(), dns, ..BindingInfo::default() };
        for (dns, router_gone, expected) in [
            ("old.v3.example", false, None),
            ("OLD.v3.example", true, Some((true, "Router shard1 is there again"))),
            ("new.v3.example", true, None),
            (
                "new.v3.example",
                false,
                Some((false, "Router shard1 was made again with another zone than old.v3.example")),
            ),
        ] {
            let router = router(json!({"dns": dns}));
            let route = with(|conditions| {
                (conditions.scheduled, conditions.router_gone) = (Some(mark(!router_gone)), router_gone);
            });
            let (namespace, hold) = (Labels::new(), Hold::Held);
            let around = Around {
                key: &key,
                router: Some(&router),
                namespace: &namespace,
                hold: &hold,
                blocking: &[],
                lost: &[],
            };
            let said = statements(&route, &binding, around);
            assert_eq!(said.len(), usize::from(expected.is_some()), "{said:?}");
            if let Some((is_true, message)) = expected {
                assert!(said[0].is_true == is_true && said[0].message.starts_with(message), "{said:?}");
            }
        }
    }

    #[test]
    fn a_former_name_that_leads_elsewhere_is_told_of() {
        let router = router(json!({}));
        let on = |routers: &[&str]| routers.iter().map(|&router| router.to_owned()).collect::<Vec<_>>();
        let route = placed();
        let blocked = |routers: &[&str], zones: &[&str]| {
            with(|conditions| {
                conditions.former_name_blocked = blocked("ns-app", &on(routers), &on(zones)).map(Box::from)
            })
        };
        for (route, blocking, lost, expected) in [
            (route.clone(), on(&[]), on(&[]), vec![]),
            (route.clone(), on(&["shard2"]), on(&[]), vec![(FORMER_NAME_BLOCKED, true)]),
            (blocked(&["shard2"], &[]), on(&["shard2"]), on(&[]), vec![]),
            (blocked(&["shard2"], &[]), on(&["shard2", "shard3"]), on(&[]), vec![(FORMER_NAME_BLOCKED, true)]),
            (blocked(&["shard2"], &[]), on(&[]), on(&[]), vec![(FORMER_NAME_BLOCKED, false)]),
            (route.clone(), on(&[]), on(&["s2.example"]), vec![(FORMER_NAME_BLOCKED, true)]),
            (blocked(&[], &["s2.example"]), on(&[]), on(&["s2.example"]), vec![]),
            (blocked(&[], &["s2.example"]), on(&["shard3"]), on(&["s2.example"]), vec![(FORMER_NAME_BLOCKED, true)]),
            (blocked(&["shard3"], &["s2.example"]), on(&["shard3"]), on(&["s2.example"]), vec![]),
            (blocked(&[], &["s2.example"]), on(&[]), on(&[]), vec![(FORMER_NAME_BLOCKED, false)]),
        ] {
            let said = said(&route, Some(&router), &Hold::Held, (&blocking, &lost));
            assert_eq!(said, expected, "{route:?} {blocking:?} {lost:?}");
        }
    }
}
