//! The path from a Router and a Route to `https` with certificates that the platform got by itself: Debian's `pebble` is the certificate authority, Signpost's
//! own name server is its resolver, and real proxies answer its challenges.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};

use crate::agent::{Agent, DOMAIN, agent_user, application, platform_with, route, router, service};
use signpost_testing::peers::unbound;
use signpost_testing::program;
use signpost_testing::{DataDir, Kubectl, Ports, Process, Server, dig, eventually, free_address, until};
use signpost_types::instance::{AGENT_NAMESPACE, certificate_name};

const HOST: &str = "www.shop.test";
const NAME: &str = "web-shop.shard1.example.org";

/// A certificate authority.
struct Pebble {
    files: DataDir,
    address: SocketAddr,
    management: SocketAddr,
    arguments: Vec<String>,
    process: Option<Process>,
}

impl Pebble {
    /// Returns one that resolves names at `dns`, and sends HTTP challenges to this port.
    fn new(dns: SocketAddr, http_port: u16, validity: u64) -> Pebble {
        let files = DataDir::new();
        let (address, management) = (free_address(), free_address());
        let write = |name: &str, text: &str| {
            std::fs::write(files.join(name), text).expect("written");
            files.file(name)
        };
        let mut ca = CertificateParams::new(Vec::new()).expect("no names");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "the directory");
        let (of_ca, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        write("ca.pem", &ca.self_signed(&of_ca).expect("a CA").pem());
        let names = CertificateParams::new(vec![address.ip().to_string()]).expect("an address");
        let certificate = names.signed_by(&key, &Issuer::from_params(&ca, of_ca)).expect("a certificate");
        let config = json!({"pebble": {
            "listenAddress": address.to_string(), "managementListenAddress": management.to_string(),
            "certificate": write("server.crt", &certificate.pem()), "privateKey": write("server.key", &key.serialize_pem()),
            "httpPort": http_port, "tlsPort": 1, "ocspResponderURL": "", "externalAccountBindingRequired": false,
            "certificateValidityPeriod": validity,
        }});
        let config = write("pebble.json", &config.to_string());
        let arguments = ["-strict", "-config", &config, "-dnsserver", &dns.to_string()].map(str::to_owned).into();
        Pebble { files, address, management, arguments, process: None }
    }

    /// Starts it, with `seconds` between a challenge and its validation. It forgets everything when it ends.
    fn start(&mut self, seconds: u32) {
        let mut command = Command::new("pebble");
        command.args(&self.arguments).env("PEBBLE_WFE_NONCEREJECT", "20").env("PEBBLE_AUTHZREUSE", "0");
        match seconds {
            0 => command.env("PEBBLE_VA_NOSLEEP", "1"),
            seconds => command.env("PEBBLE_VA_SLEEPTIME", seconds.to_string()),
        };
        self.process = Some(Process::logged(&mut command));
        let root = self.files.join("root.pem");
        let ca = self.files.file("ca.pem");
        eventually("pebble has a root", || {
            let url = format!("https://{}/roots/0", self.management);
            let output = Command::new("curl").args(["-sSf", "--cacert", &ca, &url]).output().expect("curl runs");
            output.status.success().then(|| std::fs::write(&root, output.stdout).expect("written"))
        });
    }

    fn signal(&self, signal: &str) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    fn stop(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Returns the flags of the platform.
    fn flags(&self) -> [String; 4] {
        let directory = format!("https://{}/dir", self.address);
        ["--acme-directory".to_owned(), directory, "--acme-ca-file".to_owned(), self.files.file("ca.pem")]
    }

    fn root(&self) -> PathBuf {
        self.files.join("root.pem")
    }
}

/// A platform with a Router, its agent, and a domain of a tenant.
struct Scene {
    data: DataDir,
    ports: Ports,
    arguments: Vec<String>,
    server: Option<Server>,
    kubectl: Kubectl,
    agent: Agent,
    pebble: Pebble,
    _resolver: Option<Process>,
}

impl Scene {
    fn new(proxy: &'static str, seconds: u32) -> Scene {
        Scene::valid_for(proxy, seconds, 90 * 86_400, false)
    }

