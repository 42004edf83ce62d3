//! The layout of the file, and what is read from it.
//!
//! ```text
//! versions  (key, revision) → kind(1) created(8) value    kind 1 = value, 0 = deletion (nothing follows)
//! heads     key → created, modified                       keys that exist now
//! log       revision → (key length(2) key before(8))*     before = the revision that had written the key, 0 = absent
//! expiry    (milliseconds since the epoch, key) → revision that wrote the key with a time to live
//! meta      "format", "revision", "compacted" → number    "store-id-high", "store-id-low" → a random id
//! ```
//!
//! All numbers in values are little-endian. Reading as of a revision takes of each key the newest version up to that one,
//! so a list that is read in pages needs no transaction to be held open between them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use redb::{
    AccessGuard, Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata as _,
    TableDefinition, WriteTransaction,
};

use super::{FORMAT, OpenError, retention};
use crate::store::feed::{Committed, TAKE_REVISIONS_MAX};
use crate::store::memory::deleted;
use crate::store::{Error, Event, EventKind, Expect, Key, KeyValue, Page, Result, Revision, Txn, Write};

type Versions = TableDefinition<'static, (&'static str, u64), &'static [u8]>;

const VERSIONS: Versions = TableDefinition::new("versions");
const HEADS: TableDefinition<&str, (u64, u64)> = TableDefinition::new("heads");
const LOG: TableDefinition<u64, &[u8]> = TableDefinition::new("log");
const EXPIRY: TableDefinition<(u64, &str), u64> = TableDefinition::new("expiry");
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");

