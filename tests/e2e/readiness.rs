//! The condition `Ready` of a Route where instances report: they serve this generation of it, with a valid certificate.

use serde_json::{Value, json};

use crate::agent::{Agent, application, platform_with, route, service};
use signpost_testing::net::exchange;
use signpost_testing::{DataDir, Kubectl, Ports, Server, until};
use signpost_types::instance::AGENT_NAMESPACE;

const NAME: &str = "web-shop.shard1.example.org";
const ROUTER: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard1}\n\
     spec: {addressesFrom: {instances: true}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n";

/// A platform, which is its own name server, and an instance of its Router.
struct Scene {
    kubectl: Kubectl,
    agent: Agent,
    certificates: DataDir,
    _server: Server,
    _data: DataDir,
}

impl Scene {
    fn start(objects: &str) -> Scene {
        let (data, certificates, ports) = (DataDir::new(), DataDir::new(), Ports::free());
        let (server, kubectl) = platform_with(&data, ports, &["--domain", "example.org"]);
        kubectl.ok_with(&["apply", "-f", "-"], &format!("{ROUTER}{objects}"));
        let mut agent = Agent::new(&data, ports.dns).with(&["--certificates", certificates.path()]);
        agent.start();
        Scene { kubectl, agent, certificates, _server: server, _data: data }
    }

    fn patch(&self, spec: &Value) {
        let patch = json!({ "spec": spec }).to_string();
        self.kubectl.ok(&["patch", "route", "shop", "-n", "web", "--type=merge", "-p", &patch]);
    }

    /// Waits until the Route has each of these conditions, as `Type=Status Reason`, at this generation. `check` gets each state until
    /// then.
    #[track_caller]
    fn waits_for(&self, expected: &[&str], generation: i64, check: impl Fn(&[Value])) -> Vec<Value> {
        until(&format!("the Route has {expected:?} at {generation}"), || {
            let mut route = self.kubectl.json(&["route", "shop", "-n", "web"]);
            let conditions = route["status"]["conditions"].as_array_mut().map(std::mem::take).unwrap_or_default();
            check(&conditions);
            let has = |wanted: &&str| {
                conditions.iter().any(|one| summary(one) == **wanted && one["observedGeneration"] == generation)
            };
            if expected.iter().all(has) { Ok(conditions) } else { Err(json!(conditions)) }
        })
    }
}

/// Returns a condition as `Type=Status Reason`.
fn summary(condition: &Value) -> String {
    let text = |member: &str| condition[member].as_str().unwrap_or_default();
    format!("{}={} {}", text("type"), text("status"), text("reason"))
}

fn backends() -> String {
    service("b1", application("b1")) + &service("b2", application("b2"))
}

#[test]
fn a_changed_route_is_ready_only_when_the_proxy_has_the_change() {
    let mut scene = Scene::start(&(backends() + &route("shop", "b1")));
    scene.waits_for(&["Ready=True Ready", "Programmed=True Programmed"], 1, |_| {});
    scene.agent.answers(NAME, 200, "b1");

    // The proxy of the killed agent still serves the first generation.
    scene.agent.kill();
    scene.patch(&json!({"to": {"name": "b2"}}));
    let claims_nothing = |conditions: &[Value]| {
        let is_claim = |one: &&Value| {
            let is_about = ["Ready", "Programmed"].contains(&one["type"].as_str().unwrap_or_default());
            is_about && one["status"] == "True" && one["observedGeneration"] == 2
        };
        assert_eq!(conditions.iter().find(is_claim), None, "the agent is dead");
    };
    scene.waits_for(&["Resolvable=True Resolvable"], 2, claims_nothing);
    scene.waits_for(&["Ready=False NotProgrammed"], 2, claims_nothing);
    scene.agent.answers(NAME, 200, "b1");

    scene.agent.start();
    let serves = |conditions: &[Value]| {
        let is_claim = |one: &&Value| summary(one) == "Ready=True Ready" && one["observedGeneration"] == 2;
        if conditions.iter().any(|one| is_claim(&one)) {
            let answer = exchange(scene.agent.http, &format!("GET / HTTP/1.1\r\nHost: {NAME}"), "").expect("it serves");
            assert_eq!((answer.status, answer.body.as_str()), (200, "b2"));
        }
    };
    scene.waits_for(&["Ready=True Ready", "Programmed=True Programmed"], 2, serves);
    // Changed labels do not change the configuration of the proxy.
    scene.kubectl.ok(&["label", "route", "shop", "-n", "web", "a=b"]);
    scene.waits_for(&["Ready=True Ready"], 2, serves);
    scene.patch(&json!({"path": "/cart"}));
    scene.waits_for(&["Ready=True Ready", "Programmed=True Programmed"], 3, |_| {});
}

#[test]
fn a_route_with_tls_is_ready_only_with_a_valid_certificate() {
    let edge = route("shop", "b1").replace("spec: {", "spec: {tls: {termination: edge}, ");
    let scene = Scene::start(&(backends() + &edge));
    let waits_for = |expected: &[&str], generation: i64| scene.waits_for(expected, generation, |_| {});
    let write = |host: &str, text: &str| {
        let file = scene.certificates.join(&format!("{host}.pem"));
        std::fs::rename(scene.certificates.write(".new", text), file).expect("a file");
    };
    let pem = |name: &str, first: i32, last: i32| {
        let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).expect("a name");
        (parameters.not_before, parameters.not_after) =
            (rcgen::date_time_ymd(first, 1, 1), rcgen::date_time_ymd(last, 1, 1));
        let key = rcgen::KeyPair::generate().expect("a key");
        parameters.self_signed(&key).expect("a certificate").pem() + &key.serialize_pem()
    };
    let none =
        ["CertificateReady=False NoCertificate", "Programmed=True Programmed", "Ready=False CertificateNotReady"];
    waits_for(&none, 1);
    let ready = ["CertificateReady=True CertificateValid", "Ready=True Ready"];
    write("_wildcard.shard1.example.org", &pem("*.shard1.example.org", 2000, 4000));
    waits_for(&ready, 1);

    // The certificate of the name itself comes first, also if it is not valid.
    for (text, reason) in [
        (pem(NAME, 2000, 2001), "Expired"),
        (pem(NAME, 4000, 4001), "NotYetValid"),
        (pem("other.example", 2000, 4000), "NameMismatch"),
    ] {
        write(NAME, &text);
        waits_for(&[&format!("CertificateReady=False {reason}"), "Ready=False CertificateNotReady"], 1);
    }
    write(NAME, &pem(NAME, 2000, 4000));
    waits_for(&ready, 1);

    // The last good one stays, and the fault is reported.
    write(NAME, "garbage");
    let mut message = String::new();
    until("the fault of the file is reported", || {
        let conditions = waits_for(&ready, 1);
        let condition = conditions.iter().find(|one| one["type"] == "CertificateReady").expect("it is there");
        message = condition["message"].as_str().unwrap_or_default().to_owned();
        match message.contains("its file cannot be used: there is no certificate in PEM") {
            true => Ok(()),
            false => Err(message.clone()),
        }
    });
    // No key leaves the agent.
    let leases =
        scene.kubectl.json(&["leases", "-n", AGENT_NAMESPACE, "-l", "app.kubernetes.io/component=router-instance"]);
    let report = leases["items"][0]["metadata"]["annotations"]["instance.signpost.dev/certificates"].as_str();
    let report: Value = serde_json::from_str(report.expect("it is reported")).expect("JSON");
    let certificates = report["certificates"].as_array().expect("a list");
    assert_eq!(certificates.len(), 2, "{report}");
    let known = ["host", "sha256", "notBefore", "notAfter", "names", "fault"];
    let members = certificates.iter().flat_map(|one| one.as_object().expect("an object").keys());
    assert!(members.clone().all(|member| known.contains(&member.as_str())), "{report}");

    // TLS that ends at the application needs none.
    for host in [NAME, "_wildcard.shard1.example.org"] {
        std::fs::remove_file(scene.certificates.join(&format!("{host}.pem"))).expect("removed");
    }
    waits_for(&none, 1);
    scene.patch(&json!({"tls": {"termination": "passthrough"}}));
    let conditions = waits_for(&["Ready=True Ready"], 2);
    assert!(conditions.iter().all(|one| one["type"] != "CertificateReady"), "{conditions:?}");
}
