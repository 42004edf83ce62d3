//! The current objects of every kind in memory, and the most recent changes: the source of lists, watches, and rules.
//!
//! One task ([`WatchCache::run`]) reads the whole store at one revision, then follows its single stream of changes. Each kind's
//! [`KindCache`] holds an ordered map of [`Object`]s and a `History` of the last changes, with the object before and after. A
//! watcher is only a [`Cursor`] into that history. A write therefore costs the same for any number of watchers, and a watcher
//! that is too slow finds its changes evicted and is disconnected.
//!
//! The order of a write: the store makes a revision durable, the cache applies it, [`WatchCache::applied`] reaches it, and the
//! server answers the write. A client therefore never sees a write that can be lost, and a client that saw a write finds it in
//! its next list.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{StreamExt, TryReadyChunksError, TryStreamExt};
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::history::History;
use self::usage::Usage;
use super::damaged::{DamageMarks, DamagedKey};
use super::kind::Kind;
use super::object::Object;
use super::object::sample::DictionaryPool;
use super::registry::kinds::Kinds;
use super::trees::DecodedObjects;
use crate::store::{Damaged, Error, Event, EventKind, Key, Store};

mod history;
pub mod usage;

/// The number of changes of a kind that keep their line for watchers, which is a copy of the object, and the object's
/// uncompressed JSON: those that watchers without delay have not read yet. For a slower watcher, the line is created again. Older
/// objects are at rest and compressed.
const LINES_KEPT: usize = 512;
/// The number of objects per read from the store at the start.
const PAGE_OBJECTS: usize = 1_000;
/// The maximum number of revisions to apply before waiters are notified.
const REVISIONS_AT_ONCE: usize = 64;
/// The time until the store is queried again after a failure.
const RETRY: Duration = Duration::from_millis(250);
/// The maximum wait of a write for the cache. After it, the write is answered anyway, because it is durable.
pub const SHOWN_WAIT: Duration = Duration::from_secs(5);
/// The maximum wait of a list for the cache to reach the store's current revision.
const CATCH_UP: Duration = Duration::from_millis(500);

/// The cache of all kinds.
pub struct WatchCache {
    kind_caches: Vec<Arc<KindCache>>,
    /// The revision all kind caches show; 0 before the first.
    applied: watch::Sender<u64>,
}

/// The objects of one kind (of one key prefix: two views of events share a kind cache).
pub struct KindCache {
    /// The kind in its stored representation.
    pub kind: &'static Kind,
    damage_marks: DamageMarks,
    state: RwLock<State>,
    sampler: DictionaryPool,
    /// Trees of some objects, for rules.
    pub trees: DecodedObjects,
    /// The usage of each namespace, for a kind with a quota.
    pub usage: Option<Arc<Usage>>,
    /// The revision of the last change.
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    objects: BTreeSet<ByKey>,
    /// The unreadable objects, with the revisions that wrote them.
    damaged: BTreeMap<Box<str>, u64>,
    history: History,
    /// The revision of the last change, or of the initial read.
    last: u64,
    /// The number of times that the store went back: revisions of different numbers are not comparable.
    lives: u64,
}

/// One change of one object.
pub struct Change {
    /// The revision that did it.
    pub revision: u64,
    /// The object after the change; for a deletion, the last content with the deletion's revision.
    pub now: Arc<Object>,
    /// The object before the change, if it existed.
    pub before: Option<Arc<Object>>,
    /// Whether it deleted the object.
    pub deleted: bool,
    line: OnceLock<Bytes>,
}

/// The objects of a kind cache at a revision.
pub struct Snapshot {
    /// The revision that the objects show.
    pub revision: u64,
    /// The objects, in key order.
    pub objects: Vec<Arc<Object>>,
    /// The additional unreadable objects.
    pub damaged: Vec<DamagedKey>,
}

