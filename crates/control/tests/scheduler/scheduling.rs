//! The scheduler: what becomes of routes when everything is well, and when much is not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use signpost_api::names::host_claim_name;
use signpost_control::client::lease::{Leadership, Term};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::metrics::Metrics;
use signpost_control::scheduler::queue::BackoffSettings;
use signpost_control::scheduler::{Scheduler, Settings};
use signpost_control::world::{self, World};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fake_api::{FakeApi, Faults};
use crate::placement;
use crate::{condition, namespace, route, router, until};

pub struct Running {
    pub leadership: watch::Sender<Leadership>,
    pub stop: CancellationToken,
    pub task: JoinHandle<()>,
}

impl Running {
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends in order");
    }
}

/// A scheduler with the reconciler beside it, as a process of the platform has both, that leads for ever, or until told otherwise.
pub fn start(api: &FakeApi) -> Running {
    start_with(api, |_| ())
}

pub fn start_with(api: &FakeApi, change: impl Fn(&mut Settings)) -> Running {
    start_both(api, change, |_| ())
}

pub fn start_both(api: &FakeApi, change: impl Fn(&mut Settings), keep: impl Fn(&mut reconcile::Settings)) -> Running {
    start_switchable(api, change, keep).0
}

/// The same, and what changes the strategy.
pub fn start_switchable(
    api: &FakeApi,
    change: impl Fn(&mut Settings),
    keep: impl Fn(&mut reconcile::Settings),
) -> (Running, watch::Sender<StrategyConfig>) {
    let keeping = placement::settings(keep);
    let world = placement::world(api, &keeping);
    let scheduler = scheduler(api, &world, change);
    let reconciler = Reconciler::new(api.client(), &world, keeping, reconcile::Metrics::default());
    let reconciler = reconciler.with_scheduler(&scheduler);
    let switch = scheduler.switch();
    let (leadership, follow) = watch::channel(Leadership::Leader(Term::unlimited()));
    let stop = CancellationToken::new();
    let both = (scheduler.run(follow.clone(), stop.clone()), reconciler.run(follow, stop.clone()));
    let task = tokio::spawn(async {
        tokio::join!(both.0, both.1);
    });
    (Running { leadership, stop, task }, switch)
}

/// A scheduler without a reconciler beside it, so that all writes are its own.
fn start_alone(api: &FakeApi) -> Running {
    let world = World::new(&api.client(), world::Settings::of_domain("v3.example"));
    let (leadership, follow) = watch::channel(Leadership::Leader(Term::unlimited()));
    let stop = CancellationToken::new();
    let task = tokio::spawn(scheduler(api, &world, |_| ()).run(follow, stop.clone()));
    Running { leadership, stop, task }
}

fn scheduler(api: &FakeApi, world: &World, change: impl Fn(&mut Settings)) -> Scheduler {
    let mut settings = Settings::new("v3.example");
    settings.backoff = BackoffSettings {
        failed_first: Duration::from_millis(5),
        failed_longest: Duration::from_millis(200),
        ..BackoffSettings::default()
    };
    change(&mut settings);
    Scheduler::new(api.client(), world, settings, Metrics::default())
}

pub fn platform(seed: u64, routers: usize) -> FakeApi {
    let api = FakeApi::new(seed);
    api.put("namespaces", namespace("ns"));
    for i in 1..=routers {
        api.put("routers", router(&format!("shard{i}"), &json!({})));
    }
    api
}

pub fn scheduled(api: &FakeApi) -> usize {
    api.all("routes").iter().filter(|route| route["status"]["phase"] == "scheduled").count()
}

