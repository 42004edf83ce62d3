//! The encrypted transports, queried by clients that operators have: `kdig`, which verifies certificates, Unbound, which forwards, and `curl`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use signpost_testing::net::free_address;
use signpost_testing::peers::unbound_over_tls;
use signpost_testing::program::run;
use signpost_testing::{DataDir, Ports, Scrape, Server, eventually, try_dig};

/// Returns the output of `kdig`, which requires a certificate of the CA in `file` for `name`.
fn kdig(server: SocketAddr, file: &Path, name: &str, more: &[&str]) -> String {
    let (at, port) = (format!("@{}", server.ip()), server.port().to_string());
    let (authority, hostname) = (format!("+tls-ca={}", file.display()), format!("+tls-hostname={name}"));
    let output = Command::new("kdig")
        .args([&at, "-p", &port, &authority, &hostname, "+retry=0", "+timeout=10"])
        .args(more)
        .output()
        .expect("kdig is installed (knot-dnsutils)");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn clients_trust_the_platforms_certificate_and_a_forwarder_asks_over_tls() {
    let (data, tls) = (DataDir::new(), free_address());
    let listen = tls.to_string();
    let server = Server::start(
        Ports::free(),
        &[
            "--data-dir",
            data.path(),
            "--domain",
            "v3.rhcloud.com",
            "--nameserver",
            "ns1.v3.rhcloud.com=127.0.0.1",
            "--dns-tls-listen",
            &listen,
        ],
    );
    let authority = data.join("pki/ca.crt");
    let said = kdig(tls, &authority, "ns1.v3.rhcloud.com", &["v3.rhcloud.com", "SOA"]);
    assert!(said.contains("TLS session (TLS1.3)") && said.contains("status: NOERROR"), "{said}");
    assert!(said.contains("PADDING") && said.contains("Received 468 B"), "kdig pads over TLS: {said}");
    let said = kdig(tls, &authority, "ns2.v3.rhcloud.com", &["v3.rhcloud.com", "SOA"]);
    assert!(!said.contains("NOERROR") && said.contains("certificate"), "another name: {said}");

    let (resolver, upstream) = (free_address(), ("v3.rhcloud.com", tls, "ns1.v3.rhcloud.com"));
    let _unbound = unbound_over_tls(resolver, Path::new(data.path()), upstream, &authority);
    let answer = eventually("Unbound answers", || {
        try_dig(resolver, "v3.rhcloud.com", "SOA", &["+recurse"]).filter(|answer| answer.status == "NOERROR")
    });
    assert_eq!(answer.data("SOA").len(), 1);
    let scrape = Scrape::of(server.admin);
    let sum = |name: &str, labels: &[(&str, &str)]| {
        scrape.sum(&format!("signpost_dns_{name}"), &[&[("transport", "tls")], labels].concat())
    };
    assert!(sum("requests_total", &[]) >= 2.0 && sum("encrypted_handshakes_total", &[("result", "full")]) >= 2.0);
    assert_eq!(sum("encrypted_handshakes_total", &[("result", "refused_by_client")]), 1.0);
    let end = scrape.sum("signpost_certificate_expiry_time_seconds", &[("certificate", "dns")]);
    assert!(end > 1.7e9, "{end}");
}

/// A self-signed certificate for this name, and its key.
fn write_pair(certificate: &Path, key: &Path, name: &str) {
    let private = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    std::fs::write(key, private.serialize_pem()).expect("written");
    std::fs::write(certificate, parameters.self_signed(&private).expect("a certificate").pem()).expect("written");
}

#[test]
fn a_certificate_of_ones_own_is_taken_up_anew_and_a_bad_one_is_named() {
    let (data, tls) = (DataDir::new(), free_address());
    std::fs::write(data.join("a.example.zone"), "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n")
        .expect("written");
    let (crt, key, listen) = (data.file("dns.crt"), data.file("dns.key"), tls.to_string());
    let arguments = ["--roles", "dns,admin", "--zones", data.path(), "--dns-tls-listen", &listen];
    let files = ["--dns-certificate", &crt, "--dns-key", &key];
    let refused = run(&[&["check", "config"], &arguments[..]].concat());
    assert!(refused.err.contains("dns.certificate"), "it needs a certificate: {}", refused.err);
    let (crt_path, key_path) = (Path::new(&crt), Path::new(&key));
    write_pair(crt_path, key_path, "one.example");
    let server = Server::start(Ports::free(), &[&arguments[..], &files].concat());
    let ask = |name: &str| kdig(tls, crt_path, name, &["a.example", "SOA"]).contains("NOERROR");
    assert!(ask("one.example"));
    write_pair(crt_path, key_path, "two.example");
    eventually("the new certificate is shown", || ask("two.example").then_some(()));
    // At a start, a file that is not a certificate is an error that names it.
    std::fs::write(crt_path, "nonsense").expect("written");
    assert!(server.terminate().success());
    let failed =
        run(&[&["serve"][..], &arguments, &files, &["--dns-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]]
            .concat());
    assert!(failed.code != Some(0) && failed.err.contains("dns.crt"), "{}", failed.err);
}

#[test]
fn clients_query_over_https_and_quic_and_find_the_transports_in_svcb_records() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let [tls, https, quic] = [free_address(), free_address(), free_address()];
    let (tls_listen, https_listen, quic_listen) = (tls.to_string(), https.to_string(), quic.to_string());
    let offered = [format!("dot:{}", tls.port()), format!("h2:{}", https.port()), format!("doq:{}", quic.port())];
    let mut arguments = vec!["--data-dir", data.path(), "--domain", "v3.rhcloud.com"];
    arguments.extend(["--nameserver", "ns1.v3.rhcloud.com=127.0.0.1", "--dns-tls-listen", &tls_listen]);
    arguments.extend(["--dns-https-listen", &https_listen, "--nameserver-transport", &offered[0]]);
    arguments.extend(["--nameserver-transport", &offered[1]]);
    if cfg!(feature = "quic") {
        arguments.extend(["--dns-quic-listen", &quic_listen, "--nameserver-transport", &offered[2]]);
    }
    let server = Server::start(ports, &arguments);
    let authority = data.join("pki/ca.crt");

    // kdig of Debian 12 has +https, by GET as well, and +quic.
    for (at, transport) in [(tls, "+tls"), (https, "+https"), (https, "+https-get"), (quic, "+quic")] {
        if transport != "+quic" || cfg!(feature = "quic") {
            let ask = |name| kdig(at, &authority, name, &[transport, "ns1.v3.rhcloud.com", "A"]);
            let said = ask("ns1.v3.rhcloud.com");
            assert!(said.contains("status: NOERROR") && said.contains("127.0.0.1"), "{transport}: {said}");
            let said = ask("ns2.v3.rhcloud.com");
            assert!(!said.contains("NOERROR") && said.contains("failed to query"), "another name, {transport}: {said}");
        }
    }
    let url = format!("https://ns1.v3.rhcloud.com:{}/dns-query", https.port());
    let output = Command::new("curl")
        .args(["--silent", "--verbose", "--max-time", "10", "--cacert"])
        .arg(&authority)
        // DNS over HTTPS finds the name of a page, at a port where nothing listens.
        .args([
            "--doh-cert-status",
            "--doh-insecure",
            "--resolve",
            &format!("ns1.v3.rhcloud.com:{}:127.0.0.1", https.port()),
        ])
        .args(["--doh-url", &url, "http://routes.v3.rhcloud.com:9/"])
        .output()
        .expect("curl is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("DoH") || said.contains("DOH"), "curl queries over HTTPS: {said}");

    let svcb = signpost_testing::dig(ports.dns, "_dns.ns1.v3.rhcloud.com", "SVCB", &[]);
    let records = svcb.data("SVCB").join("\n");
    assert!(records.contains(&format!("port={}", tls.port())) && records.contains("key7="), "{records}");

    // The doctor makes a handshake with each, and needs the CA for it.
    let (parent, port) = (ports.dns.to_string(), ports.dns.port().to_string());
    let own = [
        "--nameserver",
        "ns1.v3.rhcloud.com=127.0.0.1",
        "--parent",
        &parent,
        "--port",
        &port,
        "--private",
        "--timeout",
        "20",
    ];
    let doctor = |more: &[&str]| run(&[&["doctor", "--domain", "v3.rhcloud.com"], &own[..], more].concat()).out;
    let said = doctor(&["--tls-ca", authority.to_str().expect("UTF-8")]);
    assert!(said.contains(&format!("and over {}, {}", offered[0], offered[1])), "{said}");
    let said = doctor(&[]);
    assert!(said.contains("encrypted-failed") && said.contains("UnknownIssuer"), "{said}");

    let scrape = Scrape::of(server.admin);
    for transport in ["https", "tls"] {
        assert!(scrape.sum("signpost_dns_requests_total", &[("transport", transport)]) >= 1.0, "{transport}");
    }
}
