//! RFC 8906: failures to answer; the list of tests in its section 8, each on UDP and on a stream.

use signpost_dns::nameserver::Transport;

use crate::conformance::stage::{Stage, lines, octets, opt, query, well_formed};

/// One of the section's queries, as its `dig` command sends it, and the expected response.
struct Case {
    section: &'static str,
    message: Vec<u8>,
    /// Response code and flags.
    head: &'static str,
    /// Whether the question is answered: a record in the answer section.
    answered: bool,
}

/// `z.test. SOA` with this OPT record: version, flags and options.
fn with_opt(version: u8, flags: u16, options: &str) -> Vec<u8> {
    let mut message = query("z.test. SOA noedns");
    push_opt(&mut message, version, flags, options);
    message
}

fn push_opt(message: &mut Vec<u8>, version: u8, flags: u16, options: &str) {
    message[11] = 1;
    message.extend_from_slice(&[0, 0, 41, 4, 208, 0, version]);
    message.extend_from_slice(&flags.to_be_bytes());
    let options = octets(options);
    message.extend_from_slice(&(options.len() as u16).to_be_bytes());
    message.extend_from_slice(&options);
}

/// `z.test. SOA` without EDNS, with these bits set in the header's two octets of flags.
fn with_flags(first: u8, second: u8) -> Vec<u8> {
    let mut message = query("z.test. SOA noedns");
    message[2] |= first;
    message[3] |= second;
    message
}

const UNKNOWN_OPTION: &str = r"\000\100\000\000";
/// NSID, ECS, EXPIRE and COOKIE, as in the RFC's command.
const KNOWN_OPTIONS: &str =
    r"\000\003\000\000\000\008\000\004\000\001\000\000\000\009\000\000\000\010\000\0081234567\056";

fn cases() -> Vec<Case> {
    let case = |section, message, head, answered| Case { section, message, head, answered };
    let mut cases = vec![
        case("8.1.1 the zone is configured", query("z.test. SOA noedns"), "NOERROR aa", true),
        case("8.1.2 an unknown type", query("z.test. TYPE1000 noedns"), "NOERROR aa", false),
        case("8.1.3.1 CD", with_flags(0, 0x10), "NOERROR aa cd", true),
        case("8.1.3.1 AD", with_flags(0, 0x20), "NOERROR aa", true),
        case("8.1.3.2 the reserved bit", with_flags(0, 0x40), "NOERROR aa", true),
        case("8.1.3.3 RD", with_flags(0x01, 0), "NOERROR aa rd", true),
        case("8.2.1 plain EDNS", with_opt(0, 0, ""), "NOERROR aa", true),
        case("8.2.2 an unknown version", with_opt(1, 0, ""), "BADVERS", false),
        case("8.2.2 a far version", with_opt(255, 0, ""), "BADVERS", false),
        case("8.2.3 an unknown option", with_opt(0, 0, UNKNOWN_OPTION), "NOERROR aa", true),
        case("8.2.4 an unknown flag", with_opt(0, 0x0040, ""), "NOERROR aa", true),
        case("8.2.5 version 1 and an unknown flag", with_opt(1, 0x0040, ""), "BADVERS", false),
        case("8.2.6 version 1 and an unknown option", with_opt(1, 0, UNKNOWN_OPTION), "BADVERS", false),
        case("8.2.8 DO", with_opt(0, 0x8000, ""), "NOERROR aa", true),
        case("8.2.9 version 1 and DO", with_opt(1, 0x8000, ""), "BADVERS", false),
        case("8.2.10 many options", with_opt(0, 0, KNOWN_OPTIONS), "NOERROR aa", true),
    ];
    for (opcode, head) in [
        (1, "NOTIMP"),
        (2, "NOTIMP"),
        (3, "NOTIMP"),
        (5, "NOTIMP"),
        (6, "NOTIMP"),
        (7, "NOTIMP"),
        (14, "NOTIMP"),
        (15, "NOTIMP"),
    ] {
        // The RFC's command sends a header alone.
        let mut message = with_flags(opcode << 3, 0)[..12].to_vec();
        message[5] = 0;
        for (section, mut message) in [
            ("8.1.4 an unknown opcode", message),
            ("8.1.4 an unknown opcode, with a question", with_flags(opcode << 3, 0)),
        ] {
            cases.push(case(section, message.clone(), head, false));
            push_opt(&mut message, 0, 0x8000, UNKNOWN_OPTION);
            cases.push(case("8.1.4 an unknown opcode, with EDNS", message, head, false));
        }
    }
    cases
}

/// Every variation gets an answer, and never one that reflects what it does not know.
#[test]
fn every_query_of_section_8_is_answered() {
    let mut stage = Stage::with("z.test.", "@ A 192.0.2.1");
    for transport in [Transport::Udp, Transport::Tcp] {
        stage.peer.transport = transport;
        for Case { section, message, head, answered } in cases() {
            let context = format!("{section}, {transport:?}");
            let response = stage.respond(&message).unwrap_or_else(|| panic!("no response: {context}"));
            well_formed(&message, &response);
            assert_eq!(lines(&response)[0], head, "{context}");
            assert_eq!(response[6..8] != [0, 0], answered, "{context}");
            assert_eq!(response[3] & 0x60, 0, "the reserved bit and AD are clear: {context}");
            assert_eq!(opt(&response).is_some(), message[11] == 1, "{context}");
            if let Some((_, ttl, options)) = opt(&response) {
                let sent_do = message[opt_at(&message) + 7] & 0x80;
                assert_eq!(ttl & 0x00ff_7fff, 0, "version 0 and no unknown flags: {context}");
                assert_eq!(u32::from(sent_do) << 8, ttl & 0x8000, "DO is echoed: {context}");
                assert!(options.iter().all(|(code, _)| *code != 100), "unknown options are not: {context}");
            }
        }
    }
}

/// Returns the offset of the OPT record in a query of [`push_opt`].
fn opt_at(message: &[u8]) -> usize {
    if message[5] == 0 { 12 } else { query("z.test. SOA noedns").len() }
}

/// 8.2.7: a response that does not fit is truncated, as a whole message with TC and its OPT record.
#[test]
fn what_does_not_fit_is_truncated_and_well_formed() {
    let stage = Stage::with("z.test.", &format!("@ TXT {0} {0} {0}", "x".repeat(200)));
    let message = query("z.test. TXT size=512");
    let response = stage.ask("z.test. TXT size=512");
    well_formed(&message, &response);
    assert_eq!(lines(&response), ["NOERROR aa tc"]);
    assert!(opt(&response).is_some() && response.len() <= 512);
}

/// Section 3.1.5 and 7: malformed queries get FORMERR, and hide no question of others.
#[test]
fn malformed_queries_are_answered() {
    let stage = Stage::with("z.test.", "@ A 192.0.2.1");
    let header = query("z.test. SOA noedns")[..12].to_vec();
    for (message, head, why) in [
        (header, "FORMERR", "a question that is announced and not there"),
        (with_opt(0, 0, r"\000\003\000\009"), "FORMERR", "an option past the end"),
    ] {
        let response = stage.respond(&message).unwrap_or_else(|| panic!("no response: {why}"));
        assert_eq!(lines(&response)[0], head, "{why}");
    }
}
