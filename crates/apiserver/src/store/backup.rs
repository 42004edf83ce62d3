//! Backup of a store while it is in use, and restore into an empty data directory or into an empty store.
//!
//! ```text
//! "signpost store backup\n" format(8) revision(8)
//! (1 key-length(4) key created(8) modified(8) deadline(8) value-length(4) value)*   deadline 0 = none
//! (2 key-length(4) key)*                                    values that are damaged in the store; if there are any
//! 0 SHA-256 of everything before(32)
//! ```
//!
//! Numbers are little-endian. A backup is one revision, without history. A restore advances the revision by [`REVISION_JUMP`] and
//! treats everything before it as compacted. A client that had seen later writes than the backup's must then list again.
//! Otherwise, it would wait indefinitely, or miss writes that reuse their revisions.

use std::io::Read;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;

use super::embedded::tables::{Reader, WriteTables};
use super::embedded::{Embedded, FILE_NAME, LOCK_NAME, OpenError, create, lock, open_plain};
use super::embedded::{origin, prepare};
use super::{
    Damaged, Error, KEY_OCTETS_MAX, Key, KeyValue, Outcome, Revision, Store, TXN_OCTETS_MAX, TXN_OPERATIONS_MAX, Txn,
    Write,
};

/// The amount by which a restore advances the revision: more than the number of writes since any backup, as etcd advises.
pub const REVISION_JUMP: u64 = 1_000_000_000;

/// The format of backups that this version writes and reads.
const FORMAT: u64 = 3;

const MAGIC: &[u8] = b"signpost store backup\n";

/// The cache of the file during a restore, in octets. Revisions are in no order, so a large backup would read and write the same pages
/// many times without it.
const CACHE_OCTETS: usize = 512 * 1024 * 1024;

/// The maximum number of values in memory.
const PAGE_VALUES: usize = 1_000;

