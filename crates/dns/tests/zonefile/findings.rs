//! The findings of a zone: positions, limits, and checks of its records together.

use super::*;

#[test]
fn a_finding_says_where_what_and_what_instead() {
    let read = read(format!("{HEAD}www 60 IN A 192.0.2.256\n").as_bytes());
    let shown: Vec<String> = read.findings.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["example.org.zone:5:13: error: expected an IPv4 address, found '192.0.2.256' [rdata]"]);
    assert!(read.contents.is_none());
    assert_eq!(read.apex, Some(name("example.org.")));
}

#[test]
fn errors_are_bounded() {
    let read = read(format!("{HEAD}{}", "a A x\n".repeat(100_000)).as_bytes());
    assert!(read.findings.len() <= 52, "{}", read.findings.len());
    assert!(read.findings.iter().any(|finding| finding.code == "more-errors"));
}

/// An error stays an error with any other findings; a check without a limit returns all findings.
#[test]
fn no_number_of_warnings_hides_an_error() {
    let aliases: String = (0..250).map(|number| format!("a{number} CNAME t\n")).collect();
    let text = format!("{HEAD}t CNAME ns\n{aliases}zz CNAME ns\nzz A 192.0.2.2\n");
    let served = read(text.as_bytes());
    assert!(served.contents.is_none());
    assert!(served.findings.iter().any(|finding| finding.code == "cname-not-alone"));
    assert!(served.findings.len() < 110, "{}", served.findings.len());
    let more = served.findings.last().unwrap();
    assert_eq!((more.code, more.message.split(' ').next()), ("more-findings", Some("150")));
    let checked = check(&text);
    let count = |code| checked.findings.iter().filter(|finding| finding.code == code).count();
    assert_eq!((count("cname-to-cname"), count("cname-not-alone"), checked.findings.len()), (250, 1, 251));
    let errors = check(&format!("{HEAD}{}", "a A x\n".repeat(3_000))).findings;
    assert_eq!(errors.len(), 3_000);
}

/// Reads as `signpost check zone` does.
fn check(text: &str) -> ZoneRead {
    let file: Arc<Path> = Path::new("example.org.zone").into();
    let scrutiny = CheckLevel::of_check(None, 1);
    read_zone_with(text.as_bytes(), &file, Some(name("example.org.")), &mut NoIncludes, &scrutiny)
}

/// The largest set that an answer holds with its question, its signatures, and an OPT record with cookies.
#[test]
fn a_set_must_fit_with_all_that_an_answer_has() {
    // 255 records of 257 octets, their heads included, are 65,535.
    let texts = |length: usize| -> String {
        (0..255).map(|number| format!("t TXT \"{number:03}{}\"\n", "x".repeat(length - 3))).collect()
    };
    let key = "AAAA".repeat(30);
    let signature = format!("t RRSIG TXT 13 3 300 20300101000000 20200101000000 1 example.org. {key}\n");
    for (text, fits) in [
        (texts(243), true),
        (texts(243) + &signature, true),
        (texts(243) + &signature + &signature.replace("13 3", "14 3") + &signature.replace("13 3", "15 3"), false),
        (texts(244), false),
        (texts(245), false),
    ] {
        let found = check(&format!("{HEAD}{text}")).findings;
        assert_eq!(found.iter().all(|finding| finding.code != "rrset-too-large"), fits, "{:?}", found.first());
    }
}

