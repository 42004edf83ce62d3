//! The memory per object of a process: the API server's cache, an informer, and the state of a Route in all control loops.
//!
//! The allocator of this test program counts the allocated octets. The counts are compared before and after, with many objects,
//! so that one-time costs hardly matter. A limit here is a tenth above the measured value.

#![allow(unsafe_code, reason = "an allocator that counts is a global allocator, which is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use signpost_api::identity::{GROUP_MASTERS, Identity};
use signpost_api::kinds::route::ROUTE;
use signpost_api::kinds::{PlatformConfig, kinds, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::object::encode;
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::store::{Key, Store, TXN_OPERATIONS_MAX, Txn, Write};
use signpost_apiserver::watch_cache::WatchCache;
use signpost_control::client::reflector::{self, reflect};
use signpost_control::world::{self, World};
use signpost_types::v1alpha1::route::Route;
use tokio_util::sync::CancellationToken;

const OBJECTS: usize = 8_192;
const PATIENCE: Duration = Duration::from_secs(60);

static ALLOCATED: AtomicI64 = AtomicI64::new(0);

struct Counting;

fn count(octets: usize, sign: i64) {
    ALLOCATED.fetch_add(sign * i64::try_from(octets).expect("no allocation is so large"), Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those of this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, octets: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(octets, 1);
        // SAFETY: as above; `pointer` came from `System`, as all do.
        unsafe { System.realloc(pointer, layout, octets) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Two tests at a time would count one another's memory.
#[test]
fn an_object_takes_little_memory() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = Arc::new(Memory::new());
        fill(&store, "Route", "default/", route).await;
        let taken = in_the_cache(&store).await;
        println!("a Route takes {taken} octets in the cache");
        assert!(taken < 695, "a Route takes {taken} octets in the cache");
        fill(&store, "RouteBinding", "default/", binding).await;
        fill(&store, "NameClaim", "", claim).await;
        let taken = in_the_cache(&store).await;
        println!("a Route, its binding and its claim take {taken} octets in the cache");
        assert!(taken < 1_840, "a Route, its binding and its claim take {taken} octets in the cache");
        in_the_informers(&store).await;
    });
}

async fn in_the_cache(store: &Memory) -> i64 {
    let cache = WatchCache::new(&kinds(PlatformConfig::new("example.org")));
    let stop = CancellationToken::new();
    let before = ALLOCATED.load(Ordering::Relaxed);
    let filled = async {
        assert!(cache.reaches(1, PATIENCE).await);
        stop.cancel();
    };
    tokio::join!(cache.run(store, &stop), filled);
    let taken = each(before);
    let kind = &*ROUTE;
    let object = cache.kind_cache(kind).get("default/route-7").expect("it was written");
    let json: Value = serde_json::from_slice(&object.json()).expect("JSON");
    assert_eq!(json["status"], route(7)["status"]);
    println!("a Route has {} octets", object.json().len());
    taken
}

async fn in_the_informers(store: &Arc<Memory>) {
    let authenticator = Arc::new(Authenticator::new(Tokens::parse("").expect("no tokens")));
    let server = ApiServer::new(store.clone(), server_settings(PlatformConfig::new("example.org"), authenticator));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (server, stop) = (server.clone(), stop.clone());
        async move { server.run(stop).await }
    });
    server.ready().await;
    let identity = Identity { user: "informer".into(), groups: vec![GROUP_MASTERS.into()] };
    let client = signpost_control::client::in_process(server.router_as(identity));
    // The one-time costs of all requests are included after the first informer.
    let (first, mut changes) = reflect(client.clone(), reflector::Settings::default(), |_: Route| ());
    drop(changes.next().await);
    let before = ALLOCATED.load(Ordering::Relaxed);
    let (second, mut more) = reflect(client.clone(), reflector::Settings::default(), |_: Route| ());
    drop(more.next().await);
    let taken = each(before);
    assert_eq!((first.len(), second.len()), (OBJECTS, OBJECTS));
    println!("a Route takes {taken} octets in an informer that keeps nothing of it");
    assert!(taken < 295, "a Route takes {taken} octets in an informer that keeps nothing of it");
    as_the_loops_see_it(client).await;
    stop.cancel();
    tokio::time::timeout(PATIENCE, running).await.expect("it stops").expect("no panic");
}

/// Creates the state of a Route, its RouteBinding, and its NameClaim in the loops of a process with all roles.
async fn as_the_loops_see_it(client: kube::Client) {
    let before = ALLOCATED.load(Ordering::Relaxed);
    let world = World::new(&client, world::Settings::of_domain("example.org"));
    // The scheduler, the reconciler and the loops that make zones.
    let mut routes = (world.routes.read(), world.routes.read());
    let mut bindings = (world.bindings.read(), world.bindings.read(), world.bindings.read());
    let mut claims = (world.claims.read(), world.claims.read());
    drop((routes.0.1.next().await, routes.1.1.next().await));
    drop((bindings.0.1.next().await, bindings.1.1.next().await, bindings.2.1.next().await));
    drop((claims.0.1.next().await, claims.1.1.next().await));
    let taken = each(before);
    assert_eq!([routes.0.0.len(), bindings.0.0.len(), claims.0.0.len()], [OBJECTS; 3]);
    let bound = routes.0.0.all().iter().filter(|(_, route)| route.router.as_deref() == Some("shard1")).count();
    let read = bindings.2.0.all().iter().filter(|(_, binding)| binding.input.is_some()).count();
    assert_eq!((bound, read), (OBJECTS, OBJECTS));
    println!("the control loops keep {taken} octets of a Route, its binding and its claim");
    assert!(taken < 1_980, "the control loops keep {taken} octets of a Route, its binding and its claim");
}

