//! The path from `kubectl create secret tls` to `https` through real proxies: a Secret comes, is replaced, breaks, and goes, and nothing of its key is
//! anywhere but with the router.

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::agent::{Agent, agent_user, application, platform, route, router, service};
use signpost_testing::net::{exchange, http_get};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, program, until};

const HOST: &str = "web-shop.shard1.example.org";

/// A CA in a directory, and a certificate that it issued for the host.
struct Issued {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Issued {
    fn new(directory: &DataDir, name: &str) -> Issued {
        let write = |kind: &str, text: String| {
            let path = directory.join(&format!("{name}.{kind}"));
            std::fs::write(&path, text).expect("written");
            path
        };
        let mut ca = CertificateParams::new(Vec::new()).expect("no names");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, name);
        let of_ca = KeyPair::generate().expect("a key");
        let trusted = ca.self_signed(&of_ca).expect("a CA");
        let key = KeyPair::generate().expect("a key");
        let names = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
        let certificate = names.signed_by(&key, &Issuer::from_params(&ca, of_ca)).expect("a certificate");
        Issued {
            ca: write("ca", trusted.pem()),
            certificate: write("crt", certificate.pem()),
            key: write("key", key.serialize_pem()),
        }
    }

    fn text(&self, path: &Path) -> String {
        std::fs::read_to_string(path).expect("it was written")
    }
}

/// Returns the body of a response over TLS, or the error of curl.
fn curl(agent: &Agent, ca: &Path) -> Result<String, String> {
    let (ip, port) = (agent.https.ip(), agent.https.port());
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "10", "--cacert"])
        .arg(ca)
        .args(["--resolve", &format!("{HOST}:{port}:{ip}"), &format!("https://{HOST}:{port}/")])
        .output()
        .expect("curl runs");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[track_caller]
fn until_ready(kubectl: &Kubectl, expected: &str) -> String {
    let route = || kubectl.json(&["routes.signpost.dev", "shop", "-n", "web"]);
    eventually(expected, || {
        let status = route()["status"].take();
        let ready = status["conditions"].as_array()?.iter().find(|one| one["type"] == "CertificateReady")?.clone();
        let message = ready["message"].as_str()?.to_owned();
        let found = format!("{} {}", ready["status"].as_str()?, ready["reason"].as_str()?);
        (found == expected).then_some(message)
    })
}

/// Returns the files below a directory that have one of these texts.
fn files_with(directory: &Path, texts: &[String], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_with(&path, texts, found);
        } else if let Ok(octets) = std::fs::read(&path)
            && texts.iter().any(|text| octets.windows(text.len()).any(|part| part == text.as_bytes()))
        {
            found.push(path);
        }
    }
}

/// Returns what an operator can see of a platform, apart from the Secret itself: each log, page, and description.
fn all_that_is_shown(data: &DataDir, server: &Server, kubectl: &Kubectl, agent: &Agent) -> Vec<(String, String)> {
    let admin = server.admin;
    let mut shown = vec![
        ("the log of the server".to_owned(), server.log()),
        ("the log of the agent".to_owned(), agent.log()),
        ("the metrics of the agent".to_owned(), agent.metrics()),
    ];
    for path in ["/", "/readyz", "/metrics", "/unrouted-names", "/sources", "/secondaries"] {
        shown.push((path.to_owned(), http_get(admin, path).expect("it responds").1));
    }
    let text = std::fs::read_to_string(data.join("kubeconfig")).expect("the server wrote it");
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token:")).expect("it has a token");
    let body = json!({"token": token.trim().trim_matches('"')}).to_string();
    let head = format!("Host: {admin}\r\nContent-Type: application/json\r\nContent-Length: {}", body.len());
    let session = exchange(admin, &format!("POST /dashboard/session HTTP/1.1\r\n{head}"), &body).expect("it responds");
    let cookie = session.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("it signs in");
    let cookie = cookie.split(';').next().expect("a cookie").to_owned();
    for path in [
        "data/overview",
        "data/routes?q=shop",
        "data/samples",
        "data/events?limit=500",
        "data/traffic",
        "data/zones",
        "data/records?zone=shard1.example.org",
        "data/process",
        "data/sources",
        "api/apis/signpost.dev/v1alpha1/routers",
        "api/apis/signpost.dev/v1alpha1/namespaces/web/routes",
        "api/apis/events.k8s.io/v1/namespaces/web/events",
        "api/api/v1/namespaces/web/secrets",
        "api/api/v1/namespaces/web/secrets/shop-tls",
        "api/api/v1/namespaces/signpost-machines/secrets",
        "api/apis/coordination.k8s.io/v1/namespaces/signpost-machines/leases",
    ] {
        let request = format!("GET /dashboard/{path} HTTP/1.1\r\nHost: {admin}\r\nCookie: {cookie}");
        shown.push((path.to_owned(), exchange(admin, &request, "").expect("it responds").body));
    }
    for arguments in [
        &["describe", "secret", "shop-tls", "-n", "web"][..],
        &["get", "secrets", "-A", "-o", "wide"],
        &["describe", "routes.signpost.dev", "shop", "-n", "web"],
        &["describe", "routers.signpost.dev", "shard1"],
        &["get", "events", "-A", "-o", "yaml"],
        &["get", "leases", "-A", "-o", "yaml"],
        &["get", "signpost", "-A", "-o", "yaml"],
    ] {
        shown.push((arguments.join(" "), kubectl.ok(arguments)));
    }
    shown
}

