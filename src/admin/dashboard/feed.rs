//! The state that viewers share: one compact informer of the Routes of a scope, kept while it has viewers.
//!
//! A scope is all namespaces or one of them. A watch with the token of the first viewer feeds its informer, which holds for each
//! Route the fields that lists and counts show: a quarter of a kilobyte. All other users with the permission to list the same
//! Routes read the same informer. There is no copy for each viewer, and the API serves one watch. When that token is revoked, the
//! informer stops, and the next permitted viewer feeds a new one.
//!
//! ```text
//!   API ──watch──► informer of the scope ──► version, and the last changes ──► each viewer's stream: "these changed"
//!                        └──► counts and pages of the list, on request
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;
use serde::Serialize;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ask::Failure;
use super::facts::RouteSummary;
use super::session::{Rights, Session};
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::Router;
use signpost_api::v1alpha1::zone::Zone;
use signpost_control::client::reflector::{self, Change, Changes, ObjectKey, Store, reflect};

/// The time for which an informer is kept after its last use, so that it is still there when a user reloads the page.
const KEPT_UNUSED: Duration = Duration::from_secs(60);
/// The maximum number of informers; beyond it, the least recently used one is dropped. One of all namespaces, and those of many
/// tenants.
const FEEDS_MAX: usize = 256;
/// The maximum number of changes kept by name. A viewer that missed more gets a flag instead.
const RECENT_MAX: usize = 256;
/// The maximum wait of a request for the first list.
const FIRST_LIST: Duration = Duration::from_secs(8);
/// The time without a connection after which a permitted viewer feeds the informer with a new watch.
const DEAD_AFTER: Duration = Duration::from_secs(5);

/// The informers there are.
#[derive(Default)]
pub struct Feeds(Mutex<HashMap<Option<String>, Arc<Feed>>>);

/// One informer.
pub struct Feed {
    routes: Store<RouteSummary>,
    recent: Arc<Mutex<Recent>>,
    born: Instant,
    used: Mutex<Instant>,
    _stop: DropGuard,
}

#[derive(Default)]
struct Recent {
    version: u64,
    /// The changes, each with its version.
    changes: VecDeque<(u64, Changed)>,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    Route(ObjectKey),
    Router(String),
    Zone,
    /// All Routes: they were listed again.
    All,
}

/// The changes since a version, for a viewer.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeSummary {
    pub version: u64,
    /// Routes, as `namespace/name`.
    pub routes: Vec<String>,
    /// Whether further routes changed.
    pub more: bool,
    /// Whether a Router changed.
    pub routers: bool,
    /// Whether a Zone changed.
    pub zones: bool,
}

/// Routes named in one message.
const NAMED_MAX: usize = 32;

impl ChangeSummary {
    /// Returns the union of the changes of two informers.
    pub fn and(mut self, other: ChangeSummary) -> ChangeSummary {
        self.version += other.version;
        self.more |= other.more || self.routes.len() + other.routes.len() > NAMED_MAX;
        self.routes.extend(other.routes);
        self.routes.truncate(NAMED_MAX);
        self.routers |= other.routers;
        self.zones |= other.zones;
        self
    }
}

impl Feeds {
    /// Returns the informers that show what `rights` allow, once each was listed: one of all namespaces, or one a namespace.
    pub async fn of(&self, session: &Session, rights: &Rights) -> Result<Vec<Arc<Feed>>, Failure> {
        let scopes: Vec<Option<String>> =
            if rights.all { vec![None] } else { rights.namespaces.iter().cloned().map(Some).collect() };
        let feeds: Vec<Arc<Feed>> = scopes.into_iter().map(|scope| self.take(scope, session, rights)).collect();
        let deadline = tokio::time::Instant::now() + FIRST_LIST;
        for feed in &feeds {
            if tokio::time::timeout_at(deadline, feed.routes.wait_synced()).await.is_err() {
                let why = feed.routes.health().error.unwrap_or_else(|| "the request is still in progress".to_owned());
                let message = format!("the routes have not been listed yet: {why}");
                return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "Starting", message));
            }
        }
        Ok(feeds)
    }

    fn take(&self, scope: Option<String>, session: &Session, rights: &Rights) -> Arc<Feed> {
        let mut feeds = self.0.lock();
        if let Some(feed) = feeds.get(&scope).filter(|feed| !feed.is_dead()) {
            feed.touch();
            return feed.clone();
        }
        if feeds.len() >= FEEDS_MAX {
            let oldest = feeds.iter().min_by_key(|(_, feed)| *feed.used.lock()).map(|(scope, _)| scope.clone());
            oldest.and_then(|scope| feeds.remove(&scope));
        }
        let feed = Arc::new(Feed::start(session.client.clone(), scope.clone(), rights));
        feeds.insert(scope, feed.clone());
        feed
    }

    /// Drops unused informers.
    pub fn sweep(&self) {
        self.0.lock().retain(|_, feed| feed.used.lock().elapsed() < KEPT_UNUSED);
    }
}

