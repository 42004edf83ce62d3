//! The status of a Route: its desired contents, and the difference from the current ones.
//!
//! The status of an unbound Route contains the reason ([`scheduling`](super::scheduling)). A bound Route has phase, names, and
//! conditions from the transaction that creates its RouteBinding; on a server without transactions over two objects, [`assigned`]
//! adds them. After that:
//!
//! - The Route stays on its Router when its labels, its Namespace's, or its Router's selectors change; `SelectorMismatch` then
//!   reports that the scheduler would not choose this Router today.
//! - `Admitted` follows the Route's claim on its host. A Route whose host is no longer verified, or held by another Route, is no
//!   longer admitted, but stays bound; when it gets the host back, it is admitted again.
//! - A Route whose Router was deleted, which requires an administrator who accepts the loss of its routes, stays bound, so that
//!   nothing has changed if the Router is re-created; `Scheduled` is false meanwhile. A Router re-created with another zone does
//!   not count.
//! - If the Router that a Route has left has a record in its spec at the Route's former name, that record is served instead:
//!   `FormerNameBlocked` reports this. It also reports a former Router that was deleted or has another zone, which removes the
//!   name; the former name stays for its time, in case that the Router is re-created.
//! - `SettingsHonored` reports the settings in `spec.traffic` and in annotations that the Router does not honor; it is removed when all
//!   are.
//! - The status, and the conditions that a new generation of the Route does not change, get its `observedGeneration` as soon as the
//!   placement is checked for it. The scheduler does so for a Route that waits.
//! - `Scheduled` and `Admitted` are restored if a client removed or changed them.
//! - `Ready` follows from `Resolvable`, and, if the Router has instances, `Programmed`, `ResolvedRefs` and `CertificateReady` ([`ready`]).
//! - `Published`, `Resolvable`, `Programmed`, `ResolvedRefs`, `CertificateReady`, `HostVerified`, `HostPointsHere`, and `MovePending` contain the
//!   [findings](crate::world::observations) of other parts of the process.
//!
//! Only differences are written: a Route with verified names causes no write.

use std::num::NonZeroI64;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::scheduling::admitted;
use super::table::{ConditionInputs, TABLE};
use super::{ready, update};
use crate::client::reflector::ObjectKey;
use crate::client::uid::Uid;
use crate::world::condition::{ConditionUpdate, state};
use crate::world::observations::{About, RouteFinding, RouteFindings};
use crate::world::route::{HOST_TAKEN, Mark};
use crate::world::router::{Labels, RouterTarget};
use crate::world::{BindingInfo, RouteInfo, RouterInfo};
use signpost_types::assignment::{self, BOUND_FIELDS};
use signpost_types::names::{challenge_name, other_label};
use signpost_types::selectors::unmatched_term;
use signpost_types::text::{MESSAGE_OCTETS_MAX, cut, listed};
use signpost_types::traffic::{Provider, Unhonored};
use signpost_types::v1alpha1::route::{
    ADMITTED, FORMER_NAME_BLOCKED, HOST_POINTS_HERE, HOST_VERIFIED, MOVE_PENDING, NameKind, Phase, RESOLVABLE,
    ROUTER_GONE, Route, RouteStatus, SCHEDULED, SELECTOR_MISMATCH, SETTINGS_HONORED,
};
use signpost_types::v1alpha1::route_binding::RouteBindingSpec;

/// The most former names that a condition lists.
const BLOCKED_LISTED_MAX: usize = 4;

fn is_about(about: &About, route: &Route) -> bool {
    let status = route.status.as_ref();
    let is_bound = status.is_some_and(|status| status.phase == Phase::Scheduled);
    let has_name = |kind: NameKind, wanted: &str| {
        let mut names = status.into_iter().flat_map(|status| &status.names);
        names.any(|name| name.kind == kind && name.name.eq_ignore_ascii_case(wanted))
    };
    let has_generation = |generation| route.metadata.generation.and_then(NonZeroI64::new) == generation;
    let has_host = |host: &String| route.spec.host.as_ref() == Some(host) && !has_name(NameKind::System, host);
    match about {
        About::Unbound(generation) => !is_bound && has_generation(*generation),
        About::Bound => is_bound,
        About::BoundTo(router) => is_bound && reported_router(route) == Some(router),
        About::Generation(generation, router) => {
            has_generation(*generation) && is_about(&About::BoundTo(router.clone()), route)
        }
        About::Name(kind, name) => is_bound && has_name(*kind, name),
        About::Host(host) => has_host(host),
        About::Unchallenged(host) => {
            let challenge = status.and_then(|status| status.challenge.as_ref());
            has_host(host) && challenge.is_none_or(|challenge| challenge.name != challenge_name(host))
        }
    }
}

