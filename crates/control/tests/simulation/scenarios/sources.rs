//! The leader that writes Routers and Routes from a source cluster. During all faults of that cluster, existing objects keep their Routers and
//! Routes; after the faults, the platform has exactly the derived ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use signpost_api::kinds::router;
use signpost_control::sources::inventory::Kind;
use signpost_control::sources::writer::{self, Parts};
use signpost_control::sources::{Family, Mode, Settings, Shared};
use signpost_control::world::{self, World};
use signpost_types::v1alpha1::router::Router;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, Served, settings};
use super::{Scene, until};
use crate::api::Behaviour;
use crate::chance::Chance;

/// Longer than discovery and the confirmation of deletions.
const WHILE: Duration = Duration::from_secs(45);

/// A leader.
struct Leader {
    stop: CancellationToken,
    running: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl Leader {
    fn start(platform: &Scene, cluster: &Cluster, settings: Settings) -> Leader {
        let world = World::new(&platform.api.admin(), world::Settings::of_domain("v3.example"));
        let (stop, shared) = (CancellationToken::new(), Arc::<Shared>::default());
        let parts = Parts {
            cluster: cluster.client(),
            settings: Arc::new(settings),
            shared: Arc::clone(&shared),
            instance: "leader".to_owned(),
            share_percent: watch::Sender::new(25).subscribe(),
            metrics: Default::default(),
        };
        let running = tokio::spawn(writer::run(platform.client(), world, parts, stop.clone()));
        Leader { stop, running, shared }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("it does not panic");
    }

    fn has_note(&self, reason: &str) -> bool {
        self.shared.derived.borrow().notes.iter().any(|note| format!("{:?}", note.reason) == reason)
    }
}

fn class() -> Value {
    json!({"metadata": {"name": "envoy"}, "spec": {"controllerName": "example.com/envoy"},
        "status": {"conditions": [{"type": "Accepted", "status": "True"}]}})
}

fn gateway(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "infra"},
        "spec": {"gatewayClassName": "envoy", "listeners": [
            {"name": "https", "hostname": format!("*.{name}.v3.example"), "port": 443, "protocol": "HTTPS",
             "allowedRoutes": {"namespaces": {"from": "All"}}},
        ]},
        "status": {"addresses": [{"value": "192.0.2.1"}], "conditions": [{"type": "Programmed", "status": "True"}]},
    })
}

fn route(name: &str, of: &str, is_accepted: bool) -> Value {
    let parent = json!({"name": of, "namespace": "infra"});
    let accepted = if is_accepted { "True" } else { "False" };
    json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"hostnames": [format!("{name}.{of}.v3.example")], "parentRefs": [parent]},
        "status": {"parents": [{"parentRef": parent, "controllerName": "example.com/envoy",
            "conditions": [{"type": "Accepted", "status": accepted}]}]},
    })
}

fn cluster(gateways: &[&str], routes: usize) -> Cluster {
    let cluster = Cluster::new();
    cluster.put(Kind::GatewayClass, class());
    cluster.put(Kind::Namespace, json!({"metadata": {"name": "shop"}}));
    for name in gateways {
        cluster.put(Kind::Gateway, gateway(name));
    }
    for number in 0..routes {
        cluster.put(Kind::HTTPRoute, route(&format!("app{number}"), gateways[number % gateways.len()], true));
    }
    cluster
}

async fn platform() -> Scene {
    Scene::start(Behaviour::Kubernetes).await
}

/// Returns the zones of the Routers, and the hosts of the Routes.
fn written(platform: &Scene) -> (BTreeSet<String>, BTreeSet<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let zones = platform.all("routers").iter().map(|router| text(&router["spec"]["dns"])).collect();
    (zones, platform.all("routes").iter().map(|route| text(&route["spec"]["host"])).collect())
}

fn counts(platform: &Scene) -> (usize, usize) {
    let (zones, hosts) = written(platform);
    (zones.len(), hosts.len())
}

