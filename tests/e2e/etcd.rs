//! API servers over etcd, with the real program and the real etcd.

use std::process::Command;

use signpost_testing::etcd::Cluster;
use signpost_testing::program::{Ran, command, ok};
use signpost_testing::{DataDir, Kubectl, Ports, Process, Server, eventually, http_get, wait_for};

const ROUTER: &str = "---\n{apiVersion: signpost.dev/v1alpha1, kind: Router, metadata: {name: shard1}, \
                      spec: {addresses: [{ip: 192.0.2.1}]}}";

fn route(name: &str) -> String {
    format!(
        "---\n{{apiVersion: signpost.dev/v1alpha1, kind: Route, metadata: {{name: {name}, namespace: default}}, \
         spec: {{to: {{kind: Service, name: web}}}}}}"
    )
}

/// Returns the arguments that name the store.
fn store(cluster: &Cluster) -> Vec<String> {
    let endpoints = cluster.endpoints().into_iter().flat_map(|url| ["--etcd-endpoints".to_owned(), url]);
    ["--store".to_owned(), "etcd".to_owned()].into_iter().chain(endpoints).collect()
}

/// Returns an API server with a scheduler over the cluster.
fn start(cluster: &Cluster, data: &DataDir) -> Server {
    let store = store(cluster);
    let own = ["--roles", "api,scheduler,admin", "--data-dir", data.path(), "--domain", "v3.rhcloud.com"];
    let more = ["--verify-names", "false", "--routers-runtime", "off"];
    let store: Vec<&str> = store.iter().map(String::as_str).collect();
    Server::start(Ports::free(), &[&own[..], &more, &store].concat())
}

fn serials(kubectl: &Kubectl) -> Vec<u64> {
    let zones = kubectl.json(&["zones"]);
    let all = zones["items"].as_array().expect("a list").iter();
    all.map(|zone| zone["spec"]["versions"][0]["serial"].as_u64().expect("a serial")).collect()
}

#[test]
fn api_servers_share_objects_users_and_the_lead() {
    let cluster = Cluster::start(1, &[]);
    let (one, two) = (DataDir::new(), DataDir::new());
    let first = start(&cluster, &one);
    // A second process without the key reports the missing key.
    let store = store(&cluster);
    let mut arguments = vec![
        "serve",
        "--roles",
        "api",
        "--data-dir",
        two.path(),
        "--domain",
        "v3.rhcloud.com",
        "--api-listen",
        "127.0.0.1:0",
    ];
    arguments.extend(store.iter().map(String::as_str));
    let error = Ran::of(&mut command(&arguments)).fails(1);
    assert!(error.contains("copy the file from another API server"), "{error}");
    std::fs::copy(one.join("encryption.key"), two.join("encryption.key")).expect("is copied");
    let second = start(&cluster, &two);
    let kubectl = [Kubectl::new(one.join("kubeconfig")), Kubectl::new(two.join("kubeconfig"))];
    kubectl[0].ok_with(&["apply", "-f", "-"], ROUTER);
    for name in ["a", "b", "c"] {
        kubectl[0].ok_with(&["apply", "-f", "-"], &route(name));
        // Never older than what was acknowledged.
        kubectl[1].ok(&["get", "route", name]);
    }
    // Each server has one watch of objects and one of secrets, for any number of clients.
    let watching: Vec<Process> = (0..8)
        .map(|number| Process::spawn(&mut kubectl[number % 2].command(&["get", "routes", "-A", "--watch"])))
        .collect();
    kubectl[1].run(&["get", "routes", "--watch", "--request-timeout=1s"]);
    eventually("etcd has four watches", || (cluster.watches(0) == 4).then_some(()));
    drop(watching);
    // One server's kubeconfig opens the other one.
    let kubeconfig = std::fs::read_to_string(two.join("kubeconfig")).expect("is there");
    let url =
        kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).expect("a URL").trim_matches('"');
    kubectl[0].ok(&["--server", url, "get", "routes"]);
    // Changes of users on one machine apply on all.
    let token = ok(&["user", "add", "tina", "--data-dir", one.path(), "--group", "signpost:viewers"]);
    let token = token.split_whitespace().last().expect("the token").to_owned();
    let comes_in = || kubectl[1].run(&["--token", &token, "--user", "", "get", "routers"]).status.success();
    eventually("the user is known on the other server", || comes_in().then_some(()));
    let stored = std::fs::read(two.join("pki/ca.key")).expect("is there");
    assert_eq!(stored, std::fs::read(one.join("pki/ca.key")).expect("is there"));

    // With any leader: at a graceful stop, another one takes over.
    assert!(first.terminate().success());
    kubectl[1].ok_with(&["apply", "-f", "-"], &route("d"));
    kubectl[1].ok(&["wait", "route/d", "--for=jsonpath={.status.phase}=scheduled", "--timeout=180s"]);
    assert!(second.terminate().success());
}

