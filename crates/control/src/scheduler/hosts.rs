//! Custom hosts: their holders, and the Routes that wait for them. Pure.
//!
//! `*.shop.example` covers every name below `shop.example`, at any depth, wildcards included, but not `shop.example` itself. In
//! one namespace, such hosts can coexist, and a router uses the most specific one. Between two namespaces, the first one blocks
//! the other, as with equal hosts. Otherwise the holder of `*.shop.example` would lose names below it to any user who requests
//! them, and next to the holder of `www.shop.example`, another tenant would get a host that the holder releases.
//!
//! Equal hosts are one NameClaim, and its creation is the lock. Routes of one namespace share it, each with another path, on one
//! Router. Overlapping hosts are several claims, so the scheduling loop
//! checks them here, in sequence. A host counts from the search for a Router (*reserved*), before its claim is visible.
//! Signpost's own server checks overlaps again in the transaction that writes the claim, for claims that the informer does not
//! show.
//!
//! A host that the router of a source admitted (*adopted*) may overlap with hosts of others, because that router accepts both and uses
//! the most specific one. It is unique, and no Route gets it as its name on a shard.
//!
//! Only a Route that holds or reserves a host blocks others, never a waiting one. Otherwise a Route that waits for the
//! `www.shop.example` of another namespace would block that namespace from `*.shop.example`.
//!
//! Routes that need a held host, or path of it, wait *in a queue*: when it is released, the oldest Route is requeued. If that Route
//! does not take it (another obstacle, no Router, deleted), it gives the host up, which requeues the next. All other Routes that a
//! change can affect are requeued immediately, the oldest first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use jiff::Timestamp;

use crate::client::reflector::ObjectKey;
use crate::world::ClaimInfo;
use signpost_types::v1alpha1::name_claim::HOLDERS_MAX;

/// The reason and the message for a Route that may not have its host.
pub type Refusal = (&'static str, String);

/// The custom hosts that are held or reserved, and the Routes that wait for one.
#[derive(Debug, Default)]
pub struct Hosts {
    /// The hosts by their labels from the last to the first, so that names below one another are adjacent.
    held: BTreeMap<Path, HostOwner>,
    /// The Routes, all of one namespace, that are about to claim a host, with the path prefix of each.
    reserved: BTreeMap<Path, BTreeMap<ObjectKey, Box<str>>>,
    reserved_by: HashMap<ObjectKey, Path>,
    waiting: BTreeMap<Path, BTreeSet<WaitPosition>>,
    waits_for: HashMap<ObjectKey, (Path, WaitPosition)>,
    next_number: u64,
    woken: BTreeSet<WaitPosition>,
}

/// The labels of a host in lower case from the last to the first, each followed by a dot: `example.shop.*.`
type Path = String;

#[derive(Debug)]
struct HostOwner {
    claim: String,
    namespace: Box<str>,
    /// The Routes that have the host, with the path prefix of each, the first one first.
    routes: Vec<(ObjectKey, Box<str>)>,
    /// The end of its quarantine, if its Route was deleted.
    reserved_until: Option<Timestamp>,
}

/// A waiting Route. The order is that of creation and, within a second, of waiting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct WaitPosition {
    created: i64,
    number: u64,
    key: ObjectKey,
    is_in_line: bool,
    /// The path prefix that it requests.
    prefix: Box<str>,
}

/// A host that blocks a Route's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConflict {
    path: Path,
    /// Whether the Route requests this same host, and another Route holds it.
    is_in_line: bool,
    /// The path prefix that the Route requests.
    prefix: Box<str>,
    /// Names nothing of another namespace.
    pub refusal: Refusal,
}

fn path(host: &str) -> Path {
    host.rsplit('.').fold(String::with_capacity(host.len() + 1), |path, label| path + &label.to_ascii_lowercase() + ".")
}

/// Returns the conflict of a Route of `namespace` with `owner`, which has the host, or its path `prefix`, or had it until a
/// quarantine.
pub fn held(
    host: &str,
    prefix: &str,
    namespace: &str,
    owner: &ObjectKey,
    reserved_until: Option<Timestamp>,
) -> HostConflict {
    let refusal = match reserved_until {
        Some(until) => {
            let message =
                format!("{host} is reserved until {until:.0} for the namespace of the deleted Route that held it");
            ("HostReserved", message)
        }
        // Only users who can see the holder get its name.
        None if owner.namespace() == namespace => {
            already_claimed(format!("{host} with the path {prefix} is held by Route {}", owner.name))
        }
        None => already_claimed(format!("{host} is held by a Route of another namespace")),
    };
    HostConflict { path: path(host), is_in_line: true, prefix: prefix.into(), refusal }
}

