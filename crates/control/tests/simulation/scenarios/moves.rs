//! Moves and drains: the routes that leave a Router, their times, and their former names.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use signpost_control::client::reflector::ObjectKey;
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::simulation::Simulation;
use signpost_control::scheduler::strategy::StrategyName;
use tokio::time::Instant;

use super::scheduling::{Running, per_router, platform, scheduled, start_both};
use super::{Scene, condition, route, router, until};
use crate::connection::Weather;

fn set_state(api: &Scene, name: &str, state: &str) {
    let mut router = api.get("routers", "", name).expect("it is there");
    router["spec"]["state"] = json!(state);
    api.put("routers", router);
}

fn ask(api: &Scene, name: &str, to: Option<&str>) {
    let mut route = api.get("routes", "ns", name).expect("it is there");
    route["metadata"]["annotations"] = to.map_or(json!({}), |to| json!({"signpost.dev/move-to": to}));
    api.put("routes", route);
}

fn spec(api: &Scene, name: &str) -> Value {
    api.get("routebindings", "ns", name).expect("it is bound")["spec"].clone()
}

fn pending(api: &Scene, name: &str) -> Option<(String, String, String)> {
    condition(&api.get("routes", "ns", name)?, "MovePending")
}

fn start_with(api: &Scene, change: impl Fn(&mut signpost_control::scheduler::Settings)) -> Running {
    start_both(api, change, |_| ())
}

/// Returns a platform whose routes are all placed.
async fn placed(
    routers: usize,
    routes: usize,
    change: impl Fn(&mut signpost_control::scheduler::Settings),
) -> (Scene, Running) {
    let api = platform(routers).await;
    for i in 0..routes {
        api.put("routes", route("ns", &format!("r{i:03}"), &json!({})));
    }
    let running = start_with(&api, change);
    until("all are scheduled", || scheduled(&api) == routes).await;
    (api, running)
}

#[tokio::test]
async fn a_route_moves_when_it_is_asked_to_and_its_name_leads_on() {
    let (api, running) = placed(2, 2, |settings| settings.former_name_retention = Duration::from_secs(3600)).await;
    let before = spec(&api, "r000");
    assert_eq!(before["router"], "shard1");
    ask(&api, "r000", Some("shard2"));
    until("it has moved", || spec(&api, "r000")["router"] == "shard2").await;
    let after = spec(&api, "r000");
    assert_eq!((&after["dns"], &after["strategy"]), (&json!("shard2.v3.example"), &json!("move")));
    assert_eq!(after["names"][0]["name"], "ns-r000.shard2.v3.example");
    assert_eq!(after["names"][1], before["names"][1], "the alias stays");
    assert_eq!(after["formerNames"][0]["name"], "ns-r000.shard1.v3.example");
    assert_eq!(after["formerNames"][0]["router"], "shard1");
    assert_eq!(after["explanation"]["summary"], "moved from shard1 to shard2, as requested by signpost.dev/move-to");
    let route = api.get("routes", "ns", "r000").expect("it is there");
    assert_eq!((&route["status"]["router"], &route["metadata"]["annotations"]), (&json!("shard2"), &Value::Null));
    assert_eq!(spec(&api, "r001")["formerNames"], Value::Null, "no move of the other one was requested");
    until("an event reports it", || api.count("events", |event| event["reason"] == "Moved") > 0).await;

    // Back again: no former name on the current Router, but one on the former one.
    ask(&api, "r000", Some("shard1"));
    until("it is back", || spec(&api, "r000")["router"] == "shard1").await;
    let former_names = spec(&api, "r000")["formerNames"].clone();
    assert_eq!(former_names.as_array().map(Vec::len), Some(1));
    assert_eq!(former_names[0]["name"], "ns-r000.shard2.v3.example");
    // The two moves were two writes of bindings, and nothing moves by itself.
    assert_eq!(api.connection.requests("PUT routebindings"), 2);
    // Resolvers can cache that its name on shard1 points to shard2, so the opposite direction does not begin immediately.
    let time = |value: &Value| value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok()).expect("a time");
    let pause = time(&former_names[0]["from"]).duration_since(time(&former_names[0]["since"]));
    assert_eq!(pause, jiff::SignedDuration::from_secs(40));
    until("it begins", || spec(&api, "r000")["formerNames"][0]["from"].is_null()).await;
    assert_eq!(spec(&api, "r000")["formerNames"].as_array().map(Vec::len), Some(1));
    assert_eq!(
        api.get("routes", "ns", "r000").expect("it is there")["status"]["formerNames"],
        spec(&api, "r000")["formerNames"]
    );
    running.stop().await;
}

