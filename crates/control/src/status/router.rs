//! The status of Routers: whether they are ready, whether all of their spec is used, and how many routes they have.
//!
//! `Ready` speaks of serving: a Router is ready when it has an active address and its selectors can be read. One that is
//! cordoned or draining still serves its routes; it is ready, for that reason, so that a deliberate step rings no alarm.
//!
//! `Accepted` speaks of the zone: what the compiler says against the Router's fields, with their paths, which names of routes
//! on it lead elsewhere by its records, and which of these stand where the former name of a route that has left would lead to it. Other faults that lie between objects or on
//! one name server, as a zone file at the same apex, are told by that name server's log.
//!
//! `Drained` speaks of one that is draining: what is left on it, and when it can be deleted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Selector;
use serde_json::{Value, json};

use super::route::Labels;
use super::{ConditionUpdate, Status, state};
use crate::compiler::former_names::FormerNames;
use crate::compiler::inputs::RouterInput;
use crate::compiler::settings::text_of;
use crate::compiler::{Settings, shard};
use crate::controller::health::report::{self, Notice};
use crate::controller::live::shard::Expectation;
use crate::controller::zone::zones::examine;
use crate::reconcile::observations::RouterFindings;
use crate::world::router::{RouterTarget, matches};
use crate::world::{self, RouterInfo};
use signpost_api::names::is_at_or_below;
use signpost_api::selectors::unmatched_term;
use signpost_api::v1alpha1::router::{
    ACCEPTED, DRAINED, NO_ACTIVE_ADDRESS, READY, Router, RouterState, RouterStatus, ZONE_PUBLISHED,
};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// Reason and message of the readiness of a Router that nothing speaks against.
const TAKES_ROUTES: (&str, &str) = ("Ready", "it takes and serves routes");
/// Most faults that a condition tells; how many more there are, it says.
const FAULTS_TOLD_MAX: usize = 5;

/// What is on a Router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    /// How many routes are bound to it.
    pub routes: u32,
    /// How many of these are being deleted, if it is draining: they are not moved.
    pub deleting: u32,
    /// How many routes that have left have a former name in its zone that leads to them.
    pub former_names: u32,
    /// Until when the last of these does.
    pub former_names_until: Option<Timestamp>,
    /// How many RouteBindings the deletion hold keeps, on whatever Router they were.
    pub held: u32,
    /// Whether there are routes on it whose names in its zone lead elsewhere.
    pub is_name_taken: bool,
    /// Whether there are routes that have left it and whose former names do not lead to them, since it has records there.
    pub is_former_name_blocked: bool,
}

/// What a Router's status says, what it should say, and which names in its zone are taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    generation: Option<i64>,
    /// `spec.dns`; the API writes it where it is left out.
    dns: Option<Box<str>>,
    /// Labels right below its zone's apex at which it has records of its own, in lower case.
    record_labels: BTreeSet<Box<str>>,
    /// Labels whose names in its zone do not lead to it, and why.
    taken: BTreeMap<Box<str>, Box<str>>,
    /// What its status should say of its readiness.
    ready: ConditionUpdate,
    /// What its status should say of its fields, if they were examined.
    accepted: Option<ConditionUpdate>,
    /// What it says: of readiness, of its fields, of the generation, of what is on it.
    told: Told,
    /// What it says of its zone: the condition and the serial, which others write.
    zone: (Option<Said>, Option<u32>),
}

/// A condition's status, reason and message.
type Said = (bool, String, String);

#[derive(Debug, Clone, Default, PartialEq)]
struct Told {
    ready: Option<Said>,
    accepted: Option<Said>,
    drained: Option<Said>,
    generation: Option<i64>,
    routes: Option<u32>,
    former_names: Option<u32>,
    former_names_until: Option<Timestamp>,
}

