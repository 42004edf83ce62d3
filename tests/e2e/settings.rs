//! Each setting of `Route.spec.traffic`, its annotations, and `Router.spec.proxy`, from `kubectl apply` to what a client sees, on
//! both proxies. One platform and two agents serve all rows, each with a Route of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use crate::agent::{Agent, agent_user, platform, service};
use signpost_testing::{DataDir, Kubectl, Ports, until};

/// The Routers, each with its proxy.
const ROUTERS: [(&str, &str); 2] = [("shard1", "haproxy"), ("shard2", "nginx")];
/// The client that is in `trustedProxies`, and one that is not.
const TRUSTED: &str = "127.0.0.9";
const OTHER: &str = "127.0.0.2";
const OWN: &str = "127.0.0.1";
/// The longest time for the outcome of a row.
const PATIENCE: Duration = Duration::from_secs(60);
/// The rows at a time.
const CONCURRENCY: usize = 12;
const HSTS: &str = "Strict-Transport-Security";

/// The requests of a client, and the part of the outcome that the row shows.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// A GET from an address, with further header lines: the status.
    Get(&'static str, &'static str, &'static str),
    /// The same over TLS: the status.
    Https(&'static str),
    /// A header of a response over HTTP, and over TLS.
    Header(&'static str),
    /// A POST with a body: the status.
    Post(usize),
    /// An upgrade to a protocol, and silence for a time in milliseconds: the status, and whether the connection is open then.
    Upgrade(&'static str, u64),
    /// 15 requests: whether about ten were served, and the others refused.
    Burst,
    /// Requests with the cookies of the first response: the number of endpoints that answered.
    Sessions,
    /// The first words of a connection to the application.
    FirstWords,
    /// A connection that is idle after a response for a time in milliseconds: whether it is open then.
    Idle(u64),
    /// A connection from an address that begins with these octets: the status, and `X-Forwarded-For` at the application.
    Announced(&'static str, &'static [u8]),
}

/// A Route on each proxy, the outcome there, and the reason of the condition `SettingsHonored`, if it is there.
struct Row {
    spec: Value,
    annotations: Value,
    probe: Probe,
    outcome: [&'static str; 2],
    reason: [&'static str; 2],
}

fn traffic(traffic: Value, probe: Probe, outcome: [&'static str; 2]) -> Row {
    Row { spec: json!({"traffic": traffic}), annotations: json!({}), probe, outcome, reason: [""; 2] }
}

/// A row with annotations of OpenShift, without their common part.
fn annotated(annotations: &[(&str, &str)], probe: Probe, outcome: [&'static str; 2]) -> Row {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(name, value)| (name.replace("H/", "haproxy.router.openshift.io/"), *value)).collect();
    Row { annotations: json!(annotations), ..traffic(json!({}), probe, outcome) }
}

impl Row {
    fn with_tls(mut self) -> Row {
        self.spec["tls"] = json!({"termination": "edge", "insecureEdgeTerminationPolicy": "Allow"});
        self
    }

    fn unhonored(self, haproxy: &'static str, nginx: &'static str) -> Row {
        Row { reason: [haproxy, nginx], ..self }
    }
}

fn rows_of_routes() -> Vec<Row> {
    let hsts = json!({"hsts": {"maxAgeSeconds": 31_536_000, "includeSubDomains": true, "preload": true}});
    let hsts_header = "of the application, max-age=31536000; includeSubDomains; preload";
    let networks = |networks: &[&str]| json!({"allowedNetworks": networks});
    let get = Probe::Get(OWN, "/", "");
    let (unsupported, invalid) = ("NotSupported", "InvalidAnnotation");
    vec![
        traffic(json!({}), get, ["200"; 2]),
        traffic(json!({"requestTimeoutSeconds": 1}), Probe::Get(OWN, "/silence", ""), ["504"; 2]),
        traffic(json!({"requestTimeoutSeconds": 30}), Probe::Get(OWN, "/slow", ""), ["200"; 2]),
        traffic(json!({"tunnelTimeoutSeconds": 1}), Probe::Upgrade("websocket", 3_500), ["101 closed"; 2]),
        traffic(json!({"tunnelTimeoutSeconds": 20}), Probe::Upgrade("websocket", 1_500), ["101 open"; 2]),
        traffic(json!({"maxRequestBodyBytes": 10}), Probe::Post(10), ["200"; 2]).unhonored(unsupported, ""),
        traffic(json!({"maxRequestBodyBytes": 10}), Probe::Post(11), ["413"; 2]).unhonored(unsupported, ""),
        traffic(json!({}), Probe::Sessions, ["2"; 2]),
        traffic(json!({"stickySessions": {}}), Probe::Sessions, ["1"; 2]).unhonored("", unsupported),
        traffic(json!({"stickySessions": {"cookieName": "sid"}}), Probe::Sessions, ["1"; 2]).unhonored("", unsupported),
        traffic(networks(&["127.0.0.1"]), get, ["200"; 2]),
        traffic(networks(&["127.0.0.1"]), Probe::Get(OTHER, "/", ""), ["403"; 2]),
        traffic(networks(&["127.0.0.1"]), Probe::Get(OTHER, "/", "X-Forwarded-For: 127.0.0.1\r\n"), ["403"; 2]),
        traffic(networks(&["10.0.0.0/8", "127.0.0.2/31"]), Probe::Get(OTHER, "/", ""), ["200"; 2]),
        traffic(networks(&["127.0.0.2"]), Probe::Https(OTHER), ["200"; 2]).with_tls(),
        traffic(networks(&["127.0.0.2"]), Probe::Https(OWN), ["403"; 2]).with_tls(),
        traffic(json!({}), Probe::Header(HSTS), ["of the application, of the application"; 2]).with_tls(),
        traffic(hsts.clone(), Probe::Header(HSTS), [hsts_header; 2]).with_tls(),
        traffic(hsts, get, ["200"; 2]).unhonored(unsupported, unsupported),
        traffic(json!({"requestsPerSecond": 1}), Probe::Burst, ["limited"; 2]),
        traffic(json!({}), Probe::Burst, ["15 of 200"; 2]),
        traffic(json!({"proxyProtocol": "v1"}), Probe::FirstWords, ["PROXY TCP4 127.0.0.1", "GET / HTTP/1.1"])
            .unhonored("", unsupported),
        traffic(json!({"proxyProtocol": "v2"}), Probe::FirstWords, ["PROXY version 2", "GET / HTTP/1.1"])
            .unhonored("", unsupported),
        traffic(json!({}), Probe::Upgrade("spdy/3.1", 0), ["200"; 2]),
        traffic(json!({"upgrades": ["spdy/3.1"]}), Probe::Upgrade("spdy/3.1", 0), ["101 open"; 2]),
        traffic(json!({"upgrades": []}), Probe::Upgrade("websocket", 0), ["200"; 2]),
        // The annotations of OpenShift.
        annotated(&[("H/timeout", "900ms")], Probe::Get(OWN, "/silence", ""), ["504"; 2]),
        annotated(&[("H/timeout-tunnel", "1s")], Probe::Upgrade("websocket", 3_500), ["101 closed"; 2]),
        annotated(&[("H/ip_allowlist", "127.0.0.9 10.0.0.0/8")], get, ["403"; 2]),
        annotated(&[("H/ip_whitelist", "127.0.0.0/8")], get, ["200"; 2]),
        // An IPv4 network as a part of IPv6.
        annotated(&[("H/ip_allowlist", "::ffff:127.0.0.2/127")], Probe::Get(OTHER, "/", ""), ["200"; 2]),
        annotated(
            &[("H/hsts_header", "max-age=60;includeSubDomains")],
            Probe::Header(HSTS),
            ["of the application, max-age=60; includeSubDomains"; 2],
        )
        .with_tls(),
        annotated(&[("router.openshift.io/cookie_name", "sid")], Probe::Sessions, ["1"; 2]).unhonored("", unsupported),
        annotated(
            &[("router.openshift.io/cookie_name", "sid"), ("H/disable_cookies", "true")],
            Probe::Sessions,
            ["2"; 2],
        ),
        annotated(
            &[("H/rate-limit-connections", "true"), ("H/rate-limit-connections.rate-http", "10")],
            Probe::Burst,
            ["limited"; 2],
        ),
        annotated(&[("H/timeout", "soon")], get, ["200"; 2]).unhonored(invalid, invalid),
        annotated(&[("H/ip_allowlist", "everyone")], get, ["403"; 2]).unhonored(invalid, invalid),
        // A field comes before an annotation.
        Row {
            spec: json!({"traffic": networks(&["127.0.0.1"])}),
            ..annotated(&[("H/ip_allowlist", "10.0.0.0/8")], get, ["200"; 2])
        },
    ]
}

/// The platform, the agents, and the application.
struct Scene {
    runtime: Runtime,
    kubectl: Kubectl,
    agents: [Agent; 2],
    _server: signpost_testing::Server,
    _data: DataDir,
}

impl Scene {
    fn start() -> Scene {
        let (data, ports) = (DataDir::new(), Ports::free());
        let (server, kubectl) = platform(&data, ports);
        agent_user(&data, "shard2");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("threads");
        let mut objects = "apiVersion: v1\nkind: Namespace\nmetadata: {name: web}\n".to_owned();
        for (router, _) in ROUTERS {
            let spec = json!({"addressesFrom": {"instances": true}, "routeSelector": {"matchLabels": {"on": router}}});
            objects += &format!("---\n{}\n", object("Router", json!({"name": router}), spec));
        }
        let endpoints = [(); 2].map(|()| runtime.block_on(application()));
        objects += &service("app", endpoints[0]);
        // A further slice has another port.
        let second = service("app", endpoints[1]).replace("\"name\":\"app-1\"", "\"name\":\"app-2\"");
        objects += second.rsplit_once("---\n").map(|(_, slice)| format!("---\n{slice}")).as_deref().unwrap_or_default();
        kubectl.ok_with(&["apply", "-f", "-"], &objects);
        let mut agents = ROUTERS.map(|(router, proxy)| Agent::on(&data, ports.dns, router, proxy));
        agents.iter_mut().for_each(Agent::start);
        Scene { runtime, kubectl, agents, _server: server, _data: data }
    }

    /// Sets `spec.proxy` of both Routers.
    fn set_routers(&self, proxy: &Value) {
        let patch = json!({"spec": {"proxy": proxy}}).to_string();
        for (router, _) in ROUTERS {
            self.kubectl.ok(&["patch", "router", router, "--type=merge", "-p", &patch]);
        }
    }

    /// Applies the Routes of rows, and waits until both proxies serve them, and kubectl shows the conditions.
    fn apply(&self, prefix: &str, rows: &[Row]) -> Vec<[String; 2]> {
        let name = |at: usize, shard: usize| format!("{prefix}{at}-{shard}");
        let mut objects = String::new();
        for (at, row) in rows.iter().enumerate() {
            for (shard, (router, _)) in ROUTERS.iter().enumerate() {
                let metadata = json!({"name": name(at, shard), "namespace": "web", "labels": {"on": router},
                    "annotations": row.annotations});
                let mut spec = row.spec.clone();
                spec["to"] = json!({"name": "app"});
                spec["port"] = json!({"targetPort": 80});
                objects += &format!("---\n{}\n", object("Route", metadata, spec));
            }
        }
        self.kubectl.ok_with(&["apply", "-f", "-"], &objects);
        let found = |name: &str, routes: &Value, reason: &str| -> Result<String, String> {
            let items = routes["items"].as_array().into_iter().flatten();
            let route = items.into_iter().find(|route| route["metadata"]["name"] == name).ok_or("absent")?;
            let condition = |kind: &str| {
                let conditions = route["status"]["conditions"].as_array().into_iter().flatten();
                conditions.into_iter().find(|one| one["type"] == kind).cloned().unwrap_or_default()
            };
            let honored = condition("SettingsHonored");
            if condition("Programmed")["status"] != "True" || honored["reason"].as_str().unwrap_or_default() != reason {
                return Err(format!("{name}, {reason:?}: {}", route["status"]));
            }
            Ok(route["status"]["dns"].as_str().unwrap_or_default().to_owned())
        };
        until("all Routes are served, with their conditions", || {
            let routes = self.kubectl.json(&["routes.signpost.dev", "-n", "web"]);
            let of_row = |(at, row): (usize, &Row)| {
                let [haproxy, nginx] = [0, 1].map(|shard| found(&name(at, shard), &routes, row.reason[shard]));
                Ok([haproxy?, nginx?])
            };
            rows.iter().enumerate().map(of_row).collect::<Result<Vec<_>, String>>()
        })
    }

    /// Runs the probes of rows, and compares their outcomes. On a busy machine, an application can respond too late, and a burst lasts longer than a
    /// second: a probe is repeated when the ten seconds of a rate have passed.
    fn check(&self, hosts: &[[String; 2]], rows: &[Row]) {
        let probes = rows.iter().zip(hosts).flat_map(|(row, hosts)| [0, 1].map(|shard| (row, hosts, shard)));
        let run = |(row, hosts, shard): (&Row, &[String; 2], usize)| {
            let (agent, host, probe) = (&self.agents[shard], hosts[shard].clone(), row.probe);
            let client = Client { host, http: agent.http, https: agent.https };
            let (expected, about) = (row.outcome[shard], format!("{} {} {probe:?}", row.spec, row.annotations));
            async move {
                let mut wrong = Vec::new();
                for pause in [0, 12, 12] {
                    sleep(Duration::from_secs(pause)).await;
                    let outcome = timeout(PATIENCE, client.run(probe)).await;
                    let outcome = outcome.unwrap_or_else(|_| "no outcome".to_owned());
                    if outcome == expected {
                        return None;
                    }
                    wrong.push(outcome);
                }
                Some(format!("{} {about}: {}, not {expected}", ROUTERS[shard].1, wrong.join(", then ")))
            }
        };
        let outcomes = futures::stream::iter(probes.map(run)).buffer_unordered(CONCURRENCY);
        let wrong: Vec<String> = self.runtime.block_on(outcomes.filter_map(std::future::ready).collect());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Waits until a Route of each proxy shows that the settings of its Router are in use.
    fn until_outcome(&self, hosts: &[[String; 2]], row: &Row) {
        for (shard, expected) in row.outcome.iter().enumerate() {
            let (agent, host) = (&self.agents[shard], hosts[0][shard].clone());
            let client = Client { host, http: agent.http, https: agent.https };
            until(&format!("{} {:?}", ROUTERS[shard].1, row.probe), || {
                let outcome = self.runtime.block_on(async { timeout(PATIENCE, client.run(row.probe)).await });
                match outcome.unwrap_or_else(|_| "no outcome".to_owned()) {
                    outcome if outcome == *expected => Ok(()),
                    outcome => Err(outcome),
                }
            });
        }
    }
}

fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

#[test]
fn each_setting_has_its_effect_on_both_proxies() {
    let scene = Scene::start();
    let rows = rows_of_routes();
    scene.check(&scene.apply("r", &rows), &rows);

    refused(&scene.kubectl);
    at_the_maxima(&scene);
    of_the_routers(&scene);
}

/// kubectl shows why the API does not take a value.
fn refused(kubectl: &Kubectl) {
    for (traffic, words) in [
        (json!({"requestTimeoutSeconds": 86_401}), "spec.traffic.requestTimeoutSeconds"),
        (json!({"tunnelTimeoutSeconds": 604_801}), "spec.traffic.tunnelTimeoutSeconds"),
        (json!({"maxRequestBodyBytes": 1_099_511_627_777_u64}), "spec.traffic.maxRequestBodyBytes"),
        (json!({"requestsPerSecond": 100_001}), "spec.traffic.requestsPerSecond"),
        (json!({"requestsPerSecond": 0}), "spec.traffic.requestsPerSecond"),
        (json!({"allowedNetworks": ["192.0.2.0/33"]}), "spec.traffic.allowedNetworks"),
        (json!({"allowedNetworks": ["::ffff:192.0.2.0/120"]}), "spec.traffic.allowedNetworks"),
        (
            json!({"allowedNetworks": (0..65).map(|at| format!("192.0.2.{at}")).collect::<Vec<_>>()}),
            "spec.traffic.allowedNetworks",
        ),
        (json!({"upgrades": ["h2c"]}), "spec.traffic.upgrades"),
        (json!({"stickySessions": {"cookieName": "a b"}}), "spec.traffic.stickySessions.cookieName"),
        (json!({"hsts": {"maxAgeSeconds": 1, "preload": true}}), "spec.traffic.hsts"),
        (json!({"proxyProtocol": "v3"}), "spec.traffic.proxyProtocol"),
    ] {
        let spec = json!({"to": {"name": "app"}, "traffic": traffic});
        let route = object("Route", json!({"name": "refused", "namespace": "web"}), spec).to_string();
        let message = kubectl.refused(&["apply", "-f", "-"], &route);
        assert!(message.contains(words), "{traffic}: {message}");
    }
}

/// A tenant without values, at every maximum of its Router, and beyond: the maximum holds, and kubectl shows that.
fn at_the_maxima(scene: &Scene) {
    scene.set_routers(
        &json!({"maxima": {"requestTimeoutSeconds": 1, "tunnelTimeoutSeconds": 1, "maxRequestBodyBytes": 10,
        "requestsPerSecond": 1}}),
    );
    let wanted = |factor: u32| {
        json!({"requestTimeoutSeconds": factor, "tunnelTimeoutSeconds": factor, "maxRequestBodyBytes": 10 * factor,
            "requestsPerSecond": factor})
    };
    let mut rows = Vec::new();
    for (values, haproxy, nginx) in [
        (json!({}), "", ""),
        // HAProxy does not limit all bodies.
        (wanted(1), "NotSupported", ""),
        (wanted(1_000), "NotSupported", "AboveMaximum"),
    ] {
        for (probe, outcome) in [
            (Probe::Get(OWN, "/silence", ""), "504"),
            (Probe::Upgrade("websocket", 3_500), "101 closed"),
            (Probe::Post(10), "200"),
            (Probe::Post(11), "413"),
            (Probe::Burst, "limited"),
        ] {
            rows.push(traffic(values.clone(), probe, [outcome; 2]).unhonored(haproxy, nginx));
        }
    }
    let hosts = scene.apply("m", &rows);
    // A change of a Router does not change its Routes.
    scene.until_outcome(&hosts[2..], &rows[3]);
    scene.check(&hosts, &rows);
    let last = format!("m{}-1", rows.len() - 1);
    let condition = scene.kubectl.condition(&["routes.signpost.dev", &last, "-n", "web"], "SettingsHonored");
    let message = condition.expect("it is there").message;
    for words in
        ["1000 s is above the maximum of Router shard2, so 1 s applies", "10000 bytes", "1000 requests per second"]
    {
        assert!(message.contains(words), "{message}");
    }
    scene.set_routers(&Value::Null);
}

/// `spec.proxy` without its maxima.
fn of_the_routers(scene: &Scene) {
    let networks = json!({"allowedNetworks": ["192.0.2.1", "127.0.0.2"]});
    let plain = |probe: Probe, outcome: [&'static str; 2]| traffic(json!({}), probe, outcome);
    let of = |probe: Probe, outcome: [&'static str; 2]| traffic(networks.clone(), probe, outcome);
    let from = |client: &'static str, headers: &'static str| Probe::Get(client, "/", headers);
    let (one, two) = ("X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 192.0.2.2\r\n");
    let rows = vec![plain(Probe::Idle(3_000), ["open"; 2]), of(from(TRUSTED, one), ["403"; 2])];
    let hosts = scene.apply("a", &rows);
    scene.check(&hosts, &rows);

    scene.set_routers(&json!({"trustedProxies": [TRUSTED], "keepAliveSeconds": 1, "accessLog": {"output": "file"}}));
    let limited = || traffic(json!({"requestsPerSecond": 1}), from(TRUSTED, one), ["200"; 2]);
    let rows = vec![
        of(from(TRUSTED, one), ["200"; 2]),
        of(from(TRUSTED, two), ["403"; 2]),
        of(from(OTHER, two), ["200"; 2]),
        of(from(OWN, one), ["403"; 2]),
        plain(Probe::Idle(3_000), ["closed"; 2]),
        plain(Probe::Announced(TRUSTED, b""), ["200 127.0.0.9"; 2]),
        limited(),
    ];
    let hosts = scene.apply("b", &rows);
    scene.until_outcome(&hosts, &rows[0]);
    scene.check(&hosts, &rows);
    // Clients behind one proxy have a rate each.
    let hosts = vec![hosts[6].clone(); 16];
    let burst: Vec<Row> = (0..15).map(|_| limited()).chain([Row { probe: from(TRUSTED, two), ..limited() }]).collect();
    for (agent, host) in scene.agents.iter().zip(&hosts[0]) {
        let client = Client { host: host.clone(), http: agent.http, https: agent.https };
        let statuses: Vec<String> = burst.iter().map(|row| scene.runtime.block_on(client.run(row.probe))).collect();
        let (last, first) = statuses.split_last().expect("there are 16");
        assert!(first.contains(&"429".to_owned()) && last == "200", "{statuses:?}");
    }
    for agent in &scene.agents {
        until("the access log has the requests", || {
            let log = std::fs::read_to_string(agent.directory().join("access.log")).unwrap_or_default();
            let lines = || log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let is_it = |line: &Value| {
                let route = line["route"].as_str().unwrap_or_default();
                route.starts_with("web/b0-") && line["status"] == 200 && line["method"] == "GET"
            };
            if lines().any(|line| is_it(&line)) { Ok(()) } else { Err(log.clone()) }
        });
    }

    scene.set_routers(&json!({"trustedProxies": [TRUSTED], "clientAddress": "proxy-protocol"}));
    // In version 2, `LOCAL` is a health check of the load balancer itself.
    const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    const VERSION_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x09\x03\xe8\0\x50";
    let announced = |octets: &'static [u8]| Probe::Announced(TRUSTED, octets);
    let rows = vec![
        of(announced(b"PROXY TCP4 192.0.2.1 192.0.2.9 1000 80\r\n"), ["200 192.0.2.1"; 2]),
        of(announced(b"PROXY TCP4 192.0.2.2 192.0.2.9 1000 80\r\n"), ["403 none"; 2]),
        of(announced(VERSION_2), ["200 192.0.2.1"; 2]),
        plain(announced(b"PROXY TCP6 2001:db8::1 2001:db8::9 1000 80\r\n"), ["200 2001:db8::1"; 2]),
        plain(announced(b"PROXY UNKNOWN\r\n"), ["200 127.0.0.9"; 2]),
        plain(announced(LOCAL), ["200 127.0.0.9"; 2]),
    ];
    let hosts = scene.apply("c", &rows);
    scene.until_outcome(&hosts, &rows[0]);
    scene.check(&hosts, &rows);
}

/// A client of a Route.
struct Client {
    host: String,
    http: SocketAddr,
    https: SocketAddr,
}

/// The head and body of a response; `None`: the connection was closed before.
async fn response(stream: &mut TcpStream) -> Option<(String, String)> {
    let (mut octets, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        let text = String::from_utf8_lossy(&octets).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let is_switched = head.split(' ').nth(1) == Some("101");
            if is_switched || length.is_some_and(|length: usize| body.len() >= length) {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => octets.extend_from_slice(&buffer[..read]),
            _ => return text.split_once("\r\n\r\n").map(|(head, body)| (head.to_owned(), body.to_owned())),
        }
    }
}

fn status((head, _): &(String, String)) -> String {
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

async fn is_open(stream: &mut TcpStream) -> &'static str {
    let written = stream.write_all(b"hello").await;
    let read = timeout(Duration::from_secs(5), stream.read(&mut [0; 5])).await;
    if written.is_ok() && matches!(read, Ok(Ok(1..))) { "open" } else { "closed" }
}

impl Client {
    async fn connect(&self, from: &str) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("a port");
        socket.connect(self.http).await.expect("a connection")
    }

    async fn exchange(
        &self,
        from: &str,
        before: &[u8],
        request: &str,
        headers: &str,
        body: &str,
    ) -> Option<(String, String)> {
        let mut stream = self.connect(from).await;
        let head = format!("{request} HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n\r\n{body}", self.host);
        stream.write_all(&[before, head.as_bytes()].concat()).await.ok()?;
        response(&mut stream).await
    }

    async fn get(&self, from: &str, path: &str, headers: &str) -> Option<(String, String)> {
        self.exchange(from, b"", &format!("GET {path}"), headers, "").await
    }

    /// Returns the response over TLS. No certificate is for the host.
    async fn over_tls(&self, from: &str) -> reqwest::Response {
        let from: IpAddr = from.parse().expect("an address");
        let client = reqwest::Client::builder().no_proxy().local_address(from).resolve(&self.host, self.https);
        let client = client.tls_danger_accept_invalid_certs(true).build().expect("a client");
        let url = format!("https://{}:{}/", self.host, self.https.port());
        client.get(url).send().await.expect("a response")
    }

    async fn run(&self, probe: Probe) -> String {
        let closed = || "closed".to_owned();
        match probe {
            Probe::Get(from, path, headers) => self.get(from, path, headers).await.as_ref().map_or_else(closed, status),
            Probe::Https(from) => self.over_tls(from).await.status().as_u16().to_string(),
            Probe::Header(name) => {
                let plain = self.get(OWN, "/", "").await.unwrap_or_default();
                let over_tls = self.over_tls(OWN).await;
                let value = over_tls.headers().get(name).and_then(|value| value.to_str().ok());
                format!("{}, {}", header(&plain.0, name).unwrap_or("none"), value.unwrap_or("none"))
            }
            Probe::Post(length) => {
                let headers = format!("Content-Length: {length}\r\n");
                let answer = self.exchange(OWN, b"", "POST /", &headers, &"x".repeat(length)).await;
                answer.as_ref().map_or_else(closed, status)
            }
            Probe::Upgrade(protocol, pause) => {
                let mut stream = self.connect(OWN).await;
                let head = format!(
                    "GET / HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
                    self.host
                );
                stream.write_all(head.as_bytes()).await.expect("it is read");
                let answer = response(&mut stream).await.as_ref().map_or_else(closed, status);
                if answer != "101" {
                    return answer;
                }
                sleep(Duration::from_millis(pause)).await;
                format!("{answer} {}", is_open(&mut stream).await)
            }
            Probe::Burst => {
                let mut statuses = BTreeMap::<String, usize>::new();
                for _ in 0..15 {
                    *statuses.entry(self.get(OWN, "/", "").await.as_ref().map_or_else(closed, status)).or_default() +=
                        1;
                }
                let of = |status: &str| statuses.get(status).copied().unwrap_or_default();
                // On a busy machine, some seconds can pass.
                match (of("200"), of("429")) {
                    (10..=13, 2..=5) if statuses.len() == 2 => "limited".to_owned(),
                    _ => statuses
                        .iter()
                        .map(|(status, count)| format!("{count} of {status}"))
                        .collect::<Vec<_>>()
                        .join(", "),
                }
            }
            Probe::Sessions => {
                let first = self.get(OWN, "/", "").await.unwrap_or_default();
                let cookie = header(&first.0, "set-cookie").and_then(|cookie| cookie.split(';').next());
                let headers = cookie.map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
                let mut endpoints = BTreeSet::from([endpoint_of(&first.1)]);
                for _ in 0..8 {
                    let next = self.get(OWN, "/", &headers).await.unwrap_or_default();
                    endpoints.insert(endpoint_of(&next.1));
                }
                endpoints.len().to_string()
            }
            Probe::FirstWords => {
                let (_, body) = self.get(OWN, "/", "").await.unwrap_or_default();
                body.lines().nth(1).unwrap_or_default().split(' ').take(3).collect::<Vec<_>>().join(" ")
            }
            Probe::Idle(pause) => {
                let mut stream = self.connect(OWN).await;
                let head = format!("GET /keep HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
                stream.write_all(head.as_bytes()).await.expect("it is read");
                assert!(response(&mut stream).await.is_some_and(|answer| status(&answer) == "200"));
                sleep(Duration::from_millis(pause)).await;
                let again = stream.write_all(head.as_bytes()).await.is_ok();
                let again = again && response(&mut stream).await.is_some_and(|answer| status(&answer) == "200");
                if again { "open" } else { "closed" }.to_owned()
            }
            Probe::Announced(from, octets) => {
                let Some((head, body)) = self.exchange(from, octets, "GET /", "", "").await else { return closed() };
                format!("{} {}", status(&(head, String::new())), header(&body, "x-forwarded-for").unwrap_or("none"))
            }
        }
    }
}

/// The first line of the application's body names the endpoint.
fn endpoint_of(body: &str) -> String {
    body.lines().next().unwrap_or_default().to_owned()
}

/// Starts an application that answers with its address, and with all that it has read.
async fn application() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, address));
        }
    });
    address
}

/// Answers one request.
async fn answer(mut stream: TcpStream, address: SocketAddr) -> Option<()> {
    let (mut octets, mut buffer) = (Vec::new(), [0; 4_096]);
    let (head, body) = loop {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        octets.extend_from_slice(&buffer[..read]);
        if octets.starts_with(b"\r\n\r\n\0\r\nQUIT\n") && octets.len() >= 28 {
            let length = usize::from(u16::from_be_bytes([octets[14], octets[15]]));
            octets.splice(..16 + length, *b"PROXY version 2\r\n");
        }
        let text = String::from_utf8_lossy(&octets).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            break (head.to_owned(), body.len());
        }
    };
    let mut left = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0_usize);
    left = left.saturating_sub(body);
    while left > 0 {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        left = left.saturating_sub(read);
    }
    if let Some(protocol) = header(&head, "upgrade") {
        let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n{accept}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.ok()?;
        let (mut reader, mut writer) = stream.split();
        tokio::io::copy(&mut reader, &mut writer).await.ok()?;
        return None;
    }
    match head.lines().find(|line| line.ends_with("HTTP/1.1")).and_then(|line| line.split(' ').nth(1)) {
        Some("/silence") => sleep(Duration::from_secs(30)).await,
        Some("/slow") => sleep(Duration::from_secs(2)).await,
        _ => {}
    }
    let body = format!("{address}\n{head}");
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{HSTS}: of the application\r\nConnection: close", body.len());
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.ok()
}
