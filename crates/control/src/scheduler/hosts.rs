//! Custom hosts that overlap: a wildcard host and the names below it.
//!
//! `*.shop.example` covers every name below `shop.example`, however deep, wildcards included, and not `shop.example` itself. In
//! one namespace such hosts stand side by side, and a router takes the most specific. Of two namespaces the one that was there
//! first keeps the other out, as with equal hosts: else whoever holds `*.shop.example` would lose names below it to anybody who
//! asks for them, and whoever holds `www.shop.example` would have a stranger beside it who gets what it lets go.
//!
//! Equal hosts are one NameClaim, and creating that is the lock. Overlapping ones are several, so they are judged here, by
//! the loop that makes every decision, one after the other. A host counts from when a Router is looked for on (*reserved*),
//! before its claim is seen; who wants the very same one waits until it is known what came of that. Routes that are kept out
//! wait for the claim that does so, and are looked at in the order in which they were created when it is let go. Our own server
//! judges the same once more in the transaction that writes the claim, for what the informer does not show.
//!
//! Only who holds a host keeps others out, never who waits for one: else a Route that waits for somebody's `www.shop.example`
//! would keep that somebody from `*.shop.example`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use crate::client::reflector::ObjectKey;
use crate::world::ClaimInfo;

/// The custom hosts that are held, and who waits for one.
#[derive(Debug, Default)]
pub struct Hosts {
    /// By the host's labels from the last to the first, so that names below one another stand together.
    held: BTreeMap<Path, Held>,
    reserved: BTreeMap<Path, ObjectKey>,
    /// The same by who has reserved it.
    reserved_by: HashMap<ObjectKey, Path>,
    waiting: BTreeMap<Path, BTreeSet<ObjectKey>>,
    waits_for: HashMap<ObjectKey, Path>,
}

/// The labels of a host in lower case from the last to the first, each followed by a dot: `example.shop.*.`
type Path = String;

#[derive(Debug)]
struct Held {
    namespace: String,
    claim: String,
}

/// A host that keeps a route from another one, or from itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostConflict {
    path: Path,
    /// In a sentence; it names nothing of the other namespace.
    pub message: String,
}

fn path(host: &str) -> Path {
    host.rsplit('.').fold(String::with_capacity(host.len() + 1), |path, label| path + &label.to_ascii_lowercase() + ".")
}

impl Hosts {
    /// A claim is there, or is different. The answer is who has waited for what it lets go.
    pub fn set(&mut self, claim: &str, before: Option<&ClaimInfo>, now: &ClaimInfo) -> Vec<ObjectKey> {
        let mut woken = before.map_or(Vec::new(), |before| self.remove(claim, before));
        if now.released.is_some() && !now.is_quarantined() {
            return woken;
        }
        let path = path(&now.value);
        // Who waited to see what comes of that is looked at again, and waits on if it must.
        if let Some(key) = self.reserved.remove(&path) {
            self.reserved_by.remove(&key);
            woken.extend(self.wake(&path));
        }
        self.held.insert(path, Held { namespace: now.namespace().to_owned(), claim: claim.to_owned() });
        woken
    }

    /// A claim is gone. The answer is who has waited for it.
    pub fn remove(&mut self, claim: &str, last: &ClaimInfo) -> Vec<ObjectKey> {
        let path = path(&last.value);
        if self.held.get(&path).is_some_and(|held| held.claim == claim) {
            self.held.remove(&path);
        }
        self.wake(&path)
    }

