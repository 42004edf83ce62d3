//! The storage of objects: an ordered map of keys to octets with revisions, modeled on etcd.
//!
//! A [`Store`] gives every committed transaction one [`Revision`]. A transaction can compare and write any number of keys. A list
//! returns a prefix at a revision, and a watch is a stream of all events after a revision without gaps. Modules above this one do
//! not depend on the engine.
//!
//! [`memory::Memory`] keeps objects for the lifetime of the process, [`embedded::Embedded`] keeps them in a data directory.
//! `tests/store.rs` is the suite that every engine passes.

pub mod backup;
pub mod embedded;
pub mod encrypted;
#[cfg(feature = "etcd")]
pub mod etcd;
mod feed;
pub mod memory;
pub mod repair;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

pub use embedded::damage::{Damage, Damaged};

/// The maximum size of the keys and values of one transaction in octets: etcd's default limit of a request, so that an object
/// that fits into one engine fits into all.
pub const TXN_OCTETS_MAX: usize = 1_536 * 1024;

/// The maximum number of preconditions, and of writes, in one transaction: etcd's limit, for the same reason.
pub const TXN_OPERATIONS_MAX: usize = 128;

/// The maximum length of a key in octets. The API limits names of objects far below it.
pub const KEY_OCTETS_MAX: usize = 2_048;

/// The minimum number of revisions that an engine keeps when it removes history by itself.
pub const HISTORY_REVISIONS_MIN: u64 = 10_000;

/// The approximate maximum number of writes with a time to live: Events, of which each new object can have one. In the API
/// server's cache, that number takes 15 MiB. Without a limit, the Events of 100,000 objects that were created within an hour took
/// 50 MiB and more.
pub const EXPIRING_MAX: u64 = 32_768;

/// The number of a committed transaction: positive, increasing, and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A key such as `/core/events/ns/name`. Segments contain no `/`; prefixes end in `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Box<str>);

impl Key {
    /// Returns the key of `relative` under `prefix`.
    pub fn below(prefix: &str, relative: &str) -> Key {
        Key(format!("{prefix}{relative}").into_boxed_str())
    }

    /// Returns whether the key is not an object of the API but internal state that the servers share: such keys begin with `/!`.
    /// Backups do not contain them.
    pub fn is_internal(&self) -> bool {
        self.0.starts_with("/!")
    }

    /// Returns the key without `prefix`, which it begins with.
    pub fn relative(&self, prefix: &str) -> &str {
        self.0.strip_prefix(prefix).unwrap_or(&self.0)
    }
}

/// A stored value with the revisions that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Key,
    /// The octets of the value, which the store does not interpret.
    pub value: Bytes,
    /// The revision that created the key (for the last time).
    pub created: Revision,
    /// The revision that wrote this value.
    pub modified: Revision,
}

impl KeyValue {
    /// Returns a value of `key`, with the revisions that made it.
    pub(crate) fn of(key: &str, modified: u64, created: u64, value: &[u8]) -> KeyValue {
        let value = Bytes::copy_from_slice(value);
        KeyValue { key: Key(key.into()), value, created: Revision(created), modified: Revision(modified) }
    }
}

/// A transaction's precondition on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// The key does not exist.
    Absent,
    /// This revision last wrote the key.
    At(Revision),
    /// The key exists.
    Present,
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Create or replace. With `ttl`, the store deletes the key when that time has passed (events only).
    Put {
        /// The key.
        key: Key,
        /// The new value.
        value: Bytes,
        /// The time to live; `None`: unlimited.
        ttl: Option<Duration>,
    },
    /// Delete the key; an absent key causes neither an error nor an event.
    Delete {
        /// The key.
        key: Key,
    },
}

/// An atomic transaction: if all preconditions hold, all writes are applied, in one revision. No key is written twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// The preconditions; none means unconditional.
    pub expect: Vec<(Key, Precondition)>,
    /// The writes, in no order.
    pub writes: Vec<Write>,
    /// Whether it frees space, such as a deletion: then it is also accepted while the disk is full.
    pub frees: bool,
}

impl Txn {
    /// Checks the limits that all engines share.
    ///
    /// # Panics
    ///
    /// If a key is written twice: that is a bug of the program, and its result is undefined.
    fn check(&self) -> Result<()> {
        let mut octets = 0;
        let mut written = Vec::with_capacity(self.writes.len());
        for write in &self.writes {
            octets += match write {
                Write::Put { key, value, .. } => key.0.len() + value.len(),
                Write::Delete { key } => key.0.len(),
            };
            written.push(write.key());
        }
        octets += self.expect.iter().map(|(key, _)| key.0.len()).sum::<usize>();
        let operations = self.expect.len().max(self.writes.len());
        if octets > TXN_OCTETS_MAX || operations > TXN_OPERATIONS_MAX {
            return Err(Error::TooLarge { limit: TXN_OCTETS_MAX });
        }
        let keys = self.expect.iter().map(|(key, _)| key).chain(written.iter().copied());
        if keys.into_iter().any(|key| key.0.len() > KEY_OCTETS_MAX) {
            return Err(Error::TooLarge { limit: KEY_OCTETS_MAX });
        }
        written.sort_unstable();
        if let Some(twice) = written.windows(2).find(|pair| pair[0] == pair[1]) {
            panic!("a transaction writes the key {} twice", twice[0].0);
        }
        Ok(())
    }
}

