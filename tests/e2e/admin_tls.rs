//! The admin endpoints over HTTPS, with a client that verifies certificates: with files of the operator that are replaced, with
//! the API's CA, and with a name server's own CA.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use signpost_testing::client::{Client, trusting};
use signpost_testing::program::{ok, run};
use signpost_testing::{DataDir, Ports, Scrape, Server, eventually, http_get};

/// Returns a client of `admin` that trusts only the CA in PEM. Each request uses a new connection, and thus sees the current
/// certificate.
fn client(authority: &str, admin: SocketAddr) -> Client {
    Client::new(trusting(authority).pool_max_idle_per_host(0), admin)
}

fn client_of_file(path: &Path, admin: SocketAddr) -> Client {
    client(&std::fs::read_to_string(path).expect("the authority's certificate is there"), admin)
}

fn is_ready(client: &Client) -> Option<()> {
    (client.get("/readyz")?.0 == 200).then_some(())
}

/// Returns an authority and a certificate that it signed for 127.0.0.1: both in PEM, and the key.
fn certificate() -> (String, String, String) {
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_pem = authority.self_signed(&authority_key).expect("a certificate").pem();
    let key = rcgen::KeyPair::generate().expect("a key");
    let server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
    let signed = server.signed_by(&key, &rcgen::Issuer::new(authority, authority_key)).expect("a certificate");
    (authority_pem, signed.pem(), key.serialize_pem())
}

#[test]
fn a_certificate_of_ones_own_is_shown_and_taken_up_anew() {
    let data = DataDir::new();
    std::fs::write(data.join("a.example.zone"), "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n")
        .expect("written");
    let (crt, key) = (data.join("tls.crt"), data.join("tls.key"));
    let write = |(_, certificate, private): &(String, String, String)| {
        std::fs::write(&key, private).expect("written");
        std::fs::write(&crt, certificate).expect("written");
    };
    let (one, two, three) = (certificate(), certificate(), certificate());
    write(&one);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let arguments = ["--roles", "dns,admin", "--zones", data.path()];
    let files = ["--admin-tls-certificate", &text(&crt), "--admin-tls-key", &text(&key)];
    let server = Server::spawn(Ports::free(), &[&arguments[..], &files[..]].concat());
    let [first, second, third] = [&one, &two, &three].map(|(authority, ..)| client(authority, server.admin));
    eventually("it is ready over HTTPS", || is_ready(&first));
    assert_eq!(first.get("/livez").map(|(status, _)| status), Some(200));
    let (_, page) = first.get("/metrics").expect("metrics over HTTPS");
    assert!(page.contains("signpost_dns_zones 1"), "{page}");
    assert!(first.get("/dashboard/").is_some_and(|(status, _)| status == 200));
    assert!(second.get("/livez").is_none(), "another authority did not sign this");
    assert!(http_get(server.admin, "/livez").is_none(), "plain HTTP is not answered");

    // Half a pair is logged as an error and changes nothing.
    std::fs::write(&crt, &two.1).expect("written");
    eventually("the fault is logged", || server.log().contains("failed to load the new certificate").then_some(()));
    assert!(first.get("/livez").is_some());
    write(&two);
    eventually("the new pair is shown", || second.get("/livez"));
    // One that has no session from before, which TLS would resume without a certificate.
    assert!(client(&one.0, server.admin).get("/livez").is_none());
    // A signal makes the process reload it immediately.
    write(&three);
    server.signal("HUP");
    eventually("the third pair is shown", || third.get("/livez"));
    assert!(server.terminate().success());
}

