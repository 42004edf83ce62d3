//! The engine that keeps everything in memory: for tests, and for a platform that is rebuilt from manifests at each start.
//!
//! It has one mutex over ordered maps; a commit happens inside the caller's own call. It behaves exactly like the embedded
//! engine, and it is also the simplest definition of the trait's semantics.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::feed::{self, Committed, Feed, History, TAKE_REVISIONS_MAX};
use super::{
    EXPIRING_MAX, Error, Event, EventKind, HISTORY_REVISIONS_MIN, Key, KeyValue, Outcome, Page, Precondition, Result,
    Revision, Store, Txn, Write,
};

/// The maximum interval of checks for expired keys; a clock change is noticed within this time.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A handle to a store in memory. Clones share it; the last one drops it.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified of a new deadline, and by `Drop`, so that the sweeper need not wait until its next interval.
    deadline_changed: Arc<Condvar>,
    feed: Feed,
}

#[derive(Default)]
struct State {
    revision: u64,
    compacted: u64,
    /// All kept versions of all keys, oldest first.
    keys: BTreeMap<Key, Vec<Version>>,
    /// The keys that each kept revision changed, with the revisions that had written them before (0 = absent).
    log: BTreeMap<u64, Vec<(Key, u64)>>,
    /// The deadlines of the versions of keys.
    deadlines: BTreeSet<(SystemTime, Key, u64)>,
    sweeping: bool,
}

struct Version {
    created: u64,
    modified: u64,
    /// `None` is a deletion.
    value: Option<Bytes>,
}

impl Memory {
    /// Returns an empty store.
    pub fn new() -> Self {
        let state = State { revision: 1, compacted: 1, ..State::default() };
        Memory {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                deadline_changed: Arc::default(),
                feed: Feed::new(Revision(1)),
            }),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new()
    }
}

#[async_trait]
impl Store for Memory {
    async fn revision(&self) -> Result<Revision> {
        Ok(Revision(self.shared.lock().revision))
    }

    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        let state = self.shared.lock();
        let at = readable(at, state.revision, state.compacted)?;
        Ok((Revision(at), state.get(key, at)))
    }

    async fn list(&self, prefix: &Key, from: Option<&Key>, at: Option<Revision>, limit: Option<usize>) -> Result<Page> {
        let state = self.shared.lock();
        let at = readable(at, state.revision, state.compacted)?;
        let start = from.unwrap_or(prefix).max(prefix);
        let limit = limit.unwrap_or(usize::MAX);
        let mut items = Vec::new();
        let mut remaining = 0;
        for (key, versions) in state.keys.range((Bound::Included(start), Bound::Unbounded)) {
            if !key.0.starts_with(&*prefix.0) {
                break;
            }
            match value_at(key, versions, at) {
                Some(item) if items.len() < limit => items.push(item),
                Some(_) => remaining += 1,
                None => {}
            }
        }
        Ok(Page { at: Revision(at), items, damaged: Vec::new(), more: remaining > 0, remaining: Some(remaining) })
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.check()?;
        let mut state = self.shared.lock();
        let outcome = state.apply(txn, SystemTime::now());
        if let Applied::Committed(revision, events) = outcome {
            // Under the lock, so that watchers receive revisions in order.
            self.shared.feed.publish(vec![(Revision(revision), events)]);
            self.shared.start_sweeping(&mut state);
            state.trim();
            return Ok(Outcome::Committed(Revision(revision)));
        }
        match outcome {
            Applied::Refused(found) => Ok(Outcome::Refused { at: Revision(state.revision), found }),
            _ => Ok(Outcome::Committed(Revision(state.revision))),
        }
    }

    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>> {
        feed::watch(&self.shared, prefix, after).boxed()
    }

    async fn compact(&self, upto: Revision) -> Result<()> {
        let mut state = self.shared.lock();
        if upto.0 > state.revision {
            return Err(Error::Future { newest: Revision(state.revision) });
        }
        state.compact(upto.0);
        Ok(())
    }
}

impl History for Shared {
    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn compacted(&self) -> Result<Revision> {
        Ok(Revision(self.lock().compacted))
    }

    fn history(&self, after: Revision) -> Result<Vec<Committed>> {
        let state = self.lock();
        if after.0 < state.compacted {
            return Err(Error::Compacted { oldest: Revision(state.compacted) });
        }
        let revisions = state.log.range((Bound::Excluded(after.0), Bound::Unbounded)).take(TAKE_REVISIONS_MAX);
        Ok(revisions.map(|(revision, keys)| (Revision(*revision), state.events(*revision, keys))).collect())
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A commit computes before it changes the maps, so a panic leaves them consistent.
        self.state.lock()
    }

    /// Starts the thread that expires keys, at the first key with a time to live.
    fn start_sweeping(self: &Arc<Self>, state: &mut State) {
        if state.deadlines.is_empty() || state.sweeping {
            self.deadline_changed.notify_one();
            return;
        }
        let (weak, bell) = (Arc::downgrade(self), self.deadline_changed.clone());
        let spawned = std::thread::Builder::new().name("store-sweeper".into()).spawn(move || sweep(&weak, &bell));
        // Without a thread, keys live longer than requested; the next commit tries again.
        state.sweeping = spawned.is_ok();
    }
}

