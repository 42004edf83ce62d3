//! RouteBinding: the decision that puts a Route on a Router. Writing one writes the Route's status in the same transaction.
//!
//! ```text
//!            create or change of the binding
//!   phase new ─────────────────────────────▶ phase scheduled, dns, router, canonicalName, names, trails
//!             ◀─────────────────────────────
//!            deletion of the binding alone
//! ```
//!
//! A change that puts the Route on another Router is a move: the Route's annotation that asked for it goes in the same
//! transaction.
//!
//! The Route's resourceVersion is an expectation of the transaction, so two schedulers can never bind one Route twice, and
//! a binding is never made for a Route that has changed since the rules looked at it. So are those of the Router, of the
//! label's claim and of the schedulers' Lease, which are only read: whatever is deleted, released or taken over in that very
//! moment, the binding is judged anew. Each binding passes the Router's turnstile, so that a deletion of the Router that did
//! not count it is judged anew as well.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::columns::{self, AGE, Column, Columns};
use super::selectable::Selectable;
use super::turnstile::Turnstile;
use super::{Context, Effect, Kind, Operation, Reader, Rules, SideWrite, crd, field, name_claim, route};
use crate::api::names;
use crate::api::v1alpha1::name_claim::Holder;
use crate::api::v1alpha1::route::{ADMITTED, MOVE_PENDING, NameKind, PUBLISHED, RESOLVABLE, SCHEDULED};
use crate::api::v1alpha1::route_binding::{FENCING_ANNOTATION, FENCING_FIELD, RouteBinding, RouteBindingSpec};
use crate::api::v1alpha1::{CATEGORY, GROUP, SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE, VERSION};
use crate::apiserver::apply;
use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::schema::Schema;

pub(super) fn kind() -> Kind {
    Kind {
        group: GROUP,
        version: VERSION,
        kind: "RouteBinding",
        plural: "routebindings",
        singular: "routebinding",
        short_names: &["rtb"],
        categories: &[CATEGORY],
        namespaced: true,
        has_status: true,
        key_prefix: "/signpost.dev/routebindings/",
        schema: Schema::new(crd::schema_of::<RouteBinding>()),
        columns: Columns::new(COLUMNS),
        selectable_fields: Selectable::new(&[
            "spec.router",
            "spec.dns",
            "spec.label",
            "spec.strategy",
            "spec.routeUID",
        ]),
        time_to_live: None,
        view: None,
        rules: &RouteBindings,
    }
}

const COLUMNS: &[Column] = &[
    Column {
        name: "Router",
        kind: "string",
        priority: 0,
        description: "The Router that was chosen.",
        reads: &["spec.router"],
        cell: columns::shown,
    },
    Column {
        name: "DNS",
        kind: "string",
        priority: 0,
        description: "The Router's zone.",
        reads: &["spec.dns"],
        cell: columns::shown,
    },
    Column {
        name: "Strategy",
        kind: "string",
        priority: 0,
        description: "The strategy that chose.",
        reads: &["spec.strategy"],
        cell: columns::shown,
    },
    AGE,
    Column {
        name: "Names",
        kind: "string",
        priority: 1,
        description: "Every name assigned to the Route.",
        reads: &["spec.names"],
        cell: |read, _| columns::list(read[0].items().filter_map(|name| name.get(["name"])[0].text()), 3),
    },
    Column {
        name: "Summary",
        kind: "string",
        priority: 1,
        description: "Why this Router was chosen.",
        reads: &["spec.explanation.summary"],
        cell: columns::shown,
    },
];

struct RouteBindings;

impl Rules for RouteBindings {
    fn validate_create(&self, context: &Context<'_>, object: &Value) -> Vec<Cause> {
        let (spec, metadata) = (&object["spec"], &object["metadata"]);
        let mut causes = Vec::new();
        for (name, own) in [("routeName", "name"), ("routeNamespace", "namespace")] {
            if spec[name].is_string() && spec[name] != metadata[own] {
                let path = format!("spec.{name}");
                causes.push(field::invalid(&path, &spec[name], &format!("must be the binding's own metadata.{own}")));
            }
        }
        for name in ["routeUID", "router", "strategy"] {
            if spec[name] == "" {
                causes.push(field::required(&format!("spec.{name}"), ""));
            }
        }
        causes.extend(name_faults(context.domain, spec));
        causes.extend(trail_faults(spec));
        causes
    }

    fn validate_update(&self, context: &Context<'_>, old: &Value, new: &Value) -> Vec<Cause> {
        let mut causes = self.validate_create(context, new);
        for name in ["routeUID", "label"] {
            if old["spec"][name] != new["spec"][name] {
                let what = "field is immutable: a Route keeps its binding and its label as long as it is there";
                causes.push(field::invalid(&format!("spec.{name}"), &new["spec"][name], what));
            }
        }
        causes
    }

