//! The leader of an API that comes back empty: nothing is deleted because an object is missing, until the loss was approved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use signpost_control::deletion_hold::keep;
use signpost_control::deletion_hold::losses::HeldLosses;
use signpost_control::deletion_hold::reporter::{Holder, Reporter};
use signpost_control::instances::{self, KeepFilter, Runtime, Wanted};
use signpost_control::ledger::{self, BaseSerial};
use signpost_control::world::World;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::scheduling::{Running, platform, scheduled, start_in};
use super::{Scene, namespace, placement, route, router, until};
use crate::settings;

/// Longer than the settling of the reconciler, the runtime's interval, and the time after which the ledger deletes a Zone.
const OUTAGE: Duration = Duration::from_secs(30);
const ROUTES: usize = 8;

/// The Routers with running instances.
#[derive(Clone, Default)]
struct Instances(Arc<Mutex<BTreeSet<String>>>);

impl Runtime for Instances {
    async fn reconcile(
        &mut self,
        wanted: &BTreeMap<String, Wanted>,
        kept: &KeepFilter<'_>,
    ) -> BTreeMap<String, String> {
        let mut running = self.0.lock();
        let kept = kept(running.iter().map(String::as_str).filter(|router| !wanted.contains_key(*router)).collect());
        running.retain(|router| kept.contains(router));
        running.extend(wanted.keys().cloned());
        BTreeMap::new()
    }

    async fn shut_down(&mut self) {}
}

/// The loops of a leader that delete something.
struct Leader {
    placing: Running,
    loops: JoinSet<()>,
    stop: CancellationToken,
}

impl Leader {
    fn start(api: &Scene, instances: &Instances) -> Leader {
        let keeping = placement::settings(|_| ());
        let world = placement::world(api);
        let stop = CancellationToken::new();
        let mut loops = JoinSet::new();
        let losses = Arc::<HeldLosses>::default();
        let reporter = Reporter::new(api.client(), &world.holds, Holder::scheduler("leader", &["pod"]), losses.clone());
        loops.spawn(reporter.run(stop.clone()));
        loops.spawn(keep::run(world.clone(), losses, watch::Sender::new(25).subscribe(), stop.clone()));
        loops.spawn(instances::run(world.clone(), instances.clone(), stop.clone(), CancellationToken::new()));
        loops.spawn(ledger(api, &world, stop.clone()));
        let (placing, _) = start_in(api, &world, |_| (), keeping);
        Leader { placing, loops, stop }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        self.placing.stop().await;
        while self.loops.join_next().await.is_some() {}
    }
}

fn ledger(api: &Scene, world: &World, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
    let (description, base) = (watch::Sender::new(None).subscribe(), BaseSerial::None);
    let sources = ledger::Sources { world: world.clone(), settings: settings(), former: None, base, description };
    ledger::run(api.client(), sources, Arc::default(), stop)
}

/// All that would be deleted: the instances, claims that are held, bindings, and Zones of shards.
fn dependents(api: &Scene, instances: &Instances) -> [BTreeSet<String>; 4] {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let held = api.all("nameclaims").into_iter().filter(|claim| claim["spec"]["releasedAt"].is_null());
    let shards = api.all("zones").into_iter().filter(|zone| zone["spec"]["type"] == "shard");
    [
        instances.0.lock().clone(),
        held.map(|claim| name(&claim)).collect(),
        api.all("routebindings").iter().map(name).collect(),
        shards.map(|zone| name(&zone)).collect(),
    ]
}

/// Returns the holds, each with its kept parts, and the missing objects.
fn holds(api: &Scene) -> Vec<(String, Vec<String>, u64)> {
    let hold = |hold: Value| {
        let holders = hold["status"]["holders"].as_array().cloned().unwrap_or_default();
        let keeps = holders.iter().flat_map(|holder| holder["keeps"].as_array().cloned().unwrap_or_default());
        let keeps = keeps.filter_map(|kept| kept.as_str().map(str::to_owned)).collect();
        let kind = hold["spec"]["type"].as_str().unwrap_or_default().to_owned();
        (kind, keeps, hold["status"]["objects"].as_u64().unwrap_or(0))
    };
    let mut holds: Vec<_> = api.all("deletionholds").into_iter().map(hold).collect();
    holds.sort();
    holds
}

