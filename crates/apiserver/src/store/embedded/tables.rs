//! The layout of the file, and reads from it.
//!
//! ```text
//! versions  (key, revision) → a value or a deletion (`seal`)
//! heads     key → created, modified                       keys that exist now
//! log       revision → (key length(2) key before(8))*     before = the revision that had written the key, 0 = absent (`seal`)
//! expiry    (milliseconds since the epoch, key) → revision that wrote the key with a time to live
//! meta      "format", "revision", "compacted" → number    "store-id-high", "store-id-low" → a random id
//!           "opening" → a random number for each opening (`origin`)    "seal" → the checksum of these
//! ```
//!
//! All numbers in values are little-endian. A read at a revision takes the newest version of each key up to that revision. A list
//! that is read in pages therefore needs no open transaction between them.
//!
//! The heads list the existing keys and their revisions, independently of the versions. Reads of the newest state compare both,
//! so that a key whose version was lost with a damaged page is reported as damaged and not as absent.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redb::{
    AccessGuard, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata as _, TableDefinition,
    WriteTransaction,
};

use super::damage::Damaged;
use super::listing::{Listing, Order};
use super::retention;
use super::seal::{self, Version as Stored};
use crate::store::feed::{Committed, TAKE_REVISIONS_MAX};
use crate::store::memory::{deleted, readable};
use crate::store::{Error, Event, EventKind, Key, KeyValue, Page, Precondition, Result, Revision, Txn, Write};

pub(super) type Versions = TableDefinition<'static, (&'static str, u64), &'static [u8]>;

