//! A platform with a managed instance of its Router, applications, and clients of a bystander's Route.
//!
//! Everything is inside a network namespace, so that the instance and the applications have addresses that tenants may use.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Bystander, Platform, routes_path};
use signpost_testing::client::Client;
use signpost_testing::net::exchange;
use signpost_testing::{eventually, until, wait_for};

/// The address of the instance of `shard1`, which the Router names.
const INSTANCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The address of the instance of `shard2`.
const SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The address of all applications.
const APPLICATIONS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);
/// The network of the attackers, and of endpoints that nothing listens on.
const ATTACKERS: &str = "198.18.0.1/16";
/// The most ports of a Service. An EndpointSlice can have more.
const SERVICE_PORTS_MAX: usize = 64;
/// The name of the bystander's Route.
const BYSTANDER: &str = "bystander-app.shard1.v3.rhcloud.com";
/// The longest time that a bystander's request, or a new Route of the bystander, takes during an attack. The slowest machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Returns an address of the attackers.
pub fn attacker(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(198, 18, high, low)
}

pub struct Scene {
    pub platform: Platform,
    pub proxy: &'static str,
    pub http: SocketAddr,
    pub https: SocketAddr,
    /// The listener of the Router `shard2` for HTTP.
    pub second: SocketAddr,
    /// The tenant of the namespace `attacker`.
    pub attacker: Client,
    /// The tenant of the namespace `bystander`.
    pub tenant: Client,
    bystander: Bystander,
    web: WebClient,
}

impl Scene {
    /// Starts the platform with a proxy, and waits until the bystander's Route is served. The shards take the Routes whose label `shard` is
    /// absent, or `two`.
    pub fn start(proxy: &'static str, flags: &[&str]) -> Scene {
        for address in [INSTANCE, SECOND, APPLICATIONS].map(|ip| format!("{ip}/32")).iter().map(String::as_str) {
            add_address(address);
        }
        add_address(ATTACKERS);
        let platform = Platform::start(flags);
        let (attacker, bystander) = (platform.tenant("attacker"), platform.bystander());
        let tenant = platform.user("bystander2", &["--role", "tenant", "-n", "bystander"]);
        eventually("the server knows the user", || (tenant.get(&routes_path("bystander"))?.0 == 200).then_some(()));
        let spec = |key: &str, extra: Value| {
            let mut spec = json!({"type": proxy, "instances": 1});
            spec[key] = extra;
            json!({"spec": spec})
        };
        let others = json!({"matchExpressions": [{"key": "shard", "operator": "DoesNotExist"}]});
        let patch = spec("routeSelector", others).to_string();
        platform.admin.ok(&["patch", "router", "shard1", "--type=merge", "-p", &patch]);
        let mut second = spec("routeSelector", json!({"matchLabels": {"shard": "two"}}));
        (second["apiVersion"], second["kind"]) = ("signpost.dev/v1alpha1".into(), "Router".into());
        second["metadata"] = json!({"name": "shard2"});
        second["spec"]["dns"] = "shard2.v3.rhcloud.com".into();
        second["spec"]["addresses"] = json!([{"ip": SECOND.to_string()}]);
        platform.admin.ok_with(&["apply", "-f", "-"], &second.to_string());
        let http = SocketAddr::from((INSTANCE, 80));
        let application = application();
        service(&tenant, "bystander", "web", &[application.ip()], &[application.port()]);
        // Workers that nginx replaces answer for a moment, too.
        let mut served = 0;
        wait_for("the bystander's Route is served", || {
            served = if get(http, BYSTANDER) == Some(200) { served + 1 } else { 0 };
            served == 10
        });
        let web = WebClient::start(http);
        Scene {
            platform,
            proxy,
            http,
            https: (INSTANCE, 443).into(),
            second: (SECOND, 80).into(),
            attacker,
            tenant,
            bystander,
            web,
        }
    }

    /// Creates a Route of the bystander, and waits until it is served; returns how long that took.
    #[track_caller]
    pub fn new_route(&self, name: &str) -> Duration {
        let began = Instant::now();
        route(&self.tenant, "bystander", name, json!({"to": {"name": "web"}}), None);
        let host = format!("bystander-{name}.shard1.v3.rhcloud.com");
        self.answers(&host, 200);
        let elapsed = began.elapsed();
        assert!(elapsed < PATIENCE, "a new Route of the bystander was served after {elapsed:?}");
        elapsed
    }

