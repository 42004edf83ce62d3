//! The dashboard in a real Chromium, with the real program; and by plain HTTP, where a browser cannot show the behavior.
//!
//! Without chromedriver, the tests that need it print a note and pass.

mod browser;
mod large;
mod login;
mod numbers;
mod pages;
mod secure_dns;
mod states;
mod traffic;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use serde_json::Value;

use crate::browser::{Browser, ENTER, ESCAPE, TAB};
use signpost_testing::net::exchange;
use signpost_testing::program::ok;
use signpost_testing::{DataDir, Kubectl, PATIENCE, Ports, Server, eventually, root};

/// A platform, running.
struct Example {
    data: DataDir,
    server: Server,
}

impl Example {
    /// Returns the example.
    fn start() -> Example {
        let manifests = root().join("examples/rhcloud");
        Example::serving(&["--manifests", manifests.to_str().expect("the repository's path is UTF-8")])
    }

    /// Starts the example with these arguments.
    fn serving(arguments: &[&str]) -> Example {
        let data = DataDir::new();
        let server = Server::start(Ports::free(), &[&["--data-dir", data.path()], arguments].concat());
        Example { data, server }
    }

    fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.data.join("kubeconfig"))
    }

    fn token(&self) -> String {
        let text = std::fs::read_to_string(self.data.join("kubeconfig")).expect("the server wrote it");
        let token = text.lines().find_map(|line| line.trim().strip_prefix("token:")).expect("it has a token");
        token.trim().trim_matches('"').to_owned()
    }

    fn signpost(&self, arguments: &[&str]) -> String {
        ok(&[arguments, &["--data-dir", self.data.path()]].concat()).trim().to_owned()
    }

    /// Returns a tenant of namespace `myapp`.
    fn tenant(&self, name: &str) -> String {
        let token = self.signpost(&["user", "add", name, "--role", "tenant", "--namespace", "myapp"]);
        eventually("the server knows the tenant", || {
            let (status, _, _) = sign_in(self.server.admin, &token);
            (status == 200).then_some(())
        });
        token
    }
}

/// Returns the status, headers, and body of a request.
fn ask(admin: SocketAddr, head: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    let answer = exchange(admin, &format!("{head}\r\nHost: {admin}\r\nContent-Length: {length}"), body);
    let answer = answer.expect("the admin endpoint responds");
    (answer.status, answer.head, answer.body)
}

const JSON: &str = "Content-Type: application/json";

fn sign_in(admin: SocketAddr, token: &str) -> (u16, String, String) {
    ask(admin, &format!("POST /dashboard/session HTTP/1.1\r\n{JSON}"), &format!("{{\"token\": \"{token}\"}}"))
}

/// Gets a path with a cookie.
fn get(admin: SocketAddr, path: &str, cookie: &str) -> (u16, Value) {
    let (status, _, body) = ask(admin, &format!("GET {path} HTTP/1.1\r\nCookie: {cookie}"), "");
    (status, serde_json::from_str(&body).unwrap_or_default())
}

