//! Tests of the loops against the API server, in one process: from objects to the map of zones, on several name servers.

#[path = "zone_controller_api/platform.rs"]
mod platform;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::response::IntoResponse as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use signpost_api::identity::{Identity, USER_NAME_SERVER};
use signpost_control::client;
use signpost_control::compiler::challenges::ChallengeInput;
use signpost_control::deletion_hold::hold::{Held, HoldDecision};
use signpost_control::deletion_hold::reporter::{Holder, Reporter};
use signpost_control::name_server::domain::Domains;
use signpost_control::name_server::files::static_zones::{self, StaticZones};
use signpost_control::name_server::last_known_good::LastKnownGood;
use signpost_control::name_server::record;
use signpost_dns::update::{Job, Operation, Right};
use signpost_dns::wire::RecordType;
use signpost_testing::name_server::{Reply, records};
use signpost_types::v1alpha1::challenge_record::{ChallengeRecord, ChallengeRecordSpec};
use signpost_types::v1alpha1::deletion_hold::{Decision, DeletionHold, DeletionHoldKind};
use signpost_types::v1alpha1::zone::ZonePlatform;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use platform::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_the_api_serves_what_was_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let serials = {
        let platform = Platform::start().await;
        platform.create_router("shard1", &["192.0.2.1"]).await;
        platform.create_router("shard2", &["192.0.2.2"]).await;
        platform.bind("app", "shard1").await;
        let server = NameServer::start(platform.client(USER_NAME_SERVER), Some(&state));
        until("ready", || server.db.is_ready() && server.wildcard("shard2").is_some() && server.has_alias("app")).await;
        platform.delete_router("shard2").await;
        until("shard2 is gone", || server.wildcard("shard2").is_none() && !server.is_delegated("shard2")).await;
        let serials = server.serials();
        server.stop().await;
        serials
    };
    let server = NameServer::start(unavailable_api(), Some(&state));
    until("ready", || server.db.is_ready()).await;
    assert_eq!(server.serials(), serials);
    assert!(
        server.has_alias("app") && server.wildcard("shard1") == Some(vec![1]) && !server.status.losses().is_synced()
    );
    server.stop().await;

    // Without a state, nothing is known: not ready, and no answers.
    let fresh = NameServer::start(unavailable_api(), Some(&folder.path().join("other")));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!fresh.db.is_ready() && !fresh.status.state().is_ready);
    fresh.stop().await;

    // The loss is held when an API has lost its objects, until a user approves it; its existing objects are served.
    let emptied = Platform::start().await;
    emptied.create_router("other", &["192.0.2.9"]).await;
    let server = NameServer::start(emptied.client(USER_NAME_SERVER), Some(&state));
    until("the loss is held", || !server.status.losses().held().is_empty() && server.wildcard("other").is_some()).await;
    assert_eq!(server.wildcard("shard1"), Some(vec![1]));
    // Objects of those names with another zone and another label are different ones, and restore nothing.
    until("the alias is held", || server.status.losses().held().len() == 2).await;
    let held_of = |kind| server.status.losses().held().into_iter().find(|held| held.kind == kind);
    for kind in DeletionHoldKind::ALL {
        let missing = held_of(kind);
        match kind {
            DeletionHoldKind::Router => {
                emptied.create_router_at("shard1", "elsewhere.v3.example", &["192.0.2.8"]).await
            }
            DeletionHoldKind::RouteBinding => emptied.bind_as("app", "other", "another").await,
        }
        until("another one is held", || held_of(kind).is_some_and(|held| Some(&held) != missing.as_ref())).await;
        assert!(server.wildcard("shard1") == Some(vec![1]) && server.has_alias("app"), "{kind:?}");
    }
    let before = server.db.get(&name("v3.example.")).and_then(|zone| zone.serial()).expect("a serial");
    let approval = |held: Held| (held.id, HoldDecision { decision: Decision::Approve, set: held.set });
    server.status.losses().set_decisions(server.status.losses().held().into_iter().map(approval).collect());
    until("the loss is approved", || server.wildcard("shard1").is_none() && server.status.losses().held().is_empty())
        .await;
    until("the parent follows", || !server.is_delegated("shard1") && server.is_delegated("elsewhere")).await;
    until("the alias goes", || !server.has_alias("app")).await;
    let after = server.db.get(&name("v3.example.")).and_then(|zone| zone.serial()).expect("a serial");
    assert!(after.is_after(before), "{after} after {before}");
    server.stop().await;

    // A damaged state is moved aside and reported, for any position of the damage, such as the version; no answers are given until
    // the API responds, and then nothing is held from the former state.
    let file = state.join("last-good");
    let whole = std::fs::read(&file).expect("the state");
    for at in [8, 20, whole.len() / 2, whole.len() - 1] {
        let mut octets = whole.clone();
        octets[at] ^= 1;
        std::fs::write(&file, octets).expect("damaged");
        let unheard = NameServer::start(unavailable_api(), Some(&state));
        until("the damage is reported", || unheard.status.state().is_last_good_refused).await;
        assert!(state.join("last-good.damaged").exists(), "{at}");
        assert!(!unheard.db.is_ready() && !unheard.status.state().is_ready, "{at}");
        unheard.stop().await;
    }
    let server = NameServer::start(emptied.client(USER_NAME_SERVER), Some(&state));
    until("ready", || server.db.is_ready() && server.wildcard("other").is_some()).await;
    assert!(server.status.losses().held().is_empty() && server.wildcard("shard1").is_none());
    server.stop().await;

    // A rejected state is reported until a new state is on disk, from which the next process answers.
    let mut octets = std::fs::read(&file).expect("the state");
    octets[20] ^= 1;
    std::fs::write(&file, octets).expect("damaged");
    let server = NameServer::start(emptied.client(USER_NAME_SERVER), Some(&state));
    until("a state was refused", || server.status.state().last_good_refused_at.is_some()).await;
    until("there is a new one", || !server.status.state().is_last_good_refused).await;
    assert!(server.status.state().is_ready && server.status.state().last_good_refused_at.is_some());
    server.stop().await;
    let next = NameServer::start(unavailable_api(), Some(&state));
    until("it answers without the API", || next.wildcard("other").is_some()).await;
    assert!(next.status.state().last_good_refused_at.is_none());
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_and_a_router_never_serve_one_apex_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).expect("written");
    let zone_text =
        |address: &str| format!("$TTL 9\n@ SOA ns.example. h.example. 7 1 1 1 1\n@ NS ns.example.\n* A {address}\n");
    write("shard1.v3.example.zone", &zone_text("198.51.100.7"));
    write("v3.example.zone", "$TTL 9\n@ SOA ns1 h 7 1 1 1 1\n@ NS ns1\nns1 A 127.0.0.1\nwww A 198.51.100.8\n");
    write("broken.example.zone", "@ SOA this is none\n");
    let zones = Arc::new(publisher());
    let mut files = StaticZones::new(folder.path(), zones.clone());
    let loaded = files.load().expect("the folder is there");
    assert_eq!((loaded.served, loaded.refused), (2, 1));
    let stop = CancellationToken::new();
    let (reloader, running) = static_zones::run(files, Arc::default(), stop.clone());
    let running = tokio::spawn(running);

    let platform = Platform::start().await;
    platform.create_router("shard1", &["192.0.2.1"]).await;
    let client = platform.client(USER_NAME_SERVER);
    let server = NameServer::start_over(client, None, zones);
    until("the parent has the base's records", || {
        server.records("v3.example.", "www.v3.example.", RecordType::A) == Some(vec![8])
            && server.is_delegated("shard1")
    })
    .await;
    until("the clash is reported", || {
        server.status.state().diagnostics.clone().iter().any(|diagnostic| {
            diagnostic.message.contains("shard1.v3.example.zone") && diagnostic.object.to_string() == "Router shard1"
        })
    })
    .await;
    assert_eq!(server.wildcard("shard1"), Some(vec![7]), "the file serves");
    let broken = server.db.get(&name("broken.example.")).expect("known");
    assert!(broken.why_unavailable().is_some());

    std::fs::remove_file(folder.path().join("shard1.v3.example.zone")).expect("removed");
    write("broken.example.zone", &zone_text("198.51.100.9"));
    reloader.reload().await.expect("it runs").expect("it reads");
    until("the Router serves", || server.wildcard("shard1") == Some(vec![1])).await;
    assert_eq!(server.records("broken.example.", "*.broken.example.", RecordType::A), Some(vec![9]));

    // A file inside a zone from objects hides a part of it, which is reported for the object.
    platform.bind("app", "shard1").await;
    let inside = ["hidden.shard1.v3.example.zone", "default-app.routes.v3.example.zone", "free.routes.v3.example.zone"];
    inside.iter().for_each(|file| write(file, &zone_text("198.51.100.7")));
    reloader.reload().await.expect("it runs").expect("it reads");
    let reported = || {
        let diagnostics = server.status.state().diagnostics.clone();
        let of = |object: &str, file: &str| {
            diagnostics.iter().any(|one| one.object.to_string() == object && one.message.contains(file))
        };
        [of("Router shard1", inside[0]), of("RouteBinding default/app", inside[1])]
    };
    until("both are reported", || reported() == [true, true]).await;
    let about_free =
        server.status.state().diagnostics.clone().iter().any(|diagnostic| diagnostic.message.contains(inside[2]));
    assert!(!about_free, "no route has the alias");
    inside.iter().for_each(|file| std::fs::remove_file(folder.path().join(file)).expect("removed"));
    reloader.reload().await.expect("it runs").expect("it reads");
    until("it is over", || reported() == [false, false]).await;

    // The kernel reports this change, or the reload finds it.
    write("shard1.v3.example.zone", &zone_text("198.51.100.7"));
    write("broken.example.zone", "@ SOA this is none\n");
    reloader.reload().await.expect("it runs").expect("it reads");
    assert_eq!(server.wildcard("shard1"), Some(vec![7]), "the file is back");
    assert_eq!(
        server.records("broken.example.", "*.broken.example.", RecordType::A),
        Some(vec![9]),
        "its last good version"
    );

    stop.cancel();
    running.await.expect("it ends without an error");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_list_shows_as_lost_is_held_and_what_a_watch_reports_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    {
        let platform = Platform::start().await;
        for router in ["shard1", "shard2", "shard3"] {
            platform.create_router(router, &["192.0.2.1"]).await;
        }
        let server = NameServer::start(platform.client(USER_NAME_SERVER), Some(&state));
        until("ready", || server.db.is_ready() && server.wildcard("shard3").is_some()).await;
        // Deliberate and watched: the last address, and the whole shard.
        platform.set_addresses("shard3", &[]).await;
        until("the last address is gone", || server.wildcard("shard3").is_none()).await;
        platform.delete_router("shard3").await;
        until("the shard is gone", || server.db.get(&name("shard3.v3.example.")).is_none()).await;
        assert_eq!(server.status.losses().held(), []);
        server.stop().await;
    }
    // A different API: one shard is there without an address, one is missing.
    let other = Platform::start().await;
    other.create_router("shard1", &[]).await;
    let server = NameServer::start(other.client(USER_NAME_SERVER), Some(&state));
    until("both are held", || server.status.losses().held().first().is_some_and(|held| held.count == 2)).await;
    assert_eq!((server.wildcard("shard1"), server.wildcard("shard2")), (Some(vec![1]), Some(vec![1])));
    let held = server.status.losses().held();
    // A write of another field gives no information about the addresses, and neither does the next.
    for number in 0..3 {
        other.label_router("shard1", &number.to_string()).await;
        other.create_router(&format!("later{number}"), &["192.0.2.3"]).await;
        until("the loop has continued", || server.wildcard(&format!("later{number}")).is_some()).await;
        assert_eq!((server.status.losses().held(), server.wildcard("shard1")), (held.clone(), Some(vec![1])));
    }
    let held = server.status.losses().held();
    // A change of one of them is now watched, and applied.
    other.set_addresses("shard1", &["192.0.2.7"]).await;
    until("the edit counts", || server.wildcard("shard1") == Some(vec![7])).await;
    until("one is left", || server.status.losses().held().first().is_some_and(|held| held.count == 1)).await;
    // An approval of both covers each of them while it is held.
    let approval = HoldDecision { decision: Decision::Approve, set: held[0].set.clone() };
    server.status.losses().set_decisions([(held[0].id.clone(), approval)].into());
    other.set_addresses("shard1", &["192.0.2.8"]).await;
    until("the loop continues", || server.wildcard("shard1") == Some(vec![8])).await;
    until("nothing is held", || server.status.losses().held().is_empty() && server.wildcard("shard2").is_none()).await;
    other.create_router("shard2", &["192.0.2.2"]).await;
    until("it is served again", || server.wildcard("shard2") == Some(vec![2])).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_reported_to_the_api_and_decided_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let states = ["one", "two"].map(|state| folder.path().join(state));
    {
        let platform = Platform::start().await;
        platform.create_router("shard1", &["192.0.2.1"]).await;
        platform.bind("app", "shard1").await;
        for state in &states {
            let server = NameServer::start(platform.client(USER_NAME_SERVER), Some(state));
            until("ready", || server.db.is_ready() && server.has_alias("app")).await;
            server.stop().await;
        }
    }
    let emptied = Platform::start().await;
    let stop = CancellationToken::new();
    let start = |state: &Path, server: &str| {
        let running = NameServer::start(emptied.client(USER_NAME_SERVER), Some(state));
        let client = emptied.client(USER_NAME_SERVER);
        let holds = world(&client).holds;
        let reporter = Reporter::new(
            client,
            &holds,
            Holder::name_server(server.to_owned(), None),
            running.status.losses().clone(),
        );
        tokio::spawn(reporter.run(stop.clone()));
        running
    };
    let [one, two] = [start(&states[0], "ns1"), start(&states[1], "ns2")];
    let deletion_holds = Api::<DeletionHold>::all(emptied.admin());
    let hold_ids = async || {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let list = deletion_holds.list(&Default::default()).await.expect("listed").items;
            let holders =
                |deletion_hold: &DeletionHold| deletion_hold.status.as_ref().map_or(0, |status| status.holders.len());
            if list.len() == 2 && list.iter().all(|deletion_hold| holders(deletion_hold) == 2) {
                return list
                    .into_iter()
                    .map(|deletion_hold| deletion_hold.metadata.name.expect("a name"))
                    .collect::<Vec<_>>();
            }
            assert!(Instant::now() < deadline, "{list:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ids = hold_ids().await;
    let decide = async |id: &str, decision: &str| {
        let patch = Patch::Merge(json!({"spec": {"decision": decision}}));
        deletion_holds.patch(id, &PatchParams::default(), &patch).await.expect("decided");
    };
    for id in &ids {
        decide(id, "reject").await;
    }
    let quiet = |server: &NameServer| {
        let held = server.status.losses().held();
        held.len() == 2 && held.iter().all(|held| held.decision == Some(Decision::Reject))
    };
    until("both are quiet", || quiet(&one) && quiet(&two)).await;
    assert!(one.has_alias("app") && two.wildcard("shard1") == Some(vec![1]));
    // If a user deletes the object, it is created again.
    for id in &ids {
        deletion_holds.delete(id, &DeleteParams::default()).await.expect("deleted");
    }
    until("the alarm is back", || {
        [&one, &two].iter().all(|server| server.status.losses().held().iter().all(|held| held.decision.is_none()))
    })
    .await;
    assert_eq!(hold_ids().await, ids);
    for id in &ids {
        decide(id, "approve").await;
    }
    until("the names go", || {
        [&one, &two].iter().all(|server| {
            server.status.losses().held().is_empty() && !server.has_alias("app") && server.wildcard("shard1").is_none()
        })
    })
    .await;
    let deadline = Instant::now() + PATIENCE;
    while !deletion_holds.list(&Default::default()).await.expect("listed").items.is_empty() {
        assert!(Instant::now() < deadline, "the last one that leaves deletes it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stop.cancel();
    for server in [one, two] {
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_hold_that_was_never_entered_goes_as_soon_as_nothing_is_held() {
    let folder = tempfile::tempdir().expect("a folder");
    {
        let platform = Platform::start().await;
        platform.create_router("shard1", &["192.0.2.1"]).await;
        platform.bind("app", "shard1").await;
        let server = NameServer::start(platform.client(USER_NAME_SERVER), Some(folder.path()));
        until("ready", || server.db.is_ready() && server.has_alias("app")).await;
        server.stop().await;
    }
    let emptied = Platform::start().await;
    // DeletionHolds can be created, but not changed.
    let fails = Arc::new(AtomicBool::new(true));
    let (service, failing) = (emptied.server.router_as(Identity::user(USER_NAME_SERVER)), fails.clone());
    let lame = axum::Router::new().fallback(move |request: axum::extract::Request| {
        let (service, fails) = (service.clone(), failing.load(Ordering::Relaxed));
        async move {
            match fails && request.uri().path().contains("/deletionholds/") {
                true => http::StatusCode::GONE.into_response(),
                false => service.oneshot(request).await.into_response(),
            }
        }
    });
    let server = NameServer::start(emptied.client(USER_NAME_SERVER), Some(folder.path()));
    let client = client::in_process(lame);
    let stop = CancellationToken::new();
    let holds = world(&client).holds;
    let holder = Holder::name_server("ns1".to_owned(), None);
    tokio::spawn(Reporter::new(client, &holds, holder, server.status.losses().clone()).run(stop.clone()));
    let deletion_holds = Api::<DeletionHold>::all(emptied.admin());
    let counted = async |count: usize| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let list = deletion_holds.list(&Default::default()).await.expect("listed").items;
            assert!(list.iter().all(|deletion_hold| !deletion_hold.is_held()), "{list:?}");
            if list.len() == count {
                return;
            }
            assert!(Instant::now() < deadline, "{list:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    counted(1).await;
    emptied.create_router("shard1", &["192.0.2.1"]).await;
    emptied.bind("app", "shard1").await;
    until("all is there again", || server.status.losses().held().is_empty()).await;
    fails.store(false, Ordering::Relaxed);
    counted(0).await;
    stop.cancel();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routers_that_no_name_leads_to_are_deleted_together() {
    let platform = Platform::start().await;
    let names: Vec<String> = (1..=8).map(|number| format!("shard{number}")).collect();
    for router in &names {
        platform.create_router(router, &["192.0.2.1"]).await;
    }
    platform.bind("app", "shard8").await;
    let server = NameServer::start(platform.client(USER_NAME_SERVER), None);
    until("ready", || server.db.is_ready() && server.has_alias("app")).await;
    until("all are served", || names.iter().all(|router| server.wildcard(router).is_some())).await;
    // Seven of eight within a moment: they would be held from the fifth on, if a name resolved to them.
    for router in &names[..7] {
        platform.delete_router(router).await;
    }
    until("they are gone", || names[..7].iter().all(|router| server.wildcard(router).is_none())).await;
    assert_eq!(server.status.losses().held(), []);
    assert!(server.has_alias("app") && server.wildcard("shard8").is_some());
    server.stop().await;
}

/// The sender of changes that clients request, and what they expect.
struct Requests(mpsc::Sender<Job>);

impl Requests {
    /// Requests changes of a name in the zone of `shard1`; returns the response code.
    async fn send(&self, namespace: &str, operations: Vec<Operation>) -> String {
        let right = Right { key: name(&format!("acme.{namespace}.")), holder: namespace.into() };
        let (job, answered) = Job::new(right, name("shard1.v3.example."), operations);
        self.0.send(job).await.expect("the loop runs");
        answered.await.expect("an answer").to_string()
    }

    /// Requests changes until the response is not SERVFAIL. A name server that is late, on a busy machine, undoes them with that response.
    async fn send_until_decided(&self, namespace: &str, operations: Vec<Operation>) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let rcode = self.send(namespace, operations.clone()).await;
            if rcode != "SERVFAIL" || Instant::now() > deadline {
                return rcode;
            }
            // The name server must have seen that they are undone.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

const CHALLENGE: &str = "_acme-challenge.default-app.shard1.v3.example.";

fn add(value: &str) -> Vec<Operation> {
    vec![Operation::Add(name(CHALLENGE), value.as_bytes().into())]
}

/// Starts a platform with a Route, which lists these name servers, and a name server.
async fn with_route(asked: Vec<String>) -> (Platform, NameServer, Requests) {
    let described = ZonePlatform {
        name_servers: Vec::new(),
        transports: Vec::new(),
        https_path: None,
        asked,
        strategy: "round-robin".to_owned(),
        webhook_fallback: None,
        drain_rate: 1,
        former_name_retention_seconds: 1,
        name_quarantine_max: None,
        reserved_labels: None,
    };
    let platform = Platform::start_as(Some(described)).await;
    platform.create_router("shard1", &["192.0.2.1"]).await;
    platform.bind("app", "shard1").await;
    let (sender, jobs) = mpsc::channel(8);
    let client = platform.client(USER_NAME_SERVER);
    let server = NameServer::start_with_jobs(client, None, Arc::new(publisher()), jobs);
    until("the alias is served", || server.db.is_ready() && server.has_alias("app")).await;
    (platform, server, Requests(sender))
}

/// Returns the last octets of the values of the challenge.
fn values(server: &NameServer) -> String {
    let octets = server.records("shard1.v3.example.", CHALLENGE, RecordType::TXT).unwrap_or_default();
    String::from_utf8(octets).expect("ASCII")
}

async fn record_count(platform: &Platform) -> usize {
    let records = Api::<ChallengeRecord>::all(platform.admin());
    records.list(&ListParams::default()).await.expect("listed").items.len()
}

/// An update is answered when the record is served; the key of another namespace changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_becomes_a_record_that_is_served() {
    let deadline = Instant::now() + PATIENCE;
    let (platform, server, requests) = loop {
        let (platform, server, requests) = with_route(vec!["192.0.2.53:53".to_owned()]).await;
        let rcode = requests.send_until_decided("default", add("a")).await;
        assert_eq!((rcode.as_str(), values(&server).as_str()), ("NOERROR", "a"));
        let replace = [vec![Operation::DeleteAll(name(CHALLENGE))], add("b")].concat();
        let rcode = requests.send_until_decided("default", replace).await;
        assert_eq!((rcode.as_str(), values(&server).as_str()), ("NOERROR", "ab"));
        // The ledger allocates the serials. On a busy machine, it can be late.
        let provisional = server.status.state().counters.provisional;
        if provisional == 0 {
            break (platform, server, requests);
        }
        assert!(Instant::now() < deadline, "{provisional} serials are not those of the ledger");
        server.stop().await;
    };
    // The name keeps the wildcard's address.
    let host = "default-app.shard1.v3.example.";
    assert_eq!(server.records("shard1.v3.example.", host, RecordType::A), Some(vec![1]));
    for operation in [
        add("c").remove(0),
        Operation::Delete(name(CHALLENGE), (*b"a").into()),
        Operation::DeleteAll(name(CHALLENGE)),
        Operation::Add(name("_acme-challenge.shard1.v3.example."), (*b"c").into()),
    ] {
        assert_eq!(requests.send_until_decided("other", vec![operation]).await, "REFUSED");
    }
    for value in ["a", "b"] {
        let delete = vec![Operation::Delete(name(CHALLENGE), value.as_bytes().into())];
        assert_eq!(requests.send_until_decided("default", delete).await, "NOERROR");
    }
    assert_eq!((record_count(&platform).await, values(&server).as_str()), (0, ""));
}

/// A listed name server without the change: the client gets SERVFAIL, and the change is undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_a_name_server_lacks_is_undone() {
    let reply = || vec![Reply::Records(records(&["TXT old"]))];
    let other = signpost_testing::name_server::NameServer::answering(move |_, _| reply()).await;
    let (platform, server, requests) = with_route(vec![other.address.to_string()]).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let begun = Instant::now();
        let rcode = requests.send("default", add("a")).await;
        if rcode == "SERVFAIL" {
            assert!(begun.elapsed() >= Duration::from_millis(1_500));
            break;
        }
        // On a busy machine, the other one can be silent, and then does not count.
        assert!(rcode == "NOERROR" && Instant::now() < deadline, "{rcode}");
        let delete = vec![Operation::Delete(name(CHALLENGE), (*b"a").into())];
        assert_eq!(requests.send_until_decided("default", delete).await, "NOERROR");
    }
    assert_eq!(record_count(&platform).await, 0);
    until("the record is withdrawn", || values(&server).is_empty()).await;
    assert_eq!(requests.send_until_decided("default", add("old")).await, "NOERROR");
}

/// A ChallengeRecord of the namespace `default`.
async fn create_challenge(platform: &Platform, name: &str, value: &str, lifetime: Duration) {
    let expires_at = Time(Timestamp::now() + lifetime);
    let spec = ChallengeRecordSpec { name: name.to_owned(), value: value.to_owned(), key: None, expires_at };
    let metadata = ObjectMeta { name: Some(spec.object_name()), ..ObjectMeta::default() };
    let records = Api::<ChallengeRecord>::namespaced(platform.admin(), "default");
    records.create(&PostParams::default(), &ChallengeRecord { metadata, spec }).await.expect("created");
}

/// A name server that has just started, without the API, has each kind of proof for a certificate authority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn challenges_are_served_after_a_restart_without_the_api() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let folder = tempfile::tempdir().expect("a folder");
    let places = [
        ("shard1.v3.example.", "_acme-challenge.default-app.shard1.v3.example."),
        ("routes.v3.example.", "_acme-challenge.default-app.routes.v3.example."),
        ("v3.example.", "default-app.acme.v3.example."),
    ];
    let texts = |server: &NameServer| places.map(|(apex, owner)| server.records(apex, owner, RecordType::TXT));
    let platform = Platform::start().await;
    platform.create_router("shard1", &["192.0.2.1"]).await;
    platform.bind("app", "shard1").await;
    let server = NameServer::start(platform.client(USER_NAME_SERVER), Some(folder.path()));
    for (_, owner) in places {
        create_challenge(&platform, owner.trim_end_matches('.'), "a", HOUR).await;
    }
    until("they are served", || texts(&server).iter().all(|found| found.as_deref() == Some(b"a"))).await;
    let serials = server.serials();
    server.stop().await;

    let server = NameServer::start(unavailable_api(), Some(folder.path()));
    until("ready", || server.db.is_ready()).await;
    assert!(texts(&server).iter().all(|found| found.as_deref() == Some(b"a")), "{:?}", texts(&server));
    assert_eq!(server.serials(), serials, "nothing was published again");
    server.stop().await;

    // Those that went while it was down are withdrawn with the first list.
    let records = Api::<ChallengeRecord>::namespaced(platform.admin(), "default");
    records.delete_collection(&DeleteParams::default(), &ListParams::default()).await.expect("deleted");
    create_challenge(&platform, places[0].1.trim_end_matches('.'), "b", HOUR).await;
    let server = NameServer::start(platform.client(USER_NAME_SERVER), Some(folder.path()));
    until("only the new one is served", || texts(&server) == [Some(b"b".to_vec()), None, None]).await;
    server.stop().await;
}

/// While no leader deletes ChallengeRecords, name servers end them, after a restart, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_challenge_is_not_served() {
    let folder = tempfile::tempdir().expect("a folder");
    let platform = Platform::start().await;
    platform.create_router("shard1", &["192.0.2.1"]).await;
    platform.bind("app", "shard1").await;
    let server = NameServer::start(platform.client(USER_NAME_SERVER), Some(folder.path()));
    create_challenge(&platform, CHALLENGE.trim_end_matches('.'), "a", Duration::from_secs(3_600)).await;
    until("it is served", || values(&server) == "a").await;
    server.stop().await;

    // The state of a name server that was down for longer than that.
    let domains = Domains { domain: "v3.example".to_owned(), former: None };
    let (state, opened) = LastKnownGood::open(folder.path(), &domains).expect("usable");
    let loaded = opened.loaded.expect("a state");
    let [(key, challenge)] = &loaded.challenges[..] else { panic!("one record") };
    let past = Timestamp::now().as_second() - 60;
    state.write(vec![record::challenge(key, Some(&ChallengeInput { expires: past, ..challenge.clone() }))]);
    drop(state);
    let server = NameServer::start(unavailable_api(), Some(folder.path()));
    until("ready", || server.db.is_ready()).await;
    until("it ends", || values(&server).is_empty()).await;
    assert_eq!(server.wildcard("shard1"), Some(vec![1]));
    server.stop().await;
    let (_, opened) = LastKnownGood::open(folder.path(), &domains).expect("usable");
    assert!(opened.loaded.expect("a state").challenges.is_empty());
}
