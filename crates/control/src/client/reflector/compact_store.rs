//! The objects of an informer, and the comparison of their versions.

use std::collections::HashMap;
use std::sync::Arc;

use super::ObjectKey;
use crate::client::uid::Uid;

pub(super) type CompactStore<V> = HashMap<ObjectKey, Entry<V>>;

/// An object's entry.
pub(super) struct Entry<V> {
    pub uid: Uid,
    pub version: Version,
    pub value: Arc<V>,
}

/// A version that can be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Version {
    Number(u64),
    Text(Box<str>),
}

impl Version {
    pub fn new(text: &str) -> Self {
        match text.parse::<u64>() {
            Ok(number) if !text.starts_with(['0', '+']) || number == 0 && text == "0" => Version::Number(number),
            _ => Version::Text(text.into()),
        }
    }

    pub fn text(&self) -> Box<str> {
        match self {
            Version::Number(number) => number.to_string().into(),
            Version::Text(text) => text.clone(),
        }
    }

    /// Returns whether this version is newer than `other`. If they are not numbers, which the API conventions allow, any
    /// difference counts as newer.
    pub fn is_newer_than(&self, other: &Version) -> bool {
        match (self, other) {
            (Version::Number(this), Version::Number(other)) => this > other,
            _ => self != other,
        }
    }

    /// Returns whether the server is now at a version, `now`, before this one.
    pub fn went_back(&self, now: &Version) -> bool {
        matches!((self, now), (Version::Number(this), Version::Number(now)) if now < this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_given_as_they_came() {
        for version in ["0", "18446744073709551615", "", "007", "+7", "a"] {
            assert_eq!(&*Version::new(version).text(), version);
        }
    }

    #[test]
    fn versions_are_compared_as_numbers_if_they_are() {
        let newer = |a: &str, b: &str| Version::new(a).is_newer_than(&Version::new(b));
        assert!(newer("10", "9") && !newer("9", "10") && !newer("9", "9"));
        assert!(newer("a", "b") && newer("b", "a") && newer("1", "a") && !newer("a", "a"));
        let went_back = |known: &str, now: &str| Version::new(known).went_back(&Version::new(now));
        assert!(went_back("10", "9") && !went_back("9", "10") && !went_back("b", "a"));
    }
}
