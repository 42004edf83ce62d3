//! RFC 1035 §4.2.1, RFC 6891 §6.2: how large a response may be.

use signpost_dns::nameserver::Transport;
use signpost_dns::nameserver::stats::KINDS;

use crate::conformance::stage::{Stage, lines};

/// A zone whose `* TXT` makes a response for `a.z.test.` of exactly this many octets, with or without OPT.
fn with_response_of(octets: usize, edns: bool) -> Stage {
    // Header, question, and one record with a pointer as owner; the OPT record.
    let fixed = 12 + 14 + 12 + if edns { 11 } else { 0 };
    let mut left = octets - fixed;
    let mut text = String::from("* TXT");
    while left > 0 {
        let string = (left - 1).min(200);
        // No string may be left with no octet at all.
        let string = if left - 1 - string == 1 { string - 1 } else { string };
        text.push_str(&format!(" {}", "x".repeat(string)));
        left -= string + 1;
    }
    Stage::with("z.test.", &text)
}

#[test]
fn trap_40_exactly_the_limit_is_not_cut() {
    for (limit, question) in [
        (512, "a.z.test. TXT noedns"),
        (512, "a.z.test. TXT size=512"),
        (512, "a.z.test. TXT size=0"),
        (800, "a.z.test. TXT size=800"),
        (1232, "a.z.test. TXT size=1232"),
        (1232, "a.z.test. TXT size=4096"),
        (1232, "a.z.test. TXT size=65535"),
    ] {
        let edns = !question.contains("noedns");
        let response = with_response_of(limit, edns).ask(question);
        assert_eq!((response.len(), &lines(&response)[0][..]), (limit, "NOERROR aa"), "{question}");
        let response = with_response_of(limit + 1, edns).ask(question);
        assert_eq!(lines(&response), ["NOERROR aa tc"], "{question}");
        assert_eq!(response.len(), 26 + if edns { 11 } else { 0 }, "the OPT record stays");
    }
}

/// The zone has data, though this response has no room for it: the client gets it over a stream.
#[test]
fn what_is_truncated_is_counted_as_what_it_is() {
    let stage = with_response_of(1233, true);
    stage.check("a.z.test. TXT", "NOERROR aa tc");
    stage.check("a.z.test. A", "NOERROR aa\n ns z.test. SOA");
    let counts = stage.stats.counts();
    let counted: Vec<&str> =
        KINDS.into_iter().zip(counts.kinds).filter(|(_, count)| *count > 0).map(|(kind, _)| kind).collect();
    assert_eq!((counted, counts.kinds[0]), (vec!["data", "nodata"], 1));
    assert_eq!(counts.traffic[0].truncated, 1);
}

#[test]
fn the_operator_may_allow_more_or_less() {
    for (setting, limit) in [(4096, 4096), (512, 512), (0, 512)] {
        let mut stage = with_response_of(limit, true);
        stage.settings.udp_payload_max = setting;
        assert_eq!(stage.ask("a.z.test. TXT size=65535").len(), limit);
        let mut stage = with_response_of(limit + 1, true);
        stage.settings.udp_payload_max = setting;
        stage.check("a.z.test. TXT size=65535", "NOERROR aa tc");
    }
}

#[test]
fn streams_take_all_of_it() {
    let mut stage = with_response_of(20_000, false);
    stage.peer.transport = Transport::Tcp;
    let response = stage.ask("a.z.test. TXT noedns");
    assert_eq!(response.len(), 20_000);
    // What no message can hold is cut even there.
    let text: String = (0..5000).map(|index| format!("* A 10.0.{}.{}\n", index / 250, index % 250)).collect();
    let mut stage = Stage::with("z.test.", &text);
    stage.peer.transport = Transport::Tcp;
    stage.check("a.z.test. A", "NOERROR aa tc");
}

#[test]
fn trap_41_an_rrset_is_whole_or_not_there() {
    let text: String = (0..40).map(|index| format!("* A 192.0.2.{index}\n")).collect();
    let stage = Stage::with("z.test.", &text);
    stage.check("a.z.test. A noedns", "NOERROR aa tc");
    assert_eq!(lines(&stage.ask("a.z.test. A")).len(), 41);
    // The chain before it goes, too: part of an answer would be taken for all of it.
    let stage = Stage::with("z.test.", &format!("alias CNAME a\n{text}"));
    stage.check("alias.z.test. A noedns", "NOERROR aa tc");
}

#[test]
fn trap_42_optional_data_is_left_out_without_tc() {
    let names: String =
        (0..12).map(|index| format!("@ MX {index} mail{index}\n mail{index} AAAA 2001:db8::{index}\n")).collect();
    let stage = Stage::with("z.test.", &names);
    let small = lines(&stage.ask("z.test. MX noedns"));
    assert_eq!(small[0], "NOERROR aa");
    let count = |lines: &[String], section| lines.iter().filter(|line| line.starts_with(section)).count();
    assert_eq!(count(&small, "an"), 12);
    assert!(count(&small, "ar") < 12);
    assert_eq!(count(&lines(&stage.ask("z.test. MX")), "ar"), 12);
}

#[test]
fn a_negative_answer_needs_its_soa() {
    let label = "x".repeat(63);
    let long = format!("{label}.{label}.{label}");
    let zone = format!("@ SOA {long}.ns {long}.admin\n* A 192.0.2.1");
    let zone = signpost_dns::zone::Zone::build(crate::conformance::stage::contents("z.test.", &zone)).expect("a zone");
    let stage = Stage::new([zone]);
    stage.check(&format!("{}.z.test. AAAA noedns", "y.".repeat(100).trim_end_matches('.')), "NOERROR aa tc");
}