/// The position of a watcher in the history of a kind.
pub struct Cursor {
    kind_cache: Arc<KindCache>,
    /// The namespace that is watched; `None` for all of them.
    namespace: Option<Box<str>>,
    /// The revision up to which all changes were taken, and the number of times that the store had gone back then.
    after: u64,
    lives: u64,
    bell: watch::Receiver<u64>,
}

/// The changes after the position were evicted.
#[derive(Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest revision that can be continued from.
    pub oldest: u64,
}

impl WatchCache {
    /// Returns an empty cache with a kind cache for each stored kind.
    pub fn new(kinds: &Kinds) -> Self {
        let stored = kinds.iter().filter(|kind| kind.view.is_none());
        let kind_caches = stored.map(|kind| Arc::new(KindCache::new(kind, kinds)));
        WatchCache { kind_caches: kind_caches.collect(), applied: watch::Sender::new(0) }
    }

    /// Fills the cache and keeps it up to date until `cancel` fires.
    pub async fn run(&self, store: &dyn Store, cancel: &CancellationToken) {
        cancel
            .run_until_cancelled(async {
                let mut went_back = false;
                loop {
                    let Err(error) = self.follow(store, &mut went_back).await;
                    tracing::warn!(%error, "the watch cache lost its watch of the store; relisting");
                    went_back |= matches!(error, Error::WentBack { .. });
                    tokio::time::sleep(RETRY).await;
                }
            })
            .await;
    }