impl Report {
    /// Of a Router, examined under the settings of the platform's zones if they are given.
    pub fn new(router: &Router, target: &RouterTarget, platform: Option<&Settings>) -> Self {
        let (is_true, reason, message) = readiness(target);
        let mut message = message.to_owned();
        if is_true && target.is_unpublished {
            message += "; not all name servers serve its zone, so that no route moves here and new ones are not live: the \
                        condition ZonePublished says why";
        }
        if let Some(zone) = platform.and_then(|platform| undelegated(router, platform)) {
            message += &format!("; the platform's own zone does not delegate {zone}: see that the zone above does");
        }
        Report {
            generation: router.metadata.generation,
            dns: router.spec.dns.as_deref().filter(|dns| !dns.is_empty()).map(Box::from),
            record_labels: platform.map_or_else(BTreeSet::new, |platform| record_labels(router, platform)),
            taken: platform.map_or_else(BTreeMap::new, |platform| taken_labels(router, platform)),
            ready: ConditionUpdate { kind: READY, status: is_true.into(), reason, message },
            accepted: platform.map(|platform| acceptance(router, platform)),
            told: told(router),
            zone: router
                .status
                .as_ref()
                .map(|status| (said(status, ZONE_PUBLISHED), status.serial))
                .unwrap_or_default(),
        }
    }
}

impl RouterInfo {
    /// How many routes its status says it has.
    pub fn routes_told(&self) -> Option<u32> {
        self.report.told.routes
    }

    /// Whether its routes are to leave it.
    pub fn is_draining(&self) -> bool {
        self.target.state == RouterState::Draining
    }

    /// Whether a route with these labels, in a namespace with those, may be placed on it by its selectors.
    pub fn selects(&self, route: &Labels, namespace: &Labels) -> bool {
        matches(&self.target.route_selector, route) && matches(&self.target.namespace_selector, namespace)
    }

    /// Which term of its selectors such a route does not match, with the field that it stands in.
    pub fn unmatched(&self, route: &Labels, namespace: &Labels) -> Option<String> {
        let term = |selector: &Result<Selector, String>, labels, field| {
            selector.as_ref().ok().and_then(|selector| Some(format!("{} ({field})", unmatched_term(selector, labels)?)))
        };
        let of_route = term(&self.target.route_selector, route, "spec.routeSelector");
        of_route.or_else(|| term(&self.target.namespace_selector, namespace, "spec.namespaceSelector"))
    }

    /// Labels, in lower case, whose names in its zone do not lead to it, and why, in words that follow the name.
    pub fn taken(&self) -> impl Iterator<Item = (&str, &str)> {
        self.report.taken.iter().map(|(label, why)| (&**label, &**why))
    }

    /// Whether it has records of its own right below its zone's apex.
    pub fn has_records(&self) -> bool {
        !self.report.record_labels.is_empty()
    }

    /// Whether it has records of its own at this label, so that no former name can be there.
    pub fn has_records_at(&self, label: &str) -> bool {
        // Nearly no Router has any.
        self.has_records() && self.report.record_labels.contains(label.to_ascii_lowercase().as_str())
    }

    /// Whether both have records of their own at the same labels.
    pub fn has_records_as(&self, other: &RouterInfo) -> bool {
        self.report.record_labels == other.report.record_labels
    }

    /// Whether its zone is known to be another one than `dns`.
    pub fn has_other_zone(&self, dns: &str) -> bool {
        self.report.dns.as_ref().is_some_and(|own| !own.eq_ignore_ascii_case(dns))
    }