/// Returns the Router in the status of a Route.
fn reported_router(route: &Route) -> Option<&str> {
    route.status.as_ref().and_then(|status| status.router.as_deref())
}

/// Returns whether a finding is about the current Route.
fn is_current(finding: &RouteFinding, route: &Route) -> bool {
    *finding.uid == *route.metadata.uid.as_deref().unwrap_or_default() && is_about(&finding.about, route)
}

/// The inputs for the status of a Route, other than the Route itself.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The Route's key.
    pub key: &'a ObjectKey,
    /// The placement, if there is one and the informers have settled.
    pub placement: Option<Placement<'a>>,
    pub findings: &'a RouteFindings,
    pub facts: ConditionInputs,
}

/// The inputs for the conditions of a placed Route.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    /// The Route's binding.
    pub binding: &'a BindingInfo,
    /// The Route's Router, if that exists.
    pub router: Option<&'a RouterInfo>,
    pub namespace: &'a Labels,
    /// The state of the Route's host.
    pub hold: &'a Hold,
    /// The Routers that have records at its former names.
    pub blocking: &'a [String],
    /// The zones of its former names that no Router has any longer.
    pub lost: &'a [String],
}

/// The state of a bound Route's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// The Route holds the host, or has no custom host.
    Held,
    /// The host must be verified, but is not.
    Unverified,
    /// Another Route holds it, or an overlapping one. The text is a sentence.
    Taken(String),
    /// The host is verified again, and free: the Route must claim it.
    Free,
}

/// The necessary changes of a Route's status.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// The Route's uid.
    pub uid: Uid,
    /// The Route's `metadata.generation`.
    pub generation: Option<i64>,
    /// The Router in the status: everything except the findings is about the Route there.
    pub router: Option<Arc<str>>,
    /// Whether the status lacks the contents of the binding, which must be written first.
    pub is_unassigned: bool,
    /// The updates of conditions about the placement.
    pub statements: Vec<ConditionUpdate>,
    pub findings: RouteFindings,
    /// The conditions of an earlier generation that are the same in this one.
    pub unchanged: Vec<&'static str>,
    /// Whether the status is about an earlier generation, and the placement was checked for this one.
    pub is_outdated: bool,
    /// Conditions that it should not have.
    pub withdrawn: Vec<&'static str>,
    /// The inputs of `Ready`.
    pub facts: ConditionInputs,
    /// Whether the current `Ready` does not follow from the other conditions.
    pub is_ready_wrong: bool,
}

impl Change {
    /// Returns whether no change is necessary.
    pub fn is_empty(&self) -> bool {
        !self.is_unassigned
            && !self.is_ready_wrong
            && !self.is_outdated
            && self.statements.is_empty()
            && self.unchanged.is_empty()
            && self.withdrawn.is_empty()
            && self.findings.is_empty()
    }
}

/// Returns the necessary changes of a Route's status.
pub fn route(route: &RouteInfo, inputs: Inputs<'_>) -> Change {
    let mut change = Change {
        uid: route.uid.clone(),
        generation: route.generation.map(NonZeroI64::get),
        router: route.router.clone(),
        findings: inputs.findings.clone(),
        facts: inputs.facts,
        is_ready_wrong: ready::is_wrong(route, inputs.facts),
        ..Change::default()
    };
    let is_reported = |kind: &str| match kind {
        HOST_VERIFIED => route.is_challenged(),
        _ => route.conditions.get(kind).is_some(),
    };
    let withdrawn = TABLE.iter().filter(|row| (row.has)(&inputs.facts) == Some(false) && is_reported(row.kind));
    change.withdrawn = withdrawn.map(|row| row.kind).collect();
    let Some(placement) = inputs.placement else { return change };
    change.is_unassigned = !route.reports(placement.binding);
    if !change.is_unassigned {
        change.statements = statements(route, inputs.key, placement);
        if route.bound
            && route.conditions.get(SETTINGS_HONORED).is_some()
            && settings(route, placement).is_some_and(|found| found.is_empty())
        {
            change.withdrawn.push(SETTINGS_HONORED);
        }
        change.is_outdated = route.bound && route.conditions.is_outdated;
        change.unchanged = unchanged(route, &change.statements);
    }
    change
}

