//! RFC 9276: iterations of NSEC3.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use signpost_dns::zone::Zone;
use signpost_dns::zone::check::{Severity, check};

use crate::conformance::stage::{Stage, contents, lines};

/// A signed zone with NSEC3PARAM records of these iterations.
fn text(iterations: &[u16]) -> String {
    let chains = iterations.iter().map(|iterations| format!("@ NSEC3PARAM \\# 5 0100{iterations:04x}00\n"));
    "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n@ DNSKEY \\# 4 0100030d\n".to_owned() + &chains.collect::<String>()
}

/// §3.1: iterations "MUST be set to 0", and §3.2: validators may treat zones with more as unsigned. So any are a warning, and
/// an unused chain is an error: a zone without a proof of absence is not served as if it were whole.
#[test]
fn section_3_1_what_a_check_says_of_iterations() {
    let (some, many) = (("nsec3-iterations", Severity::Warning), ("nsec3-iterations-max", Severity::Error));
    for (iterations, expected) in [
        (&[0][..], vec![]),
        (&[1], vec![some]),
        (&[50], vec![some]),
        (&[51], vec![many]),
        (&[150], vec![many]),
        (&[500], vec![many]),
        (&[65_535, 51], vec![many]),
        // One chain that can be used is enough.
        (&[51, 0], vec![some]),
    ] {
        let findings = check(&contents("z.test.", &text(iterations)));
        let found: Vec<_> = findings.iter().map(|finding| (finding.code.as_str(), finding.code.severity())).collect();
        let found: Vec<_> = found.into_iter().filter(|(code, _)| code.starts_with("nsec3-iterations")).collect();
        assert_eq!(found, expected, "{iterations:?}");
    }
}

/// RFC 5155 §5.
fn hash(name: &[u8], salt: &[u8], iterations: u16) -> Vec<u8> {
    let sha1 = |octets: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, &[octets, salt].concat()).as_ref().to_vec();
    (0..iterations).fold(sha1(name), |hash, _| sha1(&hash))
}

/// §3.3: a server may bound what it serves. A zone beyond the bound costs no server any hashes: the chain is
/// not used. A salt of more than one block of SHA-1 makes each round cost more, and counts.
#[test]
fn section_3_3_what_costs_more_than_the_bound_is_not_hashed() {
    for (iterations, salt, proofs) in [
        (0, 0, true),
        (50, 0, true),
        (50, 35, true),
        (51, 0, false),
        (150, 8, false),
        (65_535, 255, false),
        // Two blocks each round.
        (50, 36, false),
        (24, 36, true),
        (25, 36, false),
        // Five blocks each round.
        (0, 255, true),
        (9, 255, true),
        (10, 255, false),
    ] {
        let salt = vec![0xab; salt];
        // A chain of the apex alone.
        let hash = hash(b"\x01z\x04test\0", &salt, iterations);
        let (owner, next) = (data_encoding::BASE32HEX_NOPAD.encode(&hash), data_encoding::HEXLOWER.encode(&hash));
        let parameters = format!("0100{iterations:04x}{:02x}{}", salt.len(), data_encoding::HEXLOWER.encode(&salt));
        let (length, nsec3) = (5 + salt.len(), 26 + salt.len());
        let text = text(&[])
            + &format!("@ NSEC3PARAM \\# {length} {parameters}\n{owner} NSEC3 \\# {nsec3} {parameters}14{next}\n");
        let contents = contents("z.test.", &text);
        let is_refused = check(&contents).iter().any(|finding| finding.code.as_str() == "nsec3-iterations-max");
        assert_eq!(is_refused, !proofs, "{iterations} {}", salt.len());
        let zone = Zone::build(contents).expect("a zone of a test");
        let response = lines(&Stage::new([zone]).ask("a.z.test. A do"));
        assert_eq!(response[0], "NXDOMAIN aa");
        let is_proved = response.iter().any(|line| line.ends_with(" NSEC3"));
        assert_eq!(is_proved, proofs, "{iterations} {}: {response:?}", salt.len());
    }
}
