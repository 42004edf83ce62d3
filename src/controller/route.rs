//! Routes after they were placed: conditions that must follow later changes, and bindings without a Route.
//!
//! - A bound Route stays where it is when its labels, its Namespace's, or its Router's selectors change; its condition
//!   `SelectorMismatch` then says that it would not be placed there today.
//! - A Route that was refused its host, and got it later, is admitted; and so is any bound Route with a host that says
//!   nothing of it. One whose host was proven to be its owner's, and is no more, is not admitted any more, and stays.
//! - A RouteBinding whose Route is gone, or was made anew with another uid, is deleted. Our own server deletes it together
//!   with the Route; on others, and after a crash in between, this does.
//!
//! Only what is wrong is written: an ordinary Route gets no write from here.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use serde_json::json;

use super::live::verdict::Told;
use super::router::RouterView;
use crate::api::names::challenge_name;
use crate::api::standing::Standing;
use crate::api::v1alpha1::route::{ADMITTED, HOST_PROVEN, Phase, Route};
use crate::api::v1alpha1::route_binding::RouteBinding;
use crate::client::reflector::ObjectKey;
use crate::client::status::{Statement, state, update_status};

/// Condition of a Route: it is bound to a Router whose selectors do not match it any more.
pub const SELECTOR_MISMATCH: &str = "SelectorMismatch";

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A Route, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RouteView {
    /// `metadata.uid`.
    pub uid: String,
    /// Its labels.
    pub labels: Labels,
    /// `spec.host`, if it is not empty.
    pub host: Option<String>,
    /// Whether its status says that it has a Router.
    pub bound: bool,
    /// What its condition `Admitted` says.
    pub admitted: Option<bool>,
    /// What its condition [`SELECTOR_MISMATCH`] says.
    pub mismatch: Option<bool>,
    /// What its condition `HostProven` says of its host of now.
    pub host_proven: Option<bool>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// What its conditions say of its names.
    pub told: Told,
    /// Where it stands.
    pub standing: Standing,
    /// Why it has no Router, as its condition `Scheduled` says in a word; nothing if it has one.
    pub waits_for: Option<Box<str>>,
}

impl RouteView {
    /// Of a Route.
    pub fn new(route: &Route) -> Self {
        let status = route.status.as_ref();
        let (standing, decided) = status.map(Standing::of).unwrap_or_default();
        let says = |kind: &str| {
            let conditions = &status?.conditions;
            conditions.iter().find(|condition| condition.type_ == kind).map(|condition| condition.status == "True")
        };
        RouteView {
            uid: route.metadata.uid.clone().unwrap_or_default(),
            labels: route.metadata.labels.clone().unwrap_or_default(),
            host: route.spec.host.clone().filter(|host| !host.is_empty()),
            bound: status.is_some_and(|status| status.phase == Phase::Scheduled),
            admitted: says(ADMITTED),
            mismatch: says(SELECTOR_MISMATCH),
            host_proven: says(HOST_PROVEN).filter(|_| {
                let challenge = status.and_then(|status| status.challenge.as_ref());
                let host = route.spec.host.as_deref().unwrap_or_default();
                challenge.is_some_and(|challenge| challenge.name == challenge_name(host))
            }),
            generation: route.metadata.generation,
            told: status.map_or(Told::default(), |status| Told::of(&status.conditions)),
            standing,
            waits_for: decided
                .filter(|_| standing == Standing::Waiting)
                .map(|condition| condition.reason.as_str().into()),
        }
    }

    /// Whether both are the same but for what is said of names.
    pub fn is_placed_as(&self, other: &RouteView) -> bool {
        let RouteView { uid, labels, host, bound, admitted, mismatch, host_proven, .. } = self;
        let same = (uid, host, bound, admitted, mismatch, host_proven)
            == (&other.uid, &other.host, &other.bound, &other.admitted, &other.mismatch, &other.host_proven);
        same && *labels == other.labels
    }
}

/// A RouteBinding, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BindingView {
    /// Uid of the Route that it binds.
    pub route_uid: String,
    /// The Router.
    pub router: String,
    /// The label.
    pub label: String,
    /// The Routers in whose zones it has trails, and until when.
    pub trails: Vec<(String, Timestamp)>,
}

impl BindingView {
    /// Of a RouteBinding.
    pub fn new(binding: &RouteBinding) -> Self {
        BindingView {
            route_uid: binding.spec.route_uid.clone(),
            router: binding.spec.router.clone(),
            label: binding.spec.label.clone(),
            trails: binding.spec.trails.iter().map(|trail| (trail.router.clone(), trail.until.0)).collect(),
        }
    }
}

/// Whether a binding has no Route, or not the one that is there.
pub fn is_stray(binding: &BindingView, route: Option<&RouteView>) -> bool {
    route.is_none_or(|route| route.uid != binding.route_uid)
}