pub fn per_router(api: &FakeApi) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for binding in api.all("routebindings") {
        *counts.entry(binding["spec"]["router"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    counts
}

/// What must hold whatever happened: each Route bound once, no name twice, each name claimed by its Route.
pub fn check_all(api: &FakeApi) {
    let bound = api.bound();
    let distinct: BTreeSet<&String> = bound.iter().collect();
    assert_eq!(bound.len(), distinct.len(), "a Route was bound twice");
    let uids: BTreeMap<String, Value> = api
        .all("routes")
        .into_iter()
        .map(|route| (route["metadata"]["uid"].as_str().unwrap_or_default().to_owned(), route))
        .collect();
    let mut names = BTreeSet::new();
    for binding in api.all("routebindings") {
        let spec = &binding["spec"];
        let route = &uids[spec["routeUID"].as_str().unwrap_or_default()];
        assert_eq!(route["status"]["router"], spec["router"]);
        for name in spec["names"].as_array().expect("it has names") {
            let name = name["name"].as_str().unwrap_or_default().to_owned();
            assert!(name.len() <= 253 && name.split('.').all(|label| label.len() <= 63), "{name}");
            assert!(names.insert(name.clone()), "{name} was given twice");
        }
        let label = spec["label"].as_str().unwrap_or_default();
        let claim = api.get("nameclaims", "", label).expect("its label is claimed");
        assert_eq!(claim["spec"]["holder"]["uid"], spec["routeUID"], "{label}");
    }
}

#[tokio::test]
async fn our_own_server_is_sent_one_write_a_route() {
    let api = platform(1, 3).our_own();
    // The label of one is another route's: it is found out by the way of two writes, and gets the next one.
    let claim = json!({"type": "label", "value": "ns-taken", "since": "2025-01-01T00:00:00Z",
        "holder": {"namespace": "elsewhere", "name": "other", "uid": "u"}});
    api.put(
        "nameclaims",
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim",
        "metadata": {"name": "ns-taken"}, "spec": claim}),
    );
    for i in 0..100 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    api.put("routes", route("ns", "taken", &json!({})));
    let running = start_alone(&api);
    until("all are scheduled", || scheduled(&api) == 101).await;
    let label = api.get("routebindings", "ns", "taken").expect("it is bound")["spec"]["label"].clone();
    assert_ne!(label, "ns-taken");
    assert_eq!(api.get("nameclaims", "", "ns-taken").expect("it is there")["spec"]["holder"]["namespace"], "elsewhere");
    check_all(&api);
    for (request, count) in [("POST routebindings", 102), ("POST nameclaims", 2), ("PATCH routes", 0)] {
        assert_eq!(api.requests(request), count, "{request}");
    }
    running.stop().await;
}

#[tokio::test]
async fn routes_are_placed_in_turn_by_two_writes_each() {
    let api = platform(1, 3);
    for i in 0..300 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    let running = start_alone(&api);
    until("all are scheduled", || scheduled(&api) == 300).await;
    assert_eq!(per_router(&api), [1, 2, 3].map(|i| (format!("shard{i}"), 100)).into());
    check_all(&api);
    for (request, count) in
        [("POST routebindings", 300), ("POST nameclaims", 300), ("PATCH routes", 0), ("GET nameclaims", 1)]
    {
        assert_eq!(api.requests(request), count, "{request}");
    }
    let binding = api.get("routebindings", "ns", "r7").expect("it is bound");
    let explanation = &binding["spec"]["explanation"];
    assert_eq!((&explanation["considered"], &explanation["eligible"]), (&json!(3), &json!(3)), "{explanation}");
    assert_eq!(binding["spec"]["names"][1]["name"], "ns-r7.routes.v3.example");
    until("events are recorded", || !api.all("events").is_empty()).await;
    running.stop().await;

    // A restart goes on where the circle was, and moves nothing.
    api.put("routes", route("ns", "one", &json!({})));
    api.put("routes", route("ns", "two", &json!({})));
    api.put("routes", route("ns", "three", &json!({})));
    let running = start(&api);
    until("all are scheduled", || scheduled(&api) == 303).await;
    assert_eq!(per_router(&api), [1, 2, 3].map(|i| (format!("shard{i}"), 101)).into());
    running.stop().await;
}

#[tokio::test]
async fn a_route_without_a_router_says_why_and_is_placed_when_one_comes() {
    let api = platform(1, 0);
    api.put("routes", route("ns", "app", &json!({})));
    let running = start(&api);
    let said = |reason: &str| {
        let route = api.get("routes", "ns", "app").expect("it is there");
        condition(&route, "Scheduled").is_some_and(|(status, found, _)| status == "False" && found == reason)
    };
    until("NoRouter is said", || said("NoRouter")).await;
    api.put("routers", router("shard1", &json!({"state": "cordoned"})));
    api.put("routers", router("shard2", &json!({"routeSelector": {"matchLabels": {"tier": "gold"}}})));
    let said_of_both = || {
        let route = api.get("routes", "ns", "app").expect("it is there");
        condition(&route, "Scheduled").is_some_and(|(_, _, message)| message.contains("none of 2"))
    };
    until("both are told of", || said("Unschedulable") && said_of_both()).await;
    let route = api.get("routes", "ns", "app").expect("it is there");
    let (_, _, message) = condition(&route, "Scheduled").expect("it is said");
    assert_eq!(
        message,
        "none of 2 Routers can take the route: shard1 is cordoned; shard2 selects other routes by their labels, and this \
         one does not match tier=gold (spec.routeSelector)"
    );
    assert_eq!(condition(&route, "Admitted").map(|(status, ..)| status).as_deref(), Some("True"));
    let patches = api.requests("PATCH routes");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(api.requests("PATCH routes"), patches, "what was said is not said again");
    api.put("routers", router("shard1", &json!({"state": "active"})));
    until("it is scheduled at once", || scheduled(&api) == 1).await;
    check_all(&api);
    running.stop().await;
}

