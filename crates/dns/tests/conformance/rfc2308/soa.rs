//! RFC 2308 §3: the SOA in the authority section.

use signpost_dns::zone::Zone;

use crate::conformance::stage::{Stage, contents, records};

#[test]
fn trap_37_the_ttl_is_the_lower_of_the_soas_own_and_its_minimum() {
    for (own, minimum, negative) in [(300, 60, 60), (60, 300, 60), (0, 300, 0), (300, 0, 0)] {
        let text = format!("@ {own} SOA ns.elsewhere. admin {minimum}\n@ NS ns.elsewhere.\n* A 192.0.2.1");
        let stage = Stage::new([Zone::build(contents("z.test.", &text)).expect("a zone")]);
        for question in ["a.z.test. AAAA noedns", "a.*.z.test. A noedns"] {
            let found = records(&stage.ask(question));
            assert_eq!(found.iter().map(|record| (record.section, record.ttl)).collect::<Vec<_>>(), [("ns", negative)]);
        }
        // In an answer, it has its own TTL.
        assert_eq!(records(&stage.ask("z.test. SOA noedns"))[0].ttl, own);
    }
}
