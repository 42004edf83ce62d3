//! 200 Routes on two Routers with two instances each, one Router with HAProxy and one with nginx, while clients request every Route all
//! the time: by Unbound, from each address that it returns.
//!
//! No request fails while instances drain, Routes move, proxies reload, Routers scale and certificates change, and while the API, a name
//! server or an agent is dead. When an instance is dead, requests to its address fail until its Lease and the TTL have passed, but not
//! those of a client that tries the next address.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::namespace::inside_namespace;
use signpost_testing::net::exchange;
use signpost_testing::peers::unbound;
use signpost_testing::program;
use signpost_testing::{DataDir, Kubectl, Ports, Process, Server, until};

const ROUTES: usize = 200;
/// The TTL of the addresses, in seconds.
const TTL: u64 = 2;
/// The clients; each requests its share of the Routes.
const CLIENTS: usize = 3;
/// The pause of a client before a request: what it requests needs the processors, too.
const PAUSE: Duration = Duration::from_millis(8);
/// One request in this number is over HTTPS.
const SECURE_SHARE: usize = 8;
/// The age of a resolver's answer up to which a client uses it: an instance that leaves serves for a second after the TTL. A client that
/// the system has kept from the processors for longer resolves the name again.
pub const ANSWER_AGE_MAX: Duration = Duration::from_millis(500);
const RESOLVER: SocketAddr = at([127, 0, 0, 5], 53);
/// CURLE_HTTP2, the exit code of curl for an error of the HTTP/2 connection.
const CURL_HTTP2_ERROR: i32 = 16;
const NAME_SERVERS: [SocketAddr; 2] = [at([127, 0, 0, 3], 53), at([127, 0, 0, 4], 53)];
const PLATFORM: [&str; 6] = [
    "--domain",
    "example.org",
    "--nameserver",
    "ns1.example.org=127.0.0.3",
    "--nameserver",
    "ns2.example.org=127.0.0.4",
];

const fn at(ip: [u8; 4], port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(ip[0], ip[1], ip[2], ip[3])), port)
}

#[test]
fn no_request_fails() {
    if !inside_namespace("routers::no_request_fails") {
        return;
    }
    let mut scene = Scene::start();
    let clients = Clients::start(scene.names());
    clients.check("all are well");

    scene.stop("a1");
    clients.check("an instance with HAProxy has left");
    scene.start_instance("a1");
    scene.stop("b1");
    clients.check("an instance with nginx has left");
    scene.start_instance("b1");
    clients.check("both have come back");

    scene.start_instance("a3");
    scene.start_instance("b3");
    clients.check("the Routers are scaled up");
    scene.stop("a3");
    scene.stop("b3");
    clients.check("the Routers are scaled down");

    scene.move_routes(40, "shard2");
    clients.add(&scene.names());
    clients.check("Routes have moved to the Router with nginx");
    scene.move_routes(40, "shard1");
    clients.add(&scene.names());
    clients.check("Routes have moved to the Router with HAProxy");

    let secure = SecureClients::start(&scene);
    scene.write_certificate();
    scene.sees_certificate();
    secure.check("the certificate has changed");
    clients.check("the certificate has changed");
    drop(secure);

    scene.kill_agent("a1");
    scene.kill_agent("b1");
    clients.check("agents are dead, and their proxies are not");
    scene.start_instance("a1");
    scene.start_instance("b1");
    clients.check("other agents have adopted them");

    scene.api.take().expect("it runs").kill();
    clients.check("the API is dead");
    scene.api = Some(scene.start_api());
    scene.servers[0].take().expect("it runs").kill();
    clients.check("a name server is dead");
    scene.servers[0] = Some(scene.start_name_server(0));
    clients.check("the platform is well again");

    clients.try_the_next_address(true);
    let killed = scene.instances["b2"].proxy_id();
    scene.kill_proxy("b2");
    clients.check("a proxy was killed, and its agent starts it again");
    scene.is_served("b2", &killed);
    clients.try_the_next_address(false);
    clients.check("it serves again");

    clients.try_the_next_address(true);
    let killed = Instant::now();
    scene.kill_agent("a2");
    scene.kill_proxy("a2");
    // A cached answer lives for the TTL.
    scene.dns_returns("shard1", &["a1"]);
    std::thread::sleep(Duration::from_secs(TTL + 2));
    let time = killed.elapsed();
    clients.try_the_next_address(false);
    clients.check("a machine is dead");
    println!("{} requests; a dead instance was gone from answers after {time:.1?}", clients.count());
}

