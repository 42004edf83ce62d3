//! Names without a Route that a shard's wildcard answers: counted for each shard, and reported by name.

use serde_json::Value;

use signpost_testing::{DataDir, Kubectl, Ports, Scrape, Server, dig, eventually, http_get};

const OBJECTS: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: signpost.dev/v1alpha1
kind: Router
metadata: {name: shard1}
spec: {addresses: [{ip: 192.0.2.1}]}
---
apiVersion: signpost.dev/v1alpha1
kind: Router
metadata: {name: shard2}
spec: {state: cordoned, addresses: [{ip: 192.0.2.2}]}
---
apiVersion: signpost.dev/v1alpha1
kind: Route
metadata: {name: web, namespace: shop}
spec: {to: {name: web}}
---
apiVersion: signpost.dev/v1alpha1
kind: Route
metadata: {name: one, namespace: shop}
spec: {to: {name: web}, host: adopted.shard1.v3.rhcloud.com, adopted: {router: shard1, by: listener https of Gateway infra/one}}
---
apiVersion: signpost.dev/v1alpha1
kind: Route
metadata: {name: two, namespace: shop}
spec: {to: {name: web}, host: web.eu.shard1.v3.rhcloud.com, adopted: {router: shard1, by: listener https of Gateway infra/one}}
";

#[test]
fn names_without_a_route_are_counted_and_reported() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], OBJECTS);
    kubectl.ok(&["wait", "routes.signpost.dev", "--all", "-n", "shop", "--for=condition=Resolvable", "--timeout=180s"]);
    let of = |zone: &str| {
        let scrape = Scrape::of(server.admin);
        scrape.sum("signpost_dns_unrouted_requests_total", &[("zone", &format!("{zone}.v3.rhcloud.com."))])
    };
    assert_eq!((of("shard1"), of("shard2")), (0.0, 0.0), "the platform's own queries do not count");
    let ask = |name: &str, rtype: &str, more: &[&str]| {
        let answer =
            dig(server.dns, &format!("{name}.v3.rhcloud.com"), rtype, &[&["+tries=1", "+time=30"], more].concat());
        assert_eq!(answer.status, "NOERROR", "{name}");
    };
    for (name, rtype, more) in [
        // These have a Route, or are names that no wildcard answers.
        ("shop-web.shard1", "A", &[][..]),
        ("shop-web.shard1", "AAAA", &["+tcp"]),
        ("shop-web.routes", "A", &[]),
        ("shard1", "SOA", &[]),
        ("Adopted.shard1", "A", &[]),
        ("web.eu.shard1", "A", &[]),
        // These have none there: a typing error, the other shard, and a name below a Route's name.
        ("shop-wbe.shard1", "A", &[]),
        ("SHOP-wbe.shard1", "AAAA", &[]),
        ("shop-wbe.shard1", "TXT", &["+tcp"]),
        ("www.shop-web.shard1", "A", &[]),
        ("a.b.shop-web.shard1", "A", &[]),
        ("shop-web.shard2", "A", &[]),
        ("below.adopted.shard1", "A", &[]),
    ] {
        ask(name, rtype, more);
    }
    eventually("all are counted", || ((of("shard1"), of("shard2")) == (6.0, 1.0)).then_some(()));
    let scrape = Scrape::of(server.admin);
    assert_eq!(scrape.sum("signpost_dns_unrouted_requests_total", &[]), 7.0, "and nothing else");
    assert_eq!(scrape.sum("signpost_dns_unrouted_lost_total", &[]), 0.0);

    let (status, text) = http_get(server.admin, "/unrouted-names").expect("it answers");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(status, 200);
    let names = |zone: usize| -> Vec<(String, u64, u64)> {
        let names = report["zones"][zone]["names"].as_array().expect("a list");
        let number = |value: &Value| value.as_u64().expect("a number");
        let counts = |one: &Value| {
            (one["name"].as_str().expect("text").to_owned(), number(&one["requests"]), number(&one["atLeast"]))
        };
        names.iter().map(counts).collect()
    };
    let name = |name: &str| format!("{name}.v3.rhcloud.com.");
    assert_eq!(
        names(0),
        [(name("shop-wbe.shard1"), 3, 3), (name("*.shop-web.shard1"), 2, 2), (name("*.adopted.shard1"), 1, 1)],
        "{report}"
    );
    assert_eq!(names(1), [(name("shop-web.shard2"), 1, 1)], "{report}");

    // A Route that takes the name ends it.
    kubectl.ok_with(
        &["apply", "-f", "-"],
        "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: wbe, namespace: shop}\nspec: {to: {name: web}}\n",
    );
    kubectl.ok(&["wait", "routes.signpost.dev/wbe", "-n", "shop", "--for=condition=Resolvable", "--timeout=180s"]);
    ask("shop-wbe.shard1", "A", &[]);
    ask("other.shard1", "A", &[]);
    eventually("the later one is counted", || (of("shard1") == 7.0).then_some(()));
    assert!(server.terminate().success());
}

#[test]
fn nothing_is_counted_where_it_is_off_or_there_are_no_shards() {
    let data = DataDir::new();
    let zones = data.join("zones");
    std::fs::create_dir(&zones).expect("made");
    std::fs::write(
        zones.join("a.example.zone"),
        "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.53\n* A 192.0.2.1\n",
    )
    .expect("written");
    let zones = zones.to_str().expect("UTF-8");
    let data_dir = data.join("data");
    let data_dir = data_dir.to_str().expect("UTF-8");
    for arguments in [
        &["--roles", "dns,admin", "--zones", zones][..],
        &["--data-dir", data_dir, "--zones", zones, "--metrics-unrouted-names", "0"],
    ] {
        let server = Server::start(Ports::free(), arguments);
        assert_eq!(dig(server.dns, "x.a.example", "A", &[]).status, "NOERROR");
        let (status, text) = http_get(server.admin, "/unrouted-names").expect("it answers");
        assert!(status == 404 && text.contains("metrics.unrouted-names"), "{status} {text}");
        let (_, page) = http_get(server.admin, "/metrics").expect("it answers");
        assert!(!page.contains("signpost_dns_unrouted"), "{arguments:?}");
    }
}
