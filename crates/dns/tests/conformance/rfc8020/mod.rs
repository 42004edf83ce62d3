//! RFC 8020: NXDOMAIN means that there is nothing at the name nor below it, so it must be true of both.

use crate::conformance::stage::{Stage, lines};

/// No name of the zone, nor one that a wildcard makes, is below a name that does not exist according to the server.
#[test]
fn no_name_lies_below_one_that_does_not_exist() {
    let owners = ["a.b.c", "x.c", "*.w", "y.*.w", "n.sub.d", "_acme.app", "deep.er.still.e"];
    let text: String = owners.iter().map(|owner| format!("{owner} TXT t\n")).collect();
    let stage = Stage::with("z.test.", &text);
    for owner in owners {
        let mut name = format!("{owner}.z.test.");
        while name != "z.test." {
            for qtype in ["A", "AAAA", "TXT", "NS", "DS", "ANY", "TYPE65280"] {
                let head = lines(&stage.ask(&format!("{name} {qtype}")))[0].clone();
                assert_eq!(head, "NOERROR aa", "{name} {qtype}, with {owner} at or below it");
            }
            name = name.split_once('.').expect("not the root").1.to_owned();
        }
    }
    // And where nothing is, nothing is below either.
    for name in ["q.z.test.", "r.q.z.test.", "s.r.q.z.test.", "q.a.b.c.z.test.", "q.c.z.test."] {
        stage.check(&format!("{name} A"), "NXDOMAIN aa\n ns z.test. SOA");
    }
}

/// The same after an alias: the code is the target's (RFC 6604 §3), and the alias itself exists.
#[test]
fn after_an_alias_it_is_the_targets() {
    let stage = Stage::with("z.test.", "a CNAME nowhere\n x.a TXT t");
    stage.check("a.z.test. TXT", "NXDOMAIN aa\n an a.z.test. CNAME nowhere.z.test.\n ns z.test. SOA");
    stage.check("x.a.z.test. TXT", "NOERROR aa\n an x.a.z.test. TXT t");
}