/// The platform, its name servers, a resolver, the applications and the instances.
struct Scene {
    api: Option<Server>,
    api_ports: Ports,
    servers: [Option<Server>; 2],
    instances: BTreeMap<&'static str, Instance>,
    kubectl: Kubectl,
    _resolver: Process,
    /// The serial number of the last certificate.
    certificate: u64,
    certificates: DataDir,
    server_data: [DataDir; 2],
    data: DataDir,
}

/// An instance of a Router.
struct Instance {
    router: &'static str,
    proxy: &'static str,
    address: IpAddr,
    data: DataDir,
    agent: Option<Process>,
}

impl Scene {
    fn start() -> Scene {
        let (data, server_data) = (DataDir::new(), [DataDir::new(), DataDir::new()]);
        let api_ports = Ports::free();
        let stubs = NAME_SERVERS.map(|server| ("example.org", server));
        let mut scene = Scene {
            api: None,
            api_ports,
            servers: [None, None],
            instances: BTreeMap::new(),
            kubectl: Kubectl::new(data.join("kubeconfig")),
            _resolver: unbound(RESOLVER, data.join("").as_path(), &stubs),
            certificate: 0,
            certificates: DataDir::new(),
            server_data,
            data,
        };
        scene.api = Some(scene.start_api());
        let (directory, kubeconfig) = (["--data-dir", scene.data.path()], scene.data.file("agent.kubeconfig"));
        let user = ["user", "add", "agent1", "--role", "router-agent", "--router", "shard1,shard2", "--no-credential"];
        program::ok(&[&user[..], &directory].concat());
        program::ok(&[&["kubeconfig", "--user", "agent1", "--out", &kubeconfig][..], &directory].concat());
        scene.servers = [0, 1].map(|index| Some(scene.start_name_server(index)));
        scene.kubectl.ok_with(&["apply", "-f", "-"], &routers());
        scene.write_certificate();
        for (name, router, proxy, octet) in [
            ("a1", "shard1", "haproxy", 11),
            ("a2", "shard1", "haproxy", 12),
            ("a3", "shard1", "haproxy", 13),
            ("b1", "shard2", "nginx", 21),
            ("b2", "shard2", "nginx", 22),
            ("b3", "shard2", "nginx", 23),
        ] {
            let address = IpAddr::from([127, 64, 0, octet]);
            let instance = Instance { router, proxy, address, data: DataDir::new(), agent: None };
            scene.instances.insert(name, instance);
        }
        for name in ["a1", "a2", "b1", "b2"] {
            scene.start_instance(name);
        }
        for router in ["router/shard1", "router/shard2"] {
            scene.kubectl.ok(&["wait", "--for=condition=InstancesReady", "--timeout=180s", router]);
        }
        scene.kubectl.ok_with(&["apply", "-f", "-"], &routes(application()));
        until("all Routes are ready", || match scene.routes(is_ready).len() {
            ROUTES => Ok(()),
            count => Err(count.to_string()),
        });
        scene
    }

    fn start_api(&self) -> Server {
        let roles = ["--roles", "api,scheduler,admin", "--data-dir", self.data.path()];
        Server::start(self.api_ports, &[&roles[..], &PLATFORM].concat())
    }

    fn start_name_server(&self, index: usize) -> Server {
        let kubeconfig = self.data.file("name-server.kubeconfig");
        let roles = ["--roles", "dns,admin", "--kubeconfig", &kubeconfig, "--data-dir", self.server_data[index].path()];
        let ports = Ports { dns: NAME_SERVERS[index], ..Ports::free() };
        Server::start(ports, &[&roles[..], &PLATFORM].concat())
    }

    /// Starts the agent of an instance, and waits until DNS returns its address.
    fn start_instance(&mut self, name: &str) {
        let instance = self.instances.get_mut(name).expect("it is an instance");
        let address = instance.address.to_string();
        let mut command = program::command(&["agent"]);
        command
            .args(["--router", instance.router, "--proxy", instance.proxy, "--address", &address])
            .args(["--data-dir", instance.data.path(), "--kubeconfig", &self.data.file("agent.kubeconfig")])
            .args(["--certificates", self.certificates.path(), "--loopback-endpoints"])
            .args(["--admin-listen", &Ports::free().admin.to_string()])
            .args(NAME_SERVERS.iter().flat_map(|server| ["--name-server".to_owned(), server.to_string()]));
        instance.agent = Some(Process::logged(&mut command));
        let (router, address) = (instance.router, instance.address);
        until(&format!("DNS returns {address}"), || {
            let found = addresses_of(&mut Asker::new(NAME_SERVERS[0]), &format!("any.{router}.example.org"));
            if found.contains(&address) { Ok(()) } else { Err(format!("{found:?}")) }
        });
    }

