//! The length of each kind of field, and the rules for its octets.
//!
//! Octets come from messages, transfers and files, so none is trusted: every read stays within the data.

use super::{Field, RdataError};
use crate::wire::name::{NameError, wire_end};

/// Returns the end of `field`, which starts at octet `start` of `rdata`.
pub(super) fn end_of(field: Field, rdata: &[u8], start: usize) -> Result<usize, RdataError> {
    let rest = &rdata[start..];
    let malformed = |reason| RdataError::Malformed(field, reason);
    let fixed = |octets: usize| match rest.len() >= octets {
        true => Ok(start + octets),
        false => Err(RdataError::Truncated(field)),
    };
    let counted = |at_least: usize| match rest.split_first() {
        Some((&length, tail)) if tail.len() >= usize::from(length) => match usize::from(length) >= at_least {
            true => Ok(start + 1 + usize::from(length)),
            false => Err(malformed("is empty")),
        },
        _ => Err(RdataError::Truncated(field)),
    };
    let to_end = |at_least: usize| match rest.len() >= at_least {
        true => Ok(rdata.len()),
        false => Err(RdataError::Truncated(field)),
    };
    match field {
        Field::Name(_) => Ok(end_of_name(rdata, start)?),
        Field::Names => Ok(end_of_names(rdata, start)?),
        Field::U8 | Field::Algorithm | Field::Scheme => fixed(1),
        Field::U16 | Field::Type | Field::CertificateType => fixed(2),
        Field::U32 | Field::Seconds | Field::Timestamp | Field::Ipv4 => fixed(4),
        Field::Eui48 => fixed(6),
        Field::Eui64 | Field::Node64 => fixed(8),
        Field::Ipv6 => fixed(16),
        Field::CharacterString | Field::Salt => counted(0),
        // Before it stand the algorithm of the hash and how it is used. RFC 5155 §11: 1 is SHA-1, and there is no other.
        Field::HashedOwner => match (rdata[0], counted(1)?) {
            (1, end) if end != start + 1 + 20 => Err(malformed("the hash does not have the 20 octets of SHA-1")),
            (_, end) => Ok(end),
        },
        Field::CharacterStrings => {
            check_character_strings(rest).ok_or(RdataError::Truncated(field)).map(|()| rdata.len())
        }
        Field::Tag => {
            let end = counted(1)?;
            match rdata[start + 1..end].iter().all(u8::is_ascii_alphanumeric) {
                true => Ok(end),
                false => Err(malformed("has invalid characters")),
            }
        }
        Field::Text | Field::Base64OrNone | Field::Opaque => to_end(0),
        Field::Target | Field::Hex | Field::Nsap | Field::Base64 => to_end(1),
        Field::TypeBitmap => check_type_bitmap(rest).map_err(malformed).map(|()| rdata.len()),
        Field::Gateway => match rdata[1] {
            0 => Ok(start),
            1 => fixed(4),
            2 => fixed(16),
            3 => Ok(end_of_name(rdata, start)?),
            _ => Err(malformed("the gateway type is not 0 to 3")),
        },
        Field::Relay => match rest.first().ok_or(RdataError::Truncated(field))? & 0x7f {
            0 => Ok(start + 1),
            1 => fixed(1 + 4),
            2 => fixed(1 + 16),
            3 => Ok(end_of_name(rdata, start + 1)?),
            _ => Err(malformed("the relay type is not 0 to 3")),
        },
        Field::ZoneDigest => {
            check_zone_digest(rdata[start - 2], rdata[start - 1], rest.len()).map_err(malformed).map(|()| rdata.len())
        }
        Field::HostIdentity => match *rest {
            [0, ..] => Err(malformed("the tag is empty")),
            [_, _, 0, 0, ..] => Err(malformed("the key is empty")),
            [tag, _, high, low, ..] => fixed(4 + usize::from(tag) + usize::from(u16::from_be_bytes([high, low]))),
            _ => Err(RdataError::Truncated(field)),
        },
        Field::AddressPrefixes => check_address_prefixes(rest).map_err(malformed).map(|()| rdata.len()),
        Field::SvcParams => check_svc_params(rest).map_err(malformed).map(|()| rdata.len()),
        Field::Location => {
            let end = fixed(16)?;
            check_location(&rdata[start..end]).map_err(malformed).map(|()| end)
        }
    }
}

/// Returns the end of the uncompressed names that fill `octets` from octet `start` on.
fn end_of_names(octets: &[u8], mut start: usize) -> Result<usize, NameError> {
    while start < octets.len() {
        start = end_of_name(octets, start)?;
    }
    Ok(start)
}

/// Checks that strings with a length before each fill `octets`, and that there is one at least.
fn check_character_strings(mut octets: &[u8]) -> Option<()> {
    loop {
        let (&length, rest) = octets.split_first()?;
        octets = rest.get(usize::from(length)..)?;
        if octets.is_empty() {
            return Some(());
        }
    }
}

/// Checks the length of a digest. RFC 8976 §5.2 and §5.3: of the scheme 1, SIMPLE, the hash 1 is SHA-384, 2 SHA-512. Other
/// schemes may use a hash in their own way, as example A.3 does.
fn check_zone_digest(scheme: u8, hash: u8, octets: usize) -> Result<(), &'static str> {
    match (scheme, hash, octets) {
        (1, 1, 48) | (1, 2, 64) => Ok(()),
        (1, 1, _) => Err("the digest does not have the 48 octets of SHA-384"),
        (1, 2, _) => Err("the digest does not have the 64 octets of SHA-512"),
        (_, _, 12..) => Ok(()),
        _ => Err("the digest has fewer than 12 octets"),
    }
}

