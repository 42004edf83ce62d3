//! The information about other tenants that a tenant can obtain: it provokes every conflict with their names, and reads
//! everything that it may.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::connections::connect_from;
use crate::names::{admitted, create, dns, route};
use crate::streams::{STRANGER, add_address};
use crate::support::{Platform, routes_path};
use signpost_testing::client::Client;
use signpost_testing::namespace::inside_namespace;
use signpost_testing::program::run;
use signpost_testing::{eventually, free_address, http_get};

/// Is in the names of the victim's namespace, Routes and services, and nowhere else.
const MARKER: &str = "zzmarker";
/// The victim's namespace.
const VICTIM: &str = "zzmarkerco";

fn with_host(name: &str, host: &str) -> Value {
    route(name, json!({"to": {"name": "web"}, "host": host}))
}

/// Waits until the spy's Route `name` has `reason` in one of its conditions.
fn until_reason(spy: &Client, name: &str, reason: &str) {
    let path = format!("{}/{name}", routes_path("spy"));
    let quoted = format!("\"{reason}\"");
    eventually(&format!("{name} has {reason}"), || spy.send("GET", &path, None).1.contains(&quoted).then_some(()));
}

/// Returns all paths of the API that a tenant could try, of its own and of other namespaces.
fn paths() -> Vec<String> {
    let ours = "/apis/signpost.dev/v1alpha1";
    let mut paths: Vec<String> =
        ["/api", "/apis", "/api/v1", "/openapi/v2", "/openapi/v3", "/version", "/metrics", "/logs"]
            .map(str::to_owned)
            .into();
    let discovery = "/apis/discovery.k8s.io/v1";
    for list in [
        ours,
        "/api/v1/namespaces",
        "/api/v1/events",
        "/apis/events.k8s.io/v1/events",
        "/api/v1/services",
        &format!("{discovery}/endpointslices"),
    ] {
        paths.push(list.to_owned());
    }
    paths.push("/openapi/v3/apis/signpost.dev/v1alpha1".to_owned());
    for plural in ["routers", "routes", "routebindings", "nameclaims", "zones", "deletionholds"] {
        paths.push(format!("{ours}/{plural}"));
        paths.push(format!("{ours}/{plural}?watch=1&timeoutSeconds=1"));
    }
    for router in ["shard1", "shard2"] {
        paths.push(format!("{ours}/routers/{router}"));
    }
    for namespace in ["spy", VICTIM, "default", "signpost-system", "signpost-machines"] {
        paths.push(format!("/api/v1/namespaces/{namespace}"));
        for collection in [
            format!("{ours}/namespaces/{namespace}/routes"),
            format!("{ours}/namespaces/{namespace}/routebindings"),
            format!("/api/v1/namespaces/{namespace}/events"),
            format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"),
            format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"),
            format!("/api/v1/namespaces/{namespace}/services"),
            format!("{discovery}/namespaces/{namespace}/endpointslices"),
        ] {
            paths.push(format!("{collection}?watch=1&timeoutSeconds=1"));
            paths.push(collection);
        }
    }
    paths
}

/// Everything that the spy can read, each with where it was read. The victim's names in the paths are taken out.
fn all_that_is_readable(platform: &Platform, spy: &Client) -> Vec<String> {
    let (mut read, mut readable) = (Vec::new(), 0);
    let ours = routes_path("spy");
    let own: Value = serde_json::from_str(&spy.send("GET", &ours, None).1).expect("a list");
    let own = own["items"].as_array().expect("a list").iter().filter_map(|route| route["metadata"]["name"].as_str());
    let own: Vec<String> = own.map(str::to_owned).collect();
    let mut paths = paths();
    for name in &own {
        paths.push(format!("{ours}/{name}"));
        paths.push(ours.replace("/routes", "/routebindings") + "/" + name);
    }
    for path in paths {
        let (status, body) = spy.send("GET", &path, None);
        readable += usize::from(status == 200);
        // An error repeats the request.
        let without_echo = |body: &str| body.replace(&path, "").replace(&format!("\\\"{VICTIM}\\\""), "");
        let without_echo = |body: &str| without_echo(body).replace(&format!("\"name\":\"{VICTIM}\""), "");
        read.push(format!("{}: {}", path.replace(VICTIM, "…"), without_echo(&body)));
        read.push(format!("{} as a Table: {}", path.replace(VICTIM, "…"), without_echo(&spy.table(&path))));
    }
    assert!(readable > 20, "the tenant reads something at all: {readable}");
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "spy"}});
    read.push(spy.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", Some(&review)).1);
    read.extend(dashboard(platform, spy));
    read.extend(own.iter().map(|name| explained(platform, spy, name)));
    read
}