    /// Stops an instance as an operator does.
    fn stop(&mut self, name: &str) {
        let agent = self.instances.get_mut(name).and_then(|instance| instance.agent.take()).expect("it runs");
        assert!(agent.terminate().success(), "{name}");
    }

    fn kill_agent(&mut self, name: &str) {
        self.instances.get_mut(name).and_then(|instance| instance.agent.take()).expect("it runs").kill();
    }

    /// Kills the proxy of an instance with all of its processes.
    fn kill_proxy(&self, name: &str) {
        self.instances[name].kill_proxy();
    }

    /// Waits until another proxy than `killed` serves: a worker that it had just started may outlive it for a while.
    fn is_served(&self, name: &str, killed: &str) {
        let address = SocketAddr::new(self.instances[name].address, 80);
        until(&format!("{name} serves"), || match self.instances[name].proxy_id() {
            id if id.is_empty() || id == killed => Err(std::io::Error::other("its proxy was not started again")),
            _ => TcpStream::connect(address).map(drop),
        });
    }

    /// Waits until the name servers return the addresses of these instances and no others.
    fn dns_returns(&self, router: &str, names: &[&str]) {
        let mut expected: Vec<IpAddr> = names.iter().map(|name| self.instances[name].address).collect();
        expected.sort_unstable();
        for server in NAME_SERVERS {
            until(&format!("{server} returns the addresses of {names:?}"), || {
                let found = addresses_of(&mut Asker::new(server), &format!("any.{router}.example.org"));
                if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
            });
        }
    }

    /// Returns the Routes of which this holds.
    fn routes(&self, holds: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut routes = self.kubectl.json(&["routes", "-n", "web"]);
        let routes = routes["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
        routes.into_iter().filter(holds).collect()
    }

    /// Returns the system names of the Routes, where they are now.
    fn names(&self) -> Vec<String> {
        let routes = self.routes(|route| route["status"]["dns"].is_string());
        assert_eq!(routes.len(), ROUTES);
        routes.iter().filter_map(|route| route["status"]["dns"].as_str()).map(str::to_owned).collect()
    }

    /// Moves `count` Routes of the other Router to one, and waits until they are ready there.
    fn move_routes(&self, count: usize, to: &str) {
        let others = self.routes(|route| route["status"]["router"] != to);
        let others: Vec<&str> =
            others.iter().filter_map(|route| route["metadata"]["name"].as_str()).take(count).collect();
        let annotation = format!("signpost.dev/move-to={to}");
        self.kubectl.ok(&[&["annotate", "routes", "-n", "web", "--overwrite"], &others[..], &[&annotation]].concat());
        until(&format!("{count} Routes are on {to}"), || {
            let has_moved = |route: &Value| {
                let name = route["metadata"]["name"].as_str().unwrap_or_default();
                route["status"]["router"] == to && others.contains(&name) && is_ready(route)
            };
            match self.routes(has_moved).len() {
                moved if moved == count => Ok(()),
                moved => Err(moved.to_string()),
            }
        });
    }

    /// Writes a certificate for the hosts of both Routers, with another serial number than the previous certificate.
    fn write_certificate(&mut self) {
        self.certificate += 1;
        let key = rcgen::KeyPair::generate().expect("a key");
        for router in ["shard1", "shard2"] {
            let host = format!("{router}.example.org");
            let mut parameters = rcgen::CertificateParams::new([format!("*.{host}")]).expect("parameters");
            parameters.serial_number = Some(self.certificate.into());
            let pem = parameters.self_signed(&key).expect("a certificate").pem();
            let temporary = self.certificates.write(".new", pem + &key.serialize_pem());
            std::fs::rename(temporary, self.certificates.join(&format!("_wildcard.{host}.pem"))).expect("a file");
        }
    }

    /// Waits until every instance that runs shows the last certificate.
    fn sees_certificate(&self) {
        let (expected, names) = (format!("serial={:02X}", self.certificate), self.names());
        for instance in self.instances.values().filter(|instance| instance.agent.is_some()) {
            let (address, name) = (instance.address, name_on(instance.router, &names));
            until(&format!("{address} shows the new certificate"), || {
                let command = format!(
                    "openssl s_client -connect {address}:443 -servername {name} </dev/null 2>/dev/null | \
                     openssl x509 -noout -serial"
                );
                let shown = Command::new("sh").args(["-c", &command]).output().expect("openssl is installed").stdout;
                let shown = String::from_utf8_lossy(&shown).trim().to_owned();
                if shown == expected { Ok(()) } else { Err(shown) }
            });
        }
    }
}

impl Instance {
    fn proxy_id_file(&self) -> PathBuf {
        let directory = self.data.join(&format!("agent-{}", self.router));
        directory.join(format!("proxy/{}.pid", self.proxy))
    }

