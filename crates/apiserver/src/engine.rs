//! The store behind the API server, with the engine's type forgotten.
//!
//! [`Store`] has `async fn`s and so cannot be a trait object. One box for each operation is nothing beside a commit, and
//! it keeps every handler free of a type parameter.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt};

use crate::store::{Damage, Event, Key, KeyValue, Outcome, Page, Result, Revision, Store, Txn};

/// [`Store`] as a trait object.
pub trait Engine: Send + Sync + 'static {
    /// [`Store::revision`].
    fn revision(&self) -> BoxFuture<'_, Result<Revision>>;
    /// [`Store::get`], newest.
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(Revision, Option<KeyValue>)>>;
    /// [`Store::list`].
    fn list<'a>(
        &'a self,
        prefix: &'a Key,
        from: Option<&'a Key>,
        at: Option<Revision>,
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Page>>;
    /// [`Store::commit`].
    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome>>;
    /// [`Store::commit_freeing`].
    fn commit_freeing(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome>>;
    /// [`Store::full`].
    fn full(&self) -> Option<u64>;
    /// [`Store::watch`].
    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>>;
    /// [`Store::damage`].
    fn damage(&self) -> Arc<Damage>;
}

impl<S: Store> Engine for S {
    fn revision(&self) -> BoxFuture<'_, Result<Revision>> {
        Box::pin(Store::revision(self))
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<(Revision, Option<KeyValue>)>> {
        Box::pin(Store::get(self, key, None))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a Key,
        from: Option<&'a Key>,
        at: Option<Revision>,
        limit: Option<usize>,
    ) -> BoxFuture<'a, Result<Page>> {
        Box::pin(Store::list(self, prefix, from, at, limit))
    }

    fn commit(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(Store::commit(self, txn))
    }

    fn commit_freeing(&self, txn: Txn) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(Store::commit_freeing(self, txn))
    }

    fn full(&self) -> Option<u64> {
        Store::full(self)
    }

    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>> {
        Store::watch(self, prefix, after).boxed()
    }

    fn damage(&self) -> Arc<Damage> {
        Store::damage(self)
    }
}

/// A key.
pub fn key(prefix: &str, relative: &str) -> Key {
    Key(format!("{prefix}{relative}").into_boxed_str())
}

/// The key of a value under `prefix`, without it.
pub fn relative<'a>(prefix: &str, key: &'a Key) -> &'a str {
    key.0.strip_prefix(prefix).unwrap_or(&key.0)
}

/// A body's octets as the store takes them.
pub fn value(octets: Vec<u8>) -> Bytes {
    octets.into_boxed_slice().into()
}