    #[track_caller]
    pub fn answers(&self, host: &str, status: u16) {
        until(&format!("{host} answers {status}"), || match get(self.http, host) {
            Some(found) if found == status => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }

    /// Returns the directory of the proxy of `shard1`.
    pub fn directory(&self) -> PathBuf {
        let routers = std::fs::read_dir(self.platform.data.join("routers")).expect("it has instances").flatten();
        let mut directories = routers.map(|entry| entry.path().join("agent-shard1/proxy"));
        directories.find(|path| path.exists()).expect("the instance runs").canonicalize().expect("it is there")
    }

    /// Returns the process ids of the proxy of `shard1`, apart from those that have ended.
    pub fn processes(&self) -> Vec<String> {
        let directory = self.directory();
        let entries = std::fs::read_dir("/proc").expect("Linux has it").flatten();
        let own =
            entries.filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == directory));
        own.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Ends the clients: all of their requests succeeded.
    #[track_caller]
    pub fn was_served(self) {
        let requests = self.web.stop();
        let is_served = requests.failures.is_empty() && requests.slowest < PATIENCE;
        assert!(is_served, "others were not served: {requests:#?}\n{}", logs(&self.platform));
        println!("{}: {requests:?}", self.proxy);
        println!("{}: {:?}", self.proxy, self.bystander.was_served());
    }
}

/// Returns the logs of the instances.
fn logs(platform: &Platform) -> String {
    let instances = std::fs::read_dir(platform.data.join("routers")).into_iter().flatten().flatten();
    instances.map(|instance| std::fs::read_to_string(instance.path().join("log")).unwrap_or_default()).collect()
}

fn add_address(address: &str) {
    let added =
        Command::new("ip").args(["address", "add", address, "dev", "lo"]).status().expect("iproute2 is installed");
    assert!(added.success(), "{address}");
}

/// Creates or replaces a Service and its EndpointSlice, with all of some ports on each address.
pub fn service(client: &Client, namespace: &str, name: &str, addresses: &[IpAddr], ports: &[u16]) {
    let metadata = json!({"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": name}});
    let ports: Vec<Value> = ports.iter().map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"ports": ports[..ports.len().min(SERVICE_PORTS_MAX)]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": metadata, "endpoints": endpoints, "ports": ports});
    for (path, object) in [
        (format!("/api/v1/namespaces/{namespace}/services"), service),
        (format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"), slice),
    ] {
        let (status, answer) = client.send("POST", &path, Some(&object));
        let (status, answer) = match status {
            409 => client.send("PATCH", &format!("{path}/{name}"), Some(&object)),
            _ => (status, answer),
        };
        assert!([200, 201].contains(&status), "{status} {answer}");
    }
}

/// Creates a Route, for the shard with this label.
pub fn route(client: &Client, namespace: &str, name: &str, spec: Value, shard: Option<&str>) {
    let mut route =
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": name}, "spec": spec});
    if let Some(shard) = shard {
        route["metadata"]["labels"] = json!({"shard": shard});
    }
    let (status, answer) = client.send("POST", &routes_path(namespace), Some(&route));
    assert_eq!(status, 201, "{answer}");
}

/// Returns the status of a response for a host.
pub fn get(server: SocketAddr, host: &str) -> Option<u16> {
    exchange(server, &format!("GET / HTTP/1.1\r\nHost: {host}"), "").map(|answer| answer.status)
}

/// Requests the bystander's Route; returns why that fails.
fn request(server: SocketAddr) -> Result<(), String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).map_err(|error| format!("connect: {error}"))?;
    let head = format!("GET / HTTP/1.1\r\nHost: {BYSTANDER}\r\nConnection: close\r\n\r\n");
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    stream.write_all(head.as_bytes()).map_err(|error| format!("write: {error}"))?;
    let mut response = String::new();
    stream.read_to_string(&mut response).map_err(|error| format!("read: {error} after {response:?}"))?;
    match response.starts_with("HTTP/1.1 200 ") && response.ends_with("ok") {
        true => Ok(()),
        false => Err(response),
    }
}

/// Starts a listener that serves each connection in a thread.
pub fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((APPLICATIONS, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Starts an application that answers each request after its head with `ok`. The response to `/endless` has no end, and `/wait` none at all.
pub fn application() -> SocketAddr {
    listen(|mut stream| {
        let Some(head) = read_head(&mut stream) else { return };
        match head.split(' ').nth(1) {
            Some("/endless") => {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
                while stream.write_all(&[b'x'; 1 << 16]).is_ok() {}
            }
            Some("/wait") => _ = stream.read_to_end(&mut Vec::new()),
            _ => _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
        }
    })
}

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut buffer) = (Vec::new(), [0; 4_096]);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// Starts an application that passes connections on to a listener, from an address of the attackers, and replaces a text in each part by
/// another one of the same length. Returns the number of its connections, too.
pub fn bouncer(
    from: Ipv4Addr,
    to: SocketAddr,
    replacement: Option<[&'static str; 2]>,
) -> (SocketAddr, Arc<AtomicUsize>) {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let address = listen(move |mut client| {
        counted.fetch_add(1, Ordering::Relaxed);
        let Ok(mut server) = connect(from, to) else { return };
        let (Ok(mut back), Ok(mut forth)) = (client.try_clone(), server.try_clone()) else { return };
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut server, &mut back);
            let _ = back.shutdown(std::net::Shutdown::Both);
        });
        let mut buffer = [0; 16_384];
        while let Ok(read @ 1..) = client.read(&mut buffer) {
            if let Some([text, by]) = replacement
                && let Some(at) = buffer[..read].windows(text.len()).position(|window| window == text.as_bytes())
            {
                buffer[at..at + by.len()].copy_from_slice(by.as_bytes());
            }
            if forth.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = forth.shutdown(std::net::Shutdown::Both);
    });
    (address, connections)
}

/// Connects from an address.
pub fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

/// The number of requests that a client sends at least, also if a test ends soon.
const REQUESTS_MIN: usize = 20;

/// A client that requests the bystander's Route all the time, each time on a new connection.
struct WebClient {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Requests>,
}

/// The requests of a client.
#[derive(Debug, Default)]
struct Requests {
    count: usize,
    failures: Vec<String>,
    slowest: Duration,
}

impl WebClient {
    fn start(http: SocketAddr) -> WebClient {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut requests = Requests::default();
            while !stopped.load(Ordering::Relaxed) || requests.count < REQUESTS_MIN {
                let began = Instant::now();
                let outcome = request(http);
                requests.count += 1;
                requests.slowest = requests.slowest.max(began.elapsed());
                if let Err(error) = outcome {
                    requests.failures.push(format!("request {} after {:?}: {error}", requests.count, began.elapsed()));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            requests
        });
        WebClient { stop, thread }
    }

    fn stop(self) -> Requests {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it does not panic")
    }
}