/// Routes with one host are on one Router: the others follow the first one, in a move and in a drain, and none of them moves alone.
#[tokio::test]
async fn routes_with_one_host_move_together() {
    let api = platform(1).await;
    let running = start_with(&api, |settings| settings.drain_rate = 1000);
    let put = |name: &str, path: &str| {
        api.put("routes", route("ns", name, &json!({"host": "www.shop.example", "path": path})))
    };
    put("web", "/");
    until("the first is scheduled", || scheduled(&api) == 1).await;
    put("api", "/api");
    put("old", "/old");
    until("all are scheduled", || scheduled(&api) == 3).await;
    api.put("routers", router("shard2", &json!({})));
    api.put("routers", router("shard3", &json!({"state": "cordoned"})));
    let all_on = |router: &str| ["web", "api", "old"].iter().all(|name| spec(&api, name)["router"] == router);
    assert!(all_on("shard1"));

    ask(&api, "api", Some("shard2"));
    let message = "move pending: Router shard2, requested by signpost.dev/move-to, is not the Router of Route web, which decides for \
                   all Routes with the host";
    until("it does not move alone", || pending(&api, "api").is_some_and(|(_, _, said)| said == message)).await;
    ask(&api, "api", None);
    ask(&api, "web", Some("shard2"));
    until("all are on shard2", || all_on("shard2")).await;
    let summary = spec(&api, "old")["explanation"]["summary"].as_str().unwrap_or_default().to_owned();
    assert!(summary.starts_with("moved from shard1 with Route web, which has the same host: "), "{summary}");

    // A drain moves the first one, at any turn.
    set_state(&api, "shard2", "draining");
    until("all are on shard1", || all_on("shard1")).await;
    until("none has a pending move", || {
        ["web", "api", "old"].iter().all(|name| pending(&api, name).is_none_or(|(status, ..)| status == "False"))
    })
    .await;

    // A Route that is new is placed with the others, or waits.
    set_state(&api, "shard2", "active");
    put("new", "/new");
    until("it is with the others", || scheduled(&api) == 4).await;
    assert_eq!(spec(&api, "new")["router"], "shard1");
    set_state(&api, "shard1", "cordoned");
    // Routers and Routes are watched separately.
    let is_seen = || {
        let router = api.get("routers", "", "shard1").expect("it is there");
        condition(&router, "Ready").is_some_and(|(_, reason, _)| reason == "Cordoned")
    };
    until("the cordon is seen", is_seen).await;
    put("late", "/late");
    let scheduled_late = || {
        let route = api.get("routes", "ns", "late").expect("it is there");
        condition(&route, "Scheduled").map(|(.., message)| message).unwrap_or_default()
    };
    let message = "0/3 Routers are available: shard1 is cordoned; shard2 is not the Router of Route web, which decides for all Routes \
                   with the host; shard3 is cordoned";
    until("it waits", || scheduled_late() == message).await;
    ask(&api, "web", Some("shard2"));
    until("it follows", || scheduled(&api) == 5 && spec(&api, "late")["router"] == "shard2").await;
    until("all are on shard2", || all_on("shard2")).await;
    running.stop().await;
}

#[tokio::test]
async fn a_router_made_again_with_another_zone_gives_the_name_anew_and_keeps_no_former_name() {
    let (api, running) = placed(1, 2, |settings| settings.former_name_retention = Duration::from_secs(3600)).await;
    assert_eq!(spec(&api, "r000")["dns"], "shard1.v3.example");
    api.delete("routers", "", "shard1");
    api.put("routers", router("shard1", &json!({"dns": "new1.v3.example"})));
    api.put("routers", router("shard2", &json!({})));
    // To the Router of the same name, and to another one: the former zone has no owner, and no former name points into it.
    for (name, to, dns) in [("r000", "shard1", "new1.v3.example"), ("r001", "shard2", "shard2.v3.example")] {
        ask(&api, name, Some(to));
        until("it has a name again", || spec(&api, name)["dns"] == dns).await;
        let after = spec(&api, name);
        assert_eq!((&after["router"], &after["formerNames"]), (&json!(to), &Value::Null));
        assert_eq!(after["names"][0]["name"], format!("ns-{name}.{dns}"));
    }
    running.stop().await;
}