#[test]
fn etcd_that_is_away_or_restored_is_noticed() {
    let mut cluster = Cluster::start(1, &[]);
    let data = DataDir::new();
    let server = start(&cluster, &data);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], ROUTER);
    kubectl.ok_with(&["apply", "-f", "-"], &route("before"));
    kubectl.ok(&["wait", "route/before", "--for=jsonpath={.status.phase}=scheduled", "--timeout=180s"]);

    cluster.kill(0);
    let report = eventually("it is not ready", || http_get(server.admin, "/readyz").filter(|(code, _)| *code == 503));
    assert!(report.1.contains("no response from etcd"), "{}", report.1);
    assert!(!kubectl.run(&["get", "--raw", "/readyz"]).status.success());
    let (_, metrics) = http_get(server.admin, "/metrics").expect("answers");
    assert!(metrics.contains("signpost_store_up 0"), "{metrics}");
    let snapshot = DataDir::new();
    copy(&cluster.data(0), &snapshot.join("data"));
    cluster.restart(0);
    eventually("it is ready again", || http_get(server.admin, "/readyz").filter(|(code, _)| *code == 200));

    kubectl.ok_with(&["apply", "-f", "-"], &route("after"));
    kubectl.ok(&["wait", "route/after", "--for=jsonpath={.status.phase}=scheduled", "--timeout=180s"]);
    let serials_before = serials(&kubectl);
    // The file has the newest revision that this server has seen.
    let newest = kubectl.json(&["route", "after"])["metadata"]["resourceVersion"].clone();
    let newest: u64 = newest.as_str().and_then(|text| text.parse().ok()).expect("a revision");
    eventually("the server has seen the newest revision", || {
        let text = std::fs::read_to_string(data.join("etcd-revision")).ok()?;
        let seen: u64 = text.trim().split_once(' ')?.1.parse().ok()?;
        (seen >= newest).then_some(())
    });
    cluster.kill(0);
    std::fs::remove_dir_all(cluster.data(0)).expect("is removed");
    copy(&snapshot.join("data"), &cluster.data(0));
    cluster.restart(0);
    server.logs("etcd was restored or replaced");
    eventually("what the snapshot lacks is not shown", || {
        let found = kubectl.run(&["get", "route", "after"]);
        String::from_utf8_lossy(&found.stderr).contains("NotFound").then_some(())
    });
    kubectl.ok(&["get", "route", "before"]);
    eventually("all serials move on", || {
        let now = serials(&kubectl);
        (now.len() == serials_before.len() && now.iter().zip(&serials_before).all(|(now, before)| now > before))
            .then_some(())
    });
    assert!(server.terminate().success());
}

/// Copies a directory.
fn copy(from: &std::path::Path, to: &std::path::Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp").success());
}