    /// What keeps a route of `namespace` from having `host`.
    pub fn overlap(&self, host: &str, namespace: &str) -> Option<HostConflict> {
        let own = path(host);
        // The wildcards above: for each name above, the asterisk below it.
        for (end, _) in own.match_indices('.').filter(|(end, _)| end + 1 < own.len()) {
            let above = format!("{}*.", &own[..=end]);
            if above != own && self.is_of_another(&above, namespace) {
                let message = format!("{host} is below a wildcard that a route of another namespace holds");
                return Some(HostConflict { path: above, message });
            }
        }
        // What a wildcard itself covers.
        let below = own.strip_suffix("*.")?;
        let covers = |path: &&Path| path.starts_with(below) && **path != own;
        let from = (Excluded(below.to_owned()), Unbounded);
        let held = self.held.range(from.clone()).map(|(path, _)| path).take_while(|path| path.starts_with(below));
        let reserved = self.reserved.range(from).map(|(path, _)| path).take_while(|path| path.starts_with(below));
        let found = held.chain(reserved).filter(covers).find(|path| self.is_of_another(path, namespace))?;
        let message = format!("{host} covers a host that a route of another namespace holds");
        Some(HostConflict { path: found.clone(), message })
    }

    /// Whether another route is about to claim the very `host` that the route at `key` wants.
    pub fn contest(&self, host: &str, key: &ObjectKey) -> Option<HostConflict> {
        let path = path(host);
        let first = self.reserved.get(&path).filter(|first| *first != key)?;
        let message = match first.namespace == key.namespace {
            true => format!("{host} is being given to the route {}", first.name),
            false => format!("{host} is being given to a route of another namespace"),
        };
        Some(HostConflict { path, message })
    }

    fn is_of_another(&self, path: &str, namespace: &str) -> bool {
        let held = self.held.get(path).is_some_and(|held| held.namespace != namespace);
        held || self.reserved.get(path).is_some_and(|key| key.namespace.as_deref() != Some(namespace))
    }

    /// A route is about to claim its host, of which [`contest`](Self::contest) says nothing. The answer is who has waited for
    /// another one that was reserved for it.
    pub fn reserve(&mut self, host: &str, key: &ObjectKey) -> Vec<ObjectKey> {
        self.stop(key);
        let path = path(host);
        if self.reserved.get(&path) == Some(key) {
            return Vec::new();
        }
        let woken = self.release(key);
        if !self.held.contains_key(&path) && !self.reserved.contains_key(&path) {
            self.reserved_by.insert(key.clone(), path.clone());
            self.reserved.insert(path, key.clone());
        }
        woken
    }

    /// A route will not have the host that was reserved for it, if one was. The answer is who has waited for that.
    pub fn release(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        // Nearly always there is none.
        let Some(path) = self.reserved_by.remove(key) else { return Vec::new() };
        self.reserved.remove(&path);
        self.wake(&path)
    }

    /// A route waits for what keeps it out.
    pub fn wait(&mut self, key: &ObjectKey, obstacle: &HostConflict) {
        self.stop(key);
        self.waiting.entry(obstacle.path.clone()).or_default().insert(key.clone());
        self.waits_for.insert(key.clone(), obstacle.path.clone());
    }

    /// A route waits no more.
    pub fn stop(&mut self, key: &ObjectKey) {
        // Nearly always nobody waits.
        let Some(path) = self.waits_for.remove(key) else { return };
        if let Some(waiting) = self.waiting.get_mut(&path) {
            waiting.remove(key);
            if waiting.is_empty() {
                self.waiting.remove(&path);
            }
        }
    }

