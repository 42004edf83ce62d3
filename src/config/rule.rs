//! Rules: the form, the bounds, and the meaning of the text of one value.

use std::fmt::{Debug, Display};
use std::ops::{Bound, RangeBounds, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use signpost_apiserver::limits::parse_size;

/// The form of a value in the file, on the command line, and in the environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A string.
    Text,
    /// A path. In the file it is relative to the directory of the file, elsewhere to the working directory.
    Path,
    /// `true` or `false`.
    Boolean,
    /// A whole number.
    Integer,
    /// A string such as `"5s"`.
    Duration,
    /// A string such as `"64Mi"`, or a whole number of bytes.
    Size,
    /// Tables in the file; elsewhere `key=value` pairs, separated by commas.
    Tables {
        /// The keys whose values are paths, unless they are URLs.
        paths: &'static [&'static str],
        /// A table, for error messages.
        example: &'static str,
    },
}

/// The number of values that a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    One,
    /// An array in the file; a flag that repeats. The separators apply within one flag and within one variable.
    List {
        /// Separators of values within one flag.
        flag: &'static [char],
        /// Separators of values within the environment variable.
        variable: &'static [char],
    },
}

/// The form of values, for the parser and for help.
#[derive(Debug, Clone)]
pub struct Shape {
    pub form: Form,
    pub arity: Arity,
    /// The placeholder of a value in help, such as `ADDR:PORT`.
    pub value_name: &'static str,
    /// The permitted values, as help shows them; empty without a bound.
    pub range: String,
    /// The permitted words, if only these are permitted.
    pub words: Vec<&'static str>,
}

/// Reads the text of a value, or returns the expected form.
type Parse<T> = Box<dyn Fn(&str) -> Result<T, String>>;

/// The parser of a setting whose values are of type `T`.
pub struct Rule<T> {
    pub(super) shape: Shape,
    pub(super) parse: Parse<T>,
    pub(super) values_min: usize,
    pub(super) values_max: usize,
    /// Whether two values contradict each other.
    pub(super) clashes: fn(&T, &T) -> bool,
}

impl<T: 'static> Rule<T> {
    fn new(form: Form, value_name: &'static str, parse: impl Fn(&str) -> Result<T, String> + 'static) -> Rule<T> {
        Rule {
            shape: Shape { form, arity: Arity::One, value_name, range: String::new(), words: Vec::new() },
            parse: Box::new(parse),
            values_min: 0,
            values_max: usize::MAX,
            clashes: |_, _| false,
        }
    }

    fn with_words(self, words: Vec<&'static str>) -> Self {
        Rule { shape: Shape { words, ..self.shape }, ..self }
    }

    fn ranging(self, range: String) -> Self {
        Rule { shape: Shape { range, ..self.shape }, ..self }
    }

    /// Takes a list of such values: separated by commas in a flag, by commas or spaces in a variable. Paths are separated
    /// by colons in a variable; `key=value` pairs, which contain commas, by spaces.
    pub fn list(self) -> Self {
        let (flag, variable): (&[char], &[char]) = match self.shape.form {
            Form::Path => (&[], &[':']),
            Form::Tables { .. } => (&[], &[' ']),
            _ => (&[','], &[',', ' ']),
        };
        Rule { shape: Shape { arity: Arity::List { flag, variable }, ..self.shape }, ..self }
    }

    /// Takes a list of values that contain commas: one in each flag, separated by spaces in a variable.
    pub fn list_of_lists(self) -> Self {
        let arity = Arity::List { flag: &[], variable: &[' '] };
        Rule { shape: Shape { arity, ..self.shape }, ..self }
    }

    /// Requires at least one value.
    pub fn not_empty(self) -> Self {
        Rule { values_min: 1, ..self }
    }

    /// Limits the number of values.
    pub fn at_most(self, values: usize) -> Self {
        Rule { values_max: values, ..self.ranging(format!("at most {values} values")) }
    }

    /// Rejects two values for which `clashes` returns true.
    pub fn unless(self, clashes: fn(&T, &T) -> bool) -> Self {
        Rule { clashes, ..self }
    }
}

