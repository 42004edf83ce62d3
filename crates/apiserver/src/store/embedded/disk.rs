//! The store's file below `redb`: the same as [`FileBackend`], with a record of failed syncs, and a stage for a file that is not
//! known to be good.
//!
//! Linux reports only once that a page could not be written back. It then treats the page as clean, so a second sync succeeds,
//! and a read returns data that is not on the disk. After a failed sync, data from the file cannot be trusted, and the process
//! ends. The next process makes the system drop its cached pages of the file before it reads any ([`open`]), so that it starts
//! with the contents of the disk.
//!
//! `redb` writes to a file as it opens it, and repairs one that was not closed, before it finds damage. A damaged file must not
//! change before an operator has saved the rest of it. Until [`Disk::accept`], all writes are therefore kept in memory. They are then done in
//! their order, with their syncs, so that a crash has the same effect as without the stage.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::files;

/// The first failure to sync the file, as text.
pub(in crate::store) type SyncError = Arc<OnceLock<String>>;

/// The size of a piece of the stage in octets.
const PIECE_OCTETS: u64 = 4096;

/// The file, as `redb` uses it. Clones share it.
#[derive(Debug, Clone)]
pub(in crate::store) struct Disk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: FileBackend,
    sync_error: SyncError,
    before_sync: fn() -> io::Result<()>,
    is_accepted: AtomicBool,
    stage: Mutex<Stage>,
}

/// The writes to a file that is not accepted yet.
#[derive(Debug)]
struct Stage {
    /// The length of the file with the writes.
    length: u64,
    /// The part of the file that the writes have not cut off.
    kept: u64,
    /// The contents of changed pieces, by their number.
    pieces: BTreeMap<u64, Vec<u8>>,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

/// Opens the file, or creates it. Writes are staged.
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
    let length = file.metadata()?.len();
    let stage = Stage { length, kept: length, pieces: BTreeMap::new(), steps: Vec::new() };
    let file = FileBackend::new(file)?;
    let (is_accepted, stage) = (AtomicBool::new(false), Mutex::new(stage));
    Ok(Disk(Arc::new(Inner { file, sync_error, before_sync, is_accepted, stage })))
}

impl Disk {
    /// Does the staged writes. From now on, the file is written directly.
    ///
    /// # Errors
    ///
    /// The error of the system; some of the writes may be done then.
    pub(in crate::store) fn accept(&self) -> io::Result<()> {
        let inner = &self.0;
        let mut stage = inner.stage.lock();
        for step in stage.steps.drain(..) {
            match step {
                Step::Write(offset, octets) => inner.file.write(offset, &octets)?,
                Step::Length(length) => inner.file.set_len(length)?,
                Step::Sync => inner.sync()?,
            }
        }
        stage.pieces.clear();
        inner.is_accepted.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns the stage, unless the file was accepted.
    fn stage(&self) -> Option<parking_lot::MutexGuard<'_, Stage>> {
        if self.0.is_accepted.load(Ordering::Acquire) {
            return None;
        }
        let stage = self.0.stage.lock();
        // It may have been accepted meanwhile.
        (!self.0.is_accepted.load(Ordering::Acquire)).then_some(stage)
    }
}

impl Inner {
    fn sync(&self) -> io::Result<()> {
        (self.before_sync)().and_then(|()| self.file.sync_data()).inspect_err(|error| note(&self.sync_error, error))
    }
}

impl Stage {
    /// Reads what the file would contain.
    fn read(&self, file: &FileBackend, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + out.len() as u64;
        if end > self.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let of_file = usize::try_from(self.kept.saturating_sub(offset)).unwrap_or(usize::MAX).min(out.len());
        if of_file > 0 {
            file.read(offset, &mut out[..of_file])?;
        }
        out[of_file..].fill(0);
        let first = offset / PIECE_OCTETS;
        for (number, piece) in self.pieces.range(first..end.div_ceil(PIECE_OCTETS).max(first)) {
            let begin = number * PIECE_OCTETS;
            let (from, to) = (begin.max(offset), (begin + PIECE_OCTETS).min(end));
            let (source, target) = ((from - begin) as usize, (from - offset) as usize);
            let count = (to - from) as usize;
            out[target..target + count].copy_from_slice(&piece[source..source + count]);
        }
        Ok(())
    }