    fn wake(&mut self, path: &str) -> Vec<ObjectKey> {
        let woken: Vec<ObjectKey> = self.waiting.remove(path).into_iter().flatten().collect();
        woken.iter().for_each(|key| drop(self.waits_for.remove(key)));
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::claim::Released;
    use jiff::Timestamp;
    use proptest::prelude::*;
    use signpost_api::v1alpha1::name_claim::ClaimKind;

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
            hosts.set("host.1", None, &claim(held, "first"));
            assert_eq!(hosts.overlap(asked, "second").is_some(), kept_out, "{held} {asked}");
            assert_eq!(hosts.overlap(asked, "first"), None, "in one namespace: {held} {asked}");
            let mut hosts = Hosts::default();
            hosts.reserve(held, &key("first", "r"));
            assert_eq!(hosts.overlap(asked, "second").is_some(), kept_out, "reserved: {held} {asked}");
        }
    }

    #[test]
    fn who_waits_is_woken() {
        let mut hosts = Hosts::default();
        hosts.set("host.1", None, &claim("*.shop.example", "first"));
        let waits = [key("second", "a"), key("third", "b")];
        for (waiting, asked) in waits.iter().zip(["a.shop.example", "b.shop.example"]) {
            let overlap = hosts.overlap(asked, waiting.namespace.as_deref().expect("it has one")).expect("kept out");
            let message = format!("{asked} is below a wildcard that a route of another namespace holds");
            assert_eq!(overlap.message, message);
            hosts.wait(waiting, &overlap);
        }
        hosts.stop(&waits[1]);
        let released = |quarantine_until| Some(Box::new(Released { at: Timestamp::UNIX_EPOCH, quarantine_until }));
        let let_go = ClaimInfo { released: released(None), ..claim("*.shop.example", "first") };
        let reserved = ClaimInfo { released: released(Some(Timestamp::MAX)), ..let_go.clone() };
        assert_eq!(hosts.set("host.1", Some(&claim("*.shop.example", "first")), &reserved), [waits[0].clone()]);
        let overlap = hosts.overlap("a.shop.example", "second").expect("it is kept for the first");
        hosts.wait(&waits[0], &overlap);
        assert_eq!(hosts.set("host.1", Some(&reserved), &let_go), [waits[0].clone()]);
        assert_eq!(hosts.overlap("a.shop.example", "second"), None);
        assert!(hosts.waiting.is_empty() && hosts.waits_for.is_empty());
        // What was only reserved is let go as well.
        assert!(hosts.reserve("*.shop.example", &key("first", "r")).is_empty());
        let overlap = hosts.overlap("a.shop.example", "second").expect("kept out");
        hosts.wait(&waits[0], &overlap);
        assert!(hosts.release(&waits[0]).is_empty(), "it is another's");
        assert_eq!(hosts.release(&key("first", "r")), [waits[0].clone()]);
    }

    #[test]
    fn one_claims_a_host_at_a_time() {
        let (first, second, other) = (key("ns", "first"), key("ns", "second"), key("other", "third"));
        let mut hosts = Hosts::default();
        assert_eq!(hosts.contest("www.shop.example", &first), None);
        hosts.reserve("WWW.shop.example", &first);
        assert_eq!(hosts.contest("www.shop.example", &first), None, "it is its own");
        assert!(hosts.reserve("www.shop.example", &first).is_empty());
        for (route, message) in [
            (&second, "www.shop.example is being given to the route first"),
            (&other, "www.shop.example is being given to a route of another namespace"),
        ] {
            let contest = hosts.contest("www.shop.example", route).expect("another one has reserved it");
            assert_eq!(contest.message, message);
            hosts.wait(route, &contest);
        }
        // Its claim is seen: what they are told is to be another thing.
        let held = claim("www.shop.example", "ns");
        assert_eq!(hosts.set("host.1", None, &held), [second.clone(), other.clone()]);
        assert_eq!(hosts.contest("www.shop.example", &second), None, "the claim is the lock");
        // What is held is not reserved; and who wants another host lets go of the first.
        hosts.reserve("www.shop.example", &second);
        assert!(hosts.reserved.is_empty() && hosts.reserved_by.is_empty());
        hosts.reserve("a.example", &second);
        hosts.wait(&other, &hosts.contest("a.example", &other).expect("it is reserved"));
        assert_eq!(hosts.reserve("b.example", &second), [other]);
        assert!(hosts.release(&second).is_empty());
        assert!(hosts.reserved.is_empty() && hosts.reserved_by.is_empty() && hosts.waits_for.is_empty());
    }

    proptest! {
        /// The index says what comparing each with each says.
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
                hosts.set(&at.to_string(), None, &claim(host, &namespace.to_string()));
            }
            let covers = |wildcard: &str, host: &str| {
                wildcard.strip_prefix('*').is_some_and(|suffix| host.ends_with(suffix) && host != wildcard)
            };
            let naive = all.iter().any(|(host, namespace)| *namespace != 0 && (covers(host, &asked) || covers(&asked, host)));
            prop_assert_eq!(hosts.overlap(&asked, "0").is_some(), naive, "{} {:?}", asked, all);
        }
    }
}
