//! The certificates of the API: a CA and a server certificate that are created at the first start and renewed in time.
//!
//! All files are in one directory with mode 0700, with mode 0600: `ca.crt`, `ca.key`, `server.pem`, `tokens`, `users.toml`. Files
//! are replaced atomically, so a crash leaves the old or the new one. The server's certificate is valid for 397 days. It is
//! renewed 60 days before its end, when its required names have changed, or when it is not valid yet by the clock, for example
//! after a first start with a clock that was ahead. Existing connections are not affected, because the TLS layer reads the
//! current certificate from [`Authority`] at each handshake. The CA's certificate is renewed with the same key, so that
//! certificates that it signed stay valid. Instead of the generated certificate, the API can serve one of the operator's
//! ([`served`]); the CA then signs only client certificates.

pub mod files;
pub mod kubeconfig;
pub mod served;
pub mod tokens;
pub mod users;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use aws_lc_rs::{digest, rand};
use data_encoding::HEXLOWER;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData,
};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use self::served::Served;

/// The lifetime of the CA's certificate in days: longer than any machine that trusts it is likely to run unattended.
const AUTHORITY_DAYS: u64 = 3650;
/// The remaining days at which the CA's certificate is renewed.
const AUTHORITY_RENEW_DAYS: u64 = 365;
/// The lifetime of the server's certificate in days: the maximum that all common TLS clients accept (398), less one.
const SERVER_DAYS: u64 = 397;
/// The remaining days at which the server's certificate is renewed.
const SERVER_RENEW_DAYS: u64 = 60;
const DAY: Duration = Duration::from_secs(86_400);
/// The time by which certificates are backdated, for clients whose clocks are behind. It counts toward the validity, which
/// clients limit.
const BACKDATED: Duration = DAY;
/// Returns the start of the CA certificate's validity: 2020, independent of the clock. Clients have copies of it in kubeconfigs,
/// and a certificate that was created with a clock years ahead must still be accepted when the clock is correct. An earlier clock
/// is wrong.
fn authority_begins() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_577_836_800)
}

/// The error of certificate operations.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file has invalid contents.
    #[error("{}: {reason}; restore it, or remove the directory to start with a new authority (all clients then need the new kubeconfig)", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A file of the operator has invalid contents.
    #[error("{}: {reason}", path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A certificate cannot be created, for example for an invalid name.
    #[error("failed to create a certificate: {0}")]
    Make(String),
}

/// A CA with the server certificate that it signed.
pub struct Authority {
    folder: PathBuf,
    names: BTreeSet<String>,
    key: KeyPair,
    certificate_pem: ArcSwap<String>,
    current: Arc<Current>,
}

/// A client certificate that the CA signed.
pub struct ClientIdentity {
    /// The certificate in PEM.
    pub certificate_pem: String,
    /// The key in PEM.
    pub key_pem: String,
    /// The serial number in lower-case hexadecimal.
    pub serial: String,
}

/// Signs a client certificate with the key of the CA in `folder`, which must exist: the common name is the user, the
/// organizations are the groups. It is valid from a day before `now`, for servers whose clocks are behind, but not before
/// `earliest`.
pub fn sign_client(
    folder: &Path,
    user: &str,
    groups: &[String],
    now: SystemTime,
    earliest: Option<SystemTime>,
    expires: SystemTime,
) -> Result<ClientIdentity, Error> {
    let make = |error: rcgen::Error| Error::Make(error.to_string());
    let path = folder.join("ca.key");
    let Some(pem) = files::read(&path)? else {
        let reason =
            "the certificate authority does not exist; \"signpost serve\" creates it at its first start".to_owned();
        return Err(Error::BadFile { path, reason });
    };
    let authority = KeyPair::from_pem(&pem).map_err(|error| Error::Damaged { path, reason: error.to_string() })?;
    let key = KeyPair::generate().map_err(make)?;
    let mut serial = [0_u8; 16];
    rand::fill(&mut serial).map_err(|_| Error::Make("the system returned no random numbers".to_owned()))?;
    // RFC 5280 §4.1.2.2: positive; and without a leading zero octet, so that all tools print it alike.
    serial[0] = serial[0] & 0x7f | 0x40;
    let mut params = CertificateParams::default();
    params.serial_number = Some(serial.to_vec().into());
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, group.as_str());
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = earliest.map_or(now - BACKDATED, |earliest| earliest.max(now - BACKDATED)).into();
    params.not_after = expires.into();
    let issuer = Issuer::new(authority_params(&authority, now), authority);
    let certificate = params.signed_by(&key, &issuer).map_err(make)?;
    Ok(ClientIdentity {
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
        serial: HEXLOWER.encode(&serial),
    })
}

