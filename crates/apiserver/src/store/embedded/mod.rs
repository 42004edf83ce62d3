//! The engine of one process: one ACID file (`redb`) in the data directory, without other services.
//!
//! Reads run on the caller's side against a snapshot of the file and never wait for a writer. Writes go through one queue to one
//! thread (`writer`) that commits them in groups, each group with one fsync, and only then answers. So revisions have one order,
//! and an acknowledged write survives `kill -9` and loss of power. `tables` has the layout of the file, `seal` its checksums,
//! `damage` the damaged values, and `origin` detects a replaced file.

pub mod damage;
pub(super) mod disk;
mod files;
mod listing;
pub(super) mod origin;
pub(super) mod prepare;
mod reserve;
mod retention;
pub mod seal;
pub(super) mod tables;
pub mod verify;
mod writer;

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use parking_lot::RwLock;
use redb::{Database, ReadableDatabase};
use tokio::sync::{Semaphore, oneshot};

use self::damage::Damage;
use self::disk::{Disk, SyncError};
use self::reserve::Reserve;
use self::tables::Reader;
use self::verify::Verified;
use self::writer::{Job, Writer};
use super::feed::{self, Committed, Feed, History};
use super::{
    EXPIRING_MAX, Error, Event, HISTORY_REVISIONS_MIN, Key, KeyValue, Outcome, Page, Result, Revision, Store, Txn,
};
use signpost_runtime::ending::ExitReport;

/// The format of the file that this version writes and reads.
pub const FORMAT: u64 = 3;

/// The name of the file in the data directory.
pub const FILE_NAME: &str = "store.redb";

/// The name of the file whose lock marks the data directory as in use.
pub const LOCK_NAME: &str = "lock";

/// The maximum number of transactions in the writer's queue; others wait in their callers. Four groups: enough that the writer
/// never starves, few enough that the wait stays at a few fsyncs.
const QUEUE_MAX: usize = 4 * writer::GROUP_MAX;

/// The minimum size of a file for compaction at open.
const COMPACT_OCTETS_MIN: u64 = 16 * 1024 * 1024;

/// The options of an embedded store, for operators and tests.
#[derive(Clone)]
pub struct Options {
    /// The size of the file's cache in memory, in octets. The watch cache above serves reads of objects, so this is mainly for
    /// the upper levels of the trees.
    pub cache_octets: usize,
    /// The approximate maximum number of writes with a time to live. Beyond it, those that would expire first are removed.
    pub expiring_max: u64,
    /// The age from which history is removed, and the interval of removal; `None` keeps all until a call of `compact`.
    pub history: Option<Duration>,
    /// The minimum number of revisions to keep, regardless of age.
    pub history_revisions_min: u64,
    /// The maximum size of history in bytes, of any age: superseded values and deletions.
    pub history_bytes_max: u64,
    /// The clock by which keys with a time to live end.
    pub now: fn() -> SystemTime,
    /// The free disk space that writes require, in octets: more than one commit needs, so that a full disk is detected before a
    /// write and not during one.
    pub room_octets: u64,
    /// The disk space to reserve at the start for deletions and compaction on a full disk, in octets.
    pub reserve_octets: u64,
    /// Called before each sync of the file; its error counts as an error of the sync. For tests.
    pub before_sync: fn() -> io::Result<()>,
    /// The maximum size of a file to verify before the store is used; a larger file is verified in the background.
    pub verified_first_bytes_max: u64,
    /// Converts a value when the file is older than the store that was here before (`origin`).
    pub moved_on: fn(&KeyValue) -> Option<Bytes>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            cache_octets: 12 * 1024 * 1024,
            expiring_max: EXPIRING_MAX,
            history: Some(Duration::from_secs(300)),
            history_revisions_min: HISTORY_REVISIONS_MIN,
            history_bytes_max: 128 << 20,
            now: SystemTime::now,
            room_octets: 32 << 20,
            reserve_octets: 16 << 20,
            before_sync: || Ok(()),
            verified_first_bytes_max: verify::FIRST_BYTES_MAX,
            moved_on: |_| None,
        }
    }
}