    /// Whether its zone is known to be `dns`.
    pub fn has_zone(&self, dns: &str) -> bool {
        self.report.dns.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(dns))
    }

    /// Whether both have the same zone.
    pub fn has_zone_of(&self, other: &RouterInfo) -> bool {
        self.report.dns == other.report.dns
    }

    /// Whether its status says this of its zone. Where no serial is known, any that it has stays.
    fn says_of_zone(&self, statement: &ConditionUpdate, serial: Option<Serial>) -> bool {
        let (condition, told_serial) = &self.report.zone;
        let is_told = condition.as_ref().is_some_and(|(is_true, reason, message)| {
            (*is_true, &**reason, &**message) == (statement.is_true(), statement.reason, statement.told())
        });
        is_told && serial.is_none_or(|serial| Some(serial.0) == *told_serial)
    }

    /// Whether both have the same selectors.
    pub fn selects_as(&self, other: &RouterInfo) -> bool {
        let of = |info: &RouterInfo| (info.target.route_selector.clone(), info.target.namespace_selector.clone());
        of(self) == of(other)
    }

    /// Whether its status does not say what is so, this being on it and that having been found out.
    pub fn is_stale(&self, load: &Load, findings: &RouterFindings) -> bool {
        let says_of_zone = |(statement, serial): &(ConditionUpdate, _)| self.says_of_zone(statement, *serial);
        !findings.zone.as_ref().is_none_or(says_of_zone)
            || !findings.health.as_ref().is_none_or(|health| self.health.says(health))
            || self.is_load_stale(load)
    }

    fn is_load_stale(&self, load: &Load) -> bool {
        let said = |said: ConditionUpdate| (said.is_true(), said.reason.to_owned(), said.message);
        // Without an examination nothing is to be said of it.
        let accepted = self.accepted(load).map(said).or_else(|| self.report.told.accepted.clone());
        self.report.told
            != Told {
                ready: Some(said(self.ready(load))),
                accepted,
                drained: self.drained(load).map(said),
                generation: self.report.generation,
                routes: Some(load.routes),
                former_names: Some(load.former_names).filter(|former_names| *former_names > 0),
                former_names_until: load.former_names_until,
            }
    }

    /// What its status should say of its readiness, this being on it.
    fn ready(&self, load: &Load) -> ConditionUpdate {
        let mut ready = self.report.ready.clone();
        if let Some(hard) =
            self.target.capacity_hard.filter(|hard| ready.reason == TAKES_ROUTES.0 && load.routes >= *hard)
        {
            let full = format!("it serves its routes and has no room for new ones ({} of {hard})", load.routes);
            ready.reason = "Full";
            ready.message = ready.message.replacen(TAKES_ROUTES.1, &full, 1);
        }
        ready
    }

    /// What its status should say of its fields, this being on it, if they were examined.
    fn accepted(&self, load: &Load) -> Option<ConditionUpdate> {
        let accepted = self.report.accepted.clone()?;
        // Every tenant may read Routers, and a label is made of its Route's namespace and
        // name: the conditions of the Routes have the details.
        let taken = load.is_name_taken.then(|| {
            let message = "names of routes on it lead elsewhere, by spec.records or as a name server's: see the Routes whose \
                           Resolvable condition has the reason NameTaken; take the records out, or move the routes";
            ("NameTaken", message.to_owned())
        });
        let blocked = load.is_former_name_blocked.then(|| {
            let message = "spec.records: former names do not lead to their routes, since there are records at them; see the \
                           Routes whose condition FormerNameBlocked is true; take the records out";
            ("FormerNameBlocked", message.to_owned())
        });
        Some(taken.into_iter().chain(blocked).fold(accepted, |accepted, (reason, message)| match accepted.is_true() {
            true => ConditionUpdate { kind: ACCEPTED, status: Status::False, reason, message },
            false => ConditionUpdate { message: format!("{}; {message}", accepted.message), ..accepted },
        }))
    }

    /// What its status should say of whether it is empty. One that is not draining, and never was, says nothing.
    fn drained(&self, load: &Load) -> Option<ConditionUpdate> {
        let (is_true, reason, message) = match (self.is_draining(), load) {
            (false, _) if self.report.told.drained.is_none() => return None,
            (false, _) => (false, "NotDraining", "its state is not draining".to_owned()),
            (true, Load { routes: 0, former_names_until: None, held: 1.., .. }) => {
                let message = format!(
                    "no route is left, and no former name leads through its zone; but name servers still serve the aliases of \
                     {} RouteBindings that the API lacks, which may lead here: see signpost hold list",
                    load.held
                );
                (false, "DeletionHeld", message)
            }
            (true, Load { routes: 0, former_names_until: None, .. }) => {
                let message = "no route is left, and no former name leads through its zone: it can be deleted";
                (true, "Drained", message.to_owned())
            }
            (true, Load { routes: 0, former_names, former_names_until: Some(until), .. }) => {
                let message = format!(
                    "no route is left; former names of {former_names} that have left lead through its zone, the last until {until} \
                     or longer, if it is asked for"
                );
                (false, "FormerNamesServed", message)
            }
            (true, Load { routes, deleting, .. }) => (false, "RoutesLeft", left(*routes, *deleting)),
        };
        Some(ConditionUpdate { kind: DRAINED, status: is_true.into(), reason, message })
    }
}

/// What is left of so many routes on a Router that is draining, so many of which are being deleted.
fn left(routes: u32, deleting: u32) -> String {
    let are = |count: u32, what: &str| match count {
        1 => format!("1 {what}is"),
        count => format!("{count} {what}are"),
    };
    let wait = |count: u32| match count {
        1 => "being deleted: it goes when its finalizers are gone",
        _ => "being deleted: they go when their finalizers are gone",
    };
    match routes.saturating_sub(deleting) {
        0 => format!("{} left, and {}", are(routes, if routes == 1 { "route " } else { "routes " }), wait(routes)),
        moving if deleting == 0 => format!("{} left to be moved", are(moving, "")),
        moving => format!("{} left to be moved; {} {}", are(moving, ""), are(deleting, "more "), wait(deleting)),
    }
}

