//! The deletion hold: the assessment of a sudden loss. Pure.
//!
//! A list can legally be empty while an API server is upgraded, restored from the wrong backup, or queried with insufficient
//! rights. To apply such a list would remove every name. So a loss is *held* if it looks like an accident: the missing objects
//! are still served, or what depends on them is kept, and a [`DeletionHold`](signpost_types::v1alpha1::deletion_hold) object, a
//! metric, and the log report them, until the objects return or a user approves the loss. The source of a loss indicates its nature:
//!
//! | source | a Router deleted, or without active address | a RouteBinding or Route deleted |
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
//! A burst counts for its own namespace, so that no tenant delays the deletions of others: of every other namespace, at most as many
//! losses count as this one has, or ten. A script that deletes a few objects in each of many namespaces is still held.
//!
//! The watched deletion of a Router without routes and former names is always applied: no name resolves to it, and its own
//! condition `Drained` may have stated that it can be deleted.
//!
//! The ID of a hold depends only on the objects that were missing when it began (for a burst: from the first one that was held),
//! so that two name servers that hold the same objects use the same ID. A hold that grows keeps its ID. An approval covers the
//! objects of the set that was shown ([`Held::set`]) that are still held, and never more or other ones: later losses stay
//! held. A rejection counts for the exact set.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compiler::Digest;
use signpost_types::v1alpha1::deletion_hold::{Decision, DeletionHoldCause, DeletionHoldKind, NAMES_MAX};

/// Deletions within this time make a burst together.
const BURST: Duration = Duration::from_secs(60);
/// The losses of another namespace that always count. With fewer, the deletion of every namespace one by one is noticed late; with
/// more, fewer namespaces together can delay the deletions of others. A tenth of the smallest burst needs ten of them.
const OTHERS_MIN: usize = 10;
/// The most sets that are kept for an approval. One is shown per second, and an administrator decides about one of the last minutes.
const SHOWN_MAX: usize = 1024;

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
    held: BTreeMap<Box<str>, Absent<V>>,
    /// The number of losses held so far.
    turn: u64,
    /// The sums of the sets that were shown, each with the turn at that time.
    shown: VecDeque<(Digest, u64)>,
    /// The sum of a digest for each held object.
    sum: Digest,
    began: Option<HoldStart>,
    /// The times and namespaces of the watched losses of the last minute, and whether they were applied.
    recent: VecDeque<(Instant, Box<str>, bool)>,
    /// The number of them by namespace.
    by_namespace: HashMap<Box<str>, usize>,
    /// The number of applied losses among them.
    believed: usize,
}

/// A missing object.
#[derive(Debug, Clone)]
struct Absent<V> {
    /// The new value, if the loss is approved.
    value: Option<Arc<V>>,
    /// The turn in which it was lost.
    turn: u64,
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

