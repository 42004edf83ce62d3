//! Record data as text, driven by the table of [`crate::wire::rdata::field`].
//!
//! The written text reads back to the same octets, here and in other name servers. Data that a type's own text cannot express (an
//! APL of another family) is written as in RFC 3597 §5.

use std::net::{Ipv4Addr, Ipv6Addr};

use data_encoding::{BASE32HEX_NOPAD, BASE64, HEXUPPER};

use super::values::{print, push_quoted, push_separated, timestamp_text};
use super::{location, svc};
use crate::wire::name::push_name_text;
use crate::wire::rdata::{self, Field, Item};
use crate::wire::{Name, RecordType};

/// Returns the text of valid `rdata`, names absolute.
pub fn text(rtype: RecordType, rdata: &[u8]) -> String {
    let mut text = Vec::new();
    write(rtype, rdata, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Appends the text of valid `rdata`, names absolute.
pub fn write(rtype: RecordType, rdata: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    for item in rdata::walk(rtype, rdata) {
        let written = match item {
            Ok(item) => {
                if out.len() > start && item.field != Field::SvcParams {
                    out.push(b' ');
                }
                write_field(&item, rdata, out)
            }
            Err(_) => false,
        };
        if !written {
            out.truncate(start);
            write_generic(rdata, out);
            return;
        }
    }
    // The last field may be empty; an APL without prefixes has no words.
    if out.last() == Some(&b' ') && out.len() > start {
        out.pop();
    }
    if out.len() == start {
        write_generic(rdata, out);
    }
}

/// Appends one field; returns `false` if it has no text form.
fn write_field(item: &Item<'_>, rdata: &[u8], out: &mut Vec<u8>) -> bool {
    let octets = item.octets;
    match item.field {
        Field::Name(_) => push_name_text(octets, out),
        Field::Names => {
            let mut rest = octets;
            while let Ok((name, after)) = Name::split_from(rest) {
                if rest.len() < octets.len() {
                    out.push(b' ');
                }
                push_name_text(name.as_wire(), out);
                rest = after;
            }
        }
        Field::U8 | Field::Algorithm | Field::Scheme => print(out, octets[0]),
        Field::U16 | Field::CertificateType => print(out, number16(octets)),
        Field::U32 | Field::Seconds => print(out, u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]])),
        Field::Type => push_type(RecordType(number16(octets)), out),
        Field::Timestamp => {
            let seconds = u32::from_be_bytes([octets[0], octets[1], octets[2], octets[3]]);
            out.extend_from_slice(timestamp_text(seconds).as_bytes());
        }
        Field::Ipv4 => return push_address(octets, out),
        Field::Ipv6 => return push_address(octets, out),
        Field::Node64 => push_separated(out, b':', octets.chunks_exact(2), |out, pair| {
            print(out, format_args!("{:04x}", number16(pair)));
        }),
        Field::Eui48 | Field::Eui64 => {
            push_separated(out, b'-', octets, |out, octet| print(out, format_args!("{octet:02x}")))
        }
        Field::CharacterString => push_quoted(&octets[1..], out),
        Field::CharacterStrings => {
            let mut rest = octets;
            while let Some((&length, tail)) = rest.split_first() {
                if rest.len() < octets.len() {
                    out.push(b' ');
                }
                let (text, after) = tail.split_at(usize::from(length));
                push_quoted(text, out);
                rest = after;
            }
        }
        Field::Text | Field::Target => push_quoted(octets, out),
        Field::Tag => out.extend_from_slice(&octets[1..]),
        Field::Hex | Field::ZoneDigest => push_hex(octets, out),
        Field::Nsap => {
            out.extend_from_slice(b"0x");
            push_hex(octets, out);
        }
        Field::Base64 | Field::Base64OrNone => out.extend_from_slice(BASE64.encode(octets).as_bytes()),
        Field::Salt if octets.len() == 1 => out.push(b'-'),
        Field::Salt => push_hex(&octets[1..], out),
        Field::HashedOwner => out.extend_from_slice(BASE32HEX_NOPAD.encode(&octets[1..]).as_bytes()),
        Field::TypeBitmap => push_separated(out, b' ', rdata::types_in(octets), |out, rtype| push_type(rtype, out)),
        Field::Gateway => return push_host(rdata[1], octets, out),
        Field::Relay => {
            let (discovery, kind) = (octets[0] >> 7, octets[0] & 0x7f);
            print(out, format_args!("{discovery} {kind} "));
            return push_host(kind, &octets[1..], out);
        }
        Field::HostIdentity => {
            let (tag, key) = octets[4..].split_at(usize::from(octets[0]));
            print(out, format_args!("{} {} {}", octets[1], HEXUPPER.encode(tag), BASE64.encode(key)));
        }
        Field::AddressPrefixes => return push_address_prefixes(octets, out),
        Field::SvcParams => svc::write(octets, out),
        Field::Location if location::has_text(octets) => location::write(octets, out),
        Field::Location => return false,
        Field::Opaque => return false,
    }
    true
}

