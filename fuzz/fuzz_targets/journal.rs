//! Arbitrary octets as a journal, and as entries of one. The properties: entries that are written are read back, and a file with a
//! changed octet is either rejected or read as before. Only a last frame that ends in zeros can count as an incomplete write.

#![no_main]

use libfuzzer_sys::fuzz_target;
use signpost_dns::zone::journal::{self, Entry, JournalError, Recovered, Writer};

const VERSION: u32 = 1;

fuzz_target!(|octets: &[u8]| {
    if let Ok((found, _)) = read(octets) {
        assert_eq!(found.good_octets + found.torn_octets, octets.len());
        assert!(found.snapshot_octets <= found.good_octets);
    }
    let Some((&[at_low, at_high, change, snapshot_entries], rest)) = octets.split_first_chunk::<4>() else { return };
    let entries = entries(rest);
    let (snapshot, appended) = entries.split_at(entries.len().min(usize::from(snapshot_entries)));
    let mut file = Writer::with_header(VERSION);
    snapshot.iter().for_each(|entry| assert!(file.put(*entry)));
    file.end_snapshot();
    let mut file = file.finish();
    let snapshot_octets = file.len();
    for entry in appended {
        let mut frame = Writer::append();
        assert!(frame.put(*entry));
        file.extend(frame.finish());
    }
    let whole = Recovered { good_octets: file.len(), torn_octets: 0, snapshot_octets };
    assert_eq!(read(&file), Ok((whole, entries.clone())));

    let at = usize::from(u16::from_le_bytes([at_low, at_high])) % file.len();
    let mut damaged = file.clone();
    damaged[at] ^= change;
    match read(&damaged) {
        Ok((found, fewer)) if found.torn_octets > 0 => {
            assert!(file.ends_with(&[0]) && fewer == entries[..entries.len() - 1], "octet {at}");
        }
        Ok(found) => assert_eq!(found, (whole, entries), "octet {at}"),
        Err(_) => {}
    }
});

fn read(octets: &[u8]) -> Result<(Recovered, Vec<Entry<'_>>), JournalError> {
    let mut entries = Vec::new();
    let found = journal::read(octets, VERSION, |entry| entries.push(entry))?;
    Ok((found, entries))
}

/// Splits octets into entries: each begins with the length of its key, and that of its value or 255 without one.
fn entries(mut octets: &[u8]) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    while let Some((&[key_octets, value_octets], rest)) = octets.split_first_chunk::<2>() {
        let (key, rest) = rest.split_at(rest.len().min(usize::from(key_octets)));
        let (value, rest) = match value_octets {
            255 => (None, rest),
            length => {
                let (value, rest) = rest.split_at(rest.len().min(usize::from(length)));
                (Some(value), rest)
            }
        };
        entries.push(Entry { key, value });
        octets = rest;
    }
    entries
}
