//! Tenants and strangers who attack a shard. The requests of a bystander to its own Route succeed during each attack, and its new Routes
//! are served soon. The suite of the agent has more attacks on a proxy alone.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::scene::{Scene, application, attacker, bouncer, connect, get, listen, route, service};
use crate::support::is_long;
use signpost_testing::wait_for;

/// Defines a test for each proxy, inside namespaces of its own.
macro_rules! attacks {
    ($($attack:ident: $($proxy:ident)*;)*) => {
        $(mod $attack {
            $(#[test]
            fn $proxy() {
                let name = concat!("routers::", stringify!($attack), "::", stringify!($proxy));
                if signpost_testing::namespace::inside_namespaces(name) {
                    super::$attack(stringify!($proxy));
                }
            })*
        })*
    };
}

attacks! {
    tenants: haproxy nginx;
    strangers: haproxy nginx;
    churn: nginx;
}

/// Objects that a tenant can write: very many servers, Routes that lead back to a router, and very many changes.
fn tenants(proxy: &'static str) {
    let scene = Scene::start(proxy, &["--routers-client-connections", "64"]);
    very_many_servers(&scene);
    routers_as_endpoints(&scene);
    loops(&scene);
    very_many_changes(&scene);
    scene.was_served();
}

/// Routes to 1,000 endpoints with 100 ports each, in an EndpointSlice of 35 KB.
fn very_many_servers(scene: &Scene) {
    let addresses: Vec<IpAddr> = (0..1_000).map(|at| attacker(1_000 + at).into()).collect();
    let ports: Vec<u16> = (1_001..=1_100).collect();
    service(&scene.attacker, "attacker", "huge", &addresses, &ports);
    for (at, termination) in [None, Some("passthrough"), Some("reencrypt")].into_iter().enumerate() {
        let mut spec = json!({"to": {"name": "huge"}});
        if let Some(termination) = termination {
            spec["tls"] = json!({"termination": termination});
        }
        route(&scene.attacker, "attacker", &format!("huge{at}"), spec, None);
        println!("{}: {:?} next to 100,000 servers", scene.proxy, scene.new_route(&format!("many{at}")));
    }
}

/// The listeners of both shards get no requests as endpoints.
fn routers_as_endpoints(scene: &Scene) {
    let ip = |address: SocketAddr| address.ip();
    for (name, address, port) in
        [("self", ip(scene.http), 80), ("self-tls", ip(scene.https), 443), ("other", ip(scene.second), 80)]
    {
        service(&scene.attacker, "attacker", name, &[address], &[port]);
        let mut spec = json!({"to": {"name": name}});
        if port == 443 {
            spec["tls"] = json!({"termination": "passthrough", "insecureEdgeTerminationPolicy": "Redirect"});
        }
        route(&scene.attacker, "attacker", name, spec, None);
    }
    for name in ["self", "other"] {
        scene.answers(&format!("attacker-{name}.shard1.v3.rhcloud.com"), 503);
    }
    let tls = "attacker-self-tls.shard1.v3.rhcloud.com";
    scene.answers(tls, 302);
    // A worker that nginx replaces does not know the Route.
    wait_for("the router is not an endpoint over TLS", || !tls_request(tls, scene.https).success());
}

/// Sends a request over TLS.
fn tls_request(host: &str, to: SocketAddr) -> std::process::ExitStatus {
    let resolve = format!("{host}:{}:{}", to.port(), to.ip());
    let mut curl = Command::new("curl");
    curl.args(["-sk", "--max-time", "30", "--resolve", &resolve, &format!("https://{host}/")]);
    curl.stdout(Stdio::null()).status().expect("curl is installed")
}

