//! The store's file below `redb`: the same as [`FileBackend`], with a record of failed syncs.
//!
//! Linux reports only once that a page could not be written back. It then treats the page as clean, so a second sync succeeds,
//! and a read returns data that is not on the disk. After a failed sync, data from the file cannot be trusted, and the process
//! ends. The next process makes the system drop its cached pages of the file before it reads any ([`open`]), so that it starts
//! with the contents of the disk.

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

/// Opens the file, or creates it.
///
/// # Errors
///
/// The error of the system, such as a failure to write the file back.
pub(in crate::store) fn open(
    path: &Path,
    before_sync: fn() -> io::Result<()>,
    sync_error: SyncError,
) -> Result<Disk, redb::Error> {
    let file = files::private().read(true).open(path)?;
    // Dirty pages are written; the others are dropped.
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
