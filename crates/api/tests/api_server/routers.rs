//! Concurrent requests on Routers and their Routes: zones never overlap, and no Route stays on a deleted Router.

use futures::future::join_all;
use serde_json::{Value, json};
use signpost_apiserver::store::Key;

use crate::support::{GROUP, ROUTES, Reply, Server, route, router};

const AS_SCHEDULER: [&str; 2] = ["content-type: application/json", "impersonate-user: system:signpost:scheduler"];

fn routers() -> String {
    format!("{GROUP}/routers")
}

fn bindings() -> String {
    format!("{GROUP}/namespaces/default/routebindings")
}

async fn shard(server: &Server, name: &str, finalizers: &Value) {
    let mut object = router(name);
    object["metadata"]["finalizers"] = finalizers.clone();
    server.post(&routers(), &object).await.expect(201);
}

/// Makes a Route that holds its label, and the binding that would put it on `router`.
async fn waiting_route(server: &Server, name: &str, router: &str) -> Value {
    let made = server.post(ROUTES, &route(name)).await.expect(201);
    let uid = &made["metadata"]["uid"];
    let label = format!("default-{name}");
    let claim = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": label},
        "spec": {"type": "label", "value": label, "since": "2026-01-01T00:00:00Z",
            "holder": {"namespace": "default", "name": name, "uid": uid}},
    });
    server.post(&format!("{GROUP}/nameclaims"), &claim).await.expect(201);
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"name": name},
        "spec": {"routeNamespace": "default", "routeName": name, "routeUID": uid, "router": router,
            "dns": format!("{router}.v3.example"), "label": label, "strategy": "round-robin", "names": [
                {"name": format!("{label}.{router}.v3.example"), "type": "system"},
                {"name": format!("{label}.routes.v3.example"), "type": "alias"}]},
    })
}

async fn bind(server: &Server, binding: &Value) -> Reply {
    server.send("POST", &bindings(), &AS_SCHEDULER, binding.to_string()).await
}

#[tokio::test]
async fn a_router_goes_or_is_bound_to_but_not_both() {
    let server = Server::start().await;
    for turn in 0..20 {
        let name = format!("s{turn}");
        shard(&server, &name, &Value::Null).await;
        let binding = waiting_route(&server, &format!("r{turn}"), &name).await;
        let path = format!("{}/{name}", routers());
        // The loser must observe the winner, even if the cache does not contain it yet.
        let (bound, deleted) = match turn % 2 {
            0 => tokio::join!(bind(&server, &binding), server.delete(&path)),
            _ => {
                let (deleted, bound) = tokio::join!(server.delete(&path), bind(&server, &binding));
                (bound, deleted)
            }
        };
        let outcome = (bound.status, deleted.status);
        assert!(
            matches!(outcome, (201, 409) | (409 | 422, 200)),
            "{turn}: {outcome:?} {} {}",
            bound.text,
            deleted.text
        );
        assert_eq!(server.get(&path).await.status == 200, bound.status == 201, "{turn}");
        if bound.status == 201 {
            assert!(deleted.text.contains("1 Route is bound to it"), "{}", deleted.text);
            server.delete(&format!("{ROUTES}/r{turn}")).await.expect(200);
            server.delete(&path).await.expect(200);
        }
    }
    let (_, left) = server.store.get(&Key("/signpost.dev/turnstiles/routers/s0".into()), None).await.expect("reads");
    assert!(left.is_none(), "the data about a Router is deleted with it");
}

#[tokio::test]
async fn a_zone_that_comes_several_times_at_once_is_made_once() {
    let server = Server::start().await;
    let posted = |name: String, dns: String| {
        let mut object = router(&name);
        object["spec"]["dns"] = dns.into();
        let (server, path) = (&server, routers());
        async move { server.post(&path, &object).await.status }
    };
    for turn in 0..6 {
        let names = ["a", "b", "c", "d"].map(|name| format!("{name}{turn}"));
        let zone = |index: usize| match turn % 2 {
            0 => format!("same{turn}.v3.example"),
            // One inside the other, which is legal.
            _ => format!("{}z{turn}.v3.example", "x.".repeat(index)),
        };
        let made = join_all(names.iter().enumerate().map(|(index, name)| posted(name.clone(), zone(index)))).await;
        let mut codes = made.clone();
        codes.sort_unstable();
        let expected = if turn % 2 == 0 { [201, 422, 422, 422] } else { [201; 4] };
        assert_eq!(codes, expected, "{turn}: {made:?}");
    }
    // Those that do not overlap are all made.
    let made = join_all((0..40).map(|index| posted(format!("many{index}"), format!("many{index}.v3.example")))).await;
    assert!(made.iter().all(|code| *code == 201), "{made:?}");
}

