//! Signed zones and zones with a digest: what a check verifies. The zones of `tests/zonefile/signed` were signed by
//! `dnssec-signzone` and `ldns-signzone`, one for each algorithm.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::path::Path;
use std::sync::Arc;

use signpost_dns::wire::Name;
use signpost_dns::zonefile::include::NoIncludes;
use signpost_dns::zonefile::{CheckLevel, Severity, ZoneRead, read_zone_with};

/// Within the validity of all signatures, 2025 to 2090.
const NOW: u64 = 1_900_000_000;

fn read_at(text: &str, origin: &str, now: u64) -> ZoneRead {
    let origin: Name = origin.parse().unwrap();
    let scrutiny = CheckLevel::of_check(Some(now), 3);
    read_zone_with(text.as_bytes(), &Arc::from(Path::new("test")), Some(origin), &mut NoIncludes, &scrutiny)
}

/// The codes found in a zone of `example.org.`.
fn codes(text: &str) -> Vec<&'static str> {
    read_at(text, "example.org.", NOW).findings.iter().map(|finding| finding.code).collect()
}

/// The files, the findings in each, and a change in it that makes one signature wrong.
fn zones() -> Vec<(&'static str, &'static str, &'static [&'static str], [&'static str; 2])> {
    const ADDRESS: [&str; 2] = ["192.0.2.1\n", "192.0.2.99\n"];
    vec![
        ("rsasha1", include_str!("zonefile/signed/rsasha1.zone"), &[], ADDRESS),
        ("nsec3rsasha1", include_str!("zonefile/signed/nsec3rsasha1.zone"), &[], ADDRESS),
        ("rsasha256", include_str!("zonefile/signed/rsasha256.zone"), &[], ADDRESS),
        ("rsasha512", include_str!("zonefile/signed/rsasha512.zone"), &[], ADDRESS),
        ("ecdsap256, opt-out", include_str!("zonefile/signed/ecdsap256.zone"), &[], ADDRESS),
        ("ed25519", include_str!("zonefile/signed/ed25519.zone"), &[], ADDRESS),
        ("dname at the apex", include_str!("zonefile/signed/dname-nsec3.zone"), &[], ["MX\t\t10", "MX\t\t20"]),
        ("by Knot, NSEC", include_str!("zonefile/signed-nsec.zone"), &[], ADDRESS),
        ("by Knot, NSEC3", include_str!("zonefile/signed-nsec3.zone"), &[], ADDRESS),
    ]
}

#[test]
fn signatures_of_every_algorithm_are_verified() {
    for (name, text, expected, [before, after]) in zones() {
        let read = read_at(text, "example.org.", NOW);
        assert!(read.contents.is_some(), "{name}: {:#?}", read.findings);
        assert_eq!(codes(text), expected, "{name}: {:#?}", read.findings);
        assert!(text.contains(before), "{name}");
        assert_eq!(codes(&text.replacen(before, after, 1)), ["rrsig-wrong"], "{name}");
    }
}

/// A signature by an unknown algorithm is not a fault.
#[test]
fn what_cannot_be_verified_is_noted() {
    let text = include_str!("zonefile/signed/ed448.zone");
    let findings = read_at(text, "example.org.", NOW).findings;
    assert!(findings.iter().all(|finding| finding.severity == Severity::Note), "{findings:#?}");
    assert_eq!(codes(text), ["rrsig-unchecked"; 2], "one for each key");
    assert_eq!(codes(&text.replacen("192.0.2.1\n", "192.0.2.99\n", 1)), ["rrsig-unchecked"; 2]);
}

/// Each signature by itself: one octet of it changed, and nothing else is wrong.
#[test]
fn every_signature_counts() {
    let text = include_str!("zonefile/signed/ed25519.zone");
    let mut changed = 0;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.contains(" RRSIG\t")) {
        let octet = if line.ends_with("A==") { "Q==" } else { "A==" };
        let other = format!("{}{octet}", &line[..line.len() - 3]);
        let lines = text.lines().enumerate().map(|(index, line)| if index == at { other.as_str() } else { line });
        let findings = read_at(&lines.collect::<Vec<_>>().join("\n"), "example.org.", NOW).findings;
        let found: Vec<_> = findings.iter().map(|finding| (finding.code, finding.line)).collect();
        assert_eq!(found.len(), 1, "{line}: {findings:#?}");
        assert_eq!(found[0].0, "rrsig-wrong", "{line}");
        changed += 1;
    }
    assert!(changed > 20, "{changed} signatures only");
}

