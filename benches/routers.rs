//! The path from a Route to a response of its application: through the API, the scheduler, DNS, and one proxy that the platform
//! runs: HAProxy, or nginx with `SIGNPOST_BENCH_PROXY=nginx`.
//!
//! `cargo bench --bench routers` starts the real program on an embedded store in a temporary directory and prints
//!
//! - the time from a Route's acknowledgement until a request to it returns 200 on an idle system (p50, p99); its name is answered
//!   before that,
//! - the time from acknowledgement until one changed Route leads to its other Service, and until one new Route is served, among
//!   `SIGNPOST_BENCH_ROUTES` Routes (default 10,000),
//! - the number of reloads for these,
//! - the resident memory of the agent and of HAProxy, and the CPU time of both per change,
//! - the same memory, and the time until another new Route is served, while a namespace has as many servers as it may have.
//!
//! The baseline is the same machine's time for a request through a running HAProxy. For nginx, which reloads for each change, there are
//! fewer samples, with longer pauses, and a default of 1,000 Routes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::net::{exchange, free_address, http_get};
use signpost_testing::{DataDir, Ports, Server};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;

const DOMAIN: &str = "bench.example";
const CLIENTS: usize = 64;
/// The admin endpoint of the instance's agent.
const AGENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 64, 0, 1)), 9453);
const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_micros(200);

/// The extent of a run.
struct Extent {
    /// The kind of the Router, and the number of its Routes by default.
    kind: &'static str,
    routes: usize,
    samples: usize,
    /// The number of new Routes after the changed ones.
    new: usize,
    /// The pause between two samples of an idle system.
    pause: Duration,
}

const HAPROXY: Extent =
    Extent { kind: "haproxy", routes: 10_000, samples: 300, new: 700, pause: Duration::from_millis(50) };