#[test]
fn signing_in_and_what_is_refused() {
    let example = Example::start();
    let admin = example.server.admin;
    let token = example.token();

    for path in ["/dashboard/", "/dashboard/assets/app.js", "/dashboard/session", "/dashboard/data/overview"] {
        let (_, headers, _) = ask(admin, &format!("GET {path} HTTP/1.1"), "");
        for wanted in [
            "content-security-policy: default-src 'none'",
            "x-content-type-options: nosniff",
            "frame-ancestors 'none'",
            "referrer-policy: no-referrer",
        ] {
            assert!(headers.contains(wanted), "{path}: {wanted} in {headers}");
        }
        assert!(!headers.contains("unsafe-inline"), "{path}: {headers}");
    }
    let (_, _, page) = ask(admin, "GET /dashboard/ HTTP/1.1", "");
    assert!(!page.contains("style=") && !page.contains("http://") && !page.contains("https://"), "{page}");
    assert!(page.matches("<script").count() == 2 && page.contains("src=\"assets/app.js\""), "{page}");
    // The theme is applied before the first paint: the script blocks the parser, unlike a module.
    assert!(page.contains("<script src=\"assets/theme.js\"></script>\n<link rel=\"stylesheet\""), "{page}");
    let (status, headers, _) = ask(admin, "GET / HTTP/1.1\r\nAccept: text/html", "");
    assert!(status == 303 && headers.contains("location: /dashboard/"), "{headers}");

    // Without a session, there is no user.
    for path in [
        "data/overview",
        "data/routes",
        "data/samples",
        "data/events",
        "data/traffic",
        "data/zones",
        "data/records?zone=v3.rhcloud.com",
        "data/servers?zone=v3.rhcloud.com&platform=v3.rhcloud.com",
        "data/process",
        "data/sources",
        "data/live",
        "api/apis/signpost.dev/v1alpha1/routers",
    ] {
        assert_eq!(get(admin, &format!("/dashboard/{path}"), "signpost_session=made-up").0, 401, "{path}");
    }
    assert_eq!(sign_in(admin, "wrong").0, 401);
    assert_eq!(sign_in(admin, "").0, 401);
    assert_eq!(sign_in(admin, &format!(" \\\"{token}\\\" ")).0, 200, "as the kubeconfig has it");
    let with = |lines: &str| {
        let head = format!("POST /dashboard/session HTTP/1.1\r\n{lines}");
        ask(admin, &head, &format!("{{\"token\": \"{token}\"}}")).0
    };
    assert_eq!(with("Content-Type: text/plain"), 403, "a form of another site can send this");
    assert_eq!(with(&format!("{JSON}\r\nSec-Fetch-Site: cross-site")), 403);
    assert_eq!(with(&format!("{JSON}\r\nOrigin: http://192.0.2.1:9453")), 403, "a token over plain HTTP");
    assert_eq!(with(&format!("{JSON}\r\nOrigin: http://[::1]:9453")), 200);
    assert_eq!(ask(admin, &format!("POST /dashboard/session HTTP/1.1\r\n{JSON}"), &"x".repeat(20_000)).0, 413);

    let (status, headers, body) = sign_in(admin, &token);
    assert_eq!(status, 200, "{body}");
    assert!(
        headers.contains("httponly") && headers.contains("samesite=strict") && !headers.contains("secure"),
        "{headers}"
    );
    assert!(!body.contains(&token));
    let secure = format!("POST /dashboard/session HTTP/1.1\r\n{JSON}\r\nOrigin: https://signpost.example.org");
    let (_, over_tls, _) = ask(admin, &secure, &format!("{{\"token\": \"{token}\"}}"));
    assert!(over_tls.contains("; secure"), "{over_tls}");

    let cookie = cookie_of(admin, &token);
    let (status, overview) = get(admin, "/dashboard/data/overview", &cookie);
    assert_eq!((status, &overview["routes"]), (200, &Value::from(12)), "{overview}");
    let (_, found) = get(admin, "/dashboard/data/routes?q=vault", &cookie);
    assert_eq!(found["items"][0]["state"], "pending", "{found}");
    assert_eq!(get(admin, "/dashboard/api/apis/signpost.dev/v1alpha1/routers/shard1", &cookie).1["kind"], "Router");
    for hidden in [
        "/dashboard/api/api/v1/namespaces/myapp/secrets",
        "/dashboard/api/api/v1/secrets",
        "/dashboard/api/metrics",
        "/dashboard/api/apis/signpost.dev/v1alpha1/routes?watch=1",
    ] {
        assert_eq!(get(admin, hidden, &cookie).0, 404, "{hidden}");
    }
    // No user can write anything.
    let delete =
        format!("DELETE /dashboard/api/apis/signpost.dev/v1alpha1/routers/shard1 HTTP/1.1\r\nCookie: {cookie}");
    assert_eq!(ask(admin, &delete, "").0, 405);

    let out = format!("DELETE /dashboard/session HTTP/1.1\r\nCookie: {cookie}");
    assert_eq!(ask(admin, &out, "").0, 204);
    assert_eq!(get(admin, "/dashboard/data/overview", &cookie).0, 401);
}

