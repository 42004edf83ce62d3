//! The path from `kubectl apply` to an HTTP response through a real HAProxy that the agent configures.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use signpost_testing::net::{exchange, http_get};
use signpost_testing::program;
use signpost_testing::{DataDir, Kubectl, Ports, Process, Server, dig, eventually, free_address, until};
use signpost_types::instance::AGENT_NAMESPACE;

pub const DOMAIN: [&str; 4] = ["--domain", "example.org", "--nameserver", "ns1.example.org=192.0.2.53"];
const NAME: &str = "web-shop.shard1.example.org";
/// The pause between two requests of the client that never stops.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns an application that answers each request with its name. Its thread ends with the test.
pub fn application(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut request = [0; 4096];
            // A connection without a request is a probe.
            if matches!(stream.read(&mut request), Ok(1..)) {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", name.len());
                let _ = stream.write_all(format!("{head}{name}").as_bytes());
            }
        }
    });
    address
}

/// Returns a Service with one endpoint.
pub fn service(name: &str, endpoint: SocketAddr) -> String {
    let (address, port) = (endpoint.ip(), endpoint.port());
    let port = json!({"name": "http", "port": port});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "web"},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": port["port"]}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": format!("{name}-1"), "namespace": "web", "labels": {"kubernetes.io/service-name": name}},
        "endpoints": [{"addresses": [address]}], "ports": [port]});
    format!("---\n{service}\n---\n{slice}\n")
}

pub fn route(name: &str, target: &str) -> String {
    format!(
        "---\napiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: web}}\n\
         spec: {{to: {{name: {target}}}, port: {{targetPort: 80}}}}\n"
    )
}

/// The agent of a Router, and its proxy.
pub struct Agent {
    data: DataDir,
    router: &'static str,
    proxy: &'static str,
    pub http: SocketAddr,
    pub https: SocketAddr,
    arguments: Vec<String>,
    process: Option<Process>,
}

impl Agent {
    /// Returns the agent of the Router shard1, with HAProxy.
    pub fn new(api: &DataDir, dns: SocketAddr) -> Agent {
        Agent::on(api, dns, "shard1", "haproxy")
    }

    pub fn on(api: &DataDir, dns: SocketAddr, router: &'static str, proxy: &'static str) -> Agent {
        let (data, http, https) = (DataDir::new(), free_address(), free_address());
        let kubeconfig = api.join(&format!("{router}.kubeconfig")).display().to_string();
        let arguments = [
            ("--router", router.to_owned()),
            ("--proxy", proxy.to_owned()),
            ("--address", http.ip().to_string()),
            ("--http-port", http.port().to_string()),
            ("--https-port", https.port().to_string()),
            ("--data-dir", data.path().to_owned()),
            ("--kubeconfig", kubeconfig),
            ("--name-server", dns.to_string()),
            ("--admin-listen", free_address().to_string()),
        ];
        let arguments = arguments.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let arguments = arguments.chain(["--loopback-endpoints".to_owned()]).collect();
        Agent { data, router, proxy, http, https, arguments, process: None }
    }

