//! RFC 5155: hashed denial of existence; proofs from a chain are with those of RFC 4035.

use signpost::zone::check::check;

use crate::conformance::stage::{Stage, contents, lines};

/// A zone with a whole chain of NSEC records, signed, and these lines.
fn text(more: &str) -> String {
    format!(
        "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n@ DNSKEY \\# 4 0100030d\n@ RRSIG SOA\n@ NSEC a\n@ RRSIG NSEC\n\
         a A 192.0.2.1\na RRSIG A\na NSEC @\na RRSIG NSEC\n{more}"
    )
}

/// §4.1.2: NSEC3PARAM records "with a Flags field value other than zero MUST be ignored"; so is one of an algorithm that nobody
/// knows (§8.1), and one whose chain is not there. What else the zone has for proofs is what they are given from.
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
        let stage = Stage::new([signpost::zone::Zone::build(&zone).expect("a zone of a test")]);
        let response = lines(&stage.ask("b.z.test. A do"));
        let proofs = response.iter().filter(|line| line.starts_with("ns ") && line.contains(". NSEC ")).count();
        assert_eq!((&*response[0], proofs), ("NXDOMAIN aa", 2), "{parameters}: {response:?}");
    }
}

/// Nothing but parameters that do not count: there is no chain at all, and the check says so.
#[test]
fn section_4_1_2_nothing_else_to_give_proofs_from() {
    let zone = contents(
        "z.test.",
        "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n@ DNSKEY \\# 4 0100030d\n@ NSEC3PARAM \\# 5 0101000000\n",
    );
    assert!(check(&zone).iter().any(|finding| finding.code.as_str() == "denial-missing"));
}

/// §3: NSEC3 records lie below the apex, and below a DNAME that is there; they are names of hashes, which do not exist as names,
/// so RFC 6672 §2.3 has nothing against them.
#[test]
fn section_3_a_dname_at_the_apex_of_a_hashed_zone() {
    let text = include_bytes!("../../zonefile/signed/dname-nsec3.zone");
    let file = std::sync::Arc::from(std::path::Path::new("example.org.zone"));
    let mut includes = signpost::zonefile::include::NoIncludes;
    let read = signpost::zonefile::read_zone(text, &file, None, &mut includes);
    assert_eq!(read.findings, []);
    let zone = signpost::zone::Zone::build(&read.contents.expect("nothing is wrong")).expect("a zone");
    let stage = Stage::new([zone]);
    let redirected = lines(&stage.ask("a.example.org. A do"));
    assert_eq!(redirected[..2], ["NOERROR aa", "an example.org. DNAME example.net."]);
    let absent = lines(&stage.ask("example.org. A do"));
    assert!(absent.iter().any(|line| line.starts_with("ns ") && line.ends_with(" NSEC3")), "{absent:?}");
}
