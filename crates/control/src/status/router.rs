//! The status of Routers: readiness, use of the spec, and number of routes.
//!
//! `Ready` is about serving: a Router is ready when it has an active address and its selectors are valid. A cordoned or draining
//! Router still serves its routes; it is ready, so that a deliberate step triggers no alert.
//!
//! `Accepted` is about the zone: the compiler's problems with the Router's fields, with their paths, the names of routes that its
//! records redirect, and those of them that block the former name of a route that has left. Other problems, which are between
//! objects or on one name server, such as a zone file at the same apex, are in that name server's log.
//!
//! `Drained` is about a draining Router: the routes that are left, and whether it can be deleted.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::health::{self, Notice};
use super::{instances, update};
use crate::compiler::Settings;
use crate::world::RouterInfo;
use crate::world::condition::{ConditionUpdate, state};
use crate::world::observations::RouterFindings;
use crate::world::router::RouterTarget;
use signpost_dns::wire::Name;
use signpost_types::names::is_at_or_below;
use signpost_types::v1alpha1::router::{
    ACCEPTED, AcmeStatus, DRAINED, NO_ACTIVE_ADDRESS, READY, RouterState, RouterStatus,
};

/// The most problems that a condition lists; it contains the number of the others.
const FAULTS_LISTED_MAX: usize = 5;

/// The contents of a Router.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    /// The number of bound routes.
    pub routes: u32,
    /// The number of these that are being deleted, if the Router drains: they are not moved.
    pub deleting: u32,
    /// The number of former names of routes that have left, in the Router's zone.
    pub former_names: u32,
    /// The latest end of these former names.
    pub former_names_until: Option<Timestamp>,
    /// The number of RouteBindings that the deletion hold keeps, on any Router.
    pub held: u32,
    /// Whether there are routes on it whose names in its zone have other targets.
    pub is_name_taken: bool,
    /// The former domain of the platform whose parent zone delegates its zone.
    pub former_domain: Option<String>,
    /// Whether its zone is inside that of another Router, and outside of the platform's domain.
    pub is_inner: bool,
    /// The zones of Routers inside its own, if its spec has records, which these zones hide.
    pub inner_zones: BTreeSet<Name>,
    /// Whether routes have left it whose former names do not resolve to them, because it has records there.
    pub is_former_name_blocked: bool,
}

/// The necessary changes of a Router's status.
#[derive(Debug)]
pub struct Change {
    /// The difference, as a JSON merge patch.
    pub patch: Value,
    /// The events about its health.
    pub notices: Vec<Notice>,
}

/// Returns the necessary changes of a Router's status, with this load and these findings; `None`: no changes. `platform` has the
/// settings of the platform's zones.
pub fn router(
    router: &RouterInfo,
    load: &Load,
    findings: &RouterFindings,
    platform: &Settings,
    now: Timestamp,
) -> Option<Change> {
    let (object, generation) = (&*router.object, router.object.metadata.generation);
    let before = object.status.clone().unwrap_or_default();
    let (mut after, notices) = match &findings.health {
        Some(found) => health::apply(object, found, &platform.domain_text(), now),
        None => (before.clone(), Vec::new()),
    };
    let says_drained = before.conditions.iter().any(|condition| condition.type_ == DRAINED);
    let instances = findings
        .instances
        .as_ref()
        .and_then(|found| instances::apply(object, found, findings.runtime_error.as_deref(), &mut after));
    if let Some(found) = &findings.services {
        instances::apply_services(object, found, &mut after);
    }
    let fault = findings.services.as_ref().and_then(|found| found.fault.as_deref());
    let ready = Some(ready(router, load, platform, fault));
    let statements = [ready, Some(accepted(router, load, platform)), instances, drained(router, load, says_drained)];
    let found = || findings.conditions.iter().map(|(_, finding)| finding);
    for statement in statements.iter().flatten().chain(found().map(|finding| &finding.statement)) {
        state(&mut after.conditions, statement, generation, now);
    }
    if let Some(thumbprint) = &findings.acme {
        after.acme = Some(AcmeStatus { account_thumbprint: thumbprint.clone() });
    }
    after.observed_generation = generation;
    after.routes = Some(load.routes);
    after.former_names = Some(load.former_names).filter(|former_names| *former_names > 0);
    after.former_names_until = load.former_names_until.map(Time);
    // A serial that was known stays.
    after.serial = found().find_map(|finding| finding.serial).map(|serial| serial.0).or(after.serial);
    // In the format of the API, whose times have no fractions of a second, unlike the times of findings.
    let after = patch(&after);
    (patch(&before) != after).then_some(Change { patch: after, notices })
}