/// The certificate for handshakes.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// The result of a renewal check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Renewed {
    /// The CA's certificate is new: kubeconfigs must be written again.
    pub authority: bool,
    /// The server's certificate is new.
    pub server: bool,
}

impl Authority {
    /// Opens the authority in `folder`, or makes one if the directory holds none, with a server certificate that is valid for
    /// `names` (host names and IP addresses) at the time `now`.
    pub fn open(folder: &Path, names: impl IntoIterator<Item = String>, now: SystemTime) -> Result<Self, Error> {
        files::private_folder(folder)?;
        let key = key_at(&folder.join("ca.key"))?;
        let path = folder.join("ca.crt");
        let certificate_pem = match files::read(&path)? {
            Some(pem) => {
                let der = certificate(&path, &pem)?;
                let parsed = parse(&path, &der)?;
                if parsed.public_key().raw != key.subject_public_key_info() {
                    let reason = "is not the certificate of the key in ca.key".to_owned();
                    return Err(Error::Damaged { path, reason });
                }
                pem
            }
            None => new_authority(folder, &key, now)?,
        };
        let names: BTreeSet<String> = names.into_iter().collect();
        let current = match server_at(folder)? {
            Some(certified) => certified,
            None => new_server(folder, &names, &key, now)?,
        };
        let authority = Authority {
            folder: folder.to_owned(),
            names,
            key,
            certificate_pem: ArcSwap::from_pointee(certificate_pem),
            current: Arc::new(Current(ArcSwap::from_pointee(current))),
        };
        authority.renew(now)?;
        Ok(authority)
    }

    /// Renews the certificates that are due at `now`. The caller runs this once a day.
    pub fn renew(&self, now: SystemTime) -> Result<Renewed, Error> {
        let path = self.folder.join("ca.crt");
        let pem = self.certificate_pem.load_full();
        let der = certificate(&path, &pem)?;
        let mut renewed = Renewed::default();
        if is_due(&path, &parse(&path, &der)?, now, AUTHORITY_RENEW_DAYS) {
            self.certificate_pem.store(Arc::new(new_authority(&self.folder, &self.key, now)?));
            renewed.authority = true;
        }
        let path = self.folder.join(SERVER_FILE);
        let current = self.current.0.load();
        let server = parse(&path, &current.cert[0])?;
        let due = is_due(&path, &server, now, SERVER_RENEW_DAYS);
        let signed_by_us = server.issuer().to_string() == format!("CN={}", authority_name(&self.key));
        if due || !signed_by_us || names_of(&server) != self.names {
            let certified = new_server(&self.folder, &self.names, &self.key, now)?;
            self.current.0.store(Arc::new(certified));
            renewed.server = true;
        }
        Ok(renewed)
    }

