//! The page in unusual states: the API unavailable, the server restarted, an outage, an empty platform, a small screen.

use serde_json::{Value, json};

use crate::Example;
use crate::browser::{Browser, ENTER};
use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually, root};

#[test]
fn a_restart_of_the_server_is_noticed_and_signing_in_goes_on_where_it_was() {
    let Some(browser) = Browser::start() else { return };
    let (data, ports) = (DataDir::new(), Ports::free());
    let manifests = root().join("examples/rhcloud");
    let arguments = ["--data-dir", data.path(), "--manifests", manifests.to_str().expect("UTF-8")];
    let server = Server::start(ports, &arguments);
    let example = Example { data, server };
    let token = example.token();
    browser.sign_in(ports.admin, &token);
    browser.go("#/routes?state=pending");
    browser.sees("vault");
    let Example { data, server } = example;
    assert!(server.terminate().success());
    browser.comes_true("return document.getElementById('main').classList.contains('is-stale')");
    let _server = Server::start(ports, &["--data-dir", data.path()]);
    browser.sees("the server restarted");
    browser.comes_true("return document.activeElement?.id === 'token'");
    browser.press(&token);
    browser.press(ENTER);
    browser.sees("vault");
    assert_eq!(browser.script("return location.hash"), "#/routes?state=pending");
    browser.comes_true("return !document.getElementById('main').classList.contains('is-stale')");
    // And news come again.
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["delete", "routes.signpost.dev", "-n", "foo-bar", "vault"]);
    browser.comes_true("return !document.getElementById('main').innerText.includes('vault')");
}

#[test]
fn what_may_be_old_looks_old() {
    let Some(browser) = Browser::start() else { return };
    let data = DataDir::new();
    let manifests = root().join("examples/rhcloud");
    let arguments = [
        "--roles",
        "api,scheduler,admin",
        "--domain",
        "v3.rhcloud.com",
        "--data-dir",
        data.path(),
        "--manifests",
        manifests.to_str().expect("UTF-8"),
    ];
    let example = Example { server: Server::start(Ports::free(), &arguments), data };
    let own = DataDir::new();
    let kubeconfig = example.data.join("name-server.kubeconfig");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let arguments =
        ["--roles", "dns,admin", "--domain", "v3.rhcloud.com", "--kubeconfig", kubeconfig, "--data-dir", own.path()];
    let name_server = Server::start(Ports::free(), &arguments);
    browser.sign_in(name_server.admin, &example.token());
    browser.sees("3 shards");
    browser.comes_true("return document.querySelector('.title .pill')?.innerText.includes('ready') ?? false");
    let opacity = "getComputedStyle(document.querySelector('.vital .value')).opacity";
    assert_eq!(browser.script(&format!("return {opacity}")), "1");
    assert!(example.server.terminate().success());
    browser.comes_true("return document.getElementById('banner').innerText.includes('The data is as of')");
    browser.comes_true(&format!("return Number({opacity}) < 1"));
    let text = browser.text();
    assert!(text.contains("Current problems are unknown"), "{text}");
    assert!(!text.contains("Nothing needs attention") && text.contains("ago"), "{text}");
    browser.comes_true("return document.querySelector('.title .pill').innerText.includes('unknown')");
    browser.comes_true(
        "return document.querySelectorAll('.vital').length === document.querySelectorAll('.vital .as-of').length",
    );
}

#[test]
fn an_outage_is_red_and_a_small_screen_loses_nothing() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::start();
    browser.sign_in(example.server.admin, &example.token());
    browser.sees("3 shards");
    browser.sees("p99");
    for text in ["p50", "p99"] {
        browser.comes_true(&format!(
            "return [...document.querySelectorAll('.legend li')].some((one) => one.innerText.includes('{text}'))"
        ));
    }

    // Only the shard that the match is on is shown.
    let kubectl = example.kubectl();
    let of = |name: &str| kubectl.json(&["routes.signpost.dev", "-n", "myapp", name])["status"]["router"].clone();
    let on = eventually("it has a shard", || of("static").as_str().map(str::to_owned));
    browser.go("#/topology?q=static");
    browser.comes_true("return document.querySelectorAll('[data-node^=\"r:\"]').length === 1");
    let shards = "return [...document.querySelectorAll('[data-node^=\"s:\"]')].map((one) => one.dataset.node)";
    assert_eq!(browser.script(shards), json!([format!("s:{on}")]));

    // An outage.
    let drained = kubectl.json(&["routers.signpost.dev", &on])["spec"]["addresses"].clone();
    let drained: Vec<Value> =
        drained.as_array().expect("a list").iter().map(|one| json!({"ip": one["ip"], "state": "drained"})).collect();
    kubectl.ok(&["patch", "router", &on, "--type=merge", "-p", &json!({"spec": {"addresses": drained}}).to_string()]);
    browser.go("#/");
    browser.comes_true("return document.querySelector('.title .pill')?.innerText.includes('outage') ?? false");
    browser.sees("down");
    browser.comes_true("return document.querySelector('.attention li .is-bad') !== null");
    browser.go("#/namespaces/myapp/routes/static");
    browser.comes_true("return document.querySelector('.title .is-down') !== null");
    browser.sees("does not resolve (NoActiveAddress)");

    // 390 pixels: nothing is cut off, and the picture has its lines.
    browser.resize(390, 844);
    browser.sees("Why shard");
    let is_narrow = "return document.documentElement.scrollWidth <= 390";
    browser.comes_true(is_narrow);
    let cut = "return [...document.querySelectorAll('.verdicts td')].filter((one) => one.getBoundingClientRect().right > 390).length";
    browser.comes_true(&format!("{cut} === 0"));
    // The header leaves the screen to the page, and landmarks have distinct names.
    let header = browser.script("return document.getElementById('top').offsetHeight");
    assert!(header.as_u64().is_some_and(|height| height < 844 / 8), "{header}");
    browser.go("#/events");
    browser.comes_true("return document.querySelector('.list tbody tr') !== null");
    let names = "const all = [...document.querySelectorAll('nav')].map((one) => one.getAttribute('aria-label')); \
                 return all.length === 2 && new Set(all).size === 2";
    assert_eq!(browser.script(names), true);
    browser.go("#/topology");
    browser.comes_true("return document.querySelectorAll('#lines path').length > 4");
    let lines = "const box = document.getElementById('lines').getBoundingClientRect(); return box.width > 0 && box.right <= 391";
    assert_eq!(browser.script(lines), true);
    let strays = "const box = document.getElementById('lines').getBoundingClientRect(); return [...document.querySelectorAll('#lines \
                  path')].filter((one) => one.getBoundingClientRect().top < box.top).length";
    assert_eq!(browser.script(strays), 0);
    browser.comes_true(is_narrow);
}

