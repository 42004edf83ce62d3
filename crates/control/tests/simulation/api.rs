//! The simulated API: the real API server over a store in memory, which every commit leaves by way of [`Truth`], and the lines
//! by which processes reach it.
//!
//! It behaves in one of two ways: as ours, or as Kubernetes, which has our kinds and none of their hooks, so that
//! nothing is done in one transaction with a write and only resourceVersions are checked.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt as _};
use http::{Method, Request, Response, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use signpost_api::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity};
use signpost_api::kinds::{
    PlatformConfig, deletion_hold, name_claim, route, route_binding, router, server_settings, zone,
};
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::registry::{Hooks, NoHooks};
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::store::{Error, Event, Key, KeyValue, Outcome, Page, Result, Revision, Store, Txn, Write};
use signpost_apiserver::{ApiServer, Product, object};
use signpost_control::controller::ledger;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::DOMAIN;
use super::chance::Chance;
use super::truth::Truth;

/// Which API server it behaves like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Creating a RouteBinding sets its Route's status, and claims are checked, in one transaction.
    Ours,
    /// No transactions, no rules of ours: optimistic concurrency alone.
    Kubernetes,
}

/// How often what goes wrong, of a thousand requests or events of watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// Writes that are refused as conflicts.
    pub conflicts: u64,
    /// Requests that fail, and are not done.
    pub failures: u64,
    /// Writes that are done and whose answers are lost.
    pub lost_answers: u64,
    /// Watches that end after an event.
    pub ended_watches: u64,
    /// Watches that say 410 after an event.
    pub expired_watches: u64,
    /// Watches that say nothing more after an event.
    pub hung_watches: u64,
    /// Longest delay of a request, of its answer, and of an event, in milliseconds.
    pub lag_longest: u64,
}

/// The store of the API. What it commits is the truth.
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

    /// What it was `commits` commits ago. `restored`: its revisions and the serials of zones are moved on, as a restore does it.
    async fn earlier(&self, commits: usize, restored: bool) -> Witness {
        let mut log = self.log.lock().clone();
        log.truncate(log.len().saturating_sub(commits));
        self.over.cancel();
        let earlier = Witness::new(self.truth.clone());
        for writes in &log {
            earlier.memory.commit(Txn { expect: Vec::new(), writes: writes.clone() }).await.expect("it was committed");
        }
        *earlier.log.lock() = log;
        let all = earlier.memory.list(&Key("/".into()), None, None, None).await.expect("listed");
        self.truth.lock().went_back(all.items, restored);
        if restored {
            // First its revisions, as a restore does it: a Zone that is moved on must not have one that it had before.
            for revision in 0..2 * commits {
                let mark = Write::Put { key: Key("/restored".into()), value: revision.to_string().into(), ttl: None };
                earlier.commit(Txn { expect: Vec::new(), writes: vec![mark] }).await.expect("committed");
            }
            let zones =
                earlier.memory.list(&Key(zone::ZONE.key_prefix.into()), None, None, None).await.expect("listed");
            let now = jiff::Timestamp::now();
            let moved = zones.items.into_iter().filter_map(|item| {
                let zone = ledger::after_restore(serde_json::from_slice(&item.value).ok()?, now)?;
                Some(Write::Put { key: item.key, value: object::encode(&zone).into(), ttl: None })
            });
            let writes = moved.collect();
            earlier.commit(Txn { expect: Vec::new(), writes }).await.expect("committed");
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
    truth: Arc<Mutex<Truth>>,
    chance: Chance,
}

impl Api {
    /// A server that answers by now.
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

    /// The same over a store that is what it was `commits` commits ago, put there as it is, or restored.
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

    /// A client of whom nothing goes wrong.
    pub fn admin(&self) -> kube::Client {
        let groups = vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()];
        let api = self.clone();
        client(Identity { user: "admin".to_owned(), groups }, move |request| {
            let server = api.serving.lock().0.clone();
            async move { Ok(server.oneshot(request).await.unwrap_or_else(|never| match never {})) }
        })
    }

    /// The line of one process.
    pub fn line(&self, of: &str) -> Line {
        Line { api: self.clone(), of: of.into(), state: Arc::default() }
    }
}

