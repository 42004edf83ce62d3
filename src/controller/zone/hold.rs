//! The brake: the judgement of a sudden loss. Pure.
//!
//! A list may legally be empty while an API server is upgraded, restored from the wrong backup, or asked with too few
//! rights. Taking it at its word takes every name off the air. So a loss is *held* where it looks like an accident: what is
//! missing is served on, and a [`Brake`](crate::api::v1alpha1::brake) object, a metric and the log say so, until the
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
//! What is held has an ID made from the missing objects and from nothing else: two name servers that hold the same name it
//! alike, and a decision on it can never be one on more or other objects than were shown.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::v1alpha1::brake::{BrakeCause, BrakeKind, Decision, NAMES_MAX};
use crate::compiler::Digest;

/// Deletions within this time make a burst together.
const BURST: Duration = Duration::from_secs(60);

/// What is held of one kind: each missing object, with what to make of it if the loss is approved.
///
/// ```text
///           loss that looks like an accident
///   calm ───────────────────────────────────► held ─── approve ──► calm, the objects go
///    ▲                                         │  └─── reject ───► held, quiet, until the set changes
///    └── seen again, or deleted by a watch ────┘
/// ```
#[derive(Debug, Clone)]
pub struct Hold<V> {
    rules: Rules,
    held: BTreeMap<Box<str>, Option<Arc<V>>>,
    /// Sum of a digest for each that is held.
    sum: Digest,
    /// When it began, how, and how many objects were known then.
    began: Option<(BrakeCause, usize)>,
    /// When the losses of the last minute were told by a watch, and whether they were believed.
    told: VecDeque<(Instant, bool)>,
    /// How many of these were believed.
    believed: usize,
}

/// From when on losses of one kind are held.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The kind.
    pub kind: BrakeKind,
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
        Rules { kind: BrakeKind::Router, share_percent, list_min: 1, burst_min: 5 }
    }

    /// Those of RouteBindings.
    pub fn bindings(share_percent: u32) -> Self {
        Rules { kind: BrakeKind::RouteBinding, share_percent, list_min: 5, burst_min: 100 }
    }

    fn is_over(&self, losses: usize, known: usize) -> bool {
        losses.saturating_mul(100) > known.saturating_mul(self.share_percent as usize)
    }

    /// Whether a list that lacks so many of the known is not believed.
    fn doubts_list(&self, losses: usize, known: usize) -> bool {
        match self.kind {
            BrakeKind::Router => losses >= self.list_min,
            BrakeKind::RouteBinding => losses >= known || losses >= self.list_min && self.is_over(losses, known),
        }
    }
}

/// A loss that is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its name: the same for the same objects, on every name server and after every restart.
    pub id: String,
    /// Kind of the objects.
    pub kind: BrakeKind,
    /// How they came to be missing.
    pub cause: BrakeCause,
    /// How many are held.
    pub count: usize,
    /// How many were known when it began.
    pub known: usize,
    /// The first of them by name, at most [`NAMES_MAX`].
    pub names: Vec<String>,
    /// What was said of it.
    pub decision: Option<Decision>,
}

/// What was said of holds, by ID.
pub type Decisions = HashMap<String, Decision>;

/// What missing objects come to: the value of each, `None` for one that is gone.
pub type Losses<V> = BTreeMap<Box<str>, Option<Arc<V>>>;

impl<V> Hold<V> {
    /// Nothing held.
    pub fn new(rules: Rules) -> Self {
        Hold { rules, held: BTreeMap::new(), sum: Digest::default(), began: None, told: VecDeque::new(), believed: 0 }
    }

    /// From now on by these rules. What is held stays held.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// Judges a full list, which lacks `losses` of the `known` objects; those held before count as known. Returns what is
    /// believed; the rest is held. What was held before stays so: a list that still lacks it is no news.
    pub fn judge_list(&mut self, known: usize, losses: Losses<V>) -> Losses<V> {
        let all = losses.len() + self.held.keys().filter(|key| !losses.contains_key(*key)).count();
        let doubted = self.rules.doubts_list(all, known);
        let (held, believed): (Losses<V>, Losses<V>) =
            losses.into_iter().partition(|(key, _)| doubted || self.held.contains_key(key));
        for (key, value) in held {
            self.hold(key, value, BrakeCause::List, known);
        }
        believed
    }

    /// Judges a loss that a watch has told, of one of `known` objects. Whether it is believed; if not, it is held.
    pub fn judge_told(&mut self, known: usize, key: &str, value: Option<Arc<V>>, now: Instant) -> bool {
        while let Some((at, was_believed)) = self.told.front()
            && now.duration_since(*at) > BURST
        {
            self.believed -= usize::from(*was_believed);
            self.told.pop_front();
        }
        // What is held counts on: a burst is over when a minute was quiet, not when its believed part is a minute old.
        let (losses, known_before) = (self.told.len() + 1, known + self.believed);
        let is_believed = losses < self.rules.burst_min || !self.rules.is_over(losses, known_before);
        self.told.push_back((now, is_believed));
        if is_believed {
            self.believed += 1;
            self.release(key);
        } else {
            self.hold(key.into(), value, BrakeCause::Burst, known_before);
        }
        is_believed
    }

