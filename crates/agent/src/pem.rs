//! Certificates and keys in PEM (RFC 7468). Pure.
//!
//! nginx reads a certificate in each handshake, so that its check of a configuration does not find one that is broken. The agent
//! therefore checks certificates itself, as strictly as the TLS library of its own connections.

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use signpost_types::instance::ServedCertificate;
use tokio_rustls::rustls::crypto::aws_lc_rs::sign::any_supported_type;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{Error, InconsistentKeys};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
use x509_parser::public_key::PublicKey;

/// The labels of blocks with a private key.
const KEY_LABELS: [&str; 3] = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];

/// A certificate with its chain, and its private key, without any text between their blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyPair {
    /// The certificate first.
    pub chain: String,
    pub key: String,
}

/// A text that is not a certificate with its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    #[error("there is no certificate in PEM")]
    NoCertificate,
    #[error("there is no private key in PEM, or it is encrypted")]
    NoKey,
    #[error("a certificate is damaged")]
    Certificate,
    #[error("the private key is damaged, or of a type that is not supported")]
    Key,
    #[error("the private key does not belong to the certificate")]
    Mismatch,
    #[error(
        "a certificate has a signature or key that is too weak or too expensive; use RSA with 2048 to 4096 bits, or ECDSA, and SHA-256 or better"
    )]
    Strength,
}

/// The algorithms of signatures (RFC 8017, RFC 5758, RFC 8410) that proxies accept, with SHA-256 or better.
const SIGNATURES: [&str; 8] = [
    "1.2.840.113549.1.1.10",
    "1.2.840.113549.1.1.11",
    "1.2.840.113549.1.1.12",
    "1.2.840.113549.1.1.13",
    "1.2.840.10045.4.3.2",
    "1.2.840.10045.4.3.3",
    "1.2.840.10045.4.3.4",
    "1.3.101.112",
];
/// The lengths of RSA keys. A handshake with 8192 bits takes the router eight times as long as one with 4096.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=4_096;

impl KeyPair {
    /// Returns the blocks of a text. They are not decoded.
    pub fn split(text: &str) -> Result<KeyPair, PemError> {
        KeyPair::of(text, text)
    }

    /// Returns the blocks of a text with certificates and of one with a key.
    pub fn of(chain: &str, key: &str) -> Result<KeyPair, PemError> {
        let only = |text: &str, is_wanted: fn(&str) -> bool| -> Vec<String> {
            blocks(text).into_iter().filter(|(label, _)| is_wanted(label)).map(|(_, block)| block).collect()
        };
        let chain = only(chain, |label| label == "CERTIFICATE").concat();
        if chain.is_empty() {
            return Err(PemError::NoCertificate);
        }
        let key = only(key, |label| KEY_LABELS.contains(&label)).into_iter().next().ok_or(PemError::NoKey)?;
        Ok(KeyPair { chain, key })
    }

    /// Checks that proxies accept the certificates, and that a handshake costs them no more than usual. For certificates of tenants: one that a
    /// proxy rejects costs it a reload.
    pub fn check_strength(&self) -> Result<(), PemError> {
        for der in CertificateDer::pem_slice_iter(self.chain.as_bytes()) {
            let der = der.map_err(|_| PemError::Certificate)?;
            let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| PemError::Certificate)?;
            // Clients do not verify the signature of a root.
            let is_root = certificate.issuer() == certificate.subject();
            let algorithm = certificate.signature_algorithm.algorithm.to_id_string();
            let is_strong = is_root || SIGNATURES.contains(&algorithm.as_str());
            let is_fast = match certificate.public_key().parsed() {
                Ok(PublicKey::RSA(key)) => RSA_BITS.contains(&key.key_size()),
                Ok(_) => true,
                Err(_) => false,
            };
            if !is_strong || !is_fast {
                return Err(PemError::Strength);
            }
        }
        Ok(())
    }

    /// Checks that every certificate and the key are whole, and belong together. Returns what clients see of the certificate.
    pub fn check(&self) -> Result<ServedCertificate, PemError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect();
        let chain = chain.map_err(|_| PemError::Certificate)?;
        let served = chain.first().and_then(served).ok_or(PemError::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|_| PemError::Key)?;
        let key = any_supported_type(&key).map_err(|_| PemError::Key)?;
        match CertifiedKey::new(chain, key).keys_match() {
            Ok(()) => Ok(served),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(PemError::Mismatch),
            Err(_) => Err(PemError::Certificate),
        }
    }
}

/// Returns what clients see of a certificate. Of its names, only the DNS names of the extension count (RFC 9525 §2).
fn served(der: &CertificateDer<'_>) -> Option<ServedCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.into_iter().flat_map(|extension| &extension.value.general_names);
    let name = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    };
    Some(ServedCertificate {
        sha256: HEXLOWER.encode(digest(&SHA256, der).as_ref()),
        not_before: certificate.validity().not_before.timestamp(),
        not_after: certificate.validity().not_after.timestamp(),
        names: names.filter_map(name).collect(),
    })
}

