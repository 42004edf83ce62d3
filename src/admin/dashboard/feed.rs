//! The Routes that viewers share, and their last changes: one informer of a [`super::pool`] for each scope.
//!
//! An informer holds for each Route the fields that lists and counts show: a quarter of a kilobyte.
//!
//! ```text
//!   API ──watch──► informer of the scope ──► version, and the last changes ──► each viewer's stream: "these changed"
//!                        └──► counts and pages of the list, on request
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;

use super::ask::Failure;
use super::facts::RouteSummary;
use super::pool::{Informer, Pool, Scope};
use super::session::{Rights, Session};
use signpost_control::client::reflector::{Change, Changes, ObjectKey, reflect};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::Zone;

/// The maximum number of changes kept by name. A viewer that missed more gets a flag instead.
const RECENT_MAX: usize = 256;

/// The informers of Routes.
pub type Feeds = Pool<RouteSummary, Arc<Mutex<Recent>>>;
pub type Feed = Informer<RouteSummary, Arc<Mutex<Recent>>>;

/// The last changes.
#[derive(Default)]
pub struct Recent {
    version: u64,
    /// The changes, each with its version.
    changes: VecDeque<(u64, ChangeSummary)>,
}

/// Changes, for a viewer.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeSummary {
    pub version: u64,
    /// Routes, as `namespace/name`.
    pub routes: Vec<String>,
    /// Whether further routes changed.
    pub more: bool,
    pub routers: bool,
    pub zones: bool,
}

/// Routes named in one message.
const NAMED_MAX: usize = 32;

impl ChangeSummary {
    /// Returns the change of all objects: they were listed again.
    fn all() -> ChangeSummary {
        ChangeSummary { more: true, routers: true, zones: true, ..ChangeSummary::default() }
    }

    /// Returns the union of changes; their versions are added, as those of two informers.
    pub fn and(mut self, other: ChangeSummary) -> ChangeSummary {
        self.version += other.version;
        self.more |= other.more;
        for name in other.routes {
            if self.routes.contains(&name) {
                continue;
            }
            match self.routes.len() < NAMED_MAX {
                true => self.routes.push(name),
                false => self.more = true,
            }
        }
        self.routers |= other.routers;
        self.zones |= other.zones;
        self
    }
}

impl Feeds {
    /// Returns the informers that show what `rights` allow, once each was listed: one of all namespaces, or one a namespace.
    pub async fn permitted(&self, session: &Session, rights: &Rights) -> Result<Vec<Arc<Feed>>, Failure> {
        let scopes: Vec<Scope> =
            if rights.all { vec![None] } else { rights.namespaces.iter().cloned().map(Some).collect() };
        let start = |settings| {
            let client = || session.client.clone();
            let (routes, route_changes) = reflect(client(), settings, |route: Route| RouteSummary::from(&route));
            // Their contents are not kept: viewers read these few objects from the API.
            let routers = rights.routers.then(|| reflect(client(), Default::default(), |_: Router| ()).1);
            let zones = rights.zones.then(|| reflect(client(), Default::default(), |_: Zone| ()).1);
            let recent = Arc::new(Mutex::new(Recent::default()));
            (routes, recent.clone(), follow(route_changes, routers, zones, recent))
        };
        self.of(scopes, start).await
    }
}

impl Feed {
    /// Counts changes.
    pub fn version(&self) -> u64 {
        self.news.lock().version
    }

    /// Returns the changes after `version`.
    pub fn since(&self, version: u64) -> ChangeSummary {
        self.news.lock().since(version)
    }
}

impl Recent {
    fn push(&mut self, changed: ChangeSummary) {
        self.version += 1;
        if self.changes.len() == RECENT_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back((self.version, changed));
    }

    fn since(&self, version: u64) -> ChangeSummary {
        // The kind of a dropped change is unknown.
        let is_gap = self.version > version && self.changes.front().is_none_or(|(first, _)| *first > version + 1);
        let mut news = if is_gap { ChangeSummary::all() } else { ChangeSummary::default() };
        for (_, changed) in self.changes.iter().filter(|(at, _)| *at > version) {
            news = news.and(changed.clone());
        }
        ChangeSummary { version: self.version, ..news }
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
        let none = ChangeSummary::default();
        let changed = tokio::select! {
            change = routes.next() => name(change).map(|key| ChangeSummary { routes: vec![key.to_string()], ..none }),
            change = next(&mut routers) => name(change).map(|_| ChangeSummary { routers: true, ..none }),
            change = next(&mut zones) => name(change).map(|_| ChangeSummary { zones: true, ..none }),
        };
        recent.lock().push(changed.unwrap_or_else(ChangeSummary::all));
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
        let route = |name: &str| ChangeSummary { routes: vec![format!("shop/{name}")], ..ChangeSummary::default() };
        assert_eq!(recent.since(0), ChangeSummary::default());
        for name in ["a", "b", "a"] {
            recent.push(route(name));
        }
        recent.push(ChangeSummary { zones: true, ..ChangeSummary::default() });
        let news = recent.since(0);
        assert_eq!(news.routes, ["shop/a", "shop/b"]);
        assert_eq!((news.version, news.more, news.routers, news.zones), (4, false, false, true));
        assert_eq!(recent.since(3).routes, Vec::<String>::new());
        for number in 0..40 {
            recent.push(route(&number.to_string()));
        }
        let news = recent.since(4);
        assert_eq!((news.routes.len(), news.more, news.routers), (NAMED_MAX, true, false));
        for _ in 0..RECENT_MAX {
            recent.push(ChangeSummary { routers: true, ..ChangeSummary::default() });
        }
        assert!(recent.since(4).more, "what was forgotten may have been anything");
        assert!(!recent.since(recent.version - 1).more);
    }
}