/// Signs in and returns the cookie.
fn cookie_of(admin: SocketAddr, token: &str) -> String {
    let body = format!("{{\"token\": \"{token}\"}}");
    let head = format!("POST /dashboard/session HTTP/1.1\r\nHost: {admin}\r\n{JSON}\r\nContent-Length: {}", body.len());
    let answer = exchange(admin, &head, &body).expect("the admin endpoint responds");
    answer.cookie("signpost_session").expect("a cookie is set").to_owned()
}

#[test]
fn a_link_signs_a_browser_in_once() {
    let example = Example::start();
    let admin = example.server.admin;
    let url = format!("http://{admin}");
    let link = example.signpost(&["dashboard", "--no-browser", "--admin", &url]);
    let code = link.strip_prefix(&format!("{url}/dashboard/#sign-in=")).expect("the command prints a link");
    assert!(!link.contains(&example.token()));
    let redeem = |code: &str| {
        ask(admin, &format!("POST /dashboard/session HTTP/1.1\r\n{JSON}"), &format!("{{\"code\": \"{code}\"}}"))
    };
    assert_eq!(redeem("made-up").0, 403);
    let (status, headers, body) = redeem(code);
    assert_eq!(status, 200, "{body}");
    assert!(headers.contains("set-cookie: signpost_session=") && body.contains("signpost:admin"), "{headers} {body}");
    let (status, _, body) = redeem(code);
    assert!(status == 403 && body.contains("signpost dashboard"), "{body}");
    // Another site cannot get a link.
    let link = |lines: &str| {
        let head = format!("POST /dashboard/session/link HTTP/1.1\r\n{lines}");
        ask(admin, &head, &format!("{{\"token\": \"{}\"}}", example.token())).0
    };
    assert_eq!([link("Content-Type: text/plain"), link(&format!("{JSON}\r\nSec-Fetch-Site: cross-site"))], [403, 403]);

    let Some(browser) = Browser::start() else { return };
    browser.open(&example.signpost(&["dashboard", "--no-browser", "--admin", &url]));
    browser.sees("3 shards");
    assert_eq!(browser.script("return location.hash"), "#/");
}

#[test]
fn a_tenant_gets_its_own_and_loses_it_with_its_token() {
    let example = Example::start();
    let admin = example.server.admin;
    let cookie = cookie_of(admin, &example.tenant("tina"));
    let (_, who) = get(admin, "/dashboard/session", &cookie);
    assert_eq!(who["rights"]["namespaces"], serde_json::json!(["myapp"]), "{who}");
    assert_eq!(who["rights"]["all"], false);
    let (_, overview) = get(admin, "/dashboard/data/overview", &cookie);
    assert_eq!(overview["routes"], 6, "{overview}");
    assert!(!overview.to_string().contains("foo"), "{overview}");
    let (_, routes) = get(admin, "/dashboard/data/routes?namespace=foo", &cookie);
    assert_eq!(routes["total"], 0, "{routes}");
    assert_eq!(get(admin, "/dashboard/data/samples", &cookie).0, 403);
    let ours = "/dashboard/api/apis/signpost.dev/v1alpha1";
    assert_eq!(get(admin, &format!("{ours}/namespaces/myapp/routes/test"), &cookie).0, 200);
    for hidden in ["namespaces/foo/routes/cache", "routes", "zones", "namespaces/foo/routebindings"] {
        assert_eq!(get(admin, &format!("{ours}/{hidden}"), &cookie).0, 403, "{hidden}");
    }
    example.signpost(&["user", "revoke", "tina"]);
    eventually("the session ends with its token", || {
        (get(admin, "/dashboard/data/routes", &cookie).0 == 401).then_some(())
    });
}

