//! RFC 8945: TSIG. Here, as a server without keys answers to it.

mod verified;

use signpost_dns::nameserver::Transport;
use signpost_dns::wire::{Name, RecordType};

use crate::conformance::stage::{Stage, lines, octets, opt, query, query_with_option, records, well_formed};

/// Algorithm, time signed and fudge.
const ALGORITHM: &[u8] = b"\x0bhmac-sha256\0";
const TIMES: &[u8] = b"\0\0\x6b\x49\xd2\0\x01\x2c";

fn stage() -> Stage {
    Stage::with("z.test.", "* A 192.0.2.1")
}

/// RDATA with a MAC of these octets.
fn rdata(mac: &[u8]) -> Vec<u8> {
    [ALGORITHM, TIMES, &(mac.len() as u16).to_be_bytes(), mac, b"\xab\xcd\0\0\0\0"].concat()
}

/// A TSIG record by the key with this name, in wire form.
fn tsig(key: &[u8], rdata: &[u8]) -> Vec<u8> {
    [key, b"\0\xfa\0\xff\0\0\0\0", &(rdata.len() as u16).to_be_bytes(), rdata].concat()
}

fn key() -> Vec<u8> {
    "key.example.".parse::<Name>().expect("a name").as_wire().to_vec()
}

/// A query with these records after its own additional ones.
fn with(question: &str, opcode: u8, more: &[Vec<u8>]) -> Vec<u8> {
    let mut message = query(question);
    message[2] |= opcode << 3;
    message[11] += more.len() as u8;
    message.extend(more.concat());
    message
}

/// §5.2.1: "If a server does not recognize the key or algorithm used by the client [...] the server MUST generate an error
/// response with RCODE 9 (NOTAUTH) and TSIG ERROR 17 (BADKEY)", §5.3.2: not signed.
#[test]
fn trap_63_an_unknown_key() {
    let mut stage = stage();
    for (question, opcode) in [
        ("a.z.test. A", 0),
        ("a.z.test. A noedns", 0),
        ("a.z.test. A do", 0),
        // For any question, of any zone.
        ("a.elsewhere. A", 0),
        ("z.test. AXFR", 0),
        ("version.bind. TXT class=CH", 0),
        ("z.test. SOA", 4),
        ("z.test. SOA", 5),
    ] {
        for transport in [Transport::Udp, Transport::Tcp] {
            stage.peer.transport = transport;
            let message = with(question, opcode, &[tsig(&key(), &rdata(&[7; 32]))]);
            let response = stage.respond(&message).expect("a response");
            well_formed(&message, &response);
            assert_eq!(lines(&response)[0], "NOTAUTH", "{question}");
            let found = records(&response);
            let last = found.last().expect("a TSIG record");
            assert_eq!((last.section, last.rtype, last.class, last.ttl), ("ar", RecordType::TSIG, 255, 0));
            assert_eq!(last.owner.as_wire(), key());
            let expected = [ALGORITHM, TIMES, b"\0\0\xab\xcd\0\x11\0\0"].concat();
            assert_eq!(last.octets, expected, "{question}");
            let has_edns = !question.contains("noedns");
            assert_eq!((found.len(), opt(&response).is_some()), (1 + usize::from(has_edns), has_edns));
            assert_eq!(response[12..12 + 5], message[12..12 + 5], "the question is there");
        }
    }
    let counts = stage.stats.counts();
    assert_eq!((counts.traffic[0].responses[9], counts.traffic[1].responses[9]), (8, 8));
    // The key's name may be compressed; an empty MAC and other data are not a fault of form.
    for (key, rdata) in [
        (octets(r"\003key\192\012"), rdata(&[7; 32])),
        (key(), rdata(&[])),
        (key(), [ALGORITHM, TIMES, b"\0\0\xab\xcd\0\x12\0\x06\0\0\0\0\0\x01"].concat()),
    ] {
        let message = with("a.z.test. A", 0, &[tsig(&key, &rdata)]);
        let response = stage.respond(&message).expect("a response");
        well_formed(&message, &response);
        assert_eq!(lines(&response)[0], "NOTAUTH");
    }
}

/// RFC 8467 §4.1 of a response that a TSIG record closes: the whole of it is a multiple of 468 octets.
#[test]
fn an_error_over_tls_is_padded_with_its_record() {
    let mut stage = stage();
    stage.peer.transport = Transport::Tls;
    for padding in [0, 100] {
        let mut message = query_with_option("a.z.test. A", 12, &vec![0; padding]);
        message[11] += 1;
        message.extend(tsig(&key(), &rdata(&[7; 32])));
        let response = stage.respond(&message).expect("a response");
        well_formed(&message, &response);
        assert_eq!((lines(&response)[0].as_str(), response.len()), ("NOTAUTH", 468));
        assert_eq!(records(&response).last().map(|record| record.rtype), Some(RecordType::TSIG));
    }
}

