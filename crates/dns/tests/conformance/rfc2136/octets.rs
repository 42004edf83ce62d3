//! A request as octets. The fuzz target `update` has this file, too.

use signpost_dns::update::{Record, Request};
use signpost_dns::wire::RecordType;
use signpost_dns::wire::header::{Header, Opcode};

/// Returns the message with this ID, without compression and without additional records; `None` if it would be too long.
pub fn to_octets(id: u16, request: &Request) -> Option<Vec<u8>> {
    let count = |records: &[Record]| u16::try_from(records.len()).ok();
    let (answers, authorities) = (count(&request.prerequisites)?, count(&request.updates)?);
    let flags = u16::from(Opcode::UPDATE.0) << 11;
    let header = Header { id, flags, questions: 1, answers, authorities, additionals: 0 };
    let mut octets = header.to_octets().to_vec();
    octets.extend_from_slice(request.zone.as_wire());
    octets.extend_from_slice(&RecordType::SOA.0.to_be_bytes());
    octets.extend_from_slice(&request.class.0.to_be_bytes());
    for Record { owner, rtype, class, ttl, rdata } in request.prerequisites.iter().chain(&request.updates) {
        octets.extend_from_slice(owner.as_wire());
        octets.extend_from_slice(&rtype.0.to_be_bytes());
        octets.extend_from_slice(&class.0.to_be_bytes());
        octets.extend_from_slice(&ttl.to_be_bytes());
        octets.extend_from_slice(&u16::try_from(rdata.len()).ok()?.to_be_bytes());
        octets.extend_from_slice(rdata);
    }
    (octets.len() <= usize::from(u16::MAX)).then_some(octets)
}
