//! The certificates of a directory: `<host>.pem`, and `_wildcard.<domain>.pem` for `*.<domain>`.
//!
//! Each file has a certificate, its chain and its private key in PEM. A file that is damaged is reported, and the last good certificate
//! stays in use. The directory is polled, because that works over every file system and through the symbolic links of mounted Secrets.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use signpost_types::instance::{CertificateReport, ServedCertificate};

use crate::pem::KeyPair;
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
    good: BTreeMap<Host, (Certificate, ServedCertificate)>,
    /// The hosts with a file that cannot be used, and the reason.
    faults: BTreeMap<Host, String>,
}

impl Directory {
    pub(crate) fn new(path: PathBuf) -> Directory {
        Directory { path, seen: BTreeMap::new(), good: BTreeMap::new(), faults: BTreeMap::new() }
    }

    /// Returns the number of hosts with a file that cannot be used. They have their last good certificate, or none.
    pub(crate) fn faults(&self) -> usize {
        self.faults.len()
    }

    /// Returns the report of the certificates.
    pub(crate) fn report(&self) -> BTreeMap<Host, CertificateReport> {
        let hosts = self.good.keys().chain(self.faults.keys());
        let report = |host: &Host| CertificateReport {
            host: host.to_string(),
            served: self.good.get(host).map(|(_, served)| served.clone()),
            fault: self.faults.get(host).cloned(),
            secret: None,
        };
        hosts.map(|host| (host.clone(), report(host))).collect()
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
        let mut good = BTreeMap::new();
        self.faults.clear();
        for path in files.keys() {
            let Some(host) = host(path) else { continue };
            let certificate = read(path).or_else(|problem| {
                let last = self.good.get(&host).cloned();
                let (file, is_last_good_used) = (path.display(), last.is_some());
                tracing::warn!(%file, problem, is_last_good_used, "cannot use a certificate; replace the file");
                self.faults.insert(host.clone(), problem);
                last.ok_or(())
            });
            good.extend(certificate.ok().map(|certificate| (host, certificate)));
        }
        self.good = good;
        self.seen = files;
        Ok(Some(self.good.iter().map(|(host, (certificate, _))| (host.clone(), certificate.clone())).collect()))
    }
}

/// Reads and checks a file.
fn read(path: &Path) -> Result<(Certificate, ServedCertificate), String> {
    let mut octets = Vec::new();
    // It may have grown since its size was found, or be another one.
    let read = std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut octets));
    let bytes = read.map_err(|error| error.to_string())?;
    if u64::try_from(bytes).is_ok_and(|bytes| bytes > BYTES_MAX) {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    // A comment between the blocks of PEM can have any encoding.
    let text = String::from_utf8_lossy(&octets);
    let served = KeyPair::split(&text).and_then(|pair| pair.check()).map_err(|error| error.to_string())?;
    Ok((Certificate { pem: text.into() }, served))
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
        let comment = b"friendlyName: M\xfcller\n";
        std::fs::write(at("comment.example.pem"), [comment, pem("comment.example").as_bytes()].concat())
            .expect("written");
        std::fs::File::create(at("huge.example.pem")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        let mut certificates = Directory::new(directory.path().to_owned());
        let found = certificates.changed().expect("read").expect("they are new");
        let found: Vec<&str> = found.keys().map(Host::as_str).collect();
        assert_eq!(found, ["comment.example", "linked.example"]);
        assert_eq!(certificates.faults(), 3);
        let report = certificates.report();
        assert_eq!(report.values().filter(|one| one.served.is_some()).count(), 2);
        let faults: Vec<&str> = report.values().filter_map(|one| one.fault.as_deref()).collect();
        assert_eq!(faults.len(), 3);
        assert!(faults.iter().all(|fault| !fault.contains("stream")), "{faults:?}");
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
        let report = certificates.report();
        let of = |host: &str| report.get(host).expect("it is reported");
        let damaged = Some("there is no certificate in PEM".to_owned());
        assert_eq!((of("a.example").fault.clone(), of("*.b.example").fault.clone()), (damaged, None));
        let names = |host: &str| of(host).served.clone().expect("it is served").names;
        assert_eq!(
            (names("a.example"), names("*.b.example")),
            (vec!["a.example".to_owned()], vec!["a.example".to_owned()])
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
