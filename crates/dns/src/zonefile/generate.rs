//! `$GENERATE start-stop[/step] owner [ttl] [class] type data`: series of records, as in BIND and NSD.
//!
//! In owner and data, `$` represents the number, `${offset,width,base}` the number plus an offset in a base (`d`, `o`, `x`, `X`,
//! or `n`, `N` for hex digits in reverse order with dots), and `\$` and `$$` a dollar sign. Data of several words may be in
//! quotes, as in BIND, `MX "10 mail$"`; quotes around a text are part of the text.

use std::borrow::Cow;

use super::finding::Fault;
use super::scan::Word;
use super::values::{digits, expected_but};
use crate::wire::RecordType;

/// The maximum number of records of one directive: a reverse zone of 16 bits.
pub(super) const RECORDS_MAX: u64 = 65_536;

/// The maximum length of a generated record: with the limit on their number, the directives of one zone generate at most 1 GiB.
pub(super) const LINE_OCTETS_MAX: usize = 1024;

/// The numbers of one directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    start: u32,
    stop: u32,
    step: u32,
}

impl Range {
    /// Reads `start-stop` or `start-stop/step`.
    pub fn parse(word: &Word<'_>) -> Result<Self, Fault> {
        let parse = || {
            let text = std::str::from_utf8(word.raw).ok()?;
            let (range, step) = text.split_once('/').unwrap_or((text, "1"));
            let (start, stop) = range.split_once('-')?;
            let number = |text: &str| digits(text.as_bytes()).filter(|number| *number <= i32::MAX as u32);
            let range = Range { start: number(start)?, stop: number(stop)?, step: number(step)? };
            (range.step > 0 && range.start <= range.stop).then_some(range)
        };
        let range = parse().ok_or_else(|| expected_but(word, "a range start-stop or start-stop/step", "generate"))?;
        let count = range.count();
        if count > RECORDS_MAX {
            let message = format!("the range generates {count} records; the limit is {RECORDS_MAX}; split it");
            return Err(Fault::new(word.at, "generate", message));
        }
        Ok(range)
    }

    /// Returns the count of numbers.
    pub fn count(self) -> u64 {
        u64::from((self.stop - self.start) / self.step) + 1
    }

    /// Returns the numbers.
    pub fn numbers(self) -> impl Iterator<Item = u32> {
        (self.start..=self.stop).step_by(self.step as usize)
    }
}

/// Returns `[ttl] [class] type data` without the quotes around the whole data, if the quotes do not contain a text.
pub(super) fn without_quotes(template: &[u8]) -> Cow<'_, [u8]> {
    const TEXTS: [RecordType; 8] = [
        RecordType::TXT,
        RecordType::SPF,
        RecordType::HINFO,
        RecordType::X25,
        RecordType::ISDN,
        RecordType::GPOS,
        RecordType::NAPTR,
        RecordType::RESINFO,
    ];
    let Some(quote) = template.iter().position(|octet| *octet == b'"') else { return template.into() };
    let (before, quoted) = (&template[..quote], &template[quote + 1..]);
    let last = before.trim_ascii_end().rsplit(u8::is_ascii_whitespace).next();
    let rtype = last.and_then(|word| std::str::from_utf8(word).ok()?.parse::<RecordType>().ok());
    if rtype.is_none_or(|rtype| TEXTS.contains(&rtype)) {
        return template.into();
    }
    let mut data = before.to_vec();
    let mut octets = quoted.iter();
    while let Some(octet) = octets.next() {
        match octet {
            b'"' => {
                // The rest can only be a comment; otherwise, the reader of the record reports an error.
                data.extend_from_slice(octets.as_slice());
                return data.into();
            }
            b'\\' if octets.as_slice().first() == Some(&b'"') => data.extend(octets.next()),
            b'\\' => data.extend([octet].into_iter().chain(octets.next())),
            _ => data.push(*octet),
        }
    }
    // The quote is never closed.
    template.into()
}

/// Appends `template` with `number` inserted.
pub(super) fn expand(template: &[u8], number: u32, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let mut rest = template;
    while let Some((&octet, tail)) = rest.split_first() {
        rest = tail;
        match (octet, tail) {
            // An escaped dollar sign keeps its backslash: it means the same to the reader of the record.
            (b'\\', [next, after @ ..]) => {
                out.extend([octet, *next]);
                rest = after;
            }
            (b'$', [b'$', after @ ..]) => {
                out.push(b'$');
                rest = after;
            }
            (b'$', [b'{', after @ ..]) => {
                let end = after.iter().position(|octet| *octet == b'}').ok_or("a '${' has no '}'")?;
                push_number(&after[..end], number, out)?;
                rest = &after[end + 1..];
            }
            (b'$', _) => out.extend_from_slice(number.to_string().as_bytes()),
            _ => out.push(octet),
        }
    }
    Ok(())
}

