//! The input of one scheduling decision: the Routers, and the number of routes of each Router and each namespace.
//!
//! Bindings count from the moment they are *assumed*: from the decision, before the API has confirmed the binding. Otherwise,
//! many decisions in a row would all choose the same emptiest Router. An assumption ends when the informer shows the binding
//! (which then counts permanently), when binding fails, or when the informer does not show it for too long.
//!
//! Events change a [`Snapshot`] and decisions read it, never both at once; the decision is a pure function that takes it by
//! shared reference.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::reflector::ObjectKey;
use crate::world::BindingInfo;
use crate::world::router::RouterTarget;

/// The lifetime of an assumption that the API confirmed, but the informer did not: its binding was most likely deleted before the
/// informer got it.
const ASSUMPTION_LONGEST: Duration = Duration::from_secs(60);

/// Routers with their routes.
#[derive(Debug, Default)]
pub struct Snapshot {
    shards: BTreeMap<String, Shard>,
    /// The number of shards whose Router exists.
    present: usize,
    /// The number of placed routes of each namespace, assumed ones included; namespaces without any are omitted.
    namespaces: HashMap<String, u32>,
    assumed: HashMap<ObjectKey, Assumed>,
    last_assigned: u64,
    /// The newest version of any Router. Each decision reads it, and it changes with a Router.
    revision: Option<u64>,
    /// The first labels of the Routers' zones, with the number of Routers, by the rest of their names.
    zones_below: HashMap<String, BTreeMap<String, u32>>,
    /// Whether there is a zone directly below that of another Router, as soon as a decision asks.
    is_nested: OnceLock<bool>,
}

/// A Router, or the routes bound to a Router that does not exist (any more).
#[derive(Debug, Default)]
pub struct Shard {
    /// The Router, if it exists.
    pub router: Option<RouterTarget>,
    /// Routes bound to it, assumed ones included.
    pub routes: u32,
    /// The Router's last assignment: the newest among the counted ones, and those in flight; 0: never.
    pub last_assigned: u64,
    /// The assignments that this is the newest of.
    pub assignments: Assignments,
}

/// The assignments of a Router.
#[derive(Debug, Default)]
pub struct Assignments {
    /// The newest permanent assignment.
    taken: u64,
    /// The assignments in flight.
    open: BTreeSet<u64>,
}

impl Shard {
    fn open(&mut self, turn: u64) {
        self.assignments.open.insert(turn);
        self.last_assigned = self.last_assigned.max(turn);
    }

    fn take(&mut self, turn: u64) {
        self.assignments.taken = self.assignments.taken.max(turn);
        self.close(turn);
    }

    /// Ends an assignment in flight. If it was not counted, it has no effect.
    fn close(&mut self, turn: u64) {
        self.assignments.open.remove(&turn);
        self.last_assigned = self.assignments.taken.max(self.assignments.open.last().copied().unwrap_or(0));
    }
}

#[derive(Debug)]
struct Assumed {
    router: String,
    turn: u64,
    since: Instant,
}

impl Snapshot {
    pub fn routers(&self) -> impl Iterator<Item = (&RouterTarget, &Shard)> {
        self.shards.values().filter_map(|shard| shard.router.as_ref().map(|router| (router, shard)))
    }

    pub fn router(&self, name: &str) -> Option<(&RouterTarget, &Shard)> {
        self.shards.get(name).and_then(|shard| shard.router.as_ref().map(|router| (router, shard)))
    }

    /// Returns the number of routes of a Router, assumed ones included.
    pub fn routes(&self, router: &str) -> u32 {
        self.shards.get(router).map_or(0, |shard| shard.routes)
    }

    /// Returns the number of placed routes of a namespace, assumed ones included.
    pub fn routes_of_namespace(&self, namespace: &str) -> u32 {
        self.namespaces.get(namespace).copied().unwrap_or(0)
    }

    /// Returns the newest version of any Router, if versions are numbers.
    pub fn revision(&self) -> Option<String> {
        self.revision.map(|version| version.to_string())
    }

    fn newest_version(&self) -> Option<u64> {
        self.routers().filter_map(|(router, _)| version_of(router)).max()
    }

