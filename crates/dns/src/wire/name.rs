//! Domain names (RFC 1034 §3.1, RFC 1035 §3.1) in wire form.
//!
//! A [`Name`] is always absolute, uncompressed and within the limits of the standard, so code with a `Name` needs no checks. It
//! preserves the case of its letters (RFC 4343 §2: "output case preservation"), while equality, hashing and ordering ignore the
//! case of ASCII letters. The order is the canonical one of RFC 4034 §6.1: by labels from the root, so a zone's names sort with
//! every name directly before those below it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use super::header::HEADER_OCTETS;

/// The maximum length of a name in octets, including length octets and the root label (RFC 1035 §2.3.4).
pub const NAME_OCTETS_MAX: usize = 255;
/// The maximum length of a label in octets (RFC 1035 §2.3.4).
pub const LABEL_OCTETS_MAX: usize = 63;
/// The maximum number of labels of a name without the root: 127 labels of one octet fill 255 octets.
pub const LABELS_MAX: usize = 127;

/// An absolute domain name, uncompressed, 1 to 255 octets, in wire form.
#[derive(Clone)]
pub struct Name(Box<[u8]>);

/// A map by name. A platform has hundreds of thousands of names, from its operators: the hash is fast instead of strong against
/// attackers, but has another seed in each process.
pub type NameMap<V> = HashMap<Name, V, foldhash::quality::RandomState>;
/// A set of names; see [`NameMap`].
pub type NameSet = HashSet<Name, foldhash::quality::RandomState>;

/// The reason why octets or text are not a domain name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A label is longer than 63 octets.
    #[error("a label is longer than 63 octets")]
    LabelTooLong,
    /// The name is longer than 255 octets.
    #[error("the name is longer than 255 octets")]
    TooLong,
    /// Two dots in a row, or a dot at the start.
    #[error("a label is empty")]
    EmptyLabel,
    /// The text is empty.
    #[error("the name is empty")]
    Empty,
    /// A backslash is followed by neither a character nor a number up to 255.
    #[error("a character or three digits up to 255 must follow a backslash")]
    BadEscape,
    /// The octets end inside the name.
    #[error("the name extends past the end")]
    Truncated,
    /// A compression pointer or a reserved label type where plain labels are needed.
    #[error("an unsupported label type")]
    LabelType,
    /// An octet that must be escaped here.
    #[error("octet {0} must be written as \\{0}")]
    Octet(u8),
}

impl Name {
    /// Returns the root, one octet long.
    pub fn root() -> Self {
        Name(Box::new([0]))
    }

    /// Reads the name at the start of `octets`, and returns it with the rest. Pointers are rejected.
    pub fn split_from(octets: &[u8]) -> Result<(Self, &[u8]), NameError> {
        let end = wire_end(octets)?;
        Ok((Name(octets[..end].into()), &octets[end..]))
    }

    /// Reads the name that consists of all `octets`.
    pub fn from_wire(octets: &[u8]) -> Result<Self, NameError> {
        match Self::split_from(octets)? {
            (name, []) => Ok(name),
            _ => Err(NameError::TooLong),
        }
    }

