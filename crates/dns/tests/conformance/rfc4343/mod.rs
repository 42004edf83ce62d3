//! RFC 4343: case.

use crate::conformance::stage::Stage;

#[test]
fn trap_16_only_ascii_letters_have_case() {
    let stage = Stage::with("Z.test.", "WWW A 192.0.2.1\n \\192 A 192.0.2.2\n [ A 192.0.2.3");
    stage.check_all(&[
        ("www.z.TEST. A", "NOERROR aa\n an www.z.TEST. A 192.0.2.1"),
        (r"\192.z.test. A", "NOERROR aa\n an \\192.z.test. A 192.0.2.2"),
        (r"\224.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        // `[` and `{` are 0x20 apart as letters are.
        ("[.z.test. A", "NOERROR aa\n an [.z.test. A 192.0.2.3"),
        ("{.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
    ]);
}

/// §3: the case of names in data is kept, as far as compression with the question does not take the question's.
#[test]
fn names_in_data_keep_their_case() {
    let stage = Stage::with("z.test.", "a CNAME WwW.Elsewhere.\n b CNAME WwW.Z.test.\n www A 192.0.2.1");
    stage.check_all(&[
        ("a.z.test. A", "NOERROR aa\n an a.z.test. CNAME WwW.Elsewhere."),
        ("b.z.test. A", "NOERROR aa\n an b.z.test. CNAME WwW.Z.test.\n an WwW.Z.test. A 192.0.2.1"),
    ]);
}
