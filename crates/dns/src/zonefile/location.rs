//! The text of LOC records (RFC 1876 §3): `52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m`.

use super::finding::Fault;
use super::scan::{Scanner, Word};
use super::values::{digits, expected_but, print};

const EQUATOR: u32 = 1 << 31;
/// The origin of altitudes: 100,000 m below the reference spheroid, in centimeters.
const ALTITUDE_ZERO: i64 = 10_000_000;

/// The maximum length that RFC 1876 §3 allows, in centimeters.
const LENGTH_MAX: u64 = 9_000_000_000;

/// Reads a location up to the end of the entry and appends its 16 octets.
pub(super) fn read(scanner: &mut Scanner<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
    let latitude = read_angle(scanner, 90, *b"NS")?;
    let longitude = read_angle(scanner, 180, *b"EW")?;
    let word = need(scanner, "an altitude in meters")?;
    let altitude = centimetres(word.raw)
        .and_then(|altitude| u32::try_from(altitude + ALTITUDE_ZERO).ok())
        .ok_or_else(|| expected_but(&word, "an altitude in meters from -100000.00 to 42849672.95", "rdata"))?;
    // RFC 1876 §3: size 1 m, horizontal precision 10,000 m, vertical precision 10 m.
    let mut sizes = [0x12, 0x16, 0x13];
    for size in &mut sizes {
        let Some(word) = scanner.word()? else { break };
        *size = centimetres(word.raw)
            .and_then(|length| u64::try_from(length).ok().filter(|length| *length <= LENGTH_MAX))
            .and_then(digit_and_power)
            .ok_or_else(|| expected_but(&word, "a length in meters from 0.00 to 90000000.00", "rdata"))?;
    }
    out.push(0);
    out.extend(sizes);
    out.extend(latitude.to_be_bytes());
    out.extend(longitude.to_be_bytes());
    out.extend(altitude.to_be_bytes());
    Ok(())
}

/// Appends the text of the 16 octets of a valid location.
pub(super) fn write(octets: &[u8], out: &mut Vec<u8>) {
    let quad = |at: usize| u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
    write_angle(quad(4), 'N', 'S', out);
    write_angle(quad(8), 'E', 'W', out);
    let altitude = i64::from(quad(12)) - ALTITUDE_ZERO;
    let sign = if altitude < 0 { "-" } else { "" };
    let altitude = altitude.unsigned_abs();
    print(out, format_args!("{sign}{}.{:02}m", altitude / 100, altitude % 100));
    for &size in &octets[1..4] {
        let length = u64::from(size >> 4) * 10u64.pow(u32::from(size & 0xf));
        print(out, format_args!(" {}.{:02}m", length / 100, length % 100));
    }
}

/// Returns whether text can express these octets: in text, zero has only one exponent.
pub(super) fn has_text(octets: &[u8]) -> bool {
    octets[1..4].iter().all(|size| size >> 4 != 0 || *size == 0)
}

/// Degrees, then minutes and seconds if given, then a hemisphere of `signs` (the positive one first).
fn read_angle(scanner: &mut Scanner<'_>, degrees_max: u64, signs: [u8; 2]) -> Result<u32, Fault> {
    let hemispheres = format!("{} or {}", signs[0] as char, signs[1] as char);
    let mut milliseconds = 0u64;
    let units = [("degrees", degrees_max, 3_600_000), ("minutes", 59, 60_000), ("seconds", 59, 1)];
    for (index, (what, max, factor)) in units.into_iter().enumerate() {
        let word = need(scanner, what)?;
        if index > 0
            && let Some(angle) = hemisphere(&word, signs, milliseconds)
        {
            return Ok(angle);
        }
        let value =
            if what == "seconds" { decimal(word.raw, 3).filter(|value| *value < 60_000) } else { whole(word.raw, max) };
        milliseconds += value
            .ok_or_else(|| expected_but(&word, &format!("{what} up to {max}, or {hemispheres}"), "rdata"))?
            * factor;
        if milliseconds > degrees_max * 3_600_000 {
            return Err(expected_but(&word, &format!("at most {degrees_max} degrees"), "rdata"));
        }
    }
    let word = need(scanner, &hemispheres)?;
    hemisphere(&word, signs, milliseconds).ok_or_else(|| expected_but(&word, &hemispheres, "rdata"))
}

fn hemisphere(word: &Word<'_>, [positive, negative]: [u8; 2], milliseconds: u64) -> Option<u32> {
    let angle = u32::try_from(milliseconds).ok()?;
    match word.raw {
        [sign] if sign.eq_ignore_ascii_case(&positive) => Some(EQUATOR + angle),
        [sign] if sign.eq_ignore_ascii_case(&negative) => Some(EQUATOR - angle),
        _ => None,
    }
}

