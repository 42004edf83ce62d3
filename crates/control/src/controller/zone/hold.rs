//! The deletion hold: the assessment of a sudden loss. Pure.
//!
//! A list can legally be empty while an API server is upgraded, restored from the wrong backup, or queried with insufficient
//! rights. To apply such a list would remove every name. So a loss is *held* if it looks like an accident: the missing objects
//! are still served, and a [`DeletionHold`](signpost_types::v1alpha1::deletion_hold) object, a metric, and the log report them,
//! until the objects return or a user approves the loss. The source of a loss indicates its nature:
//!
//! | source | a Router deleted, or without active address | a RouteBinding deleted |
//! |---|---|---|
//! | a watch | applied: one object, changed on purpose | applied, for the same reason |
//! | a watch, in a burst | held from the fifth within a minute that is over the share | held from the hundredth that is over the share |
//! | a full list | held | held if the list has none of those known, or if five or more, over the share, are missing |
//!
//! A watch event shows the change of one object, and its time; it must be applied, or no deletion would ever take effect. A burst
//! is a script or a cleanup that deleted more than intended. A full list, which follows lost events and restarts, does not show
//! how an object was deleted. Routers are few, each carries a whole shard, and the API rejects the deletion of a Router with
//! routes. So a wrong list is more likely than several intended deletions of Routers whose events were lost. RouteBindings change
//! all day, so some are always missing from a list after a disconnection: there the share decides.
//!
//! A Router whose zone changed, and a RouteBinding whose label changed, do not replace the lost objects: their old names are lost
//! as with a deletion, and are held likewise. A RouteBinding that moves to another Router keeps its label, and is not a loss.
//!
//! The watched deletion of a Router without routes and former names is always applied: no name resolves to it, and its own
//! condition `Drained` may have stated that it can be deleted.
//!
//! The ID of a hold depends only on the objects that were missing when it began (for a burst: from the first one that was held),
//! so that two name servers that hold the same objects use the same ID. A hold that grows keeps its ID. A decision counts only
//! for the exact set of objects at that time ([`Held::set`]), so that it never applies to more or other objects than were shown.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compiler::Digest;
use signpost_types::v1alpha1::deletion_hold::{Decision, DeletionHoldCause, DeletionHoldKind, NAMES_MAX};

/// Deletions within this time make a burst together.
const BURST: Duration = Duration::from_secs(60);

/// The held objects of one kind: each missing object, with its new value if the loss is approved.
///
/// ```text
///           suspected accident
///   calm ───────────────────────────────────► held ─── approve ──► calm, the objects are removed
///    ▲                                         │  └─── reject ───► held, quiet, until the set changes
///    └── seen again with its zone or label, ───┘
///        or deleted by a watch after that
/// ```
#[derive(Debug, Clone)]
pub struct Hold<V> {
    rules: Rules,
    held: BTreeMap<Box<str>, Option<Arc<V>>>,
    /// The sum of a digest for each held object.
    sum: Digest,
    began: Option<HoldStart>,
    /// The times of the watched losses of the last minute, and whether they were applied.
    recent: VecDeque<(Instant, bool)>,
    /// The number of applied losses among them.
    believed: usize,
}

/// The start and the state of a hold.
#[derive(Debug, Clone, Copy)]
struct HoldStart {
    cause: DeletionHoldCause,
    /// The most objects known at once since then, including the held ones.
    known: usize,
    /// The digest from which the ID is derived.
    name: Digest,
}

/// The thresholds from which losses of one kind are held.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub kind: DeletionHoldKind,
    /// The percentage of known objects that can be lost at once.
    pub share_percent: u32,
    /// Fewer losses in one list are applied, unless they are all objects.
    pub list_min: usize,
    /// Fewer losses in one burst are applied.
    pub burst_min: usize,
}

impl Rules {
    /// Returns the thresholds of Routers.
    pub fn routers(share_percent: u32) -> Self {
        Rules { kind: DeletionHoldKind::Router, share_percent, list_min: 1, burst_min: 5 }
    }

