//! The counters of traffic, with the real proxies.

use std::sync::Arc;
use std::time::Duration;

use signpost_agent::site::{Insecure, Site};
use signpost_agent::traffic::access_log::Output;
use signpost_agent::traffic::view::Scope;
use signpost_agent::traffic::{EndpointState, RouteTraffic, Traffic};
use signpost_testing::free_address;
use signpost_types::v1alpha1::route::Termination;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, application, plain, route, with_tls};
use crate::client::{Identity, get, get_tls, get_with};
use crate::recorder::{Answer, Recorder};

/// The time in which counters must be as expected.
const PATIENCE: Duration = Duration::from_secs(60);

/// The expected numbers of a Route: finished requests by class, errors, and connections.
type Expected = (&'static str, [u64; 6], u64, u64);

/// Returns the traffic of a Route.
fn of(traffic: &Traffic, name: &str) -> RouteTraffic {
    let view = traffic.view(&Scope::Route(format!("test/{name}")));
    view.routes.into_iter().next().expect("it is in the Site").traffic
}

/// Waits until the counters of some Routes are those expected, and fails if any becomes larger.
async fn wait_for(bench: &Bench, traffic: &Traffic, expected: &[Expected]) {
    let meter = bench.proxy.meter().expect("the proxy counts");
    let deadline = Instant::now() + PATIENCE;
    loop {
        traffic.add(meter.read().await.expect("counters"), Duration::from_millis(50));
        let found: Vec<_> = expected
            .iter()
            .map(|(name, ..)| {
                let counters = of(traffic, name).counters;
                (*name, counters.requests, counters.errors, counters.connections)
            })
            .collect();
        if found == expected {
            return;
        }
        assert!(Instant::now() < deadline, "found {found:?}, expected {expected:?}");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Sends five requests to the Route `web` and waits until they are counted. `sent`: the number of requests so far. The kernel queues ten
/// messages of a proxy's log, and on a busy machine more at once can be lost.
async fn send_five(bench: &Bench, traffic: &Traffic, sent: &mut u64) {
    for _ in 0..5 {
        assert_eq!(get(bench.http, "web.example", "/").await.expect("a response").status, 200);
    }
    *sent += 5;
    wait_for(bench, traffic, &[("web", [0, 0, *sent, 0, 0, 0], 0, 0)]).await;
}

/// Requests are counted by Route, class and endpoint, exactly, also over reloads and by an agent that restarts.
pub async fn counts(mut bench: Bench) {
    let app = Recorder::start(|request| match request.target.as_str() {
        "/missing" => Answer::Raw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()),
        "/broken" => Answer::Raw("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned()),
        "/moved" => Answer::Raw("HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nLocation: /\r\n\r\n".to_owned()),
        "/closed" => Answer::Close,
        _ => Answer::Body("web"),
    })
    .await;
    let dead = free_address();
    let mut site = Site::default();
    route(&mut site, "web", "web.example", "/", plain(&[(app.address, 1)]));
    route(&mut site, "dead", "dead.example", "/", plain(&[(dead, 1)]));
    route(&mut site, "empty", "empty.example", "/", plain(&[]));
    route(&mut site, "quiet", "quiet.example", "/", plain(&[(app.address, 1)]));
    route(&mut site, "secret", "secret.example", "/", with_tls(app.address, Termination::Edge, Insecure::Redirect));
    bench.apply(&site).await;
    let traffic = Traffic::default();
    traffic.follow(&site);
    let send = async |host: &str, path: &str, count: usize| {
        for _ in 0..count {
            assert!(get(bench.http, host, path).await.is_some(), "{host}{path}");
        }
    };
    let expected: &[Expected] = &[
        ("web", [0, 0, 20, 2, 3, 5], 1, 0),
        ("dead", [0, 0, 0, 0, 0, 2], 2, 0),
        ("empty", [0, 0, 0, 0, 0, 5], 5, 0),
        ("quiet", [0; 6], 0, 0),
        ("secret", [0; 6], 0, 0),
    ];
    let mut sent = 0;
    for _ in 0..4 {
        send_five(&bench, &traffic, &mut sent).await;
    }
    // At most ten at once. The endpoint answers after its failure, so that it is up.
    for (path, count) in [("/closed", 1), ("/missing", 3), ("/broken", 4), ("/moved", 2)] {
        send("web.example", path, count).await;
    }
    wait_for(&bench, &traffic, &expected[..1]).await;
    send("dead.example", "/", 2).await;
    send("empty.example", "/", 5).await;
    wait_for(&bench, &traffic, &expected[..3]).await;
    // Neither is a request of an application.
    send("unknown.example", "/", 3).await;
    send("secret.example", "/", 3).await;
    wait_for(&bench, &traffic, expected).await;
    let web = of(&traffic, "web");
    assert!(web.counters.bytes_in > 500 && web.counters.bytes_out > 1_000, "{web:?}");
    assert!(web.mean_ms.is_some_and(|mean| mean < 5_000.0), "{web:?}");
    assert_eq!((web.endpoints[0].state, web.endpoints[0].answered), (EndpointState::Up, 29));
    assert_eq!(of(&traffic, "dead").endpoints[0].state, EndpointState::Down);
    assert_eq!(of(&traffic, "quiet").endpoints[0].state, EndpointState::Unknown);
    assert!(of(&traffic, "empty").is_unavailable() && !web.is_unavailable());
    assert_eq!(traffic.view(&Scope::All).lost, 0);
}

/// Sums grow over a reload. Requests of connections that the replaced process still has are counted.
pub async fn reloads(mut bench: Bench) {
    let app = application("web", None).await;
    let mut site = Site::default();
    route(&mut site, "web", "web.example", "/", plain(&[(app, 1)]));
    bench.apply(&site).await;
    let traffic = Traffic::default();
    traffic.follow(&site);
    let mut sent = 0;
    for round in 0..3 {
        send_five(&bench, &traffic, &mut sent).await;
        // These are not read before the reload.
        for _ in 0..5 {
            assert_eq!(get(bench.http, "web.example", "/").await.expect("a response").status, 200);
            sent += 1;
        }
        // A certificate that is not one changes nothing; a killed proxy is started again.
        if round == 1 {
            wait_for(&bench, &traffic, &[("web", [0, 0, sent, 0, 0, 0], 0, 0)]).await;
            assert!(bench.signal("-KILL"));
        }
        reload(&mut bench, &mut site, round).await;
    }
    wait_for(&bench, &traffic, &[("web", [0, 0, sent, 0, 0, 0], 0, 0)]).await;
    // A request that the replaced process finishes. It has another connection, so that its counters can be read afterwards.
    let [mut first, _second] = [begin(&bench).await, begin(&bench).await];
    reload(&mut bench, &mut site, 3).await;
    first.write_all(b"\r\n").await.expect("a connection");
    wait_for(&bench, &traffic, &[("web", [0, 0, sent + 1, 0, 0, 0], 0, 0)]).await;
    assert_eq!(traffic.view(&Scope::All).lost, 0);
}

/// Begins a request that lacks its last line.
async fn begin(bench: &Bench) -> TcpStream {
    let mut stream = TcpStream::connect(bench.http).await.expect("a connection");
    stream.write_all(b"GET / HTTP/1.1\r\nHost: web.example\r\n").await.expect("a connection");
    // The proxy has accepted it, and read that.
    sleep(Duration::from_secs(1)).await;
    stream
}

/// Makes the proxy reload, and keeps the agent.
async fn reload(bench: &mut Bench, site: &mut Site, round: usize) {
    if bench.kind == "haproxy" {
        // More Routes than it has backends.
        for at in 0..1_100 {
            route(site, &format!("r{round}-{at}"), &format!("r{round}-{at}.example"), "/", plain(&[(free(at), 1)]));
        }
    } else {
        route(site, "more", &format!("more{round}.example"), "/", plain(&[]));
    }
    assert!(bench.apply(site).await.reloaded);
}

fn free(at: usize) -> std::net::SocketAddr {
    ([192, 0, 2, 1], u16::try_from(at + 1).expect("a port")).into()
}

/// A Route never gets the counts of another one that had its place before.
pub async fn changed_routes(mut bench: Bench) {
    let app = application("web", None).await;
    let traffic = Traffic::default();
    let meter = bench.proxy.meter().expect("the proxy counts");
    for round in 0..6 {
        let name = format!("route{}", round % 2);
        let mut site = Site::default();
        route(&mut site, &name, "web.example", "/", plain(&[(app, 1)]));
        bench.apply(&site).await;
        // The servers of the Route before are gone.
        bench.proxy.tidy().await;
        traffic.follow(&site);
        for _ in 0..=round {
            assert_eq!(get(bench.http, "web.example", "/").await.expect("a response").status, 200);
        }
        if round % 3 == 2 {
            continue;
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            traffic.add(meter.read().await.expect("counters"), Duration::from_millis(50));
            let routes = traffic.view(&Scope::All).routes;
            assert_eq!(routes.iter().map(|one| &*one.route).collect::<Vec<_>>(), [format!("test/{name}")]);
            let total = routes[0].traffic.counters.total();
            if total == round + 1 {
                break;
            }
            assert!(total < round + 1 && Instant::now() < deadline, "{total} of {}", round + 1);
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Connections with passthrough are counted, and no requests.
pub async fn connections(mut bench: Bench) {
    let dead = free_address();
    let mut site = Site::default();
    route(&mut site, "pass", "pass.example", "/", with_tls(dead, Termination::Passthrough, Insecure::None));
    bench.apply(&site).await;
    let traffic = Traffic::default();
    traffic.follow(&site);
    for _ in 0..2 {
        let identity = Identity::new("pass.example");
        assert!(get_tls(bench.https, &identity, "pass.example", "pass.example", "/").await.is_none());
    }
    wait_for(&bench, &traffic, &[("pass", [0; 6], 2, 2)]).await;
    assert_eq!(of(&traffic, "pass").endpoints[0].state, EndpointState::Down);
}

/// Every line of the access log is JSON with the documented fields, also about hostile requests.
pub async fn access_log(mut bench: Bench) {
    let app = Recorder::start(|_| Answer::Body("web")).await;
    let mut site = Site { has_access_log: true, ..Site::default() };
    route(&mut site, "web", "web.example", "/", plain(&[(app.address, 1)]));
    bench.apply(&site).await;
    let traffic = Arc::new(Traffic::default());
    traffic.follow(&site);
    let path = bench.path("access.log");
    let log = bench.proxy.access_log().expect("the proxy has one");
    log.set(Output::File(path.clone()), &traffic);
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        // The last line can be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    };
    let long = "a".repeat(9_000);
    let hostile = [
        ("/?\"},{\"route\":\"x\"", "User-Agent: \"\\\x01'%[src]$remote_addr\r\n".to_owned()),
        ("/%0a%00\\", "User-Agent: \u{e9}\u{2028}\r\n".to_owned()),
        ("/last", format!("User-Agent: {long}\r\nReferer: \"\r\n")),
        (&format!("/{long}"), String::new()),
    ];
    let of_route = || lines().iter().filter(|line| line["route"] == "test/web").count();
    let deadline = Instant::now() + PATIENCE;
    let mut expected = 0;
    for (path, headers) in hostile {
        if get_with(bench.http, "web.example", path, &headers).await.is_some_and(|response| response.status == 200) {
            expected += 1;
        }
        // Each request can have two of the ten messages that the kernel queues.
        while of_route() < expected {
            assert!(Instant::now() < deadline, "{:?}", lines());
            sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(expected >= 2, "{expected}");
    // None of these is a request.
    for garbage in ["\0\u{1}\"\\\r\n\r\n", "GET \" \\ HTTP/1.1\r\n\r\n", "\"{}\"\r\n\r\n"] {
        let mut stream = TcpStream::connect(bench.http).await.expect("a connection");
        let _ = stream.write_all(garbage.as_bytes()).await;
    }
    // The garbage can have filled the queue, so that the line of the first request is lost.
    let has_unknown = || lines().iter().any(|line| line["host"] == "unknown.example");
    while !has_unknown() {
        assert!(Instant::now() < deadline, "{:?}", lines());
        assert_eq!(get(bench.http, "unknown.example", "/x").await.expect("a response").status, 404);
        let repeat_at = Instant::now() + Duration::from_secs(1);
        while !has_unknown() && Instant::now() < repeat_at {
            sleep(Duration::from_millis(50)).await;
        }
    }
    let lines = lines();
    let last = lines.iter().find(|line| line["path"] == "/last").expect("it is logged");
    assert_eq!((&last["status"], &last["method"], &last["scheme"]), (&200.into(), &"GET".into(), &"http".into()));
    assert_eq!((&last["client"], &last["endpoint"]), (&"127.0.0.1".into(), &app.address.to_string().into()));
    assert_eq!(last["userAgent"].as_str().map(str::len), Some(512));
    assert!(
        last["durationMs"].is_u64() && last["responseMs"].is_u64() && last["bytesIn"].as_u64() > Some(9_000),
        "{last}"
    );
    // The application gets the same identifier.
    let received = app.take();
    let received = received.iter().find(|request| request.target == "/last").expect("it came");
    assert_eq!(received.all("x-request-id"), [last["requestId"].as_str().expect("text")]);
    let unknown = lines.iter().find(|line| line["host"] == "unknown.example").expect("it is logged");
    assert_eq!((unknown.get("route"), &unknown["status"]), (None, &404.into()));
    // Without a log, nothing is sent.
    site.has_access_log = false;
    assert!(bench.apply(&site).await.reloaded);
    assert_eq!(get(bench.http, "web.example", "/after").await.expect("a response").status, 200);
    sleep(Duration::from_millis(300)).await;
    assert!(!std::fs::read_to_string(&path).expect("the log").contains("/after"));
}
