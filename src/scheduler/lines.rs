//! The lines of routes that wait for one and the same custom host.
//!
//! When the host is let go it is *offered* to the one that has waited longest. If that one does not take it (something else keeps
//! it out, no Router takes it, it is gone) it passes it on to the next in line; so the host stays free only if nobody in line can
//! have it. Only who was offered the host passes it on: what many who wait find out each for itself sets off nothing.
//! Pure; who may have the host the caller knows.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound::{Excluded, Unbounded};

use crate::client::reflector::ObjectKey;

/// When a route was created, in seconds since the epoch, and where it is.
pub type Place = (i64, ObjectKey);

/// The lines, by the name of the host's claim.
#[derive(Debug, Default)]
pub struct Lines(HashMap<String, Line>);

#[derive(Debug, Default)]
struct Line {
    waiting: BTreeSet<Place>,
    offered: Option<Place>,
}

impl Lines {
    /// A route wants the host.
    pub fn join(&mut self, claim: &str, place: Place) {
        self.0.entry(claim.to_owned()).or_default().waiting.insert(place);
    }

    /// A route does not want the host any more, or has it. If it was offered the host it is to pass it on before.
    pub fn leave(&mut self, claim: &str, place: &Place) {
        let Some(line) = self.0.get_mut(claim) else { return };
        line.waiting.remove(place);
        if line.offered.as_ref() == Some(place) {
            line.offered = None;
        }
        if line.waiting.is_empty() {
            self.0.remove(claim);
        }
    }

    /// Who waits, the one that has waited longest first.
    pub fn waiting(&self, claim: &str) -> impl Iterator<Item = &ObjectKey> {
        self.0.get(claim).into_iter().flat_map(|line| &line.waiting).map(|(_, key)| key)
    }

    /// The host is free: the first of those who `may` have it is offered it.
    pub fn offer(&mut self, claim: &str, may: impl Fn(&ObjectKey) -> bool) -> Option<ObjectKey> {
        let line = self.0.get_mut(claim)?;
        line.offered = line.waiting.iter().find(|(_, key)| may(key)).cloned();
        line.offered.clone().map(|(_, key)| key)
    }

    /// A route does not take the host. If it was offered it, the next of those who `may` have it is.
    pub fn pass_on(&mut self, claim: &str, place: &Place, may: impl Fn(&ObjectKey) -> bool) -> Option<ObjectKey> {
        let line = self.0.get_mut(claim)?;
        if line.offered.as_ref() != Some(place) {
            return None;
        }
        let mut after = line.waiting.range((Excluded(place), Unbounded));
        line.offered = after.find(|(_, key)| may(key)).cloned();
        line.offered.clone().map(|(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(created: i64, name: &str) -> Place {
        (created, ObjectKey::namespaced("ns", name))
    }

    #[test]
    fn a_host_goes_down_the_line_once() {
        let mut lines = Lines::default();
        for (created, name) in [(3, "c"), (1, "a"), (2, "b"), (2, "bb")] {
            lines.join("host", place(created, name));
        }
        assert_eq!(lines.waiting("host").map(|key| key.name.as_str()).collect::<Vec<_>>(), ["a", "b", "bb", "c"]);
        let name = |key: Option<ObjectKey>| key.map(|key| key.name);
        assert_eq!(name(lines.pass_on("host", &place(1, "a"), |_| true)), None, "it was not offered");
        assert_eq!(name(lines.offer("host", |key| key.name != "a")).as_deref(), Some("b"));
        assert_eq!(name(lines.pass_on("host", &place(1, "a"), |_| true)), None, "it was offered to another one");
        // One that is gone passes it on as well.
        assert_eq!(name(lines.pass_on("host", &place(2, "b"), |_| true)).as_deref(), Some("bb"));
        lines.leave("host", &place(2, "b"));
        assert_eq!(name(lines.pass_on("host", &place(2, "bb"), |_| true)).as_deref(), Some("c"));
        assert_eq!(name(lines.pass_on("host", &place(3, "c"), |_| true)), None, "that was the last");
        assert_eq!(name(lines.pass_on("host", &place(3, "c"), |_| true)), None);
        assert_eq!(name(lines.offer("host", |_| true)).as_deref(), Some("a"), "it is free once more");
        for (created, name) in [(3, "c"), (1, "a"), (2, "bb")] {
            lines.leave("host", &place(created, name));
        }
        assert!(lines.0.is_empty());
    }
}
