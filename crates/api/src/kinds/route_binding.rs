//! RouteBinding: the decision that puts a Route on a Router. Writing one writes the Route's status in the same transaction.
//!
//! ```text
//!            create or change of the binding
//!   phase new ─────────────────────────────▶ phase scheduled, dns, router, canonicalName, names, formerNames
//!             ◀─────────────────────────────
//!            deletion of the binding alone
//! ```
//!
//! A change that binds the Route to another Router is a move. The same transaction removes the Route's move annotation.
//!
//! The Route's resourceVersion is a precondition of the transaction. Two schedulers can therefore never bind one Route twice, and
//! a binding is never created for a Route that has changed since the rules read it. The Router, the label's claim, and the
//! schedulers' Lease are only read; their revisions are preconditions as well. If one of them is deleted, released, or taken over
//! concurrently, the binding is validated again. Each binding touches the Router's conflict key, so a concurrent deletion of the
//! Router that did not count this binding is also validated again.

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde_json::{Value, json};

use super::{name_claim, route};
use crate::kinds::conflict_keys;
use crate::rules::expr::{Expr, Function, Quantity, item, this};
use crate::rules::{self, Rule};
use signpost_apiserver::apply;
use signpost_apiserver::cause::Cause;
use signpost_apiserver::error::ApiError;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::kind::columns::{self, AGE, Column};
use signpost_apiserver::registry::{Context, HookResult, Hooks, Operation, Reader, RelatedWrite, SideEffect};
use signpost_types::assignment;
use signpost_types::names::{self, NAME_OCTETS_MAX};
use signpost_types::v1alpha1::name_claim::Holder;
use signpost_types::v1alpha1::route::{AssignedName, NameKind};
use signpost_types::v1alpha1::route_binding::{FENCING_ANNOTATION, FENCING_FIELD, RouteBinding, RouteBindingSpec};
use signpost_types::v1alpha1::{SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE};

pub static ROUTE_BINDING: LazyLock<Kind> = LazyLock::new(|| {
    Kind::of::<RouteBinding>().with_columns(COLUMNS).selectable_by(&[
        "spec.router",
        "spec.dns",
        "spec.label",
        "spec.strategy",
        "spec.routeUID",
    ])
});

const COLUMNS: &[Column] = &[
    Column::new("Router", &["spec.router"], "The selected Router."),
    Column::new("DNS", &["spec.dns"], "The Router's zone."),
    Column::new("Strategy", &["spec.strategy"], "The strategy that selected the Router."),
    AGE,
    Column::new("Names", &["spec.names"], "Every name assigned to the Route.")
        .with_cell(|read, _| columns::list(read[0].items().filter_map(|name| name.get(["name"])[0].text()), 3))
        .wide(),
    Column::new("Summary", &["spec.explanation.summary"], "The reason for the selection.").wide(),
];

pub(super) struct RouteBindings(Vec<Rule>);

impl RouteBindings {
    pub(super) fn new(domain: &str) -> Self {
        RouteBindings(rules(Some(domain)))
    }
}

#[async_trait]
impl Hooks for RouteBindings {
    fn validate(&self, _context: &Context<'_>, old: Option<&Value>, new: &Value) -> Vec<Cause> {
        let mut causes = rules::check(&self.0, old, new);
        causes.extend(namespace_fault(new));
        causes
    }

    async fn before_commit(&self, context: &Context<'_>, operation: Operation<'_>, reader: &dyn Reader) -> HookResult {
        Ok(match operation {
            Operation::Create(binding) => bind(context, binding, Unclaimed::IsClaimed, reader)?,
            Operation::Update { old, new } if only_former_names_age(old, new) => {
                age_former_names(context, new, reader)?
            }
            Operation::Update { old, new } if old["spec"] != new["spec"] => {
                let mut writes = bind(context, new, Unclaimed::IsRefused, reader)?;
                // It leaves a former name in the zone of the former Router, which may be about to be deleted.
                writes.extend(left(old, new).map(|router| conflict_keys::router(router).touch()));
                writes
            }
            Operation::Update { .. } => Vec::new(),
            Operation::Delete { old, .. } => {
                guard_delete(context, old, reader)?;
                unbind(context, old, reader)?.into_iter().collect()
            }
            // It was validated when its deletion began.
            Operation::Release { old } => unbind(context, old, reader)?.into_iter().collect(),
        })
    }
}