/// Returns a status as a JSON merge patch.
fn patch(status: &RouterStatus) -> Value {
    json!({
        "conditions": status.conditions,
        "observedGeneration": status.observed_generation,
        "routes": status.routes,
        "formerNames": status.former_names,
        "formerNamesUntil": status.former_names_until,
        "serial": status.serial,
        "addresses": Some(&status.addresses).filter(|addresses| !addresses.is_empty()),
        "panicThreshold": status.panic_threshold,
        "acme": status.acme,
        "currentAddresses": Some(&status.current_addresses).filter(|addresses| !addresses.is_empty()),
        "instances": Some(&status.instances).filter(|instances| !instances.is_empty()),
        "readyInstances": status.ready_instances,
    })
}

/// Returns whether a Router with this load is ready. `fault` is that of the host name of a load balancer.
fn ready(router: &RouterInfo, load: &Load, platform: &Settings, fault: Option<&str>) -> ConditionUpdate {
    let (is_true, reason, mut message) = readiness(&router.target, load.routes);
    if is_true && router.target.is_unpublished {
        message += "; not all name servers serve its zone, so no Route moves here and new Routes are not live: see the \
                    condition ZonePublished";
    }
    if let Some(fault) = fault {
        message += "; ";
        message += fault;
    }
    // The platform's zone delegates those below its domain, and the zone of another Router those inside it.
    let is_undelegated = |zone: &&str| !load.is_inner && !is_at_or_below(zone, &platform.domain_text());
    match (router.zone().filter(is_undelegated), &load.former_domain) {
        (Some(zone), Some(former)) => {
            message += &format!(
                "; its zone {zone} is below the former domain {former}: move its Routes before the service of that \
                 domain ends"
            );
        }
        (Some(zone), None) => {
            message += &format!("; the platform's own zone does not delegate {zone}: delegate it in the zone above");
        }
        (None, _) => {}
    }
    update(READY, is_true, reason, message)
}

fn readiness(target: &RouterTarget, routes: u32) -> (bool, &'static str, String) {
    let (is_true, reason, message) = if target.deleting {
        (false, "Deleting", "the Router is being deleted")
    } else if target.route_selector.is_err() || target.namespace_selector.is_err() {
        (false, "InvalidSelector", "a selector is invalid, so no Route is placed here")
    } else if !target.active.any {
        (false, NO_ACTIVE_ADDRESS, "no active address: names in its zone resolve to NODATA")
    } else {
        match (target.state, target.capacity.hard) {
            (RouterState::Active, Some(hard)) if routes >= hard => {
                let message = format!("the Router serves its Routes and is full ({routes} of {hard})");
                return (true, "Full", message);
            }
            (RouterState::Active, _) => (true, "Ready", "the Router accepts and serves Routes"),
            (RouterState::Cordoned, _) => (true, "Cordoned", "the Router serves its Routes and accepts no new ones"),
            (RouterState::Draining, _) => (true, "Draining", "the Router serves its Routes until they have moved"),
        }
    };
    (is_true, reason, message.to_owned())
}

/// Returns whether all fields of a Router with this load are used.
fn accepted(router: &RouterInfo, load: &Load, platform: &Settings) -> ConditionUpdate {
    let shard = router.shard.as_deref().filter(|_| !load.inner_zones.is_empty());
    let cut = shard.map(|shard| shard.with_cuts(load.inner_zones.clone(), platform));
    let faults = match &cut {
        Some(shard) => router.diagnostics.iter().chain(&shard.diagnostics).collect(),
        None => router.faults().collect::<Vec<_>>(),
    };
    let mut messages: Vec<String> = faults.iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect();
    if messages.len() > FAULTS_LISTED_MAX {
        let more = format!("and {} more", messages.split_off(FAULTS_LISTED_MAX).len());
        messages.push(more);
    }
    let mut reason = (!messages.is_empty()).then_some("InvalidFields");
    // The message omits labels, because every tenant may read Routers, and a label contains its Route's namespace and name: the
    // conditions of the Routes have the details.
    if load.is_name_taken {
        reason.get_or_insert("NameTaken");
        messages.push(
            "names of Routes on it lead elsewhere, because of spec.records or a name server of that name: see the \
             Routes whose Resolvable condition has the reason NameTaken; remove the records, or move the Routes"
                .to_owned(),
        );
    }
    if load.is_former_name_blocked {
        reason.get_or_insert("FormerNameBlocked");
        messages.push(
            "spec.records: former names do not lead to their Routes, because the field has records at them; see the \
             Routes whose condition FormerNameBlocked is True; remove the records"
                .to_owned(),
        );
    }
    let message = if messages.is_empty() { "all fields are used".to_owned() } else { messages.join("; ") };
    update(ACCEPTED, reason.is_none(), reason.unwrap_or("Accepted"), message)
}

