//! RFC 4035 §3.1: signatures and NSEC proofs, only if DO is set.

use crate::conformance::stage::{Stage, records};

/// Canonical order: @, *.w, a, ent.b (ent of b), sub (unsigned cut), signed (cut with DS), w.
fn stage() -> Stage {
    Stage::with(
        "z.test.",
        "@       RRSIG SOA
         @       RRSIG NS
         @       NSEC a
         @       RRSIG NSEC
         a       A 192.0.2.1
         a       A 192.0.2.2
         a       RRSIG A
         a       NSEC x.b
         a       RRSIG NSEC
         x.b     TXT t
         x.b     RRSIG TXT
         x.b     NSEC signed
         x.b     RRSIG NSEC
         signed  NS ns.elsewhere.
         signed  DS 1
         signed  RRSIG DS
         signed  NSEC sub
         signed  RRSIG NSEC
         sub     NS ns.sub
         ns.sub  A 192.0.2.3
         sub     NSEC *.w
         sub     RRSIG NSEC
         *.w     A 192.0.2.4
         *.w     RRSIG A
         *.w     NSEC @
         *.w     RRSIG NSEC",
    )
}

#[test]
fn trap_43_signatures_stand_with_their_rrsets() {
    stage().check_all(&[
        ("a.z.test. A do", "NOERROR aa\n an a.z.test. A 192.0.2.1\n an a.z.test. A 192.0.2.2\n an a.z.test. RRSIG A"),
        ("a.z.test. A", "NOERROR aa\n an a.z.test. A 192.0.2.1\n an a.z.test. A 192.0.2.2"),
        ("a.z.test. NSEC do", "NOERROR aa\n an a.z.test. NSEC x.b.z.test.\n an a.z.test. RRSIG NSEC"),
    ]);
}

#[test]
fn trap_05_a_wildcard_answer_proves_that_nothing_is_closer() {
    stage().check_all(&[
        (
            "q.w.z.test. A do",
            "NOERROR aa
             an q.w.z.test. A 192.0.2.4
             an q.w.z.test. RRSIG A
             ns *.w.z.test. NSEC z.test.
             ns *.w.z.test. RRSIG NSEC",
        ),
        // A literal query for the wildcard does not synthesize.
        ("*.w.z.test. A do", "NOERROR aa\n an *.w.z.test. A 192.0.2.4\n an *.w.z.test. RRSIG A"),
    ]);
}

/// The proofs for the chain's wildcards are in the authority section, behind all of the answer, each record once.
#[test]
fn aliases_from_wildcards() {
    let stage = Stage::with(
        "z.test.",
        "@    RRSIG SOA
         @    NSEC a
         @    RRSIG NSEC
         a    A 192.0.2.1
         a    RRSIG A
         a    NSEC *.c
         a    RRSIG NSEC
         *.c  CNAME a
         *.c  RRSIG CNAME
         *.c  NSEC *.e
         *.c  RRSIG NSEC
         *.e  CNAME x.c
         *.e  RRSIG CNAME
         *.e  NSEC *.f
         *.e  RRSIG NSEC
         *.f  CNAME fz
         *.f  RRSIG CNAME
         *.f  NSEC *.g
         *.f  RRSIG NSEC
         *.g  CNAME away.elsewhere.
         *.g  RRSIG CNAME
         *.g  NSEC @
         *.g  RRSIG NSEC",
    );
    stage.check_all(&[
        (
            "q.c.z.test. A do",
            "NOERROR aa
             an q.c.z.test. CNAME a.z.test.
             an q.c.z.test. RRSIG CNAME
             an a.z.test. A 192.0.2.1
             an a.z.test. RRSIG A
             ns *.c.z.test. NSEC *.e.z.test.
             ns *.c.z.test. RRSIG NSEC",
        ),
        (
            "q.e.z.test. A do",
            "NOERROR aa
             an q.e.z.test. CNAME x.c.z.test.
             an q.e.z.test. RRSIG CNAME
             an x.c.z.test. CNAME a.z.test.
             an x.c.z.test. RRSIG CNAME
             an a.z.test. A 192.0.2.1
             an a.z.test. RRSIG A
             ns *.e.z.test. NSEC *.f.z.test.
             ns *.e.z.test. RRSIG NSEC
             ns *.c.z.test. NSEC *.e.z.test.
             ns *.c.z.test. RRSIG NSEC",
        ),
        // One record proves that nothing is closer to q.f, and that there is no fz.
        (
            "q.f.z.test. A do",
            "NXDOMAIN aa
             an q.f.z.test. CNAME fz.z.test.
             an q.f.z.test. RRSIG CNAME
             ns z.test. SOA
             ns z.test. RRSIG SOA
             ns *.f.z.test. NSEC *.g.z.test.
             ns *.f.z.test. RRSIG NSEC
             ns z.test. NSEC a.z.test.
             ns z.test. RRSIG NSEC",
        ),
        (
            "q.g.z.test. A do",
            "NOERROR aa
             an q.g.z.test. CNAME away.elsewhere.
             an q.g.z.test. RRSIG CNAME
             ns *.g.z.test. NSEC z.test.
             ns *.g.z.test. RRSIG NSEC",
        ),
        ("q.c.z.test. A", "NOERROR aa\n an q.c.z.test. CNAME a.z.test.\n an a.z.test. A 192.0.2.1"),
    ]);
}

