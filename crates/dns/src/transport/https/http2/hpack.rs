//! HPACK (RFC 7541): decodes the field sections of requests. Responses need no encoder: see [`super::response`].

use std::collections::VecDeque;

use super::huffman;

/// The maximum size of the dynamic table, by the measure of the standard: the default of SETTINGS_HEADER_TABLE_SIZE.
const TABLE_OCTETS_MAX: usize = 4_096;

/// The share of each entry in the size of the table, in addition to its octets (RFC 7541 §4.1).
const ENTRY_OCTETS: usize = 32;

/// The decoder of one connection.
pub(super) struct Decoder {
    table: Table,
    /// The buffers of names and values that were in the Huffman code.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    pub(super) fn new() -> Self {
        let table = Table { entries: VecDeque::new(), octets: 0, octets_max: TABLE_OCTETS_MAX };
        Decoder { table, name: Vec::new(), value: Vec::new() }
    }

    /// Passes each field of a whole field section to `field`, as name and value; `None` if the section is malformed, or if `field`
    /// returns `None`. The decoder is of no use then.
    pub(super) fn decode(&mut self, section: &[u8], mut field: impl FnMut(&[u8], &[u8]) -> Option<()>) -> Option<()> {
        let Decoder { table, name, value } = self;
        let (mut rest, mut is_start) = (section, true);
        while let Some(&first) = rest.first() {
            match first {
                // §6.1: an indexed field.
                0x80.. => {
                    let (name, value) = table.get(integer(&mut rest, 7)?)?;
                    field(name, value)?;
                }
                // §6.3, §4.2: a new size of the table is at the beginning of a section.
                0x20..=0x3f => {
                    let octets_max = integer(&mut rest, 5)?;
                    if !is_start || octets_max > TABLE_OCTETS_MAX {
                        return None;
                    }
                    table.resize(octets_max);
                    continue;
                }
                // §6.2: a literal field; with 01, it becomes an entry of the table.
                _ => {
                    let is_entry = first & 0x40 != 0;
                    let index = integer(&mut rest, if is_entry { 6 } else { 4 })?;
                    let name = if index == 0 { string(&mut rest, name)? } else { table.get(index)?.0 };
                    let value = string(&mut rest, value)?;
                    field(name, value)?;
                    if is_entry {
                        // The entry of its name may be evicted for it.
                        let entry = Entry { octets: [name, value].concat().into(), name_octets: name.len() };
                        table.insert(entry);
                    }
                }
            }
            is_start = false;
        }
        Some(())
    }

    /// Releases buffers that are larger than this.
    pub(super) fn shrink(&mut self, octets_max: usize) {
        for buffer in [&mut self.name, &mut self.value] {
            buffer.clear();
            buffer.shrink_to(octets_max);
        }
    }
}

/// Reads an integer whose first octet has this many bits of it (§5.1).
fn integer(rest: &mut &[u8], prefix_bits: u32) -> Option<usize> {
    let (first, mut after) = rest.split_first()?;
    let prefix_max = (1 << prefix_bits) - 1;
    let mut value = usize::from(*first) & prefix_max;
    if value == prefix_max {
        // Larger ones than 28 bits exceed every limit.
        for shift in [0, 7, 14, 21] {
            let (octet, next) = after.split_first()?;
            after = next;
            value += usize::from(octet & 0x7f) << shift;
            if octet & 0x80 == 0 {
                *rest = after;
                return Some(value);
            }
        }
        return None;
    }
    *rest = after;
    Some(value)
}

/// Reads a string (§5.2).
fn string<'s, 'r: 's>(rest: &mut &'r [u8], buffer: &'s mut Vec<u8>) -> Option<&'s [u8]> {
    let is_coded = rest.first()? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (octets, after) = rest.split_at_checked(length)?;
    *rest = after;
    if !is_coded {
        return Some(octets);
    }
    buffer.clear();
    huffman::decode(octets, buffer)?;
    Some(buffer.as_slice())
}

/// The static table, and the entries that the client has added, the newest first (§2.3).
struct Table {
    entries: VecDeque<Entry>,
    /// The size, and the limit that the client has set.
    octets: usize,
    octets_max: usize,
}

/// A name with its value.
struct Entry {
    octets: Box<[u8]>,
    name_octets: usize,
}

impl Entry {
    fn field(&self) -> (&[u8], &[u8]) {
        self.octets.split_at(self.name_octets)
    }

    fn size(&self) -> usize {
        self.octets.len() + ENTRY_OCTETS
    }
}

impl Table {
    fn get(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let at = index.checked_sub(1)?;
        match STATIC.get(at) {
            Some((name, value)) => Some((name.as_bytes(), value.as_bytes())),
            None => self.entries.get(at - STATIC.len()).map(Entry::field),
        }
    }

    fn resize(&mut self, octets_max: usize) {
        self.octets_max = octets_max;
        self.evict(0);
    }

    /// An entry that is larger than the table empties it (§4.4).
    fn insert(&mut self, entry: Entry) {
        self.evict(entry.size());
        if entry.size() <= self.octets_max {
            self.octets += entry.size();
            self.entries.push_front(entry);
        }
    }

