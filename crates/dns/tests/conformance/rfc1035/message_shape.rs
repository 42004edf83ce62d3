//! RFC 1035 §4.1, with RFC 9619 and RFC 8906: messages that are not queries, and the responses to them.

use signpost_dns::nameserver::Transport;

use crate::conformance::rfc7873::cookies;
use crate::conformance::stage::{Stage, lines, octets, opt, query};

fn stage() -> Stage {
    Stage::with("z.test.", "* A 192.0.2.1")
}

/// A query for `a.z.test. A` without EDNS.
fn plain() -> Vec<u8> {
    query("a.z.test. A noedns")
}

/// The response's first line, or none.
fn head(stage: &Stage, message: &[u8]) -> Option<String> {
    stage.respond(message).map(|response| lines(&response)[0].clone())
}

#[test]
fn trap_15_the_question_is_copied_octet_by_octet() {
    let stage = stage();
    for name in ["A.z.TEST.", "a.Z.tEsT.", r"\001\255.z.test.", "nowhere.example."] {
        let query = query(&format!("{name} A noedns"));
        let response = stage.respond(&query).expect("a response");
        assert_eq!(response[12..query.len()], query[12..]);
    }
}

#[test]
fn trap_17_without_a_question_it_is_malformed() {
    let mut stage = stage();
    let mut message = plain()[..12].to_vec();
    message[5] = 0;
    assert_eq!(stage.respond(&message).expect("a response"), [0xab, 0xcd, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    // Except for a query that is about the cookie alone (RFC 7873 §5.4), where cookies are on.
    stage.settings.cookies = Some(cookies());
    message[11] = 1;
    message.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\x0c\0\x0a\0\x08cookie12");
    assert_eq!(head(&stage, &message).as_deref(), Some("NOERROR"));
}

#[test]
fn trap_18_two_questions_are_malformed() {
    let mut message = plain();
    message[5] = 2;
    message.extend_from_slice(&octets(r"\001b\001z\004test\000\000\001\000\001"));
    let response = stage().respond(&message).expect("a response");
    assert_eq!(response, [0xab, 0xcd, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn trap_19_records_before_the_additional_section_are_malformed() {
    let stage = stage();
    let record = octets(r"\192\012\000\001\000\001\000\000\000\000\000\004abcd");
    for count_at in [7, 9] {
        let mut message = plain();
        message[count_at] = 1;
        message.extend_from_slice(&record);
        assert_eq!(head(&stage, &message).as_deref(), Some("FORMERR"), "count at {count_at}");
    }
    // IXFR carries the client's SOA in the authority section (RFC 1995 §3), NOTIFY the new one in the answer section.
    let mut message = query("z.test. IXFR noedns");
    message[9] = 1;
    message.extend_from_slice(&record);
    assert_eq!(head(&stage, &message).as_deref(), Some("REFUSED"));
    let mut message = query("z.test. SOA noedns");
    (message[2], message[7]) = (0x20, 1);
    message.extend_from_slice(&record);
    assert_eq!(head(&stage, &message).as_deref(), Some("REFUSED"));
}

#[test]
fn trap_20_21_22_names_that_are_none() {
    let stage = stage();
    for (name, why) in [
        (r"\192\012", "a pointer at itself"),
        (r"\001a\192\012", "a pointer at its own start"),
        (r"\192\000", "a pointer into the header"),
        (r"\064a\000", "label type 01"),
        (r"\128a\000", "label type 10"),
        (r"\063a", "a label past the end"),
        ("", "no name"),
    ] {
        let mut message = plain()[..12].to_vec();
        message.extend_from_slice(&octets(name));
        message.extend_from_slice(&[0, 1, 0, 1]);
        let response = stage.respond(&message).unwrap_or_else(|| panic!("{why}"));
        assert_eq!(response, [0xab, 0xcd, 0x80, 1, 0, 0, 0, 0, 0, 0, 0, 0], "{why}");
    }
    let mut message = plain()[..12].to_vec();
    message.extend_from_slice(&[1, b'a'].repeat(128));
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    assert_eq!(head(&stage, &message).as_deref(), Some("FORMERR"), "257 octets");
    message.drain(12..14);
    assert_eq!(head(&stage, &message).as_deref(), Some("REFUSED"), "255 octets");
    let mut cut = plain();
    cut.truncate(cut.len() - 1);
    assert_eq!(head(&stage, &cut).as_deref(), Some("FORMERR"), "the class is cut");
}

#[test]
fn trap_23_octets_after_the_last_record_are_ignored() {
    let mut message = plain();
    // An OPT record among them is not counted, and so not there.
    message.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\0rest");
    let response = stage().respond(&message).expect("a response");
    assert_eq!((&lines(&response)[0][..], opt(&response)), ("NOERROR aa", None));
    message[11] = 1;
    let response = stage().respond(&message).expect("a response");
    assert_eq!((&lines(&response)[0][..], opt(&response)), ("NOERROR aa", Some((1232, 0, vec![]))));
}

#[test]
fn trap_24_a_response_gets_no_response() {
    let mut message = plain();
    message[2] |= 0x80;
    assert_eq!(stage().respond(&message), None);
}

#[test]
fn trap_25_less_than_a_header_gets_no_response() {
    let stage = stage();
    for length in 0..12 {
        assert_eq!(stage.respond(&plain()[..length]), None);
    }
    assert!(stage.respond(&plain()[..12]).is_some());
}

#[test]
fn trap_26_opcodes() {
    let stage = stage();
    for (opcode, rcode) in
        [(1, "NOTIMP"), (2, "NOTIMP"), (3, "NOTIMP"), (4, "REFUSED"), (5, "NOTIMP"), (6, "NOTIMP"), (15, "NOTIMP")]
    {
        let mut message = plain();
        message[2] = opcode << 3;
        let response = stage.respond(&message).expect("a response");
        assert_eq!(response[2] & 0x78, opcode << 3, "the opcode is echoed");
        assert_eq!(lines(&response)[0], rcode, "opcode {opcode}");
        // The header alone is enough (RFC 8906 §3.1.4).
        message.truncate(12);
        message[5] = 0;
        let response = stage.respond(&message).expect("a response");
        // NOTIFY is about a zone (RFC 1996 §3.7: "QDCOUNT>0").
        let rcode = if opcode == 4 { "FORMERR" } else { rcode };
        assert_eq!((response.len(), &lines(&response)[0][..]), (12, rcode), "opcode {opcode} without a question");
    }
    // STATUS, NOTIFY, UPDATE, DSO and the others, each twice.
    assert_eq!(stage.stats.counts().opcodes, [2, 2, 2, 2, 6]);
}

#[test]
fn trap_27_flags() {
    let stage = stage();
    for (question, head) in [
        ("a.z.test. A", "NOERROR aa"),
        ("a.z.test. A rd", "NOERROR aa rd"),
        ("a.z.test. A cd", "NOERROR aa cd"),
        ("a.example. A rd cd", "REFUSED rd cd"),
    ] {
        assert_eq!(lines(&stage.ask(question))[0], head, "{question}");
    }
    // AA, TC, RA, Z, AD and a response code in the query mean nothing.
    let mut message = plain();
    (message[2], message[3]) = (0x06, 0xef);
    assert_eq!(head(&stage, &message).as_deref(), Some("NOERROR aa"));
}

#[test]
fn trap_28_refusals_and_errors_are_not_authoritative() {
    let stage = stage();
    stage.check("a.example. A", "REFUSED");
    stage.check("z.test. OPT", "FORMERR");
}

#[test]
fn trap_64_sources_that_are_no_clients() {
    let mut stage = stage();
    for source in [
        "192.0.2.1:0",
        "192.0.2.1:53",
        "224.0.0.251:5353",
        "255.255.255.255:4000",
        "0.0.0.0:4000",
        "[ff02::fb]:5353",
        "[::]:4000",
    ] {
        stage.peer.address = source.parse().expect("an address");
        stage.peer.transport = Transport::Udp;
        assert_eq!(stage.respond(&plain()), None, "{source}");
        // A stream's handshake proves the source.
        stage.peer.transport = Transport::Tcp;
        assert!(stage.respond(&plain()).is_some(), "{source}");
    }
}

#[test]
fn the_counters() {
    let stage = stage();
    stage.ask("a.z.test. A");
    stage.ask("a.z.test. AAAA");
    stage.ask("a.example. MX");
    stage.respond(b"short");
    let counts = stage.stats.counts();
    assert_eq!(counts.opcodes, [0; 5], "queries are not counted by opcode");
    let udp = &counts.traffic[0];
    let [ipv4, ipv6] = udp.requests;
    assert_eq!((ipv4[0], ipv4[1], ipv4[7], ipv4[17]), (1, 1, 1, 1));
    assert_eq!((ipv4.iter().sum::<u64>(), ipv6.iter().sum::<u64>()), (4, 0));
    assert_eq!((udp.responses[0], udp.responses[5], counts.drops[0]), (2, 1, 1));
    assert_eq!(
        (udp.request_sizes.messages.iter().sum::<u64>(), udp.response_sizes.messages.iter().sum::<u64>()),
        (4, 3)
    );
    assert_eq!((counts.kinds[0], counts.kinds[1]), (1, 1));
    assert!(opt(&stage.ask("a.z.test. A")).is_some());
}
