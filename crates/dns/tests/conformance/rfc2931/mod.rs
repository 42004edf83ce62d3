//! RFC 2931: SIG(0), a signature over a message by a key in the DNS. It is ignored in every position.

use crate::conformance::stage::{Stage, lines, octets, query};

#[test]
fn a_signature_of_the_query_changes_nothing() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1");
    let sig = octets(
        r"\000\000\024\000\255\000\000\000\000\000\021\000\000\013\000\000\000\000\000\000\000\000\000\000\000\000\000\000sig",
    );
    let sig = [&sig[..10], &[0, sig.len() as u8 - 11], &sig[11..]].concat();
    for question in ["a.z.test. A", "a.z.test. A noedns"] {
        let plain = query(question);
        let mut signed = plain.clone();
        signed[11] += 1;
        signed.extend_from_slice(&sig);
        let response = stage.respond(&signed).expect("a response");
        assert_eq!(Some(&response), stage.respond(&plain).as_ref(), "{question}");
        assert_eq!(lines(&response)[0], "NOERROR aa");
    }
}