/// An entry of `versions`.
type Version<'a> = (AccessGuard<'a, (&'static str, u64)>, AccessGuard<'a, &'static [u8]>);

/// The first revision of a new store. An empty store has one, too, since clients take 0 for "any".
const FIRST: u64 = 1;

/// How many octets of values one read of history gathers before it stops at the end of a revision.
const HISTORY_OCTETS_MAX: usize = 4 * 1024 * 1024;

/// Why [`prepare`] failed.
#[derive(Debug)]
pub(in crate::store) enum PrepareError {
    NewerFormat(u64),
    Redb(redb::Error),
}

impl<E: Into<redb::Error>> From<E> for PrepareError {
    fn from(error: E) -> Self {
        PrepareError::Redb(error.into())
    }
}

impl PrepareError {
    pub(in crate::store) fn at(self, path: &Path) -> OpenError {
        match self {
            PrepareError::NewerFormat(found) => OpenError::NewerFormat { path: path.into(), found, supported: FORMAT },
            PrepareError::Redb(redb::Error::Io(source)) => OpenError::Io { path: path.into(), source },
            PrepareError::Redb(error) => OpenError::Corrupt { path: path.into(), reason: error.to_string() },
        }
    }
}

/// Makes the tables of a new file, checks the format of another, and returns the newest revision.
pub(in crate::store) fn prepare(database: &Database) -> std::result::Result<Revision, PrepareError> {
    if let Some((format, newest)) = written(database)? {
        return if format > FORMAT { Err(PrepareError::NewerFormat(format)) } else { Ok(Revision(newest)) };
    }
    let transaction = database.begin_write()?;
    let id = uuid::Uuid::new_v4().as_u64_pair();
    {
        let mut meta = transaction.open_table(META)?;
        for (name, value) in [
            ("format", FORMAT),
            ("revision", FIRST),
            ("compacted", FIRST),
            ("store-id-high", id.0),
            ("store-id-low", id.1),
        ] {
            meta.insert(name, value)?;
        }
    }
    drop(WriteTables::open(&transaction)?);
    transaction.commit()?;
    Ok(Revision(FIRST))
}

/// The format and the newest revision of a file that is not new.
fn written(database: &Database) -> std::result::Result<Option<(u64, u64)>, redb::Error> {
    let meta = match database.begin_read()?.open_table(META) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let number = |name| -> std::result::Result<_, redb::Error> {
        let missing = || redb::Error::Corrupted(format!("meta has no {name}"));
        Ok(meta.get(name)?.ok_or_else(missing)?.value())
    };
    let format = number("format")?;
    // What the other numbers are called in a newer format is not ours to say.
    Ok(Some((format, if format > FORMAT { 0 } else { number("revision")? })))
}

/// What a caller is told about a fault of the file when nothing was written.
pub(in crate::store) fn unavailable(error: redb::Error) -> Error {
    match error {
        redb::Error::Corrupted(reason) => Error::Corrupt(reason),
        _ => Error::Unavailable,
    }
}

/// The file as it was at one moment.
pub(in crate::store) struct Reader {
    versions: ReadOnlyTable<(&'static str, u64), &'static [u8]>,
    log: ReadOnlyTable<u64, &'static [u8]>,
    expiry: ReadOnlyTable<(u64, &'static str), u64>,
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
            log: transaction.open_table(LOG)?,
            expiry: transaction.open_table(EXPIRY)?,
            newest: number("revision")?,
            compacted: number("compacted")?,
        })
    }

    /// The newest revision.
    pub(in crate::store) fn newest(&self) -> Revision {
        Revision(self.newest)
    }

    pub(in crate::store) fn compacted(&self) -> Revision {
        Revision(self.compacted)
    }

    /// The revision to read at, if it can be.
    fn readable(&self, at: Option<Revision>) -> Result<u64> {
        let at = at.map_or(self.newest, |at| at.0);
        if at > self.newest {
            return Err(Error::Future { newest: Revision(self.newest) });
        }
        if at < self.compacted {
            return Err(Error::Compacted { oldest: Revision(self.compacted) });
        }
        Ok(at)
    }

    pub(in crate::store) fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        let at = self.readable(at)?;
        Ok((Revision(at), version_at(&self.versions, &key.0, at).map_err(unavailable)?))
    }

    /// See `Store::list`. How many remain is not counted: that would cost as much as reading them.
    pub(in crate::store) fn list(
        &self,
        prefix: &Key,
        from: Option<&Key>,
        at: Option<Revision>,
        limit: Option<usize>,
    ) -> Result<Page> {
        let at = self.readable(at)?;
        let start = from.unwrap_or(prefix).max(prefix);
        let mut page = Page { at: Revision(at), items: Vec::new(), more: false, remaining: None };
        let limit = limit.unwrap_or(usize::MAX);
        let fault = |error: redb::StorageError| unavailable(error.into());
        // The newest version up to `at` of the key at hand; it is known to be the newest when the next key comes.
        let mut candidate: Option<Version<'_>> = None;
        let mut full = false;
        for entry in self.versions.range((&*start.0, 0)..).map_err(fault)? {
            let (version, value) = entry.map_err(fault)?;
            let (key, revision) = version.value();
            if !key.starts_with(&*prefix.0) {
                break;
            }
            if revision > at {
                continue;
            }
            if let Some((last, value)) = candidate.take()
                && last.value().0 != key
            {
                full = !push(&mut page, limit, last.value(), value.value())?;
                if full {
                    break;
                }
            }
            candidate = Some((version, value));
        }
        if let Some((last, value)) = candidate
            && !full
        {
            push(&mut page, limit, last.value(), value.value())?;
        }
        Ok(page)
    }

    pub(in crate::store) fn history(&self, after: Revision) -> Result<Vec<Committed>> {
        if after.0 < self.compacted {
            return Err(Error::Compacted { oldest: Revision(self.compacted) });
        }
        self.read_history(after.0).map_err(unavailable)
    }

    fn read_history(&self, after: u64) -> std::result::Result<Vec<Committed>, redb::Error> {
        let mut committed = Vec::new();
        let mut octets = 0;
        for entry in self.log.range(after + 1..)? {
            let (revision, keys) = entry?;
            let events = events(&self.versions, revision.value(), keys.value())?;
            octets += events.iter().map(|event| event.now.value.len()).sum::<usize>();
            committed.push((Revision(revision.value()), events));
            if committed.len() == TAKE_REVISIONS_MAX || octets > HISTORY_OCTETS_MAX {
                break;
            }
        }
        Ok(committed)
    }

    /// Calls `each` with every revision of retained history, oldest first, and the bytes that it holds.
    pub(in crate::store) fn retained(&self, mut each: impl FnMut(u64, u64)) -> std::result::Result<(), redb::Error> {
        for entry in self.log.range(self.compacted + 1..)? {
            let (revision, keys) = entry?;
            let mut bytes = 0;
            for change in changes(keys.value()) {
                let (key, before) = change?;
                let before = if before == 0 { None } else { self.versions.get((key, before))? };
                bytes += retention::charge(key, before.map_or(0, |before| before.value().len()));
            }
            each(revision.value(), bytes);
        }
        Ok(())
    }

    /// When which key ends, and the revision that said so.
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

/// Adds a version to a page unless it is a deletion; says whether the page can take more.
fn push(page: &mut Page, limit: usize, (key, revision): (&str, u64), version: &[u8]) -> Result<bool> {
    let Some(item) = decode(key, revision, version).map_err(unavailable)? else { return Ok(true) };
    if page.items.len() == limit {
        page.more = true;
        return Ok(false);
    }
    page.items.push(item);
    Ok(true)
}

