//! The names that the platform reported as `Resolvable`, and where they may lead.
//!
//! A name is promised from the event that shows the condition until a client requests to delete its Route. While a client moves the
//! Route, its names lead to the old or to the new Router; as soon as an event shows the condition for the new one, there alone. The alias
//! leads to the Router that the Route has left until its instances serve the Route and resolvers do not have the former name any more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard};
use std::time::SystemTime;

use serde_json::Value;

use crate::scene::DOMAIN;

/// The annotation by which a client numbers its writes to a Route.
pub const VERSION: &str = "example.org/version";
pub const MOVE_TO: &str = "signpost.dev/move-to";

/// The maximum number of requests and events of a Route in a report.
const HISTORY_MAX: usize = 12;

/// The guarantees for the names of one Route.
#[derive(Debug, Clone)]
pub struct Promise {
    pub route: String,
    pub system: String,
    pub alias: String,
    /// The Router of the Route, and the Router that its alias leads to: the former Router, if its name there is not a former name
    /// yet.
    pub router: String,
    pub leads_to: String,
    /// The Routers that its names may lead to.
    pub routers: BTreeSet<String>,
    /// Whether its names never belonged to a deleted Route, so that no resolver can remember that they were gone.
    pub is_first: bool,
    /// A change of the promise has another number.
    number: u64,
}

/// The promises of all Routes.
#[derive(Default)]
pub struct Promises(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    routes: BTreeMap<String, Entry>,
    numbers: u64,
}

#[derive(Default)]
struct Entry {
    incarnations: u32,
    is_deleted: bool,
    /// The uids of deleted Routes with this name.
    gone: BTreeSet<String>,
    /// The number of the last write that a client has sent.
    version: u64,
    /// The Routers to which clients requested moves.
    targets: BTreeSet<String>,
    promise: Option<Promise>,
    /// The last event.
    seen: Option<Value>,
    /// A system name, and the Router that the alias led to when the Route got this name.
    left: Option<(String, String)>,
    /// The last requests and events, for a report.
    history: VecDeque<String>,
}

impl Entry {
    fn note(&mut self, text: String) {
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(format!("{} {text}", now()));
    }
}