/// Returns the rules of RouteBindings. Label, zone, and platform determine the names: one system name, one alias, and at most one
/// custom or adopted host. Former names are names of the label in other zones than the current one.
pub(crate) fn rules(domain: Option<&str>) -> Vec<Rule> {
    let (label, dns) = (|| this().field("label"), || this().field("dns"));
    let is = |kind: &str| item("n").field("type").is(kind);
    let names = |quantity, body| this().field("names").items(quantity, "n", body);
    let former = || item("t").field("name");
    let system = || label() + "." + dns();
    let mut alias = names(Quantity::One, is("alias"));
    if let Some(domain) = domain {
        let expected = label() + format!(".{}", names::alias_zone(domain)).as_str();
        alias = alias & names(Quantity::All, !is("alias") | item("n").field("name").is(expected));
    }
    let mut rules = rules::immutable(
        &["routeUID", "label"],
        "field is immutable: a Route keeps its binding and its label until it is deleted",
    );
    rules.extend(rules::not_empty(&["spec.routeUID", "spec.router", "spec.strategy"], "must not be empty"));
    rules.extend([
        Rule::new(
            "",
            this().field("spec").field("routeName").is(this().field("metadata").field("name")),
            "must be the binding's own metadata.name",
        )
        .about("spec.routeName"),
        Rule::new("spec.label", this().matches(names::LABEL), "must be one label of a host name"),
        Rule::new(
            "spec",
            system().call(Function::Size).at_most(NAME_OCTETS_MAX as i64),
            format!("the label and the zone together exceed {NAME_OCTETS_MAX} octets"),
        )
        .about("dns"),
        Rule::new(
            "spec",
            names(Quantity::One, is("system"))
                & names(Quantity::All, !is("system") | item("n").field("name").is(system())),
            "must contain the system name, <label>.<dns>, exactly once",
        )
        .about("names"),
        Rule::new("spec", alias, "must contain the alias, <label>.routes.<platform domain>, exactly once")
            .about("names"),
        Rule::new(
            "spec",
            names(Quantity::AtMostOne, is("custom") | is("adopted")),
            "must contain at most one custom or adopted name",
        )
        .about("names"),
        Rule::new(
            "spec",
            names(
                Quantity::All,
                !is("adopted")
                    | item("n").field("name").call(Function::Lower).is(dns())
                    | item("n").field("name").call(Function::Lower).ends_with(Expr::from(".") + dns()),
            ),
            "must contain an adopted name only at or below dns",
        )
        .about("names"),
        Rule::new(
            "spec",
            former().starts_with(label() + ".") & !former().is(label() + "."),
            "must be a name of the label in a Router's zone",
        )
        .each("formerNames", "t", "name"),
        Rule::new("spec", !former().is(system()), "must not be the current name of the Route").each(
            "formerNames",
            "t",
            "name",
        ),
        Rule::new(
            "spec",
            !this().has("formerNames")
                | this().field("formerNames").items(Quantity::AtMostOne, "t", item("t").has("from")),
            "only one former name can start in the future: until then, the other former names resolve to it",
        )
        .about("formerNames"),
    ]);
    rules
}

fn namespace_fault(binding: &Value) -> Option<Cause> {
    let (spec, metadata) = (&binding["spec"], &binding["metadata"]);
    let given = Some(&spec["routeNamespace"]).filter(|given| given.is_string() && **given != metadata["namespace"])?;
    Some(Cause::invalid("spec.routeNamespace", given, "must be the binding's own metadata.namespace"))
}

/// Returns whether a change only removes former names, or lets others begin. The bound names stay the same, so no other check is
/// needed.
fn only_former_names_age(old: &Value, new: &Value) -> bool {
    let without = |binding: &Value| {
        let mut spec = binding["spec"].clone();
        // A stored explanation can have fields of another version, which were pruned from the new one.
        spec.as_object_mut().map(|spec| (spec.remove("formerNames"), spec.remove("explanation")));
        spec
    };
    let former_names = |binding: &'_ Value| binding["spec"]["formerNames"].as_array().cloned().unwrap_or_default();
    let begun = |former: &Value| {
        let mut former = former.clone();
        former.as_object_mut().map(|former| former.remove("from"));
        former
    };
    let before = former_names(old);
    let is_known = |now: &Value| before.iter().any(|was| was == now || begun(was) == *now);
    old["spec"] != new["spec"] && without(old) == without(new) && former_names(new).iter().all(is_known)
}

