//! Custom hosts that overlap: a wildcard host and the names below it.
//!
//! `*.shop.example` covers every name below `shop.example`, however deep, wildcards included, and not `shop.example` itself. In
//! one namespace such hosts stand side by side, and a router takes the most specific. Of two namespaces the one that was there
//! first keeps the other out, as with equal hosts: else whoever holds `*.shop.example` would lose names below it to anybody who
//! asks for them, and whoever holds `www.shop.example` would have a stranger beside it who gets what it lets go.
//!
//! Equal hosts are one NameClaim, and creating that is the lock. Overlapping ones are several, so they are judged here, by
//! the loop that makes every decision, one after the other. A host counts from the decision on (*reserved*), before its claim is
//! seen. Routes that are kept out wait for the claim that does so, and are looked at in the order in which they were created
//! when it is let go. Our own server judges the same once more in the transaction that writes the claim, for the time in which
//! two schedulers each hold themselves for the leader.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use super::facts::HostClaimFacts;
use crate::client::reflector::ObjectKey;

/// The custom hosts that are held, and who waits for one.
#[derive(Debug, Default)]
pub struct Hosts {
    /// By the host's labels from the last to the first, so that names below one another stand together.
    held: BTreeMap<Path, Held>,
    reserved: BTreeMap<Path, ObjectKey>,
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

/// A host that keeps another one out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlap {
    path: Path,
    /// In a sentence; it names nothing of the other namespace but a wildcard that the host itself is below.
    pub message: String,
}

fn path(host: &str) -> Path {
    host.rsplit('.').fold(String::with_capacity(host.len() + 1), |path, label| path + &label.to_ascii_lowercase() + ".")
}

fn host(path: &str) -> String {
    let labels: Vec<&str> = path.trim_end_matches('.').rsplit('.').collect();
    labels.join(".")
}

impl Hosts {
    /// A claim is there, or is different. The answer is who has waited for what it lets go.
    pub fn set(&mut self, claim: &str, before: Option<&HostClaimFacts>, now: &HostClaimFacts) -> Vec<ObjectKey> {
        let woken = before.map_or(Vec::new(), |before| self.remove(claim, before));
        if now.holder_uid.is_none() {
            return woken;
        }
        let path = path(&now.host);
        self.reserved.remove(&path);
        self.held.insert(path, Held { namespace: now.namespace.clone(), claim: claim.to_owned() });
        // Others of the same namespace may have waited under it as well: they are looked at again, and wait on if they must.
        woken
    }

    /// A claim is gone. The answer is who has waited for it.
    pub fn remove(&mut self, claim: &str, last: &HostClaimFacts) -> Vec<ObjectKey> {
        let path = path(&last.host);
        if self.held.get(&path).is_some_and(|held| held.claim == claim) {
            self.held.remove(&path);
        }
        self.wake(&path)
    }

    /// What keeps a route of `namespace` from having `host`.
    pub fn overlap(&self, host: &str, namespace: &str) -> Option<Overlap> {
        let own = path(host);
        // The wildcards above: for each name above, the asterisk below it.
        for (end, _) in own.match_indices('.').filter(|(end, _)| end + 1 < own.len()) {
            let above = format!("{}*.", &own[..=end]);
            if above != own && self.is_of_another(&above, namespace) {
                let message = format!(
                    "{host} is below {}, which a route of another namespace holds that was there first",
                    self::host(&above)
                );
                return Some(Overlap { path: above, message });
            }
        }
        // What a wildcard itself covers.
        let below = own.strip_suffix("*.")?;
        let covers = |path: &&Path| path.starts_with(below) && **path != own;
        let from = (Excluded(below.to_owned()), Unbounded);
        let held = self.held.range(from.clone()).map(|(path, _)| path).take_while(|path| path.starts_with(below));
        let reserved = self.reserved.range(from).map(|(path, _)| path).take_while(|path| path.starts_with(below));
        let found = held.chain(reserved).filter(covers).find(|path| self.is_of_another(path, namespace))?;
        let message = format!("{host} covers a host that a route of another namespace holds, which was there first");
        Some(Overlap { path: found.clone(), message })
    }

    fn is_of_another(&self, path: &str, namespace: &str) -> bool {
        let held = self.held.get(path).is_some_and(|held| held.namespace != namespace);
        held || self.reserved.get(path).is_some_and(|key| key.namespace.as_deref() != Some(namespace))
    }

    /// A route is about to claim its host.
    pub fn reserve(&mut self, host: &str, key: &ObjectKey) {
        self.stop(key);
        let path = path(host);
        if !self.held.contains_key(&path) {
            self.reserved.insert(path, key.clone());
        }
    }

    /// A route will not have the host that was reserved for it. The answer is who has waited for that.
    pub fn release(&mut self, host: &str, key: &ObjectKey) -> Vec<ObjectKey> {
        let path = path(host);
        if self.reserved.get(&path) != Some(key) {
            return Vec::new();
        }
        self.reserved.remove(&path);
        self.wake(&path)
    }

    /// A route waits for what keeps it out.
    pub fn wait(&mut self, key: &ObjectKey, overlap: &Overlap) {
        self.stop(key);
        self.waiting.entry(overlap.path.clone()).or_default().insert(key.clone());
        self.waits_for.insert(key.clone(), overlap.path.clone());
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
    use proptest::prelude::*;

    fn claim(host: &str, namespace: &str) -> HostClaimFacts {
        let (host, namespace) = (host.to_owned(), namespace.to_owned());
        HostClaimFacts { holder_uid: Some(crate::client::uid::Uid::new("u")), host, namespace }
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
            assert_eq!(
                overlap.message,
                format!(
                    "{asked} is below *.shop.example, which a route of another namespace holds that was there first"
                )
            );
            hosts.wait(waiting, &overlap);
        }
        hosts.stop(&waits[1]);
        let let_go = HostClaimFacts { holder_uid: None, ..claim("*.shop.example", "first") };
        assert_eq!(hosts.set("host.1", Some(&claim("*.shop.example", "first")), &let_go), [waits[0].clone()]);
        assert_eq!(hosts.overlap("a.shop.example", "second"), None);
        assert!(hosts.waiting.is_empty() && hosts.waits_for.is_empty());
        // What was only reserved is let go as well.
        hosts.reserve("*.shop.example", &key("first", "r"));
        let overlap = hosts.overlap("a.shop.example", "second").expect("kept out");
        hosts.wait(&waits[0], &overlap);
        assert!(hosts.release("*.shop.example", &waits[0]).is_empty(), "it is another's");
        assert_eq!(hosts.release("*.shop.example", &key("first", "r")), [waits[0].clone()]);
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
