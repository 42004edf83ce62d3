//! The certificates of a directory: `<host>.pem`, and `_wildcard.<domain>.pem` for `*.<domain>`.
//!
//! Each file has a certificate, its chain and its private key in PEM. A file that is damaged is reported, and the last good certificate
//! stays in use. The directory is polled, because that works over every file system and through the symbolic links of mounted Secrets.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::pem;
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
    /// The last good certificates.
    good: BTreeMap<Host, Certificate>,
    /// The files that cannot be used.
    faults: usize,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Directory {
        Directory { path, seen: BTreeMap::new(), good: BTreeMap::new(), faults: 0 }
    }

    /// Returns the number of files that cannot be used. Hosts with such a file have their last good certificate, or none.
    pub(crate) fn faults(&self) -> usize {
        self.faults
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
        self.faults = 0;
        for path in files.keys() {
            let Some(host) = host(path) else { continue };
            let certificate = read(path).or_else(|problem| {
                self.faults += 1;
                let last = self.good.get(&host).cloned();
                let (file, is_last_good_used) = (path.display(), last.is_some());
                tracing::warn!(%file, problem, is_last_good_used, "cannot use a certificate; replace the file");
                last.ok_or(problem)
            });
            certificates.extend(certificate.ok().map(|certificate| (host, certificate)));
        }
        self.good.clone_from(&certificates);
        self.seen = files;
        Ok(Some(certificates))
    }
}

/// Reads and checks a file.
fn read(path: &Path) -> Result<Certificate, String> {
    let mut text = String::new();
    // It may have grown since its size was found, or be another one.
    let read = std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    let bytes = read.map_err(|error| error.to_string())?;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > BYTES_MAX) {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    pem::check(&text).map_err(|error| error.to_string())?;
    Ok(Certificate { pem: text.into() })
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

    fn pem(host: &str) -> String {
        let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).expect("a name");
        made.cert.pem() + &made.signing_key.serialize_pem()
    }

    #[test]
    fn what_is_no_certificate_is_left_out() {
        let (directory, elsewhere) =
            (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        let at = |name: &str| directory.path().join(name);
        std::fs::write(elsewhere.path().join("mounted"), pem("linked.example")).expect("written");
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, at(name)).expect("linked");
        // As in a mounted Secret.
        link(&elsewhere.path().join("mounted"), "linked.example.pem");
        link(&elsewhere.path().join("absent"), "dangling.example.pem");
        link(&at("loop.example.pem"), "loop.example.pem");
        link(Path::new("/dev/zero"), "device.example.pem");
        link(elsewhere.path(), "directory.example.pem");
        std::fs::write(at("binary.example.pem"), [0xff, 0xfe, 0, 1]).expect("written");
        std::fs::write(at("garbage.example.pem"), "garbage").expect("written");
        std::fs::File::create(at("huge.example.pem")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        let mut certificates = Directory::new(directory.path().to_owned());
        let found = certificates.changed().expect("read").expect("they are new");
        let found: Vec<&str> = found.keys().map(Host::as_str).collect();
        assert_eq!(found, ["linked.example"]);
        assert_eq!(certificates.faults(), 3);
    }

    #[test]
    fn files_and_their_hosts() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
        let mut certificates = Directory::new(directory.path().to_owned());
        let texts: Vec<String> = (0..3).map(|_| pem("a.example")).collect();
        let hosts = |certificates: BTreeMap<Host, Certificate>| {
            let number = |found: &Certificate| texts.iter().position(|text| **text == *found.pem);
            let host =
                |(host, found): (Host, Certificate)| format!("{host}={}", number(&found).expect("it is in the list"));
            certificates.into_iter().map(host).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(certificates.changed().expect("read"), None);
        for (name, text) in [("a.example.pem", 0), ("_wildcard.b.example.pem", 1), ("A.pem", 2), ("c.key", 2)] {
            write(name, &texts[text]);
        }
        let found = certificates.changed().expect("read").expect("they are new");
        assert_eq!(hosts(found), "*.b.example=1 a.example=0");
        assert_eq!(certificates.changed().expect("read"), None);
        write("a.example.pem", "garbage");
        let found = certificates.changed().expect("read").expect("one has changed");
        assert_eq!(
            (hosts(found).as_str(), certificates.faults()),
            ("*.b.example=1 a.example=0", 1),
            "the last good one"
        );
        std::fs::remove_file(directory.path().join("_wildcard.b.example.pem")).expect("removed");
        let found = certificates.changed().expect("read").expect("one is gone");
        assert_eq!((hosts(found).as_str(), certificates.faults()), ("a.example=0", 1), "the last good one stays");
        std::fs::remove_file(directory.path().join("a.example.pem")).expect("removed");
        write("d.example.pem", &texts[2]);
        let found = certificates.changed().expect("read").expect("one has changed");
        assert_eq!((hosts(found).as_str(), certificates.faults()), ("d.example=2", 0));
        std::fs::remove_dir_all(directory.path()).expect("removed");
        assert!(certificates.changed().is_err());
    }
}
