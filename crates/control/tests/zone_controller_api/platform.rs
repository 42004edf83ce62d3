//! An API server with its leading controller, and name servers, in one process.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::IntoResponse as _;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use signpost_api::identity::{GROUP_MASTERS, Identity, USER_CONTROLLER, USER_SCHEDULER};
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::store::memory::Memory;
use signpost_control::client;
use signpost_control::compiler::Settings;
use signpost_control::name_server::objects::Objects;
use signpost_control::name_server::permission::Permissions;
use signpost_control::name_server::reserved;
use signpost_control::name_server::status::Status;
use signpost_control::updates::Updates;
use signpost_control::world::{self, World};
use signpost_control::{ledger, name_server};
use signpost_dns::update::Job;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::publish::Publisher;
use signpost_dns::zone::{Serial, ZoneDb};
use signpost_types::v1alpha1::name_claim::NameClaim;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::ZonePlatform;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn name(text: &str) -> Name {
    text.parse().expect("a name of a test")
}

pub fn settings() -> Arc<Settings> {
    Arc::new(
        Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]).expect("good settings"),
    )
}

/// An API server with its leading controller.
pub struct Platform {
    pub server: ApiServer,
    _stop: DropGuard,
}

pub fn world(client: &Client) -> World {
    World::new(client, world::Settings::of_domain("v3.example"))
}

impl Platform {
    pub async fn start() -> Self {
        Self::start_as(None).await
    }

    /// Starts it with these settings in the Zone of the domain.
    pub async fn start_as(described: Option<ZonePlatform>) -> Self {
        let authenticator = Arc::new(Authenticator::new(Tokens::default()));
        let settings_api = server_settings(PlatformConfig::new("v3.example"), authenticator);
        let server = ApiServer::new(Arc::new(Memory::new()), settings_api);
        let stop = CancellationToken::new();
        let (running, token) = (server.clone(), stop.clone());
        tokio::spawn(async move { running.run(token).await });
        server.ready().await;
        let platform = Platform { server, _stop: stop.clone().drop_guard() };
        let base = ledger::BaseSerial::None;
        let description = tokio::sync::watch::channel(described).1;
        let client = platform.client(USER_CONTROLLER);
        let sources = ledger::Sources { world: world(&client), settings: settings(), former: None, base, description };
        tokio::spawn(ledger::run(client, sources, Arc::default(), stop));
        platform
    }

    pub fn client(&self, user: &str) -> Client {
        client::in_process(self.server.router_as(Identity::user(user)))
    }

    pub fn admin(&self) -> Client {
        let mut identity = Identity::user("admin");
        identity.groups.push(GROUP_MASTERS.to_owned());
        client::in_process(self.server.router_as(identity))
    }

    pub async fn create_router(&self, name: &str, addresses: &[&str]) {
        self.create_router_at(name, &format!("{name}.v3.example"), addresses).await;
    }

    pub async fn create_router_at(&self, name: &str, dns: &str, addresses: &[&str]) {
        let router =
            object(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name},
            "spec": {"dns": dns, "addresses": list(addresses)}}));
        Api::<Router>::all(self.admin()).create(&PostParams::default(), &router).await.expect("created");
    }

    pub async fn set_addresses(&self, name: &str, addresses: &[&str]) {
        let patch = Patch::Merge(json!({"spec": {"addresses": list(addresses)}}));
        let routers = Api::<Router>::all(self.admin());
        routers.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    pub async fn label_router(&self, name: &str, value: &str) {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"test": value}}}));
        let routers = Api::<Router>::all(self.admin());
        routers.patch(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    pub async fn delete_router(&self, name: &str) {
        Api::<Router>::all(self.admin()).delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// Creates a Route with its binding, as the scheduler does.
    pub async fn bind(&self, route: &str, router: &str) {
        self.bind_as(route, router, &format!("default-{route}")).await;
    }

    pub async fn bind_as(&self, route: &str, router: &str, label: &str) {
        let routes = Api::<Route>::namespaced(self.admin(), "default");
        let new = object(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"name": route, "namespace": "default"}, "spec": {}}));
        let made = routes.create(&PostParams::default(), &new).await.expect("created");
        let dns = format!("{router}.v3.example");
        let claim =
            object(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": label},
            "spec": {"type": "label", "value": label, "since": "2026-01-01T00:00:00Z",
                     "holder": {"namespace": "default", "name": route, "uid": made.metadata.uid}}}));
        let claims = Api::<NameClaim>::all(self.client(USER_SCHEDULER));
        claims.create(&PostParams::default(), &claim).await.expect("claimed");
        let binding = object(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
            "metadata": {"name": route, "namespace": "default"},
            "spec": {"routeNamespace": "default", "routeName": route, "routeUID": made.metadata.uid, "router": router,
                "dns": dns, "label": label, "strategy": "round-robin",
                "names": [{"name": format!("{label}.{dns}"), "type": "system"},
                          {"name": format!("{label}.routes.v3.example"), "type": "alias"}]}}));
        let bindings = Api::<RouteBinding>::namespaced(self.client(USER_SCHEDULER), "default");
        bindings.create(&PostParams::default(), &binding).await.expect("bound");
    }
}

