//! Custom hosts: the holders, the waiting Routes, and the next holder.

use std::time::Duration;

use serde_json::{Value, json};
use signpost_control::scheduler::Settings;
use signpost_types::names::host_claim_name;

use super::scheduling::{platform, scheduled, start, start_with};
use super::{Scene, condition, namespace, route, router, until};

#[tokio::test]
async fn a_host_has_one_route_and_the_oldest_of_those_that_wait_takes_over() {
    let api = platform(2).await;
    let with_age = |name: &str, second: u32| {
        let mut object = route("ns", name, &json!({"host": "www.shop.example"}));
        object["metadata"]["creationTimestamp"] = json!(format!("2025-01-01T00:00:{second:02}Z"));
        object
    };
    api.put("routes", with_age("first", 1));
    let running = start(&api);
    until("the first is scheduled", || scheduled(&api) == 1).await;
    api.put("routes", with_age("third", 3));
    api.put("routes", with_age("second", 2));
    let refused = |name: &str| {
        let route = api.get("routes", "ns", name).expect("it is there");
        condition(&route, "Admitted")
            .is_some_and(|(status, reason, _)| status == "False" && reason == "HostAlreadyClaimed")
    };
    until("the others are not admitted", || refused("second") && refused("third")).await;
    let first = api.get("routes", "ns", "first").expect("it is there");
    assert_eq!(first["status"]["dns"], "www.shop.example");
    let names = &api.get("routebindings", "ns", "first").expect("it is bound")["spec"]["names"];
    assert_eq!(names[2]["record"], "www.shop.example. IN CNAME ns-first.routes.v3.example.");

    api.delete("routebindings", "ns", "first");
    api.delete("routes", "ns", "first");
    until("the second takes over", || scheduled(&api) == 1).await;
    assert!(api.get("routebindings", "ns", "second").is_some() && refused("third"));
    running.stop().await;
}

#[tokio::test]
async fn routes_of_a_namespace_share_a_host_by_path() {
    let api = platform(3).await;
    api.put("namespaces", namespace("other"));
    let put = |namespace: &str, name: &str, host: &str, path: &str, second: u32| {
        let mut object = route(namespace, name, &json!({"host": host, "path": path}));
        object["metadata"]["creationTimestamp"] = json!(format!("2025-01-01T00:00:{second:02}Z"));
        api.put("routes", object);
    };
    let running = start(&api);
    put("ns", "web", "www.shop.example", "/", 1);
    put("ns", "api", "WWW.shop.example", "/api", 2);
    put("ns", "v2", "www.shop.example", "/api/v2/", 3);
    until("all are scheduled", || scheduled(&api) == 3).await;
    let claim = || {
        let claims = api.all("nameclaims").into_iter().find(|claim| claim["spec"]["type"] == "host");
        claims.map(|claim| claim["spec"].clone()).unwrap_or_default()
    };
    let paths = || -> Vec<(String, String)> {
        let spec = claim();
        let all = std::iter::once(&spec["holder"]).chain(spec["sharers"].as_array().into_iter().flatten());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.map(|one| (text(&one["name"]), text(&one["path"]))).collect()
    };
    let has = |expected: &[(&str, &str)]| {
        let mut now = paths();
        now.sort();
        now == expected.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect::<Vec<_>>()
    };
    assert!(has(&[("api", "/api"), ("v2", "/api/v2"), ("web", "/")]), "{}", claim());
    let router = |name: &str| api.get("routebindings", "ns", name).expect("it is bound")["spec"]["router"].clone();
    assert!(router("web") == router("api") && router("web") == router("v2"), "they are on one Router");

    // The same path, and another namespace.
    put("ns", "late", "www.shop.example", "/api/", 4);
    put("other", "thief", "www.shop.example", "/mine", 5);
    let message = "www.shop.example with the path /api is held by Route api";
    until("the path is refused", || refusal(&api, "ns", "late").as_deref() == Some(message)).await;
    let message = "www.shop.example is held by a Route of another namespace";
    until("the host is refused", || refusal(&api, "other", "thief").as_deref() == Some(message)).await;

    // A path that becomes free goes to the Route that waits, and a Route can change its own.
    end(&api, "ns", "api");
    until("it takes over", || scheduled(&api) == 3).await;
    until("the claim shows it", || has(&[("late", "/api"), ("v2", "/api/v2"), ("web", "/")])).await;
    let change = |name: &str, path: &str| {
        let mut object = api.get("routes", "ns", name).expect("it is there");
        object["spec"]["path"] = json!(path);
        api.put("routes", object);
    };
    change("v2", "/v2");
    until("the claim has the new path", || has(&[("late", "/api"), ("v2", "/v2"), ("web", "/")])).await;
    // Of two equal paths, the older Route has it, and the other one waits on its Router.
    change("v2", "/api");
    let message = "www.shop.example with the path /api is now held by Route v2";
    until("the younger one loses it", || refusal(&api, "ns", "late").as_deref() == Some(message)).await;
    assert!(has(&[("v2", "/api"), ("web", "/")]), "{}", claim());
    change("v2", "/v2");
    until("it has it again", || has(&[("late", "/api"), ("v2", "/v2"), ("web", "/")])).await;
    until("it is admitted", || refusal(&api, "ns", "late").is_none()).await;

    // The first one goes, and the others stay; the last one releases the host.
    end(&api, "ns", "web");
    until("the others have it", || has(&[("late", "/api"), ("v2", "/v2")])).await;
    assert_eq!(scheduled(&api), 2);
    end(&api, "ns", "late");
    end(&api, "ns", "v2");
    until("the other namespace gets it", || is_placed(&api, "other", "thief")).await;
    running.stop().await;
}

