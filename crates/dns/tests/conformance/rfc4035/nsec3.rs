//! RFC 5155 §7.2: NSEC3 proofs.

use std::collections::BTreeMap;

use signpost_dns::wire::Name;
use signpost_dns::zone::check::check;

use crate::conformance::stage::{Stage, contents, lines};

/// The hash of a name, without salt and further iterations, in base32hex: made by another program than ours would be
/// better, but SHA-1 of the wire form is all that it is.
fn hash(name: &str) -> String {
    let name: Name = name.parse().expect("a name");
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, name.as_wire());
    data_encoding::BASE32HEX_NOPAD.encode(digest.as_ref()).to_ascii_lowercase()
}

/// A zone with a complete chain over its names; with `opt_out` the delegation without DS is not in it.
fn stage(opt_out: bool) -> (Stage, BTreeMap<String, String>) {
    let further: &[&str] = if opt_out { &[] } else { &["sub.z.test.", "deep.z.test.", "unsigned.deep.z.test."] };
    let (text, owners) = text(further, opt_out);
    (Stage::with("z.test.", &text), owners)
}

/// The lines of such a zone, with a chain over the names that it must have and these, and the names by their hashes.
fn text(further: &[&str], opt_out: bool) -> (String, BTreeMap<String, String>) {
    let mut names =
        vec!["z.test.", "a.z.test.", "b.z.test.", "x.b.z.test.", "signed.z.test.", "w.z.test.", "*.w.z.test."];
    names.extend(further);
    let owners: BTreeMap<String, String> = names.iter().map(|name| (hash(name), (*name).to_owned())).collect();
    let hashes: Vec<&String> = owners.keys().collect();
    let mut text = String::from(
        "@ RRSIG SOA
         @ NSEC3PARAM
         a A 192.0.2.1
         a RRSIG A
         x.b TXT t
         signed NS ns.elsewhere.
         signed DS 1
         signed RRSIG DS
         sub NS ns.elsewhere.
         unsigned.deep NS ns.elsewhere.
         *.w A 192.0.2.4
         *.w RRSIG A\n",
    );
    for (index, owner) in hashes.iter().enumerate() {
        let next = hashes[(index + 1) % hashes.len()];
        text.push_str(&format!("{owner} NSEC3 {} {next}\n {owner} RRSIG NSEC3\n", u8::from(opt_out)));
    }
    (text, owners)
}

/// §7.1: an empty non-terminal must have a record "unless the empty non-terminal is only derived from an insecure delegation
/// covered by an Opt-Out NSEC3 RR": not if that delegation has a record of its own.
#[test]
fn the_check_knows_which_names_opt_out_may_omit() {
    for (further, missing) in [
        (&[][..], 0),
        (&["sub.z.test."], 0),
        (&["unsigned.deep.z.test."], 1),
        (&["deep.z.test."], 0),
        (&["deep.z.test.", "unsigned.deep.z.test."], 0),
    ] {
        let text = format!(
            "@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n@ DNSKEY \\# 4 0100030d\n{}",
            text(further, true).0
        );
        let found = check(&contents("z.test.", &text));
        let found = found.iter().filter(|finding| finding.code.as_str() == "nsec3-missing");
        assert_eq!(found.count(), missing, "{further:?}");
    }
}

/// The owners of NSEC3 records in the authority section, as the names of their hashes.
fn proofs(stage: &(Stage, BTreeMap<String, String>), question: &str) -> Vec<String> {
    let response = lines(&stage.0.ask(question));
    let nsec3 = response.iter().filter_map(|line| line.strip_prefix("ns ")?.strip_suffix(".z.test. NSEC3"));
    let owners: Vec<String> = nsec3.map(|hash| stage.1[hash].clone()).collect();
    let signatures = response.iter().filter(|line| line.ends_with("RRSIG NSEC3")).count();
    assert_eq!(signatures, owners.len());
    owners
}

/// The name whose record covers the hash of `name`.
fn covering(stage: &(Stage, BTreeMap<String, String>), name: &str) -> String {
    let below = stage.1.range(..hash(name)).next_back();
    below.or_else(|| stage.1.last_key_value()).expect("a chain").1.clone()
}

/// Returns the names without repeats, in order of first mention.
fn set(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[test]
fn proofs_of_absence() {
    let stage = stage(false);
    let cover = |name: &str| covering(&stage, name);
    for (question, expected) in [
        ("a.z.test. TXT do", vec!["a.z.test.".into()]),
        ("b.z.test. TXT do", vec!["b.z.test.".into()]),
        ("c.z.test. A do", vec!["z.test.".into(), cover("c.z.test."), cover("*.z.test.")]),
        ("d.c.a.z.test. A do", vec!["a.z.test.".into(), cover("c.a.z.test."), cover("*.a.z.test.")]),
        ("q.w.z.test. A do", vec![cover("q.w.z.test.")]),
        ("q.w.z.test. RRSIG do", vec![cover("q.w.z.test.")]),
        ("p.q.w.z.test. A do", vec![cover("q.w.z.test.")]),
        ("q.w.z.test. TXT do", vec!["*.w.z.test.".into(), "w.z.test.".into(), cover("q.w.z.test.")]),
        ("q.sub.z.test. A do", vec!["sub.z.test.".into()]),
        ("sub.z.test. DS do", vec!["sub.z.test.".into()]),
        ("q.signed.z.test. A do", vec![]),
        ("c.z.test. A", vec![]),
    ] {
        assert_eq!(proofs(&stage, question), set(expected), "{question}");
    }
}

#[test]
fn opt_out() {
    let stage = stage(true);
    let expected = set(["z.test.".to_owned(), covering(&stage, "sub.z.test.")]);
    assert_eq!(proofs(&stage, "q.sub.z.test. A do"), expected);
    assert_eq!(proofs(&stage, "sub.z.test. DS do"), expected);
}

/// RFC 5155 §7.2.8: the names of hashes do not exist as names.
#[test]
fn hashed_owners_do_not_exist() {
    let stage = stage(false);
    let owner = stage.1.keys().next().expect("a chain").clone();
    for qtype in ["NSEC3", "A", "RRSIG"] {
        assert_eq!(lines(&stage.0.ask(&format!("{owner}.z.test. {qtype}")))[0], "NXDOMAIN aa");
    }
}

/// RFC 1035 §4.1.4: the label that is a hash is in a response once, and the signature over its record points to it.
#[test]
fn a_hash_is_written_once() {
    let stage = stage(false);
    let response = stage.0.ask("d.c.a.z.test. A do");
    for owner in proofs(&stage, "d.c.a.z.test. A do") {
        let label = hash(&owner);
        let found = response.windows(label.len()).filter(|octets| *octets == label.as_bytes()).count();
        assert_eq!(found, 1, "{label}");
    }
}
