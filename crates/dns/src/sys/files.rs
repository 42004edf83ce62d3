//! Limits of this process: how many files and sockets it may have open, and how large its files may be.
//!
//! The usual soft limit of 1,024 exists for programs that use `select`; a server with thousands of connections raises it to the
//! hard limit, as systemd's documentation advises.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the number of files that may be open as far as the system allows, and returns it.
///
/// # Errors
///
/// The error of `setrlimit`; the limit is then unchanged.
pub fn raise_open_files_max() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Makes a write beyond the largest size of a file (`ulimit -f`) fail, as on a full disk. By default, the system ends the process
/// without a message.
pub fn outlive_file_size_max() {
    // SAFETY: an ignored signal runs no code of this program.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
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
}
