//! Which application receives a request.

use signpost_agent::site::Site;
use signpost_types::paths;
use signpost_types::probe::route_id;

use crate::bench::{Bench, application, plain, route, uid};
use crate::client::{get, get_with};

/// The proxy finds the same Route as the model, for every host and path.
pub async fn hosts_and_paths(mut bench: Bench) {
    let mut site = Site::default();
    let routes = [
        ("root", "a.example", "/"),
        ("shop", "a.example", "/shop"),
        ("new", "a.example", "/shop/new"),
        ("wild", "*.w.example", "/"),
        ("wilder", "*.x.w.example", "/"),
        ("wildpath", "*.w.example", "/p"),
        ("only", "b.w.example", "/only"),
        ("odd", "odd.example", "/it's;a,(b)$c"),
    ];
    for (name, host, path) in routes {
        route(&mut site, name, host, path, plain(&[(application(name, None).await, 1)]));
    }
    route(&mut site, "empty", "empty.example", "/", plain(&[]));
    bench.apply(&site).await;
    // The most labels that a wildcard matches, and one more.
    let deep = [16, 17].map(|labels| format!("{}w.example", "a.".repeat(labels)));
    let hosts = [
        deep[0].as_str(),
        deep[1].as_str(),
        "a.example",
        "x.a.example",
        "example",
        "w.example",
        "c.w.example",
        "d.c.w.example",
        "x.w.example",
        "y.x.w.example",
        "b.w.example",
        "c.b.w.example",
        "odd.example",
        "empty.example",
        "unknown.example",
    ];
    let paths = [
        "/",
        "/shop",
        "/shop/",
        "/shop/cart",
        "/shopping",
        "/shop/new",
        "/shop/newer",
        "/SHOP",
        "/p/q",
        "/only",
        "/only/x",
        "/it's;a,(b)$c/d",
    ];
    for host in hosts {
        for path in paths {
            let expected = site.route(host, path).map(|route| route.as_str().trim_start_matches("test/"));
            let response = get(bench.http, host, path).await.unwrap_or_else(|| panic!("no response for {host}{path}"));
            match expected {
                None => {
                    assert_eq!((response.status, response.body.contains("no application")), (404, true), "{host}{path}")
                }
                Some("empty") => assert_eq!(response.status, 503, "{host}{path}"),
                Some(name) => assert_eq!((response.status, response.body.as_str()), (200, name), "{host}{path}"),
            }
        }
    }
    // Host names are not case-sensitive (RFC 9110 §4.2.3), and come with a port if it is not the default one.
    for host in ["A.Example", "a.example:80", "a.example.", "a.example.:8080"] {
        assert_eq!(get(bench.http, host, "/").await.expect("a response").body, "root", "{host}");
    }
    // The query string does not belong to the path.
    assert_eq!(get(bench.http, "a.example", "/shop?/new").await.expect("a response").body, "shop");
    assert_eq!(get(bench.http, "a.example", "/?x=/shop").await.expect("a response").body, "root");
}

/// Every path that the API accepts is served: with each character, and with each code of another one. Of two Routes of one host, the
/// longer prefix wins.
pub async fn servable_paths(mut bench: Bench) {
    let server = application("app", None).await;
    let characters = (0x00..0x80_u8).map(|octet| char::from(octet).to_string());
    let codes = (0x00..=0xff_u8).map(|octet| format!("%{octet:02X}"));
    let mut served: Vec<String> = characters.chain(codes).map(|text| format!("/x{text}y")).collect();
    served.retain(|path| paths::check(path).is_ok());
    assert_eq!(served.len(), 80 + 156, "{served:?}");
    served.extend(["/", "/.well-known", "/a.b~c", "/a.b~c/d", "/a:b@c", "/a;b=c", "/*", "/(x)"].map(str::to_owned));
    served.push(format!("/{}", "%C3%A9".repeat(170)));
    let mut site = Site::default();
    for (at, path) in served.iter().enumerate() {
        route(&mut site, &format!("r{at}"), "odd.example", path, plain(&[(server, 1)]));
    }
    assert_eq!(bench.apply(&site).await.faults, []);
    for (at, path) in served.iter().enumerate() {
        for suffix in ["", "/", "/z%20?q=/x", "?q"] {
            let path = format!("{}{suffix}", path.trim_end_matches('/'));
            let path = if path.starts_with('/') { path } else { format!("/{path}") };
            let response = get_with(bench.http, "odd.example", &path, "Signpost-Probe: 1\r\n").await;
            let response = response.unwrap_or_else(|| panic!("no response for {path}"));
            let found = (response.status, response.header("Signpost-Route"));
            assert_eq!(found, (204, Some(route_id(&uid(&format!("r{at}"))).as_str())), "{path}");
        }
    }
}

/// Servers get requests in proportion to their weights, those of weight 0 none, and changed weights count at once.
pub async fn weights(mut bench: Bench) {
    let (one, two, idle) =
        (application("one", None).await, application("two", None).await, application("idle", None).await);
    for (first, second) in [(3, 1), (1, 1), (0, 1)] {
        let mut site = Site::default();
        route(&mut site, "web", "a.example", "/", plain(&[(one, first), (two, second), (idle, 0)]));
        bench.apply(&site).await;
        let mut counts = [0u16; 2];
        let requests = 40;
        for _ in 0..requests {
            match get(bench.http, "a.example", "/").await.expect("a response").body.as_str() {
                "one" => counts[0] += 1,
                "two" => counts[1] += 1,
                other => panic!("{other} got a request"),
            }
        }
        let expected = requests * first / (first + second);
        // Each of the proxy's threads or processes can have a rotation of its own.
        assert!(counts[0].abs_diff(expected) <= 3, "weights {first}:{second} gave {counts:?}");
    }
}

/// Requests that try to be more than a host and a path reach no application, and leave the proxy well.
pub async fn hostile_requests(mut bench: Bench) {
    let mut site = Site::default();
    route(&mut site, "web", "a.example", "/shop", plain(&[(application("web", None).await, 1)]));
    bench.apply(&site).await;
    let long = format!("{}.example", "a".repeat(5_000));
    let deep = "a.".repeat(200) + "example";
    for (host, path) in [
        ("*.example", "/shop"),
        ("a.example/shop", "/"),
        ("*", "/shop"),
        ("", "/shop"),
        (".", "/shop"),
        ("..a.example", "/shop"),
        ("[::1]", "/shop"),
        ("a.example;show info", "/shop"),
        ("x\"y", "/shop"),
        ("$host", "/shop"),
        ("%[env(PATH)]", "/shop"),
        (&long, "/shop"),
        (&deep, "/shop"),
        ("a.example", "/"),
        ("a.example", "/;shop"),
        ("a.example", "/shopping%20"),
    ] {
        if let Some(response) = get(bench.http, host, path).await {
            assert!((400..500).contains(&response.status), "{host}{path}: {response:?}");
        }
    }
    assert_eq!(get(bench.http, "a.example", "/shop").await.expect("a response").body, "web");
}
