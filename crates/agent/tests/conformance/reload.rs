//! Changes of a running proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use signpost_agent::proxy::nginx::ReloadPacing;
use signpost_agent::site::{Certificate, Changes, Host, Insecure, Part, Site};
use signpost_testing::PATIENCE;
use signpost_types::v1alpha1::route::Termination;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::bench::{Bench, application, plain, route, slow_application, with_tls};
use crate::client::{Identity, get, get_tls, parse};

/// Clients with new connections and with kept ones see no failure while the agent restarts, adopts the proxy and reloads it.
pub async fn no_request_fails(mut bench: Bench) {
    let address = application("web", None).await;
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/", plain(&[(address, 1)]));
    bench.apply(&site).await;
    let (stop, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = Vec::new();
    for kept in [false, false, true, true] {
        let (stop, requests, http) = (stop.clone(), requests.clone(), bench.http);
        let announces_end = bench.kind == "haproxy";
        clients.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                if kept {
                    keep_alive(http, announces_end, &stop, &requests).await;
                } else {
                    assert_eq!(get(http, "a.example", "/").await.expect("a response").status, 200);
                    requests.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    for at in 0..5 {
        route(&mut site, "other", &format!("other{at}.example"), "/", plain(&[(address, 1)]));
        bench.restart_agent();
        assert!(bench.apply(&site).await.reloaded);
        assert_eq!(get(bench.http, &format!("other{at}.example"), "/").await.expect("a response").body, "web");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("no request failed");
    }
    assert!(requests.load(Ordering::Relaxed) > 20);
}

/// Sends requests on one connection until the proxy announces its end. nginx closes idle connections without that; a client then sends
/// the request again, which RFC 9112 §9.3.1 wants of it.
async fn keep_alive(http: SocketAddr, announces_end: bool, stop: &AtomicBool, requests: &AtomicUsize) {
    let mut stream = TcpStream::connect(http).await.expect("a connection");
    let mut buffer = [0; 4096];
    while !stop.load(Ordering::Relaxed) {
        // What fails here fails below.
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\nweb") {
            let read = stream.read(&mut buffer).await.unwrap_or(0);
            if read == 0 {
                let unanswered = String::from_utf8_lossy(&response);
                assert!(!announces_end && unanswered.is_empty(), "the connection ended with {unanswered:?}");
                return;
            }
            response.extend_from_slice(&buffer[..read]);
        }
        let response = parse(&response).expect("a response");
        assert_eq!(response.status, 200);
        requests.fetch_add(1, Ordering::Relaxed);
        if response.head.contains("connection: close") {
            return;
        }
    }
}

/// Routes that the proxy rejects are found among others, reported and left out, until they change.
pub async fn rejected_route(mut bench: Bench) {
    bench.reject("127.6.6.6");
    let address = application("web", None).await;
    let bad = plain(&[("127.6.6.6:80".parse().expect("an address"), 1)]);
    let mut site = Site::default();
    for at in 0..20 {
        let upstream = if at % 9 == 5 { bad.clone() } else { plain(&[(address, 1)]) };
        route(&mut site, &format!("r{at}"), &format!("r{at}.example"), "/", upstream);
    }
    let applied = bench.apply(&site).await;
    let faults: Vec<String> = applied.faults.iter().map(|fault| fault.part.to_string()).collect();
    assert_eq!(faults, ["Route test/r14", "Route test/r5"]);
    assert!(applied.faults.iter().all(|fault| fault.message.contains("refused by the test")), "{:?}", applied.faults);
    for (host, status) in [("r4.example", 200), ("r5.example", 404), ("r19.example", 200)] {
        assert_eq!(get(bench.http, host, "/").await.expect("a response").status, status, "{host}");
    }
    assert_eq!(bench.apply(&site).await.faults.len(), 2);
    route(&mut site, "r5", "r5.example", "/", plain(&[(address, 1)]));
    assert_eq!(bench.apply(&site).await.faults.len(), 1);
    assert_eq!(get(bench.http, "r5.example", "/").await.expect("a response").body, "web");
}

/// A broken certificate changes nothing, and is reported.
pub async fn rejected_certificate(mut bench: Bench) {
    let good = Identity::new("web.example");
    let mut site = Site::default();
    let upstream = with_tls(application("web", None).await, Termination::Edge, Insecure::Allow);
    route(&mut site, "web", "web.example", "/", upstream.clone());
    route(&mut site, "other", "other.example", "/", upstream);
    site.certificates.insert("web.example".parse().expect("a host"), Certificate { pem: good.pem.as_str().into() });
    bench.apply(&site).await;
    let mut broken = site.clone();
    let pem = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n".to_owned();
    broken.certificates.insert("other.example".parse().expect("a host"), Certificate { pem: pem.into() });
    for _ in 0..2 {
        let applied = bench.apply(&broken).await;
        let parts: Vec<&Part> = applied.faults.iter().map(|fault| &fault.part).collect();
        assert_eq!(parts, [&Part::Certificate("other.example".parse().expect("a host"))]);
        assert!(get_tls(bench.https, &good, "web.example", "web.example", "/").await.is_some());
    }
    assert!(!bench.apply(&broken).await.reloaded, "what was rejected before is not tried again");
    assert_eq!(bench.apply(&site).await.faults, []);
}

/// A proxy that was killed is started again.
pub async fn crash(mut bench: Bench) {
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/", plain(&[(application("web", None).await, 1)]));
    bench.apply(&site).await;
    bench.signal("-KILL");
    let deadline = Instant::now() + PATIENCE;
    while !bench.apply(&site).await.reloaded {
        assert!(Instant::now() < deadline, "the proxy is not started again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(get(bench.http, "a.example", "/").await.expect("a response").body, "web");
}

/// A request in progress ends before the proxy does, and new connections are rejected.
pub async fn drain(mut bench: Bench) {
    let (address, arrived) = slow_application().await;
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/", plain(&[(address, 1)]));
    bench.apply(&site).await;
    let http = bench.http;
    let slow = tokio::spawn(async move { get(http, "a.example", "/").await });
    arrived.await.expect("the request arrives");
    bench.proxy.stop(Duration::from_secs(20)).await;
    assert_eq!(slow.await.expect("it ran").expect("a response").body, "slow");
    assert!(get(http, "a.example", "/").await.is_none());
}

/// Hosts, endpoints, weights and paths change a thousand times; the worker stays the same, and every change is served.
pub async fn thousand_changes(mut bench: Bench) {
    let addresses = [application("one", None).await, application("two", None).await];
    let mut site = Site::default();
    assert!(bench.apply(&site).await.reloaded);
    let mut reloads = 0;
    for at in 0..1_000_usize {
        let name = format!("r{}", at % 250);
        let host = format!("{name}.example");
        match at / 250 {
            0 => route(&mut site, &name, &host, "/", plain(&[(addresses[0], 1)])),
            1 => route(&mut site, &name, &host, "/", plain(&[(addresses[1], 2), (addresses[0], 0)])),
            2 => route(&mut site, &name, &host, "/", plain(&[(addresses[1], 2)])),
            _ => {
                site.hosts.remove(host.as_str());
                site.routes.remove(format!("test/{name}").as_str());
            }
        }
        reloads += usize::from(bench.apply(&site).await.reloaded);
        if at % 25 == 0 {
            let response = get(bench.http, &host, "/").await.expect("a response");
            let expected = ["one", "two", "two", "404: no application is served at this address.\n"][at / 250];
            assert_eq!(response.body, expected, "change {at}");
        }
    }
    assert_eq!(reloads, 0);
    assert_eq!(get(bench.http, "r7.example", "/").await.expect("a response").status, 404);
}

/// One change among 10,000 Routes, and the time from the Site to the first response by it.
pub async fn ten_thousand_routes(mut bench: Bench) {
    let address = application("web", None).await;
    let mut site = Site::default();
    for at in 0..10_000 {
        route(&mut site, &format!("r{at}"), &format!("r{at}.example"), "/", plain(&[(address, 1)]));
    }
    let start = Instant::now();
    assert!(bench.apply(&site).await.reloaded);
    let first = start.elapsed();
    let mut times = Vec::new();
    for at in 0..100 {
        let host = format!("new{at}.example");
        route(&mut site, &format!("new{at}"), &host, "/", plain(&[(address, 1)]));
        let start = Instant::now();
        assert!(!bench.apply(&site).await.reloaded);
        assert_eq!(get(bench.http, &host, "/").await.expect("a response").body, "web");
        times.push(start.elapsed());
    }
    times.sort();
    println!("10,000 Routes: start {first:.1?}; a new Route: median {:.1?}, worst of 100 {:.1?}", times[50], times[99]);
}

/// One change among 20, 120 and 1,000 Routes, and the time from the Site to the first response by it.
pub async fn thousand_routes(mut bench: Bench) {
    let address = application("web", None).await;
    let mut site = Site::default();
    let mut added = 0;
    for routes in [20, 120, 1_000] {
        for at in site.routes.len()..routes {
            route(&mut site, &format!("r{at}"), &format!("r{at}.example"), "/", plain(&[(address, 1)]));
        }
        bench.apply(&site).await;
        let mut times = Vec::new();
        for _ in 0..20 {
            added += 1;
            let host = format!("new{added}.example");
            route(&mut site, "new", &host, "/", plain(&[(address, 1)]));
            let start = Instant::now();
            assert!(bench.apply(&site).await.reloaded);
            assert_eq!(get(bench.http, &host, "/").await.expect("a response").body, "web");
            times.push(start.elapsed());
        }
        times.sort();
        println!("{routes} Routes: a new host: p50 {:.0?}, p99 {:.0?}", times[10], times[19]);
    }
}

/// Each reload leaves workers with an open connection: they delay the next change, and the oldest are ended with their connections.
pub async fn replaced_workers(bench: Bench) {
    // A pause of one step is longer than the test.
    let step = 2 * PATIENCE;
    let pace = ReloadPacing { step, step_max: 12 * step, generations_max: 3 };
    let mut bench = bench.with_pace(pace);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = listener.local_addr().expect("it is bound");
    let mut site = Site::default();
    route(&mut site, "silent", "silent.example", "/", plain(&[(silent, 1)]));
    let (mut clients, mut pauses) = (Vec::new(), Vec::new());
    for at in 0..7 {
        route(&mut site, "other", &format!("other{at}.example"), "/", plain(&[(silent, 1)]));
        assert!(bench.apply(&site).await.reloaded);
        pauses.push(bench.proxy.pause().div_duration_f64(step).round());
        let mut client = TcpStream::connect(bench.http).await.expect("a connection");
        client.write_all(b"GET / HTTP/1.1\r\nHost: silent.example\r\n\r\n").await.expect("it is read");
        // It holds the connection of a worker.
        clients.push((client, listener.accept().await.expect("a request")));
        // Generations are told apart by the time of their start.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(pauses, [0.0, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0]);
    let mut open = Vec::new();
    for (at, (client, _)) in clients.iter_mut().enumerate() {
        let patience = if at < 3 { PATIENCE } else { Duration::from_millis(500) };
        open.push(timeout(patience, client.read(&mut [0; 1])).await.is_err());
    }
    assert_eq!(open, [false, false, false, true, true, true, true]);
    // An agent that takes over finds them.
    bench.restart_agent();
    route(&mut site, "other", "last.example", "/", plain(&[(silent, 1)]));
    bench = bench.with_pace(pace);
    assert!(bench.apply(&site).await.reloaded);
    assert!(timeout(Duration::from_secs(5), clients[3].0.read(&mut [0; 1])).await.is_ok());
    // A generation ends with its last connection.
    clients.clear();
    let deadline = Instant::now() + PATIENCE;
    while bench.proxy.pause() > Duration::ZERO {
        assert!(Instant::now() < deadline, "replaced workers do not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the number of servers that HAProxy has with addresses that begin with a text.
fn servers(bench: &Bench, begin: &str) -> usize {
    use std::io::{Read as _, Write as _};
    let mut stream = std::os::unix::net::UnixStream::connect(bench.path("proxy/worker.sock")).expect("it runs");
    stream.write_all(b"show servers state\n").expect("it is read");
    let mut state = String::new();
    stream.read_to_string(&mut state).expect("a response");
    state.lines().filter(|line| line.split(' ').nth(4).is_some_and(|address| address.starts_with(begin))).count()
}

/// Servers that no Route uses any more are deleted without a further change, as soon as their connections end, and never for long.
pub async fn old_servers(mut bench: Bench) {
    let address = application("web", None).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let busy = listener.local_addr().expect("it is bound");
    let address_of = |at: usize| format!("127.66.{}.{}:80", at / 250, at % 250 + 1).parse().expect("an address");
    let many: Vec<(SocketAddr, u16)> = (0..1_000).map(|at| (address_of(at), 1)).collect();
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/", plain(&[(address, 1)]));
    bench.apply(&site).await;
    route(&mut site, "busy", "busy.example", "/", plain(&[(busy, 1)]));
    route(&mut site, "many", "many.example", "/", plain(&many));
    assert!(!bench.apply(&site).await.reloaded);
    let mut client = TcpStream::connect(bench.http).await.expect("a connection");
    client.write_all(b"GET / HTTP/1.1\r\nHost: busy.example\r\n\r\n").await.expect("it is read");
    let request = listener.accept().await.expect("a request");
    assert_eq!(servers(&bench, "127.66."), 1_000);
    // One change takes them all, and another one replaces the busy one: its request continues.
    site.routes.get_mut("test/many").expect("it is there").servers.truncate(1);
    route(&mut site, "busy", "busy.example", "/", plain(&[(address, 1)]));
    assert!(!bench.apply(&site).await.reloaded);
    let deadline = Instant::now() + PATIENCE;
    let mut times = Vec::new();
    while servers(&bench, "127.66.") > 1 {
        let started = Instant::now();
        bench.proxy.tidy().await;
        times.push(started.elapsed());
        assert!(Instant::now() < deadline, "old servers are not deleted");
    }
    times.sort();
    let is_short = |median: &Duration| *median < Duration::from_secs(1);
    assert!(times.get(times.len() / 2).is_none_or(is_short), "others wait for {times:?}");
    assert_eq!(servers(&bench, "127.0.0.1"), 3, "a server with a connection stays");
    drop((request, client));
    while servers(&bench, "127.0.0.1") > 2 {
        bench.proxy.tidy().await;
        assert!(Instant::now() < deadline, "the last old server is not deleted");
    }
    assert!(!bench.apply(&site).await.reloaded, "the contents of the worker are still known");
    assert_eq!(get(bench.http, "busy.example", "/").await.expect("a response").body, "web");
}

/// While a certificate is rejected, a batch of changes is still a batch: nothing else is applied with it.
pub async fn batches_with_a_rejected_certificate(mut bench: Bench) {
    let address = application("web", None).await;
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/", plain(&[(address, 1)]));
    let pem = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n".to_owned();
    let broken: Host = "a.example".parse().expect("a host");
    site.certificates.insert(broken.clone(), Certificate { pem: pem.into() });
    assert_eq!(bench.apply(&site).await.faults.len(), 1);
    for name in ["first", "second"] {
        route(&mut site, name, &format!("{name}.example"), "/", plain(&[(address, 1)]));
    }
    for (name, expected) in [("first", [200, 404]), ("second", [200, 200])] {
        let mut changes = Changes::default();
        changes.routes.insert(format!("test/{name}").parse().expect("a Route"));
        changes.hosts.insert(format!("{name}.example").parse().expect("a host"));
        let applied = bench.proxy.apply(&site, Some(&changes)).await.expect("the proxy follows");
        assert_eq!((applied.reloaded, applied.faults.len()), (false, 1));
        for (host, status) in ["first.example", "second.example"].into_iter().zip(expected) {
            assert_eq!(get(bench.http, host, "/").await.expect("a response").status, status, "{host} after {name}");
        }
    }
    // One that replaces it is tried at once.
    let good = Identity::new("a.example");
    site.certificates.insert(broken, Certificate { pem: good.pem.as_str().into() });
    let applied = bench.proxy.apply(&site, Some(&Changes::default())).await.expect("the proxy follows");
    assert_eq!((applied.reloaded, applied.faults), (false, vec![]));
}

/// A HAProxy without Lua is not started, and the error names the remedy.
pub async fn without_lua(mut bench: Bench) {
    bench.replace_program("#!/bin/sh\necho 'Feature list : -LUA'\n");
    let error = bench.proxy.apply(&Site::default(), None).await.expect_err("it cannot run");
    assert!(error.to_string().contains("was built without Lua; install"), "{error}");
}
