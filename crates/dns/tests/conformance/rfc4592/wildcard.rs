//! RFC 4592 §2 to §4: what a wildcard covers, and what not.

use crate::conformance::stage::{Stage, lines, query};

/// The zone of RFC 4592 §2.2.1.
fn example() -> Stage {
    Stage::with(
        "example.",
        "*                 TXT this-is-a-wildcard
         *                 MX 10 host1
         sub.*             TXT this-is-not-a-wildcard
         host1             A 192.0.2.1
         _ssh._tcp.host1   SRV 0 0 22 host1
         _ssh._tcp.host2   SRV 0 0 22 host1
         subdel            NS ns.elsewhere.",
    )
}

/// RFC 4592 §2.2.1, its whole list of questions.
#[test]
fn the_example_of_section_2_2_1() {
    example().check_all(&[
        ("host3.example. MX", "NOERROR aa\n an host3.example. MX 10 host1.example.\n ar host1.example. A 192.0.2.1"),
        ("host3.example. A", "NOERROR aa\n ns example. SOA"),
        ("foo.bar.example. TXT", "NOERROR aa\n an foo.bar.example. TXT this-is-a-wildcard"),
        ("host1.example. MX", "NOERROR aa\n ns example. SOA"),
        ("sub.*.example. MX", "NOERROR aa\n ns example. SOA"),
        ("_telnet._tcp.host1.example. SRV", "NXDOMAIN aa\n ns example. SOA"),
        ("host.subdel.example. A", "NOERROR\n ns subdel.example. NS ns.elsewhere."),
        ("ghost.*.example. MX", "NXDOMAIN aa\n ns example. SOA"),
    ]);
}

#[test]
fn trap_01_a_name_that_exists_without_the_type_is_no_data() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1\n* TXT any\n txtonly TXT here");
    stage.check("txtonly.z.test. A", "NOERROR aa\n ns z.test. SOA");
}

#[test]
fn trap_03_only_the_wildcard_at_the_closest_encloser_counts() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1\n a.b A 192.0.2.2\n *.deep A 192.0.2.3\n x.y.deep TXT here");
    stage.check_all(&[
        ("c.b.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("x.a.b.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("c.deep.z.test. A", "NOERROR aa\n an c.deep.z.test. A 192.0.2.3"),
        ("c.y.deep.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
    ]);
}

#[test]
fn trap_04_a_wildcard_without_the_type_is_no_data() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1");
    for qtype in ["AAAA", "HTTPS", "TXT", "CAA", "TYPE65400", "DS"] {
        stage.check(&format!("foo.z.test. {qtype}"), "NOERROR aa\n ns z.test. SOA");
    }
}

#[test]
fn trap_05_an_asterisk_asked_for_is_a_name_like_any() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1");
    stage.check_all(&[
        ("*.z.test. A", "NOERROR aa\n an *.z.test. A 192.0.2.1"),
        ("*.z.test. AAAA", "NOERROR aa\n ns z.test. SOA"),
        // RFC 4592 §2.2.2: below it, it is the closest encloser, and has no wildcard of its own.
        ("foo.*.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
    ]);
}

#[test]
fn trap_06_a_name_below_an_asterisk_makes_it_an_empty_non_terminal() {
    let stage = Stage::with("z.test.", "sub.* TXT here");
    stage.check_all(&[
        ("*.z.test. TXT", "NOERROR aa\n ns z.test. SOA"),
        ("foo.z.test. TXT", "NOERROR aa\n ns z.test. SOA"),
        ("sub.foo.z.test. TXT", "NOERROR aa\n ns z.test. SOA"),
        ("sub.*.z.test. TXT", "NOERROR aa\n an sub.*.z.test. TXT here"),
    ]);
}

#[test]
fn trap_07_an_asterisk_counts_only_as_a_whole_leftmost_label() {
    let stage = Stage::with("z.test.", "a* A 192.0.2.1\n *b A 192.0.2.2\n foo.*.c A 192.0.2.3\n ** A 192.0.2.4");
    stage.check_all(&[
        ("ax.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("xb.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("x.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("foo.x.c.z.test. A", "NOERROR aa\n ns z.test. SOA"),
        ("foo.*.c.z.test. A", "NOERROR aa\n an foo.*.c.z.test. A 192.0.2.3"),
        ("a*.z.test. A", "NOERROR aa\n an a*.z.test. A 192.0.2.1"),
    ]);
}

#[test]
fn trap_08_an_escaped_asterisk_is_the_same_label() {
    let stage = Stage::with("z.test.", r"\* A 192.0.2.1");
    stage.check("foo.z.test. A", "NOERROR aa\n an foo.z.test. A 192.0.2.1");
}

#[test]
fn trap_09_names_of_many_labels_match() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1");
    stage.check("a.b.c.z.test. A", "NOERROR aa\n an a.b.c.z.test. A 192.0.2.1");
    // As long as a name can be.
    let long = format!("{}z.test.", "a.".repeat(123));
    stage.check(&format!("{long} A"), &format!("NOERROR aa\n an {long} A 192.0.2.1"));
}

#[test]
fn trap_10_an_alias_at_a_wildcard_is_followed_and_its_loop_ends() {
    let stage = Stage::with("z.test.", "* CNAME www\n www A 192.0.2.1");
    stage.check("foo.z.test. A", "NOERROR aa\n an foo.z.test. CNAME www.z.test.\n an www.z.test. A 192.0.2.1");
    let stage = Stage::with("z.test.", "* CNAME loop");
    stage.check("foo.z.test. A", "NOERROR aa\n an foo.z.test. CNAME loop.z.test.\n an loop.z.test. CNAME loop.z.test.");
    stage.check("foo.z.test. CNAME", "NOERROR aa\n an foo.z.test. CNAME loop.z.test.");
}

#[test]
fn trap_11_ns_and_dname_at_a_wildcard_neither_delegate_nor_redirect() {
    let stage = Stage::with("z.test.", "* NS ns.elsewhere.\n *.d DNAME elsewhere.\n *.d A 192.0.2.1");
    stage.check_all(&[
        ("foo.z.test. NS", "NOERROR aa\n an foo.z.test. NS ns.elsewhere."),
        ("foo.z.test. A", "NOERROR aa\n ns z.test. SOA"),
        ("*.z.test. A", "NOERROR aa\n ns z.test. SOA"),
        ("foo.d.z.test. DNAME", "NOERROR aa\n an foo.d.z.test. DNAME elsewhere."),
        ("bar.foo.d.z.test. A", "NOERROR aa\n an bar.foo.d.z.test. A 192.0.2.1"),
    ]);
}

#[test]
fn trap_12_a_cut_above_wins() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1\n sub NS ns.elsewhere.");
    stage.check_all(&[
        ("foo.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.elsewhere."),
        ("sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.elsewhere."),
        ("sub.z.test. NS", "NOERROR\n ns sub.z.test. NS ns.elsewhere."),
        ("foo.z.test. A", "NOERROR aa\n an foo.z.test. A 192.0.2.1"),
    ]);
}