/// The records of a zone together: text, and the findings of `zone::check` and the reader, `!` for errors.
#[test]
fn checks_of_the_whole_zone() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        ("a CNAME b\na A 192.0.2.1", &["!6:1 cname-not-alone"]),
        ("a CNAME b\na CNAME c", &["!5:1 cname-multiple"]),
        ("a DNAME b\na DNAME c", &["!5:1 dname-multiple"]),
        ("a DNAME b\nx.a A 192.0.2.1", &["!6:1 below-dname"]),
        ("a NS ns\na DNAME b", &["!6:1 dname-with-ns"]),
        ("*.w NS ns", &["!5:1 ns-wildcard"]),
        ("*.w DNAME b", &["!5:1 dname-wildcard"]),
        ("b.example.com. A 192.0.2.1", &["5:1 out-of-zone"]),
        ("a 2147483648 A 192.0.2.1", &["5:3 ttl-too-large"]),
        ("$TTL 4294967295\na A 192.0.2.1\nb 1 A 192.0.2.1", &["5:6 ttl-too-large"]),
        ("sub SOA ns admin 1 2 3 4 5", &["!5:1 soa-below-apex"]),
        ("@ SOA ns admin 2 2 3 4 5", &["!2:1 soa-multiple"]),
        ("@ SOA ns.example.org. admin.example.org. 1 2 3 4 300", &["5:1 duplicate"]),
        ("a A 192.0.2.1\na A 192.0.2.1", &["6:1 duplicate"]),
        ("a 60 A 192.0.2.1\na A 192.0.2.2", &["6:1 ttl-differs"]),
        ("a A 192.0.2.1\na 60 A 192.0.2.1", &["6:1 ttl-differs"]),
        ("a 60 A 192.0.2.1\na A 192.0.2.1", &["6:1 duplicate"]),
        // RFC 4034 §6.3: names that differ only in case are equal.
        ("@ NS NS", &["5:1 duplicate"]),
        ("@ SOA NS.example.org. Admin.EXAMPLE.org. 1 2 3 4 300", &["5:1 duplicate"]),
        ("@ SOA NS.example.org. Admin.EXAMPLE.org. 2 2 3 4 300", &["!2:1 soa-multiple"]),
        ("a CNAME ns\na CNAME NS", &["6:1 duplicate"]),
        ("a DNAME b\na DNAME B", &["6:1 duplicate"]),
        ("@ NS ns2", &["3:1 ns-no-address"]),
        ("@ NS ns.example.net.", &[]),
        ("@ NS ns1.example.net.\nns1 A 192.0.2.1", &["3:1 ns-lookalike", "6:1 ns-address-unused"]),
        // RFC 4592 §3.3.1: the wildcard under the closest encloser, if it makes addresses, and if the name does not exist.
        ("@ NS ns2\n* A 192.0.2.1", &[]),
        ("@ NS ns2\n* AAAA 2001:db8::1", &[]),
        ("@ NS ns2\n* CNAME ns", &["3:1 ns-to-cname"]),
        ("@ NS ns2\n* TXT x", &["3:1 ns-no-address"]),
        ("@ NS ns.b\n* A 192.0.2.1", &[]),
        ("@ NS ns.b\nb TXT x\n* A 192.0.2.1", &["3:1 ns-no-address"]),
        ("@ NS ns.b\nx.b TXT x\n* A 192.0.2.1", &["3:1 ns-no-address"]),
        ("@ NS ns.b\nx.b TXT x\n*.b A 192.0.2.1\n* TXT x", &[]),
        ("@ NS b\nx.b TXT x\n* A 192.0.2.1", &["3:1 ns-no-address"]),
        ("@ NS b\nb TXT x\n* A 192.0.2.1", &["3:1 ns-no-address"]),
        // What delegates needs glue, which no wildcard makes.
        ("* TXT x\nsub NS ns1.sub", &["6:1 ns-no-address"]),
        ("* A 192.0.2.9\nsub NS ns.sub", &["6:1 ns-no-address"]),
        ("* A 192.0.2.9\nsub NS sub", &["6:1 ns-no-address"]),
        ("sub NS ns.sub\n*.sub A 192.0.2.9", &["5:1 ns-no-address", "6:1 below-cut"]),
        ("* A 192.0.2.9\n@ NS ns.sub\nsub NS ns", &["3:1 ns-no-address"]),
        ("* A 192.0.2.9\nsub NS ns.other\nother TXT x", &["6:1 ns-no-address"]),
        ("* A 192.0.2.9\nsub NS ns.sib\nsib NS ns", &[]),
        ("@ NS ns.d\nd DNAME example.net.", &["3:1 ns-to-cname"]),
        (
            "d DNAME e\nns.e A 192.0.2.2\nsub NS ns.d\n@ MX 1 ns.d\n_x._y SRV 1 1 1 ns.d",
            &["7:1 ns-to-cname", "8:1 mx-to-cname", "9:1 srv-to-cname"],
        ),
        (
            "*.w CNAME ns\nsub NS host.w\n@ MX 1 host.w\n@ MX 2 ns.w\nns.w A 192.0.2.3",
            &["6:1 ns-to-cname", "7:1 mx-to-cname"],
        ),
        ("*.w CNAME ns\nsub NS ns.sub.w\nx.sub.w TXT x", &["6:1 ns-no-address"]),
        (
            "@ MX 1 m\n@ MX 2 192.0.2.7\n_x._y SRV 1 1 1 s\n@ MX 0 .",
            &["5:1 mx-no-address", "5:1 mx-no-address", "7:1 srv-no-address"],
        ),
        ("@ MX 1 m\n* A 192.0.2.1\n_x._y SRV 1 1 1 s", &[]),
        ("@ MX 1 m.sub\nsub NS ns", &[]),
        (
            "sub NS ns.sub\nns.sub A 192.0.2.1\nns.sub RRSIG A 13 4 300 20370101000000 20260101000000 1 @ AAAA",
            &["7:1 glue-signed"],
        ),
        ("@ NS ns2\nns2 A 127.0.0.1\nns2 AAAA ::1", &["6:1 ns-loopback", "7:1 ns-loopback"]),
        ("sub NS ns.sub\nns.sub A 192.0.2.1", &[]),
        ("sub NS ns.sub", &["5:1 ns-no-address"]),
        ("sub NS ns.sub\nns.sub A 192.0.2.1\nsub2 NS ns.sub", &[]),
        ("sub NS ns\nsub TXT x\nsub DS 1 8 99 aa", &["6:1 below-cut"]),
        ("sub NS ns\nx.sub A 192.0.2.1", &["6:1 below-cut"]),
        ("sub NS ns\nsub CNAME b", &["!5:1 cname-not-alone"]),
        ("a DS 1 8 99 aa", &["5:1 ds-without-ns"]),
        ("@ DS 1 8 99 aa", &["5:1 ds-at-apex"]),
        ("@ CDS 0 0 0 00\n@ CDNSKEY 0 3 0 AA==", &[]),
        ("@ CDS 0 0 0 00\n@ CDS 1 8 99 aa", &["5:1 cds-mismatch"]),
        ("@ CDNSKEY 0 3 0 AA==\n@ CDNSKEY 257 3 13 AAAA", &["5:1 cds-mismatch"]),
        ("@ CDS 0 0 0 00\n@ CDNSKEY 257 3 13 AAAA", &["5:1 cds-mismatch"]),
        ("@ CDS 1 8 99 aa\n@ CDNSKEY 257 3 13 AAAA", &["5:1 cds-mismatch", "6:1 cds-mismatch"]),
        ("@ CDS 1038 13 99 aa\n@ CDNSKEY 257 3 13 AAAA", &[]),
        ("@ CDS 1038 13 2 aa\n@ CDNSKEY 257 3 13 AAAA", &["5:1 cds-mismatch", "6:1 cds-mismatch"]),
        ("a CNAME b\nb CNAME c", &["5:1 cname-to-cname"]),
        ("a CNAME a", &["5:1 cname-loop"]),
        ("a CNAME b\nb CNAME a", &["5:1 cname-loop", "6:1 cname-loop"]),
        ("a CNAME b\n@ MX 1 a\n@ NS a\ns SRV 1 1 1 a", &["3:1 ns-to-cname", "6:1 mx-to-cname", "8:1 srv-to-cname"]),
        (
            "a A 192.0.2.1\na RRSIG AAAA 13 3 300 20300101000000 20200101000000 1 example.org. AAAA",
            &["6:1 rrsig-covers-nothing"],
        ),
        ("a A 192.0.2.1\na RRSIG A 13 3 300 20300101000000 20200101000000 1 example.com. AAAA", &["6:1 rrsig-signer"]),
        ("@ RRSIG SOA 13 2 300 20300101000000 20200101000000 1 example.org. AAAA", &["5:1 dnskey-missing"]),
    ];
    for (text, expected) in cases {
        let read = read(format!("{HEAD}{text}").as_bytes());
        let found: Vec<String> = read
            .findings
            .iter()
            .map(|f| {
                format!("{}{}:{} {}", if f.severity == Severity::Error { "!" } else { "" }, f.line, f.column, f.code)
            })
            .collect();
        assert_eq!(found, *expected, "{text}\n{:#?}", read.findings);
        assert_eq!(read.contents.is_none(), expected.iter().any(|code| code.starts_with('!')), "{text}");
    }
    let no_ns = read(b"@ 300 SOA . . 1 2 3 4 300\n");
    assert_eq!(short(&no_ns), ["1:1 soa-mname-root", "1:1 ns-missing"]);
}

/// An RRset that no message can hold, in a file that would take quadratic time without a bound.
#[test]
fn an_endless_rrset_is_refused_soon() {
    let mut text = HEAD.to_owned();
    for number in 0..200_000u32 {
        text += &format!("a A {}\n", std::net::Ipv4Addr::from(number));
    }
    let read = read(text.as_bytes());
    assert!(read.contents.is_none());
    assert_eq!(read.findings[0].code, "rrset-too-large");
}