/// The error of a backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// An I/O error of the output.
    #[error("writing the backup: {0}")]
    Write(#[from] std::io::Error),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The error of a restore. The data directory is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// There is a store already.
    #[error("{}: a store already exists; restore into an empty data directory", .0.display())]
    Exists(PathBuf),
    /// There are objects already.
    #[error(
        "the store already has objects, such as {0}; restore into an empty store, such as under another \"etcd.prefix\""
    )]
    NotEmpty(String),
    /// An earlier restore broke off.
    #[error("a restore into this store was interrupted; delete all keys below \"etcd.prefix\", and restore again")]
    Unfinished,
    /// The store failed.
    #[error("the store: {0}")]
    Store(#[from] Error),
    /// The backup could not be read.
    #[error("reading the backup: {0}")]
    Read(std::io::Error),
    /// The data is not a backup, is truncated, or was modified.
    #[error("incomplete or damaged backup: {0}")]
    Damaged(&'static str),
    /// Another version wrote it.
    #[error(
        "the backup has format {found}, and this version reads format {FORMAT}; restore it with the version that wrote it"
    )]
    OtherFormat {
        /// The format it has.
        found: u64,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The new file could not be written.
    #[error("writing the store: {0}")]
    Write(#[from] redb::Error),
}

/// Writes the current contents of `store` to `to` and returns their revision. Writes to the store continue meanwhile.
///
/// # Errors
///
/// See [`BackupError`]. The output is then not a whole backup, and [`restore`] rejects it.
pub fn backup(store: &Embedded, to: &mut dyn std::io::Write) -> Result<Revision, BackupError> {
    let reader = store.reader()?;
    let mut writer = Writer::begin(to, reader.newest())?;
    let deadlines: std::collections::HashMap<(Key, Revision), u64> =
        reader.deadlines()?.into_iter().map(|(deadline, key, revision)| ((key, revision), deadline)).collect();
    let mut left_out = Vec::new();
    each(&reader, &mut left_out, |item| {
        let deadline = deadlines.get(&(item.key.clone(), item.modified)).copied().unwrap_or(0);
        if item.key.is_internal() { Ok(()) } else { writer.value(item, deadline) }
    })?;
    left_out.iter().for_each(|damaged| store.damage().note(damaged));
    left_out.iter().try_for_each(|damaged| writer.damaged(&damaged.key))?;
    writer.end()?;
    Ok(reader.newest())
}

/// Writes the format of a backup. Values come first, in key order, and then what is damaged.
pub struct Writer<'a>(Hashing<'a, dyn std::io::Write + 'a>);

impl<'a> Writer<'a> {
    /// Returns a backup of what is stored at `revision`.
    pub fn begin(to: &'a mut dyn std::io::Write, revision: Revision) -> std::io::Result<Self> {
        let mut to = Hashing { inner: to, hash: Context::new(&SHA256) };
        to.write_all(MAGIC)?;
        to.write_all(&FORMAT.to_le_bytes())?;
        to.write_all(&revision.0.to_le_bytes())?;
        Ok(Writer(to))
    }

    /// Adds a value that lives until `deadline`, in milliseconds since 1970; 0: without a deadline.
    pub fn value(&mut self, item: &KeyValue, deadline: u64) -> std::io::Result<()> {
        let Writer(to) = self;
        to.write_all(&[1])?;
        to.write_all(&length(item.key.0.len()))?;
        to.write_all(item.key.0.as_bytes())?;
        for number in [item.created.0, item.modified.0, deadline] {
            to.write_all(&number.to_le_bytes())?;
        }
        to.write_all(&length(item.value.len()))?;
        to.write_all(&item.value)
    }

    fn damaged(&mut self, key: &Key) -> std::io::Result<()> {
        let Writer(to) = self;
        to.write_all(&[2])?;
        to.write_all(&length(key.0.len()))?;
        to.write_all(key.0.as_bytes())
    }

    /// Ends it with its hash.
    pub fn end(self) -> std::io::Result<()> {
        let Writer(mut to) = self;
        to.write_all(&[0])?;
        let hash = to.hash.clone().finish();
        to.inner.write_all(hash.as_ref())?;
        to.inner.flush()
    }
}

fn length(octets: usize) -> [u8; 4] {
    u32::try_from(octets).expect("Txn::check bounds keys and values by TXN_OCTETS_MAX").to_le_bytes()
}

/// Calls `write` with every value, in key order.
fn each(
    reader: &Reader,
    left_out: &mut Vec<Damaged>,
    mut write: impl FnMut(&KeyValue) -> std::io::Result<()>,
) -> Result<(), BackupError> {
    let everything = Key("".into());
    let mut from: Option<Key> = None;
    loop {
        let page = reader.list(&everything, from.as_ref(), None, Some(PAGE_VALUES))?;
        for item in &page.items {
            write(item)?;
        }
        left_out.extend(page.damaged);
        match page.items.last() {
            Some(last) if page.more => from = Some(Key(format!("{}\0", last.key.0).into())),
            _ => return Ok(()),
        }
    }
}

/// Creates a store from a backup in `data_dir`, which has none; returns its first revision. `change` returns the replacement of a
/// value of the backup, if any; a replacement counts as written at the first revision.
///
/// # Errors
///
/// See [`RestoreError`]. The new store is moved into place only after the whole backup was read and its hash verified.
pub fn restore(
    data_dir: &Path,
    from: &mut impl Read,
    change: impl FnMut(&KeyValue) -> Option<Bytes>,
) -> Result<Revision, RestoreError> {
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| RestoreError::Open(OpenError::Io { path, source })
    };
    create(data_dir)?;
    let _lock = lock(data_dir)?;
    let path = data_dir.join(FILE_NAME);
    if path.exists() {
        return Err(RestoreError::Exists(path));
    }
    let unfinished = data_dir.join(format!("{FILE_NAME}.restoring"));
    if unfinished.exists() {
        std::fs::remove_file(&unfinished).map_err(io(&unfinished))?;
    }
    let revision = fill(&unfinished, from, change).inspect_err(|_| drop(std::fs::remove_file(&unfinished)))?;
    // Restored by root for a server that runs as another user: the files are that user's, as their directory is.
    let owner = std::fs::metadata(data_dir).map_err(io(data_dir))?;
    for file in [&unfinished, &data_dir.join(LOCK_NAME)] {
        if std::fs::metadata(file).map_err(io(file))?.uid() != owner.uid() {
            chown(file, Some(owner.uid()), Some(owner.gid())).map_err(io(file))?;
        }
    }
    std::fs::rename(&unfinished, &path).map_err(io(&path))?;
    // The history of the store that was here ends on purpose.
    origin::forget(data_dir).map_err(io(data_dir))?;
    std::fs::File::open(data_dir).and_then(|directory| directory.sync_all()).map_err(io(data_dir))?;
    Ok(revision)
}

