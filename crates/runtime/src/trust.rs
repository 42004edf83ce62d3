//! The trust anchors of Signpost's clients: the system's certificate authorities, or only the certificates in a file, if the
//! operator configures one.
//!
//! The system's are read at the first handshake that needs them, so that a client that only uses plain HTTP works on a system
//! without any, such as a minimal container.
//!
//! A self-signed certificate (`openssl req -x509`) is marked as a CA by default, and verifiers that follow RFC 5280 §4.2.1.9
//! literally reject such a certificate for a server. An operator who lists one still means that server. A server certificate that
//! is listed itself, octet by octet, is therefore accepted for its own names and its own validity.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls_platform_verifier::Verifier;
use tokio_rustls::rustls;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};

use crate::causes::chain;

/// A text or a file contains no certificates to trust, or an invalid one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TrustError(String);

/// Returns an HTTP client that goes where it is sent and nowhere else: no redirects, no proxies of the environment. Over TLS it
/// trusts the certificates of the file `authorities` and no others, or the system's if that is not given.
pub fn client(authorities: Option<&Path>) -> Result<reqwest::ClientBuilder, TrustError> {
    Ok(direct(authorities.map_or_else(|| Ok(of_system()), only_file)?))
}

/// Returns such a client, which trusts the certificates in a PEM text, or the system's.
///
/// # Errors
///
/// [`TrustError`] if the text contains no certificate, or an invalid one.
pub fn client_of_pem(authorities: Option<&str>) -> Result<reqwest::ClientBuilder, TrustError> {
    Ok(direct(authorities.map_or_else(|| Ok(of_system()), |pem| only(pem.as_bytes()))?))
}

fn direct(trusted: rustls::ClientConfig) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy();
    builder.user_agent(concat!("signpost/", env!("CARGO_PKG_VERSION"))).tls_backend_preconfigured(trusted)
}

/// The reason why a request got no usable response. It omits the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ResponseError(String);

/// Sends a request, and returns the status and the body of the response.
///
/// # Errors
///
/// [`ResponseError`] without a response, or if its body has more than `octets_max` octets.
pub async fn exchange(
    request: reqwest::RequestBuilder,
    octets_max: usize,
) -> Result<(http::StatusCode, Vec<u8>), ResponseError> {
    // The reason for a failed connection is in the error's sources, and users need it.
    let reported = |error: reqwest::Error| ResponseError(chain(&error.without_url()));
    let mut response = request.send().await.map_err(reported)?;
    let mut octets = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(reported)? {
        if octets.len() + chunk.len() > octets_max {
            return Err(ResponseError(format!("the response is larger than {octets_max} bytes")));
        }
        octets.extend_from_slice(&chunk);
    }
    Ok((response.status(), octets))
}

/// Returns the settings of a TLS client that trusts the certificates of this PEM file and no others.
///
/// # Errors
///
/// [`TrustError`] if the file cannot be read, or has no certificate or an invalid one.
pub fn only_file(path: &Path) -> Result<rustls::ClientConfig, TrustError> {
    let fault = |reason: &dyn std::error::Error| TrustError(format!("{}: {reason}", path.display()));
    let pem = std::fs::read(path).map_err(|error| fault(&error))?;
    only(&pem).map_err(|error| fault(&error))
}

/// Returns the settings of a TLS client that trusts the system's certificate authorities, which nothing looks for yet.
pub fn of_system() -> rustls::ClientConfig {
    let peer_verifier = PeerVerifier::of_system(Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    peer_verifier.client_config().expect("the provider has what the default versions need")
}

/// Returns the settings of a TLS client that trusts only the certificates in this PEM text. The error describes the problem of
/// the text, with the number of the certificate if there are several; a text without a certificate is an error.
pub fn only(pem: &[u8]) -> Result<rustls::ClientConfig, TrustError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let peer_verifier = PeerVerifier::of_listed(pem, provider).map_err(TrustError)?;
    peer_verifier.client_config().map_err(|error| TrustError(error.to_string()))
}