    /// Adds or changes a Router.
    pub fn set_router(&mut self, router: RouterTarget) {
        let (name, version) = (router.name.clone(), version_of(&router));
        let dns = router.dns.clone();
        let before = self.shards.entry(name).or_default().router.replace(router);
        if before.as_ref().is_none_or(|before| before.dns != dns) {
            before.iter().for_each(|before| self.count_zone(&before.dns, false));
            self.count_zone(&dns, true);
        }
        if before.is_none() {
            self.present += 1;
        }
        // Normally, a change is the newest. If it removes the newest, all are searched.
        let was_newest = before.as_ref().and_then(version_of).is_some_and(|was| Some(was) == self.revision);
        self.revision =
            if was_newest && version < self.revision { self.newest_version() } else { self.revision.max(version) };
    }

    /// Returns the number of routes on Routers that no longer exist.
    pub fn orphans(&self) -> usize {
        // Nearly always, there is no such Router, and nothing to count.
        if self.present == self.shards.len() {
            return 0;
        }
        let gone = self.shards.values().filter(|shard| shard.router.is_none());
        gone.map(|shard| usize::try_from(shard.routes).unwrap_or(usize::MAX)).sum()
    }

    /// Removes a Router; its bindings stay counted.
    pub fn remove_router(&mut self, name: &str) {
        let gone = self.shards.get_mut(name).and_then(|shard| shard.router.take());
        if let Some(gone) = &gone {
            self.present -= 1;
            self.count_zone(&gone.dns, false);
        }
        if gone.as_ref().and_then(version_of).is_some_and(|version| Some(version) == self.revision) {
            self.revision = self.newest_version();
        }
        self.forget_empty(name);
    }

    fn count_zone(&mut self, dns: &str, is_there: bool) {
        self.is_nested = OnceLock::new();
        let Some((label, rest)) = dns.split_once('.') else { return };
        let labels = self.zones_below.entry(rest.to_owned()).or_default();
        let count = labels.entry(label.to_owned()).or_default();
        *count = if is_there { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            labels.remove(label);
        }
        if labels.is_empty() {
            self.zones_below.remove(rest);
        }
    }

    /// Returns whether there is a zone directly below that of another Router.
    pub fn is_nested(&self) -> bool {
        let is_outer = |(router, _): (&RouterTarget, _)| self.zones_below.contains_key(&router.dns);
        *self.is_nested.get_or_init(|| self.routers().any(is_outer))
    }

    /// Returns whether the name of this label in the Router's zone is the zone of another Router.
    pub fn is_zone(&self, router: &RouterTarget, label: &str) -> bool {
        self.is_nested() && self.zones_below.get(&router.dns).is_some_and(|labels| labels.contains_key(label))
    }

    /// Counts a binding that the informer shows.
    pub fn bound(&mut self, key: &ObjectKey, binding: &BindingInfo) {
        let assumed = self.assumed.remove(key);
        // An assignment of this scheduler was counted at its decision, in the order of decisions. The store's order can differ
        // slightly, and using it would break the circle.
        let ours = assumed.as_ref().filter(|assumed| *assumed.router == *binding.router).map(|assumed| assumed.turn);
        if let Some(assumed) = &assumed {
            self.end(key, assumed, ours.is_some());
        }
        self.count(key);
        self.last_assigned = self.last_assigned.max(binding.turn);
        if !self.shards.contains_key(&*binding.router) {
            self.shards.insert(binding.router.to_string(), Shard::default());
        }
        let shard = self.shards.get_mut(&*binding.router).expect("it was inserted above");
        shard.routes += 1;
        shard.take(ours.unwrap_or(binding.turn));
    }

    /// Removes a binding whose deletion the informer shows.
    pub fn unbound(&mut self, key: &ObjectKey, binding: &BindingInfo) {
        self.discount(key, &binding.router);
    }

    /// Assumes the binding of a decision that is being carried out.
    pub fn assume(&mut self, key: ObjectKey, router: &str, now: Instant) {
        self.forget(&key);
        self.count(&key);
        self.last_assigned += 1;
        let shard = self.shards.entry(router.to_owned()).or_default();
        shard.routes += 1;
        shard.open(self.last_assigned);
        self.assumed.insert(key, Assumed { router: router.to_owned(), turn: self.last_assigned, since: now });
    }

