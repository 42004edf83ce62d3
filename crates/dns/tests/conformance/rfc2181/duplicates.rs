//! §5: "It is meaningless for two records to ever have label, class, type and data all equal - servers should suppress such
//! duplicates if encountered." Names in data are equal in any case (RFC 4343 §3, RFC 4034 §6.3); the first spelling is served.

use crate::conformance::stage::Stage;

#[test]
fn names_that_differ_only_in_case_are_one_record() {
    let records = "@ NS NS.Elsewhere.
        a CNAME Web.Elsewhere.\n a CNAME web.elsewhere.
        d DNAME Other.Elsewhere.\n d DNAME other.elsewhere.
        p PTR Web.Elsewhere.\n p PTR web.elsewhere.\n P PTR WEB.elsewhere.
        m MX 10 Mail.Elsewhere.\n m MX 10 mail.elsewhere.\n m MX 20 mail.elsewhere.
        s SRV 0 0 80 Web.Elsewhere.\n s SRV 0 0 80 web.elsewhere.
        h HTTPS 1 Web.Elsewhere.\n h HTTPS 1 web.elsewhere.
        t TXT Web\n t TXT web";
    Stage::with("z.test.", records).check_all(&[
        ("z.test. NS", "NOERROR aa\n an z.test. NS ns.elsewhere."),
        ("a.z.test. CNAME", "NOERROR aa\n an a.z.test. CNAME Web.Elsewhere."),
        ("a.z.test. A", "NOERROR aa\n an a.z.test. CNAME Web.Elsewhere."),
        ("d.z.test. DNAME", "NOERROR aa\n an d.z.test. DNAME Other.Elsewhere."),
        ("p.z.test. PTR", "NOERROR aa\n an p.z.test. PTR Web.Elsewhere."),
        ("m.z.test. MX", "NOERROR aa\n an m.z.test. MX 10 Mail.Elsewhere.\n an m.z.test. MX 20 mail.elsewhere."),
        ("s.z.test. SRV", "NOERROR aa\n an s.z.test. SRV 0 0 80 Web.Elsewhere."),
        // The canonical form of later types, and of text, has letters of either case.
        ("h.z.test. HTTPS", "NOERROR aa\n an h.z.test. HTTPS 1 Web.Elsewhere.\n an h.z.test. HTTPS 1 web.elsewhere."),
        ("t.z.test. TXT", "NOERROR aa\n an t.z.test. TXT Web\n an t.z.test. TXT web"),
    ]);
}

/// A second spelling of the SOA is not a second SOA, with which a zone is not served.
#[test]
fn an_soa_in_two_spellings_is_one() {
    Stage::with("z.test.", "@ SOA NS.elsewhere. Admin").check_all(&[("z.test. SOA", "NOERROR aa\n an z.test. SOA")]);
}