async fn furnished() -> (Scene, Instances) {
    let (api, instances) = (platform(0).await, Instances::default());
    for number in 1..=4 {
        api.put("routers", router(&format!("shard{number}"), &json!({"type": "haproxy", "instances": 1})));
    }
    for number in 0..ROUTES {
        let host = json!({"host": format!("www{number}.shop.example")});
        api.put("routes", route("ns", &format!("app{number}"), &host));
    }
    (api, instances)
}

async fn settled(api: &Scene, instances: &Instances) -> [BTreeSet<String>; 4] {
    until("all is there", || {
        let sizes = dependents(api, instances).map(|all| all.len());
        scheduled(api) == ROUTES && sizes == [4, 2 * ROUTES, ROUTES, 4]
    })
    .await;
    dependents(api, instances)
}

async fn lose(api: &Scene, lost: &'static [&'static str]) {
    api.connection.lose(lost);
    // Watches begin at a revision that is no longer there.
    api.put("namespaces", namespace("other"));
    api.api.forget_history().await;
}

#[tokio::test]
async fn an_api_that_is_empty_for_half_a_minute_deletes_nothing() {
    let (api, instances) = furnished().await;
    let leader = Leader::start(&api, &instances);
    let before = settled(&api, &instances).await;
    lose(&api, &["routers", "routes"]).await;
    until("the holds are reported", || holds(&api).len() == 2).await;
    tokio::time::sleep(OUTAGE).await;
    assert_eq!(dependents(&api, &instances), before);
    let kept = |kinds: &[&str]| kinds.iter().map(|kind| (*kind).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        holds(&api),
        [
            ("RouteBinding".to_owned(), kept(&["RouteBinding", "NameClaim"]), ROUTES as u64),
            ("Router".to_owned(), kept(&["pod", "Zone"]), 4)
        ]
    );
    // The objects return, and the holds end by themselves.
    lose(&api, &[]).await;
    until("the holds end", || holds(&api).is_empty()).await;
    assert_eq!(dependents(&api, &instances), before);

    // What a client deletes goes at once.
    let since = tokio::time::Instant::now();
    api.delete("routers", "", "shard4");
    until("the instances of a deleted Router stop", || instances.0.lock().len() == 3).await;
    api.delete("routes", "ns", "app0");
    until("a deleted Route has no binding and no claims", || {
        let [_, claims, bindings, _] = dependents(&api, &instances);
        claims.len() == 2 * (ROUTES - 1) && bindings.len() == ROUTES - 1
    })
    .await;
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    until("the Zone goes", || dependents(&api, &instances)[3].len() == 3).await;
    assert!(holds(&api).is_empty());
    leader.stop().await;
}

/// The first list of a leader lacks them: what depends on them shows that they were there.
#[tokio::test]
async fn a_leader_that_starts_with_an_empty_api_deletes_what_is_approved() {
    let (api, instances) = furnished().await;
    let leader = Leader::start(&api, &instances);
    let before = settled(&api, &instances).await;
    leader.stop().await;
    lose(&api, &["routers", "routes"]).await;
    let leader = Leader::start(&api, &instances);
    until("the holds are reported", || holds(&api).len() == 2).await;
    tokio::time::sleep(OUTAGE).await;
    assert_eq!(dependents(&api, &instances), before);
    // They were lost permanently.
    for object in api.all("routers").into_iter().chain(api.all("routes")) {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let plural = if object["kind"] == "Router" { "routers" } else { "routes" };
        api.delete(plural, &text("namespace"), &text("name"));
    }
    for mut hold in api.all("deletionholds") {
        hold["spec"]["decision"] = json!("approve");
        hold["metadata"]["generation"] = json!(2);
        api.put("deletionholds", hold);
    }
    until("all of it goes", || dependents(&api, &instances).iter().all(BTreeSet::is_empty)).await;
    until("the holds end", || holds(&api).is_empty()).await;
    leader.stop().await;
}
