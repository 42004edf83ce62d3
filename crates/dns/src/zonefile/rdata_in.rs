//! Record data from text, driven by the table of [`crate::wire::rdata::field`].
//!
//! Each kind of field has one arm here. For any type, `\# length hex` is read as in RFC 3597 §5, and the result is validated like
//! data from the wire.

use data_encoding::{BASE32HEX_NOPAD, BASE64, HEXUPPER_PERMISSIVE};

use super::finding::Fault;
use super::scan::{Scanner, Word};
use super::values::{digits, expected_but, number, push_name, push_text, seconds, timestamp};
use super::{location, svc};
use crate::wire::rdata::{self, Field, RDATA_OCTETS_MAX};
use crate::wire::{Name, RecordType};

/// Reads the data of a record of `rtype`, up to the end of the entry, into `out`, which is cleared before.
pub(super) fn read(
    rtype: RecordType,
    scanner: &mut Scanner<'_>,
    origin: Option<&Name>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    out.clear();
    let start = scanner.clone();
    let first = scanner.word()?;
    let at = first.map_or_else(|| scanner.position(), |word| word.at);
    let fields = rdata::fields(rtype);
    match first {
        Some(word) if word.raw == br"\#" && !word.quoted => read_generic(scanner, out)?,
        _ if fields == [Field::Opaque] => {
            let found = first.map_or_else(|| "the end of the record".to_owned(), |word| word.shown().to_string());
            let expected = format!("\\#, a length and hex digits, because {rtype} has no other text form here");
            return Err(Fault::new(at, "rdata", format!("expected {expected}, found {found}")));
        }
        _ => {
            *scanner = start;
            for &field in fields {
                read_field(field, &mut Source { scanner, origin, field }, out)?;
            }
        }
    }
    if let Some(extra) = scanner.word()? {
        return Err(Fault::new(
            extra.at,
            "rdata",
            format!("expected the end of the {rtype} record, found {}", extra.shown()),
        ));
    }
    rdata::validate(rtype, out).map_err(|error| Fault::new(at, "rdata", format!("{rtype}: {error}")))
}

/// The source of a field's words.
struct Source<'s, 'a> {
    scanner: &'s mut Scanner<'a>,
    origin: Option<&'s Name>,
    field: Field,
}

