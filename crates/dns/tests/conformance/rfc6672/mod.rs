//! RFC 6672: DNAME.

use crate::conformance::stage::{Stage, lines, records};

#[test]
fn trap_8_the_dname_stands_before_the_cname_made_from_it() {
    let stage = Stage::with("z.test.", "d 77 DNAME t\n x.t A 192.0.2.1\n d TXT own");
    stage.check_all(&[
        (
            "x.d.z.test. A",
            "NOERROR aa\n an d.z.test. DNAME t.z.test.\n an x.d.z.test. CNAME x.t.z.test.\n an x.t.z.test. A 192.0.2.1",
        ),
        (
            "y.d.z.test. A",
            "NXDOMAIN aa\n an d.z.test. DNAME t.z.test.\n an y.d.z.test. CNAME y.t.z.test.\n ns z.test. SOA",
        ),
        // §2.3: the owner itself is not redirected.
        ("d.z.test. TXT", "NOERROR aa\n an d.z.test. TXT own"),
        ("d.z.test. DNAME", "NOERROR aa\n an d.z.test. DNAME t.z.test."),
        ("d.z.test. A", "NOERROR aa\n ns z.test. SOA"),
    ]);
    // §3.1: the CNAME has the DNAME's TTL; the labels in front are as the client wrote them, and so is the apex, to which the
    // target's pointer leads.
    let answer = records(&stage.ask("X.d.Z.test. A noedns"));
    assert_eq!((answer[1].ttl, &answer[1].rdata[..]), (77, "X.t.Z.test."));
}

#[test]
fn out_of_the_zone() {
    let stage = Stage::with("z.test.", "d DNAME elsewhere.");
    stage
        .check("a.b.d.z.test. A", "NOERROR aa\n an d.z.test. DNAME elsewhere.\n an a.b.d.z.test. CNAME a.b.elsewhere.");
}

#[test]
fn at_the_apex() {
    let stage = Stage::with("z.test.", "@ DNAME y.test.\n hidden A 192.0.2.1");
    stage.check_all(&[
        ("a.z.test. A", "NOERROR aa\n an z.test. DNAME y.test.\n an a.z.test. CNAME a.y.test."),
        // Names below a DNAME do not exist.
        ("hidden.z.test. A", "NOERROR aa\n an z.test. DNAME y.test.\n an hidden.z.test. CNAME hidden.y.test."),
        ("z.test. NS", "NOERROR aa\n an z.test. NS ns.elsewhere."),
    ]);
}

#[test]
fn a_name_that_becomes_too_long() {
    let label = "x".repeat(63);
    let stage = Stage::with("z.test.", &format!("d DNAME {label}.{label}.{label}.elsewhere."));
    let long = format!("{}d.z.test.", "a.".repeat(60));
    let answer = lines(&stage.ask(&format!("{long} A")));
    assert_eq!(answer[0], "YXDOMAIN aa");
    assert_eq!(answer.len(), 2, "the DNAME explains it: {answer:?}");
}

/// RFC 4035 §3.1.3.3: what came from a wildcard on the way is proved here, too.
#[test]
fn a_name_that_becomes_too_long_after_a_wildcard() {
    let label = "x".repeat(63);
    let stage = Stage::with(
        "z.test.",
        &format!(
            "@ NSEC d\n @ RRSIG NSEC\n d DNAME {label}.{label}.{label}.elsewhere.\n d RRSIG DNAME\n d NSEC *.w\n d RRSIG NSEC
             *.w CNAME {label}.d\n *.w RRSIG CNAME\n *.w NSEC @\n *.w RRSIG NSEC"
        ),
    );
    let answer = lines(&stage.ask("a.w.z.test. A do"));
    assert_eq!(answer[0], "YXDOMAIN aa");
    assert_eq!(answer[answer.len() - 2..], ["ns *.w.z.test. NSEC z.test.", "ns *.w.z.test. RRSIG NSEC"], "{answer:?}");
}

#[test]
fn loops_end() {
    let stage = Stage::with("z.test.", "d DNAME d.d\n e DNAME f\n f DNAME e");
    let answer = lines(&stage.ask("a.d.z.test. A"));
    assert_eq!(answer.iter().filter(|line| line.contains("DNAME")).count(), 1, "a record stands once: {answer:?}");
    assert!(answer.len() <= 10);
    stage.check(
        "a.e.z.test. A",
        "NOERROR aa
         an e.z.test. DNAME f.z.test.
         an a.e.z.test. CNAME a.f.z.test.
         an f.z.test. DNAME e.z.test.
         an a.f.z.test. CNAME a.e.z.test.",
    );
}

/// A query for the CNAME has it, as from Knot and NSD.
#[test]
fn the_synthesised_cname_can_be_asked_for() {
    let stage = Stage::with("z.test.", "d DNAME t");
    let answer = "NOERROR aa\n an d.z.test. DNAME t.z.test.\n an x.d.z.test. CNAME x.t.z.test.";
    stage.check("x.d.z.test. CNAME", answer);
    stage.check("x.d.z.test. ANY", answer);
}

/// RFC 6672 §3.2: a DNAME reached through an alias.
#[test]
fn after_an_alias() {
    let stage = Stage::with("z.test.", "a CNAME x.d\n d DNAME t\n x.t A 192.0.2.1");
    stage.check(
        "a.z.test. A",
        "NOERROR aa
         an a.z.test. CNAME x.d.z.test.
         an d.z.test. DNAME t.z.test.
         an x.d.z.test. CNAME x.t.z.test.
         an x.t.z.test. A 192.0.2.1",
    );
}

#[test]
fn a_cut_above_wins() {
    let stage = Stage::with("z.test.", "sub NS ns.elsewhere.\n d.sub DNAME t");
    stage.check("x.d.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.elsewhere.");
}

/// RFC 1035 §4.1.4: the target that a DNAME makes ends with a pointer where it is in the zone, and is whole where it is not.
#[test]
fn what_a_dname_makes_is_compressed() {
    let stage =
        Stage::with("z.test.", "d DNAME t\n e DNAME t.elsewhere.\n f DNAME @\n q A 192.0.2.1\n q.t A 192.0.2.2");
    // Header and question of `q.?.z.test.`, the OPT record; a record's head with an owner that is a pointer.
    let (fixed, head) = (12 + 12 + 4 + 11, 2 + 10);
    let dname = |target: usize| head + target;
    let a = head + 4;
    for (question, octets, expected) in [
        (
            "q.d.z.test. A",
            fixed + dname(10) + head + (2 + 2 + 2) + a,
            "NOERROR aa
             an d.z.test. DNAME t.z.test.
             an q.d.z.test. CNAME q.t.z.test.
             an q.t.z.test. A 192.0.2.2",
        ),
        (
            "q.e.z.test. A",
            fixed + dname(13) + head + 15,
            "NOERROR aa\n an e.z.test. DNAME t.elsewhere.\n an q.e.z.test. CNAME q.t.elsewhere.",
        ),
        (
            "q.f.z.test. A",
            fixed + dname(8) + head + (2 + 2) + a,
            "NOERROR aa
             an f.z.test. DNAME z.test.
             an q.f.z.test. CNAME q.z.test.
             an q.z.test. A 192.0.2.1",
        ),
    ] {
        stage.check(question, expected);
        assert_eq!(stage.ask(question).len(), octets, "{question}");
    }
}
