//! The text of service parameters (RFC 9460 §2.1 and appendix A): `alpn=h2,h3 port=8443 ipv4hint=192.0.2.1`.
//!
//! Values are character-strings; those of `alpn` and `mandatory` are comma-separated lists on top of that, so a comma or
//! backslash inside an alpn identifier is escaped twice.

use std::net::{Ipv4Addr, Ipv6Addr};

use data_encoding::BASE64;

use super::finding::Fault;
use super::scan::{Scanner, Word};
use super::values::{digits, expected_but, print, push_quoted, push_separated, push_text};
use crate::wire::rdata::svc_params;

/// The keys with names (IANA registry of service parameter keys).
const KEYS: &[(&str, u16)] = &[
    ("mandatory", 0),
    ("alpn", 1),
    ("no-default-alpn", 2),
    ("port", 3),
    ("ipv4hint", 4),
    ("ech", 5),
    ("ipv6hint", 6),
    ("dohpath", 7),
    ("ohttp", 8),
];

/// The last key that all recent name servers read and write by name; later keys are written as `keyNNN`.
const NAMED_WHEN_WRITTEN: u16 = 6;

/// Reads parameters up to the end of the entry and appends them sorted by key.
pub(super) fn read(scanner: &mut Scanner<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let mut params: Vec<(u16, Vec<u8>)> = Vec::new();
    while let Some(word) = scanner.parameter()? {
        let (key, value) = read_param(&word)?;
        if params.iter().any(|(known, _)| *known == key) {
            return Err(Fault::new(word.at, "rdata", format!("the parameter {} is set twice", key_text(key))));
        }
        if value.len() > usize::from(u16::MAX) {
            return Err(Fault::new(word.at, "rdata", "the parameter's value is longer than 65535 octets"));
        }
        params.push((key, value));
    }
    params.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in params {
        out.extend(key.to_be_bytes());
        out.extend((value.len() as u16).to_be_bytes());
        out.extend(value);
    }
    Ok(())
}

/// Appends the text of valid parameters, each after a blank.
pub(super) fn write(octets: &[u8], out: &mut Vec<u8>) {
    for (key, value) in svc_params(octets).flatten() {
        out.push(b' ');
        out.extend_from_slice(key_text(key).as_bytes());
        if value.is_empty() {
            continue;
        }
        out.push(b'=');
        match key {
            0 => push_separated(out, b',', value.as_chunks::<2>().0, |out, key| {
                print(out, key_text(u16::from_be_bytes(*key)));
            }),
            1 => push_quoted(&alpn_list(value), out),
            3 => print(out, u16::from_be_bytes([value[0], value[1]])),
            4 => push_separated(out, b',', value.as_chunks::<4>().0, |out, hint| print(out, Ipv4Addr::from(*hint))),
            5 => out.extend_from_slice(BASE64.encode(value).as_bytes()),
            6 => push_separated(out, b',', value.as_chunks::<16>().0, |out, hint| print(out, Ipv6Addr::from(*hint))),
            _ => push_quoted(value, out),
        }
    }
}

fn key_text(key: u16) -> String {
    match KEYS.iter().find(|(_, known)| *known == key && key <= NAMED_WHEN_WRITTEN) {
        Some((name, _)) => (*name).to_owned(),
        None => format!("key{key}"),
    }
}

fn read_key(text: &[u8]) -> Option<u16> {
    let named = KEYS.iter().find(|(name, _)| name.as_bytes() == text).map(|(_, key)| *key);
    named.or_else(|| read_numbered_key(text))
}

/// Reads `keyNNN`, whose value is used unchanged for any number (RFC 9460 §2.1).
fn read_numbered_key(text: &[u8]) -> Option<u16> {
    let number = text.strip_prefix(b"key")?;
    digits(number).filter(|_| number == b"0" || !number.starts_with(b"0"))
}

