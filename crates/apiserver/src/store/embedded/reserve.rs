//! Room on the disk that is set aside at start, for what has to go on when there is no other: deletions, keys that expire,
//! and the compaction that gives their room back.
//!
//! It is a file beside the store whose blocks belong to it. When the disk is full it is cut a piece at a time, right before a
//! commit that needs it, so that others who fill the disk get little of it. When there is room again it is made whole first.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::files;

/// Name of the file in the data directory.
const FILE: &str = "reserve";

/// How much room one commit is given on a full disk: what [`super::writer`] then puts into one takes less, unless objects are
/// near their largest.
const COMMIT_OCTETS: u64 = 4 << 20;
/// With less than this nothing is tried.
const COMMIT_OCTETS_MIN: u64 = 1 << 20;

/// The file, and how large it should be.
pub(super) struct Reserve {
    path: PathBuf,
    file: Option<File>,
    octets: u64,
}

impl Reserve {
    /// Opens the reserve in `directory`, as large as it is. Without one the store works all the same, so a fault is only told.
    pub(super) fn open(directory: &Path, octets: u64) -> Self {
        let path = directory.join(FILE);
        let mut reserve = Reserve { path, file: None, octets };
        if octets > 0 {
            let opened = File::options().create(true).truncate(false).write(true).open(&reserve.path);
            reserve.file = opened.inspect_err(|error| reserve.complain(error)).ok();
        }
        reserve
    }

    /// How much it lacks.
    pub(super) fn missing(&self) -> u64 {
        if self.file.is_none() { 0 } else { self.octets - self.held() }
    }

    /// How much it holds.
    pub(super) fn held(&self) -> u64 {
        let held = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |data| data.blocks() * 512);
        held.min(self.octets)
    }

    /// Takes what it lacks; whether it is whole then. Where that fails for want of anything but room, such as a right, there is
    /// no reserve until the next start.
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

    /// Gives `octets` of it back to the disk, or what is left of it.
    pub(super) fn release(&self, octets: u64) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.set_len(self.held().saturating_sub(octets)) {
            self.complain(&error);
        }
    }

    /// Sees to it that the disk has room for one commit, of the reserve if need be; whether it has. `file` is on the disk.
    pub(super) fn make_room(&self, file: &File) -> bool {
        // Where the system does not tell, the write will.
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
        tracing::warn!(%path, %error, "no room can be set aside for deletions on a full disk");
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
