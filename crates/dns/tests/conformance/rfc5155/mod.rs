//! RFC 5155: hashed denial of existence; proofs from a chain are with those of RFC 4035.

use signpost_dns::zone::check::check;

use signpost_dns::zone::{Contents, Zone};

use crate::conformance::stage::{Stage, contents, lines};

/// A zone with a whole chain of NSEC records, signed, and these lines.
fn text(more: &str) -> String {
    format!(
        "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n@ DNSKEY \\# 4 0100030d\n@ RRSIG SOA\n@ NSEC a\n@ RRSIG NSEC\n\
         a A 192.0.2.1\na RRSIG A\na NSEC @\na RRSIG NSEC\n{more}"
    )
}

/// §4.1.2: NSEC3PARAM records "with a Flags field value other than zero MUST be ignored"; so is one of an unknown algorithm
/// (§8.1), and one whose chain is not there. What else the zone has for proofs is what they are given from.
#[test]
fn section_4_1_2_parameters_that_do_not_count() {
    for (parameters, findings) in [
        ("", &[][..]),
        ("@ NSEC3PARAM \\# 5 0101000000\n", &[]),
        ("@ NSEC3PARAM \\# 5 0180000000\n", &[]),
        ("@ NSEC3PARAM \\# 5 0200000000\n", &[]),
        ("@ NSEC3PARAM \\# 5 0100000000\n", &["nsec3-missing"]),
        ("@ NSEC3PARAM \\# 5 0100FFFF00\n", &["nsec3-iterations"]),
    ] {
        let zone = contents("z.test.", &text(&parameters.to_ascii_lowercase().replace("nsec3param", "NSEC3PARAM")));
        let found: Vec<_> = check(&zone).iter().map(|finding| finding.code.as_str()).collect();
        let found: Vec<_> =
            found.into_iter().filter(|code| code.starts_with("nsec3") || *code == "denial-missing").collect();
        assert_eq!(found, findings, "{parameters}");
        let stage = Stage::new([signpost_dns::zone::Zone::build(zone).expect("a zone of a test")]);
        let response = lines(&stage.ask("b.z.test. A do"));
        let proofs = response.iter().filter(|line| line.starts_with("ns ") && line.contains(". NSEC ")).count();
        assert_eq!((&*response[0], proofs), ("NXDOMAIN aa", 2), "{parameters}: {response:?}");
    }
}

/// Nothing but parameters that do not count: there is no chain at all, and the check reports that.
#[test]
fn section_4_1_2_nothing_else_to_give_proofs_from() {
    let zone = contents(
        "z.test.",
        "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n@ DNSKEY \\# 4 0100030d\n@ NSEC3PARAM \\# 5 0101000000\n",
    );
    assert!(check(&zone).iter().any(|finding| finding.code.as_str() == "denial-missing"));
}

/// §3: NSEC3 records are below the apex, and below a DNAME that is there; they are names of hashes, which do not exist as names,
/// so RFC 6672 §2.3 has nothing against them.
#[test]
fn section_3_a_dname_at_the_apex_of_a_hashed_zone() {
    let text = include_bytes!("../../zonefile/signed/dname-nsec3.zone");
    let file = std::sync::Arc::from(std::path::Path::new("example.org.zone"));
    let mut includes = signpost_dns::zonefile::include::NoIncludes;
    let read = signpost_dns::zonefile::read_zone(text, &file, None, &mut includes);
    assert_eq!(read.findings, []);
    let zone = signpost_dns::zone::Zone::build(read.contents.expect("nothing is wrong")).expect("a zone");
    let stage = Stage::new([zone]);
    let redirected = lines(&stage.ask("a.example.org. A do"));
    assert_eq!(redirected[..2], ["NOERROR aa", "an example.org. DNAME example.net."]);
    let absent = lines(&stage.ask("example.org. A do"));
    assert!(absent.iter().any(|line| line.starts_with("ns ") && line.ends_with(" NSEC3")), "{absent:?}");
}

/// §7.2.8: of a name that is the owner of NSEC3 records and of nothing else the server acts "as if the owner name of the NSEC3 RR
/// did not exist", whichever chain is in use: here the rest of one in a zone that changed to NSEC records.
#[test]
fn section_7_2_8_leftover_hashes_are_no_names() {
    let (first, second) = ("0".repeat(32), "v".repeat(32));
    let left =
        format!("{first} NSEC3 0 {second}\n{first} RRSIG NSEC3\n{second} NSEC3 0 {first}\n{second} RRSIG NSEC3\n");
    // The apex's NSEC record covers the name as well as the wildcard.
    for (text, proofs) in [(text(&left), 1), (format!("@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n{left}"), 0)] {
        let contents = contents("z.test.", &text);
        let zone = Zone::build(contents.clone()).expect("a zone of a test");
        assert_eq!(records_of(&zone.contents()), records_of(&contents), "nothing is lost");
        let stage = Stage::new([zone]);
        for qtype in ["A", "NSEC3", "RRSIG", "ANY"] {
            let response = lines(&stage.ask(&format!("{first}.z.test. {qtype} do")));
            let found = response.iter().filter(|line| line.starts_with("ns ") && line.contains(". NSEC ")).count();
            assert_eq!((&*response[0], found), ("NXDOMAIN aa", proofs), "{qtype}: {response:?}");
        }
    }
}

/// The same where a wildcard covers the name, and where the hash has other records, too.
#[test]
fn section_7_2_8_leftover_hashes_beside_other_records() {
    let (first, second) = ("0".repeat(32), "v".repeat(32));
    let stage = Stage::with(
        "z.test.",
        &format!("* A 192.0.2.1\n{first} NSEC3 0 {second}\n{second} NSEC3 0 {first}\n{second} A 192.0.2.2\n"),
    );
    stage.check(&format!("{first}.z.test. A"), &format!("NOERROR aa\n an {first}.z.test. A 192.0.2.1"));
    stage.check(&format!("{second}.z.test. A"), &format!("NOERROR aa\n an {second}.z.test. A 192.0.2.2"));
    assert_eq!(lines(&stage.ask(&format!("{second}.z.test. NSEC3"))).len(), 2, "its SOA alone");
}

/// All records, in an order of their own.
fn records_of(contents: &Contents) -> Vec<String> {
    let mut records: Vec<String> = contents
        .owners()
        .flat_map(|(owner, rrsets)| rrsets.iter().map(move |rrset| (owner, rrset)))
        .flat_map(|(owner, rrset)| rrset.rdata.iter().map(move |rdata| format!("{owner} {} {rdata:?}", rrset.rtype)))
        .collect();
    records.sort();
    records
}