/// Returns the end of the uncompressed name that starts at octet `start` of `octets`.
pub(super) fn end_of_name(octets: &[u8], start: usize) -> Result<usize, NameError> {
    wire_end(&octets[start..]).map(|length| start + length)
}

/// RFC 4034 §4.1.2: "Blocks are present in the NSEC RR RDATA in increasing numerical order", 1 to 32 octets each, and
/// "trailing zero octets in the bitmap MUST be omitted".
fn check_type_bitmap(mut rest: &[u8]) -> Result<(), &'static str> {
    let mut window_min = 0;
    while !rest.is_empty() {
        let [window, length @ 1..=32, tail @ ..] = rest else { return Err("a window is not 1 to 32 octets long") };
        if u16::from(*window) < window_min {
            return Err("the windows are not in increasing order");
        }
        window_min = u16::from(*window) + 1;
        let (bits, tail) = tail.split_at_checked(usize::from(*length)).ok_or("a window extends past the end")?;
        if bits.last() == Some(&0) {
            return Err("a window ends in a zero octet");
        }
        rest = tail;
    }
    Ok(())
}

/// RFC 3123 §4: family, prefix length, negation bit with the length of the address part, which "MUST NOT" end in zeros.
fn check_address_prefixes(mut rest: &[u8]) -> Result<(), &'static str> {
    while !rest.is_empty() {
        let [family_high, family_low, prefix, negated_length, tail @ ..] = rest else {
            return Err("a prefix is truncated");
        };
        let length = usize::from(negated_length & 0x7f);
        let (address, tail) = tail.split_at_checked(length).ok_or("an address extends past the end")?;
        let bits = match u16::from_be_bytes([*family_high, *family_low]) {
            1 => 32,
            2 => 128,
            _ => 255,
        };
        if *prefix > bits || (bits != 255 && length * 8 > usize::from(bits)) {
            return Err("a prefix is longer than an address of its family");
        }
        if address.last() == Some(&0) {
            return Err("an address ends in a zero octet");
        }
        rest = tail;
    }
    Ok(())
}

/// RFC 1876 §2.
fn check_location(octets: &[u8]) -> Result<(), &'static str> {
    let quad = |at: usize| u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
    if octets[0] != 0 {
        return Err("the version is not 0");
    }
    if octets[1..4].iter().any(|size| size >> 4 > 9 || size & 0xf > 9) {
        return Err("a size or precision is not a digit and a power of ten");
    }
    const EQUATOR: u32 = 1 << 31;
    const MILLISECONDS_A_DEGREE: u32 = 3_600_000;
    if quad(4).abs_diff(EQUATOR) > 90 * MILLISECONDS_A_DEGREE || quad(8).abs_diff(EQUATOR) > 180 * MILLISECONDS_A_DEGREE
    {
        return Err("the position is not on the globe");
    }
    Ok(())
}

/// RFC 9460 §2.2 and §7: keys are strictly increasing, each value is valid for its key, and mandatory keys are present.
fn check_svc_params(rest: &[u8]) -> Result<(), &'static str> {
    let mut key_min = 0u32;
    let mut has_alpn = false;
    // The keys that "mandatory" lists and that have not appeared yet; it is key 0, so it precedes all others.
    let mut awaited: &[u8] = &[];
    for param in svc_params(rest) {
        let (key, value) = param?;
        if u32::from(key) < key_min {
            return Err("the keys are not in strictly increasing order");
        }
        key_min = u32::from(key) + 1;
        if awaited.first_chunk() == Some(&key.to_be_bytes()) {
            awaited = &awaited[2..];
        }
        match key {
            0 => {
                if value.is_empty() || value.len() % 2 != 0 {
                    return Err("mandatory needs at least one key");
                }
                let mut listed_min = 1u32; // §8: "mandatory" itself must not be listed
                for pair in value.chunks_exact(2) {
                    let listed = u16::from_be_bytes([pair[0], pair[1]]);
                    if u32::from(listed) < listed_min {
                        return Err("the keys of mandatory are not in strictly increasing order");
                    }
                    listed_min = u32::from(listed) + 1;
                }
                awaited = value;
            }
            1 => {
                has_alpn = true;
                let mut ids = value;
                loop {
                    let Some((&length @ 1.., tail)) = ids.split_first() else {
                        return Err("alpn needs identifiers of at least one octet");
                    };
                    ids = tail.get(usize::from(length)..).ok_or("an alpn identifier extends past the end")?;
                    if ids.is_empty() {
                        break;
                    }
                }
            }
            2 if !value.is_empty() => return Err("no-default-alpn must not have a value"),
            2 if !has_alpn => return Err("no-default-alpn needs alpn"),
            3 if value.len() != 2 => return Err("port must be one number"),
            4 if value.is_empty() || value.len() % 4 != 0 => return Err("ipv4hint needs IPv4 addresses"),
            5 if value.is_empty() => return Err("ech is empty"),
            6 if value.is_empty() || value.len() % 16 != 0 => return Err("ipv6hint needs IPv6 addresses"),
            7 if value.is_empty() => return Err("dohpath is empty"),
            8 if !value.is_empty() => return Err("ohttp must not have a value"),
            _ => {}
        }
    }
    if awaited.is_empty() { Ok(()) } else { Err("a mandatory key is missing") }
}

/// Returns the keys and values of service parameters ([`Field::SvcParams`]), in order; ends after an error.
pub fn svc_params(mut rest: &[u8]) -> impl Iterator<Item = Result<(u16, &[u8]), &'static str>> {
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if let [a, b, c, d, tail @ ..] = rest
            && let Some((value, tail)) = tail.split_at_checked(usize::from(u16::from_be_bytes([*c, *d])))
        {
            rest = tail;
            return Some(Ok((u16::from_be_bytes([*a, *b]), value)));
        }
        rest = &[];
        Some(Err("a parameter extends past the end"))
    })
}