/// Returns the blocks of a text with their labels, each with nothing but base64 between its two lines.
fn blocks(text: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in text.lines().map(str::trim) {
        let begin = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----"));
        let end = line.strip_prefix("-----END ").and_then(|rest| rest.strip_suffix("-----"));
        let is_base64 = line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        open = match (begin, end, open) {
            (Some(label), ..) => Some((label, format!("{line}\n"))),
            (_, Some(label), Some((begun, mut block))) if begun == label => {
                block.extend([line, "\n"]);
                blocks.push((label, block));
                None
            }
            (None, None, Some((label, mut block))) if is_base64 => {
                block.extend([line, "\n"]);
                Some((label, block))
            }
            _ => None,
        };
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a name");
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn certificates_with_and_without_their_keys() {
        let ((certificate, key), (other, other_key)) = (pem("a.example"), pem("b.example"));
        let cut = certificate.replacen("MII", "", 1);
        let cases = [
            (format!("{certificate}{key}"), Ok(())),
            (format!("{key}{certificate}"), Ok(())),
            (format!("{certificate}{other}{key}"), Ok(())),
            (format!("a \"comment\"; }}\n{certificate}x\n{key}"), Ok(())),
            (format!("{certificate}{key}").replace('\n', "\r\n"), Ok(())),
            (String::new(), Err(PemError::NoCertificate)),
            (key.clone(), Err(PemError::NoCertificate)),
            (certificate.clone(), Err(PemError::NoKey)),
            (format!("{certificate}{}", key.replace("PRIVATE", "ENCRYPTED PRIVATE")), Err(PemError::NoKey)),
            (format!("{certificate}{}", key.replace('M', "\";")), Err(PemError::NoKey)),
            (format!("{certificate}{other_key}"), Err(PemError::Mismatch)),
            (format!("{cut}{key}"), Err(PemError::Certificate)),
            (format!("{certificate}{}", key.replacen("MI", "AA", 1)), Err(PemError::Key)),
        ];
        for (text, expected) in cases {
            let found = KeyPair::split(&text).and_then(|pair| pair.check());
            assert_eq!(found.map(|served| assert_eq!(served.names, ["a.example"])), expected, "{text}");
        }
    }

    /// A text with very many short lines, each of which would otherwise copy those before it: minutes of work.
    #[test]
    fn many_lines_are_read_once() {
        let bomb = format!("-----BEGIN CERTIFICATE-----\n{}", "A\n".repeat(1 << 19));
        assert_eq!(KeyPair::split(&bomb), Err(PemError::NoCertificate));
        let ended = format!("{bomb}-----END CERTIFICATE-----\n");
        assert_eq!(KeyPair::of(&ended, &ended), Err(PemError::NoKey));
    }

    #[test]
    fn weak_certificates_of_tenants() {
        let (certificate, key) = pem("a.example");
        assert_eq!(KeyPair::of(&certificate, &key).and_then(|pair| pair.check_strength()), Ok(()));
        // The key of a text with both is not taken from the certificate's.
        assert_eq!(
            KeyPair::of(&format!("{key}{certificate}"), &key).map(|pair| pair.chain),
            Ok(certificate.replace("\r\n", "\n"))
        );
        assert_eq!(KeyPair::of(&certificate, &certificate), Err(PemError::NoKey));
        let other = KeyPair { chain: include_str!("pem/rsa1024-sha1.pem").to_owned(), key };
        assert_eq!(other.check_strength(), Err(PemError::Strength));
    }

    #[test]
    fn what_clients_see() {
        let names = ["*.Shop.example".to_owned(), "192.0.2.1".to_owned(), "shop.example".to_owned()];
        let mut parameters = rcgen::CertificateParams::new(names).expect("names");
        (parameters.not_before, parameters.not_after) =
            (rcgen::date_time_ymd(2026, 1, 1), rcgen::date_time_ymd(2026, 2, 1));
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = parameters.self_signed(&key).expect("a certificate");
        let served = KeyPair { chain: made.pem(), key: key.serialize_pem() }.check().expect("it is whole");
        assert_eq!(served.names, ["*.shop.example", "shop.example"]);
        assert_eq!((served.not_before, served.not_after), (1_767_225_600, 1_769_904_000));
        assert_eq!(served.sha256, HEXLOWER.encode(digest(&SHA256, made.der()).as_ref()));
    }

    #[test]
    fn text_between_blocks_is_left_out() {
        let (certificate, key) = pem("a.example");
        let pair = KeyPair::split(&format!("#\n{certificate}\" ;\n{key}}}\n")).expect("both are there");
        assert_eq!((pair.chain, pair.key), (certificate.replace("\r\n", "\n"), key.replace("\r\n", "\n")));
    }
}