    /// Returns the name of these labels, leftmost first, under `suffix`.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = &'a [u8]>, suffix: &Name) -> Result<Self, NameError> {
        let mut wire = Vec::with_capacity(NAME_OCTETS_MAX);
        for label in labels {
            push_label(&mut wire, label)?;
        }
        Self::finish(wire, suffix)
    }

    /// Returns this name with one label in front of it.
    pub fn prepend(&self, label: &[u8]) -> Result<Self, NameError> {
        Self::from_labels([label], self)
    }

    /// Returns `*.` with this name (RFC 4592 §2.1.1).
    pub fn wildcard(&self) -> Result<Self, NameError> {
        self.prepend(b"*")
    }

    /// Reads presentation format (RFC 1035 §5.1) relative to `origin`: text without a dot at its end is below `origin`.
    pub fn parse(text: &[u8], origin: &Name) -> Result<Self, NameError> {
        match text {
            b"" => return Err(NameError::Empty),
            b"." => return Ok(Name::root()),
            b"@" => return Ok(origin.clone()),
            _ => {}
        }
        let mut wire = Vec::with_capacity(text.len() + 2);
        let is_absolute = push_labels(text, |_| true, &mut wire)?;
        Self::finish(wire, if is_absolute { root_ref() } else { origin })
    }

    fn finish(mut wire: Vec<u8>, suffix: &Name) -> Result<Self, NameError> {
        wire.extend_from_slice(&suffix.0);
        if wire.len() > NAME_OCTETS_MAX {
            return Err(NameError::TooLong);
        }
        Ok(Name(wire.into_boxed_slice()))
    }

    /// Returns the octets of the name, root label included.
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Returns whether the leftmost label is the single octet `*` (RFC 4592 §2.1.1).
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(b"\x01*")
    }

    /// Returns the labels from the leftmost on, without the root label.
    pub fn labels(&self) -> Labels<'_> {
        Labels(&self.0)
    }

    /// Returns the number of labels of the name, without the root label.
    pub fn label_count(&self) -> usize {
        self.labels().count()
    }

    /// Returns the name without its leftmost label; `None` for the root.
    pub fn parent(&self) -> Option<Name> {
        let first = usize::from(self.0[0]);
        (first != 0).then(|| Name(self.0[first + 1..].into()))
    }

    /// Returns whether this name is `ancestor` or below it.
    pub fn is_at_or_below(&self, ancestor: &Name) -> bool {
        let Some(start) = self.0.len().checked_sub(ancestor.0.len()) else { return false };
        self.0[start..].eq_ignore_ascii_case(&ancestor.0) && is_label_start(&self.0, start)
    }

    /// Returns whether this name is strictly below `ancestor`.
    pub fn is_below(&self, ancestor: &Name) -> bool {
        self.0.len() > ancestor.0.len() && self.is_at_or_below(ancestor)
    }

    /// Returns this name with its ASCII letters in lower case (RFC 4034 §6.2), borrowed if they already are.
    pub fn to_lowercase(&self) -> Cow<'_, Name> {
        if self.0.iter().any(u8::is_ascii_uppercase) {
            // Length octets are at most 63, below 'A': the conversion does not change them.
            Cow::Owned(Name(self.0.to_ascii_lowercase().into_boxed_slice()))
        } else {
            Cow::Borrowed(self)
        }
    }
}

/// Returns the labels in wire form at the start of `octets`, up to their end or to a root label.
pub fn labels_of(octets: &[u8]) -> Labels<'_> {
    Labels(octets)
}

/// The labels of a name, leftmost first.
#[derive(Clone)]
pub struct Labels<'a>(&'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(*self.0.first()?);
        if length == 0 {
            return None;
        }
        let label = &self.0[1..=length];
        self.0 = &self.0[length + 1..];
        Some(label)
    }
}

/// Returns the name at `at` in a message with its pointers followed; `None` if it is too long, or if a pointer does not lead to
/// before the previous one.
pub fn expand<'o>(message: &[u8], mut at: usize, octets: &'o mut [u8; NAME_OCTETS_MAX]) -> Option<&'o [u8]> {
    let mut length = 0;
    let mut bound = at;
    loop {
        let label = usize::from(*message.get(at)?);
        match label {
            0..=LABEL_OCTETS_MAX => {
                octets.get_mut(length..length + label + 1)?.copy_from_slice(message.get(at..at + label + 1)?);
                length += label + 1;
                at += label + 1;
                if label == 0 {
                    return Some(&octets[..length]);
                }
            }
            0xc0.. => {
                at = (label & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
                if at >= bound || at < HEADER_OCTETS {
                    return None;
                }
                bound = at;
            }
            _ => return None,
        }
    }
}

/// Returns the end of the uncompressed name at the start of `octets`.
pub fn wire_end(octets: &[u8]) -> Result<usize, NameError> {
    let mut at = 0;
    loop {
        let length = usize::from(*octets.get(at).ok_or(NameError::Truncated)?);
        if length > LABEL_OCTETS_MAX {
            return Err(NameError::LabelType);
        }
        at += length + 1;
        if at > NAME_OCTETS_MAX {
            return Err(NameError::TooLong);
        }
        if length == 0 {
            return Ok(at);
        }
    }
}

/// Returns whether a label, or the end, is at `position` of `wire`, which has at least that many octets.
pub fn is_label_start(wire: &[u8], position: usize) -> bool {
    let mut at = 0;
    while at < position {
        at += usize::from(wire[at]) + 1;
    }
    at == position
}

