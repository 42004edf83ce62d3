//! One concrete type over all engines, since a trait with async methods cannot be a trait object.

use std::path::Path;
use std::sync::Arc;

use futures::Stream;
use futures::future::Either;

use super::embedded::{Embedded, OpenError, Options};
use super::memory::Memory;
use super::{Damage, Event, Key, KeyValue, Outcome, Page, Result, Revision, Store, Txn};

/// A handle to whichever engine was chosen. Clones share it; with the last one it is closed.
#[derive(Clone)]
pub enum Engine {
    /// Everything in memory, gone with the process.
    Memory(Memory),
    /// One file in a data directory.
    Embedded(Embedded),
}

impl Engine {
    /// An empty store in memory.
    pub fn memory() -> Self {
        Engine::Memory(Memory::new())
    }

    /// Opens the store in `data_dir`, made if it is not there. Blocks while a file that was not closed is checked.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing was changed then.
    pub fn open(data_dir: &Path, options: Options) -> std::result::Result<Self, OpenError> {
        Embedded::open(data_dir, options).map(Engine::Embedded)
    }

    /// Waits until the engine ends by itself, and returns why: see [`Embedded::ended`]. One in memory does not.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        match self {
            Engine::Memory(_) => Either::Left(futures::future::pending()),
            Engine::Embedded(engine) => Either::Right(engine.ended()),
        }
    }
}

impl Store for Engine {
    async fn revision(&self) -> Result<Revision> {
        match self {
            Engine::Memory(engine) => engine.revision().await,
            Engine::Embedded(engine) => engine.revision().await,
        }
    }

    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        match self {
            Engine::Memory(engine) => engine.get(key, at).await,
            Engine::Embedded(engine) => engine.get(key, at).await,
        }
    }

    async fn list(&self, prefix: &Key, from: Option<&Key>, at: Option<Revision>, limit: Option<usize>) -> Result<Page> {
        match self {
            Engine::Memory(engine) => engine.list(prefix, from, at, limit).await,
            Engine::Embedded(engine) => engine.list(prefix, from, at, limit).await,
        }
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        match self {
            Engine::Memory(engine) => engine.commit(txn).await,
            Engine::Embedded(engine) => engine.commit(txn).await,
        }
    }

    async fn commit_freeing(&self, txn: Txn) -> Result<Outcome> {
        match self {
            Engine::Memory(engine) => engine.commit_freeing(txn).await,
            Engine::Embedded(engine) => engine.commit_freeing(txn).await,
        }
    }

    fn full(&self) -> Option<u64> {
        match self {
            Engine::Memory(engine) => engine.full(),
            Engine::Embedded(engine) => engine.full(),
        }
    }

    fn watch(&self, prefix: &Key, after: Revision) -> impl Stream<Item = Result<Vec<Event>>> + Send + 'static {
        match self {
            Engine::Memory(engine) => Either::Left(engine.watch(prefix, after)),
            Engine::Embedded(engine) => Either::Right(engine.watch(prefix, after)),
        }
    }

    async fn compact(&self, upto: Revision) -> Result<()> {
        match self {
            Engine::Memory(engine) => engine.compact(upto).await,
            Engine::Embedded(engine) => engine.compact(upto).await,
        }
    }

    fn damage(&self) -> Arc<Damage> {
        match self {
            Engine::Memory(engine) => engine.damage(),
            Engine::Embedded(engine) => engine.damage(),
        }
    }
}
