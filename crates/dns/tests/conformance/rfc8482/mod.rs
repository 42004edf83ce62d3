//! RFC 8482: ANY gets one RRset.

use signpost_dns::nameserver::Transport;

use crate::conformance::stage::Stage;

#[test]
fn trap_30_any_gets_one_rrset_on_every_transport() {
    let mut stage = Stage::with(
        "z.test.",
        "a TXT t\n a A 192.0.2.1\n a A 192.0.2.2\n c CNAME a\n * MX 1 a\n sub NS ns.elsewhere.\n x.ent TXT t",
    );
    for transport in [Transport::Udp, Transport::Tcp] {
        stage.peer.transport = transport;
        stage.check_all(&[
            ("a.z.test. ANY", "NOERROR aa\n an a.z.test. A 192.0.2.1\n an a.z.test. A 192.0.2.2"),
            ("c.z.test. ANY", "NOERROR aa\n an c.z.test. CNAME a.z.test."),
            (
                "w.z.test. ANY",
                "NOERROR aa\n an w.z.test. MX 1 a.z.test.\n ar a.z.test. A 192.0.2.1\n ar a.z.test. A 192.0.2.2",
            ),
            ("sub.z.test. ANY", "NOERROR\n ns sub.z.test. NS ns.elsewhere."),
            ("ent.z.test. ANY", "NOERROR aa\n ns z.test. SOA"),
            ("y.ent.z.test. ANY", "NXDOMAIN aa\n ns z.test. SOA"),
        ]);
    }
}

#[test]
fn trap_33_rrsig_gets_the_signatures_that_are_there() {
    let stage = Stage::with("z.test.", "a A 192.0.2.1\n a RRSIG A\n a RRSIG NSEC\n b A 192.0.2.1");
    stage.check_all(&[
        ("a.z.test. RRSIG", "NOERROR aa\n an a.z.test. RRSIG A\n an a.z.test. RRSIG NSEC"),
        ("b.z.test. RRSIG", "NOERROR aa\n ns z.test. SOA"),
        ("c.z.test. RRSIG", "NXDOMAIN aa\n ns z.test. SOA"),
    ]);
}