/// The error of opening a data directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{}: another process uses this data directory; stop it, or set another directory with --data-dir", path.display())]
    InUse {
        /// The lock file.
        path: PathBuf,
    },
    /// Another version of this program wrote it.
    #[error(
        "{}: it has format {found}, and this version reads format {FORMAT}; run the version that wrote it, or restore a \
         backup into an empty data directory", path.display()
    )]
    OtherFormat {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: u64,
    },
    /// The file is not a store, or is damaged.
    #[error(
        "{}: not a readable store ({reason}); run \"check store\" for what can be read, then move the file away and \
         restore a backup with \"restore\"", path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The file is empty or missing, and the directory is not new.
    #[error(
        "{}: the store {what}, but the directory is not new: {} exists; put the store back, or restore a backup with \
         \"restore\" (move an empty file away first); to start without objects, set another directory with --data-dir",
        path.display(), sign.display()
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// The problem of the file.
        what: &'static str,
        /// The file that proves an earlier store.
        sign: PathBuf,
    },
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// A handle to an embedded store. Clones share it. The drop of the last one lets the writer finish its work, closes the file,
/// and releases the lock.
#[derive(Clone)]
pub struct Embedded {
    handle: Arc<Handle>,
}

/// The state that all clones share; its `Drop` closes the store.
struct Handle {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Job>>,
    /// One permit for each transaction that may be in the queue.
    room: Arc<Semaphore>,
    writer: Option<JoinHandle<()>>,
    /// The thread that writes the highest revision down, and what ends it.
    keeper: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
    /// The thread that verifies a large file, and what ends it.
    verifier: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

/// The state that the writer, the readers, and the watchers share.
pub(super) struct Shared {
    /// `None` while the writer reopens it after a failure.
    database: RwLock<Option<Database>>,
    path: PathBuf,
    feed: Feed,
    damage: Arc<Damage>,
    /// Whether the writer accepted writes at its last try.
    writable: Arc<AtomicBool>,
    /// The required free disk space while less is free, otherwise 0.
    full: AtomicU64,
    /// The report of an unexpected end of the writer.
    ending: ExitReport,
    sync_error: SyncError,
    before_sync: fn() -> io::Result<()>,
    /// Held as long as the database is in use.
    lock: File,
}

impl Embedded {
    /// Opens or makes the store in `data_dir`. Blocks while a file that was not closed is checked.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; nothing was changed then.
    pub fn open(data_dir: &Path, options: Options) -> std::result::Result<Self, OpenError> {
        create(data_dir)?;
        let lock = lock(data_dir)?;
        let path = data_dir.join(FILE_NAME);
        let reserve = Reserve::open(data_dir, options.reserve_octets);
        // The steps of the open already need some space.
        reserve.make_room(&lock);
        let sync_error = SyncError::default();
        let damage = Arc::new(Damage::new(path.clone()));
        let is_there = origin::check_present(data_dir)?;
        let open = || open_prepared(data_dir, is_there, &options, &damage, &lock, &sync_error);
        let broken = |()| OpenError::Corrupt { path: path.clone(), reason: "its pages contradict each other".into() };
        let (database, newest, is_verified) = damage::catch(open).map_err(broken)??;
        // A data directory is a new directory entry; it, too, has to be on disk before the first write is acknowledged.
        File::open(data_dir)
            .and_then(|directory| directory.sync_all())
            .map_err(|source| OpenError::Io { path: data_dir.into(), source })?;

        let database = RwLock::new(Some(database));
        let feed = Feed::new(newest);
        let (writable, ending) = (Arc::new(AtomicBool::new(true)), ExitReport::new());
        let before_sync = options.before_sync;
        let shared = Shared {
            database,
            path: path.clone(),
            feed,
            damage,
            writable,
            full: AtomicU64::new(0),
            ending,
            sync_error,
            before_sync,
            lock,
        };
        let shared = Arc::new(shared);
        let (queue, jobs) = mpsc::channel();
        let writer = Writer::new(shared.clone(), options, newest, reserve);
        let io = |source| OpenError::Io { path: path.clone(), source };
        let (damage, ending) = (Arc::clone(&shared.damage), shared.ending.clone());
        let work = move || match std::panic::catch_unwind(AssertUnwindSafe(|| writer.run(&jobs))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => ending.report(why),
            Err(panic) => {
                damage.break_off("its writer panicked");
                std::panic::resume_unwind(panic)
            }
        };
        let writer = shared.ending.spawn("store-writer", work).map_err(io)?;
        let (stop, stopped) = mpsc::channel();
        let (weak, directory) = (Arc::downgrade(&shared), data_dir.to_owned());
        let keep = move || origin::keep(&directory, &weak, &stopped);
        let keeper = shared.ending.spawn("store-identity", keep).map_err(io)?;
        let mut verifier = None;
        if !is_verified {
            let (stop, reads) = (Arc::<AtomicBool>::default(), Arc::downgrade(&shared));
            let stopped = Arc::clone(&stop);
            let thread = std::thread::Builder::new().name("store-verify".into());
            verifier = Some((stop, thread.spawn(move || verify::run(&reads, &stopped)).map_err(io)?));
        }
        let room = Arc::new(Semaphore::new(QUEUE_MAX));
        let (queue, writer, keeper) = (Some(queue), Some(writer), Some((stop, keeper)));
        Ok(Embedded { handle: Arc::new(Handle { shared, queue, room, writer, keeper, verifier }) })
    }