/// §5.2: "If the TSIG RR is in the wrong place or there is more than one, FORMERR". What is malformed is FORMERR, too.
#[test]
fn section_5_2_where_it_has_to_be() {
    let good = tsig(&key(), &rdata(&[7; 32]));
    let address = octets(r"\192\012\000\001\000\001\000\000\000\000\000\004abcd");
    let opt_record = octets(r"\000\000\041\004\208\000\000\000\000\000\000");
    let in_class_in = {
        let mut record = good.clone();
        record[key().len() + 3] = 1;
        record
    };
    let with_ttl = {
        let mut record = good.clone();
        record[key().len() + 7] = 1;
        record
    };
    for (more, why) in [
        (vec![good.clone(), address.clone()], "not the last"),
        (vec![good.clone(), good.clone()], "two"),
        (vec![good.clone(), opt_record], "OPT behind it"),
        (vec![in_class_in], "another class"),
        (vec![with_ttl], "a TTL"),
        (vec![tsig(&key(), &rdata(&[7; 32])[..40])], "cut"),
        (vec![tsig(&key(), &[rdata(&[7; 32]), vec![0]].concat())], "an octet too many"),
        (vec![tsig(&key(), b"")], "nothing"),
        (vec![tsig(b"\xc0\x0c", &[b"\xc0\x0c", &rdata(&[])[13..]].concat())], "a compressed algorithm"),
        // The record begins at octet 26.
        (vec![tsig(b"\xc0\x1a", &rdata(&[]))], "a key's name that is a pointer to itself"),
        (vec![tsig(b"\x01a\xc0\x1a", &rdata(&[]))], "a key's name that leads back to itself"),
        (vec![tsig(b"\xc0\x1c", &rdata(&[]))], "a key's name behind its pointer"),
        (vec![tsig(b"\xc0\x00", &rdata(&[]))], "a key's name in the header"),
        (vec![tsig(b"\x40a\0", &rdata(&[]))], "a label of another type"),
    ] {
        let message = with("a.z.test. A noedns", 0, &more);
        let response = stage().respond(&message).expect("a response");
        assert_eq!(lines(&response), ["FORMERR"], "{why}");
        assert_eq!(opt(&response).is_some(), why == "OPT behind it", "an OPT record is answered in any position");
        let notify = with("z.test. SOA noedns", 4, &more);
        assert_eq!(lines(&stage().respond(&notify).expect("a response")), ["FORMERR"], "NOTIFY: {why}");
    }
    let whole = rdata(&[7; 4]);
    for end in 0..whole.len() {
        let message = with("a.z.test. A noedns", 0, &[tsig(&key(), &whole[..end])]);
        assert_eq!(lines(&stage().respond(&message).expect("a response")), ["FORMERR"], "cut at {end}");
    }
    // In the authority section, where IXFR may have a record.
    let mut message = query("z.test. IXFR noedns");
    message[9] = 1;
    message.extend_from_slice(&good);
    assert_eq!(lines(&stage().respond(&message).expect("a response")), ["FORMERR"]);
    // Other faults come first.
    let mut message = with("a.z.test. A", 0, &[good]);
    let version_at = query("a.z.test. A").len() - 5;
    message[version_at] = 1;
    assert_eq!(lines(&stage().respond(&message).expect("a response"))[0], "BADVERS");
}

/// §5.3: a response that has no room for the record has TC instead, and comes whole over a stream.
#[test]
fn without_room_the_client_is_sent_to_a_stream() {
    let label = "n".repeat(60);
    let long = format!("{label}.{label}.{label}.{label}.");
    let long: Name = long.parse().expect("a name");
    let algorithm = long.as_wire();
    let rdata = [algorithm, TIMES, b"\0\0\xab\xcd\0\0\0\0"].concat();
    let message = with(&format!("{long} A noedns"), 0, &[tsig(long.as_wire(), &rdata)]);
    let mut stage = stage();
    let response = stage.respond(&message).expect("a response");
    assert_eq!(lines(&response), ["NOTAUTH tc"]);
    assert!(response.len() <= 512 && records(&response).is_empty());
    stage.peer.transport = Transport::Tcp;
    let response = stage.respond(&message).expect("a response");
    assert_eq!((&lines(&response)[0][..], records(&response).len()), ("NOTAUTH", 1));
}