/// Returns whether a Router with this load is empty. There is no condition for a Router that does not drain and never did.
fn drained(router: &RouterInfo, load: &Load, says_drained: bool) -> Option<ConditionUpdate> {
    let (is_true, reason, message) = match (router.is_draining(), load) {
        (false, _) if !says_drained => return None,
        (false, _) => (false, "NotDraining", "the Router is not draining".to_owned()),
        (true, Load { routes: 0, former_names_until: None, held: 1.., .. }) => {
            let message = format!(
                "no Route is left, and no former name leads through its zone; but name servers still serve the aliases \
                 of {} RouteBindings that are missing from the API and may lead here: run \"signpost hold list\"",
                load.held
            );
            (false, "DeletionHeld", message)
        }
        (true, Load { routes: 0, former_names_until: None, .. }) => {
            let message = "no Route is left, and no former name leads through its zone: the Router can be deleted";
            (true, "Drained", message.to_owned())
        }
        (true, Load { routes: 0, former_names, former_names_until: Some(until), .. }) => {
            let message = format!(
                "no Route is left; its zone still has the former names of {former_names} that moved, the last until \
                 {until}"
            );
            (false, "FormerNamesServed", message)
        }
        (true, Load { routes, deleting, .. }) => (false, "RoutesLeft", left(*routes, *deleting)),
    };
    Some(update(DRAINED, is_true, reason, message))
}