impl<'a> Source<'_, 'a> {
    /// The next word, quoted or not.
    fn text(&mut self) -> Result<Word<'a>, Fault> {
        let word = self.scanner.word()?;
        word.ok_or_else(|| {
            let message = format!("expected {}, found the end of the record", self.field);
            Fault::new(self.scanner.position(), "rdata", message)
        })
    }

    /// The next word, which must not be quoted.
    fn plain(&mut self) -> Result<Word<'a>, Fault> {
        let word = self.text()?;
        if word.quoted { Err(self.unexpected(&word)) } else { Ok(word) }
    }

    fn unexpected(&self, word: &Word<'_>) -> Fault {
        expected_but(word, &self.field.to_string(), "rdata")
    }

    /// The next word as parsed by `parse`.
    fn parsed<T>(&mut self, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Fault> {
        let word = self.plain()?;
        std::str::from_utf8(word.raw).ok().and_then(parse).ok_or_else(|| self.unexpected(&word))
    }

    fn number(&mut self, max: u64) -> Result<u64, Fault> {
        let word = self.plain()?;
        number(&word, max, &self.field.to_string())
    }

    /// Returns the words up to the end of the entry, joined, with the first word.
    fn joined(&mut self) -> Result<Option<(Word<'a>, Vec<u8>)>, Fault> {
        let Some(first) = self.scanner.word()? else { return Ok(None) };
        let mut all = Vec::new();
        let mut word = first;
        loop {
            if word.quoted {
                return Err(self.unexpected(&word));
            }
            all.extend_from_slice(word.raw);
            match self.scanner.word()? {
                Some(next) => word = next,
                None => return Ok(Some((first, all))),
            }
        }
    }

    /// Like `joined`, decoded.
    fn decoded(&mut self, decode: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Result<Vec<u8>, Fault> {
        let Some((first, all)) = self.joined()? else {
            self.text()?;
            return Ok(Vec::new());
        };
        decode(&all).ok_or_else(|| self.unexpected(&first))
    }
}

fn read_field(field: Field, source: &mut Source<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    match field {
        Field::Name(_) => {
            let word = source.text()?;
            push_name(&word, source.origin, out)?;
        }
        Field::Names => {
            while let Some(word) = source.scanner.word()? {
                push_name(&word, source.origin, out)?;
            }
        }
        Field::U8 => out.push(source.number(u8::MAX.into())? as u8),
        Field::U16 => out.extend((source.number(u16::MAX.into())? as u16).to_be_bytes()),
        Field::U32 => out.extend((source.number(u32::MAX.into())? as u32).to_be_bytes()),
        Field::Type => out.extend(source.parsed(|text| text.parse::<RecordType>().ok())?.0.to_be_bytes()),
        Field::Algorithm => out.push(source.parsed(|text| coded(text, ALGORITHMS, u8::MAX.into()))? as u8),
        Field::CertificateType => {
            out.extend(source.parsed(|text| coded(text, CERTIFICATE_TYPES, u16::MAX))?.to_be_bytes());
        }
        Field::Seconds => {
            let word = source.plain()?;
            out.extend(seconds(&word).ok_or_else(|| source.unexpected(&word))?.to_be_bytes());
        }
        Field::Timestamp => out.extend(source.parsed(|text| timestamp(text.as_bytes()))?.to_be_bytes()),
        Field::Ipv4 => out.extend(source.parsed(|text| text.parse::<std::net::Ipv4Addr>().ok())?.octets()),
        Field::Ipv6 => out.extend(source.parsed(|text| text.parse::<std::net::Ipv6Addr>().ok())?.octets()),
        Field::Node64 => out.extend(source.parsed(node64)?),
        Field::Eui48 => out.extend(source.parsed(dashed_pairs::<6>)?),
        Field::Eui64 => out.extend(source.parsed(dashed_pairs::<8>)?),
        Field::CharacterString | Field::Tag => {
            push_character_string(&source.text()?, out)?;
        }
        Field::CharacterStrings => {
            push_character_string(&source.text()?, out)?;
            while let Some(word) = source.scanner.word()? {
                push_character_string(&word, out)?;
                check_length(&word, out)?;
            }
        }
        Field::Text | Field::Target => push_text(&source.text()?, out)?,
        Field::Hex | Field::ZoneDigest => out.extend(source.decoded(hex)?),
        Field::Scheme => out.push(source.parsed(|text| coded(text, SCHEMES, u8::MAX.into()))? as u8),
        Field::Nsap => {
            let word = source.plain()?;
            out.extend(nsap(word.raw).ok_or_else(|| source.unexpected(&word))?);
        }
        Field::Base64 => out.extend(source.decoded(base64)?),
        Field::Base64OrNone => {
            if let Some((first, all)) = source.joined()? {
                out.extend(base64(&all).ok_or_else(|| source.unexpected(&first))?);
            }
        }
        Field::Salt => {
            let word = source.plain()?;
            let salt = if word.raw == b"-" { Some(Vec::new()) } else { hex(word.raw) };
            push_counted(&salt.ok_or_else(|| source.unexpected(&word))?, &word, out)?;
        }
        Field::HashedOwner => {
            let word = source.plain()?;
            let hash = BASE32HEX_NOPAD.decode(&word.raw.to_ascii_uppercase()).ok();
            push_counted(&hash.ok_or_else(|| source.unexpected(&word))?, &word, out)?;
        }
        Field::TypeBitmap => read_type_bitmap(source, out)?,
        Field::Gateway if out[1] > 3 => {
            let at = source.scanner.position();
            return Err(Fault::new(at, "rdata", "expected a gateway type from 0 to 3 before this"));
        }
        Field::Gateway => read_host(out[1], source, "the gateway type is 0", out)?,
        Field::Relay => read_relay(source, out)?,
        Field::HostIdentity => read_host_identity(source, out)?,
        Field::AddressPrefixes => read_address_prefixes(source, out)?,
        Field::SvcParams => svc::read(source.scanner, out)?,
        Field::Location => location::read(source.scanner, out)?,
        // The caller has already handled types with only this field.
        Field::Opaque => {}
    }
    Ok(())
}

/// The octets of an NSAP address (RFC 1706 §7): hex digits after `0x`, with dots anywhere.
fn nsap(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X"))?;
    hex(&digits.iter().copied().filter(|octet| *octet != b'.').collect::<Vec<_>>())
}

/// Algorithm, host identity tag and public key (RFC 8005 §6).
fn read_host_identity(source: &mut Source<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let algorithm = source.number(u8::MAX.into())? as u8;
    let word = source.plain()?;
    let tag = hex(word.raw).filter(|tag| tag.len() <= 255);
    let tag = tag.ok_or_else(|| expected_but(&word, "a host identity tag in hex", "rdata"))?;
    let word = source.plain()?;
    let key = base64(word.raw).filter(|key| key.len() <= RDATA_OCTETS_MAX);
    let key = key.ok_or_else(|| expected_but(&word, "a public key in base64", "rdata"))?;
    out.extend([tag.len() as u8, algorithm]);
    out.extend((key.len() as u16).to_be_bytes());
    out.extend(tag);
    out.extend(key);
    Ok(())
}

/// A relay: whether it was discovered, its kind, and its host (RFC 8777 §4.3).
fn read_relay(source: &mut Source<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let discovery = source.number(1)? as u8;
    let kind = source.number(3)? as u8;
    out.push(discovery << 7 | kind);
    read_host(kind, source, "the relay type is 0", out)
}

/// Address prefixes (RFC 3123 §5).
fn read_address_prefixes(source: &mut Source<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    while let Some(word) = source.scanner.word()? {
        let prefix = std::str::from_utf8(word.raw).ok().filter(|_| !word.quoted).and_then(address_prefix);
        out.extend(prefix.ok_or_else(|| source.unexpected(&word))?);
    }
    Ok(())
}

/// Reads a host in one of four forms (RFC 4025 §2.5, RFC 8777 §4.3.1), by `kind`: none, written as `.` (for the reason
/// `none_because`), an IPv4 address, an IPv6 address, or a name.
fn read_host(kind: u8, source: &mut Source<'_, '_>, none_because: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    match kind {
        0 => {
            let word = source.plain()?;
            if word.raw != b"." {
                return Err(expected_but(&word, &format!("'.' since {none_because}"), "rdata"));
            }
        }
        1 => out.extend(source.parsed(|text| text.parse::<std::net::Ipv4Addr>().ok())?.octets()),
        2 => out.extend(source.parsed(|text| text.parse::<std::net::Ipv6Addr>().ok())?.octets()),
        _ => {
            let word = source.text()?;
            push_name(&word, source.origin, out)?;
        }
    }
    Ok(())
}

/// Reads the rest after `\#`: a length in octets, and that many octets in hex, in any number of words (RFC 3597 §5).
fn read_generic(scanner: &mut Scanner<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut source = Source { scanner, origin: None, field: Field::Opaque };
    let length = source.text()?;
    let octets = number(&length, RDATA_OCTETS_MAX as u64, "the length of the data in octets, up to 65535")?;
    if let Some((first, digits)) = source.joined()? {
        *out = hex(&digits).ok_or_else(|| source.unexpected(&first))?;
    }
    if out.len() as u64 != octets {
        let message = format!("expected {octets} octets of data in hex, found {}", out.len());
        return Err(Fault::new(length.at, "rdata", message));
    }
    Ok(())
}

fn read_type_bitmap(source: &mut Source<'_, '_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut types = Vec::new();
    while let Some(word) = source.scanner.word()? {
        let rtype = std::str::from_utf8(word.raw).ok().filter(|_| !word.quoted).and_then(|text| text.parse().ok());
        types.push(rtype.ok_or_else(|| source.unexpected(&word))?);
    }
    types.sort_unstable();
    let mut at = 0;
    while let Some(RecordType(first)) = types.get(at).copied() {
        let [window, _] = first.to_be_bytes();
        let mut bits = [0u8; 32];
        let mut octets = 0;
        while let Some(RecordType(rtype)) = types.get(at).copied().filter(|rtype| rtype.0.to_be_bytes()[0] == window) {
            let low = usize::from(rtype & 0xff);
            bits[low / 8] |= 0x80 >> (low % 8);
            octets = low / 8 + 1;
            at += 1;
        }
        out.extend([window, octets as u8]);
        out.extend_from_slice(&bits[..octets]);
    }
    Ok(())
}

fn push_character_string(word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let length_at = out.len();
    out.push(0);
    push_text(word, out)?;
    let length = out.len() - length_at - 1;
    out[length_at] = u8::try_from(length).map_err(|_| {
        Fault::new(word.at, "rdata", format!("a string of {length} octets; the limit is 255; split it into several"))
    })?;
    Ok(())
}

fn push_counted(octets: &[u8], word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let length = u8::try_from(octets.len()).map_err(|_| expected_but(word, "at most 255 octets", "rdata"))?;
    out.push(length);
    out.extend_from_slice(octets);
    Ok(())
}

/// Stops a record with endless texts before it uses up the memory.
fn check_length(word: &Word<'_>, out: &[u8]) -> Result<(), Fault> {
    match out.len() > RDATA_OCTETS_MAX {
        true => Err(Fault::new(word.at, "rdata", "the record's data is longer than 65535 octets")),
        false => Ok(()),
    }
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    HEXUPPER_PERMISSIVE.decode(digits).ok()
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// `0014:4fff:ff20:ee64`
fn node64(text: &str) -> Option<[u8; 8]> {
    let mut node = [0; 8];
    let mut groups = text.split(':');
    for pair in node.chunks_exact_mut(2) {
        let group = groups.next().filter(|group| matches!(group.len(), 1..=4) && is_hex(group))?;
        pair.copy_from_slice(&u16::from_str_radix(group, 16).ok()?.to_be_bytes());
    }
    groups.next().is_none().then_some(node)
}

/// `00-00-5e-00-53-2a`
fn dashed_pairs<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut octets = [0; N];
    let mut pairs = text.split('-');
    for octet in &mut octets {
        let pair = pairs.next().filter(|pair| pair.len() == 2 && is_hex(pair))?;
        *octet = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(octets)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|octet| octet.is_ascii_hexdigit())
}

/// `!1:192.0.2.0/24` (RFC 3123 §5).
fn address_prefix(text: &str) -> Option<Vec<u8>> {
    let (negated, text) = match text.strip_prefix('!') {
        Some(rest) => (0x80, rest),
        None => (0, text),
    };
    let (family, rest) = text.split_once(':')?;
    let (address, prefix) = rest.split_once('/')?;
    let (family, address) = match family {
        "1" => (1u16, address.parse::<std::net::Ipv4Addr>().ok()?.octets().to_vec()),
        "2" => (2u16, address.parse::<std::net::Ipv6Addr>().ok()?.octets().to_vec()),
        _ => return None,
    };
    let significant = address.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    let mut wire = family.to_be_bytes().to_vec();
    wire.push(digits(prefix.as_bytes())?);
    wire.push(negated | significant as u8);
    wire.extend_from_slice(&address[..significant]);
    Some(wire)
}

/// A number up to `max`, or a mnemonic of `table`.
fn coded(text: &str, table: &[(&str, u16)], max: u16) -> Option<u16> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return digits(text.as_bytes()).filter(|code| *code <= max);
    }
    table.iter().find(|(mnemonic, _)| mnemonic.eq_ignore_ascii_case(text)).map(|(_, code)| *code)
}

/// The IANA registry of DNSSEC algorithm numbers.
const ALGORITHMS: &[(&str, u16)] = &[
    ("DELETE", 0),
    ("RSAMD5", 1),
    ("DH", 2),
    ("DSA", 3),
    ("RSASHA1", 5),
    ("DSA-NSEC3-SHA1", 6),
    ("NSEC3DSA", 6),
    ("RSASHA1-NSEC3-SHA1", 7),
    ("NSEC3RSASHA1", 7),
    ("RSASHA256", 8),
    ("RSASHA512", 10),
    ("ECC-GOST", 12),
    ("ECCGOST", 12),
    ("ECDSAP256SHA256", 13),
    ("ECDSAP384SHA384", 14),
    ("ED25519", 15),
    ("ED448", 16),
    ("INDIRECT", 252),
    ("PRIVATEDNS", 253),
    ("PRIVATEOID", 254),
];

/// RFC 9859 §6.2.
const SCHEMES: &[(&str, u16)] = &[("NOTIFY", 1)];

/// RFC 4398 §2.1.
const CERTIFICATE_TYPES: &[(&str, u16)] = &[
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];
