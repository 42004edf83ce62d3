//! The digest of a zone (ZONEMD, RFC 8976): whether the zone has changed since its digest was computed.

use aws_lc_rs::digest::{Algorithm, Context, SHA384, SHA512};

use super::Code;
use super::report::{Reporter, found};
use super::verify::canonical_order;
use crate::wire::{Class, RecordType};
use crate::zone::Contents;
use crate::zone::rrset::ttl_of;

/// The scheme SIMPLE, the only defined one (RFC 8976 §5.2).
const SIMPLE: u8 = 1;

/// Checks the ZONEMD records at the apex (RFC 8976 §4).
pub(super) fn check(zone: &Contents, report: &mut Reporter<'_>) {
    let apex = zone.apex();
    let Some(records) = zone.get(apex, RecordType::ZONEMD) else { return };
    let soa = zone.get(apex, RecordType::SOA).and_then(|soa| soa.rdata.first());
    // The serial is the first of the five numbers that end the data (RFC 1035 §3.3.13).
    let serial = soa.and_then(|soa| soa.last_chunk::<20>()).map(|&[a, b, c, d, ..]| u32::from_be_bytes([a, b, c, d]));
    for data in &records.rdata {
        let Some((&[a, b, c, d, scheme, hash], digest)) = data.split_first_chunk::<6>() else { continue };
        let algorithm = match (scheme, hash) {
            (SIMPLE, 1) => &SHA384,
            (SIMPLE, 2) => &SHA512,
            _ => {
                found!(report: Code::ZonemdUnchecked, apex, RecordType::ZONEMD;
                    "the ZONEMD of scheme {scheme} and hash {hash} was not verified: unsupported scheme or hash");
                continue;
            }
        };
        // RFC 8976 §4: a record is used only if no other one has its scheme and hash.
        if records.rdata.iter().filter(|other| other[4..6] == [scheme, hash]).count() > 1 {
            found!(report: Code::ZonemdWrong, apex, RecordType::ZONEMD;
                "several ZONEMD have scheme {scheme} and hash {hash}, so none of them is valid; keep one");
            continue;
        }
        let of = u32::from_be_bytes([a, b, c, d]);
        if let Some(serial) = serial.filter(|serial| *serial != of) {
            found!(report: Code::ZonemdSerial, apex, RecordType::ZONEMD;
                "the ZONEMD has serial {of}, the SOA has serial {serial}; compute the digest again");
        } else if simple(zone, algorithm) != digest {
            found!(report: Code::ZonemdWrong, apex, RecordType::ZONEMD;
                "the digest of the zone does not match its ZONEMD of hash {hash}: the zone has changed; compute the \
                 digest again");
        }
    }
}

/// Returns the digest of the scheme SIMPLE (RFC 8976 §3.3.1): all records in canonical form and order, except the apex's ZONEMD
/// and the signatures over it.
fn simple(zone: &Contents, algorithm: &'static Algorithm) -> Vec<u8> {
    let mut context = Context::new(algorithm);
    for (owner, rrsets) in zone.owners() {
        let at_apex = owner == zone.apex();
        let name = owner.to_lowercase();
        let mut rrsets: Vec<_> = rrsets.iter().collect();
        let beside = zone.owner(owner);
        rrsets.sort_unstable_by_key(|rrset| rrset.rtype);
        for rrset in rrsets {
            let of_digest = |data: &[u8]| match rrset.rtype {
                RecordType::RRSIG => data.starts_with(&RecordType::ZONEMD.0.to_be_bytes()),
                rtype => rtype == RecordType::ZONEMD,
            };
            for data in canonical_order(rrset) {
                if at_apex && of_digest(&data) {
                    continue;
                }
                context.update(name.as_wire());
                context.update(&rrset.rtype.0.to_be_bytes());
                context.update(&Class::IN.0.to_be_bytes());
                context.update(&ttl_of(rrset, &data, beside).seconds().to_be_bytes());
                context.update(&(data.len() as u16).to_be_bytes());
                context.update(&data);
            }
        }
    }
    context.finish().as_ref().to_vec()
}