/// The tables, open for writing in one transaction.
pub(in crate::store) struct WriteTables<'t> {
    versions: redb::Table<'t, (&'static str, u64), &'static [u8]>,
    heads: redb::Table<'t, &'static str, (u64, u64)>,
    log: redb::Table<'t, u64, &'static [u8]>,
    expiry: redb::Table<'t, (u64, &'static str), u64>,
    meta: redb::Table<'t, &'static str, u64>,
}

/// What applying a transaction did.
pub(in crate::store) enum Applied {
    /// An expectation failed; what each key holds.
    Refused(Vec<Option<KeyValue>>),
    /// It changed nothing and got no revision.
    Unchanged,
    /// It happened.
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

    /// Judges `txn` by what is there, this transaction's own writes included, and does it as `revision`.
    pub(in crate::store) fn apply(
        &mut self,
        txn: &Txn,
        revision: u64,
        now: SystemTime,
    ) -> std::result::Result<Applied, redb::Error> {
        if !self.holds(txn)? {
            let found = txn.expect.iter().map(|(key, _)| self.current(key)).collect::<std::result::Result<_, _>>()?;
            return Ok(Applied::Refused(found));
        }
        let mut events = Vec::with_capacity(txn.writes.len());
        for write in &txn.writes {
            let key = write.key();
            let head = self.heads.get(&*key.0)?.map(|head| head.value());
            let before = match head {
                Some((_, modified)) => version_at(&self.versions, &key.0, modified)?,
                None => None,
            };
            let at = Revision(revision);
            let event = match (write, &before) {
                (Write::Put { value, ttl, .. }, _) => {
                    let created = head.map_or(revision, |(created, _)| created);
                    self.versions.insert((&*key.0, revision), &*encode(created, value))?;
                    self.heads.insert(&*key.0, (created, revision))?;
                    if let Some(ttl) = ttl {
                        self.expiry.insert((milliseconds(now, *ttl), &*key.0), revision)?;
                    }
                    let now =
                        KeyValue { key: key.clone(), value: value.clone(), created: Revision(created), modified: at };
                    Event { at, kind: EventKind::Put, now, before }
                }
                (Write::Delete { .. }, Some(value)) => {
                    self.versions.insert((&*key.0, revision), [0].as_slice())?;
                    self.heads.remove(&*key.0)?;
                    Event { at, kind: EventKind::Delete, now: deleted(value, revision), before }
                }
                (Write::Delete { .. }, None) => continue,
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
            changes.extend_from_slice(&before.as_ref().map_or(0, |before| before.modified.0).to_le_bytes());
        }
        self.log.insert(revision, &*changes)?;
        Ok(Applied::Changed(events.into()))
    }

    /// Whether `txn` would make the store larger for longer than its history is kept: by a new key, or by more octets than it
    /// replaces.
    pub(in crate::store) fn grows(&self, txn: &Txn) -> std::result::Result<bool, redb::Error> {
        let (mut before, mut after) = (0, 0);
        for write in &txn.writes {
            let Some(replaced) = self.current(write.key())? else {
                match write {
                    Write::Put { .. } => return Ok(true),
                    Write::Delete { .. } => continue,
                }
            };
            before += replaced.value.len();
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
                Expect::Absent => modified.is_none(),
                Expect::Present => modified.is_some(),
                Expect::At(revision) => modified == Some(revision.0),
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn current(&self, key: &Key) -> std::result::Result<Option<KeyValue>, redb::Error> {
        version_at(&self.versions, &key.0, u64::MAX)
    }

    /// Puts back a value of a backup; `deadline` in milliseconds since the epoch, 0 for none.
    pub(in crate::store) fn restore(&mut self, item: &KeyValue, deadline: u64) -> std::result::Result<(), redb::Error> {
        let (key, created, modified) = (&*item.key.0, item.created.0, item.modified.0);
        self.versions.insert((key, modified), &*encode(created, &item.value))?;
        self.heads.insert(key, (created, modified))?;
        if deadline > 0 {
            self.expiry.insert((deadline, key), modified)?;
        }
        Ok(())
    }

    /// Lets a restored store begin at `revision`, with no history before.
    pub(in crate::store) fn start_at(&mut self, revision: u64) -> std::result::Result<(), redb::Error> {
        self.meta.insert("compacted", revision)?;
        self.set_newest(revision)
    }

    /// Notes the newest revision.
    pub(in crate::store) fn set_newest(&mut self, revision: u64) -> std::result::Result<(), redb::Error> {
        self.meta.insert("revision", revision)?;
        Ok(())
    }

    pub(in crate::store) fn compacted(&self) -> std::result::Result<u64, redb::Error> {
        Ok(self.meta.get("compacted")?.map_or(FIRST, |value| value.value()))
    }

    /// How many writes with a time to live there are more than `most`.
    pub(in crate::store) fn expiring_over(&self, most: u64) -> std::result::Result<u64, redb::Error> {
        Ok(self.expiry.len()?.saturating_sub(most))
    }

    /// Deletions of the keys whose time has passed, and of the `over` ones that would end first, from at most `limit`
    /// entries, which are taken away with that; `None` if there was no such entry. A key that was written again since has
    /// another deadline, or none.
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

    /// When the first key ends.
    pub(in crate::store) fn first_deadline(&self) -> std::result::Result<Option<SystemTime>, redb::Error> {
        let Some((deadline, _)) = self.expiry.first()? else { return Ok(None) };
        Ok(Some(SystemTime::UNIX_EPOCH + Duration::from_millis(deadline.value().0)))
    }

    /// Forgets history up to `upto`, at most `limit` revisions of it; returns how far it came.
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
            for change in changes(keys.value()) {
                let (key, before) = change?;
                // What this revision replaced is no longer the newest of any kept revision. Its own version may be, unless
                // it is a deletion, which says no more than the absence of the key does.
                if before != 0 {
                    gone.push((String::from(key), before));
                }
                if self.versions.get((key, revision))?.is_some_and(|version| version.value() == [0]) {
                    gone.push((String::from(key), revision));
                }
            }
        }
        for (key, revision) in gone {
            self.versions.remove((key.as_str(), revision))?;
        }
        // The log is cut last, since its entries said which versions to look at.
        self.log.retain_in(..=reached, |_, _| false)?;
        self.meta.insert("compacted", reached.max(from))?;
        Ok(reached.max(from))
    }
}

/// Milliseconds since the epoch, `ttl` after `now`.
fn milliseconds(now: SystemTime, ttl: Duration) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() + ttl;
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The newest version of `key` up to `at`, unless that is a deletion.
fn version_at(
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    key: &str,
    at: u64,
) -> std::result::Result<Option<KeyValue>, redb::Error> {
    let Some(entry) = versions.range((key, 0)..=(key, at))?.next_back() else { return Ok(None) };
    let (version, value) = entry?;
    decode(key, version.value().1, value.value())
}

fn encode(created: u64, value: &[u8]) -> Vec<u8> {
    let mut version = Vec::with_capacity(9 + value.len());
    version.push(1);
    version.extend_from_slice(&created.to_le_bytes());
    version.extend_from_slice(value);
    version
}

fn decode(key: &str, revision: u64, version: &[u8]) -> std::result::Result<Option<KeyValue>, redb::Error> {
    match version {
        [0] => Ok(None),
        [1, rest @ ..] if rest.len() >= 8 => {
            let (created, value) = rest.split_at(8);
            Ok(Some(KeyValue {
                key: Key(key.into()),
                value: Bytes::copy_from_slice(value),
                created: Revision(number(created)),
                modified: Revision(revision),
            }))
        }
        _ => Err(redb::Error::Corrupted(format!("version {revision} of {key} has an unknown form"))),
    }
}

/// The events of a revision whose log entry is `keys`, in key order.
fn events(
    versions: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    revision: u64,
    keys: &[u8],
) -> std::result::Result<Arc<[Event]>, redb::Error> {
    let lost = |key: &str| redb::Error::Corrupted(format!("the log names {key} at {revision}, and it is not there"));
    changes(keys)
        .map(|change| {
            let (key, before) = change?;
            let before = match before {
                0 => None,
                before => Some(version_at(versions, key, before)?.ok_or_else(|| lost(key))?),
            };
            let version = versions.get((key, revision))?.ok_or_else(|| lost(key))?;
            let (kind, now) = match (decode(key, revision, version.value())?, &before) {
                (Some(now), _) => (EventKind::Put, now),
                (None, Some(before)) => (EventKind::Delete, deleted(before, revision)),
                (None, None) => return Err(lost(key)),
            };
            Ok(Event { at: Revision(revision), kind, now, before })
        })
        .collect()
}

/// The keys of a log entry, each with the revision that had written it before.
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

/// A little-endian number of up to eight octets.
pub(in crate::store) fn number(octets: &[u8]) -> u64 {
    octets.iter().rev().fold(0, |number, octet| number << 8 | u64::from(*octet))
}
