//! The retained changes of one kind, bounded in bytes and fair between namespaces.
//!
//! The changes are ordered by revision. Each is charged to its namespace. When the charges exceed [`HISTORY_BYTES_MAX`], a
//! namespace with more than a quarter of that loses its oldest change; if there is none, the oldest change of all goes. So the
//! churn of one tenant shortens only the window of its own namespace.
//!
//! Each namespace has a floor: the last revision of which it lost a change. A watch of one namespace can start at or
//! after the floor of that namespace, a watch of all namespaces at or after the greatest floor.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::{Change, LINES_KEPT};
use crate::object::Object;

/// The bytes of history that a kind retains. Room for 4,096 changes of common size, two seconds at 2,000 writes a
/// second: with less, readers that a busy machine delays are cut off; with more, more superseded objects stay in memory.
pub(super) const HISTORY_BYTES_MAX: usize = 32 << 20;

/// The least charge of a change, so that small changes are bounded in number, too: 4,096.
const CHARGE_MIN: usize = 8 << 10;

/// The number of namespaces without retained changes whose floors are remembered, twice that at times.
const FLOORS_MAX: usize = 4_096;

/// The place of a change: its revision, and its number within the revision.
type ChangeId = (u64, usize);

/// The retained changes of one kind.
#[derive(Default)]
pub(super) struct History {
    changes: BTreeMap<ChangeId, Arc<Change>>,
    namespaces: HashMap<Arc<str>, Retained>,
    /// Every namespace with retained changes, by its bytes.
    by_bytes: BTreeSet<(usize, Arc<str>)>,
    bytes: usize,
    /// The newest changes, which keep their lines.
    recent: VecDeque<ChangeId>,
    /// The floor of a namespace that is not in `namespaces`.
    base: u64,
    /// The greatest floor.
    floor: u64,
}

/// The share of one namespace.
#[derive(Default)]
struct Retained {
    places: VecDeque<ChangeId>,
    bytes: usize,
    floor: u64,
}

impl History {
    /// Returns an empty history after `revision`.
    pub(super) fn after(revision: u64) -> Self {
        History { base: revision, floor: revision, ..History::default() }
    }

    /// Returns the revision after which all changes are retained: of one namespace, or of all.
    pub(super) fn floor(&self, namespace: Option<&str>) -> u64 {
        match namespace {
            None => self.floor,
            Some(namespace) => self.namespaces.get(namespace).map_or(self.base, |one| one.floor.max(self.base)),
        }
    }

    /// Returns the changes after `revision`, in order.
    pub(super) fn since(&self, revision: u64) -> impl Iterator<Item = &Arc<Change>> {
        self.changes.range((revision.saturating_add(1), 0)..).map(|(_, change)| change)
    }

    /// Adds a change. Returns the objects that no longer need to be unpacked.
    pub(super) fn push(&mut self, change: Change) -> Vec<Arc<Object>> {
        let newest = self.changes.last_key_value().map(|(place, _)| *place);
        let place = (change.revision, newest.filter(|(last, _)| *last == change.revision).map_or(0, |(_, at)| at + 1));
        let namespace = change.now.namespace().unwrap_or_default();
        let namespace = match self.namespaces.get_key_value(namespace) {
            Some((known, _)) => known.clone(),
            None => namespace.into(),
        };
        self.charge(&namespace, charge(&change), |one| one.places.push_back(place));
        self.changes.insert(place, Arc::new(change));
        self.recent.push_back(place);

        let mut at_rest = Vec::new();
        if self.recent.len() > LINES_KEPT
            && let Some(old) = self.recent.pop_front().and_then(|place| self.changes.get_mut(&place))
        {
            *old = old.without_line();
            at_rest.push(old.now.clone());
        }
        while self.bytes > HISTORY_BYTES_MAX
            && let Some(place) = self.victim()
        {
            at_rest.extend(self.evict(place));
        }
        if self.namespaces.len() > 2 * FLOORS_MAX {
            self.forget_floors();
        }
        at_rest
    }

    /// Returns the change to evict: see the module's documentation.
    fn victim(&self) -> Option<ChangeId> {
        let largest = self.by_bytes.last().filter(|(bytes, _)| *bytes > HISTORY_BYTES_MAX / 4);
        match largest {
            Some((_, namespace)) => self.namespaces.get(namespace)?.places.front().copied(),
            None => self.changes.first_key_value().map(|(place, _)| *place),
        }
    }

    fn evict(&mut self, place: ChangeId) -> Option<Arc<Object>> {
        let change = self.changes.remove(&place)?;
        let namespace: Arc<str> = change.now.namespace().unwrap_or_default().into();
        let freed = charge(&change);
        self.bytes -= freed;
        if let Some(one) = self.namespaces.get_mut(&namespace) {
            self.by_bytes.remove(&(one.bytes, namespace.clone()));
            one.bytes -= freed;
            // Within a namespace the oldest change always goes first.
            one.places.pop_front();
            one.floor = one.floor.max(change.revision);
            if !one.places.is_empty() {
                self.by_bytes.insert((one.bytes, namespace));
            }
        }
        self.floor = self.floor.max(change.revision);
        Some(change.now.clone())
    }

    fn charge(&mut self, namespace: &Arc<str>, bytes: usize, note: impl FnOnce(&mut Retained)) {
        self.bytes += bytes;
        let one = self
            .namespaces
            .entry(namespace.clone())
            .or_insert_with(|| Retained { floor: self.base, ..Retained::default() });
        self.by_bytes.remove(&(one.bytes, namespace.clone()));
        one.bytes += bytes;
        note(one);
        self.by_bytes.insert((one.bytes, namespace.clone()));
    }

    /// Forgets the floors of namespaces without retained changes; the greatest of them becomes the floor of all these.
    fn forget_floors(&mut self) {
        let mut base = self.base;
        self.namespaces.retain(|_, one| {
            if one.places.is_empty() {
                base = base.max(one.floor);
            }
            !one.places.is_empty()
        });
        self.base = base;
    }
}

/// Returns the bytes that a change holds in memory: the object and its line, or the object that it superseded.
fn charge(change: &Change) -> usize {
    let before = change.before.as_ref().map_or(0, |before| before.json_len());
    (change.now.json_len() + before).max(CHARGE_MIN)
}

#[cfg(test)]
impl History {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