#[test]
fn objects_move_between_a_file_and_etcd_and_back() {
    let cluster = Cluster::start(1, &[]);
    let data = DataDir::new();
    let server = start(&cluster, &data);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], ROUTER);
    for name in ["a", "b", "c"] {
        kubectl.ok_with(&["apply", "-f", "-"], &route(name));
    }
    kubectl.ok(&["wait", "route", "--all", "--for=jsonpath={.status.phase}=scheduled", "--timeout=180s"]);
    // What people and controllers have written; revisions are new.
    let contents = |list: &serde_json::Value| {
        let all = list["items"].as_array().expect("a list").iter();
        let each =
            all.map(|item| (item["metadata"]["uid"].clone(), item["spec"].clone(), item["status"]["dns"].clone()));
        each.collect::<Vec<_>>()
    };
    let read = |kubectl: &Kubectl| {
        ["routers", "routes", "routebindings", "nameclaims"].map(|kind| contents(&kubectl.json(&[kind, "-A"])))
    };
    let (before, serials_before) = (read(&kubectl), serials(&kubectl));
    let backup = data.join("backup");
    let backup = backup.to_str().expect("UTF-8");
    ok(&["backup", backup, "--kubeconfig", data.join("kubeconfig").to_str().expect("UTF-8")]);
    assert!(server.terminate().success());

    let store = store(&cluster);
    let more: Vec<&str> = ["--data-dir", data.path()].into_iter().chain(store.iter().map(String::as_str)).collect();
    let migrate = |from, to, prefix| {
        let arguments = ["store", "migrate", "--from", from, "--to", to, "--etcd-prefix", prefix];
        [&arguments[..], &more].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |arguments: &[String]| Ran::of(&mut command(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
    run(&migrate("etcd", "file", "/signpost")).ok();
    let error = run(&migrate("file", "etcd", "/signpost")).fails(1);
    assert!(error.contains("the store already has objects"), "{error}");
    run(&migrate("file", "etcd", "/moved")).ok();
    let restored = [&["restore", backup, "--etcd-prefix", "/restored"][..], &more].concat();
    ok(&restored);
    for prefix in ["/moved", "/restored"] {
        let own = ["--roles", "api,scheduler,admin", "--domain", "v3.rhcloud.com", "--etcd-prefix", prefix];
        let server = Server::start(Ports::free(), &[&own[..], &["--routers-runtime", "off"], &more].concat());
        assert_eq!(read(&kubectl), before, "{prefix}");
        let now = serials(&kubectl);
        assert!(now.iter().zip(&serials_before).all(|(now, before)| now > before), "{now:?} {serials_before:?}");
        assert!(server.terminate().success());
    }
}

/// Sends a request to etcd over its gateway for JSON, and returns the answer.
fn ask_etcd(cluster: &Cluster, path: &str, body: &str, token: Option<&str>) -> serde_json::Value {
    let url = format!("{}/v3/auth/{path}", cluster.endpoints()[0]);
    let authorization = format!("authorization: {}", token.unwrap_or_default());
    // A member may not serve yet.
    let retry = ["--retry-connrefused", "--retry", "30", "--retry-delay", "1"];
    let own = ["-sS", "--fail-with-body", "-H", &authorization, "-d", body, &url];
    let ran = Command::new("curl").args(retry).args(own).output();
    let ran = ran.expect("curl");
    let answer = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{path}: {answer}");
    serde_json::from_str(&answer).expect("JSON")
}

#[test]
fn a_new_password_of_etcd_is_used_without_a_restart() {
    let cluster = Cluster::start(1, &[]);
    let data = DataDir::new();
    let root = r#"{"name": "root", "password": "old"}"#;
    ask_etcd(&cluster, "user/add", root, None);
    ask_etcd(&cluster, "role/add", r#"{"name": "root"}"#, None);
    ask_etcd(&cluster, "user/grant", r#"{"user": "root", "role": "root"}"#, None);
    ask_etcd(&cluster, "enable", "{}", None);
    let password = data.join("etcd-password");
    std::fs::write(&password, "old\n").expect("is written");
    let store = store(&cluster);
    let own = ["--roles", "api,admin", "--data-dir", data.path(), "--domain", "v3.rhcloud.com", "--etcd-user", "root"];
    let file = ["--etcd-password-file", password.to_str().expect("UTF-8")];
    let store: Vec<&str> = store.iter().map(String::as_str).collect();
    let server = Server::start(Ports::free(), &[&own[..], &file, &store].concat());
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], &route("before"));

    let token = ask_etcd(&cluster, "authenticate", r#"{"name": "root", "password": "old"}"#, None);
    let token = token["token"].as_str().expect("a token");
    // etcd withdraws all tokens of the user.
    ask_etcd(&cluster, "user/changepw", r#"{"name": "root", "password": "new"}"#, Some(token));
    let refused = kubectl.run_with(&["apply", "-f", "-"], &route("between"));
    assert!(!refused.status.success(), "the old password is still good");
    std::fs::write(&password, "new\n").expect("is written");
    wait_for("a write with the new password", || {
        kubectl.run_with(&["apply", "-f", "-"], &route("after")).status.success()
    });
    kubectl.ok(&["get", "route", "before"]);
    assert!(server.terminate().success());
}