/// `offset`, `offset,width` or `offset,width,base`.
fn push_number(modifier: &[u8], number: u32, out: &mut Vec<u8>) -> Result<(), &'static str> {
    const WIDTH_MAX: usize = 255;
    const FORM: &str = "expected ${offset,width,base} with base d, o, x, X, n or N";
    let mut parts = std::str::from_utf8(modifier).map_err(|_| FORM)?.split(',');
    let offset: i64 = parts.next().and_then(|part| part.parse::<i32>().ok()).ok_or(FORM)?.into();
    let width: usize =
        parts.next().map_or(Some(0), |part| part.parse().ok()).filter(|width| *width <= WIDTH_MAX).ok_or(FORM)?;
    let base = parts.next().unwrap_or("d");
    if parts.next().is_some() {
        return Err(FORM);
    }
    let value = i64::from(number) + offset;
    if value < 0 && base != "d" {
        return Err("a number plus its offset is negative, which only base d supports");
    }
    let text = match base {
        // A number below zero has its sign, which is part of the width, as in BIND.
        "d" => format!("{value:0width$}"),
        "o" => format!("{value:0width$o}"),
        "x" => format!("{value:0width$x}"),
        "X" => format!("{value:0width$X}"),
        "n" => reversed(&format!("{value:0digits$x}", digits = width.div_ceil(2)), width),
        "N" => reversed(&format!("{value:0digits$X}", digits = width.div_ceil(2)), width),
        _ => return Err(FORM),
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Digits from the last to the first with dots between them. The width includes both, so an even width that is not exceeded
/// results in a final dot, as in BIND: the text after it is a separate label.
fn reversed(digits: &str, width: usize) -> String {
    let mut text = digits.chars().rev().map(String::from).collect::<Vec<_>>().join(".");
    if text.len() < width {
        text.push('.');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::finding::Position;
    use super::*;

    #[test]
    fn templates() {
        for (template, number, expected) in [
            ("host-$", 7, Ok("host-7")),
            ("$.$", 7, Ok("7.7")),
            ("h${3}", 7, Ok("h10")),
            ("h${-7,3}", 7, Ok("h000")),
            ("h${0,4,x}", 255, Ok("h00ff")),
            ("h${0,0,X}", 255, Ok("hFF")),
            ("h${0,3,o}", 8, Ok("h010")),
            ("${0,7,n}", 0x12, Ok("2.1.0.0")),
            ("${0,8,n}x", 17, Ok("1.1.0.0.x")),
            ("${0,6,n}x", 17, Ok("1.1.0.x")),
            ("${0,4,n}x", 17, Ok("1.1.x")),
            ("${0,3,n}x", 17, Ok("1.1x")),
            ("${0,2,N}x", 0xab, Ok("B.Ax")),
            ("${0,2,n}x", 0, Ok("0.x")),
            ("${0,1,n}", 0, Ok("0")),
            ("${0,0,n}x", 17, Ok("1.1x")),
            ("${0,0,n}", 0, Ok("0")),
            (r"a\$b", 7, Ok(r"a\$b")),
            ("a$$b", 7, Ok("a$b")),
            ("h${-8}", 7, Ok("h-1")),
            ("h${-8,3}", 7, Ok("h-01")),
            ("${-8,0,x}", 7, Err("a number plus its offset is negative, which only base d supports")),
            ("${0", 7, Err("a '${' has no '}'")),
        ] {
            let mut out = Vec::new();
            let result = expand(template.as_bytes(), number, &mut out);
            assert_eq!(
                result.map(|()| String::from_utf8_lossy(&out).into_owned()),
                expected.map(String::from),
                "{template}"
            );
        }
        assert!(expand(b"${0,1,q}", 1, &mut Vec::new()).is_err() && expand(b"${0,999}", 1, &mut Vec::new()).is_err());
    }

    #[test]
    fn quotes_around_the_data() {
        for (template, expected) in [
            (r#"MX "10 mail$""#, "MX 10 mail$"),
            (r#"60 IN A "192.0.2.$" ; why"#, "60 IN A 192.0.2.$ ; why"),
            (r#"SVCB "1 . alpn=\"h2,h3\"""#, r#"SVCB 1 . alpn="h2,h3""#),
            (r#"TXT "a $ b""#, r#"TXT "a $ b""#),
            (r#"CAA 0 issue "ca$.test""#, r#"CAA 0 issue "ca$.test""#),
            (r#"MX "10 mail$"#, r#"MX "10 mail$"#),
            ("MX 10 mail$", "MX 10 mail$"),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_quotes(template.as_bytes())), expected, "{template}");
        }
    }

    #[test]
    fn ranges() {
        for (text, count) in [
            ("1-3", Some(3)),
            ("0-10/5", Some(3)),
            ("3-1", None),
            ("1-3/0", None),
            ("1", None),
            ("0-65536", None),
            ("+1-3", None),
        ] {
            let word = Word { raw: text.as_bytes(), quoted: false, escaped: false, at: Position::START };
            assert_eq!(Range::parse(&word).ok().map(Range::count), count, "{text}");
        }
    }
}