/// What the conditions of a bound Route should say, and do not. `router` is its Router, if that exists; `namespace` are the
/// labels of its Namespace; `is_refused` is whether its host was to be proven, and is not.
pub fn statements(
    route: &RouteView,
    binding: &BindingView,
    router: Option<&RouterView>,
    namespace: &Labels,
    is_refused: bool,
) -> Vec<Statement> {
    let mut statements = Vec::new();
    if !route.bound {
        return statements;
    }
    // On the ordinary way the binding says so; a server that does not gets this for the routes whom it concerns.
    if is_refused {
        if route.admitted != Some(false) {
            let message =
                "the host is not proven to be the owner's any more; the condition HostProven says why".to_owned();
            statements.push(Statement { kind: ADMITTED, is_true: false, reason: "OwnershipUnproven", message });
        }
    } else if route.admitted == Some(false) || route.admitted.is_none() && route.host.is_some() {
        let message = "the route holds its host".to_owned();
        statements.push(Statement { kind: ADMITTED, is_true: true, reason: "Admitted", message });
    }
    let mismatch = router.is_some_and(|router| !router.selects(&route.labels, namespace));
    if mismatch && route.mismatch != Some(true) {
        let message =
            format!("the selectors of Router {} do not match the route any more; it stays there", binding.router);
        statements.push(Statement { kind: SELECTOR_MISMATCH, is_true: true, reason: "SelectorsChanged", message });
    }
    if !mismatch && route.mismatch == Some(true) {
        let message = format!("the selectors of Router {} match the route", binding.router);
        statements.push(Statement { kind: SELECTOR_MISMATCH, is_true: false, reason: "SelectorsMatch", message });
    }
    statements
}

/// Writes statements into the conditions of the Route at `key`, if it still is the one with this uid, and bound.
pub async fn write(
    client: &kube::Client,
    key: &ObjectKey,
    uid: &str,
    statements: &[Statement],
) -> kube::Result<Option<&'static str>> {
    let routes: Api<Route> = Api::namespaced(client.clone(), namespace(key));
    let mut written = None;
    let change = |route: &Route| {
        written = None;
        let status = route.status.clone().unwrap_or_default();
        if route.metadata.uid.as_deref() != Some(uid) || status.phase != Phase::Scheduled {
            return None;
        }
        let mut conditions = status.conditions;
        let mut changed = false;
        for statement in statements {
            changed |= state(&mut conditions, statement, route.metadata.generation, Timestamp::now());
        }
        written = changed.then_some("status_written");
        changed.then(|| json!({"conditions": conditions}))
    };
    update_status(&routes, &key.name, change).await?;
    Ok(written)
}

/// Deletes the binding at `key`, if it has no Route by what the API says now.
pub async fn clear_binding(client: &kube::Client, key: &ObjectKey) -> kube::Result<Option<&'static str>> {
    let bindings: Api<RouteBinding> = Api::namespaced(client.clone(), namespace(key));
    let routes: Api<Route> = Api::namespaced(client.clone(), namespace(key));
    // In this order: were the Route made anew and bound in between, the binding's uid would be another one.
    let Some(binding) = bindings.get_opt(&key.name).await? else { return Ok(None) };
    let route = routes.get_opt(&key.name).await?.map(|route| RouteView::new(&route));
    if !is_stray(&BindingView::new(&binding), route.as_ref()) {
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

    #[test]
    fn conditions_follow_changes_and_are_silent_otherwise() {
        let router: crate::api::v1alpha1::router::Router = serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"},
            "spec": {"routeSelector": {"matchLabels": {"tier": "gold"}}},
        }))
        .expect("a Router");
        let router = RouterView::new(&router, None);
        let binding = BindingView { router: "shard1".to_owned(), ..BindingView::default() };
        for (tier, bound, admitted, mismatch, expected) in [
            ("gold", true, None, None, vec![]),
            ("gold", true, Some(true), Some(false), vec![]),
            ("lead", true, None, None, vec![(SELECTOR_MISMATCH, true)]),
            ("lead", true, None, Some(true), vec![]),
            ("gold", true, None, Some(true), vec![(SELECTOR_MISMATCH, false)]),
            ("gold", true, Some(false), None, vec![(ADMITTED, true)]),
            ("lead", false, Some(false), None, vec![]),
        ] {
            let labels = [("tier".to_owned(), tier.to_owned())].into();
            let route = RouteView { labels, bound, admitted, mismatch, ..RouteView::default() };
            let found = statements(&route, &binding, Some(&router), &Labels::new(), false);
            let found: Vec<_> = found.iter().map(|statement| (statement.kind, statement.is_true)).collect();
            assert_eq!(found, expected, "{route:?}");
        }
        let host = Some("www.shop.example".to_owned());
        let route = RouteView { host, bound: true, ..RouteView::default() };
        for (admitted, expected) in [(Some(true), vec![(ADMITTED, false)]), (Some(false), vec![])] {
            let route = RouteView { admitted, ..route.clone() };
            let found = statements(&route, &binding, None, &Labels::new(), true);
            let found: Vec<_> = found.iter().map(|statement| (statement.kind, statement.is_true)).collect();
            assert_eq!(found, expected, "a host that was proven and is no more");
        }
        let found = statements(&route, &binding, None, &Labels::new(), false);
        assert!(matches!(found.as_slice(), [Statement { kind: ADMITTED, is_true: true, .. }]), "{found:?}");
    }
}