#[test]
fn an_empty_platform_says_what_to_do_first() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::serving(&[]);
    browser.sign_in(example.server.admin, &example.token());
    browser.sees("First steps");
    browser.sees("kind: Router");
    assert!(browser.text().contains("kind: Route\n"), "both steps are there");
    browser.go("#/topology");
    browser.sees("Nothing to show yet.");
    assert!(!browser.text().contains("Shorten the search"));
    browser.go("#/routes");
    browser.sees("No Routes yet.");
    browser.go("#/");
    browser.sees("kind: Router");
    // The shown command works unchanged.
    let step = browser.script("return document.querySelector('.commands code').innerText");
    let manifest =
        step.as_str().expect("text").lines().skip(1).filter(|line| *line != "EOF").collect::<Vec<_>>().join("\n");
    example.kubectl().ok_with(&["apply", "-f", "-"], &manifest);
    browser.sees("1 shard");
    browser.sees("done");
}

#[test]
fn events_of_one_second_stand_in_order() {
    let Some(browser) = Browser::start() else { return };
    let example = Example::serving(&[]);
    browser.sign_in(example.server.admin, &example.token());
    let entry = |what: &str, at: &str| json!({"what": what, "key": what, "at": at});
    let entries = json!([
        entry("Resolvable", "2026-01-01T00:00:01.300000Z"),
        entry("Created", "2026-01-01T00:00:01Z"),
        entry("Published", "2026-01-01T00:00:01.300000Z"),
        entry("Admitted", "2026-01-01T00:00:01Z"),
        entry("Bound", "2026-01-01T00:00:01Z"),
        entry("NotResolvable", "2026-01-01T00:00:01.900000Z"),
        entry("Scheduled", "2026-01-01T00:00:01.100000Z"),
        entry("Moved", "2026-01-01T00:00:01.400000Z"),
        entry("Earlier", "2026-01-01T00:00:00.999999Z"),
        entry("Later", "2026-01-01T00:00:02Z"),
    ]);
    let script = format!(
        "return import('/dashboard/assets/route.js').then((it) => it.inOrder({entries}).map((one) => one.what).join(' '))"
    );
    assert_eq!(
        browser.script(&script),
        "Earlier Created Bound Scheduled Admitted Published Resolvable Moved NotResolvable Later"
    );
}

/// An instance of a Router, as its agent reports it.
const LEASE: &str = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata:\n  name: router-local.192-0-2-7-8080\n  \
     namespace: signpost-machines\n  labels: {app.kubernetes.io/component: router-instance}\n  annotations:\n    \
     instance.signpost.dev/router: local\n    instance.signpost.dev/address: 192.0.2.7\n    \
     instance.signpost.dev/http-port: \"8080\"\n    instance.signpost.dev/https-port: \"8443\"\n    \
     instance.signpost.dev/proxy: haproxy\n    instance.signpost.dev/faults: \"3\"\n\
     spec: {leaseDurationSeconds: 3600, renewTime: \"2026-01-01T00:00:00.000000Z\"}\n";

#[test]
fn instances_are_shown_with_their_addresses() {
    let Some(browser) = Browser::start() else { return };
    let data = DataDir::new();
    let manifests = root().join("examples/rhcloud");
    let router = manifests.join("local/10-router.yaml");
    let manifests = [&manifests, &router].map(|path| path.to_str().expect("UTF-8"));
    let arguments = ["--data-dir", data.path(), "--manifests", manifests[0], "--manifests", manifests[1]];
    let server = Server::start(Ports::free(), &[&arguments[..], &["--routers-runtime", "off"]].concat());
    let example = Example { data, server };
    Kubectl::new(example.data.join("kubeconfig")).ok_with(&["apply", "-f", "-"], LEASE);
    browser.sign_in(example.server.admin, &example.token());
    browser.sees("local: 1 of 2 instances serve");
    browser.go("#/routers/local");
    let cells = "return [...document.querySelectorAll('td.mono')]";
    browser.sees("1 of 2 instances serve");
    browser.comes_true(&format!("{cells}.filter((cell) => cell.innerText === '192.0.2.7').length === 2"));
    let text = browser.text();
    for part in ["1 address", "192.0.2.7", "serving", "8080, 8443", "haproxy"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
