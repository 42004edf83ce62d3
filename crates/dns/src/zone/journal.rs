//! The format of a journal: a file of keys and values to which changes are appended, and that can be truncated without damage.
//!
//! A name server stores its last-known-good state in one: the sources of its zones, and their serials. This module reads and
//! writes the octets of the format; another one owns the file, and the format of keys and values, with the version of both.
//!
//! ```text
//! header   "signpost" │ version u32 │ 0 u32
//! frame    length u32 │ !length u32 │ first 16 octets of the payload's SHA-256 │ payload
//!   …      frames of the snapshot: every key that was live when the file was written
//! frame    its payload is empty: the end of the snapshot
//!   …      frames that were appended since
//!
//! payload  entries, one after another:   1 │ key length u16 │ key │ value length u32 │ value      put
//!                                        2 │ key length u16 │ key                                 delete
//! ```
//!
//! Numbers are little-endian. The snapshot is synced to disk before the file gets its name, so a fault in it is damage, and the
//! file is rejected. After a crash or a power failure, the appended part ends within a frame, or in zeros from the start of a
//! frame or a sector on: then the file is valid up to that frame, and describes the state at that moment. Any other fault is
//! damage at any position: the data after it was valid, too, and without that data the file would describe an old state.

use aws_lc_rs::digest::{SHA256, digest};

use super::parallel::in_parallel;

/// The largest payload of a frame. A frame is checked as a whole before it is used.
pub const PAYLOAD_OCTETS_MAX: usize = 16 << 20;
/// The size from which a writer should begin another frame.
pub const PAYLOAD_OCTETS_GOOD: usize = 256 << 10;

const MAGIC: &[u8; 8] = b"signpost";
const HEADER_OCTETS: usize = 16;
const FRAME_HEADER_OCTETS: usize = 24;
/// The smallest unit of a disk write, which can be zeros after a power failure.
const SECTOR_OCTETS: usize = 512;
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// The reason why a journal cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The file is something else, or was cut off within its header.
    #[error("it is not a Signpost journal")]
    NotAJournal,
    /// The file was written by another version.
    #[error("its format is version {found}, but this program supports version {supported}")]
    OtherVersion {
        /// The version of the file.
        found: u32,
        /// The expected version.
        supported: u32,
    },
    /// A part that was once complete on disk has changed.
    #[error("it is damaged at octet {at}")]
    Damaged {
        /// The start of the first bad frame.
        at: usize,
    },
}

/// The valid extent of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recovered {
    /// The number of valid octets from the start, where new entries are appended.
    pub good_octets: usize,
    /// The number of octets after that, which a crash left.
    pub torn_octets: usize,
    /// The length in octets of the snapshot at the start.
    pub snapshot_octets: usize,
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The new value; `None`: the key is deleted.
    pub value: Option<&'a [u8]>,
}

/// Reads the entries of a journal of this version in order. Entries of an incomplete frame are not passed on.
pub fn read<'a>(octets: &'a [u8], version: u32, mut each: impl FnMut(Entry<'a>)) -> Result<Recovered, JournalError> {
    let header = octets.get(..HEADER_OCTETS).ok_or(JournalError::NotAJournal)?;
    if !header.starts_with(MAGIC) {
        return Err(JournalError::NotAJournal);
    }
    let found = u32_at(header, 8).ok_or(JournalError::NotAJournal)?;
    if found != version {
        return Err(JournalError::OtherVersion { found, supported: version });
    }
    let mut at = HEADER_OCTETS;
    let frames: Vec<Frame<'_>> =
        std::iter::successors(frame_at(octets, at), |frame| frame_at(octets, frame.end)).collect();
    let mut snapshot_octets = None;
    for (frame, entries) in in_parallel(&frames, Frame::entries) {
        let Some(entries) = entries else { break };
        if frame.payload.is_empty() {
            snapshot_octets.get_or_insert(frame.end);
        }
        entries.into_iter().for_each(&mut each);
        at = frame.end;
    }
    let snapshot_octets = snapshot_octets.ok_or(JournalError::Damaged { at })?;
    if !is_torn(octets, at) {
        return Err(JournalError::Damaged { at });
    }
    Ok(Recovered { good_octets: at, torn_octets: octets.len() - at, snapshot_octets })
}

