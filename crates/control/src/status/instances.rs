//! The instances in a Router's status, and the addresses that they provide. Pure.

use std::net::IpAddr;

use crate::world::condition::ConditionUpdate;
use crate::world::observations::InstanceFindings;
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
    status.instances = findings.instances.clone();
    status.instances.truncate(INSTANCES_MAX);
    let from = router.addresses_from();
    let is_from_instances = from.is_some_and(|from| from.instances);
    if from.is_none() {
        status.current_addresses = Vec::new();
    } else if is_from_instances {
        status.current_addresses = with_spec(router, answered(findings));
    }
    let (wanted, is_reported) = (router.instances_wanted(), !findings.instances.is_empty() || is_from_instances);
    let says_so = status.conditions.iter().any(|condition| condition.type_ == INSTANCES_READY);
    if wanted.is_none() && !is_reported && !says_so {
        status.ready_instances = None;
        return None;
    }
    let ready = serving(&findings.instances).count();
    status.ready_instances = Some(u32::try_from(ready).unwrap_or(u32::MAX));
    Some(statement(wanted.map(|wanted| wanted as usize), ready, &findings.instances, error))
}

fn serving(instances: &[Instance]) -> impl Iterator<Item = &Instance> {
    instances.iter().filter(|instance| instance.state == InstanceState::Serving)
}

/// Writes the addresses of the Services that a Router selects into its status.
pub fn apply_services(router: &Router, ips: &[IpAddr], status: &mut RouterStatus) {
    if router.addresses_from().is_some_and(|from| from.service_selector.is_some()) {
        status.current_addresses = with_spec(router, ips.to_vec());
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

fn statement(wanted: Option<usize>, ready: usize, instances: &[Instance], error: Option<&str>) -> ConditionUpdate {
    let mut message = match (wanted, ready) {
        (Some(wanted), _) => format!("{ready} of {wanted} instances serve"),
        (None, 1) => "1 instance serves".to_owned(),
        (None, _) => format!("{ready} instances serve"),
    };
    let mut add = |what: &str, of: &[String]| {
        if !of.is_empty() {
            message += &format!("; {what}: {}", of[..of.len().min(NAMED_MAX)].join(", "));
            if of.len() > NAMED_MAX {
                message += &format!(" and {} more", of.len() - NAMED_MAX);
            }
        }
    };
    let place = |instance: &Instance| format!("{} (Lease {})", instance.ip, instance.name);
    let in_state = |state| instances.iter().filter(move |instance| instance.state == state).map(place);
    let dead: Vec<String> = in_state(InstanceState::Expired).collect();
    add("dead (Lease not renewed)", &dead);
    add("leaving", &in_state(InstanceState::Leaving).collect::<Vec<_>>());
    let at_fault = serving(instances).filter(|instance| instance.faults > 0);
    let at_fault: Vec<String> = at_fault.map(|instance| format!("{} ({})", instance.ip, instance.faults)).collect();
    add("with Routes that are not served or served only in part (see the log of the agent)", &at_fault);
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