/// Returns the conflict with a host that has as many Routes as it can have.
pub fn full(host: &str, prefix: &str) -> HostConflict {
    let refusal = already_claimed(format!("{HOLDERS_MAX} Routes have {host}, the maximum"));
    HostConflict { path: path(host), is_in_line: true, prefix: prefix.into(), refusal }
}

fn already_claimed(message: String) -> Refusal {
    ("HostAlreadyClaimed", message)
}

impl Hosts {
    /// Handles a new or changed claim.
    pub fn set(&mut self, claim: &str, now: &ClaimInfo) {
        if now.released.is_some() && !now.is_quarantined() {
            return self.remove(claim, now);
        }
        let path = path(&now.value);
        let routes: Vec<_> = now.holders().map(|(route, _, prefix)| (route, Box::from(prefix))).collect();
        let is_of_another = |key: &ObjectKey| key.namespace() != now.namespace();
        let is_held = |key: &ObjectKey| is_of_another(key) || routes.iter().any(|(route, _)| route == key);
        let reserved = self.reserved.get(&path).into_iter().flat_map(BTreeMap::keys);
        for key in reserved.filter(|key| is_held(key)).cloned().collect::<Vec<_>>() {
            self.end_reservation(&key);
        }
        self.wake(&path, |position| !position.is_in_line || routes.iter().any(|(route, _)| *route == position.key));
        let reserved_until = now.released.as_ref().and_then(|released| released.quarantine_until);
        let owner = HostOwner { claim: claim.to_owned(), namespace: now.namespace().into(), routes, reserved_until };
        self.held.insert(path.clone(), owner);
        self.wake_line(&path);
    }

    /// Handles the deletion of a claim.
    pub fn remove(&mut self, claim: &str, last: &ClaimInfo) {
        let path = path(&last.value);
        if self.held.get(&path).is_some_and(|owner| owner.claim == claim) {
            self.held.remove(&path);
        }
        // Routes that try to claim the host at the moment may fail because of the former claim.
        let number = self.next_number;
        let positions = self.reserved.get(&path).into_iter().flatten().map(|(key, prefix)| WaitPosition {
            created: i64::MIN,
            number,
            key: key.clone(),
            is_in_line: true,
            prefix: prefix.clone(),
        });
        self.woken.extend(positions);
        self.wake_all(&path);
    }

    /// Returns the host of another namespace that overlaps with `host`.
    pub fn overlap(&self, host: &str, namespace: &str) -> Option<HostConflict> {
        let own = path(host);
        let conflict = |path, message| HostConflict {
            path,
            is_in_line: false,
            prefix: Box::default(),
            refusal: already_claimed(message),
        };
        // The wildcards above: for each name above, the asterisk below it.
        for (end, _) in own.match_indices('.').filter(|(end, _)| end + 1 < own.len()) {
            let above = format!("{}*.", &own[..=end]);
            if above != own && self.is_of_another(&above, namespace) {
                let message = format!("{host} is below a wildcard that a Route of another namespace holds");
                return Some(conflict(above, message));
            }
        }
        // The hosts that a wildcard covers.
        let below = own.strip_suffix("*.")?;
        let from = (Excluded(below.to_owned()), Unbounded);
        let held = self.held.range(from.clone()).map(|(path, _)| path).take_while(|path| path.starts_with(below));
        let reserved = self.reserved.range(from).map(|(path, _)| path).take_while(|path| path.starts_with(below));
        let found = held.chain(reserved).find(|path| **path != own && self.is_of_another(path, namespace))?;
        Some(conflict(found.clone(), format!("{host} covers a host that a Route of another namespace holds")))
    }