/// Returns whether the rest from `at` on, where no valid frame begins, is only an incompletely written frame.
fn is_torn(octets: &[u8], at: usize) -> bool {
    let nonzero_octets = octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    // None of it, in the rest of an earlier sector, or all except some sectors.
    let written = if nonzero_octets <= at { at } else { nonzero_octets.next_multiple_of(SECTOR_OCTETS) };
    let begun = &octets[at..written.min(octets.len())];
    begun.len() < FRAME_HEADER_OCTETS || frame_end(begun, 0).is_some_and(|end| end > begun.len())
}

/// A frame, not checked yet.
struct Frame<'a> {
    sum: &'a [u8],
    payload: &'a [u8],
    /// The start of the next frame.
    end: usize,
}

impl<'a> Frame<'a> {
    /// Returns the entries of the frame; `None` if it has changed since it was written.
    fn entries(&self) -> Option<Vec<Entry<'a>>> {
        if checksum(self.payload) == *self.sum { entries(self.payload) } else { None }
    }
}

/// Returns the end of the frame at `at` by its header, even if the data is shorter.
fn frame_end(octets: &[u8], at: usize) -> Option<usize> {
    let (length, inverse) = (u32_at(octets, at)?, u32_at(octets, at + 4)?);
    let length_octets = usize::try_from(length).ok()?;
    let is_length = length == !inverse && length_octets <= PAYLOAD_OCTETS_MAX;
    is_length.then_some(at + FRAME_HEADER_OCTETS + length_octets)
}

fn frame_at(octets: &[u8], at: usize) -> Option<Frame<'_>> {
    let end = frame_end(octets, at)?;
    let payload = octets.get(at + FRAME_HEADER_OCTETS..end)?;
    Some(Frame { sum: &octets[at + 8..at + FRAME_HEADER_OCTETS], payload, end })
}

fn entries(mut payload: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    while let Some((&kind, rest)) = payload.split_first() {
        let (key_octets, rest) = rest.split_first_chunk::<2>()?;
        let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_octets)))?;
        let (value, rest) = match kind {
            DELETE => (None, rest),
            PUT => {
                let (value_octets, rest) = rest.split_first_chunk::<4>()?;
                let (value, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*value_octets)).ok()?)?;
                (Some(value), rest)
            }
            _ => return None,
        };
        entries.push(Entry { key, value });
        payload = rest;
    }
    Some(entries)
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    octets.get(at..)?.first_chunk().map(|number| u32::from_le_bytes(*number))
}

fn checksum(payload: &[u8]) -> [u8; 16] {
    let mut front = [0; 16];
    front.copy_from_slice(&digest(&SHA256, payload).as_ref()[..16]);
    front
}

/// Octets to write: the header, or one frame after another.
#[derive(Debug, Default)]
pub struct Writer {
    octets: Vec<u8>,
    frame: Vec<u8>,
}

impl Writer {
    /// Returns the beginning of a new file of this version.
    pub fn with_header(version: u32) -> Self {
        let octets = [&MAGIC[..], &version.to_le_bytes(), &[0; 4]].concat();
        Writer { octets, frame: Vec::new() }
    }

    /// Frames for the end of a file.
    pub fn append() -> Self {
        Writer::default()
    }

    /// Writes one entry. A key has at most 65,535 octets, an entry at most [`PAYLOAD_OCTETS_MAX`]; larger ones are left
    /// out, and `false` is returned.
    pub fn put(&mut self, entry: Entry<'_>) -> bool {
        let Ok(key_octets) = u16::try_from(entry.key.len()) else { return false };
        let value_octets = entry.value.map_or(0, <[u8]>::len);
        if value_octets + entry.key.len() + 7 > PAYLOAD_OCTETS_MAX {
            return false;
        }
        if self.frame.len() + value_octets + entry.key.len() > PAYLOAD_OCTETS_GOOD {
            self.end_frame();
        }
        self.frame.push(if entry.value.is_some() { PUT } else { DELETE });
        self.frame.extend_from_slice(&key_octets.to_le_bytes());
        self.frame.extend_from_slice(entry.key);
        if let Some(value) = entry.value {
            self.frame.extend_from_slice(&(value.len() as u32).to_le_bytes());
            self.frame.extend_from_slice(value);
        }
        true
    }

    /// Writes the mark that ends the snapshot.
    pub fn end_snapshot(&mut self) {
        self.end_frame();
        self.push_frame(&[]);
    }

    /// Returns the octets to write.
    pub fn finish(mut self) -> Vec<u8> {
        self.end_frame();
        self.octets
    }

