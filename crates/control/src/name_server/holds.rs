//! The [`Hold`]s of both kinds: the changes of objects that a name server accepts, and the losses that it holds, given the
//! objects of its zones.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use super::objects::{Reduced, each};
use super::record::{self, JournalEntry, StoredHold};
use crate::client::reflector::{Change, Store};
use crate::compiler::inputs::BindingInput;
use crate::compiler::platform::Input;
use crate::compiler::{Digest, Platform, ShardView};
use crate::deletion_hold::hold::{Decisions, Held, Hold, Losses, Rules};
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;

/// A kind of object whose loss may be held.
pub trait MayBeHeld: Input {
    /// Returns the hold of this kind.
    fn hold(holds: &mut Holds) -> &mut Hold<Self>;

    /// Returns the names of all known objects.
    fn names(platform: &Platform) -> Vec<Box<str>>;

    /// Returns the number of known objects.
    fn count(platform: &Platform) -> usize;

    /// Returns whether names of the object are lost with its new value `now`.
    fn is_loss(platform: &Platform, name: &str, now: Option<&Self>) -> bool;

    /// Returns whether a name resolves to it, so that its loss matters.
    fn is_missed(platform: &Platform, name: &str) -> bool;

    /// Returns whether this is the known object of its name, not another one with the same name.
    fn is_same(&self, platform: &Platform) -> bool;

    /// Returns the change to its entry in the last-known-good state.
    fn entry(name: &str, now: Option<&Self>) -> JournalEntry;
}

impl MayBeHeld for ShardView {
    fn hold(holds: &mut Holds) -> &mut Hold<Self> {
        &mut holds.routers
    }

    fn names(platform: &Platform) -> Vec<Box<str>> {
        platform.routers().map(|router| router.name.clone()).collect()
    }

    fn count(platform: &Platform) -> usize {
        platform.counts().0
    }

    fn is_loss(platform: &Platform, name: &str, now: Option<&Self>) -> bool {
        platform.router(name).is_some_and(|before| {
            // A Router of that name with another zone does not replace it.
            now.is_none_or(|now| {
                now.apex != before.apex || before.answering().next().is_some() && now.answering().next().is_none()
            })
        })
    }

    /// Returns whether a Router is missed. If no name resolves to it, its own condition may have stated that it can be deleted.
    fn is_missed(platform: &Platform, name: &str) -> bool {
        platform.router(name).is_some_and(|router| !platform.is_vacant(router))
    }

    fn is_same(&self, platform: &Platform) -> bool {
        platform.router(&self.name).is_some_and(|before| before.apex == self.apex)
    }

    fn entry(name: &str, now: Option<&Self>) -> JournalEntry {
        record::router(name, now.map(|now| &**now))
    }
}

impl MayBeHeld for BindingInput {
    fn hold(holds: &mut Holds) -> &mut Hold<Self> {
        &mut holds.bindings
    }

    fn names(platform: &Platform) -> Vec<Box<str>> {
        platform.bindings().map(|binding| binding.key.clone()).collect()
    }

    fn count(platform: &Platform) -> usize {
        platform.counts().1
    }

    /// A changed label is a loss of the alias; a changed shard is only a move.
    fn is_loss(platform: &Platform, key: &str, now: Option<&Self>) -> bool {
        platform.binding(key).is_some_and(|before| now.is_none_or(|now| now.label != before.label))
    }

    fn is_missed(_: &Platform, _: &str) -> bool {
        true
    }

    fn is_same(&self, _: &Platform) -> bool {
        false
    }

    fn entry(name: &str, now: Option<&Self>) -> JournalEntry {
        record::binding(name, now)
    }
}

/// The holds of Routers and RouteBindings.
pub struct Holds {
    routers: Hold<ShardView>,
    bindings: Hold<BindingInput>,
    share_percent: watch::Receiver<u32>,
    decisions: watch::Receiver<Arc<Decisions>>,
    /// The objects that are held according to the last-known-good state.
    stored: HashSet<StoredHold>,
    /// The sums and the names of the stored holds.
    stored_sums: [(Digest, Digest); 2],
}

/// Objects by name, in the order in which to apply them; `None`: deleted.
pub type Accepted<V> = Vec<(Box<str>, Option<Arc<V>>)>;

impl Holds {
    /// Holds of nothing.
    pub fn new(share_percent: watch::Receiver<u32>, decisions: watch::Receiver<Arc<Decisions>>) -> Self {
        let share = *share_percent.borrow();
        Holds {
            routers: Hold::new(Rules::routers(share)),
            bindings: Hold::new(Rules::bindings(share)),
            share_percent,
            decisions,
            stored: HashSet::new(),
            stored_sums: Default::default(),
        }
    }

