//! What the scheduler says on a Route that it could not place, or not move: the conditions `Scheduled`, `Admitted` and
//! `MovePending`.
//!
//! A placed Route needs none of this: creating its binding sets its status. On a server that does not do so (a real
//! Kubernetes API has no transaction over two objects) [`Reporter::repair`] writes what the binding says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use serde_json::{Value, json};

use crate::client::reflector::ObjectKey;
use crate::client::status::{Statement, state, update_status};
use crate::client::uid::Uid;
use crate::world::RouteInfo;
use crate::world::route::Mark;
use signpost_api::names::other_label;
use signpost_api::v1alpha1::route::{ADMITTED, MOVE_PENDING, NameKind, PUBLISHED, Phase, RESOLVABLE, Route, SCHEDULED};
use signpost_api::v1alpha1::route_binding::{RouteBinding, RouteBindingSpec};

/// What to say on one Route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The Route's uid: another Route of the name is not meant.
    pub uid: String,
    /// Whether it is said of a Route with a Router, or of one without; what comes too late is not said.
    pub bound: bool,
    /// What to say.
    pub statements: Vec<Statement>,
}

impl Report {
    /// No Router can take the Route.
    pub fn unscheduled(uid: &Uid, reason: &'static str, message: String, has_host: bool) -> Self {
        let mut statements = vec![Statement { kind: SCHEDULED, is_true: false, reason, message }];
        if !has_host {
            statements.push(admitted());
        }
        Report { uid: uid.to_string(), bound: false, statements }
    }

    /// The Route must not have its host.
    pub fn not_admitted(uid: &Uid, reason: &'static str, message: String) -> Self {
        let waits = "the route is placed when its host is admitted".to_owned();
        let statements = vec![
            Statement { kind: ADMITTED, is_true: false, reason, message },
            Statement { kind: SCHEDULED, is_true: false, reason: "NotAdmitted", message: waits },
        ];
        Report { uid: uid.to_string(), bound: false, statements }
    }

    /// The Route is to move and cannot, for now.
    pub fn move_pending(uid: &Uid, reason: &'static str, message: String) -> Self {
        let message = format!("it stays where it is: {message}");
        let statements = vec![Statement { kind: MOVE_PENDING, is_true: true, reason, message }];
        Report { uid: uid.to_string(), bound: true, statements }
    }

    /// The Route was to move and is not to any more.
    pub fn stays(uid: &Uid) -> Self {
        let message = "it is not to move any more".to_owned();
        let statements = vec![Statement { kind: MOVE_PENDING, is_true: false, reason: "Withdrawn", message }];
        Report { uid: uid.to_string(), bound: true, statements }
    }

    /// The statement that is bad news, if there is one.
    pub fn trouble(&self) -> Option<&Statement> {
        self.statements.iter().find(|statement| statement.is_true == (statement.kind == MOVE_PENDING))
    }

    /// Whether the Route says all this already.
    pub fn is_said_by(&self, route: &RouteInfo) -> bool {
        self.statements.iter().all(|statement| {
            let status = if statement.is_true { "True" } else { "False" };
            let mark = Mark::of(status, statement.reason, &statement.message);
            let said = match statement.kind {
                SCHEDULED => route.conditions.scheduled,
                MOVE_PENDING => route.conditions.moving,
                _ => route.conditions.admitted,
            };
            said == Some(mark)
        })
    }
}

fn admitted() -> Statement {
    Statement { kind: ADMITTED, is_true: true, reason: "Admitted", message: "the route may have its name".to_owned() }
}

/// Writes reports.
#[derive(Clone)]
pub struct Reporter {
    /// Speaks as the scheduler.
    pub client: kube::Client,
}

impl Reporter {
    /// Writes a report on the Route at `key`, unless it was bound, or is not any more, meanwhile.
    pub async fn report(&self, key: &ObjectKey, report: &Report) -> kube::Result<()> {
        let change = |route: &Route| {
            let status = route.status.clone().unwrap_or_default();
            let bound = status.phase == Phase::Scheduled;
            if route.metadata.uid.as_deref() != Some(&report.uid) || bound != report.bound {
                return None;
            }
            let conditions = with_statements(status.conditions, &report.statements, route.metadata.generation)?;
            Some(json!({"conditions": conditions, "observedGeneration": route.metadata.generation}))
        };
        update_status(&self.routes(key), &key.name, change).await.map(|_| ())
    }

