//! Writing RRsets into the sections of a response.
//!
//! Stored records are copied unchanged, except that the pointers in their RDATA are resolved and their owner is replaced if it is
//! not the question's name. An RRset is written whole or not at all. A pointer reaches 16 KiB (RFC 1035 §4.1.4): beyond that,
//! names are written in full.

use super::names::{Names, POINTER, POINTER_END};
use super::zone_query::CNAME_CHAIN_MAX;
use crate::wire::build::{Full, Writer};
use crate::wire::name::{NAME_OCTETS_MAX, expand, is_label_start};
use crate::wire::question::{QUESTION_AT, Question};
use crate::zone::Zone;
use crate::zone::compression::{APEX_END, NameOffsets, RECORD_HEAD, Tail, follow, stored_names};
use crate::zone::node::{Records, split_records};

/// A section of a message, without the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A response being written: header and question are there, records follow section by section.
pub(super) struct Message<'w, 'b> {
    pub(super) writer: &'w mut Writer<'b>,
    /// Records in each [`Section`].
    pub(super) counts: [u16; 3],
    /// The length of the question's name in octets.
    question_length: u16,
    /// The length in octets of the apex of the zone that answers.
    apex_length: u16,
    /// The position at which the looked-up name would end if it were whole.
    name_end: usize,
    /// The first `expansion_count` are set.
    expansions: [Expansion; CNAME_CHAIN_MAX],
    expansion_count: u8,
    /// The positions of names, if names are compressed; otherwise, they are as stored.
    names: Option<&'w mut Names>,
}

/// A name of the answer section whose signed records came from a wildcard: when the section is complete, the answer must prove
/// that no closer name exists.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Expansion {
    /// The position of the name.
    pub(super) at: u16,
    /// The number of labels from the wildcard's parent to the name.
    pub(super) above: u16,
}

/// The position of a written RRset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Written {
    /// The start of its first record.
    pub(super) start: usize,
    /// Whether its contents have the same offsets as in the stored records.
    pub(super) as_stored: bool,
}

/// The owner of records in a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owner<'a> {
    /// The name at this offset.
    At(usize),
    /// These labels above the zone's apex.
    Relative(&'a [u8]),
}

/// The owner of most records: the question's name.
pub(super) const QUESTION: Owner<'static> = Owner::At(QUESTION_AT);

impl<'w, 'b> Message<'w, 'b> {
    #[inline]
    pub(super) fn new(writer: &'w mut Writer<'b>, question: &Question, zone: &Zone) -> Self {
        Message::with(writer, u16::from(question.name_length), zone.apex_length() as u16, None)
    }