#[tokio::test]
async fn a_wildcard_that_is_let_go_goes_to_the_oldest_of_those_that_it_kept_out() {
    for (oldest, host) in [("other", "*.shop.example"), ("third", "www.shop.example")] {
        let api = platform(2).await;
        let put = |namespace: &str, host: &str, second: u32| {
            let mut object = route(namespace, "app", &json!({"host": host}));
            object["metadata"]["creationTimestamp"] = json!(format!("2025-01-01T00:00:{second:02}Z"));
            api.put("routes", object);
        };
        for name in ["first", "other", "third"] {
            api.put("namespaces", namespace(name));
        }
        put("first", "*.shop.example", 1);
        let running = start(&api);
        until("the first is scheduled", || scheduled(&api) == 1).await;
        // One requests the same host, the other one below it.
        put("other", "*.shop.example", if oldest == "other" { 2 } else { 3 });
        put("third", "www.shop.example", if oldest == "third" { 2 } else { 3 });
        let refused = |namespace: &str| {
            let route = api.get("routes", namespace, "app").expect("it is there");
            condition(&route, "Admitted").is_some_and(|(status, ..)| status == "False")
        };
        until("both are rejected", || refused("other") && refused("third")).await;
        api.delete("routebindings", "first", "app");
        api.delete("routes", "first", "app");
        until("one takes over", || scheduled(&api) == 1).await;
        let bound = api.get("routes", oldest, "app").expect("it is there");
        assert_eq!(bound["status"]["dns"], host, "the oldest");
        running.stop().await;
    }
}

#[tokio::test]
async fn a_host_of_the_platform_is_refused_unless_it_is_the_routes_own() {
    let api = platform(2).await;
    api.put("routes", route("ns", "own", &json!({"host": "ns-own.shard2.v3.example"})));
    api.put("routes", route("ns", "other", &json!({"host": "admin.shard1.v3.example"})));
    let running = start(&api);
    until("its own is scheduled", || scheduled(&api) == 1).await;
    assert_eq!(api.get("routebindings", "ns", "own").expect("it is bound")["spec"]["router"], "shard2");
    until("the other is refused", || {
        condition(&api.get("routes", "ns", "other").expect("it is there"), "Admitted")
            .is_some_and(|(status, reason, _)| status == "False" && reason == "HostInPlatformDomain")
    })
    .await;
    running.stop().await;
}