    /// Returns the conflict of the Route at `key` with another Route that holds this very `host`, or is about to claim it. Routes of
    /// one namespace conflict only with equal path prefixes.
    pub fn conflict(&self, host: &str, prefix: &str, key: &ObjectKey, now: Timestamp) -> Option<HostConflict> {
        let path = path(host);
        let is_in_the_way =
            |other: &ObjectKey, its: &str| other != key && (other.namespace != key.namespace || its == prefix);
        let mut reserved = self.reserved.get(&path).into_iter().flatten();
        if let Some((first, _)) = reserved.find(|(other, its)| is_in_the_way(other, its)) {
            let refusal = already_claimed(match first.namespace == key.namespace {
                true => format!("{host} with the path {prefix} is being assigned to Route {}", first.name),
                false => format!("{host} is being assigned to a Route of another namespace"),
            });
            return Some(HostConflict { path, is_in_line: false, prefix: prefix.into(), refusal });
        }
        let owner = self.held.get(&path).filter(|owner| owner.reserved_until.is_none_or(|until| until > now))?;
        // A deleted Route can be created again, also under another name.
        if owner.reserved_until.is_some() && *owner.namespace == *key.namespace() {
            return None;
        }
        if let Some((other, _)) = owner.routes.iter().find(|(other, its)| is_in_the_way(other, its)) {
            return Some(held(host, prefix, key.namespace(), other, owner.reserved_until));
        }
        let is_full = owner.routes.len() >= HOLDERS_MAX && owner.routes.iter().all(|(route, _)| route != key);
        is_full.then(|| full(host, prefix))
    }

    /// Returns the Routes of the namespace of `key` that have, or are about to claim, its host, the first one first.
    pub fn routes_of<'a>(&'a self, host: &str, key: &'a ObjectKey) -> impl Iterator<Item = &'a ObjectKey> {
        // Nearly every host has one Route.
        let path = path(host);
        let held = self.held.get(&path).filter(|owner| owner.reserved_until.is_none());
        let held = held.into_iter().flat_map(|owner| owner.routes.iter().map(|(route, _)| route));
        let reserved = self.reserved.get(&path).into_iter().flat_map(BTreeMap::keys);
        held.chain(reserved).filter(|other| other.namespace == key.namespace)
    }

    /// Returns whether another Route than that at `key` has `host`, or is about to claim it.
    pub fn is_of_another_route(&self, host: &str, key: &ObjectKey) -> bool {
        // Only adopted hosts are in zones of the platform, and there the names of other Routes are looked up.
        if self.held.is_empty() && self.reserved.is_empty() {
            return false;
        }
        let path = path(host);
        let held = self.held.get(&path).filter(|owner| owner.reserved_until.is_none());
        let mut held = held.into_iter().flat_map(|owner| owner.routes.iter().map(|(route, _)| route));
        let mut reserved = self.reserved.get(&path).into_iter().flat_map(BTreeMap::keys);
        held.any(|other| other != key) || reserved.any(|other| other != key)
    }

    fn is_of_another(&self, path: &str, namespace: &str) -> bool {
        self.namespace_at(path).is_some_and(|owner| owner != namespace)
    }

    /// Returns the namespace that has a host, or is about to claim it.
    fn namespace_at(&self, path: &str) -> Option<&str> {
        let reserved = || Some(self.reserved.get(path)?.keys().next()?.namespace());
        self.held.get(path).map(|owner| &*owner.namespace).or_else(reserved)
    }

    /// Reserves the host for a Route without a conflict.
    pub fn reserve(&mut self, host: &str, prefix: &str, key: &ObjectKey) {
        self.stop(key);
        let path = path(host);
        if self.reserved.get(&path).and_then(|routes| routes.get(key)).is_some_and(|its| **its == *prefix) {
            return;
        }
        self.give_up(key, None);
        let is_held = |owner: &HostOwner| {
            owner.reserved_until.is_none() && owner.routes.iter().any(|(route, its)| route == key || **its == *prefix)
        };
        let is_reserved = |routes: &BTreeMap<ObjectKey, Box<str>>| routes.values().any(|its| **its == *prefix);
        if !self.is_of_another(&path, key.namespace())
            && !self.held.get(&path).is_some_and(is_held)
            && !self.reserved.get(&path).is_some_and(is_reserved)
        {
            self.reserved_by.insert(key.clone(), path.clone());
            self.reserved.entry(path).or_default().insert(key.clone(), prefix.into());
        }
    }

    fn end_reservation(&mut self, key: &ObjectKey) -> Option<Path> {
        let path = self.reserved_by.remove(key)?;
        if let Some(routes) = self.reserved.get_mut(&path) {
            routes.remove(key);
            if routes.is_empty() {
                self.reserved.remove(&path);
            }
        }
        Some(path)
    }

