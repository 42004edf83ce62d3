//! The health in a Router's status: the verdicts, the condition `AddressesHealthy`, and an event for each change. Pure.

use std::net::IpAddr;

use jiff::Timestamp;

use super::update;
use crate::compiler::inputs::RouterInput;
use crate::world::condition::{ConditionUpdate, state};
use crate::world::observations::HealthFindings;
use signpost_types::text::listed;
use signpost_types::v1alpha1::router::{ADDRESSES_HEALTHY, AddressHealthState, Router, RouterStatus};

/// The reason of the condition while too few addresses are healthy.
const PANIC: &str = "Panic";
/// The maximum number of addresses that a condition names.
const NAMED_MAX: usize = 5;
/// The maximum number of events of one write.
const EVENTS_MAX: usize = 8;

/// An event about a Router.
#[derive(Debug, PartialEq)]
pub struct Notice {
    /// Whether something is wrong.
    pub is_warning: bool,
    /// The reason, as a single word.
    pub reason: &'static str,
    /// The description, in a sentence.
    pub note: String,
}

/// Returns a Router's new status with these findings, and the events of the change.
pub fn apply(router: &Router, findings: &HealthFindings, domain: &str, now: Timestamp) -> (RouterStatus, Vec<Notice>) {
    let before = router.status.clone().unwrap_or_default();
    let mut status = before.clone();
    // Without a health check, earlier findings are irrelevant.
    let is_checked = router.spec.health_check.is_some();
    status.addresses = if is_checked { findings.addresses.clone() } else { Vec::new() };
    status.panic_threshold = findings.threshold.filter(|_| is_checked);
    let was_panic = is_panic(&before);
    let mut after = router.clone();
    // The condition is about probes; `InstancesReady` reports instances.
    after.status = Some(RouterStatus { instances: Vec::new(), ..status.clone() });
    let input = RouterInput::read(&after, domain, &mut Vec::new());
    let choice = input.as_ref().filter(|_| is_checked).map(RouterInput::choice).filter(|choice| choice.panic);
    let panic = choice.is_some();
    // The unhealthy addresses that are still in answers; in a mode with one priority at a time, they can be a subset.
    let answered = choice.map(|choice| answered(router, choice.addresses.iter().map(|address| address.ip)));
    if is_checked {
        let statement = statement(&after, answered.as_deref());
        state(&mut status.conditions, &statement, router.metadata.generation, now);
    } else {
        status.conditions.retain(|condition| condition.type_ != ADDRESSES_HEALTHY);
    }
    let mut notices = changes(&before, &status);
    if panic != was_panic {
        let (reason, note) = match panic {
            true => {
                let answered = answered.as_deref().unwrap_or_default();
                ("PanicBegun", format!("too few addresses are healthy; answers contain {answered}"))
            }
            false => ("PanicEnded", "enough addresses are healthy again; answers contain only these".to_owned()),
        };
        notices.push(Notice { is_warning: panic, reason, note });
    }
    notices.truncate(EVENTS_MAX);
    (status, notices)
}

/// Returns whether a status reports that too few addresses are healthy.
pub fn is_panic(status: &RouterStatus) -> bool {
    status.conditions.iter().any(|one| one.type_ == ADDRESSES_HEALTHY && one.reason == PANIC)
}

/// Returns the text about the addresses in answers in panic mode, up to the verb.
fn answered(router: &Router, addresses: impl Iterator<Item = IpAddr>) -> String {
    let active = router.addresses().iter().filter(|address| address.state == Default::default()).count();
    let answered: Vec<String> = addresses.map(|ip| ip.to_string()).collect();
    if answered.len() == active {
        return "all active addresses".to_owned();
    }
    format!("those of one priority ({})", listed(&answered, NAMED_MAX))
}

fn statement(router: &Router, answered: Option<&str>) -> ConditionUpdate {
    let status = router.status.as_ref();
    let health = |ip: &str| {
        let ip = ip.parse::<IpAddr>().ok();
        status?.addresses.iter().find(|found| found.ip.parse::<IpAddr>().ok() == ip)
    };
    let active: Vec<_> = router.addresses().iter().filter(|address| address.state == Default::default()).collect();
    let in_state =
        |wanted| active.iter().filter_map(|address| health(&address.ip)).filter(move |found| found.health == wanted);
    let healthy = in_state(AddressHealthState::Healthy).count();
    let unhealthy: Vec<String> = in_state(AddressHealthState::Unhealthy)
        .map(|found| format!("{} ({})", found.ip, found.error.as_deref().unwrap_or("no reason recorded")))
        .collect();
    let mut message = format!("{healthy} of {} active addresses are healthy", active.len());
    if !unhealthy.is_empty() {
        message += &format!("; unhealthy: {}", listed(&unhealthy, NAMED_MAX));
    }
    if active.is_empty() {
        message = "no address is active".to_owned();
    }
    let (is_true, reason) = if active.is_empty() {
        (false, "NoActiveAddress")
    } else if let Some(answered) = answered {
        message.push_str(&format!("; too few are, so answers contain {answered}, healthy or not"));
        (false, PANIC)
    } else if !unhealthy.is_empty() {
        (false, "SomeUnhealthy")
    } else if healthy < active.len() {
        (false, "NoVerdictYet")
    } else {
        (true, "AllHealthy")
    };
    update(ADDRESSES_HEALTHY, is_true, reason, message)
}