    async fn follow(&self, store: &dyn Store, went_back: &mut bool) -> Result<std::convert::Infallible, Error> {
        let start = store.revision().await?;
        *went_back |= start.0 < self.applied();
        for kind_cache in &self.kind_caches {
            let prefix = Key(kind_cache.kind.key_prefix.into());
            let (mut objects, mut lost) = (BTreeSet::new(), Vec::new());
            let mut from = None;
            loop {
                let page = store.list(&prefix, from.as_ref(), Some(start), Some(PAGE_OBJECTS)).await?;
                for item in &page.items {
                    let key = item.key.relative(kind_cache.kind.key_prefix);
                    match understood(kind_cache.kind, key, &item.value, item.modified.0) {
                        Some(object) => {
                            kind_cache.pack(&object);
                            objects.insert(ByKey(object));
                        }
                        // A valid value that is not an object: damaged before it had a checksum.
                        None => lost.push(Damaged { key: item.key.clone(), modified: item.modified }),
                    }
                }
                lost.extend(page.damaged);
                from = page.items.last().map(|item| Key(format!("{}\0", item.key.0).into()));
                if !page.more || from.is_none() {
                    break;
                }
            }
            lost.iter().for_each(|damaged| store.damage().note(damaged));
            kind_cache.fill(objects, lost, start.0, *went_back);
        }
        *went_back = false;
        self.applied.send_replace(start.0);
        // All events of one commit arrive together, and waiters are woken once for all of them.
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

    /// Applies whole revisions, and then notifies the waiters.
    fn apply(&self, revisions: &[Vec<Event>]) {
        for events in revisions {
            for kind_cache in &self.kind_caches {
                let ours = |event: &&Event| event.now.key.0.starts_with(kind_cache.kind.key_prefix);
                let mut ours = events.iter().filter(ours).peekable();
                if ours.peek().is_some() {
                    kind_cache.apply(ours);
                }
            }
        }
        if let Some(event) = revisions.iter().rev().find_map(|events| events.last()) {
            self.applied.send_replace(event.at.0);
        }
    }

    /// Returns the kind cache of a kind.
    pub fn kind_cache(&self, kind: &Kind) -> &Arc<KindCache> {
        let same = |kind_cache: &&Arc<KindCache>| kind_cache.kind.key_prefix == kind.key_prefix;
        self.kind_caches.iter().find(same).expect("every kind, and every view's stored kind, has a shelf")
    }

    /// Returns all kind caches.
    pub fn kind_caches(&self) -> &[Arc<KindCache>] {
        &self.kind_caches
    }

    /// Returns the revision that the cache shows; 0 before it is filled.
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

    /// Waits until the cache shows the store's newest revision; whether it does. It does not while it shows what was in a store
    /// that has gone back since.
    pub async fn is_current(&self, store: &dyn Store) -> Result<bool, Error> {
        let shown = self.applied();
        let newest = store.revision().await?;
        Ok(newest.0 >= shown && self.reaches(newest.0, CATCH_UP).await)
    }

    /// Returns the objects of a kind whose keys start with `prefix` (empty, or a namespace and `/`).
    pub fn snapshot(&self, kind: &Kind, prefix: &str) -> Snapshot {
        // Read before the kind cache, which contains all revisions up to it; the later of the two applies.
        let applied = self.applied();
        self.kind_cache(kind).state.read().snapshot(prefix, applied)
    }

    /// Returns a snapshot like [`Self::snapshot`], but at most `limit` objects, of those that `wanted` selects, and the number of
    /// objects that follow. With `wanted`, the number is only zero or nonzero.
    pub fn page(
        &self,
        kind: &Kind,
        prefix: &str,
        limit: usize,
        wanted: Option<&dyn Fn(&Object) -> bool>,
    ) -> (Snapshot, usize) {
        let Some(wanted) = wanted else {
            let applied = self.applied();
            let state = self.kind_cache(kind).state.read();
            let mut range = state.range(prefix);
            let objects = range.by_ref().take(limit).cloned().collect();
            let (revision, damaged) = (applied.max(state.last), state.damaged(prefix));
            return (Snapshot { revision, objects, damaged }, range.count());
        };
        // A client can make `wanted` expensive: it is not evaluated while a write waits for the lock.
        let Snapshot { revision, objects, damaged } = self.snapshot(kind, prefix);
        let mut matching = objects.into_iter().filter(|object| wanted(object));
        let objects = matching.by_ref().take(limit).collect();
        let more = usize::from(matching.next().is_some());
        (Snapshot { revision, objects, damaged }, more)
    }

    /// Returns at most `limit` objects after the key `after` at `revision`, and whether more follow. `None` if the kind has
    /// changed since, or if the cache has not reached that revision: then the store's history has them.
    pub fn page_after(
        &self,
        kind: &Kind,
        prefix: &str,
        after: &str,
        limit: usize,
        revision: u64,
    ) -> Option<(Vec<Arc<Object>>, bool)> {
        let applied = self.applied();
        let state = self.kind_cache(kind).state.read();
        if state.last > revision || applied.max(state.last) < revision {
            return None;
        }
        let mut range = state.range_from(Bound::Excluded(after), prefix);
        let objects = range.by_ref().take(limit).cloned().collect();
        Some((objects, range.next().is_some()))
    }

    /// Returns the objects as [`Self::snapshot`], and a cursor at the changes after it.
    pub fn snapshot_and_follow(&self, kind: &Kind, prefix: &str) -> (Snapshot, Cursor) {
        let applied = self.applied();
        let kind_cache = self.kind_cache(kind);
        let state = kind_cache.state.read();
        let snapshot = state.snapshot(prefix, applied);
        let cursor = kind_cache.cursor(&state, prefix, snapshot.revision);
        drop(state);
        (snapshot, cursor)
    }

    /// Returns a cursor at the changes after `revision` of objects whose keys start with `prefix`. It may give more than these:
    /// all of the namespace, or of all namespaces if the prefix names none.
    pub fn follow_from(&self, kind: &Kind, prefix: &str, revision: u64) -> Result<Cursor, TooOld> {
        let kind_cache = self.kind_cache(kind);
        let state = kind_cache.state.read();
        let cursor = kind_cache.cursor(&state, prefix, revision);
        let oldest = state.history.floor(cursor.namespace.as_deref());
        if revision < oldest { Err(TooOld { oldest }) } else { Ok(cursor) }
    }
}

impl KindCache {
    fn new(kind: &'static Kind, kinds: &Kinds) -> Self {
        KindCache {
            kind,
            damage_marks: kinds.damage_marks(),
            state: RwLock::default(),
            sampler: DictionaryPool::default(),
            trees: DecodedObjects::default(),
            usage: kinds.quota(kind).map(|quota| Usage::new(quota.account)),
            last: watch::Sender::new(0),
        }
    }