/// An application that passes what it gets back to a router: over HTTP to the other shard, whose Route leads back, and over TLS to the
/// same one.
fn loops(scene: &Scene) {
    let names = ["loop-a.shard1", "loop-b.shard2"];
    let (to_second, _) = bouncer(attacker(1), scene.second, Some(names));
    let (to_first, passes) = bouncer(attacker(2), scene.http, Some([names[1], names[0]]));
    for (name, bouncer, shard) in [("loop-a", to_second, None), ("loop-b", to_first, Some("two"))] {
        service(&scene.attacker, "attacker", name, &[bouncer.ip()], &[bouncer.port()]);
        route(&scene.attacker, "attacker", name, json!({"to": {"name": name}}), shard);
    }
    let second = "attacker-loop-b.shard2.v3.rhcloud.com";
    wait_for("the loop is there", || get(scene.second, second).is_some_and(|status| status == 508));
    passes.store(0, Ordering::Relaxed);
    scene.answers("attacker-loop-a.shard1.v3.rhcloud.com", 508);
    assert!(passes.load(Ordering::Relaxed) <= 16, "{passes:?}");

    let (bounced, passes) = bouncer(attacker(3), scene.https, None);
    service(&scene.attacker, "attacker", "bounced", &[bounced.ip()], &[bounced.port()]);
    let tls = json!({"termination": "passthrough", "insecureEdgeTerminationPolicy": "Redirect"});
    route(&scene.attacker, "attacker", "bounced", json!({"to": {"name": "bounced"}, "tls": tls}), None);
    let host = "attacker-bounced.shard1.v3.rhcloud.com";
    scene.answers(host, 302);
    wait_for("the loop begins", || {
        passes.store(0, Ordering::Relaxed);
        let _ = tls_request(host, scene.https);
        passes.load(Ordering::Relaxed) > 8
    });
    // The limit of a client, in each generation of nginx, and that of one that is ended on the way.
    let passes = passes.load(Ordering::Relaxed);
    println!("{}: one ClientHello passed {passes} times", scene.proxy);
    assert!(passes < 64 * 10, "{passes} connections for one");
}

/// Very many new Routes, all at the same time.
fn very_many_changes(scene: &Scene) {
    let routes = if is_long() { 4_000 } else { 300 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for at in 0..routes / 4 {
                    let name = format!("change{thread}-{at}");
                    route(&scene.attacker, "attacker", &name, json!({"to": {"name": "loop-a"}}), None);
                }
            });
        }
        for at in 0..3 {
            let elapsed = scene.new_route(&format!("change{at}"));
            println!("{}: {elapsed:?} among {routes} changes of another tenant", scene.proxy);
        }
    });
}

/// Connections that a client can hold: with slow heads, slow bodies and unread responses.
fn strangers(proxy: &'static str) {
    // With the default limit, the attack has more connections than one client may have, too.
    let (attempts, limit) = if is_long() { (12_000, 1_024) } else { (300, 100) };
    let limit_flag = limit.to_string();
    let scene = Scene::start(proxy, &["--routers-client-connections", &limit_flag]);
    let application = application();
    let slow = listen(|mut stream| _ = std::io::copy(&mut stream, &mut std::io::sink()));
    service(&scene.attacker, "attacker", "web", &[application.ip()], &[application.port()]);
    service(&scene.attacker, "attacker", "slow", &[slow.ip()], &[slow.port()]);
    for name in ["slow", "web"] {
        route(&scene.attacker, "attacker", name, json!({"to": {"name": name}}), None);
    }
    scene.answers("attacker-web.shard1.v3.rhcloud.com", 200);

    let head = "POST / HTTP/1.1\r\nHost: attacker-slow.shard1.v3.rhcloud.com\r\n";
    let body = format!("{head}Content-Length: 1000000\r\n\r\n");
    // Each generation of nginx's workers has a count of its own, and a reload can come meanwhile.
    let most = if proxy == "nginx" { 2 * limit } else { limit };
    for (name, from, bytes) in [("heads", attacker(1), head), ("bodies", attacker(2), &body)] {
        let mut held = hold(scene.http, from, attempts, bytes.as_bytes(), most);
        println!("{proxy}: {} connections with slow {name} of {attempts}", held.len());
        assert!((1..=most).contains(&held.len()), "{}", held.len());
        let until = Instant::now() + Duration::from_secs(if is_long() { 60 } else { 3 });
        while Instant::now() < until {
            held.iter_mut().for_each(|stream| _ = stream.write_all(b"x"));
            std::thread::sleep(Duration::from_millis(500));
        }
        scene.new_route(&format!("slow-{name}"));
    }
    unread_responses(&scene);
    scene.was_served();
}

