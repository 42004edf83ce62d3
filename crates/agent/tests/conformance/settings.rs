//! The settings of Routes and Routers, end to end: what a client sees, by proxy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};
use signpost_agent::proxy::Applied;
use signpost_agent::site::{Insecure, RouteKey, RouterSettings, Site};
use signpost_types::traffic::{Network, Requested};
use signpost_types::v1alpha1::route::{RouteSpec, Termination};
use signpost_types::v1alpha1::traffic::{ClientAddress, TrafficMaxima};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::bench::{Bench, plain, route, with_tls};
use crate::client::{Identity, Response};
use crate::recorder::{Answer, HOST, Received, Recorder, Request, Served, Way, read_head, read_response, site};

/// The longest time for an answer of a row.
const PATIENCE: Duration = Duration::from_secs(20);

/// The request of a row, and the part of its outcome that the row shows.
#[derive(Clone, Copy, Debug)]
enum Probe {
    /// A GET from an address, with further header lines: the status.
    Get(&'static str, &'static str, &'static str),
    /// A POST with a body: the status.
    Post(usize),
    /// A POST in chunks, the second after a moment: the status, or `closed`.
    Chunks(usize),
    /// An upgrade to a protocol, and silence for a time in milliseconds: the status, and whether the connection is open then.
    Upgrade(&'static str, u64),
    /// The header of a response over HTTP and over HTTPS.
    Header(&'static str),
    /// Requests at once: how many have which status. Those that pass only because the others took seconds count as refused.
    Burst(usize),
    /// The first line of a connection to the application.
    FirstLine,
}

/// Each setting, on both proxies, and requests without it.
pub async fn table(bench: Bench) {
    let yes = json!({"requestTimeoutSeconds": 1, "tunnelTimeoutSeconds": 5});
    let hsts = json!({"hsts": {"maxAgeSeconds": 31_536_000, "includeSubDomains": true, "preload": true}});
    let sse = "Accept: text/event-stream\r\n";
    let networks = |list: &[&str]| json!({"allowedNetworks": list});
    let (own, other) = ("127.0.0.1", "127.0.0.2");
    let rows: Vec<(Value, Probe, &str, &str)> = vec![
        (json!({"requestTimeoutSeconds": 1}), Probe::Get(own, "/silence", ""), "504", "504"),
        (json!({"requestTimeoutSeconds": 30}), Probe::Get(own, "/slow", ""), "200", "200"),
        (yes.clone(), Probe::Get(own, "/slow", ""), "504", "504"),
        (yes, Probe::Get(own, "/slow", sse), "200", "200"),
        (
            json!({"requestTimeoutSeconds": 3, "tunnelTimeoutSeconds": 10}),
            Probe::Upgrade("websocket", 4_500),
            "101 open",
            "101 open",
        ),
        (json!({"tunnelTimeoutSeconds": 3}), Probe::Upgrade("websocket", 6_000), "101 closed", "101 closed"),
        (json!({"tunnelTimeoutSeconds": 1}), Probe::Get(own, "/slow", ""), "200", "200"),
        (json!({"maxRequestBodyBytes": 10}), Probe::Post(10), "200", "200"),
        (json!({"maxRequestBodyBytes": 10}), Probe::Post(11), "413", "413"),
        (json!({}), Probe::Chunks(100), "200", "200"),
        (json!({"maxRequestBodyBytes": 10}), Probe::Chunks(5), "200", "200"),
        // HAProxy sees the length of the first chunk only.
        (json!({"maxRequestBodyBytes": 10}), Probe::Chunks(100), "200", "413"),
        (networks(&["127.0.0.1"]), Probe::Get(own, "/", ""), "200", "200"),
        (networks(&["127.0.0.1"]), Probe::Get(other, "/", ""), "403", "403"),
        (networks(&["10.0.0.0/8", "127.0.0.2/31", "::/0"]), Probe::Get(other, "/", ""), "200", "200"),
        (networks(&["10.0.0.0/8", "127.0.0.2/31", "::/0"]), Probe::Get(own, "/", ""), "403", "403"),
        (networks(&["0.0.0.0/0"]), Probe::Get(other, "/", ""), "200", "200"),
        (networks(&["::ffff:127.0.0.2/127"]), Probe::Get(other, "/", ""), "200", "200"),
        (networks(&["::ffff:127.0.0.2/127"]), Probe::Get(own, "/", ""), "403", "403"),
        // Only trusted proxies name the address of a client.
        (networks(&["127.0.0.1"]), Probe::Get(other, "/", "X-Forwarded-For: 127.0.0.1\r\n"), "403", "403"),
        (json!({}), Probe::Header("Strict-Transport-Security"), "none, of the application", "none, of the application"),
        (
            hsts,
            Probe::Header("Strict-Transport-Security"),
            "none, max-age=31536000; includesubdomains; preload",
            "none, max-age=31536000; includesubdomains; preload",
        ),
        (
            json!({"hsts": {"maxAgeSeconds": 0}}),
            Probe::Header("Strict-Transport-Security"),
            "none, max-age=0",
            "none, max-age=0",
        ),
        (json!({}), Probe::Burst(15), "15 of 200", "15 of 200"),
        (json!({"requestsPerSecond": 1}), Probe::Burst(15), "10 of 200, 5 of 429", "10 of 200, 5 of 429"),
        (json!({}), Probe::Upgrade("websocket", 0), "101 open", "101 open"),
        (json!({}), Probe::Upgrade("SPDY/3.1", 0), "200", "200"),
        (json!({"upgrades": ["spdy/3.1"]}), Probe::Upgrade("SPDY/3.1", 0), "101 open", "101 open"),
        (json!({"upgrades": ["spdy/3.1"]}), Probe::Upgrade("spdy/3", 0), "200", "200"),
        (json!({"upgrades": ["spdy/3.1"]}), Probe::Upgrade("websocket", 0), "200", "200"),
        (json!({"upgrades": ["spdy/3.1", "websocket"]}), Probe::Upgrade("websocket", 0), "101 open", "101 open"),
        (json!({"upgrades": []}), Probe::Upgrade("websocket", 0), "200", "200"),
        (json!({}), Probe::FirstLine, "GET / HTTP/1.1", "GET / HTTP/1.1"),
        (json!({"proxyProtocol": "v1"}), Probe::FirstLine, "PROXY TCP4 127.0.0.1", "GET / HTTP/1.1"),
        (json!({"proxyProtocol": "v2"}), Probe::FirstLine, "\r\n\r\n\0\r\nQUIT", "GET / HTTP/1.1"),
    ];
    let application = Recorder::start(answer).await;
    let first_line = FirstLine::start().await;
    let mut served = Served::new(bench, &[&application]).await;
    for (traffic, probe, on_haproxy, on_nginx) in rows {
        let address = if matches!(probe, Probe::FirstLine) { first_line.address } else { application.address };
        let mut site = site(&[address], &served.identity);
        set(&mut site, traffic.clone(), None);
        let before = served.bench.apply(&site).await;
        assert_eq!(before.faults, [], "{traffic}");
        // A setting is an entry of a map in HAProxy.
        assert!(!before.reloaded || served.bench.kind == "nginx", "{traffic} needs a reload");
        let expected = if served.bench.kind == "haproxy" { on_haproxy } else { on_nginx };
        let outcome = timeout(PATIENCE, probe.run(&served, &first_line)).await.expect("an outcome in time");
        assert_eq!(outcome, expected, "{traffic} {probe:?}");
    }
}

fn answer(request: &Received) -> Answer {
    let switch = |protocol| Answer::Switch(protocol);
    match request.all("upgrade").first() {
        Some(&"websocket") => return switch("websocket"),
        Some(protocol) if protocol.eq_ignore_ascii_case("spdy/3.1") => return switch("SPDY/3.1"),
        _ => {}
    }
    match request.target.as_str() {
        "/silence" => Answer::Silence,
        "/slow" => {
            Answer::Slow(Duration::from_secs(2), vec!["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned()])
        }
        "/hsts" => Answer::Raw(
            "HTTP/1.1 200 OK\r\nStrict-Transport-Security: of the application\r\nContent-Length: 2\r\n\r\nok"
                .to_owned(),
        ),
        _ => Answer::Body("ok"),
    }
}

/// Gives the only Route settings, within maxima.
fn set(site: &mut Site, traffic: Value, maxima: Option<&TrafficMaxima>) {
    for upstream in site.routes.values_mut() {
        upstream.settings = requested(traffic.clone()).within(maxima);
    }
}

fn requested(traffic: Value) -> Requested {
    let spec: RouteSpec = serde_json::from_value(json!({"traffic": traffic})).expect("a spec");
    Requested::of(&spec, None)
}

impl Probe {
    async fn run(self, served: &Served, first_line: &FirstLine) -> String {
        let http = served.bench.http;
        match self {
            Probe::Get(client, path, headers) => status(get(client, http, path, headers).await),
            Probe::Post(bytes) => {
                let mut request = Request::new("POST", "/");
                request.body = vec![b'x'; bytes];
                status(served.send(Way::Http, &request).await)
            }
            Probe::Chunks(bytes) => {
                let mut stream = TcpStream::connect(http).await.expect("a connection");
                let head = format!("POST / HTTP/1.1\r\nHost: {HOST}\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
                stream.write_all(head.as_bytes()).await.expect("it is read");
                tokio::time::sleep(Duration::from_millis(300)).await;
                let _ = stream.write_all(format!("{bytes:x}\r\n{}\r\n0\r\n\r\n", "x".repeat(bytes)).as_bytes()).await;
                status(read_response(&mut stream, "POST").await)
            }
            Probe::Upgrade(protocol, pause) => {
                let stream = TcpStream::connect(http).await.expect("a connection");
                upgrade(stream, protocol, Duration::from_millis(pause)).await
            }
            Probe::Header(name) => {
                let mut values = Vec::new();
                for way in [Way::Http, Way::Https] {
                    let path = if way == Way::Https { "/hsts" } else { "/" };
                    let response = served.send(way, &Request::new("GET", path)).await.expect("a response");
                    values.push(response.header(name).unwrap_or("none").to_owned());
                }
                values.join(", ")
            }
            Probe::Burst(count) => {
                let start = Instant::now();
                let mut statuses = std::collections::BTreeMap::<String, usize>::new();
                for _ in 0..count {
                    *statuses.entry(status(get("127.0.0.1", http, "/", "").await)).or_default() += 1;
                }
                if let Some(refused) = statuses.get("429").copied() {
                    let passed = statuses.get("200").copied().unwrap_or_default();
                    let late = passed.saturating_sub(AT_ONCE).min(permitted_within(start.elapsed(), served.bench.kind));
                    statuses.insert("200".to_owned(), passed - late);
                    statuses.insert("429".to_owned(), refused + late);
                }
                let text = |(status, count): (String, usize)| format!("{count} of {status}");
                statuses.into_iter().map(text).collect::<Vec<_>>().join(", ")
            }
            Probe::FirstLine => {
                let _ = get("127.0.0.1", http, "/", "").await;
                first_line.take()
            }
        }
    }
}

/// The requests that a client can send at once with one request per second.
const AT_ONCE: usize = 10;

/// Returns the number of requests beyond [`AT_ONCE`] that a proxy permits in a time after the first one. nginx permits one more after each
/// second. HAProxy counts in spans of ten seconds, and the first one begins with the first request.
fn permitted_within(time: Duration, proxy: &str) -> usize {
    let seconds = usize::try_from(time.as_secs()).expect("a short time");
    if proxy == "haproxy" && seconds < 10 { 0 } else { seconds }
}

fn status(response: Result<Response, String>) -> String {
    response.map_or_else(|_| "closed".to_owned(), |response| response.status.to_string())
}

async fn connect(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::new(from.parse().expect("an address"), 0)).expect("a port");
    socket.connect(to).await.expect("a connection")
}

async fn get(from: &str, to: SocketAddr, path: &str, headers: &str) -> Result<Response, String> {
    let mut stream = connect(from, to).await;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    timeout(PATIENCE, read_response(&mut stream, "GET")).await.map_err(|_| "no response".to_owned())?
}

async fn upgrade(mut stream: impl AsyncRead + AsyncWrite + Unpin, protocol: &str, pause: Duration) -> String {
    let head = format!(
        "GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\nSec-WebSocket-Key: {}\r\nSec-WebSocket-Version: 13\r\n\r\n",
        crate::recorder::WEBSOCKET_KEY
    );
    stream.write_all(head.as_bytes()).await.expect("it is read");
    let head = read_head(&mut stream, &mut Vec::new()).await.expect("a response");
    let status = head.split(' ').nth(1).expect("a status").to_owned();
    if status != "101" {
        return status;
    }
    tokio::time::sleep(pause).await;
    let mut back = [0; 5];
    let is_open = stream.write_all(b"hello").await.is_ok() && stream.read_exact(&mut back).await.is_ok();
    format!("{status} {}", if is_open { "open" } else { "closed" })
}

/// An application that keeps what a connection begins with.
struct FirstLine {
    address: SocketAddr,
    last: Arc<Mutex<String>>,
}

impl FirstLine {
    async fn start() -> FirstLine {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, last) = (listener.local_addr().expect("it is bound"), Arc::new(Mutex::new(String::new())));
        let kept = last.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut bytes = vec![0; 4_096];
                let read = stream.read(&mut bytes).await.unwrap_or(0);
                if read > 0 {
                    *kept.lock() = String::from_utf8_lossy(&bytes[..read]).into_owned();
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
            }
        });
        FirstLine { address, last }
    }

    /// Returns the begin of the last connection: a line, without the ports of the PROXY protocol, or its signature in version 2.
    fn take(&self) -> String {
        let text = std::mem::take(&mut *self.last.lock());
        match text.strip_prefix("\r\n\r\n\0\r\nQUIT") {
            Some(_) => "\r\n\r\n\0\r\nQUIT".to_owned(),
            None => {
                let line = text.lines().next().unwrap_or_default();
                let words = if line.starts_with("PROXY ") { 3 } else { 9 };
                line.split(' ').take(words).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// A tenant at every maximum of its Router, and beyond: the maximum holds.
pub async fn maxima(bench: Bench) {
    let application = Recorder::start(answer).await;
    let maxima = TrafficMaxima {
        request_timeout_seconds: Some(3),
        tunnel_timeout_seconds: Some(3),
        max_request_body_bytes: Some(10),
        requests_per_second: Some(1),
    };
    let mut served = Served::new(bench, &[&application]).await;
    let first_line = FirstLine::start().await;
    for factor in [0, 1, 1_000] {
        let traffic = match factor {
            0 => json!({}),
            factor => {
                json!({"requestTimeoutSeconds": 3 * factor, "tunnelTimeoutSeconds": 3 * factor,
                "maxRequestBodyBytes": 10 * factor, "requestsPerSecond": factor})
            }
        };
        let mut site = site(&[application.address], &served.identity);
        set(&mut site, traffic, Some(&maxima));
        served.bench.apply(&site).await;
        // A client of its own for each round, because requests are counted for ten seconds.
        for (probe, expected) in
            [(Probe::Get("127.0.0.3", "/silence", ""), "504"), (Probe::Post(10), "200"), (Probe::Post(11), "413")]
        {
            assert_eq!(probe.run(&served, &first_line).await, expected, "{factor} {probe:?}");
        }
        if factor != 0 {
            assert_eq!(Probe::Upgrade("websocket", 6_000).run(&served, &first_line).await, "101 closed", "{factor}");
        }
        let client = format!("127.0.1.{}", factor % 255);
        let mut refused = 0;
        for _ in 0..14 {
            refused += usize::from(status(get(&client, served.bench.http, "/", "").await) == "429");
        }
        assert!((2..=4).contains(&refused), "{factor}: {refused} of 14 requests were refused");
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

/// The time of a Route for idle tunnels can be longer than the default, also over TLS: HAProxy has a time for each side of a tunnel.
pub async fn longer_tunnels(bench: Bench) {
    let application = Recorder::start(answer).await;
    let bench = bench.with(|settings| settings.stream_timeout = Duration::from_secs(2));
    let mut served = Served::new(bench, &[&application]).await;
    for (traffic, expected) in [(json!({}), "101 closed"), (json!({"tunnelTimeoutSeconds": 30}), "101 open")] {
        let mut site = site(&[application.address], &served.identity);
        set(&mut site, traffic, None);
        served.bench.apply(&site).await;
        let pause = Duration::from_secs(5);
        let tls = served.tls(b"http/1.1").await.expect("a connection");
        let plain = TcpStream::connect(served.bench.http).await.expect("a connection");
        let (tls, plain) = tokio::join!(upgrade(tls, "websocket", pause), upgrade(plain, "websocket", pause));
        assert_eq!((tls.as_str(), plain.as_str()), (expected, expected));
    }
}

/// Sessions stay at their endpoint, in a cookie of the Route, which HAProxy keeps from applications.
pub async fn sessions(bench: Bench) {
    let names = ["a", "b", "c"];
    let mut recorders = Vec::new();
    for name in names {
        recorders.push(Recorder::start(move |_| Answer::Body(name)).await);
    }
    let mut served = Served::new(bench, &recorders.iter().collect::<Vec<_>>()).await;
    let is_haproxy = served.bench.kind == "haproxy";
    let addresses: Vec<SocketAddr> = recorders.iter().map(|recorder| recorder.address).collect();
    for cookie in [None, Some("my-session")] {
        let mut site = site(&addresses, &served.identity);
        set(&mut site, json!({"stickySessions": {"cookieName": cookie}}), None);
        served.bench.apply(&site).await;
        let mut endpoints = std::collections::BTreeSet::new();
        for way in [Way::Http, Way::Https, Way::Http, Way::Https, Way::Http, Way::Https, Way::Http, Way::Https] {
            let first = served.send(way, &Request::new("GET", "/")).await.expect("a response");
            let set_cookie = first.header("set-cookie").expect("a session").to_owned();
            assert_eq!(set_cookie.contains("; secure"), way == Way::Https, "{set_cookie}");
            assert!(set_cookie.contains("; path=/; httponly"), "{set_cookie}");
            assert_eq!(first.header("cache-control"), Some("private"));
            let pair = set_cookie.split(';').next().expect("a pair");
            if let Some(cookie) = cookie {
                let name = if is_haproxy { cookie.to_owned() } else { cookie.replace('-', "_") };
                assert!(pair.starts_with(&format!("{name}=")), "{pair}");
            }
            endpoints.insert(first.body.clone());
            recorders.iter().for_each(|recorder| drop(recorder.take()));
            for _ in 0..6 {
                let request = Request::new("GET", "/").with("Cookie", &format!("one=1; {pair}; two=2"));
                let next = served.send(way, &request).await.expect("a response");
                assert_eq!(
                    (next.status, next.body.as_str(), next.header("set-cookie")),
                    (200, first.body.as_str(), None)
                );
            }
            let received: Vec<String> =
                recorders.iter().flat_map(Recorder::take).map(|request| request.all("cookie").join("; ")).collect();
            let expected = if is_haproxy { "one=1; two=2".to_owned() } else { format!("one=1; {pair}; two=2") };
            assert_eq!(received, vec![expected; 6]);
        }
        // nginx chooses at random: the first ones can all be at one endpoint.
        for _ in 0..40 {
            if endpoints.len() > 1 {
                break;
            }
            let first = served.send(Way::Http, &Request::new("GET", "/")).await.expect("a response");
            endpoints.insert(first.body);
        }
        assert!(endpoints.len() > 1, "all sessions are at {endpoints:?}");
        // A cookie that no router has given is as none.
        let forged = Request::new("GET", "/").with("Cookie", "signpost_session=../../x; my-session=%00");
        assert_eq!(served.send(Way::Http, &forged).await.map(|response| response.status), Ok(200));
    }
    // A new session that leads to an endpoint without a listener gets another one. With nginx, each of three attempts chooses at random.
    let dead = signpost_testing::free_address();
    let mut with_dead = site(&[&addresses[..], &[dead]].concat(), &served.identity);
    set(&mut with_dead, json!({"stickySessions": {}}), None);
    served.bench.apply(&with_dead).await;
    let mut failed = 0;
    for _ in 0..100 {
        let response = served.send(Way::Http, &Request::new("GET", "/")).await.expect("a response");
        failed += usize::from(response.status != 200);
    }
    assert!(failed <= if is_haproxy { 0 } else { 10 }, "{failed} of 100");
    // An endpoint that is gone loses its sessions, and no request.
    let mut with_all = site(&addresses, &served.identity);
    set(&mut with_all, json!({"stickySessions": {"cookieName": "my-session"}}), None);
    served.bench.apply(&with_all).await;
    let session = served.send(Way::Http, &Request::new("GET", "/")).await.expect("a response");
    let pair = session.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a session").to_owned();
    let left: Vec<SocketAddr> =
        addresses.iter().zip(names).filter(|(_, name)| session.body != *name).map(|(address, _)| *address).collect();
    let mut site = site(&left, &served.identity);
    set(&mut site, json!({"stickySessions": {"cookieName": "my-session"}}), None);
    served.bench.apply(&site).await;
    let next = served.send(Way::Http, &Request::new("GET", "/").with("Cookie", &pair)).await.expect("a response");
    assert_eq!((next.status, next.body == session.body), (200, false));
}

/// Returns the address of a client as `docs/agent.md` defines it: that of the connection or, from trusted proxies, the last one in
/// X-Forwarded-For that is not theirs, at most five proxies away. Another text than an address ends the search.
fn client_address(peer: IpAddr, forwarded_for: &[&str], trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.net().contains(address));
    let list = forwarded_for.join(",");
    let entries: Vec<&str> = list.split(',').map(str::trim).collect();
    let mut client = peer;
    for entry in entries.iter().rev().take(5) {
        let Some(next) = entry.parse().ok().filter(|_| is_trusted(&client)) else { break };
        client = next;
    }
    client
}

/// Both proxies find the same client as the model: a Route that permits this address alone answers, and one that permits all but
/// neighbors of it does not.
pub async fn client_addresses(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let mut served = Served::new(bench, &[&application]).await;
    let trusted: Vec<Network> = ["127.0.0.9/32", "10.0.0.0/8", "2001:db8:f::/48"]
        .map(|text| Network::try_from(text.to_owned()).expect("a network"))
        .into();
    let router = RouterSettings { trusted_proxies: trusted.clone(), ..RouterSettings::default() };
    for (peer, forwarded_for) in [
        ("127.0.0.9", vec![]),
        ("127.0.0.9", vec!["192.0.2.1"]),
        ("127.0.0.2", vec!["192.0.2.1"]),
        ("127.0.0.9", vec!["198.51.100.7, 192.0.2.1"]),
        ("127.0.0.9", vec!["192.0.2.1,10.1.2.3"]),
        ("127.0.0.9", vec!["198.51.100.7, 192.0.2.1 , 10.1.2.3, 10.9.9.9"]),
        ("127.0.0.9", vec!["192.0.2.1", "10.1.2.3"]),
        ("127.0.0.9", vec!["2001:db8::7, 2001:db8:f::1"]),
        ("127.0.0.9", vec!["192.0.2.1, unknown"]),
        ("127.0.0.9", vec!["unknown, 10.1.2.3"]),
        ("127.0.0.9", vec!["192.0.2.1, , 10.1.2.3"]),
        ("127.0.0.9", vec!["10.0.0.1, 10.0.0.2, 10.0.0.3"]),
        ("127.0.0.9", vec!["192.0.2.1, 10.0.0.6, 10.0.0.5, 10.0.0.4, 10.0.0.3, 10.0.0.2"]),
        ("127.0.0.9", vec!["192.0.2.1, 10.0.0.4, 10.0.0.3, 10.0.0.2, 10.0.0.1"]),
    ] {
        let client = client_address(peer.parse().expect("an address"), &forwarded_for, &trusted);
        let neighbor = match client {
            IpAddr::V4(v4) => IpAddr::from((u32::from(v4) ^ 1).to_be_bytes()),
            IpAddr::V6(v6) => IpAddr::from((u128::from(v6) ^ 1).to_be_bytes()),
        };
        let headers: String = forwarded_for.iter().map(|line| format!("X-Forwarded-For: {line}\r\n")).collect();
        for (permitted, expected) in [(client, "200"), (neighbor, "403")] {
            let mut site = site(&[application.address], &served.identity);
            site.router = router.clone();
            set(&mut site, json!({"allowedNetworks": [permitted.to_string()]}), None);
            served.bench.apply(&site).await;
            let outcome = status(get(peer, served.bench.http, "/", &headers).await);
            assert_eq!(
                outcome, expected,
                "{peer} {forwarded_for:?}: {permitted} is permitted, and the client is {client}"
            );
        }
    }
}

/// Trusted proxies, and no others, name the client with the PROXY protocol. The limit of connections is that of the client.
pub async fn proxy_protocol(bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let mut served = Served::new(bench, &[&application]).await;
    let is_haproxy = served.bench.kind == "haproxy";
    let mut site = site(&[application.address], &served.identity);
    site.router = RouterSettings {
        trusted_proxies: ["127.0.0.9", "10.0.0.0/8"]
            .map(|network| Network::try_from(network.to_owned()).expect("a network"))
            .into(),
        client_address: ClientAddress::ProxyProtocol,
        ..RouterSettings::default()
    };
    set(&mut site, json!({"allowedNetworks": ["192.0.2.55", "127.0.0.2", "10.9.9.9"]}), None);
    served.bench.apply(&site).await;
    let http = served.bench.http;
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: 192.0.2.77\r\nConnection: close\r\n\r\n");
    for (peer, announced, on_haproxy, on_nginx) in [
        ("127.0.0.9", "PROXY TCP4 192.0.2.55 192.0.2.1 1000 80\r\n", "200 192.0.2.55", "200 192.0.2.55"),
        ("127.0.0.9", "PROXY TCP4 192.0.2.56 192.0.2.1 1000 80\r\n", "403 ", "403 "),
        // A client inside the network of the proxies sends headers of its own.
        ("127.0.0.9", "PROXY TCP4 10.9.9.9 192.0.2.1 1000 80\r\n", "200 10.9.9.9", "200 10.9.9.9"),
        // From others, the protocol is not a request to HAProxy; nginx reads it, and ignores the address.
        ("127.0.0.2", "PROXY TCP4 192.0.2.55 192.0.2.1 1000 80\r\n", "400 ", "200 127.0.0.2"),
        ("127.0.0.3", "PROXY TCP4 192.0.2.55 192.0.2.1 1000 80\r\n", "400 ", "403 "),
        ("127.0.0.2", "", "200 127.0.0.2", "closed "),
    ] {
        let mut stream = connect(peer, http).await;
        stream.write_all(format!("{announced}{request}").as_bytes()).await.expect("it is read");
        let response = timeout(PATIENCE, read_response(&mut stream, "GET")).await.map_err(|_| "no response".to_owned());
        let forwarded =
            application.take().pop().map(|request| request.all("x-forwarded-for").join(",")).unwrap_or_default();
        let outcome = format!("{} {forwarded}", status(response.and_then(|response| response)));
        assert_eq!(outcome, if is_haproxy { on_haproxy } else { on_nginx }, "{peer} {announced:?}");
    }
}

/// The networks of clients and the PROXY protocol have an effect with TLS passthrough, too.
pub async fn passthrough(mut bench: Bench) {
    let first_line = FirstLine::start().await;
    let identity = Identity::new(HOST);
    for (traffic, client, on_haproxy, on_nginx) in [
        (json!({}), "127.0.0.2", "hello", "hello"),
        (json!({"allowedNetworks": ["127.0.0.0/31"]}), "127.0.0.2", "", ""),
        (json!({"allowedNetworks": ["127.0.0.2/31"]}), "127.0.0.2", "hello", "hello"),
        (json!({"proxyProtocol": "v1"}), "127.0.0.2", "PROXY TCP4 127.0.0.2", "PROXY TCP4 127.0.0.2"),
        (json!({"proxyProtocol": "v2"}), "127.0.0.2", "\r\n\r\n\0\r\nQUIT", "hello"),
    ] {
        let mut site = Site::default();
        route(&mut site, "app", HOST, "/", with_tls(first_line.address, Termination::Passthrough, Insecure::None));
        set(&mut site, traffic.clone(), None);
        bench.apply(&site).await;
        let stream = connect(client, bench.https).await;
        let _ = timeout(Duration::from_secs(3), identity.greet(stream, HOST, b"")).await;
        let begin = first_line.take();
        // The first record of a handshake.
        let begin = if begin.starts_with('\u{16}') { "hello".to_owned() } else { begin };
        assert_eq!(begin, if bench.kind == "haproxy" { on_haproxy } else { on_nginx }, "{traffic}");
    }
}

/// nginx has a limit of distinct settings; beyond it, Routes of the namespace that has the most are without, and are reported. HAProxy has
/// none.
pub async fn many_settings(mut bench: Bench) {
    let application = Recorder::start(|_| Answer::Body("ok")).await;
    let mut site = Site::default();
    for at in 0..70_u32 {
        let upstream = plain(&[(application.address, 1)]);
        route(&mut site, &format!("r{at}"), &format!("r{at}.example"), "/", upstream);
        let key: RouteKey = format!("test/r{at}").parse().expect("a Route");
        let octet = at + 1;
        let traffic = json!({"maxRequestBodyBytes": at + 1, "allowedNetworks": [format!("127.0.0.{octet}")]});
        site.routes.get_mut(&key).expect("it is there").settings = requested(traffic).within(None);
    }
    route(&mut site, "other", "other.example", "/", plain(&[(application.address, 1)]));
    let other = site.routes.remove(&"test/other".parse::<RouteKey>().expect("a Route")).expect("it is there");
    let key: RouteKey = "other/r".parse().expect("a Route");
    site.routes.insert(key.clone(), other);
    site.hosts.insert("other.example".parse().expect("a host"), [("/".parse().expect("a path"), key.clone())].into());
    site.routes.get_mut(&key).expect("it is there").settings =
        requested(json!({"maxRequestBodyBytes": 500, "allowedNetworks": ["127.0.0.1"]})).within(None);
    let started = Instant::now();
    let Applied { faults, .. } = bench.apply(&site).await;
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let expected = if bench.kind == "haproxy" { 0 } else { 7 };
    assert_eq!(faults.len(), expected, "{faults:?}");
    for host in (0..70).map(|at| format!("r{at}.example")).chain(["other.example".to_owned()]) {
        let number: u32 = host.trim_start_matches('r').split('.').next().and_then(|at| at.parse().ok()).unwrap_or(0);
        let part =
            format!("Route {}", host.strip_suffix(".example").map(|name| format!("test/{name}")).unwrap_or_default());
        let of_route = faults.iter().find(|fault| fault.part.to_string() == part);
        let is_beyond = of_route.is_some_and(|fault| fault.message.starts_with("all clients"));
        let client = format!("127.0.0.{}", number + 1);
        let mut stream = connect(&client, bench.http).await;
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it is read");
        let response = status(read_response(&mut stream, "GET").await);
        // Beyond the limit of lists, no client is permitted.
        assert_eq!(response, if is_beyond { "403" } else { "200" }, "{host}");
    }
}
