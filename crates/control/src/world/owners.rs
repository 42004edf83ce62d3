//! The Routers and Routes whose loss is held: what depends on them is not deleted.
//!
//! | missing | kept until the object returns, or an administrator approves the loss |
//! |---|---|
//! | Router | the processes, or the objects of the cluster, that run its instances; its Zone |
//! | Route | its RouteBinding and its NameClaims |
//!
//! A Route without a RouteBinding has nothing to keep. The loss of one with a RouteBinding has the ID that name servers use for the loss
//! of the RouteBinding: in Signpost's own API, both are deleted together, and one approval covers both.
//!
//! The informers of both kinds report every change here before their readers get it, so nothing is deleted before the loss was
//! judged ([`Hold`]). Before the first list, there is no object that a list can lack. So an owner that is only named by what depends
//! on it counts as missing, too: after a restart, an API that has lost its objects looks like one from which they were deleted.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{RouteInfo, RouterInfo};
use crate::client::reflector::{Applied, Change, ObjectKey};
use crate::deletion_hold::hold::{Decisions, Held, Hold, Losses, Rules};

/// The most names of Routers that are remembered after their deletion.
const DELETED_MAX: usize = 65_536;
/// The share of known objects that can be lost at once until it is set, in percent: the setting's default.
const SHARE_PERCENT: u32 = 25;

/// The owners; clones share them.
#[derive(Clone)]
pub struct Owners(Arc<Shared>);

struct Shared {
    routers: Mutex<KindOwners>,
    routes: Mutex<KindOwners>,
    is_judged: AtomicBool,
    /// Wakes the loop that reports the holds.
    changed: Notify,
}

/// The known objects of one kind.
struct KindOwners {
    hold: Hold<()>,
    /// The number of existing objects on which something depends.
    count: usize,
    /// The names of the Routers that were listed or watched. For Routes, which are many, it is empty.
    seen: HashSet<Box<str>>,
}

impl Default for Owners {
    fn default() -> Self {
        let known = |rules| Mutex::new(KindOwners { hold: Hold::new(rules), count: 0, seen: HashSet::new() });
        let (routers, routes) = (known(Rules::routers(SHARE_PERCENT)), known(Rules::bindings(SHARE_PERCENT)));
        Owners(Arc::new(Shared { routers, routes, is_judged: AtomicBool::new(false), changed: Notify::new() }))
    }
}

impl Owners {
    /// Sets the percentage of known objects that can be lost at once.
    pub fn set_share(&self, percent: u32) {
        self.0.routers.lock().hold.set_share(percent);
        self.0.routes.lock().hold.set_share(percent);
    }

    /// Takes a change of Routers. The deletion of one to which no name leads is not a loss.
    pub fn take_routers(&self, change: &Change<RouterInfo>) {
        let mut routers = self.0.routers.lock();
        match change {
            Change::Applied(applied) => routers.see(&applied.key.name),
            Change::Deleted { key, .. } => routers.see(&key.name),
            Change::Relisted(list) => {
                list.applied.iter().for_each(|applied| routers.see(&applied.key.name));
                list.vanished.iter().for_each(|(key, _)| routers.see(&key.name));
            }
        }
        self.note(routers.take(change, |_| true, is_unused));
    }

    pub fn take_routes(&self, change: &Change<RouteInfo>) {
        self.note(self.0.routes.lock().take(change, |route| route.bound, |_| false));
    }

    /// Judges Routers that something names which depends on them, and that no list and no event has shown.
    pub fn miss_routers<'a>(&self, named: impl IntoIterator<Item = &'a str>) {
        let mut routers = self.0.routers.lock();
        let unseen: HashSet<Box<str>> =
            named.into_iter().filter(|name| !routers.seen.contains(*name)).map(Box::from).collect();
        unseen.iter().for_each(|name| routers.see(name));
        self.note(routers.miss(unseen));
    }

    /// Judges Routes, likewise, when all kinds were listed for the first time.
    pub fn miss_routes(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        let missing = keys.into_iter().map(|key| key.to_string().into()).collect();
        self.0.routes.lock().miss(missing);
        self.0.is_judged.store(true, Ordering::Release);
        self.note(true);
    }

    /// Returns whether the first lists were judged.
    pub fn is_judged(&self) -> bool {
        self.0.is_judged.load(Ordering::Acquire)
    }

    /// Returns whether a missing Router is held.
    pub fn keeps_router(&self, name: &str) -> bool {
        self.0.routers.lock().hold.holds(name)
    }

    /// Returns whether a missing Route is held.
    pub fn keeps_route(&self, key: &ObjectKey) -> bool {
        let routes = self.0.routes.lock();
        // Nearly always, nothing is held.
        !routes.hold.is_empty() && routes.hold.holds(&key.to_string())
    }

    /// Releases the approved losses, and returns the held ones.
    pub fn decide(&self, decisions: &Decisions) -> Vec<Held> {
        let both = [&self.0.routers, &self.0.routes];
        let held = both.into_iter().filter_map(|known| {
            let mut known = known.lock();
            let released = known.hold.approved(decisions);
            if let Some(first) = released.keys().next() {
                tracing::warn!(
                    count = released.len(),
                    first,
                    "deletion approved: what depends on the objects is deleted"
                );
            }
            known.hold.held(decisions)
        });
        held.collect()
    }

    /// Waits for a change of the held losses.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    fn note(&self, is_changed: bool) {
        if is_changed {
            self.0.changed.notify_one();
        }
    }
}

