//! Records that are wrong in themselves: a digest of the wrong length for its type, and obsolete types.

use super::code::Code;
use super::report::{Reporter, found};
use crate::wire::{Name, RecordType};
use crate::zone::rrset::{Rdata, Rrset};

/// Checks the records of one owner.
pub(super) fn check(owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    for Rrset { rtype, rdata, .. } in rrsets {
        match *rtype {
            RecordType::DS => {
                if let Some((kind, found, expected)) = wrong(rdata, 4, &DS) {
                    found!(report: Code::DsDigest, owner, *rtype;
                        "a DS of {owner} has a digest of {found} octets; a digest of type {kind} must have {expected}");
                }
            }
            RecordType::SSHFP => {
                if let Some((kind, found, expected)) = wrong(rdata, 2, &SSHFP) {
                    found!(report: Code::SshfpDigest, owner, *rtype;
                        "an SSHFP of {owner} has a fingerprint of {found} octets; a fingerprint of type {kind} must \
                         have {expected}");
                }
            }
            RecordType::MD | RecordType::MF => found!(report: Code::TypeObsolete, owner, *rtype;
                "{rtype} records are obsolete (RFC 973, RFC 1035 §3.3.4 f.), and BIND rejects them; use MX"),
            _ => {}
        }
    }
}

/// The lengths of a DS's digests by digest type (RFC 4034 §5.1, RFC 4509, RFC 5933, RFC 6605).
const DS: [(u8, usize); 4] = [(1, 20), (2, 32), (3, 32), (4, 48)];
/// The lengths of an SSHFP's fingerprints by fingerprint type (RFC 4255 §3.1.2, RFC 6594 §2).
const SSHFP: [(u8, usize); 2] = [(1, 20), (2, 32)];

/// Returns the type, the length and the expected length of the first digest of a wrong length. Digests begin at `at`, after their
/// type.
fn wrong(rdata: &[Rdata], at: usize, lengths: &[(u8, usize)]) -> Option<(u8, usize, usize)> {
    rdata.iter().find_map(|data| {
        let (kind, digest) = (*data.get(at - 1)?, &data[at..]);
        let (_, expected) = *lengths.iter().find(|(known, _)| *known == kind)?;
        (digest.len() != expected).then_some((kind, digest.len(), expected))
    })
}