fn read_param(word: &Word<'_>) -> Result<(u16, Vec<u8>), Fault> {
    let at = word.raw.iter().position(|octet| *octet == b'=');
    let key_word = &word.raw[..at.unwrap_or(word.raw.len())];
    let key = read_key(key_word).filter(|_| !word.quoted);
    let key = key.ok_or_else(|| expected_but(word, "a service parameter (key=value)", "rdata"))?;
    let value = at.map_or(&b""[..], |at| &word.raw[at + 1..]);
    let value = value.strip_prefix(b"\"").and_then(|inner| inner.strip_suffix(b"\"")).unwrap_or(value);
    let mut text = Vec::new();
    push_text(&Word { raw: value, ..*word }, &mut text)?;
    if read_numbered_key(key_word).is_some() {
        return Ok((key, text));
    }
    let parsed = match key {
        0 => list(&text, |item| read_key(item).map(u16::to_be_bytes)).map(|mut keys| {
            keys.sort_unstable();
            keys.concat()
        }),
        1 => read_alpn(&text),
        3 => digits(&text).map(|port: u16| port.to_be_bytes().to_vec()),
        4 => list(&text, |item| Some(utf8(item)?.parse::<Ipv4Addr>().ok()?.octets())).map(|hints| hints.concat()),
        5 => BASE64.decode(&text).ok(),
        6 => list(&text, |item| Some(utf8(item)?.parse::<Ipv6Addr>().ok()?.octets())).map(|hints| hints.concat()),
        7 => Some(text).filter(|text| is_doh_path(text)),
        _ => Some(text),
    };
    let what = match key {
        0 => "a list of keys after mandatory=",
        1 => "a list of protocols after alpn=",
        3 => "a number up to 65535 after port=",
        4 => "a list of IPv4 addresses after ipv4hint=",
        5 => "base64 after ech=",
        7 => "a path with the variable dns after dohpath=, such as /dns-query{?dns}",
        _ => "a list of IPv6 addresses after ipv6hint=",
    };
    Ok((key, parsed.ok_or_else(|| expected_but(word, what, "rdata"))?))
}

/// Returns whether it is a URI template (RFC 6570) of a path with the variable `dns` (RFC 9461 §5).
fn is_doh_path(text: &[u8]) -> bool {
    let Some(text) = utf8(text).filter(|text| text.starts_with('/')) else { return false };
    let mut expressions = text.split('{').skip(1).map_while(|rest| rest.split_once('}')).map(|(inside, _)| inside);
    expressions.any(|inside| {
        let variables = inside.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']);
        variables.split(',').any(|variable| matches!(variable.split([':', '*']).next(), Some("dns")))
    })
}

fn utf8(octets: &[u8]) -> Option<&str> {
    std::str::from_utf8(octets).ok()
}

fn list<T>(text: &[u8], parse: impl FnMut(&[u8]) -> Option<T>) -> Option<Vec<T>> {
    text.split(|octet| *octet == b',').map(parse).collect()
}

/// A comma-separated list (RFC 9460 appendix A.1) as counted identifiers.
fn read_alpn(text: &[u8]) -> Option<Vec<u8>> {
    let mut wire = vec![0];
    let mut length_at = 0;
    let mut octets = text.iter();
    loop {
        let octet = octets.next();
        match octet {
            None | Some(b',') => {
                let length = wire.len() - length_at - 1;
                wire[length_at] = u8::try_from(length).ok().filter(|length| *length > 0)?;
                if octet.is_none() {
                    return Some(wire);
                }
                length_at = wire.len();
                wire.push(0);
            }
            Some(b'\\') => wire.push(*octets.next().filter(|octet| matches!(octet, b',' | b'\\'))?),
            Some(&plain) => wire.push(plain),
        }
    }
}

fn alpn_list(mut wire: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    while let Some((&length, tail)) = wire.split_first() {
        let (id, rest) = tail.split_at(usize::from(length));
        wire = rest;
        if !text.is_empty() {
            text.push(b',');
        }
        for &octet in id {
            if matches!(octet, b',' | b'\\') {
                text.push(b'\\');
            }
            text.push(octet);
        }
    }
    text
}
