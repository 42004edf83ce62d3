//! RRsets have no order; addresses begin with a random one, so that each comes first as often as the others.

use crate::conformance::stage::{Stage, lines, records};

#[test]
fn trap_8_each_address_comes_first_equally_often() {
    for (rtype, text) in [
        ("A", "* A 192.0.2.1\n* A 192.0.2.2\n* A 192.0.2.3"),
        ("AAAA", "* AAAA 2001:db8::1\n* AAAA 2001:db8::2\n* AAAA 2001:db8::3"),
    ] {
        let mut stage = Stage::with("z.test.", text);
        let mut first = std::collections::BTreeMap::<String, u32>::new();
        let rounds = 3000u32;
        for round in 0..rounds {
            stage.peer.random = round * (u32::MAX / rounds);
            let answer = lines(&stage.ask(&format!("a.z.test. {rtype}")));
            assert_eq!(answer.len(), 4);
            *first.entry(answer[1].clone()).or_default() += 1;
        }
        assert_eq!(first.len(), 3);
        for (answer, count) in first {
            assert!((900..1100).contains(&count), "{answer}: {count} of {rounds}");
        }
    }
}

/// The cyclic order is kept, so that neighbours stay neighbours; all records are there.
#[test]
fn rotation_keeps_the_cycle() {
    let mut stage = Stage::with("z.test.", "* A 192.0.2.1\n* A 192.0.2.2\n* A 192.0.2.3");
    stage.peer.random = u32::MAX;
    stage.check(
        "a.z.test. A",
        "NOERROR aa\n an a.z.test. A 192.0.2.3\n an a.z.test. A 192.0.2.1\n an a.z.test. A 192.0.2.2",
    );
}

/// Other types keep their order.
#[test]
fn only_addresses_rotate() {
    let mut stage = Stage::with("z.test.", "@ MX 1 a\n@ MX 2 b\n t TXT x\n t TXT y");
    stage.peer.random = u32::MAX;
    stage.check("z.test. MX", "NOERROR aa\n an z.test. MX 1 a.z.test.\n an z.test. MX 2 b.z.test.");
    stage.check("t.z.test. TXT", "NOERROR aa\n an t.z.test. TXT x\n an t.z.test. TXT y");
}

/// RFC 2181 §5.2: one TTL in an RRset.
#[test]
fn an_rrset_has_one_ttl() {
    let stage = Stage::with("z.test.", "a 300 A 192.0.2.1\n a 60 A 192.0.2.2");
    assert!(records(&stage.ask("a.z.test. A noedns")).iter().all(|record| record.ttl == 60));
}
