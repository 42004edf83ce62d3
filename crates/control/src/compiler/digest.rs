//! Digests of the inputs of a zone, which show replicas that they have the same contents.
//!
//! A digest is a number of 128 bits. A shard's digest is a hash over the records that its Router contributes, and a part for each
//! former name. These parts, the parent zone's digest, and the alias zone's are sums modulo 2^128 of one hash for each delegation,
//! alias, host, or proof for a certification authority. So one change among a million is one subtraction and one addition, and the order of changes does not matter.
//! Configuration is not part of a digest: it belongs to a name server, while the digest covers the objects that all of them watch.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{Context, SHA256};

use signpost_dns::wire::Name;
use signpost_dns::zone::Contents;

/// The prefix of everything that is hashed. Change it when the same objects result in other records.
const FORMAT: &[u8] = b"signpost zone 1";

/// The inputs of a zone, in 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Digest(pub u128);

impl Digest {
    /// Returns the digest of the records that one Router contributes to its shard's zone.
    pub fn of_contents(contents: &Contents) -> Digest {
        let mut hash = hasher(b"contents");
        put(&mut hash, contents.apex().to_lowercase().as_wire());
        for (owner, rrsets) in contents.owners() {
            let mut rrsets: Vec<_> = rrsets.iter().collect();
            rrsets.sort_unstable_by_key(|rrset| rrset.rtype);
            for rrset in rrsets {
                put(&mut hash, owner.to_lowercase().as_wire());
                hash.update(&rrset.rtype.0.to_be_bytes());
                hash.update(&rrset.ttl.seconds().to_be_bytes());
                let weights = contents.weights(owner, rrset.rtype);
                let weight = |at| weights.map_or(1, |weights| weights[at]);
                let mut records: Vec<_> =
                    rrset.rdata.iter().enumerate().map(|(at, rdata)| (rdata, weight(at))).collect();
                records.sort_unstable();
                hash.update(&(records.len() as u64).to_be_bytes());
                for (rdata, weight) in records {
                    put(&mut hash, rdata);
                    hash.update(&weight.to_be_bytes());
                }
            }
        }
        finish(hash)
    }

    /// Returns the contribution of a zone's delegation to the digest of its parent zone.
    pub fn of_delegation(apex: &Name) -> Digest {
        Digest::of(b"delegation", &[apex.to_lowercase().as_wire()])
    }

    /// Returns the contribution of one alias to the digest of the alias zone: a label, and the zone of its target.
    pub fn of_alias(label: &str, shard: &str) -> Digest {
        Digest::of(b"alias", &[label.to_ascii_lowercase().as_bytes(), shard.to_ascii_lowercase().as_bytes()])
    }

    /// Returns the contribution of a Route's host in the parent zone: the host, and the label of the alias that it leads to.
    pub fn of_host(host: &Name, label: &str) -> Digest {
        Digest::of(b"host", &[host.to_lowercase().as_wire(), label.to_ascii_lowercase().as_bytes()])
    }

    /// Returns the contribution of a moved route's former name to the digest of the zone that it left: its label, and the shard
    /// of its current name.
    pub fn of_former_name(label: &str, shard: &str) -> Digest {
        Digest::of(b"trail", &[label.to_ascii_lowercase().as_bytes(), shard.to_ascii_lowercase().as_bytes()])
    }

    /// Returns the contribution of one value of a TXT record that proves the control of a name: the name in its zone, and the value.
    pub fn of_text(owner: &[u8], value: &[u8]) -> Digest {
        Digest::of(b"challenge", &[&owner.to_ascii_lowercase(), value])
    }

    /// Returns the digest of some bytes: of configuration, which is compared on one machine only.
    pub fn of_octets(octets: &[u8]) -> Digest {
        Digest::of(b"octets", &[octets])
    }

    fn of(purpose: &[u8], parts: &[&[u8]]) -> Digest {
        let mut hash = hasher(purpose);
        parts.iter().for_each(|part| put(&mut hash, part));
        finish(hash)
    }

    /// Returns the digest with a part added.
    #[must_use]
    pub fn plus(self, part: Digest) -> Digest {
        Digest(self.0.wrapping_add(part.0))
    }

    /// Returns the digest with a part removed.
    #[must_use]
    pub fn minus(self, part: Digest) -> Digest {
        Digest(self.0.wrapping_sub(part.0))
    }
}

impl fmt::Display for Digest {
    /// Writes 32 hexadecimal digits, as in a Zone's `versions`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 32 hexadecimal digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        if text.len() != 32 || !text.bytes().all(|octet| octet.is_ascii_hexdigit()) {
            return Err(NotADigest);
        }
        u128::from_str_radix(text, 16).map(Digest).map_err(|_| NotADigest)
    }
}

fn hasher(purpose: &[u8]) -> Context {
    let mut hash = Context::new(&SHA256);
    put(&mut hash, FORMAT);
    put(&mut hash, purpose);
    hash
}

/// Hashes a length before the octets, so that no two lists of parts hash the same octets.
fn put(hash: &mut Context, octets: &[u8]) {
    hash.update(&(octets.len() as u64).to_be_bytes());
    hash.update(octets);
}

fn finish(hash: Context) -> Digest {
    let mut front = [0; 16];
    front.copy_from_slice(&hash.finish().as_ref()[..16]);
    Digest(u128::from_be_bytes(front))
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_dns::wire::RecordType;
    use signpost_dns::zone::Ttl;

    #[test]
    fn sums_forget_the_order() {
        let (a, b) = (Digest::of_alias("a", "s.example"), Digest::of_alias("b", "s.example"));
        assert_eq!(a.plus(b), b.plus(a));
        assert_eq!(a.plus(b).minus(a), b);
        assert_ne!(Digest::of_alias("a", "b.c"), Digest::of_alias("ab", ".c"));
        assert_eq!(Digest::of_alias("A", "S.example"), a);
    }

    #[test]
    fn text_reads_back() {
        let digest = Digest::of_alias("a", "s.example");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        for bad in ["", "00", "+0000000000000000000000000000000", "g0000000000000000000000000000000"] {
            assert_eq!(bad.parse::<Digest>(), Err(NotADigest), "{bad}");
        }
    }

    #[test]
    fn contents_differ_by_what_counts() {
        let name = |text: &str| text.parse::<Name>().expect("a name of a test");
        let zone = |records: &[(&str, RecordType, u32, &[u8])]| {
            let mut contents = Contents::new(name("z.example."));
            for (owner, rtype, ttl, rdata) in records {
                contents.add(name(owner), *rtype, Ttl::new(*ttl).expect("small"), (*rdata).into()).expect("in zone");
            }
            Digest::of_contents(&contents)
        };
        let (a, b) =
            (("*.z.example.", RecordType::A, 30, &b"1111"[..]), ("*.z.example.", RecordType::A, 30, &b"2222"[..]));
        assert_eq!(zone(&[a, b]), zone(&[b, a]), "an RRset is a set");
        assert_eq!(zone(&[a]), zone(&[("*.Z.example.", RecordType::A, 30, b"1111")]));
        for other in [("*.z.example.", RecordType::A, 31, &b"1111"[..]), ("*.z.example.", RecordType::TXT, 30, b"1111")]
        {
            assert_ne!(zone(&[a]), zone(&[other]));
        }
    }
}