    /// Continues the holds of the last-good state.
    pub fn resume(&mut self, held: Vec<StoredHold>, platform: &Platform) {
        let of = |kind| held.iter().filter(move |(of, ..)| *of == kind);
        let keys = |kind| of(kind).map(|(_, name, _)| name.clone());
        let named = |kind| of(kind).next().map(|(.., named)| *named).unwrap_or_default();
        let (routers, bindings) = platform.counts();
        self.routers.resume(keys(DeletionHoldKind::Router), named(DeletionHoldKind::Router), routers);
        self.bindings.resume(keys(DeletionHoldKind::RouteBinding), named(DeletionHoldKind::RouteBinding), bindings);
        self.stored = held.into_iter().collect();
        self.stored_sums = [self.routers.sums(), self.bindings.sums()];
    }

    /// Applies a change of the objects of `platform`, which `store` has. Returns what is accepted; the rest is held.
    pub fn apply<I: Reduced<Input: MayBeHeld>>(
        &mut self,
        change: &Change<I>,
        platform: &Platform,
        store: &Store<I>,
    ) -> Accepted<I::Input> {
        let share = *self.share_percent.borrow();
        let (hold, known) = (I::Input::hold(self), I::Input::count(platform));
        hold.set_share(share);
        let mut all: Losses<I::Input> = Losses::new();
        if let Change::Relisted(list) = change {
            all.extend(list.vanished.iter().map(|(key, _)| (key.to_string().into(), None)));
            if list.first {
                // The informer was empty before, but the last-known-good state was not. Unreadable objects are not lost.
                let unread: HashSet<Box<str>> = store.unknown().iter().map(|key| key.to_string().into()).collect();
                let names = I::Input::names(platform).into_iter().filter(|name| !unread.contains(name));
                all.extend(names.map(|name| (name, None)));
            }
        }
        each(change, |key, read| {
            all.insert(key.to_string().into(), read.and_then(|read| read.input()).cloned());
        });
        let (losses, others): (Losses<_>, Losses<_>) =
            all.into_iter().partition(|(name, now)| I::Input::is_loss(platform, name, now.as_deref()));
        // Objects that are back are not missing in this list.
        others.keys().for_each(|name| hold.release(name));
        let accepted = match change {
            Change::Relisted(_) => hold.apply_list(known, losses),
            _ => losses.into_iter().filter(|(name, now)| is_accepted(hold, known, name, now, platform)).collect(),
        };
        accepted.into_iter().chain(others).collect()
    }

    /// Releases the approved holds. Returns the current values of the objects.
    pub fn approved(&mut self) -> (Losses<ShardView>, Losses<BindingInput>) {
        let decisions = self.decisions.borrow_and_update().clone();
        let (routers, bindings) = (self.routers.approved(&decisions), self.bindings.approved(&decisions));
        for router in routers.keys() {
            tracing::warn!(%router, "deletion approved: no longer serving the previous state of the Router");
        }
        if !bindings.is_empty() {
            let count = bindings.len();
            tracing::warn!(count, "deletion of RouteBindings approved: no longer serving their names");
        }
        (routers, bindings)
    }

    /// Returns the holds, with the decisions on them.
    pub fn held(&self) -> Vec<Held> {
        let decisions = self.decisions.borrow();
        self.routers.held(&decisions).into_iter().chain(self.bindings.held(&decisions)).collect()
    }

    /// Stores the holds in the last-known-good state, so that they survive a restart.
    pub fn store(&mut self, journal: &mut Vec<JournalEntry>) {
        let sums = [self.routers.sums(), self.bindings.sums()];
        if self.stored_sums == sums {
            return;
        }
        let [(_, routers_hold), (_, bindings_hold)] = sums;
        let names = self.routers.keys().map(|name| (DeletionHoldKind::Router, name.into(), routers_hold));
        let keys = self.bindings.keys().map(|key| (DeletionHoldKind::RouteBinding, key.into(), bindings_hold));
        let held: HashSet<StoredHold> = names.chain(keys).collect();
        // Removals first: an object may have moved from one hold to another.
        journal.extend(self.stored.difference(&held).map(|(kind, name, _)| record::held(*kind, name, None)));
        journal.extend(held.difference(&self.stored).map(|(kind, name, hold)| record::held(*kind, name, Some(*hold))));
        (self.stored, self.stored_sums) = (held, sums);
    }
}

/// Returns whether the watched loss of one of `known` objects is accepted: always if no name is lost, and otherwise by the rules
/// of `hold`.
fn is_accepted<V: MayBeHeld>(
    hold: &mut Hold<V>,
    known: usize,
    name: &str,
    now: &Option<Arc<V>>,
    platform: &Platform,
) -> bool {
    let is_same = |now: &V| now.is_same(platform);
    // A write of the object, such as each change of its status, does not end a hold.
    let is_news = !hold.holds(name) || now.as_deref().is_none_or(|now| !is_same(now));
    if is_news && !V::is_missed(platform, name) {
        hold.release(name);
        return true;
    }
    !hold.keeps(name, now, is_same) && hold.apply_watch_event(known, name, now.clone(), Instant::now())
}
