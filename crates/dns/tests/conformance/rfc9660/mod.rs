//! RFC 9660: the version of the zone that an answer is from.

use signpost_dns::nameserver::Transport;

use crate::conformance::stage::{Stage, lines, opt, query_with_option, well_formed, zone};

const ZONEVERSION: u16 = 19;

/// Queries with the option, and returns the response code and the options.
fn ask(stage: &Stage, question: &str, data: &[u8]) -> (String, Vec<(u16, Vec<u8>)>) {
    let query = query_with_option(question, ZONEVERSION, data);
    let response = stage.respond(&query).expect("a response");
    well_formed(&query, &response);
    (lines(&response)[0].clone(), opt(&response).expect("an OPT record").2)
}

/// §2.1: the number of labels of the zone's apex, the type 0, and the serial of its SOA record; in positive, negative and referral
/// answers, and never without a request.
#[test]
fn section_2_1_of_every_answer_from_a_zone() {
    let mut stage =
        Stage::new([zone("z.test.", "* A 192.0.2.1\ncut NS ns.elsewhere."), zone("sub.z.test.", "a A 192.0.2.2")]);
    let version = |labels: u8| vec![(ZONEVERSION, [&[labels, 0][..], &2026u32.to_be_bytes()].concat())];
    for (question, head, labels) in [
        ("a.z.test. A", "NOERROR aa", 2),
        ("z.test. SOA", "NOERROR aa", 2),
        ("a.z.test. TXT", "NOERROR aa", 2),
        ("x.cut.z.test. A", "NOERROR", 2),
        ("a.sub.z.test. A", "NOERROR aa", 3),
        ("b.sub.z.test. A", "NXDOMAIN aa", 3),
        ("sub.z.test. DS", "NOERROR aa", 2),
    ] {
        for transport in [Transport::Udp, Transport::Tcp, Transport::Tls] {
            stage.peer.transport = transport;
            assert_eq!(ask(&stage, question, b""), (head.to_owned(), version(labels)), "{question}");
        }
        assert_eq!(opt(&stage.ask(question)).expect("an OPT record").2, [], "not requested");
    }
}

/// §3.2: without a zone there is no version, and an option with contents requests none.
#[test]
fn section_3_2_no_version() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1");
    for question in ["elsewhere. A", "version.bind. TXT class=CH", "z.test. AXFR"] {
        let (head, options) = ask(&stage, question, b"");
        assert_eq!(
            (head.as_str(), options.iter().any(|(code, _)| *code == ZONEVERSION)),
            ("REFUSED", false),
            "{question}"
        );
    }
    assert_eq!(ask(&stage, "a.z.test. A", b"x"), ("NOERROR aa".to_owned(), vec![]));
}

/// Records that an answer must have displace it.
#[test]
fn an_answer_has_precedence() {
    let text = (0..60).map(|number| format!("many A 192.0.2.{number}\n")).collect::<String>();
    let stage = Stage::with("z.test.", &text);
    // Header, question, 60 records and the OPT record are 12 + 17 + 60 × 16 + 11 = 1000 octets; the option takes 10.
    for (size, is_sent) in [(1010, true), (1009, false), (1000, false)] {
        let question = format!("many.z.test. A size={size}");
        let (head, options) = ask(&stage, &question, b"");
        assert_eq!((head.as_str(), options.is_empty()), ("NOERROR aa", !is_sent), "{size}");
    }
}