    fn before_commit<'a>(
        &'a self,
        context: &'a Context<'a>,
        operation: Operation<'a>,
        reader: &'a dyn Reader,
    ) -> BoxFuture<'a, Result<Vec<SideWrite>, ApiError>> {
        Box::pin(async move {
            Ok(match operation {
                Operation::Create(binding) => bind(context, binding, Unclaimed::IsClaimed, reader).await?,
                Operation::Update { old, new } if only_trails_age(old, new) => age_trails(context, new, reader).await?,
                Operation::Update { old, new } if old["spec"] != new["spec"] => {
                    let mut writes = bind(context, new, Unclaimed::IsRefused, reader).await?;
                    // It leaves a trail in the zone of the Router that it was on, which may be about to be deleted.
                    writes.extend(left(old, new).map(|router| Turnstile::Router(router).pass()));
                    writes
                }
                Operation::Update { .. } => Vec::new(),
                Operation::Delete { old, .. } => {
                    guard_delete(context, old, reader).await?;
                    unbind(context, old, reader).await?.into_iter().collect()
                }
                // It was judged when its deletion began.
                Operation::Release { old } => unbind(context, old, reader).await?.into_iter().collect(),
            })
        })
    }
}

/// The names must be those that follow from label, zone and platform: one system name, one alias, at most one custom host.
fn name_faults(domain: &str, spec: &Value) -> Vec<Cause> {
    let (Some(label), Some(dns)) = (spec["label"].as_str(), spec["dns"].as_str()) else { return Vec::new() };
    let Some(assigned) = spec["names"].as_array() else { return Vec::new() };
    let mut causes = Vec::new();
    if !names::is_host_label(label) {
        causes.push(field::invalid("spec.label", &spec["label"], "must be one label of a host name"));
        return causes;
    }
    let Some(system) = names::system_name(label, dns) else {
        let what = format!("with the label {label:?} in front the name is over {} octets", names::NAME_OCTETS_MAX);
        causes.push(field::invalid("spec.dns", &spec["dns"], &what));
        return causes;
    };
    let alias = names::alias_name(label, domain);
    for (kind, expected) in [("system", Some(&system)), ("alias", Some(&alias)), ("custom", None)] {
        let mut found = assigned.iter().enumerate().filter(|(_, name)| name["type"] == kind);
        match (found.next(), expected) {
            (None, Some(expected)) => {
                causes.push(field::required(
                    "spec.names",
                    &format!("the {kind} name {expected} must be among the names"),
                ));
            }
            (Some((index, name)), Some(expected)) if name["name"] != expected.as_str() => {
                let path = format!("spec.names[{index}].name");
                causes.push(field::invalid(&path, &name["name"], &format!("the {kind} name must be {expected}")));
            }
            _ => {}
        }
        if let Some((index, name)) = found.next() {
            let path = format!("spec.names[{index}].type");
            causes.push(field::duplicate(&path, &name["type"]));
        }
    }
    causes
}

/// Trails are the names of the label in other zones than that of now.
fn trail_faults(spec: &Value) -> Vec<Cause> {
    let (Some(label), Some(dns)) = (spec["label"].as_str(), spec["dns"].as_str()) else { return Vec::new() };
    let mut causes = Vec::new();
    for (index, trail) in spec["trails"].as_array().into_iter().flatten().enumerate() {
        let Some(name) = trail["name"].as_str() else { continue };
        let zone = name.strip_prefix(label).and_then(|rest| rest.strip_prefix('.')).filter(|zone| !zone.is_empty());
        let what = match zone {
            None => format!("must be a name of the label {label:?} in a Router's zone"),
            Some(zone) if zone == dns => "must not be the Route's name of now".to_owned(),
            Some(_) => continue,
        };
        causes.push(field::invalid(&format!("spec.trails[{index}].name"), &trail["name"], &what));
    }
    let trails = spec["trails"].as_array().into_iter().flatten().enumerate();
    let mut pending = trails.filter(|(_, trail)| !trail["from"].is_null());
    if let Some((index, trail)) = pending.nth(1) {
        let what = "only one trail can be yet to begin: the others lead to its name until then";
        causes.push(field::invalid(&format!("spec.trails[{index}].from"), &trail["from"], what));
    }
    causes
}

/// Whether a change does nothing but take trails away, let others begin, or let them end later. What is bound stays as it is,
/// so nothing else need be checked.
fn only_trails_age(old: &Value, new: &Value) -> bool {
    let without = |binding: &Value| {
        let mut spec = binding["spec"].clone();
        spec.as_object_mut().map(|spec| spec.remove("trails"));
        spec
    };
    let trails = |binding: &'_ Value| binding["spec"]["trails"].as_array().cloned().unwrap_or_default();
    let but = |trail: &Value, fields: &[&str]| {
        let mut trail = trail.clone();
        if let Some(trail) = trail.as_object_mut() {
            fields.iter().for_each(|field| drop(trail.remove(*field)));
        }
        trail
    };
    let before = trails(old);
    let is_known = |now: &Value| {
        let is = but(now, &["until"]);
        before.iter().any(|was| but(was, &["until"]) == is || but(was, &["until", "from"]) == is)
    };
    old["spec"] != new["spec"] && without(old) == without(new) && trails(new).iter().all(is_known)
}

async fn age_trails(context: &Context<'_>, binding: &Value, reader: &dyn Reader) -> Result<Vec<SideWrite>, ApiError> {
    let name = binding["spec"]["routeName"].as_str().unwrap_or_default();
    let route = reader.get("Route", context.namespace, name).await?;
    let route = route.filter(|route| route["metadata"]["uid"] == binding["spec"]["routeUID"]);
    let write = route.map(|route| status_write(context, &route, |status| set_trails(status, binding)));
    let mut writes: Vec<SideWrite> = write.into_iter().collect();
    writes.extend(leadership(binding, reader).await?);
    Ok(writes)
}

