//! A response as it came off the wire (RFC 1035 §4), with names and data uncompressed.

use signpost_dns::wire::edns::option;
use signpost_dns::wire::header::{FLAG_AA, FLAG_CD, FLAG_QR, FLAG_RD, FLAG_TC, HEADER_OCTETS, Header, Rcode};
use signpost_dns::wire::rdata::{self, Field};
use signpost_dns::wire::{Name, RecordType};

/// AD and RA, which an authoritative server does not set, but which a resolver asked by mistake does.
const OTHER_FLAGS: [(u16, &str); 2] = [(0x0080, "ra"), (0x0020, "ad")];

/// What a server said.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Response {
    /// The header.
    pub(in crate::cli) header: Header,
    /// With the upper bits of the OPT record.
    pub(in crate::cli) rcode: Rcode,
    pub(in crate::cli) answer: Vec<Record>,
    pub(in crate::cli) authority: Vec<Record>,
    /// Without the OPT record.
    pub(in crate::cli) additional: Vec<Record>,
    pub(in crate::cli) edns: Option<Opt>,
    /// How long the message was.
    pub(in crate::cli) octets: usize,
}

/// A record with uncompressed data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) struct Record {
    pub(in crate::cli) owner: Name,
    pub(in crate::cli) rtype: RecordType,
    pub(in crate::cli) ttl: u32,
    pub(in crate::cli) rdata: Box<[u8]>,
}

/// The OPT record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::cli) struct Opt {
    /// Largest UDP payload that the server takes.
    pub(in crate::cli) payload_octets_max: u16,
    pub(in crate::cli) dnssec_ok: bool,
    /// The server's identifier (RFC 5001).
    pub(in crate::cli) nsid: Option<Box<[u8]>>,
    /// Extended errors with their texts (RFC 8914).
    pub(in crate::cli) errors: Vec<(u16, String)>,
}

impl Response {
    /// Reads a message; `None` if it is cut off or malformed.
    pub(in crate::cli) fn read(message: &[u8]) -> Option<Response> {
        let header = Header::read(message)?;
        let mut at = HEADER_OCTETS;
        for _ in 0..header.questions {
            at = read_name(message, at)?.1.checked_add(4).filter(|end| *end <= message.len())?;
        }
        let mut sections = [const { Vec::new() }; 3];
        let mut edns = None;
        let mut upper = 0;
        for (section, count) in sections.iter_mut().zip([header.answers, header.authorities, header.additionals]) {
            // Each turn takes eleven octets at least off the message.
            for _ in 0..count {
                let (owner, fixed) = read_name(message, at)?;
                let [type_high, type_low, class_high, class_low, ttl @ .., length_high, length_low] =
                    *message.get(fixed..)?.first_chunk::<10>()?;
                let rtype = RecordType(u16::from_be_bytes([type_high, type_low]));
                let ttl = u32::from_be_bytes(ttl);
                let start = fixed + 10;
                at = start + usize::from(u16::from_be_bytes([length_high, length_low]));
                let data = message.get(start..at)?;
                if rtype == RecordType::OPT {
                    upper = (ttl >> 24) as u16;
                    edns = Some(Opt::read(u16::from_be_bytes([class_high, class_low]), ttl, data)?);
                } else {
                    section.push(Record { owner, rtype, ttl, rdata: uncompressed(rtype, message, start, at)? });
                }
            }
        }
        let [answer, authority, additional] = sections;
        let rcode = Rcode(upper << 4 | (header.flags & 0x0f));
        Some(Response { header, rcode, answer, authority, additional, edns, octets: message.len() })
    }

    /// The flags that are set, as `dig` names them.
    pub(in crate::cli) fn flags(&self) -> Vec<&'static str> {
        let known = [(FLAG_QR, "qr"), (FLAG_AA, "aa"), (FLAG_TC, "tc"), (FLAG_RD, "rd"), (FLAG_CD, "cd")];
        let set = |flag: &&(u16, &'static str)| self.header.flags & flag.0 != 0;
        known.iter().chain(&OTHER_FLAGS).filter(set).map(|(_, name)| *name).collect()
    }