impl Feed {
    fn start(client: kube::Client, namespace: Option<String>, rights: &Rights) -> Self {
        let settings = reflector::Settings { namespace, ..reflector::Settings::default() };
        let (routes, route_changes) = reflect(client.clone(), settings, |route: Route| RouteSummary::from(&route));
        // Their contents are not kept: viewers read these few objects from the API.
        let routers = rights.routers.then(|| reflect(client.clone(), Default::default(), |_: Router| ()).1);
        let zones = rights.zones.then(|| reflect(client, Default::default(), |_: Zone| ()).1);
        let recent = Arc::new(Mutex::new(Recent::default()));
        let stop = CancellationToken::new();
        let following = follow(route_changes, routers, zones, recent.clone());
        let stopped = stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = following => {}
            }
        });
        let now = Instant::now();
        Feed { routes, recent, born: now, used: Mutex::new(now), _stop: stop.drop_guard() }
    }

    pub fn routes(&self) -> Vec<(ObjectKey, Arc<RouteSummary>)> {
        self.routes.all()
    }

    /// Returns the health of the informer.
    pub fn health(&self) -> reflector::Health {
        self.routes.health()
    }

    /// Counts changes.
    pub fn version(&self) -> u64 {
        self.recent.lock().version
    }

    /// Returns the changes after `version`.
    pub fn since(&self, version: u64) -> ChangeSummary {
        self.recent.lock().since(version)
    }

    /// Extends its life.
    pub fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    fn is_dead(&self) -> bool {
        let health = self.routes.health();
        let silent = health.age.map_or_else(|| self.born.elapsed(), |age| age.min(self.born.elapsed()));
        health.error.is_some() && !health.connected && silent > DEAD_AFTER
    }
}

impl Recent {
    fn push(&mut self, changed: Changed) {
        self.version += 1;
        if self.changes.len() == RECENT_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((self.version, changed));
    }

    fn since(&self, version: u64) -> ChangeSummary {
        let mut news = ChangeSummary { version: self.version, ..ChangeSummary::default() };
        // The kind of a dropped change is unknown.
        if self.version > version && self.changes.front().is_none_or(|(first, _)| *first > version + 1) {
            (news.more, news.routers, news.zones) = (true, true, true);
        }
        for (_, changed) in self.changes.iter().filter(|(at, _)| *at > version) {
            match changed {
                Changed::Route(key) => {
                    let name = key.to_string();
                    if !news.routes.contains(&name) {
                        if news.routes.len() < NAMED_MAX {
                            news.routes.push(name);
                        } else {
                            news.more = true;
                        }
                    }
                }
                Changed::Router(_) => news.routers = true,
                Changed::Zone => news.zones = true,
                Changed::All => (news.more, news.routers, news.zones) = (true, true, true),
            }
        }
        news
    }
}

/// Records all changes until the task is aborted.
async fn follow(
    mut routes: Changes<RouteSummary>,
    mut routers: Option<Changes<()>>,
    mut zones: Option<Changes<()>>,
    recent: Arc<Mutex<Recent>>,
) {
    loop {
        let changed = tokio::select! {
            change = routes.next() => name(change).map_or(Changed::All, Changed::Route),
            change = next(&mut routers) => name(change).map_or(Changed::All, |key| Changed::Router(key.name)),
            change = next(&mut zones) => name(change).map_or(Changed::All, |_| Changed::Zone),
        };
        recent.lock().push(changed);
    }
}

async fn next<V>(changes: &mut Option<Changes<V>>) -> Change<V> {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

fn name<V>(change: Change<V>) -> Option<ObjectKey> {
    match change {
        Change::Applied(applied) => Some(applied.key),
        Change::Deleted { key, .. } => Some(key),
        Change::Relisted(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_named_once_and_bounded() {
        let mut recent = Recent::default();
        assert_eq!(recent.since(0), ChangeSummary::default());
        for name in ["a", "b", "a"] {
            recent.push(Changed::Route(ObjectKey::namespaced("shop", name)));
        }
        recent.push(Changed::Zone);
        let news = recent.since(0);
        assert_eq!(news.routes, ["shop/a", "shop/b"]);
        assert_eq!((news.version, news.more, news.routers, news.zones), (4, false, false, true));
        assert_eq!(recent.since(3).routes, Vec::<String>::new());
        for number in 0..40 {
            recent.push(Changed::Route(ObjectKey::namespaced("shop", &number.to_string())));
        }
        let news = recent.since(4);
        assert_eq!((news.routes.len(), news.more, news.routers), (NAMED_MAX, true, false));
        for _ in 0..RECENT_MAX {
            recent.push(Changed::Router("shard1".to_owned()));
        }
        assert!(recent.since(4).more, "what was forgotten may have been anything");
        assert!(!recent.since(recent.version - 1).more);
    }
}
