//! RFC 8906: failures to answer; its list of tests in section 8.

use crate::conformance::stage::{Stage, lines, octets, opt, query};

/// Section 8.1 and 8.2: every variation gets an answer.
#[test]
fn every_variation_is_answered() {
    let stage = Stage::with("z.test.", "@ A 192.0.2.1");
    let with_opt = |flags: &str, options: &str| {
        let mut message = query("z.test. SOA noedns");
        message[11] = 1;
        message.extend_from_slice(&octets(&format!(r"\000\000\041\004\208{flags}")));
        let options = octets(options);
        message.extend_from_slice(&(options.len() as u16).to_be_bytes());
        message.extend_from_slice(&options);
        message
    };
    let mut flagged = query("z.test. SOA noedns");
    flagged[3] |= 0x40;
    let mut recursion = query("z.test. SOA noedns");
    recursion[2] |= 0x01;
    for (message, head, why) in [
        (query("z.test. SOA noedns"), "NOERROR aa", "plain DNS"),
        (query("z.test. TYPE1000 noedns"), "NOERROR aa", "an unknown type"),
        (query("z.test. SOA cd noedns"), "NOERROR aa cd", "CD"),
        (query("z.test. SOA do"), "NOERROR aa", "DO"),
        (flagged, "NOERROR aa", "the reserved bit"),
        (recursion, "NOERROR aa rd", "RD"),
        (with_opt(r"\000\000\000\000", ""), "NOERROR aa", "plain EDNS"),
        (with_opt(r"\000\001\000\000", ""), "BADVERS", "EDNS version 1"),
        (with_opt(r"\000\000\000\000", r"\000\100\000\000"), "NOERROR aa", "an unknown option"),
        (with_opt(r"\000\000\000\128", ""), "NOERROR aa", "an unknown flag"),
        (with_opt(r"\000\001\000\128", ""), "BADVERS", "version 1 and an unknown flag"),
        (with_opt(r"\000\001\000\000", r"\000\100\000\000"), "BADVERS", "version 1 and an unknown option"),
    ] {
        let response = stage.respond(&message).unwrap_or_else(|| panic!("no response: {why}"));
        assert_eq!(lines(&response)[0], head, "{why}");
        let has_opt = message[11] == 1;
        assert_eq!(opt(&response).is_some(), has_opt, "{why}");
        if let Some((_, ttl, options)) = opt(&response) {
            assert_eq!((ttl & 0x00ff_7fff, options), (0, vec![]), "version 0, no unknown flags, no options: {why}");
        }
    }
}
