//! RFC 3597: types that are unknown to this server.

use crate::conformance::stage::{Stage, query, records};

#[test]
fn unknown_types_are_served_as_they_are() {
    // What looks like a name or pointer in them is neither compressed nor changed.
    let stage = Stage::with(
        "z.test.",
        r"a TYPE65400 \# 9 017a0474657374 00c0
        b TYPE65401 \# 0
        c SRV \# 3 c00c01",
    );
    let found = records(&stage.ask("a.z.test. TYPE65400 noedns"));
    assert_eq!(found[0].rdata, "017a047465737400c0");
    // No data at all is data, too (§5), though hickory does not think so: this response is not shown to it.
    let found = records(&stage.respond(&query("b.z.test. TYPE65401 noedns")).expect("a response"));
    assert_eq!((found.len(), &found[0].rdata[..]), (1, ""));
}

/// §4: only types of RFC 1035 may have their names compressed.
#[test]
fn names_of_newer_types_are_not_compressed() {
    let stage = Stage::with("z.test.", "_s._tcp SRV 0 0 1 www\n d DNAME www\n @ MX 1 mail");
    let octets = |question: &str| records(&stage.ask(question))[0].octets.clone();
    assert_eq!(octets("_s._tcp.z.test. SRV noedns"), b"\0\0\0\0\0\x01\x03www\x01z\x04test\0");
    assert_eq!(octets("d.z.test. DNAME noedns"), b"\x03www\x01z\x04test\0");
    assert_eq!(octets("z.test. MX noedns"), b"\0\x01\x04mail\xc0\x0c");
}

/// Compressed suffixes follow the question, for a name of any length.
#[test]
fn pointers_into_the_question() {
    let stage = Stage::with("a.b.test.", "* MX 1 mail.b.test.\n * PTR x.y.a.b.test.\n * NS ns.test.");
    for name in ["q.a.b.test.", "some.more.labels.a.b.test.", r"\000\255.a.b.test."] {
        stage.check(&format!("{name} MX"), &format!("NOERROR aa\n an {name} MX 1 mail.b.test."));
        stage.check(&format!("{name} PTR"), &format!("NOERROR aa\n an {name} PTR x.y.a.b.test."));
        stage.check(&format!("{name} NS"), &format!("NOERROR aa\n an {name} NS ns.test."));
    }
}