#[tokio::test]
async fn an_agreed_loss_is_agreed_to_when_the_deletion_begins() {
    let server = Server::start().await;
    let hold = json!(["example.com/hold"]);
    shard(&server, "s1", &hold).await;
    let binding = waiting_route(&server, "a", "s1").await;
    bind(&server, &binding).await.expect(201);
    let late = waiting_route(&server, "b", "s1").await;
    let path = format!("{}/s1", routers());
    server.delete(&path).await.expect(409);
    server.delete(&format!("{path}?forceDeleteRoutes=2")).await.expect(409);
    let held = server.delete(&format!("{path}?forceDeleteRoutes=1")).await.expect(200);
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
    let refused = bind(&server, &late).await.expect(409);
    assert!(refused["message"].as_str().is_some_and(|message| message.contains("being deleted")), "{refused}");
    server.delete(&path).await.expect(200);
    server.merge(&path, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn the_collector_waits_until_a_router_may_go() {
    let server = Server::start().await;
    shard(&server, "owner", &Value::Null).await;
    let owner = server.get(&format!("{}/owner", routers())).await.expect(200);
    let mut owned = router("s1");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
        "name": "owner", "uid": owner["metadata"]["uid"]}]);
    server.post(&routers(), &owned).await.expect(201);
    let binding = waiting_route(&server, "a", "s1").await;
    bind(&server, &binding).await.expect(201);
    server.delete(&format!("{}/owner", routers())).await.expect(200);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    server.get(&format!("{}/s1", routers())).await.expect(200);
    server.delete(&format!("{ROUTES}/a")).await.expect(200);
    server.gone(&format!("{}/s1", routers())).await;
}

#[tokio::test]
async fn the_binding_of_a_route_goes_with_it_and_not_before() {
    let server = Server::start().await;
    shard(&server, "s", &Value::Null).await;
    let claims = format!("{GROUP}/nameclaims");
    for name in ["a", "b", "c"] {
        let binding = waiting_route(&server, name, "s").await;
        bind(&server, &binding).await.expect(201);
    }
    let of = |name: &str| format!("{}/{name}", bindings());
    let refused = server.delete(&of("a")).await.expect(409);
    let message = refused["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("signpost move route default/a --to ROUTER"), "{message}");
    server.delete(&bindings()).await.expect(409);
    for name in ["a", "b", "c"] {
        assert_eq!(server.get(&format!("{ROUTES}/{name}")).await.expect(200)["status"]["phase"], "scheduled");
    }
    // With its Route it goes at once.
    server.delete(&format!("{ROUTES}/a")).await.expect(200);
    server.get(&of("a")).await.expect(404);
    // One whose Router is gone leads nowhere, and may go.
    server.delete(&format!("{}/s?forceDeleteRoutes=2", routers())).await.expect(200);
    server.delete(&of("b")).await.expect(200);
    assert_eq!(server.get(&format!("{ROUTES}/b")).await.expect(200)["status"]["phase"], "new");
    server.get(&format!("{claims}/default-b")).await.expect(200);
}

#[tokio::test]
async fn a_namespace_ends_with_its_routes_and_their_bindings() {
    let server = Server::start().await;
    shard(&server, "s", &Value::Null).await;
    let namespaces = "/api/v1/namespaces";
    let shop = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    server.post(namespaces, &shop).await.expect(201);
    let routes = format!("{GROUP}/namespaces/shop/routes");
    let mut made = route("web");
    made["metadata"]["namespace"] = json!("shop");
    // Something holds the Route, so that its binding is met while it is there.
    made["metadata"]["finalizers"] = json!(["test.example/held"]);
    let made = server.post(&routes, &made).await.expect(201);
    let uid = &made["metadata"]["uid"];
    let claim = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": "shop-web"},
        "spec": {"type": "label", "value": "shop-web", "since": "2026-01-01T00:00:00Z",
            "holder": {"namespace": "shop", "name": "web", "uid": uid}},
    });
    server.post(&format!("{GROUP}/nameclaims"), &claim).await.expect(201);
    let binding = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"name": "web"},
        "spec": {"routeNamespace": "shop", "routeName": "web", "routeUID": uid, "router": "s", "dns": "s.v3.example",
            "label": "shop-web", "strategy": "round-robin", "names": [
                {"name": "shop-web.s.v3.example", "type": "system"},
                {"name": "shop-web.routes.v3.example", "type": "alias"}]},
    });
    let of_shop = format!("{GROUP}/namespaces/shop/routebindings");
    server.send("POST", &of_shop, &AS_SCHEDULER, binding.to_string()).await.expect(201);
    server.delete(&format!("{namespaces}/shop")).await.expect(200);
    server.gone(&format!("{of_shop}/web")).await;
    server.merge(&format!("{routes}/web"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.gone(&format!("{namespaces}/shop")).await;
}
