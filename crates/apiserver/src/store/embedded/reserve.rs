//! Disk space that is reserved at the start, for operations that must continue on a full disk: deletions, expiry of keys, and the
//! compaction that frees their space.
//!
//! The reserve is a file next to the store, with allocated blocks. When the disk is full, the store truncates it piece by piece,
//! right before a commit that needs space, so that other processes that fill the disk get little of it. When there is space
//! again, the reserve is refilled first.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::files;

/// Name of the file in the data directory.
const FILE: &str = "reserve";

/// The space for one commit on a full disk: the commits of [`super::writer`] then need less, unless objects are near their
/// maximum size.
const COMMIT_OCTETS: u64 = 4 << 20;
/// The minimum space for a commit attempt.
const COMMIT_OCTETS_MIN: u64 = 1 << 20;

/// The file, and how large it should be.
pub(super) struct Reserve {
    path: PathBuf,
    file: Option<File>,
    octets: u64,
}

impl Reserve {
    /// Opens the reserve in `directory` with its current size. The store also works without one, so an error is only logged.
    pub(super) fn open(directory: &Path, octets: u64) -> Self {
        let path = directory.join(FILE);
        let mut reserve = Reserve { path, file: None, octets };
        if octets > 0 {
            let opened = files::private().open(&reserve.path);
            reserve.file = opened.inspect_err(|error| reserve.complain(error)).ok();
        }
        reserve
    }

    /// Returns the number of missing octets.
    pub(super) fn missing(&self) -> u64 {
        if self.file.is_none() { 0 } else { self.octets - self.held() }
    }

    /// Returns the number of reserved octets.
    pub(super) fn held(&self) -> u64 {
        let held = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |data| data.blocks() * 512);
        held.min(self.octets)
    }

    /// Allocates the missing part; returns whether the reserve is complete. If that fails for a reason other than space, such as
    /// a missing permission, there is no reserve until the next start.
    pub(super) fn fill(&mut self) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| self.missing() > 0) else { return true };
        match files::allocate(file, self.octets) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => false,
            Err(error) => {
                self.complain(&error);
                self.file = None;
                true
            }
        }
    }

    /// Frees `octets` of the reserve, or its remainder.
    pub(super) fn release(&self, octets: u64) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.set_len(self.held().saturating_sub(octets)) {
            self.complain(&error);
        }
    }

    /// Sees to it that the disk has room for one commit, of the reserve if need be; whether it has. `file` is on the disk.
    pub(super) fn make_room(&self, file: &File) -> bool {
        // If the system does not report free space, the write will fail instead.
        let free = || files::free_octets(file).unwrap_or(u64::MAX);
        let before = free();
        if before < COMMIT_OCTETS {
            self.release(COMMIT_OCTETS - before);
            return free() >= COMMIT_OCTETS_MIN;
        }
        true
    }

    fn complain(&self, error: &io::Error) {
        let path = self.path.display();
        tracing::warn!(%path, %error, "failed to reserve disk space for deletions on a full disk");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_taken_given_back_in_pieces_and_taken_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut reserve = Reserve::open(directory.path(), 1 << 20);
        assert_eq!((reserve.held(), reserve.missing()), (0, 1 << 20));
        assert!(reserve.fill());
        assert_eq!((reserve.held(), reserve.missing()), (1 << 20, 0));
        reserve.release(1 << 18);
        assert_eq!((reserve.held(), reserve.missing()), (3 << 18, 1 << 18));
        assert_eq!(Reserve::open(directory.path(), 1 << 20).held(), 3 << 18, "it outlives the process");
        reserve.release(1 << 30);
        assert_eq!(reserve.held(), 0);
        assert!(reserve.fill());
        assert_eq!(reserve.missing(), 0);
        assert!(Reserve::open(directory.path(), 0).fill(), "none is wanted");
    }
}
