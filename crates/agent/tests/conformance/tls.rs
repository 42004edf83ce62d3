//! TLS: where it ends, which certificate clients see, and requests without it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signpost_agent::site::{Certificate, Insecure, Site};
use signpost_types::v1alpha1::route::Termination;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::bench::{Bench, application, plain, route, with_tls};
use crate::client::{Identity, get, get_tls, trusting};

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

/// Handshakes with 200 hosts succeed all the time, while their certificates are renewed together and one by one, while others come and go, and
/// while the proxy is reloaded.
pub async fn handshakes(mut bench: Bench) {
    const HOSTS: usize = 200;
    let host = |at: usize| format!("h{at}.example");
    let generations = [(); 2].map(|()| (0..HOSTS).map(|at| Identity::new(&host(at))).collect::<Vec<_>>());
    let mut site = Site::default();
    let upstream = with_tls(application("web", None).await, Termination::Edge, Insecure::None);
    for (at, identity) in generations[0].iter().enumerate() {
        route(&mut site, &format!("h{at}"), &host(at), "/", upstream.clone());
        certificate(&mut site, &host(at), identity);
    }
    bench.apply(&site).await;
    let of_host = |at: usize| trusting(generations.iter().map(|generation| &generation[at]));
    let trust: Arc<[_]> = (0..HOSTS).map(of_host).collect();
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut clients = Vec::new();
    for client in 0..4 {
        let (trust, stop, count, https) = (trust.clone(), stop.clone(), count.clone(), bench.https);
        clients.push(tokio::spawn(async move {
            for at in (0..HOSTS).cycle().skip(client * HOSTS / 4) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let name = ServerName::try_from(format!("h{at}.example")).expect("a name");
                let stream = TcpStream::connect(https).await.expect("a connection");
                trust[at].connect(name, stream).await.unwrap_or_else(|error| panic!("h{at}.example: {error}"));
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let while_they_connect = async |what: &str| {
        let before = count.load(Ordering::Relaxed);
        while count.load(Ordering::Relaxed) < before + HOSTS {
            assert!(clients.iter().all(|client| !client.is_finished()), "{what}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    for round in 1..=2 {
        let generation = &generations[round % 2];
        for (at, identity) in generation.iter().enumerate() {
            certificate(&mut site, &host(at), identity);
        }
        bench.apply(&site).await;
        while_they_connect("all are renewed").await;
        let served = get_tls(bench.https, &generation[7], &host(7), &host(7), "/").await;
        assert_eq!(served.expect("the new certificate is served").body, "web");
    }
    for (at, identity) in generations[1].iter().enumerate().step_by(20) {
        certificate(&mut site, &host(at), identity);
        let other = format!("other{at}.example");
        route(&mut site, "other", &other, "/", upstream.clone());
        certificate(&mut site, &other, &Identity::new(&other));
        bench.apply(&site).await;
    }
    while_they_connect("they are renewed one by one").await;
    for at in 0..3 {
        bench.restart_agent();
        route(&mut site, "other", &format!("again{at}.example"), "/", upstream.clone());
        assert!(bench.apply(&site).await.reloaded);
        while_they_connect("the proxy is reloaded").await;
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("no handshake failed");
    }
}
