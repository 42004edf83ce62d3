//! Where objects are kept: an ordered map of keys to octets with revisions, shaped like etcd.
//!
//! A [`Store`] gives every committed transaction one [`Revision`], lets any number of keys be compared and written at
//! once, lists a prefix as it was at a revision, and hands out a gapless stream of what happened since one. Nothing above
//! this module knows which engine is below.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;

/// The number of a committed transaction: greater than 0, growing, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A key such as `/signpost.dev/routes/ns/name`. Segments hold no `/`; prefixes end in `/`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Box<str>);

/// A stored value with the revisions that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyValue {
    /// Its key.
    pub key: Key,
    /// Its octets, which the store does not look into.
    pub value: Bytes,
    /// The revision that created the key (for the last time).
    pub created: Revision,
    /// The revision that wrote this value.
    pub modified: Revision,
}

/// What a transaction demands of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It does not exist.
    Absent,
    /// It was last written by this revision.
    At(Revision),
    /// It exists.
    Present,
}

/// One write of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Create or replace. With `ttl` the key is deleted by the store when that time has passed (events only).
    Put {
        /// The key.
        key: Key,
        /// The new value.
        value: Bytes,
        /// How long it lives, if not for ever.
        ttl: Option<Duration>,
    },
    /// Delete; an absent key is no error and no event.
    Delete {
        /// The key.
        key: Key,
    },
}

/// All or nothing: if every expectation holds, every write happens, in one revision. No key is written twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions; none means unconditional.
    pub expect: Vec<(Key, Expect)>,
    /// Writes, in no order.
    pub writes: Vec<Write>,
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable, at this revision.
    Committed(Revision),
    /// An expectation failed; nothing was written.
    Refused {
        /// The revision at which it was judged.
        at: Revision,
        /// What each key of `expect` held, in its order, so that a retry needs no read.
        found: Vec<Option<KeyValue>>,
    },
}

/// A part of a list, in key order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The revision the whole page shows.
    pub at: Revision,
    /// The values.
    pub items: Vec<KeyValue>,
    /// Whether more follow the last one.
    pub more: bool,
    /// How many more, where the engine knows.
    pub remaining: Option<u64>,
}

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created or replaced.
    Put,
    /// It was deleted.
    Delete,
}

/// One change, as watchers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The revision that did it.
    pub at: Revision,
    /// What it did.
    pub kind: EventKind,
    /// The value after a put; after a delete the key with the last value, `modified` being the deletion's revision.
    pub now: KeyValue,
    /// The value before, if there was one.
    pub before: Option<KeyValue>,
}

/// Why an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// History before `oldest` is gone.
    #[error("revision compacted; the oldest kept is {}", oldest.0)]
    Compacted {
        /// The oldest revision that can still be asked for.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision is in the future; the newest is {}", newest.0)]
    Future {
        /// The newest revision.
        newest: Revision,
    },
    /// A value or a transaction is over the engine's bound.
    #[error("larger than {limit} octets")]
    TooLarge {
        /// The bound in octets.
        limit: usize,
    },
    /// The engine cannot be reached or is shutting down; nothing was written.
    #[error("the store is unavailable")]
    Unavailable,
    /// The engine gave no answer: the transaction may or may not have been committed.
    #[error("the outcome of the write is not known")]
    OutcomeUnknown,
    /// What is stored cannot be understood.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

/// Result of a store's operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An engine that keeps objects.
pub trait Store: Send + Sync + 'static {
    /// The newest revision (linearizable).
    fn revision(&self) -> impl Future<Output = Result<Revision>> + Send;

    /// The value of `key`, newest or as of `at`, with the revision that was looked at.
    fn get(&self, key: &Key, at: Option<Revision>)
    -> impl Future<Output = Result<(Revision, Option<KeyValue>)>> + Send;

    /// Values under `prefix` from `from` on (inclusive), as of `at` or newest, at most `limit`.
    fn list(
        &self,
        prefix: &Key,
        from: Option<&Key>,
        at: Option<Revision>,
        limit: Option<usize>,
    ) -> impl Future<Output = Result<Page>> + Send;

    /// Commits `txn`; when this returns `Committed`, it is durable.
    fn commit(&self, txn: Txn) -> impl Future<Output = Result<Outcome>> + Send;

    /// What happens under `prefix` after revision `after`: whole revisions, in order, none left out.
    fn watch(&self, prefix: &Key, after: Revision) -> impl Stream<Item = Result<Vec<Event>>> + Send + 'static;

    /// Forgets history before `upto`.
    fn compact(&self, upto: Revision) -> impl Future<Output = Result<()>> + Send;
}