/// Returns the conditions of an earlier generation that are the same in the present one, other than those to be updated.
fn unchanged(route: &RouteInfo, updates: &[ConditionUpdate]) -> Vec<&'static str> {
    let is_same = |kind: &str| match kind {
        // The scheduler tries again, and reports the present reason.
        MOVE_PENDING => route.conditions.is_true(MOVE_PENDING) != Some(true),
        // Both are about a host, which the name of the challenge, or the names of the Route, show.
        HOST_VERIFIED => route.conditions.is_host_challenged,
        HOST_POINTS_HERE => {
            route.custom_name.as_ref().zip(route.host.as_ref()).is_some_and(|(of, host)| of.eq_ignore_ascii_case(host))
        }
        _ => true,
    };
    let outdated = route.conditions.outdated().filter(|_| route.bound);
    outdated.filter(|kind| is_same(kind) && updates.iter().all(|update| update.kind != *kind)).collect()
}

/// Returns the updates of conditions about the placement that differ from the status.
fn statements(route: &RouteInfo, key: &ObjectKey, placement: Placement<'_>) -> Vec<ConditionUpdate> {
    if !route.bound {
        return Vec::new();
    }
    let statements = [
        of_admission(route, placement),
        of_scheduling(route, key, placement),
        of_selectors(route, placement),
        of_former_names(route, placement),
        of_settings(route, placement),
    ];
    statements.into_iter().flatten().collect()
}

fn of_admission(route: &RouteInfo, placement: Placement<'_>) -> Option<ConditionUpdate> {
    let admitted_now = route.conditions.is_true(ADMITTED);
    let is_taken = route.conditions.is_refused(ADMITTED, HOST_TAKEN);
    match placement.hold {
        Hold::Unverified if admitted_now != Some(false) || is_taken => {
            let message = "ownership of the host is not verified; see the condition HostVerified";
            Some(update(ADMITTED, false, "OwnershipNotVerified", message))
        }
        Hold::Taken(message) if admitted_now != Some(false) || !is_taken => {
            Some(update(ADMITTED, false, HOST_TAKEN, message))
        }
        Hold::Held if admitted_now != Some(true) => {
            Some(admitted(if route.host.is_some() { "the Route holds its host" } else { "the Route holds its names" }))
        }
        _ => None,
    }
}

fn of_scheduling(route: &RouteInfo, key: &ObjectKey, placement: Placement<'_>) -> Option<ConditionUpdate> {
    let (name, dns) = (&placement.binding.router, &placement.binding.dns);
    let is_gone = route.conditions.is_refused(SCHEDULED, ROUTER_GONE);
    let say = |is_true, reason, message: String| Some(update(SCHEDULED, is_true, reason, message));
    match placement.its_router() {
        None if !is_gone => {
            let message = match placement.router {
                None => format!(
                    "Router {name} was deleted; to move the Route, run \"signpost move route {key} --to ROUTER\", or \
                     re-create Router {name}"
                ),
                Some(_) => format!(
                    "Router {name} was re-created with another zone than {dns}; to give the Route a name in the new \
                     zone, run \"signpost move route {key} --to {name}\", or move the Route to another Router"
                ),
            };
            say(false, ROUTER_GONE, message)
        }
        Some(_) if is_gone => say(true, "Scheduled", format!("Router {name} exists again")),
        Some(_) if route.conditions.is_true(SCHEDULED) != Some(true) => {
            say(true, "Scheduled", format!("the Route is on {name}; run \"signpost explain route {key}\" to see why"))
        }
        _ => None,
    }
}

