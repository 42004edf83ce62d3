//! The contract of every strategy, through the whole scheduler: the built-in ones, and a webhook, played by the service of
//! `examples/webhook`.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use signpost_control::scheduler::chooser::StrategyConfig;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::scheduler::webhook::Settings;

use super::scheduling::{Running, per_router, platform_with_sockets, scheduled, start_with};
use super::{Scene, condition, namespace, route, router, until};

/// The service of `examples/webhook`, started as in its README.
struct Placer {
    child: Child,
    url: String,
}

impl Placer {
    fn start() -> Placer {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/webhook/placer.py");
        let mut command = Command::new("python3");
        command.arg(program).args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 runs the example");
        let mut line = String::new();
        let output = child.stdout.take().expect("was piped");
        BufReader::new(output).read_line(&mut line).expect("it prints its address");
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("it printed {line:?}")).to_owned();
        Placer { child, url }
    }

    fn chooser(&self) -> StrategyConfig {
        StrategyConfig::Webhook(Settings {
            url: self.url.clone(),
            timeout: Duration::from_secs(20),
            authorities: None,
            token: None,
            fallback: StrategyName::RoundRobin,
        })
    }
}

impl Drop for Placer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns every strategy, with the allowed difference between the busiest and the idlest of equal Routers when `routes` are
/// placed at once.
fn all(placer: &Placer) -> Vec<(StrategyConfig, usize)> {
    let own = StrategyName::ALL.map(|name| {
        let spread = match name {
            StrategyName::RoundRobin | StrategyName::LeastRoutes | StrategyName::Weighted => 1,
            // Four standard deviations of a binomial of 200 routes and 4 Routers, in both directions.
            StrategyName::Rendezvous => 50,
        };
        (StrategyConfig::Strategy(name), spread)
    });
    // Sixteen calls are in flight at a time, without each other's results.
    own.into_iter().chain([(placer.chooser(), 17)]).collect()
}

fn start(api: &Scene, chooser: &StrategyConfig) -> Running {
    start_with(api, |settings| settings.chooser = chooser.clone())
}

fn routers_of(api: &Scene) -> BTreeMap<String, String> {
    let bindings = api.all("routebindings").into_iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    bindings.map(|binding| (text(&binding["metadata"]["name"]), text(&binding["spec"]["router"]))).collect()
}

