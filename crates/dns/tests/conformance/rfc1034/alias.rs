//! RFC 1034 §3.6.2 and §4.3.2 step 3a: CNAME and the chains it makes.

use crate::conformance::stage::{Stage, lines, zone};

#[test]
fn trap_28_a_chain_that_leaves_the_zone_is_authoritative_by_its_first_name() {
    let stage = Stage::with("z.test.", "a CNAME b\n b CNAME www.elsewhere.");
    stage.check("a.z.test. A", "NOERROR aa\n an a.z.test. CNAME b.z.test.\n an b.z.test. CNAME www.elsewhere.");
}

/// A target in another zone of this server is left to the resolver, too.
#[test]
fn chains_end_at_the_zone() {
    let stage = Stage::new([zone("z.test.", "a CNAME b.y.test."), zone("y.test.", "b A 192.0.2.1")]);
    stage.check("a.z.test. A", "NOERROR aa\n an a.z.test. CNAME b.y.test.");
}

#[test]
fn trap_38_the_last_name_of_a_chain_decides_the_rcode() {
    let stage = Stage::with("z.test.", "a CNAME b\n b CNAME nowhere\n c CNAME txt\n txt TXT t");
    stage.check_all(&[
        (
            "a.z.test. A",
            "NXDOMAIN aa\n an a.z.test. CNAME b.z.test.\n an b.z.test. CNAME nowhere.z.test.\n ns z.test. SOA",
        ),
        ("c.z.test. A", "NOERROR aa\n an c.z.test. CNAME txt.z.test.\n ns z.test. SOA"),
        ("c.z.test. TXT", "NOERROR aa\n an c.z.test. CNAME txt.z.test.\n an txt.z.test. TXT t"),
    ]);
}

#[test]
fn the_alias_itself_can_be_asked_for() {
    let stage = Stage::with("z.test.", "a CNAME b\n b A 192.0.2.1");
    stage.check("a.z.test. CNAME", "NOERROR aa\n an a.z.test. CNAME b.z.test.");
}

/// TRAPS §8: loops end, with the partial chain.
#[test]
fn trap_8_loops_end_with_the_partial_chain() {
    let stage = Stage::with("z.test.", "a CNAME b\n b CNAME c\n c CNAME A\n self CNAME self");
    stage.check_all(&[
        (
            "a.z.test. A",
            "NOERROR aa\n an a.z.test. CNAME b.z.test.\n an b.z.test. CNAME c.z.test.\n an c.z.test. CNAME A.z.test.",
        ),
        ("self.z.test. A", "NOERROR aa\n an self.z.test. CNAME self.z.test."),
    ]);
}

#[test]
fn long_chains_are_cut() {
    let text: String = (0..100).map(|index| format!("n{index} CNAME n{}\n", index + 1)).collect();
    let stage = Stage::with("z.test.", &text);
    assert_eq!(lines(&stage.ask("n0.z.test. A")).len(), 1 + 8);
    stage.check("n100.z.test. A", "NXDOMAIN aa\n ns z.test. SOA");
}

/// A target at the apex is written as a bare pointer, and its records must still have a good owner.
#[test]
fn an_alias_to_the_apex() {
    let stage = Stage::with("z.test.", "@ A 192.0.2.1\n a CNAME @");
    stage.check("a.z.test. A", "NOERROR aa\n an a.z.test. CNAME z.test.\n an z.test. A 192.0.2.1");
}

/// An alias to a delegated name ends with the delegation.
#[test]
fn an_alias_below_a_cut() {
    let stage = Stage::with("z.test.", "a CNAME www.sub\n sub NS ns.sub\n ns.sub A 192.0.2.1");
    stage.check(
        "a.z.test. A",
        "NOERROR aa\n an a.z.test. CNAME www.sub.z.test.\n ns sub.z.test. NS ns.sub.z.test.\n ar ns.sub.z.test. A 192.0.2.1",
    );
}

/// Records that the CNAME RRset excludes are not served with it by accident.
#[test]
fn an_alias_through_a_wildcard() {
    let stage = Stage::with("z.test.", "*.w CNAME x.v\n *.v A 192.0.2.1\n *.v A 192.0.2.2");
    stage.check(
        "q.w.z.test. A",
        "NOERROR aa\n an q.w.z.test. CNAME x.v.z.test.\n an x.v.z.test. A 192.0.2.1\n an x.v.z.test. A 192.0.2.2",
    );
}

/// Owners whose first use is beyond the reach of pointers (RFC 1035 §4.1.4) are written out.
#[test]
fn a_chain_behind_a_large_rrset() {
    use signpost_dns::nameserver::Transport;
    let mut text = String::from("a DNAME b\n x.b CNAME c.x.b\n c.x.b CNAME d\n d MX 10 m\n m A 192.0.2.1\n");
    for index in 0..70 {
        text.push_str(&format!("a MX {index} {}.m{index}\n", "x".repeat(60)));
    }
    let mut stage = Stage::with("z.test.", &text);
    stage.peer.transport = Transport::Tcp;
    stage.check(
        "x.a.z.test. A",
        "NOERROR aa
         an a.z.test. DNAME b.z.test.
         an x.a.z.test. CNAME x.b.z.test.
         an x.b.z.test. CNAME c.x.b.z.test.
         an c.x.b.z.test. CNAME d.z.test.
         ns z.test. SOA",
    );
}
