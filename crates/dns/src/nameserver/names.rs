//! Names in a response: reading them through pointers, and writing each as short as possible (RFC 1035 §4.1.4).
//!
//! Stored names include their pointers (see [`crate::zone::compression`]), so an answer is a copy without a search. Suffixes
//! that a name shares with the question below the cut, or with another RRset, are not compressed that way. A response that does
//! not fit is therefore written a second time with a table of all its names, before TC makes the client retry over a stream.

use crate::wire::build::{Full, Writer};
use crate::wire::name::{NAME_OCTETS_MAX, expand};
use crate::zone::qname::Qname;

/// The first offset that a pointer cannot express (RFC 1035 §4.1.4: 14 bits).
pub(super) const POINTER_END: usize = 0x4000;
/// The bits that distinguish a pointer from a label.
pub(super) const POINTER: u16 = 0xc000;

/// The number of slots for suffixes of names: more than a message of 1232 octets needs, even if each record names another host.
const SLOTS: usize = 256;
/// The number of consecutive slots for one suffix. If all of them are in use, the suffix is not stored, and later names contain
/// it in full.
const PROBES: usize = 4;

/// The positions of the names of one message, with all their suffixes. Names that differ only in case are equal, as for every
/// reader (RFC 4343 §3); the first one sets the case.
pub(super) struct Names {
    /// Offsets in the message; zero, where there is no name: free.
    slots: [u16; SLOTS],
    /// The name being looked for.
    name: Qname,
    /// The position of the name that is being looked up in the zone.
    pub(super) current: usize,
}

impl Names {
    /// Returns the names of a message that has nothing but the question, whose name is at `question_at`.
    pub(super) fn new(message: &[u8], question_at: usize) -> Self {
        let mut names = Names { slots: [0; SLOTS], name: Qname::new(), current: question_at };
        let mut octets = [0; NAME_OCTETS_MAX];
        if let Some(name) = expand(message, question_at, &mut octets) {
            names.name.read(name);
            names.note(question_at, names.name.labels());
        }
        names
    }

    /// Writes `name`, with a pointer for its longest suffix that is already in the message.
    pub(super) fn put(&mut self, writer: &mut Writer<'_>, name: &[u8]) -> Result<(), Full> {
        self.name.read(name);
        let at = writer.position();
        let labels = self.name.labels();
        let found = (0..labels).find_map(|skipped| Some((skipped, self.find(writer.written(), skipped)?)));
        let (plain, pointer) = found.map_or((labels, None), |(skipped, at)| (skipped, Some(at)));
        writer.put(&name[..self.name.start(plain)])?;
        match pointer {
            Some(at) => writer.put_u16(POINTER | at)?,
            None => writer.put(&[0])?,
        }
        self.note(at, plain);
        Ok(())
    }

    /// Forgets names at `position` and after it, which were removed from the message.
    pub(super) fn forget(&mut self, position: usize) {
        self.slots.iter_mut().filter(|slot| usize::from(**slot) >= position).for_each(|slot| *slot = 0);
    }

    /// Remembers the first `suffixes` suffixes of the name being looked for, which was written at `at`.
    fn note(&mut self, at: usize, suffixes: usize) {
        for skipped in 0..suffixes {
            let offset = at + self.name.start(skipped);
            let probes = Self::probes(self.name.hash(skipped));
            if let Some(free) = probes.into_iter().find(|slot| self.slots[*slot] == 0)
                && offset < POINTER_END
            {
                self.slots[free] = offset as u16;
            }
        }
    }

    /// Returns the position in the message of the searched name without its first `skipped` labels.
    fn find(&self, message: &[u8], skipped: usize) -> Option<u16> {
        let suffix = self.name.suffix(skipped);
        let is_there = |at: &u16| {
            let mut octets = [0; NAME_OCTETS_MAX];
            *at != 0
                && expand(message, usize::from(*at), &mut octets).is_some_and(|name| name.eq_ignore_ascii_case(suffix))
        };
        Self::probes(self.name.hash(skipped)).map(|slot| self.slots[slot]).into_iter().find(is_there)
    }

    fn probes(hash: u64) -> [usize; PROBES] {
        std::array::from_fn(|probe| (hash as usize).wrapping_add(probe) % SLOTS)
    }
}

/// Returns the position after the name at `at` in a message of this server.
pub(super) fn after(message: &[u8], mut at: usize) -> usize {
    while message[at] != 0 && message[at] < 0xc0 {
        at += usize::from(message[at]) + 1;
    }
    at + if message[at] == 0 { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Name;

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    /// A message of these names alone, the first one's octets at offset 12; where each of the others ends.
    fn message(texts: &[&str], octets: &mut [u8]) -> (usize, Vec<usize>) {
        let mut writer = Writer::new(octets, usize::MAX);
        writer.put(&[0; 12]).expect("there is room");
        writer.put(name(texts[0]).as_wire()).expect("there is room");
        let mut names = Names::new(writer.written(), 12);
        let mut lengths = Vec::new();
        for text in &texts[1..] {
            let start = writer.position();
            names.put(&mut writer, name(text).as_wire()).expect("there is room");
            lengths.push(writer.position() - start);
            let mut octets = [0; NAME_OCTETS_MAX];
            let found = expand(writer.written(), start, &mut octets).expect("a name");
            assert!(found.eq_ignore_ascii_case(name(text).as_wire()), "{text}");
            assert_eq!(after(writer.written(), start), writer.position());
        }
        (writer.position(), lengths)
    }

    #[test]
    fn each_suffix_is_written_once() {
        let mut octets = [0; 512];
        let texts = ["www.N1.example.", "n1.example.", "a.n1.EXAMPLE.", "b.a.n1.example.", "a.test.", "b.a.test.", "."];
        assert_eq!(message(&texts, &mut octets).1, [2, 4, 4, 8, 4, 1]);
    }

    #[test]
    fn more_names_than_places() {
        let texts: Vec<String> = (0..2_000).map(|number| format!("n{number}.x{number}.test.")).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        message(&texts, &mut vec![0; 65_535]);
    }

    #[test]
    fn what_was_taken_out_is_not_pointed_to() {
        let mut octets = [0; 512];
        let mut writer = Writer::new(&mut octets, 512);
        writer.put(b"............\x01q\x00").expect("there is room");
        let mut names = Names::new(writer.written(), 12);
        let start = writer.position();
        names.put(&mut writer, name("a.test.").as_wire()).expect("there is room");
        writer.rewind(start);
        names.forget(start);
        writer.put(b"\x01a\x04test\x00").expect("there is room");
        let again = writer.position();
        names.put(&mut writer, name("a.test.").as_wire()).expect("there is room");
        assert_eq!(writer.position() - again, 8);
    }
}