fn set_trails(status: &mut Value, binding: &Value) {
    let Some(status) = status.as_object_mut() else { return };
    match binding["spec"].get("trails").filter(|trails| trails.as_array().is_some_and(|trails| !trails.is_empty())) {
        Some(trails) => drop(status.insert("trails".to_owned(), trails.clone())),
        None => drop(status.remove("trails")),
    }
}

/// The Router that a changed binding has left.
fn left<'a>(old: &'a Value, new: &Value) -> Option<&'a str> {
    let router = old["spec"]["router"].as_str()?;
    (new["spec"]["router"] != router).then_some(router)
}

/// What becomes of a label that nobody ever claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unclaimed {
    /// The binding claims it.
    IsClaimed,
    /// The binding is refused: one that is there already must have had a claim.
    IsRefused,
}

/// Checks the binding against its Route, Router and label, and makes the Route's new status.
async fn bind(
    context: &Context<'_>,
    binding: &Value,
    unclaimed: Unclaimed,
    reader: &dyn Reader,
) -> Result<Vec<SideWrite>, ApiError> {
    let kind = super::known("RouteBinding");
    let object_name = binding["metadata"]["name"].as_str().unwrap_or_default();
    let conflict = |what: &str| ApiError::conflict(kind, object_name, what);
    let invalid = |cause: Cause| ApiError::invalid(kind, object_name, vec![cause]);
    let spec: RouteBindingSpec = serde_json::from_value(binding["spec"].clone())
        .map_err(|error| ApiError::bad_request(format!("spec cannot be understood: {error}")))?;

    let route = reader.get("Route", context.namespace, &spec.route_name).await?;
    let route = route.ok_or_else(|| ApiError::not_found(super::known("Route"), &spec.route_name))?;
    let metadata = &route["metadata"];
    if metadata["uid"] != spec.route_uid.as_str() {
        let what = format!(
            "the Route's uid is {}, not {:?}: it was deleted and made anew; schedule the new one",
            metadata["uid"], spec.route_uid
        );
        return Err(conflict(&what));
    }
    if let Some(version) = &spec.route_resource_version
        && metadata["resourceVersion"] != version.as_str()
    {
        let what = format!(
            "the Route has changed since it was looked at (resourceVersion {}, not {version:?}); look again",
            metadata["resourceVersion"]
        );
        return Err(conflict(&what));
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Err(conflict("the Route is being deleted"));
    }

    let Some(router) = reader.get("Router", None, &spec.router).await? else {
        return Err(invalid(field::not_found("spec.router", &binding["spec"]["router"])));
    };
    if router["spec"]["dns"] != spec.dns.as_str() {
        let what = format!("must be the zone of Router {:?}, {}", spec.router, router["spec"]["dns"]);
        return Err(invalid(field::invalid("spec.dns", &binding["spec"]["dns"], &what)));
    }
    if !router["metadata"]["deletionTimestamp"].is_null() {
        return Err(conflict(&format!("the Router {:?} is being deleted; choose another", spec.router)));
    }

    let host = route["spec"]["host"].as_str().filter(|host| !host.is_empty());
    let custom = spec.names.iter().position(|name| name.kind == NameKind::Custom);
    if let Some(index) = custom
        && Some(spec.names[index].name.as_str()) != host
    {
        let what = match host {
            Some(host) => format!("the custom name must be the Route's spec.host, {host}"),
            None => "the Route has no spec.host, so it has no custom name".to_owned(),
        };
        let path = format!("spec.names[{index}].name");
        return Err(invalid(field::invalid(&path, &binding["spec"]["names"][index]["name"], &what)));
    }

    let holder = || Holder {
        namespace: context.namespace.unwrap_or_default().to_owned(),
        name: spec.route_name.clone(),
        uid: spec.route_uid.clone(),
    };
    let is_held = |claim: &Value| {
        claim["spec"]["holder"]["uid"] == spec.route_uid.as_str() && claim["spec"]["releasedAt"].is_null()
    };
    let claim = match reader.get("NameClaim", None, &names::label_claim_name(&spec.label)).await? {
        Some(claim) if is_held(&claim) => SideWrite::keep("NameClaim", &claim),
        None if unclaimed == Unclaimed::IsClaimed => name_claim::of_label(context, &spec.label, &holder())?,
        _ => {
            let what = format!("the Route does not hold the label {:?}; claim it with a NameClaim first", spec.label);
            return Err(conflict(&what));
        }
    };

    let mut writes = vec![
        route_write(context, &route, |changed| {
            bound(context, &spec, binding, &route, &mut changed["status"]);
            if route::move_to(&route) == Some(&spec.router) {
                route::forget_move(changed);
            }
        }),
        SideWrite::keep("Router", &router),
        Turnstile::Router(&spec.router).pass(),
        claim,
    ];
    writes.extend(leadership(binding, reader).await?);
    Ok(writes)
}

