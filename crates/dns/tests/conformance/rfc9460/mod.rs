//! RFC 9460 §4.1, and other types whose targets' addresses a client queries next.

use crate::conformance::stage::Stage;

#[test]
fn addresses_of_targets_in_the_zone() {
    let stage = Stage::with(
        "z.test.",
        "@      HTTPS 1 .
         @      A 192.0.2.1
         alias  HTTPS 0 svc
         none   HTTPS 0 .
         none   A 192.0.2.9
         svc    HTTPS 1 svc
         svc    AAAA 2001:db8::1
         away   SVCB 1 www.elsewhere.
         mail   MX 1 m
         mail   MX 2 m
         mail   MX 3 M2
         m      A 192.0.2.2
         m2     A 192.0.2.3
         _s     SRV 0 0 1 m
         glue   MX 1 m.sub
         sub    NS ns.elsewhere.
         m.sub  A 192.0.2.4",
    );
    stage.check_all(&[
        ("z.test. HTTPS", "NOERROR aa\n an z.test. HTTPS 1 .\n ar z.test. A 192.0.2.1"),
        (
            "alias.z.test. HTTPS",
            "NOERROR aa
             an alias.z.test. HTTPS 0 svc.z.test.
             ar svc.z.test. AAAA 2001:db8::1
             ar svc.z.test. HTTPS 1 svc.z.test.",
        ),
        ("none.z.test. HTTPS", "NOERROR aa\n an none.z.test. HTTPS 0 ."),
        ("away.z.test. SVCB", "NOERROR aa\n an away.z.test. SVCB 1 www.elsewhere."),
        (
            "mail.z.test. MX",
            "NOERROR aa
             an mail.z.test. MX 1 m.z.test.
             an mail.z.test. MX 2 m.z.test.
             an mail.z.test. MX 3 M2.z.test.
             ar m.z.test. A 192.0.2.2
             ar M2.z.test. A 192.0.2.3",
        ),
        ("_s.z.test. SRV", "NOERROR aa\n an _s.z.test. SRV 0 0 1 m.z.test.\n ar m.z.test. A 192.0.2.2"),
        // Names below a cut do not belong to this zone.
        ("glue.z.test. MX", "NOERROR aa\n an glue.z.test. MX 1 m.sub.z.test."),
    ]);
}

#[test]
fn addresses_of_name_servers() {
    let stage = Stage::with("z.test.", "@ NS ns1\n ns1 A 192.0.2.1\n ns1 AAAA 2001:db8::1");
    stage.check(
        "z.test. NS",
        "NOERROR aa
         an z.test. NS ns.elsewhere.
         an z.test. NS ns1.z.test.
         ar ns1.z.test. A 192.0.2.1
         ar ns1.z.test. AAAA 2001:db8::1",
    );
    // Glue of the zone's own servers; nothing of others that are below a cut.
    let stage = Stage::with(
        "z.test.",
        "@ NS ns2.sib\n @ NS self\n @ MX 1 ns2.sib\n sib NS ns.sib\n ns.sib A 192.0.2.2\n ns2.sib A 192.0.2.3\n \
         self NS self\n self AAAA 2001:db8::4",
    );
    stage.check_all(&[
        (
            "z.test. NS",
            "NOERROR aa
             an z.test. NS ns.elsewhere.
             an z.test. NS ns2.sib.z.test.
             an z.test. NS self.z.test.
             ar ns2.sib.z.test. A 192.0.2.3
             ar self.z.test. AAAA 2001:db8::4",
        ),
        ("z.test. MX", "NOERROR aa\n an z.test. MX 1 ns2.sib.z.test."),
    ]);
}

/// A target of `.` is the owner (§2.5.2), which under a wildcard is the query name; and targets may be covered by one.
#[test]
fn wildcards_and_targets() {
    let stage = Stage::with(
        "z.test.",
        "*.w HTTPS 1 .\n *.w A 192.0.2.7\n s HTTPS 1 t.w\n s SVCB 1 t.w\n e SVCB 1 ent\n x.ent A 192.0.2.8",
    );
    stage.check_all(&[
        ("q.w.z.test. HTTPS", "NOERROR aa\n an q.w.z.test. HTTPS 1 .\n ar q.w.z.test. A 192.0.2.7"),
        (
            "s.z.test. HTTPS",
            "NOERROR aa
             an s.z.test. HTTPS 1 t.w.z.test.
             ar t.w.z.test. A 192.0.2.7
             ar t.w.z.test. HTTPS 1 .",
        ),
        // §4.1: SVCB records of the target are of the queried type; it has HTTPS alone.
        ("s.z.test. SVCB", "NOERROR aa\n an s.z.test. SVCB 1 t.w.z.test.\n ar t.w.z.test. A 192.0.2.7"),
        ("e.z.test. SVCB", "NOERROR aa\n an e.z.test. SVCB 1 ent.z.test."),
    ]);
}

/// A target that is the owner's own name written out is as good as `.` (§2.5.2): the RRset is the answer, and stands once
/// (RFC 2181 §5).
#[test]
fn section_4_1_the_answer_is_not_repeated_beside_it() {
    let stage = Stage::with(
        "z.test.",
        "s1   HTTPS 1 S1
         s1   A 192.0.2.1
         c    CNAME s1
         *.ws HTTPS 1 foo.ws
         *.ws A 192.0.2.2
         two  HTTPS 1 .
         two  HTTPS 2 two
         two  AAAA 2001:db8::2",
    );
    stage.check_all(&[
        ("s1.z.test. HTTPS", "NOERROR aa\n an s1.z.test. HTTPS 1 S1.z.test.\n ar S1.z.test. A 192.0.2.1"),
        (
            "c.z.test. HTTPS",
            "NOERROR aa
             an c.z.test. CNAME s1.z.test.
             an s1.z.test. HTTPS 1 S1.z.test.
             ar S1.z.test. A 192.0.2.1",
        ),
        (
            "foo.ws.z.test. HTTPS",
            "NOERROR aa\n an foo.ws.z.test. HTTPS 1 foo.ws.z.test.\n ar foo.ws.z.test. A 192.0.2.2",
        ),
        // Of another name that the wildcard makes, the target is another name.
        (
            "bar.ws.z.test. HTTPS",
            "NOERROR aa
             an bar.ws.z.test. HTTPS 1 foo.ws.z.test.
             ar foo.ws.z.test. A 192.0.2.2
             ar foo.ws.z.test. HTTPS 1 foo.ws.z.test.",
        ),
        // With `.` or its own name as the target, its addresses are there once.
        (
            "two.z.test. HTTPS",
            "NOERROR aa
             an two.z.test. HTTPS 1 .
             an two.z.test. HTTPS 2 two.z.test.
             ar two.z.test. AAAA 2001:db8::2",
        ),
    ]);
}