async fn serve(behaviour: Behaviour, store: &Witness) -> (axum::Router, CancellationToken) {
    let authenticator = Arc::new(Authenticator::new(Tokens::parse("").expect("no tokens are tokens")));
    let mut settings = server_settings(PlatformConfig::new(DOMAIN), authenticator);
    if behaviour == Behaviour::Kubernetes {
        let own: [&'static Kind; 6] = [
            &router::ROUTER,
            &route::ROUTE,
            &route_binding::ROUTE_BINDING,
            &name_claim::NAME_CLAIM,
            &zone::ZONE,
            &deletion_hold::DELETION_HOLD,
        ];
        settings.kinds = Kinds::new(own.map(|kind| (kind, Arc::new(NoHooks) as Arc<dyn Hooks>)));
        settings.product = Product { name: "kubernetes", ..settings.product };
    }
    let (server, stop) = (ApiServer::new(Arc::new(store.clone()), settings), CancellationToken::new());
    let (running, until) = (server.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    server.ready().await;
    (server.router(), stop)
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// A client whose requests go where `carry` carries them.
fn client<F>(identity: Identity, carry: impl Fn(Request<Body>) -> F + Clone + Send + Sync + 'static) -> kube::Client
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

/// What lies between one process and the API.
#[derive(Clone)]
pub struct Line {
    api: Api,
    of: Arc<str>,
    state: Arc<Mutex<LineState>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct LineState {
    /// The process is no more: nothing comes back to it, and nothing of it goes through.
    dead: bool,
    /// There is no connection.
    cut: bool,
}

impl Line {
    pub fn client(&self, user: &str) -> kube::Client {
        let line = self.clone();
        client(Identity::user(user), move |request| {
            let line = line.clone();
            async move { line.carry(request).await }
        })
    }

    pub fn kill(&self) {
        self.state.lock().dead = true;
    }

    pub fn cut(&self, cut: bool) {
        self.state.lock().cut = cut;
    }

    async fn carry(&self, request: Request<Body>) -> std::result::Result<Response<Body>, Failed> {
        let weather = *self.api.weather.lock();
        let writes = request.method() != Method::GET;
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        if writes && request.uri().path().ends_with("/events") {
            // They are told to people, and cost a third of all writes.
            return Ok(status(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", "events are not kept"));
        }
        self.lag(weather).await?;
        if writes {
            // Else two leaders that differ would write against each other without end, and without any time.
            sleep(Duration::from_millis(1)).await;
        }
        if self.chance(weather.failures) {
            return Err("the connection was refused".into());
        }
        if writes && self.chance(weather.conflicts) {
            return Ok(status(StatusCode::CONFLICT, "Conflict", "a simulated conflict"));
        }
        let what = format!("{} {} {}", self.of, request.method(), request.uri().path());
        let (server, gone) = self.api.serving.lock().clone();
        let response = tokio::select! {
            biased;
            response = server.oneshot(request) => response.unwrap_or_else(|never| match never {}),
            () = gone.cancelled() => return Err("the connection was reset".into()),
        };
        if writes {
            self.api.truth.lock().note(format!("{what}: {}", response.status().as_u16()));
        }
        self.lag(weather).await?;
        if writes && self.chance(weather.lost_answers) {
            self.api.truth.lock().note(format!("{what}: its answer is lost"));
            return Err("the connection was reset".into());
        }
        if !watches {
            return Ok(response);
        }
        let (parts, body) = response.into_parts();
        let watch = Watch { line: self.clone(), events: Box::pin(body.into_data_stream()), end: None, gone };
        let events = futures::stream::unfold(watch, |mut watch| async move { Some((watch.next().await?, watch)) });
        Ok(Response::from_parts(parts, Body::from_stream(events)))
    }

    /// What may pass: it takes its time, or gets lost.
    async fn lag(&self, weather: Weather) -> std::result::Result<(), Failed> {
        if weather.lag_longest > 0 {
            sleep(Duration::from_millis(self.api.chance.below(weather.lag_longest))).await;
        }
        let state = *self.state.lock();
        if state.dead {
            std::future::pending::<()>().await;
        }
        if state.cut {
            // As long as a client waits for a connection.
            sleep(Duration::from_secs(5)).await;
            return Err("no route to the API".into());
        }
        Ok(())
    }

    fn chance(&self, of_a_thousand: u64) -> bool {
        self.api.chance.below(1000) < of_a_thousand
    }
}

/// An open watch on a line.
struct Watch {
    line: Line,
    events: Pin<Box<dyn Stream<Item = std::result::Result<Bytes, axum::Error>> + Send>>,
    /// What comes after the last event: nothing ever, or an error, or the end.
    end: Option<End>,
    /// Fires when the server ends.
    gone: CancellationToken,
}

#[derive(Clone, Copy)]
enum End {
    Silence,
    Expired,
    Closed,
}

impl Watch {
    async fn next(&mut self) -> Option<std::result::Result<Bytes, Failed>> {
        match self.end {
            Some(End::Silence) => {
                self.gone.cancelled().await;
                return None;
            }
            Some(End::Expired) => {
                self.end = Some(End::Closed);
                let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "reason": "Expired", "message": "too old resource version", "code": 410});
                return Some(Ok(format!("{}\n", json!({"type": "ERROR", "object": gone})).into()));
            }
            Some(End::Closed) => return None,
            None => {}
        }
        let event = self.events.next().await?;
        let weather = *self.line.api.weather.lock();
        if let Err(lost) = self.line.lag(weather).await {
            self.end = Some(End::Closed);
            return Some(Err(lost));
        }
        let ends = [
            (weather.hung_watches, End::Silence),
            (weather.expired_watches, End::Expired),
            (weather.ended_watches, End::Closed),
        ];
        self.end = ends.into_iter().find(|(share, _)| self.line.chance(*share)).map(|(_, end)| end);
        Some(event.map_err(Into::into))
    }
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": message, "code": code.as_u16()});
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string())).expect("it is whole")
}