    /// Checks every checksum, and whether the file's tables agree. Blocks as long as it takes to read the file.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if the file cannot be used at all.
    pub fn verify(&self) -> Result<Verified> {
        let shared = &self.handle.shared;
        shared.damage.guard(|| verify::verify(&shared.reader()?, || true))
    }

    /// Sends the writer a job and waits for its answer.
    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T>>) -> writer::Task) -> Result<T> {
        let permit = self.handle.room.clone().acquire_owned().await.map_err(|_| Error::Unavailable)?;
        let (answer, answered) = oneshot::channel();
        let queue = self.handle.queue.as_ref().ok_or(Error::Unavailable)?;
        queue.send(Job { task: job(answer), _permit: permit }).map_err(|_| Error::Unavailable)?;
        // The writer answers all that it takes; silence means that it died with the job in its hands.
        answered.await.unwrap_or(Err(Error::OutcomeUnknown))
    }

    /// Runs a read that may take long off the async threads.
    async fn read<T: Send + 'static>(&self, read: impl FnOnce(Reader) -> Result<T> + Send + 'static) -> Result<T> {
        let shared = self.handle.shared.clone();
        tokio::task::spawn_blocking(move || shared.read(read)).await.map_err(|_| Error::Unavailable)?
    }

    /// Returns whether writes are taken: not while the disk is full or the file fails. Shared with the writer, which keeps it
    /// true as far as it knows from its last try.
    pub fn writable(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.handle.shared.writable)
    }

    /// Waits until the store ends by itself, which it does when its file cannot be trusted any more or its writer panics, and
    /// returns why. No write is taken from then on: the process must end.
    pub fn ended(&self) -> impl Future<Output = String> + Send + use<> {
        self.handle.shared.ending.reported()
    }

    /// Returns a snapshot for a backup.
    pub(super) fn reader(&self) -> Result<Reader> {
        self.handle.shared.reader()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has reported it; there is nothing left to do about it here.
            drop(writer.join());
        }
        if let Some((stop, verifier)) = self.verifier.take() {
            // As long as it reads, the file is open.
            stop.store(true, Ordering::Relaxed);
            drop(verifier.join());
        }
        if let Some((stop, keeper)) = self.keeper.take() {
            drop(stop);
            drop(keeper.join());
        }
    }
}

#[async_trait]
impl Store for Embedded {
    async fn revision(&self) -> Result<Revision> {
        Ok(self.handle.shared.feed.newest())
    }

    async fn get(&self, key: &Key, at: Option<Revision>) -> Result<(Revision, Option<KeyValue>)> {
        // A few microseconds: cheaper than a change of threads.
        let newest = self.handle.shared.feed.newest();
        self.handle.shared.read(|reader| reader.get(key, Some(at.unwrap_or_else(|| reader.published(newest)))))
    }

    async fn list(&self, prefix: &Key, from: Option<&Key>, at: Option<Revision>, limit: Option<usize>) -> Result<Page> {
        let (prefix, from, newest) = (prefix.clone(), from.cloned(), self.handle.shared.feed.newest());
        let at = move |reader: &Reader| Some(at.unwrap_or_else(|| reader.published(newest)));
        self.read(move |reader| reader.list(&prefix, from.as_ref(), at(&reader), limit)).await
    }

    async fn commit(&self, txn: Txn) -> Result<Outcome> {
        txn.check()?;
        self.ask(|answer| writer::Task::Commit { txn, answer }).await
    }