    /// Removes the oldest entries until there is room for this many octets.
    fn evict(&mut self, octets: usize) {
        while self.octets + octets > self.octets_max
            && let Some(entry) = self.entries.pop_back()
        {
            self.octets -= entry.size();
        }
    }
}

/// The static table (Appendix A), whose first entry has the index 1.
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    type Field = (&'static str, &'static str);

    /// Octets of spaced hexadecimal digits.
    fn octets(text: &str) -> Vec<u8> {
        let digits: String = text.split_whitespace().collect();
        data_encoding::HEXLOWER.decode(digits.as_bytes()).expect("hexadecimal digits")
    }

    fn decode(decoder: &mut Decoder, section: &[u8]) -> Option<Vec<(String, String)>> {
        let mut fields = Vec::new();
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        let add = |name: &[u8], value: &[u8]| {
            fields.push((text(name), text(value)));
            Some(())
        };
        decoder.decode(section, add).map(|()| fields)
    }

    /// Decodes sections one after the other; each has its fields, and the size of the table after it.
    fn check(octets_max: usize, sections: &[(&str, &[Field], usize)]) {
        let mut decoder = Decoder::new();
        decoder.table.resize(octets_max);
        for (section, expected, size) in sections {
            let fields = decode(&mut decoder, &octets(section)).unwrap_or_else(|| panic!("malformed: {section}"));
            let found: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
            assert_eq!((&found[..], decoder.table.octets), (*expected, *size), "{section}");
        }
    }

    const GET: [Field; 4] =
        [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];

    /// RFC 7541 Appendix C.2.
    #[test]
    fn representations() {
        check(
            4_096,
            &[(
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                &[("custom-key", "custom-header")],
                55,
            )],
        );
        check(4_096, &[("040c 2f73 616d 706c 652f 7061 7468", &[(":path", "/sample/path")], 0)]);
        check(4_096, &[("1008 7061 7373 776f 7264 0673 6563 7265 74", &[("password", "secret")], 0)]);
        check(4_096, &[("82", &[(":method", "GET")], 0)]);
    }

    /// Appendix C.3 and C.4: the same requests, without and with the Huffman code.
    #[test]
    fn requests() {
        let second = [&GET[..], &[("cache-control", "no-cache")]].concat();
        let third = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ];
        check(
            4_096,
            &[
                ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", &GET, 57),
                ("8286 84be 5808 6e6f 2d63 6163 6865", &second, 110),
                ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", &third, 164),
            ],
        );
        check(
            4_096,
            &[
                ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", &GET, 57),
                ("8286 84be 5886 a8eb 1064 9cbf", &second, 110),
                ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", &third, 164),
            ],
        );
    }

    /// Appendix C.6: responses, with a table of 256 octets, so that entries are evicted.
    #[test]
    fn evictions() {
        let fields = |status, date| {
            [(":status", status), ("cache-control", "private"), ("date", date), ("location", "https://www.example.com")]
        };
        let first = fields("302", "Mon, 21 Oct 2013 20:13:21 GMT");
        let second = fields("307", "Mon, 21 Oct 2013 20:13:21 GMT");
        let [status, cache, date, location] = fields("200", "Mon, 21 Oct 2013 20:13:22 GMT");
        let cookie = ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");
        let third = [status, cache, date, location, ("content-encoding", "gzip"), cookie];
        check(
            256,
            &[
                (
                    "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
                     1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                    &first,
                    222,
                ),
                ("4883 640e ffc1 c0bf", &second, 222),
                (
                    "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
                     e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                    &third,
                    215,
                ),
            ],
        );
    }

    #[test]
    fn malformed_sections() {
        for section in [
            // No index 0, and none without an entry.
            "80",
            "be",
            "7e 01 61",
            // Cut off: an integer, a name, a value.
            "ff",
            "ff 80",
            "40",
            "40 05 61",
            "04 05 61",
            "40 01 61",
            // An integer of more than 28 bits.
            "ff 80 80 80 80 01",
            "04 7f ff ff ff ff 0f",
            // A size of the table that is too large, or not at the beginning.
            "3f e2 1f",
            "82 20",
            // Padding with zeros.
            "04 81 18",
        ] {
            assert_eq!(decode(&mut Decoder::new(), &octets(section)), None, "{section}");
        }
        // Two sizes at the beginning, and the largest one.
        assert_eq!(decode(&mut Decoder::new(), &octets("20 3f e1 1f 82")).map(|fields| fields.len()), Some(1));
    }

    #[test]
    fn an_entry_may_be_evicted_for_one_with_its_name() {
        let mut decoder = Decoder::new();
        let large = [&octets("40 01 61 7f d1 1e")[..], &[b'x'; 4_048][..]].concat();
        // 1 + 4,048 + 32 octets are 15 less than the table has.
        assert!(decode(&mut decoder, &large).is_some_and(|fields| fields[0].1.len() == 4_048));
        let again = decode(&mut decoder, &octets("7e 01 62")).expect("a field");
        assert_eq!((&again[0].0[..], &again[0].1[..], decoder.table.entries.len()), ("a", "b", 1));
        // One that is larger than the table.
        let larger = [&octets("40 01 61 7f 81 1f")[..], &[b'x'; 4_096][..]].concat();
        assert!(decode(&mut decoder, &larger).is_some());
        assert_eq!((decoder.table.entries.len(), decoder.table.octets), (0, 0));
    }
}
