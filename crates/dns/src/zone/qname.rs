//! A name in the form for lookups: in lower case, with the start of each label and a hash of each suffix.
//!
//! One pass over a question's name prepares every probe of an answer: for each zone that might enclose it, for the name, and for
//! each ancestor. The hash of a suffix is made from the hash of the suffix one label shorter, so all of them cost as much as one
//! hash of the name; the hash of a child (`*` under its parent) is one more step. It is seeded for each process: tenants choose
//! names, and must not be able to choose collisions. After a match of hashes, names are always compared.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use crate::wire::name::{LABELS_MAX, NAME_OCTETS_MAX};

/// The hash of a name; equal for names that differ only in the case of ASCII letters.
pub type NameHash = u64;

/// A folded name with its suffixes.
#[derive(Clone)]
pub struct Qname {
    /// The name in lower case. The octets after the name have no meaning.
    octets: [u8; ROOM],
    length: usize,
    labels: usize,
    starts: [u8; LABELS_MAX + 1],
    hashes: [NameHash; LABELS_MAX + 1],
}

/// More octets than the longest name, so that a word can be read at any octet.
const ROOM: usize = NAME_OCTETS_MAX + 1 + 16;

impl Default for Qname {
    fn default() -> Self {
        Self::new()
    }
}

impl Qname {
    /// Returns the root.
    pub fn new() -> Self {
        Qname {
            octets: [0; ROOM],
            length: 1,
            labels: 0,
            starts: [0; LABELS_MAX + 1],
            hashes: [root_hash(); LABELS_MAX + 1],
        }
    }

    /// Reads `wire`: a valid, uncompressed name with its root label.
    pub fn of(wire: &[u8]) -> Self {
        let mut qname = Qname::new();
        qname.read(wire);
        qname
    }

    /// Reads `wire` into `self`: a valid, uncompressed name with its root label.
    pub fn read(&mut self, wire: &[u8]) {
        let wire = &wire[..wire.len().min(NAME_OCTETS_MAX)];
        fold(wire, &mut self.octets);
        self.length = wire.len();
        // Offsets are octets, so that none can be beyond the room.
        let (mut at, mut labels) = (0u8, 0);
        loop {
            self.starts[labels] = at;
            let length = self.octets[usize::from(at)];
            if length == 0 || labels == LABELS_MAX {
                break;
            }
            labels += 1;
            at = at.wrapping_add(1).wrapping_add(length);
        }
        self.labels = labels;
        let seed = &*SEED;
        let mut hash = seed.root;
        self.hashes[labels] = hash;
        for (start, place) in self.starts[..labels].iter().zip(&mut self.hashes[..labels]).rev() {
            hash = extend(seed, hash, &self.octets, *start);
            *place = hash;
        }
    }

    /// Returns the number of labels of the name, without the root.
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// Returns the length of the name in octets, including the root label.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the folded octets.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }

    /// Returns the start of the suffix without the first `skipped` labels; at most [`Self::labels`].
    #[inline]
    pub fn start(&self, skipped: usize) -> usize {
        usize::from(self.starts[skipped])
    }

    /// Returns the octets of that suffix.
    #[inline]
    pub fn suffix(&self, skipped: usize) -> &[u8] {
        &self.octets[self.start(skipped)..self.length]
    }

    /// Returns the hash of that suffix.
    #[inline]
    pub fn hash(&self, skipped: usize) -> NameHash {
        self.hashes[skipped]
    }
}

/// Returns the hash of `*` directly under the name of `parent`.
#[inline]
pub(super) fn wildcard_hash(parent: NameHash) -> NameHash {
    mix(parent ^ u64::from_le_bytes(*b"\x01*\0\0\0\0\0\0"), SEED.multiplier)
}

/// Returns the hash of the root.
pub fn root_hash() -> NameHash {
    SEED.root
}

struct Seed {
    root: u64,
    multiplier: u64,
}

static SEED: LazyLock<Seed> = LazyLock::new(|| {
    let random = RandomState::new();
    // Odd, so that multiplying loses nothing.
    Seed { root: random.hash_one(1u8), multiplier: random.hash_one(2u8) | 1 }
});