/// Clients that do not read. Nothing of the responses gets to the disk.
fn unread_responses(scene: &Scene) {
    let before = octets(&scene.directory());
    let request = b"GET /endless HTTP/1.1\r\nHost: attacker-web.shard1.v3.rhcloud.com\r\n\r\n";
    let held = hold(scene.http, attacker(3), 50, request, 50);
    assert!(held.len() > 10, "{}", held.len());
    std::thread::sleep(Duration::from_secs(if is_long() { 60 } else { 3 }));
    let grown = octets(&scene.directory()).saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} octets on the disk");
    // Files without a name are not in the directory.
    for process in scene.processes() {
        let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
        let targets = files.filter_map(|file| std::fs::read_link(file.path()).ok());
        let temporary: Vec<_> = targets.filter(|target| target.to_string_lossy().contains("/temporary/")).collect();
        assert!(temporary.is_empty(), "{temporary:?}");
    }
}

/// Returns the size of all files in a directory.
fn octets(directory: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => octets(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// Opens connections that send some bytes, and returns those that stay open. `most`: the number that the proxy permits.
fn hold(to: SocketAddr, from: Ipv4Addr, attempts: usize, bytes: &[u8], most: usize) -> Vec<TcpStream> {
    let mut held: Vec<TcpStream> = Vec::new();
    let is_open = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).expect("it is a socket");
        let peeked = stream.peek(&mut [0; 1]);
        stream.set_nonblocking(false).expect("it is a socket");
        match peeked {
            Ok(read) => read > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    };
    for attempt in 1..=attempts {
        if let Ok(mut stream) = connect(from, to)
            && stream.write_all(bytes).is_ok()
        {
            held.push(stream);
        }
        if attempt % 100 == 0 {
            std::thread::sleep(Duration::from_millis(100));
            held.retain_mut(is_open);
        }
    }
    // A proxy on a slow machine closes the last ones later. The longest wait, 8 s, is shorter than the timeout of 10 s for a head, which
    // closes connections without a limit, too.
    for round in 0..80 {
        if round >= 20 && held.len() <= most {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        held.retain_mut(is_open);
    }
    held
}

/// A tenant that changes its endpoints all the time, and keeps a connection with each. nginx has a limited number of processes.
fn churn(proxy: &'static str) {
    let scene = Scene::start(proxy, &[]);
    let applications = [application(), application()];
    let (mut held, mut most, mut slowest) = (Vec::new(), 0, Duration::ZERO);
    let before = scene.processes().len();
    let until = Instant::now() + Duration::from_secs(if is_long() { 180 } else { 20 });
    service(&scene.attacker, "attacker", "web", &[applications[0].ip()], &[applications[0].port()]);
    route(&scene.attacker, "attacker", "web", json!({"to": {"name": "web"}}), None);
    scene.answers("attacker-web.shard1.v3.rhcloud.com", 200);
    for at in 0.. {
        if Instant::now() > until {
            break;
        }
        let application = applications[at % 2];
        service(&scene.attacker, "attacker", "web", &[application.ip()], &[application.port()]);
        if let Ok(mut stream) = connect(attacker(1), scene.http) {
            let _ = stream.write_all(b"GET /wait HTTP/1.1\r\nHost: attacker-web.shard1.v3.rhcloud.com\r\n\r\n");
            held.push(stream);
        }
        if held.len() > 200 {
            held.remove(0);
        }
        most = most.max(scene.processes().len());
        if at % 20 == 10 {
            slowest = slowest.max(scene.new_route(&format!("churn{at}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("{proxy}: at most {most} processes, {before} without the attack; a new Route after at most {slowest:?}");
    // A master, and as many workers in each generation: eight old ones, the current one, and one that starts.
    let workers = std::thread::available_parallelism().expect("it is known").get();
    assert!(most > before, "the attack takes place");
    assert!(most <= 1 + workers * 10, "{most} processes");
    scene.was_served();
}