#[test]
fn trap_13_a_wildcard_below_a_cut_is_not_used() {
    let stage = Stage::with("z.test.", "sub NS ns.sub\n *.sub A 192.0.2.1\n ns.sub A 192.0.2.2");
    stage.check_all(&[
        ("foo.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.sub.z.test.\n ar ns.sub.z.test. A 192.0.2.2"),
        ("*.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.sub.z.test.\n ar ns.sub.z.test. A 192.0.2.2"),
    ]);
    // Nor does it replace missing glue.
    let stage = Stage::with("z.test.", "sub NS ns.sub\n *.sub A 192.0.2.1");
    stage.check("foo.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.sub.z.test.");
}

#[test]
fn trap_14_the_synthesised_owner_has_the_case_of_the_question() {
    let stage = Stage::with("Z.test.", "* A 192.0.2.1\n* A 192.0.2.2");
    let response = stage.ask("FoO.z.TeSt. A");
    assert_eq!(lines(&response)[1], "an FoO.z.TeSt. A 192.0.2.1");
    let question = query("FoO.z.TeSt. A").len() - 11;
    for record in 0..2 {
        assert_eq!(response[question + 16 * record..][..2], [0xc0, 0x0c]);
    }
}

/// TRAPS §8: a wildcard may match labels with dots, NUL or octet 255 in them.
#[test]
fn trap_8_labels_of_any_octets_match() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1");
    for label in [r"a\.b", r"\000", r"\255\254", r"\032"] {
        let owner = format!("{label}.z.test.");
        stage.check(&format!("{owner} A"), &format!("NOERROR aa\n an {owner} A 192.0.2.1"));
    }
}

/// TRAPS §2: a name that exists blocks the wildcard for all types, and so do the names above it.
#[test]
fn trap_2_an_explicit_name_blocks_the_wildcard_at_and_above_it() {
    let stage = Stage::with("shard1.test.", "* A 192.0.2.1\n _acme-challenge.app TXT token");
    stage.check_all(&[
        ("_acme-challenge.app.shard1.test. A", "NOERROR aa\n ns shard1.test. SOA"),
        ("app.shard1.test. A", "NOERROR aa\n ns shard1.test. SOA"),
        ("other.app.shard1.test. A", "NXDOMAIN aa\n ns shard1.test. SOA"),
        ("other.shard1.test. A", "NOERROR aa\n an other.shard1.test. A 192.0.2.1"),
    ]);
}

/// TRAPS §2: AAAA where only A exists; NXDOMAIN would let a resolver conclude that nothing exists there (RFC 8020).
#[test]
fn trap_2_no_aaaa_is_no_data() {
    let stage = Stage::with("shard1.test.", "* A 192.0.2.1");
    stage.check("app.shard1.test. AAAA", "NOERROR aa\n ns shard1.test. SOA");
}

/// RFC 4592 §4.2 and TRAPS §5: hickory's table of wrong answers, right.
#[test]
fn trap_5_the_table_of_wildcard_answers() {
    let stage = Stage::with("z.test.", "* A 192.0.2.1\n txtonly TXT t\n leaf.ent TXT t\n sub.* TXT t");
    for (name, rcode) in [
        ("foo.z.test. AAAA", "NOERROR aa"),
        ("foo.z.test. HTTPS", "NOERROR aa"),
        ("foo.z.test. TXT", "NOERROR aa"),
        ("txtonly.z.test. A", "NOERROR aa"),
        ("ent.z.test. A", "NOERROR aa"),
        ("leaf.ent.z.test. A", "NOERROR aa"),
        ("foo.ent.z.test. A", "NXDOMAIN aa"),
        ("x.txtonly.z.test. A", "NXDOMAIN aa"),
        ("foo.sub.*.z.test. A", "NXDOMAIN aa"),
    ] {
        stage.check(name, &format!("{rcode}\n ns z.test. SOA"));
    }
}