fn write_angle(angle: u32, positive: char, negative: char, out: &mut Vec<u8>) {
    let sign = if angle >= EQUATOR { positive } else { negative };
    let milliseconds = angle.abs_diff(EQUATOR);
    let (minutes, rest) = (milliseconds / 60_000, milliseconds % 60_000);
    print(out, format_args!("{} {} {}.{:03} {sign} ", minutes / 60, minutes % 60, rest / 1000, rest % 1000));
}

fn need<'a>(scanner: &mut Scanner<'a>, what: &str) -> Result<Word<'a>, Fault> {
    scanner
        .word()?
        .ok_or_else(|| Fault::new(scanner.position(), "rdata", format!("expected {what}, found the end of the record")))
}

fn whole(text: &[u8], max: u64) -> Option<u64> {
    digits(text).filter(|value| text.len() <= 9 && *value <= max)
}

/// Parses meters with an optional sign and `m`; returns centimeters.
fn centimetres(text: &[u8]) -> Option<i64> {
    let text = text.strip_suffix(b"m").or_else(|| text.strip_suffix(b"M")).unwrap_or(text);
    match text.strip_prefix(b"-") {
        Some(magnitude) => Some(-i64::try_from(decimal(magnitude, 2)?).ok()?),
        // RFC 1876 §3 has no plus sign, but BIND and NSD accept one.
        None => i64::try_from(decimal(text.strip_prefix(b"+").unwrap_or(text), 2)?).ok(),
    }
}

/// Parses a decimal number with at most this many places after the point, in units of the last place.
fn decimal(text: &[u8], places: usize) -> Option<u64> {
    let point = text.iter().position(|octet| *octet == b'.').unwrap_or(text.len());
    let fraction = text.get(point + 1..).unwrap_or(&[]);
    if fraction.len() > places || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut value = whole(&text[..point], u64::MAX)?;
    for place in 0..places {
        value = value * 10 + fraction.get(place).map_or(0, |digit| u64::from(digit - b'0'));
    }
    Some(value)
}

/// Returns a length in centimeters as the largest digit and power of ten that is not above it (RFC 1876 §2).
fn digit_and_power(mut length: u64) -> Option<u8> {
    let mut power = 0u8;
    while length > 9 {
        length /= 10;
        power += 1;
    }
    (power <= 9).then_some((length as u8) << 4 | power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_and_writes_back() {
        for (text, written) in [
            (
                "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m",
                "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000.00m 10.00m",
            ),
            ("42 21 54 N 71 06 18 W -24m 30m", "42 21 54.000 N 71 6 18.000 W -24.00m 30.00m 10000.00m 10.00m"),
            ("1 N 1 E +10m", "1 0 0.000 N 1 0 0.000 E 10.00m 1.00m 10000.00m 10.00m"),
            ("90 S 180 W 0", "90 0 0.000 S 180 0 0.000 W 0.00m 1.00m 10000.00m 10.00m"),
            // A point without digits after it, as BIND, Knot and NSD take it.
            ("1 2 3. N 1 E 1.m 2.", "1 2 3.000 N 1 0 0.000 E 1.00m 2.00m 10000.00m 10.00m"),
            (
                "0 0 0.5 n 0 E 42849672.95m 90000000m",
                "0 0 0.500 N 0 0 0.000 E 42849672.95m 90000000.00m 10000.00m 10.00m",
            ),
        ] {
            let mut wire = Vec::new();
            read(&mut Scanner::new(text.as_bytes()), &mut wire)
                .unwrap_or_else(|fault| panic!("{text}: {}", fault.message));
            let mut out = Vec::new();
            write(&wire, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), written);
        }
        for bad in [
            "91 N 0 E 0",
            "90 0 0.001 N 0 E 0",
            "1 60 N 0 E 0",
            "1 0 60 N 0 E 0",
            "1 0 0 0 N 0 E 0",
            "1 N 1 N 0",
            "1 N 1 E",
            "1 N 1 E 1x",
            "1 N 1 E .m",
            "1 N 1 E 1..m",
            "1 N 1 E 1m 90000000.01m",
            "1 N 1 E 1m 99999999m",
            "1 N 1 E +-1m",
            "1 N 1 E -+1m",
        ] {
            assert!(read(&mut Scanner::new(bad.as_bytes()), &mut Vec::new()).is_err(), "{bad}");
        }
    }
}