pub(super) const VERSIONS: Versions = TableDefinition::new("versions");
pub(super) const HEADS: TableDefinition<&str, (u64, u64)> = TableDefinition::new("heads");
pub(super) const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const EXPIRY: TableDefinition<(u64, &str), u64> = TableDefinition::new("expiry");
pub(super) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// An entry of `versions`.
type Version<'a> = (AccessGuard<'a, (&'static str, u64)>, AccessGuard<'a, &'static [u8]>);

/// The first revision of a new store. An empty store has one, too, because clients interpret 0 as "any".
pub(super) const FIRST: u64 = 1;

/// The approximate size of one read of history in octets: it stops at the end of the revision that exceeds it.
const HISTORY_OCTETS_MAX: usize = 4 * 1024 * 1024;

/// Returns the error for the caller about a fault of the file when nothing was written.
pub(in crate::store) fn unavailable(error: redb::Error) -> Error {
    match error {
        redb::Error::Corrupted(reason) => Error::Corrupt(reason),
        // A page is beyond the end of the file, or an earlier read panicked.
        redb::Error::Io(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) => {
            Error::Corrupt(error.to_string())
        }
        redb::Error::LockPoisoned(_) => Error::Corrupt("its pages contradict each other".to_owned()),
        _ => Error::Unavailable,
    }
}

/// A snapshot of the file.
pub(in crate::store) struct Reader {
    pub(super) versions: ReadOnlyTable<(&'static str, u64), &'static [u8]>,
    pub(super) heads: ReadOnlyTable<&'static str, (u64, u64)>,
    pub(super) log: ReadOnlyTable<u64, &'static [u8]>,
    pub(super) expiry: ReadOnlyTable<(u64, &'static str), u64>,
    newest: u64,
    compacted: u64,
}

impl Reader {
    pub(in crate::store) fn new(transaction: &ReadTransaction) -> std::result::Result<Self, redb::Error> {
        let meta = transaction.open_table(META)?;
        let number = |name| -> std::result::Result<u64, redb::Error> {
            let missing = || redb::Error::Corrupted(format!("meta has no {name}"));
            Ok(meta.get(name)?.ok_or_else(missing)?.value())
        };
        Ok(Reader {
            versions: transaction.open_table(VERSIONS)?,
            heads: transaction.open_table(HEADS)?,
            log: transaction.open_table(LOG)?,
            expiry: transaction.open_table(EXPIRY)?,
            newest: number("revision")?,
            compacted: number("compacted")?,
        })
    }

    /// Returns the newest revision.
    pub(in crate::store) fn newest(&self) -> Revision {
        Revision(self.newest)
    }

    /// Returns the newest revision up to `newest`, which was published last. The file contains a commit a moment earlier: a
    /// reader of the file would see a commit that a later reader of the published state does not.
    pub(super) fn published(&self, newest: Revision) -> Revision {
        self.newest().min(newest).max(self.compacted())
    }

    pub(in crate::store) fn compacted(&self) -> Revision {
        Revision(self.compacted)
    }

    pub(in crate::store) fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        let at = readable(at, self.newest, self.compacted)?;
        let found = version_at(&self.versions, &key.0, at).map_err(unavailable)?;
        let damaged = |modified| Error::Damaged { key: key.clone(), modified: Revision(modified) };
        let head = self.heads.get(&*key.0).map_err(|error| unavailable(error.into()))?.map(|head| head.value().1);
        match (found, head.filter(|modified| *modified <= at)) {
            (Found::Damaged(modified), _) => Err(damaged(modified)),
            (Found::Value(found), Some(modified)) if found.modified.0 < modified => Err(damaged(modified)),
            (Found::Value(found), _) => Ok((Revision(at), Some(found))),
            // The key exists now, and existed then: there cannot have been a deletion in between.
            (Found::Nothing, Some(modified)) => Err(damaged(modified)),
            (Found::Nothing, None) => Ok((Revision(at), None)),
        }
    }

    /// See `Store::list`. The remaining items are not counted: that would cost as much as reading them.
    pub(in crate::store) fn list(
        &self,
        prefix: &Key,
        from: Option<&Key>,
        at: Option<Revision>,
        limit: Option<usize>,
    ) -> Result<Page> {
        let at = readable(at, self.newest, self.compacted)?;
        let start = from.unwrap_or(prefix).max(prefix);
        let page = Page { at: Revision(at), items: Vec::new(), damaged: Vec::new(), more: false, remaining: None };
        let fault = |error: redb::StorageError| unavailable(error.into());
        let heads = self.heads.range(&*start.0..).map_err(fault)?.peekable();
        let mut listing =
            Listing { page, limit: limit.unwrap_or(usize::MAX), at, heads, prefix: &prefix.0, order: Order::default() };
        // The newest version up to `at` of the current key; it is final when the next key is read.
        let mut candidate: Option<Version<'_>> = None;
        let mut order = Order::default();
        let mut full = false;
        for entry in self.versions.range((&*start.0, 0)..).map_err(fault)? {
            let (version, value) = entry.map_err(fault)?;
            let (key, revision) = version.value();
            order.check(key, revision)?;
            if !key.starts_with(&*prefix.0) {
                break;
            }
            if revision > at {
                continue;
            }
            if let Some((last, value)) = candidate.take()
                && last.value().0 != key
            {
                full = !listing.push(last.value(), value.value())?;
                if full {
                    break;
                }
            }
            candidate = Some((version, value));
        }
        if let Some((last, value)) = candidate
            && !full
        {
            full = !listing.push(last.value(), value.value())?;
        }
        if !full {
            listing.heads_before(None)?;
        }
        Ok(listing.page)
    }

    pub(in crate::store) fn history(&self, after: Revision) -> Result<Vec<Committed>> {
        if after.0 < self.compacted {
            return Err(Error::Compacted { oldest: Revision(self.compacted) });
        }
        // A client that needs a damaged revision must list instead, as if it had been compacted.
        let read = self.read_history(after.0).map_err(unavailable)?;
        read.ok_or(Error::Compacted { oldest: Revision(self.newest) })
    }

    /// `None` if the first entry is damaged.
    fn read_history(&self, after: u64) -> std::result::Result<Option<Vec<Committed>>, redb::Error> {
        let mut committed = Vec::new();
        let mut octets = 0;
        for (entry, expected) in self.log.range(after + 1..)?.zip(after + 1..) {
            let (revision, keys) = entry?;
            // Revisions are consecutive; the check prevents an endless loop through damaged pages.
            if revision.value() != expected {
                return Err(redb::Error::Corrupted(format!("the log has {} after {}", revision.value(), expected - 1)));
            }
            let Some(events) = events(&self.versions, expected, keys.value())? else {
                return Ok(Some(committed).filter(|committed| !committed.is_empty()));
            };
            octets += events.iter().map(|event| event.now.value.len()).sum::<usize>();
            committed.push((Revision(expected), events));
            if committed.len() == TAKE_REVISIONS_MAX || octets > HISTORY_OCTETS_MAX {
                break;
            }
        }
        Ok(Some(committed))
    }

    /// Calls `each` with every revision of retained history, oldest first, and the bytes of history in it.
    pub(in crate::store) fn retained(&self, mut each: impl FnMut(u64, u64)) -> std::result::Result<(), redb::Error> {
        for entry in self.log.range(self.compacted + 1..=self.newest)? {
            let (revision, keys) = entry?;
            let mut bytes = 0;
            for change in changes(seal::log_entry(revision.value(), keys.value()).unwrap_or_default()) {
                let (key, before) = change?;
                let before = if before == 0 { None } else { self.versions.get((key, before))? };
                bytes += retention::charge(key, before.map_or(0, |before| before.value().len()));
            }
            each(revision.value(), bytes);
        }
        Ok(())
    }

    /// Returns the deadlines of keys, with the revisions that set them.
    pub(in crate::store) fn deadlines(&self) -> Result<Vec<(u64, Key, Revision)>> {
        let fault = |error: redb::StorageError| unavailable(error.into());
        let entries = self.expiry.range::<(u64, &str)>(..).map_err(fault)?;
        entries
            .map(|entry| {
                let (deadline, revision) = entry.map_err(fault)?;
                let (milliseconds, key) = deadline.value();
                Ok((milliseconds, Key(key.into()), Revision(revision.value())))
            })
            .collect()
    }
}

/// The tables, open for writing in one transaction.
pub(in crate::store) struct WriteTables<'t> {
    pub(super) versions: redb::Table<'t, (&'static str, u64), &'static [u8]>,
    pub(super) heads: redb::Table<'t, &'static str, (u64, u64)>,
    pub(super) log: redb::Table<'t, u64, &'static [u8]>,
    expiry: redb::Table<'t, (u64, &'static str), u64>,
    pub(super) meta: redb::Table<'t, &'static str, u64>,
}

