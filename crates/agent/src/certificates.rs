//! The certificates of a directory: `<host>.pem`, and `_wildcard.<domain>.pem` for `*.<domain>`.
//!
//! Each file has a certificate, its chain and its private key in PEM. The proxy itself checks them, so that one that it rejects is left
//! out and reported. The directory is polled, because that works over every file system and through the symbolic links of mounted
//! Secrets.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::site::{Certificate, Host};

/// The largest file that is read. A chain of certificates has some KiB.
const BYTES_MAX: u64 = 1 << 20;
/// The ending of the name of a file.
const ENDING: &str = ".pem";
/// The replacement for `*.` in the name of a file.
const WILDCARD: &str = "_wildcard.";

#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// The files as of the last look.
    seen: BTreeMap<PathBuf, (u64, Option<SystemTime>)>,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Directory {
        Directory { path, seen: BTreeMap::new() }
    }

    /// Returns the certificates if any file has changed since the last call.
    pub(crate) fn changed(&mut self) -> io::Result<Option<BTreeMap<Host, Certificate>>> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path)? {
            let path = entry?.path();
            let metadata = std::fs::metadata(&path).ok().filter(Metadata::is_file);
            if let (Some(metadata), true) = (metadata, host(&path).is_some()) {
                files.insert(path, (metadata.len(), metadata.modified().ok()));
            }
        }
        if files == self.seen {
            return Ok(None);
        }
        let mut certificates = BTreeMap::new();
        for (path, (bytes, _)) in &files {
            let Some(host) = host(path) else { continue };
            if *bytes > BYTES_MAX {
                tracing::warn!(file = %path.display(), "ignored a certificate of more than {BYTES_MAX} bytes");
                continue;
            }
            match read(path) {
                Ok(pem) => _ = certificates.insert(host, Certificate { pem: pem.into() }),
                Err(error) => tracing::warn!(file = %path.display(), %error, "failed to read a certificate"),
            }
        }
        self.seen = files;
        Ok(Some(certificates))
    }
}

/// Reads a file, which may have grown since its size was found, or be another one.
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the host of a file with a certificate.
fn host(path: &Path) -> Option<Host> {
    let name = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
    match name.strip_prefix(WILDCARD) {
        Some(domain) => format!("*.{domain}").parse().ok(),
        None => name.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_of_text_is_left_out() {
        let (directory, elsewhere) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let at = |name: &str| directory.path().join(name);
        std::fs::write(elsewhere.path().join("mounted"), "linked").expect("written");
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, at(name)).expect("linked");
        // As in a mounted Secret.
        link(&elsewhere.path().join("mounted"), "linked.example.pem");
        link(&elsewhere.path().join("absent"), "dangling.example.pem");
        link(&at("loop.example.pem"), "loop.example.pem");
        link(Path::new("/dev/zero"), "device.example.pem");
        link(elsewhere.path(), "directory.example.pem");
        std::fs::write(at("binary.example.pem"), [0xff, 0xfe, 0, 1]).expect("written");
        std::fs::write(at("garbage.example.pem"), "the proxy rejects it").expect("written");
        std::fs::File::create(at("huge.example.pem")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        let found = Directory::new(directory.path().to_owned()).changed().expect("read").expect("they are new");
        let found: Vec<&str> = found.keys().map(Host::as_str).collect();
        assert_eq!(found, ["garbage.example", "linked.example"]);
    }

    #[test]
    fn files_and_their_hosts() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
        let mut certificates = Directory::new(directory.path().to_owned());
        let hosts = |certificates: BTreeMap<Host, Certificate>| {
            let host = |(host, certificate): (Host, Certificate)| format!("{host}={}", certificate.pem);
            certificates.into_iter().map(host).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(certificates.changed().expect("read"), None);
        for (name, text) in [("a.example.pem", "1"), ("_wildcard.b.example.pem", "2"), ("A.pem", "3"), ("c.key", "4")] {
            write(name, text);
        }
        let found = certificates.changed().expect("read").expect("they are new");
        assert_eq!(hosts(found), "*.b.example=2 a.example=1");
        assert_eq!(certificates.changed().expect("read"), None);
        write("a.example.pem", "longer");
        let found = certificates.changed().expect("read").expect("one has changed");
        assert_eq!(hosts(found), "*.b.example=2 a.example=longer");
        std::fs::remove_dir_all(directory.path()).expect("removed");
        assert!(certificates.changed().is_err());
    }
}
