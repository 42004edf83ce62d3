//! The differences between two versions of a zone, by owner.

use super::builder::OwnerChange;
use super::contents::Contents;
use super::rrset::Rrset;
use crate::wire::{Name, RecordType};

/// Returns the owners whose records differ between `before` and `after`, in canonical order, each with all its records in
/// `after`, for [`super::Zone::with_changes`]. If it is empty, there is nothing to publish. The order of RRsets at an owner and
/// of records in an RRset does not matter. The letter case of names in RDATA does: it is part of the answers, which must be equal on
/// all servers with the same serial.
pub fn owners(before: &Contents, after: &Contents) -> Vec<OwnerChange> {
    let mut changes = Vec::new();
    walk(before, after, |owner, old, new| {
        let alike = |old: &[Rrset], new: &[Rrset]| {
            old.len() == new.len() && new.iter().all(|rrset| old.iter().any(|old| same(old, rrset)))
        };
        let weights = |contents: &Contents| -> Vec<(RecordType, Vec<u16>)> {
            let of_type = |rtype| contents.weights(owner, rtype).map(|weights| (rtype, weights.to_vec()));
            [RecordType::A, RecordType::AAAA].into_iter().filter_map(of_type).collect()
        };
        if !alike(old, new) || weighted(before, owner) != weighted(after, owner) {
            changes.push(OwnerChange { owner: owner.clone(), rrsets: new.to_vec(), weights: weights(after) });
        }
    });
    changes
}

/// Calls `visit` for each owner of either, in canonical order, with its RRsets in both.
fn walk(before: &Contents, after: &Contents, mut visit: impl FnMut(&Name, &[Rrset], &[Rrset])) {
    let (mut old, mut new) = (before.owners().peekable(), after.owners().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let gone = if order.is_le() { old.next() } else { None };
        let here = if order.is_ge() { new.next() } else { None };
        match (gone, here) {
            (Some((_, gone)), Some((owner, here))) => visit(owner, gone, here),
            (Some((owner, gone)), None) => visit(owner, gone, &[]),
            (None, Some((owner, here))) => visit(owner, &[], here),
            (None, None) => {}
        }
    }
}

fn same(a: &Rrset, b: &Rrset) -> bool {
    // RDATA within an RRset are distinct, so equal numbers and one inclusion make equal sets.
    a.rtype == b.rtype
        && a.ttl == b.ttl
        && a.rdata.len() == b.rdata.len()
        && (a.rdata == b.rdata || a.rdata.iter().all(|rdata| b.rdata.contains(rdata)))
}

/// Returns each weighted address with its weight, in sorted order.
fn weighted<'c>(contents: &'c Contents, owner: &Name) -> Vec<(&'c [u8], u16)> {
    let mut pairs = Vec::new();
    for rtype in [RecordType::A, RecordType::AAAA] {
        if let (Some(weights), Some(rrset)) = (contents.weights(owner, rtype), contents.get(owner, rtype)) {
            pairs.extend(rrset.rdata.iter().map(|rdata| &**rdata).zip(weights.iter().copied()));
        }
    }
    pairs.sort_unstable();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::Ttl;

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    fn contents(records: &[(&str, RecordType, u32, &[u8])]) -> Contents {
        let mut contents = Contents::new(name("z.test."));
        for (owner, rtype, ttl, rdata) in records {
            let ttl = Ttl::new(*ttl).expect("is small");
            contents.add(name(owner), *rtype, ttl, (*rdata).into()).expect("is in the zone");
        }
        contents
    }

    #[test]
    fn differences() {
        let (a, txt) = (RecordType::A, RecordType::TXT);
        let before = contents(&[
            ("z.test.", txt, 60, b"\x01a"),
            ("a.z.test.", a, 60, b"0001"),
            ("a.z.test.", a, 60, b"0002"),
            ("b.z.test.", a, 60, b"0001"),
            ("b.z.test.", txt, 60, b"\x01b"),
            ("d.z.test.", a, 60, b"0001"),
        ]);
        assert_eq!(owners(&before, &before), []);
        let after = contents(&[
            ("z.test.", txt, 60, b"\x01a"),
            ("A.z.test.", a, 60, b"0002"),
            ("a.z.test.", a, 60, b"0001"),
            ("b.z.test.", a, 61, b"0001"),
            ("b.z.test.", txt, 60, b"\x01b"),
            ("c.z.test.", a, 60, b"0001"),
        ]);
        let changed: Vec<(String, usize)> =
            owners(&before, &after).iter().map(|change| (change.owner.to_string(), change.rrsets.len())).collect();
        assert_eq!(changed, [("b.z.test.".into(), 2), ("c.z.test.".into(), 1), ("d.z.test.".into(), 0)]);
    }

    /// One record by RFC 4034 §6.3, but answers with its first spelling must be equal on all servers.
    #[test]
    fn another_spelling_is_a_change() {
        let zone = |names: [&[u8]; 2]| contents(&names.map(|data| ("z.test.", RecordType::NS, 60, data)));
        let (small, large) = (&b"\x02ns\0"[..], &b"\x02NS\0"[..]);
        for (before, after, is_change) in [
            ([small, large], [small, small], false),
            ([small, large], [small, large], false),
            ([small, large], [large, small], true),
            ([small, small], [large, large], true),
        ] {
            let (before, after) = (zone(before), zone(after));
            assert_eq!((before.record_count(), after.record_count()), (1, 1));
            let changes: Vec<_> = owners(&before, &after).into_iter().flat_map(|change| change.rrsets).collect();
            let rdata: Vec<_> = changes.iter().flat_map(|rrset| &rrset.rdata).map(|rdata| &rdata[..]).collect();
            assert_eq!(rdata, if is_change { vec![large] } else { vec![] });
        }
    }

    #[test]
    fn weights_count() {
        let records: &[(&str, RecordType, u32, &[u8])] =
            &[("a.z.test.", RecordType::A, 60, b"0001"), ("a.z.test.", RecordType::A, 60, b"0002")];
        let before = contents(records);
        let mut after = contents(records);
        after.set_weights(&name("a.z.test."), RecordType::A, vec![1, 2]).expect("there are two");
        let changes = owners(&before, &after);
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[0].weights, [(RecordType::A, vec![1, 2])]);
    }
}
