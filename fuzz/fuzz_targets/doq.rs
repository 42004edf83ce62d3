//! Any octets as a stream of DNS over QUIC. The properties: no panic; what is a query has the ID 0, has the length in
//! front of it, and has no edns-tcp-keepalive option that hickory-proto finds; and none of its beginnings is already
//! more than it.

#![no_main]

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::opt::EdnsCode;
use libfuzzer_sys::fuzz_target;
use signpost_dns::transport::quic::framing::{expected_octets, query};

fuzz_target!(|octets: &[u8]| {
    let found = query(octets);
    for end in 0..octets.len().min(300) {
        match expected_octets(&octets[..end]) {
            Ok(Some(expected)) => assert!(end <= expected),
            Ok(None) => assert!(end < 2),
            Err(_) => assert!(found.is_err()),
        }
    }
    let Ok(message) = found else { return };
    assert_eq!(message, &octets[2..]);
    assert_eq!(message.len(), usize::from(u16::from_be_bytes([octets[0], octets[1]])));
    assert_eq!(message[..2], [0, 0]);
    // RFC 6891 §6.1.2: the owner of an OPT record is the octet 0. hickory-proto follows a compression pointer to one.
    let may_have_compressed_opt = message.windows(4).any(|octets| octets[0] >= 0xc0 && octets[2..] == [0, 41]);
    let Ok(parsed) = Message::from_vec(message) else { return };
    let has_keepalive =
        parsed.edns.is_some_and(|edns| edns.version() == 0 && edns.option(EdnsCode::Keepalive).is_some());
    assert!(!has_keepalive || may_have_compressed_opt);
});