#[tokio::test]
async fn routers_that_come_while_very_many_routes_wait_get_each_theirs() {
    // More than are looked at in a row, and than say anew why they wait at each change.
    const ROUTES: usize = 1_500;
    let api = platform(1, 0);
    let tiers = ["gold", "silver", "lead"];
    let of_tier = |number: usize, tier: &str| {
        let mut route = route("ns", &format!("r{number:04}"), &json!({}));
        route["metadata"]["labels"] = json!({"tier": tier});
        route
    };
    let taking = |tier: &str| router(tier, &json!({"routeSelector": {"matchLabels": {"tier": tier}}}));
    for number in 0..ROUTES {
        api.put("routes", of_tier(number, tiers[number % 3]));
    }
    // None is looked at again by itself before the test is over.
    let long = Duration::from_secs(3_600);
    let running = start_with(&api, |settings| {
        settings.backoff =
            BackoffSettings { unschedulable_first: long, unschedulable_longest: long, ..settings.backoff.clone() };
        settings.search = long;
    });
    until("all wait", || api.all("routes").iter().all(|route| condition(route, "Scheduled").is_some())).await;
    api.put("routers", taking("gold"));
    api.put("routers", taking("silver"));
    // Routes change, come and go while these are searched for.
    api.put("routes", of_tier(ROUTES - 1, "gold"));
    api.put("routes", of_tier(ROUTES, "silver"));
    api.delete("routes", "ns", "r0000");
    until("the last that was found is placed", || scheduled(&api) == 2 * ROUTES / 3 + 1).await;
    assert_eq!(per_router(&api), [("gold".to_owned(), ROUTES / 3), ("silver".to_owned(), ROUTES / 3 + 1)].into());
    let theirs = |route: &Value| {
        let (tier, router) = (&route["metadata"]["labels"]["tier"], &route["status"]["router"]);
        if tier == "lead" { router.is_null() } else { tier == router }
    };
    assert!(api.all("routes").iter().all(theirs));
    api.put("routers", taking("lead"));
    until("the others are placed", || scheduled(&api) == ROUTES).await;
    check_all(&api);
    running.stop().await;
}

#[tokio::test]
async fn a_namespace_that_gets_the_label_wakes_its_routes() {
    let api = platform(1, 0);
    api.put("routers", router("shard1", &json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})));
    api.put("routes", route("ns", "app", &json!({})));
    let running = start(&api);
    until("it is looked at", || {
        condition(&api.get("routes", "ns", "app").expect("it is there"), "Scheduled").is_some()
    })
    .await;
    let mut labelled = namespace("ns");
    labelled["metadata"]["labels"] = json!({"team": "a"});
    api.put("namespaces", labelled);
    until("it is scheduled", || scheduled(&api) == 1).await;
    running.stop().await;
}