    fn write(&mut self, file: &FileBackend, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        let length = self.length.max(end);
        for number in offset / PIECE_OCTETS..end.div_ceil(PIECE_OCTETS) {
            let begin = number * PIECE_OCTETS;
            if !self.pieces.contains_key(&number) {
                let mut piece = vec![0; PIECE_OCTETS as usize];
                let there = self.length.saturating_sub(begin).min(PIECE_OCTETS) as usize;
                self.read(file, begin, &mut piece[..there])?;
                self.pieces.insert(number, piece);
            }
            let (from, to) = (begin.max(offset), (begin + PIECE_OCTETS).min(end));
            if let Some(piece) = self.pieces.get_mut(&number) {
                let source = &data[(from - offset) as usize..(to - offset) as usize];
                piece[(from - begin) as usize..(to - begin) as usize].copy_from_slice(source);
            }
        }
        self.length = length;
        self.steps.push(Step::Write(offset, data.to_vec()));
        Ok(())
    }

    fn set_length(&mut self, length: u64) {
        self.kept = self.kept.min(length);
        self.pieces.retain(|number, _| number * PIECE_OCTETS < length);
        if let Some(piece) = self.pieces.get_mut(&(length / PIECE_OCTETS)) {
            piece[(length % PIECE_OCTETS) as usize..].fill(0);
        }
        self.length = length;
        self.steps.push(Step::Length(length));
    }
}

/// The first error is the cause of the others.
fn note(sync_error: &SyncError, error: &io::Error) {
    let _ = sync_error.set(error.to_string());
}

impl StorageBackend for Disk {
    fn sync_data(&self) -> io::Result<()> {
        match self.stage() {
            Some(mut stage) => stage.steps.push(Step::Sync),
            None => self.0.sync()?,
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        match self.stage() {
            Some(stage) => Ok(stage.length),
            None => self.0.file.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.stage() {
            Some(stage) => stage.read(&self.0.file, offset, out),
            None => self.0.file.read(offset, out),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        match self.stage() {
            Some(mut stage) => stage.set_length(len),
            None => self.0.file.set_len(len)?,
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.stage() {
            Some(mut stage) => stage.write(&self.0.file, offset, data),
            None => self.0.file.write(offset, data),
        }
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }

    // A database with one process waits for no lock and shares none: the other methods are not called.

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staged_file_reads_as_written_and_is_written_when_it_is_accepted() {
        let directory = tempfile::tempdir().expect("a directory");
        let [staged, direct] = ["staged", "direct"].map(|name| directory.path().join(name));
        let before: Vec<u8> = (0..20_000_u32).map(|at| at as u8).collect();
        for path in [&staged, &direct] {
            std::fs::write(path, &before).expect("is written");
        }
        let open = |path: &Path| open(path, || Ok(()), SyncError::default()).expect("opens");
        let (stage, file) = (open(&staged), open(&direct));
        file.accept().expect("nothing to write");
        let same = || {
            let read = |disk: &Disk| {
                let mut octets = vec![0; disk.len().expect("a length") as usize];
                disk.read(0, &mut octets).expect("reads");
                octets
            };
            assert!(read(&stage) == read(&file));
            let mut part = [[0; 5_000]; 2];
            let found = [&stage, &file].map(|disk| disk.read(3_000, &mut part[0]).is_ok());
            assert_eq!(found[0], found[1]);
            stage.read(3_000, &mut part[0]).and_then(|()| file.read(3_000, &mut part[1])).expect("reads");
            assert!(part[0] == part[1]);
        };
        type DiskStep<'a> = &'a dyn Fn(&Disk) -> io::Result<()>;
        let steps: [DiskStep<'_>; 8] = [
            &|disk| disk.write(10, b"near the start"),
            &|disk| disk.write(4_090, b"across two pieces"),
            &|disk| disk.set_len(9_000),
            &|disk| disk.sync_data(),
            &|disk| disk.set_len(30_000),
            &|disk| disk.write(8_990, &[7; 9_000]),
            &|disk| disk.set_len(8_995),
            &|disk| disk.set_len(16_384),
        ];
        for step in steps {
            for disk in [&stage, &file] {
                step(disk).expect("done");
            }
            same();
            assert!(std::fs::read(&staged).expect("is there") == before, "the file is unchanged");
        }
        stage.accept().expect("writes");
        same();
        for disk in [&stage, &file] {
            disk.write(0, b"direct").expect("writes");
        }
        assert!(std::fs::read(&staged).expect("is there") == std::fs::read(&direct).expect("is there"));
    }
}
