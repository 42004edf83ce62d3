//! The scheduler: the results for routes without faults, and with many.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use signpost_api::identity::USER_SCHEDULER;
use signpost_control::client::lease::{Leadership, Term};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::metrics::Metrics;
use signpost_control::scheduler::queue::BackoffSettings;
use signpost_control::scheduler::{Scheduler, Settings};
use signpost_control::world::{self, World};
use signpost_types::names::host_claim_name;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Scene, condition, namespace, placement, route, router, until};
use crate::api::Behaviour;

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

/// Starts a scheduler and a reconciler, as in a process of the platform, that leads indefinitely, or until changed.
pub fn start(api: &Scene) -> Running {
    start_with(api, |_| ())
}

pub fn start_with(api: &Scene, change: impl Fn(&mut Settings)) -> Running {
    start_both(api, change, |_| ())
}

pub fn start_both(api: &Scene, change: impl Fn(&mut Settings), keep: impl Fn(&mut reconcile::Settings)) -> Running {
    start_switchable(api, change, keep).0
}

/// Starts the same, and returns the sender for changes of the strategy.
pub fn start_switchable(
    api: &Scene,
    change: impl Fn(&mut Settings),
    keep: impl Fn(&mut reconcile::Settings),
) -> (Running, watch::Sender<StrategyConfig>) {
    let keeping = placement::settings(keep);
    let world = placement::world(api);
    start_in(api, &world, change, keeping)
}

