//! RFC 4592 §2.2.2: names that exist only because names below them do.

use crate::conformance::stage::Stage;

#[test]
fn trap_02_an_empty_non_terminal_exists_and_is_the_closest_encloser() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1\n a.b.c A 192.0.2.2");
    stage.check_all(&[
        ("c.z.test. A", "NOERROR aa\n ns z.test. SOA"),
        ("b.c.z.test. TXT", "NOERROR aa\n ns z.test. SOA"),
        ("x.c.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("x.b.c.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("a.b.c.z.test. A", "NOERROR aa\n an a.b.c.z.test. A 192.0.2.2"),
        ("d.z.test. A", "NOERROR aa\n an d.z.test. A 192.0.2.1"),
    ]);
}

/// A name that is a suffix in octets but not in labels makes nothing exist.
#[test]
fn labels_decide_not_octets() {
    let stage = Stage::with("z.test.", "ab.c A 192.0.2.1");
    stage.check_all(&[
        ("b.c.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("bc.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        (r"ab\.c.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("c.z.test. A", "NOERROR aa\n ns z.test. SOA"),
    ]);
}