/// The status that a Router should have, this being on it and that having been found out; and what is to be told of a change of
/// its health.
pub fn router(
    router: &Router,
    load: &Load,
    findings: &RouterFindings,
    settings: &world::Settings,
    now: Timestamp,
) -> (RouterStatus, Vec<Notice>) {
    let (info, generation) = (RouterInfo::new(router, settings), router.metadata.generation);
    let (mut status, notices) = match &findings.health {
        Some(health) => report::apply(router, health, &settings.domain, now),
        None => (router.status.clone().unwrap_or_default(), Vec::new()),
    };
    let zone = findings.zone.as_ref().map(|(statement, _)| statement.clone());
    let statements = [Some(info.ready(load)), info.accepted(load), info.drained(load), zone];
    for statement in statements.into_iter().flatten() {
        state(&mut status.conditions, &statement, generation, now);
    }
    status.observed_generation = generation;
    status.routes = Some(load.routes);
    status.former_names = Some(load.former_names).filter(|former_names| *former_names > 0);
    status.former_names_until = load.former_names_until.map(Time);
    // A serial that was known stays.
    let serial = findings.zone.as_ref().and_then(|(_, serial)| *serial);
    status.serial = serial.map(|serial| serial.0).or(status.serial);
    (status, notices)
}

/// What is different of a status, as a JSON merge patch; `None`: nothing.
pub fn patch(before: &RouterStatus, after: &RouterStatus) -> Option<Value> {
    let addresses = Some(&after.addresses).filter(|addresses| !addresses.is_empty());
    (before != after).then(|| {
        json!({
            "conditions": after.conditions,
            "observedGeneration": after.observed_generation,
            "routes": after.routes,
            "formerNames": after.former_names,
            "formerNamesUntil": after.former_names_until,
            "serial": after.serial,
            "addresses": addresses,
            "panicThreshold": after.panic_threshold,
        })
    })
}

fn readiness(target: &RouterTarget) -> (bool, &'static str, &'static str) {
    if target.deleting {
        (false, "Deleting", "it is being deleted")
    } else if target.route_selector.is_err() || target.namespace_selector.is_err() {
        (false, "InvalidSelector", "a selector cannot be read, so that no route is placed here")
    } else if !target.has_active_address {
        (false, NO_ACTIVE_ADDRESS, "none of its addresses is active, so that its names lead nowhere")
    } else {
        match target.state {
            RouterState::Active => (true, TAKES_ROUTES.0, TAKES_ROUTES.1),
            RouterState::Cordoned => (true, "Cordoned", "it serves its routes and takes no new ones"),
            RouterState::Draining => (true, "Draining", "it serves its routes until they are moved away"),
        }
    }
}

fn acceptance(router: &Router, platform: &Settings) -> ConditionUpdate {
    let verdicts = examine(router, platform);
    if verdicts.is_empty() {
        let message = "all of it is used".to_owned();
        return ConditionUpdate { kind: ACCEPTED, status: Status::True, reason: "Accepted", message };
    }
    let told = verdicts.iter().take(FAULTS_TOLD_MAX).map(|verdict| format!("{}: {}", verdict.path, verdict.message));
    let mut message = told.collect::<Vec<_>>().join("; ");
    if verdicts.len() > FAULTS_TOLD_MAX {
        message.push_str(&format!("; and {} more", verdicts.len() - FAULTS_TOLD_MAX));
    }
    ConditionUpdate { kind: ACCEPTED, status: Status::False, reason: "InvalidFields", message }
}

/// The labels right below the apex whose names do not lead to a Router, and why: by its records, or since they are name
/// servers'.
pub fn taken_labels(router: &Router, platform: &Settings) -> BTreeMap<Box<str>, Box<str>> {
    let Some(input) = RouterInput::read(router, &platform.domain_text(), &mut Vec::new()) else {
        return BTreeMap::new();
    };
    let has_server = || platform.name_servers().iter().any(|server| server.name.is_at_or_below(&input.apex));
    // Nearly no Router has any.
    if router.spec.records.is_empty() && !has_server() {
        return BTreeMap::new();
    }
    let expectation = Expectation::new(&input, platform);
    let below = expectation.all_taken().filter(|owner| owner.parent().as_ref() == Some(&input.apex));
    let labels = below.filter_map(|owner| {
        let why = expectation.taken(owner)?.to_string();
        Some((text_of(owner).split('.').next()?.to_ascii_lowercase().into(), why.into()))
    });
    labels.collect()
}

