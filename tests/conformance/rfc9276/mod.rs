//! RFC 9276: iterations of NSEC3.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use signpost::zone::Zone;
use signpost::zone::check::{Severity, check};

use crate::conformance::stage::{Stage, contents, lines};

/// A signed zone with NSEC3PARAM records of these iterations.
fn text(iterations: &[u16]) -> String {
    let chains = iterations.iter().map(|iterations| format!("@ NSEC3PARAM \\# 5 0100{iterations:04x}00\n"));
    "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n@ DNSKEY \\# 4 0100030d\n".to_owned() + &chains.collect::<String>()
}

/// §3.1: iterations "MUST be set to 0", and §3.2: validators may treat zones with more as unsigned. So any are a warning, and
/// what no validator takes is an error: a zone from which no proof of absence can be given is not served as if it were whole.
#[test]
fn section_3_1_what_a_check_says_of_iterations() {
    let (some, many) = (("nsec3-iterations", Severity::Warning), ("nsec3-iterations-max", Severity::Error));
    for (iterations, expected) in [
        (&[0][..], vec![]),
        (&[1], vec![some]),
        (&[150], vec![some]),
        (&[151], vec![many]),
        (&[500], vec![many]),
        (&[65_535, 151], vec![many]),
        // One chain that can be used is enough.
        (&[151, 0], vec![some]),
    ] {
        let findings = check(&contents("z.test.", &text(iterations)));
        let found: Vec<_> = findings.iter().map(|finding| (finding.code.as_str(), finding.code.severity())).collect();
        let found: Vec<_> = found.into_iter().filter(|(code, _)| code.starts_with("nsec3-iterations")).collect();
        assert_eq!(found, expected, "{iterations:?}");
    }
}

/// RFC 5155 §5, without salt.
fn hash(name: &[u8], iterations: u16) -> Vec<u8> {
    let sha1 = |octets: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, octets).as_ref().to_vec();
    (0..iterations).fold(sha1(name), |hash, _| sha1(&hash))
}

/// Whoever publishes such a zone all the same makes nobody hash: the chain is not used.
#[test]
fn section_3_2_more_iterations_than_validators_take_are_not_hashed() {
    for (iterations, proofs) in [(150, true), (151, false)] {
        // A chain of the apex alone.
        let hash = hash(b"\x01z\x04test\0", iterations);
        let (owner, next) = (data_encoding::BASE32HEX_NOPAD.encode(&hash), data_encoding::HEXLOWER.encode(&hash));
        let record = format!("{owner} NSEC3 \\# 26 0100{iterations:04x}0014{next}\n");
        let zone = Zone::build(&contents("z.test.", &(text(&[iterations]) + &record))).expect("a zone of a test");
        let response = lines(&Stage::new([zone]).ask("a.z.test. A do"));
        assert_eq!(response[0], "NXDOMAIN aa");
        assert_eq!(response.iter().any(|line| line.ends_with(" NSEC3")), proofs, "{iterations}: {response:?}");
    }
}