/// RFC 2181 §5: a record is once in a section. Here one record proves that nothing is closer to the alias, and that the
/// delegation to which it leads has no DS.
#[test]
fn an_alias_from_a_wildcard_into_a_delegation() {
    let stage = Stage::with(
        "z.test.",
        "@      RRSIG SOA
         @      NSEC *
         @      RRSIG NSEC
         *      CNAME a.ins
         *      RRSIG CNAME
         *      NSEC ins
         *      RRSIG NSEC
         ins    NS ns.ins
         ns.ins A 192.0.2.1
         ins    NSEC sec
         ins    RRSIG NSEC
         sec    NS ns.elsewhere.
         sec    DS 1
         sec    RRSIG DS
         sec    NSEC *.w
         sec    RRSIG NSEC
         *.w    CNAME sec
         *.w    RRSIG CNAME
         *.w    NSEC @
         *.w    RRSIG NSEC",
    );
    stage.check_all(&[
        (
            "ins1.z.test. A do",
            "NOERROR aa
             an ins1.z.test. CNAME a.ins.z.test.
             an ins1.z.test. RRSIG CNAME
             ns ins.z.test. NS ns.ins.z.test.
             ns ins.z.test. NSEC sec.z.test.
             ns ins.z.test. RRSIG NSEC
             ar ns.ins.z.test. A 192.0.2.1",
        ),
        (
            "q.w.z.test. A do",
            "NOERROR aa
             an q.w.z.test. CNAME sec.z.test.
             an q.w.z.test. RRSIG CNAME
             ns sec.z.test. NS ns.elsewhere.
             ns sec.z.test. DS 1
             ns sec.z.test. RRSIG DS
             ns *.w.z.test. NSEC z.test.
             ns *.w.z.test. RRSIG NSEC",
        ),
        (
            "ins1.z.test. A",
            "NOERROR aa
             an ins1.z.test. CNAME a.ins.z.test.
             ns ins.z.test. NS ns.ins.z.test.
             ar ns.ins.z.test. A 192.0.2.1",
        ),
    ]);
}

/// §3.1.3.3 has the proof with every answer that a wildcard makes, so also where signatures alone are queried.
#[test]
fn signatures_from_a_wildcard_prove_that_nothing_is_closer() {
    stage().check_all(&[
        (
            "q.w.z.test. RRSIG do",
            "NOERROR aa
             an q.w.z.test. RRSIG A
             an q.w.z.test. RRSIG NSEC
             ns *.w.z.test. NSEC z.test.
             ns *.w.z.test. RRSIG NSEC",
        ),
        ("q.w.z.test. RRSIG", "NOERROR aa\n an q.w.z.test. RRSIG A\n an q.w.z.test. RRSIG NSEC"),
        ("*.w.z.test. RRSIG do", "NOERROR aa\n an *.w.z.test. RRSIG A\n an *.w.z.test. RRSIG NSEC"),
        (
            "q.w.z.test. NSEC do",
            "NOERROR aa
             an q.w.z.test. NSEC z.test.
             an q.w.z.test. RRSIG NSEC
             ns *.w.z.test. NSEC z.test.
             ns *.w.z.test. RRSIG NSEC",
        ),
    ]);
}

#[test]
fn no_data() {
    let soa = "ns z.test. SOA\n ns z.test. RRSIG SOA";
    stage().check_all(&[
        ("a.z.test. TXT do", &format!("NOERROR aa\n {soa}\n ns a.z.test. NSEC x.b.z.test.\n ns a.z.test. RRSIG NSEC")),
        // An empty non-terminal is covered by the name before it.
        ("b.z.test. TXT do", &format!("NOERROR aa\n {soa}\n ns a.z.test. NSEC x.b.z.test.\n ns a.z.test. RRSIG NSEC")),
        // From a wildcard: its own record, and that nothing is closer, here the same.
        (
            "q.w.z.test. TXT do",
            &format!("NOERROR aa\n {soa}\n ns *.w.z.test. NSEC z.test.\n ns *.w.z.test. RRSIG NSEC"),
        ),
        ("a.z.test. TXT", "NOERROR aa\n ns z.test. SOA"),
    ]);
}

#[test]
fn no_name() {
    stage().check_all(&[
        (
            "c.z.test. A do",
            "NXDOMAIN aa
             ns z.test. SOA
             ns z.test. RRSIG SOA
             ns x.b.z.test. NSEC signed.z.test.
             ns x.b.z.test. RRSIG NSEC
             ns z.test. NSEC a.z.test.
             ns z.test. RRSIG NSEC",
        ),
        ("c.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
    ]);
}

#[test]
fn delegations() {
    stage().check_all(&[
        (
            "q.signed.z.test. A do",
            "NOERROR\n ns signed.z.test. NS ns.elsewhere.\n ns signed.z.test. DS 1\n ns signed.z.test. RRSIG DS",
        ),
        (
            "q.sub.z.test. A do",
            "NOERROR
             ns sub.z.test. NS ns.sub.z.test.
             ns sub.z.test. NSEC *.w.z.test.
             ns sub.z.test. RRSIG NSEC
             ar ns.sub.z.test. A 192.0.2.3",
        ),
        ("q.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.sub.z.test.\n ar ns.sub.z.test. A 192.0.2.3"),
        ("signed.z.test. DS do", "NOERROR aa\n an signed.z.test. DS 1\n an signed.z.test. RRSIG DS"),
    ]);
}

#[test]
fn trap_37_negative_ttls() {
    let found = records(&stage().ask("c.z.test. A do"));
    for record in found.iter().filter(|record| record.section == "ns") {
        assert_eq!(record.ttl, 60, "{record:?}");
        if record.rdata == "SOA" || record.rdata == "NSEC" {
            assert_eq!(record.octets[4..8], [0, 0, 1, 44], "the original TTL stays");
        }
    }
}
