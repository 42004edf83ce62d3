//! RFC 5001: the name server identifier (NSID), which tells apart servers behind one address.

use signpost_dns::nameserver::Transport;
use signpost_dns::nameserver::settings::NSID_OCTETS_MAX;

use crate::conformance::stage::{Stage, lines, opt, query_with_option, well_formed};

const NSID: u16 = 3;

fn stage(text: &str) -> Stage {
    let mut stage = Stage::with("z.test.", text);
    stage.settings.nsid = Some((*b"ns1").into());
    stage
}

/// Queries with the option, and returns the response's lines and options.
fn ask(stage: &Stage, question: &str, data: &[u8]) -> (Vec<String>, Vec<(u16, Vec<u8>)>) {
    let query = query_with_option(question, NSID, data);
    let response = stage.respond(&query).expect("a response");
    well_formed(&query, &response);
    (lines(&response), opt(&response).expect("an OPT record").2)
}

/// §2.2: a server that honours the option "SHOULD include an NSID option in its response"; without a request it "MUST NOT", and
/// the operator chooses the identifier (§3.1).
#[test]
fn trap_50_section_2_2_only_if_asked_and_set() {
    let mut stage = stage("* A 192.0.2.1");
    assert_eq!(ask(&stage, "a.z.test. A", b"").1, [(NSID, b"ns1".to_vec())]);
    assert_eq!(opt(&stage.ask("a.z.test. A")), Some((1232, 0, vec![])), "not requested");
    stage.settings.nsid = None;
    assert_eq!(ask(&stage, "a.z.test. A", b"").1, []);
}

/// §2.1: the option in a query "MUST" be empty; octets there have no meaning. The identifier is sent over every transport, and
/// with every code, since it is for finding a fault.
#[test]
fn section_2_1_whatever_is_asked_and_however() {
    let mut stage = stage("* A 192.0.2.1");
    let sent = [(NSID, b"ns1".to_vec())];
    assert_eq!(ask(&stage, "a.z.test. A", b"data").1, sent);
    for (question, head) in [
        ("a.z.test. A", "NOERROR aa"),
        ("a.z.test. TXT", "NOERROR aa"),
        ("a.elsewhere.test. A", "REFUSED"),
        ("a.z.test. AXFR", "REFUSED"),
        ("version.bind. TXT class=CH", "REFUSED"),
    ] {
        for transport in [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Https, Transport::Quic] {
            stage.peer.transport = transport;
            let (lines, options) = ask(&stage, question, b"");
            // An extended error may follow.
            assert_eq!((&*lines[0], options.first()), (head, sent.first()), "{question} {transport:?}");
        }
    }
}

/// §2.3 leaves the octets to the operator; here they are bounded, so that an answer has room for its records.
#[test]
fn section_2_3_any_octets_up_to_a_bound() {
    let mut stage = stage("* A 192.0.2.1");
    for (set, sent) in [(1, 1), (NSID_OCTETS_MAX, NSID_OCTETS_MAX), (200, NSID_OCTETS_MAX)] {
        stage.settings.nsid = Some(vec![0xff; set].into());
        assert_eq!(ask(&stage, "a.z.test. A", b"").1, [(NSID, vec![0xff; sent])]);
    }
}

/// The identifier gives way to an answer that has no room for it, but not to optional records; and it is there
/// where the answer is truncated anyway.
#[test]
fn the_identifier_makes_no_answer_truncated() {
    let addresses = |count: u8| -> String { (0..count).map(|index| format!("* A 192.0.2.{index}\n")).collect() };
    let hosts = "* MX 1 a\n* MX 2 b\na A 192.0.2.1\nb A 192.0.2.2\n";
    let large: String = (0..39).map(|index| format!("a TXT {index:02}{}\n", "t".repeat(200))).collect();
    // Zone, question, octets that the client accepts, octets of the identifier, head, number of records, and if it is sent.
    for (text, question, size, nsid, head, records, sent) in [
        (addresses(20), "x.z.test. A", 512, 128, "NOERROR aa", 20, true),
        (addresses(28), "x.z.test. A", 512, 128, "NOERROR aa", 28, false),
        (addresses(40), "x.z.test. A", 512, 128, "NOERROR aa tc", 0, true),
        (hosts.to_owned(), "x.z.test. MX", 1232, 128, "NOERROR aa", 4, true),
        (large, "a.z.test. TXT", 1232, 128, "NOERROR aa tc", 0, true),
    ] {
        let mut stage = stage(&text);
        stage.settings.nsid = Some(vec![b'n'; nsid].into());
        let (lines, options) = ask(&stage, &format!("{question} size={size}"), b"");
        assert_eq!((&*lines[0], lines.len() - 1), (head, records), "{question}");
        assert_eq!(options, if sent { vec![(NSID, vec![b'n'; nsid])] } else { vec![] }, "{question}");
    }
    // Additional data gives way first: the answer and the addresses of one host of two would fit with an identifier.
    let stage = {
        let mut stage = stage(&format!(
            "{}@ MX 1 a\n@ MX 2 b\na A 192.0.2.1\nb A 192.0.2.2\n",
            (0..14).map(|n| format!("@ MX {n} host{n:02}.elsewhere.\n")).collect::<String>()
        ));
        stage.settings.nsid = Some([b'n'; 90].into());
        stage
    };
    let (lines, options) = ask(&stage, "z.test. MX size=512", b"");
    let count = |section| lines.iter().filter(|line| line.starts_with(section)).count();
    assert_eq!((&*lines[0], count("an"), options.len()), ("NOERROR aa", 16, 1), "{lines:?}");
    assert!(count("ar") < 2, "{lines:?}");
}
