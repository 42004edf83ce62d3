//! Attacks on names of other tenants.

use serde_json::{Value, json};

use crate::support::{Platform, routes_path};
use signpost_testing::client::Client;
use signpost_testing::eventually;

/// Returns a Route.
pub fn route(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": name}, "spec": spec})
}

fn with_subdomain(name: &str, subdomain: &str) -> Value {
    route(name, json!({"to": {"name": "web"}, "subdomain": subdomain}))
}

/// Creates a Route; the status and the answer.
pub fn create(client: &Client, namespace: &str, route: &Value) -> (u16, String) {
    client.send("POST", &routes_path(namespace), Some(route))
}

/// Returns the first name that a Route has once it is scheduled.
pub fn dns(client: &Client, namespace: &str, name: &str) -> String {
    eventually("the route has a name", || {
        let (_, body) = client.send("GET", &format!("{}/{name}", routes_path(namespace)), None);
        let route: Value = serde_json::from_str(&body).ok()?;
        route["status"]["dns"].as_str().map(str::to_owned)
    })
}

#[test]
fn a_label_that_begins_with_the_name_of_another_namespace_is_refused() {
    let platform = Platform::start(&[]);
    let (shop, thief) = (platform.tenant("shop"), platform.tenant("shop-thief"));
    // Whether the namespace exists makes no difference.
    for subdomain in ["shop-pr-124", "SHOP-PR-124", "default-x", "nowhere-x"] {
        let (status, answer) = create(&thief, "shop-thief", &with_subdomain("squat", subdomain));
        assert_eq!(status, 422, "{subdomain}: {answer}");
        assert!(answer.contains(r#"spec.subdomain: Forbidden: a label with a dash must begin with the name of the namespace, \"shop-thief-\""#), "{answer}");
    }
    // Nor by a change of a Route that no Router takes yet.
    let waiting = route("squat", json!({"to": {"name": "web"}, "host": "*.waits.example", "subdomain": "mine"}));
    assert_eq!(create(&thief, "shop-thief", &waiting).0, 201);
    let patch = json!({"spec": {"subdomain": "shop-pr-124"}});
    let (status, answer) = thief.send("PATCH", &format!("{}/squat", routes_path("shop-thief")), Some(&patch));
    assert_eq!(status, 422, "{answer}");
    // The other way round: the longer name is another namespace's, and the Route gets another label.
    let (status, answer) = create(&shop, "shop", &with_subdomain("squat", "shop-thief-app"));
    assert_eq!(status, 201, "{answer}");
    let name = dns(&shop, "shop", "squat");
    assert!(name.starts_with("shop-thief-app-") && name.ends_with(".shard1.v3.rhcloud.com"), "{name}");
    // What begins with the own name is the own label, and the default label is unchanged.
    assert_eq!(create(&thief, "shop-thief", &with_subdomain("own", "shop-thief-x")).0, 201);
    assert_eq!(dns(&thief, "shop-thief", "own"), "shop-thief-x.shard1.v3.rhcloud.com");
    assert_eq!(create(&shop, "shop", &route("pr-124", json!({"to": {"name": "web"}}))).0, 201);
    assert_eq!(dns(&shop, "shop", "pr-124"), "shop-pr-124.shard1.v3.rhcloud.com");
}

#[test]
fn reserved_labels_go_to_nobody() {
    let platform = Platform::start(&[]);
    let tenant = platform.tenant("mta");
    for subdomain in [
        "autodiscover",
        "wpad",
        "isatap",
        "mta-sts",
        "localhost",
        "routes",
        "login",
        "Admin",
        "_dmarc",
        "_acme-challenge",
    ] {
        let (status, answer) = create(&tenant, "mta", &with_subdomain("r", subdomain));
        assert_eq!(status, 422, "{subdomain}: {answer}");
        assert!(answer.contains("spec.subdomain"), "{answer}");
    }
    // Namespace and name would make `mta-sts`, by which mail servers find whom to trust.
    assert_eq!(create(&tenant, "mta", &route("sts", json!({"to": {"name": "web"}}))).0, 201);
    let name = dns(&tenant, "mta", "sts");
    assert!(name.starts_with("mta-sts-") && name.ends_with(".shard1.v3.rhcloud.com"), "{name}");
}

#[test]
fn the_operator_says_which_labels_are_reserved_and_who_sets_a_subdomain() {
    let platform = Platform::start(&["--name-reserved-labels", "billing", "--name-tenant-subdomains", "false"]);
    let tenant = platform.tenant("shop");
    let (status, answer) = create(&tenant, "shop", &with_subdomain("r", "pay"));
    assert_eq!(status, 403, "{answer}");
    assert!(answer.contains("only administrators of this platform can set it"), "{answer}");
    assert_eq!(create(&tenant, "shop", &route("r", json!({"to": {"name": "web"}}))).0, 201);
    let admin = platform.user("operator", &["--role", "admin"]);
    eventually("the server knows the operator", || {
        (admin.send("GET", &routes_path("shop"), None).0 == 200).then_some(())
    });
    for (subdomain, expected) in [("billing", 422), ("routes", 422), ("login", 201)] {
        let (status, answer) = create(&admin, "shop", &with_subdomain(subdomain, subdomain));
        assert_eq!(status, expected, "{subdomain}: {answer}");
    }
}

/// Returns the condition `Admitted` of a Route: its reason and its message.
pub fn admitted(client: &Client, namespace: &str, name: &str) -> Option<(String, String)> {
    let (_, body) = client.send("GET", &format!("{}/{name}", routes_path(namespace)), None);
    let route: Value = serde_json::from_str(&body).ok()?;
    let conditions = route["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == "Admitted")?;
    Some((found["reason"].as_str()?.to_owned(), found["message"].as_str()?.to_owned()))
}

/// Returns a Route of `shop` with a host that one of `thief` waits for.
fn with_a_host_that_someone_waits_for(platform: &Platform) -> (Client, Client, Value) {
    let (shop, thief) = (platform.tenant("shop"), platform.tenant("thief"));
    let web = route("web", json!({"to": {"name": "web"}, "host": "www.customer.example"}));
    assert_eq!(create(&shop, "shop", &web).0, 201);
    dns(&shop, "shop", "web");
    let waits = route("waits", json!({"to": {"name": "web"}, "host": "www.customer.example"}));
    assert_eq!(create(&thief, "thief", &waits).0, 201);
    eventually("the other one waits", || (admitted(&thief, "thief", "waits")?.0 == "HostAlreadyClaimed").then_some(()));
    assert_eq!(shop.send("DELETE", &format!("{}/web", routes_path("shop")), None).0, 200);
    (shop, thief, web)
}

#[test]
fn a_host_waits_for_a_route_that_is_deleted_and_created_again() {
    let platform = Platform::start(&[]);
    let (shop, thief, web) = with_a_host_that_someone_waits_for(&platform);
    let message = eventually("the waiting route has the reason and the time", || {
        let (reason, message) = admitted(&thief, "thief", "waits")?;
        (reason == "HostReserved").then_some(message)
    });
    assert!(message.starts_with("www.customer.example is reserved until 20") && !message.contains("shop"), "{message}");
    // Nor does a wildcard above it get in between.
    let above = route("above", json!({"to": {"name": "web"}, "host": "*.customer.example"}));
    assert_eq!(create(&thief, "thief", &above).0, 201);
    eventually("the wildcard is refused", || {
        (admitted(&thief, "thief", "above")?.0 == "HostAlreadyClaimed").then_some(())
    });
    assert_eq!(create(&shop, "shop", &web).0, 201);
    assert_eq!(dns(&shop, "shop", "web"), "www.customer.example");
    let reason = admitted(&shop, "shop", "web").expect("it is bound").0;
    assert_eq!(reason, "Admitted");
    assert_ne!(admitted(&thief, "thief", "waits").expect("it waits").0, "Admitted");
}

#[test]
fn after_the_reservation_the_next_route_gets_the_host() {
    let platform = Platform::start(&["--host-reservation", "2s"]);
    let (_, thief, _) = with_a_host_that_someone_waits_for(&platform);
    assert_eq!(dns(&thief, "thief", "waits"), "www.customer.example");
}
