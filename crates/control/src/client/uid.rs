//! A uid as it is kept where there are 100,000: in 16 octets, as the text of one takes 36 and the allocator's grain.

use std::fmt;

/// The uid of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Kept);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kept {
    /// One that is a UUID in lower case with hyphens, as all known servers write it.
    Uuid([u8; 16]),
    Text(Box<str>),
}

impl Uid {
    /// The uid that is written so.
    pub fn new(text: &str) -> Self {
        let mut canonical = [0; uuid::fmt::Hyphenated::LENGTH];
        Uid(match uuid::Uuid::try_parse(text) {
            Ok(uuid) if uuid.hyphenated().encode_lower(&mut canonical) == text => Kept::Uuid(uuid.into_bytes()),
            _ => Kept::Text(text.into()),
        })
    }

    /// That of an object, which may be missing.
    pub fn of(uid: Option<&str>) -> Self {
        Uid::new(uid.unwrap_or_default())
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, text: &str) -> bool {
        *self == Uid::new(text)
    }
}

impl Default for Uid {
    fn default() -> Self {
        Uid(Kept::Text(Box::default()))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kept::Uuid(octets) => uuid::Uuid::from_bytes(*octets).hyphenated().fmt(f),
            Kept::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_written_as_they_came() {
        for text in [
            "391d05cf-d81e-4196-a83e-22fcabafd036",
            "391D05CF-d81e-4196-a83e-22fcabafd036",
            "391d05cfd81e4196a83e22fcabafd036",
            "uid-1",
            "",
        ] {
            let uid = Uid::new(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(matches!(uid.0, Kept::Uuid(_)), text.starts_with("391d05cf-"), "{text}");
            assert_ne!(uid, Uid::new("x"));
        }
        assert_eq!(Uid::of(None), Uid::default());
        assert_eq!(size_of::<Uid>(), 24);
    }
}