fn age_former_names(context: &Context<'_>, binding: &Value, reader: &dyn Reader) -> HookResult {
    let name = binding["spec"]["routeName"].as_str().unwrap_or_default();
    let route = reader.get("Route", context.namespace, name)?;
    let route = route.filter(|route| route["metadata"]["uid"] == binding["spec"]["routeUID"]);
    let write = route.map(|route| {
        status_write(context, &route, |status| assignment::set_former_names(status, &binding["spec"]["formerNames"]))
    });
    let mut writes: Vec<RelatedWrite> = write.into_iter().collect();
    writes.extend(leadership(binding, reader)?);
    Ok(writes)
}

/// Returns the Router that a changed binding has left.
fn left<'a>(old: &'a Value, new: &Value) -> Option<&'a str> {
    let router = old["spec"]["router"].as_str()?;
    (new["spec"]["router"] != router).then_some(router)
}

/// The treatment of a label that was never claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unclaimed {
    IsClaimed,
    /// The binding is rejected: an existing binding must have had a claim.
    IsRefused,
}

/// Checks the binding against its Route, Router, and label, and builds the Route's new status.
fn bind(context: &Context<'_>, binding: &Value, unclaimed: Unclaimed, reader: &dyn Reader) -> HookResult {
    let kind = &ROUTE_BINDING;
    let object_name = binding["metadata"]["name"].as_str().unwrap_or_default();
    let conflict = |what: &str| ApiError::conflict(kind, object_name, what);
    let invalid = |cause: Cause| ApiError::invalid(kind, object_name, vec![cause]);
    let spec: RouteBindingSpec = serde_json::from_value(binding["spec"].clone())
        .map_err(|error| ApiError::bad_request(format!("failed to parse spec: {error}")))?;

    let route = route_of(context, &spec, object_name, reader)?;
    let Some(router) = reader.get("Router", None, &spec.router)? else {
        return Err(invalid(Cause::not_found("spec.router", &binding["spec"]["router"])));
    };
    if router["spec"]["dns"] != spec.dns.as_str() {
        let what = format!("must be the zone of Router {:?}, {}", spec.router, router["spec"]["dns"]);
        return Err(invalid(Cause::invalid("spec.dns", &binding["spec"]["dns"], &what)));
    }
    if !router["metadata"]["deletionTimestamp"].is_null() {
        return Err(conflict(&format!("the Router {:?} is being deleted; choose another", spec.router)));
    }

    if let Some(cause) = fault_of_host(binding, &spec, &route) {
        return Err(invalid(cause));
    }
    for name in spec.names.iter().filter(|name| matches!(name.kind, NameKind::System | NameKind::Adopted)) {
        if let Some(zone) = zone_inside(&name.name, &spec.dns, reader)? {
            return Err(conflict(&format!("{} is in {zone}, the zone of another shard", name.name)));
        }
    }

    let holder = || Holder {
        namespace: context.namespace.unwrap_or_default().to_owned(),
        name: spec.route_name.clone(),
        uid: spec.route_uid.clone(),
        path: None,
    };
    let is_held = |claim: &Value| {
        claim["spec"]["holder"]["uid"] == spec.route_uid.as_str() && claim["spec"]["releasedAt"].is_null()
    };
    let claim = match reader.get("NameClaim", None, &names::label_claim_name(&spec.label))? {
        Some(claim) if is_held(&claim) => RelatedWrite::keep("NameClaim", &claim),
        None if unclaimed == Unclaimed::IsClaimed => name_claim::of_label(context, &spec.label, &holder())?,
        _ => {
            let what = format!("the Route does not hold the label {:?}; create a NameClaim first", spec.label);
            return Err(conflict(&what));
        }
    };

    let mut writes = vec![
        route_write(context, &route, |changed| {
            assignment::assign(&mut changed["status"], &route, &spec, context.now);
            if route::move_to(&route) == Some(&spec.router) {
                route::forget_move(changed);
            }
        }),
        RelatedWrite::keep("Router", &router),
        conflict_keys::router(&spec.router).touch(),
        claim,
    ];
    writes.extend(leadership(binding, reader)?);
    Ok(writes)
}