/// Deletes expired keys until the store is dropped.
fn sweep(shared: &Weak<Shared>, bell: &Condvar) {
    // The condition variable needs a mutex that outlives the store; it guards nothing.
    let asleep = Mutex::new(());
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let now = SystemTime::now();
        let mut state = shared.lock();
        let expired = state.expired(now);
        if !expired.is_empty()
            && let Applied::Committed(revision, events) = state.apply(Txn { writes: expired, ..Txn::default() }, now)
        {
            shared.feed.publish(vec![(Revision(revision), events)]);
        }
        let wait = state.deadlines.first().and_then(|(deadline, ..)| deadline.duration_since(now).ok());
        drop(state);
        drop(shared);
        let mut guard = asleep.lock();
        // A notification between the check above and this wait is lost; then the interval passes.
        bell.wait_for(&mut guard, wait.unwrap_or(SWEEP_EVERY).min(SWEEP_EVERY));
    }
}

enum Applied {
    Refused(Vec<Option<KeyValue>>),
    Unchanged,
    Committed(u64, Arc<[Event]>),
}

impl State {
    fn get(&self, key: &Key, at: u64) -> Option<KeyValue> {
        value_at(key, self.keys.get(key)?, at)
    }

    fn apply(&mut self, txn: Txn, now: SystemTime) -> Applied {
        let newest = self.revision;
        let holds = |(key, expect): &(Key, Precondition)| match (expect, self.get(key, newest)) {
            (Precondition::Absent, found) => found.is_none(),
            (Precondition::Present, found) => found.is_some(),
            (Precondition::At(revision), found) => found.is_some_and(|found| found.modified == *revision),
        };
        if !txn.expect.iter().all(holds) {
            return Applied::Refused(txn.expect.iter().map(|(key, _)| self.get(key, newest)).collect());
        }
        let revision = newest + 1;
        let mut changed = Vec::new();
        for write in txn.writes {
            let (key, value, ttl) = match write {
                Write::Put { key, value, ttl } => (key, Some(value), ttl),
                Write::Delete { key } => (key, None, None),
            };
            let before = self.get(&key, newest);
            if before.is_none() && value.is_none() {
                continue;
            }
            if let Some(ttl) = ttl {
                self.deadlines.insert((now + ttl, key.clone(), revision));
            }
            let created = before.as_ref().map_or(revision, |before| before.created.0);
            self.keys.entry(key.clone()).or_default().push(Version { created, modified: revision, value });
            changed.push((key, before.map_or(0, |before| before.modified.0)));
        }
        if changed.is_empty() {
            return Applied::Unchanged;
        }
        changed.sort_unstable();
        self.revision = revision;
        let events = self.events(revision, &changed);
        self.log.insert(revision, changed);
        Applied::Committed(revision, events)
    }

    /// Returns the events of a kept revision, in key order.
    fn events(&self, revision: u64, keys: &[(Key, u64)]) -> Arc<[Event]> {
        let event = |(key, before): &(Key, u64)| {
            let before = if *before == 0 { None } else { self.get(key, *before) };
            let now = self.get(key, revision);
            Event {
                at: Revision(revision),
                kind: if now.is_some() { EventKind::Put } else { EventKind::Delete },
                now: now
                    .or_else(|| before.as_ref().map(|b| deleted(b, revision)))
                    .expect("what is deleted was there before"),
                before,
            }
        };
        keys.iter().map(event).collect()
    }

    /// Returns deletions of the expired keys, and of those beyond the maximum number, in limited batches.
    fn expired(&mut self, now: SystemTime) -> Vec<Write> {
        let mut writes = Vec::new();
        while writes.len() < super::TXN_OPERATIONS_MAX
            && (self.deadlines.len() as u64 > EXPIRING_MAX
                || self.deadlines.first().is_some_and(|(deadline, ..)| *deadline <= now))
        {
            let Some((_, key, revision)) = self.deadlines.pop_first() else { break };
            // A key written again since then has another deadline, or none.
            if self.get(&key, self.revision).is_some_and(|value| value.modified.0 == revision) {
                writes.push(Write::Delete { key });
            }
        }
        writes
    }

    /// Limits the history if it is never compacted.
    fn trim(&mut self) {
        if self.log.len() as u64 > 2 * HISTORY_REVISIONS_MIN {
            self.compact(self.revision - HISTORY_REVISIONS_MIN);
        }
    }

    fn compact(&mut self, upto: u64) {
        if upto <= self.compacted {
            return;
        }
        self.compacted = upto;
        let kept = self.log.split_off(&(upto + 1));
        for (key, _) in std::mem::replace(&mut self.log, kept).into_values().flatten() {
            let Some(versions) = self.keys.get_mut(&key) else { continue };
            let newer = versions.partition_point(|version| version.modified <= upto);
            let superseded = match newer.checked_sub(1) {
                Some(last) if versions[last].value.is_none() => newer,
                Some(last) => last,
                None => 0,
            };
            versions.drain(..superseded);
            if versions.is_empty() {
                self.keys.remove(&key);
            }
        }
    }
}

fn value_at(key: &Key, versions: &[Version], at: u64) -> Option<KeyValue> {
    let newer = versions.partition_point(|version| version.modified <= at);
    let version = &versions[newer.checked_sub(1)?];
    Some(KeyValue {
        key: key.clone(),
        value: version.value.clone()?,
        created: Revision(version.created),
        modified: Revision(version.modified),
    })
}

/// Returns the revision to read at, if it can be.
pub(super) fn readable(at: Option<Revision>, newest: u64, compacted: u64) -> Result<u64> {
    match at.map_or(newest, |at| at.0) {
        at if at > newest => Err(Error::Future { newest: Revision(newest) }),
        at if at < compacted => Err(Error::Compacted { oldest: Revision(compacted) }),
        at => Ok(at),
    }
}

/// Returns the value of a deletion event: the last value, with the revision that deleted it.
pub(super) fn deleted(before: &KeyValue, revision: u64) -> KeyValue {
    KeyValue { modified: Revision(revision), ..before.clone() }
}