    fn end_frame(&mut self) {
        if !self.frame.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            self.push_frame(&frame);
        }
    }

    fn push_frame(&mut self, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a frame has at most PAYLOAD_OCTETS_MAX octets");
        self.octets.extend_from_slice(&length.to_le_bytes());
        self.octets.extend_from_slice(&(!length).to_le_bytes());
        self.octets.extend_from_slice(&checksum(payload));
        self.octets.extend_from_slice(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const VERSION: u32 = 7;

    fn sample() -> (Vec<u8>, usize) {
        let mut file = Writer::with_header(VERSION);
        for key in 0..2000u32 {
            assert!(file.put(Entry { key: &key.to_le_bytes(), value: Some(&[7; 300]) }));
        }
        file.end_snapshot();
        let mut octets = file.finish();
        let snapshot_octets = octets.len();
        for key in 0..3u32 {
            let mut more = Writer::append();
            more.put(Entry { key: &key.to_le_bytes(), value: None });
            octets.extend(more.finish());
        }
        (octets, snapshot_octets)
    }

    fn live(octets: &[u8]) -> Result<(usize, Recovered), JournalError> {
        let mut live = BTreeMap::new();
        let recovered = read(octets, VERSION, |entry| match entry.value {
            Some(value) => drop(live.insert(entry.key, value)),
            None => drop(live.remove(entry.key)),
        })?;
        Ok((live.len(), recovered))
    }

    #[test]
    fn a_journal_reads_back() {
        let (octets, snapshot_octets) = sample();
        let recovered = Recovered { good_octets: octets.len(), torn_octets: 0, snapshot_octets };
        assert_eq!(live(&octets), Ok((1997, recovered)));
    }

    #[test]
    fn a_torn_end_is_cut_off() {
        let (octets, snapshot_octets) = sample();
        let frame_octets = (octets.len() - snapshot_octets) / 3;
        for length in snapshot_octets..octets.len() {
            let (count, recovered) = live(&octets[..length]).expect("the snapshot is whole");
            assert_eq!(count, 2000 - (length - snapshot_octets) / frame_octets, "{length}");
            assert_eq!(recovered.good_octets + recovered.torn_octets, length);
        }
    }

    #[test]
    fn a_power_cut_leaves_zeros() {
        let (mut octets, snapshot_octets) = sample();
        let small = octets.len();
        let mut more = Writer::append();
        more.put(Entry { key: &[1; 5000], value: Some(&[7; 5000]) });
        octets.extend(more.finish());
        for sector in (snapshot_octets.next_multiple_of(SECTOR_OCTETS)..octets.len()).step_by(SECTOR_OCTETS) {
            let mut zeros = octets.clone();
            zeros[sector..].fill(0);
            let (_, recovered) = live(&zeros).expect("a power failure is not damage");
            assert!(recovered.good_octets <= sector && recovered.good_octets <= small, "{sector}");
        }
        // The file was to grow by a block, and none of it came to the disk.
        let mut empty = octets[..small].to_vec();
        empty.resize(small + 4096, 0);
        assert_eq!(live(&empty).map(|(_, recovered)| recovered.good_octets), Ok(small));
    }

    #[test]
    fn damage_is_an_error() {
        let (octets, snapshot_octets) = sample();
        for at in (HEADER_OCTETS..snapshot_octets).step_by(997) {
            let mut damaged = octets.clone();
            damaged[at] ^= 0x10;
            assert!(matches!(live(&damaged), Err(JournalError::Damaged { .. })), "{at}");
        }
        assert!(matches!(live(&octets[..snapshot_octets - 1]), Err(JournalError::Damaged { .. })));
        // The appended data had been complete: data after a flipped bit is not dropped in favor of the state before it.
        for at in snapshot_octets..octets.len() {
            let mut damaged = octets.clone();
            damaged[at] ^= 0x10;
            assert!(matches!(live(&damaged), Err(JournalError::Damaged { .. })), "{at}");
        }
        let mut lost = octets.clone();
        lost[snapshot_octets..octets.len() - 5].fill(0);
        assert_eq!(live(&lost), Err(JournalError::Damaged { at: snapshot_octets }), "zeros before what is whole");
        assert_eq!(live(b"something else, of some length"), Err(JournalError::NotAJournal));
        assert_eq!(live(&octets[..5]), Err(JournalError::NotAJournal));
        let mut newer = octets.clone();
        newer[8] = 8;
        assert_eq!(live(&newer), Err(JournalError::OtherVersion { found: 8, supported: VERSION }));
    }
}