    /// Ends the reservation of a Route that does not take its host now. The next Route in the queue may have it.
    pub fn give_up(&mut self, key: &ObjectKey, host: Option<&str>) {
        // Nearly always, no host is reserved, and no Route waits.
        let reserved = self.end_reservation(key);
        let wanted = host.filter(|_| !self.waiting.is_empty()).map(path);
        let wanted = wanted.filter(|path| reserved.as_ref() != Some(path));
        reserved.iter().for_each(|path| self.wake_all(path));
        wanted.iter().for_each(|path| match self.namespace_at(path).is_none() {
            true => self.wake_all(path),
            false => self.wake_line(path),
        });
    }

    /// Makes a Route wait until a conflict may be over.
    pub fn wait(&mut self, key: &ObjectKey, created: i64, conflict: &HostConflict) {
        let HostConflict { path, is_in_line, prefix, .. } = conflict;
        let is_same = |position: &WaitPosition| (position.is_in_line, &position.prefix) == (*is_in_line, prefix);
        if self.waits_for.get(key).is_some_and(|(waits, position)| waits == path && is_same(position)) {
            return;
        }
        self.stop(key);
        let (number, key) = (self.next_number, key.clone());
        let position =
            WaitPosition { created, number, key: key.clone(), is_in_line: *is_in_line, prefix: prefix.clone() };
        self.next_number += 1;
        self.waiting.entry(path.clone()).or_default().insert(position.clone());
        self.waits_for.insert(key, (path.clone(), position));
    }

    /// Ends the wait of a Route.
    pub fn stop(&mut self, key: &ObjectKey) {
        // Nearly always, no Route waits.
        let Some((path, position)) = self.waits_for.remove(key) else { return };
        if let Some(waiting) = self.waiting.get_mut(&path) {
            waiting.remove(&position);
            if waiting.is_empty() {
                self.waiting.remove(&path);
            }
        }
    }

