//! A Router whose instances are child processes of the server: from `kubectl apply` to a response of the application, while a client
//! requests it all the time and the server is killed, the Router scales, and its proxy changes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::routers::{ANSWER_AGE_MAX, application};
use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::namespace::{KillOthers, inside_namespace};
use signpost_testing::net::exchange;
use signpost_testing::{DataDir, Kubectl, Ports, Server, program, until};

const NAME: &str = "myapp-hello.local.v3.rhcloud.com";
const ROUTE: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Route\n\
     metadata: {name: hello, namespace: myapp, labels: {tier: local}}\nspec: {to: {name: hello}}\n";
const SECURE: &str = "apiVersion: signpost.dev/v1alpha1\nkind: Route\n\
     metadata: {name: secure, namespace: myapp, labels: {tier: local}}\n\
     spec: {to: {name: hello}, tls: {termination: edge}}\n";
/// The time to live of the Router's addresses, in seconds.
const TTL: &str = "2";

/// Checks that Chromium accepts the certificate of an instance once it trusts the authority, and not before.
fn browser_trusts(authority: &str, instance: &str, name: &str) {
    let home = DataDir::new();
    let database = format!("sql:{}", home.file(".pki/nssdb"));
    let certutil = |arguments: &[&str]| {
        let output =
            Command::new("certutil").args(["-d", &database]).args(arguments).output().expect("it is installed");
        assert!(output.status.success(), "{output:?}");
    };
    let shows_the_page = || {
        let output = Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
            .args([format!("--host-resolver-rules=MAP {name} {instance}"), format!("https://{name}:8443/")])
            .env("HOME", home.path())
            .output()
            .expect("it is installed");
        String::from_utf8_lossy(&output.stdout).contains(&format!(">{name}:8443</pre>"))
    };
    std::fs::create_dir_all(home.join(".pki/nssdb")).expect("made");
    certutil(&["-N", "--empty-password"]);
    assert!(!shows_the_page(), "an unknown authority");
    certutil(&["-A", "-n", "demo", "-t", "C,,", "-i", authority]);
    until("Chromium accepts the certificate", || shows_the_page().then_some(()).ok_or("it does not"));
}