#[tokio::test]
async fn capacity_is_kept_under_concurrency_and_room_is_used() {
    let api = platform(1, 0);
    for i in 1..=3 {
        api.put("routers", router(&format!("shard{i}"), &json!({"capacity": {"hard": 20}})));
    }
    for i in 0..100 {
        api.put("routes", route("ns", &format!("r{i:03}"), &json!({})));
    }
    let running = start(&api);
    let told = || {
        let routes = api.all("routes");
        routes
            .iter()
            .filter(|route| condition(route, "Scheduled").is_some_and(|(status, ..)| status == "False"))
            .count()
    };
    until("sixty are placed and forty say why not", || scheduled(&api) == 60 && told() == 40).await;
    assert_eq!(per_router(&api), [1, 2, 3].map(|i| (format!("shard{i}"), 20)).into());
    // A route that goes makes room for one that waits.
    let gone = api.all("routebindings")[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    api.delete("routebindings", "ns", &gone);
    api.delete("routes", "ns", &gone);
    until("the room is used", || scheduled(&api) == 60).await;
    assert_eq!(per_router(&api).values().sum::<usize>(), 60);
    running.stop().await;
}

#[tokio::test]
async fn a_namespace_has_no_more_routes_placed_than_its_quota() {
    let api = platform(1, 2);
    let with_quota = |quota: &str| {
        let mut namespace = namespace("ns");
        namespace["metadata"]["annotations"] = json!({"signpost.dev/route-quota": quota});
        namespace
    };
    api.put("namespaces", with_quota("10"));
    api.put("namespaces", namespace("free"));
    for i in 0..30 {
        api.put("routes", route("ns", &format!("r{i:02}"), &json!({})));
    }
    api.put("routes", route("free", "r", &json!({})));
    let running = start(&api);
    let told = |reason: &str, part: &str| {
        let says = |route: &&Value| {
            condition(route, "Scheduled")
                .is_some_and(|(status, found, message)| status == "False" && found == reason && message.contains(part))
        };
        api.all("routes").iter().filter(says).count()
    };
    let placed = |namespace: &str| {
        let in_namespace = |binding: &&Value| binding["metadata"]["namespace"] == namespace;
        api.all("routebindings").iter().filter(in_namespace).count()
    };
    until("ten are placed and twenty say why not", || placed("ns") == 10 && told("QuotaExceeded", "allows 10") == 20)
        .await;
    until("the other namespace has no quota", || placed("free") == 1).await;
    // One that goes makes room for one.
    let gone = api.all("routebindings").into_iter().find(|binding| binding["metadata"]["namespace"] == "ns");
    let gone = gone.expect("ten are placed")["metadata"].clone();
    let name = gone["name"].as_str().expect("has one");
    api.delete("routebindings", "ns", name);
    api.delete("routes", "ns", name);
    until("the room is used", || placed("ns") == 10 && api.get("routebindings", "ns", name).is_none()).await;
    // A quota that grows lets as many more in; one that shrinks takes nobody's Router away.
    api.put("namespaces", with_quota("15"));
    until("five more are placed", || placed("ns") == 15).await;
    api.put("namespaces", with_quota("3"));
    until("they say so", || told("QuotaExceeded", "has 15 routes with a Router, and its annotation") >= 14).await;
    assert_eq!(placed("ns"), 15);
    api.put("namespaces", with_quota("three"));
    until("it cannot be read", || told("InvalidQuota", "\"three\"") >= 14).await;
    api.put("namespaces", namespace("ns"));
    until("without it all are placed", || api.all("routes").len() == scheduled(&api)).await;
    check_all(&api);
    running.stop().await;
}

#[tokio::test]
async fn a_host_has_one_route_and_the_oldest_of_those_that_wait_takes_over() {
    let api = platform(1, 2);
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
    check_all(&api);
    running.stop().await;
}

#[tokio::test]
async fn a_wildcard_that_is_let_go_goes_to_the_oldest_of_those_that_it_kept_out() {
    for (oldest, host) in [("other", "*.shop.example"), ("third", "www.shop.example")] {
        let api = platform(1, 2);
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
        // One wants the very host, the other one below it.
        put("other", "*.shop.example", if oldest == "other" { 2 } else { 3 });
        put("third", "www.shop.example", if oldest == "third" { 2 } else { 3 });
        let refused = |namespace: &str| {
            let route = api.get("routes", namespace, "app").expect("it is there");
            condition(&route, "Admitted").is_some_and(|(status, ..)| status == "False")
        };
        until("both are kept out", || refused("other") && refused("third")).await;
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
    let api = platform(1, 2);
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

/// A Router that is gone keeps no host, and is named by nobody as why it waits: whether it is seen to go, or found to be gone when
/// all are listed anew; and however many routes wait, of which those that it cannot help are left alone then.
#[tokio::test]
async fn a_router_that_goes_wakes_whom_it_kept_out() {
    for (others, unseen) in [(3, false), (3, true), (1_100, false)] {
        let api = platform(1, 1);
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
            api.set_down(true);
            api.delete("routers", "", "other");
            api.forget_history();
            api.set_down(false);
        } else {
            api.delete("routers", "", "other");
        }
        until("its host is admitted", || scheduled(&api) == 1).await;
        if others <= 1_000 {
            until("nobody names it", || gold("none of 1 Router can") == others).await;
        } else {
            assert_eq!(gold("other is cordoned"), others, "at their next look");
        }
        check_all(&api);
        running.stop().await;
    }
}

#[tokio::test]
async fn colliding_and_quarantined_names() {
    let api = platform(1, 1);
    for name in ["foo", "foo-bar"] {
        api.put("namespaces", namespace(name));
    }
    let quarantined = |label: &str, namespace: &str, name: &str| {
        json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": label},
            "spec": {
                "type": "label", "value": label, "since": "2025-01-01T00:00:00Z",
                "holder": {"namespace": namespace, "name": name, "uid": "of-old"},
                "releasedAt": "2025-01-02T00:00:00Z", "quarantineUntil": "2999-01-01T00:00:00Z",
            },
        })
    };
    api.put("nameclaims", quarantined("ns-mine", "ns", "mine"));
    api.put("nameclaims", quarantined("ns-theirs", "elsewhere", "theirs"));
    for (namespace, name) in [("foo", "bar-baz"), ("foo-bar", "baz"), ("ns", "mine"), ("ns", "theirs")] {
        api.put("routes", route(namespace, name, &json!({})));
    }
    api.put("routes", route("ns", &"long.".repeat(30)[..149], &json!({})));
    let running = start(&api);
    until("all are scheduled", || scheduled(&api) == 5).await;
    check_all(&api);
    let label = |namespace: &str, name: &str| {
        api.get("routebindings", namespace, name).expect("it is bound")["spec"]["label"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(label("ns", "mine"), "ns-mine", "it comes back to the same namespace and name");
    assert!(label("ns", "theirs").starts_with("ns-theirs-"), "it does not go to another");
    let pair = [label("foo", "bar-baz"), label("foo-bar", "baz")];
    assert!(pair.contains(&"foo-bar-baz".to_owned()) && pair[0] != pair[1], "{pair:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_namespace_with_many_names_in_quarantine_gets_no_new_one() {
    for our_own in [false, true] {
        let api = platform(1, 1);
        let api = if our_own { api.our_own() } else { api };
        api.put("namespaces", namespace("other"));
        let claim = |label: &str, name: &str, is_released: bool| {
            let mut spec = json!({"type": "label", "value": label, "since": "2025-01-01T00:00:00Z",
                "holder": {"namespace": "ns", "name": name, "uid": format!("of-{name}")}});
            if is_released {
                spec["releasedAt"] = json!("2025-01-02T00:00:00Z");
                spec["quarantineUntil"] = json!("2999-01-01T00:00:00Z");
            }
            json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": label}, "spec": spec})
        };
        for number in 1..=3 {
            api.put("nameclaims", claim(&format!("ns-old{number}"), &format!("old{number}"), true));
        }
        api.put("nameclaims", claim("ns-placed", "placed", false));
        let running = start_with(&api, |settings| settings.quarantined_max = 2);
        // Neither an old name, nor one that was never let go, is a new one; and another namespace's are its own affair.
        api.put("routes", route("ns", "old1", &json!({})));
        until("its label comes back", || scheduled(&api) == 1).await;
        for (namespace, name) in [("ns", "new"), ("ns", "placed"), ("other", "new")] {
            api.put("routes", route(namespace, name, &json!({"host": format!("{name}.{namespace}.example")})));
        }
        until("those that need no new one of the namespace are placed", || scheduled(&api) == 3).await;
        let why = || condition(&api.get("routes", "ns", "new").expect("it is there"), "Scheduled");
        until("the new one is told why it waits", || {
            why().is_some_and(|(status, reason, message)| {
                status == "False" && reason == "NamesInQuarantine" && message.starts_with("2 labels of former routes")
            })
        })
        .await;
        assert!(api.get("nameclaims", "", "ns-new").is_none(), "it holds no name");
        let hosts = api.all("nameclaims").into_iter().filter(|claim| claim["spec"]["value"] == "new.ns.example");
        assert_eq!(hosts.count(), 0, "nor a host that it could not use");
        // One is free: it goes on at once.
        api.delete("nameclaims", "", "ns-old2");
        until("it is placed", || scheduled(&api) == 4).await;
        check_all(&api);
        running.stop().await;
    }
}

#[tokio::test]
async fn a_namespace_with_many_reserved_hosts_gets_no_new_one() {
    let api = platform(1, 1);
    let reserved = |number: usize| {
        let host = format!("h{number}.example");
        let holder = json!({"namespace": "ns", "name": format!("old{number}"), "uid": format!("of-{number}")});
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {
            "name": host_claim_name(&host), "labels": {"signpost.dev/claim": "host"}}, "spec": {
            "type": "host", "value": host, "since": "2025-01-01T00:00:00Z", "holder": holder,
            "releasedAt": "2025-01-02T00:00:00Z", "quarantineUntil": "2999-01-01T00:00:00Z"}})
    };
    for number in 1..=3 {
        api.put("nameclaims", reserved(number));
    }
    let running = start_with(&api, |settings| settings.quarantined_max = 2);
    // One that comes back has its host again, and one without a host needs none.
    for (name, spec) in [("old1", json!({"host": "h1.example"})), ("plain", json!({}))] {
        api.put("routes", route("ns", name, &spec));
    }
    until("both are placed", || scheduled(&api) == 2).await;
    api.put("routes", route("ns", "new", &json!({"host": "new.example"})));
    let why = || condition(&api.get("routes", "ns", "new").expect("it is there"), "Scheduled");
    until("the new one is told why it waits", || {
        why().is_some_and(|(status, reason, message)| {
            status == "False" && reason == "NamesInQuarantine" && message.starts_with("2 hosts of deleted routes")
        })
    })
    .await;
    assert!(api.get("nameclaims", "", &host_claim_name("new.example")).is_none(), "it holds no host");
    api.delete("nameclaims", "", &host_claim_name("h2.example"));
    until("it is placed", || scheduled(&api) == 3).await;
    check_all(&api);
    running.stop().await;
}

#[tokio::test]
async fn a_server_without_transactions_is_served_too() {
    let api = FakeApi::new(1).without_transactions();
    api.put("namespaces", namespace("ns"));
    api.put("routers", router("shard1", &json!({})));
    for i in 0..20 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    // One was bound by a scheduler that crashed before it could write the status.
    let crashed = api.get("routes", "ns", "r3").expect("it is there");
    api.put("routebindings", json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"namespace": "ns", "name": "r3"},
        "spec": {
            "routeNamespace": "ns", "routeName": "r3", "routeUID": crashed["metadata"]["uid"], "router": "shard1",
            "dns": "shard1.v3.example", "label": "ns-r3", "strategy": "round-robin",
            "names": [
                {"name": "ns-r3.shard1.v3.example", "type": "system"},
                {"name": "ns-r3.routes.v3.example", "type": "alias"},
            ],
        },
    }));
    let running = start(&api);
    until("the status of all is written", || scheduled(&api) == 20).await;
    for route in api.all("routes") {
        let name = route["metadata"]["name"].as_str().unwrap_or_default();
        assert_eq!(route["status"]["dns"], format!("ns-{name}.shard1.v3.example"));
        assert_eq!(route["status"]["canonicalName"], format!("ns-{name}.routes.v3.example"));
        for kind in ["Scheduled", "Admitted"] {
            assert_eq!(condition(&route, kind).map(|(status, ..)| status).as_deref(), Some("True"), "{kind}");
        }
    }
    running.stop().await;
}