    fn full(&self) -> Option<u64> {
        Some(self.handle.shared.full.load(Ordering::Relaxed)).filter(|needed| *needed > 0)
    }

    fn watch(&self, prefix: &Key, after: Revision) -> BoxStream<'static, Result<Vec<Event>>> {
        feed::watch(&self.handle.shared, prefix, after).boxed()
    }

    async fn compact(&self, upto: Revision) -> Result<()> {
        self.ask(|answer| writer::Task::Compact(upto, answer)).await
    }

    fn damage(&self) -> Arc<Damage> {
        Arc::clone(&self.handle.shared.damage)
    }
}

impl Shared {
    fn reader(&self) -> Result<Reader> {
        let transaction =
            self.with_database(Database::begin_read)?.map_err(|error| tables::unavailable(error.into()))?;
        Reader::new(&transaction).map_err(tables::unavailable)
    }

    /// Reads the file. An error that shows damage of the whole file is reported.
    fn read<T>(&self, read: impl FnOnce(Reader) -> Result<T>) -> Result<T> {
        let read = self.damage.guard(|| read(self.reader()?))?;
        Ok(read)
    }

    /// Applies `of` to the database if it is open. A failure to reopen it leaves it closed, not half open, so the data is
    /// consistent even if the lock is poisoned.
    fn with_database<T>(&self, of: impl FnOnce(&Database) -> T) -> Result<T> {
        let database = self.database.read();
        database.as_ref().map(of).ok_or(Error::Unavailable)
    }

    /// Moves what is in the file together, and gives the rest of it back to the disk. Not while something is read; whether it
    /// was done.
    fn shrink(&self) -> std::result::Result<bool, redb::Error> {
        let mut place = self.database.write();
        match place.as_mut().map(Database::compact) {
            Some(Err(redb::CompactionError::TransactionInProgress)) | None => Ok(false),
            Some(done) => Ok(done.map(|_| true)?),
        }
    }

    /// Returns the unused space within the file.
    fn unused(&self) -> std::result::Result<u64, redb::Error> {
        let used = self.with_database(|database| {
            let transaction = database.begin_write()?;
            let stats = transaction.stats()?;
            transaction.abort()?;
            Ok::<_, redb::Error>(stats.allocated_pages() * stats.page_size() as u64)
        });
        let used = used.map_err(|_| redb::Error::DatabaseClosed)??;
        Ok((std::fs::metadata(&self.path)?.blocks() * 512).saturating_sub(used))
    }

    /// Closes the database after a failure and reopens it, which resets the file to its last commit. Returns the newest revision
    /// in it. If that fails, the database stays closed.
    fn reopen(&self, cache_octets: usize) -> std::result::Result<Revision, OpenError> {
        let mut place = self.database.write();
        // The file is closed first: it can be open only once.
        drop(place.take());
        let file = || disk::open(&self.path, self.before_sync, self.sync_error.clone());
        let (mut database, disk) = open_database(&self.path, cache_octets, file)?;
        accept(&self.path, &mut database, &disk)?;
        let newest = prepare::prepare(&database).map_err(|error| error.at(&self.path))?;
        *place = Some(database);
        Ok(newest)
    }
}

impl History for Shared {
    fn feed(&self) -> &Feed {
        &self.feed
    }

    fn compacted(&self) -> Result<Revision> {
        self.read(|reader| Ok(reader.compacted()))
    }

    fn history(&self, after: Revision) -> Result<Vec<Committed>> {
        self.read(|reader| reader.history(after))
    }
}

