//! The scheduler and the reconciler on our own API server, in one process, each under its own identity.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use signpost_api::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity, USER_CONTROLLER, USER_SCHEDULER};
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_api::v1alpha1::name_claim::{ClaimKind, NameClaim};
use signpost_api::v1alpha1::route::{Phase, Route};
use signpost_api::v1alpha1::route_binding::RouteBinding;
use signpost_api::v1alpha1::router::Router;
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::store::memory::Memory;
use signpost_control::client::in_process;
use signpost_control::client::lease::{Lease, Settings as LeaseSettings};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::scheduler::metrics::Metrics;
use signpost_control::scheduler::{Scheduler, Settings};
use signpost_control::world::{self, World};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

struct Platform {
    admin: Client,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Platform {
    async fn start() -> Self {
        let tokens = Tokens::parse("").expect("no tokens are tokens");
        let authenticator = Arc::new(Authenticator::new(tokens));
        let settings = server_settings(PlatformConfig::new("v3.example"), authenticator);
        let server = ApiServer::new(Arc::new(Memory::new()), settings);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (running, until) = (server.clone(), stop.clone());
        tasks.spawn(async move { running.run(until).await });
        server.ready().await;
        let admin = Identity {
            user: "admin".to_owned(),
            groups: vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()],
        };
        let client = |identity: Identity| in_process(server.router(), identity);
        let scheduler = client(Identity::user(USER_SCHEDULER));
        let lease = LeaseSettings { renew: Duration::from_millis(200), ..LeaseSettings::default() };
        let leadership = Lease::run(scheduler.clone(), "signpost-scheduler", "test", lease, stop.clone());
        let controller = client(Identity::user(USER_CONTROLLER));
        let world = World::new(&controller, world::Settings::of_domain("v3.example"));
        let loops = Scheduler::new(scheduler, &world, Settings::new("v3.example"), Metrics::default());
        let keeper = reconcile::Settings { settle: Duration::from_millis(50), ..reconcile::Settings::default() };
        let keeper = Reconciler::new(controller, &world, keeper, reconcile::Metrics::default()).with_scheduler(&loops);
        tasks.spawn(loops.run(leadership.clone(), stop.clone()));
        tasks.spawn(keeper.run(leadership, stop.clone()));
        Platform { admin: client(admin), stop, tasks }
    }

    async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    fn routes(&self) -> Api<Route> {
        Api::namespaced(self.admin.clone(), "shop")
    }

    fn routers(&self) -> Api<Router> {
        Api::all(self.admin.clone())
    }