    /// Returns the identifier of its proxy's first process; empty: it has none.
    fn proxy_id(&self) -> String {
        std::fs::read_to_string(self.proxy_id_file()).unwrap_or_default().trim().to_owned()
    }

    fn kill_proxy(&self) {
        let master = self.proxy_id();
        if master.is_empty() {
            return;
        }
        let children = std::fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap_or_default();
        let is_proxy =
            |id: &&str| std::fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name.trim() == self.proxy);
        let ids: Vec<&str> = [&*master].into_iter().chain(children.split_whitespace()).filter(is_proxy).collect();
        if !ids.is_empty() {
            let _ = Command::new("kill").arg("-KILL").args(ids).status();
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(self.agent.take());
        self.kill_proxy();
    }
}

fn is_ready(route: &Value) -> bool {
    let conditions = route["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns an application that answers each request with its host.
pub fn application() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(mut stream: TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    while let Some(request) = lines.next().filter(|line| !line.is_empty()) {
        assert!(request.starts_with("GET "), "{request}");
        let head = lines.by_ref().take_while(|line| !line.is_empty());
        let host =
            head.filter_map(|line| line.to_ascii_lowercase().strip_prefix("host: ").map(str::to_owned)).last()?;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{host}", host.len()).ok()?;
    }
    Some(())
}

fn routers() -> String {
    let router = |name| {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
            "spec": {"ttl": TTL, "addressesFrom": {"instances": true}, "instances": 2}})
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [router("shard1"), router("shard2")]}).to_string()
}

/// Returns the Routes to the application.
fn routes(application: SocketAddr) -> String {
    let mut objects = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "web"}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "web"},
            "spec": {"ports": [{"port": 80, "targetPort": application.port()}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "web-1", "namespace": "web", "labels": {"kubernetes.io/service-name": "web"}},
            "endpoints": [{"addresses": [application.ip()]}], "ports": [{"port": application.port()}]}),
    ];
    objects.extend((0..ROUTES).map(|number| {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"name": format!("r{number}"), "namespace": "web"},
            "spec": {"to": {"name": "web"}, "port": {"targetPort": 80},
                "tls": {"termination": "edge", "insecureEdgeTerminationPolicy": "Allow"}}})
    }));
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

fn addresses_of(asker: &mut Asker, name: &str) -> Vec<IpAddr> {
    let answer = asker.ask(name, RecordType::A, Duration::from_secs(5));
    answer.map_or(Vec::new(), |answer| answer.addresses.into_iter().collect())
}

/// Clients that request every name all the time.
struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    start: Instant,
}

#[derive(Default)]
struct Shared {
    names: RwLock<Vec<String>>,
    failures: Mutex<Vec<String>>,
    requests: AtomicU64,
    /// The number of times that each client has requested all of its names.
    rounds: [AtomicU64; CLIENTS],
    tries_the_next: AtomicBool,
    stop: AtomicBool,
}