/// Opens the file, or creates it, and checks what is quick to check. Returns it with its newest revision, and whether it was
/// verified.
fn open_prepared(
    data_dir: &Path,
    is_there: bool,
    options: &Options,
    damage: &Damage,
    lock: &File,
    sync_error: &SyncError,
) -> std::result::Result<(Database, Revision, bool), OpenError> {
    let path = data_dir.join(FILE_NAME);
    if !is_there {
        let unfinished = origin::unfinished(data_dir);
        let io = |source| OpenError::Io { path: unfinished.clone(), source };
        // The remains of an interrupted first start, or an empty file without evidence of an earlier store.
        files::private().truncate(true).open(&unfinished).map_err(io)?;
        let (database, disk) = open_plain(&unfinished, 0)?;
        disk.accept().map_err(io)?;
        prepare::prepare(&database).map_err(|error| origin::reported(&unfinished, error))?;
        drop(database);
        std::fs::rename(&unfinished, &path).map_err(io)?;
    }
    let file = || disk::open(&path, options.before_sync, sync_error.clone());
    let (mut database, disk) = open_database(&path, options.cache_octets, file)?;
    origin::check_tables(data_dir, &database)?;
    let octets = std::fs::metadata(&path).map_or(0, |file| file.len());
    let is_verified = octets <= options.verified_first_bytes_max;
    let is_store = prepare::written(&database).map_err(|error| origin::reported(&path, error))?.is_some();
    if is_verified && is_store {
        let begun = Instant::now();
        let reader = database.begin_read().map_err(redb::Error::from).and_then(|begun| Reader::new(&begun));
        let verified = reader.map_err(tables::unavailable).and_then(|reader| verify::verify(&reader, || true));
        let corrupt = |error: Error| OpenError::Corrupt { path: path.clone(), reason: error.to_string() };
        verify::report(&verified.map_err(corrupt)?, begun, damage);
    }
    let room = files::free_octets(lock).is_ok_and(|free| free >= options.room_octets);
    if is_store && room {
        origin::try_write(&database).map_err(|error| origin::reported(&path, error))?;
    }
    // Only now is the file written.
    accept(&path, &mut database, &disk)?;
    let newest = prepare::prepare(&database).map_err(|error| origin::reported(&path, error))?;
    let newest = origin::settle(data_dir, &database, newest, options.moved_on, room);
    Ok((database, newest.map_err(|error| origin::reported(&path, error))?, is_verified))
}

/// Creates a missing data directory, accessible only to its owner.
pub(super) fn create(data_dir: &Path) -> std::result::Result<(), OpenError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir);
    made.map_err(|source| OpenError::Io { path: data_dir.into(), source })
}

/// Locks a data directory while the returned file is open.
pub(super) fn lock(data_dir: &Path) -> std::result::Result<File, OpenError> {
    let path = data_dir.join(LOCK_NAME);
    let file = files::private().open(&path);
    let file = file.map_err(|source| OpenError::Io { path: path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path }),
        Err(TryLockError::Error(source)) => Err(OpenError::Io { path, source }),
    }
}

/// Opens a database file that only this call uses. It is not written before it is accepted.
pub(super) fn open_plain(path: &Path, cache_octets: usize) -> std::result::Result<(Database, Disk), OpenError> {
    open_database(path, cache_octets, || disk::open(path, || Ok(()), SyncError::default()))
}

/// Opens the file, and checks it if it was not closed. It is not written before it is accepted.
pub(super) fn open_database(
    path: &Path,
    cache_octets: usize,
    file: impl FnOnce() -> std::result::Result<Disk, redb::Error>,
) -> std::result::Result<(Database, Disk), OpenError> {
    faults(path, || {
        let disk = file()?;
        Ok((Database::builder().set_cache_size(cache_octets).create_with_backend(disk.clone())?, disk))
    })
}

/// Lets the file be written, and gives free space back to the system if that is most of it.
fn accept(path: &Path, database: &mut Database, disk: &Disk) -> std::result::Result<(), OpenError> {
    faults(path, || {
        disk.accept()?;
        let octets = std::fs::metadata(path)?.len();
        if octets >= COMPACT_OCTETS_MIN {
            let transaction = database.begin_write()?;
            let stats = transaction.stats()?;
            transaction.abort()?;
            let used = stats.allocated_pages() * stats.page_size() as u64;
            if used < octets / 2 {
                database.compact()?;
            }
        }
        Ok(())
    })
}

/// Converts the error of work on a database file.
fn faults<T>(
    path: &Path,
    work: impl FnOnce() -> std::result::Result<T, redb::Error>,
) -> std::result::Result<T, OpenError> {
    let corrupt = |reason: String| OpenError::Corrupt { path: path.into(), reason };
    match damage::catch(work) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(redb::Error::DatabaseAlreadyOpen)) => Err(OpenError::InUse { path: path.into() }),
        Ok(Err(redb::Error::Io(source))) if source.kind() != std::io::ErrorKind::InvalidData => {
            Err(OpenError::Io { path: path.into(), source })
        }
        Ok(Err(error)) => Err(corrupt(error.to_string())),
        Err(()) => Err(corrupt("its pages contradict each other".into())),
    }
}
