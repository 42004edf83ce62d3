//! Check and repair of an embedded store that is not in use: the implementation of `signpost check store`.
//!
//! A check writes nothing, and does not compare the file with the last known revision. A repair is written as a further
//! revision, so that clients that reconnect see it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use redb::{Database, ReadableDatabase};

use super::embedded::damage;
use super::embedded::disk::Disk;
use super::embedded::tables::{self, Applied, Reader, WriteTables};
use super::embedded::verify::{self, Verified};
use super::embedded::{FILE_NAME, OpenError, lock, open_plain, prepare};
use super::{Error, Key, KeyValue, Txn, Write};

/// A store that only this process has open.
pub struct Offline {
    /// `None` only while this is dropped.
    database: Option<Database>,
    /// The file, which is written only if a repair is.
    disk: Disk,
    path: PathBuf,
    _lock: File,
}

impl Offline {
    /// Opens the store in `data_dir`.
    ///
    /// # Errors
    ///
    /// See [`OpenError`]; an [`OpenError::Io`] if there is none.
    pub fn open(data_dir: &Path) -> Result<Offline, OpenError> {
        let path = data_dir.join(FILE_NAME);
        let io = |source| OpenError::Io { path: path.clone(), source };
        let octets = std::fs::metadata(&path).map_err(io)?.len();
        let empty = || OpenError::Corrupt { path: path.clone(), reason: "it holds no store".to_owned() };
        if octets == 0 {
            return Err(empty());
        }
        let lock = lock(data_dir)?;
        guarded(&path, || {
            let (database, disk) = open_plain(&path, 0)?;
            match prepare::written(&database).map_err(|error| error.at(&path))? {
                None => Err(empty()),
                Some(_) => Ok(Offline { database: Some(database), disk, path: path.clone(), _lock: lock }),
            }
        })
    }

    /// Checks every checksum, and whether the tables agree.
    ///
    /// # Errors
    ///
    /// [`OpenError::Corrupt`] if the file cannot be used at all.
    pub fn verify(&self) -> Result<Verified, OpenError> {
        guarded(&self.path, || {
            let reader = self.reader()?;
            verify::verify(&reader, || true).map_err(|error| self.corrupt(error))
        })
    }

    /// Returns the intact values whose keys begin with `prefix`.
    ///
    /// # Errors
    ///
    /// [`OpenError::Corrupt`] if the file cannot be used at all.
    pub fn values(&self, prefix: &Key) -> Result<Vec<KeyValue>, OpenError> {
        guarded(&self.path, || {
            let page = self.reader()?.list(prefix, None, None, None).map_err(|error| self.corrupt(error))?;
            Ok(page.items)
        })
    }

    /// Deletes or replaces values, all of them in one revision or none.
    ///
    /// # Errors
    ///
    /// [`OpenError`] if the file cannot be written.
    pub fn mend(&self, writes: Vec<Write>) -> Result<(), OpenError> {
        guarded(&self.path, || {
            let revision = self.reader()?.newest().0 + 1;
            let fault = |error: redb::Error| prepare::PrepareError::from(error).at(&self.path);
            self.disk.accept().map_err(|error| fault(error.into()))?;
            let transaction = self.database().begin_write().map_err(|error| fault(error.into()))?;
            let mut opened = WriteTables::open(&transaction).map_err(fault)?;
            let applied = opened.apply(&Txn { writes, ..Txn::default() }, revision, SystemTime::now());
            if matches!(applied.map_err(fault)?, Applied::Changed(_)) {
                opened.set_newest(revision).map_err(fault)?;
                drop(opened);
                transaction.commit().map_err(|error| fault(error.into()))?;
            }
            Ok(())
        })
    }

    fn database(&self) -> &Database {
        self.database.as_ref().expect("it is there until this is dropped")
    }

    fn reader(&self) -> Result<Reader, OpenError> {
        let reader = self.database().begin_read().map_err(redb::Error::from).and_then(|begun| Reader::new(&begun));
        reader.map_err(|error| self.corrupt(tables::unavailable(error)))
    }

    fn corrupt(&self, error: Error) -> OpenError {
        OpenError::Corrupt { path: self.path.clone(), reason: error.to_string() }
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        let database = self.database.take();
        // redb reads pages as it closes a file, and panics if they contradict each other, which was reported before.
        let _ = damage::catch(|| drop(database));
    }
}

/// Converts a panic of redb, caused by contradictory pages, to an error.
fn guarded<T>(path: &Path, work: impl FnOnce() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let broken = |()| OpenError::Corrupt { path: path.into(), reason: "its pages contradict each other".to_owned() };
    damage::catch(work).map_err(broken)?
}