/// A request for a Router that does not exist yet is executed when the Router is created.
#[tokio::test]
async fn a_route_waits_for_its_router_to_be_made_again() {
    let (api, running) = placed(1, 1, |_| ()).await;
    api.put("routers", router("shard2", &json!({})));
    api.delete("routers", "", "shard1");
    ask(&api, "r000", Some("shard1"));
    // The scheduler has received it when it has placed the next one.
    api.put("routes", route("ns", "later", &json!({})));
    until("the later one is placed", || scheduled(&api) == 2).await;
    api.put("routers", router("shard1", &json!({"dns": "new1.v3.example"})));
    until("it has a name again", || spec(&api, "r000")["dns"] == "new1.v3.example").await;
    running.stop().await;
}

#[tokio::test]
async fn the_end_of_very_many_former_names_keeps_no_new_route_waiting() {
    let (api, running) = placed(2, 200, |_| ()).await;
    running.stop().await;
    for mut binding in api.all("routebindings") {
        let name = format!("{}.gone.v3.example", binding["spec"]["label"].as_str().expect("it has one"));
        let over = "2025-01-01T00:00:00Z";
        binding["spec"]["formerNames"] = json!([{"name": name, "router": "gone", "since": over, "until": over}]);
        api.put("routebindings", binding);
    }
    // The moves run concurrently, few at a time: those in flight take no capacity from new routes, even without responses.
    api.connection.hold(Some("PUT routebindings"));
    let left = || api.count("routebindings", |one| one["spec"]["formerNames"].is_array());
    let running = start_with(&api, |settings| settings.concurrency = 4);
    until("as many are to end as may at a time", || api.connection.requests("PUT routebindings") >= 4).await;
    for i in 0..8 {
        api.put("routes", route("ns", &format!("new{i}"), &json!({})));
    }
    until("the new ones are placed", || scheduled(&api) == 208).await;
    assert_eq!(left(), 200, "they were placed while all ends were pending");
    api.connection.hold(None);
    until("all have ended", || left() == 0).await;
    running.stop().await;
}

#[tokio::test]
async fn an_unschedulable_route_leaves_when_its_own_labels_change() {
    let (api, running) = placed(1, 2, |_| ()).await;
    api.put("routers", router("shard2", &json!({"routeSelector": {"matchLabels": {"tier": "gold"}}})));
    set_state(&api, "shard1", "draining");
    let stuck = |name: &str| pending(&api, name).is_some_and(|(status, ..)| status == "True");
    until("both are stuck", || stuck("r000") && stuck("r001")).await;
    let mut labelled = api.get("routes", "ns", "r001").expect("it is there");
    labelled["metadata"]["labels"] = json!({"tier": "gold"});
    api.put("routes", labelled);
    until("the one leaves", || spec(&api, "r001")["router"] == "shard2").await;
    assert!(stuck("r000") && !stuck("r001"));
    running.stop().await;
}

#[tokio::test]
async fn what_is_said_of_a_drain_that_was_called_off_in_that_moment_is_taken_back() {
    let (api, running) = placed(1, 8, |settings| settings.drain_rate = 10_000).await;
    // The drain is cancelled while its routes get the condition that there is no target.
    api.set_weather(Weather { lag_longest: 300, ..Weather::default() });
    set_state(&api, "shard1", "draining");
    until("patches are being sent", || api.connection.requests("PATCH routes") >= 8).await;
    set_state(&api, "shard1", "active");
    // Not all may have the condition: conditions of other loops are written, too.
    let says = |i, what: &str| pending(&api, &format!("r{i:03}")).is_some_and(|(status, ..)| status == what);
    until("it is taken back from one", || (0..8).any(|i| says(i, "False"))).await;
    // All pending messages have arrived after this time.
    tokio::time::sleep(Duration::from_millis(700)).await;
    until("the condition is reverted on all of them", || !(0..8).any(|i| says(i, "True"))).await;
    running.stop().await;
}