    /// Returns the thresholds of RouteBindings.
    pub fn bindings(share_percent: u32) -> Self {
        Rules { kind: DeletionHoldKind::RouteBinding, share_percent, list_min: 5, burst_min: 100 }
    }

    fn is_over(&self, losses: usize, known: usize) -> bool {
        losses.saturating_mul(100) > known.saturating_mul(self.share_percent as usize)
    }

    /// Returns whether a list that lacks this number of known objects must be held.
    fn doubts_list(&self, losses: usize, known: usize) -> bool {
        match self.kind {
            DeletionHoldKind::Router => losses >= self.list_min,
            DeletionHoldKind::RouteBinding => losses >= known || losses >= self.list_min && self.is_over(losses, known),
        }
    }
}

/// A loss that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The hold's name while it lasts: the same on every name server whose hold began with the same objects, and after every
    /// restart.
    pub id: String,
    /// A digest of the held objects, which differs when they do.
    pub set: String,
    pub kind: DeletionHoldKind,
    /// The source of the loss.
    pub cause: DeletionHoldCause,
    pub count: usize,
    /// The largest number of objects known at once since the hold began, including the held ones.
    pub known: usize,
    /// The first names of the held objects, at most [`NAMES_MAX`].
    pub names: Vec<String>,
    /// The decision on this set.
    pub decision: Option<Decision>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldDecision {
    pub decision: Decision,
    /// The [`Held::set`] that the decision is about.
    pub set: String,
}

/// The decisions on holds, by ID.
pub type Decisions = HashMap<String, HoldDecision>;

/// The new value of each missing object; `None` if it was deleted.
pub type Losses<V> = BTreeMap<Box<str>, Option<Arc<V>>>;

impl<V> Hold<V> {
    /// Returns a hold without objects.
    pub fn new(rules: Rules) -> Self {
        Hold { rules, held: BTreeMap::new(), sum: Digest::default(), began: None, recent: VecDeque::new(), believed: 0 }
    }

    /// Sets the percentage of known objects that can be lost at once. Held objects stay held.
    pub fn set_share(&mut self, percent: u32) {
        self.rules.share_percent = percent;
    }

    /// Assesses a full list, which lacks `losses` of the `known` objects; those already held count as known. Returns the losses
    /// to apply; the rest is held. Objects already held stay held: that a list still lacks them is not new information.
    pub fn apply_list(&mut self, known: usize, losses: Losses<V>) -> Losses<V> {
        let all = losses.len() + self.held.keys().filter(|key| !losses.contains_key(*key)).count();
        let doubted = self.rules.doubts_list(all, known);
        let begins = self.began.is_none();
        let (held, believed): (Losses<V>, Losses<V>) =
            losses.into_iter().partition(|(key, _)| doubted || self.held.contains_key(key));
        for (key, value) in held {
            self.hold(key, value, DeletionHoldCause::List, known);
        }
        if begins {
            self.name_by(self.sum);
        }
        believed
    }

    /// Assesses the watched loss of one of `known` objects. Returns whether to apply it; otherwise, it is held.
    pub fn apply_watch_event(&mut self, known: usize, key: &str, value: Option<Arc<V>>, now: Instant) -> bool {
        while let Some((at, was_believed)) = self.recent.front()
            && now.duration_since(*at) > BURST
        {
            self.believed -= usize::from(*was_believed);
            self.recent.pop_front();
        }
        // Held losses keep counting: a burst ends after a quiet minute, not when its applied part is a minute old.
        let (losses, known_before) = (self.recent.len() + 1, known + self.believed);
        let is_believed = losses < self.rules.burst_min || !self.rules.is_over(losses, known_before);
        self.recent.push_back((now, is_believed));
        if is_believed {
            self.believed += 1;
            self.release(key);
        } else {
            self.hold(key.into(), value, DeletionHoldCause::Burst, known_before);
        }
        is_believed
    }

    /// Returns whether the object is held.
    pub fn holds(&self, key: &str) -> bool {
        self.held.contains_key(key)
    }