    /// Takes the Routes whose hosts may be free, the oldest first.
    pub fn take_woken(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.woken).into_iter().map(|position| position.key).collect()
    }

    /// Requeues all Routes that wait for a host, of those in its queue the first that may have it.
    fn wake_all(&mut self, path: &str) {
        self.wake(path, |position| !position.is_in_line);
        self.wake_line(path);
    }

    /// Requeues the Routes in the queue of a host that may have it now: the first one if no namespace has it, and otherwise those of
    /// that namespace whose path no Route has, of each path the first.
    fn wake_line(&mut self, path: &str) {
        let mut taken: BTreeSet<&str> = BTreeSet::new();
        // A host that is reserved for a namespace is free for its Routes.
        let owner = self.held.get(path).filter(|owner| owner.reserved_until.is_none());
        let routes = owner.into_iter().flat_map(|owner| owner.routes.iter().map(|(_, prefix)| &**prefix));
        taken.extend(routes);
        taken.extend(self.reserved.get(path).into_iter().flat_map(BTreeMap::values).map(|prefix| &**prefix));
        let namespace = self.namespace_at(path);
        let has_room = owner.is_none_or(|owner| owner.routes.len() < HOLDERS_MAX);
        let mut line = self.waiting.get(path).into_iter().flatten().filter(|position| position.is_in_line);
        let woken: BTreeSet<u64> = match namespace {
            None => line.next().map(|position| position.number).into_iter().collect(),
            Some(namespace) => line
                .filter(|position| has_room && position.key.namespace() == namespace && taken.insert(&position.prefix))
                .map(|position| position.number)
                .collect(),
        };
        self.wake(path, |position| woken.contains(&position.number));
    }

    fn wake(&mut self, path: &str, which: impl Fn(&WaitPosition) -> bool) {
        let woken: Vec<_> = self.waiting.get(path).into_iter().flatten().filter(|one| which(one)).cloned().collect();
        woken.iter().for_each(|position| self.stop(&position.key));
        self.woken.extend(woken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::uid::Uid;
    use crate::world::claim::{Released, SharedHost};
    use jiff::Timestamp;
    use proptest::prelude::*;
    use signpost_types::v1alpha1::name_claim::ClaimKind;

    fn claim(host: &str, namespace: &str) -> ClaimInfo {
        ClaimInfo {
            kind: ClaimKind::Host,
            value: host.into(),
            holder: [namespace, "/app"].concat().into(),
            holder_uid: Uid::from("u"),
            shares: None,
            released: None,
        }
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::namespaced(namespace, name)
    }

    #[test]
    fn who_is_kept_out_by_whom() {
        for (held, asked, kept_out) in [
            ("*.shop.example", "www.shop.example", true),
            ("*.shop.example", "a.b.SHOP.example", true),
            ("*.Shop.example", "*.b.shop.example", true),
            ("*.shop.example", "shop.example", false),
            ("*.shop.example", "notshop.example", false),
            ("*.shop.example", "www.notshop.example", false),
            ("*.shop.example", "*.notshop.example", false),
            ("*.shop.example", "shop.example.org", false),
            ("*.shop.example", "*.shop.example", false), // one claim, which is the lock
            ("www.shop.example", "*.shop.example", true),
            ("www.shop.example", "*.example", true),
            ("*.b.shop.example", "*.shop.example", true),
            ("shop.example", "*.shop.example", false),
            ("notshop.example", "*.shop.example", false),
            ("www.shop-x.example", "*.shop.example", false),
            ("www.shop.example", "www.shop.example", false),
            ("www.shop.example", "a.www.shop.example", false),
        ] {
            let mut hosts = Hosts::default();
            hosts.set("host.1", &claim(held, "first"));
            assert_eq!(hosts.overlap(asked, "second").is_some(), kept_out, "{held} {asked}");
            assert_eq!(hosts.overlap(asked, "first"), None, "in one namespace: {held} {asked}");
            let mut hosts = Hosts::default();
            hosts.reserve(held, "/", &key("first", "r"));
            assert_eq!(hosts.overlap(asked, "second").is_some(), kept_out, "reserved: {held} {asked}");
        }
    }

    /// Returns the requeued Routes, in order.
    fn woken(hosts: &mut Hosts) -> Vec<String> {
        hosts.take_woken().into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn waiting_routes_are_woken() {
        let mut hosts = Hosts::default();
        hosts.set("host.1", &claim("*.shop.example", "first"));
        let waits = [key("second", "a"), key("third", "b")];
        for (waiting, asked) in waits.iter().zip(["a.shop.example", "b.shop.example"]) {
            let overlap = hosts.overlap(asked, waiting.namespace()).expect("an overlap");
            let message = format!("{asked} is below a wildcard that a Route of another namespace holds");
            assert_eq!(overlap.refusal.1, message);
            hosts.wait(waiting, 7, &overlap);
        }
        hosts.stop(&waits[1]);
        let released = |quarantine_until| Some(Box::new(Released { at: Timestamp::UNIX_EPOCH, quarantine_until }));
        let let_go = ClaimInfo { released: released(None), ..claim("*.shop.example", "first") };
        let reserved = ClaimInfo { released: released(Some(Timestamp::MAX)), ..let_go.clone() };
        hosts.set("host.1", &reserved);
        assert_eq!(woken(&mut hosts), ["a"]);
        let overlap = hosts.overlap("a.shop.example", "second").expect("it is reserved for the first");
        hosts.wait(&waits[0], 7, &overlap);
        hosts.set("host.1", &let_go);
        assert_eq!(woken(&mut hosts), ["a"]);
        assert_eq!(hosts.overlap("a.shop.example", "second"), None);
        // The host of a deleted Route is free for the Routes of its namespace, of which the oldest with the path gets it.
        let (host, now) = ("www.shop.example", Timestamp::UNIX_EPOCH);
        hosts.set("host.2", &claim(host, "first"));
        let (same, other) = (key("first", "renamed"), key("second", "thief"));
        for waiting in [&same, &other] {
            hosts.wait(waiting, 7, &hosts.conflict(host, "/", waiting, now).expect("it is held"));
        }
        hosts.set("host.2", &ClaimInfo { released: released(Some(Timestamp::MAX)), ..claim(host, "first") });
        assert_eq!(woken(&mut hosts), ["renamed"]);
        assert_eq!(hosts.conflict(host, "/", &same, now), None);
        assert_eq!(hosts.conflict(host, "/", &other, now).map(|conflict| conflict.refusal.0), Some("HostReserved"));
        hosts.reserve(host, "/", &same);
        assert!(hosts.conflict(host, "/", &key("first", "late"), now).is_some(), "one of them gets it");
        hosts.give_up(&same, None);
        hosts.stop(&other);
        hosts.set("host.2", &ClaimInfo { released: released(None), ..claim(host, "first") });
        assert!(hosts.waiting.is_empty() && hosts.waits_for.is_empty());
        // A reservation that ends is the same.
        hosts.reserve("*.shop.example", "/", &key("first", "r"));
        let overlap = hosts.overlap("a.shop.example", "second").expect("an overlap");
        hosts.wait(&waits[0], 7, &overlap);
        hosts.give_up(&waits[0], None);
        assert!(woken(&mut hosts).is_empty(), "another Route has reserved it");
        hosts.give_up(&key("first", "r"), Some("*.shop.example"));
        assert_eq!(woken(&mut hosts), ["a"]);
    }

    #[test]
    fn a_free_host_goes_down_the_line() {
        let mut hosts = Hosts::default();
        let (host, now) = ("www.shop.example", Timestamp::UNIX_EPOCH);
        hosts.set("host.1", &claim(host, "ns"));
        for (created, name) in [(3, "c"), (1, "a"), (2, "bb"), (2, "b"), (2, "bb")] {
            let conflict = hosts.conflict(host, "/", &key("ns", name), now).expect("it is held");
            assert_eq!(conflict.refusal, already_claimed(format!("{host} with the path / is held by Route app")));
            hosts.wait(&key("ns", name), created, &conflict);
        }
        hosts.give_up(&key("ns", "other"), Some(host));
        assert!(woken(&mut hosts).is_empty(), "it is held");
        hosts.remove("host.1", &claim(host, "ns"));
        assert_eq!(woken(&mut hosts), ["a"]);
        // The Route does not take the host, nor does the next one, which was deleted; within one second, the first that waited is
        // next.
        for (name, next) in [("a", "bb"), ("bb", "b"), ("b", "c")] {
            hosts.give_up(&key("ns", name), Some(host));
            assert_eq!(woken(&mut hosts), [next]);
        }
        hosts.give_up(&key("ns", "c"), Some(host));
        assert!(woken(&mut hosts).is_empty() && hosts.waiting.is_empty(), "that was the last");
    }

    #[test]
    fn one_claims_a_host_at_a_time() {
        let (first, second, other) = (key("ns", "app"), key("ns", "second"), key("other", "third"));
        let (mut hosts, now) = (Hosts::default(), Timestamp::UNIX_EPOCH);
        hosts.reserve("WWW.shop.example", "/", &first);
        assert_eq!(hosts.conflict("www.shop.example", "/", &first, now), None, "it is its own");
        for (route, message) in [
            (&second, "www.shop.example with the path / is being assigned to Route app"),
            (&other, "www.shop.example is being assigned to a Route of another namespace"),
        ] {
            let conflict = hosts.conflict("www.shop.example", "/", route, now).expect("another Route has reserved it");
            assert_eq!(conflict.refusal.1, message);
            hosts.wait(route, 7, &conflict);
        }
        // Its claim becomes visible: the others get another message.
        hosts.set("host.1", &claim("www.shop.example", "ns"));
        assert_eq!(woken(&mut hosts), ["second", "third"]);
        let conflict = hosts.conflict("www.shop.example", "/", &second, now).expect("another Route holds it");
        assert_eq!(conflict.refusal.1, "www.shop.example with the path / is held by Route app");
        // A held host is not reserved, and a Route that requests another host gives up the first.
        hosts.reserve("www.shop.example", "/", &second);
        assert!(hosts.reserved.is_empty() && hosts.reserved_by.is_empty());
        hosts.reserve("a.example", "/", &second);
        hosts.wait(&other, 7, &hosts.conflict("a.example", "/", &other, now).expect("it is reserved"));
        hosts.reserve("b.example", "/", &second);
        assert_eq!(woken(&mut hosts), ["third"]);
        hosts.give_up(&second, None);
        assert!(hosts.reserved.is_empty() && hosts.reserved_by.is_empty() && hosts.waits_for.is_empty());
    }

    #[test]
    fn routes_of_a_namespace_share_a_host() {
        let (host, now) = ("www.shop.example", Timestamp::UNIX_EPOCH);
        let [web, api, late, third] = ["web", "api", "late", "third"].map(|name| key("ns", name));
        let shared = |routes: &[(&str, &str)]| {
            let [(first, path), others @ ..] = routes else { unreachable!("there is one") };
            let sharer = |(name, path): &(&str, &str)| ((*name).into(), Uid::from("u"), (*path).into());
            let shares = SharedHost { path: (*path).into(), sharers: others.iter().map(sharer).collect() };
            let holder = ["ns/", first].concat().into();
            ClaimInfo { holder, shares: Some(Box::new(shares)), ..claim(host, "ns") }
        };
        let mut hosts = Hosts::default();
        // Two are about to claim it at once, and exclude others.
        hosts.reserve(host, "/", &web);
        assert_eq!(hosts.conflict(host, "/api", &api, now), None);
        hosts.reserve("WWW.shop.example", "/api", &api);
        assert!(hosts.routes_of(host, &late).eq([&api, &web]));
        assert!(hosts.conflict(host, "/x", &key("other", "x"), now).is_some());
        let conflict = hosts.conflict(host, "/api", &late, now).expect("it is reserved");
        assert_eq!(conflict.refusal.1, "www.shop.example with the path /api is being assigned to Route api");
        hosts.wait(&late, 7, &conflict);
        hosts.set("host.1", &shared(&[("web", "/")]));
        assert_eq!(woken(&mut hosts), ["late"]);
        hosts.wait(&late, 7, &hosts.conflict(host, "/api", &late, now).expect("it is still reserved"));
        hosts.set("host.1", &shared(&[("web", "/"), ("api", "/api")]));
        assert!(hosts.reserved.is_empty() && hosts.reserved_by.is_empty());
        assert!(
            hosts.routes_of(host, &late).eq([&web, &api]) && hosts.routes_of(host, &key("other", "x")).next().is_none()
        );
        assert_eq!(woken(&mut hosts), ["late"]);
        // Now they wait for what the others hold: each path has a queue of its own.
        for (waiting, path) in [(&late, "/api"), (&third, "/")] {
            hosts.wait(waiting, 7, &hosts.conflict(host, path, waiting, now).expect("it is held"));
        }
        hosts.give_up(&key("ns", "x"), Some(host));
        hosts.set("host.1", &shared(&[("web", "/"), ("api", "/api")]));
        assert!(woken(&mut hosts).is_empty());
        hosts.set("host.1", &shared(&[("web", "/")]));
        assert_eq!(woken(&mut hosts), ["late"]);
        hosts.set("host.1", &shared(&[("late", "/api")]));
        assert_eq!(woken(&mut hosts), ["third"]);
        // There is a limit.
        let names: Vec<(String, String)> =
            (0..HOLDERS_MAX).map(|number| (format!("r{number}"), format!("/{number}"))).collect();
        let all: Vec<(&str, &str)> = names.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
        hosts.set("host.1", &shared(&all));
        let conflict = hosts.conflict(host, "/api", &late, now).expect("there is no room");
        assert_eq!(conflict.refusal.1, "200 Routes have www.shop.example, the maximum");
        hosts.wait(&late, 7, &conflict);
        assert_eq!(hosts.conflict(host, "/new", &key("ns", "r7"), now), None, "it is one of them");
        hosts.set("host.1", &shared(&all[1..]));
        assert_eq!(woken(&mut hosts), ["late"]);
    }

    proptest! {
        /// The index gives the same results as a comparison of all pairs.
        #[test]
        fn the_index_is_right(
            held in proptest::collection::vec(("(\\*\\.)?([ab]\\.){0,2}(ab|b)\\.x", 0_u8..3), 0..12),
            asked in "(\\*\\.)?([ab]\\.){0,2}(ab|b)\\.x",
        ) {
            let mut hosts = Hosts::default();
            let mut all: BTreeMap<String, u8> = BTreeMap::new();
            for (host, namespace) in held {
                all.entry(host).or_insert(namespace);
            }
            for (at, (host, namespace)) in all.iter().enumerate() {
                hosts.set(&at.to_string(), &claim(host, &namespace.to_string()));
            }
            let covers = |wildcard: &str, host: &str| {
                wildcard.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix) && host != wildcard)
            };
            let naive = all.iter().any(|(host, namespace)| *namespace != 0 && (covers(host, &asked) || covers(&asked, host)));
            prop_assert_eq!(hosts.overlap(&asked, "0").is_some(), naive, "{} {:?}", asked, all);
        }
    }
}
