//! Client certificates: the subject's common name is the user, its organizations are the groups.
//!
//! The TLS accept loop verifies a certificate against the CA of clients and puts it into the extensions of every request of the
//! connection; no other code may do so. Two checks are made for each request: whether the certificate was revoked, and whether it
//! has expired since the handshake.

use std::collections::{HashMap, HashSet};

use crate::auth::identity::{GROUP_AUTHENTICATED, Identity};
use signpost_runtime::httpd::ClientCertificate;

/// The certificates that are rejected although the CA signed them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Revocations {
    users: HashMap<String, i64>,
    serials: HashSet<String>,
}

impl Revocations {
    /// Rejects all certificates of the user that began at `time` (seconds since the epoch) or before.
    pub fn refuse_user(&mut self, user: &str, time: i64) {
        let known = self.users.entry(user.to_owned()).or_insert(time);
        *known = time.max(*known);
    }

    /// Rejects the certificate with this serial number, in lower-case hexadecimal.
    pub fn refuse_serial(&mut self, serial: &str) {
        self.serials.insert(serial.to_owned());
    }

    /// Returns the identity of the certificate; `None` if it is rejected at `now`, in seconds since the epoch.
    pub fn identify(&self, certificate: &ClientCertificate, now: i64) -> Option<Identity> {
        let revoked = self.serials.contains(&certificate.serial)
            || self.users.get(&certificate.common_name).is_some_and(|time| certificate.not_before <= *time);
        let ended = certificate.not_after < now;
        (!revoked && !ended).then(|| {
            let mut groups = certificate.organizations.clone();
            groups.push(GROUP_AUTHENTICATED.to_owned());
            Identity { user: certificate.common_name.clone(), groups }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> ClientCertificate {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        parameters.distinguished_name.push(rcgen::DnType::OrganizationName, "ops");
        parameters.serial_number = Some(vec![0x4a, 0x00, 0xff].into());
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        ClientCertificate::from_der(certificate.der()).expect("a subject")
    }

    #[test]
    fn subjects() {
        let certificate = certificate();
        assert_eq!(certificate.serial, "4a00ff");
        assert_eq!(
            Revocations::default().identify(&certificate, 1_800_000_000),
            Some(Identity { user: "alice".into(), groups: vec!["ops".into(), GROUP_AUTHENTICATED.into()] })
        );
        assert_eq!(ClientCertificate::from_der(b"no certificate"), None);
    }

    #[test]
    fn revoked_and_ended_ones_are_refused() {
        let certificate = ClientCertificate { not_before: 1_000, not_after: 2_000, ..certificate() };
        let with = |change: &dyn Fn(&mut Revocations)| {
            let mut revocations = Revocations::default();
            change(&mut revocations);
            revocations
        };
        for (what, revocations, now, good) in [
            ("nothing", Revocations::default(), 1_500, true),
            ("ended", Revocations::default(), 2_001, false),
            ("its serial", with(&|one| one.refuse_serial("4a00ff")), 1_500, false),
            ("another serial", with(&|one| one.refuse_serial("4a00fe")), 1_500, true),
            ("its user, later", with(&|one| one.refuse_user("alice", 1_200)), 1_500, false),
            ("its user, before it was made", with(&|one| one.refuse_user("alice", 999)), 1_500, true),
            ("another user", with(&|one| one.refuse_user("bob", 1_200)), 1_500, true),
        ] {
            assert_eq!(revocations.identify(&certificate, now).is_some(), good, "{what}");
        }
    }
}
