//! The newest objects of every kind in memory, and the latest changes: what lists, watches and rules are served from.
//!
//! One task ([`WatchCache::run`]) reads the whole store at one revision, then follows its single stream of changes. Each
//! kind's [`Shelf`] holds an ordered map of [`Object`]s and a ring of the last changes with the object before and after.
//! A watcher is a [`Cursor`] into that ring and nothing else, so a write costs the same however many watch, and a watcher
//! that is too slow finds its place overwritten and is cut off.
//!
//! Order of things: the store has made a revision durable, then the shelves show it, then [`WatchCache::applied`] reaches
//! it, then the write is answered. So nobody is told of a write that could be lost, and who was told finds it in the next
//! list.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{StreamExt, TryReadyChunksError, TryStreamExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::engine::{Engine, relative};
use super::object::Object;
use super::object::sample::Sampler;
use super::registry::{self, Kind};
use super::trees::Trees;
use crate::store::{Error, Event, EventKind, Key};

/// How many changes a kind's ring keeps: a watcher may be so far behind. At 2,000 writes a second these are two seconds;
/// twice as many would hold twice as many superseded objects in memory, half as many would cut off readers that a busy
/// machine let wait.
const RING_CHANGES_MAX: usize = 4_096;
/// How many of them keep the line that watchers are sent, which is a copy of the object, and have the object's JSON as it is:
/// those that watchers who keep up have yet to take. Who is further behind has the line made anew. Objects that were not
/// written since are at rest and packed.
const LINES_KEPT: usize = 512;
/// How many objects are read from the store at once at start.
const PAGE_OBJECTS: usize = 1_000;
/// How many revisions are shown before those who wait for one of them are told, if so many are there at one time.
const REVISIONS_AT_ONCE: usize = 64;
/// How long to wait before the store is asked again after it failed.
const RETRY: Duration = Duration::from_millis(250);
/// How long a list waits for the cache to show what the store has already.
const CATCH_UP: Duration = Duration::from_millis(500);

/// The cache of all kinds.
pub struct WatchCache {
    shelves: Vec<Arc<Shelf>>,
    /// The revision all shelves show; 0 before the first.
    applied: watch::Sender<u64>,
}

/// The objects of one kind (of one key prefix: two views of events share a shelf).
pub struct Shelf {
    /// The kind as it is stored.
    pub kind: &'static Kind,
    state: RwLock<State>,
    sampler: Sampler,
    /// Trees of some objects, for rules.
    pub trees: Trees,
    /// The number that the next change gets.
    next: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: BTreeSet<ByKey>,
    ring: VecDeque<Arc<Change>>,
    /// Number of the first change in the ring.
    first: u64,
    /// All changes of later revisions are in the ring.
    floor: u64,
    /// The revision of the last change.
    last: u64,
    /// Grows when the ring lost its connection to what was before it.
    epoch: u64,
}

/// One change of one object.
pub struct Change {
    /// The revision that did it.
    pub revision: u64,
    /// The object after it; of a deletion the last content under the deletion's revision.
    pub now: Arc<Object>,
    /// The object before it, if it was there.
    pub before: Option<Arc<Object>>,
    /// Whether it deleted the object.
    pub deleted: bool,
    line: OnceLock<Bytes>,
}

/// The objects of a shelf at a revision.
pub struct Snapshot {
    /// The revision that the objects show.
    pub revision: u64,
    /// The objects, in key order.
    pub objects: Vec<Arc<Object>>,
}

/// A watcher's place in a ring.
pub struct Cursor {
    shelf: Arc<Shelf>,
    next: u64,
    epoch: u64,
    after: u64,
    bell: watch::Receiver<u64>,
}

/// The changes after the place are gone.
#[derive(Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest revision that can be continued from.
    pub oldest: u64,
}

impl WatchCache {
    /// An empty cache with a shelf for each stored kind.
    pub fn new() -> Self {
        let stored = registry::kinds().iter().filter(|kind| kind.view.is_none());
        WatchCache { shelves: stored.map(|kind| Arc::new(Shelf::new(kind))).collect(), applied: watch::Sender::new(0) }
    }