/// Opens a stream of changes: its status, and the connection that holds it.
fn stream(admin: SocketAddr, cookie: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(admin).expect("the admin endpoint listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    write!(stream, "GET /dashboard/data/live HTTP/1.1\r\nHost: {admin}\r\nCookie: {cookie}\r\n\r\n").expect("it reads");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("it answers");
    let status = std::str::from_utf8(&head[9..]).ok().and_then(|status| status.parse().ok()).expect("a status");
    (status, stream)
}

#[test]
fn one_who_opens_many_pages_keeps_nobody_out() {
    let example = Example::start();
    let admin = example.server.admin;
    let tina = example.tenant("tina");
    // The limit applies per user, over all sessions.
    let cookies = [cookie_of(admin, &tina), cookie_of(admin, &tina)];
    let mut held: Vec<TcpStream> = Vec::new();
    for number in 0..16 {
        let (status, connection) = stream(admin, &cookies[number % 2]);
        assert_eq!(status, 200, "page {number}");
        held.push(connection);
    }
    assert_eq!(cookies.each_ref().map(|cookie| stream(admin, cookie).0), [429, 429]);
    assert_eq!(stream(admin, &cookie_of(admin, &example.token())).0, 200, "another user has places of their own");
    drop(held.pop());
    eventually("a page that is closed makes room", || (stream(admin, &cookies[0]).0 == 200).then_some(()));
}

#[test]
fn an_operator_sees_the_platform_live() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::start();
    let admin = example.server.admin;
    browser.sign_in(admin, &example.token());
    browser.sees("3 shards");
    for shown in ["shard1", "10.245.2.2", "Zones served", "1 route pending"] {
        browser.sees(shown);
    }
    browser.comes_true("return document.querySelector('.value [title=signpost_dns_requests_total]') !== null");
    assert_eq!(browser.script("return document.cookie"), "", "scripts cannot read the session");
    let session = browser.cookies().into_iter().find(|cookie| cookie["name"] == "signpost_session").expect("is set");
    assert_eq!((&session["httpOnly"], &session["sameSite"]), (&Value::from(true), &Value::from("Strict")));

    // A drained address shows without a touch, and so does a new route.
    let kubectl = example.kubectl();
    browser.go("#/routers/shard1");
    browser.sees("10.245.2.3");
    let drain = r#"[{"op":"replace","path":"/spec/addresses/1/state","value":"drained"}]"#;
    kubectl.ok(&["patch", "router", "shard1", "--type=json", "-p", drain]);
    browser.sees("drained");
    browser.go("#/routes");
    browser.sees("recommendations");
    let began = Instant::now();
    let route = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: hello, namespace: myapp}\nspec: {to: {name: web}}\n";
    kubectl.ok_with(&["apply", "-f", "-"], route);
    browser.sees("myapp-hello.shard");
    eprintln!("applied, scheduled and seen within {:?}, kubectl included", began.elapsed());

    // Why it is there.
    browser.go("#/namespaces/myapp/routes/static");
    browser.sees("Why shard3");
    for shown in [
        "Specification",
        "tier=edge",
        "strategy round-robin selected shard3: 1 of 3 Routers feasible",
        "RouteSelectorMismatch",
        "static.example.com. IN CNAME myapp-static.routes.v3.rhcloud.com.",
        "the Route was created",
        "kubectl -n myapp describe rt static",
    ] {
        browser.sees(shown);
    }
    browser.go("#/namespaces/myapp/routes/test");
    browser.sees("myapp-test.routes.v3.rhcloud.com");
    let names = browser.script("return [...document.querySelectorAll('.names code')].map((one) => one.innerText)");
    assert!(
        names[0] == "myapp-test.routes.v3.rhcloud.com" && names[1].as_str().is_some_and(|name| name.contains(".shard")),
        "the stable name comes first: {names}"
    );
    browser.go("#/namespaces/foo-bar/routes/vault");
    browser.sees("No shard has accepted the Route yet.");
    browser.sees("shard2 selects other Routes by their labels");
    browser.go("#/namespaces/foo/routes/none");
    browser.sees("Not found.");
    browser.go("#/topology?namespace=foo");
    browser.comes_true("return document.querySelectorAll('#lines path').length > 4");
    browser.sees("cache");

    let elsewhere = browser.script(
        "return performance.getEntriesByType('resource').map((one) => one.name).filter((name) => !name.startsWith(location.origin))",
    );
    assert_eq!(elsewhere, serde_json::json!([]), "no request goes to another origin");
    // The one request that must fail is for the missing Route.
    let said: Vec<String> = browser.log().into_iter().filter(|entry| !entry.contains("routes/none")).collect();
    assert!(said.is_empty(), "{said:#?}");

    // The server stops, and the page reports that its data is outdated.
    let shown = browser.text();
    assert!(example.server.terminate().success());
    browser.comes_true("return document.getElementById('banner').innerText.includes('The data is as of')");
    assert_eq!(browser.text(), shown);
}

