//! RFC 1034 §4.2.1 and §4.3.2 step 3b: zone cuts and referrals. Glue has a file of its own, under RFC 9471.

use crate::conformance::stage::{Stage, zone};

#[test]
fn trap_28_referrals_are_not_authoritative() {
    let stage = Stage::with("z.test.", "sub NS ns1.elsewhere.\n sub NS ns2.elsewhere.\n sub A 192.0.2.1");
    let referral = "NOERROR\n ns sub.z.test. NS ns1.elsewhere.\n ns sub.z.test. NS ns2.elsewhere.";
    stage.check_all(&[
        ("sub.z.test. A", referral),
        ("sub.z.test. NS", referral),
        ("sub.z.test. SOA", referral),
        ("a.b.sub.z.test. TXT", referral),
        ("sub.z.test. ANY", referral),
    ]);
}

#[test]
fn the_topmost_cut_wins() {
    let stage = Stage::with("z.test.", "sub NS ns.elsewhere.\n deeper.sub NS ns.other.\n a.deeper.sub A 192.0.2.1");
    for name in ["a.deeper.sub", "deeper.sub", "x.sub", "sub"] {
        stage.check(&format!("{name}.z.test. A"), "NOERROR\n ns sub.z.test. NS ns.elsewhere.");
    }
}

#[test]
fn trap_34_ds_is_on_the_parents_side_of_a_cut() {
    let stage = Stage::with("z.test.", "signed NS ns.elsewhere.\n signed DS 1\n sub NS ns.elsewhere.");
    stage.check_all(&[
        ("signed.z.test. DS", "NOERROR aa\n an signed.z.test. DS 1"),
        ("sub.z.test. DS", "NOERROR aa\n ns z.test. SOA"),
        ("a.signed.z.test. DS", "NOERROR\n ns signed.z.test. NS ns.elsewhere."),
        // At our own apex, whose parent we do not serve.
        ("z.test. DS", "NOERROR aa\n ns z.test. SOA"),
    ]);
}

/// RFC 4035 §2.4: a DS "MUST NOT" be at the apex of a zone; the server does not return one, nor its signature.
#[test]
fn trap_34_a_ds_at_our_own_apex_is_not_answered() {
    let stage = Stage::with("z.test.", "@ DS 1\n @ RRSIG DS\n @ RRSIG SOA\n @ NSEC @\n @ RRSIG NSEC");
    stage.check_all(&[
        ("z.test. DS", "NOERROR aa\n ns z.test. SOA"),
        (
            "z.test. DS do",
            "NOERROR aa\n ns z.test. SOA\n ns z.test. RRSIG SOA\n ns z.test. NSEC z.test.\n ns z.test. RRSIG NSEC",
        ),
        ("z.test. RRSIG", "NOERROR aa\n an z.test. RRSIG SOA\n an z.test. RRSIG NSEC"),
    ]);
}

#[test]
fn trap_34_ds_when_both_sides_are_served_here() {
    let stage = Stage::new([zone("z.test.", "sub NS ns.elsewhere.\n sub DS 7"), zone("sub.z.test.", "a A 192.0.2.1")]);
    stage.check_all(&[
        ("sub.z.test. DS", "NOERROR aa\n an sub.z.test. DS 7"),
        ("sub.z.test. NS", "NOERROR aa\n an sub.z.test. NS ns.elsewhere."),
        ("a.sub.z.test. A", "NOERROR aa\n an a.sub.z.test. A 192.0.2.1"),
        ("a.sub.z.test. DS", "NOERROR aa\n ns sub.z.test. SOA"),
    ]);
}

#[test]
fn trap_36_the_apex_answers_for_itself() {
    let stage = Stage::with("z.test.", "@ A 192.0.2.1");
    stage.check_all(&[
        ("z.test. NS", "NOERROR aa\n an z.test. NS ns.elsewhere."),
        ("z.test. SOA", "NOERROR aa\n an z.test. SOA"),
        ("z.test. A", "NOERROR aa\n an z.test. A 192.0.2.1"),
        ("z.test. AAAA", "NOERROR aa\n ns z.test. SOA"),
    ]);
}

/// The closest of several zones answers, with any zone above it.
#[test]
fn the_closest_enclosing_zone_answers() {
    let stage = Stage::new([zone("test.", "* TXT test"), zone("c.b.a.test.", "* TXT abc"), zone("a.test.", "* TXT a")]);
    stage.check_all(&[
        ("x.c.b.a.test. TXT", "NOERROR aa\n an x.c.b.a.test. TXT abc"),
        ("x.b.a.test. TXT", "NOERROR aa\n an x.b.a.test. TXT a"),
        ("x.y.a.test. TXT", "NOERROR aa\n an x.y.a.test. TXT a"),
        ("x.test. TXT", "NOERROR aa\n an x.test. TXT test"),
        ("xa.test. TXT", "NOERROR aa\n an xa.test. TXT test"),
        ("example. TXT", "REFUSED"),
    ]);
}

#[test]
fn the_root_can_be_served() {
    let stage = Stage::with(".", "test NS ns.test\n ns.test A 192.0.2.1\n a.b TXT t");
    stage.check_all(&[
        ("www.z.test. A", "NOERROR\n ns test. NS ns.test.\n ar ns.test. A 192.0.2.1"),
        ("a.b. TXT", "NOERROR aa\n an a.b. TXT t"),
        ("nowhere. A", "NXDOMAIN aa\n ns . SOA"),
        (". NS", "NOERROR aa\n an . NS ns.elsewhere."),
        (". DS", "NOERROR aa\n ns . SOA"),
    ]);
}