/// Returns the fault of the name that is the host of the Route, if it has one.
fn fault_of_host(binding: &Value, spec: &RouteBindingSpec, route: &Value) -> Option<Cause> {
    let host = route["spec"]["host"].as_str().filter(|host| !host.is_empty());
    let is_host = |name: &AssignedName| matches!(name.kind, NameKind::Custom | NameKind::Adopted);
    let index = spec.names.iter().position(is_host)?;
    let AssignedName { name, kind, .. } = &spec.names[index];
    let (what, field) = match host {
        Some(host) if host != *name => (format!("the name must be the Route's spec.host, {host}"), "name"),
        None => ("the Route has no spec.host, so it has no such name".to_owned(), "name"),
        Some(_) if *kind == NameKind::Adopted && !route::is_adopted(route) => {
            ("the Route has no spec.adopted, so it has no adopted name".to_owned(), "type")
        }
        Some(_) => return None,
    };
    let path = format!("spec.names[{index}].{field}");
    Some(Cause::invalid(&path, &binding["spec"]["names"][index][field], &what))
}

/// Returns the zone of another shard inside `dns` that the name is at or below.
fn zone_inside(name: &str, dns: &str, reader: &dyn Reader) -> Result<Option<String>, ApiError> {
    let name = name.to_ascii_lowercase();
    let mut above = Some(&*name).filter(|name| names::is_below(name, dns));
    while let Some(zone) = above {
        if reader.get("Zone", None, zone)?.is_some() {
            return Ok(Some(zone.to_owned()));
        }
        above = zone.split_once('.').map(|(_, rest)| rest).filter(|rest| names::is_below(rest, dns));
    }
    Ok(None)
}

/// Returns the Route of a binding if it still matches the binding.
fn route_of(
    context: &Context<'_>,
    spec: &RouteBindingSpec,
    object_name: &str,
    reader: &dyn Reader,
) -> Result<Arc<Value>, ApiError> {
    let conflict = |what: &str| ApiError::conflict(&ROUTE_BINDING, object_name, what);
    let route = reader.get("Route", context.namespace, &spec.route_name)?;
    let route = route.ok_or_else(|| ApiError::not_found(&super::route::ROUTE, &spec.route_name))?;
    let metadata = &route["metadata"];
    if metadata["uid"] != spec.route_uid.as_str() {
        let what = format!(
            "Route UID is {}, not {:?}: the Route was deleted and re-created; bind the current Route",
            metadata["uid"], spec.route_uid
        );
        return Err(conflict(&what));
    }
    if let Some(version) = &spec.route_resource_version
        && metadata["resourceVersion"] != version.as_str()
    {
        let what = format!(
            "the Route has changed (resourceVersion {}, not {version:?}); read it again and retry",
            metadata["resourceVersion"]
        );
        return Err(conflict(&what));
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Err(conflict("the Route is being deleted"));
    }
    Ok(route)
}