    fn hold(&mut self, key: Box<str>, value: Option<Arc<V>>, cause: BrakeCause, known: usize) {
        self.release(&key);
        self.began.get_or_insert((cause, known));
        self.sum = self.sum.plus(part(&key, value.is_none()));
        self.held.insert(key, value);
    }

    /// What was held before a restart is held on, `known` being there: a list that still lacks it is no news.
    pub fn resume(&mut self, keys: impl IntoIterator<Item = Box<str>>, known: usize) {
        keys.into_iter().for_each(|key| self.hold(key, None, BrakeCause::List, known));
    }

    /// What is held, by name, with a sum that differs when it does.
    pub fn keys(&self) -> (Digest, impl Iterator<Item = &str>) {
        (self.sum, self.held.keys().map(|key| &**key))
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
        let (cause, known) = self.began?;
        let kind = self.rules.kind;
        let id = format!("{}s-{:016x}", kind.word().to_ascii_lowercase(), (self.sum.0 >> 64) as u64);
        Some(Held {
            kind,
            cause,
            count: self.held.len(),
            known,
            names: self.held.keys().take(NAMES_MAX).map(|key| key.to_string()).collect(),
            decision: decisions.get(&id).copied(),
            id,
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
        held.map(|held| (held.id, Decision::Approve)).into_iter().collect()
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
            let believed = hold.judge_list(known, losses(0..lost));
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
            left -= usize::from(hold.judge_told(left, &number.to_string(), None, now));
        }
        assert_eq!(left, 1500, "three minutes of deletions took a quarter and no more");
        let later = start + Duration::from_secs(300);
        assert!(hold.judge_told(left, "another", None, later), "after a quiet minute one is believed");
    }

    #[test]
    fn a_burst_is_braked_and_single_deletions_are_not() {
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
                match hold.judge_told(left, &number.to_string(), None, now) {
                    true => left -= 1,
                    false => drop(held.get_or_insert(number)),
                }
            }
            assert_eq!(held, first_held, "{rules:?} {known} {gap}");
            let cause = hold.held(&Decisions::new()).map(|held| held.cause);
            assert_eq!(cause, held.map(|_| BrakeCause::Burst));
        }
    }

    #[test]
    fn an_id_is_of_the_set_and_a_decision_of_the_id() {
        let of = |known, range| {
            let mut hold: Hold<()> = Hold::new(Rules::routers(25));
            hold.judge_list(known, losses(range));
            hold
        };
        let id = |hold: &Hold<()>| hold.held(&Decisions::new()).map(|held| held.id);
        // The same set is the same, whatever else was known and in whatever order it came to be.
        let mut grown = of(9, 0..2);
        let old = approval(&grown);
        assert!(grown.judge_list(9, losses(2..3)).is_empty());
        assert_eq!(id(&grown), id(&of(3, 0..3)));
        assert_ne!(id(&grown), id(&of(3, 1..4)));
        // More is missing than what was approved: nothing passes.
        assert!(grown.approved(&old).is_empty());
        // What comes back makes the set another one, and in the end none.
        grown.release("o002");
        assert_eq!(id(&grown), id(&of(9, 0..2)));
        assert_eq!(grown.clone().approved(&old).len(), 2);
        let rejection: Decisions = old.keys().map(|id| (id.clone(), Decision::Reject)).collect();
        assert!(grown.approved(&rejection).is_empty());
        assert_eq!(grown.held(&rejection).and_then(|held| held.decision), Some(Decision::Reject));
        grown.release("o000");
        grown.release("o001");
        assert_eq!(grown.held(&Decisions::new()), None);
        // Gone, and there without an address, are two things.
        let mut emptied: Hold<()> = Hold::new(Rules::routers(25));
        emptied.judge_list(9, [("o000".into(), Some(Arc::new(())))].into());
        assert_ne!(id(&emptied), id(&of(9, 0..1)));
        assert_eq!(id(&emptied).map(|id| id.len()), Some("routers-".len() + 16));
    }

    #[test]
    fn what_is_held_stays_held_while_it_is_missing() {
        let mut hold: Hold<()> = Hold::new(Rules::bindings(25));
        assert!(hold.judge_list(100, losses(0..30)).is_empty());
        (3..30).for_each(|number| hold.release(&format!("o{number:03}")));
        // Three of a hundred, which a list alone would be believed, and one more.
        let believed = hold.judge_list(100, losses(0..4));
        assert_eq!(believed.keys().map(|key| &**key).collect::<Vec<_>>(), ["o003"]);
        assert_eq!(hold.approved(&approval(&hold)).len(), 3);
        assert!(hold.held(&Decisions::new()).is_none());
    }
}