pub fn list(addresses: &[&str]) -> Vec<Value> {
    addresses.iter().map(|ip| json!({"ip": ip})).collect()
}

pub fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of a test")
}

/// A name server's loop and its map of zones.
pub struct NameServer {
    pub db: Arc<ZoneDb>,
    pub status: Arc<Status>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl NameServer {
    pub fn start(client: Client, state: Option<&Path>) -> Self {
        Self::start_over(client, state, Arc::new(publisher()))
    }

    pub fn start_over(client: Client, state: Option<&Path>, zones: Arc<Publisher>) -> Self {
        Self::start_with_jobs(client, state, zones, mpsc::channel(1).1)
    }

    /// Starts one whose clients request these changes.
    pub fn start_with_jobs(
        client: Client,
        state: Option<&Path>,
        zones: Arc<Publisher>,
        jobs: mpsc::Receiver<Job>,
    ) -> Self {
        let db = zones.db().clone();
        let status: Arc<Status> = Arc::default();
        let stop = CancellationToken::new();
        let state = state.map(PathBuf::from);
        let deletion_hold_threshold = watch::Sender::new(25).subscribe();
        let publishing = name_server::metrics::Publishing::default();
        let status_of = status.clone();
        let options = name_server::Options {
            settings: settings(),
            state,
            former_domain: None,
            zones,
            deletion_hold_threshold,
            denial_longest: None,
            status: status_of,
            publishing,
            loading: tokio::sync::oneshot::channel().0,
        };
        let (stopped, served) = (stop.clone(), db.clone());
        let task = tokio::spawn(async move {
            let started = name_server::start(options).await.expect("its state directory is usable");
            let (objects, (permissions, questions)) = (Objects::read(&world(&client)), Permissions::new());
            let updates = Updates::new(client.clone(), &objects, settings(), served, permissions);
            tokio::spawn(updates.run(jobs, stopped.clone()));
            name_server::run(client.clone(), objects, started.answering(questions), stopped)
                .await
                .expect("its state is writable");
        });
        NameServer { db, status, stop, task }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("it ends without an error");
    }

    /// Returns the records of a type at a name: the last byte of each address, sorted.
    pub fn records(&self, apex: &str, owner: &str, rtype: RecordType) -> Option<Vec<u8>> {
        let zone = self.db.get(&name(apex))?;
        let rrset = zone.owner(&name(owner)).into_iter().find(|rrset| rrset.rtype == rtype)?;
        let mut octets: Vec<u8> = rrset.rdata.iter().map(|rdata| *rdata.last().expect("data")).collect();
        octets.sort_unstable();
        Some(octets)
    }

    pub fn wildcard(&self, router: &str) -> Option<Vec<u8>> {
        let apex = format!("{router}.v3.example.");
        self.records(&apex, &format!("*.{apex}"), RecordType::A)
    }

    pub fn has_alias(&self, route: &str) -> bool {
        let alias = format!("default-{route}.routes.v3.example.");
        self.records("routes.v3.example.", &alias, RecordType::CNAME).is_some()
    }

    pub fn is_delegated(&self, router: &str) -> bool {
        self.records("v3.example.", &format!("{router}.v3.example."), RecordType::NS).is_some()
    }

    pub fn serials(&self) -> Vec<(Name, Option<Serial>)> {
        self.db.zones().iter().map(|zone| (zone.apex().clone(), zone.serial())).collect()
    }
}

pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub fn publisher() -> Publisher {
    let zones = Publisher::new(Arc::default());
    reserved::reserve(&zones, &settings(), &[]);
    zones
}

/// Returns a client of an API that does not exist.
pub fn unavailable_api() -> Client {
    let service = axum::Router::new().fallback(|| async { http::StatusCode::SERVICE_UNAVAILABLE.into_response() });
    client::in_process(service)
}