#[tokio::test]
async fn only_routers_that_may_take_it_and_never_above_capacity() {
    let placer = Placer::start();
    for (chooser, _) in all(&placer) {
        let api = platform_with_sockets(0).await;
        for (name, spec) in [
            ("cordoned", json!({"state": "cordoned"})),
            ("draining", json!({"state": "draining"})),
            ("elsewhere", json!({"routeSelector": {"matchLabels": {"tier": "gold"}}})),
            ("empty", json!({"addresses": []})),
            ("drained", json!({"addresses": [{"ip": "192.0.2.1", "state": "drained"}]})),
            ("of-others", json!({"namespaceSelector": {"matchLabels": {"team": "b"}}})),
            ("unreadable", json!({"routeSelector": {"matchExpressions": [{"key": "x", "operator": "?"}]}})),
            ("too-long", json!({"dns": format!("{}.{}.{}.example", "a".repeat(63), "b".repeat(63), "c".repeat(60))})),
            ("full", json!({"capacity": {"hard": 0}})),
            ("small", json!({"capacity": {"hard": 7}})),
            ("soft", json!({"capacity": {"soft": 3, "hard": 13}})),
            ("large", json!({"capacity": {"hard": 20}})),
        ] {
            api.put("routers", router(name, &spec));
        }
        let mut deleting = router("deleting", &json!({}));
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        api.put("routers", deleting);
        for i in 0..50 {
            api.put("routes", route("ns", &format!("r{i:02}"), &json!({})));
        }
        let running = start(&api, &chooser);
        let full = |route: &Value| {
            condition(route, "Scheduled")
                .is_some_and(|(status, reason, _)| status == "False" && reason == "Unschedulable")
        };
        let refused = || api.count("routes", full);
        until("forty are placed and ten report a reason", || scheduled(&api) == 40 && refused() == 10).await;
        let expected = [("large", 20), ("small", 7), ("soft", 13)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(per_router(&api), expected.into(), "{chooser}");
        for binding in api.all("routebindings") {
            // When capacity runs out, the webhook can get the information too late, repeatedly.
            let summary = binding["spec"]["explanation"]["summary"].as_str().unwrap_or_default();
            let late = summary.contains(", which now ");
            assert!(binding["spec"]["strategy"] == chooser.name() || late, "{chooser}: {summary}");
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn equal_input_gives_equal_output() {
    let placer = Placer::start();
    for (chooser, _) in all(&placer) {
        let mut outcomes = Vec::new();
        for _ in [1, 2] {
            let api = platform_with_sockets(0).await;
            for (name, weight) in [("a", 1), ("b", 3), ("c", 2)] {
                api.put("routers", router(name, &json!({"weight": weight})));
            }
            let running = start(&api, &chooser);
            // In sequence: routes that are placed at the same time can be placed in any order.
            for i in 0..12 {
                api.put("routes", route("ns", &format!("r{i:02}"), &json!({})));
                until("it is placed", || scheduled(&api) == i + 1).await;
            }
            outcomes.push(routers_of(&api));
            running.stop().await;
        }
        assert_eq!(outcomes[0], outcomes[1], "{chooser}");
    }
}

#[tokio::test]
async fn the_spread_over_equal_routers_is_as_promised() {
    let placer = Placer::start();
    for (chooser, spread) in all(&placer) {
        let api = platform_with_sockets(4).await;
        for i in 0..200 {
            api.put("routes", route("ns", &format!("r{i}"), &json!({})));
        }
        let running = start(&api, &chooser);
        until("all are placed", || scheduled(&api) == 200).await;
        let counts = per_router(&api);
        let (most, least) = (counts.values().max().copied(), counts.values().min().copied());
        assert!(
            counts.len() == 4 && most.zip(least).is_some_and(|(most, least)| most - least <= spread),
            "{chooser}: {counts:?}"
        );
        running.stop().await;
    }
}

#[tokio::test]
async fn what_is_bound_stays_when_routers_come_and_go() {
    let placer = Placer::start();
    for (chooser, _) in all(&placer) {
        let api = platform_with_sockets(3).await;
        for i in 0..30 {
            api.put("routes", route("ns", &format!("r{i}"), &json!({})));
        }
        let running = start(&api, &chooser);
        until("all are placed", || scheduled(&api) == 30).await;
        let before = routers_of(&api);
        api.put("routers", router("shard1", &json!({"state": "cordoned"})));
        api.delete("routers", "", "shard2");
        api.put("routers", router("shard4", &json!({})));
        // A placement on the last added Router shows that all changes are known.
        let mut placed = 30;
        while !per_router(&api).contains_key("shard4") {
            assert!(placed < 200, "{chooser} never uses the new one");
            api.put("routes", route("ns", &format!("probe-{placed}"), &json!({})));
            placed += 1;
            until("it is placed", || scheduled(&api) == placed).await;
        }
        for i in 0..30 {
            api.put("routes", route("ns", &format!("late-{i}"), &json!({})));
        }
        until("the others are placed", || scheduled(&api) == placed + 30).await;
        let after = routers_of(&api);
        for (name, router) in &before {
            assert_eq!(after.get(name), Some(router), "{chooser}: {name}");
        }
        for (name, router) in after.iter().filter(|(name, _)| name.starts_with("late-")) {
            assert!(["shard3", "shard4"].contains(&router.as_str()), "{chooser}: {name} on {router}");
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn the_example_keeps_routes_in_their_region() {
    let placer = Placer::start();
    let api = platform_with_sockets(0).await;
    for (name, region) in [("east", "us"), ("north", "eu"), ("south", "eu")] {
        let mut object = router(name, &json!({}));
        object["metadata"]["labels"] = json!({"region": region});
        api.put("routers", object);
    }
    let mut european = namespace("ns");
    european["metadata"]["labels"] = json!({"region": "eu"});
    api.put("namespaces", european);
    let labelled = |name: &str, region: &str| {
        let mut object = route("ns", name, &json!({}));
        object["metadata"]["labels"] = json!({"region": region});
        object
    };
    let running = start(&api, &placer.chooser());
    let expected = [("a", None, "north"), ("b", None, "south"), ("c", Some("us"), "east"), ("d", Some("asia"), "east")];
    for (placed, (name, region, _)) in expected.iter().enumerate() {
        api.put("routes", region.map_or_else(|| route("ns", name, &json!({})), |region| labelled(name, region)));
        until("it is placed", || scheduled(&api) == placed + 1).await;
    }
    let found = routers_of(&api);
    for (name, _, router) in expected {
        assert_eq!(found[name], router, "{name}: {found:?}");
    }
    let summary = |name: &str| {
        let binding = api.get("routebindings", "ns", name).expect("it is bound");
        binding["spec"]["explanation"]["summary"].as_str().unwrap_or_default().to_owned()
    };
    assert!(summary("a").contains("it is in the region eu; 0 routes at weight 1"), "{}", summary("a"));
    assert!(summary("d").contains("no Router of the region asia can take the route"), "{}", summary("d"));
    running.stop().await;
}