    /// Whether it was cut to fit.
    pub(in crate::cli) fn is_truncated(&self) -> bool {
        self.header.flags & FLAG_TC != 0
    }

    /// The serial of the SOA in the answer.
    pub(in crate::cli) fn serial(&self) -> Option<u32> {
        let soa = self.answer.iter().find(|record| record.rtype == RecordType::SOA)?;
        serial(&soa.rdata)
    }
}

/// The serial in the data of an SOA.
pub(in crate::cli) fn serial(rdata: &[u8]) -> Option<u32> {
    let (_, rest) = Name::split_from(rdata).ok()?;
    let (_, numbers) = Name::split_from(rest).ok()?;
    numbers.first_chunk().map(|octets| u32::from_be_bytes(*octets))
}

impl Opt {
    fn read(payload_octets_max: u16, ttl: u32, mut options: &[u8]) -> Option<Opt> {
        let mut opt = Opt { payload_octets_max, dnssec_ok: ttl & 0x8000 != 0, ..Opt::default() };
        while !options.is_empty() {
            let [code_high, code_low, length_high, length_low] = *options.first_chunk::<4>()?;
            let length = usize::from(u16::from_be_bytes([length_high, length_low]));
            let (data, rest) = options[4..].split_at_checked(length)?;
            options = rest;
            match u16::from_be_bytes([code_high, code_low]) {
                option::NSID => opt.nsid = Some(data.into()),
                option::EXTENDED_ERROR => {
                    let code = u16::from_be_bytes(*data.first_chunk()?);
                    opt.errors.push((code, String::from_utf8_lossy(&data[2..]).into_owned()));
                }
                _ => {}
            }
        }
        Some(opt)
    }
}

/// What an extended error is called in the registry of RFC 8914 and those after it.
pub(in crate::cli) fn error_name(code: u16) -> &'static str {
    const NAMES: [&str; 31] = [
        "Other Error",
        "Unsupported DNSKEY Algorithm",
        "Unsupported DS Digest Type",
        "Stale Answer",
        "Forged Answer",
        "DNSSEC Indeterminate",
        "DNSSEC Bogus",
        "Signature Expired",
        "Signature Not Yet Valid",
        "DNSKEY Missing",
        "RRSIGs Missing",
        "No Zone Key Bit Set",
        "NSEC Missing",
        "Cached Error",
        "Not Ready",
        "Blocked",
        "Censored",
        "Filtered",
        "Prohibited",
        "Stale NXDOMAIN Answer",
        "Not Authoritative",
        "Not Supported",
        "No Reachable Authority",
        "Network Error",
        "Invalid Data",
        "Signature Expired before Valid",
        "Too Early",
        "Unsupported NSEC3 Iterations Value",
        "Unable to conform to policy",
        "Synthesized",
        "Invalid Query Type",
    ];
    NAMES.get(usize::from(code)).copied().unwrap_or("Unassigned")
}

/// What a response code is called.
pub(in crate::cli) fn rcode_name(rcode: Rcode) -> String {
    let name = match rcode.0 {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        6 => "YXDOMAIN",
        9 => "NOTAUTH",
        16 => "BADVERS",
        23 => "BADCOOKIE",
        other => return format!("RCODE{other}"),
    };
    name.to_owned()
}

/// The possibly compressed name at `at`, and where it ends there. A pointer leads backwards only (RFC 1035 §4.1.4: "a
/// prior occurance"), so none can lead in a circle.
fn read_name(message: &[u8], mut at: usize) -> Option<(Name, usize)> {
    let mut wire = Vec::with_capacity(32);
    let mut end = None;
    let mut before = at;
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => {
                wire.push(0);
                return Some((Name::from_wire(&wire).ok()?, end.unwrap_or(at + 1)));
            }
            1..=63 => {
                wire.extend_from_slice(message.get(at..at + 1 + length)?);
                at += 1 + length;
            }
            0xc0.. => {
                let target = (length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                end.get_or_insert(at + 2);
                if target >= before {
                    return None;
                }
                (at, before) = (target, target);
            }
            _ => return None,
        }
        if wire.len() > 255 {
            return None;
        }
    }
}