/// A deleted Router blocks no host, and no message names it as the reason for a wait: whether its deletion is watched, or found
/// in a new list; and for any number of waiting routes, those that it cannot help are then skipped.
#[tokio::test]
async fn a_router_that_goes_wakes_whom_it_kept_out() {
    for (others, unseen) in [(3, false), (3, true), (1_100, false)] {
        let api = platform(1).await;
        api.put("routers", router("other", &json!({"dns": "other.example", "state": "cordoned"})));
        for number in 0..others {
            let mut gold = route("ns", &format!("gold{number:04}"), &json!({}));
            gold["metadata"]["labels"] = json!({"tier": "gold"});
            api.put("routes", gold);
        }
        let selector = json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["gold"]}]});
        api.put("routers", router("shard1", &json!({"routeSelector": selector})));
        api.put("routes", route("ns", "www", &json!({"host": "www.other.example"})));
        let running = start_with(&api, patient);
        let said = |name: &str, word: &str| {
            let route = api.get("routes", "ns", name).expect("it is there");
            condition(&route, "Scheduled").is_some_and(|(_, _, message)| message.contains(word))
        };
        let gold = |word: &str| (0..others).filter(|number| said(&format!("gold{number:04}"), word)).count();
        until("all wait", || gold("other is cordoned") == others && refusal(&api, "ns", "www").is_some()).await;
        assert!(refusal(&api, "ns", "www").is_some_and(|message| message.contains("below other.example")));
        if unseen {
            api.set_down(true).await;
            api.delete("routers", "", "other");
            api.api.forget_history().await;
            api.set_down(false).await;
        } else {
            api.delete("routers", "", "other");
        }
        until("its host is admitted", || scheduled(&api) == 1).await;
        if others <= 1_000 {
            until("no message names it", || gold("0/1 Routers are available") == others).await;
        } else {
            assert_eq!(gold("other is cordoned"), others, "until their next attempt");
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn of_overlapping_hosts_in_two_namespaces_the_first_is_admitted() {
    let api = platform(2).await;
    api.put("namespaces", namespace("other"));
    let running = start(&api);
    let host = |host: &str| json!({"host": host});
    api.put("routes", route("ns", "all", &host("*.shop.test")));
    until("the first is placed", || scheduled(&api) == 1).await;
    // In the host's own namespace, and next to it, nothing changes.
    api.put("routes", route("ns", "www", &host("www.shop.test")));
    api.put("routes", route("other", "sibling", &host("www.notshop.test")));
    api.put("routes", route("other", "apex", &host("shop.test")));
    until("these are placed", || scheduled(&api) == 4).await;
    // Below it, and around it, others are not.
    api.put("routes", route("other", "below", &host("a.b.shop.test")));
    api.put("routes", route("other", "around", &host("*.test")));
    let refused = |name: &str| {
        let route = api.get("routes", "other", name).expect("it is there");
        condition(&route, "Admitted").filter(|(status, reason, _)| status == "False" && reason == "HostAlreadyClaimed")
    };
    until("both are refused", || refused("below").is_some() && refused("around").is_some()).await;
    let (_, _, message) = refused("below").expect("it is refused");
    assert_eq!(message, "a.b.shop.test is below a wildcard that a Route of another namespace holds");
    let (_, _, message) = refused("around").expect("it is refused");
    assert!(!message.contains("shop"), "the message reveals neither owner nor host: {message}");
    assert!(api.get("routebindings", "other", "below").is_none());

    // The Route is deleted, and its claim with it: the Routes that it blocked are placed immediately.
    api.delete("routebindings", "ns", "all");
    api.delete("routes", "ns", "all");
    let claim = api.all("nameclaims").into_iter().find(|claim| claim["spec"]["value"] == "*.shop.test");
    api.delete("nameclaims", "", claim.expect("it is claimed")["metadata"]["name"].as_str().expect("a name"));
    until("the one below is placed", || api.get("routebindings", "other", "below").is_some()).await;
    assert!(refused("around").is_some(), "www.shop.test is still there");
    running.stop().await;
}

/// Waits that exceed the test: only a requeue helps a route.
fn patient(settings: &mut Settings) {
    settings.backoff.unschedulable_first = Duration::from_secs(600);
    settings.backoff.unschedulable_longest = Duration::from_secs(600);
    settings.search = Duration::from_secs(600);
}

fn with_age(namespace: &str, name: &str, host: &str, second: u32) -> Value {
    let mut object = route(namespace, name, &json!({"host": host}));
    object["metadata"]["creationTimestamp"] = json!(format!("2025-01-01T00:00:{second:02}Z"));
    object
}

/// Returns the message of the condition `Admitted`, if it is false.
fn refusal(api: &Scene, namespace: &str, name: &str) -> Option<String> {
    let route = api.get("routes", namespace, name).expect("it is there");
    let refused = condition(&route, "Admitted").filter(|(status, ..)| status == "False");
    refused.map(|(_, _, message)| message)
}

fn is_placed(api: &Scene, namespace: &str, name: &str) -> bool {
    api.get("routebindings", namespace, name).is_some()
}

/// Deletes a Route; its host is released by the reconciler.
fn end(api: &Scene, namespace: &str, name: &str) {
    api.delete("routebindings", namespace, name);
    api.delete("routes", namespace, name);
}

#[tokio::test]
async fn an_overlap_that_only_the_api_knows_is_tried_again_and_waited_for_when_it_is_seen() {
    let api = platform(1).await;
    let mut claim = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": host_claim_name("*.shop.example")},
        "spec": {"type": "host", "value": "*.shop.example", "since": "some day",
            "holder": {"namespace": "other", "name": "all", "uid": "u"}}});
    // The scheduler cannot read it yet.
    api.put("nameclaims", claim.clone());
    // The claim has no Route, so it would be released as soon as it can be read.
    api.connection.hold(Some("PUT nameclaims"));
    let running = start_with(&api, patient);
    api.put("routes", with_age("ns", "app", "www.shop.example", 1));
    let says = |part: &str| refusal(&api, "ns", "app").is_some_and(|message| message.ends_with(part));
    until("reported", || says("www.shop.example overlaps with a host that a Route of another namespace holds")).await;
    claim["spec"]["since"] = json!("2025-01-01T00:00:00Z");
    api.put("nameclaims", claim.clone());
    until("it is known why", || says("is below a wildcard that a Route of another namespace holds")).await;
    claim["spec"]["releasedAt"] = json!("2025-01-01T00:01:00Z");
    api.put("nameclaims", claim);
    until("it is placed when that claim is released", || is_placed(&api, "ns", "app")).await;
    api.connection.hold(None);
    running.stop().await;
}