impl Clients {
    fn start(names: Vec<String>) -> Clients {
        let shared = Arc::new(Shared { names: RwLock::new(names), ..Shared::default() });
        let threads = (0..CLIENTS).map(|client| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.request_all(client))
        });
        Clients { threads: threads.collect(), shared, start: Instant::now() }
    }

    /// Adds names; those before are requested on.
    fn add(&self, names: &[String]) {
        let mut known = self.shared.names.write().expect("no thread panics");
        known.extend_from_slice(names);
        known.sort_unstable();
        known.dedup();
    }

    fn try_the_next_address(&self, does: bool) {
        self.shared.tries_the_next.store(does, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Waits until every name was requested from each address again, and checks that no request has failed since the start.
    #[track_caller]
    fn check(&self, when: &str) {
        let rounds = || self.shared.rounds.each_ref().map(|rounds| rounds.load(Ordering::Relaxed));
        let before = rounds();
        until(&format!("{when}: every name is requested"), || {
            let now = rounds();
            let is_done = now.iter().zip(before).all(|(now, before)| *now >= before + 2);
            if is_done { Ok(()) } else { Err(format!("{now:?}")) }
        });
        let failures = self.shared.failures.lock().expect("no thread panics").clone();
        assert!(failures.is_empty(), "{when}: {} failures: {:#?}", failures.len(), &failures[..failures.len().min(8)]);
        println!("{:.1?}: {when}", self.start.elapsed());
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Shared {
    fn request_all(&self, client: usize) {
        let mut resolver = Asker::new(RESOLVER);
        for round in 1.. {
            let names = self.names.read().expect("no thread panics").clone();
            for (index, name) in names.iter().enumerate().skip(client).step_by(CLIENTS) {
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(PAUSE);
                let is_secure = (index / CLIENTS + round).is_multiple_of(SECURE_SHARE);
                if let Err(error) = self.request(&mut resolver, name, round, is_secure) {
                    self.failures.lock().expect("no thread panics").push(format!("{name}: {error}"));
                }
            }
            self.rounds[client].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a request for a name to one of its addresses, a different one in each round.
    fn request(&self, resolver: &mut Asker, name: &str, round: usize, is_secure: bool) -> Result<(), String> {
        let addresses = loop {
            let asked = Instant::now();
            let addresses = addresses_of(resolver, name);
            if asked.elapsed() <= ANSWER_AGE_MAX {
                break addresses;
            }
        };
        let count = addresses.len();
        let mut error = "the resolver returns no address".to_owned();
        for index in 0..count {
            let address = addresses[(round + index) % count];
            self.requests.fetch_add(1, Ordering::Relaxed);
            let (is_answered, what) = if is_secure {
                let curl = curl(name, address, "--http1.1");
                (curl.stdout == name.as_bytes(), format!("{curl:?}"))
            } else {
                let answer = exchange(SocketAddr::new(address, 80), &format!("GET / HTTP/1.1\r\nHost: {name}"), "");
                let is_answered = answer.as_ref().is_some_and(|answer| answer.status == 200 && answer.body == name);
                (is_answered, format!("{answer:?}"))
            };
            if is_answered {
                return Ok(());
            }
            error = format!("{address}: {what}");
            if !self.tries_the_next.load(Ordering::Relaxed) {
                break;
            }
        }
        Err(error)
    }
}

/// Sends a request for a name over HTTPS, in a version of HTTP.
fn curl(name: &str, address: IpAddr, version: &str) -> Output {
    let (url, resolve) = (format!("https://{name}/"), format!("{name}:443:{address}"));
    let mut curl = Command::new("curl");
    curl.args([version, "-ksS", "--max-time", "20", "--resolve", &resolve, &url]);
    curl.output().expect("curl is installed")
}

/// Returns the name of one Route on a Router.
fn name_on<'a>(router: &str, names: &'a [String]) -> &'a str {
    names.iter().find(|name| name.contains(router)).expect("it has Routes")
}

/// Clients that request one Route of each Router over HTTPS all the time, from each instance.
struct SecureClients {
    stop: Arc<AtomicBool>,
    failures: Arc<Mutex<Vec<String>>>,
    requests: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl SecureClients {
    fn start(scene: &Scene) -> SecureClients {
        let (stop, failures, requests) = <(Arc<AtomicBool>, Arc<Mutex<Vec<String>>>, Arc<AtomicU64>)>::default();
        let names = scene.names();
        let running = scene.instances.values().filter(|instance| instance.agent.is_some());
        let threads = running.map(|Instance { router, proxy, address, .. }| {
            let (name, address, is_nginx) = (name_on(router, &names).to_owned(), *address, *proxy == "nginx");
            let (stop, failures, requests) = (Arc::clone(&stop), Arc::clone(&failures), Arc::clone(&requests));
            std::thread::spawn(move || {
                for version in ["--http1.1", "--http2"].into_iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let mut output = curl(&name, address, version);
                    // A reload of nginx ends a new HTTP/2 connection with GOAWAY, last stream 0. Clients send the request again (RFC 9113,
                    // section 8.7), but curl 7.88 does not.
                    if is_nginx && version == "--http2" && output.status.code() == Some(CURL_HTTP2_ERROR) {
                        output = curl(&name, address, version);
                    }
                    requests.fetch_add(1, Ordering::Relaxed);
                    if output.stdout != name.as_bytes() {
                        failures.lock().expect("no thread panics").push(format!("{address}: {version}: {output:?}"));
                    }
                }
            })
        });
        SecureClients { threads: threads.collect(), stop, failures, requests }
    }

    #[track_caller]
    fn check(&self, when: &str) {
        let before = self.requests.load(Ordering::Relaxed);
        until(&format!("{when}: requests over HTTPS"), || {
            let count = self.requests.load(Ordering::Relaxed) - before;
            if count > 20 { Ok(()) } else { Err(count.to_string()) }
        });
        let failures = self.failures.lock().expect("no thread panics").clone();
        assert!(failures.is_empty(), "{when}: {:#?}", &failures[..failures.len().min(8)]);
    }
}

impl Drop for SecureClients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