#[tokio::test]
async fn only_the_leader_writes() {
    let api = platform(1, 1);
    let running = start(&api);
    api.put("routes", route("ns", "a", &json!({})));
    until("the leader places it", || scheduled(&api) == 1).await;
    running.leadership.send_replace(Leadership::Follower { holder: None });
    api.put("routes", route("ns", "b", &json!({})));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(api.requests("POST routebindings"), 1);
    running.leadership.send_replace(Leadership::Leader(Term::unlimited()));
    until("it leads again", || scheduled(&api) == 2).await;
    running.stop().await;
}

#[tokio::test]
async fn a_route_made_anew_is_placed_anew_and_keeps_its_name() {
    let api = platform(1, 2);
    api.put("routes", route("ns", "app", &json!({})));
    let running = start(&api);
    until("it is scheduled", || scheduled(&api) == 1).await;
    let old = api.get("routebindings", "ns", "app").expect("it is bound");
    api.delete("routebindings", "ns", "app");
    api.recreate("routes", route("ns", "app", &json!({})));
    until("the new one is scheduled", || scheduled(&api) == 1).await;
    let new = api.get("routebindings", "ns", "app").expect("it is bound");
    assert_ne!(old["spec"]["routeUID"], new["spec"]["routeUID"]);
    assert_eq!(old["spec"]["label"], new["spec"]["label"]);
    check_all(&api);
    running.stop().await;
}