/// Workers that were replaced end in the pause.
const NGINX: Extent =
    Extent { kind: "nginx", routes: 1_000, samples: 100, new: 100, pause: Duration::from_millis(800) };

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let Extent { kind, routes: most, samples, new, pause } = match std::env::var("SIGNPOST_BENCH_PROXY").as_deref() {
        Ok("nginx") => NGINX,
        _ => HAPROXY,
    };
    let (data, ports) = (DataDir::new(), Ports::free());
    let limits = ["--namespace-routes", "1000000", "--namespace-route-bytes", "16Gi"];
    let server = Server::start(ports, &[&["--domain", DOMAIN, "--data-dir", data.path()], &limits[..]].concat());
    let kubeconfig = data.join("kubeconfig");
    let client = signpost_control::client::from_kubeconfig(
        &kubeconfig,
        Duration::from_secs(60),
        &signpost_control::client::failover::Servers::default(),
    )
    .await
    .expect("an API");
    let http = free_address().port();
    let proxy = SocketAddr::new(AGENT.ip(), http);
    for name in ["a", "b"] {
        serve_application(&client, name).await;
    }
    let routers: Api<Router> = Api::all(client.clone());
    let spec = json!({"type": kind, "instances": 1, "ports": {"http": http, "https": free_address().port()}});
    create(&routers, json!({"metadata": {"name": "shard1"}, "spec": spec})).await;
    until("the instance serves", || TcpStream::connect(proxy).is_ok());
    let routes: Api<Route> = Api::namespaced(client.clone(), "default");
    let mut asker = Asker::new(ports.dns);
    let mut answered = |name: &str| {
        let answer = asker.ask(name, RecordType::A, Duration::from_secs(1));
        answer.is_some_and(|answer| !answer.addresses.is_empty())
    };

    // The first Route waits for the Router's addresses.
    create(&routes, route("first", 0)).await;
    until("the first Route is served", || is_from(proxy, &name("first", 0), "a"));
    // A worker that nginx replaces accepts connections for a moment longer.
    tokio::time::sleep(pause).await;
    let mut floor = Samples::default();
    for _ in 0..samples {
        let begun = Instant::now();
        assert!(is_from(proxy, &name("first", 0), "a"));
        floor.add(begun);
    }
    println!("floor: a request through {kind}: {floor}");
    let mut reached = Samples::default();
    for number in 0..samples {
        create(&routes, route("idle", number)).await;
        let acknowledged = Instant::now();
        let name = name("idle", number);
        until("it is answered", || answered(&name));
        until("it is served", || is_from(proxy, &name, "a"));
        reached.add(acknowledged);
        tokio::time::sleep(pause).await;
    }
    println!(
        "route create acknowledged -> 200 through {kind}, idle: {reached} (goals for HAProxy: p50 50 ms, p99 250 ms)"
    );

    let count = std::env::var("SIGNPOST_BENCH_ROUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(most);
    let begun = Instant::now();
    stream::iter(0..count).for_each_concurrent(CLIENTS, |number| create(&routes, route("fill", number))).await;
    until("all are served", || (0..count).step_by(97).all(|number| is_from(proxy, &name("fill", number), "a")));
    println!("{count} Routes created and served: {:.0} a second", count as f64 / begun.elapsed().as_secs_f64());
    while !all_are_ready(&routes).await {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (processes, before) = (Processes::of(&server), reloads());

    let mut changed = Samples::default();
    for number in 0..samples {
        let patch = Patch::Merge(json!({"spec": {"to": {"name": "b"}}}));
        routes.patch(&format!("fill-{number}"), &PatchParams::default(), &patch).await.expect("patched");
        let acknowledged = Instant::now();
        let name = name("fill", number);
        until("it leads elsewhere", || is_from(proxy, &name, "b"));
        changed.add(acknowledged);
        tokio::time::sleep(pause).await;
    }
    let reloaded = reloads() - before;
    println!(
        "one Route among {count} led to another Service: {changed}, {reloaded:.0} reloads (goals: HAProxy p99 20 ms without a reload, \
         nginx p50 250 ms)"
    );
    let mut created = Samples::default();
    for number in 0..new {
        create(&routes, route("new", number)).await;
        let acknowledged = Instant::now();
        let name = name("new", number);
        until("it is served", || is_from(proxy, &name, "a"));
        created.add(acknowledged);
        tokio::time::sleep(pause).await;
    }
    // HAProxy needs one when a quarter more Routes exist than at the last.
    println!("one new Route among {count}: {created}, {:.0} reloads", reloads() - before - reloaded);
    let changes = samples + new;
    for (name, (resident, cpu)) in Processes::of(&server).0 {
        let before = processes.0.get(&name).map_or(Duration::ZERO, |(_, cpu)| *cpu);
        let each = cpu.saturating_sub(before).as_secs_f64() * 1e3 / changes as f64;
        println!("{name}: {} MiB resident, {each:.2} ms CPU for a change, with the request", resident / 1024);
    }
    if kind == "nginx" {
        return stop(&server);
    }
    let full = fill_a_namespace(&client, proxy).await;
    let mut with_full = Samples::default();
    for number in 0..samples / 3 {
        create(&routes, route("other", number)).await;
        let acknowledged = Instant::now();
        let name = name("other", number);
        until("it is served", || is_from(proxy, &name, "a"));
        with_full.add(acknowledged);
        tokio::time::sleep(pause).await;
    }
    println!("one new Route, while another namespace has {full} servers: {with_full}");
    for (name, (resident, _)) in Processes::of(&server).0 {
        println!("{name}: {} MiB resident with these", resident / 1024);
    }
    stop(&server);
}

/// Ends the server, and its instances with it.
fn stop(server: &Server) {
    server.signal("INT");
    std::thread::sleep(Duration::from_secs(5));
}

/// Creates Routes in a namespace of its own until it has the most servers that a namespace may have, and a few beyond; returns how many
/// servers they would have. Their endpoints are unreachable.
async fn fill_a_namespace(client: &kube::Client, proxy: SocketAddr) -> usize {
    // The defaults of --route-servers and --namespace-servers.
    const OF_A_ROUTE: usize = 200;
    const OF_A_NAMESPACE: usize = 15_000;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    create(&namespaces, json!({"metadata": {"name": "full"}})).await;
    let services: Api<Service> = Api::namespaced(client.clone(), "full");
    create(&services, json!({"metadata": {"name": "app"}, "spec": {"ports": [{"port": 80}]}})).await;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "full");
    let endpoint = |number: usize| json!({"addresses": [format!("10.200.0.{number}")]});
    let endpoints: Vec<Value> = (1..=OF_A_ROUTE).map(endpoint).collect();
    let metadata = json!({"name": "app-1", "labels": {"kubernetes.io/service-name": "app"}});
    let slice = json!({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 80}]});
    create(&slices, slice).await;
    let routes: Api<Route> = Api::namespaced(client.clone(), "full");
    let count = OF_A_NAMESPACE / OF_A_ROUTE + 5;
    for number in 0..count {
        create(&routes, json!({"metadata": {"name": format!("r{number}")}, "spec": {"to": {"name": "app"}}})).await;
    }
    let status = |number: usize| {
        let head = format!("HEAD / HTTP/1.1\r\nHost: full-r{number}.shard1.{DOMAIN}\r\nConnection: close");
        exchange(proxy, &head, "").map(|answer| answer.status)
    };
    // A Route beyond the limit has no servers and responds immediately.
    until("the last one is refused", || status(count - 1) == Some(503));
    count * OF_A_ROUTE
}

