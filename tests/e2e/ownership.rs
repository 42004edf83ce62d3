//! Proof of control: a host is admitted only when its own name server has the required record.
//!
//! In a network namespace of its own the test has a name server of the host's owner (the program itself, over a zone file),
//! `unbound` as the resolver that finds it, and the platform.

use std::path::Path;

use serde_json::Value;

use signpost_testing::kubectl::Condition;
use signpost_testing::namespace::inside_namespace;
use signpost_testing::peers::unbound;
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, free_address};

const PLATFORM: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: one}\nspec: {addresses: [{ip: 192.0.2.1}]}\n---\n";

fn route(name: &str, host: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: shop}}\n\
         spec: {{host: \"{host}\", to: {{name: web}}}}\n---\n"
    )
}

/// Returns the zone of the host's owner, with this further line, under this serial.
fn zone(serial: u32, line: &str) -> String {
    format!("$TTL 60\n@ SOA ns h {serial} 2 3 4 5\n@ NS ns\nns A 127.0.0.5\n{line}\n")
}

fn condition(kubectl: &Kubectl, name: &str, kind: &str) -> Option<Condition> {
    kubectl.condition(&["routes.signpost.dev", "-n", "shop", name], kind)
}

/// Waits for a condition with this reason; returns its message.
fn until(kubectl: &Kubectl, name: &str, kind: &str, status: &str, reason: &str) -> String {
    eventually(&format!("{kind} of {name} is {status}, {reason}"), || {
        let found = condition(kubectl, name, kind)?;
        (found.status == status && found.reason == reason).then_some(found.message)
    })
}

/// Waits until the host of a Route is verified with this reason and admitted at the same time, which lasts for the grace period only;
/// returns the status of the Route.
fn until_admitted(kubectl: &Kubectl, name: &str, reason: &str) -> Value {
    eventually(&format!("{name} is admitted, and its host is verified with {reason}"), || {
        let status = kubectl.json(&["routes.signpost.dev", "-n", "shop", name])["status"].take();
        let conditions = status["conditions"].as_array()?;
        let find = |kind: &str| conditions.iter().find(|one| one["type"] == kind && one["status"] == "True");
        (find("Admitted").is_some() && find("HostVerified")?["reason"] == reason).then_some(status)
    })
}