#[test]
fn the_apis_authority_and_a_name_servers_own() {
    let (data, ns) = (DataDir::new(), DataDir::new());
    let server = Server::spawn(Ports::free(), &["--data-dir", data.path(), "--admin-tls", "true"]);
    eventually("the authority is made", || data.join("pki/ca.crt").is_file().then_some(()));
    let client = client_of_file(&data.join("pki/ca.crt"), server.admin);
    eventually("it is ready over HTTPS", || is_ready(&client));
    server.logs(&format!("https://{}/", server.admin));

    // Signing in over Signpost's own TLS makes a cookie that browsers send over TLS alone.
    let kubeconfig = std::fs::read_to_string(data.join("kubeconfig")).expect("the server wrote it");
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token:")).expect("it has a token");
    let cookie = client.runtime.block_on(async {
        let url = format!("https://{}/dashboard/session", server.admin);
        let body = json!({"token": token.trim().trim_matches('"')}).to_string();
        let request = client.http.post(url).header("content-type", "application/json").body(body);
        let answer = request.send().await.expect("it answers");
        assert_eq!(answer.status(), 200);
        answer.headers()["set-cookie"].to_str().expect("text").to_owned()
    });
    assert!(cookie.ends_with("; Secure"), "{cookie}");

    let status = |more: &[&str]| {
        let admin = format!("https://{}", server.admin);
        let own = ["status", "--interval", "0", "-o", "json", "--data-dir", data.path(), "--admin", &admin];
        run(&[&own, more].concat())
    };
    let authority = data.join("pki/ca.crt");
    let ran = status(&["--admin-ca", authority.to_str().expect("UTF-8")]);
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(report["processes"][0]["ready"], true, "{report}");
    assert_ne!(status(&[]).code, Some(0), "the system does not trust this authority");

    let access = data.join("name-server.kubeconfig");
    let arguments = ["--roles", "dns,admin", "--admin-tls", "true", "--data-dir", ns.path(), "--kubeconfig"];
    let other = Server::spawn(Ports::free(), &[&arguments[..], &[access.to_str().expect("UTF-8")]].concat());
    let own = ns.join("admin-pki/ca.crt");
    eventually("the name server makes its own", || own.is_file().then_some(()));
    let other_client = client_of_file(&own, other.admin);
    eventually("the name server is ready over HTTPS", || is_ready(&other_client));
    assert!(client_of_file(&own, server.admin).get("/livez").is_none());
}

/// A certificate of the operator's own that is not valid yet is reported: the server cannot replace it.
#[test]
fn a_certificate_of_ones_own_that_is_not_valid_yet_is_reported() {
    let data = DataDir::new();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    certificate.not_before = rcgen::date_time_ymd(2090, 1, 1);
    certificate.not_after = rcgen::date_time_ymd(2091, 1, 1);
    let certificate = certificate.self_signed(&key).expect("a certificate");
    let file = |name: &str, pem: String| {
        std::fs::write(data.join(name), pem).expect("written");
        data.join(name).to_str().expect("UTF-8").to_owned()
    };
    let (certificate, key) = (file("tls.crt", certificate.pem()), file("tls.key", key.serialize_pem()));
    let own = ["--data-dir", data.path(), "--api-tls-certificate", &certificate, "--api-tls-key", &key];
    let server = Server::start(Ports::free(), &own);
    let labels = [("certificate", "api")];
    let starts = Scrape::of(server.admin).sum("signpost_certificate_start_time_seconds", &labels);
    assert!(starts > jiff::Timestamp::now().as_second() as f64, "{starts}");
    let admin = format!("http://{}", server.admin);
    let status = run(&["status", "--admin", &admin, "--interval", "0", "--data-dir", data.path()]);
    let is_reported = status.out.contains("1 certificates are not valid yet, and clients reject them");
    assert!(status.code == Some(1) && is_reported, "{}{}", status.out, status.err);
    eventually("the log reports it", || server.log().contains("replace the file").then_some(()));
}

/// `/metrics` contains the expiry of each certificate: those of the API, and the client certificate of a name server's
/// kubeconfig.
#[test]
fn the_expiry_of_each_certificate_is_reported() {
    const DAY: f64 = 86_400.0;
    let (data, state) = (DataDir::new(), DataDir::new());
    let roles = ["--roles", "api,scheduler,admin", "--domain", "v3.rhcloud.com", "--data-dir", data.path()];
    let api = Server::start(Ports::free(), &roles);
    let kubeconfig = data.join("ns1.kubeconfig");
    let out = kubeconfig.to_str().expect("UTF-8");
    for arguments in [
        &["user", "add", "ns1", "--role", "name-server", "--no-credential"][..],
        &["kubeconfig", "--user", "ns1", "--certificate", "--ttl", "12h", "--out", out],
    ] {
        ok(&[arguments, &["--data-dir", data.path()]].concat());
    }
    let roles = ["--roles", "dns,admin", "--domain", "v3.rhcloud.com", "--data-dir", state.path(), "--kubeconfig", out];
    let name_server = Server::start(Ports::free(), &roles);
    let left = |server: &Server, certificate: &str| {
        let now = jiff::Timestamp::now().as_second() as f64;
        Scrape::of(server.admin).sum("signpost_certificate_expiry_time_seconds", &[("certificate", certificate)]) - now
    };
    for (server, certificate, least, most) in [
        (&api, "api", 300.0 * DAY, 398.0 * DAY),
        (&api, "authority", 1_000.0 * DAY, 10_000.0 * DAY),
        (&name_server, "kubeconfig", 0.4 * DAY, 0.6 * DAY),
    ] {
        let left = left(server, certificate);
        assert!((least..=most).contains(&left), "{certificate}: {left}");
    }
    // Without a certificate there is none: the admin endpoints speak plain HTTP.
    assert!(left(&api, "admin") < 0.0);
}
