//! Publishing: what readers see of it, and when old versions go.

use std::sync::Arc;

use signpost_dns::zone::db::ZoneDb;
use signpost_dns::zone::{Zone, builder::OwnerChange};

use crate::conformance::stage::{Stage, contents, zone};

#[test]
fn zones_come_change_and_go() {
    let stage = Stage::new([]);
    let apex = "z.test.".parse().expect("a name");
    stage.check("a.z.test. A", "REFUSED");
    stage.db.publish(zone("z.test.", "a A 192.0.2.1"));
    stage.check("a.z.test. A", "NOERROR aa\n an a.z.test. A 192.0.2.1");
    stage.db.publish(zone("Z.test.", "a A 192.0.2.2"));
    stage.check("a.z.test. A", "NOERROR aa\n an a.z.test. A 192.0.2.2");
    assert_eq!(stage.db.zone_count(), 1);
    for _ in 0..2 {
        stage.db.remove(&apex);
        assert_eq!(stage.db.zone_count(), 0);
    }
    stage.check("a.z.test. A", "REFUSED");
}

#[test]
fn thousands_of_zones() {
    let db = ZoneDb::new();
    let name = |index: u32| format!("shard{index}.{}test.", "x.".repeat(index as usize % 5));
    db.publish_many((0..5000).map(|index| zone(&name(index), "* A 192.0.2.1")));
    assert_eq!(db.zone_count(), 5000);
    for index in 0..5000 {
        assert!(db.get(&name(index).parse().expect("a name")).is_some());
    }
    db.apply((0..5000).filter(|index| index % 3 > 0).map(|index| (name(index).parse().expect("a name"), None)));
    assert_eq!(db.zone_count(), 1667);
    let left = db.zones();
    assert_eq!(left.len(), 1667);
    assert!(left.is_sorted_by(|a, b| a.apex() < b.apex()));
    for index in 0..5000 {
        assert_eq!(db.get(&name(index).parse().expect("a name")).is_some(), index % 3 == 0);
    }
}

#[test]
fn of_several_changes_of_one_apex_the_last_counts() {
    let db = ZoneDb::new();
    let change = |zone| ("z.test.".parse().expect("a name"), zone);
    let version = |text| change(Some(Arc::new(zone("z.test.", text))));
    db.apply([version("a A 192.0.2.1"), change(None), version("a A 192.0.2.2")]);
    assert_eq!(db.zones()[0].contents().record_count(), 3);
}

/// Query threads never free a version: the publisher keeps it until no reader has it any more.
#[test]
fn old_versions_go_when_no_reader_holds_them() {
    let db = ZoneDb::new();
    let first = Arc::new(zone("z.test.", "a A 192.0.2.1"));
    let old = Arc::downgrade(&first);
    db.publish(first);
    let mut reader = db.reader();
    assert_eq!(reader.snapshot().zone_count(), 1);
    db.publish(zone("z.test.", "a A 192.0.2.2"));
    assert!(old.upgrade().is_some(), "the reader has not looked yet");
    assert_eq!(db.reclaim(), 1);
    assert_eq!(reader.snapshot().zone_count(), 1);
    assert!(old.upgrade().is_some(), "looking frees nothing");
    assert_eq!(db.reclaim(), 0);
    assert!(old.upgrade().is_none());
}

/// Changing some owners gives the zone that compiling all of it would.
#[test]
fn changes_by_owner() {
    let before =
        zone("z.test.", "a A 192.0.2.1\n x.b A 192.0.2.2\n * A 192.0.2.3\n sub NS ns.sub\n ns.sub A 192.0.2.4");
    let change = |owner: &str, lines: &str| {
        let owner = format!("{owner}.z.test.").parse().expect("a name");
        let rrsets = contents("z.test.", lines).owner(&owner).to_vec();
        OwnerChange { owner, rrsets, weights: vec![] }
    };
    let changes = [
        change("a", ""),
        change("x.b", ""),
        change("d.e.f", "d.e.f TXT new"),
        change("*.e.f", "*.e.f TXT wild"),
        change("g.sub", "g.sub A 192.0.2.5"),
        change("nowhere", ""),
    ];
    let stage = Stage::new([before.with_changes(&changes).expect("a zone")]);
    stage.check_all(&[
        ("a.z.test. A", "NOERROR aa\n an a.z.test. A 192.0.2.3"),
        ("b.z.test. A", "NOERROR aa\n an b.z.test. A 192.0.2.3"),
        ("f.z.test. A", "NOERROR aa\n ns z.test. SOA"),
        ("q.e.f.z.test. TXT", "NOERROR aa\n an q.e.f.z.test. TXT wild"),
        ("q.f.z.test. A", "NXDOMAIN aa\n ns z.test. SOA"),
        ("g.sub.z.test. A", "NOERROR\n ns sub.z.test. NS ns.sub.z.test.\n ar ns.sub.z.test. A 192.0.2.4"),
    ]);
    // A cut that goes uncovers what is below it.
    let uncovered = before.with_changes(&[change("sub", "")]).expect("a zone");
    Stage::new([uncovered]).check("ns.sub.z.test. A", "NOERROR aa\n an ns.sub.z.test. A 192.0.2.4");
    let outside = OwnerChange { owner: "y.test.".parse().expect("a name"), rrsets: vec![], weights: vec![] };
    assert!(before.with_changes(&[outside]).is_err());
}

/// A zone that cannot be served is refused by name.
#[test]
fn zones_without_soa() {
    for text in ["@ NS ns", "a A 192.0.2.1", "@ SOA ns admin\n @ SOA ns2 admin", r"@ SOA \# 3 000000", ""] {
        let error = Zone::build(contents("z.test.", text)).err().map(|error| error.to_string());
        assert_eq!(
            error.as_deref(),
            Some("z.test.: the apex must have exactly one SOA record, with two names and five numbers"),
            "{text}"
        );
    }
}
