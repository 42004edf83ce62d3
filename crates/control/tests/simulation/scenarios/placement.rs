//! The remains of placed routes: claims, stray bindings, status.

use std::time::Duration;

use serde_json::{Value, json};
use signpost_control::reconcile::Settings;
use signpost_control::world::{self, World};
use signpost_types::names::host_claim_name;

use super::scheduling::{platform, scheduled, start_both};
use super::{Scene, condition, namespace, route, router, until};

pub fn settings(change: impl Fn(&mut Settings)) -> Settings {
    let mut settings =
        Settings { settle: Duration::from_millis(20), retry: Duration::from_millis(20), ..Settings::default() };
    change(&mut settings);
    settings
}

pub fn world(api: &Scene) -> World {
    World::new(&api.client(), world::Settings::of(crate::settings()))
}

fn claim(api: &Scene, name: &str) -> Option<Value> {
    api.get("nameclaims", "", name)
}

#[tokio::test]
async fn a_label_is_let_go_with_its_route_and_kept_for_it() {
    let api = platform(1).await;
    let running = start_both(&api, |_| (), |_| ());
    api.put("routes", route("ns", "app", &json!({})));
    until("it is scheduled", || scheduled(&api) == 1).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let held = claim(&api, "ns-app").expect("it is claimed");
    assert!(held["spec"]["releasedAt"].is_null(), "{held}");
    api.delete("routebindings", "ns", "app");
    api.delete("routes", "ns", "app");
    until("it is released", || claim(&api, "ns-app").is_some_and(|claim| claim["spec"]["quarantineUntil"].is_string()))
        .await;
    // Another Route requests the label, by its subdomain, and gets a different one; the route returns and gets its own.
    api.put("routes", route("ns", "thief", &json!({"subdomain": "ns-app"})));
    until("the other one is scheduled", || scheduled(&api) == 1).await;
    api.put("routes", route("ns", "app", &json!({})));
    until("both are scheduled", || scheduled(&api) == 2).await;
    let label = |name: &str| api.get("routebindings", "ns", name).expect("it is bound")["spec"]["label"].clone();
    assert_eq!(label("app"), "ns-app");
    assert!(label("thief").as_str().is_some_and(|label| label.starts_with("ns-app-")));
    // The Route reports it; the condition comes with the binding, from the API server.
    until("an event reports it", || api.count("events", |event| event["reason"] == "SubdomainTaken") > 0).await;
    running.stop().await;
}

#[tokio::test]
async fn quarantine_ends_in_a_purge() {
    let api = platform(1).await;
    let running = start_both(&api, |_| (), |settings| settings.quarantine = Duration::from_millis(300));
    api.put("routes", route("ns", "app", &json!({})));
    until("it is scheduled", || scheduled(&api) == 1).await;
    api.delete("routebindings", "ns", "app");
    api.delete("routes", "ns", "app");
    until("it is purged", || claim(&api, "ns-app").is_none()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_host_goes_to_the_next_and_its_claim_when_there_is_none() {
    let api = platform(1).await;
    let running = start_both(&api, |_| (), |settings| settings.host_grace = Duration::from_millis(500));
    let host = json!({"host": "www.shop.example"});
    api.put("routes", route("ns", "first", &host));
    until("the first is scheduled", || scheduled(&api) == 1).await;
    api.put("routes", route("ns", "second", &host));
    let admitted = |name: &str| {
        let route = api.get("routes", "ns", name).expect("it is there");
        condition(&route, "Admitted").map(|(status, ..)| status)
    };
    until("the second is refused", || admitted("second").as_deref() == Some("False")).await;
    api.delete("routebindings", "ns", "first");
    api.delete("routes", "ns", "first");
    until("the second is scheduled", || scheduled(&api) == 1).await;
    until("and reports Admitted", || admitted("second").as_deref() == Some("True")).await;
    api.delete("routebindings", "ns", "second");
    api.delete("routes", "ns", "second");
    let host_claims = || api.count("nameclaims", |claim| claim["spec"]["type"] == "host");
    until("the claim on the host is gone", || host_claims() == 0).await;
    running.stop().await;
}

#[tokio::test]
async fn routers_say_how_they_are() {
    let api = platform(0).await;
    api.put("routers", router("shard1", &json!({})));
    api.put("routers", router("shard2", &json!({"addresses": []})));
    let running = start_both(&api, |_| (), |_| ());
    for i in 0..7 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    let shard = |name: &str| api.get("routers", "", name).expect("it is there");
    let ready = |name: &str| condition(&shard(name), "Ready").map(|(status, reason, _)| format!("{status}/{reason}"));
    until("counts and readiness are reported", || {
        shard("shard1")["status"]["routes"] == 7
            && shard("shard2")["status"]["routes"] == 0
            && ready("shard1").as_deref() == Some("True/Ready")
            && ready("shard2").as_deref() == Some("False/NoActiveAddress")
    })
    .await;
    // The condition of another writer stays, and so do the scheduler's.
    let mut changed = shard("shard1");
    changed["status"]["conditions"].as_array_mut().expect("a list").push(json!({
        "type": "ZonePublished", "status": "True", "reason": "Published", "message": "",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }));
    changed["spec"]["state"] = json!("cordoned");
    api.put("routers", changed);
    until("it follows", || ready("shard1").as_deref() == Some("True/Cordoned")).await;
    assert!(condition(&shard("shard1"), "ZonePublished").is_some());
    api.delete("routebindings", "ns", "r0");
    api.delete("routes", "ns", "r0");
    until("the count follows", || shard("shard1")["status"]["routes"] == 6).await;
    let writes = api.connection.requests("PATCH routers");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(api.connection.requests("PATCH routers"), writes, "and then it is quiet");
    running.stop().await;
}

#[tokio::test]
async fn a_route_that_its_router_would_not_take_any_more_says_so_and_stays() {
    let api = platform(1).await;
    let running = start_both(&api, |_| (), |_| ());
    api.put("routes", route("ns", "app", &json!({})));
    until("it is scheduled", || scheduled(&api) == 1).await;
    let mismatch = || {
        let route = api.get("routes", "ns", "app").expect("it is there");
        condition(&route, "SelectorMismatch").map(|(status, ..)| status)
    };
    api.put("routers", router("shard1", &json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})));
    until("the mismatch is reported", || mismatch().as_deref() == Some("True")).await;
    assert_eq!(scheduled(&api), 1);
    let mut labelled = namespace("ns");
    labelled["metadata"]["labels"] = json!({"team": "a"});
    api.put("namespaces", labelled);
    until("the mismatch is over", || mismatch().as_deref() == Some("False")).await;
    running.stop().await;
}