/// Times.
#[derive(Default)]
struct Samples(Vec<Duration>);

impl Samples {
    fn add(&mut self, since: Instant) {
        self.0.push(since.elapsed());
    }
}

impl std::fmt::Display for Samples {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = |hundredth: usize| sorted[sorted.len() * hundredth / 100].as_secs_f64() * 1e3;
        write!(f, "p50 {:.2} ms, p99 {:.2} ms, {} samples", at(50), at(99), sorted.len())
    }
}

/// Resident memory in KiB and CPU time of the instance's processes, by what they are.
struct Processes(BTreeMap<&'static str, (u64, Duration)>);

impl Processes {
    fn of(server: &Server) -> Processes {
        let mut found: BTreeMap<&str, (u64, Duration)> = BTreeMap::new();
        let mut parents = vec![server.id()];
        while let Some(parent) = parents.pop() {
            let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
            let children = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
            for id in children.flat_map(|ids| ids.split_whitespace().map(str::to_owned).collect::<Vec<_>>()) {
                let Ok(id) = id.parse() else { continue };
                parents.push(id);
                let read = |file: &str| std::fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default();
                let is_proxy = [HAPROXY.kind, NGINX.kind].contains(&read("comm").trim());
                let name = if is_proxy { "the proxy, with its master" } else { "the agent" };
                let resident = read("status")
                    .lines()
                    .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
                // proc_pid_stat(5): the 14th and 15th fields, in hundredths of a second.
                let stat = read("stat");
                let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(11).take(2);
                let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
                let entry = found.entry(name).or_default();
                entry.0 += resident.unwrap_or(0);
                entry.1 += Duration::from_millis(ticks * 10);
            }
        }
        Processes(found)
    }
}

/// Returns whether all Routes are ready, after which the platform has no work left.
async fn all_are_ready(routes: &Api<Route>) -> bool {
    let listed = routes.list(&ListParams::default()).await.expect("Routes");
    listed.iter().all(|route| {
        let mut conditions = route.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    })
}

/// Returns the number of starts and reloads of the proxy.
fn reloads() -> f64 {
    let (_, metrics) = http_get(AGENT, "/metrics").expect("the agent answers");
    let line = metrics.lines().find_map(|line| line.strip_prefix("signpost_agent_reloads_total "));
    line.and_then(|value| value.trim().parse().ok()).expect("it counts reloads")
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(POLL);
    }
}

/// Returns whether a name is served by this application.
fn is_from(proxy: SocketAddr, name: &str, application: &str) -> bool {
    let answer = exchange(proxy, &format!("GET / HTTP/1.1\r\nHost: {name}"), "");
    answer.is_some_and(|answer| answer.status == 200 && answer.body == application)
}

fn name(prefix: &str, number: usize) -> String {
    format!("default-{prefix}-{number}.shard1.{DOMAIN}")
}

fn route(prefix: &str, number: usize) -> Value {
    json!({"metadata": {"name": format!("{prefix}-{number}")}, "spec": {"to": {"name": "a"}}})
}

async fn create<K>(objects: &Api<K>, object: Value)
where
    K: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
{
    let object = serde_json::from_value(object).expect("an object of this kind");
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = objects.create(&PostParams::default(), &object).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Starts an application that answers with its name, and makes its Service.
async fn serve_application(client: &kube::Client, name: &'static str) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream, name));
        }
    });
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let port = json!([{"port": 80, "targetPort": address.port()}]);
    create(&services, json!({"metadata": {"name": name}, "spec": {"ports": port}})).await;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), "default");
    let labels = json!({"kubernetes.io/service-name": name});
    create(
        &slices,
        json!({
            "metadata": {"name": format!("{name}-1"), "labels": labels}, "addressType": "IPv4",
            "endpoints": [{"addresses": [address.ip()]}], "ports": [{"port": address.port()}],
        }),
    )
    .await;
}

fn answer(mut stream: TcpStream, name: &str) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines().map_while(Result::ok);
    while lines.next().is_some_and(|line| !line.is_empty()) {
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        // In one segment: the system sends the second one only after the proxy's delayed acknowledgment.
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len());
        stream.write_all(response.as_bytes()).ok()?;
    }
    Some(())
}