    /// Fills the cache and keeps it up to date until `cancel` fires.
    pub async fn run(&self, store: &dyn Engine, cancel: &CancellationToken) {
        cancel
            .run_until_cancelled(async {
                loop {
                    let Err(error) = self.follow(store).await;
                    tracing::warn!(%error, "the watch cache lost the store and reads it anew");
                    tokio::time::sleep(RETRY).await;
                }
            })
            .await;
    }

    async fn follow(&self, store: &dyn Engine) -> Result<std::convert::Infallible, Error> {
        let start = store.revision().await?;
        for shelf in &self.shelves {
            let prefix = Key(shelf.kind.key_prefix.into());
            let mut objects = BTreeSet::new();
            let mut from = None;
            loop {
                let page = store.list(&prefix, from.as_ref(), Some(start), Some(PAGE_OBJECTS)).await?;
                for item in &page.items {
                    let key = relative(shelf.kind.key_prefix, &item.key);
                    if let Some(object) = understood(shelf.kind, key, &item.value, item.modified.0) {
                        shelf.pack(&object);
                        objects.insert(ByKey(object));
                    }
                }
                from = page.items.last().map(|item| Key(format!("{}\0", item.key.0).into()));
                if !page.more || from.is_none() {
                    break;
                }
            }
            shelf.fill(objects, start.0);
        }
        self.applied.send_replace(start.0);
        // What one commit of the store made durable comes at one time, and whoever waits is woken once for all of it.
        let mut stream = store.watch(&Key("/".into()), start).try_ready_chunks(REVISIONS_AT_ONCE);
        while let Some(revisions) = stream.next().await {
            match revisions {
                Ok(revisions) => self.apply(&revisions),
                Err(TryReadyChunksError(before, error)) => {
                    self.apply(&before);
                    return Err(error);
                }
            }
        }
        Err(Error::Unavailable)
    }

    /// Shows whole revisions, and then tells those who wait for one of them.
    fn apply(&self, revisions: &[Vec<Event>]) {
        for events in revisions {
            for shelf in &self.shelves {
                let ours = |event: &&Event| event.now.key.0.starts_with(shelf.kind.key_prefix);
                let mut ours = events.iter().filter(ours).peekable();
                if ours.peek().is_some() {
                    shelf.apply(ours);
                }
            }
        }
        if let Some(event) = revisions.iter().rev().find_map(|events| events.last()) {
            self.applied.send_replace(event.at.0);
        }
    }

    /// The shelf of a kind.
    pub fn shelf(&self, kind: &Kind) -> &Arc<Shelf> {
        let same = |shelf: &&Arc<Shelf>| shelf.kind.key_prefix == kind.key_prefix;
        self.shelves.iter().find(same).expect("every kind, and every view's stored kind, has a shelf")
    }

    /// All shelves.
    pub fn shelves(&self) -> &[Arc<Shelf>] {
        &self.shelves
    }

    /// The revision that the cache shows; 0 before it is filled.
    pub fn applied(&self) -> u64 {
        *self.applied.borrow()
    }

    /// Waits until the cache shows `revision`, at most `timeout`; whether it does.
    pub async fn reaches(&self, revision: u64, timeout: Duration) -> bool {
        if self.applied() >= revision {
            return true;
        }
        let mut applied = self.applied.subscribe();
        tokio::time::timeout(timeout, applied.wait_for(|applied| *applied >= revision)).await.is_ok()
    }

    /// Waits until the cache shows the store's newest revision; whether it does.
    pub async fn is_current(&self, store: &dyn Engine) -> Result<bool, Error> {
        let newest = store.revision().await?;
        Ok(self.reaches(newest.0, CATCH_UP).await)
    }

    /// The objects of a kind whose keys start with `prefix` (empty, or a namespace and `/`).
    pub fn snapshot(&self, kind: &Kind, prefix: &str) -> Snapshot {
        // Read before the shelf: all up to it is shown there, so the later of the two is what the objects show.
        let applied = self.applied();
        let state = self.shelf(kind).read();
        Snapshot { revision: applied.max(state.last), objects: state.range(prefix).cloned().collect() }
    }