/// Returns the changes of addresses that had a verdict.
fn changes(before: &RouterStatus, after: &RouterStatus) -> Vec<Notice> {
    let was = |ip: &str| before.addresses.iter().find(|found| found.ip == ip).map(|found| found.health);
    let mut notices = Vec::new();
    for found in &after.addresses {
        match (was(&found.ip), found.health) {
            (Some(AddressHealthState::Healthy) | None, AddressHealthState::Unhealthy) => notices.push(Notice {
                is_warning: true,
                reason: "AddressUnhealthy",
                note: format!("{}: {}", found.ip, found.error.as_deref().unwrap_or("no reason recorded")),
            }),
            (Some(AddressHealthState::Unhealthy), AddressHealthState::Healthy) => notices.push(Notice {
                is_warning: false,
                reason: "AddressHealthy",
                note: format!("{} is healthy again", found.ip),
            }),
            _ => {}
        }
    }
    notices
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::{Value, json};
    use signpost_types::v1alpha1::router::AddressHealth;

    fn found(ip: &str, health: AddressHealthState) -> AddressHealth {
        let error = (health == AddressHealthState::Unhealthy).then(|| "refused".to_owned());
        AddressHealth { ip: ip.to_owned(), health, since: Time(Timestamp::UNIX_EPOCH), error }
    }

    fn router(check: Value, status: Value) -> Router {
        serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "s", "generation": 3},
            "spec": {"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}, {"ip": "192.0.2.3"},
                                   {"ip": "192.0.2.4", "state": "drained"}], "healthCheck": check},
            "status": status,
        }))
        .expect("a Router")
    }

    #[test]
    fn under_panic_the_answered_addresses_are_named() {
        use AddressHealthState::Unhealthy;
        for (mode, part) in [
            ("active-active", "answers contain all active addresses"),
            ("active-passive", "answers contain those of one priority (192.0.2.1, 192.0.2.2)"),
        ] {
            let mut router = serde_json::to_value(router(json!({"port": 80}), json!({}))).expect("JSON");
            router["spec"]["mode"] = json!(mode);
            router["spec"]["addresses"][2]["priority"] = json!(1);
            let router = serde_json::from_value(router).expect("a Router");
            let addresses = (1..=3).map(|at| found(&format!("192.0.2.{at}"), Unhealthy)).collect();
            let findings = HealthFindings { addresses, threshold: Some(50) };
            let written = apply(&router, &findings, "v3.example", Timestamp::UNIX_EPOCH);
            let condition = written.0.conditions.iter().find(|one| one.type_ == ADDRESSES_HEALTHY);
            let condition = condition.expect("it is there");
            assert!(condition.reason == PANIC && condition.message.contains(part), "{}", condition.message);
            let notice = written.1.iter().find(|notice| notice.reason == "PanicBegun").expect("an event reports it");
            assert!(notice.note.contains(part), "{}", notice.note);
        }
    }

    #[test]
    fn without_an_active_address_none_is_said_to_be_healthy() {
        let mut router = router(json!({"port": 80}), Value::Null);
        router.spec.addresses.clear();
        let said = statement(&router, None);
        assert_eq!((said.is_true(), said.reason), (false, "NoActiveAddress"));
        assert!(!said.message.contains("0 of 0"), "{}", said.message);
    }

    #[test]
    fn the_condition_and_the_events() {
        use AddressHealthState::{Healthy, Unhealthy, Unknown};
        let check = json!({"port": 80});
        let mut status = json!({"routes": 7, "conditions": [{"type": "Ready", "status": "True", "reason": "Ready",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        for (healths, threshold, reason, notices) in [
            (vec![], 50, "NoVerdictYet", vec![]),
            (vec![Healthy, Healthy, Unknown], 50, "NoVerdictYet", vec![]),
            (vec![Healthy, Healthy, Healthy, Unhealthy], 50, "AllHealthy", vec!["AddressUnhealthy"]),
            (vec![Healthy, Unhealthy, Healthy, Unhealthy], 50, "SomeUnhealthy", vec!["AddressUnhealthy"]),
            (
                vec![Healthy, Unhealthy, Unhealthy, Healthy],
                50,
                "Panic",
                vec!["AddressUnhealthy", "AddressHealthy", "PanicBegun"],
            ),
            (vec![Healthy, Unhealthy, Unhealthy, Healthy], 20, "SomeUnhealthy", vec!["PanicEnded"]),
            (vec![Healthy, Healthy, Healthy, Healthy], 20, "AllHealthy", vec!["AddressHealthy", "AddressHealthy"]),
        ] {
            let addresses =
                healths.iter().enumerate().map(|(at, health)| found(&format!("192.0.2.{}", at + 1), *health));
            let findings = HealthFindings { addresses: addresses.collect(), threshold: Some(threshold) };
            let router = router(check.clone(), status.clone());
            let written = apply(&router, &findings, "v3.example", Timestamp::UNIX_EPOCH);
            let condition = written.0.conditions.iter().find(|one| one.type_ == ADDRESSES_HEALTHY);
            let condition = condition.expect("it is there");
            assert_eq!((condition.reason.as_str(), condition.status == "True"), (reason, reason == "AllHealthy"));
            assert_eq!(is_panic(&written.0), reason == "Panic");
            let reasons: Vec<&str> = written.1.iter().map(|notice| notice.reason).collect();
            assert_eq!(reasons, notices, "{healths:?}");
            assert_eq!((written.0.routes, written.0.conditions.len()), (Some(7), 2), "others' are kept");
            assert_eq!(HealthFindings::of_status(Some(&written.0)), findings);
            status = serde_json::to_value(written.0).expect("JSON");
        }
        // Without a check all of it goes.
        let router = router(Value::Null, status);
        let written = apply(&router, &HealthFindings::default(), "v3.example", Timestamp::UNIX_EPOCH);
        assert_eq!(HealthFindings::of_status(Some(&written.0)), HealthFindings::default());
        assert_eq!(written.0.conditions.len(), 1);
    }
}