/// Returns the data that the dashboard shows to the spy.
fn dashboard(platform: &Platform, spy: &Client) -> Vec<String> {
    let admin = platform.ports.admin;
    let long = Duration::from_secs(60);
    let ask = |head: &str, body: &str, within: Duration| {
        let mut stream = TcpStream::connect(admin).expect("the admin endpoint listens");
        stream.set_read_timeout(Some(long)).expect("is set");
        let length = body.len();
        write!(stream, "{head}\r\nHost: {admin}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("writes");
        let mut answer = vec![0; 4_096];
        // Only the first octets can come late.
        let first = stream.read(&mut answer).unwrap_or(0);
        answer.truncate(first);
        stream.set_read_timeout(Some(within)).expect("is set");
        // The stream of changes does not end.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let token = json!({"token": spy.token()}).to_string();
    let session = ask("POST /dashboard/session HTTP/1.1\r\nContent-Type: application/json", &token, long);
    let cookie = session.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("it signs in");
    let cookie = cookie.split(';').next().expect("a cookie").to_owned();
    let mut read = vec![session.clone()];
    for path in [
        "session",
        "data/overview",
        "data/routes",
        "data/routes?q=zz",
        "data/routes?q=secret",
        "data/routes?namespace=zzm",
        "data/routes?router=shard1",
        "data/samples",
        "data/events",
        "data/events?q=zz&limit=500",
        "data/zones",
        "data/records?zone=v3.rhcloud.com",
        "data/servers?zone=v3.rhcloud.com&platform=v3.rhcloud.com",
        "data/process",
        "data/live",
        "api/apis/signpost.dev/v1alpha1/routers",
        "api/apis/signpost.dev/v1alpha1/routes",
        "api/apis/signpost.dev/v1alpha1/zones",
        "api/apis/signpost.dev/v1alpha1/deletionholds",
        "api/apis/signpost.dev/v1alpha1/namespaces/spy/routes",
        "api/apis/signpost.dev/v1alpha1/namespaces/spy/routebindings",
        "api/apis/events.k8s.io/v1/namespaces/spy/events",
        "api/apis/events.k8s.io/v1/namespaces/default/events",
        "api/api/v1/namespaces",
    ] {
        let within = if path == "data/live" { Duration::from_secs(4) } else { long };
        let answer = ask(&format!("GET /dashboard/{path} HTTP/1.1\r\nCookie: {cookie}"), "", within);
        read.push(format!("dashboard {path}: {answer}"));
    }
    let seen = |path: &str| read.iter().any(|answer| answer.starts_with(path) && answer.contains("same-host"));
    assert!(seen("dashboard data/routes:"), "the spy's own Routes are shown: {read:#?}");
    let live = read.iter().find(|answer| answer.starts_with("dashboard data/live")).expect("was requested");
    assert!(live.contains("text/event-stream"), "{live}");
    read
}

/// `signpost explain route` with the spy's credential.
fn explained(platform: &Platform, spy: &Client, name: &str) -> String {
    let kubeconfig = std::fs::read_to_string(platform.data.join("kubeconfig")).expect("the server wrote it");
    let with_token = |line: &str| match line.split_once("token:") {
        Some((before, _)) => format!("{before}token: {}\n", spy.token()),
        None => format!("{line}\n"),
    };
    let path = platform.data.write("spy.kubeconfig", kubeconfig.lines().map(with_token).collect::<String>());
    let mut all = String::new();
    for more in [&[][..], &["--output", "json"], &["--why-not", "shard1"]] {
        let route = format!("spy/{name}");
        let own = ["explain", "route", &route, "--kubeconfig", &path, "--domain", "v3.rhcloud.com"];
        let ran = run(&[&own, more].concat());
        all += &(ran.out + &ran.err);
    }
    assert!(all.contains("spy/"), "{all}");
    all
}

#[test]
fn nothing_that_a_tenant_may_read_names_an_object_of_another() {
    let platform = Platform::start(&["--scheduler-drain-rate", "1000"]);
    let (victim, spy) = (platform.tenant(VICTIM), platform.tenant("spy"));
    let mut answers = Vec::new();
    for (name, spec) in [
        ("zzmarker-a", json!({"to": {"name": MARKER}, "subdomain": "hush", "host": "held.secret.example"})),
        ("zzmarker-wild", json!({"to": {"name": MARKER}, "host": "*.wild.example"})),
        ("zzmarker-gone", json!({"to": {"name": MARKER}, "subdomain": "former", "host": "gone.example"})),
        ("zzmarker-plain", json!({"to": {"name": MARKER}})),
    ] {
        assert_eq!(create(&victim, VICTIM, &route(name, spec)).0, 201);
        dns(&victim, VICTIM, name);
    }
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": MARKER}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(victim.send("POST", &format!("/api/v1/namespaces/{VICTIM}/services"), Some(&service)).0, 201);
    assert_eq!(victim.send("DELETE", &format!("{}/zzmarker-gone", routes_path(VICTIM)), None).0, 200);
    let claims = || platform.admin.ok(&["get", "nameclaims", "-o", "json"]);
    eventually("its names are released", || claims().contains("releasedAt").then_some(()));

    // Each of the victim's names is requested.
    for wanted in [
        with_host("same-host", "HELD.secret.example"),
        with_host("covers", "*.secret.example"),
        with_host("below", "www.wild.example"),
        with_host("same-wildcard", "*.wild.example"),
        with_host("reserved", "gone.example"),
        with_host("above-reserved", "*.example"),
        route("same-label", json!({"to": {"name": "web"}, "subdomain": "hush"})),
        route("former-label", json!({"to": {"name": "web"}, "subdomain": "former"})),
        with_host("in-the-platform", "hush.shard1.v3.rhcloud.com"),
        with_host("an-alias", "hush.routes.v3.rhcloud.com"),
        route("reserved-label", json!({"to": {"name": "web"}, "subdomain": "login"})),
        route("moves", json!({"to": {"name": "web"}})),
    ] {
        answers.push(create(&spy, "spy", &wanted).1);
    }
    for name in ["same-host", "covers", "below", "same-wildcard"] {
        until_reason(&spy, name, "HostAlreadyClaimed");
    }
    until_reason(&spy, "reserved", "HostReserved");
    for name in ["same-label", "former-label"] {
        until_reason(&spy, name, "SubdomainTaken");
    }
    eventually("an Event reports it", || {
        spy.send("GET", "/api/v1/namespaces/spy/events", None).1.contains("SubdomainTaken").then_some(())
    });
    for (name, patch) in [
        ("same-label", json!({"spec": {"subdomain": "hush", "host": "held.secret.example"}})),
        ("same-label", json!({"metadata": {"annotations": {"signpost.dev/move-to": "shard2"}}})),
        ("same-label", json!({"metadata": {"resourceVersion": "1"}})),
        ("same-label", json!({"status": {"phase": "scheduled"}})),
        ("zzz", json!({"spec": {}})),
    ] {
        answers.push(spy.send("PATCH", &format!("{}/{name}", routes_path("spy")), Some(&patch)).1);
    }

    // Records at a name of the victim's, a drain of the Router that has all Routes, records at the former names there.
    let records = |records: Value| {
        let patch = json!({"spec": {"records": records}}).to_string();
        platform.admin.ok(&["patch", "router", "shard1", "--type=merge", "-p", &patch]);
    };
    records(json!(["hush CNAME elsewhere.example."]));
    let routers = "/apis/signpost.dev/v1alpha1/routers";
    eventually("the Router reports it", || spy.send("GET", routers, None).1.contains("\"NameTaken\"").then_some(()));
    records(json!([]));
    platform.admin.ok_with(
        &["apply", "-f", "-"],
        "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: shard2}\n\
         spec: {dns: shard2.v3.rhcloud.com, addresses: [{ip: 192.0.2.2}]}\n",
    );
    platform.admin.ok(&["patch", "router", "shard1", "--type=merge", "-p", "{\"spec\":{\"state\":\"draining\"}}"]);
    let is_moved = |client: &Client, namespace: &str, name: &str| {
        let (_, body) = client.send("GET", &format!("{}/{name}", routes_path(namespace)), None);
        body.contains("shard2.v3.rhcloud.com").then_some(())
    };
    eventually("the spy's Route is moved", || is_moved(&spy, "spy", "moves"));
    eventually("the victim's Routes are moved", || is_moved(&victim, VICTIM, "zzmarker-a"));
    records(json!(["hush A 192.0.2.9"]));
    eventually("former names are blocked", || {
        spy.send("GET", routers, None).1.contains("\"FormerNameBlocked\"").then_some(())
    });
    platform.admin.ok(&["annotate", "namespace", "spy", "signpost.dev/route-quota=1"]);
    answers.push(create(&spy, "spy", &route("over-quota", json!({"to": {"name": "web"}}))).1);
    until_reason(&spy, "over-quota", "QuotaExceeded");

    answers.extend(all_that_is_readable(&platform, &spy));
    let (_, metrics) = http_get(platform.ports.admin, "/metrics").expect("it answers");
    answers.push(format!("/metrics: {metrics}"));
    for answer in &answers {
        assert!(!answer.to_lowercase().contains(MARKER), "a tenant reads of another's object: {answer}");
    }

    // Operators find who it is (docs/conditions.md).
    let claims = platform.admin.ok(&["get", "nameclaims", "-o", "wide"]);
    for value in ["held.secret.example", "*.wild.example", "gone.example", "hush", "former"] {
        let is_listed = |line: &str| line.contains(value) && line.contains(MARKER);
        assert!(claims.lines().any(is_listed), "{value}: {claims}");
    }
    let printed = platform.admin.ok(&["get", "routes.signpost.dev", "-n", VICTIM, "zzmarker-a", "-o", "json"]);
    assert!(printed.contains("RecordAtFormerName") && printed.contains("shard1"), "{printed}");
}

/// Only the requesting Route shows the record that verifies a host, and the state of the verification.
#[test]
fn a_challenge_names_nobody_else() {
    let resolver = free_address().to_string();
    let platform = Platform::start(&["--verify-hosts", "true", "--verify-resolver", &resolver]);
    let (victim, spy) = (platform.tenant(VICTIM), platform.tenant("spy"));
    let host = "www.secret.example";
    assert_eq!(create(&victim, VICTIM, &with_host("zzmarker-a", host)).0, 201);
    assert_eq!(create(&spy, "spy", &with_host("same-host", host)).0, 201);
    let record = |client: &Client, namespace: &str, name: &str| {
        eventually("it has a challenge, and its result", || {
            let (_, body) = client.send("GET", &format!("{}/{name}", routes_path(namespace)), None);
            let route: Value = serde_json::from_str(&body).ok()?;
            let is_decided =
                admitted(client, namespace, name)?.0 == "OwnershipNotVerified" && body.contains("HostVerified");
            let value = route["status"]["challenge"]["value"].as_str()?.to_owned();
            is_decided.then_some((value, body))
        })
    };
    let (theirs, _) = record(&victim, VICTIM, "zzmarker-a");
    let (ours, read) = record(&spy, "spy", "same-host");
    assert_ne!(theirs, ours);
    assert!(!read.contains(MARKER) && !read.contains(&theirs), "{read}");
    for answer in all_that_is_readable(&platform, &spy) {
        assert!(!answer.to_lowercase().contains(MARKER) && !answer.contains(&theirs), "{answer}");
    }
}

/// Whether another namespace, or an object in it, exists makes no difference to what a tenant is answered.
#[test]
fn a_refusal_does_not_reveal_what_exists() {
    let platform = Platform::start(&[]);
    let (victim, spy) = (platform.tenant(VICTIM), platform.tenant("spy"));
    assert_eq!(create(&victim, VICTIM, &route("zzmarker-a", json!({"to": {"name": "web"}}))).0, 201);
    dns(&victim, VICTIM, "zzmarker-a");
    let patch = json!({"metadata": {"labels": {"x": "y"}}});
    let wanted = route("zzmarker-a", json!({"to": {"name": "web"}}));
    let answers = |namespace: &str| {
        let routes = routes_path(namespace);
        let (bindings, one) = (routes.replace("/routes", "/routebindings"), format!("{routes}/zzmarker-a"));
        let mut answers = Vec::new();
        for (method, path, body) in [
            ("GET", format!("/api/v1/namespaces/{namespace}"), None),
            ("DELETE", format!("/api/v1/namespaces/{namespace}"), None),
            ("GET", routes.clone(), None),
            ("GET", one.clone(), None),
            ("GET", format!("{one}/status"), None),
            ("GET", format!("{bindings}/zzmarker-a"), None),
            ("GET", format!("/api/v1/namespaces/{namespace}/events"), None),
            ("POST", routes.clone(), Some(&wanted)),
            ("POST", format!("{routes}?dryRun=All"), Some(&wanted)),
            ("PUT", one.clone(), Some(&wanted)),
            ("PATCH", one.clone(), Some(&patch)),
            ("DELETE", one.clone(), None),
            ("DELETE", routes.clone(), None),
        ] {
            let (status, body) = spy.send(method, &path, body);
            assert_eq!(status, 403, "{method} {path}: {body}");
            answers.push(format!(
                "{method} {} {status} {}",
                path.replace(namespace, "…"),
                body.replace(namespace, "…")
            ));
        }
        answers
    };
    assert_eq!(answers(VICTIM), answers("nowhere"));
    let requested = |namespace: &str| {
        ["", "-x"].map(|rest| {
            let wanted = json!({"to": {"name": "web"}, "subdomain": format!("{namespace}{rest}")});
            let path = format!("{}?dryRun=All", routes_path("spy"));
            let (status, body) = spy.send("POST", &path, Some(&route("named", wanted)));
            assert!(matches!((rest, status), ("", 201) | ("-x", 422)), "{status} {body}");
            (status, if status == 422 { body.replace(namespace, "…") } else { String::new() })
        })
    };
    assert_eq!(requested(VICTIM), requested("nowhere"));
    for name in ["label-hush", "zzmarkerco-zzmarker-a", "nothing"] {
        let (status, body) = spy.send("GET", &format!("/apis/signpost.dev/v1alpha1/nameclaims/{name}"), None);
        assert_eq!(status, 403, "{body}");
    }
}

/// Names without a Route are names that other tenants had, or mistyped.
#[test]
fn names_that_clients_ask_for_are_not_for_everyone() {
    if !inside_namespace("leaks::names_that_clients_ask_for_are_not_for_everyone") {
        return;
    }
    add_address(STRANGER);
    let platform = Platform::start(&[]);
    let tenant = platform.tenant("spy");
    let kubeconfig = std::fs::read_to_string(platform.data.join("kubeconfig")).expect("the server wrote it");
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token:")).expect("it has a token");
    let token = token.trim().trim_matches('"').to_owned();
    let ask = |client: [u8; 4], header: &str| {
        let mut stream = connect_from(client, platform.ports.admin).expect("connects");
        write!(stream, "GET /unrouted-names HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n\r\n")
            .expect("writes");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("reads");
        let status = answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).expect("a status");
        (status, answer)
    };
    for (client, header, expected) in [
        ([127, 0, 0, 1], String::new(), 200),
        ([127, 0, 0, 1], "X-Forwarded-For: 192.0.2.9\r\n".to_owned(), 401),
        (STRANGER, String::new(), 401),
        (STRANGER, "Authorization: Bearer unknown\r\n".to_owned(), 401),
        (STRANGER, format!("Authorization: Bearer {}\r\n", tenant.token()), 403),
        (STRANGER, format!("Authorization: Bearer {token}\r\n"), 200),
    ] {
        let (status, answer) = ask(client, &header);
        assert_eq!(status, expected, "{client:?} {header}: {answer}");
    }
}
