//! RFC 2308 §2.1: name errors, also at the end of a chain and without room for what proves them.

use signpost_dns::nameserver::Transport;
use signpost_dns::wire::RecordType;

use crate::conformance::stage::{Stage, large_signatures, lines};

/// §2.1: the code is of the last name. A truncated response keeps it when the proofs do not fit, as in Knot and NSD.
#[test]
fn trap_38_a_truncated_name_error_has_its_rcode() {
    let long = "x".repeat(63);
    let signed = [("@", RecordType::NSEC), ("@", RecordType::SOA), (&long, RecordType::NSEC)];
    let signatures = signed.map(|(owner, rtype)| large_signatures(owner, rtype, 1)).concat();
    let proofs = format!("@ NSEC {long}\n {long} NSEC @\n {signatures}");
    let text = format!("{proofs} {long} TXT t\n chain CNAME a.{long}\n txt CNAME {long}\n m.d DNAME n");
    let mut stage = Stage::with("z.test.", &text);
    for (question, head) in [
        ("nowhere.z.test. A do size=512", "NXDOMAIN aa tc"),
        ("chain.z.test. A do size=512", "NXDOMAIN aa tc"),
        ("q.m.d.z.test. A do size=512", "NXDOMAIN aa tc"),
        ("txt.z.test. A do size=512", "NOERROR aa tc"),
        ("nowhere.z.test. A size=512", "NXDOMAIN aa"),
    ] {
        let found = lines(&stage.ask(question));
        assert_eq!(found[0], head, "{question}");
        assert_eq!(
            found.len() == 1,
            head.ends_with("tc"),
            "{question}: part of an answer would be taken for all of it"
        );
    }
    assert_eq!(stage.stats.counts().kinds, [0, 1, 4, 0, 0], "they are counted as what they are");
    stage.peer.transport = Transport::Tcp;
    assert_eq!(lines(&stage.ask("chain.z.test. A do"))[0], "NXDOMAIN aa");
    // A chain that itself does not fit was not followed to its end.
    let text: String = (0..8).map(|index| format!("{long}{index} CNAME {long}{}\n", index + 1)).collect();
    let text = text.replace(&long, &format!("{0}.{0}.{0}.n", "y".repeat(60)));
    Stage::with("z.test.", &text).check(&format!("{0}.{0}.{0}.n0.z.test. A noedns", "y".repeat(60)), "NOERROR aa tc");
}
