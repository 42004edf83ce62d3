//! RFC 6891: EDNS, and the options that this server knows.

use signpost_dns::nameserver::Transport;

use crate::conformance::rfc7873::cookies;
use crate::conformance::stage::{Stage, lines, octets, opt, query, well_formed};

fn stage() -> Stage {
    Stage::with("z.test.", "* A 192.0.2.1")
}

/// A query for `a.z.test. A` with `count` records, these, in the additional section.
fn with_additional(count: u8, records: &str) -> Vec<u8> {
    let mut message = query("a.z.test. A noedns");
    message[11] = count;
    message.extend_from_slice(&octets(records));
    message
}

/// A query for `a.z.test. A` with one OPT record of these options.
fn with_options(options: &str) -> Vec<u8> {
    let octets = octets(options);
    let mut message = with_additional(1, r"\000\000\041\004\208\000\000\000\000");
    message.extend_from_slice(&(octets.len() as u16).to_be_bytes());
    message.extend_from_slice(&octets);
    message
}

fn head(stage: &Stage, message: &[u8]) -> String {
    let response = stage.respond(message).expect("a response");
    well_formed(message, &response);
    lines(&response)[0].clone()
}

const OPT: &str = r"\000\000\041\004\208\000\000\000\000\000\000";

#[test]
fn trap_44_opt_only_if_the_query_had_one() {
    let stage = stage();
    assert_eq!(opt(&stage.ask("a.z.test. A noedns")), None);
    assert_eq!(opt(&stage.ask("a.z.test. A")), Some((1232, 0, vec![])));
    assert_eq!(opt(&stage.ask("a.example. A")).map(|(size, _, _)| size), Some(1232));
}

#[test]
fn trap_44_an_unknown_version_is_badvers_and_nothing_else() {
    let stage = stage();
    // Malformed options of another version are not ours to judge.
    for options in [r"\000\000", r"\000\001\000"] {
        let message = with_additional(1, &format!(r"\000\000\041\004\208\000\001\128\000{options}"));
        let response = stage.respond(&message).expect("a response");
        assert_eq!(lines(&response), ["BADVERS"]);
        // Extended code 1, version 0, DO echoed.
        assert_eq!(opt(&response), Some((1232, 0x0100_8000, vec![])));
    }
}

#[test]
fn trap_45_two_opts_or_one_elsewhere_than_at_the_root() {
    let stage = stage();
    assert_eq!(head(&stage, &with_additional(2, &format!("{OPT}{OPT}"))), "FORMERR");
    assert_eq!(head(&stage, &with_additional(1, &format!(r"\001a{OPT}"))), "FORMERR");
    // The response to a malformed OPT has one.
    let response = stage.respond(&with_additional(2, &format!("{OPT}{OPT}"))).expect("a response");
    assert!(opt(&response).is_some());
}

#[test]
fn trap_46_opt_may_stand_anywhere_in_the_additional_section() {
    let stage = stage();
    let record = r"\192\012\000\001\000\001\000\000\000\000\000\004abcd";
    for (count, records) in [(1, OPT.into()), (2, format!("{record}{OPT}")), (3, format!("{record}{OPT}{record}"))] {
        let message = with_additional(count, &records);
        assert_eq!(head(&stage, &message), "NOERROR aa");
        assert!(opt(&stage.respond(&message).expect("a response")).is_some());
    }
}

#[test]
fn trap_47_options_past_the_end() {
    let stage = stage();
    for options in [r"\000", r"\000\003\000", r"\000\003\000\001", r"\255\255\000\005abcd"] {
        assert_eq!(head(&stage, &with_options(options)), "FORMERR", "{options}");
    }
}

#[test]
fn trap_48_53_unknown_options_and_client_subnets_are_ignored() {
    let stage = stage();
    for options in [r"\255\255\000\000", r"\000\008\000\007\000\001\024\000\192\000\002"] {
        let response = stage.respond(&with_options(options)).expect("a response");
        assert_eq!(opt(&response), Some((1232, 0, vec![])), "{options}");
    }
}

#[test]
fn trap_49_do_is_echoed() {
    assert_eq!(opt(&stage().ask("a.z.test. A do")), Some((1232, 0x8000, vec![])));
}

/// The response with cookies on (RFC 7873 §5.2.2), and with them off, which ignores the option as an unknown one.
#[test]
fn trap_51_cookies_of_bad_length() {
    let (mut with_cookies, without) = (stage(), stage());
    with_cookies.settings.cookies = Some(cookies());
    for (length, rcode) in [
        (0, "FORMERR"),
        (7, "FORMERR"),
        (8, "NOERROR aa"),
        (9, "FORMERR"),
        (15, "FORMERR"),
        (16, "NOERROR aa"),
        (40, "NOERROR aa"),
        (41, "FORMERR"),
    ] {
        let message = with_options(&format!(r"\000\010\000\{length:03}{}", "c".repeat(length)));
        assert_eq!(head(&with_cookies, &message), rcode, "{length}");
        assert_eq!(head(&without, &message), "NOERROR aa", "{length}");
    }
}