/// A binding that carries the fencing number of a leader is refused if the Lease has another one: a greater one is a later
/// leader's, and a smaller one that of a Lease made anew, by whose holder the bearer was deposed as well. So it is if there is no
/// Lease: nobody can tell then whether the bearer led when that went, and whoever leads makes it anew with its next renewal. A
/// binding without a number, such as an operator's, is not held against the Lease.
async fn leadership(binding: &Value, reader: &dyn Reader) -> Result<Option<SideWrite>, ApiError> {
    let metadata = &binding["metadata"];
    let Some(fencing) = metadata["annotations"][FENCING_ANNOTATION].as_str() else { return Ok(None) };
    let kind = super::known("RouteBinding");
    let name = metadata["name"].as_str().unwrap_or_default();
    let Ok(fencing) = fencing.parse::<i64>() else {
        let cause = field::invalid(FENCING_FIELD, &Value::from(fencing), "must be the fencing number of a leader");
        return Err(ApiError::invalid(kind, name, vec![cause]));
    };
    // 0 is the number of a scheduler that shares its work with no one and takes no Lease.
    if fencing == 0 {
        return Ok(None);
    }
    let refused = |why: String, what: &str| {
        let mut error = ApiError::conflict(kind, name, &why);
        error.causes = vec![field::invalid(FENCING_FIELD, &Value::from(fencing), what)];
        error
    };
    let Some(lease) = reader.get("Lease", Some(SCHEDULER_LEASE_NAMESPACE), SCHEDULER_LEASE).await? else {
        let why = format!(
            "there is no Lease {SCHEDULER_LEASE} in {SCHEDULER_LEASE_NAMESPACE} that would say who leads (fencing number \
             {fencing}); leave it to whoever makes it anew, or try again"
        );
        return Err(refused(why, "is the number of no Lease"));
    };
    let leads = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
    if fencing != leads {
        let why = format!(
            "another scheduler leads since, or the Lease was changed (fencing number {leads}, not {fencing}); leave it to \
             whoever leads now"
        );
        return Err(refused(why, "is not the Lease's number"));
    }
    Ok(Some(SideWrite::keep("Lease", &lease)))
}

/// The status of a bound Route.
fn bound(context: &Context<'_>, spec: &RouteBindingSpec, binding: &Value, route: &Value, status: &mut Value) {
    let generation = &route["metadata"]["generation"];
    let host = route["spec"]["host"].as_str().filter(|host| !host.is_empty());
    let system = names::system_name(&spec.label, &spec.dns).unwrap_or_default();
    let before = status.clone();
    status["phase"] = json!("scheduled");
    status["dns"] = Value::from(host.unwrap_or(&system));
    status["router"] = Value::from(spec.router.as_str());
    status["canonicalName"] = Value::from(names::alias_name(&spec.label, context.domain));
    status["names"] = binding["spec"]["names"].clone();
    if generation.is_number() {
        status["observedGeneration"] = generation.clone();
    }
    set_trails(status, binding);
    // What leads to its names from elsewhere changes none of them.
    if route::BOUND_FIELDS.iter().any(|name| *name != "trails" && before[*name] != status[*name]) {
        forget_publication(status);
    }
    let message = match &spec.explanation {
        Some(explanation) if !explanation.summary.is_empty() => explanation.summary.clone(),
        _ => format!("the strategy {} chose Router {}", spec.strategy, spec.router),
    };
    // Only a Route that holds its names is bound. One that has lost its host since has not got it back by a move.
    let has_lost_host = before["phase"] == "scheduled" && condition(route, ADMITTED, "status") == "False";
    if !has_lost_host {
        let namespace = context.namespace.unwrap_or_default();
        let subdomain = route["spec"]["subdomain"].as_str().filter(|subdomain| !subdomain.is_empty());
        let other = names::other_label(namespace, &spec.route_name, subdomain, &spec.label);
        let (reason, message) = other.unwrap_or(("Admitted", "the route holds its names".to_owned()));
        route::set_condition(status, ADMITTED, true, (reason, &message), generation, context.now);
    }
    route::set_condition(status, SCHEDULED, true, ("Scheduled", &message), generation, context.now);
    if condition(route, MOVE_PENDING, "status") == "True" {
        let moved = ("Moved", format!("moved to {}", spec.router));
        route::set_condition(status, MOVE_PENDING, false, (moved.0, &moved.1), generation, context.now);
    }
}

/// The binding of a Route that is there stays: without it the Route would be placed anew, as a rule elsewhere, and its name of
/// now would lead nowhere, with no trail. It goes with its Route or its namespace; or if its Router is gone, and its name with
/// that.
async fn guard_delete(context: &Context<'_>, binding: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let spec = &binding["spec"];
    let name = spec["routeName"].as_str().unwrap_or_default();
    let route = reader.get("Route", context.namespace, name).await?;
    let is_its = |route: &Value| route["metadata"]["uid"] == spec["routeUID"];
    if !route.is_some_and(|route| is_its(&route) && route["metadata"]["deletionTimestamp"].is_null()) {
        return Ok(());
    }
    let namespace = context.namespace.unwrap_or_default();
    let home = reader.get("Namespace", None, namespace).await?;
    if home.is_some_and(|home| !home["metadata"]["deletionTimestamp"].is_null()) {
        return Ok(());
    }
    let router = spec["router"].as_str().unwrap_or_default();
    if reader.get("Router", None, router).await?.is_none() {
        return Ok(());
    }
    let what = format!(
        "Route {namespace}/{name} is served on Router {router} by it. To move the Route, run \"signpost move route \
         {namespace}/{name} --to ROUTER\"; to end it, delete the Route, which takes its binding along"
    );
    Err(ApiError::conflict(super::known("RouteBinding"), name, &what))
}

