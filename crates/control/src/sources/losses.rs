//! The Routers and Routes that a source wrote and that are no longer derived: which of them are deleted, and which are held.
//!
//! | why it is no longer derived | a Router | a Route |
//! |---|---|---|
//! | its own object changed or was deleted, as a watch shows | deleted, unless it is in a burst | the same; so are the Routes of such a Router |
//! | another object changed, such as a class | held | held if five or more, over the share, or all are lost together |
//! | a list lacks its object: after an outage or a restart | held | the same |
//!
//! Held ones stay until they are derived again, or an administrator approves the deletion. Approved ones are deleted slowly, below the
//! rates at which name servers hold what a watch shows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::deletion_hold::hold::{Decisions, Held, Hold, Losses as Missing, Rules};

/// The time between approved deletions of Routers: fewer than five in a minute.
const ROUTER_PACE: Duration = Duration::from_secs(16);
/// The time between approved deletions of Routes: fewer than a hundred in a minute.
const ROUTE_PACE: Duration = Duration::from_millis(700);

/// The losses of one kind.
#[derive(Debug)]
pub struct Losses {
    hold: Hold<()>,
    /// The objects to delete, each with the earliest time.
    deletions: BTreeMap<String, Instant>,
    pace: Duration,
}

impl Losses {
    pub fn routers(share_percent: u32) -> Self {
        Losses { hold: Hold::new(Rules::routers(share_percent)), deletions: BTreeMap::new(), pace: ROUTER_PACE }
    }

    pub fn routes(share_percent: u32) -> Self {
        Losses { hold: Hold::new(Rules::bindings(share_percent)), deletions: BTreeMap::new(), pace: ROUTE_PACE }
    }

    pub fn set_share(&mut self, percent: u32) {
        self.hold.set_share(percent);
    }

    /// Judges a loss that a watch explains, of one of `known` objects.
    pub fn watched(&mut self, name: &str, known: usize, now: Instant) {
        if !self.is_judged(name) && self.hold.apply_watch_event(known, name, None, now.into_std()) {
            self.deletions.insert(name.to_owned(), now);
        }
    }

    /// Judges losses together, of `known` objects.
    pub fn listed(&mut self, names: BTreeSet<String>, known: usize, now: Instant) {
        let names = names.into_iter().filter(|name| !self.is_judged(name));
        let missing: Missing<()> = names.map(|name| (name.into_boxed_str(), None)).collect();
        if !missing.is_empty() {
            let believed = self.hold.apply_list(known, missing);
            self.deletions.extend(believed.into_keys().map(|name| (name.into_string(), now)));
        }
    }

    /// Returns whether the loss of an object was judged.
    pub fn is_judged(&self, name: &str) -> bool {
        self.deletions.contains_key(name) || self.hold.holds(name)
    }

    /// Returns the earliest time of the deletion of an object; `None`: it stays.
    pub fn deletion(&self, name: &str) -> Option<Instant> {
        self.deletions.get(name).copied()
    }

    /// Notes that an object is derived again, or is gone.
    pub fn release(&mut self, name: &str) {
        self.deletions.remove(name);
        self.hold.release(name);
    }

    /// Applies the decisions; returns the names of the objects to delete, each with its time.
    pub fn decide(&mut self, decisions: &Decisions, now: Instant) -> Vec<(String, Instant)> {
        let last = self.deletions.values().max().copied().filter(|last| *last > now);
        let first = last.map_or(now, |last| last + self.pace);
        let approved = self.hold.approved(decisions);
        let at = (0u32..).map(|number| first + self.pace * number);
        let approved: Vec<(String, Instant)> = approved.into_keys().map(str::into_string).zip(at).collect();
        self.deletions.extend(approved.iter().cloned());
        approved
    }

    pub fn held(&self, decisions: &Decisions) -> Option<Held> {
        self.hold.held(decisions)
    }

    pub fn held_names(&self) -> impl Iterator<Item = &str> {
        self.hold.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deletion_hold::hold::HoldDecision;
    use signpost_types::v1alpha1::deletion_hold::Decision;

    fn names(range: std::ops::Range<u32>) -> BTreeSet<String> {
        range.map(|number| format!("shop/r{number:03}")).collect()
    }

    /// The number of those to delete, and of those held.
    fn counts(losses: &Losses) -> (usize, usize) {
        (losses.deletions.len(), losses.held_names().count())
    }

    #[test]
    fn each_way_to_lose() {
        let now = Instant::now();
        for (what, routers, lost, known, expected) in [
            ("a Router whose Gateway was deleted", true, 1, 3, (1, 0)),
            ("a Route that was deleted", false, 1, 3, (1, 0)),
            ("Routers in a burst", true, 7, 7, (4, 3)),
            ("Routes in a burst", false, 120, 200, (99, 21)),
        ] {
            let mut losses = if routers { Losses::routers(25) } else { Losses::routes(25) };
            names(0..lost).iter().for_each(|name| losses.watched(name, known, now));
            assert_eq!(counts(&losses), expected, "{what}");
        }
        for (what, routers, lost, known, expected) in [
            ("a Router", true, 1, 9, (0, 1)),
            ("a few Routes", false, 4, 9, (4, 0)),
            ("the only Route", false, 1, 1, (0, 1)),
            ("many Routes", false, 5, 9, (0, 5)),
            ("a small share", false, 20, 100, (20, 0)),
        ] {
            let mut losses = if routers { Losses::routers(25) } else { Losses::routes(25) };
            losses.listed(names(0..lost), known, now);
            assert_eq!(counts(&losses), expected, "{what}");
            losses.listed(names(0..lost), known, now);
            assert_eq!(counts(&losses), expected, "{what}: judged once");
        }
    }

    #[test]
    fn approved_ones_go_slowly() {
        let (now, mut losses) = (Instant::now(), Losses::routes(25));
        losses.listed(names(0..200), 200, now);
        let held = losses.held(&Decisions::new()).expect("a hold");
        losses.release("shop/r000");
        let decided = |held: &Held| -> Decisions {
            [(held.id.clone(), HoldDecision { decision: Decision::Approve, set: held.set.clone() })].into()
        };
        losses.decide(&Decisions::new(), now);
        let held = losses.held(&decided(&held)).expect("a hold");
        let deletions = losses.decide(&decided(&held), now);
        assert_eq!((deletions.len(), counts(&losses)), (199, (199, 0)));
        let within = |time: Duration| deletions.iter().filter(|(_, at)| *at < now + time).count();
        assert!(within(Duration::from_secs(60)) < 100, "name servers hold a hundred in a minute");
        assert!(within(Duration::from_secs(200)) == 199);
    }
}