#[tokio::test]
async fn what_a_cluster_means_is_written() {
    let (platform, cluster) = (platform().await, cluster(&["eu", "us"], 4));
    let leader = Leader::start(&platform, &cluster, settings());
    until("all is written", || counts(&platform) == (2, 4)).await;
    let router = platform.all("routers").into_iter().find(|router| router["spec"]["dns"] == "eu.v3.example");
    let router = router.expect("it is written");
    let uid = router["metadata"]["labels"]["signpost.dev/source"].clone();
    assert!(uid.as_str().is_some_and(|uid| uid.starts_with("uid-")), "{router}");
    assert_eq!(router["metadata"]["annotations"]["signpost.dev/source-object"], "Gateway infra/eu");
    assert_eq!(router["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(router["spec"]["addresses"][0]["ip"], "192.0.2.1");
    let found = platform.all("routes").into_iter().find(|route| route["spec"]["host"] == "app0.eu.v3.example");
    let found = found.expect("it is written");
    assert_eq!(found["spec"]["adopted"]["router"], router["metadata"]["name"]);
    assert_eq!(found["spec"]["adopted"]["by"], "listener https of Gateway infra/eu");

    // The fields of its operator survive a change.
    let name = router["metadata"]["name"].as_str().expect("a name").to_owned();
    let mut edited = platform.get("routers", "", &name).expect("it is there");
    edited["spec"]["weight"] = json!(7);
    edited["spec"]["addresses"].as_array_mut().expect("a list").push(json!({"ip": "192.0.2.77"}));
    platform.put("routers", edited);
    let mut changed = gateway("eu");
    changed["status"]["addresses"] = json!([{"value": "192.0.2.9"}]);
    cluster.put(Kind::Gateway, changed);
    let ips = || -> Vec<Value> {
        let router = platform.get("routers", "", &name).expect("it is there");
        router["spec"]["addresses"].as_array().expect("a list").iter().map(|address| address["ip"].clone()).collect()
    };
    until("the address follows", || ips().contains(&json!("192.0.2.9"))).await;
    assert_eq!(platform.get("routers", "", &name).expect("it is there")["spec"]["weight"], 7);

    // One watched change at a time takes effect at once.
    let since = tokio::time::Instant::now();
    cluster.put(Kind::HTTPRoute, route("new", "us", true));
    until("a new Route is written", || counts(&platform).1 == 5).await;
    cluster.put(Kind::HTTPRoute, route("new", "us", false));
    until("a Route that is no longer admitted goes", || counts(&platform).1 == 4).await;
    cluster.delete(Kind::HTTPRoute, "shop/app0");
    until("a deleted Route goes", || counts(&platform).1 == 3).await;
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());

    // So does the deletion of a Gateway, with its names.
    cluster.put(Kind::HTTPRoute, route("app7", "us", true));
    until("it has two names", || counts(&platform) == (2, 4)).await;
    cluster.delete(Kind::Gateway, "infra/us");
    until("its shard and its names go", || counts(&platform) == (1, 1)).await;
    cluster.put(Kind::Gateway, gateway("us"));
    until("they are back", || counts(&platform) == (2, 4)).await;

    // An object that is deleted on the platform comes back.
    let key = platform.all("routes")[0]["metadata"]["name"].as_str().expect("a name").to_owned();
    platform.delete("routes", "shop", &key);
    until("it is written again", || counts(&platform).1 == 4).await;
    leader.stop().await;
}

/// A Router loses the addresses of its zone's own name, and a TTL, when its source no longer requests them. Those of its operator stay. Both
/// also in the next leader.
#[tokio::test]
async fn fields_that_a_source_no_longer_sets() {
    let (platform, cluster) = (platform().await, cluster(&["eu"], 0));
    let mut with_services = settings();
    with_services.modes.insert(Family::Service, Mode::Publish);
    let start = || Leader::start(&platform, &cluster, with_services.clone());
    let spec = |zone: &str| -> Value {
        let router = platform.all("routers").into_iter().find(|router| router["spec"]["dns"] == zone);
        router.map_or(Value::Null, |router| router["spec"].clone())
    };
    let edit = |zone: &'static str, change: Value| {
        let routers: Api<Router> = Api::all(platform.api.admin());
        let router = platform.all("routers").into_iter().find(|router| router["spec"]["dns"] == zone);
        let name = router.expect("it is written")["metadata"]["name"].as_str().expect("a name").to_owned();
        let parameters = PatchParams { field_manager: Some("operator".to_owned()), ..PatchParams::default() };
        let truth = Arc::clone(&platform.api.truth);
        async move {
            truth.lock().admin_writes = Some(format!("{}{name}", router::ROUTER.key_prefix));
            let patch = Patch::Merge(json!({"spec": change}));
            routers.patch(&name, &parameters, &patch).await.expect("it is changed");
            truth.lock().admin_writes = None;
        }
    };
    let own = |has_own: bool| {
        let mut changed = gateway("eu");
        if has_own {
            let listener = json!({"name": "own", "hostname": "eu.v3.example", "port": 443, "protocol": "HTTPS"});
            changed["spec"]["listeners"].as_array_mut().expect("a list").push(listener);
        }
        cluster.put(Kind::Gateway, changed);
    };
    let service = |ttl: Option<&str>| {
        let mut annotations = json!({"external-dns.kubernetes.io/hostname": "*.db.v3.example"});
        if let Some(ttl) = ttl {
            annotations["external-dns.kubernetes.io/ttl"] = ttl.into();
        }
        let metadata = json!({"name": "db", "namespace": "shop", "annotations": annotations});
        cluster.put(
            Kind::Service,
            json!({"metadata": metadata, "spec": {"type": "LoadBalancer"},
                   "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.3"}]}}}),
        );
    };
    let (apex, caa) = ("@ A 192.0.2.1", "@ CAA 0 issue \"ca.example\"");
    for is_led in [true, false] {
        own(true);
        service(Some("90"));
        let mut leader = start();
        until("the own name has the address", || spec("eu.v3.example")["records"] == json!([apex])).await;
        until("the TTL is set", || spec("db.v3.example")["ttl"] == 90).await;
        edit("eu.v3.example", json!({"records": [apex, caa]})).await;
        until("both have theirs", || spec("eu.v3.example")["records"] == json!([caa, apex])).await;
        if is_led {
            own(false);
            service(None);
        } else {
            leader.stop().await;
            own(false);
            service(None);
            leader = start();
        }
        until("the address goes", || spec("eu.v3.example")["records"] == json!([caa])).await;
        until("the TTL goes", || spec("db.v3.example")["ttl"] == 30).await;

        edit("eu.v3.example", json!({"records": [caa, "@ A 192.0.2.99"]})).await;
        edit("db.v3.example", json!({"ttl": 77})).await;
        tokio::time::sleep(WHILE).await;
        leader.stop().await;
        let leader = start();
        tokio::time::sleep(WHILE).await;
        assert_eq!(spec("eu.v3.example")["records"], json!([caa, "@ A 192.0.2.99"]), "{is_led}");
        assert_eq!(spec("db.v3.example")["ttl"], 77, "{is_led}");
        leader.stop().await;
        edit("eu.v3.example", json!({"records": []})).await;
    }
}

