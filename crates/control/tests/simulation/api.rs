//! The simulated API: the real API server over a store in memory, whose commits all pass through [`Truth`].
//!
//! It has one of two behaviors: that of Signpost, or that of Kubernetes, which has Signpost's kinds but none of their hooks, so
//! that nothing is done in one transaction with a write and only resourceVersions are checked.

use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Body;
use futures::FutureExt as _;
use futures::stream::BoxStream;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::Value;
use signpost_api::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity};
use signpost_api::kinds::{
    PlatformConfig, deletion_hold, endpoint_slice, name_claim, route, route_binding, router, server_settings, service,
    zone,
};
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::registry::{Hooks, NoHooks};
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::store::{Error, Event, Key, KeyValue, Outcome, Page, Result, Revision, Store, Txn, Write};
use signpost_apiserver::{ApiServer, Product, object};
use signpost_control::ledger;
use signpost_types::instance::AGENT_NAMESPACE;
use signpost_types::v1alpha1::SCHEDULER_LEASE_NAMESPACE;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::DOMAIN;
use super::chance::Chance;
use super::connection::{Connection, Failed, Weather};
use super::truth::Truth;

/// Which API server it behaves like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Creating a RouteBinding sets its Route's status, and claims are checked, in one transaction.
    Ours,
    /// Neither transactions nor Signpost's rules: only optimistic concurrency.
    Kubernetes,
}

/// The store of the API. Its commits define the truth.
#[derive(Clone)]
pub struct Witness {
    memory: Memory,
    truth: Arc<Mutex<Truth>>,
    /// All that was committed.
    log: Arc<Mutex<Vec<Vec<Write>>>>,
    /// Fires when another store takes its place.
    over: CancellationToken,
}

impl Witness {
    fn new(truth: Arc<Mutex<Truth>>) -> Witness {
        Witness { memory: Memory::new(), truth, log: Arc::default(), over: CancellationToken::new() }
    }

    /// Writes without a request, bypassing the rules of the server.
    fn put(&self, write: Write) {
        let writes = vec![write];
        let commit = self.memory.commit(Txn { writes: writes.clone(), ..Txn::default() });
        let outcome = commit.now_or_never().expect("memory does not wait").expect("nothing was expected");
        let Outcome::Committed(revision) = outcome else { unreachable!("nothing was expected") };
        self.log.lock().push(writes.clone());
        self.truth.lock().put(revision.0, &writes);
    }

    /// Returns the store's state `commits` commits ago. `restored`: its revisions and the serials of zones are advanced, as in a
    /// restore.
    async fn earlier(&self, commits: usize, restored: bool) -> Witness {
        let mut log = self.log.lock().clone();
        log.truncate(log.len().saturating_sub(commits));
        self.over.cancel();
        let earlier = Witness::new(self.truth.clone());
        for writes in &log {
            earlier.memory.commit(Txn { writes: writes.clone(), ..Txn::default() }).await.expect("it was committed");
        }
        *earlier.log.lock() = log;
        let all = earlier.memory.list(&Key("/".into()), None, None, None).await.expect("listed");
        self.truth.lock().went_back(all.items, restored);
        if restored {
            // First its revisions, as a restore does: an advanced Zone must not have a revision that it had before.
            for revision in 0..2 * commits {
                let mark = Write::Put { key: Key("/restored".into()), value: revision.to_string().into(), ttl: None };
                earlier.commit(Txn { writes: vec![mark], ..Txn::default() }).await.expect("committed");
            }
            let zones =
                earlier.memory.list(&Key(zone::ZONE.key_prefix.into()), None, None, None).await.expect("listed");
            let now = jiff::Timestamp::now();
            let moved = zones.items.into_iter().filter_map(|item| {
                let zone = ledger::after_restore(serde_json::from_slice(&item.value).ok()?, now)?;
                Some(Write::Put { key: item.key, value: object::encode(&zone).into(), ttl: None })
            });
            let writes = moved.collect();
            earlier.commit(Txn { writes, ..Txn::default() }).await.expect("committed");
            let newest = earlier.memory.revision().await.expect("it is there");
            earlier.memory.compact(newest).await.expect("it is the newest");
        }
        earlier
    }
}

#[async_trait]
impl Store for Witness {
    async fn revision(&self) -> Result<Revision> {
        self.memory.revision().await
    }

    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        self.memory.get(key, at).await
    }

    async fn list(&self, prefix: &Key, from: Option<&Key>, at: Option<Revision>, limit: Option<usize>) -> Result<Page> {
        self.memory.list(prefix, from, at, limit).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        if self.over.is_cancelled() {
            return Err(Error::Unavailable);
        }
        let writes = txn.writes.clone();
        let outcome = self.memory.commit(txn).await?;
        if let Outcome::Committed(revision) = outcome {
            self.log.lock().push(writes.clone());
            self.truth.lock().committed(revision.0, &writes);
        }
        Ok(outcome)
    }

    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>> {
        self.memory.watch(prefix, after)
    }

    async fn compact(&self, upto: Revision) -> Result<()> {
        self.memory.compact(upto).await
    }
}

