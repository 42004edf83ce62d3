//! A name that the wildcard at the top of a shard's zone has answered, as a record of fixed size that a query thread passes to
//! other threads.
//!
//! The record has only the label next to the zone's apex, and whether there are more: a Route would have that label, and
//! `*.label` summarizes a thousand random names below it.

use crate::wire::Class;
use crate::wire::header::Opcode;
use crate::wire::message::Query;
use crate::wire::name::LABEL_OCTETS_MAX;
use crate::zone::db::Snapshot;
use crate::zone::lookup::{NameMatch, place};
use crate::zone::qname::{NameHash, Qname};

/// A name answered by a wildcard.
#[derive(Debug, Clone, Copy)]
pub struct WildcardHit {
    /// The hash of the zone's apex.
    pub zone: NameHash,
    /// The number of requests that the hit represents.
    pub weight: u32,
    /// Whether the name had more labels to the left of this one.
    pub is_below: bool,
    label_length: u8,
    label: [u8; LABEL_OCTETS_MAX],
}

impl WildcardHit {
    /// Returns the hit of an answered query; `None` unless the wildcard at the top of a shard's zone answered it. It parses and
    /// looks up the query again, which costs time only for sampled queries.
    pub fn of(query: &[u8], weight: u32, snapshot: &Snapshot) -> Option<WildcardHit> {
        let read = Query::read(query)?;
        let question = read.question.filter(|question| question.qclass == Class::IN)?;
        if read.header.opcode() != Opcode::QUERY || read.fault.is_some() || read.tsig.is_some() {
            return None;
        }
        let qname = Qname::of(question.name(query));
        let zone = snapshot.enclosing(&qname, 0).filter(|zone| zone.is_shard())?;
        let above = qname.labels() - zone.apex_labels();
        match place(zone, &qname)? {
            NameMatch::Found(found) if found.synthesised > 0 && found.synthesised == above => {}
            _ => return None,
        }
        let start = qname.start(above - 1);
        let octets = &qname.octets()[start + 1..qname.start(above)];
        let mut label = [0; LABEL_OCTETS_MAX];
        label[..octets.len()].copy_from_slice(octets);
        let label_length = octets.len() as u8;
        Some(WildcardHit { zone: zone.apex_hash(), weight, is_below: above > 1, label_length, label })
    }

    /// Returns the label next to the apex, in lower case.
    pub fn label(&self) -> &[u8] {
        &self.label[..usize::from(self.label_length)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Name, RecordType};
    use crate::zone::{Contents, Ttl, Zone, ZoneDb};

    fn zone(apex: &str, owners: &[(&str, RecordType)]) -> Zone {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let mut contents = Contents::new(name(apex));
        let soa = [name(apex).as_wire(), name(apex).as_wire(), &[0; 20]].concat();
        contents.add(name(apex), RecordType::SOA, Ttl::from_wire(5), soa.into()).expect("is in the zone");
        for (owner, rtype) in owners {
            let rdata: Box<[u8]> = match *rtype {
                RecordType::A => Box::from([192, 0, 2, 1]),
                _ => name("elsewhere.example.").as_wire().into(),
            };
            contents.add(name(&format!("{owner}.{apex}")), *rtype, Ttl::from_wire(5), rdata).expect("is in the zone");
        }
        Zone::build(contents).expect("a zone")
    }

    fn query(name: &str) -> Vec<u8> {
        let name = name.parse::<Name>().expect("a name");
        [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name.as_wire(), b"\0\x01\0\x01"].concat()
    }

    #[test]
    fn only_the_top_wildcard_of_a_shards_zone_is_seen() {
        let db = ZoneDb::new();
        let shard = [("*", RecordType::A), ("moved", RecordType::CNAME), ("*.moved", RecordType::CNAME)];
        let followed = zone("shard.example.", &shard);
        followed.set_shard();
        db.publish(followed);
        db.publish(zone("static.example.", &[("*", RecordType::A)]));
        db.set_ready();
        let snapshot = db.snapshot();
        for (name, seen) in [
            ("Foo.Shard.example.", Some(("foo", false))),
            ("a.b.foo.shard.example.", Some(("foo", true))),
            ("*.shard.example.", None),
            ("shard.example.", None),
            ("moved.shard.example.", None),
            ("www.moved.shard.example.", None),
            ("foo.static.example.", None),
            ("foo.test.", None),
        ] {
            let hit = WildcardHit::of(&query(name), 4, &snapshot);
            let found = hit.map(|one| (String::from_utf8_lossy(one.label()).into_owned(), one.is_below, one.weight));
            assert_eq!(found, seen.map(|(label, is_below)| (label.to_owned(), is_below, 4)), "{name}");
            assert!(hit.is_none_or(|one| snapshot.by_hash(one.zone).is_some()));
        }
        let mut chaos = query("foo.shard.example.");
        *chaos.last_mut().expect("it is not empty") = 3;
        assert!(WildcardHit::of(&chaos, 1, &snapshot).is_none());
        assert!(WildcardHit::of(b"short", 1, &snapshot).is_none());
    }
}