    /// Returns the object with that key (`namespace/name` or `name`).
    pub fn get(&self, key: &str) -> Option<Arc<Object>> {
        self.state.read().objects.get(key).map(|found| found.0.clone())
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there is an object with that key, even if it cannot be read.
    pub fn exists(&self, key: &str) -> bool {
        let state = self.state.read();
        state.objects.contains(key) || state.damaged.contains_key(key)
    }

    /// Made while the state is locked, so that no change passes unnoticed.
    fn cursor(self: &Arc<Self>, state: &State, prefix: &str, after: u64) -> Cursor {
        let namespace = prefix.split_once('/').map(|(namespace, _)| namespace.into());
        Cursor { kind_cache: self.clone(), namespace, after, lives: state.lives, bell: self.last.subscribe() }
    }

    fn fill(&self, mut objects: BTreeSet<ByKey>, lost: Vec<Damaged>, revision: u64, went_back: bool) {
        let mut damaged = BTreeMap::new();
        for Damaged { key, modified } in lost {
            let key = key.relative(self.kind.key_prefix);
            // The value that was read before the damage is still correct.
            match self.get(key).filter(|known| known.revision == modified.0) {
                Some(known) => drop(objects.insert(ByKey(known))),
                None => drop(damaged.insert(key.into(), modified.0)),
            }
        }
        let mut state = self.state.write();
        if let Some(usage) = &self.usage {
            usage.fill(objects.iter().map(|object| &*object.0));
        }
        let lives = state.lives + u64::from(went_back);
        // The other kinds may still show an earlier revision: what is listed now is of this one.
        *state = State { objects, damaged, history: History::after(revision), last: revision, lives };
        drop(state);
        self.last.send_modify(|_| ());
    }

    /// Applies all changes of one revision to this kind in one step: readers see all of them or none.
    fn apply<'a>(&self, events: impl Iterator<Item = &'a Event>) {
        let understood: Vec<_> = events
            .filter_map(|event| {
                let key = event.now.key.relative(self.kind.key_prefix);
                Some((event, self.shown(key, event)?))
            })
            .collect();
        let mut at_rest = Vec::with_capacity(understood.len());
        let mut state = self.state.write();
        for (event, now) in understood {
            let deleted = event.kind == EventKind::Delete;
            if let Some(usage) = &self.usage {
                usage.show(&now, state.objects.get(now.key()).map(|before| &*before.0), deleted);
            }
            at_rest.extend(state.push(event.at.0, now, deleted));
        }
        let last = state.last;
        drop(state);
        self.last.send_replace(last);
        at_rest.iter().for_each(|object| self.pack(object));
    }

    /// Returns the object of an event. The deletion of an unreadable object has no value: the result is the known object, or a
    /// placeholder.
    fn shown(&self, key: &str, event: &Event) -> Option<Arc<Object>> {
        if event.kind == EventKind::Delete && event.now.value.is_empty() {
            let known = self.get(key).map(|known| Arc::new(known.at(event.at.0)));
            return known.or_else(|| self.damage_marks.placeholder(self.kind, &(key.into(), event.at.0), false));
        }
        understood(self.kind, key, &event.now.value, event.at.0)
    }

    /// Compresses an object that has not changed for a while: there can be many.
    fn pack(&self, object: &Object) {
        object.pack(&self.sampler.sample(|| object.json()));
    }
}

impl State {
    /// Shows one change; gives the objects that earlier ones have left at rest.
    fn push(&mut self, revision: u64, now: Arc<Object>, deleted: bool) -> Vec<Arc<Object>> {
        let before = match deleted {
            true => self.objects.take(now.key()),
            false => self.objects.replace(ByKey(now.clone())),
        };
        let before = before.map(|found| found.0);
        self.damaged.remove(now.key());
        self.last = revision;
        self.history.push(Change { revision, now, before, deleted, line: OnceLock::new() })
    }

