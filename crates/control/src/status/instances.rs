//! The instances in a Router's status, and the addresses that they provide. Pure.
//!
//! If the addresses are those of the spec, the status also remembers instances whose Leases no longer exist: an address where an
//! instance has reported stays out of answers until one reports there again, or the spec drops the address. The name servers read
//! this from the status (`compiler/inputs.rs`).

use std::net::IpAddr;

use crate::compiler::inputs::RouterInput;
use crate::world::condition::ConditionUpdate;
use crate::world::observations::{InstanceFindings, ServiceFindings};
use signpost_types::text::listed;
use signpost_types::v1alpha1::router::{Address, INSTANCES_READY, Instance, InstanceState, Router, RouterStatus};

/// The most instances that a status lists.
const INSTANCES_MAX: usize = 128;
/// The maximum number of addresses in use.
const ADDRESSES_MAX: usize = 128;
/// The maximum number of instances that a condition names.
const NAMED_MAX: usize = 5;

/// Returns whether enough of `all` instances serve to omit the dead ones from answers; `panic_percent` is the panic threshold.
pub fn is_enough(serving: usize, all: usize, panic_percent: u32) -> bool {
    serving > 0 && serving * 100 >= all * panic_percent as usize
}

/// Writes the findings into a status, and returns the update of its condition `InstancesReady`: none for a Router without actual
/// or desired instances. `error` is the reason why an instance that the platform runs does not start.
pub fn apply(
    router: &Router,
    findings: &InstanceFindings,
    error: Option<&str>,
    status: &mut RouterStatus,
) -> Option<ConditionUpdate> {
    status.instances = remembered(router, findings, std::mem::take(&mut status.instances));
    let from = router.addresses_from();
    let is_from_instances = from.is_some_and(|from| from.instances);
    if from.is_none() {
        status.current_addresses = Vec::new();
    } else if is_from_instances {
        status.current_addresses = with_spec(router, answered(findings));
    }
    let is_listed = status.instances.iter().any(|instance| is_listed(router, instance));
    if router.spec.health_check.is_none() {
        status.panic_threshold = is_listed.then_some(findings.panic_percent);
    } else if is_listed {
        status.panic_threshold.get_or_insert(findings.panic_percent);
    }
    let (wanted, is_reported) = (router.instances_wanted(), !status.instances.is_empty() || is_from_instances);
    let says_so = status.conditions.iter().any(|condition| condition.type_ == INSTANCES_READY);
    if wanted.is_none() && !is_reported && !says_so {
        status.ready_instances = None;
        return None;
    }
    let ready = serving(&status.instances).count();
    status.ready_instances = Some(u32::try_from(ready).unwrap_or(u32::MAX));
    let is_panic = is_listed && answers_dead(router, status);
    Some(statement(wanted.map(|wanted| wanted as usize), ready, &status.instances, is_panic, error))
}

/// Returns whether the address of an instance is in answers because the spec lists it.
fn is_listed(router: &Router, instance: &Instance) -> bool {
    let ip = |text: &str| text.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let own = ip(&instance.ip);
    let is_own = || own.is_some() && router.spec.addresses.iter().any(|address| ip(&address.ip) == own);
    router.addresses_from().is_none() && is_own()
}

/// Returns the instances with a Lease, and those of the status before, now dead, at listed addresses where none has a Lease.
pub fn remembered(router: &Router, findings: &InstanceFindings, before: Vec<Instance>) -> Vec<Instance> {
    let mut instances = findings.instances.clone();
    instances.truncate(INSTANCES_MAX);
    let is_gone = |known: &Instance| {
        is_listed(router, known)
            && !findings.instances.iter().any(|other| other.name == known.name || other.ip == known.ip)
    };
    let room = INSTANCES_MAX - instances.len();
    let gone = before.into_iter().filter(is_gone).take(room);
    instances.extend(gone.map(|known| Instance { state: InstanceState::Expired, faults: 0, endpoints: None, ..known }));
    instances.sort_by(|one, other| one.name.cmp(&other.name));
    instances
}