/// The labels right below the apex at which a Router has records of its own: no former name can be there.
fn record_labels(router: &Router, platform: &Settings) -> BTreeSet<Box<str>> {
    if router.spec.records.is_empty() {
        return BTreeSet::new();
    }
    let input = RouterInput::read(router, &platform.domain_text(), &mut Vec::new());
    let Some(input) = input else { return BTreeSet::new() };
    let made = shard::compile(&input, &FormerNames::default(), &mut Vec::new());
    let below = |owner: &&Name| !owner.is_wildcard() && owner.parent().as_ref() == Some(&input.apex);
    let label = |owner: &Name| text_of(owner).split('.').next().unwrap_or_default().into();
    made.records.owners().map(|(owner, _)| owner).filter(below).map(label).collect()
}

/// The zone of a Router, if it is not below the platform's domain, whose zone delegates no other.
fn undelegated<'a>(router: &'a Router, platform: &Settings) -> Option<&'a str> {
    let zone = router.spec.dns.as_deref().filter(|dns| !dns.is_empty())?;
    (!is_at_or_below(zone, &platform.domain_text())).then_some(zone)
}

fn said(status: &RouterStatus, kind: &str) -> Option<Said> {
    let found = status.conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((found.status == "True", found.reason.clone(), found.message.clone()))
}

