//! How many files and sockets this process may have open, how large its files may be, and how much room they have.
//!
//! The usual soft limit of 1,024 is there for programs that use `select`; a server with thousands of connections raises
//! it to the hard limit, as systemd's documentation advises. The standard library offers none of these calls.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// Raises the number of files that may be open as far as the system allows, and returns it.
///
/// # Errors
///
/// What `getrlimit` or `setrlimit` says; the limit is then as it was.
pub fn raise_open_files_max() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole `rlimit`.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the pointer is to a whole `rlimit`.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

/// From now on a write beyond the largest size that a file may have (`ulimit -f`) fails, as on a full disk. By default the
/// system ends the process, without a word.
pub fn outlive_file_size_max() {
    // SAFETY: to ignore a signal runs no code of ours when it comes.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// How many octets the file system of `file` has left for this process: without what is kept for the superuser. Quotas are
/// not seen.
///
/// # Errors
///
/// What `fstatvfs` says.
pub fn free_octets(file: &File) -> io::Result<u64> {
    // SAFETY: all its fields are numbers, for which zero is a value.
    let mut state: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open as long as `file` is, and the pointer is to a whole `statvfs`.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &mut state) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((state.f_bavail as u64).saturating_mul(state.f_frsize as u64))
}

/// Has the system drop what it keeps of `file` in memory, so that the next read comes from the disk. What is not written
/// yet stays; sync the file first. A file system in memory keeps all of it.
///
/// # Errors
///
/// What `posix_fadvise` says.
pub fn forget_cached(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is; the call changes nothing of the process's memory.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Takes blocks of the disk for the first `octets` of `file`, which is that long then. Where the file system knows no such
/// call, zeros are written.
///
/// # Errors
///
/// What the system says, such as that there is no room; part of the room may be taken then.
pub fn allocate(file: &File, octets: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(octets).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    // SAFETY: the descriptor is open as long as `file` is; the call changes nothing of the process's memory.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        libc::EOPNOTSUPP | libc::EINVAL => write_zeros(file, octets),
        error => Err(io::Error::from_raw_os_error(error)),
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
    fn raising_twice_gives_the_same() {
        let raised = raise_open_files_max().unwrap();
        assert!(raised > 0);
        assert_eq!(raise_open_files_max().unwrap(), raised);
    }

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