/// Appends the labels of a text (RFC 1035 §5.1), and returns whether it has a dot at its end. `takes` decides which octets need
/// no escape.
pub fn push_labels(text: &[u8], takes: impl Fn(u8) -> bool, wire: &mut Vec<u8>) -> Result<bool, NameError> {
    let mut rest = text;
    let mut is_absolute = false;
    while !rest.is_empty() {
        let length_at = wire.len();
        wire.push(0);
        is_absolute = false;
        while let Some((&octet, tail)) = rest.split_first() {
            rest = tail;
            match octet {
                b'.' => {
                    is_absolute = true;
                    break;
                }
                b'\\' => {
                    let (value, tail) = unescape(rest)?;
                    rest = tail;
                    wire.push(value);
                }
                _ if takes(octet) => wire.push(octet),
                _ => return Err(NameError::Octet(octet)),
            }
            if wire.len() - length_at - 1 > LABEL_OCTETS_MAX {
                return Err(NameError::LabelTooLong);
            }
        }
        match wire.len() - length_at - 1 {
            0 => return Err(NameError::EmptyLabel),
            length => wire[length_at] = length as u8,
        }
    }
    Ok(is_absolute)
}

fn push_label(wire: &mut Vec<u8>, label: &[u8]) -> Result<(), NameError> {
    if label.is_empty() {
        return Err(NameError::EmptyLabel);
    }
    if label.len() > LABEL_OCTETS_MAX {
        return Err(NameError::LabelTooLong);
    }
    wire.push(label.len() as u8);
    wire.extend_from_slice(label);
    Ok(())
}

/// Returns the octet of an escape (RFC 1035 §5.1), given the text after the backslash, and the rest.
pub fn unescape(after_backslash: &[u8]) -> Result<(u8, &[u8]), NameError> {
    match after_backslash {
        [first, rest @ ..] if !first.is_ascii_digit() => Ok((*first, rest)),
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] => {
            let value = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
            Ok((u8::try_from(value).map_err(|_| NameError::BadEscape)?, rest))
        }
        _ => Err(NameError::BadEscape),
    }
}

/// Appends the text of the name in wire form `wire`, with the dot at its end.
pub fn push_name_text(wire: &[u8], out: &mut Vec<u8>) {
    if wire == [0] {
        out.push(b'.');
    }
    for label in labels_of(wire) {
        push_label_text(label, out);
        out.push(b'.');
    }
}

/// Appends the text of a label; escapes octets that are not printable or have a meaning in zone files.
pub fn push_label_text(label: &[u8], out: &mut Vec<u8>) {
    for &octet in label {
        match octet {
            b'.' | b'"' | b';' | b'\\' | b'(' | b')' | b'@' | b'$' => out.extend([b'\\', octet]),
            0x21..=0x7e => out.push(octet),
            _ => push_decimal_escape(octet, out),
        }
    }
}

/// Appends an octet as `\DDD` (RFC 1035 §5.1).
pub fn push_decimal_escape(octet: u8, out: &mut Vec<u8>) {
    out.extend([b'\\', b'0' + octet / 100, b'0' + octet / 10 % 10, b'0' + octet % 10]);
}

fn root_ref() -> &'static Name {
    static ROOT: std::sync::LazyLock<Name> = std::sync::LazyLock::new(Name::root);
    &ROOT
}

impl FromStr for Name {
    type Err = NameError;

    /// Reads an absolute name; the dot at the end is optional.
    fn from_str(text: &str) -> Result<Self, NameError> {
        match text {
            "@" => Name::from_labels([&b"@"[..]], root_ref()),
            _ => Name::parse(text.as_bytes(), root_ref()),
        }
    }
}

impl fmt::Display for Name {
    /// Writes the presentation format with the dot at the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(self.0.len());
        push_name_text(&self.0, &mut text);
        f.write_str(std::str::from_utf8(&text).expect("all that is not ASCII is escaped"))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        // Nearly all equal names are equal octet by octet.
        self.0 == other.0 || self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // In one piece, because hashers are slow with single octets.
        let mut folded = [0; NAME_OCTETS_MAX];
        let folded = &mut folded[..self.0.len()];
        folded.copy_from_slice(&self.0);
        folded.make_ascii_lowercase();
        state.write(folded);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    /// Canonical order (RFC 4034 §6.1).
    ///
    /// Labels are compared from the root, but can be walked only towards it. Both names are therefore walked in step, the longer
    /// one from the point with as many remaining labels as the other, and the last labels that differ decide.
    fn cmp(&self, other: &Self) -> Ordering {
        // Siblings are compared most often: nearly all names in a zone's map of owners are siblings.
        let split = |name: &Self| usize::from(name.as_wire()[0]) + 1;
        let (my_first, my_rest) = self.as_wire().split_at(split(self));
        let (their_first, their_rest) = other.as_wire().split_at(split(other));
        if my_rest == their_rest {
            return canonical_label_order(&my_first[1..], &their_first[1..]);
        }
        let (my_count, their_count) = (self.label_count(), other.label_count());
        let mine = self.labels().skip(my_count.saturating_sub(their_count));
        let theirs = other.labels().skip(their_count.saturating_sub(my_count));
        match mine.zip(theirs).filter(|(a, b)| !a.eq_ignore_ascii_case(b)).last() {
            Some((a, b)) => canonical_label_order(a, b),
            None => my_count.cmp(&their_count),
        }
    }
}

