//! The status of Routers: whether they are ready, whether all of their spec is used, and how many routes they have.
//!
//! `Ready` speaks of serving: a Router is ready when it has an active address and its selectors can be read. One that is
//! cordoned or draining still serves its routes; it is ready, for that reason, so that a deliberate step rings no alarm.
//!
//! `Accepted` speaks of the zone: what the compiler says against the Router's fields, with their paths. Faults that lie
//! between objects or on one name server, as a zone file at the same apex, are told by that name server's log.

use jiff::Timestamp;
use kube::Api;
use kube::core::{Selector, SelectorExt as _};
use serde_json::json;

use super::route::Labels;
use super::zone::zones::examine;
use crate::api::v1alpha1::router::{ACCEPTED, AddressState, READY, Router, RouterState};
use crate::client::status::{Statement, state, update_status};
use crate::compiler::Settings;

/// Most faults that a condition tells; how many more there are, it says.
const FAULTS_TOLD_MAX: usize = 5;

/// A Router, as far as it matters here.
#[derive(Debug, Clone, PartialEq)]
pub struct RouterView {
    route_selector: Option<Selector>,
    namespace_selector: Option<Selector>,
    generation: Option<i64>,
    /// What its status should say of its readiness.
    ready: Statement,
    /// What its status should say of its fields, if they were examined.
    accepted: Option<Statement>,
    /// What it says: of readiness, of its fields, of the generation, of the number of routes.
    told: Told,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Told {
    ready: Option<(bool, String, String)>,
    accepted: Option<(bool, String, String)>,
    generation: Option<i64>,
    routes: Option<u32>,
}

impl RouterView {
    /// Of a Router, examined under the settings of the platform's zones if they are given.
    pub fn new(router: &Router, platform: Option<&Settings>) -> Self {
        let selector = |selector: &Option<_>| Selector::try_from(selector.clone().unwrap_or_default()).ok();
        let mut view = RouterView {
            route_selector: selector(&router.spec.route_selector),
            namespace_selector: selector(&router.spec.namespace_selector),
            generation: router.metadata.generation,
            ready: Statement { kind: READY, is_true: true, reason: "Ready", message: String::new() },
            accepted: platform.map(|platform| acceptance(router, platform)),
            told: told(router),
        };
        let (is_true, reason, message) = readiness(router, &view);
        view.ready = Statement { kind: READY, is_true, reason, message: message.to_owned() };
        view
    }

    /// Whether a route with these labels, in a namespace with those, may be placed on it by its selectors.
    pub fn selects(&self, route: &Labels, namespace: &Labels) -> bool {
        let matches = |selector: &Option<Selector>, labels| selector.as_ref().is_some_and(|s| s.matches(labels));
        matches(&self.route_selector, route) && matches(&self.namespace_selector, namespace)
    }

    /// Whether both have the same selectors.
    pub fn selects_as(&self, other: &RouterView) -> bool {
        self.route_selector == other.route_selector && self.namespace_selector == other.namespace_selector
    }

    /// Whether its status does not say what is so, it having this many routes.
    pub fn is_stale(&self, routes: u32) -> bool {
        let said = |one: &Statement| (one.is_true, one.reason.to_owned(), one.message.clone());
        // Without an examination nothing is to be said of it.
        let accepted = self.accepted.as_ref().map(said).or_else(|| self.told.accepted.clone());
        self.told
            != Told { ready: Some(said(&self.ready)), accepted, generation: self.generation, routes: Some(routes) }
    }
}

/// Writes the status of the Router `name`, it having this many routes.
pub async fn write(
    client: &kube::Client,
    name: &str,
    routes: u32,
    platform: Option<&Settings>,
) -> kube::Result<Option<&'static str>> {
    let routers: Api<Router> = Api::all(client.clone());
    let mut written = None;
    let change = |router: &Router| {
        let view = RouterView::new(router, platform);
        written = view.is_stale(routes).then_some("status_written");
        written?;
        let mut conditions = router.status.clone().unwrap_or_default().conditions;
        for statement in [&view.ready].into_iter().chain(&view.accepted) {
            state(&mut conditions, statement, router.metadata.generation, Timestamp::now());
        }
        Some(json!({
            "conditions": conditions,
            "observedGeneration": router.metadata.generation,
            "routes": routes,
        }))
    };
    update_status(&routers, name, change).await?;
    Ok(written)
}

fn readiness(router: &Router, view: &RouterView) -> (bool, &'static str, &'static str) {
    let has_active = router.spec.addresses.iter().any(|address| address.state == AddressState::Active);
    if router.metadata.deletion_timestamp.is_some() {
        (false, "Deleting", "it is being deleted")
    } else if view.route_selector.is_none() || view.namespace_selector.is_none() {
        (false, "InvalidSelector", "a selector cannot be read, so that no route is placed here")
    } else if !has_active {
        (false, "NoActiveAddress", "none of its addresses is active, so that its names lead nowhere")
    } else {
        match router.spec.state {
            RouterState::Active => (true, "Ready", "it takes and serves routes"),
            RouterState::Cordoned => (true, "Cordoned", "it serves its routes and takes no new ones"),
            RouterState::Draining => (true, "Draining", "it serves its routes until they are moved away"),
        }
    }
}

