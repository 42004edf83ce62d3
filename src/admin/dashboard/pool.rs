//! Informers that viewers share: one of each scope, kept while it has viewers.
//!
//! A scope is all namespaces or one of them. A watch with the token of the first viewer feeds its informer. All other users with the
//! permission to list the same objects read the same informer. There is no copy for each viewer, and the API serves one watch. When
//! that token is revoked, the informer stops, and the next permitted viewer feeds a new one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ask::Failure;
use signpost_control::client::reflector::{Settings, Store};

/// The time for which an informer is kept after its last use, so that it is still there when a user reloads the page.
const KEPT_UNUSED: Duration = Duration::from_secs(60);
/// The maximum number of informers; beyond it, the least recently used one is dropped. One of all namespaces, and those of many
/// tenants.
const INFORMERS_MAX: usize = 256;
/// The maximum wait of a request for the first list.
const FIRST_LIST: Duration = Duration::from_secs(8);
/// The time without a connection after which a permitted viewer feeds the informer with a new watch.
const DEAD_AFTER: Duration = Duration::from_secs(5);

/// All namespaces, or one of them.
pub type Scope = Option<String>;

/// The informers of a kind.
pub struct Pool<V, N = ()>(Mutex<HashMap<Scope, Arc<Informer<V, N>>>>);

pub struct Informer<V, N = ()> {
    pub objects: Store<V>,
    /// The record of its changes.
    pub news: N,
    born: Instant,
    used: Mutex<Instant>,
    _stop: DropGuard,
}

impl<V, N> Default for Pool<V, N> {
    fn default() -> Self {
        Pool(Mutex::default())
    }
}

impl<V, N> Pool<V, N> {
    /// Returns the informers of these scopes, once each was listed. `start` returns the parts of a new one: its objects, the record
    /// of its changes, and the work that polls the changes, which keeps both up to date.
    pub async fn of<W>(
        &self,
        scopes: Vec<Scope>,
        start: impl Fn(Settings) -> (Store<V>, N, W),
    ) -> Result<Vec<Arc<Informer<V, N>>>, Failure>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let informers: Vec<_> = scopes.into_iter().map(|scope| self.take(scope, &start)).collect();
        let deadline = tokio::time::Instant::now() + FIRST_LIST;
        for informer in &informers {
            if tokio::time::timeout_at(deadline, informer.objects.wait_synced()).await.is_err() {
                let why = informer.objects.health().error;
                let why = why.unwrap_or_else(|| "the request is still in progress".to_owned());
                let message = format!("the objects have not been listed yet: {why}");
                return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Starting", message));
            }
        }
        Ok(informers)
    }

    fn take<W>(&self, scope: Scope, start: impl Fn(Settings) -> (Store<V>, N, W)) -> Arc<Informer<V, N>>
    where
        W: Future<Output = ()> + Send + 'static,
    {
        let mut informers = self.0.lock();
        if let Some(informer) = informers.get(&scope).filter(|informer| !informer.is_dead()) {
            informer.touch();
            return informer.clone();
        }
        if informers.len() >= INFORMERS_MAX {
            let oldest = informers.iter().min_by_key(|(_, informer)| *informer.used.lock());
            let oldest = oldest.map(|(scope, _)| scope.clone());
            oldest.and_then(|scope| informers.remove(&scope));
        }
        let (objects, news, work) = start(Settings { namespace: scope.clone(), ..Settings::default() });
        let stop = CancellationToken::new();
        tokio::spawn(stop.clone().run_until_cancelled_owned(work));
        let now = Instant::now();
        let informer = Informer { objects, news, born: now, used: Mutex::new(now), _stop: stop.drop_guard() };
        let informer = Arc::new(informer);
        informers.insert(scope, informer.clone());
        informer
    }

    /// Drops unused informers.
    pub fn sweep(&self) {
        self.0.lock().retain(|_, informer| informer.used.lock().elapsed() < KEPT_UNUSED);
    }
}

impl<V, N> Informer<V, N> {
    /// Extends its life.
    pub fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    fn is_dead(&self) -> bool {
        let health = self.objects.health();
        let silent = health.age.map_or_else(|| self.born.elapsed(), |age| age.min(self.born.elapsed()));
        health.error.is_some() && !health.connected && silent > DEAD_AFTER
    }
}