#[tokio::test]
async fn a_host_that_is_let_go_passes_those_that_cannot_have_it() {
    let api = platform(1).await;
    api.put(
        "routers",
        router(
            "shard1",
            &json!({"routeSelector": {"matchExpressions": [
        {"key": "pool", "operator": "NotIn", "values": ["nowhere"]}]}}),
        ),
    );
    for name in ["a", "b", "c"] {
        api.put("namespaces", namespace(name));
    }
    let running = start_with(&api, patient);
    api.put("routes", with_age("a", "holder", "www.shop.example", 1));
    until("the holder is placed", || is_placed(&api, "a", "holder")).await;
    for (namespace, name, second) in [("b", "old", 2), ("a", "young", 5), ("c", "younger", 6)] {
        api.put("routes", with_age(namespace, name, "www.shop.example", second));
        until("it is refused", || refusal(&api, namespace, name).is_some()).await;
    }
    let mut unschedulable = with_age("a", "nowhere", "www.shop.example", 3);
    unschedulable["metadata"]["labels"] = json!({"pool": "nowhere"});
    api.put("routes", unschedulable);
    until("no Router takes it", || {
        let route = api.get("routes", "a", "nowhere").expect("it is there");
        condition(&route, "Scheduled").is_some_and(|(status, ..)| status == "False")
    })
    .await;
    // The holder's namespace gets the wildcard above as well: a Route that waits for a host blocks no other.
    api.put("routes", with_age("a", "all", "*.shop.example", 7));
    until("the wildcard is placed", || is_placed(&api, "a", "all")).await;
    end(&api, "a", "holder");
    until("the first that can have it takes over", || is_placed(&api, "a", "young")).await;
    let message = refusal(&api, "b", "old").expect("it is rejected");
    assert_eq!(message, "www.shop.example is below a wildcard that a Route of another namespace holds");
    // Without the wildcard, the Route waits for the host itself again, and gets it before later Routes.
    end(&api, "a", "all");
    until("the condition has the current reason", || {
        refusal(&api, "b", "old").as_deref() == Some("www.shop.example is held by a Route of another namespace")
    })
    .await;
    end(&api, "a", "young");
    until("it takes over", || is_placed(&api, "b", "old")).await;
    assert!(refusal(&api, "c", "younger").is_some());
    // A Route that is offered the host and deleted in that moment also passes it on.
    api.delete("routes", "a", "nowhere");
    end(&api, "b", "old");
    until("the last takes over", || is_placed(&api, "c", "younger")).await;
    running.stop().await;
}