    /// As [`Self::snapshot`], but at most `limit` objects, of those that `wanted` takes; and how many follow. With `wanted`
    /// that is only whether any follow.
    pub fn page(
        &self,
        kind: &Kind,
        prefix: &str,
        limit: usize,
        wanted: Option<&dyn Fn(&Object) -> bool>,
    ) -> (Snapshot, usize) {
        let applied = self.applied();
        let state = self.shelf(kind).read();
        let revision = applied.max(state.last);
        let mut range = state.range(prefix);
        match wanted {
            None => {
                let objects = range.by_ref().take(limit).cloned().collect();
                (Snapshot { revision, objects }, range.count())
            }
            Some(wanted) => {
                let mut matching = range.filter(|object| wanted(object));
                let objects = matching.by_ref().take(limit).cloned().collect();
                let more = usize::from(matching.next().is_some());
                (Snapshot { revision, objects }, more)
            }
        }
    }

    /// The objects as [`Self::snapshot`], and a cursor at the changes after it.
    pub fn snapshot_and_follow(&self, kind: &Kind, prefix: &str) -> (Snapshot, Cursor) {
        let applied = self.applied();
        let shelf = self.shelf(kind);
        let state = shelf.read();
        let snapshot = Snapshot { revision: applied.max(state.last), objects: state.range(prefix).cloned().collect() };
        let cursor = shelf.cursor(&state, state.first + state.ring.len() as u64, snapshot.revision);
        (snapshot, cursor)
    }

    /// A cursor at the changes after `revision`.
    pub fn follow_from(&self, kind: &Kind, revision: u64) -> Result<Cursor, TooOld> {
        let shelf = self.shelf(kind);
        let state = shelf.read();
        if revision < state.floor {
            return Err(TooOld { oldest: state.floor });
        }
        let skipped = state.ring.partition_point(|change| change.revision <= revision);
        Ok(shelf.cursor(&state, state.first + skipped as u64, revision))
    }
}

impl Default for WatchCache {
    fn default() -> Self {
        Self::new()
    }
}

impl Shelf {
    fn new(kind: &'static Kind) -> Self {
        Shelf {
            kind,
            state: RwLock::default(),
            sampler: Sampler::default(),
            trees: Trees::default(),
            next: watch::Sender::new(0),
        }
    }

    /// The object with that key (`namespace/name` or `name`).
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.read().objects.get(key).map(|found| found.0.clone())
    }

    /// Whether there is any object whose key starts with `prefix`.
    pub fn has_any(&self, prefix: &str) -> bool {
        self.read().range(prefix).next().is_some()
    }

    fn cursor(self: &Arc<Self>, state: &State, next: u64, after: u64) -> Cursor {
        Cursor { shelf: self.clone(), next, epoch: state.epoch, after, bell: self.next.subscribe() }
    }

    fn fill(&self, objects: BTreeSet<ByKey>, revision: u64) {
        let mut state = self.write();
        let first = state.first + state.ring.len() as u64;
        let epoch = state.epoch + 1;
        *state = State { objects, ring: VecDeque::new(), first, floor: revision, last: 0, epoch };
        drop(state);
        self.next.send_modify(|_| ());
    }

    /// Shows what one revision did to this kind, all of it at once: readers see the revision whole or not at all.
    fn apply<'a>(&self, events: impl Iterator<Item = &'a Event>) {
        let understood: Vec<_> = events
            .filter_map(|event| {
                let key = relative(self.kind.key_prefix, &event.now.key);
                Some((event, understood(self.kind, key, &event.now.value, event.at.0)?))
            })
            .collect();
        let mut at_rest = Vec::with_capacity(understood.len());
        let mut state = self.write();
        for (event, now) in understood {
            at_rest.extend(state.push(event.at.0, now, event.kind == EventKind::Delete));
        }
        let next = state.first + state.ring.len() as u64;
        drop(state);
        self.next.send_replace(next);
        at_rest.iter().for_each(|object| self.pack(object));
    }

    /// For an object that nothing has changed for a while: many of them must be small.
    fn pack(&self, object: &Object) {
        object.pack(&self.sampler.sample(|| object.json()));
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        // Each change leaves the state whole, so a panic elsewhere is no reason to stop.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Shows one change; gives the object that an earlier one has left at rest.
    fn push(&mut self, revision: u64, now: Arc<Object>, deleted: bool) -> Option<Arc<Object>> {
        let before = match deleted {
            true => self.objects.take(now.key()),
            false => self.objects.replace(ByKey(now.clone())),
        };
        let before = before.map(|found| found.0);
        self.ring.push_back(Arc::new(Change { revision, now, before, deleted, line: OnceLock::new() }));
        self.last = revision;
        let old = self.ring.len().checked_sub(LINES_KEPT + 1).and_then(|index| self.ring.get_mut(index));
        let at_rest = old.map(|old| {
            *old = old.without_line();
            old.now.clone()
        });
        if self.ring.len() > RING_CHANGES_MAX
            && let Some(dropped) = self.ring.pop_front()
        {
            self.first += 1;
            self.floor = dropped.revision;
        }
        at_rest
    }

    fn range<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.objects
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|found| &found.0)
            .take_while(move |object| object.key().starts_with(prefix))
    }
}