/// Returns the text about the routes that are left on a draining Router, some of which are being deleted.
fn left(routes: u32, deleting: u32) -> String {
    let are = |count: u32, what: &str| match count {
        1 => format!("1 {what}is"),
        count => format!("{count} {what}are"),
    };
    let wait = |count: u32| match count {
        1 => "being deleted, when its finalizers are removed",
        _ => "being deleted, when their finalizers are removed",
    };
    match routes.saturating_sub(deleting) {
        0 => format!("{} left, and {}", are(routes, if routes == 1 { "Route " } else { "Routes " }), wait(routes)),
        moving if deleting == 0 => format!("{} left to move", are(moving, "")),
        moving => format!("{} left to move; {} {}", are(moving, ""), are(deleting, "more "), wait(deleting)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world;
    use crate::world::observations::HealthFindings;
    use std::sync::Arc;

    fn platform() -> Settings {
        Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]).expect("good settings")
    }

    fn view(spec: Value, status: Value) -> RouterInfo {
        let object = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": "shard1", "generation": 2}, "spec": spec, "status": status,
        });
        let settings = world::Settings::of(Arc::new(platform()));
        RouterInfo::new(&serde_json::from_value(object).expect("a Router"), &settings)
    }

    #[test]
    fn faults_of_fields_are_listed_with_their_paths() {
        let address = json!([{"ip": "192.0.2.1"}]);
        for (spec, reason, found) in [
            (json!({"addresses": address}), "Accepted", "all fields are used"),
            (json!({"addresses": address, "records": ["@ A nonsense"]}), "InvalidFields", "spec.records[0]: "),
            (json!({"addresses": [{"ip": "192.0.2.256"}]}), "InvalidFields", "spec.addresses[0].ip: "),
            (json!({"dns": "a..b"}), "InvalidFields", "spec.dns: "),
        ] {
            let accepted = accepted(&view(spec.clone(), json!({})), &Load::default(), &platform());
            assert_eq!((accepted.is_true(), accepted.reason), (reason == "Accepted", reason), "{spec}");
            assert!(accepted.message.starts_with(found), "{spec}: {}", accepted.message);
        }
        // The zone of another Router has the record; an API without Signpost's hooks takes it.
        let spec = json!({"addresses": address, "records": ["x.eu TXT lost", "b TXT kept"]});
        let inner_zones = ["eu.shard1.v3.example".parse().expect("a name")].into();
        let accepted = accepted(&view(spec, json!({})), &Load { inner_zones, ..Load::default() }, &platform());
        assert_eq!(accepted.reason, "InvalidFields");
        let found = "spec.records[0]: x.eu.shard1.v3.example. is in eu.shard1.v3.example., the zone of another Router";
        assert!(accepted.message.starts_with(found), "{}", accepted.message);
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
            let ready = ready(&view(spec.clone(), json!({})), &Load::default(), &platform(), None);
            assert_eq!((ready.is_true(), ready.reason), (is_true, reason), "{spec}");
        }
    }

    #[test]
    fn one_without_room_or_delegation_says_so() {
        let address = json!([{"ip": "192.0.2.1"}]);
        for (spec, routes, reason, message) in [
            (
                json!({"addresses": address, "capacity": {"hard": 2}}),
                1,
                "Ready",
                "the Router accepts and serves Routes",
            ),
            (
                json!({"addresses": address, "capacity": {"hard": 2}}),
                2,
                "Full",
                "the Router serves its Routes and is full (2 of 2)",
            ),
            (
                json!({"addresses": address, "capacity": {"hard": 2}, "state": "cordoned"}),
                2,
                "Cordoned",
                "the Router serves its Routes and accepts no new ones",
            ),
            (
                json!({"addresses": address, "dns": "shards.other.example"}),
                0,
                "Ready",
                "the Router accepts and serves Routes; the platform's own zone does not delegate shards.other.example: \
                 delegate it in the zone above",
            ),
            (json!({"addresses": address, "dns": "a.v3.example"}), 0, "Ready", "the Router accepts and serves Routes"),
        ] {
            let load = Load { routes, ..Load::default() };
            let ready = ready(&view(spec.clone(), json!({})), &load, &platform(), None);
            assert_eq!((ready.is_true(), ready.reason, ready.message.as_str()), (true, reason, message), "{spec}");
        }
    }

    #[test]
    fn records_at_former_names_are_reported() {
        let spec = json!({"dns": "shard1.v3.example", "addresses": [{"ip": "192.0.2.1"}],
            "records": ["Shop-Web A 192.0.2.9", "_acme.api TXT x", "@ TXT x", "*.deep TXT x"]});
        let routers = view(spec, json!({}));
        for (label, has) in [("shop-web", true), ("SHOP-WEB", true), ("api", false), ("deep", false), ("web", false)] {
            assert_eq!(routers.has_records_at(label), has, "{label}");
        }
        assert!(accepted(&routers, &Load::default(), &platform()).is_true());
        let load = |is_name_taken| Load { is_former_name_blocked: true, is_name_taken, ..Load::default() };
        let found = accepted(&routers, &load(false), &platform());
        assert_eq!((found.is_true(), found.reason), (false, "FormerNameBlocked"));
        // The fault of a route that lost its name comes first.
        let found = accepted(&routers, &load(true), &platform());
        assert_eq!((found.is_true(), found.reason), (false, "NameTaken"));
        assert!(found.message.contains("; spec.records: former names"), "{}", found.message);
        assert!(routers.target.taken.iter().eq([&"shop-web".into()]), "{:?}", routers.target.taken);
        // With other faults, both are found.
        let routers = view(json!({"records": ["x A 300.1.1.1"]}), json!({}));
        let found = accepted(&routers, &load(false), &platform());
        assert_eq!(found.reason, "InvalidFields");
        assert!(found.message.contains("spec.records[0]: ") && found.message.contains("former names"), "{found:?}");
    }

    #[test]
    fn readiness_heeds_a_zone_that_is_not_served() {
        for (status, found) in [("True", false), ("False", true)] {
            let conditions = json!([{"type": "ZonePublished", "status": status, "reason": "OldSerial", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            let view = view(json!({"addresses": [{"ip": "192.0.2.1"}]}), json!({"conditions": conditions}));
            let ready = ready(&view, &Load::default(), &platform(), None);
            assert!(ready.is_true() && ready.reason == "Ready");
            assert_eq!(ready.message.contains("not all name servers serve its zone"), found, "{}", ready.message);
        }
    }

    #[test]
    fn a_status_that_says_it_all_is_not_written() {
        let condition = |message: &str| {
            json!([{
                "type": "Ready", "status": "True", "reason": "Ready", "message": message,
                "lastTransitionTime": "2025-01-01T00:00:00Z", "observedGeneration": 2,
            }, {
                "type": "Accepted", "status": "True", "reason": "Accepted", "message": "all fields are used",
                "lastTransitionTime": "2025-01-01T00:00:00Z", "observedGeneration": 2,
            }])
        };
        let good = condition("the Router accepts and serves Routes");
        for (status, is_stale) in [
            (json!({}), true),
            (json!({"routes": 3, "observedGeneration": 2, "conditions": good}), false),
            (json!({"routes": 4, "observedGeneration": 2, "conditions": good}), true),
            (json!({"routes": 3, "observedGeneration": 1, "conditions": good}), true),
            (json!({"routes": 3, "observedGeneration": 2, "conditions": condition("other")}), true),
        ] {
            let view = view(json!({"addresses": [{"ip": "192.0.2.1"}]}), status.clone());
            let load = Load { routes: 3, ..Load::default() };
            let change = router(&view, &load, &RouterFindings::default(), &platform(), Timestamp::now());
            assert_eq!(change.is_some(), is_stale, "{status}");
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
            let says_drained = status != json!({});
            let view = view(json!({"state": state}), status);
            let load = Load { routes, former_names, former_names_until, ..Load::default() };
            let found = drained(&view, &load, says_drained);
            assert_eq!(found.map(|found| (found.is_true(), found.reason)), expected, "{state} {load:?}");
        }
        // A RouteBinding that the deletion hold keeps may be on this Router.
        let draining = view(json!({"state": "draining"}), json!({}));
        let held = drained(&draining, &Load { held: 98, ..Load::default() }, false).expect("it is draining");
        assert_eq!((held.is_true(), held.reason), (false, "DeletionHeld"));
        assert!(held.message.contains("98 RouteBindings"), "{}", held.message);
        for (routes, deleting, message) in [
            (1, 0, "1 is left to move"),
            (3, 0, "3 are left to move"),
            (3, 1, "2 are left to move; 1 more is being deleted, when its finalizers are removed"),
            (3, 2, "1 is left to move; 2 more are being deleted, when their finalizers are removed"),
            (1, 1, "1 Route is left, and being deleted, when its finalizers are removed"),
            (2, 2, "2 Routes are left, and being deleted, when their finalizers are removed"),
        ] {
            let view = view(json!({"state": "draining"}), json!({}));
            let load = Load { routes, deleting, ..Load::default() };
            assert_eq!(drained(&view, &load, false).map(|drained| drained.message).as_deref(), Some(message));
        }
    }

    #[test]
    fn a_condition_of_health_that_is_not_what_follows_is_written_again() {
        let address = json!({"ip": "192.0.2.1", "health": "healthy", "since": "2026-01-01T00:00:00Z"});
        for (message, is_stale) in
            [(Some("1 of 1 active addresses are healthy"), false), (Some("all is lost"), true), (None, true)]
        {
            let condition = |kind: &str, reason: &str, message: &str| {
                json!({"type": kind, "status": "True", "reason": reason, "message": message, "observedGeneration": 2,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"})
            };
            let mut conditions = vec![
                condition("Ready", "Ready", "the Router accepts and serves Routes"),
                condition("Accepted", "Accepted", "all fields are used"),
            ];
            conditions.extend(message.map(|message| condition("AddressesHealthy", "AllHealthy", message)));
            let status = json!({"panicThreshold": 50, "addresses": [address], "conditions": conditions,
                "observedGeneration": 2, "routes": 0});
            let view = view(json!({"addresses": [{"ip": "192.0.2.1"}], "healthCheck": {"port": 80}}), status);
            let mut health = HealthFindings::of_status(view.object.status.as_ref());
            // The API stores no fractions of a second.
            health.addresses[0].since.0 += jiff::SignedDuration::from_millis(500);
            let findings = RouterFindings { health: Some(health), ..RouterFindings::default() };
            let change = router(&view, &Load::default(), &findings, &platform(), Timestamp::now());
            assert_eq!(change.is_some(), is_stale, "{message:?} {change:?}");
        }
    }
}
