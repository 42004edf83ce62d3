//! The rules by which a request finds its Route, as cases of those that OpenShift and Gateway API document.

use signpost_agent::site::Site;

use crate::bench::{Bench, application, plain, route};
use crate::client::get;

/// Routes by name, host and path, and requests by host and path, each with the Route that answers it.
struct Rule {
    documented: &'static str,
    routes: &'static [(&'static str, &'static str, &'static str)],
    requests: &'static [(&'static str, &'static str, Option<&'static str>)],
}

const RULES: &[Rule] = &[
    Rule {
        documented: "OpenShift, path-based routes: a Route with a path does not have its host without that path",
        routes: &[("a", "www.example.com", "/test")],
        requests: &[("www.example.com", "/test", Some("a")), ("www.example.com", "/", None)],
    },
    Rule {
        documented: "OpenShift, path-based routes: Routes with and without a path share a host",
        routes: &[("a", "www.example.com", "/test"), ("b", "www.example.com", "/")],
        requests: &[("www.example.com", "/test", Some("a")), ("www.example.com", "/", Some("b"))],
    },
    Rule {
        documented: "OpenShift, path-based routes: a Route without a path has all paths of its host",
        routes: &[("a", "www.example.com", "/")],
        requests: &[("www.example.com", "/text", Some("a")), ("www.example.com", "/", Some("a"))],
    },
    Rule {
        documented: "OpenShift, wildcard policy: a more specific host wins over a wildcard",
        routes: &[("wild", "*.example.com", "/"), ("exact", "www.example.com", "/")],
        requests: &[("www.example.com", "/", Some("exact")), ("shop.example.com", "/", Some("wild"))],
    },
    Rule {
        documented: "Gateway API, Hostname: a wildcard matches one label or more, and not its own suffix",
        routes: &[("wild", "*.example.com", "/")],
        requests: &[
            ("test.example.com", "/", Some("wild")),
            ("foo.test.example.com", "/", Some("wild")),
            ("example.com", "/", None),
            ("testexample.com", "/", None),
        ],
    },
    Rule {
        documented: "Gateway API, HTTPRouteRule: most characters in a matching host that is not a wildcard, then most in a wildcard",
        routes: &[("short", "*.com", "/"), ("long", "*.example.com", "/"), ("exact", "a.b.example.com", "/")],
        requests: &[
            ("a.b.example.com", "/", Some("exact")),
            ("b.example.com", "/", Some("long")),
            ("x.a.b.example.com", "/", Some("long")),
            ("example.com", "/", Some("short")),
        ],
    },
    Rule {
        documented: "Gateway API, PathPrefix: /abc matches /abc, /abc/ and /abc/def, and not /abcd",
        routes: &[("a", "h.example.com", "/abc")],
        requests: &[
            ("h.example.com", "/abc", Some("a")),
            ("h.example.com", "/abc/", Some("a")),
            ("h.example.com", "/abc/def", Some("a")),
            ("h.example.com", "/abcd", None),
            ("h.example.com", "/ab", None),
        ],
    },
    Rule {
        documented: "Gateway API, PathPrefix: paths are compared by case",
        routes: &[("a", "h.example.com", "/Abc"), ("b", "h.example.com", "/")],
        requests: &[
            ("h.example.com", "/Abc", Some("a")),
            ("h.example.com", "/abc", Some("b")),
            ("h.example.com", "/ABC/d", Some("b")),
        ],
    },
    Rule {
        documented: "Gateway API, HTTPRouteRule: most characters in a matching path",
        routes: &[("root", "h.example.com", "/"), ("one", "h.example.com", "/a"), ("two", "h.example.com", "/a/b")],
        requests: &[
            ("h.example.com", "/a/b/c", Some("two")),
            ("h.example.com", "/a/bc", Some("one")),
            ("h.example.com", "/b", Some("root")),
        ],
    },
    Rule {
        documented: "Gateway API, precedence: the host is decided before the path",
        routes: &[("wild", "*.example.com", "/deep/path"), ("exact", "a.example.com", "/")],
        requests: &[("a.example.com", "/deep/path", Some("exact")), ("b.example.com", "/deep/path", Some("wild"))],
    },
    Rule {
        documented: "nginx, Envoy, and README.md: an exact host does not fall back to a wildcard",
        routes: &[("wild", "*.example.com", "/"), ("exact", "a.example.com", "/only")],
        requests: &[("a.example.com", "/only", Some("exact")), ("a.example.com", "/", None)],
    },
    Rule {
        documented: "RFC 9110 §4.2.3: hosts are compared without case, and a port does not belong to them",
        routes: &[("a", "www.example.com", "/")],
        requests: &[("WWW.Example.COM", "/", Some("a")), ("www.example.com:8080", "/", Some("a"))],
    },
    Rule {
        documented: "RFC 3986 §3.4: the query does not belong to the path",
        routes: &[("a", "h.example.com", "/a"), ("root", "h.example.com", "/")],
        requests: &[("h.example.com", "/a?b", Some("a")), ("h.example.com", "/?x=/a", Some("root"))],
    },
];

/// Each rule holds, for the proxy and for the model.
pub async fn documented_rules(mut bench: Bench) {
    for rule in RULES {
        let mut site = Site::default();
        for (name, host, path) in rule.routes {
            route(&mut site, name, host, path, plain(&[(application(name, None).await, 1)]));
        }
        assert_eq!(bench.apply(&site).await.faults, [], "{}", rule.documented);
        for (host, path, expected) in rule.requests {
            let response = get(bench.http, host, path).await.unwrap_or_else(|| panic!("no response for {host}{path}"));
            let answer = Some(response.body.as_str()).filter(|_| response.status == 200);
            assert_eq!(answer, *expected, "{}: {host}{path}: {response:?}", rule.documented);
            let plain_host = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
            let of_model = site.route(&plain_host, path.split('?').next().unwrap_or_default());
            let of_model = of_model.map(|route| route.as_str().trim_start_matches("test/"));
            assert_eq!(of_model, *expected, "{}: {host}{path} by the model", rule.documented);
        }
    }
}
