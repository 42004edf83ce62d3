//! Records that are wrong in themselves: a digest of the wrong length for its type, and obsolete types.

use super::code::Code;
use super::report::{Reporter, found};
use crate::wire::{Name, RecordType};
use crate::zone::rrset::Rrset;

/// Checks the records of one owner.
pub(super) fn check(owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    for Rrset { rtype, rdata, .. } in rrsets {
        match *rtype {
            RecordType::DS => {
                if let Some(Digest { kind, found, expected }) = rdata.iter().find_map(|data| wrong_ds(data)) {
                    found!(report: Code::DsDigest, owner, *rtype;
                        "a DS of {owner} has a digest of {found} octets; a digest of type {kind} must have {expected}");
                }
            }
            RecordType::SSHFP => {
                if let Some(Digest { kind, found, expected }) = rdata.iter().find_map(|data| wrong_sshfp(data)) {
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

/// A digest that is too short or too long.
struct Digest {
    kind: u8,
    found: usize,
    expected: usize,
}

impl Digest {
    fn wrong(kind: u8, found: usize, expected: usize) -> Option<Digest> {
        (found != expected).then_some(Digest { kind, found, expected })
    }
}

/// Returns the expected digest length of a DS, by digest type (RFC 4034 §5.1, RFC 4509, RFC 5933, RFC 6605).
fn wrong_ds(data: &[u8]) -> Option<Digest> {
    let (&[_, _, _, kind], digest) = data.split_first_chunk::<4>()?;
    let expected = match kind {
        1 => 20,
        2 | 3 => 32,
        4 => 48,
        _ => return None,
    };
    Digest::wrong(kind, digest.len(), expected)
}

/// Returns the expected fingerprint length of an SSHFP, by fingerprint type (RFC 4255 §3.1.2, RFC 6594 §2).
fn wrong_sshfp(data: &[u8]) -> Option<Digest> {
    let (&[_, kind], fingerprint) = data.split_first_chunk::<2>()?;
    let expected = match kind {
        1 => 20,
        2 => 32,
        _ => return None,
    };
    Digest::wrong(kind, fingerprint.len(), expected)
}