/// Checks the fencing number of a binding against the Lease. A binding with another number is rejected: a greater number in the
/// Lease is a later leader's; a smaller one belongs to a re-created Lease, whose holder has also deposed the sender. A missing
/// Lease rejects it as well: it is unknown whether the sender was the leader when the Lease was deleted, and the leader
/// re-creates the Lease with its next renewal. A binding without a number, such as an operator's, is not checked against the
/// Lease.
fn leadership(binding: &Value, reader: &dyn Reader) -> Result<Option<RelatedWrite>, ApiError> {
    let metadata = &binding["metadata"];
    let Some(fencing) = metadata["annotations"][FENCING_ANNOTATION].as_str() else { return Ok(None) };
    let kind = &ROUTE_BINDING;
    let name = metadata["name"].as_str().unwrap_or_default();
    let Ok(fencing) = fencing.parse::<i64>() else {
        let cause = Cause::invalid(FENCING_FIELD, &Value::from(fencing), "must be the fencing number of a leader");
        return Err(ApiError::invalid(kind, name, vec![cause]));
    };
    // 0 is the number of a scheduler that runs alone and acquires no Lease.
    if fencing == 0 {
        return Ok(None);
    }
    let refused = |why: String, what: &str| {
        let mut error = ApiError::conflict(kind, name, &why);
        error.causes = vec![Cause::invalid(FENCING_FIELD, &Value::from(fencing), what)];
        error
    };
    let Some(lease) = reader.get("Lease", Some(SCHEDULER_LEASE_NAMESPACE), SCHEDULER_LEASE)? else {
        let why = format!(
            "Lease {SCHEDULER_LEASE} in {SCHEDULER_LEASE_NAMESPACE} does not exist, so the leader is unknown (fencing \
             number {fencing}); retry after a scheduler has re-created the Lease"
        );
        return Err(refused(why, "no Lease has this number"));
    };
    let leads = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
    if fencing != leads {
        let why = format!(
            "another scheduler is now the leader, or the Lease was changed (fencing number {leads}, not {fencing}); \
             only the current leader can bind the Route"
        );
        return Err(refused(why, "is not the number of the Lease"));
    }
    Ok(Some(RelatedWrite::keep("Lease", &lease)))
}

/// Rejects the deletion of the binding of an existing Route. Without the binding, the scheduler would bind the Route again,
/// usually to another Router, and its current name would resolve to nothing, without a former name. The binding is deleted with
/// its Route or its namespace, or if its Router, and thus its name, no longer exists.
fn guard_delete(context: &Context<'_>, binding: &Value, reader: &dyn Reader) -> Result<(), ApiError> {
    let spec = &binding["spec"];
    let name = spec["routeName"].as_str().unwrap_or_default();
    let route = reader.get("Route", context.namespace, name)?;
    let is_its = |route: &Value| route["metadata"]["uid"] == spec["routeUID"];
    if !route.is_some_and(|route| is_its(&route) && route["metadata"]["deletionTimestamp"].is_null()) {
        return Ok(());
    }
    let namespace = context.namespace.unwrap_or_default();
    let home = reader.get("Namespace", None, namespace)?;
    if home.is_some_and(|home| !home["metadata"]["deletionTimestamp"].is_null()) {
        return Ok(());
    }
    let router = spec["router"].as_str().unwrap_or_default();
    if reader.get("Router", None, router)?.is_none() {
        return Ok(());
    }
    let what = format!(
        "Route {namespace}/{name} is bound to Router {router} by this RouteBinding. To move the Route, run \"signpost \
         move route {namespace}/{name} --to ROUTER\"; to remove it, delete the Route, which also deletes its binding"
    );
    Err(ApiError::conflict(&ROUTE_BINDING, name, &what))
}

/// Returns the write that makes a Route without a binding wait for the scheduler again.
fn unbind(context: &Context<'_>, binding: &Value, reader: &dyn Reader) -> Result<Option<RelatedWrite>, ApiError> {
    let spec = &binding["spec"];
    let name = spec["routeName"].as_str().unwrap_or_default();
    let route = reader.get("Route", context.namespace, name)?;
    let Some(route) = route.filter(|route| route["metadata"]["uid"] == spec["routeUID"]) else { return Ok(None) };
    Ok(Some(status_write(context, &route, |status| assignment::clear(status, &route, context.now))))
}

fn status_write(context: &Context<'_>, route: &Value, change: impl FnOnce(&mut Value)) -> RelatedWrite {
    route_write(context, route, |changed| change(&mut changed["status"]))
}

fn route_write(context: &Context<'_>, route: &Value, change: impl FnOnce(&mut Value)) -> RelatedWrite {
    let mut changed = route.clone();
    if !changed["status"].is_object() {
        changed["status"] = json!({});
    }
    change(&mut changed);
    let kind = &super::route::ROUTE;
    apply::track_update(kind, Some(route), &mut changed, context.manager, Some("status"), context.now);
    RelatedWrite {
        kind: "Route",
        namespace: context.namespace.map(str::to_owned),
        name: route["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        expect: route["metadata"]["resourceVersion"].as_str().map(str::to_owned),
        effect: SideEffect::Put(changed),
    }
}

#[cfg(test)]
mod tests;