impl KindOwners {
    /// Takes a change; returns whether it changes the held losses. `counts`: something depends on the object. `is_unused`: a client
    /// may delete it at any time.
    fn take<V>(&mut self, change: &Change<V>, counts: impl Fn(&V) -> bool, is_unused: impl Fn(&V) -> bool) -> bool {
        let before = self.hold.sums();
        match change {
            Change::Applied(applied) => self.appear(applied, &counts),
            Change::Deleted { key, last } if counts(last) => {
                let known = self.known();
                self.count = self.count.saturating_sub(1);
                if !is_unused(last) {
                    self.hold.apply_watch_event(known, &key.to_string(), None, Instant::now());
                }
            }
            Change::Deleted { .. } => {}
            Change::Relisted(list) => {
                if list.first {
                    self.count = 0;
                }
                list.applied.iter().for_each(|applied| self.appear(applied, &counts));
                let vanished = list.vanished.iter().filter(|(_, last)| counts(last));
                let losses: Losses<()> = vanished.map(|(key, _)| (key.to_string().into(), None)).collect();
                let (known, lost) = (self.known(), losses.len());
                self.hold.apply_list(known, losses);
                self.count = self.count.saturating_sub(lost);
            }
        }
        self.hold.sums() != before
    }

    fn appear<V>(&mut self, applied: &Applied<V>, counts: impl Fn(&V) -> bool) {
        let was_counted = applied.before.as_ref().is_some_and(|before| counts(before));
        self.count = (self.count + usize::from(counts(&applied.now))).saturating_sub(usize::from(was_counted));
        // Nearly always, nothing is held.
        if !self.hold.is_empty() {
            self.hold.release(&applied.key.to_string());
        }
    }

    /// Judges objects that are missing from the first list; returns whether that changes the held losses.
    fn miss(&mut self, missing: HashSet<Box<str>>) -> bool {
        let (before, known) = (self.hold.sums(), self.known() + missing.len());
        let missing: Losses<()> = missing.into_iter().map(|name| (name, None)).collect();
        if !missing.is_empty() {
            self.hold.apply_list(known, missing);
        }
        self.hold.sums() != before
    }

    /// Returns the number of existing and held objects.
    fn known(&self) -> usize {
        self.count + self.hold.len()
    }

    fn see(&mut self, name: &str) {
        if self.seen.len() >= DELETED_MAX + self.count {
            // What depended on the first of them has been deleted.
            self.seen = self.hold.keys().map(Box::from).collect();
        }
        if !self.seen.contains(name) {
            self.seen.insert(name.into());
        }
    }
}