/// The data of a record from `start` to `end`, its names without pointers.
fn uncompressed(rtype: RecordType, message: &[u8], start: usize, end: usize) -> Option<Box<[u8]>> {
    let mut octets = Vec::with_capacity(end - start);
    let mut at = start;
    for field in rdata::fields(rtype) {
        let fixed = match field {
            Field::Name(_) => {
                let (name, after) = read_name(message, at)?;
                octets.extend_from_slice(name.as_wire());
                at = after;
                0
            }
            Field::U8 | Field::Algorithm => 1,
            Field::U16 | Field::Type | Field::CertificateType => 2,
            Field::U32 | Field::Seconds | Field::Timestamp => 4,
            Field::CharacterString => 1 + usize::from(*message.get(at)?),
            // No name that could be compressed comes after any other.
            _ => break,
        };
        octets.extend_from_slice(message.get(at..at + fixed)?);
        at += fixed;
    }
    octets.extend_from_slice(message.get(at..end)?);
    Some(octets.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::zonefile::rdata_out;

    fn text(record: &Record) -> String {
        let mut data = Vec::new();
        rdata_out::write(record.rtype, &record.rdata, &mut data);
        format!("{} {} {} {}", record.owner, record.ttl, record.rtype, String::from_utf8_lossy(&data))
    }

    /// `www.example. MX`, with an MX, an SOA in authority, an address, and an OPT record with an extended error.
    fn message() -> Vec<u8> {
        let mut message = b"\0\x07\x84\x03\0\x01\0\x01\0\x01\0\x02\x03www\x07example\0\0\x0f\0\x01".to_vec();
        message.extend_from_slice(b"\xc0\x0c\0\x0f\0\x01\0\0\0\x3c\0\x07\0\x0a\x02mx\xc0\x10");
        message.extend_from_slice(b"\xc0\x10\0\x06\0\x01\0\0\0\x1e\0\x1a\x02ns\xc0\x10\x01h\xc0\x10");
        message.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        // The SOA's data: 5 + 4 octets of names and 20 of numbers.
        let at = message.len() - 29 - 2;
        message[at..at + 2].copy_from_slice(&29_u16.to_be_bytes());
        message.extend_from_slice(b"\x02mx\xc0\x10\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01");
        message.extend_from_slice(b"\0\0\x29\x04\xd0\x01\0\x80\0\0\x0d\0\x0f\0\x05\0\x0ehm!\0\x03\0\0");
        message
    }

    #[test]
    fn a_response() {
        let response = Response::read(&message()).expect("is well-formed");
        assert_eq!(response.flags(), ["qr", "aa"]);
        assert_eq!((response.rcode, response.is_truncated()), (Rcode(0x13), false));
        assert_eq!(response.answer.iter().map(text).collect::<Vec<_>>(), ["www.example. 60 MX 10 mx.example."]);
        assert_eq!(text(&response.authority[0]), "example. 30 SOA ns.example. h.example. 9 1 2 3 4");
        assert_eq!(serial(&response.authority[0].rdata), Some(9));
        assert_eq!(response.additional.iter().map(text).collect::<Vec<_>>(), ["mx.example. 5 A 192.0.2.1"]);
        let edns = response.edns.expect("there is one");
        assert_eq!((edns.payload_octets_max, edns.dnssec_ok, edns.nsid.as_deref()), (1232, true, Some(&b""[..])));
        assert_eq!(edns.errors, [(14, "hm!".to_owned())]);
    }

    #[test]
    fn what_is_cut_off_or_loops_is_refused() {
        let whole = message();
        for length in 0..whole.len() {
            assert_eq!(Response::read(&whole[..length]), None, "{length}");
        }
        let looping = b"\0\x07\x80\0\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01";
        assert_eq!(Response::read(looping), None);
    }

    #[test]
    fn names_of_codes() {
        assert_eq!((error_name(14), error_name(20), error_name(999)), ("Not Ready", "Not Authoritative", "Unassigned"));
        assert_eq!((rcode_name(Rcode::NXDOMAIN), rcode_name(Rcode(77))), ("NXDOMAIN".to_owned(), "RCODE77".to_owned()));
    }
}