    /// Adds arguments for the next start.
    pub fn with(mut self, arguments: &[&str]) -> Agent {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Kills the agent. Its proxy continues to serve.
    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Kills the proxy that a killed agent has left, and waits for its end.
    pub fn kill_proxy(&self) {
        let id = std::fs::read_to_string(self.proxy_id_file()).expect("it runs");
        // Workers of nginx outlive a killed master.
        let signal = if self.proxy == "nginx" { "-TERM" } else { "-KILL" };
        assert!(Command::new("kill").args([signal, id.trim()]).status().expect("kill runs").success());
        eventually("the proxy ends", || self.get(NAME).is_none().then_some(()));
    }

    /// Returns the last lines that it printed.
    pub fn log(&self) -> String {
        self.process.as_ref().expect("it runs").log()
    }

    /// Returns the metrics on its admin address.
    pub fn metrics(&self) -> String {
        let at = self.arguments.iter().position(|argument| argument == "--admin-listen").expect("it has one") + 1;
        http_get(self.arguments[at].parse().expect("an address"), "/metrics").expect("it responds").1
    }

    pub fn start(&mut self) {
        self.process = Some(Process::logged(program::command(&["agent"]).args(&self.arguments)));
    }

    /// Returns the status and body of a response for a host.
    fn get(&self, host: &str) -> Option<(u16, String)> {
        self.get_path(host, "/")
    }

    fn get_path(&self, host: &str, path: &str) -> Option<(u16, String)> {
        let answer = exchange(self.http, &format!("GET {path} HTTP/1.1\r\nHost: {host}"), "")?;
        Some((answer.status, answer.body))
    }

    #[track_caller]
    pub fn answers(&self, host: &str, status: u16, body: &str) {
        self.answers_path(host, "/", status, body);
    }

    #[track_caller]
    pub fn answers_path(&self, host: &str, path: &str, status: u16, body: &str) {
        until(&format!("{host}{path} answers {status} {body}"), || match self.get_path(host, path) {
            Some((found, text)) if found == status && text.contains(body) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    pub fn directory(&self) -> PathBuf {
        self.data.join(&format!("agent-{}", self.router))
    }

    fn proxy_id_file(&self) -> PathBuf {
        self.directory().join(format!("proxy/{}.pid", self.proxy))
    }

    pub fn site_file(&self) -> PathBuf {
        self.directory().join("site.json")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.process.take());
        // An agent that is killed leaves its proxy.
        if let Ok(id) = std::fs::read_to_string(self.proxy_id_file())
            && std::fs::read_to_string(format!("/proc/{}/comm", id.trim())).is_ok_and(|name| name.trim() == self.proxy)
        {
            let _ = Command::new("kill").args(["-TERM", id.trim()]).status();
        }
    }
}

/// Sends requests all the time and counts those without the right response.
struct Client {
    right: Arc<AtomicUsize>,
    wrong: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    fn start(server: SocketAddr) -> Client {
        let (right, wrong, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let shared = (Arc::clone(&right), Arc::clone(&wrong), Arc::<AtomicBool>::clone(&stop));
        let thread = std::thread::spawn(move || {
            let (right, wrong, stop) = shared;
            while !stop.load(Ordering::Relaxed) {
                let answer = exchange(server, &format!("GET / HTTP/1.1\r\nHost: {NAME}"), "");
                let is_right = answer.is_some_and(|answer| answer.status == 200);
                let count = if is_right { &right } else { &wrong };
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        });
        Client { right, wrong, stop, thread: Some(thread) }
    }

    /// Waits for more right answers, and finds no others.
    #[track_caller]
    fn check(&self, when: &str) {
        let before = self.right.load(Ordering::Relaxed);
        eventually(when, || (self.right.load(Ordering::Relaxed) > before + 20).then_some(()));
        assert_eq!(self.wrong.load(Ordering::Relaxed), 0, "{when}");
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it has no assertion");
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts a platform, and creates the kubeconfig of an agent.
pub fn platform(data: &DataDir, ports: Ports) -> (Server, Kubectl) {
    platform_with(data, ports, &DOMAIN)
}

/// Starts a platform with these arguments, and creates the kubeconfig of an agent.
pub fn platform_with(data: &DataDir, ports: Ports, arguments: &[&str]) -> (Server, Kubectl) {
    let server = Server::start(ports, &[&["--data-dir", data.path()][..], arguments].concat());
    agent_user(data, "shard1");
    (server, Kubectl::new(data.join("kubeconfig")))
}

/// Creates the user and the kubeconfig of a Router's agent.
pub fn agent_user(data: &DataDir, router: &str) {
    let (directory, kubeconfig) = (["--data-dir", data.path()], data.join(&format!("{router}.kubeconfig")));
    let user = format!("agent-{router}");
    let add = ["user", "add", &user, "--role", "router-agent", "--router", router, "--no-credential"];
    program::ok(&[&add[..], &directory].concat());
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    program::ok(&[&["kubeconfig", "--user", &user, "--out", kubeconfig][..], &directory].concat());
}

/// Returns the Router shard1 with addresses, and the namespace of the Routes. An instance that leaves serves for the TTL in seconds
/// after DNS has dropped its address: long enough for some requests on a busy machine.
pub fn router(addresses: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: shard1}}\nspec: {{ttl: 5, addresses: [{addresses}]}}\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {{name: web}}\n---\n"
    )
}

#[test]
fn a_route_is_served_until_its_instance_has_left() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let (server, kubectl) = platform(&data, ports);
    let mut agent = Agent::new(&data, ports.dns);
    let own = format!("{{ip: {}}}", agent.http.ip());
    kubectl.ok_with(&["apply", "-f", "-"], &router(&format!("{own}, {{ip: 192.0.2.1}}")).replace("ttl: 5", "ttl: 15"));
    let objects = service("shop", application("shop")) + &route("shop", "shop") + &route("none", "none");
    kubectl.ok_with(&["apply", "-f", "-"], &objects);

    agent.start();
    agent.answers(NAME, 200, "shop");
    agent.answers("web-shop.routes.example.org", 200, "shop");
    agent.answers("web-none.shard1.example.org", 503, "");
    agent.answers("other.shard1.example.org", 404, "");
    let annotation = |name: &str| {
        let leases =
            kubectl.json(&["leases", "-n", AGENT_NAMESPACE, "-l", "app.kubernetes.io/component=router-instance"]);
        let value = leases["items"][0]["metadata"]["annotations"][format!("instance.signpost.dev/{name}")].clone();
        value.as_str().map(str::to_owned)
    };
    let binding =
        kubectl.json(&["routebindings.signpost.dev", "shop", "-n", "web"])["metadata"]["resourceVersion"].clone();
    let number = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
    let binding = number(binding.as_str().map(str::to_owned)).expect("a number");
    eventually("the Lease reports the binding", || (number(annotation("applied-revision"))? >= binding).then_some(()));
    assert_eq!((annotation("state").as_deref(), annotation("router").as_deref()), (Some("serving"), Some("shard1")));

    let mut client = Client::start(agent.http);
    kubectl.ok_with(&["apply", "-f", "-"], &(service("late", application("late")) + &route("late", "late")));
    agent.answers("web-late.shard1.example.org", 200, "late");
    client.check("a Route came");

    // The new agent adopts the proxy of its killed predecessor.
    let proxy = std::fs::read_to_string(agent.proxy_id_file()).expect("HAProxy runs");
    agent.kill();
    client.check("the agent was killed");
    agent.start();
    agent.process.as_ref().expect("it runs").logs("adopted");
    client.check("another agent started");
    assert_eq!(std::fs::read_to_string(agent.proxy_id_file()).expect("HAProxy runs"), proxy);

    // Without the API, a restarted agent and its proxy serve the last known state, once it is written: the agent limits the time that it
    // spends on that.
    eventually("the last-known-good Site has the Route", || {
        let site = std::fs::read_to_string(agent.site_file()).ok()?;
        site.contains("web-late.shard1.example.org").then_some(())
    });
    server.kill();
    agent.kill();
    client.check("the API was killed");
    client.stop();
    assert!(Command::new("kill").args(["-KILL", &proxy]).status().expect("kill runs").success());
    eventually("HAProxy ends", || agent.get(NAME).is_none().then_some(()));
    agent.start();
    agent.answers("web-late.shard1.example.org", 200, "late");
    agent.answers("web-none.shard1.example.org", 503, "");

    let _server = Server::start(ports, &[&["--data-dir", data.path()][..], &DOMAIN].concat());
    let mut client = Client::start(agent.http);
    kubectl.ok_with(&["apply", "-f", "-"], &route("again", "late"));
    agent.answers("web-again.shard1.example.org", 200, "late");
    agent.process.as_ref().expect("it runs").signal("TERM");
    eventually("the Lease reports that the instance leaves", || (annotation("state")? == "leaving").then_some(()));
    client.check("the instance leaves");
    agent.process.as_ref().expect("it runs").logs("DNS no longer returns the address");
    client.check("DNS does not return the address, and its time to live has not passed");
    client.stop();
    assert!(agent.process.take().expect("it runs").wait().success());
    assert_eq!((agent.get(NAME), annotation("state")), (None, None));
    // The spec still lists the address, and nothing serves there.
    until_addresses(ports.dns, &["192.0.2.1"], "the instance has ended");
    until_instances(&kubectl, "0/1");
}

/// Waits until the shard's names have exactly these addresses.
#[track_caller]
fn until_addresses(dns: SocketAddr, expected: &[&str], when: &str) {
    until(when, || {
        let answer = dig(dns, NAME, "A", &[]);
        let mut found = answer.data("A");
        found.sort_unstable();
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

/// Waits for the column INSTANCES of the Router.
#[track_caller]
fn until_instances(kubectl: &Kubectl, expected: &str) {
    until(&format!("INSTANCES is {expected}"), || {
        let line = kubectl.ok(&["get", "routers.signpost.dev", "shard1", "--no-headers"]);
        if line.split_whitespace().any(|word| word == expected) { Ok(()) } else { Err(line) }
    });
}

/// A machine that dies with its agent and its proxy leaves answers, although the spec lists its address, until it is back.
#[test]
fn the_address_of_a_dead_machine_leaves_dns_until_an_agent_is_back() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let (_server, kubectl) = platform(&data, ports);
    let mut agent = Agent::new(&data, ports.dns);
    let own = agent.http.ip().to_string();
    kubectl.ok_with(&["apply", "-f", "-"], &router(&format!("{{ip: {own}}}, {{ip: 192.0.2.1}}")));
    kubectl.ok_with(&["apply", "-f", "-"], &(service("shop", application("shop")) + &route("shop", "shop")));
    agent.start();
    agent.answers(NAME, 200, "shop");
    let both = [own.as_str(), "192.0.2.1"];
    until_addresses(ports.dns, &both, "both addresses are answered");
    until_instances(&kubectl, "1/1");

    agent.process.take().expect("it runs").kill();
    let proxy = std::fs::read_to_string(agent.proxy_id_file()).expect("HAProxy runs");
    assert!(Command::new("kill").args(["-KILL", &proxy]).status().expect("kill runs").success());
    until_addresses(ports.dns, &["192.0.2.1"], "the dead address has left");
    until_instances(&kubectl, "0/1");
    // The status remembers it when its Lease is gone.
    kubectl.ok(&["delete", "leases", "-n", AGENT_NAMESPACE, "-l", "app.kubernetes.io/component=router-instance"]);
    let status = || kubectl.json(&["routers.signpost.dev", "shard1"])["status"].clone();
    kubectl.ok(&["patch", "router", "shard1", "--type=merge", "-p", r#"{"spec":{"ttl":6}}"#]);
    eventually("the zone has another TTL", || {
        let answer = dig(ports.dns, NAME, "A", &[]);
        (answer.answer.iter().all(|record| record.ttl == 6)).then_some(())
    });
    assert_eq!(dig(ports.dns, NAME, "A", &[]).data("A"), ["192.0.2.1"]);
    assert_eq!((&status()["instances"][0]["ip"], &status()["instances"][0]["state"]), (&json!(own), &json!("expired")));

    agent.start();
    until_addresses(ports.dns, &both, "an agent is back");
    until_instances(&kubectl, "1/1");
    // Without it in the spec, nothing is remembered.
    agent.process.take().expect("it runs").kill();
    until_instances(&kubectl, "0/1");
    kubectl.ok(&["delete", "leases", "-n", AGENT_NAMESPACE, "-l", "app.kubernetes.io/component=router-instance"]);
    kubectl.ok_with(&["apply", "-f", "-"], &router("{ip: 192.0.2.1}"));
    eventually("the status forgets it", || status()["instances"].is_null().then_some(()));
}
