//! Get and list: formats, selectors, pages that are one snapshot, and what `resourceVersion` means.

use serde_json::{Value, json};
use signpost_apiserver::store::Revision;

use crate::support::{GROUP, ROUTES, Server, labelled, route, router, version};

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("items");
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn pages_are_one_snapshot() {
    let server = Server::start().await;
    for index in 0..25 {
        server.post(ROUTES, &route(&format!("r{index:02}"))).await.expect(201);
    }
    let first = server.get(&format!("{ROUTES}?&limit=10")).await.expect(200);
    assert_eq!(first["metadata"]["remainingItemCount"], 15);
    assert_eq!(
        (first["kind"].as_str(), first["apiVersion"].as_str()),
        (Some("RouteList"), Some("signpost.dev/v1alpha1"))
    );
    assert_eq!(first["items"][0]["kind"], "Route");
    server.post(ROUTES, &route("r10x")).await.expect(201);
    server.delete(&format!("{ROUTES}/r20")).await.expect(200);
    let (mut all, mut remaining) = (names(&first), Vec::new());
    let mut list = first.clone();
    while let Some(token) = list["metadata"]["continue"].as_str() {
        list = server.get(&format!("{ROUTES}?limit=10&continue={token}")).await.expect(200);
        assert_eq!(list["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        all.extend(names(&list));
        remaining.push(list["metadata"]["remainingItemCount"].as_u64());
    }
    assert_eq!(remaining, [Some(5), None]);
    // The first page of an exact list comes from the store.
    let exact =
        format!("{ROUTES}?limit=10&resourceVersion={}", first["metadata"]["resourceVersion"].as_str().expect("text"));
    assert_eq!(server.get(&exact).await.expect(200)["metadata"]["remainingItemCount"], 15);
    let expected: Vec<String> = (0..25).map(|index| format!("r{index:02}")).collect();
    assert_eq!(all, expected);
}

#[tokio::test]
async fn an_expired_token_gives_one_to_go_on_with() {
    let server = Server::start().await;
    for index in 0..6 {
        server.post(ROUTES, &route(&format!("r{index}"))).await.expect(201);
    }
    let first = server.get(&format!("{ROUTES}?limit=2")).await.expect(200);
    let token = first["metadata"]["continue"].as_str().expect("a token");
    let last = server.post(ROUTES, &route("r7")).await.expect(201);
    server.store.compact(Revision(version(&last))).await.expect("compacts");
    let expired = server.get(&format!("{ROUTES}?limit=2&continue={token}")).await.expect(410);
    assert_eq!(expired["reason"], "Expired");
    let token = expired["metadata"]["continue"].as_str().expect("a token");
    let rest = server.get(&format!("{ROUTES}?continue={token}")).await.expect(200);
    assert_eq!(names(&rest), ["r2", "r3", "r4", "r5", "r7"]);
    let too_old = format!("{ROUTES}?resourceVersion={}&resourceVersionMatch=Exact", version(&first));
    server.get(&too_old).await.expect(410);
}

#[tokio::test]
async fn what_a_resource_version_means() {
    let server = Server::start().await;
    let first = server.post(ROUTES, &route("a")).await.expect(201);
    server.post(ROUTES, &route("b")).await.expect(201);
    let (then, ahead) = (version(&first), version(&first) + 1_000_000);
    for (query, code, expected) in [
        (String::new(), 200, 2),
        ("resourceVersion=0".into(), 200, 2),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".into(), 200, 2),
        (format!("resourceVersion={then}"), 200, 2),
        (format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan"), 200, 2),
        (format!("resourceVersion={then}&resourceVersionMatch=Exact"), 200, 1),
        (format!("resourceVersion={then}&limit=5"), 200, 1),
        (format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan&limit=5"), 200, 2),
        (format!("resourceVersion={ahead}"), 504, 0),
        (format!("resourceVersion={ahead}&resourceVersionMatch=Exact"), 504, 0),
        ("resourceVersion=0&resourceVersionMatch=Exact".into(), 422, 0),
        ("resourceVersionMatch=Exact".into(), 422, 0),
        (format!("resourceVersion={then}&resourceVersionMatch=Perhaps"), 422, 0),
        ("resourceVersion=abc".into(), 400, 0),
    ] {
        let reply = server.get(&format!("{ROUTES}?{query}")).await;
        assert_eq!(reply.status, code, "{query}: {}", reply.text);
        match code {
            200 => assert_eq!(names(&reply.json()).len(), expected, "{query}"),
            504 => {
                let status = reply.json();
                assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
                assert_eq!(reply.headers["retry-after"], "1");
            }
            _ => {}
        }
    }
    let token_and_version = server.get(&format!("{ROUTES}?limit=1")).await.expect(200);
    let token = token_and_version["metadata"]["continue"].as_str().expect("a token");
    server.get(&format!("{ROUTES}?continue={token}&resourceVersion={then}")).await.expect(400);
}

#[tokio::test]
async fn selectors() {
    let server = Server::start().await;
    for (name, tier) in [("a", "gold"), ("b", "silver"), ("c", "gold")] {
        server.post(ROUTES, &labelled(route(name), "tier", tier)).await.expect(201);
    }
    let mut hosted = route("d");
    hosted["spec"]["host"] = json!("www.shop.example");
    server.post(ROUTES, &hosted).await.expect(201);
    for (query, expected) in [
        ("labelSelector=tier%3Dgold", &["a", "c"][..]),
        ("labelSelector=tier+in+(gold,silver),tier!=silver", &["a", "c"]),
        ("labelSelector=!tier", &["d"]),
        ("fieldSelector=metadata.name%3Db", &["b"]),
        ("fieldSelector=spec.host%3Dwww.shop.example", &["d"]),
        ("fieldSelector=metadata.namespace%3Dother", &[]),
        ("labelSelector=tier&fieldSelector=metadata.name!%3Da", &["b", "c"]),
    ] {
        let list = server.get(&format!("{ROUTES}?{query}")).await.expect(200);
        assert_eq!(names(&list), expected, "{query}");
        let paged = server.get(&format!("{GROUP}/routes?{query}&limit=1")).await.expect(200);
        assert_eq!(names(&paged), expected[..1.min(expected.len())], "{query}");
        assert_eq!(paged["metadata"]["continue"].is_string(), expected.len() > 1, "{query}");
        assert_eq!(paged["metadata"].get("remainingItemCount"), None, "{query}");
    }
}

#[tokio::test]
async fn tables_and_metadata() {
    let server = Server::start().await;
    server.post(&format!("{GROUP}/routers"), &router("shard1")).await.expect(201);
    let table = "accept: application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
    let list = server.send("GET", &format!("{GROUP}/routers?limit=500"), &[table], "").await.expect(200);
    assert_eq!((list["kind"].as_str(), list["apiVersion"].as_str()), (Some("Table"), Some("meta.k8s.io/v1")));
    let columns: Vec<_> = list["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|one| one["name"].as_str().unwrap_or_default().to_uppercase())
        .collect();
    assert_eq!(columns[..2], ["NAME", "DNS"]);
    assert!(columns.contains(&"AGE".to_owned()), "{columns:?}");
    let row = &list["rows"][0];
    assert_eq!((&row["cells"][0], &row["cells"][1]), (&json!("shard1"), &json!("shard1.v3.example")));
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(row["object"].get("spec"), None);
    let whole = server.send("GET", &format!("{GROUP}/routers?includeObject=Object"), &[table], "").await.expect(200);
    assert_eq!(whole["rows"][0]["object"]["spec"]["dns"], "shard1.v3.example");
    for (format, kind) in [("Table", "rows"), ("PartialObjectMetadataList", "items")] {
        let older = format!("accept: application/json;as={format};g=meta.k8s.io;v=v1beta1");
        let list = server.send("GET", &format!("{GROUP}/routers"), &[&older], "").await.expect(200);
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!(format), &json!("meta.k8s.io/v1beta1")));
        let first = &list[kind][0];
        let object = first.get("object").unwrap_or(first);
        assert_eq!(object["apiVersion"], "meta.k8s.io/v1beta1", "{list}");
    }
    for (path, expected) in [
        ("/api/v1/namespaces", "string"),
        ("/apis/coordination.k8s.io/v1/leases", "string"),
        (&format!("{GROUP}/routers"), "date"),
    ] {
        let list = server.send("GET", path, &[table], "").await.expect(200);
        let columns = list["columnDefinitions"].as_array().expect("columns");
        let age = columns.iter().find(|column| column["name"] == "Age").expect("an age");
        assert_eq!(age["type"], expected, "{path}");
    }
    let one = server.send("GET", &format!("{GROUP}/routers/shard1"), &[table], "").await.expect(200);
    assert_eq!(one["rows"].as_array().map(Vec::len), Some(1));
    let partial = "accept: application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = server.send("GET", &format!("{GROUP}/routers"), &[partial], "").await.expect(200);
    assert_eq!(
        (list["kind"].as_str(), list["items"][0]["kind"].as_str()),
        (Some("PartialObjectMetadataList"), Some("PartialObjectMetadata"))
    );
    let yaml = server.send("GET", &format!("{GROUP}/routers/shard1"), &["accept: application/yaml"], "").await;
    assert!(yaml.text.contains("dns: shard1.v3.example"), "{}", yaml.text);
}

#[tokio::test]
async fn discovery_and_openapi() {
    let server = Server::start().await;
    let aggregated = "accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let api = server.send("GET", "/api", &[aggregated], "").await.expect(200);
    let resources = api["items"][0]["versions"][0]["resources"].as_array().expect("resources");
    let resources: Vec<_> = resources.iter().filter_map(|one| one["resource"].as_str()).collect();
    assert_eq!(resources, ["events", "namespaces", "secrets", "services"]);
    let aggregated = "accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
    let reply = server.send("GET", "/apis", &[aggregated], "").await;
    assert_eq!(reply.headers["content-type"], "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let groups = reply.expect(200);
    let ours = groups["items"]
        .as_array()
        .expect("items")
        .iter()
        .find(|item| item["metadata"]["name"] == "signpost.dev")
        .expect("our group");
    let routes = ours["versions"][0]["resources"]
        .as_array()
        .expect("resources")
        .iter()
        .find(|one| one["resource"] == "routes")
        .expect("routes");
    assert_eq!(routes["shortNames"], json!(["rt"]));
    assert_eq!(routes["subresources"][0]["subresource"], "status");
    let core = server.send("GET", "/api", &[aggregated], "").await.expect(200);
    assert_eq!(core["items"][0]["versions"][0]["version"], "v1");
    assert_eq!(server.get("/api").await.expect(200)["kind"], "APIVersions");
    let list = server.get(GROUP).await.expect(200);
    assert!(list["resources"].as_array().expect("resources").iter().any(|one| one["name"] == "routes/status"));
    let version = server.get("/version").await.expect(200);
    assert_eq!((version["major"].as_str(), version["minor"].as_str()), (Some("1"), Some("32")));

    let index = server.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/signpost.dev/v1alpha1"]["serverRelativeURL"].as_str().expect("a URL").to_owned();
    let reply = server.get(&url).await;
    assert_eq!(reply.headers["cache-control"], "public, immutable");
    let document = reply.expect(200);
    let path = &document["paths"]["/apis/signpost.dev/v1alpha1/namespaces/{namespace}/routes/{name}"]["patch"];
    assert_eq!(path["x-kubernetes-group-version-kind"]["kind"], "Route");
    assert_eq!(path["requestBody"]["content"].get("application/strategic-merge-patch+json"), None);
    assert!(path["parameters"].as_array().expect("parameters").iter().any(|one| one["name"] == "fieldValidation"));
    let core = server.get("/openapi/v3/api/v1").await.expect(200);
    let ports = &core["components"]["schemas"]["core.v1.Service"]["properties"]["spec"]["properties"]["ports"];
    assert_eq!(
        (&ports["x-kubernetes-patch-strategy"], &ports["x-kubernetes-patch-merge-key"]),
        (&json!("merge"), &json!("port"))
    );
    // kubectl requests version 2 before it sends a List.
    let protobuf = "accept: application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let reply = server.send("GET", "/openapi/v2", &[protobuf], "").await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    let moved = server.get("/openapi/v3/apis/signpost.dev/v1alpha1?hash=ABC").await;
    assert_eq!((moved.status, moved.headers["location"].to_str().expect("text")), (301, url.as_str()));
}