/// §6.1.1: "If an OPT record is present in a received request, compliant responders MUST include an OPT record in their
/// respective responses." Malformed requests and unknown opcodes are not exceptions, as far as the record can be found.
#[test]
fn section_6_1_1_opt_in_responses_to_what_is_malformed() {
    let stage = stage();
    let question = r"\001b\001z\004test\000\000\001\000\001";
    let record = r"\192\012\000\001\000\001\000\000\000\000\000\004abcd";
    let opt_with_do = r"\000\000\041\004\208\000\000\128\000\000\000";
    // Opcode, counts of questions, answers and authorities, and what is in front of the OPT record.
    for (opcode, counts, between, rcode) in [
        (0, [2, 0, 0], question.to_owned(), "FORMERR"),
        (0, [3, 0, 0], format!("{question}{question}"), "FORMERR"),
        (0, [1, 1, 0], record.to_owned(), "FORMERR"),
        (0, [1, 0, 2], format!("{record}{record}"), "FORMERR"),
        // The response reports the first fault, also that of a second question with another opcode.
        (0, [1, 1, 0], format!("{record}{opt_with_do}"), "FORMERR"),
        (15, [2, 0, 0], question.to_owned(), "NOTIMP"),
        (1, [1, 0, 0], String::new(), "NOTIMP"),
        (4, [1, 0, 0], String::new(), "REFUSED"),
        (5, [1, 0, 0], String::new(), "NOTIMP"),
        // UPDATE with a prerequisite and an update.
        (5, [1, 1, 1], format!("{record}{record}"), "NOTIMP"),
        (15, [1, 0, 0], String::new(), "NOTIMP"),
    ] {
        for transport in [Transport::Udp, Transport::Tcp] {
            let mut stage = Stage::with("z.test.", "* A 192.0.2.1");
            stage.peer.transport = transport;
            let mut message = with_additional(1, &format!("{between}{opt_with_do}"));
            message[2] |= opcode << 3;
            (message[5], message[7], message[9]) = (counts[0], counts[1], counts[2]);
            let context = format!("opcode {opcode}, {counts:?}, {transport:?}");
            let response = stage.respond(&message).expect("a response");
            well_formed(&message, &response);
            assert_eq!(lines(&response), [rcode], "{context}");
            let (size, flags, _) = opt(&response).unwrap_or_else(|| panic!("no OPT: {context}"));
            assert_eq!((size, flags), (1232, 0x8000), "{context}");
        }
    }
    // Where it cannot be found, nothing is taken for it.
    for at in [5, 9] {
        let mut message = with_additional(1, OPT);
        message[at] += 1;
        let response = stage.respond(&message).expect("a response");
        assert_eq!((lines(&response), opt(&response)), (vec!["FORMERR".to_owned()], None), "count at {at}");
    }
    // A name that no question can have: its end can be found anyway.
    let mut message = query("a.z.test. A noedns")[..12].to_vec();
    message[11] = 1;
    message.extend_from_slice(&octets(&format!(r"\192\012\000\001\000\001{OPT}")));
    let response = stage.respond(&message).expect("a response");
    assert_eq!((lines(&response), opt(&response).is_some()), (vec!["FORMERR".to_owned()], true));
}

/// §6.1.3: "If a responder does not implement the VERSION level of the request, then it MUST respond with RCODE=BADVERS",
/// for every opcode.
#[test]
fn section_6_1_3_an_unknown_version_with_any_opcode() {
    let stage = stage();
    for (opcode, rcode) in [(0, "NOERROR aa"), (1, "NOTIMP"), (4, "REFUSED"), (5, "NOTIMP"), (15, "NOTIMP")] {
        for (version, rcode) in [(0, rcode), (1, "BADVERS"), (255, "BADVERS")] {
            let mut message = query("a.z.test. A");
            message[2] |= opcode << 3;
            let at = message.len() - 5;
            message[at] = version;
            let response = stage.respond(&message).expect("a response");
            assert_eq!(lines(&response)[0], rcode, "opcode {opcode}, version {version}");
            assert_eq!(opt(&response).map(|(_, ttl, _)| ttl & 0x00ff_ffff), Some(0), "version 0");
        }
    }
}

#[test]
fn trap_58_keepalive_on_plain_and_encrypted_streams_only() {
    let mut stage = stage();
    stage.peer.keepalive = Some(300);
    let asks = with_options(r"\000\011\000\000");
    for (transport, answered) in [
        (Transport::Udp, false),
        (Transport::Tcp, true),
        (Transport::Tls, true),
        (Transport::Https, false),
        (Transport::Quic, false),
    ] {
        stage.peer.transport = transport;
        let (_, _, options) = opt(&stage.respond(&asks).expect("a response")).expect("an OPT record");
        let expected = if answered { vec![(11, vec![1, 44])] } else { vec![] };
        assert_eq!(options, expected, "{transport:?}");
    }
    stage.peer.transport = Transport::Tcp;
    assert_eq!(opt(&stage.ask("a.z.test. A")), Some((1232, 0, vec![])), "only on the client's request");
}

#[test]
fn trap_59_padding_on_encrypted_transports_if_the_client_padded() {
    let mut stage = stage();
    let padded = with_options(r"\000\012\000\003\000\000\000");
    for transport in [Transport::Tls, Transport::Https, Transport::Quic] {
        stage.peer.transport = transport;
        let response = stage.respond(&padded).expect("a response");
        well_formed(&padded, &response);
        assert_eq!(response.len(), 468, "{transport:?}");
        assert!(stage.ask("a.z.test. A").len() < 468);
    }
    for transport in [Transport::Udp, Transport::Tcp] {
        stage.peer.transport = transport;
        assert!(stage.respond(&padded).expect("a response").len() < 468);
    }
}
