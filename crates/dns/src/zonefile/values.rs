//! Words as values: names, numbers, times, text.

use std::fmt::Display;
use std::io::Write as _;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use super::finding::Fault;
use super::scan::Word;
use crate::wire::Name;
use crate::wire::name::{NAME_OCTETS_MAX, NameError, push_decimal_escape, push_labels, unescape};
use crate::zone::Ttl;

/// Appends the name in `word`, in wire form, relative to `origin` (RFC 1035 §5.1).
///
/// An unescaped octet above 127 is rejected: it is nearly always an internationalized name without its conversion to an A-label.
/// Use `\DDD` for the octet itself.
pub(super) fn push_name(word: &Word<'_>, origin: Option<&Name>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let fault = |message: String| Fault::new(word.at, "name", message);
    let relative_to = || {
        origin.ok_or_else(|| {
            fault(format!(
                "{} is relative, but there is no origin, because the file name is not a zone name; end it with a dot, \
                 or write $ORIGIN before it",
                word.shown()
            ))
        })
    };
    if word.quoted {
        return Err(fault(format!("expected a domain name, found the quoted text {}", word.shown())));
    }
    let not_a_name = |error: NameError| fault(format!("{} is not a domain name: {error}", word.shown()));
    match word.raw {
        b"." => {
            out.push(0);
            return Ok(());
        }
        b"@" => {
            out.extend_from_slice(relative_to()?.as_wire());
            return Ok(());
        }
        _ => {}
    }
    let start = out.len();
    let is_absolute = push_labels(word.raw, |octet| octet.is_ascii(), out).map_err(|error| match error {
        NameError::Octet(octet) => fault(format!(
            "octet {octet} in a name; write an internationalized name as its A-label (xn--…), or the octet as \\{octet}"
        )),
        _ => not_a_name(error),
    })?;
    let origin = if is_absolute { &[0][..] } else { relative_to()?.as_wire() };
    out.extend_from_slice(origin);
    if out.len() - start > NAME_OCTETS_MAX {
        return Err(not_a_name(NameError::TooLong));
    }
    Ok(())
}

/// Returns the name in `word`, relative to `origin`.
pub(super) fn name(word: &Word<'_>, origin: Option<&Name>) -> Result<Name, Fault> {
    let mut wire = Vec::with_capacity(NAME_OCTETS_MAX);
    push_name(word, origin, &mut wire)?;
    Name::from_wire(&wire).map_err(|error| Fault::new(word.at, "name", error.to_string()))
}

/// Parses `word` as a decimal number up to `max`; `expected` describes its use.
pub(super) fn number(word: &Word<'_>, max: u64, expected: &str) -> Result<u64, Fault> {
    digits(word.raw).filter(|value| !word.quoted && *value <= max).ok_or_else(|| expected_but(word, expected, "number"))
}

/// Reads a decimal number without a sign.
pub(super) fn digits<T: FromStr>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|octet| octet.is_ascii_digit()))?;
    text.parse().ok()
}

/// "expected X, found 'word'".
pub(super) fn expected_but(word: &Word<'_>, expected: &str, code: &'static str) -> Fault {
    Fault::new(word.at, code, format!("expected {expected}, found {}", word.shown()))
}

/// Seconds: a number, or numbers with units as in `1h30m` or `2W`.
pub(super) fn seconds(word: &Word<'_>) -> Option<u32> {
    let mut total = 0u64;
    let mut count: Option<u64> = None;
    let mut with_units = false;
    if word.quoted || word.raw.is_empty() {
        return None;
    }
    for &octet in word.raw {
        let unit = match octet.to_ascii_lowercase() {
            b'0'..=b'9' => {
                count = Some(count.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(octet - b'0'))?);
                continue;
            }
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(count.take()?.checked_mul(unit)?)?;
        with_units = true;
    }
    match (count, with_units) {
        (Some(plain), false) => u32::try_from(plain).ok(),
        (None, true) => u32::try_from(total).ok(),
        // "1h30" may mean minutes or seconds.
        _ => None,
    }
}

/// Reads a TTL; `None` if it fits in 32 bits and exceeds the limit of RFC 2181 §8.
pub(super) fn ttl(word: &Word<'_>) -> Result<Option<Ttl>, Fault> {
    seconds(word).map(Ttl::new).ok_or_else(|| not_a_ttl(word))
}

/// Returns the fault that `word` is not a TTL.
pub(super) fn not_a_ttl(word: &Word<'_>) -> Fault {
    expected_but(word, "a TTL in seconds up to 2147483647, or with units, such as 1h30m", "ttl")
}

