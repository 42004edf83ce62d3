//! Requests that show which Route an instance serves, and which endpoint answered.

use std::net::SocketAddr;

use signpost_agent::site::{Insecure, Site, Upstream};
use signpost_types::probe::{backend_id, route_id};
use signpost_types::v1alpha1::route::Termination;

use crate::bench::{Bench, application, plain, route, uid, with_tls};
use crate::client::{Identity, get, get_tls_with, get_with};

const PROBE: &str = "Signpost-Probe: 1\r\n";
const TRACE: &str = "Signpost-Trace: 1\r\n";

/// Returns an address where nothing listens.
fn closed_address() -> SocketAddr {
    signpost_testing::free_address()
}

/// The proxy itself answers a probe of each Route, in any state, and answers no other probe.
pub async fn probes(mut bench: Bench) {
    let dead = closed_address();
    let tls = |termination, insecure| with_tls(dead, termination, insecure);
    let routes: [(&str, &str, &str, Upstream); 9] = [
        ("root", "a.example", "/", plain(&[(dead, 1)])),
        ("shop", "a.example", "/shop", plain(&[(dead, 1)])),
        ("wild", "*.w.example", "/", plain(&[(dead, 1)])),
        ("empty", "empty.example", "/", plain(&[])),
        ("edge", "edge.example", "/", tls(Termination::Edge, Insecure::None)),
        ("redirect", "redirect.example", "/", tls(Termination::Edge, Insecure::Redirect)),
        ("again", "again.example", "/", tls(Termination::Reencrypt, Insecure::None)),
        ("pass", "pass.example", "/", tls(Termination::Passthrough, Insecure::None)),
        ("only", "only.example", "/only", plain(&[(dead, 1)])),
    ];
    let mut site = Site::default();
    for (name, host, path, upstream) in routes.clone() {
        route(&mut site, name, host, path, upstream);
    }
    bench.apply(&site).await;
    let cases = [
        ("a.example", "/", Some("root")),
        ("A.Example:80", "/shopping?x", Some("root")),
        ("a.example", "/shop/cart", Some("shop")),
        ("x.y.w.example", "/", Some("wild")),
        ("empty.example", "/", Some("empty")),
        ("edge.example", "/", Some("edge")),
        ("redirect.example", "/x", Some("redirect")),
        ("again.example", "/", Some("again")),
        ("pass.example", "/x", Some("pass")),
        ("only.example", "/only", Some("only")),
        ("only.example", "/", None),
        ("unknown.example", "/", None),
        ("w.example", "/", None),
    ];
    for (host, path, expected) in cases {
        let response = get_with(bench.http, host, path, PROBE).await.unwrap_or_else(|| panic!("{host}{path}"));
        let id = expected.map(|name| route_id(&uid(name)));
        let status = if expected.is_some() { 204 } else { 404 };
        assert_eq!((response.status, response.header("Signpost-Route")), (status, id.as_deref()), "{host}{path}");
        assert_eq!(response.body.is_empty(), expected.is_some(), "{host}{path}");
        // RFC 9110 §8.6: "A server MUST NOT send a Content-Length header field in any response with a status code of […] 204".
        assert!(status == 404 || response.header("Content-Length").is_none(), "{}", response.head);
        // A request with an empty header is not a probe.
        let response = get_with(bench.http, host, path, "Signpost-Probe:\r\n").await.expect("a response");
        assert!(response.status != 204 && response.header("Signpost-Route").is_none(), "{host}{path}: {response:?}");
    }
    // A Route that is created again has another identifier.
    site.routes.get_mut("test/root").expect("it is there").uid = "another".to_owned();
    let applied = bench.apply(&site).await;
    assert_eq!(applied.reloaded, bench.kind == "nginx");
    let response = get_with(bench.http, "a.example", "/", PROBE).await.expect("a response");
    assert_eq!(response.header("Signpost-Route"), Some(route_id("another").as_str()));
}

