//! The main path in one process: `kubectl apply` the example, wait, `dig` what every route was promised.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde_json::Value;

use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually, http_get, root, try_dig_all, until};

/// Returns the directory with the example.
pub fn example() -> String {
    root().join("examples/rhcloud").to_str().expect("UTF-8").to_owned()
}

/// A Route as the API returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    pub namespace: String,
    pub route: String,
    /// `status.phase`.
    pub phase: String,
    /// `status.router`, `status.dns` and `status.canonicalName`; empty for a route without a Router.
    pub router: String,
    pub dns: String,
    pub alias: String,
    /// The system name among `status.names`.
    pub system: String,
}

/// Returns all routes, by namespace and name.
pub fn promises(kubectl: &Kubectl) -> BTreeMap<String, Promise> {
    let list = kubectl.json(&["routes.signpost.dev", "-A"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let routes = list["items"].as_array().expect("a list has items");
    routes
        .iter()
        .map(|route| {
            let status = &route["status"];
            let names = status["names"].as_array().map(Vec::as_slice).unwrap_or_default();
            let system = names.iter().find(|name| name["type"] == "system").map(|name| text(&name["name"]));
            let promise = Promise {
                namespace: text(&route["metadata"]["namespace"]),
                route: text(&route["metadata"]["name"]),
                phase: text(&status["phase"]),
                router: text(&status["router"]),
                dns: text(&status["dns"]),
                alias: text(&status["canonicalName"]),
                system: system.unwrap_or_default(),
            };
            (format!("{}/{}", promise.namespace, promise.route), promise)
        })
        .collect()
}

/// The route of the example that no shard accepts.
pub const UNSCHEDULABLE: &str = "the one route of the example that stays new";

/// Applies the example and waits until all its Routes except one are scheduled; returns these and the unscheduled one.
pub fn apply_example(kubectl: &Kubectl) -> (Vec<Promise>, Promise) {
    kubectl.ok(&["apply", "-f", &example()]);
    let new = eventually(UNSCHEDULABLE, || {
        let new: Vec<Promise> = promises(kubectl).into_values().filter(|promise| promise.phase == "new").collect();
        <[Promise; 1]>::try_from(new).ok().map(|[promise]| promise)
    });
    let scheduled: Vec<Promise> =
        promises(kubectl).into_values().filter(|promise| promise.phase == "scheduled").collect();
    assert!(scheduled.len() >= 11, "{scheduled:?}");
    (scheduled, new)
}

/// Returns the addresses in the answers of each Router, by family.
fn addresses(kubectl: &Kubectl) -> BTreeMap<String, (Vec<String>, Vec<String>)> {
    let routers = kubectl.json(&["routers.signpost.dev"]);
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let of = |router: &Value| {
        let addresses = router["spec"]["addresses"].as_array().expect("the example's Routers have addresses").iter();
        let mut all: Vec<String> = addresses.map(|address| text(&address["ip"])).collect();
        all.sort();
        (text(&router["metadata"]["name"]), all.into_iter().partition(|address| !address.contains(':')))
    };
    routers["items"].as_array().expect("a list has items").iter().map(of).collect()
}

/// Checks that every name of every scheduled Route has the answers of its Router.
pub fn check_names(kubectl: &Kubectl, dns: SocketAddr, scheduled: &[Promise]) {
    let addresses = addresses(kubectl);
    let questions: Vec<(&str, &str)> = scheduled
        .iter()
        .flat_map(|promise| [(&*promise.system, "A"), (&*promise.system, "AAAA"), (&*promise.alias, "A")])
        .collect();
    for options in [&[][..], &["+tcp"][..]] {
        until("each name has its answer", || {
            let responses = try_dig_all(dns, &questions, options).ok_or("no response")?;
            for (promise, responses) in scheduled.iter().zip(responses.chunks(3)) {
                let [a, aaaa, alias] = responses else { return Err("three questions each".to_owned()) };
                let (v4, v6) = &addresses[&promise.router];
                let is_answered = a.status == "NOERROR" && a.sorted("A") == *v4;
                if !is_answered || alias.data("CNAME") != [format!("{}.", promise.system)] {
                    return Err(format!("{promise:?}: {a:?}, {alias:?}"));
                }
                assert_eq!((aaaa.status.as_str(), aaaa.sorted("AAAA").len()), ("NOERROR", v6.len()), "{promise:?}");
                if v6.is_empty() {
                    assert_eq!(aaaa.authority[0].rtype, "SOA", "NODATA carries the SOA: {promise:?}");
                }
            }
            Ok(())
        });
    }
}

#[test]
fn from_apply_to_dig() {
    let data = DataDir::new();
    let ports = Ports::free();
    let server = Server::start(ports, &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    assert!(kubectl.ok(&["api-resources"]).contains("routebindings"));

    let (scheduled, new) = apply_example(&kubectl);
    let (namespace, route) = (&scheduled[0].namespace, format!("routes.signpost.dev/{}", scheduled[0].route));
    for condition in ["--for=condition=Scheduled", "--for=jsonpath={.status.phase}=scheduled"] {
        kubectl.ok(&["wait", "-n", namespace, &route, condition, "--timeout=180s"]);
    }
    check_names(&kubectl, server.dns, &scheduled);
    names_follow_the_rules(&scheduled);
    the_unschedulable_route_says_why(&kubectl, &new);
    outside_is_refused_or_absent(server.dns);
    the_parent_delegates(&kubectl, server.dns);
    addresses_rotate(server.dns, &scheduled);
    users_cannot_set_what_the_binding_sets(&kubectl, &scheduled[0]);
    metrics_count(&server);

    // An address that leaves its Router leaves the answer.
    let on_shard1 = scheduled.iter().find(|promise| promise.router == "shard1").expect("the example uses shard1");
    kubectl.ok(&["patch", "router", "shard1", "--type=merge", "-p", r#"{"spec":{"addresses":[{"ip":"10.245.2.3"}]}}"#]);
    eventually("the address is gone", || {
        (dig(server.dns, &on_shard1.system, "A", &[]).data("A") == ["10.245.2.3"]).then_some(())
    });

    // kill -9: all is still there, under the same names and no smaller serial.
    let before = promises(&kubectl);
    let serial = dig(server.dns, "routes.v3.rhcloud.com", "SOA", &[]).serial().expect("the alias zone is served");
    server.kill();
    let server = Server::start(ports, &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    assert_eq!(promises(&kubectl), before);
    check_names(&kubectl, server.dns, &scheduled);
    assert!(dig(server.dns, "routes.v3.rhcloud.com", "SOA", &[]).serial().expect("served") >= serial);

    // A Route that goes takes its binding and its alias with it.
    kubectl.ok(&["delete", "routes.signpost.dev", &on_shard1.route, "-n", &on_shard1.namespace]);
    assert!(!kubectl.run(&["get", "routebinding", &on_shard1.route, "-n", &on_shard1.namespace]).status.success());
    eventually("the alias is gone", || {
        (dig(server.dns, &on_shard1.alias, "A", &[]).status == "NXDOMAIN").then_some(())
    });
    assert!(server.terminate().success());
}

fn names_follow_the_rules(scheduled: &[Promise]) {
    let find = |route: &str| {
        let (namespace, name) = route.split_once('/').expect("namespace/name");
        scheduled.iter().find(|promise| (promise.namespace.as_str(), promise.route.as_str()) == (namespace, name))
    };
    let test = find("myapp/test").expect("the proposal's own example is in ours");
    assert!(test.dns.starts_with("myapp-test.shard"), "{test:?}");
    assert!(test.dns.ends_with(".v3.rhcloud.com"), "{test:?}");

    let pair = [find("foo/bar-baz").expect("one of the pair"), find("foo-bar/baz").expect("the other of the pair")];
    let labels: BTreeSet<&str> =
        pair.iter().map(|promise| promise.system.split('.').next().expect("a label")).collect();
    assert_eq!(labels.len(), 2, "{pair:?}");
    assert!(labels.iter().all(|label| label.starts_with("foo-bar-baz")), "{pair:?}");

    let all: BTreeSet<&str> = scheduled.iter().map(|promise| promise.dns.as_str()).collect();
    assert_eq!(all.len(), scheduled.len(), "no name twice");
    let mut shortened = 0;
    for promise in scheduled {
        let label = promise.system.split('.').next().expect("a label");
        assert!(label.len() <= 63, "{promise:?}");
        shortened += usize::from(promise.namespace.len() + promise.route.len() + 1 > 63);
    }
    assert!(shortened >= 1, "the example holds a name that must be shortened");

    let custom: Vec<&Promise> = scheduled.iter().filter(|promise| promise.dns != promise.system).collect();
    assert!(!custom.is_empty(), "the example holds custom hosts");
    for promise in custom {
        assert!(!promise.dns.ends_with("v3.rhcloud.com"), "{promise:?}");
    }
}

fn the_unschedulable_route_says_why(kubectl: &Kubectl, new: &Promise) {
    assert_eq!((new.router.as_str(), new.dns.as_str()), ("", ""));
    let condition = eventually("the route reports why it has no Router", || {
        kubectl.condition(&["routes.signpost.dev", &new.route, "-n", &new.namespace], "Scheduled")
    });
    assert_eq!(condition.status, "False");
    for router in ["shard1", "shard2", "shard3"] {
        assert!(condition.message.contains(router), "each Router's reason is reported: {condition:?}");
    }
    let described = kubectl.ok(&["describe", "routes.signpost.dev", &new.route, "-n", &new.namespace]);
    assert!(described.contains("Scheduled"), "{described}");
}

fn outside_is_refused_or_absent(dns: SocketAddr) {
    assert_eq!(dig(dns, "www.example.org", "A", &[]).status, "REFUSED");
    assert_eq!(dig(dns, "nothing.v3.rhcloud.com", "A", &[]).status, "NXDOMAIN");
    assert_eq!(dig(dns, "nothing.routes.v3.rhcloud.com", "A", &[]).status, "NXDOMAIN");
    assert_eq!(dig(dns, "v3.rhcloud.com", "SOA", &[]).answer.len(), 1);
}

fn the_parent_delegates(kubectl: &Kubectl, dns: SocketAddr) {
    // The closest zone answers, so the cut itself is seen by its DS, which belongs to the parent's side.
    for router in ["shard1", "shard2", "shard3"] {
        let apex = format!("{router}.v3.rhcloud.com");
        eventually(&format!("the parent answers for the DS of {apex}"), || {
            let ds = dig(dns, &apex, "DS", &[]);
            let parent = ds.authority.first()?.owner == "v3.rhcloud.com.";
            (parent && ds.status == "NOERROR" && ds.answer.is_empty()).then_some(())
        });
        let ns = dig(dns, &apex, "NS", &[]);
        assert!(!ns.data("NS").is_empty(), "{apex}");
        for server in ns.data("NS") {
            assert_eq!(dig(dns, server, "A", &[]).status, "NOERROR", "{server} has an address");
        }
    }
    assert!(kubectl.ok(&["get", "routers", "-o", "wide"]).contains("shard3.v3.rhcloud.com"));
}

fn addresses_rotate(dns: SocketAddr, scheduled: &[Promise]) {
    let name = &scheduled.iter().find(|promise| promise.router == "shard2").expect("the example uses shard2").system;
    let firsts: BTreeSet<String> = (0..40).map(|_| dig(dns, name, "A", &[]).data("A")[0].to_owned()).collect();
    assert_eq!(firsts.len(), 2, "each address comes first now and then");
}

fn users_cannot_set_what_the_binding_sets(kubectl: &Kubectl, promise: &Promise) {
    let route = format!("routes.signpost.dev/{}", promise.route);
    for patch in [r#"{"status":{"dns":"stolen.example.com"}}"#, r#"{"status":{"phase":"new"}}"#] {
        for subresource in [&[][..], &["--subresource=status"][..]] {
            let arguments =
                [&["patch", "-n", &promise.namespace, &route, "--type=merge", "-p", patch], subresource].concat();
            let complaint = kubectl.refused(&arguments, "");
            assert!(complaint.contains("status"), "{complaint}");
        }
    }
    let binding = format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: RouteBinding\nmetadata: {{name: {0}, namespace: {1}}}\n\
         spec: {{routeNamespace: {1}, routeName: {0}, routeUID: x, router: shard2, dns: shard2.v3.rhcloud.com, label: x, names: [], strategy: mine}}\n",
        promise.route, promise.namespace
    );
    assert!(kubectl.refused(&["create", "-f", "-"], &binding).to_lowercase().contains("scheduler"));
}

fn metrics_count(server: &Server) {
    let (status, metrics) = http_get(server.admin, "/metrics").expect("the admin endpoint answers");
    assert_eq!(status, 200);
    let count: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("signpost_dns_requests_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!(count > 0.0, "{metrics}");
    assert_eq!(http_get(server.admin, "/livez").expect("answers").0, 200);
}

#[test]
fn a_second_start_with_the_manifests_changes_nothing() {
    let data = DataDir::new();
    let ports = Ports::free();
    let arguments = ["--data-dir", data.path(), "--domain", "v3.rhcloud.com", "--manifests", &example()];
    let server = Server::start(ports, &arguments);
    let log = eventually("the start prints the next commands", || {
        Some(server.log()).filter(|log| log.contains("kubectl") && log.contains("dig "))
    });
    assert!(log.contains(&ports.dns.to_string()) && log.contains(&ports.api.to_string()), "{log}");
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    eventually(UNSCHEDULABLE, || {
        (promises(&kubectl).values().filter(|promise| promise.phase == "new").count() == 1).then_some(())
    });
    let before = kubectl.json(&["routes.signpost.dev", "-A"]);
    assert!(server.terminate().success());
    let _server = Server::start(ports, &arguments);
    let versions = |list: &Value| -> Vec<(String, String)> {
        let routes = list["items"].as_array().expect("a list").iter();
        routes.map(|route| (route["metadata"]["uid"].to_string(), route["spec"].to_string())).collect()
    };
    assert_eq!(versions(&kubectl.json(&["routes.signpost.dev", "-A"])), versions(&before));
}

#[test]
fn kubectl_does_what_the_issue_of_the_main_path_lists() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path(), "--domain", "v3.rhcloud.com"]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["create", "namespace", "shop"]);
    let manifest = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: one}\nspec: {addresses: [{ip: 192.0.2.1}]}\n---\n\
                    apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: cart, namespace: shop, labels: {tier: front}}\n\
                    spec: {to: {name: cart}}\n";
    assert!(kubectl.ok_with(&["apply", "-f", "-"], manifest).contains("route.signpost.dev/cart created"));
    kubectl.ok(&["wait", "-n", "shop", "rt/cart", "--for=condition=Scheduled", "--timeout=180s"]);
    assert!(kubectl.ok_with(&["apply", "-f", "-"], manifest).contains("route.signpost.dev/cart unchanged"));
    let changed = manifest.replace("name: cart}}", "name: cart}, path: /cart}");
    assert!(kubectl.ok_with(&["apply", "-f", "-"], &changed).contains("route.signpost.dev/cart configured"));
    assert!(kubectl.ok_with(&["apply", "--server-side", "-f", "-"], &changed).contains("cart serverside-applied"));

    for (arguments, expected) in [
        (&["get", "routes", "-A"][..], "shop-cart.one.v3.rhcloud.com"),
        (&["get", "rt", "cart", "-n", "shop", "-o", "yaml"], "path: /cart"),
        (&["get", "rt", "cart", "-n", "shop", "-o", "wide"], "cart"),
        (&["get", "rt", "-n", "shop", "-l", "tier=front", "-o", "name"], "route.signpost.dev/cart"),
        (&["get", "signpost", "-A"], "routebinding.signpost.dev/cart"),
        (&["describe", "rt", "cart", "-n", "shop"], "Phase:"),
        (&["label", "rt", "cart", "-n", "shop", "stage=live"], "labeled"),
        (&["patch", "rt", "cart", "-n", "shop", "--type=merge", "-p", r#"{"spec":{"path":"/c"}}"#], "patched"),
        (
            &[
                "patch",
                "rt",
                "cart",
                "-n",
                "shop",
                "--type=json",
                "-p",
                r#"[{"op":"replace","path":"/spec/path","value":"/d"}]"#,
            ],
            "patched",
        ),
        (&["explain", "router.spec.addresses"], "ip"),
        (&["explain", "route", "--recursive"], "subdomain"),
        (&["get", "nameclaims"], "shop-cart"),
        (&["auth", "can-i", "create", "routes", "-n", "shop"], "yes"),
        (&["delete", "rt", "cart", "-n", "shop"], "deleted"),
    ] {
        let printed = kubectl.ok(arguments);
        assert!(printed.contains(expected), "kubectl {arguments:?} printed {printed}");
    }
    assert!(kubectl.ok(&["get", "rt", "-n", "shop", "-l", "tier=back"]).is_empty());

    // An empty spec is a plain request for a name, as `kubectl explain` documents.
    let route = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: empty, namespace: shop}\nspec: {}\n";
    kubectl.ok_with(&["apply", "-f", "-"], route);
    kubectl.ok(&["wait", "-n", "shop", "rt/empty", "--for=condition=Scheduled", "--timeout=180s"]);
    let dns = kubectl.ok(&["get", "-n", "shop", "rt/empty", "-o", "jsonpath={.status.dns}"]);
    assert_eq!(dns, "shop-empty.one.v3.rhcloud.com");
    let documented = kubectl.ok(&["explain", "route"]).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(documented.contains("with an empty spec, the platform derives the name"), "{documented}");
    drop(server);
}