/// The result of applying a transaction.
pub(in crate::store) enum Applied {
    /// A precondition failed; the current value of each key.
    Refused(Vec<Option<KeyValue>>),
    /// The value of this key is damaged, so that its precondition cannot be evaluated.
    Damaged(Damaged),
    /// The transaction changed nothing and got no revision.
    Unchanged,
    /// The transaction was applied.
    Changed(Arc<[Event]>),
}

impl<'t> WriteTables<'t> {
    pub(in crate::store) fn open(transaction: &'t WriteTransaction) -> std::result::Result<Self, redb::Error> {
        Ok(WriteTables {
            versions: transaction.open_table(VERSIONS)?,
            heads: transaction.open_table(HEADS)?,
            log: transaction.open_table(LOG)?,
            expiry: transaction.open_table(EXPIRY)?,
            meta: transaction.open_table(META)?,
        })
    }

    /// Evaluates `txn` against the current state, including this transaction's own writes, and applies it as `revision`.
    pub(in crate::store) fn apply(
        &mut self,
        txn: &Txn,
        revision: u64,
        now: SystemTime,
    ) -> std::result::Result<Applied, redb::Error> {
        if !self.holds(txn)? {
            let mut found = Vec::with_capacity(txn.expect.len());
            for (key, _) in &txn.expect {
                match self.current(key)? {
                    Found::Damaged(modified) => {
                        let damaged = Damaged { key: key.clone(), modified: Revision(modified) };
                        return Ok(Applied::Damaged(damaged));
                    }
                    Found::Nothing => found.push(None),
                    Found::Value(value) => found.push(Some(value)),
                }
            }
            return Ok(Applied::Refused(found));
        }
        let mut events = Vec::with_capacity(txn.writes.len());
        // The revisions that had written the keys whose former values are unreadable.
        let mut unread = Vec::new();
        for write in &txn.writes {
            let key = write.key();
            let head = self.heads.get(&*key.0)?.map(|head| head.value());
            let before = match self.current(key)? {
                Found::Value(before) => Some(before),
                Found::Damaged(modified) => {
                    unread.push((key, modified));
                    None
                }
                Found::Nothing => None,
            };
            let at = Revision(revision);
            let event = match (write, &before) {
                (Write::Put { value, ttl, .. }, _) => {
                    let created = head.map_or(revision, |(created, _)| created);
                    self.versions.insert((&*key.0, revision), &*seal::value(&key.0, revision, created, value))?;
                    self.heads.insert(&*key.0, (created, revision))?;
                    if let Some(ttl) = ttl {
                        self.expiry.insert((milliseconds(now, *ttl), &*key.0), revision)?;
                    }
                    let now = KeyValue::of(&key.0, revision, created, value);
                    Event { at, kind: EventKind::Put, now: KeyValue { value: value.clone(), ..now }, before }
                }
                (Write::Delete { .. }, None) if unread.last().is_none_or(|(last, _)| *last != key) => continue,
                (Write::Delete { .. }, _) => {
                    self.versions.insert((&*key.0, revision), &*seal::deletion(&key.0, revision))?;
                    self.heads.remove(&*key.0)?;
                    let now = deleted_of(&key.0, before.as_ref(), revision);
                    Event { at, kind: EventKind::Delete, now, before }
                }
            };
            events.push(event);
        }
        if events.is_empty() {
            return Ok(Applied::Unchanged);
        }
        events.sort_unstable_by(|a, b| a.now.key.cmp(&b.now.key));
        let mut changes = Vec::new();
        for Event { now, before, .. } in &events {
            let length = u16::try_from(now.key.0.len()).expect("Txn::check bounds keys by KEY_OCTETS_MAX");
            changes.extend_from_slice(&length.to_le_bytes());
            changes.extend_from_slice(now.key.0.as_bytes());
            let lost = || unread.iter().find(|(key, _)| **key == now.key).map_or(0, |(_, modified)| *modified);
            let before = before.as_ref().map_or_else(lost, |before| before.modified.0);
            changes.extend_from_slice(&before.to_le_bytes());
        }
        seal::close_log_entry(revision, &mut changes);
        self.log.insert(revision, &*changes)?;
        Ok(Applied::Changed(events.into()))
    }