/// Returns a Route of `namespace` with a host, and the known state of its verification.
fn with_host(namespace: &str, name: &str, host: &str) -> Value {
    route(namespace, name, &json!({"host": host}))
}

/// Writes whether the host of a Route is verified, as the verifier does.
fn prove(api: &Scene, namespace: &str, name: &str, is_verified: bool) {
    let mut route = api.get("routes", namespace, name).expect("it is there");
    let host = route["spec"]["host"].as_str().expect("it has one").trim_start_matches("*.").to_owned();
    let challenge = format!("_signpost-challenge.{host}");
    route["status"]["challenge"] = json!({"name": challenge, "value": "x", "record": "x"});
    let mut conditions = route["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "HostVerified");
    conditions.push(json!({
        "type": "HostVerified", "status": if is_verified { "True" } else { "False" }, "message": "",
        "reason": if is_verified { "Verified" } else { "OwnershipNotVerified" }, "lastTransitionTime": "2025-01-01T00:00:00Z",
    }));
    route["status"]["conditions"] = json!(conditions);
    api.put("routes", route);
}

fn admitted(api: &Scene, namespace: &str, name: &str) -> Option<String> {
    let route = api.get("routes", namespace, name)?;
    condition(&route, "Admitted").map(|(status, reason, _)| format!("{status}/{reason}"))
}

#[tokio::test]
async fn a_host_is_held_by_whoever_has_verified_it_last() {
    for (of_first, of_second) in [
        ("www.shop.example", "www.shop.example"),
        ("*.shop.example", "www.shop.example"),
        ("www.shop.example", "*.shop.example"),
    ] {
        let api = platform(1).await;
        api.api.truth.lock().verify_hosts = true;
        api.put("namespaces", namespace("other"));
        let running = start_both(
            &api,
            |settings| settings.verify_hosts = true,
            |settings| {
                settings.verify_hosts = true;
                settings.host_grace = Duration::from_millis(100);
            },
        );
        api.put("routes", with_host("ns", "first", of_first));
        prove(&api, "ns", "first", true);
        until("the first is scheduled", || scheduled(&api) == 1).await;
        // A third Route has requested it before the second, but is not verified.
        api.put("routes", with_host("other", "third", of_second));
        api.put("routes", with_host("other", "second", of_second));
        prove(&api, "other", "second", true);
        let is = |namespace: &str, name: &str, said: &str| admitted(&api, namespace, name).as_deref() == Some(said);
        until("the second waits", || is("other", "second", "False/HostAlreadyClaimed")).await;

        prove(&api, "ns", "first", false);
        until("the second has it", || is("other", "second", "True/Admitted") && scheduled(&api) == 2).await;
        until("the first does not have it", || is("ns", "first", "False/OwnershipNotVerified")).await;
        assert!(api.get("routebindings", "ns", "first").is_some(), "it stays on its Router");

        prove(&api, "ns", "first", true);
        until("the first reports the conflict", || is("ns", "first", "False/HostAlreadyClaimed")).await;
        assert!(is("other", "second", "True/Admitted"));
        prove(&api, "other", "second", false);
        until("the first has it back", || is("ns", "first", "True/Admitted")).await;
        until("the second has not", || is("other", "second", "False/OwnershipNotVerified")).await;
        // Both bindings name the host, because both routes stay on their Routers; the claim decides the owner.
        let held = claim(&api, &host_claim_name(of_first)).expect("it is claimed");
        assert_eq!(held["spec"]["holder"]["name"], "first", "{held}");
        running.stop().await;
    }
}

#[tokio::test]
async fn where_hosts_need_no_proof_no_challenge_is_reported() {
    let api = platform(1).await;
    let running = start_both(&api, |_| (), |_| ());
    // One from before verification was disabled, and one that another leader still writes once.
    for name in ["before", "after"] {
        api.put("routes", with_host("ns", name, &format!("{name}.shop.example")));
    }
    prove(&api, "ns", "before", false);
    until("both are scheduled", || scheduled(&api) == 2).await;
    prove(&api, "ns", "after", false);
    let is_silent = |name: &str| {
        let route = api.get("routes", "ns", name).expect("it is there");
        route["status"]["challenge"].is_null() && condition(&route, "HostVerified").is_none()
    };
    until("neither reports a challenge", || is_silent("before") && is_silent("after")).await;
    for name in ["before", "after"] {
        assert_eq!(admitted(&api, "ns", name).as_deref(), Some("True/Admitted"), "all else stays");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_route_whose_router_is_gone_says_so_until_it_is_there_again_or_the_route_has_moved() {
    let api = platform(1).await;
    let running = start_both(&api, |_| (), |_| ());
    for name in ["stays", "moves"] {
        api.put("routes", route("ns", name, &json!({})));
    }
    until("both are scheduled", || scheduled(&api) == 2).await;
    let said = |name: &str| {
        let route = api.get("routes", "ns", name).expect("it is there");
        condition(&route, "Scheduled").unwrap_or_default()
    };
    api.delete("routers", "", "shard1");
    until("both report it", || ["stays", "moves"].iter().all(|name| said(name).1 == "RouterGone")).await;
    let (status, _, message) = said("moves");
    assert_eq!(status, "False");
    assert!(message.contains("signpost move route ns/moves --to ROUTER"), "{message}");
    until("events report it", || api.count("events", |event| event["reason"] == "RouterGone") == 2).await;

    api.put("routers", router("shard2", &json!({})));
    let mut moving = api.get("routes", "ns", "moves").expect("it is there");
    moving["metadata"]["annotations"] = json!({"signpost.dev/move-to": "shard2"});
    api.put("routes", moving);
    until("it has moved", || said("moves").0 == "True").await;
    assert_eq!(api.get("routebindings", "ns", "moves").expect("bound")["spec"]["router"], "shard2");
    assert_eq!(said("stays").1, "RouterGone");
    api.put("routers", router("shard1", &json!({})));
    until("its Router is there again", || said("stays").0 == "True").await;
    running.stop().await;
}

#[tokio::test]
async fn records_at_a_former_name_are_reported_on_both_sides() {
    let api = platform(2).await;
    let running = start_both(&api, |_| (), |_| ());
    api.put("routers", router("shard2", &json!({"state": "cordoned"})));
    api.put("routes", route("ns", "app", &json!({})));
    until("it is scheduled", || scheduled(&api) == 1).await;
    let mut moving = api.get("routes", "ns", "app").expect("it is there");
    moving["metadata"]["annotations"] = json!({"signpost.dev/move-to": "shard2"});
    api.put("routers", router("shard2", &json!({"state": "active"})));
    api.put("routes", moving);
    until("it has moved", || {
        api.get("routebindings", "ns", "app")
            .is_some_and(|binding| binding["spec"]["formerNames"][0]["router"] == "shard1")
    })
    .await;
    let blocked = || condition(&api.get("routes", "ns", "app").expect("it is there"), "FormerNameBlocked");
    let accepted = || condition(&api.get("routers", "", "shard1").expect("it is there"), "Accepted");
    until("all is well", || accepted().is_some_and(|(status, ..)| status == "True")).await;
    assert_eq!(blocked(), None);
    api.put("routers", router("shard1", &json!({"records": ["ns-app A 192.0.2.9", "other A 192.0.2.9"]})));
    until("both report it", || {
        blocked().is_some_and(|(status, _, message)| status == "True" && message.contains("shard1"))
            && accepted().is_some_and(|(_, reason, message)| reason == "FormerNameBlocked" && !message.contains("app"))
    })
    .await;
    until("an event reports it", || {
        api.count("events", |event| event["reason"] == "RecordAtFormerName" && event["type"] == "Warning") > 0
    })
    .await;
    api.put("routers", router("shard1", &json!({"records": ["other A 192.0.2.9"]})));
    until("and it is over", || {
        blocked().is_some_and(|(status, ..)| status == "False")
            && accepted().is_some_and(|(status, ..)| status == "True")
    })
    .await;
    running.stop().await;
}

#[tokio::test]
async fn a_host_whose_route_was_seen_to_be_deleted_is_let_go_at_once() {
    let api = platform(1).await;
    // An action that waits for the informers to settle never happens.
    let running = start_both(&api, |_| (), |settings| settings.settle = Duration::from_secs(600));
    let host = json!({"host": "www.shop.example"});
    api.put("routes", route("ns", "first", &host));
    until("the first is scheduled", || scheduled(&api) == 1).await;
    api.put("routes", route("ns", "second", &host));
    until("the second is refused", || {
        let second = api.get("routes", "ns", "second").expect("it is there");
        condition(&second, "Admitted").is_some_and(|(status, ..)| status == "False")
    })
    .await;
    api.delete("routebindings", "ns", "first");
    api.delete("routes", "ns", "first");
    until("the second takes over", || api.get("routebindings", "ns", "second").is_some()).await;
    running.stop().await;
}

#[tokio::test]
async fn a_drain_says_what_of_it_is_being_deleted() {
    let api = platform(1).await;
    let running = start_both(&api, |_| (), |_| ());
    for name in ["goes", "stays"] {
        api.put("routes", route("ns", name, &json!({})));
    }
    until("both are scheduled", || scheduled(&api) == 2).await;
    api.put("routers", router("shard1", &json!({"state": "draining"})));
    let drained = || {
        let found = condition(&api.get("routers", "", "shard1").expect("it is there"), "Drained");
        found.map(|(_, reason, message)| (reason, message))
    };
    let says = |message: &str| drained() == Some(("RoutesLeft".to_owned(), message.to_owned()));
    until("both are left", || says("2 are left to move")).await;
    let mut going = api.get("routes", "ns", "goes").expect("it is there");
    going["metadata"]["deletionTimestamp"] = json!("2025-01-01T00:01:00Z");
    going["metadata"]["finalizers"] = json!(["example.org/hold"]);
    api.put("routes", going);
    until("one is being deleted", || {
        says("1 is left to move; 1 more is being deleted, when its finalizers are removed")
    })
    .await;
    api.delete("routebindings", "ns", "stays");
    api.delete("routes", "ns", "stays");
    until("that is all", || says("1 Route is left, and being deleted, when its finalizers are removed")).await;
    api.delete("routebindings", "ns", "goes");
    api.delete("routes", "ns", "goes");
    until("it is empty", || drained().is_some_and(|(reason, _)| reason == "Drained")).await;
    running.stop().await;
}

#[tokio::test]
async fn a_default_label_is_not_a_name_of_another_namespace() {
    let api = platform(1).await;
    ["tenant", "tenant-b"].into_iter().for_each(|name| drop(api.put("namespaces", namespace(name))));
    let running = start_both(&api, |_| (), |_| ());
    api.put("routes", route("tenant", "b-app", &json!({})));
    until("it is scheduled", || scheduled(&api) == 1).await;
    api.put("routes", route("tenant-b", "app", &json!({})));
    until("both are scheduled", || scheduled(&api) == 2).await;
    let label = |namespace: &str, name: &str| {
        let binding = api.get("routebindings", namespace, name).expect("it is bound");
        binding["spec"]["label"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(label("tenant-b", "app"), "tenant-b-app");
    assert!(label("tenant", "b-app").starts_with("tenant-b-app-"), "{}", label("tenant", "b-app"));
    let (_, reason, _) =
        condition(&api.get("routes", "tenant", "b-app").expect("it is there"), "Admitted").expect("it is admitted");
    assert_eq!(reason, "LabelTaken", "the reason of a label that another Route has");
    running.stop().await;
}