/// A Route whose binding goes waits for the scheduler again.
async fn unbind(context: &Context<'_>, binding: &Value, reader: &dyn Reader) -> Result<Option<SideWrite>, ApiError> {
    let spec = &binding["spec"];
    let name = spec["routeName"].as_str().unwrap_or_default();
    let route = reader.get("Route", context.namespace, name).await?;
    let Some(route) = route.filter(|route| route["metadata"]["uid"] == spec["routeUID"]) else { return Ok(None) };
    Ok(Some(status_write(context, &route, |status| {
        for name in route::BOUND_FIELDS {
            status.as_object_mut().and_then(|status| status.remove(name));
        }
        status["phase"] = json!("new");
        forget_publication(status);
        let why = ("BindingDeleted", "the RouteBinding was deleted; the Route waits to be scheduled again");
        route::set_condition(status, SCHEDULED, false, why, &route["metadata"]["generation"], context.now);
    })))
}

/// What was found out about the old names says nothing of the new ones; `kubectl wait` must not take it for an answer.
fn forget_publication(status: &mut Value) {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|condition| condition["type"] != PUBLISHED && condition["type"] != RESOLVABLE);
    }
}

fn status_write(context: &Context<'_>, route: &Value, change: impl FnOnce(&mut Value)) -> SideWrite {
    route_write(context, route, |changed| change(&mut changed["status"]))
}