    /// Returns the same message without records, with compressed names.
    pub(super) fn again<'s>(&'s mut self, names: &'s mut Names) -> Message<'s, 'b> {
        Message::with(self.writer, self.question_length, self.apex_length, Some(names))
    }

    #[inline]
    fn with(writer: &'w mut Writer<'b>, question_length: u16, apex_length: u16, names: Option<&'w mut Names>) -> Self {
        let expansions = [Expansion::default(); CNAME_CHAIN_MAX];
        let name_end = QUESTION_AT + usize::from(question_length);
        let (counts, expansion_count) = ([0; 3], 0);
        Message { writer, counts, question_length, apex_length, name_end, expansions, expansion_count, names }
    }

    /// Returns whether compression pointers reach every octet that the message has room for.
    pub(super) fn is_within_pointers(&self) -> bool {
        self.writer.position() + self.writer.remaining() <= POINTER_END
    }

    /// Returns the position of the zone's apex in every message: at the end of the question's name.
    pub(super) fn apex(&self) -> Owner<'static> {
        Owner::At(QUESTION_AT + usize::from(self.question_length - self.apex_length))
    }

    /// Returns the length of the zone's apex in octets.
    pub(super) fn apex_octets(&self) -> usize {
        usize::from(self.apex_length)
    }

    /// Returns the start of the records.
    pub(super) fn question_end(&self) -> usize {
        QUESTION_AT + usize::from(self.question_length) + 4
    }

    /// Sets the looked-up name to the one at `at`, which is `octets` long without compression. Its labels above the apex are
    /// contiguous there, unless names are compressed.
    pub(super) fn set_name(&mut self, at: usize, octets: usize) {
        self.name_end = at + octets;
        if let Some(names) = &mut self.names {
            names.current = at;
        }
    }

    /// Remembers that records at the name at `at` came from the wildcard `above` labels up.
    #[cold]
    pub(super) fn expanded(&mut self, at: usize, above: usize) {
        if let Some(slot) = self.expansions.get_mut(usize::from(self.expansion_count)) {
            // No message has more octets, and no name more labels, than these can count.
            *slot = Expansion { at: at as u16, above: above as u16 };
            self.expansion_count += 1;
        }
    }

    /// Returns whether there are expansions.
    #[inline]
    pub(super) fn has_expansions(&self) -> bool {
        self.expansion_count > 0
    }

    /// Returns the remembered expansions, at most one for each name of a chain.
    pub(super) fn expansions(&self) -> &[Expansion] {
        &self.expansions[..usize::from(self.expansion_count)]
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) {
        self.rewind(self.question_end());
        self.counts = [0; 3];
    }

    /// Removes the data from `position` on.
    fn rewind(&mut self, position: usize) {
        self.writer.rewind(position);
        if let Some(names) = &mut self.names {
            names.forget(position);
        }
    }

    /// Returns the owner that is the name at `at`, or the labels `relative` above the apex if no pointer reaches that far or the
    /// name may not be contiguous.
    pub(super) fn owner_at<'a>(&self, at: usize, relative: &'a [u8]) -> Owner<'a> {
        match relative {
            [] => self.apex(),
            _ if at < POINTER_END && self.names.is_none() => Owner::At(at),
            _ => Owner::Relative(relative),
        }
    }

    /// Returns `owner`, which the record at `at` has, for a later record: labels need not be in a message twice.
    #[inline]
    pub(super) fn same_owner<'a>(&self, owner: Owner<'a>, at: usize) -> Owner<'a> {
        match owner {
            Owner::At(_) => owner,
            Owner::Relative(labels) => self.owner_at(at, labels),
        }
    }

    /// Writes an RRset as stored.
    pub(super) fn put(&mut self, section: Section, owner: Owner<'_>, records: &Records<'_>) -> Result<Written, Full> {
        let start = self.writer.position();
        let as_stored = self.copy_and_resolve(owner, records, None)?;
        self.counted(section, start, records.count())?;
        Ok(Written { start, as_stored })
    }

    /// Writes records of equal length, starting with the record that `random` selects; if they have weights, only the records
    /// that `random` includes.
    ///
    /// Always inlined, unlike [`Self::put`]: it is on the path of most answers, and a call costs more than its work.
    #[inline(always)]
    pub(super) fn put_rotated(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        records: &Records<'_>,
        random: u32,
    ) -> Result<Written, Full> {
        if records.has_weights() {
            return self.put_weighted(section, owner, records, random);
        }
        let start = self.writer.position();
        let (last, first) = records.records().split_at(rotation(records, random) * records.stride());
        self.copy(owner, first, last, None)?;
        self.counted(section, start, records.count())?;
        Ok(Written { start, as_stored: matches!(owner, Owner::At(_)) })
    }

    /// Writes the records of an RRset with weights.
    #[inline(never)]
    fn put_weighted(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        records: &Records<'_>,
        random: u32,
    ) -> Result<Written, Full> {
        let start = self.writer.position();
        let first = rotation(records, random);
        let weights = || records.weights().into_iter().flatten();
        let heaviest = weights().max().unwrap_or(0);
        let mut chance = u64::from(random);
        let mut count = 0;
        let with_weights = || records.records().chunks_exact(records.stride()).zip(weights());
        for (record, weight) in with_weights().skip(first).chain(with_weights().take(first)) {
            // SplitMix64: as many draws as there are records, from one random number.
            chance = chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut draw = (chance ^ (chance >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            draw = (draw ^ (draw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            draw ^= draw >> 31;
            // Below `heaviest`, so that the heaviest are always included.
            if ((u128::from(draw) * u128::from(heaviest)) >> 64) as u64 >= u64::from(weight) {
                continue;
            }
            if let Err(full) = self.copy(owner, record, &[], None) {
                self.rewind(start);
                return Err(full);
            }
            count += 1;
        }
        self.counted(section, start, count)?;
        Ok(Written { start, as_stored: matches!(owner, Owner::At(_)) })
    }

    /// Writes the signatures over an RRset.
    pub(super) fn put_signatures(
        &mut self,
        section: Section,
        owner: Owner<'_>,
        records: &Records<'_>,
    ) -> Result<(), Full> {
        let start = self.writer.position();
        self.copy(owner, records.signatures(), &[], None)?;
        self.counted(section, start, records.signature_count())
    }

    /// Writes an RRset that proves an absence, with its signatures if `signed`: no TTL is above `ttl_max` seconds
    /// (RFC 2308 §3, RFC 9077 §3). The original TTL in signatures stays.
    pub(super) fn put_negative(
        &mut self,
        owner: Owner<'_>,
        records: &Records<'_>,
        ttl_max: u32,
        signed: bool,
    ) -> Result<(), Full> {
        let start = self.writer.position();
        let ttl = Some(records.ttl().min(ttl_max));
        self.copy_and_resolve(owner, records, ttl)?;
        let mut count = records.count();
        if signed {
            if let Err(full) = self.copy(self.same_owner(owner, start), records.signatures(), &[], ttl) {
                self.rewind(start);
                return Err(full);
            }
            count += records.signature_count();
        }
        self.counted(Section::Authority, start, count)
    }

    /// Writes the CNAME record that a DNAME synthesizes (RFC 6672 §3.1), to `target` in wire form; returns the position of the
    /// target.
    pub(super) fn put_cname(&mut self, owner: Owner<'_>, ttl: u32, target: &[u8]) -> Result<usize, Full> {
        let start = self.writer.position();
        let [a, b, c, d] = ttl.to_be_bytes();
        let mut put = || {
            self.put_owner(owner)?;
            self.writer.put(&[0, 5, 0, 1, a, b, c, d, 0, 0])?;
            let target_at = self.writer.position();
            self.put_name(target)?;
            let length = self.writer.position() - target_at;
            self.writer.written_mut()[target_at - 1] = length as u8;
            Ok(target_at)
        };
        let target_at = put().inspect_err(|Full| self.rewind(start))?;
        self.counted(Section::Answer, start, 1)?;
        Ok(target_at)
    }

    /// Writes only an owner.
    fn put_owner(&mut self, owner: Owner<'_>) -> Result<(), Full> {
        match owner {
            Owner::At(at) => self.writer.put_u16(POINTER | at as u16),
            Owner::Relative(labels) if self.names.is_some() => {
                self.put_stored(&[], labels, Some(APEX_END - self.apex_length))
            }
            Owner::Relative(labels) => {
                self.writer.put(labels)?;
                self.put_apex(self.apex_octets())
            }
        }
    }

    /// Writes one name: compressed if names are, and otherwise with a pointer to the apex if it is at or below the apex.
    fn put_name(&mut self, name: &[u8]) -> Result<(), Full> {
        if let Some(names) = &mut self.names {
            return names.put(self.writer, name);
        }
        match self.above_apex(name) {
            Some(labels) => {
                self.writer.put(labels)?;
                self.put_apex(self.apex_octets())
            }
            None => self.writer.put(name),
        }
    }

    /// Returns the labels of `name` above the zone's apex, if it is at or below the apex and a pointer is shorter than the apex.
    fn above_apex<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        let apex_end = QUESTION_AT + usize::from(self.question_length);
        let apex = &self.writer.written()[apex_end - self.apex_octets()..apex_end];
        let split = name.len().checked_sub(apex.len()).filter(|_| apex.len() > 2)?;
        (is_label_start(name, split) && name[split..].eq_ignore_ascii_case(apex)).then_some(&name[..split])
    }

    /// Writes a pointer to the last `octets` of the apex.
    fn put_apex(&mut self, octets: usize) -> Result<(), Full> {
        let at = QUESTION_AT + usize::from(self.question_length) - octets;
        self.writer.put_u16(POINTER | at as u16)
    }

    /// Copies two rows of stored records, each of which may be empty, with `owner` and optionally another TTL; writes all or
    /// nothing.
    #[inline]
    fn copy(&mut self, owner: Owner<'_>, first: &[u8], second: &[u8], ttl: Option<u32>) -> Result<(), Full> {
        let at = match owner {
            Owner::At(at) => at,
            Owner::Relative(labels) => return self.copy_with_labels(labels, [first, second], ttl),
        };
        let start = self.writer.position();
        self.writer.put_both(first, second)?;
        if at != QUESTION_AT || ttl.is_some() {
            self.change_heads(start, at, ttl);
        }
        Ok(())
    }

    /// Makes the name at `at` the owner of the stored records that were copied to `start`, and optionally changes their TTL.
    fn change_heads(&mut self, start: usize, at: usize, ttl: Option<u32>) {
        let pointer = (POINTER | at as u16).to_be_bytes();
        let written = &mut self.writer.written_mut()[start..];
        let mut at = 0;
        while at + RECORD_HEAD <= written.len() {
            written[at..at + 2].copy_from_slice(&pointer);
            if let Some(ttl) = ttl {
                written[at + 6..at + 10].copy_from_slice(&ttl.to_be_bytes());
            }
            at += RECORD_HEAD + usize::from(u16::from_be_bytes([written[at + 10], written[at + 11]]));
        }
    }

    /// Copies records whose owner is not in the message yet: the first record gets its labels and a pointer to the apex, the
    /// others a pointer to that name if one reaches it.
    #[cold]
    fn copy_with_labels(&mut self, labels: &[u8], parts: [&[u8]; 2], ttl: Option<u32>) -> Result<(), Full> {
        let start = self.writer.position();
        let mut put = || -> Result<(), Full> {
            for (index, record) in parts.iter().flat_map(|part| split_records(part)).enumerate() {
                let first = Owner::Relative(labels);
                self.put_owner(if index == 0 { first } else { self.same_owner(first, start) })?;
                self.put_middle(record, ttl)?;
                self.writer.put(&record[10..])?;
            }
            Ok(())
        };
        let result = put();
        if result.is_err() {
            self.rewind(start);
        }
        result
    }

    /// Writes a stored record's type, class and TTL.
    fn put_middle(&mut self, record: &[u8], ttl: Option<u32>) -> Result<(), Full> {
        self.writer.put(&record[2..6])?;
        match ttl {
            Some(ttl) => self.writer.put(&ttl.to_be_bytes()),
            None => self.writer.put(&record[6..10]),
        }
    }

    /// Copies an RRset's records with `owner` and optionally another TTL, and resolves the pointers in them; returns whether the
    /// data is unchanged. All or nothing.
    #[inline]
    fn copy_and_resolve(&mut self, owner: Owner<'_>, records: &Records<'_>, ttl: Option<u32>) -> Result<bool, Full> {
        let start = self.writer.position();
        if self.names.is_some() {
            return self.put_shortest(owner, records, ttl).map(|()| false);
        }
        let moves = matches!(owner, Owner::Relative(_));
        if records.has_patches() && (moves || start + records.reach() > POINTER_END) {
            return self.write_out(owner, records, ttl).map(|()| false);
        }
        self.copy(owner, records.records(), &[], ttl)?;
        let places = NameOffsets {
            records: start,
            owner_end: self.name_end,
            apex_end: QUESTION_AT + usize::from(self.question_length),
        };
        let written = &mut self.writer.written_mut()[start..];
        for at in records.patches() {
            let pointer = &mut written[at..at + 2];
            let stored = u16::from_be_bytes([pointer[0], pointer[1]]);
            pointer.copy_from_slice(&places.resolve(stored).to_be_bytes());
        }
        Ok(!moves)
    }

    /// Writes an RRset whose stored pointers are not valid at its position: only pointers to the question remain.
    #[cold]
    fn write_out(&mut self, owner: Owner<'_>, records: &Records<'_>, ttl: Option<u32>) -> Result<(), Full> {
        let mut patches = records.patches().peekable();
        self.put_each(owner, records, ttl, |message, record, record_at| {
            let mut from = RECORD_HEAD;
            while let Some(patch) = patches.next_if(|patch| *patch < record_at + record.len()) {
                let patch = patch - record_at;
                message.writer.put(&record[from..patch])?;
                let stored = u16::from_be_bytes([record[patch], record[patch + 1]]);
                message.write_out_name(records.records(), stored)?;
                from = patch + 2;
            }
            message.writer.put(&record[from..])
        })
    }

    /// Writes an RRset with its names as short as possible.
    #[cold]
    fn put_shortest(&mut self, owner: Owner<'_>, records: &Records<'_>, ttl: Option<u32>) -> Result<(), Full> {
        let mut patches = records.patches().peekable();
        self.put_each(owner, records, ttl, |message, record, record_at| {
            let mut from = RECORD_HEAD;
            let is_pointer = |at: usize| patches.next_if_eq(&(record_at + at)).is_some();
            for name in stored_names(records.rtype(), record, is_pointer).into_iter().flatten() {
                message.writer.put(&record[from..name.start])?;
                message.put_stored(records.records(), &record[name.start..name.plain_end], name.pointer)?;
                from = name.end;
            }
            message.writer.put(&record[from..])
        })
    }

    /// Writes the records of an RRset; `put_data` writes the data of each, given the stored record and its offset in the RRset.
    /// Writes all or nothing.
    fn put_each(
        &mut self,
        owner: Owner<'_>,
        records: &Records<'_>,
        ttl: Option<u32>,
        mut put_data: impl FnMut(&mut Self, &[u8], usize) -> Result<(), Full>,
    ) -> Result<(), Full> {
        let start = self.writer.position();
        let mut put = || -> Result<(), Full> {
            let mut record_at = 0;
            for record in split_records(records.records()) {
                self.put_owner(if record_at == 0 { owner } else { self.same_owner(owner, start) })?;
                self.put_middle(record, ttl)?;
                let length_at = self.writer.position();
                self.writer.put_u16(0)?;
                put_data(self, record, record_at)?;
                let length = (self.writer.position() - length_at - 2) as u16;
                self.writer.written_mut()[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
                record_at += record.len();
            }
            Ok(())
        };
        put().inspect_err(|Full| self.rewind(start))
    }

    /// Writes the name of these labels and the target of a stored pointer after them, compressed.
    fn put_stored(&mut self, records: &[u8], plain: &[u8], pointer: Option<u16>) -> Result<(), Full> {
        let mut name = [0; NAME_OCTETS_MAX];
        let mut length = 0;
        let mut append = |octets: &[u8]| {
            name[length..length + octets.len()].copy_from_slice(octets);
            length += octets.len();
        };
        append(plain);
        let tail = pointer.map_or(Tail::Root, |stored| follow(records, stored, &mut append));
        let written = self.writer.written();
        match tail {
            Tail::Root => append(&[0]),
            Tail::Apex(octets) => {
                let apex_end = QUESTION_AT + usize::from(self.question_length);
                append(&written[apex_end - octets..apex_end]);
            }
            Tail::Owner(octets) => {
                let mut current = [0; NAME_OCTETS_MAX];
                let at = self.names.as_ref().map_or(QUESTION_AT, |names| names.current);
                let current = expand(written, at, &mut current).ok_or(Full)?;
                append(&current[current.len() - octets..]);
            }
        }
        self.put_name(&name[..length])
    }

    /// Writes the target of a stored pointer in full.
    fn write_out_name(&mut self, records: &[u8], stored: u16) -> Result<(), Full> {
        let mut result = Ok(());
        let tail = follow(records, stored, |labels| result = result.and_then(|()| self.writer.put(labels)));
        result?;
        match tail {
            Tail::Root => self.writer.put(&[0]),
            Tail::Apex(octets) => self.put_apex(octets),
            Tail::Owner(octets) => {
                // The labels of the looked-up name, from its position on.
                let mut labels = [0; NAME_OCTETS_MAX];
                let labels = &mut labels[..octets - self.apex_octets()];
                let at = self.name_end - octets;
                labels.copy_from_slice(&self.writer.written()[at..at + labels.len()]);
                self.writer.put(labels)?;
                self.put_apex(self.apex_octets())
            }
        }
    }

    #[inline]
    fn counted(&mut self, section: Section, start: usize, records: usize) -> Result<(), Full> {
        // Readers find sections only by their counts.
        debug_assert!(self.counts[section as usize + 1..].iter().all(|count| *count == 0), "{section:?} comes late");
        let count = &mut self.counts[section as usize];
        match count.checked_add(records.try_into().map_err(|_| Full)?) {
            Some(sum) => *count = sum,
            None => {
                self.rewind(start);
                return Err(Full);
            }
        }
        Ok(())
    }
}

/// Returns the index of the first record; all are equally likely.
#[inline]
fn rotation(records: &Records<'_>, random: u32) -> usize {
    // The product's upper half, without a division.
    ((u64::from(random) * records.count() as u64) >> 32) as usize
}