/// Writes a backup into `store`, which has no objects; returns the revision of its last write. Values are written in the order of
/// their original writes, and those of one revision together. Their revisions are new. `change` is the same as for [`restore`].
///
/// # Errors
///
/// See [`RestoreError`]. A restore that is interrupted leaves a mark, which [`check_whole`] finds.
pub async fn restore_into(
    store: &dyn Store,
    from: &mut impl Read,
    mut change: impl FnMut(&KeyValue) -> Option<Bytes>,
) -> Result<Revision, RestoreError> {
    check_whole(store).await?;
    let there = store.list(&Key("/".into()), None, None, Some(1_000)).await?;
    if let Some(item) = there.items.iter().find(|item| !item.key.is_internal()) {
        return Err(RestoreError::NotEmpty(item.key.0.to_string()));
    }
    let mut from = Contents::begin(from)?;
    let mut values = Vec::new();
    while let Some((mut item, deadline)) = from.next_value()? {
        if let Some(value) = change(&item) {
            item.value = value;
        }
        values.push((item, deadline));
    }
    values.sort_by_key(|(item, _)| item.modified);
    let mark = || Key(UNFINISHED.into());
    let put = |key, value, ttl| Write::Put { key, value, ttl };
    commit(store, vec![put(mark(), Bytes::new(), None)]).await?;
    let now = SystemTime::now();
    for revision in values.chunk_by(|(one, _), (other, _)| one.modified == other.modified) {
        for part in revision.chunks(TXN_OPERATIONS_MAX) {
            let alive = part.iter().filter_map(|(item, deadline)| {
                let ttl = match deadline {
                    0 => None,
                    deadline => Some((UNIX_EPOCH + Duration::from_millis(*deadline)).duration_since(now).ok()?),
                };
                Some(put(item.key.clone(), item.value.clone(), ttl))
            });
            commit(store, alive.collect()).await?;
        }
    }
    commit(store, vec![Write::Delete { key: mark() }]).await
}

/// The key that is there while a store is being restored.
const UNFINISHED: &str = "/!restore";

/// Fails if a restore into `store` was not completed.
///
/// # Errors
///
/// [`RestoreError::Unfinished`], or the store cannot be read.
pub async fn check_whole(store: &dyn Store) -> Result<(), RestoreError> {
    let (_, found) = store.get(&Key(UNFINISHED.into()), None).await?;
    if found.is_some() { Err(RestoreError::Unfinished) } else { Ok(()) }
}

async fn commit(store: &dyn Store, writes: Vec<Write>) -> Result<Revision, RestoreError> {
    match store.commit(Txn { writes, ..Txn::default() }).await? {
        Outcome::Committed(at) | Outcome::Refused { at, .. } => Ok(at),
    }
}

/// Makes the file of a backup. One transaction, so that a cut-off backup leaves nothing.
fn fill(
    path: &Path,
    from: &mut impl Read,
    mut change: impl FnMut(&KeyValue) -> Option<Bytes>,
) -> Result<Revision, RestoreError> {
    // Input that is not a backup creates no file.
    let mut from = Contents::begin(from)?;
    let (database, disk) = open_plain(path, CACHE_OCTETS)?;
    disk.accept().map_err(|source| OpenError::Io { path: path.into(), source })?;
    prepare::prepare(&database).map_err(|error| error.at(path))?;
    let transaction = database.begin_write().map_err(redb::Error::from)?;
    let mut tables = WriteTables::open(&transaction)?;
    let first = from.first();
    while let Some((mut item, deadline)) = from.next_value()? {
        if let Some(value) = change(&item) {
            (item.value, item.modified) = (value, first);
        }
        tables.restore(&item, deadline)?;
    }
    tables.start_at(first.0)?;
    drop(tables);
    transaction.commit().map_err(redb::Error::from)?;
    Ok(first)
}

/// The summary of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// The revision that it is.
    pub revision: Revision,
    /// The first revision of a store that is restored from it.
    pub first: Revision,
    /// The number of values.
    pub values: u64,
    /// The keys of values that were damaged in the store, and are not in the backup.
    pub damaged: Vec<Key>,
}

/// Reads a whole backup, checks its hash, and calls `each` with every value.
///
/// # Errors
///
/// See [`RestoreError`].
pub fn read(from: &mut impl Read, mut each: impl FnMut(KeyValue)) -> Result<Summary, RestoreError> {
    let mut from = Contents::begin(from)?;
    let mut values = 0;
    while let Some((item, _)) = from.next_value()? {
        values += 1;
        each(item);
    }
    Ok(Summary { revision: from.revision, first: from.first(), values, damaged: from.damaged })
}

