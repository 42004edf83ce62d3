//! A shard inside another one, and a Route whose host the router of a source admitted, as their users see them.

use serde_json::Value;

use signpost_testing::program::{json, ok};
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually};

fn router(name: &str, dns: &str, address: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: {name}}}\n\
         spec: {{dns: {dns}, addresses: [{{ip: {address}}}]}}\n---\n"
    )
}

/// Returns a Route as a source writes it.
fn adopted(name: &str, host: &str, router: &str) -> String {
    format!(
        "apiVersion: signpost.dev/v1alpha1\nkind: Route\n\
         metadata: {{name: {name}, namespace: shop, labels: {{signpost.dev/source: 6a1b}}, \
         annotations: {{signpost.dev/source-object: HTTPRoute shop/web}}}}\n\
         spec: {{host: {host}, adopted: {{router: {router}, by: listener https of Gateway infra/{router}}}}}\n---\n"
    )
}

#[test]
fn a_shard_in_another_one_and_a_host_that_its_router_admitted() {
    let data = DataDir::new();
    let server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok(&["create", "namespace", "shop"]);
    let (outer, inner) = ("apps.v3.rhcloud.com", "eu.apps.v3.rhcloud.com");
    kubectl.ok_with(&["apply", "-f", "-"], &router("apps", outer, "192.0.2.1"));
    kubectl.ok_with(&["apply", "-f", "-"], &adopted("web-1", "web.us.apps.v3.rhcloud.com", "apps"));
    kubectl.ok(&["wait", "routes.signpost.dev", "--all", "-n", "shop", "--for=condition=Resolvable", "--timeout=180s"]);

    // The live name is in the way of a shard there, and not of another one.
    let in_the_way = router("us", "us.apps.v3.rhcloud.com", "192.0.2.9");
    let complaint = kubectl.refused(&["apply", "-f", "-"], &in_the_way);
    assert!(complaint.contains("web.us.apps.v3.rhcloud.com of Route shop/web-1"), "{complaint}");
    kubectl.ok_with(&["apply", "-f", "-"], &router("eu", inner, "192.0.2.2"));
    kubectl.ok_with(&["apply", "-f", "-"], &adopted("web-2", "web.eu.apps.v3.rhcloud.com", "eu"));
    kubectl.ok_with(&["apply", "-f", "-"], &adopted("web-3", "late.eu.apps.v3.rhcloud.com", "apps"));
    kubectl.ok(&["wait", "routes.signpost.dev", "web-2", "-n", "shop", "--for=condition=Resolvable", "--timeout=180s"]);
    kubectl.ok(&["wait", "router.signpost.dev", "--all", "--for=condition=ZonePublished", "--timeout=180s"]);

    // Both wildcards answer, and the outer zone delegates the inner one.
    let addresses = |name: &str| dig(server.dns, name, "A", &[]).data("A").join(" ");
    for (name, address) in [
        ("any.apps.v3.rhcloud.com", "192.0.2.1"),
        ("web.us.apps.v3.rhcloud.com", "192.0.2.1"),
        ("any.eu.apps.v3.rhcloud.com", "192.0.2.2"),
        ("web.eu.apps.v3.rhcloud.com", "192.0.2.2"),
    ] {
        assert_eq!(addresses(name), address, "{name}");
    }
    let soa = dig(server.dns, inner, "DS", &[]).authority;
    assert_eq!(
        (soa[0].owner.as_str(), soa[0].rtype.as_str()),
        ("apps.v3.rhcloud.com.", "SOA"),
        "the zone above the cut"
    );
    for (zone, is_cut) in [(outer, true), ("v3.rhcloud.com", false)] {
        let shown = json(&["zone", "show", zone, "--data-dir", data.path()]);
        let records = shown["records"].as_array().expect("a list");
        let delegates = |record: &Value| record["owner"] == format!("{inner}.") && record["type"] == "NS";
        assert_eq!(records.iter().any(delegates), is_cut, "{shown}");
    }

    // The host stays as it is, and the alias leads to the same shard.
    let status = |name: &str| kubectl.json(&["routes.signpost.dev", "-n", "shop", name])["status"].clone();
    let web = status("web-2");
    assert_eq!((&web["dns"], &web["router"]), (&Value::from("web.eu.apps.v3.rhcloud.com"), &Value::from("eu")));
    assert_eq!(web["canonicalName"], "shop-web-2.routes.v3.rhcloud.com");
    assert_eq!(web["names"][2]["type"], "adopted");
    eventually("the alias is answered", || {
        let alias = dig(server.dns, "shop-web-2.routes.v3.rhcloud.com", "A", &[]);
        (alias.data("CNAME") == ["shop-web-2.eu.apps.v3.rhcloud.com."]).then_some(())
    });
    let scheduled = kubectl.condition(&["routes.signpost.dev", "-n", "shop", "web-3"], "Scheduled").expect("it waits");
    assert!(scheduled.message.contains("is in eu.apps.v3.rhcloud.com, the zone of Router eu"), "{}", scheduled.message);
    let account = ok(&["explain", "route", "shop/web-2", "--data-dir", data.path()]);
    assert!(
        account.contains("listener https of Gateway infra/eu admitted web.eu.apps.v3.rhcloud.com on eu"),
        "{account}"
    );
    let wide = kubectl.ok(&["get", "routes.signpost.dev", "-A", "-o", "wide"]);
    let row = wide.lines().find(|line| line.contains("web-2")).expect("a row");
    for part in ["HTTPRoute shop/web", " eu ", "shop-web-2.routes.v3.rhcloud.com"] {
        assert!(row.contains(part), "{wide}");
    }

    // Records of the outer shard stay out of the inner zone, and a tenant adopts nothing.
    let records = r#"{"spec":{"records":["x.eu TXT token"]}}"#;
    let complaint = kubectl.refused(&["patch", "router.signpost.dev", "apps", "--type=merge", "-p", records], "");
    assert!(complaint.contains("belong to eu.apps.v3.rhcloud.com, the zone of Router \"eu\""), "{complaint}");
    let tenant = ["--as", "mallory", "--as-group", "signpost:tenant:shop"];
    let as_tenant = |arguments: &[&str], input: &str| kubectl.refused(&[arguments, &tenant[..]].concat(), input);
    let complaint = as_tenant(&["apply", "-f", "-"], &adopted("mine", "bank.apps.v3.rhcloud.com", "apps"));
    assert!(complaint.contains("requires the verb \"adopt\""), "{complaint}");
    let change = ["patch", "routes.signpost.dev", "-n", "shop", "web-1", "--type=merge", "-p"];
    for patch in [
        r#"{"spec":{"adopted":{"router":"eu"}}}"#,
        r#"{"spec":{"adopted":null}}"#,
        r#"{"metadata":{"labels":{"signpost.dev/source":null}}}"#,
        r#"{"metadata":{"labels":{"signpost.dev/source":"other"}}}"#,
    ] {
        let complaint = as_tenant(&[&change[..], &[patch]].concat(), "");
        assert!(complaint.contains("requires the verb \"adopt\""), "{patch}: {complaint}");
    }

    // Without the inner shard, the wildcard of the outer one answers again, and the Route whose host is there follows.
    kubectl.ok(&["delete", "routes.signpost.dev", "-n", "shop", "web-2"]);
    kubectl.ok(&["delete", "router.signpost.dev", "eu"]);
    eventually("the outer wildcard answers", || (addresses("any.eu.apps.v3.rhcloud.com") == "192.0.2.1").then_some(()));
    kubectl.ok(&["wait", "routes.signpost.dev", "web-3", "-n", "shop", "--for=condition=Resolvable", "--timeout=180s"]);
}
