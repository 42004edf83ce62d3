//! A certificate of the operator, read from files and reloaded when they are replaced.
//!
//! TLS reads the certificate from [`Served`] at each handshake, so new connections use the new certificate and existing ones are
//! not affected. If the files do not form a pair, the former certificate stays in use, and [`Served::reload`] returns the error.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use aws_lc_rs::digest;
use parking_lot::Mutex;
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Error;

/// The maximum size of a file with a chain or a key in octets; a chain has a few kilobytes.
const FILE_OCTETS_MAX: u64 = 1 << 20;

/// A chain and its key, from two files or from one file with both.
#[derive(Debug)]
pub struct Served {
    certificate: PathBuf,
    key: PathBuf,
    current: ArcSwap<CertifiedKey>,
    /// The SHA-256 of the loaded files, to detect changes.
    digest: ArcSwap<Vec<u8>>,
    /// The stamps of the files at the last read.
    seen: Mutex<[FileStamp; 2]>,
}

/// The metadata of a file that changes when it is replaced.
pub type FileStamp = Option<(SystemTime, u64, u64)>;

/// Returns the current stamp of a file; `None` if it is not accessible.
pub fn stamp_of(path: &Path) -> FileStamp {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}

impl Served {
    /// Reads the pair. `certificate` is the chain in PEM, starting with the server's certificate.
    pub fn open(certificate: &Path, key: &Path) -> Result<Served, Error> {
        // The stamps are taken before the files are read: a file that is replaced in between is read again.
        let seen = [certificate, key].map(stamp_of);
        let (current, digest) = pair(certificate, key)?;
        Ok(Served {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: ArcSwap::from_pointee(current),
            digest: ArcSwap::from_pointee(digest),
            seen: Mutex::new(seen),
        })
    }

    /// Reloads the files if they seem to have been replaced since the last read; returns whether they changed. An invalid file is
    /// reported once, not at each check.
    pub fn follow(&self) -> Result<bool, Error> {
        if *self.seen.lock() == self.files().map(stamp_of) {
            return Ok(false);
        }
        self.reload()
    }

    /// Reloads the files; returns whether they changed. On an error, the former certificate stays in use.
    pub fn reload(&self) -> Result<bool, Error> {
        *self.seen.lock() = self.files().map(stamp_of);
        let (current, digest) = pair(&self.certificate, &self.key)?;
        if **self.digest.load() == digest {
            return Ok(false);
        }
        self.current.store(Arc::new(current));
        self.digest.store(Arc::new(digest));
        Ok(true)
    }

    /// Returns the files.
    pub fn files(&self) -> [&Path; 2] {
        [&self.certificate, &self.key]
    }

    /// Returns whether the certificate that is served is valid for this host name.
    pub fn is_for(&self, name: &str) -> bool {
        let current = self.current.load();
        let Some(Ok(certificate)) = current.cert.first().map(ParsedCertificate::try_from) else { return false };
        ServerName::try_from(name).is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
    }

    /// Returns the reason why the served certificate is not valid at `now`, as text that follows its name; `None` if it is valid.
    pub fn invalid(&self, now: SystemTime) -> Option<String> {
        let current = self.current.load();
        let (_, certificate) = X509Certificate::from_der(current.cert.first()?).ok()?;
        super::validity(&certificate, now).err()
    }

    /// Returns whether the served certificate ends before `time`; false if it cannot be parsed.
    pub fn ends_before(&self, time: SystemTime) -> bool {
        self.period().is_some_and(|period| period.end < super::seconds(time))
    }

    /// Returns the validity period of the certificate that is served, in seconds since 1970; `None` if it cannot be read.
    pub fn period(&self) -> Option<Range<i64>> {
        super::period(self.current.load().cert.first()?)
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn pair(certificate: &Path, key: &Path) -> Result<(CertifiedKey, Vec<u8>), Error> {
    let (chain_pem, key_pem) = (read(certificate)?, read(key)?);
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&(chain_pem.len() as u64).to_be_bytes());
    context.update(&chain_pem);
    context.update(&key_pem);
    let bad = |path: &Path, reason: String| Error::BadFile { path: path.to_owned(), reason };
    let chain = CertificateDer::pem_slice_iter(&chain_pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| bad(certificate, format!("contains no certificates in PEM: {error}")))?;
    if chain.is_empty() {
        return Err(bad(certificate, "contains no certificate in PEM".to_owned()));
    }
    let private = PrivateKeyDer::from_pem_slice(&key_pem)
        .map_err(|error| bad(key, format!("contains no private key in PEM: {error}")))?;
    let certified = CertifiedKey::from_der(chain, private, &rustls::crypto::aws_lc_rs::default_provider())
        .map_err(|error| bad(certificate, format!("does not match the key in {}: {error}", key.display())))?;
    Ok((certified, context.finish().as_ref().to_vec()))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let at = |source| Error::File { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(at)?.len();
    if length > FILE_OCTETS_MAX {
        let reason = format!("is larger than {FILE_OCTETS_MAX} bytes; set a certificate or key in PEM");
        return Err(Error::BadFile { path: path.to_owned(), reason });
    }
    std::fs::read(path).map_err(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
    }

    #[test]
    fn new_files_are_served_and_bad_ones_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let write = |pair: &(String, String)| {
            std::fs::write(&certificate, &pair.0).expect("writes");
            std::fs::write(&key, &pair.1).expect("writes");
        };
        let (one, two) = (make("one.example"), make("two.example"));
        write(&one);
        let served = Served::open(&certificate, &key).expect("opens");
        let first = served.current.load().cert.clone();
        assert!(!served.reload().expect("reads"), "nothing changed");

        for bad in
            [(two.0.clone(), one.1.clone()), (String::new(), one.1.clone()), (one.0.clone(), "no key".to_owned())]
        {
            write(&bad);
            let error = served.reload().expect_err("is refused").to_string();
            assert!(error.contains("tls."), "{error}");
            assert_eq!(served.current.load().cert, first);
        }
        std::fs::remove_file(&key).expect("removes");
        assert!(served.reload().is_err());
        assert_eq!(served.current.load().cert, first);

        write(&two);
        assert!(served.reload().expect("reads"));
        assert_ne!(served.current.load().cert, first);
        assert!(served.is_for("two.example") && !served.is_for("one.example") && !served.is_for("not a name"));
        let now = SystemTime::now();
        assert!(!served.ends_before(now) && served.ends_before(now + std::time::Duration::from_secs(1 << 38)));

        assert!(!served.follow().expect("looks"), "nothing was replaced");
        write(&one);
        assert!(served.follow().expect("reads"));
        write(&(two.0, one.1));
        assert!(served.follow().is_err());
        assert!(!served.follow().expect("looks"), "the fault was already reported");
    }
}