    /// Returns whether both certificates are valid at `now`. They are not after the clock was set, and [`Authority::renew`]
    /// helps.
    pub fn is_valid(&self, now: SystemTime) -> bool {
        let server = self.current.0.load();
        let authority = certificate(&self.folder, &self.certificate_pem.load());
        let is_valid = |der: &CertificateDer<'_>| {
            X509Certificate::from_der(der).is_ok_and(|(_, certificate)| validity(&certificate, now).is_ok())
        };
        authority.is_ok_and(|authority| is_valid(&authority)) && server.cert.first().is_some_and(is_valid)
    }

    /// Returns the server's certificate, the newest one at each handshake.
    pub fn certificate(&self) -> Arc<dyn ResolvesServerCert> {
        self.current.clone()
    }

    /// Returns whether the server's certificate is valid for this host name.
    pub fn is_for(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Returns the authority's certificate in PEM, for clients.
    pub fn certificate_pem(&self) -> Arc<String> {
        self.certificate_pem.load_full()
    }

    /// Returns the server's certificate and its key in PEM, for another server.
    pub fn server_pem(&self) -> Result<String, Error> {
        let path = self.folder.join(SERVER_FILE);
        files::read(&path)?.ok_or_else(|| Error::BadFile { path, reason: "is missing".to_owned() })
    }

    /// Returns the validity period of the server's certificate, in seconds since 1970.
    pub fn server_period(&self) -> Option<Range<i64>> {
        period(self.current.0.load().cert.first()?)
    }

    /// Returns the validity period of the authority's own certificate, in seconds since 1970.
    pub fn period(&self) -> Option<Range<i64>> {
        pem_period(self.certificate_pem.load().as_bytes())
    }

    /// Returns the TLS settings of the HTTP server: the certificate (`served` instead of the generated one, if given), ALPN for
    /// HTTP/2 and HTTP/1.1, and client certificates of this CA as an additional method of authentication.
    pub fn server_config(&self, served: Option<Arc<Served>>) -> Result<Arc<rustls::ServerConfig>, Error> {
        let provider = provider();
        let path = self.folder.join("ca.crt");
        let mut roots = rustls::RootCertStore::empty();
        let der = certificate(&path, &self.certificate_pem.load())?;
        roots.add(der).map_err(|error| Error::Damaged { path, reason: error.to_string() })?;
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| Error::Make(error.to_string()))?;
        let certificate = match served {
            Some(served) => served as Arc<dyn ResolvesServerCert>,
            None => self.certificate(),
        };
        Ok(over_http(builder()?.with_client_cert_verifier(verifier).with_cert_resolver(certificate)))
    }
}

/// Returns the validity period of a certificate, in seconds since 1970.
fn period(der: &CertificateDer<'_>) -> Option<Range<i64>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some(validity.not_before.timestamp()..validity.not_after.timestamp())
}

/// Returns the validity period of the first certificate in this PEM, in seconds since 1970.
pub fn pem_period(pem: &[u8]) -> Option<Range<i64>> {
    period(&CertificateDer::from_pem_slice(pem).ok()?)
}

/// Returns the TLS settings of an HTTP server with `certificate` that requests no client certificates: browsers would prompt
/// their users for one.
pub fn server_config(certificate: Arc<dyn ResolvesServerCert>) -> Result<Arc<rustls::ServerConfig>, Error> {
    Ok(over_http(builder()?.with_no_client_auth().with_cert_resolver(certificate)))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn builder() -> Result<rustls::ConfigBuilder<rustls::ServerConfig, rustls::WantsVerifier>, Error> {
    let builder = rustls::ServerConfig::builder_with_provider(provider());
    builder.with_safe_default_protocol_versions().map_err(|error| Error::Make(error.to_string()))
}

/// Adds ALPN for HTTP/2 and HTTP/1.1.
fn over_http(mut config: rustls::ServerConfig) -> Arc<rustls::ServerConfig> {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}

/// Returns the key in that file, made if it is not there.
fn key_at(path: &Path) -> Result<KeyPair, Error> {
    match files::read(path)? {
        Some(pem) => {
            KeyPair::from_pem(&pem).map_err(|error| Error::Damaged { path: path.to_owned(), reason: error.to_string() })
        }
        None => {
            let key = KeyPair::generate().map_err(|error| Error::Make(error.to_string()))?;
            files::write_private(path, key.serialize_pem().as_bytes())?;
            Ok(key)
        }
    }
}

/// Returns the authority's name: one of its own, since clients that trust two authorities of one name confuse them.
fn authority_name(key: &KeyPair) -> String {
    let hash = digest::digest(&digest::SHA256, &key.subject_public_key_info());
    format!("signpost-ca-{}", HEXLOWER.encode(&hash.as_ref()[..4]))
}

fn authority_params(key: &KeyPair, now: SystemTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, authority_name(key));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = authority_begins().into();
    params.not_after = (now.max(authority_begins()) + DAY * AUTHORITY_DAYS as u32).into();
    params
}

/// Returns whether a generated certificate must be renewed: `days` before its end, or if it is not valid yet.
fn is_due(path: &Path, certificate: &X509Certificate<'_>, now: SystemTime, days: u64) -> bool {
    if let Err(why) = validity(certificate, now) {
        tracing::warn!("renewing the certificate in {}: it {why}; check the clock", path.display());
        return true;
    }
    certificate.validity().not_after.timestamp() < seconds(now + DAY * days as u32)
}