/// RFC 3597 §5.
fn write_generic(rdata: &[u8], out: &mut Vec<u8>) {
    print(out, format_args!("\\# {}", rdata.len()));
    if !rdata.is_empty() {
        out.push(b' ');
        push_hex(rdata, out);
    }
}

/// Appends a record's type and data in a form that other name servers also read: types that recent versions do not know by name
/// are written as in RFC 3597 §5.
pub(super) fn write_portable(rtype: RecordType, rdata: &[u8], out: &mut Vec<u8>) {
    push_type(rtype, out);
    out.push(b'\t');
    if is_portable(rtype) { write(rtype, rdata, out) } else { write_generic(rdata, out) }
}

/// Returns whether Knot 3.2, NSD 4.6 and BIND 9.18 all read the text of the type: some do not know these types, or reject them
/// as obsolete.
fn is_portable(rtype: RecordType) -> bool {
    use RecordType as T;
    const OWN_TEXT_REFUSED: [RecordType; 21] = [
        T::MD,
        T::MF,
        T::MB,
        T::MG,
        T::MR,
        T::X25,
        T::ISDN,
        T::NSAP,
        T::SIG,
        T::PX,
        T::GPOS,
        T::HIP,
        T::RESINFO,
        T::NINFO,
        T::RKEY,
        T::TALINK,
        T::DSYNC,
        T::AVC,
        T::AMTRELAY,
        T::TA,
        T::DLV,
    ];
    rdata::fields(rtype) != [Field::Opaque] && !OWN_TEXT_REFUSED.contains(&rtype)
}

/// Appends a mnemonic, or `TYPEnnn` where other readers may not know it.
fn push_type(rtype: RecordType, out: &mut Vec<u8>) {
    if is_portable(rtype) {
        print(out, rtype);
    } else {
        print(out, format_args!("TYPE{}", rtype.0));
    }
}

fn push_hex(octets: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(HEXUPPER.encode(octets).as_bytes());
}

fn push_address(octets: &[u8], out: &mut Vec<u8>) -> bool {
    if let Ok(octets) = <[u8; 4]>::try_from(octets) {
        print(out, Ipv4Addr::from(octets));
    } else if let Ok(octets) = <[u8; 16]>::try_from(octets) {
        print(out, Ipv6Addr::from(octets));
    } else {
        return false;
    }
    true
}

/// Appends the host of an IPSECKEY or AMTRELAY: none, an address or a name.
fn push_host(kind: u8, octets: &[u8], out: &mut Vec<u8>) -> bool {
    match kind {
        0 => out.push(b'.'),
        1 | 2 => return push_address(octets, out),
        _ => push_name_text(octets, out),
    }
    true
}

fn push_address_prefixes(mut rest: &[u8], out: &mut Vec<u8>) -> bool {
    let whole = rest.len();
    while let [_, family, prefix, negated_length, tail @ ..] = rest {
        let octets = usize::from(negated_length & 0x7f);
        let mut address = [0; 16];
        let space = match number16(rest) {
            1 => 4,
            2 => 16,
            _ => return false,
        };
        address[..octets].copy_from_slice(&tail[..octets]);
        let blank = if rest.len() < whole { " " } else { "" };
        let sign = if negated_length & 0x80 != 0 { "!" } else { "" };
        print(out, format_args!("{blank}{sign}{family}:"));
        push_address(&address[..space], out);
        print(out, format_args!("/{prefix}"));
        rest = &tail[octets..];
    }
    true
}

fn number16(octets: &[u8]) -> u16 {
    u16::from_be_bytes([octets[0], octets[1]])
}