fn acceptance(router: &Router, platform: &Settings) -> Statement {
    let verdicts = examine(router, platform);
    if verdicts.is_empty() {
        let message = "all of it is used".to_owned();
        return Statement { kind: ACCEPTED, is_true: true, reason: "Accepted", message };
    }
    let told = verdicts.iter().take(FAULTS_TOLD_MAX).map(|verdict| format!("{}: {}", verdict.path, verdict.message));
    let mut message = told.collect::<Vec<_>>().join("; ");
    if verdicts.len() > FAULTS_TOLD_MAX {
        message.push_str(&format!("; and {} more", verdicts.len() - FAULTS_TOLD_MAX));
    }
    Statement { kind: ACCEPTED, is_true: false, reason: "InvalidFields", message }
}

fn told(router: &Router) -> Told {
    let Some(status) = &router.status else { return Told::default() };
    let says = |kind: &str| {
        let found = status.conditions.iter().find(|condition| condition.type_ == kind);
        found.map(|found| (found.status == "True", found.reason.clone(), found.message.clone()))
    };
    Told { ready: says(READY), accepted: says(ACCEPTED), generation: status.observed_generation, routes: status.routes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(spec: serde_json::Value, status: serde_json::Value) -> RouterView {
        let object = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": "shard1", "generation": 2}, "spec": spec, "status": status,
        });
        let platform = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        RouterView::new(&serde_json::from_value(object).expect("a Router"), Some(&platform.expect("good settings")))
    }

    #[test]
    fn faults_of_fields_are_told_with_their_paths() {
        let address = json!([{"ip": "192.0.2.1"}]);
        for (spec, reason, told) in [
            (json!({"addresses": address}), "Accepted", "all of it is used"),
            (json!({"addresses": address, "records": ["@ A nonsense"]}), "InvalidFields", "spec.records[0]: "),
            (json!({"addresses": [{"ip": "192.0.2.256"}]}), "InvalidFields", "spec.addresses[0].ip: "),
            (json!({"dns": "a..b"}), "InvalidFields", "spec.dns: "),
        ] {
            let accepted = view(spec.clone(), json!({})).accepted.expect("it was examined");
            assert_eq!((accepted.is_true, accepted.reason), (reason == "Accepted", reason), "{spec}");
            assert!(accepted.message.starts_with(told), "{spec}: {}", accepted.message);
        }
    }

    #[test]
    fn readiness_and_its_reason() {
        let address = json!([{"ip": "192.0.2.1"}]);
        for (spec, is_true, reason) in [
            (json!({"addresses": address}), true, "Ready"),
            (json!({"addresses": address, "state": "cordoned"}), true, "Cordoned"),
            (json!({"addresses": address, "state": "draining"}), true, "Draining"),
            (json!({}), false, "NoActiveAddress"),
            (json!({"addresses": [{"ip": "192.0.2.1", "state": "drained"}]}), false, "NoActiveAddress"),
            (
                json!({"addresses": address, "routeSelector": {"matchExpressions": [{"key": "a", "operator": "x"}]}}),
                false,
                "InvalidSelector",
            ),
        ] {
            let view = view(spec.clone(), json!({}));
            assert_eq!((view.ready.is_true, view.ready.reason), (is_true, reason), "{spec}");
        }
    }

    #[test]
    fn a_status_that_says_it_all_is_not_written() {
        let condition = |message: &str| {
            json!([{
                "type": "Ready", "status": "True", "reason": "Ready", "message": message,
                "lastTransitionTime": "2025-01-01T00:00:00Z", "observedGeneration": 2,
            }, {
                "type": "Accepted", "status": "True", "reason": "Accepted", "message": "all of it is used",
                "lastTransitionTime": "2025-01-01T00:00:00Z", "observedGeneration": 2,
            }])
        };
        let good = condition("it takes and serves routes");
        for (status, is_stale) in [
            (json!({}), true),
            (json!({"routes": 3, "observedGeneration": 2, "conditions": good}), false),
            (json!({"routes": 4, "observedGeneration": 2, "conditions": good}), true),
            (json!({"routes": 3, "observedGeneration": 1, "conditions": good}), true),
            (json!({"routes": 3, "observedGeneration": 2, "conditions": condition("other")}), true),
        ] {
            let view = view(json!({"addresses": [{"ip": "192.0.2.1"}]}), status.clone());
            assert_eq!(view.is_stale(3), is_stale, "{status}");
        }
    }
}