    /// Returns the thresholds of RouteBindings, and of the Routes that have one.
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
        Hold {
            rules,
            held: BTreeMap::new(),
            turn: 0,
            shown: VecDeque::new(),
            sum: Digest::default(),
            began: None,
            recent: VecDeque::new(),
            by_namespace: HashMap::new(),
            believed: 0,
        }
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
        self.forget_burst(now);
        // Held losses keep counting: a burst ends after a quiet minute, not when its applied part is a minute old.
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        *self.by_namespace.entry(namespace.into()).or_default() += 1;
        let (losses, known_before) = (self.burst_of(namespace), known + self.believed);
        let is_believed = losses < self.rules.burst_min || !self.rules.is_over(losses, known_before);
        self.recent.push_back((now, namespace.into(), is_believed));
        if is_believed {
            self.believed += 1;
            self.release(key);
        } else {
            self.hold(key.into(), value, DeletionHoldCause::Burst, known_before);
        }
        is_believed
    }

    /// Forgets the losses that are too old for a burst.
    fn forget_burst(&mut self, now: Instant) {
        while let Some((at, ..)) = self.recent.front()
            && now.duration_since(*at) > BURST
            && let Some((_, namespace, was_believed)) = self.recent.pop_front()
        {
            self.believed -= usize::from(was_believed);
            if let Some(count) = self.by_namespace.get_mut(&namespace) {
                *count -= 1;
                if *count == 0 {
                    self.by_namespace.remove(&namespace);
                }
            }
        }
    }

    /// Returns the number of losses that count for one in this namespace.
    fn burst_of(&self, namespace: &str) -> usize {
        // Nearly always, there are few.
        if self.recent.len() + 1 < self.rules.burst_min {
            return 0;
        }
        let own = self.by_namespace.get(namespace).copied().unwrap_or_default();
        self.by_namespace.values().map(|losses| *losses.min(&own.max(OTHERS_MIN))).sum()
    }

    /// Returns the number of held objects.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
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
        let was_back = before.value.as_ref().is_some_and(|before| is_same(before));
        let is_kept = !was_back || value.is_some();
        if is_kept {
            self.hold(key.into(), value.clone(), began.cause, began.known);
        }
        is_kept
    }

    fn hold(&mut self, key: Box<str>, value: Option<Arc<V>>, cause: DeletionHoldCause, known: usize) {
        let is_gone = value.is_none();
        self.sum = self.sum.plus(part(&key, is_gone));
        let before = self.held.get(&key).map(|before| (before.value.is_none(), before.turn));
        // One that is missing in the same way was lost before.
        let turn = match before {
            Some((was_gone, turn)) if was_gone == is_gone => turn,
            _ => {
                self.turn += 1;
                self.turn
            }
        };
        if let Some((was_gone, _)) = before {
            self.sum = self.sum.minus(part(&key, was_gone));
        }
        self.held.insert(key, Absent { value, turn });
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
        if let Some(lost) = self.held.remove(key) {
            self.sum = self.sum.minus(part(key, lost.value.is_none()));
            if self.held.is_empty() {
                self.began = None;
            }
        }
    }

    /// Returns the held objects, and the decision on them.
    pub fn held(&self, decisions: &Decisions) -> Option<Held> {
        let HoldStart { cause, known, .. } = self.began?;
        let (kind, id) = (self.rules.kind, self.id()?);
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

    /// Returns the ID of the hold.
    fn id(&self) -> Option<String> {
        let HoldStart { name, .. } = self.began?;
        Some(format!("{}s-{}", self.rules.kind.word().to_ascii_lowercase(), word(name)))
    }

    /// Releases the approved losses, and returns the new value of each object. Remembers the set of the others, which is shown next.
    pub fn approved(&mut self, decisions: &Decisions) -> Losses<V> {
        let decided = self.id().and_then(|id| decisions.get(&id));
        let approved = decided.filter(|decided| decided.decision == Decision::Approve);
        let until = approved.and_then(|approved| self.turn_of(&approved.set));
        let covered = self.held.iter().filter(|(_, lost)| until.is_some_and(|until| lost.turn <= until));
        let covered: Losses<V> = covered.map(|(key, lost)| (key.clone(), lost.value.clone())).collect();
        covered.keys().for_each(|key| self.release(key));
        if self.held.is_empty() {
            self.shown = VecDeque::new();
        } else if self.shown.back().is_none_or(|(shown, _)| *shown != self.sum) {
            self.shown.push_back((self.sum, self.turn));
            if self.shown.len() > SHOWN_MAX {
                self.shown.pop_front();
            }
        }
        covered
    }

    /// Returns the turn up to which the held objects belong to the set `set`, if that was shown.
    fn turn_of(&self, set: &str) -> Option<u64> {
        let shown = self.shown.iter().rev().find(|(sum, _)| word(*sum) == set).map(|(_, turn)| *turn);
        if word(self.sum) == set { Some(self.turn) } else { shown }
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
    fn a_burst_counts_for_its_own_namespace() {
        let now = Instant::now();
        let lose = |hold: &mut Hold<()>, left: &mut usize, namespace: &str, number: usize| {
            let is_applied = hold.apply_watch_event(*left, &format!("{namespace}/r{number:03}"), None, now);
            *left -= usize::from(is_applied);
            is_applied
        };
        // The namespaces that delete, how many objects each, and whether the deletion of an object in another one is held then.
        for (what, namespaces, each, known, is_held) in [
            ("one tenant deletes all of its objects", 1, 260, 460, false),
            ("two tenants do", 2, 260, 720, false),
            ("nine tenants do", 9, 260, 2540, false),
            ("a script deletes one object in each namespace", 300, 1, 300, true),
            ("a script deletes twelve objects in each namespace", 30, 12, 360, true),
        ] {
            let mut hold: Hold<()> = Hold::new(Rules::bindings(25));
            let mut left = known;
            for namespace in 0..namespaces {
                for number in 0..each {
                    lose(&mut hold, &mut left, &format!("a{namespace:03}"), number);
                }
            }
            assert!(hold.held(&Decisions::new()).is_some(), "{what}");
            assert_eq!(!lose(&mut hold, &mut left, "other", 0), is_held, "{what}");
        }
    }

    #[test]
    fn an_approval_covers_what_there_was() {
        let mut hold: Hold<()> = Hold::new(Rules::bindings(25));
        let none = Decisions::new();
        hold.apply_list(10, losses(0..10));
        // Each set is shown after its change.
        hold.approved(&none);
        let approval = approval(&hold);
        let again = hold.keeps("o003", &None, |()| true);
        assert!(again, "it is still missing, in the same way");
        hold.release("o004");
        hold.apply_list(10, losses(20..30));
        hold.approved(&none);
        assert!(hold.held(&approval).is_some_and(|held| held.decision.is_none()), "the set is another one");
        let released = hold.approved(&approval);
        assert_eq!(released.keys().filter(|key| ***key < *"o010").count(), 9, "{released:?}");
        assert_eq!(released.len(), 9, "later losses stay held");
        let held = hold.held(&none).expect("the others are held");
        assert_eq!((held.count, held.names.first().map(String::as_str)), (10, Some("o020")));
        assert!(hold.approved(&approval).is_empty(), "the approval covers nothing else");
        // An object of the approved set that is lost again was not approved.
        hold.apply_list(10, losses(0..10));
        assert!(hold.approved(&approval).is_empty());
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
        // A set that was never shown is not approved.
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