/// RFC 4034 §6.2 and §6.3: neither case, nor order, nor a repetition changes what was signed.
#[test]
fn the_canonical_form_is_what_counts() {
    let text = include_str!("zonefile/signed/ed25519.zone");
    let mut lines: Vec<String> = text.lines().map(|line| line.replacen("example.org.", "eXample.oRg.", 1)).collect();
    lines[1..].reverse();
    assert!(lines[0].contains("SOA"), "{}", lines[0]);
    assert_eq!(codes(&lines.join("\n")), [""; 0]);
}

#[test]
fn signatures_out_of_their_time() {
    for (now, code) in [(1_700_000_000, "rrsig-not-yet-valid"), (3_900_000_000, "rrsig-expired")] {
        let findings = read_at(include_str!("zonefile/signed/ed25519.zone"), "example.org.", now).findings;
        assert!(!findings.is_empty() && findings.iter().all(|finding| finding.code == code), "{findings:#?}");
    }
}

/// The first example of RFC 8976 (appendix A.1), and what is wrong with changes of it.
#[test]
fn digests_of_zones() {
    let zone = |zonemd: &str, more: &str| {
        format!(
            "$ORIGIN example.\n\
             @ 86400 SOA ns1 admin 2018031900 1800 900 604800 86400\n 86400 NS ns1\n 86400 NS ns2\n{zonemd}\
             ns1 3600 A 203.0.113.63\nns2 3600 AAAA 2001:db8::63\n{more}"
        )
    };
    const DIGEST: &str =
        "c68090d90a7aed716bc459f9340e3d7c1370d4d24b7e2fc3a1ddc0b9a87153b9a9713b3c9ae5cc27777f98b8e730044c";
    let zonemd =
        |serial: u32, scheme: u8, hash: u8, digest: &str| format!("@ 86400 ZONEMD {serial} {scheme} {hash} {digest}\n");
    let right = zonemd(2_018_031_900, 1, 1, DIGEST);
    let other = format!("00{}", &DIGEST[2..]);
    let cases: &[(&str, String, &str, &[&str])] = &[
        ("unchanged", right.clone(), "", &[]),
        ("changed", right.clone(), "new 3600 TXT x\n", &["zonemd-wrong"]),
        ("another digest", zonemd(2_018_031_900, 1, 1, &other), "", &["zonemd-wrong"]),
        ("another serial", zonemd(2_018_031_901, 1, 1, DIGEST), "", &["zonemd-serial"]),
        ("another scheme", zonemd(2_018_031_900, 240, 1, DIGEST), "", &["zonemd-unchecked"]),
        ("another hash", zonemd(2_018_031_900, 1, 240, DIGEST), "", &["zonemd-unchecked"]),
        ("twice", right.clone() + &zonemd(2_018_031_900, 1, 1, &other), "", &["zonemd-wrong", "zonemd-wrong"]),
        ("too short", zonemd(2_018_031_900, 1, 1, "00"), "", &["rdata"]),
        ("of the other hash's length", zonemd(2_018_031_900, 1, 2, DIGEST), "", &["rdata"]),
        ("unknown, eleven octets", zonemd(2_018_031_900, 1, 240, &DIGEST[..22]), "", &["rdata"]),
        ("unknown, twelve octets", zonemd(2_018_031_900, 1, 240, &DIGEST[..24]), "", &["zonemd-unchecked"]),
    ];
    for (name, zonemd, more, expected) in cases {
        let read = read_at(&zone(zonemd, more), "example.", NOW);
        let found: Vec<_> = read.findings.iter().map(|finding| finding.code).collect();
        assert_eq!(found, *expected, "{name}: {:#?}", read.findings);
    }
}

/// RFC 8976 §3.3.1: signatures and glue are part of what is digested. This zone has both hashes, by another implementation.
#[test]
fn digests_of_a_signed_zone() {
    let text = include_str!("zonefile/signed/ecdsap384.zone");
    assert_eq!(codes(text), [""; 0]);
    let glue = text.replacen("192.0.2.9\n", "192.0.2.99\n", 1);
    assert_ne!(glue, text);
    assert_eq!(codes(&glue), ["zonemd-wrong", "zonemd-wrong"]);
    let signed = text.replacen("192.0.2.1\n", "192.0.2.99\n", 1);
    let mut found = codes(&signed);
    found.sort_unstable();
    assert_eq!(found, ["rrsig-wrong", "zonemd-wrong", "zonemd-wrong"]);
}