    /// Returns whether a watched loss belongs to the held ones. It does if a missing object is back with other names or is
    /// deleted again, or if an existing object without names to serve was rewritten, as with every status change. The missing
    /// object is still missing, and stays held.
    pub fn keeps(&mut self, key: &str, value: &Option<Arc<V>>, is_same: impl Fn(&V) -> bool) -> bool {
        let Some((before, began)) = self.held.get(key).zip(self.began) else { return false };
        let was_back = before.as_ref().is_some_and(|before| is_same(before));
        let is_kept = !was_back || value.is_some();
        if is_kept {
            self.hold(key.into(), value.clone(), began.cause, began.known);
        }
        is_kept
    }

    fn hold(&mut self, key: Box<str>, value: Option<Arc<V>>, cause: DeletionHoldCause, known: usize) {
        self.sum = self.sum.plus(part(&key, value.is_none()));
        if let Some(before) = self.held.insert(key.clone(), value) {
            self.sum = self.sum.minus(part(&key, before.is_none()));
        }
        let began = self.began.get_or_insert(HoldStart { cause, known, name: self.sum });
        began.known = began.known.max(known);
    }

    fn name_by(&mut self, name: Digest) {
        if let Some(began) = &mut self.began {
            began.name = name;
        }
    }

    /// Continues to hold the objects from before a restart, under the name `name` ([`Self::sums`]), with `known` existing
    /// objects: that a list still lacks them is not new information.
    pub fn resume(&mut self, keys: impl IntoIterator<Item = Box<str>>, name: Digest, known: usize) {
        keys.into_iter().for_each(|key| self.hold(key, None, DeletionHoldCause::List, known));
        self.name_by(name);
    }

    /// Returns the names of the held objects.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.held.keys().map(|key| &**key)
    }

    /// Returns a digest that differs when the held objects do, and the digest from which the ID is derived.
    pub fn sums(&self) -> (Digest, Digest) {
        (self.sum, self.began.map_or_else(Digest::default, |began| began.name))
    }

    /// Records that an object was seen complete again.
    pub fn release(&mut self, key: &str) {
        // Nearly always, there are no held objects.
        if let Some(value) = self.held.remove(key) {
            self.sum = self.sum.minus(part(key, value.is_none()));
            if self.held.is_empty() {
                self.began = None;
            }
        }
    }

    /// Returns the held objects, and the decision on them.
    pub fn held(&self, decisions: &Decisions) -> Option<Held> {
        let HoldStart { cause, known, name } = self.began?;
        let kind = self.rules.kind;
        let id = format!("{}s-{}", kind.word().to_ascii_lowercase(), word(name));
        let set = word(self.sum);
        Some(Held {
            kind,
            cause,
            count: self.held.len(),
            known,
            names: self.held.keys().take(NAMES_MAX).map(|key| key.to_string()).collect(),
            decision: decisions.get(&id).filter(|decided| decided.set == set).map(|decided| decided.decision),
            id,
            set,
        })
    }

    /// Releases an approved loss, and returns the new value of each object.
    pub fn approved(&mut self, decisions: &Decisions) -> Losses<V> {
        if self.held.is_empty() || self.held(decisions).is_none_or(|held| held.decision != Some(Decision::Approve)) {
            return Losses::new();
        }
        (self.sum, self.began) = (Digest::default(), None);
        std::mem::take(&mut self.held)
    }
}

fn word(digest: Digest) -> String {
    format!("{:016x}", (digest.0 >> 64) as u64)
}