#[test]
fn a_tenant_sees_its_own_and_a_keyboard_is_enough() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::start();
    let admin = example.server.admin;
    // Signing in types and presses Enter, too.
    browser.sign_in(admin, &example.tenant("tina"));
    browser.sees("Routes of this namespace");
    assert!(browser.script("return location.hash") == "#/namespaces/myapp");
    assert!(!browser.text().contains("signpost_dns"), "numbers of the platform are not for tenants");
    assert_eq!(browser.script("return document.querySelectorAll('#main [title^=signpost_dns]').length"), 0);

    // From the top: the way past the head of the page, then its links in order.
    browser.open(&format!("http://{admin}/dashboard/#/namespaces/myapp"));
    browser.script("location.reload()");
    browser.sees("Routes of this namespace");
    let walked: Vec<String> = (0..10)
        .map(|_| {
            browser.press(TAB);
            browser.focus()
        })
        .collect();
    let expected = [
        "button Skip to content",
        "a Signpost",
        "a Topology",
        "a Routes",
        "a Shards",
        "a Events",
        "a myapp",
        "select Theme",
        "button Keyboard help",
        "button Sign out",
    ];
    assert_eq!(walked, expected);
    let ring = browser.script("return getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(ring, "solid", "the focus is seen");

    // A slash goes to the search, a few letters find the route, and Enter opens it.
    browser.press("/");
    browser.press("checkout");
    browser.comes_true("return document.querySelectorAll('tbody tr').length === 1");
    assert_eq!(browser.focus(), "input filter", "typing is not interrupted by what it finds");
    for _ in 0..20 {
        browser.press(TAB);
        if browser.focus() == "a checkout" {
            break;
        }
    }
    browser.press(ENTER);
    browser.sees("pay.routes.v3.rhcloud.com");
    // The list shows that name, too: the new page is there when it has the focus.
    browser.comes_true("return document.activeElement.tagName === 'MAIN'");
    browser.press(ESCAPE);

    // Another user's objects are not shown.
    browser.go("#/namespaces/foo/routes/cache");
    browser.sees("You do not have permission to view this page.");
    for namespace in ["foo", "made-up"] {
        browser.go(&format!("#/namespaces/{namespace}"));
        browser.sees(&format!("You cannot list the Routes of namespace {namespace}, if it exists."));
        assert!(!browser.text().contains("No Routes in this namespace yet"), "{namespace}");
    }
    browser.go("#/routes");
    browser.sees("kubectl -n myapp get rt");
    assert!(!browser.text().contains("get rt -A"), "what is forbidden is not offered");
    browser.go("#/routes?q=cache");
    browser.sees("No matching Routes.");
    browser.go("#/topology");
    browser.sees("1 namespace, 6 routes");

    browser.script("document.querySelector('[data-action=sign-out]').focus()");
    browser.press(ENTER);
    browser.comes_true("return document.activeElement?.id === 'token'");
    let said: Vec<String> = browser
        .log()
        .into_iter()
        .filter(|entry| !entry.contains("namespaces/foo/") && !entry.contains("403"))
        .collect();
    assert!(said.is_empty(), "{said:#?}");
}