fn route_write(context: &Context<'_>, route: &Value, change: impl FnOnce(&mut Value)) -> SideWrite {
    let mut changed = route.clone();
    if !changed["status"].is_object() {
        changed["status"] = json!({});
    }
    change(&mut changed);
    let kind = super::known("Route");
    apply::track_update(kind, Some(route), &mut changed, context.manager, Some("status"), context.now);
    SideWrite {
        kind: "Route",
        namespace: context.namespace.map(str::to_owned),
        name: route["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        expect: route["metadata"]["resourceVersion"].as_str().map(str::to_owned),
        effect: Effect::Put(changed),
    }
}

/// The member `name` of a Route's condition; null if there is no such one.
fn condition<'a>(route: &'a Value, kind: &str, name: &str) -> &'a Value {
    let conditions = route["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == kind).map_or(&Value::Null, |condition| &condition[name])
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Objects, check_create, check_update, context};
    use super::*;
    use crate::api::v1alpha1::route::MOVE_ANNOTATION;

    fn names(host: Option<&str>) -> Value {
        let mut names = json!([
            {"name": "n-r.s1.v3.example", "type": "system"},
            {"name": "n-r.routes.v3.example", "type": "alias"}
        ]);
        if let Some(host) = host {
            names.as_array_mut().unwrap().push(json!({"name": host, "type": "custom"}));
        }
        names
    }

    fn binding(change: Value) -> Value {
        let mut spec = json!({"routeNamespace": "n", "routeName": "r", "routeUID": "u", "router": "s1", "dns": "s1.v3.example",
            "label": "n-r", "names": names(None), "strategy": "round-robin"});
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"name": "r", "namespace": "n"}, "spec": spec})
    }

    fn route(host: &str) -> Value {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"name": "r", "namespace": "n", "uid": "u", "resourceVersion": "5", "generation": 2,
                "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:spec": {}}}]},
            "spec": {"host": host}, "status": {"phase": "new", "conditions": [
                {"type": "Scheduled", "status": "False", "reason": "NoRouter", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"},
                {"type": "Resolvable", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}})
    }

    fn world(route: Value) -> Vec<Value> {
        vec![
            route,
            json!({"kind": "Router", "metadata": {"name": "s1", "resourceVersion": "2"}, "spec": {"dns": "s1.v3.example"}}),
            json!({"kind": "NameClaim", "metadata": {"name": names::label_claim_name("n-r"), "resourceVersion": "3"}, "spec": {"type": "label", "value": "n-r", "holder": {"uid": "u"}}}),
        ]
    }

    #[test]
    fn names_follow_from_label_and_zone() {
        for (change, expected) in [
            (json!({}), vec![]),
            (json!({"names": names(Some("www.shop.test"))}), vec![]),
            (json!({"routeName": "x", "routeNamespace": "m"}), vec!["spec.routeName", "spec.routeNamespace"]),
            (json!({"routeUID": "", "strategy": ""}), vec!["spec.routeUID", "spec.strategy"]),
            (json!({"names": []}), vec!["spec.names", "spec.names"]),
            (json!({"label": "n-x"}), vec!["spec.names[0].name", "spec.names[1].name"]),
            (json!({"label": "n.r"}), vec!["spec.label"]),
            (json!({"dns": "s2.v3.example"}), vec!["spec.names[0].name"]),
        ] {
            let found = check_create("RouteBinding", binding(change.clone()));
            let paths: Vec<&str> = found.iter().filter_map(|cause| cause.split(": ").next()).collect();
            assert_eq!(paths, expected, "{change} {found:?}");
        }
        let old = binding(json!({}));
        let moved = binding(json!({"router": "s2", "dns": "s2.v3.example", "names": [
            {"name": "n-r.s2.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]}));
        assert_eq!(check_update("RouteBinding", &old, moved), Vec::<String>::new());
        assert_eq!(check_update("RouteBinding", &old, binding(json!({"routeUID": "v"}))).len(), 1);
    }

    fn moved(trails: Value) -> Value {
        let mut moved = binding(json!({"router": "s2", "dns": "s2.v3.example", "names": [
            {"name": "n-r.s2.v3.example", "type": "system"}, {"name": "n-r.routes.v3.example", "type": "alias"}]}));
        moved["spec"]["trails"] = trails;
        moved
    }

    /// A trail; `!` before its name says that it is yet to begin.
    fn trail(name: &str) -> Value {
        if let Some(name) = name.strip_prefix('!') {
            let mut trail = trail(name);
            trail["from"] = json!("2026-01-01T12:00:00Z");
            return trail;
        }
        json!({"name": name, "router": "s1", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"})
    }

    #[test]
    fn trails_are_former_names_of_the_label() {
        let old = binding(json!({}));
        for (names, faults) in [
            (vec!["n-r.s1.v3.example", "n-r.elsewhere.test"], 0),
            (vec!["n-r.s2.v3.example"], 1),
            (vec!["n-r"], 1),
            (vec!["n-r."], 1),
            (vec!["x.s1.v3.example", "n-rr.s1.v3.example"], 2),
            (vec!["n-r.s1.v3.example", "!n-r.s3.v3.example"], 0),
            (vec!["!n-r.s1.v3.example", "!n-r.s3.v3.example"], 1),
        ] {
            let trails: Vec<Value> = names.iter().map(|name| trail(name)).collect();
            let found = check_update("RouteBinding", &old, moved(Value::from(trails)));
            assert_eq!(found.len(), faults, "{names:?} {found:?}");
            assert!(found.iter().all(|fault| fault.starts_with("spec.trails[")), "{found:?}");
        }
    }

    #[tokio::test]
    async fn a_move_and_the_end_of_its_trail() {
        let mut asked = route("");
        asked["metadata"]["annotations"] = json!({MOVE_ANNOTATION: "s2", "mine": "x"});
        asked["status"] = json!({"phase": "scheduled", "router": "s1", "conditions": [
            {"type": "MovePending", "status": "True"}, {"type": "Published", "status": "True"}]});
        let mut objects = world(asked);
        objects[1] = json!({"kind": "Router", "metadata": {"name": "s2", "resourceVersion": "2"}, "spec": {"dns": "s2.v3.example"}});
        let (objects, context) = (Objects::new(objects), context());
        let (old, new) = (binding(json!({})), moved(json!([trail("n-r.s1.v3.example")])));
        let update = Operation::Update { old: &old, new: &new };
        let writes = RouteBindings.before_commit(&context, update, &objects).await.unwrap();
        let passed = writes.iter().filter(|write| write.effect == Effect::Pass).map(|write| write.name.as_str());
        assert_eq!(passed.collect::<Vec<_>>(), ["routers/s2", "routers/s1"]);
        let after = put(&writes[0]);
        assert_eq!(after["metadata"]["annotations"], json!({"mine": "x"}));
        assert_eq!((&after["status"]["router"], &after["status"]["dns"]), (&json!("s2"), &json!("n-r.s2.v3.example")));
        assert_eq!(after["status"]["trails"], new["spec"]["trails"]);
        let conditions = after["status"]["conditions"].as_array().unwrap();
        let told: Vec<_> = conditions.iter().map(|one| (&one["type"], &one["status"])).collect();
        let expected = [("MovePending", "False"), ("Admitted", "True"), ("Scheduled", "True")];
        assert_eq!(told, expected.map(|(kind, status)| (json!(kind), json!(status))).each_ref().map(|(a, b)| (a, b)));

        // So does a trail that begins.
        let pending = moved(json!([trail("n-r.s3.v3.example"), trail("!n-r.s1.v3.example")]));
        let begun = moved(json!([trail("n-r.s3.v3.example"), trail("n-r.s1.v3.example")]));
        let route_only = Objects::new(vec![after.clone()]);
        let update = Operation::Update { old: &pending, new: &begun };
        let writes = RouteBindings.before_commit(&context, update, &route_only).await.unwrap();
        assert_eq!(put(&writes[0])["status"]["trails"], begun["spec"]["trails"]);
        let update = Operation::Update { old: &begun, new: &pending };
        assert!(RouteBindings.before_commit(&context, update, &route_only).await.is_err(), "it cannot be put off");

        // A later end of a trail changes nothing else, and does not need the Router to be there; nor does its end.
        let mut later = new.clone();
        later["spec"]["trails"][0]["until"] = json!("2026-01-03T00:00:00Z");
        let objects = Objects::new(vec![after.clone()]);
        let update = Operation::Update { old: &new, new: &later };
        let writes = RouteBindings.before_commit(&context, update, &objects).await.unwrap();
        assert_eq!((writes.len(), &put(&writes[0])["status"]["trails"]), (1, &later["spec"]["trails"]));
        let mut ended = new.clone();
        ended["spec"].as_object_mut().unwrap().remove("trails");
        let mut route = after.clone();
        route["status"]["conditions"] = json!([{"type": "Published", "status": "True"}]);
        let objects = Objects::new(vec![route]);
        let update = Operation::Update { old: &new, new: &ended };
        let writes = RouteBindings.before_commit(&context, update, &objects).await.unwrap();
        assert_eq!(writes.len(), 1);
        assert!(put(&writes[0])["status"].get("trails").is_none());
        assert_eq!(put(&writes[0])["status"]["conditions"], json!([{"type": "Published", "status": "True"}]));
        let update = Operation::Update { old: &ended, new: &new };
        assert_eq!(
            RouteBindings.before_commit(&context, update, &objects).await.err().map(|error| error.code),
            Some(422)
        );
    }

    fn put(write: &SideWrite) -> &Value {
        match &write.effect {
            Effect::Put(object) => object,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_deposed_leader_binds_nothing() {
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"leaseTransitions": 4},
            "metadata": {"name": "signpost-scheduler", "namespace": "kube-system", "resourceVersion": "9"}});
        for (number, with_lease, expected) in [
            (Some("4"), true, Ok(5)),
            (Some("3"), true, Err(409)),
            // That of a leader of before the Lease was made anew.
            (Some("5"), true, Err(409)),
            // Nobody knows whether it led when the Lease went.
            (Some("3"), false, Err(409)),
            (Some("0"), true, Ok(4)),
            (Some("0"), false, Ok(4)),
            (Some("x"), true, Err(422)),
            (None, true, Ok(4)),
        ] {
            let mut binding = binding(json!({}));
            if let Some(number) = number {
                binding["metadata"]["annotations"] = json!({FENCING_ANNOTATION: number});
            }
            let mut objects = world(route(""));
            objects.extend(with_lease.then(|| lease.clone()));
            let context = context();
            let found =
                RouteBindings.before_commit(&context, Operation::Create(&binding), &Objects::new(objects)).await;
            let told = found.map(|writes| writes.len()).map_err(|error| error.code);
            assert_eq!(told, expected, "{number:?} {with_lease}");
        }
    }

    #[tokio::test]
    async fn a_binding_sets_the_routes_status() {
        for (host, names, dns) in
            [("", names(None), "n-r.s1.v3.example"), ("www.shop.test", names(Some("www.shop.test")), "www.shop.test")]
        {
            let binding = binding(json!({"names": names, "routeResourceVersion": "5"}));
            let context = context();
            let objects = Objects::new(world(route(host)));
            let writes = RouteBindings.before_commit(&context, Operation::Create(&binding), &objects).await.unwrap();
            let told: Vec<_> = writes.iter().map(|it| (it.kind, it.name.as_str(), it.expect.as_deref())).collect();
            let claim = names::label_claim_name("n-r");
            let pinned = [
                ("Route", "r", Some("5")),
                ("Router", "s1", Some("2")),
                ("Turnstile", "routers/s1", None),
                ("NameClaim", &claim, Some("3")),
            ];
            assert_eq!(told, pinned);
            let effects: Vec<_> = writes[1..].iter().map(|write| &write.effect).collect();
            assert_eq!(effects, [&Effect::Keep, &Effect::Pass, &Effect::Keep]);
            let status = &put(&writes[0])["status"];
            assert_eq!(status["phase"], "scheduled");
            assert_eq!(status["dns"], dns);
            assert_eq!(status["router"], "s1");
            assert_eq!(status["canonicalName"], "n-r.routes.v3.example");
            assert_eq!(status["names"], names);
            assert_eq!(status["observedGeneration"], 2);
            let conditions = status["conditions"].as_array().unwrap();
            let told: Vec<_> = conditions.iter().map(|condition| (&condition["type"], &condition["status"])).collect();
            assert_eq!(told, [(&json!("Scheduled"), &json!("True")), (&json!("Admitted"), &json!("True"))]);
            for condition in conditions {
                assert_eq!(condition["observedGeneration"], 2);
                assert_ne!(condition["lastTransitionTime"], "2020-01-01T00:00:00Z");
            }
            let managed = &put(&writes[0])["metadata"]["managedFields"];
            assert_eq!(managed[1]["subresource"], "status", "{managed}");
        }
    }

    #[tokio::test]
    async fn a_binding_that_does_not_fit_is_refused() {
        let without =
            |kind: &str| world(route("")).into_iter().filter(|object| object["kind"] != kind).collect::<Vec<_>>();
        let mut deleted = route("");
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let claimed = |change: Value| {
            let mut objects = world(route(""));
            objects[2]["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            objects
        };
        let released = claimed(json!({"releasedAt": "2026-01-01T00:00:00Z"}));
        let quarantined =
            claimed(json!({"releasedAt": "2026-01-01T00:00:00Z", "quarantineUntil": "2026-02-01T00:00:00Z",
            "holder": {"namespace": "n", "name": "other", "uid": "w"}}));
        let capital = json!({"label": "N-r", "names": [
            {"name": "N-r.s1.v3.example", "type": "system"}, {"name": "N-r.routes.v3.example", "type": "alias"}]});
        for (objects, change, code, path) in [
            (without("Route"), json!({}), 404, ""),
            (without("Router"), json!({}), 422, "spec.router"),
            (without("NameClaim"), capital, 422, "metadata.name"),
            (claimed(json!({"holder": {"uid": "w"}})), json!({}), 409, ""),
            (quarantined, json!({}), 409, ""),
            (released, json!({}), 409, ""),
            (world(route("")), json!({"routeUID": "v"}), 409, ""),
            (world(route("")), json!({"routeResourceVersion": "4"}), 409, ""),
            (world(deleted), json!({}), 409, ""),
            (world(route("")), json!({"dns": "s9.v3.example"}), 422, "spec.dns"),
            (world(route("")), json!({"names": names(Some("www.shop.test"))}), 422, "spec.names[2].name"),
            (world(route("a.shop.test")), json!({"names": names(Some("www.shop.test"))}), 422, "spec.names[2].name"),
        ] {
            let binding = binding(change.clone());
            let context = context();
            let found =
                RouteBindings.before_commit(&context, Operation::Create(&binding), &Objects::new(objects)).await;
            let error = found.err().unwrap_or_else(|| panic!("{change}"));
            assert_eq!(error.code, code, "{change} {}", error.message);
            assert_eq!(error.causes.first().map_or("", |cause| &cause.field), path, "{change}");
        }
    }

    #[tokio::test]
    async fn a_new_binding_claims_a_label_that_nobody_ever_had() {
        let mut objects = world(route(""));
        objects.pop();
        let (objects, context) = (Objects::new(objects), context());
        let new = binding(json!({}));
        let writes = RouteBindings.before_commit(&context, Operation::Create(&new), &objects).await.unwrap();
        let claim = writes.iter().find(|write| write.kind == "NameClaim").unwrap();
        assert_eq!((claim.name.as_str(), &claim.expect), (names::label_claim_name("n-r").as_str(), &None));
        let claim = put(claim);
        assert_eq!(check_create("NameClaim", claim.clone()), Vec::<String>::new());
        assert_eq!(claim["spec"]["holder"], json!({"namespace": "n", "name": "r", "uid": "u"}));
        assert_eq!((&claim["spec"]["type"], &claim["spec"]["value"]), (&json!("label"), &json!("n-r")));
        assert_eq!(claim["metadata"]["labels"], json!({"signpost.dev/claim": "label"}));
        for set in ["uid", "creationTimestamp", "generation", "managedFields"] {
            assert!(!claim["metadata"][set].is_null(), "{set}");
        }
        // One that is there already must have had a claim.
        let update = Operation::Update { old: &new, new: &binding(json!({"strategy": "other"})) };
        let refused = RouteBindings.before_commit(&context, update, &objects).await.err().map(|error| error.code);
        assert_eq!(refused, Some(409));
    }

    #[tokio::test]
    async fn without_its_binding_a_route_is_new_again() {
        let mut bound = route("");
        bound["status"] = json!({"phase": "scheduled", "dns": "d", "router": "s1", "canonicalName": "c", "names": [],
            "conditions": [{"type": "Published", "status": "True"}, {"type": "Scheduled", "status": "True"}]});
        let (old, options) = (binding(json!({})), json!({}));
        let context = context();
        let delete = || Operation::Delete { old: &old, options: &options };
        let writes = RouteBindings.before_commit(&context, delete(), &Objects::new(vec![bound])).await.unwrap();
        let status = &put(&writes[0])["status"];
        assert_eq!(status["phase"], "new");
        assert!(route::BOUND_FIELDS[1..].iter().all(|name| status.get(*name).is_none()), "{status}");
        assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(status["conditions"][0]["reason"], "BindingDeleted");
        let mut another = route("");
        another["metadata"]["uid"] = json!("v");
        assert!(
            RouteBindings.before_commit(&context, delete(), &Objects::new(vec![another])).await.unwrap().is_empty()
        );
    }

    #[tokio::test]
    async fn the_binding_of_a_route_that_is_there_is_not_deleted() {
        let bound = || {
            let mut bound = route("");
            bound["status"] = json!({"phase": "scheduled"});
            bound
        };
        let deleting = |mut object: Value| {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            object
        };
        let shard = || json!({"kind": "Router", "metadata": {"name": "s1"}});
        let home = || json!({"kind": "Namespace", "metadata": {"name": "n"}});
        let (old, options) = (binding(json!({})), json!({}));
        for (objects, good, why) in [
            (vec![bound(), shard(), home()], false, "a live route"),
            (vec![shard(), home()], true, "its route is gone"),
            (vec![deleting(bound()), shard(), home()], true, "its route goes"),
            (vec![bound(), shard(), deleting(home())], true, "its namespace goes"),
            (vec![bound(), home()], true, "its Router is gone"),
        ] {
            let context = context();
            let delete = Operation::Delete { old: &old, options: &options };
            let found = RouteBindings.before_commit(&context, delete, &Objects::new(objects.clone())).await;
            assert_eq!(found.is_ok(), good, "{why}");
            let release = Operation::Release { old: &old };
            let released = RouteBindings.before_commit(&context, release, &Objects::new(objects)).await;
            assert!(released.is_ok(), "it was judged when it began: {why}");
        }
    }

    #[tokio::test]
    async fn a_move_gives_no_host_back_and_another_label_is_told() {
        for (status, expected) in [
            (json!({"phase": "new"}), ("True", "Admitted")),
            (
                json!({"phase": "scheduled", "conditions": [{"type": "Admitted", "status": "False", "reason": "x"}]}),
                ("False", "x"),
            ),
            (
                json!({"phase": "new", "conditions": [{"type": "Admitted", "status": "False", "reason": "x"}]}),
                ("True", "Admitted"),
            ),
        ] {
            let mut before = route("");
            before["status"] = status.clone();
            let binding = binding(json!({}));
            let spec: RouteBindingSpec = serde_json::from_value(binding["spec"].clone()).unwrap();
            let mut after = before["status"].clone();
            bound(&context(), &spec, &binding, &before, &mut after);
            let admitted = |status: &Value| {
                let route = json!({"status": status});
                let text = |field: &str| condition(&route, ADMITTED, field).as_str().unwrap_or("").to_owned();
                (text("status"), text("reason"))
            };
            assert_eq!(admitted(&after), (expected.0.to_owned(), expected.1.to_owned()), "{status}");
            let mut other = before.clone();
            other["spec"]["subdomain"] = json!("shop");
            let mut after = json!({"phase": "new"});
            bound(&context(), &spec, &binding, &other, &mut after);
            assert_eq!(admitted(&after).1, "SubdomainTaken");
        }
    }
}
