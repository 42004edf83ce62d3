//! Custom hosts: their holders, and the Routes that wait for them. Pure.
//!
//! `*.shop.example` covers every name below `shop.example`, at any depth, wildcards included, but not `shop.example` itself. In
//! one namespace, such hosts can coexist, and a router uses the most specific one. Between two namespaces, the first one blocks
//! the other, as with equal hosts. Otherwise the holder of `*.shop.example` would lose names below it to any user who requests
//! them, and next to the holder of `www.shop.example`, another tenant would get a host that the holder releases.
//!
//! Equal hosts are one NameClaim, and its creation is the lock. Overlapping hosts are several claims, so the scheduling loop
//! checks them here, in sequence. A host counts from the search for a Router (*reserved*), before its claim is visible.
//! Signpost's own server checks overlaps again in the transaction that writes the claim, for claims that the informer does not
//! show.
//!
//! Only a Route that holds or reserves a host blocks others, never a waiting one. Otherwise a Route that waits for the
//! `www.shop.example` of another namespace would block that namespace from `*.shop.example`.
//!
//! Routes that need a held host wait *in a queue*: when the host is released, the oldest Route is requeued. If that Route does
//! not take it (another obstacle, no Router, deleted), it gives the host up, which requeues the next. All other Routes that a
//! change can affect are requeued immediately, the oldest first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use jiff::Timestamp;

use crate::client::reflector::ObjectKey;
use crate::world::ClaimInfo;

/// The reason and the message for a Route that may not have its host.
pub type Refusal = (&'static str, String);

/// The custom hosts that are held or reserved, and the Routes that wait for one.
#[derive(Debug, Default)]
pub struct Hosts {
    /// The hosts by their labels from the last to the first, so that names below one another are adjacent.
    held: BTreeMap<Path, HostOwner>,
    reserved: BTreeMap<Path, ObjectKey>,
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
    route: ObjectKey,
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
}

/// A host that blocks a Route's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConflict {
    path: Path,
    /// Whether the Route requests this same host, and another Route holds it.
    is_in_line: bool,
    /// Names nothing of another namespace.
    pub refusal: Refusal,
}

fn path(host: &str) -> Path {
    host.rsplit('.').fold(String::with_capacity(host.len() + 1), |path, label| path + &label.to_ascii_lowercase() + ".")
}

