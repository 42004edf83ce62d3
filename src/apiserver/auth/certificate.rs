//! Client certificates: the subject's common name is the user, its organizations are the groups.

use x509_parser::prelude::{FromDer, X509Certificate};

use crate::api::identity::{GROUP_AUTHENTICATED, Identity};

/// Whom the peer's certificate names. The TLS accept loop verifies the certificate against the authority of clients and
/// puts this into the extensions of every request of the connection; nothing else may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organizations.
    pub organizations: Vec<String>,
}

impl PeerCertificate {
    /// Reads the subject of a verified certificate in DER; `None` if it has no common name.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let common_name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let organizations = subject.iter_organization().filter_map(|one| one.as_str().ok()).map(str::to_owned);
        (!common_name.is_empty()).then(|| PeerCertificate { common_name, organizations: organizations.collect() })
    }

    /// The identity it proves.
    pub fn identity(&self) -> Identity {
        let mut groups = self.organizations.clone();
        groups.push(GROUP_AUTHENTICATED.to_owned());
        Identity { user: self.common_name.clone(), groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects() {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "ops");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        let peer = PeerCertificate::from_der(certificate.der()).expect("a subject");
        assert_eq!(
            peer.identity(),
            Identity { user: "alice".into(), groups: vec!["ops".into(), GROUP_AUTHENTICATED.into()] }
        );
        assert_eq!(PeerCertificate::from_der(b"no certificate"), None);
    }
}
