//! Users with limited permissions: created while the server runs, used with kubectl, and revoked.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use signpost_testing::program::{Ran, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually};

const ROUTES: &str = "routes.signpost.dev";

/// `signpost` with the data directory, however it ends.
fn signpost(data: &DataDir, arguments: &[&str]) -> Ran {
    run(&[arguments, &["--data-dir", data.path()]].concat())
}

/// Returns the same; expects success and gives what it printed.
fn ok(data: &DataDir, arguments: &[&str]) -> String {
    signpost(data, arguments).ok()
}

/// Returns a kubectl that is the user.
fn kubectl(data: &DataDir, user: &str, more: &[&str]) -> Kubectl {
    let path = data.join(&format!("{}.kubeconfig", user.replace('@', "-")));
    let out = path.to_str().expect("UTF-8");
    ok(data, &[&["kubeconfig", "--user", user, "--out", out], more].concat());
    assert_eq!(mode(&path), 0o600);
    Kubectl::new(path)
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).expect("is there").permissions().mode() & 0o777
}

fn route(namespace: &str, name: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{to: {{name: web}}}}\n"
    )
}

/// Returns the audit log's events, whole lines only.
fn audit(data: &DataDir) -> Vec<Value> {
    let text = std::fs::read_to_string(data.join("audit.log")).expect("the audit log is there");
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

#[test]
fn users_come_may_do_what_they_may_and_go() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let admin = Kubectl::new(data.join("kubeconfig"));
    for namespace in ["shop", "other"] {
        admin.ok(&["create", "namespace", namespace]);
        admin.ok_with(&["apply", "-f", "-"], &route(namespace, "front"));
    }

    // What the first start made is the owner's alone.
    for file in ["kubeconfig", "scheduler.kubeconfig", "name-server.kubeconfig", "audit.log"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    for entry in std::fs::read_dir(data.join("pki")).expect("is there") {
        let path: PathBuf = entry.expect("readable").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(&data.join("pki")), 0o700);

    // A tenant sees its namespace and no other.
    ok(&data, &["user", "add", "tina", "--role", "tenant", "-n", "shop", "--no-credential"]);
    let tina = kubectl(&data, "tina", &["--namespace", "shop"]);
    // The command has waited until the API accepts the token.
    let who = tina.ok(&["auth", "whoami", "-o", "json"]);
    assert!(who.contains("signpost:tenant:shop"), "{who}");
    assert!(tina.ok(&["get", ROUTES]).contains("front"));
    tina.ok_with(&["apply", "-f", "-"], &route("shop", "back"));
    for refused in [
        &["get", ROUTES, "-n", "other"][..],
        &["get", ROUTES, "-A"],
        &["get", "namespaces"],
        &["delete", "routers.signpost.dev", "x"],
        &["get", ROUTES, "--as", "signpost:admin", "--as-group", "system:masters"],
        &["get", ROUTES, "--as", "bob", "--as-uid", "u-1"],
    ] {
        let error = tina.refused(refused, "");
        assert!(error.contains("Forbidden") || error.contains("forbidden"), "{refused:?}: {error}");
    }
    assert_eq!(tina.ok(&["auth", "can-i", "create", ROUTES]).trim(), "yes");
    assert!(tina.ok(&["auth", "can-i", "--list"]).contains("routes"));

    // A viewer with a certificate sees all and writes nothing.
    ok(&data, &["user", "add", "vic@shop.test", "--role", "viewer", "--no-credential"]);
    let vic = kubectl(&data, "vic@shop.test", &["--certificate", "--ttl", "1h"]);
    let routes = eventually("the server takes vic's certificate", || {
        let output = vic.run(&["get", ROUTES, "-A"]);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    });
    assert!(routes.contains("shop") && routes.contains("other"), "{routes}");
    let error = vic.refused(&["apply", "-f", "-"], &route("shop", "side"));
    assert!(error.contains("forbidden"), "{error}");

    // An administrator by group; the token is printed once.
    let token = ok(&data, &["user", "add", "ada", "--role", "admin", "--ttl", "2h"]);
    let token = token.trim();
    assert!(token.starts_with("signpost-") && !token.contains(char::is_whitespace), "{token}");
    let as_ada = |arguments: &[&str]| {
        let mut all = vec!["--token", token];
        all.extend_from_slice(arguments);
        // The file's own user goes out of the way.
        Kubectl::new(anonymous(&data)).run(&all)
    };
    assert!(as_ada(&["delete", ROUTES, "back", "-n", "shop"]).status.success(), "the command has waited for the API");

    let listed = ok(&data, &["user", "list"]);
    for part in ["tina", "signpost:tenant:shop", "vic@shop.test", "certificate", "signpost:admin ", "never"] {
        assert!(listed.contains(part), "{part} in\n{listed}");
    }
    for file in ["users.toml", "tokens"] {
        assert!(!std::fs::read_to_string(data.join("pki").join(file)).expect("reads").contains(token));
    }

    // Revoked users lose access within a second, without a restart; their open watches end.
    let seen = data.join("seen");
    let output = File::create(&seen).expect("a file");
    let mut watch = tina.command(&["get", ROUTES, "--watch"]).stdout(output).stderr(Stdio::null()).spawn();
    let watch = watch.as_mut().expect("kubectl starts");
    let sees = |name: &str| {
        let seen = || std::fs::read_to_string(&seen).expect("readable").contains(name).then_some(());
        eventually(&format!("tina sees {name}"), seen);
    };
    sees("front");
    // The watch delivers the changes after the list: it is open.
    admin.ok_with(&["apply", "-f", "-"], &route("shop", "later"));
    sees("later");
    ok(&data, &["user", "revoke", "tina"]);
    eventually("tina's watch ends", || watch.try_wait().expect("it can be checked"));
    ok(&data, &["user", "revoke", "vic@shop.test"]);
    for user in [&tina, &vic] {
        eventually("a revoked user gets 401", || {
            let output = user.run(&["get", ROUTES, "-n", "shop"]);
            String::from_utf8_lossy(&output.stderr).contains("You must be logged in to the server").then_some(())
        });
    }
    assert!(signpost(&data, &["user", "revoke", "tina"]).code != Some(0), "no user has that name any more");
    assert!(signpost(&data, &["user", "add", "system:x", "--role", "admin"]).code != Some(0));

    // The audit log has all of these requests, and no secret.
    let events = eventually("the refusals are in the audit log", || {
        let events = audit(&data);
        events.iter().any(|event| event["responseStatus"]["code"] == 401).then_some(events)
    });
    let find = |what: &str, is: &dyn Fn(&Value) -> bool| {
        events.iter().find(|event| is(event)).unwrap_or_else(|| panic!("{what} is not in the audit log")).clone()
    };
    let created =
        find("tina's create", &|event| event["user"]["username"] == "tina" && event["responseStatus"]["code"] == 201);
    assert_eq!(created["apiVersion"], "audit.k8s.io/v1");
    assert_eq!(created["objectRef"]["name"], "back");
    assert_eq!(created["objectRef"]["apiGroup"], "signpost.dev");
    assert_eq!(created["sourceIPs"][0], "127.0.0.1");
    assert!(created["userAgent"].as_str().is_some_and(|agent| agent.starts_with("kubectl")), "{created}");
    let refused = find("a refusal", &|event| {
        event["responseStatus"]["code"] == 403 && event["user"]["username"] == "vic@shop.test"
    });
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    let text = std::fs::read_to_string(data.join("audit.log")).expect("reads");
    let of_tina = std::fs::read_to_string(data.join("tina.kubeconfig")).expect("reads");
    let of_tina =
        of_tina.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token").trim_matches('"');
    assert!(!text.contains(token) && !text.contains(of_tina), "no token is in the audit log");

    // A restart knows it all still.
    let ports = Ports::free();
    assert!(server.terminate().success());
    let _server = Server::start(ports, &["--data-dir", data.path()]);
    let url = format!("https://{}", ports.api);
    let again = |user: &Kubectl| user.run(&["--server", &url, "get", ROUTES, "-n", "shop"]);
    assert!(String::from_utf8_lossy(&again(&tina).stderr).contains("You must be logged in to the server"));
    assert!(String::from_utf8_lossy(&again(&vic).stderr).contains("You must be logged in to the server"));
    assert!(as_ada(&["--server", &url, "get", ROUTES, "-A"]).status.success());
}

/// Returns a kubeconfig with the server and without credentials.
fn anonymous(data: &DataDir) -> PathBuf {
    let text = std::fs::read_to_string(data.join("kubeconfig")).expect("reads");
    let without: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("token:")).collect();
    let path = data.join("anonymous.kubeconfig");
    std::fs::write(&path, without.join("\n").replace("  user:\nc", "  user: {}\nc")).expect("writes");
    path
}