    async fn namespace(&self) {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "shop"}})).expect("a Namespace");
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    }

    async fn router(&self, name: &str) {
        let spec = json!({"addresses": [{"ip": "192.0.2.1"}]});
        let router: Router =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a Router");
        self.routers().create(&PostParams::default(), &router).await.expect("created");
    }

    async fn route(&self, name: &str, spec: serde_json::Value) {
        let route: Route = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a Route");
        self.routes().create(&PostParams::default(), &route).await.expect("created");
    }

    /// Waits until the Route `name` is as wanted, by its watch.
    async fn wait_for(&self, name: &str, what: &str, wanted: impl Fn(&Route) -> bool + Send + Sync) -> Route {
        let routes = self.routes();
        let watched = async {
            let mut changes = std::pin::pin!(kube::runtime::watcher::watch_object(routes, name));
            loop {
                match changes.next().await {
                    Some(Ok(Some(route))) if wanted(&route) => return route,
                    Some(_) => {}
                    None => panic!("the watch ended"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(120), watched).await.unwrap_or_else(|_| panic!("{name} never {what}"))
    }
}

fn says(route: &Route, kind: &str) -> Option<(bool, String)> {
    let conditions = &route.status.as_ref()?.conditions;
    let condition = conditions.iter().find(|condition| condition.type_ == kind)?;
    Some((condition.status == "True", condition.reason.clone()))
}

fn is_scheduled(route: &Route) -> bool {
    route.status.as_ref().is_some_and(|status| status.phase == Phase::Scheduled)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_from_wish_to_name_and_back() {
    let platform = Platform::start().await;
    platform.namespace().await;
    platform.route("first", json!({})).await;
    let route = platform.wait_for("first", "says why not", |route| says(route, "Scheduled").is_some()).await;
    assert_eq!(says(&route, "Scheduled"), Some((false, "NoRouter".to_owned())));
    platform.router("shard1").await;
    let route = platform.wait_for("first", "is scheduled", is_scheduled).await;
    let status = route.status.as_ref().expect("it has one");
    assert_eq!(status.dns.as_deref(), Some("shop-first.shard1.v3.example"));
    assert_eq!(status.canonical_name.as_deref(), Some("shop-first.routes.v3.example"));
    assert_eq!(says(&route, "Scheduled").map(|(is_true, _)| is_true), Some(true));
    assert_eq!(says(&route, "Admitted").map(|(is_true, _)| is_true), Some(true));

    // A host that another Route has, then has no more.
    let host = json!({"host": "www.shop.example"});
    platform.route("second", host.clone()).await;
    platform.wait_for("second", "is scheduled", is_scheduled).await;
    platform.route("third", host).await;
    let route = platform.wait_for("third", "is refused", |route| says(route, "Admitted").is_some()).await;
    assert_eq!(says(&route, "Admitted"), Some((false, "HostAlreadyClaimed".to_owned())));
    platform.routes().delete("second", &DeleteParams::default()).await.expect("deleted");
    platform.wait_for("third", "takes over", is_scheduled).await;
    platform.wait_for("third", "is admitted", |route| says(route, "Admitted").is_some_and(|(it, _)| it)).await;

    // A Router that would not take it any more.
    let patch = Patch::Merge(json!({"spec": {"routeSelector": {"matchLabels": {"tier": "gold"}}}}));
    platform.routers().patch("shard1", &PatchParams::default(), &patch).await.expect("patched");
    platform.wait_for("third", "says so", |route| says(route, "SelectorMismatch").is_some_and(|(it, _)| it)).await;

    // Bindings, claims and the Router's status are as they must be.
    let bindings: Api<RouteBinding> = Api::all(platform.admin.clone());
    let claims: Api<NameClaim> = Api::all(platform.admin.clone());
    let wanted = || async {
        let router = platform.routers().get("shard1").await.expect("it is there");
        let claims = claims.list(&ListParams::default()).await.expect("listed").items;
        let released = claims.iter().filter(|claim| claim.spec.released_at.is_some()).count();
        let hosts = claims.iter().filter(|claim| claim.spec.kind == ClaimKind::Host).count();
        let routes = router.status.and_then(|status| status.routes);
        (
            bindings.list(&ListParams::default()).await.expect("listed").items.len(),
            claims.len(),
            released,
            hosts,
            routes,
        )
    };
    let mut found = wanted().await;
    for _ in 0..12_000 {
        if found == (2, 4, 1, 1, Some(2)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        found = wanted().await;
    }
    assert_eq!(found, (2, 4, 1, 1, Some(2)), "bindings, claims, of them released, of them on hosts, routes told");
    let events: Api<Event> = Api::namespaced(platform.admin.clone(), "shop");
    let mut told = (0, 0);
    for _ in 0..12_000 {
        let events = events.list(&ListParams::default()).await.expect("listed").items;
        let of = |reason: &str| events.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
        told = (of("Scheduled"), of("FailedScheduling"));
        if told.0 >= 3 && told.1 >= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(told.0 >= 3 && told.1 >= 2, "{told:?} events of routes scheduled, and of routes that were not");
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_routes_are_spread_evenly_and_each_once() {
    const ROUTES: usize = 400;
    let platform = Platform::start().await;
    platform.namespace().await;
    for name in ["shard1", "shard2", "shard3", "shard4"] {
        platform.router(name).await;
    }
    for i in 0..ROUTES {
        platform.route(&format!("r{i}"), json!({})).await;
    }
    let bindings: Api<RouteBinding> = Api::all(platform.admin.clone());
    let mut bound = Vec::new();
    for _ in 0..12_000 {
        bound = bindings.list(&ListParams::default()).await.expect("listed").items;
        if bound.len() == ROUTES {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(bound.len(), ROUTES);
    for name in ["shard1", "shard2", "shard3", "shard4"] {
        assert_eq!(bound.iter().filter(|binding| binding.spec.router == name).count(), ROUTES / 4, "{name}");
    }
    platform.stop().await;
}