/// An object in the place of its key.
struct ByKey(Arc<Object>);

impl Borrow<str> for ByKey {
    fn borrow(&self) -> &str {
        self.0.key()
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.key().cmp(other.0.key())
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key() == other.0.key()
    }
}

impl Eq for ByKey {}

impl Cursor {
    /// The next changes, at most `max` and the rest of the last one's revision, none if there are none yet. `TooOld`: they were overwritten.
    pub fn take(&mut self, max: usize) -> Result<Vec<Arc<Change>>, TooOld> {
        self.bell.mark_unchanged();
        let state = self.shelf.read();
        if self.next < state.first || self.epoch != state.epoch {
            return Err(TooOld { oldest: state.floor });
        }
        let skip = usize::try_from(self.next - state.first).unwrap_or(usize::MAX).min(state.ring.len());
        let mut last = 0;
        let within = |(index, change): &(usize, &Arc<Change>)| {
            // Who goes on from a revision goes on after all of it, so none is told in part.
            let goes_on = *index < max || change.revision == last;
            last = change.revision;
            goes_on
        };
        let taken: Vec<_> =
            state.ring.range(skip..).enumerate().take_while(within).map(|(_, change)| change.clone()).collect();
        self.next += taken.len() as u64;
        let after = self.after;
        // A watch from a revision that has not happened yet passes over what comes before it.
        Ok(taken.into_iter().filter(|change| change.revision > after).collect())
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) {
        if self.bell.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Change {
    /// A change as the store tells it, for watches that begin before the ring.
    pub fn from_event(kind: &Kind, event: &Event) -> Option<Change> {
        let key = relative(kind.key_prefix, &event.now.key);
        let before = event.before.as_ref();
        Some(Change {
            revision: event.at.0,
            now: understood(kind, key, &event.now.value, event.at.0)?,
            before: before.and_then(|before| understood(kind, key, &before.value, before.modified.0)),
            deleted: event.kind == EventKind::Delete,
            line: OnceLock::new(),
        })
    }

    /// `ADDED`, `MODIFIED` or `DELETED`, for those who watch without a selector.
    pub fn event_type(&self) -> &'static str {
        match (self.deleted, &self.before) {
            (true, _) => "DELETED",
            (false, None) => "ADDED",
            (false, Some(_)) => "MODIFIED",
        }
    }

    /// The same change; its line is made anew when it is asked for.
    fn without_line(&self) -> Arc<Change> {
        let Change { revision, now, before, deleted, line: _ } = self;
        let (now, before) = (now.clone(), before.clone());
        Arc::new(Change { revision: *revision, now, before, deleted: *deleted, line: OnceLock::new() })
    }

    /// The line of a watch without a selector: made once, for all watchers who keep up.
    pub fn line(&self) -> Bytes {
        self.line.get_or_init(|| event_line(self.event_type(), &self.now.json())).clone()
    }
}

/// `{"type":…,"object":…}` and a newline.
pub fn event_line(event_type: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + event_type.len() + 24);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(event_type.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into_boxed_slice().into()
}

/// An object of the store. What cannot be understood is logged and left out: one bad value must not hide all others.
fn understood(kind: &Kind, key: &str, value: &[u8], revision: u64) -> Option<Arc<Object>> {
    match Object::from_stored(kind, key, value, revision) {
        Ok(object) => Some(Arc::new(object)),
        Err(error) => {
            tracing::error!(%error, "left out of the watch cache");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apiserver::object::encode;
    use crate::store::{KeyValue, Revision};

    fn zones() -> &'static Kind {
        registry::find_kind("Zone").expect("a kind")
    }

    /// What a revision does that writes these zones.
    fn revision(at: u64, names: impl Iterator<Item = String>) -> Vec<Event> {
        let kind = zones();
        let put = |name: String| {
            let object = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": {"name": &name}});
            let key = Key(format!("{}{name}", kind.key_prefix).into());
            let now = KeyValue { key, value: encode(&object).into(), created: Revision(1), modified: Revision(at) };
            Event { at: Revision(at), kind: EventKind::Put, now, before: None }
        };
        names.map(put).collect()
    }

    #[test]
    fn a_revision_is_seen_whole_or_not_at_all() {
        const OBJECTS: usize = 300;
        const REVISIONS: u64 = 200;
        let cache = WatchCache::new();
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while cache.applied() < REVISIONS {
                    let (snapshot, mut cursor) = cache.snapshot_and_follow(zones(), "");
                    let shown = snapshot.objects.iter().filter(|object| object.revision == snapshot.revision).count();
                    assert!(snapshot.revision == 0 || shown == OBJECTS, "{shown} of revision {}", snapshot.revision);
                    // What comes after it are whole revisions, too.
                    let next = cursor.take(1).unwrap_or_default();
                    assert!(next.is_empty() || next.len().is_multiple_of(OBJECTS), "{}", next.len());
                    seen += 1;
                }
                seen
            });
            for at in 1..=REVISIONS {
                cache.apply(&[revision(at, (0..OBJECTS).map(|index| format!("zone-{index}")))]);
            }
            reader.join().expect("sees whole revisions")
        });
        assert!(seen > 0);
    }

    #[test]
    fn a_piece_ends_with_a_revision() {
        let cache = WatchCache::new();
        let (_, mut cursor) = cache.snapshot_and_follow(zones(), "");
        for at in 1..=3 {
            cache.apply(&[revision(at, (0..3).map(|index| format!("zone-{index}")))]);
        }
        let mut pieces =
            |max| cursor.take(max).map(|changes| changes.iter().map(|one| one.revision).collect::<Vec<_>>());
        assert_eq!(pieces(1), Ok(vec![1, 1, 1]));
        assert_eq!(pieces(4), Ok(vec![2, 2, 2, 3, 3, 3]));
        assert_eq!(pieces(4), Ok(vec![]));
    }

    #[test]
    fn lines_are_kept_for_those_who_keep_up() {
        let cache = WatchCache::new();
        let (_, mut late) = cache.snapshot_and_follow(zones(), "");
        let (_, mut prompt) = cache.snapshot_and_follow(zones(), "");
        let mut lines = Vec::new();
        for at in 1..=3 * LINES_KEPT as u64 {
            cache.apply(&[revision(at, std::iter::once("zone".to_owned()))]);
            lines.extend(prompt.take(10).expect("keeps up").iter().map(|change| change.line()));
        }
        let with_line = |cache: &WatchCache| {
            cache.shelf(zones()).read().ring.iter().filter(|change| change.line.get().is_some()).count()
        };
        assert_eq!(with_line(&cache), LINES_KEPT);
        let told: Vec<_> = late.take(usize::MAX).expect("in the ring").iter().map(|change| change.line()).collect();
        assert_eq!(told, lines, "made anew, the same");
    }

    #[test]
    fn objects_at_rest_are_packed_and_told_as_they_were() {
        const OBJECTS: usize = 3 * LINES_KEPT;
        let cache = WatchCache::new();
        cache.apply(&[revision(1, (0..OBJECTS).map(|index| format!("zone-{index:04}")))]);
        let packed = |cache: &WatchCache| {
            let snapshot = cache.snapshot(zones(), "");
            for (index, object) in snapshot.objects.iter().enumerate() {
                let metadata =
                    json!({"name": format!("zone-{index:04}"), "resourceVersion": object.revision.to_string()});
                assert_eq!(object.tree()["metadata"], metadata);
            }
            snapshot.objects.iter().filter(|object| object.is_packed()).count()
        };
        assert_eq!(packed(&cache), OBJECTS - LINES_KEPT);
        // Who is written again is no longer at rest; who was written before it is.
        cache.apply(&[revision(2, std::iter::once("zone-0000".to_owned()))]);
        assert_eq!(packed(&cache), OBJECTS - LINES_KEPT);
        assert!(!cache.shelf(zones()).get("zone-0000").expect("there").is_packed());
    }
}