/// Compares two labels without their lengths: octet by octet, ASCII letters as lower case.
fn canonical_label_order(mut a: &[u8], mut b: &[u8]) -> Ordering {
    // Neighbours in a zone often begin alike.
    while let (Some((first, more)), Some((other_first, other_more))) =
        (a.split_first_chunk::<8>(), b.split_first_chunk())
    {
        if first != other_first {
            break;
        }
        (a, b) = (more, other_more);
    }
    a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    #[test]
    fn text_reads_and_writes_back() {
        for (text, printed) in [
            ("example.org.", "example.org."),
            ("example.org", "example.org."),
            (".", "."),
            (r"a\.b.example.", r"a\.b.example."),
            (r"a\065b.", "aAb."),
            (r"\000\255.x.", r"\000\255.x."),
            (r"\*.z.", "*.z."),
            (r"sp\032ce.z.", r"sp\032ce.z."),
            ("@", r"\@."),
        ] {
            assert_eq!(name(text).to_string(), printed, "{text}");
            assert_eq!(name(printed), name(text), "{text}");
        }
    }

    #[test]
    fn bad_text_is_refused() {
        let long_label = "a".repeat(64);
        let long_name = "abcdefg.".repeat(32);
        for (text, error) in [
            ("", NameError::Empty),
            ("a..b.", NameError::EmptyLabel),
            (".a.", NameError::EmptyLabel),
            (r"a\25.", NameError::BadEscape),
            (r"a\256.", NameError::BadEscape),
            ("a\\", NameError::BadEscape),
            (long_label.as_str(), NameError::LabelTooLong),
            (long_name.as_str(), NameError::TooLong),
        ] {
            assert_eq!(text.parse::<Name>(), Err(error), "{text}");
        }
    }

    #[test]
    fn relative_text_is_below_the_origin() {
        let origin = name("example.org.");
        for (text, whole) in
            [("www", "www.example.org."), ("@", "example.org."), ("www.", "www."), ("a.b", "a.b.example.org.")]
        {
            assert_eq!(Name::parse(text.as_bytes(), &origin), Ok(name(whole)), "{text}");
        }
    }

    #[test]
    fn case_is_kept_and_ignored() {
        assert_eq!(name("Example.ORG."), name("example.org."));
        assert_eq!(name("Example.ORG.").to_string(), "Example.ORG.");
        assert_ne!(name(r"\192."), name(r"\224."), "octets above 127 have no case");
    }

    /// The example of RFC 4034 §6.1.
    #[test]
    fn canonical_order() {
        let sorted = [
            "example.",
            "a.example.",
            "yljkjljk.a.example.",
            "Z.a.example.",
            "zABC.a.EXAMPLE.",
            "z.example.",
            r"\001.z.example.",
            "*.z.example.",
            r"\200.z.example.",
        ];
        let mut names: Vec<Name> = sorted.iter().rev().map(|text| name(text)).collect();
        names.sort();
        assert_eq!(names, sorted.iter().map(|text| name(text)).collect::<Vec<_>>());
    }

    #[test]
    fn ancestors() {
        let zone = name("v3.example.");
        for (text, at_or_below, below) in [
            ("v3.example.", true, false),
            ("a.V3.example.", true, true),
            ("xv3.example.", false, false),
            ("example.", false, false),
            (r"a\002v3.example.", false, false),
        ] {
            assert_eq!((name(text).is_at_or_below(&zone), name(text).is_below(&zone)), (at_or_below, below), "{text}");
        }
    }

    #[test]
    fn wire_is_checked() {
        assert_eq!(Name::from_wire(b"\x01a"), Err(NameError::Truncated));
        assert_eq!(Name::from_wire(b"\xc0\x0c"), Err(NameError::LabelType));
        assert_eq!(Name::from_wire(b"\x40"), Err(NameError::LabelType));
        assert_eq!(Name::split_from(b"\x01a\x00rest"), Ok((name("a."), &b"rest"[..])));
    }
}