/// Returns the contribution of one object to the digest of an ID.
fn part(key: &str, gone: bool) -> Digest {
    Digest::of_octets(&[key.as_bytes(), &[0, u8::from(gone)]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(range: std::ops::Range<usize>) -> Losses<()> {
        range.map(|number| (format!("o{number:03}").into_boxed_str(), None)).collect()
    }

    fn approval(hold: &Hold<()>) -> Decisions {
        let held = hold.held(&Decisions::new());
        held.map(|held| (held.id, HoldDecision { decision: Decision::Approve, set: held.set })).into_iter().collect()
    }

    #[test]
    fn what_a_list_lacks() {
        let (routers, bindings) = (Rules::routers(25), Rules::bindings(25));
        for (rules, known, lost, held) in [
            (routers, 9, 0, 0),
            (routers, 9, 1, 1),
            (routers, 9, 9, 9),
            (bindings, 100, 4, 0),
            (bindings, 100, 25, 0),
            (bindings, 100, 26, 26),
            (bindings, 8, 4, 0),
            (bindings, 8, 5, 5),
            (bindings, 4, 3, 0),
            (bindings, 4, 4, 4),
            (bindings, 1, 1, 1),
            (bindings, 0, 0, 0),
            (Rules::bindings(100), 100, 99, 0),
            (Rules::bindings(100), 100, 100, 100),
        ] {
            let mut hold = Hold::new(rules);
            let believed = hold.apply_list(known, losses(0..lost));
            let count = hold.held(&Decisions::new()).map_or(0, |held| held.count);
            assert_eq!((believed.len(), count), (lost - held, held), "{rules:?} {known} {lost}");
        }
    }

    #[test]
    fn a_burst_lasts_as_long_as_the_deletions() {
        let start = Instant::now();
        let mut hold: Hold<()> = Hold::new(Rules::bindings(25));
        let mut left = 2000;
        for number in 0..1800 {
            let now = start + Duration::from_millis(100) * number;
            left -= usize::from(hold.apply_watch_event(left, &number.to_string(), None, now));
        }
        assert_eq!(left, 1500, "three minutes of deletions removed a quarter only");
        let later = start + Duration::from_secs(300);
        assert!(hold.apply_watch_event(left, "another", None, later), "after a quiet minute one is accepted");
    }

    #[test]
    fn a_burst_is_held_and_single_deletions_are_not() {
        let start = Instant::now();
        for (rules, known, gap, count, first_held) in [
            (Rules::routers(25), 8, 0, 8, Some(4)),
            // Over the share, but below the minimum for an accident.
            (Rules::routers(25), 4, 0, 4, None),
            (Rules::routers(25), 100, 0, 26, Some(25)),
            (Rules::routers(25), 8, 61, 8, None),
            (Rules::bindings(25), 200, 0, 120, Some(99)),
            (Rules::bindings(25), 1000, 0, 251, Some(250)),
            (Rules::bindings(100), 200, 0, 200, None),
        ] {
            let mut hold: Hold<()> = Hold::new(rules);
            let mut left = known;
            let mut held = None;
            for number in 0..count {
                let now = start + Duration::from_secs(gap) * number as u32;
                match hold.apply_watch_event(left, &number.to_string(), None, now) {
                    true => left -= 1,
                    false => drop(held.get_or_insert(number)),
                }
            }
            assert_eq!(held, first_held, "{rules:?} {known} {gap}");
            let cause = hold.held(&Decisions::new()).map(|held| held.cause);
            assert_eq!(cause, held.map(|_| DeletionHoldCause::Burst));
        }
    }

    #[test]
    fn an_id_is_of_the_hold_and_a_decision_of_the_set() {
        let of = |known, range| {
            let mut hold: Hold<()> = Hold::new(Rules::routers(25));
            hold.apply_list(known, losses(range));
            hold
        };
        let id = |hold: &Hold<()>| hold.held(&Decisions::new()).map(|held| held.id);
        let set = |hold: &Hold<()>| hold.held(&Decisions::new()).map(|held| held.set);
        // The same set has the same digest, for any other known objects and in any order.
        let mut grown = of(9, 0..2);
        assert_eq!((id(&grown), set(&grown)), (id(&of(3, 0..2)), set(&of(3, 0..2))));
        assert_ne!(id(&grown), id(&of(3, 1..3)));
        let old = approval(&grown);
        assert!(grown.apply_list(9, losses(2..3)).is_empty());
        assert_eq!((id(&grown), set(&grown)), (id(&of(9, 0..2)), set(&of(9, 0..3))), "one that grows keeps its ID");
        // More is missing than was approved: nothing is applied, and a new decision is necessary.
        assert!(grown.approved(&old).is_empty());
        assert_eq!(grown.held(&old).map(|held| held.decision), Some(None));
        assert_eq!(grown.clone().approved(&approval(&grown)).len(), 3);
        // A restart changes neither.
        let mut restarted = Hold::new(Rules::routers(25));
        restarted.resume(grown.keys().map(Into::into), grown.sums().1, 9);
        assert_eq!((id(&restarted), set(&restarted)), (id(&grown), set(&grown)));
        // A returning object changes the set, and the last one empties it.
        grown.release("o002");
        assert_eq!(set(&grown), set(&of(9, 0..2)));
        assert_eq!(grown.clone().approved(&old).len(), 2);
        let reject = |held: Held| (held.id, HoldDecision { decision: Decision::Reject, set: held.set });
        let rejection: Decisions = grown.held(&Decisions::new()).map(reject).into_iter().collect();
        assert!(grown.approved(&rejection).is_empty());
        assert_eq!(grown.held(&rejection).and_then(|held| held.decision), Some(Decision::Reject));
        grown.release("o000");
        grown.release("o001");
        assert_eq!(grown.held(&Decisions::new()), None);
        // Deleted, and existing without an address, are different states.
        let mut emptied: Hold<()> = Hold::new(Rules::routers(25));
        emptied.apply_list(9, [("o000".into(), Some(Arc::new(())))].into());
        assert_ne!(id(&emptied), id(&of(9, 0..1)));
        assert_eq!(id(&emptied).map(|id| id.len()), Some("routers-".len() + 16));
    }

    #[test]
    fn a_burst_that_grows_is_one_hold_with_figures_that_agree() {
        let mut hold: Hold<()> = Hold::new(Rules::routers(25));
        let start = Instant::now();
        let mut ids = std::collections::BTreeSet::new();
        // Routers are created and deleted continuously: nine at first, and many more later.
        for number in 0..640 {
            hold.apply_watch_event(
                9 + number,
                &format!("o{number:03}"),
                None,
                start + Duration::from_millis(100) * number as u32,
            );
            if let Some(Held { id, count, known, .. }) = hold.held(&Decisions::new()) {
                ids.insert(id);
                assert!(count <= known, "{count} of {known}");
            }
        }
        assert_eq!(ids.len(), 1);
        let held = hold.held(&Decisions::new()).expect("a burst is held");
        assert!(held.count > 400 && held.known >= 648, "{held:?}");
    }

    #[test]
    fn another_object_of_that_name_ends_no_hold() {
        let is_same = |number: &u8| *number == 1;
        let mut hold: Hold<u8> = Hold::new(Rules::routers(25));
        let now = |number| Some(Arc::new(number));
        assert!(!hold.keeps("a", &now(2), is_same), "nothing is held");
        hold.apply_list(1, [("a".into(), None)].into());
        // Existing as another object, as yet another one, and deleted again.
        for value in [now(2), now(3), None] {
            assert!(hold.keeps("a", &value, is_same), "{value:?}");
        }
        assert!(hold.keeps("a", &now(2), is_same));
        let approved = hold.approved(&match hold.held(&Decisions::new()) {
            Some(held) => [(held.id, HoldDecision { decision: Decision::Approve, set: held.set })].into(),
            None => panic!("it is held"),
        });
        assert_eq!(approved["a"], now(2), "with the approval the other one is served");
        // The same without an address, written for another reason, and deleted on purpose.
        hold.apply_list(1, [("a".into(), now(1))].into());
        assert!(hold.keeps("a", &now(1), is_same) && hold.keeps("a", &now(1), is_same));
        assert!(!hold.keeps("a", &None, is_same));
        assert!(hold.keeps("a", &now(2), is_same));
    }

    #[test]
    fn what_is_held_stays_held_while_it_is_missing() {
        let mut hold: Hold<()> = Hold::new(Rules::bindings(25));
        assert!(hold.apply_list(100, losses(0..30)).is_empty());
        (3..30).for_each(|number| hold.release(&format!("o{number:03}")));
        // Three of a hundred, which would be applied from a list alone, and one more.
        let believed = hold.apply_list(100, losses(0..4));
        assert_eq!(believed.keys().map(|key| &**key).collect::<Vec<_>>(), ["o003"]);
        assert_eq!(hold.approved(&approval(&hold)).len(), 3);
        assert!(hold.held(&Decisions::new()).is_none());
    }
}