fn a_secret_is_served(proxy: &'static str) {
    let (data, ports, files) = (DataDir::new(), Ports::free(), DataDir::new());
    let (server, kubectl) = platform(&data, ports);
    let (one, two) = (Issued::new(&files, "one"), Issued::new(&files, "two"));
    agent_user(&data, "other");
    let mut agent = Agent::on(&data, ports.dns, "shard1", proxy);
    kubectl.ok_with(&["apply", "-f", "-"], &router(&format!("{{ip: {}}}", agent.http.ip())));
    let edge = route("shop", "shop").replace("spec: {", "spec: {tls: {termination: edge, secretName: shop-tls}, ");
    kubectl.ok_with(&["apply", "-f", "-"], &(service("shop", application("shop")) + &edge));
    agent.start();
    let message = until_ready(&kubectl, "False SecretNotFound");
    assert!(message.starts_with("spec.tls.secretName: Secret shop-tls of namespace web does not exist: "), "{message}");

    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let secret = |issued: &Issued| {
        let (certificate, key) = (path(&issued.certificate), path(&issued.key));
        let (certificate, key) = (format!("--cert={certificate}"), format!("--key={key}"));
        let made = ["create", "secret", "tls", "shop-tls", "-n", "web", &certificate, &key];
        kubectl.ok(&[&made[..], &["--dry-run=client", "-o", "yaml"]].concat())
    };
    kubectl.ok(&[
        "create",
        "secret",
        "tls",
        "shop-tls",
        "-n",
        "web",
        &format!("--cert={}", path(&one.certificate)),
        &format!("--key={}", path(&one.key)),
    ]);
    until_ready(&kubectl, "True CertificateValid");
    until("https answers", || match curl(&agent, &one.ca) {
        Ok(body) if body == "shop" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert!(curl(&agent, &two.ca).is_err());
    let described = kubectl.ok(&["describe", "secret", "shop-tls", "-n", "web"]);
    assert!(
        described.contains("tls.key:  ") && described.contains(" bytes") && !described.contains("BEGIN"),
        "{described}"
    );
    assert!(kubectl.ok(&["get", "secrets", "-n", "web"]).contains("kubernetes.io/tls   2"));

    // No request fails while the certificate is replaced.
    let both = files.join("both.ca");
    std::fs::write(&both, one.text(&one.ca) + &two.text(&two.ca)).expect("written");
    kubectl.ok_with(&["apply", "-f", "-"], &secret(&two));
    until("the new certificate is served", || {
        assert_eq!(curl(&agent, &both).as_deref(), Ok("shop"));
        curl(&agent, &two.ca).map(drop)
    });
    until_ready(&kubectl, "True CertificateValid");

    // A broken one is not served, and the condition has the reason.
    let patch = json!({"stringData": {"tls.key": one.text(&one.key)}}).to_string();
    kubectl.ok(&["patch", "secret", "shop-tls", "-n", "web", "--type=merge", "-p", &patch]);
    let message = until_ready(&kubectl, "False KeyMismatch");
    assert!(message.starts_with("spec.tls.secretName: ") && message.contains("stays in use"), "{message}");
    assert_eq!(curl(&agent, &two.ca).as_deref(), Ok("shop"));

    // The agent of another Router gets nothing, and its own no other Secret.
    kubectl.ok(&["create", "secret", "generic", "other", "-n", "web", "--from-literal=a=b"]);
    for (user, name, is_permitted) in
        [("shard1", "shop-tls", true), ("shard1", "other", false), ("other", "shop-tls", false)]
    {
        let of_agent = Kubectl::new(data.join(&format!("{user}.kubeconfig")));
        assert_eq!(of_agent.run(&["get", "secret", name, "-n", "web"]).status.success(), is_permitted, "{user} {name}");
    }

    // Nothing of a key is in the store, a backup, the audit log, or what else the server has, nor in anything that it shows.
    let backup = data.join("backup");
    let kubeconfig = data.file("kubeconfig");
    program::ok(&["backup", &path(&backup), "--online", "--kubeconfig", &kubeconfig]);
    let stored = kubectl.json(&["secret", "shop-tls", "-n", "web"])["data"]["tls.key"].clone();
    let stored = stored.as_str().expect("Base64");
    let mut texts = vec![stored[stored.len() / 2..][..40].to_owned()];
    texts.extend([&one, &two].map(|issued| issued.text(&issued.key).lines().nth(1).expect("a line").to_owned()));
    let mut found = Vec::new();
    files_with(Path::new(data.path()), &texts, &mut found);
    assert_eq!(found, Vec::<PathBuf>::new());
    let shown = all_that_is_shown(&data, &server, &kubectl, &agent);
    assert!(shown.iter().any(|(_, text)| text.contains("shop-tls")), "it is about this platform");
    for (place, text) in &shown {
        assert!(!texts.iter().any(|part| text.contains(part)), "{place} has a key: {text}");
    }

    // Without the API, another agent and another proxy still have the last good one, once the agent has written it.
    eventually("the last-known-good Site has the Route", || {
        std::fs::read_to_string(agent.site_file()).ok()?.contains(HOST).then_some(())
    });
    server.kill();
    agent.kill();
    agent.kill_proxy();
    agent.start();
    until("https answers without the API", || match curl(&agent, &two.ca) {
        Ok(body) if body == "shop" => Ok(()),
        other => Err(format!("{other:?}")),
    });

    // Without a Route that names it, it is gone.
    let _server = Server::start(ports, &[&["--data-dir", data.path()][..], &crate::agent::DOMAIN].concat());
    let patch = r#"{"spec": {"tls": {"secretName": null}}}"#;
    kubectl.ok(&["patch", "routes.signpost.dev", "shop", "-n", "web", "--type=merge", "-p", patch]);
    until_ready(&kubectl, "False NoCertificate");
    until("it is not served", || match curl(&agent, &two.ca) {
        Ok(body) => Err(body),
        Err(_) => Ok(()),
    });
    until("the agent has no key of it", || {
        let mut found = Vec::new();
        files_with(&agent.directory(), &texts[2..], &mut found);
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

#[test]
fn haproxy_serves_the_certificate_of_a_secret() {
    a_secret_is_served("haproxy");
}

#[test]
fn nginx_serves_the_certificate_of_a_secret() {
    a_secret_is_served("nginx");
}

/// A new key encrypts the Secrets of a stopped server, and the former one is not needed afterwards; without any key, a restore has the rest.
#[test]
fn the_key_of_secrets_is_replaced_and_lost() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let directory = ["--data-dir", data.path()];
    let server = Server::start(ports, &directory);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["create", "secret", "generic", "a", "--from-literal=a=marker"]);
    let value = |kubectl: &Kubectl| kubectl.json(&["secret", "a"])["data"]["a"].clone();
    assert_eq!(value(&kubectl), "bWFya2Vy");
    let rotate = |more: &[&str]| program::run(&[&["store", "rekey"], &directory[..], more].concat());
    assert_eq!(rotate(&[]).code, Some(1), "the server uses the store");
    let backup = data.join("backup").display().to_string();
    program::ok(&["backup", &backup, "--online", "--kubeconfig", &data.file("kubeconfig")]);
    server.kill();
    let check = || program::run(&["check", "store", "--data-dir", data.path(), "-o", "json"]);
    assert_eq!(check().code, Some(0));
    let key = || std::fs::read_to_string(data.join("encryption.key")).expect("a key");
    let former = key();
    // Without the key, or with another one, the Secret is listed as lost.
    std::fs::remove_file(data.join("encryption.key")).expect("removed");
    for other in [None, Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")] {
        if let Some(other) = other {
            std::fs::write(data.join("encryption.key"), other).expect("written");
        }
        let checked = check();
        let report: serde_json::Value = serde_json::from_str(&checked.out).expect("JSON");
        assert_eq!((checked.code, &report["undecryptable"]), (Some(1), &json!(["default/a"])), "{report}");
        assert_eq!(report["damaged"], json!([]));
        let text = program::run(&["check", "store", "--data-dir", data.path()]).out;
        assert!(text.contains("encryption.key decrypts 1 Secret(s): default/a"), "{text}");
    }
    std::fs::write(data.join("encryption.key"), &former).expect("written");
    program::ok(&[&["store", "rekey"], &directory[..]].concat());
    assert_eq!((key().lines().count(), key().lines().nth(1)), (2, former.lines().next()));
    let text = program::ok(&[&["store", "rekey", "--remove-former"], &directory[..]].concat());
    assert!(text.contains("0 values; 1 had the first key"), "{text}");
    assert!(key().lines().count() == 1 && key() != former);
    let server = Server::start(ports, &directory);
    assert_eq!(value(&kubectl), "bWFya2Vy");
    server.kill();

    // The backup needs the former key.
    let restored = DataDir::new();
    let into = restored.join("new").display().to_string();
    let said = program::run(&["restore", &backup, "--data-dir", &into]).err;
    assert!(said.contains("decrypts 1 Secret(s): default/a; they are restored, but not served"), "{said}");
    let server = Server::start(Ports::free(), &["--data-dir", &into]);
    let new = Kubectl::new(restored.join("new/kubeconfig"));
    assert!(!new.run(&["get", "secret", "a", "-o", "yaml"]).status.success());
    assert!(new.ok(&["get", "secrets"]).contains('a'));
    let own = restored.join("new/encryption.key");
    server.kill();
    std::fs::write(&own, std::fs::read_to_string(&own).expect("a key") + &former).expect("written");
    let _server = Server::start(Ports::free(), &["--data-dir", &into]);
    assert_eq!(value(&Kubectl::new(restored.join("new/kubeconfig"))), "bWFya2Vy");
}
