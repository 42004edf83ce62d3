//! The deletion hold: the judgement of a sudden loss. Pure.
//!
//! A list may legally be empty while an API server is upgraded, restored from the wrong backup, or asked with too few
//! rights. Taking it at its word takes every name off the air. So a loss is *held* where it looks like an accident: what is
//! missing is served on, and a [`DeletionHold`](signpost_api::v1alpha1::deletion_hold) object, a metric and the log say so, until the
//! objects are there again or someone approves. How a loss is heard of says what it looks like:
//!
//! | heard by | a Router gone, or without active address | a RouteBinding gone |
//! |---|---|---|
//! | a watch | believed: one object, changed on purpose | believed, for the same reason |
//! | a watch, in a burst | held from the fifth within a minute that is over the share | held from the hundredth that is over the share |
//! | a full list | held | held if the list has none of those known, or if five or more, over the share, are missing |
//!
//! A watch tells what someone has done to one object, and when; that is believed, or no deletion ever would be. A burst of
//! it is a script or a sweep that met more than was meant. A full list, which follows lost events and restarts, says nothing
//! of how an object went. Routers are few and each carries a whole shard, and the API refuses to delete one that has
//! routes: that several changes of them were meant *and* missed is rarer than that the list is wrong. RouteBindings come and
//! go all day, so that some are always missing from a list after a time of silence: there the share decides.
//!
//! A Router that has another zone than the one of its name had, and a RouteBinding with another label, are not the ones that
//! were lost: names go with them as with a deletion, and are held as that is. A RouteBinding that moves to another Router
//! keeps its label, and is no loss.
//!
//! A watch that tells of a Router that has no route and no former name is believed whatever else goes: no name leads to it, and
//! the Router's own condition `Drained` may have said that it can be deleted.
//!
//! What is held has an ID made from the objects that were missing when it began (of a burst: from the first one that was held)
//! and from nothing else, so that two name servers that hold the same name it alike. A hold that grows keeps its ID; what was
//! said of it counts for the very set of objects that it was said of ([`Held::set`]), so that a decision can never be one on
//! more or other objects than were shown.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compiler::Digest;
use signpost_api::v1alpha1::deletion_hold::{Decision, DeletionHoldCause, DeletionHoldKind, NAMES_MAX};

/// Deletions within this time make a burst together.
const BURST: Duration = Duration::from_secs(60);

/// What is held of one kind: each missing object, with what to make of it if the loss is approved.
///
/// ```text
///           loss that looks like an accident
///   calm ───────────────────────────────────► held ─── approve ──► calm, the objects go
///    ▲                                         │  └─── reject ───► held, quiet, until the set changes
///    └── seen again with its zone or label, ───┘
///        or deleted by a watch after that
/// ```
#[derive(Debug, Clone)]
pub struct Hold<V> {
    rules: Rules,
    held: BTreeMap<Box<str>, Option<Arc<V>>>,
    /// Sum of a digest for each that is held.
    sum: Digest,
    began: Option<HoldStart>,
    /// When the losses of the last minute were told by a watch, and whether they were believed.
    recent: VecDeque<(Instant, bool)>,
    /// How many of these were believed.
    believed: usize,
}

/// How a hold began, and what has become of it.
#[derive(Debug, Clone, Copy)]
struct HoldStart {
    cause: DeletionHoldCause,
    /// The most objects that were known at once since then, those that are held included.
    known: usize,
    /// What the ID is made from.
    name: Digest,
}

/// From when on losses of one kind are held.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The kind.
    pub kind: DeletionHoldKind,
    /// How many of a hundred known objects may go at once.
    pub share_percent: u32,
    /// Fewer losses than this in one list are believed, unless they are all.
    pub list_min: usize,
    /// Fewer losses than this in one burst are believed.
    pub burst_min: usize,
}

impl Rules {
    /// Those of Routers.
    pub fn routers(share_percent: u32) -> Self {
        Rules { kind: DeletionHoldKind::Router, share_percent, list_min: 1, burst_min: 5 }
    }

    /// Those of RouteBindings.
    pub fn bindings(share_percent: u32) -> Self {
        Rules { kind: DeletionHoldKind::RouteBinding, share_percent, list_min: 5, burst_min: 100 }
    }

    fn is_over(&self, losses: usize, known: usize) -> bool {
        losses.saturating_mul(100) > known.saturating_mul(self.share_percent as usize)
    }

    /// Whether a list that lacks so many of the known is not believed.
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
    /// Its name, as long as it lasts: the same on every name server that began to hold the same, and after every restart.
    pub id: String,
    /// What it holds now, in a word that differs when the objects do.
    pub set: String,
    /// Kind of the objects.
    pub kind: DeletionHoldKind,
    /// How they came to be missing.
    pub cause: DeletionHoldCause,
    /// How many are held.
    pub count: usize,
    /// How many were known at once, at most, since it began; those that are held are among them.
    pub known: usize,
    /// The first of them by name, at most [`NAMES_MAX`].
    pub names: Vec<String>,
    /// What was said of this set.
    pub decision: Option<Decision>,
}

/// What was said of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldDecision {
    /// That.
    pub decision: Decision,
    /// The [`Held::set`] that it was said of.
    pub set: String,
}

/// What was said of holds, by ID.
pub type Decisions = HashMap<String, HoldDecision>;

