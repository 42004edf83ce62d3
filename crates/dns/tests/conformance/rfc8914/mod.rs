//! RFC 8914: extended errors, and the answers of a server that is not ready.

use signpost_dns::zone::Zone;
use signpost_dns::zone::db::ZoneDb;
use signpost_dns::zone::image::Unavailable;

use crate::conformance::stage::{Stage, lines, opt, zone};

fn extended_error(response: &[u8]) -> Option<u16> {
    let (_, _, options) = opt(response)?;
    let (_, data) = options.iter().find(|(code, _)| *code == 15)?;
    Some(u16::from_be_bytes([data[0], data[1]]))
}

#[test]
fn trap_52_errors_are_explained() {
    let name = |text: &str| text.parse().expect("a name");
    let stage = Stage::new([
        zone("z.test.", "* A 192.0.2.1"),
        Zone::unavailable(name("broken.test."), Unavailable::NotLoaded),
        Zone::unavailable(name("old.test."), Unavailable::Expired),
    ]);
    for (question, rcode, code) in [
        ("a.example. A", "REFUSED", Some(20)),
        ("z.test. AXFR", "REFUSED", Some(18)),
        ("z.test. NXNAME", "FORMERR", Some(30)),
        ("a.broken.test. A", "SERVFAIL", Some(14)),
        ("broken.test. SOA", "SERVFAIL", Some(14)),
        ("a.old.test. A", "SERVFAIL", Some(24)),
        ("a.z.test. A", "NOERROR aa", None),
        ("a.z.test. TXT", "NOERROR aa", None),
    ] {
        let response = stage.ask(question);
        assert_eq!((&lines(&response)[0][..], extended_error(&response)), (rcode, code), "{question}");
    }
}

/// DESIGN §7: before the first full sync no answer denies a name.
#[test]
fn before_it_is_ready_every_question_is_servfail() {
    let mut stage = Stage::with("z.test.", "a A 192.0.2.1");
    stage.db = ZoneDb::new();
    stage.db.publish(zone("z.test.", "a A 192.0.2.1"));
    for question in ["a.z.test. A", "b.z.test. A", "a.example. A"] {
        let response = stage.ask(question);
        assert_eq!((&lines(&response)[0][..], extended_error(&response)), ("SERVFAIL", Some(14)), "{question}");
    }
    stage.db.set_ready();
    stage.check("b.z.test. A", "NXDOMAIN aa\n ns z.test. SOA");
}

/// Zones that are there answer while others are yet to come; a name in none of them may be in one of those.
#[test]
fn zones_that_are_there_answer_before_all_are() {
    let mut stage = Stage::new([]);
    stage.db = ZoneDb::new();
    let platform = "v3.z.test.".parse().expect("a name");
    stage.db.publish_many([zone("z.test.", "a A 192.0.2.1"), Zone::unavailable(platform, Unavailable::NotLoaded)]);
    stage.db.open();
    stage.check("b.z.test. A", "NXDOMAIN aa\n ns z.test. SOA");
    for question in ["v3.z.test. A", "a.v3.z.test. A", "a.b.v3.z.test. A", "example. A", ". NS"] {
        let response = stage.ask(question);
        assert_eq!((&lines(&response)[0][..], extended_error(&response)), ("SERVFAIL", Some(14)), "{question}");
    }
    stage.db.publish(zone("v3.z.test.", "a A 192.0.2.2"));
    stage.db.set_ready();
    stage.check("a.v3.z.test. A", "NOERROR aa\n an a.v3.z.test. A 192.0.2.2");
    stage.check("example. A", "REFUSED");
}