/// Starts the same with the objects of this world.
pub fn start_in(
    api: &Scene,
    world: &World,
    change: impl Fn(&mut Settings),
    keeping: reconcile::Settings,
) -> (Running, watch::Sender<StrategyConfig>) {
    let scheduler = scheduler(api, world, change);
    let reconciler = Reconciler::new(api.client(), world, keeping, reconcile::Metrics::default());
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

/// Starts a scheduler without a reconciler, so that all writes are its own.
fn start_alone(api: &Scene) -> Running {
    let world = World::new(&api.client(), world::Settings::of_domain("v3.example"));
    let (leadership, follow) = watch::channel(Leadership::Leader(Term::unlimited()));
    let stop = CancellationToken::new();
    let task = tokio::spawn(scheduler(api, &world, |_| ()).run(follow, stop.clone()));
    Running { leadership, stop, task }
}

pub fn scheduler(api: &Scene, world: &World, change: impl Fn(&mut Settings)) -> Scheduler {
    let mut settings = Settings::new("v3.example");
    settings.backoff = BackoffSettings {
        failed_first: Duration::from_millis(5),
        failed_longest: Duration::from_millis(200),
        ..BackoffSettings::default()
    };
    change(&mut settings);
    Scheduler::new(api.connection.client(USER_SCHEDULER), world, settings, Metrics::default())
}

/// Returns a namespace and some Routers.
pub async fn platform(routers: usize) -> Scene {
    furnish(Scene::start(Behaviour::Ours).await, routers)
}

/// Returns a platform for a scenario with sockets.
pub async fn platform_with_sockets(routers: usize) -> Scene {
    furnish(Scene::in_real_time(Behaviour::Ours).await, routers)
}

fn furnish(api: Scene, routers: usize) -> Scene {
    api.put("namespaces", namespace("ns"));
    for i in 1..=routers {
        api.put("routers", router(&format!("shard{i}"), &json!({})));
    }
    api
}

pub fn scheduled(api: &Scene) -> usize {
    api.count("routes", |route| route["status"]["phase"] == "scheduled")
}

pub fn per_router(api: &Scene) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for binding in api.all("routebindings") {
        *counts.entry(binding["spec"]["router"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn our_own_server_is_sent_one_write_a_route() {
    let api = platform(3).await;
    // The label of one is another route's: the attempt with two writes detects that, and the route gets the next one.
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
    for (request, count) in [("POST routebindings", 102), ("POST nameclaims", 2), ("PATCH routes", 0)] {
        assert_eq!(api.connection.requests(request), count, "{request}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_route_avoids_routers_with_records_at_its_name_in_any_spelling() {
    let api = platform(0).await;
    api.put("namespaces", namespace("q"));
    // The escape is an `a`. An address that is not in answers is not the Router's.
    let drained = json!([{"ip": "192.0.2.1"}, {"ip": "192.0.2.9", "state": "drained"}]);
    for (name, record) in [("shard1", "q-\\097pp A 192.0.2.9"), ("shard2", "q-app A 192.0.2.9")] {
        api.put("routers", router(name, &json!({"records": [record], "addresses": drained})));
    }
    let running = start(&api);
    api.put("routes", route("q", "app", &json!({})));
    until("it waits, with the reason", || {
        let found = condition(&api.get("routes", "q", "app").expect("it is there"), "Scheduled");
        let why = "already uses the Route's name";
        found.is_some_and(|(status, _, message)| status == "False" && message.matches(why).count() == 2)
    })
    .await;
    api.put("routers", router("shard3", &json!({})));
    until("it is scheduled", || scheduled(&api) == 1).await;
    assert_eq!(per_router(&api), [("shard3".to_owned(), 1)].into());
    running.stop().await;
}

#[tokio::test]
async fn routes_are_placed_in_turn_by_two_writes_each_where_the_server_is_another() {
    let api = furnish(Scene::start(Behaviour::Kubernetes).await, 3);
    for i in 0..300 {
        api.put("routes", route("ns", &format!("r{i}"), &json!({})));
    }
    let running = start_alone(&api);
    until("all are bound", || api.count("routebindings", |_| true) == 300).await;
    assert_eq!(per_router(&api), [1, 2, 3].map(|i| (format!("shard{i}"), 100)).into());
    for (request, count) in
        [("POST routebindings", 300), ("POST nameclaims", 300), ("PATCH routes", 0), ("GET nameclaims", 1)]
    {
        assert_eq!(api.connection.requests(request), count, "{request}");
    }
    let binding = api.get("routebindings", "ns", "r7").expect("it is bound");
    let explanation = &binding["spec"]["explanation"];
    assert_eq!((&explanation["considered"], &explanation["eligible"]), (&json!(3), &json!(3)), "{explanation}");
    assert_eq!(binding["spec"]["names"][1]["name"], "ns-r7.routes.v3.example");
    until("events are recorded", || api.count("events", |_| true) > 0).await;
    running.stop().await;

    // A restart continues the circle, and moves nothing.
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
    let api = platform(0).await;
    api.put("routes", route("ns", "app", &json!({})));
    let running = start(&api);
    let said = |reason: &str| {
        let route = api.get("routes", "ns", "app").expect("it is there");
        condition(&route, "Scheduled").is_some_and(|(status, found, _)| status == "False" && found == reason)
    };
    until("NoRouter is reported", || said("NoRouter")).await;
    api.put("routers", router("shard1", &json!({"state": "cordoned"})));
    api.put("routers", router("shard2", &json!({"routeSelector": {"matchLabels": {"tier": "gold"}}})));
    let said_of_both = || {
        let route = api.get("routes", "ns", "app").expect("it is there");
        condition(&route, "Scheduled").is_some_and(|(_, _, message)| message.contains("0/2 Routers are available"))
    };
    until("both are reported", || said("Unschedulable") && said_of_both()).await;
    let route = api.get("routes", "ns", "app").expect("it is there");
    let (_, _, message) = condition(&route, "Scheduled").expect("a condition");
    assert_eq!(
        message,
        "0/2 Routers are available: shard1 is cordoned; shard2 selects other Routes by their labels, and this one \
         does not match tier=gold (spec.routeSelector)"
    );
    assert_eq!(condition(&route, "Admitted").map(|(status, ..)| status).as_deref(), Some("True"));
    let patches = api.connection.requests("PATCH routes");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(api.connection.requests("PATCH routes"), patches, "a reported condition is not sent again");
    api.put("routers", router("shard1", &json!({"state": "active"})));
    until("it is scheduled at once", || scheduled(&api) == 1).await;
    running.stop().await;
}

#[tokio::test]
async fn routers_that_come_while_very_many_routes_wait_get_each_theirs() {
    // More than are checked in a row. Each commit is checked against all objects, so larger numbers would take minutes.
    const ROUTES: usize = 300;
    let api = platform(0).await;
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
    // No route is retried by itself before the end of the test.
    let long = Duration::from_secs(3_600);
    let running = start_with(&api, |settings| {
        settings.backoff =
            BackoffSettings { unschedulable_first: long, unschedulable_longest: long, ..settings.backoff.clone() };
        settings.search = long;
    });
    until("all wait", || api.count("routes", |route| condition(route, "Scheduled").is_none()) == 0).await;
    api.put("routers", taking("gold"));
    api.put("routers", taking("silver"));
    // Routes change, are created, and are deleted while these are searched.
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
    running.stop().await;
}

#[tokio::test]
async fn a_namespace_that_gets_the_label_wakes_its_routes() {
    let api = platform(0).await;
    api.put("routers", router("shard1", &json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})));
    api.put("routes", route("ns", "app", &json!({})));
    let running = start(&api);
    until("it is processed", || {
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
    let api = platform(0).await;
    for i in 1..=3 {
        api.put("routers", router(&format!("shard{i}"), &json!({"capacity": {"hard": 20}})));
    }
    for i in 0..100 {
        api.put("routes", route("ns", &format!("r{i:03}"), &json!({})));
    }
    let running = start(&api);
    let unscheduled =
        || api.count("routes", |route| condition(route, "Scheduled").is_some_and(|(status, ..)| status == "False"));
    until("sixty are placed and forty report a reason", || scheduled(&api) == 60 && unscheduled() == 40).await;
    assert_eq!(per_router(&api), [1, 2, 3].map(|i| (format!("shard{i}"), 20)).into());
    // A deleted route makes room for a waiting one.
    let gone = api.all("routebindings")[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    api.delete("routebindings", "ns", &gone);
    api.delete("routes", "ns", &gone);
    until("the room is used", || scheduled(&api) == 60).await;
    assert_eq!(per_router(&api).values().sum::<usize>(), 60);
    running.stop().await;
}

#[tokio::test]
async fn a_namespace_has_no_more_routes_placed_than_its_quota() {
    let api = platform(2).await;
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
    let blocked = |reason: &str, part: &str| {
        let says = |route: &Value| {
            condition(route, "Scheduled")
                .is_some_and(|(status, found, message)| status == "False" && found == reason && message.contains(part))
        };
        api.count("routes", says)
    };
    let placed = |namespace: &str| api.count("routebindings", |binding| binding["metadata"]["namespace"] == namespace);
    until("ten are placed and twenty are rejected", || {
        placed("ns") == 10 && blocked("QuotaExceeded", "allows 10") == 20
    })
    .await;
    until("the other namespace has no quota", || placed("free") == 1).await;
    // One deletion makes room for one route.
    let gone = api.all("routebindings").into_iter().find(|binding| binding["metadata"]["namespace"] == "ns");
    let gone = gone.expect("ten are placed")["metadata"].clone();
    let name = gone["name"].as_str().expect("has one");
    api.delete("routebindings", "ns", name);
    api.delete("routes", "ns", name);
    until("the room is used", || placed("ns") == 10 && api.get("routebindings", "ns", name).is_none()).await;
    // A larger quota admits as many more; a smaller one does not unbind any route.
    api.put("namespaces", with_quota("15"));
    until("five more are placed", || placed("ns") == 15).await;
    api.put("namespaces", with_quota("3"));
    until("they report it", || blocked("QuotaExceeded", "has 15 Routes with a Router, and its annotation") >= 14).await;
    assert_eq!(placed("ns"), 15);
    api.put("namespaces", with_quota("three"));
    until("it cannot be read", || blocked("InvalidQuota", "\"three\"") >= 14).await;
    api.put("namespaces", namespace("ns"));
    until("without it all are placed", || api.count("routes", |_| true) == scheduled(&api)).await;
    running.stop().await;
}

#[tokio::test]
async fn colliding_and_quarantined_names() {
    let api = platform(1).await;
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
    for behaviour in [Behaviour::Kubernetes, Behaviour::Ours] {
        let api = furnish(Scene::start(behaviour).await, 1);
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
        // Neither an old name, nor one that was never released, is a new one; and those of another namespace do not count.
        api.put("routes", route("ns", "old1", &json!({})));
        until("its label comes back", || scheduled(&api) == 1).await;
        for (namespace, name) in [("ns", "new"), ("ns", "placed"), ("other", "new")] {
            api.put("routes", route(namespace, name, &json!({"host": format!("{name}.{namespace}.example")})));
        }
        until("those that need no new one of the namespace are placed", || scheduled(&api) == 3).await;
        let why = || condition(&api.get("routes", "ns", "new").expect("it is there"), "Scheduled");
        until("the new one reports why it waits", || {
            why().is_some_and(|(status, reason, message)| {
                status == "False" && reason == "NamesInQuarantine" && message.starts_with("2 labels of former Routes")
            })
        })
        .await;
        assert!(api.get("nameclaims", "", "ns-new").is_none(), "it holds no name");
        let hosts = api.all("nameclaims").into_iter().filter(|claim| claim["spec"]["value"] == "new.ns.example");
        assert_eq!(hosts.count(), 0, "nor a host that it could not use");
        // One is free: the route continues immediately.
        api.delete("nameclaims", "", "ns-old2");
        until("it is placed", || scheduled(&api) == 4).await;
        running.stop().await;
    }
}

#[tokio::test]
async fn a_namespace_with_many_reserved_hosts_gets_no_new_one() {
    let api = platform(1).await;
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
    // A returning Route has its host again, and one without a host needs none.
    for (name, spec) in [("old1", json!({"host": "h1.example"})), ("plain", json!({}))] {
        api.put("routes", route("ns", name, &spec));
    }
    until("both are placed", || scheduled(&api) == 2).await;
    api.put("routes", route("ns", "new", &json!({"host": "new.example"})));
    let why = || condition(&api.get("routes", "ns", "new").expect("it is there"), "Scheduled");
    until("the new one reports why it waits", || {
        why().is_some_and(|(status, reason, message)| {
            status == "False" && reason == "NamesInQuarantine" && message.starts_with("2 hosts of deleted Routes")
        })
    })
    .await;
    assert!(api.get("nameclaims", "", &host_claim_name("new.example")).is_none(), "it holds no host");
    api.delete("nameclaims", "", &host_claim_name("h2.example"));
    until("it is placed", || scheduled(&api) == 3).await;
    running.stop().await;
}

#[tokio::test]
async fn only_the_leader_writes() {
    let api = platform(1).await;
    let running = start(&api);
    api.put("routes", route("ns", "a", &json!({})));
    until("the leader places it", || scheduled(&api) == 1).await;
    running.leadership.send_replace(Leadership::Follower { holder: None });
    api.put("routes", route("ns", "b", &json!({})));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(api.connection.requests("POST routebindings"), 1);
    running.leadership.send_replace(Leadership::Leader(Term::unlimited()));
    until("it leads again", || scheduled(&api) == 2).await;
    running.stop().await;
}

#[tokio::test]
async fn a_route_made_anew_is_placed_anew_and_keeps_its_name() {
    let api = platform(2).await;
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
    running.stop().await;
}

/// A client of a cluster that may write `routes/status` may write every name there. Signpost's own API refuses that.
#[tokio::test]
async fn a_forged_status_is_replaced() {
    let api = furnish(Scene::start(Behaviour::Kubernetes).await, 1);
    api.put("routes", route("ns", "app", &json!({"host": "app.example"})));
    let running = start(&api);
    let status = || {
        let route = api.get("routes", "ns", "app").expect("it is there");
        ["phase", "router", "dns", "canonicalName", "names", "formerNames"].map(|field| route["status"][field].clone())
    };
    until("it is bound", || scheduled(&api) == 1).await;
    let right = status();
    assert!(right[2].is_string() && right[3].is_string(), "{right:?}");
    for forged in [
        json!({"dns": "bank.example"}),
        json!({"dns": null}),
        json!({"canonicalName": "evil.example"}),
        json!({"canonicalName": null}),
        json!({"dns": "bank.example", "canonicalName": "evil.example"}),
        json!({"names": []}),
        json!({"router": "another"}),
        json!({"phase": "new"}),
        json!({"formerNames": [{"name": "app-ns.shard9.v3.example", "router": "shard9",
            "since": "2025-01-01T00:00:00Z", "until": "2030-01-01T00:00:00Z"}]}),
    ] {
        let mut route = api.get("routes", "ns", "app").expect("it is there");
        json_patch::merge(&mut route["status"], &forged);
        api.put("routes", route);
        assert_ne!(status(), right, "{forged}");
        until(&format!("{forged} is replaced"), || status() == right).await;
    }
    running.stop().await;
}
