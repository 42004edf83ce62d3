//! The DS records that a zone requests from its parent (CDS and CDNSKEY, RFC 7344, RFC 8078): whether they are consistent.
//!
//! The parent ignores inconsistent records, so a change of keys, or the end of signing, would wait indefinitely.

use aws_lc_rs::digest::{Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256, SHA384};

use super::report::{Reporter, found};
use super::signed::key_tag;
use super::{CheckContext, Code};
use crate::wire::{Name, RecordType};
use crate::zone::rrset::Rdata;

/// RFC 8078 §4: the data that requests deletion of all DS records, for CDS and for CDNSKEY.
const DELETE_CDS: &[u8] = &[0, 0, 0, 0, 0];
const DELETE_CDNSKEY: &[u8] = &[0, 0, 3, 0, 0];

/// Checks the apex's CDS and CDNSKEY records.
pub(super) fn check(view: &CheckContext<'_>, report: &mut Reporter<'_>) {
    let apex = view.zone.apex();
    let records = |rtype| view.zone.get(apex, rtype).map_or(&[][..], |rrset| &rrset.rdata);
    let (digests, keys) = (records(RecordType::CDS), records(RecordType::CDNSKEY));
    for (rtype, records, delete) in
        [(RecordType::CDS, digests, DELETE_CDS), (RecordType::CDNSKEY, keys, DELETE_CDNSKEY)]
    {
        if records.len() > 1 && is_among(records, delete) {
            found!(report: Code::CdsMismatch, apex, rtype;
                "one {rtype} requests deletion of the DS records, others request DS records; keep one kind (RFC 8078 \
                 §4)");
            return;
        }
    }
    if digests.is_empty() || keys.is_empty() {
        return;
    }
    if is_among(digests, DELETE_CDS) != is_among(keys, DELETE_CDNSKEY) {
        found!(report: Code::CdsMismatch, apex, RecordType::CDS;
            "only one of CDS and CDNSKEY requests deletion of the DS records (RFC 8078 §4)");
        return;
    }
    if is_among(digests, DELETE_CDS) {
        return;
    }
    if let Some(digest) = digests.iter().find(|digest| !keys.iter().any(|key| is_of(apex, digest, key))) {
        let tag = digest.first_chunk().map_or(0, |tag| u16::from_be_bytes(*tag));
        found!(report: Code::CdsMismatch, apex, RecordType::CDS;
            "the CDS of key {tag} matches no CDNSKEY record (RFC 7344 §4)");
    }
    if let Some(key) = keys.iter().find(|key| !digests.iter().any(|digest| is_of(apex, digest, key))) {
        let tag = key_tag(key);
        found!(report: Code::CdsMismatch, apex, RecordType::CDNSKEY;
            "the CDNSKEY with tag {tag} has no CDS (RFC 7344 §4)");
    }
}

fn is_among(records: &[Rdata], delete: &[u8]) -> bool {
    records.iter().any(|data| **data == *delete)
}

/// Returns whether `digest`, the data of a CDS, matches `key`, the data of a CDNSKEY (RFC 4034 §5.1.4); for unknown digest types,
/// tag and algorithm decide.
fn is_of(apex: &Name, digest: &[u8], key: &[u8]) -> bool {
    let Some((&[tag_high, tag_low, algorithm, kind], digest)) = digest.split_first_chunk::<4>() else { return false };
    if [tag_high, tag_low] != key_tag(key).to_be_bytes() || key.get(3) != Some(&algorithm) {
        return false;
    }
    let known: Option<&'static Algorithm> = match kind {
        1 => Some(&SHA1_FOR_LEGACY_USE_ONLY),
        2 => Some(&SHA256),
        4 => Some(&SHA384),
        _ => None,
    };
    known.is_none_or(|known| {
        let mut context = Context::new(known);
        context.update(apex.to_lowercase().as_wire());
        context.update(key);
        context.finish().as_ref() == digest
    })
}