/// Returns the hash of one more label in front of the name of `hash`: the label is at `start`, length octet first, which makes
/// `ab` + `c` and `a` + `bc` different.
#[inline]
fn extend(seed: &Seed, mut hash: NameHash, octets: &[u8; ROOM], start: u8) -> NameHash {
    let mut at = start;
    // The remaining octets together with the next one.
    let mut more = octets[usize::from(start)];
    while more > 7 {
        hash = mix(hash ^ word_at(octets, at), seed.multiplier);
        at = at.wrapping_add(8);
        more -= 8;
    }
    // The label's octets are the low ones; the octets after it are shifted out.
    mix(hash ^ (word_at(octets, at) & MASKS[usize::from(more)]), seed.multiplier)
}

/// The low octets of a word: one more than the index.
const MASKS: [u64; 8] =
    [0xff, 0xffff, 0xff_ffff, u32::MAX as u64, u64::MAX >> 24, u64::MAX >> 16, u64::MAX >> 8, u64::MAX];

/// A 64 by 64 bit multiplication, both halves of the product folded together: every bit of the input reaches every bit of
/// the output.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The eight octets from `at` on, the first one lowest.
#[inline]
fn word_at(octets: &[u8; ROOM], at: u8) -> u64 {
    let at = usize::from(at);
    u64::from_le_bytes(octets[at..at + 8].try_into().expect("a slice of eight octets"))
}

/// Copies `wire` with ASCII letters in lower case, sixteen octets at a time; the last sixteen may overlap the previous ones.
/// Length octets are at most 63, below `A`.
#[inline]
fn fold(wire: &[u8], octets: &mut [u8; ROOM]) {
    let (chunks, rest) = wire.as_chunks::<16>();
    for (chunk, place) in chunks.iter().zip(octets.as_chunks_mut::<16>().0) {
        *place = folded(chunk);
    }
    match wire.last_chunk::<16>() {
        _ if rest.is_empty() => {}
        Some(last) => {
            if let Some(place) = octets[wire.len() - 16..].first_chunk_mut() {
                *place = folded(last);
            }
        }
        None => {
            let mut last = [0; 16];
            for (octet, place) in rest.iter().zip(&mut last) {
                *place = *octet;
            }
            octets[..16].copy_from_slice(&folded(&last));
        }
    }
}

/// The compiler turns this into a few machine instructions.
#[inline]
fn folded(octets: &[u8; 16]) -> [u8; 16] {
    let mut folded = *octets;
    for octet in &mut folded {
        *octet |= u8::from(octet.is_ascii_uppercase()) << 5;
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Name;

    fn qname(text: &str) -> Qname {
        Qname::of(text.parse::<Name>().expect("a name of a test").as_wire())
    }

    #[test]
    fn suffixes() {
        let name = qname("WwW.Example.ORG.");
        assert_eq!((name.labels(), name.length()), (3, 17));
        assert_eq!(name.octets(), b"\x03www\x07example\x03org\0");
        assert_eq!(name.suffix(1), b"\x07example\x03org\0");
        assert_eq!(name.suffix(3), b"\0");
        assert_eq!(name.hash(1), qname("example.org.").hash(0));
        assert_eq!(name.hash(3), root_hash());
        assert_ne!(name.hash(0), name.hash(1));
        assert_eq!(wildcard_hash(name.hash(1)), qname("*.example.org.").hash(0));
    }

    #[test]
    fn only_ascii_letters_are_folded() {
        let every_octet: Vec<u8> = (0..=255).collect();
        for label in every_octet.chunks(63) {
            let name = Name::from_labels([label], &Name::root()).expect("fits");
            assert_eq!(Qname::of(name.as_wire()).octets(), name.to_lowercase().as_wire());
        }
    }

    #[test]
    fn the_longest_names() {
        for text in ["a.".repeat(127), format!("{0}.{0}.{0}.{1}.", "b".repeat(63), "c".repeat(61))] {
            let name = qname(&text);
            assert_eq!(name.length(), 255);
            assert_eq!(name.suffix(name.labels()), [0]);
        }
    }

    #[test]
    fn label_boundaries_count() {
        assert_ne!(qname("ab.c.").hash(0), qname("a.bc.").hash(0));
        assert_ne!(qname(r"a\000.").hash(0), qname("a.").hash(0));
    }
}
