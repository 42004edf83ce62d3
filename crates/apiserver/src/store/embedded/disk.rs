//! The store's file below `redb`: what [`FileBackend`] does, and a note of a sync that failed.
//!
//! Linux reports once that a page could not be written back. It then takes the page for clean, so that a second sync
//! succeeds and a read returns what is not on the disk. After a failed sync nothing that is read from the file can be
//! trusted, and the process ends; the next one has the system drop its copy of the file before it reads any of it
//! ([`open`]), so that what it starts with is what the disk holds.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::files;

/// The first failure to sync the file, as text.
pub(in crate::store) type SyncError = Arc<OnceLock<String>>;

/// The file, as `redb` uses it.
#[derive(Debug)]
pub(in crate::store) struct Disk {
    file: FileBackend,
    sync_error: SyncError,
    before_sync: fn() -> io::Result<()>,
}

/// Opens the file, or makes it.
///
/// # Errors
///
/// What the system says; among others if it could not write the file back.
pub(in crate::store) fn open(
    path: &Path,
    before_sync: fn() -> io::Result<()>,
    sync_error: SyncError,
) -> Result<Disk, redb::Error> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    // What is not written yet is written, the rest is forgotten.
    file.sync_data().inspect_err(|error| note(&sync_error, error))?;
    files::forget_cached(&file)?;
    Ok(Disk { file: FileBackend::new(file)?, sync_error, before_sync })
}

/// The first error is the cause of the others.
fn note(sync_error: &SyncError, error: &io::Error) {
    let _ = sync_error.set(error.to_string());
}

impl StorageBackend for Disk {
    fn sync_data(&self) -> io::Result<()> {
        (self.before_sync)().and_then(|()| self.file.sync_data()).inspect_err(|error| note(&self.sync_error, error))
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}
