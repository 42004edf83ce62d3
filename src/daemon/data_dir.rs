//! The data directory: private, and locked by one process at a time.
//!
//! The lock is the system's lock on the file `pid`, so it always ends with the process. The file's text names the holder for a
//! second process that tries. `format` contains the version of the directory's layout; a newer version is rejected before any
//! change.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use signpost_control::observe::ownership::challenge::Key;
use signpost_runtime::tls;

/// The length of the key for the challenges of hosts in octets, equal to that of its hash.
const HOST_KEY_OCTETS: usize = 32;
/// The layout that this program writes and reads.
const FORMAT: u32 = 1;

/// The directory of the name server's last-known-good state in it.
pub const STATE: &str = "state";

/// A locked data directory; dropping it releases the lock.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

/// The error of opening the data directory.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("the data directory {} is in use by {holder}; stop that process, or give this one its own --data-dir", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("the data directory {} has format {found}, and this program supports formats up to {FORMAT}; run the version of signpost that wrote it, or a newer one", path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("{}: \"{found}\" is not a format number; is {} a data directory of signpost?", path.join("format").display(), path.display())]
    Strange { path: PathBuf, found: String },
    #[error("cannot use the data directory: {}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot use the data directory: {0}")]
    Private(#[from] tls::Error),
}

impl DataDir {
    /// Locks the directory, and creates it if it is missing.
    pub fn open(path: &Path) -> Result<DataDir, DataDirError> {
        tls::files::private_folder(path)?;
        let lock_path = path.join("pid");
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| DataDirError::File { path, source }
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(&lock_path).map_err(at(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::Error(source)) => return Err(at(&lock_path)(source)),
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = lock.read_to_string(&mut holder);
                let holder =
                    if holder.trim().is_empty() { "another process".to_owned() } else { holder.trim().to_owned() };
                return Err(DataDirError::InUse { path: path.to_owned(), holder });
            }
        }
        check_format(path)?;
        let program = std::env::current_exe().map(|path| format!(" ({})", path.display())).unwrap_or_default();
        let holder = format!("process {}{program}\n", std::process::id());
        // Overwrites the contents in place, which needs no disk space. The text is only for operators.
        let written = lock.write_all(holder.as_bytes()).and_then(|()| lock.set_len(holder.len() as u64));
        if let Err(error) = written {
            tracing::warn!(file = %lock_path.display(), %error, "failed to write the process ID to the lock file of the data directory");
        }
        Ok(DataDir { path: path.to_owned(), _lock: lock })
    }

    /// Returns whether a process holds the directory.
    pub fn is_in_use(path: &Path) -> bool {
        let lock = OpenOptions::new().read(true).write(true).open(path.join("pid"));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Returns the name by which this directory's process is known to others, the same after every restart: it then takes up its
    /// own Lease at once.
    pub fn instance(&self) -> Result<String, tls::Error> {
        let file = self.join("instance");
        if let Some(name) = tls::files::read(&file)?.map(|text| text.trim().to_owned()).filter(|name| !name.is_empty())
        {
            return Ok(name);
        }
        let name = format!("signpost-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        tls::files::write_private(&file, format!("{name}\n").as_bytes())?;
        Ok(name)
    }

    /// Returns the key for the challenges of hosts, from `file` or from this directory, where the first call creates it.
    pub fn host_key(&self, file: Option<&Path>) -> Result<Key, DataDirError> {
        let file = file.map_or_else(|| self.join("host-challenge.key"), Path::to_owned);
        if let Some(octets) = tls::files::read(&file)?.and_then(|text| HEXLOWER.decode(text.trim().as_bytes()).ok())
            && octets.len() == HOST_KEY_OCTETS
        {
            return Ok(Key::new(&octets));
        }
        let mut octets = [0; HOST_KEY_OCTETS];
        aws_lc_rs::rand::fill(&mut octets).expect("the system's generator of random numbers never fails once it is up");
        tls::files::write_private(&file, format!("{}\n", HEXLOWER.encode(&octets)).as_bytes())?;
        Ok(Key::new(&octets))
    }

    /// Returns a file or directory in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

fn check_format(path: &Path) -> Result<(), DataDirError> {
    let file = path.join("format");
    let Some(text) = tls::files::read(&file)? else {
        tls::files::write_private(&file, format!("{FORMAT}\n").as_bytes())?;
        return Ok(());
    };
    match text.trim().parse::<u32>() {
        Ok(found) if found > FORMAT => Err(DataDirError::Newer { path: path.to_owned(), found }),
        Ok(_) => Ok(()),
        Err(_) => Err(DataDirError::Strange { path: path.to_owned(), found: text.trim().to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("data");
        let held = DataDir::open(&path).expect("opens");
        let error = DataDir::open(&path).expect_err("is held").to_string();
        let program = std::env::current_exe().expect("the test's program");
        let holder = format!("in use by process {} ({})", std::process::id(), program.display());
        assert!(error.contains(&holder), "{error}");
        drop(held);
        DataDir::open(&path).expect("opens again");
    }

    #[test]
    fn newer_and_strange_formats_are_refused_untouched() {
        let folder = tempfile::tempdir().expect("a folder");
        for (text, part) in [("2\n", "has format 2"), ("x", "not a format number")] {
            std::fs::write(folder.path().join("format"), text).expect("writes");
            let error = DataDir::open(folder.path()).expect_err(text).to_string();
            assert!(error.contains(part), "{error}");
            assert_eq!(std::fs::read_to_string(folder.path().join("format")).expect("reads"), text);
        }
    }
}