#[test]
fn a_data_directory_that_no_server_has_used_is_named() {
    let data = DataDir::new();
    for arguments in [&["user", "list"][..], &["kubeconfig", "--user", "x"]] {
        let error = signpost(&data, arguments).fails(1);
        assert!(error.contains("not the data directory"), "{error}");
    }
}

#[test]
fn a_replaced_certificate_is_served_and_a_bad_one_is_not() {
    let data = DataDir::new();
    let (certificate, key) = (data.join("tls.crt"), data.join("tls.key"));
    let write = |name: &str| {
        let pair = rcgen::KeyPair::generate().expect("a key");
        let names = vec![name.to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::CertificateParams::new(names).expect("parameters").self_signed(&pair).expect("a certificate");
        std::fs::write(&key, pair.serialize_pem()).expect("writes");
        std::fs::write(&certificate, made.pem()).expect("writes");
    };
    write("one.example");
    let (crt, key_path) = (certificate.to_str().expect("UTF-8"), key.to_str().expect("UTF-8"));
    let ports = Ports::free();
    let state = data.join("state");
    let arguments = [
        "--roles",
        "api,admin",
        "--data-dir",
        state.to_str().expect("UTF-8"),
        "--api-tls-certificate",
        crt,
        "--api-tls-key",
        key_path,
        "--api-tls-ca",
        crt,
    ];
    let server = Server::start(ports, &arguments);
    // The self-signed certificate is its own CA, and is in the kubeconfig: kubectl trusts it.
    let kubectl = Kubectl::new(state.join("kubeconfig"));
    kubectl.ok(&["get", "namespaces"]);

    std::fs::write(&certificate, "no certificate").expect("writes");
    eventually("the log has an error", || server.log().contains("the former one stays in use").then_some(()));
    kubectl.ok(&["get", "namespaces"]);

    write("two.example");
    eventually("another certificate is served", || {
        let output = kubectl.run(&["get", "namespaces"]);
        String::from_utf8_lossy(&output.stderr).contains("certificate").then_some(())
    });
    assert!(server.terminate().success());
}
