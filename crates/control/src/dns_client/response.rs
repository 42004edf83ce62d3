//! A response to a query: its header, its records and its EDNS, as `hickory-proto` parses them.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::{self, Message, OpCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{self, DNSClass, RData};
use hickory_proto::serialize::binary::{BinEncodable as _, BinEncoder, NameEncoding};
use signpost_dns::wire::edns::option;
use signpost_dns::wire::header::{FLAG_AA, FLAG_TC, Header, Rcode};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Serial;

use super::Transport;

/// RA: the server offers recursion.
const FLAG_RA: u16 = 0x0080;
/// A response to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The transport that carried it.
    pub transport: Transport,
    /// The time between the query and the response.
    pub took: Duration,
    /// The length of the message.
    pub octets: usize,
    /// The flags of the header.
    pub flags: u16,
    /// The response code, with the upper bits of the OPT record.
    pub rcode: Rcode,
    /// The answer section.
    pub answers: Vec<Record>,
    /// The authority section.
    pub authorities: Vec<Record>,
    /// The additional section, without OPT.
    pub additionals: Vec<Record>,
    /// The OPT record.
    pub edns: Option<Edns>,
}

/// A record of class IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub owner: Name,
    pub rtype: RecordType,
    /// The time to live in seconds.
    pub ttl: u32,
    pub data: Data,
    /// The data in wire format, without compression.
    pub rdata: Box<[u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// The address of an A or AAAA.
    Address(IpAddr),
    /// The target of a CNAME.
    Cname(Name),
    Soa(Serial),
    /// The name server of an NS.
    NameServer(Name),
    /// The strings of a TXT record, concatenated.
    Text(Vec<u8>),
    /// The data of another type.
    Other(RecordType),
}

/// An OPT record (RFC 6891).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Edns {
    /// The largest UDP payload that the server accepts.
    pub payload_octets_max: u16,
    /// The server's identifier (RFC 5001).
    pub nsid: Option<Vec<u8>>,
    /// Extended errors with their texts (RFC 8914).
    pub errors: Vec<(u16, String)>,
}

impl Response {
    /// Parses a message that matches its query; `None` if it is malformed. The sections of a truncated response stay empty: its
    /// last record can be incomplete, so none of it is used (RFC 2181 §9).
    pub(super) fn parse(octets: &[u8], transport: Transport, took: Duration) -> Option<Response> {
        let flags = Header::read(octets)?.flags;
        let mut response = Response {
            transport,
            took,
            octets: octets.len(),
            flags,
            rcode: Rcode(flags & 0x0f),
            answers: Vec::new(),
            authorities: Vec::new(),
            additionals: Vec::new(),
            edns: None,
        };
        if response.is_truncated() {
            return Some(response);
        }
        let message = Message::from_vec(octets).ok().filter(|message| message.metadata.op_code == OpCode::Query)?;
        let records = |records: &[rr::Record]| records.iter().filter_map(Record::of).collect();
        response.rcode = Rcode(u16::from(message.metadata.response_code));
        response.answers = records(&message.answers);
        response.authorities = records(&message.authorities);
        response.additionals = records(&message.additionals);
        response.edns = message.edns.as_ref().map(Edns::of);
        Some(response)
    }

    /// Returns whether the response is truncated (TC).
    pub fn is_truncated(&self) -> bool {
        self.flags & FLAG_TC != 0
    }

    /// Returns whether the server is authoritative for the name (AA).
    pub fn is_authoritative(&self) -> bool {
        self.flags & FLAG_AA != 0
    }

    /// Returns whether the server offers recursion (RA).
    pub fn offers_recursion(&self) -> bool {
        self.flags & FLAG_RA != 0
    }

    /// Returns the serial of the SOA in the answer section.
    pub fn serial(&self) -> Option<Serial> {
        self.answers.iter().find_map(|record| if let Data::Soa(serial) = record.data { Some(serial) } else { None })
    }
}