/// Returns whether answers contain addresses of dead instances, because too few others serve.
fn answers_dead(router: &Router, status: &RouterStatus) -> bool {
    let mut router = router.clone();
    router.status = Some(status.clone());
    // The zone's name does not matter.
    let input = RouterInput::read(&router, "", &mut Vec::new());
    let is_dead = |ip: IpAddr| router.listed_instance(ip) == Some(InstanceState::Expired);
    input.is_some_and(|input| input.answering().any(|address| is_dead(address.ip)))
}

fn serving(instances: &[Instance]) -> impl Iterator<Item = &Instance> {
    instances.iter().filter(|instance| instance.state == InstanceState::Serving)
}

/// Writes the addresses of the Services that a Router selects into its status.
pub fn apply_services(router: &Router, found: &ServiceFindings, status: &mut RouterStatus) {
    let is_selecting = router.addresses_from().is_some_and(|from| from.service_selector.is_some());
    if let Some(mut addresses) = found.addresses.clone().filter(|_| is_selecting) {
        if found.is_partial {
            addresses.extend(status.current_addresses.iter().filter_map(|address| address.ip.parse::<IpAddr>().ok()));
        }
        status.current_addresses = with_spec(router, addresses);
    }
}

/// Returns the addresses of the serving instances, and of dead ones if too few serve.
fn answered(findings: &InstanceFindings) -> Vec<IpAddr> {
    let staying = || findings.instances.iter().filter(|instance| instance.state != InstanceState::Leaving);
    let is_enough = is_enough(serving(&findings.instances).count(), staying().count(), findings.panic_percent);
    let answered = staying().filter(|instance| !is_enough || instance.state == InstanceState::Serving);
    answered.filter_map(|instance| instance.ip.parse().ok()).collect()
}

/// Returns addresses for a status. Addresses that are also in `spec.addresses` get its weight, state, and priority.
fn with_spec(router: &Router, mut ips: Vec<IpAddr>) -> Vec<Address> {
    ips.sort_unstable();
    ips.dedup();
    ips.truncate(ADDRESSES_MAX);
    let of = |ip: &IpAddr| {
        let said = router.spec.addresses.iter().find(|address| address.ip.parse() == Ok(*ip));
        said.cloned().unwrap_or_else(|| Address::new(*ip))
    };
    ips.iter().map(of).collect()
}