/// Appends the octets of a text, escapes resolved.
pub(super) fn push_text(word: &Word<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    if !word.escaped {
        out.extend_from_slice(word.raw);
        return Ok(());
    }
    let mut rest = word.raw;
    while let Some((&octet, tail)) = rest.split_first() {
        rest = tail;
        if octet == b'\\' {
            let (value, tail) =
                unescape(rest).map_err(|error| Fault::new(word.at, "text", format!("{}: {error}", word.shown())))?;
            rest = tail;
            out.push(value);
        } else {
            out.push(octet);
        }
    }
    Ok(())
}

/// Seconds since 1970 of `YYYYMMDDHHmmSS`, or a plain number of at most ten digits (RFC 4034 §3.2). A date before 1970 or after
/// 2106 is reduced to 32 bits, because times of signatures are compared as serial numbers (§3.1.5).
pub(super) fn timestamp(text: &[u8]) -> Option<u32> {
    if text.len() <= 10 {
        return digits(text);
    }
    if text.len() != 14 {
        return None;
    }
    let part = |at: usize| digits(&text[at..at + 2]);
    let time = DateTime::new(digits(&text[..4])?, part(4)?, part(6)?, part(8)?, part(10)?, part(12)?, 0).ok()?;
    Some(Offset::UTC.to_timestamp(time).ok()?.as_second() as u32)
}

/// Returns seconds since 1970 as `YYYYMMDDHHmmSS`.
pub(super) fn timestamp_text(seconds: u32) -> String {
    let time = Timestamp::from_second(seconds.into()).expect("jiff has the years up to 9999");
    time.strftime("%Y%m%d%H%M%S").to_string()
}

/// Appends the text of `value`.
pub(super) fn print(out: &mut Vec<u8>, value: impl Display) {
    write!(out, "{value}").expect("a vector takes all that is written to it");
}

/// Appends `items` with `separator` between them.
pub(super) fn push_separated<T>(
    out: &mut Vec<u8>,
    separator: u8,
    items: impl IntoIterator<Item = T>,
    push: impl Fn(&mut Vec<u8>, T),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(separator);
        }
        push(out, item);
    }
}

/// Appends a text in quotes.
pub(super) fn push_quoted(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &octet in text {
        match octet {
            b'"' | b'\\' => out.extend([b'\\', octet]),
            0x20..=0x7e => out.push(octet),
            _ => push_decimal_escape(octet, out),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::super::finding::Position;
    use super::*;

    fn word(raw: &str) -> Word<'_> {
        Word { raw: raw.as_bytes(), quoted: false, escaped: raw.contains('\\'), at: Position::START }
    }

    #[test]
    fn seconds_with_and_without_units() {
        for (text, expected) in [
            ("0", Some(0)),
            ("300", Some(300)),
            ("1h30m", Some(5400)),
            ("2W", Some(1_209_600)),
            ("1w2d3h4m5s", Some(788_645)),
            ("4294967295", Some(u32::MAX)),
            ("4294967296", None),
            ("1h30", None),
            ("h", None),
            ("1x", None),
            ("-1", None),
            ("", None),
            ("99999999999999999999999w", None),
        ] {
            assert_eq!(seconds(&word(text)), expected, "{text}");
        }
        let ttl = |text| ttl(&word(text)).map_err(|fault| fault.code);
        assert_eq!(ttl("2147483647"), Ok(Some(Ttl::MAX)));
        assert_eq!((ttl("2147483648"), ttl("4294967296")), (Ok(None), Err("ttl")));
    }

    #[test]
    fn timestamps_read_and_write_back() {
        for (text, seconds) in [
            ("19700101000000", 0),
            ("20000229120000", 951_825_600),
            ("20300101000000", 1_893_456_000),
            ("21060207062815", u32::MAX),
        ] {
            assert_eq!(timestamp(text.as_bytes()), Some(seconds), "{text}");
            assert_eq!(timestamp_text(seconds), text);
        }
        assert_eq!(timestamp(b"951825600"), Some(951_825_600));
        assert_eq!((timestamp(b"19691231235959"), timestamp(b"21060207062816")), (Some(u32::MAX), Some(0)));
        for bad in ["20010229000000", "20301301000000", "20300101240000", "2030010100000", "", "x"] {
            assert_eq!(timestamp(bad.as_bytes()), None, "{bad}");
        }
    }
}