impl Record {
    /// Returns the record; `None` for another class.
    fn of(record: &rr::Record) -> Option<Record> {
        if record.dns_class != DNSClass::IN {
            return None;
        }
        let name = |name: &rr::Name| Name::from_labels(name.iter(), &Name::root()).ok();
        let rtype = RecordType(u16::from(record.record_type()));
        let data = match &record.data {
            RData::A(address) => Data::Address(address.0.into()),
            RData::AAAA(address) => Data::Address(address.0.into()),
            RData::CNAME(target) => Data::Cname(name(&target.0)?),
            RData::SOA(soa) => Data::Soa(Serial(soa.serial)),
            RData::NS(server) => Data::NameServer(name(&server.0)?),
            RData::TXT(text) => Data::Text(text.txt_data.concat()),
            _ => Data::Other(rtype),
        };
        let mut rdata = Vec::new();
        let mut encoder = BinEncoder::new(&mut rdata);
        encoder.set_name_encoding(NameEncoding::Uncompressed);
        record.data.emit(&mut encoder).ok()?;
        Some(Record { owner: name(&record.name)?, rtype, ttl: record.ttl, data, rdata: rdata.into() })
    }
}

impl Edns {
    fn of(edns: &op::Edns) -> Edns {
        let mut own = Edns { payload_octets_max: edns.max_payload(), ..Edns::default() };
        for (_, found) in edns.options().as_ref() {
            match found {
                EdnsOption::NSID(nsid) => own.nsid = Some(nsid.as_ref().to_vec()),
                EdnsOption::Unknown(option::EXTENDED_ERROR, data) => {
                    if let Some((code, text)) = data.split_first_chunk() {
                        own.errors.push((u16::from_be_bytes(*code), String::from_utf8_lossy(text).into_owned()));
                    }
                }
                _ => {}
            }
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `www.example. MX`, with an MX, an SOA in authority, an address, and an OPT record with NSID and an extended error.
    fn message() -> Vec<u8> {
        let mut message = b"\0\x07\x84\x03\0\x01\0\x01\0\x01\0\x02\x03www\x07example\0\0\x0f\0\x01".to_vec();
        message.extend_from_slice(b"\xc0\x0c\0\x0f\0\x01\0\0\0\x3c\0\x07\0\x0a\x02mx\xc0\x10");
        message.extend_from_slice(b"\xc0\x10\0\x06\0\x01\0\0\0\x1e\0\x1d\x02ns\xc0\x10\x01h\xc0\x10");
        message.extend_from_slice(&[0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
        message.extend_from_slice(b"\x02mx\xc0\x10\0\x01\0\x01\0\0\0\x05\0\x04\xc0\0\x02\x01");
        message.extend_from_slice(b"\0\0\x29\x04\xd0\x01\0\x80\0\0\x0f\0\x0f\0\x05\0\x0ehm!\0\x03\0\x02ns");
        message
    }

    #[test]
    fn a_response_is_parsed_with_names_and_data_uncompressed() {
        let parse = |octets: &[u8]| Response::parse(octets, Transport::Udp, Duration::ZERO);
        let whole = message();
        let response = parse(&whole).expect("well-formed");
        assert_eq!((response.rcode, response.octets), (Rcode(0x13), whole.len()));
        assert!(response.is_authoritative() && !response.is_truncated() && !response.offers_recursion());
        let shown = |record: &Record| format!("{} {} {}", record.owner, record.ttl, record.rtype);
        let sections = [&response.answers, &response.authorities, &response.additionals];
        let sections = sections.map(|records| records.iter().map(shown).collect::<Vec<_>>().join(", "));
        assert_eq!(sections, ["www.example. 60 MX", "example. 30 SOA", "mx.example. 5 A"]);
        assert_eq!(&*response.answers[0].rdata, b"\0\x0a\x02mx\x07example\0");
        assert_eq!(response.authorities[0].rdata[..4], *b"\x02ns\x07");
        assert_eq!(response.authorities[0].data, Data::Soa(Serial(9)));
        assert_eq!(response.additionals[0].data, Data::Address([192, 0, 2, 1].into()));
        let expected =
            Edns { payload_octets_max: 1232, nsid: Some(b"ns".to_vec()), errors: vec![(14, "hm!".to_owned())] };
        assert_eq!(response.edns, Some(expected));
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
        // A name that points to itself; another kind of message.
        assert_eq!(parse(b"\0\x07\x80\0\0\x01\0\0\0\0\0\0\xc0\x0c\0\x01\0\x01"), None);
        assert_eq!(parse(b"\0\x07\xa0\0\0\0\0\0\0\0\0\0"), None);
    }
}