fn statement(
    wanted: Option<usize>,
    ready: usize,
    instances: &[Instance],
    is_panic: bool,
    error: Option<&str>,
) -> ConditionUpdate {
    let mut message = match (wanted, ready) {
        (Some(wanted), _) => format!("{ready} of {wanted} instances serve"),
        (None, 1) => "1 instance serves".to_owned(),
        (None, _) => format!("{ready} instances serve"),
    };
    let mut add = |what: &str, of: &[String], then: &str| {
        if !of.is_empty() {
            message += &format!("; {what}: {}{then}", listed(of, NAMED_MAX));
        }
    };
    let place = |instance: &Instance| format!("{} (Lease {})", instance.ip, instance.name);
    let in_state = |state| instances.iter().filter(move |instance| instance.state == state).map(place);
    let dead: Vec<String> = in_state(InstanceState::Expired).collect();
    let panic = if is_panic { "; too few addresses serve, so answers contain dead ones" } else { "" };
    add("dead (Lease not renewed)", &dead, panic);
    add("leaving", &in_state(InstanceState::Leaving).collect::<Vec<_>>(), "");
    let at_fault = serving(instances).filter(|instance| instance.faults > 0);
    let at_fault: Vec<String> = at_fault.map(|instance| format!("{} ({})", instance.ip, instance.faults)).collect();
    add("with Routes that are not served or served only in part (see the log of the agent)", &at_fault, "");
    if let Some(error) = error {
        message += "; ";
        message += error;
    }
    let (is_true, reason) = match wanted {
        Some(wanted) if ready >= wanted && error.is_none() => (true, "InstancesServe"),
        // The serving instances may differ from the desired ones.
        Some(wanted) if ready >= wanted => (false, "ChangeFailed"),
        None if ready > 0 && dead.is_empty() => (true, "InstancesServe"),
        _ if ready == 0 => (false, "NoInstance"),
        _ => (false, "TooFewInstances"),
    };
    ConditionUpdate { kind: INSTANCES_READY, status: is_true.into(), reason, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn router(spec: Value) -> Router {
        serde_json::from_value(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"}, "spec": spec,
        }))
        .expect("a Router")
    }

    /// Instances by the last octet of their address and the first letter of their state.
    fn findings(words: &str) -> InstanceFindings {
        let instance = |word: &str| {
            let (octet, letter) = word.split_at(1);
            let state = match letter {
                "s" => InstanceState::Serving,
                "l" => InstanceState::Leaving,
                _ => InstanceState::Expired,
            };
            Instance {
                name: format!("router-shard1.192-0-2-{octet}-80"),
                ip: format!("192.0.2.{octet}"),
                http_port: 80,
                https_port: 443,
                state,
                proxy: "haproxy".to_owned(),
                version: String::new(),
                faults: 0,
                endpoints: None,
            }
        };
        InstanceFindings { instances: words.split_whitespace().map(instance).collect(), panic_percent: 50 }
    }

    #[test]
    fn which_addresses_are_answered() {
        for (words, answered) in [
            ("", ""),
            ("1s 2s", "1 2"),
            ("1s 2e", "1"),
            ("1s 2l", "1"),
            // Too few instances serve for the dead ones to be omitted.
            ("1s 2e 3e", "1 2 3"),
            ("1e 2e", "1 2"),
            ("1e 2l", "1"),
            ("1l", ""),
        ] {
            let mut status = RouterStatus::default();
            apply(&router(json!({"type": "haproxy"})), &findings(words), None, &mut status);
            let ips: Vec<_> = status.current_addresses.iter().map(|address| address.ip.clone()).collect();
            let expected: Vec<_> = answered.split_whitespace().map(|octet| format!("192.0.2.{octet}")).collect();
            assert_eq!(ips, expected, "{words}");
        }
    }

    #[test]
    fn addresses_keep_what_the_spec_says_of_them() {
        let spec = json!({
            "addressesFrom": {"instances": true}, "addresses": [{"ip": "192.0.2.1", "weight": 3}, {"ip": "192.0.2.9"}],
        });
        let mut status = RouterStatus::default();
        apply(&router(spec), &findings("1s 2s"), None, &mut status);
        let weights: Vec<_> = status.current_addresses.iter().map(|address| address.weight).collect();
        assert_eq!(weights, [3, 1]);
        // Without `addressesFrom` those of the spec are answered.
        apply(&router(json!({"addresses": [{"ip": "192.0.2.1"}]})), &findings("1s"), None, &mut status);
        assert_eq!((status.current_addresses.len(), status.ready_instances), (0, Some(1)));
    }

    #[test]
    fn addresses_of_services_stay_while_they_are_unknown() {
        let mut status = RouterStatus::default();
        let from =
            json!({"addressesFrom": {"namespace": "edge", "serviceSelector": {"matchLabels": {"tier": "edge"}}}});
        for (spec, found, is_partial, expected) in [
            (&from, Some(vec!["192.0.2.1"]), false, vec!["192.0.2.1"]),
            (&from, None, false, vec!["192.0.2.1"]),
            // A host name is not resolved yet.
            (&from, Some(vec!["192.0.2.2"]), true, vec!["192.0.2.1", "192.0.2.2"]),
            (&from, Some(vec![]), true, vec!["192.0.2.1", "192.0.2.2"]),
            (&from, Some(vec![]), false, vec![]),
            // Another source.
            (&json!({"type": "haproxy"}), Some(vec!["192.0.2.1"]), false, vec![]),
        ] {
            let addresses = found.map(|found| found.iter().map(|ip| ip.parse().expect("an address")).collect());
            apply_services(&router(spec.clone()), &ServiceFindings { addresses, is_partial, fault: None }, &mut status);
            let ips: Vec<_> = status.current_addresses.iter().map(|address| address.ip.as_str()).collect();
            assert_eq!(ips, expected, "{spec}");
        }
    }

    /// Each line is a step: the listed addresses, the findings, the instances in the status after it, and the addresses in answers.
    #[test]
    fn an_address_of_the_spec_whose_instance_is_gone_stays_out() {
        let listed = |octets: &str| {
            let addresses = octets.split_whitespace().map(|octet| json!({"ip": format!("192.0.2.{octet}")}));
            json!({"addresses": addresses.collect::<Vec<_>>()})
        };
        let mut status = RouterStatus::default();
        for (spec, words, remembered, answers, ready) in [
            ("1 2 3", "", "", "1 2 3", None),
            // Where none has reported, another proxy may serve.
            ("1 2 3", "1s", "1s", "1 2 3", Some(1)),
            ("1 2 3", "1s 2s", "1s 2s", "1 2 3", Some(2)),
            ("1 2 3", "1s 2e", "1s 2e", "1 3", Some(1)),
            // Its Lease is deleted, and then it reports again.
            ("1 2 3", "1s", "1s 2e", "1 3", Some(1)),
            ("1 2 3", "1s 2s", "1s 2s", "1 2 3", Some(2)),
            // It stops in order.
            ("1 2 3", "1s 2l", "1s 2l", "1 3", Some(1)),
            ("1 2 3", "1s", "1s 2e", "1 3", Some(1)),
            // The panic threshold: too few are left.
            ("1 2 3", "1e", "1e 2e", "1 2 3", Some(0)),
            // The spec drops the address, and lists it again.
            ("1 3", "1s", "1s", "1 3", Some(1)),
            ("1 2 3", "1s", "1s", "1 2 3", Some(1)),
            // A stop of all but one does not depend on the threshold; the last one serves until it stops.
            ("1 2 3", "1l 2l 3s", "1l 2l 3s", "3", Some(1)),
            ("1 2 3", "1l 2l 3l", "1l 2l 3l", "1 2 3", Some(0)),
            ("1 2", "1l 2e", "1l 2e", "1", Some(0)),
            ("1 2", "", "1e 2e", "1 2", Some(0)),
        ] {
            let mut router = router(listed(spec));
            router.status = Some(status.clone());
            let said = apply(&router, &findings(words), None, &mut status);
            let letter = |instance: &Instance| match instance.state {
                InstanceState::Serving => 's',
                InstanceState::Leaving => 'l',
                InstanceState::Expired => 'e',
            };
            let octet = |ip: &str| ip.rsplit('.').next().expect("an address").to_owned();
            let found = status.instances.iter().map(|instance| format!("{}{}", octet(&instance.ip), letter(instance)));
            assert_eq!(found.collect::<Vec<_>>().join(" "), remembered, "{spec}: {words}");
            assert_eq!(status.ready_instances, ready, "{spec}: {words}");
            router.status = Some(status.clone());
            let input = RouterInput::read(&router, "v3.example", &mut Vec::new()).expect("a zone");
            let found: Vec<String> = input.answering().map(|address| octet(&address.ip.to_string())).collect();
            assert_eq!(found.join(" "), answers, "{spec}: {words}");
            let is_panic = said.is_some_and(|said| said.message.contains("answers contain dead ones"));
            let is_dead = |octet: &String| remembered.contains(&format!("{octet}e"));
            assert_eq!(is_panic, found.iter().any(is_dead), "{spec}: {words}");
        }
    }

    #[test]
    fn the_spec_and_probes_keep_their_meaning_for_addresses_with_instances() {
        let address = |octet: u8, more: Value| {
            let mut address = json!({"ip": format!("192.0.2.{octet}")});
            json_patch::merge(&mut address, &more);
            address
        };
        let healthy =
            |octet: u8| json!({"ip": format!("192.0.2.{octet}"), "health": "healthy", "since": "2026-01-01T00:00:00Z"});
        let probed = json!({"addresses": [healthy(1), healthy(2)], "panicThreshold": 50});
        let (check, none) = (json!({"port": 80}), Value::Null);
        for (addresses, mode, check, status, words, answers) in [
            // A drained address does not count, with or without an instance.
            (
                [address(1, json!({})), address(2, json!({"state": "drained"}))],
                "active-active",
                &none,
                json!({}),
                "1s 2s",
                "1",
            ),
            (
                [address(1, json!({})), address(2, json!({"state": "drained"}))],
                "active-active",
                &none,
                json!({}),
                "1e 2s",
                "1",
            ),
            (
                [address(1, json!({})), address(2, json!({"priority": 1}))],
                "active-passive",
                &none,
                json!({}),
                "1s 2s",
                "1",
            ),
            (
                [address(1, json!({})), address(2, json!({"priority": 1}))],
                "active-passive",
                &none,
                json!({}),
                "1e 2s",
                "2",
            ),
            (
                [address(1, json!({})), address(2, json!({"priority": 1}))],
                "active-passive",
                &none,
                json!({}),
                "1l 2s",
                "2",
            ),
            // Probes reach a proxy that outlives its agent.
            ([address(1, json!({})), address(2, json!({}))], "active-active", &check, probed.clone(), "1s 2e", "1"),
            ([address(1, json!({})), address(2, json!({}))], "active-active", &check, probed.clone(), "1s 2s", "1 2"),
        ] {
            let spec = json!({"addresses": addresses, "mode": mode, "healthCheck": check});
            let mut router = router(spec);
            let mut status: RouterStatus = serde_json::from_value(status).expect("a status");
            router.status = Some(status.clone());
            apply(&router, &findings(words), None, &mut status);
            router.status = Some(status);
            let input = RouterInput::read(&router, "v3.example", &mut Vec::new()).expect("a zone");
            let found: Vec<String> = input.answering().map(|address| address.ip.to_string()).collect();
            let expected: Vec<String> = answers.split_whitespace().map(|octet| format!("192.0.2.{octet}")).collect();
            assert_eq!(found, expected, "{mode} {words}");
        }
    }

    #[test]
    fn the_condition() {
        let managed = json!({"type": "haproxy", "instances": 2});
        for (spec, words, expected) in [
            (json!({}), "", None),
            (json!({}), "1s", Some("InstancesServe: 1 instance serves")),
            (json!({"instances": 0}), "", Some("InstancesServe: 0 of 0 instances serve")),
            (json!({"type": "nginx"}), "", Some("NoInstance: 0 of 1 instances serve")),
            (managed.clone(), "1s 2s", Some("InstancesServe: 2 of 2 instances serve")),
            (
                managed.clone(),
                "1s 2e",
                Some(
                    "TooFewInstances: 1 of 2 instances serve; dead (Lease not renewed): 192.0.2.2 (Lease \
                     router-shard1.192-0-2-2-80)",
                ),
            ),
            (
                managed,
                "1l",
                Some("NoInstance: 0 of 2 instances serve; leaving: 192.0.2.1 (Lease router-shard1.192-0-2-1-80)"),
            ),
        ] {
            let said = apply(&router(spec), &findings(words), None, &mut RouterStatus::default());
            let said = said.map(|said| format!("{}: {}", said.reason, said.message));
            assert_eq!(said.as_deref(), expected, "{words}");
        }
        let error = Some("Deployment routers/router-shard1: FailedCreate: exceeded quota");
        let failing = router(json!({"type": "haproxy", "instances": 1}));
        let said = apply(&failing, &findings("1s"), error, &mut RouterStatus::default()).expect("a condition");
        assert_eq!((said.is_true(), said.reason), (false, "ChangeFailed"));
        assert_eq!(
            said.message,
            "1 of 1 instances serve; Deployment routers/router-shard1: FailedCreate: exceeded quota"
        );
    }
}