/// Returns the rule of a value that `parse` reads.
pub fn by<T: 'static, E: Display + 'static>(value_name: &'static str, parse: fn(&str) -> Result<T, E>) -> Rule<T> {
    Rule::new(Form::Text, value_name, move |text| parse(text).map_err(|error| error.to_string()))
}

/// Returns the rule of a value whose type has a text form.
pub fn parsed<T: FromStr<Err: Display + 'static> + 'static>(value_name: &'static str) -> Rule<T> {
    by(value_name, str::parse)
}

/// Returns the rule of a table that `parse` reads from its `key=value` pairs.
pub(super) fn table<T: 'static>(
    paths: &'static [&'static str],
    example: &'static str,
    parse: impl Fn(&str) -> Result<T, String> + 'static,
) -> Rule<T> {
    Rule::new(Form::Tables { paths, example }, "KEY=VALUE,...", parse)
}

/// Returns the rule of one of several words.
pub fn words<T: Clone + 'static>(
    value_name: &'static str,
    all: impl IntoIterator<Item = (&'static str, T)>,
) -> Rule<T> {
    let all: Vec<(&'static str, T)> = all.into_iter().collect();
    let names = all.iter().map(|(word, _)| *word).collect::<Vec<_>>();
    let expected = format!("must be {}", one_of(&names));
    let parse = move |text: &str| {
        let found = all.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| value.clone()).ok_or_else(|| expected.clone())
    };
    Rule::new(Form::Text, value_name, parse).with_words(names)
}

/// `a`, `a or b`, `a, b or c`.
fn one_of(words: &[&str]) -> String {
    match words {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => words.join(""),
    }
}

/// Returns the rule of a text whose length in octets is within `octets`.
pub fn text(value_name: &'static str, octets: RangeInclusive<usize>) -> Rule<String> {
    let range = format!("{} to {} octets", octets.start(), octets.end());
    let expected = format!("must be {range}");
    let parse =
        move |text: &str| if octets.contains(&text.len()) { Ok(text.to_owned()) } else { Err(expected.clone()) };
    Rule::new(Form::Text, value_name, parse).ranging(range)
}

pub fn path(value_name: &'static str) -> Rule<PathBuf> {
    let parse = |text: &str| if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.into()) };
    Rule::new(Form::Path, value_name, parse)
}

/// Returns the rule of `true` or `false`.
pub fn boolean() -> Rule<bool> {
    let parse = |text: &str| match text {
        "true" => Ok(true),
        "false" => Ok(false),
        "on" | "yes" => Err("must be true or false; write true".to_owned()),
        "off" | "no" => Err("must be true or false; write false".to_owned()),
        _ => Err("must be true or false".to_owned()),
    };
    Rule::new(Form::Boolean, "BOOL", parse).with_words(vec!["true", "false"])
}

/// Returns the rule of a whole number.
pub fn number<T>(value_name: &'static str, bounds: RangeInclusive<T>) -> Rule<T>
where
    T: FromStr + PartialOrd + Display + 'static,
{
    let range = format!("{} to {}", bounds.start(), bounds.end());
    let expected = format!("must be a number from {range}");
    let parse = move |text: &str| {
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| expected.clone())
    };
    Rule::new(Form::Integer, value_name, parse).ranging(range)
}

/// Returns the rule of a duration within bounds in seconds.
pub fn duration(bounds: impl RangeBounds<u64> + 'static) -> Rule<Duration> {
    let (least, most) = (bounds.start_bound().cloned(), bounds.end_bound().cloned());
    let range = match (least, most) {
        (Bound::Included(least @ 1..), Bound::Included(most)) => {
            format!("{} to {}", duration_text(least), duration_text(most))
        }
        (Bound::Included(least @ 1..), _) => format!("at least {}", duration_text(least)),
        (_, Bound::Included(most)) => format!("at most {}", duration_text(most)),
        _ => String::new(),
    };
    let expected = format!("must be {range}");
    let parse = move |text: &str| {
        let duration = parse_duration(text)?;
        if bounds.contains(&duration.as_secs()) { Ok(duration) } else { Err(expected.clone()) }
    };
    Rule::new(Form::Duration, "DURATION", parse).ranging(range)
}