/// Returns the time of day in UTC, as logs show it.
fn now() -> String {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("it is later");
    let (seconds, milliseconds) = (since.as_secs() % 86_400, since.subsec_millis());
    format!("{:02}:{:02}:{:02}.{milliseconds:03}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

impl Promises {
    /// A client is about to create a Route.
    pub fn creating(&self, route: &str, version: u64) {
        let mut inner = self.inner();
        let entry = inner.routes.entry(route.to_owned()).or_default();
        entry.incarnations += 1;
        entry.is_deleted = false;
        entry.version = version;
        entry.note(format!("version {version}: create"));
    }

    /// A client is about to move a Route.
    pub fn moving(&self, route: &str, version: u64, to: &str) {
        let mut inner = self.inner();
        inner.numbers += 1;
        let number = inner.numbers;
        let entry = inner.routes.entry(route.to_owned()).or_default();
        entry.version = version;
        entry.targets.insert(to.to_owned());
        entry.note(format!("version {version}: move to {to}"));
        if let Some(promise) = &mut entry.promise {
            promise.routers.insert(to.to_owned());
            promise.number = number;
        }
    }

    /// A client is about to delete a Route.
    pub fn deleting(&self, route: &str, uid: &str) {
        let mut inner = self.inner();
        let entry = inner.routes.entry(route.to_owned()).or_default();
        entry.is_deleted = true;
        entry.gone.insert(uid.to_owned());
        entry.note("delete".to_owned());
        entry.promise = None;
    }

    /// A Route is there after all: a request to delete it had no answer, and no effect.
    pub fn is_there(&self, route: &str, uid: &str) {
        let mut inner = self.inner();
        let entry = inner.routes.entry(route.to_owned()).or_default();
        if entry.gone.remove(uid) {
            entry.is_deleted = false;
            let seen = entry.seen.take().filter(|seen| seen["metadata"]["uid"] == uid);
            drop(inner);
            seen.iter().for_each(|seen| self.observe(seen));
        }
    }

    /// Returns whether a client ever requested to move the Route to this Router.
    pub fn was_requested(&self, route: &str, router: &str) -> bool {
        self.inner().routes.get(route).is_some_and(|entry| entry.targets.contains(router))
    }

    /// Takes note of a Route as a watch shows it.
    pub fn observe(&self, route: &Value) {
        let (metadata, status) = (&route["metadata"], &route["status"]);
        let annotation = |name: &str| metadata["annotations"][name].as_str();
        let (Some(name), Some(router), Some(system), Some(uid)) =
            (metadata["name"].as_str(), status["router"].as_str(), status["dns"].as_str(), metadata["uid"].as_str())
        else {
            return;
        };
        let resolvable = find(route, "Resolvable");
        let mut inner = self.inner();
        inner.numbers += 1;
        let number = inner.numbers;
        let Some(entry) = inner.routes.get_mut(name) else { return };
        entry.seen = Some(route.clone());
        entry.note(format!(
            "event: {}, version {:?}, on {router}, to move to {:?}, {}",
            metadata["resourceVersion"],
            annotation(VERSION),
            annotation(MOVE_TO),
            resolvable.map_or(String::new(), |condition| format!("{} {}", condition["status"], condition["message"])),
        ));
        let mut former = status["formerNames"].as_array().into_iter().flatten();
        let left = former.find(|former| former["from"].is_string()).and_then(|former| former["router"].as_str());
        if let Some(left) = left {
            entry.left = Some((system.to_owned(), left.to_owned()));
        }
        if resolvable.is_none_or(|condition| condition["status"] != "True") {
            return;
        }
        if entry.is_deleted || entry.gone.contains(uid) {
            return;
        }
        let version = annotation(VERSION).and_then(|version| version.parse().ok());
        let is_settled = version == Some(entry.version) && annotation(MOVE_TO).is_none();
        let leads_to = left.unwrap_or(router).to_owned();
        let mut routers = BTreeSet::from([router.to_owned(), leads_to.clone()]);
        if !is_settled {
            routers.extend(entry.targets.iter().cloned());
            routers.extend(entry.promise.iter().flat_map(|promise| promise.routers.iter().cloned()));
        }
        // The time when each name server has changed the alias is not reported.
        routers.extend(entry.left.iter().filter(|(name, _)| name == system).map(|(_, router)| router.clone()));
        let label = system.split('.').next().unwrap_or_default();
        entry.promise = Some(Promise {
            route: name.to_owned(),
            system: system.to_owned(),
            alias: format!("{label}.routes.{DOMAIN}"),
            router: router.to_owned(),
            leads_to,
            routers,
            is_first: entry.incarnations == 1,
            number,
        });
    }

    /// Returns the next promise in the order of Routes, after this Route.
    pub fn next(&self, route: &str) -> Option<Promise> {
        let inner = self.inner();
        let after = inner.routes.range::<str, _>((Bound::Excluded(route), Bound::Unbounded));
        after.chain(inner.routes.iter()).find_map(|(_, entry)| entry.promise.clone())
    }

    /// Returns the promise of a Route.
    pub fn of(&self, route: &str) -> Option<Promise> {
        self.inner().routes.get(route)?.promise.clone()
    }

    /// Returns whether a promise is still the same.
    pub fn holds(&self, promise: &Promise) -> bool {
        let inner = self.inner();
        let now = inner.routes.get(&promise.route).and_then(|entry| entry.promise.as_ref());
        now.is_some_and(|now| now.number == promise.number)
    }

    /// Returns the history of a Route.
    pub fn history(&self, route: &str) -> String {
        let inner = self.inner();
        let history = inner.routes.get(route).into_iter().flat_map(|entry| &entry.history);
        history.map(|text| format!("\n    {text}")).collect()
    }

    /// Returns all promises.
    pub fn all(&self) -> Vec<Promise> {
        self.inner().routes.values().filter_map(|entry| entry.promise.clone()).collect()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no thread panics with it")
    }
}

/// Returns the status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    find(object, kind)?["status"].as_str()
}

fn find<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}