/// Returns whether a certificate is rejected only because it is marked as an authority's and was shown by a server.
pub fn is_authority_itself(fault: &CertificateError) -> bool {
    // The verifier's own error type is in a crate that is not a dependency; this is its text.
    matches!(fault, CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}

/// The verifier of server certificates for Signpost's clients.
#[derive(Debug)]
struct PeerVerifier {
    provider: Arc<rustls::crypto::CryptoProvider>,
    trusted: Trusted,
}

#[derive(Debug)]
enum Trusted {
    /// The system's CAs, once they have been read.
    System(OnceLock<Verifier>),
    /// These certificates, and those that they signed, as the library verifies.
    Listed(Vec<CertificateDer<'static>>, Arc<WebPkiServerVerifier>),
}

impl PeerVerifier {
    fn of_system(provider: Arc<rustls::crypto::CryptoProvider>) -> PeerVerifier {
        PeerVerifier { provider, trusted: Trusted::System(OnceLock::new()) }
    }

    fn of_listed(pem: &[u8], provider: Arc<rustls::crypto::CryptoProvider>) -> Result<PeerVerifier, String> {
        let mut certificates = Vec::new();
        let mut roots = rustls::RootCertStore::empty();
        for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let at = |error: String| format!("certificate {}: {error}", index + 1);
            let certificate = certificate.map_err(|error| at(error.to_string()))?;
            roots.add(certificate.clone()).map_err(|error| at(error.to_string()))?;
            certificates.push(certificate);
        }
        if certificates.is_empty() {
            return Err("contains no certificate".to_owned());
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let verifier = verifier.build().map_err(|error| error.to_string())?;
        Ok(PeerVerifier { provider, trusted: Trusted::Listed(certificates, verifier) })
    }

    /// Returns the system's verifier. A system without CAs is checked again at the next handshake: they can be installed
    /// meanwhile.
    fn system<'a>(&self, known: &'a OnceLock<Verifier>) -> Result<&'a Verifier, rustls::Error> {
        if let Some(verifier) = known.get() {
            return Ok(verifier);
        }
        let verifier = Verifier::new(Arc::clone(&self.provider)).map_err(|error| {
            rustls::Error::General(format!(
                "failed to read the system's certificate authorities ({error}); install them (package \
                 ca-certificates), or set a file of authorities"
            ))
        })?;
        Ok(known.get_or_init(|| verifier))
    }

    fn client_config(self) -> Result<rustls::ClientConfig, rustls::Error> {
        Ok(rustls::ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            // The library's name for any verifier that is not its own.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(self))
            .with_no_client_auth())
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let (certificates, verifier) = match &self.trusted {
            Trusted::System(known) => {
                return self.system(known)?.verify_server_cert(shown, between, name, ocsp, now);
            }
            Trusted::Listed(certificates, verifier) => (certificates, verifier),
        };
        match verifier.verify_server_cert(shown, between, name, ocsp, now) {
            // The verifier checks the time before this error, and the name after it.
            Err(rustls::Error::InvalidCertificate(fault))
                if is_authority_itself(&fault) && certificates.contains(shown) =>
            {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, shown, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, shown, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Checks a URL that requests are sent to.
///
/// # Errors
///
/// The reason why requests cannot be sent to it.
pub fn url(text: &str) -> Result<String, &'static str> {
    let parsed: Option<http::Uri> = text.parse().ok();
    let host =
        parsed.as_ref().filter(|url| matches!(url.scheme_str(), Some("http" | "https"))).and_then(http::Uri::host);
    match host {
        Some(host) if !host.is_empty() && !text.contains('@') => Ok(text.to_owned()),
        // Settings and logs show URLs, so they must not contain credentials.
        Some(_) => Err("must be a URL without a user and password"),
        None => Err("must be an https or http URL, such as https://host.example/path"),
    }
}

/// Returns whether requests to this URL leave the machine without TLS.
pub fn is_readable_on_its_way(url: &str) -> bool {
    let Ok(url) = url.parse::<http::Uri>() else { return false };
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_here =
        host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    url.scheme() == Some(&http::uri::Scheme::HTTP) && !is_here
}

/// Returns whether this is a URL for requests that contain credentials: `https`, or `http` on this machine.
pub fn is_for_credentials(text: &str) -> bool {
    url(text).is_ok() && !is_readable_on_its_way(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    /// The start of the validity of these tests' certificates, in Unix time.
    const FROM: u64 = 1_000_000_000;
    const UNTIL: u64 = 1_100_000_000;

    fn params(is_authority: bool) -> CertificateParams {
        let mut params = CertificateParams::new(vec!["placer.example".to_owned()]).expect("a name");
        params.is_ca = match is_authority {
            true => IsCa::Ca(BasicConstraints::Unconstrained),
            false => IsCa::ExplicitNoCa,
        };
        let moment = |seconds| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
        (params.not_before, params.not_after) = (moment(FROM), moment(UNTIL));
        params
    }

    fn of_itself(is_authority: bool) -> (Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        (params(is_authority).self_signed(&key).expect("a certificate"), key)
    }

    fn verified(listed: &[&Certificate], shown: &Certificate, name: &str, now: u64) -> Result<(), CertificateError> {
        let pem: String = listed.iter().map(|certificate| certificate.pem()).collect();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let listed = PeerVerifier::of_listed(pem.as_bytes(), provider).expect("it reads");
        let name = ServerName::try_from(name).expect("a name");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        match listed.verify_server_cert(shown.der(), &[], &name, &[], now) {
            Ok(_) => Ok(()),
            Err(rustls::Error::InvalidCertificate(fault)) => Err(fault),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn one_that_vouches_for_itself_is_taken_if_it_is_listed() {
        for is_authority in [true, false] {
            let (shown, _) = of_itself(is_authority);
            let (other, _) = of_itself(is_authority);
            let name = "placer.example";
            assert_eq!(verified(&[&shown], &shown, name, FROM), Ok(()), "{is_authority}");
            assert_eq!(verified(&[&other, &shown], &shown, name, UNTIL), Ok(()), "{is_authority}");
            assert!(verified(&[&other], &shown, name, FROM).is_err(), "{is_authority}: it is not listed");
            for (name, now) in [("other.example", FROM), (name, FROM - 1), (name, UNTIL + 1)] {
                let fault = verified(&[&shown], &shown, name, now).expect_err("not for that name and time");
                assert!(!is_authority_itself(&fault), "{is_authority} {name} {now}: {fault:?}");
            }
        }
    }

    #[test]
    fn an_authority_vouches_for_others() {
        let (authority, key) = of_itself(true);
        let of_authority = params(true);
        let issuer = Issuer::from_params(&of_authority, key);
        let shown = params(false).signed_by(&KeyPair::generate().expect("a key"), &issuer).expect("a certificate");
        assert_eq!(verified(&[&authority], &shown, "placer.example", FROM), Ok(()));
        // A CA certificate that it signed is not a server certificate, because it is not listed itself.
        let between = params(true).signed_by(&KeyPair::generate().expect("a key"), &issuer).expect("a certificate");
        let fault = verified(&[&authority], &between, "placer.example", FROM).expect_err("an authority's");
        assert!(is_authority_itself(&fault), "{fault:?}");
    }

    #[test]
    fn a_text_that_cannot_be_trusted_says_where() {
        let (good, _) = of_itself(true);
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, said) in [(String::new(), "contains no certificate"), (good.pem() + broken, "certificate 2: ")] {
            let error = only(pem.as_bytes()).expect_err("nothing to trust");
            assert!(error.0.starts_with(said), "{error}");
        }
        assert!(only(good.pem().as_bytes()).is_ok());
    }

    #[test]
    fn urls() {
        for (text, good) in [
            ("https://placer.example/choose", true),
            ("http://127.0.0.1:8080", true),
            ("http://[2001:db8::1]:8080/x?y=z", true),
            ("https://user:secret@placer.example/", false),
            ("ftp://placer.example/", false),
            ("placer.example/choose", false),
            ("/choose", false),
            ("https://", false),
            ("", false),
        ] {
            assert_eq!(url(text).is_ok(), good, "{text}");
        }
    }

    #[test]
    fn plain_http_leaves_the_machine() {
        for (text, expected) in [
            ("http://placer.example/choose", true),
            ("HTTP://192.0.2.1:8080/", true),
            ("http://[2001:db8::1]/", true),
            ("http://localhost.placer.example/", true),
            ("http://127.0.0.1.placer.example/", true),
            ("https://placer.example/choose", false),
            ("http://127.0.0.1:8181/", false),
            ("http://[::1]:8181/", false),
            ("http://LOCALHOST/", false),
        ] {
            assert_eq!(is_readable_on_its_way(text), expected, "{text}");
            assert_eq!(is_for_credentials(text), !expected, "{text}");
        }
        assert!(!is_for_credentials("issuer") && !is_for_credentials("https://user@placer.example"));
    }
}
