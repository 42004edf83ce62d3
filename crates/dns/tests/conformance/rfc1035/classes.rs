//! RFC 1035 §3.2.4 and §3.2.5: classes, and types that exist in questions only.

use signpost_dns::nameserver::Transport;

use crate::conformance::stage::{Stage, opt};

#[test]
fn trap_29_other_classes_are_refused() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1");
    for class in ["CH", "HS", "ANY", "NONE", "CLASS2", "CLASS65280"] {
        stage.check(&format!("a.z.test. A class={class}"), "REFUSED");
    }
}

#[test]
fn trap_31_meta_types_are_malformed_questions() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1\n a A 192.0.2.2");
    for qtype in ["OPT", "TSIG", "TKEY", "NXNAME", "TYPE0"] {
        stage.check(&format!("a.z.test. {qtype}"), "FORMERR");
    }
    let (_, _, options) = opt(&stage.ask("a.z.test. NXNAME")).expect("an OPT record");
    assert_eq!(options, [(15, vec![0, 30])]);
    for qtype in ["MAILA", "MAILB"] {
        stage.check(&format!("a.z.test. {qtype}"), "NOERROR aa\n ns z.test. SOA");
    }
}

#[test]
fn trap_32_transfers_are_refused() {
    let mut stage = Stage::with("z.test.", "* A 192.0.2.1");
    for transport in [Transport::Udp, Transport::Tcp] {
        stage.peer.transport = transport;
        for qtype in ["AXFR", "IXFR"] {
            stage.check(&format!("z.test. {qtype}"), "REFUSED");
        }
    }
}