/// Returns the conflict of a Route of `namespace` with `owner`, which has the host, or had it until a quarantine.
pub fn held(host: &str, namespace: &str, owner: &ObjectKey, reserved_until: Option<Timestamp>) -> HostConflict {
    let refusal = match reserved_until {
        Some(until) => {
            let message = format!("{host} is reserved until {until:.0} for the deleted Route that held it");
            ("HostReserved", message)
        }
        // Only users who can see the holder get its name.
        None if owner.namespace() == namespace => already_claimed(format!("{host} is held by Route {}", owner.name)),
        None => already_claimed(format!("{host} is held by a Route of another namespace")),
    };
    HostConflict { path: path(host), is_in_line: true, refusal }
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
        let (path, route) = (path(&now.value), now.holder_key());
        if let Some(key) = self.reserved.remove(&path) {
            self.reserved_by.remove(&key);
        }
        self.wake(&path, |position| !position.is_in_line || position.key == route);
        let reserved_until = now.released.as_ref().and_then(|released| released.quarantine_until);
        self.held.insert(path, HostOwner { claim: claim.to_owned(), route, reserved_until });
    }

    /// Handles the deletion of a claim.
    pub fn remove(&mut self, claim: &str, last: &ClaimInfo) {
        let path = path(&last.value);
        if self.held.get(&path).is_some_and(|owner| owner.claim == claim) {
            self.held.remove(&path);
        }
        // A Route that tries to claim the host at the moment may fail because of the former claim.
        let number = self.next_number;
        let position = |key: &ObjectKey| WaitPosition { created: i64::MIN, number, key: key.clone(), is_in_line: true };
        self.woken.extend(self.reserved.get(&path).map(position));
        self.wake_all(&path);
    }

    /// Returns the host of another namespace that overlaps with `host`.
    pub fn overlap(&self, host: &str, namespace: &str) -> Option<HostConflict> {
        let own = path(host);
        let conflict = |path, message| HostConflict { path, is_in_line: false, refusal: already_claimed(message) };
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

    /// Returns the conflict of the Route at `key` with another Route that holds this very `host`, or is about to claim it.
    pub fn conflict(&self, host: &str, key: &ObjectKey, now: Timestamp) -> Option<HostConflict> {
        let path = path(host);
        if let Some(first) = self.reserved.get(&path).filter(|first| *first != key) {
            let refusal = already_claimed(match first.namespace == key.namespace {
                true => format!("{host} is being assigned to Route {}", first.name),
                false => format!("{host} is being assigned to a Route of another namespace"),
            });
            return Some(HostConflict { path, is_in_line: false, refusal });
        }
        let is_other = |owner: &&HostOwner| owner.route != *key && owner.reserved_until.is_none_or(|until| until > now);
        let owner = self.held.get(&path).filter(is_other)?;
        Some(held(host, key.namespace(), &owner.route, owner.reserved_until))
    }

    fn is_of_another(&self, path: &str, namespace: &str) -> bool {
        let owners = self.held.get(path).map(|owner| &owner.route).into_iter().chain(self.reserved.get(path));
        owners.into_iter().any(|owner| owner.namespace() != namespace)
    }

    /// Reserves the host for a Route without a conflict.
    pub fn reserve(&mut self, host: &str, key: &ObjectKey) {
        self.stop(key);
        let path = path(host);
        if self.reserved.get(&path) == Some(key) {
            return;
        }
        self.give_up(key, None);
        if !self.held.contains_key(&path) && !self.reserved.contains_key(&path) {
            self.reserved_by.insert(key.clone(), path.clone());
            self.reserved.insert(path, key.clone());
        }
    }

    /// Ends the reservation of a Route that does not take its host now. The next Route in the queue may have it.
    pub fn give_up(&mut self, key: &ObjectKey, host: Option<&str>) {
        // Nearly always, no host is reserved, and no Route waits.
        let reserved = self.reserved_by.remove(key);
        reserved.iter().for_each(|path| drop(self.reserved.remove(path)));
        let wanted = host.filter(|_| !self.waiting.is_empty()).map(path);
        let is_free = |path: &Path| !self.held.contains_key(path) && !self.reserved.contains_key(path);
        let wanted = wanted.filter(|path| is_free(path) && reserved.as_ref() != Some(path));
        reserved.iter().chain(&wanted).for_each(|path| self.wake_all(path));
    }

    /// Makes a Route wait until a conflict may be over.
    pub fn wait(&mut self, key: &ObjectKey, created: i64, conflict: &HostConflict) {
        let HostConflict { path, is_in_line, .. } = conflict;
        if self.waits_for.get(key).is_some_and(|(waits, position)| waits == path && position.is_in_line == *is_in_line)
        {
            return;
        }
        self.stop(key);
        let position = WaitPosition { created, number: self.next_number, key: key.clone(), is_in_line: *is_in_line };
        self.next_number += 1;
        self.waiting.entry(path.clone()).or_default().insert(position.clone());
        self.waits_for.insert(key.clone(), (path.clone(), position));
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

    /// Requeues all Routes that wait for a host, of those in its queue the first.
    fn wake_all(&mut self, path: &str) {
        let mut waiting = self.waiting.get(path).into_iter().flatten();
        let first = waiting.find(|position| position.is_in_line).cloned();
        self.wake(path, |position| !position.is_in_line || Some(position) == first.as_ref());
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
    use crate::world::claim::Released;
    use jiff::Timestamp;
    use proptest::prelude::*;
    use signpost_types::v1alpha1::name_claim::ClaimKind;

    fn claim(host: &str, namespace: &str) -> ClaimInfo {
        ClaimInfo {
            kind: ClaimKind::Host,
            value: host.into(),
            holder: [namespace, "/app"].concat().into(),
            holder_uid: crate::client::uid::Uid::new("u"),
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
            hosts.reserve(held, &key("first", "r"));
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
        assert!(hosts.waiting.is_empty() && hosts.waits_for.is_empty());
        // A reservation that ends is the same.
        hosts.reserve("*.shop.example", &key("first", "r"));
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
            let conflict = hosts.conflict(host, &key("ns", name), now).expect("it is held");
            assert_eq!(conflict.refusal, already_claimed(format!("{host} is held by Route app")));
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
        hosts.reserve("WWW.shop.example", &first);
        assert_eq!(hosts.conflict("www.shop.example", &first, now), None, "it is its own");
        for (route, message) in [
            (&second, "www.shop.example is being assigned to Route app"),
            (&other, "www.shop.example is being assigned to a Route of another namespace"),
        ] {
            let conflict = hosts.conflict("www.shop.example", route, now).expect("another Route has reserved it");
            assert_eq!(conflict.refusal.1, message);
            hosts.wait(route, 7, &conflict);
        }
        // Its claim becomes visible: the others get another message.
        hosts.set("host.1", &claim("www.shop.example", "ns"));
        assert_eq!(woken(&mut hosts), ["second", "third"]);
        let conflict = hosts.conflict("www.shop.example", &second, now).expect("another Route holds it");
        assert_eq!(conflict.refusal.1, "www.shop.example is held by Route app");
        // A held host is not reserved, and a Route that requests another host gives up the first.
        hosts.reserve("www.shop.example", &second);
        assert!(hosts.reserved.is_empty() && hosts.reserved_by.is_empty());
        hosts.reserve("a.example", &second);
        hosts.wait(&other, 7, &hosts.conflict("a.example", &other, now).expect("it is reserved"));
        hosts.reserve("b.example", &second);
        assert_eq!(woken(&mut hosts), ["third"]);
        hosts.give_up(&second, None);
        assert!(hosts.reserved.is_empty() && hosts.reserved_by.is_empty() && hosts.waits_for.is_empty());
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