#[tokio::test]
async fn a_route_that_cannot_move_says_why_and_moves_when_it_can() {
    let (api, running) = placed(1, 1, |_| ()).await;
    api.put("routers", router("shard2", &json!({"state": "cordoned"})));
    ask(&api, "r000", Some("shard2"));
    until("the condition has a reason", || pending(&api, "r000").is_some()).await;
    let (status, reason, message) = pending(&api, "r000").expect("a condition");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "Cordoned"));
    assert_eq!(message, "move pending: Router shard2, requested by signpost.dev/move-to, is cordoned");
    // The request is withdrawn.
    ask(&api, "r000", None);
    until("it is reported", || {
        pending(&api, "r000").is_some_and(|(status, reason, _)| status == "False" && reason == "Withdrawn")
    })
    .await;
    // The same again; the Router is deleted and re-created.
    ask(&api, "r000", Some("shard2"));
    until("the condition has a reason", || pending(&api, "r000").is_some_and(|(status, ..)| status == "True")).await;
    api.delete("routers", "", "shard2");
    until("it reports the deletion", || pending(&api, "r000").is_some_and(|(_, reason, _)| reason == "RouterNotFound"))
        .await;
    api.put("routers", router("shard2", &json!({})));
    until("it has moved", || spec(&api, "r000")["router"] == "shard2").await;
    set_state(&api, "shard1", "cordoned");
    // Routes and Routers arrive on two watches: a later placement shows that the change has arrived.
    api.put("routes", route("ns", "later", &json!({})));
    until("another is placed", || api.get("routebindings", "ns", "later").is_some()).await;
    ask(&api, "r000", Some("shard1"));
    until("the condition has a reason", || pending(&api, "r000").is_some_and(|(status, ..)| status == "True")).await;
    set_state(&api, "shard1", "active");
    until("it moves at once", || spec(&api, "r000")["router"] == "shard1").await;
    assert_eq!(
        pending(&api, "r000").map(|(status, reason, _)| (status, reason)),
        Some(("False".into(), "Moved".into()))
    );
    running.stop().await;
}

#[tokio::test]
async fn a_draining_router_is_emptied_at_the_pace_that_is_set() {
    let (api, running) = placed(3, 60, |settings| settings.drain_rate = 50).await;
    let begun = std::time::Instant::now();
    set_state(&api, "shard1", "draining");
    until("it is empty", || !per_router(&api).contains_key("shard1")).await;
    // Twenty at 50 per second, the first immediately, and a tenth of a second to catch up.
    assert!(begun.elapsed() >= Duration::from_millis(280), "{:?}", begun.elapsed());
    assert_eq!(per_router(&api), [("shard2".to_owned(), 30), ("shard3".to_owned(), 30)].into());
    let moved: Vec<Value> =
        api.all("routebindings").into_iter().filter(|one| one["spec"]["formerNames"].is_array()).collect();
    assert_eq!(moved.len(), 20, "those of the other Routers stay");
    let summary = moved[0]["spec"]["explanation"]["summary"].as_str().unwrap_or_default().to_owned();
    assert!(summary.starts_with("moved from shard1, which is draining: strategy round-robin selected "), "{summary}");
    // What has left does not come back.
    set_state(&api, "shard1", "active");
    api.put("routes", route("ns", "new", &json!({})));
    until("the new one is placed", || scheduled(&api) == 61).await;
    let moved = api.all("routebindings").into_iter().filter(|one| one["spec"]["formerNames"].is_array());
    assert_eq!(moved.filter(|one| one["spec"]["router"] != "shard1").count(), 20);
    running.stop().await;
}

