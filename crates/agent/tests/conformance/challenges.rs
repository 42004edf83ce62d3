//! HTTP challenges of certificate authorities (RFC 8555 §8.3), which the proxy answers for the hosts whose certificates the platform gets.

use signpost_agent::site::{Insecure, Site};
use signpost_types::traffic::{Network, Settings};
use signpost_types::v1alpha1::route::Termination;

use crate::bench::{Bench, application, plain, route, with_tls};
use crate::client::get;

const PATH: &str = "/.well-known/acme-challenge/";
const THUMBPRINT: &str = "pNWmh5CZjSsKPSRuMz_IxONOwDRzMykSQXzf7N9-4Qo";

/// Neither a redirect nor a path, a limit, or a list of networks of a tenant is in the way, and other hosts and paths are as without it.
pub async fn answers(mut bench: Bench) {
    let own = application("own", None).await;
    let tls = |insecure| with_tls(own, Termination::Edge, insecure);
    let mut site = Site::default();
    let (mut strict, mut limited) = (tls(Insecure::Allow), tls(Insecure::Allow));
    strict.settings.networks = Some(vec![Network::try_from("192.0.2.0/24".to_owned()).expect("a network")]);
    limited.settings = Settings { requests_max: Some(1), ..Settings::default() };
    for (name, host, path, upstream) in [
        ("edge", "edge.example", "/", tls(Insecure::None)),
        ("redirect", "redirect.example", "/", tls(Insecure::Redirect)),
        ("shadow", "shadow.example", "/.well-known", tls(Insecure::Allow)),
        ("deep", "deep.example", "/shop", tls(Insecure::Redirect)),
        ("strict", "strict.example", "/", strict),
        ("limited", "limited.example", "/", limited),
        ("empty", "empty.example", "/", plain(&[])),
        // Not among those hosts.
        ("secret", "secret.example", "/", tls(Insecure::Allow)),
        ("plain", "plain.example", "/", plain(&[(own, 1)])),
        ("wild", "*.w.example", "/", plain(&[(own, 1)])),
    ] {
        route(&mut site, name, host, path, upstream);
    }
    let issued = ["edge", "redirect", "shadow", "deep", "strict", "limited", "empty"];
    site.issued = issued.iter().map(|name| format!("{name}.example").parse().expect("a host")).collect();
    // It is proven by DNS.
    site.issued.insert("*.w.example".parse().expect("a host"));
    bench.apply(&site).await;
    let token = "a-B_9".repeat(25);
    let target = format!("{PATH}{token}");
    let response = get(bench.http, "shadow.example", &target).await.expect("a response");
    assert_eq!((response.status, response.body.as_str()), (200, "own"), "there is no account");

    site.thumbprint = Some(THUMBPRINT.parse().expect("a thumbprint"));
    bench.apply(&site).await;
    for name in issued {
        for host in [format!("{name}.example"), format!("{}.Example.:80", name.to_uppercase())] {
            for _ in 0..3 {
                let response = get(bench.http, &host, &target).await.expect("a response");
                assert_eq!(response.header("Content-Type"), Some("text/plain"), "{host}");
                assert_eq!((response.status, response.body), (200, format!("{token}.{THUMBPRINT}")), "{host}");
            }
        }
    }
    for (host, path, status, body) in [
        ("secret.example", target.as_str(), 200, "own"),
        ("plain.example", &target, 200, "own"),
        ("a.w.example", &target, 200, "own"),
        ("edge.example", "/", 404, ""),
        ("redirect.example", "/", 302, ""),
        ("shadow.example", "/.well-known/other", 200, "own"),
        ("shadow.example", PATH, 200, "own"),
        ("shadow.example", &format!("{PATH}a/b"), 200, "own"),
        ("shadow.example", &format!("{PATH}a.b"), 200, "own"),
        ("shadow.example", &format!("{PATH}a%41"), 200, "own"),
        ("shadow.example", &format!("{PATH}{}", "a".repeat(129)), 200, "own"),
        ("unknown.example", &target, 404, ""),
    ] {
        let response = get(bench.http, host, path).await.expect("a response");
        assert_eq!(response.status, status, "{host}{path}");
        assert!(response.body.contains(body) && !response.body.contains(THUMBPRINT), "{host}{path}: {}", response.body);
    }

    // Hosts come and go without a reload of HAProxy.
    site.issued = ["secret.example"].map(|host| host.parse().expect("a host")).into();
    let applied = bench.apply(&site).await;
    assert_eq!(applied.reloaded, bench.kind == "nginx");
    for (host, has_changed) in [("secret.example", true), ("shadow.example", false)] {
        let response = get(bench.http, host, &target).await.expect("a response");
        assert_eq!(response.body.contains(THUMBPRINT), has_changed, "{host}");
    }
}