    fn snapshot(&self, prefix: &str, applied: u64) -> Snapshot {
        let objects = self.range(prefix).cloned().collect();
        Snapshot { revision: applied.max(self.last), objects, damaged: self.damaged(prefix) }
    }

    fn damaged(&self, prefix: &str) -> Vec<DamagedKey> {
        // Nearly always there is none.
        let ours = self.damaged.iter().filter(|(key, _)| key.starts_with(prefix));
        ours.map(|(key, modified)| (key.clone(), *modified)).collect()
    }

    fn range<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.range_from(Bound::Included(prefix), prefix)
    }

    fn range_from<'a>(&'a self, start: Bound<&'a str>, prefix: &'a str) -> impl Iterator<Item = &'a Arc<Object>> {
        self.objects
            .range::<str, _>((start, Bound::Unbounded))
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
    /// Returns the next changes, at most `max` and the rest of the last one's revision, none if there are none yet. `TooOld`:
    /// some of them were evicted.
    pub fn take(&mut self, max: usize) -> Result<Vec<Arc<Change>>, TooOld> {
        self.bell.mark_unchanged();
        let state = self.kind_cache.state.read();
        let namespace = self.namespace.as_deref();
        let oldest = state.history.floor(namespace);
        if self.after < oldest || self.lives != state.lives {
            return Err(TooOld { oldest });
        }
        let mut taken: Vec<Arc<Change>> = Vec::new();
        let mut reached = state.last;
        for change in state.history.since(self.after) {
            if namespace.is_some() && change.now.namespace() != namespace {
                continue;
            }
            // A cursor resumes after a whole revision, so no revision is delivered in part.
            if let Some(last) = taken.last()
                && taken.len() >= max
                && last.revision != change.revision
            {
                reached = last.revision;
                break;
            }
            taken.push(change.clone());
        }
        self.after = self.after.max(reached);
        Ok(taken)
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) {
        if self.bell.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Change {
    /// Returns the change of an event of the store, for watches that begin before the ring.
    pub fn from_event(kind_cache: &KindCache, event: &Event) -> Option<Change> {
        let kind = kind_cache.kind;
        let key = event.now.key.relative(kind.key_prefix);
        let before = event.before.as_ref();
        let is_unread = event.kind == EventKind::Delete && event.now.value.is_empty();
        Some(Change {
            revision: event.at.0,
            now: match is_unread {
                true => kind_cache.damage_marks.placeholder(kind, &(key.into(), event.at.0), false)?,
                false => understood(kind, key, &event.now.value, event.at.0)?,
            },
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

    /// Returns the same change; its line is created again on demand.
    fn without_line(&self) -> Arc<Change> {
        let Change { revision, now, before, deleted, line: _ } = self;
        let (now, before) = (now.clone(), before.clone());
        Arc::new(Change { revision: *revision, now, before, deleted: *deleted, line: OnceLock::new() })
    }

    /// Returns the line of a watch without a selector: made once, for all watchers who keep up.
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

/// Returns an object of the store; `None` if the value is none.
fn understood(kind: &Kind, key: &str, value: &[u8], revision: u64) -> Option<Arc<Object>> {
    if let Err(error) = std::str::from_utf8(value) {
        tracing::error!(key = %format_args!("{}{key}", kind.key_prefix), %error, "a stored value is not text");
        return None;
    }
    match Object::from_stored(kind, key, value, revision) {
        Ok(object) => Some(Arc::new(object)),
        Err(error) => {
            tracing::error!(%error, "a stored value is not an object");
            None
        }
    }
}

#[cfg(test)]
mod tests;
