//! The lines of routes that wait for one and the same custom host.
//!
//! When the host is let go it is *offered* to the one that has waited longest. If that one does not take it (something else keeps
//! it out, no Router takes it, it is gone) it passes it on to the next in line; so the host stays free only if nobody in line can
//! have it. Only who was offered the host passes it on: what many who wait find out each for itself sets off nothing.
//! Pure; who may have the host the caller knows.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use crate::client::reflector::ObjectKey;

/// When a route was created, in seconds since the epoch; which of those that want a host was heard of first; and where it is.
pub type Place = (i64, u64, ObjectKey);

/// The lines, by the name of the host's claim.
#[derive(Debug, Default)]
pub struct Lines {
    lines: HashMap<String, Line>,
    /// In which order routes that want a host came. Many may be created within a second.
    arrivals: HashMap<ObjectKey, u64>,
    arrived: u64,
}

#[derive(Debug, Default)]
struct Line {
    waiting: BTreeSet<Place>,
    offered: Option<Place>,
}

impl Lines {
    /// A route that wants a host is heard of. Again is once.
    pub fn arrive(&mut self, key: &ObjectKey) {
        if !self.arrivals.contains_key(key) {
            self.arrived += 1;
            self.arrivals.insert(key.clone(), self.arrived);
        }
    }

    /// Where a route stands among those that want a host.
    pub fn place(&self, created: i64, key: &ObjectKey) -> Place {
        (created, self.arrivals.get(key).copied().unwrap_or(u64::MAX), key.clone())
    }

    /// A route wants the host.
    pub fn join(&mut self, claim: &str, created: i64, key: &ObjectKey) {
        self.arrive(key);
        let place = self.place(created, key);
        self.lines.entry(claim.to_owned()).or_default().waiting.insert(place);
    }

    /// A route does not want the host any more, or has it. If it was offered the host it is to pass it on before.
    pub fn leave(&mut self, claim: &str, created: i64, key: &ObjectKey) {
        let place = self.place(created, key);
        self.arrivals.remove(key);
        let Some(line) = self.lines.get_mut(claim) else { return };
        line.waiting.remove(&place);
        if line.offered.as_ref() == Some(&place) {
            line.offered = None;
        }
        if line.waiting.is_empty() {
            self.lines.remove(claim);
        }
    }

    /// Who waits, the one that has waited longest first.
    pub fn waiting(&self, claim: &str) -> impl Iterator<Item = &ObjectKey> {
        self.lines.get(claim).into_iter().flat_map(|line| &line.waiting).map(|(.., key)| key)
    }

    /// The host is free: the first of those who `may` have it is offered it.
    pub fn offer(&mut self, claim: &str, may: impl Fn(&ObjectKey) -> bool) -> Option<ObjectKey> {
        let line = self.lines.get_mut(claim)?;
        line.offered = line.waiting.iter().find(|(.., key)| may(key)).cloned();
        line.offered.clone().map(|(.., key)| key)
    }

    /// A route does not take the host. If it was offered it, the next of those who `may` have it is.
    pub fn pass_on(
        &mut self,
        claim: &str,
        created: i64,
        key: &ObjectKey,
        may: impl Fn(&ObjectKey) -> bool,
    ) -> Option<ObjectKey> {
        let place = self.place(created, key);
        let line = self.lines.get_mut(claim)?;
        if line.offered.as_ref() != Some(&place) {
            return None;
        }
        let mut after = line.waiting.range((Excluded(place), Unbounded));
        line.offered = after.find(|(.., key)| may(key)).cloned();
        line.offered.clone().map(|(.., key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("ns", name)
    }

    fn waiting(lines: &Lines) -> Vec<&str> {
        lines.waiting("host").map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn a_host_goes_down_the_line_once() {
        let mut lines = Lines::default();
        for (created, name) in [(3, "c"), (1, "a"), (2, "bb"), (2, "b")] {
            lines.join("host", created, &key(name));
        }
        assert_eq!(waiting(&lines), ["a", "bb", "b", "c"]);
        let name = |key: Option<ObjectKey>| key.map(|key| key.name);
        assert_eq!(name(lines.pass_on("host", 1, &key("a"), |_| true)), None, "it was not offered");
        assert_eq!(name(lines.offer("host", |key| key.name != "a")).as_deref(), Some("bb"));
        assert_eq!(name(lines.pass_on("host", 1, &key("a"), |_| true)), None, "it was offered to another one");
        // One that is gone passes it on as well.
        assert_eq!(name(lines.pass_on("host", 2, &key("bb"), |_| true)).as_deref(), Some("b"));
        lines.leave("host", 2, &key("bb"));
        assert_eq!(name(lines.pass_on("host", 2, &key("b"), |_| true)).as_deref(), Some("c"));
        assert_eq!(name(lines.pass_on("host", 3, &key("c"), |_| true)), None, "that was the last");
        assert_eq!(name(lines.pass_on("host", 3, &key("c"), |_| true)), None);
        assert_eq!(name(lines.offer("host", |_| true)).as_deref(), Some("a"), "it is free once more");
        for (created, name) in [(3, "c"), (1, "a"), (2, "b")] {
            lines.leave("host", created, &key(name));
        }
        assert!(lines.lines.is_empty() && lines.arrivals.is_empty());
    }

    #[test]
    fn within_a_second_who_came_first_is_first() {
        let mut lines = Lines::default();
        // Heard of in this order, and looked at in another.
        ["zz", "mm", "aa"].iter().for_each(|name| lines.arrive(&key(name)));
        for (created, name) in [(7, "aa"), (7, "mm"), (6, "late"), (7, "zz"), (7, "aa")] {
            lines.join("host", created, &key(name));
        }
        assert_eq!(waiting(&lines), ["late", "zz", "mm", "aa"]);
        lines.leave("host", 7, &key("zz"));
        lines.join("host", 7, &key("zz"));
        assert_eq!(waiting(&lines), ["late", "mm", "aa", "zz"], "who left comes last");
    }
}