/// Three schedulers that all believe they lead, which no lease allows, over an API that misbehaves in every way it can;
/// one of them crashes and starts again all the time, routes come, go and come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chaos() {
    for seed in 1..=2 {
        let api = platform(seed, 4);
        for name in ["a", "a-b", "a-b-c"] {
            api.put("namespaces", namespace(name));
        }
        api.set_faults(Faults {
            conflicts: 60,
            failures: 60,
            lost_answers: 60,
            broken_watches: 30,
            delay_longest_millis: 4,
            ..Faults::default()
        });
        let mut running = vec![start(&api), start(&api), start(&api)];
        // Names that collide: a + b-c-7, a-b + c-7, and so on.
        let mut expected = 0;
        for i in 0..100 {
            for (namespace, name) in [("a", format!("b-c-{i}")), ("a-b", format!("c-{i}")), ("ns", format!("r{i}"))] {
                api.put("routes", route(namespace, &name, &json!({})));
                expected += 1;
            }
            if i % 10 == 5 {
                // The binding of the earlier Route is the reconciler's to clear away.
                api.recreate("routes", route("ns", &format!("r{}", i - 3), &json!({})));
            }
            if i % 25 == 20 {
                api.forget_history();
            }
            if i % 20 == 10 {
                // A crash: nothing is finished, nothing is told.
                let crashed = running.remove(0);
                crashed.task.abort();
                running.push(start(&api));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        until("none is lost", || scheduled(&api) == expected && api.all("routebindings").len() == expected).await;
        check_all(&api);
        for one in running {
            one.stop().await;
        }
    }
}

#[tokio::test]
async fn of_overlapping_hosts_in_two_namespaces_the_first_is_admitted() {
    let api = platform(5, 2);
    api.put("namespaces", namespace("other"));
    let running = start(&api);
    let host = |host: &str| json!({"host": host});
    api.put("routes", route("ns", "all", &host("*.shop.test")));
    until("the first is placed", || scheduled(&api) == 1).await;
    // In its own namespace, and beside it, all is as ever.
    api.put("routes", route("ns", "www", &host("www.shop.test")));
    api.put("routes", route("other", "beside", &host("www.notshop.test")));
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
    assert_eq!(message, "a.b.shop.test is below a wildcard that a route of another namespace holds");
    let (_, _, message) = refused("around").expect("it is refused");
    assert!(!message.contains("shop"), "whose it is, and what, is no business of others: {message}");
    assert!(api.get("routebindings", "other", "below").is_none());

    // It goes, as does its claim: what it kept out is placed at once.
    api.delete("routebindings", "ns", "all");
    api.delete("routes", "ns", "all");
    let claim = api.all("nameclaims").into_iter().find(|claim| claim["spec"]["value"] == "*.shop.test");
    api.delete("nameclaims", "", claim.expect("it is claimed")["metadata"]["name"].as_str().expect("a name"));
    until("the one below is placed", || api.get("routebindings", "other", "below").is_some()).await;
    assert!(refused("around").is_some(), "www.shop.test is still there");
    check_all(&api);
    running.stop().await;
}

#[tokio::test]
async fn of_overlapping_hosts_that_come_at_once_one_namespace_is_admitted() {
    let api = platform(6, 2);
    for name in ["a", "b"] {
        api.put("namespaces", namespace(name));
        for i in 0..20 {
            api.put("routes", route(name, &format!("x{i}"), &json!({"host": format!("{name}.s{i}.example")})));
            api.put("routes", route(name, &format!("w{i}"), &json!({"host": format!("*.s{}.example", (i + 7) % 20)})));
        }
    }
    let running = start(&api);
    let is_decided = |route: &Value| {
        route["status"]["phase"] == "scheduled"
            || condition(route, "Admitted").is_some_and(|(status, ..)| status == "False")
    };
    until("each is decided", || api.all("routes").iter().all(is_decided)).await;
    for i in 0..20 {
        let suffix = format!(".s{i}.example");
        let holds = |route: &&Value| {
            let host = route["spec"]["host"].as_str().unwrap_or_default();
            route["status"]["phase"] == "scheduled" && host.ends_with(&suffix)
        };
        let routes = api.all("routes");
        let wildcard = routes
            .iter()
            .filter(holds)
            .find(|route| route["spec"]["host"].as_str().is_some_and(|host| host.starts_with('*')));
        let Some(wildcard) = wildcard else { continue };
        for other in routes.iter().filter(holds) {
            assert_eq!(other["metadata"]["namespace"], wildcard["metadata"]["namespace"], "{suffix}");
        }
    }
    check_all(&api);
    running.stop().await;
}

/// Waits that nobody sits out: only what wakes a route helps.
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

/// What the condition `Admitted` says, if it is false.
fn refusal(api: &FakeApi, namespace: &str, name: &str) -> Option<String> {
    let route = api.get("routes", namespace, name).expect("it is there");
    let refused = condition(&route, "Admitted").filter(|(status, ..)| status == "False");
    refused.map(|(_, _, message)| message)
}

fn is_placed(api: &FakeApi, namespace: &str, name: &str) -> bool {
    api.get("routebindings", namespace, name).is_some()
}

/// Deletes a Route; its host is released by the reconciler.
fn end(api: &FakeApi, namespace: &str, name: &str) {
    api.delete("routebindings", namespace, name);
    api.delete("routes", namespace, name);
}

#[tokio::test]
async fn an_overlap_that_only_the_api_knows_is_tried_again_and_waited_for_when_it_is_seen() {
    let api = platform(1, 1);
    api.guard_overlaps();
    let mut claim = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": "host.x"},
        "spec": {"type": "host", "value": "*.shop.example", "since": "some day",
            "holder": {"namespace": "other", "name": "all", "uid": "u"}}});
    // The scheduler cannot read it yet.
    api.put("nameclaims", claim.clone());
    let running = start_with(&api, patient);
    api.put("routes", with_age("ns", "app", "www.shop.example", 1));
    let says = |part: &str| refusal(&api, "ns", "app").is_some_and(|message| message.ends_with(part));
    until("it says so", || says("www.shop.example overlaps a host that a route of another namespace holds")).await;
    claim["spec"]["since"] = json!("2025-01-01T00:00:00Z");
    api.put("nameclaims", claim.clone());
    until("it is known why", || says("is below a wildcard that a route of another namespace holds")).await;
    claim["spec"]["releasedAt"] = json!("2025-01-01T00:01:00Z");
    api.put("nameclaims", claim);
    until("it is placed when that is let go", || is_placed(&api, "ns", "app")).await;
    running.stop().await;
}