    /// Returns one whose certificates are valid for this number of seconds. The CA uses a resolver, or the name server of the platform.
    fn valid_for(proxy: &'static str, seconds: u32, validity: u64, has_resolver: bool) -> Scene {
        let (data, ports) = (DataDir::new(), Ports::free());
        let resolver = has_resolver.then(free_address);
        let mut agent = Agent::on(&data, ports.dns, "shard1", proxy);
        let mut pebble = Pebble::new(resolver.unwrap_or(ports.dns), agent.http.port(), validity);
        std::fs::create_dir(data.join("zones")).expect("a directory");
        // Without a resolver, the CA does not follow a CNAME record.
        let ip = agent.http.ip();
        let zone = format!(
            "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 127.0.0.5\nwww A {ip}\n*.wild A {ip}\n*.more A {ip}\n\
             _acme-challenge.wild CNAME web-wild.acme.example.org.\n"
        );
        std::fs::write(data.join("zones/shop.test.zone"), zone).expect("written");
        let (dns, zones) = (ports.dns.to_string(), data.file("zones"));
        let own = ["--verify-server", &dns, "--host-resolvers", &dns, "--zones", &zones];
        let arguments: Vec<String> =
            DOMAIN.iter().chain(&own).map(|&argument| argument.to_owned()).chain(pebble.flags()).collect();
        let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (server, kubectl) = platform_with(&data, ports, &texts);
        let zones = ["shop.test", "example.org"].map(|zone| (zone, ports.dns));
        let resolver = resolver.map(|address| unbound(address, Path::new(data.path()), &zones));
        pebble.start(seconds);
        kubectl.ok_with(&["apply", "-f", "-"], &router(&format!("{{ip: {}}}", agent.http.ip())));
        agent.start();
        Scene { data, ports, arguments, server: Some(server), kubectl, agent, pebble, _resolver: resolver }
    }

    fn restart(&mut self) {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let arguments = [&["--data-dir", self.data.path()][..], &arguments].concat();
        self.server = Some(Server::start(self.ports, &arguments));
    }

    fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    /// Kills the leader and starts the next one. Meanwhile the CA is stopped: a validation that gets no answer ends the order.
    fn replace_leader(&mut self) {
        self.pebble.signal("STOP");
        self.kill();
        self.restart();
        until("each challenge has its record again", || {
            let challenges = self.kubectl.json(&["challengerecords", "-A"])["items"].clone();
            let missing = |challenge: &&Value| {
                let name = challenge["spec"]["name"].as_str().expect("a name");
                let value = challenge["spec"]["value"].to_string();
                !dig(self.ports.dns, name, "TXT", &[]).data("TXT").contains(&&*value)
            };
            match challenges.as_array().expect("a list").iter().find(missing) {
                None => Ok(()),
                Some(challenge) => Err(challenge.clone()),
            }
        });
        self.pebble.signal("CONT");
    }

    fn apply(&self, objects: &str) {
        self.kubectl.ok_with(&["apply", "-f", "-"], objects);
    }

    /// Waits until `https` answers for a host, with a certificate of the CA.
    #[track_caller]
    fn answers(&self, host: &str, body: &str) {
        let root = self.pebble.root();
        until(&format!("https://{host} answers"), || match curl(self.agent.https, host, &root) {
            Ok(found) if found == body => Ok(()),
            other => Err(format!(
                "{other:?} {}",
                self.kubectl.json(&["routers.signpost.dev", "shard1"])["status"]["conditions"]
            )),
        });
    }