impl Write {
    /// Returns the key it writes.
    pub fn key(&self) -> &Key {
        match self {
            Write::Put { key, .. } | Write::Delete { key } => key,
        }
    }
}

/// The outcome of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The transaction is durable, at this revision.
    Committed(Revision),
    /// A precondition failed; nothing was written.
    Refused {
        /// The revision at which it was validated.
        at: Revision,
        /// The values of the keys of `expect`, in its order, so that a retry needs no read.
        found: Vec<Option<KeyValue>>,
    },
}

/// A part of a list, in key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The revision of the whole page.
    pub at: Revision,
    /// The values.
    pub items: Vec<KeyValue>,
    /// The unreadable values among the items: they exist, too. A page that ends early includes those up to its last value.
    pub damaged: Vec<Damaged>,
    /// Whether more follow the last one.
    pub more: bool,
    /// The number of remaining values, if the engine knows it.
    pub remaining: Option<u64>,
}

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The key was created or replaced.
    Put,
    /// The key was deleted.
    Delete,
}

/// One change, as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision of the event.
    pub at: Revision,
    /// The type of the event.
    pub kind: EventKind,
    /// The value after a put; after a delete, the key with the last value, and the deletion's revision as `modified`.
    pub now: KeyValue,
    /// The value before, if any.
    pub before: Option<KeyValue>,
}

/// The error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The history before `oldest` was compacted.
    #[error("revision compacted; the oldest kept is {}", oldest.0)]
    Compacted {
        /// The oldest available revision.
        oldest: Revision,
    },
    /// The revision is in the future. (A watch waits for it instead.)
    #[error("revision is in the future; the newest is {}", newest.0)]
    Future {
        /// The newest revision.
        newest: Revision,
    },
    /// An older copy, such as a restored snapshot, has replaced the store. Its revisions are unrelated to those that were read
    /// before.
    #[error("the store went back to revision {}: it was replaced by an older copy", newest.0)]
    WentBack {
        /// The newest revision.
        newest: Revision,
    },
    /// A value or a transaction exceeds the engine's limit.
    #[error("the key or the transaction exceeds {limit} bytes or {TXN_OPERATIONS_MAX} operations")]
    TooLarge {
        /// The bound in octets.
        limit: usize,
    },
    /// The engine is unreachable or shutting down; nothing was written.
    #[error("the store is unavailable")]
    Unavailable,
    /// The disk has too little free space for a write that enlarges the store; nothing was written. The condition ends when space
    /// is freed.
    #[error("the disk of the store is full: it has less than {} MiB left", needed >> 20)]
    Full {
        /// The required free space in octets.
        needed: u64,
    },
    /// The cluster has reached its maximum size, and accepts only deletions until an operator frees space; nothing was written.
    #[error("etcd is full (alarm NOSPACE)")]
    NoSpace,
    /// The engine did not respond: the transaction may or may not have been committed.
    #[error("the outcome of the write is unknown")]
    OutcomeUnknown,
    /// The value of this key is damaged. The key exists, and nothing was written.
    #[error("the stored value of {} is damaged; see \"check store\"", key.0)]
    Damaged {
        /// The key.
        key: Key,
        /// The revision that wrote it.
        modified: Revision,
    },
    /// The stored data is invalid.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// Result of a store's operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An engine that keeps objects. Its methods are called within a Tokio runtime.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the newest revision (linearizable).
    async fn revision(&self) -> Result<Revision>;

    /// Returns the value of `key`, newest or at `at`, with the revision of the read.
    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)>;

    /// Returns the values under `prefix` from `from` on (inclusive), at `at` or newest, at most `limit`.
    async fn list(&self, prefix: &Key, from: Option<&Key>, at: Option<Revision>, limit: Option<usize>) -> Result<Page>;

    /// Commits `txn`; when this returns `Committed`, it is durable.
    async fn commit(&self, txn: Txn) -> Result<Outcome>;

    /// Returns the free space in octets that all writes require, if the disk is full.
    fn full(&self) -> Option<u64> {
        None
    }

    /// Returns whether the last request reached the engine.
    fn is_reachable(&self) -> bool {
        true
    }

    /// Returns the events under `prefix` after revision `after`: one whole revision per item, in order, without gaps.
    ///
    /// A watcher that reads slowly delays no other client and costs no memory: it reads from history until it has caught up. If
    /// the history that it needs was compacted meanwhile, it gets [`Error::Compacted`], and the stream ends. If `after` is in the
    /// future, the stream waits for it. When the engine closes, the stream returns [`Error::Unavailable`] and ends.
    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>>;

    /// Removes history before `upto`: the state at `upto` stays readable, and watches can start after it.
    async fn compact(&self, upto: Revision) -> Result<()>;

    /// Returns the known damage. An engine in memory has none.
    fn damage(&self) -> Arc<Damage> {
        Arc::default()
    }
}
