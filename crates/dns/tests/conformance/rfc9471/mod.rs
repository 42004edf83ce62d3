//! RFC 9471: glue in referrals.

use signpost_dns::nameserver::Transport;

use crate::conformance::stage::{Stage, lines};

#[test]
fn trap_35_glue_of_the_delegated_domain_and_of_its_siblings() {
    let stage = Stage::with(
        "z.test.",
        "sub       NS ns.sub
         sub       NS ns.sibling
         sub       NS ns.elsewhere.
         sub       NS own
         sub       NS sub
         sub       A 192.0.2.5
         ns.sub    A 192.0.2.1
         ns.sub    AAAA 2001:db8::1
         ns.sub    TXT not-glue
         sibling   NS ns.sibling
         ns.sibling A 192.0.2.2
         own       A 192.0.2.3
         other.sub A 192.0.2.4",
    );
    stage.check(
        "www.sub.z.test. A",
        "NOERROR
         ns sub.z.test. NS ns.sub.z.test.
         ns sub.z.test. NS ns.sibling.z.test.
         ns sub.z.test. NS ns.elsewhere.
         ns sub.z.test. NS own.z.test.
         ns sub.z.test. NS sub.z.test.
         ar ns.sub.z.test. A 192.0.2.1
         ar ns.sub.z.test. AAAA 2001:db8::1
         ar sub.z.test. A 192.0.2.5
         ar ns.sibling.z.test. A 192.0.2.2
         ar own.z.test. A 192.0.2.3",
    );
    // Glue is not an answer.
    let referral = lines(&stage.ask("www.sub.z.test. A"));
    assert_eq!(lines(&stage.ask("ns.sub.z.test. A")), referral);
}

fn many(domain: &str) -> Stage {
    let label = "n".repeat(20);
    let text: String = (0..10)
        .map(|index| format!("sub NS {label}{index}{domain}\n {label}{index}{domain} AAAA 2001:db8::{index}\n"))
        .collect();
    Stage::with("z.test.", &text)
}

/// RFC 9471 §3.1: "all glue for in-domain name servers", or TC.
#[test]
fn trap_8_in_domain_glue_that_does_not_fit_sets_tc() {
    let mut stage = many(".sub");
    let cut = lines(&stage.ask("a.sub.z.test. A noedns"));
    assert_eq!(cut[0], "NOERROR tc");
    assert_eq!(lines(&stage.ask("a.sub.z.test. A"))[0], "NOERROR");
    stage.peer.transport = Transport::Tcp;
    assert_eq!(lines(&stage.ask("a.sub.z.test. A noedns")).len(), 21);
}

/// §3.2: sibling glue and addresses of the zone itself are as much as there is room for.
#[test]
fn other_addresses_do_not_set_tc() {
    let stage = many("");
    let cut = lines(&stage.ask("a.sub.z.test. A noedns"));
    assert_eq!(cut[0], "NOERROR");
    assert!(cut.len() < 21);
    assert_eq!(lines(&stage.ask("a.sub.z.test. A")).len(), 21);
}

/// Name servers that do not fit make no referral.
#[test]
fn name_servers_that_do_not_fit_set_tc() {
    let text: String = (0..40).map(|index| format!("sub NS {}{index}.elsewhere.\n", "n".repeat(20))).collect();
    Stage::with("z.test.", &text).check("a.sub.z.test. A noedns", "NOERROR tc");
}

/// A name server's own name may be one that a wildcard of this zone covers; Knot and NSD return its addresses, too.
#[test]
fn addresses_from_a_wildcard() {
    let stage = Stage::with("z.test.", "sub NS ns.w\n *.w A 192.0.2.1");
    stage.check("a.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.w.z.test.\n ar ns.w.z.test. A 192.0.2.1");
}

/// Beyond the reach of a pointer (RFC 1035 §4.1.4: 14 bits) glue has its owner written out.
#[test]
fn glue_out_of_reach_of_pointers() {
    let label = "n".repeat(40);
    let text: String =
        (0..400).map(|index| format!("sub NS {label}{index}.sub\n {label}{index}.sub A 192.0.2.1\n")).collect();
    let mut stage = Stage::with("z.test.", &text);
    stage.peer.transport = Transport::Tcp;
    let response = stage.ask("a.sub.z.test. A");
    assert!(response.len() > 0x4000);
    let found = lines(&response);
    assert_eq!(found.len(), 801);
    for index in 0..400 {
        assert_eq!(found[401 + index], format!("ar {label}{index}.sub.z.test. A 192.0.2.1"));
    }
}