/// Returns whether no name leads to a Router, as its status shows.
fn is_unused(router: &RouterInfo) -> bool {
    let status = router.object.status.as_ref();
    status.is_some_and(|status| status.routes == Some(0) && status.former_names.unwrap_or(0) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::Relist;
    use crate::deletion_hold::hold::HoldDecision;
    use crate::world::Settings;
    use serde_json::json;
    use signpost_types::v1alpha1::deletion_hold::Decision;

    fn key(number: usize) -> ObjectKey {
        ObjectKey::namespaced("ns", &format!("r{number:03}"))
    }

    fn applied<V>(key: ObjectKey, value: V) -> Applied<V> {
        Applied { key, now: Arc::new(value), before: None, recreated: false }
    }

    fn deleted<V>(key: ObjectKey, last: V) -> Change<V> {
        Change::Deleted { key, last: Arc::new(last) }
    }

    /// Returns a list of Routes after these have vanished.
    fn list(applied: Vec<Applied<RouteInfo>>, vanished: std::ops::Range<usize>, total: usize) -> Change<RouteInfo> {
        let vanished = vanished.map(|number| (key(number), Arc::new(bound()))).collect();
        Change::Relisted(Relist { first: false, applied, vanished, total })
    }

    fn bound() -> RouteInfo {
        RouteInfo { bound: true, ..RouteInfo::default() }
    }

    fn owners(routes: usize) -> Owners {
        let owners = Owners::default();
        owners.take_routes(&list((0..routes).map(|number| applied(key(number), bound())).collect(), 0..0, routes));
        owners
    }

    /// Returns a Router with these numbers of Routes and former names.
    fn router(routes: Option<u32>, former_names: u32) -> RouterInfo {
        let router = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "s"},
            "spec": {}, "status": {"routes": routes, "formerNames": former_names}});
        RouterInfo::new(&serde_json::from_value(router).expect("a Router"), &Settings::of_domain("v3.example"))
    }

    fn kept(owners: &Owners, numbers: std::ops::Range<usize>) -> usize {
        numbers.filter(|number| owners.keeps_route(&key(*number))).count()
    }

    fn approve(owners: &Owners) {
        let held = owners.decide(&Decisions::new());
        let approval = |held: Held| (held.id, HoldDecision { decision: Decision::Approve, set: held.set });
        assert!(owners.decide(&held.into_iter().map(approval).collect()).is_empty());
    }

    #[test]
    fn routes_that_a_list_lacks() {
        for (known, lost, held) in [(100, 4, 0), (100, 25, 0), (100, 26, 26), (3, 3, 3)] {
            let owners = owners(known);
            owners.take_routes(&list(Vec::new(), 0..lost, known - lost));
            assert_eq!(kept(&owners, 0..known), held, "{lost} of {known}");
            // One returns, and the others are approved.
            owners.take_routes(&Change::Applied(applied(key(0), bound())));
            assert_eq!(kept(&owners, 0..known), held.saturating_sub(1), "{lost} of {known}");
            approve(&owners);
            assert_eq!(kept(&owners, 0..known), 0, "{lost} of {known}");
        }
    }

    #[test]
    fn routes_that_a_client_deletes() {
        let owners = owners(200);
        for number in 0..120 {
            owners.take_routes(&deleted(key(number), bound()));
        }
        // As with name servers: from the hundredth on that exceeds the share.
        assert_eq!((kept(&owners, 0..99), kept(&owners, 99..120)), (0, 21));
    }

    #[test]
    fn routes_without_a_binding_do_not_count() {
        let (owners, unbound) = (Owners::default(), || applied(key(0), RouteInfo::default()));
        owners.take_routes(&list(vec![unbound(), applied(key(1), bound())], 0..0, 2));
        owners.take_routes(&Change::Relisted(Relist {
            first: false,
            applied: Vec::new(),
            vanished: vec![(key(0), Arc::new(RouteInfo::default()))],
            total: 1,
        }));
        owners.take_routes(&list(Vec::new(), 1..2, 0));
        assert_eq!((owners.keeps_route(&key(0)), owners.keeps_route(&key(1))), (false, true));
    }

    #[test]
    fn routes_that_were_never_listed() {
        let owners = owners(6);
        assert!(!owners.is_judged());
        owners.miss_routes((6..8).map(key));
        assert!(owners.is_judged());
        assert_eq!(kept(&owners, 0..8), 0, "some are always left of the moment before a restart");
        let empty = Owners::default();
        empty.miss_routes((0..2).map(key));
        assert_eq!(kept(&empty, 0..2), 2, "all are missing");
    }

    #[test]
    fn routers_of_which_something_is_left() {
        let owners = Owners::default();
        let named = |name: &str| ObjectKey::cluster(name);
        owners.take_routers(&Change::Applied(applied(named("deleted"), router(Some(1), 0))));
        owners.take_routers(&deleted(named("deleted"), router(Some(1), 0)));
        owners.miss_routers(["deleted", "lost"]);
        assert_eq!(["deleted", "lost"].map(|name| owners.keeps_router(name)), [false, true]);
        approve(&owners);
        owners.miss_routers(["lost"]);
        assert!(!owners.keeps_router("lost"), "an approval lasts");
        owners.take_routers(&Change::Applied(applied(named("again"), router(Some(1), 0))));
        owners.take_routers(&Change::Relisted(Relist {
            first: false,
            applied: Vec::new(),
            vanished: vec![(named("again"), Arc::new(router(Some(1), 0)))],
            total: 0,
        }));
        assert!(owners.keeps_router("again"), "a list lacks it");
        owners.take_routers(&Change::Applied(applied(named("again"), router(Some(1), 0))));
        assert!(!owners.keeps_router("again") && owners.decide(&Decisions::new()).is_empty());
    }

    #[test]
    fn a_script_deletes_all_routers() {
        for (status, held) in [((Some(1), 0), 3), ((Some(0), 1), 3), ((None, 0), 3), ((Some(0), 0), 0)] {
            let (owners, names) = (Owners::default(), ["a", "b", "c", "d", "e", "f", "g"]);
            let router = || router(status.0, status.1);
            names.iter().for_each(|name| {
                owners.take_routers(&Change::Applied(applied(ObjectKey::cluster(name), router())));
            });
            names.iter().for_each(|name| owners.take_routers(&deleted(ObjectKey::cluster(name), router())));
            assert_eq!(names.iter().filter(|name| owners.keeps_router(name)).count(), held, "{status:?}");
        }
    }
}