/// A traced response names the endpoint that answered, by an identifier; others do not, and applications see no trace.
pub async fn traces(mut bench: Bench) {
    let (edge, service) = (Identity::new("edge.example"), Identity::new("web.test.svc"));
    let (one, two) = (application("one", None).await, application("two", None).await);
    let tls = application("tls", Some(service.server())).await;
    let mut site = Site::default();
    route(&mut site, "one", "one.example", "/", plain(&[(one, 1)]));
    route(&mut site, "both", "both.example", "/", plain(&[(one, 1), (two, 1)]));
    route(&mut site, "half", "half.example", "/", plain(&[(closed_address(), 1), (two, 1)]));
    route(&mut site, "dead", "dead.example", "/", plain(&[(closed_address(), 1)]));
    route(&mut site, "empty", "empty.example", "/", plain(&[]));
    route(&mut site, "edge", "edge.example", "/", with_tls(one, Termination::Edge, Insecure::Redirect));
    route(&mut site, "again", "again.example", "/", with_tls(tls, Termination::Reencrypt, Insecure::Allow));
    let certificate = signpost_agent::site::Certificate { pem: edge.pem.as_str().into() };
    site.certificates.insert("edge.example".parse().expect("a host"), certificate);
    bench.apply(&site).await;
    let http = bench.http;
    // Host, Route, and the endpoints by the name with which they answer.
    type Endpoints<'a> = &'a [(&'a str, SocketAddr)];
    let cases: [(&str, &str, Endpoints); 4] = [
        ("one.example", "one", &[("one", one)]),
        ("both.example", "both", &[("one", one), ("two", two)]),
        ("half.example", "half", &[("two", two)]),
        ("again.example", "again", &[("tls", tls)]),
    ];
    for (host, name, endpoints) in cases {
        for _ in 0..8 {
            let response = get_with(http, host, "/", TRACE).await.expect("a response");
            let endpoint = endpoints.iter().find(|(body, _)| *body == response.body);
            let (_, endpoint) = endpoint.unwrap_or_else(|| panic!("{host}: {response:?}"));
            let id = backend_id(&uid(name), *endpoint);
            assert_eq!(response.header("Signpost-Backend"), Some(id.as_str()), "{host}");
            assert!(!response.head.contains(&endpoint.to_string()), "{host}: {response:?}");
        }
        let response = get(http, host, "/").await.expect("a response");
        assert_eq!((response.status, response.header("Signpost-Backend")), (200, None), "{host}");
    }
    let response = get_tls_with(bench.https, &edge, "edge.example", "edge.example", "/", TRACE).await;
    let id = backend_id(&uid("edge"), one);
    assert_eq!(response.expect("a response").header("Signpost-Backend"), Some(id.as_str()));
    // No endpoint answered.
    for (host, status) in [("empty.example", 503), ("edge.example", 302), ("unknown.example", 404)] {
        let response = get_with(http, host, "/", TRACE).await.expect("a response");
        assert_eq!((response.status, response.header("Signpost-Backend")), (status, None), "{host}");
    }
    let response = get_with(http, "dead.example", "/", TRACE).await.expect("a response");
    assert_eq!((response.status / 100, response.header("Signpost-Backend")), (5, None));
    // Both headers are the router's.
    let response = get_with(http, "one.example", "/echo", TRACE).await.expect("a response");
    assert!(!response.body.to_ascii_lowercase().contains("signpost-"), "{}", response.body);
    let headers = [TRACE, PROBE].concat();
    let response = get_tls_with(bench.https, &edge, "edge.example", "edge.example", "/echo", &headers).await;
    let body = response.expect("a response").body;
    assert!(body.starts_with("GET /echo ") && !body.to_ascii_lowercase().contains("signpost-"), "{body}");
    // An endpoint moves.
    route(&mut site, "one", "one.example", "/", plain(&[(two, 1)]));
    assert_eq!(bench.apply(&site).await.reloaded, bench.kind == "nginx");
    let response = get_with(http, "one.example", "/", TRACE).await.expect("a response");
    let id = backend_id(&uid("one"), two);
    assert_eq!((response.body.as_str(), response.header("Signpost-Backend")), ("two", Some(id.as_str())));
}