/// Two changes of the addresses during one write.
#[tokio::test]
async fn an_address_that_comes_and_goes() {
    let (platform, cluster) = (platform().await, cluster(&["eu"], 1));
    let leader = Leader::start(&platform, &cluster, settings());
    until("all is written", || counts(&platform) == (1, 1)).await;
    let report = |ips: &[&str]| {
        let mut changed = gateway("eu");
        changed["status"]["addresses"] = ips.iter().map(|ip| json!({"value": ip})).collect();
        cluster.put(Kind::Gateway, changed);
    };
    let writes = || platform.connection.requests("PATCH routers");
    let before = writes();
    platform.connection.hold(Some("PATCH routers"));
    report(&["192.0.2.1", "192.0.2.2"]);
    until("the write begins", || writes() == before + 1).await;
    report(&["192.0.2.1"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    platform.connection.hold(None);
    let ips = || -> Vec<Value> {
        let addresses = platform.all("routers")[0]["spec"]["addresses"].clone();
        addresses.as_array().expect("a list").iter().map(|address| address["ip"].clone()).collect()
    };
    until("both are written", || writes() == before + 2).await;
    until("the address is withdrawn", || ips() == ["192.0.2.1"]).await;
    leader.stop().await;
}

/// Each fault, of each kind; what is unknown stays.
#[tokio::test]
async fn what_is_unknown_is_not_empty() {
    type Fault = fn(&Cluster, Kind);
    let faults: [(&str, Fault); 5] = [
        ("its permission is revoked", |cluster, kind| cluster.forbid(kind, true)),
        ("its lists are empty", |cluster, kind| cluster.empty(kind, true)),
        ("its definition is not served", |cluster, kind| cluster.serve(kind, Served::No)),
        ("its definition is removed", |cluster, kind| cluster.remove_definition(kind)),
        ("the API is away", |cluster, _| cluster.set_down(true)),
    ];
    for (fault, begin) in faults {
        for kind in [Kind::Gateway, Kind::GatewayClass, Kind::HTTPRoute, Kind::ListenerSet] {
            for leads_before in [true, false] {
                let (platform, cluster) = (platform().await, cluster(&["eu", "us"], 8));
                let mut leader = Leader::start(&platform, &cluster, settings());
                until("all is written", || counts(&platform) == (2, 8)).await;
                let before = written(&platform);
                if !leads_before {
                    leader.stop().await;
                    begin(&cluster, kind);
                    leader = Leader::start(&platform, &cluster, settings());
                } else {
                    begin(&cluster, kind);
                }
                tokio::time::sleep(WHILE).await;
                assert_eq!(written(&platform), before, "{fault}: {} {leads_before}", kind.name());
                leader.stop().await;
            }
        }
    }
}

/// A definition that is installed later is picked up.
#[tokio::test]
async fn a_kind_that_comes_later() {
    let (platform, cluster) = (platform().await, cluster(&["eu"], 2));
    for kind in [Kind::Gateway, Kind::HTTPRoute] {
        cluster.serve(kind, Served::No);
    }
    let leader = Leader::start(&platform, &cluster, settings());
    tokio::time::sleep(WHILE).await;
    assert_eq!(counts(&platform), (0, 0));
    cluster.heal();
    until("all is written", || counts(&platform) == (1, 2)).await;
    leader.stop().await;
}

/// Lists do not show why an object is missing: many missing ones are held, and go when an administrator approves.
#[tokio::test]
async fn losses_by_list_are_held() {
    let (platform, cluster) = (platform().await, cluster(&["eu"], 12));
    let leader = Leader::start(&platform, &cluster, settings());
    until("all is written", || counts(&platform) == (1, 12)).await;
    for number in 0..6 {
        cluster.delete_unseen(Kind::HTTPRoute, &format!("shop/app{number}"));
    }
    until("a hold is reported", || platform.all("deletionholds").len() == 1).await;
    until("there is a note", || leader.has_note("Held")).await;
    assert_eq!(counts(&platform), (1, 12));
    // One that returns is not lost.
    cluster.put(Kind::HTTPRoute, route("app0", "eu", true));
    tokio::time::sleep(WHILE).await;
    assert_eq!(counts(&platform), (1, 12));
    let mut hold = platform.all("deletionholds").remove(0);
    hold["spec"]["decision"] = json!("approve");
    hold["metadata"]["generation"] = json!(2);
    platform.put("deletionholds", hold);
    until("the approved ones go", || counts(&platform).1 == 7).await;
    assert!(written(&platform).1.contains("app0.eu.v3.example"));
    leader.stop().await;
}

/// A source that is switched off or shown leaves the written objects, also in the next leader.
#[tokio::test]
async fn a_source_that_is_switched_off() {
    let (platform, cluster) = (platform().await, cluster(&["eu"], 3));
    let leader = Leader::start(&platform, &cluster, settings());
    until("all is written", || counts(&platform) == (1, 3)).await;
    leader.stop().await;
    for mode in [Mode::Show, Mode::Off] {
        let settings = Settings { modes: BTreeMap::from([(Family::Gateway, mode)]), ..settings() };
        let leader = Leader::start(&platform, &cluster, settings);
        cluster.delete(Kind::HTTPRoute, "shop/app0");
        cluster.put(Kind::HTTPRoute, route("more", "eu", true));
        tokio::time::sleep(WHILE).await;
        assert_eq!(counts(&platform), (1, 3), "{mode:?}");
        leader.stop().await;
    }
}

/// A Router that no source wrote has its zone.
#[tokio::test]
async fn a_router_by_hand_wins() {
    let (platform, cluster) = (platform().await, cluster(&["eu", "us"], 2));
    platform.put("routers", super::router("by-hand", &json!({"dns": "eu.v3.example"})));
    let leader = Leader::start(&platform, &cluster, settings());
    until("the other is written", || counts(&platform) == (2, 1)).await;
    until("there is a note", || leader.has_note("DomainAlreadyInUse")).await;
    tokio::time::sleep(WHILE).await;
    assert_eq!(counts(&platform), (2, 1));
    leader.stop().await;
}

/// Random events and faults; what the cluster still means is never withdrawn, and it converges when the faults end.
#[tokio::test]
async fn whatever_the_cluster_does() {
    let seeds = std::env::var("SIMULATION_SOURCE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(8);
    for seed in 0..seeds {
        storm(seed).await;
    }
}

async fn storm(seed: u64) {
    let chance = Chance::new(seed);
    let (platform, cluster) = (platform().await, cluster(&["eu", "us", "ap"], 30));
    let mut leader = Leader::start(&platform, &cluster, settings());
    until("all is written", || counts(&platform) == (3, 30)).await;
    // The objects that were not deleted since the start.
    let mut kept: BTreeSet<String> = cluster.keys(Kind::HTTPRoute).into_iter().collect();
    let kinds = [Kind::Gateway, Kind::GatewayClass, Kind::HTTPRoute, Kind::ListenerSet, Kind::Namespace, Kind::Service];
    let host = |key: &str| {
        let name = key.strip_prefix("shop/").expect("it is there");
        let number: usize = name.strip_prefix("app").expect("a number").parse().expect("a number");
        format!("{name}.{}.v3.example", ["eu", "us", "ap"][number % 3])
    };
    for step in 0..40 {
        let kind = *chance.one_of(&kinds).expect("there are some");
        match chance.below(10) {
            0 => cluster.forbid(kind, true),
            1 => cluster.empty(kind, true),
            2 if kind != Kind::Namespace && kind != Kind::Service => cluster.serve(kind, Served::No),
            3 => cluster.set_down(true),
            4 => cluster.heal(),
            5 => {
                leader.stop().await;
                leader = Leader::start(&platform, &cluster, settings());
            }
            6 => {
                let all: Vec<String> = kept.iter().cloned().collect();
                if let Some(key) = chance.one_of(&all).filter(|_| kept.len() > 20) {
                    cluster.delete(Kind::HTTPRoute, key);
                    kept.remove(key);
                }
            }
            _ => {
                let name = format!("app{}", chance.below(30));
                if kept.contains(&format!("shop/{name}")) {
                    let of = ["eu", "us", "ap"][name[3..].parse::<usize>().expect("a number") % 3];
                    let mut touched = route(&name, of, true);
                    touched["metadata"]["annotations"] = json!({"signpost.dev/touched": step.to_string()});
                    cluster.put(Kind::HTTPRoute, touched);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(chance.below(20_000))).await;
        let (zones, hosts) = written(&platform);
        assert_eq!(zones.len(), 3, "seed {seed}, step {step}: a shard is withdrawn");
        for key in &kept {
            assert!(hosts.contains(&host(key)), "seed {seed}, step {step}: {key} is withdrawn");
        }
    }
    cluster.heal();
    let expected: BTreeSet<String> = kept.iter().map(|key| host(key)).collect();
    // Deletions that no watch showed can be held: an administrator approves.
    until("it converges", || {
        for mut hold in platform.all("deletionholds") {
            if hold["spec"]["decision"].is_null() {
                hold["spec"]["decision"] = json!("approve");
                hold["metadata"]["generation"] = json!(hold["metadata"]["generation"].as_i64().unwrap_or(1) + 1);
                platform.put("deletionholds", hold);
            }
        }
        written(&platform).1 == expected
    })
    .await;
    leader.stop().await;
}