#[test]
fn a_host_is_admitted_when_its_own_name_server_has_the_record() {
    if !inside_namespace("ownership::a_host_is_admitted_when_its_own_name_server_has_the_record") {
        return;
    }
    let (data, zones) = (DataDir::new(), DataDir::new());
    let file = zones.join("shop.example.zone");
    std::fs::write(&file, zone(1, "www A 192.0.2.80")).expect("written");
    let owner_ports = Ports { dns: "127.0.0.5:53".parse().expect("an address"), ..Ports::free() };
    let owner = Server::start(owner_ports, &["--roles", "dns,admin", "--zones", zones.path()]);
    let publish = |serial: u32, line: &str| {
        std::fs::write(&file, zone(serial, line)).expect("written");
        owner.signal("HUP");
    };
    let resolver = "127.0.0.4:53".parse().expect("an address");
    let _resolver = unbound(resolver, Path::new(data.path()), &[("shop.example", owner_ports.dns)]);
    let arguments = ["--data-dir", data.path(), "--verify-hosts", "true", "--verify-resolver", "127.0.0.4"];
    let times = ["--verify-hosts-interval", "1s", "--verify-hosts-grace", "8s"];
    let ports = Ports::free();

    // Its name server is at a private address, which is not queried until the operator allows it.
    let server = Server::start(ports, &[&arguments[..], &times].concat());
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], &(PLATFORM.to_owned() + &route("early", "early.shop.example")));
    eventually("the private address is reported", || {
        let Condition { status, message, .. } = condition(&kubectl, "early", "HostVerified")?;
        let is_reported = message.contains("ns.shop.example (127.0.0.5) is not queried");
        (status == "False" && is_reported && message.contains("verify.hosts-private-addresses")).then_some(())
    });
    assert!(server.terminate().success());
    let private = ["--verify-hosts-private-addresses", "true"];
    let _server = Server::start(ports, &[&arguments[..], &times, &private].concat());
    kubectl.ok_with(&["apply", "-f", "-"], &(PLATFORM.to_owned() + &route("www", "www.shop.example")));

    // The record is missing: the Route waits, and its message contains the record to create.
    let message = until(&kubectl, "www", "Admitted", "False", "OwnershipNotVerified");
    assert!(message.contains("status.challenge.record"), "{message}");
    let message = eventually("the owner's server was queried", || {
        let Condition { status, message, .. } = condition(&kubectl, "www", "HostVerified")?;
        (status == "False" && message.contains("ns.shop.example (127.0.0.5) has no TXT record")).then_some(message)
    });
    let status = || kubectl.json(&["routes.signpost.dev", "-n", "shop", "www"])["status"].clone();
    let challenge: Value = status()["challenge"].clone();
    let record = challenge["record"].as_str().expect("a record").to_owned();
    assert!(record.starts_with("_signpost-challenge.www.shop.example. IN TXT \"signpost="), "{record}");
    assert!(message.contains(&record), "{message}");
    assert_eq!(status()["phase"], "new");

    // Another Route's token verifies nothing; the right one does, and the Route is admitted.
    publish(2, "_signpost-challenge.www TXT \"signpost=another\"");
    eventually("another record is reported", || {
        let Condition { status, message, .. } = condition(&kubectl, "www", "HostVerified")?;
        (status == "False" && message.contains("with another value")).then_some(())
    });
    publish(3, &record);
    until(&kubectl, "www", "HostVerified", "True", "Verified");
    until(&kubectl, "www", "Admitted", "True", "Admitted");
    kubectl.ok(&["wait", "-n", "shop", "rt/www", "--for=condition=Resolvable", "--timeout=180s"]);

    // The record goes: for a while the host stays, and then it does not. Its name on the platform stays in any case.
    publish(4, "www A 192.0.2.80");
    until_admitted(&kubectl, "www", "RecordMissing");
    until(&kubectl, "www", "Admitted", "False", "OwnershipNotVerified");
    assert_eq!(status()["phase"], "scheduled");
    assert_eq!(status()["challenge"]["value"], challenge["value"], "the record to create never changes");
    publish(5, &record);
    until(&kubectl, "www", "Admitted", "True", "Admitted");

    // Names of the platform need no verification, and a host without a zone reports the problem.
    kubectl.ok_with(&["apply", "-f", "-"], &route("plain", ""));
    kubectl.ok(&["wait", "-n", "shop", "rt/plain", "--for=condition=Resolvable", "--timeout=180s"]);
    kubectl.ok_with(&["apply", "-f", "-"], &route("nowhere", "*.nowhere.example"));
    let challenge = eventually("the challenge is there", || {
        let route = kubectl.json(&["routes.signpost.dev", "-n", "shop", "nowhere"]);
        route["status"]["challenge"]["name"].as_str().map(str::to_owned)
    });
    assert_eq!(challenge, "_signpost-challenge.nowhere.example");
    until(&kubectl, "nowhere", "Admitted", "False", "OwnershipNotVerified");
}

#[test]
fn the_switch_may_be_turned_off_and_on_again() {
    let data = DataDir::new();
    let (ports, resolver) = (Ports::free(), free_address().to_string());
    // The grace is short enough to be waited for, and long enough that it is not over before it is seen.
    let settings = ["--data-dir", data.path(), "--verify-resolver", &resolver, "--verify-hosts-grace", "10s"];
    let start = |switch: &str| {
        Server::start(ports, &[&settings[..], &["--verify-hosts-interval", "1s", "--verify-hosts", switch]].concat())
    };
    let server = start("true");
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], &(PLATFORM.to_owned() + &route("www", "www.shop.example")));
    until(&kubectl, "www", "Admitted", "False", "OwnershipNotVerified");
    let challenge = || kubectl.json(&["routes.signpost.dev", "-n", "shop", "www"])["status"]["challenge"].clone();
    let asked = eventually("the challenge is there", || Some(challenge()).filter(|challenge| !challenge.is_null()));

    // Off: the Route has its host, and no record is required.
    assert!(server.terminate().success());
    let server = start("false");
    until(&kubectl, "www", "Admitted", "True", "Admitted");
    eventually("no condition is about a proof", || {
        (challenge().is_null() && condition(&kubectl, "www", "HostVerified").is_none()).then_some(())
    });

    // On: as every Route that had its host before, it keeps it for its time of grace, and loses it after that.
    assert!(server.terminate().success());
    let _server = start("true");
    let status = until_admitted(&kubectl, "www", "GracePeriod");
    assert_eq!(status["challenge"]["record"], asked["record"], "the created record is still the requested one");
    until(&kubectl, "www", "Admitted", "False", "OwnershipNotVerified");
}