#[test]
fn the_platform_keeps_instances_running() {
    if !inside_namespace("local_router::the_platform_keeps_instances_running") {
        return;
    }
    let _others = KillOthers;
    let (data, ports) = (DataDir::new(), Ports::free());
    let arguments = ["--demo", "--data-dir", data.path()];
    let server = Server::start(ports, &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    let router = |patch: &str| kubectl.ok(&["patch", "router", "local", "--type=merge", "-p", patch]);
    let wait = |condition: &str, object: &str| {
        kubectl.ok(&["wait", "-n", "myapp", &format!("--for=condition={condition}"), "--timeout=180s", object])
    };

    // As the README has it, with an application at another port.
    let backend = application();
    let port = backend.port();
    let ports_patch = format!(r#"{{"ports": [{{"port": {port}}}]}}"#);
    kubectl.ok(&["patch", "endpointslice", "hello-1", "-n", "myapp", "--type=merge", "-p", &ports_patch]);
    router(&format!(r#"{{"spec": {{"ttl": {TTL}}}}}"#));
    kubectl.ok_with(&["apply", "-f", "-"], ROUTE);
    wait("Ready", "route/hello");
    wait("InstancesReady", "router/local");
    assert!(kubectl.ok(&["get", "router", "local"]).contains("2/2"));
    let reached =
        program::ok(&["curl", "myapp/hello", &format!("@{}", ports.dns), "--kubeconfig", &data.file("kubeconfig")]);
    assert_eq!(reached.matches(":8080   200 ").count(), 2, "{reached}");
    assert_eq!(reached.matches(&format!("127.0.0.1:{port} (Service hello)")).count(), 2, "{reached}");

    // The demo's own authority signed the certificate of the shard.
    kubectl.ok_with(&["apply", "-f", "-"], SECURE);
    wait("Ready", "route/secure");
    let (kubeconfig, authority) = (data.file("kubeconfig"), data.file("demo-certificates/ca.crt"));
    let server_argument = format!("@{}", ports.dns);
    let curl = ["curl", "myapp/secure", &server_argument, "--https", "--kubeconfig", &kubeconfig];
    let reached = program::ok(&[&curl[..], &["--cacert", &authority]].concat());
    assert_eq!(reached.matches(":8443   200 ").count(), 2, "{reached}");
    program::run(&curl).fails(1);
    let status = kubectl.json(&["router", "local"])["status"].take();
    let instance = status["currentAddresses"][0]["ip"].as_str().expect("it has an address");
    browser_trusts(&authority, instance, "myapp-secure.local.v3.rhcloud.com");

    for instance in std::fs::read_dir(data.join("routers")).expect("it has instances").flatten() {
        let log = std::fs::read_to_string(instance.path().join("log")).expect("it has a log");
        let started = log.lines().find(|line| line.contains("started the proxy")).expect("it runs");
        assert!(["Landlock ABI", "kernel"].iter().any(|part| started.contains(part)), "{started}");
    }

    let clients = Client::start(ports.dns);
    clients.check("all is well");
    let before = agents();
    assert_eq!(before.len(), 2);
    server.kill();
    clients.check_addresses("the server is dead");
    let server = Server::start(ports, &arguments);
    wait("InstancesReady", "router/local");
    clients.check("another server runs");
    assert_eq!(agents(), before, "they were adopted");

    // Other options of instances need other instances.
    server.kill();
    let server = Server::start(ports, &[&arguments[..], &["--routers-route-servers", "50"]].concat());
    until("instances with other options run", || match agents() {
        now if now.len() == 2 && !now.keys().any(|id| before.contains_key(id)) => Ok(()),
        now => Err(format!("{now:?}")),
    });
    let option = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).expect("it runs");
        String::from_utf8_lossy(&line).contains("--route-servers\u{0}50\u{0}")
    };
    assert!(agents().keys().all(option));
    wait("InstancesReady", "router/local");
    clients.check("the instances were replaced");

    let serve = |what: &str, count: usize, proxy: &str| {
        until(what, || {
            let status = kubectl.json(&["router", "local"])["status"].take();
            let instances = status["instances"].as_array().cloned().unwrap_or_default();
            let is_right = |one: &serde_json::Value| one["state"] == "serving" && one["proxy"] == proxy;
            let addresses = status["currentAddresses"].as_array().map_or(0, Vec::len);
            match instances.len() == count && instances.iter().all(is_right) && addresses == count {
                true => Ok(()),
                false => Err(status),
            }
        });
        clients.check(what);
    };
    router(r#"{"spec": {"instances": 3}}"#);
    serve("three instances serve", 3, "haproxy");
    router(r#"{"spec": {"instances": 2}}"#);
    serve("two instances serve", 2, "haproxy");
    router(r#"{"spec": {"type": "nginx"}}"#);
    serve("two instances with nginx serve", 2, "nginx");

    // A process that ends by itself is started again.
    let lost = *agents().keys().next().expect("they run");
    clients.pause();
    let _ = std::process::Command::new("kill").args(["-KILL", &lost.to_string()]).status();
    until("it was started again", || match agents() {
        now if now.len() == 2 && !now.contains_key(&lost) => Ok(()),
        now => Err(format!("{now:?}")),
    });

    // The instances of a second platform on the machine have other addresses, and keep running.
    let of_first = agents();
    let (second_data, second_ports) = (DataDir::new(), Ports::free());
    let second = Server::start(second_ports, &["--demo", "--data-dir", second_data.path()]);
    let of_second = Kubectl::new(second_data.join("kubeconfig"));
    of_second.ok(&["wait", "--for=condition=InstancesReady", "--timeout=180s", "router/local"]);
    let all = agents();
    let addresses: BTreeSet<&String> = all.values().collect();
    assert_eq!((all.len(), addresses.len()), (4, 4), "{all:?}");
    stop_as_at_a_terminal(second, &second_data);
    until("only the instances of the first platform are left", || match agents() {
        left if left == of_first => Ok(()),
        left => Err(format!("{left:?}")),
    });
    stop_as_at_a_terminal(server, &data);
    until("no instance is left", || match agents() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

/// Interrupts a server, which ends its instances without warnings.
#[track_caller]
fn stop_as_at_a_terminal(server: Server, data: &DataDir) {
    server.signal("INT");
    let mut server = server;
    assert!(server.wait().success());
    for instance in std::fs::read_dir(data.join("routers")).into_iter().flatten().flatten() {
        let log = std::fs::read_to_string(instance.path().join("log")).unwrap_or_default();
        assert!(!log.contains("second signal"), "{log}");
    }
}

/// Returns the agents that run in this network namespace, and their addresses.
fn agents() -> BTreeMap<u32, String> {
    let own = std::fs::read_link("/proc/self/ns/net").ok();
    let ids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let agent = |id: u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let words: Vec<String> =
            line.split(|octet| *octet == 0).map(|word| String::from_utf8_lossy(word).into()).collect();
        let is_agent = words.get(1).is_some_and(|word| word == "agent");
        let address = words.iter().position(|word| word == "--address").and_then(|at| words.get(at + 1)).cloned();
        (is_agent && std::fs::read_link(format!("/proc/{id}/ns/net")).ok() == own).then_some((id, address?))
    };
    ids.filter_map(agent).collect()
}

/// A client that requests the Route from each of its addresses all the time. While no name server answers, from those that it knows.
struct Client {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    rounds: AtomicUsize,
    is_paused: AtomicBool,
    /// The failures.
    failures: Mutex<Vec<String>>,
}

impl Client {
    fn start(dns: SocketAddr) -> Client {
        let shared = Arc::new(Shared::default());
        let client = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut known: Vec<IpAddr> = Vec::new();
            loop {
                std::thread::sleep(Duration::from_millis(5));
                if client.is_paused.load(Ordering::Relaxed) {
                    continue;
                }
                let asked = Instant::now();
                // Not longer: after the TTL, the addresses that it knows may have left.
                let answer = Asker::new(dns).ask(NAME, RecordType::A, ANSWER_AGE_MAX / 2);
                if let Some(answer) = answer.filter(|answer| !answer.addresses.is_empty()) {
                    known = answer.addresses.into_iter().collect();
                }
                for ip in &known {
                    if asked.elapsed() > ANSWER_AGE_MAX {
                        break;
                    }
                    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}");
                    match exchange(SocketAddr::new(*ip, 8080), &request, "") {
                        Some(answer) if answer.status == 200 && answer.body == NAME => {}
                        other => client.failures.lock().expect("no panic").push(format!("{ip}: {other:?}")),
                    }
                }
                client.rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        Client { shared }
    }

    fn pause(&self) {
        self.shared.is_paused.store(true, Ordering::Relaxed);
    }

    /// Waits for requests of all addresses, and finds that none has failed since the start.
    #[track_caller]
    fn check(&self, when: &str) {
        let before = self.shared.rounds.load(Ordering::Relaxed);
        until(when, || match self.shared.rounds.load(Ordering::Relaxed) {
            now if now > before + 20 => Ok(()),
            now => Err(now),
        });
        self.check_addresses(when);
    }

    #[track_caller]
    fn check_addresses(&self, when: &str) {
        let failures = self.shared.failures.lock().expect("no panic").clone();
        assert!(failures.is_empty(), "{when}: {:#?}", &failures[..failures.len().min(8)]);
    }
}
