//! The checksums of the file's contents, and the formats of its entries.
//!
//! ```text
//! a version    3 checksum(8) created(8) value      4 checksum(8)               4 = a deletion
//! a log entry  (key length(2) key before(8))* checksum(8)
//! ```
//!
//! A checksum covers the contents of an entry together with its position: the key and the revision. It therefore detects a value
//! under another key, or an older value in place of a newer one, as well as a flipped bit. It is SipHash-1-3 with fixed keys: 64
//! bits against accidents, at more than 1 GB/s, from the crate that cookies already use. It does not protect against an attacker
//! that writes to the file.
//!
//! `redb` also has checksums of its pages. It verifies them only after a crash, and they do not identify the affected object.

use std::hash::Hasher as _;

use redb::ReadableTable;
use siphasher::sip::SipHasher13;

/// The length of a checksum.
const SEAL: usize = 8;

/// The first octet of a value and of a deletion. The numbers differ in three bits.
const VALUE: u8 = 3;
const DELETION: u8 = 4;

/// The content of a versions entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version<'a> {
    /// A value, with the revision that created its key.
    Value {
        /// The revision.
        created: u64,
        /// The octets.
        value: &'a [u8],
    },
    /// A deletion.
    Deletion,
    /// Something else: the file was damaged.
    Damaged,
}

/// Returns the stored form of a value.
pub fn value(key: &str, revision: u64, created: u64, value: &[u8]) -> Vec<u8> {
    let created = created.to_le_bytes();
    let mut version = Vec::with_capacity(1 + SEAL + created.len() + value.len());
    version.push(VALUE);
    version.extend_from_slice(&checksum(VALUE, key, revision, &[&created, value]));
    version.extend_from_slice(&created);
    version.extend_from_slice(value);
    version
}

/// Returns the stored form of a deletion.
pub fn deletion(key: &str, revision: u64) -> Vec<u8> {
    let mut version = vec![DELETION];
    version.extend_from_slice(&checksum(DELETION, key, revision, &[]));
    version
}

/// Parses the stored form of the value that `revision` wrote to `key`.
pub fn version<'a>(key: &str, revision: u64, stored: &'a [u8]) -> Version<'a> {
    let Some((kind, rest)) = stored.split_first() else { return Version::Damaged };
    let Some((seal, rest)) = rest.split_first_chunk::<SEAL>() else { return Version::Damaged };
    match (*kind, rest.split_first_chunk::<8>()) {
        (VALUE, Some((created, value))) if checksum(VALUE, key, revision, &[created, value]) == *seal => {
            Version::Value { created: u64::from_le_bytes(*created), value }
        }
        (DELETION, None) if rest.is_empty() && checksum(DELETION, key, revision, &[]) == *seal => Version::Deletion,
        _ => Version::Damaged,
    }
}

/// Seals the log entry of `revision`.
pub fn close_log_entry(revision: u64, entry: &mut Vec<u8>) {
    let seal = checksum(0, "", revision, &[entry]);
    entry.extend_from_slice(&seal);
}

/// Returns the content of a sealed log entry; `None` if it is damaged.
pub fn log_entry(revision: u64, stored: &[u8]) -> Option<&[u8]> {
    let (entry, seal) = stored.split_last_chunk::<SEAL>()?;
    (checksum(0, "", revision, &[entry]) == *seal).then_some(entry)
}

/// The numbers of the table `meta` that one checksum covers.
const SEALED: [&str; 6] = ["format", "revision", "compacted", "store-id-high", "store-id-low", "opening"];

/// Writes the checksum of the numbers of `meta`. Call it after each change of them.
pub(super) fn seal_meta(meta: &mut redb::Table<'_, &'static str, u64>) -> Result<(), redb::Error> {
    let seal = of_meta(meta)?;
    meta.insert("seal", seal)?;
    Ok(())
}

/// Returns the checksum of the numbers of `meta`.
pub(super) fn of_meta(meta: &impl ReadableTable<&'static str, u64>) -> Result<u64, redb::Error> {
    let mut found = Vec::with_capacity(SEALED.len());
    for name in SEALED {
        found.push(meta.get(name)?.map_or(0, |number| number.value()));
    }
    Ok(numbers(&found))
}

/// Returns the checksum of numbers that belong together.
pub fn numbers(numbers: &[u64]) -> u64 {
    let octets: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    u64::from_le_bytes(checksum(1, "", 0, &[&octets]))
}

fn checksum(kind: u8, key: &str, revision: u64, parts: &[&[u8]]) -> [u8; SEAL] {
    // "signpost" and "checksum": the numbers are arbitrary, but must never change.
    let mut hasher = SipHasher13::new_with_keys(0x7369_676e_706f_7374, 0x6368_6563_6b73_756d);
    hasher.write(&[kind]);
    // The length separates the key from the data after it.
    hasher.write(&(key.len() as u64).to_le_bytes());
    hasher.write(key.as_bytes());
    hasher.write(&revision.to_le_bytes());
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_in_its_place_alone() {
        for stored in [&b"a value"[..], b""] {
            let sealed = value("/k/a", 7, 5, stored);
            assert_eq!(version("/k/a", 7, &sealed), Version::Value { created: 5, value: stored });
            for (key, revision) in [("/k/b", 7), ("/k/a", 6), ("/k/", 7), ("/k/a\0", 7)] {
                assert_eq!(version(key, revision, &sealed), Version::Damaged, "{key} {revision}");
            }
        }
        assert_eq!(version("/k/a", 7, &deletion("/k/a", 7)), Version::Deletion);
        assert_eq!(version("/k/a", 8, &deletion("/k/a", 7)), Version::Damaged);
        // Other first octets.
        assert_eq!(version("/k/a", 7, &[0]), Version::Damaged);
        assert_eq!(version("/k/a", 7, &[&[1][..], &[0; 40]].concat()), Version::Damaged);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let mut log = b"entry".to_vec();
        close_log_entry(9, &mut log);
        assert_eq!(log_entry(9, &log), Some(&b"entry"[..]));
        assert_eq!(log_entry(8, &log), None);
        for whole in [value("/k/a", 7, 5, b"a value"), deletion("/k/a", 7), log] {
            let is_damaged =
                |stored: &[u8]| version("/k/a", 7, stored) == Version::Damaged && log_entry(9, stored).is_none();
            for bit in 0..whole.len() * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert!(is_damaged(&flipped), "bit {bit}");
            }
            assert!((0..whole.len()).all(|length| is_damaged(&whole[..length])));
        }
    }

    #[test]
    fn the_checksum_stays_what_it_is() {
        // Stores on disk depend on it: computed with another implementation of SipHash-1-3.
        let (key, corpus) =
            ("/signpost.dev/routes/web/shop", concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/seal/"));
        let stored = |name: &str| std::fs::read(format!("{corpus}{name}")).expect("it is there");
        assert_eq!(version(key, 7, &stored("value")), Version::Value { created: 5, value: br#"{"a":1}"# });
        assert_eq!(version(key, 7, &stored("deletion")), Version::Deletion);
        assert_ne!(numbers(&[1, 2]), numbers(&[2, 1]));
    }
}
