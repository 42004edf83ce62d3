//! Chromium with secure DNS set to our server, which resolves the name of a page over HTTPS (RFC 8484).

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64;
use rcgen::PublicKeyData as _;
use serde_json::json;
use signpost_testing::net::free_address;
use signpost_testing::{DataDir, Ports, Scrape, Server};

use crate::browser::Browser;

/// Serves one page on a free port, until the test ends. Returns the port.
fn page() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
            let body = "<main id=main>a page of the shard</main>";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}", body.len());
            let _ = write!(stream, "{head}\r\nConnection: close\r\n\r\n{body}");
        }
    });
    port
}

#[test]
fn chromium_resolves_by_secure_dns() {
    let (data, https) = (DataDir::new(), free_address());
    let (crt, key, listen) = (data.file("dns.crt"), data.file("dns.key"), https.to_string());
    std::fs::write(
        data.join("page.example.zone"),
        "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\nwww A 127.0.0.1\n",
    )
    .expect("written");
    let private = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    std::fs::write(&key, private.serialize_pem()).expect("written");
    std::fs::write(&crt, parameters.self_signed(&private).expect("a certificate").pem()).expect("written");
    let arguments = ["--roles", "dns,admin", "--zones", data.path(), "--dns-https-listen", &listen];
    let files = ["--dns-certificate", &crt, "--dns-key", &key];
    let server = Server::start(Ports::free(), &[&arguments[..], &files].concat());

    // Chromium accepts the certificate by its key. Secure mode has no other resolver to fall back to.
    let profile = DataDir::new();
    let spki = BASE64.encode(digest(&SHA256, &private.subject_public_key_info()).as_ref());
    let arguments =
        [format!("--ignore-certificate-errors-spki-list={spki}"), format!("--user-data-dir={}", profile.path())];
    let local_state =
        json!({"dns_over_https.mode": "secure", "dns_over_https.templates": format!("https://{https}/dns-query")});
    let Some(browser) = Browser::start_with(&arguments.each_ref().map(String::as_str), &local_state) else { return };
    browser.open(&format!("http://www.page.example:{}/", page()));
    browser.sees("a page of the shard");
    let scrape = Scrape::of(server.admin);
    let requests = scrape.sum("signpost_dns_requests_total", &[("transport", "https"), ("type", "A")]);
    assert!(requests >= 1.0, "{requests}");
}
