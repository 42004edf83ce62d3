//! A compiled zone as octets, for a state on disk: after a restart, it is not compiled again.
//!
//! ```text
//! format u32 · length of the apex u8 · the apex in its original case · nodes, one after another
//! ```
//!
//! Nodes are stored unchanged, except for their hashes, which are seeded for each process and computed again. The code that
//! stores the octets must return them unchanged, as [`super::journal`] does with its checksums.

use super::builder::{self, Nodes};
use super::image::Zone;
use super::node::Node;
use super::node::compile;
use crate::wire::Name;

/// The layout of nodes. Change it whenever [`compile::compile`] writes something different.
const FORMAT: u32 = 2;

/// Returns the zone's octets; `None` for a zone that cannot answer, and for a signed zone, because its proofs are not stored.
pub fn store(zone: &Zone) -> Option<Vec<u8>> {
    if zone.unavailable.is_some() || zone.denial.is_some() {
        return None;
    }
    let apex = zone.apex.as_wire();
    let mut octets = Vec::with_capacity(5 + apex.len() + zone.octets());
    octets.extend_from_slice(&FORMAT.to_le_bytes());
    octets.push(apex.len() as u8);
    octets.extend_from_slice(apex);
    zone.nodes().for_each(|node| octets.extend_from_slice(node.octets()));
    Some(octets)
}

/// Returns the zone from the octets of [`store`]; `None` if they have another format, or are not a zone.
pub fn restore(octets: &[u8]) -> Option<Zone> {
    let (format, rest) = octets.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*format) != FORMAT {
        return None;
    }
    let (length, rest) = rest.split_first()?;
    let (apex, mut rest) = rest.split_at_checked(usize::from(*length))?;
    let apex = Name::from_wire(apex).ok()?;
    let mut nodes = Nodes::default();
    while !rest.is_empty() {
        let length = Node::stored_length(rest)?;
        let (stored, after) = rest.split_at_checked(length)?;
        let mut node = stored.to_vec();
        compile::rehash(&mut node, &apex);
        nodes.push(node);
        rest = after;
    }
    builder::assemble(&apex, nodes, None).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RecordType;
    use crate::zone::qname::Qname;
    use crate::zone::{Contents, Rrset, Ttl};

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    /// A zone with all that a node can have: weights, compressed names, names to look up, capitals, names without records.
    fn contents(hosts: usize) -> Contents {
        let apex = name("Shard1.v3.example.");
        let ttl = Ttl::new(30).expect("small");
        let mut contents = Contents::new(apex.clone());
        let soa = [name("ns1.v3.example.").as_wire(), name("admin.Shard1.v3.example.").as_wire(), &[7; 20]].concat();
        let mut set = |owner: &str, rtype, rdata: Vec<Box<[u8]>>| {
            let owner = Name::parse(owner.as_bytes(), &apex).expect("a name of a test");
            contents.set(owner, Rrset { rtype, ttl, rdata }).expect("in the zone");
        };
        set("@", RecordType::SOA, vec![soa.into()]);
        set("@", RecordType::NS, vec![name("NS.shard1.v3.example.").as_wire().into()]);
        let servers = ["n1.ns.sub.shard1.v3.example.", "n2.ns.sub.shard1.v3.example.", "n.shard1.elsewhere.test."];
        set("sub", RecordType::NS, servers.iter().map(|server| name(server).as_wire().into()).collect());
        set("ns", RecordType::A, vec![Box::from([192, 0, 2, 53])]);
        set("*", RecordType::A, vec![Box::from([192, 0, 2, 1]), Box::from([192, 0, 2, 2])]);
        set("a.B.c", RecordType::TXT, vec![Box::from(*b"\x01x")]);
        set("svc", RecordType::HTTPS, vec![Box::from([0, 1, 0])]);
        for host in 0..hosts {
            set(&format!("h{host}"), RecordType::A, vec![Box::from([10, 0, (host >> 8) as u8, host as u8])]);
        }
        contents.set_weights(&name("*.shard1.v3.example."), RecordType::A, vec![1, 3]).expect("two weights");
        contents
    }

    #[test]
    fn zones_come_back_the_same() {
        for hosts in [0, 2_000] {
            let contents = contents(hosts);
            let zone = Zone::build(contents).expect("it has a SOA");
            let octets = store(&zone).expect("it is plain");
            let back = restore(&octets).expect("it was stored");
            assert_eq!(back.contents(), zone.contents(), "{hosts} hosts");
            assert_eq!((back.serial(), back.owner_count()), (zone.serial(), zone.owner_count()));
            assert_eq!(store(&back).map(|octets| octets.len()), Some(octets.len()));
            for node in zone.nodes() {
                let same = back.find(node.hash(), node.relative()).expect("it is found by the same hash");
                assert_eq!(same.octets(), node.octets());
            }
        }
    }

    #[test]
    fn hashes_of_another_process_are_not_kept() {
        let zone = Zone::build(contents(0)).expect("it has a SOA");
        let mut octets = store(&zone).expect("it is plain");
        let nodes_at = 5 + zone.apex().as_wire().len();
        octets[nodes_at..nodes_at + 8].fill(0xee);
        let back = restore(&octets).expect("it was stored");
        for owner in ["*.shard1.v3.example.", "shard1.v3.example.", "b.c.shard1.v3.example."] {
            let qname = Qname::of(name(owner).as_wire());
            let relative = back.relative(&qname, 0).expect("in the zone");
            assert!(back.find(qname.hash(0), relative).is_some(), "{owner}");
        }
    }

    #[test]
    fn what_is_no_zone_is_refused() {
        let octets = store(&Zone::build(contents(0)).expect("it has a SOA")).expect("it is plain");
        assert!(restore(&[]).is_none());
        for end in [3, 4, 5, 20, octets.len() - 1] {
            assert!(restore(&octets[..end]).is_none(), "cut at {end}");
        }
        let mut other = octets.clone();
        other[0] += 1;
        assert!(restore(&other).is_none(), "another format");
    }

    /// The layout is part of what is stored: when this fails, [`FORMAT`] needs another number, and this another sum.
    #[test]
    fn the_layout_is_the_one_of_its_format() {
        let mut octets = store(&Zone::build(contents(0)).expect("it has a SOA")).expect("it is plain");
        // Hashes differ from process to process: clear the known ones.
        let zone = restore(&octets).expect("it was stored");
        let mut hashes: Vec<[u8; 8]> = zone.nodes().map(|node| node.hash().to_le_bytes()).collect();
        let targets = zone.nodes().flat_map(Node::rrsets).flat_map(|records| records.targets().collect::<Vec<_>>());
        hashes.extend(targets.filter(|target| !target.is_owner).map(|target| target.hash.to_le_bytes()));
        for at in 0..octets.len() - 8 {
            if hashes.iter().any(|hash| octets[at..at + 8] == *hash) {
                octets[at..at + 8].fill(0);
            }
        }
        let sum = octets.iter().fold(0u64, |sum, octet| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(*octet));
        assert_eq!((FORMAT, octets.len(), sum), (2, 719, 2_418_381_803_804_059_506));
    }
}
