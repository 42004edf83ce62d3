//! The file system below the store: its free space, its page cache, and space taken in advance.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;

/// Returns options to write a file that only its owner can read once it is created; the mode of its directory does not matter.
pub fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    options
}

/// Returns the free bytes in the file system of `file`, without those reserved for the superuser. Quotas are not visible here.
///
/// # Errors
///
/// The error of `fstatvfs`.
pub fn free_octets(file: &File) -> io::Result<u64> {
    let state = rustix::fs::fstatvfs(file)?;
    Ok(state.f_bavail.saturating_mul(state.f_frsize))
}

/// Drops the cached pages of `file`, so that the next read comes from the disk. Pages that are not written yet stay; sync the
/// file first. A file system in memory keeps all of them.
///
/// # Errors
///
/// The error of `posix_fadvise`.
pub fn forget_cached(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Allocates disk blocks for the first `octets` bytes of `file`, which then has at least that length. Writes zeros where the
/// file system has no such call.
///
/// # Errors
///
/// The error of the system, such as a full disk; some blocks may be allocated then.
pub fn allocate(file: &File, octets: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, octets) {
        Err(Errno::OPNOTSUPP | Errno::INVAL) => write_zeros(file, octets),
        outcome => Ok(outcome?),
    }
}

fn write_zeros(file: &File, octets: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    let zeros = [0; 64 * 1024];
    for at in (0..octets).step_by(zeros.len()) {
        let count = zeros.len().min(usize::try_from(octets - at).unwrap_or(usize::MAX));
        file.write_all_at(&zeros[..count], at)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_forgotten_is_read_again() {
        use std::io::{Read as _, Seek as _, Write as _};
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"whole").unwrap();
        file.sync_data().unwrap();
        forget_cached(&file).unwrap();
        file.rewind().unwrap();
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, "whole");
    }

    #[test]
    fn room_is_taken_by_either_way() {
        use std::os::unix::fs::MetadataExt as _;
        let ways: [fn(&File, u64) -> io::Result<()>; 2] = [allocate, write_zeros];
        for take in ways {
            let file = tempfile::tempfile().unwrap();
            take(&file, 100_000).unwrap();
            let data = file.metadata().unwrap();
            assert!(data.len() == 100_000 && data.blocks() * 512 >= 100_000, "{data:?}");
        }
    }

    #[test]
    fn some_room_is_left_where_tests_run() {
        assert!(free_octets(&tempfile::tempfile().unwrap()).unwrap() > 0);
        // A file system that holds nothing has no room.
        assert_eq!(free_octets(&File::open("/proc/self/status").unwrap()).unwrap(), 0);
    }
}