    /// Returns whether `txn` would make the store larger for longer than its history is kept: by a new key, or by more octets
    /// than it replaces.
    pub(in crate::store) fn grows(&self, txn: &Txn) -> std::result::Result<bool, redb::Error> {
        let (mut before, mut after) = (0, 0);
        for write in &txn.writes {
            match (self.current(write.key())?, write) {
                (Found::Value(replaced), _) => before += replaced.value.len(),
                (Found::Nothing | Found::Damaged(_), Write::Put { .. }) => return Ok(true),
                (Found::Nothing | Found::Damaged(_), Write::Delete { .. }) => {}
            }
            if let Write::Put { value, .. } = write {
                after += value.len();
            }
        }
        Ok(after > before)
    }

    fn holds(&self, txn: &Txn) -> std::result::Result<bool, redb::Error> {
        for (key, expect) in &txn.expect {
            let modified = self.heads.get(&*key.0)?.map(|head| head.value().1);
            let holds = match expect {
                Precondition::Absent => modified.is_none(),
                Precondition::Present => modified.is_some(),
                Precondition::At(revision) => modified == Some(revision.0),
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the current value of the key.
    fn current(&self, key: &Key) -> std::result::Result<Found, redb::Error> {
        let found = version_at(&self.versions, &key.0, u64::MAX)?;
        let head = self.heads.get(&*key.0)?.map(|head| head.value().1);
        Ok(match (found, head) {
            (Found::Value(found), Some(modified)) if found.modified.0 != modified => Found::Damaged(modified),
            (Found::Nothing, Some(modified)) => Found::Damaged(modified),
            (found, _) => found,
        })
    }

    /// Restores a value of a backup; `deadline` in milliseconds since the epoch, 0 for none.
    pub(in crate::store) fn restore(&mut self, item: &KeyValue, deadline: u64) -> std::result::Result<(), redb::Error> {
        let (key, created, modified) = (&*item.key.0, item.created.0, item.modified.0);
        self.versions.insert((key, modified), &*seal::value(key, modified, created, &item.value))?;
        self.heads.insert(key, (created, modified))?;
        if deadline > 0 {
            self.expiry.insert((deadline, key), modified)?;
        }
        Ok(())
    }

    /// Makes a restored store begin at `revision`, without earlier history.
    pub(in crate::store) fn start_at(&mut self, revision: u64) -> std::result::Result<(), redb::Error> {
        self.meta.insert("compacted", revision)?;
        self.set_newest(revision)
    }

    /// Records the newest revision.
    pub(in crate::store) fn set_newest(&mut self, revision: u64) -> std::result::Result<(), redb::Error> {
        self.meta.insert("revision", revision)?;
        seal::seal_meta(&mut self.meta)
    }

    pub(in crate::store) fn compacted(&self) -> std::result::Result<u64, redb::Error> {
        Ok(self.meta.get("compacted")?.map_or(FIRST, |value| value.value()))
    }

    /// Returns the number of writes with a time to live beyond `most`.
    pub(in crate::store) fn expiring_over(&self, most: u64) -> std::result::Result<u64, redb::Error> {
        Ok(self.expiry.len()?.saturating_sub(most))
    }

    /// Returns deletions of the expired keys, and of the `over` keys that would expire first, from at most `limit` entries, which
    /// it removes; `None` if there was no such entry. A key that was written again since has another deadline, or none.
    pub(in crate::store) fn expired(
        &mut self,
        now: SystemTime,
        over: u64,
        limit: usize,
    ) -> std::result::Result<Option<Vec<Write>>, redb::Error> {
        let until = milliseconds(now, Duration::ZERO);
        let mut due = Vec::new();
        for (entry, nth) in self.expiry.iter()?.zip(0..).take(limit) {
            let (deadline, revision) = entry?;
            let (milliseconds, key) = deadline.value();
            if milliseconds > until && nth >= over {
                break;
            }
            due.push((milliseconds, String::from(key), revision.value()));
        }
        if due.is_empty() {
            return Ok(None);
        }
        let mut writes = Vec::new();
        for (milliseconds, key, revision) in due {
            self.expiry.remove((milliseconds, key.as_str()))?;
            if self.heads.get(&*key)?.is_some_and(|head| head.value().1 == revision) {
                writes.push(Write::Delete { key: Key(key.into()) });
            }
        }
        Ok(Some(writes))
    }

    /// Returns the deadline of the first key to expire.
    pub(in crate::store) fn first_deadline(&self) -> std::result::Result<Option<SystemTime>, redb::Error> {
        let Some((deadline, _)) = self.expiry.first()? else { return Ok(None) };
        Ok(Some(SystemTime::UNIX_EPOCH + Duration::from_millis(deadline.value().0)))
    }

    /// Removes history up to `upto`, at most `limit` revisions of it; returns the revision that it reached.
    pub(in crate::store) fn compact(&mut self, upto: u64, limit: usize) -> std::result::Result<u64, redb::Error> {
        let from = self.compacted()?;
        let mut reached = upto;
        let mut gone = Vec::new();
        for (nth, entry) in self.log.range(from + 1..=upto)?.enumerate() {
            let (revision, keys) = entry?;
            if nth == limit {
                reached = revision.value() - 1;
                break;
            }
            let revision = revision.value();
            // The content of a damaged entry is unknown, so the versions that it superseded stay.
            for change in changes(seal::log_entry(revision, keys.value()).unwrap_or_default()) {
                let (key, before) = change?;
                // The version that this revision replaced is no longer the newest of any kept revision. Its own version can be,
                // unless it is a deletion, which is equivalent to the absence of the key.
                if before != 0 {
                    gone.push((String::from(key), before));
                }
                let is_deletion = |stored: &[u8]| seal::version(key, revision, stored) == Stored::Deletion;
                if self.versions.get((key, revision))?.is_some_and(|version| is_deletion(version.value())) {
                    gone.push((String::from(key), revision));
                }
            }
        }
        for (key, revision) in gone {
            self.versions.remove((key.as_str(), revision))?;
        }
        // The log is truncated last, because its entries list the versions to check.
        self.log.retain_in(..=reached, |_, _| false)?;
        self.meta.insert("compacted", reached.max(from))?;
        Ok(reached.max(from))
    }
}

/// Returns the time `ttl` after `now`, in milliseconds since the epoch.
fn milliseconds(now: SystemTime, ttl: Duration) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + ttl;
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The current value of a key.
pub(super) enum Found {
    /// No value, or a deletion.
    Nothing,
    /// A value.
    Value(KeyValue),
    /// An unreadable value, which this revision wrote.
    Damaged(u64),
}

/// Returns the newest version of `key` up to `at`.
pub(super) fn version_at(
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    key: &str,
    at: u64,
) -> std::result::Result<Found, redb::Error> {
    let Some(entry) = versions.range((key, 0)..=(key, at))?.next_back() else { return Ok(Found::Nothing) };
    let (version, value) = entry?;
    let (found, revision) = version.value();
    if found != key {
        return Err(redb::Error::Corrupted(format!("{found} is in the place of {key}")));
    }
    Ok(match seal::version(key, revision, value.value()) {
        Stored::Value { created, value } => Found::Value(KeyValue::of(key, revision, created, value)),
        Stored::Deletion => Found::Nothing,
        Stored::Damaged => Found::Damaged(revision),
    })
}

/// Returns a deletion as watchers see it; without a value if the last one could not be read.
fn deleted_of(key: &str, before: Option<&KeyValue>, revision: u64) -> KeyValue {
    before.map_or_else(|| KeyValue::of(key, revision, revision, &[]), |before| deleted(before, revision))
}

/// Returns the events of a revision whose log entry is `stored`, in key order; `None` if something of it is damaged.
fn events(
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    revision: u64,
    stored: &[u8],
) -> std::result::Result<Option<Arc<[Event]>>, redb::Error> {
    let Some(keys) = seal::log_entry(revision, stored) else { return Ok(None) };
    let mut events = Vec::new();
    for change in changes(keys) {
        let (key, before) = change?;
        // Existing watchers know the unreadable value.
        let before = match before {
            0 => None,
            before => match version_at(versions, key, before)? {
                Found::Value(before) => Some(before),
                Found::Nothing | Found::Damaged(_) => None,
            },
        };
        let Some(version) = versions.get((key, revision))? else { return Ok(None) };
        let (kind, now) = match seal::version(key, revision, version.value()) {
            Stored::Value { created, value } => (EventKind::Put, KeyValue::of(key, revision, created, value)),
            Stored::Deletion => (EventKind::Delete, deleted_of(key, before.as_ref(), revision)),
            Stored::Damaged => return Ok(None),
        };
        events.push(Event { at: Revision(revision), kind, now, before });
    }
    Ok(Some(events.into()))
}

/// Returns the keys of a log entry, each with the revision that had written it before.
fn changes(mut entry: &[u8]) -> impl Iterator<Item = std::result::Result<(&str, u64), redb::Error>> {
    std::iter::from_fn(move || {
        if entry.is_empty() {
            return None;
        }
        let damaged = || redb::Error::Corrupted("a log entry ends within a key".into());
        let mut next = || {
            let (length, rest) = entry.split_first_chunk::<2>()?;
            let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            let (before, rest) = rest.split_first_chunk::<8>()?;
            entry = rest;
            Some((std::str::from_utf8(key).ok()?, u64::from_le_bytes(*before)))
        };
        let change = next().ok_or_else(damaged);
        if change.is_err() {
            entry = &[];
        }
        Some(change)
    })
}