fn of_selectors(route: &RouteInfo, placement: Placement<'_>) -> Option<ConditionUpdate> {
    let (name, router) = (&placement.binding.router, placement.its_router());
    let say = |is_true, reason, message: String| Some(update(SELECTOR_MISMATCH, is_true, reason, message));
    // The admission of an adopted Route is on its source, which has the labels.
    let is_mismatch =
        route.adopted.is_none() && router.is_some_and(|router| !router.selects(&route.labels, placement.namespace));
    match (is_mismatch, route.conditions.is_true(SELECTOR_MISMATCH) == Some(true)) {
        (true, false) => {
            let term = router.and_then(|router| unmatched(router, &route.labels, placement.namespace));
            let term = term.map_or(String::new(), |term| format!(": {term}"));
            let message = format!("the selectors of Router {name} no longer match the Route; it stays there{term}");
            say(true, "SelectorsChanged", message)
        }
        (false, true) => say(false, "SelectorsMatch", format!("the selectors of Router {name} match the Route")),
        _ => None,
    }
}

/// Returns the term of a Router's selectors that a route with these labels does not match, with the field that contains it.
fn unmatched(router: &RouterInfo, route: &Labels, namespace: &Labels) -> Option<String> {
    let RouterTarget { route_selector, namespace_selector, .. } = &router.target;
    let both =
        [(route_selector, route, "spec.routeSelector"), (namespace_selector, namespace, "spec.namespaceSelector")];
    both.into_iter().find_map(|(selector, labels, field)| {
        Some(format!("{} ({field})", unmatched_term(selector.as_ref().ok()?, labels)?))
    })
}

/// Returns the settings that the Router of a Route does not honor; `None`: the Router is not known.
fn settings(route: &RouteInfo, placement: Placement<'_>) -> Option<Vec<Unhonored>> {
    let router = placement.its_router()?;
    let Some(requested) = &route.requested else { return Some(Vec::new()) };
    let proxies = router.object.proxies();
    let provider = Provider { router: &placement.binding.router, maxima: router.maxima(), proxies: &proxies };
    Some(requested.unhonored(provider))
}

fn of_settings(route: &RouteInfo, placement: Placement<'_>) -> Option<ConditionUpdate> {
    let found = settings(route, placement)?;
    let reason = found.iter().map(|one| one.reason).min()?.word();
    let messages: Vec<&str> = found.iter().map(|one| one.message.as_str()).collect();
    let message = messages.join("; ");
    let wanted = update(SETTINGS_HONORED, false, reason, cut(&message, MESSAGE_OCTETS_MAX));
    let reported = route.conditions.get(SETTINGS_HONORED);
    reported.is_none_or(|reported| reported.mark != Mark::of_update(&wanted)).then_some(wanted)
}

fn of_former_names(route: &RouteInfo, placement: Placement<'_>) -> Option<ConditionUpdate> {
    let reported = route.conditions.get(FORMER_NAME_BLOCKED);
    match blocked(&placement.binding.label, placement.blocking, placement.lost) {
        Some(blocked) => reported.is_none_or(|reported| reported.mark != Mark::of_update(&blocked)).then_some(blocked),
        None if reported.is_some_and(|reported| reported.mark.is_true()) => {
            Some(update(FORMER_NAME_BLOCKED, false, "FormerNamesServed", "the former names lead to the Route"))
        }
        None => None,
    }
}

impl<'a> Placement<'a> {
    /// Returns the Route's Router, unless it was re-created with another zone.
    fn its_router(&self) -> Option<&'a RouterInfo> {
        self.router.filter(|router| !router.has_other_zone(&self.binding.dns))
    }
}

/// Returns the condition of a Route with former names that do not resolve to it.
fn blocked(label: &str, blocking: &[String], lost: &[String]) -> Option<ConditionUpdate> {
    let by_records = (!blocking.is_empty()).then(|| {
        format!(
            "the former name with the label {label} no longer leads to the Route, because spec.records has records \
             there, on: {}; remove these records",
            listed(blocking, BLOCKED_LISTED_MAX)
        )
    });
    let with_zone = (!lost.is_empty()).then(|| {
        format!(
            "the former name with the label {label} no longer leads to the Route, because no Router has its zone: {}; \
             a Router with that zone restores it",
            listed(lost, BLOCKED_LISTED_MAX)
        )
    });
    let message = by_records.into_iter().chain(with_zone).reduce(|one, other| format!("{one}; {other}"))?;
    let reason = if blocking.is_empty() { "FormerZoneGone" } else { "RecordAtFormerName" };
    Some(update(FORMER_NAME_BLOCKED, true, reason, message))
}