    /// Reverts an assumption that was not carried out: the assignment does not count for the Router.
    pub fn forget(&mut self, key: &ObjectKey) {
        if let Some(assumed) = self.assumed.remove(key) {
            self.end(key, &assumed, false);
        }
    }

    fn end(&mut self, key: &ObjectKey, assumed: &Assumed, is_taken: bool) {
        if let Some(shard) = self.shards.get_mut(&assumed.router) {
            if is_taken { shard.take(assumed.turn) } else { shard.close(assumed.turn) }
        }
        self.discount(key, &assumed.router);
    }

    /// Returns the Router to which a route's binding is assumed.
    pub fn assumed(&self, key: &ObjectKey) -> Option<&str> {
        self.assumed.get(key).map(|assumed| assumed.router.as_str())
    }

    /// Returns whether a route's binding is assumed.
    pub fn is_assumed(&self, key: &ObjectKey) -> bool {
        self.assumed.contains_key(key)
    }

    /// Ends assumptions that the informer never confirmed; `in_flight` returns whether one is still being carried out.
    pub fn expire(&mut self, now: Instant, in_flight: impl Fn(&ObjectKey) -> bool) {
        let expired = |(key, assumed): (&ObjectKey, &Assumed)| {
            (now.duration_since(assumed.since) > ASSUMPTION_LONGEST && !in_flight(key)).then(|| key.clone())
        };
        let expired: Vec<ObjectKey> = self.assumed.iter().filter_map(expired).collect();
        for key in expired {
            if let Some(assumed) = self.assumed.remove(&key) {
                self.end(&key, &assumed, true);
            }
        }
    }

    fn count(&mut self, key: &ObjectKey) {
        let namespace = key.namespace();
        match self.namespaces.get_mut(namespace) {
            Some(routes) => *routes += 1,
            None => drop(self.namespaces.insert(namespace.to_owned(), 1)),
        }
    }

    fn discount(&mut self, key: &ObjectKey, router: &str) {
        let namespace = key.namespace();
        if let Some(routes) = self.namespaces.get_mut(namespace) {
            *routes = routes.saturating_sub(1);
            if *routes == 0 {
                self.namespaces.remove(namespace);
            }
        }
        if let Some(shard) = self.shards.get_mut(router) {
            shard.routes = shard.routes.saturating_sub(1);
        }
        self.forget_empty(router);
    }

    fn forget_empty(&mut self, name: &str) {
        if self.shards.get(name).is_some_and(|shard| shard.router.is_none() && shard.routes == 0) {
            self.shards.remove(name);
        }
    }
}