/// Checks that the certificate is valid at `now`; the error is the reason, as text that follows its name.
fn validity(certificate: &X509Certificate<'_>, now: SystemTime) -> Result<(), String> {
    let validity = certificate.validity();
    // A clock before the start of the CA's validity is wrong.
    let now = seconds(now.max(authority_begins()));
    if now < validity.not_before.timestamp() {
        return Err(format!("is not valid before {}", validity.not_before));
    }
    if now > validity.not_after.timestamp() {
        return Err(format!("expired at {}", validity.not_after));
    }
    Ok(())
}

fn new_authority(folder: &Path, key: &KeyPair, now: SystemTime) -> Result<String, Error> {
    let certificate = authority_params(key, now).self_signed(key).map_err(|error| Error::Make(error.to_string()))?;
    let pem = certificate.pem();
    files::write_private(&folder.join("ca.crt"), pem.as_bytes())?;
    Ok(pem)
}

/// Creates the server's key and certificate and writes them, both into the certificate's file, so that the pair is replaced
/// atomically.
fn new_server(
    folder: &Path,
    names: &BTreeSet<String>,
    authority: &KeyPair,
    now: SystemTime,
) -> Result<CertifiedKey, Error> {
    let make = |error: rcgen::Error| Error::Make(error.to_string());
    let key = KeyPair::generate().map_err(make)?;
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>()).map_err(make)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "signpost-api");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let begins = now.max(authority_begins() + BACKDATED) - BACKDATED;
    params.not_before = begins.into();
    params.not_after = (begins + DAY * SERVER_DAYS as u32).into();
    let issuer = Issuer::new(authority_params(authority, now), authority);
    let certificate = params.signed_by(&key, &issuer).map_err(make)?;
    let both = format!("{}{}", certificate.pem(), key.serialize_pem());
    files::write_private(&folder.join(SERVER_FILE), both.as_bytes())?;
    certified(&folder.join(SERVER_FILE), &both)
}

/// The certificate and key of the server, in one file, because two files could not be replaced atomically.
const SERVER_FILE: &str = "server.pem";

fn server_at(folder: &Path) -> Result<Option<CertifiedKey>, Error> {
    let path = folder.join(SERVER_FILE);
    files::read(&path)?.map(|pem| certified(&path, &pem)).transpose()
}

fn certified(path: &Path, pem: &str) -> Result<CertifiedKey, Error> {
    let damaged = |reason: String| Error::Damaged { path: path.to_owned(), reason };
    let chain = vec![certificate(path, pem)?];
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| damaged(error.to_string()))?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider())
        .map_err(|error| damaged(error.to_string()))
}

fn certificate(path: &Path, pem: &str) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| Error::Damaged { path: path.to_owned(), reason: error.to_string() })
}

fn parse<'a>(path: &Path, der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Error> {
    X509Certificate::from_der(der.as_ref())
        .map(|(_, certificate)| certificate)
        .map_err(|error| Error::Damaged { path: path.to_owned(), reason: error.to_string() })
}

/// Returns the names a certificate is valid for, as [`Authority::open`] takes them.
fn names_of(certificate: &X509Certificate<'_>) -> BTreeSet<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else { return BTreeSet::new() };
    let text = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    };
    extension.value.general_names.iter().filter_map(text).collect()
}

fn seconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// Returns the text of a file of CA certificates in PEM for clients. The text is public, so a private key in it is an error.
pub fn authorities(path: &Path) -> Result<String, Error> {
    let bad = |reason: String| Error::BadFile { path: path.to_owned(), reason };
    let text = files::read(path)?.ok_or_else(|| bad("is not there".to_owned()))?;
    if text.contains("PRIVATE KEY-----") {
        return Err(bad(
            "contains a private key; clients get this file, so it must contain only certificates".to_owned()
        ));
    }
    let certificates = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(text),
        Ok(_) => Err(bad("contains no certificate in PEM".to_owned())),
        Err(error) => Err(bad(format!("contains no certificates in PEM: {error}"))),
    }
}