fn each(before: i64) -> i64 {
    (ALLOCATED.load(Ordering::Relaxed) - before) / i64::try_from(OBJECTS).expect("few")
}

async fn fill(store: &Memory, kind: &str, namespace: &str, make: fn(usize) -> Value) {
    let kinds = kinds(PlatformConfig::new("example.org"));
    let kind = kinds.find_kind(kind).expect("a kind");
    let put = |number: usize| {
        let object = make(number);
        let name = object["metadata"]["name"].as_str().expect("it has a name");
        let key = Key(format!("{}{namespace}{name}", kind.key_prefix).into());
        Write::Put { key, value: encode(&object).into(), ttl: None }
    };
    for first in (0..OBJECTS).step_by(TXN_OPERATIONS_MAX) {
        let writes = (first..first + TXN_OPERATIONS_MAX).map(put).collect();
        store.commit(Txn { writes, ..Txn::default() }).await.expect("room enough");
    }
}

fn uid(number: usize) -> String {
    format!("{:08x}-0000-4000-8000-{:012x}", number * 2_654_435_761 % (1 << 32), number * 6_364_136_223_846)
}

fn binding(number: usize) -> Value {
    let name = format!("route-{number}");
    let (shard, alias) = (format!("default-{name}.shard1.example.org"), format!("default-{name}.routes.example.org"));
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid(number + OBJECTS), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "routeNamespace": "default", "routeName": name, "routeUID": uid(number), "router": "shard1",
            "dns": "shard1.example.org", "label": format!("default-{name}"), "strategy": "round-robin",
            "names": [{"name": shard, "type": "system"}, {"name": alias, "type": "alias"}],
        },
    })
}

fn claim(number: usize) -> Value {
    let (name, label) = (format!("route-{number}"), format!("default-route-{number}"));
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim",
        "metadata": {"name": label, "uid": uid(number + 2 * OBJECTS), "generation": 1},
        "spec": {
            "type": "label", "value": label, "since": "2026-01-01T00:00:00Z",
            "holder": {"namespace": "default", "name": name, "uid": uid(number)},
        },
    })
}

/// Returns a Route with its names, as the platform has left it.
fn route(number: usize) -> Value {
    let name = format!("route-{number}");
    let (shard, alias) = (format!("default-{name}.shard1.example.org"), format!("default-{name}.routes.example.org"));
    let time = format!("2026-01-01T{:02}:{:02}:{:02}Z", number / 3600, number / 60 % 60, number % 60);
    let condition = |kind: &str, message: String| {
        json!({
            "type": kind, "status": "True", "reason": kind, "message": message, "lastTransitionTime": time,
            "observedGeneration": 1,
        })
    };
    let condition_fields = json!({
        ".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:observedGeneration": {}, "f:reason": {}, "f:status": {},
        "f:type": {},
    });
    let serials = format!("serials {} and {}", 1_795_328_633 + number, 1_795_328_634 + number);
    json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid(number), "generation": 1, "creationTimestamp": time,
            "managedFields": [
                {
                    "apiVersion": "signpost.dev/v1alpha1", "fieldsType": "FieldsV1", "manager": "kubectl-create",
                    "operation": "Update", "time": time, "fieldsV1": {"f:spec": {".": {}, "f:to": {".": {}, "f:name": {}}}},
                },
                {
                    "apiVersion": "signpost.dev/v1alpha1", "fieldsType": "FieldsV1", "manager": "signpost",
                    "operation": "Update", "subresource": "status", "time": time,
                    "fieldsV1": {"f:status": {
                        "f:canonicalName": {}, "f:dns": {}, "f:phase": {}, "f:router": {}, "f:observedGeneration": {},
                        "f:conditions": {
                            ".": {}, "k:{\"type\":\"Admitted\"}": condition_fields,
                            "k:{\"type\":\"Published\"}": condition_fields,
                            "k:{\"type\":\"Resolvable\"}": condition_fields,
                            "k:{\"type\":\"Scheduled\"}": condition_fields,
                        },
                    }},
                },
            ],
        },
        "spec": {"to": {"kind": "Service", "name": "application"}},
        "status": {
            "canonicalName": alias, "dns": shard, "observedGeneration": 1, "phase": "scheduled", "router": "shard1",
            "names": [{"name": shard, "type": "system"}, {"name": alias, "type": "alias"}],
            "conditions": [
                condition("Admitted", "the Route holds its names".to_owned()),
                condition("Scheduled", "strategy round-robin selected shard1: 4 of 4 Routers feasible".to_owned()),
                condition("Published", format!("shard1.example.org and routes.example.org hold them with {serials}")),
                condition(
                    "Resolvable",
                    format!("{shard} and {alias} are answered correctly by ns1.example.org with {serials}; checked at {time}"),
                ),
            ],
        },
    })
}