    fn secret(&self, namespace: &str, name: &str) -> Option<Value> {
        let output = self.kubectl.run(&["get", "secret", name, "-n", namespace, "-o", "json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    }

    /// Returns the Secrets of the orders in progress: those that ended have no key.
    fn orders(&self) -> Vec<Value> {
        let all = self.kubectl.json(&["secrets", "-n", "signpost-system"]);
        let all = all["items"].as_array().expect("a list").clone();
        let is_order = |secret: &Value| {
            let name = secret["metadata"]["name"].as_str().unwrap_or_default();
            name.starts_with("acme-order-") && secret["data"]["tls.key"] != ""
        };
        all.into_iter().filter(is_order).collect()
    }

    /// Waits for the condition of a Router or Route; returns its message.
    #[track_caller]
    fn until_ready(&self, object: &[&str], expected: &str) -> String {
        eventually(&format!("{object:?} {expected}"), || {
            let found = self.kubectl.condition(object, "CertificateReady")?;
            (format!("{} {}", found.status, found.reason) == expected).then_some(found.message)
        })
    }
}

fn curl(https: SocketAddr, host: &str, ca: &Path) -> Result<String, String> {
    let (ip, port) = (https.ip(), https.port());
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "10", "--cacert"])
        .arg(ca)
        .args(["--resolve", &format!("{host}:{port}:{ip}"), &format!("https://{host}:{port}/")])
        .output()
        .expect("curl runs");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Returns whether the proxy has a certificate that is valid until the time in a condition.
fn served(scene: &Scene, message: &str) -> Result<(), String> {
    let route = scene.until_ready(&["routes.signpost.dev", "-n", "web", "shop"], "True CertificateValid");
    let until = |text: &str| {
        text.split("valid until ").nth(1).and_then(|rest| rest.split([';', ' ']).next()).map(str::to_owned)
    };
    if until(message) == until(&route) { Ok(()) } else { Err(format!("{message} {route}")) }
}

fn edge(name: &str, spec: &str) -> String {
    route(name, "shop").replace("spec: {", &format!("spec: {{tls: {{termination: edge}}, {spec}"))
}

/// A name of the platform and a host of a tenant get their certificates, and nothing else needs to be done.
fn certificates_come(proxy: &'static str) {
    let scene = Scene::new(proxy, 0);
    let message = scene.until_ready(&["routers.signpost.dev", "shard1"], "True CertificateIssued");
    assert!(
        message.contains("*.shard1.example.org and shard1.example.org") && message.contains("next renewal"),
        "{message}"
    );
    let objects = edge("shop", "") + &edge("www", &format!("host: {HOST}, "));
    scene.apply(&(service("shop", application("shop")) + &objects));
    scene.answers(NAME, "shop");
    scene.answers(HOST, "shop");
    let message = scene.until_ready(&["routes.signpost.dev", "-n", "web", "www"], "True CertificateValid");
    assert!(message.contains("Pebble") && message.contains("next renewal"), "{message}");
    scene.until_ready(&["routes.signpost.dev", "-n", "web", "shop"], "True CertificateValid");
    let explained = program::ok(&["explain", "route", "web/www", "--data-dir", scene.data.path()]);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(explained.contains("CertificateReady") && words(&explained).contains(&words(&message)), "{explained}");
    for (object, namespace, named) in [("Router", "default", "*.shard1.example.org"), ("Route", "web", HOST)] {
        let events = scene.kubectl.json(&["events.events.k8s.io", "-n", namespace]);
        let is_ours = |event: &&Value| event["reason"] == "CertificateIssued" && event["regarding"]["kind"] == object;
        let mut events = events["items"].as_array().expect("a list").iter().filter(is_ours);
        assert!(events.any(|event| event["note"].as_str().is_some_and(|note| note.contains(named))), "{object}");
    }

    // Nothing is left behind.
    until("no challenge is left", || {
        let left = scene.kubectl.json(&["challengerecords", "-A"])["items"].clone();
        if left == json!([]) && scene.orders().is_empty() { Ok(()) } else { Err(left) }
    });

    // An agent reads the certificates of its own Router alone, and no account.
    agent_user(&scene.data, "other");
    let accounts = scene.kubectl.json(&["secrets", "-n", "signpost-system"]);
    let account = accounts["items"][0]["metadata"]["name"].as_str().expect("an account");
    assert!(account.starts_with("acme-account-"), "{account}");
    let certificate = certificate_name("shard1", "*.shard1.example.org");
    for (user, namespace, name, is_permitted) in [
        ("shard1", AGENT_NAMESPACE, certificate.as_str(), true),
        ("shard1", AGENT_NAMESPACE, &certificate_name("shard1", HOST), true),
        ("other", AGENT_NAMESPACE, &certificate, false),
        ("shard1", AGENT_NAMESPACE, "other", false),
        ("shard1", "signpost-system", account, false),
    ] {
        let of_agent = Kubectl::new(scene.data.join(&format!("{user}.kubeconfig")));
        let found = of_agent.run(&["get", "secret", name, "-n", namespace]).status.success();
        assert_eq!(found, is_permitted, "{user} {namespace} {name}");
    }
    let of_agent = Kubectl::new(scene.data.join("shard1.kubeconfig"));
    assert!(!of_agent.run(&["get", "secrets", "-n", AGENT_NAMESPACE]).status.success());
}

#[test]
fn certificates_come_with_haproxy() {
    certificates_come("haproxy");
}

#[test]
fn certificates_come_with_nginx() {
    certificates_come("nginx");
}

/// A certificate that is due is renewed without a failed request, and one whose Secret is gone is ordered again.
#[test]
fn certificates_are_renewed() {
    let mut scene = Scene::valid_for("haproxy", 0, 90, false);
    scene.apply(&(service("shop", application("shop")) + &edge("shop", "")));
    scene.answers(NAME, "shop");
    let name = certificate_name("shard1", "*.shard1.example.org");
    let certificate = || scene.secret(AGENT_NAMESPACE, &name).expect("a Secret")["data"]["tls.crt"].clone();
    let first = certificate();
    let root = scene.pebble.root();
    eventually("it is renewed, and every request succeeds", || {
        assert_eq!(curl(scene.agent.https, NAME, &root).as_deref(), Ok("shop"));
        (certificate() != first).then_some(())
    });
    until("agents use the next one", || {
        assert_eq!(curl(scene.agent.https, NAME, &root).as_deref(), Ok("shop"));
        served(&scene, &scene.until_ready(&["routers.signpost.dev", "shard1"], "True CertificateIssued"))
    });

    scene.pebble.signal("STOP");
    scene.kubectl.ok(&["delete", "secret", &name, "-n", AGENT_NAMESPACE]);
    scene.replace_leader();
    eventually("it is there again", || scene.secret(AGENT_NAMESPACE, &name));
    scene.answers(NAME, "shop");
}

/// A leader that is killed before the CA validates: the next one continues the same order, with the same key.
#[test]
fn another_leader_continues_an_order() {
    let mut scene = Scene::new("haproxy", 15);
    scene.apply(&(service("shop", application("shop")) + &edge("shop", "")));
    let key = eventually("an order is stored", || {
        let orders = scene.orders();
        let key = orders.first()?["data"]["tls.key"].as_str()?.to_owned();
        // The CA validates them.
        (scene.kubectl.json(&["challengerecords", "-A"])["items"].as_array()?.len() == 2).then_some(key)
    });
    scene.replace_leader();
    scene.answers(NAME, "shop");
    let name = certificate_name("shard1", "*.shard1.example.org");
    let certificate = scene.secret(AGENT_NAMESPACE, &name).expect("a Secret");
    assert_eq!(certificate["data"]["tls.key"].as_str(), Some(&*key), "the key of the order");
    until("nothing is left", || {
        let left = scene.kubectl.json(&["challengerecords", "-A"])["items"].clone();
        if left == json!([]) && scene.orders().is_empty() { Ok(()) } else { Err(left) }
    });
}

/// While the CA is away, earlier certificates are served, and the condition has the reason. A CA that has lost the account gets another one.
#[test]
fn the_authority_is_away() {
    let mut scene = Scene::new("haproxy", 0);
    scene.apply(&(service("shop", application("shop")) + &edge("shop", "")));
    scene.answers(NAME, "shop");
    let root = scene.files_root();
    scene.pebble.stop();
    scene.apply(&edge("www", &format!("host: {HOST}, ")));
    let message = scene.until_ready(&["routes.signpost.dev", "-n", "web", "www"], "False OrderFailed");
    assert!(message.contains("cannot be reached") && message.contains("the next attempt is at"), "{message}");
    assert_eq!(curl(scene.agent.https, NAME, &root).as_deref(), Ok("shop"));
    scene.pebble.start(0);
    scene.answers(HOST, "shop");
    assert_eq!(curl(scene.agent.https, NAME, &root).as_deref(), Ok("shop"));
}

impl Scene {
    /// Returns a copy of the CA's root.
    fn files_root(&self) -> PathBuf {
        let copy = self.data.join("root.pem");
        std::fs::copy(self.pebble.root(), &copy).expect("copied");
        copy
    }
}

/// A host with an asterisk is proven by a record to which its owner leads the CA. The condition names a missing one.
#[test]
fn a_wildcard_host_gets_its_certificate_by_a_cname() {
    let scene = Scene::valid_for("haproxy", 0, 90 * 86_400, true);
    let hosts = edge("wild", "host: \"*.wild.shop.test\", ") + &edge("more", "host: \"*.more.shop.test\", ");
    scene.apply(&(service("shop", application("shop")) + &hosts));
    scene.answers("a.wild.shop.test", "shop");
    let message = scene.until_ready(&["routes.signpost.dev", "-n", "web", "more"], "False NoChallengeRecord");
    assert!(message.contains("\"_acme-challenge.more.shop.test CNAME web-more.acme.example.org.\""), "{message}");
    until("no challenge is left", || {
        let left = scene.kubectl.json(&["challengerecords", "-A"])["items"].clone();
        if left == json!([]) { Ok(()) } else { Err(left) }
    });
}

/// A host that leads elsewhere is not ordered, and names the record to create.
#[test]
fn a_host_that_leads_elsewhere_costs_no_order() {
    let scene = Scene::new("haproxy", 0);
    scene.apply(&(service("shop", application("shop")) + &edge("away", "host: other.shop.test, ")));
    let message = scene.until_ready(&["routes.signpost.dev", "-n", "web", "away"], "False HostNotReady");
    assert!(message.contains("other.shop.test") && message.contains("HostPointsHere"), "{message}");
    scene.until_ready(&["routers.signpost.dev", "shard1"], "True CertificateIssued");
    assert!(scene.orders().is_empty());
}