    /// Writes to the Route at `key` what its binding says, if the server has not.
    pub async fn repair(&self, key: &ObjectKey) -> kube::Result<()> {
        let bindings: Api<RouteBinding> = Api::namespaced(self.client.clone(), namespace(key));
        let Some(binding) = bindings.get_opt(&key.name).await? else { return Ok(()) };
        let change = |route: &Route| status_of_binding(route, &binding.spec);
        update_status(&self.routes(key), &key.name, change).await.map(|_| ())
    }

    fn routes(&self, key: &ObjectKey) -> Api<Route> {
        Api::namespaced(self.client.clone(), namespace(key))
    }
}

fn namespace(key: &ObjectKey) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

/// The status that a binding gives its Route; `None` if it is another Route's, or the Route has it.
fn status_of_binding(route: &Route, binding: &RouteBindingSpec) -> Option<Value> {
    let status = route.status.clone().unwrap_or_default();
    let says_so = status.phase == Phase::Scheduled
        && status.router.as_ref() == Some(&binding.router)
        && (&status.names, &status.former_names) == (&binding.names, &binding.former_names);
    if route.metadata.uid.as_deref() != Some(&binding.route_uid) || says_so {
        return None;
    }
    let of_kind = |kind: NameKind| binding.names.iter().find(|name| name.kind == kind).map(|name| name.name.clone());
    let dns = route.spec.host.clone().filter(|host| !host.is_empty()).or_else(|| of_kind(NameKind::System));
    let scheduled = Statement { kind: SCHEDULED, is_true: true, reason: "Scheduled", message: binding.summary() };
    let generation = route.metadata.generation;
    let mut conditions = status.conditions;
    if status.router.as_ref() != Some(&binding.router) || status.names != binding.names {
        // What was verified of other names says nothing of these.
        conditions.retain(|condition| condition.type_ != PUBLISHED && condition.type_ != RESOLVABLE);
    }
    let moved = conditions.iter().any(|condition| condition.type_ == MOVE_PENDING).then(|| {
        let message = format!("moved to {}", binding.router);
        Statement { kind: MOVE_PENDING, is_true: false, reason: "Moved", message }
    });
    let namespace = route.metadata.namespace.as_deref().unwrap_or(&binding.route_namespace);
    let subdomain = route.spec.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty());
    let mut admitted = admitted();
    if let Some((reason, message)) = other_label(namespace, &binding.route_name, subdomain, &binding.label) {
        admitted = Statement { reason, message, ..admitted };
    }
    for statement in [scheduled, admitted].into_iter().chain(moved) {
        state(&mut conditions, &statement, generation, Timestamp::now());
    }
    Some(json!({
        "phase": Phase::Scheduled,
        "dns": dns,
        "router": binding.router,
        "canonicalName": of_kind(NameKind::Alias),
        "names": binding.names,
        "formerNames": binding.former_names,
        "observedGeneration": generation,
        "conditions": conditions,
    }))
}

/// The conditions with these statements in them; `None` if they are already.
fn with_statements(
    mut conditions: Vec<Condition>,
    statements: &[Statement],
    generation: Option<i64>,
) -> Option<Vec<Condition>> {
    let now = Timestamp::now();
    let mut changed = false;
    for statement in statements {
        changed |= state(&mut conditions, statement, generation, now);
    }
    changed.then_some(conditions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_already_is_not_said_again() {
        let report = Report::unscheduled(&Uid::new("u1"), "NoRouter", "there is no Router yet".to_owned(), false);
        let mut facts = RouteInfo::default();
        assert!(!report.is_said_by(&facts));
        facts.conditions.scheduled = Some(Mark::of("False", "NoRouter", "there is no Router yet"));
        facts.conditions.admitted = Some(Mark::of("True", "Admitted", "the route may have its name"));
        assert!(report.is_said_by(&facts));
        facts.conditions.scheduled = Some(Mark::of("False", "NoRouter", "another"));
        assert!(!report.is_said_by(&facts));
    }
}