fn told(router: &Router) -> Told {
    let Some(status) = &router.status else { return Told::default() };
    Told {
        ready: said(status, READY),
        accepted: said(status, ACCEPTED),
        drained: said(status, DRAINED),
        generation: status.observed_generation,
        routes: status.routes,
        former_names: status.former_names,
        former_names_until: status.former_names_until.as_ref().map(|until| until.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn view(spec: serde_json::Value, status: serde_json::Value) -> RouterInfo {
        let object = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": "shard1", "generation": 2}, "spec": spec, "status": status,
        });
        let platform = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let settings = world::Settings::of(Arc::new(platform.expect("good settings")));
        RouterInfo::new(&serde_json::from_value(object).expect("a Router"), &settings)
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
            let accepted = view(spec.clone(), json!({})).report.accepted.expect("it was examined");
            assert_eq!((accepted.is_true(), accepted.reason), (reason == "Accepted", reason), "{spec}");
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
            assert_eq!((view.report.ready.is_true(), view.report.ready.reason), (is_true, reason), "{spec}");
        }
    }

    #[test]
    fn one_without_room_or_delegation_says_so() {
        let address = json!([{"ip": "192.0.2.1"}]);
        for (spec, routes, reason, message) in [
            (json!({"addresses": address, "capacity": {"hard": 2}}), 1, "Ready", "it takes and serves routes"),
            (
                json!({"addresses": address, "capacity": {"hard": 2}}),
                2,
                "Full",
                "it serves its routes and has no room for new ones (2 of 2)",
            ),
            (
                json!({"addresses": address, "capacity": {"hard": 2}, "state": "cordoned"}),
                2,
                "Cordoned",
                "it serves its routes and takes no new ones",
            ),
            (
                json!({"addresses": address, "dns": "shards.other.example"}),
                0,
                "Ready",
                "it takes and serves routes; the platform's own zone does not delegate shards.other.example: see that \
                 the zone above does",
            ),
            (json!({"addresses": address, "dns": "a.v3.example"}), 0, "Ready", "it takes and serves routes"),
        ] {
            let ready = view(spec.clone(), json!({})).ready(&Load { routes, ..Load::default() });
            assert_eq!((ready.is_true(), ready.reason, ready.message.as_str()), (true, reason, message), "{spec}");
        }
    }

    #[test]
    fn records_where_a_former_name_is_are_told_of() {
        let spec = json!({"dns": "shard1.v3.example", "addresses": [{"ip": "192.0.2.1"}],
            "records": ["Shop-Web A 192.0.2.9", "_acme.api TXT x", "@ TXT x", "*.deep TXT x"]});
        let routers = view(spec, json!({}));
        for (label, has) in [("shop-web", true), ("SHOP-WEB", true), ("api", false), ("deep", false), ("web", false)] {
            assert_eq!(routers.has_records_at(label), has, "{label}");
        }
        assert_eq!(routers.accepted(&Load::default()).map(|accepted| accepted.is_true()), Some(true));
        let load = |is_name_taken| Load { is_former_name_blocked: true, is_name_taken, ..Load::default() };
        let accepted = routers.accepted(&load(false)).expect("it was examined");
        assert_eq!((accepted.is_true(), accepted.reason), (false, "FormerNameBlocked"));
        // A route on it that lost its name is told of first.
        let accepted = routers.accepted(&load(true)).expect("it was examined");
        assert_eq!((accepted.is_true(), accepted.reason), (false, "NameTaken"));
        assert!(accepted.message.contains("; spec.records: former names"), "{}", accepted.message);
        assert_eq!(routers.taken().collect::<Vec<_>>(), [("shop-web", "has addresses of its own")]);
        // Beside other faults both are told.
        let routers = view(json!({"records": ["x A 300.1.1.1"]}), json!({}));
        let accepted = routers.accepted(&load(false)).expect("it was examined");
        assert_eq!(accepted.reason, "InvalidFields");
        assert!(
            accepted.message.contains("spec.records[0]: ") && accepted.message.contains("former names"),
            "{accepted:?}"
        );
    }

    #[test]
    fn readiness_heeds_a_zone_that_is_not_served() {
        for (status, told) in [("True", false), ("False", true)] {
            let conditions = json!([{"type": "ZonePublished", "status": status, "reason": "OldSerial", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            let view = view(json!({"addresses": [{"ip": "192.0.2.1"}]}), json!({"conditions": conditions}));
            let ready = view.ready(&Load::default());
            assert!(ready.is_true() && ready.reason == "Ready");
            assert_eq!(ready.message.contains("not all name servers serve its zone"), told, "{}", ready.message);
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
            assert_eq!(
                view.is_stale(&Load { routes: 3, ..Load::default() }, &RouterFindings::default()),
                is_stale,
                "{status}"
            );
        }
    }

    #[test]
    fn what_is_left_on_one_that_drains() {
        let until = "2026-01-02T00:00:00Z".parse().expect("a time");
        let said = json!({"conditions": [{"type": "Drained", "status": "True", "reason": "x", "message": "",
            "lastTransitionTime": "2025-01-01T00:00:00Z"}]});
        for (state, status, load, expected) in [
            ("active", json!({}), (3, 0, None), None),
            ("active", said, (3, 0, None), Some((false, "NotDraining"))),
            ("draining", json!({}), (3, 1, Some(until)), Some((false, "RoutesLeft"))),
            ("draining", json!({}), (0, 1, Some(until)), Some((false, "FormerNamesServed"))),
            ("draining", json!({}), (0, 0, None), Some((true, "Drained"))),
        ] {
            let (routes, former_names, former_names_until) = load;
            let view = view(json!({"state": state}), status);
            let load = Load { routes, former_names, former_names_until, ..Load::default() };
            let found = view.drained(&load);
            assert_eq!(found.map(|found| (found.is_true(), found.reason)), expected, "{state} {load:?}");
        }
        // What the deletion hold keeps may lead here.
        let draining = view(json!({"state": "draining"}), json!({}));
        let drained = draining.drained(&Load { held: 98, ..Load::default() }).expect("it is draining");
        assert_eq!((drained.is_true(), drained.reason), (false, "DeletionHeld"));
        assert!(drained.message.contains("98 RouteBindings"), "{}", drained.message);
        for (routes, deleting, message) in [
            (1, 0, "1 is left to be moved"),
            (3, 0, "3 are left to be moved"),
            (3, 1, "2 are left to be moved; 1 more is being deleted: it goes when its finalizers are gone"),
            (3, 2, "1 is left to be moved; 2 more are being deleted: they go when their finalizers are gone"),
            (1, 1, "1 route is left, and being deleted: it goes when its finalizers are gone"),
            (2, 2, "2 routes are left, and being deleted: they go when their finalizers are gone"),
        ] {
            let view = view(json!({"state": "draining"}), json!({}));
            let load = Load { routes, deleting, ..Load::default() };
            assert_eq!(view.drained(&load).map(|drained| drained.message).as_deref(), Some(message));
        }
    }
}
