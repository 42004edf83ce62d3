//! Web pages whose name leads to the admin endpoint (DNS rebinding): a browser would let them read what it answers.

use std::net::SocketAddr;

use crate::streams::{Attacker, RUNTIME};
use signpost_testing::client::trusting;
use signpost_testing::net::exchange;
use signpost_testing::{DataDir, Ports, Server, eventually, root};

/// Status and the rest of the response to these header lines.
fn get(server: SocketAddr, head: &str) -> (u16, String) {
    let answer = exchange(server, head, "").expect("the server responds");
    (answer.status, answer.head + "\r\n" + &answer.body)
}

const PATHS: &[&str] =
    &["/", "/metrics", "/unrouted-names", "/sources", "/dashboard/", "/dashboard/session", "/dashboard/data/samples"];

#[test]
fn the_admin_endpoint_answers_to_its_own_names() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path(), "--admin-name", "signpost.example.com"]);
    let port = server.admin.port();
    for path in PATHS {
        for (head, accepted) in [
            (format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}"), true),
            (format!("GET {path} HTTP/1.1\r\nHost: [2001:db8::1]"), true),
            (format!("GET {path} HTTP/1.1\r\nHost: LOCALHOST:{port}"), true),
            (format!("GET {path} HTTP/1.1\r\nHost: signpost.example.com:{port}"), true),
            (format!("GET {path} HTTP/1.1\r\nHost: rebound.example:{port}"), false),
            (format!("GET {path} HTTP/1.1\r\nHost: localhost.rebound.example"), false),
            (format!("GET http://rebound.example{path} HTTP/1.1\r\nHost: localhost"), false),
            (format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nHost: rebound.example"), false),
        ] {
            let (status, answer) = get(server.admin, &head);
            assert_eq!(status == 421, !accepted, "{head}: {answer}");
            if !accepted {
                assert!(answer.contains("\"rebound.example") || answer.contains(".rebound.example\""), "{answer}");
                assert!(answer.contains("admin.name"), "the answer has the setting to change: {answer}");
            }
        }
    }
    assert_eq!(get(server.admin, "GET /metrics HTTP/1.1\r\nX: y").0, 400, "HTTP/1.1 needs a Host");
    assert_eq!(get(server.admin, "GET /metrics HTTP/1.0\r\nX: y").0, 200);
    // Probes come by names of the orchestrator's, and hold no secrets.
    for path in ["/livez", "/readyz"] {
        assert_eq!(get(server.admin, &format!("GET {path} HTTP/1.1\r\nHost: rebound.example")).0, 200);
    }
    for (authority, status) in [("localhost", 200), ("rebound.example", 421)] {
        let attacker = Attacker::connect([127, 0, 0, 1], server.admin, 1 << 20).expect("connects");
        let answered = RUNTIME.block_on(attacker.get(&format!("http://{authority}/metrics"), None));
        assert_eq!(answered.expect("is answered").status(), status, "{authority}");
    }
    let (_, page) = get(server.admin, "GET /metrics HTTP/1.1\r\nHost: localhost");
    let refused = page.lines().find_map(|line| line.strip_prefix("signpost_admin_hosts_refused_total "));
    assert_eq!(refused, Some((4 * PATHS.len() + 1).to_string().as_str()), "{page}");
}

#[test]
fn names_in_the_certificate_are_its_own() {
    let (data, zones) = (DataDir::new(), root().join("zones"));
    let key = rcgen::KeyPair::generate().expect("a key");
    let names = ["127.0.0.1", "ops.example.com", "*.wild.example"].map(str::to_owned);
    let certificate =
        rcgen::CertificateParams::new(names).expect("parameters").self_signed(&key).expect("a certificate");
    let (crt, private) = (data.join("tls.crt"), data.join("tls.key"));
    std::fs::write(&crt, certificate.pem()).expect("written");
    std::fs::write(&private, key.serialize_pem()).expect("written");
    let flags = ["--admin-tls-certificate", "--admin-tls-key"].into_iter().zip([&crt, &private]);
    let flags: Vec<&str> = flags.flat_map(|(flag, path)| [flag, path.to_str().expect("UTF-8")]).collect();
    let zones = ["--roles", "dns,admin", "--zones", zones.to_str().expect("UTF-8")];
    let server = Server::spawn(Ports::free(), &[&zones[..], &flags].concat());
    let http = trusting(&certificate.pem()).build().expect("a client");
    let status = |host: &str| {
        let request = http.get(format!("https://{}/metrics", server.admin)).header("host", host);
        RUNTIME.block_on(async { Some(request.send().await.ok()?.status().as_u16()) })
    };
    eventually("it answers", || status("ops.example.com").filter(|status| *status == 200));
    assert_eq!(status("a.wild.example"), Some(200));
    for other in ["rebound.example", "a.b.wild.example", "wild.example"] {
        assert_eq!(status(other), Some(421), "{other}");
    }
}
