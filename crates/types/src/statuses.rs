//! Sets of HTTP status codes as text: `200-399`, `200,204,301-308`.

use std::ops::RangeInclusive;

/// The range of status codes (RFC 9110 §15).
const CODES: RangeInclusive<u16> = 100..=599;
/// The maximum number of ranges of a set.
const RANGES_MAX: usize = 16;

/// A set of status codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    /// Parses a set; the error describes the expected form.
    pub fn parse(text: &str) -> Result<Statuses, &'static str> {
        const EXPECTED: &str =
            "must be HTTP status codes from 100 to 599, or ranges of them, separated by commas, such as 200-399";
        let code = |text: &str| {
            let digits = text.len() == 3 && text.bytes().all(|octet| octet.is_ascii_digit());
            text.parse::<u16>().ok().filter(|code| digits && CODES.contains(code)).ok_or(EXPECTED)
        };
        let range = |part: &str| match part.split_once('-') {
            Some((first, last)) => match (code(first)?, code(last)?) {
                (first, last) if first > last => Err("must have the lower code of a range first, such as 200-399"),
                (first, last) => Ok(first..=last),
            },
            None => code(part).map(|code| code..=code),
        };
        let ranges: Vec<_> = text.split(',').map(range).collect::<Result<_, _>>()?;
        if ranges.len() > RANGES_MAX {
            return Err("must have no more than 16 codes and ranges");
        }
        Ok(Statuses(ranges))
    }

    /// Returns whether the code is one of them.
    pub fn contains(&self, code: u16) -> bool {
        self.0.iter().any(|range| range.contains(&code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read() {
        for (text, inside, outside) in [
            ("200", vec![200], vec![199, 201]),
            ("200-399", vec![200, 301, 399], vec![199, 400]),
            ("200,204,301-308", vec![200, 204, 305], vec![201, 309]),
            ("204-204", vec![204], vec![203, 205]),
        ] {
            let set = Statuses::parse(text).expect("it reads");
            assert!(inside.iter().all(|code| set.contains(*code)), "{text}");
            assert!(!outside.iter().any(|code| set.contains(*code)), "{text}");
        }
        let long = vec!["200"; 17].join(",");
        for bad in
            ["", "2xx", "99", "600", "200-", "-200", "200 ,201", "+200", "200-300-400", "500-400", "200,399-200", &long]
        {
            assert!(Statuses::parse(bad).is_err(), "{bad:?}");
        }
    }
}