/// A status that was changed.
#[derive(Debug, PartialEq)]
pub struct Changed {
    /// The difference, as a JSON merge patch.
    pub patch: Value,
    /// The conditions of placement and names that turned true or false, or are new.
    pub turned: Vec<ConditionUpdate>,
}

/// Applies a change to the status of a Route in the API. `None`: no change is left.
pub fn apply(change: &Change, route: &Route, now: Timestamp) -> Option<Changed> {
    if *change.uid != *route.metadata.uid.as_deref().unwrap_or_default() {
        return None;
    }
    let (generation, before) = (route.metadata.generation, route.status.clone().unwrap_or_default());
    let mut after = before.clone();
    let mut turned = Vec::new();
    let mut say = |after: &mut RouteStatus, statement: &ConditionUpdate, generation, has_event: bool| {
        let said = before.conditions.iter().find(|condition| condition.type_ == statement.kind);
        if has_event && said.is_none_or(|said| (said.status == "True") != statement.is_true()) {
            turned.push(statement.clone());
        }
        state(&mut after.conditions, statement, generation, now);
    };
    let has_moved = reported_router(route) != change.router.as_deref();
    if is_about(&About::Bound, route) && !has_moved {
        for statement in &change.statements {
            say(&mut after, &with_label_reason(statement, route), change.generation, true);
        }
        let unchanged = |kind: &str| change.unchanged.contains(&kind);
        let unchanged = after.conditions.iter_mut().filter(|condition| unchanged(&condition.type_));
        unchanged.for_each(|condition| condition.observed_generation = change.generation);
        if change.is_outdated {
            after.observed_generation = change.generation;
        }
    }
    for (part, finding) in change.findings.iter().filter(|(_, finding)| is_current(finding, route)) {
        finding.statements.iter().for_each(|statement| say(&mut after, statement, generation, part == RESOLVABLE));
        if matches!(finding.about, About::Unbound(_)) {
            after.observed_generation = generation;
        }
        if finding.challenge.is_some() {
            after.challenge.clone_from(&finding.challenge);
        }
    }
    after.conditions.retain(|condition| !change.withdrawn.contains(&condition.type_.as_str()));
    if change.withdrawn.contains(&HOST_VERIFIED) {
        after.challenge = None;
    }
    let ready = ready::statement(&after.conditions, change.facts, generation);
    if let Some((statement, generation)) = ready.filter(|_| is_about(&About::Bound, route) && !has_moved) {
        state(&mut after.conditions, &statement, generation, now);
    }
    let patch = json!({
        "conditions": after.conditions, "challenge": after.challenge, "observedGeneration": after.observed_generation,
    });
    (after != before).then_some(Changed { patch, turned })
}

/// Returns the status that a binding gives its Route, as a JSON merge patch; `None` if the binding is another Route's, or the
/// Route has it.
pub fn assigned(route: &Route, binding: &RouteBindingSpec, now: Timestamp) -> Option<Value> {
    let status = route.status.clone().unwrap_or_default();
    let says_so = status.phase == Phase::Scheduled
        && status.router.as_ref() == Some(&binding.router)
        && assignment::has_main_names(route.spec.host.as_deref(), &status)
        && (&status.names, &status.former_names) == (&binding.names, &binding.former_names);
    if route.metadata.uid.as_deref() != Some(&binding.route_uid) || says_so {
        return None;
    }
    let (route, mut status) = (json!(route), json!(status));
    assignment::assign(&mut status, &route, binding, now);
    let fields = BOUND_FIELDS.into_iter().chain(["observedGeneration", "conditions"]);
    Some(fields.map(|field| (field.to_owned(), status[field].take())).collect())
}

/// Adds the earlier reason if a Route's label differs from its preferred one, as at the time of binding.
fn with_label_reason(statement: &ConditionUpdate, route: &Route) -> ConditionUpdate {
    let mut statement = statement.clone();
    if statement.kind == ADMITTED && statement.is_true() {
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

#[cfg(test)]
mod tests;