#[tokio::test]
async fn unschedulable_routes_stay_and_leave_when_there_is_room() {
    let (api, running) = placed(1, 4, |settings| settings.drain_rate = 1000).await;
    api.put("routers", router("shard2", &json!({"capacity": {"hard": 2}})));
    set_state(&api, "shard1", "draining");
    let stuck = || {
        let said = (0..4).filter_map(|i| pending(&api, &format!("r{i:03}")));
        said.filter(|(status, reason, _)| status == "True" && reason == "Unschedulable").count()
    };
    until("two have moved and two report a reason", || {
        per_router(&api) == [("shard1".to_owned(), 2), ("shard2".to_owned(), 2)].into() && stuck() == 2
    })
    .await;
    let (_, _, message) = pending(&api, "r003").expect("a condition");
    assert_eq!(
        message,
        "move pending: 0/2 Routers are available: shard1 is draining; shard2 has reached its hard capacity"
    );
    api.put("routers", router("shard3", &json!({})));
    until("they leave for the new one", || !per_router(&api).contains_key("shard1") && stuck() == 0).await;

    // A cancelled drain leaves the rest on its Router, and withdraws the conditions.
    for (name, state) in [("shard1", "cordoned"), ("shard2", "cordoned"), ("shard3", "draining")] {
        set_state(&api, name, state);
    }
    until("two are stuck", || stuck() == 2).await;
    set_state(&api, "shard3", "active");
    until("it is taken back", || stuck() == 0).await;
    assert_eq!(per_router(&api).get("shard3"), Some(&2));
    running.stop().await;
}

#[tokio::test]
async fn a_former_name_ends_when_its_time_is_over() {
    let (api, running) = placed(2, 1, |settings| settings.former_name_retention = Duration::from_secs(60)).await;
    ask(&api, "r000", Some("shard2"));
    until("it has moved", || spec(&api, "r000")["router"] == "shard2").await;
    assert_eq!(spec(&api, "r000")["formerNames"][0]["name"], "ns-r000.shard1.v3.example");
    until("it is gone", || spec(&api, "r000")["formerNames"].is_null()).await;
    assert_eq!(api.get("routes", "ns", "r000").expect("it is there")["status"]["formerNames"], Value::Null);
    running.stop().await;
}

/// Returns a simulation of the platform in the API.
fn simulation(api: &Scene) -> Simulation {
    fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).expect("an object of the API")
    }
    let mut simulation = Simulation::new("v3.example", Instant::now());
    api.all("routers").into_iter().for_each(|one| simulation.set_router(read(one)));
    api.all("namespaces").into_iter().for_each(|one| simulation.set_namespace(read(one)));
    api.all("routes").into_iter().for_each(|one| simulation.set_route(read(one)));
    api.all("routebindings").into_iter().for_each(|one| simulation.set_binding(read(one)));
    simulation
}

fn where_all_are(api: &Scene) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    api.all("routebindings").iter().map(|one| (text(&one["metadata"]["name"]), text(&one["spec"]["router"]))).collect()
}

#[tokio::test]
async fn the_scheduler_does_what_was_foretold() {
    for strategy in StrategyName::ALL {
        let (api, running) = placed(2, 40, |settings| {
            settings.chooser = StrategyConfig::Strategy(strategy);
            settings.drain_rate = 10_000;
            // One at a time: two at once can be confirmed in another order than their decisions.
            settings.concurrency = 1;
        })
        .await;
        api.put("routers", router("shard3", &json!({"weight": 3})));
        api.put("routers", router("shard4", &json!({"capacity": {"hard": 5}})));
        let mut foretold = simulation(&api);
        foretold.edit_router("shard1", |router| router.state = signpost_types::v1alpha1::router::RouterState::Draining);
        let mut expected = where_all_are(&api);
        for step in foretold.drain(strategy.strategy()) {
            expected.insert(step.key.name, step.outcome.expect("there is room").router);
        }
        set_state(&api, "shard1", "draining");
        until("it is empty", || !per_router(&api).contains_key("shard1")).await;
        assert_eq!(where_all_are(&api), expected, "{strategy}");

        let mut foretold = simulation(&api);
        let key = ObjectKey::namespaced("ns", "r000");
        let step = foretold.move_route(&key, "shard1").expect("it is there");
        assert_eq!(step[0].outcome.as_ref().expect_err("it drains").reason, "Draining", "{strategy}");
        running.stop().await;
    }
}
