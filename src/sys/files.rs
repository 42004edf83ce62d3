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
    fn some_room_is_left_where_tests_run() {
        assert!(free_octets(&tempfile::tempfile().unwrap()).unwrap() > 0);
        // A file system that holds nothing has no room.
        assert_eq!(free_octets(&File::open("/proc/self/status").unwrap()).unwrap(), 0);
    }
}