/// Reads a whole number and its unit: `s`, `m`, `h`, or `d`.
///
/// # Errors
///
/// The expected form.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let expected = "must be a whole number and s, m, h or d, such as 5s or 30d";
    let split = text.len().saturating_sub(1);
    let (number, unit) = text.split_at_checked(split).ok_or(expected)?;
    let (_, seconds) = DURATION_UNITS.into_iter().find(|(name, _)| *name == unit).ok_or(expected)?;
    let number: u32 = number.parse().map_err(|_| expected)?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

const DURATION_UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

/// Returns the text of whole seconds in their largest unit: `7d`, `90s`.
pub(crate) fn duration_text(seconds: u64) -> String {
    let unit = DURATION_UNITS.iter().find(|(_, unit)| seconds >= *unit && seconds.is_multiple_of(*unit));
    let (name, unit) = unit.unwrap_or(&("s", 1));
    format!("{}{name}", seconds / unit)
}

/// Returns the rule of a size within bounds in bytes.
pub fn size(bounds: RangeInclusive<u64>) -> Rule<u64> {
    let text = |size: u64| {
        let unit = [("Gi", 30), ("Mi", 20), ("Ki", 10)]
            .into_iter()
            .find(|(_, bits)| size > 0 && size.is_multiple_of(1 << bits));
        unit.map_or_else(|| size.to_string(), |(unit, bits)| format!("{}{unit}", size >> bits))
    };
    let range = format!("{} to {}", text(*bounds.start()), text(*bounds.end()));
    let expected = format!("must be a number of bytes, or of Ki, Mi or Gi of them, from {range}");
    let parse = move |text: &str| parse_size(text).filter(|size| bounds.contains(size)).ok_or_else(|| expected.clone());
    Rule::new(Form::Size, "SIZE", parse).ranging(range)
}

/// Splits `text` at any of `separators`, without empty parts; without separators, `text` is one part.
pub fn split(text: &str, separators: &[char]) -> Vec<String> {
    if separators.is_empty() {
        return vec![text.to_owned()];
    }
    text.split(separators).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// A field of the settings, made from the values of its setting.
pub trait Field<T>: Sized {
    /// Returns the field, or `None` if it lacks a value.
    fn collect(values: Vec<T>) -> Option<Self>;
}

impl<T> Field<T> for T {
    fn collect(mut values: Vec<T>) -> Option<T> {
        values.pop()
    }
}

impl<T> Field<T> for Option<T> {
    fn collect(mut values: Vec<T>) -> Option<Option<T>> {
        Some(values.pop())
    }
}

impl<T> Field<T> for Vec<T> {
    fn collect(values: Vec<T>) -> Option<Vec<T>> {
        Some(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Debug>(rule: &Rule<T>, range: &str, good: &[&str], bad: &[(&str, &str)]) {
        assert_eq!(rule.shape.range, range);
        for text in good {
            assert!((rule.parse)(text).is_ok(), "{text}");
        }
        for (text, expected) in bad {
            assert_eq!((rule.parse)(text).expect_err(text), *expected, "{text}");
        }
    }

    #[test]
    fn bounds_are_named() {
        check(&duration(1..=150), "1s to 150s", &["1s", "2m"], &[("3m", "must be 1s to 150s")]);
        check(&duration(1..), "at least 1s", &["1s", "30d"], &[("0s", "must be at least 1s")]);
        check(&duration(0..=600), "at most 10m", &["0s", "10m"], &[("1h", "must be at most 10m")]);
        let form = "must be a whole number and s, m, h or d, such as 5s or 30d";
        check(&duration(0..), "", &["0s", "30d"], &[("30", form), ("é", form), ("", form), ("-1s", form)]);
        let expected = "must be a number of bytes, or of Ki, Mi or Gi of them, from 16Ki to 512Ki";
        check(&size(16 << 10..=512 << 10), "16Ki to 512Ki", &["16Ki", "20000"], &[("1Mi", expected), ("64", expected)]);
        check(&number::<u8>("N", 1..=32), "1 to 32", &["1"], &[("33", "must be a number from 1 to 32")]);
        check(&words("X", [("a", 1), ("b", 2), ("c", 3)]), "", &["b"], &[("d", "must be a, b or c")]);
        check(&boolean(), "", &["true"], &[("off", "must be true or false; write false")]);
    }
}