#[tokio::test]
async fn a_host_that_is_let_go_passes_those_that_cannot_have_it() {
    let api = platform(1, 1);
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
    let mut nowhere = with_age("a", "nowhere", "www.shop.example", 3);
    nowhere["metadata"]["labels"] = json!({"pool": "nowhere"});
    api.put("routes", nowhere);
    until("no Router takes it", || {
        let route = api.get("routes", "a", "nowhere").expect("it is there");
        condition(&route, "Scheduled").is_some_and(|(status, ..)| status == "False")
    })
    .await;
    // The holder's namespace takes the wildcard above as well: who waits for a host keeps nobody out.
    api.put("routes", with_age("a", "all", "*.shop.example", 7));
    until("the wildcard is placed", || is_placed(&api, "a", "all")).await;
    end(&api, "a", "holder");
    until("the first that can have it takes over", || is_placed(&api, "a", "young")).await;
    let told = refusal(&api, "b", "old").expect("it is kept out");
    assert_eq!(told, "www.shop.example is below a wildcard that a route of another namespace holds");
    // Without the wildcard it waits for the host itself again, and gets it before those that came later.
    end(&api, "a", "all");
    until("it is told what is so", || {
        refusal(&api, "b", "old").as_deref() == Some("www.shop.example is held by a route of another namespace")
    })
    .await;
    end(&api, "a", "young");
    until("it takes over", || is_placed(&api, "b", "old")).await;
    assert!(refusal(&api, "c", "younger").is_some());
    // One that is offered the host and goes in that moment passes it on, too.
    api.delete("routes", "a", "nowhere");
    end(&api, "b", "old");
    until("the last takes over", || is_placed(&api, "c", "younger")).await;
    check_all(&api);
    running.stop().await;
}