/// [`read`], without making anything of it.
///
/// # Errors
///
/// See [`RestoreError`].
pub fn verify(from: &mut impl Read) -> Result<Summary, RestoreError> {
    read(from, drop)
}

/// The values of a backup, one after the other.
struct Contents<'a, T> {
    from: Hashing<'a, T>,
    revision: Revision,
    damaged: Vec<Key>,
}

impl<'a, T: Read> Contents<'a, T> {
    fn begin(from: &'a mut T) -> Result<Self, RestoreError> {
        let mut from = Hashing { inner: from, hash: Context::new(&SHA256) };
        if from.take(MAGIC.len())? != MAGIC {
            return Err(RestoreError::Damaged("it does not start with the header of a backup"));
        }
        let format = from.number(8)?;
        if format != FORMAT {
            return Err(RestoreError::OtherFormat { found: format });
        }
        let revision = Revision(from.number(8)?);
        if revision.0.checked_add(REVISION_JUMP).is_none() {
            return Err(RestoreError::Damaged("its revision is out of range"));
        }
        Ok(Contents { from, revision, damaged: Vec::new() })
    }

    /// Returns the first revision of a store that is restored from it.
    fn first(&self) -> Revision {
        Revision(self.revision.0 + REVISION_JUMP)
    }

    /// Returns the next value and its deadline; `None` at the end, when the hash was found to be right.
    fn next_value(&mut self) -> Result<Option<(KeyValue, u64)>, RestoreError> {
        let from = &mut self.from;
        let mut kind = from.take(1)?[0];
        while kind == 2 {
            self.damaged.push(from.key()?);
            kind = from.take(1)?[0];
        }
        match kind {
            0 => {
                let hash = from.hash.clone().finish();
                let stated = from.take(hash.as_ref().len())?;
                return if stated == hash.as_ref() {
                    Ok(None)
                } else {
                    Err(RestoreError::Damaged("its hash does not match"))
                };
            }
            1 => {}
            _ => return Err(RestoreError::Damaged("a record of unknown kind")),
        }
        let key = from.key()?;
        let (created, modified, deadline) = (from.number(8)?, from.number(8)?, from.number(8)?);
        let value = from.counted(TXN_OCTETS_MAX)?;
        if modified > self.revision.0 || created > modified {
            return Err(RestoreError::Damaged("a value newer than the backup"));
        }
        let item = KeyValue { key, value: value.into(), created: Revision(created), modified: Revision(modified) };
        Ok(Some((item, deadline)))
    }
}

/// A reader or writer that hashes what passes.
struct Hashing<'a, T: ?Sized> {
    inner: &'a mut T,
    hash: Context,
}

impl<T: std::io::Write + ?Sized> Hashing<'_, T> {
    fn write_all(&mut self, octets: &[u8]) -> std::io::Result<()> {
        self.hash.update(octets);
        self.inner.write_all(octets)
    }
}

impl<T: Read> Hashing<'_, T> {
    fn take(&mut self, count: usize) -> Result<Vec<u8>, RestoreError> {
        let mut octets = vec![0; count];
        self.inner.read_exact(&mut octets).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => RestoreError::Damaged("it is truncated"),
            _ => RestoreError::Read(error),
        })?;
        self.hash.update(&octets);
        Ok(octets)
    }

    /// Reads a little-endian number of `octets` octets, at most eight.
    fn number(&mut self, octets: usize) -> Result<u64, RestoreError> {
        Ok(self.take(octets)?.iter().rev().fold(0, |number, octet| number << 8 | u64::from(*octet)))
    }

    fn key(&mut self) -> Result<Key, RestoreError> {
        let key = String::from_utf8(self.counted(KEY_OCTETS_MAX)?);
        key.map(|key| Key(key.into())).map_err(|_| RestoreError::Damaged("a key that is not text"))
    }

    fn counted(&mut self, max: usize) -> Result<Vec<u8>, RestoreError> {
        let count = self.number(4)?;
        match usize::try_from(count) {
            Ok(count) if count <= max => self.take(count),
            _ => Err(RestoreError::Damaged("a key or value beyond the bound")),
        }
    }
}
