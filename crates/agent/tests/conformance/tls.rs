//! TLS: where it ends, which certificate clients see, and requests without it.

use std::path::PathBuf;

use signpost_agent::site::{Certificate, Insecure, Site, Termination};

use crate::bench::{Bench, application, plain, route, with_tls};
use crate::client::{Identity, get, get_tls};

fn certificate(site: &mut Site, host: &str, identity: &Identity) {
    site.certificates.insert(host.parse().expect("a host"), Certificate { pem: identity.pem.as_str().into() });
}

/// Edge, passthrough and reencrypt on one address, with exact and wildcard hosts.
pub async fn termination(mut bench: Bench) {
    let [edge, pass, wild, again] =
        ["edge.example", "pass.example", "*.wild.example", "again.example"].map(Identity::new);
    let service = Identity::new("web.test.svc");
    let mut site = Site::default();
    let upstream = with_tls(application("edge", None).await, Termination::Edge, Insecure::None);
    route(&mut site, "edge", "edge.example", "/", upstream);
    let upstream = with_tls(application("pass", Some(pass.server())).await, Termination::Passthrough, Insecure::None);
    route(&mut site, "pass", "pass.example", "/", upstream);
    let upstream = with_tls(application("wild", Some(wild.server())).await, Termination::Passthrough, Insecure::None);
    route(&mut site, "wild", "*.wild.example", "/", upstream);
    let upstream = with_tls(application("again", Some(service.server())).await, Termination::Reencrypt, Insecure::None);
    route(&mut site, "again", "again.example", "/", upstream);
    route(&mut site, "plain", "plain.example", "/", plain(&[(application("plain", None).await, 1)]));
    certificate(&mut site, "edge.example", &edge);
    certificate(&mut site, "again.example", &again);
    bench.apply(&site).await;
    for (identity, host, body) in [
        (&edge, "edge.example", "edge"),
        (&pass, "pass.example", "pass"),
        (&wild, "x.wild.example", "wild"),
        (&again, "again.example", "again"),
    ] {
        let response = get_tls(bench.https, identity, host, host, "/x").await;
        assert_eq!(response.unwrap_or_else(|| panic!("no response for {host}")).body, body);
    }
    // One connection for one host: a request for the application behind another one is for the router to refuse.
    let response = get_tls(bench.https, &edge, "edge.example", "pass.example", "/").await.expect("a response");
    assert_eq!(response.status, 421);
    // A Route without TLS is not served over TLS.
    let response = get_tls(bench.https, &edge, "edge.example", "plain.example", "/").await.expect("a response");
    assert_eq!(response.status, 404);
    // Without the application, its host is not served by another one.
    site.routes.get_mut("test/pass").expect("it is there").servers.clear();
    bench.apply(&site).await;
    assert!(get_tls(bench.https, &pass, "pass.example", "pass.example", "/").await.is_none());
}

/// Plain HTTP requests for Routes with TLS, by policy.
pub async fn insecure_requests(mut bench: Bench) {
    let mut site = Site::default();
    let application = application("web", None).await;
    for (name, termination, insecure) in [
        ("none", Termination::Edge, Insecure::None),
        ("allow", Termination::Edge, Insecure::Allow),
        ("redirect", Termination::Edge, Insecure::Redirect),
        ("pass-none", Termination::Passthrough, Insecure::None),
        ("pass-redirect", Termination::Passthrough, Insecure::Redirect),
    ] {
        route(&mut site, name, &format!("{name}.example"), "/", with_tls(application, termination, insecure));
    }
    bench.apply(&site).await;
    for (host, status) in [("none", 404), ("allow", 200), ("redirect", 302), ("pass-none", 404), ("pass-redirect", 302)]
    {
        let response = get(bench.http, &format!("{host}.example:8080"), "/a?b=c").await.expect("a response");
        assert_eq!(response.status, status, "{host}");
        if status == 302 {
            let location = format!("location: https://{host}.example:{}/a?b=c", bench.https.port());
            assert!(response.head.contains(&location), "{}", response.head);
        }
    }
}

/// Certificates come, change and go; a host without one gets the default certificate.
pub async fn certificates(mut bench: Bench) {
    let mut site = Site::default();
    let upstream = with_tls(application("web", None).await, Termination::Edge, Insecure::None);
    route(&mut site, "web", "web.example", "/", upstream.clone());
    route(&mut site, "wild", "*.wild.example", "/", upstream);
    bench.apply(&site).await;
    let (first, second, wild) =
        (Identity::new("web.example"), Identity::new("web.example"), Identity::new("*.wild.example"));
    let https = bench.https;
    let serves = async |identity: &Identity, host: &str| get_tls(https, identity, host, host, "/").await.is_some();
    assert!(!serves(&first, "web.example").await);
    certificate(&mut site, "web.example", &first);
    certificate(&mut site, "*.wild.example", &wild);
    bench.apply(&site).await;
    assert!(serves(&first, "web.example").await && serves(&wild, "x.wild.example").await);
    certificate(&mut site, "web.example", &second);
    bench.apply(&site).await;
    assert!(serves(&second, "web.example").await && !serves(&first, "web.example").await);
    site.certificates.remove("web.example");
    bench.apply(&site).await;
    assert!(!serves(&second, "web.example").await && serves(&wild, "x.wild.example").await);
    // No file has a private key that is not needed any more.
    for identity in [&first, &second] {
        assert_eq!(bench.files_with(identity.secret()), Vec::<PathBuf>::new());
    }
    // Hosts below the wildcard share its certificate, unless they have their own.
    let upstream = site.routes["test/web"].clone();
    let own = Identity::new("own.wild.example");
    for name in ["one", "two", "own"] {
        route(&mut site, name, &format!("{name}.wild.example"), "/", upstream.clone());
    }
    certificate(&mut site, "own.wild.example", &own);
    bench.apply(&site).await;
    for host in ["one.wild.example", "two.wild.example", "x.wild.example"] {
        assert!(serves(&wild, host).await, "{host}");
    }
    assert!(serves(&own, "own.wild.example").await && !serves(&wild, "own.wild.example").await);
}