/// What missing objects come to: the value of each, `None` for one that is gone.
pub type Losses<V> = BTreeMap<Box<str>, Option<Arc<V>>>;

impl<V> Hold<V> {
    /// Nothing held.
    pub fn new(rules: Rules) -> Self {
        Hold { rules, held: BTreeMap::new(), sum: Digest::default(), began: None, recent: VecDeque::new(), believed: 0 }
    }

    /// From now on so many of a hundred known objects may go at once. What is held stays held.
    pub fn set_share(&mut self, percent: u32) {
        self.rules.share_percent = percent;
    }

    /// Judges a full list, which lacks `losses` of the `known` objects; those held before count as known. Returns what is
    /// believed; the rest is held. What was held before stays so: a list that still lacks it is no news.
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
            self.name_by(None);
        }
        believed
    }

    /// Judges a loss that a watch has told, of one of `known` objects. Whether it is believed; if not, it is held.
    pub fn apply_watch_event(&mut self, known: usize, key: &str, value: Option<Arc<V>>, now: Instant) -> bool {
        while let Some((at, was_believed)) = self.recent.front()
            && now.duration_since(*at) > BURST
        {
            self.believed -= usize::from(*was_believed);
            self.recent.pop_front();
        }
        // What is held counts on: a burst is over when a minute was quiet, not when its believed part is a minute old.
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

    /// Whether the object is held.
    pub fn holds(&self, key: &str) -> bool {
        self.held.contains_key(key)
    }

    /// Whether a loss that a watch has told is one of what is held already: an object that was missing is there under its name
    /// with other names than it had, or that one is gone again; or one that is there, and leads nowhere, was written once more,
    /// as each is when its status changes. What was missing still is, and is held on.
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

    /// Names what has just begun: as it was named before, or by all that is held.
    fn name_by(&mut self, name: Option<Digest>) {
        if let Some(began) = &mut self.began {
            began.name = name.unwrap_or(self.sum);
        }
    }

    /// What was held before a restart, under the name `name` ([`Self::sums`]), is held on, `known` being there: a list that
    /// still lacks it is no news.
    pub fn resume(&mut self, keys: impl IntoIterator<Item = Box<str>>, name: Option<Digest>, known: usize) {
        keys.into_iter().for_each(|key| self.hold(key, None, DeletionHoldCause::List, known));
        self.name_by(name);
    }

    /// The names of what is held.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.held.keys().map(|key| &**key)
    }

    /// A sum that differs when what is held does, and what the ID is made from.
    pub fn sums(&self) -> (Digest, Digest) {
        (self.sum, self.began.map_or_else(Digest::default, |began| began.name))
    }

    /// An object was seen whole again.
    pub fn release(&mut self, key: &str) {
        // Nearly always nothing is held.
        if let Some(value) = self.held.remove(key) {
            self.sum = self.sum.minus(part(key, value.is_none()));
            if self.held.is_empty() {
                self.began = None;
            }
        }
    }

    /// What is held, and what was said of it.
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

    /// Lets the loss pass, if it is approved: what becomes of each object.
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

/// What one object adds to the sum that an ID is made from.
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
        assert_eq!(left, 1500, "three minutes of deletions took a quarter and no more");
        let later = start + Duration::from_secs(300);
        assert!(hold.apply_watch_event(left, "another", None, later), "after a quiet minute one is believed");
    }

    #[test]
    fn a_burst_is_held_and_single_deletions_are_not() {
        let start = Instant::now();
        for (rules, known, gap, count, first_held) in [
            (Rules::routers(25), 8, 0, 8, Some(4)),
            // Over the share, and fewer than an accident takes.
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
        // The same set is the same, whatever else was known and in whatever order it came to be.
        let mut grown = of(9, 0..2);
        assert_eq!((id(&grown), set(&grown)), (id(&of(3, 0..2)), set(&of(3, 0..2))));
        assert_ne!(id(&grown), id(&of(3, 1..3)));
        let old = approval(&grown);
        assert!(grown.apply_list(9, losses(2..3)).is_empty());
        assert_eq!((id(&grown), set(&grown)), (id(&of(9, 0..2)), set(&of(9, 0..3))), "one that grows keeps its ID");
        // More is missing than what was approved: nothing passes, and it has to be said again.
        assert!(grown.approved(&old).is_empty());
        assert_eq!(grown.held(&old).map(|held| held.decision), Some(None));
        assert_eq!(grown.clone().approved(&approval(&grown)).len(), 3);
        // A restart changes neither.
        let mut restarted = Hold::new(Rules::routers(25));
        restarted.resume(grown.keys().map(Into::into), Some(grown.sums().1), 9);
        assert_eq!((id(&restarted), set(&restarted)), (id(&grown), set(&grown)));
        // What comes back makes the set another one, and in the end none.
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
        // Gone, and there without an address, are two things.
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
        // Routers are made and deleted all the while: nine at first, and many more later.
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
        // There as another one, as yet another one, and gone again.
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
        // Three of a hundred, which a list alone would be believed, and one more.
        let believed = hold.apply_list(100, losses(0..4));
        assert_eq!(believed.keys().map(|key| &**key).collect::<Vec<_>>(), ["o003"]);
        assert_eq!(hold.approved(&approval(&hold)).len(), 3);
        assert!(hold.held(&Decisions::new()).is_none());
    }
}