/// Returns the names that every generated certificate is valid for, regardless of the listeners.
pub fn loopback_names() -> Vec<String> {
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(extra: &[&str]) -> Vec<String> {
        loopback_names().into_iter().chain(extra.iter().map(|name| (*name).to_owned())).collect()
    }

    fn start() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    }

    #[test]
    fn the_second_start_uses_what_the_first_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("pki");
        let first = Authority::open(&folder, names(&[]), start()).expect("opens");
        let files: Vec<_> =
            ["ca.crt", "ca.key", SERVER_FILE].map(|file| std::fs::read(folder.join(file)).expect(file)).into();
        let second = Authority::open(&folder, names(&[]), start() + DAY).expect("opens");
        assert_eq!(first.certificate_pem(), second.certificate_pem());
        for (file, before) in ["ca.crt", "ca.key", SERVER_FILE].iter().zip(files) {
            assert_eq!(std::fs::read(folder.join(file)).expect(file), before, "{file}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn nobody_else_can_read_them() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().join("pki");
        Authority::open(&folder, names(&[]), start()).expect("opens");
        let mode = |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        for entry in std::fs::read_dir(&folder).expect("is there") {
            let path = entry.expect("readable").path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }

    #[test]
    fn new_names_and_nearing_ends_renew_the_server_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Authority::open(folder.path(), names(&[]), start()).expect("opens");
        let ca = first.certificate_pem();
        assert_eq!(first.renew(start() + DAY * 300).expect("looks"), Renewed::default());
        assert_eq!(first.renew(start() + DAY * 340).expect("renews"), Renewed { authority: false, server: true });
        let second =
            Authority::open(folder.path(), names(&["192.0.2.1", "api.example"]), start() + DAY * 341).expect("opens");
        let der = second.current.0.load().cert[0].clone();
        let server = parse(Path::new("server"), &der).expect("a certificate");
        assert!(names_of(&server).contains("api.example") && names_of(&server).contains("192.0.2.1"));
        assert_eq!(second.certificate_pem(), ca);
    }

    #[test]
    fn the_authority_is_renewed_with_its_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::open(folder.path(), names(&[]), start()).expect("opens");
        let before = authority.certificate_pem();
        let renewed = authority.renew(start() + DAY * 3400).expect("renews");
        assert!(renewed.authority && before != authority.certificate_pem());
        Authority::open(folder.path(), names(&[]), start() + DAY * 3401).expect("key and certificate belong together");
    }

    #[test]
    fn what_was_made_under_a_wrong_clock_is_made_anew() {
        // Ahead, far behind, and before certificates existed.
        for wrong in [start() + DAY * 730, start() - DAY * 900, UNIX_EPOCH + DAY] {
            let folder = tempfile::tempdir().expect("a folder");
            let running = Authority::open(folder.path(), names(&[]), wrong).expect("opens");
            assert!(running.is_valid(wrong));
            let in_kubeconfigs = running.certificate_pem();
            assert!(!running.is_valid(start()));
            // While it runs, and at the next start.
            assert!(running.renew(start()).expect("renews").server);
            assert!(running.is_valid(start()) && running.is_valid(start() - BACKDATED));
            let again = Authority::open(folder.path(), names(&[]), wrong).expect("opens");
            let next = Authority::open(folder.path(), names(&[]), start()).expect("opens");
            assert!(again.is_valid(wrong) && next.is_valid(start()));
            // Copies of the CA's certificate from a time when the clock was ahead are valid.
            let path = Path::new("ca.crt");
            let copy = certificate(path, &in_kubeconfigs).expect("a certificate");
            if wrong > start() {
                assert_eq!(validity(&parse(path, &copy).expect("a certificate"), start()), Ok(()));
            }
        }
    }

    #[test]
    fn damage_is_named_and_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        Authority::open(folder.path(), names(&[]), start()).expect("opens");
        std::fs::write(folder.path().join("ca.key"), "no key").expect("writes");
        let error = Authority::open(folder.path(), names(&[]), start()).err().expect("fails").to_string();
        assert!(error.contains("ca.key"), "{error}");
        assert_eq!(std::fs::read(folder.path().join("ca.key")).expect("is there"), b"no key");
    }
}