/// Returns a Router's version, if versions are numbers.
fn version_of(router: &RouterTarget) -> Option<u64> {
    router.version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(router: &str, turn: u64) -> BindingInfo {
        BindingInfo { router: router.into(), turn, ..BindingInfo::default() }
    }

    #[test]
    fn assumed_bindings_count_once() {
        let mut snapshot = Snapshot::default();
        let key = ObjectKey::namespaced("ns", "a");
        snapshot.assume(key.clone(), "shard1", Instant::now());
        assert_eq!(snapshot.routes("shard1"), 1);
        snapshot.bound(&key, &binding("shard1", 7));
        assert_eq!(snapshot.routes("shard1"), 1);
        assert!(!snapshot.is_assumed(&key));
        snapshot.forget(&key);
        assert_eq!(snapshot.routes("shard1"), 1, "what was confirmed is not forgotten");
        assert_eq!(snapshot.routes_of_namespace("ns"), 1);
        snapshot.unbound(&key, &binding("shard1", 7));
        assert_eq!(snapshot.routes("shard1"), 0);
        assert_eq!(snapshot.routes_of_namespace("ns"), 0);
    }

    #[test]
    fn a_failed_assumption_gives_its_turn_back() {
        let mut snapshot = Snapshot::default();
        snapshot.bound(&ObjectKey::namespaced("ns", "old"), &binding("shard1", 40));
        let key = ObjectKey::namespaced("ns", "a");
        snapshot.assume(key.clone(), "shard1", Instant::now());
        assert_eq!(snapshot.shards["shard1"].last_assigned, 41);
        snapshot.forget(&key);
        assert_eq!(snapshot.shards["shard1"].last_assigned, 40);
        // Another scheduler chose another Router meanwhile: the assumption is dropped, and the other choice counts.
        snapshot.assume(key.clone(), "shard1", Instant::now());
        snapshot.bound(&key, &binding("shard2", 50));
        assert_eq!((snapshot.routes("shard1"), snapshot.routes("shard2")), (1, 1));
        assert_eq!(snapshot.routes_of_namespace("ns"), 2);
    }

    #[test]
    fn failed_assignments_never_were() {
        let key = |name: &str| ObjectKey::namespaced("ns", name);
        // The order in which they fail makes no difference.
        for order in [["a", "b"], ["b", "a"]] {
            let mut snapshot = Snapshot::default();
            snapshot.bound(&key("old"), &binding("shard1", 40));
            for name in ["a", "b", "c"] {
                snapshot.assume(key(name), "shard1", Instant::now());
            }
            assert_eq!(snapshot.shards["shard1"].last_assigned, 43);
            order.iter().for_each(|name| snapshot.forget(&key(name)));
            assert_eq!(snapshot.shards["shard1"].last_assigned, 43);
            snapshot.forget(&key("c"));
            assert_eq!(snapshot.shards["shard1"].last_assigned, 40, "{order:?}");
            // A confirmed assignment counts, regardless of the earlier ones.
            snapshot.assume(key("d"), "shard1", Instant::now());
            snapshot.assume(key("e"), "shard1", Instant::now());
            snapshot.bound(&key("e"), &binding("shard1", 99));
            snapshot.forget(&key("d"));
            assert_eq!(snapshot.shards["shard1"].last_assigned, 45, "{order:?}");
            assert!(snapshot.shards["shard1"].assignments.open.is_empty());
        }
    }

    #[test]
    fn assumptions_expire_when_no_longer_in_flight() {
        let mut snapshot = Snapshot::default();
        let key = ObjectKey::namespaced("ns", "a");
        let now = Instant::now();
        snapshot.assume(key.clone(), "shard1", now);
        snapshot.expire(now, |_| false);
        let later = now + ASSUMPTION_LONGEST * 2;
        snapshot.expire(later, |_| true);
        assert!(snapshot.is_assumed(&key));
        snapshot.expire(later, |_| false);
        assert!(!snapshot.is_assumed(&key));
        assert_eq!((snapshot.routes("shard1"), snapshot.routes_of_namespace("ns")), (0, 0));
    }

    #[test]
    fn the_revision_is_the_newest_version_of_any_router() {
        let mut snapshot = Snapshot::default();
        let set = |snapshot: &mut Snapshot, name: &str, version: &str| {
            let mut router = crate::scheduler::filter::tests::router(name, serde_json::json!({}));
            version.clone_into(&mut router.version);
            snapshot.set_router(router);
            snapshot.revision()
        };
        for (name, version, expected) in [
            ("a", "opaque", None),
            ("a", "5", Some("5")),
            ("b", "9", Some("9")),
            ("c", "7", Some("9")),
            ("b", "3", Some("7")),
        ] {
            assert_eq!(set(&mut snapshot, name, version).as_deref(), expected, "{name} {version}");
        }
        snapshot.remove_router("c");
        assert_eq!(snapshot.revision().as_deref(), Some("5"));
        snapshot.remove_router("b");
        snapshot.remove_router("a");
        assert_eq!(snapshot.revision(), None);
    }

    #[test]
    fn bindings_of_a_router_that_is_gone_stay_counted() {
        let mut snapshot = Snapshot::default();
        snapshot.bound(&ObjectKey::namespaced("ns", "a"), &binding("shard1", 1));
        snapshot.remove_router("shard1");
        assert_eq!(snapshot.routers().count(), 0);
        assert_eq!(snapshot.routes("shard1"), 1);
    }
}