/// The API; clones are the same one.
#[derive(Clone)]
pub struct Api {
    behaviour: Behaviour,
    serving: Arc<Mutex<(axum::Router, CancellationToken)>>,
    store: Arc<Mutex<Witness>>,
    pub weather: Arc<Mutex<Weather>>,
    pub truth: Arc<Mutex<Truth>>,
    pub chance: Chance,
}

impl Api {
    /// Starts a server, and returns when it responds.
    pub async fn start(behaviour: Behaviour, truth: Arc<Mutex<Truth>>, chance: Chance) -> Api {
        let store = Witness::new(truth.clone());
        let serving = serve(behaviour, &store).await;
        Api {
            behaviour,
            serving: Arc::new(Mutex::new(serving)),
            store: Arc::new(Mutex::new(store)),
            weather: Arc::default(),
            truth,
            chance,
        }
    }

    /// Ends the server, and with it all watches, and starts another over the same store.
    pub async fn restart(&self) {
        let store = self.store.lock().clone();
        self.replace(store).await;
    }

    /// Restarts the server over the store's state `commits` commits ago, unchanged or restored.
    pub async fn go_back(&self, commits: usize, restored: bool) {
        let store = self.store.lock().clone();
        self.serving.lock().1.cancel();
        let earlier = store.earlier(commits, restored).await;
        *self.store.lock() = earlier.clone();
        self.replace(earlier).await;
    }

    async fn replace(&self, store: Witness) {
        self.serving.lock().1.cancel();
        let serving = serve(self.behaviour, &store).await;
        *self.serving.lock() = serving;
    }

    /// Stores or removes an object under `key`, without a request.
    pub fn put(&self, key: String, object: Option<&Value>) {
        let key = Key(key.into());
        let write = match object {
            Some(object) => Write::Put { key, value: object::encode(object).into(), ttl: None },
            None => Write::Delete { key },
        };
        self.store.lock().put(write);
    }

    /// Deletes the history, as in a compaction, and ends all watches: an earlier one begins with 410.
    pub async fn forget_history(&self) {
        let store = self.store.lock().clone();
        let newest = store.revision().await.expect("it is there");
        store.compact(newest).await.expect("it is the newest");
        self.restart().await;
    }

    /// Returns the revision of the store.
    pub async fn revision(&self) -> u64 {
        let store = self.store.lock().clone();
        store.revision().await.expect("it is there").0
    }

    /// Returns the current server, and a token that is cancelled when it ends.
    pub fn serving(&self) -> (axum::Router, CancellationToken) {
        self.serving.lock().clone()
    }

    /// Returns a client without faults.
    pub fn admin(&self) -> kube::Client {
        let groups = vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()];
        let api = self.clone();
        client(Identity { user: "admin".to_owned(), groups }, move |request| {
            let server = api.serving.lock().0.clone();
            async move { Ok(server.oneshot(request).await.unwrap_or_else(|never| match never {})) }
        })
    }

    /// Returns the connection of one process.
    pub fn connection(&self, of: &str) -> Connection {
        Connection::new(self.clone(), of)
    }
}

async fn serve(behaviour: Behaviour, store: &Witness) -> (axum::Router, CancellationToken) {
    let authenticator = Arc::new(Authenticator::new(Tokens::parse("").expect("no tokens are tokens")));
    let mut settings = server_settings(PlatformConfig::new(DOMAIN), authenticator);
    if behaviour == Behaviour::Kubernetes {
        let own: [&'static Kind; 8] = [
            &router::ROUTER,
            &route::ROUTE,
            &route_binding::ROUTE_BINDING,
            &name_claim::NAME_CLAIM,
            &zone::ZONE,
            &deletion_hold::DELETION_HOLD,
            &service::SERVICE,
            &endpoint_slice::ENDPOINT_SLICE,
        ];
        let kinds = Kinds::new(own.map(|kind| (kind, Arc::new(NoHooks) as Arc<dyn Hooks>)));
        // The manifests of an installation create the last two.
        settings.kinds = kinds.with_namespaces(&["default", "kube-system", SCHEDULER_LEASE_NAMESPACE, AGENT_NAMESPACE]);
        settings.product = Product { name: "kubernetes", ..settings.product };
    }
    let (server, stop) = (ApiServer::new(Arc::new(store.clone()), settings), CancellationToken::new());
    let (running, until) = (server.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    server.ready().await;
    (server.router(), stop)
}

/// Returns a client whose requests `carry` transports.
pub fn client<F>(identity: Identity, carry: impl Fn(Request<Body>) -> F + Clone + Send + Sync + 'static) -> kube::Client
where
    F: Future<Output = std::result::Result<Response<Body>, Failed>> + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(identity.clone());
        carry(request)
    });
    kube::Client::new(service, "default")
}
